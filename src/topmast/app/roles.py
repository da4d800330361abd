"""What a server can be: the queue with all or some of the placers, or the placer of one region."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial

from topmast.adapters.connections import Limits, limits_for
from topmast.adapters.link import ExecDesk
from topmast.adapters.store import JOURNAL, require_free
from topmast.api import create_regional_api
from topmast.api.link import LinkEndpoint
from topmast.app.claim import ENGINES, folders_in
from topmast.app.process import REAL, Outside
from topmast.app.queue import QueueServer, profile_of, say_document
from topmast.app.region import RegionProcess
from topmast.app.server import bind, configure_logs, keep_private, raise_open_files, run
from topmast.app.token import read_token
from topmast.cli.output import note, say
from topmast.cli.rootoptions import ServeOptions
from topmast.client.address import checked_urls
from topmast.ports import LogPage


def serve(options: ServeOptions, outside: Outside = REAL) -> int:
    """`topmast up`: serve until a signal."""
    keep_private()
    limits = limits_for(raise_open_files())
    configure_logs()
    role = _run_placer if options.role == "placer" else _run_queue
    running = role(options, outside, limits)
    if sys.stderr.isatty():
        note("")  # after the ^C
    jobs = {0: "no job runs", 1: "1 job runs on", None: "it stood by"}
    note(f"stopped; {jobs.get(running, f'{running} jobs run on')}")
    return 0


def _run_queue(options: ServeOptions, outside: Outside, limits: Limits) -> int | None:
    """Run the queue, and every placer that does not run apart; returns how many jobs run on.

    None if it has stood by: it knows nothing of jobs to speak of.
    """
    return QueueServer(options, outside, limits).run()


def _run_placer(options: ServeOptions, outside: Outside, limits: Limits) -> int:
    """Run the placer of one region, with its clusters and engines; returns how many jobs run on."""
    profile, token = profile_of(options), read_token(options.token_file)
    region, queue_url = options.region or "", checked_urls(options.queue or "", "--queue")
    require_free(options.state / JOURNAL)
    with ExitStack() as stack:
        listener = stack.enter_context(bind(options.host, options.port, token=token))
        system = RegionProcess(
            region, queue_url, options.state, profile,
            token=token, checkpoints=options.checkpoints, outside=outside,
        )  # fmt: skip
        stack.callback(system.close)
        system.open()
        if options.validate:
            system.validate()
        endpoint = LinkEndpoint(
            system.receive,
            for_queue=False,
            books=system.snapshot,
            log=partial(_log, system),
            execs=ExecDesk(system.engines).answer,
        )
        run(
            create_regional_api(endpoint, region, queue_url, token, system.metrics),
            options.state, [listener],
            lambda url: _say_placer_ready(url, options), most_connections=limits.connections,
        )  # fmt: skip
    return len(system.machines.placers[region].state.allocations)


def _say_placer_ready(url: str, options: ServeOptions) -> None:
    if options.json:
        say_document(url, options.state, [options.region])
        return
    say(f"The placer of region {options.region} is up at {url}; its queue is {options.queue}")
    say("Stop with Ctrl-C: jobs run on.")
    sys.stdout.flush()


def _log(
    system: RegionProcess, job: str, epoch: int, rank: int, offset: int, limit: int
) -> LogPage | None:
    for folder in folders_in(system.state / ENGINES):
        page = system.read_log(folder.name, job, epoch, rank, offset, limit)
        if page is not None:
            return page
    return None
