"""What a check reports, and what it leaves alone."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal import Limits, tortilla
from comal.tortilla import spec
from comal.tortilla.spec import CODES
from tests.support import SHARED, needs_shared
from tests.tortilla import build
from tests.tortilla.build import Item, column, write

TIFF = b"II*\0" + bytes(range(60))
PLACE = {
    spec.CRS: "EPSG:32630",
    spec.GEOTRANSFORM: [500_000.0, 10.0, 0.0, 4_500_000.0, 0.0, -10.0],
    spec.RASTER_SHAPE: [64, 64],
    spec.CENTROID: "POINT (-2.996215 40.647974)",
    spec.TIME_START: 1_704_105_000,
    spec.TIME_END: 1_704_108_600,
}


def counts(path: Any, **how: Any) -> dict[str, int]:
    """The codes of a report, whose shape is checked on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a check reports and does not warn
        report = tortilla.check(path, **how)
    assert all(problem.place and problem.message for problem in report.problems)
    plain = report.to_dict()
    assert set(plain) == {
        *("ok", "where", "container", "level", "errors", "warnings", "total", "counts"),
        "problems",
    }
    assert set(report.counts) <= set(CODES)
    assert report.ok == (report.errors == 0)
    assert report.total == report.errors + report.warnings == sum(report.counts.values())
    assert all(CODES[problem.code][0] == problem.severity for problem in report.problems)
    return dict(report.counts)


def items(*values: dict[str, Any], **same: Any) -> list[Item]:
    return [Item(f"i{n}", TIFF, "GTiff", {**PLACE, **same, **one}) for n, one in enumerate(values)]


@needs_shared
@pytest.mark.parametrize("pattern", ["*.tortilla", "*.taco"])
def test_published_files_are_sound(pattern: str) -> None:
    for path in sorted((SHARED / "fixtures" / "tortilla").glob(pattern)):
        expected = {"tortilla-zero": 1} if ".0000." in path.name else {}
        assert counts(path) == expected
        assert counts(path, level="structure") == {}


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({spec.CRS: "EPSG:999999"}, "tortilla-crs"),
        ({spec.CRS: "somewhere"}, "tortilla-crs"),
        ({spec.GEOTRANSFORM: [0.0, 1.0]}, "tortilla-geotransform"),
        ({spec.GEOTRANSFORM: [0.0, 1.0, 0.0, float("nan"), 0.0, -1.0]}, "tortilla-geotransform"),
        ({spec.GEOTRANSFORM: [0.0, 1.0, 0.0, 0.0, 0.0, -1.0, 0.0]}, "tortilla-geotransform"),
        ({spec.RASTER_SHAPE: [64]}, "tortilla-raster-shape"),
        ({spec.RASTER_SHAPE: [64, 64, 3]}, "tortilla-raster-shape"),
        ({spec.RASTER_SHAPE: [64, 0]}, "tortilla-raster-shape"),
        ({spec.TIME_START: 2020, spec.TIME_END: None}, "tortilla-time-year"),
        ({spec.TIME_START: 1_704_108_601}, "tortilla-time-order"),
        ({spec.CENTROID: "POINT (40.647974 -2.996215)"}, "tortilla-centroid"),
        ({spec.CENTROID: "somewhere"}, "tortilla-centroid"),
        ({spec.CENTROID: "POINT (1e 2)"}, "tortilla-centroid"),
        ({spec.CENTROID: "POINT (-2.99 40.647974)"}, "tortilla-centroid"),  # 500 m beside it
        ({spec.CENTROID: "POINT (-2.996215 40.6445)"}, "tortilla-centroid"),
        ({spec.CENTROID: "POINT (-2.996215 1e400)"}, "tortilla-centroid"),
        ({spec.CENTROID: "POINT (357.003785 40.647974)"}, ""),
        (  # rounded by more than a small raster has
            {
                spec.CRS: "EPSG:4326",
                spec.GEOTRANSFORM: [10.0, 1e-8, 0.0, 50.0, 0.0, -1e-8],
                spec.CENTROID: "POINT (10 50)",
            },
            "",
        ),
        *(
            ({spec.TIME_START: time, spec.TIME_END: None}, "tortilla-time-unit")
            for time in (19_723, 20_240_101, 1_704_067_200_000, 1_704_067_200_000_000)
        ),
        ({spec.TIME_START: 0, spec.TIME_END: None}, ""),
        *(  # seconds of 1970 are not dates unless there is such a day
            ({spec.TIME_START: time, spec.TIME_END: None}, code)
            for code, times in (
                ("", (19_500_001, 20_001_301, 20_240_100, 20_230_229, 19_000_229, 20_240_431)),
                ("tortilla-time-unit", (19_000_101, 20_240_229, 20_000_229, 22_001_231)),
            )
            for time in times
        ),
        ({spec.TIME_START: -(10**9), spec.TIME_END: None}, ""),
        ({"rai:pop": -1.0}, "tortilla-rai-range"),
        ({"rai:gdp": float("inf")}, "tortilla-rai-range"),
        ({"rai:elevation": 9_999}, "tortilla-rai-range"),
        ({"rai:elevation": -400}, ""),
        ({"rai:hdi": 1.5}, "tortilla-rai-range"),
        ({"rai:cisi": -0.1}, "tortilla-rai-range"),
    ],
)
def test_values_that_make_no_sense(tmp_path: Path, values: dict[str, Any], code: str) -> None:
    path = write(tmp_path, build.built(items({}, values, dict.fromkeys(values))))
    report = tortilla.check(path)
    assert report.counts == ({code: 1} if code else {})
    if not code:
        return
    assert "row 1" in report.problems[0].place
    assert "'i1'" in report.problems[0].place


