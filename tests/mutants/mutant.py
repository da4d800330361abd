"""What a mutant is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """In ``file`` below src/topmast, ``old`` becomes ``new``; then ``test`` must fail."""

    promise: str
    file: str
    old: str
    new: str
    test: str
