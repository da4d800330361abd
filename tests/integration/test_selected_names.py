"""A selector that names what there is not is refused: it would mean no job, without a word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.entrance import ROOT, Entrance, entrance, run
from topmast.model.access import Role
from topmast.model.errors import InvalidInput
from topmast.ports.journal import JobRow

ONE = {"run": "true", "resources": {"accelerators": "H100:1"}, "tenant": "vision"}
LISTS = ("/jobs?state=active&selector=", "/jobs?selector=")


@pytest.fixture(name="door")
def door_fixture(tmp_path: Path) -> Iterator[Entrance]:
    with entrance(tmp_path) as door:
        yield door


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("tenant=visoin", "unknown tenant 'visoin' (did you mean 'vision'?)"),
        ("tenant=vision,tenant=visoin", "unknown tenant 'visoin' (did you mean 'vision'?)"),
        ("user=sa:chif", "unknown user 'sa:chif' (did you mean 'sa:chief'?)"),
        ("user=chi", "unknown user 'chi' (did you mean 'sa:chief'?)"),
        ("user=zoe", "unknown user 'zoe' (no job of it is known)"),
        ("cluster=east-b", "unknown cluster 'east-b' (did you mean 'east-a'?)"),
        ("host=east-a-l", "unknown host 'east-a-l' (did you mean 'east-a-1'?)"),
        (
            "sweep=s99",
            "no sweep 's99' (the id of a sweep, such as s7: `topmast queue` shows those "
            "that there are)",
        ),
        ("state=runing", "unknown state 'runing' (did you mean 'RUNNING'?)"),
        ("band=hihg", "unknown band 'hihg' (did you mean 'high'?)"),
    ],
)
def test_what_there_is_not_is_refused_with_what_is_near(
    selector: str, said: str, door: Entrance
) -> None:
    """By every act, and by the lists; nothing is done."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            await client.post("/jobs", json={"job": ONE})
            for verb in ("cancel", "hold", "requeue"):
                answer = await client.post(f"/jobs/{verb}", json={"selector": selector})
                told = answer.json()
                assert (answer.status_code, told["field"]) == (422, "selector"), answer.text
                assert f"{told['detail']} ({told['remedy']})" == said
            for path in LISTS:
                answer = await client.get(f"{path}{selector}")
                if path == LISTS[1] and answer.status_code == 200:
                    assert "tenant=vision,tenant" in selector, "what has ended may be of another"
                    continue
                assert (answer.status_code, answer.json()["detail"]) == (422, told["detail"])
            caller = door.service.directory.caller(token)
            assert caller is not None
            with pytest.raises(InvalidInput, match=told["detail"]):
                await door.service.groups(caller, "tenant", ["active"], selector)

    run(story)


def test_no_user_is_hinted_at_that_the_caller_does_not_see(door: Entrance) -> None:
    """It has jobs, of another tenant."""

    async def story() -> None:
        chief = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(chief) as client:
            assert (await client.post("/jobs", json={"job": ONE})).status_code == 201
        for role, hint in ((Role.SUBMITTER, "no job of it is known"), (Role.VIEWER, "sa:chief")):
            tenant = "speech" if role is Role.SUBMITTER else "vision"
            token = await door.token(f"of-{tenant}", (role, tenant))
            async with door.client(token) as client:
                answer = await client.get(f"{LISTS[0]}user=chi")
                assert answer.status_code == 422, answer.text
                assert hint in answer.json()["remedy"]

    run(story)


def test_no_mistake_in_a_selector_hides_another(door: Entrance) -> None:
    """One of its form, and what it names that there is not."""
    selector = "tenant=visoin,state=RUNING,cluster=eest-a,tenat=x"
    said = ["unknown key 'tenat'", "unknown state 'RUNING'", "unknown tenant 'visoin'",
            "unknown cluster 'eest-a'"]  # fmt: skip

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            answers = [await client.post("/jobs/cancel", json={"selector": selector})]
            answers += [await client.get(f"{path}{selector}") for path in LISTS]
            for answer in answers:
                assert [one["detail"] for one in answer.json()["errors"]] == said

    run(story)


