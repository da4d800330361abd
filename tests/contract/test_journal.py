"""What every journal store keeps: order, atomicity, durability, one owner, readable refusals."""

import contextlib
import os
import random
import re
import subprocess
import sys
import textwrap
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from tests.support.stores import Store
from topmast.adapters.store import (
    Claim,
    JournalFailure,
    SqlJournal,
    WrittenByNewer,
    open_journal,
    snapshots,
)
from topmast.adapters.store.checksum import crc_without_time
from topmast.adapters.store.finished import page
from topmast.adapters.store.retention import Past
from topmast.adapters.store.schema import VERSIONS
from topmast.adapters.store.tables import JOURNAL, SNAPSHOTS, VERSION
from topmast.model.errors import Conflict, NotFound, TopmastError
from topmast.ports import (
    ActFilter,
    ActRow,
    AttemptRow,
    Audit,
    HistoryRow,
    JobRow,
    Journal,
    Record,
    Snapshot,
)

pytestmark = pytest.mark.always

MAKES_A_JOURNAL: Callable[[str], Journal] = open_journal
NOTHING = Audit()
NEWER = r"written by a newer Topmast \(\S+, schema 9999; this one is \S+ and knows up to 0\d+\): install"
LAST_ONLY, NEWEST_TWO = Past(newest=1, age_s=-1.0), Past(age_s=-1.0)


@pytest.fixture
def journal(store: Store) -> Iterator[SqlJournal]:
    opened = store.open()
    yield opened
    opened.close()


def record(seq: int, at_s: float | None = None, machine: str = "queue") -> Record:
    at_s = float(seq) if at_s is None else at_s
    return Record(seq, at_s, machine, b'{"type":"Wake"}', b'[{"n":%d}]' % seq)


def records(first: int, last: int) -> list[Record]:
    return [record(seq) for seq in range(first, last + 1)]


def snapshot(seq: int) -> Snapshot:
    return Snapshot(seq, float(seq), {"queue": b"state %d" % seq, "placer/east": b"\0" * 9999})


def attempt(job: str, epoch: int, start_s: float, end_s: float) -> AttemptRow:
    return AttemptRow(
        job, epoch, "vision", "ada", "east", "e1", "H100", 8000, start_s, end_s, end_s, "finished"
    )


# --- records --------------------------------------------------------------------------------------


def test_an_empty_journal_has_nothing(journal: SqlJournal) -> None:
    assert list(journal.records()) == []
    assert journal.latest_snapshot() is None
    assert journal.history("j1") == []
    assert journal.attempts(0, 1e12) == []
    assert journal.attempts_of("j1") == []
    assert journal.finished_job("j1") is None
    assert journal.finished_jobs() == []


def test_records_come_back_as_they_were_also_after_reopening(store: Store) -> None:
    written = [
        Record(1, 1_700_000_000.123456, "queue", b"{}", b"[]"),
        Record(2, 1_700_000_000.123457, "placer/europe-west", bytes(range(256)), b""),
        Record(3, 1_700_000_001.0, "cluster/ü", b"x" * 3_000_000, b"[]"),
    ]
    journal = store.open()
    journal.append(written[:2], NOTHING)
    journal.append(written[2:], NOTHING)
    assert list(journal.records()) == written
    journal.close()
    journal = store.open()
    assert list(journal.records()) == written
    assert list(journal.records(after=2)) == written[2:]
    journal.append([record(4)], NOTHING)
    journal.close()


def test_appending_nothing_is_fine(journal: SqlJournal) -> None:
    journal.append([], NOTHING)
    assert list(journal.records()) == []


def test_until_cuts_at_the_first_later_record_even_if_the_clock_jumped_back(
    journal: SqlJournal,
) -> None:
    """A record after the cut would be applied without the one before it."""
    journal.append([record(1, 10.0), record(2, 20.0), record(3, 15.0), record(4, 30.0)], NOTHING)
    assert [r.seq for r in journal.records(until_s=17.0)] == [1]
    assert [r.seq for r in journal.records(until_s=20.0)] == [1, 2, 3]
    assert [r.seq for r in journal.records(after=1, until_s=5.0)] == []


