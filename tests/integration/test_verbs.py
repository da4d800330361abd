"""Acts on many jobs in one request: what is meant, what it costs, who may, and what is kept of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.entrance import ROOT, Entrance, entrance, run
from topmast.model.access import Role
from topmast.ports import JobRow
from topmast.service.whatif import WhatIfs

ONE = {"run": "true", "resources": {"accelerators": "H100:1"}}


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Entrance]:
    """A control plane with login."""
    with entrance(tmp_path) as found:
        yield found


async def submit(client: httpx.AsyncClient, count: int, **fields: Any) -> list[str]:
    """Jobs that wait or run."""
    body = {"jobs": [ONE | {"tenant": "vision"} | fields] * count}
    found: list[str] = (await client.post("/jobs/bulk", json=body)).json()["ids"]
    return found


async def acted(client: httpx.AsyncClient, verb: str, **body: Any) -> dict[str, Any]:
    """What an act says."""
    answer = await client.post(f"/jobs/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_selector_cancels_what_it_finds_and_nothing_else(door: Entrance) -> None:
    """Dry, then done, then done again: one line of the audit log, and the reason in each history."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            meant = await submit(client, 30, name="train-a", priority="low")
            other = await submit(client, 3, name="serve")
            wanted = {"selector": "name=train-*,band=low", "reason": "it diverged"}
            dry = await acted(client, "cancel", **wanted, dry_run=True)
            assert (dry["counts"]["done"], dry["dry_run"]) == (30, True)
            assert {job["state"] for job in dry["jobs"]} & {"CANCELLED"} == set()
            before = len(door.acts())
            done = await acted(client, "cancel", **wanted)
            assert [job["id"] for job in done["jobs"]] == meant
            (line,) = door.acts()[: len(door.acts()) - before]
            assert (line.verb, line.tenant, line.outcome) == ("cancel", "vision", "done")
            assert line.object == f"{meant[0]}..{meant[-1]}"
            assert "it diverged" in line.after
            were, are = (json.loads(text)["states"] for text in (line.before, line.after))
            assert (sum(were.values()), were.get("CANCELLED")) == (30, None)
            assert are["CANCELLED"] > 0
            again = await acted(client, "cancel", jobs=meant)
            assert again["counts"] == {"done": 0, "unchanged": 30, "refused": 0}
            for job in (meant[0], meant[-1]):
                view = (await client.get(f"/jobs/{job}")).json()
                assert view["cause"] == "cancelled by sa:chief: it diverged"
            for job in other:
                assert "CANCEL" not in (await client.get(f"/jobs/{job}")).json()["state"]

    run(story)


