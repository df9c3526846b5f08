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
from comal.plan import ByteRange, Head, Tail
from comal.storage import StorageConfig
from comal.storage.cloud import memory_store
from tests.servers.http import HttpServer
from tests.servers.s3 import BUCKET, S3Server
from tests.storage.places import noise

DATA = noise(200_000)


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


def test_unsigned_by_the_name_that_gdal_has(
    http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "YES")
    http_server.put("bucket/k", DATA)
    config = StorageConfig(s3={"endpoint": http_server.origin, "region": "r"})
    assert storage.open_source("s3://bucket/k", config=config).fetch([Head(3)])[0].data == DATA[:3]
    assert "Authorization" not in http_server.requests[0].headers


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