def test_ten_thousand_records_in_one_transaction(journal: SqlJournal) -> None:
    written = records(1, 10_000)
    lines = [HistoryRow(1.0, f"j{seq}", "submitted", "submitted") for seq in range(1, 10_001)]
    journal.append(written, Audit(history=lines))
    assert list(journal.records()) == written


@pytest.mark.parametrize("seqs", [[3], [2], [4, 4], [5, 4]], ids=str)
def test_a_seq_that_does_not_go_up_is_refused(journal: SqlJournal, seqs: list[int]) -> None:
    journal.append(records(1, 3), NOTHING)
    with pytest.raises(JournalFailure, match="after"):
        journal.append([record(seq) for seq in seqs], NOTHING)
    assert [r.seq for r in journal.records()] == [1, 2, 3]


def test_a_second_writer_is_noticed_and_nothing_written_after_it(
    store: Store, journal: SqlJournal
) -> None:
    """The lock should make it impossible; the primary key makes it harmless."""
    journal.append([record(1)], NOTHING)
    store.tamper(
        JOURNAL.insert().values(seq=3, at_s=3.0, machine="queue", event=b"", facts=b"", crc=0)
    )
    line = HistoryRow(2.0, "j1", "started", "started")
    with pytest.raises(JournalFailure, match="second writer"):
        journal.append(records(2, 4), Audit(history=[line]))
    assert journal.history("j1") == []
    with pytest.raises(JournalFailure, match="an earlier write failed"):
        journal.append([record(2)], NOTHING)


def test_a_damaged_record_is_not_replayed(store: Store, journal: SqlJournal) -> None:
    journal.append(records(1, 3), NOTHING)
    store.tamper(JOURNAL.update().where(JOURNAL.c.seq == 2).values(facts=b'[{"n":9}]'))
    found = journal.records()
    assert next(found).seq == 1
    with pytest.raises(JournalFailure, match="record 2 is damaged"):
        next(found)


def test_a_changed_time_is_damage_and_an_old_checksum_is_none(
    store: Store, journal: SqlJournal
) -> None:
    """Earlier versions did not cover the time of a record; what they wrote is still read."""
    journal.append(records(1, 3), NOTHING)
    for seq in (1, 2):
        old = {"crc": crc_without_time(record(seq)), "at_s": 1.5}
        store.tamper(JOURNAL.update().where(JOURNAL.c.seq == seq).values(**old))
    store.tamper(JOURNAL.update().where(JOURNAL.c.seq == 3).values(at_s=1e9))
    found = journal.records()
    assert [next(found).at_s, next(found).at_s] == [1.5, 1.5]
    with pytest.raises(JournalFailure, match="record 3 is damaged"):
        next(found)


@pytest.mark.parametrize(("lost", "after"), [((2,), 0), ((1,), 0), ((3, 4), 2)])
def test_a_gap_is_not_passed_over(
    store: Store, journal: SqlJournal, lost: tuple[int, ...], after: int
) -> None:
    """What follows would be applied to another state than it was decided in."""
    journal.append(records(1, 6), NOTHING)
    store.tamper(JOURNAL.delete().where(JOURNAL.c.seq.in_(lost)))
    text = f"records {lost[0]} to {lost[-1]} are missing: restore a backup"
    with pytest.raises(JournalFailure, match=text):
        list(journal.records(after))


def test_reading_holds_few_records_in_memory(journal: SqlJournal) -> None:
    """200 MB of records, read by a process that may grow by 60 MB."""
    payload = random.Random(1).randbytes(100_000)
    for start in range(0, 2000, 100):
        batch = [Record(seq, 1.0, "queue", payload, b"") for seq in range(start + 1, start + 101)]
        journal.append(batch, NOTHING)
    script = """
        import resource, sys
        from topmast.adapters.store import open_journal
        journal = open_journal(sys.argv[1], read_only=True)
        next(journal.records())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = sum(1 for _ in journal.records())
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(count, grown_kib)
    """
    target = journal._database.reader.url.render_as_string(hide_password=False)
    target = target if target.startswith("postgresql") else journal._place
    count, grown_kib = run_python(script, target).split()
    assert int(count) == 2000
    assert int(grown_kib) < 60_000


# --- snapshots ------------------------------------------------------------------------------------


