"""The benchmark of the search: it runs on any fleet, and says what it measured."""

import json
from pathlib import Path

import msgspec
import pytest

from topmast.bench import FleetOptions, run_bench, scaling
from topmast.bench.fleet import Filled, FleetSize
from topmast.model.absent import given
from topmast.model.errors import InvalidInput
from topmast.model.messages import RequestFleetBids
from topmast.model.plan import DEFAULT_MIX, Plan

CONTRACT = {
    "single_per_s", "gang_per_s", "single_p50_us", "single_p99_us", "gang_p50_us", "gang_p99_us",
    "preempt_p50_us", "preempt_p99_us", "rss_bytes",
}  # fmt: skip
SMALL = FleetOptions(regions=2, clusters=4, hosts=200, first_use=False)


def test_the_search_is_measured(tmp_path: Path) -> None:
    """All that is promised, on the fleet asked for; and written down."""
    fleet = FleetOptions(regions=2, clusters=4, hosts=200, first_use=False, out=tmp_path)
    document = run_bench("search", jobs=60, seed=3, fleet=fleet)
    assert set(document) >= CONTRACT
    assert all(document[name] > 0 for name in CONTRACT)
    assert 0.9 <= document["fill"] < 0.98 <= document["preempt_fill"]
    assert document["size"] == {"regions": 2, "clusters": 4, "hosts": 200, "gpus_per_host": 8}
    assert document["single_count"] == 60
    assert document["preempt_stopping_count"] > 0
    assert document["single_refused"] == document["preempt_refused"] == 0
    assert json.loads((tmp_path / "search.json").read_text()) == document
    assert {"machine", "seed", "profile", "command"} <= set(document)


def test_requests_tell_the_mix_of_tasks_if_they_shall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole and limited tasks have shapes; without `score.shapes` sizes alone are told, and without --mix nothing is."""
    told: list[tuple[bool, bool]] = []
    decide = Filled.decide

    def noting(fleet: Filled, question: RequestFleetBids) -> Plan | None:
        told.append((question.ask.mix != DEFAULT_MIX, bool(given(question.ask.shapes, ()))))
        return decide(fleet, question)

    monkeypatch.setattr(Filled, "decide", noting)
    for options, last in (
        ({"mix": True}, (True, True)),
        ({"mix": True, "settings": {"score.shapes": "false"}}, (True, False)),
        ({}, (False, False)),
    ):
        document = run_bench("search", jobs=5, fleet=msgspec.structs.replace(SMALL, **options))
        assert told[-1] == last
        assert (document["mix"], document["settings"]) == (
            options.get("mix", False), options.get("settings", {}),
        )  # fmt: skip
        assert ("--mix" in document["command"]) == document["mix"]


def test_no_such_fleet() -> None:
    """More clusters than hosts: the field at fault is named."""
    with pytest.raises(InvalidInput) as caught:
        run_bench("search", fleet=FleetOptions(regions=1, clusters=10, hosts=5))
    assert caught.value.field == "hosts"


def test_other_fleets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each is measured in a process of its own; tables, plots and exponents come of it."""
    sizes = [FleetSize(1, 2, hosts) for hosts in (100, 200)]
    monkeypatch.setattr(scaling, "points", lambda: [scaling.Point("hosts", s) for s in sizes])
    fleet = FleetOptions(
        regions=1, clusters=2, hosts=100, scaling=True, first_use=False, out=tmp_path
    )
    document = run_bench("search", jobs=5, fleet=fleet)
    assert [row["hosts"] for row in document["scaling"]] == [100, 200]
    assert document["scaling"][0]["command"].startswith("topmast bench search --regions 1")
    assert document["growth"][0]["axis"] == "hosts"
    table = (tmp_path / "scaling.csv").read_text().splitlines()
    assert len(table) == 3
    assert table[0].startswith("axis,regions,clusters,hosts,running_jobs")
    assert {path.name for path in tmp_path.iterdir()} == {
        "search.json", "scaling.csv", "by-hosts.png", "by-hosts.svg",
    }  # fmt: skip


def test_exponents() -> None:
    """Of a power law the power; of a single point, none."""
    assert scaling.exponent([1, 10, 100], [3.0, 30.0, 300.0]) == 1.0
    assert scaling.exponent([1, 4, 16], [5.0, 10.0, 20.0]) == 0.5
    assert scaling.exponent([1, 4, 16], [5.0, None, 80.0]) == 1.0
    assert scaling.exponent([7, 7], [5.0, 6.0]) is None


def test_the_series() -> None:
    """Hosts from one thousand to a hundred thousand; every fleet can be made."""
    points = list(scaling.points())
    hosts = [point.size.hosts for point in points if point.axis == "hosts"]
    assert (hosts[0], hosts[-1]) == (1_000, 100_000)
    assert {point.axis for point in points} == {"hosts", "regions", "running_jobs"}
    assert all(point.size.checked() for point in points)
