"""Pictures of where the time of each hot path goes: python -m tests.support.flames FOLDER [NAME...].

Each is a benchmark under py-spy, which looks a hundred times a second at what every thread of every
process does. The width of a frame is its part of the time; frames below `LEAST` of it are left out,
and so is the start of the program. A line of JSON for each picture says the parts of the packages.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

PATHS = {
    "search": ("search", "--jobs", "1500", "--no-first-use"),
    "burst": ("burst", "--jobs", "60000", "--gpus-per-host", "64"),
    "apart": ("burst", "--jobs", "3000", "--apart", "--delay", "20ms"),
    "submit": ("submit", "--jobs", "40000", "--duration", "10s"),
    "recover": ("recover", "--jobs", "60000"),
    "simulate": ("simulate", "--jobs", "12000", "--profile", "fifo-skip"),
}
"""By picture, the benchmark."""
RATE = 100
LEAST = 0.004
WIDTH, ROW = 1180, 17
_CHARACTER = 6.2
"""Pixels."""
COLOURS = {
    "fast": "#e8915b", "runtime": "#e3b75f", "adapters": "#8fb573", "model": "#b59ad1",
    "service": "#6fb0c9", "sim": "#d98a9c",
}  # fmt: skip
OTHER, LIBRARY = "#c9c2b4", "#dcdcdc"
_FRAME = re.compile(r"(.*) \((.*):\d+\)")
_NOT_OURS = ("cli", "app", "bench")
"""Packages whose frames stand above what is looked at."""


@dataclass
class Frame:
    """A function in one place of the call tree."""

    name: str
    package: str
    """Of Topmast; empty for what is a library's."""
    samples: int = 0
    below: dict[tuple[str, str], Frame] = field(default_factory=dict)


def package_of(file: str) -> str:
    """The part of Topmast that a file is in; empty for a library."""
    parts = file.split("topmast/")[-1].split("/")
    return parts[0] if "topmast/" in file and len(parts) > 1 else ""


def frames_of(stack: str) -> list[tuple[str, str]]:
    """Names and packages from the first frame that matters; none while the program starts."""
    found = [match.groups() for part in stack.split(";") if (match := _FRAME.fullmatch(part))]
    if any(name in ("<module>", "_find_and_load") for name, _ in found[3:]):
        return []
    frames = [(name, package_of(file)) for name, file in found]
    first = next((i for i, (_, p) in enumerate(frames) if p and p not in _NOT_OURS), len(frames))
    ours = frames[first:]
    # What a library calls of its own is one frame, the first: its layers are not ours to mend.
    return [at for i, at in enumerate(ours) if at[1] or i == 0 or ours[i - 1][1]]


def tree_of(raw: str) -> Frame:
    """All stacks as one tree."""
    root = Frame("all", "")
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = frames_of(stack)
        if not frames:
            continue
        at, samples = root, int(count)
        at.samples += samples
        for key in frames:
            at = at.below.setdefault(key, Frame(*key))
            at.samples += samples
    return root


def parts_of(root: Frame) -> dict[str, float]:
    """By package the part of the time in its own functions, and in libraries that these call."""
    own: Counter[str] = Counter()

    def add(frame: Frame, package: str) -> None:
        package = frame.package or package
        own[package] += frame.samples - sum(one.samples for one in frame.below.values())
        for one in frame.below.values():
            add(one, package)

    add(root, "")
    return {name: round(count / root.samples, 3) for name, count in own.most_common() if name}


def drawn(root: Frame, title: str) -> str:
    """The picture as SVG: callers above, what they call below."""
    shapes: list[str] = []
    deepest = 0

    def draw(frame: Frame, left: float, depth: int) -> None:
        nonlocal deepest
        width = WIDTH * frame.samples / root.samples
        if frame.samples < LEAST * root.samples:
            return
        deepest = max(deepest, depth)
        colour = COLOURS.get(frame.package, OTHER) if frame.package else LIBRARY
        part = f"{100 * frame.samples / root.samples:.1f}%"
        room = int((width - 6) / _CHARACTER)
        text = frame.name if len(frame.name) <= room else frame.name[: max(0, room - 1)] + "…"
        at, top = 10 + left, 40 + depth * ROW
        shapes.append(
            f'<g><title>{escape(frame.name)} {frame.package} {part}</title><rect x="{at:.1f}" '
            f'y="{top}" width="{max(0.5, width - 0.6):.1f}" height="{ROW - 1}" rx="2" fill="{colour}"/>'
            + (f'<text x="{at + 3:.1f}" y="{top + 12}">{escape(text)}</text>' if room > 3 else "")
            + "</g>"
        )
        for one in sorted(frame.below.values(), key=lambda one: (-one.samples, one.name)):
            draw(one, left, depth + 1)
            left += WIDTH * one.samples / root.samples

    draw(root, 0.0, 0)
    legend = "".join(
        f'<rect x="{10 + 110 * i}" y="22" width="11" height="11" fill="{colour}"/>'
        f'<text x="{25 + 110 * i}" y="32">{name}</text>'
        for i, (name, colour) in enumerate({**COLOURS, "other": OTHER, "library": LIBRARY}.items())
    )
    height = 50 + (deepest + 1) * ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 20} {height}" role="img" '
        f'font-family="monospace" font-size="10.5" fill="#222"><rect width="100%" height="100%" '
        f'fill="#fff"/><text x="10" y="14" font-size="12">{escape(title)}</text>{legend}'
        + "".join(shapes) + "</svg>\n"
    )  # fmt: skip


def recorded(words: tuple[str, ...]) -> str:
    """The stacks of a benchmark and of the processes that it starts."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "stacks"
        program = [sys.executable, "-m", "topmast.app", "bench", *words, "--json"]
        spy = str(Path(sys.executable).with_name("py-spy"))
        record = [spy, "record", "--rate", str(RATE), "--format", "raw", "--function"]
        done = subprocess.run(
            [*record, "--subprocesses", "--nonblocking", "--output", str(raw), "--", *program],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not raw.exists():
            raise SystemExit(f"py-spy: {done.stderr[-2_000:]}")
        return raw.read_text("utf-8")


def main() -> None:
    """Record and draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(PATHS)):
        parser.error(f"no picture {unknown[0]}: there are {', '.join(PATHS)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.names or PATHS:
        root = tree_of(recorded(PATHS[name]))
        command = " ".join(("topmast bench", *PATHS[name]))
        (given.folder / f"{name}.svg").write_text(drawn(root, command), "utf-8")
        told = {"picture": name, "samples": root.samples, "parts": parts_of(root)}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
