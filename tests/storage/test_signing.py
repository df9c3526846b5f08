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
    NotThisFormatError,
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
from tests.support import in_child, said_by

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


class Box:
    """The bucket ``box`` of the range server, as three clouds with keys of each see it."""

    def __init__(self, server: HttpServer, config: StorageConfig) -> None:
        self.server, self.config = server, config

    def put(self, name: str = "k", data: bytes = DATA) -> None:
        self.server.put(f"box/{name}", data)

    def source(self, scheme: str, name: str = "k", **changes: Any) -> Source:
        config = replace(self.config, **changes)
        return storage.open_source(f"{scheme}://box/{name}", config=config)

    def provided(self, scheme: str, name: str, provider: object) -> Source:
        """A source whose credentials come from a provider."""
        return self.source(scheme, name, **self.without_keys(), credential_provider=provider)

    def without_keys(self, **more: Any) -> dict[str, Any]:
        origin = self.server.origin
        return {
            "s3": {"endpoint": origin, "region": "r", **more},
            "gcs": {"base_url": origin, **more},
            "azure": {"account_name": "acc", "endpoint": origin, **more},
        }

    @property
    def statuses(self) -> list[int]:
        return [seen.status for seen in self.server.requests]


@pytest.fixture
def box(http_server: HttpServer, hasty: StorageConfig, google_key: rsa.RSAPrivateKey) -> Box:
    origin = http_server.origin
    account = google_account(google_key, gcs_base_url=origin)
    config = replace(
        hasty,
        s3={"endpoint": origin, "access_key_id": "a", "secret_access_key": "b", "region": "r"},
        gcs={"service_account_key": account, "allow_http": True},
        azure={"account_name": "acc", "account_key": AZURE_KEY, "endpoint": origin},
    )
    made = Box(http_server, config)
    made.put()
    return made


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


def test_reading(box: Box, scheme: str) -> None:
    box.put("dir/k")
    source = box.source(scheme, "dir")
    wanted: list[Wanted] = [Tail(10, "k"), Head(5, "k"), ByteRange(7, 7, "k"), Whole(100_000, "k")]
    expected = [DATA[-10:], DATA[:5], DATA[7:14], DATA]
    assert [piece.data for piece in source.fetch(wanted)] == expected
    again = asyncio.run(source.fetch_async([Tail(20, "k"), ByteRange(9, 9, "k")]))
    assert [piece.data for piece in again] == [DATA[-20:], DATA[9:18]]
    # urllib3 has read them all: obstore would have sent its name.
    assert not any("object_store" in str(seen.headers) for seen in box.server.requests)
    assert source.stat("k").size == len(DATA)
    with pytest.raises(ObjectNotFoundError):
        source.fetch([Head(1, "absent")])
    box.put("dir/k", DATA[::-1])
    with pytest.raises(ObjectChangedError):
        source.fetch([ByteRange(50, 50, "k")])


def test_the_end_of_a_large_azure_object_costs_what_it_is(box: Box) -> None:
    source = box.source("az")
    assert only(source, Tail(10)) == DATA[-10:]
    # Azure would answer a range from the end with everything.
    assert [seen.range for seen in box.server.requests] == ["bytes=0-0", "bytes=99990-99999"]
    assert only(source, Tail(20)) == DATA[-20:]
    assert len(box.server.requests) == 3
    box.put("none", b"")
    assert only(box.source("az", "none"), Tail(20)) == b""


def test_the_pause_that_a_store_asks_for(box: Box, scheme: str) -> None:
    box.server.behave("status", code=503, times=1, headers={"Retry-After": "1"})
    begin = time.monotonic()
    assert only(box.source(scheme, total_timeout=30.0), Head(5)) == DATA[:5]
    assert 1.0 <= time.monotonic() - begin < 10.0
    assert box.statuses == [503, 206]


@pytest.mark.parametrize("status", [400, 401, 403])
def test_signed_once_and_anew_when_refused(
    box: Box, signed: Spied, scheme: str, status: int
) -> None:
    source = box.source(scheme)
    for at in range(0, 50_000, 10_000):
        assert only(source, ByteRange(at, 10)) == DATA[at : at + 10]
    assert sum("/box/k?" in url for url in signed) == 1
    signed.clear()
    box.server.reset()
    box.server.behave("status", code=status, times=1)
    assert only(source, ByteRange(5, 5)) == DATA[5:10]
    assert len(signed) == 1
    assert box.statuses == [status, 206]


def test_signed_anew_once(box: Box, signed: Spied) -> None:
    source = box.source("s3")
    only(source, Head(1))
    box.server.behave("status", code=403)
    for sent in (2, 1, 1):
        signed.clear()
        box.server.reset()
        with pytest.raises(AccessDeniedError, match="credentials"):
            only(source, ByteRange(5, 5))
        # What was refused is not kept.
        assert (len(signed), len(box.server.requests)) == (1, sent)


