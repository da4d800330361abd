"""The package as people install it: the wheel alone, in an environment without anything else."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import Server, live

ROOT = Path(__file__).parents[2]
CLIENT_MOST_BYTES = 60_000_000
JOB = "run: echo hello\nresources: {accelerators: H100:1}\n"
FLEET = "regions: {east: {clusters: {a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}\n"
NEEDS_SERVER = (
    ["up", "--state", "state"],
    ["demo"],
    ["simulate", "--trace", "jobs.csv", "--fleet", "fleet.yaml"],
    ["bench", "ranking"],
    ["replay", "--state", "state"],
)
TRACE = "job,submit_s,duration_s,gpus\na,0,60,1\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it depends on; its folder."""
    folder = tmp_path_factory.mktemp("client") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(folder)]
    locked = ["--constraint", str(ROOT / "requirements/runtime.txt")]
    done = subprocess.run([*uv, *locked, str(wheel)], capture_output=True, text=True, check=False)
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip("no package registry can be reached")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One with a GPU, from the source."""
    with live(tmp_path_factory.mktemp("server"), fleet=FLEET) as (server, _):
        yield server


def run(
    installed: Path, *arguments: str, cwd: Path, server: Server | None = None
) -> subprocess.CompletedProcess[str]:
    """Call the installed program, as a shell would."""
    environment = {"HOME": str(cwd), "PATH": os.environ["PATH"], "COLUMNS": "200"}
    if server is not None:
        environment["TOPMAST_SERVER"] = server.url
    return subprocess.run(
        [installed / "bin/topmast", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    """Profiles, migrations and examples too, and nothing of the tests."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    names = listed.stdout.split()
    wanted = {name.removeprefix("src/") for name in names if (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as archive:
        has = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert len(wanted) > 500
    assert has == wanted


def test_a_client_is_small(installed: Path) -> None:
    """A laptop that submits jobs needs no solver and no compiler."""
    files = [path for path in installed.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < CLIENT_MOST_BYTES
    names = {path.name for path in (installed / "lib").glob("python3*/site-packages/*")}
    assert "topmast" in names
    assert not names & {"numpy", "numba", "fastapi", "sqlalchemy"}


def test_a_client_submits_and_watches(installed: Path, server: Server, tmp_path: Path) -> None:
    """The whole day of a user, without any extra."""
    (tmp_path / "job.yaml").write_text(JOB)
    for arguments in (
        ("launch", "job.yaml", "--json"), ("queue",), ("wait", "j1"), ("logs", "j1"),
        ("explain", "j1"), ("status", "j1"), ("gpus",), ("hosts",), ("usage",),
        ("traces", "--help"), ("launch", "job.yaml", "--dry-run"),
    ):  # fmt: skip
        done = run(installed, *arguments, cwd=tmp_path, server=server)
        assert done.returncode == 0, (arguments, done.stderr)
        assert done.stdout
    document = json.loads(run(installed, "queue", "--json", cwd=tmp_path, server=server).stdout)
    assert isinstance(document["jobs"], list)


@pytest.mark.parametrize("arguments", NEEDS_SERVER, ids=lambda words: words[0])
def test_what_is_not_installed_is_named(
    arguments: list[str], installed: Path, tmp_path: Path
) -> None:
    """One line that says what to install, and no traceback."""
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "jobs.csv").write_text(TRACE)
    done = run(installed, *arguments, cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("topmast: this needs ")
    assert lines[0].endswith(": pip install 'topmast[server]'")


def test_the_doctor_says_what_a_server_lacks(installed: Path, tmp_path: Path) -> None:
    """It is there before anything else is; a client alone is no fault."""
    done = run(installed, "doctor", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    (found,) = (found for found in document["findings"] if found["what"] == "packages")
    assert (done.returncode, document["faults"], found["level"]) == (0, 0, "warning")
    assert "numpy" in found["detail"]
    assert found["remedy"] == "pip install 'topmast[server]' for a server"


def test_the_python_client_needs_no_extra(installed: Path, server: Server, tmp_path: Path) -> None:
    """Programs that submit jobs install the same small package."""
    program = "import sys, topmast; print(topmast.Client(sys.argv[1]).jobs()); topmast.progress"
    done = subprocess.run(
        [installed / "bin/python", "-c", program, server.url],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
