"""SQL functions of tiles, of pairs of bands, and of the document.

A band argument is the column itself. Macros pass on the name of the column, which identifies the
band with its type and nodata value. Macros also do what Python functions cannot: optional
arguments, overloads, and the aggregate ``ST_RegionStats``, which collects a list with an entry per
tile and merges it. Macros contain no text from files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import grid
from comal.errors import InvalidInputError, shown
from comal.geo.scanline import Spans
from comal.parallel import cached_property
from comal.query import Function
from comal.query.columns import (
    blobs,
    coordinates,
    is_bytes,
    is_text,
    perhaps_number,
    real,
    shapes,
    sql_type,
    texts,
    vectorised,
    whole,
)
from comal.raquet.blobs import decode
from comal.raquet.reading.coverage import Coverage, coverages
from comal.raquet.reading.pixels import alpha_of
from comal.raquet.spec import Band, Metadata, Number
from comal.raquet.wire import parse_metadata
from comal.raster.areas import Areas
from comal.raster.areastatistics import Moments, of_spans, of_tile
from comal.raster.values import as_array, valid_mask
from comal.table.columns import one_array

Pixels = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Tile = tuple[int, int, int]
"""Zoom, column from the west, row from the north."""

ALL_HIDDEN = b""
"""Replaces the blob of a NULL tile of an alpha band, which reads as all 0."""
FROM_ALIAS = "?"
"""Prefix of a band name that was not given but taken from the column; it may be anything."""


@lru_cache(maxsize=64)
def document(text: str) -> Metadata:
    """The metadata of a row, parsed once for all rows with the same text."""
    return parse_metadata(text, "metadata")


@dataclass(frozen=True, slots=True)
class SqlBand:
    """One band of a document, which reads its blobs."""

    metadata: Metadata
    index: int
    cover: Coverage | None = None
    """The area that the source of the band covers, if nodata does not mark padding."""
    source: Coverage | None = None
    """The area that the source covers, whether or not nodata marks padding."""
    text: str = ""
    """The document."""

    @property
    def band(self) -> Band:
        """The band in the metadata."""
        return self.metadata.bands[self.index]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return self.metadata.block_height, self.metadata.block_width

    @property
    def _alpha(self) -> SqlBand | None:
        at = alpha_of(self.metadata.bands)
        return None if at is None or at == self.index else replace(self, index=at)

    def pixels(self, blob: bytes) -> Pixels:
        """The band in a blob, shape (rows, columns)."""
        found = self._decoded(blob)
        return found[self.index] if self.metadata.interleaved else found

    def _decoded(self, blob: bytes) -> Pixels:
        dtype, shape = self.metadata.stored_in(self.band.name)
        return decode(blob, self.metadata.compression, dtype, shape)

    def read(self, blob: bytes, alpha: bytes | None) -> tuple[Pixels, Any]:
        """The band in a blob, and which pixels its alpha band does not mask.

        `alpha` is the blob of the alpha band; if it is needed but None, an `InvalidInputError` is
        raised.
        """
        of_alpha = self._alpha
        if of_alpha is None:
            return self.pixels(blob), True
        if self.metadata.interleaved:
            together = self._decoded(blob)
            return together[self.index], together[of_alpha.index] != 0
        if alpha is None:
            name = of_alpha.band.name
            plain = name.isascii() and name.isidentifier()
            raise InvalidInputError(
                "another band hides pixels of this band, and is not passed",
                found=shown(self.band.name),
                expected=f"the alpha band {shown(name)}",
                hint=f"pass its column: alpha := {name if plain else '...'}",
            )
        return self.pixels(blob), False if alpha == ALL_HIDDEN else of_alpha.pixels(alpha) != 0

    def valid(
        self, pixels: Pixels, nodata: Number | None = None, tile: Tile | None = None
    ) -> Bools:
        """Which pixels have a value, apart from alpha; `nodata` replaces the band's own value.

        If `tile` is given, padding has no value either. A nodata value other than the declared one
        does not mark padding.
        """
        hole, cover = (self.band.nodata, self.cover) if nodata is None else (nodata, self.source)
        covered = None
        if tile is not None and cover is not None:
            covered = _covered(cover, *tile, self.shape)
        return as_array(valid_mask(pixels, hole, covered), pixels.shape)


@lru_cache(maxsize=64)
def _covered(cover: Coverage, z: int, x: int, y: int, shape: tuple[int, int]) -> Bools | None:
    return cover.tile(z, x, y, shape)


@lru_cache(maxsize=256)
def band_of(text: str, name: str) -> SqlBand:
    """The band called `name` of the document `text`.

    The name of a column (see `FROM_ALIAS`) that is not a band is accepted if all bands have the
    same type and nodata value, and for interleaved tiles, where it means the first band.

    Raises
    ------
    InvalidInputError
        There is no such band, or bands differ and the name does not identify one.
    """
    metadata = document(text)
    guessed, plain = name.startswith(FROM_ALIAS), name.removeprefix(FROM_ALIAS)
    known = plain in metadata.band_names
    # As text, since NaN does not equal NaN.
    kinds = {(band.dtype, str(band.nodata)) for band in metadata.bands}
    if known or (guessed and (metadata.interleaved or len(kinds) == 1)):
        # Else the first band that is not the alpha band.
        index = metadata.band_index(plain) if known else int(alpha_of(metadata.bands) == 0)
        every = coverages([metadata]), coverages([metadata], declared=False)
        # If it may be any band, its coverage is only known if all bands have the same.
        cover, source = (one[index] if known or len(set(one)) == 1 else None for one in every)
        return SqlBand(metadata, index, cover, source, text)
    raise InvalidInputError(
        "it is not clear which band is meant" if guessed else "no such band",
        found=shown(plain),
        expected=", ".join(shown(band) for band in metadata.band_names[:20]),
        hint="give the name of the band as the last argument" if guessed else None,
    )


def alpha_blobs(given: Any) -> list[bytes | None]:
    """The blobs of the argument ``alpha``; `ALL_HIDDEN` for a NULL tile.

    None for all rows if a query leaves it out: the argument is then an untyped NULL.
    """
    if is_bytes(given):
        return [ALL_HIDDEN if blob is None else blob for blob in given.to_pylist()]
    if given.null_count < len(given):
        raise InvalidInputError("alpha is not a blob", found=str(given.type))
    return [None] * len(given)


# -- functions of tiles ----------------------------------------------------------------------------

DOUBLES = pa.list_(pa.float64())
_MOMENTS = ("count", "sum", "mean", "squares", "min", "max")
PARTIAL = pa.struct([("block", pa.uint64()), *((name, pa.float64()) for name in _MOMENTS)])
_SUMMARY_OF = {
    "sum": "sum",
    "mean": "mean",
    "min": "min",
    "max": "max",
    "stddev": "stddev_sample",
    "stddev_pop": "stddev",
    "stddev_samp": "stddev_sample",
}
"""Fields of a summary, and their names in `Moments`."""
SUMMARY = pa.struct([("count", pa.int64()), *((name, pa.float64()) for name in _SUMMARY_OF)])
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
_KEPT = 64
"""Decoded tiles that one call of a function caches."""
_TILES_OF_AUTO = 50


class _Tile(NamedTuple):
    """The tile of one row."""

    of: SqlBand
    pixels: Pixels
    valid: Bools
    """Which pixels have a value."""


class _Rows:
    """The rows of one call: its columns by name of the argument, parsed on first use."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = columns
        self._areas: dict[int, Areas] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    @cached_property
    def cells(self) -> Ints:
        """Ids of the tiles."""
        return np.asarray(whole(self["block"], "block"))

    @cached_property
    def places(self) -> list[Tile]:
        """Zoom, column and row of the tiles."""
        return [(z, x, y) for z, x, y in np.stack(grid.tiles(self.cells), axis=1).tolist()]

    def blobs(self, band: str = "band") -> list[bytes]:
        """The blobs of a band."""
        return blobs(self[band], "band")

    def bands(self, name: str = "name") -> list[SqlBand]:
        """The band of each row, by the argument that names it."""
        documents = texts(self["metadata"], "metadata")
        names = texts(self[name], "the name of a band")
        return [band_of(text, band) for text, band in zip(documents, names, strict=True)]

    def tiles(
        self,
        band: str = "band",
        name: str = "name",
        *,
        declared: bool = False,
        needed: Bools | None = None,
    ) -> Iterator[_Tile | None]:
        """The tile of each row, or None where it is not `needed`; repeated tiles are cached.

        An argument ``nodata`` replaces the declared value, except with `declared`.
        """
        bands, data = self.bands(name), self.blobs(band)
        given = not declared and "nodata" in self
        numbers = perhaps_number(self["nodata"], "nodata") if given else [None] * len(bands)
        hiders = alpha_blobs(self["alpha"])
        places = self.places if "block" in self else [None] * len(bands)
        known: dict[Any, _Tile] = {}
        rows = zip(data, bands, numbers, hiders, places, strict=True)
        for row, (blob, of, number, hider, place) in enumerate(rows):
            if needed is not None and not needed[row]:
                yield None
                continue
            key = (blob, id(of), number, hider, place)
            found = known.get(key)
            if found is None:
                if len(known) >= _KEPT:
                    known.clear()
                pixels, seen = of.read(blob, hider)
                found = known[key] = _Tile(of, pixels, of.valid(pixels, number, place) & seen)
            yield found

    def spans(self, row: int, shape: Any, of: SqlBand) -> Spans:
        """The pixels of a region on the tile of a row; each region is prepared once."""
        if id(shape) not in self._areas:
            self._areas[id(shape)] = Areas.of([shape])
        return self._areas[id(shape)].on_tile(self.places[row], of.shape)


