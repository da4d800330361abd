"""What changes tokens, service accounts and roles; all of it goes to the accounts machine."""

from __future__ import annotations

from enum import StrEnum

from topmast.model.access import Permission, Role
from topmast.model.messages.base import Message


class TokenKind(StrEnum):
    """What a token stands for."""

    PERSONAL = "personal"
    SERVICE = "service"
    SESSION = "session"


class CreateToken(Message, frozen=True):
    """Make a token good. Its text is known to its owner alone."""

    id: str
    kind: TokenKind
    subject: str
    """The principal that it proves."""
    digest: str
    """SHA-256 of the token, in hexadecimal."""
    last_four: str
    """The last characters of the token, to tell it from others."""
    expires_s: float
    scopes: tuple[Permission, ...] | None = None
    label: str = ""


class RevokeToken(Message, frozen=True):
    """Make a token good for nothing."""

    id: str


class NoteTokenUse(Message, frozen=True):
    """A token was used; noted now and then."""

    id: str


class NoteLogin(Message, frozen=True):
    """A person has logged in; the groups are those of the provider, and replace earlier ones."""

    subject: str
    groups: tuple[str, ...]


class AddServiceAccount(Message, frozen=True):
    """Make a service account, which belongs to a tenant."""

    name: str
    tenant: str


class RemoveServiceAccount(Message, frozen=True):
    """Forget a service account with its tokens and roles."""

    name: str


class GrantRole(Message, frozen=True):
    """Give a role at a tenant to ``user:NAME``, ``sa:NAME`` or ``group:NAME``."""

    subject: str
    role: Role
    tenant: str


class RevokeRole(Message, frozen=True):
    """Take a role away again."""

    subject: str
    role: Role
    tenant: str
