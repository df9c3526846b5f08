"""Padding of tiles at the edge is no pixel, though the format has no mask.

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
from rasterio.enums import ColorInterp
from rasterio.features import rasterize
from rasterio.transform import Affine

from comal import grid, raquet
from comal.raquet.reading.coverage import coverages
from comal.raquet.spec import Band, Metadata
from comal.raquet.writing.copying import united_custom
from tests.raquet.writing.sources import noise, on_grid, utm
from tests.support import SHARED, needs_shared

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


@pytest.fixture
def aligned(tmp_path: Path) -> Path:
    """70 x 45 pixels of 1 to 9 that begin 5 pixels to the east and 3 south of a tile's corner."""
    pixels = np.random.default_rng(3).integers(1, 10, (45, 70), "uint8")
    source = on_grid(tmp_path / "a.tif", pixels, column=32 * 500 + 5, row=32 * 300 + 3)
    return made(source, tmp_path / "a.parquet", zoom=10)


def test_a_raster_on_the_grid_has_its_own_pixels_and_no_others(aligned: Path) -> None:
    assert "footprint" not in source_of(aligned)
    with raquet.open(aligned) as raster, rasterio.open(aligned.with_suffix(".tif")) as source:
        window = raster.read(masked=True)
        inside = np.zeros(window.data.shape[1:], bool)
        inside[3:48, 5:75] = True
        np.testing.assert_array_equal(valid_of(window.data[0]), inside)
        np.testing.assert_array_equal(window.data[0].compressed(), source.read(1).ravel())
        tile = raster.tile(10, 500, 300, masked=True)
        np.testing.assert_array_equal(valid_of(tile[0]), inside[:32, :32])
        np.testing.assert_array_equal(
            valid_of(raster.tiles([(10, 500, 300)], masked=True)[0]), [inside[:32, :32]]
        )
        assert np.isnan(raster.tile(10, 500, 300, scaled=True)[0, 0, 0])
        # What is stored is there for those who ask for it.
        assert raster.tile(10, 500, 300)[0, 0, 0] == 0
        statistics = raster.bands[0].statistics
        assert statistics is not None
        assert statistics.count == inside.sum()


def footprint_mask(source: Path, transform: Any, shape: tuple[int, int]) -> Any:
    """Pixels whose centres lie on the source, by PROJ."""
    from pyproj import Transformer

    with rasterio.open(source) as dataset:
        back, width, height = ~dataset.transform, dataset.width, dataset.height
        to_source = Transformer.from_crs("EPSG:3857", dataset.crs, always_xy=True)
    column, row = np.meshgrid(np.arange(shape[1]) + 0.5, np.arange(shape[0]) + 0.5)
    a, _, c, _, e, f = transform
    x, y = to_source.transform(a * column + c, e * row + f)
    u, v = back.a * x + back.b * y + back.c, back.d * x + back.e * y + back.f
    return (u >= 0) & (u <= width) & (v >= 0) & (v <= height)


def test_a_warped_raster_is_no_rectangle(tmp_path: Path) -> None:
    source = utm(tmp_path / "a.tif", noise((300, 420), "uint16"))
    path = made(source, tmp_path / "a.parquet")
    corners = source_of(path)["footprint"]["coordinates"]
    assert 5 <= len(corners[0][0]) < 40
    with raquet.open(path) as raster:
        for zoom in raster.zooms:
            window = raster.read(zoom=zoom, masked=True)
            found = valid_of(window.data[0])
            wanted = footprint_mask(source, window.transform, found.shape)
            around = found.shape[0] + found.shape[1]
            assert (found != wanted).sum() <= around * 0.05
            if zoom == raster.zooms[-1]:
                statistics = raster.bands[0].statistics
                assert statistics is not None
                assert statistics.count == pytest.approx(found.sum(), abs=around * 0.05)
        picture = raquet.preview(path, size=256)
    with rasterio.MemoryFile(picture) as memory, memory.open() as drawn:
        clear = (drawn.read(4) == 0).mean()
    assert 0.01 < clear < 0.3


def test_bands_with_nodata_need_no_footprint(tmp_path: Path) -> None:
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


