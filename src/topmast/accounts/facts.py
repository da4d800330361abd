"""What the accounts machine decided: each fact holds the whole record that it is about."""

from __future__ import annotations

from msgspec import Struct

from topmast.accounts.records import Binding, Person, ServiceAccount, Token


class Fact(Struct, frozen=True, tag=True):
    """Base of all facts of this machine."""


class TokenKept(Fact, frozen=True):
    """A token is good, with these fields."""

    token: Token


class TokenGone(Fact, frozen=True):
    """A token is good for nothing."""

    id: str


class PersonKept(Fact, frozen=True):
    """A person logged in."""

    person: Person


class AccountKept(Fact, frozen=True):
    """There is a service account."""

    account: ServiceAccount


class AccountGone(Fact, frozen=True):
    """A service account is gone, with its tokens and roles."""

    name: str


class BindingKept(Fact, frozen=True):
    """A role is granted."""

    binding: Binding


class BindingGone(Fact, frozen=True):
    """A role is taken away."""

    binding: Binding


AccountsFact = (
    TokenKept | TokenGone | PersonKept | AccountKept | AccountGone | BindingKept | BindingGone
)
