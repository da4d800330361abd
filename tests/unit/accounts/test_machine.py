"""The accounts machine: tokens, people, service accounts and roles, and what they allow."""

import random
from collections import Counter

import msgspec
import pytest

from topmast.accounts import Accounts
from topmast.accounts.machine import FORGET_S, GROUPS_HOLD_S, MOST_TOKENS, USE_NOTED_S
from topmast.model import messages as m
from topmast.model.access import ALLOWED, MEANING, Grant, Permission, Principal, Role
from topmast.model.errors import Conflict, InvalidInput, NotFound
from topmast.ports import Decision

NOW, HOUR_S = 1_000.0, 3_600.0


def token(number: int = 1, subject: str = "user:ann", **fields: object) -> m.CreateToken:
    """The order to make a token that lasts an hour."""
    given = {"kind": m.TokenKind.PERSONAL, "expires_s": NOW + HOUR_S} | fields
    return m.CreateToken(
        f"t{number}",
        subject=subject,
        digest=f"d{number}",
        last_four="abcd",
        **given,  # type: ignore[arg-type]
    )


def do(accounts: Accounts, *events: m.Message, now: float = NOW) -> Decision:
    """Hand over events; the last decision."""
    decisions = [accounts.handle(event, now) for event in events]
    return decisions[-1]


def test_a_token_is_good_until_it_expires_or_is_revoked() -> None:
    """It is found by its digest; at its last moment it is good no more."""
    accounts = Accounts()
    do(accounts, token(), token(2, expires_s=NOW + 1))
    assert [accounts.token_of(d, NOW) is not None for d in ("d1", "d2", "d3")] == [
        True,
        True,
        False,
    ]
    assert accounts.token_of("d2", NOW + 1) is None
    do(accounts, m.RevokeToken("t1"))
    assert accounts.token_of("d1", NOW) is None
    assert isinstance(do(accounts, m.RevokeToken("t1")).reply, NotFound)
    assert isinstance(do(accounts, token(2)).reply, Conflict)


def test_the_tokens_of_an_owner_are_found_without_those_of_others() -> None:
    """As they are used, revoked or go with their account; also after a restart."""
    accounts, service = Accounts(), {"kind": m.TokenKind.SERVICE}
    do(accounts, m.AddServiceAccount("ci", "vision"))
    do(accounts, token(1), token(2, "sa:ci", **service), token(3), token(4, "sa:ci", **service))
    do(accounts, m.RevokeToken("t1"), m.NoteTokenUse("t3"))
    restored = Accounts()
    restored.restore(accounts.snapshot())
    for one in (accounts, restored):
        assert [(t.id, t.used_s) for t in one.tokens_of("user:ann")] == [("t3", NOW)]
        assert [t.id for t in one.tokens_of("sa:ci")] == ["t2", "t4"]
        do(one, m.RemoveServiceAccount("ci"), m.RevokeToken("t3"))
        assert one.tokens_of("sa:ci") == one.tokens_of("user:ann") == ()
        assert not one._tokens_of


def test_expired_tokens_are_listed_for_a_while_and_then_forgotten() -> None:
    """The next token that is made makes room."""
    accounts = Accounts()
    do(accounts, token(1))
    later = NOW + HOUR_S + FORGET_S
    do(accounts, token(2, expires_s=later + 9), now=later)
    assert list(accounts.tokens) == ["t1", "t2"]
    do(accounts, token(3, expires_s=later + 9), now=later + 1)
    assert list(accounts.tokens) == ["t2", "t3"]


def test_an_owner_has_a_bounded_number_of_tokens() -> None:
    """A further token is refused; of the sessions the oldest makes room."""
    accounts = Accounts()
    do(accounts, *(token(n) for n in range(MOST_TOKENS)))
    assert isinstance(do(accounts, token(MOST_TOKENS)).reply, Conflict)
    assert do(accounts, token(MOST_TOKENS, "user:bob")).reply is True
    sessions = [token(1000 + n, kind=m.TokenKind.SESSION) for n in range(MOST_TOKENS + 1)]
    do(accounts, *sessions)
    assert "t1000" not in accounts.tokens
    assert "t1200" in accounts.tokens


