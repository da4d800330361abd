"""What the source may not say, and why: rules over its syntax tree.

A rule takes one parsed file and yields findings. `check` runs those that apply to the file's place
in the package; `test_bans.py` runs `check` on the whole of it, and on small bad examples.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

DETERMINISTIC = {"model", "policies", "fast", "slow", "predict", "runtime", "sim"}
MAY_SPEAK_OF_SIMULATION = {"sim", "experiments"}
SCREEN_LINES = 70

CLOCK = "hidden time: use the `now` of the event, or the Clock handed in"
CHANCE = "hidden randomness: use the seeded generator handed in"
IDENTITY = "hidden randomness: use the Ids handed in"
SURROUNDINGS = "hidden configuration: settings are handed in by app"
OUTPUT = "no printing here: return it, or log it at the edge"
FILES = "no I/O below the adapters: take bytes or text, return bytes or text"

HIDDEN = {
    "time.time": CLOCK,
    "time.time_ns": CLOCK,
    "time.monotonic": CLOCK,
    "time.monotonic_ns": CLOCK,
    "time.perf_counter": CLOCK,
    "time.perf_counter_ns": CLOCK,
    "time.sleep": CLOCK,
    "datetime.datetime.now": CLOCK,
    "datetime.datetime.utcnow": CLOCK,
    "datetime.datetime.today": CLOCK,
    "datetime.date.today": CLOCK,
    "uuid.uuid1": IDENTITY,
    "uuid.uuid4": IDENTITY,
    "os.urandom": CHANCE,
    "os.environ": SURROUNDINGS,
    "os.getenv": SURROUNDINGS,
    "builtins.print": OUTPUT,
    "builtins.open": FILES,
}
# Generators that are fine once seeded; every other name of these modules draws from a global one.
SEEDED = {"random.Random", "numpy.random.default_rng"}
RANDOM_TYPES = {"numpy.random.Generator", "numpy.random.PCG64", "numpy.random.SeedSequence"}

NETWORK_AND_PROCESSES = {
    "http", "httpx", "multiprocessing", "requests", "secrets", "select", "selectors",
    "signal", "socket", "socketserver", "ssl", "subprocess", "sqlalchemy",
}  # fmt: skip
CONCURRENCY = {"asyncio", "concurrent", "queue", "threading"}

UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
UNSAFE = {
    "builtins.eval": "no eval: parse it",
    "builtins.exec": "no exec: import it",
    "os.system": "no shell: give subprocess a list",
    "os.popen": "no shell: give subprocess a list",
    "subprocess.getoutput": "no shell: give subprocess a list",
    "subprocess.getstatusoutput": "no shell: give subprocess a list",
    "asyncio.create_subprocess_shell": "no shell: use create_subprocess_exec",
    "yaml.unsafe_load": "unsafe YAML: use yaml.safe_load",
    "yaml.unsafe_load_all": "unsafe YAML: use yaml.safe_load_all",
    "yaml.full_load": "unsafe YAML: use yaml.safe_load",
    "yaml.full_load_all": "unsafe YAML: use yaml.safe_load_all",
}
SAFE_LOADERS = {"yaml.SafeLoader", "yaml.CSafeLoader"}

SIMULATION_SWITCHES = {
    "in_simulation", "is_sim", "is_simulated", "is_simulation", "sim_mode", "simulated",
    "simulation_mode",
}  # fmt: skip
SIMULATION_IN_A_CONDITION = SIMULATION_SWITCHES | {"sim", "simulate", "simulation"}

IN_ORDER = {"list", "tuple", "enumerate", "iter", "zip", "map", "filter", "reversed", "next", "sum"}
ORDER_FREE = {"builtins.sorted", "builtins.set", "builtins.frozenset"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference"}


@dataclass(frozen=True)
class Finding:
    """One place that breaks one rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Source:
    """One file of the package, `path` counted from the package's folder."""

    path: str
    text: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text, self.path)))

    @cached_property
    def imports(self) -> list[tuple[str, int]]:
        """Absolute names imported, each with its line."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(alias.name, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.append((node.module or "", node.lineno))
        return found

    @cached_property
    def bound(self) -> dict[str, str]:
        """What imports bind: {"dt": "datetime.datetime"} after `from datetime import datetime as dt`."""
        names = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    names[alias.asname or root] = alias.name if alias.asname else root
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    def name(self, node: ast.AST) -> str:
        """The full dotted name of an expression, or "" if it is not a name; not imported: builtins."""
        if isinstance(node, ast.Name):
            return self.bound.get(node.id, f"builtins.{node.id}")
        if isinstance(node, ast.Attribute):
            owner = self.name(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    def finding(self, line: int, message: str) -> Finding:
        return Finding(self.path, line, message)


def check(path: str, text: str) -> list[Finding]:
    """Every finding in one file of the package."""
    source = Source(path, text)
    place = PurePosixPath(path).parts[0]
    rules = [unsafe, iteration_over_sets, long_functions]
    if place in DETERMINISTIC:
        rules += [hidden_inputs, forbidden_imports]
    if place not in MAY_SPEAK_OF_SIMULATION:
        rules.append(simulation_switches)
    return sorted(
        (finding for rule in rules for finding in rule(source)), key=lambda found: found.line
    )


def hidden_inputs(source: Source) -> Iterator[Finding]:
    """A deterministic part reads no clock, draws no number, and asks nothing of its surroundings."""
    for node in source.nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            name = source.name(node)
            if name in HIDDEN:
                yield source.finding(node.lineno, f"{_plain(name)}: {HIDDEN[name]}")
            elif _draws_from_a_global_generator(name):
                yield source.finding(node.lineno, f"{name}: {CHANCE}")
        elif isinstance(node, ast.Call):
            name = source.name(node.func)
            if name in SEEDED and not node.args and not node.keywords:
                yield source.finding(node.lineno, f"{name}() without a seed: {CHANCE}")


def _draws_from_a_global_generator(name: str) -> bool:
    module = name.rpartition(".")[0]
    return module in {"random", "numpy.random"} and name not in SEEDED | RANDOM_TYPES


def forbidden_imports(source: Source) -> Iterator[Finding]:
    """Sockets, processes and databases belong to adapters; threads, to the runtime as well."""
    may_thread = source.path.startswith("runtime/")
    for name, line in source.imports:
        root = name.partition(".")[0]
        if root in NETWORK_AND_PROCESSES or (root in CONCURRENCY and not may_thread):
            yield source.finding(line, f"import of {name}: no I/O below the adapters")


def iteration_over_sets(source: Source) -> Iterator[Finding]:
    """The order of a set differs from run to run, and so would the decision."""
    order_free = _generators_whose_order_is_lost(source)
    for node in source.nodes:
        walked: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor):
            walked = [node.iter]
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
            walked = [] if node in order_free else [part.iter for part in node.generators]
        elif isinstance(node, ast.Starred):
            walked = [node.value]
        elif isinstance(node, ast.Call) and _keeps_order(node):
            walked = node.args
        for expression in walked:
            if _is_set(source, expression):
                yield source.finding(expression.lineno, "iterates over a set: wrap it in sorted()")


def _generators_whose_order_is_lost(source: Source) -> set[ast.expr]:
    return {
        argument
        for node in source.nodes
        if isinstance(node, ast.Call) and source.name(node.func) in ORDER_FREE
        for argument in node.args
        if isinstance(argument, ast.GeneratorExp | ast.ListComp)
    }


def _keeps_order(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in IN_ORDER
    return isinstance(call.func, ast.Attribute) and call.func.attr == "join"


def _is_set(source: Source, node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in SET_METHODS:
            return _is_set(source, owner)
        case ast.Call(func=function):
            return source.name(function) in {"builtins.set", "builtins.frozenset"}
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.BitXor() | ast.Sub()):
            return any(
                _is_set(source, side) or _is_key_view(side) for side in (node.left, node.right)
            )
    return False


def _is_key_view(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "keys"
    )


def unsafe(source: Source) -> Iterator[Finding]:
    """Nothing runs code out of data."""
    for name, line in source.imports:
        if name.partition(".")[0] in UNSAFE_MODULES:
            yield source.finding(line, f"import of {name}: it runs code out of data")
    for node in source.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and source.name(node) in UNSAFE:
            name = source.name(node)
            yield source.finding(node.lineno, f"{_plain(name)}: {UNSAFE[name]}")
        elif isinstance(node, ast.Call):
            yield from _unsafe_arguments(source, node)


def _unsafe_arguments(source: Source, call: ast.Call) -> Iterator[Finding]:
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    for name in ("shell", "allow_pickle"):
        value = given.get(name)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
            yield source.finding(call.lineno, f"{name}=...: it runs code out of data")
    if source.name(call.func) in {"yaml.load", "yaml.load_all"}:
        loader = given.get("Loader", call.args[1] if len(call.args) > 1 else None)
        if loader is None or source.name(loader) not in SAFE_LOADERS:
            yield source.finding(call.lineno, "unsafe YAML: use yaml.safe_load, or a safe Loader")


def simulation_switches(source: Source) -> Iterator[Finding]:
    """Simulated or live is decided once, in app, by the adapters handed in."""
    message = "a simulation switch: hand in another adapter instead"
    for node in source.nodes:
        for name in _identifiers(node):
            if name.lower() in SIMULATION_SWITCHES:
                yield source.finding(getattr(node, "lineno", 1), f"{name}: {message}")
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            for part in _operands(node.test):
                words = [*_identifiers(part), ""]
                if words[0].lower() in SIMULATION_IN_A_CONDITION - SIMULATION_SWITCHES:
                    yield source.finding(node.test.lineno, f"if {words[0]}: {message}")


def _identifiers(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.keyword(arg=str(name)):
            return [name]
    return []


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    """`a`, `b` and `c` of `a and not b or c`."""
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _operands(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _operands(operand)
        case _:
            yield test


def long_functions(source: Source) -> Iterator[Finding]:
    """A function fits a screen."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > SCREEN_LINES:
                message = (
                    f"{node.name} has {lines} lines: a function fits a screen ({SCREEN_LINES})"
                )
                yield source.finding(node.lineno, message)


def _plain(name: str) -> str:
    return name.removeprefix("builtins.")
