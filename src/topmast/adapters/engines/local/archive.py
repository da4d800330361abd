"""Unpacking the snapshot of a workdir: nothing lands outside its folder, whatever the archive says."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path


def unpack(archive_path: str, folder: str) -> None:
    """Extract files, folders and links that stay inside; raises tarfile.TarError for anything else."""
    with tarfile.open(archive_path) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            _unpack_checked(archive, folder)


def _unpack_checked(archive: tarfile.TarFile, folder: str) -> None:
    """The same for Python before 3.11.4, whose tarfile has no filters.

    Each member is judged by where it would land now, links unpacked before it included.
    """
    root = Path(folder).resolve()
    for member in archive:
        place = root / member.name
        inside = place.resolve().is_relative_to(root)
        if member.issym():
            inside = inside and (place.parent / member.linkname).resolve().is_relative_to(root)
        elif not (member.isreg() or member.isdir()):
            inside = False
        if not inside:
            raise tarfile.ExtractError(f"{member.name!r} does not belong in a snapshot")
        member.mode = (member.mode or 0o644) & 0o755
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        archive.extract(member, root)