def test_signed_anew_in_time(box: Box, signed: Spied, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is left of an address that was just not renewed is enough for the longest request.
    longest = StorageConfig().deadline(StorageConfig().max_request)
    assert cloud._USED_FOR + longest < cloud.LIFETIME
    monkeypatch.setattr(cloud, "_USED_FOR", 0.5)
    source = box.source("s3")
    only(source, Head(1))
    only(source, Head(1))
    assert len(signed) == 1
    time.sleep(0.6)
    only(source, Head(1))
    assert len(signed) == 2
    assert box.statuses == [206, 206, 206]


def test_only_so_many_are_kept(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "_MOST_KEPT", 10)
    source = box.source("s3", "")
    for number in range(25):
        box.put(str(number), DATA[number:])
        assert only(source, Head(3, str(number))) == DATA[number : number + 3]
        assert len(source.transport._addresses) <= 10  # type: ignore[attr-defined]


def test_azure_does_not_believe_a_clock_that_is_ahead(box: Box) -> None:
    box.server.behave("status", code=403, times=1)
    source = box.source("az")
    assert only(source, Head(5)) == DATA[:5]
    assert "SharedKey acc:" in box.server.told[1]
    box.server.behave("status", code=403)
    with pytest.raises(AccessDeniedError):
        only(source, ByteRange(5, 5))


PUBLIC = pytest.mark.parametrize("public", [False, True])


def of_all(box: Box, public: bool) -> dict[str, Any]:
    """Options for objects that everybody may read, or none."""
    return box.without_keys(skip_signature="true") if public else {}


@PUBLIC
def test_odd_keys_of_others(box: Box, scheme: str, public: bool) -> None:
    box.put("50", b"another")
    box.put("what", b"another")
    for key in ODD_KEYS:
        box.put(key)
        source = box.source(scheme, key, **of_all(box, public))
        assert only(source, ByteRange(50, 50)) == DATA[50:100], key
    box.server.reset()
    for key in ("a//b", "a/../b", "./a", "a/."):
        with pytest.raises(InvalidInputError, match="not a key"):
            only(box.source(scheme, key, **of_all(box, public)), Head(1))
    assert not box.server.requests


def test_public_objects(box: Box, scheme: str) -> None:
    source = box.source(scheme, **of_all(box, public=True))
    assert address_of(source).query == ""
    assert only(source, Head(5)) == DATA[:5]
    assert box.server.told == [""]
    # Without its version Azure would answer as it did in 2009.
    assert ("x-ms-version" in box.server.requests[0].headers) is (scheme == "az")


@pytest.mark.parametrize("name", ["sas_token", "AZURE_STORAGE_SAS_KEY", "variable"])
def test_shared_access_signatures(box: Box, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    box.put("a b")
    token = "sv=2023-11-03&sr=c&sp=r&sig=abc%2Bdef%3D"
    options = box.without_keys()["azure"]
    if name == "variable":
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", token)
    else:
        options[name.lower()] = f"?{token}"
    source = box.source("az", "a b", azure=options)
    assert only(source, Tail(5)) == DATA[-5:]
    assert address_of(source).url == f"{box.server.origin}/box/a%20b?{token}"


_AWS = {"skip_signature": True, "region": "eu-central-1"}
_HOST = "s3.eu-central-1.amazonaws.com"


@pytest.mark.parametrize(
    ("href", "field", "options", "url"),
    [
        ("s3://box/a b", "s3", _AWS, f"https://{_HOST}/box/a%20b"),
        (
            "s3://box/k",
            "s3",
            {**_AWS, "virtual_hosted_style_request": True},
            f"https://box.{_HOST}/k",
        ),
        (
            "gs://box/a b",
            "gcs",
            {"skip_signature": True},
            "https://storage.googleapis.com/box/a%20b",
        ),
        (
            "az://box@acc/k",
            "azure",
            {"skip_signature": True},
            "https://acc.blob.core.windows.net/box/k",
        ),
        # Keys that are there, too, whichever way they are named, are of no matter.
        (
            "s3://box/k",
            "s3",
            {"AWS_ACCESS_KEY_ID": "a", "aws_secret_access_key": "b", "AWS_SKIP_SIGNATURE": True},
            "https://s3.us-east-1.amazonaws.com/box/k",
        ),
    ],
)
def test_public_addresses(href: str, field: str, options: dict[str, Any], url: str) -> None:
    given: dict[str, Any] = {field: options}
    assert address_of(storage.open_source(href, config=StorageConfig(**given))).url == url


def test_buckets(s3_server: S3Server) -> None:
    s3_server.put("top/x", b"1")
    source = storage.open_source(f"s3://{BUCKET}", config=s3_server.config)
    assert "top/" in source.names()
    assert source.stat().is_dir
    assert source.fetch([Head(1, "top/x")])[0].data == b"1"
    with pytest.raises(NotThisFormatError):
        source.fetch([Head(1)])
    absent = storage.open_source("s3://no-such-bucket/a", config=s3_server.config)
    with pytest.raises(ObjectNotFoundError):
        absent.fetch([Head(1)])


def test_options_that_nobody_knows() -> None:
    config = StorageConfig(s3={"no_such_option": "1"})
    with pytest.raises(InvalidInputError):
        storage.open_source("s3://b/k", config=config).fetch([Head(1)])


def test_unsigned_by_the_name_that_gdal_has(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "YES")
    assert only(box.source("s3", **box.without_keys()), Head(3)) == DATA[:3]
    assert box.server.told == [""]


def test_tokens_of_other_services_stay_where_they_are(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_TOKEN", "AZURE_BEARER_TOKEN", "AZURE_SAS_TOKEN"):
        monkeypatch.setenv(name, "sig=another")
    assert only(box.source("az"), Head(5)) == DATA[:5]
    assert box.server.told == [""]


CUSTOMER_KEY = base64.b64encode(bytes(range(32))).decode()
_PRINCIPAL = {"client_id": "a", "client_secret": "b", "tenant_id": "c"}


@pytest.mark.parametrize(
    ("scheme", "field", "options"),
    [
        (
            "s3",
            "s3",
            {"sse_customer_key_base64": CUSTOMER_KEY, "server_side_encryption": "sse-c"},
        ),
        ("s3", "s3", {"proxy_url": "http://127.0.0.1:9"}),
        ("az", "azure", {"account_key": "", **_PRINCIPAL}),
        ("az", "azure", {"account_key": "", "proxy_url": "http://127.0.0.1:9"}),
        ("az", "azure", {"encryption_key": CUSTOMER_KEY}),
        ("gs", "gcs", {"service_account_key": ""}),
        ("gs", "gcs", {"bearer_token": "t"}),
    ],
)
def test_what_has_no_address(box: Box, scheme: str, field: str, options: dict[str, Any]) -> None:
    """Keys in headers, proxies and tokens of the store's own: a signed address would lack them."""
    given = {**getattr(box.config, field), **options}
    changes: dict[str, Any]
    changes = {field: {name: value for name, value in given.items() if value != ""}}
    source = box.source(scheme, **changes)
    assert cloud.Signer(source.location, source.config).address(source.location) is None


def test_a_key_of_the_customer_that_only_obstore_can_read(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENCRYPTION_KEY", CUSTOMER_KEY)
    for azure in (box.config.azure, {**box.config.azure, "skip_signature": True}):
        with pytest.raises(AccessDeniedError, match="redirect") as caught:
            only(box.source("az", azure=azure), Head(5))
        assert CUSTOMER_KEY not in "".join(map(str, said_by(caught.value)))
    assert not box.server.requests


class Provider:
    """Gives a new token each time, as a cloud does."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.asked = 0

    def __call__(self) -> dict[str, Any]:
        self.asked += 1
        return {"token": f"token-{self.asked}", "expires_at": None, **self.given}


TOKENS = pytest.mark.parametrize("scheme", ["gs", "az"])


@TOKENS
def test_tokens(box: Box, scheme: str) -> None:
    box.put("a b")
    box.server.behave("status", code=503, times=1, headers={"Retry-After": "0"})
    provider = Provider()
    source = box.provided(scheme, "a b", provider)
    assert only(source, Head(5)) == DATA[:5]
    assert only(source.sibling("k"), ByteRange(9, 9)) == DATA[9:18]
    assert (box.server.told, provider.asked) == (["Bearer token-1"] * 3, 1)

    def child() -> None:
        for one in (source, source.sibling("k")):
            assert only(one, ByteRange(70, 70)) == DATA[70:140]

    in_child(child)
    # A token that is refused is asked for anew, once.
    box.server.reset()
    box.server.behave("status", code=401, times=1)
    assert only(source, ByteRange(5, 5)) == DATA[5:10]
    assert (box.server.told, provider.asked) == (["Bearer token-1", "Bearer token-2"], 2)


@TOKENS
def test_tokens_that_expire(box: Box, scheme: str) -> None:
    provider = Provider(expires_at=datetime.now(UTC) + timedelta(seconds=60.5))
    source = box.provided(scheme, "k", provider)
    only(source, Head(1))
    only(source, Head(1))
    assert provider.asked == 1
    time.sleep(0.6)
    only(source, Head(1))
    assert box.server.told == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


@TOKENS
def test_a_token_of_the_options(box: Box, scheme: str) -> None:
    options = box.without_keys()
    options["gcs"]["bearer_token"] = options["azure"]["azure_storage_token"] = "t"
    assert only(box.source(scheme, **options), Head(5)) == DATA[:5]
    assert box.server.told == ["Bearer t"]
    assert "object_store" not in str(box.server.requests[0].headers)


@TOKENS
def test_providers_that_fail(box: Box, scheme: str) -> None:
    def fails() -> Any:
        raise KeyError("no such account")

    def lies() -> Any:
        return {"token": "a\r\nX-Other: b", "expires_at": None}

    for provider, error in ((fails, StorageError), (lies, InvalidInputError)):
        with pytest.raises(error, match="provider") as caught:
            only(box.provided(scheme, "k", provider), Head(5))
        assert "X-Other" not in str(caught.value)
    assert not box.server.requests


def test_providers_of_keys(box: Box) -> None:
    provider: Any = functools.partial(dict, access_key=AZURE_KEY, expires_at=None)
    assert only(box.provided("az", "k", provider), Head(5)) == DATA[:5]
    assert box.server.told[0].startswith("SharedKey acc:")


async def awaited() -> dict[str, Any]:
    return {"token": "t", "expires_at": None}


class AwaitedObject:
    async def __call__(self) -> dict[str, Any]:
        return {"token": "t", "expires_at": None}


@pytest.mark.parametrize("provider", [awaited, AwaitedObject()])
def test_providers_that_are_awaited_are_refused(provider: object) -> None:
    with pytest.raises(InvalidInputError, match="asynchronous") as caught:
        StorageConfig(credential_provider=provider)
    assert "blocking twin" in str(caught.value.hint)


def test_headers_for_http_servers_do_not_reach_stores(box: Box, scheme: str) -> None:
    source = box.source(scheme, http_headers={"Authorization": "Bearer mine", "X-Mine": "1"})
    assert only(source, Head(5)) == DATA[:5]
    assert "mine" not in str(box.server.requests[0].headers).lower()


def test_no_tls_only_where_it_was_meant(box: Box, google_key: rsa.RSAPrivateKey) -> None:
    account = google_account(google_key, gcs_base_url=box.server.origin)
    with pytest.raises(InvalidInputError, match="allow_http"):
        only(box.source("gs", gcs={"service_account_key": account}), Head(5))
    assert not box.server.requests


def test_an_empty_object_whose_size_is_not_told(box: Box) -> None:
    box.put("none", b"")
    for want in (Tail(9), Head(9), Whole(9)):
        box.server.behave("status", code=416, times=1)
        assert only(box.source("s3", "none"), want) == b""


def test_redirects(box: Box) -> None:
    """S3 sends requests for young buckets elsewhere, and those to a wrong region nowhere."""
    tag = box.server.find("box/k")[1]  # type: ignore[index]
    target = box.server.put("elsewhere/k", DATA, etag=tag)
    box.server.behave("redirect", path="box/k", to=target, code=307)
    assert only(box.source("s3"), Head(5)) == DATA[:5]
    for code in (301, 400):
        box.server.well()
        box.server.behave("status", path="box/wrong", code=code)
        with pytest.raises(StorageError, match="region"):
            only(box.source("s3", "wrong"), Head(5))


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
    box: Box,
    signed: Spied,
    caplog: pytest.LogCaptureFixture,
    scheme: str,
    kind: str,
    options: dict[str, Any],
) -> None:
    source = box.source(scheme, tries=2, linked_origins=["http://127.0.0.1:9"])
    if "to" in options:
        parts = urlsplit(address_of(source).url)
        target = f"{parts.path}?{parts.query}"
        options = {"to": options["to"].format(host=parts.netloc, target=target)}
    box.server.behave(kind, **options)
    with caplog.at_level(logging.DEBUG), pytest.raises(ComalError) as caught:
        only(source, ByteRange(5, 5))
    assert f"{scheme}://box/k" in str(caught.value)
    # What is below it knows the address.
    assert caught.value.__cause__ is caught.value.__context__ is None
    no_secret(signed, caplog, *map(str, said_by(caught.value)))


def test_no_signature_in_what_is_kept(
    box: Box, signed: Spied, caplog: pytest.LogCaptureFixture, scheme: str
) -> None:
    source = box.source(scheme)
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
    logged = no_secret(signed, caplog, *texts)
    assert any("/box/k" in text for text in logged), "urllib3 logs no more: is the filter of use?"
    assert pickle.loads(pickle.dumps(address)) == source.location
    copy = pickle.loads(pickle.dumps(source))
    assert only(copy, ByteRange(5, 5)) == DATA[5:10]


def no_secret(signed: Spied, caplog: pytest.LogCaptureFixture, *texts: str) -> list[str]:
    """What was logged, after a look into it and into these texts."""
    logged = [str(record.args) + record.getMessage() for record in caplog.records]
    for secret in secrets_in(signed):
        assert not any(secret in text for text in (*texts, *logged)), texts
    return logged