# -- values ----------------------------------------------------------------------------------------


def value(rows: _Rows) -> Any:
    """``ST_RasterValue``: the pixel that contains a point, null outside of the tile."""
    lon, lat = coordinates(rows["point"])
    z, x, y = grid.tiles(rows.cells)
    across, down = grid.lonlat_to_xy(lon, lat, z)
    last = 2.0**z - 1
    inside = (np.minimum(np.floor(across), last) == x) & (np.minimum(np.floor(down), last) == y)
    found: list[float | None] = []
    for row, tile in enumerate(rows.tiles(needed=inside)):
        if tile is None:
            found.append(None)
            continue
        height, width = tile.of.shape
        at_row = min(int((down[row] - y[row]) * height), height - 1)
        at_column = min(int((across[row] - x[row]) * width), width - 1)
        is_valid = tile.valid[at_row, at_column]
        found.append(float(tile.pixels[at_row, at_column]) if is_valid else None)
    return found


def pixel(rows: _Rows) -> Any:
    """``raquet_pixel``, also by number of the band, from 0."""
    bands = rows.bands()
    if "n" in rows:
        numbers = whole(rows["n"], "the number of a band").tolist()
        bands = [_numbered(of, number) for of, number in zip(bands, numbers, strict=True)]
    found = []
    columns, places = (whole(rows[axis], "the column or row of a pixel").tolist() for axis in "xy")
    for blob, of, column, row in zip(rows.blobs(), bands, columns, places, strict=True):
        if not (0 <= column < of.shape[1] and 0 <= row < of.shape[0]):
            raise InvalidInputError("no such pixel in the tile", found=(column, row))
        one = of.pixels(blob)[row : row + 1, column : column + 1]
        found.append(float(one[0, 0]) if of.valid(one)[0, 0] else None)
    return found


