"""What Slurm's commands print, as recorded from Slurm 22.05 and made worse."""

import pytest

from topmast.adapters.engines.far.launcher import Host, Listed, State, Unreachable
from topmast.adapters.engines.far.slurm.listings import read_hosts, read_jobs

JOBS = """\
13|tm-f-j13-1-0|PENDING|1795414089|N/A|0|2-2|PartitionDown
2|tm-f-j2-1-0|CANCELLED|1795414120|1795414122|0|2|JobHeldUser
1|tm-f-j1-1-0|COMPLETED|1795414089|1795414090|0|1|None
17|tm-f-j17-1-0|PENDING|1795414091|N/A|0|2|JobHeldUser
5|tm-f-j5-1-0|RUNNING|1795414091|1795414093|0|1|None
6|other|RUNNING|1795414091|1795414093|0|1|None
7|tm-f2-j1-1-0|RUNNING|1795414091|1795414093|0|1|None
"""


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


@pytest.mark.parametrize(
    ("word", "status", "reason", "want"),
    [
        ("PENDING", "0", "Resources", "Resources"),
        ("PENDING", "0", "ReqNodeNotAvail, UnavailableNodes:a|b", "ReqNodeNotAvail, UnavailableNodes:a|b"),
        ("PENDING", "0", "BadConstraints", "BadConstraints: the hosts can never give this"),
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
    "line",
    [
        "slurm_load_jobs error: Unable to contact slurm controller",
        "1|tm-f-a|RUNNING|Unknown|6|0|None",
        "1|tm-f-a|RUNNING|5|0|None",
        "1|tm-f-a|RUNNING|5",
        "\x00\xff|",
    ],
)
def test_a_listing_that_is_not_as_asked_for_is_no_listing(line: str) -> None:
    """Half an answer would make the rest look as if it were gone."""
    with pytest.raises(Unreachable, match="squeue"):
        read_jobs(f"{JOBS}{line}\n", "tm-f-")


def hosts(*lines: str, partitions: tuple[str, ...] = ()) -> dict[str, Host]:
    names = {"a": "east-a", "b": "east-b"}
    return {h.name: h for h in read_hosts("\n".join(lines), names, partitions)}


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
    found = hosts(f"a|{state}|main|up|the reason")["east-a"]
    assert found.answers is answers
    assert want in found.closed
    assert bool(want) == bool(found.closed)


def test_a_host_is_open_if_one_of_the_partitions_is() -> None:
    """A partition that is down closes its hosts; one that parts are not submitted to does not count."""
    lines = ("a|idle|main|up|none", "a|idle|night|down|none", "b|idle|night|down|none")
    assert hosts(*lines)["east-a"].closed == ""
    assert "partition night, which is down" in hosts(*lines)["east-b"].closed
    of_main = hosts(*lines, partitions=("main",))
    assert of_main["east-a"].closed == ""
    assert "is not in partition main" in of_main["east-b"].closed
    assert "night, which is down" in hosts(*lines, partitions=("night",))["east-a"].closed


def test_every_host_of_the_fleet_is_in_the_answer() -> None:
    """Also one that Slurm does not know; those of others are left out, and reasons may be anything."""
    found = hosts("b|drained|main|up|fan | broken|x", "zzz|idle|main|up|none")
    assert found["east-b"].closed == "in Slurm it is drained: fan | broken|x"
    assert found["east-a"] == Host("east-a", answers=False, closed="Slurm knows no host a")
    assert len(found) == 2


@pytest.mark.parametrize("line", ["a|idle|main", "a|1d le|main|up|none", "sinfo: error"])
def test_hosts_that_cannot_be_read_are_no_answer(line: str) -> None:
    """A host that is left out would count as gone."""
    with pytest.raises(Unreachable, match="sinfo"):
        hosts("b|idle|main|up|none", line)


def test_a_reserved_host_is_open_to_those_that_have_a_reservation() -> None:
    """To others it is closed; a reservation for maintenance closes it to all."""
    said = "a|reserved|main|up|none\nb|reserved$|main|up|none\n"
    names = {"a": "a", "b": "b"}
    assert [bool(host.closed) for host in read_hosts(said, names, ())] == [True, True]
    assert [bool(h.closed) for h in read_hosts(said, names, (), reserved=True)] == [False, True]
