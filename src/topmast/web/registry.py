"""Every page there is: each module below ``pages/`` has one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import topmast.web.pages
from topmast.web.page import Page


@cache
def all_pages() -> tuple[Page, ...]:
    """In the order of the navigation; those that are not in it come last."""
    home = topmast.web.pages
    names = [f"{home.__name__}.{module.name}" for module in pkgutil.iter_modules(home.__path__)]
    return tuple(sorted((importlib.import_module(name).PAGE for name in names), key=_place))


def _place(page: Page) -> tuple[bool, int, str]:
    return (page.place is None, page.place or 0, page.path)
