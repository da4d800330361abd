"""The address of a client: what proxies say of it is believed of trusted ones alone."""

from ipaddress import ip_network

import pytest

from topmast.api.guard import forwarded, origin_of

PROXIES = (ip_network("10.0.0.0/28"), ip_network("fd00::/64"))


@pytest.mark.parametrize(
    ("story", "address", "chain", "want"),
    [
        ("no proxy", "203.0.113.5", "", "203.0.113.5"),
        ("a stranger says so", "203.0.113.5", "198.51.100.1", "203.0.113.5"),
        ("a trusted proxy says so", "10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("the client says more before", "10.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),
        ("two trusted proxies", "10.0.0.1", "1.1.1.1, 198.51.100.1,10.0.0.2", "198.51.100.1"),
        ("of six words", "fd00::1", "198.51.100.1", "198.51.100.1"),
        ("near the network, not in it", "10.0.0.16", "198.51.100.1", "10.0.0.16"),
        ("a proxy that says nothing", "10.0.0.1", " , ", "10.0.0.1"),
        ("no address at all", "", "198.51.100.1", ""),
        ("words", "10.0.0.1", "198.51.100.1, a word", "a word"),
        ("too many words", "10.0.0.1", "x" * 500, "x" * 100),
    ],
)
def test_whose_address_it_is(story: str, address: str, chain: str, want: str) -> None:
    """The last one that no trusted proxy has."""
    assert forwarded(address, chain, PROXIES) == want


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("https://tm.example.com", "https://tm.example.com"),
        ("https://TM.example.com:443", "https://tm.example.com"),
        ("https://tm.example.com:8443", "https://tm.example.com:8443"),
        ("http://127.0.0.1:80", "http://127.0.0.1"),
        ("https://[fd00::1]:443", "https://[fd00::1]"),
    ],
)
def test_an_origin_is_what_browsers_send(url: str, want: str) -> None:
    """However the operator wrote it."""
    assert origin_of(url) == want
