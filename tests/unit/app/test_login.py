"""Which ways into a server its options open, and which are refused."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import write_certificate
from topmast.accounts import Accounts
from topmast.api.guard import LoopbackGate, StandbyGate
from topmast.app.login import Entry, check_entry, open_entry, refuse_local_engines
from topmast.cli.rootoptions import ServeOptions
from topmast.model.errors import Faults, InvalidInput
from topmast.model.files.fleetfile import parse_fleet

URL = "http://127.0.0.1:6278"
HOSTS = {"hosts": [{"count": 1, "gpu": "H100", "gpus": 1}]}
TLS: dict[str, Any] = {"tls_cert": "cert.pem", "tls_key": "key.pem"}


def entry(folder: Path, **given: Any) -> Entry:
    """The ways in that options open, with files of ``folder``; no socket stays open."""
    for name in ("tls_cert", "tls_key", "accounts"):
        if name in given:
            given[name] = folder / given[name]
    with ExitStack() as stack:
        options, faults = ServeOptions(fleet=None, state=folder, **given), Faults()
        checked = check_entry(options, faults)
        faults.refuse()
        return open_entry(checked, options, stack, URL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A certificate with its key, and a key of another."""
    write_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    write_certificate(tmp_path / "other.pem", tmp_path / "other.key")
    write_certificate(tmp_path / "cert.pem", tmp_path / "open.key")
    (tmp_path / "open.key").chmod(0o644)
    write_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    (tmp_path / "accounts.yaml").write_text("limits: {submit: {per_s: 1, burst: 2}}\n")
    return tmp_path


def test_without_options_nothing_is_asked_for(folder: Path) -> None:
    """One person on one machine."""
    found = entry(folder)
    assert (found.accounts, found.listener) == (None, None)
    assert isinstance(found.standby_gate(folder, Accounts), LoopbackGate)


def test_a_login_on_loopback(folder: Path) -> None:
    """Without an address for others."""
    found = entry(folder, accounts="accounts.yaml")
    assert found.accounts is not None
    assert (found.public_url, found.listener) == (URL, None)
    assert isinstance(found.standby_gate(folder, Accounts), StandbyGate)


def test_an_address_for_others_asks_for_a_login_without_being_told(folder: Path) -> None:
    """Its URL is that of the address, unless clients know it by a name."""
    found = entry(folder, listen="127.0.0.1:0", **TLS)
    assert found.accounts is not None
    assert found.public_url.startswith("https://127.0.0.1:")
    assert found.certificate is not None
    named = entry(folder, listen="0.0.0.0:0", public_url="https://tm.example.com", **TLS)
    assert named.public_url == "https://tm.example.com"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"listen": "127.0.0.1:0"}, "--listen"),
        ({"listen": "127.0.0.1:0", "tls_cert": "cert.pem"}, "--listen"),
        ({"listen": "127.0.0.1", **TLS}, "--listen"),
        ({"listen": "example.com:443", **TLS}, "--listen"),
        ({"listen": "0.0.0.0:0", **TLS}, "--public-url"),
        ({"listen": "[::]:0", **TLS}, "--public-url"),
        ({"listen": "127.0.0.1:0", "public_url": "http://tm.example.com", **TLS}, "--public-url"),
        ({"listen": "127.0.0.1:0", "tls_cert": "other.pem", "tls_key": "key.pem"}, "--tls-cert"),
        ({"listen": "127.0.0.1:0", "tls_cert": "none.pem", "tls_key": "key.pem"}, "--tls-cert"),
        ({"listen": "127.0.0.1:0", "tls_cert": "cert.pem", "tls_key": "none.pem"}, "--tls-key"),
        ({"listen": "127.0.0.1:0", "tls_cert": "other.pem", "tls_key": "other.key",
          "trusted_proxies": ("*",)}, "--trusted-proxy"),
        ({"listen": "127.0.0.1:0", "trusted_proxies": ("0.0.0.0/0",), **TLS}, "--trusted-proxy"),
        ({"listen": "127.0.0.1:0", "trusted_proxies": ("::/0",), **TLS}, "--trusted-proxy"),
        ({"accounts": "accounts.yaml", "trusted_proxies": ("10.0.0.1/8",)}, "--trusted-proxy"),
        ({"trusted_proxies": ("10.0.0.0/28",)}, "--trusted-proxy"),
        ({"public_url": "https://tm.example.com"}, "--public-url"),
        ({"accounts": "accounts.yaml", "public_url": "https://a.example.com/tm"}, "--public-url"),
        (TLS, "--tls-cert"),
    ],
)  # fmt: skip
def test_what_would_let_others_in_unseen_is_refused(
    folder: Path, given: dict[str, Any], field: str
) -> None:
    """The error names the option."""
    with pytest.raises(InvalidInput) as caught:
        entry(folder, **given)
    assert caught.value.field == field


