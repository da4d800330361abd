"""The control plane: etcd, API server, controllers and scheduler, on addresses of this machine."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import yaml

from tests.support.kubelab.certificates import Authority
from tests.support.kubelab.nodes import Network, Nodes
from tests.support.kubelab.programs import Daemon, free_port, program, run, until

READY_S = 90.0
"""On a busy machine; alone it takes six to eight seconds."""


class Lab:
    """A whole Kubernetes, which leaves nothing behind: `with Lab(nodes=2) as lab`.

    Without nodes it takes a second or two less and needs no root: pods are stored, and wait.
    """

    def __init__(self, nodes: int = 0, gpus: int = 8) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="topmast-lab-"))
        self.folder.chmod(0o755)
        self._network = Network() if nodes else None
        self.address = self._network.address if self._network else "127.0.0.1"
        self._authority = Authority(self.folder / "pki")
        self._users: dict[str, str] = {}
        self._port = 0
        self.kubeconfig = self.folder / "admin.yaml"
        self.daemons: dict[str, Daemon] = {}
        self.nodes = Nodes(self.folder, self._network, nodes, gpus) if self._network else None

    def __enter__(self) -> Lab:
        try:
            self.start()
        except BaseException as error:
            for path in sorted((self.folder / "logs").glob("*.log")):
                error.add_note(f"{path.name}: {path.read_text(errors='replace')[-2000:]}")
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything, and wait until it answers."""
        if self._network:
            self._network.make()
        self._port = free_port(self.address)
        (self.folder / "logs").mkdir()
        self.login(self.kubeconfig, *self._authority.pair("admin", ("system:masters",)))
        self._prepare()
        for name in ("etcd", "kube-apiserver"):
            self.daemons[name].start()
        until(self.answers, READY_S, "the API server")
        until(self._has_account, READY_S, "the service account of the first namespace")
        if self.nodes:
            self.nodes.start(self)

    def stop(self) -> None:
        """End everything, and remove every trace of it."""
        if self.nodes:
            self.nodes.stop()
        for daemon in reversed(self.daemons.values()):
            daemon.stop()
        if self._network:
            self._network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _prepare(self) -> None:
        etcd, peer = free_port(), free_port()
        served = self._authority.pair("kube-apiserver", (), tuple({self.address, "127.0.0.1"}))
        accounts = self._authority.key("accounts")
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        self._daemon(
            "etcd", f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        )  # fmt: skip
        self._daemon(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--bind-address={self.address}", f"--secure-port={self._port}", "--insecure-port=0",
            f"--advertise-address={self.address}", "--service-cluster-ip-range=10.250.0.0/24",
            f"--tls-cert-file={served[0]}", f"--tls-private-key-file={served[1]}",
            f"--client-ca-file={self._authority.path}", f"--token-auth-file={tokens}",
            f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC", "--allow-privileged=true", "--profiling=false",
        )  # fmt: skip
        both = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--port=0")
        self._daemon(
            "kube-controller-manager", *both, "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}", f"--service-account-private-key-file={accounts}",
            f"--root-ca-file={self._authority.path}", "--use-service-account-credentials=false",
            "--node-monitor-grace-period=12s", "--node-monitor-period=2s",
        )  # fmt: skip
        self._daemon(
            "kube-scheduler", *both, "--bind-address=127.0.0.1", f"--secure-port={free_port()}"
        )

    def _daemon(self, name: str, *flags: str) -> None:
        log = self.folder / "logs" / f"{name}.log"
        self.daemons[name] = Daemon(name, [program(name), *flags], log)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{self.address}:{self._port}"

    def answers(self) -> bool:
        """Whether the API server is ready."""
        with suppress(OSError), socket.create_connection((self.address, self._port), 1.0):
            return self.kubectl("get", "--raw", "/readyz", check=False) == "ok"
        return False

    def revive(self) -> None:
        """Let all daemons run again: killed, frozen, or ended because the API server was away."""
        daemons = list(self.daemons.values())
        if self.nodes:
            daemons += [node.kubelet for node in self.nodes.all]
        for daemon in daemons:
            daemon.signal(signal.SIGCONT)
            if not daemon.runs:
                daemon.start()

    def _has_account(self) -> bool:
        for name in ("kube-controller-manager", "kube-scheduler"):
            if not self.daemons[name].runs:
                self.daemons[name].start()
        return "default" in self.kubectl("get", "serviceaccounts", "-o", "name", check=False)

    def kubectl(self, *arguments: str, check: bool = True, given: bytes = b"") -> str:
        """What kubectl prints, with all rights."""
        flags = ("--kubeconfig", str(self.kubeconfig), "--request-timeout=20s")
        cache = ("--cache-dir", str(self.folder / "kubectl"))
        return run(program("kubectl"), *flags, *cache, *arguments, check=check, given=given)

    def get(self, *arguments: str) -> Any:
        """An object or a list of objects."""
        return json.loads(self.kubectl("get", "-o", "json", *arguments))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Make or change objects."""
        self.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects).encode())

    def share(self, folder: Path, name: str) -> None:
        """Make a claim by which pods see a folder of this machine, as a shared file system."""
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        bound = {"claimRef": {"namespace": "default", "name": name}}
        size = {"storage": "1Gi"}
        self.apply(
            {
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {**common, **bound, "capacity": size, "hostPath": {"path": str(folder)}},
            },
            {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                "spec": {**common, "volumeName": name, "resources": {"requests": size}},
            },
        )  # fmt: skip
        ask = ("get", "pvc", name, "-o", "jsonpath={.status.phase}")
        until(lambda: self.kubectl(*ask) == "Bound", READY_S, f"the claim {name}")

    def patch_status(self, path: str, patch: list[dict[str, object]]) -> None:
        """Change what an object says of itself, as its kubelet would: kubectl cannot."""
        headers = {"Content-Type": "application/json-patch+json"}
        answer = self._http.patch(f"{self.server}{path}/status", json=patch, headers=headers)
        answer.raise_for_status()

    @cached_property
    def _http(self) -> httpx.Client:
        """Requests with all rights."""
        trusted = ssl.create_default_context(cafile=str(self._authority.path))
        trusted.load_cert_chain(
            self.folder / "pki" / "admin.crt", self.folder / "pki" / "admin.key"
        )
        return httpx.Client(verify=trusted, trust_env=False, timeout=20.0)

    def login(
        self,
        path: Path,
        certificate: Path | None = None,
        key: Path | None = None,
        namespace: str = "default",
        **user: object,
    ) -> Path:
        """Write a kubeconfig: with a certificate, or with other fields of its user."""
        if certificate and key:
            user |= {"client-certificate": str(certificate), "client-key": str(key)}
        server = {"server": self.server, "certificate-authority": str(self._authority.path)}
        context = {"cluster": "lab", "user": "lab", "namespace": namespace}
        path.touch(mode=0o600)
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": server}],
            "users": [{"name": "lab", "user": user}],
            "contexts": [{"name": "lab", "context": context}],
        }  # fmt: skip
        path.write_text(yaml.safe_dump(document))
        return path

    def user(self, name: str, groups: Sequence[str] = (), namespace: str = "default") -> Path:
        """A kubeconfig of a user with no rights but those that are bound to it."""
        pair = self._authority.pair(name, tuple(groups))
        return self.login(self.folder / f"user-{name.replace(':', '-')}.yaml", *pair, namespace)

    def account_token(self, namespace: str, account: str) -> str:
        """A token of a service account, as its pods get it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = self.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(body).encode())
        token: str = json.loads(made)["status"]["token"]
        return token
