"""How many GPUs stay idle on a full fleet by default: fewer than by simpler rules and published ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec import UNSET

from tests.support.build import ask, cluster, fleet, job, needs
from tests.support.fgd import idle_by_fgd
from topmast.bench import FillingOptions, run_bench
from topmast.bench.filling import drawn, filled, idle_after
from topmast.fast.queue import Mix
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.search.search import Search
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet, read_fleet
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec
from topmast.model.plan import Seat
from topmast.policies.registry import load_profile
from topmast.traces.machines import read_machines, write_fleet
from topmast.traces.reading import read
from topmast.traces.trace import Trace, trace_of

MOST_IDLE_PERCENT = 4.6


def _fleet() -> Fleet:
    """Hosts of eight GPUs with 8 CPUs for each, beside some with 16."""
    hosts = [
        {"count": 60, "name": "g", "gpu": "A", "gpus": 8, "cpus": 64, "memory": 512},
        {"count": 20, "name": "r", "gpu": "A", "gpus": 8, "cpus": 128, "memory": 768},
    ]
    return parse_fleet({"regions": {"r": {"clusters": {"c": {"hosts": hosts}}}}})


def _jobs() -> Trace:
    """Shares and whole GPUs; every third asks for more CPUs than the share of a GPU, some for no GPU at all."""
    rng = np.random.default_rng(11)
    count = 1_500
    gpus = rng.choice([0.0, 0.25, 0.5, 1.0, 2.0, 8.0], count, p=[0.1, 0.2, 0.2, 0.44, 0.05, 0.01])
    per_gpu = rng.choice([4.0, 6.0, 14.0], count, p=[0.4, 0.3, 0.3])
    cpus = np.where(gpus > 0, np.minimum(per_gpu * np.maximum(gpus, 0.25), 60.0), 6.0)
    zeros = np.zeros(count)
    return trace_of("filling", submit_s=zeros, duration_s=zeros + 60.0, gpus=gpus, cpus=cpus)


def test_a_full_fleet_has_few_idle_gpus() -> None:
    """Generated jobs that ask for 1.3 times the GPUs: fewer stay idle than by simpler rules, and than if only whole GPUs count."""
    trace, hosts = _jobs(), _fleet()
    found = filled(trace, hosts, load_profile("mast"), 1.3, range(2))
    blind = load_profile("mast", {"score.shapes": "false"})
    for seed in range(2):
        idle = found["topmast_unallocated"][seed]
        assert idle <= found["random_unallocated"][seed]
        assert idle <= found["best_fit_unallocated"][seed]
        assert idle < 100 * idle_after(drawn(trace, hosts, 1.3, seed), hosts, blind)[-1]


@pytest.mark.parametrize("cpus_per_gpu", [0.0, 6.0])
@pytest.mark.parametrize("asked", [0.9, 1.3])
def test_whole_gpus_alone_leave_no_more_idle_than_best_fit(
    asked: float, cpus_per_gpu: float
) -> None:
    """Tasks of whole GPUs, with CPUs of which there are enough or none: in no order stay more GPUs idle than by best fit."""
    hosts = fleet(cluster("r-1", hosts=40, gpus=8, cpus=64.0))
    for seed in range(6):
        rng = np.random.default_rng((seed, 0x3713))
        gpus = rng.choice([1.0, 2.0, 3.0, 4.0, 5.0, 8.0], 600, p=[0.4, 0.2, 0.1, 0.15, 0.05, 0.1])
        zeros = np.zeros(600)
        trace = trace_of(
            "whole", submit_s=zeros, duration_s=zeros + 60.0, gpus=gpus, cpus=cpus_per_gpu * gpus
        )
        found = filled(trace, hosts, load_profile("mast"), asked, range(seed, seed + 1))
        assert found["topmast_unallocated"] <= found["best_fit_unallocated"]


@pytest.mark.parametrize("sizes", [(1,), (1, 2), (1, 4, 8), (8,), (2, 3, 5)])
def test_a_task_of_whole_gpus_alone_goes_to_the_tightest_host(sizes: tuple[int, ...]) -> None:
    """Whatever sizes were seen lately: one of two free rather than one of seven."""
    for free in ((7, 2), (2, 7), (8, 1, 5), (3, 8, 4), (1, 2, 3, 4, 5, 6, 7, 8)):
        hosts = tuple(HostSpec(f"h{n}", "H100", 8) for n in range(len(free)))
        world = fleet(ClusterSpec("r-1", hosts))
        columns, mix = Columns(world.regions[0]), Mix(gpus=world.gpus())
        for host, left in zip(hosts, free, strict=True):
            if left < 8:
                seat = Seat("main", 0, host.name, tuple(range(8 - left)))
                columns.take((seat,), {"main": needs(8 - left)})
        seen = [job(gpus=size) for size in sizes]
        for _ in range(40):
            mix.saw(seen, range(len(seen)))
        mix.settle()
        search = Search("r", columns, {}, load_profile("mast"), 0, 0.0)
        for size in range(1, max(free) + 1):
            asked = ask(job(gpus=size), mix=mix.current, shapes=mix.shapes or UNSET)
            plan = search.best(asked)
            assert plan is not None
            left = free[int(plan.seats[0].host[1:])]
            assert left == min(have for have in free if have >= size)


@pytest.mark.timeout(900)
def test_the_public_pods_leave_few_gpus_idle(data_dir: Path, tmp_path: Path) -> None:
    """The pods of Alibaba's cluster in two random orders, to 1.3 times its GPUs, with default options."""
    public, machines = data_dir / "alibaba", tmp_path / "openb.yaml"
    write_fleet(read_machines(public / "openb_node_list_gpu_node.csv", "openb-nodes"), machines)
    pods = public / "openb_pod_list_default.csv.gz"
    options = FillingOptions(trace=pods, format="openb", fleet=machines, seeds=2)
    document = run_bench("fill", filling=options)
    assert [row["seed"] for row in document["runs"]] == [0, 1]
    contract = {"unallocated_pct", "at_100_pct", "orders", "profile"}
    assert contract <= document.keys()
    assert (document["orders"], document["profile"]) == (2, "mast")
    assert document["unallocated_pct"] == document["topmast_unallocated_percent"]
    assert 0 < document["at_100_pct"] < 2 * MOST_IDLE_PERCENT
    assert all(row["topmast_unallocated"] <= MOST_IDLE_PERCENT for row in document["runs"])
    assert document["topmast_unallocated_percent"] < document["random_unallocated_percent"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("pods", "percent"),
    [("default", 5.04), ("gpushare40", 6.06), ("gpuspec33", 5.01), ("gpushare100", 13.64)],
)
def test_the_published_rule_leaves_more_idle(
    pods: str, percent: float, data_dir: Path, tmp_path: Path
) -> None:
    """Fragmentation gradient descent, written from its paper, on all mixes of the public pods."""
    hosts, trace = _public(data_dir, tmp_path, pods)
    specs = drawn(trace, hosts, 1.3, 0)
    by_fgd = idle_by_fgd(specs, hosts)
    assert 100 * by_fgd == pytest.approx(percent, abs=0.01)
    assert idle_after(specs, hosts, load_profile("mast"))[-1] <= by_fgd


