"""`topmast up`: the whole system, or the part of it that this process shall be."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from topmast.cli import values
from topmast.cli.command import FOLDER, Session, command
from topmast.cli.completion import complete_profiles, complete_settings
from topmast.cli.groups import refuse_together
from topmast.cli.output import note
from topmast.cli.rootoptions import DEFAULT_PORT, ServeOptions


class Role(StrEnum):
    """What a process is for."""

    ALL = "all"
    QUEUE = "queue"
    PLACER = "placer"


Fleet = Annotated[Path | None, typer.Option("--fleet", metavar="FILE", help="The fleet to run.")]
FleetReplaces = Annotated[
    bool,
    typer.Option(
        "--fleet-replaces", help="Let --fleet undo what `topmast fleet apply` changed since."
    ),
]
Validate = Annotated[
    bool,
    typer.Option("--validate", help="Check invariants all the time, at a hundredth of the time."),
]
Host = Annotated[
    str, typer.Option(help="The address to listen on; only loopback, except for a placer.")
]
Port = Annotated[int, typer.Option(help="The port; 0 takes a free one.")]
ProfileName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The policies to run with.", autocompletion=complete_profiles
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, or what forecasts go by (sim.KEY); may be repeated.",
        autocompletion=complete_settings,
    ),
]
ItsRole = Annotated[
    Role, typer.Option(help="What this process is: everything, the queue, or one placer.")
]
Placers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REGION=URL", help="Queue: the URL of a region's placer; may be repeated."
    ),
]
Region = Annotated[str | None, typer.Option(metavar="NAME", help="Placer: the name of its region.")]
Queue = Annotated[str | None, typer.Option(metavar="URL", help="Placer: the URL of the queue.")]
Link = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Queue: one more address, only for placers."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The secret that the processes share, else $TOPMAST_TOKEN."),
]
Checkpoints = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|URL", help="The folder or s3:// bucket for checkpoints of all processes."
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="One more address, for clients over TLS with a login."),
]
TlsCert = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The certificate, PEM; renewed when it changes.")
]
TlsKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The key of the certificate, PEM.")
]
PublicUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="What clients call this server, and no other of them: https://HOST."
    ),
]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(metavar="NETWORK", help="Believe these proxies about clients; may be repeated."),
]
AccountsOption = Annotated[
    Path | None,
    typer.Option("--accounts", metavar="FILE", help="Ask for a login; the file names a provider."),
]
EveryoneIsTrusted = Annotated[
    bool,
    typer.Option("--everyone-is-trusted", help="Let others' tasks run as the user of the server."),
]
NotifyNetworks = Annotated[
    list[str] | None,
    typer.Option(
        "--notify-network", metavar="NETWORK",
        help="Let webhooks be received here, such as 10.0.0.0/8; may be repeated. Default: only in "
        "the Internet.",
    ),
]  # fmt: skip
Otlp = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Send a trace of each request to this collector: http://HOST:4318."
    ),
]
Throughputs = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Measured speeds of jobs, alone and on the same GPUs."),
]

Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Keep the journal in this PostgreSQL database: postgresql://HOST/NAME."
    ),
]
StandBy = Annotated[
    bool,
    typer.Option("--standby", help="Follow the leader on the same --store, and take over from it."),
]
Reads = Annotated[
    bool,
    typer.Option(
        "--reads", help="With --standby: answer requests that only read, and say how old that is."
    ),
]
MOST_PORT = 65_535
MOST_MONTHS = 1_200
KeepMonths = Annotated[
    int | None,
    typer.Option(
        "--keep-months", min=0, max=MOST_MONTHS, metavar="N",
        help="Forget jobs that ended N whole months ago, but for usage by the day. Default: as "
        "before, at first 0: keep all.",
    ),
]  # fmt: skip
KeepWorkdirs = Annotated[
    str | None,
    typer.Option(
        "--keep-workdirs", metavar="SIZE", callback=values.SIZE,
        help="Keep so much of uploaded work folders at most, of an account and of a tenant as much "
        "as they leave free. Default: as before, at first 100GiB.",
    ),
]  # fmt: skip
QueueMemory = Annotated[
    str | None,
    typer.Option(
        "--queue-memory", metavar="SIZE", callback=values.SIZE,
        help="Take jobs of accounts until those that have not ended have so much memory, by an "
        "estimate; of an account and of a tenant as much as they leave free. Default: as before, "
        "at first 2GiB.",
    ),
]  # fmt: skip
PlanDataEvery = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Plan this often where datasets are stored, and move them. Default: never.",
        callback=values.DURATION,
    ),
]
PlanCapacityEvery = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Plan this often which hosts belong to which clusters, and move them. Default: never.",
        callback=values.DURATION,
    ),
]


URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""How a URL begins, one with a slash missing included: it never becomes the name of a folder."""

