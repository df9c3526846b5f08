"""A folder of files, or what a manifest lists, as a Tortilla."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    LimitExceededError,
    ObjectNotFoundError,
)
from comal.tortilla import pack_folder
from comal.tortilla.creating import read_manifest
from comal.tortilla.spec import TortillaWarning
from tests.tortilla.write.oracle import read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    for name in ("b.bin", "s1/x.bin", "s1/deep/y.bin", "s2/x.BIN", "a.txt", ".hidden/z.bin"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def csv(folder: Path, text: str) -> Path:
    path = folder / "m.csv"
    path.write_text(text)
    return path


def test_a_folder_nests(folder: Path, tmp_path: Path) -> None:
    made = read(pack_folder(folder, tmp_path / "a.tortilla"))
    assert made.ids == ["a.txt", "b.bin", "s1", "s2"]
    assert made.tree() == {
        "a.txt": b"a.txt",
        "b.bin": b"b.bin",
        "s1": {"deep": {"y.bin": b"s1/deep/y.bin"}, "x.bin": b"s1/x.bin"},
        "s2": {"x.BIN": b"s2/x.BIN"},
    }
    some = read(pack_folder(folder, tmp_path / "b.tortilla", pattern=["x.bin", "*.txt"]))
    assert some.tree() == {"a.txt": b"a.txt", "s1": {"x.bin": b"s1/x.bin"}}
    with pytest.raises(InvalidInputError, match="no file to pack"):
        pack_folder(folder, tmp_path / "c.tortilla", pattern="*.nc")
    with pytest.raises(ObjectNotFoundError, match="no such folder"):
        pack_folder(folder / "no", tmp_path / "c.tortilla")


def test_an_output_in_the_folder_is_no_item_of_the_next_run(folder: Path) -> None:
    first = read(pack_folder(folder, folder / "o.tortilla")).raw
    (folder / "link").symlink_to("o.tortilla")
    assert read(pack_folder(folder, folder / "s1/../o.tortilla", overwrite=True)).raw == first


def test_what_is_no_file_or_leads_elsewhere(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.tortilla"
    (folder / "loop").symlink_to(folder)
    with pytest.warns(TortillaWarning, match="a link to a folder is left out: .*loop") as told:
        pack_folder(folder, output)
    assert told[0].filename == __file__
    assert read(output).ids == ["a.txt", "b.bin", "s1", "s2"]
    (folder / "loop").unlink()
    os.mkfifo(folder / "pipe.bin")
    with pytest.raises(InvalidInputError, match="pipe"):
        pack_folder(folder, output, overwrite=True)
    (folder / "pipe.bin").unlink()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_bytes(b"x")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        pack_folder(folder, output, overwrite=True)


def test_folders_that_are_too_deep(folder: Path, tmp_path: Path) -> None:
    below = folder / "/".join("d" * 17)
    below.mkdir(parents=True)
    (below / "f.deep").write_bytes(b"f")
    pack_folder(folder, tmp_path / "a.tortilla", pattern="*.bin")
    with pytest.raises(LimitExceededError, match="depth"):
        pack_folder(folder, tmp_path / "b.tortilla")


def test_ids_and_paths_of_a_manifest_are_texts(folder: Path, tmp_path: Path) -> None:
    (folder / "0007").write_bytes(b"seven")
    manifest = csv(tmp_path, "id,path,n,land\n0001,0007,01,NA\nNA,0007,NA,\n")
    made = read(pack_folder(folder, tmp_path / "a.tortilla", manifest=manifest))
    assert made.tree() == {"0001": b"seven", "NA": b"seven"}
    assert (made.column("n"), made.column("land")) == ([1, None], ["NA", None])
    made = read(pack_folder(folder, tmp_path / "b.tortilla", manifest=csv(tmp_path, "id\n0007\n")))
    assert made.tree() == {"0007": b"seven"}
    made = read(
        pack_folder(folder, tmp_path / "c.tortilla", manifest=csv(tmp_path, "tortilla:id\n0007\n"))
    )
    assert made.tree() == {"0007": b"seven"}


def test_a_manifest_nests(folder: Path, tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": ["t/b", "s", "t/a", "s/x"],
            "path": ["b.bin", None, f"{folder}/a.txt", "b.bin"],
            "n": pa.array([1, None, 3, 4], pa.int16()),
            "parent": ["p", "q", "r", "s"],
        }
    )
    pq.write_table(table, tmp_path / "m")
    made = read(pack_folder(folder, tmp_path / "a.tortilla", manifest=tmp_path / "m"))
    assert made.ids == ["t", "s"]
    assert made.tree() == {"t": {"b": b"b.bin", "a": b"a.txt"}, "s": {"x": b"b.bin"}}
    assert made.column("parent") == [None, "q"]
    assert "n" not in made.table.column_names


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("id,path\na,nowhere\n", ObjectNotFoundError, r"missing: .*nowhere' \(row 0\)"),
        ("id,path\na,s1\n", InvalidInputError, "no regular file"),
        ("id,path\na,b.bin\na,a.txt\n", InvalidInputError, "'a' stands twice: .*m.csv.*row 1"),
        ("id,path\n,b.bin\n", InvalidInputError, "without an id: .*row 0"),
        ("id,path\na,b.bin\na/b,b.bin\n", InvalidInputError, "no folder: 'a/b'"),
        ("id,path\na,b.bin\nb,\n", InvalidInputError, "without a payload"),
        ("id,path\nb,\n", InvalidInputError, "no file to pack"),
        ("id,path\na:b,b.bin\n", InvalidInputError, "holds ':'"),
        ("id,path\na//b,b.bin\n", InvalidInputError, "is empty"),
        ("id,path\n../b,b.bin\n", InvalidInputError, "names a folder"),
        ("name\na\n", InvalidInputError, "no columns id and path"),
        ("", InvalidInputError, "cannot be read"),
    ],
)
def test_bad_manifests(
    folder: Path, tmp_path: Path, text: str, error: type[ComalError], message: str
) -> None:
    with pytest.raises(error, match=message):
        pack_folder(folder, tmp_path / "a.tortilla", manifest=csv(tmp_path, text))
    assert not (tmp_path / "a.tortilla").exists()


def test_a_manifest_that_names_the_output_is_refused(folder: Path) -> None:
    pack_folder(folder, folder / "o.tortilla")
    manifest = csv(folder, "id,path\na,b.bin\no,o.tortilla\n")
    with pytest.raises(ConflictError, match="source"):
        pack_folder(folder, folder / "o.tortilla", manifest=manifest, overwrite=True)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_times_of_a_manifest_get_the_names_of_stac(tmp_path: Path, kind: str) -> None:
    columns: dict[str, Any] = {"tortilla:id": ["0001"], "time_start": [5], "time_end": [6]}
    if kind == "csv":
        path = csv(tmp_path, "tortilla:id,time_start,time_end\n0001,5,6\n")
    else:
        path = tmp_path / "m.parquet"
        pq.write_table(pa.table(columns), path)
    assert read_manifest(path).to_pydict() == {
        "tortilla:id": ["0001"],
        "stac:time_start": [5],
        "stac:time_end": [6],
    }
