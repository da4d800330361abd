"""Archives of work folders: nothing lands outside, and nothing fills the disk."""

import gzip
import io
import random
import re
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from topmast.adapters import archive as archives
from topmast.adapters.archive import REFUSED_STATUS, Refused, fault, unpack
from topmast.model.states import DATA_ERROR


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
    """Also names that are in the way of each other: no job is placed with such a work folder."""
    assert fault(Path(_archive(tmp_path, *members)).read_bytes())


def _folder(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    return member


@pytest.mark.parametrize(
    "members",
    [
        (_link("d", "."), _file("d/x")),
        (_file("d/x"), _file("d-"), _link("d", "e")),
        (_file("a"), _file("a-b"), _folder("a/b/c")),
        (_folder("a"), _file("./a")),
        (_link("a", "b"), _folder("a/")),
        (_file("."),),
    ],
)
def test_what_is_two_things_at_once_is_refused(
    members: tuple[tarfile.TarInfo, ...], tmp_path: Path
) -> None:
    """In any order, and whatever sorts between the two."""
    assert "is in the archive twice" in fault(Path(_archive(tmp_path, *members)).read_bytes())


def test_a_folder_may_be_named_often(tmp_path: Path) -> None:
    """As tar names it: with a slash behind it, with a dot before it, and after what is in it."""
    members = (
        _folder("."),
        _file("a/b"),
        _folder("./a/"),
        _folder("a"),
        _file("a-"),
        _link("c", "a"),
    )
    assert fault(Path(_archive(tmp_path, *members)).read_bytes()) == ""
    (tmp_path / "work").mkdir()
    unpack(_archive(tmp_path, *members), str(tmp_path / "work"))
    assert (tmp_path / "work" / "c" / "b").read_bytes() == b"xxx"


def test_no_link_hides_behind_another_of_its_name(tmp_path: Path) -> None:
    """A runner follows each of them; and files that are written twice are refused as early."""
    outside, inside = _link("x", str(tmp_path)), _link("./x", "a")
    for members in ((outside, _link("x/y", "a"), inside), (_file("a"), _file("a"))):
        assert "is in the archive twice" in fault(Path(_archive(tmp_path, *members)).read_bytes())


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
    monkeypatch.setattr(archives, "STREAM_MAX_BYTES", 12_000_000)
    full = [_file(str(number), 1_000_000) for number in range(9)]
    empty = [_file(f"empty{number}", 0) for number in range(60)]
    for member in empty:
        member.pax_headers = {"comment": "x" * 60_000}
    cases = {
        "more than 100 files": [_file(str(number), 0) for number in range(101)],
        "more than 10,000,000 bytes": [_file(str(number), 1_000_000) for number in range(11)],
        "more than 12,000,000 bytes when unpacked": full + empty,
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


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([_file("x" * 300, 0)], "longer than 255 bytes"),
        ([_file("é" * 128 + "/f", 0)], "longer than 255 bytes"),
        ([_file("a/" * 101 + "f", 0)], "lies in more than 100 folders"),
        ([_file(f"{number}/a/b", 0) for number in range(40)], "more than 100 files, folders"),
        ([_link(f"{number}", "t" * 90) for number in range(20)], "links .* more than 1,000 bytes"),
    ],
    ids=["a name", "a folder", "deep", "folders that names have", "long links"],
)
def test_what_no_host_can_hold_is_refused_at_the_upload(
    members: list[tarfile.TarInfo], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that no file system takes, and folders and links without end in few bytes."""
    monkeypatch.setattr(archives, "MAX_ENTRIES", 100)
    monkeypatch.setattr(archives, "LINKS_MAX_BYTES", 1_000)
    content = _packed(*members)
    assert re.search(why, fault(content))
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "work").mkdir()
    with pytest.raises(Refused, match=why):
        unpack(str(tmp_path / "file"), str(tmp_path / "work"))


def test_a_link_goes_up_behind_no_other_link(tmp_path: Path) -> None:
    """Where the text stays inside, ``l/sub/..`` may be outside."""
    inner = [_link("l", "d/e"), _file("d/e/f", 0), _link("d/e/sub", "../..")]
    assert fault(_packed(*inner, _link("z", "l/sub/x"), _link("y", "d/e/../e/sub"))) == ""
    for target in ("l/sub/../x", "l/../x", "d/e/sub/../x"):
        assert "'z' ->" in fault(_packed(_link("z", target), *inner))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    """At the upload and where it is unpacked, empty or not, packed or not."""
    for number, content in enumerate([b"", b"a snapshot", gzip.compress(b"a snapshot")]):
        assert "this is no archive" in fault(content)
        (tmp_path / "file").write_bytes(content)
        (tmp_path / str(number)).mkdir()
        with pytest.raises(tarfile.TarError):
            unpack(str(tmp_path / "file"), str(tmp_path / str(number)))


def _header(kind: bytes, body: bytes, name: str = "a", size_bytes: int | None = None) -> bytes:
    """A header and what it holds, as no library would write it."""
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, len(body) if size_bytes is None else size_bytes
    return member.tobuf(tarfile.USTAR_FORMAT) + body + b"\0" * (-len(body) % 512)


def _record(key: str, value: str) -> bytes:
    rest = f" {key}={value}\n".encode()
    length = len(rest) + len(str(len(rest) + 2))
    return str(length).encode() + rest


LAST = _header(tarfile.REGTYPE, b"abc") + bytes(1024)
X, G = tarfile.XHDTYPE, tarfile.XGLTYPE
WHOLE = gzip.compress(_header(tarfile.REGTYPE, random.Random(1).randbytes(200_000)) + bytes(1024))
DAMAGED = {
    "digits and nothing else": (_header(X, b"1" * 3000), "has no records"),
    "digits for all files": (_header(G, b"1" * 3000), "has no records"),
    "a large header": (_header(X, _record("comment", "x" * 70_000)), "more than 65,536 bytes"),
    "a large name": (_header(tarfile.GNUTYPE_LONGNAME, b"n" * 70_000), "more than 65,536 bytes"),
    "headers of headers": (_header(X, b"") * 3000, "says twice"),
    "names of names": (_header(tarfile.GNUTYPE_LONGNAME, b"n\0") * 3000, "says twice"),
    "a record of no length": (_header(X, b"0 a=b\n"), "has no records"),
    "a record that ends too late": (_header(X, b"9 a=b\n"), "has no records"),
    "a record in the padding": (_header(X, b"6 a=b\n8 path=\n", size_bytes=6), "than it says"),
    "records without end": (
        _header(X, _record("a", "b") * 33),
        "more than 32 records",
    ),
    "a sparse map": (_header(X, _record("GNU.sparse.major", "1")), "has a sparse file"),
    "a name for all files": (_header(G, _record("path", "b")), "one name to all"),
    "the header of Solaris": (_header(tarfile.SOLARIS_XHDTYPE, b""), "neither a file"),
    "a header that is none": (
        _header(tarfile.REGTYPE, b"") + b"x" * 512,
        "is damaged: invalid header",
    ),
}
CUT = {
    "a gzip without its end": WHOLE[:-4],
    "a gzip of another content": WHOLE[:-8] + bytes(8),
    "half of a gzip": WHOLE[: len(WHOLE) // 2],
    "a gzip with a block that is none": WHOLE[:10] + b"\x07\xff\xff\xff" * 9,
    "a gzip with a block that is none further on": (
        (deflate := zlib.compressobj(9, zlib.DEFLATED, 31)).compress(LAST[:512])
        + deflate.flush(zlib.Z_FULL_FLUSH) + b"\x07\xff\xff\xff" * 100
    ),
    "no gzip behind its mark": b"\x1f\x8bgarbage",
    "half of a file": _header(tarfile.REGTYPE, b"x" * 2000)[:1000],
}  # fmt: skip


@pytest.mark.parametrize(("content", "why"), DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
def test_headers_that_say_too_much_are_refused(
    content: bytes, why: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Before anything is made of them: their records are read once, from the first to the last."""
    (tmp_path / "work").mkdir()
    archive = pack(content + LAST)
    assert why in fault(archive)
    (tmp_path / "file").write_bytes(archive)
    with pytest.raises(Refused, match=why):
        unpack(str(tmp_path / "file"), str(tmp_path / "work"))


@pytest.mark.parametrize("content", CUT.values(), ids=CUT)
def test_what_is_damaged_is_refused_at_once(content: bytes, tmp_path: Path) -> None:
    """A part of an archive is of no use to a job."""
    (tmp_path / "work").mkdir()
    assert "the archive is damaged" in fault(content)
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(Refused, match="is damaged"):
        unpack(str(tmp_path / "file"), str(tmp_path / "work"))


LONG = "a long folder/" * 20 + "12345678901234567890"
WRITTEN = {
    "POSIX": tarfile.PAX_FORMAT, "GNU": tarfile.GNU_FORMAT, "the oldest": tarfile.USTAR_FORMAT,
}  # fmt: skip


@pytest.mark.parametrize("form", WRITTEN.values(), ids=WRITTEN)
def test_archives_of_every_form_are_unpacked(form: int, tmp_path: Path) -> None:
    """With long names and targets, names in no encoding, attributes, and a comment for all."""
    (tmp_path / "work").mkdir()
    names = ["a/b.txt", "f\udcff", "größe"]
    links = {"to": "a/b.txt"}
    if form != tarfile.USTAR_FORMAT:
        names.append(LONG)
        links["b/" * 70 + "link"] = "../" * 70 + LONG
    file = tmp_path / "file"
    with tarfile.open(file, "w:gz", format=form, pax_headers={"comment": "of all"}) as archive:
        for name in names:
            member = _file(name, 700)
            member.pax_headers = {"SCHILY.xattr.user.a": "b=c\n"}
            archive.addfile(member, io.BytesIO(b"x" * 700))
        for name, target in links.items():
            archive.addfile(_link(name, target))
    assert fault(file.read_bytes()) == ""
    unpack(str(file), str(tmp_path / "work"))
    for name in (*names, *links):
        assert (tmp_path / "work" / name).read_bytes() == b"x" * 700


def test_a_runner_reads_no_form_that_is_not_looked_into(tmp_path: Path) -> None:
    """What else an archive may be packed with is no archive, to the server and to the runner."""
    (tmp_path / "work").mkdir()
    with tarfile.open(tmp_path / "blob", "w:xz") as archive:
        archive.addfile(_file("a", 0))
    assert "this is no archive" in fault((tmp_path / "blob").read_bytes())
    code = "import sys; from topmast.adapters.engines.far.runner.tasks import *; unpack_work(sys.argv[1])"
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE)
    assert found.returncode == DATA_ERROR
    assert found.stderr.startswith(
        b"topmast: the work folder cannot be unpacked: this is no archive"
    )
    assert not list((tmp_path / "work").iterdir())


