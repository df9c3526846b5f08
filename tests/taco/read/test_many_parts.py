"""Queries over an index of several archives read the row groups of the archives they concern."""

from __future__ import annotations

import io
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal import taco
from comal.errors import (
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    ObjectChangedError,
    ObjectNotFoundError,
    QueryError,
)
from comal.limits import Limits
from comal.storage import CountingSource, open_source
from comal.table import ParquetTable
from comal.taco.reading import container as containers
from comal.taco.reading import level as levels
from comal.taco.reading.dataset import TacoDataset, load
from comal.taco.wire import GROUPS_KEY
from tests.taco.read.scenes import large
from tests.taco.write.small import dataset

PARTS, SCENES = 6, 30
CENTRES = (-150.0, -70.0, -10.0, 40.0, 110.0, 179.0)
"""The longitude around which the scenes of each part lie; those of the last cross 180."""


def place(part: int, row: int) -> tuple[float, float]:
    lon = CENTRES[part] + (row - SCENES / 2) / 10
    return (lon + 180) % 360 - 180, float(row)


def scene(part: int, row: int) -> taco.Sample:
    point = struct.pack("<BIdd", 1, 1, *place(part, row))
    names = ("label", "pixels")
    below = [
        taco.Sample(name, f"{part}/{row}/{name}".encode(), rank=row).extend_with(
            {"stac:centroid": point, "stac:time_start": 1000 * part + row}
        )
        for name in names
    ]
    noise = np.random.default_rng(row + 100 * part).bytes(1500).hex()
    where = {"stac:centroid": point, "cloud": row + 100 * part, "noise": noise}
    return taco.Sample(f"s{row}", taco.Tortilla(below)).extend_with(where)


