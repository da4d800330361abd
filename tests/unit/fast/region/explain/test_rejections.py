"""Why a region has no place: rejections by host, and whether it ever could have one."""

from dataclasses import dataclass, field

import pytest

from tests.support.build import ask, cluster, gang, job, needs, profile
from topmast.fast.region.explain.rejections import Verdicts, pending_reason
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import JobSpec, Level, Topology
from topmast.model.plan import PlacementRequest, Plan, Seat
from topmast.model.reason import ClusterVerdict, PendingReason, Rejection
from topmast.model.states import HostState

HOSTS = (
    HostSpec("a", "H100", 8, cpus=64.0, memory_bytes=1_000, rack="r0"),
    HostSpec("b", "H100", 8, cpus=64.0, memory_bytes=1_000, rack="r1"),
    HostSpec("c", "A100", 8, cpus=64.0, memory_bytes=1_000, rack="r1"),
)


def _columns(used: dict[str, Seat], states: dict[str, HostState]) -> Columns:
    columns = Columns(RegionSpec("east", (ClusterSpec("c-1", HOSTS),)))
    for seat in used.values():
        columns.take([seat], {"g": needs(cpus=60, memory=900)})
    for host, state in states.items():
        columns.set_state(host, state)
    return columns


def verdict(columns: Columns, question: PlacementRequest, found: Plan | None) -> ClusterVerdict:
    """What there is to say of cluster c-1."""
    search = PreemptiveSearch("east", columns, {}, profile(), 0, 0.0)
    return Verdicts(search, question, preempt=True).of("c-1", found)


@dataclass
class Rejected:
    """A job on two H100 hosts and one A100 host, some in use; every host's reason, counted."""

    story: str
    spec: JobSpec
    want: dict[Rejection, int]
    want_ever: bool = True
    used: dict[str, Seat] = field(default_factory=dict)
    states: dict[str, HostState] = field(default_factory=dict)
    avoid_hosts: tuple[str, ...] = ()
    models: tuple[int, ...] | None = None


def _slots(host: str, count: int) -> Seat:
    return Seat("g", 0, host, tuple(range(count)))


BOTH_FULL = {"a": _slots("a", 8), "b": _slots("b", 8)}
R = Rejection

