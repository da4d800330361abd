"""`explain`: why a job stands where it stands, with every region and cluster accounted for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from topmast.cli.command import Session, command
from topmast.cli.jobs import JobArgument
from topmast.cli.output import Cell, Column, Row, note, say, say_fields, say_table, say_text, warn
from topmast.cli.sweeps import is_sweep, states
from topmast.cli.text import clean, moment, number, plural

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.reason import ClusterVerdict, Count
    from topmast.model.views import Explanation, PlanView, RegionVerdict

_PLANS_SIDE_BY_SIDE = 5
_UNKNOWN_DATASET = "UnknownDataset"
_NOT_WAITING = (
    "STARTING", "RUNNING", "PREEMPTING", "SUSPENDED", "CANCELLING",
    "SUCCEEDED", "FAILED", "CANCELLED",
)  # fmt: skip


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "explain", example="topmast explain j17\ntopmast explain j17 --json")(explain)


def explain(session: Session, job: JobArgument) -> None:
    """Why a job stands where it stands, and what would help.

    There is a verdict for every region and every cluster. Of a sweep it is about the first of its
    jobs that wait.
    """
    with session.client() as client:
        if is_sweep(job):
            job = _waiting_in(client, job)
        explanation = client.explain(job)
    session.show(explanation, lambda: say_explanation(explanation))


def _waiting_in(client: Client, sweep: str) -> str:
    """The job of a sweep that is to be explained. Raises NotFound if none of them waits."""
    from topmast.model.errors import NotFound
    from topmast.model.states import WAITING

    found = client.sweep(sweep)
    jobs = f"{sweep} is a sweep of {plural(found.jobs, 'job')} ({states(found)})"
    first = next(client.jobs(states=tuple(WAITING), selector=f"sweep={sweep}"), None)
    if first is None:
        raise NotFound(f"{jobs}: none of them waits; see `topmast status {sweep}`")
    note(f"{jobs}; this is about the first that waits, {first.id}")
    return first.id


def say_explanation(explanation: Explanation) -> None:
    """The whole account, for people."""
    for warning in explanation.warnings:
        warn(warning)
    say(explanation.summary)
    say()
    say_fields(
        [
            ("job", f"{explanation.job or ''}  {explanation.name}".strip()),
            ("state", explanation.state),
            ("reason", explanation.reason or ""),
            ("expected start", _expected(explanation)),
            ("basis", explanation.basis),
            ("waits for", _waits_for(explanation)),
        ]
    )
    if explanation.regions:
        say()
        _say_candidates(explanation.regions, explanation.reason != _UNKNOWN_DATASET)
    if explanation.plans:
        say()
        _say_plans(explanation.plans, explanation.reason)
        is_placed = not explanation.regions
        _say_victims(explanation.plans[:_PLANS_SIDE_BY_SIDE], is_placed=is_placed)
    # A dry run has warned of what is too much of the job already.
    advices = [text for text in explanation.would_help if text not in explanation.warnings]
    if advices:
        say()
        say("What would help")
        for advice in advices:
            say_text(advice, first="  - ", rest="    ")


def _waits_for(explanation: Explanation) -> str:
    """What a job waits for until its expected start, where the basis does not say it."""
    start = explanation.expected_start
    return "" if start is None else start.waits_for


def _expected(explanation: Explanation) -> str:
    """When a job that waits will start, as far as that is known."""
    start = explanation.expected_start
    if explanation.expected_start_s is None:
        from topmast.model.reason import no_start

        if explanation.state in _NOT_WAITING:
            return ""
        not_before_s = explanation.not_before_s
        return no_start(
            explanation.reason, *explanation.also, suspended=explanation.suspended,
            not_before="" if not_before_s is None else moment(not_before_s),
        )  # fmt: skip
    at = moment(explanation.expected_start_s)
    if start is None or start.early_s is None or start.late_s is None:
        return at
    early, late = moment(start.early_s), moment(start.late_s)
    return at if early == late else f"{at}, between {early} and {late}"


# -------------------------------------------------------------------------------------- candidates


def _say_candidates(regions: Sequence[RegionVerdict], data_known: bool) -> None:
    columns = [
        Column("REGION", whole=True), Column("CLUSTER", whole=True), Column("VERDICT"),
        Column("FREE", right=True), Column("GPUS", right=True), Column("SCORE", right=True),
        Column("DATA TO BRING", right=True),
    ]  # fmt: skip
    rows: list[Row] = []
    for region in regions:
        rows.append(_region_row(region, data_known))
        rows += [_cluster_row(region, cluster) for cluster in region.clusters]
    say_table(columns, rows, title="Where it could run (a lower score is better)")


def _region_row(region: RegionVerdict, data_known: bool) -> Row:
    from topmast.model.units import format_bytes, format_duration

    scores = [cluster.score for cluster in region.clusters if cluster.score is not None]
    if not region.reachable:
        verdict = Cell(region.barred or "unreachable", "red")
    elif region.barred:
        verdict = Cell(region.barred, "red")
    elif scores:
        verdict = Cell("fits", "green")
    else:
        verdict = Cell("no cluster fits", "yellow")
    data = ("" if region.barred or not region.reachable else "none") if data_known else "unknown"
    if region.data_bytes or region.data_s:
        data = f"{format_bytes(region.data_bytes)} in {format_duration(region.data_s)}"
    return [
        region.region, "(all)", verdict,
        number(sum(cluster.free_gpus for cluster in region.clusters)),
        number(sum(cluster.total_gpus for cluster in region.clusters)),
        _score(min(scores)) if scores else "", data,
    ]  # fmt: skip


def _cluster_row(region: RegionVerdict, cluster: ClusterVerdict) -> Row:
    verdict = Cell("barred", "red") if region.barred else _cluster_verdict(cluster)
    return [
        region.region, cluster.cluster, verdict,
        number(cluster.free_gpus), number(cluster.total_gpus),
        "" if cluster.score is None else _score(cluster.score), "",
    ]  # fmt: skip


def _cluster_verdict(cluster: ClusterVerdict) -> Cell:
    if cluster.score is not None:
        if cluster.victims:
            return Cell(f"fits if {_named(cluster.victims)} would stop", "yellow")
        return Cell("fits", "green")
    counted = _counted(cluster.rejections)
    if cluster.spared:
        counted += f"; running jobs spared: {_counted(cluster.spared)}"
    from topmast.model.reason import Rejection

    by_quota = any(count.reason is Rejection.QUOTA for count in cluster.rejections)
    if not cluster.ever and not by_quota:
        most = cluster.largest_gpus
        reasons = [counted, f"at most {number(most)} GPUs together" if most else ""]
        return Cell(f"can never fit: {', '.join(filter(None, reasons))}".rstrip(": "), "red")
    return Cell(counted or "nothing found", "yellow")


def _counted(counts: Sequence[Count]) -> str:
    """Reasons, each with the number of hosts or jobs."""
    return ", ".join(
        f"{count.reason} {count.count}" + (f" ({count.detail})" if count.detail else "")
        for count in counts
    )


def _named(jobs: Sequence[str]) -> str:
    if len(jobs) <= 3:
        return ", ".join(jobs)
    return f"{jobs[0]}, {jobs[1]} and {plural(len(jobs) - 2, 'other')}"


# ------------------------------------------------------------------------------------------- plans


def _say_plans(every: Sequence[PlanView], reason: str | None) -> None:
    """The best plans side by side, term by term: as many as there is room for."""
    plans = every[:_PLANS_SIDE_BY_SIDE]
    columns = [Column("TERM", whole=True)]
    columns += [
        # The first plan always stays; of the others the last goes first.
        Column(
            f"{clean(plan.region)}/{clean(plan.cluster)}",
            right=True,
            spare=rank and len(plans) - rank,
        )
        for rank, plan in enumerate(plans)
    ]
    terms = list(dict.fromkeys(term for plan in plans for term in plan.terms))
    rows: list[Row] = [["score", *(Cell(_score(plan.score), "bold") for plan in plans)]]
    rows += [
        [f"  {term}", *(_score(plan.terms[term]) if term in plan.terms else "" for plan in plans)]
        for term in terms
    ]
    rows += [
        ["GPU model", *(plan.gpu_model for plan in plans)],
        ["hosts", *(_hosts(plan.hosts) for plan in plans)],
        ["within one", *(plan.level for plan in plans)],
        ["wait for data", *(_wait(plan, reason) for plan in plans)],
        ["over quota", *("yes" if plan.over_quota else "no" for plan in plans)],
        ["jobs stopped", *(str(len(plan.victims)) for plan in plans)],
    ]
    scores = [plan.score for plan in plans]
    # A waiting job's first plan is the queue's own only if it waits for it; the order may tell.
    none = reason is not None and scores == sorted(scores)
    order = "the lowest score first" if none else "the chosen plan first, then the lowest score"
    left_out = say_table(columns, rows, title=f"The plans, term by term ({order})")
    if more := left_out + len(every) - len(plans):
        say(f"{plural(more, 'more plan')}: --json shows all")


def _wait(plan: PlanView, reason: str | None) -> str:
    from topmast.model.units import format_duration

    return "unknown" if reason == _UNKNOWN_DATASET else format_duration(plan.data_s)


def _hosts(hosts: Sequence[str]) -> str:
    return ",".join(hosts) if len(hosts) <= 2 else plural(len(hosts), "host")


def _say_victims(plans: Sequence[PlanView], *, is_placed: bool) -> None:
    columns = [
        Column("PLAN", folds=True), Column("JOB", whole=True), Column("TENANT", folds=True),
        Column("BAND"), Column("LOST GPU-S", right=True),
        Column("RESTART GPU-S", right=True, spare=1), Column("PRICE", right=True),
    ]  # fmt: skip
    rows: list[Row] = [
        [
            f"{plan.region}/{plan.cluster}",
            str(victim.get("job", "")), str(victim.get("tenant", "")), str(victim.get("band", "")),
            _amount(victim.get("lost_gpu_s")), _amount(victim.get("restart_gpu_s")),
            _amount(victim.get("price"), _score),
        ]
        for plan in plans
        for victim in plan.victims
        if not (is_placed and _has_gone(victim))
    ]  # fmt: skip
    if rows:
        say()
        say_table(columns, rows, title="What would have to stop")
    gone = [str(v.get("job", "")) for plan in plans for v in plan.victims if _has_gone(v)]
    if is_placed and gone:
        say()
        say(f"Stopped for it: {', '.join(dict.fromkeys(gone))}")


def _has_gone(victim: Mapping[str, object]) -> bool:
    """Whether a job that had to stop holds nothing any more: what it lost is in its own story."""
    return "lost_gpu_s" not in victim


def _amount(value: object, shown: Callable[[float], str] = "{:.1f}".format) -> str:
    return shown(value) if isinstance(value, int | float) else ""


def _score(value: float) -> str:
    if abs(value) < 0.0005:
        return "0"
    return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
