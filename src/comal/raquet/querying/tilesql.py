"""SQL functions of tiles: values, statistics, clips and band arithmetic.

A band argument is the column itself. Which band that is, and so its type and nodata value, is told
by the name of the column, which macros pass on; see `comal.raquet.querying.names`. Functions that
leave out what an alpha band hides are given the `Hiding` of their connection, and as their last
argument that band, or anything else where a query does not pass it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from comal import grid
from comal.errors import InvalidInputError, shown
from comal.geo.scanline import Spans
from comal.query.columns import (
    blobs,
    coordinates,
    flat,
    is_bytes,
    is_text,
    perhaps_number,
    real,
    shapes,
    texts,
    whole,
)
from comal.raquet.querying.areas import Areas
from comal.raquet.querying.moments import Moments, of_spans, of_tile
from comal.raquet.querying.tilevalues import (
    BandOf,
    Bools,
    Hiding,
    Pixels,
    band_like,
    band_of,
)

VALUES = pa.list_(pa.float64())
SUMMARY = pa.struct(
    [
        ("count", pa.int64()),
        ("sum", pa.float64()),
        ("mean", pa.float64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
        ("stddev", pa.float64()),
        ("stddev_pop", pa.float64()),
        ("stddev_samp", pa.float64()),
    ]
)
PARTIAL = pa.struct(
    [
        ("block", pa.uint64()),
        ("count", pa.float64()),
        ("sum", pa.float64()),
        ("mean", pa.float64()),
        ("squares", pa.float64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
    ]
)
Call = Callable[..., Any]
_KEPT = 64


class _Decoded:
    """Pixels of the blobs of one call, decoded once however often they come."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int, bytes | None], tuple[Pixels, Any]] = {}

    def __call__(self, blob: bytes, of: BandOf, alpha: bytes | None) -> tuple[Pixels, Any]:
        """See `BandOf.read`."""
        key = (blob, of.index, alpha)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[key] = of.read(blob, alpha)
        return found


def _bands(metadata: Any, name: Any) -> list[BandOf]:
    documents = texts(metadata, "metadata")
    names = texts(name, "the name of a band")
    return [band_of(text, band) for text, band in zip(documents, names, strict=True)]


# -- values ----------------------------------------------------------------------------------------


def value(
    hiding: Hiding, block: Any, band: Any, point: Any, metadata: Any, name: Any, alpha: Any
) -> Any:
    """``ST_RasterValue(block, band, point, metadata[, name][, alpha])``."""
    lon, lat = coordinates(point)
    cells = whole(block, "block")
    z, x, y = grid.tiles(cells)
    across, down = grid.lonlat_to_xy(lon, lat, z)
    last = 2.0**z - 1
    inside = (np.minimum(np.floor(across), last) == x) & (np.minimum(np.floor(down), last) == y)
    decoded = _Decoded()
    found: list[float | None] = []
    likes = _bands(metadata, name)
    alphas = hiding.blobs(alpha, likes, cells, inside)
    rows = zip(blobs(band, "band"), likes, alphas, inside.tolist(), strict=True)
    for row, (blob, of, hider, here) in enumerate(rows):
        if not here:
            found.append(None)
            continue
        height, width = of.shape
        at_row = min(int((down[row] - y[row]) * height), height - 1)
        at_column = min(int((across[row] - x[row]) * width), width - 1)
        tile = int(z[row]), int(x[row]), int(y[row])
        pixels, seen = decoded(blob, of, hider)
        is_seen = seen if isinstance(seen, bool) else bool(seen[at_row, at_column])
        known = is_seen and of.is_covered(tile, at_column, at_row)
        found.append(_pixel(pixels, of, at_column, at_row) if known else None)
    return found


def _pixel(pixels: Pixels, of: BandOf, column: int, row: int) -> float | None:
    one = pixels[row : row + 1, column : column + 1]
    return float(one[0, 0]) if one.size and of.valid(one)[0, 0] else None


