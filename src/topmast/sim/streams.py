"""Seeded streams of chance, one for each purpose: what one draws does not move the others."""

from __future__ import annotations

import random


class Streams:
    """Generators by the name of their purpose."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._made: dict[str, random.Random] = {}

    def of(self, purpose: str) -> random.Random:
        """The stream of a purpose, for example ``host-failures``."""
        if purpose not in self._made:
            # A text seeds by its SHA-512, on every machine alike.
            self._made[purpose] = random.Random(f"{self._seed}/{purpose}")
        return self._made[purpose]
