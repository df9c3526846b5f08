"""Tables that name files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectNotFoundError,
)
from comal.samples import intake as manifests
from comal.samples.intake import Geometry, read_table, split


def csv(folder: Path, text: str) -> Path:
    path = folder / "m.csv"
    path.write_text(text)
    return path


def test_texts_of_csv(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "id,path,n,land,all\n0001,07,01,NA,NA\nnull,,,,null\n"))
    assert table.to_pydict() == {
        "id": ["0001", "null"],
        "path": ["07", None],
        "n": [1, None],
        "land": ["NA", None],
        "all": ["NA", "null"],
    }
    other = read_table(tmp_path / "m.csv", texts=["n"])
    assert other["n"].to_pylist() == ["01", None]


@pytest.mark.parametrize("name", ["m.parquet", "m.csv", "table"])
def test_first_bytes_tell_parquet(tmp_path: Path, name: str) -> None:
    table = pa.table({"id": ["a"], "n": pa.array([1], pa.int8())})
    pq.write_table(table, tmp_path / name)
    assert read_table(tmp_path / name).equals(table)


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("m.csv", b"", InvalidInputError),
        ("m.parquet", b"", InvalidInputError),
        ("m.parquet", b"id,path\na,b\n", InvalidInputError),
        ("m.csv", b"PAR1 and nothing else", InvalidInputError),
        ("m.csv", b"id,path\na\n", InvalidInputError),
        ("m.csv", b"id,path\n\xff,a\n", InvalidInputError),
        ("m.csv", b"id,path,id\na,b,c\n", InvalidInputError),
        (".", None, ComalError),
        ("no.csv", None, ObjectNotFoundError),
    ],
)
def test_what_cannot_be_read(
    tmp_path: Path, name: str, data: bytes | None, error: type[Exception]
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(error):
        read_table(tmp_path / name)


NAMES = Geometry("f:geometry", "f:crs")
PROJECTED = {"id": {"authority": "EPSG", "code": 32631}}


def geoparquet(path: Path, document: Any, **more: Any) -> Path:
    table = pa.table({"id": ["a", "b"], "geom": [b"1", b"2"], **more})
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    pq.write_table(table.replace_schema_metadata({"geo": data}), path)
    return path


@pytest.mark.parametrize(
    ("about", "crs"),
    [
        ({}, "EPSG:4326"),
        ({"crs": None}, "EPSG:4326"),
        ({"crs": {"id": {"authority": "OGC", "code": "CRS84"}}}, "EPSG:4326"),
        ({"crs": {"id": {"authority": "EPSG", "code": 4326}}}, "EPSG:4326"),
        ({"crs": PROJECTED}, "EPSG:32631"),
        ({"crs": {"name": "mine"}}, '{"name": "mine"}'),
        ("odd", "EPSG:4326"),
    ],
)
def test_geometry_of_geoparquet(tmp_path: Path, about: Any, crs: str) -> None:
    document = {"primary_column": "geom", "columns": {"geom": about}}
    path = geoparquet(tmp_path / "m.parquet", document)
    assert read_table(path).column_names == ["id", "geom"]
    table = read_table(path, geometry=NAMES)
    assert table.to_pydict() == {"id": ["a", "b"], "f:geometry": [b"1", b"2"], "f:crs": [crs] * 2}
    named = geoparquet(path, document, **{"f:crs": ["x", "y"]})
    assert read_table(named, geometry=NAMES)["f:crs"].to_pylist() == ["x", "y"]


@pytest.mark.parametrize("primary", [None, "other", 7, ["geom"]])
def test_geoparquet_without_its_column(tmp_path: Path, primary: Any) -> None:
    path = geoparquet(tmp_path / "m.parquet", {"primary_column": primary, "columns": []})
    assert read_table(path, geometry=NAMES).column_names == ["id", "geom"]


@pytest.mark.parametrize("document", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_broken_metadata_of_geoparquet(tmp_path: Path, document: bytes) -> None:
    path = geoparquet(tmp_path / "m.parquet", document)
    assert read_table(path).num_rows == 2
    with pytest.raises(ComalError):
        read_table(path, geometry=NAMES)
    assert issubclass(InvalidMetadataError, ComalError)


def test_split(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    table = pa.table(
        {"n": [1, 2, 3], "id": ["a", "b/", None], "path": ["x", None, f"{tmp_path}/x"]}
    )
    ids, paths, fields = split(table, tmp_path)
    assert ids.to_pylist() == ["a", "b/", None]
    assert paths.to_pylist() == [f"{tmp_path}/x", None, f"{tmp_path}/x"]
    assert fields.to_pydict() == {"n": [1, 2, 3]}


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
)
def test_kinds_of_text(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "x").write_bytes(b"x")
    chunks = [pa.array(["x"], kind), pa.array(["x"], kind)]
    column = pa.chunked_array(chunks)
    ids, paths, _ = split(pa.table({"id": column, "path": column}), tmp_path)
    assert ids.equals(pa.array(["x", "x"]))
    assert paths.equals(pa.array([f"{tmp_path}/x"] * 2))
    empty = pa.table({"id": pa.chunked_array([], kind), "path": pa.nulls(0)})
    assert [len(part) for part in split(empty, tmp_path)[:2]] == [0, 0]


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("no", ObjectNotFoundError, r"is missing: .*/no' \(row 2\)"),
        ("x/y", ObjectNotFoundError, "is missing"),
        ("a\0b", ObjectNotFoundError, "is missing"),
        ("a" * 5_000, ComalError, "is missing"),
        ("", InvalidInputError, "not a regular file"),
        (".", InvalidInputError, "not a regular file"),
        ("pipe", InvalidInputError, r"not a regular file: .*/pipe' \(row 2\)"),
    ],
)
def test_files_that_are_not_there(
    tmp_path: Path, path: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    table = pa.table({"id": list("abcd"), "path": ["x", None, path, path]})
    with pytest.raises(error, match=message):
        split(table, tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["a"]}, "no columns id and path"),
        ({"path": ["a"]}, "no columns id and path"),
        ({"id": [1], "path": ["x"]}, "column 'id' of the manifest is not text"),
        ({"id": ["a"], "path": [b"x"]}, "column 'path' of the manifest is not text"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, columns: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        split(pa.table(columns), tmp_path)


def test_texts_that_are_no_utf8(tmp_path: Path) -> None:
    odd = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(InvalidInputError, match="'id'"):
        split(pa.table({"id": odd, "path": ["x"]}), tmp_path)
    with pytest.raises(InvalidInputError, match="'path'"):
        split(pa.table({"id": ["x"], "path": odd}), tmp_path)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.table([pa.array(["a"])] * 3, names=["id", "path", "id"])
    with pytest.raises(InvalidInputError, match="one name"):
        split(table, tmp_path)


def test_each_path_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    stat = os.stat

    def counted(path: Any, **options: Any) -> Any:
        seen.append(str(path))
        return stat(path, **options)

    for name in "abc":
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.setattr(os, "stat", counted)
    monkeypatch.setattr(manifests, "_BLOCK", 2)
    names = ["a", "b", "a", "c", f"{tmp_path}/a"] * 50
    split(pa.table({"id": names, "path": names}), tmp_path)
    monkeypatch.undo()
    assert seen == [f"{tmp_path}/{name}" for name in "abc"]
