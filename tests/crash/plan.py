"""What a crash test does to whom and when: all of it drawn from one seed before anything is started."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")
LONGEST_WAIT_S = 1.5
"""Twice that for regions apart: they have to find each other again."""
SHUTDOWN_S = 0.3
COMMITS_S = (0.0, 0.02, 0.05, 0.1)
"""The disks that servers have: the slower, the more kills fall between an effect and its commit."""
LONGEST_FREEZE_S = 4.0


class Phase(StrEnum):
    """What a server is about when it is killed."""

    RUNNING = "while it ran"
    ANSWERED = "after an acknowledgement"
    SHUTDOWN = "while it shut down"
    START = "while it started"


class Fault(StrEnum):
    """What is done to hosts and to what runs there, and what only holds somebody up."""

    AGENT = "kill an agent"
    HOST = "kill a whole host"
    SUPERVISORS = "kill supervisors"
    TASKS = "kill tasks"
    EVERYTHING = "kill all agents"
    FREEZE_SERVER = "freeze a server"
    FREEZE_AGENTS = "freeze agents"
    FREEZE_SUPERVISORS = "freeze supervisors"
    FILL_DISK = "fill the disk"


@dataclass(frozen=True)
class Nemesis:
    """One fault. ``pick`` in [0, 1) says which of those that are there; ``for_s``: how long frozen or full."""

    fault: Fault
    pick: float
    for_s: float


@dataclass(frozen=True)
class Round:
    """One kill of the servers in ``target``, and what comes with it.

    ``moment`` in [0, 1): how far into the phase. ``commit_s``: of the servers started afterwards.
    """

    target: tuple[str, ...]
    phase: Phase
    wait_s: float
    moment: float
    commit_s: float
    before: Nemesis | None
    down: Nemesis | None


PHASES = {Phase.RUNNING: 36, Phase.ANSWERED: 30, Phase.SHUTDOWN: 13, Phase.START: 21}
BEFORE: dict[Fault | None, int] = {
    Fault.AGENT: 6, Fault.HOST: 6, Fault.SUPERVISORS: 6, Fault.TASKS: 6,
    Fault.FREEZE_SERVER: 8, Fault.FREEZE_AGENTS: 6, Fault.FREEZE_SUPERVISORS: 6,
    Fault.FILL_DISK: 5, None: 51,
}  # fmt: skip
DOWN: dict[Fault | None, int] = {
    Fault.AGENT: 4, Fault.HOST: 4, Fault.SUPERVISORS: 4, Fault.TASKS: 4, Fault.EVERYTHING: 2,
    Fault.FREEZE_AGENTS: 4, Fault.FREEZE_SUPERVISORS: 4, None: 74,
}  # fmt: skip


def make_plan(servers: Sequence[str], kills: int, seed: int) -> tuple[Round, ...]:
    """So many rounds against the servers of one topology; the same for the same seed."""
    rng = random.Random(f"{seed}/{' '.join(servers)}")
    return tuple(_rounds(servers, kills, rng))


def _rounds(servers: Sequence[str], kills: int, rng: random.Random) -> Iterator[Round]:
    last: tuple[str, ...] = ()
    for _ in range(kills):
        phase = _draw(PHASES, rng)
        if phase is Phase.START and not last:
            phase = Phase.RUNNING
        target = last if phase is Phase.START else _target(servers, phase, rng)
        last = target
        yield Round(
            target,
            phase,
            wait_s=rng.uniform(0.0, LONGEST_WAIT_S if len(servers) == 1 else 2 * LONGEST_WAIT_S),
            moment=rng.random(),
            commit_s=rng.choice(COMMITS_S),
            before=None if phase is Phase.START else _nemesis(BEFORE, rng),
            down=_nemesis(DOWN, rng),
        )


def _target(servers: Sequence[str], phase: Phase, rng: random.Random) -> tuple[str, ...]:
    """One server, two, or all; the first of all is the one that answers clients."""
    if len(servers) == 1 or phase is Phase.ANSWERED:
        return (servers[0],)
    count = rng.choice((1, 1, 1, 2, len(servers)))
    return tuple(sorted(rng.sample(list(servers), count)))


def _nemesis(faults: dict[Fault | None, int], rng: random.Random) -> Nemesis | None:
    fault, pick, for_s = _draw(faults, rng), rng.random(), rng.uniform(0.3, LONGEST_FREEZE_S)
    return None if fault is None else Nemesis(fault, pick, for_s)


def _draw(weights: Mapping[T, int], rng: random.Random) -> T:
    return rng.choices(list(weights), list(weights.values()))[0]
