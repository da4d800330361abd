"""The memory of GPUs in shares: what a task asks for is there, whoever else sits on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.build import cluster, fleet, job
from tests.support.strategies import bounded
from tests.support.world import World
from topmast.fast.queue.tenancy.entitlements import with_memory
from topmast.model.job import MILLI, Accelerator, Resources
from topmast.model.reason import PendingReason

GB = 2**30
FLEET = fleet(
    cluster("east-1", hosts=1, gpus=2, model="T4", gpu_memory_bytes=16 * GB),
    cluster("west-1", hosts=1, gpus=1, model="V100", gpu_memory_bytes=32 * GB),
    cluster("north-1", hosts=1, gpus=1, model="old"),
)


def _share(gpus: float, memory_gb: float, *models: str | None) -> Resources:
    listed = tuple(Accelerator(model, round(gpus * MILLI)) for model in models)
    return Resources(listed, gpu_memory_bytes=round(memory_gb * GB))


@dataclass
class Case:
    """A share of a T4 (16 GB), and what is taken of one."""

    story: str
    gpus: float
    memory_gb: float
    want: Accelerator


CASES = [
    Case("less memory than its share", 0.5, 4, Accelerator("T4", 500)),
    Case("more memory than its share", 0.25, 10, Accelerator("T4", 625)),
    Case("a little more than an eighth", 0.125, 2.001, Accelerator("T4", 126)),
    Case("all of it", 0.1, 16, Accelerator("T4", 1000)),
    Case("more than there is", 0.1, 17, Accelerator("T4 with 18.3GB", 100)),
    Case("a whole GPU", 1, 10, Accelerator("T4", 1000)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_larger_of_share_and_memory_is_taken(case: Case) -> None:
    """In thousandths of a GPU, rounded up."""
    wanted = Accelerator("T4", round(case.gpus * MILLI))
    assert with_memory(wanted, round(case.memory_gb * GB), 16 * GB) == case.want
    assert with_memory(wanted, round(case.memory_gb * GB), 0) == wanted, "nothing is known"


def test_a_job_goes_where_the_memory_is() -> None:
    """20 GB are on no T4; of a V100 they take 0.625, beside which half a GPU has no room."""
    world = World(FLEET)
    world.submit(job("a", resources=_share(0.1, 20, "T4", "V100")))
    world.submit(job("b", resources=_share(0.5, 1, "V100")))
    world.settle()
    assert world.jobs["j1"].model == "V100"
    assert world.jobs["j1"].gpus_milli == 625
    assert world.reason("j2") == PendingReason.INSUFFICIENT_CAPACITY


def test_more_memory_than_any_gpu_has_is_no_hardware() -> None:
    """The reason says so, and nobody waits for quota."""
    world = World(FLEET)
    world.submit(job("a", resources=_share(0.1, 64, "T4", "V100")))
    world.settle()
    assert world.reason("j1") == PendingReason.NO_MATCHING_HARDWARE


asked = st.tuples(
    st.sampled_from([0.1, 0.25, 0.3, 0.5, 1.0]),
    st.sampled_from([0.0, 1.0, 5.3, 10.0, 16.0, 30.0]),
    st.sampled_from([("T4",), ("V100", "T4"), (None,)]),
)


@bounded(80)
@given(st.lists(asked, min_size=1, max_size=12))
def test_no_gpu_gives_its_memory_away_twice(
    tasks: list[tuple[float, float, tuple[str, ...]]],
) -> None:
    """On every GPU of which the memory is known, what the tasks there were promised is there."""
    world = World(FLEET)
    for number, (gpus, memory_gb, models) in enumerate(tasks):
        world.submit(job(f"n{number}", resources=_share(gpus, memory_gb, *models)))
    world.settle()
    sizes = {h.name: h.gpu_memory_bytes for r in FLEET.regions for c in r.clusters for h in c.hosts}
    promised: dict[tuple[str, int], float] = {}
    for record in world.jobs.values():
        gpus, memory_gb, _ = tasks[record.number - 1]
        for seat in record.plan.seats if record.plan else ():
            size = sizes[seat.host]
            for slot in seat.slots:
                own = max(memory_gb * GB, min(gpus, 1.0) * size)
                promised[seat.host, slot] = promised.get((seat.host, slot), 0.0) + own
    assert bool(promised) == any(record.plan for record in world.jobs.values())
    assert all(total <= sizes[host] for (host, _), total in promised.items() if sizes[host])
