"""The launcher for hosts behind SSH, on real ones, with a stand-in for the runner."""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.sshlab import SshHost, SshLab, until
from topmast.adapters.engines.far.launcher import (
    Host,
    Listed,
    Part,
    Refused,
    State,
    Ticket,
    Unreachable,
)
from topmast.adapters.engines.far.ssh import SshEngine, SshLauncher, SshOptions, launcher
from topmast.adapters.engines.far.ssh.lines import Channel
from topmast.adapters.engines.registry import read_options
from topmast.model.files.fleetfile import read_fleet
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Finding, Level

NUMBERS = itertools.count()
HOME = str(Path.home())
"""Of the account on the hosts, as here."""
SECRET = "a-token-that-only-its-owner-may-see"
RUNNER = """
import json, os, socket, sys, time
ticket = json.load(open(sys.argv[1]))
home = socket.socket(socket.AF_UNIX)
while home.connect_ex(ticket["url"][len("unix:"):]):
    home.close()
    home = socket.socket(socket.AF_UNIX)
    time.sleep(0.05)
home.sendall(json.dumps([sys.argv[2], os.environ["TOPMAST_ADDRESS"], ticket]).encode())
while True:
    time.sleep(0.05)
"""


@dataclass
class Bench:
    """A launcher before the hosts of a lab, and a home that runners call."""

    lab: SshLab
    folder: str
    launcher: SshLauncher
    home: "HomeSocket"

    def part(self, host: str = "ssh0", **fields: Any) -> Part:
        name = f"tm-fleet-j{next(NUMBERS)}-1-0"
        ticket = Ticket(self.home.url, "", SECRET, name, 60.0, 5.0)
        given: dict[str, Any] = {
            "name": name, "hosts": (host,), "tasks": 1, "gpus": 1, "model": "H100", "cpus": 2.0,
            "memory_bytes": 0, "limit_s": None, "tenant": "vision", "image": "", "ticket": ticket,
        }  # fmt: skip
        return Part(**{**given, **fields})

    def of(self, part: Part) -> Listed:
        (found,) = [listed for listed in self.launcher.list() if listed.name == part.name]
        return found

    def runs(self, part: Part) -> Listed:
        self.launcher.submit(part)
        self.launcher.release([self.of(part)])
        assert self.of(part).state is State.RUNNING
        return self.of(part)

    def host(self, name: str) -> Host:
        (found,) = [host for host in self.launcher.hosts() if host.name == name]
        return found

    def answers(self, name: str) -> bool:
        self.launcher.list()
        return self.host(name).answers


class HomeSocket:
    """A socket here that hears one message of each runner."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        self.url = f"unix:{self.path}"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30.0)
        self.socket.bind(str(self.path))
        self.socket.listen(10)

    def hear(self) -> Any:
        line, _ = self.socket.accept()
        with line:
            return json.loads(line.recv(1 << 16))


def make(lab: SshLab, **options: str) -> SshLauncher:
    given = {**lab.options, "command_s": "5", "connect_s": "5", **options}
    hosts = tuple(HostSpec(name, "H100", 8) for name in lab.names)
    read = read_options(given, SshOptions, engine="ssh", field="options")
    return SshLauncher(ClusterSpec("metal", hosts, "ssh", given), "fleet", read)


@pytest.fixture
def bench(lab: SshLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(launcher, "_runner", lambda: RUNNER)
    folder = f".l{next(NUMBERS)}"
    home = HomeSocket(Path(lab.folder))
    bench = Bench(lab, folder, make(lab, folder=folder), home)
    bench.launcher.open(home.url)
    yield bench
    bench.launcher.close()
    home.socket.close()
    home.path.unlink()
    for host in lab.hosts.values():
        host.end_runners()


# --- parts ------------------------------------------------------------------------------------


def test_a_runner_calls_home_through_the_connection(bench: Bench) -> None:
    """It has the ticket and the host's name and address; the socket on its host leads to ours."""
    part = bench.part("ssh1")
    bench.runs(part)
    host, address, ticket = bench.home.hear()
    assert (host, address) == ("ssh1", bench.lab.hosts["ssh1"].address)
    assert (ticket["token"], ticket["part"]) == (SECRET, part.name)
    assert ticket["url"].startswith(f"unix:{HOME}/.l")


