"""Scattered items over HTTP: few requests where the server answers many ranges at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from comal import tortilla
from comal.storage import CountingSource, StorageConfig, open_source
from tests.servers.http import HttpServer
from tests.tortilla import build
from tests.tortilla.build import Item

ITEMS = [Item(f"i{n}", bytes([n % 251, n // 251]) * 500) for n in range(1_000)]
# Every second one; nothing is merged.
SCATTERED = list(range(0, 1_000, 2))


def opened(server: HttpServer, **config: Any) -> tuple[Any, CountingSource]:
    url = server.put("x.tortilla", build.built(ITEMS))
    source = CountingSource(open_source(url, config=StorageConfig(coalesce_gap=0, **config)))
    frame = tortilla.open(source)
    source.reset()
    return frame, source


def right() -> list[bytes]:
    return [ITEMS[n].data for n in SCATTERED]


@pytest.mark.parametrize("twin", [False, True])
def test_a_server_that_answers_many_ranges(http_server: HttpServer, twin: bool) -> None:
    http_server.behave("multipart")
    frame, source = opened(http_server)
    if twin:
        assert asyncio.run(frame.read_bytes_async(SCATTERED)) == right()
    else:
        assert frame.read_bytes(SCATTERED) == right()
    assert source.requests <= 4


def test_a_server_that_does_not(http_server: HttpServer) -> None:
    frame, source = opened(http_server, multi_range=False)
    assert frame.read_bytes(SCATTERED) == right()
    before = source.requests
    assert before > 400
    frame, source = opened(http_server)
    assert frame.read_bytes(SCATTERED) == right()
    assert source.requests == before + 1
    source.reset()
    assert frame.read_bytes(SCATTERED) == right()
    assert source.requests == before
