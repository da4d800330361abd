"""Turns, pairs and trials on hosts behind SSH: the far engine that gives exact GPUs and stops tasks.

The bodies are those of the local engine's tests, whose processes this machine sees likewise.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.contract.engines import HOSTS
from tests.integration import test_packed as packed
from tests.integration import test_turns as turns
from tests.support.sshlab import SshLab
from topmast.adapters.engines.far.ssh import SshEngine
from topmast.model.engines import Capability

NUMBERS = itertools.count()


@pytest.fixture
def fleet(plain_lab: SshLab) -> Callable[[str], str]:
    """A fleet of one such host, with two GPUs of a model."""

    def text(model: str) -> str:
        others = {f"address.{name}" for name in plain_lab.names if name != HOSTS[0]}
        options = {k: v for k, v in plain_lab.options.items() if k not in others}
        options |= {"folder": f".t{next(NUMBERS)}", "poll_s": "0.2"}
        hosts = [{"names": [HOSTS[0]], "gpu": model, "gpus": 2}]
        cluster = {"engine": "ssh", "hosts": hosts, "options": options}
        return yaml.safe_dump({"regions": {"east": {"clusters": {"east-a": cluster}}}})

    return text


def test_three_gangs_take_turns(fleet: Callable[[str], str], tmp_path: Path) -> None:
    """They stand still by SIGSTOP there, and go on."""
    turns.three_gangs_share(tmp_path, fleet("H100"))


def test_turns_go_on_after_the_server_was_killed(
    fleet: Callable[[str], str], tmp_path: Path
) -> None:
    """Nothing starts twice."""
    turns.turns_survive(tmp_path, fleet("H100"))


@pytest.mark.parametrize(("slower", "verdict"), [(4.0, "taken back"), (1.0, "kept")])
def test_two_are_tried_together(
    fleet: Callable[[str], str], tmp_path: Path, slower: float, verdict: str
) -> None:
    """Their own steps, told over SSH, say whether it pays."""
    turns.tried_together(tmp_path, fleet("H100"), slower, verdict)


def test_two_have_the_same_gpus_as_a_pair(fleet: Callable[[str], str], tmp_path: Path) -> None:
    """A round has both there at the same time."""
    packed.two_gangs_as_a_pair(tmp_path, fleet("V100"))


def test_the_engine_says_so() -> None:
    """A profile that needs these is refused on engines without them, and not on this one."""
    assert {Capability.SUSPEND, Capability.EXACT_SLOTS, Capability.PAIRS} <= SshEngine.capabilities
