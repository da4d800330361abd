"""A container image without a registry: Python, a shell and a few tools of this machine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

NAME = "topmast.local/lab:1"
_TOOLS = (
    "sh", "bash", "basename", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "find", "grep",
    "gzip", "head", "hostname", "id", "kill", "ln", "ls", "mkdir", "mkfifo", "mktemp", "mv", "ps", "pwd",
    "readlink", "rm", "sed", "seq", "setsid", "sha256sum", "sleep", "sort", "stat", "sync", "tail", "tar", "tee",
    "test", "timeout", "touch", "tr", "true", "false", "uname", "wc", "xargs", "yes", "dd", "echo",
)  # fmt: skip
_LEFT_OUT = re.compile(
    r"/(test|tests|idlelib|tkinter|lib2to3|ensurepip|site-packages|dist-packages|__pycache__"
    r"|config-[^/]*|turtledemo)(/|$)"
)


def image_of(folder: Path) -> Path:
    """The image in a folder, which is made when this file or Python has changed."""
    state = hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode()).hexdigest()
    path = folder / f"image-{state[:12]}.tar"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        _write(part)
        part.rename(path)
    return path


def _write(path: Path) -> None:
    """As `docker save` does, for `ctr images import`."""
    layer = _layer()
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps({
        "architecture": "amd64", "os": "linux",
        "config": {"Cmd": ["/bin/sleep", "infinity"], "Env": ["PATH=/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }).encode()  # fmt: skip
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, "manifest.json", json.dumps(manifest).encode())
        _add(archive, name, config)
        _add(archive, "layer.tar", layer)


def _layer() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for folder, mode in (("tmp", 0o1777), ("proc", 0o555), ("dev", 0o755), ("etc", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        _add(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        # No link: whatever the folder is called in the image, it is one of programs.
        added: set[str] = set()
        for source, target in _files():
            if target not in added:
                added.add(target)
                archive.add(source.resolve(), target, filter=_of_root)
    return whole.getvalue()


def _files() -> Iterator[tuple[Path, str]]:
    """What belongs into the image, and where."""
    python = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    programs = [(python, "usr/bin/python3")]
    for name in _TOOLS:
        for folder in ("/bin", "/usr/bin"):
            if (found := Path(folder, name)).exists():
                programs.append((found, f"bin/{name}"))
                programs.append((found, f"usr/bin/{name}"))
                break
    library = Path(sysconfig.get_path("stdlib", vars={"base": sys.base_prefix}))
    needing = [source for source, _ in programs]
    for path in sorted(library.rglob("*")):
        inside = str(path.relative_to(library))
        if path.is_file() and not _LEFT_OUT.search(f"/{inside}"):
            yield path, str(path).lstrip("/")
            if path.suffix == ".so":
                needing.append(path)
    yield from programs
    for path in _libraries(needing):
        yield path, str(path).lstrip("/")


def _libraries(files: list[Path]) -> list[Path]:
    """The shared libraries that files need, the loader among them."""
    done = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False)
    return [Path(found) for found in sorted(set(re.findall(r"(/\S+)\s+\(0x", done.stdout)))]


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    archive.addfile(entry, io.BytesIO(data))
