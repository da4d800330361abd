"""Fields that may be absent."""

from msgspec import UNSET

from topmast.model.absent import given


def test_only_an_absent_field_gets_the_default() -> None:
    assert given(UNSET, 7) == 7
    assert given(0, 7) == 0
    assert given(None, 7) is None
