"""The engines that a fleet file may name, their options, and what policies need of them."""

from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tests.support.build import cluster, fleet
from topmast.adapters.clock import SystemClock
from topmast.adapters.engines.local.engine import LocalEngine
from topmast.adapters.engines.local.options import LocalOptions
from topmast.adapters.engines.registry import (
    ENGINES,
    Engines,
    check_engines,
    engine_of,
    with_engines,
)
from topmast.bench.fake_engine import FakeEngine
from topmast.model import messages as m
from topmast.model.engines import Capability, Deadlines
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import read_fleet
from topmast.model.fleet import ClusterSpec
from topmast.policies.registry import load_profile
from topmast.ports import Engine, Site

PROFILE = load_profile("mast")
TURNS = load_profile("gandiva")
WITH_FAKE: Engines = {**ENGINES, "fake": FakeEngine}


def _cluster(engine: str = "local", **options: str) -> ClusterSpec:
    return replace(cluster("east-1"), engine=engine, options=options)


def _site(folder: Path) -> Site:
    return Site(SystemClock(), lambda *_: None, lambda _: None, folder)


def test_every_engine_there_is_has_a_name() -> None:
    """A fleet of engines that are there is taken; of another one the field and the remedy are said."""
    assert "local" in ENGINES
    with_engines(fleet(_cluster()), PROFILE)
    with pytest.raises(InvalidInput) as caught:
        with_engines(fleet(_cluster("nomad"), cluster("west-1")), PROFILE)
    assert caught.value.field == "regions.east.clusters.east-1.engine"
    assert "local" in (caught.value.remedy or "")


def test_no_engine_is_made_in_place_of_another(tmp_path: Path) -> None:
    """`engine: nomad` never gives local processes."""
    with pytest.raises(InvalidInput, match="engine 'nomad' is not available"):
        engine_of(_cluster("nomad"), "east", tmp_path, _site(tmp_path), PROFILE)
    assert list(tmp_path.iterdir()) == []


def test_options_reach_the_engine(tmp_path: Path) -> None:
    """They are text in a fleet, and have their types when the engine gets them."""
    spec = _cluster(host_return_s="0.5", eager_hosts="3")
    engine = engine_of(spec, "east", tmp_path, _site(tmp_path), PROFILE)
    assert isinstance(engine, LocalEngine)
    try:
        assert engine._options == LocalOptions(host_return_s=0.5, eager_hosts=3)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("engine", "options", "want_field", "want"),
    [
        ("local", {"qos": "a"}, "qos", r"no such option.*host_return_s, progress_s"),
        ("local", {"linger_s": "soon"}, "linger_s", "'soon': Expected `float`"),
        ("local", {"linger_s": "-1"}, "linger_s", "> 0"),
        ("fake", {"qos": "1"}, "qos", "no such option.*options: start_within_s"),
    ],
)
def test_an_option_that_an_engine_does_not_take_is_refused(
    engine: str, options: dict[str, str], want_field: str, want: str
) -> None:
    """The error names the cluster, the option, and what there is."""
    with pytest.raises(InvalidInput, match=want) as caught:
        with_engines(fleet(_cluster(engine, **options)), PROFILE, WITH_FAKE)
    assert caught.value.field == f"regions.east.clusters.east-1.options.{want_field}"


FAULTY = """
regions:
  east:
    storage: much
    clusters:
      e-1:
        engine: slurm
        options: {patition: gpu, lease_s: -1, gpu.H100: h100, gpus.A100: a100}
        hosts: [{count: 1, gpu: H100, gpus: 8}]
      e-2:
        engine: shs
        options: {user: topmast}
        image: site/train:1
        hosts: [{count: 1, gpu: H100, gpus: many}]
tenants: {vision: {weight: 0}}
"""


def test_what_engines_find_wrong_is_told_with_all_other_faults_of_a_file(tmp_path: Path) -> None:
    """Each with its line and the near name; an engine that is misspelt refuses no option."""
    path = tmp_path / "fleet.yaml"
    path.write_text(FAULTY)
    with pytest.raises(InvalidInput) as caught:
        read_fleet(path, check_engines)
    told = [one.line().removeprefix(f"{path}:") for one in (caught.value, *caught.value.more)]
    options, e_2 = "8: regions.east.clusters.e-1.options", "regions.east.clusters.e-2"
    want = [
        "4: regions.east.storage: ",
        f"{options}.patition: engine 'slurm' has no such option (did you mean 'partition'?)",
        f"{options}.gpus.A100: engine 'slurm' has no such option (did you mean 'gpu.A100'?)",
        f"{options}.lease_s: '-1': ",
        f"11: {e_2}.engine: engine 'shs' is not available (did you mean 'ssh'?)",
        f"14: {e_2}.hosts[0].gpus: ",
        "15: tenants.vision.weight: ",
    ]
    assert len(told) == len(want), told
    for line in want:
        assert [one for one in told if one.startswith(line)], (line, told)


