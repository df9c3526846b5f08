from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyproj
import pytest
import shapely
from click.testing import CliRunner

from comal import grid, raquet
from comal.cli import root
from comal.errors import InvalidInputError
from tests.raquet.build import Plan, noise, write
from tests.raquet.query.areas import TILES, place_of, shares, zones
from tests.support import SHARED

gpd = pytest.importorskip("geopandas", reason="geopandas is not installed")

FIXTURES = SHARED / "fixtures" / "raquet"
# rasterio multiplies its own transforms in a way that affine has given up.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
STATS = ("count", "sum", "mean", "min", "max", "range", "variance", "stddev", "stddev_sample")


def mosaic() -> Any:
    """The finest zoom: 32 x 32 pixels, row 0 at the north."""
    found = np.zeros((32, 32), "int16")
    for number, tile in enumerate(TILES):
        found[place_of(tile)] = noise(number, "int16")
    found[3::16, 3::16] = -1
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    whole = mosaic()
    tiles: dict[Any, Any] = {(4, 8, 5): [noise(50, "int16")]}
    tiles |= {tile: [whole[place_of(tile)]] for tile in TILES}
    return write(tmp_path / "dem.parquet", tiles, Plan(bands=(("dem", "int16", -1),)))


def expected(values: Any, weights: Any) -> list[float | None]:
    """What numpy makes of values, each of which counts with its weight."""
    if not len(values):
        return [0] + [None] * (len(STATS) - 1)
    v = values.astype(float)
    count, mean = weights.sum(), np.average(v, weights=weights)
    variance = np.average((v - mean) ** 2, weights=weights)
    sample = np.sqrt(variance * count / (count - 1)) if count > 1 else None
    extent = [v.min(), v.max(), v.max() - v.min()]
    return [count, (v * weights).sum(), mean, *extent, variance, np.sqrt(variance), sample]


def compared(table: Any, weights: list[Any]) -> None:
    whole = mosaic()
    for row, weight in zip(table.to_pylist(), weights, strict=True):
        inside = (weight > 1e-9) & (whole != -1)
        told = expected(whole[inside], weight[inside])
        for stat, value in zip(STATS, told, strict=True):
            found = row[f"dem_{stat}"]
            assert found == (None if value is None else pytest.approx(value)), (row["zone"], stat)


@pytest.mark.parametrize("method", ["centre", "all_touched", "fractional"])
def test_zones_have_the_statistics_of_numpy(path: Path, method: Any) -> None:
    seen: list[Any] = []
    named: dict[str, Any] = {"stats": STATS, "progress": lambda *step: seen.append(step)}
    found = raquet.zonal(path, zones(), crs="EPSG:3857", method=method, **named)
    assert seen[-1][0] == seen[-1][1]
    assert found.column("zone").to_pylist() == list(range(len(zones())))
    if method != "fractional":
        assert found.schema.field("dem_count").type == pa.int64()
    compared(found, [shares(zone, method) for zone in zones()])


@pytest.mark.parametrize("far", [-1.7e308, -3.4e38, 1e12])
@pytest.mark.parametrize("method", ["centre", "all_touched", "fractional"])
def test_pixels_outside_of_a_zone_do_not_change_its_statistics(
    tmp_path: Path, method: Any, far: float
) -> None:
    """A value in place of nodata that nobody declared, on the same tile."""
    pixels = np.random.default_rng(3).normal(50, 3, (16, 16))
    pixels[15] = far
    path = write(
        tmp_path / "a.parquet", {TILES[0]: [pixels]}, Plan(bands=(("a", "float64", None),))
    )
    zone = zones()[5]
    weight = shares(zone, method)[place_of(TILES[0])]
    assert not weight[15].any()
    found = raquet.zonal(path, zone, crs="EPSG:3857", method=method, stats=STATS).to_pylist()[0]
    told = expected(pixels[weight > 1e-9], weight[weight > 1e-9])
    assert [found[f"a_{stat}"] for stat in STATS] == pytest.approx(told)


def test_edges_in_degrees_are_straight_in_degrees(path: Path) -> None:
    lon, _ = grid.xy_to_lonlat(16 + (np.arange(32) + 0.5) / 16, 10.0, 5)
    _, rows = grid.xy_to_lonlat(16.0, 10 + (np.arange(32) + 0.5) / 16, 5)
    zone = shapely.Polygon([(1, 45), (20, 46), (14, 64), (3, 63)])
    inside = shapely.contains_xy(zone, *np.meshgrid(lon, rows))
    found = raquet.zonal(path, zone, stats=STATS)
    compared(found, [inside.astype(float)])


def test_zooms_bands_and_steps(path: Path, tmp_path: Path) -> None:
    whole = shapely.box(-180, -89, 180, 89)
    fine = raquet.zonal(path, whole, stats=("count",))
    assert fine["dem_count"].to_pylist() == [1020]
    assert raquet.zonal(path, whole, zoom=4, stats=("count",))["dem_count"][0].as_py() == 256
    assert raquet.zonal(path, whole, zoom=0, stats=("count",))["dem_count"][0].as_py() == 256
    assert raquet.zonal(path, whole, zoom=9, stats=("count",)).equals(fine)
    pair: dict[Any, Any] = {TILES[0]: [noise(1), noise(2)], TILES[1]: [noise(3), None]}
    two = write(tmp_path / "two.parquet", pair, Plan(bands=(("a", "uint8", 0), ("b", "uint8", 0))))
    found = raquet.zonal(two, whole, stats=("sum",))
    assert found.to_pylist() == [
        {"zone": 0, "a_sum": noise(1).sum() + noise(3).sum(), "b_sum": noise(2).sum()}
    ]
    for bands in (["b"], "b", 2):
        found = raquet.zonal(two, whole, bands=bands, stats=("sum",))
        assert found.column_names == ["zone", "b_sum"]
    series = {(*TILES[0], day): [noise(day)] for day in (3, 8)}
    timed = write(tmp_path / "t.parquet", series, Plan(times=True))
    for step, day in enumerate((3, 8)):
        found = raquet.zonal(timed, whole, time=step, stats=("sum",))
        assert found["band_1_sum"][0].as_py() == noise(day).sum()
    with pytest.raises(InvalidInputError, match="time step"):
        raquet.zonal(timed, whole)
    with pytest.raises(InvalidInputError, match="the file has no time"):
        raquet.zonal(path, whole, time=0)
    with raquet.open(path) as file:
        assert raquet.zonal(file, whole, stats=("count",)).equals(fine)
        assert file.tile(*TILES[0]).shape == (1, 16, 16)


