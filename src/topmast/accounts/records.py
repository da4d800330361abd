"""What the accounts machine keeps."""

from __future__ import annotations

from msgspec import Struct

from topmast.model.access import Permission, Role
from topmast.model.messages import TokenKind


class Token(Struct, frozen=True):
    """A token that was made; the token itself is not kept."""

    id: str
    kind: TokenKind
    subject: str
    digest: str
    """SHA-256 of the token, in hexadecimal. A token is too long to be guessed from it."""
    last_four: str
    created_s: float
    expires_s: float
    scopes: tuple[Permission, ...] | None = None
    """All that it is good for; None: all that its owner may do."""
    label: str = ""
    used_s: float | None = None
    """The last use that was noted; None: never used."""


class Person(Struct, frozen=True):
    """A person that logged in."""

    subject: str
    groups: tuple[str, ...]
    """As the provider said at the last login."""
    login_s: float


class ServiceAccount(Struct, frozen=True):
    """A program's account, which belongs to a tenant."""

    name: str
    tenant: str


class Binding(Struct, frozen=True, order=True):
    """A role at a tenant, held by a person, a service account or a group of people."""

    subject: str
    """``user:NAME``, ``sa:NAME`` or ``group:NAME``."""
    role: Role
    tenant: str
    """Empty: the root."""
