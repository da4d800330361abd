"""The use cases of tokens, service accounts, roles and the audit log."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import msgspec

from topmast.accounts import USE_NOTED_S, Accounts, Binding, Token, digest_of, new_token
from topmast.adapters.handing import handed
from topmast.model import account_views as v
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import ALLOWED, ROOT, TOP, Caller, Permission, Principal, Role
from topmast.model.errors import Faults, Forbidden, InvalidInput, NotFound, refuse_all
from topmast.model.files.fields import nearest, no_such, one_of
from topmast.model.messages import TokenKind
from topmast.model.units import show
from topmast.ports import Act, Clock, Journal
from topmast.runtime.loop import Runtime
from topmast.service.access import NO_REASON, Access, Why, act, json_text
from topmast.service.account_room import refuse_if_full
from topmast.service.auditing import Auditing
from topmast.service.limits import Limits
from topmast.service.redaction import Redaction

DAY_S = 86_400.0
USUAL_S = {TokenKind.PERSONAL: 90 * DAY_S, TokenKind.SERVICE: 365 * DAY_S}
LONGEST_S = 366 * DAY_S
TOKEN_BYTES = 24
MOST_NAMED = 5
"""Roles and accounts in one warning."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SUBJECT = re.compile(r"((user|sa):(?!-$)[^\s:]{1,200}|group:[^\s:]\S{0,199})")
"""Groups may have colons in their names, as those of some providers have. ``-`` is no user."""


