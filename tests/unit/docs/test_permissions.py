"""The reference of roles and permissions is made from the tables of the code."""

from __future__ import annotations

from typing import cast

from fastapi import FastAPI

from tests.support.entrance import routes_of
from tests.unit.docs.pages import REPO
from topmast.api import create_api
from topmast.api.guard import Guard
from topmast.model.access import ALLOWED, MEANING, Permission, Role
from topmast.routing import declared
from topmast.service.service import Service
from topmast.web.registry import all_pages

PAGE = REPO / "docs" / "reference" / "permissions.md"


def table_of_roles() -> str:
    """A row for each permission, a column for each role."""
    lines = [
        f"| permission | allows to | {' | '.join(f'`{role}`' for role in Role)} |",
        f"|---|---|{'---|' * len(Role)}",
    ]
    for permission in Permission:
        marks = ["yes" if permission in ALLOWED[role] else "" for role in Role]
        lines.append(f"| `{permission}` | {MEANING[permission]} | {' | '.join(marks)} |")
    return "\n".join(lines)


def table_of_routes() -> str:
    """A row for each route."""
    guard = create_api(cast(Service, None))
    assert isinstance(guard, Guard)
    assert isinstance(guard.app, FastAPI)
    lines = ["| route | permission |", "|---|---|"]
    for route in routes_of(guard.app):
        permission = declared(route.endpoint)
        needed = f"`{permission}`" if permission is not None else "none: it is a part of the login"
        methods = sorted(route.methods or ())
        lines += [f"| `{method} {route.path}` | {needed} |" for method in methods]
    return "\n".join(lines)


def table_of_pages() -> str:
    """A row for each page of the dashboard."""
    lines = ["| page | permission |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| `{p.path}` {p.title} | `{p.permission}` |" for p in all_pages())]
    )


def page() -> str:
    """The page as it should be: what is between its headings is made anew."""
    text = PAGE.read_text("utf-8")
    tables = (
        ("Roles", table_of_roles()), ("Routes", table_of_routes()), ("Pages", table_of_pages()),
    )  # fmt: skip
    for heading, table in tables:
        before, _, rest = text.partition(f"\n## {heading}\n")
        _, found, after = rest.partition("\n## ")
        text = f"{before}\n## {heading}\n\n{table}\n{found}{after}"
    return text.rstrip("\n") + "\n"


def test_the_page_says_what_the_code_says() -> None:
    """After a change of the tables: python -m tests.unit.docs.test_permissions."""
    assert PAGE.read_text("utf-8") == page()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
