"""Regions and clusters come and go while the server runs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.entrance import Entrance, entrance, run
from tests.support.live import Server, eventually, tasks, until_state
from topmast import Client
from topmast.app.login import refuse_local_engines
from topmast.app.surroundings import LiveSurroundings
from topmast.bench.fake_engine import FakeEngine
from topmast.cli.rootoptions import ServeOptions
from topmast.fast.queue import machine
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import Role
from topmast.model.errors import Conflict, InvalidInput
from topmast.model.files.fleetfile import parse_fleet

HERE = {
    "regions": {
        "east": {"clusters": {"east-1": {"hosts": [{"names": ["e0"], "gpu": "H100", "gpus": 2}]}}}
    }
}
WEST = {"clusters": {"west-1": {"hosts": [{"names": ["w0"], "gpu": "A100", "gpus": 2}]}}}
BOTH = {"regions": {**HERE["regions"], "west": WEST}}
JOB: dict[str, Any] = {
    "name": "there",
    "run": "echo here I am",
    "resources": {"accelerators": "A100:1"},
}


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Entrance]:
    """A control plane with login and engines that are made up."""
    with entrance(tmp_path) as found:
        yield found


async def fleet_of(client: httpx.AsyncClient) -> tuple[str, dict[str, Any]]:
    """Version and document of the fleet."""
    found = (await client.get("/fleet")).json()
    return found["version"], found["fleet"]


async def with_west(client: httpx.AsyncClient) -> dict[str, Any]:
    """The fleet with one region more."""
    _, document = await fleet_of(client)
    document["regions"]["west"] = copy.deepcopy(WEST)
    return document


async def apply(client: httpx.AsyncClient, document: dict[str, Any]) -> httpx.Response:
    """What the server says to a fleet."""
    return await client.post("/fleet/apply", json={"fleet": document, "reason": "growth"})


async def is_in(client: httpx.AsyncClient, job: str, state: str) -> None:
    """Wait until a job is in a state."""
    for _ in range(500):
        if (await client.get(f"/jobs/{job}")).json()["state"] == state:
            return
    raise AssertionError(f"{job} is not {state}")


async def submit(client: httpx.AsyncClient) -> str:
    """A job that only a region with A100s can run."""
    job: str = (await client.post("/jobs", json={"job": JOB | {"tenant": "speech"}})).json()["id"]
    return job


def test_a_region_comes_and_goes_again(door: Entrance) -> None:
    """A job runs in it; while it does the region may not go, and the reason names the job."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            version, before = await fleet_of(client)
            document = await with_west(client)
            shown = (await client.post("/fleet/diff", json={"fleet": document})).json()["changes"]
            assert [(c["what"], c["change"], c["live"]) for c in shown] == [
                ("region west", "added", True), ("cluster west-1", "added", True),
            ]  # fmt: skip
            assert sorted(door.system.engines) == ["east-a"], "a look opens nothing"
            done = await apply(client, document)
            assert (done.status_code, door.acts()[0].verb) == (200, "fleet-apply"), done.text
            assert sorted(door.system.engines) == ["east-a", "west-1"]
            job = await submit(client)
            await is_in(client, job, "RUNNING")
            refused = await apply(client, before)
            assert refused.status_code == 409
            assert f"jobs are in cluster west-1 ({job})" in refused.json()["detail"]
            assert "topmast drain -l cluster=west-1" in refused.json()["detail"]
            assert door.acts()[0].outcome.startswith("refused: jobs are in cluster west-1")
            shown = (await client.post("/fleet/diff", json={"fleet": before})).json()
            assert [c["jobs"] for c in shown["changes"]] == [[job], [job]]
            assert shown["warnings"] == [f"it would be refused now: {refused.json()['detail']}"]
            await client.post(f"/jobs/{job}/cancel", json={})
            await is_in(client, job, "CANCELLED")
            gone = await apply(client, before)
            assert gone.status_code == 200, gone.text
            assert sorted(door.system.engines) == ["east-a"]
            assert (await fleet_of(client)) == (version, before)
            again = await apply(client, document)
            assert again.status_code == 200, again.text
            await is_in(client, await submit(client), "RUNNING")

    run(story)


