"""Tenants: what they have, and tenants that are paused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import fleet_file, values
from topmast.cli.actoptions import ActOptions, PeriodOptions
from topmast.cli.command import Session, command, group
from topmast.cli.completion import complete_tenants
from topmast.cli.each import named_or_selected
from topmast.cli.output import Column, say, say_table, warn
from topmast.cli.text import moment, number, plural

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.act_views import QuotaActed, TenantPause
    from topmast.model.timed_quota import TimedQuota
    from topmast.model.views import TenantView

STOPS_SHOWN = 20
TenantArgument = Annotated[
    str,
    typer.Argument(metavar="TENANT", help="The name of a tenant.", autocompletion=complete_tenants),
]


TenantsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TENANT", help="Names of tenants.", autocompletion=complete_tenants),
]


@dataclass(frozen=True)
class TenantOptions(ActOptions):
    """What pausing and resuming have in common."""

    selector: Annotated[str | None, values.selector_option("Tenants", "tenant, parent")] = None


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    made = group(
        app, "tenants", alone=list_all,
        example="topmast tenants\ntopmast tenants pause vision --drain --dry-run",
    )  # fmt: skip
    command(
        made, "pause", example="topmast tenants pause vision --reason 'over budget'\n"
        "topmast tenants pause vision --drain --dry-run",
    )(pause)  # fmt: skip
    command(made, "resume", example="topmast tenants resume vision")(resume)
    command(made, "apply", example="topmast tenants apply quotas.yaml --dry-run")(apply)
    command(made, "budgets", example="topmast tenants budgets --json")(budgets)
    command(
        made, "quota", example="topmast tenants quota vision --gpus H100=64 --for 3d "
        "--reason deadline\ntopmast tenants quota vision --end",
    )(quota)  # fmt: skip


def pause(
    session: Session,
    tenants: TenantsArgument = None,
    drain: Annotated[
        bool,
        typer.Option("--drain", help="Stop also the jobs that run, at their checkpoints."),
    ] = False,
    options: TenantOptions = TenantOptions(),
) -> None:
    """Let no job of a tenant start, or of the tenants below it; what runs goes on.

    Jobs are still taken, and wait. With --drain those that run stop too, and wait; a job that may
    not be preempted runs to its end.
    """
    _pause(
        session, tenants, options, "paused",
        lambda client, names: client.pause_tenants(
            names, selector=options.selector or "", drain=drain, **options.given
        ),
    )  # fmt: skip


def resume(
    session: Session,
    tenants: TenantsArgument = None,
    options: TenantOptions = TenantOptions(),
) -> None:
    """Let the jobs of a tenant start again."""
    _pause(
        session, tenants, options, "resumed",
        lambda client, names: client.resume_tenants(
            names, selector=options.selector or "", **options.given
        ),
    )  # fmt: skip


def _pause(
    session: Session,
    tenants: list[str] | None,
    options: TenantOptions,
    becomes: str,
    act: Callable[[Client, list[str]], list[TenantPause]],
) -> None:
    """One request for all tenants; the document of one that is named alone is its own."""
    named = named_or_selected(tenants, options.selector, "tenant", "tenant=*")
    with session.client() as client:
        found = act(client, named)
    document: object = found[0] if len(named) == 1 else {"tenants": found}
    options.tell()
    session.show(document, lambda: _say_pauses(found, becomes))


def apply(
    session: Session,
    file: fleet_file.FileArgument,
    base: fleet_file.BaseOption = None,
    reason: fleet_file.ReasonOption = None,
    dry_run: fleet_file.DryRunOption = False,
) -> None:
    """Give a running server the tenants and quotas of a fleet file; all else of it stays.

    A tenant that the file does not have must be without jobs, and goes. As `fleet apply --tenants`.
    """
    fleet_file.apply(session, file, True, base, reason, dry_run)


def budgets(session: Session) -> None:
    """Budgets of tenants for a month, and what is used of them; a tenant counts those below it."""
    with session.client() as client:
        found = client.budgets()
    columns = [
        Column("TENANT", whole=True), Column("MONTH"), Column("GPU-H USED", right=True),
        Column("OF", right=True), Column("USD USED", right=True), Column("OF", right=True),
        Column("USED", right=True), Column("AT LIMIT"),
    ]  # fmt: skip
    rows = [
        [
            one.tenant, one.month, number(round(one.used_gpu_hours, 1)), number(one.gpu_hours),
            f"{one.used_usd:.2f}", number(one.usd), f"{one.used_percent:.0f}%", one.at_limit,
        ]
        for one in found
    ]  # fmt: skip
    session.show({"budgets": found}, lambda: say_table(columns, rows))


def quota(
    session: Session,
    tenant: TenantArgument,
    gpus: Annotated[
        list[str] | None,
        typer.Option(
            "--gpus",
            metavar="MODEL=N",
            help="GPUs of a model; repeatable.",
            callback=values.COUNTS,
        ),
    ] = None,
    period: PeriodOptions = PeriodOptions(),
    end: Annotated[
        bool, typer.Option("--end", help="The quota of the fleet holds again, at once.")
    ] = False,
    options: ActOptions = ActOptions(),
) -> None:
    """Give a tenant another quota for a while.

    Models that are not named keep what the fleet says. To change quotas for good, apply a fleet.
    """
    if end == bool(gpus) or period.ends != (0 if end else 1):
        raise typer.BadParameter(
            "give --gpus MODEL=N and --until TIME or --for DURATION; or --end alone"
        )
    with session.client() as client:
        if end:
            found = client.end_quota(tenant, **options.given)
        else:
            from_s, until_s = period.bounds_s()
            found = client.set_quota(
                tenant,
                values.counts(gpus or [], "--gpus"),
                from_s=from_s,
                until_s=until_s,
                **options.given,
            )
        # What a tenant without a quota may use, the tenants above it say.
        rows = [] if found.before and found.quota else client.tenants()
    options.tell()
    for line in found.warnings:
        warn(line)
    session.show(found, lambda: _say_quota(found, rows))


def _say_quota(found: QuotaActed, tenants: Sequence[TenantView]) -> None:
    columns = [Column("GPU"), Column("QUOTA BEFORE", right=True), Column("QUOTA", right=True)]
    models = dict.fromkeys((*found.before, *found.quota))
    above = _QuotasAbove(tenants)

    def of(quota: dict[str, int], model: str) -> str:
        if quota:  # a model that it does not list has none
            return number(quota.get(model, 0))
        return above.of(found.tenant, model)

    say_table(
        columns,
        [[model, of(found.before, model), of(found.quota, model)] for model in models],
    )
    if found.until_s is not None:
        say(f"from {moment(found.from_s)} to {moment(found.until_s)}")
    if found.replaces is not None:
        verb = "ends" if found.until_s is None else "replaces"
        verb = f"would {verb[:-1]}" if found.dry_run else verb
        say(f"it {verb} the quota for a while that there was: {_times(found.replaces)}")
    say(f"{plural(found.waiting, 'job')} of it waiting, {found.running} with GPUs")


def _times(timed: TimedQuota) -> str:
    return f"{timed.why()}, from {moment(timed.from_s)} to {moment(timed.until_s)}"


class _QuotasAbove:
    """What tenants without a quota may use: that of the nearest above that states one."""

    def __init__(self, rows: Sequence[TenantView]) -> None:
        self._parents = {row.name: row.parent for row in rows}
        self._stated: dict[str, dict[str, float]] = {}
        self._none = {(row.name, row.gpu_model) for row in rows if row.nominal is None}
        """Models of which a tenant states none, also beside a quota for a while of others."""
        for row in rows:
            if row.nominal is not None:
                self._stated.setdefault(row.name, {})[row.gpu_model] = row.nominal

    def of(self, tenant: str, model: str) -> str:
        """In words; without a model only which tenant states it. O(depth)."""
        above = self._parents.get(tenant)
        while above in self._parents and (
            above not in self._stated or (above, model) in self._none
        ):
            above = self._parents[above]
        if above is None:
            return "unlimited"
        if not model or above not in self._parents:  # not in there: the caller does not see it
            return f"of {above}"
        return f"{number(self._stated[above].get(model, 0))} of {above}"


def _say_pauses(found: list[TenantPause], becomes: str) -> None:
    for one in found:
        _say_pause(one, becomes)


def _say_pause(found: TenantPause, becomes: str) -> None:
    would = "would be " if found.dry_run else ""
    if found.effect == "unchanged":
        say(f"tenant {found.tenant} is unchanged: {found.paused or 'it is not paused'}")
    elif would:
        say(f"tenant {found.tenant} {would}{becomes}")
        if found.paused:
            say(f"now {found.paused}")
    else:
        say(found.paused or f"tenant {found.tenant} {becomes}")
    say(f"{plural(found.waiting, 'job')} of it waiting, {found.running} with GPUs")
    if not found.stops:
        return
    columns = [Column("JOB"), Column("GPUS", right=True), Column("LOST GPU-H", right=True)]
    rows = [
        [stop.job, number(stop.gpus), number(round(stop.lost_gpu_h, 2))]
        for stop in found.stops[:STOPS_SHOWN]
    ]
    say_table(columns, rows)
    say(
        f"{plural(len(found.stops), 'job')} {would}stopped: {number(found.gpus)} GPUs, "
        f"{number(round(found.lost_gpu_h, 2))} GPU-hours {would}lost"
    )


def list_all(session: Session) -> None:
    """Quota used, borrowed and lent, and fair share, by tenant.

    A tenant counts what the tenants below it hold.
    """
    with session.client() as client:
        found = client.tenants()
    for line in _beyond(found):
        warn(line)
    columns = [
        Column("TENANT", whole=True), Column("GPU", folds=True), Column("QUOTA", right=True),
        Column("USED", right=True), Column("BORROWED", right=True), Column("LENT", right=True),
        Column("PENDING", right=True), Column("WEIGHT", right=True, spare=2),
        Column("FAIR", right=True, spare=3), Column("LATELY", right=True, spare=1),
        Column("PARENT", folds=True, spare=4),
    ]  # fmt: skip
    above = _QuotasAbove(found)
    rows = [
        [
            row.name, row.gpu_model,
            above.of(row.name, row.gpu_model)
            if row.nominal is None else number(row.nominal),
            number(row.used), number(row.borrowed), number(row.lent), number(row.pending),
            number(row.weight), f"{row.fair_share:.0%}", f"{row.usage_share:.0%}", row.parent or "",
        ]
        for row in found
    ]  # fmt: skip

    def tell() -> None:
        say_table(columns, rows)
        for why in dict.fromkeys(row.paused for row in found if row.paused):
            say(f"{why}: nothing of it starts")
        times = {row.for_a_while: row for row in found if row.for_a_while}
        for why, row in times.items():
            say(f"{moment(row.from_s)} to {moment(row.until_s)}: {why}")

    session.show({"tenants": found}, tell)


def _beyond(tenants: Sequence[TenantView]) -> Iterator[str]:
    """A line for each model of which the quotas promise more GPUs than there are."""
    parents = {row.name: row.parent for row in tenants}
    stating = {row.name for row in tenants if row.nominal is not None}
    promised: dict[str, float] = {}
    there = {row.gpu_model: row.present for row in tenants}
    for row in tenants:
        above = row.parent
        while above is not None and above not in stating:
            above = parents.get(above)
        if row.nominal is not None and above is None:
            promised[row.gpu_model] = promised.get(row.gpu_model, 0.0) + row.nominal
    for model, gpus in sorted(promised.items()):
        if (present := there[model]) is not None and gpus > present:
            yield (
                f"the quotas add up to {number(gpus)} {model}, and there are {number(present)}: "
                "not all tenants can have theirs at once"
            )
