"""Requests to an API server that misbehaves: each row is an answer and what becomes of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.unit.adapters.engines.kubernetes.replies import kubeconfig_in, replying
from topmast.adapters.engines.far.kubernetes.api import Api, Refusal
from topmast.adapters.engines.far.kubernetes.kubeconfig import read_login
from topmast.adapters.engines.far.launcher import Unreachable

PODS = "/api/v1/namespaces/ml/pods"


class Name(msgspec.Struct):
    name: str


def api(folder: Path, reply: Callable[[httpx.Request], httpx.Response], **more: Any) -> Api:
    path = kubeconfig_in(folder)
    waited: list[float] = []
    given = {"wait": waited.append, **more}
    made = Api(lambda: read_login(str(path)), 5.0, replying({PODS: reply}), **given)
    made.waited = waited  # type: ignore[attr-defined]
    return made


def page(*names: str, then: str = "") -> httpx.Response:
    meta = {"continue": then} if then else {}
    return httpx.Response(200, json={"metadata": meta, "items": [{"name": n} for n in names]})


def status(code: int, message: str = "no", reason: str = "") -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "message": message, "reason": reason})


def test_a_list_is_read_page_by_page(tmp_path: Path) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        assert request.url.params["limit"] == "500"
        assert request.url.params["labelSelector"] == "a=b"
        begun = request.url.params.get("continue")
        return (
            page("c") if begun == "t2" else page("b", then="t2") if begun else page("a", then="t1")
        )

    found = api(tmp_path, reply).all(Name, PODS, labelSelector="a=b")
    assert [one.name for one in found] == ["a", "b", "c"]


def test_a_list_that_the_server_forgot_begins_anew_and_holds_nothing_twice(tmp_path: Path) -> None:
    asked: list[str | None] = []

    def reply(request: httpx.Request) -> httpx.Response:
        begun = request.url.params.get("continue")
        asked.append(begun)
        if begun == "t1":
            return status(410, "too old", "Expired")
        return page("a", then="t1") if len(asked) == 1 else page("a", "b")

    assert [one.name for one in api(tmp_path, reply).all(Name, PODS)] == ["a", "b"]
    assert asked == [None, "t1", None]


def test_a_list_that_never_ends_is_given_up(tmp_path: Path) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        return status(410) if "continue" in request.url.params else page("a", then="t")

    with pytest.raises(Unreachable, match="forgets the beginning"):
        api(tmp_path, reply).all(Name, PODS)


def refuse(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def reply(request: httpx.Request) -> httpx.Response:
        raise error

    return reply


@pytest.mark.parametrize(
    ("story", "reply", "want"),
    [
        ("no connection", refuse(httpx.ConnectError("refused")), "kube.example:6443 cannot be reached"),
        ("no answer", refuse(httpx.ReadTimeout("slow")), "did not answer within 5 s"),
        ("cut off", refuse(httpx.RemoteProtocolError("gone")), "cannot be reached: gone"),
        ("internal error", lambda _: status(500, "etcd"), "the API server failed: etcd"),
        ("overloaded proxy", lambda _: httpx.Response(503, text="<html>"), "503"),
        ("another server", lambda _: httpx.Response(404, text="<html>"), "what answers is no API"),
        ("a page", lambda _: httpx.Response(200, text="<html>"), "is no API server"),
        ("half a list", lambda _: httpx.Response(200, text='{"items": ['), "is no API server"),
        ("a list of something else", lambda _: httpx.Response(200, json={"metadata": {}, "items": [1]}),
         "is no API server"),
        ("a redirect", lambda _: httpx.Response(302, headers={"location": "/x"}), "302"),
        ("too busy for ever", lambda _: status(429, "slow down"), "slow down"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_no_answer_is_told_as_none(
    tmp_path: Path, story: str, reply: Callable[[httpx.Request], httpx.Response], want: str
) -> None:
    with pytest.raises(Unreachable, match=want):
        api(tmp_path, reply).all(Name, PODS)


def test_a_busy_server_is_asked_again_after_the_pause_that_it_names(tmp_path: Path) -> None:
    answers = [
        httpx.Response(429, headers={"retry-after": "2"}, json={}),
        httpx.Response(429, headers={"retry-after": "9999"}, json={}),
        page("a"),
    ]
    made = api(tmp_path, lambda request: answers.pop(0))
    assert len(made.all(Name, PODS)) == 1
    assert made.waited == [2.0, 5.0]  # type: ignore[attr-defined]


def test_a_refusal_keeps_its_reason(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as raised:
        api(tmp_path, lambda _: status(409, "pods 'a'\nexists", "AlreadyExists")).create(
            Name, PODS, {}
        )
    assert (raised.value.code, raised.value.reason) == (409, "AlreadyExists")
    assert raised.value.message == "pods 'a' exists"


def test_a_request_that_may_have_been_carried_out_is_not_sent_twice(tmp_path: Path) -> None:
    sent: list[str] = []

    def reply(request: httpx.Request) -> httpx.Response:
        sent.append(request.method)
        raise httpx.ReadTimeout("slow")

    with pytest.raises(Unreachable):
        api(tmp_path, reply).create(Name, PODS, {})
    assert sent == ["POST"]


def test_refused_credentials_are_read_anew_once(tmp_path: Path) -> None:
    shown: list[str] = []

    def reply(request: httpx.Request) -> httpx.Response:
        shown.append(request.headers["authorization"])
        if shown[-1] == "Bearer old":
            kubeconfig_in(tmp_path, token="new")
        return page("a") if shown[-1] == "Bearer new" else status(401, "Unauthorized")

    made = api(tmp_path, reply)
    kubeconfig_in(tmp_path, token="old")
    assert len(made.all(Name, PODS)) == 1
    assert shown == ["Bearer old", "Bearer new"]
    shown.clear()
    kubeconfig_in(tmp_path, token="worse")
    assert len(made.all(Name, PODS)) == 1
    assert shown == ["Bearer new"], "good ones are kept"


def test_credentials_that_stay_bad_are_told(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="Unauthorized"):
        api(tmp_path, lambda _: status(401, "Unauthorized")).all(Name, PODS)


def test_a_kubeconfig_that_is_lost_later_is_no_answer_either(tmp_path: Path) -> None:
    made = api(tmp_path, lambda _: status(401, "Unauthorized"))
    (tmp_path / "config").unlink()
    with pytest.raises(Unreachable, match="the kubeconfig cannot be read"):
        made.all(Name, PODS)
