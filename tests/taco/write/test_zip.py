"""The ZIP and the FOLDER container, byte for byte and by independent readers."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import ComalError, InvalidInputError, LimitExceededError
from comal.taco.model import levels
from comal.taco.model.collection import Sample, Tortilla
from comal.taco.writing import creating
from comal.taco.writing.containers import settings as settings_of
from comal.taco.writing.creating import create
from tests.support import files_below
from tests.taco.write.small import Archive, dataset, flat, nested


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    taco = dataset(nested(2), title="Título", keywords=["a"])
    return Archive(create(taco, tmp_path_factory.mktemp("x") / "a.tacozip")[0])


def test_order_of_entries(archive: Archive) -> None:
    names = archive.zip.namelist()
    assert all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.zip.infolist())
    assert all(entry.date_time == (1980, 1, 1, 0, 0, 0) for entry in archive.zip.infolist())
    assert names == [
        "TACO_HEADER",
        "DATA/s0/imagery/before.tif",
        "DATA/s0/imagery/after.tif",
        "DATA/s0/label.json",
        "DATA/s1/imagery/before.tif",
        "DATA/s1/imagery/after.tif",
        "DATA/s1/label.json",
        "DATA/s0/imagery/__meta__",
        "DATA/s1/imagery/__meta__",
        "DATA/s0/__meta__",
        "DATA/s1/__meta__",
        "METADATA/level0.parquet",
        "METADATA/level1.parquet",
        "METADATA/level2.parquet",
        "COLLECTION.json",
    ]
    directory = archive.zip.start_dir
    ends = [offset + size for offset, size in archive.slots]
    headers = [
        offset - 30 - len(f"METADATA/level{n}.parquet")
        for n, (offset, _) in enumerate(archive.slots[:-1])
    ]
    assert headers[1:] == ends[:-2]
    assert ends[-1] == directory


def test_columns_and_types(archive: Archive) -> None:
    internal = ["current_id", "parent_id", "offset", "size", "relative_path"]
    assert archive.level(0).column_names == [
        "id",
        "type",
        "score",
        "group",
        *(f"internal:{name}" for name in internal),
    ]
    level1 = archive.level(1)
    assert level1["internal:parent_id"].to_pylist() == [0, 0, 1, 1]
    assert level1["internal:current_id"].to_pylist() == [0, 1, 2, 3]
    assert level1["internal:relative_path"].to_pylist() == [
        "s0/imagery/",
        "s0/label.json",
        "s1/imagery/",
        "s1/label.json",
    ]
    assert archive.level(0)["internal:relative_path"].to_pylist() == ["s0/", "s1/"]
    assert level1.schema.field("internal:offset").type == pa.int64()
    meta = pq.read_table(io.BytesIO(archive.zip.read("DATA/s1/__meta__")))
    assert meta.column_names == [
        "id",
        "type",
        "kind",
        *(f"internal:{name}" for name in internal[:4]),
    ]
    assert meta["internal:parent_id"].to_pylist() == [1, 1]


def test_collection(archive: Archive) -> None:
    assert "Título".encode() in archive.slot(-1)
    order = "id dataset_version description licenses providers tasks taco_version title curators"
    assert list(archive.collection)[:11] == [*order.split(), "keywords", "extent"]
    assert archive.collection["taco_version"] == "2.0.0"
    assert archive.collection["taco:pit_schema"] == {
        "root": {"n": 2, "type": "FOLDER"},
        "shape": [2, 2, 2],
        "hierarchy": {
            "1": [{"n": 4, "type": ["FOLDER", "FILE"], "id": ["imagery", "label.json"]}],
            "2": [{"n": 4, "type": ["FILE", "FILE"], "id": ["before.tif", "after.tif"]}],
        },
    }
    for number in range(3):
        listed = archive.collection["taco:field_schema"][f"level{number}"]
        assert [column[0] for column in listed] == archive.level(number).column_names
        assert all(len(column) == 3 for column in listed)


def test_codec_and_encodings_of_the_level_tables(tmp_path: Path) -> None:
    (path,) = create(dataset(flat(3)), tmp_path / "a.tacozip", compression="snappy")
    group = pq.read_metadata(io.BytesIO(Archive(path).slot(0))).row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"SNAPPY"}
    assert all(column.statistics is not None for column in columns.values())
    assert "DELTA_BYTE_ARRAY" in columns["id"].encodings
    assert "DELTA_BINARY_PACKED" in columns["internal:offset"].encodings
    assert "RLE_DICTIONARY" in columns["cloud"].encodings


@pytest.mark.parametrize(
    ("source", "columns", "message"),
    [
        (5, ["id", "path"], "iterable of batches"),
        (None, ["id", "path"], "iterable of batches"),
        (b"PAR1", ["id", "path"], "iterable of batches"),
        (lambda: 5, ["id", "path"], "iterable of batches"),
        ([], ["id"], "no column 'path'"),
        ([], ["path"], "no column 'id'"),
    ],
)
def test_what_holds_no_batches_is_told_so(
    tmp_path: Path, source: Any, columns: list[str], message: str
) -> None:
    schema = pa.schema([(name, pa.string()) for name in columns])
    with pytest.raises(InvalidInputError, match=message):
        create(dataset(Tortilla.from_batches(source, schema=schema)), tmp_path / "a.zip")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "how", "at_once"),
    [
        ("a.zip", {}, 3),
        ("a", {}, 1000),
        ("a.zip", {"split_size": 4_000}, 1),
        ("a.zip", {"group_by": "where"}, 1000),
        ("a.zip", {"group_by": ["year", "where"]}, 7),
        ("a.zip", {"group_by": "where", "split_size": 3_000}, 7),
        ("a.zip", {"group_by": "year", "split_size": 2_000, "consolidate": False}, 1),
    ],
)
def test_samples_tables_and_batches_give_the_same_bytes(
    tmp_path: Path, target: str, how: dict[str, Any], at_once: int
) -> None:
    """As one archive, as parts, and as groups, whose values come back again and again."""
    rows: list[dict[str, Any]] = [
        {
            "id": f"s{n}",
            "path": b"x" * (n * 37 % 400),
            "where": ["north", "süd / west", None][n * 7 % 3],
            "year": 2020 + n // 11 % 4,
        }
        for n in range(60)
    ]
    table = pa.Table.from_pylist(rows)
    batches = Tortilla.from_batches(
        lambda: iter(table.to_batches(max_chunksize=at_once)), schema=table.schema
    )
    samples = Tortilla([Sample(**row) for row in rows])
    ways = {"samples": samples, "table": Tortilla.from_table(table), "batches": batches}
    made = {}
    for name, tortilla in {**ways, "again": batches}.items():
        (tmp_path / name).mkdir()
        paths = create(dataset(tortilla), tmp_path / name / target, **how)
        made[name] = [path.name for path in paths], files_below(tmp_path / name)
        assert made[name] == made["samples"]
    assert len(made["table"][1]) >= (1 if target == "a.zip" and not how else 3)


@settings(max_examples=15)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20), st.randoms(), st.booleans())
def test_rows_of_tables_may_come_in_any_order(
    payloads: list[bytes], random: Any, by_name: bool
) -> None:
    ids = ["s1", "s10", "s2"]
    rows = [(parent, payload) for parent in range(3) for payload in payloads]
    numbered = [(p, f"f{n % len(payloads)}", payload) for n, (p, payload) in enumerate(rows)]
    parents = list(range(3))
    random.shuffle(parents)
    # Siblings keep their order, so that only whole families are moved.
    moved = [row for parent in parents for row in numbered if row[0] == parent]
    table = pa.table(
        {
            "id": [name for _, name, _ in moved],
            "parent": [ids[parent] if by_name else parent for parent, _, _ in moved],
            "path": pa.array([payload for _, _, payload in moved], pa.binary()),
        }
    )
    tortilla = Tortilla.from_tables([pa.table({"id": ids}), table])
    with tempfile.TemporaryDirectory() as folder:
        (path,) = create(dataset(tortilla), Path(folder) / "a.zip")
        expected = {f"{ids[parent]}/{name}": payload for parent, name, payload in numbered}
        assert Archive(path).leaves() == Archive(path).walked() == expected


@pytest.mark.parametrize(
    ("how", "text", "mine"),
    [
        ({"group_by": "nothing"}, "no field", None),
        ({"group_by": "id"}, "no field", None),
        ({"group_by": "k"}, "the same file name", None),
        ({"group_by": "n"}, "too many groups", None),
        ({"group_by": "three"}, "appears twice", None),
        ({"split_size": 300}, "appears twice", None),
        ({"group_by": "three"}, "exists", "a_y.zip"),
        ({"split_size": 300}, "exists", "a_part0003.zip"),
    ],
)
def test_archives_of_batches_are_all_there_or_none(
    tmp_path: Path,
    how: dict[str, Any],
    text: str,
    mine: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a file in the way stays."""
    assert creating.GROUPS == 100
    monkeypatch.setattr(creating, "GROUPS", 3)
    table = pa.table(
        {
            "id": ["a", "b", "a", "c"],
            "path": pa.array([b"x"] * 4),
            "k": ["x", "X", "y", "y"],
            "three": ["x", "y", "z", "z"],
            "n": range(4),
        }
    )
    tortilla = Tortilla.from_batches(table.to_batches(1), schema=table.schema)
    before = {} if mine is None else {mine: b"mine"}
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ComalError, match=text):
        create(dataset(tortilla), tmp_path / "a.zip", **how)
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("target", ["a.tacozip", "a"])
def test_files_bytes_and_large_payloads_side_by_side(tmp_path: Path, target: str) -> None:
    generator = np.random.default_rng(1)
    payloads = {
        "small": b"x",
        "empty": b"",
        "large": generator.bytes(9_000_000),
        "file": generator.bytes(70_000),
        "large_file": generator.bytes(9_000_001),
    }
    samples = []
    for name, payload in payloads.items():
        path: Path | bytes = payload
        if name.endswith("file"):
            path = tmp_path / name
            path.write_bytes(payload)
        samples.append(Sample(name, path))
    (made,) = create(dataset(Tortilla(samples)), tmp_path / target)
    if made.is_dir():
        assert files_below(made / "DATA") == payloads
    else:
        assert Archive(made).leaves() == Archive(made).entries() == payloads


def test_relative_paths_mean_the_folder_where_the_sample_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.bin").write_bytes(b"here")
    monkeypatch.chdir(tmp_path)
    taco = dataset(Tortilla([Sample("a", "a.bin")]))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    (made,) = create(taco, "a.tacozip")
    assert Archive(made).leaves() == {"a": b"here"}


def test_a_column_of_more_than_two_gib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As joining such chunks fails; making them here would take all of the memory."""

    def too_long(column: Any) -> Any:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    monkeypatch.setattr(levels, "one_array", too_long)
    with pytest.raises(LimitExceededError, match="2 GiB"):
        levels.flat(pa.chunked_array([["a"], ["b"]]))


# -- the FOLDER container --------------------------------------------------------------------------


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
    assert settings_of({}, "folder").row_group_size == 131_072

    (given,) = create(
        dataset(Tortilla(samples)), tmp_path / "given", dictionary=True, row_group_size=1_000
    )
    found = pq.read_metadata(given / "METADATA/level0.parquet")
    assert found.num_row_groups == 3
    assert all(found.row_group(0).column(n).has_dictionary_page for n in (1, 2, 3))
