"""Data sets as TorchGeo knows them, for its samplers, transforms and intersections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import zip_longest
from typing import Any

import numpy as np

from comal.errors import InvalidInputError, MissingExtraError, NotInContainerError
from comal.geo import footprints
from comal.geo.crs import wkt_of
from comal.geo.places import grids, periods
from comal.lazy import shapely
from comal.ml.archives import ArchiveDataset, Dataset
from comal.ml.batches import Kind, converted
from comal.raster.warping import mosaic

COLUMNS = ("stac:crs", "stac:geotransform", "stac:tensor_shape", "stac:time_start", "stac:time_end")
"""The columns that `as_geo` looks at."""


class _Missing:
    """Stands for the classes of TorchGeo where it is missing."""

    def __init__(self) -> None:
        raise MissingExtraError("as_nongeo and as_geo need TorchGeo", library="torchgeo")


try:
    _DATASETS: Any = import_module("torchgeo.datasets")
except (ImportError, RuntimeError):  # the latter comes from torchvision beside another torch
    _DATASETS = None


def as_nongeo(data: Dataset, to: Kind = "torch") -> Any:
    """A ``NonGeoDataset`` of TorchGeo: samples by number.

    Parameters
    ----------
    data
        The samples. A field ``image`` becomes float32 (bands, y, x), and a field ``mask`` int64,
        (y, x) if it has one band; the transform of the data set comes before that.
    to
        What arrays become: ``"torch"`` or ``"numpy"``.

    Raises
    ------
    MissingExtraError
        TorchGeo cannot be imported.
    """
    return _NonGeo(data, to)


def as_geo(data: ArchiveDataset, to: Kind = "torch") -> Any:
    """A ``GeoDataset`` of TorchGeo: samples by place and time.

    Its index comes from those of the columns `COLUMNS` that there are, and no sample is read for
    it. CRS and pixel size are those of the first sample until ``crs`` and ``res`` are set. A query
    reads all samples that it touches in one fetch and brings their nearest pixels to its grid;
    where samples overlap, the first counts. Pixels without a value are 0. Samples that fail are
    left out unless `on_error` of the data set is ``"raise"``.

    Parameters
    ----------
    data, to
        As for `as_nongeo`; all fields are whole images.

    Raises
    ------
    InvalidInputError
        No sample has CRS, geotransform and shape.
    MissingExtraError
        TorchGeo cannot be imported.
    """
    return _Geo(data, to)


class _NonGeo(getattr(_DATASETS, "NonGeoDataset", _Missing)):  # type: ignore[misc]
    """Samples by number."""

    def __init__(self, data: Dataset, to: Kind) -> None:
        super().__init__()
        self.data, self.to = data, to

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, index: int) -> Any:
        return _given(self.data[index], self.to)


class _Geo(getattr(_DATASETS, "GeoDataset", _Missing)):  # type: ignore[misc]
    """Samples by place and time; the base class has length, bounds, `crs` and `res`."""

    def __init__(self, data: ArchiveDataset, to: Kind) -> None:
        super().__init__()
        self.data, self.transform, self.to = data.masked(), data.transform, to
        self.index = _index(data.columns)
        _, affine, _ = grids(data.columns.take(self.index["row"].to_numpy()[:1]))
        self._res = np.hypot(*affine[0, [1, 4]]).item(), np.hypot(*affine[0, [2, 5]]).item()

    def __getitem__(self, query: Any) -> Any:
        x, y, t = _filled(query, self.bounds)
        # Neighbours that reach in by less than half a pixel have no nearest pixel here.
        right, up = x.step / 2, y.step / 2
        box = shapely.box(x.start + right, y.start + up, x.stop - right, y.stop - up)
        # By their bounds, as samplers have them: the corners of turned outlines are empty.
        near = np.sort(self.index.sindex.query(box))
        when = self.index.index[near]
        near = near[(when.left <= t.stop) & (when.right >= t.start)][:: t.step]
        rows = self.index["row"].to_numpy()[near]
        samples = dict(_read(self.data, rows))
        if not samples:
            raise NotInContainerError(
                "no sample there", found=str(query), expected=str(self.bounds)
            )
        names, affine, sizes = grids(self.data.columns.take(list(samples)))
        places = list(zip(affine.tolist(), names, strict=True))
        target = (x.start, x.step, 0, y.stop, 0, -y.step), self.crs.to_wkt()
        shape = round((y.stop - y.start) / y.step), round((x.stop - x.start) / x.step)
        found = {"crs": self.crs, "bounds": query}
        for name in self.data.fields:
            fields = zip([one[name] for one in samples.values()], sizes, strict=True)
            found[name] = mosaic([_whole(*one) for one in fields], places, target, shape)
        return _given(found if self.transform is None else self.transform(found), self.to)


def _filled(query: Any, bounds: Sequence[slice]) -> Iterator[slice]:
    """The slices of x, y and time; what a query leaves open is that of the bounds."""
    given = query if isinstance(query, tuple) else (query,)
    for one, whole in zip_longest(given, bounds, fillvalue=slice(None)):
        parts = ((one.start, whole.start), (one.stop, whole.stop), (one.step, whole.step))
        yield slice(*(mine if mine is not None else other for mine, other in parts))


def _read(data: Dataset, rows: Any) -> Iterator[tuple[int, Any]]:
    """The samples of some rows, in one fetch, without those that fail if these are left out."""
    raw = data.attempt(rows)
    for place, row in enumerate(rows.tolist()):
        for sample in data.complete(rows[place : place + 1], raw, first=place):
            yield row, sample


def _index(table: Any) -> Any:
    """A GeoDataFrame of the outlines of samples that have a place, by time."""
    import geopandas  # type: ignore[import-untyped,unused-ignore] # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415 - both come with TorchGeo

    names, affine, size = grids(table)
    x, y = footprints.places(affine, size, *np.array([[0, 1, 1, 0], [0, 0, 1, 1]]))
    placed = pd.Series(names)[np.flatnonzero(np.isfinite(x + y).all(axis=1))].dropna()
    if placed.empty:
        raise InvalidInputError("no sample has a place", found=f"{len(names)} samples")
    rows, crs = placed.index.to_numpy(), wkt_of(placed.iloc[0])
    outlines = shapely.polygons(np.stack([x, y], axis=2)[rows])
    for name, mine in placed.groupby(placed).indices.items():
        outlines[mine] = geopandas.GeoSeries(outlines[mine], crs=wkt_of(name)).to_crs(crs)
    when = pd.IntervalIndex.from_arrays(*periods(table.take(rows)), "both", name="datetime")
    return geopandas.GeoDataFrame({"row": rows}, index=when, geometry=outlines, crs=crs)


def _whole(image: Any, size: Any) -> tuple[Any, Any]:
    """The pixels of a field and which of them have a value."""
    shape = image.shape if np.ma.isMaskedArray(image) else ()
    if shape[-2:] != tuple(size):
        raise InvalidInputError(
            "a field is not a whole image of its sample",
            found=shape or type(image).__name__,
            expected=f"{size.tolist()} rows and columns",
        )
    return image.data, ~np.ma.getmaskarray(image)


def _given(sample: dict[str, Any], to: Kind) -> Any:
    """A sample in the types of TorchGeo."""
    for name, kind in (("image", np.float32), ("mask", np.int64)):
        array = sample.get(name)
        if isinstance(array, np.ndarray):
            is_plane = name == "mask" and array.ndim == 3 and len(array) == 1
            sample[name] = (array[0] if is_plane else array).astype(kind)
    return converted(sample, to)
