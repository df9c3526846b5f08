"""A pixel has one value: whether and which, every view of a raster says the same.

A case is a type, a nodata value, an alpha band or a mask, and where the raster lies (`PLACES`, each
of which makes a file and says what its pixels are): tiles of another writer in each layout, on the
grid, warped, rotated, across the antimeridian, beyond 85 degrees. numpy says which pixels of a
source have a value; rasterio warps their numbers, in one piece, to the grid of the file. Every view
is asked for the pixels of each band, or for their count, minimum, maximum and mean.

Some views are cheap and are asked in each case, others one kind in each (`KINDS`). The ordinary run
has each combination of `TOGETHER` once; ``COMAL_FULL_SWEEP=1`` takes all cases and asks all views.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import astuple, dataclass, replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import rasterio
import rasterio.shutil
import shapely
import xarray
from PIL import Image
from rasterio.enums import Resampling
from rasterio.warp import reproject

from comal import grid, raquet, raster, server, tapalcatl
from comal.convert.raquet_tapalcatl import draw
from comal.raquet import spec
from tests.raquet import build
from tests.raquet.writing.sources import on_grid
from tests.raster.rasters import write as write_tiff
from tests.server.asking import ask

# rasterio multiplies its own transforms in a way that affine has given up.
pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    # ... and compares nodata values in the type of a band.
    pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:the raster reaches beyond"),
]

FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))
BLOCK, ZOOM, FINE = 16, 5, 7
"""Pixels of a tile's side, and zooms: of what lies on the grid, and of what is warped to it."""
LEFT, TOP, ROWS, COLUMNS = 3, 5, 25, 41
"""The source within the block of 3 x 2 tiles that holds it, in pixels, where it is not warped."""
INSIDE = np.s_[TOP : TOP + ROWS, LEFT : LEFT + COLUMNS]
FIRST = (17, 9)
"""Column and row of the first of these tiles."""
NAMES = ("b1", "b2")
Values = Any
"""Masked array (bands, rows, columns): the pixels of the tiles, masked where there is no value."""

DTYPES = spec.DTYPES
KINDS = {
    **dict.fromkeys(("sql", "ST_RegionStats", "geotiff", "cog"), "tables"),
    **dict.fromkeys(("xarray", "xarray as stored"), "tables"),
    **dict.fromkeys(("npy", "png", "/statistics", "formula", "draw", "preview"), "server"),
}
"""Kinds of the views that cost most."""
ASKED = ("all",) if FULL else ("tables", "server")
TOGETHER = (
    ("nodata", "side", "asked"),
    ("side", "place", "asked"),
    ("nodata", "place"),
    ("dtype", "way"),
    ("dtype", "asked"),
)
NODATA = ("none", "zero", "max", "nan", "out of range", "per band")
SIDES = ("neither", "alpha", "mask")
STORED: dict[str, Any] = {
    "stored": {"nested": True},
    "flat": {"nested": False},
    "interleaved": {"nested": True, "interleaved": True},
}
"""Layouts of tiles that pyarrow wrote."""


@dataclass(frozen=True)
class Case:
    """One row of the matrix."""

    dtype: str
    nodata: str
    side: str
    place: str
    asked: str = "all"
    """The kind of the dear views that are asked, or all."""

    def asks(self, view: str) -> bool:
        """Whether a view is asked."""
        return self.asked in ("all", KINDS.get(view, self.asked))

    @property
    def way(self) -> str:
        """How pixels come into the file; layouts say where bytes stand, whatever their type."""
        if self.place in STORED:
            return "stored"
        return "warped" if self.place in WARPED else self.place

    @property
    def nodata_of(self) -> tuple[Any, Any]:
        """The nodata value of each band."""
        kind, highest = np.dtype(self.dtype), highest_of(self.dtype)
        # As a float, too: other languages write the least int64 rounded.
        beyond = 1e300 if self.dtype in {"float16", "float32"} else -(2**63) - 4096
        one: Any = {
            "none": None,
            "zero": 0,
            "max": highest,
            "nan": float("nan"),
            "out of range": float(beyond) if kind.kind == "f" else beyond,
            "per band": 0,
        }[self.nodata]
        return one, highest if self.nodata == "per band" else one

    @property
    def is_possible(self) -> bool:
        """Whether its place has it: GDAL has no float16, and nodata of 64 bits as a float alone."""
        if self.place in STORED:
            return True
        wrong = set()
        if self.dtype in {"int64", "uint64"}:
            wrong = {"max", "nan", "out of range", "per band"}
        elif self.place == "aligned":  # a GeoTIFF refuses what does not fit
            wrong = {"out of range"} if self.dtype[0] == "f" else {"out of range", "nan"}
        return self.dtype != "float16" and self.nodata not in wrong


