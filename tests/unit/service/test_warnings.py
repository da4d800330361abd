"""What is told at submission: what cannot start as the fleet is, by field, with what would."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, dataset, fleet, gang, job, needs, tenant
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.engines import Capability
from topmast.model.fleet import HostSpec
from topmast.model.job import JobSpec, Level, Topology
from topmast.service.access import Access
from topmast.service.admission import Admission
from topmast.service.blobs import Blobs
from topmast.service.fleet import tenants
from topmast.service.regions import Regions
from topmast.service.warnings import quotas_beyond, tenants_gone, warnings_of

RACK = Topology(required=Level.RACK)


@dataclass
class Told:
    """A job for four hosts of 8 H100 with 64 CPUs and 512 GB in two racks, and two of 4 A100."""

    story: str
    spec: JobSpec
    want: str


HOSTS = {"TOKEN": "env:TOKEN", "FILE": "file:/etc/key", "KEY": "env:KEY"}
PODS_OWN = {"OWN": "kubernetes:team/own"}

TOLD = [
    Told("it fits", job(gpus=8, count=2, topology=RACK), ""),
    Told(
        "more than any rack has", job(gpus=8, count=3, topology=RACK),
        "topology.required: rack: no rack could hold 3 tasks with 8 H100 each, even empty; the largest "
        "that would fit is 2 tasks (16 GPUs), in east-1: the job waits until one can",
    ),
    Told(
        "more than any cluster has", job(gpus=8, count=9),
        "num_nodes: no cluster could hold 9 tasks with 8 H100 each, even empty; the largest that would "
        "fit is 4 tasks (32 GPUs), in east-1: the job waits until one can",
    ),
    Told(
        "more GPUs than any host has", job(gpus=9),
        "resources.accelerators: no host has 9 H100; the most is 8: the job waits until one has",
    ),
    Told(
        "more CPUs than any host has", job(resources=needs(1, "H100", cpus=65)),
        "resources.cpus: no host with 1 H100 has 65 CPUs; the most is 64: the job waits until one has",
    ),
    Told(
        "more memory than any host has", job(resources=needs(1, "H100", memory=10**12)),
        "resources.memory: no host with 1 H100 has 1TB of memory; the most is 512GB: the job waits "
        "until one has",
    ),
    Told(
        "a group that no host takes",
        gang({"trainer": (1, needs(8)), "reader": (2, needs(cpus=99))}),
        "groups[1].resources.cpus: no host has 99 CPUs; the most is 64: the job waits until one has",
    ),
    Told(
        "a group that is too large",
        gang({"trainer": (5, needs(8)), "reader": (2, needs(cpus=2))}),
        "num_nodes: no cluster could hold 7 tasks with 8 H100 each, even empty; the largest that would "
        "fit is 4 tasks of group trainer (32 GPUs), in east-1: the job waits until one can",
    ),
    Told(
        "a preference without effect", job(topology=Topology(Level.RACK, Level.POD)),
        "topology.preferred: pod is wider than the rack that is required, and changes nothing (leave "
        "it out)",
    ),
    Told(
        "more than its tenant may hold", job(gpus=8, count=2, tenant="small", preemptible=False),
        "tenant: 2 tasks with 8 H100 each is more than one job of small may hold: the job waits until the "
        "quota is raised (see `topmast tenants`)",
    ),
    Told(
        "a dataset that nobody knows", job(datasets=("d", "x")),
        "dataset 'x' is not in the catalogue: the job waits until it is added",
    ),
    Told(
        "a dataset without its files", job(datasets=("d", "lost")),
        "no region has the files of dataset 'lost': the job waits until they are added by "
        "`topmast datasets add lost --region REGION --source FOLDER`",
    ),
    Told(
        "a dataset with a slip of the finger", job(datasets=("imagenett",)),
        "dataset 'imagenett' is not in the catalogue: the job waits until it is added (did you mean 'imagenet'?)",
    ),
]  # fmt: skip


def _world() -> World:
    system = fleet(
        cluster("east-1", hosts=4, cpus=64.0, memory_bytes=512 * 10**9),
        cluster("west-1", gpus=4, model="A100", cpus=32.0, memory_bytes=10**9),
        tenants=(tenant("default"), tenant("small", H100=8)),
        datasets=(dataset("d", "east"), dataset("imagenet", "east"), dataset("lost")),
    )
    return World(system)


def _told(world: World, spec: JobSpec) -> tuple[str, ...]:
    regions = [placer.columns for placer in world.machines.placers.values()]
    return warnings_of(world.queue, regions, spec)


@pytest.mark.parametrize("case", TOLD, ids=lambda case: case.story)
def test_what_a_person_is_told_at_once(case: Told) -> None:
    """One line that names the field, what is too much, and the most that would do."""
    assert _told(_world(), case.spec) == ((case.want,) if case.want else ())


def test_secrets_that_no_engine_can_give_are_warned_of() -> None:
    """A cluster with an engine that can would do; files are always there."""
    spec = replace(job(), secrets={"TOKEN": "env:TOKEN", "KEY": "file:/etc/key"})
    assert _told(_world(), spec) == (
        "secrets: TOKEN: no cluster with the hardware for it has an engine that gives tasks "
        "variables of their hosts (env:NAME): refer to files on the hosts (file:/PATH), or the job "
        "waits until one has",
    )
    assert _told(_world(), replace(job(), secrets={"KEY": "file:/etc/key"})) == ()
    slurm = replace(cluster("west-1"), capabilities=(Capability.ENV,))
    assert _told(World(fleet(cluster("east-1"), slurm)), spec) == ()


IMAGE, SHARES, PODS, FILES = (
    "leave out the image", "ask for whole GPUs", "leave out the secrets of Kubernetes",
    "refer to files on the hosts (file:/PATH)",
)  # fmt: skip


@pytest.mark.parametrize(
    ("engines", "spec", "field", "remedy"),
    [
        ([Capability.ENV], job(gpus=0.5, secrets=HOSTS), "resources.accelerators", SHARES),
        ([Capability.ENV], job(image="r/i", secrets=HOSTS), "image", IMAGE),
        ([Capability.IMAGES], job(image="r/i", secrets=HOSTS), "secrets: TOKEN, KEY", FILES),
        ([Capability.SHARES], job(gpus=0.5, secrets=HOSTS), "secrets: TOKEN, KEY", FILES),
        ([Capability.SHARES], job(image="r/i", secrets=HOSTS),
         "image, secrets: TOKEN, KEY", f"{IMAGE} and {FILES}"),
        ([Capability.SHARES], job(secrets=HOSTS | PODS_OWN),
         "secrets: OWN, TOKEN, KEY", f"{PODS} and {FILES}"),
        ([Capability.SHARES], job(image="r/i", secrets=PODS_OWN),
         "image, secrets: OWN", f"{IMAGE} and {PODS}"),
        ([Capability.ENV, Capability.IMAGES], job(image="r/i", secrets=HOSTS), "image", IMAGE),
        ([Capability.EXEC, Capability.ENV], job(gpus=0.5, image="r/i", secrets=HOSTS),
         "resources.accelerators, image", f"{SHARES} and {IMAGE}"),
    ],
)  # fmt: skip
def test_what_helps_is_said_of_the_least_that_no_engine_can_do(
    engines: list[Capability], spec: JobSpec, field: str, remedy: str
) -> None:
    """What a cluster can do is not at fault, unless none can do it all; with that, it starts."""
    clusters = [replace(cluster(f"east-{n}"), capabilities=(one,)) for n, one in enumerate(engines)]
    (told,) = _told(World(fleet(*clusters)), spec)
    before, _, after = told.partition(": no cluster with the hardware for it has an engine that ")
    assert before == field
    assert after.endswith(f": {remedy}, or the job waits until one has")


def test_a_job_that_is_like_another_but_for_its_secrets_is_told_of_its_own(tmp_path: Path) -> None:
    """What was said of one is kept for the next that is like it."""
    world = _world()
    access, blobs = Access(world.queue), Blobs(tmp_path)
    admission = Admission(world.machines, Regions(world.machines), access, blobs)
    for name in ("HF_TOKEN", "WANDB"):
        (told,) = admission.warnings(job(secrets={name: f"env:{name}"}))
        assert told.startswith(f"secrets: {name}: no cluster")


def test_a_job_of_a_paused_tenant_is_warned_of(tmp_path: Path) -> None:
    """At once, though a job like it was not: the tenant is paused between them."""
    world = _world()
    access, blobs = Access(world.queue), Blobs(tmp_path)
    admission = Admission(world.machines, Regions(world.machines), access, blobs)
    assert admission.warnings(job()) == ()
    world.tell(ids.QUEUE, m.PauseTenant("default", "ops", "cleaning"))
    (told,) = admission.warnings(job())
    assert told.startswith("tenant: default is paused: the job waits until it is resumed")
    secret = replace(job(), secrets={"TOKEN": "env:TOKEN"})
    assert len(admission.warnings(secret)) == 2


def test_what_is_in_use_does_not_matter() -> None:
    """A busy fleet is no reason to warn: jobs end."""
    world = _world()
    world.submit(job(gpus=8, count=4))
    assert _told(world, job(gpus=8, count=4)) == ()


def test_hosts_that_each_lack_something() -> None:
    """No one number is too large, but no host has all of it."""
    hosts = (
        HostSpec("many-cpus", "H100", 8, cpus=64.0, memory_bytes=10**9),
        HostSpec("much-memory", "H100", 8, cpus=4.0, memory_bytes=10**12),
    )
    spec = cluster("east-1", hosts=0)
    world = World(fleet(type(spec)("east-1", hosts)))
    (told,) = _told(world, job(resources=needs(1, "H100", cpus=32, memory=10**11)))
    assert told.startswith("resources: no one host has 1 H100 and as many CPUs")


def test_quotas_that_promise_more_than_there_is() -> None:
    """The quotas at the top of each tree count; where none is stated, those below."""
    system = fleet(
        cluster("east-1", hosts=2),
        cluster("west-1", hosts=1, gpus=4, model="A100"),
        tenants=(
            tenant("a", H100=12, A100=4), tenant("a-one", "a", H100=12),
            tenant("group"), tenant("b", "group", H100=6), tenant("free"),
        ),
    )  # fmt: skip
    assert system.quotas() == {"H100": 18, "A100": 4}
    assert quotas_beyond(system) == (
        "the quotas add up to 18 H100, and there are 16: not all tenants can have theirs at once",
    )
    assert len(quotas_beyond(system, ("H100", "T4"))) == 1
    assert quotas_beyond(system, ("T4",)) == ()
    rows = tenants(World(system).queue)
    assert {row.gpu_model: row.present for row in rows if row.gpu_model} == {"H100": 16, "A100": 4}


def test_quotas_that_fit_need_no_warning() -> None:
    """All that there is, and no more; a model that is not there counts as none."""
    assert quotas_beyond(fleet(cluster("east-1"), tenants=(tenant("a", H100=16),))) == ()
    (line,) = quotas_beyond(fleet(cluster("east-1"), tenants=(tenant("a", T4=1),)))
    assert "1 T4, and there are 0" in line


def test_jobs_of_a_tenant_that_has_left_the_fleet_are_told() -> None:
    """A start with another file would hide them; those that ended do not matter."""
    both = fleet(cluster("east-1", gpus=1), tenants=(tenant("a"), tenant("b")))
    world = World(both)
    world.submit(job(tenant="a"), job(tenant="b"), job(tenant="b"), job(tenant="b"))
    world.cancel("j4")
    world.settle()
    assert tenants_gone(world.queue) == ()
    world.queue.tenancy.configure(fleet(cluster("east-1", gpus=1), tenants=(tenant("a"),)))
    (line,) = tenants_gone(world.queue)
    assert line.startswith(
        "tenant b is not in the fleet any more, and 2 of its jobs have not ended"
    )


def test_a_job_is_warned_of_its_own_datasets(tmp_path: Path) -> None:
    """Not of those of a job like it, nor any more when their files are there."""
    world = World(fleet(cluster("east-1"), datasets=(dataset("images"), dataset("texts"))))
    machines = world.machines
    access, blobs = Access(world.queue), Blobs(tmp_path)
    admission = Admission(machines, Regions(machines), access, blobs)
    images, texts = job(datasets=("images",)), job(datasets=("texts",))
    (warning,) = admission.warnings(images)
    assert "no region has the files of dataset 'images'" in warning
    assert admission.warnings(job()) == ()
    (warning,) = admission.warnings(texts)
    assert "'texts'" in warning
    kept = len(admission._warned)
    many = job(datasets=tuple(f"{n}-{'d' * 99}" for n in range(20)))
    assert admission.warnings(many) == admission.warnings(many) != ()
    wide = job()
    wide = replace(wide, groups=tuple(replace(wide.groups[0], name=f"g{n}") for n in range(9)))
    assert admission.warnings(wide) == ()
    assert len(admission._warned) == kept, "long ones would fill the memory"
    world.tell(ids.QUEUE, m.AddDataset(dataset("images", "east")))
    assert admission.warnings(images) == ()
