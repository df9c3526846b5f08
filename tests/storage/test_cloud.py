"""Object stores: moto's S3, and a range server that plays a store that misbehaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pytest

from comal import storage
from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
)
from comal.plan import ByteRange, Head, Tail, Wanted, Whole
from comal.storage import CountingSource, StorageConfig
from comal.storage.cloud import memory_store
from tests.servers.http import HttpServer
from tests.servers.s3 import BUCKET, S3Server
from tests.storage.places import noise

DATA = noise(200_000)


@pytest.fixture(params=[False, True], ids=["by addresses", "by obstore"])
def bad(
    request: pytest.FixtureRequest, http_server: HttpServer, hasty: StorageConfig
) -> StorageConfig:
    """S3 options that lead to a range server; with a setting of its client obstore reads."""
    options = {
        "endpoint": http_server.origin,
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "r",
    }
    return replace(hasty, s3=options | {"allow_invalid_certificates": request.param})


def test_neighbours_share_a_request(s3_server: S3Server) -> None:
    href = s3_server.put("n", DATA)
    counting = CountingSource(storage.open_source(href, config=s3_server.config))
    wanted: list[Wanted] = [ByteRange(index * 400, 300) for index in range(500)]
    pieces = counting.fetch(wanted)
    assert b"".join(piece.data for piece in pieces) == b"".join(
        DATA[at : at + 300] for at in range(0, 200_000, 400)
    )
    assert (counting.requests, counting.round_trips) == (1, 1)


def test_a_large_object_comes_in_parts(s3_server: S3Server) -> None:
    href = s3_server.put("large", DATA)
    config = replace(s3_server.config, max_request=30_000)
    counting = CountingSource(storage.open_source(href, config=config))
    assert counting.fetch([Whole(200_000)])[0].data == DATA
    assert (counting.requests, counting.round_trips) == (7, 1)


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


def test_odd_keys_are_refused(s3_server: S3Server) -> None:
    source = storage.open_source(f"s3://{BUCKET}/a//b", config=s3_server.config)
    with pytest.raises(InvalidInputError):
        source.fetch([Head(1)])


def test_options_that_nobody_knows() -> None:
    config = StorageConfig(s3={"no_such_option": "1"})
    with pytest.raises(InvalidInputError):
        storage.open_source("s3://b/k", config=config).fetch([Head(1)])


def test_unsigned_by_the_name_that_gdal_has(
    http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "YES")
    http_server.put("bucket/k", DATA)
    config = StorageConfig(s3={"endpoint": http_server.origin, "region": "r"})
    assert storage.open_source("s3://bucket/k", config=config).fetch([Head(3)])[0].data == DATA[:3]
    assert "Authorization" not in http_server.requests[0].headers


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("status", {"code": 503}),
        ("status", {"code": 429}),
        ("status", {"code": 500}),
        ("reset", {}),
        ("short-body", {}),
        ("stall", {"seconds": 1.0}),
    ],
)
def test_trouble_that_passes(
    http_server: HttpServer, bad: StorageConfig, kind: str, options: dict[str, Any]
) -> None:
    http_server.put("bucket/k", DATA)
    http_server.behave(kind, times=1, **options)
    source = storage.open_source("s3://bucket/k", config=bad)
    assert source.fetch([ByteRange(50, 100)])[0].data == DATA[50:150]


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        ("status", {"code": 503}, "status 503"),
        ("status", {"code": 429}, "status 429"),
        ("reset", {}, ""),
        ("short-body", {}, ""),
        ("stall", {"seconds": 60}, ""),
    ],
)
def test_trouble_that_stays(
    http_server: HttpServer,
    bad: StorageConfig,
    kind: str,
    options: dict[str, Any],
    text: str,
) -> None:
    http_server.put("bucket/k", DATA)
    http_server.behave(kind, **options)
    source = storage.open_source("s3://bucket/k", config=replace(bad, tries=2))
    with pytest.raises(StorageError) as caught:
        source.fetch([ByteRange(50, 100)])
    assert caught.value.fields["tries"] == 2
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (404, ObjectNotFoundError),
        (403, AccessDeniedError),
        (401, AccessDeniedError),
        (400, StorageError),
    ],
)
def test_refusals(
    http_server: HttpServer, bad: StorageConfig, code: int, error: type[ComalError]
) -> None:
    http_server.behave("status", code=code)
    with pytest.raises(error):
        storage.open_source("s3://bucket/k", config=bad).fetch([Head(5)])
    assert len(http_server.requests) == 1


def test_nobody_listens(bad: StorageConfig) -> None:
    config = replace(bad, s3={**bad.s3, "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(StorageError, match="4 tries"):
        storage.open_source("s3://bucket/k", config=config).fetch([Head(5)])


@pytest.mark.parametrize("want", [Head(5), Tail(5), ByteRange(5, 5)])
def test_ranges_that_are_ignored(http_server: HttpServer, bad: StorageConfig, want: Wanted) -> None:
    http_server.put("bucket/k", DATA)
    http_server.behave("ignore-range")
    config = replace(bad, whole_answer=len(DATA) - 1)
    with pytest.raises(StorageError, match="ignores byte ranges"):
        storage.open_source("s3://bucket/k", config=config).fetch([want])
    if bad.s3["allow_invalid_certificates"]:
        return
    # As over plain HTTP, a small object is read whole then.
    data = storage.open_source("s3://bucket/k", config=bad).fetch([want])[0].data
    assert data == (
        DATA[-5:]
        if isinstance(want, Tail)
        else DATA[5:10]
        if isinstance(want, ByteRange)
        else DATA[:5]
    )


def test_the_wrong_range_is_not_believed(http_server: HttpServer, bad: StorageConfig) -> None:
    http_server.put("bucket/k", DATA)
    http_server.behave("wrong-range", shift=1)
    with pytest.raises(StorageError):
        storage.open_source("s3://bucket/k", config=bad).fetch([ByteRange(5, 5)])


def test_a_replaced_object_in_a_store_without_conditions(
    http_server: HttpServer, bad: StorageConfig
) -> None:
    http_server.put("bucket/k", DATA, etag='"1"')
    source = storage.open_source("s3://bucket/k", config=bad)
    source.fetch([Head(1)])
    http_server.put("bucket/k", DATA[:100], etag='"1"')
    with pytest.raises(ObjectChangedError):
        source.fetch([ByteRange(500, 7)])
    with pytest.raises(ObjectChangedError):
        source.fetch([ByteRange(5, 7)])


def test_a_missing_end(http_server: HttpServer, bad: StorageConfig) -> None:
    http_server.put("bucket/k", b"12345")
    for want in (ByteRange(3, 5), ByteRange(50, 5)):
        with pytest.raises(ShortReadError):
            storage.open_source("s3://bucket/k", config=bad).fetch([want])


def test_azure(http_server: HttpServer, hasty: StorageConfig) -> None:
    """Azure does not count from the end; its size is asked first."""
    http_server.put("box/dir/k", DATA)
    options = {"account_name": "acc", "endpoint": http_server.origin, "skip_signature": True}
    config = replace(hasty, azure=options)
    source = storage.open_source("az://box/dir", config=config)
    wanted: list[Wanted] = [Tail(10, "k"), Head(5, "k"), ByteRange(7, 7, "k")]
    assert [piece.data for piece in source.fetch(wanted)] == [DATA[-10:], DATA[:5], DATA[7:14]]
    http_server.reset()
    assert source.fetch([Tail(20, "k")])[0].data == DATA[-20:]
    assert len(http_server.requests) == 1


def test_google(http_server: HttpServer, hasty: StorageConfig, tmp_path: Path) -> None:
    http_server.put("box/k", DATA)
    account = tmp_path / "account.json"
    account.write_text(
        '{"gcs_base_url": "' + http_server.origin + '", "disable_oauth": true,'
        ' "client_email": "", "private_key": "", "private_key_id": ""}'
    )
    config = replace(hasty, gcs={"service_account": str(account), "allow_http": True})
    source = storage.open_source("gs://box/k", config=config)
    assert source.fetch([Tail(10)])[0].data == DATA[-10:]
    assert source.fetch([ByteRange(7, 7)])[0].data == DATA[7:14]


def test_memory_is_shared_by_name() -> None:
    obstore.put(memory_store("one"), "k", b"1")
    assert storage.open_source("memory://one/k").fetch([Head(9)])[0].data == b"1"
    with pytest.raises(ObjectNotFoundError):
        storage.open_source("memory://two/k").fetch([Head(9)])
