"""`notify`."""

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer, problem
from topmast.model.webhooks import Webhook, WebhookView

HOOK = Webhook("ops", "https://example.com/", "env:KEY", ("FAILED",), ("vision",), {"a": "b"})


def test_a_webhook_is_added(server: FakeServer, call: Call) -> None:
    """What is not said is the default; one without signatures is warned of."""
    server.on("PUT", "/webhooks/ops", WebhookView(HOOK))
    server.on("GET", "/webhooks", {"webhooks": []})
    called = call(
        "notify", "add", "ops", "https://example.com/", "--secret", "env:KEY", "--event", "FAILED",
        "--tenant", "vision", "--label", "a=b",
    )  # fmt: skip
    assert (called.code, called.out, called.err) == (0, "ops\n", "")
    assert server.requests[1].document == {
        "url": "https://example.com/", "secret": "env:KEY", "events": ["FAILED"],
        "tenants": ["vision"], "labels": {"a": "b"}, "template": "json",
    }  # fmt: skip
    assert "not signed" in call("notify", "add", "ops", "https://example.com/").error
    assert server.requests[3].document["events"] == ["SUCCEEDED", "FAILED", "CANCELLED"]


def test_why_a_webhook_cannot_be_called_is_warned_of(server: FakeServer, call: Call) -> None:
    """At once, and in a dry run: not at the first message."""
    why = "no message can be sent yet: file:/nope: no such file"
    server.on("PUT", "/webhooks/ops", WebhookView(HOOK, warnings=(why,)))
    server.on("GET", "/webhooks", {"webhooks": []})
    for more in ([], ["--dry-run"]):
        called = call(
            "notify", "add", "ops", "https://example.com/", "--secret", "file:/nope", *more
        )
        assert (called.code, f"warning: {why}" in " ".join(called.err.split())) == (0, True)


def test_what_a_webhook_replaces_is_said(server: FakeServer, call: Call) -> None:
    """It is no error: a change may be meant. Only the server knows to which networks it sends."""
    server.on("GET", "/webhooks", {"webhooks": [WebhookView(HOOK)]})
    for name, url in (("ops", "http://127.0.0.1:6430/x"), ("new", "http://hooks.example.com/x")):
        server.on("PUT", f"/webhooks/{name}", WebhookView(HOOK))
        said = call("notify", "add", name, url, "--secret", "env:KEY").err
        assert ("ops was there before: it is changed" in said) == (name == "ops")
        assert "--notify-network" not in said
    tried = call("notify", "add", "ops", "env:URL", "--secret", "env:KEY", "--dry-run").err
    assert "ops was there before: it would be changed" in tried


def test_webhooks_are_listed(server: FakeServer, call: Call) -> None:
    """With why a message is not taken."""
    views = [WebhookView(HOOK, 3, 0, 12, None, "example.com answers 500", 4)]
    server.on("GET", "/webhooks", {"webhooks": views})
    shown = call("notify", "list").out
    assert "example.com answers 500, tried 4 times" in shown
    said = " ".join(call("notify", "list", "--help").out.split())
    assert "DELIVERED and LAST count from when the webhook was added" in said
    assert call("notify", "list", "--json").document["webhooks"][0]["pending"] == 12


def test_a_webhook_is_tried_and_removed(server: FakeServer, call: Call) -> None:
    """A receiver that does not take the message is an error."""
    server.on("POST", "/webhooks/ops/test", problem(503, "example.com answers 500"))
    assert call("notify", "test", "ops").code == 1
    server.on("DELETE", "/webhooks/ops", WebhookView(HOOK))
    assert call("notify", "remove", "ops").out == "ops is removed\n"
