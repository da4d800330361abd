"""Small stories under the virtual clock: what jobs, overheads, faults and data do to times."""

from __future__ import annotations

import math

import pytest

from tests.support.build import cluster, dataset, fleet, tenant
from tests.support.simulated import FREE, jobs, run
from topmast.experiments.worlds import world_of
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Link
from topmast.model.reason import PendingReason
from topmast.policies.registry import load_profile
from topmast.sim.heap import instant, not_before
from topmast.sim.settings import Settings, read_settings
from topmast.traces.trace import sizes_of, trace_of

ONE_HOST = fleet(cluster("r-1", hosts=1, gpus=8))
PLAIN = Settings()


def test_a_job_alone_takes_its_duration_and_the_overheads() -> None:
    """30 s of start-up, and 5 s after each 600 s of work but the last."""
    found = run(jobs((0.0, 1_500.0, 8)), ONE_HOST, settings=PLAIN)
    assert found.job("0")["finish_s"] == 30.0 + 1_500.0 + 2 * 5.0
    assert found.job("0")["wait_s"] == 0.0
    assert found.result.summary["goodput_rate"] is None  # the window has no length
    assert found.result.summary["lost_gpu_s"] == 0.0


def test_without_overheads_only_work_takes_time() -> None:
    """`--overheads none`: a job finishes when its duration has passed."""
    found = run(jobs((5.0, 1_500.0, 8)), ONE_HOST)
    assert found.job("0")["finish_s"] == 1_505.0


@pytest.mark.parametrize(
    ("profile", "want"),
    [
        ("fifo", {"0": 100.0, "1": 200.0, "2": 210.0}),
        ("fifo-skip", {"0": 100.0, "1": 200.0, "2": 12.0}),
        ("easy", {"0": 100.0, "1": 200.0, "2": 12.0}),
        ("sjf", {"0": 100.0, "1": 200.0, "2": 12.0}),
    ],
)
def test_who_passes_whom(profile: str, want: dict[str, float]) -> None:
    """A big job waits for all GPUs, a small short one comes behind it: strict order holds it back."""
    trace = jobs((0.0, 100.0, 4), (1.0, 100.0, 8), (2.0, 10.0, 2))
    found = run(trace, ONE_HOST, profile)
    assert {job["job_id"]: job["finish_s"] for job in found.jobs} == want


def test_backfill_does_not_delay_the_reserved_job() -> None:
    """What would still run when room is reserved waits under `easy`, and goes first without."""
    trace = jobs((0.0, 100.0, 4), (1.0, 100.0, 8), (2.0, 500.0, 2))
    assert run(trace, ONE_HOST, "easy").job("1")["finish_s"] == 200.0
    assert run(trace, ONE_HOST, "fifo-skip").job("1")["finish_s"] == 602.0


def test_a_preempted_job_keeps_its_work_and_pays_for_it() -> None:
    """It writes a checkpoint within its grace, and needs start-up and restore to go on."""
    trace = jobs((0.0, 1_000.0, 8), (400.0, 100.0, 8), band=[200, 400])
    found = run(trace, ONE_HOST, "mast", settings=PLAIN, min_runtime_s="0")
    first, second = (a for a in found.allocations if a["job_id"] == "0")
    assert (first["end_s"], first["end_reason"], first["kept_s"]) == (405.0, "preempted", 405.0)
    assert found.job("1")["first_start_s"] == 405.0
    assert second["start_s"] == 405.0 + 30.0 + 100.0
    # 370 s of 1000 were done; then 30 s + 20 s, 600 s, a checkpoint, and the rest.
    assert second["end_s"] == second["start_s"] + 50.0 + 630.0 + 5.0
    assert found.job("0")["lost_gpu_s"] == 0.0
    assert found.result.summary["preemptions"] == 1


def test_a_checkpoint_longer_than_the_grace_is_lost() -> None:
    """A job that cannot save itself in time falls back to its last checkpoint."""
    trace = jobs((0.0, 1_000.0, 8), (400.0, 100.0, 8), band=[200, 400])
    found = run(trace, ONE_HOST, "mast", settings=Settings(checkpoint_s=60.0), min_runtime_s="0")
    first = next(a for a in found.allocations if a["job_id"] == "0")
    assert (first["end_s"], first["kept_s"]) == (430.0, 0.0)
    assert found.job("0")["lost_gpu_s"] == 430.0 * 8


