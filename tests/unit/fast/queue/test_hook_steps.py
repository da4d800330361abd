"""Hooks are called at the steps for which they have a method of their own, in their order."""

import pytest

from topmast.fast.queue.hooks import HookSteps, QueueHooks


class Wakes(QueueHooks):
    """Acts at one step."""

    def on_wake(self) -> None:
        """Here."""


class AlsoRests(Wakes):
    """Acts there as well, by the method of its base, and at another step."""

    def on_all_decided(self) -> None:
        """And here."""


def test_a_hook_is_called_only_where_it_does_something() -> None:
    """Its own methods count, and those of a base other than the empty one."""
    first, second = Wakes(), AlsoRests()
    steps = HookSteps((first, second))
    assert steps.on_wake == (first, second)
    assert steps.on_all_decided == (second,)
    assert steps.on_moved == ()


def test_there_is_no_step_that_hooks_do_not_know() -> None:
    """One that is misspelt would never be reached."""
    with pytest.raises(AttributeError, match="on_waking"):
        _ = HookSteps((Wakes(),)).on_waking
