"""ISTAC: place and time of a sample of irregular shape, such as a swath or a point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, InvalidMetadataError
from comal.geo.times import Instant
from comal.taco.extensions.base import SameForAll, column
from comal.taco.extensions.placing import (
    TIMESTAMP,
    centroid_column,
    require,
    text_column,
    time_columns,
)

SCHEMA = pa.schema(
    [
        column("istac:crs", pa.string(), "Coordinate reference system: authority code or WKT"),
        column("istac:geometry", pa.binary(), "Footprint as WKB in istac:crs"),
        column("istac:time_start", TIMESTAMP, "Start of the acquisition, UTC"),
        column("istac:time_end", TIMESTAMP, "End of the acquisition, UTC"),
        column("istac:time_middle", TIMESTAMP, "Middle of the acquisition, UTC"),
        column("istac:centroid", pa.binary(), "Centroid as WKB point in EPSG:4326"),
    ]
)


@dataclass
class ISTAC(SameForAll):
    """Place and time of a sample that is no regular raster.

    Parameters
    ----------
    crs
        Authority code, WKT or PROJ string.
    geometry
        Footprint in `crs`, x before y, as WKB or a shapely geometry.
    time_start, time_end, time_middle
        As for `comal.taco.extensions.STAC`.
    centroid
        WKB point in EPSG:4326; computed from the geometry when None.
    check_antimeridian
        In a geographic CRS an edge longer than 180 degrees goes over the antimeridian, and so
        does a geometry with parts on both sides of it; its centroid lies within it. Without the
        check coordinates are taken as they stand. Geometries over Greenwich are never affected.
    sample_id
        Named in messages.
    schema_only
        Typed nulls; no other parameter is needed.

    Raises
    ------
    InvalidInputError
        On creation: a CRS that PROJ does not know, a geometry that is empty or no WKB, a start
        after the end, a centroid that is not on the earth.
    """

    crs: str | None = None
    geometry: Any = None
    time_start: Instant | None = None
    time_end: Instant | None = None
    time_middle: Instant | None = None
    centroid: bytes | None = None
    check_antimeridian: bool = True
    sample_id: str | None = None
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        require(self, "crs", "geometry", "time_start")
        if self.schema_only:
            return
        self._row = istac_table(
            crs=[self.crs],
            geometry=pa.array([getattr(self.geometry, "wkb", self.geometry)], pa.binary()),
            time_start=[self.time_start],
            time_end=[self.time_end],
            time_middle=[self.time_middle],
            centroid=None if self.centroid is None else pa.array([self.centroid], pa.binary()),
            check_antimeridian=self.check_antimeridian,
            who=f"ISTAC of sample {self.sample_id}" if self.sample_id else "ISTAC",
        )

    def get_schema(self) -> pa.Schema:
        """The six columns ``istac:*``."""
        return SCHEMA

    def _compute(self, sample: Any) -> pa.Table:
        del sample
        return self._row


def istac_table(
    *,
    crs: Any,
    geometry: Any,
    time_start: Any = None,
    time_end: Any = None,
    time_middle: Any = None,
    centroid: Any = None,
    check_antimeridian: bool = True,
    who: str = "ISTAC",
) -> pa.Table:
    """The ``istac:*`` columns of many samples at once.

    `geometry` is an Arrow binary column of WKB; the other parameters are those of `stac_table`.

    Raises
    ------
    InvalidInputError
        As for `ISTAC`; the message names the row.
    """
    if isinstance(geometry, pa.ChunkedArray):
        geometry = geometry.combine_chunks()
    names = text_column(crs, len(geometry))
    from comal.geo.shapes import geometry_centroids  # noqa: PLC0415 - shapely

    try:
        lon, lat = geometry_centroids(geometry, names, check_antimeridian=check_antimeridian)
    except InvalidMetadataError as error:  # from a file it is bad content, here a bad argument
        raise InvalidInputError("invalid geometry", where=who, found=error.found) from error
    needed = pc.and_(pc.is_valid(geometry), pc.is_valid(names)).to_numpy(zero_copy_only=False)
    start, end, middle = time_columns(time_start, time_end, time_middle, len(geometry), who)
    centres = centroid_column(centroid, lon, lat, needed, who)
    return pa.table([names, geometry, start, end, middle, centres], schema=SCHEMA)
