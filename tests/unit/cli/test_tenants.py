"""`topmast tenants pause` and `resume`, against a made-up server."""

from tests.unit.cli.conftest import Call
from tests.unit.client.fake import FakeServer
from topmast.model.act_views import JobEffect, TenantPause

WHY = "tenant vision is paused by ann: over budget"
STOPS = (JobEffect("j1", "done", "", 8.0, 1.5),)


def test_a_drain_says_what_it_stops(call: Call, server: FakeServer) -> None:
    """And the request has all that was given."""
    answer = TenantPause("vision", WHY, False, 3, 1, STOPS, 8.0, 1.5)
    server.on("POST", "/tenants/vision/pause", answer)
    done = call("tenants", "pause", "vision", "--drain", "--reason", "over budget")
    assert done.code == 0
    assert WHY in done.out
    assert "3 jobs of it waiting, 1 with GPUs" in done.out
    assert "1 job stopped: 8 GPUs, 1.5 GPU-hours lost" in done.out
    (request,) = server.requests
    assert request.document["drain"] is True
    assert request.document["reason"] == "over budget"


def test_a_rehearsal_says_that_nothing_was_done(call: Call, server: FakeServer) -> None:
    """On stderr, for what it prints is as if it had been."""
    server.on("POST", "/tenants/vision/resume", TenantPause("vision", "", True, 2, 0, (), 0.0, 0.0))
    done = call("tenants", "resume", "vision", "--dry-run")
    assert (done.code, done.err.strip()) == (0, "nothing was done")
    assert "tenant vision is not paused so far" in done.out
    shown = call("tenants", "resume", "vision", "--dry-run", "--json").document
    assert (shown["waiting"], shown["dry_run"]) == (2, True)
