"""The table of phases: which requests a job makes, one after the other, and where that ends."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.build import cluster, dataset, elastic, fleet, job, profile, tenant
from tests.support.world import World
from topmast.fast.fleet_placer import FleetPlacer
from topmast.fast.queue.cycle.auction import Phase
from topmast.fast.queue.cycle.pipeline import PIPELINE, STEPS
from topmast.model import messages as m
from topmast.model.decided import Rule
from topmast.model.job import Band, JobSpec
from topmast.model.plan import Mode
from topmast.policies.options import ElasticOptions, Preemption
from topmast.service.explain import explain_spec

BOTH = ElasticOptions(grow=True, shrink=True, settle_s=0.0)
MOVES = {"defragment": True, "defragment_after_s": 50.0, "defragment_gain": 0.1}
GANG = job("gang", gpus=8)


class Asked(World):
    """Notes the mode of each request, of one job."""

    def __init__(self, *clusters: Any, **options: Any) -> None:
        data = (dataset("d", "west", size_bytes=10**9),)
        super().__init__(
            fleet(*clusters, tenants=(tenant("a", H100=99),), datasets=data), profile(**options)
        )
        self.modes: list[tuple[str, Mode]] = []
        handlers = {**FleetPlacer.handlers}

        def note(fleet_placer: FleetPlacer, event: m.RequestFleetBids) -> None:
            self.modes.append((event.ask.job, event.ask.mode))
            FleetPlacer.handlers[m.RequestFleetBids](fleet_placer, event)

        handlers[m.RequestFleetBids] = note
        self.machines.fleet_placer.handlers = handlers  # type: ignore[misc]

    def modes_of(self, name: str) -> list[str]:
        """The modes of the requests for a job."""
        return [type(mode).__name__ for job, mode in self.modes if job == name]


@dataclass
class Way:
    """A fleet with running jobs, one that comes, what is asked for it, and the rule that decides."""

    story: str
    want: list[str]
    rule: Rule | None = None
    before: tuple[JobSpec, ...] = ()
    over: tuple[str, ...] = ()
    spec: JobSpec = GANG
    clusters: tuple[Any, ...] = (cluster("east-1", hosts=2),)
    options: dict[str, Any] = field(default_factory=dict)
    wait_s: float = 0.0


_low = job("low", gpus=8, band=Band.LOW)
_stays = job("stays", gpus=8, preemptible=False)
_mover = job("mover", gpus=4)
_filler = job("filler", gpus=4, preemptible=False)
_holes: dict[str, Any] = {"before": (_mover, _filler, _mover, _filler), "over": ("j2", "j4")}
_wide = elastic(job("wide", count=16, gpus=1), 2, 16)
_reads = job("reads", gpus=8, datasets=("d",))
_far = (cluster("east-1", hosts=1), cluster("west-1", hosts=1))

WAYS = [
    Way("there is room", ["Free"], Rule.LOWEST_SCORE),
    Way("there is none, and no job may be stopped", ["Free"], None, (_stays, _stays),
        options={"preemption": Preemption.NONE}),
    Way("jobs of its own band run", ["Free", "Preempt"], None, (_stays, _stays)),
    Way("a job of a lower band is stopped", ["Free", "Preempt"], Rule.STOPS_JOBS, (_stays, _low)),
    Way("a low job may stop none", ["Free"], None, (_low, _low),
        spec=job("over", gpus=8, band=Band.OPPORTUNISTIC)),
    Way("a job moves, where none may be stopped", ["Free", "Move"], Rule.MOVES_JOBS, **_holes,
        options={**MOVES, "preemption": Preemption.NONE}, wait_s=50.0),
    Way("moves wait for what preemption would cost", ["Free", "Move", "Preempt"],
        Rule.MOVES_JOBS, **_holes, options=MOVES, wait_s=50.0),
    Way("an elastic job gives tasks away", ["Free", "Shrink"], Rule.SHRINKS_JOBS, (_wide,),
        options={"elastic": BOTH}),
    Way("its data is there", ["Free"], Rule.LOWEST_SCORE, spec=_reads, clusters=_far),
    Way("room is away from its data, and a copy costs less than to stop a job near it",
        ["Free", "Free", "Preempt"], None, (job("l", gpus=8, band=Band.LOW,
        datasets=("d",)),), spec=_reads, clusters=_far),
    Way("room is away from its data, and copies are free",
        ["Free"], None, (job("s", gpus=8, datasets=("d",)),), spec=_reads, clusters=_far,
        options={"copy_patience": 0.0, "preemption": Preemption.NONE}),
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.story)
def test_a_job_makes_these_requests(way: Way) -> None:
    """Phase after phase until one decides; explain, which runs the same table, tells the same end."""
    world = Asked(*way.clusters, **way.options)
    for spec in way.before:
        world.submit(spec)
    world.advance(60.0)
    for name in way.over:
        world.finish(name)
    told = explain_spec(world.queue, world.machines.placers, way.spec, world.now)
    (name,) = world.submit(way.spec)
    if way.wait_s:
        world.modes.clear()
        world.advance(way.wait_s)
    record = world.jobs[name]
    assert world.modes_of(name) == way.want
    assert (record.decided.rule if record.decided else None) == way.rule
    if not way.wait_s:
        assert (told.decided.rule if told.decided else None) == way.rule


def test_no_phase_is_missing_and_the_last_always_applies() -> None:
    """Each phase has one row; those that ask nothing come last."""
    assert set(STEPS) == set(Phase)
    assert len(PIPELINE) == len(Phase)
    asks = [step.request is not None for step in PIPELINE]
    assert asks == sorted(asks, reverse=True)
    assert [step.accept is not None for step in PIPELINE] == asks
    assert PIPELINE[-1].phase is Phase.RESERVE
