"""The methods of a client that put hosts aside, and bring them back."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from topmast.client.transport import Transport
from topmast.model.errors import NotFound
from topmast.model.views import HostView


class HostsCalls:
    """A method for each state that an operator may want a host to be in.

    ``also`` names more hosts of the region, for the same request; ``reason`` is kept in the history
    of the hosts.
    """

    _transport: Transport

    @property
    def user(self) -> str:
        """The user that acts."""
        raise NotImplementedError

    def cordon(
        self,
        host: str,
        *,
        also: Iterable[str] = (),
        reason: str = "",
        until_s: float | None = None,
    ) -> HostView:
        """Place nothing more on a host, for good or until a time; what runs there goes on."""
        return self._set_host("cordon", host, also, reason, **_until(until_s))

    def uncordon(self, host: str, *, also: Iterable[str] = (), reason: str = "") -> HostView:
        """Let a host take work again."""
        return self._set_host("uncordon", host, also, reason)

    def drain(
        self,
        host: str,
        *,
        now: bool = False,
        also: Iterable[str] = (),
        reason: str = "",
        until_s: float | None = None,
    ) -> HostView:
        """Place nothing more on a host, and move its work away as soon as it has another place.

        With ``now``, work without another place is stopped too, and waits. None of the hosts in
        ``also`` becomes a place for another's work.
        """
        return self._set_host(
            "drain", host, also, reason, **({"now": True} if now else {}), **_until(until_s)
        )

    def _set_host(
        self, verb: str, host: str, also: Iterable[str], reason: str, **more: object
    ) -> HostView:
        if host in ("", ".", ".."):
            raise NotFound(f"nothing is named {host!r}")
        body: dict[str, object] = {"user": self.user, **more}
        if others := list(also):
            body["also"] = others
        if reason:
            body["reason"] = reason
        return self._transport.post(HostView, f"/hosts/{quote(host, safe='')}/{verb}", body)


def _until(until_s: float | None) -> dict[str, object]:
    return {} if until_s is None else {"until_s": until_s}
