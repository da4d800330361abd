"""Jobs of accounts: what they may take of the server's memory, all together and of one account."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet
from tests.support.entrance import ROOT, Entrance, entrance, run
from tests.support.live import live
from tests.support.world import World
from topmast.fast.queue import JobRecord, most_bytes_of, said_bytes
from topmast.fast.queue.jobs.weights import JOB_BYTES, LETTER_BYTES
from topmast.model.access import ROOT as ROOT_TENANT
from topmast.model.access import Role
from topmast.model.errors import Full
from topmast.model.files.jobfile import parse_job
from topmast.service.queue_room import QueueRoom

SCRIPT = "true " * 1_000
JOB: dict[str, Any] = {"tenant": "vision", "run": SCRIPT, "resources": {"accelerators": "H100:8"}}
"""More GPUs than a host has: it waits for as long as the server runs."""
ONE_BYTES = JOB_BYTES + LETTER_BYTES * len(SCRIPT + "job")
FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}
"""


async def _taken(client: httpx.AsyncClient, job: dict[str, Any] = JOB) -> int:
    """How many jobs of one account are taken."""
    for number in range(100):
        answer = await client.post("/jobs", json={"job": job})
        if answer.status_code == 507:
            return number
        assert answer.status_code == 201, answer.text
    raise AssertionError("there is no end")


def test_an_account_has_as_much_as_it_leaves_free(tmp_path: Path) -> None:
    """Also after a restart, in bulk, in a sweep, and for another; what ended counts no more."""

    async def fill(door: Entrance) -> None:
        ada = door.client(await door.token("ada", (Role.SUBMITTER, "vision")))
        bob = door.client(await door.token("bob", (Role.SUBMITTER, "vision")))
        keyed = {"Idempotency-Key": "first"}
        first = await ada.post("/jobs", json={"job": JOB}, headers=keyed)
        assert await _taken(ada) == 3
        again = await ada.post("/jobs", json={"job": JOB}, headers=keyed)
        assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
        refused = (await ada.post("/jobs", json={"job": JOB})).json()
        assert refused["detail"] == (
            "the server takes no more jobs of sa:ada for tenant vision: those that have not ended take "
            "68.2kB of its memory, these would take 17.1kB, and 0B is left for them: no account and no tenant may "
            "have more than it leaves free (cancel what need not run, wait for jobs to end, or ask "
            "for topmast up --queue-memory)"
        )
        assert await _taken(bob) == 2

    async def after_a_restart(door: Entrance) -> None:
        ada = door.client(await door.token("ada", (Role.SUBMITTER, "vision")))
        assert await _taken(ada) == 0
        bob = door.client(await door.token("bob", (Role.SUBMITTER, "vision")))
        dan = door.client(await door.token("dan", (Role.SUBMITTER, "speech")))
        many = [JOB | {"tenant": "speech"}]
        for count, status in ((3, 507), (1, 201)):
            sent = await dan.post("/jobs/bulk", json={"jobs": many * count})
            assert sent.status_code == status, sent.text
        sweep = many[0] | {"sweep": {"range": {"variable": "SEED", "to": 2}}}
        assert (await dan.post("/jobs", json={"job": sweep})).status_code == 507
        page = (await ada.get("/jobs", params={"limit": 100})).json()["jobs"]
        mine = [job["id"] for job in page if job["user"] == "sa:ada"]
        assert len(mine) == 4
        assert (await ada.post("/jobs/cancel", json={"jobs": mine})).is_success
        assert 1 <= await _taken(ada) <= 4
        await door.service.submit_many(ROOT, [JOB] * 50, "root", "")
        assert await _taken(bob) == 0

    for story in (fill, after_a_restart):
        with entrance(tmp_path) as door:
            door.service.queue_room.most_bytes = 16 * ONE_BYTES
            run(partial(story, door))


def test_what_a_tenant_admin_submits_for_others_is_its_tenants_own(tmp_path: Path) -> None:
    """It takes nothing from an account of the same name in another tenant, nor tells of it."""

    async def story(door: Entrance) -> None:
        boss = door.client(await door.token("boss", (Role.TENANT_ADMIN, "vision")))
        dan = door.client(await door.token("dan", (Role.SUBMITTER, "speech")))
        theirs = JOB | {"tenant": "speech"}
        assert (await dan.post("/jobs", json={"job": theirs})).status_code == 201
        for _ in range(100):
            sent = await boss.post("/jobs", json={"job": JOB, "user": "sa:dan"})
            if sent.status_code == 507:
                break
        told = sent.json()["detail"]
        assert "sa:dan for tenant vision: those that have not ended take 68.2kB" in told
        assert 2 <= await _taken(dan, theirs) <= 4

    with entrance(tmp_path) as door:
        door.service.queue_room.most_bytes = 17 * ONE_BYTES
        run(partial(story, door))


