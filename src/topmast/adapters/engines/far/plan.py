"""From `StartGang` to parts, tickets, and what a runner is told to run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import UNSET

from topmast.adapters.engines.far.attempts import Attempt
from topmast.adapters.engines.far.events import Carried, PartPlan
from topmast.adapters.engines.far.options import FarOptions
from topmast.adapters.engines.local import files
from topmast.model.dataset import dataset_variable
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.job import Resources, in_kubernetes
from topmast.model.messages import StartGang
from topmast.model.plan import Seat
from topmast.ports import Site

SAFE_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


PIECE_BYTES = 16 << 20
"""Of files of checkpoints in a bucket."""
PIECE_HOME_BYTES = 1 << 20
"""The same when they go by way of the engine."""


class CannotStart(Exception):
    """The attempt cannot run here, and the text says why."""


def check(gang: StartGang, site: Site, *, images: bool) -> None:
    """Raise CannotStart for what no runner could start; ``images``: whether they are containers."""
    if not SAFE_JOB.fullmatch(gang.job):
        raise CannotStart(f"{gang.job!r} cannot be part of a name")
    if sorted(seat.rank for seat in gang.seats) != list(range(len(gang.seats))):
        raise CannotStart("the ranks of the seats are not 0, 1, 2, ...")
    groups = {group.name for group in gang.spec.groups}
    for seat in gang.seats:
        if seat.group not in groups:
            raise CannotStart(f"there is no task group {seat.group!r}")
    for name, value in gang.spec.envs.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            raise CannotStart(f"envs: {name!r} cannot be an environment variable")
    if not images and in_kubernetes(gang.spec):
        raise CannotStart("secrets: this engine has no Secrets of Kubernetes")
    digest = gang.spec.workdir
    if digest and site.blob_path(digest) is None:
        raise CannotStart(f"the work folder {digest} is not in the store")


def environment(
    gang: StartGang, cluster: ClusterSpec, site: Site, options: FarOptions
) -> tuple[dict[str, str], Carried]:
    """What all tasks see beside what is theirs, and what runners bring to them.

    The job's own variables cannot hide ours.
    """
    hosts = dict.fromkeys(seat.host for seat in _by_rank(gang))
    ours = {
        "PYTHONUNBUFFERED": "1",
        "TOPMAST_JOB_ID": gang.job,
        "TOPMAST_EPOCH": str(gang.epoch),
        "TOPMAST_WORLD_SIZE": str(len(gang.seats)),
        "TOPMAST_HOSTS": ",".join(hosts),
        "TOPMAST_REGION": gang.region,
        "TOPMAST_CLUSTER": gang.cluster,
        "WORLD_SIZE": str(len(gang.seats)),
    }
    checkpoint = None
    if site.checkpoint_store:
        checkpoint = str(_checkpoint_folder(gang, Path("/")).relative_to(f"/{gang.job}"))
    else:
        folder = _checkpoint_folder(gang, site.checkpoints.resolve())
        files.make_folder(folder)
        ours["TOPMAST_CHECKPOINT_DIR"] = cluster.path_there(str(folder))
    carried = []
    for dataset in gang.spec.datasets:
        replica = site.replica(dataset, gang.region)
        if replica is None:
            raise CannotStart(f"dataset {dataset} has no replica here in region {gang.region}")
        if replica.folder is None or options.data == "home":
            carried.append(dataset)
        else:
            there = cluster.path_there(str(replica.folder.resolve()))
            ours[dataset_variable(dataset)] = there
    return {**gang.spec.envs, **ours}, Carried(tuple(carried), checkpoint)


def _checkpoint_folder(gang: StartGang, root: Path) -> Path:
    """The job's own folder below a root, the same for each attempt in whatever region."""
    path = gang.spec.checkpoint.path
    own = root / gang.job
    folder = (own / path).resolve()
    if not path.startswith("/") and not folder.is_relative_to(own):
        raise CannotStart(f"checkpoint.path {path!r} leads out of the job's folder")
    return folder


