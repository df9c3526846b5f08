"""The FOLDER container."""

from __future__ import annotations

import io
import json
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal.samples.payloads import nothing
from comal.taco.model.collection import Sample, Tortilla
from comal.taco.model.levels import Level
from comal.taco.writing.containers import settings, table_writer, write_level
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

    (given,) = create(
        dataset(Tortilla(samples)), tmp_path / "given", dictionary=True, row_group_size=1_000
    )
    found = pq.read_metadata(given / "METADATA/level0.parquet")
    assert found.num_row_groups == 3
    assert all(found.row_group(0).column(n).has_dictionary_page for n in (1, 2, 3))


def test_a_stream_and_a_list_give_one_table(tmp_path: Path) -> None:
    """Which columns get a dictionary does not hang on the batches that rows came in."""
    rows = 3_000
    table = realistic(rows, seed=3)
    schema = table.schema
    files = []
    for size in (rows, 70):
        sink = io.BytesIO()
        with table_writer(sink, schema, settings({"row_group_size": 1_000}, "folder")) as writer:
            for start in range(0, rows, size):
                writer.write(table.slice(start, size))
        files.append(pq.read_metadata(io.BytesIO(sink.getvalue())))
    one, many = (
        {
            found.row_group(group).column(n).path_in_schema
            for group in range(found.num_row_groups)
            for n in range(found.num_columns)
            if found.row_group(group).column(n).has_dictionary_page
        }
        for found in files
    )
    assert one == many == {"type", "label"}


ROWS = 300_000
LABELS = np.array(["forest", "water", "urban area", "crops", "bare soil", "snow and ice"])


def realistic(rows: int, seed: int) -> Any:
    """Ids that share a beginning, random numbers, few labels, points as WKB."""
    rng = np.random.default_rng(seed)
    tags = rng.integers(1 << 30, size=rows).tolist()
    points = rng.uniform(-90, 90, (rows, 2))
    return pa.table(
        {
            "id": [f"scene_{seed}_{n:07}_{tag:08x}" for n, tag in enumerate(tags)],
            "type": ["FILE"] * rows,
            "cloud": rng.random(rows),
            "label": LABELS[rng.integers(0, len(LABELS), rows)],
            "where": pa.array([b"\1\1\0\0\0" + xy.tobytes() for xy in points], pa.binary()),
        }
    )


def level_file(table: Any) -> bytes:
    """The level table of a folder, with the settings that a caller gets who asks for nothing."""
    sink = io.BytesIO()
    level = Level(table, np.arange(len(table)), nothing(len(table)))
    write_level(level, None, table.column("id"), sink, settings({}, "folder"))
    return sink.getvalue()


def chunks_of(data: bytes) -> dict[bytes, int]:
    """Digests of chunks of about 16 KB and their sizes: what a storage that knows them keeps.

    A chunk ends where a hash of the 48 bytes before it has 14 zero bits. The hash rolls: it is the
    sum of a random number for each byte, which differences of a running sum give for all windows.
    """
    numbers = np.random.default_rng(1).integers(0, 1 << 63, 256, dtype=np.uint64)
    sums = np.concatenate([[np.uint64(0)], np.cumsum(numbers[np.frombuffer(data, np.uint8)])])
    rolled = (sums[48:] - sums[:-48]) * np.uint64(0x9E3779B97F4A7C15)
    ends = np.flatnonzero(rolled >> np.uint64(50) == 0) + 48
    bounds = [0, *ends.tolist(), len(data)]
    return {sha256(data[a:b]).digest(): b - a for a, b in pairwise(bounds)}


@pytest.fixture(scope="module")
def before() -> tuple[Any, dict[bytes, int]]:
    table = realistic(ROWS, seed=7)
    data = level_file(table)
    assert pq.read_metadata(io.BytesIO(data)).num_row_groups >= 2
    chunks = chunks_of(data)
    assert 8_000 < len(data) / len(chunks) < 32_000
    return table, chunks


def edited(table: Any) -> Any:
    values = table.column("cloud").to_numpy().copy()
    values[np.random.default_rng(5).choice(len(values), 10, replace=False)] = 0.5
    return table.set_column(2, "cloud", pa.array(values))


@pytest.mark.parametrize(
    ("change", "most"),
    [
        (lambda table: pa.concat_tables([table.slice(0, 150_000), table.slice(150_005)]), 0.12),
        (lambda table: pa.concat_tables([table, realistic(40, seed=8)]), 0.06),
        (edited, 0.12),
    ],
    ids=["5 rows gone", "40 rows behind", "10 values"],
)
def test_an_update_moves_few_bytes(
    change: Any, most: float, before: tuple[Any, dict[bytes, int]]
) -> None:
    """Content-defined chunking (TACO 2.0, 6.4) with the settings of everyone."""
    table, old = before
    data = level_file(change(table))
    moved = sum(size for digest, size in chunks_of(data).items() if digest not in old)
    assert 0 < moved < most * len(data)
