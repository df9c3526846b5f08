"""A mended copy has right bytes, passes the check, and is never made of what is lost."""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal.errors import ComalError, InvalidInputError, InvalidMetadataError, NotThisFormatError
from comal.taco.checking import check
from comal.taco.copying.repairing import repair
from tests.attacks.build import (
    FLAT,
    NESTED,
    Index,
    Recipe,
    Tree,
    leaves_of,
    levels_in,
    swapped_spans,
)
from tests.attacks.corpus import (
    ATTACKS,
    LEAF,
    Attack,
    fields,
    foldered,
    of_each_kind,
    raw,
    set_column,
    zipped,
)
from tests.support import files_below
from tests.taco.write.small import Archive


def _swapped(depth: int, table: Any) -> Any:
    return swapped_spans(table) if depth else table


_MENDS = """
    taco-current-id taco-entry-undeclared taco-field-schema taco-file-extra taco-header-crc
    taco-header-entry taco-header-slot taco-level-missing taco-meta taco-meta-columns
    taco-meta-ids taco-meta-missing taco-meta-rows taco-meta-span taco-meta-value
    taco-offset-mismatch taco-parent-root taco-path taco-pit-2 taco-pit-count
    taco-pit-schema taco-row-order taco-span-bounds taco-stored-path taco-version
    zip-descriptor zip-duplicate-name zip-folder-entry zip-gap zip-hole zip-local-mismatch
    zip-local-note zip-name zip-shared-header zip-symlink zip-trailing-bytes zip-two-ends
    zip-zip64-locator zip-zip64-mismatch
"""
"""Codes of what a repair mends, wherever it is alone."""
STAYS = (
    *("taco-id-risky", "taco-id-alike", "taco-collection-", "taco-licence"),
    *("taco-extent", "taco-extension-", "taco-crs-missing", "taco-padding"),
)
"""How codes begin of what is copied as it is: values and documents."""
ALSO = [
    Attack("header of an interrupted write", zipped(Recipe(header=lambda pairs: bytes(116)))),
    Attack(
        "two level tables",
        zipped(Recipe(level_bytes=lambda depth, data: data[: len(data) // 2] if depth else data)),
    ),
    Attack("extent", zipped(Recipe(collection=fields(extent={"spatial": "everywhere"})))),
    Attack("parents", zipped(Recipe(table=set_column(2, "internal:parent_id", [5] * 6)))),
    Attack("spans", zipped(Recipe(table=set_column(2, "internal:offset", [7] * 6)))),
]


def _spoilt(lost: int) -> Any:
    return lambda depth, data: b"x" * 50 if depth == lost else data


BEYOND = [
    Attack(name, zipped(recipe), codes=frozenset({"taco-table"}))
    for name, recipe in {
        "level table and local metadata": Recipe(
            level_bytes=_spoilt(1),
            meta_bytes=lambda path, data: b"x" if path.startswith("s2") else data,
        ),
        "level table and no local metadata": Recipe(
            level_bytes=_spoilt(2), meta_bytes=lambda path, data: None
        ),
        "table of the first level": Recipe(level_bytes=_spoilt(0)),
    }.items()
]
LOST = {
    "rot in a leaf": "s2/imagery/before.bin",
    "row without an entry": "s2/imagery/before.bin",
    "encrypted": "s2/imagery/before.bin",
    "no end record": "end of central directory",
    "collection cut": "COLLECTION.json",
    "roots of both types": "differ in structure",
    "zip: id '../../secret.txt'": "'../../secret.txt'",
    "level table and local metadata": "s2",
    "level table and no local metadata": "the archive has no __meta__",
    "table of the first level": "level 0",
    "index: bytes behind it": "create_tacocat",
}
"""What the error names of an archive that nothing mends."""
OPENED = [attack for attack in of_each_kind(ATTACKS, *LOST) if attack.check_raises is None]
OPENED += [*ALSO, *BEYOND]


def _stays(code: str) -> bool:
    return code.startswith(STAYS)


@pytest.mark.parametrize("attack", OPENED, ids=[attack.name for attack in OPENED])
def test_a_copy_is_sound_or_there_is_none(attack: Attack, tmp_path: Path) -> None:
    path = attack.make(tmp_path)
    before = files_below(tmp_path) if path.is_file() else {}
    target = tmp_path / ("mended" if path.is_dir() else "mended.tacozip")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert repair(path, target) == target
    except ComalError as error:
        said = str(error)
        assert LOST.get(attack.name, "") in said
        assert not target.exists()
        beyond = attack.codes - set(_MENDS.split())
        assert "an index" in said or not attack.codes or not all(map(_stays, beyond))
        assert attack not in ALSO
        assert not before or files_below(tmp_path) == before
        return
    assert attack.name not in LOST
    assert not before or files_below(tmp_path) == {**before, target.name: target.read_bytes()}
    assert all(map(_stays, check(target).counts))
    truth = dict(leaves_of(attack.tree))
    if target.is_dir():
        found = files_below(target / "DATA")
        assert {n: data for n, data in found.items() if not n.endswith("__meta__")} == truth
        return
    archive = Archive(target)
    assert archive.zip.testzip() is None
    assert archive.leaves() == archive.walked() == archive.entries() == truth


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


def test_types_that_local_metadata_loses_become_lasting_ones(tmp_path: Path) -> None:
    def fixed(depth: int, table: Any) -> Any:
        pairs = pa.array([[n, -n] for n in range(len(table))], pa.list_(pa.int32(), 2))
        return table.append_column("pair", pairs)

    made = repair(zipped(Recipe(table=fixed))(tmp_path), tmp_path / "mended.tacozip")
    assert check(made).problems == ()
    assert levels_in(made.read_bytes())[1]["pair"].to_pylist()[1] == [1, -1]


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


def test_an_index_is_made_anew_instead(tmp_path: Path) -> None:
    place = Index({"a.tacozip": Recipe()}).write(tmp_path)
    with pytest.raises(InvalidInputError, match="index"):
        repair(place, tmp_path / "mended")
    with pytest.raises(NotThisFormatError):
        repair(raw(b"x" * 500)(tmp_path), tmp_path / "mended")
