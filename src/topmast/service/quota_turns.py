"""When a quota for a while decides whether a job may start at all: by its begin, or its end."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue import GlobalQueue
from topmast.model.job import JobSpec
from topmast.model.reason import PendingReason
from topmast.model.timed_quota import KnownQuota, TimedQuota, with_timed

TURNS_TRIED = 32


class QuotaTurn(Struct, frozen=True):
    """The first begin or end of a quota for a while that makes a difference to a job."""

    timed: TimedQuota
    begins: bool
    lets: bool
    """From then on the job may start, and before it never may; else the reverse."""
    own: bool
    """It is of the job's tenant; of others the GPUs are not told."""

    @property
    def at_s(self) -> float:
        """When that is."""
        return self.timed.from_s if self.begins else self.timed.until_s

    def says(self) -> str:
        """What happens, in words."""
        then = "only then may the job start" if self.lets else "from then on the job may not start"
        at = datetime.fromtimestamp(self.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{self._named()} {'begins' if self.begins else 'ends'} at {at}, and {then}"

    def help(self) -> str:
        """What people may do about it, in words."""
        which = "an earlier" if self.lets else "a later"
        return f"{which} {'begin' if self.begins else 'end'} of {self._named()}"

    def _named(self) -> str:
        gpus = ", ".join(f"{count:,} {model}" for model, count in self.timed.quota.items())
        return f"the quota for a while of tenant {self.timed.tenant}" + f" ({gpus})" * self.own


def quota_turn(queue: GlobalQueue, spec: JobSpec) -> QuotaTurn | None:
    """The turn that decides for a job, if there is one; the first `TURNS_TRIED` are looked at.

    O(turns x tenants x models).
    """
    tenancy = queue.tenancy
    if not tenancy.timed:
        return None
    known = {name: one.timed for name, one in tenancy.timed.items()}
    begun = {name for name, one in tenancy.timed.items() if one.begun}
    turns = [QuotaTurn(one, False, False, name == spec.tenant) for name, one in known.items()]
    turns += [replace(turn, begins=True) for turn in turns if turn.timed.tenant not in begun]
    before = _may_ever(queue, spec, tenancy.timed)
    for turn in sorted(turns, key=lambda turn: (turn.at_s, turn.timed.tenant))[:TURNS_TRIED]:
        (begun.add if turn.begins else begun.discard)(turn.timed.tenant)
        then = {name: KnownQuota(known[name], True) for name in sorted(begun)}
        lets = _may_ever(queue, spec, then)
        if lets is not before:
            return replace(turn, lets=lets)
    return None


def _may_ever(queue: GlobalQueue, spec: JobSpec, timed: dict[str, KnownQuota]) -> bool:
    """Whether quotas for a while let a job start if nothing else ran."""
    ledger = queue.tenancy.ledger.twin(with_timed(queue.fleet.tenants, timed))
    reason, _ = queue.tenancy.by(ledger).entitlements.quota_reason(spec)
    return reason is not PendingReason.EXCEEDS_MAX_QUOTA
