"""What hosts may have otherwise than the fleet file says, over real SSH, as people see it."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.support.sitefaults import Fault, Site, play
from tests.support.sshlab import SshLab


def faults(lab: SshLab, strangers: Path) -> list[Fault]:
    """Each with an option of its own; hosts are told apart by names of their own."""
    ssh0, ssh1 = lab.hosts["ssh0"], lab.hosts["ssh1"]
    ssh0.run("mkdir", "-m", "777", "/tmp/topmast-open")
    there = {f"address.{name}-h": ssh0.address for name in ("s1", "s2", "s4", "s5")}
    return [
        Fault(
            "the account is not there", "S1", {**there, "user": "nosuch"}, ("s1-h",),
            closed="does not accept our key",
        ),
        Fault(
            "its key is not known", "S2", {**there, "known_hosts": str(strangers)}, ("s2-h",),
            closed="(?i)host key is not trusted",
            mend=partial(shutil.copy, lab.folder / "known_hosts", strangers),
        ),
        Fault(
            "it is not there", "S3", {"address.s3-h": ssh1.address}, ("s3-h",),
            closed="no connection|broke|refused|No route|unreachable", mend=ssh1.boot,
        ),
        Fault(
            "it has no Python there", "S4", {**there, "python": "/nowhere/python3"}, ("s4-h",),
            closed="is there Python 3.8 or newer",
        ),
        Fault(
            "others can change the folder", "S5", {**there, "folder": "/tmp/topmast-open"},
            ("s5-h",), closed="can be changed by others",
            mend=partial(ssh0.run, "chmod", "700", "/tmp/topmast-open"),
        ),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_a_site_has_otherwise_is_told_and_waited_for(lab: SshLab, tmp_path: Path) -> None:
    """Closed with the reason, or the job told; nothing runs before it can, and then once."""
    (strangers := tmp_path / "strangers").touch()  # keys of no hosts
    lab.hosts["ssh1"].halt()
    options = {
        "identity": str(lab.folder / "key"), "known_hosts": str(lab.folder / "known_hosts"),
        "user": "root", "poll_s": "0.5", "connect_s": "3",
    }  # fmt: skip
    try:
        play(Site("ssh", options, "", False, faults(lab, strangers)), tmp_path)
    finally:
        if lab.hosts["ssh1"].init is None:
            lab.hosts["ssh1"].boot()
        lab.hosts["ssh0"].run("rm", "-rf", "/tmp/topmast-open")
