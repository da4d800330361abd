"""The clock of the machine is set while a server runs, or while it is down.

The server is a real process; what it takes for the machine's clock is off by what a file says. Hosts
and tasks have the true time, as if the clock had been set after they looked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.live import Server, Tuning, eventually, until_state
from topmast import Client

FLEET = """
regions:
  north:
    clusters:
      a: {hosts: [{count: 1, gpu: A, gpus: 4}]}
"""
SETTINGS = {"min_runtime_s": "0", "backoff_s": "2", "suspect_s": "1"}
OFF = """
import pathlib, time
from topmast.adapters import clock
off = pathlib.Path({file!r})
clock.wall_s = lambda: time.time() + float(off.read_text())
from topmast.app import main
main()
"""
HOUR_S = 3600.0
HOLD = "while true; do sleep 0.05 || true; done"


class Off(Tuning):
    """A server that sees a clock which is off by what a file says."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    @property
    def program(self) -> str:
        """The server's main program."""
        return OFF.format(file=self.file)


class Machine:
    """A server, and the clock that it sees."""

    def __init__(self, folder: Path) -> None:
        self.off = folder / "off"
        self.set(0.0)
        (folder / "fleet.yaml").write_text(FLEET)
        tuning = Off(str(self.off))
        self.server = Server(folder / "state", folder / "fleet.yaml", SETTINGS, tuning)

    def set(self, by_s: float) -> None:
        """Have the clock say so much more than the true time; it is never seen half written."""
        part = self.off.with_suffix(".part")
        part.write_text(f"{by_s}")
        part.replace(self.off)


@contextmanager
def machine_in(folder: Path) -> Iterator[tuple[Machine, Client]]:
    """A machine whose server is up."""
    machine = Machine(folder)
    try:
        with machine.server.up() as client:
            yield machine, client
    finally:
        machine.server.end()


def submit(client: Client, run: str, **more: object) -> str:
    """A job on one GPU."""
    document = {"name": "job", "run": run, "resources": {"accelerators": "A:1"}, **more}
    return client.submit({"checkpoint": {"grace": 1}, **document}).id


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_step_of_the_clock_neither_ends_nor_delays_anything(
    tmp_path: Path, step_s: float
) -> None:
    """Retries and time limits come when they were due; what had time left has it; launches work."""
    with machine_in(tmp_path) as (machine, client):
        long = submit(client, HOLD, time_limit=600)
        limited = submit(client, HOLD, time_limit=6)
        retried = submit(client, "sleep 1; exit 1", max_restarts=1)
        for job in (long, limited, retried):
            until_state(client, job, "RUNNING")
        machine.set(step_s)
        eventually(lambda: "clock of this machine was set" in machine.server.log_tail(), "a note")
        late = submit(client, "sleep 1")
        assert "time limit" in until_state(client, limited, "FAILED").cause
        assert until_state(client, retried, "FAILED").attempts == 2
        view = until_state(client, late, "SUCCEEDED")
        assert view.finish_s is not None
        assert 0 < view.finish_s - view.submit_s < 60
        assert until_state(client, long, "RUNNING").attempts == 1


def test_a_restart_with_the_clock_set_back_goes_on_from_what_was_recorded(tmp_path: Path) -> None:
    """Otherwise what was due would wait for the clock to catch up, and the past would be later than now."""
    with machine_in(tmp_path) as (machine, client):
        first = submit(client, "true")
        before = until_state(client, first, "SUCCEEDED")
        retried = submit(client, "exit 1", max_restarts=1)
        eventually(lambda: client.job(retried).attempts == 1, "it fails once")
        machine.server.kill()
        machine.set(-HOUR_S)
        with machine.server.up() as again:
            assert until_state(again, retried, "FAILED").attempts == 2
            after = until_state(again, submit(again, "true"), "SUCCEEDED")
            assert before.finish_s is not None
            assert after.submit_s > before.finish_s
            assert "behind what was recorded" in machine.server.log_tail()