def test_a_listing_is_one_question_to_each_host(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many parts there are; what is known of hosts costs none."""
    parts = [bench.part(f"ssh{index % 3}") for index in range(12)]
    for part in parts:
        bench.launcher.submit(part)
    asked: list[str] = []
    ask = Channel.ask

    async def counted(channel: Channel, **request: Any) -> Any:
        asked.append(request["op"])
        return await ask(channel, **request)

    monkeypatch.setattr(Channel, "ask", counted)
    names = {listed.name for listed in bench.launcher.list()}
    assert names >= {part.name for part in parts}
    assert len(bench.launcher.hosts()) == len(bench.lab.hosts)
    assert asked == ["list"] * len(bench.lab.hosts)


def test_secrets_show_nowhere(bench: Bench) -> None:
    """Not in the arguments or environments of any process of the host, nor in open files."""
    bench.runs(bench.part())
    bench.home.hear()
    host = bench.lab.hosts["ssh0"]
    assert SECRET not in host.run("ps", "axeww")
    modes = host.run("find", f"{HOME}/{bench.folder}", "-type", "f", "-perm", "/077")
    assert modes == ""


def test_a_part_runs_on_while_its_host_is_cut_off(bench: Bench) -> None:
    """The others are listed as before; of the host that is cut nothing is said."""
    cut, other = bench.part("ssh0"), bench.part("ssh1")
    before, _ = bench.runs(cut), bench.runs(other)
    bench.home.hear()
    bench.home.hear()
    host = bench.lab.hosts["ssh0"]
    host.cut()
    try:
        until(lambda: not bench.answers("ssh0"), "the cut is not noticed")
        began_s = time.monotonic()
        assert [one.name for one in bench.launcher.list()] == [other.name]
        assert time.monotonic() - began_s < 2.0, "the others wait for it"
        assert (bench.host("ssh1"), bench.host("ssh0").answers) == (Host("ssh1", True), False)
        with pytest.raises(Unreachable, match="ssh0"):
            bench.launcher.submit(bench.part("ssh0"))
    finally:
        host.mend()
    until(lambda: bench.answers("ssh0"), "it does not return")
    assert bench.of(cut) == before


def test_home_is_found_again_after_a_cut(bench: Bench) -> None:
    """A runner that has no connection gets one through the next."""
    host = bench.lab.hosts["ssh0"]
    part = bench.part("ssh0")
    bench.launcher.submit(part)
    host.kill_sshd()
    until(lambda: not bench.answers("ssh0"), "the end of sshd is not noticed")
    host.start_sshd()
    until(lambda: bench.answers("ssh0"), "it does not return")
    bench.launcher.release([bench.of(part)])
    assert bench.home.hear()[0] == "ssh0"


def test_a_restart_of_the_host_ends_what_ran(bench: Bench) -> None:
    """What was held is still held; nothing starts by itself."""
    ran, held = bench.part("ssh2"), bench.part("ssh2")
    bench.runs(ran)
    bench.launcher.submit(held)
    bench.lab.hosts["ssh2"].reboot()
    until(lambda: not bench.answers("ssh2"), "the restart is not noticed")
    until(lambda: bench.answers("ssh2"), "it does not return")
    assert (bench.of(ran).state, bench.of(ran).why) == (State.ENDED, "the host was restarted")
    assert bench.of(held).state is State.HELD
    assert not bench.lab.hosts["ssh2"].processes("runner-")


def test_a_cancelled_part_ends_and_is_forgotten(bench: Bench) -> None:
    part = bench.part()
    running = bench.runs(part)
    bench.launcher.cancel(running, 1.0)
    until(lambda: bench.of(part).state is State.ENDED, "it does not end")
    assert bench.of(part).evicted
    bench.launcher.forget(bench.of(part))
    assert bench.launcher.list() == ()


def test_another_process_finds_the_same_parts(bench: Bench) -> None:
    """Nothing is remembered here: what a new launcher lists is what the hosts keep."""
    before = bench.runs(bench.part())
    other = make(bench.lab, folder=bench.folder)
    other.open(bench.home.url)
    try:
        assert other.list() == (before,)
    finally:
        other.close()


def test_a_helper_that_is_killed_or_stands_still_is_replaced(bench: Bench) -> None:
    """The program on the host is not what keeps parts."""
    part = bench.part()
    before = bench.runs(part)
    bench.home.hear()  # else it may end by the broken connection
    host = bench.lab.hosts["ssh0"]
    helpers = partial(host.processes, "topmast is here")
    for signal in ("-KILL", "-STOP"):
        until(lambda: len(helpers()) == 1, "one before it has not ended")
        (pid,) = helpers()
        host.run("kill", signal, str(pid))
        until(lambda: not bench.answers("ssh0"), f"kill {signal} is not noticed")
        until(lambda: bench.answers("ssh0"), "it does not return")
        assert bench.of(part) == before
    host.run("kill", "-KILL", str(pid))


@pytest.mark.parametrize(
    ("story", "fields"),
    [("a path", {"name": "../tm"}), ("nothing", {"name": ""}), ("no such host", {"hosts": ("h",)})],
)
def test_what_cannot_be_is_refused(bench: Bench, story: str, fields: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        bench.launcher.submit(bench.part(**fields))


def test_hosts_come_and_go(bench: Bench) -> None:
    """A host that left is not asked any more."""
    specs = tuple(HostSpec(name, "H100", 8) for name in bench.lab.names)
    bench.launcher.set_hosts(specs[:1])
    assert bench.launcher.list() == ()
    assert [host.name for host in bench.launcher.hosts()] == ["ssh0"]
    bench.launcher.set_hosts(specs)
    bench.launcher.list()
    assert all(host.answers for host in bench.launcher.hosts())


# --- getting in -------------------------------------------------------------------------------


@dataclass
class Door:
    """What is wrong, and what the host is closed for."""

    story: str
    want: str
    options: dict[str, str]


DOORS = [
    Door("a host that nobody vouches for", "is not trusted.*empty: `ssh .*root@", {
        "known_hosts": "{folder}/empty"}),
    Door("a host with another key than the one that is known", "is not the one in", {
        "known_hosts": "{folder}/swapped"}),
    Door("no file of known hosts", "option known_hosts: there is no file", {
        "known_hosts": "{folder}/none"}),
    Door("a key that the host does not know", "authorized_keys", {"identity": "{folder}/other"}),
    Door("a key that is not there", "there is no file", {"identity": "{folder}/nokey"}),
    Door("a key with a passphrase", "has a passphrase", {"identity": "{folder}/locked"}),
    Door("a file that is no key", "is not a private key", {"identity": "{folder}/known_hosts"}),
    Door("a public key of another key beside it", r"stale\.pub is of another key.*delete or", {
        "identity": "{folder}/stale"}),
    Door("a certificate of another key beside it", r"signed-cert\.pub is of another key", {
        "identity": "{folder}/signed"}),
    Door("no Python", "option `python`", {"python": "python9"}),
    Door("something else than Python", "option `python`", {"python": "true"}),
    Door("a folder that cannot be made", "option folder: /dev/null/x cannot be made", {"folder": "/dev/null/x"}),
    Door("nothing listens on that port", "port 2222", {"port": "2222"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def keys(lab: SshLab) -> str:
    """Files that do not fit."""
    folder = lab.folder
    (folder / "empty").write_text("")
    lines = (folder / "known_hosts").read_text().splitlines()
    hosts, values = zip(*(line.split(" ", 1) for line in lines), strict=True)
    swapped = zip(hosts, values[1:] + values[:1], strict=True)
    (folder / "swapped").write_text("".join(f"{host} {value}\n" for host, value in swapped))
    for name, phrase in (("other", ""), ("locked", "a phrase")):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", phrase, "-f", str(folder / name)]
        subprocess.run(command, check=True)
    for name in ("stale", "signed"):
        shutil.copy(folder / "key", folder / name)
    shutil.copy(folder / "other.pub", folder / "stale.pub")
    sign = ["ssh-keygen", "-q", "-s", str(folder / "key"), "-I", "a name", "-n", "root"]
    subprocess.run([*sign, str(folder / "other.pub")], check=True)
    (folder / "other-cert.pub").rename(folder / "signed-cert.pub")
    return str(folder)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.story)
def test_a_host_that_does_not_let_us_in_is_closed(lab: SshLab, keys: str, door: Door) -> None:
    """The reason says what to do, and no key is in it."""
    options = {name: text.format(folder=keys) for name, text in door.options.items()}
    shut = make(lab, **options)
    shut.open("")
    try:
        assert shut.list() == ()
        for host in shut.hosts():
            assert not host.answers
            assert re.search(door.want, host.closed), host.closed
            assert "BEGIN" not in host.closed
    finally:
        shut.close()


def test_a_host_that_forwards_no_sockets_is_closed_and_found_before_a_server_starts(
    lab: SshLab,
) -> None:
    """A runner there could not call home, unless it needs no socket for that."""
    host = lab.hosts["ssh0"]
    config = host.folder / "sshd_config"
    before = config.read_text()
    config.write_text(before + "AllowStreamLocalForwarding no\n")
    _restart(host)
    shut = make(lab)
    shut.open("unix:/nowhere")
    try:
        shut.list()
        assert "AllowStreamLocalForwarding" in shut.hosts()[0].closed
        assert shut.hosts()[1].answers
        (fault,) = _faults(lab)
        assert fault.what == "host ssh0"
        assert fault.detail == shut.hosts()[0].closed
        assert _faults(lab, listen=f"{host.address.rpartition('.')[0]}.1:0") == []
    finally:
        shut.close()
        config.write_text(before)
        _restart(host)


def test_a_key_that_may_not_forward_is_found_before_a_server_starts(lab: SshLab) -> None:
    """Sites give it `restrict`."""
    host = lab.hosts["ssh0"]
    config, restricted = host.folder / "sshd_config", host.folder / "restricted.pub"
    before = config.read_text()
    keys = re.search("AuthorizedKeysFile (.*)", before)
    assert keys is not None
    restricted.write_text(f"restrict {Path(keys[1]).read_text()}")
    config.write_text(before.replace(keys[1], str(restricted)))
    _restart(host)
    try:
        (fault,) = _faults(lab)
        assert "`restrict`" in fault.detail
    finally:
        config.write_text(before)
        _restart(host)
    assert _faults(lab) == []


def test_the_socket_that_is_tried_is_gone_afterwards(lab: SshLab) -> None:
    """With the folder that it was in."""
    home = lab.hosts["ssh0"].folder / "home"
    folder = home / "scratch"
    folder.mkdir()
    os.utime(folder, (0, 0))
    (home / ".bashrc").write_text(f"export TMPDIR={HOME}/scratch\n")
    try:
        assert _faults(lab) == []
        assert folder.stat().st_mtime > 0, "it was in another folder"
        until(lambda: not list(folder.iterdir()), "what was made is still there", 10.0)
    finally:
        (home / ".bashrc").unlink()
        shutil.rmtree(folder)


def _faults(lab: SshLab, **given: str) -> list[Finding]:
    """What `topmast doctor` finds wrong with the first two hosts."""
    told = (HostSpec("ssh0", "H100", 8), HostSpec("ssh1", "H100", 8))
    words = {**lab.options, **given}
    options = read_options(words, SshOptions, engine="ssh", field="options")
    findings = SshEngine.examine(ClusterSpec("metal", told, "ssh", words), options)
    return [one for one in findings if one.level is Level.FAULT]


@pytest.mark.parametrize("talk", ["echo welcome; echo 17", r"printf 'you have mail\033]0;t\007'"])
def test_a_login_shell_may_talk(lab: SshLab, talk: str) -> None:
    """What it prints before our program speaks is not taken for an answer, nor is half a line."""
    profile = lab.hosts["ssh0"].folder / "home" / ".bashrc"
    profile.write_text(f"{talk}\n")
    noisy = make(lab)
    noisy.open("")
    try:
        noisy.list()
        assert noisy.hosts()[0].answers
    finally:
        noisy.close()
        profile.unlink()


def test_a_jump_host_leads_to_the_others(lab: SshLab) -> None:
    """Hosts that only it reaches; its key is checked too."""
    through = make(lab, jump=f"root@{lab.hosts['ssh2'].address}")
    through.open("")
    try:
        through.list()
        assert [host.answers for host in through.hosts()] == [True] * 3
    finally:
        through.close()


def _restart(host: SshHost) -> None:
    host.kill_sshd()
    host.start_sshd()


# --- discovery --------------------------------------------------------------------------------


def test_discovery_writes_a_fleet_file_of_the_hosts(lab: SshLab, tmp_path: Path) -> None:
    """CPUs and memory of each; GPUs where nvidia-smi shows some; what is left out is said."""
    smi = lab.hosts["ssh0"].folder / "home" / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor i in 1 2; do echo 'NVIDIA H100 80GB HBM3, 81559'; done\n")
    smi.chmod(0o755)
    lab.hosts["ssh0"].run("mount", "--bind", HOME, "/usr/local/sbin")
    lab.hosts["ssh2"].cut()
    before = lab.hosts["ssh1"].run("ls", "-A", HOME)
    out = tmp_path / "fleet.yaml"
    try:
        done = discovered(lab, *lab.names, "--out", str(out), "--set", "connect_s=3")
    finally:
        lab.hosts["ssh2"].mend()
        lab.hosts["ssh0"].run("umount", "/usr/local/sbin")
        smi.unlink()
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote {out}: 2 hosts, 2 H100\n"
    assert "ssh1 has no GPUs: there is no nvidia-smi" in done.stderr
    assert "left out: ssh2:" in done.stderr
    (cluster,) = read_fleet(out).regions[0].clusters
    assert (cluster.engine, cluster.options["user"]) == ("ssh", "root")
    found = {host.name: (host.model, host.gpus, host.gpu_memory_bytes) for host in cluster.hosts}
    assert found == {"ssh0": ("H100", 2, 85 * 10**9), "ssh1": ("", 0, 0)}
    assert all(host.cpus >= 1 and host.memory_bytes > 0 for host in cluster.hosts)
    assert lab.hosts["ssh1"].run("ls", "-A", HOME) == before, "it changes nothing"


def discovered(lab: SshLab, *words: str, **given: str) -> subprocess.CompletedProcess[str]:
    """What `topmast fleet discover ssh` says, with options of the lab or as they are given."""
    options = {**lab.options, **given}
    settings = [f"--set={name}={text}" for name, text in options.items()]
    topmast = str(Path(sys.executable).with_name("topmast"))
    argv = [topmast, "fleet", "discover", "ssh", *settings, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_hosts_that_show_no_gpus_are_written_as_they_are_told(lab: SshLab, tmp_path: Path) -> None:
    """Without nvidia-smi there may be GPUs all the same; the error says how to tell of them."""
    done = discovered(lab, "ssh0", "ssh1")
    assert done.returncode == 2
    assert "no host shows GPUs (ssh0: there is no nvidia-smi; ssh1: there is no" in done.stderr
    assert "--gpu MODEL=N" in done.stderr
    out = tmp_path / "fleet.yaml"
    done = discovered(lab, "ssh0", "ssh1", "--gpu", "MI300X=8", "--out", str(out))
    assert done.stdout == f"wrote {out}: 2 hosts, 16 MI300X\n", done.stderr
    assert "ssh0 is written with 8 MI300X: there is no nvidia-smi" in done.stderr
    (cluster,) = read_fleet(out).regions[0].clusters
    assert [(host.model, host.gpus) for host in cluster.hosts] == [("MI300X", 8)] * 2
    options = read_options(lab.options, SshOptions, engine="ssh", field="options")
    reach, gpus = SshEngine.examine(cluster, options)
    assert (reach.level, gpus.level, gpus.what) == (Level.OK, Level.WARNING, "GPUs")
    assert "those of 2 hosts do not show (ssh0: there is no nvidia-smi)" in gpus.detail


@pytest.mark.parametrize(
    ("folder", "want"),
    [
        ("/dev/null/x", "/dev/null/x cannot be made: /dev/null is no folder"),
        ("/dev/null", "/dev/null cannot be made: /dev/null is no folder"),
        ("/tmp", "/tmp can be changed by others"),
    ],
)
def test_a_folder_that_cannot_be_is_found_before_a_server_starts(
    lab: SshLab, folder: str, want: str
) -> None:
    """And nothing is made to find it."""
    told = (HostSpec("ssh0", "H100", 8),)
    given = {**lab.options, "folder": folder}
    options = read_options(given, SshOptions, engine="ssh", field="options")
    (fault,) = SshEngine.examine(ClusterSpec("metal", told, "ssh", given), options)
    assert fault.level is Level.FAULT
    assert want in fault.detail


def test_what_a_host_lacks_is_to_be_written_as_it_is(lab: SshLab) -> None:
    """This engine maps no models."""
    told = (HostSpec("ssh0", "H100", 8, cpus=10_000.0), HostSpec("ssh9", "H100", 8))
    options = read_options(lab.options, SshOptions, engine="ssh", field="options")
    findings = SshEngine.examine(ClusterSpec("metal", told, "ssh", lab.options), options)
    faults = {one.what: one for one in findings if one.level is Level.FAULT}
    assert faults["host ssh9"].detail.startswith("ssh9, port 22: ")
    assert faults["sizes"].remedy == "write what is there"


AHEAD = (
    "import sys, time; text, now = sys.argv[1], time.time; time.time = lambda: now() + 3600; "
    "exec(text)"
)


def test_what_is_wrong_with_some_hosts_is_said_and_hides_no_other(lab: SshLab) -> None:
    """A login shell that waits, GPUs with a name that is none, a clock that is wrong, no name."""
    homes = [lab.hosts[name].folder / "home" for name in lab.names]
    python = lab.hosts["ssh0"].run("sh", "-c", "command -v python3").strip()
    programs = {
        "nvidia-smi": "echo 'WARNING: a page, or two, is gone'; echo 'NVIDIA H100, 81559'",
        "python3": f'exec {python} -I -u -c "{AHEAD}" "$4"',
    }
    for home in homes[:2]:
        (home / "bin").mkdir()
        (home / ".bashrc").write_text("PATH=~/bin:$PATH\n")
        for name, text in programs.items():
            (home / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (home / "bin" / name).chmod(0o755)
    (homes[1] / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho 'a: b, 81559'\n")
    (homes[2] / ".bashrc").write_text("sleep 100\n")
    told = tuple(HostSpec(name, "H100", 1) for name in lab.names)
    given = {**lab.options, "connect_s": "5"}
    options = read_options(given, SshOptions, engine="ssh", field="options")
    try:
        done = discovered(lab, *lab.names, "dots=a..b", "--set", "connect_s=5", "--json")
        findings = SshEngine.examine(ClusterSpec("metal", told, "ssh", given), options)
    finally:
        for home in homes:
            shutil.rmtree(home / "bin", ignore_errors=True)
            (home / ".bashrc").unlink()
    assert done.returncode == 0, done.stderr
    assert "ssh0: nvidia-smi: WARNING: a page, or two, is gone" in done.stderr
    assert "left out: ssh1: nvidia-smi calls its GPUs 'a: b', which is no model" in done.stderr
    assert "left out: ssh2: its login shell does not start python3 within 5 s" in done.stderr
    assert "left out: dots: 'a..b' is not the name of a host" in done.stderr
    (cluster,) = json.loads(done.stdout)["regions"]["ssh"]["clusters"].values()
    assert [entry["names"] for entry in cluster["hosts"]] == [["ssh0"]]
    said = {one.what: (one.level, one.detail) for one in findings}
    assert {"host ssh1", "host ssh2", "clock"} <= said.keys(), said
    assert said["clock"][0] is Level.WARNING
    assert re.fullmatch(r"ssh0 is 3[56]\d\d s ahead of this machine", said["clock"][1])


def test_a_machine_that_is_there_twice_is_written_once(lab: SshLab, tmp_path: Path) -> None:
    """By another address and as another account, it is the same; the file has its first name."""
    host = lab.hosts["ssh0"]
    second = f"{host.address.rpartition('.')[0]}.78"
    host.run("ip", "address", "add", f"{second}/24", "dev", "eth0")
    known = tmp_path / "known_hosts"
    known.write_text(f"{host.known}{host.known.replace(host.address, second)}")
    hosts = [f"a={host.address}", f"b={second}", "--gpu", "H100=8"]
    try:
        done = discovered(lab, *hosts, "--json", known_hosts=str(known))
    finally:
        host.run("ip", "address", "del", f"{second}/24", "dev", "eth0")
    assert "left out: b: it is the same machine as a, by another address" in done.stderr
    (cluster,) = json.loads(done.stdout)["regions"]["ssh"]["clusters"].values()
    assert [entry["names"] for entry in cluster["hosts"]] == [["a"]]
