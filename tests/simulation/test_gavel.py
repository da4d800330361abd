"""Agreement with the public implementation of Gavel on its own trace (skipped without `$TOPMAST_DATA`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.build import cluster, fleet
from tests.support.simulated import run, run_timed
from topmast.model.fleet import ClusterSpec, Fleet
from topmast.policies.registry import load_profile
from topmast.sim.settings import Settings
from topmast.traces.reading import read
from topmast.traces.throughputs import read_throughputs
from topmast.traces.trace import Trace

PUBLISHED = {
    "gavel-max-min-fairness": (14_623, 63_945),
    "gavel-max-min-fairness-agnostic": (19_989, 77_141),
    "gavel-max-min-fairness-packed": (14_129, 63_818),
    "gavel-finish-time-fairness": (15_010, 64_971),
    "gavel-finish-time-fairness-agnostic": (19_598, 75_534),
    "gavel-fifo": (19_527, 72_320),
    "gandiva": (17_379, 67_405),
}
"""By our name of a policy: mean JCT and makespan that the public code prints, with seed 0, in seconds."""
APART_AS_IT_IS = {"gavel-fifo"}
"""Of these the mean is better by more than 10%, as no GPU idles until a round ends."""


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


def _summary(profile: str, trace: Trace, data_dir: Path) -> dict[str, Any]:
    """All jobs end, and the solver never fails; the public table says what jobs do alone and together."""
    table = read_throughputs(data_dir / "gavel" / "simulation_throughputs.json")
    found = run_timed(trace, _one_host_each(), load_profile(profile), table).result.summary
    assert found["finished"] == 96
    assert found.get("rounds", {"failures": 0})["failures"] == 0
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("profile", PUBLISHED)
def test_as_published_a_profile_takes_as_long_as_the_public_code(
    profile: str, trace: Trace, data_dir: Path
) -> None:
    """By its name alone, without further options: mean JCT and makespan within 10%."""
    summary = _summary(f"{profile}-as-published", trace, data_dir)
    jct_s, makespan_s = PUBLISHED[profile]
    assert summary["jct_s"]["mean"] == pytest.approx(jct_s, rel=0.1)
    assert summary["makespan_s"] == pytest.approx(makespan_s, rel=0.1)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("profile", [name for name in PUBLISHED if name != "gandiva"])
def test_as_it_is_a_profile_takes_no_longer_than_the_public_code(
    profile: str, trace: Trace, data_dir: Path
) -> None:
    """Mean JCT and makespan within 10%, or less; `gandiva` is another system than its baseline (see its guide)."""
    summary = _summary(profile, trace, data_dir)
    jct_s, makespan_s = PUBLISHED[profile]
    assert summary["jct_s"]["mean"] < 1.1 * jct_s
    assert summary["makespan_s"] < 1.1 * makespan_s
    if profile not in APART_AS_IT_IS:
        assert summary["jct_s"]["mean"] > 0.9 * jct_s


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "profile",
    ["gavel-allox", "gavel-max-throughput", "gavel-min-cost", "gavel-makespan", "gavel-sjf"],
)
def test_as_published_profiles_without_a_known_figure_do_their_work(
    profile: str, trace: Trace, data_dir: Path
) -> None:
    """What the public code prints for them is not known to us: every job ends, in another time than under ours."""
    published = _summary(f"{profile}-as-published", trace, data_dir)
    own = _summary(profile, trace, data_dir)
    assert published["jct_s"]["mean"] != own["jct_s"]["mean"]


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
