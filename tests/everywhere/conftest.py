"""The figures are the last line of output, after what pytest says."""

import json

import pytest

from tests.everywhere.figures import FIGURES


def pytest_unconfigure(config: pytest.Config) -> None:
    if figures := config.stash.get(FIGURES, None):
        print(json.dumps(figures))
