"""The functions of SQL: their names, and the macros that bring them into the forms people know.

What a function of Python cannot be is made by macros: forms with other arguments, the name of the
column that is passed (from which the band is known), and the aggregate ``ST_RegionStats``, which
is a list of what each tile gives and a function that merges it. Nothing here comes from a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from comal.query import Function
from comal.raquet.querying import cellsql, tilesql
from comal.raquet.querying.cellsql import vectorised

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
_TILES: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "comal_value": (tilesql.value, pa.float64(), "DOUBLE"),
    "comal_pixel": (tilesql.pixel, pa.float64(), "DOUBLE"),
    "comal_decode": (tilesql.decode_band, tilesql.VALUES, "DOUBLE[]"),
    "comal_summary": (tilesql.summary, tilesql.SUMMARY, _SUMMARY),
    "comal_clip": (tilesql.clip, tilesql.VALUES, "DOUBLE[]"),
    "comal_clip_mask": (tilesql.clip_mask, tilesql.VALUES, "DOUBLE[]"),
    "comal_band_math": (tilesql.band_math, tilesql.VALUES, "DOUBLE[]"),
    "st_band": (tilesql.band_number, pa.int32(), "INTEGER"),
    "raquet_parse_metadata": (tilesql.parsed, tilesql.DOCUMENT, _DOCUMENT),
    "raquet_validate_metadata": (tilesql.validated, tilesql.VERDICT, _VERDICT),
}
_NULLS: dict[str, tuple[Callable[..., Any], str]] = {
    # Some of their arguments may be null without the result being so.
    "comal_normalized": (tilesql.normalized, "DOUBLE[]"),
    "comal_normalized_stats": (tilesql.normalized_stats, _SUMMARY),
    "comal_region_part": (tilesql.region_part, _PARTIAL),
    "comal_region_merge": (tilesql.region_merge, _SUMMARY),
}

FUNCTIONS: dict[str, Function] = {
    **{
        name: Function(vectorised(call, kind), None, returns)
        for name, (call, kind, returns) in {**cellsql.CALLS, **_TILES}.items()
    },
    **{name: Function(call, None, returns) for name, (call, returns) in _NULLS.items()},
}
"""Functions by the name under which DuckDB has them; those of ``comal_`` are for macros."""


def _of(band: str) -> str:
    return f"'?' || alias({band})"


def _macro(name: str, *forms: tuple[str, str]) -> str:
    return f"CREATE MACRO {name}" + ",".join(f" ({given}) AS {body}" for given, body in forms)


def _summary_forms() -> tuple[tuple[str, str], ...]:
    plain = ("band, metadata", "band, metadata, nodata")
    described = ("band, t, w, h, c", "band, t, w, h, c, nodata")
    return tuple((one, f"comal_summary({one}, {_of('band')})") for one in plain + described)


def _region_forms() -> tuple[tuple[str, str], ...]:
    merged = (
        "comal_region_merge(list(comal_region_part(band, block, region, metadata, {}, {}, {})))"
    )
    return (
        ("band, block, region, metadata", merged.format("NULL", "NULL", _of("band"))),
        ("band, block, region, metadata, nodata", merged.format("nodata", "NULL", _of("band"))),
        (
            "band, block, region, metadata, nodata, resolution",
            merged.format("nodata", "resolution", _of("band")),
        ),
        (
            "band, block, region, metadata, nodata, resolution, name",
            merged.format("nodata", "resolution", "name"),
        ),
    )


def _normalized_forms(function: str) -> tuple[tuple[str, str], ...]:
    names = f"{_of('b1')}, {_of('b2')}"
    return (
        ("b1, b2, metadata", f"{function}(b1, b2, metadata, NULL, {names})"),
        ("b1, b2, metadata, nodata", f"{function}(b1, b2, metadata, nodata, {names})"),
        (
            "b1, b2, metadata, nodata, name1, name2",
            f"{function}(b1, b2, metadata, nodata, name1, name2)",
        ),
    )


_VALUE = "block, band, point, metadata"
_CLIP = "band, block, geometry, metadata"
_PIXELS = (
    "band, metadata, x, y",
    "band, metadata, n, x, y",
    "band, t, x, y, width, compression",
)

MACROS: tuple[str, ...] = (
    _macro(
        "ST_RasterValue",
        (_VALUE, f"comal_value({_VALUE}, {_of('band')})"),
        (f"{_VALUE}, name", f"comal_value({_VALUE}, name)"),
    ),
    _macro("ST_RasterSummaryStats", *_summary_forms()),
    _macro("ST_RegionStats", *_region_forms()),
    _macro(
        "ST_Clip",
        (_CLIP, f"comal_clip({_CLIP}, {_of('band')})"),
        (f"{_CLIP}, nodata", f"comal_clip({_CLIP}, nodata, {_of('band')})"),
    ),
    _macro(
        "ST_ClipMask",
        (f"{_CLIP}, nodata", f"comal_clip_mask({_CLIP}, nodata, {_of('band')})"),
        (f"{_CLIP}, nodata, name", f"comal_clip_mask({_CLIP}, nodata, name)"),
    ),
    _macro("ST_NormalizedDifference", *_normalized_forms("comal_normalized")),
    _macro("ST_NormalizedDifferenceStats", *_normalized_forms("comal_normalized_stats")),
    _macro(
        "ST_BandMath",
        (
            "b1, b2, op, metadata",
            f"comal_band_math(b1, b2, op, metadata, {_of('b1')}, {_of('b2')})",
        ),
        (
            "b1, b2, op, metadata, name1, name2",
            "comal_band_math(b1, b2, op, metadata, name1, name2)",
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
        ("band, metadata, name", "comal_decode(band, metadata, name)"),
        ("band, t, w, h, c", f"comal_decode(band, t, w, h, c, {_of('band')})"),
    ),
)
"""What makes the macros for values; those for tables are in `comal.raquet.querying.session`."""
