"""What hides other tenants' names in a view, by where they stand."""

from __future__ import annotations

from typing import Any, cast

import pytest

from topmast.fast.queue import GlobalQueue
from topmast.service.redaction import Redaction


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["vision", "speech", "nlp"], ["vision", "(another tenant)"]),
        ([], []),
        (None, None),
        ({"vision": 3}, {"vision": 3}),
        ([{"name": "vision"}], [{"name": "vision"}]),
    ],
)
def test_names_in_a_list_of_tenants_are_hidden_and_nothing_else_changes(
    given: Any, shown: Any
) -> None:
    redaction = Redaction(cast(GlobalQueue, None), frozenset({"vision"}))
    assert redaction.of({"tenants": given}) == {"tenants": shown}
