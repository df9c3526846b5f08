"""The attack files, one for each thing that can be wrong, and what must come of them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from comal.errors import (
    ComalError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    UnsafeContentError,
    UnsupportedVersionError,
)
from tests.attacks.build import (
    FLAT,
    NESTED,
    RawZip,
    Recipe,
    Tree,
    folder,
    header_payload,
    replaced,
    swapped_spans,
)

Outcome = Literal["right", "refused", "either"]


@dataclass(frozen=True)
class Attack:
    """One hostile or broken container."""

    name: str
    make: Callable[[Path], Path]
    """Writes it below a folder and returns what is to be opened."""
    tree: Tree = field(default_factory=lambda: NESTED)
    """The samples and their right bytes."""
    reads: Outcome = "refused"
    """``right``: all bytes come and are right; ``refused``: an error of ours, somewhere between
    opening and the last sample; ``either``: right bytes or an error, sample by sample."""
    error: type[ComalError] | tuple[type[ComalError], ...] = ComalError
    """Of what kind the error must be."""
    codes: frozenset[str] = frozenset()
    """What a check must report."""
    check_raises: type[ComalError] | None = None
    """What a check raises, where the file is not recognisable as TACO."""


ATTACKS: list[Attack] = []


def attack(
    name: str,
    make: Callable[[Path], Path] | Recipe,
    *codes: str,
    reads: Outcome = "refused",
    error: type[ComalError] | tuple[type[ComalError], ...] = ComalError,
    check_raises: type[ComalError] | None = None,
    tree: Tree | None = None,
) -> None:
    """Put an attack into the corpus."""
    if isinstance(make, Recipe):
        tree = make.tree
        make = zipped(make)
    ATTACKS.append(
        Attack(
            name,
            make,
            NESTED if tree is None else tree,
            reads,
            error,
            frozenset(codes),
            check_raises,
        )
    )


def zipped(recipe: Recipe) -> Callable[[Path], Path]:
    """Write the archive of a recipe."""

    def make(place: Path) -> Path:
        target = place / "attack.tacozip"
        target.write_bytes(recipe.build())
        return target

    return make


def raw(data: bytes) -> Callable[[Path], Path]:
    """Write these bytes."""

    def make(place: Path) -> Path:
        target = place / "attack.tacozip"
        target.write_bytes(data)
        return target

    return make


def foldered(recipe: Recipe, then: Callable[[Path], Any] | None = None) -> Callable[[Path], Path]:
    """Write the FOLDER form of a recipe, and then spoil it."""

    def make(place: Path) -> Path:
        target = folder(place / "attack", recipe.tree, recipe)
        if then is not None:
            then(target)
        return target

    return make


def at_level(level: int, change: Callable[[Any], Any]) -> Callable[[int, Any], Any]:
    """Change the table of one level."""
    return lambda depth, table: change(table) if depth == level else table


def set_column(level: int, column: str, values: Any, kind: Any = None) -> Callable[[int, Any], Any]:
    """Replace a column of one level; `values` may be a function of the old ones."""

    def change(table: Any) -> Any:
        old = table[column].to_pylist()
        return replaced(table, column, values(old) if callable(values) else values, kind)

    return at_level(level, change)


def first(value: Any) -> Callable[[list[Any]], list[Any]]:
    """Another value in the first row."""
    return lambda values: [value, *values[1:]]


def on_entry(name: str, **how: Any) -> Callable[[str], Mapping[str, Any]]:
    """Write one entry with these lies."""
    return lambda entry: how if entry == name else {}


def without(archive: RawZip, name: bytes) -> None:
    """Take an entry out of the directory."""
    archive.central = [header for header in archive.central if header[46:].find(name) != 0]


LEAF = "DATA/s2/imagery/before.bin"
ANY = (InvalidMetadataError, NotThisFormatError)


def fields(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Replace fields of the collection; ``__`` stands for a colon."""
    named = {name.replace("__", ":"): value for name, value in values.items()}
    return lambda document: {**document, **named}


