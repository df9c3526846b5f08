"""Requests for nested files and sets; those for one file are in `samples/test_remote.py`."""

from __future__ import annotations

import pytest

from comal import tortilla
from comal.errors import ComalError, ObjectNotFoundError
from comal.storage import CountingSource, open_source
from comal.tortilla import spec
from tests.servers.http import HttpServer
from tests.servers.s3 import S3Server
from tests.tortilla import build
from tests.tortilla.build import Item

IMAGE = bytes(range(256)) * 400


def test_forty_nested_samples_are_two_round_trips(http_server: HttpServer) -> None:
    images = {n: [Item("hr", IMAGE[n:][:100_000]), Item("lr", IMAGE[: n + 1])] for n in range(40)}
    data = build.nested(*((f"roi_{n}", pair) for n, pair in images.items()))
    source = CountingSource(open_source(http_server.put("x.tortilla", data)))
    frame = tortilla.open(source)
    source.reset()
    flat = frame.flatten()
    assert source.round_trips == 1
    assert source.requests <= 41
    assert flat.read_bytes()[::2] == [IMAGE[n:][:100_000] for n in range(40)]
    assert source.round_trips == 2
    assert source.bytes < 1.5 * len(data)


def test_parts_are_opened_side_by_side(http_server: HttpServer) -> None:
    urls = []
    for number in range(6):
        data = build.built([Item(f"p{number}", bytes([number]) * 9)], parts=6)
        urls.append(http_server.put(f"s.{number:04d}.part.tortilla", data))
    frame = tortilla.open(urls)
    assert len(http_server.requests) == 12
    http_server.reset()
    assert frame.read_bytes() == [bytes([number]) * 9 for number in range(6)]
    assert len(http_server.requests) == 6
    again = tortilla.open(urls[3], siblings=True)
    assert again[spec.ID].to_pylist() == frame[spec.ID].to_pylist()
    with pytest.raises(ComalError):
        tortilla.open(http_server.url_for("s.*.part.tortilla"))
    http_server.remove("s.0002.part.tortilla")
    with pytest.raises(ObjectNotFoundError):
        tortilla.open(urls[3], siblings=True)


def test_object_stores(s3_server: S3Server) -> None:
    for number in (1, 2):
        data = build.nested((f"r{number}", [Item("x", b"xyz")]), parts=2)
        s3_server.put(f"sets/s.{number:04d}.part.tortilla", data)
    frame = tortilla.open(s3_server.url_for("sets/s.*.tortilla"), config=s3_server.config)
    assert [one for one, _ in frame.walk()] == ["r1/x", "r2/x"]
    assert frame.read("r2/x") == b"xyz"
    vsi = frame.flatten()[spec.SUBFILE].to_pylist()
    bucket = s3_server.url_for("sets").removeprefix("s3://")
    assert vsi[1] == f"/vsisubfile/400_3,/vsis3/{bucket}/s.0002.part.tortilla"
