"""The runner is one file that any host can run."""

import ast
import sys

import pytest

from topmast.adapters.engines.far import runner
from topmast.adapters.engines.far.runner.tasks import environments


def test_it_is_python_3_8_and_the_standard_library_alone() -> None:
    """Schedulers carry it to hosts on which there is nothing of ours."""
    tree = ast.parse(runner.text(), feature_version=(3, 8))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported - {"__future__"} <= sys.stdlib_module_names


def test_its_modules_define_no_name_twice() -> None:
    """They become one file."""
    tree = ast.parse(runner.text())
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    names += [
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]
    assert sorted(names) == sorted(set(names))
    assert "main" in names


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
    found = environments({"ranks": seats, "envs": {}}, orders, tmp_path, "nonce")  # type: ignore[arg-type]
    assert [found[str(rank)]["CUDA_VISIBLE_DEVICES"] for rank in (0, 1)] == want
    assert {one["MASTER_ADDR"] + ":" + one["MASTER_PORT"] for one in found.values()} == {
        "10.0.0.1:4000"
    }
