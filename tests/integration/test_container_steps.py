"""The steps of the container file one by one, in a folder in place of an image: what Python does of them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Containerfile").read_text("utf-8")
OF_THE_SYSTEM = ("useradd", "install -d")
"""What only a system of its own can do."""


def steps() -> list[tuple[str, str]]:
    """Each instruction with what it says, lines that go on joined."""
    lines = [line for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [
        (word, rest.strip()) for word, _, rest in (one.partition(" ") for one in joined.split("\n"))
    ]


class Image:
    """A folder that stands for the root of an image."""

    def __init__(self, root: Path, base: Path | None = None) -> None:
        self.root, self.base = root, base
        self.cwd = root
        self.environment: dict[str, str] = {}
        root.mkdir()

    def at(self, path: str) -> Path:
        """A path of the image, outside."""
        return self.root / path.lstrip("/") if path.startswith("/") else self.cwd / path

    def do(self, word: str, rest: str) -> None:
        """One instruction."""
        if word == "WORKDIR":
            self.cwd = self.at(rest)
            self.cwd.mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            self._copy(rest.split())
        elif word == "ENV":
            pairs = (pair.partition("=") for pair in shlex.split(rest))
            self.environment |= {name: value for name, _, value in pairs}
        elif word == "RUN":
            for command in rest.split(" && "):
                self._run(command.strip())

    def _copy(self, names: list[str]) -> None:
        source = ROOT
        if names[0].startswith("--from="):
            assert self.base is not None
            source, names = self.base, names[1:]
        *sources, target = names
        for name in sources:
            found, into = source / name.lstrip("/"), self.at(target)
            if found.is_dir():
                shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True)
            else:
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, into / found.name)

    def _run(self, command: str) -> None:
        if command.startswith(OF_THE_SYSTEM):
            return
        venv = self.at("/opt/topmast")
        words = [word.replace("/opt/topmast", str(venv)) for word in shlex.split(command)]
        if words[0] == "python":
            words[0] = sys.executable
            words += ["--without-pip"] if words[1:3] == ["-m", "venv"] else []
        elif words[:2] == [f"{venv}/bin/pip", "install"]:  # the same, from what was fetched before
            uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(venv)]
            words = [*uv, *(word for word in words[2:] if word != "--no-cache-dir")]
        done = subprocess.run(words, cwd=self.cwd, capture_output=True, text=True, check=False)
        if done.returncode and "error sending request" in done.stderr:
            pytest.skip("no package registry can be reached")
        assert done.returncode == 0, (command, done.stderr)


def test_each_step_succeeds_and_the_entry_point_starts(tmp_path: Path) -> None:
    """And a server has what it needs: all extras that its options may ask for."""
    images: dict[str, Image] = {}
    image: Image | None = None
    for word, rest in steps():
        if word == "FROM":
            assert re.match(r"python:3\.\d+-slim\b", rest)
            base = None if image is None else image.root
            name = rest.partition(" AS ")[2] or "last"
            image = images[name] = Image(tmp_path / name, base)
        elif image is not None:
            image.do(word, rest)
    made = images["last"]
    said = dict(steps())
    entry, usual = (shlex.split(re.sub(r"[\[\],]", " ", said[w])) for w in ("ENTRYPOINT", "CMD"))
    path = [str(made.at(one)) for one in made.environment["PATH"].split(":")[:-1]]
    state = tmp_path / "state"
    state.mkdir()
    environment = {"PATH": ":".join([*path, os.environ["PATH"]]), "HOME": str(state)}
    # An environment that was copied says in its first lines where it was: as in the image, there.
    program = made.at("/opt/topmast") / "bin" / entry[0]
    assert program.is_file()
    python = str(made.at("/opt/topmast") / "bin" / "python")
    for arguments in (usual, ["--version"], ["up", "--help"], ["doctor", "--help"]):
        done = subprocess.run(
            [python, str(program), *arguments],
            cwd=state, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    needs = "import fastapi, psycopg, asyncssh, joserfc, opentelemetry.sdk, topmast.app.queue"
    done = subprocess.run([python, "-c", needs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
