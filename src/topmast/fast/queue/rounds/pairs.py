"""Pairs in rounds: two gangs of one form on the same GPUs (Gavel, OSDI '20, sections 3.1 and 5).

A pair has a part of the time like a job, and is granted GPUs like one. The primary has the GPUs;
the secondary is placed on them, beside it. A job with the wrong partner, or bound for another's
GPUs, is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from topmast.fast.queue.rounds.candidates import Account, Pairs, RoundCandidate, TimeShare
from topmast.model.job import MILLI
from topmast.policies.base import Floats, PairSpeeds

LEAST_PART = 1e-6
"""Smaller parts of the time are what a solver leaves over."""


class Beside(Struct, frozen=True):
    """Where secondaries go, and which jobs leave their GPUs."""

    hosts: dict[str, str]
    """By secondary, its primary."""
    moving: dict[str, None]
    """Jobs that have to leave their GPUs, though they keep the model."""


class PairBooks:
    """What pairs have received, and their parts of the time; what is 0 in both is not kept."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str], Account] = {}

    def of(self, one: str, other: str, models: int) -> Floats:
        """The seconds (m) that two have received together."""
        key = (min(one, other), max(one, other))
        return self._accounts.setdefault(key, Account(np.zeros(models))).received_s

    def forget(self, job: str) -> None:
        """A job is over. O(pairs)."""
        for key in [key for key in self._accounts if job in key]:
            del self._accounts[key]

    def age(self, kept: float) -> None:
        """What was received counts less. O(pairs)."""
        for account in self._accounts.values():
            account.received_s *= kept

    def note(
        self, contenders: Sequence[RoundCandidate], pairs: Pairs | None, fractions: Floats | None
    ) -> None:
        """Fractions were computed anew. O(pairs)."""
        ran = [(key, a) for key, a in self._accounts.items() if a.received_s.max() > LEAST_PART]
        self._accounts = {key: Account(account.received_s) for key, account in ran}
        if pairs is None or fractions is None:
            return
        for at in np.flatnonzero(fractions.max(axis=1, initial=0.0) > LEAST_PART).tolist():
            one, other = (contenders[row].record.id for row in pairs.rows[at].tolist())
            self.of(one, other, fractions.shape[1])
            self._accounts[min(one, other), max(one, other)].fractions = fractions[at]

    def among(self, contenders: Sequence[RoundCandidate]) -> list[TimeShare]:
        """The pairs of contenders that have a part of the time. O(pairs)."""
        row_of = {c.record.id: row for row, c in enumerate(contenders)}
        found = []
        for (one, other), account in self._accounts.items():
            if account.fractions is None or one not in row_of or other not in row_of:
                continue
            rows = (row_of[one], row_of[other])
            first, second = contenders[rows[0]], contenders[rows[1]]
            together = first.at if first.partner == other and second.partner == one else -1
            number = min(first.record.number, second.record.number)
            found.append(TimeShare(rows, number, together, account.fractions, account.received_s))
        return found


def pairs_of(
    contenders: Sequence[RoundCandidate],
    models: Sequence[str],
    table: PairSpeeds,
    *,
    every: bool = False,
) -> Pairs:
    """Pairs that may share: of one form, with known speeds together that are worth more than turns.

    What is no more than turns is left out, for turns can do it; a policy may want ``every`` one.
    O(n^2 m).
    """
    least = 0.0 if every else 1.0
    by_form: dict[object, list[int]] = {}
    for row, contender in enumerate(contenders):
        if form := _form(contender):
            by_form.setdefault(form, []).append(row)
    known: dict[object, Floats] = {}
    rows: list[tuple[int, int]] = []
    speeds: list[Floats] = []
    for alike in by_form.values():
        for at, one in enumerate(alike):
            for other in alike[at + 1 :]:
                own = _speeds(contenders[one], contenders[other], models, table, known, least)
                if own.any():
                    rows.append((one, other))
                    speeds.append(own)
    return Pairs(
        np.array(rows, np.int64).reshape(-1, 2),
        np.array(speeds, np.float64).reshape(-1, len(models), 2),
    )


def _form(contender: RoundCandidate) -> object:
    """What two must have in common to sit on the same GPUs, task by task; None: it never shares."""
    spec, width = contender.record.spec, int(contender.kind.milli.max(initial=0))
    group = spec.groups[0]
    whole = width > 0 and width % (MILLI * group.count) == 0
    if not spec.work or len(spec.groups) != 1 or spec.elastic is not None or not whole:
        return None
    return (group.count, width, spec.topology)


def _speeds(
    one: RoundCandidate,
    other: RoundCandidate,
    models: Sequence[str],
    table: PairSpeeds,
    known: dict[object, Floats],
    least: float,
) -> Floats:
    """Work per second of both by model (m x 2), 0 where they do not gain: no more than ``least``
    in all, each over its speed alone.
    """
    names = [(str(c.record.spec.work), round(c.kind.width)) for c in (one, other)]
    factors = known.get(tuple(names))
    if factors is None:
        factors = np.zeros((len(models), 2))
        for at, model in enumerate(models):
            found = table.beside(names[0], names[1], model)
            if found is not None and min(found) > 0 and sum(found) > least:
                factors[at] = found
        known[tuple(names)] = factors
    alone = np.stack([one.kind.speeds, other.kind.speeds], axis=1)
    alike = (one.kind.milli == other.kind.milli) & (alone > 0).all(axis=1)
    together: Floats = factors * alone * alike[:, None]
    return together


def settle(
    contenders: Sequence[RoundCandidate], chosen: Sequence[int], mate_of: Sequence[int]
) -> Beside:
    """The primary of each secondary. Of two that part one stays where it is. O(contenders)."""
    row_of = {c.record.id: row for row, c in enumerate(contenders)}
    keeps = [c.at >= 0 and c.at == at for c, at in zip(contenders, chosen, strict=True)]
    moving: dict[str, None] = {}
    for row, contender in enumerate(contenders):
        partner = row_of.get(contender.partner, -1)
        if partner > row and keeps[row] and keeps[partner] and mate_of[row] != partner:
            goes = row if contenders[partner].stays else partner
            keeps[goes] = False
            moving[contenders[goes].record.id] = None
    hosts: dict[str, str] = {}
    for row, mate in enumerate(mate_of):
        if mate <= row:
            continue
        host, guest = (row, mate) if keeps[row] or not keeps[mate] else (mate, row)
        hosts[contenders[guest].record.id] = contenders[host].record.id
        together = keeps[guest] and contenders[guest].partner == contenders[host].record.id
        if keeps[guest] and not together:
            moving[contenders[guest].record.id] = None
    return Beside(hosts, moving)
