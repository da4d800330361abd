"""Which extra of the package brings a library that is not installed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires

_NAMED_OTHERWISE = {"sklearn": "scikit-learn"}
"""Modules that their distributions do not share a name with."""
_REQUIREMENT = re.compile(r"""([A-Za-z0-9._-]+).*;.*extra == ["']([a-z]+)["']""")


def extra_of(module: str, requirements: Sequence[str] | None = None) -> str | None:
    """The smallest extra that brings a module; None if none does.

    ``requirements``: those of the package.
    """
    if requirements is None:
        requirements = _own()
    top = module.partition(".")[0]
    wanted = _NAMED_OTHERWISE.get(top, top.replace("_", "-"))
    found = [one for line in requirements if (one := _REQUIREMENT.match(line))]
    sizes = Counter(one[2] for one in found)
    extras = [one[2] for one in found if one[1].lower().replace("_", "-") == wanted]
    return min(extras, key=lambda extra: (sizes[extra], extra), default=None)


def _own() -> Sequence[str]:
    try:
        return requires("topmast") or ()
    except PackageNotFoundError:
        return ()
