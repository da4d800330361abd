"""A server is started on another fleet than it had: what ran on the old one is not lost, and in nobody's way."""

from pathlib import Path

from tests.support.live import Server, eventually, tasks, until_state

OTHER = """
regions: {east: {clusters: {east-1: {hosts: [{count: 1, gpu: H100, gpus: 8}]}}}}
"""
JOB = {"name": "short", "resources": {"accelerators": 1}}


def test_a_cluster_on_which_a_job_ran_may_go_when_the_job_is_over(tmp_path: Path) -> None:
    """The refusal says what to do, and that is enough."""
    other = tmp_path / "other.yaml"
    other.write_text(OTHER, encoding="utf-8")
    done = tmp_path / "done"
    server = Server(tmp_path / "state", None)
    try:
        with server.up() as client:
            run = f"while [ ! -e {done} ]; do sleep 0.1; done"
            job = client.submit({**JOB, "run": run}).id
            until_state(client, job, "RUNNING")
        assert server.stop() == 0
        done.touch()
        eventually(lambda: not tasks(server.state), "the task ends by itself")
        server.fleet = other
        server.start()
        assert server.ended() == 2
        said = server.log_tail()
        assert (
            f"cluster 'local' is gone from it, and ran {job} when this server was stopped" in said
        )
        assert "start once without --fleet" in said
        server.fleet = None
        with server.up() as client:
            until_state(client, job, "SUCCEEDED")
        assert server.stop() == 0
        server.fleet = other
        with server.up() as client:
            assert [region.name for region in client.regions()] == ["east"]
    finally:
        server.end()
