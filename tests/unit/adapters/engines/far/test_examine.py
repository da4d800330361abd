"""A cluster beside what a fleet file says of it."""

import socket

import pytest
from msgspec import structs

from topmast.adapters.engines.far.discovery import Discovered
from topmast.adapters.engines.far.examine import MOST_TOLD, calls_home, examined
from topmast.adapters.engines.far.launcher import Host
from topmast.adapters.engines.far.options import FarOptions
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Finding, Level

REAL = HostSpec("a", "H100", 8, cpus=96.0, memory_bytes=10**12)


def look(
    *told: HostSpec, left_out: tuple[str, ...] = (), closed: tuple[Host, ...] = ()
) -> list[Finding]:
    """What is found of a cluster with the one host ``a``."""
    found = Discovered("c", (REAL,), left_out=left_out)
    return list(examined(ClusterSpec("c", told), lambda: found, closed))


def test_what_fits_is_said_to_fit() -> None:
    """Fewer GPUs than there are may well be meant."""
    findings = look(HostSpec("a", "H100", 4, cpus=96.5, memory_bytes=10**12))
    assert [found.level for found in findings] == [Level.OK, Level.OK]
    assert "all 1 are there" in findings[-1].detail


@pytest.mark.parametrize(
    ("told", "detail"),
    [
        (HostSpec("a", "A100", 8), "a has GPUs of model H100, not A100"),
        (HostSpec("a", "H100", 9), "a has 8 GPUs, not 9"),
        (HostSpec("a", "H100", 8, cpus=128.0), "a has 96 CPUs, not 128"),
        (HostSpec("a", "", 0, memory_bytes=2 * 10**12), "a has 1000 GB of memory, not 2000"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_a_fault(told: HostSpec, detail: str) -> None:
    """Jobs would be placed on it, and never start."""
    (_, fault) = look(told)
    assert (fault.level, fault.detail) == (Level.FAULT, detail)
    assert fault.remedy


def test_a_host_that_is_not_there_is_named_with_the_reason() -> None:
    """Each with a reason has a line; of many others, and of very many with one, some are named."""
    told = [HostSpec(f"b{index}", "H100", 8) for index in range(7)]
    (_, why, fault) = look(*told, left_out=("b1: GPUs of two types", "z: of no fleet"))
    assert (why.level, why.what, why.detail) == (Level.FAULT, "host b1", "GPUs of two types")
    assert (fault.level, fault.what) == (Level.FAULT, "hosts")
    assert fault.detail == "not there: b0, b2, b3, b4, b5 and 1 more"
    many = [HostSpec(f"c{index}", "H100", 8) for index in range(MOST_TOLD + 7)]
    (_, *lines, rest) = look(*many, left_out=tuple(f"{one.name}: down" for one in many))
    assert [one.what for one in lines] == [f"host {one.name}" for one in many[:MOST_TOLD]]
    assert rest.detail.startswith(f"not there either: c{MOST_TOLD}, ")
    assert rest.detail.endswith(" and 2 more")


def test_a_host_that_gets_no_work_is_told_with_the_reason() -> None:
    """A fault if the file must be mended, or if no host works; else some are always away."""
    drained = Host("a", True, "drained: fan")
    (_, fault) = look(REAL, closed=(drained,))
    assert (fault.level, fault.detail) == (Level.FAULT, "no work for a: drained: fan")
    second = structs.replace(REAL, name="a2")
    found = Discovered("c", (REAL, second))
    cluster = ClusterSpec("c", (REAL, second))
    (_, away) = examined(cluster, lambda: found, (drained,))
    assert away.level is Level.WARNING
    (_, misfit) = examined(cluster, lambda: found, (structs.replace(drained, misfit=True),))
    assert misfit.level is Level.FAULT
    both = (drained, structs.replace(drained, name="a2"))
    (_, same) = examined(cluster, lambda: found, both)
    assert same.detail == "no work for a, a2: drained: fan"


def test_a_cluster_out_of_reach_is_one_fault() -> None:
    """Nothing else can be said of it."""

    def refuse() -> Discovered:
        raise InvalidInput("no answer", remedy="ask its people")

    (fault,) = examined(ClusterSpec("c", (REAL,)), refuse)
    assert fault == Finding(Level.FAULT, "reach it", "no answer", "ask its people")


def test_an_address_that_runners_cannot_reach_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as that shows from here: a name that there is not, and a machine that is silent."""
    monkeypatch.setattr("topmast.adapters.engines.far.examine.ANSWER_S", 0.2)
    with socket.socket() as silent, socket.create_server(("127.0.0.1", 0)) as home:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind(("127.0.0.1", 0))
        assert not [*calls_home(FarOptions())]
        assert not [*calls_home(FarOptions(advertise=f"127.0.0.1:{home.getsockname()[1]}"))]
        port = silent.getsockname()[1]
        assert not [*calls_home(FarOptions(listen=f"127.0.0.1:{port}", advertise="localhost"))]
        silent.listen(0)
        others = [socket.create_connection(silent.getsockname())]
        (late,) = calls_home(FarOptions(advertise=f"127.0.0.1:{port}"))
        (unknown,) = calls_home(FarOptions(advertise="no-such-host.invalid"))
        others[0].close()
    assert (late.level, late.what) == (Level.WARNING, "call home")
    assert late.detail == f"127.0.0.1:{port} is not reached from here: no answer"
    assert unknown.detail.startswith("no-such-host.invalid is not reached from here: ")


def test_an_address_that_the_server_could_not_listen_on_is_told() -> None:
    """As `up` would refuse it; a port in use may be the server's own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (used,) = calls_home(FarOptions(listen=f"127.0.0.1:{taken.getsockname()[1]}"))
    (elsewhere,) = calls_home(FarOptions(listen="192.0.2.1:0"))
    (unknown,) = calls_home(FarOptions(listen="no-such-host.invalid:0"))
    assert (used.level, elsewhere.level, unknown.level) == (
        Level.WARNING, Level.FAULT, Level.FAULT,
    )  # fmt: skip
    assert "while the server runs" in used.remedy
    assert elsewhere.detail == "cannot listen on 192.0.2.1:0: cannot assign requested address"
    assert unknown.detail.startswith("cannot listen on no-such-host.invalid:0: ")
    assert not [*calls_home(FarOptions(listen="[::1]:0"))]
