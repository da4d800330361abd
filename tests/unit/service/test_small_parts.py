"""Small parts of the service: usage, the live_progress, the event_stream."""

import asyncio
from dataclasses import dataclass
from functools import partial

import pytest

from topmast.model import ids
from topmast.model.fleet import Fleet, RegionSpec
from topmast.model.messages import CopyProgress, HostUp, Progress, TaskPreparing
from topmast.model.prices import price_of
from topmast.ports import AttemptRow, HistoryRow, UsageDay
from topmast.service import event_stream as streams
from topmast.service.event_stream import KEPT, Batch, EventStream
from topmast.service.live_progress import LiveProgress
from topmast.service.usage import usage

# --- the event_stream ------------------------------------------------------------------------------------------


def test_an_event_of_a_host_is_of_no_job() -> None:
    """It is named in the detail; whoever reads the stream for jobs is not misled."""
    event_stream = EventStream(0)
    event_stream.publish(
        [HistoryRow(1.0, ids.host("h0"), "host-down", "h0 is gone", '{"host":"h0"}')]
    )
    ((event, _),) = event_stream.since(0)
    assert (event.job, event.detail) == ("", {"host": "h0"})


def test_of_many_events_at_once_the_last_are_kept() -> None:
    """The numbers go on as if each had been told, and a reader that comes back gets what is kept."""
    event_stream = EventStream(0)
    event_stream.publish([HistoryRow(1.0, f"j{n}", "submitted", "") for n in range(KEPT + 7)])
    assert event_stream.last_seq == KEPT + 7
    told = event_stream.since(0)
    assert [event.seq for event, _ in told] == list(range(8, KEPT + 8))
    assert (told[0].event.job, told[-1].event.job) == ("j7", f"j{KEPT + 6}")


# --- usage --------------------------------------------------------------------------------------------


