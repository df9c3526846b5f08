"""What the headers of rasters say: CRS, shape, geotransform, type. No pixel is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import results
from comal.raster.opening import RasterSource, open_raster
from comal.storage import check_several

_ELEMENT = "element"
SCHEMA = pa.schema(
    [
        ("crs", pa.string()),
        ("shape", pa.list_(pa.field(_ELEMENT, pa.int64()))),
        ("geotransform", pa.list_(pa.field(_ELEMENT, pa.float64()))),
        ("dtype", pa.string()),
        ("nodata", pa.float64()),
        ("driver", pa.string()),
    ]
)
_BATCH = 64
_THREADS = 8
_CONFIDENCE = 70  # percent; how sure PROJ must be that a CRS is the one of an authority


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one raster."""

    crs: str | None
    """``EPSG:32718``, or WKT where no authority knows the CRS."""
    shape: tuple[int, int, int]
    """Bands, rows, columns."""
    geotransform: tuple[float, ...] | None
    """Six numbers in GDAL order: x0, dx, rotation, y0, rotation, dy; None when there is none."""
    dtype: str
    """numpy name of the pixels; of the widest band when they differ."""
    nodata: float | None
    driver: str
    """GDAL driver."""


def header(source: RasterSource, limits: Limits = DEFAULT_LIMITS) -> Header:
    """The header of one raster; errors are those of `open_raster`."""
    with open_raster(source, limits) as dataset:
        placed = dataset.crs is not None or not dataset.transform.is_identity
        nodata = dataset.nodata
        return Header(
            crs_name(dataset.crs),
            (dataset.count, dataset.height, dataset.width),
            dataset.transform.to_gdal() if placed else None,
            _widest(dataset.dtypes),
            None if nodata is None else float(nodata),
            dataset.driver,
        )


def headers(
    sources: Iterable[RasterSource],
    executor: Executor | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> pa.Table:
    """The headers of many rasters, in their order, read in parallel.

    Parameters
    ----------
    sources
        Paths, bytes or spans.
    executor
        Any `concurrent.futures.Executor`; threads of its own when None.
    limits
        As for `open_raster`.

    Returns
    -------
    A table with a row per source: ``crs`` string, ``shape`` list of bands, rows, columns,
    ``geotransform`` list of six numbers in GDAL order, ``dtype``, ``nodata``, ``driver``.

    Raises
    ------
    ComalError
        Of the first source that cannot be read; the message names it.
    """
    check_several(sources, "rasters")
    # Few batches are in flight at a time: a million paths must not become a million futures.
    read = partial(_read, limits=limits)
    rows = results(executor or _THREADS, read, _batches(sources), 4 * _THREADS)
    return pa.Table.from_batches(rows, SCHEMA)


def _batches(sources: Iterable[RasterSource]) -> Any:
    iterator = iter(sources)
    for first in iterator:
        yield list(chain([first], islice(iterator, _BATCH - 1)))


def _read(sources: Sequence[RasterSource], limits: Limits) -> pa.RecordBatch:
    found = [header(source, limits) for source in sources]
    columns = [
        pa.array([getattr(one, column.name) for one in found], column.type) for column in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def crs_name(crs: Any) -> str | None:
    """``EPSG:32718``, or WKT where no authority knows the CRS; None without one."""
    if not crs:
        return None
    authority = crs.to_authority(confidence_threshold=_CONFIDENCE)
    return ":".join(authority) if authority else str(crs.to_wkt())


def _widest(names: Sequence[str]) -> str:
    return max(names, key=lambda name: (pa.array([], name).type.bit_width, name))
