"""Documents: what is not a plain YAML file is refused at once, in one line."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from topmast.model.errors import InvalidInput
from topmast.model.files import source
from topmast.model.files.documents import from_document
from topmast.model.files.source import (
    FLEET_LIMITS,
    JOB_LIMITS,
    Kind,
    Limits,
    Node,
    kind_of_plain,
    parse_text,
    read_file,
)


def laughs(levels: int) -> str:
    """A few hundred bytes that mean ten to the power of ``levels``."""
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@dataclass(frozen=True)
class Case:
    """A document, and words that its refusal must have."""

    story: str
    text: str | bytes
    want_words: str
    want_line: int


REFUSED = [
    Case("nothing", "", "empty", 0),
    Case("only a comment", "# run: x\n", "empty", 0),
    Case("two documents", "run: a\n---\nrun: b\n", "second document", 2),
    Case("a tag that builds objects", "run: !!python/object/apply:os.system [ls]", "tag", 1),
    Case("a harmless tag", "a: 1\nrun: !!str 1", "'tag:yaml.org,2002:str'", 2),
    Case("a tag of the file's own", "run: !mine x", "'!mine'", 1),
    Case("a directive", "%TAG ! tag:x\n---\nrun: a", "directives", 1),
    Case("a second directive", "run: a\n...\n%YAML 1.1\n---\n", "directives", 3),
    Case("a field twice", "run: a\nname: x\nrun: b", "'run' is given twice, first in line 1", 3),
    Case("twice, once in quotes", "run: a\n'run': b", "twice", 2),
    Case("twice, deeper", "a:\n  b: 1\n  b: 2", "twice", 3),
    Case("a merge key", "a: &a {x: 1}\nb:\n  <<: *a", "merge keys", 3),
    Case("a list as a key", "? [a]\n: 1", "a list cannot be the name of a field", 1),
    Case("a mapping as a key", "? {a: 1}\n: 1", "a mapping cannot be the name of a field", 1),
    Case("an alias to a list as a key", "a: &a [1]\n*a : 1", "a list cannot be the name", 2),
    Case("an empty key", "'': 1", "nothing cannot be the name of a field", 1),
    Case("no key", ": 1", "not valid YAML", 1),
    Case("a key without a name", "? \n: 1", "nothing cannot be the name of a field", 1),
    Case("an alias without an anchor", "a: *b", "has no anchor '&b' above it", 1),
    Case("an alias before its anchor", "a: *b\nb: &b 1", "has no anchor", 1),
    Case("an alias inside its anchor", "a: &a\n  - b\n  - *a", "contains itself", 3),
    Case("a billion laughs", laughs(9), "more than 10,000 values, aliases expanded", 4),
    Case("few but long laughs", f"a: &a {'x' * 9_000}\nb: [{'*a,' * 200}]", "characters", 2),
    Case("many values", "[" + "a," * 20_000 + "]", "more than 10,000 values", 1),
    Case("deep lists", "[" * 100_000, "nested deeper than 32 levels", 1),
    Case("deep mappings", "{a: " * 100_000, "nested deeper than 32 levels", 1),
    Case("deep blocks", "- " * 100_000, "nested deeper than 32 levels", 1),
    Case("deep by aliases", "\n".join(
        ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 100)]
    ), "nested deeper", 31),
    Case("a colon in a value", "a: 1\nrun: echo x: y", "quote a value that contains ': '", 2),
    Case("a tab", "a:\n\tb: 1", "spaces, not tabs", 2),
    Case("an open quote", "run: 'x\n", "not valid YAML", 2),
    Case("an open bracket", "a: [1, 2\nb: 3", "not valid YAML", 2),
    Case("a control character", "run: a\nname: \x1b[31m", "characters are not allowed", 2),
    Case("a NUL", "run: a\nname: \0", "binary", 2),
    Case("an escaped NUL", 'run: a\nname: "\\0"', "NUL", 2),
    Case("not UTF-8", b"run: a\nname: \xff\xfe", "not UTF-8", 2),
    Case("UTF-16", "run: a\n".encode("utf-16"), "not UTF-8", 1),
    Case("too large", b"#" * (2**20 + 1), "larger than 1 MiB", 0),
]  # fmt: skip


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.story)
def test_hostile_and_broken_documents(
    case: Case, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is refused with its line, whether or not the fast parser is there."""
    monkeypatch.setattr(source, "_LOADER", getattr(yaml, loader, yaml.SafeLoader))
    data = case.text.encode() if isinstance(case.text, str) else case.text
    with pytest.raises(InvalidInput) as refused:
        parse_text(data, "f.yaml", JOB_LIMITS)
    assert case.want_words in refused.value.line()
    assert refused.value.line().isprintable()
    if loader == "CSafeLoader" and case.want_line:
        assert refused.value.where == f"f.yaml:{case.want_line}"


