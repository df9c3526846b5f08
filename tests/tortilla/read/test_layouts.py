"""Everything that a writer may do, and every generation of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal import tortilla
from comal.errors import InvalidInputError, UnsupportedVersionError
from comal.tortilla import spec
from tests.tortilla import build
from tests.tortilla.build import Item, column, write
from tests.tortilla.write import oracle

ITEMS = [Item("a", b"first"), Item("b", b""), Item("ç/√", b"third item")]
TRUTH = {"a": b"first", "b": b"", "ç/√": b"third item"}


def chain(*changes: Any) -> Any:
    def change(table: pa.Table) -> pa.Table:
        for one in changes:
            table = one(table)
        return table

    return change


VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "a TACO": {"collection": {"id": "x"}},
    "the older header": {"layout": "v0.1", "driver": "BYTES"},
    "the older header of a TACO with the magic of a Tortilla": {
        "layout": "v0.1",
        "driver": "BYTES",
        "collection": {"id": "x"},
        "magic": b"#y",
    },
    "the oldest header": {"layout": "v0.0", "driver": "BYTES"},
    "the oldest header with JSON": {"layout": "v0.0", "driver": "BYTES", "json_footer": True},
    "gaps": {"gap": 4096},
    "bytes behind the footer": {"trailing": b"\xff" * 700},
    "snappy": {"compression": "snappy"},
    "uncompressed": {"compression": "none"},
    "gzip": {"compression": "gzip"},
    "dictionaries": {"use_dictionary": True},
    "one row a group": {"row_group_size": 1},
    "no statistics, no Arrow schema": {"write_statistics": False, "store_schema": False},
    "page index": {"write_page_index": True},
    "checksums": {"write_page_checksum": True},
    "Parquet 1.0": {"version": "1.0"},
    "uint64": {"table": column(spec.OFFSET, lambda c: c.cast(pa.uint64()))},
    "int32": {"table": column(spec.LENGTH, lambda c: c.cast(pa.int32()))},
    "another order of columns": {"table": lambda t: t.select(t.column_names[::-1])},
    "no split": {"table": lambda t: t.drop_columns([spec.DATA_SPLIT])},
    "string views": {"table": column(spec.ID, lambda c: c.cast(pa.string()).cast("string_view"))},
    "index of pandas": {"table": column("__index_level_0__", pa.array([0, 1, 2]))},
    "extras of every kind": {
        "table": chain(
            column("t", pa.array([1, 2, None], pa.timestamp("ms"))),
            column("s", pa.array([{"a": 1}, None, {"a": 3}])),
            column("raw", pa.array([b"\0", b"", None])),
            column("nothing", pa.nulls(3)),
            column("m", pa.array([[1], [], None], pa.large_list(pa.int16()))),
        )
    },
}


@pytest.mark.parametrize("how", VARIANTS.values(), ids=VARIANTS.keys())
def test_right_bytes_whatever_the_writer_did(tmp_path: Path, how: dict[str, Any]) -> None:
    frame = tortilla.open(write(tmp_path, build.built(ITEMS, **how)))
    assert frame[spec.ID].to_pylist() == list(TRUTH)
    assert dict(zip(TRUTH, frame.read_bytes(), strict=True)) == TRUTH
    for name, data in TRUTH.items():
        assert frame.read_bytes(name) == data
        with frame.open(name) as file:
            assert file.read() == data
    assert not [name for name in frame.columns if name.startswith("__index")]
    assert tortilla.check(write(tmp_path, build.built(ITEMS, **how))).ok


@pytest.mark.parametrize("how", VARIANTS.values(), ids=VARIANTS.keys())
def test_copies_and_changes_whatever_the_writer_did(tmp_path: Path, how: dict[str, Any]) -> None:
    path = write(tmp_path, build.built(ITEMS, **how))
    columns = set(tortilla.open(path).columns) - {spec.SUBFILE}
    copy = oracle.read(tortilla.compile(path, tmp_path / "copy.tortilla", allow_ids=True))
    assert copy.tree() == TRUTH
    assert copy.collection == how.get("collection")
    assert columns - set(copy.table.column_names) <= {spec.DATA_SPLIT}
    if "layout" in how:
        with pytest.raises(UnsupportedVersionError):
            tortilla.delete(path, ids=["b"])
        return
    tortilla.append(path, [tortilla.Sample("new", path=b"bytes")])
    tortilla.delete(path, ids=["b"])
    for change in (None, tortilla.compact):
        if change is not None:
            change(path)
        found = oracle.read(path)
        assert found.tree() == {"a": TRUTH["a"], "ç/√": TRUTH["ç/√"], "new": b"bytes"}
        assert found.collection == how.get("collection")
        assert columns - set(found.table.column_names) <= {spec.DATA_SPLIT}


@pytest.mark.parametrize("layout", ["v0.1", "v0.0"])
def test_the_format_of_old_files_stands_in_the_header(tmp_path: Path, layout: str) -> None:
    items = [Item("a", b"II*\0"), Item("b", b"II*\0")]
    path = write(tmp_path, build.built(items, layout=layout, driver="GTiff"))
    frame = tortilla.open(path)
    assert frame[spec.FILE_FORMAT].to_pylist() == ["GTiff", "GTiff"]
    start = 50 if layout == "v0.0" else 200
    assert frame.read("b") == f"/vsisubfile/{start + 4}_4,{path}"


def test_old_files_may_hold_files(tmp_path: Path) -> None:
    inner = build.built([Item("x", b"inside")], layout="v0.0", driver="BYTES")
    data = build.built([Item("a", inner), Item("b", inner)], layout="v0.1", driver="TORTILLA")
    frame = tortilla.open(write(tmp_path, data))
    assert frame.read("a/x") == b"inside"
    assert frame.flatten()[spec.PATH].to_pylist() == ["a/x", "b/x"]


def test_rows_in_any_order_and_shared_bytes(tmp_path: Path) -> None:
    spans = chain(
        column(spec.OFFSET, pa.array([210, 200, 210, 205])),
        column(spec.LENGTH, pa.array([5, 5, 5, 0])),
    )
    items = [Item(name, b"aaaaa") for name in "wxyz"]
    data = build.built(items, table=spans)
    frame = tortilla.open(write(tmp_path, data[:210] + b"bbbbb" + data[215:]))
    assert frame.read_bytes() == [b"bbbbb", b"aaaaa", b"bbbbb", b""]


def test_stored_paths_are_not_believed(tmp_path: Path) -> None:
    stored = column(spec.SUBFILE, pa.array(["/vsisubfile/0_9,/etc/passwd"] * 3))
    path = write(tmp_path, build.built(ITEMS, table=stored))
    frame = tortilla.open(path)
    assert all("passwd" not in one for one in frame[spec.SUBFILE].to_pylist())
    assert tortilla.check(path).counts["tortilla-stored-path"] == 1


@pytest.mark.parametrize(
    ("stored", "seconds"),
    [
        (pa.array([1.5e9, 2020.0, None]), [1_500_000_000, 2020, None]),
        (pa.array([1.5, -0.5, float("nan")]), [1, -1, None]),
        (pa.array([1, 2, 3], pa.uint8()), [1, 2, 3]),
        (pa.array([1_999, -1, None], pa.timestamp("ms")), [1, -1, None]),
        (pa.array([1, None, 3], pa.timestamp("us", "Europe/Berlin")), [0, None, 0]),
        (pa.array([1, 2, None], pa.date32()), [86_400, 172_800, None]),
        (pa.nulls(3), [None, None, None]),
    ],
)
def test_times_are_whole_seconds(tmp_path: Path, stored: Any, seconds: list[int | None]) -> None:
    path = write(tmp_path, build.built(ITEMS, table=column(spec.TIME_START, stored)))
    found = tortilla.open(path)[spec.TIME_START]
    assert found.type == pa.int64()
    assert found.to_pylist() == seconds


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        (spec.TIME_START, pa.array([float("inf"), 0, 0])),
        (spec.TIME_START, pa.array(["2020-01-01"] * 3)),
        (spec.GEOTRANSFORM, pa.array(["[0, 1]"] * 3)),
        (spec.CENTROID, pa.array([b"\1"] * 3)),
        ("rai:hdi", pa.array(["high"] * 3)),
    ],
)
def test_columns_that_cannot_be_typed_stay_as_they_are(
    tmp_path: Path, name: str, stored: Any
) -> None:
    path = write(tmp_path, build.built(ITEMS, table=column(name, stored)))
    with pytest.warns(tortilla.TortillaWarning, match=name):
        frame = tortilla.open(path)
    assert frame[name].combine_chunks().equals(stored)
    assert tortilla.check(path).counts["tortilla-column-type"] == 1


def test_both_spellings_of_elevation(tmp_path: Path) -> None:
    both = chain(column("rai:ele", pa.array([1.4, 2.6, None])), column(spec.ELEVATION, pa.nulls(3)))
    frame = tortilla.open(write(tmp_path, build.built(ITEMS, table=both)))
    assert frame["rai:ele"].to_pylist() == [1.4, 2.6, None]
    assert frame[spec.ELEVATION].to_pylist() == [None] * 3
    one = column("rai:ele", pa.array([1.4, 2.6, None]))
    frame = tortilla.open(write(tmp_path, build.built(ITEMS, table=one)))
    assert frame[spec.ELEVATION].to_pylist() == [1, 3, None]


def test_only_wanted_columns_are_decoded(tmp_path: Path) -> None:
    more = chain(
        column("rai:ele", pa.array([1, 2, 3])),
        column("a", pa.array([1, 2, 3])),
        column("b", pa.array([1, 2, 3])),
    )
    path = write(tmp_path, build.built(ITEMS, table=more))
    frame = tortilla.open(path, columns=["b", "rai:elevation"])
    assert {"b", "rai:elevation"} <= set(frame.columns)
    assert "a" not in frame.columns
    flat = frame.flatten(["rai:ele"])
    assert ("rai:elevation" in flat.columns, "b" in flat.columns) == (True, False)
    stored = tortilla.open(path, columns=["rai:elevation"], typed=False)
    assert ("rai:ele" in stored.columns, "b" in stored.columns) == (True, False)
    with pytest.raises(InvalidInputError, match="no column 'c'"):
        tortilla.open(path, columns=["b", "c"])
