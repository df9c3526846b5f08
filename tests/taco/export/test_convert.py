"""`folder2zip` and `zip2folder`: nothing is lost on the way, and nothing else comes along."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from comal.errors import (
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    UnsafeContentError,
)
from comal.taco.checking import check
from comal.taco.copying.exporting import export, folder2zip, zip2folder
from comal.taco.copying.repairing import repair
from comal.taco.reading.dataset import load
from comal.taco.spec import TacoWarning
from comal.taco.writing.creating import create
from tests.attacks.build import FLAT, NESTED, Recipe, folder, leaves_of
from tests.attacks.corpus import added
from tests.support import SHARED, needs_shared
from tests.taco.export.test_export import PADDED, check_archive, files_of
from tests.taco.read.scenes import located, write
from tests.taco.write.small import Archive, dataset, flat, nested

REFERENCE = SHARED / "fixtures/taco"


def tables(path: Path) -> list[Any]:
    """The level tables of either form, without what depends on it."""
    if path.is_dir():
        found = [pq.read_table(file) for file in sorted((path / "METADATA").iterdir())]
    else:
        archive = Archive(path)
        found = [archive.level(n) for n in range(archive.levels)]
    spans = {"internal:offset", "internal:size"}
    return [t.select(sorted(c for c in t.column_names if c not in spans)) for t in found]


@pytest.mark.parametrize("tortilla", [flat(7), nested(12)], ids=["flat", "nested"])
def test_there_and_back_gives_the_same_bytes(tmp_path: Path, tortilla: Any) -> None:
    taco = dataset(tortilla, title="kept", keywords=["a", "ñ"])
    taco.extend_with({"x:note": {"b": [1, 2]}})
    (first,) = create(taco, tmp_path / "a.tacozip")
    unpacked = zip2folder(first, tmp_path / "b")
    again = folder2zip(unpacked, tmp_path / "c.tacozip")
    assert again.read_bytes() == first.read_bytes()
    (direct,) = create(taco, tmp_path / "d")
    for file in sorted(direct.rglob("*")):
        if file.is_file():
            assert (unpacked / file.relative_to(direct)).read_bytes() == file.read_bytes()
    assert files_of(unpacked) == Archive(first).entries()


@pytest.mark.parametrize("tree", [FLAT, NESTED, PADDED])
def test_foreign_archives(tmp_path: Path, tree: Any) -> None:
    path = write(tmp_path, Recipe(tree, table=located))
    unpacked = zip2folder(path, tmp_path / "out")
    assert files_of(unpacked) == dict(leaves_of(tree))
    assert tables(unpacked) == tables(path)
    again = folder2zip(unpacked, tmp_path / "again.tacozip")
    check_archive(again, dict(leaves_of(tree)))
    assert tables(again) == tables(path)


WRITTEN = [
    *("flat.tacozip", "flat_padded.tacozip", "nested.tacozip", "nested_padded.tacozip"),
    *("tacocat_binary/part0.tacozip", "flat_folder", "nested_folder"),
]
"""Containers of existing writers."""


def other_form(source: Path, target: Path) -> Path:
    return (folder2zip if source.is_dir() else zip2folder)(source, target)


def exported(source: Path, target: Path) -> Path:
    return export(load(source), target)


def mended(source: Path, target: Path) -> Path:
    return repair(source, target, extent=True)


def values(path: Path) -> list[Any]:
    return [
        table.select([name for name in table.column_names if not name.startswith("internal:")])
        for table in tables(path)
    ]


def collection(path: Path) -> dict[str, Any]:
    if path.is_file():
        return dict(Archive(path).collection)
    return dict(json.loads((path / "COLLECTION.json").read_text()))


def descriptions(document: dict[str, Any]) -> dict[str, str]:
    """What the fields of level 0 are said to be, by their names."""
    entries = document["taco:field_schema"]["level0"]
    own = [entry for entry in entries if not entry[0].startswith("internal:")]
    return {name: text for name, _, *more in own for text in more if text}


@needs_shared
@pytest.mark.parametrize(
    ("name", "copy"),
    [
        *((name, other_form) for name in WRITTEN),
        *((name, exported) for name in WRITTEN[1::2]),
        *((name, mended) for name in WRITTEN[::2]),
    ],
)
def test_containers_of_existing_writers(tmp_path: Path, name: str, copy: Any) -> None:
    source = REFERENCE / name
    as_folder = source.is_dir() != (copy is other_form)
    made = copy(source, tmp_path / ("made" if as_folder else "made.tacozip"))
    old, new = (files_of(one) if one.is_dir() else Archive(one).entries() for one in (source, made))
    if copy is exported:  # a view has no padding among its roots
        old = {path: data for path, data in old.items() if not path.startswith("__TACOPAD__")}
    else:
        assert [one.to_pylist() for one in values(made)] == [
            one.to_pylist() for one in values(source)
        ]
    assert new == old
    was, now = collection(source), collection(made)
    assert descriptions(was).items() <= descriptions(now).items()
    for key in {*was} - {"extent", "taco:pit_schema", "taco:field_schema", "taco_version"}:
        assert now[key] == was[key]
    if copy is mended:
        assert check(made).problems == ()


def test_a_tree_that_is_none_keeps_its_description(tmp_path: Path) -> None:
    tree = {"a": {"x": b"1"}, "b": {"y": b"2", "z": b"3"}}
    pit = {"root": {"n": 2, "type": "FOLDER"}, "hierarchy": {"1": [{"n": 3, "type": [], "id": []}]}}
    recipe = Recipe(tree, collection=lambda d: {**d, "taco:pit_schema": pit})
    with pytest.warns(TacoWarning, match="structure"):
        unpacked = zip2folder(write(tmp_path, recipe), tmp_path / "out")
    assert files_of(unpacked) == dict(leaves_of(tree))
    assert json.loads((unpacked / "COLLECTION.json").read_text())["taco:pit_schema"] == pit


# -- what does not belong to the dataset ----------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "code"),
    [
        (Recipe(FLAT, before=added("extra.bin")), "taco-entry-undeclared"),
        (Recipe(FLAT, before=added("DATA/img_0.bin")), "zip-duplicate-name"),
        (
            Recipe(FLAT, entry=lambda n: {"external": 0xA1FF0000} if n == "DATA/img_0.bin" else {}),
            "zip-symlink",
        ),
        (Recipe(FLAT, before=added("DATA/../x", b"x" * 50, listed=False)), "zip-hole"),
    ],
)
def test_archives_with_more_in_them_are_refused(tmp_path: Path, recipe: Recipe, code: str) -> None:
    path = write(tmp_path, recipe)
    with pytest.raises(InvalidMetadataError) as caught:
        zip2folder(path, tmp_path / "out")
    assert code in {problem.code for problem in caught.value.problems}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", [60, 120])
def test_aligned_payloads(tmp_path: Path, size: int) -> None:
    extra = struct.pack("<HH", 0xD935, size) + bytes(size)
    path = write(
        tmp_path, Recipe(FLAT, entry=lambda n: {"local_extra": extra} if "DATA" in n else {})
    )
    assert files_of(zip2folder(path, tmp_path / "out")) == FLAT


def test_files_that_no_row_names_are_told_of(tmp_path: Path) -> None:
    source = folder(tmp_path / "source")
    (source / "DATA/s1/imagery/before.bin.aux.xml").write_text("x")
    (source / "DATA/notes").mkdir()
    (source / "DATA/notes/a.txt").write_text("x")
    with pytest.warns(TacoWarning, match=r"not copied \(2\)"):
        path = folder2zip(source, tmp_path / "out.tacozip")
    check_archive(path, dict(leaves_of(NESTED)))


def test_links_inside_the_folder_are_followed_and_pipes_refused(tmp_path: Path) -> None:
    source = folder(tmp_path / "source")
    label = source / "DATA/s1/label.txt"
    label.rename(source / "label.txt")
    label.symlink_to(source / "label.txt")
    check_archive(folder2zip(source, tmp_path / "o.tacozip"), dict(leaves_of(NESTED)))
    label.unlink()
    os.mkfifo(label)
    with pytest.raises(ValueError, match="regular"):
        folder2zip(source, tmp_path / "p.tacozip")


def test_risky_ids_can_be_renamed(tmp_path: Path) -> None:
    path = write(tmp_path, Recipe({"a?": {"x": b"1"}, "A?": {"x": b"2"}}))
    with pytest.raises(UnsafeContentError, match="rename"):
        zip2folder(path, tmp_path / "out")
    unpacked = zip2folder(path, tmp_path / "out", rename=True)
    assert files_of(unpacked) == {"a_/x": b"1", "A__2/x": b"2"}


# -- the wrong thing in the wrong place -----------------------------------------------------------


def test_inputs_of_the_other_form(tmp_path: Path) -> None:
    path = write(tmp_path, Recipe(FLAT))
    source = folder(tmp_path / "source", FLAT)
    with pytest.raises(NotThisFormatError):
        folder2zip(path, tmp_path / "out.tacozip")
    with pytest.raises(NotThisFormatError):
        zip2folder(source, tmp_path / "out")
    with pytest.raises(ObjectNotFoundError):
        zip2folder(tmp_path / "nothing.tacozip", tmp_path / "out")
