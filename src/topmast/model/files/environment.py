"""The variables of tasks in a job file: values, and references to values that stay secret."""

from __future__ import annotations

import re
from collections.abc import Mapping

from topmast.model.files.fields import PATH_LIMIT_BYTES, Value

ENVS_LIMIT = 1_000
ENVS_LIMIT_BYTES = 256_000
ENV_LIMIT_BYTES = 64_000
SECRETS_LIMIT = 100
OURS = (
    "CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE",
)  # fmt: skip
"""Variables that Topmast sets for the frameworks; those of ``envs`` are hidden by them."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(
    r"file:/[^\x00-\x1f\x7f]+|env:[A-Za-z_][A-Za-z0-9_]*"
    r"|kubernetes:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9._-]{1,253}"
)


def read_envs(value: Value | None) -> dict[str, str]:
    """The field ``envs``. Raises InvalidInput."""
    if value is None:
        return {}
    envs = {}
    total_bytes = 0
    for name, entry in value.entries(limit=ENVS_LIMIT).items():
        check_name(name, entry)
        envs[name] = entry.raw(limit_bytes=ENV_LIMIT_BYTES)
        total_bytes += len(name) + len(envs[name].encode())
    if total_bytes > ENVS_LIMIT_BYTES:
        remedy = f"at most {ENVS_LIMIT_BYTES:,}: put the rest in a file of the workdir"
        raise value.error(f"the variables take {total_bytes:,} bytes", remedy)
    return envs


def read_secrets(value: Value | None, envs: Mapping[str, str]) -> dict[str, str]:
    """The field ``secrets``; ``envs`` has the other variables. Raises InvalidInput."""
    if value is None:
        return {}
    found = {}
    for name, entry in value.entries(limit=SECRETS_LIMIT).items():
        check_name(name, entry)
        if name in envs:
            raise entry.error("is in envs too", "keep one of them")
        if name in OURS:
            raise entry.error("is set by Topmast", "rename it")
        reference = entry.text(limit_bytes=PATH_LIMIT_BYTES)
        if not _REFERENCE.fullmatch(reference):
            # What is wrong here may be the secret itself: it is not repeated.
            raise entry.error(
                "is not a reference to a secret",
                "file:/PATH or env:NAME of the hosts, or kubernetes:SECRET/KEY; never the value",
            )
        found[name] = reference
    return found


def check_name(name: str, entry: Value) -> None:
    """Raise InvalidInput for what cannot be the name of a job's own variable."""
    if not _NAME.fullmatch(name) or len(name) > 256:
        remedy = "letters, digits and '_', not beginning with a digit"
        raise entry.error("is not the name of an environment variable", remedy)
    if name.startswith("TOPMAST_"):
        raise entry.error("names that begin with TOPMAST_ are set by Topmast", "rename it")
