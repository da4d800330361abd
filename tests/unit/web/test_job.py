"""The page of a job: why it waits or runs, as words, table and axis; its output, history and file."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from tests.support.entrance import URL, Entrance, entrance, run
from tests.unit.docs.test_reference import rows as rows_of_page
from tests.unit.web.support import local, submit
from topmast.api.wire import LARGEST
from topmast.fast.region import when_over
from topmast.model.access import Caller, Role
from topmast.model.reason import Change, ChangeKind, ClusterVerdict, Rejection
from topmast.model.states import JobState
from topmast.model.units import format_duration
from topmast.model.views import ExpectedStart, Explanation, RegionVerdict
from topmast.ports import LogPage
from topmast.service.forecast import with_start
from topmast.web import candidates as c
from topmast.web.assets import assets
from topmast.web.pages.job import BEYOND, _helps
from topmast.web.words import once, plain

BIG = {"accelerators": "H100:2"}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """j1 and j2 hold all GPUs, j3 waits, j4 can never run, j5 has ended."""
    with entrance(tmp_path_factory.mktemp("job")) as found:

        async def fill() -> None:
            async with local(found) as client:
                await submit(client, "ann", name="first", resources=BIG, envs={"A": "<b>1</b>"})
                await submit(client, "bob", name="second", tenant="speech", resources=BIG)
                await submit(client, "ann", name="third", resources=BIG)
                await submit(client, "ann", name="wide", resources={"accelerators": "H100:8"})
                await submit(client, "ann", name="over", resources=BIG)
                await client.post("/api/v1/jobs/j5/cancel", json={})

        run(fill)
        yield found


async def shown(client: httpx.AsyncClient, url: str) -> str:
    """A page that answers."""
    answer = await client.get(url)
    assert answer.status_code == 200, answer.text
    return answer.text


def words(text: str) -> str:
    """A page as text without tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))


@pytest.mark.parametrize(
    ("job", "want"),
    [
        ("j1", ["j1 is RUNNING in east/east-a", "Why here", "submitted by ann"]),
        ("j3", ["Where it could run", "east/east-a", "hosts", "Expected start", "What would help"]),
        (
            "j4",
            [
                "GPUs 8 H100 in 1 task",
                "No matching hardware",
                "Never, unless the job",
                "can never fit",
            ],
        ),
        ("j5", ["j5 was cancelled by local"]),
    ],
)
def test_it_says_why_the_job_stands_where_it_stands(
    door: Entrance, job: str, want: list[str]
) -> None:
    """In words, for each state."""

    async def story() -> None:
        async with local(door) as client:
            text = words(await shown(client, f"/jobs/{job}"))
            for part in want:
                assert part in text, part

    run(story)


def test_the_job_file_is_text(door: Entrance) -> None:
    """What users write stays text there too."""

    async def story() -> None:
        async with local(door) as client:
            text = await shown(client, "/jobs/j1")
            assert "&lt;b&gt;1&lt;/b&gt;" in text
            assert "<b>1</b>" not in text

    run(story)


def test_a_job_that_is_not_there_is_404(door: Entrance) -> None:
    """The same as of a tenant that the caller may not see."""

    async def story() -> None:
        token = await door.token("only-speech", (Role.SUBMITTER, "speech"))
        async with door.client(token) as client:
            answers = [await client.get(f"{URL}/jobs/{job}") for job in ("j1", "j999", "x")]
            assert [answer.status_code for answer in answers] == [404, 404, 404]
            text = await shown(client, f"{URL}/jobs/j2")
            assert "data-act" in text
            assert "first" not in text

    run(story)


