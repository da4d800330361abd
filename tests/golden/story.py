"""A busy day, always the same: the story whose journal is kept beside it."""

from __future__ import annotations

from tests.support.build import cluster, dataset, fleet, gang, job, needs, profile, tenant
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band, Checkpoint, Level, Topology
from topmast.model.states import HostState, Outcome

CLUSTERS = (
    cluster("east-1", gpus=4, cpus=16.0),
    cluster("east-2", hosts=1, gpus=4, model="A100"),
    cluster("west-1", gpus=4),
)
OPTIONS = profile(min_runtime_s=5.0, suspect_s=20.0, copy_patience=0.0)
TENANTS = (tenant("a", H100=8, A100=4), tenant("b", borrow=8, H100=4))


def _system(*datasets: str) -> World:
    specs = tuple(dataset(name, "west") for name in datasets)
    return World(fleet(*CLUSTERS, tenants=TENANTS, datasets=specs), OPTIONS, obedient=False)


def tell() -> World:
    """Let the day pass; returns the world at its end."""
    world = _system("images")
    _a_gang_runs_and_checkpoints(world)
    _a_lender_takes_its_quota_back(world)
    _a_job_fails_and_one_loses_its_host(world)
    _data_is_copied_and_dropped(world)
    _people_interfere(world)
    _what_engines_say_at_last(world)
    _a_host_is_emptied(world)
    _hosts_change_clusters(world)
    return world


def _a_gang_runs_and_checkpoints(world: World) -> None:
    rack = Topology(preferred=Level.RACK)
    world.submit(job("pair", gpus=2, count=2, tenant="a", topology=rack), key="monday")
    world.submit(job("pair", gpus=2, count=2, tenant="a", topology=rack), key="monday")
    world.submit(gang({"trainer": (1, needs(2, cpus=2)), "reader": (2, needs(cpus=1))}, tenant="a"))
    world.start("j1")
    world.start("j2")
    world.advance(10)
    world.checkpoint("j1", 100)
    world.finish("j1", 0, ranks=[1])
    world.finish("j2")


def _a_lender_takes_its_quota_back(world: World) -> None:
    world.submit(*[job("lent", gpus=4, tenant="b", band=Band.LOW) for _ in range(3)])
    for name in ("j3", "j4", "j5"):
        world.start(name)
    world.advance(6)
    world.submit(job("owner", gpus=4, tenant="a", band=Band.HIGH))
    world.advance(1)
    for name in ("j3", "j4", "j5"):
        if world.state(name).value == "PREEMPTING":
            world.finish(name, 143)
    world.start("j6")


def _a_job_fails_and_one_loses_its_host(world: World) -> None:
    world.submit(job("flaky", gpus=1, model="A100", tenant="a", max_restarts=1))
    world.start("j7")
    world.finish("j7", 1)
    world.advance(3)
    world.start("j7")
    world.tell("cluster/east-2", m.Resumed("j7", 2, 40))
    world.lose("east-2-0")
    world.advance(5)
    world.revive("east-2-0")
    world.start("j7")
    world.finish("j7", 1)
    world.submit(job("limited", gpus=1, model="A100", tenant="a", time_limit_s=30.0))
    world.start("j8")
    world.advance(31)
    world.finish("j8", 143)


def _data_is_copied_and_dropped(world: World) -> None:
    world.submit(job("reader", resources=needs(1, "A100"), tenant="a", datasets=("images",)))
    world.spoil("c1")
    world.advance(31)
    world.arrive("c2")
    world.start("j9")
    world.submit(job("early", gpus=1, tenant="b", datasets=("texts",)))
    world.tell(ids.QUEUE, m.AddDataset(dataset("texts", "east", "west")))
    world.tell(ids.QUEUE, m.DropReplica("texts", "west"))


def _people_interfere(world: World) -> None:
    stubborn = job("stubborn", model="A100", tenant="a", checkpoint=Checkpoint(grace_s=2.0))
    world.submit(stubborn)
    world.start("j11")
    world.cancel("j11", "j6")
    world.advance(40)
    world.finish("j11", 137)
    world.finish("j6", 143)
    drained = m.SetHost("west-1-0", HostState.DRAINING, "ann", at_once=True)
    world.tell(ids.placer("west"), drained)
    for name, record in list(world.jobs.items()):
        if record.state.value == "PREEMPTING":
            world.finish(name, 143)
    world.configure(fleet(*CLUSTERS[:2], cluster("west-1", hosts=3, gpus=4), tenants=TENANTS,
                          datasets=(dataset("images", "west"),)))  # fmt: skip
    world.set_host("west-1-0", HostState.HEALTHY)


def _what_engines_say_at_last(world: World) -> None:
    world.tell("cluster/west-1", m.StopGang("j99", 1, Outcome.CANCELLED, "nobody knows it"))
    world.submit(job("doomed", model="A100", tenant="a"))
    world.finish("j12", None)
    world.advance(90)
    world.start("j12")
    world.tell("cluster/east-2", m.TaskList((m.TruthTask("j77", 1, 0, running=True),)))
    world.restart()
    for name, record in list(world.jobs.items()):
        if record.state.value == "RUNNING":
            world.finish(name)
    world.advance(60)


def _a_host_is_emptied(world: World) -> None:
    world.start("j4")
    world.finish("j4")
    world.submit(job("moves", gpus=2, tenant="a"))
    world.start("j13")
    world.checkpoint("j13", 50)
    (host,) = world.jobs["j13"].hosts
    world.set_host(host, HostState.DRAINING)
    world.finish("j13", 143)
    world.start("j13")
    world.set_host(host, HostState.HEALTHY)
    world.finish("j13")


def _hosts_change_clusters(world: World) -> None:
    world.submit(job("holds", gpus=2, tenant="a", preemptible=False))
    world.start("j14")
    world.assign("east", east_1_0="east_2", east_1_1="east_2")
    world.finish("j14")
    world.assign("east", east_1_0="east_1")
