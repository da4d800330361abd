"""`gavel-like`: training jobs that gain unequally from faster GPUs, as in Gavel's experiments.

Narayanan et al., *Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads*
(OSDI '20), the evaluation: 26 job types, Poisson arrivals, durations from half an hour to a week.
Speeds are those of the published table (stanford-futuredata/gavel, `simulation_throughputs.json`,
MIT), measured on one GPU and taken for gangs as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from topmast.traces.generate.draws import by_counts, even, values_by_counts
from topmast.traces.trace import Floats, Trace, texts_of, trace_of

SPEEDS = {
    "A3C": (0.792, 0.479),
    "CycleGAN": (0.543, 0.114),
    "LM (batch size 10)": (0.944, 0.291),
    "LM (batch size 20)": (0.899, 0.265),
    "LM (batch size 40)": (0.791, 0.254),
    "LM (batch size 5)": (0.832, 0.233),
    "LM (batch size 80)": (0.749, 0.214),
    "Recommendation (batch size 1024)": (2.315, 1.509),
    "Recommendation (batch size 2048)": (2.222, 1.398),
    "Recommendation (batch size 4096)": (2.278, 1.357),
    "Recommendation (batch size 512)": (2.096, 1.409),
    "Recommendation (batch size 8192)": (1.953, 0.95),
    "ResNet-18 (batch size 128)": (0.649, 0.1),
    "ResNet-18 (batch size 16)": (1.109, 0.148),
    "ResNet-18 (batch size 256)": (0.75, 0.086),
    "ResNet-18 (batch size 32)": (1.196, 0.24),
    "ResNet-18 (batch size 64)": (0.926, 0.293),
    "ResNet-50 (batch size 128)": (0.635, 0.139),
    "ResNet-50 (batch size 16)": (0.794, 0.202),
    "ResNet-50 (batch size 32)": (0.628, 0.159),
    "ResNet-50 (batch size 64)": (0.596, 0.141),
    "Transformer (batch size 128)": (0.564, 0.18),
    "Transformer (batch size 16)": (0.862, 0.494),
    "Transformer (batch size 256)": (1.052, 0.287),
    "Transformer (batch size 32)": (0.741, 0.33),
    "Transformer (batch size 64)": (0.591, 0.203),
}
"""Steps per second on P100 and K80 over those on V100."""
GPUS = {1: 70, 2: 10, 4: 15, 8: 5}
"""Jobs by number of GPUs, in percent."""
MINUTES = ((80, 1.5, 3.0), (20, 3.0, 4.0))
"""Durations on V100: percent of jobs, and the powers of ten between which they are drawn evenly."""
GAP_S = 2_150.0
HOSTS = 4
MODELS = ("V100", "P100", "K80")


def generate(jobs: int, rng: Generator) -> tuple[Trace, dict[str, Any]]:
    """A trace of ``jobs`` jobs, and a fleet with as many GPUs of each model. O(n log n)."""
    names = list(SPEEDS)
    chosen = by_counts([1.0] * len(names), even(jobs, rng)).tolist()
    ratios = {name: f"1|{p100!r}|{k80!r}" for name, (p100, k80) in SPEEDS.items()}
    gaps_s = rng.exponential(GAP_S, jobs)
    trace = trace_of(
        "gavel-like",
        job_id=[f"gavel-{i}" for i in range(jobs)],
        submit_s=np.round(np.cumsum(gaps_s) - gaps_s[0], 3),
        duration_s=_durations_s(jobs, rng),
        gpus=values_by_counts(GPUS, even(jobs, rng)),
        model=texts_of(names[at] for at in chosen),
        gpu_models=texts_of("|".join(MODELS) for _ in chosen),
        speeds=texts_of(ratios[names[at]] for at in chosen),
    )
    return trace, fleet()


def _durations_s(jobs: int, rng: Generator) -> Floats:
    """Log-uniform within each part."""
    part = by_counts([percent for percent, _, _ in MINUTES], even(jobs, rng))
    low = np.array([low for _, low, _ in MINUTES])[part]
    high = np.array([high for _, _, high in MINUTES])[part]
    power = low + (high - low) * even(jobs, rng)
    return np.asarray(np.round(60.0 * 10.0**power, 3))


def fleet() -> dict[str, Any]:
    """Hosts of eight GPUs, as many of each model."""
    hosts = [{"count": HOSTS, "gpu": model, "gpus": 8} for model in MODELS]
    return {"regions": {"lab": {"clusters": {"lab-1": {"hosts": hosts}}}}}
