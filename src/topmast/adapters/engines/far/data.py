"""What runners are answered that fetch datasets to their hosts, and bring checkpoints back."""

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
from topmast.adapters.engines.far.saves import Saves
from topmast.adapters.objects.checkpoints import JobCheckpoints, Piece
from topmast.adapters.objects.reading import Contents, ReplicaReader
from topmast.adapters.objects.region import RegionStore, StoreError
from topmast.model.errors import TopmastError
from topmast.ports import Site

CHECKPOINT = ":checkpoint"
"""In the place of a dataset's name, as runners have it."""
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


class SavedBody(Struct, frozen=True):
    """``POST /PART/saved``: a host has brought all that a table names."""

    host: str
    nonce: str
    number: int
    """Of the round."""
    final: bool
    """Its tasks have ended."""
    table: tuple[Piece, ...]


class PieceQuery(Struct, frozen=True):
    """``GET /PART/piece`` or ``POST``: of a checkpoint."""

    sha256: str


class HostData:
    """Answers for the datasets and checkpoints of attempts, and for no others.

    ``through_home``: hosts cannot reach the object stores, so that they get no URLs.
    """

    def __init__(self, site: Site, saves: Saves | None, *, through_home: bool) -> None:
        self._site = site
        self._saves = saves
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

    async def saved(self, attempt: Attempt, call: Call) -> Reply:
        """The last checkpoint, or with a body: a host has saved one."""
        return await self._in_pool(partial(self._saved, attempt, call))

    async def piece(self, attempt: Attempt, call: Call) -> Reply:
        """A URL to write a piece of a checkpoint by, or with a body: the piece itself."""
        return await self._in_pool(partial(self._piece, attempt, call))

    def close(self) -> None:
        """Begin no more reads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, attempt: Attempt, name: str, work: Callable[[_Source], bytes]) -> Reply:
        if name not in attempt.carried.datasets and name != CHECKPOINT:
            return Reply(404)
        return await self._in_pool(lambda: work(self._source(attempt, name)))

    async def _in_pool(self, work: Callable[[], bytes]) -> Reply:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._try, work)

    def _try(self, work: Callable[[], bytes]) -> Reply:
        try:
            return Reply(200, work())
        except TopmastError as error:
            return Reply(422, str(error).encode(errors="replace"))

    def _source(self, attempt: Attempt, name: str) -> _Source:
        """What a name of an attempt stands for. Raises `StoreError`."""
        if name == CHECKPOINT:
            return _Source(self._job(attempt), ("", "", attempt.gang.job), has_urls=True)
        region = attempt.gang.region
        replica = self._site.replica(name, region)
        if replica is None:
            raise StoreError(f"it has no replica in region {region} any more")
        with self._lock:
            store = self._stores.get(replica.store)
            if store is None:
                store = self._stores[replica.store] = RegionStore(region, replica.store)
        return _Source(
            ReplicaReader(store, replica.path), (region, replica.store, replica.path),
            has_urls=replica.folder is None,
        )  # fmt: skip

    def _page(self, query: DatasetQuery, source: _Source) -> bytes:
        contents = self._contents(source, anew=query.start == 0)
        objects = contents.objects[query.start : query.start + PAGE_OBJECTS]
        urls = [""] * len(objects)
        if source.has_urls and not self._through_home:
            urls = source.reader.urls([one.name for one in objects])
        listed = [
            {**msgspec.to_builtins(one), "url": url} for one, url in zip(objects, urls, strict=True)
        ]
        return msgspec.json.encode({
            "key": f"{query.name}-{contents.key}", "size_bytes": contents.size_bytes,
            "count": len(contents.objects), "objects": listed,
        })  # fmt: skip

    def _contents(self, source: _Source, *, anew: bool) -> Contents:
        with self._lock:
            known = self._listed.pop(source.where, None)
        found = source.reader.contents() if known is None or anew else known
        with self._lock:
            self._listed[source.where] = found
            while len(self._listed) > LISTINGS_KEPT:
                del self._listed[next(iter(self._listed))]
        return found

    def _bytes(self, query: ObjectQuery, source: _Source) -> bytes:
        return source.reader.read(query.object, query.start, query.end, query.version)

    # --- checkpoints in a bucket ------------------------------------------------------------------

    def _job(self, attempt: Attempt) -> JobCheckpoints:
        if self._saves is None or attempt.carried.checkpoint is None:
            raise StoreError("its checkpoints are not in a bucket")
        return self._saves.of_job(attempt.gang.job)

    def _saved(self, attempt: Attempt, call: Call) -> bytes:
        job = self._job(attempt)
        if not call.body:
            saved = job.latest()
            return msgspec.json.encode({"tables": () if saved is None else saved.tables})
        assert self._saves is not None
        body = msgspec.json.decode(call.body, type=SavedBody)
        missing = self._saves.saved(attempt, body.host, body.number, body.table, final=body.final)
        return msgspec.json.encode({"missing": missing})

    def _piece(self, attempt: Attempt, call: Call) -> bytes:
        job, query = self._job(attempt), msgspec.convert(call.query, PieceQuery, strict=False)
        if call.body:
            job.write(query.sha256, call.body)
            return b""
        return msgspec.json.encode({"url": job.url_to_write(query.sha256)})


class _Source(Struct, frozen=True):
    """What a runner reads."""

    reader: ReplicaReader | JobCheckpoints
    where: tuple[str, str, str]
    """The same for the same."""
    has_urls: bool
