"""Permissions and roles, as plain names: what each role may do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Permission(StrEnum):
    """One thing that a route allows. Each route of the interface declares exactly one."""

    __hash__ = str.__hash__  # each request looks one up, and that of Enum is not compiled

    JOBS_VIEW = "jobs.view"
    JOBS_SUBMIT = "jobs.submit"
    JOBS_CANCEL = "jobs.cancel"
    JOBS_EDIT = "jobs.edit"
    JOBS_EXEC = "jobs.exec"
    JOBS_OTHERS = "jobs.others"
    FLEET_VIEW = "fleet.view"
    FLEET_OPERATE = "fleet.operate"
    FLEET_EDIT = "fleet.edit"
    FLEET_BUILD = "fleet.build"
    DATA_VIEW = "data.view"
    DATA_EDIT = "data.edit"
    USAGE_VIEW = "usage.view"
    AUDIT_VIEW = "audit.view"
    NOTIFY_EDIT = "notify.edit"
    ACCOUNTS_VIEW = "accounts.view"
    ACCOUNTS_EDIT = "accounts.edit"
    SELF = "self"


MEANING: Mapping[Permission, str] = {
    Permission.JOBS_VIEW: "see jobs of the tenant: state, history, output, explanations, events",
    Permission.JOBS_SUBMIT: "submit jobs for the tenant, under the own name; upload work folders",
    Permission.JOBS_CANCEL: "cancel own jobs",
    Permission.JOBS_EDIT: "hold, release, stop, requeue and change own jobs",
    Permission.JOBS_EXEC: "run commands beside the tasks of own jobs",
    Permission.JOBS_OTHERS: "act for other users: submit under their names, act on their jobs",
    Permission.FLEET_VIEW: "see regions, clusters, hosts, GPUs, tenants and plans",
    Permission.FLEET_OPERATE: "cordon, drain and reserve hosts; close and open clusters",
    Permission.FLEET_EDIT: "see the fleet file of a running server, and change fleet and quotas",
    Permission.FLEET_BUILD: "add and remove regions and clusters, which run programs on the "
    "server; name a folder of the server as the source of a dataset",
    Permission.DATA_VIEW: "see datasets and their replicas",
    Permission.DATA_EDIT: "add, copy, drop and remove datasets",
    Permission.USAGE_VIEW: "see the GPU-hours of the tenant",
    Permission.AUDIT_VIEW: "read the audit log of the tenant",
    Permission.NOTIFY_EDIT: "see webhooks, and change them",
    Permission.ACCOUNTS_VIEW: "see service accounts, their tokens, and roles at the tenant",
    Permission.ACCOUNTS_EDIT: "make service accounts of the tenant and their tokens; grant roles",
    Permission.SELF: "ask for the own name and roles; make and revoke own tokens",
}
"""In words, for the reference."""

FLEET_WIDE = frozenset({Permission.FLEET_VIEW, Permission.DATA_VIEW, Permission.SELF})
"""What no tenant owns: a role anywhere in the tree suffices."""

BEYOND: Mapping[Permission, tuple[Permission, str]] = {
    **dict.fromkeys(
        (Permission.JOBS_CANCEL, Permission.JOBS_EDIT, Permission.JOBS_EXEC),
        (Permission.JOBS_OTHERS, "for jobs of others"),
    ),
    Permission.JOBS_SUBMIT: (Permission.JOBS_OTHERS, "under another name"),
    Permission.FLEET_EDIT: (Permission.FLEET_BUILD, "to add or remove regions and clusters"),
    Permission.DATA_EDIT: (Permission.FLEET_BUILD, "to name a source on the server"),
    Permission.ACCOUNTS_EDIT: (Permission.FLEET_OPERATE, "to grant operator or admin"),
}
"""What some requests that ask for a permission take besides, and which those are."""

READING = (
    Permission.JOBS_VIEW, Permission.FLEET_VIEW, Permission.DATA_VIEW, Permission.USAGE_VIEW,
    Permission.AUDIT_VIEW, Permission.SELF,
)  # fmt: skip
"""What pages need that only show: those of the past, and those of a standby."""


class Role(StrEnum):
    """A set of permissions that is granted at a tenant, or at the root of the tree."""

    __hash__ = str.__hash__

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
_SUBMITTER = _VIEWER | {
    Permission.JOBS_SUBMIT,
    Permission.JOBS_CANCEL,
    Permission.JOBS_EDIT,
    Permission.JOBS_EXEC,
}
_TENANT_ADMIN = _SUBMITTER | {
    Permission.JOBS_OTHERS,
    Permission.AUDIT_VIEW,
    Permission.ACCOUNTS_VIEW,
    Permission.ACCOUNTS_EDIT,
}
_OPERATOR = _SUBMITTER | {
    Permission.JOBS_OTHERS,
    Permission.FLEET_OPERATE,
    Permission.FLEET_EDIT,
    Permission.DATA_EDIT,
    Permission.NOTIFY_EDIT,
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


def least_role(permissions: Iterable[Permission]) -> Role:
    """The first of the roles, which begin with the least, that has all of these permissions."""
    wanted = frozenset(permissions)
    return next(role for role in Role if wanted <= ALLOWED[role])