EXAMPLE = """topmast up
topmast up --fleet fleet.yaml --state ./state --port 6278
topmast up --role queue --fleet fleet.yaml --placer east=http://127.0.0.1:7001
topmast up --store postgresql://db1/topmast --standby
topmast up --role placer --region east --queue http://127.0.0.1:6278 --state ./east"""


def add(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "up", asks=FOLDER, example=EXAMPLE)
    def up(
        session: Session,
        fleet: Fleet = None,
        host: Host = "127.0.0.1",
        port: Port = DEFAULT_PORT,
        profile: ProfileName = None,
        settings: Settings = None,
        role: ItsRole = Role.ALL,
        placer: Placers = None,
        region: Region = None,
        queue: Queue = None,
        link: Link = None,
        token_file: TokenFile = None,
        checkpoints: Checkpoints = None,
        throughputs: Throughputs = None,
        store: Store = None,
        standby: StandBy = False,
        reads: Reads = False,
        keep_months: KeepMonths = None,
        keep_workdirs: KeepWorkdirs = None,
        queue_memory: QueueMemory = None,
        plan_data_every: PlanDataEvery = None,
        plan_capacity_every: PlanCapacityEvery = None,
        listen: Listen = None,
        tls_cert: TlsCert = None,
        tls_key: TlsKey = None,
        public_url: PublicUrl = None,
        trusted_proxy: TrustedProxy = None,
        accounts: AccountsOption = None,
        everyone_is_trusted: EveryoneIsTrusted = False,
        notify_network: NotifyNetworks = None,
        otlp: Otlp = None,
        fleet_replaces: FleetReplaces = False,
        validate: Validate = False,
    ) -> int:
        """Run the whole system in one process, until Ctrl-C.

        With --role it is a part of it: the queue, or the placer of one region.
        """
        options = ServeOptions(
            fleet=fleet, state=session.state_folder(), host=host, port=port, profile=profile,
            settings=_settings(settings or [], plan_data_every, plan_capacity_every),
            json=session.json, role=role.value,
            placers=values.assignments(placer or [], "--placer"),
            region=region, queue=queue, link=link, token_file=token_file,
            checkpoints=_place(checkpoints) if checkpoints else None,
            throughputs=throughputs, store=store, standby=standby, reads=reads,
            keep_months=keep_months,
            keep_workdirs=values.size_bytes(keep_workdirs, "--keep-workdirs"),
            queue_memory=values.size_bytes(queue_memory, "--queue-memory"),
            listen=listen, tls_cert=tls_cert, tls_key=tls_key, public_url=public_url,
            trusted_proxies=tuple(trusted_proxy or ()), accounts=accounts,
            everyone_is_trusted=everyone_is_trusted,
            notify_networks=tuple(notify_network or ()),
            fleet_replaces=fleet_replaces, validate=validate, otlp=otlp,
        )  # fmt: skip
        _check(options, role)
        _say_starting(options)
        return session.root.serve(options)


def _say_starting(options: ServeOptions) -> None:
    """On a terminal alone, where seconds are long: logs begin with what has happened."""
    if sys.stderr.isatty():
        port = f"port {options.port}" if options.port else "a free port"
        note(f"starting on {port} of {options.host}, state folder {options.state}")


