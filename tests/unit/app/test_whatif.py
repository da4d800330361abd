"""What if: a folder with a journal is run ahead as it is, and with something changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.build import cluster, fleet, job, needs, tenant
from tests.support.world import World
from tests.unit.cli import program
from topmast.adapters.store import JOURNAL, PROFILE, open_journal
from topmast.app import whatif
from topmast.app.whatif import compare_futures
from topmast.cli import main
from topmast.cli.rootoptions import WhatIfOptions
from topmast.model.errors import InvalidInput, NotFound
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.policies.registry import load_profile
from topmast.ports import Audit
from topmast.service.forecast import FORESEEN
from topmast.sim import outlook

ROOT = replace(program.ROOT, whatif=compare_futures)
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


def test_progress_is_of_both_futures(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their jobs are counted together, so that it never falls."""
    monkeypatch.setattr(outlook, "STEPS_PER_LOOK", 1)
    told: list[tuple[int, int]] = []
    options = WhatIfOptions(state=state, for_s=3_600.0)
    compare_futures(options, lambda over, jobs, ahead_s: told.append((over, jobs)))
    assert {jobs for _, jobs in told} == {8}
    assert [over for over, _ in told] == sorted(over for over, _ in told)
    assert {0, 4} <= {over for over, _ in told}
    assert told[-1][0] > 4


def test_more_hosts_and_quota_shorten_the_wait(state: Path) -> None:
    """With a host and the quota for it, one of the two starts at once."""
    _, changed = futures(state, add_hosts={"east-1": 1}, quotas={"a:H100": 16})
    assert changed["gpus"] == 24
    assert changed["tenants"]["a"]["wait_s"]["mean"] == 0.0
    assert changed["tenants"]["b"]["wait_s"]["mean"] <= 1_000.0


MIXED = fleet(
    ClusterSpec(
        "east-1",
        (
            HostSpec("a0", "A100", 4, cpus=32.0),
            HostSpec("h0", "H100", 8, cpus=96.0, memory_bytes=10**12),
            HostSpec("c0", "", 0, cpus=64.0),
        ),
    ),
    ClusterSpec("west-1", (HostSpec("w0", "", 0, cpus=8.0),)),
)


@pytest.mark.parametrize(
    ("key", "gpus", "want"),
    [
        ("east-1", {"A100": 4, "H100": 24}, "2 more hosts in east-1, like h0 (8 H100, 96 CPUs, 1TB of memory)"),
        ("east-1:A100", {"A100": 12, "H100": 8}, "2 more hosts in east-1, like a0 (4 A100, 32 CPUs)"),
        ("east-1:cpu", {"A100": 4, "H100": 8}, "2 more hosts in east-1, like c0 (no GPUs, 64 CPUs)"),
        ("west-1", {"A100": 4, "H100": 8}, "2 more hosts in west-1, like w0 (no GPUs, 8 CPUs)"),
    ],
)  # fmt: skip
def test_the_kind_of_the_added_hosts_is_said(key: str, gpus: dict[str, int], want: str) -> None:
    """The last one with GPUs is the model, or one of the kind that is named; without GPUs there is a warning."""
    options = WhatIfOptions(state=Path(), add_hosts={key: 2})
    assert whatif._changed(MIXED, options).gpus() == gpus
    assert whatif._told(options, MIXED) == [want]
    assert [key in line for line in whatif._warnings(options, MIXED)] == [True] * (
        "no GPUs" in want
    )


@pytest.mark.parametrize(
    ("racks", "want"),
    [
        (("r0", "r0", "r1", "r1"), ["added-r1", "added-r1", "added-r2"]),
        (("r0", "r0", "r1"), ["r1", "added-r1", "added-r1"]),
        (("r0", "r1"), ["added-r1", "added-r2", "added-r3"]),
        (("r0", "r0"), ["r0", "r0", "r0"]),
        (("", ""), ["", "", ""]),
    ],
)
def test_added_hosts_fill_a_rack_and_begin_new_ones(
    racks: tuple[str, ...], want: list[str]
) -> None:
    """As the fleet file does with them: a rack has no more hosts than its fullest one."""
    hosts = tuple(HostSpec(f"h{at}", "A", 8, rack=rack) for at, rack in enumerate(racks))
    grown = whatif._changed(
        fleet(ClusterSpec("e", hosts)), WhatIfOptions(state=Path(), add_hosts={"e": 2})
    )
    again = whatif._changed(grown, WhatIfOptions(state=Path(), add_hosts={"e": 1}))
    found = again.regions[0].clusters[0].hosts[len(racks) :]
    assert [host.rack.removeprefix("e-") for host in found] == want


