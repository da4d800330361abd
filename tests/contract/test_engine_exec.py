"""Commands beside tasks, whichever engine runs a cluster: they are where the task is, and end with it."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engines import ENGINES, Rig, eventually, opened, order
from topmast.adapters.engines import execs
from topmast.model.engines import Capability
from topmast.model.errors import NotFound, TooMany
from topmast.model.exec_views import ExecPage, ExecSpec
from topmast.model.messages import TaskExited
from topmast.ports import Exec

FOREVER = "echo up; while true; do sleep 0.05 || true; done"
MANY_BYTES = 5_000_000
PIECE_BYTES = 256 * 1024


@pytest.fixture(params=ENGINES)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """An open engine that can do it."""
    with opened(ENGINES[request.param], tmp_path) as rig:
        if Capability.EXEC not in rig.engine.capabilities:
            pytest.skip("this engine runs no commands beside tasks")
        yield rig


def begin(rig: Rig, *command: str, job: str = "j1", rank: int = 0, **more: object) -> Exec:
    """A command beside a task that runs."""
    return rig.engine.execute(ExecSpec(job, 1, rank, command, **more))  # type: ignore[arg-type]


def whole(one: Exec, until_s: float = 60.0) -> ExecPage:
    """All that it writes, and how it ends."""
    out, err, deadline_s = b"", b"", time.monotonic() + until_s
    while True:
        page = one.page(len(out), len(err), 65_536)
        out, err = out + page.stdout, err + page.stderr
        assert (page.stdout_next, page.stderr_next) == (len(out), len(err))
        if page.code is not None:
            return ExecPage(out, err, len(out), len(err), page.code, page.error)
        assert time.monotonic() < deadline_s, (out[-200:], err[-200:])
        if not page.stdout and not page.stderr:
            time.sleep(0.01)


def test_a_command_is_where_the_task_is(rig: Rig) -> None:
    """In its folder and environment; the two streams stay apart, and the code is told."""
    rig.engine.start_gang(order("j1", f"echo mine >note; {FOREVER}", tasks=2, envs={"LR": "0.1"}))
    rig.started("j1", 1)
    eventually(lambda: "up" in rig.log("j1", 1), "it runs")
    script = "cat note; echo $LR/$RANK/$TOPMAST_JOB_ID; echo there >&2; exit 7"
    found = whole(begin(rig, "bash", "-c", script, rank=1))
    assert (found.stdout, found.stderr, found.code) == (b"mine\n0.1/1/j1\n", b"there\n", 7)
    assert "0.1/1/j1" not in rig.log("j1", 1)


def test_no_shell_reads_a_command(rig: Rig) -> None:
    """Words arrive as they are; what is no program is said."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    words = ("$(touch x)", "`id`", "; exit 3", "a b", "", "'\"\n", "*")
    found = whole(begin(rig, "printf", "<%s>", *words))
    assert found.stdout.decode() == "".join(f"<{word}>" for word in words)
    missing = whole(begin(rig, "no-such-program; true"))
    assert missing.code == 127
    assert missing.stderr == b"topmast: no-such-program; true: No such file or directory\n"
    assert whole(begin(rig, "/")).code == 126


def test_a_command_reads_what_is_typed(rig: Rig) -> None:
    """In pieces, each once however often it is sent, until the end of it."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    one = begin(rig, "cat")
    assert one.write(0, b"one ", last=False) == 4
    eventually(lambda: one.page(0, 0, 100).stdout == b"one ", "it is echoed")
    assert one.write(0, b"one two", last=False) == 7
    assert one.write(7, b" three", last=True) == 13
    found = whole(one)
    assert (found.stdout, found.code) == (b"one two three", 0)


def test_a_command_may_have_a_terminal(rig: Rig) -> None:
    """Of the size that is asked for, with what a terminal does to what is typed."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    script = 'stty -echo; stty size; read line; echo "<$line>"; test -t 2 && exit 9'
    one = begin(rig, "bash", "-c", script, tty=True, rows=33, columns=101)
    eventually(lambda: b"33 101\r\n" in one.page(0, 0, 1000).stdout, "it has the size")
    one.write(0, b"wrongx\x7f\x7f\n", last=False)
    found = whole(one)
    assert found.stdout == b"33 101\r\n<wron>\r\n"
    assert (found.stderr, found.code) == (b"", 9)


def test_a_command_ends_when_its_user_wants_it_to(rig: Rig) -> None:
    """Also one that does not want to, with all that it began."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    polite = begin(rig, "bash", "-c", "echo ready; exec sleep 1000")
    deaf = begin(rig, "bash", "-c", "trap '' HUP; echo ready; sleep 1000 & wait; sleep 1000")
    eventually(lambda: polite.page(0, 0, 100).stdout == b"ready\n", "it has begun")
    eventually(lambda: deaf.page(0, 0, 100).stdout == b"ready\n", "it is deaf")
    for one in (polite, deaf):
        one.end()
    assert [whole(one).code for one in (polite, deaf)] == [129, 137]


def test_a_command_ends_with_its_task_and_before_that_is_told(rig: Rig) -> None:
    """The rig looks for processes of the task at each end; the command is one of them."""
    rig.engine.start_gang(order("j1", "sleep 1000"))
    rig.started("j1")
    one = begin(rig, "bash", "-c", "echo ready; exec sleep 1000")
    eventually(lambda: one.page(0, 0, 100).stdout == b"ready\n", "it runs")
    rig.engine.stop("j1", 1, 5.0)
    rig.news.wait(TaskExited, job="j1")
    assert not rig.broken
    assert whole(one).code in (129, 137, 143, 255)
    with pytest.raises(NotFound, match="does not run"):
        begin(rig, "true")


def test_a_command_stands_still_with_its_task(rig: Rig) -> None:
    """A suspended job computes nothing: others have its GPUs."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    one = begin(rig, "bash", "-c", "while true; do echo tick; sleep 0.02; done")
    eventually(lambda: one.page(0, 0, 100).stdout, "it runs")
    rig.engine.suspend("j1", 1)

    def still() -> bool:
        first = one.page(0, 0, 1 << 20).stdout_next
        time.sleep(0.5)
        return one.page(0, 0, 1 << 20).stdout_next == first

    eventually(still, "it stands still")
    seen = one.page(0, 0, 1 << 20).stdout_next
    rig.engine.resume("j1", 1)
    eventually(lambda: one.page(0, 0, 1 << 20).stdout_next > seen, "it goes on")
    one.end()


