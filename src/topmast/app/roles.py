"""What a server can be: the queue with all or some of the placers, or the placer of one region."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from topmast.adapters.store import JOURNAL, require_free
from topmast.api import create_api, create_regional_api
from topmast.api.connections import limits_for
from topmast.api.link import LinkEndpoint
from topmast.app.control_plane import ControlPlane
from topmast.app.process import REAL, Outside
from topmast.app.region import RegionProcess
from topmast.app.server import bind, configure_logs, keep_private, raise_open_files, serve
from topmast.cli import ServeOptions
from topmast.client.address import checked_url
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import read_fleet
from topmast.policies.options import Profile
from topmast.policies.registry import DEFAULT_PROFILE, load_profile
from topmast.service.regions import LogChunk, read_chunk
from topmast.traces.throughputs import read_throughputs

SHORTEST_TOKEN = 16


def serve_queue(
    options: ServeOptions,
    ready: Callable[[str, ControlPlane, bool], None],
    outside: Outside = REAL,
) -> int:
    """Run the queue, and every placer that does not run apart, until a signal.

    Returns how many jobs run on.
    """
    keep_private()
    limits = limits_for(raise_open_files())
    fleet = read_fleet(options.fleet) if options.fleet else None
    profile, token = _profile(options), read_token(options.token_file)
    table = read_throughputs(options.throughputs) if options.throughputs else None
    apart = {r: checked_url(url, f"--placer {r}") for r, url in options.placers.items()}
    configure_logs()
    require_free(options.state / JOURNAL)
    with ExitStack() as stack:
        listeners = [stack.enter_context(bind(options.host, options.port))]
        if options.link is not None:
            host, port = _split(options.link)
            listeners.append(stack.enter_context(bind(host, port, token=token, field="--link")))
        system = ControlPlane(
            options.state, profile, fleet, apart=apart, token=token,
            checkpoints=options.checkpoints, pair_speeds=table, outside=outside,
        )  # fmt: skip
        stack.callback(system.close)
        system.open()
        endpoints = {region: _queue_endpoint(system, region) for region in apart}
        api = create_api(system.service, endpoints, token, limits.streams)
        say = partial(_say, ready, system, options.json)
        serve(
            api, options.state, listeners, say, system.event_stream.close,
            most_connections=limits.connections,
        )  # fmt: skip
    records = system.machines.queue.jobs.values()
    return sum(record.plan is not None and not record.finished for record in records)


def serve_placer(
    options: ServeOptions,
    ready: Callable[[str], None],
    outside: Outside = REAL,
) -> int:
    """Run the placer of one region, with its clusters and their engines, until a signal.

    Returns how many jobs run on.
    """
    keep_private()
    limits = limits_for(raise_open_files())
    profile, token = _profile(options), read_token(options.token_file)
    region, queue_url = options.region or "", checked_url(options.queue or "", "--queue")
    configure_logs()
    require_free(options.state / JOURNAL)
    with ExitStack() as stack:
        listener = stack.enter_context(bind(options.host, options.port, token=token))
        system = RegionProcess(
            region, queue_url, options.state, profile,
            token=token, checkpoints=options.checkpoints, outside=outside,
        )  # fmt: skip
        stack.callback(system.close)
        system.open()
        endpoint = LinkEndpoint(
            system.receive, for_queue=False, books=system.snapshot, log=partial(_log, system)
        )
        api = create_regional_api(endpoint, region, queue_url, token)
        serve(api, options.state, [listener], ready, most_connections=limits.connections)
    return len(system.machines.placers[region].state.allocations)


def _say(
    ready: Callable[[str, ControlPlane, bool], None], system: ControlPlane, as_json: bool, url: str
) -> None:
    ready(url, system, as_json)


def _profile(options: ServeOptions) -> Profile:
    return load_profile(options.profile or DEFAULT_PROFILE, options.settings)


def read_token(file: Path | None) -> str:
    """The token that processes show each other; empty without one. Raises InvalidInput."""
    if file is None:
        token, field = os.environ.get("TOPMAST_TOKEN", ""), "TOPMAST_TOKEN"
    else:
        field = "--token-file"
        try:
            token, mode = file.read_text("utf-8"), file.stat().st_mode
        except (OSError, UnicodeError) as error:
            raise InvalidInput(f"{file} cannot be read: {error}", field=field) from None
        if mode & 0o077:
            raise InvalidInput(
                f"{file} can be read by other users", field=field, remedy=f"chmod 600 {file}"
            )
    token = token.strip()
    good = token.isascii() and token.isprintable() and " " not in token
    if (token or file is not None) and (len(token) < SHORTEST_TOKEN or not good):
        raise InvalidInput(
            f"not a token: at least {SHORTEST_TOKEN} printable characters, no blanks", field=field,
            remedy="openssl rand -hex 32",
        )  # fmt: skip
    return token


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput(f"'{address}' is not HOST:PORT", field="--link", remedy="10.0.0.5:6279")
    return host.strip("[]"), int(port)


def _queue_endpoint(system: ControlPlane, region: str) -> LinkEndpoint:
    return LinkEndpoint(
        partial(system.receive, region),
        for_queue=True,
        dataset=lambda name: system.dataset_path(name, region),
        workdir=system.blobs.path,
    )


def _log(
    system: RegionProcess, job: str, epoch: int, rank: int, offset: int, limit: int
) -> LogChunk | None:
    for engine in list(system.engines.values()):
        path = engine.log_path(job, epoch, rank)
        if path is not None:
            return read_chunk(path, offset, limit, epoch, over=True)
    return None
