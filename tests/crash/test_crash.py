"""Kill the real server 30 times; and see to it that the judge of that would notice broken promises."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.crash import run
from tests.crash.run import Result, crash_test
from tests.crash.verdict import Evidence, Proof, ProofFile, Submission, Verdict, judge
from topmast.model.views import GpuView, HostView, JobView, TenantView

KILLS = 30
SEED = 30


@pytest.mark.crash
@pytest.mark.timeout(400)
def test_nothing_is_lost_and_nothing_runs_twice_when_the_server_is_killed(tmp_path: Path) -> None:
    """Killed at random moments, the server loses no acknowledged job and starts none twice."""
    result = crash_test(tmp_path, KILLS, SEED)
    verdict = result.verdict
    assert [*verdict.lost, *verdict.double_runs, *verdict.others] == []
    assert json.loads(result.line)["kills"] == KILLS
    # Else it proved nothing.
    assert result.acknowledged > KILLS
    assert result.survived > 0


@pytest.mark.parametrize(
    ("lost", "want_status"), [([], 0), (["j1 was acknowledged and is not known"], 1)]
)
def test_the_last_line_is_the_result(
    lost: list[str],
    want_status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever calls the program learns from its status and its last line how it went."""

    def pretend(folder: Path, kills: int, seed: int) -> Result:
        return Result(kills, 5, Verdict(lost, [], []), 9)

    monkeypatch.setattr(run, "crash_test", pretend)
    assert run.main(["--kills", "7", "--seed", "1"]) == want_status
    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last) == {
        "kills": 7, "acknowledged": 5, "lost": len(lost), "double_runs": 0,
    }  # fmt: skip


# --- would it notice? --------------------------------------------------------------------------


def view(number: int, name: str, state: str = "SUCCEEDED") -> JobView:
    """A job as the server shows it."""
    return JobView(
        id=f"j{number}", name=name, tenant="red", user="ann", band="normal", state=state,
        reason=None, region="east", cluster="east-a", gpu_model="H100", hosts=("east-a-0",), gpus=1,
        tasks=1, attempts=1, preemptions=0, restarts=0, over_quota=False, submit_s=0.0, start_s=1.0,
        finish_s=2.0, wait_s=1.0, step=None, resumed_from_step=None, metrics={}, datasets=(),
        group="", cause="",
    )  # fmt: skip


def proof(kind: str, at_s: float, job: int = 1, name: str = "one", **more: int) -> Proof:
    """A line that a task wrote."""
    said = {"epoch": 1, "rank": 0, "pid": 100 * job, **more}
    return Proof(kind=kind, name=name, job=f"j{job}", at_s=at_s, **said)


def good() -> Evidence:
    """One single job, and one gang of two, that went as they should."""
    return Evidence(
        submissions=[
            Submission("one", "key-one", id="j1", steady=True),
            Submission("two", "key-two", tasks=2, id="j2"),
            Submission("given up", "key-given-up"),
        ],
        proof=[
            proof("start", 1.0),
            proof("start", 1.1, 2, "two"),
            proof("start", 1.2, 2, "two", rank=1, pid=201),
            proof("done", 2.0),
            proof("done", 2.1, 2, "two"),
            proof("done", 2.2, 2, "two", rank=1, pid=201),
        ],
        jobs=[view(1, "one"), view(2, "two")],
        outcomes={"j1": ["succeeded"]},
        gpus=[GpuView("east", "east-a", "H100", 8.0, 8.0, 0.0, 0.0)],
        tenants=[TenantView("red", "H100", 6.0, 0.0, 0.0, 0.0, 0.0, 1.0)],
        hosts=[
            HostView("east-a-0", "east", "east-a", "healthy", "H100", 4, 4.0, "", "", "", ()),
        ],
    )


def test_the_judge_has_nothing_to_say_about_good_evidence() -> None:
    """What should be so is not called broken."""
    assert judge(good()).clean


def lose(evidence: Evidence) -> None:
    del evidence.jobs[0]


def reuse_the_id(evidence: Evidence) -> None:
    evidence.jobs[0] = view(1, "other")


def never_end(evidence: Evidence) -> None:
    evidence.jobs[0] = view(1, "one", "RUNNING")


def end_badly(evidence: Evidence) -> None:
    evidence.jobs[0] = view(1, "one", "FAILED")


