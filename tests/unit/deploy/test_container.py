"""What the image installs is all that a server and the chart may ask for."""

import re
import tomllib

import pytest

from tests.support.helm import REPO

EXTRAS = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
FOR_SERVERS = ("server", "postgres", "ssh", "oidc", "otel")


def _names(lines: list[str]) -> set[str]:
    return {found[0].lower() for line in lines if (found := re.match(r"[A-Za-z0-9._-]+", line))}


@pytest.mark.parametrize("extra", FOR_SERVERS)
def test_the_list_that_the_image_installs_has_each_extra_of_a_server(extra: str) -> None:
    """A chart with `store` starts servers that need the driver of PostgreSQL, with `accounts` the one of logins."""
    locked = _names((REPO / "requirements" / "runtime.txt").read_text("utf-8").splitlines())
    assert _names(EXTRAS[extra]) <= locked
    text = (REPO / "deploy" / "Containerfile").read_text("utf-8")
    assert "--require-hashes -r requirements/runtime.txt" in text
