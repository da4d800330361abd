"""Kill real servers some 20 times; and see to it that the judge of that would notice broken promises."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.crash import run
from tests.crash.plan import Fault, Phase, make_plan
from tests.crash.plant import APART, ONE
from tests.crash.run import Result, crash_test
from tests.crash.verdict import Evidence, Hurt, Proof, ProofFile, Submission, Verdict, judge
from topmast.model.views import GpuView, HostView, JobView, TenantView

KILLS = 20
SEED = 30


@pytest.mark.crash
@pytest.mark.timeout(900)
def test_nothing_is_lost_and_nothing_runs_twice_when_the_server_is_killed(tmp_path: Path) -> None:
    """Killed at random moments, they lose no acknowledged job and start none twice: alone, and apart."""
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
    found = json.loads(last)
    contract = {"kills": 7, "acknowledged": 5, "lost": len(lost), "double_runs": 0}
    assert {name: found[name] for name in contract} == contract


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


def proof(
    kind: str, at_s: float, job: int = 1, name: str = "one", host: str = "east-a-0", **more: int
) -> Proof:
    """A line that a task wrote; "two" is a gang of two."""
    said = {"epoch": 1, "rank": 0, "pid": 100 * job, "size": 2 if name == "two" else 1, **more}
    return Proof(kind=kind, name=name, job=f"j{job}", at_s=at_s, host=host, **said)


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
        outcomes={"j1": [(1, "succeeded")]},
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


def start_an_attempt_again(evidence: Evidence) -> None:
    evidence.proof.append(proof("again", 3.0, pid=7))


def share_a_gpu(evidence: Evidence) -> None:
    evidence.proof.append(proof("crowded", 1.5, 2, "two", epoch=2, pid=7))


def run_again_what_was_done(evidence: Evidence) -> None:
    evidence.outcomes["j2"] = [(1, "failed"), (2, "succeeded")]
    for rank in (0, 1):
        evidence.proof.append(proof("start", 3.0, 2, "two", rank=rank, epoch=2, pid=7))
    for rank in (0, 1):
        evidence.proof.append(proof("done", 4.0, 2, "two", rank=rank, epoch=2, pid=7))


def pass_its_limit(evidence: Evidence) -> None:
    """All was up, and answered forty times while it ran."""
    evidence.submissions[0] = Submission("one", "key", ("FAILED",), limited=True, id="j1")
    evidence.proof[3] = proof("done", 30.0)
    evidence.answers = [2.5 + number / 2 for number in range(40)]


def call_a_host_lost_after_another_was_hurt(evidence: Evidence) -> None:
    call_a_host_lost(evidence)
    evidence.hurts = [Hurt("east-a-1", 1.5)]


def kill_a_task_long_after_its_host_was_hurt(evidence: Evidence) -> None:
    kill_a_task(evidence)
    evidence.hurts = [Hurt("east-a-0", -9.0)]


def run_again_after_the_disk_was_full(evidence: Evidence) -> None:
    """Nothing was killed, so how it ended is written when there is room, and not lost."""
    run_again_what_was_done(evidence)
    evidence.hurts = [Hurt("east-a-0", 2.3, disk=True)]


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
    evidence.outcomes["j1"] = [(1, "host_lost"), (2, "succeeded")]


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
        (start_an_attempt_again, 0, 1, 0),
        (share_a_gpu, 0, 1, 0),
        (run_again_what_was_done, 0, 2, 0),
        (run_again_after_the_disk_was_full, 0, 2, 0),
        (pass_its_limit, 1, 0, 0),
        (call_a_host_lost_after_another_was_hurt, 0, 0, 1),
        (kill_a_task_long_after_its_host_was_hurt, 0, 1, 1),
        (admit_twice, 0, 1, 0),
        (admit_twice_what_was_given_up, 0, 1, 0),
        (start_half_a_gang, 0, 0, 1),
        (run_a_gang_one_by_one, 0, 0, 1),
        (kill_a_task, 0, 1, 1),
        (damage_data, 0, 0, 1),
        (restart_a_steady_job, 0, 1, 1),
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


def limit_unseen(evidence: Evidence) -> None:
    """The control plane was away for nearly all of its time."""
    pass_its_limit(evidence)
    evidence.answers = evidence.answers[:5]


def lose_a_host(evidence: Evidence) -> None:
    """A gang of two, of which one dies without a word, and which runs again."""
    evidence.hurts = [Hurt("east-b-0", 1.5)]
    evidence.proof[1] = proof("start", 1.1, 2, "two", host="east-b-0")
    evidence.proof[4:] = [
        proof("stopped", 1.9, 2, "two", rank=1, pid=201),
        proof("start", 3.0, 2, "two", epoch=2, pid=7),
        proof("start", 3.0, 2, "two", rank=1, epoch=2, pid=8),
        proof("done", 4.0, 2, "two", epoch=2, pid=7),
        proof("done", 4.0, 2, "two", rank=1, epoch=2, pid=8),
    ]
    evidence.outcomes["j2"] = [(1, "host_lost"), (2, "succeeded")]


def lose_a_host_late(evidence: Evidence) -> None:
    """It died while no server was up: when that is noticed, it is up again and has begun the next attempt."""
    lose_a_host(evidence)
    evidence.hurts = [Hurt("east-b-0", -20.0)]
    evidence.proof[3:4] = [proof("stopped", 1.9, 2, "two"), *evidence.proof[3:4]]


def lose_a_record(evidence: Evidence) -> None:
    """It was done, and its supervisor was killed before it had written that down."""
    evidence.hurts = [Hurt("east-a-0", 2.3)]
    run_again_what_was_done(evidence)
    evidence.outcomes["j2"] = [(1, "host_lost"), (2, "succeeded")]


def preempt_at_the_end(evidence: Evidence) -> None:
    """It was done when it was already told to stop: a good status means no more than a checkpoint then."""
    run_again_what_was_done(evidence)
    evidence.outcomes["j2"] = [(1, "preempted"), (2, "succeeded")]


def shrink(evidence: Evidence) -> None:
    """An elastic job ends with one task."""
    evidence.submissions[1] = Submission("two", "key-two", tasks=None, id="j2")
    evidence.proof[4:] = [
        proof("stopped", 2.1, 2, "two"), proof("stopped", 2.1, 2, "two", rank=1),
        proof("start", 3.0, 2, "two", epoch=2, size=1), proof("done", 4.0, 2, "two", epoch=2, size=1),
    ]  # fmt: skip
    evidence.outcomes["j2"] = [(1, "preempted"), (2, "succeeded")]


def shrink_when_half_is_done(evidence: Evidence) -> None:
    """An elastic job of two tasks, one of them done, loses the other with its host and goes on with one."""
    shrink(evidence)
    evidence.hurts = [Hurt("east-b-0", 1.5)]
    evidence.proof[2] = proof("start", 1.2, 2, "two", rank=1, pid=201, host="east-b-0")
    evidence.proof[4:6] = [proof("done", 1.9, 2, "two")]
    evidence.outcomes["j2"] = [(1, "host_lost"), (2, "succeeded")]


@pytest.mark.parametrize(
    "story",
    [
        limit_unseen, lose_a_host, lose_a_host_late, lose_a_record, preempt_at_the_end, shrink,
        shrink_when_half_is_done,
    ],
)  # fmt: skip
def test_the_judge_knows_what_was_done_to_a_job(story: Callable[[Evidence], None]) -> None:
    """What follows from a host that was hurt, or from a slow machine, is no broken promise."""
    evidence = good()
    story(evidence)
    verdict = judge(evidence)
    assert verdict.clean, verdict


def test_the_seed_is_the_plan() -> None:
    """One seed, one plan: every phase and fault is in it, and a start follows the death of the same servers."""
    for topology in (ONE, APART):
        plan = make_plan(topology, 300, SEED)
        assert plan == make_plan(topology, 300, SEED) != make_plan(topology, 300, SEED + 1)
        assert len(plan) == 300
        assert {part.phase for part in plan} == set(Phase)
        faults = {n.fault for part in plan for n in (part.before, part.down) if n is not None}
        assert faults == set(Fault)
        for last, part in itertools.pairwise(plan):
            if part.phase is Phase.START:
                assert part.target == last.target


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