@pytest.mark.parametrize("text", ["point(-2.996215 40.647974)", "POINT  ( -2.996215  40.647974 ) "])
def test_a_centroid_as_readers_take_it(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, build.built(items({}, {spec.CENTROID: text})))
    assert tortilla.check(path).counts == {}


def test_nulls_are_no_problem(tmp_path: Path) -> None:
    empty = [Item(f"i{n}", TIFF, "GTiff", dict.fromkeys(PLACE)) for n in range(3)]
    assert counts(write(tmp_path, build.built(empty))) == {}
    assert counts(write(tmp_path, build.built(items({}, dict.fromkeys(PLACE))))) == {}
    for name in (spec.CRS, spec.TIME_START, spec.TIME_END):  # or of a column that is not there
        less = [Item("a", TIFF, "GTiff", {key: PLACE[key] for key in PLACE if key != name})]
        assert counts(write(tmp_path, build.built(less))) == {}


@pytest.mark.parametrize(
    ("change", "code", "times"),
    [
        (column(spec.ID, pa.array(["a", "a", "a", "b"])), "tortilla-id-twice", 2),
        (column(spec.ID, pa.array(["a", None, "b", None])), "tortilla-id-null", 2),
        (column(spec.ID, pa.nulls(4)), "tortilla-id-null", 4),
        (column(spec.ID, pa.array(["a", "A", "b", "c"])), "tortilla-id-alike", 1),
        (column(spec.ID, pa.array(["a", "../b", "c\n", "__d"])), "tortilla-id", 3),
        (column(spec.ID, pa.array(["a", "", "c ", "nul"])), "tortilla-id", 3),
        (column(spec.DATA_SPLIT, pa.array(["train", "val", None, "test"])), "tortilla-split", 1),
        (column(spec.DATA_SPLIT, pa.array([1, 2, 3, 4])), "tortilla-column-type", 1),
        (
            column(spec.FILE_FORMAT, pa.array(["GTiff", None, "GTiff", None])),
            "tortilla-column-null",
            2,
        ),
        (
            column(spec.FILE_FORMAT, pa.array(["GeoParquet", "HDF5", "../x", "exe"])),
            "tortilla-format",
            2,
        ),
        (column("internal:vsi", pa.array(["/vsi"] * 4)), "tortilla-stored-path", 1),
    ],
)
def test_columns_of_the_core(tmp_path: Path, change: Any, code: str, times: int) -> None:
    data = build.built([Item(name, b"data") for name in "wxyz"], table=change)
    path = write(tmp_path, data)
    assert counts(path, level="structure") == {code: times}
    if not code.startswith("tortilla-column"):
        assert len(tortilla.open(path)) == 4