def test_a_large_act_has_pieces_and_jobs_with_gpus_come_last(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others go on between them; the answer has all jobs, also those that left the memory."""
    monkeypatch.setattr("topmast.service.verbs.ACTED_AT_ONCE", 3)
    monkeypatch.setattr("topmast.fast.queue.jobs.jobs.FINISHED_KEPT", 4)

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            wide = {"accelerators": "H100:2"}
            jobs = await submit(client, 8, name="many", run="sleep 60", resources=wide)
            before, with_gpus = len(door.acts()), set[str]()
            for _ in range(200):
                dry = await acted(client, "cancel", jobs=jobs, dry_run=True)
                with_gpus = {one["job"] for one in dry["effects"] if one["gpus"]}
                if with_gpus:
                    break
                await asyncio.sleep(0.05)
            assert 0 < len(with_gpus) < 3
            done = await acted(client, "cancel", jobs=jobs, reason="enough")
            assert done["counts"]["done"] == 8
            assert [job["id"] for job in done["jobs"]] == jobs
            lines = door.acts()[: len(door.acts()) - before][::-1]
            assert [json.loads(line.after)["jobs"] for line in lines] == [3, 3, 2]
            assert all("enough" in line.after for line in lines)
            assert with_gpus <= set(lines[-1].object.replace("..", ",").split(","))

    run(story)


def test_of_large_acts_of_many_accounts_one_is_before_others_questions(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, what others ask waits for one of them; small acts do not wait."""
    monkeypatch.setattr("topmast.service.verbs.FEW_JOBS", 2)
    call, under_way, most = door.system.runtime.call, list[object](), 0

    def counted(*given: Any) -> Any:
        nonlocal most
        answer = call(*given)
        under_way.append(answer)
        most = max(most, len(under_way))
        answer.add_done_callback(under_way.remove)
        return answer

    async def story() -> None:
        async with AsyncExitStack() as stack:
            tokens = [await door.token(f"chief{n}", (Role.ADMIN, "/")) for n in range(4)]
            clients = [await stack.enter_async_context(door.client(token)) for token in tokens]
            jobs = [await submit(one, 3, resources={"accelerators": "H100:2"}) for one in clients]
            monkeypatch.setattr(door.system.runtime, "call", counted)
            pairs = zip(clients, jobs, strict=True)
            await asyncio.gather(*(acted(one, "hold", jobs=of) for one, of in pairs))
            assert most == 1
            async with door.service._pieces:
                await acted(clients[0], "release", jobs=jobs[0][:2])

    run(story)


def test_a_job_without_a_tenant_goes_to_that_of_its_account(door: Entrance) -> None:
    """If the account may submit there; else to the first tenant for which it may."""

    async def story() -> None:
        for name, of, want in (("bob", "nlp", "nlp"), ("eve", "speech", "vision")):
            await door.service.directory.add_account(ROOT, name, of)
            async with door.client(await door.token(name, (Role.SUBMITTER, "vision"))) as client:
                job = (await client.post("/jobs", json={"job": ONE})).json()["id"]
                assert (await client.get(f"/jobs/{job}")).json()["tenant"] == want, name

    run(story)


def test_of_equal_acts_at_the_same_time_one_is_told_that_it_did_something(door: Entrance) -> None:
    """As the audit log says it: the others changed nothing."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            jobs = await submit(client, 3, resources={"accelerators": "H100:2"}, num_nodes=2)
            for verb in ("hold", "release", "cancel"):
                before = len(door.acts())
                answers = await asyncio.gather(*(acted(client, verb, jobs=jobs) for _ in range(4)))
                assert sum(answer["counts"]["done"] for answer in answers) == 3, (verb, answers)
                assert sum(answer["counts"]["unchanged"] for answer in answers) == 9
                lines = door.acts()[: len(door.acts()) - before]
                assert sorted(line.outcome for line in lines)[:1] == ["done"]
                whys = {one["why"] for answer in answers for one in answer["effects"]}
                assert "" in whys
                assert len(whys) >= 2, whys

    run(story)


def test_a_sweep_is_one_thing_to_its_people(door: Entrance) -> None:
    """One line, one act for all of it, names for its jobs; other tenants do not see it."""

    async def story() -> None:
        mine = await door.token("ann", (Role.SUBMITTER, "vision"))
        theirs = await door.token("bob", (Role.SUBMITTER, "speech"))
        async with door.client(mine) as ann, door.client(theirs) as bob:
            (alone,) = await submit(ann, 1)
            range_of = {"variable": "SEED", "to": 999}
            sweep = ONE | {"tenant": "vision", "sweep": {"range": range_of, "max_parallel": 4}}
            receipt = (await ann.post("/jobs", json={"job": sweep})).json()
            name = receipt["id"]
            assert (name, receipt["jobs"]) == ("s2", 1_000)
            refused = await ann.post("/jobs/bulk", json={"jobs": [sweep]})
            assert (refused.status_code, refused.json()["field"]) == (422, "jobs[0].sweep")
            page = (await ann.get("/jobs", params={"fold": "true", "order": "queue"})).json()
            assert [job["id"] for job in page["jobs"]] == [alone]
            (line,) = page["sweeps"]
            assert (line["id"], line["jobs"], line["variables"]) == (name, 1_000, ["SEED"])
            assert sum(line["states"].values()) == 1_000
            view = (await ann.get(f"/jobs/{name}[7]")).json()
            assert (view["id"], view["sweep"], view["sweep_index"]) == ("j9", name, 7)
            assert (await ann.get(f"/jobs/{name}[7]/explain")).json()["reason"] == "WaitingForJobs"
            assert (await ann.get(f"/jobs/{name}[1000]")).status_code == 404
            assert (await bob.get(f"/sweeps/{name}")).status_code == 404
            assert (await bob.get("/sweeps")).json() == {"sweeps": []}
            assert (await bob.get(f"/jobs/{name}[7]")).status_code == 404
            some = await acted(ann, "hold", selector=f"sweep={name},state=PENDING", dry_run=True)
            assert some["counts"]["done"] >= 996
            told = await acted(ann, "cancel", jobs=[name], reason="the data was wrong")
            assert told["counts"]["done"] == 1_000
            assert [job["state"] for job in told["jobs"][4:]] == ["CANCELLED"] * 996
            again = await acted(ann, "cancel", jobs=[f"{name}[7]", "s99"])
            assert again["counts"] == {"done": 0, "unchanged": 1, "refused": 1}
            assert [effect["why"] for effect in again["effects"]][1] == "no sweep 's99'"
            assert (await ann.get(f"/sweeps/{name}")).json()["states"]["CANCELLED"] >= 996

    run(story)


def test_dependencies_are_on_jobs_that_there_are_and_that_the_caller_may_see(
    door: Entrance,
) -> None:
    """One that has left the memory counts as it ended; another tenant's is not there."""

    async def story() -> None:
        mine = await door.token("ann", (Role.SUBMITTER, "vision"))
        theirs = await door.token("bob", (Role.SUBMITTER, "speech"))
        async with door.client(mine) as ann, door.client(theirs) as bob:
            (first,) = await submit(ann, 1, num_nodes=9)  # it waits
            (second,) = await submit(ann, 1)
            (hidden,) = await submit(bob, 1, tenant="speech")
            await acted(ann, "cancel", jobs=[first])
            jobs = door.system.service.machines.queue.jobs
            jobs.forget([first])
            for named, message in (
                (hidden, "no job"),
                ("j99", "no job"),
                (first, "only after its"),
            ):
                one = ONE | {"tenant": "vision", "depends_on": [named]}
                answer = await ann.post("/jobs", json={"job": one})
                assert (answer.status_code, answer.json()["field"]) == (422, "depends_on")
                assert message in answer.json()["detail"]
            after = [{"job": first, "after": "any"}, second]
            (later,) = await submit(ann, 1, depends_on=after)
            view = (await ann.get(f"/jobs/{later}")).json()
            assert (view["reason"], view["waits_for"]) == ("WaitingForJobs", {second: "ok"})
            told = (await ann.get(f"/jobs/{later}/explain")).json()
            assert told["summary"] == f"the job waits until {second} has succeeded"
            one = ONE | {"tenant": "vision", "depends_on": [second]}
            dry = (await ann.post("/jobs/dry-run", json={"job": one})).json()
            assert f"it starts only when {second} has succeeded" in dry["warnings"]

    run(story)


def test_each_job_is_judged_by_its_own_tenant_and_user(door: Entrance) -> None:
    """Own jobs are cancelled, those of others refused, and those of other tenants are not there."""

    async def story() -> None:
        mine = await door.token("ann", (Role.SUBMITTER, "vision"))
        theirs = await door.token("bob", (Role.SUBMITTER, "vision"), (Role.SUBMITTER, "speech"))
        async with door.client(mine) as ann, door.client(theirs) as bob:
            (own,) = await submit(ann, 1)
            (others,) = await submit(bob, 1)
            (hidden,) = await submit(bob, 1, tenant="speech")
            before = len(door.acts())
            found = await acted(ann, "cancel", jobs=[own, others, hidden, "j999"])
            (line,) = door.acts()[: len(door.acts()) - before]
            assert (line.object, line.tenant, line.outcome) == (own, "vision", "done")
            assert f'"refused":"{others}"' in line.after
            assert hidden not in line.after
            effects = {effect["job"]: effect["effect"] for effect in found["effects"]}
            assert effects == {
                own: "done", others: "refused", hidden: "refused", "j999": "refused",
            }  # fmt: skip
            whys = {effect["job"]: effect["why"] for effect in found["effects"]}
            assert whys[hidden] == f"no job '{hidden}'"
            assert {job["id"] for job in found["jobs"]} == {own, others}
            before = len(door.acts())
            alone = await ann.post("/jobs/cancel", json={"selector": "user=sa:bob"})
            assert alone.status_code == 403
            (line,) = door.acts()[: len(door.acts()) - before]
            assert (line.verb, line.object, line.tenant) == ("cancel", others, "vision")
            assert line.outcome.startswith("refused: sa:ann has no role"), line.outcome
            assert (await bob.get(f"/jobs/{others}")).json()["state"] != "CANCELLED"

    run(story)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "jobs"),
        ({"jobs": ["j1"], "selector": "user=ann"}, "jobs"),
        ({"selector": "  "}, "jobs"),
        ({"selector": ","}, "selector"),
        ({"selector": ",,"}, "selector"),
        ({"selector": "user=ann,"}, "selector"),
        ({"selector": "user"}, "selector"),
        ({"selector": "usr=ann"}, "selector"),
        ({"selector": "state=BUSY"}, "selector"),
        ({"selector": "band=urgent"}, "selector"),
        ({"jobs": "j1"}, "jobs"),
        ({"jobs": ["j1"], "dry_run": "no"}, "dry_run"),
    ],
)
def test_what_is_not_clear_is_refused(door: Entrance, body: dict[str, Any], field: str) -> None:
    """Nothing is done on a guess, least of all to all jobs."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            answer = await client.post("/jobs/cancel", json=body)
            assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text

    run(story)


def test_every_act_is_done_by_its_route(door: Entrance) -> None:
    """Held, released, changed, cancelled, requeued: each with its line, and with its reason."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            for host in ("east-a-0", "east-a-1"):
                await client.post(f"/hosts/{host}/cordon", json={})
            (job,) = await submit(client, 1)
            whys: dict[str, str] = {}
            for verb, more in {
                "hold": {}, "release": {}, "suspend": {}, "resume": {},
                "edit": {"changes": {"priority": "high", "time_limit_s": None}},
                "cancel": {}, "requeue": {},
            }.items():  # fmt: skip
                body = {"jobs": [job], "reason": f"to {verb}", **more}
                dry = await acted(client, verb, **body, dry_run=True)
                assert dry["counts"]["done"] == 1, verb
                done = await acted(client, verb, **body)
                assert done["counts"]["done"] == 1, verb
                line = door.acts()[0]
                assert (line.verb, line.object, line.outcome) == (verb, job, "done")
                whys[verb] = done["jobs"][0]["hold"] or done["jobs"][0]["cause"]
            assert whys["hold"] == "held by sa:chief: to hold"
            assert whys["requeue"] == "requeued by sa:chief: to requeue"
            view = (await client.get(f"/jobs/{job}")).json()
            assert (view["state"], view["band"], view["finish_s"]) == ("PENDING", "high", None)
            told = (await client.get(f"/jobs/{job}/story")).json()["history"]
            kinds = [line["kind"] for line in told]
            want = ["held", "released", "held", "released", "edited", "CANCELLED", "requeued"]
            assert [kind for kind in kinds if kind in want] == want
            await acted(client, "hold", jobs=[job], reason="bad data")
            explained = (await client.get(f"/jobs/{job}/explain")).json()
            assert (explained["reason"], explained["summary"]) == (
                "Held", "the job waits until it is released: held by sa:chief: bad data",
            )  # fmt: skip

    run(story)


