"""What tasks may leave in the folder of the local engine: they run as its user, and write anywhere there."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.engines import eventually, local, opened, order
from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.files import Layout
from topmast.model.messages import HostDown
from topmast.runtime.codec import encode_event

HUGE = b"9" * 30


def make_huge(file: Path) -> None:
    """A file of four tebibytes that takes no room."""
    file.touch()
    os.truncate(file, 1 << 42)


CONTENTS: dict[str, bytes] = {
    "no text": b"j\xff\xfe 1\nj9 \xc2\xb2\n",
    "a number beyond all": b"j1 " + HUGE + b"\nj" + HUGE + b" 1\n" + b"j1 " + b"9" * 5000 + b"\n",
    "nothing but zeros": bytes(100),
    "no object": b"[1, 2]",
    "half a character": b'{"host": "\\ud800", "attempt": "\\ud800", "error": "\\ud800"}',
    "values of other kinds": b'{"host": ["h1"], "pid": "1", "tasks": [], "code": {}, "at_s": []}',
    "numbers beyond all": b'{"host": "h1", "pid": ' + HUGE + b', "code": 1e400, "at_s": 1e308}',
}
OTHERS: dict[str, Callable[[Path], object]] = {
    "a folder": lambda file: (file / "below").mkdir(parents=True),
    "a pipe": os.mkfifo,
    "a link to nothing": lambda file: file.symlink_to("nowhere"),
    "a link to itself": lambda file: file.symlink_to(file),
    "more than fits into memory": make_huge,
}
SPOILED = (
    "forgotten",
    "tasks/j9.1.0",
    "tasks/j9.1.0.end",
    "tasks/j9." + HUGE.decode() + ".0",
    "tasks/j9.1." + HUGE.decode(),
    "attempts/j9.1/plan.json",
    "attempts/j9.1/stop.json",
    "attempts/j9.1/0.progress",
    "hosts/h1/agent.json",
    "hosts/h1/agent.lock",
    "hosts/h1/agent.sock",
    "hosts/stray/agent.json",
)


def spoil(file: Path, what: str) -> None:
    """Put something of this kind where the engine keeps a file."""
    files.make_folder(file.parent)
    if what in CONTENTS:
        file.write_bytes(CONTENTS[what])
    else:
        OTHERS[what](file)


@pytest.mark.parametrize("name", SPOILED)
@pytest.mark.parametrize("what", [*CONTENTS, *OTHERS])
def test_an_engine_starts_and_runs_jobs_whatever_tasks_left_in_its_folder(
    tmp_path: Path, name: str, what: str
) -> None:
    """Its news fit into a journal, and a host whose files are spoiled is the only one to suffer."""
    spoil(tmp_path / "engine" / name, what)
    if name.endswith(".end"):
        spoil(tmp_path / "engine" / "tasks" / "j9.1.0", "half a character")
    with opened(local, tmp_path) as rig:
        rig.engine.start_gang(order("j1", "exit 3"))
        assert rig.end_of("j1").code == 3
        rig.truth()
        for host in ("h0", "h1"):
            rig.engine.host_process(host)
        for message in rig.news.messages:
            encode_event(message)
        assert not [down for down in rig.news.all(HostDown) if down.host == "h0"]


@pytest.mark.parametrize("how", ["removed", "a file for a while"])
def test_a_task_that_removes_the_folder_of_its_host_harms_nobody(tmp_path: Path, how: str) -> None:
    """The host lives, what it runs goes on, and the next Topmast finds it."""
    with opened(local, tmp_path) as rig:
        folder = Layout(rig.folder / "engine").host("h0")
        rig.engine.start_gang(order("j1", "echo up; while [ ! -e $HOME/go ]; do sleep 0.05; done",
                                    envs={"HOME": str(tmp_path)}))  # fmt: skip
        rig.says("j1", "up")
        agent = files.read_json(folder / "agent.json")
        spoiling = 'rm -rf "$FOLDER"' + ("; touch $FOLDER" if how != "removed" else "")
        rig.engine.start_gang(order("j2", spoiling, envs={"FOLDER": str(folder)}))
        assert rig.end_of("j2").code == 0
        if how != "removed":
            log = rig.folder / "engine" / "agents.log"
            eventually(lambda: "agent of h0" in log.read_text(), "it says what it cannot do")
            assert not rig.news.all(HostDown)
            folder.unlink()
        eventually(lambda: is_whole(folder), "the agent can be found again")
        assert files.read_json(folder / "agent.json") == agent
        rig.reopen()
        rig.started("j1")
        rig.engine.start_gang(order("j3", "exit 3"))
        assert rig.end_of("j3").code == 3
        (tmp_path / "go").touch()
        assert rig.end_of("j1").code == 0
        assert not rig.news.all(HostDown)


def is_whole(folder: Path) -> bool:
    """Whether an agent can be found by its folder."""
    here = all((folder / name).exists() for name in ("agent.json", "agent.sock"))
    return here and files.is_locked(folder / "agent.lock")


def test_a_forgotten_file_is_mended(tmp_path: Path) -> None:
    """What it says of attempts stays; what else was written there goes."""
    layout = Layout(tmp_path / "engine")
    files.make_folder(layout.root)
    layout.forgotten.write_bytes(b"j1 2\nj\xff 1\nj2 \xc2\xb2\nj3 07\nj1 1\nj4 5")
    with opened(local, tmp_path) as rig:
        rig.engine.start_gang(order("j1", "exit 0"))
        assert "not run twice" in rig.lost("j1").error
    assert layout.forgotten.read_bytes() == b"j1 2\n"
