"""What an ignore file leaves out."""

from dataclasses import dataclass

import pytest

from topmast.client.ignore import Ignored


@dataclass(frozen=True)
class Case:
    story: str
    patterns: str
    out: str = ""
    kept: str = ""


CASES = [
    Case("a name, anywhere", "data", out="data a/data a/b/data", kept="data2 mydata"),
    Case("a star stays within a name", "*.ckpt", out="x.ckpt a/x.ckpt", kept="x.ckpt2"),
    Case("a star between", "a/*.txt", out="a/x.txt", kept="a/b/x.txt b/a/x.txt"),
    Case("a folder only", "runs/", out="runs/ a/runs/", kept="runs"),
    Case("from the top", "/out", out="out", kept="a/out"),
    Case("a folder from the top", "/out/", out="out/", kept="a/out/ out"),
    Case("across folders", "a/**/x", out="a/x a/b/x a/b/c/x", kept="x b/x"),
    Case("everything below", "a/**", out="a/x a/b/x", kept="a"),
    Case("anywhere below", "**/x/y", out="x/y a/x/y", kept="x/z"),
    Case("a question mark", "x?", out="x1", kept="x x/y x12"),
    Case("a group", "x[0-9a]", out="x1 xa", kept="xb x"),
    Case("not in a group", "x[!0-9]", out="xa", kept="x1 x/"),
    Case("an open group is a bracket", "x[1", out="x[1", kept="x1"),
    Case("an impossible group is literal", "x[z-a]", out="x[z-a]", kept="xb"),
    Case("regular expressions mean nothing", "a.b+(c)", out="a.b+(c)", kept="axb aab"),
    Case("a comment", "#x\n", kept="x #x"),
    Case("an escaped hash", "\\#x", out="#x", kept="x"),
    Case("an escaped bang", "\\!x", out="!x", kept="x"),
    Case("taken back", "*.log\n!keep.log", out="a.log", kept="keep.log a/keep.log"),
    Case("and left out again", "*.log\n!a.log\na.log", out="a.log"),
    Case("spaces at the end", "x  \r\n", out="x", kept="y"),
    Case("nothing", "\n/\n!\n  \n", kept="x a/b"),
    Case("never part of a snapshot", "!.git\n!*", out=".git a/.git .venv/ a/__pycache__"),
    Case("git's other files are", "", kept=".gitignore .github"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_leaves_out(case: Case) -> None:
    """Each pattern leaves out what it would in a .gitignore, and nothing else."""
    ignored = Ignored(case.patterns.split("\n"))
    for path in case.out.split():
        assert ignored.leaves_out(path.rstrip("/"), path.endswith("/")), path
    for path in case.kept.split():
        assert not ignored.leaves_out(path.rstrip("/"), path.endswith("/")), path