def test_victims_are_weighed_by_their_last_checkpoint() -> None:
    """Of two alike, the one that has just written a checkpoint makes way."""
    trace = trace_of(
        "two", submit_s=[0.0, 300.0, 1_250.0], duration_s=[9_000.0, 9_000.0, 10.0], gpus=[4, 4, 4],
        band=[200, 200, 400],
    )  # fmt: skip
    found = run(trace, ONE_HOST, "mast", settings=PLAIN, min_runtime_s="0")
    stopped = [a["job_id"] for a in found.allocations if a["end_reason"] == "preempted"]
    assert stopped == ["0"]  # its second checkpoint is 10 s old, the other's first 310 s


def test_young_work_is_not_preempted() -> None:
    """`min_runtime_s` protects an attempt for so long."""
    trace = jobs((0.0, 1_000.0, 8), (10.0, 100.0, 8), band=[200, 400])
    found = run(trace, ONE_HOST, "mast", settings=PLAIN)
    assert found.allocations[0]["end_s"] == 305.0


def test_srtf_gives_way_at_once() -> None:
    """The job with the least time left stops the others, from the last on."""
    trace = jobs((0.0, 1_000.0, 8), (100.0, 50.0, 8))
    found = run(trace, ONE_HOST, "srtf")
    assert found.job("1")["finish_s"] == 150.0
    assert found.job("0")["finish_s"] == 1_050.0


def test_what_no_empty_fleet_could_hold_is_set_aside() -> None:
    """Even under strict fifo it holds nobody up; its reason is recorded."""
    trace = jobs((0.0, 10.0, 9), (1.0, 10.0, 8), (2.0, 5.0, 1), gpu_models=["", "", "TPU"])
    found = run(trace, ONE_HOST, "fifo")
    assert [x.job_id for x in found.result.set_aside] == ["0", "2"]
    assert {x.reason for x in found.result.set_aside} == {PendingReason.NO_MATCHING_HARDWARE}
    assert found.job("0")["state"] == "PENDING"
    assert found.job("0")["first_start_s"] is None
    assert found.job("1")["finish_s"] == 11.0
    assert found.result.summary["never_startable"] == 2


def test_a_quota_that_is_too_small_sets_a_job_aside() -> None:
    """A tenant that could never have so many GPUs, and may not borrow."""
    world = fleet(cluster("r-1", hosts=1), tenants=(tenant("a", borrow=0, H100=2),))
    found = run(jobs((0.0, 10.0, 4), tenant="a"), world)
    assert [x.reason for x in found.result.set_aside] == [PendingReason.EXCEEDS_MAX_QUOTA]


def test_a_slower_model_takes_longer() -> None:
    """The duration is that on the first model listed; the others go by their speeds."""
    world = fleet(cluster("r-1", hosts=1, gpus=8, model="A100"))
    trace = jobs((0.0, 600.0, 8), gpu_models="H100|A100", speeds="1|0.5")
    assert run(trace, world).job("0")["finish_s"] == 1_200.0


def test_a_job_may_ask_for_all_the_memory_of_a_host() -> None:
    """`memory: 768` of a fleet file and 768 in `memory_gb` of a trace are the same: the job starts at once."""
    hosts = [{"count": 1, "gpu": "H100", "gpus": 8, "cpus": 96, "memory": 768}]
    there = parse_fleet({"regions": {"r": {"clusters": {"r-1": {"hosts": hosts}}}}})
    trace = trace_of("t", submit_s=[0.0], duration_s=[10.0], gpus=[8], memory=sizes_of([768], "GB"))
    assert run(trace, there).job("0")["wait_s"] == 0.0


def test_a_share_of_a_gpu_leaves_the_rest() -> None:
    """Two halves run on one GPU at the same time."""
    world = fleet(cluster("r-1", hosts=1, gpus=1))
    found = run(jobs((0.0, 100.0, 0.5), (0.0, 100.0, 0.5), (0.0, 100.0, 0.5)), world)
    assert sorted(j["finish_s"] for j in found.jobs) == [100.0, 100.0, 200.0]


