"""Nothing that a server writes is for others to read, whatever the umask that it is started with."""

from pathlib import Path

from tests.support.live import Server, until_state

FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}
"""


def test_no_file_of_a_server_is_open_to_others(tmp_path: Path) -> None:
    """With umask 0 and a folder that was open before; a task writes with the umask of who started the server."""
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part").write_text("x")
    server = Server(tmp_path / "state", tmp_path / "fleet.yaml")
    server.umask = 0o002
    try:
        with server.up() as client:
            client.add_dataset("words", "east", source=str(tmp_path / "data"))
            out = tmp_path / "made-by-the-task"
            job = client.submit({"run": f"umask; touch {out}"})
            until_state(client, job.id, "SUCCEEDED")
            assert (out.stat().st_mode & 0o777) == 0o664
            files = [path for path in (tmp_path / "state").rglob("*") if not path.is_symlink()]
            assert len(files) > 20
            found = {str(path): oct(path.stat().st_mode & 0o777) for path in files}
            listed = {"journal.sqlite", "profile.json", "role", "server.json", "part"}
            assert listed <= {path.name for path in files}
            own = {path: bits for path, bits in found.items() if "/engines/" not in path}
            assert {path: bits for path, bits in own.items() if bits[-2:] != "00"} == {}
            assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    finally:
        server.end()
