"""Addresses of objects in stores: right signatures, used in time, and never shown."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import hmac
import json
import logging
import pickle
import time
import traceback
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import obstore
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from comal import storage
from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
)
from comal.plan import ByteRange, Head, Tail, Wanted, Whole
from comal.storage import CountingSource, Source, StorageConfig, cloud
from comal.storage.location import parse_href
from comal.storage.remote import RemoteSource
from tests.servers.http import HttpServer
from tests.servers.s3 import BUCKET, S3Server
from tests.storage.places import noise
from tests.support import in_child

DATA = noise(100_000)
ODD_KEYS = [
    "a b",
    "a+b",
    "50%",
    "50%25",
    "#1",
    "what?x=1",
    "a&b=c;d",
    "\u00fc/\u00e9\U0001f30d",
    "~'()*!@$,:",
    '[x]{y}|^`"<>',
    "back\\slash",
]
AZURE_KEY = base64.b64encode(b"the key of an account").decode()
Spied = list[str]


@pytest.fixture(scope="module")
def google_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> Spied:
    """Every address that obstore signs."""
    addresses: Spied = []
    real = obstore.sign

    def sign(*args: Any) -> Any:
        url = real(*args)
        addresses.append(url)
        return url

    monkeypatch.setattr(obstore, "sign", sign)
    return addresses


def google_account(key: rsa.RSAPrivateKey, **more: Any) -> str:
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    account = {"private_key": pem.decode(), "private_key_id": "1", "client_email": "a@b.c"}
    return json.dumps({"type": "service_account", **account, **more})


@pytest.fixture
def configured(
    http_server: HttpServer, hasty: StorageConfig, google_key: rsa.RSAPrivateKey
) -> StorageConfig:
    """Keys of three clouds whose endpoints are the range server."""
    origin = http_server.origin
    account = google_account(google_key, gcs_base_url=origin)
    return replace(
        hasty,
        s3={"endpoint": origin, "access_key_id": "a", "secret_access_key": "b", "region": "r"},
        gcs={"service_account_key": account, "allow_http": True},
        azure={"account_name": "acc", "account_key": AZURE_KEY, "endpoint": origin},
    )


@pytest.fixture(params=["s3", "gs", "az"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def address_of(source: Source) -> cloud.Address:
    assert isinstance(source, RemoteSource)
    address = cloud.signer_of(source.location, source.config).address(source.location)
    assert address is not None
    return address


def only(source: Source, want: Wanted) -> bytes:
    return source.fetch([want])[0].data


def test_reading(http_server: HttpServer, configured: StorageConfig, scheme: str) -> None:
    http_server.put("box/dir/k", DATA)
    source = storage.open_source(f"{scheme}://box/dir", config=configured)
    wanted: list[Wanted] = [Tail(10, "k"), Head(5, "k"), ByteRange(7, 7, "k"), Whole(100_000, "k")]
    expected = [DATA[-10:], DATA[:5], DATA[7:14], DATA]
    assert [piece.data for piece in source.fetch(wanted)] == expected
    again = asyncio.run(source.fetch_async([Tail(20, "k"), ByteRange(9, 9, "k")]))
    assert [piece.data for piece in again] == [DATA[-20:], DATA[9:18]]
    # urllib3 has read them all: obstore would have sent its name.
    assert not any("object_store" in str(seen.headers) for seen in http_server.requests)
    assert source.stat("k").size == len(DATA)
    with pytest.raises(ObjectNotFoundError):
        source.fetch([Head(1, "absent")])
    http_server.put("box/dir/k", DATA[::-1])
    with pytest.raises(ObjectChangedError):
        source.fetch([ByteRange(50, 50, "k")])


def test_the_end_of_a_large_azure_object_costs_what_it_is(
    http_server: HttpServer, configured: StorageConfig
) -> None:
    http_server.put("box/k", DATA)
    source = storage.open_source("az://box/k", config=configured)
    assert only(source, Tail(10)) == DATA[-10:]
    # Azure would answer a range from the end with everything.
    assert [seen.range for seen in http_server.requests] == ["bytes=0-0", "bytes=99990-99999"]
    assert only(source, Tail(20)) == DATA[-20:]
    assert len(http_server.requests) == 3
    http_server.put("box/none", b"")
    empty = storage.open_source("az://box/none", config=configured)
    assert only(empty, Tail(20)) == b""


def test_the_pause_that_a_store_asks_for(
    http_server: HttpServer, configured: StorageConfig, scheme: str
) -> None:
    http_server.put("box/k", DATA)
    http_server.behave("status", code=503, times=1, headers={"Retry-After": "1"})
    config = replace(configured, total_timeout=30.0)
    begin = time.monotonic()
    assert only(storage.open_source(f"{scheme}://box/k", config=config), Head(5)) == DATA[:5]
    assert 1.0 <= time.monotonic() - begin < 10.0
    assert [seen.status for seen in http_server.requests] == [503, 206]


def test_signed_once(
    http_server: HttpServer, configured: StorageConfig, signed: Spied, scheme: str
) -> None:
    http_server.put("box/k", DATA)
    source = storage.open_source(f"{scheme}://box/k", config=configured)
    for at in range(0, 50_000, 10_000):
        assert only(source, ByteRange(at, 10)) == DATA[at : at + 10]
    assert sum("/box/k?" in url for url in signed) == 1


@pytest.mark.parametrize("status", [400, 401, 403])
def test_signed_anew_when_refused(
    http_server: HttpServer,
    configured: StorageConfig,
    signed: Spied,
    scheme: str,
    status: int,
) -> None:
    http_server.put("box/k", DATA)
    source = storage.open_source(f"{scheme}://box/k", config=configured)
    only(source, Head(1))
    signed.clear()
    http_server.reset()
    http_server.behave("status", code=status, times=1)
    assert only(source, ByteRange(5, 5)) == DATA[5:10]
    assert len(signed) == 1
    assert [seen.status for seen in http_server.requests] == [status, 206]


def test_signed_anew_once(
    http_server: HttpServer, configured: StorageConfig, signed: Spied
) -> None:
    http_server.put("box/k", DATA)
    source = storage.open_source("s3://box/k", config=configured)
    only(source, Head(1))
    http_server.behave("status", code=403)
    for sent in (2, 1, 1):
        signed.clear()
        http_server.reset()
        with pytest.raises(AccessDeniedError, match="credentials"):
            only(source, ByteRange(5, 5))
        # What was refused is not kept.
        assert (len(signed), len(http_server.requests)) == (1, sent)


def test_signed_anew_in_time(
    http_server: HttpServer,
    configured: StorageConfig,
    signed: Spied,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is left of an address that was just not renewed is enough for the longest request.
    longest = StorageConfig().deadline(StorageConfig().max_request)
    assert cloud._USED_FOR + longest < cloud.LIFETIME
    monkeypatch.setattr(cloud, "_USED_FOR", 0.5)
    http_server.put("box/k", DATA)
    source = storage.open_source("s3://box/k", config=configured)
    only(source, Head(1))
    only(source, Head(1))
    assert len(signed) == 1
    time.sleep(0.6)
    only(source, Head(1))
    assert len(signed) == 2
    assert [seen.status for seen in http_server.requests] == [206, 206, 206]


def test_only_so_many_are_kept(
    http_server: HttpServer, configured: StorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "_MOST_KEPT", 10)
    for number in range(25):
        http_server.put(f"box/{number}", DATA[number:])
    source = storage.open_source("s3://box", config=configured)
    for number in range(25):
        assert only(source, Head(3, str(number))) == DATA[number : number + 3]
        assert len(source.transport._addresses) <= 10  # type: ignore[attr-defined]


def test_azure_does_not_believe_a_clock_that_is_ahead(
    http_server: HttpServer, configured: StorageConfig, signed: Spied
) -> None:
    http_server.put("box/k", DATA)
    http_server.behave("status", code=403, times=1)
    source = storage.open_source("az://box/k", config=configured)
    assert only(source, Head(5)) == DATA[:5]
    assert "SharedKey acc:" in http_server.requests[1].headers["authorization"]
    http_server.behave("status", code=403)
    with pytest.raises(AccessDeniedError):
        only(source, ByteRange(5, 5))


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys(s3_server: S3Server, key: str) -> None:
    s3_server.put(f"odd/{key}", DATA)
    s3_server.put("odd/50", b"another")
    source = storage.open_source(f"s3://{BUCKET}/odd/{key}", config=s3_server.config)
    assert only(source, ByteRange(50, 50)) == DATA[50:100]


@pytest.mark.parametrize("key", ODD_KEYS)
@pytest.mark.parametrize("public", [False, True])
def test_odd_keys_of_others(
    http_server: HttpServer, configured: StorageConfig, scheme: str, key: str, public: bool
) -> None:
    http_server.put(f"box/{key}", DATA)
    http_server.put("box/50", b"another")
    http_server.put("box/what", b"another")
    if public:
        configured = in_public(http_server, configured)
    source = storage.open_source(f"{scheme}://box/{key}", config=configured)
    assert only(source, ByteRange(50, 50)) == DATA[50:100]


@pytest.mark.parametrize("key", ["a//b", "a/../b", "./a", "a/."])
@pytest.mark.parametrize("public", [False, True])
def test_keys_that_are_refused(
    http_server: HttpServer, configured: StorageConfig, scheme: str, key: str, public: bool
) -> None:
    if public:
        configured = in_public(http_server, configured)
    with pytest.raises(InvalidInputError, match="not a key"):
        only(storage.open_source(f"{scheme}://box/{key}", config=configured), Head(1))
    assert not http_server.requests


def in_public(http_server: HttpServer, config: StorageConfig) -> StorageConfig:
    """Objects of the range server that everybody may read."""
    origin = http_server.origin
    return replace(
        config,
        s3={"endpoint": origin, "region": "r", "skip_signature": True},
        gcs={"base_url": origin, "skip_signature": "true"},
        azure={"account_name": "acc", "endpoint": origin, "azure_skip_signature": True},
    )


def test_public_objects(http_server: HttpServer, configured: StorageConfig, scheme: str) -> None:
    http_server.put("box/k", DATA)
    config = in_public(http_server, configured)
    source = storage.open_source(f"{scheme}://box/k", config=config)
    assert address_of(source).query == ""
    assert only(source, Head(5)) == DATA[:5]
    seen = http_server.requests[0].headers
    assert "Authorization" not in seen
    # Without its version Azure would answer as it did in 2009.
    assert ("x-ms-version" in seen) is (scheme == "az")


@pytest.mark.parametrize("name", ["sas_token", "AZURE_STORAGE_SAS_KEY", "variable"])
def test_shared_access_signatures(
    http_server: HttpServer,
    configured: StorageConfig,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    http_server.put("box/a b", DATA)
    token = "sv=2023-11-03&sr=c&sp=r&sig=abc%2Bdef%3D"
    options = {"account_name": "acc", "endpoint": http_server.origin}
    if name == "variable":
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", token)
    else:
        options[name.lower()] = f"?{token}"
    source = storage.open_source("az://box/a b", config=replace(configured, azure=options))
    assert only(source, Tail(5)) == DATA[-5:]
    address = address_of(source)
    assert address.url == f"{http_server.origin}/box/a%20b?{token}"


def test_public_addresses() -> None:
    def address(href: str, **options: Any) -> str:
        config = StorageConfig(**options)
        location = parse_href(href)
        found = cloud.Signer(location, config).address(location)
        assert found is not None
        return found.url

    public = {"skip_signature": True, "region": "eu-central-1"}
    host = "s3.eu-central-1.amazonaws.com"
    assert address("s3://box/a b", s3=public) == f"https://{host}/box/a%20b"
    virtual = {**public, "virtual_hosted_style_request": True}
    assert address("s3://box/k", s3=virtual) == f"https://box.{host}/k"
    skip = {"skip_signature": True}
    assert address("gs://box/a b", gcs=skip) == "https://storage.googleapis.com/box/a%20b"
    assert address("az://box@acc/k", azure=skip) == "https://acc.blob.core.windows.net/box/k"
    # Keys that are there, too, whichever way they are named, are of no matter.
    keys = {"AWS_ACCESS_KEY_ID": "a", "aws_secret_access_key": "b", "AWS_SKIP_SIGNATURE": True}
    assert address("s3://box/k", s3=keys) == "https://s3.us-east-1.amazonaws.com/box/k"


def test_tokens_of_other_services_stay_where_they_are(
    http_server: HttpServer, configured: StorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    http_server.put("box/k", DATA)
    for name in ("AZURE_TOKEN", "AZURE_BEARER_TOKEN", "AZURE_SAS_TOKEN"):
        monkeypatch.setenv(name, "sig=another")
    assert only(storage.open_source("az://box/k", config=configured), Head(5)) == DATA[:5]
    assert told(http_server) == [""]


@pytest.mark.parametrize(
    ("scheme", "field", "options"),
    [
        (
            "s3",
            "s3",
            {"sse_customer_key_base64": "A" * 43 + "=", "server_side_encryption": "sse-c"},
        ),
        ("s3", "s3", {"proxy_url": "http://127.0.0.1:9"}),
        (
            "az",
            "azure",
            {"account_key": "", "client_id": "a", "client_secret": "b", "tenant_id": "c"},
        ),
        ("az", "azure", {"account_key": "", "proxy_url": "http://127.0.0.1:9"}),
        ("az", "azure", {"encryption_key": "A" * 43 + "="}),
        ("gs", "gcs", {"service_account_key": ""}),
        ("gs", "gcs", {"bearer_token": "t"}),
    ],
)
def test_what_has_no_address(
    configured: StorageConfig,
    scheme: str,
    field: str,
    options: dict[str, Any],
) -> None:
    """Keys in headers, proxies and tokens of the store's own: a signed address would lack them."""
    given = {**getattr(configured, field), **options}
    given = {name: value for name, value in given.items() if value != ""}
    location = parse_href(f"{scheme}://box/k")
    changes: dict[str, Any] = {field: given}
    signer = cloud.Signer(location, replace(configured, **changes))
    assert signer.address(location) is None


