"""Runs the ranks of one attempt on one host, and answers for their ends: TICKET_FILE|- HOST.

Schedulers carry it to their hosts as one file (`text`), which needs the standard library of Python
3.8 or newer, and nothing of Topmast. Three kinds of processes, so that neither a frozen nor a
killed one leaves tasks alive beyond the lease:

- the *keeper* is what the scheduler started. It is the parent of all, obeys, and never waits for
  the network. At the end of a lease it kills what runs, whatever the caller does;
- the *caller* talks to home: it claims, beats, and carries orders in, output and ends out. When the
  keeper dies or stands still, the caller ends everything;
- a *supervisor* for each task is the parent in the last resort of its processes: when it has no
  child, nothing of the task is left. When the keeper dies, it ends them.

Exit status 0: home knows every end. 3: refused, because another runner has the claim or the attempt
is over. 75: home could not be reached.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from functools import cache
from importlib import resources

MODULES = ("processes", "calls", "references", "tasks", "caller", "keeper")
"""In the order in which they need one another."""
LATER_MODULES = {
    "DATA": (("cache", "fetch", "saving", "staging"), ("Saving", "Staging", "cache_of")),
    "EXECS": (("execs",), ("attend",)),
    "ARCHIVE": (("topmast.adapters.archive",), ("unpack_as_process",)),
}
"""Compiled when they are used, as most attempts have no data to fetch or to save, no commands
beside their tasks, and no work folder: by the name of their text, the modules, and what the others
call of them.
"""

LATER = frozenset(
    {
        "ctypes", "hashlib", "http.client", "pathlib", "secrets", "shutil", "ssl", "tarfile",
        "tempfile", "urllib.error", "urllib.parse", "urllib.request",
    }
)  # fmt: skip
"""Imported when they are used: most attempts start without, or have their claim under way by then.
In an image without compiled modules, imports are most of what a runner takes.
"""
_HEAD = """
class Later:
    def __init__(self, module, name=""):
        self.module, self.name = module, name

    def __getattr__(self, attribute):
        return getattr(__import__(self.module, fromlist=[attribute]), attribute)

    def __call__(self, *arguments):
        return getattr(self, self.name)(*arguments)


class Part:
    def __init__(self, text, name):
        self.text, self.name = text, name

    def __call__(self, *arguments):
        exec(compile(globals()[self.text], "<%s of the runner>" % self.text, "exec"), globals())
        return globals()[self.name](*arguments)

"""


@cache
def text() -> str:
    """The file that launchers carry to hosts and run there: ``python3 FILE TICKET_FILE|- HOST``.

    It has what is below the imports of each module: no two of them define the same name.
    """
    head = f'"""{__doc__}"""\n\nfrom __future__ import annotations\n\n'
    later = []
    for part, (modules, names) in LATER_MODULES.items():
        later.append(f"{part} = {joined(modules)!r}")
        later += [f"{name} = Part({part!r}, {name!r})" for name in names]
    return "\n".join([f"{head}Any = NoReturn = object\n{_HEAD}", *later, joined(MODULES)])


def joined(modules: Sequence[str], package: str = __name__, later: Collection[str] = LATER) -> str:
    """Modules of a package as one text, their imports first; those of ``later`` when used.

    One of another package has its whole name.
    """
    imports: dict[str, None] = {}
    bodies = []
    for name in modules:
        place, _, module = name.rpartition(".")
        source = resources.files(place or package).joinpath(f"{module}.py").read_text("utf-8")
        lines = source.splitlines(keepends=True)
        body_from = 0
        for node in ast.parse(source).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                body_from = node.end_lineno or 0
                said = _import(node, later)
                if not re.search(r"\b(__future__|topmast|typing)\b", said):
                    imports[said] = None
        bodies.append("".join(lines[body_from:]))
    return "\n".join(imports) + "\n" + "".join(bodies)


def _import(node: ast.Import | ast.ImportFrom, later: Collection[str]) -> str:
    """An import, or what stands for it until it is used."""
    alias = node.names[0]
    called = alias.asname or alias.name
    if isinstance(node, ast.ImportFrom) and node.module in later:
        return f"{called} = Later({node.module!r}, {alias.name!r})"
    if isinstance(node, ast.Import) and alias.name in later:
        return f"{called} = Later({alias.name!r})"
    return ast.unparse(node)
