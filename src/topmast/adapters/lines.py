"""Lines that arrive in pieces. Standard library only: small processes use it too."""

from __future__ import annotations


class Lines:
    """Puts pieces of bytes together to lines, without their line feeds."""

    def __init__(self) -> None:
        self.rest = b""
        """What came after the last line feed."""

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes. O(rest + piece)."""
        *lines, self.rest = (self.rest + piece).split(b"\n")
        return lines