def test_requests_that_come_together_have_no_more_room(tmp_path: Path) -> None:
    """Each counts for the others while it is admitted."""

    async def story(door: Entrance) -> None:
        names = [f"copy{n}" for n in range(8)]
        clients = [door.client(await door.token(one, (Role.SUBMITTER, "vision"))) for one in names]
        many = {"jobs": [JOB] * 3}
        sent = await asyncio.gather(*(one.post("/jobs/bulk", json=many) for one in clients))
        codes = sorted(answer.status_code for answer in sent)
        assert codes[0] == 201
        assert codes.count(507) >= 5, codes
        assert not door.service.queue_room._coming

    with entrance(tmp_path) as door:
        door.service.queue_room.most_bytes = 16 * ONE_BYTES
        run(partial(story, door))


def _comes(room: QueueRoom) -> bool:
    """Whether jobs are on their way into the queue, soon."""
    until_s = time.monotonic() + 20
    while not room._coming and time.monotonic() < until_s:
        time.sleep(0.01)
    return bool(room._coming)


@pytest.mark.parametrize(
    ("path", "body"), [("/jobs", {"job": JOB}), ("/jobs/bulk", {"jobs": [JOB]})]
)
def test_a_repeat_waits_for_its_first_try_and_counts_no_more(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    """Also one that comes before the first is in the queue; what has another key, or none, is new."""

    async def story(door: Entrance) -> None:
        ada = door.client(await door.token("ada", (Role.SUBMITTER, "vision")))
        keyed, other = {"Idempotency-Key": "once"}, {"Idempotency-Key": "another"}
        goes_on = threading.Event()
        held = door.service.runtime.ask(lambda: goes_on.wait(30))
        first = asyncio.create_task(ada.post(path, json=body, headers=keyed))
        assert await asyncio.to_thread(_comes, door.service.queue_room)
        again = asyncio.create_task(ada.post(path, json=body, headers=keyed))
        anew = [await ada.post(path, json=body, headers=headers) for headers in (other, {})]
        done, _ = await asyncio.wait({again}, timeout=0.5)
        goes_on.set()
        assert not done, again.result().text
        assert [answer.status_code for answer in anew] == [507, 507]
        sent = await asyncio.gather(first, again, asyncio.wrap_future(held))
        assert [answer.status_code for answer in sent[:2]] == [201, 201], sent[1].text
        assert sent[0].json() == sent[1].json()

    with entrance(tmp_path) as door:
        door.service.queue_room.most_bytes = 4 * ONE_BYTES
        run(partial(story, door))


@contextmanager
def _held_commit(door: Entrance) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The next commit waits: the events tell that it does, and that it may go on."""
    journal, begun, goes_on = door.system.journal, threading.Event(), threading.Event()
    append = journal.append

    def wait(records: Any, audit: Any) -> None:
        begun.set()
        goes_on.wait(30)
        append(records, audit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "append", wait)
        try:
            yield begun, goes_on
        finally:
            goes_on.set()


def test_what_is_in_the_queue_is_no_longer_coming(tmp_path: Path) -> None:
    """A request has its answer only once it is durable: its jobs do not count twice until then."""

    async def story(door: Entrance) -> None:
        ada = door.client(await door.token("ada", (Role.SUBMITTER, "vision")))
        many = {"jobs": [JOB] * 2}
        with _held_commit(door) as (begun, goes_on):
            first = asyncio.create_task(ada.post("/jobs/bulk", json=many))
            assert await asyncio.to_thread(begun.wait, 30)
            second = asyncio.create_task(ada.post("/jobs/bulk", json=many))
            done, _ = await asyncio.wait({second}, timeout=2)
            assert not done, second.result().text
            third = await ada.post("/jobs", json={"job": JOB})
            assert third.status_code == 507, "the second counts"
            goes_on.set()
            sent = await asyncio.gather(first, second)
        assert [answer.status_code for answer in sent] == [201, 201]
        named = [job for answer in sent for job in answer.json()["ids"]]
        assert (await ada.post("/jobs/cancel", json={"jobs": named})).is_success
        with _held_commit(door) as (begun, goes_on):
            halves = [{"jobs": named[:2]}, {"jobs": named[2:]}]
            first = asyncio.create_task(ada.post("/jobs/requeue", json=halves[0]))
            assert await asyncio.to_thread(begun.wait, 30)
            second = asyncio.create_task(ada.post("/jobs/bulk", json=many))
            done, _ = await asyncio.wait({second}, timeout=2)
            assert not done, second.result().text
            goes_on.set()
            sent = await asyncio.gather(first, second)
        assert [answer.status_code for answer in sent] == [200, 201]
        assert (await ada.post("/jobs/requeue", json=halves[1])).status_code == 507

    with entrance(tmp_path) as door:
        door.service.queue_room.most_bytes = 16 * ONE_BYTES
        run(partial(story, door))


def test_while_jobs_are_taken_in_they_count_once() -> None:
    """Some are in the queue then, and some are coming: no other request has more or less room."""
    spec = replace(parse_job(JOB).spec, user="ada")
    queue = World(fleet(cluster("east-1", hosts=1))).queue
    room = QueueRoom(queue, lambda tenant: (tenant, ROOT_TENANT))
    one_bytes = most_bytes_of(spec)
    room.most_bytes = 40 * one_bytes

    def judged() -> int:
        """For how many more there is room."""
        for count in range(1, 41):
            try:
                with room.for_some([spec] * count):
                    pass
            except Full:
                return count - 1
        raise AssertionError("there is no end")

    assert judged() == 10
    with room.for_some([spec] * 4) as claim:
        assert judged() == 6
        for first in (1, 3):
            with room.applied(claim):
                for number in (first, first + 1):
                    queue.jobs.note(JobRecord(f"j{number}", number, spec, 0.0))
                    assert judged() == 6
            assert judged() == 6
    assert judged() == 6


def test_jobs_that_wait_again_need_room_again(tmp_path: Path) -> None:
    """Cancelling, filling and trying anew would pass any bound."""

    async def story(door: Entrance) -> None:
        ada = door.client(await door.token("ada", (Role.SUBMITTER, "vision")))
        assert await _taken(ada) == 4
        named = [job["id"] for job in (await ada.get("/jobs")).json()["jobs"]]
        assert (await ada.post("/jobs/cancel", json={"jobs": named})).is_success
        assert await _taken(ada) == 4
        others = [job["id"] for job in (await ada.get("/jobs")).json()["jobs"]][:4]
        again = await ada.post("/jobs/requeue", json={"jobs": named})
        assert again.status_code == 507, again.text
        assert (await ada.post("/jobs/cancel", json={"selector": "state=active"})).is_success
        halves = [named[:3], others[:3]]
        sent = [ada.post("/jobs/requeue", json={"jobs": half}) for half in halves]
        codes = sorted(answer.status_code for answer in await asyncio.gather(*sent))
        assert codes == [200, 507], "they come together"

    with entrance(tmp_path) as door:
        door.service.queue_room.most_bytes = 16 * ONE_BYTES
        run(partial(story, door))


def test_a_longer_job_takes_more(tmp_path: Path) -> None:
    """So do its variables, labels and dependencies."""

    async def story(door: Entrance) -> None:
        ada = door.client(await door.token("ada", (Role.SUBMITTER, "vision")))
        for more in (
            {"run": SCRIPT * 6},
            {"datasets": [f"{n}-{'d' * 99}" for n in range(150)]},
            {"envs": {"A": SCRIPT * 5}},
            {"run": SCRIPT * 4, "labels": {f"label-{n}": "x" for n in range(40)}},
            {"run": SCRIPT * 3 + "ä"},
        ):
            assert (await ada.post("/jobs", json={"job": JOB | more})).status_code == 507
        assert await _taken(ada) == 4

    with entrance(tmp_path) as door:
        door.service.queue_room.most_bytes = 16 * ONE_BYTES
        run(partial(story, door))


@pytest.mark.parametrize(
    "sweep",
    [
        {"matrix": {"A": ["x" * 9_000, "y"], "B": ["1", "2"]}},
        {"list": [{"A": "x" * 9_000}, {"A": "y"}, {"A": "z"}]},
        {"range": {"variable": "SEED", "from": 1, "to": 30}},
    ],
)
def test_a_sweep_takes_what_its_jobs_will_have(tmp_path: Path, sweep: dict[str, Any]) -> None:
    """Its values are in each of them: a short request may become more than there is."""

    async def story(door: Entrance) -> None:
        ada = door.client(await door.token("ada", (Role.SUBMITTER, "vision")))
        short = JOB | {"run": "true", "sweep": sweep}
        before = sum(door.service.machines.queue.jobs.weights.by_user.values())
        refused = await ada.post("/jobs", json={"job": short})
        assert refused.status_code == 507, refused.text
        door.service.queue_room.most_bytes = 1024 * ONE_BYTES
        sent = await ada.post("/jobs", json={"job": short})
        assert sent.status_code == 201, sent.text
        spec = parse_job(short).spec
        assert spec.sweep
        taken = door.service.machines.queue.jobs.weights.by_user["vision", "sa:ada"]
        assert before < taken <= most_bytes_of(spec) * spec.sweep.size + said_bytes(spec)

    with entrance(tmp_path) as door:
        door.service.queue_room.most_bytes = 8 * ONE_BYTES
        run(partial(story, door))


def test_one_person_has_no_bound_and_the_option_is_kept(tmp_path: Path) -> None:
    """Without a login all memory is that person's own."""
    job = {"run": "true", "resources": {"accelerators": "H100:1"}}
    with live(tmp_path, FLEET, arguments=("--queue-memory", "10kB")) as (server, client):
        assert len(client.submit_many([job] * 20).ids) == 20
        server.stop()
        server.arguments = ()
        server.start()
        server.wait_ready()
        with sqlite3.connect(server.state / "journal.sqlite") as connection:
            kept = connection.execute("SELECT value FROM options WHERE name = 'queue_memory'")
            assert kept.fetchone() == ("10000",)
        connection.close()
