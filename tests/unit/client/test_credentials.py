"""Which token is shown to which server."""

from pathlib import Path

import pytest

from topmast.client.credentials import keep_token, token_for
from topmast.model.errors import InvalidInput

URL = "https://topmast.example.com"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("TOPMAST_TOKEN", raising=False)


def test_the_token_of_the_environment_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the account of a program on a machine where a person is logged in."""
    keep_token(URL, "tm_pat_kept")
    monkeypatch.setenv("TOPMAST_TOKEN", "tm_sa_given")
    assert token_for(URL) == "tm_sa_given"


def test_a_broken_token_is_not_replaced_by_that_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program with half a token must not act as the person who logged in."""
    monkeypatch.setenv("TOPMAST_TOKEN", "a-truncated-one")
    assert token_for(URL) == ""  # the secret of links is shown to no route of callers
    keep_token(URL, "tm_pat_kept")
    with pytest.raises(InvalidInput, match="no token of an account") as wrong:
        token_for(URL)
    assert wrong.value.remedy == "unset TOPMAST_TOKEN to use the kept one"
