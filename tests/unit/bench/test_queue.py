"""The benchmark from submission to decision: real machines, obedient engines, and a clock of their work."""

import pytest

from topmast.bench import FleetOptions, run_bench
from topmast.bench.fleet import FleetSize
from topmast.bench.queue import Office, QueueOptions

FLEET = FleetOptions(regions=2, clusters=4, hosts=60, rate=20.0)


@pytest.fixture(scope="module")
def office() -> Office:
    """A full fleet with a queue in front of it."""
    options = QueueOptions(FleetSize(2, 4, 60), jobs=400, rate=20.0, duration_s=2.0)
    made = Office(options)
    made.fill()
    made.settle()
    return made


def test_the_queue_is_measured() -> None:
    """Every job that arrived is placed, refused, or said to be undecided."""
    document = run_bench("queue", jobs=300, duration_s=2.0, seed=1, fleet=FLEET)
    assert document["arrived"] > 10
    told = document["placed_at_once"] + document["refused_at_first"] + document["undecided"]
    assert told == document["arrived"]
    assert 0 < document["decision_p50_ms"] <= document["decision_p99_ms"]
    assert 0 < document["utilisation"] <= 1
    assert document["before"]["waiting_jobs"] >= 280
    assert {"machine", "seed", "rate", "size", "rss_bytes", "events"} <= set(document)


def test_the_fleet_is_full_before(office: Office) -> None:
    """As many jobs wait as were asked for, but a few that found room since; hardly a GPU is free."""
    counts = office.counts()
    assert counts["waiting_jobs"] >= 380
    assert counts["lines"] > 100
    assert counts["held_gpus"] >= 0.95 * 480
    running = sum(len(engine.gangs) for engine in office.live.engines.values())
    assert running == counts["running_jobs"]


def test_time_is_work_and_waiting(office: Office) -> None:
    """The clock is as far as the end of the measurement, and was busy for a part of it."""
    begun_s = office.live.now_s
    office.come_and_go()
    assert office.live.now_s >= begun_s + 2.0
    assert office.took_s >= 2.0
    assert 0 < office.live.busy_s <= office.took_s
    assert sum(office.live.spent_s.values()) == pytest.approx(office.live.busy_s)
