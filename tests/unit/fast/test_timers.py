"""Times of keys: the last one that was set counts."""

from __future__ import annotations

import random

from topmast.fast.timers import Timers


def test_timers_are_those_of_a_plain_table() -> None:
    """Set, drop, take what is due: in any sequence as a search through all keys finds them."""
    rng = random.Random(1)
    timers, model = Timers[str](), dict[str, tuple[float, int]]()
    for _ in range(5_000):
        number = rng.randrange(20)
        key, at_s = f"k{number}", float(rng.randrange(50))
        match rng.randrange(4):
            case 0 | 1:
                timers.set(key, at_s, number)
                model[key] = at_s, number
            case 2:
                timers.drop(key)
                model.pop(key, None)
            case _:
                due = sorted((when, key) for key, when in model.items() if when[0] <= at_s)
                assert timers.take_due(at_s) == [key for _, key in due]
                for _, key in due:
                    del model[key]
        assert timers.next_s() == min((when[0] for when in model.values()), default=None)
        assert timers.at_s("k3") == model.get("k3", (None, 0))[0]