def make_parts(gang: StartGang, fleet: str, *, many_hosts: bool) -> tuple[PartPlan, ...]:
    """The parts of an attempt: one for all hosts that give it the same, if it can have many."""
    by_host: dict[str, list[Seat]] = {}
    for seat in _by_rank(gang):
        by_host.setdefault(seat.host, []).append(seat)
    alike: dict[object, dict[str, tuple[int, ...]]] = {}
    for host, seats in by_host.items():
        shape = tuple((seat.group, _gpus(seat)) for seat in seats)
        likeness = shape if many_hosts else host
        alike.setdefault(likeness, {})[host] = tuple(seat.rank for seat in seats)
    return tuple(
        PartPlan(f"tm-{fleet}-{gang.job}-{gang.epoch}-{number}", ranks)
        for number, ranks in enumerate(alike.values())
    )


class Needs:
    """What a part takes on each of its hosts."""

    def __init__(self, gang: StartGang, plan: PartPlan, hosts: dict[str, HostSpec]) -> None:
        host = next(iter(plan.ranks))
        seats = [seat for seat in gang.seats if seat.host == host and seat.rank in plan.ranks[host]]
        resources = [_resources(gang, seat) for seat in seats]
        self.hosts = tuple(plan.ranks)
        self.tasks = len(seats)
        self.gpus = sum(_gpus(seat) for seat in seats)
        self.model = hosts[host].model if self.gpus and host in hosts else ""
        self.cpus = sum(need.cpus for need in resources)
        self.memory_bytes = sum(need.memory_bytes for need in resources)
        limit_s = gang.spec.time_limit_s
        self.limit_s = None if limit_s is None else limit_s + gang.spec.checkpoint.grace_s + 600.0
        """Topmast ends it in time; the scheduler only if that fails."""


def image_of(gang: StartGang, cluster: ClusterSpec) -> str:
    """The container image; empty for none."""
    for image in (gang.spec.image, cluster.image):
        if image is not UNSET and image:
            return image
    return ""


def runner_plan(
    attempt: Attempt, ranks: tuple[int, ...], options: FarOptions, *, exact_gpus: bool
) -> dict[str, Any]:
    """What the runner of one host is told."""
    gang = attempt.gang
    groups = {group.name: number for number, group in enumerate(gang.spec.groups)}
    setups = {group.setup: f"setup.{n}.sh" for n, group in enumerate(gang.spec.groups)}
    scripts, found = {}, {}
    here = [seat for seat in _by_rank(gang) if seat.rank in ranks]
    for local_rank, seat in enumerate(here):
        group = gang.spec.groups[groups[seat.group]]
        run = f"run.{groups[seat.group]}.sh"
        setup = setups[group.setup] if group.setup else ""
        scripts[run] = group.run
        if setup:
            scripts[setup] = group.setup
        own = {
            "TOPMAST_RANK": str(seat.rank),
            "TOPMAST_GROUP": seat.group,
            "TOPMAST_HOST": seat.host,
            "TOPMAST_GPUS_PER_TASK": str(len(seat.slots)),
            "RANK": str(seat.rank),
            "LOCAL_RANK": str(local_rank),
        }
        found[str(seat.rank)] = {
            "run": run, "setup": setup, "envs": own, "gpus": len(seat.slots),
            "slots": [str(slot) for slot in seat.slots] if exact_gpus else None,
        }  # fmt: skip
    blob = bool(gang.spec.workdir)
    return {
        "job": gang.job, "work": options.work, "blob": blob, "envs": attempt.envs,
        "secrets": gang.spec.secrets or {},
        "scripts": scripts, "ranks": found, "data": _data(attempt.carried, options),
    }  # fmt: skip


def _data(carried: Carried, options: FarOptions) -> dict[str, Any] | None:
    """What the runner brings to its host; None when that is nothing."""
    if carried == Carried():
        return None
    return {
        "datasets": {name: dataset_variable(name) for name in carried.datasets},
        "cache": options.cache, "cache_max_bytes": options.cache_max_bytes,
        "checkpoint": carried.checkpoint, "through_home": options.data == "home",
        "piece_bytes": PIECE_BYTES if options.data == "shared" else PIECE_HOME_BYTES,
    }  # fmt: skip


def _by_rank(gang: StartGang) -> list[Seat]:
    return sorted(gang.seats, key=lambda seat: seat.rank)


def _gpus(seat: Seat) -> int:
    return len(seat.slots)


def _resources(gang: StartGang, seat: Seat) -> Resources:
    return next(group.resources for group in gang.spec.groups if group.name == seat.group)
