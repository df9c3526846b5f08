"""The FOLDER container."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from comal.errors import ConflictError
from comal.taco.model.collection import Sample, Tortilla
from comal.taco.writing.creating import create
from tests.taco.write.small import dataset, flat, nested


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_files_lie_below_data_under_their_ids(tmp_path: Path) -> None:
    (root,) = create(dataset(nested(12)), tmp_path / "out")
    for number in range(12):
        assert (root / f"DATA/s{number}/label.json").read_bytes() == f"s{number} label".encode()
        before = root / f"DATA/s{number}/imagery/before.tif"
        assert before.read_bytes() == f"s{number} before".encode()
    level2 = pq.read_table(root / "METADATA/level2.parquet")
    assert level2.column_names[-3:] == [
        "internal:current_id",
        "internal:parent_id",
        "internal:relative_path",
    ]
    for row in level2.to_pylist():
        assert (root / "DATA" / row["internal:relative_path"]).is_file()
    meta = pq.read_table(root / "DATA/s10/imagery/__meta__")
    assert meta["band"].to_pylist() == [10, -10]
    # Readers of the first generation join relative_path to the folder itself.
    assert "internal:relative_path" not in meta.column_names
    assert "internal:offset" not in meta.column_names
    collection = json.loads((root / "COLLECTION.json").read_text("utf-8"))
    assert collection["taco:pit_schema"]["root"] == {"n": 12, "type": "FOLDER"}
    listed = [column[0] for column in collection["taco:field_schema"]["level2"]]
    assert listed == level2.column_names


def test_sources_of_every_kind(tmp_path: Path) -> None:
    big = bytes(range(256)) * 40_000
    (tmp_path / "source").write_bytes(big)
    samples = [
        Sample("file", tmp_path / "source"),
        Sample("bytes", b"abc"),
        Sample("large", big),
        Sample("empty", b""),
    ]
    (root,) = create(dataset(Tortilla(samples)), tmp_path / "out")
    found = files_of(root / "DATA")
    assert found == {"file": big, "bytes": b"abc", "large": big, "empty": b""}


def test_same_bytes_twice(tmp_path: Path) -> None:
    first, second = (create(dataset(nested(3)), tmp_path / name)[0] for name in "ab")
    assert files_of(first) == files_of(second)


def test_an_update_moves_few_bytes(tmp_path: Path) -> None:
    """Content-defined chunking: after rows were put in front, most pages are as they were."""
    pages = []
    for start in (40, 0):
        samples = [
            Sample(f"s{number:06}", b"", text=sha256(b"%d" % number).hexdigest() * 40)
            for number in range(start, 4_000)
        ]
        (root,) = create(dataset(Tortilla(samples)), tmp_path / f"from{start}", dictionary=False)
        pages.append(pages_of(root / "METADATA/level0.parquet", "text"))
    assert len(pages[0]) > 5
    assert len(pages[0] & pages[1]) > len(pages[0]) / 2


def pages_of(path: Path, column: str) -> set[bytes]:
    """Digests of the texts between page boundaries, found by the column's own page sizes."""
    file = pq.ParquetFile(path)
    position = file.schema_arrow.names.index(column)
    chunk = file.metadata.row_group(0).column(position)
    data = path.read_bytes()
    start = chunk.data_page_offset
    found = set()
    body = data[start : start + chunk.total_compressed_size]
    # Compressed pages begin with the magic number of a Zstandard frame.
    for part in body.split(bytes.fromhex("28b52ffd"))[1:]:
        found.add(sha256(part[:-64]).digest())
    return found


def test_existing_folder_is_kept_unless_asked_for(tmp_path: Path) -> None:
    (root,) = create(dataset(flat(2)), tmp_path / "out")
    before = files_of(root)
    with pytest.raises(ConflictError):
        create(dataset(flat(3)), root)
    assert files_of(root) == before
    create(dataset(flat(3)), root, overwrite=True)
    assert len(files_of(root / "DATA")) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_target_that_holds_a_source_is_refused(tmp_path: Path) -> None:
    (root,) = create(dataset(flat(2)), tmp_path / "out")
    again = dataset(Tortilla([Sample("a", root / "DATA/s0")]))
    with pytest.raises(ConflictError, match="source"):
        create(again, root, overwrite=True)
    assert (root / "DATA/s0").is_file()
