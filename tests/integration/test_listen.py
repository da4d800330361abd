"""A server that other machines reach: TLS, a login on every address, and secrets that stay secret."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from tests.support.certificates import write_certificate
from tests.support.live import Server, eventually, free_ports, hosts, tasks
from topmast.adapters.engines.local import processes

FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}
tenants: {default: {quota: {H100: 1}}}
"""
SECRET = "a secret of a job, with a dollar $HOME"
PRINT_DIGEST = 'printf %s "$KEY" | sha256sum; touch started; sleep 60'


class Listening:
    """A server with TLS and a login, and its command line on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        self.serial = write_certificate(self.certificate, self.key)
        (self.port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{self.port}"
        (folder / "fleet.yaml").write_text(FLEET)
        arguments = [
            "--listen", f"127.0.0.1:{self.port}", "--tls-cert", str(self.certificate),
            "--tls-key", str(self.key), "--everyone-is-trusted",
        ]  # fmt: skip
        self.server = Server(folder / "state", folder / "fleet.yaml", arguments=arguments)
        self.known: list[str] = []
        """All tokens that were made."""

    def tried(
        self, *arguments: str, text: str = "", **given: str
    ) -> subprocess.CompletedProcess[str]:
        """A command, whatever becomes of it."""
        environment = {
            "XDG_CONFIG_HOME": str(self.folder / "config"), "SSL_CERT_FILE": str(self.certificate),
            "TOPMAST_SERVER": self.url, "TOPMAST_TOKEN": "", **given,
        }  # fmt: skip
        command = [sys.executable, "-m", "topmast.app", *arguments]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, **environment},
        )  # fmt: skip

    def run(self, *arguments: str, text: str = "") -> str:
        """What a command prints."""
        done = self.tried(*arguments, text=text)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def token(self, *arguments: str) -> str:
        """A token that a command prints."""
        token = self.run(*arguments).strip()
        assert token.startswith("tm_"), token
        self.known.append(token)
        return token

    def http(self, token: str = "") -> httpx.Client:
        """A client over TLS."""
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        return httpx.Client(base_url=f"{self.url}/api/v1", verify=trusted, headers=shown)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """The server of this file, and its administrator logged in."""
    found = Listening(tmp_path_factory.mktemp("listen"))
    try:
        found.server.start()
        found.server.wait_ready()
        state = str(found.folder / "state")
        broken = found.token("accounts", "break-glass", "--state", state, "--for", "15m")
        found.run("login", "--token-stdin", text=broken)
        yield found
    finally:
        found.server.end()


def test_every_address_asks_for_a_login(there: Listening) -> None:
    """The one for other machines speaks TLS alone; the one on loopback is no way around the login."""
    with there.http() as client:
        assert client.get("/jobs").status_code == 401
        assert client.get("/nothing").status_code == 401
        assert client.post("/jobs", json={}).status_code == 401
        answer = client.get("/jobs", headers={"Cookie": "__Host-topmast=tm_ses_x"})
        assert answer.status_code == 401
        assert answer.headers["strict-transport-security"]
    assert httpx.get(f"{there.server.url}/api/v1/jobs").status_code == 401
    assert f"Other machines reach it at {there.url}\n" in there.server.log_tail()
    with pytest.raises(httpx.HTTPError):
        httpx.get(there.url.replace("https", "http") + "/api/v1/jobs")


def test_the_administrator_is_logged_in_by_the_token_of_the_machine(there: Listening) -> None:
    """It is kept where only its owner reads it, for that server."""
    me = json.loads(there.run("whoami", "--json"))
    assert me["subject"] == "user:break-glass"
    file = there.folder / "config" / "topmast" / "tokens.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(json.loads(file.read_text())) == [there.url]
    lines = json.loads(there.run("audit", "--verb", "login", "--outcome", "done", "--json"))
    assert [act["actor"] for act in lines["acts"]] == ["user:break-glass"]


def test_a_client_shows_its_token_to_the_server_it_knows(there: Listening) -> None:
    """Not to one whose certificate it cannot judge, and not without TLS to another machine."""
    other = there.tried("whoami", SSL_CERT_FILE="", TOPMAST_TOKEN=there.known[0])
    assert (other.returncode, "does not prove itself" in other.stderr) == (1, True), other.stderr
    plain = there.tried("whoami", "--server", "http://192.0.2.1:1", TOPMAST_TOKEN=there.known[0])
    assert (plain.returncode != 0, "over TLS only" in plain.stderr) == (True, True), plain.stderr


def test_connections_that_say_nothing_keep_no_other_out(there: Listening) -> None:
    """Of those that begin no handshake the oldest are closed, and a client that speaks gets in."""
    with ExitStack() as stack:
        address = ("127.0.0.1", there.port)
        silent = [stack.enter_context(socket.create_connection(address)) for _ in range(300)]
        with there.http(there.known[0]) as client:
            assert client.get("/hosts").status_code == 200

        def is_closed(one: socket.socket) -> bool:
            with suppress(BlockingIOError):
                one.setblocking(False)
                return one.recv(1) == b""
            return False

        eventually(lambda: sum(is_closed(one) for one in silent) >= 300 - 65, "most are closed")
        assert is_closed(silent[0])


def test_a_forwarded_address_of_a_stranger_is_not_believed(there: Listening) -> None:
    """Without a trusted proxy the audit log has the address of the connection."""
    with there.http("tm_pat_" + "0" * 36) as client:
        for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded"):
            client.get("/hosts", headers={name: "203.0.113.9"})
    lines = json.loads(there.run("audit", "--outcome", "refused", "--json"))
    assert {act["address"] for act in lines["acts"]} == {"127.0.0.1"}


def test_a_renewed_certificate_is_used_without_a_restart(there: Listening) -> None:
    """Half of the pair changes nothing; that all users can read its key is said."""

    def serial() -> int:
        pem = ssl.get_server_certificate(("127.0.0.1", there.port))
        return x509.load_pem_x509_certificate(pem.encode()).serial_number

    assert serial() == there.serial
    new, key = there.folder / "new.pem", there.folder / "new.key"
    wanted = write_certificate(new, key)
    new.replace(there.certificate)
    assert serial() == there.serial
    key.chmod(0o644)
    key.replace(there.key)
    eventually(lambda: serial() == wanted, "the new certificate is shown")
    said = "the key of the new certificate is not private"
    eventually(lambda: said in there.server.log_tail(), "it is said")
    there.serial = wanted


def test_no_secret_is_anywhere(there: Listening) -> None:
    """Not in the journal, the logs, arguments, or the environment of any process but the task's own."""
    there.run("accounts", "add", "ci", "/")
    there.run("roles", "grant", "sa:ci", "submitter", "default")
    token = there.token("tokens", "create", "--account", "ci")
    secret = there.folder / "secret"
    secret.write_text(f"{SECRET}\n")
    job = {
        "run": PRINT_DIGEST, "setup": 'test -n "$KEY"', "secrets": {"KEY": f"file:{secret}"},
    }  # fmt: skip
    with there.http(token) as client:
        sent = client.post("/jobs", json={"job": job})
        assert sent.status_code == 201, sent.text
        name = sent.json()["id"]
        digest = hashlib.sha256(SECRET.encode()).hexdigest()
        log = f"/jobs/{name}/logs"
        eventually(lambda: digest in client.get(log).text, "the task has the secret")
        shown = [client.get(f"/jobs/{name}{path}").text for path in ("", "/story", "/explain")]
    with there.http(there.known[0]) as client:
        shown += [client.get(path).text for path in ("/tokens", "/audit", "/accounts", "/hosts")]
    assert f"file:{secret}" in _journal(there), "the scan would find what is there"
    own = tasks(there.folder / "state")
    everything = [*shown, there.server.log.read_text(errors="replace")]
    for word in (SECRET, *there.known):
        assert not [text for text in everything if word in text], word
        assert not [file for file, text in _files(there) if word in text], word
        assert not [
            pid for pid in processes.numbers(processes.PROC) if word in _proc(pid, "cmdline")
        ]
        ours = {there.server.pid, *hosts(there.folder / "state")} - set(own)
        assert len(ours) > 2, "the server, the agent, the supervisor"
        assert not [pid for pid in sorted(ours) if word in _proc(pid, "environ")]
    assert own
    assert all(SECRET in _proc(pid, "environ") for pid in own), "that is where it belongs"
    assert not any(word in _proc(pid, "environ") for pid in own for word in there.known)
    there.run("cancel", name)


