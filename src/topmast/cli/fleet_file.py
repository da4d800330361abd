"""`topmast fleet`: the fleet of a running server as a file: shown, compared and changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topmast.cli import discover
from topmast.cli.command import Session, command, group
from topmast.cli.output import Column, note, say, say_block, say_table, warn
from topmast.cli.text import plural

if TYPE_CHECKING:
    from topmast.model.act_views import FleetDiff, FleetView
    from topmast.model.errors import InvalidInput

ONLY_TENANTS = "`topmast tenants apply FILE` applies the tenants of a file alone"
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A fleet file.")]
TenantsOption = Annotated[
    bool,
    typer.Option("--tenants", help="Only the tenants of the file; the rest stays as it is."),
]

BaseOption = Annotated[
    str | None,
    typer.Option(
        "--base", metavar="VERSION",
        help="Refuse it unless this is still the version of the fleet; else the version that "
        "`fleet show` wrote into the file.",
    ),
]  # fmt: skip
ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Why; the audit log keeps it."),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Do nothing: show what would change, or why it is refused."),
]


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    made = group(
        app, "fleet",
        example="topmast fleet show > fleet.yaml\ntopmast fleet apply fleet.yaml --dry-run",
    )  # fmt: skip
    command(made, "show", example="topmast fleet show > fleet.yaml")(show)
    command(made, "diff", example="topmast fleet diff fleet.yaml")(diff)
    command(
        made, "apply", example="topmast fleet apply fleet.yaml --reason 'ten more hosts'\n"
        "topmast fleet apply quotas.yaml --tenants --dry-run",
    )(apply)  # fmt: skip
    discover.add(made)


def show(session: Session) -> None:
    """The fleet as a fleet file. Its version is written to stderr."""
    with session.client() as client:
        found = client.fleet()
    session.show(found, lambda: _say_file(found))


def _say_file(found: FleetView) -> None:
    from topmast.model.files.fleetdump import fleet_text

    note(f"version {found.version}")
    say_block(fleet_text(found.fleet, found.version))


def diff(session: Session, file: FileArgument, tenants: TenantsOption = False) -> None:
    """What a fleet file would change, and which jobs would have to leave."""
    document = _document(session, file, tenants)
    with session.client() as client, _within(file):
        found = client.fleet_diff(**document)
    if _base_in(file, found) != found.version:
        warn("the fleet is another since this file was shown: it would undo what others changed")
    session.show(found, lambda: _say(found))


def apply(
    session: Session,
    file: FileArgument,
    tenants: TenantsOption = False,
    base: BaseOption = None,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Change the fleet while the server runs: regions, clusters, hosts, quotas, links.

    A host that leaves while jobs are there is drained; a cluster, region or tenant must be empty.
    Another GPU model, and fewer GPUs, CPUs or memory of a host that stays, and other options of an
    engine, take a start (`topmast up --fleet FILE`). The server keeps the change: the next start
    without --fleet has it.
    """
    document = _document(session, file, tenants)
    with session.client() as client, _within(file):
        found = client.fleet_diff(**document)
        version, why = _base_in(file, found) if base is None else base, reason or ""
        found = client.fleet_apply(**document, base=version, reason=why, dry_run=dry_run)
    if dry_run:
        note("nothing was done")
    session.show(found, lambda: _say(found, applied=not dry_run))


def _base_in(file: Path, found: FleetDiff) -> str:
    """The version of the fleet that a file was made from: the one that it is compared with, unless
    it says another and would change something.
    """
    from topmast.model.files.fleetdump import version_in
    from topmast.model.files.source import FLEET_LIMITS, read_bytes

    said = version_in(read_bytes(file, str(file), FLEET_LIMITS)) if found.changes else None
    return said or found.version


@contextmanager
def _within(file: Path) -> Iterator[None]:
    """Name the line of the file in what a server finds wrong with its contents."""
    from topmast.model.errors import restated
    from topmast.model.files.every import at_lines
    from topmast.model.files.source import FLEET_LIMITS, read_bytes

    placed = at_lines(read_bytes(file, str(file), FLEET_LIMITS), str(file), FLEET_LIMITS)
    parts = ("regions", "tenants")
    with restated(lambda error: placed(error) if error.field.startswith(parts) else error):
        yield


def _document(session: Session, file: Path, only_tenants: bool) -> dict[str, Any]:
    """The file as it is sent; the server reads what it means.

    Raises InvalidInput, with what the server finds wrong with the parts that can be read.
    """
    from topmast.model.errors import InvalidInput, refuse_all
    from topmast.model.files.fleetdump import dump_fleet
    from topmast.model.files.fleetfile import read_fleet
    from topmast.model.files.source import FLEET_LIMITS, Kind, plain_of, read_file

    if not only_tenants:
        try:
            return {"fleet": dump_fleet(read_fleet(file))}
        except InvalidInput as error:
            found = [error, *error.more]
            if (error.field, error.message) == ("regions", "missing"):
                found[0] = InvalidInput(
                    "missing", field="regions", where=error.where, remedy=ONLY_TENANTS
                )
            refuse_all([*found, *_told_by_server(session, file, error)])
    root = read_file(file, FLEET_LIMITS)
    tenants = plain_of(root).get("tenants") if root.kind is Kind.MAPPING else None
    if not isinstance(tenants, dict):
        raise InvalidInput("has no tenants", where=str(file), remedy="add `tenants:`")
    return {"tenants": tenants}


def _told_by_server(session: Session, file: Path, error: InvalidInput) -> Sequence[InvalidInput]:
    """What a server finds wrong with a file beside what is told; nothing if none is near."""
    from topmast.cli.jobcheck import PATIENCE_S
    from topmast.model.errors import InvalidInput, TopmastError
    from topmast.model.files.fleetdump import dump_fleet
    from topmast.model.fleet import Fleet

    if isinstance(error.rest, Fleet):
        told = {one.field for one in (error, *error.more)}
        try:
            with session.client(PATIENCE_S) as client, _within(file):
                client.fleet_diff(fleet=dump_fleet(error.rest))
        except InvalidInput as other:
            return [one for one in (other, *other.more) if one.field not in told]
        except TopmastError:
            pass  # the file is at fault all the same
    return ()


def _say(found: FleetDiff, *, applied: bool = False) -> None:
    for warning in found.warnings:
        warn(warning)
    if not found.changes:
        note("nothing differs")
        return
    columns = [
        Column("WHAT", whole=True), Column("CHANGE", folds=True), Column("TAKES"),
        Column("JOBS THAT LEAVE"),
    ]  # fmt: skip
    rows = [
        [
            change.what, change.change, "effect at once" if change.live else "a start with --fleet",
            ", ".join(change.jobs[:8]) + (", ..." if len(change.jobs) > 8 else ""),
        ]
        for change in found.changes
    ]  # fmt: skip
    say_table(columns, rows)
    count = plural(len(found.changes), "difference")
    if applied:
        say(f"{count} applied; the fleet's version is {found.version} now")
    else:
        say(f"{count}; the fleet's version is {found.version}")
