"""The FOLDER container."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq

from comal.taco.model.collection import Sample, Tortilla
from comal.taco.writing.containers import settings
from comal.taco.writing.creating import create
from tests.taco.write.small import dataset, nested


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


def test_pages_of_a_folder_are_cut_small_and_dictionaries_are_few(tmp_path: Path) -> None:
    samples = [
        Sample(f"s{n:05}", b"", cloud=sha256(b"%d" % n).hexdigest(), label=f"class {n % 7}")
        for n in range(3_000)
    ]
    (root,) = create(dataset(Tortilla(samples)), tmp_path / "out")
    path = root / "METADATA/level0.parquet"
    columns = [pq.read_metadata(path).row_group(0).column(n) for n in range(4)]
    dictionaries = {c.path_in_schema for c in columns if c.has_dictionary_page}
    assert dictionaries == {"type", "label"}
    # 204 000 bytes of texts, cut into pages of 16 to 128 KB: each is a Zstandard frame.
    (cloud,) = (c for c in columns if c.path_in_schema == "cloud")
    start = cloud.data_page_offset
    body = path.read_bytes()[start : start + cloud.total_compressed_size]
    assert 2 <= body.count(bytes.fromhex("28b52ffd")) <= 14
    assert settings({}, "folder").row_group_size == 131_072

    (given,) = create(
        dataset(Tortilla(samples)), tmp_path / "given", dictionary=True, row_group_size=1_000
    )
    found = pq.read_metadata(given / "METADATA/level0.parquet")
    assert found.num_row_groups == 3
    assert all(found.row_group(0).column(n).has_dictionary_page for n in (1, 2, 3))
