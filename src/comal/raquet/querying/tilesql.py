"""SQL functions of tiles: values, statistics, clips and band arithmetic.

A band argument is the column itself. Which band that is, and so its type and nodata value, is told
by the name of the column, which macros pass on; see `comal.raquet.querying.names`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from comal import grid
from comal.errors import ComalError, InvalidInputError, InvalidMetadataError, shown
from comal.raquet.querying.areas import Areas
from comal.raquet.querying.arguments import (
    blobs,
    flat,
    is_bytes,
    is_text,
    of_valid_rows,
    real,
    shapes,
    texts,
    whole,
)
from comal.raquet.querying.moments import Moments, of_spans, of_tile
from comal.raquet.querying.tilevalues import (
    BandOf,
    Bools,
    Pixels,
    Tile,
    band_like,
    band_of,
    document,
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
DOCUMENT = pa.struct(
    [
        ("compression", pa.string()),
        ("compression_quality", pa.int32()),
        ("band_layout", pa.string()),
        ("block_width", pa.int32()),
        ("block_height", pa.int32()),
        ("min_zoom", pa.int32()),
        ("max_zoom", pa.int32()),
        ("num_bands", pa.int32()),
        ("tile_statistics", pa.bool_()),
    ]
)
VERDICT = pa.struct(
    [
        ("is_valid", pa.bool_()),
        ("errors", pa.list_(pa.string())),
        ("warnings", pa.list_(pa.string())),
        ("num_blocks", pa.int64()),
        ("num_bands", pa.int32()),
        ("zoom_range", pa.string()),
    ]
)
Call = Callable[..., Any]
_KEPT = 64


class _Decoded:
    """Pixels of the blobs of one call, decoded once however often they come."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int], Pixels] = {}

    def __call__(self, blob: bytes, of: BandOf) -> Pixels:
        key = (blob, of.index)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[key] = of.pixels(blob)
        return found


def _bands(metadata: Any, name: Any) -> Iterator[BandOf]:
    documents = texts(metadata, "metadata")
    names = texts(name, "the name of a band")
    return (band_of(text, band) for text, band in zip(documents, names, strict=True))


# -- values ----------------------------------------------------------------------------------------


def value(block: Any, band: Any, point: Any, metadata: Any, name: Any) -> Any:
    """``ST_RasterValue(block, band, point, metadata[, name])``."""
    import shapely  # noqa: PLC0415

    places = shapes(point)
    if (shapely.get_type_id(places) != shapely.GeometryType.POINT).any():
        raise InvalidInputError("no point")
    lon, lat = shapely.get_x(places), shapely.get_y(places)
    z, x, y = grid.tiles(whole(block, "block"))
    across, down = grid.lonlat_to_xy(lon, lat, z)
    last = 2.0**z - 1
    inside = (np.minimum(np.floor(across), last) == x) & (np.minimum(np.floor(down), last) == y)
    decoded = _Decoded()
    found: list[float | None] = []
    rows = zip(blobs(band, "band"), _bands(metadata, name), inside.tolist(), strict=True)
    for row, (blob, of, here) in enumerate(rows):
        if not here:
            found.append(None)
            continue
        height, width = of.shape
        at_row = min(int((down[row] - y[row]) * height), height - 1)
        at_column = min(int((across[row] - x[row]) * width), width - 1)
        tile = int(z[row]), int(x[row]), int(y[row])
        found.append(_pixel(decoded(blob, of), of, at_column, at_row, tile))
    return found


def _pixel(
    pixels: Pixels, of: BandOf, column: int, row: int, tile: Tile | None = None
) -> float | None:
    one = pixels[row : row + 1, column : column + 1]
    known = one.size and of.valid(one)[0, 0] and of.is_covered(tile, column, row)
    return float(one[0, 0]) if known else None


def pixel(band: Any, second: Any, *more: Any) -> Any:
    """``raquet_pixel``: (band, type, x, y, width, compression), or with metadata.

    With metadata: (band, metadata, x, y), and with the number of the band, from 0 on, before x.
    The last argument is the name of the column.
    """
    *rest, name = more
    decoded = _Decoded()
    described = texts(second, "type or metadata")
    data = blobs(band, "band")
    if len(rest) == 4:
        x, y, width = (whole(one, "a number of pixels").tolist() for one in rest[:3])
        kinds = texts(rest[3], "compression")
        likes = [_like(blob, *of) for blob, *of in zip(data, described, width, kinds, strict=True)]
    else:
        likes = list(_bands(second, name))
        if len(rest) == 3:
            numbers = whole(rest[0], "number of a band").tolist()
            likes = [_numbered(of, n) for of, n in zip(likes, numbers, strict=True)]
        x, y = (whole(one, "a pixel").tolist() for one in rest[-2:])
    found = []
    for blob, of, column, row in zip(data, likes, x, y, strict=True):
        if not (0 <= column < of.shape[1] and 0 <= row < of.shape[0]):
            raise InvalidInputError("no such pixel in a tile", found=(column, row))
        found.append(_pixel(decoded(blob, of), of, column, row))
    return found


