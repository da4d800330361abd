"""One leader at a time: each write proves it, and the next one takes over from a leader that hangs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from tests.support.stores import Store
from topmast.adapters.clock import elapsed_s
from topmast.adapters.store import (
    Claim,
    JournalFailure,
    LeadershipLost,
    SqlJournal,
    WrittenByNewer,
)
from topmast.adapters.store import postgresql as pg
from topmast.adapters.store.tables import JOURNAL, LEADER, VERSION
from topmast.model.errors import Conflict, InvalidInput
from topmast.ports import Audit, HistoryRow, Record, Snapshot

pytestmark = pytest.mark.always

NOTHING = Audit()
ADA, BOB = Claim("ada:1", "http://127.0.0.1:1", "f1"), Claim("bob:2", "http://127.0.0.1:2", "f2")


def record(seq: int) -> Record:
    return Record(seq, float(seq), "queue", b"{}", b"[]")


@contextmanager
def watching(database: Store) -> Iterator[pg.Watch]:
    watch = pg.Watch(sa.make_url(database.target), "the database")
    yield watch
    watch.close()


# --- both kinds of database -----------------------------------------------------------------------


def test_each_leader_has_a_higher_epoch_and_says_what_it_is(store: Store) -> None:
    epochs = []
    for claim in (ADA, BOB, ADA):
        journal = store.open(claim=claim)
        found = journal.leader()
        assert (found.holder, found.address, found.folder) == (
            claim.holder, claim.address, claim.folder,
        )  # fmt: skip
        assert found.epoch == journal.epoch
        assert journal.leads()
        epochs.append(journal.epoch)
        journal.close()
    assert epochs == [1, 2, 3]


def test_the_epoch_is_above_what_engines_remember(store: Store) -> None:
    """An old copy of the database must not make engines refuse every order."""
    journal = store.open(claim=Claim(above=41))
    assert journal.epoch == 42
    journal.close()
    journal = store.open(claim=Claim(above=7))
    assert journal.epoch == 43
    journal.close()


def test_each_record_has_the_epoch_of_its_leader(store: Store) -> None:
    for seq in (1, 2):
        journal = store.open()
        journal.append([record(seq)], NOTHING)
        journal.close()
    with store.engine.connect() as connection:
        rows = connection.execute(sa.select(JOURNAL.c.seq, JOURNAL.c.epoch)).all()
    assert sorted(rows) == [(1, 1), (2, 2)]


def test_a_record_of_a_replaced_leader_stops_a_reader(store: Store) -> None:
    journal = store.open(claim=Claim(above=5))
    journal.append([record(1), record(2)], NOTHING)
    store.tamper(JOURNAL.update().where(JOURNAL.c.seq == 2).values(epoch=5))
    found = journal.records()
    assert next(found).seq == 1
    with pytest.raises(JournalFailure, match="record 2 is of a leader that was replaced"):
        next(found)
    journal.close()


# --- PostgreSQL -----------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["append", "snapshot", "renew"])
def test_a_leader_that_was_replaced_writes_nothing(database: Store, act: str) -> None:
    journal = database.open()
    journal.append([record(1)], NOTHING)
    database.tamper(LEADER.update().values(epoch=2))
    journal._lease._proven_s = 0.0  # type: ignore[attr-defined]
    line = HistoryRow(2.0, "j1", "started", "started")
    acts: dict[str, Callable[[], None]] = {
        "append": lambda: journal.append([record(2)], Audit(history=[line])),
        "snapshot": lambda: journal.save_snapshot(Snapshot(1, 1.0, {"queue": b""})),
        "renew": journal.renew,
    }
    with pytest.raises(LeadershipLost, match="another process leads since epoch 1"):
        acts[act]()
    with pytest.raises(JournalFailure, match="an earlier write failed"):
        journal.append([record(2)], NOTHING)
    assert journal.history("j1") == []
    assert [found.seq for found in journal.records()] == [1]
    assert journal.latest_snapshot() is None
    journal.close()


def test_a_second_leader_is_refused_by_name_or_waits(database: Store) -> None:
    first = database.open(claim=ADA)
    with pytest.raises(Conflict, match=r"in use by another process \(ada:1 at http.*--standby"):
        database.open(claim=BOB)
    won: list[SqlJournal] = []
    waits = Claim(BOB.holder, BOB.address, BOB.folder, waits=True)
    waiting = threading.Thread(target=lambda: won.append(database.open(claim=waits)))
    waiting.start()
    time.sleep(0.3)
    assert not won
    first.append([record(1)], NOTHING)
    first.close()
    waiting.join(5)
    assert won[0].epoch == 2
    assert won[0].leader().holder == "bob:2"
    won[0].append([record(2)], NOTHING)
    won[0].close()


def test_a_candidate_that_is_older_than_the_leader_waits_no_more(
    database: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would only keep the candidates behind it from leading."""
    monkeypatch.setattr(pg, "LOCK_WAIT_S", 0.1)
    first = database.open(claim=ADA)
    refused: list[str] = []

    def wait() -> None:
        with pytest.raises(WrittenByNewer) as error:
            database.open(claim=Claim(waits=True))
        refused.append(str(error.value))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.3)
    assert waiting.is_alive()
    database.tamper(VERSION.update().values(version_num="9999"))
    waiting.join(10)
    assert "schema 9999" in refused[0]
    first.close()


