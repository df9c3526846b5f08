"""Pixels and georeference of images in memory, identical to those of rasterio.

Samples for training are small files, and GDAL takes about as long to open one as to decode it. Here
the first directory is parsed, the strips or tiles of the window are inflated with libdeflate, which
GDAL uses too, and NumPy undoes the predictor; most of it without the lock of the interpreter. What
might mean something else to GDAL is left to rasterio: other formats and codecs, unknown tags,
missing tiles, and most of what is damaged.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import deflate
import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, InvalidMetadataError, NotThisFormatError
from comal.limits import DEFAULT_LIMITS

Pixels = npt.NDArray[Any]
Shape = tuple[int, int, int]
Window = tuple[int, int, int, int]

Data = bytes | memoryview

_WHERE = "raster in memory"


class Georeference(NamedTuple):
    """Where a raster lies, and which pixels have no value."""

    transform: tuple[float, ...]
    """``a`` to ``f`` of rasterio's Affine: x = a column + b row + c, y = d column + e row + f."""
    crs: str | None
    """``EPSG:32718``, or WKT if no authority defines the CRS."""
    nodata: float | None
    masked: bool
    """Whether all bands share one mask: a mask in the file, or an alpha band."""


def image(
    data: Data,
    *,
    bands: Sequence[int] | None = None,
    window: Window | None = None,
    out: Pixels | None = None,
) -> Pixels:
    """The pixels of an image, shape (bands, rows, columns), in its type.

    Parameters
    ----------
    data
        The file: a GeoTIFF; PNG, JPEG, WebP and JPEG 2000 are left to rasterio.
    bands
        Numbers of bands from 1, in the order of the result; None for all.
    window
        Column, row, width and height in pixels; only strips or tiles that it touches are decoded.
    out
        Array to write and to return if it has the shape and type of the pixels; else they go to a
        new one. After an error its content is undefined.

    Raises
    ------
    InvalidInputError
        A band or the window is not in the raster.
    InvalidMetadataError
        The file is damaged or no image.
    LimitExceededError
        The pixels, or one strip or tile, take more than ``raster_bytes``.
    """
    with suppress(_UnusualError):
        layout = _layout(_directory(data))
        chosen, part, pixels = _request(layout.shape, layout.stored, bands, window, out)
        _fill(data, layout, part, list(zip(pixels, chosen, strict=True)))
        return pixels
    with _opened(data) as dataset:
        chosen, part, pixels = _request(*_shape_of(dataset), bands, window, out)
        pixels[...] = dataset.read([band + 1 for band in chosen], window=_ranges(part))
    return pixels


def shape_of(data: Data) -> tuple[Shape, np.dtype[Any]]:
    """Bands, rows and columns of an image, and the type of its pixels, from the header alone.

    Raises
    ------
    InvalidMetadataError
        The header is damaged, or the file is no image.
    """
    with suppress(_UnusualError):
        layout = _layout(_directory(data))
        return layout.shape, layout.stored.newbyteorder("=")
    with _opened(data) as dataset:
        return _shape_of(dataset)


_georeferences: dict[bytes, Georeference] = {}
_MOST_GEOREFERENCES = 1 << 14


def georeference(data: Data) -> Georeference:
    """Transform, CRS, nodata and kind of mask of an image, as rasterio gives them.

    rasterio opens one of the GeoTIFFs that differ only in their pixels.

    Raises
    ------
    InvalidMetadataError
        The file is damaged or no image.
    """
    key = None
    with suppress(_UnusualError):
        key = _description(data)
        if key in _georeferences:
            return _georeferences[key]
    with _opened(data) as dataset:
        from comal.raster.opening import crs_name  # noqa: PLC0415 - imported by `_opened`

        masked = "per_dataset" in {flag.name for flag in dataset.mask_flag_enums[0]}
        transform = tuple(dataset.transform)[:6]
        found = Georeference(transform, crs_name(dataset.crs), dataset.nodata, masked)
    if key is not None and len(_georeferences) < _MOST_GEOREFERENCES:
        _georeferences[key] = found
    return found


def valid(
    data: Data, pixels: Pixels, bands: Sequence[int] | None = None, window: Window | None = None
) -> npt.NDArray[np.bool_]:
    """Which of the `pixels` of some bands and a window are valid, as rasterio says it.

    Raises
    ------
    InvalidMetadataError
        The file is damaged or no image.
    """
    known = georeference(data)
    if known.nodata is None and not known.masked:
        return np.ones(pixels.shape, np.bool_)
    with _opened(data) as dataset:
        chosen, part, _ = _request(*_shape_of(dataset), bands, window, pixels)
        masks = dataset.read_masks([band + 1 for band in chosen], window=_ranges(part))
    return np.asarray(masks, np.bool_).reshape(pixels.shape)