@needs_shared
def test_a_raster_across_the_antimeridian(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    raquet.write(SHARED / "data" / "dateline_uint16_utm60.tif", path, zoom=6)
    with raquet.open(path) as raster:
        assert raster.metadata.bounds[0] == -180
        assert raster.metadata.bounds[2] == 180
        assert raster.bounds[0] > 170
        assert raster.bounds[2] < -170
        window = raster.read(masked=True)
        assert window.data.shape[2] < 400
        statistics = raster.bands[0].statistics
        assert statistics is not None
        assert statistics.count == pytest.approx(window.data.count(), rel=0.01)
    done = raquet.to_geotiff(path, tmp_path / "d.tif")
    with rasterio.open(tmp_path / "d.tif") as dataset:
        assert dataset.width == done.width < 400
        np.testing.assert_array_equal(dataset.read_masks(1) > 0, valid_of(window.data[0]))


def test_exports_have_a_mask_where_nodata_does_not_tell(aligned: Path, tmp_path: Path) -> None:
    for write, name in ((raquet.to_geotiff, "a.tif"), (raquet.to_cog, "b.tif")):
        write(aligned, tmp_path / f"out_{name}")
        with rasterio.open(tmp_path / f"out_{name}") as dataset:
            assert dataset.nodata is None
            assert dataset.read_masks(1).sum() == 255 * 45 * 70
            assert sorted(one.name for one in tmp_path.glob("*.msk")) == []
    box = grid.bounds(grid.cells(10, 501, 300))
    raquet.to_geotiff(aligned, tmp_path / "c.tif", bbox=[float(one) for one in box])
    with rasterio.open(tmp_path / "c.tif") as dataset:
        assert dataset.mask_flag_enums[0][0].name == "per_dataset"


def test_bands_that_are_added_keep_their_own_source(aligned: Path, tmp_path: Path) -> None:
    other = on_grid(
        tmp_path / "o.tif", np.full((30, 30), 7, "uint8"), column=32 * 501 + 9, row=32 * 300 + 9
    )
    path = tmp_path / "both.parquet"
    raquet.append_bands(aligned, other, path, names={"band_1": "x"})
    with raquet.open(aligned) as one, raquet.open(path) as both:
        window = both.read(masked=True).data
        np.testing.assert_array_equal(valid_of(window[0]), valid_of(one.read(masked=True).data[0]))
        np.testing.assert_array_equal(valid_of(window[1]), np.ma.getdata(window[1]) == 7)
        assert window[1].count() == 900
    assert raquet.check(path, level="full").ok


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
KEPT: dict[str, Any] = {**LATER, "keep_empty": True}
INTERLEAVED: dict[str, Any] = {"spec_version": "0.5.0", "layout": "interleaved"}


def transparent(path: Path) -> Path:
    """Four bands on the grid, a whole tile of them transparent and black."""
    pixels = noise((4, 150, 170), "uint8")
    pixels[3] = 255
    pixels[:, :80, :90] = 0
    source = on_grid(path, pixels, column=32 * 500 + 5, row=32 * 300 + 3)
    with rasterio.open(source, "r+") as dataset:
        dataset.colorinterp = [ColorInterp[name] for name in ("red", "green", "blue", "alpha")]
    return source


def with_mask(path: Path) -> Path:
    source = utm(path, noise((2, 150, 170), "int16"))
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(source, "r+") as dataset:
        shown = np.full((150, 170), 255, "uint8")
        shown[30:90, 20:120] = 0
        dataset.write_mask(shown)
    return source


SOURCES: dict[str, Any] = {
    "on the grid": lambda path: on_grid(
        path, noise((45, 70), "int16"), column=32 * 500 + 5, row=32 * 300 + 3
    ),
    "warped": lambda path: utm(path, noise((300, 420), "uint16")),
    "floats": lambda path: utm(path, noise((150, 170), "float32")),
    "three bands": lambda path: utm(path, noise((3, 150, 170), "uint8")),
    "transparent": transparent,
    "mask": with_mask,
}


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, LATER) for name in SOURCES), ("warped", {}), ("transparent", KEPT), ("mask", KEPT)],
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


