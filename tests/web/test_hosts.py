"""An operator acts on a host, by mouse and by keyboard; the confirmation says what is hit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.live import eventually

if TYPE_CHECKING:
    from tests.support.weblab.browser import Viewer
    from tests.support.weblab.stage import Stage

pytestmark = [pytest.mark.web, pytest.mark.slow, pytest.mark.timeout(1200)]

HOST = "north-1-2"


def state(stage: Stage) -> str:
    return next(host.state for host in stage.client.hosts() if host.name == HOST)


@pytest.mark.parametrize("by_keys", [False, True])
def test_a_host_is_put_aside_and_brought_back(stage: Stage, viewer: Viewer, by_keys: bool) -> None:
    with viewer.window() as window:
        page = window.open(f"/fleet?host={HOST}")

        def press(name: str) -> None:
            button = page.get_by_role("button", name=name, exact=True)
            if by_keys:
                button.focus()
                page.keyboard.press("Enter")
            else:
                button.click()

        page.get_by_label("Reason").fill("the fan is loud")
        press("Cordon")
        assert "takes no new work" in page.locator("#host-confirm").inner_text()
        press("No")
        assert state(stage) == "healthy"
        press("Cordon")
        press("Yes")
        eventually(lambda: state(stage) == "cordoned", "the host is cordoned")
        page.get_by_role("button", name="Uncordon").wait_for()
        assert "the fan is loud" in page.locator("main").inner_text()
        press("Uncordon")
        press("Yes")
        eventually(lambda: state(stage) == "healthy", "the host takes work")
        assert window.complaints == []
