"""Columns of a footer as fields: types, names, and what cannot be mapped."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from comal.convert import MigrationReport
from comal.convert.columns import centroid_points, legal_key, tensor_shapes
from comal.taco import spec
from tests.convert.migrated import collection, level, moved
from tests.tortilla.build import Item, built, column

SHAPE = "stac:raster_shape"


def rows_moved(tmp_path: Path, *rows: dict[str, Any], **more: Any) -> tuple[Any, MigrationReport]:
    """The uppermost table of items with these columns."""
    data = built([Item(f"i{n}", b"x", more=row) for n, row in enumerate(rows)])
    output, report = moved(tmp_path, data, **more)
    return level(output), report


def messages(report: MigrationReport, kind: str) -> dict[str, str]:
    return {change.name: change.message for change in report.of(kind)}


def test_times(tmp_path: Path) -> None:
    table, _ = rows_moved(
        tmp_path,
        {"stac:time_start": 0.0, "stac:time_end": 3.0},
        {"stac:time_start": -5.0, "stac:time_end": None},
        {"stac:time_start": None, "stac:time_end": 4.0},
    )
    epoch = dt.datetime(1970, 1, 1)
    assert table["stac:time_start"].to_pylist() == [epoch, epoch - dt.timedelta(seconds=5), None]
    assert table["stac:time_middle"].to_pylist() == [epoch + dt.timedelta(seconds=1.5), None, None]


def test_times_that_are_none(tmp_path: Path) -> None:
    table, report = rows_moved(
        tmp_path,
        {"stac:time_start": 2020.0, "stac:time_end": 2021.0},
        {"stac:time_start": 2016.0, "stac:time_end": 1e15},
        {"stac:time_start": 2011.0, "stac:time_end": 7.0},
    )
    told = {(one.name, one.rows) for one in report.of("warning")}
    assert ("stac:time_start", None) in told
    assert ("stac:time_end", 1) in told
    assert "years" in messages(report, "warning")["stac:time_start"]
    assert "before the start" in {one.message.removeprefix("is ") for one in report.of("warning")}
    assert table["stac:time_end"].to_pylist()[1] is None
    # A year is never repaired in silence: it is 2020 seconds.
    assert table["stac:time_start"].to_pylist()[0] == dt.datetime(1970, 1, 1, 0, 33, 40)


@pytest.mark.filterwarnings("ignore:.*left as it is")
def test_columns_that_are_something_else(tmp_path: Path) -> None:
    table, report = rows_moved(
        tmp_path, {"stac:time_start": "2020-01-01", "stac:raster_shape": "64", "stac:centroid": 5.0}
    )
    assert set(messages(report, "kept")) == {
        "stac:time_start",
        "stac:raster_shape",
        "stac:centroid",
    }
    assert table["tortilla:time_start"].to_pylist() == ["2020-01-01"]
    assert not {name for name in table.column_names if name.startswith("stac:")}


@pytest.mark.filterwarnings("ignore:.*left as it is")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stac:raster_shape", "64"),
        ("stac:raster_shape", [1.5, 2.5]),
        ("stac:geotransform", "here"),
        ("stac:crs", 4326),
        ("stac:time_end", dt.datetime(2020, 1, 1)),
        ("stac:centroid", True),
        ("tortilla:data_split", 3),
        ("rai:elevation", "high"),
        ("rai:admin0", 5),
        ("rai:gdp", dt.datetime(2020, 1, 1)),
    ],
)
def test_no_type_breaks_it(tmp_path: Path, name: str, value: Any) -> None:
    def child(n: int) -> Item:
        more = {name: value, "stac:time_start": 5.0}
        inner = built([Item("a", b"II*\0", "GTiff", more)], table=_whole)
        return Item(f"r{n}", inner, "TORTILLA", more)

    def _whole(table: Any) -> Any:
        # `data_split` of the builder stands beside the one that is asked for.
        names = table.column_names
        return table.select([n for n in range(len(names)) if names[n] not in names[n + 1 :]])

    moved(tmp_path, built([child(0), child(1)], table=_whole))


@pytest.mark.filterwarnings("ignore:.*left as it is")
def test_shapes_beyond_64_bits_with_a_sign_are_kept(tmp_path: Path) -> None:
    lists = pa.array([[2**63, 4]], pa.list_(pa.uint64()))
    data = built([Item("a", b"II*\0", "GTiff")], table=lambda t: t.append_column(SHAPE, lists))
    output, report = moved(tmp_path, data)
    assert level(output)["tortilla:raster_shape"].to_pylist() == [[2**63, 4]]
    assert messages(report, "kept").keys() == {SHAPE}


def test_splits(tmp_path: Path) -> None:
    splits = column("tortilla:data_split", pa.array(["train", "val"]))
    output, report = moved(tmp_path, built([Item("a", b"x"), Item("b", b"x")], table=splits))
    assert level(output)["split"].to_pylist() == ["train", "val"]
    (warning, *_) = report.of("warning")
    assert (warning.name, warning.rows) == ("tortilla:data_split", 1)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (pa.duration("s"), dt.timedelta(seconds=90), 90),
        (pa.float16(), 1.5, 1.5),
        (pa.list_(pa.int8(), 2), [1, 2], [1, 2]),
        (pa.decimal32(5, 2), Decimal("1.25"), Decimal("1.25")),
    ],
    ids=str,
)
def test_types_that_not_every_reader_knows(
    tmp_path: Path, kind: Any, value: Any, stored: Any
) -> None:
    data = built([Item("a", b"x")], table=column("v", pa.array([value], kind)))
    data = built([Item("p", data, "TORTILLA"), Item("q", data, "TORTILLA")])
    output, report = moved(tmp_path, data)
    assert level(output, 1)["v"].to_pylist() == [stored, stored]
    assert ("v" in messages(report, "changed")) == pa.types.is_duration(kind)


def test_other_columns_get_legal_names(tmp_path: Path) -> None:
    table, report = rows_moved(
        tmp_path,
        {"cloud cover": 1.5, "a:b:c": 2, "id": "mine", "type": 3, "nothing": None, "größe": 4}
        | {"split": "mine", "cloud_cover": 9},
    )
    row = table.to_pylist()[0]
    assert (row["cloud_cover"], row["cloud_cover_2"]) == (1.5, 9)
    assert (row["a:b_c"], row["tortilla:id"], row["tortilla:type"]) == (2, "mine", 3)
    assert (row["gr__e"], row["split"], row["id"]) == (4, "mine", "i0")
    assert "nothing" in messages(report, "dropped")
    assert set(messages(report, "renamed")) >= {"cloud cover", "a:b:c", "id", "type", "größe"}


@pytest.mark.parametrize("name", ["", ":", "a:", ":b", "internal:offset", "path", "x y:z-w"])
def test_legal_keys(name: str) -> None:
    assert spec.key_fault(legal_key(name)) is None


def test_an_unknown_crs_is_told_and_costs_only_the_place(tmp_path: Path) -> None:
    place = {
        "stac:crs": "EPSG:99999999",
        "stac:geotransform": [0.0, 1.0, 0.0, 0.0, 0.0, -1.0],
        "stac:raster_shape": [8, 8],
        "stac:centroid": "POINT (4.0 -4.0)",
    }
    _, report = rows_moved(tmp_path, place)
    assert "places cannot be read" in " ".join(one.message for one in report.of("warning"))
    extent = collection(tmp_path / "new.tacozip")["extent"]
    assert extent["spatial"] == [4.0, -4.0, 4.0, -4.0]


def test_rows_that_cover_the_world_have_a_place(tmp_path: Path) -> None:
    world = {
        "stac:crs": "EPSG:4326",
        "stac:geotransform": [-180.0, 1.0, 0.0, 90.0, 0.0, -1.0],
        "stac:raster_shape": [180, 360],
    }
    for row, told in ((world, "computed from the rows"), ({}, "no row has a place")):
        _, report = rows_moved(tmp_path, row, overwrite=True)
        assert collection(tmp_path / "new.tacozip")["extent"]["spatial"] == [-180, -90, 180, 90]
        assert told in next(c.message for c in report.changes if c.name == "extent")


def test_centroids() -> None:
    texts = [
        "POINT (1.5 -2)",
        "point(1e-05 .5)",
        " POINT Z (3 4 5) ",
        "POINT EMPTY",
        "LINESTRING (0 0, 1 1)",
        "POINT (181 0)",
        "POINT (1 2) x",
        "nonsense",
        "",
        None,
    ]
    points, lost = centroid_points(pa.array(texts))
    found = [None if one is None else struct.unpack("<BIdd", one)[2:] for one in points.to_pylist()]
    assert found == [(1.5, -2.0), (1e-05, 0.5), (3.0, 4.0), *([None] * 7)]
    assert lost == 6
    binary = pa.array([shapely.to_wkb(shapely.Point(7, 8)), b"\x01", None])
    points, lost = centroid_points(binary)
    assert struct.unpack("<BIdd", points[0].as_py())[2:] == (7.0, 8.0)
    assert (points.null_count, lost) == (2, 1)
    arc = struct.pack("<BII6d", 1, 8, 3, 0, 0, 1, 1, 2, 0)  # shapely reads no curves
    for curves in (
        pa.array([binary[0].as_py(), arc, b"\x01"]),
        pa.array(["SRID=4326;POINT (7 8)", "CIRCULARSTRING (0 0, 1 1, 2 0)", "nonsense"]),
        pa.array(["POINT (7 8)", "CIRCULARSTRING (0 0, 1 1, 2 0)", "nonsense"]),
    ):
        points, lost = centroid_points(curves)
        assert (points.null_count, lost) in {(2, 2), (3, 3)}


def test_shapes() -> None:
    shapes = pa.array([[4, 5], None, [3, 4, 5], [6, 7], []], pa.list_(pa.int64()))
    found, plain = tensor_shapes(shapes, np.array([2, 9, 9, 0, 9]))
    assert found.to_pylist() == [[2, 4, 5], None, [3, 4, 5], [6, 7], []]
    assert plain == 1
    sliced, _ = tensor_shapes(shapes.slice(2, 2), np.array([1, 1]))
    assert sliced.to_pylist() == [[3, 4, 5], [1, 6, 7]]


def test_bands_of_the_caller(tmp_path: Path) -> None:
    table, report = rows_moved(tmp_path, {"stac:raster_shape": [4, 5]}, bands=3)
    assert table["stac:tensor_shape"].to_pylist() == [[3, 4, 5]]
    assert not [one for one in report.of("warning") if one.name.startswith("stac:")]
