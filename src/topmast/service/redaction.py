"""What a text says of other tenants' jobs is replaced by their GPUs and bands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from topmast.fast.queue import GlobalQueue
from topmast.model.job import MILLI, JobSpec

T = TypeVar("T")

_JOB = re.compile(r"\bj(?:0|[1-9][0-9]{0,14})\b")
_TENANT = re.compile(r"\b(tenants? |parent |the quota of (?!tenant ))([A-Za-z0-9][\w.-]*)")
HIDDEN_TENANT = "(another tenant)"
_WHO_AND_WHY = re.compile(
    r"\b(is (?:paused|resumed|changed)|for a while|the quota of the fleet again),? by .*", re.DOTALL
)
"""What an act on another tenant says of the one that acts, and of the reason."""
_RESERVED = re.compile(r"(?<=\bis reserved) by .*|(?<=\bis over), ended by .*", re.DOTALL)
"""Likewise of a reservation; its event names the tenants that it is for beside the text."""


class Redaction:
    """Hides the jobs and names of all tenants but some. Any thread may use it."""

    def __init__(
        self,
        queue: GlobalQueue,
        seen: frozenset[str],
        archived: Callable[[str], str | None] = lambda job: None,
    ) -> None:
        """``seen``: tenants to show. ``archived``: the tenant of a job that left the memory."""
        self._queue = queue
        self._seen = seen
        self._archived = archived

    def has(self, tenant: str) -> bool:
        """Whether a tenant is one of those that are shown."""
        return tenant in self._seen

    def sees(self, job: str) -> bool:
        """Whether a job is one of the tenants that are shown."""
        record = self._queue.jobs.records.get(job)
        return (record.spec.tenant if record else self._archived(job)) in self._seen

    def of(self, value: T) -> T:
        """The same value with all its texts redacted. O(size)."""
        found = self._part(msgspec.to_builtins(value))
        return msgspec.convert(found, type(value))

    def text(self, text: str) -> str:
        """A text without the ids and tenants of others."""
        shown = _TENANT.sub(self._tenant, _JOB.sub(self._job, text))
        return _WHO_AND_WHY.sub(r"\1", shown) if HIDDEN_TENANT in shown else shown

    def _part(self, part: Any) -> Any:
        if isinstance(part, str):
            return self.text(part)
        if isinstance(part, list | tuple):
            return [self._part(one) for one in part]
        if not isinstance(part, dict):
            return part
        found = {self.text(str(name)): self._part(value) for name, value in part.items()}
        tenant, added = found.get("tenant"), found.get("added_gpus")
        if isinstance(tenant, str) and tenant not in self._seen:
            found["tenant"] = HIDDEN_TENANT
        if isinstance(added, dict):
            found["added_gpus"] = {
                name if name in self._seen else HIDDEN_TENANT: gpus for name, gpus in added.items()
            }
        names = found.get("tenants")
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            found["tenants"] = self._tenants(names)
            if found["tenants"] == [HIDDEN_TENANT]:  # what it is for is no business of others
                found |= {key: "" for key in ("reason", "by") if key in found}
        detail, text = found.get("detail"), found.get("text")
        if isinstance(detail, dict) and isinstance(text, str):  # an event
            is_theirs = detail.get("tenants") == [HIDDEN_TENANT]
            found["text"] = _RESERVED.sub("", text) if is_theirs else text
        if "user" in found and tenant is not None and tenant not in self._seen:
            found["user"] = ""
        return found

    def _tenants(self, names: Iterable[str]) -> list[str]:
        shown = [name if name in self._seen else HIDDEN_TENANT for name in names]
        return list(dict.fromkeys(shown))

    def _job(self, found: re.Match[str]) -> str:
        job = found.group()
        record = self._queue.jobs.records.get(job)
        if record is not None:
            return job if record.spec.tenant in self._seen else described(record.spec)
        return job if self.sees(job) else "a job of another tenant"

    def _tenant(self, found: re.Match[str]) -> str:
        before, name = found.groups()
        known = name in self._queue.tenancy.ledger.tenants
        return f"{before}{HIDDEN_TENANT}" if known and name not in self._seen else found.group()


def described(spec: JobSpec) -> str:
    """All that others learn of a job."""
    gpus = f"{spec.gpus_milli() / MILLI:g} GPUs"
    return f"a job of another tenant ({gpus}, {spec.band.name.lower()})"
