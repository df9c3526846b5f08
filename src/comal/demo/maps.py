"""One raster of the run as RaQuet and as Tapalcatl: what a map reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from comal import formats, raquet, tapalcatl
from comal.convert import draw
from comal.errors import InvalidMetadataError
from comal.progress import silent

RASTER = "raster.parquet"
TILES = "tiles"
_BANDS = 3


@dataclass(frozen=True, slots=True)
class Converted:
    """A raster as a Parquet table, and a value of it."""

    path: Path
    tiles: int
    zooms: tuple[int, int]
    place: tuple[float, float]
    values: tuple[Any, ...]
    mean: float


def as_raquet(source: Path, folder: Path, nodata: int | None = None) -> Converted:
    """Convert a raster, check the file, and ask it for a value and a mean."""
    path = folder / RASTER
    made = raquet.write(source, path, resampling="bilinear", nodata=nodata)
    report = raquet.check(path, level="full", statistics=True)
    if report.errors:
        raise InvalidMetadataError("the RaQuet file has errors", problems=report.problems)
    west, south, east, north = made.bounds
    place = (west + east) / 2, (south + north) / 2
    with raquet.open(path) as file:
        values = np.ma.asarray(file.point(*place, masked=True)).tolist()
        statistics = file.bands[0].statistics
    mean = float("nan") if statistics is None or statistics.mean is None else statistics.mean
    zooms = made.min_zoom, made.max_zoom
    return Converted(path, made.tiles, zooms, place, tuple(values), mean)


def as_tiles(raster: Path, folder: Path) -> Any:
    """Draw the raster as PNG tiles, and find each of them again by the document alone."""
    with raquet.open(raster) as file:
        colours = len(file.bands) >= _BANDS
        # Bands of satellites come from short waves to long ones: the third is red.
        bands = [3, 2, 1] if colours and file.bands[0].dtype != "uint8" else None
    built = draw(raster, folder / TILES, bands=bands)
    with tapalcatl.open(folder / TILES) as tiles:
        missing = [key for key in tiles.keys().tolist() if tiles.tile(*key) is None]
    report = formats.adapter_of(formats.sniff(folder / TILES).format).check(
        str(folder / TILES), level="full", progress=silent
    )
    if missing or report.errors:
        raise InvalidMetadataError("the tileset has errors", problems=report.problems)
    return built
