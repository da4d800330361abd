"""Jobs that not even an empty fleet could hold: found before they are submitted, once for every
kind.
"""

from __future__ import annotations

from topmast.fast.queue import Verdict, job_key, placement_key
from topmast.fast.region import pending_reason
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.job import JobSpec
from topmast.model.reason import PRECEDENCE, PendingReason, Rejection
from topmast.runtime.machines import Machines
from topmast.runtime.planning.growth import Growth
from topmast.slow.capacity.feedback import Limits


class Admission:
    """Asks machines of its own, where nothing ever runs.

    ``growth``: how far clusters may grow, where capacity is planned; what would fit
    then is not refused.
    """

    def __init__(self, machines: Machines, fleet: Fleet, growth: Limits | None = None) -> None:
        self._machines = machines
        self._growth = {r.name: Growth(r, {}, growth) for r in fleet.regions if growth is not None}
        self._regions = sorted(region.name for region in fleet.regions)
        waiting: list[tuple[str, m.Message]] = [(ids.QUEUE, m.ConfigureFleet(fleet))]
        while waiting:
            address, message = waiting.pop(0)
            machine = machines.at(address)
            if machine is not None and not address.startswith("cluster/"):
                waiting += [(s.to, s.message) for s in machine.handle(message, 0.0).sends]
        self._known: dict[object, Verdict | None] = {}

    def refuses(self, spec: JobSpec) -> Verdict | None:
        """Why the job can never start; None if it can. A search for every kind, then O(1)."""
        topology = self._machines.queue.backlog.topology_policy.topology_of(spec)
        placement = placement_key(spec, topology)
        key = job_key(spec, placement)
        if key not in self._known:
            self._known[key] = self._judge(spec)
        return self._known[key]

    def _judge(self, spec: JobSpec) -> Verdict | None:
        queue = self._machines.queue
        unknown = queue.data.catalogue.unknown(spec.datasets)
        if unknown:
            return Verdict(PendingReason.UNKNOWN_DATASET, ", ".join(unknown))
        reasons: list[Verdict] = []
        for over_quota in (False, True):
            choices = queue.tenancy.choices(spec, over_quota)
            if not choices:
                continue
            for region in self._regions:
                cost = queue.data.catalogue.cost(spec.datasets, region, 0.0)
                if cost.barred is Rejection.RESIDENCY:
                    reasons.append(Verdict(PendingReason.WAITING_FOR_DATA, cost.detail))
                    continue
                request = queue.request(spec, over_quota, choices)
                ask = request.in_region(queue.terms(region, cost))
                placer = self._machines.placers[region]
                if placer.search(0.0).best(ask) is not None:
                    return None
                if region in self._growth and self._growth[region].to_hold(spec):
                    return None
                reasons.append(Verdict(pending_reason(placer.columns, ask)))
        if not reasons:
            return Verdict(*queue.tenancy.entitlements.quota_reason(spec))
        return max(reasons, key=lambda verdict: PRECEDENCE.index(verdict.reason))
