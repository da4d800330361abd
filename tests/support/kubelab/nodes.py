"""Nodes: each a kubelet and a containerd of its own, in namespaces of its own.

A process that only sleeps holds them: network and mounts. With its end they are gone, and all that
was mounted; so is what kubelets write outside of their folder, because there is memory in place of
these folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.support.kubelab import image
from tests.support.kubelab.programs import Daemon, cache, program, run, until

if TYPE_CHECKING:
    from tests.support.kubelab.lab import Lab

READY_S = 120.0
GPU = "nvidia.com/gpu"
# The kubelet sets these for the whole machine: it gets files in their place.
_SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
            "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")  # fmt: skip
_HOLDER = [
    "unshare", "--net", "--mount", "--propagation=slave", "sh", "-c",
    "for d in /var/lib /var/log /run; do mount -t tmpfs tmpfs $d || exit; done; "
    "for s in $*; do f=/run/${s##*/}; cat /proc/sys/$s >$f && mount --bind $f /proc/sys/$s; done; "
    "exec sleep infinity", "sh", *_SYSCTLS,
]  # fmt: skip
_CGROUPS = Path("/sys/fs/cgroup")


class Network:
    """A bridge of this machine, to which the namespaces of nodes are tied."""

    def __init__(self) -> None:
        # Two labs at once must not meet: a subnet and names by chance.
        self._number = random.SystemRandom().randrange(1, 250)
        self.name = f"tmlab{self._number}"
        self.address = f"10.{self._number}.0.1"

    def make(self) -> None:
        """Make the bridge."""
        run("ip", "link", "add", self.name, "type", "bridge")
        run("ip", "address", "add", f"{self.address}/24", "dev", self.name)
        run("ip", "link", "set", self.name, "up")

    def remove(self) -> None:
        """Remove it."""
        run("ip", "link", "delete", self.name, check=False)

    def node_address(self, index: int) -> str:
        """The address of a node."""
        return f"10.{self._number}.0.{index + 11}"

    def pods_of(self, index: int) -> str:
        """The subnet of the pods of a node."""
        return f"10.{self._number}.{index + 1}.0/24"


class Node:
    """One node, with faults."""

    def __init__(self, folder: Path, network: Network, index: int, gpus: int) -> None:
        self.name = f"h{index}"
        self.gpus = gpus
        self.cgroup = f"{network.name}-{index}"
        self._network, self._index = network, index
        self._folder = folder / self.name
        self._link = f"{network.name}v{index}"
        self._inside: list[str] = []
        self.socket = str(self._folder / "containerd.sock")
        logs = folder / "logs"
        self._holder = Daemon("holder", _HOLDER, logs / f"holder-{index}.log")
        self.containerd = Daemon("containerd", [], logs / f"containerd-{index}.log")
        self.kubelet = Daemon("kubelet", [], logs / f"kubelet-{index}.log")

    def _set_commands(self) -> None:
        """What is started depends on the namespaces, which are there by now."""
        self.containerd.command = [
            *self._inside,
            program("containerd"),
            "--config",
            f"{self._folder}/containerd.toml",
        ]
        self.kubelet.command = [
            *self._inside, program("kubelet"), f"--config={self._folder}/kubelet.yaml",
            f"--kubeconfig={self._folder}/login.yaml", f"--root-dir={self._folder}/kubelet",
            f"--hostname-override={self.name}", "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{self.socket}",
            f"--node-ip={self._network.node_address(self._index)}",
            f"--cert-dir={self._folder}/pki",
        ]  # fmt: skip

    def make(self, lab: Lab, others: list[Node]) -> None:
        """Make the namespace, the cgroup and the files."""
        for part in ("kubelet", "pki", "cni", "containerd", "manifests"):
            (self._folder / part).mkdir(parents=True)
        for controller in self._controllers():
            (controller / self.cgroup).mkdir(exist_ok=True)
            _give_cpus(controller, controller / self.cgroup)
        self._connect(others)
        user = lab.user(f"system:node:{self.name}", ["system:nodes"])
        (self._folder / "login.yaml").write_text(user.read_text())
        (self._folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet()))
        (self._folder / "containerd.toml").write_text(self._containerd())
        plugins = [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(self._folder / "ipam"),
                    "ranges": [[{"subnet": self._network.pods_of(self._index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ]
        network = {"cniVersion": "0.4.0", "name": "lab", "plugins": plugins}
        (self._folder / "cni" / "10-lab.conflist").write_text(json.dumps(network))

    def _connect(self, others: list[Node]) -> None:
        """A namespace tied to the bridge, with ways to its own pods and to those of others."""
        address, far = self._network.node_address(self._index), f"{self._link}n"
        self._holder.start()
        holder = self._holder.pid
        until(lambda: _SYSCTLS[-1] in Path(f"/proc/{holder}/mounts").read_text(), 20, "namespaces")
        self._inside = ["nsenter", f"--target={holder}", "--net", "--mount"]
        self._set_commands()
        run("ip", "link", "add", self._link, "type", "veth", "peer", "name", far)
        run("ip", "link", "set", self._link, "master", self._network.name, "up")
        run("ip", "link", "set", far, "netns", str(holder))
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "address", "add", f"{address}/24", "dev", far)
        self.inside("ip", "link", "set", far, "up")
        self.inside("ip", "route", "add", "default", "via", self._network.address)
        self.inside("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        run("ip", "route", "add", self._network.pods_of(self._index), "via", address)
        for other in others:
            way = ("via", self._network.node_address(other._index))
            self.inside("ip", "route", "add", self._network.pods_of(other._index), *way)
            other.inside("ip", "route", "add", self._network.pods_of(self._index), "via", address)

    def inside(self, *command: str) -> str:
        """What a command prints in the node's network."""
        return run(*self._inside, *command)

    def cut(self) -> None:
        """Cut the node off: neither its kubelet nor its pods reach anything."""
        run("ip", "link", "set", self._link, "down")

    def mend(self) -> None:
        """Connect it again."""
        run("ip", "link", "set", self._link, "up")

    def processes(self, pod: str = "") -> list[int]:
        """All processes of a pod, by its uid, or of all pods: whatever Kubernetes says."""
        found: set[int] = set()
        # Groups come and go meanwhile, which `os.walk` takes as it is.
        for folder, _, _ in os.walk(self._controller("pids") / self.cgroup):
            if pod in folder:
                with contextlib.suppress(OSError):
                    path = Path(folder, "cgroup.procs")
                    found |= {int(pid) for pid in path.read_text().split()}
        return sorted(found)

    def start(self, archive: Path) -> None:
        """Start containerd with the image, then the kubelet."""
        self.containerd.start()
        until(lambda: Path(self.socket).exists(), READY_S, "containerd")
        run(
            program("ctr"), "--address", self.socket, "-n", "k8s.io", "images", "import",
            "--digests=false", str(archive),
        )  # fmt: skip
        self.kubelet.start()

    def stop(self) -> None:
        """End everything of the node, processes of pods included, and remove its traces."""
        self.kubelet.stop()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        self.containerd.stop()
        for pid in self._shims():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        self._holder.stop()
        run("ip", "link", "delete", self._link, check=False)
        for controller in self._controllers():
            for folder, _, _ in os.walk(controller / self.cgroup, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()

    def _shims(self) -> list[int]:
        """The processes of containerd that hold containers, which outlive it."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    if self.socket.encode() in words and b"containerd-shim" in words[0]:
                        found.append(int(folder.name))
        return found

    @staticmethod
    def _controllers() -> list[Path]:
        """The hierarchies of cgroups of this machine: of version 1, or the only one of version 2."""
        if (_CGROUPS / "cgroup.controllers").exists():
            return [_CGROUPS]
        lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
        return sorted({Path(words[1]) for words in lines if words[2].startswith("cgroup")})

    @classmethod
    def _controller(cls, name: str) -> Path:
        return next((path for path in cls._controllers() if path.name == name), _CGROUPS)

    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": self._network.node_address(self._index),
            "healthzPort": 0,
            "readOnlyPort": 0,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%",
                             "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "resolvConf": "",
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 10,
            "serializeImagePulls": False,
            "maxPods": 200,
        }  # fmt: skip

    def _containerd(self) -> str:
        where = self._folder / "containerd"
        return f"""version = 2
root = "{where}/kept"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image.NAME}"
restrict_oom_score_adj = true
disable_apparmor = true
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{program("runc")}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cache()}/debian/usr/lib/cni"
conf_dir = "{self._folder}/cni"
"""


class Nodes:
    """All nodes of a lab."""

    def __init__(self, folder: Path, network: Network, count: int, gpus: int) -> None:
        self.all = [Node(folder, network, index, gpus) for index in range(count)]

    def start(self, lab: Lab) -> None:
        """Start all, and give them GPUs that nothing but the scheduler counts."""
        archive = image.image_of(cache())
        made: list[Node] = []
        for node in self.all:
            node.make(lab, made)
            made.append(node)
        for node in self.all:
            node.start(archive)
        for node in self.all:
            until(partial(_is_there, lab, node.name), READY_S, node.kubelet.name)
            give_gpus(lab, node.name, node.gpus)
            until(partial(_is_ready, lab, node.name), READY_S, node.kubelet.name)

    def stop(self) -> None:
        """Stop all."""
        for node in self.all:
            node.stop()


def give_gpus(lab: Lab, node: str, gpus: int, resource: str = GPU) -> None:
    """Let a node say that it has GPUs: the scheduler counts what nodes say."""
    path = resource.replace("/", "~1")
    patch: list[dict[str, object]] = [{"op": "add", "path": f"/status/capacity/{path}", "value": str(gpus)},
             {"op": "add", "path": f"/status/allocatable/{path}", "value": str(gpus)}]  # fmt: skip
    lab.patch_status(f"/api/v1/nodes/{node}", patch)


def _is_there(lab: Lab, name: str) -> bool:
    text = lab.kubectl("get", "node", name, "-o", "json", check=False)
    return bool(text) and "capacity" in json.loads(text)["status"]


def _is_ready(lab: Lab, name: str) -> bool:
    status = lab.get("node", name)["status"]
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"])
    return ready and GPU in status["allocatable"]


def _give_cpus(controller: Path, group: Path) -> None:
    """A new group of `cpuset` has no CPUs: nothing could run in it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (group / name).exists() and not (group / name).read_text().strip():
            (group / name).write_text((controller / name).read_text())