def _like(blob: bytes, dtype: str, width: int, compression: str) -> BandOf:
    """A band of unknown height, which its gzip trailer or its length tells."""
    if dtype not in np.sctypeDict:
        raise InvalidInputError("no such type", found=shown(dtype))
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
        likes = list(_bands(second, name))
    return _lists(
        (of.pixels(blob), np.ones(of.shape, np.bool_)) for blob, of in zip(data, likes, strict=True)
    )


# -- statistics ------------------------------------------------------------------------------------


def summary(*columns: Any) -> Any:
    """``ST_RasterSummaryStats``: of a tile; see `comal.raquet.querying.names` for its forms."""
    first, *rest = (flat(column) for column in columns)
    if not is_bytes(first):
        return _passed(first, *rest[:5])
    *rest, name = rest
    data = blobs(first, "band")
    nodata: Any = [None] * len(data)
    if len(rest) >= 4:
        width, height = (whole(one, "a size").tolist() for one in rest[1:3])
        kinds = texts(rest[3], "compression")
        described = zip(texts(rest[0], "type"), width, height, kinds, strict=True)
        likes: Sequence[BandOf] = [band_like(*one) for one in described]
    else:
        likes = list(_bands(rest[0], name))
    if len(rest) in {2, 5}:
        nodata = real(rest[-1], "nodata").tolist()
    found = []
    for blob, of, missing in zip(data, likes, nodata, strict=True):
        pixels = of.pixels(blob)
        found.append(of_tile(pixels, of.valid(pixels, missing)))
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
    band: Any, block: Any, region: Any, metadata: Any, nodata: Any, zoom: Any, name: Any
) -> Any:
    """What a tile gives to ``ST_RegionStats``; null where it gives nothing."""
    needed = (band, block, region, metadata, name)

    def call(band: Any, block: Any, region: Any, metadata: Any, name: Any, *_: Any) -> Any:
        return _region_parts(band, block, region, metadata, name, missing, wanted)

    # Nodata and zoom may be null, and are one for all rows of a call.
    missing = _constant(nodata, lambda column: float(real(column, "nodata")[0]))
    wanted = _constant(zoom, _zoom_wanted)
    return of_valid_rows(needed, call, PARTIAL)


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


def _region_parts(
    band: Any, block: Any, region: Any, metadata: Any, name: Any, nodata: Any, zoom: Any
) -> Any:
    cells = whole(block, "block")
    tiles = np.stack(grid.tiles(cells), axis=1).tolist()
    known: dict[int, Areas] = {}
    found: list[dict[str, float] | None] = []
    decoded = _Decoded()
    rows = zip(tiles, blobs(band, "band"), shapes(region), _bands(metadata, name), strict=True)
    for row, (tile, blob, shape, of) in enumerate(rows):
        found.append(None)
        if tile[0] != _zoom_of(of, shape, zoom):
            continue
        areas = known.setdefault(id(shape), _areas(shape, known.get(id(shape))))
        spans = areas.on_tile(tuple(tile), of.shape)
        if not len(spans):
            continue
        pixels = decoded(blob, of)
        _, moments = of_spans(pixels, of.valid(pixels, nodata, tuple(tile)), spans)
        part = {field.name: 0.0 for field in PARTIAL}
        for field in PARTIAL:
            if field.name != "block":
                part[field.name] = float(getattr(moments, field.name)[0])
        found[-1] = {**part, "block": int(cells[row])}
    return pa.array(found, PARTIAL)


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
        for zoom in range(high, low, -1):
            x, y = grid.lonlat_to_xy([west, east], [north, south], zoom)
            if (abs(np.diff(np.floor(x))[0]) + 1) * (np.diff(np.floor(y))[0] + 1) <= _TILES_OF_AUTO:
                return zoom
        return low
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


def clip(band: Any, block: Any, geometry: Any, metadata: Any, *rest: Any) -> Any:
    """``ST_Clip(band, block, geometry, metadata[, nodata])``: the values inside."""
    *more, name = rest
    nodata = real(more[0], "nodata").tolist() if more else None
    found = []
    parts = _clipped(band, block, geometry, metadata, name)
    for row, (of, pixels, inside) in enumerate(parts):
        kept = inside & of.valid(pixels, None if nodata is None else nodata[row])
        found.append(pixels[kept].astype(np.float64))
    return pa.array(found, VALUES)


def clip_mask(band: Any, block: Any, geometry: Any, metadata: Any, nodata: Any, name: Any) -> Any:
    """``ST_ClipMask(band, block, geometry, metadata, nodata)``: outside is nodata."""
    fills = real(nodata, "nodata").tolist()
    found = []
    parts = _clipped(band, block, geometry, metadata, name)
    for fill, (of, pixels, inside) in zip(fills, parts, strict=True):
        kept = inside & of.valid(pixels)
        found.append(np.where(kept, pixels, fill).astype(np.float64).ravel())
    return pa.array(found, VALUES)


