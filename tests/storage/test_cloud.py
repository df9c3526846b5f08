"""Object stores: moto's S3, and a range server that plays a store that misbehaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import obstore
import pytest

from comal import storage
from comal.errors import (
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
)
from comal.plan import ByteRange, Head, Tail, Wanted, Whole
from comal.storage import CountingSource, StorageConfig
from comal.storage.cloud import memory_store
from tests.servers.http import HttpServer
from tests.servers.s3 import BUCKET, S3Server
from tests.storage.places import noise

DATA = noise(200_000)


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