def test_a_use_is_noted_now_and_then() -> None:
    """Not each use is worth a record."""
    accounts = Accounts()
    do(accounts, token())
    assert len(do(accounts, m.NoteTokenUse("t1")).facts) == 1
    assert not do(accounts, m.NoteTokenUse("t1"), now=NOW + USE_NOTED_S - 1).facts
    assert len(do(accounts, m.NoteTokenUse("t1"), now=NOW + USE_NOTED_S).facts) == 1
    assert not do(accounts, m.NoteTokenUse("gone")).facts


def test_a_service_account_goes_with_its_tokens_and_roles() -> None:
    """Nothing of it is left for a later account of the name."""
    accounts = Accounts()
    made = token(1, "sa:ci", kind=m.TokenKind.SERVICE)
    assert isinstance(do(accounts, made).reply, NotFound)
    do(
        accounts,
        m.AddServiceAccount("ci", "vision"),
        m.GrantRole("sa:ci", Role.SUBMITTER, "vision"),
    )
    taken = do(accounts, m.AddServiceAccount("ci", "speech")).reply
    assert isinstance(taken, Conflict)
    assert "choose another name" in str(taken)
    assert not do(accounts, m.AddServiceAccount("ci", "vision")).facts
    do(accounts, made)
    assert accounts.principal("sa:ci", NOW).grants == (Grant(Role.SUBMITTER, "vision"),)
    do(accounts, m.RemoveServiceAccount("ci"))
    assert (accounts.tokens, accounts.principal("sa:ci", NOW).grants) == ({}, ())
    assert isinstance(do(accounts, m.GrantRole("sa:ci", Role.VIEWER, "")).reply, NotFound)


def test_roles_of_groups_hold_for_a_time_after_the_login() -> None:
    """A group that the provider took away counts no more; a person that never returns loses them."""
    accounts = Accounts()
    do(
        accounts,
        m.GrantRole("group:ml", Role.SUBMITTER, "vision"),
        m.GrantRole("user:ann", Role.VIEWER, ""),
    )
    assert accounts.principal("user:ann", NOW).grants == (Grant(Role.VIEWER, ""),)
    do(accounts, m.NoteLogin("user:ann", ("ml", "x")))
    both = (Grant(Role.SUBMITTER, "vision"), Grant(Role.VIEWER, ""))
    assert accounts.principal("user:ann", NOW).grants == both
    assert accounts.principal("user:ann", NOW + GROUPS_HOLD_S).grants == both[1:]
    do(accounts, m.NoteLogin("user:ann", ("x",)))
    assert accounts.principal("user:ann", NOW).grants == both[1:]


@pytest.mark.parametrize(
    ("order", "kind"),
    [
        (m.GrantRole("ann", Role.VIEWER, ""), InvalidInput),
        (m.GrantRole("user:", Role.VIEWER, ""), InvalidInput),
        (m.GrantRole("user:ann", Role.OPERATOR, "vision"), InvalidInput),
        (m.GrantRole("user:ann", Role.ADMIN, "vision"), InvalidInput),
        (m.RevokeRole("user:ann", Role.VIEWER, ""), NotFound),
    ],
)
def test_what_cannot_be_granted_is_refused(order: m.Message, kind: type[Exception]) -> None:
    """A subject without a kind; roles about the fleet at a tenant; what was never granted."""
    accounts = Accounts()
    decision = do(accounts, order)
    assert isinstance(decision.reply, kind)
    assert not decision.facts


