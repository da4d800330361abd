"""The launcher before a real API server, scheduler and kubelets."""

import base64
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.kubernetes.launched import Launched
from topmast.adapters.engines.far.kubernetes import api
from topmast.adapters.engines.far.kubernetes.objects import FLEET, pod_of
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
from topmast.adapters.engines.far.launcher import Listed, Refused, State, Unreachable


def test_a_part_runs_on_its_host_with_what_it_asked_for_and_tells_its_end(
    launched: Launched,
) -> None:
    part = launched.part("h1", lasts_s=1.0, gpus=2)
    launched.launcher.submit(part)
    ended = launched.until(part.name, State.ENDED)
    assert not ended.evicted
    pod = launched.lab.get("pod", part.name)
    assert pod["spec"]["nodeName"] == "h1"
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "s3cret-token" not in msgspec.json.encode(pod).decode()
    assert not any("serviceaccount" in str(volume) for volume in pod["spec"]["volumes"])


def test_no_secret_is_shown_to_those_who_may_look(launched: Launched) -> None:
    """Not in pods, their events, nodes, or what else a reader without the right to Secrets sees."""
    running = launched.started(gpus=2)
    lab = launched.lab
    kept = lab.get("secret", running.name)["data"]
    assert b"s3cret-token" in b"".join(base64.b64decode(text) for text in kept.values())

    def seen() -> str:
        return lab.kubectl("get", "pods,events,nodes,configmaps", "-A", "-o", "yaml")

    launched.wait(lambda: "Created container" in seen(), "events of the pod")
    shown = seen()
    assert running.name in shown
    for word in ("s3cret-token", *kept.values()):
        assert word not in shown
    described = lab.kubectl("describe", "pods,secrets", "-A")
    assert running.name in described
    assert "s3cret-token" not in described


def test_what_ended_is_listed_until_it_is_forgotten_and_then_nothing_is_left(
    launched: Launched,
) -> None:
    part = launched.part(lasts_s=0.1)
    launched.launcher.submit(part)
    ended = launched.until(part.name, State.ENDED)
    launched.lab.kubectl("delete", "pod", part.name, "--wait=false")
    assert launched.seen(part.name) is not None
    launched.launcher.forget(ended)
    launched.wait(lambda: launched.seen(part.name) is None, "the pod to be gone")
    left = launched.lab.get("secrets,pods", "-l", f"{FLEET}={launched.fleet}")["items"]
    assert left == []
    launched.launcher.forget(ended)


def test_a_pod_that_others_took_away_by_force_leaves_no_secret(launched: Launched) -> None:
    """Its finalizer with it, so that no listing ever shows its end."""
    running = launched.started()
    kubectl = launched.lab.kubectl
    kubectl("delete", "pod", running.name, "--force", "--grace-period=0", "--wait=false")
    kubectl("patch", "pod", running.name, "-p", '{"metadata": {"finalizers": null}}')
    launched.wait(lambda: launched.seen(running.name) is None, "the pod to be gone")
    left = ("secrets", "-l", f"{FLEET}={launched.fleet}")
    assert launched.lab.get(*left)["items"], "the case is that of a Secret that stays"
    launched.launcher.forget(running)
    assert launched.lab.get(*left)["items"] == []


def test_a_name_is_made_once_however_often_it_is_submitted(launched: Launched) -> None:
    part = launched.part()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: launched.launcher.submit(part), range(8)))
    assert len(launched.launcher.list()) == 1


@pytest.mark.parametrize(
    ("fields", "state", "want_why"),
    [
        ({"gpus": 9}, State.WAITING, "Insufficient nvidia.com/gpu"),
        ({"host": "h7"}, State.WAITING, "didn't match"),
        ({"image": "127.0.0.1:1/none:1"}, State.RUNNING, "ErrImagePull"),
        ({"image": "NO IMAGE"}, State.RUNNING, "InvalidImageName"),
    ],
)
def test_a_part_that_cannot_start_says_why(
    launched: Launched, fields: dict[str, Any], state: State, want_why: str
) -> None:
    part = launched.part(**fields)
    launched.launcher.submit(part)

    def says_so() -> bool:
        one = launched.seen(part.name)
        return one is not None and one.state is state and want_why in one.why

    launched.wait(says_so, want_why)


