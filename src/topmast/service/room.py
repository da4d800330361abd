"""What uploaded work folders may take of the server's disk and of its database."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from topmast.model.access import ROOT, TOP
from topmast.model.errors import Full
from topmast.model.units import format_bytes
from topmast.ports import ActFilter, ActRow, Journal
from topmast.service.sharing import RULE, below, left_bytes

MOST_KEPT_BYTES = 100 * 1024**3
"""All work folders that are kept, unless the server was told another bound."""
LEAST_FREE_BYTES = 1024**3
"""So much of a disk is left to the journal and to the output of tasks,"""
LEAST_FREE_PART = 20
"""but of a small disk one part of so many."""
MOST_UPLOADS = 1_000_000
"""Of more uploads the oldest count for no account."""


class Owner(Struct, frozen=True):
    """What an uploaded work folder counts for."""

    account: str = ""
    """A principal; empty: it has no bound of its own."""
    tenant: str = ROOT
    """A tenant that the principal may submit for."""


class Room:
    """Counts the work folders that are kept. Safe to use from any thread.

    The room is what is kept, and what may come: up to ``most_bytes``, and as long as the disk has
    more free than its floor. So that others can go on, each tenant may have as much as it leaves
    free, and what is below it shares that in the same way: tenants, and at last accounts. Accounts
    alone do not do: those that manage a tenant can make as many as they like.
    ``load`` tells how long each kept folder is, by digest.
    """

    def __init__(self, root: Path, load: Callable[[], dict[str, int]]) -> None:
        self.most_bytes = MOST_KEPT_BYTES
        self.uploads: Callable[[], Iterable[tuple[str, Owner]]] = tuple
        """The digest and the owner of each upload to earlier servers, newest first; asked once."""
        self.path: Callable[[str], tuple[str, ...]] = lambda tenant: (tenant, ROOT)
        """A tenant and all above it."""
        self._root = root
        self._load = load
        self._kept: dict[Owner, int] | None = None
        """The bytes that are kept."""
        self._coming: dict[str, int] = {}
        """Those that are being written: not yet in what `_load` finds."""
        self._of: dict[str, Owner] | None = None
        self._lock = threading.Lock()

    @contextmanager
    def for_one(
        self, digest: str, size_bytes: int, account: str, tenants: Sequence[str]
    ) -> Iterator[None]:
        """Room for a folder that is written within. Raises Full.

        Of the ``tenants`` that the account may submit for, it counts for the one with most left:
        a role that a tenant gives takes nothing away.
        """
        with self._lock:
            self._take(digest, size_bytes, account, tenants)
        try:
            yield
        finally:
            with self._lock:
                del self._coming[digest]

    def owner(self, digest: str) -> Owner:
        """What a folder counts for."""
        with self._lock:
            return self._owners().get(digest, Owner())

    def _take(self, digest: str, size_bytes: int, account: str, tenants: Sequence[str]) -> None:
        kept = self._kept if self._kept is not None else self._look()
        owner, fault = self._judge(kept, size_bytes, account, tenants)
        if fault:
            kept = self._look()  # some were removed, or not written
            owner, fault = self._judge(kept, size_bytes, account, tenants)
        if fault:
            raise Full(f"the server does not take this work folder: {fault}")
        kept[owner] = kept.get(owner, 0) + size_bytes
        self._owners()[digest] = owner
        self._coming[digest] = size_bytes

    def _look(self) -> dict[Owner, int]:
        """O(what is kept)."""
        self._kept = kept = dict[Owner, int]()
        owners = self._owners()
        for digest, size_bytes in {**self._load(), **self._coming}.items():
            owner = owners.get(digest, Owner())
            kept[owner] = kept.get(owner, 0) + size_bytes
        return kept

    def _owners(self) -> dict[str, Owner]:
        if self._of is None:
            self._of = {}
            for digest, owner in self.uploads():
                self._of.setdefault(digest, owner)
        return self._of

    def refuse_if_full(self, floor: float = 1.0) -> None:
        """Raises Full where changes would take what the journal needs for jobs that run. O(1).

        ``floor``: the part of that which has to be left, 0 for nothing.
        """
        spare_bytes, why = self._spare_bytes(floor)
        if floor and spare_bytes <= 0:
            raise Full(f"the server takes no more jobs and changes: {why}")

    def _spare_bytes(self, floor: float = 1.0) -> tuple[int, str]:
        """What the disk has over a part of its floor; and what to say where that does not do."""
        disk = shutil.disk_usage(self._root)
        least_bytes = int(min(LEAST_FREE_BYTES, disk.total // LEAST_FREE_PART) * floor)
        remedy = "ask for more room for the state folder of the server"
        why = f"its disk would have less than {format_bytes(least_bytes)} free ({remedy})"
        return disk.free - sum(self._coming.values()) - least_bytes, why

    def _judge(
        self, kept: dict[Owner, int], size_bytes: int, account: str, tenants: Sequence[str]
    ) -> tuple[Owner, str]:
        """What it would count for; and why there is no room, empty if there is."""
        kept_bytes = sum(kept.values())
        spare_bytes, why = self._spare_bytes()
        if size_bytes > spare_bytes:
            return Owner(), why
        if kept_bytes + size_bytes > self.most_bytes:
            now, most = format_bytes(kept_bytes), format_bytes(self.most_bytes)
            remedy = "ask for old ones to be removed, or for more: topmast up --keep-workdirs"
            return Owner(), f"it keeps {now} of at most {most} ({remedy})"
        if not account:
            return Owner(), ""
        free_bytes = min(self.most_bytes - kept_bytes, spare_bytes)
        own_bytes = sum(size for one, size in kept.items() if one.account == account)
        sums = below(((one.tenant, size) for one, size in kept.items()), self.path)
        left = [left_bytes(self.path(one), sums, own_bytes, free_bytes) for one in tenants]
        most_bytes = max(left)
        owner = Owner(account, tenants[left.index(most_bytes)])
        if size_bytes <= most_bytes:
            return owner, ""
        own, more = format_bytes(own_bytes), format_bytes(max(0, most_bytes))
        remedy = "leave out what the job does not need, or ask for old ones to be removed"
        return owner, f"it keeps {own} of {account} and has {more} left for it: {RULE} ({remedy})"


def note(done: ActRow, owner: Owner) -> ActRow:
    """The line of the audit log that says what an upload counts for, for later servers."""
    told = {"tenant": owner.tenant or TOP}
    return msgspec.structs.replace(done, after=msgspec.json.encode(told).decode())


def uploads(journal: Journal) -> Iterator[tuple[str, Owner]]:
    """The digest and the owner of each upload that the audit log has. O(the log)."""
    for act in journal.acts(ActFilter(verb="upload", outcome="done", limit=MOST_UPLOADS)):
        told = msgspec.json.decode(act.after)["tenant"] if act.after else TOP
        yield act.object, Owner(act.actor, ROOT if told == TOP else told)