class Directory(Auditing):
    """Finds the owners of tokens, and lets principals manage what is theirs to manage."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        clock: Clock,
        access: Access,
        limits: Limits,
        redaction: Callable[[Caller], Redaction | None],
    ) -> None:
        self._runtime = runtime
        self._journal = journal
        self._clock = clock
        self._access = access
        self._limits = limits
        self._redaction = redaction
        self.state: Accounts = runtime.machines.accounts

    # --- proofs ---------------------------------------------------------------------------------

    def caller(self, token: str, address: str = "", request: str = "") -> Caller | None:
        """The caller that shows a token; None for one that is unknown, expired or revoked."""
        now = self._clock.now()
        found = self.state.token_of(digest_of(token), now)
        if found is None:
            return None
        self._note_use(found, now)
        return caller_with(self.state, found, now, address, request)

    def renewed(self, caller: Caller) -> Caller | None:
        """The same caller as things are now; None if its token is good no more."""
        token, now = self.state.tokens.get(caller.token), self._clock.now()
        if token is None or now >= token.expires_s:
            return None
        return caller_with(self.state, token, now, caller.address, caller.request)

    def _note_use(self, token: Token, now: float) -> None:
        if token.used_s is None or now >= token.used_s + USE_NOTED_S:
            self._runtime.post(ids.ACCOUNTS, m.NoteTokenUse(token.id))

    def whoami(self, caller: Caller, *, login: bool) -> v.WhoAmI:
        """The principal of a request."""
        principal = caller.principal
        person = self.state.people.get(principal.subject)
        token = self.state.tokens.get(caller.token)
        return v.WhoAmI(
            principal.subject,
            caller.via,
            tuple(v.RoleView(principal.subject, g.role, shown(g.tenant)) for g in principal.grants),
            person.groups if person is not None else (),
            principal.scopes,
            token.expires_s if token is not None else None,
            login,
        )

    # --- tokens ---------------------------------------------------------------------------------

    async def create_token(
        self,
        caller: Caller,
        label: str = "",
        account: str = "",
        ttl_s: float | None = None,
        scopes: Sequence[str] | None = None,
    ) -> v.NewToken:
        """Make a token of the caller's own, or of a service ``account``."""
        self._limits.take(caller, "submit")
        kind = TokenKind.SERVICE if account else TokenKind.PERSONAL
        subject, tenant = caller.principal.subject, ""
        if not account and subject.startswith("sa:"):
            name = subject.removeprefix("sa:")
            remedy = f"for a tenant-admin of it: topmast tokens create --account {name}"
            message = "a service account makes no tokens: its administrators do"
            raise Forbidden(message, remedy)
        self.check_token(caller, account, ttl_s, scopes)
        if account:
            subject, tenant = f"sa:{account}", self._managed(caller, account)
            refuse_if_full(self.state, self._access, tenant)
        life_s = USUAL_S[kind] if ttl_s is None else ttl_s
        narrowed = _narrowed(caller.principal, scopes)
        line = act(caller, "create-token", tenant=tenant)
        return await self.issue(line, kind, subject, life_s, narrowed, label)

    def check_token(
        self, caller: Caller, account: str, ttl_s: float | None, scopes: Sequence[str] | None
    ) -> None:
        """Raises InvalidInput or NotFound, with all that is wrong, for what no token can be."""
        faults = Faults()
        if account:
            faults.of(partial(self._visible, caller, account, "account"))
        if ttl_s is not None and not 60.0 <= ttl_s <= LONGEST_S:
            faults.add(f"a token lasts from a minute to {LONGEST_S / DAY_S:g} days", "ttl_s")
        faults.of(partial(_check_scopes, scopes or ()))
        faults.refuse()

    async def issue(
        self,
        done: Act,
        kind: TokenKind,
        subject: str,
        life_s: float,
        scopes: tuple[Permission, ...] | None = None,
        label: str = "",
    ) -> v.NewToken:
        """Make a token, as the act says for which caller."""
        token = new_token(kind, secrets.token_bytes(TOKEN_BYTES))
        number = f"t{secrets.token_hex(5)}"
        order = m.CreateToken(
            number, kind, subject, digest_of(token), token[-4:], self._clock.now() + life_s,
            scopes, label,
        )  # fmt: skip
        after = msgspec.json.encode({"subject": subject, "kind": kind, "scopes": scopes}).decode()
        row = msgspec.structs.replace(done.row, object=number)
        kept = Act(row, lambda: after if number in self.state.tokens else "")
        await handed(self._runtime.call(ids.ACCOUNTS, order, kept))
        return v.NewToken(token, _token_view(self.state.tokens[number]))

    def tokens(
        self, caller: Caller, after: tuple[float, str] | None = None, most: int | None = None
    ) -> tuple[v.TokenView, ...]:
        """The caller's own tokens, and those of accounts that it may see, the oldest first.

        ``after``: only those made after one, of that time and id; of these the first ``most``.
        O(all tokens) for one that may see those of others, else O(its own).
        """
        only_own = self._access.tenants(caller, Permission.ACCOUNTS_VIEW) == frozenset()
        own, every = self.state.tokens_of(caller.principal.subject), self.state.tokens.values()
        tokens = sorted(own if only_own else tuple(every), key=lambda one: (one.created_s, one.id))
        found = (
            _token_view(token)
            for token in tokens
            if (after is None or (token.created_s, token.id) > after)
            and self._sees_token(caller, token)
        )
        return tuple(islice(found, most))

    async def revoke_token(self, caller: Caller, number: str, why: Why = NO_REASON) -> v.TokenView:
        """Make a token good for nothing, at once."""
        self._limits.take(caller, "submit")
        token = self.state.tokens.get(number)
        if token is None or not self._sees_token(caller, token):
            raise NotFound(f"no token '{number}'")
        tenant = ""
        if token.subject != caller.principal.subject:
            tenant = self._tenant_of(token.subject)
            self._refuse_above(caller, token.subject)
            self._access.require(caller, Permission.ACCOUNTS_EDIT, tenant)
        order, look = m.RevokeToken(number), partial(self._token_told, number)
        await self._do(caller, "revoke-token", number, tenant, order, why, look)
        return _token_view(token)

    def _sees_token(self, caller: Caller, token: Token) -> bool:
        if token.subject == caller.principal.subject:
            return True
        tenant = self._tenant_of(token.subject)
        return self._access.may(caller, Permission.ACCOUNTS_VIEW, tenant)

    def _tenant_of(self, subject: str) -> str:
        """The tenant of a service account; people belong to the root."""
        account = self.state.accounts.get(subject.removeprefix("sa:"))
        return account.tenant if subject.startswith("sa:") and account is not None else ROOT

    # --- service accounts -----------------------------------------------------------------------

    def accounts(
        self, caller: Caller, after: str = "", most: int | None = None
    ) -> tuple[v.ServiceAccountView, ...]:
        """The service accounts of the tenants that the caller may see, after a name."""
        now, all_tokens = self._clock.now(), tuple(self.state.tokens.values())
        tokens = Counter(token.subject for token in all_tokens if now < token.expires_s)
        found = (
            v.ServiceAccountView(account.name, shown(account.tenant), tokens[f"sa:{account.name}"])
            for account in sorted(self.state.accounts.values(), key=lambda one: one.name)
            if account.name > after
            and self._access.may(caller, Permission.ACCOUNTS_VIEW, account.tenant)
        )
        return tuple(islice(found, most))  # fmt: skip

    async def add_account(
        self, caller: Caller, name: str, tenant: str, why: Why = NO_REASON
    ) -> v.ServiceAccountView:
        """Make a service account, which belongs to a tenant."""
        self._limits.take(caller, "submit")
        tenant = self.check_account(caller, name, tenant)
        self._access.require(caller, Permission.ACCOUNTS_EDIT, tenant)
        if name not in self.state.accounts:
            refuse_if_full(self.state, self._access, tenant)
        order = m.AddServiceAccount(name, tenant)
        look = partial(self._account_told, name)
        await self._do(caller, "add-account", f"sa:{name}", tenant, order, why, look)
        return v.ServiceAccountView(name, shown(tenant), 0)

    def check_account(self, caller: Caller, name: str, tenant: str) -> str:
        """The tenant of a new account. Raises InvalidInput, with all that is wrong."""
        faults = Faults()
        if not _NAME.fullmatch(name):
            remedy = "letters, digits, '.', '_' and '-', beginning with a letter or digit"
            faults.add(f"{show(name)} is not a name", "name", remedy)
        found = faults.of(partial(self._known_tenant, caller, tenant))
        faults.refuse()
        return found

    async def remove_account(
        self, caller: Caller, name: str, why: Why = NO_REASON
    ) -> v.ServiceAccountView:
        """Forget a service account with its tokens and roles; answers what there was.

        Raises Forbidden if it has a role that is not the caller's to take.
        """
        self._limits.take(caller, "submit")
        tenant = self._managed(caller, name)
        there = next(account for account in self.accounts(caller) if account.name == name)
        order = m.RemoveServiceAccount(name)
        look = partial(self._account_told, name)
        await self._do(caller, "remove-account", f"sa:{name}", tenant, order, why, look)
        return there

    def _managed(self, caller: Caller, name: str) -> str:
        """The tenant of a service account that the caller may manage.

        Raises Forbidden if it has a role that is not the caller's to give or to take.
        """
        tenant = self._visible(caller, name)
        self._refuse_above(caller, f"sa:{name}")
        self._access.require(caller, Permission.ACCOUNTS_EDIT, tenant)
        return tenant

    def _visible(self, caller: Caller, name: str, field: str = "") -> str:
        """The tenant of a service account that the caller may see. Raises NotFound."""
        account = self.state.accounts.get(name)
        if account is None or not self._access.may(
            caller, Permission.ACCOUNTS_VIEW, account.tenant
        ):
            known = [account.name for account in self.accounts(caller)]
            raise no_such("service account", name, known, field)
        return account.tenant

    # --- roles ----------------------------------------------------------------------------------

    def roles(
        self, caller: Caller, after: Binding | None = None, most: int | None = None
    ) -> tuple[v.RoleView, ...]:
        """The roles at tenants that the caller may see, after one."""
        found = (
            v.RoleView(binding.subject, binding.role, shown(binding.tenant))
            for binding in sorted(self.state.bindings)
            if (after is None or binding > after)
            and self._access.may(caller, Permission.ACCOUNTS_VIEW, binding.tenant)
        )
        return tuple(islice(found, most))

    async def grant(
        self, caller: Caller, subject: str, role: str, tenant: str, why: Why = NO_REASON
    ) -> v.RoleView:
        """Give a role; none above the caller's own, and none to an account that it may not see."""
        self._limits.take(caller, "submit")
        binding = self._asked(caller, subject, role, tenant, gives=True)
        self._require_above(caller, binding)
        self._check_subject(caller, subject)
        if binding not in self.state.bindings:
            refuse_if_full(self.state, self._access, binding.tenant)
        order = m.GrantRole(binding.subject, binding.role, binding.tenant)
        await self._change_role(caller, "grant-role", binding, order, why)
        return v.RoleView(binding.subject, binding.role, shown(binding.tenant))

    async def revoke(
        self, caller: Caller, subject: str, role: str, tenant: str, why: Why = NO_REASON
    ) -> v.RoleView:
        """Take a role away; none above the caller's own."""
        self._limits.take(caller, "submit")
        held = self._held(caller, subject, role, tenant)
        binding = held or self._asked(caller, subject, role, tenant, gives=False)
        self._require_above(caller, binding)
        order = m.RevokeRole(binding.subject, binding.role, binding.tenant)
        await self._change_role(caller, "revoke-role", binding, order, why)
        return v.RoleView(binding.subject, binding.role, shown(binding.tenant))

    async def _change_role(
        self, caller: Caller, verb: str, binding: Binding, order: m.Message, why: Why
    ) -> None:
        look = partial(self._roles_told, binding.subject)
        await self._do(caller, verb, binding.subject, binding.tenant, order, why, look)

    def check_role(
        self, caller: Caller, subject: str, role: str, tenant: str, *, gives: bool
    ) -> None:
        """Raises InvalidInput or NotFound, with all that is wrong; ``gives``: it is to be given."""
        faults = Faults()
        faults.of(partial(self._asked, caller, subject, role, tenant, gives=False))
        if gives:
            faults.of(partial(self._check_subject, caller, subject))
        faults.refuse()

    def _check_subject(self, caller: Caller, subject: str) -> None:
        """Raises NotFound for a service account that there is not, or that is hidden."""
        kind, _, name = subject.partition(":")
        if kind == "sa":
            self._visible(caller, name, "subject")

    def _asked(
        self, caller: Caller, subject: str, role: str, tenant: str, *, gives: bool
    ) -> Binding:
        """A role as a request says it. Raises InvalidInput, with all that is wrong."""
        faults = Faults()
        if not subject.isprintable() or not _SUBJECT.fullmatch(subject):
            remedy = "user:NAME, sa:NAME or group:NAME"
            faults.add(f"{subject[:100]!r} is no subject", "subject", remedy)
        if role not in tuple(Role):
            faults.add(f"unknown role {show(role)}", "role", one_of(role, tuple(Role)))
        name = faults.of(partial(self._known_tenant, caller, tenant))
        if faults and gives:
            faults.of(partial(self._check_subject, caller, subject))
        faults.refuse()
        return Binding(subject, Role(role), name)

    def _held(self, caller: Caller, subject: str, role: str, tenant: str) -> Binding | None:
        """A role that is held, also at a tenant that has left the fleet."""
        name = tenant.strip(TOP).split(TOP)[-1]
        if role not in tuple(Role) or not self._access.may(caller, Permission.ACCOUNTS_VIEW, name):
            return None
        binding = Binding(subject, Role(role), name)
        return binding if binding in self.state.bindings else None

    def _require_above(self, caller: Caller, binding: Binding) -> None:
        """Raises Forbidden if a role is not the caller's to give and to take."""
        held = ALLOWED[binding.role]
        self._access.require(caller, Permission.ACCOUNTS_EDIT, binding.tenant, held)
        for permission in sorted(held):
            if not self._access.may(caller, permission, binding.tenant):
                why = f"{binding.role} is above the own role: it has {permission}"
                raise caller.principal.above(permission, binding.role, binding.tenant, why)

    def _refuse_above(self, caller: Caller, subject: str) -> None:
        """Raises Forbidden if a subject has a role that the caller could neither give nor take."""
        for grant in self.state.principal(subject, self._clock.now()).grants:
            for permission in sorted(ALLOWED[grant.role]):
                if not self._access.may(caller, permission, grant.tenant):
                    where = ""  # a tenant that the caller may not know of
                    if self._access.may(caller, Permission.ACCOUNTS_VIEW, grant.tenant):
                        where = f" at {shown(grant.tenant)}"
                    why = f"{subject} is {grant.role}{where}, above the own role"
                    tenant = grant.tenant if where else None
                    raise caller.principal.above(permission, grant.role, tenant, why)

    def _known_tenant(self, caller: Caller, text: str) -> str:
        """A tenant by name, or by its path from the root. Raises InvalidInput."""
        if text == TOP:
            return ROOT
        names = text.strip(TOP).split(TOP)
        path = self._access.path(names[-1]) if names[-1] else ()
        visible = self._access.tenants(caller, Permission.ACCOUNTS_VIEW)
        known = path[:1] == (names[-1],) and (visible is None or names[-1] in visible)
        if not known or (len(names) > 1 and tuple(names[::-1]) != path[:-1]):
            there = self._access.names() if visible is None else sorted(visible)
            remedy = nearest(names[-1], there) or "a tenant of the fleet file, or / for all"
            raise InvalidInput(f"unknown tenant {show(text)}", field="tenant", remedy=remedy)
        return names[-1]

    def left_at(self, tenants: Sequence[str]) -> tuple[str, ...]:
        """A line for each of some tenants with roles or service accounts: these do not go."""
        bindings, accounts = tuple(self.state.bindings), tuple(self.state.accounts.values())
        found = []
        for tenant in tenants:
            names = [f"{b.role} of {b.subject}" for b in bindings if b.tenant == tenant]
            names += [f"account {a.name}" for a in accounts if a.tenant == tenant]
            if names:
                listed = ", ".join(sorted(names)[:MOST_NAMED])
                more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
                found.append(
                    f"tenant {tenant} leaves roles or accounts behind, which are good again if it "
                    f"comes back: {listed}{more}"
                )
        return tuple(found)

    # --- for the audit log ---------------------------------------------------------------------

    def _roles_told(self, subject: str) -> str:
        """The roles of a subject for the audit log."""
        held = [b for b in self.state.bindings if b.subject == subject]
        return json_text(roles=[[b.role, shown(b.tenant)] for b in held])

    def _account_told(self, name: str) -> str:
        """A service account for the audit log; empty if there is none."""
        account = self.state.accounts.get(name)
        return "" if account is None else json_text(tenant=shown(account.tenant))

    def _token_told(self, number: str) -> str:
        """A token for the audit log; empty if there is none."""
        token = self.state.tokens.get(number)
        if token is None:
            return ""
        return json_text(subject=token.subject, kind=token.kind, label=token.label)

    async def _do(
        self,
        caller: Caller,
        verb: str,
        subject: str,
        tenant: str,
        order: m.Message,
        why: Why,
        look: Callable[[], str] | None = None,
    ) -> None:
        """Do it, or raise in a dry run what that would raise."""
        if why.dry_run:
            now = self._clock.now()
            await handed(self._runtime.ask(lambda: self.state.judge(order, now)))
            return
        done = act(caller, verb, subject, tenant, look=look, after=why.note)
        await handed(self._runtime.call(ids.ACCOUNTS, order, done))


