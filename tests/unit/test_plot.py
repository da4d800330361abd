"""What is drawn."""

import warnings

from topmast import plot


def test_a_picture_without_lines_has_no_legend() -> None:
    """Where no job finished, say; and nobody is warned of that."""
    drawn = plot.figure()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot.legend(drawn)
    assert drawn.axes[0].get_legend() is None
    drawn.axes[0].plot([0, 1], [0, 1], label="all")
    plot.legend(drawn)
    assert drawn.axes[0].get_legend() is not None
