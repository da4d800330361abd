"""The link between a queue and placers of other processes: internal, and no part of REST."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response
from msgspec import Struct

from topmast.adapters.handing import handed
from topmast.adapters.link import Batch, decode_batch, encode_receipt
from topmast.adapters.link.wire import MAX_BATCH_BYTES
from topmast.api.bodies import read_bytes
from topmast.api.wire import answer
from topmast.model.errors import NotFound
from topmast.model.messages import Receipt
from topmast.ports import LogPage, Replica
from topmast.runtime.relay import NOT_HERE

EXEC_BYTES = 1 << 21
"""Of a call about a command: a piece of its input, written as text."""


class LinkEndpoint(Struct, frozen=True):
    """What receives batches and answers questions for a region."""

    receive: Callable[[Batch], Future[Receipt]]
    for_queue: bool
    books: Callable[[], Future[bytes]] | None = None
    log: Callable[[str, int, int, int, int], LogPage | None] | None = None
    dataset: Callable[[str], Replica | None] | None = None
    workdir: Callable[[str], Path | None] | None = None
    execs: Callable[[bytes], bytes] | None = None
    """Answers calls about commands beside tasks."""


def routes(endpoints: Mapping[str, LinkEndpoint]) -> APIRouter:
    """One address for every region that has its link endpoint here."""
    router = APIRouter(include_in_schema=False)
    endpoint_of = partial(_endpoint_of, endpoints)

    @router.post("/{region}")
    async def receive(region: str, request: Request) -> Response:
        endpoint = endpoint_of(region)
        batch = decode_batch(
            await read_bytes(request, MAX_BATCH_BYTES), for_queue=endpoint.for_queue
        )
        receipt = await handed(endpoint.receive(batch))
        return Response(encode_receipt(receipt), media_type="application/json")

    @router.get("/{region}/books")
    async def books(region: str) -> Response:
        endpoint = endpoint_of(region)
        if endpoint.books is None:
            raise NotFound("the placer of the region has its books")
        blob = await handed(endpoint.books())
        return Response(blob, media_type="application/json")

    @router.get("/{region}/log")
    async def log(
        region: str, job: str, epoch: int, rank: int, offset: int, limit: int
    ) -> Response:
        endpoint = endpoint_of(region)
        if endpoint.log is None:
            raise NotFound("the placer of the region has the output of tasks")
        page = await asyncio.to_thread(endpoint.log, job, epoch, rank, offset, limit)
        if page is None:
            raise NotFound("nothing is written yet")
        mark = b"1" if page.complete else b"0"
        return Response(mark + page.data, media_type="application/octet-stream")

    @router.post("/{region}/exec")
    async def call_exec(region: str, request: Request) -> Response:
        endpoint = endpoint_of(region)
        if endpoint.execs is None:
            raise NotFound("the placer of the region has its tasks")
        body = await read_bytes(request, EXEC_BYTES)
        found = await asyncio.to_thread(endpoint.execs, bytes(body))
        return Response(found, media_type="application/json")

    _add_questions_of_placers(router, endpoint_of)
    return router


def _endpoint_of(endpoints: Mapping[str, LinkEndpoint], region: str) -> LinkEndpoint:
    if region not in endpoints:
        raise NotFound(f"no link to region '{region}' {NOT_HERE}")
    return endpoints[region]


def _add_questions_of_placers(
    router: APIRouter, endpoint_of: Callable[[str], LinkEndpoint]
) -> None:
    @router.get("/{region}/datasets/{name:path}")
    async def dataset(region: str, name: str) -> Response:
        endpoint = endpoint_of(region)
        if endpoint.dataset is None:
            raise NotFound("the queue has the catalogue")
        replica = endpoint.dataset(name)
        if replica is None:
            raise NotFound("no such dataset")
        return answer(replica)

    @router.get("/{region}/workdirs/{digest}")
    async def workdir(region: str, digest: str) -> Response:
        endpoint = endpoint_of(region)
        path = endpoint.workdir(digest) if endpoint.workdir is not None else None
        if path is None:
            raise NotFound("no such work folder")
        data = await asyncio.to_thread(path.read_bytes)
        return Response(data, media_type="application/octet-stream")
