"""Which API server, and with which credentials: a kubeconfig file, or the pod that we run in."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from topmast.model.errors import InvalidInput
from topmast.model.files.source import kind_of_file

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts the credentials of a pod."""
_MAX_BYTES = 16 * 1024 * 1024

T = TypeVar("T", bound=Struct)


class Variable(Struct, frozen=True):
    """One environment variable of a credentials plugin."""

    name: str
    value: str = ""


class Plugin(Struct, frozen=True, rename="camel"):
    """A program that prints credentials."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


class Server(Struct, frozen=True, rename="kebab"):
    """One entry of ``clusters``."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class User(Struct, frozen=True, rename="kebab"):
    """One entry of ``users``."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = field(default="", name="tokenFile")
    plugin: Plugin | None = field(default=None, name="exec")
    username: str = ""
    auth_provider: Any = None
    impersonated: str = field(default="", name="as")


class Context(Struct, frozen=True):
    """One entry of ``contexts``."""

    cluster: str
    user: str = ""
    namespace: str = ""


class _NamedServer(Struct, frozen=True):
    name: str
    cluster: Server


class _NamedUser(Struct, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(Struct, frozen=True):
    name: str
    context: Context


class _File(Struct, frozen=True, rename="kebab"):
    clusters: list[_NamedServer] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


class Login(Struct, frozen=True):
    """One server, and how to show that we may use it. Files are named by full paths."""

    server: Server
    user: User
    namespace: str
    cluster: str
    """What the kubeconfig calls the cluster."""
    origin: str
    """Where this was read, for error messages."""


def read_login(
    kubeconfig: str = "",
    context: str = "",
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Login:
    """The login of a context, looked for as kubectl does: raises InvalidInput without one.

    The file that is named, else those of $KUBECONFIG, else ~/.kube/config, else the pod's own
    service account.
    """
    if kubeconfig:
        return _of_files([Path(kubeconfig).expanduser()], context)
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        return _of_files(named, context)
    usual = Path(environment.get("HOME", "/")) / ".kube" / "config"
    if usual.exists():
        return _of_files([usual], context)
    if environment.get("KUBERNETES_SERVICE_HOST") and not context:
        return _of_pod(environment, service_account)
    raise InvalidInput(
        f"there is no kubeconfig: {usual} does not exist, and KUBECONFIG is not set",
        field="kubeconfig", remedy="name the file of a cluster's credentials",
    )  # fmt: skip


def _of_pod(environment: Mapping[str, str], folder: Path) -> Login:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    try:
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidInput(
            f"this pod has no service account: {error}",
            remedy="set automountServiceAccountToken: true in its spec, or name a kubeconfig",
        ) from None
    return Login(
        server=Server(
            server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
            certificate_authority=str(folder / "ca.crt"),
        ),
        user=User(token_file=str(folder / "token")),
        namespace=namespace,
        cluster="kubernetes",
        origin=str(folder),
    )


def _of_files(paths: list[Path], context: str) -> Login:
    """Of the first files that define them: the context, its cluster and its user."""
    files = [(path, _read(path)) for path in paths if path.exists() or len(paths) == 1]
    origin = os.pathsep.join(str(path) for path in paths)
    current = next((file.current_context for _, file in files if file.current_context), "")
    wanted = context or current
    if not wanted:
        raise InvalidInput(
            "the kubeconfig names no current context", where=origin,
            remedy="name one (kubectl config get-contexts lists them)",
        )  # fmt: skip
    _, chosen = _found(
        "context", wanted, origin,
        {entry.name: (path, entry.context) for path, file in reversed(files)
         for entry in file.contexts or ()},
    )  # fmt: skip
    servers = {
        entry.name: (path, entry.cluster)
        for path, file in reversed(files)
        for entry in file.clusters or ()
    }
    users = {
        entry.name: (path, entry.user or User())
        for path, file in reversed(files)
        for entry in file.users or ()
    }
    server = _with_full_paths(*_found("cluster", chosen.cluster, origin, servers))
    user = _with_full_paths(*_found("user", chosen.user, origin, users)) if chosen.user else User()
    if not _is_url(server.server):
        raise InvalidInput(
            f"cluster '{chosen.cluster}' has no URL as its server", where=origin, field="server",
            remedy="write it like https://10.0.0.1:6443",
        )  # fmt: skip
    return Login(_checked_server(server, origin), _checked(user, chosen.user, origin),
                 chosen.namespace or "default", chosen.cluster, origin)  # fmt: skip


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _read(path: Path) -> _File:
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise InvalidInput(
            f"the kubeconfig is {kind_of_file(path.stat().st_mode)}", where=str(path),
            field="kubeconfig", remedy="name a file",
        )  # fmt: skip
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(
            f"the kubeconfig cannot be read: {error.strerror}", where=str(path),
            field="kubeconfig", remedy="name a file that this user may read",
        ) from None  # fmt: skip
    try:
        return msgspec.yaml.decode(data[:_MAX_BYTES], type=_File)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        what = " ".join(str(error).split())
        raise InvalidInput(
            f"this is no kubeconfig: {what}", where=str(path), field="kubeconfig",
            remedy="see `kubectl config view`",
        ) from None  # fmt: skip


def _found(
    kind: str, name: str, origin: str, known: Mapping[str, tuple[Path, T]]
) -> tuple[Path, T]:
    if name not in known:
        listed = ", ".join(f"'{one}'" for one in known) or "none"
        raise InvalidInput(
            f"the kubeconfig has no {kind} '{name}'", where=origin, field=kind,
            remedy=f"there is: {listed}",
        )  # fmt: skip
    return known[name]


_PATHS = ("certificate_authority", "client_certificate", "client_key", "token_file")


def _with_full_paths(path: Path, entry: T) -> T:
    """The entry, with relative files looked for beside the kubeconfig that names them."""
    full = {
        name: str(path.absolute().parent / getattr(entry, name))
        for name in _PATHS
        if getattr(entry, name, "")
    }
    return msgspec.structs.replace(entry, **full)


def _checked_server(server: Server, origin: str) -> Server:
    bytes_of(server.certificate_authority_data, "certificate-authority-data", origin)
    return server


def _checked(user: User, name: str, origin: str) -> User:
    """The user, if we can be it: what is not supported would act with other rights than meant."""
    for given, option, remedy in (
        (user.auth_provider, "auth-provider", "use an exec plugin: Kubernetes 1.26 removed these"),
        (user.username, "username", "use a token or a client certificate"),
        (user.impersonated, "as", "give the user of the kubeconfig the rights itself"),
    ):
        if given:
            raise InvalidInput(
                f"user '{name}' uses '{option}', which is not supported", where=origin,
                field=option, remedy=remedy,
            )  # fmt: skip
    bytes_of(user.client_certificate_data, "client-certificate-data", origin)
    bytes_of(user.client_key_data, "client-key-data", origin)
    if user.plugin and user.plugin.interactive_mode == "Always":
        raise InvalidInput(
            f"the plugin '{user.plugin.command}' of user '{name}' asks a person", where=origin,
            field="interactiveMode", remedy="use credentials that need none",
        )  # fmt: skip
    return user


def bytes_of(text: str, name: str, origin: str) -> bytes:
    """What a field holds in Base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(
            "this is no Base64", where=origin, field=name, remedy="copy the file anew"
        ) from None
