"""`cancel` and its like: one request for all jobs, what became of each, and what was refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import Answer, FakeServer, job, problem
from topmast.model.act_views import FleetDiff, FleetView, JobEffect, JobsActed
from topmast.model.fleet_changes import FleetChange
from topmast.model.views import JobView


def acted(*effects: JobEffect, dry_run: bool = False, state: str = "CANCELLED") -> JobsActed:
    """An answer about these; a job that is refused is not known."""
    views: list[JobView] = [job(e.job, state=state) for e in effects if e.effect != "refused"]
    counts = {name: [e.effect for e in effects].count(name) for name in ("done", "refused")}
    gpus, lost = sum(e.gpus for e in effects), sum(e.lost_gpu_h for e in effects)
    return JobsActed("cancel", dry_run, tuple(views), effects, counts, gpus, lost)


def only_body(server: FakeServer) -> dict[str, Any]:
    """What was sent, in one request."""
    (request,) = server.requests
    found: dict[str, Any] = json.loads(request.body)
    return found


def test_cancels_all_jobs_in_one_request(server: FakeServer, call: Call) -> None:
    """Several ids, one of them twice."""
    server.on("POST", "/jobs/cancel", acted(JobEffect("j1", "done"), JobEffect("j2", "done")))
    called = call("cancel", "j1", "j2", "j1", "--reason", "it diverged", "--json")
    assert [one["id"] for one in called.document["jobs"]] == ["j1", "j2"]
    sent = only_body(server)
    assert sent["jobs"] == ["j1", "j2"]
    assert (sent["reason"], sent["dry_run"]) == ("it diverged", False)


def test_what_cannot_be_cancelled_does_not_stop_the_rest(server: FakeServer, call: Call) -> None:
    """The others are cancelled, and the errors come on one line."""
    refused = [JobEffect(name, "refused", f"no job '{name}'") for name in ("j8", "j9")]
    server.on("POST", "/jobs/cancel", acted(refused[0], JobEffect("j1", "done"), refused[1]))
    called = call("cancel", "j8", "j1", "j9")
    assert called.code == 1
    assert called.out.splitlines()[1].split() == ["j1", "resnet", "CANCELLED", "-"]
    assert called.error == "topmast: no job 'j8'; no job 'j9'"


def test_what_was_not_found_is_404_with_a_list(server: FakeServer, call: Call) -> None:
    """As of REST; a job that is there, and cannot be so, is a conflict."""
    gone = [JobEffect(name, "refused", f"no job '{name}'") for name in ("j8", "j9")]
    server.on("POST", "/jobs/cancel", acted(*gone))
    problem = call("cancel", "j8", "j9", "--json").problem
    assert (problem["status"], problem["title"], problem["field"]) == (404, "Not found", "jobs")
    assert problem["detail"] == "no job 'j8'"
    assert [one["detail"] for one in problem["errors"]] == ["no job 'j8'", "no job 'j9'"]
    server.on("POST", "/jobs/cancel", acted(gone[0]))
    problem = call("cancel", "j8", "--json").problem
    assert (problem["status"], "errors" in problem) == (404, False)
    there = replace(
        acted(JobEffect("j1", "done")),
        effects=(JobEffect("j1", "refused", "it has ended"), gone[0]),
    )
    server.on("POST", "/jobs/requeue", there)
    called = call("requeue", "j1", "j8", "--json")
    problem = json.loads(called.err.splitlines()[-1])["error"]
    assert (called.code, problem["status"]) == (1, 409)
    assert [one["detail"] for one in problem["errors"]] == ["j1 it has ended", "no job 'j8'"]
    many = [JobEffect(f"j{n}", "refused", f"no job 'j{n}'") for n in range(30)]
    server.on("POST", "/jobs/cancel", acted(*many))
    errors = call("cancel", *[one.job for one in many], "--json").problem["errors"]
    assert (len(errors), errors[-1]["detail"]) == (21, "and 10 more refused")


def test_nothing_known_prints_no_table(server: FakeServer, call: Call) -> None:
    """Only the error."""
    server.on("POST", "/jobs/cancel", acted(JobEffect("j9", "refused", "no job 'j9'")))
    alone = call("cancel", "j9", "--json")
    assert (alone.code, alone.out) == (1, "")


def test_a_dry_run_shows_what_it_would_cost(server: FakeServer, call: Call) -> None:
    """Each job with its cost, and the sum."""
    effects = (
        JobEffect("j1", "done", gpus=8.0, lost_gpu_h=2.5),
        JobEffect("j2", "done", gpus=1.0, lost_gpu_h=0.036),
    )
    server.on("POST", "/jobs/cancel", acted(*effects, dry_run=True, state="RUNNING"))
    called = call("cancel", "--selector", "user=ada,name=train-*", "--dry-run")
    sent = only_body(server)
    assert (sent["selector"], sent["dry_run"]) == ("user=ada,name=train-*", True)
    assert called.out.splitlines()[1].split()[-5:] == ["would", "change", "8", "2.5", "-"]
    assert called.out.splitlines()[2].split()[-2] == "0.04", "little is told, too"
    assert called.out.splitlines()[-1] == (
        "cancel: 2 jobs would change, would let go of 9 GPUs, 2.54 GPU-hours of work are lost"
    )


@pytest.mark.parametrize("how", [(), ("--json",)], ids=["", "json"])
def test_how_far_an_act_came_before_a_stop_is_told(
    server: FakeServer, call: Call, how: tuple[str, ...]
) -> None:
    """The answer counts only what the next server came to."""
    said = "the server stops: cancel came to 2 of 3 jobs: ask again for the rest"
    stops = Answer({"detail": said}, 503, headers={"Retry-After": "1"})
    server.on("POST", "/jobs/cancel", stops, acted(JobEffect("j3", "done")))
    called = call("cancel", "-l", "name=x", *how)
    assert called.code == 0
    assert called.err == f"asked again, because {said}\n"


def test_of_many_jobs_only_the_counts_are_shown(server: FakeServer, call: Call) -> None:
    """Seven thousand lines help no one."""
    server.on("POST", "/jobs/cancel", acted(*(JobEffect(f"j{i}", "done") for i in range(1, 99))))
    assert call("cancel", "-l", "state=PENDING").out == "cancel: 98 jobs changed\n"


def test_jobs_or_a_selector_and_not_both(server: FakeServer, call: Call) -> None:
    """Neither would be all jobs: that has to be said."""
    for words, why in (
        ((), "state=active for all"),
        (("j1", "--selector", "user=ada"), "not both"),
    ):
        called = call("cancel", *words)
        wrong = f"name jobs, or give --selector; {why}"
        said = f"topmast: {wrong} (see: topmast cancel --help)"
        assert (called.code, called.error) == (2, said)
    assert not server.requests


def test_words_that_are_not_utf_8_are_named(server: FakeServer, call: Call) -> None:
    """As the terminal gave them; nothing is sent."""
    for words, said in (
        (("cancel", "\udcff"), r"'\xff'"),
        (("cancel", "j3", "--reason", "a\udcff"), r"'a\xff'"),
    ):
        called = call(*words)
        assert (called.code, called.out) == (2, "")
        assert called.error.startswith("topmast: ")
        assert said in called.error
        assert called.error.endswith("is not UTF-8; write it in UTF-8")
    assert not server.requests


@pytest.mark.parametrize(
    ("apply", "option"), [(("fleet", "apply"), ("--tenants",)), (("tenants", "apply"), ())]
)
def test_a_fleet_is_applied_on_the_version_that_was_compared(
    server: FakeServer, call: Call, tmp_path: Path, apply: tuple[str, ...], option: tuple[str, ...]
) -> None:
    """What is shown is what is done; or the server refuses it."""
    host = FleetChange("host east-1-9", "removed", jobs=("j7",))
    server.on("POST", "/fleet/diff", FleetDiff("v1", (host,)))
    server.on("POST", "/fleet/apply", FleetDiff("v2", (host,)))
    path = tmp_path / "quotas.yaml"
    path.write_text("tenants: {vision: {quota: {H100: 4}}}")
    dry = call(*apply, str(path), *option, "--dry-run")
    assert dry.out.splitlines()[1].split()[:3] == ["host", "east-1-9", "removed"]
    assert "nothing was done" in dry.err
    assert json.loads(server.requests[-1].body)["dry_run"] is True
    done = call(*apply, str(path), *option, "--reason", "more", "--json")
    assert done.document["version"] == "v2"
    body = json.loads(server.requests[-1].body)
    assert body == {
        "tenants": {"vision": {"quota": {"H100": 4}}}, "base": "v1", "reason": "more",
    }  # fmt: skip


def test_a_file_that_was_shown_is_applied_on_the_version_it_was_shown_at(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """What others changed since is not undone; a file that changes nothing is no conflict."""
    host = FleetChange("host east-1-9", "removed")
    fleet = {
        "regions": {
            "east": {"clusters": {"e": {"hosts": [{"count": 1, "gpu": "H100", "gpus": 8}]}}}
        }
    }
    server.on("GET", "/fleet", FleetView("v1", fleet))
    server.on("POST", "/fleet/apply", FleetDiff("v3", (host,)))
    path = tmp_path / "fleet.yaml"
    path.write_text(call("fleet", "show").out)
    for version, changes, base, warned in (
        ("v1", (host,), "v1", 0), ("v2", (host,), "v1", 1), ("v2", (), "v2", 0),
    ):  # fmt: skip
        server.on("POST", "/fleet/diff", FleetDiff(version, changes))
        assert call("fleet", "diff", path).err.count("what others changed") == warned
        assert call("fleet", "apply", path).code == 0
        assert json.loads(server.requests[-1].body)["base"] == base
    assert call("fleet", "apply", path, "--base", "v9").code == 0
    assert json.loads(server.requests[-1].body)["base"] == "v9"


def test_every_act_has_its_route(server: FakeServer, call: Call) -> None:
    """With the changes that were asked for."""
    for verb in ("hold", "release", "suspend", "resume", "preempt", "requeue"):
        server.on("POST", f"/jobs/{verb}", acted(JobEffect("j1", "done"), state="PENDING"))
        assert call(verb, "j1").code == 0
    server.on("POST", "/jobs/edit", acted(JobEffect("j1", "done"), state="PENDING"))
    call("edit", "j1", "--time-limit", "none", "--no-preemptible", "--max-restarts", "0")
    call("edit", "j1", "--time-limit", "4h")
    call("reprioritize", "high", "j1")
    assert [json.loads(request.body)["changes"] for request in server.requests[-3:]] == [
        {"time_limit_s": None, "preemptible": False, "max_restarts": 0},
        {"time_limit_s": 14_400.0},
        {"priority": "high"},
    ]
    assert call("edit", "j1").code == 2


def test_a_change_that_waits_for_the_next_attempt_says_so(server: FakeServer, call: Call) -> None:
    """The priority of a job with GPUs stays as it is until then; JSON has it in the effect."""
    why = "has GPUs: it takes effect when the job waits again"
    later = replace(acted(JobEffect("j1", "done", why), state="RUNNING"), verb="edit")
    server.on("POST", "/jobs/edit", later)
    assert call("reprioritize", "high", "j1").error == f"j1 {why}"
    assert call("reprioritize", "high", "j1", "--json").document["effects"][0]["why"] == why
    over = replace(
        acted(JobEffect("j1", "refused", "has ended: FAILED")), verb="edit", jobs=(job("j1"),)
    )
    server.on("POST", "/jobs/edit", over)
    told = call("edit", "j1", "--max-restarts", "1").err
    assert told.splitlines() == ["topmast: j1 has ended: FAILED"]  # once
    dry = replace(acted(JobEffect("j1", "done"), dry_run=True), verb="edit")
    server.on("POST", "/jobs/edit", dry)
    lines = call("reprioritize", "high", "j1", "--dry-run").out.splitlines()
    assert lines[-1] == "reprioritize: 1 job would change"
    at_once = replace(acted(JobEffect("j1", "done"), state="PENDING"), verb="edit")
    server.on("POST", "/jobs/edit", at_once)
    assert call("reprioritize", "high", "j1").err == ""


def test_what_is_wrong_with_a_change_is_said_of_what_was_typed(
    server: FakeServer, call: Call
) -> None:
    """The fields of the request are not."""
    wrong = problem(422, "unknown band 'hgh'", "changes.priority", "did you mean 'high'?")
    server.on("POST", "/jobs/edit", wrong)
    said = "unknown band 'hgh' (did you mean 'high'?)"
    assert call("reprioritize", "hgh", "j1").error == f"topmast: BAND: {said}"
    assert call("edit", "j1", "--priority", "hgh").error == f"topmast: --priority: {said}"
    server.on("PUT", "/profile", problem(422, "unknown option", "options.score.dtaa"))
    called = call("policies", "set", "fifo", "--set", "score.dtaa=2")
    assert called.error == "topmast: --set score.dtaa: unknown option"


def test_a_fleet_file_of_tenants_alone_is_told_what_applies_it(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("tenants: {vision: {quota: {H100: 4}}}")
    for verb in ("diff", "apply"):
        called = call("fleet", verb, path)
        assert called.code == 2
        assert "regions: missing (`topmast tenants apply FILE` applies" in called.error


def test_what_is_wrong_with_tenants_names_their_file(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """And the line there: several files may be applied by one script."""
    path = tmp_path / "quotas.yaml"
    path.write_text("tenants:\n  vision: {qota: {H100: 4}}")
    wrong = problem(422, "unknown field", "tenants.vision.qota", "did you mean 'quota'?")
    server.on("POST", "/fleet/diff", wrong)
    said = "tenants.vision.qota: unknown field (did you mean 'quota'?)"
    for words in (("tenants", "apply"), ("fleet", "diff", "--tenants")):
        assert call(*words, path).error == f"topmast: {path}:2: {said}"


def test_what_a_server_finds_wrong_with_an_engine_names_the_line(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """Only the server knows the options of its engines."""
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "regions:\n  east:\n    clusters:\n      e:\n        options:\n          lnger_s: 3\n"
        "        hosts: [{count: 1, gpu: H100, gpus: 8}]\n"
    )
    field = "regions.east.clusters.e.options.lnger_s"
    wrong = problem(422, "engine 'local' has no such option", field, "did you mean 'linger_s'?")
    server.on("POST", "/fleet/diff", wrong)
    said = f"{field}: engine 'local' has no such option (did you mean 'linger_s'?)"
    for words in (("fleet", "apply"), ("fleet", "diff")):
        assert call(*words, path).error == f"topmast: {path}:6: {said}"


def test_what_a_server_finds_wrong_is_told_beside_what_the_file_has_wrong(
    server: FakeServer, call: Call, tmp_path: Path
) -> None:
    """At once; and without a server what the file has wrong is told alone."""
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "regions:\n  east:\n    storge: 3\n    clusters:\n      e:\n        options: {lnger_s: 3}\n"
        "        hosts: [{count: 1, gpu: H100, gpus: 8}]\n"
    )
    field = "regions.east.clusters.e.options.lnger_s"
    server.on("POST", "/fleet/diff", problem(422, "engine 'local' has no such option", field))
    for words in (("fleet", "apply"), ("fleet", "diff")):
        first, second = call(*words, path).err.splitlines()
        assert f"{path}:3: regions.east.storge: unknown field" in first
        assert f"{path}:6: {field}: engine 'local' has no such option" in second
    server.on("POST", "/fleet/diff", problem(503, "no server leads", ""))
    assert "regions.east.storge" in call("fleet", "diff", path).error


def test_two_words_that_are_swapped_are_put_in_order(server: FakeServer, call: Call) -> None:
    """The band comes first; without a band among the words, one is shown."""
    called = call("reprioritize", "j12", "low")
    assert called.code == 2
    assert "the band comes first: topmast reprioritize low j12" in called.error
    called = call("reprioritize", "s7[3]", "j4")
    assert "the band comes first: topmast reprioritize high s7[3]" in called.error
    called = call("reprioritize", "j12", "j13", "hihg")
    assert "the band comes first: topmast reprioritize high j12" in called.error
    called = call("reprioritize", "j12", "lwo")
    assert "the band comes first: topmast reprioritize low j12" in called.error
    assert not server.requests


def test_what_holding_does_to_a_job_that_runs(server: FakeServer, call: Call) -> None:
    """It goes on, and is held when it stops."""
    done = acted(JobEffect("j1", "done"), state="RUNNING")
    views = tuple(replace(view, hold="held by ann") for view in done.jobs)
    server.on("POST", "/jobs/hold", replace(done, jobs=views))
    assert "when it stops: held by ann" in call("hold", "j1").out
    waits = tuple(replace(view, state="PENDING", cause="held by ann") for view in views)
    server.on("POST", "/jobs/hold", replace(done, jobs=waits))
    told = call("hold", "j1").out
    assert "held by ann" in told
    assert "when it stops" not in told


def test_what_an_act_does_to_jobs_that_wait_or_need_it_not(server: FakeServer, call: Call) -> None:
    """One that waits says that it is held; one that is as wanted says why nothing changed."""
    done = acted(JobEffect("j1", "done"), state="PENDING")
    views = tuple(replace(view, hold="held by ann: later") for view in done.jobs)
    server.on("POST", "/jobs/hold", replace(done, jobs=views))
    assert "held by ann: later" in call("hold", "j1").out
    server.on("POST", "/jobs/release", acted(JobEffect("j1", "unchanged", "is not held")))
    assert "j1 is unchanged: is not held" in call("release", "j1").error
    server.on("POST", "/jobs/hold", acted())
    assert call("hold", "s3").error == "all jobs of s3 have ended"
    server.on("POST", "/jobs/requeue", replace(acted(), verb="requeue"))
    assert call("requeue", "s3").error == "all jobs of s3 have succeeded"


def test_a_command_says_that_a_limit_makes_it_wait(server: FakeServer, call: Call) -> None:
    """Half a minute without a word is taken for a fault; a moment is no matter."""
    said = "too many requests of ann"
    full, fuller = (
        Answer({"detail": said}, 429, headers={"Retry-After": given}) for given in ("0", "1")
    )
    server.on("POST", "/jobs/cancel", full, fuller, acted(JobEffect("j3", "done")))
    called = call("cancel", "-l", "name=x")
    assert called.code == 0
    assert called.err == f"waits 1 s: {said}\n"
