"""Archives of work folders: what may be in one, and how it is unpacked.

The archive comes from the submitter of a job, so nothing in it is trusted: not its names, links or
sizes. Its headers are read here, in time that grows with their bytes and no faster: some versions
of `tarfile` search the records of one header in quadratic time, and hold the interpreter meanwhile;
`gzip` reads a name byte by byte. Standard library of Python 3.8 only: what unpacks it on a host,
beside tasks, is this module, so that nothing is read there that was not judged here.
"""

from __future__ import annotations

import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

MAX_BYTES = 100 * 2**20
"""Of all files together, unpacked."""
MAX_ENTRIES = 100_000
"""Files, links and folders, also those that only the paths of others name."""
NAME_MAX_BYTES = 1024
PART_MAX_BYTES = 255
"""Of the name of one file or folder: file systems take no more."""
DEPTH_MAX = 100
"""Folders one in another."""
LINKS_MAX_BYTES = 16 * 2**20
"""Names and targets of all links together; they are kept until all else is known."""
HEADER_MAX_BYTES = 65_536
"""Of what an archive says about one file before it: long names, attributes."""
HEADERS_MAX = 2 * MAX_ENTRIES
"""Of files, and of what is said about them, together."""
RECORDS_MAX = 32
"""Of one header; each costs as much time as a small file."""
ALL_RECORDS_MAX = 10 * MAX_ENTRIES
"""Of all headers together."""
GZIP_PARTS_MAX = 10_000
"""Of an archive that is packed in pieces, one behind the other."""
PACKED_BYTES = 1 << 14
"""Are decompressed at a time."""
STREAM_MAX_BYTES = MAX_BYTES + MAX_ENTRIES * 4096
"""Of the archive when it is decompressed: the files, and room for their headers."""
CONTENT_BYTES = 1 << 20
REFUSED_STATUS = 65
"""Of a process that was to unpack what is refused: EX_DATAERR of sysexits.h."""
_NOWHERE = -1
"""The number of what an archive does not hold."""
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_NAMES = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_EXTENDED = (*_NAMES, tarfile.XHDTYPE, tarfile.XGLTYPE)
"""Headers that say more about the member behind them."""


class Refused(tarfile.TarError):
    """Something in an archive does not belong in a work folder."""


def fault(content: bytes) -> str:
    """What in an archive would be refused when it is unpacked; empty if nothing.

    O(n log n) of what it holds.
    """
    try:
        for _ in _Archive(io.BytesIO(content)).members():
            pass
    except Refused as error:
        return str(error)
    return ""


def unpack(archive_path: str, folder: str) -> None:
    """Extract files, folders and inner links into an empty folder; `Refused` for anything else.

    Links come last: while files are written, no link in the folder can lead outside.
    """
    root = Path(folder)
    with Path(archive_path).open("rb") as file:
        archive = _Archive(file)
        for member in archive.members():
            path = root / member.name
            with _explained(member):
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                if member.issym():
                    path.symlink_to(member.linkname)
                else:
                    _write(path, member, archive.content())


def unpack_as_process(archive_path: str, folder: str) -> NoReturn:
    """`unpack`, and end this process; what is refused is said where its errors go."""
    try:
        unpack(archive_path, folder)
    except Refused as error:
        os.write(2, f"topmast: the work folder cannot be unpacked: {error}\n".encode())
        os._exit(REFUSED_STATUS)
    os._exit(0)


