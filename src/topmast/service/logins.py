"""What proves a caller to a server with login: tokens, sessions, and the break-glass token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from topmast.accounts import Accounts, digest_of, is_token
from topmast.adapters.handing import handed
from topmast.model import account_views as v
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import BREAK_GLASS, Caller, Grant, Principal, Role
from topmast.model.errors import Full, Unavailable
from topmast.model.messages import TokenKind
from topmast.ports import Act, ActRow
from topmast.runtime.loop import Runtime
from topmast.service.access import act, row
from topmast.service.accounts import Directory, caller_with
from topmast.service.limits import Limits, client_of

LONGEST_PATH = 200
"""What the audit log keeps of the path of a request that was refused,"""
LONGEST_WHY = 1_000
"""and of why it was."""
LEAST_FLOOR = 0.5
"""Refusals are not written where the disk has less left than this part of its floor."""
ADMINISTRATOR = Principal(f"user:{BREAK_GLASS}", (Grant(Role.ADMIN),))


NOT_READ = (
    "this server has not read the accounts yet: "
    "it has just begun, or its database does not answer; its log says why"
)


class FollowedLogins:
    """Finds callers by accounts that another process changes; nothing is noted here."""

    def __init__(
        self,
        accounts: Callable[[], Accounts | None],
        is_break_glass: Callable[[str], bool],
        now: Callable[[], float],
    ) -> None:
        self._accounts = accounts
        self._is_break_glass = is_break_glass
        self._now = now

    async def by_token(self, token: str, address: str, request: str) -> Caller | None:
        """The caller that shows a token; None for one that is good for nothing.

        Raises Unavailable while the accounts were not read yet.
        """
        accounts, now = self._accounts(), self._now()
        if not is_token(token):
            return None
        found = None if accounts is None else accounts.token_of(digest_of(token), now)
        if accounts is not None and found is not None:
            return caller_with(accounts, found, now, address, request)
        if await asyncio.to_thread(self._is_break_glass, token):
            return Caller(ADMINISTRATOR, BREAK_GLASS, address, request)
        if accounts is None:
            raise Unavailable(NOT_READ)
        return None

    async def refused(self, address: str, path: str, request: str, why: str) -> None:
        """The audit log is the leader's."""


class Logins:
    """Finds the callers of requests; used on the event loop alone."""

    def __init__(self, runtime: Runtime, directory: Directory, limits: Limits) -> None:
        self._runtime = runtime
        self._directory = directory
        self._limits = limits
        self.is_break_glass: Callable[[str], bool] = lambda token: False
        """Whether a token is the one that the server's own machine has in a file."""
        self.end_break_glass: Callable[[str], None] = lambda token: None
        """Takes away that file."""
        self._unwritten = 0
        """Refusals since the last one that was written."""
        self._broken: dict[str, str] = {}
        """The break-glass tokens that were used, by the name that their callers have."""

    async def by_token(self, token: str, address: str, request: str) -> Caller | None:
        """The caller that shows a token; None for one that is good for nothing."""
        if not is_token(token):
            return None
        found = self._directory.caller(token, address, request)
        if found is not None:
            return found
        if not await asyncio.to_thread(self.is_break_glass, token):
            return None
        name = f"{BREAK_GLASS} ...{token[-4:]}"
        caller = Caller(ADMINISTRATOR, name, address, request, name)
        if name not in self._broken:
            self._broken[name] = token
            await self.note(row(caller, "login", caller.principal.subject))
        return caller

    def renewed(self, caller: Caller) -> Caller | None:
        """The same caller as things are now; None if its proof is good no more."""
        token = self._broken.get(caller.token)
        if token is not None:
            return caller if self.is_break_glass(token) else None
        return self._directory.renewed(caller)

    async def refused(self, address: str, path: str, request: str, why: str) -> None:
        """Bring a failed attempt into the audit log. Raises TooMany."""
        self._limits.take_of(client_of(address), "refused")
        await self.note_refusal(ActRow("", "", address, request, "login", path), why)

    async def log_in(
        self,
        name: str,
        groups: tuple[str, ...],
        way: str,
        address: str,
        request: str,
        life_s: float,
    ) -> v.NewToken:
        """Give a person that the provider has proved a token: a browser's session, or its own."""
        subject = f"user:{name}"
        call = self._runtime.call(ids.ACCOUNTS, m.NoteLogin(subject, groups))
        await handed(call)
        line = ActRow(subject, f"provider, by {way}", address, request, "login")
        kind = TokenKind.SESSION if way == "browser" else TokenKind.PERSONAL
        label = "" if way == "browser" else "topmast login"
        return await self._directory.issue(Act(line), kind, subject, life_s, None, label)

    async def log_out(self, caller: Caller) -> None:
        """Make the proof in use good for nothing."""
        token = self._broken.pop(caller.token, None)
        if token is not None:
            await asyncio.to_thread(self.end_break_glass, token)
            await self.note(row(caller, "logout", caller.principal.subject))
            return
        if caller.token in self._directory.state.tokens:
            done = act(caller, "logout", caller.token)
            call = self._runtime.call(ids.ACCOUNTS, m.RevokeToken(caller.token), done)
            await handed(call)

    async def note(self, line: ActRow) -> None:
        """Bring a line into the audit log."""
        await handed(self._runtime.note(line))

    async def note_refusal(self, line: ActRow, why: str) -> None:
        """Bring a refusal into the audit log, unless the disk has too little left for running jobs.

        Then it is counted, and one line tells how many there were once there is room.
        """
        try:
            self._limits.refuse_if_full(LEAST_FLOOR)
        except Full:
            self._unwritten += 1
            return
        if self._unwritten:
            told = f"refused: {self._unwritten:,} requests, while the disk had no room for lines"
            self._unwritten = 0
            await self.note(ActRow("", "", "", "", "refuse", outcome=told))
        outcome = f"refused: {why[:LONGEST_WHY]}"
        await self.note(replace(line, object=line.object[:LONGEST_PATH], outcome=outcome))
