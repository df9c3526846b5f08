"""Data sets as TorchGeo knows them, for its samplers, transforms and intersections.

TorchGeo is not needed: where it can be imported, the adapters are instances of its base classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import zip_longest
from types import new_class
from typing import Any

import numpy as np
from pyproj import CRS

from comal.errors import InvalidInputError, MissingExtraError, NotInContainerError, shown
from comal.geo import footprints, times
from comal.geo.crs import wkt_of
from comal.geo.places import TIMES, ways_of
from comal.lazy import shapely
from comal.ml.archives import ArchiveDataset, Dataset
from comal.ml.batches import Kind, converted
from comal.raster.warping import nearest

COLUMNS = ("stac:crs", "stac:geotransform", "stac:tensor_shape", "stac:time_start", "stac:time_end")
"""The columns that `as_geo` looks at."""

Transforms = Callable[[dict[str, Any]], Any]

_TYPES = {"image": np.float32, "mask": np.int64}
_ALWAYS = np.array(["1678-01-01", "2262-01-01"], "datetime64[us]")
"""What pandas holds as nanoseconds."""


class NotThereError(NotInContainerError, IndexError):
    """No sample is at the place and time of a query."""


def as_nongeo(
    data: Dataset,
    *,
    image: str | None = "image",
    mask: str | None = None,
    transforms: Transforms | None = None,
    to: Kind = "torch",
) -> Any:
    """A ``NonGeoDataset`` of TorchGeo: samples by number.

    Parameters
    ----------
    data
        The samples.
    image, mask
        Fields that become ``image``, float32 (bands, y, x), and ``mask``, int64, (y, x) if it has
        one band.
    transforms
        Called with each sample.
    to
        ``"torch"`` or ``"numpy"``.
    """
    fields = {"image": image, "mask": mask}
    return _made(_NonGeo, {"data": data, "fields": fields, "transforms": transforms, "to": to})


def as_geo(
    data: ArchiveDataset,
    *,
    image: str | None = "image",
    mask: str | None = None,
    crs: Any = None,
    res: float | tuple[float, float] | None = None,
    transforms: Transforms | None = None,
    to: Kind = "torch",
) -> Any:
    """A ``GeoDataset`` of TorchGeo: samples by place and time.

    Its index comes from CRS, geotransform, shape and times of the samples, and no sample is read
    for it: the data set has to have those of the columns `COLUMNS` that there are. A query reads
    all samples that it touches in one fetch and brings their nearest pixels to its grid; where
    samples overlap, the first counts. Pixels without a value are 0.

    Parameters
    ----------
    data, image, mask, transforms, to
        As for `as_nongeo`; fields are whole images.
    crs
        That of index and queries; None for that of the first sample.
    res
        Pixel size in units of the CRS, or x and y; None for that of the first sample.

    Raises
    ------
    InvalidInputError
        Samples have no CRS, geotransform and shape.
    MissingExtraError
        geopandas, which comes with TorchGeo, is not installed.
    """
    table = data.columns
    way = next((way for way in ways_of(table.schema) if way.kind == "raster"), None)
    if way is None or not len(data):
        raise InvalidInputError(
            "samples without CRS, geotransform and shape",
            found=", ".join(map(shown, table.column_names)) or "no columns",
            hint="open the data set with columns=comal.ml.torchgeo.COLUMNS",
        )
    crs_names, transforms_of, shapes_of = (table.column(name) for name in way.columns)
    names = np.asarray(crs_names.to_pylist(), np.object_)
    affine, size = footprints.affine_of(transforms_of), footprints.size_of(shapes_of)
    index = _index(names, affine, size, _intervals(table), crs)
    _, a, b, _, d, e = affine[index["row"].iloc[0]].tolist()
    found = _made(
        _Geo,
        {
            "data": data.masked(),
            "index": index,
            "fields": {"image": image, "mask": mask},
            "names": names,
            "affine": affine,
            "size": size,
            "transforms": transforms,
            "to": to,
        },
    )
    found.data.on_error = "raise"
    found.res = (np.hypot(a, d).item(), np.hypot(b, e).item()) if res is None else res
    return found


def _index(names: Any, affine: Any, size: Any, when: Any, crs: Any) -> Any:
    """A GeoDataFrame of the outlines of samples that have a place, by time."""
    try:
        import geopandas  # type: ignore[import-untyped,unused-ignore] # noqa: PLC0415
        import pandas as pd  # noqa: PLC0415 - both come with TorchGeo
    except ImportError as error:
        raise MissingExtraError("as_geo needs geopandas", library="geopandas") from error
    known = np.isfinite(affine).all(axis=1) & np.isfinite(size).all(axis=1)
    known &= [name is not None for name in names.tolist()]
    rows = np.flatnonzero(known)
    if not len(rows):
        raise InvalidInputError("no sample has a place", found=f"{len(names)} samples")
    target = CRS.from_wkt(wkt_of(crs or names[rows[0]]))
    corners = np.array([[0, 1, 1, 0], [0, 0, 1, 1]])
    x, y = footprints.places(affine[rows], size[rows], *corners)
    outlines = shapely.polygons(np.stack([x, y], axis=2))
    for name in dict.fromkeys(names[rows]):
        source, mine = CRS.from_wkt(wkt_of(name)), names[rows] == name
        if source != target:
            outlines[mine] = geopandas.GeoSeries(outlines[mine], crs=source).to_crs(target)
    first, last = when[:, rows]
    times_of = pd.IntervalIndex.from_arrays(first, last, closed="both", name="datetime")
    return geopandas.GeoDataFrame({"row": rows}, index=times_of, geometry=outlines, crs=target)


def _intervals(table: Any) -> Any:
    """First and last instant of each sample, shape (2, n); all times where none is known."""
    found = np.tile(_ALWAYS[:, None], len(table))
    start = next((name for name in TIMES if name in table.column_names), None)
    if start is not None:
        end = start.replace("start", "end")
        for place, name in ((0, start), (1, end if end in table.column_names else start)):
            known = times.timestamps(table.column(name)).to_numpy(zero_copy_only=False)
            found[place] = np.where(np.isnat(known), found[place], known)
    return np.array([found[0], found.max(axis=0)])


def _made(kind: Any, state: Mapping[str, Any]) -> Any:
    """An adapter; its class depends on what can be imported."""
    try:
        base = getattr(import_module("torchgeo.datasets"), kind.base)
    except (ImportError, RuntimeError):  # the latter comes from torchvision beside another torch
        found = object.__new__(kind)
    else:
        found = object.__new__(new_class(kind.__name__, (kind, base)))
    vars(found).update(state)
    return found


class _Adapter:
    """What samples by number and by place have in common."""

    base: str
    data: Any
    fields: Mapping[str, str | None]
    transforms: Transforms | None
    to: Kind

    def __reduce__(self) -> tuple[Any, ...]:
        kind = _Geo if isinstance(self, _Geo) else _NonGeo
        return _made, (kind, vars(self))

    def _given(self, sample: dict[str, Any]) -> Any:
        for name in _TYPES.keys() & sample.keys():
            array = np.ascontiguousarray(sample[name], _TYPES[name])
            is_plane = name == "mask" and array.ndim == 3 and len(array) == 1
            sample[name] = array[0] if is_plane else array
        sample = converted(sample, self.to)
        return sample if self.transforms is None else self.transforms(sample)

    def _of(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The images of a sample by the names that TorchGeo has for them."""
        wanted = {name: field for name, field in self.fields.items() if field is not None}
        for field in wanted.values():
            if field not in sample:
                known = ", ".join(map(shown, sample))
                raise InvalidInputError(f"samples have no {shown(field)}", expected=known)
        return {name: sample[field] for name, field in wanted.items()}


