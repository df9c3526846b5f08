"""RaQuet: the metadata document, the blob of a tile, and whole files."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from comal import raquet
from comal.errors import ComalError
from comal.grid import quadbin
from comal.limits import Limits
from comal.raquet import blobs, documents
from comal.raquet.wire import parse_metadata
from tests.attacks.reading import checked, read_raquet
from tests.fuzz.base import Target, as_file, folder, let_through
from tests.raquet.writing.sources import noise, on_grid

_LIMITS = Limits(table_rows=100_000, leaf_bytes=16 << 20, tile_bytes=1 << 20, raster_bytes=8 << 20)
_SHAPE = (16, 16)


def _document(data: bytes) -> None:
    """What was understood is written and understood the same."""
    found = parse_metadata(data, "file")
    for version in ("0.1.0", "0.5.0"):
        try:
            text = documents.metadata_json(found, version)
        except ComalError:
            continue
        again = parse_metadata(text, "again")
        assert [(band.name, band.dtype) for band in again.bands] == [
            (band.name, band.dtype) for band in found.bands
        ]


def _tile(data: bytes) -> None:
    """The first byte says which pixels; what zlib takes as well must be the same."""
    kinds = ((None, "uint8"), ("gzip", "uint8"), ("gzip", "<f4"), ("jpeg", "uint8"))
    compression, dtype = (*kinds, ("webp", "uint8"))[(data[0] if data else 0) % 5]
    size = _SHAPE[0] * _SHAPE[1] * np.dtype(dtype).itemsize
    pixels = blobs.decode(data[1:], compression, dtype, _SHAPE, limits=_LIMITS)
    assert pixels.shape == _SHAPE
    if compression == "gzip":
        assert pixels.nbytes == size
        assert blobs.decompress(data[1:], size, "tile") == pixels.tobytes()
        try:
            other = gzip.decompress(data[1:])
        except (OSError, EOFError, zlib.error):
            return
        assert other[:size] == pixels.tobytes()


def _file(data: bytes) -> None:
    """Every door of the reader, and the check."""
    path = as_file(data, "data.parquet")
    checked(raquet, path)
    with raquet.open(path, limits=_LIMITS) as raster:
        z, x, y = quadbin.tiles(raster.cells()[:10])
    tiles = zip(z.tolist(), x.tolist(), y.tolist(), strict=True)
    let_through(read_raquet(path, {tile: {} for tile in tiles}, limits=_LIMITS))


KINDS: dict[str, dict[str, Any]] = {
    "0.1.0": {},
    "0.5.0": {"spec_version": "0.5.0", "tile_statistics": True, "compression": None},
    "interleaved": {"spec_version": "0.5.0", "layout": "interleaved"},
}
"""Options of the files that begin a corpus."""


def _files() -> Iterator[bytes]:
    source = on_grid(folder() / "a.tif", noise((2, 40, 40), "uint8") // 8 * 8, nodata=0)
    for name, options in KINDS.items():
        path = folder() / f"{name}.parquet"
        raquet.write(source, path, block_size=16, min_zoom=9, overwrite=True, **options)
        yield path.read_bytes()


def _texts() -> Iterator[bytes]:
    for data in _files():
        with raquet.open(as_file(data, "seed.parquet")) as raster:
            for text in raster.documents():
                yield text.encode()
                found = parse_metadata(text, "seed")
                yield documents.metadata_json(found, "0.5.0").encode()


def _blobs() -> Iterator[bytes]:
    pixels = noise(_SHAPE, "uint8")
    floats = noise(_SHAPE, "float32")
    yield b"\0" + pixels.tobytes()
    yield b"\1" + blobs.encode(pixels, "gzip")
    yield b"\1" + zlib.compress(pixels.tobytes())
    half = len(pixels.tobytes()) // 2
    yield b"\1" + b"".join(
        gzip.compress(part, mtime=0) for part in (pixels.tobytes()[:half], pixels.tobytes()[half:])
    )
    yield b"\2" + blobs.encode(floats, "gzip")
    for number, kind in ((3, "jpeg"), (4, "webp")):
        yield bytes([number]) + blobs.encode(pixels, kind)


TARGETS = {
    "raquet": Target(_file, _files),
    "raquet-document": Target(_document, _texts),
    "raquet-tile": Target(_tile, _blobs),
}
