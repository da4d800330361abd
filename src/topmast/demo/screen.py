"""Live progress on stderr: a table that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Literal, Protocol

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from topmast.demo.watch import Watch
from topmast.demo.words import deed
from topmast.model.states import JobState
from topmast.model.views import EventView, JobView

TICKER_LINES = 20
TICKER_LINES_MIN = 5
STYLES = {
    JobState.PENDING: "dim",
    JobState.STARTING: "blue",
    JobState.RUNNING: "bold",
    JobState.PREEMPTING: "yellow",
    JobState.RECOVERING: "red",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "red",
}


class Screen(Protocol):
    """Where progress is shown."""

    def note(self, text: str) -> None:
        """Tell what the demo itself does."""

    def show(self, watch: Watch, new: Sequence[EventView]) -> None:
        """Show the jobs as they are, and what is new."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def colours() -> Literal["auto"] | None:
    """No style at all, bold included, where NO_COLOR is set."""
    return None if os.environ.get("NO_COLOR") else "auto"


def open_screen() -> Screen:
    """The screen for the stderr there is."""
    console = Console(stderr=True, highlight=False, color_system=colours())
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


class _Ticker:
    """Events as lines, each with its time since the beginning."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def lines(self, watch: Watch, new: Sequence[EventView]) -> list[Text]:
        """What is worth a line."""
        lines = []
        for event in new:
            found = deed(event, watch.names)
            if found is not None:
                self.at_s = event.at_s - watch.began_s
                name = watch.names.get(event.job, "")
                line = Text(f"{self.at_s:5.1f} s  {name:<13} ", "")
                line.append(found.what, found.style)
                line.append(f" ({found.why})" if found.why else "", "dim")
                lines.append(line)
        return lines


class PlainScreen:
    """One line for each thing that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._ticker = _Ticker()

    def note(self, text: str) -> None:
        """One line."""
        self._say(Text(f"* {text}"))

    def show(self, watch: Watch, new: Sequence[EventView]) -> None:
        """A line for each event."""
        for line in self._ticker.lines(watch, new):
            self._say(line)

    def close(self) -> None:
        """Nothing to restore."""

    def _say(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


class LiveScreen:
    """A table of jobs over the latest events."""

    def __init__(self, console: Console) -> None:
        self._ticker = _Ticker()
        self._recent: deque[Text] = deque(maxlen=TICKER_LINES)
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def note(self, text: str) -> None:
        """A line of the ticker that stands out."""
        self._recent.append(Text(f"         {text}", "magenta"))
        if not self._ticker.at_s:
            self._live.update(self._events(TICKER_LINES), refresh=True)

    def show(self, watch: Watch, new: Sequence[EventView]) -> None:
        """Draw everything anew."""
        self._recent.extend(self._ticker.lines(watch, new))
        room = self._console.size.height - len(watch.jobs) - 6
        events = self._events(max(TICKER_LINES_MIN, room))
        head = Text(
            f"topmast demo at {watch.client.url}, {time.time() - watch.began_s:.0f} s", "bold"
        )
        self._live.update(Group(head, Text(), _jobs(watch), Text(), events), refresh=True)

    def close(self) -> None:
        """Take the table away: the result follows."""
        self._live.stop()

    def _events(self, most: int) -> Group:
        """The latest lines, cut to the width of the terminal."""
        lines = [line.copy() for line in self._recent][-most:]
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*lines)


def _jobs(watch: Watch) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("JOB", "TENANT", "BAND", "STATE", "WHERE"):
        table.add_column(title, no_wrap=True)
    for title in ("STEP", "LOSS"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, view in watch.jobs.items():
        state = JobState(view.state)
        shown = view.reason if state is JobState.PENDING and view.reason else view.state
        table.add_row(
            name, view.tenant, view.band + (", lent" if view.over_quota else ""),
            Text(shown, STYLES.get(state, "")),
            _where(view), "" if view.step is None else str(view.step),
            f"{view.metrics['loss']:.3f}" if "loss" in view.metrics else "",
        )  # fmt: skip
    return table


def _where(view: JobView) -> str:
    if view.cluster is None or view.state == JobState.PENDING:
        return ""
    return f"{view.region}/{view.cluster}"
