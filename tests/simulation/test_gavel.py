"""Agreement with the public implementation of Gavel on its own trace (skipped without `$TOPMAST_DATA`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.build import cluster, fleet
from tests.support.simulated import run, run_timed
from topmast.model.fleet import ClusterSpec, Fleet
from topmast.policies.registry import load_profile
from topmast.sim.settings import Settings
from topmast.traces.reading import read
from topmast.traces.throughputs import read_throughputs
from topmast.traces.trace import Trace

AS_PUBLIC = {"shares.reuse": "false", "shares.recompute_s": "1920", "shares.lease": "1"}
"""What the public simulator does: GPUs idle until the round is over, fractions are computed every 1,920 s."""


def _one_host_each() -> Fleet:
    """8:16:24, and no gang finds its GPUs on different hosts: the public simulator knows none."""
    models = {"V100": 8, "P100": 16, "K80": 24}
    hosts = [
        cluster(f"lab-{model}", hosts=1, gpus=gpus, model=model).hosts[0]
        for model, gpus in models.items()
    ]
    return fleet(ClusterSpec("lab-1", tuple(hosts)))


@pytest.fixture(scope="module")
def trace(data_dir: Path) -> Trace:
    return read(data_dir / "gavel" / "max_min_fairness.trace", "gavel", host_gpus=24)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [{}, AS_PUBLIC], ids=["as it is", "as the public code"])
@pytest.mark.parametrize(
    ("profile", "public_jct_s"),
    [
        ("gavel-max-min-fairness", 14_623),
        ("gavel-max-min-fairness-agnostic", 19_989),
        ("gavel-finish-time-fairness", 15_010),
        ("gavel-finish-time-fairness-agnostic", 19_598),
        ("gavel-fifo", 19_527),
    ],
)
def test_mean_jct_is_that_of_the_public_code(
    profile: str, public_jct_s: float, options: dict[str, str], trace: Trace
) -> None:
    """Within 10%; `gavel-fifo` is better by more where it does not leave GPUs idle until the round ends."""
    summary = run(trace, _one_host_each(), load_profile(profile, options)).result.summary
    mean_s = summary["jct_s"]["mean"]
    assert summary["finished"] == 96
    assert summary["rounds"]["failures"] == 0
    if profile == "gavel-fifo" and not options:
        assert mean_s < public_jct_s
    else:
        assert mean_s == pytest.approx(public_jct_s, rel=0.1)


@pytest.mark.slow
def test_the_baseline_that_gavel_calls_gandiva(trace: Trace, data_dir: Path) -> None:
    """Random pairs in rounds, with the public table of what jobs do together: within 10%."""
    table = read_throughputs(data_dir / "gavel" / "simulation_throughputs.json")
    profile = load_profile("gandiva-as-published")
    summary = run_timed(trace, _one_host_each(), profile, table).result.summary
    assert summary["finished"] == 96
    assert summary["jct_s"]["mean"] == pytest.approx(17_379, rel=0.1)
    assert summary["makespan_s"] == pytest.approx(67_405, rel=0.1)


@pytest.mark.slow
def test_stopping_costs_what_it_costs_and_a_lease_spares_it(trace: Trace) -> None:
    """Start-up, checkpoint and restore are charged to every turn; so fewer changes are better."""

    def jct_s(lease: str, settings: Settings) -> tuple[float, int]:
        profile = load_profile("gavel-max-min-fairness", {"shares.lease": lease})
        summary = run(trace, _one_host_each(), profile, settings).result.summary
        return summary["jct_s"]["mean"], summary["preemptions"]

    free = Settings().without_overheads()
    (quick_s, many), (charged_s, _) = jct_s("1", free), jct_s("1", Settings())
    leased_s, few = jct_s("2", Settings())
    assert charged_s > 1.05 * quick_s
    assert leased_s < charged_s
    assert few < many / 2
