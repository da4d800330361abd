"""What cluster managers say to an engine, as calls of the port."""

from __future__ import annotations

from topmast.model import messages as m
from topmast.ports import Engine


def carry_out(engine: Engine, message: m.Message) -> None:
    """Hand one order to an engine."""
    if isinstance(message, m.StartGang):
        engine.start_gang(message)
    elif isinstance(message, m.StopTasks):
        engine.stop(message.job, message.epoch, message.grace_s)
    elif isinstance(message, m.SuspendGang):
        engine.suspend(message.job, message.epoch)
    elif isinstance(message, m.ResumeGang):
        engine.resume(message.job, message.epoch)
    elif isinstance(message, m.ReadProgress):
        engine.ask_pace(message.job, message.epoch)
    elif isinstance(message, m.SetHosts):
        engine.equip(message.hosts)
    elif isinstance(message, m.ListTasks):
        engine.ask_truth()
