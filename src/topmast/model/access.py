"""Principals, and where they may do what: grants of roles in the tree of tenants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from topmast.model.errors import Forbidden
from topmast.model.roles import ALLOWED as ALLOWED
from topmast.model.roles import BEYOND, least_role
from topmast.model.roles import FLEET_WIDE as FLEET_WIDE
from topmast.model.roles import MEANING as MEANING
from topmast.model.roles import READING as READING
from topmast.model.roles import Permission as Permission
from topmast.model.roles import Role as Role

ROOT = ""
"""Above all tenants: a role granted here holds everywhere."""
TOP = "/"
"""How people write it."""
BREAK_GLASS = "break-glass"
"""The name of the administrator of an emergency, proved by a file of the server."""
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

    def forbidden(
        self, permission: Permission, tenant: str | None = None, also: Iterable[Permission] = ()
    ) -> Forbidden:
        """The error for what is not allowed; it names the least role that would do, and where.

        ``tenant``: as people write it, the root included; None: it is not known yet what the
        request is about. ``also``: what else it takes.
        """
        if not self._in_scope(permission):
            remedy = f"use a token with the scope {permission}, or one without scopes"
            return Forbidden(self.refusal(permission), remedy)
        needed = (permission, *also)
        if tenant is not None:
            at_top = tenant in (ROOT, TOP)
            where = " at the root of the tenants" if at_top else f" for tenant {tenant}"
            return Forbidden(self.refusal(permission, where), self._asking(needed, tenant))
        remedy = self._asking(needed, self._own_tenant())
        if permission in BEYOND:
            beyond, what = BEYOND[permission]
            remedy += f"; {what} it takes {least_role((permission, beyond))}"
        return Forbidden(self.refusal(permission), remedy)

    def above(self, missing: Permission, role: Role, tenant: str | None, why: str) -> Forbidden:
        """The error for giving or taking a role with more than the own ones at a tenant.

        ``tenant``: None for one that the caller may not know of.
        """
        if not self._in_scope(missing):
            return Forbidden(why, "use a token without scopes")
        return Forbidden(why, self._asking((*ALLOWED[role], Permission.ACCOUNTS_EDIT), tenant))

    def _own_tenant(self) -> str | None:
        """The one tenant that it has roles at, if there is only one."""
        tenants = {grant.tenant for grant in self.grants}
        return tenants.pop() if len(tenants) == 1 else None

    def _asking(self, permissions: Iterable[Permission], tenant: str | None) -> str:
        """Which role to ask for; None: at a tenant that cannot be named."""
        role = least_role(permissions)
        if tenant is None and role not in ROOT_ONLY:
            return (
                f"ask for {role} at the tenant that it is about: "
                f"topmast roles grant {self.subject} {role} TENANT"
            )
        place = TOP if role in ROOT_ONLY else tenant or TOP
        return f"ask for {role}: topmast roles grant {self.subject} {role} {place}"

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
