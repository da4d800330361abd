"""What open dashboards cost the decisions of a server, small."""

from pathlib import Path

from tests.support.weblab.bench import server
from tests.support.weblab.cost import Pace, compared

BRIEF = Pace(jobs_per_s=50.0, turn_s=1.0, settle_s=0.5)


def test_decisions_are_timed_by_the_time_of_their_thread(tmp_path: Path) -> None:
    """Machines take no more CPU time than the thread that they are on, with dashboards or without."""
    with server(tmp_path, 80) as (url, process):
        found = compared(url, process, 3, 2, BRIEF)
    turns = found["turns"]
    assert [len(turns["alone"]), len(turns["with_them"])] == [2, 2]
    for turn in (*turns["alone"], *turns["with_them"]):
        assert 0.0 < turn.machines_us <= turn.thread_us
        assert turn.answer_ms > 0.0
    assert set(found["growth"]) == {
        "machines_us", "thread_us", "thread_pct", "answer_ms", "machines_us_alone"
    }  # fmt: skip
    assert found["machines_us_grow"] == "neither shown nor refuted"
