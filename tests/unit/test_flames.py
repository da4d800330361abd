"""Pictures of where time goes: what is counted, and what is left out."""

from tests.support.flames import drawn, parts_of, tree_of

MAIN = "main (topmast/app/main.py:1);run (topmast/bench/run.py:1)"
LOOP = f"{MAIN};_run (topmast/runtime/loop.py:9)"
RAW = "\n".join(
    [
        f"{LOOP};_turn (topmast/runtime/loop.py:20);best (topmast/fast/search.py:3) 60",
        f"{LOOP};commit (sqlalchemy/base.py:4);do (sqlalchemy/base.py:8) 30",
        f"{LOOP};<rare> (topmast/fast/rare.py:1) 1",
        f"{MAIN};_find_and_load (<frozen importlib>:1);<module> (topmast/fast/x.py:1) 50",
        "_bootstrap (threading.py:1);wait (threading.py:2) 70",
    ]
)


def test_time_is_that_of_the_package_that_spends_it_or_calls_a_library() -> None:
    """Neither imports count, nor threads that are in none of its functions."""
    root = tree_of(RAW)
    assert root.samples == 91
    (run,) = root.below.values()
    assert (run.name, run.package, run.samples) == ("_run", "runtime", 91)
    assert parts_of(root) == {"fast": round(61 / 91, 3), "runtime": round(30 / 91, 3)}
    assert list(run.below[("commit", "")].below) == [], "a library's own calls are one frame"


def test_a_picture_names_what_is_wide_and_leaves_out_what_is_narrow() -> None:
    """Names are escaped."""
    root = tree_of(RAW.replace("<rare> (topmast/fast/rare.py:1) 1", "<wide> (topmast/a/b.py:1) 40"))
    shown = drawn(root, "a & b")
    assert "a &amp; b" in shown
    assert "&lt;wide&gt;" in shown
    assert shown.count("<title>") == 6  # all, _run, _turn, best, commit, <wide>
    assert "<rare>" not in drawn(tree_of(RAW.replace(" 60", " 6000")), "")
