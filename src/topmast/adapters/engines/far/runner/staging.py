"""Brings the datasets of an attempt to its host before the first step of the attempt begins."""

from __future__ import annotations

import errno
import http.client as http_client
import time
from typing import Any

from topmast.adapters.engines.far.runner.cache import (
    CannotCache,
    cache_of,
)
from topmast.adapters.engines.far.runner.calls import (
    Home,
)
from topmast.adapters.engines.far.runner.fetch import (
    CannotFetch,
    Fetch,
    Listing,
    Moved,
)
from topmast.adapters.engines.far.runner.processes import (
    TURN_S,
    now_s,
)
from topmast.adapters.engines.far.runner.tasks import OF_DISK

NEWS_S = 2.0
"""How often it is told how far a fetch has come."""
LISTINGS = 3
"""How often a dataset may change while it is fetched."""
OF_HOST = (*OF_DISK, errno.EACCES, errno.ENOTDIR)
"""What a file system says when its host is at fault: nothing else finds a place there either."""


def is_of_host(error: BaseException) -> bool:
    """Whether the file system of the host is at fault, not what was to be brought there."""
    if isinstance(error, (CannotCache, CannotFetch)):
        return isinstance(error.__cause__, OSError)
    return getattr(error, "errno", None) in OF_HOST


class Staging:
    """Works in a thread of the caller, and tells the keeper when the tasks may begin."""

    def __init__(self, caller: Any) -> None:
        self._caller = caller
        self._ticket = caller.ticket
        self._home = Home(caller.ticket)
        self._told = ""
        self._told_s = float("-inf")
        self.held: list[int] = []
        """Locks on what was fetched, until the keeper has its own, and longer."""

    def run(self) -> None:
        """Fetch everything, and tell the keeper where it is, or why not."""
        plan = self._caller.plan
        envs, keys = {}, []
        try:
            if self._caller.saving is not None:
                self._caller.saving.restore(self._say)
                envs["TOPMAST_CHECKPOINT_DIR"] = str(self._caller.saving.dir)
            for name, variable in plan["data"]["datasets"].items():
                key, envs[variable] = self._bring(name)
                keys.append(key)
            self._say("")
        except (CannotCache, CannotFetch, OSError, http_client.HTTPException) as error:
            self._say("")
            why = f"the host cannot be prepared: {error}"
            self._caller.wire.tell(op="unready", error=why, host_fault=is_of_host(error))
            return
        self._caller.wire.tell(op="ready", envs=envs, keys=keys)
        if self._caller.saving is not None:
            self._caller.saving.begin()

    def _bring(self, name: str) -> tuple[str, str]:
        """The key of a dataset in the cache, and its folder there."""
        cache = cache_of(self._caller.plan)
        for _ in range(LISTINGS):
            self._say(f"listing dataset {name}")
            listing = Listing(self._home, name)

            def note(done_bytes: int, size_bytes: int = listing.size_bytes) -> None:
                percent = 100 * done_bytes // max(1, size_bytes)
                self._say(f"fetching dataset {name}: {percent}%")

            def wait() -> None:
                self._say(f"waiting for another task of this host that fetches dataset {name}")
                time.sleep(TURN_S)

            fetch = Fetch(self._ticket, listing, note)
            try:
                folder, held = cache.bring(listing.key, listing.size_bytes, fetch.run, wait)
            except Moved:
                continue
            self.held.append(held)
            return listing.key, str(folder)
        raise CannotFetch(f"dataset {name} changes all the time")

    def _say(self, why: str) -> None:
        """Tell people what the tasks wait for; that it arrives does not matter."""
        now = now_s()
        if why == self._told or (why and now - self._told_s < NEWS_S):
            return
        self._told, self._told_s = why, now
        self._caller.say(why)
