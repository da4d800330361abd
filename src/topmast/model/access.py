"""Principals, and where they may do what: grants of roles in the tree of tenants."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from topmast.model.roles import ALLOWED as ALLOWED
from topmast.model.roles import FLEET_WIDE as FLEET_WIDE
from topmast.model.roles import MEANING as MEANING
from topmast.model.roles import READING as READING
from topmast.model.roles import Permission as Permission
from topmast.model.roles import Role as Role

ROOT = ""
"""Above all tenants: a role granted here holds everywhere."""
ROOT_ONLY = (Role.OPERATOR, Role.ADMIN)
"""Roles about things that no tenant owns."""


class Grant(Struct, frozen=True):
    """A role at a tenant; it holds for the tenants below, too."""

    role: Role
    tenant: str = ROOT
    """Empty: the root."""


class Principal(Struct, frozen=True):
    """A person, service account or administrator, as far as a request has proved it."""

    subject: str
    """``user:NAME`` or ``sa:NAME``."""
    grants: tuple[Grant, ...] = ()
    scopes: tuple[Permission, ...] | None = None
    """All that the token in use is good for; None: all that the roles allow."""
    trusted: bool = False
    """It is believed when it names a user: the one person of a server without login."""

    @property
    def user(self) -> str:
        """The name that its jobs bear: a person's as it is, a service account's as ``sa:NAME``."""
        return self.subject.removeprefix("user:")

    def may(self, permission: Permission, path: Sequence[str]) -> bool:
        """Whether it is allowed at a tenant; ``path`` names it and all above it, the root last."""
        if not self._in_scope(permission):
            return False
        return any(g.tenant in path and permission in ALLOWED[g.role] for g in self.grants)

    def may_somewhere(self, permission: Permission) -> bool:
        """Whether it is allowed at any tenant at all."""
        return self._in_scope(permission) and any(
            permission in ALLOWED[grant.role] for grant in self.grants
        )

    def refusal(self, permission: Permission, where: str = "") -> str:
        """Why something is not allowed, in words: the token in use, or the roles."""
        if not self._in_scope(permission):
            return f"this token's scopes do not include {permission}"
        return f"{self.subject} has no role with the permission {permission}{where}"

    def _in_scope(self, permission: Permission) -> bool:
        return self.scopes is None or permission in self.scopes


class Caller(Struct, frozen=True):
    """A principal and the way by which its request came: what the audit log says of a request."""

    principal: Principal
    via: str = ""
    """The kind of proof, with the last characters of a token."""
    address: str = ""
    """The network address of the client."""
    request: str = ""
    """A number of its own, which the answer repeats."""
    token: str = ""
    """The id of the token in use, if there is one."""


def local_caller(name: str = "local") -> Caller:
    """The one person of a server without login, on the server's own machine."""
    return Caller(Principal(f"user:{name}", (Grant(Role.ADMIN),), trusted=True), "loopback")