def test_the_newest_snapshot_comes_back(journal: SqlJournal) -> None:
    journal.append(records(1, 30), NOTHING)
    for seq in (10, 20, 30):
        journal.save_snapshot(snapshot(seq), Past(newest=3, age_s=-1.0))
    assert journal.latest_snapshot() == snapshot(30)
    assert journal.latest_snapshot(until_s=29.9) == snapshot(20)
    assert journal.latest_snapshot(until_s=20.0) == snapshot(20)
    assert journal.latest_snapshot(until_s=9.0) is None


def test_what_no_kept_snapshot_needs_is_retired(journal: SqlJournal) -> None:
    journal.append(records(1, 30), NOTHING)
    journal.save_snapshot(snapshot(10), NEWEST_TWO)
    assert [r.seq for r in journal.records()] == list(range(1, 31)), "the beginning is kept"
    journal.save_snapshot(snapshot(20), NEWEST_TWO)
    assert [r.seq for r in journal.records(after=10)] == list(range(11, 31))
    journal.save_snapshot(snapshot(30), NEWEST_TWO)
    assert [r.seq for r in journal.records(after=20)] == list(range(21, 31))
    assert journal.latest_snapshot(until_s=19.0) is None


def test_the_past_is_kept_by_age(journal: SqlJournal) -> None:
    """However often a server is stopped and started, yesterday can be rebuilt; after a week it is forgotten."""
    times_s = [1e9 + hour * 3_600.0 + turn * 60.0 for hour in range(24 * 9) for turn in range(2)]
    for seq, at_s in enumerate(times_s, start=1):
        journal.append([record(seq, at_s)], NOTHING)
        journal.save_snapshot(Snapshot(seq, at_s, {"queue": b"%d" % seq}))
    day_s, end_s = 86_400.0, times_s[-1]
    for ago_s in (0.0, 3_600.0, day_s, 3 * day_s, 5.9 * day_s):
        until_s = end_s - ago_s
        found = journal.latest_snapshot(until_s)
        assert found is not None, f"{ago_s / day_s:g} days ago"
        last = [r.seq for r in journal.records(found.seq, until_s)][-1:] or [found.seq]
        assert last == [sum(at_s <= until_s for at_s in times_s)]
    assert journal.latest_snapshot(end_s - 7.1 * day_s) is None
    with pytest.raises(JournalFailure, match="the past is kept from"):
        next(journal.records())
    with journal._reading() as connection:
        kept = connection.scalars(sa.select(SNAPSHOTS.c.seq).distinct()).all()
    assert len(kept) < 40


@pytest.mark.parametrize("past", [Past(records=100), Past(bytes=3_000)], ids=["records", "bytes"])
def test_a_busy_past_is_kept_as_far_as_it_is_small(journal: SqlJournal, past: Past) -> None:
    """The disk is not filled, however much happens in an hour; the two newest are always kept."""
    for n in range(20):
        journal.append(records(50 * n + 1, 50 * n + 50), NOTHING)
        journal.save_snapshot(Snapshot(50 * (n + 1), 1e9 + 7_200.0 * n, {"queue": b""}), past)
    with journal._reading() as connection:
        (count,) = connection.execute(sa.select(sa.func.count()).select_from(JOURNAL)).one()
    assert 50 <= count <= 100


@pytest.mark.parametrize("after", [0, 9])
def test_retired_records_are_not_passed_over_in_silence(journal: SqlJournal, after: int) -> None:
    journal.append(records(1, 20), NOTHING)
    journal.save_snapshot(snapshot(10), LAST_ONLY)
    with pytest.raises(
        JournalFailure, match=r"the past is kept from 1970-01-01 .*:10 on, not before"
    ):
        next(journal.records(after=after))
    assert [r.seq for r in journal.records(after=10)] == list(range(11, 21))


def test_a_snapshot_taken_twice_is_one(journal: SqlJournal) -> None:
    journal.append(records(1, 5), NOTHING)
    journal.save_snapshot(Snapshot(5, 5.0, {"queue": b"old", "placer/gone": b""}))
    journal.save_snapshot(snapshot(5))
    assert journal.latest_snapshot() == snapshot(5)


