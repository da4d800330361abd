"""Which hosts take work, as their nodes and the pods on them say."""

from typing import Any

import msgspec
import pytest

from topmast.adapters.engines.far.kubernetes.nodes import (
    Node,
    OtherPod,
    Wanted,
    host_of,
    used_by_others,
)
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions, tolerations_of

GPU = "nvidia.com/gpu"
READY = {"type": "Ready", "status": "True"}
SILENT = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}


def node(ready: dict[str, str] | None = READY, gpus: str = "8", **spec: Any) -> Node:
    content = {"metadata": {"name": "n", "uid": "u"}, "spec": spec,
               "status": {"conditions": [ready] if ready else None, "allocatable": {GPU: gpus}}}  # fmt: skip
    return msgspec.convert(content, Node)


def taint(key: str, effect: str = "NoSchedule", **more: str) -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": effect, **more}]}


@pytest.mark.parametrize(
    ("story", "what", "want_answers", "want_closed"),
    [
        ("fine", node(), True, ""),
        ("silent", node(SILENT), False, "not ready: Kubelet stopped posting node status."),
        ("new", node(None), False, "not ready"),
        ("cordoned", node(unschedulable=True, **taint("node.kubernetes.io/unschedulable")), True,
         "cordoned"),
        ("kept for others", node(**taint("team", value="db")), True, "taint team=db:NoSchedule"),
        ("kept for us", node(**taint("team", value="ml")), True, ""),
        ("for GPUs only", node(**taint(GPU)), True, ""),
        ("rather not", node(**taint("team", "PreferNoSchedule", value="db")), True, ""),
        ("low on memory", node(**taint("node.kubernetes.io/memory-pressure")), True,
         "taint node.kubernetes.io/memory-pressure:NoSchedule"),
        ("a GPU is broken", node(gpus="7"), True, "offers 7 nvidia.com/gpu, and the fleet file says 8"),
        ("no device plugin", node(gpus="?"), True, "offers 0 nvidia.com/gpu, and the fleet file says 8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_host_is_open_only_if_our_pods_may_start_there(
    story: str, what: Node, want_answers: bool, want_closed: str
) -> None:
    tolerations = tolerations_of(KubernetesOptions(tolerate="team=ml, other:NoExecute"), [GPU])
    found = host_of(what, "east-n", Wanted(GPU, 8), {}, tolerations)
    assert (found.name, found.answers, found.closed) == ("east-n", want_answers, want_closed)


def test_a_node_that_the_fleet_does_not_have_is_told_too() -> None:
    assert host_of(node(gpus="0"), "n", None, {}, []).closed == ""


def other(name: str, gpus: int, where: str = "n", first: int = 0, **labels: str) -> OtherPod:
    def ask(count: int) -> list[dict[str, Any]]:
        return [{"resources": {"limits": {GPU: str(count)}}}] if count else []

    content = {
        "metadata": {"name": name, "namespace": "db", "uid": name, "labels": labels},
        "spec": {"nodeName": where, "containers": ask(gpus), "initContainers": ask(first)},
    }
    return msgspec.convert(content, OtherPod)


def test_gpus_of_others_are_counted_and_named() -> None:
    pods = [other("a", 1), other("b", 0, first=3), other("c", 2, where="m"), other("cpu", 0),
            other("waits", 8, where=""), other("ours", 4, fleet="f"), other("theirs", 1, fleet="g")]  # fmt: skip
    assert used_by_others(pods, [GPU, GPU], {"fleet": "f"}) == {
        "n": "others use 5 nvidia.com/gpu: db/a, db/b, db/theirs",
        "m": "others use 2 nvidia.com/gpu: db/c",
    }


def test_many_others_are_not_all_named() -> None:
    pods = [other(f"p{index}", 1) for index in range(5)]
    assert used_by_others(pods, [GPU], {"fleet": "f"})["n"].endswith("db/p2 and 2 more")


def test_a_host_says_what_others_use() -> None:
    assert host_of(node(), "n", Wanted(GPU, 8), {"n": "others use 1"}, []).closed == "others use 1"