def test_a_secret_that_is_not_there_ends_the_task_with_its_reason(there: Listening) -> None:
    """The output names the place."""
    told = "topmast: secrets.KEY: /no/such/secret: No such file"
    job = {"run": "true", "secrets": {"KEY": "file:/no/such/secret"}, "max_restarts": 0}
    with there.http(there.known[0]) as client:
        name = client.post("/jobs", json={"job": job | {"tenant": "default"}}).json()["id"]
        eventually(lambda: told in client.get(f"/jobs/{name}/logs").text, told)


def test_a_variable_of_hosts_is_waited_for_where_no_engine_gives_any(there: Listening) -> None:
    """It is said at once and for as long as it is so; nothing is tried in vain."""
    job = {"run": "true", "secrets": {"KEY": "env:HOME"}, "tenant": "default"}
    engine = "an engine that gives tasks variables of their hosts (env:NAME)"
    with there.http(there.known[0]) as client:
        sent = client.post("/jobs", json={"job": job}).json()
        assert [text.partition(":")[0] for text in sent["warnings"]] == ["secrets"]
        assert engine in sent["warnings"][0]
        path = f"/jobs/{sent['id']}"
        eventually(lambda: engine in client.get(f"{path}/story").json()["why"], "why it waits")
        told = client.get(f"{path}/explain").json()
        assert told["summary"] == f"the job needs {engine}, and no cluster has one"
        view = client.get(path).json()
        assert (view["state"], view["attempts"]) == ("PENDING", 0)
        client.post(f"{path}/cancel", json={})