def constant(data: bytes) -> Callable[[bytes], bytes]:
    """These bytes, whatever they should have been."""
    return lambda old: data


def tables_spoiled(spoil: Callable[[bytes], bytes]) -> Callable[[int, bytes], bytes]:
    """Spoil the Parquet bytes of every level."""
    return lambda depth, data: spoil(data)


def dropped(column: str) -> Callable[[int, Any], Any]:
    """Leave a column out of every level."""
    return lambda depth, table: table.drop_columns([column])


def appended(column: str, value: Any) -> Callable[[int, Any], Any]:
    """Add a column of one value to every level."""
    return lambda depth, table: table.append_column(column, pa.array([value] * table.num_rows))


def slots(count: int) -> Callable[[list[tuple[int, int]]], bytes]:
    """A header that says it has `count` slots."""
    return lambda pairs: header_payload(pairs, count)


def first_slot(span: tuple[int, int]) -> Callable[[list[tuple[int, int]]], bytes]:
    """A header whose first slot points elsewhere."""
    return lambda pairs: header_payload([span, *pairs[1:]])


# -- what can be wrong with any container: no file, spans, cycles, cuts and rot --------------------


def _fifo(place: Path) -> Path:
    os.mkfifo(place / "pipe.tacozip")
    return place / "pipe.tacozip"


def _empty_folder(place: Path) -> Path:
    (place / "nothing").mkdir()
    return place / "nothing"


for name, make in (
    ("empty file", raw(b"")),
    ("folder of nothing", _empty_folder),
    ("pipe", _fifo),
    ("device", lambda place: Path("/dev/zero")),
    ("text", raw(b"hello " * 100)),
    ("four bytes", raw(b"PK\x03\x04")),
    ("forty bytes", raw(Recipe().build()[:40])),
    ("another zip", raw(Recipe(header_entry={}).build().replace(b"TACO_HEADER", b"some_header"))),
):
    attack(name, make, error=NotThisFormatError, check_raises=NotThisFormatError)

for name, column, values, code in (
    ("offset past the end", "internal:offset", lambda v: [10**9, *v[1:]], "taco-span-bounds"),
    ("size past the end", "internal:size", lambda v: [10**9, *v[1:]], "taco-span-bounds"),
    ("offset negative", "internal:offset", lambda v: [-5, *v[1:]], "taco-span-bounds"),
    ("size negative", "internal:size", lambda v: [-1, *v[1:]], "taco-span-bounds"),
    ("offset null", "internal:offset", lambda v: [None, *v[1:]], "taco-column-null"),
    ("size null", "internal:size", lambda v: [None, *v[1:]], "taco-column-null"),
    ("offset wraps", "internal:offset", lambda v: [2**63 - 1, *v[1:]], "taco-span-bounds"),
    ("size wraps", "internal:size", lambda v: [2**63 - 1, *v[1:]], "taco-span-bounds"),
):
    attack(
        f"flat: {name}",
        Recipe(tree=FLAT, table=set_column(0, column, values)),
        code,
        reads="either",
        error=InvalidMetadataError,
    )
    attack(
        f"level 2: {name}",
        Recipe(table=set_column(2, column, values)),
        code,
        reads="either",
        error=InvalidMetadataError,
    )
for name, kind, change in (
    ("fractional", pa.float64(), lambda v: [x + 0.5 for x in v]),
    ("text", pa.string(), lambda v: [str(x) for x in v]),
):
    attack(
        f"offsets are {name}",
        Recipe(tree=FLAT, table=set_column(0, "internal:offset", change, kind)),
        "taco-column-type",
        error=InvalidMetadataError,
    )
attack(
    "spans overlap in the table",
    Recipe(tree=FLAT, table=set_column(0, "internal:offset", lambda v: [v[0], v[0] + 9, *v[2:]])),
    "taco-offset-mismatch",
    reads="either",
)
attack(
    "spans overlap in the table, no directory",
    Recipe(
        tree=FLAT,
        table=set_column(0, "internal:offset", lambda v: [v[0], v[0] + 9, *v[2:]]),
        close={"end": False},
    ),
    "zip-end",
    "taco-span-overlap",
    reads="either",
)