def test_after_everything_is_retired_seqs_still_go_up(store: Store) -> None:
    journal = store.open()
    journal.append(records(1, 5), NOTHING)
    journal.save_snapshot(snapshot(5), LAST_ONLY)
    journal.close()
    journal = store.open()
    with pytest.raises(JournalFailure, match="record 5 after 5"):
        journal.append([record(5)], NOTHING)
    journal.append([record(6)], NOTHING)
    assert [r.seq for r in journal.records(after=5)] == [6]
    journal.close()


def test_a_damaged_snapshot_is_passed_over_for_the_one_before(
    store: Store, journal: SqlJournal
) -> None:
    journal.append(records(1, 30), NOTHING)
    journal.save_snapshot(snapshot(10))
    journal.save_snapshot(snapshot(20))
    torn = zlib.compress(b"state 20")[:-3]
    store.tamper(SNAPSHOTS.update().where(SNAPSHOTS.c.seq == 20).values(blob=torn))
    assert journal.latest_snapshot() == snapshot(10)
    assert [r.seq for r in journal.records(after=10)] == list(range(11, 31))
    store.tamper(SNAPSHOTS.update().values(blob=torn))
    with pytest.raises(JournalFailure, match="every snapshot is damaged"):
        journal.latest_snapshot()


def test_a_snapshot_too_large_for_a_row_is_left_out(
    journal: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes on, by the snapshot before and all records since."""
    journal.append(records(1, 30), NOTHING)
    journal.save_snapshot(snapshot(10))
    monkeypatch.setattr(snapshots, "MOST_BLOB_BYTES", 3)
    journal.save_snapshot(snapshot(20))
    journal.append(records(31, 33), NOTHING)
    assert journal.latest_snapshot() == snapshot(10)
    assert [r.seq for r in journal.records(after=10)] == list(range(11, 34))


def test_a_snapshot_that_lacks_a_machine_is_passed_over(store: Store, journal: SqlJournal) -> None:
    """Half a state is worse than an older one."""
    journal.append(records(1, 30), NOTHING)
    for seq in (10, 20):
        journal.save_snapshot(snapshot(seq))
    lost = (SNAPSHOTS.c.seq == 20) & (SNAPSHOTS.c.machine == "placer/east")
    store.tamper(SNAPSHOTS.delete().where(lost))
    assert journal.latest_snapshot() == snapshot(10)
    store.tamper(SNAPSHOTS.delete().where(SNAPSHOTS.c.machine == "placer/east"))
    with pytest.raises(JournalFailure, match="every snapshot is damaged"):
        journal.latest_snapshot()


# --- audit tables ---------------------------------------------------------------------------------


def test_history_of_a_job_is_oldest_first_and_outlives_snapshots(journal: SqlJournal) -> None:
    lines = [
        HistoryRow(1.0, "j1", "submitted", "by ada"),
        HistoryRow(1.0, "j2", "submitted", "by bob"),
        HistoryRow(0.5, "j1", "pending", "“no room”", '{"free":0}'),
        HistoryRow(3.0, "j1", "started", "on e1"),
    ]
    journal.append(records(1, 2), Audit(history=lines[:2]))
    journal.append(records(3, 4), Audit(history=lines[2:]))
    journal.save_snapshot(snapshot(4), LAST_ONLY)
    assert journal.history("j1") == [lines[0], lines[2], lines[3]]
    assert journal.history("j1", limit=2) == [lines[2], lines[3]], "the newest lines"
    assert journal.history("j10") == []


def test_attempts_that_overlap_a_period(journal: SqlJournal) -> None:
    early = attempt("j1", 1, 0.0, 10.0)
    late = attempt("j1", 2, 20.0, 30.0)
    other = attempt("j2", 1, 0.0, 40.0)
    journal.append([record(1)], Audit(attempts=[late, other, early]))
    assert journal.attempts(0.0, 100.0) == [early, other, late]
    assert journal.attempts(10.0, 20.0) == [other]
    assert journal.attempts(9.9, 20.1) == [early, other, late]
    assert journal.attempts(40.0, 50.0) == []
    assert journal.attempts_of("j1") == [early, late]


def test_an_attempt_or_job_written_twice_is_one_and_the_later_says_what(
    journal: SqlJournal,
) -> None:
    journal.append([record(1)], Audit(attempts=[attempt("j1", 1, 0.0, 10.0)]))
    corrected = attempt("j1", 1, 0.0, 11.0)
    job = JobRow("j1", 1, 11.0, '{"state":"finished"}')
    journal.append([record(2)], Audit(attempts=[corrected], jobs=[job]))
    journal.append([record(3)], Audit(attempts=[corrected], jobs=[job]))
    assert journal.attempts_of("j1") == [corrected]
    assert journal.finished_jobs() == [job]


def test_finished_jobs_are_listed_newest_first_page_by_page(journal: SqlJournal) -> None:
    jobs = [JobRow(f"j{n}", n, 1000.0 - n, f'{{"n":{n}}}') for n in range(1, 8)]
    journal.append([record(1)], Audit(jobs=jobs[::2] + jobs[1::2]))
    listed: list[JobRow] = []
    cursor = None
    while page := journal.finished_jobs(cursor, limit=3):
        listed += page
        cursor = page[-1].number
    assert listed == jobs[::-1]
    assert journal.finished_job("j3") == jobs[2]
    assert journal.finished_job("j9") is None


def finished(number: int, tenant: str) -> JobRow:
    others = {"cause": "a NUL: \0", "labels": {"tenant": "b"}}
    view = msgspec.json.encode({"id": f"j{number}", "tenant": tenant} | others).decode()
    return JobRow(f"j{number}", number, 1.0, view)


def test_finished_jobs_of_some_tenants_are_listed_as_if_there_were_no_others(
    journal: SqlJournal,
) -> None:
    names = ["a", "a/b", "A", "%", "a_", "großes 'Haus'", 'a\\"b']
    jobs = [finished(n, random.Random(n).choice(names)) for n in range(1, 300)]
    journal.append([record(1)], Audit(jobs=jobs))
    for wanted in ([], ["none"], [names[5]], [names[6]], ["a_", "%"], ["%"], names, ["a", "none"]):
        theirs = [job for job in jobs[::-1] if msgspec.json.decode(job.view)["tenant"] in wanted]
        assert bool(theirs) == (wanted not in ([], ["none"]))
        found: list[JobRow] = []
        cursor = None
        while page := journal.finished_jobs(cursor, 7, wanted):
            assert len(page) == min(7, len(theirs) - len(found))
            found += page
            cursor = page[-1].number
        assert found == theirs, wanted
    many = [f"tenant {n}" for n in range(40_000)]
    assert [job.number for job in journal.finished_jobs(None, 1, [*many, "a"])] == [
        max(job.number for job in jobs if '"a"' in job.view)
    ]


def test_finished_jobs_of_tenants_are_found_without_a_look_at_those_of_others(store: Store) -> None:
    with contextlib.closing(store.open()) as journal:
        jobs = [finished(n, "others" if n % 500 else "few") for n in range(1, 20_001)]
        journal.append([record(1)], Audit(jobs=jobs))
    with store.engine.connect() as connection:
        query = page(connection.dialect, None, 5, ["few", "none"])
        told = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN ANALYZE"
        sql = query.compile(connection, compile_kwargs={"literal_binds": True})
        plan = "\n".join(str(row[-1]) for row in connection.execute(sa.text(f"{told} {sql}")))
    assert "finished_jobs_tenant" in plan
    assert "SCAN finished_jobs" not in plan, plan
    assert "Seq Scan on finished_jobs" not in plan, plan
    assert not any(int(rows) > 10 for rows in re.findall(r"actual .* rows=(\d+)", plan)), plan


def test_jobs_that_ended_under_an_older_version_are_found_by_their_tenant(store: Store) -> None:
    store.open().close()
    with store.engine.begin() as connection:
        connection.execute(sa.text("DROP INDEX finished_jobs_tenant"))
        connection.execute(sa.update(VERSION).values(version_num="0015"))
        insert = (
            "INSERT INTO finished_jobs (number, job, finish_s, view) VALUES (1, 'j1', 1, :view)"
        )
        connection.execute(sa.text(insert), {"view": finished(1, "a").view})
    for read_only in (True, False, True):  # as a standby before the upgrade, in it, and after it
        with contextlib.closing(store.open(read_only=read_only)) as journal:
            assert journal.finished_jobs(None, 9, ["a"]) == [finished(1, "a")]
            assert journal.finished_jobs(None, 9, ["b"]) == []
    with store.engine.connect() as connection:
        assert connection.scalar(sa.select(VERSION.c.version_num)) == VERSIONS[-1]


def test_readers_do_not_wait_for_the_writer(journal: SqlJournal) -> None:
    """Other threads read while one writes, and see whole transactions only."""
    stop = threading.Event()
    torn: list[str] = []

    def read() -> None:
        while not stop.is_set():
            pairs = len(journal.history("j1"))
            if pairs % 2:
                torn.append(f"{pairs} lines")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    line = HistoryRow(1.0, "j1", "kind", "text")
    for seq in range(1, 300):
        journal.append([record(seq)], Audit(history=[line, line]))
    stop.set()
    for thread in readers:
        thread.join()
    assert torn == []


# --- who may open it ------------------------------------------------------------------------------


def test_one_process_at_a_time_may_write(store: Store, journal: SqlJournal) -> None:
    journal.append([record(1)], NOTHING)
    script = """
        import sys
        from topmast.adapters.store import open_journal
        from topmast.model.errors import Conflict
        try:
            open_journal(sys.argv[1])
        except Conflict as refusal:
            print(refusal)
    """
    refusal = run_python(script, store.target)
    assert "in use by another process" in refusal
    assert "pid" in refusal
    if "sqlite" in store.target:
        assert f"(pid {os.getpid()})" in refusal


def test_one_process_does_not_own_it_twice(store: Store, journal: SqlJournal) -> None:
    with pytest.raises(Conflict, match="in use"):
        store.open()
    journal.append([record(1)], NOTHING)
    journal.close()
    store.open().close()


def test_a_reader_needs_no_ownership_and_sees_what_is_committed(
    store: Store, journal: SqlJournal
) -> None:
    journal.append([record(1)], NOTHING)
    reading = store.open(read_only=True)
    assert [r.seq for r in reading.records()] == [1]
    journal.append([record(2)], NOTHING)
    assert [r.seq for r in reading.records()] == [1, 2]
    with pytest.raises(JournalFailure, match="reading only"):
        reading.append([record(1)], NOTHING)
    reading.close()
    journal.append([record(3)], NOTHING)


def test_reading_goes_on_undisturbed_while_records_are_retired(
    store: Store, journal: SqlJournal
) -> None:
    journal.append(records(1, 2000), NOTHING)
    reading = store.open(read_only=True)
    found = reading.records()
    next(found)
    journal.save_snapshot(snapshot(2000), LAST_ONLY)
    assert [r.seq for r in found] == list(range(2, 2001))
    reading.close()


def test_reading_after_the_owner_has_gone(store: Store) -> None:
    journal = store.open()
    journal.append([record(1)], NOTHING)
    journal.close()
    reading = store.open(read_only=True)
    assert [r.seq for r in reading.records()] == [1]
    reading.close()
    store.open().close()


def test_a_newer_version_is_refused(store: Store) -> None:
    """It keeps no lock, also not while its error is looked at."""
    store.open().close()
    store.tamper(VERSION.update().values(version_num="9999"))
    kept = []
    for read_only in (False, True):
        with pytest.raises(WrittenByNewer, match=NEWER) as error:
            store.open(read_only=read_only)
        kept.append(error)
    store.tamper(VERSION.update().values(version_num=VERSIONS[-1]))
    store.open().close()
    assert len(kept) == 2


def test_what_a_newer_program_writes_later_is_not_read(store: Store) -> None:
    """It took over while the journal was open: its records may have forms that are not known here."""
    journal = store.open()
    journal.append([record(1)], NOTHING)
    journal.save_snapshot(snapshot(1))
    reading = store.open(read_only=True)
    assert [r.seq for r in reading.records(0)] == [1]
    store.tamper(VERSION.update().values(version_num="9999"))
    for read in (reading.latest_snapshot, lambda: list(reading.records(1))):
        with pytest.raises(WrittenByNewer, match=NEWER):
            read()
    reading.close()
    journal.close()


def test_another_programs_database_is_refused(store: Store) -> None:
    if "sqlite" in store.target:
        Path(store.target).parent.mkdir()
    store.tamper(sa.text("CREATE TABLE recipes (name TEXT)"))
    with pytest.raises(TopmastError, match="database of another program"):
        store.open()


def test_a_closed_journal_says_so(store: Store) -> None:
    journal = store.open()
    journal.close()
    journal.close()
    with pytest.raises(JournalFailure, match="closed"):
        journal.append([record(1)], NOTHING)
    with pytest.raises(JournalFailure, match="closed"):
        journal.history("j1")


# --- what may happen to a writer ------------------------------------------------------------------

WRITER = """
    import sys
    from topmast.adapters.store import open_journal
    from topmast.ports import Audit, AttemptRow, HistoryRow, Record, Snapshot
    journal = open_journal(sys.argv[1])
    seq = sum(1 for _ in journal.records())
    print("ready", flush=True)
    while True:
        batch = [Record(seq + n, 1.0, "queue", b"e" * 500, b"f") for n in range(1, 4)]
        lines = [HistoryRow(1.0, f"j{r.seq}", "kind", "text") for r in batch]
        journal.append(batch, Audit(history=lines))
        seq += 3
        print(seq, flush=True)
"""


def act(verb: str, **fields: object) -> ActRow:
    texts = {"actor": "user:ann", "via": "token", "address": "10.0.0.5", "request": "r1"} | fields
    return ActRow(verb=verb, **texts)  # type: ignore[arg-type]


def test_acts_come_newest_first_through_every_filter(journal: SqlJournal) -> None:
    """The audit log is kept with the records of its transaction, or alone, and each filter narrows it."""
    first = act("submit", object="j1", tenant="vision", after='{"state":"PENDING"}', at_s=1.0)
    second = act("cancel", object="j1", tenant="vision", actor="user:bob", at_s=2.0)
    third = act("drain", object="h1", outcome="refused: 100% of it", at_s=3.0)
    journal.append(records(1, 1), Audit(acts=[first]))
    journal.append([], Audit(acts=[second, third]))
    cases: list[tuple[ActFilter, list[str]]] = [
        (ActFilter(), ["drain", "cancel", "submit"]),
        (ActFilter(actor="user:bob"), ["cancel"]),
        (ActFilter(verb="submit"), ["submit"]),
        (ActFilter(object="j1"), ["cancel", "submit"]),
        (ActFilter(outcome="refused"), ["drain"]),
        (ActFilter(outcome="refused: 1__%"), []),
        (ActFilter(tenants=("vision",)), ["cancel", "submit"]),
        (ActFilter(tenants=()), []),
        (ActFilter(since_s=2.0, until_s=3.0), ["cancel"]),
        (ActFilter(limit=1), ["drain"]),
        (ActFilter(before_id=2), ["submit"]),
    ]
    for wanted, verbs in cases:
        assert [row.verb for row in journal.acts(wanted)] == verbs, wanted
    assert journal.acts(ActFilter(verb="submit")) == [replace(first, id=1)]


def test_an_act_on_many_jobs_is_kept_and_found(journal: SqlJournal) -> None:
    """One request may bring 100,000 jobs of several tenants, whose numbers make no short ranges."""
    rng = random.Random(7)
    many = ",".join(f"j{rng.randrange(10**6)}" for _ in range(50_000))
    journal.append(
        records(1, 1), Audit(acts=[act("submit", object=many), act("submit", object="j1")])
    )
    assert [row.object for row in journal.acts(ActFilter(object=many))] == [many]
    assert [row.id for row in journal.acts(ActFilter(object="j1"))] == [2]


def test_an_act_and_what_it_keeps_are_one_transaction(journal: SqlJournal) -> None:
    """So that no change of an option goes without its line in the audit log, nor a line alone."""
    journal.set_option("webhooks", "[]")
    journal.append([], Audit(acts=[act("put webhook")], options={"webhooks": "[1]", "cursor": "7"}))
    assert (journal.option("webhooks"), journal.option("cursor")) == ("[1]", "7")
    broken = act("remove webhook", actor=None)  # a line that the table does not take
    with pytest.raises(JournalFailure):
        journal.append([], Audit(acts=[broken], options={"webhooks": "[]"}))
    assert journal.option("webhooks") == "[1]"
    assert [row.verb for row in journal.acts(ActFilter())] == ["put webhook"]


def test_killed_at_any_moment_it_keeps_what_it_acknowledged_and_nothing_half(
    store: Store,
) -> None:
    chance = random.Random(20)
    for _ in range(8):
        acknowledged = kill_a_writer(store.target, after_acks=chance.randrange(1, 400))
        journal = store.open(claim=Claim(waits=True))  # a database may notice it a moment later
        seqs = [r.seq for r in journal.records()]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= acknowledged
        assert len(seqs) % 3 == 0, "half a transaction"
        assert all(len(journal.history(f"j{seq}")) == 1 for seq in seqs[-9:])
        assert journal.history(f"j{len(seqs) + 1}") == []
        journal.close()


def test_killed_while_the_database_is_made_the_next_one_makes_it(store: Store) -> None:
    """Creating the tables is one transaction."""
    chance = random.Random(21)
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), store.target])
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=chance.uniform(0.15, 0.4))
        process.kill()
        process.wait()
    journal = store.open()
    seqs = [r.seq for r in journal.records()]
    assert seqs == list(range(1, len(seqs) + 1))
    journal.append([record(len(seqs) + 1)], NOTHING)
    journal.close()


def kill_a_writer(target: str, after_acks: int) -> int:
    """Start a writer, kill it at a moment of its life, return what it had acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), target], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = 0
    acknowledged = 0
    for line in process.stdout:
        if line.strip().isdigit():
            acknowledged = int(line)
            lines += 1
        if lines == after_acks:
            process.kill()
    process.wait()
    process.stdout.close()
    return acknowledged