def test_a_snapshot_and_the_recorded_facts_both_give_the_state_again() -> None:
    """What a standby applies, and what a restart restores, is what the leader had."""
    accounts, follower, restored = Accounts(), Accounts(), Accounts()
    events = [
        token(1), token(2, "user:bob", scopes=(Permission.JOBS_VIEW,)), m.NoteTokenUse("t2"),
        m.AddServiceAccount("ci", "vision"), m.GrantRole("sa:ci", Role.SUBMITTER, "vision"),
        m.NoteLogin("user:ann", ("ml",)), m.GrantRole("group:ml", Role.ADMIN, ""),
        m.RevokeToken("t1"), m.RevokeRole("group:ml", Role.ADMIN, ""),
    ]  # fmt: skip
    for event in events:
        for fact in accounts.handle(event, NOW).facts:
            follower.apply(event, fact, NOW)
    restored.restore(accounts.snapshot())
    for other in (follower, restored):
        assert other.snapshot() == accounts.snapshot()
        assert other.token_of("d2", NOW) == accounts.token_of("d2", NOW)
        assert other.token_of("d1", NOW) is None
    assert msgspec.json.decode(accounts.snapshot())["tokens"][0]["used_s"] == NOW


def test_roles_grow_and_scopes_narrow_them() -> None:
    """viewer < submitter < tenant-admin; admin may everything; a token may be good for less."""
    viewer, submitter, tenant_admin = (
        ALLOWED[role] for role in (Role.VIEWER, Role.SUBMITTER, Role.TENANT_ADMIN)
    )
    assert viewer < submitter < tenant_admin < ALLOWED[Role.ADMIN] == set(Permission)
    assert submitter < ALLOWED[Role.OPERATOR]
    assert set(MEANING) == set(Permission)
    ann = Principal("user:ann", (Grant(Role.SUBMITTER, "research"),))
    assert ann.may(Permission.JOBS_SUBMIT, ("nlp", "research", ""))
    assert not ann.may(Permission.JOBS_SUBMIT, ("sales", ""))
    assert not ann.may(Permission.JOBS_OTHERS, ("research", ""))
    narrow = Principal("user:ann", ann.grants, (Permission.JOBS_VIEW,))
    assert narrow.may(Permission.JOBS_VIEW, ("research", ""))
    assert not narrow.may(Permission.JOBS_SUBMIT, ("research", ""))
    assert not narrow.may_somewhere(Permission.FLEET_VIEW)
    assert (ann.user, Principal("sa:ci").user) == ("ann", "sa:ci")


@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_is_counted_by_tenant(seed: int) -> None:
    """Accounts, their tokens and roles, also after a snapshot and whatever is removed."""
    rng, accounts = random.Random(seed), Accounts()
    names, tenants, made = "abc", ("vision", "speech", ""), 0
    for _ in range(200):
        name, tenant, made = rng.choice(names), rng.choice(tenants), made + 1
        subject = rng.choice((f"sa:{name}", "user:ann"))
        order = rng.choice((
            m.AddServiceAccount(name, tenant), m.RemoveServiceAccount(name),
            m.GrantRole(subject, Role.VIEWER, tenant), m.RevokeRole(subject, Role.VIEWER, tenant),
            token(made, f"sa:{name}", kind=m.TokenKind.SERVICE),
            token(made),
            m.RevokeToken(f"t{rng.randint(1, made)}"), m.NoteTokenUse(f"t{rng.randint(1, made)}"),
        ))  # fmt: skip
        accounts.handle(order, NOW)
        want = Counter(account.tenant for account in accounts.accounts.values())
        want.update(binding.tenant for binding in accounts.bindings)
        owners = [accounts.accounts.get(t.subject[3:]) for t in accounts.tokens.values()]
        want.update(owner.tenant for owner in owners if owner is not None)
        assert accounts.count_at == want
        held = [Grant(b.role, b.tenant) for b in accounts.bindings if b.subject == subject]
        assert accounts.principal(subject, NOW).grants == tuple(held)
        if rng.random() < 0.1:
            before, blob = accounts.count_at, accounts.snapshot()
            accounts = Accounts()
            accounts.restore(blob)
            assert accounts.count_at == before
