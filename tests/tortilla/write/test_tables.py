"""The columnar door: tables, batches, nested tables; no object per item."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from comal.errors import InvalidInputError, NotInContainerError
from comal.tortilla import create, pack_folder
from comal.tortilla import writing as rowstore
from comal.tortilla.creating import read_manifest
from tests.tortilla.write.oracle import listing, read


def blobs(count: int) -> list[bytes]:
    return [f"item {n}".encode() * (n % 4) for n in range(count)]


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), "chunked", "sliced"]
)
def test_bytes(tmp_path: Path, kind: Any) -> None:
    data = blobs(10)
    column: Any = pa.array(data, kind if not isinstance(kind, str) else pa.binary())
    if kind == "chunked":
        column = pa.chunked_array([column[:3], column[3:3], column[3:]])
    if kind == "sliced":
        column = pa.array([b"before", *data, b"after"])[1:11]
    table = pa.table({"id": [f"s{n}" for n in range(10)], "path": column, "n": range(10)})
    found = read(create(table, tmp_path / "a.tortilla"))
    assert found.items == data
    assert found.column("n") == list(range(10))


def test_paths(tmp_path: Path) -> None:
    names = [f"f{n}" for n in range(5)]
    for name in names:
        (tmp_path / name).write_text(name * 3)
    table = pa.table(
        {
            "tortilla:id": names,
            "where": [names[0], *(str(tmp_path / name) for name in names[1:])],
            "file_format": ["BYTES", None, "BYTES", "GRIB", "BYTES"],
            "data_split": ["train", None, "test", "validation", "train"],
            "__index_level_0__": range(5),
            "internal:subfile": names,
            "tortilla:offset": range(5),
        }
    )
    found = read(create(table, tmp_path / "a.tortilla", path="where", base=tmp_path))
    assert found.tree() == {name: name.encode() * 3 for name in names}
    assert found.column("tortilla:file_format") == ["BYTES", "BYTES", "BYTES", "GRIB", "BYTES"]
    assert found.column("tortilla:data_split") == ["train", None, "test", "validation", "train"]
    assert found.table.num_columns == 5


def batches(count: int, size: int) -> Iterator[Any]:
    for start in range(0, count, size):
        rows = np.arange(start, min(start + size, count))
        ids = pa.array([f"s{row:06}" for row in rows])
        data = pa.array([int(row + 1).to_bytes(4, "little") for row in rows], pa.binary())
        yield pa.record_batch({"id": ids, "path": data, "n": rows, "text": ids})


def test_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are put aside on disk come back in their order, of whatever schema."""
    whole = create(pa.Table.from_batches(list(batches(5_000, 5_000))), tmp_path / "w.tortilla")
    monkeypatch.setattr(rowstore, "_HELD", 10_000)
    streamed = create(batches(5_000, 300), tmp_path / "s.tortilla")
    assert streamed.path.read_bytes() == whole.path.read_bytes()
    reader = pa.RecordBatchReader.from_batches(next(batches(1, 1)).schema, batches(5_000, 700))
    assert create(reader, tmp_path / "r.tortilla").path.read_bytes() == whole.path.read_bytes()

    def growing() -> Iterator[Any]:
        for number, batch in enumerate(batches(5_000, 700)):
            yield batch if number % 2 else batch.drop_columns(["text"]).append_column("m", batch[2])

    found = read(create(growing(), tmp_path / "g.tortilla"))
    assert found.column("n") == list(range(5_000))
    assert [value is None for value in found.column("text")] == [
        value is not None for value in found.column("m")
    ]
    assert listing(tmp_path) == ["g.tortilla", "r.tortilla", "s.tortilla", "w.tortilla"]


def test_memory_for_an_entry(tmp_path: Path) -> None:
    """At most 200 bytes of Python's memory and Arrow's for an item that is written."""
    count = 100_000
    table = pa.Table.from_batches(list(batches(count, count))).drop_columns(["text"])
    before = pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    peaks: list[int] = []
    create(table.slice(0, 10), tmp_path / "warm.tortilla")
    tracemalloc.start()
    create(
        table,
        tmp_path / "a.tortilla",
        progress=lambda *_: peaks.append(pool.bytes_allocated() - before),
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak + max(peaks) < 200 * count
    assert len(read(tmp_path / "a.tortilla").ids) == count


def test_tables_that_cannot_be(tmp_path: Path) -> None:
    good = {"id": ["a"], "path": [b"1"]}
    for columns, match in (
        ({"name": ["a"], "path": [b"1"]}, "no column 'id'"),
        ({"id": [None], "path": [b"1"]}, "missing"),
        ({"id": [1], "path": [b"1"]}, "wrong type"),
        ({**good, "tortilla:id": ["b"]}, "twice"),
        ({**good, "file_format": [3]}, "wrong type"),
        ({**good, "tortilla:other": [3]}, "core"),
        ({**good, "stac:crs": [3]}, "wrong type"),
        ({**good, "stac:geotransform": ["x"]}, "wrong type"),
        ({"id": ["a"], "path": [[1]]}, "neither paths nor bytes"),
        ({"id": ["a"], "path": ["missing"]}, "cannot be"),
    ):
        with pytest.raises((InvalidInputError, FileNotFoundError), match=match):
            create(pa.table(columns), tmp_path / "a.tortilla")
    with pytest.raises((InvalidInputError, NotInContainerError)):
        create(pa.table(good), tmp_path / "a.tortilla", id="name")
    assert listing(tmp_path) == []


def test_manifests_of_tortillas_alone(tmp_path: Path) -> None:
    """Ids are paths where there are none, and have two names; times are numbers."""
    (tmp_path / "0007").write_bytes(b"seven")
    manifest = tmp_path / "m.csv"
    for name in ("id", "tortilla:id"):
        manifest.write_text(f"{name},time_start,time_end\n0007,5,6\n")
        made = read(
            pack_folder(tmp_path, tmp_path / "a.tortilla", manifest=manifest, overwrite=True)
        )
        assert made.tree() == {"0007": b"seven"}
        assert made.column("stac:time_start") == [5]
    assert read_manifest(manifest).to_pydict() == {
        "tortilla:id": ["0007"],
        "stac:time_start": [5],
        "stac:time_end": [6],
    }
    manifest.write_text("id,path\na,0007\nb,\n")
    with pytest.raises(InvalidInputError, match="has no payload"):
        pack_folder(tmp_path, tmp_path / "b.tortilla", manifest=manifest)
