"""Scattered samples over HTTP: few requests where the server answers many ranges at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from comal import taco, tortilla
from comal.storage import CountingSource, StorageConfig, open_source
from tests.attacks.build import Recipe
from tests.servers.http import HttpServer
from tests.tortilla.build import Item, built

SAMPLES = {f"s{n:04}": bytes([n % 251, n // 251]) * 500 for n in range(300)}
# Every second one; nothing is merged.
SCATTERED = range(0, 300, 2)
RIGHT = list(SAMPLES.values())[::2]
DOORS: dict[str, tuple[Callable[[], bytes], Callable[[Any], Any]]] = {
    "x.tacozip": (lambda: Recipe(SAMPLES).build(), lambda source: taco.load(source).data),
    "x.tortilla": (
        lambda: built([Item(name, data) for name, data in SAMPLES.items()]),
        tortilla.open,
    ),
}
DOOR = pytest.mark.parametrize("name", DOORS)


def opened(name: str, server: HttpServer, **config: Any) -> tuple[Any, CountingSource]:
    build, door = DOORS[name]
    url = server.put(name, build())
    source = CountingSource(open_source(url, config=StorageConfig(coalesce_gap=0, **config)))
    frame = door(source)
    source.reset()
    return frame, source


@DOOR
@pytest.mark.parametrize("twin", [False, True])
def test_a_server_that_answers_many_ranges(http_server: HttpServer, name: str, twin: bool) -> None:
    http_server.behave("multipart")
    frame, source = opened(name, http_server)
    if twin:
        assert asyncio.run(frame.read_bytes_async(SCATTERED)) == RIGHT
    else:
        assert frame.read_bytes(SCATTERED) == RIGHT
    assert source.requests == 2


@DOOR
def test_a_server_that_does_not(http_server: HttpServer, name: str) -> None:
    frame, source = opened(name, http_server, multi_range=False)
    assert frame.read_bytes(SCATTERED) == RIGHT
    assert source.requests == 150
    for expected in (151, 150):  # it is asked once, and remembered
        frame, source = opened(name, http_server)
        assert frame.read_bytes(SCATTERED) == RIGHT
        assert source.requests == expected
    source.reset()
    assert frame.read_bytes(SCATTERED) == RIGHT
    assert source.requests == 150
