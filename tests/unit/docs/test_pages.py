"""What the pages show exists: commands with their options, targets, files, names in the code."""

import ast
import importlib.util
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.program import command_line
from tests.unit.docs.pages import PAGES, REPO, Block, blocks, commands
from topmast.cli.rootoptions import DEFAULT_PORT
from topmast.model.files.accountsfile import parse_accounts
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.files.jobfile import parse_job

SOURCE = REPO / "src" / "topmast"
INTERNALS = sorted((REPO / "docs" / "internals").glob("*.md"))


_command_line = cache(command_line)


@pytest.mark.parametrize(("where", "arguments"), commands("topmast"), ids=str)
def test_commands(where: str, arguments: list[str]) -> None:
    """Each command that a page calls exists, and takes the options it is given."""
    words, command, path = arguments, _command_line(), ["topmast"]
    while True:
        context = command.make_context(path[-1], [], resilient_parsing=True)
        _, words, _ = command.make_parser(context).parse_args(list(words))
        if not hasattr(command, "get_command") or not words:
            return
        found = command.get_command(context, words[0])
        assert found is not None, f"{where}: {' '.join(path)} has no command {words[0]}"
        path.append(words[0])
        # The parser of a group has read its options, and left the rest as it was.
        command, words = found, words[1:]


@pytest.mark.parametrize(("where", "arguments"), commands("make"), ids=str)
def test_targets(where: str, arguments: list[str]) -> None:
    """Each target that a page makes is in the Makefile."""
    targets = re.findall(r"^([a-z-]+):.*## ", (REPO / "Makefile").read_text("utf-8"), re.MULTILINE)
    wanted = {word for word in arguments if "=" not in word and not word.startswith("-")}
    assert wanted <= set(targets), where


FLEET = {"hosts": [{"count": 1, "gpu": model, "gpus": 8} for model in ("H100", "A100")]}
REGIONS = {name: {"clusters": {f"{name}-1": FLEET}} for name in ("east", "west", "north")}


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_files(block: Block) -> None:
    """Each YAML block is a file of jobs, fleets or accounts, or a part that lacks what is required."""
    called = Counter[str]()
    for document in yaml.safe_load_all(block.text):
        of_a_fleet = set(document) & {"regions", "links", "tenants", "prices"}
        if "oidc" in document:
            parse_accounts(document)
        elif of_a_fleet or isinstance(document.get("datasets"), dict):
            parse_fleet({"regions": REGIONS, **document})
        else:
            whole = document if "groups" in document else {"run": "x", **document}
            called[parse_job(whole, before=called).spec.name] += 1


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python(block: Block) -> None:
    """Each Python block is Python."""
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_leaks(page: Path) -> None:
    """No page names a machine, a checkout or a state folder of whoever wrote it."""
    text = page.read_text("utf-8")
    found = re.findall(r"/(?:work|root|home)/[\w/.-]*|/tmp/docs[\w/.-]*", text)
    assert not found


# ------------------------------------------------------------------------- names in the code


@cache
def _members() -> dict[str, set[str]]:
    """Every class of the package with its methods and fields."""
    names: dict[str, set[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                members = names.setdefault(node.name, set())
                for part in node.body:
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                        members.add(part.name)
                    elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        members.add(part.target.id)
    return names


@pytest.mark.parametrize("page", INTERNALS, ids=lambda page: page.name)
def test_methods(page: Path) -> None:
    """Each `Class.method` in backquotes exists."""
    text = page.read_text("utf-8")
    members = _members()
    for owner, method in re.findall(r"`([A-Z][a-z]\w+)\.([a-z_]\w*)`", text):
        assert method in members.get(owner, ()), f"{owner}.{method}"


def test_tags_of_the_journal() -> None:
    """The glossary names every class that the journal knows by another name, and no other.

    But for those of older forms, which are private: their tags are the names of today's classes.
    """
    page = (REPO / "docs" / "internals" / "glossary.md").read_text("utf-8")
    shown = re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", page, re.MULTILINE)
    tagged = [
        (keyword.value.value, node.name)
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for keyword in node.keywords
        if keyword.arg == "tag"
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, str)
    ]
    assert shown == sorted((tag, name) for tag, name in tagged if tag.lower() != name.lower())


@pytest.mark.parametrize("page", INTERNALS, ids=lambda page: page.name)
def test_paths(page: Path) -> None:
    """Files and folders that a page names are in the package."""
    for path in re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|/[a-z_]+\.py))`", page.read_text("utf-8")):
        folders = (SOURCE, REPO, SOURCE / "adapters" / "store")
        assert any((folder / path).exists() for folder in folders), path


MOST_FILES = 3


def test_where_to_change() -> None:
    """Each change of the page touches a few source files, which exist."""
    page = (REPO / "docs" / "internals" / "where-to-change.md").read_text("utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| [")]
    assert len(rows) >= 10
    for change, files, _ in rows:
        named = re.findall(r"`([^`]+)`", files)
        assert 1 <= len(named) + ("and a new" in files) <= MOST_FILES, change
        assert [name for name in named if not (SOURCE / name).is_file()] == [], change


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_constants(page: Path) -> None:
    """A row that names `module:CONSTANT` shows its value."""
    for line in page.read_text("utf-8").splitlines():
        for module, name in re.findall(r"`(topmast[\w.]*):([A-Z_]+)`", line):
            spec = importlib.util.find_spec(module)
            assert spec is not None, module
            value = getattr(importlib.import_module(module), name)
            if isinstance(value, int | float):
                shown = [float(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", line)]
                assert float(value) in shown, f"{name} is {value}: {line}"


def test_alerts_ask_a_server_where_it_listens_by_default() -> None:
    """A person who reads them has no time to look for the port."""
    pages = sorted((REPO / "docs" / "alerts").glob("*.md"))
    asked = [port for page in pages for port in re.findall(r"127\.0\.0\.1:(\d+)", page.read_text())]
    assert set(asked) == {str(DEFAULT_PORT)}