def _overlapping(archive: RawZip, name: str) -> None:
    if name == "METADATA/level0.parquet":
        # The first leaf of the directory now reaches over the next one.
        first = bytearray(archive.central[1])
        struct.pack_into("<2I", first, 20, 90, 90)
        archive.central[1] = bytes(first)


attack("entries overlap", Recipe(before=_overlapping), "zip-directory", reads="either")
attack(
    "header of the next entry inside a leaf",
    Recipe(entry=on_entry("DATA/s2/label.txt", header_offset=160)),
    "zip-directory",
    reads="either",
)
attack(
    "parent of itself",
    Recipe(table=set_column(1, "internal:parent_id", lambda v: list(range(100, 100 + len(v))))),
    "taco-parent",
    reads="either",
)
attack(
    "a cycle of paths",
    Recipe(table=set_column(2, "internal:relative_path", lambda v: ["s2/imagery/s2/imagery"] * 6)),
    "taco-path",
    reads="either",
)


def _deep(levels: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(document: dict[str, Any]) -> dict[str, Any]:
        pit = document["taco:pit_schema"]
        patterns = {str(level): pit["hierarchy"]["1"] for level in range(1, levels)}
        return {**document, "taco:pit_schema": {"root": pit["root"], "hierarchy": patterns}}

    return change


for levels in (7, 8, 200):
    attack(
        f"collection tells of {levels} levels",
        Recipe(collection=_deep(levels)),
        "taco-pit-schema",
        error=InvalidMetadataError,
    )

_WHOLE = Recipe().build()
for keep in (41, 100, 156):
    attack(f"cut to {keep} bytes", raw(_WHOLE[:keep]), "taco-header", error=ANY)
for keep in (157, 1000, len(_WHOLE) // 2, len(_WHOLE) - 3000):
    attack(f"cut to {keep} bytes", raw(_WHOLE[:keep]), "taco-header", error=ANY)
for less in (1, 21, 22, 23, 500):
    attack(f"{less} bytes cut off", raw(_WHOLE[:-less]), "zip-end", reads="either", error=ANY)


def _flipped(where: bytes, shift: int = 3, recipe: Recipe | None = None) -> bytes:
    data = bytearray((recipe or Recipe()).build())
    data[data.index(where) + shift] ^= 0x10
    return bytes(data)


attack("rot in a leaf", raw(_flipped(b"s2-before")), "zip-crc", error=InvalidMetadataError)
attack(
    "rot in local metadata",
    Recipe(
        meta_bytes=lambda path, data: (
            data[:60] + bytes([data[60] ^ 1]) + data[61:] if path == "s2" else data
        )
    ),
    reads="either",
)
attack(
    "rot in a level table",
    Recipe(after=lambda data: _rotten(data, b"METADATA/level1.parquet", 200)),
    "zip-crc",
    reads="either",
)
attack(
    "rot in the collection",
    Recipe(after=lambda data: data.replace(b'"id": "attack"', b'"id": "attacK"')),
    "zip-crc",
    reads="right",
)


def _rotten(data: bytes, name: bytes, shift: int) -> bytes:
    changed = bytearray(data)
    changed[data.index(name) + len(name) + shift] ^= 0x40
    return bytes(changed)


# -- tACO_HEADER that is not what it should be (TACO 2.0, 6.3) -------------------------------------


def _not_first(place: Path) -> Path:
    recipe = Recipe()
    recipe.before = lambda archive, name: (
        archive.add("first.txt", b"first") if name == "TACO_HEADER" else None
    )
    return zipped(recipe)(place)


attack("header not first", _not_first, error=NotThisFormatError, check_raises=NotThisFormatError)
attack(
    "bytes before the header",
    Recipe(prefix=b"#!/bin/sh\n"),
    error=NotThisFormatError,
    check_raises=NotThisFormatError,
)
for count in (0, 1, 8, 255):
    attack(
        f"header of {count} slots",
        Recipe(header=slots(count)),
        "taco-header",
        error=InvalidMetadataError,
    )
attack(
    "slack of the header",
    Recipe(header=lambda pairs: header_payload(pairs)[:1] + b"\1\2\3" + header_payload(pairs)[4:]),
    "taco-header",
    error=InvalidMetadataError,
)
attack(
    "unused slot of the header",
    Recipe(header=lambda pairs: header_payload([*pairs, (5, 5)], len(pairs))),
    "taco-header",
    error=InvalidMetadataError,
)
for name, slot in (
    ("past the end", (10**9, 10)),
    ("wrapping", (2**64 - 1, 2**64 - 1)),
    ("negative size", (500, 2**64 - 5)),
    ("of no bytes", (500, 0)),
):
    attack(
        f"slot {name}", Recipe(header=first_slot(slot)), "taco-header", error=InvalidMetadataError
    )
attack(
    "slots exchanged",
    Recipe(header=lambda pairs: header_payload([pairs[1], pairs[0], *pairs[2:]])),
    "taco-header-slot",
)
attack(
    "one slot too few",
    Recipe(header=lambda pairs: header_payload([*pairs[:2], pairs[3]])),
    "taco-header-slot",
    reads="either",
)
attack("checksum of the header", Recipe(header_crc=12345), "taco-header-crc", reads="right")
attack(
    "extra field of the header",
    Recipe(header_entry={"local_extra": b"\x35\xd9\x04\x00abcd"}),
    "taco-header",
    error=InvalidMetadataError,
)


def _hidden_collection(place: Path) -> Path:
    """A second collection in a hole, which only TACO_HEADER points at."""
    recipe = Recipe()
    hidden = b'{"id": "hidden", "taco:pit_schema": {"root": {"n": 3, "type": "FOLDER"}}}'
    places: list[int] = []

    def before(archive: RawZip, name: str) -> None:
        if name == "METADATA/level0.parquet":
            places.append(len(archive.buffer))
            archive.gap(hidden)

    recipe.before = before
    recipe.header = lambda pairs: header_payload([*pairs[:-1], (places[0], len(hidden))])
    return zipped(recipe)(place)


attack("slot into a hole", _hidden_collection, "taco-header-slot", "zip-hole", error=ANY)


# -- level tables and local metadata that contradict each other or the entries ---------------------

attack(
    "spans of other samples",
    Recipe(table=lambda depth, table: swapped_spans(table) if depth else table),
    "taco-offset-mismatch",
    reads="right",
)
attack(
    "spans of other samples in local metadata",
    Recipe(
        meta=lambda path, table: (
            replaced(table, "internal:offset", table["internal:offset"].to_pylist()[::-1])
            if path.endswith("imagery")
            else table
        )
    ),
    "taco-meta-span",
    reads="either",
)
attack(
    "local metadata of other children",
    Recipe(
        meta=lambda path, table: replaced(table, "id", [f"x{n}" for n in range(table.num_rows)])
    ),
    "taco-meta-rows",
    reads="right",
)
attack(
    "local metadata of other values",
    Recipe(meta=lambda path, table: replaced(table, "value", [-1.0] * table.num_rows)),
    "taco-meta-value",
    reads="right",
)
attack(
    "local metadata of another type",
    Recipe(meta=lambda path, table: replaced(table, "value", ["x"] * table.num_rows, pa.string())),
    "taco-pit-2",
    reads="right",
)
attack(
    "local metadata is not Parquet",
    Recipe(meta_bytes=lambda path, data: b"not a table"),
    "taco-meta",
    reads="right",
)
attack(
    "no local metadata",
    Recipe(meta_bytes=lambda path, data: None),
    "taco-meta-missing",
    reads="either",
)
attack(
    "parents that are not there",
    Recipe(table=set_column(2, "internal:parent_id", lambda v: [77, *v[1:]])),
    "taco-parent",
    reads="either",
)
attack(
    "parents that are files",
    Recipe(table=set_column(2, "internal:parent_id", lambda v: [1, *v[1:]])),
    "taco-parent",
    reads="either",
)


def _no_way(depth: int, table: Any) -> Any:
    if depth != 2:
        return table
    table = replaced(table, "internal:parent_id", [77] * 6)
    return table.drop_columns(["internal:relative_path"])


attack(
    "parents that nothing tells",
    Recipe(table=_no_way),
    "taco-parent",
    reads="either",
    error=InvalidMetadataError,
)
attack(
    "numbers of rows that appear twice",
    Recipe(table=set_column(1, "internal:current_id", lambda v: [0] * len(v))),
    "taco-current-id",
    reads="either",
)
attack(
    "roots of both types",
    Recipe(tree={**NESTED, "loose.bin": b"loose"}),
    "taco-pit-1",
    reads="right",
)
_IMAGERY: Tree = {"before.bin": b"3", "after.bin": b"4"}
attack(
    "more children in one folder",
    Recipe(tree={**NESTED, "s99": {"imagery": _IMAGERY, "label.txt": b"1", "more.bin": b"2"}}),
    "taco-pit-1",
    reads="right",
)
attack(
    "other ids in the depth",
    Recipe(
        tree={**NESTED, "s99": {"imagery": {"before.bin": b"1", "AFTER": b"2"}, "label.txt": b"3"}}
    ),
    "taco-pit-1",
    reads="right",
)
attack(
    "stale counts",
    Recipe(collection=lambda d: {**d, "taco:pit_schema": _counted(d["taco:pit_schema"], 99)}),
    "taco-pit-count",
    reads="right",
)


def _counted(pit: dict[str, Any], n: int) -> dict[str, Any]:
    return {**pit, "root": {**pit["root"], "n": n}}


# -- local headers, directory and end records that contradict each other ---------------------------

for name, how, code in (
    ("name", {"local_name": b"DATA/s2/imagery/other!.bin"}, "zip-local-mismatch"),
    ("longer name", {"local_name": b"DATA/s2/imagery/before.bin.and.more"}, "zip-local-mismatch"),
    ("checksum", {"local_crc": 7}, "zip-local-mismatch"),
    ("size", {"local_size": 5}, "zip-local-mismatch"),
    ("method", {"local_method": 8}, "zip-local-mismatch"),
):
    attack(
        f"local header has another {name}",
        Recipe(entry=on_entry(LEAF, **how)),
        code,
        reads="either",
    )
attack(
    "directory has another checksum", Recipe(entry=on_entry(LEAF, crc=9, local_crc=9)), "zip-crc"
)
attack(
    "entry appears twice",
    Recipe(entry=on_entry(LEAF, times=2)),
    "zip-duplicate-name",
    reads="right",
)
attack(
    "entry hidden",
    Recipe(
        before=lambda a, n: (
            a.add("DATA/evil", b"evil", listed=False) and None
            if n == "METADATA/level0.parquet"
            else None
        )
    ),
    "zip-undeclared-entry",
    reads="right",
)
attack(
    "entry that no row names",
    Recipe(
        before=lambda a, n: a.add("DATA/evil", b"evil") if n == "METADATA/level0.parquet" else None
    ),
    "taco-entry-undeclared",
    reads="right",
)
attack(
    "row without an entry",
    Recipe(entry=on_entry(LEAF, listed=False)),
    "taco-entry-missing",
    "zip-undeclared-entry",
    reads="either",
)
attack(
    "symbolic link",
    Recipe(entry=on_entry(LEAF, external=0o120777 << 16)),
    "zip-symlink",
    reads="either",
)
attack(
    "hole",
    Recipe(before=lambda a, n: a.gap(b"\0" * 50) if n == "METADATA/level0.parquet" else None),
    "zip-hole",
    reads="right",
)
attack(
    "encrypted", Recipe(entry=on_entry(LEAF, flags=1)), "zip-encrypted", error=InvalidMetadataError
)
attack(
    "compressed",
    Recipe(entry=on_entry(LEAF, method=8)),
    "zip-compressed",
    error=InvalidMetadataError,
)
attack(
    "unknown method",
    Recipe(entry=on_entry(LEAF, method=99)),
    "zip-method",
    error=InvalidMetadataError,
)
attack("data descriptor", Recipe(entry=on_entry(LEAF, flags=8)), "zip-descriptor", reads="either")
attack("no end record", Recipe(close={"end": False}), "zip-end", reads="either")
attack(
    "bytes behind the end", Recipe(close={"trailing": b"more"}), "zip-trailing-bytes", reads="right"
)
attack(
    "comment longer than stated",
    Recipe(close={"comment": b"abc", "stated_comment": 1}),
    "zip-trailing-bytes",
    reads="right",
)
attack(
    "comment shorter than stated",
    Recipe(close={"comment": b"abc", "stated_comment": 9}),
    "zip-end",
    reads="either",
)
_DECOY = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0, 0, 0, 0, 0)
attack("two end records", Recipe(close={"comment": _DECOY}), "zip-two-ends", reads="right")
attack("count of the end record", Recipe(close={"count": 3}), "zip-directory", reads="either")
attack("directory elsewhere", Recipe(close={"start": 5}), "zip-span", reads="either")
attack("directory too long", Recipe(close={"size": 10**8}), "zip-directory", reads="either")
attack(
    "ZIP64 locator to nowhere",
    Recipe(close={"locator": struct.pack("<4sIQI", b"PK\x06\x07", 0, 2**60, 1)}),
    "zip-zip64-locator",
    reads="either",
)
attack(
    "ZIP64 sizes beyond any file",
    Recipe(
        entry=on_entry(
            LEAF,
            csize=0xFFFFFFFF,
            size=0xFFFFFFFF,
            local_size=27,
            extra=struct.pack("<2H2Q", 1, 16, 2**64 - 1, 2**64 - 1),
        )
    ),
    "zip-directory",
    reads="either",
)


# -- level tables that are no tables, or not such ones ---------------------------------------------

attack(
    "more rows than there are",
    Recipe(tree=FLAT, level_bytes=lambda depth, data: _rows_lie(data)),
    error=(LimitExceededError, InvalidMetadataError),
)


def _rows_lie(data: bytes) -> bytes:
    """A footer that tells of more rows than there are (thrift: field 3 of the file metadata)."""
    marker = data.rfind(b"\x16\x08")
    return data[:marker] + b"\x16\x7f" + data[marker + 2 :]


attack(
    "too many columns",
    Recipe(tree=FLAT, table=lambda depth, table: _widened(table, 2_100)),
    "limit-exceeded",
    error=LimitExceededError,
)


def _widened(table: Any, count: int) -> Any:
    for n in range(count):
        table = table.append_column(f"c{n}", pa.array([n] * table.num_rows))
    return table


def _nested_lists(depth: int, table: Any) -> Any:
    kind = pa.int64()
    for _ in range(12):
        kind = pa.list_(kind)
    return table.append_column("deep", pa.nulls(table.num_rows, kind))


attack(
    "lists in lists",
    Recipe(tree=FLAT, table=_nested_lists),
    "limit-exceeded",
    error=LimitExceededError,
)
for name, spoil in (
    ("cut", lambda data: data[:-20]),
    ("zeroed", lambda data: data[:-300] + bytes(292) + data[-8:]),
    ("length beyond the file", lambda data: data[:-8] + struct.pack("<I", 2**31) + b"PAR1"),
    ("length of nothing", lambda data: data[:-8] + struct.pack("<I", 0) + b"PAR1"),
    ("encrypted", lambda data: data[:-4] + b"PARE"),
    ("empty", lambda data: b"PAR1PAR1"),
):
    attack(
        f"footer {name}",
        Recipe(tree=FLAT, level_bytes=tables_spoiled(spoil)),
        "taco-table",
        error=(InvalidMetadataError, LimitExceededError),
    )
for column in ("id", "type", "internal:offset", "internal:size"):
    attack(
        f"no column {column}",
        Recipe(tree=FLAT, table=dropped(column)),
        "taco-column-missing",
        error=InvalidMetadataError,
    )
attack(
    "ids are numbers",
    Recipe(tree=FLAT, table=set_column(0, "id", [1, 2, 3, 4], pa.int64())),
    "taco-column-type",
    error=InvalidMetadataError,
)
attack(
    "an id is null",
    Recipe(tree=FLAT, table=set_column(0, "id", lambda v: [None, *v[1:]])),
    "taco-column-null",
    reads="either",
)
attack(
    "type is neither",
    Recipe(tree=FLAT, table=set_column(0, "type", lambda v: ["LINK", *v[1:]])),
    "taco-type",
    reads="either",
)
attack(
    "type is null",
    Recipe(tree=FLAT, table=set_column(0, "type", lambda v: [None, *v[1:]])),
    "taco-column-null",
    reads="either",
)
for name, column in (
    ("control character", "a\x07b"),
    ("200 bytes", "c" * 200),
    ("newline", "a\nb"),
):
    attack(
        f"column name with {name}",
        Recipe(tree=FLAT, table=appended(column, 1)),
        error=(InvalidMetadataError, LimitExceededError),
    )
attack(
    "column name that appears twice",
    Recipe(tree=FLAT, table=lambda depth, table: table.append_column("value", pa.array([1] * 4))),
    error=InvalidMetadataError,
)
attack(
    "column names of SQL",
    Recipe(
        tree=FLAT,
        table=lambda depth, table: table.append_column(
            '"; DROP TABLE data; --', pa.array([1] * 4)
        ).append_column("select", pa.array([2] * 4)),
    ),
    reads="right",
)


# -- COLLECTION.json that is not a collection -----------------------------------------------------

for version in ("3.0.0", "1.0.0", "0.4.0", "2", 2, ["2.0.0"]):
    attack(
        f"version {version!r}",
        Recipe(collection=fields(taco_version=version)),
        "taco-version",
        error=UnsupportedVersionError,
    )
attack(
    "TACO 3",
    raw(
        struct.pack("<4s5H3I2H", b"PK\3\4", 10, 0, 0, 0, 0, 0, 0, 0, 9, 0)
        + b"__cozip__"
        + bytes(300)
    ),
    error=UnsupportedVersionError,
    check_raises=UnsupportedVersionError,
)

for name, data in (
    ("not UTF-8", b'{"id": "\xff\xfe"}'),
    ("no object", b"[1, 2]"),
    ("text", b"hello"),
    ("cut", b'{"id": "x"'),
    ("NaN", b'{"id": NaN}'),
    ("key twice", b'{"id": "a", "id": "b"}'),
    ("endless integer", b'{"id": ' + b"9" * 5000 + b"}"),
    ("deep", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ("huge", b'{"a": "' + b"x" * (17 << 20) + b'"}'),
):
    attack(
        f"collection {name}",
        Recipe(tree=FLAT, collection_bytes=constant(data)),
        "limit-exceeded" if name in ("endless integer", "deep", "huge") else "taco-collection",
        error=(InvalidMetadataError, LimitExceededError),
    )
for name, pit in (
    ("missing", None),
    ("a list", []),
    ("negative", {"root": {"n": -1, "type": "FILE"}, "hierarchy": {}}),
    ("fractional", {"root": {"n": 1.5, "type": "FILE"}, "hierarchy": {}}),
    ("of another type", {"root": {"n": 4, "type": "LINK"}, "hierarchy": {}}),
    ("with a gap", {"root": {"n": 4, "type": "FILE"}, "hierarchy": {"5": []}}),
    ("with text for a level", {"root": {"n": 4, "type": "FILE"}, "hierarchy": {"x": []}}),
):
    attack(
        f"structure {name}",
        Recipe(tree=FLAT, collection=fields(taco__pit_schema=pit)),
        "taco-pit-schema",
        error=InvalidMetadataError,
    )


# -- ids that could leave their folder, hide, or be taken for another ------------------------------

for name in ("..", ".", "", "a/b", "a\\b", "C:x", "a\0b", "a\nb", "a\u202eb", "a\u200bb", "__x"):
    attack(
        f"id {name!r}",
        Recipe(tree=FLAT, table=set_column(0, "id", first(name))),
        "taco-id",
        reads="either",
    )
for name in ("e\u0301", "nul", "a.", "x ", "a*b", "-rf", "~x", "a%2fb", "x" * 300):
    attack(
        f"risky id {name[:20]!r}",
        Recipe(tree={name: b"risky", "b": b"other"}),
        "taco-id-risky",
        reads="right",
    )
attack("ids alike", Recipe(tree={"a.bin": b"one", "A.bin": b"two"}), "taco-id-alike", reads="right")


# -- loose files: links, pipes, paths that lead elsewhere ------------------------------------------


def _secret_link(target: Path) -> None:
    secret = target.parent / "secret.txt"
    secret.write_bytes(b"secret")
    leaf = target / "DATA/s2/imagery/before.bin"
    leaf.unlink()
    leaf.symlink_to(secret)


def linked_folder(target: Path) -> None:
    """Put a link in the place of a folder of the dataset."""
    outside = target.parent / "outside"
    (target / "DATA/s2/imagery").rename(outside)
    (target / "DATA/s2/imagery").symlink_to(outside)


attack(
    "folder: link to a file",
    foldered(Recipe(), _secret_link),
    "taco-symlink",
    error=UnsafeContentError,
)
attack(
    "folder: link to a folder",
    foldered(Recipe(), linked_folder),
    "taco-symlink",
    error=UnsafeContentError,
)
for name, path in (
    ("..", "../../secret.txt"),
    ("absolute", "/etc/passwd"),
    ("URL", "file:///etc/passwd"),
    ("backslash", "..\\secret.txt"),
    ("NUL", "a\0b"),
):
    attack(
        f"folder: relative_path {name}",
        foldered(
            Recipe(table=set_column(2, "internal:relative_path", first(path))),
            lambda target: (target.parent / "secret.txt").write_bytes(b"secret"),
        ),
        "taco-path",
        reads="either",
    )
    attack(
        f"folder: id {name}",
        foldered(
            Recipe(tree=FLAT, table=set_column(0, "id", first(path))),
            lambda target: (target.parent / "secret.txt").write_bytes(b"secret"),
        ),
        "taco-id",
        reads="either",
        tree=FLAT,
    )
attack(
    "folder: file gone",
    foldered(Recipe(), lambda target: (target / "DATA/s1/label.txt").unlink()),
    "taco-file-missing",
)


def _pipe(target: Path) -> None:
    (target / "DATA/s1/label.txt").unlink()
    os.mkfifo(target / "DATA/s1/label.txt")


attack("folder: pipe", foldered(Recipe(), _pipe), "taco-symlink")
attack(
    "folder: file too many",
    foldered(Recipe(), lambda target: (target / "DATA/s1/x").write_bytes(b"x")),
    "taco-file-extra",
    reads="right",
)
attack(
    "folder: level gone",
    foldered(Recipe(), lambda target: (target / "METADATA/level1.parquet").unlink()),
    "taco-level-missing",
    error=InvalidMetadataError,
)
attack(
    "folder: no local metadata",
    foldered(Recipe(), lambda target: (target / "DATA/s1/__meta__").unlink()),
    "taco-meta-missing",
    reads="right",
)
attack(
    "stored paths",
    Recipe(
        tree=FLAT,
        table=lambda depth, table: table.append_column(
            "internal:gdal_vsi", pa.array(["/etc/passwd"] * 4)
        ),
    ),
    "taco-stored-path",
    reads="right",
)
attack(
    "folder: stored paths",
    foldered(
        Recipe(
            tree=FLAT,
            table=lambda depth, table: table.append_column(
                "internal:gdal_vsi", pa.array(["/etc/passwd"] * 4)
            ),
        )
    ),
    "taco-stored-path",
    reads="right",
    tree=FLAT,
)
