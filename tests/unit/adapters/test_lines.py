"""Lines that arrive in pieces."""

from topmast.adapters.lines import Lines


def test_a_line_is_complete_with_its_line_feed() -> None:
    lines = Lines()
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.rest == b"tw"
    assert lines.feed(b"o") == []
    assert lines.feed(b"\n\nthree\n") == [b"two", b"", b"three"]
    assert lines.rest == b""