class _NonGeo(_Adapter):
    """Samples by number."""

    base = "NonGeoDataset"

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):  # ends a loop over the samples
            raise NotThereError("no such sample", found=index, expected=f"< {len(self)}")
        return self._given(self._of(self.data[index]))


class _Geo(_Adapter):
    """Samples by place and time."""

    base = "GeoDataset"
    index: Any
    names: Any
    affine: Any
    size: Any

    def __len__(self) -> int:
        return len(self.index)

    @property
    def crs(self) -> Any:
        """The CRS of index and queries."""
        return self.index.crs

    @crs.setter
    def crs(self, crs: Any) -> None:
        self.index = self.index.to_crs(crs)

    @property
    def res(self) -> tuple[float, float]:
        """Width and height of a pixel in units of the CRS."""
        return self._res

    @res.setter
    def res(self, res: float | tuple[float, float]) -> None:
        x, y = res if isinstance(res, tuple | list) else (res, res)
        self._res = x, y

    @property
    def bounds(self) -> tuple[slice, slice, slice]:
        """Range of x, y and time, with their steps."""
        west, south, east, north = self.index.total_bounds
        first, last = self.index.index.left.min(), self.index.index.right.max()
        x, y = self.res
        return slice(west, east, x), slice(south, north, y), slice(first, last, 1)

    def __getitem__(self, query: Any) -> Any:
        given = query if isinstance(query, tuple) else (query,)
        pairs = zip_longest(given, self.bounds, fillvalue=slice(None))
        x, y, t = (_filled(one, default) for one, default in pairs)
        # Neighbours that reach in by less than half a pixel have no nearest pixel here.
        right, up = x.step / 2, y.step / 2
        box = shapely.box(x.start + right, y.start + up, x.stop - right, y.stop - up)
        # By their bounds, as samplers have them: the corners of turned outlines are empty.
        near = np.sort(self.index.sindex.query(box))
        when = self.index.index[near]
        near = near[(when.left <= t.stop) & (when.right >= t.start)][:: t.step]
        if not len(near):
            raise NotThereError(
                "no sample at this place and time", found=str(query), expected=str(self.bounds)
            )
        rows = self.index["row"].to_numpy()[near].tolist()
        samples = [self._of(sample) for sample in self.data.fetch(rows)]
        grid = (x.start, x.step, 0, y.stop, 0, -y.step), self.crs.to_wkt()
        shape = (round((y.stop - y.start) / y.step), round((x.stop - x.start) / x.step))
        sample = {"crs": self.crs, "bounds": query}
        for name in samples[0]:
            sample[name] = self._mosaic([one[name] for one in samples], rows, grid, shape)
        return self._given(sample)

    def _mosaic(self, images: Sequence[Any], rows: Sequence[int], grid: Any, shape: Any) -> Any:
        """Images on a grid: of those that have a value at a pixel, the first."""
        whole = np.zeros((len(images[0].pixels), *shape), images[0].pixels.dtype)
        filled = np.zeros(whole.shape, np.bool_)
        for image, row in zip(images, rows, strict=True):
            if image.pixels.shape[-2:] != tuple(self.size[row]):
                raise InvalidInputError(
                    "a field is not a whole image of its sample",
                    found=image.pixels.shape,
                    expected=f"{self.size[row].tolist()} rows and columns",
                )
            place = self.affine[row].tolist(), self.names[row]
            pixels = nearest(image.pixels, place, grid, shape)
            masks = nearest(image.masks().astype(np.uint8), place, grid, shape)
            new = (masks > 0) & ~filled
            whole[new] = pixels[new]
            filled |= new
        return whole


def _filled(given: slice, default: slice) -> slice:
    """A range with what is not given from another one."""
    pairs = ((getattr(one, name) for one in (given, default)) for name in ("start", "stop", "step"))
    return slice(*(other if one is None else one for one, other in pairs))
