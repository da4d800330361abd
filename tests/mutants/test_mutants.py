"""The mutants fit the source, and one of them is tried; `make mutants` tries them all."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS
from tests.mutants.run import REPO, OutOfDate, break_it, noticed


@pytest.mark.always
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.promise)
def test_a_mutant_fits_the_source(mutant: Mutant, tmp_path: Path) -> None:
    """What it replaces is there, once; what comes of it is a program; its test is there."""
    copy = tmp_path / "topmast" / mutant.file
    copy.parent.mkdir(parents=True)
    shutil.copy(REPO / "src" / "topmast" / mutant.file, copy)
    break_it(tmp_path, mutant)
    compile(copy.read_text("utf-8"), copy.name, "exec")
    file, _, name = mutant.test.partition("::")
    assert (REPO / file).exists()
    assert not name or f"def {name}(" in (REPO / file).read_text("utf-8")


def test_a_mutant_of_other_source_is_an_error(tmp_path: Path) -> None:
    """It would prove nothing: nothing would be broken."""
    copy = tmp_path / "topmast" / MUTANTS[0].file
    copy.parent.mkdir(parents=True)
    copy.write_text("# all new")
    with pytest.raises(OutOfDate, match="0 times, not once"):
        break_it(tmp_path, MUTANTS[0])


def test_a_mutant_is_noticed_and_one_that_breaks_nothing_is_not() -> None:
    """The tool itself can tell the two apart."""
    harmless = replace(MUTANTS[0], new=MUTANTS[0].old + " ".strip())
    assert noticed(MUTANTS[0])
    assert not noticed(harmless)