CUSTOMER_KEY = base64.b64encode(bytes(range(32))).decode()


def test_a_key_of_the_customer_that_only_obstore_can_read(
    http_server: HttpServer, configured: StorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    http_server.put("box/k", DATA)
    monkeypatch.setenv("AZURE_STORAGE_ENCRYPTION_KEY", CUSTOMER_KEY)
    for azure in (configured.azure, {**configured.azure, "skip_signature": True}):
        source = storage.open_source("az://box/k", config=replace(configured, azure=azure))
        with pytest.raises(AccessDeniedError, match="redirect") as caught:
            only(source, Head(5))
        assert CUSTOMER_KEY not in shown_everywhere(caught.value)
    assert not http_server.requests


class Provider:
    """Gives a new token each time, as a cloud does."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.asked = 0

    def __call__(self) -> dict[str, Any]:
        self.asked += 1
        return {"token": f"token-{self.asked}", "expires_at": None, **self.given}


def provided(http_server: HttpServer, config: StorageConfig, provider: object) -> StorageConfig:
    origin = http_server.origin
    azure = {"account_name": "acc", "endpoint": origin}
    return replace(config, gcs={"base_url": origin}, azure=azure, credential_provider=provider)


def told(http_server: HttpServer) -> list[str]:
    """What the server was told of the identity, request by request."""
    seen = [{name.lower(): text for name, text in s.headers.items()} for s in http_server.requests]
    return [headers.get("authorization", "") for headers in seen]


TOKENS = pytest.mark.parametrize("scheme", ["gs", "az"])


@TOKENS
def test_tokens(http_server: HttpServer, configured: StorageConfig, scheme: str) -> None:
    http_server.put("box/a b", DATA)
    http_server.put("box/c", DATA)
    http_server.behave("status", code=503, times=1, headers={"Retry-After": "0"})
    provider = Provider()
    source = storage.open_source(
        f"{scheme}://box/a b", config=provided(http_server, configured, provider)
    )
    assert only(source, Head(5)) == DATA[:5]
    assert only(source.sibling("c"), ByteRange(9, 9)) == DATA[9:18]
    assert (told(http_server), provider.asked) == (["Bearer token-1"] * 3, 1)
    in_child(lambda: read_some(source))
    # A token that is refused is asked for anew, once.
    http_server.reset()
    http_server.behave("status", code=401, times=1)
    assert only(source, ByteRange(5, 5)) == DATA[5:10]
    assert (told(http_server), provider.asked) == (["Bearer token-1", "Bearer token-2"], 2)


def read_some(source: Source) -> None:
    assert only(source, ByteRange(70, 70)) == DATA[70:140]
    assert only(source.sibling("c"), ByteRange(70, 70)) == DATA[70:140]


@TOKENS
def test_tokens_that_expire(
    http_server: HttpServer, configured: StorageConfig, scheme: str
) -> None:
    http_server.put("box/c", DATA)
    soon = datetime.now(UTC) + timedelta(seconds=60.5)
    provider = Provider(expires_at=soon)
    config = provided(http_server, configured, provider)
    source = storage.open_source(f"{scheme}://box/c", config=config)
    only(source, Head(1))
    only(source, Head(1))
    assert provider.asked == 1
    time.sleep(0.6)
    only(source, Head(1))
    assert told(http_server) == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


@TOKENS
def test_a_token_of_the_options(
    http_server: HttpServer, configured: StorageConfig, scheme: str
) -> None:
    http_server.put("box/c", DATA)
    origin = http_server.origin
    config = replace(
        configured,
        gcs={"bearer_token": "t", "base_url": origin},
        azure={"azure_storage_token": "t", "account_name": "acc", "endpoint": origin},
    )
    assert only(storage.open_source(f"{scheme}://box/c", config=config), Head(5)) == DATA[:5]
    assert told(http_server) == ["Bearer t"]
    assert "object_store" not in str(http_server.requests[0].headers)


@TOKENS
def test_providers_that_fail(
    http_server: HttpServer, configured: StorageConfig, scheme: str
) -> None:
    def fails() -> Any:
        raise KeyError("no such account")

    def lies() -> Any:
        return {"token": "a\r\nX-Other: b", "expires_at": None}

    for provider, error in ((fails, StorageError), (lies, InvalidInputError)):
        config = provided(http_server, configured, provider)
        with pytest.raises(error, match="provider") as caught:
            only(storage.open_source(f"{scheme}://box/c", config=config), Head(5))
        assert "X-Other" not in str(caught.value)
    assert not http_server.requests


def test_providers_of_keys(http_server: HttpServer, configured: StorageConfig) -> None:
    http_server.put("box/c", DATA)
    provider: Any = functools.partial(dict, access_key=AZURE_KEY, expires_at=None)
    config = provided(http_server, configured, provider)
    assert only(storage.open_source("az://box/c", config=config), Head(5)) == DATA[:5]
    assert told(http_server)[0].startswith("SharedKey acc:")


async def awaited() -> dict[str, Any]:
    return {"token": "t", "expires_at": None}


class AwaitedObject:
    async def __call__(self) -> dict[str, Any]:
        return {"token": "t", "expires_at": None}


@pytest.mark.parametrize("provider", [awaited, AwaitedObject()])
def test_providers_that_are_awaited_are_refused(provider: object) -> None:
    with pytest.raises(InvalidInputError, match="awaited") as caught:
        StorageConfig(credential_provider=provider)
    assert "asyncio.run" in str(caught.value.hint)


def test_headers_for_http_servers_do_not_reach_stores(
    http_server: HttpServer, configured: StorageConfig, scheme: str
) -> None:
    http_server.put("box/k", DATA)
    config = replace(configured, http_headers={"Authorization": "Bearer mine", "X-Mine": "1"})
    assert only(storage.open_source(f"{scheme}://box/k", config=config), Head(5)) == DATA[:5]
    assert "mine" not in str(http_server.requests[0].headers).lower()


def test_no_tls_only_where_it_was_meant(
    http_server: HttpServer, configured: StorageConfig, google_key: rsa.RSAPrivateKey
) -> None:
    http_server.put("box/k", DATA)
    account = google_account(google_key, gcs_base_url=http_server.origin)
    config = replace(configured, gcs={"service_account_key": account})
    with pytest.raises(InvalidInputError, match="allow_http"):
        only(storage.open_source("gs://box/k", config=config), Head(5))
    assert not http_server.requests


def test_an_empty_object_whose_size_is_not_told(
    http_server: HttpServer, configured: StorageConfig
) -> None:
    http_server.put("box/none", b"")
    for want in (Tail(9), Head(9), Whole(9)):
        http_server.behave("status", code=416, times=1)
        source = storage.open_source("s3://box/none", config=configured)
        assert only(source, want) == b""


def test_redirects(http_server: HttpServer, configured: StorageConfig) -> None:
    """S3 sends requests for young buckets elsewhere, and those to a wrong region nowhere."""
    http_server.put("box/k", DATA)
    target = http_server.put("elsewhere/k", DATA, etag=http_server.find("box/k")[1])  # type: ignore[index]
    http_server.behave("redirect", path="box/k", to=target, code=307)
    source = storage.open_source("s3://box/k", config=configured)
    assert only(source, Head(5)) == DATA[:5]
    http_server.well()
    for code in (301, 400):
        http_server.behave("status", path="box/wrong", code=code)
        wrong = storage.open_source("s3://box/wrong", config=configured)
        with pytest.raises(StorageError, match="region"):
            only(wrong, Head(5))
        http_server.well()


# What follows makes the signatures again by the documents of their makers.


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


@pytest.mark.parametrize("key", ["k", *ODD_KEYS])
def test_signatures_of_google(google_key: rsa.RSAPrivateKey, key: str) -> None:
    """https://cloud.google.com/storage/docs/authentication/canonical-requests."""
    config = StorageConfig(gcs={"service_account_key": google_account(google_key)})
    location = replace(parse_href("gs://box/x"), path=key)
    address = cloud.Signer(location, config).address(location)
    assert address is not None
    parts = urlsplit(address.url)
    assert (parts.netloc, parts.fragment) == ("storage.googleapis.com", "")
    assert parts.path == "/box/" + quote(key)
    query = query_of(address.url)
    signature = bytes.fromhex(query.pop("X-Goog-Signature"))
    pairs = sorted((quote(name, ""), quote(value, "")) for name, value in query.items())
    canonical = "\n".join(
        [
            "GET",
            parts.path,
            "&".join(f"{name}={value}" for name, value in pairs),
            f"host:{parts.netloc}\n",
            "host",
            "UNSIGNED-PAYLOAD",
        ]
    )
    scope = query["X-Goog-Credential"].partition("/")[2]
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["GOOG4-RSA-SHA256", query["X-Goog-Date"], scope, digest])
    google_key.public_key().verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())


