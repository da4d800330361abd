"""Acts as `topmast audit` shows them."""

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer
from topmast.model.account_views import ActPage, ActView


def test_what_changed_is_told_in_words(server: FakeServer, call: Call) -> None:
    """Lists as their words; what is empty is left out."""
    acts = (
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
