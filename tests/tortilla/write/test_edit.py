"""Changes of files that are there: what they do."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal import tortilla
from comal.errors import ComalError, ConflictError, InvalidInputError, NotInContainerError
from comal.storage.targetlock import locked
from comal.tortilla import Sample, append, compact, create, delete, edit
from tests.tortilla.write.oracle import foreign, listing, read


def made(folder: Path, name: str = "a.tortilla") -> Path:
    samples = [Sample(f"s{n}", path=f"item {n}".encode(), n=n) for n in range(4)]
    return create(samples, folder / name).path


def test_more_rows(tmp_path: Path) -> None:
    path = made(tmp_path)
    before = path.read_bytes()
    inner = [Sample("x", path=b"deep")]
    more = [Sample("t", path=b"new", m="m"), Sample("u", path=inner, data_split="train")]
    assert append(path, more) == 6
    found = read(path)
    assert found.ids == ["s0", "s1", "s2", "s3", "t", "u"]
    assert found.tree()["u"] == {"x": b"deep"}
    assert found.column("n") == [0, 1, 2, 3, None, None]
    assert found.column("m") == [None] * 4 + ["m", None]
    assert found.column("tortilla:data_split") == [None] * 5 + ["train"]
    assert found.raw[18 : len(before)] == before[18:]
    assert append(path, pa.table({"id": ["v"], "path": [b"table"], "n": [0.5]})) == 7
    assert read(path).column("n") == [0, 1, 2, 3, None, None, 0.5]
    assert append(path, (Sample(f"w{n}", path=b"") for n in range(5_000))) == 5_007
    assert len(tortilla.open(path)) == 5_007
    assert listing(tmp_path) == ["a.tortilla"]


def test_other_columns(tmp_path: Path) -> None:
    path = made(tmp_path)
    edit(
        path, columns={"cloud": [1.5, 2.5, None, 4.5], "data_split": ["train", "test", None, None]}
    )
    found = read(path)
    assert found.column("cloud") == [1.5, 2.5, None, 4.5]
    assert found.column("tortilla:data_split") == ["train", "test", None, None]
    edit(
        path, columns=pa.table({"id": ["s2", "s0"], "cloud": [9, 8], "x": ["p", "q"]}), replace=True
    )
    found = read(path)
    assert found.column("cloud") == [8, 2.5, 9, 4.5]
    assert found.column("x") == ["q", None, "p", None]
    assert found.items == [f"item {n}".encode() for n in range(4)]
    edit(path, drop=["x", "tortilla:data_split"])
    assert read(path).table.column_names[-2:] == ["n", "cloud"]
    edit(path, rename={"s1": "one"})
    assert read(path).ids == ["s0", "one", "s2", "s3"]


def test_fewer_rows_and_less_room(tmp_path: Path) -> None:
    path = made(tmp_path)
    full = path.stat().st_size
    assert delete(path, ids=["s2"]) == 3
    assert delete(path, rows=[True, False, False]) == 2
    assert delete(path, rows=[-1]) == 1
    found = read(path)
    assert found.tree() == {"s1": b"item 1"}
    assert b"item 2" in found.raw
    saved = compact(path)
    assert saved == len(found.raw) - path.stat().st_size > 0
    assert path.stat().st_size < full
    assert read(path).tree() == {"s1": b"item 1"}
    assert b"item 2" not in read(path).raw
    assert compact(path) == 0


def test_compacting_into_another_file(tmp_path: Path) -> None:
    path = made(tmp_path)
    append(path, [Sample("t", path=b"new")])
    before = path.read_bytes()
    compact(path, tmp_path / "b.tortilla")
    assert path.read_bytes() == before
    assert read(tmp_path / "b.tortilla").tree() == read(path).tree()
    with pytest.raises(ConflictError):
        compact(path, tmp_path / "b.tortilla")
    with pytest.raises(ConflictError, match="source"):
        compact(path, path)


def test_bytes_that_rows_share_stay_shared(tmp_path: Path) -> None:
    path = made(tmp_path)
    found = read(path)
    offsets = found.column("tortilla:offset")
    table = found.table.set_column(
        found.table.schema.get_field_index("tortilla:offset"),
        "tortilla:offset",
        pa.array([offsets[3], offsets[1], offsets[3], offsets[1]]),
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    footer = sink.getvalue().to_pybytes()
    data = bytearray(found.raw + footer)
    struct.pack_into("<QQ", data, 2, len(found.raw), len(footer))
    path.write_bytes(data)
    expected = [b"item 3", b"item 1", b"item 3", b"item 1"]
    assert read(path).items == expected
    compact(path)
    assert read(path).items == expected
    assert read(path).raw[200:212] == b"item 3item 1"
    assert read(path).column("tortilla:offset") == [200, 206, 200, 206]


def test_one_part_of_a_set(tmp_path: Path) -> None:
    parts = tortilla.compile(made(tmp_path), tmp_path / "s.tortilla", chunk_rows=2).paths
    append(parts[1], [Sample("t", path=b"new")])
    delete(parts[0], ids=["s0"])
    compact(parts[0])
    assert [read(path).parts for path in parts] == [2, 2]
    frame = tortilla.open(parts[0], siblings=True)
    assert frame["tortilla:id"].to_pylist() == ["s1", "s2", "s3", "t"]
    assert frame.read_bytes() == [b"item 1", b"item 2", b"item 3", b"new"]


CANNOT: list[tuple[Callable[[Path], Any], type[ComalError], str]] = [
    (lambda p: append(p, []), InvalidInputError, "no samples"),
    (lambda p: append(p, [Sample("s1", path=b"1")]), InvalidInputError, "exists already"),
    (lambda p: append(p, [Sample("S1", path=b"1")]), InvalidInputError, "exists already"),
    (
        lambda p: append(p, [Sample("t", path=b"1", n="text")]),
        InvalidInputError,
        "cannot be combined",
    ),
    (lambda p: append(p, [Sample("t", "BYTES", p / "no")]), ComalError, "cannot be"),
    (
        lambda p: append(p, (Sample("t", path=b"1") for _ in range(5_000))),
        InvalidInputError,
        "appears twice",
    ),
    (lambda p: edit(p, columns={"n": [1, 2, 3, 4]}), InvalidInputError, "exists already"),
    (lambda p: edit(p, columns={"m": [1]}), InvalidInputError, "value per row"),
    (lambda p: edit(p, columns={"m": [1, 2, 3, "x"]}), InvalidInputError, "cannot be combined"),
    (
        lambda p: edit(p, columns={"m": [dt.date(2020, 2, 29), 2, 3, 4]}),
        InvalidInputError,
        "cannot be combined",
    ),
    (lambda p: edit(p, columns={"id": ["s9"], "m": [1]}), NotInContainerError, "s9"),
    (lambda p: edit(p, columns={"id": ["s1"] * 2, "m": [1, 2]}), InvalidInputError, "twice"),
    (lambda p: edit(p, columns={"tortilla:offset": [1] * 4}), InvalidInputError, "cannot be set"),
    (lambda p: edit(p, columns={"tortilla:length": [1] * 4}), InvalidInputError, "cannot be set"),
    (lambda p: edit(p, columns={"internal:x": [1] * 4}), InvalidInputError, "only readers"),
    (lambda p: edit(p, columns={"data_split": ["dev"] * 4}), InvalidInputError, "data_split"),
    (lambda p: edit(p, columns={"stac:crs": [1] * 4}), InvalidInputError, "wrong type"),
    (lambda p: edit(p, columns=5), InvalidInputError, "not a table"),
    (lambda p: edit(p, drop=["tortilla:id"]), InvalidInputError, "mandatory"),
    (lambda p: edit(p, drop=["nothing"]), InvalidInputError, "does not exist"),
    (lambda p: edit(p, rename={"s9": "x"}), NotInContainerError, "s9"),
    (lambda p: edit(p, rename={"s1": "s2"}), InvalidInputError, "appears twice"),
    (lambda p: edit(p, rename={"s1": "a/b"}), InvalidInputError, "holds"),
    (delete, InvalidInputError, "named in one way"),
    (lambda p: delete(p, ids=["s1"], rows=[0]), InvalidInputError, "named in one way"),
    (lambda p: delete(p, ids=["s9"]), NotInContainerError, "s9"),
    (lambda p: delete(p, rows=[7]), NotInContainerError, "no such row"),
    (lambda p: delete(p, rows=[0, 1, 2, 3]), InvalidInputError, "no row would be left"),
]


@pytest.mark.parametrize("number", range(len(CANNOT)))
def test_changes_that_cannot_be(tmp_path: Path, number: int) -> None:
    change, kind, match = CANNOT[number]
    path = made(tmp_path)
    before = path.read_bytes()
    with pytest.raises(kind, match=match):
        change(path)
    assert path.read_bytes() == before
    assert listing(tmp_path) == ["a.tortilla"]


def test_files_that_cannot_be_changed(tmp_path: Path) -> None:
    more = [Sample("t", path=b"1")]
    with pytest.raises(InvalidInputError, match="local"):
        append("https://example.org/a.tortilla", more)
    with pytest.raises(ComalError):
        append(tmp_path / "missing.tortilla", more)
    path = made(tmp_path)
    with locked(path), pytest.raises(ConflictError):
        append(path, more)


def test_a_change_behind_the_back_of_compact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path)
    real = tortilla.open

    def then_appended(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr("comal.tortilla.editing.open_frame", real)
        frame = real(*arguments, **named)
        append(path, [Sample("t", path=b"late")])
        return frame

    monkeypatch.setattr("comal.tortilla.editing.open_frame", then_appended)
    with pytest.raises(ComalError):
        compact(path)
    assert read(path).tree()["t"] == b"late"


def test_columns_of_published_writers_have_two_names(tmp_path: Path) -> None:
    path = foreign(tmp_path, ["a"])
    edit(path, columns={"rai:elevation": [4]}, replace=True)
    append(path, [Sample("b", path=b"new", rai_data={"elevation": 5})])
    assert read(path).column("rai:ele") == [4, 5]
    assert "rai:elevation" not in read(path).table.column_names
    with pytest.raises(InvalidInputError, match="nothing") as caught:
        edit(path, drop=["nothing"])
    assert "rai:ele" in str(caught.value.expected)
    edit(path, drop=["rai:elevation"])
    assert not {"rai:ele", "rai:elevation"} & set(read(path).table.column_names)
