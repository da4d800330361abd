"""Hooks are called at the steps for which they have a method of their own, in their order."""

from topmast.fast.queue.hooks import HookSteps, QueueHooks, steps_of


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
    steps = steps_of((first, second))
    assert steps.on_wake == (first, second)
    assert steps.on_all_decided == (second,)
    assert steps.on_moved == ()


def test_every_step_of_the_hooks_has_its_list() -> None:
    """A step without one would never be reached."""
    named = {name for name in vars(QueueHooks) if not name.startswith("_")}
    assert named == set(HookSteps.__struct_fields__)
