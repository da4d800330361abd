"""Logging people in at an OpenID provider."""

from topmast.adapters.oidc.provider import Device, Identity, OpenId, Pending
from topmast.adapters.oidc.refused import Refused

__all__ = ["Device", "Identity", "OpenId", "Pending", "Refused"]
