"""The calls of the launcher, request by request."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.adapters.engines.kubernetes.replies import Reply, kubeconfig_in, replying
from topmast.adapters.engines.far.kubernetes.launcher import OTHERS_S, KubernetesLauncher
from topmast.adapters.engines.far.kubernetes.objects import FLEET
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
from topmast.adapters.engines.far.launcher import (
    Listed,
    Part,
    Refused,
    State,
    Ticket,
    Unreachable,
)
from topmast.model.fleet import ClusterSpec, HostSpec

NAME = "tm-f-j1-1-0"
SECRETS, PODS = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/pods"
SECRET, POD = f"{SECRETS}/{NAME}", f"{PODS}/{NAME}"
OWNED = {"kind": "Secret", "name": NAME, "uid": "s1"}
PART = Part(
    NAME, ("h0",), 1, 1, "H100", 1.0, 0, None, "vision", "r/i:1",
    Ticket("https://home:1", "", "t0p", NAME, 600.0, 5.0),
)  # fmt: skip
NOTHING: tuple[int, dict[str, Any]] = (200, {"metadata": {}, "items": []})
ENDED = Listed(NAME, "default/p1", 0.0, State.ENDED)


class Server:
    """Answers by path, and remembers what was asked."""

    def __init__(self, folder: Path, replies: dict[str, Any], **options: Any) -> None:
        self.asked: list[str] = []
        self.clock_s = 0.0
        runner = folder / "runner.py"
        runner.write_text("pass")
        spec = ClusterSpec("c", (HostSpec("h0", "H100", 8),), "kubernetes")
        given = KubernetesOptions(kubeconfig=str(kubeconfig_in(folder)), **options)
        transport = replying({path: self._reply(reply) for path, reply in replies.items()})
        self.launcher = KubernetesLauncher(
            spec, "f", given, runner, transport, now_s=lambda: self.clock_s
        )

    def _reply(self, reply: Any) -> Reply:
        def answer(request: httpx.Request) -> httpx.Response:
            self.asked.append(f"{request.method} {request.url.path}")
            found = reply.pop(0) if isinstance(reply, list) else reply
            if isinstance(found, Exception):
                raise found
            code, content = found
            return httpx.Response(code, json=content)

        return answer


def meta(uid: str, **more: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"metadata": {"name": NAME, "uid": uid, **more}}


def refusal(code: int, reason: str = "", message: str = "no") -> tuple[int, dict[str, str]]:
    return code, {"reason": reason, "message": message}


THERE = refusal(409, "AlreadyExists", "exists")
WEBHOOK = 'admission webhook "images.example.com" denied the request:'
QUOTA = refusal(403, "Forbidden", "exceeded quota: gpus")


def test_the_secret_is_made_before_its_pod(tmp_path: Path) -> None:
    server = Server(tmp_path, {f"POST {SECRETS}": meta("s1"), f"POST {PODS}": meta("p1")})
    server.launcher.submit(PART)
    assert server.asked == [f"POST {SECRETS}", f"POST {PODS}"]


def test_what_is_there_already_is_left_as_it_is(tmp_path: Path) -> None:
    replies = {f"POST {SECRETS}": THERE, f"GET {SECRET}": meta("s1"), f"POST {PODS}": THERE}
    server = Server(tmp_path, replies)
    server.launcher.submit(PART)
    assert server.asked == [f"POST {SECRETS}", f"GET {SECRET}", f"POST {PODS}"]


def test_a_refused_pod_takes_its_secret_with_it(tmp_path: Path) -> None:
    server = Server(
        tmp_path, {f"POST {SECRETS}": meta("s1"), f"POST {PODS}": QUOTA, f"DELETE {SECRET}": (200, {})}
    )  # fmt: skip
    with pytest.raises(Refused, match=r"exceeded quota: gpus \(raise the ResourceQuota"):
        server.launcher.submit(PART)
    assert server.asked[-1] == f"DELETE {SECRET}"


def test_a_refusal_of_a_pod_that_an_earlier_request_made_is_none(tmp_path: Path) -> None:
    """Kubernetes checks quotas before names: the pod itself uses the quota up."""
    server = Server(
        tmp_path, {f"POST {SECRETS}": meta("s1"), f"POST {PODS}": QUOTA, f"GET {POD}": meta("p1")}
    )
    server.launcher.submit(PART)
    assert f"DELETE {SECRET}" not in server.asked


@pytest.mark.parametrize(
    ("code", "message", "namespaces", "want"),
    [
        (403, 'secrets is forbidden: User "u" cannot create resource "secrets"', {}, True),
        (401, "Unauthorized", {}, True),
        (404, 'namespaces "default" not found', {}, True),
        (404, 'namespaces "team" not found', {"vision": "default"}, False),
        (403, "exceeded quota: gpus", {}, False),
        (403, "maximum memory usage per Container is 1Gi", {}, False),
        (403, 'violates PodSecurity "restricted:latest"', {}, True),
        (400, "no PriorityClass with name gold was found", {}, True),
        (403, f'pods "{NAME}" is forbidden: no PriorityClass with name gold was found', {}, True),
        (403, f'pods "{NAME}" is forbidden: violates PodSecurity "restricted:latest": x', {}, True),
        (422, "spec.containers: Invalid value", {}, False),
        (403, f"{WEBHOOK} images cannot come from docker.io", {}, False),
        (403, f"{WEBHOOK} priorityclass/x violates PodSecurity", {}, False),
    ],
)
def test_some_refusals_are_of_everything(
    tmp_path: Path, code: int, message: str, namespaces: dict[str, str], want: bool
) -> None:
    """Then the cluster gets no new work for a while; not for what one job or one tenant asks."""
    refuses = {f"POST {SECRETS}": refusal(code, "", message)}
    server = Server(tmp_path, refuses, namespace={"": "default", **namespaces})
    with pytest.raises(Refused) as raised:
        server.launcher.submit(PART)
    assert raised.value.everyone is want


def test_what_a_policy_of_the_site_denies_is_told_as_such(tmp_path: Path) -> None:
    """It has nothing to do with the rights of our account, whatever its words are."""
    denied = refusal(403, "", f"{WEBHOOK} images cannot come from docker.io")
    server = Server(tmp_path, {f"POST {SECRETS}": denied})
    with pytest.raises(Refused, match=r"\(a policy of the site: "):
        server.launcher.submit(PART)


@pytest.mark.parametrize(
    "replies",
    [
        {f"POST {SECRETS}": httpx.ReadTimeout("slow")},
        {f"POST {SECRETS}": meta("s1"), f"POST {PODS}": httpx.ReadTimeout("slow")},
        {f"POST {SECRETS}": meta("s1"), f"POST {PODS}": refusal(500)},
        {f"POST {SECRETS}": meta("s1"), f"POST {PODS}": refusal(409, "Conflict")},
        {f"POST {SECRETS}": THERE, f"GET {SECRET}": refusal(404, "NotFound")},
        {f"POST {SECRETS}": meta("s1"), f"POST {PODS}": QUOTA, f"GET {POD}": refusal(403)},
    ],
)
def test_what_is_not_known_is_not_called_refused(tmp_path: Path, replies: dict[str, Any]) -> None:
    server = Server(tmp_path, replies)
    with pytest.raises(Unreachable):
        server.launcher.submit(PART)
    assert f"DELETE {SECRET}" not in server.asked


def test_what_no_pod_can_be_made_of_makes_no_secret(tmp_path: Path) -> None:
    server = Server(tmp_path, {f"POST {SECRETS}": meta("s1")})
    bare = Part(NAME, ("h0",), 1, 0, "", 0, 0, None, "", "", PART.ticket)
    with pytest.raises(Refused, match="no container image"):
        server.launcher.submit(bare)
    assert server.asked == []


def test_the_secret_goes_before_the_pod_is_let_go(tmp_path: Path) -> None:
    """Otherwise a request that took long could make the pod again, with files to start from."""
    server = Server(tmp_path, {
        f"GET {POD}": meta("p1", ownerReferences=[OWNED]), f"DELETE {SECRET}": (200, {}),
        f"DELETE {POD}": (200, {}), f"PATCH {POD}": (200, {}),
    })  # fmt: skip
    server.launcher.forget(ENDED)
    assert server.asked == [f"GET {POD}", f"DELETE {SECRET}", f"DELETE {POD}", f"PATCH {POD}"]


@pytest.mark.parametrize("fleet", ["f", "other", None])
def test_a_pod_that_is_gone_leaves_no_secret_of_this_fleet(
    tmp_path: Path, fleet: str | None
) -> None:
    """As after a deletion by force, which no finalizer holds up."""
    labels = {"labels": {FLEET: fleet}} if fleet else {}
    server = Server(
        tmp_path, {f"GET {SECRET}": meta("s1", **labels), f"DELETE {SECRET}": (200, {})}
    )
    server.launcher.forget(ENDED)
    assert (f"DELETE {SECRET}" in server.asked) == (fleet == "f")
    Server(tmp_path, {}).launcher.forget(ENDED)  # harmless when repeated


def test_forgetting_leaves_the_secret_of_another_pod_alone(tmp_path: Path) -> None:
    server = Server(tmp_path, {
        f"GET {POD}": meta("p2", ownerReferences=[OWNED]), f"DELETE {POD}": refusal(409, "Conflict"),
        f"PATCH {POD}": refusal(422, "Invalid"),
    })  # fmt: skip
    server.launcher.forget(ENDED)
    assert f"DELETE {SECRET}" not in server.asked


@pytest.mark.parametrize("code", [401, 403])
def test_what_may_not_be_done_is_told_with_the_rights_it_needs(tmp_path: Path, code: int) -> None:
    server = Server(tmp_path, {f"DELETE {POD}": refusal(code, "", "pods: user cannot delete")})
    with pytest.raises(Unreachable, match=r"cannot delete \(") as raised:
        server.launcher.cancel(ENDED, 5.0)
    assert NAME in str(raised.value)


def test_what_others_use_is_looked_at_now_and_then(tmp_path: Path) -> None:
    server = Server(tmp_path, {"/api/v1/nodes": NOTHING, "/api/v1/pods": NOTHING})
    for _ in range(3):
        server.launcher.hosts()
    assert server.asked.count("GET /api/v1/pods") == 1
    server.clock_s = OTHERS_S + 1
    server.launcher.hosts()
    assert server.asked.count("GET /api/v1/pods") == 2


def test_others_need_not_be_looked_at(tmp_path: Path) -> None:
    server = Server(tmp_path, {"/api/v1/nodes": NOTHING}, see_others=False)
    assert server.launcher.hosts() == ()
    assert server.asked == ["GET /api/v1/nodes"]
