"""A process that stands by while its database is away."""

import subprocess
import sys
import time

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
