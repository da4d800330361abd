"""ID tokens of a made-up provider: each thing that must be checked, wrong by itself."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from topmast.adapters.oidc import Identity, OpenId, Pending, Refused
from topmast.adapters.oidc import provider as of_provider
from topmast.model.errors import InvalidInput, Unavailable
from topmast.model.files.accountsfile import Provider, parse_accounts

NOW = 1_900_000_000.0
ISSUER = "https://id.example.com"
PROVIDER = Provider(ISSUER, "topmast")
KEY = RSAKey.generate_key(2048, {"kid": "k1"}, auto_kid=False)
OTHER = RSAKey.generate_key(2048, {"kid": "k1"}, auto_kid=False)
PENDING = Pending("state", "nonce", "verifier")
GOOD: dict[str, Any] = {
    "iss": ISSUER, "aud": "topmast", "sub": "1", "iat": NOW - 5, "exp": NOW + 300, "nonce": "nonce",
    "email": "ann@example.com", "email_verified": True, "groups": ["ml"],
}  # fmt: skip
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/auth",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}


class Fake:
    """A provider that answers with one ID token."""

    def __init__(self, token: str, metadata: dict[str, Any] = METADATA) -> None:
        self.token = token
        self.metadata = metadata
        self.asked: list[str] = []
        self.keys = [KEY.as_dict(private=False)]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        answers: dict[str, Any] = {
            "/.well-known/openid-configuration": self.metadata,
            "/keys": {"keys": self.keys},
            "/token": {"id_token": self.token},
        }
        return httpx.Response(200, json=answers[request.url.path])


def signed(key: Any = KEY, alg: str = "RS256", **claims: Any) -> str:
    """A token with some claims other than they must be; None leaves one out."""
    found = {name: value for name, value in {**GOOD, **claims}.items() if value is not None}
    return jwt.encode({"alg": alg, "kid": "k1"}, found, key, algorithms=[alg])


def unsigned() -> str:
    """A token with the algorithm "none"."""
    parts = [{"alg": "none"}, GOOD]
    texts = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts]
    return ".".join([*texts, ""])


def hmac_with_public_key() -> str:
    """A token signed with the public key as if it were a shared secret."""
    parts = [{"alg": "HS256", "kid": "k1"}, GOOD]
    text = b".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in parts)
    mark = hmac.digest(KEY.as_pem(private=False), text, "sha256")
    return f"{text.decode()}.{base64.urlsafe_b64encode(mark).rstrip(b'=').decode()}"


def identity(fake: Fake, provider: Provider = PROVIDER, now_s: float = NOW) -> Identity:
    """The person that a code stands for."""
    clock = iter(range(0, 10_000, 100))
    openid = OpenId(
        provider, "", "https://x/auth/callback", lambda: now_s, lambda: float(next(clock)),
        httpx.MockTransport(fake),
    )  # fmt: skip
    return asyncio.run(openid.finish("code", PENDING))


def test_a_good_token_names_a_person() -> None:
    """Name and groups; nothing else of it is used."""
    assert identity(Fake(signed())) == Identity("ann@example.com", ("ml",))
    assert identity(Fake(signed(groups=None))).groups == ()
    assert identity(Fake(signed(groups="one"))).groups == ("one",)
    assert identity(Fake(signed(groups=[1, "a", "a", {}]))).groups == ("a",)
    assert identity(Fake(signed(aud=["topmast", "x"], azp="topmast"))).name == "ann@example.com"


def test_clocks_may_differ_by_a_minute() -> None:
    """Not by more, in either direction."""
    for shift_s, good in ((-50, True), (50, True), (-70, False)):
        token = signed(iat=NOW + 0.0, exp=NOW + 10.0)
        if good:
            assert identity(Fake(token), now_s=NOW + shift_s).groups == ("ml",)
        else:
            with pytest.raises(Refused):
                identity(Fake(token), now_s=NOW + shift_s)
    with pytest.raises(Refused):
        identity(Fake(signed(exp=NOW - 61)))


BAD = {
    "no signature": unsigned(),
    "a shared secret": hmac_with_public_key(),
    "another key": signed(OTHER),
    "another issuer": signed(iss="https://evil.example.com"),
    "no issuer": signed(iss=None),
    "another client": signed(aud="other"),
    "many clients, none named": signed(aud=["topmast", "other"]),
    "another party": signed(azp="other"),
    "no audience": signed(aud=None),
    "expired": signed(exp=NOW - 3600),
    "without an end": signed(exp=None),
    "of the future": signed(iat=NOW + 3600),
    "another login": signed(nonce="other"),
    "no nonce": signed(nonce=None),
    "an address that is not verified": signed(email_verified=False),
    "an address that may be verified": signed(email_verified=None),
    "no name": signed(email=None),
    "a name that looks like another kind": signed(email="sa:ci"),
    "a name with a line break": signed(email="a\nb"),
    "the name of the emergency": signed(email="break-glass"),
    "a number for a name": signed(email=5),
    "no token at all": "x",
    "half a token": signed()[:-20],
}


@pytest.mark.parametrize("story", BAD)
def test_a_token_with_one_thing_wrong_is_refused(story: str) -> None:
    """Signature, algorithm, issuer, audience, times, nonce, name."""
    with pytest.raises(Refused):
        identity(Fake(BAD[story]))


def test_a_provider_that_is_not_the_one_named_is_not_believed() -> None:
    """Another issuer, endpoints without TLS, an answer that is no JSON, nothing at all."""
    others: list[dict[str, Any]] = [
        {**METADATA, "issuer": "https://evil.example.com"},
        {**METADATA, "token_endpoint": "http://id.example.com/token"},
        {},
    ]
    for metadata in others:
        with pytest.raises(Unavailable):
            identity(Fake(signed(), metadata))

    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    openid = OpenId(
        PROVIDER, "", "https://x", lambda: NOW, lambda: 0.0, httpx.MockTransport(gone)
    )  # fmt: skip
    with pytest.raises(Unavailable, match="cannot be reached"):
        asyncio.run(openid.begin())


@pytest.mark.parametrize("next_s", [31.0, 700.0])
def test_a_renewed_key_is_found(next_s: float) -> None:
    """The provider has changed its key since the last login."""
    fake, now = Fake(signed()), [0.0]
    openid = OpenId(
        PROVIDER, "", "https://x", lambda: NOW, lambda: now[0], httpx.MockTransport(fake)
    )
    asyncio.run(openid.finish("code", PENDING))
    fresh = RSAKey.generate_key(2048, {"kid": "k2"}, auto_kid=False)
    fake.keys = [fresh.as_dict(private=False)]
    fake.token = jwt.encode({"alg": "RS256", "kid": "k2"}, GOOD, fresh)
    now[0] = 5.0
    with pytest.raises(Refused):
        asyncio.run(openid.finish("code", PENDING))
    now[0] = next_s
    assert asyncio.run(openid.finish("code", PENDING)).name == "ann@example.com"


@pytest.mark.parametrize(
    ("login", "want_s"), [(8, 0.0), ("8s", 0.0), ("8m", 480.0), (3600, 3600.0)]
)
def test_a_login_of_seconds_is_refused(login: str | int, want_s: float) -> None:
    """Hours are easily typed as a bare number."""
    document = {"oidc": {"issuer": ISSUER, "client_id": "topmast", "login": login}}
    if want_s:
        found = parse_accounts(document).oidc
        assert found is not None
        assert found.login_s == want_s
        return
    with pytest.raises(InvalidInput) as error:
        parse_accounts(document)
    assert f"oidc.login: {login} is 8s, and a login lasts a minute at least" in str(error.value)


def answering(answer: httpx.Response) -> OpenId:
    """A client of a provider that answers to everything but for its description with one thing."""

    def answers(request: httpx.Request) -> httpx.Response:
        is_description = request.url.path.endswith("/openid-configuration")
        devices = {"device_authorization_endpoint": f"{ISSUER}/device"}
        return httpx.Response(200, json={**METADATA, **devices}) if is_description else answer

    transport = httpx.MockTransport(answers)
    return OpenId(PROVIDER, "", "https://x", lambda: NOW, lambda: 0.0, transport)


def test_an_answer_that_is_too_deep_is_no_json() -> None:
    """It is the provider's fault, and none of the server."""
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(Unavailable, match="does not answer in JSON"):
        asyncio.run(answering(httpx.Response(200, text=deep)).finish("code", PENDING))


def test_an_answer_byte_by_byte_is_waited_for_no_longer_than_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time is one for all of an answer."""
    monkeypatch.setattr(of_provider, "TIMEOUT_S", 0.3)

    async def drips() -> AsyncIterator[bytes]:
        for _ in range(50):
            await asyncio.sleep(0.05)
            yield b" "
        yield b"{}"

    with pytest.raises(Unavailable, match="has not answered within"):
        asyncio.run(answering(httpx.Response(200, content=drips())).finish("code", PENDING))


@pytest.mark.parametrize("said", ["NaN", "-Infinity", "1e999"])
def test_a_time_that_is_none_is_the_usual_one(said: str) -> None:
    """What compares with nothing would let the provider be asked without end."""
    codes = '"device_code": "a", "user_code": "b", "verification_uri": "https://c"'
    text = f'{{{codes}, "interval": {said}, "expires_in": {said}}}'
    device = asyncio.run(answering(httpx.Response(200, text=text)).begin_device())
    assert (device.interval_s, device.life_s) == (5.0, 600.0)
