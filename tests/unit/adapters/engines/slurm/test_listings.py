"""What Slurm's commands print, as recorded from Slurm 22.05 and made worse."""

from collections.abc import Sequence
from typing import Any

import pytest

from topmast.adapters.engines.far.launcher import Host, Listed, State, Unreachable
from topmast.adapters.engines.far.slurm import SlurmOptions, listings
from topmast.adapters.engines.far.slurm.listings import host_format, job_format, new_mark
from topmast.model.fleet import HostSpec

MARK = "|a-mark|"
JOBS = """\
13|tm-f-j13-1-0|PENDING|1795414089|N/A|0|2-2|PartitionDown
2|tm-f-j2-1-0|CANCELLED|1795414120|1795414122|0|2|JobHeldUser
1|tm-f-j1-1-0|COMPLETED|1795414089|1795414090|0|1|None
17|tm-f-j17-1-0|PENDING|1795414091|N/A|0|2|JobHeldUser
5|tm-f-j5-1-0|RUNNING|1795414091|1795414093|0|1|None
6|other|RUNNING|1795414091|1795414093|0|1|None
7|tm-f2-j1-1-0|RUNNING|1795414091|1795414093|0|1|None
"""


def marked(said: str, fields: int) -> str:
    """What is said with bars between fields, as it is said with a mark behind each."""
    rows = (line.split("|", fields - 1) for line in said.splitlines())
    return "".join("".join(f"{field}{MARK}" for field in row) + "\n" for row in rows)


def read_jobs(said: str, prefix: str, own: Sequence[str] = ()) -> tuple[Listed, ...]:
    return listings.read_jobs(marked(said, 8), MARK, prefix, own)


def test_a_listing_has_the_parts_of_the_fleet() -> None:
    """Held, waiting, running and ended; jobs of others are left out."""
    found = {listed.id: listed for listed in read_jobs(JOBS, "tm-f-")}
    assert {key: listed.state.value for key, listed in found.items()} == {
        "13": "waiting", "2": "ended", "1": "ended", "17": "held", "5": "running",
    }  # fmt: skip
    running = Listed("tm-f-j5-1-0", "5", 1795414091.0, State.RUNNING, run="5@1795414093", hosts=1)
    assert found["5"] == running, "it is this run of the job: a later one began at another time"
    assert found["17"].run == ""
    assert found["17"].hosts == 0, "only of what runs it is said"
    assert [key for key, listed in found.items() if listed.evicted] == ["2"]
    assert read_jobs("", "tm-f-") == ()


def test_a_part_that_was_recorded_is_listed_by_any_name() -> None:
    """A task may rename its job; of another submission under that number nothing is known."""
    said = marked("1|innocent|RUNNING|5|6|0|1|None\n1|innocent|RUNNING|7|8|0|1|None\n", 8)
    known = {("1", 5.0)}
    found = listings.read_jobs(said, MARK, "tm-f-", (), lambda *which: which in known)
    assert [(one.name, one.id, one.submitted_s) for one in found] == [("innocent", "1", 5.0)]


@pytest.mark.parametrize(
    ("word", "want", "evicted"),
    [
        ("PENDING", State.WAITING, False),
        ("REQUEUED", State.WAITING, False),
        ("SPECIAL_EXIT", State.WAITING, False),
        ("CONFIGURING", State.RUNNING, False),
        ("COMPLETING", State.RUNNING, False),
        ("SUSPENDED", State.RUNNING, False),
        ("STAGE_OUT", State.RUNNING, False),
        ("OF_A_LATER_SLURM", State.RUNNING, False),
        ("COMPLETED", State.ENDED, False),
        ("FAILED", State.ENDED, False),
        ("NODE_FAIL", State.ENDED, False),
        ("BOOT_FAIL", State.ENDED, False),
        ("OUT_OF_MEMORY", State.ENDED, False),
        ("CANCELLED", State.ENDED, True),
        ("TIMEOUT", State.ENDED, True),
        ("PREEMPTED", State.ENDED, True),
        ("DEADLINE", State.ENDED, True),
    ],
)
def test_every_state_has_its_meaning(word: str, want: State, evicted: bool) -> None:
    """A state that is not known is one in which processes may live."""
    (found,) = read_jobs(f"1|tm-f-a|{word}|5|6|0|1|None", "tm-")
    assert (found.state, found.evicted) == (want, evicted)
    assert found.code == (137 if word == "OUT_OF_MEMORY" else None), "at fault is the job alone"