@dataclass(frozen=True)
class Made:
    """A file, and what its pixels are."""

    case: Case
    path: Path
    values: Values
    """Of the bands `NAMES` in all tiles of a block."""
    source: Path | None = None
    """The GeoTIFF that it was made of, where its pixels are those of the file."""
    zoom: int = ZOOM
    first: tuple[int, int] = FIRST
    """Column and row of the first tile of the block; columns count on across the antimeridian."""
    inside: Any = INSIDE
    """Rows and columns of the block that the raster reaches."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of pixels."""
        return tuple(self.values.shape[1:])

    @property
    def places(self) -> dict[tuple[int, int, int], Any]:
        """All tiles, and where their pixels are."""
        rows, columns = (size // BLOCK for size in self.shape)
        return {
            (self.zoom, (self.first[0] + x) % (1 << self.zoom), self.first[1] + y): np.s_[
                ..., y * BLOCK : (y + 1) * BLOCK, x * BLOCK : (x + 1) * BLOCK
            ]
            for y, x in product(range(rows), range(columns))
        }

    @property
    def box(self) -> tuple[float, float, float, float]:
        """West, south, east, north of all tiles; east may lie beyond 180."""
        (x, y), (rows, columns) = self.first, (size // BLOCK for size in self.shape)
        across = (1 << self.zoom) / 360
        north, south = (float(grid.xy_to_lonlat(0, at, self.zoom)[1]) for at in (y, y + rows))
        return x / across - 180, south, (x + columns) / across - 180, north

    def put_together(self, parts: Iterator[Any]) -> Values:
        """Tiles as one array."""
        whole: Any = None
        for place, part in zip(self.places.values(), parts, strict=True):
            if part is not None and whole is None:
                whole = empty((*part.shape[:-2], *self.shape), part.dtype)
            if part is not None:
                whole[place] = part
        return whole


def highest_of(dtype: str) -> Any:
    """The largest number of a type; of float64 one whose squares can be summed up."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return float(min(np.finfo(kind).max, np.finfo("float32").max))
    return int(np.iinfo(kind).max)


def pixels_of(case: Case) -> Any:
    """Two bands with all that is special, in all combinations of both."""
    kind = np.dtype(case.dtype)
    rng = np.random.default_rng(5)
    found = rng.integers(1, 100, (2, ROWS, COLUMNS)).astype(kind)
    special = [0, highest_of(case.dtype), 1]
    if kind.kind == "f":
        special += [np.nan, np.inf, -np.inf]
    for at, (one, other) in enumerate(product(special, special)):
        for row in (1, 12, 24):
            found[:, row, at] = one, other
    return found


def hidden_of(case: Case) -> Any:
    """Where alpha or a mask is 0; there is alpha of 1 to 255 elsewhere."""
    shown = np.random.default_rng(6).integers(1, 256, (ROWS, COLUMNS)).astype("uint8")
    shown[12, :38] = 0
    shown[3:6, 20:] = 0
    return shown if case.side != "neither" else np.full_like(shown, 255)


def without(case: Case, pixels: Any, shown: Any) -> Values:
    """The law once more, in the words of numpy, and padding around it."""
    whole = empty((2, 2 * BLOCK, 3 * BLOCK), case.dtype)
    for band, (plane, nodata) in enumerate(zip(pixels, case.nodata_of, strict=True)):
        mask = (shown == 0) | ~np.isfinite(plane.astype(float))
        if nodata is not None:
            mask |= np.array([one == nodata for one in plane.ravel().tolist()]).reshape(mask.shape)
        place = np.s_[band, TOP : TOP + ROWS, LEFT : LEFT + COLUMNS]
        whole[place] = np.ma.MaskedArray(plane, mask)
    return whole


# -- where the raster lies: each place makes a file ------------------------------------------------


def stored(case: Case, folder: Path) -> Made:
    """Tiles that pyarrow wrote; a mask is a tile without pixels."""
    pixels, shown = pixels_of(case), hidden_of(case)
    fills = [0 if one is None or not held(one, case.dtype) else one for one in case.nodata_of]
    bands = [(name, case.dtype, nodata) for name, nodata in zip(NAMES, case.nodata_of, strict=True)]
    planes = [padded(plane, fill, case.dtype) for plane, fill in zip(pixels, fills, strict=True)]
    layout = STORED[case.place]
    if case.side == "alpha":
        kind = case.dtype if layout.get("interleaved") else "uint8"
        bands.append(("alpha", kind, None))
        planes.append(padded(shown.astype(kind), 0, kind))
    tiles: dict[Any, Any] = {}
    for y, x in product(range(2), range(3)):
        place = np.s_[y * BLOCK : (y + 1) * BLOCK, x * BLOCK : (x + 1) * BLOCK]
        tiles[ZOOM, FIRST[0] + x, FIRST[1] + y] = [plane[place] for plane in planes]
    values = without(case, pixels, shown if case.side == "alpha" else np.ones_like(shown))
    if case.side == "mask":
        tiles[ZOOM, FIRST[0], FIRST[1]] = [None] * len(bands)
        del tiles[ZOOM, FIRST[0] + 2, FIRST[1] + 1]
        values[:, :BLOCK, :BLOCK] = np.ma.masked
        values[:, BLOCK:, 2 * BLOCK :] = np.ma.masked
    west, north = lonlat(LEFT, TOP)
    east, south = lonlat(LEFT + COLUMNS, TOP + ROWS)
    said: list[dict[str, Any]] = [
        {"name": name, "type": kind, "nodata": str(nodata)} for name, kind, nodata in bands
    ]
    if case.side == "alpha":
        said[2]["colorinterp"] = "alpha"
    if case.place != "flat":
        said[0] |= {"scale": 0.5, "offset": 16}
    custom = {"comal": {"source": {"bounds": [west, south, east, north]}}}
    plan = build.Plan(bands=bands, change={"bands": said, "custom": custom}, **layout)
    return Made(case, build.write(folder / "a.parquet", tiles, plan), values)


def numbers_of(case: Case) -> dict[str, int]:
    """The bands of such a GeoTIFF, by the names that they get."""
    names = [*NAMES, "alpha"] if case.side == "alpha" else NAMES
    return {name: number for number, name in enumerate(names, 1)}


def with_side(case: Case, pixels: Any, shown: Any) -> dict[str, Any]:
    """What a GeoTIFF is written with: pixels, and the alpha band or the mask beside them."""
    if case.side == "alpha":
        planes = [*pixels, shown.astype(case.dtype)]
        return {"pixels": planes, "interpreted": ("gray", "undefined", "alpha")}
    return {"pixels": pixels, "mask": shown if case.side == "mask" else None}


def aligned(case: Case, folder: Path) -> Made:
    """A GeoTIFF on the grid that comal wrote as RaQuet."""
    pixels, shown = pixels_of(case), hidden_of(case)
    source = folder / "a.tif"
    named: dict[str, Any] = {"column": FIRST[0] * BLOCK + LEFT, "row": FIRST[1] * BLOCK + TOP}
    nodata = dict(zip(NAMES, case.nodata_of, strict=True))
    per_band: dict[str, Any] = {"nodata": nodata} if case.nodata == "per band" else {}
    named |= {"pixel_zoom": ZOOM + 4, "nodata": None if per_band else nodata["b1"]}
    on_grid(source, **with_side(case, pixels, shown), **named)
    path = folder / "a.parquet"
    bands = numbers_of(case)
    raquet.write(source, path, bands=bands, zoom=ZOOM, min_zoom=ZOOM, block_size=BLOCK, **per_band)
    return Made(case, path, without(case, pixels, shown), None if per_band else source)


WARPED: dict[str, tuple[str, tuple[float, ...]]] = {
    "warped": ("EPSG:32632", (200_000, 12_000, 0, 5_900_000, 0, -12_000)),
    "rotated": ("EPSG:3035", (4_000_000, 9_000, 5_000, 3_500_000, 4_500, -10_000)),
    "dateline": ("EPSG:4326", (176.03, 0.18, 0, 20.02, 0, -0.18)),
    "pole": ("EPSG:4326", (-20.03, 0.2, 0, 86.01, 0, -0.1)),
}


def warped(case: Case, folder: Path) -> Made:
    """A raster elsewhere; GDAL moves the numbers of its pixels, and with them what numpy says."""
    pixels, shown = pixels_of(case), hidden_of(case)
    crs, affine = WARPED[case.place]
    source = write_tiff(folder / "a.tif", crs=crs, affine=affine, **with_side(case, pixels, shown))
    if case.nodata != "none":
        source = with_nodata(source, case.nodata_of)
    path = folder / "a.parquet"
    bands = numbers_of(case)
    raquet.write(source, path, bands=bands, block_size=BLOCK, zoom=FINE, min_zoom=FINE - 1)
    assert raquet.check(path, level="full", statistics=True).counts == {}
    with raquet.open(path) as file:
        window, bounds = file.read(bands=list(NAMES)), file.bounds
    corner = ~grid_transform() * (window.transform[2], window.transform[5])
    (x, left), (y, top) = (divmod(round(one), BLOCK) for one in corner)
    numbers = moved(source, window)
    valid = ~np.ma.getmaskarray(without(case, pixels, shown))[:, *INSIDE]
    at = np.maximum(numbers - 1, 0)
    there = valid.reshape(2, -1)[:, at] & (numbers > 0)
    rows, columns = numbers.shape
    block = (-(-size // BLOCK) * BLOCK for size in (top + rows, left + columns))
    values = empty((2, *block), case.dtype)
    values[:, top : top + rows, left : left + columns] = np.ma.MaskedArray(
        pixels.reshape(2, -1)[:, at], ~there
    )
    return Made(case, path, values, zoom=FINE, first=(x, y), inside=reached(bounds, (x, y)))


def reached(bounds: tuple[float, ...], first: tuple[int, int]) -> Any:
    """Rows and columns of pixels that a box of degrees touches, counted from a tile on."""
    west, south, east, north = bounds
    across = (BLOCK << FINE) / 360
    rows = [grid.lonlat_to_xy(0, lat, FINE)[1] * BLOCK - first[1] * BLOCK for lat in (north, south)]
    ends = (west + 180) * across, (east + 180 + 360 * (east < west)) * across
    columns = [end - first[0] * BLOCK for end in ends]
    low, high = (np.floor(np.round([*rows, *columns], 6)), np.ceil(np.round([*rows, *columns], 6)))
    return np.s_[int(low[0]) : int(high[1]), int(low[2]) : int(high[3])]


def grid_transform() -> Any:
    """From columns and rows of pixels at the zoom `FINE` to Web Mercator."""
    half = np.pi * 6378137.0
    pixel = 2 * half / (BLOCK << FINE)
    return rasterio.Affine(pixel, 0, -half, 0, -pixel, half)


def moved(source: Path, window: Any) -> Any:
    """The number of the pixel, from 1 on, that each pixel of a window is; 0 for none."""
    target = np.zeros(window.data.shape[1:])
    with rasterio.open(source) as dataset:
        reproject(
            np.arange(1, ROWS * COLUMNS + 1, dtype="float64").reshape(ROWS, COLUMNS),
            target,
            src_transform=dataset.transform,
            src_crs=dataset.crs,
            dst_transform=window.transform,
            dst_crs="EPSG:3857",
            resampling=Resampling.nearest,
        )
    return target.astype(int)


def with_nodata(source: Path, nodata: tuple[Any, Any]) -> Path:
    """A VRT, which declares for each band what it likes."""
    path = source.with_suffix(".vrt")
    with rasterio.open(source) as dataset:
        rasterio.shutil.copy(dataset, path, driver="VRT")
    first, *bands = path.read_text().split("<VRTRasterBand ")
    for at, value in enumerate(nodata):
        start, end = bands[at].split(">", 1)
        bands[at] = f"{start}><NoDataValue>{value!r}</NoDataValue>{end}"
    path.write_text("<VRTRasterBand ".join([first, *bands]))
    return path


PLACES: dict[str, Callable[[Case, Path], Made]] = {
    **dict.fromkeys(STORED, stored),
    "aligned": aligned,
    **dict.fromkeys(WARPED, warped),
}


def held(nodata: Any, dtype: str) -> bool:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return bool(np.isnan(nodata) or abs(nodata) <= float(np.finfo(kind).max))
    return bool(np.iinfo(kind).min <= nodata <= np.iinfo(kind).max)  # false for NaN


def empty(shape: tuple[int, ...], dtype: Any) -> Values:
    """Pixels that have no value yet."""
    return np.ma.MaskedArray(np.zeros(shape, dtype), np.ones(shape, bool))


def padded(plane: Any, fill: Any, dtype: str) -> Any:
    whole = np.full((2 * BLOCK, 3 * BLOCK), fill, dtype)
    whole[TOP : TOP + ROWS, LEFT : LEFT + COLUMNS] = plane
    return whole


def lonlat(column: float, row: float) -> tuple[float, float]:
    x, y = FIRST[0] + column / BLOCK, FIRST[1] + row / BLOCK
    lon, lat = grid.xy_to_lonlat(x, y, ZOOM)
    return float(lon), float(lat)


# -- views: pixels ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Views:
    """Who is asked: the file, SQL and the server."""

    file: Any
    connection: Any
    app: Any


@contextmanager
def viewed(made: Made) -> Iterator[Views]:
    sql = raquet.connect(made.path) if made.case.asks("sql") else nullcontext()
    with raquet.open(made.path) as file, sql as connection:
        yield Views(file, connection, server.app({"r": file}, log="none"))


def points(made: Made, views: Views) -> Any:
    row, column = np.indices(made.shape)
    x, y = made.first[0] + (column + 0.5) / BLOCK, made.first[1] + (row + 0.5) / BLOCK
    lon, lat = grid.xy_to_lonlat(x.ravel() % (1 << made.zoom), y.ravel(), made.zoom)
    return views.file.points(lon, lat, list(NAMES), masked=True).reshape(made.values.shape)


def read(made: Made, views: Views) -> Any:
    west, south, east, north = made.box
    box = west, south, east - 360 if east > 180 else east, north
    return views.file.read(box, bands=list(NAMES), masked=True).data


def scaled(made: Made, views: Views) -> Any:
    corner = made.first[0] * BLOCK, made.first[1] * BLOCK
    rows, columns = made.shape
    if corner[0] + columns > BLOCK << made.zoom:
        return None  # a window of pixels ends at the antimeridian
    found = views.file.window(made.zoom, *corner, columns, rows, list(NAMES), scaled=True)
    return unscaled(views.file, found.data)


def of_xarray(made: Made, views: Views) -> Any:
    with xarray.open_dataset(made.path, engine="raquet") as found:
        return in_block(made, unscaled(views.file, [found[name].values for name in NAMES]))


def of_xarray_as_stored(made: Made, views: Views) -> Any:
    """Numbers as they are in the file; what has no value holds the fill value, if there is one."""
    with xarray.open_dataset(made.path, engine="raquet", mask_and_scale=False) as found:
        planes = [found[name].values for name in NAMES]
        fills = [found[name].attrs.get("_FillValue") for name in NAMES]
    assert {plane.dtype for plane in planes} == {np.dtype(made.case.dtype)}
    hidden = [np.isnan(plane) | (plane == fill) for plane, fill in zip(planes, fills, strict=True)]
    whole = in_block(made, np.ma.MaskedArray(planes, hidden))
    for plane, fill, values in zip(whole, fills, made.values, strict=True):
        if fill is None:
            plane.mask = values.mask
    return whole


def unscaled(file: Any, planes: Any) -> Values:
    """Physical values as the numbers that stand for them."""
    found = [
        (np.asarray(plane, float) - (band.offset or 0)) / (band.scale or 1)
        for plane, band in zip(planes, file.bands, strict=False)
    ]
    return np.ma.masked_invalid(found)


def in_sql(file: Any, name: str, call: str, more: str = "") -> str:
    """A function of SQL on a band, beside the alpha band where there is one."""
    band, others = name, ""
    if file.metadata.interleaved:
        band, others = "pixels", f", name := '{name}'"
    elif file.bands[-1].colorinterp == "alpha":
        others = f", alpha := {file.bands[-1].name}"
    return f"{call}({band}, block, $box, metadata{more}{others})"


def of_sql(made: Made, views: Views) -> Any:
    found = np.full(made.values.shape, np.nan)
    clips = (in_sql(views.file, name, "ST_ClipMask", ", 'NaN'::DOUBLE") for name in NAMES)
    query = f"SELECT z, x, y, [{', '.join(clips)}] AS v FROM raster JOIN tiles USING (block)"
    for row in views.connection.sql(query, box=area(made)).to_pylist():
        for band, values in zip(found, row["v"], strict=True):
            if values is not None:
                place = made.places[row["z"], row["x"], row["y"]]
                band[place] = np.reshape(values, (BLOCK, BLOCK))
    return np.ma.masked_invalid(found)


def of_geotiff(made: Made, views: Views) -> Any:
    """Each band by itself, without the alpha band that hides it."""
    planes = []
    for name in NAMES:
        target = made.path.with_name(f"{name}.tif")
        raquet.to_geotiff(views.file, target, bands=[name])
        with rasterio.open(target) as dataset:
            planes.append(dataset.read(1, masked=True))
    return in_block(made, np.ma.stack(planes))


def of_cog(made: Made, views: Views) -> Any:
    """All bands together, with the alpha band."""
    one, other = made.case.nodata_of
    if np.dtype(made.case.dtype).kind in "iu" and (one != other or one in {2**64 - 1, 2**63 - 1}):
        return None  # refused: a GeoTIFF has one nodata value, and for rasterio it is a float
    target = made.path.with_name("cog.tif")
    raquet.to_cog(views.file, target)
    with rasterio.open(target) as dataset:
        return in_block(made, dataset.read([1, 2], masked=True))


def in_block(made: Made, found: Values) -> Values:
    """What may end with the raster, in the block of its tiles."""
    if found.shape == made.values.shape:
        return found
    whole = empty(made.values.shape, found.dtype)
    whole[:, *made.inside] = found
    return whole


def npy(made: Made, views: Views, more: str = "") -> Any:
    """Arrays of the server, with the mask behind them."""

    def one(band: int, tile: tuple[int, int, int]) -> Any:
        reply = ask(views.app, "/r/{}/{}/{}.npy?bidx={}{}".format(*tile, band, more))
        if reply.status == 404:
            return None
        data, mask = np.load(io.BytesIO(reply.body))
        return np.ma.MaskedArray(data, mask == 0)

    return np.ma.stack(
        [made.put_together(one(band, tile) for tile in made.places) for band in (1, 2)]
    )


PIXELS: dict[str, Callable[[Made, Views], Any]] = {
    "tile": lambda made, views: made.put_together(
        views.file.tile(*tile, list(NAMES), masked=True) for tile in made.places
    ),
    "tiles": lambda made, views: made.put_together(
        iter(views.file.tiles(list(made.places), list(NAMES), masked=True))
    ),
    "read": read,
    "scaled": scaled,
    "points": points,
    "xarray": of_xarray,
    "xarray as stored": of_xarray_as_stored,
    "sql": of_sql,
    "geotiff": of_geotiff,
    "cog": of_cog,
    "npy": npy,
}


# -- views: numbers --------------------------------------------------------------------------------


def area(made: Made) -> str:
    return str(shapely.to_wkt(shapely.box(*made.box), rounding_precision=-1))


def of_statistics(made: Made, views: Views) -> Any:
    names = ["count", "min", "max", "mean", "median", "variety"]
    return raquet.statistics(views.file, bands=list(NAMES), stats=names).to_pylist()


def of_zones(made: Made, views: Views) -> Any:
    names = ["count", "min", "max", "mean", "p25"]
    found = raquet.zonal(
        views.file, [shapely.box(*made.box)], bands=list(NAMES), stats=names, method="fractional"
    ).to_pylist()[0]
    return [{name: found[f"{band}_{name}"] for name in names[:4]} for band in NAMES]


def of_region(made: Made, views: Views, more: str = "") -> Any:
    calls = [f"{in_sql(views.file, name, 'ST_RegionStats', more)} {name}" for name in NAMES]
    query = f"SELECT {', '.join(calls)} FROM raster"
    (found,) = views.connection.sql(query, box=area(made)).to_pylist()
    return [{key: found[name][key] for key in ("count", "min", "max", "mean")} for name in NAMES]


def of_document(made: Made, views: Views) -> Any:
    """The statistics in the metadata, where there are any."""
    bands = [views.file.metadata.bands[at].statistics for at in range(2)]
    if None in bands:
        return None
    return [{key: getattr(band, key) for key in ("count", "min", "max", "mean")} for band in bands]


def of_server(made: Made, views: Views, more: str = "") -> Any:
    reply = ask(views.app, f"/r/statistics?bidx=1&bidx=2{more}")
    assert reply.status == 200, reply.body
    keys = ("count", "min", "max", "mean", "median")
    return [{key: band[key] for key in keys} for band in reply.json()["statistics"].values()]


def of_raster(made: Made, views: Views) -> Any:
    """Of the GeoTIFF that it came from, in the room that knows nothing of RaQuet."""
    if made.source is None:
        return None
    found = raster.band_stats(made.source)[:2]
    return [
        {
            "count": round(row[4] / 100 * ROWS * COLUMNS),
            **dict(zip(("min", "max", "mean"), row, strict=False)),
            "median": row[6],
        }
        for row in found
    ]


NUMBERS: dict[str, Callable[[Made, Views], Any]] = {
    "statistics": of_statistics,
    "zonal": of_zones,
    "ST_RegionStats": of_region,
    "document": of_document,
    "/statistics": of_server,
    "band_stats": of_raster,
}


# -- views: pictures, of one band and of both ------------------------------------------------------


def drawn(made: Made, views: Views, bands: list[int]) -> Any:
    """The static tiles of a map."""
    target = made.path.with_name(f"drawn{len(bands)}.zip")
    draw(made.path, target, bands=bands, stretch=(0, 100))
    with tapalcatl.open(target) as tiles:
        read = (tiles.tile(*tile) for tile in made.places)
        return made.put_together(picture_of(None if one is None else one.data) for one in read)


def served(made: Made, views: Views, bands: list[int]) -> Any:
    chosen = "&".join(f"bidx={band}" for band in bands)

    def one(tile: tuple[int, int, int]) -> Any:
        reply = ask(views.app, "/r/{}/{}/{}.png?rescale=0,100&{}".format(*tile, chosen))
        return picture_of(reply.body if reply.status == 200 else None)

    return made.put_together(one(tile) for tile in made.places)


def previewed(made: Made, views: Views, bands: list[int]) -> Any:
    found = picture_of(raquet.preview(views.file, bands=bands))
    whole = np.zeros(made.shape, bool)
    whole[made.inside] = found
    return whole


def previewed_source(made: Made, views: Views, bands: list[int]) -> Any:
    if made.source is None:
        return None
    whole = np.zeros(made.shape, bool)
    whole[made.inside] = picture_of(raster.preview(made.source, bands=tuple(bands)))
    return whole


def picture_of(png: bytes | None) -> Any:
    """Which pixels of a picture are seen."""
    if png is None:
        return None
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))[..., 3] > 0


PICTURES: dict[str, Callable[[Made, Views, list[int]], Any]] = {
    "draw": drawn,
    "png": served,
    "preview": previewed,
    "raster.preview": previewed_source,
}


# -- the law ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """All of them, or enough for each combination of `TOGETHER`."""
    every = [Case(*one) for one in product(DTYPES, NODATA, SIDES, PLACES, ASKED)]
    Random(1).shuffle(every)  # where several serve as well, not always the first
    possible = [case for case in every if case.is_possible]
    if FULL:
        yield from possible
        return
    chosen = [(axes, attrgetter(*axes)) for axes in TOGETHER]
    has = {case: {(axes, values(case)) for axes, values in chosen} for case in possible}
    missing = set().union(*has.values())
    for most in range(len(TOGETHER), 0, -1):
        for case, combinations in has.items():
            if len(combinations & missing) == most:
                missing -= combinations
                yield case


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: "-".join(astuple(case)))
def test_every_view_says_the_same(tmp_path: Path, case: Case) -> None:
    made = PLACES[case.place](case, tmp_path)
    mask = np.ma.getmaskarray(made.values)
    wrong = {}
    with viewed(made) as views:
        for name in filter(case.asks, PIXELS):
            wrong[name] = differing_pixels(PIXELS[name](made, views), made.values)
        for name in filter(case.asks, NUMBERS):
            wrong[name] = differing_numbers(NUMBERS[name](made, views), made.values)
        for name in filter(case.asks, PICTURES):
            look = PICTURES[name]
            wrong[f"{name} of one"] = differing(look(made, views, [1]), ~mask[0])
            wrong[f"{name} of both"] = differing(look(made, views, [1, 2, 1]), ~mask.all(axis=0))
        if case.asks("formula"):
            found = ask(views.app, "/r/statistics?expression=b1*0%2Bb2*0").json()["statistics"]
            wrong["formula"] = found["b1*0+b2*0"]["count"] - (~mask.any(axis=0)).sum()
    assert {name: one for name, one in wrong.items() if one} == {}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("declared", ["none", "zero"])
def test_another_nodata_value_takes_the_place_of_the_declared_one_only(
    tmp_path: Path, declared: str, side: str
) -> None:
    """Alpha, padding and absent tiles are what they are, in the server and in SQL."""
    truth = np.ma.masked_equal(stored(Case("int16", "none", side, "stored"), tmp_path).values, 7)
    made = stored(Case("int16", declared, side, "stored"), tmp_path)
    with viewed(made) as views:
        other = replace(views, file=views.file.with_nodata(7))
        assert differing_pixels(read(made, other), truth) is None
        assert differing_pixels(npy(made, views, "&nodata=7"), truth) is None
        assert differing_numbers(of_server(made, views, "&nodata=7"), truth) is None
        assert differing_numbers(of_region(made, views, ", 7"), truth) is None
        told = ask(views.app, "/r/statistics?bidx=1&bins=64&nodata=7").json()["statistics"]["b1"]
        assert sum(told["histogram"][0]) == truth[0].count()
        where = np.argwhere((truth.data[0] == 7) & ~np.ma.getmaskarray(truth[1]))[0]
        lon, lat = lonlat(where[1] + 0.5, where[0] + 0.5)
        assert ask(views.app, f"/r/point/{lon},{lat}?nodata=7").json()["values"][0] is None
        assert ask(views.app, f"/r/point/{lon},{lat}").json()["values"][0] == 7
        clip = f"SELECT {in_sql(views.file, 'b1', 'ST_Clip', ', 7')} FROM raster"
        values = views.connection.sql(clip, box=area(made)).column(0).to_pylist()
        assert sorted(v for one in values for v in one or ()) == sorted(truth[0].compressed())


def differing_pixels(found: Any, values: Values) -> str | None:
    if found is None:
        return None
    mask = np.ma.getmaskarray(values)
    told = differing(~np.ma.getmaskarray(found), ~mask)
    if told is None and not (found.data.astype(float) == values.data.astype(float))[~mask].all():
        return "values"
    return told


def differing(found: Any, valid: Any) -> str | None:
    """How many pixels count that should not, and the other way round."""
    if found is None or (found == valid).all():
        return None
    return f"{(found & ~valid).sum()} too many, {(valid & ~found).sum()} missing"


def differing_numbers(found: Any, values: Values) -> str | None:
    for band, numbers in zip(values, found or (), strict=False):
        pixels = band.compressed().astype(float)
        true = {
            "count": len(pixels),
            "min": pixels.min(),
            "max": pixels.max(),
            "mean": pixels.mean(),
            "median": np.median(pixels),
            "variety": len(np.unique(band.compressed())),
        }
        for key, number in numbers.items():
            if key in true and not (number is not None and np.isclose(number, true[key])):
                return f"{key} {number} is {true[key]}"
    return None
