"""Records as they were written before what is alike had columns."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from topmast.fast.queue.facts import AllPlanned, AllStarting, Moved, plans_won
from topmast.model import messages as m
from topmast.model.states import JobState
from topmast.ports import Record
from topmast.runtime.codec import decode_event, decode_facts, encode_facts


def in_older_form(record: Record) -> Record:
    """The same record as it was written then."""
    event, facts = decode_event(record.event), decode_facts(record.machine, record.facts)
    form: dict[str, Any] = msgspec.to_builtins(event)
    if isinstance(event, m.CommitPlans):
        form = {"type": "CommitPlans", "commits": event.one_by_one()}
    elif isinstance(event, m.LaunchGangs):
        form = {"type": "LaunchGangs", "gangs": list(event.one_by_one())}
    elif isinstance(event, m.AttemptsStarting):
        pairs = list(zip(event.jobs, event.epochs, strict=True))
        form = {"type": "AttemptsStarting", "attempts": pairs}
    elif isinstance(event, m.FleetBids) and event.plans:
        del form["plans"]
        form["behind"] = event.plans.plans[1:]
    older: list[Struct] = []
    for fact in facts:
        if isinstance(fact, AllPlanned):
            older += plans_won(event, [fact])
        elif isinstance(fact, AllStarting) and isinstance(event, m.AttemptsStarting):
            older += [Moved(job, JobState.STARTING) for job in event.jobs]
        else:
            older.append(fact)
    data = msgspec.json.encode(form)
    return Record(record.seq, record.at_s, record.machine, data, encode_facts(older))
