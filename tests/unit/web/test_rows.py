"""Long tables: a page has 200 rows of one at most, and leads to the others."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.entrance import ROOT, URL, Entrance, entrance, run
from tests.unit.web.support import JOB, local
from topmast.model.access import Caller, Role
from topmast.model.plan_views import CapacityPlanView, CapacityRow
from topmast.model.whatif_views import WhatIfAsk, WhatIfView
from topmast.service.whatif import WhatIfs
from topmast.web.page import MOST_ROWS, Ask

UNITS, TEAMS = 12, 25
"""Tenants below `vision`, and below each of these."""
MANY = 230
"""Clusters, users, accounts and acts on one job."""


def large() -> dict[str, Any]:
    """A fleet of three levels of tenants, and of many clusters."""
    tenants: dict[str, Any] = {"speech": {}, "vision": {"quota": {"H100": UNITS * TEAMS}}}
    for unit in range(UNITS):
        tenants[f"unit{unit}"] = {"parent": "vision"}
        for team in range(TEAMS):
            tenants[f"unit{unit}-team{team}"] = {
                "parent": f"unit{unit}", "quota": {"H100": 1}, "budget": {"gpu_hours": 5},
            }  # fmt: skip
    hosts = {"hosts": [{"count": 1, "gpu": "H100", "gpus": 1}]}
    clusters = {f"east-{at}": hosts for at in range(MANY)}
    return {"regions": {"east": {"clusters": clusters}}, "tenants": tenants}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    with entrance(tmp_path_factory.mktemp("rows"), large()) as found:

        async def fill() -> None:
            for at in range(MANY):
                await found.service.submit(ROOT, JOB, f"user{at}", "", "")
                await found.service.directory.add_account(ROOT, f"account{at}", "/")
            async with local(found) as client:
                for verb in ("hold", "release") * (MANY // 2):
                    done = await client.post(f"/api/v1/jobs/{verb}", json={"jobs": [f"j{MANY}"]})
                    assert done.status_code == 200, done.text

        run(fill)
        whatifs = WhatIfs(("false",), (), found.service.clock)
        whatifs._views["w1"] = compared()
        found.service.whatifs = whatifs
        found.service.capacity_plan = planned  # type: ignore[assignment,method-assign]
        yield found
        found.service.whatifs = None


def compared() -> WhatIfView:
    """A what-if that is done."""
    part = {"started": 0, "waiting": 0, "still_waiting": 0, "held_gpu_s": 0.0}
    waits = {"mean": 0.0, "p50": 0.0, "p90": 0.0}
    tenants = {f"tenant{at}": {**part, "wait_s": waits} for at in range(MANY)}
    future = {
        **part, "jobs": 0, "finished": 0, "wait_s": waits, "jct_s": waits, "gpus": 0.0,
        "allocation_rate": 0.0, "preemptions": 0, "tenants": tenants, "changed_jobs": {},
    }  # fmt: skip
    result = {
        "base": future, "changed": future, "changes": [], "warnings": [], "for_s": 60.0,
        "at_s": 0.0, "moved": {"sooner": 0, "later": 0, "gain_most": [], "lose_most": []},
    }  # fmt: skip
    return WhatIfView("w1", WhatIfAsk(), "done", 0.0, ended_s=1.0, result=result)


async def planned(_: Caller) -> CapacityPlanView:
    """A plan of many clusters."""
    rows = tuple(CapacityRow("east", f"east-{at}", "H100", 1, 0, 0, 1, 0, 1) for at in range(MANY))
    return CapacityPlanView(600.0, None, False, 1, 0.0, {}, rows, (), None, None)


def tables(text: str) -> list[list[str]]:
    """The rows of each table."""
    found = re.findall(r"<tbody>(.*?)</tbody>", text, re.DOTALL)
    return [re.findall(r"<tr.*?</tr>", table, re.DOTALL) for table in found]


def way_on(text: str, name: str, at: int = MOST_ROWS) -> str:
    """The address of the rows from a number on of a table; empty if there are none."""
    links = re.findall(r'rel="next" href="([^"#]*)#', text)
    wanted = re.compile(rf"[?&]{name}={at}(&|$)")
    return next((link for link in map(html.unescape, links) if wanted.search(link)), "")


@pytest.mark.parametrize(
    ("path", "kind", "name", "total"),
    [
        ("/tenants", 'data-key="budget ', "budgets", UNITS * TEAMS),
        ("/usage?by=user", 'data-key="user', "from", MANY),
        ("/?group=user", 'data-key="user', "from", MANY),
        ("/fleet", 'data-key="cluster ', "clusters", MANY),
        ("/system", 'data-key="place ', "places", MANY),
        ("/account", 'data-key="sa:account', "accounts", MANY),
        ("/whatif?id=w1", 'data-key="tenant ', "tenants", MANY),
        (f"/jobs/j{MANY}", 'td class="when', "history", MANY + 4),
    ],
)
def test_two_pages_have_each_row_of_a_table_once(
    door: Entrance, path: str, kind: str, name: str, total: int
) -> None:
    async def story() -> None:
        token = await door.token("reader", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            first = (await client.get(URL + path)).text
            second = (await client.get(URL + path.partition("?")[0] + way_on(first, name))).text
        found = [
            [row for table in tables(text) for row in table if kind in row]
            for text in (first, second)
        ]
        assert max(len(table) for text in (first, second) for table in tables(text)) <= MOST_ROWS
        assert [len(rows) for rows in found] == [MOST_ROWS, total - MOST_ROWS]
        assert len({*found[0], *found[1]}) == total
        assert way_on(second, name, 2 * MOST_ROWS) == ""

    run(story)


def test_of_a_large_tree_the_upper_levels_are_shown_and_each_tenant_leads_down(
    door: Entrance,
) -> None:
    """A tenant that is chosen is shown with all below it, and what has no room is counted."""

    async def story() -> None:
        async with local(door) as client:
            for path, names, below in (
                ("/tenants", {"speech", "vision", *(f"unit{at}" for at in range(UNITS))}, TEAMS),
                (
                    "/tenants?tenant=vision",
                    {"vision", *(f"unit{at}" for at in range(UNITS))},
                    TEAMS,
                ),
                (
                    "/tenants?tenant=unit3",
                    {"unit3", *(f"unit3-team{at}" for at in range(TEAMS))},
                    0,
                ),
                ("/tenants?tenant=unit3-team3&model=H100", {"unit3-team3"}, 0),
            ):
                text = (await client.get(path)).text
                rows = [row for table in tables(text) for row in table if "data-select=" in row]
                shown = [re.findall(r'href="/tenants\?tenant=([^"]*)"', row)[0] for row in rows]
                assert set(shown) == names, path
                assert len(shown) == len(names)
                assert len(re.findall(f">{TEAMS} below<", text)) == (UNITS if below else 0)
                assert (f"{UNITS * TEAMS} have no room here" in text) == bool(below)
                trees = re.findall(r"<quota-tree.*?>(\[.*?)</script>", text)
                drawn = [one["name"] for tree in trees for one in json.loads(tree)]
                assert set(drawn) <= names

    run(story)


@pytest.mark.parametrize(
    ("text", "first", "rows", "back", "onward"),
    [
        ("", 0, 200, "", "?a=b&from=200"), ("200", 200, 200, "?a=b", "?a=b&from=400"),
        ("100", 100, 200, "?a=b", "?a=b&from=300"), ("400", 400, 50, "?a=b&from=200", ""),
        ("9" * 9, 400, 50, "?a=b&from=200", ""), ("9" * 5_000, 0, 200, "", "?a=b&from=200"),
        ("-1", 0, 200, "", "?a=b&from=200"), ("\u0661", 0, 200, "", "?a=b&from=200"),
    ],
)  # fmt: skip
def test_an_address_names_the_first_row(
    door: Entrance, text: str, first: int, rows: int, back: str, onward: str
) -> None:
    """What names no row means the first ones, or the last."""
    query = {"a": "b", **({"from": text} if text else {})}
    part = Ask(door.service, ROOT, {}, query).part(range(450))
    assert (part.first, len(part.rows), part.total) == (first, rows, 450)
    assert (part.back, part.onward) == (back, onward)