def test_while_it_waits_no_transaction_is_open(database: Store) -> None:
    """It may wait for weeks: an open transaction would keep all dead rows in the database."""
    first = database.open()
    waiting = threading.Thread(target=lambda: database.open(claim=Claim(waits=True)).close())
    waiting.start()
    query = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'"
    time.sleep(0.3)
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql(query).scalar_one() == 0
    first.close()
    waiting.join(5)


def test_a_leader_that_proves_nothing_is_ended_and_one_that_does_is_not(database: Store) -> None:
    journal = database.open()
    with watching(database) as watch:
        assert not watch.end_expired()
        time.sleep(1.1)
        assert not watch.end_expired()
        database.tamper(LEADER.update().values(renewed_at=sa.text("now() - interval '4 s'")))
        assert watch.end_expired()
        with pytest.raises(JournalFailure):
            journal.append([record(1)], NOTHING)
        next_one = database.open()
        assert next_one.epoch == 2
        assert not watch.end_expired()
        next_one.close()
    journal.close()


def test_a_leader_that_waits_for_the_database_is_not_ended(database: Store) -> None:
    """A commit of a large batch takes longer than a lease; the leader is alive all the while."""
    journal = database.open()
    assert journal._writer is not None
    sleeping = threading.Thread(
        target=lambda: journal._writer and journal._writer.exec_driver_sql("SELECT pg_sleep(1.6)")
    )
    sleeping.start()
    time.sleep(1.3)
    database.tamper(LEADER.update().values(renewed_at=sa.text("now() - interval '4 s'")))
    with watching(database) as watch:
        assert not watch.end_expired()
    sleeping.join()
    journal.close()


def test_a_commit_is_hinted_at(database: Store) -> None:
    journal = database.open()
    with watching(database) as watch:
        watch.leader()
        begun_s = time.monotonic()
        threading.Timer(0.3, lambda: journal.append([record(1)], NOTHING)).start()
        watch.wait(20.0)
        assert time.monotonic() - begun_s < 10.0
    journal.close()


def test_trust_ends_before_the_lease_and_a_proof_restores_it(database: Store) -> None:
    assert pg.TRUST_S < pg.LEASE_S
    journal = database.open()
    lease = journal._lease
    assert isinstance(lease, pg.DatabaseLease)
    assert journal.leads()
    lease._proven_s = elapsed_s() - pg.TRUST_S
    assert not journal.leads()
    journal.renew()
    assert journal.leads()
    journal.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"system": "1"}, "is a copy of the database that was written before"),
        ({"timeline": 99}, "is an old primary"),
    ],
)
def test_only_the_database_that_was_written_is_written(
    database: Store, change: dict[str, object], says: str
) -> None:
    database.open().close()
    database.tamper(LEADER.update().values(**change))
    with pytest.raises(JournalFailure, match=says):
        database.open()


def test_a_database_that_loses_commits_is_refused(database: Store) -> None:
    name = sa.make_url(database.target).database
    database.tamper(sa.text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    with pytest.raises(InvalidInput, match="has synchronous_commit off"):
        database.open()


def test_a_pooler_is_refused() -> None:
    """It answers with a process of the database that is another for each transaction."""

    class Lent:
        class info:
            backend_pid = 1

    class Cursor:
        def execute(self, _statement: str) -> "Cursor":
            return self

        def fetchone(self) -> tuple[int, bool, str, str]:
            return (2, False, "on", "on")

    with pytest.raises(InvalidInput, match="behind a connection pooler"):
        pg._require_safe(Lent(), Cursor(), "the database")
