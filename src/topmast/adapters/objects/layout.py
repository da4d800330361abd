"""Names within a region's store: datasets, and the hidden folder where the mover works.

PATH/...                             a dataset's objects
.topmast/manifests/PATH.json         written last: the replica is complete
.topmast/copies/COPY/objects/...     objects of a copy under way
.topmast/copies/COPY/log.json        which of them are verified
.topmast/placing/PATH.json           the copy that is moving objects into place
.topmast/deleting/PATH.json          a deletion under way
.topmast/leaders/...                 the last leader that changed something
"""

from __future__ import annotations

import hashlib
import re

from topmast.model.errors import InvalidInput

HIDDEN = ".topmast"
COPIES = f"{HIDDEN}/copies"
DELETING = f"{HIDDEN}/deleting"

_COPY_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def dataset_path(path: str) -> str:
    """``path`` without a slash at its end; raises `InvalidInput` if it could leave the store."""
    clean = path.rstrip("/")
    parts = clean.split("/")
    if (
        not all(parts)
        or any(part in (".", "..") for part in parts)
        or parts[0] == HIDDEN
        or _CONTROL.search(clean)
        or not _is_utf8(clean)
    ):
        remedy = "a relative path like vision/imagenet, without '.' or '..'"
        raise InvalidInput(f"{path!r} is not the path of a dataset", field="path", remedy=remedy)
    return clean


def name_fault(name: str) -> str:
    """Why no object may be called ``name``; empty if it may."""
    if _CONTROL.search(name):
        return "control characters in its name"
    if not _is_utf8(name):
        return "a name that is not UTF-8"
    return ""


def staging(copy: str) -> str:
    """Where a copy under way keeps everything."""
    if not _COPY_ID.fullmatch(copy):
        raise InvalidInput(f"{copy!r} is no id of a copy")
    return f"{COPIES}/{copy}"


def upload_id(region: str, path: str) -> str:
    """The id of the copy that uploads a directory to ``path``: a repetition resumes."""
    return f"put-{hashlib.sha256(f'{region} {path}'.encode()).hexdigest()[:20]}"


def manifest(path: str) -> str:
    """The manifest of the dataset at ``path``."""
    return f"{HIDDEN}/manifests/{path}.json"


def placing(path: str) -> str:
    """The mark that objects are being moved to ``path``: what is there is not complete."""
    return f"{HIDDEN}/placing/{path}.json"


def deleting(path: str) -> str:
    """The mark that ``path`` is being deleted."""
    return f"{DELETING}/{path}.json"


def signs(path: str) -> tuple[str, str, str]:
    """The keys that tell of a replica at ``path``: complete, being placed, being deleted."""
    return manifest(path), placing(path), deleting(path)


def sign_folders(path: str) -> tuple[str, ...]:
    """The folders with the keys that tell of replicas below ``path``."""
    return tuple(sign.removesuffix(".json") for sign in signs(path))


def above(path: str) -> list[str]:
    """The folders that ``path`` lies in, the nearest first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1)]


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
