"""The runner is one file that any host can run."""

import ast
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from topmast.adapters.archive import fault
from topmast.adapters.engines.far import runner
from topmast.adapters.engines.far.runner.calls import Home
from topmast.adapters.engines.far.runner.processes import hold_folder, remove_left
from topmast.adapters.engines.far.runner.tasks import environments
from topmast.model.states import DATA_ERROR


def whole(**how: Any) -> Any:
    """The runner, with what it compiles only when that is used."""
    tree = ast.parse(runner.text(), **how)
    for modules, _ in runner.LATER_MODULES.values():
        tree.body += ast.parse(runner.joined(modules), **how).body
    return tree


def test_it_is_python_3_8_and_the_standard_library_alone() -> None:
    """Schedulers carry it to hosts on which there is nothing of ours."""
    imported = set()
    for node in ast.walk(whole(feature_version=(3, 8))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported - {"__future__"} <= sys.stdlib_module_names


def test_it_starts_without_what_takes_long_to_compile(tmp_path: Path) -> None:
    """Images of the site often have no compiled modules: each start would pay for it."""
    tree = ast.parse(runner.text())
    imported = {a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names}
    assert not imported & runner.LATER
    (tmp_path / "runner.py").write_text(runner.text().rpartition("if __name__")[0])
    quiet = [sys.executable, "-I", "-S", "-X", "importtime", str(tmp_path / "runner.py")]
    done = subprocess.run(quiet, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not loaded & {*runner.LATER, "email", "http", "typing", "urllib"}


def test_a_site_is_told_which_modules_an_image_compiles_for_it() -> None:
    """By a line for its build, which loads what every start needs."""
    guide = Path(__file__).parents[5] / "docs/guides/kubernetes.md"
    command = re.search(r'^RUN python3 -I -c "(.*)"$', guide.read_text(), re.MULTILINE)
    assert command is not None
    loads = f"{command[1]}, sys; print(*sys.modules)"
    quiet = [sys.executable, "-I", "-S", "-c", loads]
    done = subprocess.run(quiet, capture_output=True, text=True, check=True)
    tree = ast.parse(runner.text())
    needed = {a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names}
    machine_code = {"mmap", "fcntl"}
    assert {*needed, "ctypes", "ssl"} - {*done.stdout.split()} <= machine_code


@pytest.mark.parametrize(
    ("said", "want"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", (200, b"hi")),
        (b"HTTP/1.1 410 Gone\r\nx: y\r\nContent-Length: 0\r\n\r\n", (410, b"")),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi", "cut off"),
        (b"HTTP/1.1 200 OK\r\ncontent-len", "hung up"),
        (b"HTTP/1.1 200 OK\r\n\r\nhi", "cut off"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "cut off"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: all\r\n\r\nhi", "cannot be read"),
        (b"HTTP/1.1 what\r\ncontent-length: 0\r\n\r\n", "cannot be read"),
        (b"SSH-2.0-OpenSSH_9\r\n", "hung up"),
        (b"", "hung up"),
    ],
)
def test_an_answer_counts_only_when_it_is_whole(
    tmp_path: Path, said: bytes, want: tuple[int, bytes] | str
) -> None:
    """A runner asks again whatever came between; what it asks is read as HTTP."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "home"))
        listener.listen()
        thread = threading.Thread(target=answer, args=(listener, said, heard))
        thread.start()
        home = Home({"url": f"unix:{tmp_path / 'home'}", "token": "t", "part": "p", "ca": ""})
        if isinstance(want, str):
            with pytest.raises(OSError, match=want):
                home.call("claim", b"{}")
        else:
            assert home.call("claim", b"{}") == want
        home.hang_up()
        thread.join()
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /p/claim HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer t" in head
    assert b"\r\nContent-Length: 2" in head
    assert body == b"{}"


def answer(listener: socket.socket, said: bytes, heard: list[bytes]) -> None:
    """Give one client this answer, and hang up."""
    visitor, _ = listener.accept()
    with visitor:
        heard.append(visitor.recv(4096))
        visitor.sendall(said)


def test_its_modules_define_no_name_twice() -> None:
    """They become one file."""
    tree = whole()
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    names += [
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign) and not ast.unparse(node.value).startswith("Later(")
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]
    twice = {name for name in names if names.count(name) > 1}
    stand_ins = {name for _, names in runner.LATER_MODULES.values() for name in names}
    assert twice == stand_ins, "until it is loaded"
    assert "main" in names


def test_what_data_needs_is_compiled_when_there_is_data() -> None:
    """What stands for it hands over what it was given, and is replaced."""
    names: dict[str, object] = {"__name__": "runner"}
    exec(compile(runner.text(), "runner.py", "exec"), names)
    stand_in, loaded = names["cache_of"], {"find", "Fetch", "CannotFetch"} & names.keys()
    assert not loaded
    assert callable(stand_in)
    found = stand_in({"data": {"cache": "/c", "cache_max_bytes": 5}, "work": ""})
    assert (str(found.folder), found.limit_bytes) == ("/c", 5)
    assert names["cache_of"] is not stand_in


def test_it_reads_a_work_folder_as_the_server_does(tmp_path: Path) -> None:
    """By the same module: what one of two readers overlooks would land on a host unjudged."""
    (tmp_path / "work").mkdir()
    with tarfile.open(tmp_path / "good", "w:gz") as archive:
        archive.add(__file__, "tests/a.py")
        archive.addfile(link("b", "tests/a.py"))
    with tarfile.open(tmp_path / "twice", "w:gz") as archive:
        archive.addfile(link("c", str(tmp_path)))
        archive.addfile(link("c", "tests"))
    assert _unpacked(tmp_path, "good") == (0, "")
    assert (tmp_path / "work" / "b").read_text() == Path(__file__).read_text()
    code, said = _unpacked(tmp_path, "twice")
    assert code == DATA_ERROR
    assert said.endswith(f": {fault((tmp_path / 'twice').read_bytes())}\n")


def _unpacked(folder: Path, name: str) -> tuple[int, str]:
    """The exit code and the words of a runner that unpacks an archive."""
    (folder / "runner.py").write_text(runner.text())
    code = (
        "import sys; names = {'__name__': 'runner'}; "
        "exec(compile(open(sys.argv[1]).read(), 'runner.py', 'exec'), names); "
        "names['unpack_as_process'](*sys.argv[2:])"
    )
    places = [str(folder / part) for part in ("runner.py", name, "work")]
    done = subprocess.run([sys.executable, "-c", code, *places], capture_output=True, text=True)
    return done.returncode, done.stderr


def link(name: str, target: str) -> tarfile.TarInfo:
    """A member of an archive."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


@pytest.mark.parametrize(
    ("story", "given", "slots", "want"),
    [
        ("the scheduler gave four", "4,5,6,7", None, ["4,5", "6,7"]),
        (
            "it names them by their ids",
            "GPU-a,GPU-b,GPU-c,GPU-d",
            None,
            ["GPU-a,GPU-b", "GPU-c,GPU-d"],
        ),
        ("it hides the others itself", None, None, ["0,1", "2,3"]),
        ("the plan names them", "0,1,2,3", [["3", "1"], ["0", "2"]], ["3,1", "0,2"]),
    ],
)
def test_each_rank_sees_its_own_gpus(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: object,
    story: str,
    given: str | None,
    slots: list[list[str]] | None,
    want: list[str],
) -> None:
    """What the scheduler gave is split, unless the plan says which."""
    if given is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    seats: dict[str, object] = {
        str(rank): {"gpus": 2, "envs": {}, "slots": slots[rank] if slots else None}
        for rank in (0, 1)
    }
    orders = {"address": "10.0.0.1", "port": 4000}
    found = environments({"ranks": seats, "envs": {}}, orders, str(tmp_path), "nonce")
    assert [found[str(rank)]["CUDA_VISIBLE_DEVICES"] for rank in (0, 1)] == want
    assert {one["MASTER_ADDR"] + ":" + one["MASTER_PORT"] for one in found.values()} == {
        "10.0.0.1:4000"
    }


BEGINS = """
import os, sys, time
from topmast.adapters.engines.far.runner.tasks import Task
folder, acts = sys.argv[1], sys.argv[2:]
note = lambda name: open(folder + "/" + name, "w").close()
task = Task(lambda: note("task"), folder + "/log", (), lambda order: note(order["id"]))
for act in acts:
    task.go() if act == "go" else task.begin({"id": act})
    time.sleep(0.2)
if "go" not in acts:
    task.wire.end.close()
os.waitpid(task.pid, 0)
"""


@pytest.mark.parametrize(
    ("acts", "want"),
    [
        pytest.param(["go"], {"task"}, id="told to go"),
        pytest.param([], set(), id="its keeper is killed before"),
        pytest.param(["a"], set(), id="a command alone does not let it go"),
        pytest.param(["a", "go"], {"a", "task"}, id="a command that came first waits for it"),
    ],
)
def test_a_task_begins_when_its_caller_knows_of_it(
    tmp_path: Path, acts: list[str], want: set[str]
) -> None:
    """A keeper that is killed before it told of the task leaves nothing that runs."""
    subprocess.run([sys.executable, "-c", BEGINS, str(tmp_path), *acts], check=True, timeout=60)
    assert {path.name for path in tmp_path.iterdir()} - {"log"} == want


ENDING = """
import os, struct, time
from topmast.adapters.engines.far.runner.keeper import Keeper
from topmast.adapters.engines.far.runner.processes import fork, now_s

def ends(wire):
    wire.end.close()
    time.sleep(60)

keeper, (reader, _) = Keeper({"lease_s": None, "grace_s": 1.0}, "h0"), os.pipe()
struct.pack_into("dd", keeper.turns, 0, now_s(), now_s())
keeper.caller, keeper.wire = fork(ends)
until_s, turns = time.monotonic() + 0.8, 0
while time.monotonic() < until_s:
    keeper._turn(reader)
    turns += 1
os.kill(keeper.caller, 9)
print(turns)
"""


def test_a_runner_waits_for_the_end_of_a_process_without_computing() -> None:
    """It closes what it had at once, and is there until it has a core to end on."""
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 5, "it turned without a pause"


LOOKS = """
import os, struct, sys, time
from topmast.adapters.engines.far.runner import keeper as keepers, processes
from topmast.adapters.engines.far.runner.processes import fork, now_s
from topmast.adapters.engines.far.runner.tasks import Task

looks, look = [], processes.all_pids

def counting():
    looks.append(now_s())
    return look()

processes.all_pids = keepers.all_pids = counting
keeper, (reader, _) = keepers.Keeper({"lease_s": None, "grace_s": 1.0}, "h0"), os.pipe()
struct.pack_into("dd", keeper.turns, 0, now_s(), now_s())
keeper.caller, keeper.wire = fork(lambda wire: wire.hear() and 0)
words = ["sh", "-c", sys.argv[1]]
task = keeper.tasks["0"] = Task(lambda: os.execvp("sh", words), sys.argv[2], ())
task.go()
began_s = now_s()
while not task.done and now_s() < began_s + 20.0:
    if sys.argv[3] and now_s() > began_s + 0.5:
        keeper.stop_s = min(keeper.stop_s, now_s() + float(sys.argv[3]))
    keeper._turn(reader)
assert task.done, "it is still there"
keeper.wire.tell(op="end")
while keeper.left is None:
    keeper._turn(reader)
assert not keeper._strays()
print(len(looks), task.code, now_s() - began_s)
"""


@pytest.mark.parametrize(
    ("story", "script", "grace", "looks", "code", "takes_s"),
    [
        ("it ends by itself", "exit 3", "", 0, 3, 0.0),
        ("it leaves a process behind", "sleep 60 & exit 3", "", 1, 3, 0.0),
        ("it uses its grace", "trap 'sleep 2; exit 4' TERM; sleep 60 & wait", "10", 1, 4, 2.0),
        ("it outlives its grace", "trap '' TERM; sleep 60 & wait", "3", 10, 137, 3.0),
    ],
)
def test_a_runner_looks_at_all_processes_only_to_signal_some(
    tmp_path: Path, story: str, script: str, grace: str, looks: int, code: int, takes_s: float
) -> None:
    """A host of a site has thousands, and a task the time of its grace for a checkpoint."""
    words = [sys.executable, "-c", LOOKS, script, str(tmp_path / "log"), grace]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.stderr
    seen, ended, took_s = done.stdout.split()
    assert int(ended) == code
    assert float(took_s) >= takes_s
    assert int(seen) <= looks, story


def test_a_runner_asks_for_its_claim_at_once(tmp_path: Path) -> None:
    """It waits only after an answer that does not count: that would be a part of each start."""
    slow = runner.text()  # each wait is a long one, and so is what the keeper loads meanwhile
    for what, instead in (
        ("BACKOFF_S = 0.2\n", "BACKOFF_S = 60.0\n"),
        ("        adopt_orphans()  # now", "        time.sleep(1.0), adopt_orphans()  # now"),
    ):
        assert slow.count(what) == 1
        slow = slow.replace(what, instead)
    (tmp_path / "runner.py").write_text(slow)
    ticket = {
        "url": f"unix:{tmp_path}/home", "ca": "", "token": "t", "part": "p", "lease_s": 600.0,
        "grace_s": 1.0,
    }  # fmt: skip
    (tmp_path / "ticket.json").write_text(json.dumps(ticket))
    with socket.socket(socket.AF_UNIX) as home:
        home.bind(f"{tmp_path}/home")
        home.listen()
        home.settimeout(20.0)
        words = [sys.executable, "-I", "-S", "runner.py", "ticket.json", "h0"]
        process = subprocess.Popen(words, cwd=tmp_path, start_new_session=True)
        try:
            line, _ = home.accept()
            with line:
                assert line.recv(200).startswith(b"POST /p/claim ")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


DAY_S = 24 * 3600.0


@pytest.mark.parametrize(
    ("story", "looks_after_s", "stays"),
    [
        ("a task lives in it", (0.0, 3 * DAY_S), True),
        ("what lives of it holds no lock", (0.0, 3 * DAY_S), True),
        ("it was killed an hour ago", (0.0, 3600.0), True),
        ("nothing looked for days", (3 * DAY_S,), True),
        ("it is on another host", (0.0, 3 * DAY_S), True),
        ("it is of no runner that holds it", (0.0, 3 * DAY_S), True),
        ("it is a link", (0.0, 3 * DAY_S), True),
        ("its runner was killed days ago", (0.0, 3 * DAY_S), False),
    ],
)
def test_a_runner_deletes_what_killed_ones_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    story: str,
    looks_after_s: tuple[float, ...],
    stays: bool,
) -> None:
    """Else the disks of hosts fill up; what anything still works in is never touched."""
    real, folder = tmp_path / "real", tmp_path / "topmast-tm-1-j1-1-0-5a5a5a5a"
    real.mkdir()
    folder.symlink_to(real) if story == "it is a link" else folder.mkdir()
    (folder / "0.log").write_text("a line")
    held = hold_folder(str(folder), "5a5a5a5a5a")
    kept = held if story == "a task lives in it" else []
    mark = {"TOPMAST_TASK": "5a5a5a5a5a.0"} if story == "what lives of it holds no lock" else {}
    with subprocess.Popen(["sleep", "60"], pass_fds=kept, env={**os.environ, **mark}) as task:
        for number in held:
            os.close(number)
        if story == "it is on another host":
            (folder / "kept").write_text("elsewhere\n5a5a5a5a5a\n")
        if story == "it is of no runner that holds it":
            (folder / "kept").unlink()
        while mark and not Path(f"/proc/{task.pid}/environ").read_bytes():
            time.sleep(0.01)  # a process that has just begun has no variables for a moment
        now_s = time.time()
        for after_s in looks_after_s:
            monkeypatch.setattr(time, "time", lambda after_s=after_s: now_s + after_s)
            remove_left(str(tmp_path))
        task.kill()
    assert folder.exists() is stays
    assert (folder / "0.log").exists() is stays


def test_a_folder_that_cannot_be_listed_is_left_as_it_is(tmp_path: Path) -> None:
    """A runner ends as it would have, with what home is told."""
    remove_left(str(tmp_path / "none"))
    assert not list(tmp_path.iterdir())
