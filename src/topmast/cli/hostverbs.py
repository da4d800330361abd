"""Hosts put aside and brought back: `cordon`, `uncordon`, `drain`, by name or by selector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import values
from topmast.cli.actoptions import ActOptions
from topmast.cli.command import Session, command
from topmast.cli.completion import complete_hosts
from topmast.cli.each import named_or_selected, require_each
from topmast.cli.hosttable import listed, say_hosts
from topmast.cli.output import Column, Row, say, say_table
from topmast.cli.text import plural

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.act_views import HostsActed
    from topmast.model.views import DrainView

HostsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="HOST", help="Names of hosts.", autocompletion=complete_hosts),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="When they take work again by themselves: a time, or 4h from now.",
        callback=values.COMING,
    ),
]


HostSelector = Annotated[
    str | None,
    values.selector_option("Hosts", "host, region, cluster, datacenter, pod, rack, gpu, state"),
]


@dataclass(frozen=True)
class HostOptions(ActOptions):
    """What all acts on hosts have in common."""

    selector: HostSelector = None


Act = Callable[["Client", list[str]], "HostsActed"]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app, "cordon", example="topmast cordon east-1-0\n"
        "topmast cordon -l rack=east-1-r0 --dry-run",
    )(cordon)  # fmt: skip
    command(
        app, "uncordon",
        example="topmast uncordon east-1-0\ntopmast uncordon -l rack=east-1-r0,state=cordoned",
    )(uncordon)  # fmt: skip
    command(
        app, "drain", example="topmast drain east-1-0 east-1-1 --dry-run\n"
        "topmast drain -l cluster=east-1,gpu=A100 --until 4h",
    )(drain)  # fmt: skip


def cordon(
    session: Session,
    hosts: HostsArgument = None,
    until: UntilOption = None,
    options: HostOptions = HostOptions(),
) -> None:
    """Place no more jobs on hosts; running jobs continue."""
    until_s = values.coming_s(until, "--until")
    acted = _act(
        session, hosts, options,
        lambda client, names: client.cordon_hosts(
            names, selector=options.selector or "", until_s=until_s, **options.given
        ),
    )  # fmt: skip
    session.show(_document(acted), lambda: _say(acted))


def uncordon(
    session: Session, hosts: HostsArgument = None, options: HostOptions = HostOptions()
) -> None:
    """Let hosts take work again."""
    acted = _act(
        session, hosts, options,
        lambda client, names: client.uncordon_hosts(
            names, selector=options.selector or "", **options.given
        ),
    )  # fmt: skip
    session.show(_document(acted), lambda: _say(acted))


def drain(
    session: Session,
    hosts: HostsArgument = None,
    now: Annotated[
        bool, typer.Option("--now", help="Also stop jobs that have nowhere else to run yet.")
    ] = False,
    until: UntilOption = None,
    options: HostOptions = HostOptions(),
) -> None:
    """Cordon hosts, and move their jobs to other hosts.

    A job moves as soon as it has another place in the region, and goes on there from its
    checkpoint. One that may not be preempted runs to its end. What stays, and why, is shown here
    and by `topmast hosts`.
    """
    until_s = values.coming_s(until, "--until")
    acted = _act(
        session, hosts, options,
        lambda client, names: client.drain_hosts(
            names, selector=options.selector or "", now=now, until_s=until_s, **options.given
        ),
    )  # fmt: skip
    if options.dry_run:
        document = {"drains": acted.drains, **_document(acted)}
        session.show(document, lambda: _say_drains(acted.drains, at_once=now))
    else:
        session.show(_document(acted), lambda: _say(acted))


def _act(session: Session, hosts: list[str] | None, options: HostOptions, act: Act) -> HostsActed:
    """One request for all hosts. A misspelt name is found before any host is changed."""
    named = named_or_selected(hosts, options.selector, "host", "host=*")
    with session.client() as client:
        if named:
            require_each(named, (row.name for row in client.hosts()), "host")
        acted = act(client, named)
    options.tell()
    return acted


def _document(acted: HostsActed) -> dict[str, object]:
    done: dict[str, object] = {
        "hosts": acted.hosts, "effects": acted.effects, "jobs": acted.jobs,
    }  # fmt: skip
    return done | {"gpus": acted.gpus, "dry_run": acted.dry_run}


def _say(acted: HostsActed) -> None:
    say_hosts(acted.hosts)
    if same := [one.host for one in acted.effects if one.effect == "unchanged"]:
        say(f"{listed(same)} {'is' if len(same) == 1 else 'are'} unchanged")
    if acted.dry_run:
        changed = sum(effect.effect == "done" for effect in acted.effects)
        say(
            f"{acted.verb}: {plural(changed, 'host')} would change, with {acted.gpus:g} GPUs "
            f"and {plural(len(acted.jobs), 'job')}"
        )


def _say_drains(plans: Sequence[DrainView], at_once: bool) -> None:
    columns = [
        Column("JOB", whole=True), Column("FROM"), Column("TO"), Column("COSTS GPU-S", right=True),
        Column("WHY NOT"),
    ]  # fmt: skip
    rows: list[Row] = [
        [
            move.job, listed(move.hosts),
            f"{move.to_cluster}: {listed(move.to_hosts)}" if move.moves else "",
            f"{move.cost_gpu_s:.0f}",
            move.why
            + (": would stop, and wait" if at_once and move.may_stop and move.why else ""),
        ]
        for move in {move.job: move for plan in plans for move in plan.moves}.values()
    ]  # fmt: skip
    if rows:
        say_table(columns, rows)
    for plan in plans:
        if not plan.moves:
            say(f"nothing runs on {plan.host}")