def test_data_is_copied_where_the_room_is() -> None:
    """A job whose region is full has its data copied, and starts when it is there."""
    world = fleet(
        cluster("a-1", hosts=1, gpus=8), cluster("b-1", hosts=1, gpus=8),
        datasets=(dataset("d", "a", size_bytes=10**11),),
    )  # fmt: skip
    found = run(jobs((0.0, 5_000.0, 8), (1.0, 100.0, 8), datasets="d"), world, "fifo-skip")
    copies = [c for c in found.copies if c["cause"] != "initial"]
    assert [(c["from"], c["to"], c["start_s"], c["end_s"], c["cause"]) for c in copies] == [
        ("a", "b", 1.0, 101.0, "1")
    ]
    assert found.job("1")["first_start_s"] == 101.0
    assert found.job("1")["collocated"] == 1
    assert found.result.summary["replication_overhead"]["end"] == 1.0


def test_copies_on_one_link_share_it() -> None:
    """Two copies at once take twice as long as one."""
    world = fleet(
        cluster("a-1", hosts=1, gpus=1), cluster("b-1", hosts=1, gpus=8),
        datasets=tuple(dataset(n, "a", size_bytes=10**11) for n in "de"),
        links=(Link("a", "b", 1e9),),
    )  # fmt: skip
    found = run(jobs((0.0, 10.0, 4), (0.0, 10.0, 4), datasets=["d", "e"]), world)
    assert [c["end_s"] for c in found.copies if c["cause"] != "initial"] == [200.0, 200.0]


def test_a_job_waits_for_those_that_it_depends_on() -> None:
    """It is submitted when all of them have succeeded; its wait counts from its own time."""
    trace = jobs((0.0, 100.0, 1), (1.0, 10.0, 1), (2.0, 10.0, 1), depends_on=["", "0", "gone"])
    found = run(trace, ONE_HOST)
    assert found.job("1")["first_start_s"] == 100.0
    assert found.job("1")["wait_s"] == 99.0
    assert found.job("2")["first_start_s"] == 2.0


def test_a_job_that_waits_for_one_that_can_never_start_says_so() -> None:
    """The one is set aside, and the other still waits for it when the run ends."""
    found = run(jobs((0.0, 10.0, 99), (1.0, 10.0, 1), depends_on=["", "0"]), ONE_HOST).result
    assert [job.job_id for job in found.set_aside] == ["0"]
    waits = [(job.job_id, job.reason, job.detail) for job in found.waiting]
    assert waits == [("1", PendingReason.WAITING_FOR_JOBS, "waits for job 0")]


def test_a_task_that_fails_restarts_the_job_from_its_checkpoint() -> None:
    """Failures are counted, and what was done since the last checkpoint is lost."""
    settings = Settings(task_mtbf_s=1_500.0)
    found = run(jobs((0.0, 4_000.0, 8)), ONE_HOST, settings=settings, seed=5)
    summary = found.result.summary
    reasons = [a["end_reason"] for a in found.allocations]
    assert reasons[-1] in ("succeeded", "failed")
    assert summary["restarts"] == len(found.allocations) - 1 > 0
    assert summary["lost_gpu_s"] > 0


def test_a_host_that_fails_takes_its_jobs_with_it() -> None:
    """They go on elsewhere, or when it is back; GPUs that are away are not present."""
    settings = Settings(host_mtbf_s=3_000.0, host_repair_s=500.0)
    found = run(
        jobs((0.0, 8_000.0, 8), (6_000.0, 10.0, 1)), fleet(cluster("r-1", hosts=2)),
        settings=settings, seed=1,
    )  # fmt: skip
    assert found.result.summary["finished"] == 2
    assert "host_lost" in {a["end_reason"] for a in found.allocations}
    assert {row["present_gpus"] for row in found.timeline} >= {8.0, 16.0}


def test_a_run_ends_when_nothing_can_happen_any_more() -> None:
    """A job whose tenant's quota others hold for ever, so to speak: the run says who waits, and why."""
    world = fleet(
        cluster("a-1", hosts=1, gpus=1), cluster("b-1", hosts=1, gpus=8),
        datasets=(dataset("d", "a"),), links=(),
    )  # fmt: skip
    trace = trace_of(
        "stuck", submit_s=[0.0, 1.0], duration_s=[10.0, 10.0], gpus=[1, 8], datasets=["", "d"]
    )
    found = run(trace, world)
    assert [x.job_id for x in found.result.waiting] == ["1"]
    assert found.result.waiting[0].reason is not None
    assert found.result.summary["waiting"] == 1
    assert found.job("1")["state"] == "PENDING"


