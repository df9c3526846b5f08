"""RAI columns from rasters and areas that the user names, offline and deterministic.

A layer gives its mean over the footprint of the item, null where no pixel is valid; an
administrative layer gives the name of the area in which the centre of the footprint lies.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, StorageError, shown, translated
from comal.geo import samples, wkb
from comal.lazy import pc
from comal.limits import MIB
from comal.raster.zones import Regions, load_regions
from comal.tortilla import spec
from comal.tortilla.writing.columns import with_column

Floats = npt.NDArray[np.float64]

LAYERS = tuple(name.removeprefix("rai:") for name in spec.RAI if ":admin" not in name)
ADMIN = (0, 1, 2)
# Rounding of a mean of float32 pixels may pass an end of the range.
_SLACK = 1e-6
_METRES_PER_DEGREE = 111_320.0


@dataclass(frozen=True)
class Enrichment:
    """Where the RAI columns come from.

    Parameters
    ----------
    rasters
        ``elevation``, ``cisi``, ``gdp``, ``hdi``, ``gmi``, ``pop`` to a local raster, or to
        (path, band). Any other name becomes ``rai:{name}``.
    admin
        0, 1 and 2 (countries, districts, municipalities) to areas: path or URL of GeoJSON,
        GeoPackage, GeoParquet or a Shapefile, (path, name column), an Arrow table, or a list of
        (WKB, name), in EPSG:4326.
    footprint
        ``raster``: the raster of the STAC columns, the centroid where there is none. ``centroid``:
        that place alone. A number: a square of so many metres around it.
    tolerance
        Degrees: a centre in no area takes the nearest one within so far.
    executor
        Any `concurrent.futures.Executor`, which then computes the layers side by side.
    level
        Which items get the columns: 0 the outermost, 1 those nested in them, and so on.

    Raises
    ------
    InvalidInputError
        No layer at all, or an unknown footprint.
    """

    rasters: Mapping[str, Any] = field(default_factory=dict)
    admin: Mapping[int, Any] = field(default_factory=dict)
    footprint: str | float = "raster"
    tolerance: float = 0.0
    executor: Executor | None = field(default=None, repr=False, compare=False)
    level: int = 0
    _regions: dict[int, Regions] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.rasters and not self.admin:
            raise InvalidInputError("no layers", expected="rasters={'elevation': 'dem.tif'}")
        if set(self.admin) - set(ADMIN):
            raise InvalidInputError(
                "unknown administrative level", found=list(self.admin), expected="0, 1 and 2"
            )
        if self.level < 0:
            raise InvalidInputError("no such level", found=self.level, expected="0 or more")
        square = isinstance(self.footprint, int | float) and self.footprint > 0
        if not square and self.footprint not in ("raster", "centroid"):
            raise InvalidInputError(
                "unknown footprint",
                found=shown(self.footprint),
                expected="'raster', 'centroid' or a number of metres",
            )

    def columns(self, table: Any) -> dict[str, Any]:
        """RAI columns for the rows of a table with STAC columns.

        Raises
        ------
        InvalidInputError
            The rows have no place; a layer without one; a share that does not lie in 0 to 1.
        """
        places = self._footprints(table)
        found: dict[str, Any] = {}
        for name, values in zip(self.rasters, self._means(places), strict=True):
            found[f"rai:{name}"] = _column(f"rai:{name}", values)
        lon, lat = places.centres()
        for level, source in self.admin.items():
            if level not in self._regions:
                self._regions[level] = load_regions(source)
            found[f"rai:admin{level}"] = self._regions[level].find(lon, lat, self.tolerance)
        return found

    def _means(self, places: samples.Footprints) -> list[Floats]:
        from comal.raster import sample_footprint  # noqa: PLC0415 - loads GDAL

        compute = partial(sample_footprint, footprints=places)
        run = map if self.executor is None else self.executor.map
        return list(run(compute, self.rasters.values()))

    def _footprints(self, table: Any) -> samples.Footprints:
        names = set(table.column_names)
        options: list[samples.Footprints] = []
        if {spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE} <= names:
            options.append(
                samples.raster_footprints(
                    *(table[name] for name in (spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE))
                )
            )
        if spec.CENTROID in names:
            options.append(samples.point_footprints(_points(table[spec.CENTROID])))
        if not options:
            raise InvalidInputError(
                "samples without a place cannot be enriched",
                found=", ".join(map(shown, table.column_names[:20])),
                expected="the columns stac:crs, stac:geotransform, stac:raster_shape",
                hint="pass stac=True to read them from the rasters",
            )
        places = samples.first_known(options)
        return places if self.footprint == "raster" else _around(places, self.footprint)

    def sources(self) -> dict[str, str]:
        """What the columns were made from, for the metadata of the footer: name and SHA-256."""
        layers = {f"rai:{name}": value for name, value in self.rasters.items()}
        layers |= {f"rai:admin{level}": value for level, value in self.admin.items()}
        return {f"source:{name}": _described(value) for name, value in layers.items()}


def enrich(
    table: Any,
    *,
    rasters: Mapping[str, Any] | None = None,
    admin: Mapping[int, Any] | None = None,
    footprint: str | float = "raster",
    tolerance: float = 0.0,
    executor: Executor | None = None,
) -> Any:
    """A table with RAI columns added or replaced; the parameters are those of `Enrichment`.

    Parameters
    ----------
    table
        Arrow table with ``stac:crs``, ``stac:geotransform`` and ``stac:raster_shape``, or with
        ``stac:centroid``.
    """
    if not isinstance(table, pa.Table):
        raise InvalidInputError("no Arrow table", where="table", found=type(table).__name__)
    chosen = Enrichment(rasters or {}, admin or {}, footprint, tolerance, executor)
    for name, values in chosen.columns(table).items():
        table = with_column(table, name, values)
    return table


def _column(name: str, values: Floats) -> Any:
    known = np.isfinite(values)
    if name in spec.RAI_FRACTIONS:
        outside = known & ((values < -_SLACK) | (values > 1 + _SLACK))
        if outside.any():
            raise InvalidInputError(
                f"layer of {name} is no share",
                found=float(values[outside][0]),
                expected="values from 0 to 1",
                hint="give the nodata value in the raster, or rescale it",
            )
    kind = spec.RAI.get(name, pa.float64())
    if pa.types.is_integer(kind):
        values = np.round(values)
    return pc.cast(pa.array(values, mask=~known), kind)


def _points(column: Any) -> Any:
    """WKB points from WKT; null where there is none or it is no point."""
    return wkb.point(*wkb.text_points_xy(column))


def _around(places: samples.Footprints, footprint: str | float) -> samples.Footprints:
    lon, lat = places.centres()
    centres = samples.point_footprints(wkb.point(lon, lat))
    if isinstance(footprint, str):
        return centres
    north = footprint / _METRES_PER_DEGREE
    east = north / np.maximum(np.cos(np.radians(lat)), 0.01)
    zero = np.zeros(len(lon))
    affine = np.stack(
        [lon - east / 2, east, zero, lat + north / 2, zero, np.full(len(lon), -north)], axis=1
    )
    return samples.Footprints(centres.crs, affine, np.ones((len(lon), 2)))


def _described(value: Any) -> str:
    band = f", band {value[1]}" if isinstance(value, tuple) and len(value) == 2 else ""
    source = value[0] if isinstance(value, tuple) and len(value) == 2 else value
    if not isinstance(source, str | os.PathLike):
        return f"{type(source).__name__}{band}"
    path = Path(source)
    if not path.is_file():
        return f"{path.name}{band}"
    digest = hashlib.sha256()
    with (
        translated({OSError: StorageError}, "layer cannot be read", where=shown(path, 200)),
        path.open("rb") as file,
    ):
        while chunk := file.read(4 * MIB):
            digest.update(chunk)
    return f"{path.name}{band}, sha256 {digest.hexdigest()}"
