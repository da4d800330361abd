"""Which extra brings a library."""

from importlib.metadata import requires

import pytest

from topmast.cli.extras import extra_of

LISTED = (
    "httpx<1,>=0.27",
    'prometheus-client<1,>=0.22; extra == "server"',
    "scikit-learn<2,>=1.5 ; extra == 'server'",
    'psycopg[binary]>=3.1; extra == "postgres"',
)


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("prometheus_client.core", "server"), ("sklearn.tree", "server"),
        ("psycopg", "postgres"), ("httpx", None), ("topmast.no_such", None), ("", None),
    ],
)  # fmt: skip
def test_a_module_is_found_by_its_distribution(module: str, extra: str | None) -> None:
    """Names of modules and distributions differ in dashes, and sometimes entirely."""
    assert extra_of(module, LISTED) == extra


def test_the_package_as_it_is_installed_says_so_of_itself() -> None:
    """Else the table above would be of nothing real."""
    assert any("extra" in line for line in requires("topmast") or ())
    assert extra_of("numpy") == "server"
    assert extra_of("matplotlib.pyplot") == "plots"
