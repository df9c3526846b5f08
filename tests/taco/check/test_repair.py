"""A mended copy has right bytes, passes the check, and is never made of what is lost."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    UnsafeContentError,
)
from comal.taco.checking import check
from comal.taco.checking.repairing import repair
from tests.attacks.build import (
    FLAT,
    NESTED,
    Index,
    Recipe,
    Tree,
    header_payload,
    leaves_of,
    levels_in,
    replaced,
    swapped_spans,
)
from tests.attacks.corpus.base import LEAF, fields, foldered, on_entry, raw, set_column, zipped
from tests.attacks.reading import read_everything
from tests.support import SHARED, needs_shared
from tests.taco.write.small import Archive


def _swapped(depth: int, table: Any) -> Any:
    return swapped_spans(table) if depth else table


def _unordered(depth: int, table: Any) -> Any:
    if depth != 2:
        return table
    return replaced(table.take([4, 5, 2, 3, 0, 1]), "internal:current_id", range(6))


MENDABLE: dict[str, tuple[Recipe, str]] = {
    "spans of other samples": (Recipe(table=_swapped), "taco-offset-mismatch"),
    "spans of other samples, everywhere": (
        Recipe(table=lambda depth, table: replaced(table, "internal:offset", [7] * table.num_rows)),
        "taco-offset-mismatch",
    ),
    "spans in local metadata": (
        Recipe(meta=lambda path, table: replaced(table, "internal:offset", [1] * table.num_rows)),
        "taco-meta-span",
    ),
    "no local metadata": (Recipe(meta_bytes=lambda path, data: None), "taco-meta-missing"),
    "broken local metadata": (Recipe(meta_bytes=lambda path, data: b"x"), "taco-meta"),
    "checksum of the header": (Recipe(header_crc=5), "taco-header-crc"),
    "slots of the header": (
        Recipe(header=lambda pairs: header_payload([pairs[1], pairs[0], *pairs[2:]])),
        "taco-header-slot",
    ),
    "header of an interrupted write": (
        Recipe(header=lambda pairs: bytes(116)),
        "taco-header",
    ),
    "numbers of rows": (
        Recipe(table=set_column(1, "internal:current_id", lambda v: [9] * len(v))),
        "taco-current-id",
    ),
    "parents": (
        Recipe(table=set_column(2, "internal:parent_id", lambda v: [5] * len(v))),
        "taco-parent",
    ),
    "paths": (
        Recipe(table=set_column(1, "internal:relative_path", lambda v: ["x"] * len(v))),
        "taco-path",
    ),
    "order of rows": (Recipe(table=_unordered), "taco-row-order"),
    "stale counts": (
        Recipe(
            collection=lambda d: {
                **d,
                "taco:pit_schema": {**d["taco:pit_schema"], "root": {"n": 99, "type": "FOLDER"}},
            }
        ),
        "taco-pit-count",
    ),
    "no structure": (Recipe(collection=fields(taco__pit_schema=None)), "taco-pit-schema"),
    "field schema": (Recipe(collection=fields(taco__field_schema={})), "taco-field-schema"),
    "version": (Recipe(collection=fields(taco_version="9.9.9")), "taco-version"),
    "extent": (Recipe(collection=fields(extent={"spatial": "everywhere"})), "taco-extent"),
    "entries that no row names": (
        Recipe(before=lambda a, n: n.startswith("COLL") and a.add("DATA/evil", b"evil")),
        "taco-entry-undeclared",
    ),
    "hole": (Recipe(before=lambda a, n: a.gap(b"\0" * 9 * n.startswith("COLL"))), "zip-hole"),
    "bytes behind the end": (Recipe(close={"trailing": b"x" * 30}), "zip-trailing-bytes"),
    "data descriptor": (Recipe(entry=on_entry(LEAF, flags=8)), "zip-descriptor"),
    "two level tables": (
        Recipe(level_bytes=lambda depth, data: data[: len(data) // 2] if depth else data),
        "taco-table",
    ),
    "stored paths": (
        Recipe(
            table=lambda depth, table: table.append_column(
                "internal:gdal_vsi", pa.array(["/etc/passwd"] * table.num_rows)
            )
        ),
        "taco-stored-path",
    ),
}


@pytest.mark.parametrize("name", MENDABLE)
def test_copy_is_sound_and_input_is_untouched(name: str, tmp_path: Path) -> None:
    recipe, code = MENDABLE[name]
    path = zipped(recipe)(tmp_path)
    before = path.read_bytes()
    assert code in check(path).counts
    made = repair(path, tmp_path / "mended.tacozip")
    assert made == tmp_path / "mended.tacozip"
    assert path.read_bytes() == before
    assert check(made).problems == ()
    archive = Archive(made)
    assert archive.zip.testzip() is None
    assert archive.entries() == dict(leaves_of(NESTED))
    readings = read_everything(made, NESTED)
    assert (readings.wrong, readings.errors) == ([], [])
    assert readings.right == {leaf for leaf, _ in leaves_of(NESTED)}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["attack.tacozip", "mended.tacozip"]


def test_spans_in_the_copy_are_those_of_the_entries(tmp_path: Path) -> None:
    """Held against the bytes by struct and pyarrow alone."""
    made = Archive(repair(zipped(Recipe(table=_swapped))(tmp_path), tmp_path / "mended.tacozip"))
    assert made.leaves() == made.walked() == made.entries() == dict(leaves_of(NESTED))


def test_values_descriptions_and_unknown_keys_are_kept(tmp_path: Path) -> None:
    def described(document: dict[str, Any]) -> dict[str, Any]:
        schema = document["taco:field_schema"]
        schema["level0"] = [[name, kind, f"about {name}"] for name, kind, _ in schema["level0"]]
        return {**document, "my:key": {"a": [1, 2]}, "title": "kept"}

    path = zipped(Recipe(table=_swapped, collection=described))(tmp_path)
    made = repair(path, tmp_path / "mended.tacozip")
    old, new = levels_in(path.read_bytes()), levels_in(made.read_bytes())
    for before, after in zip(old, new, strict=True):
        for name in ("id", "type", "value", "label"):
            assert before[name].to_pylist() == after[name].to_pylist()
    document = Archive(made).collection
    assert document["my:key"] == {"a": [1, 2]}
    assert document["title"] == "kept"
    texts = {entry[0]: entry[2] for entry in document["taco:field_schema"]["level0"]}
    assert texts["label"] == "about label"


def test_extent_is_computed_on_request_only(tmp_path: Path) -> None:
    def placed(depth: int, table: Any) -> Any:
        if depth:
            return table
        centroids = [struct.pack("<BIdd", 1, 1, 10.0 * n, 5.0) for n in range(3)]
        return table.append_column("stac:centroid", pa.array(centroids, pa.binary()))

    extent = {"spatial": [-1.0, -1.0, 1.0, 1.0], "temporal": None}
    path = zipped(Recipe(table=placed, collection=fields(extent=extent)))(tmp_path)
    assert "taco-extent-space" in check(repair(path, tmp_path / "a.tacozip")).counts
    fresh = repair(path, tmp_path / "b.tacozip", extent=True)
    assert check(fresh).problems == ()


def test_compressed_entries_are_inflated(tmp_path: Path) -> None:
    plain = dict(leaves_of(NESTED))[LEAF.removeprefix("DATA/")]
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(plain) + packer.flush()

    class Packing(Recipe):
        def _add(self, archive: Any, name: str, data: bytes, **how: Any) -> int:
            if name == LEAF:
                return int(
                    archive.add(
                        name,
                        packed,
                        method=8,
                        crc=zlib.crc32(plain),
                        csize=len(packed),
                        size=len(plain),
                        local_size=None,
                    )
                )
            return super()._add(archive, name, data, **how)

    path = zipped(Packing())(tmp_path)
    assert "zip-compressed" in check(path).counts
    made = repair(path, tmp_path / "mended.tacozip")
    assert Archive(made).entries()[LEAF.removeprefix("DATA/")] == plain
    assert check(made).problems == ()


def _spoilt(lost: int) -> Any:
    return lambda depth, data: b"x" * 50 if depth == lost else data


_BEFORE = "s2/imagery/before.bin"
LOST: dict[str, tuple[Recipe, str]] = {
    "bytes of a leaf": (
        Recipe(after=lambda data: data.replace(b"s2-before", b"s2-behind")),
        _BEFORE,
    ),
    "entry of a leaf": (Recipe(entry=on_entry(LEAF, listed=False)), _BEFORE),
    "encrypted leaf": (Recipe(entry=on_entry(LEAF, flags=1)), _BEFORE),
    "directory": (Recipe(close={"end": False}), "end of central directory"),
    "level table and local metadata": (
        Recipe(
            level_bytes=_spoilt(1),
            meta_bytes=lambda path, data: b"x" if path.startswith("s2") else data,
        ),
        "s2",
    ),
    "level table and no local metadata": (
        Recipe(level_bytes=_spoilt(2), meta_bytes=lambda path, data: None),
        "the archive has no such entry",
    ),
    "table of the first level": (Recipe(level_bytes=_spoilt(0)), "level 0"),
    "collection": (Recipe(collection_bytes=lambda data: b"{"), "COLLECTION.json"),
    "structure": (Recipe(tree={**NESTED, "loose": b"x"}), "differ in structure"),
    "id": (Recipe(tree=FLAT, table=set_column(0, "id", lambda v: ["../x", *v[1:]])), "'../x'"),
}


@pytest.mark.parametrize("name", LOST)
def test_what_is_lost_is_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    recipe, text = LOST[name]
    path = zipped(recipe)(tmp_path)
    with pytest.raises((InvalidMetadataError, UnsafeContentError)) as caught:
        repair(path, tmp_path / "mended.tacozip")
    assert text in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["attack.tacozip"]


def test_large_leaves_are_streamed_and_checked(tmp_path: Path) -> None:
    big = bytes(range(256)) * 40_000  # 10 MB, more than is copied as a block
    tree: Tree = {"big.bin": big, "small.bin": b"small"}
    path = zipped(Recipe(tree=tree))(tmp_path)
    made = repair(path, tmp_path / "mended.tacozip")
    assert Archive(made).entries() == tree
    data = bytearray(path.read_bytes())
    data[5_000_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidMetadataError, match=r"big\.bin"):
        repair(path, tmp_path / "second.tacozip")
    assert not (tmp_path / "second.tacozip").exists()


def test_repair_of_a_sound_file_changes_nothing_that_is_read(tmp_path: Path) -> None:
    path = zipped(Recipe(tree=FLAT))(tmp_path)
    first = repair(path, tmp_path / "a.tacozip")
    second = repair(first, tmp_path / "b.tacozip")
    assert first.read_bytes() == second.read_bytes()


def test_folders_are_repaired_as_folders(tmp_path: Path) -> None:
    def spoil(target: Path) -> None:
        for meta in target.rglob("__meta__"):
            meta.unlink()

    path = foldered(Recipe(), spoil)(tmp_path)
    assert check(path).counts["taco-meta-missing"] == 6
    made = repair(path, tmp_path / "mended")
    assert check(made).problems == ()
    for leaf, data in leaves_of(NESTED):
        assert (made / "DATA" / leaf).read_bytes() == data


def _tables(folder: Path) -> list[Any]:
    """Levels of a folder without what only navigation needs."""
    found = [pq.read_table(path) for path in sorted((folder / "METADATA").iterdir())]
    return [t.select([n for n in t.column_names if not n.startswith("internal:")]) for t in found]


@pytest.mark.parametrize(
    ("lost", "how"),
    [(["level1"], "gone"), (["level2"], "broken"), (["level1", "level2"], "gone")],
)
def test_tables_of_a_folder_are_made_of_local_metadata(
    lost: list[str], how: str, tmp_path: Path
) -> None:
    def spoil(target: Path) -> None:
        for name in lost:
            path = target / "METADATA" / f"{name}.parquet"
            if how == "gone":
                path.unlink()
            else:
                data = bytearray(path.read_bytes())
                data[len(data) // 3 : len(data) // 3 + 30] = b"\0" * 30
                path.write_bytes(data)

    whole = foldered(Recipe())(tmp_path / "whole")
    path = foldered(Recipe(), spoil)(tmp_path / "spoilt")
    made = repair(path, tmp_path / "mended")
    assert check(made).problems == ()
    for one, other in zip(_tables(made), _tables(whole), strict=True):
        assert one.equals(other)
    for leaf, data in leaves_of(NESTED):
        assert (made / "DATA" / leaf).read_bytes() == data


def test_links_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    def link(target: Path) -> None:
        (target.parent / "secret").write_bytes(b"secret")
        (target / "DATA/s2/label.txt").unlink()
        (target / "DATA/s2/label.txt").symlink_to(target.parent / "secret")

    path = foldered(Recipe(), link)(tmp_path)
    with pytest.raises(UnsafeContentError):
        repair(path, tmp_path / "mended")
    assert not (tmp_path / "mended").exists()


def test_an_index_is_made_anew_instead(tmp_path: Path) -> None:
    place = Index({"a.tacozip": Recipe()}).write(tmp_path)
    with pytest.raises(InvalidInputError, match="index"):
        repair(place, tmp_path / "mended")
    with pytest.raises(NotThisFormatError):
        repair(raw(b"x" * 500)(tmp_path), tmp_path / "mended")


@needs_shared
@pytest.mark.parametrize(
    "name",
    [
        "nested.tacozip",
        "nested_folder",
        "nested_padded.tacozip",
        "tacocat_binary/part1.tacozip",
    ],
)
def test_files_of_existing_writers_come_out_the_same(name: str, tmp_path: Path) -> None:
    path = SHARED / "fixtures" / "taco" / name
    made = repair(path, tmp_path / Path(name).name, extent=True)
    assert check(made).problems == ()
    if made.is_file():
        assert Archive(made).entries() == Archive(path).entries()