@pytest.mark.parametrize(
    "changes",
    [{}, [], None, {"name": "x"}, {"priority": "urgent"}, {"time_limit_s": -1},
     {"time_limit_s": True}, {"max_restarts": 1.5}, {"max_restarts": -1}, {"preemptible": "no"}],
)  # fmt: skip
def test_a_change_that_makes_no_sense_is_refused(door: Entrance, changes: object) -> None:
    """With the field that is wrong, and before any job is looked at."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            body = {"selector": "state=active", "changes": changes}
            answer = await client.post("/jobs/edit", json=body)
            assert answer.status_code == 422
            assert answer.json()["field"].startswith("changes"), answer.text

    run(story)


def test_a_host_is_put_aside_with_others_and_a_reason(door: Entrance) -> None:
    """The history of each says why, and so does the audit log of each verb."""

    async def story() -> None:
        token = await door.token("chief", (Role.OPERATOR, "/"))
        async with door.client(token) as client:
            body = {"also": ["east-a-1"], "reason": "new firmware"}
            view = (await client.post("/hosts/east-a-0/cordon", json=body)).json()
            assert view["state"] == "cordoned"
            for host in ("east-a-0", "east-a-1"):
                told = (await client.get(f"/hosts/{host}/story")).json()["history"]
                assert told[-1]["text"] == f"{host} was cordoned by sa:chief: new firmware"
            for verb, state in (("drain", "draining"), ("uncordon", "healthy")):
                wanted = {"hosts": ["east-a-0"], "reason": f"to {verb}"}
                assert (await client.post(f"/hosts/{verb}", json=wanted)).status_code == 200
                (line,) = (await client.get(f"/audit?verb={verb}")).json()["acts"]
                assert line["after"] == {"east-a-0": state, "reason": f"to {verb}"}

    run(story)


def test_the_reason_of_an_act_on_one_job_is_audited(door: Entrance) -> None:
    """With the state that it has then, though that does not name the reason."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            (job,) = await submit(client, 1)
            wanted = {"jobs": [job], "changes": {"priority": "high"}, "reason": "for the demo"}
            assert (await client.post("/jobs/edit", json=wanted)).is_success
            (line,) = (await client.get("/audit?verb=edit")).json()["acts"]
            assert (line["after"]["band"], line["after"]["reason"]) == ("high", "for the demo")

    run(story)


async def fleet_of(client: httpx.AsyncClient) -> tuple[str, dict[str, Any]]:
    """Version and document of the fleet."""
    found = (await client.get("/fleet")).json()
    return found["version"], found["fleet"]


def test_datasets_of_a_fleet_file_are_not_dropped_without_a_word(door: Entrance) -> None:
    """Those that the server has are no news; the others are named, with what adds them."""
    said = "datasets of this file are not applied: logs; add them with `topmast datasets add`"

    async def story() -> None:
        token = await door.token("chief", (Role.OPERATOR, "/"))
        async with door.client(token) as client:
            _, document = await fleet_of(client)
            document.setdefault("datasets", {})["logs"] = {"size": "1GB", "replicas": ["east"]}
            body = {"fleet": document}
            for route in ("/fleet/diff", "/fleet/apply"):
                found = (await client.post(route, json=body)).json()
                assert (found["changes"], found["warnings"]) == ([], [said])
            tenants = {"tenants": document["tenants"]}
            assert (await client.post("/fleet/diff", json=tenants)).json()["warnings"] == []

    run(story)


def test_the_fleet_of_a_running_server_changes_without_a_start(door: Entrance) -> None:
    """A host comes, a quota grows; what was shown is done, and what is done is audited."""

    async def story() -> None:
        token = await door.token("chief", (Role.OPERATOR, "/"))
        async with door.client(token) as client:
            version, document = await fleet_of(client)
            same = (await client.post("/fleet/diff", json={"fleet": document})).json()
            assert same == {"version": version, "changes": [], "warnings": []}
            cluster = document["regions"]["east"]["clusters"]["east-a"]
            cluster["hosts"][0]["names"].append("east-a-9")
            document["tenants"]["vision"]["quota"] = {"H100": 4}
            shown = (await client.post("/fleet/diff", json={"fleet": document})).json()["changes"]
            assert [(c["what"], c["change"]) for c in shown] == [
                ("host east-a-9", "added"), ("tenant vision", "quota {H100: 2} -> {H100: 4}"),
            ]  # fmt: skip
            body = {"fleet": document, "base": version, "reason": "more"}
            done = await client.post("/fleet/apply", json=body)
            assert (done.status_code, done.json()["changes"]) == (200, shown), done.text
            assert (await fleet_of(client)) == (done.json()["version"], document)
            hosts = (await client.get("/hosts")).json()["hosts"]
            assert "east-a-9" in [host["name"] for host in hosts]
            line = door.acts()[0]
            assert (line.actor, line.verb, line.object) == ("sa:chief", "fleet-apply", version)
            assert "host east-a-9: added" in line.after
            rows = [row for _, row in door.system.journal.history_after(0, 1000)]
            assert [row.text for row in rows if row.kind == "fleet-changed"] == [
                "the fleet is changed by sa:chief (host east-a-9 added, tenant vision changed): more"
            ]
            empty = await client.post("/fleet/apply", json={**body, "base": ""})
            assert (empty.status_code, empty.json()["field"]) == (422, "base")
            assert await fleet_of(client) == (done.json()["version"], document)
            stale = await client.post("/fleet/apply", json=body)
            assert (stale.status_code, version in stale.json()["detail"]) == (409, True)
            wrong = await client.post("/fleet/apply", json={"fleet": {"regions": 7}})
            assert wrong.status_code == 422
            for line, why in zip(door.acts()[:2], (wrong, stale), strict=True):
                assert line.verb == "fleet-apply"
                assert line.outcome.startswith("refused: "), why.text

    run(story)