def _journal(there: Listening) -> str:
    return "".join(text for file, text in _files(there) if "journal.sqlite" in file.name)


def _files(there: Listening) -> Iterator[tuple[Path, str]]:
    for path in sorted((there.folder / "state").rglob("*")):
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                yield path, path.read_text("utf-8", errors="replace")


def _proc(pid: int, file: str) -> str:
    with suppress(OSError):
        return (processes.PROC / str(pid) / file).read_text(errors="replace")
    return ""


def test_a_token_of_the_machine_is_good_for_nothing_after_logout(there: Listening) -> None:
    """Its file is taken away: what was printed once may lie in a terminal's history."""
    state = str(there.folder / "state")
    kept = there.token("accounts", "break-glass", "--state", state, "--for", "15m")
    there.run("login", "--token-stdin", text=kept)
    assert json.loads(there.run("whoami", "--json"))["subject"] == "user:break-glass"
    there.run("logout")
    after = there.tried("whoami", TOPMAST_TOKEN=kept)
    assert (after.returncode != 0, "whoami" in after.stdout) == (True, False), after.stdout
    assert not (there.folder / "state" / "break-glass.json").exists()
    again = there.token("accounts", "break-glass", "--state", state, "--for", "15m")
    # The fixture's own is replaced by these. What the variable has is good for nothing by now.
    done = there.tried("login", "--token-stdin", text=again, TOPMAST_TOKEN=kept)
    assert "user:break-glass is logged in" in done.stdout, done.stderr
    assert "$TOPMAST_TOKEN goes before the token that is kept now" in done.stderr
    lines = json.loads(there.run("audit", "--verb", "logout", "--json"))
    assert [act["actor"] for act in lines["acts"]] == ["user:break-glass"]
