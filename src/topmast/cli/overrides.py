"""Options that change a job file, or stand for one: `launch --set resources.cpus=4 -- COMMAND`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.afteroptions import AfterOptions, option_of
from topmast.cli.completion import complete_bands, complete_tenants
from topmast.cli.jobsource import COMMAND_LINE, NONE_BEFORE, Job

if TYPE_CHECKING:
    from topmast.model.errors import InvalidInput

_AS_TEXT = re.compile(r"(envs|labels|secrets)\..*|(.*\.)?(run|setup)")
"""Fields that take what is written as it is."""
_INTERPRETERS = re.compile(r"(python[0-9.]*|bash|sh|torchrun|accelerate|srun|env|exec|uv|run)")
_PART = re.compile(r"([^.\[\]]+)|\[([0-9]{1,6})\]")
_FREE = re.compile(r"(envs|labels|secrets)\.(.+)")
"""Fields below which any name may stand."""
_FIELD = re.compile(r"[^.\[\]]+(\.[^.\[\]]+|\[[0-9]{1,6}\])*")
_QUOTE = re.compile(r"""\A(['"])(.*)\1\Z""", re.DOTALL)


@dataclass(frozen=True)
class JobOptions(AfterOptions):
    """What options of `launch` say about a job: they go before its file."""

    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The job's name, instead of the name in the file."),
    ] = None
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The tenant, instead of the tenant in the file.",
            autocompletion=complete_tenants,
        ),
    ] = None
    priority: Annotated[
        str | None,
        typer.Option(
            metavar="BAND",
            help="The priority, instead of the priority in the file.",
            autocompletion=complete_bands,
        ),
    ] = None
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", metavar="MODEL:N", help="The GPUs of each task: H100:8, H100, 2."),
    ] = None
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            "-N",
            "--num-nodes",
            metavar="N",
            help="The number of tasks.",
            callback=values.TASKS,
        ),
    ] = None
    cpus: Annotated[
        str | None, typer.Option("--cpus", metavar="N", help="The CPUs of each task.")
    ] = None
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="The memory of each task: 64GiB.")
    ] = None
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            metavar="TIME",
            help="End it after 12h, say.",
            callback=values.TIME_LIMIT,
        ),
    ] = None
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="The container image of its tasks."),
    ] = None
    workdir: Annotated[
        str | None,
        typer.Option("--workdir", metavar="DIR", help="The folder that is copied to its tasks."),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Set an environment variable; may be repeated.",
            callback=values.ASSIGNMENTS,
        ),
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Add a label; may be repeated.", callback=values.ASSIGNMENTS
        ),
    ] = None
    env_file: Annotated[
        Path | None,
        typer.Option("--env-file", metavar="FILE", help="Set the variables of lines NAME=VALUE."),
    ] = None
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret", metavar="NAME=PLACE",
            help="A variable with a value that only the hosts know: file:/PATH, env:NAME or "
            "kubernetes:SECRET/KEY; NAME alone is env:NAME. May be repeated.",
        ),
    ] = None  # fmt: skip
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Set a field of the job file: resources.accelerators=H100:4; without a value it "
            "is left out. May be repeated.",
            callback=values.ASSIGNMENTS,
        ),
    ] = None

    def changes(self, command: Sequence[str]) -> dict[str, Any]:
        """The new values by field; ``command`` is what the job shall run, if it is not empty.

        Raises InvalidInput, with all that is wrong; ``rest`` has the other fields.
        """
        from topmast.model.errors import Faults

        faults = Faults()
        names = {
            "name": self.name, "tenant": self.tenant, "priority": self.priority,
            "image": self.image, "workdir": self.workdir,
        }  # fmt: skip
        sizes = {
            "resources.accelerators": self.gpus, "resources.cpus": self.cpus,
            "resources.memory": self.memory, "time_limit": self.time_limit,
            "num_nodes": self.nodes,
        }  # fmt: skip
        found: dict[str, Any] = {f: value for f, value in names.items() if value is not None}
        given = {f: text for f, text in sizes.items() if text is not None}
        found |= {f: faults.of(partial(_scalar, text, f)) for f, text in given.items()}
        if dependencies := self.dependencies():
            found["depends_on"] = dependencies
        if command:
            # One word may be a script, as `ssh HOST 'a && b'` takes it; several are one command.
            found["run"] = command[0] if len(command) == 1 else shlex.join(command)
        variables: dict[str, str] = {}
        if self.env_file:
            variables = faults.of(partial(read_env_file, self.env_file)) or {}
        variables |= values.assignments(self.env or [], "--env")
        found |= {f"envs.{name}": value for name, value in variables.items()}
        labels = values.assignments(self.label or [], "--label")
        found |= {f"labels.{name}": value for name, value in labels.items()}
        found |= {f"secrets.{name}": place for name, place in _secrets(self.secret or []).items()}
        for field, text in values.assignments(self.settings or [], "--set").items():
            is_text = _AS_TEXT.fullmatch(field) and text
            found[field] = text if is_text else faults.of(partial(_scalar, text, field))
        faults.refuse({field: value for field, value in found.items() if value is not None})
        return found