class _Archive:
    """The archive in a file, packed with gzip or not, read from the beginning to the end once."""

    def __init__(self, file: IO[bytes]) -> None:
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        self._file = io.BufferedReader(_Unzipped(file), CONTENT_BYTES) if is_packed else file
        self._left_bytes = STREAM_MAX_BYTES
        self._left_headers = HEADERS_MAX
        self._left_records = ALL_RECORDS_MAX
        self._content_bytes = 0
        """Of the file that comes now, what was not read yet."""

    def members(self) -> Iterator[tarfile.TarInfo]:
        """Every member, judged before it is handed out; links at the end, when all are known."""
        size_bytes = links_bytes = 0
        links: list[tarfile.TarInfo] = []
        tree = _Tree()
        for member in self._headers():
            _check_name(member)
            if member.type not in (*_FILES, tarfile.DIRTYPE, tarfile.SYMTYPE):
                raise Refused(f"{member.name!r} is neither a file, a folder nor a symbolic link")
            tree.add(member)
            size_bytes += max(member.size, 0)
            if member.size < 0 or size_bytes > MAX_BYTES:
                raise Refused(f"the files in the archive hold more than {MAX_BYTES:,} bytes")
            if not member.issym():
                yield member
                continue
            _check_text(member.linkname, f"the target of {member.name!r}")
            links_bytes += len(member.name) + len(member.linkname)
            if links_bytes > LINKS_MAX_BYTES:
                raise Refused(f"the links in the archive have more than {LINKS_MAX_BYTES:,} bytes")
            links.append(member)
        for member in links:
            tree.check_link(member)
        yield from links

    def content(self) -> Iterator[bytes]:
        """What the file holds that was handed out last."""
        while self._content_bytes:
            data = self._exactly(min(self._content_bytes, CONTENT_BYTES))
            self._content_bytes -= len(data)
            yield data

    def _headers(self) -> Iterator[tarfile.TarInfo]:
        """Every member by its header and by those before it that say more about it."""
        block = self._read(tarfile.BLOCKSIZE)
        if not block:
            raise Refused("this is no archive: it is empty")
        more: dict[str, str] = {}
        kinds: set[bytes] = set()
        begun = False
        while block.strip(b"\0"):
            try:
                header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                if begun:
                    raise Refused(f"the archive is damaged: {error}") from None
                raise Refused(f"this is no archive: {error}") from None
            begun = True
            self._left_headers -= 1
            if self._left_headers < 0:
                raise Refused(f"the archive has more than {HEADERS_MAX:,} headers")
            if header.type in _EXTENDED:
                if header.type in kinds:
                    raise Refused("the archive says twice what it says about one file")
                kinds.add(header.type)
                more = {**self._extension(header), **more}  # the first one counts, as in tarfile
            else:
                header.name = more.get("path", header.name)
                header.linkname = more.get("linkpath", header.linkname)
                more, kinds = {}, set()
                self._content_bytes = header.size if header.type in _FILES else 0
                yield header
                for _ in self.content():
                    pass
                self._padding(header.size if header.type in _FILES else 0)
            block = self._read(tarfile.BLOCKSIZE)
        while self._read(CONTENT_BYTES):  # a packed archive is whole where its checksum is right
            pass

    def _extension(self, header: tarfile.TarInfo) -> dict[str, str]:
        """The names that a header gives to the member behind it."""
        if not 0 <= header.size <= HEADER_MAX_BYTES:
            raise Refused(f"a header in the archive holds more than {HEADER_MAX_BYTES:,} bytes")
        body = self._exactly(header.size)
        padding = self._padding(header.size)
        if header.type in _NAMES:
            text = body.partition(b"\0")[0].decode("utf-8", "surrogateescape")
            return {_NAMES[header.type]: text}
        if padding.strip(b"\0"):
            raise Refused("the archive is damaged: a header is longer than it says")
        found, count = _records(body)
        self._left_records -= count
        if self._left_records < 0:
            raise Refused(f"the headers of the archive have more than {ALL_RECORDS_MAX:,} records")
        if any(key == "size" or key.startswith("GNU.sparse.") for key in found):
            raise Refused("the archive gives the size of a file twice, or has a sparse file")
        names = {key: text for key, text in found.items() if key in ("path", "linkpath")}
        if names and header.type == tarfile.XGLTYPE:
            raise Refused("the archive gives one name to all its files")
        return names

    def _padding(self, size_bytes: int) -> bytes:
        """What fills the last block of so many bytes."""
        return self._exactly(-size_bytes % tarfile.BLOCKSIZE)

    def _exactly(self, size_bytes: int) -> bytes:
        data = self._read(size_bytes)
        if len(data) < size_bytes:
            raise Refused("the archive is damaged: it ends too early")
        return data

    def _read(self, size_bytes: int) -> bytes:
        """The next bytes; no more than an archive may hold, however small it is packed."""
        try:
            data = self._file.read(size_bytes)
        except (zlib.error, EOFError) as error:
            raise Refused(f"the archive is damaged: {error}") from None
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise Refused(f"the archive holds more than {STREAM_MAX_BYTES:,} bytes when unpacked")
        return data


