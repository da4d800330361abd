"""Where a login leads to."""

import pytest

from topmast.api.login import onward


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
