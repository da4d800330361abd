"""What runners are answered that fetch datasets to their hosts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from msgspec import Struct

from topmast.adapters.engines.far.attempts import Attempt
from topmast.adapters.engines.far.listener import Call, Reply
from topmast.adapters.objects.reading import Contents, ReplicaReader
from topmast.adapters.objects.region import RegionStore, StoreError
from topmast.model.errors import TopmastError
from topmast.ports import Replica, Site

PAGE_OBJECTS = 1000
"""Of a dataset, listed at a time."""
SLICE_MAX_BYTES = 4 << 20
READS_AT_ONCE = 8
LISTINGS_KEPT = 4


class DatasetQuery(Struct, frozen=True):
    """``GET /PART/dataset``: what it consists of, a page from an object on."""

    name: str
    start: int = 0


class ObjectQuery(Struct, frozen=True):
    """``GET /PART/object``: some bytes of an object of a dataset."""

    name: str
    object: str
    start: int
    end: int
    version: str = ""


class Datasets:
    """Answers for the datasets of attempts, and for no others.

    ``through_home``: hosts cannot reach the object stores, so that they get no URLs.
    """

    def __init__(self, site: Site, *, through_home: bool) -> None:
        self._site = site
        self._through_home = through_home
        self._pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="reads for runners")
        self._lock = threading.Lock()
        self._stores: dict[str, RegionStore] = {}
        self._listed: dict[tuple[str, str, str], Contents] = {}
        """The last listings, by region, store and path: runners ask for page after page."""

    async def dataset(self, attempt: Attempt, call: Call) -> Reply:
        """A page of a dataset's objects, with URLs where hosts can read the store."""
        query = msgspec.convert(call.query, DatasetQuery, strict=False)
        return await self._answer(attempt, query.name, partial(self._page, query))

    async def object(self, attempt: Attempt, call: Call) -> Reply:
        """Bytes of an object."""
        query = msgspec.convert(call.query, ObjectQuery, strict=False)
        if not 0 <= query.start < query.end <= query.start + SLICE_MAX_BYTES:
            return Reply(400)
        return await self._answer(attempt, query.name, partial(self._bytes, query))

    def close(self) -> None:
        """Begin no more reads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _answer(
        self, attempt: Attempt, name: str, work: Callable[[str, Replica], bytes]
    ) -> Reply:
        if name not in attempt.carried.datasets:
            return Reply(404)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._try, work, name, attempt.gang.region)

    def _try(self, work: Callable[[str, Replica], bytes], name: str, region: str) -> Reply:
        try:
            replica = self._site.replica(name, region)
            if replica is None:
                raise StoreError(f"it has no replica in region {region} any more")
            return Reply(200, work(region, replica))
        except TopmastError as error:
            return Reply(422, str(error).encode(errors="replace"))

    def _page(self, query: DatasetQuery, region: str, replica: Replica) -> bytes:
        reader = self._reader(region, replica)
        contents = self._contents(region, replica, reader, anew=query.start == 0)
        objects = contents.objects[query.start : query.start + PAGE_OBJECTS]
        if self._through_home or replica.folder is not None:
            urls = [""] * len(objects)
        else:
            urls = reader.urls([one.name for one in objects])
        listed = [
            {**msgspec.to_builtins(one), "url": url} for one, url in zip(objects, urls, strict=True)
        ]
        return msgspec.json.encode({
            "key": f"{query.name}-{contents.key}", "size_bytes": contents.size_bytes,
            "count": len(contents.objects), "objects": listed,
        })  # fmt: skip

    def _contents(
        self, region: str, replica: Replica, reader: ReplicaReader, *, anew: bool
    ) -> Contents:
        where = (region, replica.store, replica.path)
        with self._lock:
            known = self._listed.pop(where, None)
        found = reader.contents() if known is None or anew else known
        with self._lock:
            self._listed[where] = found
            while len(self._listed) > LISTINGS_KEPT:
                del self._listed[next(iter(self._listed))]
        return found

    def _bytes(self, query: ObjectQuery, region: str, replica: Replica) -> bytes:
        reader = self._reader(region, replica)
        return reader.read(query.object, query.start, query.end, query.version)

    def _reader(self, region: str, replica: Replica) -> ReplicaReader:
        with self._lock:
            store = self._stores.get(replica.store)
            if store is None:
                store = self._stores[replica.store] = RegionStore(region, replica.store)
        return ReplicaReader(store, replica.path)
