"""Archives of work folders: nothing lands outside, and nothing fills the disk."""

import io
import tarfile
from pathlib import Path

import pytest

from topmast.adapters import archive as archives
from topmast.adapters.archive import Refused, fault, unpack


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


def test_files_and_links_that_stay_inside_are_unpacked(tmp_path: Path) -> None:
    """Special bits of the mode are not."""
    archive = _archive(tmp_path, _file("run.sh"), _file("a/b.txt"), _link("a/run", "../run.sh"))
    work = tmp_path / "work"
    work.mkdir()
    unpack(archive, str(work))
    assert (work / "a" / "b.txt").read_bytes() == b"xxx"
    assert (work / "a" / "run").resolve() == (work / "run.sh").resolve()
    assert (work / "run.sh").stat().st_mode & 0o7777 == 0o755


def _paxed(**headers: str) -> tarfile.TarInfo:
    member = _file("x", 0)
    member.pax_headers = headers
    return member


HOSTILE = {
    "a path that climbs out": (_file("../evil"),),
    "a link that points out": (_link("out", "/etc"),),
    "a link that climbs out": (_link("a/out", "../../etc"),),
    "a file through a link that points out": (_link("out", ".."), _file("out/evil")),
    "a device": (_link("null", "x", tarfile.CHRTYPE),),
    "a fifo": (_link("pipe", "x", tarfile.FIFOTYPE),),
    "a hard link out": (_link("hard", "../evil", tarfile.LNKTYPE),),
    "a hard link": (_file("a"), _link("hard", "a", tarfile.LNKTYPE)),
    "a sparse file": (_link("sparse", "", tarfile.GNUTYPE_SPARSE),),
    "an absolute path": (_file("/evil"),),
    "a link through a link": (_link("a/b", "."), _link("a/out", "b/../../evil")),
    "a link through a link that comes later": (_link("a/out", "b/../../evil"), _link("a/b", ".")),
    "a link up through a link": (_link("d/b", ".."), _link("d/out", "b/../evil")),
    "a link up through a dotted link": (_link("./b//", "."), _link("out", "b/../evil")),
    "a file through a link": (_link("a", "."), _file("a/evil")),
    "a file through a link that comes later": (_file("a/evil"), _link("a", ".")),
    "a link through a link's name": (_link("a", "."), _link("a/b", "c")),
    "a file twice": (_file("a"), _file("a")),
    "a file in a file": (_file("a"), _file("a/b")),
    "a link to nowhere": (_link("a", ""),),
    "a long name": (_file("/".join(["x" * 200] * 6)),),
    "a long target": (_link("a", "/".join(["x" * 200] * 6)),),
    "a NUL": (_paxed(path="a\0b"),),
    "a size below 0": (_paxed(size="-5"),),
}


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


def _climber(folder: Path) -> str:
    """Links that make a path longer than the system resolves: what is behind it looks as if it were inside."""
    long, members, way = "d" * 247, [], ""
    for step in "abcdefghijklmnop":
        folder_of_step = tarfile.TarInfo(f"{way}{long}")
        folder_of_step.type = tarfile.DIRTYPE
        members += [folder_of_step, _link(f"{way}{step}", long)]
        way += f"{step}/"
    members += [_link(f"{way}{'l' * 254}", "../" * 16)]
    members += [_link("escape", f"{way}{'l' * 254}/../evil"), _file("escape")]
    return _archive(folder, *members)


def test_a_path_too_long_to_resolve_does_not_lead_out(tmp_path: Path) -> None:
    """Nothing is resolved at all: each name is judged by its text."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "evil").write_text("as before")
    with pytest.raises(Refused):
        unpack(_climber(tmp_path), str(work))
    assert (tmp_path / "evil").read_text() == "as before"


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_an_upload_is_refused_for_what_would_fail_when_unpacked(
    members: tuple[tarfile.TarInfo, ...], tmp_path: Path
) -> None:
    """Except for names that are in the way of each other, which are found when files are written."""
    found = fault(Path(_archive(tmp_path, *members)).read_bytes())
    if not found:
        (tmp_path / "work").mkdir()
        with pytest.raises(Refused, match="in the archive twice"):
            unpack(_archive(tmp_path, *members), str(tmp_path / "work"))


def test_links_down_through_links_are_unpacked(tmp_path: Path) -> None:
    """As packages have them: a name of a version, and names below it."""
    (tmp_path / "work").mkdir()
    members = (
        _file("v1/lib/a"),
        _link("current", "v1"),
        _link("bin/a", "../current/lib/a"),
        _link("bin/b", "../v1/lib/../lib/./a"),
        _link("top", "."),
    )
    unpack(_archive(tmp_path, *members), str(tmp_path / "work"))
    for name in ("bin/a", "bin/b", "top/bin/a"):
        assert (tmp_path / "work" / name).read_bytes() == b"xxx"


def _packed(*members: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return packed.getvalue()


def test_what_is_small_when_packed_may_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes, files and headers are counted while they come, by the server and by the engine."""
    monkeypatch.setattr(archives, "MAX_ENTRIES", 100)
    monkeypatch.setattr(archives, "MAX_BYTES", 10_000_000)
    monkeypatch.setattr(archives, "STREAM_MAX_BYTES", 20_000_000)
    header = _file("x", 0)
    header.pax_headers = {"comment": "x" * 30_000_000}
    cases = {
        "more than 100 files": [_file(str(number), 0) for number in range(101)],
        "more than 10,000,000 bytes": [_file(str(number), 1_000_000) for number in range(11)],
        "more than 20,000,000 bytes when unpacked": [header],
    }
    for number, (want, members) in enumerate(cases.items()):
        content, work = _packed(*members), tmp_path / str(number)
        assert len(content) < 100_000
        assert want in fault(content)
        (tmp_path / "packed").write_bytes(content)
        work.mkdir()
        with pytest.raises(Refused, match=want):
            unpack(str(tmp_path / "packed"), str(work))
        assert sum(file.stat().st_size for file in work.iterdir()) <= 10_000_000
    assert fault(_packed(*[_file(str(number), 100_000) for number in range(100)])) == ""


def test_what_is_no_archive_is_said_when_it_is_unpacked(tmp_path: Path) -> None:
    """The bytes are stored under their digest all the same."""
    whole = _packed(_file("a", 1_000))
    for number, content in enumerate(
        [b"", b"a snapshot", whole[: len(whole) // 2], b"\x1f\x8bgarbage"]
    ):
        assert fault(content) == ""
        (tmp_path / "file").write_bytes(content)
        (tmp_path / str(number)).mkdir()
        with pytest.raises((tarfile.TarError, OSError, EOFError)):
            unpack(str(tmp_path / "file"), str(tmp_path / str(number)))