def test_each_file_of_a_certificate_that_is_not_there_is_named(folder: Path) -> None:
    """Both at once, each with its option."""
    with pytest.raises(InvalidInput) as caught:
        entry(folder, listen="127.0.0.1:0", tls_cert="no.pem", tls_key="no.key")
    told = [(one.field, one.message) for one in (caught.value, *caught.value.more)]
    assert told == [
        ("--tls-cert", f"{folder / 'no.pem'} cannot be read: No such file or directory"),
        ("--tls-key", f"{folder / 'no.key'} cannot be read: No such file or directory"),
    ]


def test_a_key_that_all_can_read_is_refused(folder: Path) -> None:
    """With the remedy."""
    (folder / "key.pem").chmod(0o644)
    with pytest.raises(InvalidInput) as caught:
        entry(folder, listen="127.0.0.1:0", **TLS)
    assert (caught.value.field, "chmod 600" in caught.value.remedy) == ("--tls-key", True)


@pytest.mark.parametrize(
    ("engine", "given", "refused"),
    [
        ("local", {}, ""),
        ("local", {"accounts": Path("x")}, ""),
        ("local", {"listen": "127.0.0.1:0"}, "--listen"),
        ("local", {"listen": "127.0.0.1:0", "everyone_is_trusted": True}, ""),
        ("slurm", {"listen": "127.0.0.1:0"}, ""),
        ("local", {"accounts": Path("x"), "public_url": "https://tm.example.com"}, "--public-url"),
        ("local", {"accounts": Path("x"), "trusted_proxies": ("127.0.0.1/32",)}, "--trusted-proxy"),
    ],
)
def test_tasks_of_others_do_not_run_as_the_server(
    engine: str, given: dict[str, Any], refused: str
) -> None:
    """Unless the operator says that everyone is trusted; the option that lets others in is named."""
    cluster = {"engine": engine, **HOSTS}
    fleet = parse_fleet({"regions": {"east": {"clusters": {"east-a": cluster}}}})
    options = ServeOptions(fleet=None, state=Path(), **given)
    if not refused:
        refuse_local_engines(fleet, options)
        return
    with pytest.raises(InvalidInput, match="cluster east-a run as the user of the server") as found:
        refuse_local_engines(fleet, options)
    assert found.value.field == refused


def test_all_that_is_wrong_with_the_ways_in_is_told_at_once(folder: Path) -> None:
    """By option; nothing listens meanwhile, and a loopback server takes none of them."""
    wrong: dict[str, Any] = {"public_url": "http://a/b", "trusted_proxies": ("zz", "0.0.0.0/0")}
    with pytest.raises(InvalidInput) as found:
        entry(folder, listen="0:x", accounts="none.yaml", **wrong)
    told = [str(error).partition(":")[0] for error in (found.value, *found.value.more)]
    assert told[1:] == [
        "--trusted-proxy",
        "--trusted-proxy",
        "--public-url",
        "--listen",
        "--listen",
    ]
    with pytest.raises(InvalidInput) as found:
        entry(folder, **wrong)
    told = [error.field for error in (found.value, *found.value.more)]
    assert told == ["--public-url", "--trusted-proxy"]