def test_what_would_be_refused_is_told_with_the_differences(door: Entrance, tmp_path: Path) -> None:
    """By the same words: a dataset that may be in no other region keeps the region."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            _, before = await fleet_of(client)
            assert (await apply(client, await with_west(client))).status_code == 200
            (tmp_path / "files").mkdir()
            (tmp_path / "files" / "one").write_text("1")
            spec = {"name": "here", "region": "west", "source": str(tmp_path / "files"),
                    "allowed": ["west"]}  # fmt: skip
            made = await client.post("/datasets", json=spec)
            assert made.status_code == 201, made.text
            shown = (await client.post("/fleet/diff", json={"fleet": before})).json()["warnings"]
            refused = (await apply(client, before)).json()["detail"]
            assert "dataset here may be in no region that stays" in refused
            assert shown == [f"it would be refused now: {refused}"]

    run(story)


def test_what_an_engine_tells_early_is_heard_when_its_cluster_is_there(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is down at the opening takes no work: the news came before the queue knew of it."""
    opened = FakeEngine.open

    def open_with_news(self: FakeEngine, post: Any) -> None:
        opened(self, post)
        post(m.HostDown("w0", "no answer"))

    monkeypatch.setattr(FakeEngine, "open", open_with_news)

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            assert (await apply(client, await with_west(client))).status_code == 200
            history = partial(door.system.journal.history, ids.host("w0"))
            eventually(lambda: "host-down" in [row.kind for row in history()], "it is heard")

    run(story)


def test_an_operator_may_add_hosts_but_no_cluster(door: Entrance) -> None:
    """Options of engines name programs and files of the server's machine: that is for administrators."""

    async def story() -> None:
        token = await door.token("ops", (Role.OPERATOR, "/"))
        async with door.client(token) as client:
            document = await with_west(client)
            refused = await apply(client, document)
            assert refused.status_code == 403
            assert "fleet.build" in refused.json()["detail"]
            del document["regions"]["west"]
            document["regions"]["east"]["clusters"]["east-a"]["hosts"][0]["names"].append(
                "east-a-9"
            )
            assert (await apply(client, document)).status_code == 200

    run(story)


def _no_engine(document: dict[str, Any]) -> None:
    document["regions"]["west"]["clusters"]["west-1"]["engine"] = "abacus"


def _no_option(document: dict[str, Any]) -> None:
    document["regions"]["west"]["clusters"]["west-1"]["options"] = {"speed": "11"}


def _same_store(document: dict[str, Any]) -> None:
    document["regions"]["west"]["store"] = "{state}/stores/east"


def _taken_host(document: dict[str, Any]) -> None:
    hosts = document["regions"]["east"]["clusters"]["east-a"]["hosts"][0]
    document["regions"]["west"]["clusters"]["west-1"]["hosts"] = [
        {"names": [hosts["names"].pop()], "gpu": "H100", "gpus": 2}
    ]


def test_a_dry_run_is_refused_as_the_act(door: Entrance) -> None:
    """With the same words; one that would be taken changes nothing."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            before = await fleet_of(client)
            good, bad = await with_west(client), copy.deepcopy(before[1])
            bad["regions"]["east"]["clusters"]["east-a"]["hosts"][0]["gpus"] -= 1
            told = []
            for dry in ({"dry_run": True}, {}):
                refused = await client.post("/fleet/apply", json={"fleet": bad, **dry})
                told.append((refused.status_code, refused.json()["detail"]))
            assert told[0] == told[1]
            assert told[0][0] == 409
            body = {"fleet": good, "dry_run": True}
            shown = await client.post("/fleet/apply", json=body)
            assert shown.status_code == 200, shown.text
            assert shown.json()["changes"]
            assert await fleet_of(client) == before
            assert sorted(door.system.engines) == ["east-a"]

    run(story)


@pytest.mark.parametrize(
    ("spoil", "status", "says"),
    [
        (_no_engine, 422, "engine 'abacus' is not available"),
        (_no_option, 422, "has no such option"),
        (_same_store, 422, "the store of region"),
        (_taken_host, 409, "cluster east-a -> west-1: a running server cannot do that"),
    ],
)
def test_a_fleet_that_cannot_be_served_changes_nothing(
    door: Entrance, spoil: Any, status: int, says: str
) -> None:
    """Not the fleet, the engines nor the stores; and the next apply of a good one works."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            before = await fleet_of(client)
            document = await with_west(client)
            spoil(document)
            west = document["regions"]["west"]
            if "store" in west:
                west["store"] = west["store"].format(state=door.system.state)
            refused = await apply(client, document)
            assert refused.status_code == status, refused.text
            assert says in refused.json()["detail"]
            assert door.acts()[0].outcome.startswith("refused: ")
            assert await fleet_of(client) == before
            assert sorted(door.system.engines) == ["east-a"]
            assert (await apply(client, await with_west(client))).status_code == 200

    run(story)


