"""Pages of output."""

import os
from pathlib import Path

import pytest

from topmast.adapters.engines.pages import MOST_BYTES, read_page
from topmast.model.errors import NotFound
from topmast.ports import LogPage


@pytest.mark.parametrize(
    ("offset", "limit", "want"),
    [
        (0, 100, LogPage(b"0123456789", 10, True)),
        (0, 4, LogPage(b"0123", 4, False)),
        (4, 6, LogPage(b"456789", 10, True)),
        (10, 5, LogPage(b"", 10, True)),
        (99, 5, LogPage(b"", 10, True)),
        (3, 0, LogPage(b"", 3, False)),
    ],
)
def test_a_page_says_where_the_next_begins(
    tmp_path: Path, offset: int, limit: int, want: LogPage
) -> None:
    output = tmp_path / "0.log"
    output.write_bytes(b"0123456789")
    assert read_page(output, offset, limit) == want


def test_a_page_has_a_limit_of_its_own(tmp_path: Path) -> None:
    output = tmp_path / "0.log"
    output.write_bytes(b"x" * (MOST_BYTES + 1))
    page = read_page(output, 0, 1 << 40)
    assert page is not None
    assert (len(page.data), page.complete) == (MOST_BYTES, False)


def test_there_is_no_page_without_output(tmp_path: Path) -> None:
    assert read_page(tmp_path / "0.log", 0, 100) is None


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe", "folder"])
def test_output_that_a_task_replaced_is_not_read(tmp_path: Path, kind: str) -> None:
    """Neither another file is served in its place, nor is a writer waited for."""
    output, secret = tmp_path / "0.log", tmp_path / "secret"
    secret.write_bytes(b"secret")
    if kind == "pipe":
        os.mkfifo(output)
    elif kind == "folder":
        output.mkdir()
    else:
        output.symlink_to(secret if kind == "link" else tmp_path / "nowhere")
    with pytest.raises(NotFound, match="the output cannot be read"):
        read_page(output, 0, 100)
    output.rmdir() if kind == "folder" else output.unlink()
    output.write_bytes(b"output")
    assert read_page(output, 0, 100) == LogPage(b"output", 6, True)
