"""Named areas, such as countries, and which of them a place lies in."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.geo import wkb
from comal.geo.crs import projection
from comal.lazy import shapely
from comal.storage import local_path

Floats = npt.NDArray[np.float64]

NAMES = ("name", "shapename", "admin", "name_en")
"""Columns that are taken for names when none is given, whatever their case."""

_FILE_FAULTS: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
}

_JSON_FAULTS: dict[type[BaseException], type[ComalError]] = dict.fromkeys(
    (ValueError, RecursionError), InvalidMetadataError
)
_PARQUET_FAULTS: dict[type[BaseException], type[ComalError]] = dict.fromkeys(
    (pa.ArrowException, OSError, ValueError, TypeError, LookupError, NotImplementedError),
    InvalidMetadataError,
)

_LIST_FAULTS: dict[type[BaseException], type[ComalError]] = dict.fromkeys(
    (ValueError, TypeError, LookupError, pa.ArrowException), InvalidInputError
)


@dataclass(frozen=True)
class Regions:
    """Areas in EPSG:4326, each with a name."""

    names: pa.Array
    """n texts."""
    geometries: npt.NDArray[np.object_]
    """n shapely geometries in longitude and latitude."""

    @cached_property
    def _tree(self) -> shapely.STRtree:
        return shapely.STRtree(self.geometries)

    def find(self, lon: npt.ArrayLike, lat: npt.ArrayLike, tolerance: float = 0.0) -> pa.Array:
        """Names of the areas in which places lie.

        Parameters
        ----------
        lon, lat
            n places in degrees; NaN is nowhere.
        tolerance
            Degrees; a place in no area takes the nearest one within so far.

        Returns
        -------
        n texts, null where no area is. Of areas that overlap or touch, the first one counts.
        """
        lons, lats = np.asarray(lon, np.float64), np.asarray(lat, np.float64)
        found = np.full(len(lons), -1, np.int64)
        known = np.flatnonzero(np.isfinite(lons) & np.isfinite(lats))
        points = shapely.points(lons[known], lats[known])
        place, area = self._tree.query(points, predicate="intersects")
        # Written from the last to the first area, so that the first stays.
        order = np.argsort(-area, kind="stable")
        found[known[place[order]]] = area[order]
        missing = known[found[known] < 0]
        if tolerance > 0 and len(missing):
            points = shapely.points(lons[missing], lats[missing])
            place, area = self._tree.query_nearest(
                points, max_distance=tolerance, all_matches=False
            )
            found[missing[place]] = area
        return self.names.take(pa.array(np.where(found < 0, 0, found), mask=found < 0))


def load_regions(source: Any, name: str | None = None) -> Regions:
    """Areas from what the user names.

    Parameters
    ----------
    source
        Path of a GeoJSON or GeoParquet file; an Arrow table with a WKB column ``geometry`` and a
        name column; a list of (WKB, name); `Regions`; or a pair (path or table, name column).
    name
        The column or property that holds the names; one of `NAMES` when None.

    Raises
    ------
    InvalidInputError
        The source is of no such kind, or has no names.
    ObjectNotFoundError, NotThisFormatError, InvalidMetadataError
        The file is missing, of another format, or broken.
    """
    if isinstance(source, Regions):
        return source
    if isinstance(source, tuple) and len(source) == 2:
        return load_regions(source[0], source[1])
    if isinstance(source, pa.Table):
        return _from_table(source, name, "table of areas", geometry="geometry")
    if isinstance(source, str | os.PathLike):
        return _from_file(local_path(source, "the file of areas"), name)
    if isinstance(source, list):
        with translated(_LIST_FAULTS, "not a list of (WKB, name)"):
            geometries = pa.array([pair[0] for pair in source], pa.binary())
            names = pa.array([pair[1] for pair in source], pa.string())
        return Regions(names, wkb.to_shapely(geometries, "list of areas"))
    raise InvalidInputError(
        "not a source of areas",
        found=type(source).__name__,
        expected="GeoJSON or GeoParquet path, table, or list of (WKB, name)",
    )


def _from_file(path: Path, name: str | None) -> Regions:
    where = shown(path, 200)
    with translated(_FILE_FAULTS, "areas cannot be read", where=where):
        with path.open("rb") as file:
            head = file.read(4)
        if head == b"PAR1":
            with translated(_PARQUET_FAULTS, "broken Parquet", where=where):
                table = pq.read_table(path)
                table.validate(full=True)
            return _from_table(table, name, where)
        text = path.read_bytes()
    if not text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        raise NotThisFormatError(
            "not a file of areas", where=where, expected="GeoJSON or GeoParquet"
        )
    with translated(_JSON_FAULTS, "broken GeoJSON", where=where):
        document = json.loads(text)
    return _from_geojson(document, name, where)


def _from_geojson(document: Any, name: str | None, where: str) -> Regions:
    features = document.get("features")
    if not isinstance(features, list) or not all(isinstance(f, dict) for f in features):
        raise InvalidMetadataError("GeoJSON without features", where=where)
    properties = [feature.get("properties") or {} for feature in features]
    if not all(isinstance(one, dict) for one in properties):
        raise InvalidMetadataError("GeoJSON with properties that are no object", where=where)
    key = _name_key({key for one in properties for key in one}, name, where)
    texts = [json.dumps(feature.get("geometry")) for feature in features]
    with translated(
        {shapely.errors.ShapelyError: InvalidMetadataError}, "broken GeoJSON", where=where
    ):
        geometries = [None if t == "null" else shapely.from_geojson(t) for t in texts]
    names = [None if one.get(key) is None else str(one[key]) for one in properties]
    with translated(_JSON_FAULTS, "name holds half a character", where=where):
        column = pa.array(names, pa.string())
    return Regions(column, np.array(geometries, object))


def _from_table(
    table: pa.Table, name: str | None, where: str, geometry: str | None = None
) -> Regions:
    metadata = _geo_metadata(table, where)
    column = geometry or metadata.get("primary_column") or "geometry"
    if column not in table.column_names:
        raise InvalidInputError(
            "areas without geometry", where=where, found=table.column_names, expected=column
        )
    key = _name_key(set(table.column_names) - {column}, name, where)
    with translated({pa.ArrowException: InvalidInputError}, "areas of another type", where=where):
        names = table.column(key).cast(pa.string()).combine_chunks()
    geometries = wkb.to_shapely(table.column(column), f"{where}, {column}")
    crs = metadata.get("columns", {}).get(column, {}).get("crs")
    if crs is not None:
        source = projection(json.dumps(crs), where)
        if source.transformer is not None:
            geometries = shapely.transform(
                geometries, lambda xy: np.stack(source.to_lonlat(*xy.T), axis=1)
            )
    return Regions(names, geometries)


def _geo_metadata(table: pa.Table, where: str) -> dict[str, Any]:
    """The ``geo`` key of GeoParquet 1.x; empty for a plain table."""
    text = (table.schema.metadata or {}).get(b"geo")
    if text is None:
        return {}
    what = "broken GeoParquet metadata"
    with translated(_JSON_FAULTS, what, where=where):
        metadata: Any = json.loads(text)
    columns = metadata.get("columns", {}) if isinstance(metadata, dict) else None
    if not isinstance(columns, dict) or not all(isinstance(one, dict) for one in columns.values()):
        raise InvalidMetadataError(what, where=where, expected="objects, by the specification")
    found: dict[str, Any] = metadata
    return found


def _name_key(keys: set[str], name: str | None, where: str) -> str:
    if name is not None and name in keys:
        return name
    if name is None:
        by_case = {key.lower(): key for key in sorted(keys)}
        for candidate in NAMES:
            if candidate in by_case:
                return by_case[candidate]
    raise InvalidInputError(
        "areas without names",
        where=where,
        found=", ".join(map(shown, sorted(keys))) or "no columns",
        expected=name or f"a column {' or '.join(NAMES)}",
        hint="name the column: (source, 'column')",
    )
