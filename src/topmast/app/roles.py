"""What a server can be: the queue with all or some of the placers, or the placer of one region."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from topmast.adapters.connections import Limits, limits_for
from topmast.adapters.store import JOURNAL, require_free
from topmast.api import create_api, create_regional_api
from topmast.api.link import LinkEndpoint
from topmast.app.control_plane import ControlPlane, folders_in
from topmast.app.process import ENGINES, REAL, Outside
from topmast.app.region import RegionProcess
from topmast.app.server import bind, configure_logs, keep_private, raise_open_files, run
from topmast.cli import ServeOptions
from topmast.cli.output import note, say
from topmast.client.address import checked_url
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import read_fleet
from topmast.policies.options import Profile
from topmast.policies.registry import DEFAULT_PROFILE, load_profile
from topmast.ports import LogPage
from topmast.service.warnings import quotas_beyond
from topmast.traces.throughputs import read_throughputs

SHORTEST_TOKEN = 16


def serve(options: ServeOptions, outside: Outside = REAL) -> int:
    """`topmast up`: serve until a signal."""
    keep_private()
    limits = limits_for(raise_open_files())
    configure_logs()
    role = _run_placer if options.role == "placer" else _run_queue
    running = role(options, outside, limits)
    if sys.stderr.isatty():
        note("")  # after the ^C
    jobs = {0: "no job runs", 1: "1 job runs on"}.get(running, f"{running} jobs run on")
    note(f"stopped; {jobs}")
    return 0


def _run_queue(options: ServeOptions, outside: Outside, limits: Limits) -> int:
    """Run the queue, and every placer that does not run apart; returns how many jobs run on."""
    fleet = read_fleet(options.fleet) if options.fleet else None
    profile, token = _profile(options), read_token(options.token_file)
    table = read_throughputs(options.throughputs) if options.throughputs else None
    apart = {r: checked_url(url, f"--placer {r}") for r, url in options.placers.items()}
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
        run(
            create_api(system.service, endpoints, token, limits.streams), options.state, listeners,
            lambda url: _say_queue_ready(url, system, options.json), system.event_stream.close,
            most_connections=limits.connections,
        )  # fmt: skip
    records = system.machines.queue.jobs.records.values()
    return sum(record.plan is not None and not record.finished for record in records)


def _run_placer(options: ServeOptions, outside: Outside, limits: Limits) -> int:
    """Run the placer of one region, with its clusters and engines; returns how many jobs run on."""
    profile, token = _profile(options), read_token(options.token_file)
    region, queue_url = options.region or "", checked_url(options.queue or "", "--queue")
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
        run(
            create_regional_api(endpoint, region, queue_url, token), options.state, [listener],
            lambda url: _say_placer_ready(url, options), most_connections=limits.connections,
        )  # fmt: skip
    return len(system.machines.placers[region].state.allocations)


def _say_queue_ready(url: str, system: ControlPlane, as_json: bool) -> None:
    regions = [region.name for region in system.fleet.regions]
    if as_json:
        _say_document(url, system.state, regions)
        return
    for replica in system.missing:
        note(
            f"warning: dataset {replica} is not in its store; `topmast datasets add` puts it there"
        )
    for line in quotas_beyond(system.fleet):
        note(f"warning: {line}")
    recovered = f", recovered to record {system.rebuilt.seq}" if system.rebuilt.seq else ""
    say(f"Topmast is up at {url} (regions {', '.join(regions)}{recovered})")
    say("Submit with `topmast launch JOB.yaml`; stop with Ctrl-C: jobs run on.")
    sys.stdout.flush()


def _say_placer_ready(url: str, options: ServeOptions) -> None:
    if options.json:
        _say_document(url, options.state, [options.region])
        return
    say(f"The placer of region {options.region} is up at {url}; its queue is {options.queue}")
    say("Stop with Ctrl-C: jobs run on.")
    sys.stdout.flush()


def _say_document(url: str, state: Path, regions: Sequence[str | None]) -> None:
    say(json.dumps({"url": url, "state": str(state), "regions": regions}))
    sys.stdout.flush()


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
        dataset=lambda name: system.replica(name, region),
        workdir=system.blobs.path,
    )


def _log(
    system: RegionProcess, job: str, epoch: int, rank: int, offset: int, limit: int
) -> LogPage | None:
    for folder in folders_in(system.state / ENGINES):
        page = system.read_log(folder.name, job, epoch, rank, offset, limit)
        if page is not None:
            return page
    return None
