"""Which token is shown to which server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client.fake import FakeServer, problem
from topmast import Client
from topmast.client.credentials import keep_token, token_for
from topmast.model.errors import Forbidden, InvalidInput

URL = "https://topmast.example.com"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A server that answers as it is told."""
    with FakeServer() as fake:
        yield fake


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
    with pytest.raises(InvalidInput) as wrong:
        token_for(URL)
    assert str(wrong.value) == (
        "TOPMAST_TOKEN: holds no token of an account: those begin with tm_; the one that `topmast "
        "login` keeps may be of another account (unset TOPMAST_TOKEN to use the kept one)"
    )
    for broken in ("tm_pat_a\u200bb", "tm_pat_a b"):
        monkeypatch.setenv("TOPMAST_TOKEN", broken)
        with pytest.raises(InvalidInput) as wrong:
            token_for(URL)
        assert str(wrong.value) == (
            "TOPMAST_TOKEN: holds characters that no token has (copy the token again: tm_, then "
            "letters, digits and _)"
        )


def test_a_login_that_is_asked_for_says_what_is_wrong_with_the_variable(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not shown, so the server knows of none."""
    asks = problem(401, "this server asks for a login", remedy="topmast login, or a token")
    server.on("GET", "/whoami", asks)
    told = {}
    for token in ("", "half-a-token", "tm_pat_unknown"):
        monkeypatch.setenv("TOPMAST_TOKEN", token)
        with Client(server.url) as client, pytest.raises(Forbidden) as refused:
            client.whoami()
        told[token] = refused.value.remedy
    assert told == {
        "": "topmast login, or a token",
        "half-a-token": "TOPMAST_TOKEN holds no token of an account: those begin with tm_",
        "tm_pat_unknown": "topmast login, or a token",
    }
