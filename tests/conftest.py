"""What every test may ask for."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

REPO = Path(__file__).resolve().parents[1]

# What a shell starts in the background ignores the signal of Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """What a command does to the log of its process ends with the test: the next one may read its own lines."""
    yield
    structlog.reset_defaults()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note why a test was skipped, in the file that `make test` names; a worker leaves that to its master."""
    if (file := os.environ.get("TOPMAST_SKIPS")) and report.skipped and not _IS_WORKER:
        place = report.longrepr
        reason = place[2] if isinstance(place, tuple) else str(place)
        with Path(file).open("a", encoding="utf-8") as notes:
            notes.write(" ".join(reason.split()) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` a file is one worker's, as its tests share what is slow to start.

    Pages share nothing: each goes to the worker that is free. They come last, and of these the long
    ones first, so that none is idle at the end.
    """
    items.sort(key=_page_order)
    for item in items:
        if not _is_page(item):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(REPO))))
    if config.getoption(PARTS) > 1:
        _keep_part(config, items, config.getoption(PARTS))


PARTS = "--parts"
"""Of the tests that are slow by their kind one part of so many is run; the commit tells which.

An option, not a variable: tests that run pytest run all that they name.
"""

PARTED = ("crash", "integration", "contract", "properties", "simulation", "mutants")
"""Those tests, by folder. A file stays whole, and so does a page of the docs.

What is marked ``always`` is left out by no part: the promises that a company relies on are kept at each
commit, not at one of so many.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test PARTS=4` gives it."""
    parser.addoption(PARTS, type=int, default=1, help="run one of so many parts of the slow kinds")


def _keep_part(config: pytest.Config, items: list[pytest.Item], parts: int) -> None:
    """Files are dealt out in turn, so that each part has of all kinds."""
    number = part_number(parts)
    parted = [
        item
        for item in items
        if item.path.relative_to(REPO).parts[1] in PARTED
        and item.get_closest_marker("always") is None
    ]
    names = dict.fromkeys(map(_whole, parted))
    mine = {name for turn, name in enumerate(names) if turn % parts == number}
    out = [item for item in parted if _whole(item) not in mine]
    gone = set(map(id, out))
    items[:] = [item for item in items if id(item) not in gone]
    config.hook.pytest_deselected(items=out)


def part_number(parts: int) -> int:
    """The part whose turn it is, of so many: each commit has another. Without commits: the first."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, capture_output=True, check=False)
    return int(head.stdout, 16) % parts if head.returncode == 0 else 0


def _whole(item: pytest.Item) -> str:
    return item.nodeid if _is_page(item) else str(item.path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that this was not all, where it was not."""
    parts = terminalreporter.config.getoption(PARTS)
    if parts > 1:
        which = f"part {part_number(parts) + 1} of {parts} of the files in {', '.join(PARTED)}"
        terminalreporter.write_line(f"{which}; without PARTS={parts} `make test` runs all")


def _page_order(item: pytest.Item) -> tuple[bool, int]:
    if not (_is_page(item) and isinstance(item, pytest.Function)):
        return False, 0
    page = item.callspec.params["page"]
    assert isinstance(page, Path)
    return True, -page.read_bytes().count(b"```console")


def _is_page(item: pytest.Item) -> bool:
    return item.path == REPO / "tests" / "integration" / "test_pages.py"


_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public traces: `$TOPMAST_DATA`, or `shared/data` beside the repository."""
    folder = Path(os.environ.get("TOPMAST_DATA", REPO.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no traces: {folder} is not a folder (set TOPMAST_DATA to the one you have)")
    return folder