@pytest.mark.parametrize(("kind", "options"), [("alpha", INTERLEAVED), ("mask", LATER)])
def test_what_alpha_hides_has_no_value(tmp_path: Path, kind: str, options: Any) -> None:
    """As rasterio sees it: pixels, windows, points, and statistics of all kinds."""
    shown = np.full((45, 70), 255, "uint8")
    shown[10:20, 5:40] = 0
    shown[30, 50] = 1
    bands = 3 if kind == "alpha" else 2
    pixels = noise((bands, 45, 70), "uint8")
    if kind == "alpha":
        pixels = np.concatenate([pixels, shown[None]])
    source = on_grid(tmp_path / "a.tif", pixels, column=32 * 500 + 5, row=32 * 300 + 3)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(source, "r+") as dataset:
        if kind == "alpha":
            names = ("red", "green", "blue", "alpha")
            dataset.colorinterp = [ColorInterp[name] for name in names]
        else:
            dataset.write_mask(shown)
    path = made(source, tmp_path / "a.parquet", zoom=10, **options)
    with raquet.open(path) as raster, rasterio.open(source) as dataset:
        wanted = dataset.read(masked=True)[:bands]
        inside = np.s_[:, 3:48, 5:75]
        window = raster.read(masked=True).data
        np.testing.assert_array_equal(valid_of(window[inside])[:bands], valid_of(wanted))
        assert valid_of(window[inside])[bands].all()
        # Alpha counts where it is not asked for, and is not given then.
        alone = raster.read(bands=[2], masked=True).data
        assert alone.shape[0] == 1
        assert alone.dtype == np.uint8
        np.testing.assert_array_equal(valid_of(alone), valid_of(window)[1:2])
        place = (10, 500, 300)
        for tile in (
            raster.tile(*place, bands=[2], masked=True),
            raster.tiles([place], bands=[2], masked=True)[0],
        ):
            np.testing.assert_array_equal(valid_of(tile), valid_of(window)[1:2, :32, :32])
        assert np.isnan(raster.tile(*place, bands=[2], scaled=True)[0, 15, 20])
        x, y = 32 * 500 + 5 + np.array([4.5, 5.5]), 32 * 300 + 3 + np.array([10.5, 10.5])
        found = raster.points(*grid.xy_to_lonlat(x / 32, y / 32, 10), bands=[1], masked=True)
        assert valid_of(found).tolist() == [[True, False]]
        # What is stored is there for those who ask for it.
        assert raster.read(bands=[2]).data[inside][0, 30, 50] == pixels[1, 30, 50]
        table = raquet.statistics(path, stats=["count", "mean", "median"]).to_pylist()
        for number in range(bands):
            valid = wanted[number].compressed()
            row = table[number]
            assert (row["count"], row["median"]) == (len(valid), np.median(valid))
            assert row["mean"] == pytest.approx(valid.mean())
            own = raster.bands[number].statistics
            assert own is not None
            assert own.mean == pytest.approx(valid.mean())
            assert own.min == valid.min()
        if options == LATER:
            counts = pq.read_table(path, columns=["block", "band_1_count"]).to_pylist()
            finest = [one for one in counts if one["block"] and grid.zooms(one["block"]) == 10]
            assert sum(one["band_1_count"] for one in finest) == wanted[0].count()


def test_statistics_of_a_transparent_tile_are_those_of_what_is_there(tmp_path: Path) -> None:
    path = made(transparent(tmp_path / "a.tif"), tmp_path / "a.parquet")
    with raquet.open(path) as file:
        for band, row in zip(file.bands, raquet.statistics(path).to_pylist(), strict=True):
            assert band.statistics is not None
            assert (band.statistics.count, band.statistics.min) == (row["count"], row["min"])
            assert band.statistics.mean == pytest.approx(row["mean"])


@pytest.mark.parametrize("kind", ["count", "sum", "mean", "min"])
def test_of_a_raster_on_the_grid_statistics_are_exact(tmp_path: Path, kind: str) -> None:
    path = made(SOURCES["on the grid"](tmp_path / "a.tif"), tmp_path / "a.parquet", min_zoom=10)
    table = pq.read_table(path)
    documents = table.column("metadata").to_pylist()
    row = next(at for at, text in enumerate(documents) if text)
    document = json.loads(documents[row])
    statistics = document["bands"][0]["stats"]
    statistics[kind] += 1 + abs(int(statistics[kind])) // 1000
    documents[row] = json.dumps(document)
    at = table.column_names.index("metadata")
    changed = table.set_column(at, "metadata", pa.array(documents, pa.string()))
    pq.write_table(changed, tmp_path / "b.parquet")
    found = raquet.check(tmp_path / "b.parquet", statistics=True)
    assert found.counts["raquet-statistics-differ"] == 1