# A megabyte of each.
BOMBS = {
    "a billion laughs": laughs(9),
    "brackets": "[" * 2**20,
    "braces": "{a: " * 2**18,
    "a long list": "[" + "a," * 2**19,
    "many keys": "".join(f"k{i}: 1\n" for i in range(100_000)),
    "many anchors": "".join(f"- &a{i} x\n" for i in range(80_000)),
    "one key again and again": "a: 1\n" * 2**17,
    "many tags": "".join(f"%TAG !a{i}! x\n" for i in range(60_000)),
    "digits": "a: " + "9" * 1_000_000,
    "backslashes": '{"a": "' + "\\\\" * 500_000 + '"}',
    "question marks": "{" + "? " * 500_000,
}


@pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="the slow parser is slow")
@pytest.mark.parametrize("story", list(BOMBS))
def test_bombs_cost_little(story: str) -> None:
    """A megabyte of malice is answered in a fraction of a second."""
    data = BOMBS[story].encode()[: 2**20]

    def answer_s() -> float:
        begun_s = time.process_time()
        with contextlib.suppress(InvalidInput):
            parse_text(data, "f", JOB_LIMITS)
        return time.process_time() - begun_s

    # The best of some: this measures the parser, and not what else runs on the machine.
    assert min(answer_s() for _ in range(7)) < 0.25


def test_bombs_in_a_fleet_file_are_refused_too() -> None:
    """The larger limit is a limit as well."""
    with pytest.raises(InvalidInput, match="more than 2,000,000 values"):
        parse_text(laughs(9).encode(), "f", FLEET_LIMITS)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", Kind.NOTHING), ("~", Kind.NOTHING), ("null", Kind.NOTHING), ("nULL", Kind.TEXT),
        ("true", Kind.BOOLEAN), ("False", Kind.BOOLEAN), ("yes", Kind.TEXT), ("on", Kind.TEXT),
        ("8", Kind.NUMBER), ("-8", Kind.NUMBER), ("0x1F", Kind.NUMBER), ("0o17", Kind.NUMBER),
        ("1.5", Kind.NUMBER), (".5", Kind.NUMBER), ("1e3", Kind.NUMBER), (".inf", Kind.NUMBER),
        (".nan", Kind.NUMBER), ("inf", Kind.TEXT), ("nan", Kind.TEXT), ("1_000", Kind.TEXT),
        ("1:30", Kind.TEXT), ("2024-01-01", Kind.TEXT), ("٣", Kind.TEXT), ("H100:8", Kind.TEXT),
        ("=", Kind.TEXT), ("1e", Kind.TEXT), ("0b1", Kind.TEXT),
    ],
)  # fmt: skip
def test_plain_scalars_follow_the_core_schema(text: str, want: Kind) -> None:
    """Neither `yes` nor a date means anything but itself."""
    assert kind_of_plain(text) is want


