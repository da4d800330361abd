"""The audit log: facts of the queue and the placers in words, as rows beside the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from topmast.fast.queue import GlobalQueue, JobRecord
from topmast.fast.queue import facts as f
from topmast.fast.region import facts as p
from topmast.model import ids
from topmast.model.absent import given
from topmast.model.dependency import awaited
from topmast.model.expansion import size_of
from topmast.model.job import Band
from topmast.model.job_extras import labels_text
from topmast.model.messages import (
    AssignHosts,
    AttemptEnded,
    AttemptsStarting,
    ConfigureFleet,
    EditJobs,
    EndQuota,
    EndWindow,
    Message,
    NoteBudget,
    ReleaseJobs,
    ResumeTenant,
    SetClosure,
    SetHost,
    SetQuota,
    SetWindow,
    SubmitJobs,
)
from topmast.model.states import HostState, JobState
from topmast.model.window import CLOSURE, Window
from topmast.ports import Act, ActRow, AttemptRow, HistoryRow, JobRow
from topmast.runtime.placed_lines import all_placed, placed

FLEET_NAMED = 5
"""So many changes of a fleet are named in a line."""


class AuditLog:
    """Collects the rows of one commit."""

    def __init__(self, queue: GlobalQueue) -> None:
        self.queue = queue
        self.history: list[HistoryRow] = []
        self.attempts: list[AttemptRow] = []
        self.jobs: list[JobRow] = []
        self.acts: list[ActRow] = []
        self.options: dict[str, str] = {}
        self._idle_s = 0.0
        """Of the attempt that ends with the event that is handled."""
        self._tenants: tuple[str, ...] = ()
        """Those that the reservation is for that ends with the event that is handled."""

    def note(self, act: Act, now: float) -> None:
        """Note an act that no machine is told."""
        self.acts.append(replace(act.row, at_s=now))
        self.options.update(act.options)
        self.history += [replace(row, at_s=now) for row in act.told]

    def foresee(self, event: AttemptEnded | EndWindow) -> None:
        """Note what is forgotten when the end of an attempt or reservation is handled. O(1)."""
        if isinstance(event, EndWindow):
            known = self.queue.windows.known.get(event.name)
            self._tenants = () if known is None else known.window.tenants
            return
        record = self.queue.jobs.current(event.job, event.epoch)
        self._idle_s = 0.0 if record is None else record.idle_s(event.end_s)

    def add(self, event: Message, facts: Sequence[Struct], now: float) -> None:
        """Note what a machine made of an event. O(facts, and jobs for a submission)."""
        for fact in facts:
            tell = _TELLERS.get(type(fact))
            if tell is not None:
                tell(self, fact, event, now)

    def _line(self, now: float, job: str, kind: str, text: str, **detail: Any) -> None:
        encoded = msgspec.json.encode(detail).decode() if detail else "{}"
        self.history.append(HistoryRow(now, job, kind, text, encoded))

    def _admitted(self, fact: f.Admitted, event: SubmitJobs, now: float) -> None:
        records, after = self.queue.jobs.records, fact.first_number + size_of(event.jobs)
        for job in map(ids.job_id, range(fact.first_number, after)):
            spec = records[job].spec  # admitted a moment ago
            by = spec.user or "an unknown user"
            text = f"submitted by {by} for tenant {spec.tenant}, band {spec.band.name.lower()}"
            if spec.part:
                text += f"; {spec.part.sweep}[{spec.part.index}], of {spec.part.size:,} jobs"
            if spec.depends_on:
                text += f"; to start when {awaited(spec.depends_on)}"
            self.history.append(HistoryRow(now, job, "submitted", text))

    def _planned(self, fact: f.Planned, event: Message, now: float) -> None:
        decided = given(fact.decided, None)
        self.history.append(placed(now, fact.epoch, fact.plan, fact.over_quota, decided))

    def _all_planned(self, fact: f.AllPlanned, event: Message, now: float) -> None:
        plans = fact.columns(event)
        self.history += all_placed(now, plans, fact.first, fact.epochs, fact.over_quota)

    def _unplanned(self, fact: f.Unplanned, event: Message, now: float) -> None:
        self._line(now, fact.job, "refused", f"the region refused the plan: {fact.why}")

    def _moved(self, fact: f.Moved, event: Message, now: float) -> None:
        text, cause = fact.to.lower(), fact.cause
        if cause.startswith(f"{text} by "):  # the cause says it itself
            text, cause = cause, ""
        self._line(now, fact.job, fact.to.value, f"{text}: {cause}" if cause else text)
        self._finish(self.queue.jobs.records.get(fact.job), now)

    def _all_starting(self, fact: f.AllStarting, event: AttemptsStarting, now: float) -> None:
        kind, text = JobState.STARTING.value, JobState.STARTING.lower()
        self.history += [HistoryRow(now, job, kind, text) for job in event.jobs]

    def _hold_set(self, fact: f.HoldSet, event: Message, now: float) -> None:
        text = fact.why
        if not text and isinstance(event, ReleaseJobs):
            reason = f": {event.reason}" if event.reason else ""
            text = f"released by {event.by or 'an unknown user'}{reason}"
        self._line(now, fact.job, "held" if fact.why else "released", text)

    def _dependency_met(self, fact: f.DependencyMet, event: Message, now: float) -> None:
        record = self.queue.jobs.records.get(fact.job)
        left = f"; waits until {awaited(record.awaits)}" if record and record.awaits else ""
        met = f"waits no more for {fact.on}"
        if record and record.spec.in_sweep == fact.on:
            met = f"it is its turn in {fact.on}"
        self._line(now, fact.job, "dependency-met", met + left, on=fact.on)

    def _tenant_paused(self, fact: f.TenantPaused, event: Message, now: float) -> None:
        text = fact.why
        if not text and isinstance(event, ResumeTenant):
            reason = f": {event.reason}" if event.reason else ""
            text = f"tenant {fact.tenant} is resumed by {event.by or 'an unknown user'}{reason}"
        kind = "tenant-paused" if fact.why else "tenant-resumed"
        self._line(now, "", kind, text, tenant=fact.tenant)

    def _requeued(self, fact: f.Requeued, event: Message, now: float) -> None:
        self._line(now, fact.job, "requeued", fact.cause)

    def _edited(self, fact: f.Edited, event: EditJobs, now: float) -> None:
        changes = {
            name: value.name.lower() if isinstance(value, Band) else value
            for name, value in event.changes.given().items()
        }
        shown = ", ".join(f"{name} {value}" for name, value in changes.items())
        reason = f": {event.reason}" if event.reason else ""
        text = f"changed by {event.by or 'an unknown user'} ({shown}){reason}"
        self._line(now, fact.job, "edited", text, **changes)

    def _ended(self, fact: f.Ended, event: AttemptEnded, now: float) -> None:
        text = f"attempt {event.epoch} ended ({event.outcome})"
        # Of a job that failed it also says why it is not tried again.
        cause = fact.cause if fact.to is JobState.FAILED else event.cause
        text += f": {cause}" if cause else ""
        record = self.queue.jobs.records.get(fact.job)
        self._line(
            now, fact.job, fact.to.value, text,
            epoch=event.epoch, outcome=event.outcome, kept_s=event.kept_s,
            lost_s=event.held_s - event.kept_s, exit_code=event.exit_code,
        )  # fmt: skip
        if record is not None:
            self.attempts.append(_attempt_row(record, event, self._idle_s))
        self._finish(record, now)

    def _finish(self, record: JobRecord | None, now: float) -> None:
        if record is not None and record.finished:
            view = msgspec.json.encode(record.view(now, None)).decode()
            finish_s = now if record.finish_s is None else record.finish_s
            self.jobs.append(JobRow(record.id, record.number, finish_s, view))

    def _checkpointed(self, fact: f.Checkpointed, event: Message, now: float) -> None:
        self._line(now, fact.job, "checkpointed", f"checkpoint at step {fact.step}", step=fact.step)

    def _resumed(self, fact: f.ResumedFrom, event: Message, now: float) -> None:
        self._line(now, fact.job, "resumed", f"resumed from step {fact.step}", step=fact.step)

    def _packed(self, fact: f.PackedWith, event: Message, now: float) -> None:
        kind, text = "packed", f"shares its GPUs with {fact.colocated_with}: {fact.why}"
        if not fact.colocated_with:
            kind, text = "unpacked", f"no longer shares its GPUs: {fact.why}"
        self._line(now, fact.job, kind, text, beside=fact.colocated_with)

    def _copy_begun(self, fact: f.CopyBegun, event: Message, now: float) -> None:
        copy = fact.copy
        text = f"copy {copy.id} of {copy.dataset} from {copy.source} to {copy.target} begun"
        self._copy_line(now, copy.cause, "copy-begun", text, fact)

    def _copy_ready(self, fact: f.CopyReady, event: Message, now: float) -> None:
        copy = fact.copy
        text = f"copy {copy.id} of {copy.dataset} to {copy.target} complete and verified"
        self._copy_line(now, copy.cause, "copy-done", text, fact)

    def _copy_gone(self, fact: f.CopyGone, event: Message, now: float) -> None:
        copy = fact.copy
        text = f"copy {copy.id} of {copy.dataset} to {copy.target} failed: {fact.error}"
        self._copy_line(now, copy.cause, "copy-failed", text, fact)

    def _copy_line(
        self,
        now: float,
        cause: str,
        kind: str,
        text: str,
        fact: f.CopyBegun | f.CopyReady | f.CopyGone,
    ) -> None:
        job = cause if cause in self.queue.jobs.records else ""
        self._line(now, job, kind, text, **msgspec.to_builtins(fact.copy))

    def _dropped(self, fact: f.ReplicaDropped, event: Message, now: float) -> None:
        self._line(now, "", "replica-dropped", f"{fact.dataset} dropped from {fact.region}")

    def _removed(self, fact: f.DatasetRemoved, event: Message, now: float) -> None:
        self._line(now, "", "dataset-removed", f"{fact.dataset} removed")

    def _host_set(self, fact: p.HostSet, event: Message, now: float) -> None:
        what, kind = _HOST_WISHES[fact.state]
        if not isinstance(event, SetHost):
            self._host_line(now, fact.host, kind, "takes work again: its time is over")
            return
        by = event.by or "an unknown user"
        text = f"{what} by {by}" + (f": {event.reason}" if event.reason else "")
        self._host_line(now, fact.host, kind, text, by=event.by)

    def _host_reachable(self, fact: p.HostReachable, event: Message, now: float) -> None:
        kind, text = ("host-up", "answers again") if fact.up else ("host-down", "does not answer")
        self._host_line(now, fact.host, kind, text)

    def _host_closure(self, fact: p.HostClosure, event: Message, now: float) -> None:
        if fact.why:
            text = f"is closed by its cluster: {fact.why}"
            self._host_line(now, fact.host, "host-closed", text, why=fact.why)
        else:
            self._host_line(now, fact.host, "host-opened", "is open again in its cluster")

    def _budget_noted(self, fact: f.BudgetNoted, event: NoteBudget, now: float) -> None:
        detail = {"tenant": fact.tenant, "month": fact.month, "percent": fact.percent}
        self._line(now, "", "budget", event.text, **detail)

    def _fleet_set(self, fact: f.FleetSet, event: ConfigureFleet, now: float) -> None:
        if event.changed is UNSET:
            return  # that of a start
        reason = f": {event.reason}" if event.reason else ""
        more = len(event.changed) - FLEET_NAMED
        named = ", ".join(event.changed[:FLEET_NAMED]) + (f" and {more} more" if more > 0 else "")
        text = f"the fleet is changed by {event.by or 'an unknown user'} ({named}){reason}"
        self._line(now, "", "fleet-changed", text, changed=event.changed, by=event.by)

    def _quota_set(self, fact: f.QuotaSet, event: SetQuota, now: float) -> None:
        self._line(now, "", "quota-set", event.timed.why(), tenant=fact.tenant)

    def _quota_over(self, fact: f.QuotaOver, event: Message, now: float) -> None:
        text = f"tenant {fact.tenant} has the quota of the fleet again"
        if isinstance(event, EndQuota):
            reason = f": {event.reason}" if event.reason else ""
            text += f", by {event.by or 'an unknown user'}{reason}"
        self._line(now, "", "quota-over", text, tenant=fact.tenant)

    def _window_set(self, fact: f.WindowSet, event: SetWindow, now: float) -> None:
        window = event.window
        text = f"{_window_text(window)} is {replace(window, name=fact.name).why()}"
        self._line(now, "", "hosts-reserved", text, reservation=fact.name, tenants=window.tenants)

    def _window_over(self, fact: f.WindowOver, event: Message, now: float) -> None:
        text, detail = f"reservation {fact.name} is over", {}
        if isinstance(event, EndWindow):
            reason = f": {event.reason}" if event.reason else ""
            text += f", ended by {event.by or 'an unknown user'}{reason}"
            detail = {"tenants": self._tenants}
        self._line(now, "", "reservation-over", text, reservation=fact.name, **detail)

    def _closure_set(self, fact: p.ClosureSet, event: Message, now: float) -> None:
        if fact.name.startswith(CLOSURE):
            return  # the reservation is told of by itself
        what = f"cluster {fact.name}"
        if fact.closure is not None:
            text = f"{what} gets no new work: {fact.closure.why}"
        elif isinstance(event, SetClosure):
            reason = f": {event.reason}" if event.reason else ""
            text = f"{what} is opened by {event.by or 'an unknown user'}{reason}"
        else:
            text = f"{what} is open again: its time is over"
        kind = "cluster-opened" if fact.closure is None else "cluster-closed"
        self._line(now, "", kind, text, cluster=fact.name)

    def _host_suspected(self, fact: p.HostSuspected, event: Message, now: float) -> None:
        text = f"takes no work for {fact.until_s - now:g} s"
        if isinstance(event, AttemptEnded):
            text += f": attempt {event.epoch} of {event.job} ended ({event.outcome})"
        self._host_line(now, fact.host, "host-suspect", text, until_s=fact.until_s)

    def _host_trusted(self, fact: p.SuspicionOver, event: Message, now: float) -> None:
        self._host_line(now, fact.host, "host-trusted", "takes work again")

    def _hosts_assigned(self, fact: p.HostsAssigned, event: AssignHosts, now: float) -> None:
        by = event.by or "an unknown user"
        for host, cluster in fact.owners.items():
            text = f"goes to cluster {cluster} when it is empty, as {by} wants"
            self._host_line(now, host, "host-assigned", text, cluster=cluster, by=event.by)

    def _hosts_handed_over(self, fact: p.HostsHandedOver, event: Message, now: float) -> None:
        for host, cluster in fact.owners.items():
            text = f"belongs to cluster {cluster} now"
            self._host_line(now, host, "host-moved", text, cluster=cluster)

    def _host_line(self, now: float, host: str, kind: str, text: str, **detail: Any) -> None:
        self._line(now, ids.host(host), kind, f"{host} {text}", host=host, **detail)


_HOST_WISHES = {
    HostState.CORDONED: ("was cordoned", "host-cordoned"),
    HostState.DRAINING: ("is drained", "host-drained"),
    HostState.HEALTHY: ("was uncordoned", "host-uncordoned"),
}


def _window_text(window: Window) -> str:
    """What a reservation reserves."""
    if window.cluster or window.region:
        return f"cluster {window.cluster}" if window.cluster else f"region {window.region}"
    first, more = window.hosts[0], len(window.hosts) - 1
    return f"host {first}" + (f" and {more} more" if more else "")


def _attempt_row(record: JobRecord, event: AttemptEnded, idle_s: float) -> AttemptRow:
    return AttemptRow(
        job=record.id,
        epoch=event.epoch,
        tenant=record.spec.tenant,
        user=record.spec.user,
        region=record.region or "",
        cluster=record.cluster or "",
        model=record.model or "",
        gpus_milli=record.gpus_milli or 0,
        start_s=event.start_s,
        end_s=event.end_s,
        kept_s=event.kept_s,
        outcome=event.outcome.value,
        labels=labels_text(record.spec.labels),
        idle_s=max(0.0, min(idle_s, event.end_s - event.start_s)),
    )


_TELLERS: dict[type[Struct], Callable[..., None]] = {
    f.Admitted: AuditLog._admitted,
    f.Planned: AuditLog._planned,
    f.AllPlanned: AuditLog._all_planned,
    f.AllStarting: AuditLog._all_starting,
    f.Unplanned: AuditLog._unplanned,
    f.Moved: AuditLog._moved,
    f.HoldSet: AuditLog._hold_set,
    f.TenantPaused: AuditLog._tenant_paused,
    f.BudgetNoted: AuditLog._budget_noted,
    f.FleetSet: AuditLog._fleet_set,
    f.QuotaSet: AuditLog._quota_set,
    f.QuotaOver: AuditLog._quota_over,
    f.WindowSet: AuditLog._window_set,
    f.WindowOver: AuditLog._window_over,
    f.Requeued: AuditLog._requeued,
    f.DependencyMet: AuditLog._dependency_met,
    f.Edited: AuditLog._edited,
    f.Ended: AuditLog._ended,
    f.Checkpointed: AuditLog._checkpointed,
    f.ResumedFrom: AuditLog._resumed,
    f.PackedWith: AuditLog._packed,
    f.CopyBegun: AuditLog._copy_begun,
    f.CopyReady: AuditLog._copy_ready,
    f.CopyGone: AuditLog._copy_gone,
    f.ReplicaDropped: AuditLog._dropped,
    f.DatasetRemoved: AuditLog._removed,
    p.HostSet: AuditLog._host_set,
    p.HostsAssigned: AuditLog._hosts_assigned,
    p.HostsHandedOver: AuditLog._hosts_handed_over,
    p.HostReachable: AuditLog._host_reachable,
    p.HostClosure: AuditLog._host_closure,
    p.ClosureSet: AuditLog._closure_set,
    p.HostSuspected: AuditLog._host_suspected,
    p.SuspicionOver: AuditLog._host_trusted,
}