def _attempt(start_s: float, end_s: float, kept_s: float, **more: object) -> AttemptRow:
    fields = {"tenant": "a", "user": "ann", "model": "H100", "gpus_milli": 2_000, **more}
    fields.setdefault("region", "east")
    return AttemptRow(
        job="j1", epoch=1, cluster="east-1", start_s=start_s, end_s=end_s,
        kept_s=kept_s, outcome="succeeded", **fields,  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass
class Period:
    """Attempts, and what a report from 3,600 s to 7,200 s says of tenant ``a``: attempts, held, kept, lost."""

    story: str
    attempts: list[AttemptRow]
    want: tuple[int, float, float, float] | None


PERIODS = [
    Period("within", [_attempt(3_600, 5_400, 1_800)], (1, 1.0, 1.0, 0.0)),
    Period("all of it lost", [_attempt(3_600, 5_400, 0)], (1, 1.0, 0.0, 1.0)),
    Period("begun before", [_attempt(0, 5_400, 2_700)], (1, 1.0, 0.5, 0.5)),
    Period("ended after", [_attempt(5_400, 9_000, 3_600)], (1, 1.0, 1.0, 0.0)),
    Period("longer than the period", [_attempt(0, 10_800, 10_800)], (1, 2.0, 2.0, 0.0)),
    Period("over before it", [_attempt(0, 3_600, 0)], None),
    Period("begun at its end", [_attempt(7_200, 9_000, 0)], None),
    Period("of no length", [_attempt(4_000, 4_000, 0)], None),
    Period("two", [_attempt(3_600, 5_400, 1_800)] * 2, (2, 2.0, 2.0, 0.0)),
    Period("half a GPU", [_attempt(3_600, 7_200, 0, gpus_milli=500)], (1, 0.5, 0.0, 0.5)),
    Period("no GPU", [_attempt(3_600, 7_200, 0, gpus_milli=0)], (1, 0.0, 0.0, 0.0)),
]


@pytest.mark.parametrize("case", PERIODS, ids=lambda case: case.story)
def test_usage_counts_what_lies_in_the_period(case: Period) -> None:
    """GPU-hours held are kept or lost; of an attempt in part, the same part of its kept work."""
    rows = usage(case.attempts, "tenant", 3_600.0, 7_200.0)
    if case.want is None:
        assert rows == ()
    else:
        (row,) = rows
        told = (row.attempts, row.held_gpu_h, row.kept_gpu_h, row.lost_gpu_h)
        assert told == pytest.approx(case.want)


@pytest.mark.parametrize(
    ("by", "want"),
    [
        ("tenant", ["b", "a"]),
        ("user", ["ann"]),
        ("gpu", ["A100", "H100", "-"]),
        ("label.team", ["x", "y", "-"]),
        ("label.none", ["-"]),
    ],
)
def test_usage_is_summed_by_what_is_asked_largest_first(by: str, want: list[str]) -> None:
    """Equal sums go by name; what has no key is told as a dash."""
    rows = [
        _attempt(0, 10, 0, labels='{"team":"y"}'),
        _attempt(0, 20, 0, tenant="b", model="A100", labels='{"team":"x","stage":"eval"}'),
        _attempt(0, 10, 0, model="", gpus_milli=0),
    ]  # fmt: skip
    assert [row.key for row in usage(rows, by, 0.0, 100.0)] == want


def test_what_kept_all_its_work_lost_nothing() -> None:
    """Not a hair less than nothing, which tables wrote as -0: here the parts are rounded up."""
    begun_s, ended_s = 1093859586.7742348, 1093859593.4152348
    rows = [_attempt(begun_s, ended_s, ended_s - begun_s, gpus_milli=8_000)]
    (row,) = usage(rows, "tenant", 0.0, ended_s)
    assert str(row.lost_gpu_h) == "0.0"


def test_idle_hours_are_those_of_the_period() -> None:
    """Of an attempt in part, the same part; of days of forgotten jobs, theirs."""
    rows = [_attempt(0, 7_200, 7_200, gpus_milli=1_000, idle_s=1_800.0)]
    day = UsageDay(0.0, "a", "ann", "east", "c", "H100", 1, 7_200.0, 0.0, 900.0)
    (row,) = usage(rows, "tenant", 0.0, 3_600.0)
    assert (row.held_gpu_h, row.idle_gpu_h) == (1.0, 0.25)
    (row,) = usage([], "tenant", 0.0, 86_400.0, [day])
    assert (row.held_gpu_h, row.idle_gpu_h) == (2.0, 0.25)


def test_what_was_held_has_a_cost() -> None:
    """By the price of the region, else of the fleet; what has none is counted by itself."""
    fleet = Fleet(
        (RegionSpec("east", (), prices={"H100": 3.0}), RegionSpec("west", ())),
        prices={"H100": 2.0},
    )
    rows = [
        _attempt(0, 3_600, 0, region="east"), _attempt(0, 3_600, 0, region="west"),
        _attempt(0, 1_800, 0, model="A100"),
    ]  # fmt: skip
    day = UsageDay(0.0, "a", "ann", "east", "c", "H100", 1, 7_200.0, 0.0)
    (row,) = usage(rows, "tenant", 0.0, 86_400.0, [day], price_of(fleet))
    assert (row.held_gpu_h, row.cost_usd, row.unpriced_gpu_h) == (7.0, 16.0, 1.0)
    (row,) = usage(rows, "tenant", 0.0, 86_400.0, [day], price_of(Fleet(())))
    assert (row.cost_usd, row.unpriced_gpu_h) == (0.0, 0.0)


# --- the live_progress ------------------------------------------------------------------------------------------


def _step(rank: int, step: int | None, epoch: int = 1, **metrics: float) -> Progress:
    return Progress("j1", epoch, rank, step, metrics, 0.0)


def test_the_board_shows_the_furthest_step_and_rank_0_s_metrics() -> None:
    """Ranks report in any order, and some say more than others."""
    live_progress = LiveProgress()
    for message in (
        _step(1, 5, loss=0.9),
        _step(0, 4, loss=0.5),
        _step(1, 3, loss=0.7),
        _step(2, None),
    ):
        assert live_progress.note(message)
    steps = live_progress.of_job("j1", 1)
    assert steps is not None
    assert (steps.step, steps.metrics) == (5, {"loss": 0.5})


def test_the_board_belongs_to_the_newest_attempt() -> None:
    """A late report of an older one is not shown, and the old one's steps are gone."""
    live_progress = LiveProgress()
    live_progress.note(_step(0, 50))
    live_progress.note(_step(0, 10, epoch=2))
    live_progress.note(_step(0, 60))
    assert live_progress.of_job("j1", 1) is None
    steps = live_progress.of_job("j1", 2)
    assert steps is not None
    assert steps.step == 10
    live_progress.forget("j1")
    assert live_progress.of_job("j1", 2) is None


def test_what_tasks_wait_for_is_told_once_with_how_many() -> None:
    """The last of each task counts, and an older attempt's is not shown."""
    live_progress = LiveProgress()
    for rank, why in ((0, "pulling image"), (1, "pulling image"), (2, "Pending"), (2, "Unhealthy")):
        assert live_progress.note(TaskPreparing("j1", 2, rank, why))
    assert live_progress.note(TaskPreparing("j1", 1, 3, "Pending"))
    steps = live_progress.of_job("j1", 2)
    assert steps is not None
    assert steps.preparing_text() == "pulling image (2 tasks); Unhealthy"


def test_the_board_takes_only_what_is_for_it() -> None:
    """All else is for the machines."""
    live_progress = LiveProgress()
    assert live_progress.note(CopyProgress("c1", 7))
    assert (live_progress.of_copy("c1"), live_progress.of_copy("c2")) == (7, 0)
    assert not live_progress.note(HostUp("h"))


# --- the event_stream --------------------------------------------------------------------------------------------


def _rows(*kinds: str) -> list[HistoryRow]:
    return [HistoryRow(0.0, "j1", kind, "text", '{"a":1}') for kind in kinds]


def test_events_are_numbered_and_kept_for_who_comes_back() -> None:
    """A reader goes on after the last number it saw; who was away too long gets what is left."""
    event_stream = EventStream(first_seq=100)
    event_stream.publish(_rows("one", "two"))
    event_stream.publish(_rows("three"))
    assert [(t.event.seq, t.event.kind) for t in event_stream.since(101)] == [
        (102, "two"),
        (103, "three"),
    ]
    assert event_stream.since(103) == []
    assert event_stream.since(0)[0].event.detail == {"a": 1}
    event_stream.publish(_rows(*["more"] * KEPT))
    assert len(event_stream.since(0)) == KEPT
    assert event_stream.last_seq == 103 + KEPT


def test_readers_hear_what_happens_as_it_happens() -> None:
    """First what was missed, then the news, a beat in silence, and the end."""

    async def read() -> list[list[str]]:
        event_stream = EventStream(first_seq=0)
        event_stream.publish(_rows("missed"))
        heard: list[list[str]] = []
        stream = event_stream.follow(0, beat_s=0.01)
        heard.append([told.event.kind for told in await anext(stream)])
        event_stream.publish(_rows("news", "more"))
        heard.append([told.event.kind for told in await anext(stream)])
        heard.append([told.event.kind for told in await anext(stream)])
        event_stream.close()
        heard += [[told.event.kind for told in batch] async for batch in stream]
        return heard

    assert asyncio.run(read()) == [["missed"], ["news", "more"], []]


def test_a_reader_who_leaves_is_forgotten() -> None:
    """Closing a stream frees its place."""

    async def leave() -> int:
        event_stream = EventStream(first_seq=0)
        event_stream.publish(_rows("one"))
        stream = event_stream.follow(0)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        return len(event_stream._readers)

    assert asyncio.run(leave()) == 0


@pytest.mark.parametrize(
    ("readers", "rest_s"), [(1, 0.02), (10, 0.2), (50, 1.0), (200, 1.0), (1_000, 5.0)]
)
def test_many_readers_are_woken_less_often(readers: int, rest_s: float) -> None:
    """Pages draw themselves anew once a second at most; to wake more costs the decisions."""
    assert streams._rest_s(readers) == pytest.approx(rest_s)


def test_readers_are_woken_together_however_often_something_happens() -> None:
    """One call on their loop serves many commits; what readers get of a batch is made once."""

    async def read() -> tuple[list[int], list[int], int]:
        event_stream = EventStream(first_seq=0)
        heard: list[list[int]] = [[], []]
        made = 0

        def make(batch: Batch) -> list[int]:
            nonlocal made
            made += 1
            return [told.event.seq for told in batch]

        async def reader(at: int) -> None:
            async for batch in event_stream.follow(0):
                heard[at] += batch.once("numbers", partial(make, batch))
                if heard[at][-1] == 100:
                    return

        readers = [asyncio.create_task(reader(at)) for at in range(2)]
        await asyncio.sleep(0)
        for _ in range(100):
            event_stream.publish(_rows("news"))
            await asyncio.sleep(0)
        await asyncio.gather(*readers)
        return heard[0], heard[1], made

    first, second, made = asyncio.run(read())
    assert first == second == list(range(1, 101))
    assert made < 20, "not one batch for each commit"
