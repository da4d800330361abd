"""Whether requests to the S3 server of tests are signed as S3 asks for, and are not too late."""

import hashlib
import hmac
import time
from calendar import timegm
from typing import Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes

Environ = dict[str, Any]


def fault(environ: Environ, keys: dict[str, str]) -> str:
    """What S3 says of a request to an object: an error code; empty: it is good.

    ``keys`` has the secret of each access key. Requests to a bucket itself may be without any.
    """
    query = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
    given = environ.get("HTTP_AUTHORIZATION", "")
    if "X-Amz-Signature" in query:
        signed = {name.removeprefix("X-Amz-"): value for name, value in query.items()}
        payload = "UNSIGNED-PAYLOAD"
        until_s = _time_s(signed["Date"]) + int(signed["Expires"])
        late = "AccessDenied"
    elif given:
        words = given.partition(" ")[2].replace(" ", "").split(",")
        signed = dict(word.split("=", 1) for word in words)
        signed["Date"] = environ["HTTP_X_AMZ_DATE"]
        payload = environ["HTTP_X_AMZ_CONTENT_SHA256"]
        until_s = _time_s(signed["Date"]) + 900
        late = "RequestTimeTooSkewed"
    else:
        return "AccessDenied" if environ["PATH_INFO"].strip("/").count("/") else ""
    key, *scope = signed["Credential"].split("/")
    if key not in keys:
        return "InvalidAccessKeyId"
    text = _text(environ, query, signed["SignedHeaders"], payload)
    if not hmac.compare_digest(_sign(keys[key], scope, signed["Date"], text), signed["Signature"]):
        return "SignatureDoesNotMatch"
    return late if time.time() > until_s else ""


def _text(environ: Environ, query: dict[str, str], names: str, payload: str) -> str:
    """The request as it was signed."""
    query = {name: value for name, value in query.items() if name != "X-Amz-Signature"}
    asked = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items())
    )  # fmt: skip
    headers = "".join(f"{name}:{_header(environ, name)}\n" for name in names.split(";"))
    path = quote(unquote_to_bytes(environ["REQUEST_URI"].partition("?")[0]), safe="/-_.~")
    return f"{environ['REQUEST_METHOD']}\n{path}\n{asked}\n{headers}\n{names}\n{payload}"


def _header(environ: Environ, name: str) -> str:
    word = name.upper().replace("-", "_")
    plain = word in ("CONTENT_TYPE", "CONTENT_LENGTH")
    return " ".join(environ.get(word if plain else f"HTTP_{word}", "").split())


def _sign(secret: str, scope: list[str], date: str, text: str) -> str:
    key = f"AWS4{secret}".encode()
    for word in scope:
        key = hmac.digest(key, word.encode(), "sha256")
    found = hashlib.sha256(text.encode()).hexdigest()
    said = f"AWS4-HMAC-SHA256\n{date}\n{'/'.join(scope)}\n{found}"
    return hmac.digest(key, said.encode(), "sha256").hex()


def _time_s(date: str) -> float:
    return float(timegm(time.strptime(date, "%Y%m%dT%H%M%SZ")))