def pixel(band: Any, second: Any, *more: Any) -> Any:
    """``raquet_pixel``: (band, type, x, y, width, compression), or with metadata.

    With metadata: (band, metadata, x, y), and with the number of the band, from 0 on, before x.
    The last argument is the name of the column.
    """
    *rest, name = more
    described = texts(second, "type or metadata")
    data = blobs(band, "band")
    if len(rest) == 4:
        x, y, width = (whole(one, "a number of pixels").tolist() for one in rest[:3])
        kinds = texts(rest[3], "compression")
        likes = [_like(blob, *of) for blob, *of in zip(data, described, width, kinds, strict=True)]
    else:
        likes = _bands(second, name)
        if len(rest) == 3:
            numbers = whole(rest[0], "number of a band").tolist()
            likes = [_numbered(of, n) for of, n in zip(likes, numbers, strict=True)]
        x, y = (whole(one, "a pixel").tolist() for one in rest[-2:])
    found = []
    for blob, of, column, row in zip(data, likes, x, y, strict=True):
        if not (0 <= column < of.shape[1] and 0 <= row < of.shape[0]):
            raise InvalidInputError("no such pixel in a tile", found=(column, row))
        found.append(_pixel(of.pixels(blob), of, column, row))
    return found


def _like(blob: bytes, dtype: str, width: int, compression: str) -> BandOf:
    """A band of unknown height, which its gzip trailer or its length tells."""
    if dtype not in np.sctypeDict:
        raise InvalidInputError("no such type", found=shown(dtype))
    if width < 1:
        raise InvalidInputError("no such width of a tile", found=width)
    size = int.from_bytes(blob[-4:], "little") if compression == "gzip" else len(blob)
    return band_like(dtype, width, max(1, size // (width * np.dtype(dtype).itemsize)), compression)


def _numbered(of: BandOf, number: int) -> BandOf:
    if not 0 <= number < len(of.metadata.bands):
        raise InvalidInputError("no such band", found=number, hint="the first band is number 0")
    return BandOf(of.metadata, number)


def decode_band(band: Any, second: Any, *more: Any) -> Any:
    """``raquet_decode_band``: (band, type, width, height, compression) or (band, metadata)."""
    *rest, name = more
    data = blobs(band, "band")
    if rest:
        width, height = (whole(one, "a size").tolist() for one in rest[:2])
        kinds = texts(rest[2], "compression")
        described = zip(texts(second, "type"), width, height, kinds, strict=True)
        likes: Sequence[BandOf] = [band_like(*one) for one in described]
    else:
        likes = _bands(second, name)
    return _lists(
        (of.pixels(blob), np.ones(of.shape, np.bool_)) for blob, of in zip(data, likes, strict=True)
    )


# -- statistics ------------------------------------------------------------------------------------


def summary(hiding: Hiding, band: Any, metadata: Any, name: Any, nodata: Any, alpha: Any) -> Any:
    """``ST_RasterSummaryStats(band, metadata[, nodata][, alpha])``, of a tile."""
    likes = _bands(metadata, name)
    missing = perhaps_number(nodata, "nodata")
    found = []
    rows = zip(blobs(band, "band"), likes, hiding.blobs(alpha, likes), missing, strict=True)
    for blob, of, hider, number in rows:
        pixels, seen = of.read(blob, hider)
        found.append(of_tile(pixels, of.valid(pixels, number) & seen))
    return _summaries(_stacked(found))


def described_summary(*columns: Any) -> Any:
    """``ST_RasterSummaryStats`` of (band, type, width, height, compression[, nodata])."""
    first, *rest = (flat(column) for column in columns)
    if not is_bytes(first):
        return _passed(first, *rest)
    width, height = (whole(one, "a size").tolist() for one in rest[1:3])
    kinds = texts(rest[3], "compression")
    described = zip(texts(rest[0], "type"), width, height, kinds, strict=True)
    data = blobs(first, "band")
    missing = perhaps_number(rest[4], "nodata") if len(rest) > 4 else [None] * len(data)
    found = []
    for blob, like, number in zip(data, described, missing, strict=True):
        of = band_like(*like)
        pixels = of.pixels(blob)
        found.append(of_tile(pixels, of.valid(pixels, number)))
    return _summaries(_stacked(found))


def _passed(*columns: Any) -> Any:
    """Six columns of tile statistics (0.5.0): count, min, max, sum, mean, stddev."""
    count, low, high, total, mean, deviation = (real(one, "a statistic") for one in columns)
    squares = deviation**2 * count
    return _summaries(Moments(count, total, mean, squares, low, high))


def _summaries(found: Moments) -> Any:
    some = found.count > 0
    columns = {
        "count": pa.array(found.count.astype(np.int64)),
        **{
            name: pa.array(found.column(source), mask=~some)
            for name, source in (
                ("sum", "sum"),
                ("mean", "mean"),
                ("min", "min"),
                ("max", "max"),
                ("stddev", "stddev_sample"),
                ("stddev_pop", "stddev"),
                ("stddev_samp", "stddev_sample"),
            )
        },
    }
    single = found.count < 2
    for name in ("stddev", "stddev_samp"):
        columns[name] = pa.array(found.column("stddev_sample"), mask=single)
    return pa.StructArray.from_arrays(
        [columns[field.name] for field in SUMMARY], fields=list(SUMMARY)
    )


def _stacked(found: Sequence[Moments]) -> Moments:
    whole_of = Moments.empty(len(found))
    for row, one in enumerate(found):
        whole_of.merge(np.array([row]), one)
    return whole_of


def region_part(
    hiding: Hiding,
    band: Any,
    block: Any,
    region: Any,
    metadata: Any,
    name: Any,
    nodata: Any,
    zoom: Any,
    alpha: Any,
) -> Any:
    """What a tile gives to ``ST_RegionStats``; null where it gives nothing."""
    cells, likes, regions = whole(block, "block"), _bands(metadata, name), shapes(region)
    tiles = np.stack(grid.tiles(cells), axis=1).tolist()
    wanted = _constant(zoom, _zoom_wanted)
    known: dict[int, Areas] = {}
    spans: dict[int, Spans] = {}
    zooms: dict[tuple[int, str], int] = {}
    for row, (tile, shape, of) in enumerate(zip(tiles, regions, likes, strict=True)):
        key = id(shape), of.text
        if key not in zooms:
            zooms[key] = _zoom_of(of, shape, wanted)
        if tile[0] == zooms[key]:
            areas = known.setdefault(id(shape), _areas(shape, known.get(id(shape))))
            some = areas.on_tile(tuple(tile), of.shape)
            if len(some):
                spans[row] = some
    needed = np.zeros(len(cells), np.bool_)
    needed[list(spans)] = True
    alphas = hiding.blobs(alpha, likes, cells, needed)
    data, missing = blobs(band, "band"), perhaps_number(nodata, "nodata")
    found: list[dict[str, float] | None] = [None] * len(cells)
    decoded = _Decoded()
    for row, some in spans.items():
        of = likes[row]
        pixels, seen = decoded(data[row], of, alphas[row])
        valid = of.valid(pixels, missing[row], tuple(tiles[row])) & seen
        _, moments = of_spans(pixels, valid, some)
        part = {name: float(getattr(moments, name)[0]) for name in _MOMENTS}
        found[row] = {**part, "block": int(cells[row])}
    return pa.array(found, PARTIAL)


_MOMENTS = tuple(field.name for field in PARTIAL if field.name != "block")


def _constant(column: Any, read: Call) -> Any:
    given = flat(column).drop_null()
    return read(given) if len(given) else None


def _zoom_wanted(column: Any) -> Any:
    if is_text(column):
        word = column[0].as_py()
        if word not in {"min", "max", "auto"}:
            raise InvalidInputError("no such resolution", found=shown(word))
        return word
    return int(whole(column, "resolution")[0])


def _areas(shape: Any, known: Areas | None) -> Areas:
    return Areas.of([shape]) if known is None else known


_TILES_OF_AUTO = 50


def _zoom_of(of: BandOf, shape: Any, wanted: Any) -> int:
    """The zoom whose tiles count: a number is moved into the range that there is."""
    low, high = of.metadata.min_zoom, of.metadata.max_zoom
    if wanted is None or wanted == "max":
        return high
    if wanted == "min":
        return low
    if wanted == "auto":
        west, south, east, north = shape.bounds
        zooms = np.arange(high, low, -1)
        # Columns go on beyond 180 degrees.
        columns = np.floor(np.array([[west], [east]]) / 360 * 2.0**zooms + 2.0**zooms / 2)
        _, rows = grid.lonlat_to_xy(0.0, np.array([[north], [south]]), zooms)
        tiles = (np.diff(columns, axis=0)[0] + 1) * (np.diff(np.floor(rows), axis=0)[0] + 1)
        few = zooms[tiles <= _TILES_OF_AUTO]
        return int(few[0]) if len(few) else low
    return max(low, min(high, int(wanted)))


def region_merge(parts: Any) -> Any:
    """The struct of ``ST_RegionStats`` out of what the tiles gave, in the order of their ids."""
    merged = []
    for parts_of in flat(parts).to_pylist():
        found = Moments.empty(1)
        # Of no rows at all a list is null.
        for part in sorted((one for one in parts_of or () if one is not None), key=_block):
            values = (part[key] for key in ("count", "sum", "mean", "squares", "min", "max"))
            found.merge(np.array([0]), Moments(*(np.array([one]) for one in values)))
        merged.append(found)
    return _summaries(_stacked(merged))


def _block(part: dict[str, Any]) -> int:
    return int(part["block"])


# -- clips -----------------------------------------------------------------------------------------


def clip(
    hiding: Hiding,
    band: Any,
    block: Any,
    geometry: Any,
    metadata: Any,
    name: Any,
    nodata: Any,
    alpha: Any,
) -> Any:
    """``ST_Clip(band, block, geometry, metadata[, nodata][, alpha])``: the values inside."""
    missing = perhaps_number(nodata, "nodata")
    found = []
    for pixels, kept in _clipped(hiding, band, block, geometry, metadata, name, missing, alpha):
        found.append(pixels[kept].astype(np.float64))
    return pa.array(found, VALUES)


def clip_mask(
    hiding: Hiding,
    band: Any,
    block: Any,
    geometry: Any,
    metadata: Any,
    nodata: Any,
    name: Any,
    alpha: Any,
) -> Any:
    """``ST_ClipMask(band, block, geometry, metadata, nodata[, name][, alpha])``."""
    fills = real(nodata, "nodata").tolist()
    found = []
    parts = _clipped(hiding, band, block, geometry, metadata, name, [None] * len(fills), alpha)
    for fill, (pixels, kept) in zip(fills, parts, strict=True):
        found.append(np.where(kept, pixels, fill).astype(np.float64).ravel())
    return pa.array(found, VALUES)


def _clipped(
    hiding: Hiding,
    band: Any,
    block: Any,
    geometry: Any,
    metadata: Any,
    name: Any,
    missing: Sequence[Any],
    alpha: Any,
) -> Iterator[tuple[Pixels, Bools]]:
    """The pixels of each row, and which of them have a value and lie in a geometry."""
    cells, likes = whole(block, "block"), _bands(metadata, name)
    tiles = np.stack(grid.tiles(cells), axis=1).tolist()
    alphas = hiding.blobs(alpha, likes, cells)
    known: dict[int, Areas] = {}
    data = blobs(band, "band")
    rows = zip(tiles, data, shapes(geometry), likes, missing, alphas, strict=True)
    for tile, blob, shape, of, number, hider in rows:
        areas = known.setdefault(id(shape), _areas(shape, known.get(id(shape))))
        inside = areas.on_tile(tuple(tile), of.shape).mask(*of.shape) > 0
        pixels, seen = of.read(blob, hider)
        yield pixels, inside & of.valid(pixels, number, tuple(tile)) & seen


# -- arithmetic ------------------------------------------------------------------------------------


def _both(
    hiding: Hiding,
    one: Any,
    other: Any,
    metadata: Any,
    name: Any,
    other_name: Any,
    alpha: Any,
    missing: Sequence[Any] | None = None,
) -> Iterator[tuple[Any, Any, Bools]]:
    likes, other_likes = _bands(metadata, name), _bands(metadata, other_name)
    rows = zip(
        blobs(one, "band"),
        likes,
        hiding.blobs(alpha, likes),
        blobs(other, "band"),
        other_likes,
        hiding.blobs(alpha, other_likes),
        [None] * len(likes) if missing is None else missing,
        strict=True,
    )
    for blob, of, hider, other_blob, other_of, other_hider, number in rows:
        pixels, seen = of.read(blob, hider)
        other_pixels, other_seen = other_of.read(other_blob, other_hider)
        valid = of.valid(pixels, number) & other_of.valid(other_pixels, number) & seen & other_seen
        yield pixels.astype(np.float64), other_pixels.astype(np.float64), valid


def _operated(operation: str, one: Any, other: Any) -> Any:
    with np.errstate(all="ignore"):
        if operation == "normalized":
            total = one + other
            return np.where(total == 0, 0.0, (one - other) / np.where(total == 0, 1.0, total))
        if operation == "divide":
            return np.where(other == 0, np.nan, one / np.where(other == 0, 1.0, other))
        return {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}[operation](
            one, other
        )


_OPERATIONS = ("add", "subtract", "multiply", "divide")


def band_math(
    hiding: Hiding,
    one: Any,
    other: Any,
    operation: Any,
    metadata: Any,
    name: Any,
    other_name: Any,
    alpha: Any,
) -> Any:
    """``ST_BandMath(b1, b2, operation, metadata)``: a list with null where nothing is valid."""
    words = [word.lower() for word in texts(operation, "operation")]
    for word in words:
        if word not in _OPERATIONS:
            raise InvalidInputError(
                "no such operation", found=shown(word), expected=", ".join(_OPERATIONS)
            )
    found = []
    both = _both(hiding, one, other, metadata, name, other_name, alpha)
    for word, (a, b, valid) in zip(words, both, strict=True):
        result = _operated(word, a, b)
        found.append((result, valid & np.isfinite(result)))
    return _lists(found)


def normalized(hiding: Hiding, *columns: Any) -> Any:
    """``ST_NormalizedDifference(b1, b2, metadata[, nodata][, name1, name2][, alpha])``."""
    return _lists(
        (_operated("normalized", one, other), valid)
        for one, other, valid in _both_without(hiding, *columns)
    )


def normalized_stats(hiding: Hiding, *columns: Any) -> Any:
    """``ST_NormalizedDifferenceStats``, with the arguments of ``ST_NormalizedDifference``."""
    found = [
        of_tile(_operated("normalized", one, other), valid)
        for one, other, valid in _both_without(hiding, *columns)
    ]
    return _summaries(_stacked(found))


def _both_without(hiding: Hiding, *columns: Any) -> Iterator[tuple[Any, Any, Bools]]:
    one, other, metadata, name, other_name, nodata, alpha = columns
    missing = perhaps_number(nodata, "nodata")
    return _both(hiding, one, other, metadata, name, other_name, alpha, missing)


def _lists(parts: Any) -> Any:
    """One list of numbers a tile, row by row, null where a pixel is not valid."""
    values, masks, lengths = [np.empty(0)], [np.empty(0, np.bool_)], [0]
    for pixels, valid in parts:
        values.append(pixels.astype(np.float64).ravel())
        masks.append(~valid.ravel())
        lengths.append(pixels.size)
    flat_values = pa.array(np.concatenate(values), mask=np.concatenate(masks))
    return pa.ListArray.from_arrays(pa.array(np.cumsum(lengths), pa.int32()), flat_values)