def test_a_cancelled_part_has_its_grace_and_is_over_when_no_process_lives(
    launched: Launched,
) -> None:
    running = launched.started()
    assert launched.runners(running)
    launched.launcher.cancel(running, 30.0)
    while (one := launched.seen(running.name)) is not None and one.state is not State.ENDED:
        pass
    assert launched.runners(running) == []
    assert one is not None
    assert one.evicted
    assert "exit code 7" in one.why, "it had the time to leave by itself"


def test_a_cancelled_part_is_not_killed_before_a_second_and_not_forgotten_by_kubernetes(
    launched: Launched,
) -> None:
    """With a grace of 0 Kubernetes would forget the pod at once, whatever still lives."""
    running = launched.started()
    launched.launcher.cancel(running, 0.0)
    meta = launched.lab.get("pod", running.name)["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 1
    launched.until(running.name, State.ENDED)
    assert launched.runners(running) == []


def test_a_part_that_waits_is_over_as_soon_as_it_is_cancelled(launched: Launched) -> None:
    part = launched.part(gpus=99)
    launched.launcher.submit(part)
    launched.launcher.cancel(launched.until(part.name, State.WAITING), 5.0)
    launched.until(part.name, State.ENDED)


def test_cancel_and_forget_leave_another_part_of_the_same_name_alone(launched: Launched) -> None:
    part = launched.part(gpus=99)
    launched.launcher.submit(part)
    now = launched.until(part.name, State.WAITING)
    before = msgspec.structs.replace(now, id="default/00000000-0000-0000-0000-000000000000")
    launched.launcher.cancel(before, 1.0)
    launched.launcher.forget(before)
    seen = launched.seen(part.name)
    assert seen is not None
    assert (
        msgspec.structs.replace(seen, why=now.why) == now
    )  # it may wait for another reason by now
    assert launched.lab.get("secret", part.name)
    gone = Listed("tm-none", before.id, 0.0, State.ENDED)
    launched.launcher.cancel(gone, 1.0)
    launched.launcher.forget(gone)


def test_a_pod_that_arrives_after_its_part_was_forgotten_never_starts(launched: Launched) -> None:
    """A request may take longer than anything that was done because no answer came."""
    part = launched.part(gpus=99)
    launched.launcher.submit(part)
    owner = launched.lab.get("secret", part.name)["metadata"]["uid"]
    launched.launcher.cancel(launched.until(part.name, State.WAITING), 1.0)
    launched.launcher.forget(launched.until(part.name, State.ENDED))
    launched.wait(lambda: launched.seen(part.name) is None, "the first pod to be gone")
    part = msgspec.structs.replace(part, gpus=1)
    late = pod_of(part, "h0", "default", launched.fleet, owner, KubernetesOptions())
    launched.lab.kubectl("create", "-f", "-", given=msgspec.json.encode(late))

    def is_deleted() -> bool:
        one = launched.seen(part.name)
        assert one is None or not launched.runners(one)
        return one is not None and one.evicted

    launched.wait(is_deleted, "Kubernetes to delete the orphan")


_QUOTA = {"kind": "ResourceQuota", "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}}
_RANGE = {"kind": "LimitRange",
          "spec": {"limits": [{"type": "Container", "max": {"memory": "32Mi"}}]}}  # fmt: skip
_FULL = {"kind": "ResourceQuota", "spec": {"hard": {"secrets": "0"}}}


@pytest.mark.parametrize(
    ("options", "fields", "there", "want"),
    [
        ({}, {"gpus": 5}, _QUOTA, "exceeded quota.*raise the ResourceQuota"),
        ({}, {}, _FULL, "exceeded quota.*raise the ResourceQuota"),
        ({}, {}, _RANGE, "maximum memory usage.*LimitRange"),
        ({"namespace": {"": "nowhere"}}, {}, None, "not found.*make the namespace 'nowhere'"),
        ({"priority_class": "urgent"}, {}, None, "PriorityClass.*correct options.priority_class"),
        ({"tolerate": "a b:Never"}, {}, None, "tolerations"),
        ({}, {"image": ""}, None, "no container image: name one"),
        ({}, {"name": "tm-UPPER"}, None, "no name of a pod"),
    ],
)
def test_a_refusal_says_why_and_what_to_do_and_leaves_nothing(
    launched: Launched, options: dict[str, Any], fields: dict[str, Any],
    there: dict[str, Any] | None, want: str,
) -> None:  # fmt: skip
    lab, space = launched.lab, f"space-{launched.fleet}"
    lab.kubectl("create", "namespace", space)
    try:
        lab.kubectl("create", "serviceaccount", "default", "-n", space, check=False)
        if there:
            lab.apply({"apiVersion": "v1", "metadata": {"name": "x", "namespace": space}, **there})
            launched.wait(
                lambda: there is _RANGE or "hard" in lab.get(there["kind"], "x", "-n", space)["status"],
                "the quota to be known",
            )  # fmt: skip
        given = {"namespace": {"": space}, **options}
        launcher = launched.other(kubeconfig=str(lab.kubeconfig), **given)
        with pytest.raises(Refused, match=f"(?s){want}"):
            launcher.submit(launched.part(**fields))
        left = lab.get("secrets,pods", "-n", space, "-l", f"{FLEET}={launched.fleet}")["items"]
        assert left == []
    finally:
        lab.kubectl("delete", "namespace", space, "--wait=false")


def test_without_rights_a_part_is_refused_and_nothing_is_listed(launched: Launched) -> None:
    login = launched.lab.user("stranger")
    launcher = launched.other(kubeconfig=str(login))
    with pytest.raises(Refused, match=r"cannot create resource.*rbac.yaml"):
        launcher.submit(launched.part())
    with pytest.raises(Unreachable, match=r"cannot list resource.*rbac.yaml"):
        launcher.list()
    with pytest.raises(Unreachable, match=r"cannot list resource.*rbac.yaml"):
        launcher.hosts()


def test_a_listing_is_complete_over_many_pages_and_tenants_namespaces(
    launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, space = launched.lab, f"space-{launched.fleet}"
    monkeypatch.setattr(api, "PAGE", 3)
    lab.kubectl("create", "namespace", space)
    options = {"kubeconfig": str(lab.kubeconfig), "namespace": {"nlp": space}}
    launched.launcher = launched.other(**options)
    launched.wait(
        lambda: "default" in lab.kubectl("get", "sa", "-n", space, "-o", "name"), "an account"
    )
    parts = [launched.part(gpus=99, tenant=tenant) for tenant in ["nlp", "vision"] * 5]
    for part in parts:
        launched.launcher.submit(part)
    names = sorted(one.name for one in launched.launcher.list())
    assert names == sorted(part.name for part in parts)
    assert len(lab.get("pods", "-n", space)["items"]) == 5
    for one in launched.launcher.list():
        launched.launcher.cancel(one, 1.0)
        launched.launcher.forget(one)
    lab.kubectl("delete", "namespace", space, "--wait=false")


def test_credentials_that_ended_are_read_again(launched: Launched, tmp_path: Path) -> None:
    lab = launched.lab
    token = tmp_path / "token"
    token.write_text("expired")
    login = lab.login(tmp_path / "config", tokenFile="token")
    launcher = launched.other(kubeconfig=str(login))
    with pytest.raises(Unreachable, match=r"Unauthorized.*renew the credentials"):
        launcher.list()
    lab.kubectl("create", "clusterrolebinding", launched.fleet, "--clusterrole=cluster-admin",
                "--serviceaccount=default:default")  # fmt: skip
    try:
        token.write_text(lab.account_token("default", "default"))
        assert launcher.list() == ()
    finally:
        lab.kubectl("delete", "clusterrolebinding", launched.fleet)
