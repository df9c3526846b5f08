"""A folder of files, or what a manifest lists, in each format of samples."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal import taco, tortilla
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    LimitExceededError,
    ObjectNotFoundError,
)
from comal.storage import StorageConfig
from comal.storage.cloud import memory_store
from tests.attacks.build import leaves_of
from tests.raquet.writing.sources import utm
from tests.servers.http import HttpServer
from tests.support import files_below
from tests.taco.write.small import Archive
from tests.tortilla.write.oracle import Read, read, read_bytes


@dataclass(frozen=True)
class Packer:
    """How a format packs; and what is in the file, read without comal."""

    name: str
    pack: Callable[..., Any]
    tree: Callable[[Path], dict[str, bytes]]
    """Path and bytes of every leaf, in their order."""
    levels: Callable[[Path], list[Any]]
    """The tables of the uppermost samples, and of those below the first of them."""

    def made(self, folder: Path, output: Path, **how: Any) -> Path:
        self.pack(folder, output.with_suffix(f".{self.name}"), **how)
        return output.with_suffix(f".{self.name}")


def _tables(file: Read) -> list[Any]:
    items = zip(file.items, file.column("tortilla:file_format"), strict=True)
    below = [read_bytes(data).table for data, kind in items if kind == "TORTILLA"]
    return [file.table, *below[:1]]


def _levels_of_taco(path: Path) -> list[Any]:
    archive = Archive(path)
    return [archive.level(number) for number in range(archive.levels)]


PACKERS = (
    Packer("tacozip", taco.pack_folder, lambda path: Archive(path).walked(), _levels_of_taco),
    Packer(
        "tortilla",
        tortilla.pack_folder,
        lambda path: dict(leaves_of(read(path).tree())),
        lambda path: _tables(read(path)),
    ),
)
pytestmark = pytest.mark.parametrize("packer", PACKERS, ids=lambda packer: packer.name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    for name in ("s1/x.bin", "s1/deep/y.BIN", "s2/x.bin", "s2/deep/y.BIN", ".hidden/z", "s1/.x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def csv(folder: Path, text: str) -> Path:
    path = folder / "m.csv"
    path.write_text(text)
    return path


def test_a_folder_nests(packer: Packer, folder: Path, tmp_path: Path) -> None:
    names = ["s1/deep/y.BIN", "s1/x.bin", "s2/deep/y.BIN", "s2/x.bin"]
    made = packer.made(folder, tmp_path / "a")
    assert packer.tree(made) == {name: name.encode() for name in names}
    some = packer.made(folder, tmp_path / "b", pattern=["x.bin", "*.txt"])
    assert list(packer.tree(some)) == names[1::2]
    with pytest.raises(InvalidInputError, match="no files to pack") as caught:
        packer.made(folder, tmp_path / "c", pattern="*.nc")
    assert str(folder) in str(caught.value.where)
    with pytest.raises(ObjectNotFoundError):
        packer.made(folder / "no", tmp_path / "c")


def test_what_is_no_file_or_leads_elsewhere(packer: Packer, folder: Path, tmp_path: Path) -> None:
    """Other kinds of names have their tests in `test_intake.py`."""
    (folder / "loop").symlink_to(folder)
    with pytest.warns(UserWarning, match="a link to a folder is left out: .*loop") as told:
        made = packer.made(folder, tmp_path / "a")
    assert told[0].filename == __file__
    assert len(packer.tree(made)) == 4
    (folder / "loop").unlink()
    os.mkfifo(folder / "s1/pipe.bin")
    with pytest.raises(InvalidInputError, match="pipe"):
        packer.made(folder, tmp_path / "b")
    assert not (tmp_path / f"b.{packer.name}").exists()


def test_folders_that_are_too_deep(packer: Packer, tmp_path: Path) -> None:
    below = tmp_path / "in" / "/".join("d" * 17)
    below.mkdir(parents=True)
    (below / "f.deep").write_bytes(b"f")
    (tmp_path / "in/a.bin").write_bytes(b"a")
    packer.made(tmp_path / "in", tmp_path / "a", pattern="*.bin")
    with pytest.raises(LimitExceededError, match=r"deep|depth"):
        packer.made(tmp_path / "in", tmp_path / "b", pattern="*.deep")


def test_an_output_in_the_folder_is_no_sample_of_the_next_run(packer: Packer, folder: Path) -> None:
    made = packer.made(folder, folder / "o")
    first = made.read_bytes()
    (folder / "link").symlink_to(made.name)
    packer.pack(folder, folder / "s1/.." / made.name, overwrite=True)
    assert made.read_bytes() == first
    manifest = csv(folder, f"id,path\na,s1/x.bin\no,{made.name}\n")
    with pytest.raises(ConflictError, match="source"):
        packer.made(folder, made, manifest=manifest, overwrite=True)
    assert made.read_bytes() == first


def test_ids_and_paths_of_a_manifest_are_texts(
    packer: Packer, folder: Path, tmp_path: Path
) -> None:
    (folder / "0007").write_bytes(b"seven")
    rows = "0001,0007,01,NA\n2024-01-02,0007,NA,\nNA,0007,02,null\n"
    made = packer.made(folder, tmp_path / "a", manifest=csv(tmp_path, f"id,path,n,land\n{rows}"))
    assert packer.tree(made) == dict.fromkeys(["0001", "2024-01-02", "NA"], b"seven")
    (table,) = packer.levels(made)
    assert table["n"].to_pylist() == [1, None, 2]
    assert table["land"].to_pylist() == ["NA", None, "null"]


def test_texts_of_several_lines_in_a_long_manifest(
    packer: Packer, folder: Path, tmp_path: Path
) -> None:
    text = "x\n" * 30_000
    rows = "".join(f'{number},s1/x.bin,"{text}"\n' for number in range(30))
    made = packer.made(folder, tmp_path / "a", manifest=csv(tmp_path, f"id,path,text\n{rows}"))
    (table,) = packer.levels(made)
    assert table["text"].to_pylist() == [text] * 30


def test_types_of_a_manifest_are_kept(packer: Packer, folder: Path, tmp_path: Path) -> None:
    fields = {
        "short": pa.array([1, None, 3], pa.int16()),
        "single": pa.array([0.5, 1.5, None], pa.float32()),
        "days": pa.array([1, 2, 3], pa.date32()),
        "list": pa.array([[1], None, []], pa.list_(pa.field("element", pa.int8()))),
        "parent": pa.array(["x", "y", "z"]),
        "none": pa.nulls(3, pa.float32()),
        "deep": pa.array([None, 2, 3]),
    }
    path, whole = "s1/x.bin", f"{folder}/s1/x.bin"
    for name, ids, paths, wanted in (
        ("flat", ["a", "b", "c"], [path] * 3, [slice(0, 3)]),
        ("nested", ["s", "s/a", "s/b"], [None, whole, path], [slice(0, 1), slice(1, 3)]),
        ("implied", ["s/b", "s/a", "s/c"], [path] * 3, [slice(0, 0), slice(0, 3)]),
    ):
        table = pa.table({"id": ids, "path": paths, **fields})
        pq.write_table(table, tmp_path / "m")  # told by its first bytes
        made = packer.made(folder, tmp_path / name, manifest=tmp_path / "m")
        leaves = [one for one, place in zip(ids, paths, strict=True) if place]
        assert packer.tree(made) == dict.fromkeys(leaves, path.encode())
        for level, rows in zip(packer.levels(made), wanted, strict=True):
            if rows.stop == 0:
                assert not set(fields) & set(level.column_names)
                continue
            for field, column in fields.items():
                if field == "deep" and rows.stop == 1:  # only other levels have a value
                    assert field not in level.column_names
                    continue
                assert level[field].combine_chunks().equals(column[rows]), (name, field)


def test_kinds_of_text(packer: Packer, folder: Path, tmp_path: Path) -> None:
    dictionary = pa.dictionary(pa.int8(), pa.string())
    for kind in (pa.string(), pa.large_string(), pa.string_view(), dictionary):
        ids, paths = (
            pa.chunked_array([pa.array([text], kind) for text in texts])
            for texts in (("t", "t/a", "t/b"), (None, "s1/x.bin", "s2/x.bin"))
        )
        pq.write_table(pa.table({"id": ids, "path": paths, "field": ids}), tmp_path / "m")
        made = packer.made(folder, tmp_path / str(kind.id), manifest=tmp_path / "m")
        assert packer.tree(made) == {"t/a": b"s1/x.bin", "t/b": b"s2/x.bin"}
        assert packer.levels(made)[1]["field"].to_pylist() == ["t/a", "t/b"]


def _lines(*rows: str) -> bytes:
    return "\n".join(["id,path", *rows, ""]).encode()


def _missing(path: str) -> dict[str, list[str | None]]:
    return {"id": list("abcd"), "path": ["s1/x.bin", None, path, path]}


NO_UTF8 = pa.array([b"\xff"]).view(pa.string())
BAD: list[tuple[Any, type[ComalError], str]] = [
    (_lines("a,nowhere"), ObjectNotFoundError, r"missing: .*nowhere' \(row 0\)"),
    (_lines("a,s1"), InvalidInputError, "not a regular file"),
    (_lines("a,s1/x.bin", "a,s2/x.bin"), InvalidInputError, "'a' appears twice: .*row 1"),
    (_lines(",s1/x.bin"), InvalidInputError, "has no id: .*row 0"),
    (_lines("a,s1/x.bin", "//,s1/x.bin"), InvalidInputError, "has no id: .*row 1"),
    (_lines("a,s1/x.bin", "a/b,s1/x.bin"), InvalidInputError, "below a file: 'a/b'"),
    (_lines("/".join("a" * 300_000) + ",s1/x.bin"), LimitExceededError, "deep|depth"),
    (_lines("b,"), InvalidInputError, "no files to pack"),
    (_lines("a:b,s1/x.bin"), InvalidInputError, "a:b"),
    (_lines("a//b,s1/x.bin"), InvalidInputError, "empty"),
    (_lines("../b,s1/x.bin"), InvalidInputError, r"\.\."),
    (_lines("a"), InvalidInputError, "cannot be read"),
    (b"id,path\n\xff,a\n", InvalidInputError, "cannot be"),
    (b"id,path,land\na,s1/x.bin,\xe9\n", InvalidInputError, "'land' is not UTF-8"),
    (b"id,path,id\na,b,c\n", InvalidInputError, "two columns of the same name"),
    (b"name\na\n", InvalidInputError, "path"),
    (b"", InvalidInputError, "cannot be read"),
    (b"PAR1 and nothing else", InvalidInputError, "cannot be read"),
    (("m.parquet", b""), InvalidInputError, "cannot be read"),
    (("m.parquet", _lines("a,s1/x.bin")), InvalidInputError, "cannot be read"),
    (("in", None), ComalError, "not a regular file: .*/in"),
    (("no.csv", None), ObjectNotFoundError, "no such file or folder: .*/no.csv"),
    (_missing("no"), ObjectNotFoundError, r"is missing: .*/no' \(row 2\)"),
    (_missing("s1/x.bin/y"), ObjectNotFoundError, "is missing"),
    (_missing("a\0b"), ObjectNotFoundError, "is missing"),
    (_missing("a" * 5_000), ComalError, "is missing"),
    (_missing(""), InvalidInputError, "not a regular file"),
    (_missing("../pipe"), InvalidInputError, r"not a regular file: .*/pipe' \(row 2\)"),
    (b"id,path,comal:seen\na,s1/x.bin,b\n", InvalidInputError, "of this name: .*m.csv"),
    ({"path": ["s1/x.bin"]}, InvalidInputError, "id"),
    ({"id": [1], "path": ["s1/x.bin"]}, InvalidInputError, "'id'.*not text"),
    ({"id": ["a"], "path": [b"x"]}, InvalidInputError, "'path'.*not text"),
    ({"id": NO_UTF8, "path": ["s1/x.bin"]}, InvalidInputError, "'id'"),
    ({"id": ["x"], "path": NO_UTF8}, InvalidInputError, "'path'"),
]


@pytest.mark.parametrize(("given", "error", "message"), BAD)
def test_bad_manifests(
    packer: Packer, folder: Path, tmp_path: Path, given: Any, error: type[ComalError], message: str
) -> None:
    """The bytes of a file, its name with them, or the columns of a table."""
    os.mkfifo(tmp_path / "pipe")
    name, data = given if isinstance(given, tuple) else ("m.csv", given)
    if isinstance(given, dict):
        pq.write_table(pa.table(given), tmp_path / name)
    elif data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=message):
        packer.made(folder, tmp_path / "a", manifest=tmp_path / name)
    assert not list(tmp_path.glob("a.*"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_times_of_a_manifest_get_the_names_of_stac(
    packer: Packer, folder: Path, tmp_path: Path, kind: str
) -> None:
    text = "2023-01-01T00:00:00Z"
    manifest = csv(tmp_path, f"id,path,time_start,time_end\na,s1/x.bin,{text},{text}\n")
    if kind == "parquet":
        manifest = tmp_path / "m.parquet"
        columns = {"id": ["a"], "path": ["s1/x.bin"], "time_start": [text], "time_end": [text]}
        pq.write_table(pa.table(columns), manifest)
    (table,) = packer.levels(packer.made(folder, tmp_path / "a", manifest=manifest))
    assert {"stac:time_start", "stac:time_end"} <= set(table.column_names)
    assert not {"time_start", "time_end"} & set(table.column_names)


def test_files_of_a_store_a_server_and_a_disk(
    packer: Packer, folder: Path, tmp_path: Path, http_server: HttpServer
) -> None:
    """The same bytes as from one disk; servers get what is given for them, and nothing else."""
    for scene in ("s1", "s2"):
        utm(folder / scene / "a b=c.tif", np.zeros((1, 8, 8), np.uint8))
        (folder / scene / "none").write_bytes(b"")
    store, config = memory_store("packed"), StorageConfig(http_headers={"X-Key": "secret"})
    for name, data in files_below(folder).items():
        obstore.put(store, f"in/{name}", data)
    near, far = tmp_path / "near", tmp_path / "far"
    wanted = packer.made(folder, near).read_bytes()
    packer.pack("memory://packed/in", far.with_suffix(f".{packer.name}"), config=config)
    assert far.with_suffix(f".{packer.name}").read_bytes() == wanted
    url = http_server.put("x/a b=c.tif", (folder / "s2" / "a b=c.tif").read_bytes())
    rows = "id,path\na,s1/x.bin\nb,{}\nc,s1/none\n" + f"d,{folder}/s2/x.bin\n"
    listed = http_server.put("list.csv", rows.format(url).encode())
    manifest = csv(tmp_path, rows.format("s2/a b=c.tif"))
    wanted = packer.made(folder, tmp_path / "one", manifest=manifest).read_bytes()
    target = tmp_path / f"two.{packer.name}"
    for linked in (False, True):
        del http_server.requests[:]
        trusted = replace(config, linked_origins={http_server.origin: config})
        how = {"config": trusted if linked else config, "overwrite": True}
        packer.pack("memory://packed/in", target, manifest=listed, **how)
        assert target.read_bytes() == wanted
        keys = {"X-Key" in one.headers for one in http_server.requests if "tif" in one.path}
        assert keys == {linked}