TWICE = """
regions:
  east:
    clusters:
      a: {engine: ssh, options: {address.a1: 10.0.0.7, address.a2: 10.0.0.7, address.a3: 10.0.0.8},
          hosts: [{names: [a1, a2, a3, Node5], gpu: H100, gpus: 8}]}
      b: {engine: ssh, options: {address.b1: 10.0.0.8, address.b2: node5., user: other},
          hosts: [{names: [b1, b2, b3], gpu: H100, gpus: 8}]}
      c: {engine: ssh, options: {address.c1: 10.0.0.7, port: 2222},
          hosts: [{names: [c1], gpu: H100, gpus: 8}]}
      d: {engine: ssh, options: {address.d1: 10.0.0.7, jump: gate},
          hosts: [{names: [d1], gpu: H100, gpus: 8}]}
"""


def test_two_hosts_at_one_address_are_refused(tmp_path: Path) -> None:
    """Whatever their cluster and account are; another port or another way may be another machine."""
    path = tmp_path / "fleet.yaml"
    path.write_text(TWICE)
    with pytest.raises(InvalidInput) as caught:
        read_fleet(path, check_engines)
    told = [
        (one.field.rpartition("clusters.")[2], one.message)
        for one in (caught.value, *caught.value.more)
    ]
    assert told == [
        ("a.options.address.a2", "hosts a1 and a2 have the same address, 10.0.0.7, port 22"),
        ("b.options.address.b1", "hosts a3 and b1 have the same address, 10.0.0.8, port 22"),
        ("b.options.address.b2", "hosts Node5 and b2 have the same address, node5, port 22"),
    ]
    assert caught.value.where == f"{path}:5"


class Sites(msgspec.Struct, frozen=True):
    """Options of an engine, one of them a mapping."""

    account: dict[str, str] = {}
    pace_s: float = 1.0


class OfSites(FakeEngine):
    """An engine with such options."""

    options_type = Sites


def test_an_option_that_is_a_mapping_is_filled_key_by_key(tmp_path: Path) -> None:
    """``account.TENANT`` is one key of it, whatever dots the tenant has; without a key it is the default."""
    given = {"account": "all", "account.vision": "vis", "account.a.b": "ab", "pace_s": "2"}
    spec, engines = _cluster("sites", **given), {"sites": OfSites}
    engine = engine_of(spec, "east", tmp_path, _site(tmp_path), PROFILE, engines)
    assert isinstance(engine, OfSites)
    assert engine._options == Sites({"": "all", "vision": "vis", "a.b": "ab"}, 2.0)
    for wrong in ("pace_s.x", "acount.vision"):
        with pytest.raises(InvalidInput, match="no such option") as caught:
            with_engines(fleet(_cluster("sites", **{wrong: "1"})), PROFILE, engines)
        assert caught.value.field == f"regions.east.clusters.east-1.options.{wrong}"


def test_an_engine_that_cannot_do_what_the_policies_need_is_refused() -> None:
    """Jobs take turns only where tasks can be suspended."""
    with_engines(fleet(_cluster("fake")), PROFILE, WITH_FAKE)
    with_engines(fleet(_cluster("local")), TURNS, WITH_FAKE)
    with pytest.raises(
        InvalidInput, match=r"'gandiva' needs engines that can suspend.*'fake'"
    ) as e:
        with_engines(fleet(_cluster("fake")), TURNS, WITH_FAKE)
    assert e.value.field == "regions.east.clusters.east-1.engine"
    other = replace(_cluster("fake"), name="east-2")
    with pytest.raises(InvalidInput) as e:
        with_engines(fleet(_cluster("fake"), other), TURNS, WITH_FAKE)
    assert [one.field for one in e.value.more] == ["regions.east.clusters.east-2.engine"]


class Contained(FakeEngine):
    """An engine that knows containers, and neither which GPUs a task has nor parts of one."""

    capabilities = frozenset({Capability.IMAGES, Capability.SUSPEND})
    deadlines = Deadlines(start_within_s=900.0, stop_within_s=60.0)


WITH_CONTAINED: Engines = {**ENGINES, "contained": Contained}


