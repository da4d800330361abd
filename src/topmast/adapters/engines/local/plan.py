"""From `StartGang` to `plan.json`: every environment, script and folder of an attempt, once."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from pathlib import Path

from topmast.adapters.engines.local import files, processes
from topmast.adapters.engines.local.files import Json, Layout
from topmast.model.dataset import dataset_variable
from topmast.model.fleet import ClusterSpec
from topmast.model.ids import attempt_name
from topmast.model.messages import StartGang
from topmast.model.plan import Seat
from topmast.ports import Site

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
SAFE_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FROM_OUR_ENVIRONMENT = ("HOME", "LANG")
"""All that a task sees of the environment of Topmast, beside PATH."""


class CannotStart(Exception):
    """The attempt cannot run here, and the text says why."""


def make_plan(gang: StartGang, layout: Layout, site: Site, cluster: ClusterSpec) -> Json:
    """Write the attempt's folder, scripts and plan; the plan that is there already wins."""
    attempt = attempt_name(gang.job, gang.epoch)
    made = files.read_json(layout.plan(attempt))
    if made is not None:
        return made
    _check(gang)
    folder = layout.attempt(attempt)
    files.make_folder(folder)
    scripts = _write_scripts(gang, folder)
    plan = {
        "attempt": attempt,
        "shell": shutil.which("bash") or "/bin/bash",
        "grace_s": gang.spec.checkpoint.grace_s,
        "workdir": _workdir(gang.spec.workdir, site),
        "envs": _shared_environment(gang, site, cluster),
        "secrets": gang.spec.secrets or {},
        "tasks": _tasks(gang, layout, scripts),
    }
    # Not durable: after a crash of the machine the claims count, and they are.
    files.write_json(layout.plan(attempt), plan, durable=False)
    return plan


def _check(gang: StartGang) -> None:
    if gang.spec.image:
        raise CannotStart(f"image {gang.spec.image}: this engine runs no container images")
    if not SAFE_JOB.fullmatch(gang.job):
        raise CannotStart(f"{gang.job!r} cannot name a file")
    if sorted(seat.rank for seat in gang.seats) != list(range(len(gang.seats))):
        raise CannotStart("the ranks of the seats are not 0, 1, 2, ...")
    for name, value in gang.spec.envs.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            raise CannotStart(f"envs: {name!r} cannot be an environment variable")
    for name, reference in (gang.spec.secrets or {}).items():
        if not reference.startswith("file:"):
            why = "this engine gives tasks nothing of its environment; refer to a file"
            raise CannotStart(f"secrets.{name}: {reference}: {why}")


def _write_scripts(gang: StartGang, folder: Path) -> dict[str, tuple[str, str]]:
    """The script files of each group: run and setup. Equal setups share one, so it runs once."""
    setups: dict[str, str] = {}
    scripts = {}
    for number, group in enumerate(gang.spec.groups):
        run = f"run.{number}.sh"
        files.write_file(folder / run, group.run.encode(), durable=False)
        setup = ""
        if group.setup:
            setup = setups.setdefault(group.setup, f"setup.{len(setups)}.sh")
            files.write_file(folder / setup, group.setup.encode(), durable=False)
        scripts[group.name] = (run, setup)
    return scripts


def _workdir(digest: str, site: Site) -> str:
    if not digest:
        return ""
    archive = site.blob_path(digest)
    if archive is None or not archive.is_file():
        raise CannotStart(f"the work folder {digest} is not in the store")
    return str(archive.resolve())


def _shared_environment(gang: StartGang, site: Site, cluster: ClusterSpec) -> dict[str, str]:
    """What all tasks see, but for what is theirs. The job's own variables cannot hide ours."""
    hosts = dict.fromkeys(seat.host for seat in _by_rank(gang))
    ours = {
        "TOPMAST_JOB_ID": gang.job,
        "TOPMAST_EPOCH": str(gang.epoch),
        "TOPMAST_WORLD_SIZE": str(len(gang.seats)),
        "TOPMAST_HOSTS": ",".join(hosts),
        "TOPMAST_REGION": gang.region,
        "TOPMAST_CLUSTER": gang.cluster,
        "TOPMAST_CHECKPOINT_DIR": cluster.path_there(_checkpoint_folder(gang, site.checkpoints)),
        "TOPMAST_PYTHON": sys.executable,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(len(gang.seats)),
    }
    for dataset in gang.spec.datasets:
        replica = site.replica(dataset, gang.region)
        if replica is None:
            raise CannotStart(f"dataset {dataset} has no replica here in region {gang.region}")
        if replica.folder is None:
            raise CannotStart(
                f"dataset {dataset} is in {replica.store}, and engine local reads folders only: "
                "slurm, kubernetes and ssh fetch it to their hosts"
            )
        ours[dataset_variable(dataset)] = cluster.path_there(str(replica.folder.resolve()))
    return {
        **{name: os.environ[name] for name in FROM_OUR_ENVIRONMENT if name in os.environ},
        "PATH": search_path(os.environ.get("PATH", ""), Path(sys.executable).parent),
        "PYTHONUNBUFFERED": "1",
        **gang.spec.envs,
        **ours,
    }


def search_path(path: str, own: Path) -> str:
    """``PATH`` for tasks: without the folder of Topmast's programs, if it is its own environment.

    Otherwise what a task installs would replace what Topmast runs on, and two tasks would conflict.
    """
    prefix = own.parent
    is_conda = (prefix / "conda-meta").is_dir() and prefix.parent.name == "envs"
    if not is_conda and not (prefix / "pyvenv.cfg").is_file():
        return path or os.defpath
    ours = own.resolve()
    kept = [entry for entry in path.split(os.pathsep) if entry and Path(entry).resolve() != ours]
    return os.pathsep.join(kept) or os.defpath


def _checkpoint_folder(gang: StartGang, checkpoints: Path) -> str:
    """The job's own folder, the same for each attempt in whatever region."""
    path = gang.spec.checkpoint.path
    own = checkpoints.resolve() / gang.job
    folder = (own / path).resolve()
    if not Path(path).is_absolute() and not folder.is_relative_to(own):
        raise CannotStart(f"checkpoint.path {path!r} leads out of the job's folder")
    files.make_folder(folder)
    return str(folder)


def _free_port() -> int:
    """A port without a listener now; the tasks agree on it, and the first one takes it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _tasks(gang: StartGang, layout: Layout, scripts: dict[str, tuple[str, str]]) -> Json:
    attempt = attempt_name(gang.job, gang.epoch)
    on_host: dict[str, int] = {}
    tasks = {}
    for seat in _by_rank(gang):
        if seat.group not in scripts:
            raise CannotStart(f"there is no task group {seat.group!r}")
        run, setup = scripts[seat.group]
        local_rank = on_host[seat.host] = on_host.get(seat.host, -1) + 1
        task = f"{attempt}.{seat.rank}"
        envs = {
            "TOPMAST_RANK": str(seat.rank),
            "TOPMAST_GROUP": seat.group,
            "TOPMAST_HOST": seat.host,
            "TOPMAST_GPUS_PER_TASK": str(len(seat.slots)),
            "TOPMAST_PROGRESS_FILE": str(layout.progress(task)),
            processes.MARK: str(layout.claim(task)),
            "RANK": str(seat.rank),
            "LOCAL_RANK": str(local_rank),
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, seat.slots)),
        }
        tasks[str(seat.rank)] = {"host": seat.host, "run": run, "setup": setup, "envs": envs}
    return tasks


def _by_rank(gang: StartGang) -> list[Seat]:
    return sorted(gang.seats, key=lambda seat: seat.rank)
