"""Secrets that a job refers to: every engine gives them to its tasks, and to nothing else."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.contract.engines import ENGINES, Rig, alive_of, opened, order
from topmast.ports import Capability

pytestmark = pytest.mark.always

SECRET = "s3cret $HOME 'and more'"


@pytest.fixture(params=ENGINES)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """An open engine, and a secret beside its folder."""
    (tmp_path / "engine").mkdir()
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    with opened(ENGINES[request.param], tmp_path / "engine") as rig:
        yield rig


def test_tasks_alone_have_the_values(rig: Rig, tmp_path: Path) -> None:
    """Setup too; no file of the engine has one, and of the processes of the task its own."""
    secrets = {"KEY": f"file:{tmp_path}/secret", "RANK_OF": f"file:{tmp_path}/secret"}
    setup = 'printf %s "$KEY" | wc -c'
    script = 'printf %s "$KEY" | wc -c; [ "$KEY" = "$RANK_OF" ] && echo same; sleep 1000'
    rig.engine.start_gang(order("j1", script, setup=setup, secrets=secrets))
    rig.says("j1", "same")
    assert rig.log("j1").split() == [str(len(SECRET)), str(len(SECRET)), "same"]
    files = [path for path in (tmp_path / "engine").rglob("*") if path.is_file()]
    assert len(files) > 3
    found = [path for path in files if SECRET.encode() in path.read_bytes()]
    assert found == []
    names = {psutil.Process(pid).name() for pid in alive_of(rig, "j1") if has_secret(pid)}
    assert "bash" in names <= {"bash", "sleep"}
    rig.engine.stop("j1", 1, 0.0)
    rig.end_of("j1")


def has_secret(pid: int) -> bool:
    """Whether a process can show it; in arguments it is shown to all users of the host."""
    process = psutil.Process(pid)
    assert not any("s3cret" in word for word in process.cmdline())
    return any(SECRET in value for value in process.environ().values())


@pytest.mark.parametrize(
    ("story", "reference", "told"),
    [
        ("there is no such file", "file:/no/such", "secrets.KEY: /no/such: No such file"),
        ("it is a folder", "file:/", "secrets.KEY: /"),
    ],
)
def test_without_the_value_the_script_does_not_begin(
    rig: Rig, story: str, reference: str, told: str
) -> None:
    """The output says which reference leads nowhere, and so does the cause; also of a setup."""
    for job, setup in (("j1", None), ("j2", "echo begun")):
        rig.engine.start_gang(order(job, "echo begun", setup=setup, secrets={"KEY": reference}))
        end = rig.end_of(job)
        assert end.code == 126
        assert f"task 0: {told}" in end.error
        assert told in rig.log(job)
        assert "begun" not in rig.log(job)


def test_a_script_that_cannot_run_a_command_lacks_no_secret(rig: Rig, tmp_path: Path) -> None:
    """It ends with the same status."""
    secrets = {"KEY": f"file:{tmp_path}/secret"}
    rig.engine.start_gang(order("j1", "exit 126", secrets=secrets))
    end = rig.end_of("j1")
    assert (end.code, "secrets" in end.error) == (126, False)


def test_variables_of_hosts_are_given_by_the_engines_that_say_so(rig: Rig) -> None:
    """Jobs that need them are placed with no others; one that comes there all the same is lost."""
    for job, name in (("j1", "PATH"), ("j2", "TM_NO_SUCH")):
        script = '[ "$KEY" ] && echo begun'
        rig.engine.start_gang(order(job, script, secrets={"KEY": f"env:{name}"}))
    if Capability.ENV not in rig.engine.capabilities:
        assert "env:PATH" in rig.lost("j1").error
        assert "env:TM_NO_SUCH" in rig.lost("j2").error
        return
    assert rig.end_of("j1").code == 0
    assert "begun" in rig.log("j1")
    assert rig.end_of("j2").code == 126
    assert "secrets.KEY: env:TM_NO_SUCH is not there on this host" in rig.log("j2")


def test_what_an_engine_does_not_have_is_told_before_anything_runs(rig: Rig) -> None:
    """No engine of these has Secrets of Kubernetes."""
    rig.engine.start_gang(order("j1", "echo begun", secrets={"KEY": "kubernetes:team/key"}))
    assert "secrets" in rig.lost("j1").error
    assert rig.log("j1") == ""
