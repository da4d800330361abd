"""The worked example of adding a policy: it runs, and prints what its guide shows."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from topmast.policies.registry import ORDERS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "smallest_first.py"
GUIDE = (ROOT / "docs" / "guides" / "adding-a-policy.md").read_text("utf-8")


def test_the_example_prints_what_the_guide_shows() -> None:
    """Run as people would run it."""
    ran = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert len(lines) == 3
    assert all(line in GUIDE for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_is_the_sjf_of_the_public_simulator(
    data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That prints 408,106 s on this trace."""
    monkeypatch.setattr("topmast.policies.registry.ORDERS", dict(ORDERS))
    spec = importlib.util.spec_from_file_location("smallest_first", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main(str(data_dir / "muri" / "trace3.csv"))
    means = dict(line.rsplit(None, 2)[:2] for line in capsys.readouterr().out.splitlines())
    assert float(means["smallest"].replace(",", "")) == pytest.approx(408_106, rel=0.03)
