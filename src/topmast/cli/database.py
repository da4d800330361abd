"""`db`, `backup` and `restore`: the database of a server. The root does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli.command import FOLDER, Session, command, group
from topmast.cli.documents import say_document
from topmast.cli.output import note, say
from topmast.cli.rootoptions import StoreOptions
from topmast.cli.text import moment

Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="The database in PostgreSQL, else the one of the state folder."
    ),
]
Backup = Annotated[Path, typer.Argument(metavar="BACKUP", help="The file of the backup.")]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    db = group(
        app, "db",
        example="topmast db check",
    )  # fmt: skip
    _add_check(db)
    _add_upgrade(db)
    _add_copy(db)
    _add_backup(app)
    _add_restore(app)


def _add_check(app: typer.Typer) -> None:
    @command(
        app, "check", asks=FOLDER,
        example="topmast db check\ntopmast db check --store postgresql://db1/topmast --json",
    )  # fmt: skip
    def check(session: Session, store: Store = None) -> int:
        """Read the whole database and rebuild the state from it, while its server runs or not."""
        document = _run(session, "check", store=store)
        session.show(document, lambda: _say_state(document))
        for fault in document["faults"]:
            note(f"topmast: {document['database']}: {fault}")
        if not document["current"]:
            note("the database is of an older version: see `topmast db upgrade`")
        return 1 if document["faults"] else 0


def _add_upgrade(app: typer.Typer) -> None:
    @command(app, "upgrade", asks=FOLDER, example="topmast backup before.backup\n"
             "topmast db upgrade")  # fmt: skip
    def upgrade(session: Session, store: Store = None) -> None:
        """Bring the database of a stopped server to the version of this program.

        A start of the server does the same.
        """
        document = _run(session, "upgrade", store=store)
        session.show(document, lambda: say_document(document))


def _add_copy(app: typer.Typer) -> None:
    @command(
        app, "copy", asks=FOLDER,
        example="topmast db copy --to postgresql://topmast@db1/topmast --switch\n"
        "topmast db copy --to other.sqlite",
    )  # fmt: skip
    def copy(
        session: Session,
        to: Annotated[str, typer.Option(metavar="URL|FILE", help="An empty database.")],
        store: Store = None,
        switch: Annotated[
            bool, typer.Option("--switch", help="Let the server of the folder use the copy.")
        ] = False,
    ) -> None:
        """Copy the database of a stopped server into another one, and compare all rows."""
        document = _run(session, "copy", store=store, to=to, switch=switch)
        session.show(document, lambda: say_document(document))


def _add_backup(app: typer.Typer) -> None:
    @command(
        app, "backup", asks=FOLDER,
        example="topmast backup topmast.backup\n"
        "topmast backup topmast.backup --store postgresql://db1/topmast",
    )  # fmt: skip
    def backup(session: Session, file: Backup, store: Store = None) -> None:
        """Write a backup of the database and the work folders, while the server runs or not."""
        document = _run(session, "backup", file=file, store=store)
        session.show(document, lambda: _say_backup(document))


def _add_restore(app: typer.Typer) -> None:
    @command(
        app, "restore", asks=FOLDER,
        example="topmast restore topmast.backup --verify\n"
        "topmast restore topmast.backup --state ./restored",
    )  # fmt: skip
    def restore(
        session: Session,
        file: Backup,
        store: Annotated[
            str | None,
            typer.Option(metavar="URL", help="An empty database in PostgreSQL to restore into."),
        ] = None,
        verify: Annotated[
            bool, typer.Option("--verify", help="Prove that it can be restored; change nothing.")
        ] = False,
    ) -> None:
        """Restore a backup into a new state folder.

        A folder that holds anything is refused.
        """
        if session.state is None and not verify:
            note(f"restores into the usual state folder, {session.state_folder()}")
        document = _run(session, "restore", file=file, store=store, verify=verify)
        session.show(document, lambda: _say_backup(document))


def _say_backup(document: dict[str, Any]) -> None:
    plain = {"made_at" if name == "made_at_s" else name: v for name, v in document.items()}
    _say_state({**plain, "made_at": moment(plain.get("made_at"))})


def _say_state(document: dict[str, Any]) -> None:
    """The document; and of jobs by state that these are not all."""
    from topmast.model.states import TERMINAL

    say_document(document)
    jobs, ended = document.get("jobs") or {}, document.get("rows", {}).get("finished_jobs", 0)
    if jobs and ended > sum(jobs.get(state, 0) for state in TERMINAL):
        say(
            "jobs: what a server keeps in memory, of those that have ended the newest alone; the "
            "records of all are there, and finished_jobs counts them"
        )


def _run(session: Session, verb: str, **given: Any) -> dict[str, Any]:
    return session.root.database(verb, StoreOptions(state=session.state_folder(), **given))
