"""ID tokens: signature, algorithm, issuer, audience, times and nonce."""

from __future__ import annotations

from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from topmast.adapters.oidc.refused import Refused
from topmast.model.files.accountsfile import Provider

ALGORITHMS = ["RS256", "PS256", "ES256", "RS384", "ES384", "RS512", "ES512", "EdDSA", "Ed25519"]
"""All are signatures by a key that the provider alone has: "none" and HMAC are not among them."""
LEEWAY_S = 60
"""By how much the clocks of both may differ."""
LONGEST_TOKEN = 100_000


def checked_claims(
    token: str, keys: dict[str, Any], provider: Provider, now_s: float, nonce: str | None
) -> dict[str, Any]:
    """The claims of an ID token that is what it must be. Raises Refused."""
    if len(token) > LONGEST_TOKEN:
        raise Refused("the ID token is too long")
    try:
        key_set = KeySet.import_key_set(keys)  # type: ignore[arg-type]
        found = jwt.decode(token, key_set, algorithms=ALGORITHMS)
        claims: dict[str, Any] = dict(found.claims)
        _registry(provider, int(now_s)).validate(claims)
    except (JoseError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"the ID token is not valid: {_said(error)}") from None
    _check_rest(claims, provider, now_s, nonce)
    return claims


def _registry(provider: Provider, now_s: int) -> jwt.JWTClaimsRegistry:
    return jwt.JWTClaimsRegistry(
        now=now_s,
        leeway=LEEWAY_S,
        iss={"essential": True, "value": provider.issuer},
        aud={"essential": True, "value": provider.client_id},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    )


def _check_rest(
    claims: dict[str, Any], provider: Provider, now_s: float, nonce: str | None
) -> None:
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    party = claims.get("azp")
    if party not in (None, provider.client_id) or (len(audiences) > 1 and party is None):
        raise Refused("the ID token was made for another client")
    if nonce is not None and claims.get("nonce") != nonce:
        raise Refused("the ID token belongs to another login")
    if claims["iat"] > now_s + LEEWAY_S:
        raise Refused("the ID token is of the future: compare the clocks")


def _said(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
