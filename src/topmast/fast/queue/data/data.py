"""Datasets, their replicas, and the copies that are ordered for jobs."""

from __future__ import annotations

from topmast.fast.queue.data.catalogue import Catalogue
from topmast.fast.queue.data.copies_on_demand import Fetches
from topmast.policies.options import Profile


class Data:
    """What the queue knows of data. Changed by facts alone, but for the times of retries."""

    def __init__(self, profile: Profile) -> None:
        self.catalogue = Catalogue()
        self.fetches = Fetches(profile)
        self.next_copy = 1
        """The number of the next copy."""
