"""Chromium from Debian's packages; axe-core and TypeScript from npm, in the user's cache.

python -m tests.support.weblab.tools install
python -m tests.support.weblab.tools types     # check the types of the dashboard's modules
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "topmast-web"
MODULES = CACHE / "node_modules"
AXE = MODULES / "axe-core" / "axe.min.js"
TSC = MODULES / "typescript" / "bin" / "tsc"
LOCKED = "package.json", "package-lock.json"
STATIC = HERE.parents[2] / "src" / "topmast" / "web" / "static"
PACKAGES = "chromium", "fonts-dejavu-core"
INSTALL_S = 600


def chromium() -> str | None:
    """The browser's program."""
    return shutil.which("chromium")


def missing() -> str:
    """Why no browser can be driven here; empty if one can."""
    if chromium() is None:
        return "no chromium (run `make web-tools`)"
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "no playwright"
    return "" if AXE.is_file() else "no axe-core (run `make web-tools`)"


def install() -> int:
    """Install what is missing; 1 if it cannot be had."""
    try:
        if chromium() is None:
            _install_chromium()
        if not _is_installed():
            _install_modules()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _install_chromium() -> None:
    as_root = () if os.geteuid() == 0 else ("sudo", "-n")
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y")
    options = "install", "--no-install-recommends"
    for words in (("update",), (*options, *PACKAGES)):
        subprocess.run(
            [*as_root, *quiet, *words], check=True, stdout=subprocess.DEVNULL, timeout=INSTALL_S
        )


def _is_installed() -> bool:
    written = MODULES / ".package-lock.json"  # npm writes that file last
    same = all(
        (CACHE / name).is_file() and (CACHE / name).read_bytes() == (HERE / name).read_bytes()
        for name in LOCKED
    )
    return same and written.is_file()


def _install_modules() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in LOCKED:
        shutil.copy(HERE / name, CACHE / name)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, cwd=CACHE, check=True, timeout=INSTALL_S)


def check_types() -> int:
    """Check all modules of the dashboard with TypeScript; they stay as they are."""
    document = json.loads((HERE / "tsconfig.json").read_bytes())
    document["include"] = [str(STATIC / "**" / "*.js")]
    document["exclude"] = [str(STATIC / "vendor")]
    project = CACHE / "tsconfig.json"
    project.write_text(json.dumps(document), "utf-8")
    return subprocess.run(["node", TSC, "--pretty", "false", "-p", project], check=False).returncode


if __name__ == "__main__":
    sys.exit({"install": install, "types": check_types}[sys.argv[1]]())
