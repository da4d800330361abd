"""Rounds: fractions of time become turns, one round after the other (Gavel, OSDI '20, section 5).

At the beginning of a round every job has, for each GPU model, a priority: the fraction of time that it should
run there over the fraction that it did. Model by model the GPUs are granted by priority; gangs that do not
fit are passed over. A job that is granted the model on which it runs keeps its GPUs.

All of this is working memory of the queue, never journalled: after a restart a new round begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.fast.queue.kinds import Kind
from topmast.fast.queue.record import JobRecord
from topmast.model.errors import TopmastError
from topmast.policies.base import Floats, Ints, Parts, Share, SharesView
from topmast.policies.options import ShareOptions


class Contender(Struct):
    """A job that wants GPUs in the round that begins.

    ``at``: the model (number) on which it runs, -1 for one that waits. ``stays``: it may not be stopped now.
    ``left_s``: work left, at speed 1; ``tenant`` numbers tenants.
    """

    record: JobRecord
    kind: Kind
    left_s: float
    weight: float
    tenant: int
    at: int = -1
    stays: bool = False


class Account(Struct):
    """What the rounds know of a job: seconds that it received on each model lately, what is long ago less.

    ``fractions`` (m): its parts of the time; None while it has none. ``isolated_s``: how long its work so far would have taken
    on a share of its own; ``left_s`` and ``isolated_speed`` are as of the last time fractions were computed.
    """

    received_s: Floats
    fractions: Floats | None = None
    isolated_s: float = 0.0
    left_s: float = math.inf
    isolated_speed: float = 0.0


class Stage(Struct, frozen=True):
    """What there is to grant: ``gpus`` (m) of the fleet by model, and ``free_milli`` (m) of them, in thousandths,
    that contenders may have. ``tenant_weights``: of tenants, by number.
    """

    models: tuple[str, ...]
    gpus: Ints
    free_milli: Ints
    tenant_weights: Floats


class Grant(Struct, frozen=True):
    """A model (number) for a job in this round; ``choice``: which of its accelerators that is."""

    model: int
    choice: int


class Rounds:
    """Who runs where in the present round, and who is next; ``share`` None: time is not shared."""

    def __init__(self, options: ShareOptions, share: Share | None) -> None:
        self.options = options
        self.share = share
        self.ends_s = -math.inf
        """When the present round is over."""
        self.count = self.solves = self.failures = self.named_in_all = 0
        self.failure = ""
        """Why the last attempt to compute fractions failed; empty if it did not."""
        self.last_failure = ""
        self.named: dict[str, str] = {}
        """Jobs that get no part, or whose deadline cannot be kept, and why."""
        self.leaving: dict[str, None] = {}
        """Jobs that were told to stop when the round began, and have not ended."""
        self.changed = True
        """Whether a job came or went since fractions were computed."""
        self._grants: dict[str, Grant] = {}
        self._turns: dict[str, float] = {}
        self._accounts: dict[str, Account] = {}
        self._outside: dict[str, None] = {}
        """Jobs whose time cannot be divided: they take part in no round."""
        self._began_s = self._solved_s = -math.inf
        self._span_s = 0.0
        """How long all rounds were, what is long ago less."""

    @property
    def is_on(self) -> bool:
        """Whether time is shared at all."""
        return self.share is not None

    # --- what the queue asks ------------------------------------------------------------------------

    def choice(self, job: str) -> int | None:
        """Which of its accelerators a job is granted in this round; None if none is."""
        grant = self._grants.get(job)
        return None if grant is None else grant.choice

    def turn(self, job: str) -> float:
        """The place of a job in this round; those who came later stand behind all."""
        return self._turns.get(job, math.inf) if self.share is not None else 0.0

    def may_start(self, job: str) -> bool:
        """Whether a waiting job may be placed now: it has a grant, or nobody with one can use what is free."""
        if self.share is None or job in self._grants or job in self._outside:
            return True
        return self.share.fills and self.options.reuse and not self.leaving

    def is_due(self, now: float) -> bool:
        """Whether the next round shall begin."""
        return self.share is not None and self.next_s(now) <= now

    def next_s(self, now: float) -> float:
        """When the next round begins: when this one is over; with a change, if what is free goes to no one else."""
        share = self.share
        if share is None or not self.changed or share.fills or not self.options.reuse:
            return self.ends_s
        return min(self.ends_s, max(now, self._solved_s + self.options.recompute_s))

    def news(self, job: str) -> str:
        """What its people should know: why it gets no part of the time, and if parts could not be computed."""
        found = [self.named[job]] if job in self.named else []
        if self.failure:
            found.append(
                f"parts of the time are as computed before, for the solver failed "
                f"({self.failures} times; {self.failure})"
            )
        return "; ".join(found)

    # --- books --------------------------------------------------------------------------------------

    def ran(self, record: JobRecord, model: int, until_s: float) -> None:
        """A job ran on a model since its start, or since the round began."""
        account = self._accounts.get(record.id)
        if account is not None and record.start_s is not None and model >= 0:
            account.received_s[model] += max(0.0, until_s - max(record.start_s, self._began_s))

    def left(self, job: str) -> bool:
        """An attempt has ended; whether it was the last of those who were told to stop."""
        if job not in self.leaving:
            return False
        del self.leaving[job]
        return not self.leaving

    def forget(self, job: str) -> None:
        """A job is over."""
        self.changed = True
        for known in self._by_job():
            known.pop(job, None)

    def reset(self) -> None:
        """Another fleet, or a restart: nothing that is known of rounds holds any more."""
        self.changed = True
        self.ends_s = self._began_s = self._solved_s = -math.inf
        self._span_s = 0.0
        for known in self._by_job():
            known.clear()

    def _by_job(self) -> tuple[dict[str, Any], ...]:
        return (
            self._grants, self._turns, self._accounts, self._outside, self.named, self.leaving,
        )  # fmt: skip

    # --- a round begins -----------------------------------------------------------------------------

    def begin(
        self,
        contenders: Sequence[Contender],
        outside: Sequence[JobRecord],
        stage: Stage,
        now: float,
    ) -> dict[str, int]:
        """Grant the GPUs anew; returns which model (number) is granted to whom.

        O(one solve, if one is due, + jobs log jobs x models).
        """
        for contender in contenders:
            self._accounts.setdefault(contender.record.id, Account(np.zeros(len(stage.models))))
        self._age(now)
        due = self.changed and now - self._solved_s >= self.options.recompute_s
        if due and contenders:
            self._solve(contenders, stage, now)
        priority = self._priorities(contenders, stage.gpus, now)
        chosen = self._grant(contenders, priority, stage.free_milli)
        self._take_turns(contenders, priority, chosen)
        self._outside = {record.id: None for record in outside}
        self._turns.update(dict.fromkeys(self._outside, -1.0))
        self.count += 1
        self._began_s, self.ends_s = now, now + self.options.round_s
        return {c.record.id: at for c, at in zip(contenders, chosen, strict=True) if at >= 0}

    def _age(self, now: float) -> None:
        """What was received counts less as time goes by."""
        if self._began_s == -math.inf:
            return
        passed_s = now - self._began_s
        kept = 0.5 ** (passed_s / self.options.memory_s)
        self._span_s = (self._span_s + passed_s) * kept
        for account in self._accounts.values():
            account.received_s *= kept

    def _solve(self, contenders: Sequence[Contender], stage: Stage, now: float) -> None:
        """Compute fractions; where that fails, the last ones go on."""
        assert self.share is not None
        accounts = [self._accounts[c.record.id] for c in contenders]
        for contender, account in zip(contenders, accounts, strict=True):
            done_s = account.left_s - contender.left_s
            if account.isolated_speed > 0 and done_s > 0:
                account.isolated_s += done_s / account.isolated_speed
        view = _view(contenders, accounts, stage, now)
        self._solved_s, self.changed = now, False
        self.solves += 1
        try:
            parts = self.share.parts(view)
        except (TopmastError, ArithmeticError, AssertionError, ValueError, RuntimeError) as error:
            # Whatever a solver raises: what was computed last is a valid division of time.
            self.failures += 1
            self.failure = self.last_failure = str(error) or type(error).__name__
            self.changed = True  # try again
            return
        self.failure = ""
        self._note(contenders, accounts, parts)

    def _note(
        self, contenders: Sequence[Contender], accounts: Sequence[Account], parts: Parts
    ) -> None:
        before, self.named = (
            self.named,
            {contenders[row].record.id: why for row, why in parts.named.items()},
        )
        self.named_in_all += len(self.named.keys() - before.keys())
        speeds = parts.isolated_speeds.tolist()
        for row, (contender, account) in enumerate(zip(contenders, accounts, strict=True)):
            account.fractions = parts.fractions[row]
            account.left_s, account.isolated_speed = contender.left_s, speeds[row]

    def _priorities(self, contenders: Sequence[Contender], gpus: Ints, now: float) -> Floats:
        """Fractions due over fractions received (n x m).

        As if every job had run for half a round on every model before: so no fraction received is 0. One
        that has no fraction yet counts with an equal part of every model.
        """
        half_s = self.options.round_s / 2
        since_s = self._span_s + half_s
        shares = np.zeros((len(contenders), len(gpus)))
        received_s = np.zeros_like(shares)
        for row, contender in enumerate(contenders):
            account = self._accounts[contender.record.id]
            received_s[row] = account.received_s
            if account.fractions is None:
                part = gpus / max(1.0, len(contenders) * contender.kind.width)
                shares[row] = np.where(contender.kind.speeds > 0, np.minimum(part, 1.0), 0.0)
            else:
                shares[row] = account.fractions
        priority: Floats = shares * since_s / (received_s + half_s)
        return priority

    def _grant(self, contenders: Sequence[Contender], priority: Floats, free: Ints) -> list[int]:
        """Model by model, by priority: the model of each contender, -1 for none."""
        assert self.share is not None
        chosen = [-1] * len(contenders)
        room = free.tolist()
        for row, contender in enumerate(contenders):
            if contender.stays:
                chosen[row] = contender.at
                room[contender.at] -= contender.kind.milli.item(contender.at)
        milli = np.array([c.kind.milli for c in contenders]).reshape(priority.shape)
        for model in self._order(contenders, len(room)):
            may = milli[:, model] > 0
            if not self.share.fills:
                may &= priority[:, model] > 0
            for row in self._queue(contenders, priority[:, model], model):
                need = milli.item(row, model)
                if may[row] and chosen[row] < 0 and need <= room[model]:
                    chosen[row] = model
                    room[model] -= need
        return chosen

    def _order(self, contenders: Sequence[Contender], models: int) -> list[int]:
        """Which model is given away first: the fastest; knowing nothing of that, each in its turn."""
        if not self.options.aware:
            return [(self.count + number) % models for number in range(models)]
        speeds = np.zeros(models)
        for contender in contenders:
            speeds += contender.kind.speeds / max(contender.kind.speeds.max(), 1e-300)
        return sorted(range(models), key=lambda model: (-speeds.item(model), model))

    def _queue(self, contenders: Sequence[Contender], priority: Floats, model: int) -> list[int]:
        """Rows by priority; of equals first who runs there, then who came first."""
        elsewhere = np.array([c.at != model for c in contenders])
        priority = np.where(elsewhere, priority, priority * self.options.lease)
        numbers = np.array([c.record.number for c in contenders])
        rows: list[int] = np.lexsort((numbers, elsewhere, -priority)).tolist()
        return rows

    def _take_turns(
        self, contenders: Sequence[Contender], priority: Floats, chosen: Sequence[int]
    ) -> None:
        """Those with a grant first, the widest of them before all, so that the others fill the gaps."""
        best = priority.max(axis=1, initial=0.0).tolist()
        order = sorted(
            range(len(contenders)),
            key=lambda row: (
                chosen[row] < 0,
                -contenders[row].kind.width if chosen[row] >= 0 else 0.0,
                -best[row],
                contenders[row].record.number,
            ),
        )
        self._turns = {contenders[row].record.id: float(at) for at, row in enumerate(order)}
        self._grants = {
            c.record.id: Grant(at, c.kind.choice.item(at))
            for c, at in zip(contenders, chosen, strict=True)
            if at >= 0
        }

    def turns(self) -> Mapping[str, float]:
        """The place of every job in this round."""
        return self._turns


def _view(
    contenders: Sequence[Contender],
    accounts: Sequence[Account],
    stage: Stage,
    now: float,
) -> SharesView:
    """The jobs in columns."""
    records = [c.record for c in contenders]
    deadlines = [
        math.nan if r.spec.deadline_s is None else r.submit_s + r.spec.deadline_s - now
        for r in records
    ]
    return SharesView(
        ids=tuple(r.id for r in records),
        models=stage.models,
        gpus=stage.gpus,
        speeds=np.array([c.kind.speeds for c in contenders]),
        width=np.array([c.kind.width for c in contenders]),
        weight=np.array([c.weight for c in contenders]),
        left_s=np.array([c.left_s for c in contenders]),
        elapsed_s=np.array([now - r.submit_s for r in records]),
        isolated_s=np.array([a.isolated_s for a in accounts]),
        deadline_s=np.array(deadlines),
        submit_s=np.array([r.submit_s for r in records]),
        tenant=np.array([c.tenant for c in contenders], np.int64),
        tenant_weights=stage.tenant_weights,
    )
