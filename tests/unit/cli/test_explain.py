"""`explain`: every region and every cluster is accounted for."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer
from topmast.model.reason import ClusterVerdict, Count, Rejection
from topmast.model.views import ExpectedStart, Explanation, PlanView, RegionVerdict

TERMS = {"bands": 0.5, "data": 0.25, "lost work": 1.75}


def plan(region: str, cluster: str, score: float, *victims: dict[str, Any]) -> PlanView:
    return PlanView(
        region, cluster, "H100", ("h0", "h1"), "rack", score, TERMS, victims, False, 0, 12.0
    )


WAITING = Explanation(
    job="j7",
    name="[bold]resnet\x1b[2J",
    state="PENDING",
    reason="InsufficientCapacity",
    summary="2 tasks with 8 H100 each: no cluster has room now",
    would_help=("more free GPUs in west-1: 4 of 32 are free",),
    regions=(
        RegionVerdict(
            "east", True, None, 0, 0.0,
            (
                ClusterVerdict(
                    "east-1",
                    (Count(Rejection.TOO_FEW_GPUS, 3), Count(Rejection.HOST_UNAVAILABLE, 1, "h3")),
                    True, 4.0, 32.0,
                ),
                ClusterVerdict("east-2", (), False, 2.0, 2.0, 2.0),
                ClusterVerdict(
                    "east-3", (Count(Rejection.TOO_FEW_GPUS, 2),), True, 0.0, 16.0,
                    hosts=2, spared=(Count(Rejection.BAND_NOT_LOWER, 3),),
                ),
            ),
        ),
        RegionVerdict(
            "west", True, None, 150_000_000_000, 1200.0,
            (
                ClusterVerdict("west-1", (), True, 4.0, 32.0, 16.0, 2.5, TERMS, ("j3", "j4")),
                ClusterVerdict("west-2", (), True, 16.0, 16.0, 16.0, 3.25, TERMS),
            ),
        ),
        RegionVerdict(
            "south", True, "ResidencyForbids (only east)", 0, 0.0,
            (ClusterVerdict("south-1", (Count(Rejection.RESIDENCY, 2, "d"),), False, 16.0, 16.0),),
        ),
        RegionVerdict("north", False, None, 0, 0.0, ()),
    ),
    plans=(
        plan("west", "west-1", 2.5,
             {"job": "j3", "tenant": "nlp", "band": "low", "lost_gpu_s": 480.0,
              "restart_gpu_s": 30.0, "price": 2.8333},
             {"job": "j4"}),
        plan("west", "west-2", 3.25),
    ),
    warnings=("the dataset grows",),
)  # fmt: skip


@pytest.fixture
def explained(server: FakeServer, call: Call) -> list[list[str]]:
    """What is said of the job that waits: its lines, cut where two spaces are."""
    server.on("GET", "/jobs/j7/explain", WAITING)
    return [re.split(r"  +", line.strip()) for line in call("explain", "j7").out.splitlines()]


def test_the_summary_comes_first(explained: list[list[str]]) -> None:
    """One sentence, then the dominant reason and the forecast, as far as there is one."""
    assert explained[0] == ["2 tasks with 8 H100 each: no cluster has room now"]
    assert ["job", "j7", "[bold]resnet\\x1b[2J"] in explained
    assert ["reason", "InsufficientCapacity"] in explained
    assert ["expected start", "not known yet"] in explained


@pytest.mark.parametrize(
    "want",
    [
        ["east", "(all)", "no cluster fits", "6", "50", "-", "none"],
        ["east", "east-1", "TooFewFreeGpus 3, HostUnavailable 1 (h3)", "4", "32", "-", "-"],
        ["east", "east-2", "can never fit: at most 2 GPUs together", "2", "2", "-", "-"],
        [
            "east",
            "east-3",
            "TooFewFreeGpus 2; running jobs spared: BandNotLower 3",
            "0",
            "16",
            "-",
            "-",
        ],
        ["west", "(all)", "fits", "20", "48", "2.5", "150GB in 20m"],
        ["west", "west-1", "fits if j3, j4 would stop", "4", "32", "2.5", "-"],
        ["west", "west-2", "fits", "16", "16", "3.25", "-"],
        ["south", "(all)", "ResidencyForbids (only east)", "16", "16", "-", "-"],
        ["south", "south-1", "barred", "16", "16", "-", "-"],
        ["north", "(all)", "unreachable", "0", "0", "-", "-"],
    ],
    ids=lambda want: f"{want[0]} {want[1]}",
)
def test_every_place_has_its_row(want: list[str], explained: list[list[str]]) -> None:
    """Each region and each cluster says why not, or how good it would be."""
    assert want in explained


def test_plans_stand_side_by_side(explained: list[list[str]]) -> None:
    """Term by term, a column for each."""
    assert ["TERM", "west/west-1", "west/west-2"] in explained
    assert ["score", "2.5", "3.25"] in explained
    assert ["lost work", "1.75", "1.75"] in explained
    assert ["hosts", "h0,h1", "h0,h1"] in explained
    assert ["wait for data", "12s", "12s"] in explained


def test_no_plan_is_said_to_be_chosen_when_none_is(
    server: FakeServer, call: Call, explained: list[list[str]]
) -> None:
    """Of a job that waits, plans in the order of their scores are only that."""
    assert ["The plans, term by term (the lowest score first)"] in explained
    starts = msgspec.structs.replace(WAITING, reason=None)
    server.on("GET", "/jobs/j7/explain", starts)
    assert "(the chosen plan first, then the lowest score)" in call("explain", "j7").out


def test_a_job_whose_data_is_unknown(server: FakeServer, call: Call) -> None:
    """It can start once the data is there, and how much there is to bring is not known yet."""
    unknown = msgspec.structs.replace(WAITING, reason="UnknownDataset")
    server.on("GET", "/jobs/j7/explain", unknown)
    out = call("explain", "j7").out
    assert "expected start  not before the catalogue has all its datasets" in out
    rows = [line.split() for line in out.splitlines()]
    assert [row[-1] for row in rows if row[:2] == ["east", "(all)"]] == ["unknown"]
    assert ["wait", "for", "data", "unknown", "unknown"] in rows
    assert "never" not in out.partition("REGION")[0]


def test_victims_have_their_price(explained: list[list[str]]) -> None:
    """Who would have to stop, and the work that would be lost."""
    assert ["west/west-1", "j3", "nlp", "low", "480.0", "30.0", "2.833"] in explained
    assert ["west/west-1", "j4", "-", "-", "-", "-", "-"] in explained


def test_what_would_help(explained: list[list[str]]) -> None:
    """The remedies come last."""
    assert explained[-2:] == [
        ["What would help"],
        ["- more free GPUs in west-1: 4 of 32 are free"],
    ]


def test_help_does_not_repeat_a_warning(server: FakeServer, call: Call) -> None:
    """A dry run warns of what is too much of the job; elsewhere the same words are help."""
    said = "num_nodes: no cluster could hold 9 tasks"
    told = msgspec.structs.replace(
        WAITING, warnings=(said,), would_help=("1 task instead of 9", said)
    )
    server.on("GET", "/jobs/j7/explain", told)
    called = call("explain", "j7")
    assert called.error == f"warning: {said}"
    assert called.out.splitlines()[-2:] == ["What would help", "  - 1 task instead of 9"]
    server.on("GET", "/jobs/j7/explain", msgspec.structs.replace(told, would_help=(said,)))
    assert "What would help" not in call("explain", "j7").out
    server.on("GET", "/jobs/j7/explain", msgspec.structs.replace(told, warnings=()))
    assert call("explain", "j7").out.splitlines()[-1] == f"  - {said}"


def test_warnings_go_to_stderr(server: FakeServer, call: Call) -> None:
    """They are not part of the answer, but of its document."""
    server.on("GET", "/jobs/j7/explain", WAITING)
    assert call("explain", "j7").error == "warning: the dataset grows"
    called = call("explain", "j7", "--json")
    assert called.err == ""
    assert msgspec.convert(called.document, Explanation) == WAITING


def test_a_job_that_runs(server: FakeServer, call: Call) -> None:
    """There is little to explain, and no empty table."""
    runs = Explanation("j7", "resnet", "RUNNING", None, "j7 is RUNNING in east/east-1", (), (), ())
    server.on("GET", "/jobs/j7/explain", runs)
    out = call("explain", "j7").out
    assert "REGION" not in out
    assert "TERM" not in out
    assert "reason" not in out


def test_a_forecast_is_shown(server: FakeServer, call: Call) -> None:
    """When there is one, with what it rests on."""
    forecast = msgspec.structs.replace(WAITING, expected_start_s=1e9, basis="j3 ends by then")
    server.on("GET", "/jobs/j7/explain", forecast)
    out = call("explain", "j7").out
    assert "expected start  2001-09-0" in out
    assert "basis           j3 ends by then" in out


def test_on_a_terminal(server: FakeServer, terminal: Callable[..., Any]) -> None:
    """With colours, and names that are names."""
    server.on("GET", "/jobs/j7/explain", WAITING)
    screen = terminal("explain", "j7", columns=160)
    assert "\x1b[2J" not in screen.text
    assert "[bold]resnet\\x1b[2J" in screen.text
    assert "unreachable" in screen.text


@pytest.mark.parametrize(
    ("columns", "plans", "want_shown", "want_more"),
    [
        (80, 4, 3, "1 more plan: --json shows all"),
        (50, 4, 1, "3 more plans: --json shows all"),
        (120, 4, 4, ""),
        (200, 7, 5, "2 more plans: --json shows all"),
        (36, 1, 1, ""),
        (30, 1, 1, ""),
    ],
)
def test_plans_keep_their_words_on_a_narrow_terminal(
    columns: int, plans: int, want_shown: int, want_more: str,
    server: FakeServer, terminal: Callable[..., Any],
) -> None:  # fmt: skip
    """There are fewer side by side, and it is said how many are left out."""
    terms = {"preemption": 0.123456, "fragmentation": 1.25, "data": 0.0}
    hosts = ("west-1-10", "west-1-11")
    many = tuple(
        msgspec.structs.replace(plan("west", f"west-{n}", n), terms=terms, hosts=hosts)
        for n in range(plans)
    )
    server.on("GET", "/jobs/j7/explain", msgspec.structs.replace(WAITING, plans=many))
    text = terminal("explain", "j7", columns=columns, NO_COLOR="1").text
    lines = [line.rstrip() for line in text.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("TERM"))
    assert lines[first].split() == ["TERM", *(f"west/west-{n}" for n in range(want_shown))]
    assert [line for line in lines[first:] if "more plan" in line] == [want_more] * bool(want_more)
    table = "\n".join(lines[first:])
    assert re.search(r"^  fragmentation +1\.25", table, re.MULTILINE)
    assert table.count("west-1-10,") == table.count("west-1-11") == want_shown


def test_no_line_is_wider_than_a_terminal(server: FakeServer, terminal: Callable[..., Any]) -> None:
    """Sentences and lists are broken between words."""
    words = "it waits for 64 GPUs that hold jobs of a higher band, which " * 4
    gone = [{"job": f"j{n}"} for n in range(100, 140)]
    barred = RegionVerdict("europe-west-4", False, f"RegionUnreachable ({words})", 0, 0.0, ())
    for told in (
        msgspec.structs.replace(WAITING, summary=words),
        msgspec.structs.replace(WAITING, summary=words, regions=(barred,), would_help=(words,)),
        msgspec.structs.replace(
            WAITING, state="RUNNING", reason=None, regions=(), summary=words,
            plans=(plan("west", "west-1", 2.5, *gone),),
        ),
    ):  # fmt: skip
        server.on("GET", "/jobs/j7/explain", told)
        lines = terminal("explain", "j7", columns=80, NO_COLOR="1").text.splitlines()
        assert max(len(line.rstrip()) for line in lines) <= 80
        assert any(line.startswith("it waits for 64 GPUs") for line in lines)


def test_what_was_stopped_for_a_job_is_named(server: FakeServer, call: Call) -> None:
    """Once it has its place, what has gone has no price any more: no row of dashes."""
    placed = msgspec.structs.replace(
        WAITING, state="RUNNING", reason=None, regions=(), would_help=(), warnings=(),
        plans=(plan("west", "west-1", 2.5, {"job": "j3"}, {"job": "j4"}),),
    )  # fmt: skip
    server.on("GET", "/jobs/j7/explain", placed)
    out = call("explain", "j7").out
    assert "Stopped for it: j3, j4" in out
    assert "What would have to stop" not in out


def test_what_a_job_waits_for_until_its_start_is_told(server: FakeServer, call: Call) -> None:
    """As on its page; nothing where the basis says it."""
    for waits_for, want in (
        ("the end of j3 and j4", ["waits for       the end of j3 and j4"]),
        ("", []),
    ):
        start = ExpectedStart(2_000.0, 1_900.0, 2_100.0, "given durations", waits_for)
        told = msgspec.structs.replace(
            WAITING, expected_start_s=2_000.0, basis=start.basis, expected_start=start
        )
        server.on("GET", "/jobs/j7/explain", told)
        lines = call("explain", "j7").out.splitlines()
        assert [line for line in lines if line.startswith("waits for")] == want


@pytest.mark.parametrize(
    ("reason", "suspended", "want"),
    [
        ("Held", False, "not before it is released"),
        ("Held", True, "not before it is resumed"),
        ("TenantPaused", False, "not before its tenant is resumed"),
        ("TopologyDoesNotFit", False, "never, unless the job, the fleet or a limit changes"),
    ],
)
def test_when_a_job_starts_that_people_keep(
    reason: str, suspended: bool, want: str, server: FakeServer, call: Call
) -> None:
    """It is known what has to happen first, whatever words people gave as their reason."""
    summary = "the job waits: held by ann: until it is resumed by bob"
    kept = msgspec.structs.replace(WAITING, reason=reason, summary=summary, suspended=suspended)
    server.on("GET", "/jobs/j7/explain", kept)
    assert f"expected start  {want}" in call("explain", "j7").out
