"""Extensions that read rasters: GeotiffStats, GeoEnrich and RAI."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from comal.errors import InvalidInputError, ObjectNotFoundError
from comal.taco.extensions import ISTAC, RAI, STAC, GeoEnrich, GeotiffStats
from comal.taco.extensions.base import RowSample, columns_for
from tests.raster.rasters import write

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_statistics_of_a_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", PIXELS)
    for source in (path, str(path), path.read_bytes()):
        found = GeotiffStats()(RowSample("a", source, "FILE"))
        assert str(found.schema.types[0]) == "list<element: list<element: float>>"
        stats = np.array(found["geotiff:stats"].to_pylist()[0])
        np.testing.assert_allclose(stats[0, :5], [0, 11, 5.5, np.arange(12).std(), 100])
        np.testing.assert_allclose(stats[1, 5:], np.percentile(PIXELS[1], [25, 50, 75, 95]))


def test_statistics_of_scaled_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", PIXELS)
    scaled = {"scaling:scale_factor": 0.5, "scaling:scale_offset": 10.0}
    stats = GeotiffStats()(RowSample("a", path, "FILE", scaled)).to_pylist()[0]["geotiff:stats"]
    assert stats[0][:3] == [10, 15.5, 12.75]
    by_band = {"scaling:scale_factor": [1.0, 2.0], "scaling:scale_offset": None}
    stats = GeotiffStats()(RowSample("a", path, "FILE", by_band)).to_pylist()[0]["geotiff:stats"]
    assert [band[1] for band in stats] == [11, 46]


def test_empty_bands(tmp_path: Path) -> None:
    half = np.stack([np.zeros((2, 2)), np.ones((2, 2))]).astype(np.uint8)
    stats = GeotiffStats()(RowSample("a", write(tmp_path / "a.tif", half, nodata=0), "FILE"))
    assert stats.to_pylist()[0]["geotiff:stats"][0] == [None] * 4 + [0] + [None] * 4
    empty = write(tmp_path / "b.tif", half[:1], nodata=0)
    with pytest.warns(UserWarning, match="no valid pixels"):
        found = GeotiffStats()(RowSample("b", empty, "FILE"))
    assert found["geotiff:stats"].to_pylist() == [None]


def test_classes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", np.array([[1, 1, 2, 9]], np.uint8))
    found = GeotiffStats(categorical=True, class_values=[2, 1, 5])(RowSample("a", path, "FILE"))
    np.testing.assert_allclose(found["geotiff:stats"].to_pylist()[0], [[1 / 3, 2 / 3, 0]])
    for wrong in (None, [], ["a"], 5):
        with pytest.raises(InvalidInputError, match="class_values"):
            GeotiffStats(categorical=True, class_values=wrong)  # type: ignore[arg-type]


def test_many_rasters(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / f"{n}.tif", PIXELS + n)) for n in range(100)]
    table = pa.table({"id": paths, "path": paths})
    expected = list(range(100))
    found = columns_for(GeotiffStats(), table)["geotiff:stats"].to_pylist()
    assert [stats[0][0] for stats in found] == expected
    with pytest.raises(ObjectNotFoundError, match="gone"):
        columns_for(GeotiffStats(), pa.table({"path": [*paths, "gone"]}))
    with pytest.raises(InvalidInputError, match="path"):
        columns_for(GeotiffStats(), pa.table({"id": ["a"]}))
    with pytest.raises(InvalidInputError, match="data of their own"):
        GeotiffStats()(RowSample("a", None, "FOLDER"))
    assert GeotiffStats(schema_only=True)(RowSample("a", None, "FILE")).to_pylist() == [
        {"geotiff:stats": None}
    ]


def chips(count: int = 3) -> pa.Table:
    """Samples of 200 m along a row of the layer below."""
    places = [(300000 + 200 * n, 10, 0, 8700000, 0, -10) for n in range(count)]
    stac = [STAC("EPSG:32718", (1, 20, 20), place, 0)(None) for place in places]
    return pa.concat_tables(stac)


def layer(folder: Path, name: str = "dem.tif", **options: Any) -> Path:
    pixels = np.arange(60, dtype=np.float32).reshape(6, 10)
    return write(folder / name, pixels, affine=(300000, 100, 0, 8700000, 0, -100), **options)


MEANS = [5.5, 7.5, 9.5]  # of 2 x 2 pixels each


def test_geoenrich(tmp_path: Path) -> None:
    areas = [
        (shapely.box(-90, -20, -76.834, 0).wkb, "west"),
        (shapely.box(-76.834, -20, -76.833, 0).wkb, "middle"),
    ]
    extension = GeoEnrich(
        layers={"elevation": layer(tmp_path), "mine": (str(layer(tmp_path)), 1)},
        admin={"countries": areas},
    )
    found = columns_for(extension, chips())
    assert found.column_names == [
        "geoenrich:elevation",
        "geoenrich:mine",
        "geoenrich:admin_countries",
    ]
    assert [str(kind) for kind in found.schema.types] == ["float", "float", "string"]
    assert found["geoenrich:elevation"].to_pylist() == MEANS
    assert found["geoenrich:mine"].to_pylist() == MEANS
    assert found["geoenrich:admin_countries"].to_pylist() == ["west", None, None]
    assert b"metres" in found.schema.field(0).metadata[b"description"]
    with ThreadPoolExecutor(2) as pool:
        extension.executor = pool
        assert columns_for(extension, chips())["geoenrich:mine"].to_pylist() == MEANS


def test_nothing_valid_is_null(tmp_path: Path) -> None:
    pixels = np.zeros((6, 10), np.float32)
    pixels[:, 2:] = 1
    path = write(tmp_path / "a.tif", pixels, affine=(300000, 100, 0, 8700000, 0, -100), nodata=0)
    found = columns_for(GeoEnrich(layers={"x": path}), chips(6))
    assert found["geoenrich:x"].to_pylist() == [None, 1, 1, 1, 1, None]


def test_rai(tmp_path: Path) -> None:
    dem, cisi = layer(tmp_path), layer(tmp_path, "cisi.tif")
    area = [(shapely.box(-180, -90, 180, 90).wkb, "Earth")]
    found = columns_for(RAI(layers={"elevation": dem, "pop": cisi}, admin={0: area}), chips())
    assert found.column_names == ["rai:elevation", "rai:pop", "rai:admin0"]
    assert [str(kind) for kind in found.schema.types] == ["int64", "double", "string"]
    assert found["rai:elevation"].to_pylist() == [6, 8, 10]
    assert found["rai:pop"].to_pylist() == MEANS
    assert found["rai:admin0"].to_pylist() == ["Earth"] * 3
    with pytest.raises(InvalidInputError, match="cisi"):
        columns_for(RAI(layers={"cisi": cisi}), chips())


def test_footprints_of_every_kind(tmp_path: Path) -> None:
    extension = GeoEnrich(layers={"x": layer(tmp_path)})
    box = shapely.box(300000, 8699800, 300200, 8700000)
    outline = ISTAC("EPSG:32718", box, 0)(None)
    assert columns_for(extension, outline)["geoenrich:x"].to_pylist() == [5.5]
    place = outline.select(["istac:centroid"])
    assert columns_for(extension, place)["geoenrich:x"].to_pylist()[0] in {0, 1, 10, 11}
    with pytest.raises(InvalidInputError, match="STAC"):
        columns_for(extension, pa.table({"id": ["a"]}))
    with pytest.raises(ObjectNotFoundError, match="gone"):
        columns_for(GeoEnrich(layers={"x": "gone.tif"}), chips())
    with pytest.raises(InvalidInputError, match="layers"):
        GeoEnrich()
    lazy = GeoEnrich(layers={"x": "gone.tif"}, schema_only=True)
    assert columns_for(lazy, chips())["geoenrich:x"].to_pylist() == [None] * 3
