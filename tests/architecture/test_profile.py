"""The core of the fast path asks the profile for figures and not for policies: those take part by hooks."""

from __future__ import annotations

import ast
from pathlib import Path

import topmast.fast

FAST = Path(topmast.fast.__file__).parent
WIRING = (
    "queue/cycle/state.py", "queue/machine.py", "region/state.py", "region/machine.py", "cluster/machine.py",
)  # fmt: skip
"""The modules that hand policies' objects over."""
HOOKS = ("queue/rounds", "queue/elastic", "region/timesharing")
"""The policies' own parts."""
FIGURES = {
    "score": "weights of the score",
    "slices.price": "what a time slice above the first costs",
    "default_duration_s": "how long a job is expected to run that does not say",
    "min_runtime_s": "how long an attempt is safe from being stopped",
    "restart_cost_s": "what a restart costs",
    "elastic.settle_s": "how long an attempt keeps its size",
    "elastic.efficiency": "what more tasks are worth",
    "elastic.gain": "how much more a restart must save than it costs",
    "defragment_gain": "how much more a move must save than it costs",
    "defragment": "of defragmentation, which is read by the object of that name alone",
    "defragment_after_s": "the same",
    "defragment_cap_s": "the same",
    "suspect_s": "how long a host takes no work after a loss",
    "host_losses_allowed": "how often a job may lose its host",
    "backoff_s": "the first delay of a job that failed",
    "backoff_cap_s": "the longest",
    "rerank_interval_s": "how often jobs are ranked anew",
    "rank": "weights of the order",
    "when_blocked": "whether the first job that finds no room stops the queue",
    "copy_limit_s": "the longest copy",
    "copy_patience": "of copies on demand, which are read by the object of that name alone",
    "copies_per_period": "the same",
    "copy_period_s": "the same",
    "on_demand_copies": "whether data is copied on demand",
}
"""What the core may read of a profile, and what that is."""


def _read() -> dict[str, list[str]]:
    """By attribute of a profile, where the core reads it."""
    found: dict[str, list[str]] = {}
    for path in sorted(FAST.rglob("*.py")):
        name = path.relative_to(FAST).as_posix()
        if name in WIRING or name.startswith(HOOKS):
            continue
        tree = ast.parse(path.read_text())
        within = {id(n.value): n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _is_profile(node.value):
                known = node.attr in FIGURES
                inner = within.get(id(node), "")
                attr = node.attr if known or not inner else f"{node.attr}.{inner}"
                found.setdefault(attr, []).append(f"{name}:{node.lineno}")
    return found


def _is_profile(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name == "profile"


def test_the_core_reads_figures_of_a_profile_and_no_policy() -> None:
    """Else: give the policy's part a hook, or hand its object over where the machine is assembled."""
    found = _read()
    assert {attr: found[attr] for attr in sorted(found.keys() - FIGURES.keys())} == {}


def test_the_list_of_figures_is_no_longer_than_it_need_be() -> None:
    """What is not read any more comes off the list."""
    assert sorted(FIGURES.keys() - _read().keys()) == []
