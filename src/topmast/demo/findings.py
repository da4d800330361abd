"""Did it truly happen? Every claim of the demo, checked against what the server says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct

from topmast.client import Client
from topmast.demo import cast
from topmast.demo.machines import Machines
from topmast.demo.play import Seen
from topmast.demo.watch import Watch
from topmast.demo.words import Deed, deed
from topmast.model.reason import PendingReason
from topmast.model.states import JobState, Outcome
from topmast.model.views import DatasetView, Explanation, HistoryView, JobStory

JOBS_MIN = 12
_LOSS = re.compile(r"^step \d+ loss ([0-9.]+)", re.MULTILINE)


class Claim(Struct, frozen=True):
    """Something the demo says it shows."""

    what: str
    evidence: str | None
    """None: it did not happen."""


class JobRow(Struct, frozen=True):
    """One job as it ended."""

    id: str
    name: str
    tenant: str
    band: str
    state: str
    region: str | None
    cluster: str | None
    attempts: int
    resumed_from_step: int | None
    final_loss: float | None


class Decision(Struct, frozen=True):
    """One line of the table of decisions."""

    at_s: float
    job: str
    deed: Deed


class Findings(Struct, frozen=True):
    """What came of the whole demo."""

    jobs: tuple[JobRow, ...]
    preemptions: int
    resumes: int
    host_losses: int
    copies: int
    copied_bytes: int
    explained: int
    claims: tuple[Claim, ...]
    decisions: tuple[Decision, ...]
    explanation: Explanation | None
    first_losses: dict[str, float]
    engines: dict[str, str]
    """The engine by cluster, where it is not the local one."""
    gave_up: str
    """Why the demo waited no longer for jobs; empty: all that can end have ended."""
    unfinished: tuple[str, ...]
    """The jobs that it waited for, each with its state."""

    @property
    def missing(self) -> tuple[Claim, ...]:
        """What did not happen."""
        return tuple(claim for claim in self.claims if claim.evidence is None)


class Inquest:
    """Everything asked from the server after the play, and what follows from it."""

    def __init__(self, client: Client, watch: Watch, seen: Seen, machines: Machines) -> None:
        self.seen = seen
        self.engines = machines.engines
        self.batch_jobs = machines.batch_jobs()
        self.names = watch.names
        self.began_s = watch.began_s
        self.unfinished = tuple(
            f"{view.name} ({view.state})" for view in watch.unfinished(but=cast.IMPOSSIBLE)
        )
        self.stories = {name: client.story(view.id) for name, view in watch.jobs.items()}
        self.datasets: list[DatasetView] = client.datasets()
        self.first_losses = {
            name: loss for name in self.stories if (loss := self._first_loss(client, name))
        }
        self.last_words = {name: self._last_words(client, name) for name in cast.GANGS}

    def findings(self) -> Findings:
        """The sum of it."""
        outcomes = [a.outcome for story in self.stories.values() for a in story.attempts]
        copied = [line for _, line in self._lines("copy-done")]
        return Findings(
            jobs=tuple(_row(story) for story in self.stories.values()),
            preemptions=outcomes.count(Outcome.PREEMPTED),
            resumes=len(list(self._lines("resumed"))),
            host_losses=outcomes.count(Outcome.HOST_LOST),
            copies=len(copied),
            copied_bytes=sum(int(line.detail["bytes"]) for line in copied),
            explained=int(self._explained() is not None),
            claims=tuple(self._claims()),
            decisions=tuple(self._decisions()),
            explanation=self.seen.explanation,
            first_losses=self.first_losses,
            engines=self.engines,
            gave_up=self.seen.gave_up,
            unfinished=self.unfinished,
        )

    # --- reading --------------------------------------------------------------------------------

    def _lines(self, kind: str) -> Iterator[tuple[str, HistoryView]]:
        """The history lines of one kind, with the name of their job."""
        for name, story in self.stories.items():
            for line in story.history:
                if line.kind == kind:
                    yield name, line

    def _of(self, name: str, kind: str) -> list[HistoryView]:
        story = self.stories.get(name)
        return [line for line in story.history if line.kind == kind] if story else []

    def _succeeded(self) -> list[JobStory]:
        return [s for s in self.stories.values() if s.job.state == JobState.SUCCEEDED]

    def _first_loss(self, client: Client, name: str) -> float | None:
        """The loss that the first attempt printed before its first step."""
        story = self.stories[name]
        if not story.job.attempts:
            return None
        text = "".join(chunk.text for chunk in client.logs(story.job.id, attempt=1))
        found = _LOSS.search(text)
        return float(found[1]) if found else None

    def _last_words(self, client: Client, name: str) -> str:
        """The last line of a gang's second task."""
        story = self.stories.get(name)
        if story is None or not story.job.attempts:
            return ""
        text = "".join(chunk.text for chunk in client.logs(story.job.id, task=1))
        return text.strip().rpartition("\n")[2]

    # --- claims ---------------------------------------------------------------------------------

    def _claims(self) -> Iterator[Claim]:
        claims: list[tuple[str, Callable[[], str | None]]] = [
            ("five clusters in three regions serve three tenants", self._spread),
            ("at least twelve jobs train, and the loss falls", self._trained),
            ("gangs of two tasks train together", self._gangs),
            ("jobs save checkpoints", self._saved),
            ("a dataset is copied on demand", self._copied),
            ("idle quota is lent", self._lent),
            ("lent quota is reclaimed", self._reclaimed),
            ("a higher band preempts a lower one", self._preempted),
            ("preempted jobs resume from the step they saved", self._resumed),
            ("a host is killed, and its job restarts elsewhere", self._restarted),
            ("a job that can never fit is explained", self._explained),
        ]
        if self.engines:
            claims.append(("one queue runs gangs on several engines", self._engines_used))
            claims.append(("Slurm itself knows each attempt as a batch job", self._in_slurm))
        for what, find in claims:
            yield Claim(what, find())

    def _spread(self) -> str | None:
        placed = list(self._lines("placed"))
        regions = {line.detail["region"] for _, line in placed}
        clusters = {line.detail["cluster"] for _, line in placed}
        tenants = {self.stories[name].job.tenant for name, _ in placed}
        if (len(regions), len(clusters), len(tenants)) != (3, 5, 3):
            return None
        return f"{', '.join(sorted(clusters))}; {', '.join(sorted(tenants))}"

    def _trained(self) -> str | None:
        done = self._succeeded()
        falls = [
            (self.first_losses.get(s.job.name, 0.0), s.job.metrics.get("loss", 0.0)) for s in done
        ]
        everyone = len(done) == len(self.stories) - 1
        if len(done) < JOBS_MIN or not everyone or not all(0 < b < a for a, b in falls):
            return None
        before, after = (sum(column) / len(falls) for column in zip(*falls, strict=True))
        return f"{len(done)} jobs, mean loss {before:.2f} to {after:.2f}"

    def _gangs(self) -> str | None:
        ended = {story.job.name: story.job for story in self._succeeded()}
        whole = [
            name
            for name in cast.GANGS
            if name in ended and ended[name].tasks == 2 and self.last_words[name] == "done"
        ]
        return ", ".join(whole) if len(whole) == len(cast.GANGS) else None

    def _saved(self) -> str | None:
        saved = {name for name, _ in self._lines("checkpointed")}
        if not self._succeeded() or not saved >= {s.job.name for s in self._succeeded()}:
            return None
        return f"{len(list(self._lines('checkpointed')))} checkpoints by {len(saved)} jobs"

    def _copied(self) -> str | None:
        """A copy that a job caused, and after which that job was placed at its target."""
        for name, line in self._lines("copy-done"):
            target = line.detail["target"]
            here = [
                p
                for p in self._of(name, "placed")
                if p.detail["region"] == target and p.at_s >= line.at_s
            ]
            if here and self._holds(line.detail["dataset"], target):
                took_s = line.at_s - float(line.detail["begun_s"])
                return f"{line.detail['dataset']} to {target} for {name}, in {took_s:.1f} s"
        return None

    def _holds(self, dataset: str, region: str) -> bool:
        return any(
            (d.name, r.region, r.state) == (dataset, region, "complete")
            for d in self.datasets
            for r in d.replicas
        )

    def _lent(self) -> str | None:
        over = [line for line in self._of(cast.BORROWER, "placed") if line.detail["over_quota"]]
        if not over or self.seen.lent is None:
            return None
        tenant, model, count = cast.LENT
        return f"{tenant} lent {count} {model} to {cast.BORROWER}"

    def _reclaimed(self) -> str | None:
        first = next(iter(self._of(cast.LENDER, "placed")), None)
        if first is None or first.detail["over_quota"] or self.seen.reclaimed is None:
            return None
        if not self._victim(first, cast.BORROWER):
            return None
        return f"{cast.LENDER} preempted {cast.BORROWER}; {cast.LENT[0]} has its quota back"

    def _preempted(self) -> str | None:
        first = next(iter(self._of(cast.URGENT, "placed")), None)
        if first is None or not self._victim(first, cast.MODEST):
            return None
        bands = [self.stories[name].job.band for name in (cast.URGENT, cast.MODEST)]
        return f"{cast.URGENT} ({bands[0]}) preempted {cast.MODEST} ({bands[1]})"

    def _victim(self, placed: HistoryView, name: str) -> bool:
        """Whether a plan named a job as its victim, and that job was indeed preempted."""
        story = self.stories[name]
        outcomes = [attempt.outcome for attempt in story.attempts]
        return story.job.id in placed.detail["victims"] and Outcome.PREEMPTED in outcomes

    def _resumed(self) -> str | None:
        found = [self._resume(name) for name in (cast.BORROWER, cast.MODEST)]
        return None if None in found else ", ".join(filter(None, found))

    def _resume(self, name: str) -> str | None:
        """From which step a job went on; None if it did not, or not from what it had saved."""
        story = self.stories.get(name)
        if story is None or story.job.state != JobState.SUCCEEDED:
            return None
        saved = 0
        for line in story.history:
            if line.kind == "checkpointed":
                saved = int(line.detail["step"])
            elif line.kind == "resumed":
                step = int(line.detail["step"])
                # A checkpoint may have been written just before the end, and not been reported.
                return f"{name} from step {step}" if step >= saved > 0 else None
        return None

    def _restarted(self) -> str | None:
        story = self.stories.get(cast.STRUCK)
        if story is None or not self.seen.killed:
            return None
        lost = [a.epoch for a in story.attempts if a.outcome == Outcome.HOST_LOST]
        later = [p for p in self._of(cast.STRUCK, "placed") if lost and p.detail["epoch"] > lost[0]]
        resumed = self._resume(cast.STRUCK)
        if not later or resumed is None or self.seen.killed in later[0].detail["hosts"]:
            return None
        hosts = ", ".join(later[0].detail["hosts"])
        return f"{self.seen.killed} was lost; {resumed} on {hosts}"

    def _explained(self) -> str | None:
        found, story = self.seen.explanation, self.stories.get(cast.IMPOSSIBLE)
        if found is None or story is None or story.job.state != JobState.PENDING:
            return None
        if found.reason != PendingReason.TOPOLOGY_DOES_NOT_FIT or not found.would_help:
            return None
        return f"{cast.IMPOSSIBLE}: {found.reason}"

    def _engines_used(self) -> str | None:
        """How many attempts succeeded on each engine."""
        counts = Counter(
            self.engines.get(attempt.cluster, "local")
            for story in self.stories.values()
            for attempt in story.attempts
            if attempt.outcome == Outcome.SUCCEEDED
        )
        if not set(counts) >= {"local", *self.engines.values()}:
            return None
        return ", ".join(f"{count} on {engine}" for engine, count in sorted(counts.items()))

    def _in_slurm(self) -> str | None:
        """A batch job of each attempt on a cluster of Slurm is called ``tm-FLEET-JOB-EPOCH-N``."""
        known = {tuple(name.rsplit("-", 3)[1:3]) for name in self.batch_jobs}
        wanted = {
            (story.job.id, str(attempt.epoch))
            for story in self.stories.values()
            for attempt in story.attempts
            if self.engines.get(attempt.cluster) == "slurm"
        }
        return f"{len(wanted)} attempts" if wanted and wanted <= known else None

    # --- decisions ------------------------------------------------------------------------------

    def _decisions(self) -> Iterator[Decision]:
        """What was decided, in order; how jobs ended is in the table of jobs."""
        passed_over = ("PREEMPTING", "SUCCEEDED")
        lines = [
            (line.at_s, name, line)
            for name, story in self.stories.items()
            for line in story.history
            if line.kind not in passed_over
        ]
        for at_s, name, line in sorted(lines, key=lambda entry: entry[0]):
            found = deed(line, self.names)
            if found is not None:
                yield Decision(at_s - self.began_s, name, found)


def _row(story: JobStory) -> JobRow:
    job = story.job
    return JobRow(
        job.id, job.name, job.tenant, job.band, job.state, job.region, job.cluster, job.attempts,
        job.resumed_from_step, job.metrics.get("loss"),
    )  # fmt: skip
