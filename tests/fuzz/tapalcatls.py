"""Tapalcatl: documents, comments, names of entries, and whole archives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa

from comal import tapalcatl
from comal.errors import ComalError
from comal.tapalcatl import spec, wire
from comal.tapalcatl import wire as times
from tests.attacks.reading import checked, read_tileset
from tests.fuzz.base import Target, as_file, let_through
from tests.tapalcatl import odd

T = TypeVar("T")
_TILES = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1), (5, 3, 3)]


def _archive(data: bytes) -> None:
    """Every door of the reader, and the check."""
    path = as_file(data, "0.zip")
    checked(tapalcatl, path)
    let_through(read_tileset(path, dict.fromkeys(_TILES, b"")))


def _documents(data: bytes) -> None:
    """``meta.json`` and comments; what was understood is written and understood the same."""
    spec.read_comment(data, "archive")
    headers = spec.parse_entry_comment(data)
    if headers is not None:
        spec.safe_headers(headers)
        spec.folded(headers)
    with suppress(ComalError):
        _again(data, spec.parse_archive, lambda found: spec.archive_comment(found)[0])
    _again(data, spec.parse_tileset, spec.tileset_json)


def _again(data: bytes, parse: Callable[[bytes, str], T], write: Callable[[T], bytes]) -> None:
    found = parse(data, "document")
    again = parse(write(found), "again")
    for name in ("bounds", "metatile", "formats", "min_zoom", "max_zoom"):
        assert getattr(again, name) == getattr(found, name), name


def _names(data: bytes) -> None:
    """Lines as names of entries: one by one and as a column they mean the same."""
    names = data.split(b"\n")[:200]
    texts = []
    for name in names:
        try:
            texts.append(name.decode())
        except UnicodeDecodeError:
            texts.append(name.decode("cp437"))
        times.ut_seconds(name)
    found = wire.parse_names(pa.array(texts, pa.string()))
    columns = found.rows, found.z, found.x, found.y
    many = {row: (z, x, y) for row, z, x, y in zip(*(c.tolist() for c in columns), strict=True)}
    one = {row: parsed[0] for row, text in enumerate(texts) if (parsed := wire.parse_name(text))}
    assert many == one


def _archives() -> Iterator[bytes]:
    comment = b'[{"Content-Type":"image/png"},{"Content-Encoding":"gzip"}]'
    extra = times.ut_field(1_600_000_000)
    yield odd.archive(odd.tiles(comment=comment, extra=extra))
    yield odd.archive(odd.tiles(deflate=True, local_extra=extra))
    yield odd.archive(odd.tiles(descriptor=True), gap=b"gap")
    yield odd.archive(odd.tiles(), stub=b"stub", shifted=True)
    first = odd.tiles()
    yield odd.appended(odd.archive(first), [odd.Entry(b"1/1/1.png", b"new")], first[:-1])


def _texts() -> Iterator[bytes]:
    yield odd.METADATA
    formats = {"png": (("Content-Type", "image/png"),), "mvt": (("Content-Encoding", "gzip"),)}
    yield spec.tileset_json(
        spec.TileSetMetadata(
            formats=formats,
            min_zoom=0,
            max_zoom=5,
            bounds=(-10.0, -10.0, 10.0, 10.0),
            metatile=2,
            materialized_zooms=(0, 4),
            source="tiles/{z}/{x}/{y}.zip",
            max_scale=2,
        )
    )
    yield b'[{"Content-Type":"image/png"},{"Content-Encoding":"gzip"}]'
    yield b'{"a":"b"}'


TARGETS = {
    "tapalcatl": Target(_archive, _archives),
    "tapalcatl-document": Target(_documents, _texts),
    "tapalcatl-names": Target(_names, lambda: [b"0/0/0.png\n1/1/0@2x.mvt\n12/4095/1\nx/1/0/0.png"]),
}
