"""`topmast up --standby --reads`: what a standby answers of the state that it follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp

from topmast.adapters.clock import SystemClock
from topmast.adapters.engines.registry import Engines
from topmast.adapters.store import SqlJournal
from topmast.api import create_api
from topmast.api.guard import Gate
from topmast.app.claim import ENGINES
from topmast.ports import LogPage
from topmast.runtime.recovery import Follower
from topmast.service.blobs import Blobs
from topmast.service.regions import Elsewhere, Regions
from topmast.service.service import Service
from topmast.service.standby import Followed
from topmast.web import Standing
from topmast.web import routes as pages


class StandbyReads:
    """Makes the application that answers from machines that follow, and knows it meanwhile."""

    def __init__(
        self,
        state: Path,
        engines: Engines,
        peers: Callable[[], dict[str, Elsewhere]],
        gate: Callable[[Service], Gate],
        leader: Callable[[], str],
        age_s: Callable[[], float],
        most_streams: int,
    ) -> None:
        """``peers``: the regions that have processes of their own. ``leader``: its URL, if known.

        ``gate`` lets requests in to a service. ``age_s``: how old the answers are.
        """
        self._state = state
        self._engines = engines
        self._peers = peers
        self._gate = gate
        self._leader = leader
        self._age_s = age_s
        self._most_streams = most_streams
        self._made: tuple[Followed, ASGIApp] | None = None

    def show(self, follower: Follower, journal: SqlJournal) -> Followed:
        """Answer from these machines from now on."""
        followed = Followed(
            follower, journal, SystemClock(), self._read_log, Blobs(self._state / "workdirs"),
            Regions(follower.machines, self._peers()),
        )  # fmt: skip
        service = followed.service
        api = create_api(
            service, None, "", self._most_streams, self._gate(service),
            pages=pages(service, standing=lambda: Standing(self._leader(), self._age_s())),
        )  # fmt: skip
        self._made = (followed, api)
        return followed

    def app(self, shown: Followed | None) -> ASGIApp | None:
        """The application of what is shown now, if anything."""
        made = self._made
        return made[1] if made is not None and made[0] is shown else None

    def _read_log(
        self, cluster: str, job: str, epoch: int, rank: int, offset: int, limit: int
    ) -> LogPage | None:
        """Output of a task, if the folder of its cluster is within reach from here."""
        folder = self._state / ENGINES / cluster
        kinds = self._engines.values()
        pages = (kind.read_stored_log(folder, job, epoch, rank, offset, limit) for kind in kinds)
        return next((page for page in pages if page is not None), None)
