"""A real OpenID provider on this machine, and a person that logs in there with a browser."""

from __future__ import annotations

import fcntl
import html
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

import httpx

from tests.support.live import eventually, free_ports

FOLDER = Path(__file__).parent / "oidc"
INSTALL_S = 300
START_S = 240
"""Node.js reads some thousand files before it answers: minutes on a busy machine with a cold disk."""


def install() -> bool:
    """Install what the lock file names, unless it is there; False without Node.js or the registry.

    One process at a time: `npm ci` takes away what another one has just installed.
    """
    with (FOLDER / "provider.mjs").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        return _installed()


def _installed() -> bool:
    if shutil.which("node") and (FOLDER / "node_modules" / ".package-lock.json").is_file():
        return True  # npm writes that file last
    if shutil.which("npm") is None or shutil.which("node") is None:
        return False
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command, cwd=FOLDER, capture_output=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


class Provider:
    """The process of a provider, on one port; it may be stopped and started again."""

    def __init__(self, redirect_uri: str, in_userinfo: bool = False) -> None:
        (self.port,) = free_ports(1)
        self.issuer = f"http://127.0.0.1:{self.port}"
        self._redirect_uri = redirect_uri
        self._environment = {**os.environ, "IN_USERINFO": "1" if in_userinfo else "0"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        command = ["node", "provider.mjs", str(self.port), self._redirect_uri]
        process = subprocess.Popen(
            command, cwd=FOLDER, env=self._environment, stdout=subprocess.DEVNULL
        )  # fmt: skip
        self._process = process
        eventually(
            lambda: process.poll() is not None or self._answers(), "the provider answers", START_S
        )
        assert process.poll() is None, f"the provider ended by itself, with {process.returncode}"

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.issuer}/.well-known/openid-configuration").status_code == 200
        except httpx.HTTPError:
            return False

    def halt(self) -> None:
        """It answers nothing, and keeps what it knows, until it goes on."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """It is away."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def provider(redirect_uri: str, in_userinfo: bool = False) -> Iterator[Provider]:
    """A provider that runs."""
    found = Provider(redirect_uri, in_userinfo)
    found.start()
    try:
        yield found
    finally:
        found.stop()


class Browser:
    """A person at the provider's pages."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.http = httpx.Client(timeout=20.0)

    def until(self, url: str, *, address: str = "", text: str = "") -> str:
        """Follow redirects and fill in forms up to an address, or a page with a text; its address."""
        answer = self.http.get(url)
        for _ in range(20):
            if answer.is_redirect:
                onward = urljoin(str(answer.url), answer.headers["location"])
                if address and onward.startswith(address):
                    return onward
                answer = self.http.get(onward)
                continue
            if text and text in answer.text:
                return str(answer.url)
            answer = self._fill_in(answer)
        raise AssertionError(f"not at {address or text}: {answer.status_code} {answer.text[:2000]}")

    def _fill_in(self, answer: httpx.Response) -> httpx.Response:
        """Send the form of a page with the name of the person."""
        form = re.search(r"<form(.*?)</form>", answer.text, re.DOTALL)
        assert form is not None, f"{answer.status_code} {answer.text[:2000]}"
        action = re.search(r'action="([^"]*)"', form[1])
        fields: dict[str, str] = {}
        for tag in re.findall(r"<(?:input|button)[^>]*>", form[1]):
            name = re.search(r'name="([^"]*)"', tag)
            value = re.search(r'value="([^"]*)"', tag)
            if name is not None and name[1] != "abort":
                fields[name[1]] = html.unescape(value[1]) if value is not None else ""
        if "login" in fields or "password" in fields:
            fields |= {"login": self.name, "password": "any"}
        target = urljoin(str(answer.url), html.unescape(action[1])) if action else str(answer.url)
        return self.http.post(target, data=fields)
