"""Orders to the mover: what it is to copy, and what to delete."""

from __future__ import annotations

from topmast.fast.machine import EventMachine
from topmast.fast.queue import facts as f
from topmast.fast.queue.data.catalogue import Catalogue
from topmast.fast.queue.data.copies_on_demand import Fetches
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dataset import Copy, Deletion
from topmast.policies.options import Profile


class Data:
    """What the queue knows of data. Changed by facts alone, but for the times of retries."""

    def __init__(self, profile: Profile) -> None:
        self.catalogue = Catalogue()
        self.fetches = Fetches(profile)
        self.next_copy = 1
        """The number of the next copy."""


def begin_copy(
    machine: EventMachine, data: Data, dataset: str, source: str, region: str, cause: str
) -> None:
    """Write a copy down and order it."""
    size_bytes = data.catalogue.datasets[dataset].spec.size_bytes
    copy_id = ids.copy_id(data.next_copy)
    copy = Copy(copy_id, dataset, source, region, size_bytes, cause, machine.now)
    machine.decide(f.CopyBegun(copy))
    order_copy(machine, data.catalogue, copy)


def order_copy(machine: EventMachine, catalogue: Catalogue, copy: Copy) -> None:
    """Tell the mover to copy; a repetition resumes."""
    path = catalogue.datasets[copy.dataset].spec.path
    link = catalogue.links.get((copy.source, copy.target))
    rate = link.bytes_per_s if link else 1e9
    machine.send(ids.MOVER, m.StartCopy(copy, path, rate))


def order_deletion(machine: EventMachine, deletion: Deletion) -> None:
    """Tell the mover to delete; a repetition goes on."""
    order = m.DeleteReplica(deletion.dataset, deletion.region, deletion.path)
    machine.send(ids.MOVER, order)
