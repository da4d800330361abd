"""Acts as `topmast audit` shows them."""

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer, problem
from topmast.cli.text import moment
from topmast.model.account_views import ActPage, ActView
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
    assert "j1 vision reason=later token" in out, "what is as it was is left out"
    assert "cause" not in out
    assert "sa:x - roles=viewer / token" in out, "there was nothing before"
    assert "d - east=copying token" in out


def test_what_is_gone_is_told_as_nothing(server: FakeServer, call: Call) -> None:
    """What it was stands before the arrow."""
    gone = ActView(1, 1.0, "ann", "token", "", "", "remove-account", "sa:x", "vision",
                   {"tenant": "vision"}, None, "done")  # fmt: skip
    server.on("GET", "/audit", ActPage((gone,), None))
    assert "tenant=vision -> nothing" in " ".join(call("audit").out.split())


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
