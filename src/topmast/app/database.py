"""`topmast db`, `backup` and `restore`: the database of a state folder, without its server."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from topmast.adapters.clock import wall_s
from topmast.adapters.store import (
    JOURNAL,
    STORE,
    JournalFailure,
    Manifest,
    Report,
    checked,
    copy_database,
    digest_of,
    examined,
    existing_store,
    files_of,
    is_database,
    open_journal,
    require_free,
    restore,
    upgrade,
    write_backup,
)
from topmast.app.claim import ENGINES, ID
from topmast.app.folder import QUEUE_ROLE, ROLE, leave, own_folder
from topmast.cli.rootoptions import StoreOptions
from topmast.model.errors import Conflict, InvalidInput, NotFound, TopmastError
from topmast.model.files.source import kind_of_file

WORKDIRS = "workdirs"
COPIED = f"{JOURNAL}.copied"
"""What the journal of a state folder is called when a copy of it is used instead."""


def run(verb: str, options: StoreOptions) -> dict[str, Any]:
    """Do what a command of the database asks for; what came of it, as a document."""
    return _VERBS[verb](options)


def _check(options: StoreOptions) -> dict[str, Any]:
    """Everything that can be wrong, and whether the state can be rebuilt."""
    target = _target(options)
    report = examined(target)
    faults = [*report.faults]
    faults += [f"the work folder {name} is damaged" for name in Files(options.state).damaged()]
    jobs: dict[str, int] = {}
    if report.current and not report.faults:
        try:
            jobs = _rebuilt(target)
        except TopmastError as error:
            faults.append(f"the state cannot be rebuilt: {error}")
    return {"database": str(target), **_document(report), "jobs": jobs, "faults": faults}


def _upgrade(options: StoreOptions) -> dict[str, Any]:
    target = _target(options)
    before, after = upgrade(target)
    return {"database": str(target), "before": before, "after": after}


def _copy(options: StoreOptions) -> dict[str, Any]:
    """Copy the database of a state folder, and let the folder use the copy if asked to."""
    assert options.to is not None
    source, to = _target(options), _place(options.to)
    if options.switch and options.store is not None:
        raise InvalidInput("the folder has a database of its own", field="--switch",
                           remedy="leave out --store")  # fmt: skip
    if options.switch and not is_database(to) and to != options.state / JOURNAL:
        raise InvalidInput("a folder uses a database, or its own file", field="--switch",
                           remedy=f"--to {options.state / JOURNAL}")  # fmt: skip
    if to == (source.absolute() if isinstance(source, Path) else source):
        raise InvalidInput("the copy is the database itself", field="--to",
                           remedy="name an empty database")  # fmt: skip
    files = Files(options.state)
    sums = copy_database(source, to, files)
    if options.switch:
        _switch(options.state, to)
    return {
        "database": str(source), "copy": str(to), "switched": options.switch,
        "rows": {name: one.rows for name, one in sums.items()}, "left_out": files.left_out,
    }  # fmt: skip


def _switch(state: Path, to: str | Path) -> None:
    """From now on the server of the folder uses another database."""
    store = state / STORE
    if is_database(to):
        store.write_text(f"{to}\n", encoding="utf-8")
        if (state / JOURNAL).exists():
            (state / JOURNAL).rename(state / COPIED)
    else:
        store.unlink(missing_ok=True)


def _backup(options: StoreOptions) -> dict[str, Any]:
    target, file = _target(options), _file(options)
    role = options.state / ROLE
    files = Files(options.state)
    manifest = write_backup(
        target, file, files, wall_s(), role.read_text("utf-8").strip() if role.exists() else ""
    )
    return {"backup": str(file), **_told(manifest), "left_out": files.left_out}


def _restore(options: StoreOptions) -> dict[str, Any]:
    """Restore into a new state folder; or into one that goes away again, as a drill."""
    file = _file(options)
    _require_file(file)
    if options.verify:
        room = file.parent if os.access(file.parent, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix=".verify-", dir=room) as folder:
            manifest, jobs = _restored(file, Path(folder) / JOURNAL)
        return {"backup": str(file), **_told(manifest), "jobs": jobs}
    state, store = options.state, checked(options.store) if options.store else None
    made = not state.exists()
    if not made:
        _require_new(state)
    own_folder(state)
    try:
        manifest, jobs = _restore_into(state, file, store)
    except BaseException:
        leave(state, made)
        raise
    return {"backup": str(file), "state": str(state), **_told(manifest), "jobs": jobs}


def _restore_into(state: Path, file: Path, store: str | None) -> tuple[Manifest, dict[str, int]]:
    """Restore into an empty state folder; it uses the database ``store`` if that is given.

    Nothing of it is in its place before all of it is there.
    """
    from topmast.service.blobs import Blobs

    with tempfile.TemporaryDirectory(prefix=".restore-", dir=state) as name:
        folder = Path(name)
        manifest, jobs = _restored(file, folder / JOURNAL)
        blobs = Blobs(folder / WORKDIRS)
        for digest, data in files_of(file):
            blobs.fetch(digest, partial(bytes, data))  # uploads were judged before
        if store is not None:
            copy_database(folder / JOURNAL, store, Files(folder))
            (folder / STORE).touch(0o600)  # it may have a password
            (folder / STORE).write_text(f"{store}\n", encoding="utf-8")
        (folder / ROLE).touch(0o600)
        (folder / ROLE).write_text(f"{manifest.role or QUEUE_ROLE}\n", encoding="utf-8")
        for part in (WORKDIRS, ROLE, JOURNAL if store is None else STORE):
            (folder / part).rename(state / part)
    return manifest, jobs


def _restored(file: Path, part: Path) -> tuple[Manifest, dict[str, int]]:
    """A backup made into a database that a server could start on; and the jobs in it."""
    manifest = restore(file, part)
    faults = examined(part).faults
    if faults:
        raise JournalFailure(f"{file}: what was restored is damaged: {'; '.join(faults)}")
    return manifest, _rebuilt(part)


def _require_file(file: Path) -> None:
    """Raise NotFound for what cannot be a backup: it is no file that can be read twice."""
    try:
        mode = file.stat().st_mode
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        why = "no such file" if missing else f"cannot be read: {error.strerror}"
        raise NotFound(f"{file}: {why}") from None
    if not stat.S_ISREG(mode):
        raise NotFound(f"{file}: {kind_of_file(mode)}; name the file of a backup")


def _require_new(state: Path) -> None:
    """Nothing that is there is written over, or becomes a part of what is restored.

    What engines know of tasks is welcome: see the guide about backups.
    """
    require_free(state / JOURNAL)
    for name in (JOURNAL, STORE):
        if (state / name).exists():
            raise Conflict(f"{state} has a journal already ({name}): name a new folder by --state")
    found = sorted(file.name for file in state.iterdir() if file.name not in (ENGINES, ID))
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise Conflict(f"{state} is not empty ({found[0]}{more}): name a new folder by --state")


def _rebuilt(target: str | Path) -> dict[str, int]:
    """How many jobs are in each state, by the journal."""
    # Imported only now: what is refused is refused before, at once.
    from topmast.policies.options import Profile
    from topmast.runtime.machines import Machines
    from topmast.runtime.recovery import rebuild

    journal = open_journal(target, read_only=True)
    try:
        machines = Machines(Profile("restore"))
        rebuild(machines, journal)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise JournalFailure(f"a record cannot be read: {error}") from error
    finally:
        journal.close()
    counts: dict[str, int] = {}
    for record in machines.queue.jobs.records.values():
        counts[record.state.value] = counts.get(record.state.value, 0) + 1
    return counts


class Files:
    """The work folders of a state folder, with their digests, one in memory at a time."""

    def __init__(self, state: Path) -> None:
        self.left_out: list[str] = []
        """Those with other content than their names say."""
        self._folder = state / WORKDIRS

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        for file in sorted(self._folder.glob("?" * 64)):
            digest, data = f"sha256:{file.name}", file.read_bytes()
            if digest_of(data) == digest:
                yield digest, data
            else:
                self.left_out.append(digest)

    def damaged(self) -> list[str]:
        """Those that would be left out."""
        for _ in self:
            pass
        return self.left_out


def _target(options: StoreOptions) -> str | Path:
    """The database that is meant."""
    return existing_store(options.state) if options.store is None else checked(options.store)


def _place(text: str) -> str | Path:
    """Where a copy is made: a database, or a file in a folder that is there."""
    if "://" in text:
        return checked(text, "--to")
    place = Path(text).expanduser().absolute()
    if not place.parent.is_dir():
        raise InvalidInput(
            f"there is no folder {place.parent}", field="--to",
            remedy="name a file in a folder that is there, or make it first",
        )  # fmt: skip
    return place


def _file(options: StoreOptions) -> Path:
    assert options.file is not None
    return options.file.expanduser().absolute()


def _document(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(report)
    return {name: value for name, value in found.items() if name != "faults"}


def _told(manifest: Manifest) -> dict[str, Any]:
    return {
        "made_at_s": manifest.made_at_s, "source": manifest.source, "version": manifest.version,
        "schema": manifest.schema,
        "rows": {name: one.rows for name, one in manifest.sums.items()},
        "work_folders": len(manifest.files),
    }  # fmt: skip


_VERBS: dict[str, Callable[[StoreOptions], dict[str, Any]]] = {
    "check": _check,
    "upgrade": _upgrade,
    "copy": _copy,
    "backup": _backup,
    "restore": _restore,
}
