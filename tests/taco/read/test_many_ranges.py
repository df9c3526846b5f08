"""Scattered samples over HTTP: few requests where the server answers many ranges at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from comal.storage import CountingSource, StorageConfig, open_source
from comal.taco.reading.loading import load
from tests.attacks.build import Recipe
from tests.servers.http import HttpServer

SAMPLES = {f"s{n:04}": bytes([n % 251, n // 251]) * 500 for n in range(1_000)}
# Every second one; nothing is merged.
SCATTERED = [name for n, name in enumerate(SAMPLES) if n % 2]


def opened(server: HttpServer, **config: Any) -> tuple[Any, CountingSource]:
    url = server.put("x.tacozip", Recipe(SAMPLES).build())
    source = CountingSource(open_source(url, config=StorageConfig(coalesce_gap=0, **config)))
    frame = load(source).data
    source.reset()
    return frame, source


def right() -> list[bytes]:
    return [SAMPLES[name] for name in SCATTERED]


@pytest.mark.parametrize("twin", [False, True])
def test_a_server_that_answers_many_ranges(http_server: HttpServer, twin: bool) -> None:
    http_server.behave("multipart")
    frame, source = opened(http_server)
    if twin:
        assert asyncio.run(frame.read_bytes_async(SCATTERED)) == right()
    else:
        assert frame.read_bytes(SCATTERED) == right()
    assert source.requests == 4


def test_a_server_that_does_not(http_server: HttpServer) -> None:
    frame, source = opened(http_server, multi_range=False)
    assert frame.read_bytes(SCATTERED) == right()
    assert source.requests == 500
    for expected in (501, 500):
        frame, source = opened(http_server)
        assert frame.read_bytes(SCATTERED) == right()
        assert source.requests == expected
