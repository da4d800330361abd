"""Events as earlier versions wrote them to journals, read as what they are today."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from topmast.model import messages as m
from topmast.model.columns import PlanColumns, SeatColumns


class _PlansOneByOne(Struct, frozen=True, tag="CommitPlans"):
    """Plans as messages of their own, before they had columns."""

    commits: tuple[m.CommitPlan, ...]

    def today(self) -> m.CommitPlans:
        """The same plans in columns. O(seats)."""
        commits = self.commits
        plans = PlanColumns.of([commit.plan for commit in commits])
        plans.__dict__["plans"] = [commit.plan for commit in commits]  # to the last bit
        return m.CommitPlans(
            plans,
            tuple([commit.epoch for commit in commits]),
            tuple([commit.spec for commit in commits]),
            tuple([commit.band for commit in commits]),
            tuple([commit.time_left_s for commit in commits]),
            tuple([commit.expected_s for commit in commits]),
        )


class _GangsOneByOne(Struct, frozen=True, tag="LaunchGangs"):
    """Gangs of one cluster as messages of their own, before they had columns."""

    gangs: tuple[m.LaunchGang, ...]

    def today(self) -> m.LaunchGangs:
        """The same gangs in columns. O(seats)."""
        gangs = self.gangs
        return m.LaunchGangs(
            gangs[0].region,
            gangs[0].cluster,
            SeatColumns.of([gang.job for gang in gangs], [gang.seats for gang in gangs]),
            tuple([gang.epoch for gang in gangs]),
            tuple([gang.spec for gang in gangs]),
            tuple([gang.time_left_s for gang in gangs]),
        )


class _StartsInPairs(Struct, frozen=True, tag="AttemptsStarting"):
    """Jobs and epochs in pairs, before they were columns."""

    attempts: tuple[tuple[str, int], ...]

    def today(self) -> m.AttemptsStarting:
        """The same attempts in columns. O(attempts)."""
        jobs, epochs = zip(*self.attempts, strict=True)
        return m.AttemptsStarting(jobs, epochs)


_Older = _PlansOneByOne | _GangsOneByOne | _StartsInPairs
_older: msgspec.json.Decoder[_Older] = msgspec.json.Decoder(_Older)


def decode_older(data: bytes) -> m.Message:
    """An event in an older form; raises msgspec.ValidationError for one that never was."""
    return _older.decode(data).today()