def _clipped(
    band: Any, block: Any, geometry: Any, metadata: Any, name: Any
) -> Iterator[tuple[BandOf, Pixels, Bools]]:
    tiles = np.stack(grid.tiles(whole(block, "block")), axis=1).tolist()
    known: dict[int, Areas] = {}
    rows = zip(tiles, blobs(band, "band"), shapes(geometry), _bands(metadata, name), strict=True)
    for tile, blob, shape, of in rows:
        areas = known.setdefault(id(shape), _areas(shape, known.get(id(shape))))
        inside = areas.on_tile(tuple(tile), of.shape).mask(*of.shape) > 0
        yield of, of.pixels(blob), inside & of.covered(tuple(tile))


# -- arithmetic ------------------------------------------------------------------------------------


def _both(
    one: Any, other: Any, metadata: Any, name: Any, other_name: Any, *, missing: float | None
) -> Iterator[tuple[Any, Any, Bools]]:
    rows = zip(
        blobs(one, "band"),
        _bands(metadata, name),
        blobs(other, "band"),
        _bands(metadata, other_name),
        strict=True,
    )
    for blob, of, other_blob, other_of in rows:
        pixels, other_pixels = of.pixels(blob), other_of.pixels(other_blob)
        valid = of.valid(pixels, missing) & other_of.valid(other_pixels, missing)
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
    one: Any, other: Any, operation: Any, metadata: Any, name: Any, other_name: Any
) -> Any:
    """``ST_BandMath(b1, b2, operation, metadata)``: a list with null where nothing is valid."""
    words = [word.lower() for word in texts(operation, "operation")]
    for word in words:
        if word not in _OPERATIONS:
            raise InvalidInputError(
                "no such operation", found=shown(word), expected=", ".join(_OPERATIONS)
            )
    found = []
    both = _both(one, other, metadata, name, other_name, missing=None)
    for word, (a, b, valid) in zip(words, both, strict=True):
        result = _operated(word, a, b)
        found.append((result, valid & np.isfinite(result)))
    return _lists(found)


def normalized(*columns: Any) -> Any:
    """``ST_NormalizedDifference(b1, b2, metadata[, nodata])``."""
    return _normalized(
        columns,
        VALUES,
        lambda both: _lists((_operated("normalized", a, b), valid) for a, b, valid in both),
    )


def normalized_stats(*columns: Any) -> Any:
    """``ST_NormalizedDifferenceStats(b1, b2, metadata[, nodata])``."""
    return _normalized(
        columns,
        SUMMARY,
        lambda both: _summaries(
            _stacked([of_tile(_operated("normalized", a, b), valid) for a, b, valid in both])
        ),
    )


def _normalized(columns: Sequence[Any], kind: Any, result: Call) -> Any:
    one, other, metadata, nodata, name, other_name = columns
    missing = _constant(nodata, lambda column: float(real(column, "nodata")[0]))
    return of_valid_rows(
        (one, other, metadata, name, other_name),
        lambda *given: result(_both(*given[:5], missing=missing)),
        kind,
    )


def _lists(parts: Any) -> Any:
    """One list of numbers a tile, row by row, null where a pixel is not valid."""
    values, masks, lengths = [np.empty(0)], [np.empty(0, np.bool_)], [0]
    for pixels, valid in parts:
        values.append(pixels.astype(np.float64).ravel())
        masks.append(~valid.ravel())
        lengths.append(pixels.size)
    flat_values = pa.array(np.concatenate(values), mask=np.concatenate(masks))
    return pa.ListArray.from_arrays(pa.array(np.cumsum(lengths), pa.int32()), flat_values)


# -- documents -------------------------------------------------------------------------------------


def band_number(metadata: Any, name: Any) -> Any:
    """``ST_Band(metadata, name)``: its number, from 0 on; null when there is none."""
    found = []
    for text, band in zip(texts(metadata, "metadata"), texts(name, "name"), strict=True):
        names = document(text).band_names
        found.append(names.index(band) if band in names else None)
    return found


def parsed(metadata: Any) -> Any:
    """``raquet_parse_metadata(json)``."""
    return [
        {
            "compression": one.compression or "none",
            "compression_quality": one.quality,
            "band_layout": one.layout,
            "block_width": one.block_width,
            "block_height": one.block_height,
            "min_zoom": one.min_zoom,
            "max_zoom": one.max_zoom,
            "num_bands": len(one.bands),
            "tile_statistics": bool(one.tile_statistics),
        }
        for one in map(document, texts(metadata, "metadata"))
    ]


def validated(metadata: Any) -> Any:
    """``raquet_validate_metadata(json)``."""
    return [_verdict(text) for text in texts(metadata, "metadata")]


def _verdict(text: str) -> dict[str, Any]:
    try:
        one = document(text)
    except ComalError as error:
        problems = error.problems if isinstance(error, InvalidMetadataError) else ()
        errors = [f"{p.place}: {p.message}" for p in problems if p.severity == "error"]
        return {"is_valid": False, "errors": errors or [error.what], "warnings": []}
    warnings = [f"{problem.place}: {problem.message}" for problem in one.problems]
    return {
        "is_valid": True,
        "errors": [],
        "warnings": warnings,
        "num_blocks": one.num_blocks,
        "num_bands": len(one.bands),
        "zoom_range": f"{one.min_zoom}-{one.max_zoom}",
    }
