"""Jobs that ended months ago are forgotten; what they used stays, by the day."""

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from tests.support.live import eventually
from tests.support.stores import Store
from topmast.adapters.store import JournalFailure, SqlJournal, Sweeper, open_journal
from topmast.adapters.store.months import month_start_s
from topmast.adapters.store.tables import LEADER
from topmast.ports import AttemptRow, Audit, HistoryRow, JobRow
from topmast.service.usage import usage

DAY_S = 86_400.0
MAY_S = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
JUNE_S = datetime(2026, 6, 1, tzinfo=UTC).timestamp()


@pytest.fixture
def journal(store: Store) -> Iterator[SqlJournal]:
    opened = store.open()
    yield opened
    opened.close()


def ended(number: int, finish_s: float, rng: random.Random) -> Audit:
    """A job with one to three attempts, the last of which ends with it; some last for days."""
    job, rows = f"j{number}", []
    at_s = finish_s
    for epoch in range(rng.randint(1, 3), 0, -1):
        start_s = at_s - rng.choice((600.0, 7_200.0, 3 * DAY_S))
        kept_s = rng.random() * (at_s - start_s)
        row = AttemptRow(
            job, epoch, rng.choice(("vision", "nlp")), rng.choice(("ada", "bob")), "east", "e1",
            rng.choice(("H100", "A100")), rng.choice((500, 8_000)), start_s, at_s, kept_s, "ended",
            "", rng.random() * (at_s - start_s),
        )  # fmt: skip
        rows.append(row)
        at_s = start_s - 60.0
    lines = [HistoryRow(finish_s, job, "SUCCEEDED", "ended")]
    return Audit(lines, rows, [JobRow(job, number, finish_s, "{}")])


def fill(journal: SqlJournal, jobs: int, seed: int = 1) -> None:
    """Jobs that ended in May and June."""
    rng = random.Random(seed)
    for number in range(1, jobs + 1):
        finish_s = MAY_S + rng.random() * 60 * DAY_S
        journal.append([], ended(number, finish_s, rng))


def used(journal: SqlJournal, by: str, since_s: float, until_s: float) -> dict[str, list[float]]:
    rows = usage(
        journal.attempts(since_s, until_s), by, since_s, until_s,
        journal.usage_days(since_s, until_s),
    )  # fmt: skip
    return {
        row.key: [row.held_gpu_h, row.kept_gpu_h, row.lost_gpu_h, row.idle_gpu_h] for row in rows
    }


@pytest.mark.parametrize("by", ["tenant", "user", "gpu"])
@pytest.mark.parametrize("at_once", [1, 7, 500])
def test_usage_of_whole_days_stays_the_same(journal: SqlJournal, by: str, at_once: int) -> None:
    """Also over months that are partly forgotten."""
    fill(journal, 60)
    rng = random.Random(at_once)
    periods = [(MAY_S - 30 * DAY_S, MAY_S + 90 * DAY_S), (JUNE_S, JUNE_S + DAY_S)]
    for _ in range(8):
        first = rng.randrange(-5, 50)
        periods.append((MAY_S + first * DAY_S, MAY_S + (first + rng.randrange(1, 20)) * DAY_S))
    before = [used(journal, by, *period) for period in periods]
    while journal.forget(JUNE_S, at_once):
        pass
    for period, was in zip(periods, before, strict=True):
        now = used(journal, by, *period)
        assert now.keys() == was.keys()
        for key, values in was.items():
            assert now[key] == pytest.approx(values, abs=1e-9)


def test_jobs_of_the_months_to_keep_stay_whole(journal: SqlJournal) -> None:
    fill(journal, 60)
    jobs = {row.job: row for row in journal.finished_jobs(limit=1_000)}
    attempts = {job: journal.attempts_of(job) for job in jobs}
    old = {job for job, row in jobs.items() if row.finish_s < JUNE_S}
    assert 10 < len(old) < 50
    assert sum(iter(lambda: journal.forget(JUNE_S, 10), 0)) == len(old)
    for job, row in jobs.items():
        there = None if job in old else row
        assert journal.finished_job(job) == there
        assert journal.attempts_of(job) == ([] if job in old else attempts[job])
        assert len(journal.history(job)) == (0 if job in old else 1)
    days = journal.usage_days(0, 1e12)
    assert sum(day.attempts for day in days) == sum(len(attempts[job]) for job in old)


