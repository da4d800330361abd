"""Tells systemd, if that started this process, that the server is ready or stops (sd_notify)."""

from __future__ import annotations

import os
import socket

READY, STOPPING = b"READY=1", b"STOPPING=1"


def tell(news: bytes) -> None:
    """Send one message to the socket that systemd names; without one, do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            sender.sendto(news, address)
        except OSError:
            return  # a supervisor that cannot be told anything does not concern the jobs
