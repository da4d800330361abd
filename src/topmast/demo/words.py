"""What happened, in a few words: an event or a line of a job's history as people read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from topmast.model.decided import Rule
from topmast.model.states import Outcome
from topmast.model.units import format_bytes
from topmast.model.views import EventView, HistoryView

_JOB = re.compile(r"\bj\d+\b")


class Deed(Struct, frozen=True):
    """One decision or turn of events: what was done, and why."""

    what: str
    why: str = ""
    style: str = ""


def deed(line: EventView | HistoryView, names: Mapping[str, str]) -> Deed | None:
    """The deed behind an event; None for what is of no interest here."""
    detail, text = line.detail, _named(line.text, names)
    match line.kind:
        case "placed":
            return _placed(detail, names)
        case "copy-begun":
            why = f"its best place is in {detail['target']}, its data in {detail['source']}"
            return Deed(f"{detail['dataset']} is copied to {detail['target']}", why, "cyan")
        case "copy-done":
            took_s = line.at_s - float(detail["begun_s"])
            why = f"{format_bytes(detail['bytes'])} in {took_s:.1f} s, verified"
            return Deed(f"{detail['dataset']} is in {detail['target']}", why, "cyan")
        case "resumed":
            return Deed(f"resumed from step {detail['step']}", "the last one it saved", "green")
        case "PREEMPTING":
            return Deed("told to save and stop", _after_colon(text), "yellow")
        case "SUCCEEDED":
            return Deed("succeeded", "", "green")
        case "refused" | "copy-failed" | "CANCELLED" | "FAILED":
            return Deed(line.kind.lower(), text, "red")
    return _ended(text, detail)


def _placed(detail: Mapping[str, Any], names: Mapping[str, str]) -> Deed:
    where = f"{detail['region']}/{detail['cluster']}"
    why = _sum(detail["score"], detail["terms"])
    if detail.get("rule") == Rule.HAS_DATA:
        why += "; it has the data, so nothing is copied"
    if detail["over_quota"]:
        why += "; over quota, on idle GPUs"
    if detail["victims"]:
        victims = ", ".join(names.get(job, job) for job in detail["victims"])
        why += f"; preempts {victims}"
    if detail["epoch"] > 1:
        why += f"; now on {', '.join(detail['hosts'])}"
    return Deed(f"placed in {where} on {detail['gpus']:g} {detail['model']}", why, "bold")


def _sum(score: float, terms: Mapping[str, float]) -> str:
    """A score as the sum of its rounded terms: ``score 0.50 = data 0.71 - speed 0.21``.

    Terms that round to 0 are left out. The rounding error goes to the term that was rounded most,
    so that the sum is right.
    """
    cents = {name: round(100 * value) for name, value in terms.items()}
    missing = round(100 * score) - sum(cents.values())
    step = 1 if missing > 0 else -1
    by_error = sorted(terms, key=lambda name: step * (cents[name] - 100 * terms[name]))
    for name in by_error[: abs(missing)]:
        cents[name] += step
    total = f"score {(round(100 * score) or 0) / 100:.2f}"
    shown = sorted(((n, c) for n, c in cents.items() if c), key=lambda term: term[1] < 0)
    if not shown:
        return total
    text = "".join(
        f" {'-' if cent < 0 else '+'} {name} {abs(cent) / 100:.2f}" for name, cent in shown
    )
    return f"{total} = {text.removeprefix(' + ').removeprefix(' ')}"


def _ended(text: str, detail: Mapping[str, Any]) -> Deed | None:
    """An attempt that ended before its job did."""
    outcome = detail.get("outcome")
    if outcome == Outcome.PREEMPTED:
        return Deed("back in the queue", f"{_after_colon(text)}; {_lost(detail)}", "yellow")
    if outcome == Outcome.HOST_LOST:
        return Deed("to be restarted", f"{_after_colon(text)}; {_lost(detail)}", "red")
    if outcome in (Outcome.FAILED, Outcome.LAUNCH_FAILED):
        return Deed("to be restarted", _after_colon(text), "red")
    return None


def _lost(detail: Mapping[str, Any]) -> str:
    return f"{max(0.0, detail['lost_s']):.1f} s of work lost"


def _after_colon(text: str) -> str:
    return text.partition(": ")[2] or text


def _named(text: str, names: Mapping[str, str]) -> str:
    """``text`` with the names of jobs instead of their ids."""
    return _JOB.sub(lambda found: names.get(found[0], found[0]), text)