def test_signatures_of_azure() -> None:
    """https://learn.microsoft.com/rest/api/storageservices/create-service-sas, 2020-12-06."""
    config = StorageConfig(azure={"account_name": "acc", "account_key": AZURE_KEY})
    signer = cloud.Signer(parse_href("az://box/x"), config)
    for key in ("dir/k.tif", "a+b", *ODD_KEYS):
        location = replace(parse_href("az://box/x"), path=key)
        address = signer.address(location)
        plain = quote(key, safe="/~'()*!@$,:+&=;") == key
        # Signed are names of which an address shows every character as it is.
        assert (address is not None) >= plain
        if address is None:
            continue
        query = query_of(address.url)
        fields = ["r", query["st"], query["se"], f"/blob/acc/box/{key}"]
        fields += ["", "", "", query["sv"], "b", "", "", "", "", "", "", ""]
        text = "\n".join(fields)
        digest = hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), "sha256")
        assert query["sig"] == base64.b64encode(digest).decode()


# And what follows looks for them where they must not be.


def shown_everywhere(error: BaseException) -> str:
    seen: list[str] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None:
            continue
        fields = getattr(one, "__dict__", {})
        seen += [str(one), repr(one), repr(one.args), repr(fields)]
        seen += [repr(pickle.dumps(one)), "".join(traceback.format_exception(one))]
        left += [one.__cause__, one.__context__]
    return "\n".join(seen)


