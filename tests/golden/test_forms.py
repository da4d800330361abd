"""What a database keeps has the form of its version, so that a program of another form stays away."""

from pathlib import Path

import msgspec
import pytest

from tests.golden import forms
from topmast.adapters.store.schema import VERSIONS


class Held(msgspec.Struct, tag=True, omit_defaults=True):
    """A fact."""

    job: str
    by: str = ""


class More(msgspec.Struct, tag="Held", omit_defaults=True):
    """The same with a field that a program before would drop in silence."""

    job: str
    by: str = ""
    until_s: float = 0.0


class Spoken(msgspec.Struct, tag="Held", omit_defaults=True):
    """The first with other words for people."""

    job: str
    by: str = ""


def test_what_is_kept_has_the_form_of_its_version() -> None:
    """A new fact, event, field or option is a new version: an older standby would follow wrongly."""
    version, lines = forms.kept()
    assert version in VERSIONS
    remedy = forms.REMEDY.format(version=version)
    changed = sorted(set(lines) ^ set(forms.forms()))
    assert not changed, f"{remedy}\n" + "\n".join(line[:300] for line in changed)


def test_every_field_is_part_of_a_form_and_no_word_is() -> None:
    ours, with_a_field, with_words = (
        forms.lines_of({"facts": kind}, forms.LEFT_OUT) for kind in (Held, More, Spoken)
    )
    assert [line.replace("More", "Held") for line in with_a_field] != ours
    assert [line.replace("Spoken", "Held") for line in with_words] == ours


def test_other_forms_are_kept_for_another_version_only(tmp_path: Path) -> None:
    file = tmp_path / "forms.jsonl"
    file.write_text("0009\n[1]\n[2]\n")
    forms.keep(["[1]", "[2]"], "0009", file)
    with pytest.raises(ValueError, match="Add a version"):
        forms.keep(["[1]", "[3]"], "0009", file)
    forms.keep(["[1]", "[3]"], "0010", file)
    assert forms.kept(file) == ("0010", ["[1]", "[3]"])
