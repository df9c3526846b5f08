"""SQL functions of the document: the number of a band, what it says, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from comal.errors import ComalError, InvalidMetadataError
from comal.query.columns import texts
from comal.raquet.querying.tilevalues import document

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