def test_hosts_of_two_kinds_have_names_of_their_own() -> None:
    """Two additions to one cluster do not collide."""
    options = WhatIfOptions(state=Path(), add_hosts={"east-1": 1, "east-1:A100": 1})
    names = [host.name for host in whatif._changed(MIXED, options).regions[0].clusters[0].hosts]
    assert names[3:] == ["east-1-added-1", "east-1-added-2"]


def test_a_lost_region_takes_its_jobs_and_gpus(state: Path) -> None:
    """Its job begins anew elsewhere: less is finished in the time, on half of the GPUs."""
    base, changed = futures(state, lose_regions=("west",))
    assert (base["gpus"], changed["gpus"]) == (16, 8)
    assert changed["wait_s"]["mean"] > base["wait_s"]["mean"]


def test_a_job_that_changes_is_told_of_by_name(state: Path) -> None:
    """Both wait for 1,000 s; one ends after a minute in the future where that is its limit."""
    assert futures(state, quotas={"b:H100": 0})[1]["changed_jobs"] == {}
    base, changed = futures(state, jobs={"j3": {"time_limit_s": 60}, "j4": {"priority": "high"}})
    assert list(base["changed_jobs"]) == list(changed["changed_jobs"]) == ["j3", "j4"]
    assert base["changed_jobs"]["j4"]["start_s"] == 1_000.0
    ends = [future["changed_jobs"]["j3"]["finish_s"] for future in (base, changed)]
    assert ends == [1_600.0, 1_060.0]


def test_the_jobs_that_gain_and_lose_most_are_named() -> None:
    """One that starts in one of the futures only has waited to the end in the other."""
    base = {"j1": 10.0, "j2": 50.0, "j3": None, "j4": None, "j5": 20.0}
    changed = {"j1": 30.0, "j2": 10.0, "j3": 40.0, "j4": None, "j5": 20.5}
    found = whatif._moved(base, changed, 100.0)
    assert (found["sooner"], found["later"]) == (2, 1)
    assert [one["job"] for one in found["gain_most"]] == ["j3", "j2"]
    assert found["lose_most"] == [{"job": "j1", "base_start_s": 10.0, "changed_start_s": 30.0}]


def test_a_job_jumps_the_queue(tmp_path: Path) -> None:
    """Of two that wait for one host the later one has the higher priority in one of the futures."""
    one = fleet(cluster("east-1", hosts=1, gpus=8), tenants=(tenant("a", H100=8),))
    world = World(one, load_profile("fifo-skip"))
    for name, length_s in (("runs", 1_000.0), ("first", 600.0), ("second", 600.0)):
        world.submit(job(name, resources=needs(8, "H100"), tenant="a", duration_s=length_s))
    journal = open_journal(tmp_path / JOURNAL)
    journal.append(world.journal.written, Audit((), (), ()))
    journal.close()
    (tmp_path / PROFILE).write_bytes(msgspec.json.encode(load_profile("mast")))
    base, changed = futures(tmp_path, jobs={"j3": {"priority": "high", "preemptible": False}})
    assert base["changed_jobs"]["j3"]["start_s"] == 1_600.0
    assert changed["changed_jobs"]["j3"]["start_s"] < 1_600.0


def test_the_changes_of_jobs_are_told() -> None:
    options = WhatIfOptions(state=Path(), jobs={"j3": {"priority": "high", "preemptible": False}})
    assert whatif._told(options, WORLD) == ["priority of j3 = high", "preemptible of j3 = false"]


def test_other_policies(state: Path) -> None:
    """A profile by name, with an option laid over it."""
    base, changed = futures(state, profile="sjf", settings={"default_duration_s": "60"})
    assert (base["profile"], changed["profile"]) == ("fifo-skip", "sjf")


def test_what_calibration_found_holds_in_both_futures(state: Path) -> None:
    """Starts of 30 s and GPUs of half their speed: 2,030 s until the first two end, then 1,230 s."""
    found = {"sim.startup_s": "30", "sim.gpu_speed.H100": "0.5"}
    base, changed = futures(state, settings=found)
    assert base["wait_s"]["mean"] == changed["wait_s"]["mean"] == pytest.approx(2_030.0, abs=0.1)
    assert base["held_gpu_s"] == changed["held_gpu_s"] == pytest.approx(16 * (2_030.0 + 1_230.0))


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """What `calibrate` wrote of a cluster with rounds of 400 s and starts of 30 s."""
    files = (
        "--trace", str(tmp_path / "jobs.csv"), "--fleet", str(tmp_path / "fleet.yaml"),
        "--profile", "fifo-skip", "--overheads", "none",
    )  # fmt: skip
    (tmp_path / "fleet.yaml").write_text(
        "regions: {r: {clusters: {c: {hosts: [{count: 1, gpu: G, gpus: 8}]}}}}\n"
    )
    rows = [f"j{n},{31.7 * n},{100 + 37.3 * (n % 7)},{(1, 2, 4)[n % 3]}" for n in range(60)]
    header = "job_id,submit_s,duration_s,gpus"
    (tmp_path / "jobs.csv").write_text("\n".join([header, *rows]) + "\n")
    real, found = tmp_path / "real", tmp_path / "lab.set"
    told = ("--set", "rounds_s=400", "--set", "sim.startup_s=30")
    assert main(ROOT, ["simulate", *files, *told, "--out", str(real)]) == 0
    measured = ("--measured", str(real / "jobs.csv"), "--write", str(found))
    assert main(ROOT, ["calibrate", *files, *measured]) == 0
    capsys.readouterr()
    assert {"rounds_s=400", "sim.startup_s=30"} <= set(found.read_text().splitlines())
    return found


