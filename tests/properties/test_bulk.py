"""Many jobs placed by one kernel call sit where they would have been placed one by one."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from tests.properties.test_desk import random_desk
from tests.properties.test_search_is_exhaustive import random_ask
from tests.support.strategies import bounded
from topmast.fast.placement import bulk, compiled, desk, holdings
from topmast.fast.placement.desk import Desk
from topmast.fast.placement.kernels import NOWHERE, Question
from topmast.model import messages as m
from topmast.model.job import Resources
from topmast.model.plan import Ask, GroupAsk

BATCH = 12


def _unlimited(rng: random.Random, tasks: int) -> Ask:
    """A gang that nothing but free GPUs limits, allowed all its accelerators."""
    ask = random_ask(rng, [])
    needs = Resources(ask.groups[0].resources.accelerators)
    return msgspec.structs.replace(ask, groups=(GroupAsk("g", tasks, needs),), models=None)


def _terms(rng: random.Random, asked: Desk) -> dict[str, m.RegionTerms]:
    return {name: m.RegionTerms(balance=rng.random()) for name in asked.placers}


def _one_by_one(asked: Desk, ask: Ask, terms: dict[str, m.RegionTerms]) -> list[Counter[str]]:
    """Where the desk puts one gang after the other: tasks by host."""
    needs = {group.name: group.resources for group in ask.groups}
    placed: list[Counter[str]] = []
    while len(placed) < BATCH:
        (sent,) = asked.handle(m.AskFleet(1, ask, terms), 0.0).sends
        assert isinstance(sent.message, m.FleetOffered)
        plans = [offer.plan for offer in sent.message.offers.values() if offer.plan is not None]
        if not plans:
            break
        asked.placers[plans[0].region].columns.take(plans[0].seats, needs)
        placed.append(Counter(f"{plans[0].region} {seat.host}" for seat in plans[0].seats))
    return placed


def _question(asked: Desk, ask: Ask, terms: dict[str, m.RegionTerms]) -> Question:
    index, weights = asked.pool.index(), asked.score.weights(ask)
    choices = compiled.choices_in(index, ask, (0, 1))
    costs = desk.costs_of(index, weights, terms)
    return compiled.question_of(index, ask, weights, choices, costs)


def _name(asked: Desk, row: int) -> str:
    columns, own = asked.pool.index().place_of(row)
    return f"{columns.region} {columns.hosts[own].name}"


def _has_counted(asked: Desk) -> bool:
    """Whether the index says what counting everything anew says."""
    index = asked.pool.index()
    kept = [index.arrays.hist.copy(), index.arrays.whole.copy(), index.holders.held.cleared.copy()]
    holdings.count_all(index.arrays, index.holders.held)
    anew = [index.arrays.hist, index.arrays.whole, index.holders.held.cleared]
    return all(bool((was == now).all()) for was, now in zip(kept, anew, strict=True))


@bounded(300)
@given(st.integers(0, 2**32 - 1))
def test_single_tasks(seed: int) -> None:
    """The same host for each, the same GPUs held in the end, and an index that is right."""
    rng = random.Random(seed)
    ask = _unlimited(rng, tasks=1)
    one, many = random_desk(random.Random(seed)), random_desk(random.Random(seed))
    terms = _terms(rng, one)
    want = _one_by_one(one, ask, terms)
    index = many.pool.index()
    hosts = np.full(BATCH, NOWHERE, np.int64)
    question = _question(many, ask, terms)
    count = bulk.place_singles(index.arrays, index.holders.held, question, BATCH, hosts)
    assert [Counter({_name(many, row): 1}) for row in hosts[:count].tolist()] == want
    assert (index.arrays.free_milli == one.pool.index().arrays.free_milli).all()
    assert _has_counted(many)


@bounded(400)
@given(st.integers(0, 2**32 - 1))
def test_gangs(seed: int) -> None:
    """The same tasks on the same hosts for each, on one host or on many."""
    rng = random.Random(seed)
    ask = _unlimited(rng, tasks=rng.randint(1, 4))
    one, many = random_desk(random.Random(seed)), random_desk(random.Random(seed))
    terms = _terms(rng, one)
    want = _one_by_one(one, ask, terms)
    index = many.pool.index()
    shape = (BATCH, ask.groups[0].count)
    hosts, tasks = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    room = np.zeros(len(index.arrays.whole), np.int64)
    question = _question(many, ask, terms)
    count = bulk.place_gangs(index.arrays, index.holders.held, question, BATCH, hosts, tasks, room)
    event(f"on {max((len(gang) for gang in want), default=0)} hosts at most")
    for n, gang in enumerate(want):
        rows = [row for row in hosts[n].tolist() if row != NOWHERE]
        found = {_name(many, row): int(tasks[n, i]) for i, row in enumerate(rows)}
        assert found == gang
    assert count == len(want)
    assert (index.arrays.free_milli == one.pool.index().arrays.free_milli).all()
    assert _has_counted(many)
