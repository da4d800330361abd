"""`topmast tenants pause` and `resume`, against a made-up server."""

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer
from topmast.model.act_views import JobEffect, TenantPause

WHY = "tenant vision is paused by ann: over budget"
STOPS = (JobEffect("j1", "done", "", 8.0, 1.5),)


def test_a_drain_says_what_it_stops(call: Call, server: FakeServer) -> None:
    """And the request has all that was given."""
    answer = TenantPause("vision", WHY, False, 3, 1, STOPS, 8.0, 1.5)
    server.on("POST", "/tenants/pause", {"tenants": [answer]})
    done = call("tenants", "pause", "vision", "--drain", "--reason", "over budget")
    assert done.code == 0
    assert WHY in done.out
    assert "3 jobs of it waiting, 1 with GPUs" in done.out
    assert "1 job stopped: 8 GPUs, 1.5 GPU-hours lost" in done.out
    (request,) = server.requests
    assert request.document["tenants"] == ["vision"]
    assert request.document["drain"] is True
    assert request.document["reason"] == "over budget"


def test_a_rehearsal_says_that_nothing_was_done(call: Call, server: FakeServer) -> None:
    """And what it prints is what would be."""
    answer = TenantPause("vision", "", True, 2, 0, (), 0.0, 0.0)
    server.on("POST", "/tenants/resume", {"tenants": [answer]})
    done = call("tenants", "resume", "vision", "--dry-run")
    assert (done.code, done.err.strip()) == (0, "nothing was done")
    assert "tenant vision would be resumed" in done.out
    shown = call("tenants", "resume", "vision", "--dry-run", "--json").document
    assert (shown["waiting"], shown["dry_run"]) == (2, True)
    server.on(
        "POST",
        "/tenants/resume",
        {"tenants": [TenantPause("vision", "", False, 2, 0, (), 0.0, 0.0)]},
    )
    assert call("tenants", "resume", "vision").out.startswith("tenant vision resumed\n")


def test_what_changes_nothing_says_so(call: Call, server: FakeServer) -> None:
    """And why; a tenant may be kept by the one above it."""
    above = "tenant research is paused by ann"
    for verb, why, said in (
        ("resume", "", "it is not paused"), ("resume", above, above), ("pause", WHY, WHY),
    ):  # fmt: skip
        for dry_run, more in ((True, ["--dry-run"]), (False, [])):
            answer = TenantPause("vision", why, dry_run, 2, 0, (), 0.0, 0.0, "unchanged")
            server.on("POST", f"/tenants/{verb}", {"tenants": [answer]})
            out = call("tenants", verb, "vision", *more).out
            want = f"tenant vision is unchanged: {said}\n2 jobs of it waiting, 0 with GPUs\n"
            assert out == want


def test_a_rehearsal_of_a_drain_says_what_would_be(call: Call, server: FakeServer) -> None:
    """Also of a tenant that is paused already; nothing of it reads as if it was done."""
    answer = TenantPause("vision", WHY, True, 0, 1, STOPS, 8.0, 1.5)
    server.on("POST", "/tenants/pause", {"tenants": [answer]})
    done = call("tenants", "pause", "vision", "--drain", "--dry-run")
    assert f"tenant vision would be paused\nnow {WHY}\n" in done.out
    assert "1 job would be stopped: 8 GPUs, 1.5 GPU-hours would be lost" in done.out


def test_several_tenants_are_one_request(call: Call, server: FakeServer) -> None:
    """Named or selected, and not both; the document is a list of what became of each."""
    answers = [TenantPause(name, WHY, False, 0, 0, (), 0.0, 0.0) for name in ("vision", "nlp")]
    server.on("POST", "/tenants/pause", {"tenants": answers})
    shown = call("tenants", "pause", "vision", "nlp", "vision", "--json").document
    assert [one["tenant"] for one in shown["tenants"]] == ["vision", "nlp"]
    assert server.requests[-1].document["tenants"] == ["vision", "nlp"]
    assert call("tenants", "pause", "-l", "parent=research").code == 0
    assert server.requests[-1].document["selector"] == "parent=research"
    for words in ((), ("vision", "-l", "tenant=*")):
        refused = call("tenants", "pause", *words)
        assert (refused.code, "name tenants, or give --selector" in refused.err) == (2, True)
    assert len(server.requests) == 2
