"""What an hour of a GPU costs, by model and region."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from topmast.model.absent import given
from topmast.model.fleet import Fleet

PriceOf = Callable[[str, str], float | None]
"""USD for an hour of one GPU, of a (region, model); None: it is not known."""


def price_of(fleet: Fleet) -> PriceOf | None:
    """The prices of a fleet: those of the region, else those of all. None: it states none."""
    everywhere: Mapping[str, float] = given(fleet.prices, {})
    regions = {region.name: given(region.prices, {}) for region in fleet.regions}
    if not everywhere and not any(regions.values()):
        return None
    nothing: dict[str, float] = {}
    return lambda region, model: regions.get(region, nothing).get(model, everywhere.get(model))
