"""What the launcher says while parts of a real Kubernetes are dead, frozen, cut off or deleted."""

import contextlib
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.contract.kubernetes.launched import Launched
from tests.support.kubelab.lab import Lab
from tests.support.kubelab.nodes import Node, give_gpus
from tests.support.kubelab.programs import until
from topmast.adapters.engines.far.launcher import Host, State, Unreachable

LOST_S = 60.0
"""The lab's controllers miss a kubelet after twelve seconds; a busy machine takes longer."""


def node(lab: Lab, name: str) -> Node:
    assert lab.nodes is not None
    return next(one for one in lab.nodes.all if one.name == name)


def host(launched: Launched, name: str) -> Host | None:
    return next((one for one in launched.launcher.hosts() if one.name == name), None)


def is_open(launched: Launched, there: Node) -> bool:
    """Whether it takes work; one that was deleted has lost its GPUs."""
    found = host(launched, there.name)
    if found is not None and "offers 0" in found.closed:
        give_gpus(launched.lab, there.name, there.gpus)
    return found is not None and found.answers and not found.closed


@pytest.fixture(autouse=True)
def mended(launched: Launched) -> Iterator[None]:
    """Whatever a test broke works again after it."""
    yield
    lab = launched.lab
    assert lab.nodes is not None
    lab.revive()
    until(lab.answers, LOST_S, "the API server")
    for one in lab.nodes.all:
        one.mend()

        launched.wait(partial(is_open, launched, one), f"{one.name} to be open", LOST_S)


def test_a_pod_deleted_by_force_is_not_over_while_its_processes_live(launched: Launched) -> None:
    """Kubernetes itself would show nothing of it any more."""
    running = launched.started(host="h1")
    there = node(launched.lab, "h1")
    there.kubelet.kill()
    launched.lab.kubectl(
        "delete", "pod", running.name, "--force", "--grace-period=0", "--wait=false"
    )
    for _ in range(10):
        one = launched.seen(running.name)
        assert one is not None
        assert launched.runners(running)
        assert (one.state, one.evicted) == (State.RUNNING, True)
        time.sleep(0.2)
    there.kubelet.start()
    launched.until(running.name, State.ENDED)
    assert launched.runners(running) == []


def test_a_node_that_is_cut_off_answers_no_more_and_its_pods_are_left_alone(
    launched: Launched,
) -> None:
    running = launched.started(host="h1")
    there = node(launched.lab, "h1")
    there.cut()

    def is_missed() -> bool:
        found = host(launched, "h1")
        return found is not None and not found.answers and "not ready" in found.closed

    launched.wait(is_missed, "the node to be missed", LOST_S)
    one = launched.seen(running.name)
    assert one is not None
    assert (one.state, one.evicted) == (State.RUNNING, False)
    assert launched.runners(running)


def test_a_node_that_was_deleted_is_no_host_and_its_pods_are_not_over(launched: Launched) -> None:
    running = launched.started(host="h1")
    launched.lab.kubectl("delete", "node", "h1")
    launched.wait(lambda: host(launched, "h1") is None, "the node to be gone")
    one = launched.seen(running.name)
    assert one is not None
    assert one.state is State.RUNNING
    assert launched.runners(running)
    there = node(launched.lab, "h1")
    there.kubelet.stop()
    there.kubelet.start()
    launched.wait(lambda: host(launched, "h1") is not None, "the node to register", LOST_S)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_without_an_api_server_nothing_is_said_and_afterwards_all_is_there(
    launched: Launched, how: signal.Signals
) -> None:
    running = launched.started()
    launcher = launched.other(kubeconfig=str(launched.lab.kubeconfig), timeout_s=2.0)
    server = launched.lab.daemons["kube-apiserver"]
    server.signal(how)
    part = launched.part(gpus=99)
    for call in (launcher.list, launcher.hosts, lambda: launcher.submit(part),
                 lambda: launcher.cancel(running, 1.0), lambda: launcher.forget(running)):  # fmt: skip
        began_s = time.monotonic()
        with pytest.raises(Unreachable, match="API server"):
            call()
        assert time.monotonic() - began_s < 10.0
    assert launched.runners(running)
    server.signal(signal.SIGCONT)
    if how is signal.SIGKILL:
        server.process and server.process.wait()
        server.start()

    def is_listed() -> bool:
        with contextlib.suppress(Unreachable):
            return running.name in [one.name for one in launcher.list()]
        return False

    launched.wait(is_listed, "the listing", LOST_S)


def test_hosts_are_closed_while_people_want_them_so(launched: Launched) -> None:
    lab = launched.lab
    lab.kubectl("cordon", "h1")
    found = host(launched, "h1")
    assert found is not None
    assert (found.answers, found.closed) == (True, "cordoned")
    lab.kubectl("uncordon", "h1")
    lab.kubectl("taint", "node", "h1", "team=db:NoSchedule")
    found = host(launched, "h1")
    lab.kubectl("taint", "node", "h1", "team-")
    assert found is not None
    assert found.closed == "taint team=db:NoSchedule"


def test_hosts_are_closed_while_others_use_their_gpus(launched: Launched) -> None:
    """A second fleet is another one too."""
    stranger = launched.other(kubeconfig=str(launched.lab.kubeconfig))
    stranger._fleet = "another"
    part = launched.part("h1", gpus=3)
    stranger.submit(part)
    try:
        found: list[Host | None] = []

        def is_closed() -> bool:
            fresh = launched.other(kubeconfig=str(launched.lab.kubeconfig))
            found[:] = [one for one in fresh.hosts() if one.name == "h1" and one.closed]
            return bool(found)

        launched.wait(is_closed, "the host to be closed")
        assert found[0] is not None
        assert found[0].closed == f"others use 3 nvidia.com/gpu: default/{part.name}"
    finally:
        for one in stranger.list():
            stranger.cancel(one, 1.0)
            stranger.forget(one)
        launched.wait(lambda: not stranger.list(), "the other's pod to be gone", LOST_S)
        time.sleep(16.0)  # what others use is looked at every fifteen seconds