def _numbered(of: SqlBand, number: int) -> SqlBand:
    if not 0 <= number < len(of.metadata.bands):
        raise InvalidInputError("no such band", found=number, hint="the first band is number 0")
    return SqlBand(of.metadata, number)


def decode_band(rows: _Rows) -> Any:
    """``raquet_decode_band``: all pixels of a blob."""
    pairs = zip(rows.blobs(), rows.bands(), strict=True)
    return _lists((of.pixels(blob), np.ones(of.shape, np.bool_)) for blob, of in pairs)


# -- statistics ------------------------------------------------------------------------------------


def summary(rows: _Rows) -> Any:
    """``ST_RasterSummaryStats``, of a tile."""
    return _summaries([of_tile(tile.pixels, tile.valid) for tile in rows.tiles() if tile])


def _summaries(parts: Sequence[Moments]) -> Any:
    found = Moments.stacked(parts)
    columns = [pa.array(found.count.astype(np.int64))]
    for source in _SUMMARY_OF.values():
        least = 2 if source == "stddev_sample" else 1
        columns.append(pa.array(found.column(source), mask=found.count < least))
    return pa.StructArray.from_arrays(columns, fields=list(SUMMARY))


def region_part(rows: _Rows) -> Any:
    """The contribution of a tile to ``ST_RegionStats``; null if there is none."""
    spans = _spans_of_regions(rows)
    needed = np.zeros(len(rows.cells), np.bool_)
    needed[list(spans)] = True
    found: list[dict[str, float] | None] = [None] * len(needed)
    for row, tile in enumerate(rows.tiles(needed=needed)):
        if tile is not None:
            _, moments = of_spans(tile.pixels, tile.valid, spans[row])
            part = {name: float(getattr(moments, name)[0]) for name in _MOMENTS}
            found[row] = {**part, "block": int(rows.cells[row])}
    return pa.array(found, PARTIAL)


