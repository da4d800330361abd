"""What pods say of themselves, as they were recorded of real clusters: each row is one moment."""

from typing import Any

import msgspec
import pytest

from topmast.adapters.engines.far.kubernetes.pods import Pod, listed
from topmast.adapters.engines.far.launcher import State


def pod(
    *containers: dict[str, Any], node: str = "node-0", phase: str = "Running",
    deleted: int | None = None, **status: Any,
) -> Pod:  # fmt: skip
    meta: dict[str, Any] = {
        "name": "tm-f-j1-1-0", "namespace": "ml", "uid": "u1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    if deleted is not None:
        meta |= {"deletionTimestamp": "2026-01-02T03:05:05Z", "deletionGracePeriodSeconds": deleted}
    statuses = [{"name": "runner", "state": state} for state in containers]
    spec = {"nodeName": node} if node else {}
    content = {"metadata": meta, "spec": spec,
               "status": {"phase": phase, "containerStatuses": statuses, **status}}  # fmt: skip
    return msgspec.json.decode(msgspec.json.encode(content), type=Pod)


RUNS = {"running": {"startedAt": "2026-01-02T03:04:06Z"}}
PULLS = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
IMAGE = "(correct `image` of the job or the cluster, or set options.pull_secret)"
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
BROKE = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
LOST = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}
NO_ROOM = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2"}]
PREEMPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]


@pytest.mark.parametrize(
    ("story", "what", "want_state", "want_why", "want_evicted"),
    [
        ("new", pod(node="", phase="Pending"), State.WAITING, "", False),
        ("no room", pod(node="", phase="Pending", conditions=NO_ROOM), State.WAITING,
         "Unschedulable: 0/2", False),
        ("deleted before it had a node", pod(node="", phase="Pending", deleted=0), State.ENDED,
         "deleted", True),
        ("its image comes", pod(PULLS, phase="Pending"), State.RUNNING,
         f"ImagePullBackOff: Back-off pulling image {IMAGE}", False),
        ("on a node that did not speak yet", pod(phase="Pending"), State.RUNNING, "", False),
        ("it runs", pod(RUNS), State.RUNNING, "", False),
        ("done", pod(DONE, phase="Succeeded"), State.ENDED, "", False),
        ("failed", pod(BROKE, phase="Failed"), State.ENDED, "OOMKilled (exit code 137)", False),
        ("deleted, and still ends", pod(RUNS, deleted=30), State.RUNNING, "deleted", True),
        ("deleted by force while it runs", pod(RUNS, deleted=0), State.RUNNING, "deleted", True),
        ("deleted, and ended", pod(BROKE, phase="Failed", deleted=30), State.ENDED,
         "OOMKilled (exit code 137)", True),
        ("deleted while its image came, and given up", pod(PULLS, phase="Pending", deleted=0),
         State.ENDED, f"ImagePullBackOff: Back-off pulling image {IMAGE}", True),
        ("past a deadline: Failed before its processes ended",
         pod(RUNS, phase="Failed", reason="DeadlineExceeded"), State.RUNNING, "DeadlineExceeded", True),
        ("evicted: nothing is said of its containers",
         pod(phase="Failed", reason="Evicted", message="low on memory"), State.RUNNING,
         "Evicted: low on memory", True),
        ("evicted, deleted and given up", pod(phase="Failed", reason="Evicted", deleted=0),
         State.ENDED, "Evicted", True),
        ("not admitted", pod(phase="Failed", reason="UnexpectedAdmissionError"), State.RUNNING,
         "UnexpectedAdmissionError", True),
        ("the kubelet does not find the container", pod(LOST, phase="Failed"), State.RUNNING,
         "ContainerStatusUnknown (exit code 137)", False),
        ("preempted", pod(RUNS, deleted=30, conditions=PREEMPTED), State.RUNNING,
         "PreemptionByScheduler", True),
        ("one of two containers runs", pod(DONE, RUNS), State.RUNNING, "", False),
        ("a site's own container ended first", pod(BROKE, RUNS, phase="Running"), State.RUNNING,
         "OOMKilled (exit code 137)", False),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)  # fmt: skip
def test_a_pod_is_over_only_when_nothing_of_it_can_live(
    story: str, what: Pod, want_state: State, want_why: str, want_evicted: bool
) -> None:
    found = listed(what)
    assert (found.state, found.why, found.evicted) == (want_state, want_why, want_evicted), story


def test_a_job_that_took_too_much_memory_has_failed_itself() -> None:
    """Not if only a container of the site's own did, nor before all of it has ended."""
    over = {"name": "runner", "state": BROKE}
    other = {"name": "mesh", "state": BROKE}
    done = {"name": "runner", "state": DONE}
    for statuses, want in (([over], 137), ([over, other], 137), ([done, other], None)):
        found = listed(pod(phase="Failed", containerStatuses=statuses))
        assert (found.state, found.code) == (State.ENDED, want)
    assert listed(pod(BROKE, RUNS)).code is None


@pytest.mark.parametrize(
    ("reason", "message", "want"),
    [
        ("InvalidImageName", "couldn't parse image reference", True),
        ("ErrImageNeverPull", "not present with pull policy of Never", True),
        ("ErrImagePull", 'failed to resolve reference "r/i:9": r/i:9: not found', True),
        ("ErrImagePull", "pull access denied, repository does not exist", True),
        ("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout", False),
        ("ImagePullBackOff", "Back-off pulling image", False),
        ("ContainerCreating", "", False),
    ],
)
def test_an_image_that_never_comes_is_not_waited_for(reason: str, message: str, want: bool) -> None:
    """Its registry says so; one that does not answer may do so later."""
    waits = {"waiting": {"reason": reason, "message": message}}
    assert listed(pod(waits, phase="Pending")).never is want


def test_a_pod_is_known_by_its_uid_and_its_namespace() -> None:
    found = listed(pod(RUNS))
    assert (found.name, found.id) == ("tm-f-j1-1-0", "ml/u1")
    assert found.submitted_s == 1767323045.0


def test_a_long_message_becomes_one_short_line() -> None:
    message = "line\n" * 1000
    found = listed(pod({"waiting": {"reason": "Bad", "message": message}}, phase="Pending"))
    assert len(found.why) <= 500
    assert "\n" not in found.why


def test_fields_that_are_null_or_missing_are_read() -> None:
    bare = {"metadata": {"name": "a", "uid": "b", "creationTimestamp": None, "labels": None},
            "spec": {}, "status": {"conditions": None, "containerStatuses": None}}  # fmt: skip
    assert listed(msgspec.convert(bare, Pod)).state is State.WAITING
