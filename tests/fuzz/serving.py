"""Requests to the server: whole ones, filters and single headers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from comal import server
from comal.errors import ComalError
from comal.server import http as conditions
from comal.server import http as negotiation
from comal.server.cql2 import matching
from comal.server.render import parse_expression
from comal.server.responses import Refusal
from tests.fuzz.base import Target, folder
from tests.server.asking import reply_of
from tests.server.making import raquet_file, taco_file, tileset

_STATUSES = {200, 204, 206, 304, 308, 400, 404, 405, 406, 412, 413, 414, 416, 422, 431}


@cache
def _application() -> Any:
    pixels = np.arange(64 * 64, dtype=np.int16).reshape(64, 64)
    sources = {
        "tiles": {"href": str(tileset(folder() / "set"))},
        "dem": str(raquet_file(folder() / "dem.parquet", {"height": pixels}, nodata=0)),
        "scenes": str(taco_file(folder() / "scenes.tacozip", 3)),
    }
    return server.app(sources, log="none")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _reply(data: bytes) -> Any:
    """The answer to a request line and headers, as a server that has split them passes them on."""
    line, *fields = data.split(b"\r\n")
    method, _, rest = line.partition(b" ")
    target = rest.removesuffix(b" HTTP/1.1")
    raw, _, query = target.partition(b"?")
    pairs = [field.partition(b":") for field in fields if b":" in field]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method.decode("latin-1"),
        "scheme": "http",
        "path": raw.decode("utf-8", "replace"),
        "raw_path": raw,
        "query_string": query,
        "root_path": "",
        "headers": [(name.lower(), value.strip()) for name, _, value in pairs],
    }
    return _loop().run_until_complete(reply_of(_application(), scope))


def _request(data: bytes) -> None:
    reply = _reply(data)
    damaged = reply.status == 500 and b'"code":"damaged"' in reply.body  # one tile of the set is
    assert reply.status in _STATUSES or damaged, (reply.status, reply.body[:500])
    assert str(folder()).encode() not in reply.body


def _plain(data: bytes) -> None:
    """What is answered before it is parsed is what the whole way answers."""
    quick = _application().plain.answer(data)
    if quick is not None:
        reply = _reply(data)
        assert (reply.status, reply.body) == (200, quick[2])


_TABLE = pa.table(
    {
        "cloud": pa.array([0.0, 10.5, None, float("nan")]),
        "split": ["train", "test", None, "it's"],
        "clear": [True, False, None, True],
        "n": pa.array([1, 2, None, -4], pa.int32()),
        "at": pa.array([0, 1_700_000_000_000_000, None, -1], pa.timestamp("us")),
    }
)


def _filter(data: bytes) -> None:
    """DuckDB takes the filters that are SQL as they stand, and finds the same rows."""
    text = data.decode("utf-8", "replace")
    try:
        ours = matching(text, _TABLE)
    except ComalError:
        return
    connection = duckdb.connect()
    connection.register("scenes", _TABLE)
    connection.execute("SET TimeZone = 'UTC'")
    try:
        rows = connection.execute(f"SELECT ({text}) IS TRUE FROM scenes").fetchall()
    except duckdb.Error:
        return  # columns of other types than the value, DATE(..), words that are SQL's own
    finally:
        connection.close()
    if not any(word in text.lower() for word in ("cloud", "at", "\\")):
        # Of NaN it has an order, of days its own idea, of a backslash in LIKE none.
        assert ours.tolist() == [row[0] for row in rows], text


def _headers(data: bytes) -> None:
    """Single headers, by the functions that read them."""
    for at, name in enumerate((b"range", b"if-range", b"if-none-match", b"if-match")):
        part = data.split(b"\n")[at : at + 1] or [data]
        headers = {name: part[0], b"range": part[0]}
        conditions.is_refused(headers, b'"abc"', 1_000)
        conditions.is_not_modified(headers, b'"abc"', 1_000, 77)
        try:
            span = conditions.wanted_range(headers, b'"abc"', 1_000, 500)
        except ValueError:  # 416, as its docstring says
            continue
        assert span is None or 0 <= span[0] < span[1] <= 500
    for name in (b"if-modified-since", b"if-unmodified-since"):
        conditions.is_not_modified({name: data}, b'"abc"', 1_000)
        conditions.is_refused({name: data}, b'"abc"', 1_000)
    negotiation.encodings(data)
    negotiation.best_type(data, ["image/png", "application/json"])


def _expression(data: bytes) -> None:
    try:
        parse_expression(data.decode("utf-8", "replace"))
    except Refusal:
        return


def _requests() -> Iterator[bytes]:
    targets = (
        "/tiles/1/0/1.png",
        "/tiles/tilejson.json",
        "/dem/6/18/34.png?rescale=0,100&colormap_name=viridis&expression=b1*2",
        "/dem/point/-70.1,-15.2",
        "/dem/bbox/-71,-16,-70,-15.png?max_size=64",
        "/collections/scenes/items?bbox=-10,-10,10,10&datetime=2023-01-01/..&limit=2",
        "/collections/scenes/items?filter=cloud_cover%20%3C%2010%20AND%20split='train'&sortby=-id",
        "/scenes/data/scene%200/note.txt",
        "/scenes/table?columns=id,split&offset=1",
        "/scenes/preview/scene%200/image.tif?size=64",
        "/scenes/tree?path=scene%200",
        "/collections/tiles/tiles/WebMercatorQuad/1/1/0?f=png",
        "/",
        "/metrics",
        "/health",
    )
    fields = 'Host: a\r\nAccept-Encoding: gzip;q=0.5, *;q=0\r\nIf-None-Match: "x"\r\n'
    for target in targets:
        yield f"GET {target} HTTP/1.1\r\n{fields}Range: bytes=0-10\r\n\r\n".encode()
    yield b"OPTIONS /tiles/1/0/1.png\r\nOrigin: b\r\nAccess-Control-Request-Method: GET\r\n\r\n"
    yield b"HEAD /tiles/1/0/1.png\r\nIf-Modified-Since: Wed, 31 Oct 2018 19:10:26 GMT\r\n\r\n"


def _plains() -> Iterator[bytes]:
    yield b"GET /tiles/1/0/1.png HTTP/1.1\r\nHost: a\r\n\r\n"
    yield (
        b"GET /tiles/1/0/1.mvt HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n"
        b"Accept-Encoding: gzip, br\r\nUser-Agent: b\r\n\r\n"
    )


_FILTERS = (
    b"cloud < 10 AND split = 'train' OR NOT (clear = TRUE)",
    b"n IN (1, 2, -4) AND split LIKE 't%' AND \"n\" BETWEEN -5 AND 1e2",
    b"at > TIMESTAMP('2023-01-01T00:00:00Z') OR at <= DATE('2023-11-14')",
    b"split IS NOT NULL AND clear IS NULL OR split <> 'it''s' AND 3 >= n",
)

TARGETS = {
    "request": Target(_request, _requests),
    "plain-request": Target(_plain, _plains),
    "filter": Target(_filter, lambda: _FILTERS),
    "headers": Target(
        _headers,
        lambda: [
            b'bytes=0-10\n"abc"\nW/"abc", "def"\n"abc"',
            b"bytes=-5\nWed, 31 Oct 2018 19:10:26 GMT\n*\n77",
            b"gzip;q=0.5, identity;q=0, *",
            b"image/*;q=0.8, application/json;q=0.9",
        ],
    ),
    "expression": Target(_expression, lambda: [b"(b1-b2)/(b1+b2)", b"where(b1>0.5,sqrt(b1),-b2)"]),
}
