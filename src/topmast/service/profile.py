"""The profile of a running server: what it decides by, and what the leaders after it will."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from topmast.adapters.handing import handed
from topmast.model.access import ROOT, Caller, Permission
from topmast.model.errors import InvalidInput, restated
from topmast.model.system_views import ProfileAct, ProfileView
from topmast.policies.options import Profile
from topmast.policies.registry import load_profile, option_names
from topmast.ports import HistoryRow
from topmast.runtime.loop import Runtime
from topmast.service.access import Access, json_text, row
from topmast.service.forecast import FORESEEN, foreseen
from topmast.service.limits import Limits
from topmast.service.policies import flat

PROFILE = "profile"
"""The option of the journal with the profile of the next leader."""


_OF_COMMANDS = "--set "
"""How the fields of errors about options begin."""
MOST_OPTIONS = len(option_names())


class Profiles:
    """Shown, and set; a change is a line of the audit log, and what is set is kept with it.

    A leader decides by one profile all its life: state made by other rules is taken up at a start
    alone.
    """

    def __init__(
        self,
        runtime: Runtime,
        access: Access,
        option: Callable[[str], str | None],
        limits: Limits,
    ) -> None:
        self._runtime, self._access, self._option = runtime, access, option
        self._limits = limits
        self._setting = asyncio.Lock()
        self.fits: Callable[[Profile], object] = lambda profile: None
        """Raises InvalidInput for a profile by which the fleet cannot be led; set by what composes
        the server.
        """

    @property
    def _now(self) -> Profile:
        return self._runtime.machines.profile

    async def view(self) -> ProfileAct:
        """What decides now, and from the next leader on; what forecasts are told."""
        kept = await asyncio.to_thread(self._option, FORESEEN)
        return ProfileAct(_view(self._now), _view(await self._later()), foreseen=foreseen(kept))

    async def set(
        self, caller: Caller, name: str, options: dict[str, str], reason: str, *, dry_run: bool
    ) -> ProfileAct:
        """Let the leaders after this one decide by another profile. Raises InvalidInput."""
        self._limits.take(caller, "submit")
        self._access.require(caller, Permission.FLEET_EDIT, ROOT)
        if len(options) > MOST_OPTIONS:
            raise InvalidInput(
                f"{len(options):,} options, more than there are", field="options",
                remedy="`topmast policies` lists them",
            )  # fmt: skip
        wanted = await asyncio.to_thread(self._read, name, options)
        async with self._setting:  # what was before is read and replaced in one piece
            before = await self._later()
            effect = "unchanged" if wanted == before else "done"
            if not dry_run:
                line = replace(
                    row(caller, "set profile", name, outcome=effect),
                    before=json_text(**_plain(before)),
                    after=json_text(**_plain(wanted), reason=reason),
                )
                kept = {PROFILE: msgspec.json.encode(wanted).decode()} if effect == "done" else {}
                told = (_event(caller, wanted, reason),) if effect == "done" else ()
                await handed(self._runtime.note(line, kept, told))
        return ProfileAct(_view(self._now), _view(wanted), effect, dry_run)

    def _read(self, name: str, options: dict[str, str]) -> Profile:
        with restated(_of_request):
            wanted = load_profile(name, options)
            self.fits(wanted)
            return wanted

    async def _later(self) -> Profile:
        return await asyncio.to_thread(later_profile, self._option, self._now)


def later_profile(option: Callable[[str], str | None], now: Profile) -> Profile:
    """The profile of the next leader, from what the journal keeps; that of now if it keeps none."""
    kept = option(PROFILE)
    return now if kept is None else msgspec.json.decode(kept, type=Profile)


def _of_request(error: InvalidInput) -> InvalidInput:
    """The same error, of the body of a request: there it is no option of a command."""
    return error.at(field=error.field.replace(_OF_COMMANDS, "options.", 1))


def _event(caller: Caller, profile: Profile, reason: str) -> HistoryRow:
    """What all are told of another profile."""
    by = caller.principal.user
    text = f"the next leader is to decide by {profile.name}, as {by} wants"
    detail = json_text(profile=profile.name, by=by)
    return HistoryRow(0.0, "", "profile-set", text + (f": {reason}" if reason else ""), detail)


def _plain(profile: Profile) -> dict[str, Any]:
    return {"profile": profile.name, "options": _view(profile).options}


def _view(profile: Profile) -> ProfileView:
    """The options that differ from those of the profile of that name."""
    try:
        named = load_profile(profile.name)
    except InvalidInput:  # a profile that was made by hand has no other to differ from
        named = Profile(profile.name)
    usual = flat(named)
    return ProfileView(
        profile.name,
        {name: value for name, value in flat(profile).items() if value != usual[name]},
    )
