"""Sources in other processes and threads."""

from __future__ import annotations

import asyncio
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from comal import storage
from comal.errors import ObjectChangedError, ObjectNotFoundError, StorageError
from comal.parallel import PerProcess
from comal.plan import ByteRange, Head
from comal.storage import BlockCache, CachedSource, Source, StorageConfig
from tests.forked import pool
from tests.servers.http import HttpServer
from tests.servers.s3 import S3Server
from tests.storage.places import Place, noise
from tests.support import in_child

DATA = noise(300_000)


def read_all(source: Source) -> None:
    wanted = [ByteRange(at, 1000) for at in range(0, 290_000, 100_000)]
    assert [piece.data for piece in source.fetch(wanted)] == [
        DATA[want.offset : want.end] for want in wanted
    ]


def test_a_forked_child_reads_and_notices_a_change(place: Place) -> None:
    for name in ("a", "b"):
        place.put(name, DATA)
    source, other = place.open("a"), place.open("b")
    cached = CachedSource(source, BlockCache(1 << 20))
    read_all(source)
    read_all(cached)

    def child() -> None:
        for _ in range(3):
            # Nothing of the last one was asked for before.
            for one in (source, cached, other):
                read_all(one)
        read_all(place.open("b"))
        with pytest.raises(ObjectNotFoundError):
            other.sibling("absent").fetch([Head(1)])
        assert asyncio.run(other.fetch_async([ByteRange(5, 5)]))[0].data == DATA[5:10]
        with source.file("", 10) as file:
            assert file.read(20) == DATA[10:30]

    in_child(child)
    read_all(source)
    place.put("a", DATA[::-1])

    def late() -> None:
        with pytest.raises(ObjectChangedError):
            source.fetch([Head(1)])

    in_child(late)


def credentials_by_http(http_server: HttpServer) -> StorageConfig:
    """S3 options whose credentials come over the network, as in a container of a cloud."""
    until = (datetime.now(UTC) + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = {"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "t", "Expiration": until}
    url = http_server.put("credentials", json.dumps(answer).encode())
    options = {
        "endpoint": http_server.origin,
        "region": "r",
        "container_credentials_full_uri": url,
        "container_authorization_token_file": "/dev/null",
    }
    return StorageConfig(s3=options, connect_timeout=1.0)


def test_a_forked_child_uses_the_credentials_of_its_parent(http_server: HttpServer) -> None:
    http_server.put("bucket/a", DATA)
    http_server.put("bucket/b", DATA)
    source = storage.open_source("s3://bucket/a", config=credentials_by_http(http_server))
    read_all(source)

    def child() -> None:
        read_all(source)
        read_all(source.sibling("b"))

    in_child(child)
    assert sum(seen.path == "credentials" for seen in http_server.requests) == 1


def test_a_forked_child_does_not_wait_for_stores(
    http_server: HttpServer, s3_server: S3Server
) -> None:
    """It can neither list one, nor ask the network for credentials that its parent has not."""
    known = storage.open_source(s3_server.put("fork", DATA), config=s3_server.config)
    read_all(known)
    http_server.put("bucket/a", DATA)
    source = storage.open_source("s3://bucket/a", config=credentials_by_http(http_server))

    def child() -> None:
        for act, most in ((known.names, 4.0), (source.stat, 4.0), (source.stat, 0.5)):
            begin = time.monotonic()
            with pytest.raises(StorageError, match="spawn"):
                act()
            assert time.monotonic() - begin < most

    in_child(child)
    read_all(known)
    read_all(source)


def read_elsewhere(source: Source) -> tuple[int, bytes]:
    return os.getpid(), source.fetch([ByteRange(5, 5)])[0].data


def test_processes_that_inherit_nothing(
    tmp_path: Path, http_server: HttpServer, s3_server: S3Server
) -> None:
    (tmp_path / "a").write_bytes(DATA)
    sources = [
        storage.open_source(tmp_path / "a"),
        CachedSource(storage.open_source(http_server.put("a", DATA)), BlockCache(1000)),
        storage.open_source(s3_server.put("spawn", DATA), config=s3_server.config),
    ]
    for source in sources:
        read_all(source)
    with pool(1) as workers:
        for pid, data in workers.map(read_elsewhere, sources):
            assert pid != os.getpid()
            assert data == DATA[5:10]
        # The pin travels: a change after the pickling is noticed there.
        (tmp_path / "a").write_bytes(DATA[::-1] + b"!")
        with pytest.raises(ObjectChangedError):
            workers.submit(read_elsewhere, sources[0]).result(60)


def test_shared_things_are_made_once_in_each_process() -> None:
    table: PerProcess[str, list[int]] = PerProcess()
    first = table.get("a", list)
    assert table.get("a", list) is first
    assert table.get("b", list) is not first

    def child() -> None:
        assert table.get("a", list) is not first
        assert table.get("a", list) is table.get("a", list)

    in_child(child)
    assert table.get("a", list) is first


def test_shared_things_that_a_child_goes_on_with() -> None:
    table: PerProcess[str, list[int]] = PerProcess(inherited=True)
    first = table.get("a", list)

    def child() -> None:
        assert table.get("a", list) is first
        assert table.get("b", list) is not first

    # A lock that a thread of the parent holds is none of the child's.
    with table._lock:
        in_child(child)
    assert table.get("a", list) is first
