"""A client of an OpenID provider: the code flow with PKCE, and the device flow (RFC 8628)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx
from msgspec import Struct

from topmast.adapters.oidc.refused import Refused
from topmast.model.access import BREAK_GLASS
from topmast.model.errors import Unavailable
from topmast.model.files.accountsfile import Provider

METADATA_S, KEYS_S, KEYS_AGAIN_S = 3_600.0, 600.0, 30.0
"""How long what the provider says is believed; how soon unknown keys make it be asked again."""
TIMEOUT_S = 10.0
"""For all of an answer: one that comes byte by byte keeps no login waiting for longer."""
MOST_BYTES = 1_000_000
MOST_GROUPS = 500
LONGEST_NAME = 200
SLOWER_S = 5.0
"""How much longer the interval is each time that the provider asks for less (RFC 8628, 3.5)."""
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class Identity(Struct, frozen=True):
    """A person, as the provider proves it."""

    name: str
    groups: tuple[str, ...]


class Pending(Struct, frozen=True):
    """A login that a browser has begun."""

    state: str
    nonce: str
    verifier: str


class Device(Struct):
    """A login that another device has to confirm."""

    code: str
    """For the provider; never shown."""
    user_code: str
    url: str
    """Where a person enters the code."""
    whole_url: str
    """The same with the code in it; empty if the provider has none."""
    interval_s: float
    """Between two questions about it; it grows when the provider asks for that."""
    life_s: float


class OpenId:
    """One provider, with what it says of itself.

    ``wall_s`` gives the time by which tokens are judged, ``elapsed_s`` seconds that only grow.
    """

    def __init__(
        self,
        provider: Provider,
        secret: str,
        redirect_url: str,
        wall_s: Callable[[], float],
        elapsed_s: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.provider = provider
        self._secret = secret
        self._redirect_url = redirect_url
        self._wall_s = wall_s
        self._elapsed_s = elapsed_s
        self._transport = transport
        self._tls = httpx.create_ssl_context() if transport is None else False
        """One for all requests: to read the certificates of a machine takes 20 ms."""
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, dict[str, Any]] | None = None

    # --- the code flow --------------------------------------------------------------------------

    async def begin(self) -> tuple[str, Pending]:
        """Where a browser goes to log in, and what its return is compared with."""
        pending = Pending(*(secrets.token_urlsafe(32) for _ in range(3)))
        digest = hashlib.sha256(pending.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": self._redirect_url,
            "scope": " ".join(self.provider.scopes),
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        endpoint = await self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", pending

    async def finish(self, code: str, pending: Pending) -> Identity:
        """The person that a code stands for. Raises Refused, Unavailable."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url,
            "code_verifier": pending.verifier,
        }
        status, answer = await self._post("token_endpoint", form)
        if status != 200:
            raise Refused(f"the provider refuses the code: {_error(answer)}")
        return await self._identity(answer, pending.nonce)

    # --- the device flow ------------------------------------------------------------------------

    async def begin_device(self) -> Device:
        """A code that a person enters on any device. Raises Refused, Unavailable."""
        form = {"scope": " ".join(self.provider.scopes)}
        status, answer = await self._post("device_authorization_endpoint", form)
        texts = [answer.get(name) for name in ("device_code", "user_code", "verification_uri")]
        if status != 200 or not all(isinstance(text, str) and text for text in texts):
            raise Refused(f"the provider begins no login of a device: {_error(answer)}")
        whole = answer.get("verification_uri_complete")
        code, user_code, url = map(str, texts)
        return Device(
            code, user_code, url, whole if isinstance(whole, str) else "",
            _seconds(answer.get("interval"), 5.0), _seconds(answer.get("expires_in"), 600.0),
        )  # fmt: skip

    async def poll_device(self, device: Device) -> Identity | None:
        """The person that has confirmed it; None until one has. Raises Refused, Unavailable."""
        form = {"grant_type": DEVICE_GRANT, "device_code": device.code}
        status, answer = await self._post("token_endpoint", form)
        if status == 200:
            return await self._identity(answer, None)
        if answer.get("error") == "slow_down":
            device.interval_s += SLOWER_S
        if answer.get("error") in ("authorization_pending", "slow_down"):
            return None
        raise Refused(f"the provider refuses the login: {_error(answer)}")

    # --- what the provider says -----------------------------------------------------------------

    async def _identity(self, answer: Mapping[str, Any], nonce: str | None) -> Identity:
        from topmast.adapters.oidc.idtokens import checked_claims

        token, access = answer.get("id_token"), answer.get("access_token")
        if not isinstance(token, str):
            raise Refused("the provider sent no ID token")
        provider, now_s = self.provider, self._wall_s()
        claims = checked_claims(token, await self._key_set(token), provider, now_s, nonce)
        missing = {provider.name_claim, provider.groups_claim} - claims.keys()
        if missing and isinstance(access, str):
            more = await self._user_info(access)
            if more.get("sub") == claims.get("sub"):
                claims = {**more, **claims}
        return identity_of(claims, provider)

    async def _user_info(self, access: str) -> dict[str, Any]:
        metadata = await self._described()
        if not isinstance(metadata.get("userinfo_endpoint"), str):
            return {}
        endpoint = await self._endpoint("userinfo_endpoint")
        status, found = await self._ask(
            "GET", endpoint, headers={"Authorization": f"Bearer {access}"}
        )
        return found if status == 200 else {}

    async def _key_set(self, token: str) -> dict[str, Any]:
        """The keys of the provider, asked for again if the token names one that is not there."""
        now_s = self._elapsed_s()
        age_s = now_s - self._keys[0] if self._keys else KEYS_S
        if self._keys is None or age_s >= KEYS_S or (
            age_s >= KEYS_AGAIN_S and not _names_key(token, self._keys[1])
        ):  # fmt: skip
            status, found = await self._ask("GET", await self._endpoint("jwks_uri"))
            if status != 200 or not isinstance(found.get("keys"), list):
                raise Unavailable("the provider of logins does not show its keys")
            self._keys = (now_s, found)
        return self._keys[1]

    async def _described(self) -> dict[str, Any]:
        now_s = self._elapsed_s()
        if self._metadata is None or now_s - self._metadata[0] >= METADATA_S:
            url = f"{self.provider.issuer}/.well-known/openid-configuration"
            status, found = await self._ask("GET", url)
            if status != 200:
                raise Unavailable(f"the provider of logins answers {status} for {url}")
            if found.get("issuer") != self.provider.issuer:
                given = str(found.get("issuer"))[:200]
                raise Unavailable(f"{url} is of another issuer, '{given}'")
            self._metadata = (now_s, found)
        return self._metadata[1]

    async def _endpoint(self, name: str) -> str:
        endpoint = (await self._described()).get(name)
        local = urlsplit(self.provider.issuer).scheme == "http"
        if not isinstance(endpoint, str) or not (endpoint.startswith("https://") or local):
            raise Unavailable(f"the provider of logins has no {name}")
        return endpoint

    async def _post(self, name: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        form = {**form, "client_id": self.provider.client_id}
        auth = None
        if self._secret:
            # Encoded first, as RFC 6749, 2.3.1 has it: a provider reads a bare + as a blank.
            auth = httpx.BasicAuth(*map(quote_plus, (self.provider.client_id, self._secret)))
        return await self._ask("POST", await self._endpoint(name), data=form, auth=auth)

    async def _ask(self, method: str, url: str, **given: Any) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of an answer. Raises Unavailable."""
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                httpx.AsyncClient(
                    timeout=TIMEOUT_S, transport=self._transport, verify=self._tls
                ) as client,
            ):
                request = {"headers": {"Accept": "application/json"}, **given}
                async with client.stream(method, url, **request) as answer:
                    body = b""
                    async for piece in answer.aiter_bytes():
                        body += piece
                        if len(body) > MOST_BYTES:
                            raise Unavailable("the provider of logins answers at too great length")
                    found = httpx.Response(200, content=body).json() if body else {}
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            kind = type(error).__name__
            raise Unavailable(f"the provider of logins cannot be reached ({kind})") from None
        except TimeoutError:
            raise Unavailable(
                f"the provider of logins has not answered within {TIMEOUT_S:g} s"
            ) from None
        except (ValueError, RecursionError):
            raise Unavailable("the provider of logins does not answer in JSON") from None
        return answer.status_code, found if isinstance(found, dict) else {}


def identity_of(claims: Mapping[str, Any], provider: Provider) -> Identity:
    """Name and groups from checked claims. Raises Refused."""
    name = claims.get(provider.name_claim)
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise Refused(f"the provider sent no claim '{provider.name_claim}' to take as a name")
    if name == "-":
        raise Refused("the name that the provider sent is '-', which stands for no user")
    if name == BREAK_GLASS:
        raise Refused(f"the name {name} stands for the administrator of an emergency")
    if not name.isprintable() or ":" in name or " " in name:
        raise Refused("the name that the provider sent has blanks, colons or control characters")
    if provider.name_claim == "email" and claims.get("email_verified") is not True:
        raise Refused("the provider does not say that the address is verified; verify it there")
    groups = claims.get(provider.groups_claim, [])
    listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    texts = [text for text in listed if isinstance(text, str) and 0 < len(text) <= LONGEST_NAME]
    return Identity(name, tuple(dict.fromkeys(texts[:MOST_GROUPS])))


def _names_key(token: str, keys: dict[str, Any]) -> bool:
    head = token.split(".", 1)[0]
    try:
        known = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))).get("kid")
    except (ValueError, AttributeError):
        return True  # it will be refused
    return known is None or any(
        isinstance(key, dict) and key.get("kid") == known for key in keys["keys"]
    )


def _error(answer: Mapping[str, Any]) -> str:
    return str(answer.get("error_description") or answer.get("error") or "no reason given")[:300]


def _seconds(value: Any, usual_s: float) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return min(max(float(value), 1.0), 3_600.0) if plain else usual_s
