"""Forms of the texts that options of engines take, each with the words for a text of another one.

An option says its form in its type: ``Annotated[str, LISTEN]``. `misfit` tells what it wants.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated, Any, get_args, get_origin

from msgspec import Meta

MOST_PORT = 65_535
UNIX = "unix:"
_HOST = re.compile(r"[^\s\x00-\x1f:/@,\[\]]+")
_CONTROL = re.compile(r"[\x00-\x1f]")
_PROGRAM = re.compile(r"[^\s\x00-\x1f-][^\s\x00-\x1f]*")
_SLURM_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|infinite|unlimited", re.IGNORECASE)
_DIGITS_MOST = 9
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DOMAIN_MOST = 253
TAKEN_PATHS = ("/dev", "/proc", "/sys", "/run/topmast", "/var/run/topmast")
"""Where every pod has devices, the kernel, and the runner, in whichever of two folders for it."""
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_TAINT = re.compile(
    rf"({_DOMAIN}/)?{_WORD}(=({_WORD})?)?(:(NoSchedule|PreferNoSchedule|NoExecute))?"
)
"""Names of Kubernetes: https://kubernetes.io/docs/concepts/overview/working-with-objects/names"""


MODEL, HOST, TENANT, PATH = "model", "host", "tenant", "path"
"""What the keys of an option may be names of."""


def keyed_by(what: str, *, default: bool, form: Meta | None = None) -> Meta:
    """Of an option that is a mapping: what its keys name, whether one without a key counts, and of
    which form they are.
    """
    extra = {"keys": what, "default": default}
    return Meta(extra=extra if form is None else {**extra, "key_form": form})


def key_form(kind: Any) -> Any:
    """The form of the keys of an option that is a mapping, as a type; `str` if they have none."""
    for meta in getattr(kind, "__metadata__", ()):
        if meta.extra and "key_form" in meta.extra:
            return Annotated[str, meta.extra["key_form"]]
    return str


def keys_of(kind: Any) -> tuple[str, bool]:
    """What the keys of an option of this type name, empty if anything; whether one may lack."""
    for meta in getattr(kind, "__metadata__", ()):
        if meta.extra and "keys" in meta.extra:
            return meta.extra["keys"], meta.extra["default"]
    return "", True


