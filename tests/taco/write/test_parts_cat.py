"""One dataset as several archives, and several as one."""

from __future__ import annotations

import io
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal.errors import ConflictError, InvalidInputError, NotThisFormatError
from comal.taco.checking import check
from comal.taco.model.collection import Sample, Tortilla
from comal.taco.reading.dataset import load
from comal.taco.spec import TacoWarning
from comal.taco.writing.creating import create
from comal.taco.writing.tacocat import create_tacocat, create_tacollection
from tests.attacks.build import Recipe, swapped_spans
from tests.support import SHARED, files_below, needs_shared
from tests.taco.read.scenes import expected, read_all, scenes, write
from tests.taco.write.small import Archive, dataset, flat, nested, scene


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_groups_by_fields_and_size(tmp_path: Path) -> None:
    how: dict[str, Any] = {"split_size": "1 KB", "consolidate": False}
    made = create(dataset(nested(6)), tmp_path / "d.zip", group_by="group", **how)
    assert names(made) == [f"d_{key}_part000{n}.zip" for key in ("even", "odd") for n in (1, 2, 3)]
    assert Archive(made[4]).level(0)["id"].to_pylist() == ["s3"]
    values = [("x y", 1), (None, 1), ("x y", 2)]
    tortilla = Tortilla(
        [Sample(f"s{n}", b"", a=a, b=b) for n, (a, b) in enumerate(values)], pad_to=5
    )
    made = create(dataset(tortilla), tmp_path / "d.zip", group_by=["a", "b"], consolidate=False)
    assert names(made) == ["d_x-y_1.zip", "d_null_1.zip", "d_x-y_2.zip"]
    # Padding has no group of its own.
    assert [len(Archive(path).level(0)) for path in made] == [1, 1, 3]


@pytest.mark.parametrize(
    "values",
    [
        [("a/b", ""), ("a:b", "")],
        [("a", ""), ("A", "")],
        [("a_b", "c"), ("a", "b_c")],
        [("null", "a"), (None, "a")],
    ],
)
def test_groups_of_one_file_name_are_refused(tmp_path: Path, values: list[Any]) -> None:
    tortilla = Tortilla([Sample(f"s{n}", b"", k=k, l=v) for n, (k, v) in enumerate(values)])
    with pytest.raises(InvalidInputError, match="the same file name"):
        create(dataset(tortilla), tmp_path / "d.zip", group_by=["k", "l"])
    assert list(tmp_path.iterdir()) == []


def test_times_finer_than_a_microsecond_are_indexed_as_they_are(tmp_path: Path) -> None:
    paths = []
    for unit, value in (("us", 7), ("ns", 7_001)):
        times = pa.array([value], pa.timestamp(unit))
        table = pa.table({"id": [unit], "path": [b"x"], "t": times})
        paths += create(dataset(Tortilla.from_table(table)), tmp_path / f"{unit}.tacozip")
    for some in ([paths[1]], paths, paths[::-1]):
        index = create_tacocat(some, overwrite=True)[1]
        assert check(index).ok
        found = {row["id"]: row["t"].value for row in load(index).data.to_arrow().to_pylist()}
        assert found == {"us": 7_000, "ns": 7_001} if len(some) == 2 else {"ns": 7_001}


# -- a set that takes the place of another --------------------------------------------------------


def in_batches(rows: int) -> Tortilla:
    """The samples of `flat`, in batches."""
    table = pa.table(
        {
            "id": [f"s{n}" for n in range(rows)],
            "path": pa.array([b"x" * 100] * rows, pa.binary()),
            "group": ["even" if n % 2 == 0 else "odd" for n in range(rows)],
        }
    )
    return Tortilla.from_batches(lambda: iter(table.to_batches(2)), schema=table.schema)


def in_table(rows: int) -> Tortilla:
    stream = in_batches(rows).stream
    assert stream is not None
    assert callable(stream.source)
    return Tortilla.from_table(pa.Table.from_batches(list(stream.source())))


WAYS = pytest.mark.parametrize("samples", [in_table, in_batches])


@WAYS
@pytest.mark.parametrize("consolidate", [True, False])
def test_parts_that_the_new_set_lacks_are_removed(
    tmp_path: Path, samples: Any, consolidate: bool
) -> None:
    how: dict[str, Any] = {"split_size": 600, "consolidate": consolidate}
    for name in ("d_part0009.txt", "other_part0009.zip", "d_part009.zip", "d_odd_part0001.zip"):
        (tmp_path / name).write_bytes(b"mine")
    others = set(tmp_path.iterdir())
    create(dataset(samples(12)), tmp_path / "d.zip", **how)
    new = create(dataset(samples(3)), tmp_path / "d.zip", overwrite=True, **how)
    assert set(tmp_path.iterdir()) == {*new, *others}
    assert names([path for path in new if path.suffix]) == ["d_part0001.zip", "d_part0002.zip"]