def secrets_in(urls: Spied) -> list[str]:
    found = []
    for url in urls:
        query = query_of(url)
        for name in ("X-Amz-Signature", "X-Goog-Signature", "sig"):
            if name in query:
                found += [query[name], quote(query[name], ""), f"{name}="]
    assert found
    return found


TROUBLE: list[tuple[str, dict[str, Any]]] = [
    ("status", {"code": 400}),
    ("status", {"code": 403}),
    ("status", {"code": 404}),
    ("status", {"code": 412}),
    ("status", {"code": 416}),
    ("status", {"code": 503}),
    ("status", {"code": 301}),
    ("reset", {}),
    ("short-body", {}),
    ("stall", {"seconds": 60}),
    ("trickle-header", {"seconds": 0.3}),
    ("wrong-range", {"shift": 1}),
    ("gzip", {}),
    ("redirect", {"to": "gopher://{host}{target}"}),
    ("redirect", {"to": "http://[{target}"}),
    ("redirect", {"to": "http://127.0.0.1:9{target}"}),
    ("redirect", {"to": "{target}"}),
]


@pytest.mark.parametrize(("kind", "options"), TROUBLE)
def test_no_signature_in_what_is_raised_or_logged(
    http_server: HttpServer,
    configured: StorageConfig,
    signed: Spied,
    caplog: pytest.LogCaptureFixture,
    scheme: str,
    kind: str,
    options: dict[str, Any],
) -> None:
    http_server.put("box/k", DATA)
    config = replace(configured, tries=2, linked_origins=["http://127.0.0.1:9"])
    source = storage.open_source(f"{scheme}://box/k", config=config)
    address = address_of(source)
    if "to" in options:
        parts = urlsplit(address.url)
        target = f"{parts.path}?{parts.query}"
        options = {"to": options["to"].format(host=parts.netloc, target=target)}
    http_server.behave(kind, **options)
    with caplog.at_level(logging.DEBUG), pytest.raises(ComalError) as caught:
        only(source, ByteRange(5, 5))
    assert f"{scheme}://box/k" in str(caught.value)
    texts = [shown_everywhere(caught.value), repr(caught.value.to_dict())]
    texts += [str(record.args) + record.getMessage() for record in caplog.records]
    for secret in secrets_in(signed):
        assert not any(secret in text for text in texts), texts


