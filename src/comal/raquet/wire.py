"""Reading the document of a RaQuet file, in every form that was ever written.

Flat is the form of 0.1.0 and 0.2.0, nested that of 0.3.0 and later. The form decides, not the
version: the earliest files have none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from comal import strictjson
from comal.errors import InvalidMetadataError, UnsupportedVersionError, shown
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raquet import spec
from comal.raquet.bandwire import Fields, bands_of
from comal.raquet.spec import Bounds, Metadata

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?")
_TILE_MATRIX_SET = "WebMercatorQuad"

# Keys that a field of the model holds, or that follow from one.
_KNOWN = frozenset(
    {
        "version",
        "file_format",
        "compression",
        "compression_quality",
        "band_layout",
        "block_width",
        "block_height",
        "block_resolution",
        "minresolution",
        "maxresolution",
        "pixel_resolution",
        "num_blocks",
        "num_pixels",
        "nodata",
        "bounds",
        "bounds_crs",
        "center",
        "crs",
        "width",
        "height",
        "bands",
        "tiling",
        "tile_matrix_set",
        "time",
        "tile_statistics",
        "tile_statistics_columns",
        "custom",
        "processing",
    }
)


def parse_metadata(text: str | bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> Metadata:
    """Read the document.

    Parameters
    ----------
    text
        What stands in the column ``metadata`` of the row whose block is 0.
    where
        What an error calls the file.
    limits
        Caps on the size and depth of the document.

    Raises
    ------
    InvalidMetadataError
        No JSON, or values without which the pixels cannot be read right: types, compression,
        block size, zooms, bounds, names. Its `problems` tell all of them.
    UnsupportedVersionError
        A newer generation of the format, or another grid than Web Mercator.
    LimitExceededError
        A document larger or deeper than the limits.
    """
    document, tokens = read_document(text, where, limits)
    root = Fields(document, where)
    if tokens:
        root.doubt("raquet-json-token", "", f"the number {tokens[0]} is not JSON")
    _check_generation(document, where)
    metadata = _metadata(root)
    errors = [problem for problem in root.problems if problem.severity == "error"]
    if errors or metadata is None:
        raise InvalidMetadataError(
            "RaQuet metadata cannot be used",
            where=where,
            found=errors[0].message,
            problems=root.problems,
        )
    return metadata


def read_document(
    text: str | bytes, where: str, limits: Limits = DEFAULT_LIMITS
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The document as plain data, and the tokens in it that are numbers of Python, not of JSON.

    Raises
    ------
    InvalidMetadataError, LimitExceededError
        As for `comal.strictjson.loads`.
    """
    tokens: list[str] = []

    def constant(token: str) -> float:
        tokens.append(token)
        return float(token)

    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return strictjson.loads(data, f"{where}: metadata", limits, constant=constant), tuple(tokens)


def _check_generation(document: Mapping[str, Any], where: str) -> None:
    version = document.get("version")
    major, minor = 0, 0
    if isinstance(version, str) and (match := _VERSION.fullmatch(version)):
        major, minor = int(match[1]), int(match[2])
    if major > 0:
        raise UnsupportedVersionError(
            "RaQuet of a newer generation",
            where=where,
            found=f"metadata version {shown(version)}",
            expected="0.x",
        )
    grid = document.get("tile_matrix_set", _TILE_MATRIX_SET)
    if grid not in {_TILE_MATRIX_SET, None}:
        raise UnsupportedVersionError(
            "RaQuet on another grid than Web Mercator",
            where=where,
            found=f"tile_matrix_set {shown(grid)} in version {major}.{minor}",
            expected=_TILE_MATRIX_SET,
        )


def _metadata(root: Fields) -> Metadata | None:
    """The model; None, or anything, when `root` has noted errors."""
    nested = isinstance(root.values.get("tiling"), Mapping)
    version = _version(root)
    if nested:
        _check_names(root)
    tiling = root.inside("tiling") if nested else root
    width, height = _block(tiling)
    zooms = _zooms(root, tiling, nested=nested)
    bounds = _bounds(root)
    compression = root.choice("compression", spec.COMPRESSIONS, "raquet-compression")
    layout = root.choice("band_layout", spec.LAYOUTS, "raquet-layout", spec.SEQUENTIAL)
    bands = bands_of(root)
    _check_coding(root, compression, layout, bands)
    if zooms is None or bounds is None or root.has_errors:
        return None
    return Metadata(
        version=version,
        compression=compression,
        quality=root.whole("compression_quality", least=1),
        layout=layout,
        block_width=width,
        block_height=height,
        min_zoom=zooms[0],
        max_zoom=zooms[1],
        num_blocks=tiling.whole("num_blocks"),
        bounds=bounds,
        width=_size(root, "width", bounds, zooms[1], width),
        height=_size(root, "height", bounds, zooms[1], height),
        bands=bands,
        time=root.mapping("time"),
        tile_statistics=_tile_statistics(root),
        custom=root.mapping("custom") or {},
        processing=root.mapping("processing") or {},
        extra=root.rest(_KNOWN),
        nested=nested,
        problems=tuple(root.problems),
    )