@WAYS
def test_parts_of_each_group_are_removed(tmp_path: Path, samples: Any) -> None:
    how: dict[str, Any] = {"split_size": 300, "group_by": "group"}
    create(dataset(samples(8)), tmp_path / "d.zip", **how)
    new = create(dataset(samples(3)), tmp_path / "d.zip", overwrite=True, **how)
    assert set(tmp_path.iterdir()) == set(new)
    assert names(new)[:3] == ["d_even_part0001.zip", "d_even_part0002.zip", "d_odd_part0001.zip"]


def test_archives_of_groups_that_the_new_set_lacks_stay(tmp_path: Path) -> None:
    create(dataset(in_table(4)), tmp_path / "d.zip", group_by="group")
    before = (tmp_path / "d_odd.zip").read_bytes()
    new = create(dataset(in_table(1)), tmp_path / "d.zip", overwrite=True, group_by="group")
    assert names(new) == ["d_even.zip", ".tacocat", "__TACOCAT__"]
    assert (tmp_path / "d_odd.zip").read_bytes() == before
    assert set(tmp_path.iterdir()) == {*new, tmp_path / "d_odd.zip"}


@WAYS
@pytest.mark.parametrize("kind", ["bytes", "link", "dataset", "broken"])
def test_a_file_that_is_no_part_is_never_removed(tmp_path: Path, samples: Any, kind: str) -> None:
    old = create(dataset(samples(4)), tmp_path / "d.zip", split_size=600, consolidate=False)
    before = {path: path.read_bytes() for path in old}
    stranger = tmp_path / "d_part0007.zip"
    if kind == "bytes":
        stranger.write_bytes(b"mine")
    elif kind == "dataset":
        create(dataset(samples(1), id="another"), stranger)
    elif kind == "broken":
        stranger.write_bytes(old[0].read_bytes()[:500])
    else:
        stranger.symlink_to(old[0])
    before[stranger] = stranger.read_bytes()
    for overwrite in (True, False):
        with pytest.raises(ConflictError, match="d_part0007" if overwrite else "d_part000"):
            create(dataset(samples(2)), tmp_path / "d.zip", split_size=600, overwrite=overwrite)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@WAYS
def test_an_old_part_is_no_source_of_the_new_set(tmp_path: Path, samples: Any) -> None:
    (*_, last) = create(dataset(samples(12)), tmp_path / "d.zip", split_size=600, consolidate=False)
    table = pa.table({"id": ["a"], "path": [f"{tmp_path}/../{tmp_path.name}/{last.name}"]})
    tortilla = Tortilla.from_table(table)
    if samples is in_batches:
        tortilla = Tortilla.from_batches(table.to_batches(), schema=table.schema)
    with pytest.raises(ConflictError, match="source"):
        create(dataset(tortilla), tmp_path / "d.zip", split_size=600, overwrite=True)
    assert last.is_file()


# -- TACOCAT ------------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    made = []
    for number, rows in enumerate([(0, 10, 2), (1,), (3, 4)]):
        extent = {"spatial": [10 * number, 0, 10 * number + 5, 5], "temporal": None}
        taco = dataset(Tortilla([scene(row) for row in rows]), id=f"part{number}", extent=extent)
        made += create(taco, tmp_path / f"p{number}.tacozip")
    return made


def test_both_forms_hold_the_same_tables(tmp_path: Path, parts: list[Path]) -> None:
    folder, binary = create_tacocat(parts)
    data = binary.read_bytes()
    assert data[:8] == b"TACOCAT\0"
    assert struct.unpack("<II", data[8:16]) == (1, 2)
    values = struct.unpack("<14Q", data[16:128])
    slots = list(zip(values[::2], values[1::2], strict=True))
    assert slots[0][0] == 128
    assert slots[3:6] == [(0, 0)] * 3
    assert sum(slots[6]) == len(data)
    for level in range(3):
        offset, size = slots[level]
        assert data[offset : offset + size] == (folder / f"level{level}.parquet").read_bytes()
    document = json.loads(data[slots[6][0] :])
    assert document.pop("_tacocat") == {
        "version": 1,
        "num_datasets": 3,
        "dataset_sources": ["p0.tacozip", "p1.tacozip", "p2.tacozip"],
    }
    assert document == json.loads((folder / "COLLECTION.json").read_text("ascii"))


def test_rows_lead_to_the_bytes_in_their_source(tmp_path: Path, parts: list[Path]) -> None:
    folder, _ = create_tacocat(parts, None)
    table = pq.read_table(folder / "level2.parquet")
    assert table.column_names == ["id", "type", *sorted(table.column_names[2:])]
    assert table.num_rows == 12
    sources = {path.name: path.read_bytes() for path in parts}
    for row in table.to_pylist():
        data = sources[row["internal:source_file"]]
        start = row["internal:offset"]
        found = data[start : start + row["internal:size"]].decode()
        scene_id, _, name = row["internal:relative_path"].split("/")
        assert found == f"{scene_id} {name.removesuffix('.tif')}"