def test_all_that_a_command_writes_arrives_however_slowly_it_is_read(rig: Rig) -> None:
    """It waits where it wrote too much; nothing of the server's memory is filled."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    script = f"import sys; sys.stdout.buffer.write(bytes(range(256)) * {MANY_BYTES // 256})"
    one = begin(rig, "python3", "-c", script)
    digest, size = hashlib.sha256(), 0
    time.sleep(0.5)
    while True:
        page = one.page(size, 0, 1 << 20)
        assert len(page.stdout) <= execs.KEPT_BYTES
        digest.update(page.stdout)
        size += len(page.stdout)
        if page.code is not None:
            break
    want = bytes(range(256)) * (MANY_BYTES // 256)
    assert (size, digest.digest(), page.code) == (len(want), hashlib.sha256(want).digest(), 0)


def fed(one: Exec, data: bytes, offset: int = 0, patience_s: float = 1.5) -> int:
    """Give it input from an offset on, until it takes no more for so long; up to where it took."""
    last_s = time.monotonic()
    while time.monotonic() < last_s + patience_s and offset < len(data):
        piece = data[offset : offset + PIECE_BYTES]
        taken = one.write(offset, piece, last=offset + len(piece) == len(data))
        if taken > offset:
            offset, last_s = taken, time.monotonic()
        else:
            time.sleep(0.02)
    return offset


def test_input_waits_until_a_command_reads_it(rig: Rig) -> None:
    """Two buffers and a pipe fill; then all of it arrives, in order and once."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    go = rig.folder / "go"
    script = f"echo up; until [ -e {go} ]; do sleep 0.05; done; exec sha256sum"
    one = begin(rig, "bash", "-c", script)
    eventually(lambda: one.page(0, 0, 100).stdout, "it has begun")
    data = b"".join(i.to_bytes(4, "big") for i in range(MANY_BYTES // 4))
    taken = fed(one, data)
    assert execs.KEPT_BYTES < taken <= 2 * execs.KEPT_BYTES + 2 * 65_536
    go.touch()
    assert fed(one, data, taken, 30.0) == len(data)
    found = whole(one)
    assert (found.stdout.split()[1].decode(), found.code) == (hashlib.sha256(data).hexdigest(), 0)


def test_a_command_that_waits_with_its_input_ends_when_it_is_to(rig: Rig) -> None:
    """Also where nothing more fits."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    one = begin(rig, "sleep", "1000")
    assert fed(one, bytes(MANY_BYTES)) < MANY_BYTES
    begun_s = time.monotonic()
    one.end()
    assert whole(one).code == 129
    assert time.monotonic() < begun_s + 30.0


def test_input_that_nothing_reads_any_more_is_taken(rig: Rig) -> None:
    """The command closed it: whatever gives it input need not wait."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    one = begin(rig, "bash", "-c", "exec sleep 1000 <&-")
    assert fed(one, bytes(MANY_BYTES), patience_s=30.0) == MANY_BYTES
    one.end()
    whole(one)


def test_commands_end_with_the_server_and_tasks_do_not(rig: Rig) -> None:
    """Nothing could read what they write any more."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    one = begin(rig, "bash", "-c", "echo $$; exec sleep 1000")
    eventually(lambda: one.page(0, 0, 100).stdout, "it runs")
    pid = int(one.page(0, 0, 100).stdout)
    rig.reopen()
    assert whole(one).code == 255
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "it has ended")
    assert not rig.news.all(TaskExited)
    assert whole(begin(rig, "echo", "again")).stdout == b"again\n"


def test_no_more_commands_than_some_run_at_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that ends makes room."""
    monkeypatch.setattr(execs, "MOST_AT_ONCE", 2)
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    both = [begin(rig, "cat") for _ in range(2)]
    with pytest.raises(TooMany):
        begin(rig, "true")
    both[0].end()
    whole(both[0])
    assert whole(begin(rig, "true")).code == 0
    both[1].end()


def test_a_command_that_nothing_asks_about_is_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user has gone."""
    monkeypatch.setattr(execs, "PATIENCE_S", 5.0)  # until then the command has set its trap
    rig.engine.start_gang(order("j1", FOREVER))
    rig.started("j1")
    file = rig.folder / "ended"
    begin(rig, "bash", "-c", f"trap 'touch {file}; exit' HUP; while true; do sleep 0.05; done")
    eventually(file.exists, "it was ended")