def test_a_change_that_would_strand_jobs_is_refused(door: Entrance) -> None:
    """Tenants and clusters with jobs stay; hosts with jobs are drained, and say so."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            wanted = {"accelerators": "H100:2"}
            (job,) = await submit(client, 1, resources=wanted, preemptible=False)
            version, document = await fleet_of(client)
            tenants = {"speech": {"quota": {"H100": 2}}}
            gone = await client.post("/fleet/apply", json={"tenants": tenants})
            assert gone.status_code == 409
            said = "tenant vision is left out, which removes it, and has jobs that have not ended"
            assert f"{said} ({job})" in gone.json()["detail"]
            cluster = document["regions"]["east"]["clusters"].pop("east-a")
            document["regions"]["east"]["clusters"]["east-b"] = cluster
            fixed = await client.post("/fleet/apply", json={"fleet": document})
            assert fixed.status_code == 409
            assert f"jobs are in cluster east-a ({job})" in fixed.json()["detail"]
            document["regions"]["east"] = {"clusters": {"east-a": cluster}, "store": "/elsewhere"}
            fixed = await client.post("/fleet/apply", json={"fleet": document})
            assert (fixed.status_code, "--fleet" in fixed.json()["detail"]) == (409, True)
            assert (await fleet_of(client))[0] == version
            view = (await client.get(f"/jobs/{job}")).json()
            (host,) = view["hosts"]
            document["regions"]["east"] = {"clusters": {"east-a": cluster}}
            cluster["hosts"][0]["names"].remove(host)
            shown = await client.post("/fleet/apply", json={"fleet": document})
            assert shown.json()["changes"] == [
                {"what": f"host {host}", "change": "removed", "live": True, "jobs": [job]}
            ], shown.text
            assert door.acts()[0].verb == "fleet-apply"
            states = {h["name"]: h["state"] for h in (await client.get("/hosts")).json()["hosts"]}
            assert states[host] == "draining"
            cluster["hosts"][0]["names"].append(host)
            assert (await client.post("/fleet/apply", json={"fleet": document})).status_code == 200
            states = {h["name"]: h["state"] for h in (await client.get("/hosts")).json()["hosts"]}
            assert states[host] == "healthy"

    run(story)


def test_a_reservation_that_loses_hosts_is_told_of(door: Entrance) -> None:
    """Beside the hosts that leave: what was reserved is there no more."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            now = door.service.clock.now()
            span = {"from_s": now + 7200.0, "until_s": now + 14400.0}
            names = [host["name"] for host in (await client.get("/hosts")).json()["hosts"]]
            for hosts in (names[:1], names[:2], names[1:2]):
                made = await client.post("/reservations", json=span | {"hosts": hosts})
                assert made.status_code == 201, made.text
            _, document = await fleet_of(client)
            document["regions"]["east"]["clusters"]["east-a"]["hosts"][0]["names"].remove(names[0])
            shown = await client.post("/fleet/diff", json={"fleet": document})
            assert [(x["what"], x["change"]) for x in shown.json()["changes"]] == [
                (f"host {names[0]}", "removed"), ("reservation w1", "hosts 1 -> 0"),
                ("reservation w2", "hosts 2 -> 1"),
            ], shown.text  # fmt: skip

    run(story)