def test_the_tree_knows_its_lines() -> None:
    """Values, keys and items each know where they stand; quotes make text of anything."""
    root = parse_text(b"a: 1\nb:\n  - '2'\n  - {c: true}\n", "f", JOB_LIMITS)
    assert root.key_lines == {"a": 1, "b": 2}
    first, second = root.entries["b"].items
    assert (first.kind, first.text, first.line) == (Kind.TEXT, "2", 3)
    assert (second.entries["c"].kind, second.entries["c"].line) == (Kind.BOOLEAN, 4)


def test_aliases_stand_for_their_anchors() -> None:
    """Sharing is allowed; a second anchor of a name replaces the first."""
    root = parse_text(b"a: &x {k: 1}\nb: *x\nc: &x 2\nd: [*x, *x]\n", "f", JOB_LIMITS)
    assert root.entries["b"] == root.entries["a"]
    assert [item.text for item in root.entries["d"].items] == ["2", "2"]
    assert root.nodes == 1 + 4 + 3 + 3 + 1 + 3


def test_a_quoted_merge_key_is_a_key() -> None:
    """In quotes, `<<` is a name like any other."""
    assert parse_text(b"{'<<': 1}", "f", JOB_LIMITS).entries["<<"].text == "1"


def test_json_is_yaml() -> None:
    """Escapes, tabs, pairs of surrogates: whatever a JSON library writes is read."""
    text = (
        '{\t"a":"\\u00e9\\/\\ud83d\\ude00","b":"\\\\ud83d\\\\ude00",\n\t"c":[1,-2.5e+3,null,true]}'
    )
    root = parse_text(text.encode(), "f", JOB_LIMITS)
    assert root.entries["a"].text == "é/😀"
    assert root.entries["b"].text == "\\ud83d\\ude00"
    kinds = [item.kind for item in root.entries["c"].items]
    assert kinds == [Kind.NUMBER, Kind.NUMBER, Kind.NOTHING, Kind.BOOLEAN]


def test_a_byte_order_mark_is_ignored() -> None:
    """Some editors put one there."""
    assert parse_text(b"\xef\xbb\xbfa: 1", "f", JOB_LIMITS).entries["a"].text == "1"


# ------------------------------------------------------------------------------------------- files


def want_refusal(path: Path, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        read_file(path, JOB_LIMITS)
    assert str(path.name) in refused.value.where
    assert refused.value.line().isprintable()


def test_a_missing_file(tmp_path: Path) -> None:
    """No such file, and no traceback."""
    want_refusal(tmp_path / "none.yaml", "no such file")


def test_a_directory(tmp_path: Path) -> None:
    """A directory is called one."""
    want_refusal(tmp_path, "is a folder")


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    """Nobody writes to this pipe; reading it would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    want_refusal(tmp_path / "pipe", "is a pipe")


def test_a_device_is_not_read() -> None:
    """`/dev/zero` never ends."""
    want_refusal(Path("/dev/zero"), "is a device")


def test_a_link_in_a_circle(tmp_path: Path) -> None:
    """What the system refuses is passed on in its words."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    want_refusal(tmp_path / "loop", "cannot be read: ")


def test_a_path_that_is_none(tmp_path: Path) -> None:
    """NUL in a path, and a name too long for any file system."""
    with pytest.raises(InvalidInput, match="not valid"):
        read_file(tmp_path / "a\0b", JOB_LIMITS)
    want_refusal(tmp_path / ("x" * 300), "cannot be read")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(tmp_path: Path) -> None:
    """Permission denied is said so."""
    (tmp_path / "secret").write_text("run: a")
    (tmp_path / "secret").chmod(0)
    want_refusal(tmp_path / "secret", "Permission denied")


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A sparse terabyte costs what the limit costs."""
    with (tmp_path / "huge").open("wb") as file:
        file.write(b"# a comment\n" * 1_000)
        file.truncate(2**40)
    want_refusal(tmp_path / "huge", "larger than 1 MiB")
    with (tmp_path / "core").open("wb") as file:
        file.truncate(2**40)
    want_refusal(tmp_path / "core", "this is a binary file, not YAML")


def test_odd_file_names_stay_on_one_line(tmp_path: Path) -> None:
    """A file's name cannot write to the terminal."""
    path = tmp_path / "a\x1b[31m\nb"
    path.write_text("run: [")
    with pytest.raises(InvalidInput) as refused:
        read_file(path, JOB_LIMITS)
    assert refused.value.line().isprintable()


# ---------------------------------------------------------------------------------- from a request


def nested(depth: int) -> object:
    document: object = 1
    for _ in range(depth):
        document = [document]
    return document


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("document", "want_words"),
    [
        (nested(32), "nested deeper than 32 levels"),
        (nested(10_000), "nested deeper than 32 levels"),
        (CYCLE, "nested deeper"),
        ([1] * 10_000, "more than 10,000 values"),
        ([["x" * 1000] * 100] * 11, "more than 1,048,576 characters"),
        ({"a": "x" * 2**20}, "characters"),
        ({1: 2}, "the name of a field must be text"),
        ({"": 2}, "must be text, and not empty"),
        ({"a": float("nan")}, "NaN and infinity"),
        ({"a": float("-inf")}, "NaN and infinity"),
        ({"a": 10**4000}, "too large"),
        ({"a": "b\0"}, "NUL"),
        ({"a": "\ud800"}, "surrogates"),
        ({"\ud800": 1}, "surrogates"),
        ({"a": b"bytes"}, "type 'bytes'"),
        ({"a": {1, 2}}, "type 'set'"),
        (object(), "type 'object'"),
    ],
)
def test_hostile_requests(document: object, want_words: str) -> None:
    """The same limits hold for what is in memory already."""
    with pytest.raises(InvalidInput) as refused:
        from_document(document, "request", JOB_LIMITS)
    assert want_words in refused.value.line()
    assert refused.value.where == "request"


