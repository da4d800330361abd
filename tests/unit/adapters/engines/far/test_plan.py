"""How the seats of a gang become parts for a scheduler."""

import pytest
from msgspec.structs import replace

from tests.contract.engines import order
from topmast.adapters.engines.far.plan import Needs, make_parts
from topmast.model.fleet import HostSpec
from topmast.model.plan import Seat

GPUS = {"h0": 8, "h1": 8, "h2": 8}


@pytest.mark.parametrize(
    ("story", "seats", "many_hosts", "want"),
    [
        (
            "hosts that give the same are one part",
            [("h0", 2), ("h1", 2), ("h2", 2)], True, [{"h0": (0,), "h1": (1,), "h2": (2,)}],
        ),
        (
            "a host that gives more GPUs is another part",
            [("h0", 2), ("h1", 8), ("h2", 2)], True, [{"h0": (0,), "h2": (2,)}, {"h1": (1,)}],
        ),
        (
            "and one that gives as many GPUs to more tasks",
            [("h0", 2), ("h1", 1), ("h1", 1)], True, [{"h0": (0,)}, {"h1": (1, 2)}],
        ),
        (
            "a scheduler that takes one host has a part for each",
            [("h0", 2), ("h1", 2)], False, [{"h0": (0,)}, {"h1": (1,)}],
        ),
    ],
)  # fmt: skip
def test_hosts_that_give_the_same_are_one_part(
    story: str, seats: list[tuple[str, int]], many_hosts: bool, want: list[dict[str, tuple[int]]]
) -> None:
    """Each part asks each of its hosts for what the gang has there, and no rank is left out."""
    used = dict.fromkeys(GPUS, 0)
    given = []
    for rank, (host, gpus) in enumerate(seats):
        given.append(Seat("trainer", rank, host, tuple(range(used[host], used[host] + gpus))))
        used[host] += gpus
    gang = replace(order("j1", "true", len(seats)), seats=tuple(given))
    parts = make_parts(gang, "f", many_hosts=many_hosts)
    assert [part.ranks for part in parts] == want, story
    assert [part.name for part in parts] == [f"tm-f-j1-1-{n}" for n in range(len(want))]
    hosts = {name: HostSpec(name, "H100", gpus) for name, gpus in GPUS.items()}
    for part in parts:
        assert {used[host] for host in part.ranks} == {Needs(gang, part, hosts).gpus}, story