def caller_with(accounts: Accounts, token: Token, now: float, address: str, request: str) -> Caller:
    """The caller that a token proves, with what its owner may do now."""
    principal = accounts.principal(token.subject, now, token.scopes)
    via = f"{token.kind} token ...{token.last_four}"
    if token.kind is TokenKind.SESSION:
        via = "session"
    return Caller(principal, via, address, request, token.id)


def shown(tenant: str) -> str:
    """A tenant as people write it."""
    return tenant or TOP


def _check_scopes(wanted: Sequence[str]) -> None:
    known = tuple(Permission)
    refuse_all(
        InvalidInput(
            f"unknown permission {show(name)}",
            field=f"scopes[{index}]",
            remedy=nearest(name, known) or f"one of: {', '.join(known)}",
        )
        for index, name in enumerate(wanted)
        if name not in known
    )


def _narrowed(principal: Principal, wanted: Sequence[str] | None) -> tuple[Permission, ...] | None:
    """The scopes of a new token, within those of the one in use. Raises Forbidden."""
    if wanted is None:
        return principal.scopes
    for name in wanted:
        if principal.scopes is not None and name not in principal.scopes:
            remedy = f"use a token with the scope {name}, or one without scopes"
            raise Forbidden(f"the token in use is not good for {name}", remedy)
    return tuple(Permission(name) for name in dict.fromkeys(wanted))


def _token_view(token: Token) -> v.TokenView:
    return v.TokenView(
        token.id, token.kind, token.subject, token.label, token.last_four, token.created_s,
        token.expires_s, token.used_s, token.scopes,
    )  # fmt: skip
