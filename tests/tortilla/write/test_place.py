"""STAC from headers of rasters, and the classes that come of it."""

from __future__ import annotations

import datetime as dt
import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyproj
import pytest
import rasterio

from comal.errors import InvalidInputError, NotThisFormatError
from comal.tortilla import RAI, STAC, Sample, Slice, TortillaWarning, create
from tests.raster.rasters import write
from tests.tortilla.write.oracle import listing, read, read_bytes

PIXELS = np.ones((2, 20, 30), np.uint8)
ROTATED = (300000.0, 8.0, 3.0, 8700000.0, 2.0, -9.0)


def point(text: str) -> tuple[float, float]:
    found = re.fullmatch(r"POINT \((-?\d+\.\d{6}) (-?\d+\.\d{6})\)", text)
    assert found is not None
    return float(found[1]), float(found[2])


def test_headers_fill_what_is_missing(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.tif", PIXELS)
    rotated = write(tmp_path / "rotated.tif", PIXELS, affine=ROTATED)
    nowhere = write(tmp_path / "nowhere.tif", PIXELS, affine=None)
    inner = create([Sample("x", path=plain)], tmp_path / "inner.tortilla")
    span = read(inner)
    at, size = span.column("tortilla:offset")[0], span.column("tortilla:length")[0]
    start = dt.datetime(2020, 5, 17, 10, 30, tzinfo=dt.UTC)
    sources: dict[str, Any] = {
        "path": plain,
        "bytes": plain.read_bytes(),
        "slice": Slice(inner.path, at, size),
        "rotated": rotated,
        "nowhere": nowhere,
        "text": b"no raster",
        "given": plain,
    }
    given = STAC("EPSG:4326", (1, 2), (0, 1, 0, 0, 0, -1), start, start, "POINT (1 2)")
    samples = [
        Sample(name, path=source, stac_data=given if name == "given" else {"time_start": start})
        for name, source in sources.items()
    ]
    found = read(create(samples, tmp_path / "a.tortilla"))
    rows = {row["tortilla:id"]: row for row in found.table.to_pylist()}
    for name in ("path", "bytes", "slice", "rotated"):
        affine = list(ROTATED) if name == "rotated" else [300000, 10, 0, 8700000, 0, -10]
        assert rows[name]["stac:crs"] == "EPSG:32718"
        assert rows[name]["stac:geotransform"] == affine
        assert rows[name]["stac:raster_shape"] == [20, 30]
        transform = rasterio.Affine.from_gdal(*affine)
        project = pyproj.Transformer.from_crs(32718, 4326, always_xy=True)
        assert point(rows[name]["stac:centroid"]) == pytest.approx(
            project.transform(*(transform @ (15, 10))), abs=1e-6
        )
        assert rows[name]["stac:time_start"] == int(start.timestamp())
        assert rows[name]["tortilla:file_format"] == "GTiff"
    for name in ("nowhere", "text"):
        assert rows[name]["stac:crs"] is None
        assert rows[name]["stac:raster_shape"] is None
        assert rows[name]["stac:centroid"] is None
    assert rows["given"]["stac:crs"] == "EPSG:4326"
    assert rows["given"]["stac:centroid"] == "POINT (1 2)"
    with rasterio.open(
        f"/vsisubfile/{rows['rotated']['tortilla:offset']}"
        f"_{rows['rotated']['tortilla:length']},{tmp_path / 'a.tortilla'}"
    ) as file:
        assert file.transform.to_gdal() == ROTATED


def test_when_headers_are_read(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.tif", PIXELS)
    none = read(create([Sample("a", path=plain)], tmp_path / "1.tortilla"))
    assert "stac:crs" not in none.table.column_names
    asked = read(create([Sample("a", path=plain)], tmp_path / "2.tortilla", stac=True))
    assert asked.column("stac:crs") == ["EPSG:32718"]
    assert "stac:time_start" not in asked.table.column_names
    begun = [Sample("a", path=plain, stac_data={"time_start": 5})]
    refused = read(create(begun, tmp_path / "3.tortilla", stac=False))
    assert "stac:crs" not in refused.table.column_names
    table = pa.table({"id": ["a"], "path": [str(plain)], "stac:time_start": [5.0]})
    with ThreadPoolExecutor(1) as executor:
        tabled = read(create(table, tmp_path / "4.tortilla", executor=executor))
    assert tabled.column("stac:raster_shape") == [[20, 30]]
    assert str(tabled.table.schema.field("stac:time_start").type) == "int64"
    with pytest.raises(NotThisFormatError):
        create([Sample("a", "GTiff", b"no TIFF at all")], tmp_path / "6.tortilla", stac=True)
    assert "6.tortilla" not in listing(tmp_path)


def test_a_nested_item_takes_the_place_of_its_first_raster(tmp_path: Path) -> None:
    one = write(tmp_path / "one.tif", PIXELS)
    two = write(tmp_path / "two.tif", PIXELS, affine=(400000, 10, 0, 8700000, 0, -10))
    samples = [
        Sample("none", path=[Sample("text", path=b"text")]),
        Sample(
            "both",
            path=[
                Sample("text", path=b"text"),
                Sample("two", path=two, stac_data={"time_start": 7}),
                Sample("one", path=one, stac_data={"time_start": 8}),
            ],
        ),
        Sample("flat", path=one),
    ]
    found = read(create(samples, tmp_path / "a.tortilla"))
    assert found.column("stac:time_start") == [None, 7, None]
    x0 = [None if row is None else row[0] for row in found.column("stac:geotransform")]
    assert x0 == [None, 400000, 300000]
    inside = read_bytes(found.items[1])
    assert inside.column("stac:raster_shape") == [None, [20, 30], [20, 30]]


def test_times(tmp_path: Path) -> None:
    values: list[Any] = [
        1_600_000_000,
        1_600_000_000.9,
        "2020-09-13T12:26:40Z",
        dt.datetime(2020, 9, 13, 12, 26, 40, tzinfo=dt.UTC),
        dt.datetime(2020, 9, 13, 14, 26, 40, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        np.datetime64("2020-09-13T12:26:40"),
        np.int32(1_600_000_000),
        -1.5,
        dt.date(1970, 1, 2),
        float("nan"),
        None,
    ]
    samples = [
        Sample(f"s{n}", path=b"1", **{"stac:time_start": value}) for n, value in enumerate(values)
    ]
    found = read(create(samples, tmp_path / "a.tortilla", stac=False))
    assert found.column("stac:time_start") == [1_600_000_000] * 7 + [-2, 86_400, None, None]
    stamps = pa.array([1_600_000_000_999, None], pa.timestamp("ms", "Europe/Berlin"))
    for column in (stamps, stamps.cast(pa.timestamp("ns"))):
        table = pa.table({"id": ["a", "b"], "path": [b"", b""], "stac:time_start": column})
        found = read(create(table, tmp_path / "a.tortilla", overwrite=True, stac=False))
        assert found.column("stac:time_start") == [1_600_000_000, None]


def test_times_that_are_not_sure(tmp_path: Path) -> None:
    naive = [Sample("a", path=b"1", stac_data={"time_start": dt.datetime(2020, 1, 1)})]
    with pytest.warns(TortillaWarning, match="taken as UTC"):
        found = read(create(naive, tmp_path / "a.tortilla"))
    assert found.column("stac:time_start") == [1_577_836_800]
    year = [Sample("a", path=b"1", stac_data={"time_start": 2020.0})]
    with pytest.warns(TortillaWarning, match="looks like a year"):
        create(year, tmp_path / "b.tortilla")
    dates = pa.table({"id": ["a", "b"], "path": [b"", b""], "stac:time_start": [20_230_229, None]})
    create(dates, tmp_path / "c.tortilla", stac=False)  # no such day: no warning
    dates = dates.set_column(2, "stac:time_start", pa.array([20_230_229, 20_240_229]))
    with pytest.warns(TortillaWarning, match="row 1: .* looks like a date"):
        create(dates, tmp_path / "d.tortilla", stac=False)


@pytest.mark.parametrize(
    ("given", "stored"), [(1.6, 2), (np.float32(2.4), 2), (5, 5), (math.nan, None), (None, None)]
)
def test_elevations_are_whole_metres_or_null(tmp_path: Path, given: Any, stored: Any) -> None:
    samples = [Sample(name, "BYTES", b"x", rai_data={"elevation": given}) for name in "ab"]
    samples.append(Sample("c", "BYTES", b"x", rai_data=RAI(elevation=7)))
    create(samples, tmp_path / "x.tortilla")
    assert read(tmp_path / "x.tortilla").column("rai:elevation") == [stored, stored, 7]


@pytest.mark.parametrize("when", [2**63, 1e30])
def test_times_that_no_integer_holds_are_refused(tmp_path: Path, when: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a point in time"):
        create([Sample("a", path=b"x", stac_data={"time_start": when})], tmp_path / "x.tortilla")


def test_classes(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.tif", PIXELS)
    rai = RAI(5, 0.1, 1.0, 0.5, 0.2, 3.0, "Peru", "Lima", "Lima")
    times = {"time_start": 5, "time_end": 6}
    both = Sample("a", path=plain, stac_data=times, rai_data=rai)
    assert create([both], tmp_path / "1.tortilla").classes == ("stac-tortilla", "rai-tortilla")
    without = Sample("b", path=plain, stac_data={"time_start": 5})
    assert create([both, without], tmp_path / "2.tortilla").classes == ()
    only = Sample("c", path=plain, stac_data=times)
    assert create(iter([only]), tmp_path / "3.tortilla").classes == ("stac-tortilla",)
