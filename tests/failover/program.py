"""The server of a failover test: the real one, which notes its orders, and stops where it is told to.

    python -m tests.failover.program FOLDER MUTANT up ...

``FOLDER/orders`` gets a line for each order that an engine carries out, where it does so: process, epoch,
order; ``FOLDER/batches`` one for each batch that a region apart takes of the queue. While there is a file
``FOLDER/stall.PID`` the process halts itself between the decision that an order may leave and the order;
with ``FOLDER/hang.PID``, in the middle of it, when it was found that its leader still leads; with
``FOLDER/send.PID``, right before a batch for a region apart leaves. When it goes on it notices a little
late that it leads no more, so that what it was at gets out. ``FOLDER/clock`` says by how much the
clock of the machine is wrong for a process that starts.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from topmast.adapters import clock
from topmast.adapters.engines.leader import LeaderFence
from topmast.adapters.engines.local.engine import LocalEngine
from topmast.adapters.link import Batch, LinkEnd
from topmast.adapters.store import SqlJournal, postgresql
from topmast.app import main, queue, standby
from topmast.app.process import Process
from topmast.app.region import RegionProcess
from topmast.ports import Engine, Orders

FOLDER, MUTANT = (Path(sys.argv[1]), sys.argv[2]) if __name__ == "__main__" else (Path(), "")
NO_FENCE, SAME_EPOCH, NO_EPOCH, NO_HOLD = "no-fence", "same-epoch", "no-epoch", "no-hold"
MUTANTS = (NO_FENCE, SAME_EPOCH, NO_EPOCH, NO_HOLD)
_order, _admitted, _wall_s = Process._order, Orders.order, clock.wall_s
_send, _receive = LinkEnd._send, RegionProcess.receive
_do, _carry_out = LocalEngine._do, LocalEngine._carry_out
_step_down = standby.step_down
_now = threading.local()
halted = threading.Event()
LATE_S = 0.5


def halt(where: str) -> None:
    """Halt this process if it shall halt there."""
    file = FOLDER / f"{where}.{os.getpid()}"
    if file.exists():
        file.unlink()
        halted.set()
        # To this thread: one to the process may stop it when this thread is a few lines further on.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def order(process: Process, engine: Engine, message: Any) -> None:
    """The order of a process, which may be halted right before it."""
    halt("stall")
    _now.epoch = process.leader
    if MUTANT == NO_EPOCH:
        process.leader = 0
    _order(process, engine, message)
    process.leader = _now.epoch


def admitted(engine: Orders, message: Any) -> None:
    """An order that an engine has admitted, and will carry out on a thread of its own."""
    _now.name = type(message).__name__
    _admitted(engine, message)


def do(engine: LocalEngine, command: Callable[[], None]) -> None:
    """Have the engine's thread carry it out, and note that it does."""
    line = f"{os.getpid()} {_now.epoch} {_now.name}\n"

    def noted() -> None:
        halt("hang")
        with (FOLDER / "orders").open("a") as file:
            file.write(line)
        command()

    _do(engine, noted)


def send(end: LinkEnd, envelopes: list[Any]) -> Any:
    """What leaves for a region apart."""
    if envelopes:
        halt("send")
    return _send(end, envelopes)


def receive(process: RegionProcess, batch: Batch) -> Any:
    """What a region apart takes, and does not refuse."""
    receipt = _receive(process, batch)
    with (FOLDER / "batches").open("a") as file:
        file.write(f"queue {batch.leader} {len(batch.envelopes)}-envelopes\n")
    return receipt


def step_down(error: BaseException, keep: Callable[[], None]) -> NoReturn:
    """What a leader does that leads no more."""
    if halted.is_set():
        time.sleep(LATE_S)
    _step_down(error, keep)


def skewed_s(skew_s: float) -> float:
    """The time of a machine with a wrong clock."""
    return _wall_s() + skew_s


def set_up() -> None:
    """Put all that in its place."""
    Process._order = order  # type: ignore[assignment,method-assign]
    Orders.order = admitted  # type: ignore[assignment,method-assign]
    LocalEngine._do = do  # type: ignore[assignment,method-assign]
    LinkEnd._send = send  # type: ignore[assignment,method-assign]
    RegionProcess.receive = receive  # type: ignore[assignment,method-assign]
    queue.step_down = step_down  # type: ignore[attr-defined]
    file = FOLDER / "clock"
    skew_s = float(file.read_text()) if file.exists() else 0.0
    clock.wall_s = lambda: skewed_s(skew_s)
    if MUTANT == NO_FENCE:
        LeaderFence.admits = lambda fence, leader: True  # type: ignore[assignment,method-assign]
    if MUTANT in (NO_FENCE, NO_HOLD):
        LocalEngine._carry_out = LocalEngine._guard  # type: ignore[assignment,method-assign]
    if MUTANT in MUTANTS:  # else the trust of the process in itself would hide most of it
        SqlJournal.leads = lambda journal: True  # type: ignore[assignment,method-assign]
    if MUTANT == SAME_EPOCH:
        postgresql._TAKE = postgresql._TAKE.replace(
            "GREATEST(epoch, %s) + 1", "GREATEST(epoch, %s, 1)"
        )


if __name__ == "__main__":
    set_up()
    sys.argv[1:3] = []
    main()
