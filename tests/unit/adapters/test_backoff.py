"""Pauses between trials."""

from topmast.adapters.backoff import Backoff


def test_pauses_grow_to_the_longest_and_begin_anew() -> None:
    backoff = Backoff(0.1, 1.0, 4.0)
    assert [backoff.take() for _ in range(4)] == [0.1, 0.4, 1.0, 1.0]
    backoff.reset()
    assert backoff.next_s == 0.1
    assert backoff.take() == 0.1