def test_statistics_that_count_padding_are_found(tmp_path: Path) -> None:
    """Of tiles and of the whole: each of the numbers, on a tile that is covered in part."""
    path = made(SOURCES["warped"](tmp_path / "a.tif"), tmp_path / "a.parquet", **LATER)
    table = pq.read_table(path)
    with raquet.open(path) as file:
        store = file.store
        partly = [
            row
            for row, cell in enumerate(store.ids.tolist())
            if cell
            and (inside := store.coverage[0].tile(*grid.tiles(cell), (32, 32))) is not None  # type: ignore[union-attr]
            and 200 < inside.sum() < 800
        ]
        pixels = file.tile(*(int(one) for one in grid.tiles(int(store.ids[partly[0]]))))[0]
    row = partly[0]
    every = {"count": 1024, "sum": float(pixels.sum()) * 1.5, "mean": float(pixels.mean())}
    every |= {"stddev": float(pixels.std()) * 3, "min": -1.0, "max": 65536.0}
    for kind, value in every.items():
        column = f"band_1_{kind}"
        values = table.column(column).to_pylist()
        values[row] = value
        at = table.column_names.index(column)
        changed = table.set_column(
            at, column, pa.array(values).cast(table.schema.field(column).type)
        )
        pq.write_table(changed, tmp_path / "b.parquet")
        found = raquet.check(tmp_path / "b.parquet", statistics=True)
        places = [one for one in found.problems if one.code == "raquet-statistics-differ"]
        assert len(places) == 1, kind
        assert f"row {row}" in places[0].place or str(store.ids[row]) in places[0].place
        assert f"{kind} " in places[0].message


@given(
    st.lists(st.tuples(st.integers(0, 63), st.integers(0, 63)), min_size=3, max_size=8),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_what_a_writer_may_count_lies_near_the_edge(
    points: list[tuple[int, int]], x: int, y: int
) -> None:
    polygon = shapely.convex_hull(shapely.MultiPoint(np.array(points) + 0.3))
    if polygon.geom_type != "Polygon":
        return
    u, v = shapely.get_coordinates(polygon).T / 64
    lon, lat = grid.xy_to_lonlat(u, v, 0)
    ring = np.stack([lon, lat], axis=1).tolist()
    source = {"footprint": {"type": "MultiPolygon", "coordinates": [[ring]]}}
    (cover,) = coverages([metadata({"source": source})])
    assert cover is not None
    column, row = np.meshgrid(16 * x + np.arange(16) + 0.5, 16 * y + np.arange(16) + 0.5)
    middles = shapely.points(column, row)
    inside, away = shapely.contains(polygon, middles), shapely.distance(polygon.exterior, middles)
    blunt, clear = polygon.buffer(-1).buffer(0.99), away > 1e-6
    for reduced, reach in ((False, 0.3), (True, 1.5)):
        found = cover.limits(2, x, y, (16, 16), reduced=reduced)
        least, most = found or (np.ones((16, 16), bool),) * 2
        assert (least <= inside)[clear].all()
        assert (inside <= most)[clear].all()
        assert (away[least] >= reach / 2).all()
        assert (away[inside & ~least] <= reach * 1.5).all()
        # A corner sharper than a pixel holds no middle, wherever it is moved.
        assert blunt.is_empty or (shapely.distance(blunt, middles)[~most] >= reach / 2).all()
        assert (away[most & ~inside] <= reach * 1.5 + reduced).all()


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


def test_bands_of_several_sources_keep_them_when_files_are_merged() -> None:
    def document(west: float, *, nodata: int | None) -> Metadata:
        sources = {"b": {"bounds": [west, 0, west + 1, 1]}}
        own = {"source": {"bounds": [west, 0, west + 2, 1]}, "sources": sources}
        bands = tuple(Band(name=name, dtype="uint8", nodata=nodata) for name in "ab")
        return replace(metadata(own), bands=bands, max_zoom=12)

    merged = [document(west, nodata=None) for west in (0.0, 5.0)]
    sources = united_custom(merged)["comal"]["sources"]
    assert [sources[name]["bounds"][2] for name in "ab"] == pytest.approx([7, 6])
    assert "footprint" in sources["b"]
    merged = [document(west, nodata=0) for west in (0.0, 5.0)]
    assert "footprint" not in united_custom(merged)["comal"]["sources"]["b"]


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
        {"source": {"bounds": [0, 0, 1, 1]}, "sources": {"band_1": None}},
        {"source": {"bounds": [0, 0, 1, 1]}, "sources": {"band_1": 3}},
    ],
)
def test_what_says_nothing_hides_nothing(source: Any) -> None:
    assert coverages([metadata(source)]) == (None,)


