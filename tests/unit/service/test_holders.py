"""Who holds the quota that a job waits for."""

from __future__ import annotations

import pytest

from tests.support.build import cluster, fleet, job, tenant
from tests.support.world import World
from topmast.service.holders import quotas_in_parts

ORG = tenant("org", borrow=0, H100=24)
TENANTS = (
    ORG, tenant("a", "org", H100=8), tenant("b", "org", H100=4), tenant("guest", "org"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        (
            None, "the quota of tenant org is 24 H100: tenant a has 8 of its own (2 in use), "
            "tenant org holds 6, tenant b has 4 of its own (0 in use), tenant guest holds 3, "
            "3 are left",
        ),
        (
            {"org", "guest"}, "the quota of tenant org is 24 H100: tenant org holds 6, tenant "
            "guest holds 3, others have 12, 3 are left",
        ),
        ({"guest"}, ""),
    ],
)  # fmt: skip
def test_the_parts_of_a_full_quota_add_up(seen: set[str] | None, want: str) -> None:
    """With what tenants below are promised; those that are hidden are added up, not named."""
    world = World(fleet(cluster("east-1", hosts=4), tenants=TENANTS))
    for name, gpus in (("a", 2), ("org", 6), ("guest", 3)):
        world.submit(job(gpus=gpus, tenant=name))
    waits = job(gpus=4, tenant="guest", preemptible=False)
    world.submit(waits)
    assert world.reason("j4") == "WaitingForQuota"
    assert quotas_in_parts(world.queue, waits, seen) == want
    assert quotas_in_parts(world.queue, job(gpus=3, tenant="guest"), seen) == ""
