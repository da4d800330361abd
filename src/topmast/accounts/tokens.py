"""The text of tokens: a prefix, 30 random characters, and a checksum against slips."""

from __future__ import annotations

import hashlib
import re
import zlib

from topmast.model.messages import TokenKind

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANDOM_CHARACTERS = 30
"""178 bits: too many to be guessed, so a fast digest is enough to keep them."""
CHECK_CHARACTERS = 6
PREFIXES = {
    TokenKind.PERSONAL: "tm_pat_",
    TokenKind.SERVICE: "tm_sa_",
    TokenKind.SESSION: "tm_ses_",
}
FORM = re.compile(r"tm_(?:pat|sa|ses)_[0-9A-Za-z]{36}")


def new_token(kind: TokenKind, random_bytes: bytes) -> str:
    """A token made of random bytes, of which it needs 23 or more."""
    head = PREFIXES[kind] + _base62(int.from_bytes(random_bytes, "big"), RANDOM_CHARACTERS)
    return head + _check(head)


def is_token(text: str) -> bool:
    """Whether a text has the form of a token, and was not mistyped."""
    return (
        FORM.fullmatch(text) is not None
        and _check(text[:-CHECK_CHARACTERS]) == (text[-CHECK_CHARACTERS:])
    )


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _check(head: str) -> str:
    return _base62(zlib.crc32(head.encode()), CHECK_CHARACTERS)


def _base62(number: int, digits: int) -> str:
    found = ""
    for _ in range(digits):
        number, digit = divmod(number, len(ALPHABET))
        found = ALPHABET[digit] + found
    return found