def with_changes(
    document: dict[str, Any],
    folder: Path | None,
    changes: Mapping[str, Any],
    before: Mapping[str, int] = NONE_BEFORE,
) -> Job:
    """A document with changes of fields by their dotted names, checked, and its work folder.

    Raises InvalidInput, with all that is wrong; ``rest`` is the same pair without that.
    """
    from topmast.client.documents import sent_document
    from topmast.model.errors import Faults, restated
    from topmast.model.files.jobfile import JobFile, parse_job

    if not changes:
        return document, folder
    faults = Faults()
    for field, value in changes.items():
        faults.of(partial(_put, document, field, value))

    def read() -> JobFile:
        with restated(lambda e: e.at(field=option_of(e.field, e.message, changes))):
            return parse_job(document, where=COMMAND_LINE, tenant_default="", before=before)

    file = faults.rest_of(read)
    if file is None:
        faults.refuse()
        return document, folder
    if "workdir" in changes:
        folder = None if file.workdir is None else Path(file.workdir).expanduser()
        if folder is not None:
            del document["workdir"]
    faults.refuse(rest=(sent_document(file, Path())[0], folder))
    return document, folder


def named_for(command: Sequence[str]) -> str:
    """A name for a job that runs a command: that of its program or script."""
    from topmast.model.files.jobfile import job_name

    words = shlex.split(command[0]) if len(command) == 1 and _is_split(command[0]) else command
    for word in words:
        base = PurePath(word).name
        if word.startswith("-") or "=" in word or _INTERPRETERS.fullmatch(base):
            continue
        return job_name(PurePath(base).stem)
    return job_name(PurePath(words[0]).name if words else "")


def _is_split(text: str) -> bool:
    """Whether a shell could split a text into words."""
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


def _put(document: dict[str, Any], field: str, value: object) -> None:
    """Set a field by its dotted name, or leave it out (None). Raises InvalidInput."""
    free = _FREE.fullmatch(field)
    parts = [match[1] or int(match[2]) for match in _PART.finditer(field)]
    if free:
        parts = [free[1], free[2]]
    elif not _FIELD.fullmatch(field):
        raise _refused(f"{field!r} is not the name of a field")
    place: Any = document
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if isinstance(place, list):
            part = _index(place, part, field)
        elif not isinstance(place, dict) or isinstance(part, int):
            above = ".".join(str(one) for one in parts[:index])
            raise _refused(f"{above} has no field {part!r}")
        if not last:
            if isinstance(place, dict) and place.get(part) is None:
                place[part] = {}
            place = place[part]
        elif value is None and isinstance(place, dict):
            place.pop(part, None)
        else:
            place[part] = value


def _index(items: list[Any], part: object, field: str) -> int:
    """Where in a list a part is, by its number or its name of a group. Raises InvalidInput."""
    for index, item in enumerate(items):
        if part == index or (isinstance(item, dict) and item.get("name") == part):
            return index
    raise _refused(f"{field}: there is no {part!r}")


def _refused(message: str) -> InvalidInput:
    from topmast.model.errors import InvalidInput

    return InvalidInput(message, field="--set")


def _scalar(text: str, field: str) -> object:
    """The value that a text stands for in a job file; None if it is empty. Raises InvalidInput."""
    from topmast.cli.jobsource import COMMAND_LINE
    from topmast.model.errors import InvalidInput
    from topmast.model.files.source import JOB_LIMITS, parse_text, plain_of

    if not text.strip():
        return None
    try:
        return plain_of(parse_text(text.encode(), COMMAND_LINE, JOB_LIMITS))
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field=field, where=COMMAND_LINE, remedy=error.remedy
        ) from None


def _secrets(texts: Sequence[str]) -> dict[str, str]:
    """References by variable; one without a place is a variable of the hosts."""
    return values.assignments([t if "=" in t else f"{t}=env:{t}" for t in texts], "--secret")


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a file with lines NAME=VALUE, quoted or not. Raises InvalidInput."""
    from topmast.model.errors import Faults, InvalidInput
    from topmast.model.files.source import JOB_LIMITS, read_bytes

    where, faults = str(path), Faults()
    try:
        text = read_bytes(path, where, JOB_LIMITS).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("this is not UTF-8 text", where=where) from None
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ").strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.strip():
            at, remedy = f"{where}:{number}", "or a comment, after #"
            faults.take(InvalidInput("is not NAME=VALUE", where=at, remedy=remedy))
            continue
        quoted = _QUOTE.match(value.strip())
        found[name.strip()] = quoted[2] if quoted else value.strip().partition(" #")[0].rstrip()
    faults.refuse()
    return found
