"""Sweeps: one submission that becomes a job for each setting of some variables."""

from __future__ import annotations

import math

from msgspec import Struct

PREFIX = "TOPMAST_SWEEP"
"""How the variables begin that tell a job its place in its sweep."""


class Span(Struct, frozen=True, gc=False):
    """Whole numbers at equal distances."""

    first: int
    last: int
    step: int = 1

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return max(0, (self.last - self.first) // self.step + 1)


class Sweep(Struct, frozen=True, gc=False):
    """The settings of a sweep: a matrix of values, a list of settings, or a range of numbers."""

    matrix: dict[str, tuple[str, ...]] = {}
    """Values by variable; each combination is a setting, and the last variable changes fastest."""
    settings: tuple[dict[str, str], ...] = ()
    """Values by variable, one for each setting."""
    span: Span | None = None
    variable: str = ""
    """The variable that takes the numbers of ``span``."""
    max_parallel: int | None = None
    """How many of its jobs may be in the queue or run at a time; None: all."""

    @property
    def size(self) -> int:
        """How many jobs it becomes. O(variables)."""
        if self.span is not None:
            return self.span.size
        if not self.matrix:
            return len(self.settings)
        return math.prod(len(values) for values in self.matrix.values())

    def setting(self, index: int) -> dict[str, str]:
        """The variables of a job by its place, from 0. O(variables)."""
        if self.span is not None:
            return {self.variable: str(self.span.first + index * self.span.step)}
        if self.settings:
            return self.settings[index]
        found = {}
        for name, values in reversed(self.matrix.items()):
            index, at = divmod(index, len(values))
            found[name] = values[at]
        return {name: found[name] for name in self.matrix}


class SweepPart(Struct, frozen=True, gc=False):
    """A job's place in its sweep."""

    sweep: str
    index: int
    """From 0."""
    size: int
    """How many jobs the sweep has."""

    def variables(self) -> dict[str, str]:
        """What its tasks see of it."""
        values = {"": self.sweep, "_INDEX": str(self.index), "_SIZE": str(self.size)}
        return {f"{PREFIX}{name}": value for name, value in values.items()}