def test_a_host_does_not_shrink_below_its_jobs(door: Entrance) -> None:
    """CPUs and memory as GPUs: the differences say that it takes a start, and it is refused."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            (job,) = await submit(client, 1, resources={"accelerators": "H100:2"})
            version, document = await fleet_of(client)
            (block,) = document["regions"]["east"]["clusters"]["east-a"]["hosts"]
            for field, value in (("gpus", 1), ("cpus", 2), ("memory", "1GB")):
                before, block[field] = block.get(field), value
                shown = (await client.post("/fleet/diff", json={"fleet": document})).json()
                assert shown["changes"], field
                assert not any(change["live"] for change in shown["changes"]), field
                body = {"fleet": document, "base": version}
                refused = await client.post("/fleet/apply", json=body)
                assert refused.status_code == 409, field
                assert "a running server cannot do that" in refused.json()["detail"]
                block[field] = before
                if before is None:
                    del block[field]
            cluster = document["regions"]["east"]["clusters"]["east-a"]
            cluster["hosts"] = [{**block, "gpus": 1, "cpus": 2, "memory": "1GB"}]
            refused = await client.post("/fleet/apply", json={"fleet": document, "base": version})
            for what in ("gpus 2 -> 1", "cpus 0 -> 2", "memory none -> 1GB", "without it"):
                assert what in refused.json()["detail"], "all at once, with what to do"
            assert (await fleet_of(client))[0] == version
            cluster["hosts"] = [{**block, "gpus": block["gpus"] * 2}]
            shown = await client.post("/fleet/apply", json={"fleet": document, "base": version})
            assert shown.status_code == 200, shown.text
            assert (await client.get(f"/jobs/{job}")).json()["state"] == "RUNNING"

    run(story)


async def faults(client: httpx.AsyncClient, path: str, body: Any) -> dict[str, str]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    found = answer.json()
    return {x["field"]: x["detail"] for x in found.get("errors", [found])}


def test_all_faults_of_a_request_are_said_at_once(door: Entrance) -> None:
    """In the words of each field, and nothing is done."""
    changes = {"priority": "urgent", "time_limit_s": "x", "max_restarts": -1, "preemptible": 3}
    span = {"until_s": 1e308, "from_s": "soon", "reason": "x" * 100_000, "hosts": "h", "dry_run": 1}
    terminal = {"command": [], "rows": 0, "columns": 9_999}

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            (job,) = await submit(client, 1)
            edit = {"jobs": [job], "dry_run": "no", "changes": changes}
            assert await faults(client, "/jobs/edit", edit) == {
                "dry_run": "must be true or false",
                "changes.priority": "unknown band 'urgent'",
                "changes.time_limit_s": "must be a duration",
                "changes.max_restarts": "must be 0 or more",
                "changes.preemptible": "must be true or false",
            }
            assert await faults(client, "/reservations", span) == {
                "until_s": "must be from -1e+15 to 1e+15", "from_s": "must be a number",
                "reason": "must have at most 1,000 characters", "dry_run": "must be true or false",
                "hosts": "must be a list of texts",
            }  # fmt: skip
            assert set(await faults(client, "/reservations", {"region": 1})) == {
                "region", "until_s",
            }  # fmt: skip
            assert set(await faults(client, "/tenants/vision/quota", {"quota": {"H100": "x"}})) == {
                "quota", "until_s",
            }  # fmt: skip
            assert set(await faults(client, "/tokens", {"ttl_s": 1e308, "label": 1})) == {
                "ttl_s", "label",
            }  # fmt: skip
            if door.service.execs is not None:
                assert set(await faults(client, f"/jobs/{job}/exec", terminal)) == set(terminal)
            wrong = {"quotas": {"x": {"H100": -1}}, "add_hosts": [], "for_s": "day", "jobs": 3}
            assert await faults(client, "/whatif", wrong) == {
                "quotas.x": "must be a whole number from 0 to 1,000,000",
                "add_hosts": "must be whole numbers by name", "for_s": "must be a number",
                "jobs": "must be changes by job",
            }  # fmt: skip
            assert (await client.get("/reservations")).json() == {"reservations": []}

    run(story)


@pytest.mark.parametrize(
    ("path", "body", "want"),
    [
        (
            "/jobs/edit", {"jobs": ["j1", "j98", "s99"], "changes": {"priority": "hgh"}},
            {"changes.priority", "no job 'j98'", "no sweep 's99'"},
        ),
        (
            "/jobs/hold", {"selector": "tenant=visoin,state=RUNING", "reason": 1},
            {"reason", "unknown tenant 'visoin'", "unknown state 'RUNING'"},
        ),
        ("/jobs/j98/cancel", {"reason": 1}, {"reason", "no job 'j98'"}),
        (
            "/hosts/drain", {"hosts": ["east-a-l", "east-a-0"], "until_s": 1.0, "now": "yes"},
            {"now", "no host 'east-a-l'", "until_s"},
        ),
        ("/hosts/cordon", {"selector": "cluster=eest-a,rak=1", "until_s": "x"},
         {"until_s", "selects no host: none has cluster=eest-a", "unknown key 'rak'"}),
        ("/hosts/east-z/cordon", {"until_s": 1.0, "also": ["east-y"]},
         {"no host 'east-z'", "no host 'east-y'", "until_s"}),
        ("/hosts/east-z/uncordon", {"dry_run": 1}, {"dry_run", "no host 'east-z'"}),
        ("/clusters/close", {"clusters": ["east-z"], "reason": 1, "until_s": 1.0},
         {"reason", "until_s", "no cluster 'east-z'"}),
        ("/clusters/east-z/open", {"reason": 1}, {"reason", "no cluster 'east-z'"}),
        ("/reservations", {"hosts": ["east-z"], "tenants": ["nope"], "from_s": "x", "until_s": 1},
         {"from_s", "until_s", "no host 'east-z'", "no tenant 'nope'"}),
        ("/reservations", {"cluster": "eest-a", "region": 1}, {"region", "until_s",
         "no cluster 'eest-a'"}),
        ("/reservations/w9/end", {"reason": 1}, {"reason", "no reservation 'w9' (there is none)"}),
        ("/tenants/pause", {"tenants": ["visoin", "vision"], "drain": 3},
         {"drain", "no tenant 'visoin'"}),
        ("/tenants/resume", {"tenants": ["visoin"], "user": 3}, {"user", "no tenant 'visoin'"}),
        ("/tenants/visoin/pause", {"reason": 1}, {"reason", "no tenant 'visoin'"}),
        ("/tenants/visoin/quota", {"quota": {"H1000": 1}, "until_s": 1.0},
         {"no tenant 'visoin'", "quota.H1000", "until_s"}),
        ("/tenants/visoin/quota", {"quota": {"H1000": 1}, "from_s": "x"},
         {"no tenant 'visoin'", "quota.H1000", "from_s", "until_s"}),
        ("/datasets/nope/replicas", {"region": "eest", "reason": 1},
         {"reason", "no dataset 'nope'", "no region 'eest'"}),
    ],
)  # fmt: skip
def test_a_fault_of_form_hides_no_name_that_there_is_not(
    path: str, body: dict[str, Any], want: set[str], door: Entrance
) -> None:
    """Each error by its field, or by how it begins; nothing is done."""

    def done() -> list[str]:
        return [act.verb for act in door.acts() if act.outcome == "done"]

    async def story() -> None:
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            await submit(client, 1)
            before = done()
            answer = await client.post(path, json=body)
            assert answer.status_code == 422, answer.text
            errors = answer.json()["errors"]
            for one in want:
                assert any(
                    one == error["field"] or error["detail"].startswith(one) for error in errors
                ), (one, errors)
            assert len(errors) == len(want), errors
            assert done() == before

    run(story)


def test_a_whatif_of_what_there_is_not_is_refused(door: Entrance) -> None:
    """At once, each fault by its own field, and not by the process that would run it."""

    async def story() -> None:
        door.service.whatifs = WhatIfs(("false",), (), door.service.clock)
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            wanted = {
                "lose_regions": ["nope", "east"], "for_s": 1.0, "profile": "none",
                "add_hosts": {"east-a": 1, "east-z": 2, "east-a:T4": 1},
                "quotas": {"vision:H100": 1, "vision:T4": 1, "no:H100": 1},
                "jobs": {"j999": {"priority": "high"}, "x": {"priority": "low"}},
            }  # fmt: skip
            assert await faults(client, "/whatif", wanted) == {
                "for_s": "from a minute to 30 days", "profile": "no profile 'none'",
                "jobs.x": "'x' is not the id of a job",
                "jobs.j999": "no job 'j999' that has not ended",
                "add_hosts.east-z": "no cluster 'east-z'",
                "add_hosts.east-a:T4": "no host of kind 'T4' in east-a",
                "quotas.vision:T4": "no GPU model 'T4'", "quotas.no:H100": "no tenant 'no'",
                "lose_regions.nope": "no region 'nope'",
            }  # fmt: skip
            wrong = {
                "lose_regions": ["nope"], "add_hosts": {"east-z": 2}, "profile": 5,
                "quotas": {"no:H100": -1}, "jobs": {"j999": {"priority": "hgh"}},
            }  # fmt: skip
            assert await faults(client, "/whatif", wrong) == {
                "profile": "must be a text", "lose_regions.nope": "no region 'nope'",
                "quotas.no:H100": "must be a whole number from 0 to 1,000,000",
                "jobs.j999.priority": "unknown band 'hgh'",
                "jobs.j999": "no job 'j999' that has not ended",
                "add_hosts.east-z": "no cluster 'east-z'",
            }  # fmt: skip
            assert door.service.whatifs is not None
            assert door.service.whatifs.latest() == ()
        door.service.whatifs = None

    run(story)


def test_a_tenant_is_paused_by_those_that_answer_for_it(door: Entrance) -> None:
    """Rehearsed, done and undone: each is one line of the audit log, and a submitter may not."""

    async def story() -> None:
        token = await door.token("chief", (Role.TENANT_ADMIN, "vision"))
        other = await door.token("ann", (Role.SUBMITTER, "vision"))
        async with door.client(token) as client, door.client(other) as ann:
            first, second, waits = await submit(client, 3, resources={"accelerators": "H100:2"})
            drain = {"drain": True, "dry_run": True}
            dry = (await client.post("/tenants/vision/pause", json=drain)).json()
            assert (dry["waiting"], dry["running"], dry["paused"]) == (1, 2, "")
            assert [stop["job"] for stop in dry["stops"]] == [first, second]
            assert (await ann.post("/tenants/vision/pause", json={})).status_code == 403
            assert (await client.post("/tenants/speech/pause", json={})).status_code == 403
            before = len(door.acts())
            done = (await client.post("/tenants/vision/pause", json={"reason": "budget"})).json()
            assert done["paused"] == "tenant vision is paused by sa:chief: budget"
            (line,) = door.acts()[: len(door.acts()) - before]
            assert (line.verb, line.object, line.tenant) == ("pause-tenant", "vision", "vision")
            assert '"reason":"budget"' in line.after
            view = (await client.get(f"/jobs/{waits}")).json()
            assert (view["reason"], view["hold"]) == ("TenantPaused", done["paused"])
            tenants = (await client.get("/tenants")).json()["tenants"]
            assert {t["name"]: t["paused"] for t in tenants}["nlp"] == done["paused"]
            for path, dry_run, effect, paused in (
                ("pause", True, "unchanged", done["paused"]), ("pause", False, "unchanged",
                 done["paused"]), ("resume", True, "done", done["paused"]),
                ("resume", False, "done", ""), ("resume", False, "unchanged", ""),
                ("resume", True, "unchanged", ""), ("pause", True, "done", ""),
            ):  # fmt: skip
                body = {"dry_run": dry_run}
                back = (await client.post(f"/tenants/vision/{path}", json=body)).json()
                assert (back["effect"], back["paused"]) == (effect, paused), (path, dry_run)
            assert dry["effect"] == done["effect"] == "done"
            assert (await client.get(f"/jobs/{waits}")).json()["reason"] != "TenantPaused"

    run(story)


def test_a_submission_for_two_tenants_has_a_line_for_each(door: Entrance) -> None:
    """So each one's administrator finds it, also if it is refused."""

    async def story() -> None:
        token = await door.token("both", (Role.SUBMITTER, "/"))
        async with door.client(token, **{"Idempotency-Key": "k"}) as client:
            jobs = [ONE | {"tenant": name} for name in ("vision", "speech", "vision")]
            before = len(door.acts())
            ids = (await client.post("/jobs/bulk", json={"jobs": jobs})).json()["ids"]
            lines = door.acts()[: len(door.acts()) - before]
            assert {(line.tenant, line.object, line.outcome) for line in lines} == {
                ("vision", f"{ids[0]},{ids[2]}", "done"), ("speech", ids[1], "done"),
            }  # fmt: skip
            assert sorted(line.after for line in lines) == [
                '{"jobs":1,"users":["sa:both"]}', '{"jobs":2,"users":["sa:both"]}',
            ]  # fmt: skip
            other = await client.post("/jobs/bulk", json={"jobs": jobs[:2]})
            assert other.status_code == 409
            assert {line.tenant for line in door.acts()[:2]} == {"vision", "speech"}
            assert all(line.outcome.startswith("refused: ") for line in door.acts()[:2])

    run(story)


