"""Statistics of a raster over a box, at the finest zoom that is cheap enough to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError
from comal.geo.boxes import validate_bbox
from comal.raquet.reading.file import RaquetFile
from comal.server.geometry import tile_count
from comal.server.render.expressions import Expression

_MOST_PIXELS = 4_194_304
"""Pixels of one band that are looked at: 64 tiles of 256 x 256."""
_RANGE_PIXELS = 1_048_576


@dataclass(frozen=True, slots=True)
class Sample:
    """Pixels of a box."""

    bbox: tuple[float, ...]
    zoom: int
    exact: bool
    """Whether this is the finest zoom."""
    names: tuple[str, ...]
    values: tuple[npt.NDArray[Any], ...]
    """All pixels of each band or formula, flat."""
    seen: tuple[npt.NDArray[np.bool_], ...]
    """Which of them are valid."""


def band_numbers(file: RaquetFile) -> range:
    """Numbers of all bands."""
    return range(1, len(file.bands) + 1)


def zoom_for(file: RaquetFile, bbox: Sequence[float], most: int) -> int:
    """The finest zoom at which a box covers at most `most` pixels; else the coarsest."""
    metadata = file.metadata
    block = metadata.block_width * metadata.block_height
    for zoom in range(metadata.max_zoom, metadata.min_zoom, -1):
        if tile_count(bbox, zoom) * block <= most:
            return zoom
    return metadata.min_zoom


def sample(
    file: RaquetFile,
    bands: Sequence[int],
    bbox: Sequence[float],
    step: Any,
    formula: Expression | None = None,
    nodata: float | None = None,
    most: int = _MOST_PIXELS,
) -> Sample:
    """Pixels of bands, or of formulas over them, within a box.

    Parameters
    ----------
    bands
        Numbers of bands, from 1 on; with a formula those that it uses.
    bbox
        West, south, east, north in degrees.
    step
        The time step.
    nodata
        Counts as no value, instead of what the raster says.
    most
        Pixels of one band that may be looked at.
    """
    box = tuple(validate_bbox(bbox))
    zoom = zoom_for(file, box, most)
    window = file.read(box, zoom=zoom, bands=list(bands), time=step, masked=True)
    data, masked = np.ma.getdata(window.data), np.ma.getmaskarray(window.data)
    if nodata is not None:
        masked = np.isnan(data) if np.isnan(nodata) else data == nodata
    names = tuple(file.bands[number - 1].name for number in bands)
    if formula is not None:
        data = formula.values(dict(zip(bands, data, strict=True)))
        masked = np.broadcast_to(masked.any(axis=0), data.shape)
        names = formula.texts
    if data.dtype.kind == "f":
        masked = masked | ~np.isfinite(data)
    return Sample(
        box,
        zoom,
        zoom == file.metadata.max_zoom,
        names,
        tuple(band.ravel() for band in data),
        tuple(~band.ravel() for band in masked),
    )


def sampled_range(file: RaquetFile, number: int) -> tuple[float, float] | None:
    """2 and 98 percent of a band, from an overview; None when nothing can be told."""
    step = None if file.times is None else 0
    try:
        found = sample(file, [number], file.bounds, step, most=_RANGE_PIXELS)
    except ComalError:
        return None  # a broken tile; those that are sound are shown all the same
    values = found.values[0][found.seen[0]].astype(np.float64)
    if not len(values):
        return None
    low, high = (float(edge) for edge in np.percentile(values, (2, 98)))
    if low < high:
        return low, high
    low, high = float(values.min()), float(values.max())
    return (low, high) if low < high else None


def counts_of(values: npt.NDArray[Any], seen: npt.NDArray[np.bool_], bins: int) -> dict[str, Any]:
    """Statistics with the names of titiler; all None when no pixel is valid."""
    valid = values[seen].astype(np.float64)
    document: dict[str, Any] = {
        "valid_pixels": len(valid),
        "masked_pixels": len(values) - len(valid),
        "valid_percent": round(100 * len(valid) / len(values), 2) if len(values) else 0.0,
        "count": len(valid),
    }
    names = ("min", "max", "mean", "std", "sum", "median", "percentile_2", "percentile_98")
    if not len(valid):
        return document | dict.fromkeys(names) | {"histogram": None}
    low, median, high = (float(edge) for edge in np.percentile(valid, (2, 50, 98)))
    counts, edges = np.histogram(valid, bins)
    numbers = (
        float(valid.min()),
        float(valid.max()),
        float(valid.mean()),
        float(valid.std()),
        float(valid.sum()),
        median,
        low,
        high,
    )
    histogram = [counts.tolist(), edges.tolist()]
    return document | dict(zip(names, numbers, strict=True)) | {"histogram": histogram}
