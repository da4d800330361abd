"""What is said of hosts behind SSH that do not let us in; on real hosts see tests/contract."""

from pathlib import Path

import asyncssh
import pytest

from topmast.adapters.engines.far.ssh import SshEngine, SshOptions
from topmast.adapters.engines.far.ssh.lines import NotUsable, Where
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Level


def test_a_cluster_of_which_no_host_answers_is_one_fault(tmp_path: Path) -> None:
    """Each host with its reason, and nothing is said to answer."""
    known, key = tmp_path / "known_hosts", tmp_path / "key"
    known.touch()
    hosts = (HostSpec("gpu-1", "H100", 8), HostSpec("gpu-2", "H100", 8))
    options = SshOptions(
        identity=str(key), known_hosts=str(known), connect_s=5.0, port=1,
        address={"gpu-1": "127.0.0.1", "gpu-2": "127.0.0.2"},
    )  # fmt: skip
    (fault,) = SshEngine.examine(ClusterSpec("metal", hosts, "ssh"), options)
    assert (fault.level, fault.what) == (Level.FAULT, "reach it")
    assert fault.detail.startswith("no host is left: gpu-1: ")
    assert "; gpu-2: " in fault.detail


def test_a_key_that_is_not_known_is_added_to_one_of_the_files(tmp_path: Path) -> None:
    """Either will do: that of the account, or that of the machine."""
    error = asyncssh.HostKeyNotVerifiable("Host key is not trusted")
    told = Where("gpu-1", SshOptions()).explain(error)
    assert f"add it to {Path.home()}/.ssh/known_hosts or /etc/ssh/ssh_known_hosts: `ssh " in told


def test_known_hosts_that_cannot_be_used_name_the_option_and_the_file(tmp_path: Path) -> None:
    """Another file, one that is no text, a folder, a device that never ends: no error of a library."""
    other, bytes_ = tmp_path / "other", tmp_path / "bytes"
    other.write_text("root:x:0:0:root:/root:/bin/bash\n")
    bytes_.write_bytes(b"\xff\xfe")
    for file, want in (
        (other, "more than keys"),
        (bytes_, "more than keys"),
        (tmp_path, "a folder"),
        ("/dev/zero", "a device"),
    ):
        with pytest.raises(NotUsable, match=f"option known_hosts: {file} .*{want}"):
            Where("gpu-1", SshOptions(known_hosts=str(file))).arguments()
    with pytest.raises(NotUsable, match=r"option identity: /dev/zero .* a device"):
        Where("gpu-1", SshOptions(identity="/dev/zero")).arguments()


def test_a_folder_for_a_key_names_the_option(tmp_path: Path) -> None:
    """As it does where there is none."""
    with pytest.raises(OSError) as caught:
        asyncssh.load_keypairs(str(tmp_path))
    told = Where("gpu-1", SshOptions(identity=str(tmp_path))).explain(caught.value)
    assert told == f"option identity: {tmp_path} cannot be read: Is a directory"


def test_a_host_on_the_way_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """And not the host behind it, which nobody has asked yet."""
    known, key = tmp_path / "known_hosts", tmp_path / "key"
    known.touch()
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(key))
    options = SshOptions(identity=str(key), known_hosts=str(known), jump="ann@127.0.0.1:1")
    (fault,) = SshEngine.examine(
        ClusterSpec("metal", (HostSpec("gpu-1", "H100", 8),), "ssh"), options
    )
    assert "gpu-1: option jump: 127.0.0.1, port 1: " in fault.detail


def test_a_host_on_the_way_has_its_own_login() -> None:
    """What people are told to type leads there by the hosts before it."""
    where = Where("gpu-1", SshOptions(user="me", jump="gate, ann@inner:2222"))
    told = where.jump(1).explain(asyncssh.HostKeyNotVerifiable("Host key is not trusted"))
    assert "`ssh -p 2222 -J gate ann@inner` asks" in told
