"""Unpacking snapshots of workdirs, with the filters of the standard library and without."""

import io
import tarfile
from pathlib import Path

import pytest

from topmast.adapters.engines.local.archive import unpack


@pytest.fixture(params=["with filters", "without"])
def filters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python from 3.11.4 on has filters; before, we check members ourselves."""
    if request.param == "without":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python's tarfile has no filters")


def _archive(folder: Path, *members: tarfile.TarInfo) -> str:
    file = folder / "snapshot.tar"
    with tarfile.open(file, "w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return str(file)


def _file(name: str, size: int = 3) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o4755
    return member


def _link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.usefixtures("filters")
def test_files_and_links_that_stay_inside_are_unpacked(tmp_path: Path) -> None:
    """Special bits of the mode are not."""
    archive = _archive(tmp_path, _file("run.sh"), _file("a/b.txt"), _link("a/run", "../run.sh"))
    work = tmp_path / "work"
    work.mkdir()
    unpack(archive, str(work))
    assert (work / "a" / "b.txt").read_bytes() == b"xxx"
    assert (work / "a" / "run").resolve() == (work / "run.sh").resolve()
    assert (work / "run.sh").stat().st_mode & 0o7777 == 0o755


HOSTILE = {
    "a path that climbs out": (_file("../evil"),),
    "a link that points out": (_link("out", "/etc"),),
    "a link that climbs out": (_link("a/out", "../../etc"),),
    "a file through a link that points out": (_link("out", ".."), _file("out/evil")),
    "a device": (_link("null", "", tarfile.CHRTYPE),),
}


@pytest.mark.usefixtures("filters")
@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_nothing_lands_outside(members: tuple[tarfile.TarInfo, ...], tmp_path: Path) -> None:
    """The whole archive is refused, and the folder above stays as it was."""
    archive = _archive(tmp_path, *members)
    work = tmp_path / "work"
    work.mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(tarfile.TarError):
        unpack(archive, str(work))
    assert sorted(path.name for path in tmp_path.iterdir()) == before
