"""Acts as `topmast audit` shows them."""

import pytest

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer, problem
from topmast.cli.text import moment
from topmast.model.account_views import ActPage, ActView, NewToken, RoleView, TokenView, WhoAmI
from topmast.model.views import Fault


def test_what_changed_is_told_in_words(server: FakeServer, call: Call) -> None:
    """Lists as their words; what is empty, or as it was, is left out."""
    acts = (
        ActView(4, 3.0, "ann", "token", "", "", "replicate", "d", "", {"east": ""}, {"east": "copying"},
                "done"),
        ActView(3, 2.0, "ann", "token", "", "", "grant-role", "sa:x", "", {"roles": []},
                {"roles": [["viewer", "/"]]}, "done"),
        ActView(2, 1.0, "ann", "token", "", "", "submit", "j1", "vision", None,
                {"jobs": 1, "users": ["ann", "bob"]}, "done"),
        ActView(1, 0.0, "ann", "token", "", "", "hold", "j1", "vision",
                {"state": "PENDING", "cause": ""}, {"state": "PENDING", "reason": "later"}, "done"),
    )  # fmt: skip
    server.on("GET", "/audit", ActPage(acts, None))
    out = " ".join(call("audit").out.split())
    assert "jobs=1, users=ann bob" in out
    assert "j1 vision token - done reason=later" in out, "what is as it was is left out"
    assert "cause" not in out
    assert "sa:x - token - done roles=viewer /" in out, "there was nothing before"
    assert "d - token - done east=copying" in out


def test_what_is_gone_is_told_as_nothing(server: FakeServer, call: Call) -> None:
    """What it was stands before the arrow."""
    gone = ActView(1, 1.0, "ann", "token", "", "", "remove-account", "sa:x", "vision",
                   {"tenant": "vision"}, None, "done")  # fmt: skip
    server.on("GET", "/audit", ActPage((gone,), None))
    called = call("audit")
    assert "tenant=vision -> nothing" in " ".join(called.out.split())
    assert called.err == ""
    server.on("GET", "/audit", ActPage((gone,), "1"))
    assert call("audit").err == (
        "these are the newest 1; for older ones: --limit N, or --until T\n"
    )
    assert call("audit", "--json").err == ""


def test_times_are_shown_as_times_and_what_is_empty_now_is_said(
    server: FakeServer, call: Call
) -> None:
    """A cluster that is open again has no jobs for that, and nothing keeps it closed."""
    closed = {"closed": "root closed the cluster: sw"}
    acts = (
        ActView(2, 2.0, "root", "token", "", "", "open-cluster", "c", "", closed,
                {"closed": "", "reason": "", "until_s": None, "jobs": 0}, "done"),
        ActView(1, 1.0, "root", "token", "", "", "close-cluster", "c", "", {"closed": ""},
                {**closed, "until_s": 1795921110.2346065}, "done"),
    )  # fmt: skip
    server.on("GET", "/audit", ActPage(acts, None))
    out = " ".join(call("audit").out.split())
    assert "sw -> closed=nothing, jobs=0" in out
    assert f"until={moment(1795921110.2346065)}" in out
    assert "until_s" not in out


def test_times_without_a_unit_are_said_in_full(server: FakeServer, call: Call) -> None:
    """A day is easily typed as 24, which are seconds; a date and 24h need no word."""
    server.on("GET", "/audit", ActPage((), None))
    said = "--since 24 means 24s, seconds; for others write 24m, 24h or 24d"
    assert said in call("audit", "--since", "24").err.splitlines()
    for text in ("24h", "2030-01-31", "1893456000"):
        assert call("audit", "--since", text).err == "no such acts\n"
    assert "--for 15 means 15s" in call("accounts", "break-glass", "--for", "15").error
    assert call("accounts", "break-glass", "--for", "15m").err == ""


NAMED = RoleView("sa:named", "submitter", "vision")
ADMIN = RoleView("user:break-glass", "admin", "/")
VIEWER = RoleView("user:ann", "viewer", "/")
OF_GROUPS = WhoAmI("user:ann", "token ...abcd", (VIEWER,), groups=("ops",))
BY_GLASS = WhoAmI("user:break-glass", "break-glass ...abcd", (ADMIN,))


@pytest.mark.parametrize(
    ("me", "subject", "want"),
    [
        (OF_GROUPS, "sa:named", ""),
        (OF_GROUPS, "sa:new", "sa:new has no role, so this token may do nothing: "
         "topmast roles grant sa:new ROLE TENANT"),
        (OF_GROUPS, "user:ann", ""),
        (WhoAmI("user:ann", "token ...abcd", ()), "user:ann", "user:ann has no role, "),
        (BY_GLASS, "user:break-glass", "user:break-glass has no role, so this token may do "
         "nothing: --account NAME makes one for a service account with roles"),
        (BY_GLASS, "sa:named", ""),
        (None, "sa:new", ""),
    ],
)  # fmt: skip
def test_a_token_that_may_do_nothing_is_told(
    server: FakeServer, call: Call, me: WhoAmI | None, subject: str, want: str
) -> None:
    """The token of break-glass has rights, and a token that it makes for itself has none."""
    view = TokenView("t1", "personal", subject, "", "abcd", 0.0, 1e9, None)
    server.on("POST", "/tokens", NewToken("tmp_abcd", view))
    server.on("GET", "/roles", {"roles": [NAMED]})
    if me is not None:
        server.on("GET", "/whoami", me)
    called = call("tokens", "create")
    assert (called.code, called.out) == (0, "tmp_abcd\n"), "it is shown, whatever happens"
    assert (f"warning: {want}" in called.err) is bool(want)
    assert ("warning" in called.err) is bool(want)


def test_when_a_token_was_used_is_explained(call: Call) -> None:
    """Who looks for a stolen token must not trust the second."""
    said = " ".join(call("tokens", "list", "--help").out.split())
    assert "up to an hour later than LAST USED" in said


def test_what_is_wrong_with_a_token_is_said_of_its_options(server: FakeServer, call: Call) -> None:
    """The fields of the request are not what was typed."""
    faults = (Fault("a token lasts a minute", "ttl_s"), Fault("unknown", "scopes[0]"))
    server.on("POST", "/tokens", problem(422, faults[0].detail, "ttl_s", faults=faults))
    called = call("tokens", "create", "--for", "8", "--scope", "x")
    assert called.code == 2
    assert called.err.splitlines() == [
        "--for 8 means 8s, seconds; for others write 8m, 8h or 8d",
        "topmast: --for: a token lasts a minute",
        "topmast: --scope: unknown",
    ]
    told = call("tokens", "create", "--for", "8s", "--scope", "x", "--json").problem
    assert [one["field"] for one in told["errors"]] == ["--for", "--scope"]
