"""Jobs that run until a test lets them go, and tell of each start."""

from pathlib import Path
from typing import Any

from tests.support.live import eventually, until_state
from topmast import Client
from topmast.model.views import JobView

HOLD = """
trap 'echo $step > "$TOPMAST_CHECKPOINT_DIR/step"; exit 143' TERM
step=$(cat "$TOPMAST_CHECKPOINT_DIR/step" 2>/dev/null || echo 0)
if [ "$step" != 0 ]; then
  echo '{"resumed_from":'$step'}' >> "$TOPMAST_PROGRESS_FILE"
fi
echo "$TOPMAST_EPOCH $TOPMAST_RANK $$ $PPID $TOPMAST_HOST" >> "$HELD/starts"
until [ -e "$HELD/go" ]; do
  sleep 0.05
  step=$((step + 1))
  echo '{"step":'$step'}' >> "$TOPMAST_PROGRESS_FILE"
done
"""
"""Counts steps until it may go; after SIGTERM it goes on from where it was."""


class Start:
    """What a held task wrote when it began."""

    def __init__(self, line: str) -> None:
        epoch, rank, pid, supervisor, self.host = line.split()
        self.epoch, self.rank = int(epoch), int(rank)
        self.pid, self.supervisor = int(pid), int(supervisor)


class Held:
    """A job that runs until it may go, and tells of each start."""

    def __init__(
        self, client: Client, folder: Path, model: str, gpus: float = 1, **more: Any
    ) -> None:
        self.client = client
        name = str(more.pop("name", "held"))
        self.folder = folder / name
        self.folder.mkdir()
        document = {
            "name": name,
            "run": HOLD,
            "envs": {"HELD": str(self.folder)},
            "resources": {"accelerators": f"{model}:{gpus:g}"},
            "checkpoint": {"grace": 5},
            **more,
        }
        self.id = client.submit(document).id

    def starts(self) -> list[Start]:
        """All starts of all its tasks so far."""
        file = self.folder / "starts"
        return [Start(line) for line in file.read_text().splitlines()] if file.exists() else []

    def started(self, times: int = 1) -> Start:
        """The last of so many starts, when it has come."""
        eventually(lambda: len(self.starts()) >= times, f"start {times} of {self.id}")
        return self.starts()[times - 1]

    def until(self, *states: str) -> JobView:
        """The job in one of these states."""
        return until_state(self.client, self.id, *states)

    def end(self) -> JobView:
        """Let it go; it succeeds."""
        (self.folder / "go").touch()
        return self.until("SUCCEEDED")

    def outcomes(self) -> list[str]:
        """How its attempts ended."""
        return [attempt.outcome for attempt in self.client.story(self.id).attempts]
