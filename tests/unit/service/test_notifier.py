"""Webhooks are told at least once, in order, each at its own pace."""

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from topmast.adapters.webhooks import Undelivered
from topmast.model.errors import InvalidInput
from topmast.model.webhooks import Webhook, read_webhook
from topmast.ports import HistoryRow
from topmast.service import notifier as module
from topmast.service.notifier import Notifier, Told

URL = "https://example.com/"
ALL = ("submitted", "FAILED")


class Feed:
    """A journal in memory, which outlives its notifiers."""

    def __init__(self) -> None:
        self.rows: list[HistoryRow] = []
        self.options: dict[str, str] = {}
        self.writes: list[dict[str, str]] = []
        self.is_leader = True

    def history_after(self, after: int, limit: int) -> list[tuple[int, HistoryRow]]:
        return list(enumerate(self.rows, 1))[after : after + limit]

    def history_count(self) -> int:
        return len(self.rows)

    def option(self, name: str) -> str | None:
        return self.options.get(name)

    def set_options(self, values: Mapping[str, str]) -> None:
        self.writes.append(dict(values))
        self.options |= values

    def leads(self) -> bool:
        return self.is_leader

    def add(self, job: str, kind: str = "FAILED", text: str = "why") -> None:
        self.rows.append(HistoryRow(1.0, job, kind, text, "{}"))


class Clock:
    """Always noon."""

    def now(self) -> float:
        return 43_200.0


class Receiver:
    """Takes messages, unless it is told to refuse or to hang."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.tried: list[str] = []
        self.sent_s: list[int] = []
        self.refusals = 0
        self.hang = threading.Event()
        self.hang.set()

    def __call__(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        self.tried.append(headers["webhook-id"])
        self.sent_s.append(int(headers["webhook-timestamp"]))
        if url.endswith("hangs"):
            self.hang.wait(20)
            raise Undelivered("it hung")
        if self.refusals:
            self.refusals -= 1
            raise Undelivered("not now")
        self.taken.append(headers["webhook-id"])


JOBS = {
    "j1": Told("j1", "a", "vision", "ada", {"team": "x"}),
    "j2": Told("j2", "b", "nlp", "bob", {}),
}
PATHS = {"vision": ("vision", "research", ""), "nlp": ("nlp", "")}


def check(url: str) -> None:
    if "10.0.0.1" in url:
        raise Undelivered("not in the Internet")


def notifying(feed: Feed, receiver: Receiver) -> Notifier:
    return Notifier(feed, Clock(), JOBS.get, PATHS.__getitem__, receiver, check)


def until(found: Callable[[], Any]) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + 20
    while not found():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses as short as they can be."""
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)


def test_a_new_webhook_is_told_what_comes() -> None:
    """In order, of the events that it wants; a message that is refused comes again by the same id."""
    feed, receiver = Feed(), Receiver()
    feed.add("j1")
    notifier = notifying(feed, receiver)
    notifier.open()
    receiver.refusals = 2
    notifier.put(Webhook("ops", URL, events=ALL), feed.options.update)
    for kind in ("submitted", "placed", "FAILED"):
        feed.add("j1", kind)
    until(lambda: len(receiver.taken) == 2)
    notifier.close()
    assert receiver.tried == ["ops_2", "ops_2", "ops_2", "ops_4"]
    assert receiver.taken == ["ops_2", "ops_4"]


def test_a_message_says_when_it_was_sent_by_the_clock_of_the_machine() -> None:
    """Not by that of the journal, which stays ahead after a clock was wrong: all would be stale."""
    feed, receiver = Feed(), Receiver()
    notifier = notifying(feed, receiver)
    notifier.put(Webhook("ops", URL, events=ALL), feed.options.update)
    feed.add("j1")
    until(lambda: receiver.taken)
    notifier.close()
    assert abs(receiver.sent_s[0] - time.time()) < 60


def test_a_key_that_is_none_delays_until_it_is_mended(tmp_path: Path) -> None:
    """The list says what is wrong; nobody has to touch the webhook, and nothing is lost."""
    feed, receiver, key = Feed(), Receiver(), tmp_path / "key"
    key.write_text("whsec_abc")
    notifier = notifying(feed, receiver)
    notifier.put(Webhook("ops", URL, f"file:{key}", events=ALL), feed.options.update)
    feed.add("j1")
    until(lambda: notifier.views()[0].tries > 1)
    assert "is no key" in notifier.views()[0].error
    key.write_text("whsec_abcd")
    until(lambda: receiver.taken == ["ops_1"])
    assert notifier.views()[0].error == ""
    notifier.close()


