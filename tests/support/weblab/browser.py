"""Pages in a real browser, and all that it complains of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.support.weblab.tools import AXE, chromium

THEMES = "light", "dark"
WIDTHS_PX = 360, 820, 1360
HEIGHT_PX = 900
PLAIN = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(".scroll { background: none !important }");
  document.adoptedStyleSheets = [sheet];
}"""
"""axe judges no text before a picture, such as the shadows of tables."""
TOLD = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""


class Window:
    """One page that is open, and what is wrong with it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._url = url
        self._host = urlsplit(url).netloc
        self.complaints: list[str] = []
        """Errors on the console, exceptions, reports of the policy, requests to other hosts."""
        page.add_init_script(TOLD)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self._host:
            self.complaints.append(f"request to another host: {request.url}")

    def open(self, path: str) -> Page:
        """Go to a path of the server."""
        self.page.goto(self._url + path, wait_until="load")
        return self.page

    def violations(self) -> list[str]:
        """What axe-core finds: rule, and the elements. What it brings on the console is its own."""
        before = len(self.complaints)
        self.page.evaluate(AXE.read_text("utf-8"))
        self.page.evaluate(PLAIN)
        found: dict[str, Any] = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']})"
        )
        del self.complaints[before:]
        return [
            f"{rule['id']}: {rule['help']}: {node['html'][:200]} ({node['failureSummary'][:300]})"
            for rule in found["violations"]
            for node in rule["nodes"][:3]
        ]

    def too_wide_px(self) -> int:
        """By how much the page is wider than its window."""
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        found: int = self.page.evaluate(width)
        return found


class Viewer:
    """A browser that opens windows on one server."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self.url = url.rstrip("/")

    @contextmanager
    def window(
        self, *, theme: str = "light", width_px: int = WIDTHS_PX[-1], scripts: bool = True
    ) -> Iterator[Window]:
        """A window with nothing remembered of earlier ones."""
        scheme: Any = theme
        context = self._browser.new_context(
            color_scheme=scheme, viewport={"width": width_px, "height": HEIGHT_PX},
            java_script_enabled=scripts, reduced_motion="reduce",
        )  # fmt: skip
        try:
            yield Window(context.new_page(), self.url)
        finally:
            context.close()


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium without a screen."""
    with sync_playwright() as driver:
        # Root may not use Chromium's sandbox; pages are our own.
        found = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()