def test_merged_collection(tmp_path: Path, parts: list[Path]) -> None:
    path = create_tacollection(parts)
    assert path == tmp_path / "TACOLLECTION.json"
    document = json.loads(path.read_text("ascii"))
    assert document["id"] == "part0"
    assert document["extent"] == {"spatial": [0, 0, 25, 5], "temporal": None}
    assert document["taco:pit_schema"] == {
        "root": {"n": 6, "type": "FOLDER"},
        "shape": [6, 2, 2],
        "hierarchy": {
            "1": [{"n": 12, "type": ["FOLDER", "FILE"], "id": ["imagery", "label.json"]}],
            "2": [{"n": 12, "type": ["FILE", "FILE"], "id": ["before.tif", "after.tif"]}],
        },
    }
    sources = document["taco:sources"]
    assert sources["count"] == 3
    assert sources["ids"] == ["part0", "part1", "part2"]
    assert sources["files"] == ["p0.tacozip", "p1.tacozip", "p2.tacozip"]
    assert sources["extents"][1] == {
        "file": "p1.tacozip",
        "id": "part1",
        "spatial": [10, 0, 15, 5],
        "temporal": None,
    }
    with pytest.raises(ConflictError):
        create_tacollection(parts)
    assert create_tacollection(parts, overwrite=True) == path


def test_what_cannot_be_joined(tmp_path: Path, parts: list[Path]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    twin = Path(shutil.copy(parts[0], other / parts[0].name))
    with pytest.raises(InvalidInputError, match="the same name"):
        create_tacocat([parts[0], twin])
    (shallow,) = create(dataset(flat()), tmp_path / "flat.zip")
    with pytest.raises(InvalidInputError, match="number of levels"):
        create_tacocat([parts[0], shallow], validate_schema=False)
    (loose,) = create(dataset(nested(1)), tmp_path / "loose")
    with pytest.raises(NotThisFormatError, match="ZIP"):
        create_tacocat([parts[0], loose])
    assert create_tacollection([parts[0], loose]).is_file()
    wrong: tuple[Any, ...] = ([], "p0.tacozip")
    for inputs in wrong:
        with pytest.raises(InvalidInputError, match="list"):
            create_tacocat(inputs)
    with pytest.raises(InvalidInputError, match="form"):
        create_tacocat(parts, form="paper")
    assert not (tmp_path / ".tacocat").exists()


def test_fields_that_differ(tmp_path: Path) -> None:
    def one(name: str, **fields: Any) -> Path:
        return create(dataset(flat(2, **fields)), tmp_path / f"{name}.zip")[0]

    plain, more, text = one("plain"), one("more", x=1), one("text", x="a")
    with pytest.raises(InvalidInputError, match="'x'") as caught:
        create_tacocat([plain, more])
    assert "more.zip" in str(caught.value)
    (folder, _) = create_tacocat([plain, more], validate_schema=False)
    assert pq.read_table(folder / "level0.parquet")["x"].to_pylist() == [None, None, 1, 1]
    with pytest.raises(InvalidInputError, match="two types"):
        create_tacocat([more, text], tmp_path, "both", False, True)


def test_forms_one_by_one(tmp_path: Path, parts: list[Path]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert create_tacocat(parts, out / "__TACOCAT__", form="binary") == [out / "__TACOCAT__"]
    assert create_tacocat(parts, out, form="folder") == [out / ".tacocat"]
    first = files_below(out)
    with pytest.raises(ConflictError):
        create_tacocat(parts, out)
    assert len(create_tacocat(parts, out, overwrite=True)) == 2
    assert files_below(out) == first


@needs_shared
def test_same_table_as_the_existing_writer(tmp_path: Path) -> None:
    folder = SHARED / "fixtures/taco/cat"
    inputs = [folder / f"part{n}.tacozip" for n in range(3)]
    made, binary = create_tacocat(inputs, tmp_path)
    assert binary.is_file()
    for level in range(3):
        ours = pq.read_table(made / f"level{level}.parquet")
        theirs = pq.read_table(folder / f".tacocat/level{level}.parquet")
        if level == 0:  # the existing writer has no path there
            ours = ours.drop_columns(["internal:relative_path"])
        assert ours.equals(theirs)


@needs_shared
def test_oldest_archives_join_too(tmp_path: Path) -> None:
    folder = SHARED / "fixtures/taco/tacocat_binary"
    inputs = sorted(folder.glob("*.tacozip"))
    made, _ = create_tacocat(inputs, tmp_path)
    table = pq.read_table(made / "level0.parquet")
    assert table.schema.field("id").type == pa.string()
    data = (folder / "__TACOCAT__").read_bytes()
    offset, size = struct.unpack("<2Q", data[16:32])
    theirs = pq.read_table(io.BytesIO(data[offset : offset + size]))
    for name in ("id", "internal:offset", "internal:source_file"):
        assert table[name].to_pylist() == theirs[name].to_pylist()


def test_wrong_spans_of_other_writers_are_mended(tmp_path: Path) -> None:
    """Level tables whose spans were attached in the order of sorted folder names."""
    tree = scenes(*(f"s{n}" for n in range(12)))
    path = write(tmp_path, Recipe(tree=tree, table=lambda n, t: swapped_spans(t) if n else t))
    with pytest.warns(TacoWarning, match="spans are not those of their samples"):
        create_tacocat([path], form="binary")
    assert read_all(load(tmp_path).data) == expected(tree)