def test_the_next_leader_goes_on() -> None:
    """After a close where it was; after a crash, something may come again, and nothing is lost."""
    feed, receiver = Feed(), Receiver()
    first = notifying(feed, receiver)
    first.open()
    first.put(Webhook("ops", URL, events=ALL), feed.options.update)
    for _ in range(3):
        feed.add("j1")
    until(lambda: len(receiver.taken) == 3)
    first.close()
    feed.add("j1")
    second = notifying(feed, receiver)
    second.open()
    until(lambda: len(receiver.taken) == 4)
    assert receiver.taken == [f"ops_{n}" for n in (1, 2, 3, 4)]
    feed.is_leader = False
    second.close()
    feed.is_leader = True
    feed.add("j1")
    third = notifying(feed, receiver)
    third.open()
    until(lambda: receiver.taken[-1] == "ops_5")
    third.close()
    assert set(receiver.taken) == {f"ops_{n}" for n in range(1, 6)}


def test_what_was_delivered_is_counted_over_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook that is changed begins anew, and one of before that was not counted, too."""
    feed, receiver = Feed(), Receiver()
    first = notifying(feed, receiver)
    first.put(Webhook("ops", URL, events=ALL), feed.options.update)
    for _ in "abc":
        feed.add("j1")
    until(lambda: len(receiver.taken) == 3)
    first.close()
    second = notifying(feed, receiver)
    second.open()
    assert [(view.delivered, view.delivered_s) for view in second.views()] == [(3, 43_200.0)]
    monkeypatch.setattr(module, "GIVEN_UP_S", 0.0)
    receiver.refusals = 1
    feed.add("j1")
    until(lambda: second.views()[0].given_up)
    second.close()
    third = notifying(feed, receiver)
    third.open()
    assert [(view.delivered, view.given_up) for view in third.views()] == [(3, 1)]
    third.put(Webhook("ops", URL, events=("FAILED",)), feed.options.update)
    third.close()
    for gone in ("", "webhook-score:ops"):
        feed.options.pop(gone, None)
        last = notifying(feed, receiver)
        last.open()
        assert [(view.delivered, view.delivered_s) for view in last.views()] == [(0, None)]
        last.close()


def test_a_server_that_leads_no_more_is_silent() -> None:
    """Its successor tells."""
    feed, receiver = Feed(), Receiver()
    notifier = notifying(feed, receiver)
    notifier.put(Webhook("ops", URL, events=ALL), feed.options.update)
    feed.is_leader = False
    feed.add("j1")
    time.sleep(0.1)
    notifier.close()
    assert receiver.tried == []
    assert feed.options["webhook-cursor:ops"] == "0"


def test_a_receiver_that_hangs_delays_no_other() -> None:
    """Nor the end of the server."""
    feed, receiver = Feed(), Receiver()
    receiver.hang.clear()
    notifier = notifying(feed, receiver)
    notifier.put(Webhook("bad", f"{URL}hangs", events=ALL), feed.options.update)
    notifier.put(Webhook("good", URL, events=ALL), feed.options.update)
    for _ in range(5):
        feed.add("j1")
    until(lambda: len(receiver.taken) == 5)
    bad, good = notifier.views()
    assert (bad.pending, good.pending, good.delivered) == (5, 0, 5)
    begun_s = time.monotonic()
    notifier.close()
    assert time.monotonic() - begun_s < 5
    receiver.hang.set()


@pytest.mark.parametrize(
    ("hook", "want"),
    [
        (Webhook("h", URL), {"h_1", "h_2", "h_3"}),
        (Webhook("h", URL, tenants=("vision",)), {"h_1"}),
        (Webhook("h", URL, tenants=("research", "nlp")), {"h_1", "h_2"}),
        (Webhook("h", URL, labels={"team": "x"}), {"h_1"}),
        (Webhook("h", URL, labels={"team": "y"}), set()),
        (Webhook("h", URL, events=("host-down",)), set()),
    ],
)
def test_filters(hook: Webhook, want: set[str]) -> None:
    """By event, tenant with those below it, and label."""
    feed, receiver = Feed(), Receiver()
    notifier = notifying(feed, receiver)
    notifier.put(hook, feed.options.update)
    for job in ("j1", "j2", "gone"):
        feed.add(job)
    until(lambda: notifier.views()[0].pending == 0)
    notifier.close()
    assert set(receiver.taken) == want


def test_a_webhook_that_is_removed_or_changed() -> None:
    """It is told no more; one that is changed goes on where it was."""
    feed, receiver = Feed(), Receiver()
    notifier = notifying(feed, receiver)
    notifier.put(Webhook("ops", f"{URL}hangs", events=ALL), feed.options.update)
    feed.add("j1")
    until(lambda: receiver.tried)
    notifier.put(Webhook("ops", URL, events=ALL), feed.options.update)
    until(lambda: receiver.taken == ["ops_1"])
    notifier.remove("ops", feed.options.update)
    feed.add("j1")
    time.sleep(0.1)
    notifier.close()
    assert receiver.taken == ["ops_1"]
    assert msgspec.json.decode(feed.options["webhooks"]) == []


def test_messages_for_slack() -> None:
    """What could be markup is text."""
    message = module.Message("m", "FAILED", 1.0, "<boom> & more", JOBS["j1"], {})
    body = msgspec.json.decode(module.body_of(Webhook("s", URL, template="slack"), message))
    assert body == {"text": "*a* (j1, vision): FAILED: &lt;boom&gt; &amp; more"}


@pytest.mark.parametrize(
    ("document", "want"),
    [
        ({}, "url: missing"),
        ({"url": "ftp://x"}, "url: is not a URL that can be called"),
        ({"url": "https://u:p@x/"}, "url: is not a URL that can be called"),
        ({"url": "https://x:99999/"}, "url: has no host, or a port that there is not"),
        ({"url": "https://:80/"}, "url: has no host, or a port that there is not"),
        ({"url": "file:///etc/passwd"}, "url: is not a URL that can be called"),
        ({"url": URL, "secret": "file:///key"}, "secret: is not a reference to a secret"),
        ({"url": URL, "secret": "hunter2"}, "secret: is not a reference to a secret"),
        ({"url": URL, "events": ["FAILD"]}, "did you mean 'FAILED'?"),
        ({"url": URL, "template": "teams"}, "one of: json, slack"),
        ({"url": URL, "extra": 1}, "extra: unknown field"),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, Any], want: str) -> None:
    """And never repeats what may be a secret."""
    with pytest.raises(InvalidInput) as caught:
        read_webhook("ops", document)
    assert want in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "u:p" not in str(caught.value)
    with pytest.raises(InvalidInput):
        read_webhook("a/b", {"url": URL})
    assert read_webhook("ops", {"url": URL, "events": ["failed"]}).events == ("FAILED",)


def test_all_cursors_are_kept_in_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions wait for each as for one of their own: twelve webhooks cost no more than one."""
    monkeypatch.setattr(module, "SAVE_S", 0.2)
    feed, receiver = Feed(), Receiver()
    notifier = notifying(feed, receiver)
    notifier.open()
    names = [f"h{n}" for n in range(12)]
    for name in names:
        notifier.put(Webhook(name, URL, events=ALL), feed.options.update)
    begun_s = time.monotonic()
    for _ in range(20):
        feed.add("j1")
        time.sleep(0.05)
    until(lambda: len(receiver.taken) == 20 * len(names))
    notifier.close()
    assert len(feed.writes) <= (time.monotonic() - begun_s) / 0.2 + 2
    assert {feed.options[module.CURSOR.format(name)] for name in names} == {"20"}


