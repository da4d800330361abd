"""A process that stands by while its database is away."""

import subprocess
import sys
import threading
import time
from typing import NoReturn

import pytest

from tests.support import postgresql
from topmast.adapters.store import Claim, JournalFailure, Keeper, Leader, SqlJournal, open_journal
from topmast.app.standby import Standby
from topmast.policies.options import Profile
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import Follower

PROGRAM = """
import sys, time
from topmast.adapters.store import Claim
from topmast.app.server import configure_logs
from topmast.app.standby import Standby
configure_logs()
def unasked(*given):
    sys.exit("asked without a database")
Standby(
    "postgresql://tests@127.0.0.1:1/topmast", Claim("a test"), unasked, unasked,
    unasked, unasked, unasked,
).start()
time.sleep(60)
"""


def test_a_database_that_is_away_does_not_fill_the_log() -> None:
    """It is tried several times a second, and said once: each server would write 190 MB a day."""
    words = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = next(line for line in process.stderr if "cannot become the leader yet" in line)
        time.sleep(2.5)
        assert process.poll() is None
        process.kill()
        more = process.stderr.read()
    assert "no server answers there" in first
    assert "cannot become the leader yet" not in more
    assert more.count("cannot follow the leader") <= 1


def test_a_process_that_never_saw_its_leader_takes_over() -> None:
    """As after a restart of the database: what is looked at of that leader is in its own journal."""
    with postgresql.server() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        before = open_journal(url, claim=Claim("before"))
        failures: list[BaseException] = []
        epochs: list[int] = []
        led = threading.Event()
        tried = threading.Event()

        def build(journal: SqlJournal) -> Machines:
            if not journal.epoch:
                tried.set()
                raise JournalFailure("it goes away while it is read")
            return Machines(Profile("test"))

        def check(journal: SqlJournal, follower: Follower, leader: Leader) -> None:
            assert journal.option("any") is None
            epochs.append(leader.epoch)

        def lead(journal: SqlJournal, keeper: Keeper, follower: Follower) -> None:
            keeper.close()
            journal.close()
            led.set()

        def fail(error: BaseException) -> NoReturn:
            failures.append(error)
            led.set()
            raise SystemExit

        def unasked(*_: object) -> NoReturn:
            raise AssertionError("it was to show nothing")

        Standby(url, Claim("a test"), build, check, lead, fail, unasked).start()
        assert tried.wait(30)
        before.close()
        assert led.wait(30)
        assert failures == []
        assert epochs == [before.epoch]