def _settings(
    given: list[str], plan_data_every: str | None, plan_capacity_every: str | None
) -> dict[str, str]:
    """What --set says, and the options that stand for one of its keys."""
    found = values.assignments(given, "--set")
    for text, option, key in (
        (plan_data_every, "--plan-data-every", "slow.plan_data_every_s"),
        (plan_capacity_every, "--plan-capacity-every", "slow.plan_capacity_every_s"),
    ):
        every_s = values.duration_s(text, option)
        if every_s is not None:
            values.once(found, key, repr(every_s), option)
    return found


def _place(text: str) -> str:
    """The absolute path of a folder; a URL as it is."""
    return text if URL.match(text) else str(Path(text).expanduser().absolute())


def _has_token(file: Path | None) -> bool:
    """Whether a token is given; whether it is one, the root finds out."""
    return file is not None or bool(os.environ.get("TOPMAST_TOKEN"))


def _check(options: ServeOptions, role: Role) -> None:
    """Each role has options of its own; raises BadParameter for all those of another."""
    faults = [typer.BadParameter(fault) for fault in _faults(options, role)]
    if not 0 <= options.port <= MOST_PORT:
        message = f"must be at most {MOST_PORT}" if options.port > 0 else "must be 0 or more"
        faults.append(typer.BadParameter(message, param_hint="'--port'"))
    refuse_together(faults)


def _faults(options: ServeOptions, role: Role) -> Iterator[str]:
    if role is not Role.PLACER or not _has_token(options.token_file):
        try:
            values.loopback(options.host)
        except typer.BadParameter as error:
            yield f"--host: {error.message} (--listen is for other machines)"
    own = {
        "--placer": (bool(options.placers), Role.QUEUE),
        "--link": (options.link is not None, Role.QUEUE),
        "--region": (options.region is not None, Role.PLACER),
        "--queue": (options.queue is not None, Role.PLACER),
    }
    if options.reads and not options.standby:
        yield "--reads goes with --standby"
    if options.fleet_replaces and options.standby:
        yield (
            "--fleet-replaces has no effect with --standby: stop all servers, start one once "
            "without --standby and with --fleet FILE --fleet-replaces, then the standbys"
        )
    for name, (given, needed) in own.items():
        if given and role is not needed:
            yield f"{name} goes with --role {needed.value}"
    if role is Role.PLACER:
        yield from _faults_of_placer(options)
    if role is Role.QUEUE and not options.placers:
        yield "name the regions with a placer of their own: --placer REGION=URL"


def _faults_of_placer(options: ServeOptions) -> Iterator[str]:
    if not (options.region and options.queue):
        yield "a placer needs --region NAME and --queue URL"
    for given, why in (
        (options.store is not None or options.standby,
         "--store and --standby are options of the queue"),
        (options.keep_months is not None, "--keep-months is an option of the queue"),
        (options.keep_workdirs is not None, "--keep-workdirs is an option of the queue"),
        (options.queue_memory is not None, "--queue-memory is an option of the queue"),
        (options.listen or options.accounts or options.otlp,
         "--listen, --accounts and --otlp are options of the queue"),
        (options.tls_cert is not None or options.tls_key is not None,
         "a placer speaks no TLS itself, so --tls-cert and --tls-key are options of the queue: put "
         "TLS or a tunnel in front of it"),
        (options.public_url is not None or options.trusted_proxies or options.everyone_is_trusted,
         "--public-url, --trusted-proxy and --everyone-is-trusted are options of the queue"),
        (options.notify_networks or options.fleet_replaces,
         "--notify-network and --fleet-replaces are options of the queue"),
        (options.throughputs is not None,
         "--throughputs is an option of the queue, which decides which jobs share GPUs"),
        (any(key.startswith("sim.") for key in options.settings),
         "--set sim.KEY is an option of the queue, which makes the forecasts"),
        (options.fleet is not None,
         "a placer gets its part of the fleet from the queue: leave out --fleet"),
    ):  # fmt: skip
        if given:
            yield why
