"""Fields from rasters: GeotiffStats from the sample itself, GeoEnrich and RAI from other layers.

Everything is computed offline from local files. A layer gives its mean over the footprint of the
sample, or null if no pixel is valid; an administrative layer gives the name of the area that
contains the centroid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown, translated
from comal.geo.footprints import (
    Footprints,
    first_known,
    geometry_footprints,
    point_footprints,
    raster_footprints,
)
from comal.geo.places import CENTROID, FOOTPRINT, ways_of
from comal.parallel import Workers, results
from comal.public import check_fields, warn
from comal.raster.zones import Regions, load_regions
from comal.taco.extensions.base import (
    FAULTS,
    ComputedColumns,
    SampleExtension,
    declared,
    list_of,
    table_of,
)

_THREADS = 4

Job = tuple[Any, Any, Any]


@dataclass
class GeotiffStats(SampleExtension):
    """Statistics per band of a raster given as a path or bytes.

    Continuous: min, max, mean, std, valid pixels in percent, p25, p50, p75, p95, as
    `comal.raster.band_stats` computes them, of the scaled values if the sample has
    ``scaling:scale_factor`` or ``scaling:scale_offset``. Categorical: the share of each class
    among the pixels of all given classes.

    A band without valid pixels has nulls (and 0 percent); a raster without any is null.

    Parameters
    ----------
    categorical
        Shares of classes instead of statistics.
    class_values
        The classes, in the order of the shares; required if `categorical`.
    executor
        Any `concurrent.futures.Executor` for many samples, or a number of processes; None uses a
        few threads.
    """

    categorical: bool = False
    class_values: Sequence[int] | None = None
    executor: Workers = field(default=None, repr=False, compare=False)
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not self.categorical:
            return
        what, expected = "categorical statistics need class_values", "a list of class numbers"
        with translated(FAULTS, what, expected=expected):
            known = list(np.asarray(self.class_values, np.float64))
        if not known:
            raise InvalidInputError(what, expected=expected)
        self.class_values = np.asarray(self.class_values).tolist()

    def get_schema(self) -> pa.Schema:
        """The column ``geotiff:stats``, a list of floats per band."""
        text = (
            f"Per band: share of the classes {list(self.class_values or [])}"
            if self.categorical
            else "Per band: min, max, mean, std, valid percent, p25, p50, p75, p95"
        )
        return declared(("geotiff:stats", list_of(list_of(pa.float32())), text))

    def compute_table(self, table: pa.Table) -> pa.Table:
        """Statistics of the rasters in the column ``path``, in parallel.

        Raises
        ------
        InvalidInputError
            There is no column ``path``, or a sample has no data of its own.
        ComalError
            A raster cannot be read; the message names it.
        """
        if "path" not in table.column_names:
            raise InvalidInputError(
                "GeotiffStats needs the data of the samples",
                found=", ".join(table.column_names),
                expected="a column 'path' of files or bytes",
            )
        stats = partial(raster_statistics, classes=self._classes())
        threads = _THREADS if table.num_rows > 1 else 0
        rows = list(results(self.executor, stats, _jobs(table), threads=threads))
        return pa.table({"geotiff:stats": rows}, schema=self.get_schema())

    def _compute(self, sample: Any) -> pa.Table:
        return self.compute_table(table_of(sample))

    def _classes(self) -> list[int] | None:
        return list(self.class_values or []) if self.categorical else None


def _jobs(table: pa.Table) -> Any:
    """Path, factor and offset of each row."""
    wanted = ("path", "scaling:scale_factor", "scaling:scale_offset")
    present = [name for name in wanted if name in table.column_names]
    for batch in table.select(present).to_batches(max_chunksize=1024):
        columns = [
            batch.column(name).to_pylist() if name in present else [None] * batch.num_rows
            for name in wanted
        ]
        yield from zip(*columns, strict=True)


def raster_statistics(job: Job, classes: list[int] | None) -> list[list[float | None]] | None:
    """Statistics of one raster by band; a task of `GeotiffStats`."""
    from comal.raster.statistics import band_stats, class_shares  # noqa: PLC0415 - loads GDAL

    path, factor, offset = job
    if path is None:
        raise InvalidInputError(
            "GeotiffStats needs samples with data of their own", expected="a file or bytes"
        )
    if classes is not None:
        found = class_shares(path, classes)
    else:
        found = band_stats(
            path,
            scale=1.0 if factor is None else factor,
            offset=0.0 if offset is None else offset,
        )
    # The fifth number of an empty band is 0 percent; all others are missing.
    if np.isnan(found[:, 0]).all():
        name = "bytes" if isinstance(path, bytes) else path
        warn(f"no valid pixels in {name}: geotiff:stats is null")
        return None
    return [[None if np.isnan(value) else float(value) for value in band] for band in found]


# -- other rasters and areas ---------------------------------------------------------------------

Floats = npt.NDArray[np.float64]

VARIABLES: dict[str, str] = {
    "elevation": "Elevation in metres",
    "cisi": "Critical infrastructure spatial index, 0 to 1",
    "precipitation": "Precipitation in millimetres per year",
    "temperature": "Air temperature in degrees Celsius",
    "soil_clay": "Clay in the soil in percent",
    "soil_sand": "Sand in the soil in percent",
    "soil_carbon": "Organic carbon in the soil in grams per kilogram",
    "soil_bulk_density": "Bulk density of the soil in kilograms per cubic metre",
    "soil_ph": "pH of the soil",
    "gdp": "Gross domestic product in US dollars per year",
    "hdi": "Human development index, 0 to 1",
    "gmi": "Global human modification index, 0 to 1",
    "human_modification": "Global human modification index, 0 to 1",
    "population": "Population in persons",
    "pop": "Population in persons",
}
"""Known variables and their units; the mean is taken over the footprint, in the layer's unit."""