def archive(folder: Path, part: int) -> Path:
    samples = [scene(part, row) for row in range(SCENES)]
    path = folder / f"part {part}.tacozip"
    taco.create(dataset(taco.Tortilla(samples), id=f"p{part}"), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six archives and their index; the row groups of level 0 hold one archive, or two."""
    made = tmp_path_factory.mktemp("parts")
    parts = [archive(made, part) for part in range(PARTS)]
    taco.create_tacocat(parts, row_group_size=SCENES)
    return made


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat an index of any size as one that does not fit in memory."""
    monkeypatch.setattr(containers, "_WIDE", 0)
    monkeypatch.setattr(levels, "_HELD_BYTES", 0)


def stored(folder: Path, level: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(
        folder / ".tacocat" / f"level{level}.parquet"
    ).to_pylist()
    return rows


def counted(folder: Path, form: str) -> tuple[CountingSource, TacoDataset]:
    source = CountingSource(open_source(folder / form))
    return source, load(source, base_path=folder, tail=1024)


FORMS = pytest.mark.parametrize("form", [".tacocat", "__TACOCAT__"])


def test_row_groups_end_where_archives_end(folder: Path) -> None:
    for level in range(2):
        file = pq.ParquetFile(folder / ".tacocat" / f"level{level}.parquet")
        for group in range(file.num_row_groups):
            names = file.read_row_group(group)["internal:source_file"].unique().to_pylist()
            assert len(names) == 1
    parts = sorted(folder.glob("*.tacozip"))
    for size, expected in ((2 * SCENES + 5, [2 * SCENES] * 3), (20, [20, 10] * 6)):
        made = folder / f"by {size}"
        made.mkdir()
        taco.create_tacocat(parts, made, "folder", row_group_size=size)
        footer = pq.read_metadata(made / ".tacocat" / "level0.parquet")
        assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == expected


@FORMS
@pytest.mark.usefixtures("wide")
def test_a_filter_of_three_archives_reads_three(folder: Path, form: str) -> None:
    source, data = counted(folder, form)
    names = [f"part {part}.tacozip" for part in (0, 2, 5)]
    listed = ", ".join(f"'{name}'" for name in names)
    source.reset()
    some = data.sql(f"""SELECT * FROM data WHERE "internal:source_file" IN ({listed})""")
    frame = some.data
    wanted = [row for row in stored(folder, 0) if row["internal:source_file"] in names]
    assert frame["cloud"].to_pylist() == [row["cloud"] for row in wanted]
    footer = pq.ParquetFile(folder / ".tacocat" / "level0.parquet").metadata
    chunks = range(footer.num_columns)
    one = max(
        sum(footer.row_group(n).column(c).total_compressed_size for c in chunks)
        for n in range(PARTS)
    )
    assert one < source.bytes < 3 * one + 1000
    assert 5 * one < (folder / ".tacocat" / "level0.parquet").stat().st_size
    below = some.sql("SELECT * FROM level1").data
    right = [row for row in stored(folder, 1) if row["internal:source_file"] in names]
    assert below["internal:relative_path"].to_pylist() == [
        row["internal:relative_path"] for row in right
    ]
    assert below.read_bytes(7) == b"0/3/pixels"


@FORMS
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.usefixtures("wide")
def test_boxes_find_what_a_comparison_of_all_points_finds(
    folder: Path, form: str, level: int
) -> None:
    data = load(folder / form, base_path=folder)
    random = np.random.default_rng(0)
    boxes = [(178.5, 0, -179.5, 90), (-180, -90, 180, 90), (-10.05, 3, -9.4, 40)]
    for west, south, width in random.uniform((-180, -20, 0), (180, 20, 60), (12, 3)).tolist():
        boxes.append((west, south, (west + width + 180) % 360 - 180, south + 20))
    for west, south, east, north in boxes:
        expected = []
        for part in range(PARTS):
            for row in range(SCENES):
                lon, lat = place(part, row)
                inside = west <= lon <= east if west <= east else lon >= west or lon <= east
                if inside and south <= lat <= north:
                    expected.append(row + 100 * part)
        found = data.filter_bbox(west, south, east, north, level=level).data
        assert found["cloud"].to_pylist() == expected


@FORMS
def test_a_box_reads_the_row_groups_that_it_meets(
    folder: Path, form: str, wide: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    whole = ParquetTable.only

    def only(self: Any, groups: Any) -> Any:
        read.append(len(groups))
        return whole(self, groups)

    monkeypatch.setattr(ParquetTable, "only", only)
    data = load(folder / form, base_path=folder)
    assert data.filter_bbox(178, 0, -178, 90, level=0).data["cloud"].to_pylist()[0] == 505
    assert read == [1]
    # What a query computes, and rows beyond a limit, are not known to the index.
    read.clear()
    assert len(data.limit(40).filter_bbox(178, 0, -178, 90, level=0).data) == 0
    assert read == []


@pytest.mark.usefixtures("wide")
def test_filters_of_deeper_levels_and_navigation(folder: Path) -> None:
    data = load(folder)
    deep = data.sql("SELECT * FROM data WHERE cloud IN (3, 204, 529)").data
    assert [deep.read_bytes(f"s{row}/label") for row in (3, 4, 29)] == [
        b"0/3/label",
        b"2/4/label",
        b"5/29/label",
    ]
    computed = data.sql("SELECT d.*, d.cloud * 2 AS twice FROM data d WHERE cloud = 204").data
    assert computed["twice"].to_pylist() == [408]
    assert computed.read("s4").read_bytes("pixels") == b"2/4/pixels"
    joined = data.sql("SELECT * FROM data WHERE cloud < 3").sql(
        'SELECT "l0:cloud" AS cloud, "l1:rank" AS rank FROM l1'
    )
    assert joined.data.to_arrow().to_pydict() == {
        "cloud": [0, 0, 1, 1, 2, 2],
        "rank": [0, 0, 1, 1, 2, 2],
    }
    late = data.filter_datetime((4029, 5001), level=1).sql("SELECT * FROM data ORDER BY cloud DESC")
    assert late.data["cloud"].to_pylist() == [501, 500, 429]
    assert late.data.read_bytes("s29/label") == b"4/29/label"
    query = (
        """SELECT "internal:gdal_vsi" AS "internal:gdal_vsi" FROM data WHERE cloud IN (3, 204)"""
    )
    paths = data.sql(query).data["internal:gdal_vsi"].to_pylist()
    assert [path.rpartition("/")[2] for path in paths] == ["part 0.tacozip", "part 2.tacozip"]
    with pytest.raises(QueryError, match="changed"):
        _ = data.sql(query.replace('"internal:gdal_vsi" AS', """'/vsisubfile/0_9,/x' AS""")).data
    flat = data.sql("SELECT * FROM data WHERE cloud = 110").flatten()
    assert [flat.read_bytes(row) for row in range(2)] == [b"1/10/label", b"1/10/pixels"]


@pytest.mark.usefixtures("wide")
def test_a_part_of_a_wide_index_is_exported(folder: Path, tmp_path: Path) -> None:
    source, data = counted(folder, ".tacocat")
    source.reset()
    some = data.sql("SELECT * FROM data WHERE cloud IN (3, 204, 205)")
    made = taco.export(some, tmp_path / "some.tacozip", quiet=True)
    assert source.bytes < (folder / ".tacocat" / "level0.parquet").stat().st_size / 2
    frame = load(made).data
    assert frame["cloud"].to_pylist() == [3, 204, 205]
    found = [frame.read_bytes(f"s{row}/pixels") for row in (3, 4, 5)]
    assert found == [b"0/3/pixels", b"2/4/pixels", b"2/5/pixels"]
    with pytest.raises(ConflictError, match="source"):
        taco.export(some, folder / "part 5.tacozip", overwrite=True, quiet=True)


@pytest.mark.usefixtures("wide")
def test_limits_of_rows_bound_a_read_and_not_the_index(folder: Path) -> None:
    data = load(folder, limits=Limits(table_rows=2 * SCENES))
    query = """SELECT * FROM data WHERE "internal:source_file" = 'part 1.tacozip'"""
    assert len(data.sql(query).data) == SCENES
    with pytest.raises(LimitExceededError):
        _ = data.data


def test_an_index_opens_in_as_many_round_trips_with_any_number_of_row_groups(
    folder: Path, tmp_path: Path
) -> None:
    parts = sorted(folder.glob("*.tacozip"))
    trips = {}
    for size in (1, 1000):
        made = tmp_path / str(size)
        made.mkdir()
        taco.create_tacocat(parts, made, row_group_size=size)
        for form in (".tacocat", "__TACOCAT__"):
            source, _ = counted(made, form)
            trips[size, form] = source.round_trips
    footer = (tmp_path / "1" / ".tacocat" / "level1.parquet").stat().st_size
    assert footer > 2 * 65_536
    assert trips == {
        (1, ".tacocat"): 3,
        (1, "__TACOCAT__"): 3,
        (1000, ".tacocat"): 2,
        (1000, "__TACOCAT__"): 2,
    }


@pytest.mark.usefixtures("wide")
def test_wide_types_of_older_writers(folder: Path, tmp_path: Path) -> None:
    made = Path(shutil.copytree(folder / ".tacocat", tmp_path / ".tacocat"))
    for level in range(2):
        table = large(level, pq.read_table(made / f"level{level}.parquet"))
        pq.write_table(table, made / f"level{level}.parquet", row_group_size=SCENES)
    data = load(made, base_path=folder)
    query = (
        """SELECT * FROM data WHERE "internal:source_file" IN ('part 1.tacozip') AND cloud < 103"""
    )
    some = data.sql(query)
    assert some.sql("SELECT * FROM level1").data["rank"].to_pylist() == [0, 0, 1, 1, 2, 2]
    assert some.data.read("s2").read_bytes("label") == b"1/2/label"


# -- boxes that do not belong to the table ---------------------------------------------------------


def test_rows_in_another_order_are_not_left_out(folder: Path, tmp_path: Path) -> None:
    """A writer that keeps the key-value metadata but not the rows must not hide samples."""
    made = Path(shutil.copytree(folder / ".tacocat", tmp_path / ".tacocat"))
    file = made / "level0.parquet"
    table, key = pq.read_table(file), pq.read_metadata(file).metadata[GROUPS_KEY.encode()]
    mixed = table.take(pa.array(np.random.default_rng(1).permutation(len(table))))
    with pq.ParquetWriter(file, mixed.schema) as writer:
        writer.write_table(mixed, row_group_size=SCENES)
        writer.add_key_value_metadata({GROUPS_KEY: key})
    box = (178, 0, -178, 90)
    found = load(made, base_path=folder).filter_bbox(*box, level=0).data["cloud"].to_pylist()
    assert sorted(found) == load(folder).filter_bbox(*box, level=0).data["cloud"].to_pylist() != []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 1, "ends": [], "boxes": []}', "{" * 99])
def test_metadata_that_cannot_be_read_is_ignored(folder: Path, tmp_path: Path, text: str) -> None:
    made = Path(shutil.copytree(folder / ".tacocat", tmp_path / ".tacocat"))
    table = pq.read_table(made / "level0.parquet")
    with pq.ParquetWriter(made / "level0.parquet", table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({GROUPS_KEY: text})
    data = load(made, base_path=folder)
    assert len(data.filter_bbox(178, 0, -178, 90, level=0).data) == 25


# -- appending -------------------------------------------------------------------------------------


def test_an_index_with_appended_archives_holds_what_one_of_all_holds(tmp_path: Path) -> None:
    parts = [archive(tmp_path, part) for part in range(4)]
    taco.create_tacocat(parts[:2], row_group_size=SCENES)
    before = {n: (tmp_path / ".tacocat" / f"level{n}.parquet").read_bytes() for n in range(2)}
    old = load(tmp_path)
    parts[0].rename(tmp_path / "elsewhere")  # a published archive need not be there
    taco.create_tacocat(parts[2:3], append=True, row_group_size=SCENES)
    taco.create_tacocat(parts[3:], append=True, row_group_size=SCENES)
    (tmp_path / "elsewhere").rename(parts[0])
    whole = tmp_path / "whole"
    whole.mkdir()
    taco.create_tacocat(parts, whole, row_group_size=SCENES)
    for level in range(2):
        assert stored(tmp_path, level) == stored(whole, level)
        appended = (tmp_path / ".tacocat" / f"level{level}.parquet").read_bytes()
        same = int.from_bytes(before[level][-8:-4], "little") + 8
        assert appended.startswith(before[level][:-same])
        footer = pq.read_metadata(io.BytesIO(appended))
        assert (
            footer.num_row_groups
            == pq.read_metadata(whole / ".tacocat" / f"level{level}.parquet").num_row_groups
        )
        index = tmp_path / ".tacocat" / f"level{level}.parquet"
        size = sum(row["internal:size"] for row in stored(whole, level))
        with duckdb.connect() as engine:
            summed = engine.execute(f"""SELECT sum("internal:size") FROM '{index}'""").fetchall()
        assert summed == [(size,)]
        assert pl.read_parquet(index)["internal:size"].sum() == size
    assert load(tmp_path).collection == load(whole).collection
    for form in (".tacocat", "__TACOCAT__"):
        data = load(tmp_path / form, base_path=tmp_path)
        found = data.filter_bbox(-11, -1, 41, 5, level=0).data
        right = load(whole / form, base_path=tmp_path).filter_bbox(-11, -1, 41, 5, level=0).data
        assert found["cloud"].to_pylist() == right["cloud"].to_pylist() != []
        known = data.home.containers[0].levels[0].group_boxes
        assert known is not None
        assert known.tolist() == load(whole).home.containers[0].levels[0].group_boxes.tolist()
    assert [problem.code for problem in taco.check(tmp_path).problems] == []
    with pytest.raises(ObjectChangedError, match="changed"):
        _ = old.data


def test_archives_that_do_not_fit_are_not_appended(tmp_path: Path, folder: Path) -> None:
    part = archive(tmp_path, 0)
    with pytest.raises(ObjectNotFoundError, match="no index"):
        taco.create_tacocat([part], append=True)
    taco.create_tacocat([part])
    index = tmp_path / ".tacocat" / "level0.parquet"
    before = index.read_bytes()
    with pytest.raises(InvalidInputError, match="archive of this name"):
        taco.create_tacocat([part], append=True)
    other = tmp_path / "other.tacozip"
    taco.create(dataset(taco.Tortilla([taco.Sample("a", b"1")])), other)
    with pytest.raises(InvalidInputError, match="number of levels"):
        taco.create_tacocat([other], append=True)
    strange = tmp_path / "strange.tacozip"
    below = taco.Tortilla([taco.Sample("label", b"1"), taco.Sample("pixels", b"2")])
    taco.create(dataset(taco.Tortilla([taco.Sample("a", below, odd=1)])), strange)
    with pytest.raises(InvalidInputError, match="the datasets differ: field"):
        taco.create_tacocat([strange], append=True)
    with pytest.raises(InvalidInputError, match="do not have the columns"):
        taco.create_tacocat([strange], append=True, validate_schema=False)
    assert index.read_bytes() == before
    assert len(load(tmp_path).data) == SCENES


def test_rows_that_are_appended_get_the_columns_of_the_index(tmp_path: Path) -> None:
    """Times in whole microseconds become nanoseconds, and a field that is missing null."""
    parts = []
    for name, values in (("fine", [1, 2]), ("whole", [1000, None]), ("none", None)):
        table = pa.table({"id": ["a", "b"], "path": [b"1", b"2"]})
        if values is not None:
            table = table.append_column("t", pa.array(values, pa.timestamp("ns")))
        parts.append(tmp_path / f"{name}.tacozip")
        taco.create(dataset(taco.Tortilla.from_table(table)), parts[-1])
    taco.create_tacocat(parts[:1])
    taco.create_tacocat(parts[1:2], append=True)
    taco.create_tacocat(parts[2:], append=True, validate_schema=False)
    found = load(tmp_path).data["t"].cast(pa.int64()).to_pylist()
    assert found == [1, 2, 1000, None, None, None]
    taco.create_tacocat(parts[1:2], overwrite=True)
    with pytest.raises(InvalidInputError, match="write the file again"):
        taco.create_tacocat(parts[:1], append=True)


@pytest.mark.parametrize("sources", [None, "x", [], {}, {"files": [{}]}, {"files": ["a"]}])
def test_an_index_that_lists_no_archives_is_not_appended_to(tmp_path: Path, sources: Any) -> None:
    samples = [taco.Tortilla([taco.Sample("a", b"1")]) for _ in range(2)]
    parts = [tmp_path / f"{n}.tacozip" for n in range(2)]
    for part, tortilla in zip(parts, samples, strict=True):
        taco.create(dataset(tortilla), part)
    taco.create_tacocat(parts[:1], form="folder")
    path = tmp_path / ".tacocat" / "COLLECTION.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "taco:sources": sources}))
    with pytest.raises(InvalidMetadataError, match="cannot be extended"):
        taco.create_tacocat(parts[1:], append=True)
