"""How many service accounts, tokens of these and roles there may be, and of which tenants."""

from __future__ import annotations

from topmast.accounts import Accounts
from topmast.model.errors import Conflict
from topmast.service.access import Access
from topmast.service.sharing import RULE, below, left_of_tenant

MOST_KEPT = 100_000
"""All together. The tokens of people have a bound for each person."""


def refuse_if_full(accounts: Accounts, access: Access, tenant: str) -> None:
    """Raises Conflict where a tenant may have no more, which shares the room with the others.

    O(tenants x depth of the tree). Requests that come at the same time may pass together.
    """
    counts = accounts.count_at.copy()
    sums, kept = below(counts.items(), access.path), sum(counts.values())
    if left_of_tenant(access.path(tenant), sums, MOST_KEPT - kept) < 1:
        own = f"{sums.get(tenant, 0):,} of tenant {tenant}" if tenant else "of all tenants"
        raise Conflict(
            f"there are {kept:,} service accounts, tokens of these and roles, {own}, and no room "
            f"for more there: at most {MOST_KEPT:,}, and {RULE} (remove those of no use: topmast "
            "accounts remove, tokens revoke, roles revoke)"
        )