def test_an_explanation_serves_for_a_while_and_not_after_an_act(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a search on the thread that decides: many open pages cost one."""
    asked: list[str] = []
    explain = type(door.service).explain

    async def counted(self: object, caller: object, job: str) -> Explanation:
        asked.append(job)
        return await explain(door.service, caller, job)  # type: ignore[arg-type]

    monkeypatch.setattr(type(door.service), "explain", counted)

    async def story() -> None:
        async with local(door) as client:
            new = await submit(client, "ann", name="looked-at", resources=BIG)
            for _ in range(3):
                await shown(client, f"/jobs/{new}")
            assert asked == [new]
            await client.post("/api/v1/jobs/hold", json={"jobs": [new]})
            assert "the job waits until it is released" in words(
                await shown(client, f"/jobs/{new}")
            )
            assert asked == [new, new]

    run(story)


def test_a_long_output_is_read_from_its_end(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its length, a page has 64 KiB of it, and links to what is before and after."""
    size, reads = 1_000_000_000, []

    def read(cluster: str, job: str, epoch: int, task: int, offset: int, limit: int) -> LogPage:
        at = min(offset, size)
        data = (b"line \x1b[31mred\x1b[0m <i>\n" * (limit // 10))[: min(limit, size - at)]
        reads.append(len(data))
        return LogPage(data, at + len(data), complete=at + len(data) >= size)

    monkeypatch.setattr(door.service, "read_log", read)

    async def story() -> None:
        async with local(door) as client:
            text = await shown(client, "/jobs/j1")
            assert "bytes 999,934,464 to 1,000,000,000 of 1,000,000,000" in text
            assert "line red &lt;i&gt;" in text
            assert "offset=999868928" in text
            first = await shown(client, "/jobs/j1?offset=0")
            assert "bytes 0 to 65,536" in first
            assert "offset=65536" in first
            part = await client.get("/jobs/j1", headers={"Topmast-Fragment": "1"})
            assert "line red" not in part.text
        assert sum(reads) <= 2 * 65_536

    run(story)


def test_the_end_of_an_output_is_asked_for_within_what_the_route_takes() -> None:
    """A larger offset would be refused, and no page showed any output."""
    script = assets().files["job-log.js"].data.decode()
    assert f"const BEYOND = 2 ** {BEYOND.bit_length() - 1};" in script
    assert BEYOND <= LARGEST


def test_output_moves_and_colours_nothing() -> None:
    """Sequences of terminals go, text stays."""
    assert plain("\x1b[1;31mred\x1b[0m\x1b]0;title\x07\x00\ttab\n") == "red\ttab\n"


def verdict(cluster: str, **terms: float) -> ClusterVerdict:
    """What the search found in a cluster with room."""
    return ClusterVerdict(cluster, (), True, 8.0, 8.0, score=sum(terms.values()), terms=terms)


def explanation(*verdicts: ClusterVerdict, start: ExpectedStart | None = None) -> Explanation:
    """Of a job that waits in a fleet with one region."""
    region = RegionVerdict("east", True, None, 0, 0.0, verdicts)
    return Explanation("j1", "n", "PENDING", "X", "s", (), (region,), (), expected_start=start)


def test_bars_have_one_scale() -> None:
    """What costs goes to the right of zero, what gains to the left, and none leaves the picture."""
    found = c.candidates(
        explanation(verdict("a", data=6.0, balance=-2.0), verdict("b", data=1.0, speed=1.0))
    )
    assert [(one.cluster, one.score) for one in found] == [("b", 2.0), ("a", 4.0)]
    by_term = {bar.term: bar for bar in found[1].bars}
    assert (by_term["balance"].x, by_term["balance"].width) == (0.0, c.WIDTH / 4)
    assert by_term["data"].x == c.WIDTH / 4
    assert by_term["data"].x + by_term["data"].width == pytest.approx(c.WIDTH)
    assert found[0].bars[0].width == pytest.approx(c.WIDTH / 8)


@pytest.mark.parametrize(
    ("told", "want"),
    [
        ("DataUnreachable (words)", "no link or no complete replica brings words there"),
        ("ResidencyForbids (patients)", "the residency of patients forbids it"),
        ("made of old (x)", "made of old (x)"),
    ],
)
@pytest.mark.parametrize("clusters", [(), (verdict("a"),)])
def test_a_region_that_is_ruled_out_is_so_in_words(
    told: str, want: str, clusters: tuple[ClusterVerdict, ...]
) -> None:
    """No token of the program stands where people read; also of a region without clusters."""
    region = RegionVerdict("east", True, told, 0, 0.0, clusters)
    (found,) = c.candidates(Explanation("j1", "n", "PENDING", "X", "s", (), (region,), ()))
    assert found.verdict == (f"ruled out: {want}" if clusters else want)


@pytest.mark.parametrize(
    ("start", "want"),
    [
        (None, None),
        (ExpectedStart(None, None, None, "beyond"), None),
        (ExpectedStart(1000.0, 1000.0, 1000.0, "now"), 0.0),
        (ExpectedStart(2000.0, 1500.0, 3000.0, "x"), c.AXIS / 2 / 1.08),
        (ExpectedStart(900.0, 900.0, 900.0, "past"), 0.0),
    ],
)
def test_the_axis_begins_now_and_ends_after_the_latest_start(
    start: ExpectedStart | None, want: float | None
) -> None:
    """Without a forecast there is none."""
    found = c.axis_of(explanation(start=start), 1000.0)
    assert (None if found is None else found.at.x) == (
        None if want is None else pytest.approx(want)
    )


def test_the_axis_says_once_when_something_is_expected() -> None:
    """The time is that of the axis; the text of the change has one of its own."""
    change = Change(
        ChangeKind.ENDS, "the end of j4, expected in 20m39s: there is room", 1.0, at_s=1500.0
    )
    start = ExpectedStart(2000.0, 1500.0, 3000.0, "x")
    told = replace(explanation(start=start), changes=(change,))
    found = c.axis_of(told, 1000.0)
    assert found is not None
    assert [words for _, words in found.events] == ["the end of j4: there is room"]


@pytest.mark.parametrize(
    ("span_s", "want"),
    [
        (64.8, ("0s", "15s", "30s", "45s", "1m")),
        (5 * 316.0, ("0s", "5m", "10m", "15m", "20m", "25m")),
        (3600.0, ("0s", "10m", "20m", "30m", "40m", "50m", "1h")),
        (6 * 3600.0 + 60, ("0s", "2h", "4h", "6h")),
        (5 * 86400.0, ("0s", "1d", "2d", "3d", "4d", "5d")),
        (3650 * 86400.0, ("0s", "1000d", "2000d", "3000d")),
    ],
)
def test_the_ticks_of_an_axis_are_round(span_s: float, want: tuple[str, ...]) -> None:
    """As a clock has them, not parts of the axis such as 5m16s."""
    assert tuple(format_duration(at_s) for at_s in c.round_ticks_s(span_s)) == want


def test_the_axis_of_an_expected_start_has_round_ticks() -> None:
    found = c.axis_of(explanation(start=ExpectedStart(2463.0, 2463.0, 2463.0, "x")), 1000.0)
    assert found is not None
    assert [tick.at_s - 1000.0 for tick in found.ticks] == [
        0.0,
        300.0,
        600.0,
        900.0,
        1200.0,
        1500.0,
    ]
    assert [tick.x for tick in found.ticks] == sorted(tick.x for tick in found.ticks)


def test_each_rejection_has_the_sentence_of_the_reference() -> None:
    """One meaning, in one set of words."""
    told = {
        row[0].strip("`"): row[2] for row in rows_of_page("states.md", "Why a place was not chosen")
    }
    assert {reason.value: c.MEANING[reason] for reason in Rejection} == told


@pytest.mark.parametrize(
    ("change", "edit", "try_out"),
    [
        (Change(ChangeKind.PRIORITY, "x", 1.0, to="HIGH"), {"priority": "high"},
         "/whatif?job=j1&change=priority%3Dhigh"),
        (Change(ChangeKind.PREEMPTIBLE, "x", 1.0, to="true"), {"preemptible": True},
         "/whatif?job=j1&change=preemptible%3Dtrue"),
        (Change(ChangeKind.HOSTS, "x", 1.0, cluster="a-1", to=2.0), None, "/whatif?add=a-1&count=2"),
        (
            Change(ChangeKind.QUOTA, "x", 1.0, was=8.0, to=16.0, added_gpus={"vision": {"H100": 8}}),
            None, "/whatif?quota=vision%3AH100&gpus=16",
        ),
        (
            Change(ChangeKind.QUOTA, "x", 1.0, to=16.0, added_gpus={"a": {"H100": 8}, "b": {"H100": 8}}),
            None, "",
        ),
        (Change(ChangeKind.TASKS, "x", 1.0, to=2.0), None, ""),
    ],
    ids=["an edit", "leave to be preempted", "more hosts", "a larger quota", "two quotas", "a smaller job"],
)  # fmt: skip
def test_what_would_help_leads_to_what_can_show_it(
    change: Change, edit: dict[str, object] | None, try_out: str
) -> None:
    """A what-if is filled in; where none can show it there is no button."""
    found = _helps(replace(explanation(), changes=(change,), would_help=("x", "y")))
    assert [(one.text, one.edit, one.try_out) for one in found] == [
        ("x", edit, try_out), ("y", None, ""),
    ]  # fmt: skip
    assert [bool(one.why_no_act) for one in found] == [edit is None, True]


def page_of(
    door: Entrance, monkeypatch: pytest.MonkeyPatch, told: Callable[[float], Explanation]
) -> str:
    """The page of a job that waits, in words, if this explains it; it is given the time."""
    now_s = door.service.clock.now()

    async def explain(self: object, caller: object, job: str) -> Explanation:
        return replace(told(now_s), job=job)

    monkeypatch.setattr(type(door.service), "explain", explain)
    pages = []

    async def story() -> None:
        async with local(door) as client:
            new = await submit(client, "ann", name="explained", resources=BIG)
            pages.append(words(await shown(client, f"/jobs/{new}")))

    run(story)
    return pages[0]


MORE = Change(ChangeKind.HOSTS, "2 more hosts in a-1", 1.0, cluster="a-1", to=2.0)
HOUR_S = 3_600.0


@pytest.mark.parametrize(
    ("ends_s", "want"),
    [
        (3 * HOUR_S, "The expected start counts on it."),
        (HOUR_S, "Expected in 1h ; yet jobs before this one are expected to take that room, so "
         "that it starts in 3h"),
        (None, "The job is expected to start no later than that."),
    ],
    ids=["what it waits for", "what others take", "what comes later"],
)  # fmt: skip
def test_one_job_has_one_expected_start_on_its_page(
    door: Entrance, monkeypatch: pytest.MonkeyPatch, ends_s: float | None, want: str
) -> None:
    """What would help is told by the forecast of the start, as a difference from that."""

    def told(now_s: float) -> Explanation:
        at_s = now_s + 3 * HOUR_S + 20.0
        start = ExpectedStart(at_s, at_s, at_s, "given durations", "the end of j9")
        ends = {} if ends_s is None else {"j4": now_s + ends_s + 20.0}
        when, over_s = when_over(("j4",), now_s + 1_239.0, now_s, ends)
        text = f"the end of j4{when}: there is room"
        over = Change(ChangeKind.ENDS, text, 1.0, jobs=("j4",), at_s=over_s)
        base = replace(
            explanation(),
            reason="WaitingForJobs",
            changes=(over, MORE),
            would_help=(over.text, MORE.text),
        )
        return with_start(base, start)

    text = page_of(door, monkeypatch, told)
    (start,) = re.findall(r"Starts in 3h \( (\S+ \S+ UTC) \)\. It waits for the end of j9 \.", text)
    assert want in text
    assert f"as soon as that is so, instead of in 3h ( {start} )." in text
    assert "20m39s" not in text


@pytest.mark.parametrize(
    ("start", "reason", "want"),
    [
        (None, "InsufficientCapacity", "Not known yet"),
        (
            ExpectedStart(None, None, None, "too far"),
            "InsufficientCapacity",
            "No start is foreseen: too far",
        ),
        (None, "ExceedsMaxQuota", "Never, unless the job, the fleet or a limit changes"),
        (None, "Held", "Not before it is released"),
    ],
)
def test_a_start_that_is_not_known_is_told_in_one_way(
    door: Entrance, monkeypatch: pytest.MonkeyPatch, start: ExpectedStart | None, reason: str,
    want: str,
) -> None:  # fmt: skip
    """The words are those of the command line and of the queue."""
    told = replace(with_start(explanation(), start), reason=reason)
    assert f"Expected start {want} ." in page_of(door, monkeypatch, lambda now_s: told)


@pytest.mark.parametrize("reason", ["ExceedsMaxQuota", "WaitingForQuota", "Held", "TenantPaused"])
def test_a_place_with_room_says_what_keeps_the_job_from_it(reason: str) -> None:
    """`fits now` would stand beside `never`."""
    (found,) = c.candidates(replace(explanation(verdict("a")), reason=reason))
    assert not found.fits
    assert found.verdict == f"has room, but {c.KEPT_BY[reason]}"
    (now,) = c.candidates(replace(explanation(verdict("a")), reason=None))
    assert (now.fits, now.verdict) == (True, "fits now")


@pytest.mark.parametrize(
    ("text", "kind", "want"),
    [
        ("preempting: preempted by ann", "PREEMPTING", "preempted by ann"),
        ("preempting: preempting: x", "PREEMPTING", "x"),
        ("cancelled by ann", "CANCELLED", "by ann"),
        ("placed in east/east-a on 2 H100", "placed", "in east/east-a on 2 H100"),
        ("Running", "RUNNING", ""),
    ],
)
def test_the_history_says_no_word_twice(text: str, kind: str, want: str) -> None:
    assert once(text, kind) == want


def test_the_map_of_the_fleet_has_notes_for_a_job(door: Entrance) -> None:
    """Each cluster with its verdict and its rejected hosts by reason, for the map and as text."""

    async def story() -> None:
        async with local(door) as client:
            text = await shown(client, "/fleet?job=j3")
            given = json.loads(text.split('<script type="application/json">')[1].split("<")[0])
            assert given == {
                "notes": {"east/east-a": ["✗ no room now", "2 hosts: too few GPUs free"]},
                "name": "j3",
                "reasons": {"TooFewFreeGpus": "too few GPUs free"},
                "hosts": {"east-a-0": "TooFewFreeGpus", "east-a-1": "TooFewFreeGpus"},
            }
            assert words(text).count("Why not j3") == 1
            assert "east/east-a : no room now ; 2 hosts: too few GPUs free" in words(text)
            assert "j5 is over" in words(await shown(client, "/fleet?job=j5"))
            assert "/fleet?job=j3" in await shown(client, "/jobs/j3")

    run(story)


def test_a_job_that_changes_while_it_is_explained_is_told_as_of_one_moment(tmp_path: Path) -> None:
    """State, acts and sentence of the page agree, also where the job ended in between."""
    with entrance(tmp_path) as door:
        explain = door.service.explain

        async def story() -> None:
            async with local(door) as client:
                late = await submit(client, resources=BIG)

                async def explained(caller: Caller, job: str) -> Explanation:
                    await client.post(f"/api/v1/jobs/{job}/cancel", json={})
                    for _ in range(500):
                        if (await door.service.job(caller, job)).state == JobState.CANCELLED:
                            break
                        await asyncio.sleep(0.01)
                    return await explain(caller, job)

                explained.__name__ = "explain"
                door.service.explain = explained  # type: ignore[method-assign]
                text = words(await shown(client, f"/jobs/{late}"))
            assert "Cancelled" in text
            assert "Running" not in text
            assert f"{late} is CANCELLED" not in text

        run(story)


def test_a_place_without_gpus_is_told_without_a_model(tmp_path: Path) -> None:
    """No comma stands where there is no model."""
    with entrance(tmp_path) as door:

        async def story() -> None:
            async with local(door) as client:
                job = await submit(client, resources={"cpus": 1})
                text = words(await shown(client, f"/jobs/{job}"))
            assert "/east-a within one host" in text

        run(story)