REJECTED = [
    Rejected("it fits", job(gpus=8), {R.NO_MATCHING_HARDWARE: 1}),
    Rejected("no such model", job(model="TPU"), {R.NO_MATCHING_HARDWARE: 3}, want_ever=False),
    Rejected("no host is so large", job(gpus=9), {R.NO_MATCHING_HARDWARE: 3}, want_ever=False),
    Rejected(
        "GPUs are in use", job(gpus=8), {R.TOO_FEW_GPUS: 2, R.NO_MATCHING_HARDWARE: 1},
        used=BOTH_FULL,
    ),
    Rejected(
        "a share needs a GPU with room for it", job(gpus=0.5),
        {R.TOO_FEW_GPUS: 2, R.NO_MATCHING_HARDWARE: 1}, used=BOTH_FULL,
    ),
    Rejected(
        "CPUs are in use", job(resources=needs(1, cpus=8)),
        {R.TOO_FEW_CPUS: 2, R.NO_MATCHING_HARDWARE: 1},
        used={"a": _slots("a", 1), "b": _slots("b", 1)},
    ),
    Rejected(
        "memory is in use", job(resources=needs(1, memory=200)),
        {R.TOO_LITTLE_MEMORY: 2, R.NO_MATCHING_HARDWARE: 1},
        used={"a": _slots("a", 1), "b": _slots("b", 1)},
    ),
    Rejected(
        "its quota allows only one of the models", job(resources=needs(8, "A100", "H100")),
        {R.QUOTA: 2, R.TOO_FEW_GPUS: 1}, used={"c": _slots("c", 1)}, models=(0,),
    ),
    Rejected(
        "hosts are out of service", job(gpus=8),
        {R.HOST_UNAVAILABLE: 2, R.NO_MATCHING_HARDWARE: 1},
        states={"a": HostState.DOWN, "b": HostState.CORDONED},
    ),
    Rejected(
        "hosts are avoided", job(gpus=8), {R.HOST_AVOIDED: 2, R.NO_MATCHING_HARDWARE: 1},
        avoid_hosts=("a", "b"),
    ),
    Rejected(
        "each for its own reason", job(gpus=8),
        {R.TOO_FEW_GPUS: 1, R.HOST_UNAVAILABLE: 1, R.NO_MATCHING_HARDWARE: 1},
        used={"a": _slots("a", 1)}, states={"b": HostState.DOWN},
    ),
    Rejected(
        "what is free lies in two racks",
        job(gpus=4, count=4, resources=needs(4, None), topology=Topology(required=Level.HOST)),
        {R.TOPOLOGY: 3}, want_ever=False,
    ),
    Rejected(
        "each host takes a task, all together not enough", job(resources=needs(4, None), count=7),
        {R.TOPOLOGY: 3}, want_ever=False,
    ),
    Rejected(
        "it would be enough if all were free", job(resources=needs(4, None), count=6),
        {R.TOGETHER: 3}, used={"a": _slots("a", 1)},
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.story)
def test_every_rejection_is_counted_with_its_reason(case: Rejected) -> None:
    """One reason for each host that takes no task; the reasons add up to hosts."""
    columns = _columns(case.used, case.states)
    question = ask(case.spec, avoid_hosts=case.avoid_hosts, models=case.models)
    search = PreemptiveSearch("east", columns, {}, profile(), 0, 0.0)
    found = search.best(question)
    told = verdict(columns, question, found)
    assert {count.reason: count.count for count in told.rejections} == case.want
    assert told.ever is case.want_ever
    assert (told.score is None) == (found is None)


def test_each_host_has_its_reason() -> None:
    """Its own; or that of the cluster, where it is ruled out as a whole."""
    columns = _columns({"a": _slots("a", 1)}, {"b": HostState.DOWN})
    search = PreemptiveSearch("east", columns, {}, profile(), 0, 0.0)
    verdicts = Verdicts(search, ask(job(gpus=8)), preempt=True)
    want = {"a": R.TOO_FEW_GPUS, "b": R.HOST_UNAVAILABLE, "c": R.NO_MATCHING_HARDWARE}
    assert verdicts.rejected("c-1", None) == want
    assert verdicts.rejected("c-1", None, R.RESIDENCY) == dict.fromkeys("abc", R.RESIDENCY)


def test_a_verdict_counts_what_is_there_and_what_is_free() -> None:
    """GPUs of hosts that take no work are there, and not free."""
    columns = _columns({"a": _slots("a", 3)}, {"b": HostState.DOWN})
    search = PreemptiveSearch("east", columns, {}, profile(), 0, 0.0)
    question = ask(job())
    told = verdict(columns, question, search.best(question))
    assert isinstance(told, ClusterVerdict)
    assert (told.free_gpus, told.total_gpus) == (13.0, 24.0)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (job(gpus=8), 16.0),
        (job(gpus=3), 12.0),
        (job(gpus=8, topology=Topology(required=Level.RACK)), 8.0),
        (job(gpus=8, model=None), 24.0),
        (job(gpus=8, model=None, topology=Topology(required=Level.RACK)), 16.0),
        (job(model="TPU"), 0.0),
        (job(resources=needs(1, cpus=16)), 8.0),
    ],
)
def test_the_largest_gang_that_would_fit(spec: JobSpec, want: float) -> None:
    """What people should ask for instead: whole GPUs in one domain of the level required."""
    assert verdict(_columns({}, {}), ask(spec), None).largest_gpus == want


@pytest.mark.parametrize(
    ("story", "spec", "want"),
    [
        ("busy, but possible", job(gpus=8, count=2), PendingReason.INSUFFICIENT_CAPACITY),
        ("too many for the cluster", job(gpus=8, count=3), PendingReason.TOPOLOGY_DOES_NOT_FIT),
        ("nobody has it", job(model="TPU"), PendingReason.NO_MATCHING_HARDWARE),
        (
            "one group has no hardware",
            gang({"trainer": (1, needs(8)), "reader": (1, needs(cpus=65))}),
            PendingReason.NO_MATCHING_HARDWARE,
        ),
    ],
)
def test_why_no_plan_exists(story: str, spec: JobSpec, want: PendingReason) -> None:
    """Hardware that is not there, a shape that never fits, or a fleet that is busy."""
    assert pending_reason(_columns(BOTH_FULL, {}), ask(spec)) is want


def test_what_is_down_now_would_fit_when_it_is_up() -> None:
    """An outage is not a lack of hardware."""
    columns = _columns({}, {"a": HostState.DOWN, "b": HostState.DOWN})
    assert verdict(columns, ask(job(gpus=8)), None).ever
    assert pending_reason(columns, ask(job(gpus=8))) is PendingReason.INSUFFICIENT_CAPACITY


def test_a_cluster_without_hosts_fits_nothing() -> None:
    """And nobody divides by their number."""
    columns = Columns(RegionSpec("east", (cluster("c-1", hosts=0), cluster("c-2"))))
    question = ask(job())
    search = PreemptiveSearch("east", columns, {}, profile(), 0, 0.0)
    told = verdict(columns, question, None)
    assert (told.ever, told.total_gpus, told.largest_gpus) == (False, 0.0, 0.0)
    assert search.best(question) is not None
