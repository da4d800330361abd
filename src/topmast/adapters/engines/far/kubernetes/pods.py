"""What a pod says of itself: how far it is, and why."""

from __future__ import annotations

import signal
from datetime import datetime

from msgspec import Struct

from topmast.adapters.engines.far.launcher import Listed, State

_ENDED = ("Succeeded", "Failed")
RUNNER = "runner"
"""The container of ours: a site's own admission may add others."""
_NO_MEMORY = "OOMKilled"
_KILLED = 128 + signal.SIGKILL
_UNKNOWN = "ContainerStatusUnknown"
"""The kubelet does not find the container: its processes may live."""
_LONGEST = 500
_IN_VAIN = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
"""The last is said of a Secret, or a key in it, that is not there."""
_NOT_GIVEN = ("not found", "manifest unknown", "denied", "unauthorized", "authorization failed")
"""What registries answer for an image that they do not have, or do not give us."""
_IMAGE_REMEDY = "correct `image` of the job or the cluster, or set options.pull_secret"


class Owner(Struct, frozen=True):
    """Another object that an object belongs to."""

    kind: str
    name: str
    uid: str


class Meta(Struct, frozen=True, rename="camel"):
    """What every object has."""

    name: str
    uid: str
    namespace: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    finalizers: list[str] | None = None


class Waiting(Struct, frozen=True):
    """A container that did not start yet."""

    reason: str = ""
    message: str = ""


class Terminated(Struct, frozen=True, rename="camel"):
    """A container that ended."""

    exit_code: int
    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True):
    """One of these; none: waiting."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None
    running: dict[str, str | None] | None = None


class ContainerStatus(Struct, frozen=True):
    """What the kubelet says of a container."""

    name: str
    state: ContainerState = ContainerState()


class Condition(Struct, frozen=True):
    """One thing that is so, or not, or not known."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(Struct, frozen=True, rename="camel"):
    """What the scheduler and the kubelet say of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None

    def containers(self) -> list[ContainerStatus]:
        """Of all containers, those that a site's own admission added included."""
        return [*(self.init_container_statuses or ()), *(self.container_statuses or ())]


class PodSpec(Struct, frozen=True, rename="camel"):
    """What of a pod's wishes matters here."""

    node_name: str = ""


class Pod(Struct, frozen=True):
    """A pod of ours."""

    metadata: Meta
    spec: PodSpec
    status: PodStatus = PodStatus()


def listed(pod: Pod) -> Listed:
    """The part that a pod is, as its scheduler knows it."""
    meta, state = pod.metadata, _state(pod)
    ours = [one.state.terminated for one in pod.status.containers() if one.name == RUNNER]
    no_memory = any(one is not None and one.reason == _NO_MEMORY for one in ours)
    return Listed(
        name=meta.name,
        id=f"{meta.namespace}/{meta.uid}",
        submitted_s=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        state=state,
        why=" ".join(_why(pod).split())[:_LONGEST],
        evicted=_was_evicted(pod),
        never=_waits_in_vain(pod),
        code=_KILLED if no_memory and state is State.ENDED else None,
    )


def _state(pod: Pod) -> State:
    """Ended only if nothing of it can live, as far as anything that Kubernetes says is true.

    A phase alone proves nothing: it says Failed while the processes are still being killed
    (eviction, deadlines), or when the node was lost. The kubelet's word on each container does.
    """
    meta, status = pod.metadata, pod.status
    is_over = status.phase in _ENDED
    if not pod.spec.node_name:
        return State.ENDED if is_over or meta.deletion_timestamp else State.WAITING
    states = [one.state for one in status.containers()]
    ended = [one.terminated for one in states if one.terminated]
    if any(one.running is not None for one in states) or any(e.reason == _UNKNOWN for e in ended):
        return State.RUNNING
    # Of one that was evicted, or that the node did not admit, nothing is said of its containers.
    # The kubelet gives a pod up, with a grace of 0, when all of them are gone.
    given_up = meta.deletion_timestamp and meta.deletion_grace_period_seconds == 0
    return State.ENDED if given_up or (is_over and ended) else State.RUNNING


def _why(pod: Pod) -> str:
    status = pod.status
    for one in status.containers():
        ended, waiting = one.state.terminated, one.state.waiting
        if ended and (ended.exit_code or ended.reason not in ("", "Completed")):
            return _said(f"{ended.reason or 'Error'} (exit code {ended.exit_code})", ended.message)
        if waiting and waiting.reason not in ("", "PodInitializing"):
            said = _said(waiting.reason, waiting.message)
            return f"{said} ({_IMAGE_REMEDY})" if "Image" in waiting.reason else said
    if status.reason or status.message:
        return _said(status.reason, status.message)
    conditions = {one.type: one for one in status.conditions or ()}
    disrupted, scheduled = conditions.get("DisruptionTarget"), conditions.get("PodScheduled")
    if disrupted and disrupted.status == "True":
        return _said(disrupted.reason, disrupted.message)
    if pod.metadata.deletion_timestamp:
        return "deleted"
    if scheduled and scheduled.status != "True":
        return _said(scheduled.reason, scheduled.message)
    return ""


def _waits_in_vain(pod: Pod) -> bool:
    """Whether an image has no name that can be, its registry says that it does not give it, or a
    Secret is missing.
    """
    for one in pod.status.containers():
        waiting = one.state.waiting
        if waiting and waiting.reason in _IN_VAIN:
            return True
        if waiting and waiting.reason == "ErrImagePull":
            return any(word in waiting.message.lower() for word in _NOT_GIVEN)
    return False


def _said(reason: str, message: str) -> str:
    return f"{reason}: {message}" if reason and message else reason or message


def _was_evicted(pod: Pod) -> bool:
    """Whether it was ended from outside: deleted, drained, preempted, evicted, not admitted.

    It may still be ending.
    """
    disrupted = any(
        one.type == "DisruptionTarget" and one.status == "True"
        for one in pod.status.conditions or ()
    )
    # Of an ordinary failure Kubernetes gives the reason at the container, and none at the pod.
    failed_as_a_whole = pod.status.phase == "Failed" and bool(pod.status.reason)
    return disrupted or failed_as_a_whole or pod.metadata.deletion_timestamp is not None