def _spans_of_regions(rows: _Rows) -> dict[int, Spans]:
    """The pixels of the region by row, for tiles of the zoom that is used for the region."""
    places, bands, regions = rows.places, rows.bands(), shapes(rows["region"])
    wanted = _zoom_wanted(rows["resolution"])
    zooms: dict[tuple[int, str], int] = {}
    spans: dict[int, Spans] = {}
    for row, (place, shape, of) in enumerate(zip(places, regions, bands, strict=True)):
        key = id(shape), of.text
        if key not in zooms:
            zooms[key] = _zoom_of(of, shape, wanted)
        if place[0] == zooms[key]:
            some = rows.spans(row, shape, of)
            if len(some):
                spans[row] = some
    return spans


def _zoom_wanted(column: Any) -> Any:
    given = one_array(column).drop_null()
    if not len(given):
        return "max"
    if not is_text(given):
        return int(whole(given, "resolution")[0])
    word = given[0].as_py()
    if word not in {"min", "max", "auto"}:
        raise InvalidInputError("no such resolution", found=shown(word))
    return word


def _zoom_of(of: SqlBand, shape: Any, wanted: Any) -> int:
    """The zoom whose tiles are used; a number is clamped to the zooms of the file."""
    low, high = of.metadata.min_zoom, of.metadata.max_zoom
    if wanted in {"min", "max"}:
        return low if wanted == "min" else high
    if wanted == "auto":
        west, south, east, north = shape.bounds
        zooms = np.arange(high, low, -1)
        # Columns continue beyond 180 degrees.
        columns = np.floor(np.array([[west], [east]]) / 360 * 2.0**zooms + 2.0**zooms / 2)
        _, rows = grid.lonlat_to_xy(0.0, np.array([[north], [south]]), zooms)
        tiles = (np.diff(columns, axis=0)[0] + 1) * (np.diff(np.floor(rows), axis=0)[0] + 1)
        few = zooms[tiles <= _TILES_OF_AUTO]
        return int(few[0]) if len(few) else low
    return max(low, min(high, int(wanted)))


def region_merge(parts: Any) -> Any:
    """The struct of ``ST_RegionStats``, merged from tiles in the order of their ids."""
    merged = []
    for parts_of in one_array(parts).to_pylist():
        found = Moments.empty(1)
        # Without any rows the list is null.
        given = [part for part in parts_of or () if part is not None]
        for part in sorted(given, key=lambda part: int(part["block"])):
            values = (np.array([part[name]]) for name in _MOMENTS)
            found.merge(np.array([0]), Moments(*values))
        merged.append(found)
    return _summaries(merged)


# -- clips -----------------------------------------------------------------------------------------


def clip(rows: _Rows) -> Any:
    """``ST_Clip``: the valid pixels of a tile within a geometry."""
    parts = _clipped(rows, rows.tiles())
    return pa.array([pixels[kept].astype(np.float64) for pixels, kept in parts], DOUBLES)