def test_names_of_no_job_cost_no_query_each(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that left the memory are looked up together, and what is no id not at all."""
    asked: list[list[str]] = []
    journal = door.system.journal
    found = journal.finished_jobs_of

    def look(jobs: list[str]) -> list[JobRow]:
        asked.append(jobs)
        return found(jobs)

    monkeypatch.setattr(journal, "finished_jobs_of", look)

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            (old,) = await submit(client, 1, num_nodes=9)
            await acted(client, "cancel", jobs=[old])
            asked.clear()
            jobs = door.system.service.machines.queue.jobs
            jobs.forget([old])
            missing = [f"j{n}" for n in range(1_000, 3_500)]
            done = await acted(client, "cancel", jobs=["x", old, "j01", "train-1", *missing])
            assert asked == [[old, *missing]]
            assert done["counts"] == {"done": 0, "unchanged": 1, "refused": 2_503}
            whys = {effect["job"]: effect["why"] for effect in done["effects"]}
            assert (whys["x"], whys[old]) == ("no job 'x'", "ended long ago: CANCELLED")

    run(story)


def test_a_requeue_of_a_sweep_says_how_many_jobs_are_too_old(door: Entrance) -> None:
    """They have left memory, and would be left out without a word; `state=CANCELLED,...` likewise."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            spec = ONE | {
                "tenant": "vision",
                "num_nodes": 9,
                "sweep": {"range": {"variable": "N", "from": 1, "to": 6}},
            }
            sweep = (await client.post("/jobs", json={"job": spec})).json()["id"]
            await acted(client, "cancel", jobs=[sweep])
            view = (await client.get(f"/sweeps/{sweep}")).json()
            first = int(view["first_job"][1:])
            jobs = door.system.service.machines.queue.jobs
            jobs.forget([f"j{first}", f"j{first + 1}"])
            why = "2 of its jobs ended too long ago to be tried anew: submit them"
            for wanted in (
                {"selector": f"state=CANCELLED,sweep={sweep}", "dry_run": True},
                {"jobs": [sweep]},
            ):
                done = await acted(client, "requeue", **wanted)
                assert done["counts"] == {"done": 4, "unchanged": 0, "refused": 1}
                assert done["effects"][-1]["job"] == sweep
                assert done["effects"][-1]["why"] == why
            failed = await acted(client, "requeue", selector=f"state=FAILED,sweep={sweep}")
            assert failed["counts"] == {"done": 0, "unchanged": 0, "refused": 0}
            held = await acted(client, "hold", jobs=[sweep])
            assert held["counts"] == {"done": 4, "unchanged": 0, "refused": 0}

    run(story)


