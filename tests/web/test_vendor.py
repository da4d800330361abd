"""The vendored files are those that npm has for the version in the lock file."""

from __future__ import annotations

import pytest

from tests.support.weblab.tools import MODULES, STATIC, missing

pytestmark = pytest.mark.web

EXPORT = "\nexport default uPlot;\n"


def test_the_vendored_uplot_is_that_of_npm_with_one_line_more() -> None:
    if why := missing():
        pytest.skip(why)
    vendor, package = STATIC / "vendor", MODULES / "uplot"
    plain = (package / "dist" / "uPlot.iife.min.js").read_text("utf-8")
    assert (vendor / "uplot.js").read_text("utf-8") == plain + EXPORT
    style = (package / "dist" / "uPlot.min.css").read_bytes()
    assert (vendor / "uplot.css").read_bytes() == style
    assert (vendor / "uplot.LICENSE.txt").read_bytes() == (package / "LICENSE").read_bytes()
