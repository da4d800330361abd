"""Plans of many gangs in columns say what the plans one by one say."""

from __future__ import annotations

import random

import msgspec
import pytest
from msgspec.structs import replace

from topmast.model.columns import PlanColumns
from topmast.model.job import Level
from topmast.model.plan import Plan, Seat


def random_plan(rng: random.Random, number: int, versions: dict[str, int]) -> Plan:
    """A gang of equal tasks on one to three hosts."""
    region, gpus = rng.choice(("east", "west")), rng.randint(1, 4)
    seats: list[Seat] = []
    for host in range(rng.randint(1, 3)):
        for task in range(rng.randint(1, 2)):
            slots = tuple(range(task * gpus, (task + 1) * gpus))
            seats.append(Seat("main", len(seats), f"{region}-{number}-{host}", slots))
    terms = {name: rng.random() for name in ("speed", "fragmentation", "locality", "balance")}
    version = versions[region] = versions.get(region, rng.randint(0, 9)) + 1
    return Plan(
        f"j{number}", region, f"{region}-1", rng.choice(("H100", "A100")),
        1000 * gpus * len(seats), tuple(seats), rng.choice(list(Level)),
        sum([terms[name] for name in sorted(terms)]), terms, region_version=version,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_columns_hold_plans(seed: int) -> None:
    """They come out as they went in, also by way of JSON, and any of them without the others."""
    rng, versions = random.Random(seed), dict[str, int]()
    plans = [random_plan(rng, number, versions) for number in range(12)]
    columns = PlanColumns.of(plans)
    read = msgspec.json.decode(msgspec.json.encode(columns), type=PlanColumns)
    assert read == columns
    assert columns.plans == read.plans == plans
    assert columns.seats.hosts_each == [plan.hosts for plan in plans]
    of_region = [row for row in range(12) if plans[row].region == plans[3].region]
    for part in (columns.take(of_region), columns.take(range(5))):
        alone = msgspec.json.decode(msgspec.json.encode(part), type=PlanColumns)
        assert part.plans == alone.plans
        assert part.plans == [plans[columns.jobs.index(job)] for job in part.jobs]
        assert part.seats.seats == [plan.seats for plan in part.plans]


@pytest.mark.parametrize("seed", range(8))
def test_plans_are_chosen_of_several_columns(seed: int) -> None:
    """Any of them, for other jobs, at other prices; versions count from those of each region."""
    rng, versions = random.Random(seed), dict[str, int]()
    plans = [random_plan(rng, number, versions) for number in range(24)]
    by_region = [[p for p in plans if p.region == region] for region in ("east", "west")]
    parts = [PlanColumns.of(of) for of in by_region if of]
    rows = [
        (n, row) for n, part in enumerate(parts) for row in range(len(part)) if rng.random() < 0.6
    ]
    rng.shuffle(rows)
    jobs = [f"k{at}" for at in range(len(rows))]
    stranded, balance = [[rng.random() for _ in rows] for _ in range(2)]
    chosen = PlanColumns.chosen(parts, rows, jobs, stranded, balance)
    read = msgspec.json.decode(msgspec.json.encode(chosen), type=PlanColumns)
    assert read == chosen
    firsts = {part.plans[0].region: part.plans[0].region_version for part in parts}
    prices = zip(stranded, balance, strict=True)
    for (number, row), job, (rest, load), plan in zip(rows, jobs, prices, read.plans, strict=True):
        of = parts[number].plans[row]
        terms = {**of.terms, "fragmentation": rest, "balance": load}
        score = sum([terms[name] for name in sorted(terms)])
        version, firsts[of.region] = firsts[of.region], firsts[of.region] + 1
        assert plan == replace(of, job=job, terms=terms, score=score, region_version=version)