@pytest.mark.parametrize(
    ("document", "text", "field"),
    [
        ({"a": {"b": ["x", "y\0"]}}, '{a: {b: [x, "y\\0"]}}', "a.b[1]"),
        ({"a": [[{"k": "\0"}]]}, 'a:\n- - k: "\\0"', "a[0][0].k"),
        ("\0", '"\\0"', ""),
    ],
)
def test_a_nul_is_told_with_its_field(document: object, text: str, field: str) -> None:
    """In a file and in a request alike."""
    reads: tuple[Callable[[], object], ...] = (
        lambda: from_document(document, "request", JOB_LIMITS),
        lambda: parse_text(text.encode(), "f", JOB_LIMITS),
    )
    for read in reads:
        with pytest.raises(InvalidInput, match="must not contain NUL") as refused:
            read()
        assert refused.value.field == field


def test_a_request_makes_the_same_tree() -> None:
    """Only the lines are missing."""
    want = parse_text(b"{a: [1, 2.5, null, true, x]}", "f", Limits(bytes=1000, nodes=100))
    found = from_document({"a": [1, 2.5, None, True, "x"]}, "f", JOB_LIMITS)

    def shape(node: Node) -> object:
        text = "" if node.kind is Kind.NOTHING else node.text
        entries = [(key, shape(part)) for key, part in node.entries.items()]
        return node.kind, text, [shape(item) for item in node.items], entries

    assert shape(found) == shape(want)


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize("behind", ["---\n", "---", "---\n---\n# no more\n", "...\n---\n"])
def test_nothing_behind_a_document_is_no_document(
    behind: str, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with several jobs are cut there, and some end so."""
    monkeypatch.setattr(source, "_LOADER", getattr(yaml, loader, yaml.SafeLoader))
    for text in ("run: a\n", "- a\n", "a\n"):
        node = parse_text(f"{text}{behind}".encode(), "f.yaml", JOB_LIMITS)
        assert node == parse_text(text.encode(), "f.yaml", JOB_LIMITS)
    with pytest.raises(InvalidInput, match="a second document"):
        parse_text(f"run: a\n{behind}\n---\n''\n".encode(), "f.yaml", JOB_LIMITS)