@pytest.mark.parametrize(
    ("word", "status", "reason", "want"),
    [
        ("PENDING", "0", "Resources", "Resources"),
        ("PENDING", "0", "ReqNodeNotAvail, UnavailableNodes:a|b", "ReqNodeNotAvail, UnavailableNodes:a|b"),
        ("PENDING", "0", "BadConstraints", "BadConstraints: the hosts can never give this"),
        ("PENDING", "0", "PartitionConfig", "PartitionConfig: the partition cannot give this"),
        ("PENDING", "0", "None", ""),
        ("PENDING", "0", "JobHeldAdmin", "JobHeldAdmin: an administrator holds it"),
        ("RUNNING", "0", "None", ""),
        ("COMPLETED", "0", "None", "COMPLETED"),
        ("FAILED", "256", "NonZeroExitCode", "FAILED: NonZeroExitCode (status 1)"),
        ("FAILED", "32512", "NonZeroExitCode", "(status 127): is there a `python3`"),
        ("CANCELLED", "9", "None", "CANCELLED (signal 9)"),
        ("NODE_FAIL", "odd", "None", "NODE_FAIL"),
    ],
)  # fmt: skip
def test_why_a_part_waits_or_ended(word: str, status: str, reason: str, want: str) -> None:
    """In Slurm's words, and with what to do where that is known."""
    (found,) = read_jobs(f"1|tm-f-a|{word}|5|6|{status}|1|{reason}", "tm-")
    assert want in found.why
    assert bool(want) == bool(found.why)


@pytest.mark.parametrize(
    ("word", "reason", "want"),
    [
        ("PENDING", "BadConstraints", True),
        ("PENDING", "AccountNotAllowed", True),
        ("PENDING", "Job's account not known, so it can't use this partition (a allows b)", True),
        ("PENDING", "Job's QOS not permitted to use this partition (a allows b)", True),
        ("PENDING", "Resources", False),
        ("PENDING", "JobHeldUser", False),
        ("PENDING", "PartitionDown", False),
        ("RUNNING", "BadConstraints", False),
        ("CANCELLED", "BadConstraints", False),
    ],
)
def test_what_does_not_come_by_itself_is_told_from_what_does(
    word: str, reason: str, want: bool
) -> None:
    """What an administrator holds or closes may be let go; what the hosts lack does not come."""
    (found,) = read_jobs(f"1|tm-f-a|{word}|5|6|0|1|{reason}", "tm-")
    assert found.never is want


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("AccountNotAllowed", ("vision",)),
        ("Job's account not known, so it can't use this partition (a allows b)", ("vision",)),
        ("InvalidQOS", ("vision",)),
        ("BadConstraints", None),
        ("PartitionTimeLimit", None),
        ("Resources", None),
    ],
)
def test_what_all_jobs_would_wait_for_is_told(reason: str, want: tuple[str, ...] | None) -> None:
    """But for tenants with options of their own: these may be what is wrong."""
    (found,) = read_jobs(f"1|tm-f-a|PENDING|5|6|0|1|{reason}", "tm-", ["vision"])
    assert found.everyone_but == want


@pytest.mark.parametrize(
    "line",
    [
        "slurm_load_jobs error: Unable to contact slurm controller",
        "1|tm-f-a|RUNNING|Unknown|6|0|1|None",
        "1|tm-f-a|RUNNING|5|0|None",
        "1|tm-f-a|RUNNING|5",
        "welcome 1|tm-f-a|RUNNING|5|6|0|1|None",
        "\x00\xff|",
    ],
)
def test_a_listing_that_is_not_as_asked_for_is_no_listing(line: str) -> None:
    """Half an answer would make the rest look as if it were gone."""
    with pytest.raises(Unreachable, match="squeue"):
        read_jobs(f"{JOBS}{line}\n", "tm-f-")


def test_half_a_listing_is_no_listing() -> None:
    """Wherever it was cut."""
    whole = marked(JOBS, 8)
    rows = {whole.index(line) + len(line) for line in whole.splitlines()}
    for at in range(1, len(whole)):
        if at in rows or whole[at - 1] == "\n":
            continue  # it is a listing of fewer jobs, and a command that fails says so
        with pytest.raises(Unreachable, match="squeue"):
            listings.read_jobs(whole[:at], MARK, "tm-f-")


