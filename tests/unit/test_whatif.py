"""What if: a folder with a journal is run ahead as it is, and with something changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.build import cluster, fleet, job, needs, tenant
from tests.support.world import World
from topmast.adapters.store import open_journal
from topmast.cli import WhatIfOptions
from topmast.composition import JOURNAL, PROFILE
from topmast.model.errors import InvalidInput, NotFound
from topmast.policies.registry import load_profile
from topmast.ports import Audit
from topmast.whatif import compare_futures

WORLD = fleet(
    cluster("east-1", hosts=1, gpus=8),
    cluster("west-1", hosts=1, gpus=8),
    tenants=(tenant("a", H100=8), tenant("b", H100=8)),
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Two regions of 8 GPUs, both full for 1,000 s, and two jobs of 600 s that wait."""
    world = World(WORLD, load_profile("fifo-skip"))
    for name, duration_s in (("one", 1_000.0), ("two", 1_000.0), ("three", 600.0), ("four", 600.0)):
        owner = "a" if name in ("one", "three") else "b"
        world.submit(job(name, resources=needs(8, "H100"), tenant=owner, duration_s=duration_s))
    journal = open_journal(tmp_path / JOURNAL)
    journal.append(world.journal.written, Audit((), (), ()))
    journal.close()
    (tmp_path / PROFILE).write_bytes(msgspec.json.encode(world.options))
    return tmp_path


def futures(state: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures as it is, and with the changes."""
    options = WhatIfOptions(state=state, for_s=3_600.0, **changes)
    found = compare_futures(options, lambda over, jobs, ahead_s: None)
    return found["base"], found["changed"]


def test_without_a_change_both_futures_are_one(state: Path) -> None:
    """The jobs that wait start when those before them end, and all finish."""
    base, changed = futures(state)
    assert base == changed
    assert (base["waiting"], base["started"], base["finished"]) == (2, 2, 4)
    assert base["wait_s"]["mean"] == 1_000.0
    assert base["held_gpu_s"] == 8 * 2 * (1_000.0 + 600.0)
    assert base["allocation_rate"] == pytest.approx(1_600.0 / 3_600.0)


def test_more_hosts_and_quota_shorten_the_wait(state: Path) -> None:
    """With a host and the quota for it, one of the two starts at once."""
    _, changed = futures(state, add_hosts={"east-1": 1}, quotas={"a:H100": 16})
    assert changed["gpus"] == 24
    assert changed["tenants"]["a"]["wait_s"]["mean"] == 0.0
    assert changed["tenants"]["b"]["wait_s"]["mean"] <= 1_000.0


def test_a_lost_region_takes_its_jobs_and_gpus(state: Path) -> None:
    """Its job begins anew elsewhere: less is finished in the time, on half of the GPUs."""
    base, changed = futures(state, lose_regions=("west",))
    assert (base["gpus"], changed["gpus"]) == (16, 8)
    assert changed["wait_s"]["mean"] > base["wait_s"]["mean"]


def test_other_policies(state: Path) -> None:
    """A profile by name, with an option laid over it."""
    base, changed = futures(state, profile="sjf", settings={"default_duration_s": "60"})
    assert (base["profile"], changed["profile"]) == ("fifo-skip", "sjf")


def test_the_folder_is_only_read(state: Path) -> None:
    """Byte for byte the journal stays as it was."""
    before = (state / JOURNAL).read_bytes()
    futures(state, add_hosts={"east-1": 2})
    assert (state / JOURNAL).read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"add_hosts": {"east": 1}}, "no cluster 'east'"),
        ({"quotas": {"c:H100": 1}}, "no tenant 'c'"),
        ({"quotas": {"a:H200": 1}}, "no GPU model 'H200'"),
        ({"lose_regions": ("north",)}, "no region 'north'"),
        ({"profile": "nope"}, "unknown profile 'nope'"),
        ({"settings": {"sim.host_mtbf_s": "9"}}, "is not an option of whatif"),
    ],
)
def test_what_does_not_fit_is_refused(state: Path, changes: dict[str, Any], want: str) -> None:
    """The error names what is unknown."""
    with pytest.raises(InvalidInput, match=want):
        futures(state, **changes)


def test_a_folder_without_a_journal(tmp_path: Path) -> None:
    """Nothing is made up."""
    with pytest.raises(NotFound):
        futures(tmp_path)
