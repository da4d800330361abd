"""What kinds of hosts offer beside each GPU, what jobs ask for beside it, and which GPUs that
leaves stranded.

*MLaaS in the Wild* (Weng et al., NSDI '22, on CPUs as the bottleneck) found that on many machines
CPUs run out, not GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from topmast.model.fleet import Fleet
from topmast.model.units import gb_of_bytes
from topmast.traces.trace import Floats, Trace

Kind = tuple[str, int, float, int]
"""GPU model, GPUs, CPUs, bytes of memory."""


def capacity(trace: Trace, fleet: Fleet) -> list[dict[str, Any]]:
    """A row for each kind of hosts with GPUs, the most GPUs first. O(hosts + jobs x models).

    What jobs ask for is weighed by GPU time; one that accepts several models counts for each as
    the fleet has GPUs of it. ``stranded_gpus``: how many GPUs have no CPUs or memory left when
    jobs in that mixture fill the hosts; amounts that do not limit are null.
    """
    hosts: dict[Kind, int] = {}
    for host in (h for r in fleet.regions for c in r.clusters for h in c.hosts if h.gpus):
        kind = (host.model, host.gpus, host.cpus, host.memory_bytes)
        hosts[kind] = hosts.get(kind, 0) + 1
    asked = _asked(trace, fleet.gpus())
    ordered = sorted(hosts, key=lambda kind: (-hosts[kind] * kind[1], kind))
    return [_row(kind, hosts[kind], asked.get(kind[0])) for kind in ordered]


def _row(kind: Kind, count: int, asked: Floats | None) -> dict[str, Any]:
    model, gpus, cpus, memory_bytes = kind
    gpu_s, cpu_s, memory_s = (0.0, 0.0, 0.0) if asked is None else asked.tolist()
    offered = (cpus / gpus or None, gb_of_bytes(memory_bytes) / gpus or None)
    requested = (cpu_s / gpu_s, memory_s / gpu_s) if gpu_s else (0.0, 0.0)
    served = [o / r for o, r in zip(offered, requested, strict=True) if o is not None and r > 0]
    usable = min([1.0, *served])
    return {
        "gpu_model": model,
        "hosts": count,
        "gpus_per_host": gpus,
        "gpus": count * gpus,
        "cpus_per_gpu": {"offered": offered[0], "requested": requested[0]},
        "memory_gb_per_gpu": {"offered": offered[1], "requested": requested[1]},
        "gpu_hours": gpu_s / 3600,
        "stranded_gpus": count * gpus * (1.0 - usable),
    }


def _asked(trace: Trace, gpus: Mapping[str, int]) -> dict[str, Floats]:
    """By model the GPU-seconds that jobs ask of it, and the CPU- and GB-seconds beside them (3)."""
    time_s = trace.tasks * trace.duration_s * (trace.gpus > 0)
    each = np.stack([time_s * trace.gpus, time_s * trace.cpus, time_s * trace.memory_gb])
    found: dict[str, Floats] = {}
    for code, name in enumerate(trace.gpu_models.names):
        totals = each[:, trace.gpu_models.codes == code].sum(axis=1)
        accepted = [m for m in (name.split("|") if name else gpus) if m in gpus]
        there = sum(gpus[m] for m in accepted)
        for model in accepted:
            part = totals * (gpus[model] / there)
            found[model] = found[model] + part if model in found else part
    return found
