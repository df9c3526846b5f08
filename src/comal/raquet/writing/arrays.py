"""Arrays of xarray as rasters, by duck typing: xarray itself is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError, InvalidInputError, translated
from comal.raquet.spec import Number
from comal.raquet.times import TimeAxis, time_axis
from comal.raster.describing import (
    BandInfo,
    RasterInfo,
    crs_wkt,
    no_crs,
    no_variable,
)
from comal.raster.opening import refuse_complex
from comal.raster.values import whole_nodata

_X = ("x", "lon", "longitude", "easting", "projection_x_coordinate")
_Y = ("y", "lat", "latitude", "northing", "projection_y_coordinate")
_TIME = ("time", "t", "valid_time")
_REGULAR = 1e-3
_NO_NUMBER: dict[type[BaseException], type[ComalError]] = dict.fromkeys(
    (ValueError, TypeError, IndexError, OverflowError), InvalidInputError
)


@dataclass(frozen=True, slots=True)
class LazyArrays:
    """Bands as arrays with rows and columns, whose windows are read on request."""

    arrays: tuple[Any, ...]
    dtypes: tuple[str, ...]

    def read(self, bands: tuple[int, ...], rows: slice, columns: slice) -> npt.NDArray[Any]:
        """Pixels (bands, rows, columns); bands are numbered from 1."""
        found = [
            np.asarray(self.arrays[index - 1][rows, columns].values).astype(
                self.dtypes[index - 1], copy=False
            )
            for index in bands
        ]
        return np.stack(found)


@dataclass(frozen=True, slots=True)
class Sources:
    """The rasters to convert, for each time step."""

    steps: tuple[tuple[RasterInfo, ...], ...]
    names: tuple[str, ...] | None
    """Names of the bands in the source."""
    time: TimeAxis | None

    @property
    def first(self) -> RasterInfo:
        """The raster that defines the bands."""
        return self.steps[0][0]

    @property
    def every(self) -> tuple[RasterInfo, ...]:
        """All rasters."""
        return tuple(info for step in self.steps for info in step)


def is_array(source: object) -> bool:
    """Whether the source is a DataArray or a Dataset."""
    return hasattr(source, "dims") and hasattr(source, "coords") and hasattr(source, "isel")


def _variable_in(source: Any, variable: str | None) -> Any:
    """The requested variable of a Dataset; the source if none is requested."""
    if variable is None:
        return source
    known = source.data_vars if hasattr(source, "data_vars") else {source.name: source}
    if variable not in known:
        raise no_variable("array", variable, [str(name) for name in known])
    found = known[variable]
    # In a Dataset of its own, the band takes the name of the variable.
    return found.to_dataset(name=variable) if hasattr(found, "to_dataset") else found


def array_series(source: Any, variable: str | None, crs: Any = None) -> Sources:
    """A DataArray or a Dataset, or one `variable` of it, as rasters.

    Each variable of a Dataset that has rows and columns is a band; so is each entry of a dimension
    other than rows, columns and time.
    """
    source = _variable_in(source, variable)
    variables = _variables(source)
    first = variables[0]
    where = str(getattr(first, "name", None) or "array")
    x_dim, y_dim = _dimension(first, _X, "X"), _dimension(first, _Y, "Y")
    if x_dim is None or y_dim is None:
        raise InvalidInputError(
            "the array has no spatial dimensions", where=where, found=first.dims, expected="y and x"
        )
    t_dim = _time_dimension(first, x_dim, y_dim)
    layers = [layer for one in variables for layer in _layers(one, (t_dim, y_dim, x_dim))]
    wkt = _crs(source, first, crs, (x_dim, y_dim), where)
    width, height = first.sizes[x_dim], first.sizes[y_dim]
    (x0, dx), (y0, dy) = _axis(first, x_dim, where), _axis(first, y_dim, where)
    refuse_complex((str(array.dtype) for _, array in layers), where)
    bands = tuple(_band(array) for _, array in layers)
    counts = range(first.sizes[t_dim]) if t_dim is not None else (None,)
    steps = []
    for step in counts:
        arrays = tuple(
            (array if step is None else array.isel({t_dim: step})).transpose(y_dim, x_dim)
            for _, array in layers
        )
        steps.append(
            RasterInfo(
                origin=LazyArrays(arrays, tuple(band.dtype for band in bands)),
                where=where,
                width=width,
                height=height,
                transform=(dx, 0.0, x0, 0.0, dy, y0),
                crs=wkt,
                bands=bands,
            )
        )
    axis = None
    if t_dim is not None:
        coordinate = first.coords[t_dim]
        axis = time_axis(
            list(np.atleast_1d(coordinate.values)), {**coordinate.encoding, **coordinate.attrs}
        )
    names = tuple(name for name, _ in layers) if hasattr(source, "data_vars") else None
    return Sources(tuple((info,) for info in steps), names, axis)


def _variables(source: Any) -> list[Any]:
    if not hasattr(source, "data_vars"):
        return [source]
    found = [
        one
        for one in source.data_vars.values()
        if _dimension(one, _X, "X") is not None and _dimension(one, _Y, "Y") is not None
    ]
    if not found:
        raise InvalidInputError("no variable has rows and columns", found=list(source.data_vars))
    spaces = {
        tuple(one.sizes[_dimension(one, names, axis)] for names, axis in ((_X, "X"), (_Y, "Y")))
        for one in found
    }
    if len(spaces) > 1:
        raise InvalidInputError("the variables lie on different grids", found=len(spaces))
    return found


def _dimension(array: Any, names: tuple[str, ...], axis: str) -> Any:
    for dim in array.dims:
        attrs = array.coords[dim].attrs if dim in array.coords else {}
        if str(dim).lower() in names or attrs.get("axis") == axis:
            return dim
    return None


def _time_dimension(array: Any, *space: Any) -> Any:
    for dim in array.dims:
        if dim in space or dim not in array.coords:
            continue
        coordinate = array.coords[dim]
        named = str(dim).lower() in _TIME or coordinate.attrs.get("axis") == "T"
        if named or np.issubdtype(coordinate.dtype, np.datetime64):
            return dim
    return None


def _layers(array: Any, known: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """A variable as arrays without dimensions other than space and time."""
    others = [dim for dim in array.dims if dim not in known]
    if not others:
        return [(str(array.name or "band_1"), array)]
    if len(others) > 1:
        raise InvalidInputError(
            "the array has too many dimensions", found=array.dims, expected="time, band, y, x"
        )
    (dim,) = others
    return [
        (f"{array.name or 'band'}_{index + 1}", array.isel({dim: index}))
        for index in range(array.sizes[dim])
    ]


def _crs(source: Any, first: Any, given: Any, dims: tuple[Any, Any], where: str) -> str:
    for holder in (first, source):
        found = getattr(getattr(holder, "rio", None), "crs", None)
        if found:
            return crs_wkt(found.to_wkt(), where)
        grid = holder.coords.get("spatial_ref")
        attrs = {**holder.attrs, **(grid.attrs if grid is not None else {})}
        for key in ("crs_wkt", "spatial_ref", "crs"):
            if isinstance(attrs.get(key), str):
                return crs_wkt(attrs[key], where)
    if given is not None:
        return crs_wkt(given, where)
    units = [first.coords[dim].attrs.get("units", "") for dim in dims if dim in first.coords]
    geographic = [str(unit).startswith("degree") for unit in units]
    names = tuple(str(dim).lower() for dim in dims)
    if (geographic and all(geographic)) or names in {("lon", "lat"), ("longitude", "latitude")}:
        return crs_wkt("EPSG:4326", where)  # CF conventions, 4.1 and 4.2
    raise no_crs(where)


def _axis(array: Any, dim: Any, where: str) -> tuple[float, float]:
    """Outer edge of the first pixel, and the pixel size, from pixel centres."""
    if dim not in array.coords:
        raise InvalidInputError("a dimension has no coordinates", where=f"{where}, {dim}")
    with translated(_NO_NUMBER, "the coordinates are not numbers", where=f"{where}, {dim}"):
        centres = np.asarray(array.coords[dim].values, np.float64)
    if len(centres) < 2:
        raise InvalidInputError(
            "the size of a single pixel is unknown",
            where=f"{where}, {dim}",
            expected="two coordinates or more",
        )
    step = float((centres[-1] - centres[0]) / (len(centres) - 1))
    ideal = centres[0] + step * np.arange(len(centres))
    if not np.isfinite(step) or step == 0 or np.abs(centres - ideal).max() > _REGULAR * abs(step):
        raise InvalidInputError("the coordinates are not regular", where=f"{where}, {dim}")
    return float(centres[0]) - step / 2, step


def _band(array: Any) -> BandInfo:
    dtype = np.dtype(array.dtype).newbyteorder("=")
    name = "uint8" if dtype == np.bool_ else dtype.name
    attrs: Mapping[str, Any] = array.attrs
    with translated(
        _NO_NUMBER,
        "an attribute of the array is not the number that it should be",
        where=array.name,
    ):
        return BandInfo(
            dtype=name,
            nodata=_nodata(array, name),
            description=_text(attrs.get("long_name")),
            unit=_text(attrs.get("units")),
            scale=_number(attrs.get("scale_factor")),
            offset=_number(attrs.get("add_offset")),
        )


def _nodata(array: Any, dtype: str) -> Number | None:
    is_float = np.dtype(dtype).kind == "f"
    # xarray has moved the value of floats to the encoding when it put NaN in its place.
    for told in (array.attrs,) if is_float else (array.attrs, array.encoding):
        for key in ("_FillValue", "missing_value"):
            if told.get(key) is not None:
                return whole_nodata(np.asarray(told[key]).ravel()[0].item(), dtype)
    if is_float:
        return float("nan")  # xarray's value for missing pixels
    value = getattr(getattr(array, "rio", None), "nodata", None)
    return None if value is None else whole_nodata(np.asarray(value).item(), dtype)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    return None if value is None else float(np.asarray(value).ravel()[0])
