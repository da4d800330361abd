"""Commands whose work is done elsewhere: what they hand over, and what they show."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Call
from tests.unit.cli.program import ROOT
from tests.unit.client.fake import ended, running
from topmast.cli import main
from topmast.cli.rootoptions import (
    DEFAULT_PORT,
    BenchOptions,
    DemoOptions,
    ReplayOptions,
    ServeOptions,
)


def given(*arguments: object) -> Any:
    """The options that the root receives."""
    received: list[Any] = []

    def take(*options: Any) -> int:
        received.extend(options)
        return 0

    root = dataclasses.replace(ROOT, serve=take, demo=take, replay=take, bench=take)
    assert main(root, [str(argument) for argument in arguments]) == 0
    return received[-1]


def test_up(tmp_path: Path) -> None:
    """Without options it serves the default folder on loopback."""
    assert given("up") == ServeOptions(
        fleet=None, state=tmp_path / "state-home" / "topmast", host="127.0.0.1", port=DEFAULT_PORT
    )


def test_up_with_everything(tmp_path: Path) -> None:
    """Every option arrives; a folder is named in full."""
    options = given(
        "up", "--fleet", "f.yaml", "--state", "s", "--host", "::1", "--port", "0",
        "--profile", "fifo", "--set", "score.data=1", "--set", "min_runtime_s=5", "--json",
    )  # fmt: skip
    assert options == ServeOptions(
        fleet=Path("f.yaml"), state=Path.cwd() / "s", host="::1", port=0, profile="fifo",
        settings={"score.data": "1", "min_runtime_s": "5"}, json=True,
    )  # fmt: skip


def test_up_with_plans_of_data() -> None:
    """The option stands for a setting."""
    given_s = given("up", "--plan-data-every", "6h", "--set", "slow.scenarios=3").settings
    assert given_s == {"slow.scenarios": "3", "slow.plan_data_every_s": "21600.0"}


def test_demo(tmp_path: Path) -> None:
    """Its folder is its own unless one is given."""
    assert given("demo") == DemoOptions()
    wanted = DemoOptions(state=tmp_path, keep=True, json=True)
    assert given("demo", "--keep", "--state", tmp_path, "--json") == wanted
    assert given("demo", "--engines") == DemoOptions(engines=True)


def test_replay(tmp_path: Path) -> None:
    """Up to a time, or to the end."""
    assert given("replay", "--state", tmp_path) == ReplayOptions(state=tmp_path)
    assert given("replay", "--state", tmp_path, "--until", "1900000000").until_s == 1.9e9
    wanted = ReplayOptions(state=tmp_path, serve=True, port=7000)
    assert given("replay", "--state", tmp_path, "--serve", "--port", 7000) == wanted


def test_bench() -> None:
    """What is not given is None."""
    assert given("bench", "recover") == BenchOptions()
    options = given("bench", "submit", "--jobs", 5, "--clients", 2, "--duration", "1m", "--seed", 7)
    assert options == BenchOptions(jobs=5, clients=2, duration_s=60, seed=7)


def test_bench_of_a_fleet(tmp_path: Path) -> None:
    """The fleet arrives as it was described."""
    options = given(
        "bench", "search", "--regions", 2, "--clusters", 4, "--hosts", 50, "--gpus-per-host", 4,
        "--fill", 0.5, "--sizes", "1, 4", "--jobs", 9, "--no-first-use", "--scaling",
        "--out", tmp_path,
    )  # fmt: skip
    assert options == BenchOptions(
        jobs=9, regions=2, clusters=4, hosts=50, gpus_per_host=4, fill=0.5, sizes_gpus=(1, 4),
        first_use=False, scaling=True, out=tmp_path,
    )  # fmt: skip
    options = given("bench", "queue", "--hosts", 300, "--rate", 5, "--duration", "3s")
    assert (options.hosts, options.rate, options.duration_s) == (300, 5.0, 3.0)


def test_exit_codes_are_passed_on(call: Call) -> None:
    """What `serve` and `demo` return is the exit code."""
    assert call("demo").code == 0
    assert call("demo", "--keep").code == 1


@pytest.mark.parametrize("arguments", [["replay"], ["bench", "submit"]])
def test_documents_are_shown(arguments: list[str], call: Call) -> None:
    """Any document: as JSON, or its values and its tables."""
    assert isinstance(call(*arguments, "--json").document, dict)
    assert call(*arguments).err == ""


def test_a_document_with_a_table(call: Call) -> None:
    """Plain values first, then a table whose columns are those of its rows."""
    assert call("replay").out.splitlines() == [
        "until_s  -",
        "same     yes",
        "",
        "jobs",
        "ID  STATE         CAUSE",
        "j1  [red]RUNNING  -",
        "j2  -             -",
    ]


def test_the_past_looks_like_the_queue(capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs of then are shown as jobs of now are."""
    past = {"until_s": 1e9, "seq": 7, "jobs": [running("j1"), ended("j2")]}
    root = dataclasses.replace(ROOT, replay=lambda _: past)
    assert main(root, ["replay"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("as of  2001-09-0")
    assert lines[3].split()[:4] == ["ID", "NAME", "TENANT", "BAND"]
    assert [line.split()[0] for line in lines[4:]] == ["j1", "j2"]


def test_groups_without_a_command_show_help(call: Call) -> None:
    """`topmast bench` lists the benchmarks."""
    called = call("bench")
    assert called.code == 0
    assert "recover" in called.out
