"""The clock of a server: set the machine's as you like, time passes as it passes."""

import pytest
from structlog.testing import capture_logs

from topmast.adapters import clock
from topmast.adapters.clock import SLEW, SystemClock

HOUR_S = 3600.0
START_S = 1_700_000_000.0


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.up_s = 1000.0
        self.wall_s = START_S

    def pass_time(self, seconds: float) -> None:
        self.up_s += seconds
        self.wall_s += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine on which clocks of a test run."""
    machine = Machine()
    monkeypatch.setattr(clock, "elapsed_s", lambda: machine.up_s)
    monkeypatch.setattr(clock, "wall_s", lambda: machine.wall_s)
    return machine


def test_time_is_that_of_the_machine(machine: Machine) -> None:
    """As long as nobody sets its clock."""
    ours = SystemClock()
    with capture_logs() as said:
        for _ in range(1000):
            machine.pass_time(0.37)
            assert ours.now() == pytest.approx(machine.wall_s, abs=1e-6)
    assert said == []


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 24 * HOUR_S])
def test_a_clock_that_is_set_moves_no_deadline(machine: Machine, step_s: float) -> None:
    """What was due in ten minutes is due in ten minutes, to 1 %; it is noted once."""
    ours = SystemClock()
    machine.pass_time(5.0)
    began_s = before_s = ours.now()
    machine.wall_s += step_s
    with capture_logs() as said:
        for _ in range(600):
            machine.pass_time(1.0)
            now = ours.now()
            assert now > before_s
            before_s = now
    assert before_s - began_s == pytest.approx(600.0, rel=SLEW * 1.001)
    assert [line["by_s"] for line in said] == [pytest.approx(step_s)]


@pytest.mark.parametrize("asked_every_s", [1.0, 50.0, 3 * HOUR_S])
def test_times_come_back_to_those_of_the_machine(machine: Machine, asked_every_s: float) -> None:
    """Slowly, never further than it, however seldom anyone asks."""
    ours = SystemClock()
    machine.wall_s += 30.0
    for _ in range(int(3 * HOUR_S / asked_every_s) + 2):
        machine.pass_time(asked_every_s)
        assert ours.now() <= machine.wall_s + 1e-6
    assert ours.now() == pytest.approx(machine.wall_s, abs=0.01)


def test_a_start_takes_the_time_of_the_machine(machine: Machine) -> None:
    """A clock that was put right is right from the next start on."""
    SystemClock()
    machine.wall_s += HOUR_S
    assert SystemClock().now() == machine.wall_s


def test_a_start_does_not_go_back(machine: Machine) -> None:
    """Not before what was written down; from there it waits for the machine, and says so."""
    ours = SystemClock()
    recorded_s = START_S + HOUR_S
    with capture_logs() as said:
        ours.not_before(recorded_s)
        assert ours.now() == recorded_s
        machine.pass_time(100.0)
        assert recorded_s + 98.9 < ours.now() < recorded_s + 100.0
        machine.pass_time(100 * HOUR_S)
        ours.now()
        machine.pass_time(HOUR_S)
        assert ours.now() == pytest.approx(machine.wall_s, abs=1.0)
    assert [line["behind_s"] for line in said] == [HOUR_S]
    ours.not_before(START_S)
    assert ours.now() == pytest.approx(machine.wall_s, abs=1.0)
