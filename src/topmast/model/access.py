"""What each role may do, and where: permissions, roles, and the principals that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct


class Permission(StrEnum):
    """One thing that a route allows. Each route of the interface declares exactly one."""

    JOBS_VIEW = "jobs.view"
    JOBS_SUBMIT = "jobs.submit"
    JOBS_CANCEL = "jobs.cancel"
    JOBS_OTHERS = "jobs.others"
    FLEET_VIEW = "fleet.view"
    FLEET_OPERATE = "fleet.operate"
    DATA_VIEW = "data.view"
    DATA_EDIT = "data.edit"
    USAGE_VIEW = "usage.view"
    AUDIT_VIEW = "audit.view"
    ACCOUNTS_VIEW = "accounts.view"
    ACCOUNTS_EDIT = "accounts.edit"
    SELF = "self"


MEANING: Mapping[Permission, str] = {
    Permission.JOBS_VIEW: "see jobs of the tenant: state, history, output, explanations, events",
    Permission.JOBS_SUBMIT: "submit jobs for the tenant, under the own name; upload work folders",
    Permission.JOBS_CANCEL: "cancel own jobs",
    Permission.JOBS_OTHERS: "act for other users: submit under their names, cancel their jobs",
    Permission.FLEET_VIEW: "see regions, clusters, hosts, GPUs, tenants and plans",
    Permission.FLEET_OPERATE: "cordon, uncordon and drain hosts",
    Permission.DATA_VIEW: "see datasets and their replicas",
    Permission.DATA_EDIT: "add, copy, drop and remove datasets",
    Permission.USAGE_VIEW: "see the GPU-hours of the tenant",
    Permission.AUDIT_VIEW: "read the audit log of the tenant",
    Permission.ACCOUNTS_VIEW: "see service accounts, their tokens, and roles at the tenant",
    Permission.ACCOUNTS_EDIT: "make service accounts of the tenant and their tokens; grant roles",
    Permission.SELF: "ask for the own name and roles; make and revoke own tokens",
}
"""In words, for the reference."""

FLEET_WIDE = frozenset({Permission.FLEET_VIEW, Permission.DATA_VIEW, Permission.SELF})
"""What no tenant owns: a role anywhere in the tree suffices."""


class Role(StrEnum):
    """A set of permissions that is granted at a tenant, or at the root of the tree."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    TENANT_ADMIN = "tenant-admin"
    OPERATOR = "operator"
    ADMIN = "admin"


_VIEWER = frozenset(
    {
        Permission.JOBS_VIEW,
        Permission.FLEET_VIEW,
        Permission.DATA_VIEW,
        Permission.USAGE_VIEW,
        Permission.SELF,
    }
)
_SUBMITTER = _VIEWER | {Permission.JOBS_SUBMIT, Permission.JOBS_CANCEL}
_TENANT_ADMIN = _SUBMITTER | {
    Permission.JOBS_OTHERS,
    Permission.AUDIT_VIEW,
    Permission.ACCOUNTS_VIEW,
    Permission.ACCOUNTS_EDIT,
}
_OPERATOR = _SUBMITTER | {
    Permission.JOBS_OTHERS,
    Permission.FLEET_OPERATE,
    Permission.DATA_EDIT,
    Permission.AUDIT_VIEW,
    Permission.ACCOUNTS_VIEW,
}

ALLOWED: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: _VIEWER,
    Role.SUBMITTER: _SUBMITTER,
    Role.TENANT_ADMIN: _TENANT_ADMIN,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: frozenset(Permission),
}
"""The permissions of each role."""

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
