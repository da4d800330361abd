"""Run a page from its first step to its last."""

import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.pages.compare import agrees, likeness
from tests.support.pages.script import REPO, Call, Step, steps
from tests.support.pages.shell import Shell, opened

PATIENCE_S = 20.0
"""How long a command that only looks is repeated: what it shows may take a moment to come."""

_LOOKS = re.compile(
    r"queue|status|explain|logs|hosts|regions|clusters|gpus|tenants|usage|datasets( plan| why|$)|replay"
)
_HELPERS = """
stop() { kill -TERM "$SERVER"; wait "$SERVER"; }
until_it_says() { local words="$1"; shift; for i in $(seq 60); do "$@" 2>&1 | grep -q -- "$words" && return 0; sleep 0.2; done; "$@"; return 1; }
"""


class Difference(NamedTuple):
    """A command that did not print what the page shows, or failed."""

    page: str
    line: int
    call: Call
    status: int
    printed: tuple[str, ...]

    def __str__(self) -> str:
        shown, printed = "\n  ".join(self.call.shown), "\n  ".join(self.printed)
        return (
            f"{self.page}:{self.line}: $ {self.call.command}\n"
            f"the page shows\n  {shown}\nand printed was, with status {self.status},\n  {printed}"
        )


def play(
    page: Path, folder: Path, slow: bool = False, until_late: bool = False
) -> list[Difference]:
    """Run a page; the commands that printed something else than it shows.

    ``until_late``: no further than the first command that was repeated in vain, for what comes after it
    comes later than the page means it to.
    """
    with opened(folder) as shell:
        status, _ = shell.run(_HELPERS)
        assert status == 0
        player = _Player(str(page.relative_to(REPO)), shell, until_late)
        for step in steps(page):
            if step.kind in ("run", "hidden", "file") or (slow and step.kind == "slow"):
                player.take(step)
            if until_late and player.late:
                break
        return player.found


class _Player:
    def __init__(self, page: str, shell: Shell, until_late: bool) -> None:
        self.found: list[Difference] = []
        self.late = False
        self._until_late = until_late
        self._page = page
        self._shell = shell
        self._printed: list[str] = []

    def take(self, step: Step) -> None:
        if step.kind == "file":
            path = self._shell.folder / step.words
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, "utf-8")
        elif step.kind == "hidden":
            for command in step.text.strip().splitlines():
                status, printed = self._shell.run(command)
                if status:
                    self._differs(step, Call(command, -1, ()), status, printed)
        else:
            shows = any(call.shown for call in step.calls)
            for call in step.calls:
                if not (self.late and self._until_late):
                    self._call(step, call, shows)

    def _call(self, step: Step, call: Call, shows: bool) -> None:
        if not call.command:
            if not agrees(["...", *call.shown, "..."], self._printed, step.varies):
                self._differs(step, call, 0, self._printed)
            return
        compared = shows and not (call.command.endswith("&") and not call.shown)
        best: tuple[float, int, list[str]] = (-1.0, 0, [])
        deadline_s = time.monotonic() + (PATIENCE_S if looks(call.command) else 0.0)
        while True:
            status, printed = self._shell.run(call.command)
            good = (status != 0) == call.fails
            if good and (not compared or agrees(call.shown, printed, step.varies)):
                self._printed = printed
                return
            best = max(best, (likeness(call.shown, printed), status, printed))
            if time.monotonic() > deadline_s:
                self.late = looks(call.command)
                break
            time.sleep(0.2)
        _, status, self._printed = best
        self._differs(step, call, status, self._printed)

    def _differs(self, step: Step, call: Call, status: int, printed: Sequence[str]) -> None:
        line = step.line if call.first < 0 or not call.command else call.first
        self.found.append(Difference(self._page, line, call, status, tuple(printed)))


def looks(command: str) -> bool:
    """Whether a command changes nothing, so that it may be repeated."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return False
    if words[:1] != ["topmast"] or {"|", ">", "&&"} & set(words):
        return False
    rest = " ".join(_without_state(words[1:]))
    return "--dry-run" in words or bool(_LOOKS.match(rest))


def _without_state(words: list[str]) -> list[str]:
    return words[2:] if words[:1] in (["--state"], ["--server"]) else words