def _ranges(window: Window) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of a window, as rasterio takes them."""
    column, row, width, height = window
    return (row, row + height), (column, column + width)


@contextmanager
def _opened(data: Data) -> Iterator[Any]:
    """The file as a dataset of rasterio."""
    # Only unusual files and new georeferences need rasterio.
    from comal.raster.opening import open_raster  # noqa: PLC0415

    try:
        with open_raster(bytes(data)) as dataset:
            yield dataset
    except NotThisFormatError as error:
        named = {"where": error.where, "found": error.found, "expected": error.expected}
        raise InvalidMetadataError(error.what, **named) from error


def _shape_of(dataset: Any) -> tuple[Shape, np.dtype[Any]]:
    name = dataset.dtypes[0]
    if name.startswith("complex_int"):
        raise InvalidMetadataError("raster of complex integers", where=_WHERE, found=name)
    return (dataset.count, dataset.height, dataset.width), np.dtype(name)


# -- directories ----------------------------------------------------------------------------------


class _UnusualError(Exception):
    """GDAL has to say what this file means."""


class _Directory(NamedTuple):
    order: Any
    tags: dict[int, tuple[int, bytes]]
    """Type and values by number."""
    following: int
    """Offset of the next directory, 0 for none."""


_FORMS = {
    b"II*\0": ("<", 4, "H", "I"),
    b"MM\0*": (">", 4, "H", "I"),
    b"II+\0\x08\0\0\0": ("<", 8, "Q", "Q"),
    b"MM\0+\0\x08\0\0": (">", 8, "Q", "Q"),
}
"""By first bytes: byte order, place of the first offset, type of a count, type of an offset."""
_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)
"""Bytes of a value of each type."""
_BYTE, _ASCII, _SHORT, _LONG, _RATIONAL, _DOUBLE, _LONG8 = 1, 2, 3, 4, 5, 12, 16
_INTEGERS = {_SHORT: "H", _LONG: "I", _LONG8: "Q"}

# TIFF 6.0, sections 8, 14, 15 and 19.
_SUBFILE, _WIDTH, _HEIGHT, _BITS, _CODEC, _PHOTOMETRIC = 254, 256, 257, 258, 259, 262
_FILL_ORDER, _BANDS, _PLANAR, _PREDICTOR, _FORMAT = 266, 277, 284, 317, 339
_STRIP_OFFSETS, _STRIP_ROWS, _STRIP_SIZES = 273, 278, 279
_TILE_COLUMNS, _TILE_ROWS, _TILE_OFFSETS, _TILE_SIZES = 322, 323, 324, 325
_ORIENTATION, _UNIT, _PALETTE, _EXTRA = 274, 296, 320, 338
_STRIPS = {_STRIP_OFFSETS, _STRIP_ROWS, _STRIP_SIZES}
_TILES = {_TILE_COLUMNS, _TILE_ROWS, _TILE_OFFSETS, _TILE_SIZES}
_PLACES = {_STRIP_OFFSETS, _STRIP_SIZES, _TILE_OFFSETS, _TILE_SIZES}
_PIXELS = {_SUBFILE, _WIDTH, _HEIGHT, _BITS, _CODEC, _PHOTOMETRIC, _FILL_ORDER, _BANDS, _PLANAR}
_PIXELS |= {_PREDICTOR, _FORMAT}
# Texts, resolutions, colours, georeference, metadata: pixels do not depend on them.
_OTHERS = dict.fromkeys((269, 270, 271, 272, 305, 306, 315, 33432, 34737, 42112, 42113), _ASCII)
_OTHERS |= dict.fromkeys((33550, 33922, 34264, 34736, 50844), _DOUBLE)
_OTHERS |= dict.fromkeys((_ORIENTATION, _UNIT, _PALETTE, _EXTRA, 34735), _SHORT)
_OTHERS |= {282: _RATIONAL, 283: _RATIONAL, 700: _BYTE}
"""Types by number."""
_KNOWN = _STRIPS | _TILES | _PIXELS | _OTHERS.keys()


def _directory(data: Data, at: int | None = None) -> _Directory:
    """The directory at an offset, the first one for None."""
    head = bytes(data[:8])
    form = _FORMS.get(head[:4]) or _FORMS.get(head)
    if form is None:
        raise _UnusualError
    order, first, number, offset = form
    width, skipped = struct.calcsize("=" + offset), struct.calcsize("=" + number)
    tags, total = {}, 0
    try:
        if at is None:
            (at,) = struct.unpack_from(order + offset, data, first)
        (count,) = struct.unpack(order + number, data[at : at + skipped])
        start = at + skipped
        end = start + count * (width + 4 + width)
        (following,) = struct.unpack(order + offset, data[end : end + width])
        entries = struct.iter_unpack(f"{order}HH{offset}{width}s", data[start:end])
        for tag, kind, length, field in entries:
            size = length * _SIZES[kind]
            total += size
            value = field[:size]
            if size > width:
                (place,) = struct.unpack(order + offset, field)
                value = bytes(data[place : place + size])
            # Values that overlap could take any memory.
            if len(value) != size or total > len(data) or tag not in _KNOWN:
                raise _UnusualError
            tags[tag] = kind, value
    except (struct.error, IndexError):
        raise _UnusualError from None
    if len(tags) != count:
        raise _UnusualError
    return _Directory(order, tags, following)


def _integers(directory: _Directory, tag: int) -> tuple[int, ...]:
    kind, value = directory.tags.get(tag, (0, b""))
    letter = _INTEGERS.get(kind)
    if letter is None:
        raise _UnusualError
    return struct.unpack(f"{directory.order}{len(value) // _SIZES[kind]}{letter}", value)


def _number(directory: _Directory, tag: int, default: int = -1, times: int = 1) -> int:
    """The integer that a tag has, `times` times; its default if the tag is missing."""
    if default >= 0 and tag not in directory.tags:
        return default
    values = _integers(directory, tag)
    if not values or values != values[:1] * times or values[0] >> 32:
        raise _UnusualError
    return values[0]


def _description(data: Data) -> bytes:
    """A digest of all directories but for the places of strips and tiles."""
    digest, directory = hashlib.sha256(), _directory(data)
    for _ in range(64):
        tags = {tag: value for tag, value in directory.tags.items() if tag not in _PLACES}
        digest.update(repr((directory.order, tags)).encode())
        if not directory.following:
            return digest.digest()
        directory = _directory(data, directory.following)
    raise _UnusualError


class _Layout(NamedTuple):
    """How pixels are stored."""

    shape: Shape
    stored: np.dtype[Any]
    """Type of pixels in the byte order of the file."""
    block: tuple[int, int]
    """Rows and columns of a strip or tile."""
    grid: Shape
    """Numbers of strips or tiles: of bands, down, across."""
    tiled: bool
    codec: int
    predictor: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


_NONE, _DEFLATE, _OLD_DEFLATE, _ZSTD = 1, 8, 32946, 50000
_CODECS = {_NONE: (1,), _DEFLATE: (1, 2, 3), _OLD_DEFLATE: (1, 2, 3), _ZSTD: (1, 2, 3)}
"""Codecs, and the predictors that they may follow."""
_TYPES = {(1, 8 * size): np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
_TYPES |= {(2, 8 * size): np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
_TYPES |= {(3, 8 * size): np.dtype(f"f{size}") for size in (4, 8)}
"""By SampleFormat and BitsPerSample."""


def _layout(directory: _Directory) -> _Layout:
    tags = directory.tags
    tiled = _TILE_OFFSETS in tags
    width, height = _number(directory, _WIDTH), _number(directory, _HEIGHT)
    if tiled:
        block = _number(directory, _TILE_ROWS), _number(directory, _TILE_COLUMNS)
    else:
        block = min(_number(directory, _STRIP_ROWS), height), width
    bands, planar = _number(directory, _BANDS, 1), _number(directory, _PLANAR, 1)
    kind = _number(directory, _FORMAT, 1, bands), _number(directory, _BITS, times=bands)
    codec, predictor = _number(directory, _CODEC), _number(directory, _PREDICTOR, 1)
    offsets = _integers(directory, _TILE_OFFSETS if tiled else _STRIP_OFFSETS)
    sizes = _integers(directory, _TILE_SIZES if tiled else _STRIP_SIZES)
    usual = (
        tags.keys().isdisjoint(_STRIPS if tiled else _TILES)
        and min(width, height, bands, *block) > 0
        and not (tiled and (block[0] % 16 or block[1] % 16))
        and kind in _TYPES
        and planar in {1, 2}
        and predictor in _CODECS.get(codec, ())
        and (predictor != 3 or kind[0] == 3)
        # Black is 0, RGB or palette: GDAL converts some of the others.
        and _number(directory, _PHOTOMETRIC) in {1, 2, 3}
        and _number(directory, _SUBFILE, 0) == 0
        and _number(directory, _FILL_ORDER, 1) == 1
        and _is_valid(directory, bands, kind[1])
    )
    if not usual:
        raise _UnusualError
    grid = bands if planar == 2 else 1, -(-height // block[0]), -(-width // block[1])
    if not len(offsets) == len(sizes) == math.prod(grid):
        raise _UnusualError
    stored = _TYPES[kind].newbyteorder(directory.order)
    shape = bands, height, width
    return _Layout(shape, stored, block, grid, tiled, codec, predictor, offsets, sizes)


def _is_valid(directory: _Directory, bands: int, bits: int) -> bool:
    """Whether GDAL takes the tags that do not matter here."""
    tags = directory.tags
    extra = _integers(directory, _EXTRA) if _EXTRA in tags else ()
    colours = len(_integers(directory, _PALETTE)) if _PALETTE in tags else 3 << bits
    return (
        all(tags[tag][0] == _OTHERS[tag] for tag in tags.keys() & _OTHERS.keys())
        and set(extra) <= {0, 1, 2}
        and len(extra) <= bands
        and colours == 3 << bits
        and 1 <= _number(directory, _ORIENTATION, 1) <= 8
        and 1 <= _number(directory, _UNIT, 1) <= 3
    )


# -- pixels ---------------------------------------------------------------------------------------


def _request(
    shape: Shape,
    stored: np.dtype[Any],
    bands: Sequence[int] | None,
    window: Window | None,
    out: Pixels | None,
) -> tuple[list[int], Window, Pixels]:
    """Positions of bands, the window, and an array for the pixels."""
    count, rows, columns = shape
    chosen = list(range(count)) if bands is None else [band - 1 for band in bands]
    if not chosen or min(chosen) < 0 or max(chosen) >= count:
        expected = f"numbers from 1 to {count}"
        raise InvalidInputError("no such band", found=f"bands {bands}", expected=expected)
    column, row, width, height = window or (0, 0, columns, rows)
    across, down = 0 <= column < column + width <= columns, 0 <= row < row + height <= rows
    if not across or not down:
        expected = f"column, row, width, height within {columns} x {rows} pixels"
        raise InvalidInputError("window is not in the raster", found=window, expected=expected)
    wanted, dtype = (len(chosen), height, width), stored.newbyteorder("=")
    DEFAULT_LIMITS.check("raster_bytes", math.prod(wanted) * dtype.itemsize, _WHERE)
    if out is None or out.shape != wanted or out.dtype != dtype:
        out = np.empty(wanted, dtype)
    return chosen, (column, row, width, height), out


_PART = 1 << 20
"""Bytes of pixels whose predictor is undone at a time, which takes up to four times as many."""


def _fill(data: Data, layout: _Layout, window: Window, wanted: _Targets) -> None:
    """Decode the strips or tiles that the window touches, a column of them at a time."""
    rows, columns = layout.block
    left, top, width, height = window
    downs = range(top // rows, -(-(top + height) // rows))
    lines = slice(top - downs[0] * rows, top - downs[0] * rows + height)
    undo = _UNDOING[layout.predictor]
    groups = [(band, [(plane, 0)]) for plane, band in wanted]
    if layout.grid[0] == 1:
        groups = [(0, list(wanted))]
    for across in range(left // columns, -(-(left + width) // columns)):
        start = across * columns
        low, high = max(start, left), min(start + columns, left + width)
        samples, into = slice(low - start, high - start), slice(low - left, high - left)
        for first, planes in groups:
            stack = _stack(data, layout, (first, downs, across))[lines]
            step = max(1, _PART // stack[:1].nbytes)
            for line in range(0, height, step):
                part = slice(line, line + step)
                undo(stack[part], samples, [(plane[part, into], band) for plane, band in planes])


def _stack(data: Data, layout: _Layout, place: tuple[int, range, int]) -> Pixels:
    """Strips or tiles below each other before their predictor is undone, by rows and columns."""
    band, downs, across = place
    bands, height, _ = layout.shape
    rows, columns = layout.block
    samples = bands // layout.grid[0]
    line = columns * samples * layout.stored.itemsize
    DEFAULT_LIMITS.check("raster_bytes", line * rows * len(downs), f"{_WHERE}, strips or tiles")
    blocks = []
    for down in downs:
        index = (band * layout.grid[1] + down) * layout.grid[2] + across
        start, length = layout.offsets[index], layout.sizes[index]
        stored = memoryview(data)[start : start + length]
        size = line * (rows if layout.tiled else min(rows, height - down * rows))
        # GDAL takes some of these for missing or cut off, and others for padded.
        if not start or not length or len(stored) != length:
            raise _UnusualError
        where = f"{_WHERE}, block {index} (bytes {start}+{length})"
        blocks.append(_unpacked(stored, layout.codec, size, where))
    raw = blocks[0] if len(blocks) == 1 else b"".join(blocks)
    return np.frombuffer(raw, layout.stored).reshape(-1, columns, samples)


def _unpacked(stored: memoryview, codec: int, size: int, where: str) -> Any:
    """The bytes of a strip or tile, exactly `size`."""
    if codec in {_DEFLATE, _OLD_DEFLATE}:
        return _inflated(stored, size, where)
    raw: Any = stored
    if codec == _ZSTD:
        # Its import takes longer than decoding fifty samples.
        import pyarrow as pa  # noqa: PLC0415

        try:
            raw = pa.decompress(stored, size, "zstd")
        except (OSError, ValueError):
            raise _UnusualError from None
    if len(raw) != size:
        raise _UnusualError
    return raw


_EXPANSION = 1032
"""Bytes that one byte of deflate becomes at most: 258 for two bits."""


def _inflated(stored: memoryview, size: int, where: str) -> bytearray:
    """A zlib stream of exactly `size` bytes.

    GDAL is not asked about others: where a stream is too long, the pixels that it gives end in
    memory that was never written.
    """
    if size <= _EXPANSION * len(stored):
        with suppress(deflate.DeflateError):
            raw = deflate.zlib_decompress(stored, size)
            if len(raw) == size:
                return raw
    found, expected = f"{len(stored)} bytes of zlib", f"{size} bytes of pixels"
    raise InvalidMetadataError("damaged pixels", where=where, found=found, expected=expected)


_Targets = Sequence[tuple[Pixels, int]]
"""Arrays to write, and the positions of their bands in a block."""


def _copied(block: Pixels, samples: slice, targets: _Targets) -> None:
    for target, band in targets:
        target[...] = block[:, samples, band]


def _summed(block: Pixels, samples: slice, targets: _Targets) -> None:
    """TIFF 6.0, section 14: differences to the pixel before, in unsigned arithmetic."""
    unsigned = np.dtype(f"u{block.itemsize}")
    stored = block.view(unsigned.newbyteorder(block.dtype.byteorder))[:, : samples.stop]
    if stored.shape[2] == 4 and stored.dtype == np.uint16 and samples.stop <= _MOST_IN_WORDS:
        _summed_words(stored, samples, targets)
        return
    # NumPy sums 4 and 8 bytes several times faster than 1 and 2.
    wide = np.uint64 if block.itemsize == 8 else np.uint32
    for target, band in targets:
        sums = np.add.accumulate(stored[:, :, band], axis=1, dtype=wide)
        target.view(unsigned)[...] = sums[:, samples]


_MOST_IN_WORDS = 1 << 16
"""Columns whose sum of 16 bits never takes more than 32."""


def _summed_words(stored: Pixels, samples: slice, targets: _Targets) -> None:
    """Four bands of 16 bits: two by two as one word, with room for carries between them."""
    words = stored.view(np.uint64)[:, :, 0]
    for odd in (0, 1):
        mask = np.array([1 - odd, odd, 1 - odd, odd], np.uint16) * np.uint16(0xFFFF)
        sums = words & mask.view(np.uint64)
        np.add.accumulate(sums, axis=1, out=sums)
        parts = sums.view(np.uint16).reshape(stored.shape)
        for target, band in targets:
            if band % 2 == odd:
                target.view(np.uint16)[...] = parts[:, samples, band]


def _summed_floats(block: Pixels, samples: slice, targets: _Targets) -> None:
    """TIFF Technical Note 3: differences of bytes; a row has all first bytes, then all second."""
    rows, columns, bands = block.shape
    size = block.itemsize
    stored = block.view(np.uint8).reshape(rows, size * columns, bands)
    for target, band in targets:
        sums = np.add.accumulate(stored[:, :, band], axis=1, dtype=np.uint32)
        values = np.empty((*target.shape, size), np.uint8)
        values[...] = sums.reshape(rows, size, columns)[:, :, samples].transpose(0, 2, 1)
        target[...] = values.view(f">f{size}")[..., 0]


_UNDOING = {1: _copied, 2: _summed, 3: _summed_floats}
"""By the number of the predictor."""
