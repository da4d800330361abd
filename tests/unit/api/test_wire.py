"""The schemas of what the REST interface shows."""

from __future__ import annotations

from topmast.api.wire import components


def test_the_text_below_a_field_describes_it_in_the_schema() -> None:
    properties = components()["JobView"]["properties"]
    assert properties["refusals"]["description"] == "How often a region refused the plan."
    assert "description" not in properties["name"]
