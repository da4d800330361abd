"""The bans hold in the whole source, and the checker that says so is itself checked."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.bans import check

REPO = Path(__file__).resolve().parents[2]
PACKAGE = REPO / "src" / "topmast"


# ------------------------------------------------------------------------------ the whole source


def test_the_source_keeps_the_bans() -> None:
    """No file of the package breaks a rule of `bans.py`."""
    findings = [
        str(finding)
        for file in sorted(PACKAGE.rglob("*.py"))
        for finding in check(file.relative_to(PACKAGE).as_posix(), file.read_text("utf-8"))
    ]
    assert not findings, "\n" + "\n".join(findings)


HEAVY = [
    "email", "importlib.metadata", "matplotlib", "msgspec", "numba", "numpy", "pandas", "scipy",
    "sklearn", "sqlalchemy", "topmast.cli.rootoptions",
]  # fmt: skip

ASK_FOR_HELP = f"""
import sys
sys.argv = ["topmast", "--help"]
import topmast.app
try:
    topmast.app.main()
except SystemExit as exit:
    assert not exit.code, exit.code
heavy = sorted(set(sys.modules) & set({HEAVY}))
assert not heavy, f"topmast --help imports {{', '.join(heavy)}}: import them where they are used"
"""


def test_help_imports_nothing_heavy() -> None:
    """`topmast --help` answers at once: it loads no library of numbers or messages, and no database."""
    command = [sys.executable, "-c", ASK_FOR_HELP]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr


# Put together here, so that this file does not contain what it looks for.
HOSTS = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "npmjs" + ".org",
    "npmjs" + ".com",
    "yarnpkg" + ".com",
    "anaconda" + ".org",
    "debian" + ".org/debian",
]
ONE_MACHINE = re.compile(r"(?<![\w.~-])/(?:" + "|".join(["work", "root"]) + r")/")


def strays(text: str) -> list[str]:
    """Addresses of package registries, and paths of one machine, in a text."""
    hosts = [f"a package registry: {host}" for host in HOSTS if host in text.lower()]
    return hosts + [f"a path of one machine: {path}" for path in ONE_MACHINE.findall(text)]


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    """What is committed builds anywhere, from any mirror."""
    if not (REPO / ".git").exists():
        pytest.skip("this is not a git checkout, so nothing says which files are ours")
    command = ["git", "-C", str(REPO), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    files = [REPO / name for name in listed.split("\0") if name]
    findings = [
        f"{file.relative_to(REPO)}: {stray}"
        for file in files
        if file.is_file()
        for stray in strays(file.read_text("utf-8", errors="ignore"))
    ]
    assert not findings, "\n" + "\n".join(findings)


# ----------------------------------------------------------------------------- the checker itself


@dataclass(frozen=True)
class Case:
    """A file that someone might write, and a word of what the checker should say of it."""

    story: str
    path: str
    source: str
    want: str  # part of the only finding's message; "" wants no finding


HIDDEN_INPUT = [
    Case("a model reads the clock", "model/a.py", "import time\nnow = time.time()", "time.time"),
    Case("by another name", "fast/a.py", "from time import monotonic as m\nm()", "hidden time"),
    Case("as a default", "fast/a.py", "import time\ndef f(now=time.time): ...", "hidden time"),
    Case("sleeps", "runtime/a.py", "import time as t\nt.sleep(1)", "time.sleep"),
    Case("now", "slow/a.py", "from datetime import UTC, datetime\ndatetime.now(UTC)", "time"),
    Case("utcnow", "slow/a.py", "import datetime\ndatetime.datetime.utcnow()", "utcnow"),
    Case("today", "slow/a.py", "from datetime import date\ndate.today()", "today"),
    Case("an adapter may read it", "adapters/clock.py", "import time\ntime.time()", ""),
    Case("a field called time", "fast/a.py", "def f(event):\n    return event.time", ""),
    Case("a global die", "policies/a.py", "import random\nrandom.choice([1])", "random.choice"),
    Case("a seeded die", "policies/a.py", "import random\nrandom.Random(7).choice([1])", ""),
    Case("a die seeded by chance", "policies/a.py", "import random\nrandom.Random()", "seed"),
    Case("numpy's die", "predict/a.py", "import numpy as np\nnp.random.rand()", "randomness"),
    Case("numpy's seeded", "predict/a.py", "import numpy as np\nnp.random.default_rng(7)", ""),
    Case("numpy's unseeded", "predict/a.py", "import numpy as np\nnp.random.default_rng()", "seed"),
    Case("a die handed in", "policies/a.py", "def f(random):\n    return random.choice([1])", ""),
    Case("a random id", "model/a.py", "import uuid\nuuid.uuid4()", "Ids"),
    Case("a derived id", "model/a.py", "import uuid\nuuid.uuid5(uuid.NAMESPACE_URL, 'x')", ""),
    Case("environment", "runtime/a.py", "import os\nos.environ.get('HOME')", "os.environ"),
    Case("prints", "fast/a.py", "print('placed')", "print"),
    Case("opens a file", "model/a.py", "open('fleet.yaml')", "no I/O"),
    Case("an open market", "model/a.py", "def f(market):\n    return market.open(1)", ""),
]

IMPORTS = [
    Case("a socket in the model", "model/a.py", "import socket", "import of socket"),
    Case("a process in a policy", "policies/a.py", "from subprocess import run", "subprocess"),
    Case("threads in a scope", "fast/a.py", "import threading", "import of threading"),
    Case("threads in the runtime", "runtime/a.py", "import threading, queue", ""),
    Case("a database in the runtime", "runtime/a.py", "import sqlalchemy.engine", "sqlalchemy"),
    Case("our own queue", "fast/a.py", "import topmast.fast.queue", ""),
    Case("a socket in an adapter", "adapters/a.py", "import socket", ""),
]

SETS = [
    Case("a literal", "a.py", "for x in {1, 2}: ...", "sorted"),
    Case("a set call", "a.py", "for x in set(y): ...", "sorted"),
    Case("a comprehension", "a.py", "z = [x for x in {y for y in w}]", "sorted"),
    Case("a dict from a set", "a.py", "z = {x: 1 for x in frozenset(y)}", "sorted"),
    Case("a list of a set", "a.py", "z = list(set(y))", "sorted"),
    Case("a tuple of a set", "a.py", "z = tuple({1, 2})", "sorted"),
    Case("a set counted", "a.py", "for i, x in enumerate(set(y)): ...", "sorted"),
    Case("a set unpacked", "a.py", "z = [*set(y)]", "sorted"),
    Case("a set joined", "a.py", "z = ', '.join({'a', 'b'})", "sorted"),
    Case("a difference", "a.py", "for x in set(y) - z: ...", "sorted"),
    Case("a union", "a.py", "for x in set(y).union(z): ...", "sorted"),
    Case("common keys", "a.py", "for x in y.keys() & z.keys(): ...", "sorted"),
    Case("sorted first", "a.py", "for x in sorted(set(y)): ...", ""),
    Case("sorted after", "a.py", "z = sorted(x.name for x in set(y))", ""),
    Case("a set of a set", "a.py", "z = {x + 1 for x in set(y)}", ""),
    Case("membership", "a.py", "z = [x for x in y if x in {1, 2}]", ""),
    Case("bits", "a.py", "for x in range(y & z): ...", ""),
]

UNSAFE = [
    Case("pickle", "adapters/a.py", "import pickle", "import of pickle"),
    Case("part of pickle", "adapters/a.py", "from pickle import loads", "import of pickle"),
    Case("a pickled array", "adapters/a.py", "np.load(f, allow_pickle=True)", "allow_pickle"),
    Case("eval", "cli/a.py", "eval('1')", "eval"),
    Case("exec", "cli/a.py", "exec('x = 1')", "exec"),
    Case("a method called exec", "adapters/a.py", "engine.exec(job)", ""),
    Case(
        "a shell", "adapters/a.py", "import subprocess\nsubprocess.run('ls', shell=True)", "shell"
    ),
    Case("no shell", "adapters/a.py", "import subprocess\nsubprocess.run(['ls'], shell=False)", ""),
    Case("os.system", "adapters/a.py", "from os import system\nsystem('ls')", "no shell"),
    Case("YAML", "model/a.py", "import yaml\nyaml.load(text, Loader=yaml.Loader)", "safe_load"),
    Case("YAML, no loader", "model/a.py", "import yaml\nyaml.load(text)", "safe_load"),
    Case("YAML, full", "model/a.py", "import yaml\nyaml.full_load(text)", "safe_load"),
    Case("YAML, safe", "model/a.py", "import yaml\nyaml.load(text, Loader=yaml.CSafeLoader)", ""),
]

SWITCHES = [
    Case("a parameter", "fast/a.py", "def f(is_simulation): ...", "another adapter"),
    Case("an argument", "service/a.py", "f(simulated=yes)", "another adapter"),
    Case("an attribute", "runtime/a.py", "x = self.simulated", "another adapter"),
    Case("if sim", "runtime/a.py", "if sim: ...", "another adapter"),
    Case("if not self.sim", "runtime/a.py", "x = 1 if ready and not self.sim else 2", "adapter"),
    Case("the simulator", "sim/engine.py", "def f(simulated): ...", ""),
    Case("the word in a text", "fast/a.py", "x = 'a simulated fleet'", ""),
]

LENGTH = [
    Case("one screen", "a.py", "def f():\n" + "    x = 1\n" * 69, ""),
    Case("a line more", "a.py", "def f():\n" + "    x = 1\n" * 70, "f has 71 lines"),
]


@pytest.mark.parametrize(
    "case",
    [*HIDDEN_INPUT, *IMPORTS, *SETS, *UNSAFE, *SWITCHES, *LENGTH],
    ids=lambda case: f"{case.path}: {case.story}",
)
def test_the_checker_sees(case: Case) -> None:
    """Each bad line is found once and named; each innocent one is left alone."""
    findings = [str(finding) for finding in check(case.path, case.source)]
    if not case.want:
        assert findings == []
    else:
        assert len(findings) == 1, findings
        assert case.want in findings[0]


def test_strays_are_seen() -> None:
    """Registry hosts and absolute paths are found; routes and relative paths are not."""
    assert strays("see https://" + "pypi" + ".org/simple") == ["a package registry: pypi" + ".org"]
    assert strays("cd " + "/".join(["", "work", "main"]))
    harmless = [
        "~/wo" + "rk/x",
        "./wo" + "rk/x",
        "/workers/1",
        "docs/ro" + "ot/x",
        "https://host/api",
    ]
    assert strays("  ".join(harmless)) == []
