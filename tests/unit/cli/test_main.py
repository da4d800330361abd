"""What all commands have in common: help, one JSON document, one line for an error, exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from tests.unit.cli.conftest import REPO, Call, Screen, program
from tests.unit.cli.program import ROOT, command_line
from tests.unit.client.fake import Answer, FakeServer, page, problem, running
from topmast import __version__
from topmast.adapters.breakglass import break_glass
from topmast.app.main import break_glass as of_the_app
from topmast.cli import main
from topmast.cli.commands import COMMANDS
from topmast.cli.groups import read_simply
from topmast.cli.main import declared
from topmast.cli.text import clean
from topmast.model.errors import NotFound
from topmast.model.views import Problem


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command there is."""
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


WHOLE = command_line()
ALL = [path for path in commands(WHOLE) if path]
GROUPS = [
    (), ("accounts",), ("bench",), ("db",), ("fleet",), ("fleet", "discover"), ("import",),
    ("notify",), ("plan",), ("roles",), ("tokens",), ("traces",),
]  # fmt: skip
"""Commands that only have others."""


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help(path: tuple[str, ...], call: Call) -> None:
    """It shows an example of the command, and that there is --json, in 80 columns."""
    called = call(*path, "--help")
    assert called.code == 0
    assert called.err == ""
    assert f"  $ topmast {' '.join(path)}" in called.out or "$(topmast completion" in called.out
    assert path in GROUPS or "--json" in called.out
    assert [line for line in called.out.splitlines() if len(line) > 80] == []


