"""Datasets that are added while the system runs: what the request says, the upload, the entry."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from topmast.fast.queue import cannot_add
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dataset import Paths
from topmast.model.errors import Conflict, InvalidInput
from topmast.model.files.fleetfile import parse_dataset
from topmast.model.fleet import DatasetSpec
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
        fields = dict(document)
        region, source = fields.pop("region", ""), fields.pop("source", None)
        name = str(fields.pop("name", ""))
        queue = self._runtime.machines.queue
        regions = [r.name for r in queue.fleet.regions]
        if region not in regions:
            raise _unknown_region(region, regions, name, fields)
        asked = self._runtime.ask(lambda: queue.data.catalogue.datasets.get(name))
        known = await asyncio.wrap_future(asked)
        if known is not None and not known.replicas:  # the fleet file, or an earlier act, names it
            _keep(fields, known.spec, region)
        fields.setdefault("path", f"datasets/{name}")
        fields["replicas"] = [region]
        fields.setdefault("size", 0)
        spec = parse_dataset(name, fields, regions=regions)
        # First the folder, then the catalogue: a dataset that leaves the first is in the second.
        fault = self._paths.fault("", spec.path)
        if fault:
            raise Conflict(f"{fault}, which is being added now (try again later)")
        self._paths.add(name, spec.path)
        try:
            judged = self._runtime.ask(lambda: cannot_add(queue.data.catalogue, spec))
            error = await asyncio.wrap_future(judged)
            if error is not None:
                raise error
            stage = partial(self._stage, spec, region, source, dry_run=dry_run)
            size_bytes = await asyncio.get_running_loop().run_in_executor(self._threads, stage)
            spec = msgspec.structs.replace(spec, size_bytes=size_bytes)
            if dry_run:
                return spec
            entered = self._runtime.call(ids.QUEUE, m.AddDataset(spec), act_on(name))
            await asyncio.wrap_future(entered)
        finally:
            self._paths.remove(name, spec.path)
        return spec

    def _stage(self, spec: DatasetSpec, region: str, source: Any, *, dry_run: bool) -> int:
        """Bytes of the dataset in its store, after the upload if there is one."""
        if source is not None:
            folder = _folder(source)
            return self._mover.put_directory(region, spec.path, folder, dry_run=dry_run)
        size_bytes = self._mover.measure(region, spec.path)
        if size_bytes <= 0:
            raise InvalidInput(
                f"nothing at '{spec.path}' in the store of region '{region}'",
                field="path",
                remedy="put the files there first, or give a source directory",
            )
        return size_bytes


def _unknown_region(
    region: Any, regions: Sequence[str], name: str, fields: Mapping[str, Any]
) -> InvalidInput:
    """The error for a region that there is not, with all else that is wrong with the dataset."""
    near = get_close_matches(str(region), regions, 1)
    remedy = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(regions)}"
    error = InvalidInput(f"unknown region '{region}'", field="region", remedy=remedy)
    others = {"path": f"datasets/{name}", "size": 0, **fields, "replicas": list(regions[:1])}
    try:
        parse_dataset(name, others, regions=regions)
    except InvalidInput as other:
        every = (other, *other.more)
        error.more = tuple(one for one in every if not one.field.startswith("replicas"))
    return error


def _folder(source: Any) -> Path:
    """The folder of this machine that a request names. Raises InvalidInput."""
    folder = Path(str(source))
    # Unlike a method of `Path`, this answers for any text, and for what may not be looked at.
    if not folder.is_absolute() or not os.path.isdir(folder):  # noqa: PTH112
        raise InvalidInput(
            f"'{source}' is not a directory", field="source", remedy="an absolute path"
        )
    return folder


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