def test_rounds_that_calibration_found_are_of_the_cluster_as_it_is(
    state: Path, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,030 s until the first two end, and the next round is at 1,200; one that is set by hand is a change."""
    words = ["whatif", "--state", str(state), "--set", f"@{lab}", "--for", "1h", "--json"]
    waits = []
    for more in ([], ["--set", "rounds_s=900"]):
        assert main(ROOT, [*words, *more]) == 0
        found = json.loads(capsys.readouterr().out)
        waits.append([found[future]["wait_s"]["mean"] for future in ("base", "changed")])
        assert found["changes"] == (["rounds_s = 900"] if more else [])
    assert waits == [[1_200.0, 1_200.0], [1_030.0, 1_800.0]]


def test_what_the_server_was_told_holds_unless_the_command_says_otherwise(state: Path) -> None:
    """Starts that the server was told of hold in both futures, unless the command names others."""
    journal = open_journal(state / JOURNAL)
    journal.set_option(FORESEEN, '{"sim.startup_s": "30"}')
    journal.close()
    for given, wait_s in (({}, 1_030.0), ({"sim.startup_s": "50"}, 1_050.0)):
        base, changed = futures(state, settings=given)
        assert base["wait_s"]["mean"] == changed["wait_s"]["mean"] == pytest.approx(wait_s)


def test_the_folder_is_only_read(state: Path) -> None:
    """Byte for byte the journal stays as it was."""
    before = (state / JOURNAL).read_bytes()
    futures(state, add_hosts={"east-1": 2})
    assert (state / JOURNAL).read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"add_hosts": {"east": 1}}, "no cluster 'east'"),
        ({"add_hosts": {"east-1:T4": 1}}, "no kind of host in east-1: 'T4'"),
        ({"quotas": {"c:H100": 1}}, "no tenant 'c'"),
        ({"quotas": {"a:H200": 1}}, "no GPU model 'H200'"),
        ({"lose_regions": ("north",)}, "no region 'north'"),
        ({"profile": "nope"}, "unknown profile 'nope'"),
        ({"jobs": {"j3": {"priority": "urgent"}}}, "--job j3.priority: unknown band 'urgent'"),
        ({"jobs": {"j3": {"gpus": 8}}}, "--job j3.gpus: cannot be changed"),
        ({"settings": {"sim.host_mtbf_s": "9"}}, "is not an option of whatif"),
    ],
)
def test_what_does_not_fit_is_refused(state: Path, changes: dict[str, Any], want: str) -> None:
    """The error names what is unknown."""
    with pytest.raises(InvalidInput, match=want):
        futures(state, **changes)


def test_all_that_does_not_fit_is_told_at_once(state: Path) -> None:
    """Whatever option it is in."""
    with pytest.raises(InvalidInput) as raised:
        futures(
            state, profile="fifi", settings={"nope": "1", "sim.host_mtbf_s": "9"},
            add_hosts={"east": 1}, quotas={"c:H100": 1, "a:H200": 1}, lose_regions=("north",),
            jobs={"j3": {"priority": "urgent"}, "j9": {"priority": "high"}},
        )  # fmt: skip
    told = "\n".join(error.line() for error in (raised.value, *raised.value.more))
    wanted = (
        "unknown band 'urgent'", "unknown profile 'fifi'", "--set nope", "no job 'j9'",
        "no region 'north'", "no cluster 'east'", "no tenant 'c'", "no GPU model 'H200'",
        "--set sim.host_mtbf_s",
    )  # fmt: skip
    assert [what for what in wanted if what not in told] == []
    assert len(raised.value.more) == len(wanted) - 1


def test_a_job_that_is_not_there(state: Path) -> None:
    with pytest.raises(NotFound, match="no job 'j9' that has not ended"):
        futures(state, jobs={"j9": {"priority": "high"}})


def test_a_folder_without_a_journal(tmp_path: Path) -> None:
    """Nothing is made up."""
    with pytest.raises(NotFound):
        futures(tmp_path)
