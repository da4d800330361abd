"""Rounds: fractions of time become turns, round by round (Gavel, OSDI '20: round-based mechanism).

At the beginning of a round every job has, for each GPU model, a priority: the fraction of time that
it should run there over the fraction that it did. Model by model the GPUs are granted by priority;
gangs that do not fit are passed over. A job that is granted the model on which it runs keeps its
GPUs.

All of this is working memory of the queue, never journalled: after a restart a new round begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from topmast.fast.queue.hooks import Grant, Grants
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.rounds.candidates import (
    Account,
    RoundCandidate,
    RoundCapacity,
    TimeShare,
    view_of,
)
from topmast.fast.queue.rounds.pairs import PairBooks, settle
from topmast.model.errors import TopmastError
from topmast.policies.base import Floats, Ints, Parts, SharePolicy
from topmast.policies.options import ShareOptions


class Rounds(Grants):
    """Where jobs run in the present round, and which job is next."""

    are_limited = True

    def __init__(self, options: ShareOptions, share: SharePolicy) -> None:
        self.options = options
        self.share = share
        self.ends_s = -math.inf
        """When the present round is over."""
        self.count = self.solves = self.failures = self.named_in_all = 0
        self.failure = ""
        """Why the last attempt to compute fractions failed; empty if it did not."""
        self.last_failure = ""
        self.named: dict[str, str] = {}
        """Jobs that get no part, or will miss their deadline, and why."""
        self.leaving: dict[str, None] = {}
        """Jobs that were told to stop when the round began, and have not ended."""
        self.changed = True
        """Whether a job came or went since fractions were computed."""
        self._grants: dict[str, Grant] = {}
        self.turns: dict[str, float] = {}
        """By job, its place in this round."""
        self._accounts: dict[str, Account] = {}
        self._together = PairBooks()
        self._guests: dict[str, str] = {}
        """By job, the job that is granted a place on its GPUs."""
        self.moving: dict[str, None] = {}
        """Jobs that leave their GPUs, though granted the model: to join another, or to be alone."""
        self._counted_s: dict[str, float] = {}
        """Up to when what a running job received is in its account."""
        self.out_of_service: dict[str, Mapping[str, int]] = {}
        """By region, GPUs by model on hosts that take no work: not to be granted."""
        self._outside: dict[str, None] = {}
        """Jobs with time that cannot be divided: they take part in no round."""
        self._began_s = self._solved_s = -math.inf
        self._span_s = 0.0
        """How long all rounds were, what is long ago less."""

    # --- what the queue asks ----------------------------------------------------------------------

    def grant(self, job: str) -> Grant | None:
        """What a job is granted in this round; None if nothing is."""
        return self._grants.get(job)

    def guest_of(self, job: str) -> str:
        """The job that waits for a place on the GPUs of a job, or empty."""
        return self._guests.get(job, "")

    def turn(self, job: str) -> float:
        """The place of a job in this round; later jobs stand behind all."""
        return self.turns.get(job, math.inf)

    def may_start(self, job: str) -> bool:
        """Whether a waiting job may be placed: it has a grant, or no job with one needs GPUs."""
        if job in self._grants or job in self._outside:
            return True
        return self.share.fills and self.options.reuse and not self.leaving

    def next_s(self, now: float) -> float:
        """When the next round begins: after this one; with a change sooner, if none fill gaps.

        Where fractions could not be computed, they are tried again in the next round, not before.
        """
        share = self.share
        if not self.changed or self.failure or share.fills or not self.options.reuse:
            return self.ends_s
        return min(self.ends_s, max(now, self._solved_s + self.options.recompute_s))

    def news(self, job: str) -> str:
        """News for a job's users: why it gets no time, and if fractions could not be computed."""
        found = [self.named[job]] if job in self.named else []
        if self.failure:
            found.append(
                f"the shares of time are the last ones, because the solver failed "
                f"({self.failures} times; {self.failure})"
            )
        return "; ".join(found)

    # --- books ------------------------------------------------------------------------------------

    def ran(
        self, record: JobRecord, model: int, until_s: float, partner: JobRecord | None = None
    ) -> None:
        """A job ran on a model from its start, its partner's, or the round's: the last of these."""
        account = self._accounts.get(record.id)
        if account is None or record.start_s is None or model < 0:
            return
        from_s = max(record.start_s, self._began_s, self._counted_s.get(record.id, -math.inf))
        both_s = until_s
        if partner is not None and partner.start_s is not None:
            both_s = min(until_s, max(from_s, partner.start_s))
            # Each of the two tells of it.
            received_s = self._together.of(record.id, partner.id, len(account.received_s))
            received_s[model] += max(0.0, until_s - both_s) / 2
        account.received_s[model] += max(0.0, both_s - from_s)
        self._counted_s[record.id] = until_s

    def left(self, job: str) -> bool:
        """An attempt has ended; whether it was the last that was told to stop."""
        if job not in self.leaving:
            return False
        del self.leaving[job]
        return not self.leaving

    def serves(self, region: str, out_of_service: Mapping[str, int]) -> None:
        """Hosts of a region take work, or take none, other than before."""
        self.changed = True
        self.out_of_service[region] = out_of_service

    def forget(self, job: str) -> None:
        """A job is over."""
        self.changed = True
        for known in self._by_job():
            known.pop(job, None)
        self._together.forget(job)

    def reset(self) -> None:
        """Another fleet, or a restart: nothing that is known of rounds holds any more."""
        self.changed = True
        self.ends_s = self._began_s = self._solved_s = -math.inf
        self._span_s = 0.0
        for known in self._by_job():
            known.clear()
        self._together = PairBooks()

    def _by_job(self) -> tuple[dict[str, Any], ...]:
        return (
            self._grants, self.turns, self._accounts, self._outside, self.named, self.leaving,
            self._guests, self.moving, self._counted_s,
        )  # fmt: skip

    # --- a round begins ---------------------------------------------------------------------------

    def begin(
        self,
        contenders: Sequence[RoundCandidate],
        outside: Sequence[JobRecord],
        stage: RoundCapacity,
        now: float,
    ) -> dict[str, int]:
        """Grant the GPUs anew; returns the model (number) granted to each job.

        O(one solve, if one is due, + jobs log jobs x models).
        """
        for contender in contenders:
            self._accounts.setdefault(contender.record.id, Account(np.zeros(len(stage.models))))
        self._age(now)
        due = self.changed and now >= self._solved_s + self.options.recompute_s
        if due and contenders:
            self._solve(contenders, stage, now)
        elif due:
            # There is no time to divide, and a change that is left would begin a round at once.
            self._solved_s, self.changed, self.failure = now, False, ""
        shares = self._single_shares(contenders, stage.gpus) + self._together.among(contenders)
        priority = self._priorities(shares, len(stage.models))
        chosen, mate_of = self._grant(contenders, shares, priority, stage)
        beside = settle(contenders, chosen, mate_of)
        self.moving = beside.moving
        self._guests = {host: guest for guest, host in beside.hosts.items()}
        self._take_turns(contenders, priority[: len(contenders)], chosen, beside.hosts)
        self._outside = {record.id: None for record in outside}
        self.turns.update(dict.fromkeys(self._outside, -1.0))
        self.count += 1
        self._began_s, self.ends_s = now, now + self.options.round_s
        return {c.record.id: at for c, at in zip(contenders, chosen, strict=True) if at >= 0}

    def _age(self, now: float) -> None:
        """What was received counts less as time goes by, or as much until it is forgotten."""
        if self._began_s == -math.inf:
            return
        passed_s = now - self._began_s
        kept = 1.0 if self.options.forget else 0.5 ** (passed_s / self.options.memory_s)
        self._keep(kept, passed_s)

    def _forget(self, now: float) -> None:
        """From now on received time counts; what was due and not received decides among equals."""
        for account in self._accounts.values():
            if account.fractions is not None:
                lacks_s = account.fractions * (now - self._solved_s) - account.received_s
                before_s = account.behind_s
                account.behind_s = lacks_s if before_s is None else before_s + lacks_s
        self._keep(0.0)

    def _keep(self, kept: float, passed_s: float = 0.0) -> None:
        self._span_s = (self._span_s + passed_s) * kept
        for account in self._accounts.values():
            account.received_s *= kept
        self._together.age(kept)

    def _solve(
        self, contenders: Sequence[RoundCandidate], stage: RoundCapacity, now: float
    ) -> None:
        """Compute fractions; where that fails, the last ones go on."""
        accounts = [self._accounts[c.record.id] for c in contenders]
        for contender, account in zip(contenders, accounts, strict=True):
            done_s = account.left_s - contender.left_s
            if account.isolated_speed > 0 and done_s > 0:
                account.isolated_s += done_s / account.isolated_speed
        if self.options.forget:
            self._forget(now)
        pairs = stage.pairs()
        view = view_of(contenders, accounts, stage, now, pairs)
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
        self._together.note(contenders, pairs, parts.pair_fractions)

    def _note(
        self, contenders: Sequence[RoundCandidate], accounts: Sequence[Account], parts: Parts
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

    def _single_shares(self, contenders: Sequence[RoundCandidate], gpus: Ints) -> list[TimeShare]:
        """What is due to each contender by itself; without a fraction yet, its part of all models.

        O(contenders x models).
        """
        found = []
        for row, contender in enumerate(contenders):
            record, kind = contender.record, contender.kind
            account, at = self._accounts[record.id], -1 if contender.partner else contender.at
            due = account.fractions
            if due is None and self.options.forget:
                due = np.zeros(len(gpus))
            elif due is None:
                part = gpus / max(1.0, len(contenders) * kind.width)
                due = np.where(kind.speeds > 0, np.minimum(part, 1.0), 0.0)
            known = (account.received_s, account.behind_s)
            found.append(TimeShare((row,), record.number, at, due, *known))
        return found

    def _priorities(self, shares: Sequence[TimeShare], models: int) -> Floats:
        """Fractions due over fractions received (shares x m).

        As if all had run for half a round on every model before: so no fraction received is 0.
        """
        half_s, shape = self.options.round_s / 2, (len(shares), models)
        due = np.array([share.fractions for share in shares], np.float64).reshape(shape)
        received_s = np.array([share.received_s for share in shares], np.float64).reshape(shape)
        priority: Floats = due * (self._span_s + half_s) / (received_s + half_s)
        return priority

    def _grant(
        self,
        contenders: Sequence[RoundCandidate],
        shares: Sequence[TimeShare],
        priority: Floats,
        stage: RoundCapacity,
    ) -> tuple[list[int], list[int]]:
        """By model and priority: the model of each contender, -1 for none, and its partner's row.

        A pair takes the GPUs of one. O(shares log shares x models).
        """
        chosen, mate_of = [-1] * len(contenders), [-1] * len(contenders)
        room = stage.free_milli.tolist()
        _grant_who_stays(contenders, chosen, mate_of, room)
        need = np.array([contenders[share.rows[0]].kind.milli for share in shares])
        need = need.reshape(priority.shape)
        alone = np.array([len(share.rows) == 1 for share in shares], np.bool_)
        for model in self._order(contenders, len(room)):
            may = (need[:, model] > 0) & ((alone & self.share.fills) | (priority[:, model] > 0))
            for at in self._queue(shares, priority[:, model], model):
                rows, wanted = shares[at].rows, need.item(at, model)
                fits = may[at] and wanted <= room[model] and all(chosen[r] < 0 for r in rows)
                if fits and _let_by_quota([contenders[row] for row in rows], model, stage):
                    room[model] -= wanted
                    for row in rows:
                        chosen[row] = model
                    if len(rows) == 2:
                        mate_of[rows[0]], mate_of[rows[1]] = rows[1], rows[0]
        return chosen, mate_of

    def _order(self, contenders: Sequence[RoundCandidate], models: int) -> list[int]:
        """Which model is given away first: the fastest; without known speeds, each in its turn."""
        if not self.options.aware:
            return [(self.count + number) % models for number in range(models)]
        speeds = np.zeros(models)
        for contender in contenders:
            speeds += contender.kind.speeds / max(contender.kind.speeds.max(), 1e-300)
        return sorted(range(models), key=lambda model: (-speeds.item(model), model))

    def _queue(self, shares: Sequence[TimeShare], priority: Floats, model: int) -> list[int]:
        """Shares by priority; of equals first those that run there, then the older.

        Where received time is forgotten: of equals first those that lack most.
        """
        elsewhere = np.array([share.runs_on != model for share in shares], np.bool_)
        priority = np.where(elsewhere, priority, priority * self.options.lease)
        numbers = np.array([share.number for share in shares])
        among_equals: Floats = elsewhere.astype(np.float64)
        if self.options.forget:
            behind = [0.0 if s.behind_s is None else s.behind_s.item(model) for s in shares]
            among_equals = -np.array(behind, np.float64)
        rows: list[int] = np.lexsort((numbers, among_equals, -priority)).tolist()
        return rows

    def _take_turns(
        self,
        contenders: Sequence[RoundCandidate],
        priority: Floats,
        chosen: Sequence[int],
        hosts: Mapping[str, str],
    ) -> None:
        """Those with a grant first, the widest before all, so that the others fill the gaps.

        Of one width pairs go first, for the second of a pair needs no room.
        """
        best = priority.max(axis=1, initial=0.0).tolist()
        number_of = {c.record.id: c.record.number for c in contenders}
        paired = {job: number_of[host] for guest, host in hosts.items() for job in (guest, host)}

        def place(row: int) -> tuple[float, ...]:
            contender, job = contenders[row], contenders[row].record.id
            return (
                chosen[row] < 0,
                -contender.kind.width if chosen[row] >= 0 else 0.0,
                paired.get(job, math.inf) if chosen[row] >= 0 else 0.0,
                job in hosts,
                -best[row],
                contender.record.number,
            )

        order = sorted(range(len(contenders)), key=place)
        self.turns = {contenders[row].record.id: float(at) for at, row in enumerate(order)}
        self._grants = {
            c.record.id: Grant(at, c.kind.choice.item(at), hosts.get(c.record.id, ""))
            for c, at in zip(contenders, chosen, strict=True)
            if at >= 0
        }


def _let_by_quota(contenders: Sequence[RoundCandidate], model: int, stage: RoundCapacity) -> bool:
    """Whether quota has a model's GPUs for one contender or a pair; they are booked then."""
    if stage.quota is None:
        return True
    return stage.quota.take([(c.record.spec, c.kind.choice.item(model)) for c in contenders])


def _grant_who_stays(
    contenders: Sequence[RoundCandidate], chosen: list[int], mate_of: list[int], room: list[int]
) -> None:
    """Jobs that may not be stopped keep their GPUs; two on the same take them once."""
    row_of = {c.record.id: row for row, c in enumerate(contenders) if c.stays}
    for row, contender in enumerate(contenders):
        if not contender.stays:
            continue
        chosen[row] = contender.at
        mate_of[row] = row_of.get(contender.partner, -1)
        if not 0 <= mate_of[row] < row:
            room[contender.at] -= contender.kind.milli.item(contender.at)
