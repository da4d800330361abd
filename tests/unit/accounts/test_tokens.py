"""Tokens: their form finds slips, and what is kept of one does not give it away."""

import pytest

from topmast.accounts import digest_of, is_token, new_token
from topmast.model.messages import TokenKind

RANDOM = bytes(range(1, 25))


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (TokenKind.PERSONAL, "tm_pat_"),
        (TokenKind.SERVICE, "tm_sa_"),
        (TokenKind.SESSION, "tm_ses_"),
    ],
)
def test_a_token_says_what_it_is(kind: TokenKind, prefix: str) -> None:
    """Prefix, 30 random characters, 6 of a checksum."""
    token = new_token(kind, RANDOM)
    assert token.startswith(prefix)
    assert len(token) == len(prefix) + 36
    assert is_token(token)
    assert new_token(kind, RANDOM[::-1]) != token


def test_each_slip_of_one_character_is_found() -> None:
    """A token with one character changed, lost or doubled is no token."""
    token = new_token(TokenKind.PERSONAL, RANDOM)
    for place in range(len("tm_pat_"), len(token)):
        other = "a" if token[place] != "a" else "b"
        assert not is_token(token[:place] + other + token[place + 1 :])
        assert not is_token(token[:place] + token[place + 1 :])
        assert not is_token(token[:place] + token[place] * 2 + token[place + 1 :])
    assert not is_token(token.replace("tm_pat_", "tm_sa_"))
    assert not is_token(f"{token}\n")


def test_the_digest_is_what_others_compute() -> None:
    """SHA-256, in hexadecimal."""
    known = "693b8b33360b273907b60afffc2593b622c578bd6060f1f9eae2ca06fed33fc7"
    assert digest_of("tm_pat_x") == known