def test_a_job_that_has_not_ended_keeps_all_its_lines(journal: SqlJournal) -> None:
    rows = ended(1, MAY_S + DAY_S, random.Random(1))
    journal.append([], Audit(rows.history, rows.attempts))
    assert journal.forget(JUNE_S, 10) == 0
    assert journal.history("j1") != []
    assert journal.attempts_of("j1") != []


def test_an_attempt_of_no_length_is_forgotten_too(journal: SqlJournal) -> None:
    row = AttemptRow("j1", 1, "t", "u", "r", "c", "", 0, MAY_S, MAY_S, 0.0, "ended")
    journal.append([], Audit(attempts=[row], jobs=[JobRow("j1", 1, MAY_S, "{}")]))
    assert journal.forget(JUNE_S, 10) == 1
    assert journal.attempts_of("j1") == []


def test_a_replaced_leader_forgets_nothing(database: Store) -> None:
    with closing(database.open()) as journal:
        fill(journal, 5)
        database.tamper(LEADER.update().values(epoch=99))
        with pytest.raises(JournalFailure, match="another process leads"):
            journal.forget(JUNE_S, 10)
    with closing(open_journal(database.target, read_only=True)) as reading:
        assert len(reading.finished_jobs()) == 5


def test_a_sweeper_forgets_in_parts_while_others_write(
    journal: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topmast.adapters.store.keeper.JOBS_AT_ONCE", 3)
    monkeypatch.setattr("topmast.adapters.store.keeper.PAUSE_S", 0.001)
    fill(journal, 30)
    lost: list[BaseException] = []
    sweeper = Sweeper(journal, 1, lambda: JUNE_S + 40 * DAY_S, lost.append)
    for number in range(100, 130):
        journal.append([], ended(number, JUNE_S + 40 * DAY_S, random.Random(number)))
    eventually(
        lambda: all(row.finish_s >= JUNE_S for row in journal.finished_jobs(limit=999)), "no May"
    )
    sweeper.close()
    assert len([row for row in journal.finished_jobs(limit=99) if row.number >= 100]) == 30
    assert not lost


def test_a_sweeper_that_cannot_tells_of_it(journal: SqlJournal) -> None:
    lost, told = [], threading.Event()

    def lose(error: BaseException) -> None:
        lost.append(error)
        told.set()

    journal.close()
    sweeper = Sweeper(journal, 1, lambda: JUNE_S, lose)
    assert told.wait(60)
    sweeper.close()
    assert "closed" in str(lost[0])


@pytest.mark.parametrize(
    ("now", "months", "want"),
    [
        (datetime(2026, 11, 23, 12, tzinfo=UTC), 0, datetime(2026, 11, 1, tzinfo=UTC)),
        (datetime(2026, 11, 23, tzinfo=UTC), 1, datetime(2026, 10, 1, tzinfo=UTC)),
        (datetime(2026, 1, 31, tzinfo=UTC), 1, datetime(2025, 12, 1, tzinfo=UTC)),
        (datetime(2026, 12, 1, tzinfo=UTC), 12, datetime(2025, 12, 1, tzinfo=UTC)),
        (datetime(2024, 3, 1, tzinfo=UTC), 13, datetime(2023, 2, 1, tzinfo=UTC)),
        (datetime(2026, 11, 1, tzinfo=UTC), 1_200, datetime(1970, 1, 1, tzinfo=UTC)),
        (datetime(2026, 11, 1, tzinfo=UTC), 30_000, datetime(1970, 1, 1, tzinfo=UTC)),
        (datetime(2026, 11, 1, tzinfo=UTC), 10**12, datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_months_begin_where_the_calendar_says(now: datetime, months: int, want: datetime) -> None:
    assert month_start_s(now.timestamp(), months) == want.timestamp()
