"""The functions of SQL: their names, and the macros that bring them into the forms people know.

What a function of Python cannot be is made by macros: forms with other arguments, the name of the
column that is passed (from which the band is known), and the aggregate ``ST_RegionStats``, which
is a list of what each tile gives and a function that merges it. Nothing here comes from a file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from comal.query import Function
from comal.query.columns import vectorised
from comal.raquet.querying import documentsql, tilesql
from comal.raquet.querying.tilevalues import Hiding

_SUMMARY = (
    "STRUCT(count BIGINT, sum DOUBLE, mean DOUBLE, min DOUBLE, max DOUBLE, stddev DOUBLE,"
    " stddev_pop DOUBLE, stddev_samp DOUBLE)"
)
_PARTIAL = (
    "STRUCT(block UBIGINT, count DOUBLE, sum DOUBLE, mean DOUBLE, squares DOUBLE, min DOUBLE,"
    " max DOUBLE)"
)
_DOCUMENT = (
    "STRUCT(compression VARCHAR, compression_quality INTEGER, band_layout VARCHAR,"
    " block_width INTEGER, block_height INTEGER, min_zoom INTEGER, max_zoom INTEGER,"
    " num_bands INTEGER, tile_statistics BOOLEAN)"
)
_VERDICT = (
    "STRUCT(is_valid BOOLEAN, errors VARCHAR[], warnings VARCHAR[], num_blocks BIGINT,"
    " num_bands INTEGER, zoom_range VARCHAR)"
)
_PLAIN: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "comal_pixel": (tilesql.pixel, pa.float64(), "DOUBLE"),
    "comal_decode": (tilesql.decode_band, tilesql.VALUES, "DOUBLE[]"),
    "comal_described_summary": (tilesql.described_summary, tilesql.SUMMARY, _SUMMARY),
    "st_band": (documentsql.band_number, pa.int32(), "INTEGER"),
    "raquet_parse_metadata": (documentsql.parsed, documentsql.DOCUMENT, _DOCUMENT),
    "raquet_validate_metadata": (documentsql.validated, documentsql.VERDICT, _VERDICT),
}
_HIDDEN: dict[str, tuple[Callable[..., Any], Any, str, int]] = {
    # Functions that leave out what alpha hides, and how many of their last arguments may be null.
    "comal_value": (tilesql.value, pa.float64(), "DOUBLE", 1),
    "comal_summary": (tilesql.summary, tilesql.SUMMARY, _SUMMARY, 2),
    "comal_region_part": (tilesql.region_part, tilesql.PARTIAL, _PARTIAL, 3),
    "comal_clip": (tilesql.clip, tilesql.VALUES, "DOUBLE[]", 2),
    "comal_clip_mask": (tilesql.clip_mask, tilesql.VALUES, "DOUBLE[]", 1),
    "comal_band_math": (tilesql.band_math, tilesql.VALUES, "DOUBLE[]", 1),
    "comal_normalized": (tilesql.normalized, tilesql.VALUES, "DOUBLE[]", 2),
    "comal_normalized_stats": (tilesql.normalized_stats, tilesql.SUMMARY, _SUMMARY, 2),
}


def functions(hiding: Hiding) -> dict[str, Function]:
    """Functions by the name under which DuckDB has them; those of ``comal_`` are for macros."""
    found = {
        name: Function(vectorised(call, kind), None, returns)
        for name, (call, kind, returns) in _PLAIN.items()
    }
    for name, (call, kind, returns, optional) in _HIDDEN.items():
        found[name] = Function(vectorised(partial(call, hiding), kind, optional), None, returns)
    found["comal_region_merge"] = Function(tilesql.region_merge, None, _SUMMARY)
    return found


def _of(band: str, name: str = "NULL") -> str:
    """The name of a band: what is given, else that of the column, which may be anything."""
    return f"coalesce({name}, '?' || alias({band}))"


def _macro(name: str, *forms: tuple[str, str]) -> str:
    return f"CREATE MACRO {name}" + ",".join(f" ({given}) AS {body}" for given, body in forms)


# A macro finds its form by the number of arguments: only those that differ in it stand apart.
_ALPHA = "alpha := NULL"
_NODATA = "nodata := NULL"
_NAME = "name := NULL"
_NAMES = "name1 := NULL, name2 := NULL"
_VALUE = "block, band, point, metadata"
_CLIP = "band, block, geometry, metadata"
_BOTH = f"{_of('b1', 'name1')}, {_of('b2', 'name2')}"
_REGION_PART = (
    f"comal_region_part(band, block, region, metadata, {_of('band', 'name')}, nodata, resolution,"
    " alpha)"
)
_PIXELS = (
    "band, metadata, x, y",
    "band, metadata, n, x, y",
    "band, t, x, y, width, compression",
)


def _normalized(name: str, function: str) -> str:
    given = f"b1, b2, metadata, {_NODATA}, {_NAMES}, {_ALPHA}"
    return _macro(name, (given, f"{function}(b1, b2, metadata, {_BOTH}, nodata, alpha)"))


MACROS: tuple[str, ...] = (
    _macro(
        "ST_RasterValue",
        (f"{_VALUE}, {_NAME}, {_ALPHA}", f"comal_value({_VALUE}, {_of('band', 'name')}, alpha)"),
    ),
    _macro(
        "ST_RasterSummaryStats",
        (
            f"band, metadata, {_NODATA}, {_ALPHA}",
            f"comal_summary(band, metadata, {_of('band')}, nodata, alpha)",
        ),
        *(
            (described, f"comal_described_summary({described})")
            for described in ("band, t, w, h, c", "band, t, w, h, c, nodata")
        ),
    ),
    _macro(
        "ST_RegionStats",
        (
            f"band, block, region, metadata, {_NODATA}, resolution := NULL, {_NAME}, {_ALPHA}",
            f"comal_region_merge(list({_REGION_PART}))",
        ),
    ),
    _macro(
        "ST_Clip",
        (f"{_CLIP}, {_NODATA}, {_ALPHA}", f"comal_clip({_CLIP}, {_of('band')}, nodata, alpha)"),
    ),
    _macro(
        "ST_ClipMask",
        (
            f"{_CLIP}, nodata, {_NAME}, {_ALPHA}",
            f"comal_clip_mask({_CLIP}, nodata, {_of('band', 'name')}, alpha)",
        ),
    ),
    _normalized("ST_NormalizedDifference", "comal_normalized"),
    _normalized("ST_NormalizedDifferenceStats", "comal_normalized_stats"),
    _macro(
        "ST_BandMath",
        (
            f"b1, b2, op, metadata, {_NAMES}, {_ALPHA}",
            f"comal_band_math(b1, b2, op, metadata, {_BOTH}, alpha)",
        ),
    ),
    _macro("raquet_pixel", *((one, f"comal_pixel({one}, {_of('band')})") for one in _PIXELS)),
    _macro(
        "raquet_pixel_interleaved",
        (_PIXELS[1], f"comal_pixel({_PIXELS[1]}, {_of('band')})"),
    ),
    _macro(
        "raquet_decode_band",
        ("band, metadata", f"comal_decode(band, metadata, {_of('band')})"),
        ("band, metadata, name", f"comal_decode(band, metadata, {_of('band', 'name')})"),
        ("band, t, w, h, c", f"comal_decode(band, t, w, h, c, {_of('band')})"),
    ),
)
"""What makes the macros for values; those for tables are in `comal.raquet.querying.session`."""
