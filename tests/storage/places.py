"""One place of each kind that a source can be opened on, for tests that run over all of them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest  # noqa: TC002 - its names stand in signatures, as everywhere in tests

from comal import storage
from comal.storage.cloud import memory_store
from tests.servers.http import HttpServer

KINDS = ("local", "http", "s3", "memory", "cached-local", "cached-http", "counting-http")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or prefix that objects can be put in.

    Attributes
    ----------
    open
        A new source of the folder, or of an object in it by name.
    put
        Store an object, replacing one of that name.
    lists
        Whether the kind can list names.
    """

    kind: str
    open: Callable[..., storage.Source]
    put: Callable[[str, bytes], None]
    lists: bool


def make(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A fresh place of a kind."""
    wrapper, _, inner = kind.rpartition("-")
    place = _PLAIN[inner](request, tmp_path)
    if not wrapper:
        return place
    wrap = _cached if wrapper == "cached" else storage.CountingSource
    return Place(kind, lambda name="": wrap(place.open(name)), place.put, place.lists)


def _cached(source: storage.Source) -> storage.CachedSource:
    return storage.CachedSource(source, storage.BlockCache(1_000_000, block_size=1000))


def _local(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    def put(name: str, data: bytes) -> None:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        part.write_bytes(data)
        part.replace(target)

    return Place("local", lambda name="": storage.open_source(tmp_path / name), put, True)


def _http(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    server: HttpServer = request.getfixturevalue("http_server")

    def put(name: str, data: bytes) -> None:
        server.put(f"base/{name}", data)

    def opened(name: str = "") -> storage.Source:
        return storage.open_source(server.url_for(f"base/{name}"))

    return Place("http", opened, put, False)


def _s3(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    server = request.getfixturevalue("s3_server")
    prefix = uuid.uuid4().hex

    def opened(name: str = "") -> storage.Source:
        href = server.url_for(f"{prefix}/{name}")
        return storage.open_source(href, config=server.config)

    return Place("s3", opened, lambda name, data: server.put(f"{prefix}/{name}", data), True)


def _memory(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    name = uuid.uuid4().hex

    def put(key: str, data: bytes) -> None:
        obstore.put(memory_store(name), f"base/{key}", data)

    def opened(key: str = "") -> storage.Source:
        return storage.open_source(f"memory://{name}/base/{key}")

    return Place("memory", opened, put, True)


_PLAIN: dict[str, Callable[[pytest.FixtureRequest, Path], Place]] = {
    "local": _local,
    "http": _http,
    "s3": _s3,
    "memory": _memory,
}


def noise(size: int) -> bytes:
    """Bytes without a pattern."""
    return os.urandom(size)
