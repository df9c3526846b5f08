"""The document: that it can be used, and what it says of the tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from comal import grid
from comal.check import OF_CONTENT, Findings
from comal.errors import InvalidMetadataError, UnsupportedVersionError, counted, shown
from comal.limits import Limits
from comal.raquet import spec
from comal.raquet.checking.table import Subject
from comal.raquet.documents import pixel_zoom
from comal.raquet.spec import Band, Metadata
from comal.raquet.wire import parse_metadata, read_document

PLACE = "metadata"
_SAME = 1e-6
"""Degrees by which bounds may miss the lines of tiles; writers keep six decimals."""
_NAMES = (
    "undefined gray grey palette red green blue alpha hue saturation lightness cyan magenta yellow"
    " black y cb cr ycbcr_y ycbcr_cb ycbcr_cr pan coastal rededge nir swir mwir lwir tir otherir"
    " other_ir sar_ka sar_k sar_ku sar_x sar_c sar_s sar_l sar_p"
)
_COLOURS = frozenset(_NAMES.split())
"""Names of GDAL, and of rasterio where it has others (RaQuet 0.1.0, band information)."""


def read_metadata(text: str, limits: Limits, findings: Findings) -> Metadata | None:
    """The document, or None when it cannot be used."""
    try:
        found = parse_metadata(text, PLACE, limits)
    except UnsupportedVersionError as error:
        code = "raquet-grid" if "grid" in error.what else "raquet-version"
        findings.add(code, PLACE, f"{error.what}: {error.found}")
        return None
    except InvalidMetadataError as error:
        if error.problems:
            findings.take(error.problems)
        else:
            findings.take_error(error, "raquet-json", PLACE)
        return None
    except OF_CONTENT as error:
        findings.take_error(error, "raquet-json", PLACE)
        return None
    findings.take(found.problems)
    if found.time is not None and found.version == spec.WRITTEN[0]:
        message = f"{found.version}, and time came with {spec.TIMED}"
        findings.add("raquet-version-early", PLACE, message)
    _check_derived(read_document(text, PLACE, limits)[0], found, findings)
    for band in found.bands:
        if band.colorinterp is not None and band.colorinterp not in _COLOURS:
            message = f"{shown(band.colorinterp)} is no colour interpretation of GDAL"
            findings.add("raquet-colorinterp", f"band {shown(band.name)}", message)
    return found


def _check_derived(document: Mapping[str, Any], metadata: Metadata, findings: Findings) -> None:
    """Keys that follow from others, which no reader here needs (RaQuet 0.1.0, metadata)."""
    tiling = document.get("tiling")
    inner = tiling if isinstance(tiling, Mapping) else {}
    expected: list[tuple[str, Any, Any]] = [
        ("block_resolution", document.get("block_resolution"), metadata.max_zoom),
        ("num_pixels", document.get("num_pixels"), metadata.width * metadata.height),
        ("pixel_resolution", document.get("pixel_resolution"), pixel_zoom(metadata)),
        ("tiling.pixel_zoom", inner.get("pixel_zoom"), pixel_zoom(metadata)),
        ("center", document.get("center"), metadata.center),
    ]
    for key, found, value in expected:
        near = _is_center(found, metadata) if key == "center" else found == value
        if found is not None and not near:
            message = f"{shown(found)}, but the other keys say {shown(value)}"
            findings.add("raquet-derived", f"{PLACE}: {key}", message)


def _is_center(found: Any, metadata: Metadata) -> bool:
    """The middle of the bounds, and one of the zooms."""
    if not isinstance(found, list) or len(found) != 3:
        return False
    # Integers of any length compare with floats, and NaN with nothing.
    if not all(isinstance(one, int | float) and abs(one) < 1e6 for one in found):
        return False
    longitude, latitude, _ = metadata.center
    near = abs(found[0] - longitude) < 1e-4 and abs(found[1] - latitude) < 1e-4
    return bool(near and metadata.min_zoom <= found[2] <= metadata.max_zoom)


def check_statistics(metadata: Metadata, findings: Findings) -> None:
    """Statistics that no pixels can have."""
    for band in metadata.bands:
        reason = contradiction(band)
        if reason is not None:
            findings.add("raquet-statistics", f"band {shown(band.name)}", reason)


def contradiction(band: Band) -> str | None:
    """Why the statistics of a band cannot be those of any pixels; None when they can."""
    found = band.statistics
    if found is None or found.count == 0:
        return None
    low, high, mean = found.min, found.max, found.mean
    if low is not None and high is not None:
        if low > high:
            return f"minimum {low} is over maximum {high}"
        # Means of millions of pixels are rounded.
        room = 1e-6 * max(abs(float(low)), abs(float(high)), 1e-300)
        if mean is not None and not low - room <= mean <= high + room:
            return f"mean {mean} is not between {low} and {high}"
    if found.stddev is not None and found.stddev < 0:
        return f"standard deviation {found.stddev}"
    for key, values in (found.quantiles or {}).items():
        if list(values) != sorted(values):
            return f"quantiles {shown(key)} do not ascend"
    percent = found.valid_percent
    if percent is not None and not -_SAME <= percent <= 100 + 1e-3:
        return f"{percent} percent of the pixels are valid"
    return None


def check_index(subject: Subject, metadata: Metadata, findings: Findings) -> None:
    """The ids: cells, each once, of the zooms and within the bounds that are declared."""
    ids = subject.ids
    rows = np.flatnonzero(subject.tiles)
    valid = np.asarray(grid.is_valid(ids[rows]))
    findings.add_rows(
        "raquet-cell",
        rows[~valid],
        lambda row: (subject.place(row), f"{hex(int(ids[row]) % 2**64)} is no cell"),
    )
    rows = rows[valid]
    if not len(rows):
        findings.add("raquet-zoom-empty", "table", "no tile at all")
        return
    _check_unique(subject, rows, findings)
    zooms = np.asarray(grid.zooms(ids[rows]))
    outside = (zooms < metadata.min_zoom) | (zooms > metadata.max_zoom)
    declared = f"{metadata.min_zoom} to {metadata.max_zoom}"
    findings.add_rows(
        "raquet-cell-zoom",
        rows[outside],
        lambda row: (
            subject.place(row),
            f"zoom {int(ids[row]) >> 52 & 31}, declared are {declared}",
        ),
    )
    there = set(np.unique(zooms).tolist())
    # The parts of a set all declare the zooms of the whole; coarse ones are in some of them.
    is_part = metadata.processing.get(spec.PART) is not None
    for zoom in range(metadata.max_zoom if is_part else metadata.min_zoom, metadata.max_zoom + 1):
        if zoom not in there:
            findings.add("raquet-zoom-empty", f"zoom {zoom}", f"no tile; declared are {declared}")
    _check_place(subject, rows[zooms == metadata.max_zoom], metadata, findings)
    _check_overviews(ids[rows], zooms, metadata, findings)


def _check_unique(subject: Subject, rows: Any, findings: Findings) -> None:
    ids = subject.ids[rows]
    times = np.zeros(len(rows)) if subject.times is None else subject.times[rows]
    order = np.lexsort((times, ids))
    # A time that is NULL is reported by itself, and is no other's.
    same = (ids[order][1:] == ids[order][:-1]) & (times[order][1:] == times[order][:-1])
    twice = rows[order][1:][same]
    when = "" if subject.times is None else ", with the same time"
    findings.add_rows(
        "raquet-cell-twice",
        np.sort(twice),
        lambda row: (subject.place(row), f"the tile stands there twice{when}"),
    )


def _check_place(subject: Subject, rows: Any, metadata: Metadata, findings: Findings) -> None:
    cells = subject.ids[rows]
    (x0, y0, x1, y1), room = _edges(metadata)
    zoom, x, y = grid.tiles(cells)
    # In tiles of the finest zoom: at high latitudes they are narrower than what may be off in
    # degrees.
    side = np.ldexp(1.0, metadata.max_zoom - zoom)
    outside = ((x + 1) * side <= x0 + room) | (x * side >= x1 - room)
    outside |= ((y + 1) * side <= y0 + room) | (y * side >= y1 - room)
    findings.add_rows(
        "raquet-cell-bounds",
        rows[outside],
        lambda row: (subject.place(row), f"not within the bounds {metadata.bounds}"),
    )
    window = aligned_window(metadata)
    if window is None:
        findings.add(
            "raquet-bounds-tiles", PLACE, f"{metadata.bounds} are not those of whole tiles"
        )
    else:
        x0, y0, x1, y1 = window
        width = (x1 - x0) * metadata.block_width
        height = (y1 - y0) * metadata.block_height
        if (metadata.width, metadata.height) != (width, height):
            findings.add(
                "raquet-size",
                PLACE,
                f"{metadata.width} x {metadata.height}, but the bounds hold {width} x {height}",
            )
    _check_count(len(np.unique(cells)), metadata, findings)


def _edges(metadata: Metadata) -> tuple[Any, float]:
    """West, north, east and south of the bounds in tiles of the finest zoom; how far one is off."""
    west, south, east, north = metadata.bounds
    x, y = grid.lonlat_to_xy([west, east], [north, south], metadata.max_zoom)
    edges = np.array([x[0], y[0], x[1], y[1]])
    if east == 180 or east - west >= 360:
        edges[2] = 2.0**metadata.max_zoom
    # Written with six decimals, or as far as a double goes. At the finest zooms six decimals are
    # coarser than tiles: what is nearer to a line than to the middle of a tile is on it.
    return edges, min(max(_SAME / 360 * 2.0**metadata.max_zoom * 4, 1e-6), 0.25)


def aligned_window(metadata: Metadata) -> tuple[int, int, int, int] | None:
    """Columns and rows of tiles, last ones excluded, that the bounds are; None if they are not."""
    edges, room = _edges(metadata)
    lines = np.round(edges)
    if (np.abs(edges - lines) > room).any():
        return None
    if lines[2] <= lines[0] or lines[3] <= lines[1]:
        return None
    return int(lines[0]), int(lines[1]), int(lines[2]), int(lines[3])


def _check_count(tiles: int, metadata: Metadata, findings: Findings) -> None:
    declared = metadata.num_blocks
    if declared is None or declared == tiles:
        return
    across = math.ceil(metadata.width / metadata.block_width)
    full = across * math.ceil(metadata.height / metadata.block_height)
    if declared == full:
        findings.add(
            "raquet-num-blocks-grid",
            PLACE,
            f"{declared} is the whole grid, of which the file has {counted(tiles, 'tile')}",
        )
    else:
        findings.add(
            "raquet-num-blocks",
            PLACE,
            f"{declared}, but the file has {counted(tiles, 'tile')}, and the whole grid {full}",
        )


def _check_overviews(ids: Any, zooms: Any, metadata: Metadata, findings: Findings) -> None:
    for zoom in range(metadata.min_zoom + 1, metadata.max_zoom + 1):
        children = ids[zooms == zoom]
        if not len(children):
            continue
        wanted = np.unique(grid.parents(children, zoom - 1))
        missing = wanted[~np.isin(wanted, ids[zooms == zoom - 1])]
        if len(missing):
            findings.add(
                "raquet-overview-missing",
                f"zoom {zoom - 1}",
                f"{len(missing)} of {len(wanted)} tiles; first block {missing[0]}",
            )