def test_a_run_ends_though_hosts_fail_and_come_back_for_ever() -> None:
    """Some host is always away for repair: that is no reason to wait for a job that no host could help."""
    world = fleet(
        cluster("a-1", hosts=200, gpus=1), cluster("b-1", hosts=1, gpus=8),
        datasets=(dataset("d", "a"),), links=(),
    )  # fmt: skip
    trace = trace_of(
        "stuck", submit_s=[0.0, 1.0], duration_s=[10.0, 10.0], gpus=[1, 8], datasets=["", "d"]
    )
    settings = read_settings({"sim.host_mtbf_s": "10000", "sim.host_repair_s": "500"})
    found = run(trace, world, settings=settings, seed=1)
    assert [x.job_id for x in found.result.waiting] == ["1"]
    assert found.job("0")["state"] == "SUCCEEDED"


@pytest.mark.parametrize(
    "text", ["latency_s=-1", "loss=1", "loss=x", "nonsense=1", "host_mtbf_s=0"]
)
def test_settings_that_make_no_sense_are_refused(text: str) -> None:
    """An error names the setting."""
    key, _, value = text.partition("=")
    with pytest.raises(InvalidInput, match="sim"):
        read_settings({f"sim.{key}": value})


def test_all_options_of_a_run_that_do_not_fit_are_told_at_once() -> None:
    """Of the profile and of the world, each with what would fit."""
    wrong = {"sim.startups": "3", "sim.startup_s": "soon", "sim.loss": "2", "sim.host_mtbf_s": "0"}
    with pytest.raises(InvalidInput) as raised:
        world_of("fifi", {**wrong, "nope": "1"}, overheads=True)
    told = [error.line() for error in (raised.value, *raised.value.more)]
    assert told == [
        "profile: unknown profile 'fifi' (did you mean 'fifo'?)",
        "--set nope: there is no such option (`topmast policies` lists all options)",
        "--set sim.startups: there is no such option (did you mean 'sim.startup_s'?)",
        "--set sim.startup_s: wanted a number, found text 'soon'",
        "--set sim.loss: 2.0 is out of range (from 0 to 0.99)",
        "--set sim.host_mtbf_s: 0.0 is out of range (above 0, at most 1e+12)",
    ]


def test_settings_are_read_as_people_write_them() -> None:
    """1e9 is a number; what is none is named with its setting."""
    assert read_settings({"sim.host_repair_s": "1e9"}).host_repair_s == 1e9
    with pytest.raises(
        InvalidInput, match=r"--set sim\.host_repair_s: wanted a number, found text"
    ):
        read_settings({"sim.host_repair_s": "long"})


def test_instants_that_are_one_in_decimals_are_one_here() -> None:
    """0.1 + 0.2 and 0.3 meet; and nobody is woken before the time that he wants."""
    assert instant(0.1 + 0.2) == instant(0.3)
    for at_s in (0.0, 1e-7, 0.3, 12345.6789012, 1.6e9 + 1 / 3):
        assert at_s <= not_before(at_s) <= at_s + 2e-6
        assert not_before(not_before(at_s)) == not_before(at_s)


def test_a_job_that_fails_for_good_is_counted() -> None:
    """After its restarts are used up it has failed, and is in no summary of JCT."""
    settings = Settings(task_mtbf_s=20.0)
    found = run(jobs((0.0, 4_000.0, 8)), ONE_HOST, settings=settings, seed=4)
    assert found.job("0")["state"] == "FAILED"
    assert found.result.summary["failed"] == 1
    assert found.result.summary["jct_s"]["mean"] is None
    assert math.isfinite(found.job("0")["lost_gpu_s"])


def test_profiles_named_in_the_design_are_there() -> None:
    """The baselines that need nothing but the queue."""
    for name in ("fifo", "fifo-skip", "easy", "sjf", "srtf", "srsf", "mast"):
        assert load_profile(name).name == name
    assert FREE.startup_s == 0.0