def _public(data_dir: Path, tmp_path: Path, pods: str) -> tuple[Fleet, Trace]:
    public, machines = data_dir / "alibaba", tmp_path / "openb.yaml"
    write_fleet(read_machines(public / "openb_node_list_gpu_node.csv", "openb-nodes"), machines)
    return read_fleet(machines), read(public / f"openb_pod_list_{pods}.csv.gz", "openb")


def test_work_without_gpus_spares_hosts_with_gpus() -> None:
    """As long as there is room on hosts without GPUs; then it goes where there is room. Gangs alike."""
    columns = Columns(
        fleet(
            ClusterSpec(
                "r-1",
                tuple(HostSpec(f"g{i}", "A", 8, cpus=64.0) for i in range(2))
                + tuple(HostSpec(f"n{i}", "", 0, cpus=16.0) for i in range(2)),
            )
        ).regions[0]
    )
    search = Search("r", columns, {}, load_profile("mast"), 0, 0.0)
    hosts = []
    for count in (1, 2, 1, 1):
        plan = search.best(ask(job(count=count, resources=needs(cpus=8))))
        assert plan is not None
        columns.take(plan.seats, {"main": needs(cpus=8)})
        hosts.append("".join(sorted(seat.host[0] for seat in plan.seats)))
    assert hosts == ["n", "nn", "n", "g"]


def test_what_has_no_gpus_cannot_be_filled() -> None:
    """The field at fault is named."""
    with pytest.raises(InvalidInput, match="have no GPUs"):
        drawn(_jobs(), fleet(cluster("r-1", gpus=0, model="")), 1.3, 0)
