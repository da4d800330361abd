"""What people are shown of tokens, service accounts, roles and the audit log."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class RoleView(Struct, frozen=True):
    """A role at a tenant, and the subject that has it."""

    subject: str
    """``user:NAME``, ``sa:NAME`` or ``group:NAME``."""
    role: str
    tenant: str
    """``/`` is the root: the role holds for all tenants."""


class WhoAmI(Struct, frozen=True):
    """The principal that a request has proved."""

    subject: str
    via: str
    """The kind of proof, with the last characters of a token."""
    roles: tuple[RoleView, ...]
    groups: tuple[str, ...] = ()
    """As the provider said at the last login."""
    scopes: tuple[str, ...] | None = None
    """All that the token is good for; None: all that the roles allow."""
    expires_s: float | None = None
    login: bool = True
    """False for a server that asks for no login: everybody on its machine is its administrator."""


class TokenView(Struct, frozen=True):
    """A token, without its secret."""

    id: str
    kind: str
    """``personal``, ``service`` or ``session``."""
    subject: str
    label: str
    last_four: str
    created_s: float
    expires_s: float
    used_s: float | None
    """The last use, to the hour; None: never used."""
    scopes: tuple[str, ...] | None = None
    """All that it is good for; None: all that the roles allow."""


class NewToken(Struct, frozen=True):
    """A token that was made just now; this is the only time that its secret is shown."""

    token: str
    view: TokenView


class DeviceLogin(Struct, frozen=True):
    """A login that a person confirms on any device with a browser."""

    device: str
    """Names the login to this server."""
    user_code: str
    """What the person enters."""
    url: str
    """Where the person enters it."""
    whole_url: str
    """The same with the code in it; empty if the provider has none."""
    interval_s: float
    """How long to wait before the token is asked for again."""
    life_s: float


class ServiceAccountView(Struct, frozen=True):
    """A program's account."""

    name: str
    tenant: str
    """``/`` is the root."""
    tokens: int
    """How many are good now."""


class ActView(Struct, frozen=True):
    """One line of the audit log."""

    id: int
    at_s: float
    actor: str
    """The subject of the principal; empty for a request without proof of one."""
    via: str
    address: str
    request: str
    verb: str
    object: str
    tenant: str
    before: Any
    """The state of the object; None where it has none to tell."""
    after: Any
    outcome: str
    """``done``, ``unchanged``, or ``refused`` with the reason."""


class ActPage(Struct, frozen=True):
    """A page of the audit log, the newest line first."""

    acts: tuple[ActView, ...]
    next_cursor: str | None
    """None ends the listing."""
