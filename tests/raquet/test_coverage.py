"""Padding of tiles at the edge is not a pixel, though the format has no mask.

Which pixels count in every view is asked by ``test_pixel_law``; here are documents, sets, merged
files, and what a check makes of statistics.

Files of bands without nodata value are made with ``nodata="none"``, as older files are.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
import shapely
from hypothesis import given
from hypothesis import strategies as st
from pyproj import Transformer
from rasterio.features import rasterize
from rasterio.transform import Affine

from comal import grid, raquet
from comal.raquet.reading.coverage import coverages
from comal.raquet.spec import Band, Metadata
from comal.raquet.writing.copying import united_custom
from tests.raquet.writing.sources import noise, on_grid, utm

# rasterio multiplies its own transforms in a way that affine has given up.
pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
]


def made(source: Path, path: Path, **options: Any) -> Path:
    raquet.write(source, path, **{"block_size": 32, "nodata": "none", **options})
    return path


def source_of(path: Path) -> Any:
    with raquet.open(path) as raster:
        return raster.metadata.custom["comal"]["source"]


def valid_of(pixels: Any) -> Any:
    return ~np.ma.getmaskarray(pixels)


def test_a_warped_raster_is_no_rectangle(tmp_path: Path) -> None:
    """Valid are the pixels whose centres lie on the source, by PROJ, but for some at its edge."""
    source = SOURCES["warped"](tmp_path / "a.tif")
    path = made(source, tmp_path / "a.parquet")
    assert 5 <= len(source_of(path)["footprint"]["coordinates"][0][0]) < 40
    with rasterio.open(source) as dataset:
        back, width, height = ~dataset.transform, dataset.width, dataset.height
        to_source = Transformer.from_crs("EPSG:3857", dataset.crs, always_xy=True)
    with raquet.open(path) as raster:
        for zoom in raster.zooms:
            window = raster.read(zoom=zoom, masked=True)
            found = valid_of(window.data[0])
            rows, columns = np.indices(found.shape) + 0.5
            a, _, c, _, e, f = window.transform
            u, v = back @ to_source.transform(a * columns + c, e * rows + f)
            wanted = (u >= 0) & (u <= width) & (v >= 0) & (v <= height)
            assert (found != wanted).sum() <= sum(found.shape) * 0.05
    with rasterio.MemoryFile(raquet.preview(path, size=64)) as memory, memory.open() as drawn:
        around = wanted[wanted.any(axis=1)][:, wanted.any(axis=0)]
        assert (drawn.read(4) > 0).mean() == pytest.approx(around.mean(), abs=0.02)


def test_only_what_is_warped_and_has_no_nodata_needs_a_footprint(tmp_path: Path) -> None:
    plain = made(SOURCES["on the grid"](tmp_path / "b.tif"), tmp_path / "b.parquet", zoom=10)
    assert "footprint" not in source_of(plain)
    source = utm(tmp_path / "a.tif", noise((60, 80), "uint16"), nodata=0)
    assert "footprint" not in source_of(made(source, tmp_path / "a.parquet"))


def test_a_mosaic_has_the_outline_of_all(tmp_path: Path) -> None:
    paths = [
        on_grid(
            tmp_path / f"{n}.tif", np.full((40, 40), n + 1, "uint8"), column=32 * at, row=32 * at
        )
        for n, at in enumerate((300, 301))
    ]
    path = tmp_path / "m.parquet"
    raquet.write(paths, path, block_size=32, zoom=10, nodata="none")
    with raquet.open(path) as raster:
        window = raster.read(masked=True).data[0]
        np.testing.assert_array_equal(valid_of(window), np.ma.getdata(window) > 0)
        assert window.count() == 2 * 1600 - 64


def test_files_of_other_sources_are_one_set(tmp_path: Path) -> None:
    pixels = np.full((1, 20, 20), 5, "uint8")
    paths = []
    for n, column in enumerate((300, 302)):
        source = on_grid(tmp_path / f"{n}.tif", pixels, column=32 * column + 3, row=32 * 300)
        paths.append(made(source, tmp_path / f"{n}.parquet", zoom=10, min_zoom=10))
    with raquet.open(paths) as raster:
        window = raster.read(masked=True).data
        np.testing.assert_array_equal(valid_of(window), np.ma.getdata(window) == 5)
    (row,) = raquet.statistics(paths, stats=["count", "mean"]).to_pylist()
    assert (row["count"], row["mean"]) == (800, 5)
    with raquet.connect(paths) as connection:
        query = "SELECT ST_RegionStats(band_1, block, $a, metadata) AS s FROM raster"
        area = shapely.box(-179, -80, 179, 80).wkt
        (row,) = connection.sql(query, a=area).to_pylist()
        assert (row["s"]["count"], row["s"]["min"], row["s"]["max"]) == (800, 5, 5)


LATER: dict[str, Any] = {"spec_version": "0.5.0", "tile_statistics": True}
RGBA = ("red", "green", "blue", "alpha")


def transparent(path: Path) -> Path:
    """Four bands on the grid, a whole tile of them transparent and black."""
    pixels = noise((4, 150, 170), "uint8")
    pixels[3] = 255
    pixels[:, :80, :90] = 0
    return on_grid(path, pixels, column=32 * 500 + 5, row=32 * 300 + 3, interpreted=RGBA)


def with_mask(path: Path) -> Path:
    shown = np.full((150, 170), 255, "uint8")
    shown[30:90, 20:120] = 0
    return utm(path, noise((2, 150, 170), "int16"), mask=shown)


SOURCES: dict[str, Any] = {
    "on the grid": lambda path: on_grid(
        path, noise((45, 70), "int16"), column=32 * 500 + 5, row=32 * 300 + 3
    ),
    "warped": lambda path: utm(path, noise((150, 210), "uint16")),
    "floats": lambda path: utm(path, noise((150, 170), "float32")),
    "three bands": lambda path: utm(path, noise((3, 150, 170), "uint8")),
    "transparent": transparent,
    "mask": with_mask,
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, LATER) for name in SOURCES),
        ("warped", {}),
        *((name, {"resampling": "average", "nodata": "none"}) for name in ("warped", "mask")),
    ],
)
def test_statistics_of_our_own_are_right(tmp_path: Path, name: str, options: Any) -> None:
    path = made(SOURCES[name](tmp_path / "a.tif"), tmp_path / "a.parquet", **options)
    assert raquet.check(path, statistics=True).counts == {}
    if options:
        raquet.repair(path, tmp_path / "b.parquet")
        assert raquet.check(tmp_path / "b.parquet", statistics=True).counts == {}


def test_pictures_have_other_pixels_than_their_statistics(tmp_path: Path) -> None:
    named: dict[str, Any] = {**LATER, "layout": "interleaved", "compression": "jpeg"}
    path = made(SOURCES["three bands"](tmp_path / "a.tif"), tmp_path / "a.parquet", **named)
    assert raquet.check(path, statistics=True).counts == {}


def test_statistics_that_count_padding_are_found(tmp_path: Path) -> None:
    """Each of the numbers, on a tile that is covered in part."""
    path = made(SOURCES["warped"](tmp_path / "a.tif"), tmp_path / "a.parquet", **LATER)
    table = pq.read_table(path)
    counts = table["band_1_count"].to_pylist()
    row = next(at for at, count in enumerate(counts) if count and 200 < count < 800)
    wrong = {"count": 1024, "mean": 65536.0, "min": -1.0, "max": 65536.0}
    wrong["stddev"] = 3 * table["band_1_stddev"][row].as_py()
    for kind, value in wrong.items():
        name = f"band_1_{kind}"
        values = table[name].to_pylist()
        values[row] = value
        at, column = table.column_names.index(name), pa.array(values, table.schema.field(name).type)
        pq.write_table(table.set_column(at, name, column), tmp_path / "b.parquet")
        found = raquet.check(tmp_path / "b.parquet", statistics=True)
        (problem,) = [one for one in found.problems if one.code == "raquet-statistics-differ"]
        assert f"row {row}," in problem.place
        assert f"{kind} " in problem.message


def polygons() -> st.SearchStrategy[Any]:
    """Convex areas of a plane of 64 x 64 pixels, no corner of which is the middle of a pixel."""
    corners = st.lists(st.tuples(st.integers(0, 63), st.integers(0, 63)), min_size=3, max_size=8)
    hulls = corners.map(lambda some: shapely.convex_hull(shapely.MultiPoint(np.array(some) + 0.3)))
    return hulls.filter(lambda hull: hull.geom_type == "Polygon")


def cover_of(polygon: Any) -> Any:
    """What a document says whose source covers such an area."""
    u, v = shapely.get_coordinates(polygon).T / 64
    ring = np.stack(grid.xy_to_lonlat(u, v, 0), axis=1).tolist()
    footprint = {"type": "MultiPolygon", "coordinates": [[ring]]}
    (cover,) = coverages([metadata({"source": {"footprint": footprint}})])
    assert cover is not None
    return cover


@given(polygons(), st.integers(0, 3), st.integers(0, 3))
def test_what_a_writer_may_count_lies_near_the_edge(polygon: Any, x: int, y: int) -> None:
    cover = cover_of(polygon)
    column, row = np.meshgrid(16 * x + np.arange(16) + 0.5, 16 * y + np.arange(16) + 0.5)
    middles = shapely.points(column, row)
    inside, away = shapely.contains(polygon, middles), shapely.distance(polygon.exterior, middles)
    clear = away > 1e-6
    for reduced, reach in ((False, 0.3), (True, 1.5)):
        found, sure = cover.reach(2, x, y, (16, 16), reduced=reduced)
        most = np.ones((16, 16), bool) if found is None else found
        assert (inside <= most)[clear].all()
        assert (away[most & ~inside] <= reach * 1.5 + reduced).all()
        assert not sure or (inside == most)[clear].all()


@pytest.mark.parametrize("nodata", [None, 0])
def test_merged_files_cover_what_each_did(tmp_path: Path, nodata: int | None) -> None:
    paths = []
    for n in range(2):
        source = utm(tmp_path / f"{n}.tif", noise((200 + 60 * n, 210), "uint8", n), nodata=nodata)
        with rasterio.open(source, "r+") as dataset:
            dataset.transform = dataset.transform @ Affine.translation(5000.0 * n, 0)
        paths.append(made(source, tmp_path / f"{n}.parquet", zoom=13, min_zoom=13))
    merged = tmp_path / "m.parquet"
    raquet.merge(paths, merged)
    assert raquet.check(merged, statistics=True).total == 0
    with raquet.open(paths) as parts, raquet.open(merged) as whole:
        one, two = (file.read(masked=True).data for file in (parts, whole))
        np.testing.assert_array_equal(np.ma.getdata(one), np.ma.getdata(two))
        beside = int((valid_of(one) != valid_of(two)).sum())
        assert beside <= 0.001 * one.size
        assert 0 < two.count() < two.size
        assert ("footprint" in source_of(merged)) == (nodata is None)
        extents = []
        for path in paths:
            with raquet.open(path) as file:
                extents.append(file.bounds)
        west, south, east, north = zip(*extents, strict=True)
        wanted = (min(west), min(south), max(east), max(north))
        assert whole.bounds == pytest.approx(wanted, abs=1e-9)
        assert whole.metadata.custom["comal"]["source"]["rasters"] == 2


def test_merged_files_of_which_one_says_nothing_hide_nothing(tmp_path: Path) -> None:
    documents = [
        metadata({"source": {"bounds": [0, 0, 1, 1]}}),
        metadata({"source": {"bounds": [3, 0, 4, 1]}}),
    ]
    documents = [replace(one, max_zoom=12) for one in documents]
    united = united_custom(documents)["comal"]["source"]
    assert united["bounds"] == pytest.approx([0, 0, 4, 1])
    parts = [[[0, 0], [1, 0], [1, 1], [0, 1]], [[3, 0], [4, 0], [4, 1], [3, 1]]]
    wanted = shapely.MultiPolygon([shapely.Polygon(one) for one in parts])
    found = shapely.from_geojson(json.dumps(united["footprint"]))
    assert shapely.symmetric_difference(found, wanted).area < 1e-3
    silent = metadata(None)
    assert united_custom([*documents, silent]) == {}
    crossed = [[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]
    broken = {"type": "MultiPolygon", "coordinates": [[crossed]]}
    wrong = metadata({"source": {"bounds": [0, 0, 1, 1], "footprint": broken}})
    assert united_custom([documents[0], wrong]) == {}


def test_merged_files_beside_the_antimeridian() -> None:
    documents = [
        metadata({"source": {"bounds": [179, 0, 180, 1], "rasters": 3}}),
        metadata({"source": {"bounds": [179.5, 2, -179.5, 3]}}),
    ]
    documents = [replace(one, max_zoom=12) for one in documents]
    source = united_custom(documents)["comal"]["source"]
    assert source["bounds"] == pytest.approx([179, 0, -179.5, 3])
    assert source["rasters"] == 4
    found = shapely.from_geojson(json.dumps(source["footprint"]))
    assert found.area == pytest.approx(2, rel=1e-3)


def metadata(source: Any, **named: Any) -> Metadata:
    bands = (Band(name="band_1", dtype="uint8", **named),)
    return Metadata(
        block_width=16,
        block_height=16,
        min_zoom=0,
        max_zoom=0,
        bounds=(-180, -85, 180, 85),
        width=16,
        height=16,
        bands=bands,
        custom={"comal": source},
    )


@pytest.mark.parametrize(
    "source",
    [
        None,
        [],
        {"source": 5},
        {"source": {"bounds": None}},
        {"source": {"bounds": [0, 0, 1]}},
        {"source": {"bounds": [0, 5, 1, 4]}},
        {"source": {"bounds": [0, "0", 1, 1]}},
        {"source": {"bounds": [0, True, 1, 1]}},
        {"source": {"bounds": [0, 0, 1e300, 1]}},
        {"source": {"footprint": {"type": "Point", "coordinates": [0, 0]}}},
        {"source": {"footprint": {"type": "MultiPolygon"}}},
        {"source": {"footprint": {"type": "MultiPolygon", "coordinates": [[[[0, 0], [1, 1]]]]}}},
        {"source": {"footprint": {"type": "MultiPolygon", "coordinates": 7}}},
    ],
)
def test_what_says_nothing_hides_nothing(source: Any) -> None:
    assert coverages([metadata(source)]) == (None,)


def test_nodata_is_enough() -> None:
    told = {"source": {"bounds": [0, 0, 1, 1]}}
    assert coverages([metadata(told, nodata=0)]) == (None,)
    (cover,) = coverages([metadata(told, nodata=300)])  # no pixel can have it
    assert cover is not None


@given(polygons(), st.integers(0, 40), st.integers(0, 40))
def test_windows_and_tiles_are_those_of_gdal(polygon: Any, column: int, row: int) -> None:
    cover = cover_of(polygon)
    wanted = rasterize([(polygon, 1)], (64, 64), transform=Affine.identity()) > 0
    centres = shapely.points(np.stack(np.meshgrid(*[np.arange(64) + 0.5] * 2), axis=-1))
    sure = shapely.distance(polygon.exterior, centres) > 1e-6
    part, tile = np.s_[row : row + 20, column : column + 20], np.s_[32:48, 16:32]
    for found, right, certain in (
        (cover.window((0, 0, 64, 64), (64, 64)), wanted, sure),
        (cover.window((column, row, 20, 20), (64, 64)), wanted[part], sure[part]),
        (
            cover.window((column - 64, 0, 64, 64), (64, 64)),
            np.roll(wanted, -column, axis=1),
            np.roll(sure, -column, axis=1),
        ),
        (cover.tile(2, 1, 2, (16, 16)), wanted[tile], sure[tile]),
    ):
        shown = np.ones_like(right) if found is None else found
        np.testing.assert_array_equal(shown & certain, right & certain)


def test_repair_and_parts_keep_the_outline(tmp_path: Path) -> None:
    path = made(SOURCES["warped"](tmp_path / "a.tif"), tmp_path / "a.parquet")
    raquet.repair(path, tmp_path / "r.parquet")
    assert source_of(tmp_path / "r.parquet") == source_of(path)
    raquet.partition(path, tmp_path / "parts", zoom=12)
    with raquet.open(path) as one, raquet.open(tmp_path / "parts") as many:
        wanted, found = one.read(masked=True).data, many.read(masked=True).data
        np.testing.assert_array_equal(valid_of(wanted), valid_of(found))
    assert isinstance(raquet.statistics(tmp_path / "parts"), pa.Table)
