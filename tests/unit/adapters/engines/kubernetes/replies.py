"""An API server of a few functions, by the path of the request."""

from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import yaml

Reply = Callable[[httpx.Request], httpx.Response]


def kubeconfig_in(folder: Path, token: str = "t") -> Path:
    """A kubeconfig that leads to `replying`."""
    path = folder / "config"
    path.write_text(
        yaml.safe_dump({
            "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": "https://kube.example:6443"}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        })
    )  # fmt: skip
    return path


def replying(replies: Mapping[str, Reply]) -> httpx.MockTransport:
    """What answers each path, with ``METHOD PATH`` before ``PATH``; 404 for all others."""

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        reply = replies.get(f"{request.method} {path}") or replies.get(path)
        if reply is None:
            return httpx.Response(404, json={"reason": "NotFound", "message": f"no {path}"})
        return reply(request)

    return httpx.MockTransport(answer)
