"""A site's prolog, which runs on each host before anything of a part does."""

from pathlib import Path

import pytest

from tests.contract.engines import HOSTS, Rig, opened, order, site_of
from tests.support.slurmlab import missing, slurm_cluster
from topmast.adapters.engines.far.slurm import SlurmEngine, SlurmOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.messages import TaskExited, TaskPreparing

PROLOG_S = 70.0
"""More than ``MessageTimeout``, after which a step fails on a host whose prolog still runs."""


@pytest.mark.slow
def test_a_gang_waits_for_the_prolog_of_its_slowest_host(tmp_path: Path) -> None:
    """The batch script begins on the first host, whose prolog is quick, and waits for the other."""
    if reason := missing():
        pytest.skip(reason)
    (prolog := tmp_path / "prolog").write_text(
        f"#!/bin/sh\n[ $SLURMD_NODENAME = h0 ] || sleep {PROLOG_S:g}\n"
    )
    prolog.chmod(0o755)
    parameters = (
        "SchedulerParameters=batch_sched_delay=1",
        "PrologFlags=Alloc",
        f"Prolog={prolog}",
    )
    with slurm_cluster("h", nodes=len(HOSTS), parameters=parameters) as lab:

        def make(rig: Rig) -> SlurmEngine:
            hosts = tuple(HostSpec(name, "h100", 8) for name in HOSTS)
            options = SlurmOptions(conf=str(lab.conf), poll_s=0.5)
            return SlurmEngine(
                ClusterSpec("east-1", hosts, "slurm"), rig.folder / "engine", site_of(rig), options
            )

        with opened(make, tmp_path) as rig:
            rig.engine.start_gang(order("j1", "echo ran", tasks=2))
            lab.until(lambda: rig.news.all(TaskExited, job="j1", code=0), "no start", 2 * PROLOG_S)
            assert [rig.end_of("j1", rank).code for rank in range(2)] == [0, 0]
            assert "Prolog" in [one.why for one in rig.news.all(TaskPreparing, job="j1")]
            assert [row[2] for row in lab.jobs()] == ["COMPLETED"], "one submission"
