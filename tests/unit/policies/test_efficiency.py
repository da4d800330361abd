"""Reserve and pack: which models a job of which kind is tried on first, and which are kept from it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.build import ask, job
from topmast.model.job import Accelerator, Resources
from topmast.policies.efficiency import Efficiency
from topmast.policies.options import Profile, ReserveOptions, ScoreWeights

OPTIONS = ReserveOptions(
    models=("V100",), power={"T4": 0.5, "MISC": 0.25}, least_gpus=4.0, patience_s=600.0, price=2.0
)
POLICY = Efficiency(Profile("test", score=ScoreWeights(speed=7.0), reserve=OPTIONS))


@dataclass
class Case:
    """A job: what it accepts, with which speeds, on how many GPUs."""

    story: str
    models: str
    speeds: tuple[float, ...]
    gpus: int
    want_efficiencies: tuple[float, ...]
    want_held_back: tuple[int, ...]


CASES = [
    Case("a small job is as fast anywhere: the weakest GPU is used best", "V100 T4 MISC",
         (1, 1, 1), 1, (0.25, 0.5, 1.0), (0,)),
    Case("a large gang uses any GPU", "V100 T4 MISC", (1, 1, 1), 4, (1.0, 1.0, 1.0), ()),
    Case("one that says it needs the power", "V100 T4", (1.0, 0.4), 1, (1.0, 0.8), ()),
    Case("one that says it does not", "V100 T4", (1.0, 0.9), 8, (1 / 1.8, 1.0), (0,)),
    Case("one that asks for nothing else gets it", "V100", (1,), 1, (1.0,), ()),
    Case("lesser models are kept from nobody", "T4 MISC", (1, 1), 1, (0.5, 1.0), ()),
]  # fmt: skip


def _listed(case: Case) -> tuple[Accelerator, ...]:
    models = case.models.split()
    return tuple(Accelerator(m, 1000, s) for m, s in zip(models, case.speeds, strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_plans_by_efficiency(case: Case) -> None:
    """Speed over power, relative to the best plan."""
    listed = _listed(case)
    assert POLICY.efficiencies(listed, case.gpus) == pytest.approx(case.want_efficiencies)
    assert POLICY.held_back(listed, case.gpus) == case.want_held_back


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_what_is_not_used_of_a_gpu_is_a_cost(case: Case) -> None:
    """The price of each model, beside the profile's own prices."""
    listed = _listed(case)
    weights = POLICY.weights(ask(job(count=case.gpus, resources=Resources(listed))))
    assert weights.speed == 7.0
    prices: dict[str | None, float] = {listed[0].model: 0.0}
    prices |= dict(weights.models)
    wanted = [2.0 * (1 - value) for value in case.want_efficiencies]
    assert [prices[a.model] for a in listed] == pytest.approx(wanted)