def test_hosts_are_acted_on_by_selector_in_one_request(door: Entrance) -> None:
    """Dry, then done, with one line of the audit log; a submitter may not."""

    async def story() -> None:
        chief = await door.token("chief", (Role.OPERATOR, "/"))
        ann = await door.token("ann", (Role.SUBMITTER, "vision"))
        async with door.client(chief) as client, door.client(ann) as submitter:
            (job,) = await submit(submitter, 1)
            host = (await client.get(f"/jobs/{job}")).json()["hosts"][0]
            for path in ("/hosts/cordon", "/clusters/east-a/close"):
                assert (await submitter.post(path, json={})).status_code == 403
            wanted = {"selector": "cluster=east-*,gpu=H100", "reason": "a new switch"}
            before = len(door.acts())
            dry = (await client.post("/hosts/drain", json=wanted | {"dry_run": True})).json()
            assert (dry["dry_run"], dry["gpus"], dry["jobs"]) == (True, 4.0, [job])
            assert [one["effect"] for one in dry["effects"]] == ["done", "done"]
            (plan,) = [one for one in dry["drains"] if one["host"] == host]
            assert [move["job"] for move in plan["moves"]] == [job]
            assert len(door.acts()) == before
            done = (await client.post("/hosts/cordon", json=wanted)).json()
            assert {one["state"] for one in done["hosts"]} == {"cordoned"}
            (line,) = door.acts()[: len(door.acts()) - before]
            assert (line.verb, line.object) == ("cordon", "east-a-0,east-a-1")
            again = (await client.post("/hosts/cordon", json=wanted)).json()
            assert [one["effect"] for one in again["effects"]] == ["unchanged", "unchanged"]
            story = (await client.get(f"/hosts/{host}/story")).json()
            assert "a new switch" in story["history"][-1]["text"]
            back = (
                await client.post("/hosts/uncordon", json={"selector": "state=cordoned"})
            ).json()
            assert {one["state"] for one in back["hosts"]} == {"healthy"}
            for body, field in (
                ({}, "hosts"), ({"selector": "shelf=3"}, "selector"),
                ({"hosts": [host], "until_s": 1.0}, "until_s"),
            ):  # fmt: skip
                answer = await client.post("/hosts/cordon", json=body)
                assert (answer.status_code, answer.json()["field"]) == (422, field)
            for verb in ("cordon", "uncordon", "drain"):
                for dry_run in (False, True):
                    typo = {"selector": "gpu=H100,cluster=eats-a", "dry_run": dry_run}
                    answer = await client.post(f"/hosts/{verb}", json=typo)
                    problem = answer.json()
                    assert (answer.status_code, problem["field"]) == (422, "selector")
                    assert "none has cluster=eats-a" in problem["detail"]
                    assert "did you mean 'east-a'?" in problem["remedy"]
            for text, wants in (
                (f"host={host},host=east-a-9", ["none has host=east-a-9"]),
                ("host=east-a-9,rack=r7", ["none has host=east-a-9", "none has rack=r7"]),
                ("state=healthy,state=corboned", ["none has state=corboned"]),
            ):
                answer = await client.post("/hosts/cordon", json={"selector": text})
                told = answer.json()
                assert answer.status_code == 422
                details = [one["detail"] for one in told.get("errors", [told])]
                assert details == [f"selects no host: {want}" for want in wants]
            right = await client.post("/hosts/uncordon", json={"selector": "state=draining"})
            assert right.status_code == 422
            assert right.json().get("remedy", "") == ""  # the state is none that was mistyped
            either = {"selector": "state=healthy,state=draining", "dry_run": True}
            assert (await client.post("/hosts/cordon", json=either)).status_code == 200
            unknown = await client.post("/hosts/cordon", json={"hosts": [host, "east-a-9"]})
            assert unknown.status_code == 404

    run(story)


def test_a_closed_cluster_says_by_whose_order(door: Entrance) -> None:
    """In its view, in those of its hosts and in the explanation of a job that waits for it."""

    async def story() -> None:
        chief = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(chief) as client:
            body = {"reason": "new switches", "dry_run": True}
            dry = (await client.post("/clusters/east-a/close", json=body)).json()
            assert (dry["effect"], dry["cluster"]["state"]) == ("done", "open")
            told = (
                await client.post("/clusters/east-a/close", json=body | {"dry_run": False})
            ).json()
            why = "sa:chief closed the cluster: new switches"
            assert (told["cluster"]["state"], told["cluster"]["closed"]) == ("closed", why)
            assert door.acts()[0].verb == "close-cluster"
            hosts = (await client.get("/hosts")).json()["hosts"]
            assert {(one["state"], one["closed"]) for one in hosts} == {("closed", why)}
            (job,) = await submit(client, 1)
            told = (await client.get(f"/jobs/{job}/explain")).json()
            assert why in str(told)
            again = (await client.post("/clusters/east-a/close", json=body)).json()
            assert again["effect"] == "unchanged"
            opened = (await client.post("/clusters/east-a/open", json={})).json()
            assert (opened["cluster"]["state"], opened["effect"]) == ("open", "done")
            assert (await client.post("/clusters/east-9/close", json={})).status_code == 404

    run(story)


def test_reserved_hosts_are_told_of(door: Entrance) -> None:
    """Who reserved what, which jobs are still there then, and which wait because of it."""

    async def story() -> None:
        chief = await door.token("chief", (Role.ADMIN, "/"))
        ann = await door.token("ann", (Role.SUBMITTER, "vision"))
        async with door.client(chief) as client, door.client(ann) as submitter:
            now = door.service.clock.now()
            (long,) = await submit(submitter, 1, time_limit="9h")
            body = {
                "cluster": "east-a", "from_s": now + 7200.0, "until_s": now + 14400.0,
                "reason": "new switches",
            }  # fmt: skip
            assert (await submitter.post("/reservations", json=body)).status_code == 403
            dry = await client.post("/reservations", json=body | {"dry_run": True})
            assert (dry.status_code, dry.json()["name"], dry.json()["jobs"]) == (200, "", [long])
            assert (await client.get("/reservations")).json() == {"reservations": []}
            made = await client.post("/reservations", json=body)
            assert (made.status_code, made.json()["name"]) == (201, "w1")
            assert door.acts()[0].verb == "reserve"
            again = await client.post("/reservations", json=body)
            assert again.json()["name"] == "w1"
            (one,) = (await submitter.get("/reservations")).json()["reservations"]
            assert (one["state"], one["gpus"], one["by"]) == ("planned", 4.0, "sa:chief")
            (waits,) = await submit(submitter, 1, time_limit="9h")
            (starts,) = await submit(submitter, 1, time_limit="1h")
            assert (await client.get(f"/jobs/{starts}")).json()["state"] != "PENDING"
            assert (await client.get(f"/jobs/{waits}")).json()["state"] == "PENDING"
            told = (await client.get(f"/jobs/{waits}/explain")).json()
            assert "HostReserved" in str(told)
            assert "reserved before it would have ended" in str(told)
            missed = (await client.post("/reservations/r1/end", json={})).json()
            assert missed["detail"] == "no reservation 'r1' (one of: w1)"
            ended = await client.post("/reservations/w1/end", json={"reason": "not today"})
            assert ended.json()["name"] == "w1"
            assert (await client.get(f"/jobs/{waits}")).json()["state"] != "PENDING"
            assert (await client.post("/reservations/w1/end", json={})).status_code == 404
            for wrong, field in (
                ({"hosts": ["east-a-0"]}, "hosts"), ({"until_s": now - 1.0}, "until_s"),
                ({"cluster": "", "selector": "rack=r9"}, "selector"),
            ):  # fmt: skip
                answer = await client.post("/reservations", json=body | wrong)
                assert (answer.status_code, answer.json()["field"]) == (422, field)
            gone: tuple[tuple[dict[str, object], list[str]], ...] = (
                ({"cluster": "east-z"}, ["no cluster 'east-z' ("]),
                (
                    {"cluster": "", "hosts": ["x", "east-a-0", "y"], "tenants": ["visoin"]},
                    ["no tenant 'visoin' (", "no host 'x'", "no host 'y'"],
                ),
            )
            for names, said in gone:
                answer = await client.post("/reservations", json={**body, **names})
                assert answer.status_code == 404
                told = answer.json()
                details = [one["detail"] for one in told.get("errors", [told])]
                assert len(details) == len(said), answer.text
                assert all(a.startswith(b) for a, b in zip(details, said, strict=True)), details

    run(story)


