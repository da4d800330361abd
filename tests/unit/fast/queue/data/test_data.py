"""Jobs and their data: where a job may run, when a copy is ordered, what may be dropped."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, dataset, fleet, job, profile
from tests.support.engine import ToyMover
from tests.support.world import World
from topmast.fast.queue.data.catalogue import Catalogue, DataCost
from topmast.fast.queue.data.copies_on_demand import Fetches
from topmast.fast.queue.data.deletions import RETRY_DELETION_S
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dataset import Copy, ReplicaState
from topmast.model.errors import Conflict, NotFound
from topmast.model.fleet import ClusterSpec, DatasetSpec, Fleet, Link
from topmast.model.job import Band, JobSpec
from topmast.model.reason import Rejection
from topmast.policies.options import Profile, ScoreWeights
from topmast.runtime.codec import decode_facts, encode_facts

EAST, WEST = cluster("east-1"), cluster("west-1")
BUSY = job("busy", gpus=8, count=2, preemptible=False)


def _world(*datasets: DatasetSpec, options: Profile | None = None, **more: object) -> World:
    return World(fleet(EAST, WEST, datasets=datasets, **more), options)  # type: ignore[arg-type]


def _reads(*names: str, **more: object) -> JobSpec:
    return job(datasets=names, **more)  # type: ignore[arg-type]


def test_a_job_goes_to_its_data() -> None:
    """With GPUs in both regions, the one that has the dataset wins."""
    for region in ("east", "west"):
        world = _world(dataset("d", region))
        world.submit(_reads("d"))
        assert world.jobs["j1"].region == region
        assert world.orders(m.StartCopy) == []


def test_a_job_runs_where_all_its_data_is() -> None:
    """Half of it is not enough."""
    world = _world(dataset("a", "east", "west"), dataset("b", "west"))
    world.submit(_reads("a", "b"))
    assert world.jobs["j1"].region == "west"


def test_an_unknown_dataset_is_waited_for() -> None:
    """The job is admitted, says what it lacks, and starts when somebody adds it."""
    world = _world()
    world.submit(_reads("d"))
    assert world.reason("j1") == "UnknownDataset"
    world.advance(1_000)
    assert world.reason("j1") == "UnknownDataset"
    assert world.tell(ids.QUEUE, m.AddDataset(dataset("d", "west"))) == "d"
    assert world.jobs["j1"].region == "west"


# --- on-demand copies -----------------------------------------------------------------------------------


def test_data_is_copied_to_where_the_gpus_are() -> None:
    """No GPU is free where the data is: it is copied, and the job starts when it has arrived."""
    world = _world(dataset("d", "west"))
    world.submit(_reads("d", gpus=8, count=2, preemptible=False))
    assert world.jobs["j1"].region == "west"
    world.submit(_reads("d"))
    assert world.reason("j2") == "WaitingForData"
    (order,) = world.orders(m.StartCopy)
    assert (order.copy.source, order.copy.target, order.copy.cause) == ("west", "east", "j2")
    assert world.queue.data.catalogue.datasets["d"].replicas["east"] is ReplicaState.COPYING
    world.advance(1)
    world.arrive("c1")
    assert world.jobs["j2"].region == "east"


def test_one_copy_serves_all_who_wait_for_it() -> None:
    """A copy in flight is not ordered twice."""
    world = _world(dataset("d", "west"))
    world.submit(_reads("d", gpus=8, count=2, preemptible=False))
    world.submit(_reads("d"), _reads("d", gpus=2), _reads("d", band=Band.HIGH))
    assert len(world.orders(m.StartCopy)) == 1
    world.arrive("c1")
    assert {world.jobs[f"j{n}"].region for n in (2, 3, 4)} == {"east"}


USUAL = ScoreWeights()


@dataclass
class Choice:
    """The data is in the west, where the job could run by preempting or on slower GPUs."""

    story: str
    size_gb: int
    want: str
    weights: ScoreWeights = USUAL


CHOICES = [
    Choice("a short copy beats a preemption", 1, "copy"),
    Choice("a preemption beats a copy of fifty minutes", 3_000, "preempt"),
    Choice("waiting costs next to nothing: copy", 3_000, "copy", ScoreWeights(data=0.001)),
    Choice("preempting is free: preempt", 1, "preempt", ScoreWeights(preemption=0.0, balance=0.0)),
]


@pytest.mark.parametrize("case", CHOICES, ids=lambda case: case.story)
def test_the_score_decides_between_copying_and_preempting(case: Choice) -> None:
    """Both are priced; the cheaper is done, and the other is not begun."""
    spec = dataset("d", "west", size_bytes=case.size_gb * 10**9)
    world = _world(spec, options=profile(score=case.weights, restart_cost_s=30.0))
    world.submit(_reads("d", gpus=8, count=2, band=Band.LOW))
    world.submit(_reads("d", gpus=8, band=Band.HIGH))
    copied = any(order.copy.cause == "j2" for order in world.orders(m.StartCopy))
    done = "copy" if copied else "preempt"
    assert done == case.want
    assert (world.jobs["j1"].preemptions == 1) == (case.want == "preempt")


def test_a_copy_longer_than_the_limit_is_not_ordered() -> None:
    """The job waits for GPUs where its data is."""
    world = _world(dataset("d", "west", size_bytes=10**12), options=profile(copy_limit_s=999.0))
    world.submit(_reads("d", gpus=8, count=2, preemptible=False), _reads("d"))
    assert world.orders(m.StartCopy) == []
    assert world.reason("j2") == "InsufficientCapacity"


def test_a_profile_may_forbid_copies() -> None:
    """Then data is moved by people only; a copy that they ordered is waited for."""
    world = _world(dataset("d", "west"), options=profile(on_demand_copies=False))
    world.submit(_reads("d", gpus=8, count=2, preemptible=False), _reads("d"))
    assert world.orders(m.StartCopy) == []
    world.tell(ids.QUEUE, m.RequestReplica("d", "east", "ann"))
    world.arrive("c1")
    assert world.jobs["j2"].region == "east"


def test_a_failed_copy_is_tried_again_after_a_while() -> None:
    """Nothing of it is visible, the job does not start, and time alone brings the next try."""
    world = _world(dataset("d", "west"))
    world.submit(_reads("d", gpus=8, count=2, preemptible=False), _reads("d"))
    world.spoil("c1")
    assert "east" not in world.queue.data.catalogue.datasets["d"].replicas
    world.advance(29)
    assert len(world.orders(m.StartCopy)) == 1
    world.advance(1)
    assert [order.copy.id for order in world.orders(m.StartCopy)] == ["c1", "c2"]
    world.arrive("c2")
    assert world.jobs["j2"].region == "east"


def test_a_failed_copy_to_the_only_region_with_gpus_is_tried_again() -> None:
    """Also where no other region can be asked meanwhile."""
    world = World(fleet(EAST, cluster("west-1", model="A100"), datasets=(dataset("d", "west"),)))
    world.submit(_reads("d"))
    for copy in ("c1", "c2", "c3"):
        world.spoil(copy)
        world.advance(30)
    world.arrive("c4")
    assert world.jobs["j1"].region == "east"


def test_copies_under_way_are_ordered_again_by_a_new_process() -> None:
    """The order may never have reached the mover; a repetition resumes."""
    world = _world(dataset("d", "west"))
    world.tell(ids.QUEUE, m.RequestReplica("d", "east", "ann"))
    world.mover.moving.clear()
    world.restart()
    world.arrive("c1")
    assert world.queue.data.catalogue.datasets["d"].replicas["east"] is ReplicaState.COMPLETE


def test_news_of_a_copy_that_nobody_ordered_is_ignored() -> None:
    """Repeated news of copies changes nothing."""
    world = _world(dataset("d", "west"))
    world.tell(ids.QUEUE, m.RequestReplica("d", "east", "ann"))
    world.arrive("c1")
    before = world.queue.snapshot()
    world.tell(ids.QUEUE, m.CopyDone("c1", 1))
    world.tell(ids.QUEUE, m.CopyFailed("c1", "late"))
    world.tell(ids.QUEUE, m.CopyDone("c9", 1))
    assert world.queue.snapshot() == before


def test_what_a_region_stores_is_what_a_recount_finds() -> None:
    """Copies under way count; those that failed or were dropped do not, nor after a restart."""
    world = _world(dataset("d", "west", size_bytes=5), dataset("e", "west", size_bytes=7))
    catalogue = world.queue.data.catalogue

    def recount(region: str) -> int:
        there = (d for d in catalogue.datasets.values() if region in d.replicas)
        return sum(d.spec.size_bytes for d in there)

    def check(east: int, west: int) -> None:
        for region, want in (("east", east), ("west", west)):
            assert catalogue.stored_bytes(region) == recount(region) == want

    check(0, 12)
    world.tell(ids.QUEUE, m.RequestReplica("d", "east", "ann"))
    check(5, 12)
    assert catalogue.copy_to("d", "east") is not None
    world.tell(ids.QUEUE, m.CopyFailed("c1", "the link broke"))
    check(0, 12)
    assert catalogue.copy_to("d", "east") is None
    world.tell(ids.QUEUE, m.RequestReplica("e", "east", "ann"))
    world.arrive("c2")
    check(7, 12)
    world.tell(ids.QUEUE, m.DropReplica("e", "west"))
    check(7, 5)
    world.restart()
    catalogue = world.queue.data.catalogue
    check(7, 5)


# --- what a region costs --------------------------------------------------------------------------------


@dataclass
class Cost:
    """What stands between the east and the data of a job."""

    story: str
    datasets: tuple[DatasetSpec, ...]
    want_barred: Rejection | None = None
    want_missing: tuple[tuple[str, str], ...] = ()
    want_seconds: float = 0.0
    storage_bytes: int | None = None
    links: tuple[Link, ...] = field(default=(Link("west", "east", 1e9), Link("north", "east", 2e9)))


GB = 10**9

COSTS = [
    Cost("it is all there", (dataset("a", "east"), dataset("b", "east"))),
    Cost(
        "one is missing", (dataset("a", "east"), dataset("b", "west")),
        want_missing=(("b", "west"),), want_seconds=1.0,
    ),
    Cost(
        "two come at the same time", (dataset("a", "west"), dataset("b", "west", size_bytes=3 * GB)),
        want_missing=(("a", "west"), ("b", "west")), want_seconds=3.0,
    ),
    Cost(
        "the widest link is taken", (dataset("a", "west", "north"),),
        want_missing=(("a", "north"),), want_seconds=0.5,
    ),
    Cost(
        "of equal links the first by name", (dataset("a", "west", "north"),),
        want_missing=(("a", "north"),), want_seconds=1.0,
        links=(Link("west", "east", 1e9), Link("north", "east", 1e9)),
    ),
    Cost("residency forbids it", (dataset("a", "west", allowed=("west",)),), Rejection.RESIDENCY),
    Cost(
        "residency forbids what should not even be there",
        (dataset("a", "east", allowed=("west",)),), Rejection.RESIDENCY,
    ),
    Cost("no link leads here", (dataset("a", "west"),), Rejection.DATA_UNREACHABLE, links=()),
    Cost("no replica exists", (dataset("a"),), Rejection.DATA_UNREACHABLE),
    Cost(
        "the store is full", (dataset("a", "west", size_bytes=2 * GB),), Rejection.STORAGE_FULL,
        storage_bytes=GB,
    ),
    Cost(
        "what is stored counts", (dataset("a", "west"), dataset("old", "east")),
        Rejection.STORAGE_FULL, storage_bytes=GB,
    ),
    Cost(
        "one would fit, two do not", (dataset("a", "west"), dataset("b", "west")),
        Rejection.STORAGE_FULL, storage_bytes=GB,
    ),
    Cost(
        "it fits to the last byte", (dataset("a", "west"), dataset("b", "west")),
        want_missing=(("a", "west"), ("b", "west")), want_seconds=1.0, storage_bytes=2 * GB,
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", COSTS, ids=lambda case: case.story)
def test_what_data_costs(case: Cost) -> None:
    """Residency, reach and room first; then bytes and seconds."""
    catalogue = Catalogue()
    regions: tuple[ClusterSpec, ...] = (EAST, WEST, cluster("north-1"))
    limits = {} if case.storage_bytes is None else {"east": case.storage_bytes}
    catalogue.configure(
        fleet(*regions, datasets=case.datasets, links=case.links, storage_bytes=limits)
    )
    names = [spec.name for spec in case.datasets if spec.name != "old"]
    cost = catalogue.cost(names, "east", now=100.0)
    assert cost.barred is case.want_barred
    assert cost.missing == case.want_missing
    assert cost.seconds == case.want_seconds
    missing = {name for name, _ in case.want_missing}
    assert cost.bytes == sum(d.size_bytes for d in case.datasets if d.name in missing)


def test_a_copy_on_its_way_costs_what_is_left_of_it() -> None:
    """Time passes for it, and it needs no more room than it has been given."""
    catalogue = Catalogue()
    spec = dataset("d", "west", size_bytes=10 * GB)
    catalogue.configure(fleet(EAST, WEST, datasets=(spec,), storage_bytes={"east": 10 * GB}))
    catalogue.begin(Copy("c1", "d", "west", "east", 10 * GB, "ann", begun_s=100.0))
    want = DataCost((("d", "west"),), 10 * GB, 6.0, copying=True)
    assert catalogue.cost(["d"], "east", now=104.0) == want
    assert catalogue.cost(["d"], "east", now=999.0).seconds == 0.0


def test_residency_is_kept_to_while_it_costs_gpus() -> None:
    """A job waits rather than run, or have its data, where that may not be."""
    world = _world(dataset("d", "west", allowed=("west",)))
    world.submit(_reads("d", gpus=8, count=2, preemptible=False), _reads("d"))
    world.advance(1_000)
    assert world.states()["j2"] == "PENDING"
    assert world.orders(m.StartCopy) == []
    error = world.tell(ids.QUEUE, m.RequestReplica("d", "east", "ann"))
    assert isinstance(error, Conflict)


def test_a_full_store_is_waited_for_until_something_is_dropped() -> None:
    """Room in a store is like room on a host."""
    datasets = (dataset("d", "west"), dataset("old", "east", "west"))
    world = _world(*datasets, storage_bytes={"east": GB})
    world.submit(_reads("d", gpus=8, count=2, preemptible=False), _reads("d"))
    assert world.orders(m.StartCopy) == []
    world.tell(ids.QUEUE, m.DropReplica("old", "east"))
    assert len(world.orders(m.StartCopy)) == 1
    world.arrive("c1")
    assert world.jobs["j2"].region == "east"


# --- what people may ask ---------------------------------------------------------------------------------


@dataclass
class Request:
    """A request about dataset ``d`` (in the east; a copy to the west if ``copying``), and its answer."""

    story: str
    message: m.Message
    want: type[Exception] | str
    replicas: tuple[str, ...] = ("east", "west")
    min_replicas: int = 1
    reader: bool = False
    copying: bool = False
    storage: dict[str, int] = field(default_factory=dict)


def _at(path: str) -> DatasetSpec:
    return DatasetSpec("e", 1, path, ("east",))


REQUESTS = [
    Request("drop a spare replica", m.DropReplica("d", "east"), "d"),
    Request("drop the last replica", m.DropReplica("d", "east"), Conflict, ("east",)),
    Request("drop below the minimum", m.DropReplica("d", "east"), Conflict, min_replicas=2),
    Request("drop what a job reads", m.DropReplica("d", "east"), Conflict, reader=True),
    Request("drop what a job reads elsewhere", m.DropReplica("d", "west"), "d", reader=True),
    Request("drop what a copy reads", m.DropReplica("d", "east"), Conflict, copying=True),
    Request("drop what is not there", m.DropReplica("d", "north"), NotFound),
    Request("drop a copy in flight", m.DropReplica("d", "north"), Conflict, copying=True),
    Request("drop an unknown dataset", m.DropReplica("x", "east"), NotFound),
    Request("remove it", m.RemoveDataset("d"), "d"),
    Request("remove it whatever it must have", m.RemoveDataset("d"), "d", min_replicas=2),
    Request("remove what a job reads", m.RemoveDataset("d"), Conflict, reader=True),
    Request("remove what is copied", m.RemoveDataset("d"), Conflict, copying=True),
    Request("remove the unknown", m.RemoveDataset("x"), NotFound),
    Request("copy to a new region", m.RequestReplica("d", "north"), "d"),
    Request("copy to where it is", m.RequestReplica("d", "east"), "d"),
    Request("copy twice", m.RequestReplica("d", "north"), "d", copying=True),
    Request("copy the unknown", m.RequestReplica("x", "east"), NotFound),
    Request("copy to nowhere", m.RequestReplica("d", "mars"), NotFound),
    Request(
        "copy into a full store", m.RequestReplica("d", "north"), Conflict, storage={"north": 1}
    ),
    Request("add a name twice", m.AddDataset(dataset("d", "east")), Conflict),
    Request("add a neighbour", m.AddDataset(_at("data/d2")), "e"),
    Request("add in the same folder", m.AddDataset(_at("data/d")), Conflict),
    Request("add around another", m.AddDataset(_at("data")), Conflict),
    Request("add inside another", m.AddDataset(_at("data/d/part")), Conflict),
    Request(
        "add inside one that is in no region yet", m.AddDataset(_at("data/d/part")), Conflict, ()
    ),
]


def _asked(case: Request) -> World:
    spec = dataset("d", *case.replicas, min_replicas=case.min_replicas)
    north = cluster("north-1", model="A100")
    system: Fleet = fleet(EAST, WEST, north, datasets=(spec,), storage_bytes=case.storage)
    world = World(system)
    if case.reader:
        world.submit(_reads("d"))
        assert world.jobs["j1"].region == "east"
    if case.copying:
        world.tell(ids.QUEUE, m.RequestReplica("d", "north", "ann"))
    return world


@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case.story)
def test_requests_about_datasets(case: Request) -> None:
    """What would harm a job, a copy or the dataset is refused, and then changes nothing."""
    world = _asked(case)
    before = world.queue.snapshot()
    reply = world.tell(ids.QUEUE, case.message)
    if isinstance(case.want, str):
        assert reply == case.want
        assert len(world.queue.data.catalogue.copies) <= 1
    else:
        assert isinstance(reply, case.want)
        assert world.queue.snapshot() == before


def test_a_refusal_names_what_was_meant_or_what_is_under_way() -> None:
    """A slip in a name gets the nearest name; a replica that is being copied is not said to be missing."""
    world = World(fleet(EAST, WEST, datasets=(dataset("images", "east"),)))
    world.tell(ids.QUEUE, m.RequestReplica("images", "west", "ann"))
    asked = (
        m.RequestReplica("imges", "west"), m.RequestReplica("images", "wst"),
        m.DropReplica("imges", "west"), m.DropReplica("images", "wst"), m.RemoveDataset("imges"),
        m.DropReplica("images", "west"),
    )  # fmt: skip
    assert [str(world.tell(ids.QUEUE, message)) for message in asked] == [
        "no dataset 'imges' (did you mean 'images'?)",
        "no region 'wst' (did you mean 'west'?)",
        "no dataset 'imges' (did you mean 'images'?)",
        "no region 'wst' (did you mean 'west'?)",
        "no dataset 'imges' (did you mean 'images'?)",
        "copy c1 of 'images' to 'west' is under way (drop it when it is there)",
    ]


@pytest.mark.parametrize("path", ["data/d", "data", "data/d/part"])
def test_files_that_two_datasets_share_are_neither_deleted_nor_replaced(path: str) -> None:
    """A folder of state may have such datasets from before they were refused: both keep their files."""
    world = _world(dataset("d", "east", "west"), DatasetSpec("e", 1, path, ("east", "west")))
    world.submit(_reads("d"))
    assert world.jobs["j1"].region == "east"
    assert world.tell(ids.QUEUE, m.DropReplica("e", "east")) == "e"
    assert "east" not in world.queue.data.catalogue.datasets["e"].replicas
    assert world.orders(m.DeleteReplica) == [], "a job reads these files as d"
    reply = world.tell(ids.QUEUE, m.RequestReplica("e", "east"))
    assert isinstance(reply, Conflict)
    assert "dataset 'd'" in str(reply)
    world.submit(_reads("e", gpus=8, count=2, preemptible=False))
    world.submit(_reads("e", gpus=8))
    assert world.orders(m.StartCopy) == []


def test_a_replica_that_no_other_dataset_shares_is_deleted() -> None:
    """The order names the folder, once."""
    world = _world(dataset("d", "east", "west"), DatasetSpec("e", 1, "data/d2", ("east", "west")))
    world.tell(ids.QUEUE, m.DropReplica("d", "east"))
    assert world.orders(m.DeleteReplica) == [m.DeleteReplica("d", "east", "data/d")]


def test_a_dataset_is_removed_and_may_be_added_again() -> None:
    """Its replicas go everywhere, its folder is free, and a restart with the last fleet does not bring it back."""
    world = _world(dataset("d", "east", "west"))
    assert world.tell(ids.QUEUE, m.RemoveDataset("d")) == "d"
    gone = {(order.region, order.path) for order in world.orders(m.DeleteReplica)}
    assert gone == {("east", "data/d"), ("west", "data/d")}
    catalogue = world.queue.data.catalogue
    assert ("d" in catalogue.datasets, catalogue.stored_bytes("east")) == (False, 0)
    world.tell(ids.QUEUE, m.ConfigureFleet(world.queue.fleet))
    assert "d" not in catalogue.datasets
    world.submit(_reads("d"))
    assert world.reason("j1") == "UnknownDataset"
    assert world.tell(ids.QUEUE, m.AddDataset(dataset("d", "west"))) == "d"
    assert world.jobs["j1"].region == "west"


class SlowMover(ToyMover):
    """Takes orders to delete, and does nothing yet."""

    def order(self, message: m.Message) -> list[m.Message]:
        """Copies go as ever."""
        return [] if isinstance(message, m.DeleteReplica) else super().order(message)


def _slow(*datasets: DatasetSpec, options: Profile | None = None) -> World:
    world = _world(*datasets, options=options)
    world.mover = SlowMover()
    world.mover.stock(world.fleet)
    return world


GONE = "is being deleted in region 'east': try again when it is gone"


@pytest.mark.parametrize(
    ("name", "path"),
    [("d", "data/d"), ("d", "elsewhere"), ("e", "data/d"), ("e", "data"), ("e", "data/d/part")],
)
def test_name_and_folder_of_a_removed_dataset_are_taken_until_its_files_are_gone(
    name: str, path: str
) -> None:
    """Else the deletion would take the files of the new one, under a job that reads them."""
    world = _slow(dataset("d", "east", "west"))
    world.tell(ids.QUEUE, m.RemoveDataset("d"))
    catalogue = world.queue.data.catalogue
    again = m.AddDataset(DatasetSpec(name, 1, path, ("east",)))
    refused = world.tell(ids.QUEUE, again)
    assert isinstance(refused, Conflict)
    assert GONE in str(refused)
    assert catalogue.stored_bytes("east") == dataset("d").size_bytes, "they take up room till then"
    other = DatasetSpec("other", 1, "other", ("east",))
    assert world.tell(ids.QUEUE, m.AddDataset(other)) == "other"
    world.tell(ids.QUEUE, m.ReplicaDeleted("east", "data/d"))
    assert isinstance(world.tell(ids.QUEUE, again), Conflict), "west has files of it yet"
    world.tell(ids.QUEUE, m.ReplicaDeleted("west", "data/d"))
    assert catalogue.stored_bytes("west") == 0
    assert world.tell(ids.QUEUE, again) == name


def test_no_copy_goes_where_an_old_replica_is_being_deleted() -> None:
    """Neither by hand nor for a job that waits; it goes when the files are gone."""
    world = _slow(dataset("d", "east", "west"), options=profile(copy_patience=0.0))
    world.tell(ids.QUEUE, m.DropReplica("d", "east"))
    refused = world.tell(ids.QUEUE, m.RequestReplica("d", "east"))
    assert isinstance(refused, Conflict)
    assert GONE in str(refused)
    world.submit(job("there", gpus=8, count=2, preemptible=False, datasets=("d",)))
    world.submit(_reads("d", gpus=8))
    assert world.orders(m.StartCopy) == []
    world.tell(ids.QUEUE, m.ReplicaDeleted("east", "data/d"))
    assert [order.copy.target for order in world.orders(m.StartCopy)] == ["east"]


def test_open_deletions_are_ordered_again_after_a_restart() -> None:
    """From the journal as from a snapshot; those that are done are not."""
    world = _slow()
    for name in ("d", "e"):
        world.tell(ids.QUEUE, m.AddDataset(dataset(name, "east", "west")))
    world.tell(ids.QUEUE, m.RemoveDataset("d"))
    world.tell(ids.QUEUE, m.DropReplica("e", "east"))
    world.tell(ids.QUEUE, m.ReplicaDeleted("west", "data/d"))
    world.queue.restore(world.queue.snapshot())
    assert world.queue.data.catalogue.stored_bytes("east") == 2 * dataset("d").size_bytes
    world.sent.clear()
    world.restart()
    want = [m.DeleteReplica("d", "east", "data/d"), m.DeleteReplica("e", "east", "data/e")]
    assert world.orders(m.DeleteReplica) == want
    assert GONE in str(world.tell(ids.QUEUE, m.AddDataset(dataset("d", "east"))))
    for order in want:
        world.tell(ids.QUEUE, m.ReplicaDeleted(order.region, order.path))
    world.sent.clear()
    world.restart()
    assert world.orders(m.DeleteReplica) == []
    assert world.tell(ids.QUEUE, m.AddDataset(dataset("d", "east"))) == "d"


def test_a_journal_from_before_deletions_were_written_down_is_read() -> None:
    """Nothing is known of what the mover had to do then, so nothing is reserved or ordered."""
    world = _slow()
    world.tell(ids.QUEUE, m.AddDataset(dataset("d", "east", "west")))
    world.tell(ids.QUEUE, m.RemoveDataset("d"))
    *before, last = world.journal.written
    (removed, *begun) = decode_facts(last.machine, last.facts)
    assert len(begun) == 2, "east and west"
    world.journal.written = [*before, replace(last, facts=encode_facts((removed,)))]
    world.sent.clear()
    world.restart()
    assert world.orders(m.DeleteReplica) == []
    assert world.tell(ids.QUEUE, m.AddDataset(dataset("d", "east"))) == "d"


def test_a_deletion_that_fails_is_tried_again() -> None:
    """After a while, once for each failure; the folder stays taken."""
    world = _slow(dataset("d", "east"))
    order = m.DeleteReplica("d", "east", "data/d")
    world.tell(ids.QUEUE, m.RemoveDataset("d"))
    for tries in (1, 2):
        world.tell(ids.QUEUE, m.DeletionFailed("east", "data/d", "the disk does not answer"))
        world.advance(RETRY_DELETION_S / 2)
        assert world.orders(m.DeleteReplica) == [order] * tries
        world.advance(RETRY_DELETION_S)
        assert world.orders(m.DeleteReplica) == [order] * (tries + 1)
    world.advance(10 * RETRY_DELETION_S)
    assert world.orders(m.DeleteReplica) == [order] * 3
    assert isinstance(world.tell(ids.QUEUE, m.AddDataset(dataset("d", "east"))), Conflict)


def test_a_dataset_that_shares_files_is_removed_without_them() -> None:
    """The other one keeps them, and may be deleted for good afterwards."""
    world = _world(dataset("d", "east"), DatasetSpec("e", 1, "data/d/part", ("east",)))
    world.tell(ids.QUEUE, m.RemoveDataset("e"))
    assert world.orders(m.DeleteReplica) == []
    world.tell(ids.QUEUE, m.RemoveDataset("d"))
    assert [order.path for order in world.orders(m.DeleteReplica)] == ["data/d"]


def test_a_replica_is_not_dropped_while_a_job_that_reads_it_is_being_placed() -> None:
    """A region that held the data when it was asked must hold it when its answer comes."""
    world = _world(dataset("d", "east", "west"))
    queue = world.queue
    world.deliver(ids.QUEUE, m.SubmitJobs((_reads("d"),)))
    asks = queue.handle(m.Wake(), world.now).sends
    assert isinstance(world.deliver(ids.QUEUE, m.DropReplica("d", "east")), Conflict)
    for ask in asks:
        world.deliver(ask.to, ask.message)
    assert world.jobs["j1"].region == "east"
    assert world.deliver(ids.QUEUE, m.DropReplica("d", "west")) == "d"


def test_a_replica_that_a_waiting_job_finds_nowhere_else_is_not_dropped() -> None:
    """With half of its data in the other region, the job could run there only after a copy."""
    world = _world(
        dataset("a", "east", "west"), dataset("b", "west"), options=profile(on_demand_copies=False)
    )
    world.submit(job("busy", gpus=8, count=2, preemptible=False, datasets=("b",)), _reads("a", "b"))
    assert world.reason("j2") == "InsufficientCapacity"
    refused = world.tell(ids.QUEUE, m.DropReplica("a", "west"))
    assert isinstance(refused, Conflict)
    assert "j2" in str(refused)
    assert world.tell(ids.QUEUE, m.DropReplica("a", "east")) == "a"


# --- copies on demand have to be worth it -----------------------------------------------------------------


@dataclass
class Worth:
    """16 GPUs in the west hold the data and are busy for so long; the east is free. Copying takes so long."""

    story: str
    busy_s: float
    copy_s: float
    want: str
    patience: float = 1.0


WORTH = [
    Worth("room comes sooner than a copy", 100.0, 500.0, "wait"),
    Worth("a copy is there sooner", 500.0, 100.0, "copy"),
    Worth("whoever has no patience copies at once", 100.0, 500.0, "copy", patience=0.0),
    Worth("bytes are dear: wait three times as long", 1_000.0, 500.0, "wait", patience=3.0),
]


@pytest.mark.parametrize("patience", [0.0, 1.0])
def test_a_free_place_near_the_data_is_taken_though_another_scores_better(patience: float) -> None:
    """The west has the data and is nearly full; the east is empty, and a copy takes a second."""
    made = profile(copy_patience=patience, score=ScoreWeights(balance=50.0))
    world = _world(dataset("d", "west"), options=made)
    world.submit(_reads("d", gpus=6, count=2, preemptible=False))
    world.submit(_reads("d"))
    assert (world.jobs["j2"].region == "west") == (patience > 0)
    assert bool(world.orders(m.StartCopy)) == (patience == 0)


def _busy_west(case: Worth, **options: object) -> World:
    spec = dataset("d", "west", size_bytes=int(case.copy_s * 10**9))
    made = profile(copy_patience=case.patience, **options)
    world = _world(spec, options=made)
    world.submit(_reads("d", gpus=8, count=2, preemptible=False, duration_s=case.busy_s))
    return world


@pytest.mark.parametrize("case", WORTH, ids=lambda case: case.story)
def test_a_copy_is_ordered_where_waiting_would_be_dearer(case: Worth) -> None:
    """Both are priced in seconds: when room is expected near the data, and how long the copy takes."""
    world = _busy_west(case)
    world.submit(_reads("d"))
    assert bool(world.orders(m.StartCopy)) == (case.want == "copy")
    if case.want == "wait":
        assert world.reason("j2") == "InsufficientCapacity"
        world.finish("j1")
        assert world.jobs["j2"].region == "west"
        assert world.orders(m.StartCopy) == []


def test_who_waited_as_long_as_a_copy_takes_waits_no_longer() -> None:
    """Room was expected in 100 s and did not come: what was lost is bounded by what the copy costs."""
    world = _busy_west(Worth("", 100.0, 500.0, "wait"))
    world.submit(_reads("d"))
    world.advance(150.0)
    assert world.orders(m.StartCopy) == []
    world.advance(500.0)
    (order,) = world.orders(m.StartCopy)
    assert order.copy.cause == "j2"
    assert order.copy.begun_s <= 560.0


def test_on_demand_copies_are_counted_and_bounded() -> None:
    """Two jobs a day; the third waits where its data is, or for the next day."""
    world = _world(
        *(dataset(f"d{i}", "west") for i in range(4)),
        options=profile(copies_per_period=2, copy_period_s=1_000.0),
    )
    world.submit(_reads("d0", gpus=8, count=2, preemptible=False))
    world.submit(*(_reads(f"d{i}") for i in range(1, 4)))
    assert [order.copy.cause for order in world.orders(m.StartCopy)] == ["j2", "j3"]
    assert world.reason("j4") == "InsufficientCapacity"
    assert world.queue.data.fetches.count(world.now) == 2
    world.restart()
    assert world.queue.data.fetches.count(world.now) == 2
    world.advance(990.0)
    assert len({o.copy.id for o in world.orders(m.StartCopy)}) == 2
    world.advance(30.0)
    assert world.orders(m.StartCopy)[-1].copy.cause == "j4"
    assert world.queue.data.fetches.count(world.now) == 1


def test_a_gang_that_no_region_with_its_data_could_hold_is_not_held_up() -> None:
    """It counts all the same."""
    world = World(
        fleet(cluster("east-1", 4), cluster("west-1", 1), datasets=(dataset("d", "west"),)),
        profile(copies_per_period=0),
    )
    world.submit(_reads("d", gpus=8, count=2))
    assert [order.copy.cause for order in world.orders(m.StartCopy)] == ["j1"]
    assert world.queue.data.fetches.count(world.now) == 1


def test_the_end_of_a_period_is_not_missed_by_a_rounding() -> None:
    """Of some times t, t + 1800 - t is less than 1800: whoever was told to ask again then may copy then."""
    noted_s, period_s = 65_159.297272, 1_800.0
    assert (noted_s + period_s) - period_s < noted_s or (noted_s + period_s) - noted_s < period_s
    fetches = Fetches(profile(copies_per_period=1, copy_period_s=period_s))
    fetches.note("j1", noted_s)
    again_s = fetches.next_s(noted_s)
    assert again_s == noted_s + period_s
    assert fetches.next_s(again_s) is None
    for at_s in (i * 0.1 for i in range(1, 5_000)):
        fetches = Fetches(profile(copies_per_period=1, copy_period_s=period_s))
        fetches.note("j1", at_s)
        assert fetches.next_s(at_s + period_s) is None, at_s
