"""The one table of job states, and what a machine does with a move it forbids."""

import itertools

import pytest

from tests.support.build import cluster, fleet, job
from tests.support.world import World
from topmast.fast.queue import facts as f
from topmast.model import messages as m
from topmast.model.states import HOLDING, TERMINAL, TRANSITIONS, WAITING, JobState, may_move


def test_the_table_has_a_row_for_every_state() -> None:
    """No state is forgotten, as a source or as a target."""
    assert set(TRANSITIONS) == set(JobState)
    assert set(itertools.chain.from_iterable(TRANSITIONS.values())) <= set(JobState)


def test_every_state_can_be_reached_from_pending() -> None:
    """Jobs begin as PENDING; a state that no path leads to would be a mistake of the table."""
    reached, frontier = {JobState.PENDING}, [JobState.PENDING]
    while frontier:
        for target in TRANSITIONS[frontier.pop()]:
            if target not in reached:
                reached.add(target)
                frontier.append(target)
    assert reached == set(JobState)


def test_every_state_leads_to_an_end() -> None:
    """From wherever a job stands, it can finish."""
    for state in JobState:
        seen, frontier = {state}, [state]
        while frontier:
            following = set(TRANSITIONS[frontier.pop()]) - seen
            seen |= following
            frontier.extend(following)
        assert seen & set(TERMINAL), state


def test_terminal_states_have_no_exit() -> None:
    """What is over stays as it is, and nothing else is without exit."""
    assert {state for state in JobState if not TRANSITIONS[state]} == set(TERMINAL)


def test_states_are_waiting_or_holding_or_over() -> None:
    """The three classes divide the states: none is in two, none in no class."""
    assert sorted((*WAITING, *HOLDING, *TERMINAL)) == sorted(JobState)


def test_no_state_lists_itself_or_another_twice() -> None:
    """A move changes something."""
    for state, targets in TRANSITIONS.items():
        assert state not in targets
        assert len(set(targets)) == len(targets)


@pytest.mark.parametrize("source", JobState)
@pytest.mark.parametrize("target", JobState)
def test_the_queue_refuses_a_move_that_the_table_forbids(
    source: JobState, target: JobState
) -> None:
    """An illegal move raises before anything is written; a legal one, or none, is carried out."""
    world = World(fleet(cluster("east-1")))
    world.submit(job())
    record = world.jobs["j1"]
    world.queue.jobs.move(record, source)
    fact = f.Moved("j1", target)
    if source is target or may_move(source, target):
        world.queue.apply(m.Wake(), fact, 0.0)
        assert record.state is target
    else:
        with pytest.raises(AssertionError, match=f"j1: {source} may not become {target}"):
            world.queue.apply(m.Wake(), fact, 0.0)
        assert record.state is source
