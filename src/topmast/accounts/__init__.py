"""Tokens, people, service accounts and roles: a machine, so that they are journalled like jobs."""

from topmast.accounts.facts import AccountsFact
from topmast.accounts.machine import USE_NOTED_S, Accounts
from topmast.accounts.records import Binding, Person, ServiceAccount, Token
from topmast.accounts.tokens import digest_of, is_token, new_token

__all__ = [
    "USE_NOTED_S",
    "Accounts",
    "AccountsFact",
    "Binding",
    "Person",
    "ServiceAccount",
    "Token",
    "digest_of",
    "is_token",
    "new_token",
]