def test_payloads_against_their_formats(tmp_path: Path) -> None:
    found = [
        Item("tiff", TIFF, "GTiff"),
        Item("png", b"\x89PNG\r\n\x1a\n...", "PNG"),
        Item("other", b"anything", "ENVI"),
        Item("alias", b"PAR1....PAR1", "GeoParquet"),
        Item("wrong", TIFF, "PNG"),
        Item("lost", bytes(9_000), "GTiff"),
        Item("empty", b"", "GTiff"),
        Item("zeros", bytes(9_000)),
        Item("nothing", b""),
    ]
    path = write(tmp_path, build.built(found))
    assert counts(path) == {"tortilla-magic": 3, "tortilla-zero": 2}
    assert counts(path, level="structure") == {}
    assert counts(path, level="sample") == {}


def test_large_payloads_are_streamed(tmp_path: Path) -> None:
    large = (17 << 20) + 1
    found = [Item("a", TIFF + bytes(large), "GTiff"), Item("b", bytes(large)), Item("c", b"c")]
    assert counts(write(tmp_path, build.built(found))) == {"tortilla-zero": 1}


def test_nested_files_are_gone_through(tmp_path: Path) -> None:
    bad = [Item("x", b"1"), Item("x", b"2")]
    inner = build.nested(("b", bad), ("c", [Item("y", TIFF, "PNG")]))
    path = write(tmp_path, build.built([Item("a", inner, "TORTILLA"), Item("z", b"z")]))
    report = tortilla.check(path)
    assert report.counts == {"tortilla-id-twice": 1, "tortilla-magic": 1}
    assert [problem.place for problem in report.problems] == [
        "row 0: row 0, row 1 ('x')",
        "row 0: row 1, row 0",
    ]


def test_names_that_do_not_fit(tmp_path: Path) -> None:
    plain, taco = build.built([Item("x", b"x")]), build.built([Item("x", b"x")], collection={})
    part = build.built([Item("x", b"x")], parts=1_000_000)
    assert counts(write(tmp_path, plain, "x.taco")) == {"tortilla-name": 1}
    assert counts(write(tmp_path, plain, "x.0001.part.tortilla")) == {"tortilla-name": 1}
    assert counts(write(tmp_path, part, "x.tortilla")) == {"tortilla-name": 1}
    found = counts(write(tmp_path, taco, "x.tortilla"))
    assert found == {"tortilla-name": 1, "tortilla-collection-field": 7}
    assert counts(write(tmp_path, part, "y.0001.part.tortilla")) == {}
    assert counts(write(tmp_path, build.built([], parts=0))) == {"tortilla-part-count": 1}


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"id": NaN}', b'{"a": 1, "a": 2}', b""])
def test_a_collection_that_is_none(tmp_path: Path, text: bytes) -> None:
    path = write(tmp_path, build.built([Item("x", b"x")], collection=text), "x.taco")
    assert counts(path) == {"tortilla-collection": 1}
    frame = tortilla.open(path)
    assert frame.read("x") == b"x"
    with pytest.raises(ValueError, match="JSON"):
        _ = frame.collection


def test_tables_larger_than_the_limits(tmp_path: Path) -> None:
    data = build.built([Item("x", b"x" * 100)])
    assert counts(write(tmp_path, data), limits=Limits(table_bytes=10)) == {"limit-exceeded": 1}
    assert counts(write(tmp_path, data), limits=Limits(table_rows=0)) == {"limit-exceeded": 1}


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    path = write(tmp_path, build.nested(("a", [Item("x", b"x")])))
    tortilla.check(path, progress=lambda done, total, what: told.append(what))
    assert told == ["footers", "nested files, depth 1"]
