"""Pages of jobs that left memory, against a walk over all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, tenant
from tests.support.journal import MemoryJournal
from tests.support.world import World
from topmast.model import ids
from topmast.model.views import JobView
from topmast.ports import JobRow
from topmast.service import listing

TENANTS = ("a", "b", "A", "left the fleet", "%", "a*")
STATES = ("SUCCEEDED", "FAILED", "CANCELLED")
BLANK = JobView(
    "", "", "", "", "normal", "", None, None, None, None, (), 1.0, 1, 1, 0, 0, False, 0.0, None,
    None, 0.0, None, None, {}, (), "", "",
)  # fmt: skip


class Watched(MemoryJournal):
    """Counts the rows that it gave."""

    given = 0

    def finished_jobs(
        self,
        before_number: int | None = None,
        limit: int = 100,
        tenants: Sequence[str] | None = None,
    ) -> list[JobRow]:
        """As of any."""
        rows = super().finished_jobs(before_number, limit, tenants)
        self.given += len(rows)
        return rows


def keep(journal: MemoryJournal, number: int, of: str, user: str, state: str) -> JobView:
    """A job that ended."""
    view = replace(BLANK, id=ids.job_id(number), tenant=of, user=user, state=state)
    text = msgspec.json.encode(view).decode()
    journal.finished[view.id] = JobRow(view.id, number, 1.0, text)
    return view


@pytest.fixture
def world() -> World:
    return World(fleet(cluster("east-1", hosts=1), tenants=(tenant("a"), tenant("b"))))


@pytest.mark.parametrize("selector", ["", "tenant=a", "tenant=a,tenant=b", "tenant=a*", "user=u1",
                                      "tenant=left*,state=FAILED", "tenant=none"])  # fmt: skip
@pytest.mark.parametrize("seen", [None, ("b",), ("a", "%", "A"), ("none",), ()])
def test_pages_are_those_of_a_walk_over_all_jobs(
    world: World, seen: tuple[str, ...] | None, selector: str
) -> None:
    rng, journal = random.Random(selector), Watched()
    kept = [
        keep(journal, n, rng.choice(TENANTS), rng.choice(("u1", "u2")), rng.choice(STATES))
        for n in range(1, 400)
        if rng.random() < 0.9
    ]
    for limit in (1, 7, 1_000):
        may = None if seen is None else frozenset(seen)
        wanted = listing.select((), "", limit, "", False, may, selector)
        found: list[JobView] = []
        while page := listing.merge([], listing.archived(journal, world.queue, wanted, 0), limit):
            found += page
            wanted = replace(wanted, cursor=ids.job_number(page[-1].id))
        assert found == [view for view in kept[::-1] if wanted.takes_view(view)]
        wanted = replace(wanted, cursor=None)
        down_to = list(listing.archived(journal, world.queue, wanted, 200))
        assert down_to == [view for view in found if ids.job_number(view.id) >= 200]
        assert bool(down_to) == bool(found)


def test_a_page_reads_no_rows_of_tenants_that_are_not_seen(world: World) -> None:
    journal = Watched()
    for n in range(1, 3_000):
        keep(journal, n, "a" if n % 100 else "b", "u", "FAILED")
    for seen, selector in ((frozenset("b"), ""), (None, "tenant=b"), (frozenset("ab"), "tenant=b")):
        wanted = listing.select((), "", 5, "", False, seen, selector)
        journal.given = 0
        page = listing.merge([], listing.archived(journal, world.queue, wanted, 0), 5)
        assert [ids.job_number(view.id) for view in page] == [2900, 2800, 2700, 2600, 2500]
        assert journal.given == 5


def test_a_job_that_is_in_memory_still_comes_from_there_alone(world: World) -> None:
    (known,) = world.submit(job("x", 8, tenant="a"))
    journal = Watched()
    for n in range(1, 9):
        keep(journal, n, "a", "u", "FAILED")
    wanted = listing.select((), "", 3, "", False, frozenset("a"))
    found = [view.id for view in listing.archived(journal, world.queue, wanted, 0)]
    assert found == [ids.job_id(n) for n in range(8, 0, -1) if ids.job_id(n) != known]
