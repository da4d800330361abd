"""Account: which account this is, its roles and tokens; and the accounts that it may manage."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission, Role
from topmast.web.page import Ask, Page


async def view(ask: Ask) -> dict[str, Any]:
    """The caller, and what it may see of others."""
    directory, caller = ask.service.directory, ask.caller
    login = not caller.principal.trusted
    may_see = login and caller.principal.may_somewhere(Permission.ACCOUNTS_VIEW)
    tokens = directory.tokens(caller) if login else ()
    own = caller.principal.subject
    return {
        "me": directory.whoami(caller, login=login),
        "tokens": ask.part(
            sorted(tokens, key=lambda token: (token.subject != own, -token.created_s)), "tokens"
        ),
        "own": own,
        "may_see": may_see,
        "accounts": ask.part(directory.accounts(caller) if may_see else (), "accounts"),
        "roles": ask.part(directory.roles(caller) if may_see else (), "roles"),
        "every_role": list(Role),
    }


PAGE = Page("/account", "Account", Permission.SELF, "account.html", view, own=True)
