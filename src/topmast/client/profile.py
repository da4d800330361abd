"""The methods of a client about the profile of the server."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from topmast.client.transport import Transport
from topmast.model.system_views import ProfileAct

_JSON = {"Content-Type": "application/json"}


class ProfileCalls:
    """A method for each route of the profile."""

    _transport: Transport

    def profile(self) -> ProfileAct:
        """The profile that the server decides by, and that of the next leader."""
        return self._transport.get(ProfileAct, "/profile")

    def set_profile(
        self,
        profile: str,
        options: Mapping[str, str] | None = None,
        *,
        reason: str = "",
        dry_run: bool = False,
    ) -> ProfileAct:
        """Let the next leader decide by ``profile``, with ``options`` laid over it."""
        body: dict[str, object] = {"profile": profile, "options": dict(options or {})}
        body |= {"reason": reason, "dry_run": dry_run}
        answer = self._transport.send(
            "PUT", "/profile", content=msgspec.json.encode(body), headers=_JSON
        )
        return self._transport.decoded(ProfileAct, answer)
