"""The accounts machine: the one owner of tokens, people, service accounts and roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from topmast.accounts import facts as f
from topmast.accounts.records import Binding, Person, ServiceAccount, Token
from topmast.model import messages as m
from topmast.model.access import ROOT, ROOT_ONLY, Grant, Permission, Principal
from topmast.model.errors import Conflict, InvalidInput, NotFound, TopmastError
from topmast.ports import Decision

FORGET_S = 30 * 86_400.0
"""How long an expired token is still listed."""
USE_NOTED_S = 3_600.0
"""A use is noted if the last one that was noted is older."""
GROUPS_HOLD_S = 30 * 86_400.0
"""How long after a login a person has the roles of its groups: the provider may have changed them.

Roles of the person's own end only when they are revoked.
"""
MOST_TOKENS = 200
"""Of one owner."""


class _State(Struct):
    """All of it, as a snapshot holds it."""

    tokens: list[Token] = []
    people: list[Person] = []
    accounts: list[ServiceAccount] = []
    bindings: list[Binding] = []


class Accounts:
    """Tokens by digest, and everything that says what their owners may do.

    Other threads may call what only reads: each look-up is a single read of a dictionary.
    """

    def __init__(self) -> None:
        self.tokens: dict[str, Token] = {}
        """By id, in the order in which they were made."""
        self.people: dict[str, Person] = {}
        """By subject."""
        self.accounts: dict[str, ServiceAccount] = {}
        self.bindings: dict[Binding, None] = {}
        self.count_at: dict[str, int] = {}
        """Service accounts, their tokens, and roles, by the tenant that they are of."""
        self._by_digest: dict[str, str] = {}
        self._tokens_of: dict[str, dict[str, Token]] = {}
        """By subject and id."""
        self._of_subject: dict[str, dict[Binding, int]] = {}
        """Which of all that were ever made each is, by subject."""
        self._bindings_made = 0

    # --- reading --------------------------------------------------------------------------------

    def token_of(self, digest: str, now: float) -> Token | None:
        """The token with a digest, unless it has expired."""
        token = self.tokens.get(self._by_digest.get(digest, ""))
        return token if token is not None and now < token.expires_s else None

    def tokens_of(self, subject: str) -> tuple[Token, ...]:
        """The tokens of one owner, in the order in which they were made. O(these)."""
        return tuple(self._tokens_of.get(subject, {}).values())

    def principal(
        self, subject: str, now: float, scopes: tuple[Permission, ...] | None = None
    ) -> Principal:
        """What a subject may do now. O(its groups and roles)."""
        names = [subject]
        person = self.people.get(subject)
        if person is not None and now < person.login_s + GROUPS_HOLD_S:
            names += [f"group:{group}" for group in dict.fromkeys(person.groups)]
        held = dict[Binding, int]()
        for name in names:
            held |= self._of_subject.get(name, {})
        grants = [Grant(b.role, b.tenant) for b in sorted(held, key=held.__getitem__)]
        return Principal(subject, tuple(grants), scopes)

    # --- the machine ----------------------------------------------------------------------------

    def handle(self, event: m.Message, now: float) -> Decision:
        """Take one event; an answer that is an error has changed nothing."""
        if type(event) not in DECIDERS:
            return Decision()
        try:
            facts = self.judge(event, now)
        except TopmastError as error:
            return Decision(reply=error)
        for fact in facts:
            self.apply(event, fact, now)
        return Decision(facts, reply=True)

    def apply(self, event: m.Message, fact: Struct, at_s: float) -> None:
        """Change the state by one fact."""
        _CHANGES[type(fact)](self, fact)

    def next_wakeup_s(self) -> float | None:
        """Nothing happens here by itself: whatever expires is compared with the time of a look."""
        return None

    def snapshot(self) -> bytes:
        """All of it."""
        return msgspec.json.encode(
            _State(
                list(self.tokens.values()), list(self.people.values()),
                list(self.accounts.values()), list(self.bindings),
            )
        )  # fmt: skip

    def restore(self, blob: bytes) -> None:
        """Take up what `snapshot` wrote."""
        state = msgspec.json.decode(blob, type=_State)
        self.tokens, self._by_digest, self.accounts = {}, {}, {}
        self.bindings, self._of_subject, self.count_at, self._tokens_of = {}, {}, {}, {}
        self.people = {person.subject: person for person in state.people}
        for account in state.accounts:
            self._keep_account(f.AccountKept(account))
        for token in state.tokens:
            self._keep_token(f.TokenKept(token))
        for binding in state.bindings:
            self._keep_binding(f.BindingKept(binding))

    # --- deciding -------------------------------------------------------------------------------

    def judge(self, event: m.Message, now: float) -> list[f.Fact]:
        """What an event changes, or would change. Raises TopmastError."""
        return DECIDERS[type(event)](self, event, now)

    def _create_token(self, event: m.CreateToken, now: float) -> list[f.Fact]:
        if event.id in self.tokens or event.digest in self._by_digest:
            raise Conflict("there is such a token already")
        if event.kind is m.TokenKind.SERVICE:
            self._account(event.subject.removeprefix("sa:"))
        own = self.tokens_of(event.subject)
        alive = [t for t in own if now < t.expires_s and t.kind is event.kind]
        if len(alive) >= MOST_TOKENS and event.kind is not m.TokenKind.SESSION:
            message = f"{event.subject} has {len(alive)} tokens already; revoke some"
            raise Conflict(message)
        stale = [t for t in self.tokens.values() if t.expires_s + FORGET_S < now]
        if event.kind is m.TokenKind.SESSION and len(alive) >= MOST_TOKENS:
            stale.append(alive[0])
        kept = Token(
            event.id, event.kind, event.subject, event.digest, event.last_four, now,
            event.expires_s, event.scopes, event.label,
        )  # fmt: skip
        return [*(f.TokenGone(t.id) for t in stale), f.TokenKept(kept)]

    def _revoke_token(self, event: m.RevokeToken, now: float) -> list[f.Fact]:
        if event.id not in self.tokens:
            raise NotFound(f"no token '{event.id}'")
        return [f.TokenGone(event.id)]

    def _note_use(self, event: m.NoteTokenUse, now: float) -> list[f.Fact]:
        token = self.tokens.get(event.id)
        if token is None or (token.used_s is not None and now < token.used_s + USE_NOTED_S):
            return []
        return [f.TokenKept(msgspec.structs.replace(token, used_s=now))]

    def _note_login(self, event: m.NoteLogin, now: float) -> list[f.Fact]:
        return [f.PersonKept(Person(event.subject, event.groups, now))]

    def _add_account(self, event: m.AddServiceAccount, now: float) -> list[f.Fact]:
        known = self.accounts.get(event.name)
        if known is not None and known.tenant != event.tenant:
            raise Conflict(
                f"there is a service account '{event.name}' already; choose another name"
            )
        return [] if known else [f.AccountKept(ServiceAccount(event.name, event.tenant))]

    def _remove_account(self, event: m.RemoveServiceAccount, now: float) -> list[f.Fact]:
        self._account(event.name)
        return [f.AccountGone(event.name)]

    def _grant(self, event: m.GrantRole, now: float) -> list[f.Fact]:
        binding = Binding(event.subject, event.role, event.tenant)
        kind, _, name = event.subject.partition(":")
        if kind not in ("user", "sa", "group") or not name:
            raise InvalidInput(
                f"'{event.subject}' is no subject", field="subject",
                remedy="user:NAME, sa:NAME or group:NAME",
            )  # fmt: skip
        if kind == "sa":
            self._account(name)
        if event.role in ROOT_ONLY and event.tenant != ROOT:
            raise InvalidInput(
                f"the role {event.role} is about things that no tenant owns", field="tenant",
                remedy="grant it at the root, which is /",
            )  # fmt: skip
        return [] if binding in self.bindings else [f.BindingKept(binding)]

    def _revoke(self, event: m.RevokeRole, now: float) -> list[f.Fact]:
        binding = Binding(event.subject, event.role, event.tenant)
        if binding not in self.bindings:
            at = event.tenant or "the root"
            raise NotFound(f"{event.subject} has no role {event.role} at {at}")
        return [f.BindingGone(binding)]

    def _account(self, name: str) -> ServiceAccount:
        found = self.accounts.get(name)
        if found is None:
            raise NotFound(f"no service account '{name}'")
        return found

    # --- changing -------------------------------------------------------------------------------

    def _count(self, tenant: str, more: int) -> None:
        self.count_at[tenant] = self.count_at.get(tenant, 0) + more
        if not self.count_at[tenant]:
            del self.count_at[tenant]

    def _count_token(self, token: Token, more: int) -> None:
        account = self.accounts.get(token.subject.removeprefix("sa:"))
        if token.subject.startswith("sa:") and account is not None:
            self._count(account.tenant, more)

    def _keep_token(self, fact: f.TokenKept) -> None:
        if fact.token.id not in self.tokens:
            self._count_token(fact.token, 1)
        self.tokens[fact.token.id] = fact.token
        self._by_digest[fact.token.digest] = fact.token.id
        self._tokens_of.setdefault(fact.token.subject, {})[fact.token.id] = fact.token

    def _drop_token(self, fact: f.TokenGone) -> None:
        token = self.tokens.pop(fact.id, None)
        if token is not None:
            self._count_token(token, -1)
            self._by_digest.pop(token.digest, None)
            of_subject = self._tokens_of[token.subject]
            del of_subject[token.id]
            if not of_subject:
                del self._tokens_of[token.subject]

    def _drop_account(self, fact: f.AccountGone) -> None:
        subject = f"sa:{fact.name}"
        for token in self.tokens_of(subject):
            self._drop_token(f.TokenGone(token.id))
        for binding in tuple(self._of_subject.get(subject, ())):
            self._drop_binding(f.BindingGone(binding))
        account = self.accounts.pop(fact.name, None)
        if account is not None:
            self._count(account.tenant, -1)

    def _keep_person(self, fact: f.PersonKept) -> None:
        self.people[fact.person.subject] = fact.person

    def _keep_account(self, fact: f.AccountKept) -> None:
        if fact.account.name not in self.accounts:
            self._count(fact.account.tenant, 1)
        self.accounts[fact.account.name] = fact.account

    def _keep_binding(self, fact: f.BindingKept) -> None:
        binding = fact.binding
        if binding not in self.bindings:
            self._count(binding.tenant, 1)
            self._bindings_made += 1
            of_subject = self._of_subject.setdefault(binding.subject, {})
            of_subject[binding] = self._bindings_made
            self.bindings[binding] = None

    def _drop_binding(self, fact: f.BindingGone) -> None:
        binding = fact.binding
        if binding not in self.bindings:
            return
        del self.bindings[binding]
        self._count(binding.tenant, -1)
        of_subject = self._of_subject[binding.subject]
        del of_subject[binding]
        if not of_subject:
            del self._of_subject[binding.subject]


DECIDERS: dict[type[m.Message], Callable[[Accounts, Any, float], list[f.Fact]]] = {
    m.CreateToken: Accounts._create_token,
    m.RevokeToken: Accounts._revoke_token,
    m.NoteTokenUse: Accounts._note_use,
    m.NoteLogin: Accounts._note_login,
    m.AddServiceAccount: Accounts._add_account,
    m.RemoveServiceAccount: Accounts._remove_account,
    m.GrantRole: Accounts._grant,
    m.RevokeRole: Accounts._revoke,
}
_CHANGES: dict[type[Struct], Callable[[Accounts, Any], None]] = {
    f.TokenKept: Accounts._keep_token,
    f.TokenGone: Accounts._drop_token,
    f.PersonKept: Accounts._keep_person,
    f.AccountKept: Accounts._keep_account,
    f.AccountGone: Accounts._drop_account,
    f.BindingKept: Accounts._keep_binding,
    f.BindingGone: Accounts._drop_binding,
}
