"""Long looks: decisions are made between their slices, and what is told is not false by then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from tests.support.build import cluster, fleet, job
from tests.unit.runtime.test_loop import PATIENCE_S, Clock, Disk, Process, running
from topmast.adapters.answering import ANSWERED, LEFT, Wanted
from topmast.fast.region import region_changes
from topmast.fast.region.explain.changes.trials import Trials
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import Caller, Grant, Principal
from topmast.model.errors import Unavailable
from topmast.model.reason import Change
from topmast.model.roles import Role
from topmast.model.views import Explanation
from topmast.ports import Mover
from topmast.runtime.loop import Runtime
from topmast.service import changes
from topmast.service import turns as turns_module
from topmast.service.blobs import Blobs
from topmast.service.event_stream import EventStream
from topmast.service.explain import explain_job, explain_spec, rejected_hosts
from topmast.service.live_progress import LiveProgress
from topmast.service.service import Service
from topmast.service.turns import TAKES, InTurns, Turns, take

FLEET = fleet(cluster("east-1", hosts=2), cluster("west-1", hosts=2), cluster("north-1", hosts=1))
ADMIN = Caller(Principal("user:chief", (Grant(Role.ADMIN),)))
ASKED = {"accelerators": "H100:8"}
LARGER = fleet(cluster("east-1", hosts=3), *[r.clusters[0] for r in FLEET.regions[1:]])
Between = Callable[[int], object]


class Slices(InTurns):
    """A look that pauses wherever it can; ``between`` is called each time, with its number."""

    def __init__(self, runtime: Runtime, between: Between) -> None:
        super().__init__(runtime, slice_s=0.0)
        self.between = between
        self.pauses = 0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """As of any look."""
        with super().aside():
            self.pauses += 1
            self.between(self.pauses)
            yield


@contextmanager
def full(disk: Disk | None = None) -> Iterator[Process]:
    """Five hosts that are full, and j6, which waits."""
    with running(disk) as process:
        process.call(m.ConfigureFleet(FLEET))
        process.call(m.SubmitJobs((job(gpus=8),) * 6))
        records = process.machines.queue.jobs.records
        process.until(lambda: sum(r.plan is not None for r in records.values()) == 5)
        process.until(lambda: records["j6"].plan is None)
        yield process


def _explain(process: Process, name: str, turns: Turns) -> Explanation:
    queue, placers = process.machines.queue, dict(process.machines.placers)
    return explain_job(queue, placers, queue.jobs.records[name], 1_000.0, turns=turns)


def _look(process: Process, between: Between = lambda number: None) -> tuple[Explanation, Slices]:
    made: list[Slices] = []

    def slices(runtime: object) -> Slices:
        made.append(Slices(process.runtime, between))
        return made[-1]

    return take(process.runtime, lambda turns: _explain(process, "j6", turns), slices), made[-1]


def test_in_slices_the_same_is_told() -> None:
    """An explanation with pauses between regions and trials is that in one piece."""
    with full() as process:
        whole = process.runtime.ask(lambda: _explain(process, "j6", turns_module.WHOLE))
        told, slices = _look(process)
        assert told == whole.result(PATIENCE_S)
        assert told.changes
        assert slices.pauses > 2 * len(FLEET.regions)
        assert slices.first_seq == slices.last_seq


def test_decisions_are_made_between_slices() -> None:
    """A job that is submitted in each pause is acknowledged there; the look says what it spans."""
    with full() as process:
        told, slices = _look(process, lambda number: process.call(m.SubmitJobs((job(gpus=8),))))
        assert told.reason == "InsufficientCapacity"
        assert slices.last_seq >= slices.first_seq + slices.pauses


def test_machines_have_their_own_time_between_slices() -> None:
    """What is decided there is not decided at the time of the look, and afterwards all is as it was."""
    times_s: list[float] = []
    with full() as process:
        machines = [process.machines.queue, *process.machines.placers.values()]

        def read() -> list[float]:
            return [machine.now for machine in machines]

        _look(
            process,
            lambda number: times_s.extend(process.runtime.ask(read).result(PATIENCE_S)),
        )
        times_s += process.runtime.ask(read).result(PATIENCE_S)
    assert max(times_s) < 1_000.0


@pytest.mark.parametrize(
    ("story", "change", "want"),
    [
        ("the job is cancelled", m.CancelJobs(("j6",)), "cancelled"),
        ("the fleet has one more host", m.ConfigureFleet(LARGER), "east"),
    ],
)
def test_what_would_be_false_is_looked_at_again(story: str, change: m.Message, want: str) -> None:
    """The answer is that of the state after the change."""
    takes: list[int] = []

    def between(number: int) -> None:
        takes.append(number)
        if len(takes) == 2:
            process.call(change)

    with full() as process:
        told, _ = _look(process, between)
        assert (told.reason, want in told.summary) == (None, True), told.summary


def test_a_look_is_taken_again_only_so_often() -> None:
    """A job that is held and released all the time: people are told so, and nothing stands still."""
    takes: list[int] = []

    def between(number: int) -> None:
        takes.append(number)
        held = process.machines.queue.jobs.records["j6"].hold
        act = m.HoldJobs(("j6",), "no") if not held else m.ReleaseJobs(("j6",))
        process.call(act)

    with full() as process:
        with pytest.raises(Unavailable, match="changed 4 times"):
            _look(process, between)
        assert takes == [1] * TAKES
        assert process.call(m.SubmitJobs((job(),)))


def test_a_fault_of_a_look_is_told_and_lets_the_machines_go() -> None:
    """If nothing has changed meanwhile it is not taken again."""

    def broken(turns: Turns) -> None:
        with turns.at([process.machines.queue], 5.0):
            turns.pause()
            raise ZeroDivisionError

    with full() as process:
        with pytest.raises(ZeroDivisionError):
            take(process.runtime, broken)
        assert process.call(m.SubmitJobs((job(),)), ids.QUEUE)


def test_a_look_ends_at_its_next_pause_once_its_client_has_left() -> None:
    """It is not taken again, and lets the machines go on with their own time."""

    async def story(process: Process) -> None:
        wanted, looks = Wanted(cast(asyncio.Task[None], asyncio.current_task())), list[int]()

        def look(turns: InTurns) -> Explanation:
            turns._slice_s = 0.0
            looks.append(len(looks))
            turns.pause()
            wanted.end(LEFT)
            told = _explain(process, "j6", turns)
            looks.append(-1)
            return told

        ANSWERED.set(wanted)
        with pytest.raises(Unavailable, match=LEFT):
            await turns_module.taken(process.runtime, look)
        assert looks == [0]
        assert process.runtime.ask(lambda: process.machines.queue.now).result(PATIENCE_S) < 1_000.0

    with full() as process:
        asyncio.run(story(process))


def test_dry_runs_and_the_hosts_of_a_picture_pause_too() -> None:
    """Each at least once a region."""
    with full() as process:
        queue, placers = process.machines.queue, dict(process.machines.placers)
        looks: list[Callable[[InTurns], object]] = [
            lambda turns: explain_spec(queue, placers, job(gpus=8), 1_000.0, (), turns),
            lambda turns: rejected_hosts(queue, placers, queue.jobs.records["j6"], 1_000.0, turns),
        ]
        for look in looks:
            made: list[Slices] = []

            def slices(runtime: object, made: list[Slices] = made) -> Slices:
                made.append(Slices(process.runtime, lambda number: None))
                return made[-1]

            assert take(process.runtime, look, slices)
            assert made[-1].pauses >= len(FLEET.regions)


class Kept(Disk):
    """A journal with no options."""

    def option(self, name: str) -> str | None:
        """Nothing is kept."""
        return None


def test_people_s_questions_do_not_hold_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a region's trials are made for an explanation or a dry run, a submission is answered."""
    tried: list[str] = []

    def trying(trials: Trials) -> Iterator[Change]:
        tried.extend(process.call(m.SubmitJobs((job(gpus=8),))))
        yield from region_changes(trials)

    monkeypatch.setattr(changes, "region_changes", trying)
    with full(Kept()) as process:
        service = Service(
            process.runtime, process.disk, Clock(), lambda *_: None, cast(Mover, None),
            Blobs(tmp_path), LiveProgress(), EventStream(0), lambda cluster, host: None,
        )  # fmt: skip

        async def ask() -> list[Explanation]:
            waits = await service.explain(ADMIN, "j6")
            return [waits, await service.dry_run(ADMIN, {"run": "x", "resources": ASKED}, "me")]

        for told in asyncio.run(ask()):
            assert told.reason == "InsufficientCapacity"
            assert told.changes
            assert told.from_event is not None
            assert told.to_event is not None
            assert 0 < told.from_event < told.to_event
    assert len(tried) >= 2 * len(FLEET.regions)
