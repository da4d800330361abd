"""What hosts may have otherwise than the fleet file says, over real SSH, as people see it."""

import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.support.live import live, until_state
from tests.support.sitefaults import Fault, Site, play, until_told
from tests.support.sshlab import SshLab, missing, ssh_lab
from topmast import Client
from topmast.adapters.kernels import load_kernels

NAMES = ("s1-h", "s2-h", "s3-h", "s4-h", "s5-h")


def faults(lab: SshLab, strangers: Path) -> list[Fault]:
    """Each with an option and a host of its own."""

    def there(name: str) -> dict[str, str]:
        return {f"address.{name}": lab.hosts[name].address}

    s3, s5 = lab.hosts["s3-h"], lab.hosts["s5-h"]
    s5.run("mkdir", "-m", "777", "/tmp/topmast-open")
    return [
        Fault(
            "the account is not there", "S1", {**there("s1-h"), "user": "nosuch"}, ("s1-h",),
            closed="does not accept our key",
        ),
        Fault(
            "its key is not known", "S2", {**there("s2-h"), "known_hosts": str(strangers)}, ("s2-h",),
            closed="(?i)host key is not trusted",
            mend=partial(shutil.copy, lab.folder / "known_hosts", strangers),
        ),
        Fault(
            "it is not there", "S3", there("s3-h"), ("s3-h",),
            closed="no connection|broke|refused|No route|unreachable", mend=s3.boot,
        ),
        Fault(
            "it has no Python there", "S4", {**there("s4-h"), "python": "/nowhere/python3"}, ("s4-h",),
            closed="is there Python 3.8 or newer",
        ),
        Fault(
            "others can change the folder", "S5", {**there("s5-h"), "folder": "/tmp/topmast-open"},
            ("s5-h",), closed="can be changed by others",
            mend=partial(s5.run, "chmod", "700", "/tmp/topmast-open"),
        ),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_a_site_has_otherwise_is_told_and_waited_for(tmp_path: Path) -> None:
    """Closed with the reason, or the job told; nothing runs before it can, and then once."""
    if reason := missing():
        pytest.skip(reason)
    (strangers := tmp_path / "strangers").touch()  # keys of no hosts
    with ssh_lab(tmp_path / "lab", *NAMES) as lab:
        lab.hosts["s3-h"].halt()
        options = {
            "identity": str(lab.folder / "key"), "known_hosts": str(lab.folder / "known_hosts"),
            "user": "root", "poll_s": "0.5", "connect_s": "3",
        }  # fmt: skip
        try:
            play(Site("ssh", options, "", False, faults(lab, strangers)), tmp_path)
        finally:
            lab.hosts["s5-h"].run("rm", "-rf", "/tmp/topmast-open")


# --- one machine by two addresses -----------------------------------------------------------------

TWICE = """
regions:
  site:
    clusters:
      one: {{engine: ssh, options: {{{options}}}, hosts: [{{names: [one-h], gpu: H100, gpus: 8}}]}}
      two: {{engine: ssh, options: {{{others}}}, hosts: [{{names: [two-h], gpu: H100, gpus: 8}}]}}
"""

ALONE = """
regions:
  site:
    clusters:
      one: {{engine: ssh, options: {{{options}}}, hosts: [{{names: [one-h], gpu: H100, gpus: 8}}]}}
"""


def _closed(client: Client) -> dict[str, str]:
    return {host.name: host.closed for host in client.hosts() if host.closed}


def test_one_machine_by_two_addresses_is_one_host(lab: SshLab, tmp_path: Path) -> None:
    """Of two clusters: what comes second is closed and runs nothing, and the other runs all."""
    load_kernels()
    host = lab.hosts["ssh0"]
    second = f"{host.address.rpartition('.')[0]}.77"
    host.run("ip", "address", "add", f"{second}/24", "dev", "eth0")
    known = tmp_path / "known_hosts"
    known.write_text(f"{host.known}{host.known.replace(host.address, second)}")
    options = f"identity: {lab.folder}/key, known_hosts: {known}, user: root, poll_s: 0.5"
    # Another account may have another folder on the machine; here the folder is enough of that.
    others = f"{options}, folder: .others, address.two-h: {second}"
    file = TWICE.format(options=f"{options}, address.one-h: {host.address}", others=others)
    try:
        with live(tmp_path, file) as (server, client):
            until_told(
                "in use as host", lambda: " ".join(_closed(client).values()), "one is closed"
            )
            until_told("healthy", lambda: " ".join(h.state for h in client.hosts()), "one is open")
            ((closed, why),) = _closed(client).items()
            other = {"one-h": "two-h", "two-h": "one-h"}[closed]
            assert f"this machine is in use as host {other} already" in why
            body = {"run": "sleep 1; echo ran", "resources": {"accelerators": {"H100": 8}}}
            jobs = [client.submit(body).id for _ in range(2)]
            until_state(client, jobs[0], "RUNNING")
            assert client.job(jobs[1]).state == "PENDING"
            told = client.explain(jobs[1])
            assert why in str(told), told
            for job in jobs:
                until_state(client, job, "SUCCEEDED")
                assert client.job(job).hosts == (other,)
            assert why in server.log.read_text()
    finally:
        host.run("ip", "address", "del", f"{second}/24", "dev", "eth0")
        host.run("rm", "-rf", ".others")


def test_two_servers_with_one_fleet_file_do_not_share_a_host(lab: SshLab, tmp_path: Path) -> None:
    """The second says that the host is another's, and has it once the first is gone."""
    load_kernels()
    host = lab.hosts["ssh1"]
    options = f"address.one-h: {host.address}, known_hosts: {lab.folder}/known_hosts, user: root"
    file = ALONE.format(options=f"{options}, identity: {lab.folder}/key, poll_s: 0.5")
    body = {"run": "echo ran", "resources": {"accelerators": {"H100": 8}}}
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with ExitStack() as servers:
        ending = servers.enter_context(ExitStack())
        _, first = ending.enter_context(live(tmp_path / "first", file))
        until_state(first, first.submit(body).id, "SUCCEEDED")
        _, second = servers.enter_context(live(tmp_path / "second", file))
        until_told("another Topmast", lambda: str(_closed(second)), "the second is told")
        waiting = second.submit(body).id
        until_state(first, first.submit(body).id, "SUCCEEDED")
        assert second.job(waiting).state == "PENDING"
        assert "another Topmast" in str(second.explain(waiting))
        ending.close()
        until_state(second, waiting, "SUCCEEDED")