def test_a_quota_for_a_while_leaves_models_that_it_does_not_name_as_they_are(
    tmp_path: Path,
) -> None:
    """Also of a tenant that has none by the fleet: those below it keep theirs, and its jobs run."""
    hosts = [{"count": 1, "gpu": model, "gpus": 4} for model in ("H100", "A100")]
    fleet = {
        "regions": {"east": {"clusters": {"east-a": {"hosts": hosts}}}},
        "tenants": {"free": {}, "kid": {"parent": "free", "quota": {"A100": 2}}},
    }
    firm = {"preemptible": False, "resources": {"accelerators": "A100:2"}, "tenant": "free"}

    async def story(door: Entrance) -> None:
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            for quota in ({"H100": 2}, {"H100": 1}):
                body = {"quota": quota, "until_s": time.time() + 3600}
                answer = await client.post("/tenants/free/quota", json=body)
                assert answer.status_code == 200, answer.text
            body["quota"] = {"A100": 3}
            told = (await client.post("/tenants/free/quota", json=body | {"dry_run": True})).json()
            assert (told["before"], told["quota"]) == ({"H100": 1}, {"A100": 3})
            assert told["warnings"] == []
            body["quota"] = {"A100": 9, "H100": 4}
            told = (await client.post("/tenants/free/quota", json=body | {"dry_run": True})).json()
            too_many = "the quotas add up to 9 A100, and there are 4"
            assert told["warnings"] == [f"{too_many}: not all tenants can have theirs at once"]
            dry = (await client.post("/jobs/dry-run", json={"job": ONE | firm})).json()
            assert dry["reason"] is None, dry
            rows = (await client.get("/tenants")).json()["tenants"]
            quotas = {(row["name"], row["gpu_model"]): row["nominal"] for row in rows}
            assert quotas == {("free", "H100"): 1.0, ("kid", "A100"): 2.0}

    with entrance(tmp_path, fleet) as door:
        run(lambda: story(door))


def test_a_quota_for_a_while_is_checked_and_told_of(door: Entrance) -> None:
    """As in a fleet file, quotas have to add up; it is listed with the tenant until it is over."""

    async def story() -> None:
        chief = await door.token("chief", (Role.ADMIN, "/"))
        ann = await door.token("ann", (Role.TENANT_ADMIN, "vision"))
        async with door.client(chief) as client, door.client(ann) as other:
            until_s = door.service.clock.now() + 3600.0
            body = {"quota": {"H100": 4}, "until_s": until_s, "reason": "a deadline"}
            assert (await other.post("/tenants/vision/quota", json=body)).status_code == 403
            dry = (await client.post("/tenants/vision/quota", json=body | {"dry_run": True})).json()
            assert (dry["before"], dry["quota"]) == ({"H100": 2}, {"H100": 4})
            told = (await client.post("/tenants/vision/quota", json=body)).json()
            assert (told["dry_run"], told["until_s"]) == (False, until_s)
            assert (dry["replaces"], told["replaces"]) == (None, None)
            assert door.acts()[0].verb == "set-quota"
            rows = (await client.get("/tenants")).json()["tenants"]
            (row,) = [row for row in rows if row["name"] == "vision"]
            assert (row["nominal"], row["until_s"]) == (4.0, until_s)
            assert "a deadline" in row["for_a_while"]
            for tenant, wrong, status in (
                ("vision", {"quota": {"A100": 1}}, 422), ("vision", {"quota": {"H100": "4"}}, 422),
                ("vision", {"quota": {}}, 422), ("vision", {"until_s": 1.0}, 422),
                ("nlp", {"quota": {"H100": 99}}, 422), ("visoin", {}, 404),
            ):  # fmt: skip
                answer = await client.post(f"/tenants/{tenant}/quota", json=body | wrong)
                assert answer.status_code == status, answer.text
            body |= {"until_s": until_s - 60.0}
            tried = (
                await client.post("/tenants/vision/quota", json=body | {"dry_run": True})
            ).json()
            told = (await client.post("/tenants/vision/quota", json=body)).json()
            old = tried["replaces"]
            assert (old["until_s"], old["reason"]) == (until_s, "a deadline")
            assert told["replaces"] == old
            again = (await client.post("/tenants/vision/quota", json=body | {
                "from_s": told["from_s"]
            })).json()  # fmt: skip
            assert again["replaces"] is None  # the same is no other
            ended = (await client.post("/tenants/vision/quota/end", json={})).json()
            assert (ended["before"], ended["quota"]) == ({"H100": 4}, {"H100": 2})
            assert ended["replaces"]["until_s"] == body["until_s"]
            assert (await client.post("/tenants/vision/quota/end", json={})).status_code == 404

    run(story)


def test_a_budget_that_is_used_up_holds_its_tenant(door: Entrance) -> None:
    """Nothing of it starts until it has a larger one; people are told once of each threshold."""

    async def story() -> None:
        chief = await door.token("chief", (Role.ADMIN, "/"))
        ann = await door.token("ann", (Role.SUBMITTER, "nlp"))
        looks = door.system.budgets

        async def give(client: httpx.AsyncClient, **budget: Any) -> None:
            tenants = (await client.get("/fleet")).json()["fleet"]["tenants"]
            tenants["vision"]["budget"] = budget
            answer = await client.post("/fleet/apply", json={"tenants": tenants})
            assert answer.status_code == 200, answer.text

        async with door.client(chief) as client, door.client(ann) as submitter:
            (job,) = await submit(submitter, 1, tenant="nlp")
            await give(client, gpu_hours=1e-9, at_limit="warn")
            for _ in range(2):
                await asyncio.to_thread(looks.look)
            (view,) = (await submitter.get("/budgets")).json()["budgets"] or [{}]
            assert view == {}  # that of the tenant above is not theirs to see
            (view,) = (await client.get("/budgets")).json()["budgets"]
            assert (view["tenant"], view["at_limit"], view["gpu_hours"]) == ("vision", "warn", 1e-9)
            assert view["used_percent"] > 100.0
            lines = [
                row.text
                for _, row in door.system.journal.history_after(0, 1000)
                if row.kind == "budget"
            ]
            assert len(lines) == 1
            assert lines[0].startswith("the budget of tenant vision for ")
            await give(client, gpu_hours=1e-9, at_limit="hold")
            await asyncio.to_thread(looks.look)
            (waits,) = await submit(submitter, 1, tenant="nlp")
            view = (await client.get(f"/jobs/{waits}")).json()
            assert view["reason"] == "TenantPaused"
            told = (await client.get(f"/jobs/{waits}/explain")).json()
            assert "paused by its budget" in told["summary"]
            assert (await client.get(f"/jobs/{job}")).json()["state"] != "PENDING"
            assert [act.verb for act in door.acts(actor="budget")] == ["pause-tenant"]
            await give(client, gpu_hours=1e9, at_limit="hold")
            await asyncio.to_thread(looks.look)
            assert (await client.get(f"/jobs/{waits}")).json()["reason"] != "TenantPaused"
            await client.post("/tenants/vision/pause", json={"reason": "by hand"})
            await asyncio.to_thread(looks.look)
            rows = (await client.get("/tenants")).json()["tenants"]
            assert any("by hand" in row["paused"] for row in rows)

    run(story)
