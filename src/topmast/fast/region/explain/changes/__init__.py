"""What would have to change in a region, or in a gang, for it to have a place: one thing at a time.

Nothing is guessed: each change is tried on the columns as they would be, with the sums that the
search uses, and told only if the gang has a place then.
"""

from __future__ import annotations

from collections.abc import Iterator

from topmast.fast.region.explain.changes.asking import asking_less
from topmast.fast.region.explain.changes.hosts import more_hosts
from topmast.fast.region.explain.changes.others import others_gone
from topmast.fast.region.explain.changes.trials import Trials
from topmast.model.reason import Change


def region_changes(trials: Trials) -> Iterator[Change]:
    """Every change that was found, of a gang that has no place.

    O((groups x log amounts + log attempts) x hosts + attempts): tens of trials, each a walk over
    the hosts in numpy.
    """
    yield from others_gone(trials)
    yield from asking_less(trials)
    yield from more_hosts(trials)