def test_help_begins_with_what_is_there(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what a server needs it names a server that runs, and how to have one."""
    assert "Start here:\n    $ topmast demo\n" in call("--help").out
    monkeypatch.setitem(sys.modules, "structlog", None)
    said = call("--help").out
    assert "Start here:\n    $ export TOPMAST_SERVER=URL\n    $ topmast login\n" in said
    assert "$ pip install 'topmast[server]'" in said
    assert "$ topmast demo" not in said


def test_help_lists_every_command(call: Call) -> None:
    """Nothing is cut short, whatever the width; without a command there is the same help."""
    called = call("--help")
    assert called == call()
    for path in ALL:
        if len(path) == 1:
            assert f"\n  {path[0]} " in called.out
    assert "..." not in called.out.split("Jobs:")[1]


def test_the_version(call: Call) -> None:
    """`--version` says it."""
    assert call("--version").out == f"topmast {__version__}\n"
    assert call("--version", "queue") == call("--version")


HEAVY = [
    "email", "httpx", "importlib.metadata", "importlib.resources", "msgspec", "rich.table",
    "topmast.client", "topmast.model.files", "topmast.model.job", "yaml",
    *sorted({f"topmast.cli.{listed.module}" for listed in COMMANDS.values()}),
]  # fmt: skip
"""Not for every call: libraries, and the modules of commands."""


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        ("--help", []),
        ("", []),
        ("--version", []),
        ("queu", []),
        ("launch --help", ["completion", "explain", "jobs", "launch"]),
        ("queue --help", ["completion", "jobs"]),
        ("--json --state x queue --help", ["completion", "jobs"]),
        ("fleet discover --help", ["fleet_file"]),
    ],
)
def test_help_imports_little(arguments: str, own: list[str]) -> None:
    """What only some commands need is imported when they run."""
    script = (
        "import sys; from topmast.cli import Root, main\n"
        f"main(Root(*[None] * 8), {arguments.split()!r})\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert run.stderr.splitlines()[-1] == str([f"topmast.cli.{name}" for name in own])


UNUSED = ["click", "pydantic", "pygments", "rich", "yaml"]


@pytest.mark.parametrize("arguments", ["queue", "status j1", "cancel j1 j2", "--version"])
def test_a_call_imports_no_more_than_the_client(arguments: str) -> None:
    """Libraries that read files and options, or draw tables, take longer than the rest."""
    script = (
        "import sys; from topmast.cli import Root, main\n"
        f"main(Root(*[None] * 8), {arguments.split()!r})\n"
        f"print(sorted(set({UNUSED!r}) & set(sys.modules)), file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert run.stderr.splitlines()[-1] == "[]"


def outcome(parameter: Any, value: object) -> object:
    """What a parameter makes of a value, or the error."""
    try:
        found = parameter.process_value(typer.Context(WHOLE), value)
        return list(found) if isinstance(found, tuple) else found
    except typer.BadParameter as error:
        return error.format_message()


def test_values_are_the_same_with_and_without_a_library() -> None:
    """Of every option and argument: what a command line can bring, and what stands for nothing."""
    values = (None, "7", "x", str(REPO), str(REPO / "LICENSE"), ["a"], ["a", "b"], ())
    seen = 0
    whole = command_line()
    for path in ALL:
        command = whole
        for word in path:
            command = command.commands[word]
        for parameter in command.params:
            given = [value for value in (*values, parameter.default) if not callable(value)]
            wanted = [outcome(parameter, value) for value in given]
            faults: list[typer.TyperException] = []
            read_simply([parameter], faults)
            found = []
            for value in given:
                faults.clear()
                taken = outcome(parameter, value)
                # The option is named once it is known.
                found.append(
                    re.sub(" for [^:]*:", ":", faults[0].format_message()) if faults else taken
                )
            wanted = [
                re.sub(" for [^:]*:", ":", one) if isinstance(one, str) else one for one in wanted
            ]
            assert found == wanted, parameter.opts
            seen += 1
    assert seen > 500


# --------------------------------------------------------------------------- the list of commands

MODULES = sorted({listed.module for listed in COMMANDS.values()})


@pytest.mark.parametrize("module", MODULES)
def test_the_list_has_what_a_module_adds(module: str) -> None:
    """All of it, and nothing else."""
    app = typer.Typer()
    import_module(f"topmast.cli.{module}").add(app)
    added = {info.name for info in app.registered_commands}
    added |= {info.name for info in app.registered_groups}
    assert added == {name for name, listed in COMMANDS.items() if listed.module == module}


def test_the_list_has_every_module_with_commands() -> None:
    """Or one of the list adds them to its group."""
    sources = {path.stem: path.read_text() for path in (REPO / "src/topmast/cli").glob("*.py")}
    listed = "".join(sources[module] for module in MODULES)
    for name, source in sources.items():
        assert name in MODULES or "\ndef add(" not in source or f"    {name}.add(" in listed, name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_has_the_first_sentence_of_the_help(name: str) -> None:
    """As the help at the top would show it, if it asked the command."""
    assert declared(name).get_short_help_str(1000) == COMMANDS[name].said


# ---------------------------------------------------------------------------------------- mistakes


@dataclass(frozen=True)
class Mistake:
    story: str
    arguments: list[str]
    want: str


MISTAKES = [
    Mistake("no such command", ["queu"], "no command 'queu'; did you mean 'queue'?"),
    Mistake(
        "a command of another tool",
        ["sbatch", "x.sh"],
        "no command 'sbatch'; here it is: topmast launch",
    ),
    Mistake("a list of jobs", ["ps"], "no command 'ps'; here it is: topmast queue"),
    Mistake("the opposite of a verb", ["undrain", "h"], "here it is: topmast uncordon HOST"),
    Mistake("a way to stop", ["shutdown"], "no command 'shutdown'; here it is: topmast down"),
    Mistake("one job, by the name of others", ["jobs", "j1"], "for one: topmast status j1"),
    Mistake(
        "one host",
        ["hosts", "h0"],
        "hosts takes no 'h0'; for one: topmast hosts --selector host=h0",
    ),
    Mistake("one host, elsewhere", ["nodes", "h0"], "for one: topmast hosts --selector host=h0"),
    Mistake(
        "one cluster",
        ["clusters", "east-1"],
        "no command 'east-1'; for one: topmast clusters --selector cluster=east-1",
    ),
    Mistake("one tenant", ["tenants", "vision"], "for one: topmast queue --tenant vision"),
    Mistake("a variable that is not set", ["queue", ""], "queue takes no '' (see: topmast queue"),
    Mistake(
        "a job of the queue", ["queue", "j1"], "queue takes no 'j1'; for one: topmast status j1"
    ),
    Mistake(
        "three where one is",
        ["status", "j1", "j2", "j3"],
        "status takes no 'j2 j3'; for one: topmast status j2 (see: topmast status",
    ),
    Mistake(
        "what a shell would read", ["hosts", "$(x)"], "host='$(x)' (see: topmast hosts --help)"
    ),
    Mistake("no command at all", ["eventually"], "no command 'eventually' (see: topmast --help)"),
    Mistake(
        "no such command of a group", ["datasets", "ad"], "no command 'ad'; did you mean 'add'?"
    ),
    Mistake(
        "no such option", ["queue", "--frob"], "no option '--frob' (see: topmast queue --help)"
    ),
    Mistake(
        "no such letter", ["tenants", "-l", "x=y"], "no option '-l' (see: topmast tenants --help)"
    ),
    Mistake("an option with a slip", ["queue", "--tennant", "x"], "did you mean '--tenant'?"),
    Mistake(
        "an option of others that is done otherwise",
        ["queue", "--user", "bob"],
        "no option '--user'; here it is: --selector user=NAME (see",
    ),
    Mistake("the end of an output", ["logs", "j1", "--tail"], "topmast logs JOB | tail -n LINES"),
    Mistake("a list that a group is", ["datasets", "list"], "here it is: topmast datasets (see"),
    Mistake("a scheduler", ["import", "slurm", "x"], "here it is: topmast import sbatch FILE"),
    Mistake(
        "a value without its option",
        ["tenants", "quota", "vision", "H100=32"],
        "quota takes no 'H100=32'; here it is: --gpus H100=32 (see",
    ),
    Mistake("no value at all", ["tenants", "quota", "vision", "nlp"], "quota takes no 'nlp' (see"),
    Mistake("an option of others", ["cancel", "--name", "x"], "no option '--name' (see"),
    Mistake("none of these", ["usage", "--by", "label"], "'--by': 'label' is not one of 'tenant',"),
    Mistake("no argument", ["status"], "Missing argument 'JOB'. (see: topmast status --help)"),
    Mistake("an argument too many", ["explain", "j1", "j2"], "j2"),
    Mistake("no number", ["queue", "--limit", "many"], "wanted a whole number (see"),
    Mistake("too small a number", ["queue", "--limit", "-1"], "must be 0 or more (see"),
    Mistake("no time", ["usage", "--since", "yesterday-ish"], "'yesterday-ish' is not a time"),
    Mistake("no duration", ["wait", "j1", "--timeout", "soon"], "'soon' is not a duration"),
    Mistake("no such key", ["usage", "--by", "shoe-size"], "shoe-size"),
    Mistake("no file", ["launch", "missing.yaml"], "missing.yaml: no such file"),
    Mistake("no pair", ["launch", "j.yaml", "--env", "LR"], "'LR' is not NAME=VALUE"),
    Mistake("no pair to set", ["up", "--set", "=1"], "'=1' is not NAME=VALUE"),
    Mistake(
        "open to the world", ["up", "--host", "0.0.0.0"], "only loopback addresses are allowed"
    ),
    Mistake("no port", ["up", "--port", "99999"], "must be at most 65535"),
    Mistake("too long", ["accounts", "break-glass", "--for", "3d"], "'--for'"),
    Mistake(
        "a placer makes no forecasts",
        [
            "up",
            "--role",
            "placer",
            "--region",
            "r",
            "--queue",
            "http://q",
            "--set",
            "sim.startup_s=1",
        ],
        "--set sim.KEY is an option of the queue, which makes the forecasts",
    ),
    Mistake(
        "two placers of a region",
        ["up", "--role", "queue", "--placer", "east=http://a", "--placer", "east=http://b"],
        "'--placer': east is given twice, as 'http://a' and as 'http://b': leave out one (see",
    ),
    Mistake(
        "two values of a setting",
        ["up", "--set", "backoff_s=1", "--set", "backoff_s=2"],
        "'--set': backoff_s is given twice, as '1' and as '2': leave out one",
    ),
    Mistake(
        "a setting by two options",
        ["up", "--set", "slow.plan_data_every_s=60", "--plan-data-every", "2m"],
        "'--plan-data-every': slow.plan_data_every_s is given twice, as '60' and as '120.0'",
    ),
    Mistake(
        "two values of a variable",
        ["launch", "--env", "LR=1", "--env", "LR=2", "--", "true"],
        "'--env': LR is given twice, as '1' and as '2': leave out one",
    ),
    Mistake(
        "two values of a label",
        ["launch", "--label", "a=x", "--label", "a=y", "--", "true"],
        "'--label': a is given twice",
    ),
    Mistake(
        "two places of a secret",
        ["launch", "--secret", "KEY", "--secret", "KEY=file:/k", "--", "true"],
        "'--secret': KEY is given twice, as 'env:KEY' and as 'file:/k'",
    ),
    Mistake(
        "two quotas of a model",
        ["tenants", "quota", "v", "--gpus", "H100=1", "--gpus", "H100=2", "--for", "1h"],
        "'--gpus': H100 is given twice",
    ),
    Mistake(
        "two numbers of hosts",
        ["whatif", "--add-hosts", "east-1:1", "--add-hosts", "east-1:2"],
        "'--add-hosts': east-1 is given twice, as 1 and as 2",
    ),
    Mistake(
        "two other quotas",
        ["whatif", "--quota", "v:H100=1", "--quota", "v:H100=2"],
        "'--quota': v:H100 is given twice, as 1 and as 2",
    ),
    Mistake(
        "two changes of a job",
        ["whatif", "--job", "j7:priority=high", "--job", "j7:priority=low"],
        "'--job': priority of j7 is given twice, as 'high' and as 'low'",
    ),
    Mistake(
        "two accounts on the hosts",
        ["fleet", "discover", "ssh", "h", "--user", "ann", "--set", "user=bob"],
        "'--user': user is given twice, as 'bob' and as 'ann'",
    ),
    Mistake(
        "two contexts",
        ["fleet", "discover", "kubernetes", "--context", "a", "--set", "context=b"],
        "'--context': context is given twice",
    ),
    Mistake("no such month", ["up", "--keep-months", "30000"], "must be at most 1200 (see"),
    Mistake("no address", ["queue", "--server", "a b"], "'a b' is not the address of a server"),
    Mistake(
        "no folder of a server", ["queue", "--state", str(REPO / "LICENSE")], "is not a folder"
    ),
    Mistake("no folder for a server", ["up", "--state", str(REPO / "LICENSE")], "is not a folder"),
    Mistake("the option is named", ["launch", "j.yaml", "--env", "LR"], "'--env'"),
    Mistake("no shell", ["completion", "csh"], "csh"),
    Mistake("no jobs", ["bench", "submit", "--jobs", "0"], "--jobs"),
    Mistake("control characters", ["\x1b[31m\nqueue"], "\\x1b[31m"),
]


@pytest.mark.parametrize("json_too", [[], ["--json"]], ids=["", "json"])
@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.story)
def test_a_mistake_is_one_line(case: Mistake, json_too: list[str], call: Call) -> None:
    """Exit code 2, one line on stderr that says what is wrong, nothing on stdout.

    With --json the line is a problem document, as of REST.
    """
    called = call(*json_too, *case.arguments)
    assert called.code == 2
    assert called.out == ""
    assert called.error.isprintable()
    if json_too:
        problem = msgspec.convert(called.problem, Problem, strict=True)
        assert (problem.status, problem.title) == (422, "Invalid input")
        told = f"'{problem.field}': {problem.detail} ({problem.remedy})"
        assert case.want.strip("'") in clean(told)
    else:
        assert case.want in called.error
        assert called.error.startswith("topmast: ")


SEVERAL: list[tuple[str, list[str]]] = [
    ("audit --since x --until y --limit 0", ["--since", "--until", "--limit"]),
    ("cordon h --until yesterday --reason r --frob", ["--frob"]),
    ("drain h --until yesterday --now also", ["--until"]),
    ("roles grant ann king", ["ROLE", "TENANT"]),
    ("reserve add east-0 --for z --from y", ["--from", "--for"]),
    ("launch --env LR --label k --set x --nodes two -- true",
     ["--env", "--label", "--set", "--nodes"]),
    ("launch --env A=1 --env A=2 --label k=1 --label k=2 --set x=1 --set x=2 -- true",
     ["--env", "--label", "--set"]),
    ("launch --env LR --nodes two --time-limit 3q -- true", ["--env", "--nodes", "--time-limit"]),
    ("launch --nodes two --time-limit 3q -- true", ["num_nodes", "time_limit"]),
    ("tenants quota v --gpus H100=x --for 4q", ["--gpus", "--for"]),
    ("up --keep-months x --keep-workdirs 5x --plan-data-every 5x --plan-capacity-every 5x",
     ["--keep-months", "--keep-workdirs", "--plan-data-every", "--plan-capacity-every"]),
    ("tokens create --for never", ["--for"]),
    ("up --role placer --reads --keep-months 1 --keep-workdirs 1GB --fleet f.yaml --port 99999",
     ["--port", *[""] * 5]),
    ("up --role placer --region r --queue http://q --tls-cert c.pem --tls-key k.pem "
     "--everyone-is-trusted --fleet-replaces", [""] * 3),
    ("up --store postgresql://db/topmast --standby --fleet f.yaml --fleet-replaces", [""]),
    ("notify add --label x", ["NAME", "URL", "--label"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "fields"), SEVERAL, ids=[line for line, _ in SEVERAL])
def test_all_that_is_wrong_with_the_options_is_told_at_once(
    line: str, fields: list[str], call: Call
) -> None:
    """A line for each, or one document with all of them; nothing is asked of a server."""
    words = line.split()
    called = call(*words)
    assert (called.code, called.out) == (2, "")
    assert len(called.err.splitlines()) == len(fields)
    problem = call("--json", *words).problem
    errors = problem.get("errors", [problem])
    assert sorted(one["field"] for one in errors) == sorted(fields)


NEEDS_A_SERVER = [
    ["queue"], ["status", "j1"], ["cancel", "j1"], ["explain", "j1"], ["logs", "j1"],
    ["wait", "j1"], ["regions"], ["clusters"], ["hosts"], ["gpus"], ["tenants"], ["usage"],
    ["datasets"], ["datasets", "ls"], ["datasets", "drop", "d", "r"], ["cordon", "h"],
    ["datasets", "replicate", "d", "r"], ["datasets", "add", "d", "--region", "r"],
    ["uncordon", "h"], ["drain", "h"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", NEEDS_A_SERVER, ids=" ".join)
def test_without_a_server(arguments: list[str], call: Call) -> None:
    """Exit code 1, and the line says how to start one, with --json as well."""
    called = call(*arguments, "--server", "127.0.0.1:1", "--json")
    assert (called.code, called.out) == (1, "")
    assert called.problem == {
        "type": "about:blank", "title": "Unavailable", "status": 503, "field": "", "remedy": "",
        "detail": "no Topmast server answers at http://127.0.0.1:1; start one with `topmast up`",
    }  # fmt: skip
    unknown = call(*arguments)
    assert (unknown.code, unknown.out) == (1, "")
    assert "start one with `topmast up`" in unknown.error


def test_an_error_of_the_server_is_one_line(server: FakeServer, call: Call) -> None:
    """Even if the server says more, or something nasty."""
    server.on("GET", "/jobs/j9/story", problem(404, "no job j9\n\x1b[2J"))
    called = call("status", "j9")
    assert (called.code, called.out) == (1, "")
    assert called.error == "topmast: no job j9 \\x1b[2J"


def test_what_the_server_finds_wrong_is_misuse(server: FakeServer, call: Call) -> None:
    """The field at fault and the remedy are shown."""
    detail = problem(422, "unknown state 'BUSY'", field="state", remedy="one of RUNNING")
    server.on("GET", "/jobs", detail)
    called = call("queue", "--only", "busy")
    assert called.code == 2
    assert called.error == "topmast: --only: unknown state 'BUSY' (one of RUNNING)"


def test_a_bug_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback reaches a user, unless TOPMAST_DEBUG asks for it."""
    called = call("bench", "submit", "--seed", "13")
    assert (called.code, called.out) == (1, "")
    assert called.error == (
        "topmast: internal error: RuntimeError: an unlucky number (TOPMAST_DEBUG=1 shows where)"
    )
    monkeypatch.setenv("TOPMAST_DEBUG", "1")
    with pytest.raises(RuntimeError, match="unlucky"):
        call("bench", "submit", "--seed", "13")


# ------------------------------------------------------------------------------------ how it ends


def test_a_start_is_told_at_once_to_a_person_alone(
    call: Call, terminal: Callable[..., Screen]
) -> None:
    """It takes seconds until a server is up; a log has its lines as before."""
    first = "starting on port 7001 of 127.0.0.1, state folder /tmp/state"
    seen = terminal("--state", "/tmp/state", "up", "--port", "7001").text.splitlines()
    assert seen == [first, "serve 7001 127.0.0.1 {}"]
    assert "starting on a free port" in terminal("up", "--port", "0").text
    assert call("up", "--port", "7001").err == ""


def test_ctrl_c(call: Call) -> None:
    """Exit code 130, as shells expect, and not a word."""
    called = call("bench", "submit", "--seed", "14")
    assert (called.code, called.out, called.err) == (130, "", "")


def test_ctrl_c_from_a_keyboard(server: FakeServer) -> None:
    """A real signal, while a command waits: it says how to go on, and nothing else."""
    server.on("GET", "/jobs/j1", running())
    process = subprocess.Popen(
        program("wait", "j1"), cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "j1 resnet: RUNNING" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err == "what has not ended goes on without you: topmast wait j1, topmast cancel j1\n"


@pytest.mark.parametrize("arguments", [["queue"], ["queue", "--json"], ["--help"]])
def test_a_reader_that_leaves_is_no_error(arguments: list[str], server: FakeServer) -> None:
    """`topmast queue | head -1` is quiet."""
    server.on("GET", "/jobs", page(*[running(f"j{number}") for number in range(999)]))
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(program(*arguments), cwd=REPO, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert run.stderr == b""
    assert run.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["queue"], ["queue", "--json"], ["--help"]])
def test_a_full_disk_is_one_line(arguments: list[str], server: FakeServer) -> None:
    """Output that cannot be written is a failure, and is said so once."""
    server.on("GET", "/jobs", page(*[running(f"j{number}") for number in range(999)]))
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(program(*arguments), cwd=REPO, stdout=full, stderr=subprocess.PIPE)
    said = run.stderr.decode()
    if "--json" in arguments:
        said = f"topmast: {json.loads(said)['error']['detail']}\n"
    assert said == "topmast: [Errno 28] No space left on device\n"
    assert run.returncode == 1


def test_what_a_server_refuses_is_its_document_with_json(server: FakeServer, call: Call) -> None:
    """The error is that of REST, member for member; the words of another command are not ours."""
    told = {
        "type": "about:blank", "title": "Forbidden", "status": 403, "detail": "no role",
        "field": "", "remedy": "ask for operator",
    }  # fmt: skip
    server.on("GET", "/jobs/j9/story", Answer(told, 403))
    called = call("status", "j9", "--json")
    assert (called.code, called.out, called.problem) == (1, "", told)
    assert call("status", "j9").error == "topmast: no role (ask for operator)"
    called = call("exec", "j9", "--server", "127.0.0.1:1", "--", "tool", "--json")
    assert called.error.startswith("topmast: ")


def test_an_error_that_is_not_utf8_is_one_document(call: Call) -> None:
    """A path may be any bytes."""
    called = call("launch", os.fsdecode(b"/no/\xff.yaml"), "--json")
    assert called.code == 2
    assert "/no/" in called.problem["detail"]


def test_output_survives_a_poor_locale(server: FakeServer) -> None:
    """Where the encoding cannot say it, it is spelled."""
    server.on("GET", "/jobs", page(running(name="größe")))
    run = subprocess.run(
        program("queue"), cwd=REPO, capture_output=True, check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert b"gr\\xf6\\xdfe" in run.stdout


# ---------------------------------------------------------------------------------- common options


def test_common_options_may_stand_in_front(server: FakeServer, call: Call) -> None:
    """`topmast --json --server X queue` and `topmast queue --json --server X` are the same."""
    server.on("GET", "/jobs", page(running()))
    wanted = call("queue", "--json").document
    assert call("--json", "queue").document == wanted
    assert call("--server", server.url, "--json", "queue").document == wanted
    assert call("--server", "127.0.0.1:1", "queue").code == 1
    server.on("GET", "/datasets", {"datasets": []})
    assert call("datasets", "--json").document == {"datasets": []}
    assert call("datasets", "--json", "ls").document == {"datasets": []}


def test_the_server_of_a_state_folder(server: FakeServer, call: Call, tmp_path: Path) -> None:
    """--state finds the server that runs there."""
    (tmp_path / "server.json").write_text(json.dumps({"url": server.url}))
    server.on("GET", "/jobs", page(running()))
    assert call("queue", "--state", tmp_path).code == 0
    assert call("--state", tmp_path, "queue").code == 0


URL = "s3://bucket/folder"
URLS = [
    (("up", "--state", URL), "--state"),
    (("--state", URL, "queue"), "--state"),
    (("queue", "--state", URL), "--state"),
    (("up", "--fleet", URL), "--fleet"),
    (("up", "--throughputs", URL), "--throughputs"),
    (("replay", "--state", URL), "--state"),
    (("launch", URL), "JOB.yaml"),
    (("datasets", "add", "d", "--region", "east", "--source", URL), "--source"),
    (("simulate", "--trace", "jobs.csv", "--fleet", URL), "--fleet"),
    (("simulate", "--trace", URL, "--fleet", "fleet.yaml"), "--trace"),
    (("traces", "describe", URL), "FILE"),
    (("plan", "data", URL), "PROBLEM.json"),
]


@pytest.mark.parametrize("number", ["inf", "nan", "1e308"])
def test_a_number_is_in_its_range(number: str, call: Call) -> None:
    """Neither one that has no end, nor one that is none, begins a run without an end."""
    files = ("--trace", "x.csv", "--fleet", "x.yaml")
    called = call("bench", "fill", *files, "--asked", number)
    assert called.code == 2
    assert "'--asked'" in called.error
    if number != "1e308":
        called = call("simulate", *files, "--load", number)
        assert called.code == 2
        assert "'--load'" in called.error
        assert "is not a finite number" in called.error


@pytest.mark.parametrize(("arguments", "at_fault"), URLS, ids=lambda part: " ".join(part))
def test_a_url_is_no_path(
    arguments: tuple[str, ...], at_fault: str, call: Call, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A state folder `s3:` beside the caller is not what the caller wants."""
    monkeypatch.chdir(tmp_path)
    called = call(*arguments)
    assert (called.code, called.out) == (2, "")
    assert at_fault in called.error
    assert f"'{URL}' is a URL, and must be a path" in called.error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_is_documented(path: tuple[str, ...]) -> None:
    """The reference has an example of each, and every long option has its place there."""
    reference = (REPO / "docs" / "reference" / "cli.md").read_text()
    words = " ".join(path)
    shown = any(f"{before}topmast {words}" in reference for before in ("$ ", "$("))
    assert shown or words in ("datasets ls", "uncordon", "drain")
    command = WHOLE
    for word in path:
        command = command.commands[word]
    for parameter in command.params:
        for option in parameter.opts:
            assert not option.startswith("--") or option in reference, option


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("exec", "j4", "hostname"),
            "write the command behind --, as in: topmast exec JOB -- hostname",
        ),
        (("launch", "--gpus", "--", "echo"), "'--gpus' requires an argument"),
        (("exec", "j4", "--task", "--", "ls"), "'--task' requires an argument"),
        (("whatif", "--add-hosts", "east-1:2"), "whatif asks no server"),
        (("reproduce", "tiresias", "--data", "/nowhere"), "/nowhere is not a folder"),
    ],
)
def test_what_was_meant_otherwise_is_said_before_anything_is_done(
    words: tuple[str, ...], told: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the wrong system would answer, or minutes would pass."""
    monkeypatch.setenv("TOPMAST_SERVER", "http://127.0.0.1:1")
    done = call(*words)
    assert (done.code, told in done.error) == (2, True), done.err


def test_no_folder_is_made_for_a_token_that_works_nowhere(tmp_path: Path) -> None:
    """A state folder that is mistyped is none."""
    with pytest.raises(NotFound, match="no such folder"):
        break_glass(tmp_path / "typo", 0.0, 60.0)
    assert not (tmp_path / "typo").exists()


def test_that_a_new_token_ends_the_one_before_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only where one was made that would still be good; the token is all that stdout has."""
    root = replace(ROOT, break_glass=of_the_app)
    words = ["accounts", "break-glass", "--state", str(tmp_path)]
    break_glass(tmp_path, 0.0, 60.0)  # it was good until 1970
    said = []
    for _ in range(2):
        assert main(root, words) == 0
        out, err = capsys.readouterr()
        assert len(out.split()) == 1
        said.append(err)
    assert said == ["", "the token made before is good no more\n"]
