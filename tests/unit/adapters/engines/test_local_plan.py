"""What tasks of the local engine find on their way to programs."""

from pathlib import Path

import pytest

from topmast.adapters.engines.local.plan import search_path


def _environment(folder: Path, mark: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / mark).mkdir() if mark == "conda-meta" else (folder / mark).touch()
    return folder / "bin"


@pytest.mark.parametrize(
    ("folder", "mark", "is_left_out"),
    [
        (".venv", "pyvenv.cfg", True),
        ("envs/topmast", "conda-meta", True),
        ("miniconda", "conda-meta", False),
        ("usr", "os-release", False),
    ],
)
def test_the_environment_that_topmast_runs_in_is_left_out(
    tmp_path: Path, folder: str, mark: str, is_left_out: bool
) -> None:
    """By whatever name it is in the path; a Python that all users of the host share stays."""
    own = _environment(tmp_path / folder, mark)
    other = _environment(tmp_path / "mine", "pyvenv.cfg")
    (tmp_path / "alias").symlink_to(own)
    path = search_path(f"{own}:{other}:{own}/:{tmp_path}/alias::/usr/bin", own)
    assert path.split(":")[-1] == "/usr/bin"
    assert str(other) in path.split(":"), "an environment that the user chose"
    found = [entry for entry in path.split(":") if entry and Path(entry).resolve() == own.resolve()]
    assert bool(found) != is_left_out


@pytest.mark.parametrize("path", ["", "{own}", "{own}:"])
def test_there_is_always_a_path(tmp_path: Path, path: str) -> None:
    """With the system's programs where nothing else is left."""
    own = _environment(tmp_path / ".venv", "pyvenv.cfg")
    assert "/bin" in search_path(path.format(own=own), own).split(":")
