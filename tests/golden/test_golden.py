"""The kept journal: today's code decides as it did, and yesterday's decisions lead where they led.

If a change of decisions is meant, run ``python -m tests.golden.record`` and look at the difference.
"""

from pathlib import Path

import pytest

from tests.golden import files
from tests.golden.story import OPTIONS, tell
from tests.support.journal import MemoryJournal
from tests.support.world import World
from topmast import jit
from topmast.fast.cluster.facts import (
    Continued,
    GangsOpened,
    Joined,
    Measured,
    Packed,
    PackKept,
    Suspended,
    Unpacked,
)
from topmast.fast.cluster.machine import ClusterManager
from topmast.fast.machine import Fact
from topmast.fast.queue.facts import (
    AllPlanned,
    AllStarting,
    AttemptsSkipped,
    Bound,
    BudgetNoted,
    DatasetRemoved,
    DependencyMet,
    Edited,
    EditTaken,
    HoldSet,
    JobsForgotten,
    PackedWith,
    Promoted,
    QuotaBegun,
    QuotaOver,
    QuotaSet,
    Requeued,
    TenantPaused,
    TreeTaken,
    Unplanned,
    WindowBegun,
    WindowOver,
    WindowSet,
)
from topmast.fast.queue.machine import GlobalQueue
from topmast.fast.region.facts import (
    AllTaken,
    ClosureSet,
    HostClosure,
    HostsGone,
    PairedWith,
)
from topmast.fast.region.machine import RegionalPlacer
from topmast.model import ids
from topmast.model.messages import Recovered
from topmast.runtime.codec import decode_event, decode_facts, encode_event, encode_facts
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import rebuild

BURSTS = (AllPlanned, AllStarting, AllTaken, GangsOpened)
TURNS = (PackedWith, PairedWith, Joined, Suspended, Continued, Measured, Packed, PackKept, Unpacked)
VERSIONS = sorted(path for path in files.HERE.iterdir() if (path / "journal.jsonl").is_file())


def test_the_story_is_told_as_it_was() -> None:
    """The same messages, the same facts: every record of the kept journal, byte for byte."""
    kept = files.records(files.CURRENT)
    written = tell().journal.written
    for ours, theirs in zip(written, kept, strict=False):
        assert ours == theirs
    assert len(written) == len(kept)


def test_python_tells_it_as_compiled_code_does() -> None:
    """Before kernels are compiled Python runs them; nothing is decided otherwise."""
    jit.interpret("fast")
    try:
        written = tell().journal.written
    finally:
        jit.run_compiled()
    assert written == files.records(files.CURRENT)


def test_what_came_in_alone_leads_to_the_same_facts() -> None:
    """Fed with the kept inputs, without engines and people around, the machines decide the same."""
    world = World(None, OPTIONS)
    for given in files.inputs(files.CURRENT):
        if given.to == ids.QUEUE and isinstance(given.message, Recovered):
            world.crash()
        world.now = given.at_s
        world.commit(world.handle(given.to, given.message))
    assert world.journal.written == files.records(files.CURRENT)


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_recorded_facts_lead_to_the_recorded_end(folder: Path) -> None:
    """Recovery applies what was decided then, by whichever version, and decides nothing anew."""
    journal = MemoryJournal()
    journal.written = files.records(folder)
    machines = Machines(OPTIONS)
    rebuilt = rebuild(machines, journal)
    assert rebuilt.replayed == len(journal.written)
    for address, blob in files.end(folder).items():
        machine = machines.at(address)
        assert machine is not None
        state = machine.snapshot()
        machine.restore(blob)
        assert files.without_zeros(machine.snapshot()) == files.without_zeros(state), address


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_every_record_is_read_and_written_alike(folder: Path) -> None:
    """Nothing in a record is lost on the way through this version's types."""
    for record in files.records(folder):
        event = decode_event(record.event)
        facts = decode_facts(record.machine, record.facts)
        assert decode_event(encode_event(event)) == event
        assert decode_facts(record.machine, encode_facts(facts)) == facts


def test_the_story_leaves_out_no_kind_of_fact() -> None:
    """A fact that the story does not contain is not watched over by it."""
    seen: set[type] = set()
    for record in files.records(files.CURRENT):
        seen |= {type(fact) for fact in decode_facts(record.machine, record.facts)}
    machines = (GlobalQueue, RegionalPlacer, ClusterManager)
    every = {kind for machine in machines for kind in machine.appliers}
    assert all(issubclass(kind, Fact) for kind in every)
    left_out = {
        Unplanned,
        Bound,
        Promoted,
        TreeTaken,
        AttemptsSkipped,
        DatasetRemoved,
        ClosureSet,
        HostClosure,
        HostsGone,
        HostsGone,
        HoldSet,
        Requeued,
        TenantPaused,
        Edited,
        EditTaken,
        DependencyMet,
        JobsForgotten,
        WindowSet,
        WindowBegun,
        WindowOver,
        QuotaSet,
        QuotaBegun,
        QuotaOver,
        BudgetNoted,
        *TURNS,
        *BURSTS,
    }
    why = "its plans fit, its journal is whole; nobody is bound, starves, or shares GPUs; no tree is grown, no dataset removed, no host or cluster closed or gone, no tenant paused, no job held, requeued or changed, none waits for another, no hosts reserved, no quota changed for a while, no budget used, nothing forgotten"
    assert every - seen == left_out, why


def test_the_kept_files_stay_small() -> None:
    """They are read by people, and travel with every clone."""
    for folder in VERSIONS:
        assert sum(path.stat().st_size for path in folder.iterdir()) < 400_000
