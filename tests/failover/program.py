"""The server of a failover test: the real one, which notes its orders, and stops where it is told to.

    python -m tests.failover.program FOLDER MUTANT up ...

``FOLDER/orders`` gets a line for each order that an engine carries out: process, epoch, order. While
there is a file ``FOLDER/stall.PID`` the process halts itself between the decision that an order may leave
and the order. ``FOLDER/clock`` says by how much the clock of the machine is wrong for a process that starts.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from topmast.adapters import clock
from topmast.adapters.engines.leader import LeaderFence
from topmast.adapters.store import postgresql
from topmast.app import main
from topmast.app.process import Process
from topmast.ports import Engine, Orders

FOLDER, MUTANT = (Path(sys.argv[1]), sys.argv[2]) if __name__ == "__main__" else (Path(), "")
NO_FENCE, SAME_EPOCH, NO_EPOCH = "no-fence", "same-epoch", "no-epoch"
MUTANTS = (NO_FENCE, SAME_EPOCH, NO_EPOCH)
_order, _carry_out, _wall_s = Process._order, Orders.order, clock.wall_s
_now = threading.local()


def order(process: Process, engine: Engine, message: Any) -> None:
    """The order of a process, which may be halted right before it."""
    stall = FOLDER / f"stall.{os.getpid()}"
    if stall.exists():
        stall.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)
    _now.epoch = process.leader
    if MUTANT == NO_EPOCH:
        process.leader = 0
    _order(process, engine, message)
    process.leader = _now.epoch


def carry_out(engine: Orders, message: Any) -> None:
    """The order that an engine has admitted."""
    if isinstance(engine, Engine):
        line = f"{os.getpid()} {_now.epoch} {type(message).__name__}\n"
        with (FOLDER / "orders").open("a") as file:
            file.write(line)
    _carry_out(engine, message)


def skewed_s(skew_s: float) -> float:
    """The time of a machine with a wrong clock."""
    return _wall_s() + skew_s


def set_up() -> None:
    """Put all that in its place."""
    Process._order = order  # type: ignore[assignment,method-assign]
    Orders.order = carry_out  # type: ignore[assignment,method-assign]
    file = FOLDER / "clock"
    skew_s = float(file.read_text()) if file.exists() else 0.0
    clock.wall_s = lambda: skewed_s(skew_s)
    if MUTANT == NO_FENCE:
        LeaderFence.admits = lambda fence, leader: True  # type: ignore[assignment,method-assign]
    if MUTANT == SAME_EPOCH:
        postgresql._TAKE = postgresql._TAKE.replace(
            "GREATEST(epoch, %s) + 1", "GREATEST(epoch, %s, 1)"
        )


if __name__ == "__main__":
    set_up()
    sys.argv[1:3] = []
    main()