@pytest.mark.parametrize(
    "selector",
    ["label.team=nobody", "name=nothing", "tenant=v9*", "user=x*", "tenant=speech", "user=ann",
     "user=sa:idle", "cluster=east-a,band=low"],
)  # fmt: skip
def test_what_no_job_has_is_no_fault(selector: str, door: Entrance) -> None:
    """Labels, names and patterns are free; a tenant may have no job, and a person who has a role."""

    async def story() -> None:
        await door.service.directory.grant(ROOT, "user:ann", "viewer", "vision")
        await door.token("idle")
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            await client.post("/jobs", json={"job": ONE})
            answer = await client.post("/jobs/cancel", json={"selector": selector})
            assert (answer.status_code, answer.json()["effects"]) == (200, []), answer.text
            for path in LISTS:
                answer = await client.get(f"{path}{selector}")
                assert (answer.status_code, answer.json()["jobs"]) == (200, []), answer.text

    run(story)


def test_what_is_hidden_reads_as_absent(door: Entrance) -> None:
    """A tenant and a user that only others see, to the last letter; an act on one is audited."""

    async def story() -> None:
        async with door.client(await door.token("theirs", (Role.SUBMITTER, "speech"))) as other:
            sent = await other.post("/jobs", json={"job": ONE | {"tenant": "speech"}})
            assert sent.status_code == 201
            swept = ONE | {"tenant": "speech", "sweep": {"matrix": {"X": [1, 2]}}}
            sweep = (await other.post("/jobs", json={"job": swept})).json()["id"]
            assert len((await other.get(f"/jobs?selector=sweep={sweep}")).json()["jobs"]) == 2
        async with door.client(await door.token("own", (Role.SUBMITTER, "vision"))) as client:
            for key, hidden, absent in (
                ("tenant", "speech", "speexh"), ("user", "sa:theirs", "sa:theirx"),
                ("sweep", sweep, "s99"),
            ):  # fmt: skip
                asks: tuple[Callable[[str], Awaitable[httpx.Response]], ...] = (
                    lambda text: client.post("/jobs/cancel", json={"selector": text}),
                    lambda text: client.get("/jobs", params={"selector": text}),
                    lambda text: client.get("/jobs", params={"selector": text, "state": "active"}),
                )
                for ask in asks:
                    one, two = await ask(f"{key}={hidden}"), await ask(f"{key}={absent}")
                    assert one.status_code == two.status_code == 422
                    assert one.text.replace(hidden, "X") == two.text.replace(absent, "X")
            acts = [act for act in door.acts() if act.verb == "cancel"]
            assert acts, "what the role forbids is in the audit log"
            assert {act.outcome for act in acts} == {
                f"refused: sa:own has no role with the permission jobs.cancel for {of}"
                for of in ("tenant speech", "the tenant of a sweep")
            }

    run(story)


def test_a_hidden_job_is_looked_for_as_long_as_an_absent_one(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the answer would tell that there is one."""
    looked: list[str] = []
    real = door.service.journal.finished_job

    def finished_job(job: str) -> JobRow | None:
        looked.append(job)
        return real(job)

    monkeypatch.setattr(door.service.journal, "finished_job", finished_job)

    async def story() -> None:
        async with door.client(await door.token("theirs", (Role.SUBMITTER, "speech"))) as other:
            sent = await other.post("/jobs", json={"job": ONE | {"tenant": "speech"}})
            hidden = sent.json()["id"]
            assert (await other.get(f"/jobs/{hidden}")).status_code == 200
        assert looked == []
        async with door.client(await door.token("own", (Role.SUBMITTER, "vision"))) as client:
            for job in (hidden, "j99"):
                assert (await client.get(f"/jobs/{job}")).status_code == 404
        assert looked == [hidden, "j99"]

    run(story)


def test_a_user_is_known_by_the_roles_that_the_caller_sees(door: Entrance) -> None:
    """Of its own tenant, not of others; who may see no roles knows those with jobs."""

    async def story() -> None:
        for user, tenant in (("ann", "vision"), ("bob", "speech")):
            await door.service.directory.grant(ROOT, f"user:{user}", "viewer", tenant)
        lead = await door.token("lead", (Role.TENANT_ADMIN, "vision"))
        sees = await door.token("sees", (Role.VIEWER, "vision"))
        for token, known in ((lead, {"ann"}), (sees, set[str]())):
            async with door.client(token) as client:
                for user in ("ann", "bob", "eve"):
                    answer = await client.get("/jobs", params={"selector": f"user={user}"})
                    want = 200 if user in known else 422
                    assert answer.status_code == want, (user, answer.text)

    run(story)