def test_nodata_is_enough() -> None:
    told = {"source": {"bounds": [0, 0, 1, 1]}}
    assert coverages([metadata(told, nodata=0)]) == (None,)
    (cover,) = coverages([metadata(told, nodata=300)])  # no pixel can have it
    assert cover is not None


@given(
    st.lists(st.tuples(st.integers(0, 63), st.integers(0, 63)), min_size=3, max_size=8),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_windows_and_tiles_are_those_of_gdal(
    points: list[tuple[int, int]], column: int, row: int
) -> None:
    polygon = shapely.convex_hull(shapely.MultiPoint(np.array(points) + 0.3))
    if polygon.geom_type != "Polygon":
        return
    corners = shapely.get_coordinates(polygon)
    lon, lat = grid.xy_to_lonlat(corners[:, 0] / 64, corners[:, 1] / 64, 0)
    document = json.loads(
        json.dumps(
            {
                "source": {
                    "footprint": {
                        "type": "MultiPolygon",
                        "coordinates": [[np.stack([lon, lat], axis=1).tolist()]],
                    }
                }
            }
        )
    )
    (cover,) = coverages([metadata(document)])
    assert cover is not None
    wanted = rasterize([(polygon, 1)], (64, 64), transform=Affine.identity()) > 0
    centres = shapely.points(np.stack(np.meshgrid(*[np.arange(64) + 0.5] * 2), axis=-1))
    sure = shapely.distance(polygon.exterior, centres) > 1e-6
    whole = cover.window((0, 0, 64, 64), (64, 64))
    np.testing.assert_array_equal((whole if whole is not None else True) & sure, wanted & sure)
    part = cover.window((column, row, 20, 20), (64, 64))
    cut = np.s_[row : row + 20, column : column + 20]
    shown = np.ones((20, 20), bool) if part is None else part
    np.testing.assert_array_equal(shown & sure[cut], wanted[cut] & sure[cut])
    around = cover.window((column - 64, 0, 64, 64), (64, 64))
    rolled = np.roll(wanted & sure, -column, axis=1)
    shown = np.ones((64, 64), bool) if around is None else around
    np.testing.assert_array_equal(shown & np.roll(sure, -column, axis=1), rolled)
    tile = cover.tile(2, 1, 2, (16, 16))
    shown = np.ones((16, 16), bool) if tile is None else tile
    at = np.s_[32:48, 16:32]
    np.testing.assert_array_equal(shown & sure[at], wanted[at] & sure[at])


def test_repair_and_parts_keep_the_outline(tmp_path: Path) -> None:
    source = utm(tmp_path / "a.tif", noise((300, 420), "uint16"))
    path = made(source, tmp_path / "a.parquet")
    raquet.repair(path, tmp_path / "r.parquet")
    assert source_of(tmp_path / "r.parquet") == source_of(path)
    raquet.partition(path, tmp_path / "parts", zoom=12)
    with raquet.open(path) as one, raquet.open(tmp_path / "parts") as many:
        wanted, found = one.read(masked=True).data, many.read(masked=True).data
        np.testing.assert_array_equal(valid_of(wanted), valid_of(found))
    assert isinstance(raquet.statistics(tmp_path / "parts"), pa.Table)
