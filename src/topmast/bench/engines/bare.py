"""The tools that people have without Topmast, asked for the same gangs: what engines are beside."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from topmast.adapters.engines.far.kubernetes.api import Api, Refusal
from topmast.adapters.engines.far.kubernetes.kubeconfig import read_login
from topmast.adapters.engines.far.kubernetes.objects import pod_of
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions, namespace_of
from topmast.adapters.engines.far.launcher import Part, Ticket
from topmast.adapters.engines.far.slurm.batch import arguments
from topmast.adapters.engines.far.slurm.commands import Commands
from topmast.adapters.engines.far.slurm.options import SlurmOptions
from topmast.adapters.engines.far.ssh.options import SshOptions
from topmast.model.fleet import ClusterSpec

NO_TICKET = Ticket("https://127.0.0.1:9", "", "", "", None, 1.0)
"""Of parts that never run: nothing listens there."""
LISTINGS_AT_ONCE = 32
GONE_S = 60.0


def part_named(name: str, hosts: Sequence[str], image: str, cpus: float = 0.0) -> Part:
    """A part of one task on each of the hosts, without GPUs."""
    return Part(name, tuple(hosts), 1, 0, "", cpus, 0, None, "", image, NO_TICKET)


class Bare(ABC):
    """A tool for one cluster. Gangs have one task on each of their hosts."""

    @abstractmethod
    def start(self, name: str, hosts: Sequence[str], command: str) -> None:
        """Have a gang started; returns when the tool has taken it."""

    @abstractmethod
    def finish(self, name: str) -> None:
        """Wait until nothing of a gang that has started is left in the way of others."""

    def list(self) -> None:
        """Ask once what runs, and what hosts there are."""
        raise NotImplementedError

    def close(self) -> None:
        """Release connections."""
        return


class BareSlurm(Bare):
    """``sbatch`` with the options that the cluster has, and `srun` for more than one host."""

    def __init__(self, cluster: ClusterSpec, options: SlurmOptions) -> None:
        self._commands = Commands(options)
        self._options = options
        self._jobs: dict[str, str] = {}

    def start(self, name: str, hosts: Sequence[str], command: str) -> None:
        """As the base says."""
        called = [host.removeprefix(self._options.host_prefix) for host in hosts]
        part = replace(part_named(name, hosts, ""), hold=False)
        argv = arguments(part, called, self._options)
        count = str(len(hosts))
        step = f"srun --nodes={count} --ntasks={count} --mpi=none " if len(hosts) > 1 else ""
        said = self._commands.ask(*argv, text=f"#!/bin/sh\nexec {step}{command}\n")
        self._jobs[name] = said.strip().partition(";")[0]

    def finish(self, name: str) -> None:
        """It ends by itself."""
        with suppress(Exception):
            self._commands.ask("scancel", self._jobs.pop(name))

    def list(self) -> None:
        """As the base says."""
        self._commands.look("squeue", "--me", "-a", "-h", "-t", "all")
        self._commands.look("sinfo", "-N", "-a", "-h")


class BareKubernetes(Bare):
    """Pods like those of the engine, without its Secret and its finalizer."""

    def __init__(self, cluster: ClusterSpec, options: KubernetesOptions) -> None:
        self._api = Api(lambda: read_login(options.kubeconfig, options.context), options.timeout_s)
        self._image = cluster.image or ""
        self._options = options
        self._pods: dict[str, list[str]] = {}

    def start(self, name: str, hosts: Sequence[str], command: str) -> None:
        """As the base says."""
        for index, host in enumerate(hosts):
            node = host.removeprefix(self._options.host_prefix)
            part = part_named(f"{name}-{index}", [host], self._image)
            pod = pod_of(part, node, self._namespace(), "bare", "", self._options)
            del pod["metadata"]["finalizers"], pod["metadata"]["ownerReferences"]
            pod["spec"]["terminationGracePeriodSeconds"] = 1
            pod["spec"]["volumes"].pop(0)
            (container,) = pod["spec"]["containers"]
            container["volumeMounts"].pop(0)
            container["command"] = ["sh", "-c", f"exec {command}"]
            self._api.create(msgspec.Raw, self._path(), pod)
            self._pods.setdefault(name, []).append(part.name)

    def finish(self, name: str) -> None:
        """The pods are deleted, as a controller of jobs does."""
        for pod in self._pods.pop(name):
            with suppress(Refusal):
                self._api.delete(f"{self._path()}/{pod}", {"gracePeriodSeconds": 1})

    def list(self) -> None:
        """As the base says; the answer is read as JSON without any types."""
        self._api.all(dict[str, Any], self._path())
        self._api.all(dict[str, Any], "/api/v1/nodes")

    def close(self) -> None:
        """As the base says."""
        self._api.close()

    def _namespace(self) -> str:
        return namespace_of(self._options, "", self._options.namespace.get("") or self._usual())

    def _usual(self) -> str:
        return self._api.namespace()

    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._namespace()}/pods"


class BareSsh(Bare):
    """The program ``ssh``, with a connection for each command."""

    def __init__(self, cluster: ClusterSpec, options: SshOptions) -> None:
        self._options = options
        self._hosts = [host.name for host in cluster.hosts]
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {}

    def start(self, name: str, hosts: Sequence[str], command: str) -> None:
        """As the base says."""
        self._running[name] = [self._run(host, command) for host in hosts]

    def finish(self, name: str) -> None:
        """As the base says."""
        for process in self._running.pop(name):
            process.wait(GONE_S)

    def list(self) -> None:
        """As the base says: the processes of each host."""
        with ThreadPoolExecutor(LISTINGS_AT_ONCE) as pool:
            list(
                pool.map(lambda host: self._run(host, "ps -eo pid,args").wait(GONE_S), self._hosts)
            )

    def _run(self, host: str, command: str) -> subprocess.Popen[bytes]:
        options = self._options
        words = ["ssh", "-T", "-o", "BatchMode=yes", "-p", str(options.port)]
        if options.known_hosts:
            words += ["-o", f"UserKnownHostsFile={Path(options.known_hosts).expanduser()}"]
        if options.identity:
            words += ["-i", str(Path(options.identity).expanduser())]
        if options.jump:
            words += ["-J", options.jump]
        if options.user:
            words += ["-l", options.user]
        words += ["--", options.address.get(host, host), command]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet)


class BareLocal(Bare):
    """A child of this process for each task."""

    def __init__(self, cluster: ClusterSpec, options: object) -> None:
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {}

    def start(self, name: str, hosts: Sequence[str], command: str) -> None:
        """As the base says."""
        self._running[name] = [subprocess.Popen(["sh", "-c", f"exec {command}"]) for _ in hosts]

    def finish(self, name: str) -> None:
        """As the base says."""
        for process in self._running.pop(name):
            process.wait(GONE_S)


BARE: dict[str, type[Any]] = {
    "local": BareLocal, "slurm": BareSlurm, "kubernetes": BareKubernetes, "ssh": BareSsh,
}  # fmt: skip
"""By the name of the engine; each is made of a cluster and the engine's options."""