def test_a_process_that_refuses_ends_with_what_is_not_tried_again() -> None:
    """What unpacks on a host has the standard library alone, and a number of its own."""
    assert REFUSED_STATUS == DATA_ERROR


def test_an_archive_may_be_packed_in_parts(tmp_path: Path) -> None:
    """As programs with several threads pack it; zeros between them are the end of a tape's block."""
    (tmp_path / "work").mkdir()
    plain = _header(tarfile.REGTYPE, random.Random(1).randbytes(200_000)) + bytes(1024)
    parts = [gzip.compress(plain[at : at + 50_000]) for at in range(0, len(plain), 50_000)]
    content = (bytes(20_000)).join([*parts, gzip.compress(b""), b""])
    assert fault(content) == ""
    (tmp_path / "file").write_bytes(content)
    unpack(str(tmp_path / "file"), str(tmp_path / "work"))
    assert (tmp_path / "work" / "a").read_bytes() == plain[512 : 512 + 200_000]
    assert "is damaged" in fault(parts[0] + b"no gzip")


def _headers_of(count: int, records: int) -> bytes:
    """Empty files, and records before each."""
    said = _header(X, _record("a", "b") * records) if records else b""
    return b"".join(said + _header(tarfile.REGTYPE, b"", f"f{number}") for number in range(count))


SLOW = {
    "a name of gzip without end": (
        b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 3_000_000,
        "more than 65,536 bytes of the archive hold nothing",
    ),
    "parts without content": (gzip.compress(b"") * 20_000, "packed in more than 1,000 parts"),
    "parts with little content": (
        b"".join(gzip.compress(LAST[at : at + 1]) for at in range(len(LAST))),
        "packed in more than 1,000 parts",
    ),
    "many headers": (gzip.compress(_headers_of(150, 1) + LAST), "more than 200 headers"),
    "many records": (
        gzip.compress(_headers_of(90, 20) + LAST),
        "more than 1,000 records",
    ),
}


@pytest.mark.parametrize(("content", "why"), SLOW.values(), ids=SLOW)
def test_what_takes_long_to_read_is_refused(
    content: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload within the limit of bytes could keep the server busy for half a minute."""
    for name, limit in {
        "HEADERS_MAX": 200, "ALL_RECORDS_MAX": 1_000, "GZIP_PARTS_MAX": 1_000,
    }.items():  # fmt: skip
        monkeypatch.setattr(archives, name, limit)
    (tmp_path / "work").mkdir()
    assert why in fault(content)
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(Refused, match=why):
        unpack(str(tmp_path / "file"), str(tmp_path / "work"))
