"""Datasets that are added while the system runs: what the request says, the upload, the entry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from topmast.adapters.handing import handed
from topmast.fast.queue import cannot_add
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dataset import Paths
from topmast.model.errors import Conflict, Faults, InvalidInput, refuse_all
from topmast.model.files.fields import one_of
from topmast.model.files.fleetfile import parse_dataset
from topmast.model.fleet import DatasetSpec
from topmast.model.units import show
from topmast.ports import Act, Mover
from topmast.runtime.loop import Runtime

STAGED_AT_ONCE = 4


class Arrivals:
    """Adds datasets; used on the event loop alone."""

    def __init__(self, runtime: Runtime, mover: Mover) -> None:
        self._runtime = runtime
        self._mover = mover
        self._paths = Paths()
        """Folders with files on their way: the catalogue does not know them yet."""
        self._threads = ThreadPoolExecutor(STAGED_AT_ONCE, "arrivals")
        """Its own, so that slow uploads leave the reads of others their threads."""

    async def add(
        self, document: Any, act_on: Callable[[str], Act], *, dry_run: bool = False
    ) -> DatasetSpec:
        """Enter a dataset, uploading a directory of this machine first if ``source`` names one.

        ``act_on`` makes the line of the audit log from the name of the dataset. A ``dry_run`` ends
        when it is known what there is to enter.
        """
        if not isinstance(document, dict):
            raise InvalidInput("must be an object", field="dataset")
        spec, region, folder = await self._read(document)
        name, queue = spec.name, self._runtime.machines.queue
        # First the folder, then the catalogue: a dataset that leaves the first is in the second.
        fault = self._paths.fault("", spec.path)
        if fault:
            raise Conflict(f"{fault}, which is being added now (try again later)")
        self._paths.add(name, spec.path)
        try:
            judged = self._runtime.ask(lambda: cannot_add(queue.data.catalogue, spec))
            error = await handed(judged)
            if error is not None:
                raise error
            stage = partial(self._stage, spec, region, folder, dry_run=dry_run)
            size_bytes = await asyncio.get_running_loop().run_in_executor(self._threads, stage)
            spec = msgspec.structs.replace(spec, size_bytes=size_bytes)
            if dry_run:
                return spec
            entered = self._runtime.call(ids.QUEUE, m.AddDataset(spec), act_on(name))
            await handed(entered)
        finally:
            self._paths.remove(name, spec.path)
        return spec

    async def _read(self, document: dict[str, Any]) -> tuple[DatasetSpec, str, Path | None]:
        """The dataset, its region and the folder it comes from. Raises all that is wrong."""
        faults, fields, queue = Faults(), dict(document), self._runtime.machines.queue
        region, source = fields.pop("region", ""), fields.pop("source", None)
        name = str(fields.pop("name", ""))
        regions = [r.name for r in queue.fleet.regions]
        known = await handed(self._runtime.ask(lambda: queue.data.catalogue.datasets.get(name)))
        there = region in regions
        if not there:
            near = one_of(str(region), regions)
            faults.add(f"unknown region {show(str(region))}", "region", near)
        # The fleet file, or an earlier act, names it.
        elif known is not None and not known.replicas:
            faults.of(partial(_keep, fields, known.spec, region))
        fields.setdefault("path", f"datasets/{name}")
        fields["replicas"] = [region] if there else regions[:1]
        fields.setdefault("size", 0)
        spec = faults.of(partial(_spec, name, fields, regions, there=there))
        folder = None
        if source is not None:
            look = partial(self._mover.check_source, region if there else "", str(source))
            look = partial(faults.of, look)
            folder = await asyncio.get_running_loop().run_in_executor(self._threads, look)
        faults.refuse()
        return spec, region, folder

    def _stage(self, spec: DatasetSpec, region: str, folder: Path | None, *, dry_run: bool) -> int:
        """Bytes of the dataset in its store, after the upload if there is one."""
        if folder is not None:
            return self._mover.put_directory(region, spec.path, folder, dry_run=dry_run)
        size_bytes = self._mover.measure(region, spec.path)
        if size_bytes <= 0:
            raise InvalidInput(
                f"nothing at '{spec.path}' in the store of region '{region}'",
                field="path",
                remedy="put the files there first, or give a source folder",
            )
        return size_bytes


def _spec(name: str, fields: dict[str, Any], regions: Sequence[str], *, there: bool) -> DatasetSpec:
    """The dataset that a request describes; where its region is not ``there``, without that."""
    try:
        return parse_dataset(name, fields, regions=regions)
    except InvalidInput as error:
        every = (error, *error.more)
        refuse_all(one for one in every if there or not one.field.startswith("replicas"))
        return DatasetSpec(name, 0, "", ())  # its region is refused


def _keep(fields: dict[str, Any], known: DatasetSpec, region: str) -> None:
    """What is not given of a dataset stays as it is known. Raises InvalidInput."""
    if fields.get("allowed") is None and known.allowed is not None:
        if region not in known.allowed:
            raise InvalidInput(
                f"dataset '{known.name}' may only be in {' and '.join(known.allowed)}",
                field="region",
                remedy=f"{known.allowed[0]}; or list all regions that may hold it (allowed)",
            )
        fields["allowed"] = list(known.allowed)
    fields.setdefault("path", known.path)
    fields.setdefault("min_replicas", known.min_replicas)