STRANGE = (
    "mine|COMPLETED|5|6|0|1|None\n5|tm-f-j5-1-0|COMPLETED|1795414091|1795414093|0|1|None",
    "\n5|tm-f-j5-1-0|CANCELLED|1795414091|1795414093|0|1|", "a\nb", "a|b", "|||||||||", "\n", " tm-f-j5",
    "a\x1eb\x0c\u2028\x85\r", "\ntm-f-j5-1-0",
)  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_no_name_of_a_job_adds_a_row_or_spoils_the_listing(name: str) -> None:
    """A task may call its job anything, as may others with the same account."""
    fields = ("99", name, "RUNNING", "1", "2", "0", "1", "None")
    row = "".join(f"{field}{MARK}" for field in fields) + "\n"
    for said in (row + marked(JOBS, 8), marked(JOBS, 8) + row):
        assert set(listings.read_jobs(said, MARK, "tm-f-")) == set(read_jobs(JOBS, "tm-f-"))


def test_each_question_has_a_mark_of_its_own() -> None:
    """What was learned from an earlier one helps nobody."""
    first, second = new_mark(), new_mark()
    assert first != second
    assert len(first) >= 16
    assert job_format(first).count(first) == 8
    assert host_format(first).count(first) == 6


def hosts(
    *lines: str, model: str = "H100", gpus: int = 0, routed: bool = False, **options: Any
) -> dict[str, Host]:
    told = {name: HostSpec(f"east-{name}", model if gpus else "", gpus) for name in ("a", "b")}
    found = listings.read_hosts(
        marked("\n".join(lines), 6), MARK, told, SlurmOptions(**options), lambda: routed
    )
    return {host.name: host for host in found}


@pytest.mark.parametrize(
    ("state", "answers", "want"),
    [
        ("idle", True, ""),
        ("mixed", True, ""),
        ("allocated", True, ""),
        ("completing", True, ""),
        ("mixed-", True, ""),
        ("idle*", False, "does not answer"),
        ("mixed*", False, "does not answer"),
        ("down*", False, "is down: the reason, and does not answer"),
        ("down", False, "is down: the reason"),
        ("drained", True, "is drained: the reason"),
        ("draining@", True, "is draining: the reason, and is to reboot"),
        ("drained*", False, "is drained: the reason, and does not answer"),
        ("idle~", False, "is powered down"),
        ("idle#", False, "is being powered up"),
        ("maint", True, "is maint: the reason"),
        ("reserved", True, "is reserved: the reason"),
        ("inval", True, "is inval: the reason"),
        ("unknown*", False, "is unknown: the reason"),
    ],
)
def test_states_of_hosts(state: str, answers: bool, want: str) -> None:
    """Whether its daemon answers, and whether it takes new work."""
    found = hosts(f"a|{state}|main|up|(null)|the reason")["east-a"]
    assert found.answers is answers
    assert want in found.closed
    assert bool(want) == bool(found.closed)


def test_a_host_is_open_if_one_of_the_partitions_is() -> None:
    """A partition that is down closes its hosts; one that parts are not submitted to does not count."""
    lines = (
        "a|idle|main|up|(null)|none", "a|idle|night|down|(null)|none",
        "b|idle|night|down|(null)|none",
    )  # fmt: skip
    assert hosts(*lines)["east-a"].closed == ""
    down = hosts(*lines)["east-b"]
    assert "partition night, which is down" in down.closed
    assert not down.misfit, "the site opens it again"
    of_main = hosts(*lines, partition={"": "main"})
    assert of_main["east-a"].closed == ""
    assert "is not in partition main, to which jobs go, but in night" in of_main["east-b"].closed
    assert of_main["east-b"].misfit
    night = {"": "night"}
    assert "night, which is down" in hosts(*lines, partition=night)["east-a"].closed


def test_an_empty_partition_names_none() -> None:
    """`sbatch` is told nothing then, and takes the default one."""
    lines = ("a|idle|main*|up|(null)|none", "b|idle|night|up|(null)|none")
    found = hosts(*lines, partition={"": ""})
    assert found["east-a"].closed == ""
    assert "is not in partition main, to which jobs go" in found["east-b"].closed