def test_an_engine_that_cannot_be_opened_is_told_and_leaves_nothing(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, for example: 422 with the cluster, and the fleet as it was."""

    def no_room(self: FakeEngine, post: Any) -> None:
        raise OSError(28, "No space left on device")

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            before = await fleet_of(client)
            with monkeypatch.context() as patch:
                patch.setattr(FakeEngine, "open", no_room)
                refused = await apply(client, await with_west(client))
            assert (refused.status_code, refused.json()["field"]) == (
                422,
                "regions.west.clusters.west-1",
            )
            assert "No space left" in refused.json()["detail"]
            assert await fleet_of(client) == before
            assert sorted(door.system.engines) == ["east-a"]
            with pytest.raises(Exception, match="no store"):
                door.system.mover.measure("west", "any")

    run(story)


def test_a_refusal_by_the_queue_closes_what_was_opened(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fleet changed between the look and the order: nothing is left of the new cluster."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            monkeypatch.setattr(machine, "stranded", lambda queue, fleet: "just now")
            refused = await apply(client, await with_west(client))
            assert (refused.status_code, refused.json()["detail"]) == (409, "just now")
            assert sorted(door.system.engines) == ["east-a"]

    run(story)


def test_a_server_for_others_gets_no_cluster_that_runs_tasks_as_itself(tmp_path: Path) -> None:
    """The rule of a start holds for a change of the fleet too."""
    options = ServeOptions(fleet=None, state=tmp_path, listen="0.0.0.0:6279")
    with entrance(tmp_path) as door:
        around = door.service.surroundings
        assert isinstance(around, LiveSurroundings)
        around._require = partial(refuse_local_engines, options=options)
        with pytest.raises(InvalidInput, match="run as the user of the server"):
            around.checked(parse_fleet(BOTH))


def apply_live(client: Client, fleet: dict[str, Any]) -> None:
    """As `topmast fleet apply`."""
    client.fleet_apply(fleet=fleet, base=client.fleet().version)


def test_real_tasks_run_in_a_region_that_came_later(tmp_path: Path) -> None:
    """It outlives a restart; data keeps it from going; what its tasks wrote stays readable."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(str(HERE), encoding="utf-8")
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("y")
    server = Server(tmp_path / "state", fleet)
    try:
        with server.up() as client:
            apply_live(client, BOTH)
            job = client.submit(JOB).id
            until_state(client, job, "SUCCEEDED")
            client.add_dataset("set", "west", source=data)
        assert server.stop() == 0
        with server.up() as client:
            assert sorted(region.name for region in client.regions()) == ["east", "west"]
            second = client.submit(JOB | {"name": "second"}).id
            until_state(client, second, "SUCCEEDED")
            with pytest.raises(Conflict, match="region west has a replica of dataset set"):
                apply_live(client, HERE)
            client.remove_dataset("set")
            eventually(lambda: _applied(client), "the files of the dataset are deleted")
            assert [region.name for region in client.regions()] == ["east"]
            assert "".join(str(chunk) for chunk in client.logs(second)) == "here I am\n"
            eventually(lambda: not tasks(server.state), "agents of the cluster end by themselves")
        assert server.stop() == 0
        with server.up() as client:
            assert [region.name for region in client.regions()] == ["east"]
        assert "no engine for a message" not in server.log_tail()
    finally:
        server.end()


def _applied(client: Client) -> bool:
    try:
        apply_live(client, HERE)
    except Conflict as error:
        if "is being deleted" not in str(error):
            raise
        return False
    return True
