"""When an output is the one that a page shows, and what is written into the page when it is not."""

import pytest

from tests.support.pages.compare import agrees, updated

QUEUE = ["ID  NAME  STATE    AGE", "j1  a     RUNNING   1s"]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        pytest.param(["j1"], ["j1"], True, id="word for word"),
        pytest.param(["j1"], ["j2"], False, id="another job"),
        pytest.param(["j1"], [], False, id="nothing was printed"),
        pytest.param(["j1"], ["warning: x", "j1"], False, id="a line more"),
        pytest.param(QUEUE, ["ID    NAME  STATE    AGE", "j1    a     RUNNING  12s"], True, id="widths and ages vary"),
        pytest.param(QUEUE, ["ID  NAME  STATE    AGE", "j1  a     PENDING   1s"], False, id="another state"),
        pytest.param(["wait for data  0s"], ["wait for data  48s"], False, id="no wait is not some wait"),
        pytest.param(["at 2026-11-21 02:47:54"], ["at 2030-01-01 00:00:00"], True, id="times vary"),
        pytest.param(["up at http://127.0.0.1:6278"], ["up at http://127.0.0.1:40001"], True, id="ports vary"),
        pytest.param(["a", "...", "z"], ["a", "b", "c", "z"], True, id="elided in the middle"),
        pytest.param(["a", "...", "z"], ["a", "b", "c"], False, id="the end is another"),
        pytest.param(["a", "..."], ["b", "a"], False, id="the beginning is another"),
        pytest.param(["...", "m", "..."], ["a", "m", "z"], True, id="a part from within"),
        pytest.param(["...", "m", "..."], ["a", "z"], False, id="the part is not there"),
        pytest.param(["...", "x", "y"], ["x", "y", "x", "y"], True, id="the last of two alike"),
        pytest.param(["..."], ["a"], True, id="anything"),
        pytest.param(["score 3.71"], ["score 1.08"], False, id="figures matter"),
    ],
)  # fmt: skip
def test_agreement(shown: list[str], printed: list[str], same: bool) -> None:
    """Lines are compared one by one, but for what varies from run to run and what is elided."""
    assert agrees(shown, printed) is same


def test_figures_that_vary() -> None:
    """Then any number stands for any other, but not for another word or another job."""
    assert agrees(["j1 score 1.46"], ["j1 score 1.51"], varies=True)
    assert not agrees(["j1 score 1.46"], ["j2 score 1.46"], varies=True)
    assert not agrees(["j1 score 1.46"], ["j1 price 1.46"], varies=True)


@pytest.mark.parametrize(
    ("shown", "printed", "new"),
    [
        pytest.param(["a"], ["b", "c"], ["b", "c"], id="all of it"),
        pytest.param(["a", "..."], ["b", "c", "d"], ["b", "..."], id="as many lines as before the gap"),
        pytest.param(["a", "...", "What would help", "  - x"], ["b", "q", "What would help", "  - y", "  - z"],
                     ["b", "...", "What would help", "  - y", "  - z"], id="the last part begins where it did"),
        pytest.param(["...", "state RUNNING", "..."], ["job j1", "state PENDING", "end"],
                     ["...", "state PENDING", "..."], id="a part from within"),
    ],
)  # fmt: skip
def test_what_is_shown_instead(shown: list[str], printed: list[str], new: list[str]) -> None:
    """What was elided stays elided, and the new text agrees."""
    assert updated(shown, printed) == new
    assert agrees(new, printed)