def clip_mask(rows: _Rows) -> Any:
    """``ST_ClipMask``: the pixels of a tile, with `nodata` outside of a geometry."""
    fills = real(rows["nodata"], "nodata").tolist()
    parts = _clipped(rows, rows.tiles(declared=True))
    found = [
        np.where(kept, pixels, fill).astype(np.float64).ravel()
        for fill, (pixels, kept) in zip(fills, parts, strict=True)
    ]
    return pa.array(found, DOUBLES)


def _clipped(rows: _Rows, tiles: Iterator[_Tile | None]) -> Iterator[tuple[Pixels, Bools]]:
    """The pixels of each row, and which of them have a value and are within the geometry."""
    for row, (shape, tile) in enumerate(zip(shapes(rows["geometry"]), tiles, strict=True)):
        if tile is not None:
            spans = rows.spans(row, shape, tile.of)
            yield tile.pixels, tile.valid & (spans.mask(*tile.of.shape) > 0)


# -- arithmetic ------------------------------------------------------------------------------------


def band_math(rows: _Rows) -> Any:
    """``ST_BandMath``: a list with null for pixels without a valid result."""
    words = [word.lower() for word in texts(rows["op"], "operation")]
    for word in words:
        if word not in _OPERATIONS:
            raise InvalidInputError(
                "no such operation", found=shown(word), expected=", ".join(_OPERATIONS)
            )
    found = []
    for word, (a, b, valid) in zip(words, _pairs(rows), strict=True):
        with np.errstate(all="ignore"):
            result = _OPERATIONS[word](a, b)
        found.append((result, valid & np.isfinite(result)))
    return _lists(found)


def normalized(rows: _Rows) -> Any:
    """``ST_NormalizedDifference``, null if one of the bands has no value."""
    return _lists(_normalized(rows))


def normalized_stats(rows: _Rows) -> Any:
    """``ST_NormalizedDifferenceStats``, with the arguments of ``ST_NormalizedDifference``."""
    return _summaries([of_tile(*part) for part in _normalized(rows)])


def _normalized(rows: _Rows) -> Iterator[tuple[Any, Bools]]:
    for one, other, valid in _pairs(rows):
        total = one + other
        with np.errstate(all="ignore"):
            found = (one - other) / np.where(total == 0, 1.0, total)
        yield np.where(total == 0, 0.0, found), valid


def _pairs(rows: _Rows) -> Iterator[tuple[Any, Any, Bools]]:
    """The pixels of two bands of each row as floats, and where both have a value."""
    first, second = rows.tiles("b1", "name1"), rows.tiles("b2", "name2")
    for a, b in zip(first, second, strict=True):
        if a is not None and b is not None:
            yield a.pixels.astype(np.float64), b.pixels.astype(np.float64), a.valid & b.valid


def _divided(one: Any, other: Any) -> Any:
    return np.where(other == 0, np.nan, one / np.where(other == 0, 1.0, other))


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divided,
}


def _lists(parts: Any) -> Any:
    """One list of numbers per tile, row by row, with null for invalid pixels."""
    values, masks, lengths = [np.empty(0)], [np.empty(0, np.bool_)], [0]
    for pixels, valid in parts:
        values.append(pixels.astype(np.float64).ravel())
        masks.append(~valid.ravel())
        lengths.append(pixels.size)
    flat_values = pa.array(np.concatenate(values), mask=np.concatenate(masks))
    return pa.ListArray.from_arrays(pa.array(np.cumsum(lengths), pa.int32()), flat_values)


# -- the document ----------------------------------------------------------------------------------


def band_number(metadata: Any, name: Any) -> Any:
    """``ST_Band(metadata, name)``: the number of the band, from 0; null if there is none."""
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


# -- names and forms -------------------------------------------------------------------------------