def _version(root: Fields) -> str | None:
    version = root.values.get("version")
    if version is None:
        root.doubt("raquet-version-missing", "version", "no version")
        return None
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        root.wrong("raquet-version", "version", f"{shown(version)} is no version")
        return None
    return version


def _check_names(root: Fields) -> None:
    """RaQuet 0.3.0 to 0.5.0: values that can only be one thing."""
    fixed = (
        (root, "file_format", "raquet"),
        (root, "crs", "EPSG:3857"),
        (root, "bounds_crs", "EPSG:4326"),
        (root.inside("tiling"), "scheme", "quadbin"),
    )
    for fields, key, expected in fixed:
        found = fields.values.get(key, expected)
        if not isinstance(found, str) or found.lower() != expected.lower():
            fields.wrong("raquet-grid", key, f"{shown(found)} instead of {expected}")


def _block(tiling: Fields) -> tuple[int, int]:
    sizes = []
    for key in ("block_width", "block_height"):
        size = tiling.whole(key, code="raquet-block-size")
        if size is None or size % spec.BLOCK_STEP or not 0 < size <= spec.MAX_BLOCK:
            tiling.wrong(
                "raquet-block-size",
                key,
                f"{shown(tiling.values.get(key))} is no multiple of {spec.BLOCK_STEP}"
                f" up to {spec.MAX_BLOCK}",
            )
            size = spec.BLOCK_STEP
        sizes.append(size)
    return sizes[0], sizes[1]


def _zooms(root: Fields, tiling: Fields, *, nested: bool) -> tuple[int, int] | None:
    """Minimum and maximum zoom.

    Where both forms stand in one document, a tool that changed the zooms has changed the flat
    keys and left the others as they were.
    """
    low = root.whole("minresolution", code="raquet-zooms")
    high = root.whole("maxresolution", code="raquet-zooms")
    if high is None:
        high = root.whole("block_resolution", code="raquet-zooms")
    if nested:
        low = tiling.whole("min_zoom", code="raquet-zooms") if low is None else low
        high = tiling.whole("max_zoom", code="raquet-zooms") if high is None else high
    if high is None:
        root.wrong("raquet-zooms", "", "no maximum zoom")
        return None
    low = high if low is None else low
    if not 0 <= low <= high <= spec.MAX_ZOOM:
        root.wrong("raquet-zooms", "", f"zooms {low} to {high} are not in 0 to {spec.MAX_ZOOM}")
        return None
    return low, high


def _bounds(root: Fields) -> Bounds | None:
    found = root.values.get("bounds")
    if isinstance(found, list) and len(found) == 4 and all(_is_finite(one) for one in found):
        west, south, east, north = (float(one) for one in found)
        if west < east and south < north:
            return west, south, east, north
    root.wrong("raquet-bounds", "bounds", f"{shown(found, 100)} are no bounds")
    return None


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e6 and math.isfinite(value)


def _size(root: Fields, key: str, bounds: Bounds, zoom: int, block: int) -> int:
    """Width or height; where it is missing, what follows from the bounds."""
    # Pixels can be read without it: an error for a check alone.
    size = root.whole(key, least=1, below=1 << 63, code="raquet-size", needed=False)
    if size is not None:
        return size
    world = block << zoom
    west, south, east, north = bounds
    if key == "width":
        return max(1, round((east - west) / 360 * world))
    return max(1, round((_mercator(north) - _mercator(south)) * world))


def _mercator(latitude: float) -> float:
    """Northing as a part of the height of the square world, 0 at the equator."""
    limited = max(-85.0511287798066, min(85.0511287798066, latitude))
    return math.asinh(math.tan(math.radians(limited))) / (2 * math.pi)


def _check_coding(root: Fields, compression: Any, layout: Any, bands: Any) -> None:
    """RaQuet 0.4.0: lossy tiles are pictures of bytes, and interleaved bands are of one type."""
    types = {band.dtype for band in bands}
    if layout == spec.INTERLEAVED and len(types) > 1:
        root.wrong("raquet-layout", "bands", "interleaved bands of several types")
    allowed = spec.LOSSY_BANDS.get(compression)
    if allowed is None:
        return
    if layout != spec.INTERLEAVED or types - {"uint8"} or len(bands) not in allowed:
        root.wrong(
            "raquet-compression",
            "compression",
            f"{compression} for {len(bands)} {layout} bands of {', '.join(sorted(types))}",
        )


def _tile_statistics(root: Fields) -> tuple[str, ...]:
    """RaQuet 0.5.0: which statistics each tile has."""
    if root.values.get("tile_statistics") is not True:
        return ()
    kinds = root.values.get("tile_statistics_columns")
    if kinds is None:
        return spec.STATISTICS
    if isinstance(kinds, list) and all(kind in spec.STATISTICS for kind in kinds):
        return tuple(dict.fromkeys(kinds))
    root.doubt("raquet-tile-statistics", "tile_statistics_columns", "kinds that are not known")
    return ()
