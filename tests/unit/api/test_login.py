"""Where a login leads to."""

import time
from pathlib import Path

import pytest

from tests.support.entrance import entrance
from topmast.adapters.oidc import Pending
from topmast.api.guard import LoginGate
from topmast.api.login import MOST_OF_CLIENT, Logging, onward


@pytest.mark.parametrize("path", ["/", "/queue", "/jobs?tenant=a%2Fb&x=1", "/a//b", "/%5Cx"])
def test_a_path_of_this_server_is_where_a_login_leads(path: str) -> None:
    """With its query."""
    assert onward(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example.com", "/\\evil.example.com", "https://evil.example.com", "\\\\evil",
        "/\t/evil.example.com", "/\n/evil.example.com", "javascript:alert(1)", "", "queue",
        "/\r\nSet-Cookie: a=b", "/a\\b", "/ /evil", "/\u00e9", "/\x7f",
    ],
)  # fmt: skip
def test_anything_else_leads_to_the_first_page(path: str) -> None:
    """What browsers would take for another host, and what is in doubt."""
    assert onward(path) == "/"


@pytest.mark.parametrize(
    ("own", "of_strangers"),
    [
        ("10.0.0.1", "10.0.0.2"),
        ("2001:db8:0:1::1", "2001:db8:0:2::{0:x}"),
        ("10.0.0.1", "::ffff:10.0.0.2"),
    ],
)
def test_one_client_pushes_out_its_own_logins_alone(
    tmp_path: Path, own: str, of_strangers: str
) -> None:
    """Of too many the oldest is forgotten; another's stays under way. In IPv6 it has a network."""
    with entrance(tmp_path) as door:
        assert isinstance(door.gate, LoginGate)
        logging = Logging(door.service, door.gate, None, time.monotonic)
        what = Pending("state", "nonce", "verifier")
        logging.keep("ann", what, own, 600.0)
        for number in range(MOST_OF_CLIENT + 1):
            address = of_strangers.format(number)
            logging.keep(f"stranger-{number}", what, address, 600.0)
        known = [name for name in ("ann", "stranger-0", "stranger-1") if logging.find(name)]
        assert known == ["ann", "stranger-1"]
