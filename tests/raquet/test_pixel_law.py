"""A pixel has one value: whether and which, every view of a raster says the same.

A case is a type, a nodata value, an alpha band or a mask, and where the raster lies (`PLACES`, each
of which makes a file and says what its pixels are). Every view of `VIEWS` is asked for the pixels
of each band, or for their count, minimum, maximum and mean, and compared with `numpy.ma`.

The ordinary run takes each pair of `PAIRS` once, and so each type and each nodata value;
``COMAL_FULL_SWEEP=1`` takes all combinations.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import shapely
import xarray
from PIL import Image
from rasterio.enums import ColorInterp

from comal import grid, raquet, raster, server, tapalcatl
from comal.convert.raquet_tapalcatl import draw
from comal.raquet import spec
from tests.raquet import build
from tests.raquet.writing.sources import on_grid
from tests.server.asking import ask

# rasterio multiplies its own transforms in a way that affine has given up.
pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
]

FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))
BLOCK, ZOOM = 16, 5
LEFT, TOP, ROWS, COLUMNS = 3, 5, 25, 41
"""The source within the block of 3 x 2 tiles that holds it, in pixels."""
FIRST = (17, 9)
"""Column and row of the first of these tiles."""
NAMES = ("b1", "b2")
Values = Any
"""Masked array (bands, 32, 48): the pixels of the tiles, masked where there is no value."""

DTYPES = spec.DTYPES
PAIRS = (("nodata", "side"), ("dtype", "place"), ("side", "place"), ("nodata", "place"))
NODATA = ("none", "zero", "max", "nan", "out of range", "per band")
SIDES = ("neither", "alpha", "mask")


@dataclass(frozen=True)
class Case:
    """One row of the matrix."""

    dtype: str
    nodata: str
    side: str
    place: str

    @property
    def nodata_of(self) -> tuple[Any, Any]:
        """The nodata value of each band."""
        kind, highest = np.dtype(self.dtype), highest_of(self.dtype)
        beyond = 1e300 if self.dtype in {"float16", "float32"} else -(2**63) - 1024
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
    def is_written(self) -> bool:
        """Whether comal writes it, from a GeoTIFF that refuses nodata values that do not fit."""
        wrong = {"out of range"} if np.dtype(self.dtype).kind == "f" else {"out of range", "nan"}
        if self.dtype in {"int64", "uint64"}:
            wrong.add("max")  # rasterio knows nodata values as floats
        return self.dtype != "float16" and self.nodata not in wrong


@dataclass(frozen=True)
class Made:
    """A file, and what its pixels are."""

    case: Case
    path: Path
    values: Values
    """Of the bands `NAMES` at `ZOOM`, from the corner `FIRST` on."""
    source: Path | None = None
    """The GeoTIFF that it was made of."""

    @property
    def box(self) -> tuple[float, float, float, float]:
        """West, south, east, north of all tiles."""
        west, north = grid.xy_to_lonlat(*FIRST, ZOOM)
        east, south = grid.xy_to_lonlat(FIRST[0] + 3, FIRST[1] + 2, ZOOM)
        return float(west), float(south), float(east), float(north)


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
    if case.side == "alpha":
        bands.append(("alpha", "uint8", None))
        planes.append(padded(shown, 0, "uint8"))
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
    said = [{"name": name, "type": kind, "nodata": str(nodata)} for name, kind, nodata in bands]
    if case.side == "alpha":
        said[2]["colorinterp"] = "alpha"
    custom = {"comal": {"source": {"bounds": [west, south, east, north]}}}
    plan = build.Plan(bands=bands, nested=True, change={"bands": said, "custom": custom})
    return Made(case, build.write(folder / "a.parquet", tiles, plan), values)


def aligned(case: Case, folder: Path) -> Made:
    """A GeoTIFF on the grid that comal wrote as RaQuet."""
    pixels, shown = pixels_of(case), hidden_of(case)
    source = folder / "a.tif"
    planes = np.concatenate([pixels, shown[None].astype(case.dtype)])
    named: dict[str, Any] = {"column": FIRST[0] * BLOCK + LEFT, "row": FIRST[1] * BLOCK + TOP}
    nodata = dict(zip(NAMES, case.nodata_of, strict=True))
    per_band: dict[str, Any] = {"nodata": nodata} if case.nodata == "per band" else {}
    named |= {"pixel_zoom": ZOOM + 4, "nodata": None if per_band else nodata["b1"]}
    on_grid(
        source,
        planes if case.side == "alpha" else pixels,
        mask=shown if case.side == "mask" else None,
        **named,
    )
    bands: dict[str, int] = {"b1": 1, "b2": 2}
    if case.side == "alpha":
        bands["alpha"] = 3
        with rasterio.open(source, "r+") as dataset:
            dataset.colorinterp = [ColorInterp.gray, ColorInterp.undefined, ColorInterp.alpha]
    path = folder / "a.parquet"
    raquet.write(source, path, bands=bands, zoom=ZOOM, min_zoom=ZOOM, block_size=BLOCK, **per_band)
    return Made(case, path, without(case, pixels, shown), None if per_band else source)


PLACES: dict[str, Callable[[Case, Path], Made]] = {"stored": stored, "aligned": aligned}


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

SHAPE = (2, 2 * BLOCK, 3 * BLOCK)
TILES = [(ZOOM, FIRST[0] + x, FIRST[1] + y) for y, x in product(range(2), range(3))]
INSIDE = np.s_[TOP : TOP + ROWS, LEFT : LEFT + COLUMNS]


def place_of(tile: tuple[int, int, int]) -> Any:
    """Where the pixels of a tile lie."""
    _, x, y = tile
    top, left = (y - FIRST[1]) * BLOCK, (x - FIRST[0]) * BLOCK
    return np.s_[..., top : top + BLOCK, left : left + BLOCK]


def put_together(parts: Iterator[Any]) -> Values:
    """Tiles as one array."""
    whole: Any = None
    for tile, part in zip(TILES, parts, strict=True):
        if part is not None and whole is None:
            whole = empty((*part.shape[:-2], *SHAPE[1:]), part.dtype)
        if part is not None:
            whole[place_of(tile)] = part
    return whole


def points(made: Made, file: Any) -> Any:
    row, column = np.indices(SHAPE[1:])
    x, y = FIRST[0] + (column + 0.5) / BLOCK, FIRST[1] + (row + 0.5) / BLOCK
    lon, lat = grid.xy_to_lonlat(x.ravel(), y.ravel(), ZOOM)
    return file.points(lon, lat, list(NAMES), masked=True).reshape(SHAPE)


def read(made: Made, file: Any) -> Any:
    return file.read(made.box, bands=list(NAMES), masked=True).data


def scaled(made: Made, file: Any) -> Any:
    corner = FIRST[0] * BLOCK, FIRST[1] * BLOCK
    found = file.window(ZOOM, *corner, SHAPE[2], SHAPE[1], list(NAMES), scaled=True)
    return np.ma.masked_invalid(found.data)


def of_xarray(made: Made, file: Any) -> Any:
    with xarray.open_dataset(made.path, engine="raquet") as found:
        return np.ma.masked_invalid([found[name].values.astype(float) for name in NAMES])


def of_sql(made: Made, file: Any) -> Any:
    found = np.full(SHAPE, np.nan)
    with raquet.connect(made.path) as connection:
        for band, name in enumerate(NAMES):
            call = f"ST_ClipMask({name}, block, $box, metadata, 'NaN'::DOUBLE)"
            query = f"SELECT z, x, y, {call} AS v FROM raster JOIN tiles USING (block)"
            for row in connection.sql(query, box=area(made)).to_pylist():
                if row["v"] is not None:
                    tile = row["z"], row["x"], row["y"]
                    found[band][place_of(tile)] = np.reshape(row["v"], (BLOCK, BLOCK))
    return np.ma.masked_invalid(found)


def of_geotiff(made: Made, file: Any) -> Any:
    """Each band by itself, without the alpha band that hides it."""
    planes = []
    for name in NAMES:
        target = made.path.with_name(f"{name}.tif")
        raquet.to_geotiff(file, target, bands=[name])
        with rasterio.open(target) as dataset:
            planes.append(dataset.read(1, masked=True))
    return np.ma.stack(planes)


def of_cog(made: Made, file: Any) -> Any:
    """All bands together, with the alpha band."""
    one, other = made.case.nodata_of
    if np.dtype(made.case.dtype).kind in "iu" and (one != other or one in {2**64 - 1, 2**63 - 1}):
        return None  # refused: a GeoTIFF has one nodata value, and for rasterio it is a float
    target = made.path.with_name("cog.tif")
    raquet.to_cog(file, target)
    with rasterio.open(target) as dataset:
        found = dataset.read(masked=True)
    if len(found) == 3:
        found[:, found.data[2] == 0] = np.ma.masked
    return found[:2]


def npy(made: Made, file: Any, more: str = "") -> Any:
    """Arrays of the server, with the mask behind them."""
    app = server.app({"r": file}, log="none")

    def one(band: int, tile: tuple[int, int, int]) -> Any:
        reply = ask(app, "/r/{}/{}/{}.npy?bidx={}{}".format(*tile, band, more))
        if reply.status == 404:
            return None
        data, mask = np.load(io.BytesIO(reply.body))
        return np.ma.MaskedArray(data, mask == 0)

    return np.ma.stack([put_together(one(band, tile) for tile in TILES) for band in (1, 2)])


PIXELS: dict[str, Callable[[Made, Any], Any]] = {
    "tile": lambda made, file: put_together(
        file.tile(*tile, list(NAMES), masked=True) for tile in TILES
    ),
    "tiles": lambda made, file: put_together(iter(file.tiles(TILES, list(NAMES), masked=True))),
    "read": read,
    "scaled": scaled,
    "points": points,
    "xarray": of_xarray,
    "sql": of_sql,
    "geotiff": of_geotiff,
    "cog": of_cog,
    "npy": npy,
}


# -- views: numbers --------------------------------------------------------------------------------


def area(made: Made) -> str:
    return str(shapely.to_wkt(shapely.box(*made.box), rounding_precision=-1))


def of_statistics(made: Made, file: Any) -> Any:
    names = ["count", "min", "max", "mean", "median", "variety"]
    return raquet.statistics(file, bands=list(NAMES), stats=names).to_pylist()


def of_zones(made: Made, file: Any) -> Any:
    names = ["count", "min", "max", "mean", "p25"]
    found = raquet.zonal(
        file, [shapely.box(*made.box)], bands=list(NAMES), stats=names, method="fractional"
    ).to_pylist()[0]
    return [{name: found[f"{band}_{name}"] for name in names[:4]} for band in NAMES]


def of_region(made: Made, file: Any, more: str = "") -> Any:
    call = f"ST_RegionStats({{0}}, block, $box, metadata{more}) {{0}}"
    calls = ", ".join(call.format(name) for name in NAMES)
    found = raquet.sql(file, f"SELECT {calls} FROM raster", box=area(made)).to_pylist()[0]
    return [{key: found[name][key] for key in ("count", "min", "max", "mean")} for name in NAMES]


def of_document(made: Made, file: Any) -> Any:
    """The statistics in the metadata, where there are any."""
    bands = [file.metadata.bands[at].statistics for at in range(2)]
    if None in bands:
        return None
    return [{key: getattr(band, key) for key in ("count", "min", "max", "mean")} for band in bands]


def of_server(made: Made, file: Any, more: str = "") -> Any:
    app = server.app({"r": file}, log="none")
    reply = ask(app, f"/r/statistics?bidx=1&bidx=2{more}")
    assert reply.status == 200, reply.body
    keys = ("count", "min", "max", "mean", "median")
    return [{key: band[key] for key in keys} for band in reply.json()["statistics"].values()]


def of_raster(made: Made, file: Any) -> Any:
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


NUMBERS: dict[str, Callable[[Made, Any], Any]] = {
    "statistics": of_statistics,
    "zonal": of_zones,
    "ST_RegionStats": of_region,
    "document": of_document,
    "/statistics": of_server,
    "band_stats": of_raster,
}


# -- views: pictures, of one band and of both ------------------------------------------------------


def drawn(made: Made, file: Any, bands: list[int]) -> Any:
    """The static tiles of a map."""
    target = made.path.with_name(f"drawn{len(bands)}.zip")
    draw(made.path, target, bands=bands, stretch=(0, 100))
    with tapalcatl.open(target) as tiles:
        read = (tiles.tile(*tile) for tile in TILES)
        return put_together(picture_of(None if one is None else one.data) for one in read)


def served(made: Made, file: Any, bands: list[int]) -> Any:
    app = server.app({"r": file}, log="none")
    chosen = "&".join(f"bidx={band}" for band in bands)

    def one(tile: tuple[int, int, int]) -> Any:
        reply = ask(app, "/r/{}/{}/{}.png?rescale=0,100&{}".format(*tile, chosen))
        return picture_of(reply.body if reply.status == 200 else None)

    return put_together(one(tile) for tile in TILES)


def previewed(made: Made, file: Any, bands: list[int]) -> Any:
    found = picture_of(raquet.preview(file, bands=bands))
    whole = np.zeros(SHAPE[1:], bool)
    whole[INSIDE] = found
    return whole


def previewed_source(made: Made, file: Any, bands: list[int]) -> Any:
    if made.source is None:
        return None
    whole = np.zeros(SHAPE[1:], bool)
    whole[INSIDE] = picture_of(raster.preview(made.source, bands=tuple(bands)))
    return whole


def picture_of(png: bytes | None) -> Any:
    """Which pixels of a picture are seen."""
    if png is None:
        return None
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))[..., 3] > 0


PICTURES: dict[str, Callable[[Made, Any, list[int]], Any]] = {
    "draw": drawn,
    "png": served,
    "preview": previewed,
    "raster.preview": previewed_source,
}


# -- the law ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """All of them, or enough for the pairs of `PAIRS`, with each type and each nodata value."""
    every = [Case(*one) for one in product(DTYPES, NODATA, SIDES, PLACES)]
    every = [case for case in every if case.place == "stored" or case.is_written]
    if FULL:
        yield from every
        return
    open_pairs = {(axis, pair_of(case, axis)) for case in every for axis in PAIRS}
    while open_pairs:
        best = max(every, key=lambda case: sum((a, pair_of(case, a)) in open_pairs for a in PAIRS))
        open_pairs -= {(axis, pair_of(best, axis)) for axis in PAIRS}
        yield best


def pair_of(case: Case, axis: tuple[str, str]) -> tuple[str, str]:
    return getattr(case, axis[0]), getattr(case, axis[1])


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: "-".join(astuple(case)))
def test_every_view_says_the_same(tmp_path: Path, case: Case) -> None:
    made = PLACES[case.place](case, tmp_path)
    wrong = {}
    with raquet.open(made.path) as file:
        for name, view in PIXELS.items():
            wrong[name] = differing_pixels(view(made, file), made.values)
        for name, view in NUMBERS.items():
            wrong[name] = differing_numbers(view(made, file), made.values)
        for name, look in PICTURES.items():
            mask = np.ma.getmaskarray(made.values)
            wrong[f"{name} of one"] = differing(look(made, file, [1]), ~mask[0])
            wrong[f"{name} of both"] = differing(look(made, file, [1, 2, 1]), ~mask.all(axis=0))
        app = server.app({"r": file}, log="none")
        found = ask(app, "/r/statistics?expression=b1*0%2Bb2*0").json()["statistics"]["b1*0+b2*0"]
        wrong["formula"] = found["count"] - (~mask.any(axis=0)).sum()
    assert {name: one for name, one in wrong.items() if one} == {}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("declared", ["none", "zero"])
def test_another_nodata_value_takes_the_place_of_the_declared_one_only(
    tmp_path: Path, declared: str, side: str
) -> None:
    """Alpha, padding and absent tiles are what they are, in the server and in SQL."""
    truth = np.ma.masked_equal(stored(Case("int16", "none", side, "stored"), tmp_path).values, 7)
    made = stored(Case("int16", declared, side, "stored"), tmp_path)
    with raquet.open(made.path) as file:
        assert differing_pixels(read(made, file.with_nodata(7)), truth) is None
        assert differing_pixels(npy(made, file, "&nodata=7"), truth) is None
        assert differing_numbers(of_server(made, file, "&nodata=7"), truth) is None
        assert differing_numbers(of_region(made, file, ", 7"), truth) is None
        app = server.app({"r": file}, log="none")
        histogram = ask(app, "/r/histogram?bidx=1&nodata=7").json()
        assert sum(histogram["counts"]) == truth[0].count()
        where = np.argwhere((truth.data[0] == 7) & ~np.ma.getmaskarray(truth[1]))[0]
        lon, lat = lonlat(where[1] + 0.5, where[0] + 0.5)
        assert ask(app, f"/r/point/{lon},{lat}?nodata=7").json()["values"][0] is None
        assert ask(app, f"/r/point/{lon},{lat}").json()["values"][0] == 7
        clip = "SELECT ST_Clip(b1, block, $box, metadata, 7) FROM raster"
        values = raquet.sql(file, clip, box=area(made)).column(0).to_pylist()
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