def succeed_without_running(evidence: Evidence) -> None:
    del evidence.proof[3]


def meet_a_copy(evidence: Evidence) -> None:
    evidence.proof.append(proof("double", 1.5, pid=7, epoch=2))


def start_twice(evidence: Evidence) -> None:
    evidence.proof[4:4] = [proof("start", 2.0, pid=7), proof("done", 2.0, pid=7)]


def start_while_running(evidence: Evidence) -> None:
    evidence.proof[3:3] = [proof("start", 1.5, pid=7, epoch=2)]


def admit_twice(evidence: Evidence) -> None:
    evidence.jobs.append(view(3, "one"))


def admit_twice_what_was_given_up(evidence: Evidence) -> None:
    evidence.jobs += [view(3, "given up"), view(4, "given up")]


def start_half_a_gang(evidence: Evidence) -> None:
    evidence.proof.append(proof("alone", 9.0, 2, "two", epoch=2))


def run_a_gang_one_by_one(evidence: Evidence) -> None:
    evidence.proof[2] = msgspec.structs.replace(evidence.proof[2], at_s=2.15)


def kill_a_task(evidence: Evidence) -> None:
    evidence.proof.append(proof("start", 3.0, 2, "two", epoch=2, pid=7))


def damage_data(evidence: Evidence) -> None:
    evidence.proof.insert(1, proof("damaged", 1.0))


def restart_a_steady_job(evidence: Evidence) -> None:
    evidence.proof += [proof("start", 3.0, epoch=2, pid=7), proof("done", 4.0, epoch=2, pid=7)]


def call_a_host_lost(evidence: Evidence) -> None:
    evidence.outcomes["j1"] = ["host_lost", "succeeded"]


def keep_a_gpu(evidence: Evidence) -> None:
    evidence.gpus = [GpuView("east", "east-a", "H100", 8.0, 7.0, 1.0, 0.0)]


def keep_quota(evidence: Evidence) -> None:
    evidence.tenants = [TenantView("red", "H100", 6.0, 1.0, 0.0, 0.0, 0.0, 1.0)]


def leave_a_process(evidence: Evidence) -> None:
    evidence.left_running = [4711]


def change_an_end(evidence: Evidence) -> None:
    evidence.incidents.append("j1 was SUCCEEDED and became FAILED")


@pytest.mark.parametrize(
    ("story", "want_lost", "want_double_runs", "want_others"),
    [
        (lose, 1, 0, 0),
        (reuse_the_id, 1, 0, 0),
        (never_end, 1, 0, 0),
        (end_badly, 1, 0, 0),
        (succeed_without_running, 1, 0, 1),
        (meet_a_copy, 0, 1, 0),
        (start_twice, 0, 1, 1),
        (start_while_running, 0, 1, 2),
        (admit_twice, 0, 1, 0),
        (admit_twice_what_was_given_up, 0, 1, 0),
        (start_half_a_gang, 0, 0, 1),
        (run_a_gang_one_by_one, 0, 0, 1),
        (kill_a_task, 0, 0, 1),
        (damage_data, 0, 0, 1),
        (restart_a_steady_job, 0, 0, 1),
        (call_a_host_lost, 0, 0, 1),
        (keep_a_gpu, 0, 0, 1),
        (keep_quota, 0, 0, 1),
        (leave_a_process, 0, 0, 1),
        (change_an_end, 0, 0, 1),
    ],
)
def test_the_judge_notices(
    story: Callable[[Evidence], None], want_lost: int, want_double_runs: int, want_others: int
) -> None:
    """Every broken promise is found, and counted as what it is."""
    evidence = good()
    story(evidence)
    verdict = judge(evidence)
    found = (len(verdict.lost), len(verdict.double_runs), len(verdict.others))
    assert found == (want_lost, want_double_runs, want_others), verdict
    assert not verdict.clean


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    """Whoever reads while a task writes sees whole lines only."""
    path = tmp_path / "proof"
    file = ProofFile(path)
    assert file.read() == []
    line = msgspec.json.encode(proof("start", 1.0)) + b"\n"
    path.write_bytes(line + line[:20])
    assert file.read() == [proof("start", 1.0)]
    path.write_bytes(line + line)
    assert file.read() == [proof("start", 1.0)] * 2
