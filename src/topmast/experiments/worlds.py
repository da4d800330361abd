"""The options of one run, told apart: those of its profile, and those of the simulated world."""

from __future__ import annotations

from collections.abc import Mapping

from topmast.model.errors import Faults
from topmast.policies.options import Profile
from topmast.policies.registry import load_profile
from topmast.sim.settings import OVERHEADS, Settings, read_settings, told_apart


def world_of(
    profile: str, options: Mapping[str, str], *, overheads: bool
) -> tuple[Profile, Settings]:
    """A profile and a world with ``options`` laid over them. Raises InvalidInput, with each that
    does not fit.

    Without ``overheads`` nothing but work takes time, and no attempt is too young to be stopped;
    but for what ``options`` say.
    """
    own, world = told_apart(options)
    if not overheads:
        world = {**dict.fromkeys(OVERHEADS, "0"), **world}
        own = {"min_runtime_s": "0", **own}
    faults = Faults()
    found = faults.of(lambda: load_profile(profile, own)), faults.of(lambda: read_settings(world))
    faults.refuse()
    return found
