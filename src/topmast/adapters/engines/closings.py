"""Lines of the log that say when a far cluster takes no new work, and when it does again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from topmast.model.messages import HostClosed, HostOpened, Message
from topmast.ports import Post

log = structlog.get_logger(__name__)


class Closings:
    """Hands news on, and logs when the last open host of a cluster closes, or a first one opens."""

    def __init__(self, cluster: str, hosts: Callable[[], Iterable[str]], post: Post) -> None:
        self._cluster, self._hosts, self._post = cluster, hosts, post
        self._closed: dict[str, str] = {}
        """Why which hosts are closed."""
        self._shut = False
        """Whether all were when that was logged last."""

    def post(self, message: Message) -> None:
        """Any news of the engine's."""
        if isinstance(message, HostClosed):
            self._closed[message.host] = message.why
        elif isinstance(message, HostOpened):
            self._closed.pop(message.host, None)
        if isinstance(message, HostClosed | HostOpened):
            self._tell()
        self._post(message)

    def _tell(self) -> None:
        closed = [self._closed.get(host, "") for host in self._hosts()]
        if (shut := all(closed) and bool(closed)) == self._shut:
            return
        self._shut = shut
        if shut:
            why = max(closed, key=closed.count)
            log.warning("a cluster is closed to new work", cluster=self._cluster, why=why)
        else:
            log.info("a cluster is open to new work again", cluster=self._cluster)
