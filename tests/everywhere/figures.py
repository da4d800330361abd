"""The figures of a run, which `make test-everywhere` prints as its last line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.everywhere.judge import Verdict
from tests.everywhere.world import ENGINES
from topmast.model.views import JobStory

KINDS = ("slurm", "kubernetes", "ssh")
FIGURES = pytest.StashKey[dict[str, Any]]()


@dataclass(frozen=True)
class Figures:
    """What happened, by kind of engine; from ``bodies`` on by what bodies wrote."""

    jobs: int
    tenants: int
    clusters: int
    attempts: dict[str, int]
    succeeded: dict[str, int]
    preempted: dict[str, int]
    host_lost: dict[str, int]
    moved_between_engines: int
    """Jobs whose attempts ran on more than one kind of engine."""
    bodies: int
    bodies_twice: int
    not_finished: int
    """Jobs of which no attempt came to its end in all tasks."""
    finished_again: int
    """Jobs that ended in the moment of a stop or of a loss, and then ran again."""
    wall_s: float

    @classmethod
    def of(cls, stories: Mapping[str, JobStory], verdict: Verdict, wall_s: float) -> Figures:
        """Counts."""
        attempts = [attempt for story in stories.values() for attempt in story.attempts]

        def count(*outcomes: str) -> dict[str, int]:
            found = Counter(ENGINES[a.cluster] for a in attempts if a.outcome in outcomes)
            return {kind: found[kind] for kind in KINDS}

        kinds = [{ENGINES[a.cluster] for a in story.attempts} for story in stories.values()]
        ends = [len(finished) for finished in verdict.finished.values()]
        return cls(
            jobs=len(stories),
            tenants=len({story.job.tenant for story in stories.values()}),
            clusters=len({attempt.cluster for attempt in attempts}),
            attempts=count(*{attempt.outcome for attempt in attempts}),
            succeeded=count("succeeded"),
            preempted=count("preempted"),
            host_lost=count("host_lost"),
            moved_between_engines=sum(len(found) > 1 for found in kinds),
            bodies=verdict.bodies,
            bodies_twice=len(verdict.twice),
            not_finished=sum(count == 0 for count in ends),
            finished_again=sum(count > 1 for count in ends),
            wall_s=round(wall_s, 1),
        )