SHARES = frozenset({"cisi", "hdi", "gmi", "human_modification"})
"""Variables between 0 and 1."""

# The mean of float32 pixels may leave the range by rounding.
_SLACK = 1e-6


@dataclass
class GeoEnrich(ComputedColumns):
    """Columns ``geoenrich:{name}`` from rasters and ``geoenrich:admin_{name}`` from areas.

    Parameters
    ----------
    layers
        Variable names mapped to a local raster, or to (path, band). Any name is allowed; the unit
        is that of the raster.
    admin
        Column names mapped to areas: path or URL of GeoJSON, GeoPackage or
        GeoParquet, (path, name column), an Arrow table with ``geometry`` and a name, or a list of
        (WKB, name), in EPSG:4326.
    prefix
        Namespace of the columns, before the colon.
    tolerance
        Degrees: a centroid outside all areas takes the nearest within this distance.
    executor
        Any `concurrent.futures.Executor`, or a number of processes, which then compute the layers
        in parallel; None computes one after the other.

    Raises
    ------
    InvalidInputError
        No layers; samples without a location; a layer without CRS; a share outside 0..1.
    ComalError
        A layer cannot be read; the message names it.

    Notes
    -----
    The footprint is the raster of ``stac:*``, else ``istac:geometry``, else a centroid.
    """

    layers: Mapping[str, Any] = field(default_factory=dict)
    admin: Mapping[Any, Any] = field(default_factory=dict)
    prefix: str = "geoenrich"
    tolerance: float = 0.0
    executor: Workers = field(default=None, repr=False, compare=False)

    _kinds: ClassVar[dict[str, pa.DataType]] = {}
    _default: ClassVar[pa.DataType] = pa.float32()
    _admin_name: ClassVar[str] = "admin_{}"

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.layers and not self.admin:
            raise InvalidInputError(
                f"{type(self).__name__} needs layers",
                expected="layers={'elevation': 'dem.tif'} or admin={'countries': 'admin.geojson'}",
            )
        self._regions: dict[Any, Regions] = {}

    def get_schema(self) -> pa.Schema:
        """A column per layer and per administrative layer, in the order given."""
        layers = (
            (
                f"{self.prefix}:{name}",
                self._kinds.get(name, self._default),
                VARIABLES.get(name, f"Mean of {name} over the footprint"),
            )
            for name in self.layers
        )
        areas = (f"{self.prefix}:{self._admin_name.format(name)}" for name in self.admin)
        text = "Administrative area of the centroid"
        return declared(*layers, *((name, pa.string(), text) for name in areas))

    def compute_table(self, table: pa.Table) -> pa.Table:
        """Values for all rows; null if no pixel is valid or the sample has no location."""
        footprints = footprints_of(table, type(self).__name__)
        schema = self.get_schema()
        means = self._means(footprints)
        columns: list[pa.Array] = []
        for name, wanted, values in zip(self.layers, schema, means, strict=False):
            columns.append(_column(name, values, wanted.type))
        lon, lat = footprints.centres()
        for name, source in self.admin.items():
            if name not in self._regions:
                self._regions[name] = load_regions(source)
            columns.append(self._regions[name].find(lon, lat, self.tolerance))
        return pa.table(columns, schema=schema)

    def _means(self, footprints: Footprints) -> list[Floats]:
        from comal.raster.layers import sample_footprint  # noqa: PLC0415 - loads GDAL

        compute = partial(sample_footprint, footprints=footprints)
        return list(results(self.executor, compute, self.layers.values(), threads=1))


@dataclass
class RAI(GeoEnrich):
    """Columns ``rai:*`` of responsible AI, computed as by `GeoEnrich`.

    Layers are ``elevation`` (int64, in metres), ``cisi``, ``gdp``, ``hdi``, ``gmi`` and ``pop``
    (double); administrative layers are 0, 1 and 2 for countries, districts and municipalities.
    """

    prefix: str = "rai"

    _kinds: ClassVar[dict[str, pa.DataType]] = {"elevation": pa.int64()}
    _default: ClassVar[pa.DataType] = pa.float64()
    _admin_name: ClassVar[str] = "admin{}"


_FOOTPRINTS: Mapping[str, Callable[..., Footprints]] = {
    "raster": raster_footprints,
    "geometry": geometry_footprints,
    CENTROID: point_footprints,
}


def footprints_of(table: pa.Table, who: str) -> Footprints:
    """Footprints of samples from their ``stac:*`` and ``istac:*`` columns."""
    options = [
        _FOOTPRINTS[way.kind if way.by == FOOTPRINT else CENTROID](*map(table.column, way.columns))
        for way in ways_of(table.schema)
    ]
    if not options:
        raise InvalidInputError(
            f"{who} needs the places of the samples",
            found=", ".join(map(shown, table.column_names[:20])),
            expected="the columns of STAC or ISTAC",
        )
    return first_known(options)


def _column(name: str, values: Floats, kind: pa.DataType) -> pa.Array:
    known = np.isfinite(values)
    if name in SHARES:
        outside = known & ((values < -_SLACK) | (values > 1 + _SLACK))
        if outside.any():
            raise InvalidInputError(
                f"values of layer {name} are not shares",
                found=float(values[outside][0]),
                expected="values from 0 to 1",
                hint="set the nodata value of the raster, or rescale the raster",
            )
    if pa.types.is_integer(kind):
        values = np.round(values)
    return pc.cast(pa.array(values, mask=~known), kind)
