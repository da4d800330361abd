"""What an engine has said of the hosts of its cluster."""

from __future__ import annotations


class HostNews:
    """What was heard since this process began."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        """The hosts of the cluster."""
        self.down: dict[str, bool] = {}
        """Hosts that may be down, until a truth does not name them."""
        self.closed: dict[str, str] | None = None
        """Why, by host; None before the first truth: the placer may know of others."""

    def configure(self, names: frozenset[str]) -> None:
        """The cluster has these hosts and no others; what went is spoken for by another."""
        self.names = names
        self.down = {host: True for host in self.down if host in names}
        if self.closed is not None:
            self.closed = {host: why for host, why in self.closed.items() if host in names}