class _SqlFunction(NamedTuple):
    """A function: its SQL name, its forms, the Python function, and the type of its result."""

    name: str
    forms: tuple[str, ...]
    """Arguments; those with ``?`` are optional, and band names default to those of columns.

    The Python function gets required arguments first, then band names, then optional arguments.
    """
    call: Callable[[_Rows], Any]
    kind: Any
    body: str = "{}"
    """SQL template that wraps the call in the macro."""

    @property
    def inner(self) -> str:
        """Name of the function that macros call."""
        return f"comal_{self.name.lower()}"

    def macro(self) -> str:
        """The macro with all forms, which differ in the number of arguments."""
        made = []
        for form in self.forms:
            given, passed = form.replace("?", " := NULL"), ", ".join(_passed(form).values())
            made.append(f"({given}) AS {self.body.format(f'{self.inner}({passed})')}")
        return f"CREATE MACRO {self.name}" + ", ".join(made)

    def function(self) -> Function:
        """The function that macros call."""
        forms = [list(_passed(form)) for form in self.forms]
        named = {len(form): form for form in forms}
        optional = [name for name in _optional(self.forms[0]) if name not in _NAMES]

        def call(*columns: Any) -> Any:
            return self.call(_Rows(dict(zip(named[len(columns)], columns, strict=True))))

        return Function(vectorised(call, self.kind, len(optional)), None, sql_type(self.kind))


_NAMES = {"name": "band", "name1": "b1", "name2": "b2"}
"""Arguments that name a band, and the column whose name is their default."""


def _optional(form: str) -> list[str]:
    return [one.removesuffix("?") for one in form.split(", ") if one.endswith("?")]


def _passed(form: str) -> dict[str, str]:
    """SQL of the arguments that a macro of this form passes on, by name."""
    optional = _optional(form)
    passed = {one: one for one in form.split(", ") if not one.endswith("?")}
    for name, column in _NAMES.items():
        if column in passed:
            given = name if name in optional else "NULL"
            passed[name] = f"coalesce({given}, '{FROM_ALIAS}' || alias({column}))"
    return {**passed, **{name: name for name in optional if name not in _NAMES}}


_BOTH = "b1, b2, metadata, nodata?, name1?, name2?, alpha?"
_OF_PIXEL = ("band, metadata, x, y", "band, metadata, n, x, y")
_REGION = "band, block, region, metadata, nodata?, resolution?, name?, alpha?"
_MERGED = "comal_region_merge(list({}))"
_TILES = (
    _SqlFunction(
        "ST_RasterValue", ("block, band, point, metadata, name?, alpha?",), value, pa.float64()
    ),
    _SqlFunction("ST_RasterSummaryStats", ("band, metadata, nodata?, alpha?",), summary, SUMMARY),
    _SqlFunction("ST_RegionStats", (_REGION,), region_part, PARTIAL, _MERGED),
    _SqlFunction("ST_Clip", ("band, block, geometry, metadata, nodata?, alpha?",), clip, DOUBLES),
    _SqlFunction(
        "ST_ClipMask",
        ("band, block, geometry, metadata, nodata, name?, alpha?",),
        clip_mask,
        DOUBLES,
    ),
    _SqlFunction("ST_NormalizedDifference", (_BOTH,), normalized, DOUBLES),
    _SqlFunction("ST_NormalizedDifferenceStats", (_BOTH,), normalized_stats, SUMMARY),
    _SqlFunction(
        "ST_BandMath", ("b1, b2, op, metadata, name1?, name2?, alpha?",), band_math, DOUBLES
    ),
    _SqlFunction("raquet_pixel", _OF_PIXEL, pixel, pa.float64()),
    _SqlFunction("raquet_pixel_interleaved", _OF_PIXEL[1:], pixel, pa.float64()),
    _SqlFunction("raquet_decode_band", ("band, metadata, name?",), decode_band, DOUBLES),
)
_DOCUMENTS: dict[str, tuple[Callable[..., Any], Any]] = {
    "st_band": (band_number, pa.int32()),
    "raquet_parse_metadata": (parsed, DOCUMENT),
}


def functions() -> dict[str, Function | str]:
    """Functions, and the macros that call the ``comal_`` ones, by lower-case name."""
    found: dict[str, Function | str] = {}
    for function in _TILES:
        found |= {function.inner: function.function(), function.name.lower(): function.macro()}
    for name, (call, kind) in _DOCUMENTS.items():
        found[name] = Function(vectorised(call, kind), None, sql_type(kind))
    found["comal_region_merge"] = Function(region_merge, None, sql_type(SUMMARY))
    return found