def test_a_cluster_is_told_what_its_engine_can_do() -> None:
    """The placer goes by that. Of what nearly all can do, nothing need be said."""
    told = with_engines(fleet(_cluster("contained"), cluster("west-1")), PROFILE, WITH_CONTAINED)
    (east,), (west,) = (region.clusters for region in told.regions)
    assert east.capabilities == (Capability.IMAGES, Capability.SUSPEND)
    assert [east.can(c) for c in Capability] == [True, False, False, False, True, False, False]
    assert [west.can(c) for c in Capability] == [True, True, True, True, False, True, False]
    assert west == cluster("west-1")
    assert with_engines(told, PROFILE, WITH_CONTAINED) == told


def test_every_engine_but_that_of_local_processes_gives_variables_of_hosts() -> None:
    """Beside the server, they would be the server's own."""
    able = [name for name in ENGINES if Capability.ENV in ENGINES[name].capabilities]
    assert able == ["slurm", "kubernetes", "ssh"]


@pytest.mark.parametrize(
    ("profile", "want"),
    [
        ("gandiva", r"'gandiva' needs engines that can give a task just the GPUs.*'contained'"),
        ("gavel-makespan-packed", r"needs engines that can give a task just the GPUs"),
    ],
)
def test_turns_and_pairs_need_engines_that_know_the_gpus(profile: str, want: str) -> None:
    """Else the gangs that are to share GPUs would get different ones."""
    with pytest.raises(InvalidInput, match=want):
        with_engines(fleet(_cluster("contained")), load_profile(profile), WITH_CONTAINED)


def test_an_image_for_an_engine_without_containers_is_refused() -> None:
    """The default of a cluster is checked when the fleet file is read."""
    with pytest.raises(InvalidInput, match="engine 'local' runs no container images") as caught:
        with_engines(fleet(replace(_cluster(), image="site/train:1")), PROFILE, WITH_CONTAINED)
    assert caught.value.field == "regions.east.clusters.east-1.image"
    named = replace(_cluster("contained"), image="site/train:1")
    assert with_engines(fleet(named), PROFILE, WITH_CONTAINED).regions[0].clusters[0].image


def test_deadlines_are_those_of_the_engine_unless_the_options_say_else(tmp_path: Path) -> None:
    """They are options of every engine, and do not reach its own."""
    spec = _cluster("contained", stop_within_s="90")
    (told,) = with_engines(fleet(spec), PROFILE, WITH_CONTAINED).regions[0].clusters
    assert told.deadlines == Deadlines(900.0, 90.0, 60.0)
    engine = engine_of(told, "east", tmp_path, _site(tmp_path), PROFILE, WITH_CONTAINED)
    assert isinstance(engine, Contained)
    (told,) = with_engines(fleet(_cluster()), PROFILE).regions[0].clusters
    assert told.deadlines is UNSET
    with pytest.raises(InvalidInput, match="'0': Expected `float` > 0") as caught:
        with_engines(fleet(_cluster(start_within_s="0")), PROFILE)
    assert caught.value.field == "regions.east.clusters.east-1.options.start_within_s"


@pytest.mark.parametrize("kind", [*ENGINES.values(), Contained])
def test_no_engine_has_an_option_named_like_a_deadline(kind: type[Engine]) -> None:
    """It could not be set."""
    names = {field.name for field in msgspec.structs.fields(Deadlines)}
    assert names.isdisjoint(field.name for field in msgspec.structs.fields(kind.options_type))


def test_an_order_calls_the_method_of_the_engine_that_it_is_for(tmp_path: Path) -> None:
    """Every order that a cluster manager gives has one; an engine overrides methods, not the table."""
    called: list[str] = []

    class Noting(FakeEngine):
        """Notes what it is told."""

        def stop(self, job: str, epoch: int, grace_s: float) -> None:
            called.append(f"stop {job}.{epoch} {grace_s}")

        def suspend(self, job: str, epoch: int) -> None:
            called.append(f"suspend {job}.{epoch}")

    engine = Noting(_cluster("fake"), tmp_path, _site(tmp_path), None)
    engine.order(m.StopTasks("j1", 2, 3.0))
    engine.order(m.SuspendGang("j1", 2))
    assert called == ["stop j1.2 3.0", "suspend j1.2"]
    with pytest.raises(NotImplementedError, match="FakeEngine cannot suspend"):
        FakeEngine(_cluster("fake"), tmp_path, _site(tmp_path), None).order(m.SuspendGang("j1", 2))
