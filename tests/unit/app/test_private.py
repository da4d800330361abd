"""What a server keeps to itself: its folder, and the token that processes show each other."""

from pathlib import Path

import pytest

from topmast.app.folder import ROLE, own_folder
from topmast.app.token import read_token
from topmast.model.errors import InvalidInput

TOKEN = "0123456789abcdef"


def mode(path: Path) -> int:
    """The permissions of a file or folder."""
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("content", [None, ROLE, "journal.sqlite"])
def test_a_state_folder_that_is_open_to_others_is_closed(
    tmp_path: Path, content: str | None
) -> None:
    """Whether it is empty or was made by an earlier version."""
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o755)
    if content is not None:
        (state / content).touch()
    own_folder(state)
    assert mode(state) == 0o700


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Nobody's home is closed to those who use it."""
    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home" / "notes").touch()
    with pytest.raises(InvalidInput, match=r"open to other users.*chmod 700"):
        own_folder(tmp_path / "home")
    assert mode(tmp_path / "home") == 0o755


@pytest.mark.parametrize(("bits", "taken"), [(0o600, True), (0o644, False), (0o640, False)])
def test_a_token_that_others_may_read_is_refused(tmp_path: Path, bits: int, taken: bool) -> None:
    """It would be no secret."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(bits)
    if taken:
        assert read_token(file) == TOKEN
    else:
        with pytest.raises(InvalidInput, match=r"can be read by other users.*chmod 600"):
            read_token(file)


def test_a_folder_that_cannot_be_made_is_told_with_its_option(tmp_path: Path) -> None:
    """Below a file, as in a part of the system where nothing can be made."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="file/state cannot be made: Not a directory") as told:
        own_folder(tmp_path / "file" / "state")
    assert told.value.field == "--state"