def test_a_backlog_takes_a_part_of_one_processor() -> None:
    """Of all webhooks together: decisions need the interpreter, too."""
    feed, receiver = Feed(), Receiver()
    notifier = notifying(feed, receiver)
    notifier.open()
    for n in range(12):
        notifier.put(Webhook(f"h{n}", URL, events=ALL), feed.options.update)
    feed.rows += [HistoryRow(1.0, "j1", "FAILED", "why", "{}")] * 100_000
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    time.sleep(2.0)
    share = (time.process_time() - begun_cpu_s) / (time.monotonic() - begun_s)
    notifier.close()
    assert receiver.taken
    assert share < 2 * module.SHARE


def test_all_that_keeps_messages_from_being_sent_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret that is not there or is none, a URL that is not called; nothing is sent."""
    receiver = Receiver()
    notifier = notifying(Feed(), receiver)
    monkeypatch.setenv("BROKEN", "whsec_!")
    (tmp_path / "key").write_text("a key")
    good = Webhook("ops", URL, f"file:{tmp_path}/key")
    troubles = list[str]()
    notifier.look_for_troubles(good, troubles.append)
    assert troubles == []
    for hook, said in (
        (replace(good, secret="file:/nope"), ["file:/nope: no such file"]),
        (replace(good, secret="env:BROKEN"), ["secret: .* is no key: .*"]),
        (replace(good, url="file:/none"), ["file:/none: no such file"]),
        (replace(good, url="http://10.0.0.1/"), ["not in the Internet"]),
        (replace(good, secret="env:NONE", url="http://10.0.0.1/"),
         ["the server has no variable NONE", "not in the Internet"]),
    ):  # fmt: skip
        found = list[str]()
        notifier.look_for_troubles(hook, found.append)
        assert all(re.fullmatch(*two) for two in zip(said, found, strict=True)), found
    assert not receiver.tried
