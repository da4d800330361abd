"""What a site may have otherwise than the fleet file says, on a real Kubernetes, as people see it."""

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.kubelab.image import NAME
from tests.support.kubelab.lab import Lab
from tests.support.sitefaults import Fault, Site, play

MADE = (
    ("namespace", "tight"), ("namespace", "later"), ("clusterrole", "looker"),
    ("clusterrolebinding", "looker"), ("clusterrolebinding", "looker-makes"),
    ("clusterrolebinding", "stranger"),
)  # fmt: skip


@pytest.fixture
def site(lab: Lab) -> Iterator[Lab]:
    """The cluster with users of few rights and a namespace without GPUs; afterwards as it was."""
    lab.kubectl("create", "namespace", "tight")
    lab.kubectl("create", "quota", "none", "-n", "tight", "--hard=requests.nvidia.com/gpu=0")
    lab.kubectl("create", "clusterrole", "looker", "--verb=get,list", "--resource=pods,nodes")
    lab.kubectl("create", "clusterrolebinding", "looker", "--clusterrole=looker", "--user=looker")
    yield lab
    for kind, name in MADE:
        lab.kubectl("delete", kind, name, "--wait=false", check=False)
    # Jobs whose image never comes: nothing answers for them now, and they hold GPUs.
    for pod in lab.kubectl("get", "pods", "-o", "name").split():
        bare = '{"metadata":{"finalizers":null}}'
        lab.kubectl("patch", pod, "--type=merge", "-p", bare, check=False)
        lab.kubectl("delete", pod, "--wait=false", "--grace-period=0", check=False)


def faults(lab: Lab, folder: Path) -> list[Fault]:
    """Each with another kubeconfig, namespace or image."""
    ended = lab.login(folder / "ended.yaml", token="one-that-has-ended")

    def renew() -> None:
        lab.login(ended, *lab._authority.pair("renewed", ("system:masters",)))

    def may_all(user: str, binding: str) -> Callable[[], object]:
        return partial(
            lab.kubectl, "create", "clusterrolebinding", binding, "--clusterrole=cluster-admin",
            f"--user={user}",
        )  # fmt: skip

    return [
        Fault(
            "it may not even look", "K1", {"kubeconfig": str(lab.user("stranger"))},
            closed=r"no complete answer: .*cannot list resource.*rbac\.yaml",
            mend=may_all("stranger", "stranger"),
        ),
        Fault(
            "it may look, and make nothing", "K2", {"kubeconfig": str(lab.user("looker"))},
            closed=r"refuses whatever is submitted: .*cannot create resource.*rbac\.yaml",
            told="cannot create resource", mend=may_all("looker", "looker-makes"),
        ),
        Fault(
            "the namespace is not there", "K3", {"namespace": "later"},
            closed="refuses whatever is submitted: .*make the namespace 'later'",
            mend=partial(lab.kubectl, "create", "namespace", "later"),
        ),
        Fault(
            "the quota of the namespace is used up", "K4", {"namespace": "tight"},
            told="exceeded quota.*raise the ResourceQuota",
            mend=partial(lab.kubectl, "delete", "quota", "none", "-n", "tight"),
        ),
        Fault(
            "the credentials have ended", "K5", {"kubeconfig": str(ended)},
            closed="no complete answer: .*Unauthorized.*renew the credentials", mend=renew,
        ),
        Fault(
            "the registry does not answer", "K6", image="127.0.0.1:1/none:1",
            told="Err?ImagePull|ImagePullBackOff.*correct `image`",
        ),
        Fault(
            "the image has no name that can be", "K7", image="NO/Such::name",
            told="InvalidImageName.*correct `image`",
        ),
        Fault("a node is called otherwise", "K8", hosts=("h7",), closed="does not know the host"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_a_site_has_otherwise_is_told_and_waited_for(site: Lab, tmp_path: Path) -> None:
    """Closed with the reason, or the job told; nothing runs before it can, and then once."""

    def hang() -> Callable[[], object]:
        server = site.daemons["kube-apiserver"]
        server.signal(signal.SIGSTOP)
        return lambda: server.signal(signal.SIGCONT)

    options = {
        "kubeconfig": str(site.kubeconfig), "listen": f"{site.address}:0", "poll_s": "0.5",
        "timeout_s": "5", "see_others": "false",
    }  # fmt: skip
    found = faults(site, tmp_path)
    for fault in found:
        fault.image = fault.image or NAME
    play(Site("kubernetes", options, "h0", True, found), tmp_path, hang)