def test_jobs_that_name_no_partition_go_to_the_default_one() -> None:
    """Unless the site itself sends them elsewhere, or has no default."""
    lines = ("a|idle|main*|up|(null)|none", "b|idle|night|up|(null)|none")
    assert "is not in partition main" in hosts(*lines)["east-b"].closed
    assert hosts(*lines)["east-a"].closed == ""
    of_one = hosts(*lines, partition={"vision": "night"})
    assert [host.closed for host in of_one.values()] == ["", ""], "one tenant's jobs go there"
    routed = hosts(*lines, routed=True)
    assert [host.closed for host in routed.values()] == ["", ""]
    others = hosts(lines[1], "zzz|idle|main*|up|(null)|none")
    assert "is not in partition main" in others["east-b"].closed, "also if no host is in that one"
    no_default = hosts(*(line.replace("*", "") for line in lines))
    assert [host.closed for host in no_default.values()] == ["", ""]


@pytest.mark.parametrize(
    ("gres", "options", "want"),
    [
        ("gpu:H100:8(S:0-1)", {}, ""),
        ("gpu:h100:8", {"gpu": {"H100": "h100"}}, ""),
        ("gpu:h100:8", {"gpu": {"H100": "any"}}, ""),
        ("gpu:8", {}, ""),
        ("gpu:tesla:8", {}, "has GPUs of type tesla, and jobs ask for H100 (set option `gpu.H100: tesla`)"),
        ("gpu:h100:8", {"gpu": {"H100": "h200"}}, "and jobs ask for h200 (set option `gpu.H100: h100`)"),
        ("gpu:a:4,gpu:b:4", {}, "of type a, b, and jobs ask for H100 (set option `gpu.H100: TYPE`)"),
        ("gpu:H100:4", {}, "has 4 GPUs, and the fleet file says 8"),
        ("gpu:4", {}, "has 4 GPUs, and the fleet file says 8"),
        ("(null)", {}, "has no GPUs, and the fleet file says 8"),
    ],
)  # fmt: skip
def test_a_host_whose_gpus_jobs_would_not_get_is_closed(
    gres: str, options: dict[str, Any], want: str
) -> None:
    """Slurm would refuse each of them, or let it wait for ever; where it says no type, it may have one."""
    found = hosts(f"a|idle|main|up|{gres}|none", gpus=8, **options)["east-a"]
    assert want in found.closed
    assert bool(want) == bool(found.closed) == found.misfit


def test_gpus_that_a_fleet_does_not_use_do_not_matter() -> None:
    """A host may be told to have none."""
    assert hosts("a|idle|main|up|gpu:x:8|none")["east-a"].closed == ""


def test_every_host_of_the_fleet_is_in_the_answer() -> None:
    """Also one that Slurm does not know; those of others are left out, and reasons may be anything."""
    found = hosts("b|drained|main|up|(null)|fan | broken|x", "zzz|idle|main|up|(null)|none")
    assert found["east-b"].closed == "in Slurm it is drained: fan | broken|x"
    lines = marked("b|drained|main|up|(null)|fan broken", 6).replace("fan ", "fan\na|idle|x|up|\n")
    told = {"b": HostSpec("b", "", 0)}
    (torn,) = listings.read_hosts(lines, MARK, told, SlurmOptions())
    assert torn.closed == "in Slurm it is drained: fan a|idle|x|up| broken"
    unknown = Host("east-a", False, "Slurm knows no host a in any partition", misfit=True)
    assert found["east-a"] == unknown
    assert len(found) == 2


@pytest.mark.parametrize("line", ["a|idle|main", "a|1d le|main|up|(null)|none", "sinfo: error"])
def test_hosts_that_cannot_be_read_are_no_answer(line: str) -> None:
    """A host that is left out would count as gone."""
    with pytest.raises(Unreachable, match="sinfo"):
        hosts("b|idle|main|up|(null)|none", line)


def test_a_reserved_host_is_open_to_those_that_have_a_reservation() -> None:
    """To others it is closed; a reservation for maintenance closes it to all."""
    lines = ("a|reserved|main|up|(null)|none", "b|reserved$|main|up|(null)|none")
    assert [bool(host.closed) for host in hosts(*lines).values()] == [True, True]
    ours = hosts(*lines, reservation={"": "ours"})
    assert [bool(host.closed) for host in ours.values()] == [False, True]
