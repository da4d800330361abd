"""What a caller may see and do: each object is checked by the tenant that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue import GlobalQueue
from topmast.model.access import FLEET_WIDE, ROOT, TOP, Caller, Permission
from topmast.model.errors import InvalidInput
from topmast.model.files.fields import one_of
from topmast.model.units import show
from topmast.ports import Act, ActRow


class Why(Struct, frozen=True):
    """Why something is done, and whether it is done at all."""

    reason: str = ""
    dry_run: bool = False
    """Only look whether it could be done."""

    @property
    def note(self) -> str:
        """The reason as the audit log holds it; empty without one."""
        return json_text(reason=self.reason) if self.reason else ""


NO_REASON = Why()


class Access:
    """Permissions of callers at the tenants of a queue. Any thread may ask."""

    def __init__(self, queue: GlobalQueue) -> None:
        self._queue = queue

    def path(self, tenant: str) -> tuple[str, ...]:
        """A tenant and all above it, the root last; one that left the fleet is below the root."""
        if tenant == ROOT:
            return (ROOT,)
        return tuple(node.name for node in self._queue.tenancy.ledger.tree.node(tenant).up())

    def top(self, tenant: str) -> str:
        """The tenant above all others that a tenant is below; the root of the root."""
        path = self.path(tenant)
        return path[-2] if len(path) > 1 else ROOT

    def has_tenant(self, tenant: str) -> bool:
        """Whether the fleet has a tenant of this name."""
        return tenant in self._queue.tenancy.ledger.tenants

    def names(self, caller: Caller | None = None) -> list[str]:
        """The tenants of the fleet that a caller sees; without one, all. O(tenants x depth)."""
        names = sorted(self._queue.tenancy.ledger.tenants)
        return names if caller is None else [name for name in names if self.sees(caller, name)]

    def sees(self, caller: Caller, tenant: str) -> bool:
        """Whether there is such a tenant, for all that a caller knows."""
        return self.has_tenant(tenant) and self.may(caller, Permission.JOBS_VIEW, tenant)

    def sees_all(self, caller: Caller) -> bool:
        """Whether no tenant is hidden from a caller."""
        return caller.principal.may(Permission.JOBS_VIEW, (ROOT,))

    def unknown_tenant(
        self, caller: Caller, name: str, permission: Permission, field: str = "tenant"
    ) -> InvalidInput:
        """The error for a tenant that there is not, or that the caller does not see."""
        remedy = one_of(name, self.names(caller))
        error = InvalidInput(f"unknown tenant {show(name)}", field=field, remedy=remedy)
        error.may_conceal = not self.sees_all(caller)
        if self.has_tenant(name):
            error.conceals = caller.principal.refusal(permission, f" for tenant {name}")
        return error

    def may(self, caller: Caller, permission: Permission, tenant: str) -> bool:
        """Whether it is allowed at a tenant. O(depth of the tree x grants)."""
        principal = caller.principal
        if permission in FLEET_WIDE:
            return principal.may_somewhere(permission)
        return principal.may(permission, (ROOT,)) or principal.may(permission, self.path(tenant))

    def require(
        self,
        caller: Caller,
        permission: Permission,
        tenant: str,
        also: Iterable[Permission] = (),
    ) -> None:
        """Raises Forbidden if it is not allowed at a tenant; ``also``: what else it will take."""
        if not self.may(caller, permission, tenant):
            raise caller.principal.forbidden(permission, self._written(caller, tenant), also)

    def _written(self, caller: Caller, tenant: str) -> str:
        """A tenant as a refusal names it: by its path for a caller that sees all of that."""
        path = self.path(tenant)
        if len(path) < 3 or not caller.principal.may(Permission.JOBS_VIEW, path[-2:]):
            return tenant
        return TOP.join(reversed(path[:-1]))

    def tenants(self, caller: Caller, permission: Permission) -> frozenset[str] | None:
        """The tenants at which it is allowed; None: everywhere. O(tenants x depth)."""
        if caller.principal.may(permission, (ROOT,)):
            return None
        names = self._queue.tenancy.ledger.tenants
        return frozenset(name for name in names if self.may(caller, permission, name))

    def granted(self, caller: Caller, permission: Permission) -> tuple[str, ...]:
        """Where the caller has a role with it: the root, and tenants of the fleet, by name."""
        principal = caller.principal
        places = dict.fromkeys(grant.tenant for grant in principal.grants)
        there = (name for name in places if name == ROOT or self.has_tenant(name))
        return tuple(sorted(name for name in there if principal.may(permission, (name,))))

    def user(self, caller: Caller, named: str, tenant: str) -> str:
        """The user that a job is for. To name another than oneself is a permission."""
        principal = caller.principal
        if principal.trusted:
            return named
        if named not in ("", principal.user):
            self.require(caller, Permission.JOBS_OTHERS, tenant)
            return named
        return principal.user

    def by(self, caller: Caller, named: str) -> str:
        """The name that the history gives for an act: a trusted caller may say another."""
        own = caller.principal.user
        return named or own if caller.principal.trusted else own


def act(
    caller: Caller,
    verb: str,
    subject: str = "",
    tenant: str = "",
    *,
    look: Callable[[], str] | None = None,
    after: str = "",
) -> Act:
    """An act of a caller, to be audited with what it changes."""
    line = row(caller, verb, subject, tenant)
    return Act(replace(line, after=after) if after else line, look)


def row(
    caller: Caller, verb: str, subject: str = "", tenant: str = "", outcome: str = "done"
) -> ActRow:
    """A line of the audit log."""
    return ActRow(
        caller.principal.subject, caller.via, caller.address, caller.request, verb, subject,
        tenant, outcome=outcome,
    )  # fmt: skip


def json_text(**fields: Any) -> str:
    """Fields as the audit log holds them."""
    return msgspec.json.encode(fields).decode()