def test_statistics_of_whole_bands(path: Path) -> None:
    found = raquet.statistics(path, stats=STATS).to_pylist()
    values = mosaic()[mosaic() != -1]
    assert found[0].pop("band") == "dem"
    assert list(found[0].values()) == pytest.approx(expected(values, np.ones(len(values))))
    assert raquet.statistics(path, zoom=4, stats=("count",)).to_pylist() == [
        {"band": "dem", "count": 256}
    ]


def test_the_crs_of_zones_in_every_form(path: Path) -> None:
    plain = raquet.zonal(path, zones(), crs="EPSG:3857", stats=("count", "mean"))
    mercator = pyproj.CRS.from_epsg(3857)
    for crs in (3857, mercator, mercator.to_wkt(), mercator.to_json(), mercator.to_json_dict()):
        assert raquet.zonal(path, zones(), crs=crs, stats=("count", "mean")).equals(plain)
    degrees = pyproj.CRS.from_epsg(4326)
    square = shapely.box(1, 45, 20, 60)
    wanted = raquet.zonal(path, square)
    for crs in ("epsg:4326", 4326, degrees, degrees.to_wkt(), degrees.to_json_dict()):
        assert raquet.zonal(path, square, crs=crs).equals(wanted)


def test_what_names_no_crs_of_zones(path: Path) -> None:
    for wrong in (3.5, ["EPSG:4326"], {"type": 5}, 999999, -1):
        with pytest.raises(InvalidInputError, match="CRS"):
            raquet.zonal(path, shapely.box(1, 45, 20, 60), crs=wrong)


def test_what_cannot_be(path: Path) -> None:
    whole = shapely.box(-180, -89, 180, 89)
    for options, what in (
        ({"stats": ("mode",)}, "statistic"),
        ({"method": "center"}, "method"),
        ({"bands": ["x"]}, "band"),
        ({"stats": "mean"}, "a list of statistics"),
        ({"keep": "name"}, "a list of columns"),
        ({"crs": "EPSG:0"}, "CRS"),
    ):
        with pytest.raises(InvalidInputError, match=what):
            raquet.zonal(path, [whole], **options)
    with pytest.raises(InvalidInputError, match="not an area"):
        raquet.zonal(path, shapely.Point(1, 1))
    with pytest.raises(InvalidInputError, match="not defined"):
        raquet.zonal(path, shapely.box(1e9, 1e9, 2e9, 2e9), crs="EPSG:3035")


def test_zones_of_a_file_keep_their_columns(path: Path, tmp_path: Path) -> None:
    """Every form of zones is asked by ``tests/raster/test_regions.py``."""
    names = [f"zone {n}" for n in range(len(zones()))]
    frame = gpd.GeoDataFrame({"name": names}, geometry=zones(), crs=3857)
    plain = raquet.zonal(path, zones(), crs="EPSG:3857")
    found = raquet.zonal(path, frame, keep=["name"])
    assert found["name"].to_pylist() == names
    assert found.drop_columns("name").equals(plain)
    frame.iloc[:3].to_file(tmp_path / "zones.gpkg", layer="all")
    options = ["--layer", "all", "--keep", "name", "--csv"]
    command = ["raquet", "zonal", str(path), str(tmp_path / "zones.gpkg"), *options]
    result = CliRunner().invoke(root, command)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("zone ") == 3


@pytest.mark.parametrize("keep", ["zone", "dem_mean", "geometry"])
def test_columns_that_cannot_be_kept(path: Path, keep: str) -> None:
    frame = gpd.GeoDataFrame({"zone": [7], "dem_mean": [8]}, geometry=zones()[:1], crs=3857)
    with pytest.raises(InvalidInputError, match=keep):
        raquet.zonal(path, frame, keep=[keep], stats=("mean",))


def test_a_statistic_that_is_asked_for_twice(tmp_path: Path) -> None:
    pair: dict[Any, Any] = {TILES[0]: [noise(1), noise(2)]}
    two = write(tmp_path / "two.parquet", pair, Plan(bands=(("a", "uint8", 0), ("b", "uint8", 0))))
    found = raquet.statistics(two, stats=("sum", "sum"))
    assert found.to_pylist() == raquet.statistics(two, stats=("sum",)).to_pylist()
    assert [row["band"] for row in found.to_pylist()] == ["a", "b"]


@pytest.mark.parametrize("named", [{"stats": ()}, {"zoom": "x"}, {"zoom": 1.5}, {"bands": [2]}])
def test_arguments_of_statistics(path: Path, named: Any) -> None:
    with pytest.raises(InvalidInputError):
        raquet.statistics(path, **named)