class _Tree:
    """What an archive holds: a number for each place, 0 for the work folder itself."""

    def __init__(self) -> None:
        self._below: dict[tuple[int, str], int] = {}
        self._types = [tarfile.DIRTYPE]

    def add(self, member: tarfile.TarInfo) -> None:
        """Add a member, and the folders that its name has. O(its name).

        Nothing may lie below a file or a link, nor be there as two things: of two links, only the
        last one would be judged.
        """
        parts = _parts(member.name)
        if len(parts) > DEPTH_MAX:
            raise Refused(f"{member.name[:100]!r} lies in more than {DEPTH_MAX} folders")
        place = 0
        for number, part in enumerate(parts, 1):
            if self._types[place] != tarfile.DIRTYPE:
                raise _twice("/".join(parts[: number - 1]))
            place = self._below.setdefault((place, part), len(self._types))
            if place == len(self._types):
                self._types.append(member.type if number == len(parts) else tarfile.DIRTYPE)
            elif number == len(parts) and (not member.isdir() or self._types[place] != member.type):
                raise _twice(member.name)
        if not (parts or member.isdir()):
            raise _twice(member.name)
        if len(self._types) > MAX_ENTRIES + 1:
            raise Refused(f"the archive has more than {MAX_ENTRIES:,} files, folders and links")

    def check_link(self, member: tarfile.TarInfo) -> None:
        """Judge a link by its text: it stays inside, and goes up through folders only. O(its text).

        Behind another link, the text does not say where a step up leads.
        """
        way = [0]
        for part in _parts(member.name)[:-1]:
            way.append(self._below[way[-1], part])
        inside, through_link = not member.linkname.startswith("/"), False
        for part in _parts(member.linkname):
            if part != "..":
                place = self._below.get((way[-1], part), _NOWHERE)
                through_link |= place != _NOWHERE and self._types[place] == tarfile.SYMTYPE
                way.append(place)
                continue
            inside = inside and len(way) > 1 and not through_link
            if not inside:
                break
            way.pop()
        if not inside:
            link = f"{member.name!r} -> {member.linkname!r}"
            raise Refused(f"the link {link} may lead out of the folder")


class _Unzipped(io.RawIOBase):
    """What a file of gzip holds, its parts one behind the other. O(its bytes, packed and unpacked).

    Each part costs time, and so does what is before its content, which may be a name without end.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._part = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._parts = 1
        self._packed = b""
        self._silent_bytes = 0
        """Taken since something came of it."""

    def readable(self) -> bool:
        """For the buffer around it."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes, and none at the end."""
        while not self._part.eof or self._begins_part():
            self._packed = self._packed or self._file.read(PACKED_BYTES)
            if not self._packed:
                raise EOFError("it ends too early")
            data = self._part.decompress(self._packed, len(buffer))
            rest = self._part.unused_data if self._part.eof else self._part.unconsumed_tail
            self._silent_bytes += len(self._packed) - len(rest)
            self._packed = rest
            if data:
                self._silent_bytes = 0
                buffer[: len(data)] = data
                return len(data)
            if self._silent_bytes > HEADER_MAX_BYTES:
                raise Refused(f"more than {HEADER_MAX_BYTES:,} bytes of the archive hold nothing")
        return 0

    def _begins_part(self) -> bool:
        """Whether there is one more; what fills the last block of a tape is none."""
        while not self._packed.strip(b"\0"):
            self._packed = self._file.read(PACKED_BYTES)
            if not self._packed:
                return False
        self._packed = self._packed.lstrip(b"\0")
        self._parts += 1
        if self._parts > GZIP_PARTS_MAX:
            raise Refused(f"the archive is packed in more than {GZIP_PARTS_MAX:,} parts")
        self._part = zlib.decompressobj(zlib.MAX_WBITS | 16)
        return True


def _records(body: bytes) -> tuple[dict[str, str], int]:
    """The records of a header of POSIX, ``LENGTH KEY=VALUE`` and the end of a line each. O(n).

    And how many they are, as a key may be there twice.
    """
    found: dict[str, str] = {}
    at, count = 0, 0
    while at < len(body):
        space = body.find(b" ", at, at + len(str(HEADER_MAX_BYTES)) + 1)
        length = body[at:space] if space > 0 else b""
        end = at + int(length) if length.isdigit() else 0
        if (count := count + 1) > RECORDS_MAX:
            raise Refused(f"a header in the archive has more than {RECORDS_MAX} records")
        key, equals, value = body[space + 1 : max(end - 1, 0)].partition(b"=")
        if not (key and equals) or body[end - 1 : end] != b"\n":
            raise Refused("the archive is damaged: a header has no records")
        found[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        at = end
    return found, count


def _check_name(member: tarfile.TarInfo) -> None:
    _check_text(member.name, "a name")
    if any(len(os.fsencode(part)) > PART_MAX_BYTES for part in member.name.split("/")):
        raise Refused(f"a part of {member.name[:100]!r} is longer than {PART_MAX_BYTES} bytes")
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise Refused(f"{member.name!r} leads out of the folder")


def _twice(name: str) -> Refused:
    return Refused(f"{name!r} is in the archive twice, as different things")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _check_text(text: str, what: str) -> None:
    if not text or "\0" in text or len(os.fsencode(text)) > NAME_MAX_BYTES:
        raise Refused(f"{what} is empty, has a NUL, or is longer than {NAME_MAX_BYTES:,} bytes")


def _write(path: Path, member: tarfile.TarInfo, content: Iterator[bytes]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as out:
        out.writelines(content)
        os.fchmod(out.fileno(), 0o755 if member.mode & 0o100 else 0o644)


@contextmanager
def _explained(member: tarfile.TarInfo) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise _twice(member.name) from None
