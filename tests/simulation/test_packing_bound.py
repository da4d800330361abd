"""How much work could be done at most: worlds so small that one can tell."""

import pytest

from topmast.experiments.packing_bound import endless, work_rate
from topmast.traces.throughputs import Throughputs, Work
from topmast.traces.trace import texts_of, trace_of

KINDS = ("a", "b")
ALONE = {Work(kind, 1): {"V100": 10.0, "P100": 5.0} for kind in KINDS}


def table(gain: float) -> Throughputs:
    """Two kinds that do ``gain`` together, half of it each; on a P100 half of all."""
    rates = {
        model: (alone * gain / 2, alone * gain / 2) for model, alone in ALONE[Work("a", 1)].items()
    }
    pairs = {(Work(one, 1), Work(two, 1)): rates for one in KINDS for two in KINDS}
    return Throughputs("test", ALONE, {}, pairs)


def test_pairs_do_more_where_there_are_more_jobs_than_gpus() -> None:
    """400 long jobs on 92 V100, which do all they can, and 88 P100, which do half; with pairs 1.5 times that."""
    trace = trace_of(
        "test", submit_s=[0.0] * 399 + [600.0], duration_s=[1e6] * 400, gpus=[1] * 400,
        model=texts_of([KINDS[i % 2] for i in range(400)]),
    )  # fmt: skip
    alone = (92 + 88 / 2) / 180
    assert work_rate(trace, table(1.5), pairs=False) == pytest.approx(alone)
    assert work_rate(trace, table(1.5), pairs=True) == pytest.approx(1.5 * alone)
    assert work_rate(trace, table(0.9), pairs=True) == pytest.approx(alone), "nobody has to pair"


def test_no_more_can_be_done_than_there_is() -> None:
    """Two jobs on an empty fleet: one ends before the other comes, and the bound that knows no GPUs is met."""
    trace = trace_of(
        "test", submit_s=[0.0, 1_200.0], duration_s=[600.0, 600.0], gpus=[2, 1],
        model=texts_of(["a", "b"]),
    )  # fmt: skip
    assert endless(trace, table(1.5)) == pytest.approx(1_200 / (1_200 * 180))
    assert work_rate(trace, table(1.5), pairs=True) == pytest.approx(endless(trace, table(1.5)))
