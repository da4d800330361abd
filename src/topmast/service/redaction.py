"""What a text says of other tenants' jobs is replaced by their GPUs and bands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from topmast.fast.queue import GlobalQueue
from topmast.model.job import MILLI, JobSpec
from topmast.service.sentences import BESIDES

T = TypeVar("T")

HIDDEN_JOB = "a job of another tenant"
HIDDEN_TENANT = "(another tenant)"
_JOB = re.compile(r"(?<![\w:/@-])j(?:0|[1-9][0-9]{0,14})\b")
_TENANT = re.compile(
    r"\b((?:for|of) tenant |the quota of (?!tenant |the fleet\b)|tenant "
    r"(?=[\w.-]+ (?:is paused|is resumed|has|holds|would|added|changed|removed)\b))"
    r"([A-Za-z0-9][\w.-]*)"
)
"""A tenant, where a sentence of Topmast's own names one."""
_SAID = re.compile(
    r"(?<=\bsubmitted by )(?P<actor>\S+)|,? as \S+ wants\b.*|\S+ closed the cluster\b.*"
    r"|(?:\b(?:for a while|again),|\b(?:is over), ended"
    r"|\b(?:cancelled|changed|cordoned|drained|held|opened|paused|preempted|released|requeued"
    r"|reserved|resumed|suspended|uncordoned))(?P<act> by (?!j[0-9]+\b(?!: )).*)",
    re.DOTALL,
)
"""The actor and the reason, to the end: people wrote them. A job preempts as well as a person."""
_RESERVED = re.compile(r"(?<=\bis reserved) by .*|(?<=\bis over), ended by .*", re.DOTALL)
"""Likewise of a reservation; its event names the tenants that it is for beside the text."""
_JOBS = frozenset(
    ("beside", "depends_on", "job", "jobs", "kept_for", "on", "stays", "victims", "waits_for")
)
"""Fields of ids, alone, in a list or as keys: of Topmast, or of a caller that sees the jobs."""
_WRITTEN = frozenset(
    (
        "by", "command", "dataset", "datasets", "group", "label", "labels", "metrics", "name",
        "path", "reason", "selector", "user", "users",
    )
)  # fmt: skip
"""Fields that people wrote: shown as they are, or else they would tell which jobs there are."""

_BARE = frozenset((bool, float, int, type(None)))
"""Values that name nothing."""
_SHORT = 64
"""Characters of a text that is looked up: of names of fields, states and the like."""


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
        """A sentence without the ids and tenants of others; what people said in it stays.

        One that is hidden reads as one that there is not.
        """
        if not (_names_known(text) if len(text) <= _SHORT else _names(text)):
            return text
        return BESIDES.join(self._part_of_text(part) for part in text.split(BESIDES))

    def _part_of_text(self, text: str) -> str:
        found = _SAID.search(text)
        if found is None:
            return self._sentence(text)
        said = "actor" if found["actor"] else "act" if found["act"] else 0
        before, end = self._sentence(text[: found.start(said)]), found.end(said)
        if HIDDEN_TENANT in before:  # actor and reason are for the people of that tenant
            return before.rstrip(" ,")
        return before + found[said] + self._sentence(text[end:])

    def _sentence(self, text: str) -> str:
        return _TENANT.sub(self._tenant, _JOB.sub(self._job, text))

    def _part(self, part: Any, field: str = "") -> Any:
        if type(part) in _BARE or field in _WRITTEN:
            return part
        if isinstance(part, str):
            is_id = field in _JOBS and _JOB.fullmatch(part)
            return self._described(part) if is_id else self.text(part)
        if isinstance(part, list | tuple):
            return [self._part(one, field) for one in part]
        return self._fields(part, field) if isinstance(part, dict) else part

    def _fields(self, part: dict[Any, Any], field: str) -> dict[str, Any]:
        tenant = part.get("tenant")
        # The id of what is of such a tenant is shown: the database is not asked for its job.
        is_own = isinstance(tenant, str) and tenant in self._seen
        found = {
            self._part(str(name), field): (
                value if is_own and name == "id" else self._part(value, str(name))
            )
            for name, value in part.items()
        }
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
        if "user" in found and tenant is not None and tenant not in self._seen:
            found["user"] = ""
        detail, text = found.get("detail"), found.get("text")
        if isinstance(detail, dict) and isinstance(text, str):  # an event
            found["text"] = _event_text(text, detail)
        return found

    def _tenants(self, names: Iterable[str]) -> list[str]:
        shown = [name if name in self._seen else HIDDEN_TENANT for name in names]
        return list(dict.fromkeys(shown))

    def _job(self, found: re.Match[str]) -> str:
        return found.group() if self.sees(found.group()) else HIDDEN_JOB

    def _described(self, job: str) -> str:
        record = self._queue.jobs.records.get(job)
        if record is None or record.spec.tenant in self._seen:
            return job if self.sees(job) else HIDDEN_JOB
        return described(record.spec)

    def _tenant(self, found: re.Match[str]) -> str:
        before, name = found.groups()
        return found.group() if name in self._seen else f"{before}{HIDDEN_TENANT}"


def _names(text: str) -> bool:
    """Whether a text has what reads as a job, or as a tenant in a sentence: few have."""
    return bool(_JOB.search(text) or _TENANT.search(text))


_names_known = lru_cache(16_384)(_names)


def _event_text(text: str, detail: dict[str, Any]) -> str:
    """The text of an event: without actor and reason if its detail says that it is about others."""
    if detail.get("tenants") == [HIDDEN_TENANT]:
        return _RESERVED.sub("", text)
    changed = detail.get("changed")
    if isinstance(changed, list) and any(HIDDEN_TENANT in str(one) for one in changed):
        detail["by"] = ""
        return "the fleet is changed"
    return text


def described(spec: JobSpec) -> str:
    """All that others learn of a job."""
    gpus = f"{spec.gpus_milli() / MILLI:g} GPUs"
    return f"{HIDDEN_JOB} ({gpus}, {spec.band.name.lower()})"
