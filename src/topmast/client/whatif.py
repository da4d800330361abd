"""The methods of a client about what-ifs: two futures of the system, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topmast.client.transport import Transport, path_of
from topmast.model.whatif_views import WhatIfView


class WhatIfCalls:
    """A method for each route of what-ifs."""

    _transport: Transport

    def start_whatif(
        self,
        *,
        for_s: float = 86_400.0,
        add_hosts: Mapping[str, int] | None = None,
        quotas: Mapping[str, int] | None = None,
        profile: str = "",
        lose_regions: Iterable[str] = (),
        jobs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> WhatIfView:
        """Begin to run a copy of the system ahead twice: as it is, and with something changed.

        ``add_hosts`` by ``CLUSTER`` or ``CLUSTER:KIND``, ``quotas`` by ``TENANT:MODEL``, ``jobs``
        as `edit_jobs` changes them. `whatif` tells how far it is.
        """
        body = {
            "for_s": for_s, "add_hosts": dict(add_hosts or {}), "quotas": dict(quotas or {}),
            "profile": profile, "lose_regions": list(lose_regions),
            "jobs": {job: dict(changes) for job, changes in (jobs or {}).items()},
        }  # fmt: skip
        return self._transport.post(WhatIfView, "/whatif", body, repeatable=False)

    def whatif(self, number: str) -> WhatIfView:
        """A what-if on its way, or its result."""
        return self._transport.get(WhatIfView, path_of("whatif", number))
