"""Hypothesis strategies: small random fleets, jobs and histories."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.support.build import cluster, dataset, fleet, gang, job, needs, tenant
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, TenantSpec
from topmast.model.job import Accelerator, Band, Checkpoint, JobSpec, Level, Resources, Topology

MODELS = ("H100", "A100")
levels = st.none() | st.sampled_from(list(Level))
topologies = st.builds(Topology, levels, levels)
bands = st.sampled_from(list(Band))


MORE = int(os.environ.get("TOPMAST_MORE_EXAMPLES", "1"))
"""So many times as many examples; then other ones in each run."""


def bounded(examples: int) -> settings:
    """So many examples, the same ones every time, however slow the machine."""
    return settings(
        max_examples=examples * MORE,
        deadline=None,
        derandomize=MORE == 1,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def hosts(draw: st.DrawFn, name: str) -> HostSpec:
    """A host with a few GPUs, somewhere in two datacenters of two pods of two racks."""
    return HostSpec(
        name,
        draw(st.sampled_from(MODELS)),
        draw(st.integers(0, 4)),
        cpus=draw(st.sampled_from([0.0, 4.0, 8.0])),
        datacenter=draw(st.sampled_from(["d0", "d1"])),
        pod=draw(st.sampled_from(["p0", "p1"])),
        rack=draw(st.sampled_from(["r0", "r1"])),
    )


@st.composite
def clusters(draw: st.DrawFn, name: str, most_hosts: int = 5) -> ClusterSpec:
    """A cluster of different hosts."""
    count = draw(st.integers(1, most_hosts))
    return ClusterSpec(name, tuple(draw(hosts(f"{name}-{i}")) for i in range(count)))


@st.composite
def small_fleets(draw: st.DrawFn) -> Fleet:
    """One or two regions, two tenants, two datasets."""
    names = draw(st.sampled_from([("east-1",), ("east-1", "west-1"), ("east-1", "east-2")]))
    regions = sorted({name.split("-")[0] for name in names})
    tenants = (
        draw(st.sampled_from([TenantSpec("a"), tenant("a", H100=4, A100=2)])),
        draw(st.sampled_from([TenantSpec("b"), tenant("b", borrow=2, H100=2, A100=2)])),
    )
    datasets = (dataset("here", "east"), dataset("both", *regions))
    return fleet(
        *(draw(clusters(name)) for name in names),
        cluster("east-9", hosts=1, gpus=2),
        tenants=tenants,
        datasets=datasets,
    )


@st.composite
def resources(draw: st.DrawFn, *, whole: bool = False) -> Resources:
    """What a task might ask for."""
    gpus = draw(st.integers(1, 3) if whole else st.sampled_from([0, 0.3, 0.5, 1, 2, 3]))
    listed = draw(st.permutations(MODELS))[: draw(st.integers(1, 2))]
    speeds = draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=2, max_size=2))
    cpus = draw(st.sampled_from([0.0, 0.1, 1.0, 3.0]))
    accelerators = tuple(
        Accelerator(model, round(gpus * 1000), speed)
        for model, speed in zip(listed, speeds, strict=False)
    )
    return Resources(accelerators if gpus else (), cpus)


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    """Any job that a file could ask for."""
    common: dict[str, Any] = {
        "tenant": draw(st.sampled_from("ab")),
        "band": draw(bands),
        "preemptible": draw(st.booleans()),
        "topology": draw(topologies),
        "datasets": draw(st.sampled_from([(), (), ("here",), ("both",)])),
        "checkpoint": Checkpoint(grace_s=5.0),
        "time_limit_s": draw(st.sampled_from([None, 50.0])),
        "max_restarts": draw(st.integers(0, 2)),
    }
    if draw(st.integers(0, 4)) == 0:
        groups = {
            "trainer": (draw(st.integers(1, 2)), draw(resources())),
            "reader": (draw(st.integers(1, 3)), needs(cpus=1)),
        }
        return gang(groups, **common)
    return job(count=draw(st.integers(1, 3)), resources=draw(resources()), **common)