def test_no_signature_in_what_is_kept(
    http_server: HttpServer,
    configured: StorageConfig,
    signed: Spied,
    caplog: pytest.LogCaptureFixture,
    scheme: str,
) -> None:
    http_server.put("box/k", DATA)
    source = storage.open_source(f"{scheme}://box/k", config=configured)
    counting = CountingSource(source)
    with caplog.at_level(logging.DEBUG):
        assert only(counting, Head(5)) == DATA[:5]
        info = counting.stat()
        file = counting.file()
        assert file.read(10) == DATA[:10]
    address = address_of(source)
    things = [source, counting, info, file, source.transport, source.config, address]  # type: ignore[attr-defined]
    texts = [str(thing) + repr(thing) for thing in things]
    texts += [repr(vars(source)), source.vsi(), source.href, repr(vars(source.pins))]
    texts += [repr(pickle.dumps(thing)) for thing in (source, info, address)]
    texts += [str(record.args) + record.getMessage() for record in caplog.records]
    assert any("/box/k" in text for text in texts), "urllib3 logs no more: is the filter of use?"
    for secret in secrets_in(signed):
        assert not any(secret in text for text in texts), texts
    assert pickle.loads(pickle.dumps(address)) == source.location
    copy = pickle.loads(pickle.dumps(source))
    assert only(copy, ByteRange(5, 5)) == DATA[5:10]