def run_python(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- files: SQLite alone --------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"hello\n" * 1000, b"\0" * 8192], ids=["text", "zeros"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "journal.sqlite3"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(TopmastError, match="not a SQLite database") as refusal:
            open_journal(path, read_only=read_only)
        assert str(path) in str(refusal.value)
    assert path.read_bytes() == content


def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(TopmastError, match="not a file"):
        open_journal(tmp_path)


def test_reading_where_nothing_is_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no journal here"):
        open_journal(tmp_path / "journal.sqlite3", read_only=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(TopmastError, match="no journal can be at"):
        open_journal(url)


def test_a_damaged_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    journal = open_journal(path)
    journal.append([Record(n, 1.0, "queue", b"x" * 1000, b"") for n in range(1, 500)], NOTHING)
    journal.close()
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    journal = open_journal(path, read_only=True)
    with pytest.raises(JournalFailure, match="damaged"):
        list(journal.records())
    journal.close()


FILL = """
    import sys
    from topmast.adapters.store import JournalFailure, open_journal
    from topmast.ports import Audit, Record
    limit_bytes = int(sys.argv[2])
    if limit_bytes:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
    journal = open_journal(sys.argv[1])
    seq = 0
    try:
        while seq < 100_000:
            journal.append([Record(seq + 1, 1.0, "queue", b"e" * 2000, b"f")], Audit())
            seq += 1
            print(seq, flush=True)
    except JournalFailure as failure:
        print(failure, flush=True)
"""


def test_a_full_disk_raises_and_loses_nothing_committed(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        path = disk / "journal.sqlite3"
        acknowledged = fill(path, limit_bytes=0)
        subprocess.run(["mount", "-o", "remount,size=32m", str(disk)], check=True)
        assert_kept(path, acknowledged)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_file_that_may_not_grow_raises_and_loses_nothing_committed(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    assert_kept(path, fill(path, limit_bytes=2_000_000))


def fill(path: Path, limit_bytes: int) -> int:
    *seqs, failure = run_python(FILL, str(path), str(limit_bytes)).splitlines()
    assert str(path) in failure
    assert "full" in failure
    return int(seqs[-1])


def assert_kept(path: Path, acknowledged: int) -> None:
    journal = open_journal(path)
    assert acknowledged > 100
    seqs = [r.seq for r in journal.records()]
    assert seqs == list(range(1, acknowledged + 1))
    journal.append([record(acknowledged + 1)], NOTHING)
    journal.close()
