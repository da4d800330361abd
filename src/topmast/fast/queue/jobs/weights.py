"""What jobs take of memory, roughly: a number does not tell, since scripts may be long."""

from __future__ import annotations

from collections.abc import Iterable

from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.ids import sweep_id
from topmast.model.job import JobSpec
from topmast.model.sweep import SweepPart

JOB_BYTES = 2 * 1024
"""A job without its text; *measured*: 1.6 kB (docs/guides/sizing.md)."""
PART_BYTES = 200
"""Each variable, label, dataset and dependency of a job beside its text."""
GROUP_BYTES = 1_500
"""Each group beyond the first, with the models and speeds that it lists."""
LETTER_BYTES = 3
"""Each letter: it is kept, and copied into snapshots twice, plain and compressed;"""
WIDE_LETTER_BYTES = 6
"""in a text that has other letters than those of ASCII, each takes up to four bytes."""

LARGEST = 10**15
"""No number of a sweep has more digits."""


class Weights:
    """Bytes of jobs that have not ended, by tenant and user, and of those that have.

    Changed by `enter`, `leave` and `move` alone. A job without a user counts under an empty name.
    """

    def __init__(self, records: Iterable[JobRecord] = ()) -> None:
        """O(jobs)."""
        self.by_user: dict[tuple[str, str], int] = {}
        """By tenant and user: those that may submit for others in one tenant touch no other."""
        self.ended_bytes = 0
        for record in records:
            self.enter(record, ended=record.finished)

    def enter(self, record: JobRecord, *, ended: bool = False) -> None:
        """A job is in memory, and has or has not ended. O(its variables, labels and groups)."""
        self._add(record, ended, bytes_of(record.spec))

    def leave(self, record: JobRecord, *, ended: bool = False) -> None:
        """It is no longer there, or no longer what it was told to be."""
        self._add(record, ended, -bytes_of(record.spec))

    def move(self, record: JobRecord, *, ended: bool) -> int:
        """It has ended, or goes on after its end; tells what it takes."""
        size_bytes = bytes_of(record.spec)
        self._add(record, not ended, -size_bytes)
        self._add(record, ended, size_bytes)
        return size_bytes

    def _add(self, record: JobRecord, ended: bool, size_bytes: int) -> None:
        if ended:
            self.ended_bytes += size_bytes
            return
        self.add(record.spec, size_bytes)

    def add(self, spec: JobSpec, size_bytes: int) -> None:
        """So much more, or less, is there of the user of a job or sweep that has not ended."""
        name = (spec.tenant, spec.user)
        left_bytes = self.by_user.get(name, 0) + size_bytes
        if left_bytes:
            self.by_user[name] = left_bytes
        else:
            del self.by_user[name]

    def letters(self, jobs: int) -> int:
        """How long the text of all of so many jobs is, at most. O(users)."""
        size_bytes = sum(self.by_user.values()) + self.ended_bytes
        return (size_bytes - jobs * JOB_BYTES) // LETTER_BYTES


def bytes_of(spec: JobSpec) -> int:
    """What one job takes of memory, roughly. O(variables, labels, groups and dependencies)."""
    texts = [spec.name, spec.group, spec.checkpoint.path, spec.image or "", spec.work or ""]
    texts += spec.datasets
    parts = len(spec.datasets) + len(spec.depends_on or ())
    for group in spec.groups:
        texts += (group.run, group.setup)
    for variables in (spec.envs, spec.secrets, spec.labels):
        if variables:
            texts += variables
            texts += variables.values()
            parts += len(variables)
    size_bytes = JOB_BYTES + (len(spec.groups) - 1) * GROUP_BYTES + parts * PART_BYTES
    return size_bytes + _texts_bytes(texts)


def said_bytes(spec: JobSpec) -> int:
    """What a sweep takes beside its jobs: what was submitted is kept. O(what it says)."""
    sweep = spec.sweep
    if not sweep:
        return 0
    values = {name: "".join(texts) for name, texts in sweep.matrix.items()}
    return bytes_of(spec) + sum(map(variables_bytes, (values, *sweep.settings)))


def most_bytes_of(spec: JobSpec) -> int:
    """As `bytes_of`, of the largest of the jobs that a submission becomes. O(what it says)."""
    sweep = spec.sweep
    if not sweep:
        return bytes_of(spec)
    part = SweepPart(sweep_id(LARGEST), sweep.size, sweep.size).variables()
    largest = {name: max(values, key=_text_bytes) for name, values in sweep.matrix.items()}
    if sweep.span:
        largest = {sweep.variable: max(str(sweep.span.first), str(sweep.span.last), key=len)}
    settings = sweep.settings or (largest,)
    return bytes_of(spec) + max(variables_bytes({**part, **one}) for one in settings)


def variables_bytes(values: dict[str, str]) -> int:
    """What variables or labels take, roughly. O(variables)."""
    return len(values) * PART_BYTES + _texts_bytes([*values, *values.values()])


def _texts_bytes(texts: list[str]) -> int:
    """O(texts): most are of ASCII alone, all of them."""
    together = "".join(texts)
    return _text_bytes(together) if together.isascii() else sum(map(_text_bytes, texts))


def _text_bytes(text: str) -> int:
    """O(1)."""
    return len(text) * (LETTER_BYTES if text.isascii() else WIDE_LETTER_BYTES)
