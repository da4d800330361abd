"""A policy of one's own, tried in the simulator: the job of the fewest GPUs goes first.

Run it: `python examples/smallest_first.py`, or with a trace of Muri's: `python examples/smallest_first.py trace3.csv`.
The guide "Adding a policy" goes through it line by line.
"""

import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from topmast.model.files.fleetfile import parse_fleet
from topmast.policies.base import Floats, QueueView
from topmast.policies.options import Profile
from topmast.policies.registry import ORDERS, load_profile
from topmast.sim.recorder import Tables
from topmast.sim.settings import Settings
from topmast.sim.simulation import Simulation
from topmast.traces.reading import read
from topmast.traces.trace import Trace, trace_of

GPUS = 64
FLEET = {
    "regions": {"r": {"clusters": {"c": {"hosts": [{"count": 1, "gpu": "GPU", "gpus": GPUS}]}}}}
}


class SmallestFirst:
    """By the GPUs of the whole gang; those of a size by submission."""

    source: ClassVar[str] = "the public simulator of Tiresias, where it is called sjf"
    options: ClassVar[tuple[str, ...]] = ()
    by_band = False
    by_time = False

    def __init__(self, profile: Profile) -> None:
        pass

    def keys(self, view: QueueView) -> Floats:
        """The GPUs (n x 1)."""
        return view.gpus[:, None]


def made_up(jobs: int) -> Trace:
    """Jobs of 1 to 32 GPUs, some short and some long, one every ten minutes."""
    rng = np.random.default_rng(1)
    return trace_of(
        "made up",
        submit_s=np.arange(jobs) * 600.0,
        duration_s=rng.lognormal(8.0, 1.5, jobs),
        gpus=rng.choice((1.0, 2.0, 8.0, 32.0), jobs),
    )


def mean_jct_s(trace: Trace, order: str) -> float:
    """Simulate on one host, without overheads, passing over what does not fit."""
    profile = load_profile("fifo-skip", {"order": order})
    settings = Settings().without_overheads()
    simulation = Simulation(trace, parse_fleet(FLEET), profile, settings, Tables(*[_ignore] * 4))
    simulation.run()
    return float(simulation.finish().summary["jct_s"]["mean"])


def _ignore(row: Any) -> None:
    """Rows of tables, which nobody wants here."""


def main(path: str | None = None) -> None:
    """Compare three orders on a trace, or on jobs made up."""
    trace = made_up(400) if path is None else read(Path(path), "muri", host_gpus=GPUS)
    ORDERS["smallest"] = SmallestFirst
    for order in ("submission", "smallest", "shortest"):
        print(f"{order:<12} {mean_jct_s(trace, order):>12,.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:2])
