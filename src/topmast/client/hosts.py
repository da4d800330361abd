"""The methods of a client that put hosts and clusters aside, and bring them back."""

from __future__ import annotations

import time
from collections.abc import Iterable

from topmast.client.transport import Transport, path_of, why
from topmast.model.act_views import ClusterActed, HostsActed, ReservationView
from topmast.model.views import HostView


class HostsCalls:
    """A method for each state that an operator may want hosts and clusters to be in.

    ``also`` names more hosts of the region, for the same request; ``reason`` is kept in the history
    of the hosts. A selector such as ``cluster=east-1,gpu=H100`` finds hosts anywhere. With
    ``dry_run`` nothing is done, and the answer says what would be.
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
        dry_run: bool = False,
    ) -> HostView:
        """Place nothing more on a host, for good or until a time; what runs there goes on."""
        return self._set_host("cordon", host, also, reason, dry_run, **_until(until_s))

    def uncordon(
        self, host: str, *, also: Iterable[str] = (), reason: str = "", dry_run: bool = False
    ) -> HostView:
        """Let a host take work again."""
        return self._set_host("uncordon", host, also, reason, dry_run)

    def drain(
        self,
        host: str,
        *,
        now: bool = False,
        also: Iterable[str] = (),
        reason: str = "",
        until_s: float | None = None,
        dry_run: bool = False,
    ) -> HostView:
        """Place nothing more on a host, and move its work away as soon as it has another place.

        With ``now``, work without another place is stopped too, and waits. None of the hosts in
        ``also`` becomes a place for another's work.
        """
        return self._set_host(
            "drain", host, also, reason, dry_run,
            **({"now": True} if now else {}), **_until(until_s),
        )  # fmt: skip

    def cordon_hosts(
        self,
        hosts: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        until_s: float | None = None,
        dry_run: bool = False,
    ) -> HostsActed:
        """Place nothing more on hosts; what runs there goes on."""
        return self._act("cordon", hosts, selector, reason, dry_run, **_until(until_s))

    def uncordon_hosts(
        self,
        hosts: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> HostsActed:
        """Let hosts take work again."""
        return self._act("uncordon", hosts, selector, reason, dry_run)

    def drain_hosts(
        self,
        hosts: Iterable[str] = (),
        *,
        selector: str = "",
        now: bool = False,
        reason: str = "",
        until_s: float | None = None,
        dry_run: bool = False,
    ) -> HostsActed:
        """Place nothing more on hosts, and move their work to others. ``now`` as in `drain`."""
        more = {"now": True} if now else {}
        return self._act("drain", hosts, selector, reason, dry_run, **more, **_until(until_s))

    def close_cluster(
        self, cluster: str, *, reason: str = "", until_s: float | None = None, dry_run: bool = False
    ) -> ClusterActed:
        """Give a cluster no new work, for good or until a time; what runs there goes on."""
        return self._set_cluster("close", cluster, reason, dry_run, **_until(until_s))

    def open_cluster(
        self, cluster: str, *, reason: str = "", dry_run: bool = False
    ) -> ClusterActed:
        """Give a cluster work again that an operator closed."""
        return self._set_cluster("open", cluster, reason, dry_run)

    def close_clusters(
        self,
        clusters: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        until_s: float | None = None,
        dry_run: bool = False,
    ) -> list[ClusterActed]:
        """Give clusters no new work, as `close_cluster`; by a selector such as ``region=east``."""
        return self._set_clusters("close", clusters, selector, reason, dry_run, **_until(until_s))

    def open_clusters(
        self,
        clusters: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> list[ClusterActed]:
        """Give clusters work again that an operator closed."""
        return self._set_clusters("open", clusters, selector, reason, dry_run)

    def reservations(self) -> list[ReservationView]:
        """Hosts that are reserved for a while."""
        kind = dict[str, list[ReservationView]]
        return self._transport.get(kind, "/reservations")["reservations"]

    def reserve(
        self,
        hosts: Iterable[str] = (),
        *,
        until_s: float,
        from_s: float | None = None,
        selector: str = "",
        cluster: str = "",
        region: str = "",
        tenants: Iterable[str] = (),
        reason: str = "",
        dry_run: bool = False,
    ) -> ReservationView:
        """Reserve hosts from a time on (by default now) until another.

        A job that would not end before does not start there. Jobs of ``tenants`` do.
        """
        named = [hosts] if isinstance(hosts, str) else list(hosts)
        body: dict[str, object] = {
            "hosts": named, "selector": selector, "cluster": cluster, "region": region,
            "from_s": time.time() if from_s is None else from_s, "until_s": until_s,
            "tenants": list(tenants), "reason": reason, "dry_run": dry_run,
            "user": self.user,
        }  # fmt: skip
        return self._transport.post(ReservationView, "/reservations", body)

    def end_reservation(
        self, name: str, *, reason: str = "", dry_run: bool = False
    ) -> ReservationView:
        """End a reservation before its time; what it was."""
        body = {"user": self.user, "reason": reason, "dry_run": dry_run}
        return self._transport.post(ReservationView, path_of("reservations", name, "end"), body)

    def _set_host(
        self,
        verb: str,
        host: str,
        also: Iterable[str],
        reason: str,
        dry_run: bool,
        **more: object,
    ) -> HostView:
        body: dict[str, object] = {"user": self.user, **why(reason, dry_run), **more}
        if others := list(also):
            body["also"] = others
        return self._transport.post(HostView, path_of("hosts", host, verb), body)

    def _act(
        self,
        verb: str,
        hosts: Iterable[str],
        selector: str,
        reason: str,
        dry_run: bool,
        **more: object,
    ) -> HostsActed:
        named = [hosts] if isinstance(hosts, str) else list(hosts)
        body = {
            "hosts": named, "selector": selector, "reason": reason, "dry_run": dry_run,
            "user": self.user, **more,
        }  # fmt: skip
        return self._transport.post(HostsActed, f"/hosts/{verb}", body)

    def _set_clusters(
        self,
        verb: str,
        clusters: Iterable[str],
        selector: str,
        reason: str,
        dry_run: bool,
        **more: object,
    ) -> list[ClusterActed]:
        named = [clusters] if isinstance(clusters, str) else list(clusters)
        body = {
            "clusters": named, "selector": selector, "reason": reason, "dry_run": dry_run,
            "user": self.user, **more,
        }  # fmt: skip
        kind = dict[str, list[ClusterActed]]
        return self._transport.post(kind, f"/clusters/{verb}", body)["clusters"]

    def _set_cluster(
        self, verb: str, cluster: str, reason: str, dry_run: bool, **more: object
    ) -> ClusterActed:
        body = {"user": self.user, "reason": reason, "dry_run": dry_run, **more}
        return self._transport.post(ClusterActed, path_of("clusters", cluster, verb), body)


def _until(until_s: float | None) -> dict[str, object]:
    return {} if until_s is None else {"until_s": until_s}
