"""What README and the documentation show at a prompt is what is printed."""

from pathlib import Path

import pytest

from tests.support.pages.play import play
from tests.support.pages.script import PAGES, REPO, steps

pytestmark = pytest.mark.timeout(600)


def _with(kind: str) -> list[Path]:
    return [page for page in PAGES if any(step.kind == kind for step in steps(page))]


def _name(page: Path) -> str:
    return page.relative_to(REPO).as_posix()


@pytest.mark.parametrize("page", _with("run"), ids=_name)
def test_a_page_shows_what_is_printed(page: Path, tmp_path: Path) -> None:
    """Each command of each block does what the page says; `make docs-output` writes what is new."""
    found = play(page, tmp_path / "page")
    assert not found, "\n\n".join(str(difference) for difference in found)


@pytest.mark.slow
@pytest.mark.parametrize("page", _with("slow"), ids=_name)
def test_a_page_shows_what_is_printed_after_a_while(page: Path, tmp_path: Path) -> None:
    """The same, with the blocks that take long."""
    found = play(page, tmp_path / "page", slow=True)
    assert not found, "\n\n".join(str(difference) for difference in found)
