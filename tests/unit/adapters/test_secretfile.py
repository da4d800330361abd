"""Files with secrets: a mode that lets others read them is refused or warned of."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from topmast.adapters.secretfile import require_private
from topmast.model.errors import InvalidInput


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o400, False), (0o640, True)])
def test_the_group_of_a_secret_is_warned_of(tmp_path: Path, mode: int, warns: bool) -> None:
    file = tmp_path / "key.pem"
    file.touch()
    file.chmod(mode)
    with capture_logs() as told:
        require_private(file, "--tls-key")
    assert [line["remedy"] for line in told] == [f"chmod 600 {file}"] * warns


def test_all_users_are_refused(tmp_path: Path) -> None:
    """As for the tokens that processes share."""
    file = tmp_path / "secret"
    file.touch()
    file.chmod(0o604)
    with pytest.raises(InvalidInput, match="can be read by all users") as refused:
        require_private(file, "client_secret_file")
    assert (refused.value.field, refused.value.remedy) == (
        "client_secret_file",
        f"chmod 600 {file}",
    )


def test_a_file_of_another_owner_is_there_for_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container gets its secrets so: owned by root, for the group of the server."""
    file = tmp_path / "key.pem"
    file.touch()
    file.chmod(0o440)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with capture_logs() as told:
        require_private(file, "--tls-key")
    assert not told