def values_of(kind: Any) -> Any:
    """The type of the values of an option that is a mapping; None if it is none."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_args(bare)[1] if get_origin(bare) is dict else None


def form(wanted: str, fits: Callable[[str], object]) -> Meta:
    """What an option wants, in words, and whether a text is that."""
    return Meta(description=wanted, extra={"fits": fits})


def misfit(kind: Any, text: str) -> str:
    """What an option of this type wants, where ``text`` does not have its form; else empty."""
    for meta in getattr(kind, "__metadata__", ()):
        if meta.extra and "fits" in meta.extra and not meta.extra["fits"](text):
            return meta.description or ""
    return ""


def _is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None or _is_ipv6(text)


def _is_ipv6(text: str) -> bool:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return ipaddress.ip_address(bare).version == 6
    except ValueError:
        return False


def _is_port(text: str, least: int) -> bool:
    short = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MOST
    return short and least <= int(text) <= MOST_PORT


def _is_listen(text: str) -> bool:
    if text.startswith(UNIX):
        return not _CONTROL.search(text)
    host, colon, port = text.rpartition(":")
    return bool(colon) and (not host or _is_host(host)) and _is_port(port, 0)


def _is_reached(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return _is_host(text) or (_is_host(host) and _is_port(port, 1))


def _is_hop(text: str) -> bool:
    user, at, place = text.strip().rpartition("@")
    host, colon, port = place.partition(":")
    named = bool(user) and " " not in user if at else True
    return named and bool(_HOST.fullmatch(host)) and (not colon or _is_port(port, 1))


def _is_below(path: str) -> bool:
    """Whether a path leads to something below where it begins."""
    parts = [part for part in path.split("/") if part]
    return bool(parts) and not {".", ".."} & set(parts) and not _CONTROL.search(path)


def _is_mount(path: str) -> bool:
    plain = path[:1] == "/" != path[1:2] and _is_below(path) and posixpath.normpath(path) == path
    hides = any(PurePosixPath(one).is_relative_to(path) for one in TAKEN_PATHS)
    return plain and ":" not in path and not hides and not _is_taken(path)


def plain_path(path: str) -> str:
    """The same absolute path with one `/` between folders, and none at the end."""
    return posixpath.normpath(f"/{path.strip('/')}")


def _is_taken(path: str) -> bool:
    return any(PurePosixPath(path).is_relative_to(one) for one in TAKEN_PATHS)


def _is_folder(text: str) -> bool:
    return text.startswith("/") and _is_below(text)


def _is_scratch(text: str) -> bool:
    return _is_folder(text) and ":" not in text and not _is_taken(plain_path(text))


def _is_own_folder(text: str) -> bool:
    return _is_below(text.partition("/")[2] if text.startswith("~") else text)


def _is_domain(text: str) -> bool:
    return len(text) <= _DOMAIN_MOST and re.fullmatch(_DOMAIN, text) is not None


def _are_taints(text: str) -> bool:
    return all(_TAINT.fullmatch(part.strip()) for part in text.split(",") if part.strip())


def _is_slurm_time(text: str) -> bool:
    longest = max(map(len, re.findall(r"\d+", text)), default=0)
    return _SLURM_TIME.fullmatch(text) is not None and longest <= _DIGITS_MOST


LINE = form("text without control characters", lambda text: not _CONTROL.search(text))
FILLED = form("text that is not empty", str.strip)
ADDRESS = form("the name or the IP address of a host, without a port", _is_host)
LISTEN = form(f"HOST:PORT with a port from 0 to {MOST_PORT}, or {UNIX}/PATH", _is_listen)
ADVERTISE = form(
    f"HOST or HOST:PORT with a port from 1 to {MOST_PORT}",
    lambda text: not text or _is_reached(text),
)
JUMP = form(
    f"[USER@]HOST[:PORT],... with ports from 1 to {MOST_PORT}",
    lambda text: not text or all(_is_hop(hop) for hop in text.split(",")),
)
FOLDER = form(
    "the path of a folder that begins with / (~ has no meaning here), and not / itself",
    lambda text: not text or _is_folder(text),
)
OWN_FOLDER = form(
    "a folder of its own: /PATH, or PATH below the home of the account", _is_own_folder
)
MOUNT = form(
    "a path as /data or /data/sets, without `:`, that is neither above nor below one of "
    + ", ".join(TAKEN_PATHS),
    _is_mount,
)
SCRATCH = form(
    "the path of a folder that begins with /, without `:`, that is not / and not below one of "
    + ", ".join(TAKEN_PATHS),
    lambda text: not text or _is_scratch(text),
)
PROGRAM = form("a path or a name of a program, without arguments", _PROGRAM.fullmatch)
NAMESPACE = form(
    "the name of a namespace: up to 63 small letters, digits and dashes",
    lambda text: not text or re.fullmatch(_LABEL, text),
)
OBJECT = form(
    "the name of an object of Kubernetes: small letters, digits, dashes and dots",
    lambda text: not text or _is_domain(text),
)
CLAIM = form("the name of a claim of a volume: small letters, digits, dashes and dots", _is_domain)
TAINTS = form(
    "KEY[=VALUE][:EFFECT],... with the effect NoSchedule, PreferNoSchedule or NoExecute",
    _are_taints,
)
SLURM_TIME = form(
    "minutes, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES or "
    "DAYS-HOURS:MINUTES:SECONDS, as `sbatch --time` takes it",
    lambda text: not text or _is_slurm_time(text),
)
