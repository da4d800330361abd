"""Acts as `topmast audit` shows them."""

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer
from topmast.model.account_views import ActPage, ActView


def test_what_changed_is_told_in_words(server: FakeServer, call: Call) -> None:
    """Lists as their words; what is empty is left out."""
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
    assert "state=PENDING -> state=PENDING, reason=later" in out
    assert "cause" not in out
    assert "sa:x - roles=viewer / token" in out, "there was nothing before"
    assert "d - east=copying token" in out


def test_what_is_gone_is_told_as_nothing(server: FakeServer, call: Call) -> None:
    """What it was stands before the arrow."""
    gone = ActView(1, 1.0, "ann", "token", "", "", "remove-account", "sa:x", "vision",
                   {"tenant": "vision"}, None, "done")  # fmt: skip
    server.on("GET", "/audit", ActPage((gone,), None))
    assert "tenant=vision -> nothing" in " ".join(call("audit").out.split())
