"""The attack files, one for each thing that can be wrong, and what must come of them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
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
    Index,
    RawZip,
    Recipe,
    Tree,
    built,
    folder,
    header_payload,
    replaced,
    swapped_spans,
)
from tests.taco.read.scenes import point, without
from tests.zips import end_record, with_zip64_end

FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))
Outcome = Literal["right", "refused", "either"]
Errors = type[ComalError] | tuple[type[ComalError], ...]


@dataclass(frozen=True)
class Made:
    """What writes a container below a folder and returns what is to be opened."""

    write: Callable[[Path], Path]
    tree: Tree
    """The samples and their right bytes."""

    def __call__(self, place: Path) -> Path:
        return self.write(place)


@dataclass(frozen=True)
class Attack:
    """One hostile or broken container."""

    name: str
    make: Made
    reads: Outcome = "refused"
    """``right``: all bytes come and are right; ``refused``: an error of ours, somewhere between
    opening and the last sample; ``either``: right bytes or an error, sample by sample."""
    error: Errors = ComalError
    """Of what kind the error must be."""
    codes: frozenset[str] = frozenset()
    """What a check must report."""
    check_raises: type[ComalError] | None = None
    """What a check raises, where the file is not recognisable as TACO."""

    @property
    def tree(self) -> Tree:
        """The samples and their right bytes."""
        return self.make.tree


ATTACKS: list[Attack] = []


def attacks(
    reads: Outcome,
    cases: Mapping[str, Mapping[str, Recipe | Made]],
    *,
    error: Errors = ComalError,
    check_raises: type[ComalError] | None = None,
) -> None:
    """Put attacks into the corpus, by the codes that a check must report, with spaces between."""
    for codes, named in cases.items():
        for name, made in named.items():
            make = zipped(made) if isinstance(made, Recipe) else made
            known = frozenset(codes.split())
            ATTACKS.append(Attack(name, make, reads, error, known, check_raises))


def of_each_kind(attacks: Sequence[Attack], *names: str, every: int = 4) -> list[Attack]:
    """The first attack of each outcome and code, those of the names, and every so many others.

    For what comes after reading, which all attacks go through. ``COMAL_FULL_SWEEP=1`` takes all.
    """
    found, seen = [], set()
    for number, attack in enumerate(attacks):
        kind = (attack.reads, attack.codes, attack.tree is FLAT)
        if kind not in seen or attack.name in names or number % every == 0 or FULL:
            found.append(attack)
        seen.add(kind)
    return found


def zipped(recipe: Recipe) -> Made:
    """Write the archive of a recipe."""

    def make(place: Path) -> Path:
        target = place / "attack.tacozip"
        target.write_bytes(built(recipe))
        return target

    return Made(make, recipe.tree)


def raw(data: bytes) -> Made:
    """Write these bytes."""

    def make(place: Path) -> Path:
        target = place / "attack.tacozip"
        target.write_bytes(data)
        return target

    return Made(make, NESTED)


def foldered(recipe: Recipe, then: Callable[[Path], Any] | None = None) -> Made:
    """Write the FOLDER form of a recipe, and then spoil it."""

    def make(place: Path) -> Path:
        target = folder(place / "attack", recipe.tree, recipe)
        if then is not None:
            then(target)
        return target

    return Made(make, recipe.tree)


PARTS = {
    f"{part}.tacozip": Recipe({f"{scene}{part}": content for scene, content in NESTED.items()})
    for part in ("a", "b")
}


def indexed(
    *forms: str, then: Callable[[Path], Any] | None = None, **lies: Callable[..., Any]
) -> Made:
    """Write an index over `PARTS` that lies, in both forms or in some, and then spoil it."""

    def make(place: Path) -> Path:
        path = Index(PARTS, **lies).write(place, forms or ("folder", "single"))
        if then is not None:
            then(path)
        return path

    return Made(make, {name: one for part in PARTS.values() for name, one in part.tree.items()})


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


def added(name: str, data: bytes = b"evil", **how: Any) -> Callable[[RawZip, str], None]:
    """Put an entry before the level tables that no row names."""

    def before(archive: RawZip, entry: str) -> None:
        if entry == "METADATA/level0.parquet":
            archive.add(name, data, **how)

    return before


LEAF = "DATA/s2/imagery/before.bin"
ANY = (InvalidMetadataError, NotThisFormatError)
OVER = (InvalidMetadataError, LimitExceededError)


def fields(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Replace fields of the collection; ``__`` stands for a colon."""
    named = {name.replace("__", ":"): value for name, value in values.items()}
    return lambda document: {**document, **named}


def with_columns(**columns: Any) -> Callable[[int, Any], Any]:
    """Add columns to every level; ``__`` stands for a colon, and one value for that of all rows."""

    def change(depth: int, table: Any) -> Any:
        for name, given in columns.items():
            values = [given] * table.num_rows if isinstance(given, int | str) else given
            table = table.append_column(name.replace("__", ":"), pa.array(values))
        return table

    return change


def slots(count: int) -> Callable[[list[tuple[int, int]]], bytes]:
    """A header that says it has `count` slots."""
    return lambda pairs: header_payload(pairs, count)


def first_slot(span: tuple[int, int]) -> Callable[[list[tuple[int, int]]], bytes]:
    """A header whose first slot points elsewhere."""
    return lambda pairs: header_payload([span, *pairs[1:]])


# -- what can be wrong with any container: no file, spans, cycles, cuts and rot --------------------

_WHOLE = Recipe().build()


def _fifo(place: Path) -> Path:
    os.mkfifo(place / "pipe.tacozip")
    return place / "pipe.tacozip"


def _empty_folder(place: Path) -> Path:
    (place / "nothing").mkdir()
    return place / "nothing"


attacks(
    "refused",
    {
        "": {
            "empty file": raw(b""),
            "folder of nothing": Made(_empty_folder, NESTED),
            "pipe": Made(_fifo, NESTED),
            "device": Made(lambda place: Path("/dev/zero"), NESTED),
            "text": raw(b"hello " * 100),
            "four bytes": raw(b"PK\x03\x04"),
            "forty bytes": raw(_WHOLE[:40]),
            "another zip": raw(_WHOLE.replace(b"TACO_HEADER", b"some_header")),
            "header not first": Recipe(
                before=lambda archive, name: (
                    name == "TACO_HEADER" and archive.add("first.txt", b"first")
                )
            ),
            "bytes before the header": Recipe(prefix=b"#!/bin/sh\n"),
        }
    },
    error=NotThisFormatError,
    check_raises=NotThisFormatError,
)

_NO_SPANS: dict[str, dict[str, Any]] = {
    "taco-span-bounds": {"past the end": 10**9, "negative": -5, "wraps": 2**63 - 1},
    "taco-column-null": {"null": None},
}


_overlap = set_column(0, "internal:offset", lambda v: [v[0], v[0] + 9, *v[2:]])


def _overlapping(archive: RawZip, name: str) -> None:
    if name == "METADATA/level0.parquet":
        # The first leaf of the directory now reaches over the next one.
        first = bytearray(archive.central[1])
        struct.pack_into("<2I", first, 20, 90, 90)
        archive.central[1] = bytes(first)


def _deep(levels: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(document: dict[str, Any]) -> dict[str, Any]:
        pit = document["taco:pit_schema"]
        patterns = {str(level): pit["hierarchy"]["1"] for level in range(1, levels)}
        return {**document, "taco:pit_schema": {"root": pit["root"], "hierarchy": patterns}}

    return change


attacks(
    "refused",
    {
        "taco-header": {
            f"cut to {keep} bytes": raw(_WHOLE[:keep])
            for keep in (41, 100, 156, 157, 1000, len(_WHOLE) // 2, len(_WHOLE) - 3000)
        }
    },
    error=ANY,
)


def _rotten(data: bytes, name: bytes, shift: int) -> bytes:
    changed = bytearray(data)
    changed[data.index(name) + shift] ^= 0x40
    return bytes(changed)


attacks(
    "refused",
    {
        "taco-column-type": {
            f"offsets are {name}": Recipe(
                FLAT, table=set_column(0, "internal:offset", change, kind)
            )
            for name, kind, change in (
                ("fractional", pa.float64(), lambda v: [x + 0.5 for x in v]),
                ("text", pa.string(), lambda v: [str(x) for x in v]),
            )
        },
        "taco-pit-schema": {
            f"collection tells of {n} levels": Recipe(collection=_deep(n)) for n in (7, 200)
        },
        "zip-crc": {"rot in a leaf": raw(_rotten(_WHOLE, b"s2-before", 3))},
        **{
            code: {
                f"level {level}: {column} {name}": Recipe(
                    tree, table=set_column(level, f"internal:{column}", first(value))
                )
                for level, tree, column in (
                    (0, FLAT, "offset"),
                    (0, FLAT, "size"),
                    (2, NESTED, "size"),
                )
                for name, value in values.items()
            }
            for code, values in _NO_SPANS.items()
        },
    },
    error=InvalidMetadataError,
)
attacks(
    "either",
    {
        "zip-end": {f"{less} bytes cut off": raw(_WHOLE[:-less]) for less in (1, 21, 22, 23, 500)},
        "taco-offset-mismatch": {
            "spans overlap in the table": Recipe(FLAT, table=_overlap),
            "sizes that are too small": Recipe(
                table=set_column(2, "internal:size", lambda v: [one - 1 for one in v])
            ),
        },
        "zip-end taco-span-overlap": {
            "spans overlap, no directory": Recipe(FLAT, table=_overlap, close={"end": False})
        },
        "zip-directory": {
            "entries overlap": Recipe(before=_overlapping),
            "header of the next entry inside a leaf": Recipe(
                entry=on_entry("DATA/s2/label.txt", header_offset=160)
            ),
        },
        "": {
            "rot in local metadata": Recipe(
                meta_bytes=lambda path, data: _rotten(data, b"", 60) if path == "s2" else data
            )
        },
        "zip-crc": {"rot in a level table": raw(_rotten(_WHOLE, b"METADATA/level1.parquet", 223))},
    },
)
attacks(
    "right",
    {
        "zip-crc": {
            "rot in the collection": raw(_WHOLE.replace(b'"id": "attack"', b'"id": "attacK"'))
        }
    },
)


# -- TACO_HEADER that is not what it should be (TACO 2.0, 6.3) -------------------------------------

attacks(
    "refused",
    {
        "taco-header": {
            **{f"header of {count} slots": Recipe(FLAT, header=slots(count)) for count in (0, 255)},
            "slack of the header": Recipe(
                header=lambda pairs: (
                    header_payload(pairs)[:1] + b"\1\2\3" + header_payload(pairs)[4:]
                )
            ),
            # More of them are in `taco/test_wire.py`.
            "slot past the end": Recipe(header=first_slot((10**9, 10))),
            "slot negative size": Recipe(header=first_slot((500, 2**64 - 5))),
        }
    },
    error=InvalidMetadataError,
)
attacks(
    "refused",
    {
        "taco-header-slot": {
            "slots exchanged": Recipe(
                header=lambda pairs: header_payload([pairs[1], pairs[0], *pairs[2:]])
            )
        }
    },
)
attacks(
    "either",
    {
        "taco-header-slot": {
            "one slot too few": Recipe(header=lambda pairs: header_payload([*pairs[:2], pairs[3]]))
        }
    },
)
attacks(
    "right",
    {
        "taco-header-crc": {"checksum of the header": Recipe(header_crc=12345)},
        "taco-header-entry": {
            "header that is not listed": Recipe(FLAT, header_entry={"listed": False})
        },
    },
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


attacks(
    "refused",
    {"taco-header-slot zip-hole": {"slot into a hole": Made(_hidden_collection, NESTED)}},
    error=ANY,
)


# -- level tables and local metadata that contradict each other or the entries ---------------------


def _swapped(depth: int, table: Any) -> Any:
    return swapped_spans(table) if depth else table


def _meta(column: str, value: Any, kind: Any = None) -> Callable[[str, Any], Any]:
    """One value in a column of all local metadata."""
    return lambda path, table: replaced(table, column, [value] * table.num_rows, kind)


def _reversed_spans(path: str, table: Any) -> Any:
    if not path.endswith("imagery"):
        return table
    return replaced(table, "internal:offset", table["internal:offset"].to_pylist()[::-1])


def _with_note(depth: int, table: Any) -> Any:
    return table.append_column("note", pa.nulls(table.num_rows, pa.string()))


def _with_ids(path: str, table: Any) -> Any:
    ids = pa.array(range(50, 50 + table.num_rows), pa.int64())
    return table.append_column("internal:current_id", ids)


def _no_way(depth: int, table: Any) -> Any:
    if depth != 2:
        return table
    table = replaced(table, "internal:parent_id", [77] * 6)
    return table.drop_columns(["internal:relative_path"])


def _reordered(table: Any) -> Any:
    return replaced(table.take([4, 5, 0, 1, 2, 3]), "internal:current_id", range(6))


_IMAGERY: Tree = {"before.bin": b"3", "after.bin": b"4"}
attacks(
    "right",
    {
        "taco-offset-mismatch": {"spans of other samples": Recipe(table=_swapped)},
        "taco-meta-rows": {"local metadata of other children": Recipe(meta=_meta("id", "x"))},
        "taco-meta-value": {
            "local metadata of other values": Recipe(meta=_meta("value", -1.0)),
            "local metadata without values": Recipe(
                meta=lambda path, table: table.drop_columns(["value"])
            ),
        },
        "taco-stored-path": {
            "stored paths in local metadata": Recipe(
                meta=lambda path, table: table.append_column(
                    "internal:gdal_vsi", pa.array(["/etc/passwd"] * table.num_rows)
                )
            )
        },
        "taco-pit-2": {
            "local metadata of another type": Recipe(meta=_meta("value", "x", pa.string()))
        },
        "taco-meta": {
            "local metadata is not Parquet": Recipe(meta_bytes=lambda path, data: b"not a table")
        },
        "taco-meta-columns": {"local metadata of fewer columns": Recipe(table=_with_note)},
        "taco-meta-ids": {"local metadata of other numbers": Recipe(meta=_with_ids)},
        "taco-parent-root": {
            "parents of roots": Recipe(table=set_column(0, "internal:parent_id", [0, 0, 0]))
        },
        "taco-row-order": {"rows out of order": Recipe(table=at_level(2, _reordered))},
        "taco-pit-1": {
            "roots of both types": Recipe({**NESTED, "loose.bin": b"loose"}),
            "more children in one folder": Recipe(
                {**NESTED, "s99": {"imagery": _IMAGERY, "label.txt": b"1", "more.bin": b"2"}}
            ),
            "other ids in the depth": Recipe(
                {
                    **NESTED,
                    "s99": {"imagery": {"before.bin": b"1", "AFTER": b"2"}, "label.txt": b"3"},
                }
            ),
        },
    },
)
attacks(
    "either",
    {
        "taco-parent": {
            "parent of itself": Recipe(
                table=set_column(1, "internal:parent_id", lambda v: list(range(100, 100 + len(v))))
            ),
            "parents that are not there": Recipe(
                table=set_column(2, "internal:parent_id", first(77))
            ),
            "parents that are files": Recipe(table=set_column(2, "internal:parent_id", first(1))),
            "parents that nothing tells": Recipe(table=_no_way),
        },
        "taco-meta-span": {
            "spans of other samples in local metadata": Recipe(meta=_reversed_spans)
        },
        "taco-meta-missing": {"no local metadata": Recipe(meta_bytes=lambda path, data: None)},
        "taco-path": {
            "a cycle of paths": Recipe(
                table=set_column(2, "internal:relative_path", ["s2/imagery/s2/imagery"] * 6)
            )
        },
        "taco-folder-empty": {
            "folders without children": Recipe(table=at_level(2, lambda table: table.slice(0, 4)))
        },
        "taco-current-id": {
            "numbers of rows that appear twice": Recipe(
                table=set_column(1, "internal:current_id", lambda v: [0] * len(v))
            )
        },
        "taco-padding": {
            "padding that is not empty": Recipe({"a.bin": b"a", "__TACOPAD__0": b"not empty"})
        },
    },
)


# -- local headers, directory and end records that contradict each other ---------------------------


def _two_ends(data: bytes) -> bytes:
    count, size, start = struct.unpack("<H2I", data[-12:-2])
    return with_zip64_end(data, plain=True, values=(count + 2, size, start))


def _shared(place: Path) -> Path:
    starts: list[int] = []

    def before(archive: RawZip, name: str) -> None:
        if name == LEAF:
            starts.append(len(archive.buffer))
        if name == "METADATA/level0.parquet":
            data = b"s2-before" * 3
            archive.add("DATA/again", data, local=False, header_offset=starts[0])
            del archive.buffer[len(archive.buffer) - len(data) :]

    return zipped(Recipe(before=before))(place)


def _gap(archive: RawZip, name: str) -> None:
    if name == "COLLECTION.json":
        archive.gap(b"\0" * 50)


def _no_local_header(data: bytes) -> bytes:
    at = data.index(LEAF.encode()) - 30
    return data[:at] + b"XXXX" + data[at + 4 :]


attacks(
    "refused",
    {
        "zip-crc": {
            "directory has another checksum": Recipe(entry=on_entry(LEAF, crc=9, local_crc=9))
        }
    },
)


attacks(
    "refused",
    {
        "zip-encrypted": {"encrypted": Recipe(entry=on_entry(LEAF, flags=1))},
        "zip-compressed zip-content": {"compressed": Recipe(entry=on_entry(LEAF, method=8))},
        "zip-method": {"unknown method": Recipe(entry=on_entry(LEAF, method=99))},
    },
    error=InvalidMetadataError,
)

_DECOY = end_record(count=0, size=0, offset=0)
_LOCATOR = struct.pack("<4sIQI", b"PK\x06\x07", 0, 2**60, 1)


def _closed(**close: Any) -> Recipe:
    return Recipe(close=close)


attacks(
    "right",
    {
        "zip-trailing-bytes": {
            "bytes behind the end": _closed(trailing=b"more"),
            "comment longer than stated": _closed(comment=b"abc", stated_comment=1),
        },
        "zip-two-ends": {"two end records": _closed(comment=_DECOY)},
        "zip-local-note": {
            "other times in a local header": raw(_WHOLE[:10] + b"\x11\x22" + _WHOLE[12:])
        },
        "zip-shared-header": {"two entries of one header": Made(_shared, NESTED)},
        "zip-duplicate-name": {"entry appears twice": Recipe(entry=on_entry(LEAF, times=2))},
        "zip-undeclared-entry": {"entry hidden": Recipe(before=added("DATA/evil", listed=False))},
        "taco-entry-undeclared": {"entry that no row names": Recipe(before=added("DATA/evil"))},
        "zip-name": {"entry of a name that leads out": Recipe(before=added("../x"))},
        "zip-folder-entry": {"entry of a folder": Recipe(before=added("DATA/s2/", b""))},
        "zip-hole": {"hole": Recipe(before=_gap)},
        "zip-gap": {"bytes before the end": Recipe(FLAT, close={"before_end": b"\0" * 40})},
        "zip-zip64-mismatch": {"ZIP64 end of other numbers": Recipe(FLAT, after=_two_ends)},
    },
)
attacks(
    "either",
    {
        "zip-end": {
            "no end record": _closed(end=False),
            "comment shorter than stated": _closed(comment=b"abc", stated_comment=9),
        },
        "zip-directory": {
            "count of the end record": _closed(count=3),
            "directory too long": _closed(size=10**8),
            "ZIP64 sizes beyond any file": Recipe(
                entry=on_entry(
                    LEAF,
                    csize=0xFFFFFFFF,
                    size=0xFFFFFFFF,
                    local_size=27,
                    extra=struct.pack("<2H2Q", 1, 16, 2**64 - 1, 2**64 - 1),
                )
            ),
        },
        "zip-span": {"directory elsewhere": _closed(start=5)},
        "zip-zip64-locator": {"ZIP64 locator to nowhere": _closed(locator=_LOCATOR)},
        "zip-local-mismatch": {
            f"local header has another {name}": Recipe(entry=on_entry(LEAF, **how))
            for name, how in (
                ("name", {"local_name": b"DATA/s2/imagery/other!.bin"}),
                ("longer name", {"local_name": b"DATA/s2/imagery/before.bin.and.more"}),
                ("checksum", {"local_crc": 7}),
                ("size", {"local_size": 5}),
                ("method", {"local_method": 8}),
            )
        },
        "zip-local-header": {"local header gone": Recipe(after=_no_local_header)},
        "zip-size": {
            "sizes that are not equal": Recipe(
                entry=on_entry(LEAF, csize=27, size=26, local_size=27)
            )
        },
        "taco-entry-missing zip-undeclared-entry": {
            "row without an entry": Recipe(entry=on_entry(LEAF, listed=False))
        },
        "zip-name-encoding": {
            "name that is not UTF-8": Recipe(
                entry=on_entry("DATA/s2/label.txt", flags=0x800),
                after=lambda data: data.replace(b"DATA/s2/label.txt", b"DATA/s2/labe\xff.txt"),
            )
        },
        "zip-symlink": {
            "symbolic link": Recipe(entry=on_entry(LEAF, external=0o120777 << 16)),
            "entry of a device": Recipe(entry=on_entry(LEAF, external=0o060644 << 16)),
        },
        "zip-descriptor": {"data descriptor": Recipe(entry=on_entry(LEAF, flags=8))},
    },
)


# -- level tables that are no tables, or not such ones ---------------------------------------------


def _rows_lie(depth: int, data: bytes) -> bytes:
    """A footer that tells of more rows than there are (thrift: field 3 of the file metadata)."""
    marker = data.rfind(b"\x16\x08")
    return data[:marker] + b"\x16\x7f" + data[marker + 2 :]


def _nested_lists(depth: int, table: Any) -> Any:
    kind = pa.int64()
    for _ in range(12):
        kind = pa.list_(kind)
    return table.append_column("deep", pa.nulls(table.num_rows, kind))


attacks(
    "refused",
    {
        "limit-exceeded": {
            "too many columns": Recipe(
                FLAT, table=with_columns(**{f"c{number}": number for number in range(2_100)})
            ),
            "lists in lists": Recipe(FLAT, table=_nested_lists),
        }
    },
    error=LimitExceededError,
)
_SPOILS: dict[str, Callable[[int, bytes], bytes]] = {
    "cut": lambda depth, data: data[:-20],
    "zeroed": lambda depth, data: data[:-300] + bytes(292) + data[-8:],
    "length beyond the file": lambda depth, data: data[:-8] + struct.pack("<I", 2**31) + b"PAR1",
    "length of nothing": lambda depth, data: data[:-8] + struct.pack("<I", 0) + b"PAR1",
    "encrypted": lambda depth, data: data[:-4] + b"PARE",
    "empty": lambda depth, data: b"PAR1PAR1",
}


attacks(
    "refused",
    {
        "taco-column-null": {
            f"{column} is null": Recipe(FLAT, table=set_column(0, column, first(None)))
            for column in ("id", "type")
        },
        "taco-type": {"type is neither": Recipe(FLAT, table=set_column(0, "type", first("LINK")))},
    },
    error=(InvalidMetadataError, UnsafeContentError),
)
attacks(
    "refused",
    {
        "": {
            "more rows than there are": Recipe(FLAT, level_bytes=_rows_lie),
            "column name with control character": Recipe(FLAT, table=with_columns(**{"a\x07b": 1})),
            "column name with 200 bytes": Recipe(FLAT, table=with_columns(**{"c" * 200: 1})),
            "column name with newline": Recipe(FLAT, table=with_columns(**{"a\nb": 1})),
        },
        "taco-table": {
            f"footer {name}": Recipe(FLAT, level_bytes=spoil) for name, spoil in _SPOILS.items()
        },
    },
    error=OVER,
)
attacks(
    "refused",
    {
        "taco-column-missing": {
            f"no column {name}": Recipe(FLAT, table=without(name))
            for name in ("id", "type", "internal:offset", "internal:size")
        },
        "taco-column-type": {
            "ids are numbers": Recipe(FLAT, table=set_column(0, "id", [1, 2, 3, 4], pa.int64()))
        },
        "": {"column name that appears twice": Recipe(FLAT, table=with_columns(value=1))},
    },
    error=InvalidMetadataError,
)

_stored = with_columns(internal__gdal_vsi="/etc/passwd")
attacks(
    "right",
    {
        "": {
            "column names of SQL": Recipe(
                FLAT, table=with_columns(**{'"; DROP TABLE data; --': 1, "select": 2})
            )
        },
        "taco-stored-path": {
            "stored paths": Recipe(FLAT, table=_stored),
            "folder: stored paths": foldered(Recipe(FLAT, table=_stored)),
        },
    },
)


# -- columns of extensions -------------------------------------------------------------------------


def placed(extent: dict[str, Any]) -> Recipe:
    """Four rasters of 100 x 100 pixels of 0.1 degrees, west to east from (10, 50)."""
    columns = with_columns(
        stac__crs=["EPSG:4326"] * 4,
        stac__tensor_shape=[[1, 100, 100]] * 4,
        stac__geotransform=[[10.0 + 10 * n, 0.1, 0.0, 50.0, 0.0, -0.1] for n in range(4)],
        stac__time_start=pa.array([n * 10**12 for n in range(4)]).cast(pa.timestamp("us")),
        stac__time_end=pa.array([(n + 1) * 10**12 for n in range(4)]).cast(pa.timestamp("us")),
    )
    return Recipe(FLAT, table=columns, collection=fields(extent=extent))


_SQUARE = {"spatial": [0, 0, 1, 1], "temporal": None}
_FAR = np.full(4, 1_600_000_000_000_000, "datetime64[ms]")


attacks(
    "right",
    {
        "taco-extension-type": {
            f"{name} of another type": Recipe(FLAT, table=with_columns(**{name: [value] * 4}))
            for name, value in {
                "stac__crs": 4326,
                "stac__geotransform": "0 1 0 0 0 1",
                "stac__tensor_shape": [1.5, 2.5],
                "stac__centroid": "POINT (0 0)",
                "istac__geometry": "POINT (0 0)",
                "istac__time_start": "2024-01-01",
                "split": 1,
            }.items()
        },
        "taco-extension-value": {
            f"values of {columns}": Recipe(FLAT, table=with_columns(**columns))
            for columns in (
                {"stac__crs": ["EPSG:4326", "EPSG:0", None, None]},
                {"stac__geotransform": [[0.0, 1, 0, 0, 0, 1], None, [0.0], None]},
                {"stac__geotransform": [[0.0, float("inf"), 0, 0, 0, 1], None, None, None]},
                {"stac__tensor_shape": [[1, 4, 4], [4], None, None]},
                {"stac__tensor_shape": [[1, 4, 0], [4, 4], None, None]},
                {"stac__geotransform": [[0.0, 1, 0, 0, 0, 1, 0], None, None, None]},
                {"stac__centroid": [point(0, 0), point(200, 0), None, None]},
                {"stac__centroid": [point(0, 0), point(0, 91), None, None]},
                {"stac__time_middle": [1, 2, 3, None], "stac__time_end": [1, 1, 3, 4]},
                {"stac__time_start": [1, 2, 3, None], "stac__time_end": [1, 1, 3, 4]},
                {"istac__time_start": [1, 2, 3, None], "istac__time_middle": [1, 1, 3, 4]},
                {"split": ["train", "test", "dev", None]},
            )
        }
        | {
            "times beyond the year 9999": Recipe(
                FLAT, table=with_columns(stac__time_start=_FAR + 1, stac__time_end=_FAR)
            )
        },
        "taco-extension-value taco-extent-column": {
            "a centroid that is none": Recipe(
                FLAT, table=with_columns(istac__centroid=[point(0, 0), b"not a point", None, None])
            )
        },
        "taco-extent-column": {
            "places that are none": Recipe(
                FLAT,
                table=with_columns(stac__centroid=[b"not a geometry"] * 4),
                collection=fields(extent=_SQUARE),
            )
        },
        "taco-crs-missing": {
            f"outlines with {crs or 'no'} CRS": Recipe(
                FLAT,
                table=with_columns(istac__geometry=[point(0.5, 0.5)] * 4, **crs),
                collection=fields(extent=_SQUARE),
            )
            for crs in ({}, {"istac__crs": ["EPSG:4326", None] * 2})
        },
    },
)


# -- COLLECTION.json that is not a collection -----------------------------------------------------

attacks(
    "refused",
    {
        "taco-version": {
            f"version {version!r}": Recipe(FLAT, collection=fields(taco_version=version))
            for version in ("3.0.0", "1.0.0", ["2.0.0"])
        }
    },
    error=UnsupportedVersionError,
)
_COZIP = struct.pack("<4s5H3I2H", b"PK\3\4", 10, 0, 0, 0, 0, 0, 0, 0, 9, 0) + b"__cozip__"
attacks(
    "refused",
    {"": {"TACO 3": raw(_COZIP + bytes(300))}},
    error=UnsupportedVersionError,
    check_raises=UnsupportedVersionError,
)
_NO_DOCUMENTS = {
    "taco-collection": {
        "not UTF-8": b'{"id": "\xff\xfe"}',
        "no object": b"[1, 2]",
        "text": b"hello",
        "cut": b'{"id": "x"',
        "NaN": b'{"id": NaN}',
        "key twice": b'{"id": "a", "id": "b"}',
    },
    "limit-exceeded": {
        "endless integer": b'{"id": ' + b"9" * 5000 + b"}",
        "deep": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "huge": b'{"a": "' + b"x" * (17 << 20) + b'"}',
    },
}


def _documented(data: bytes) -> Recipe:
    return Recipe(FLAT, collection_bytes=lambda _: data)


attacks(
    "refused",
    {
        code: {f"collection {name}": _documented(data) for name, data in texts.items()}
        for code, texts in _NO_DOCUMENTS.items()
    },
    error=OVER,
)
attacks(
    "refused",
    {
        "taco-pit-schema": {
            f"structure {name}": Recipe(FLAT, collection=fields(taco__pit_schema=pit))
            for name, pit in (
                ("missing", None),
                ("negative", {"root": {"n": -1, "type": "FILE"}, "hierarchy": {}}),
                ("with a gap", {"root": {"n": 4, "type": "FILE"}, "hierarchy": {"5": []}}),
            )
        }
    },
    error=InvalidMetadataError,
)


def _counted(document: dict[str, Any]) -> dict[str, Any]:
    pit = document["taco:pit_schema"]
    return {**document, "taco:pit_schema": {**pit, "root": {**pit["root"], "n": 99}}}


def _described(change: Callable[[list[Any]], list[Any]]) -> Recipe:
    """One thing in the description of the columns that is not as it should be."""
    return Recipe(
        FLAT, collection=lambda d: fields(taco__field_schema={"level0": change(_columns(d))})(d)
    )


def _columns(document: dict[str, Any]) -> list[Any]:
    return list(document["taco:field_schema"]["level0"])


def _patterned(**change: Any) -> Recipe:
    """A pattern of the first level that is not that of the rows."""

    def document(found: dict[str, Any]) -> dict[str, Any]:
        pit = found["taco:pit_schema"]
        first = [{**pit["hierarchy"]["1"][0], **change}]
        return fields(taco__pit_schema={**pit, "hierarchy": {**pit["hierarchy"], "1": first}})(
            found
        )

    return Recipe(collection=document)


_ODD_FIELDS: dict[str, list[dict[str, Any]]] = {
    "taco-collection-field": [{"id": "Upper Case"}, {"licenses": []}, {"providers": 3}],
    "taco-collection-note": [{"tasks": ["dreaming"]}],
    "taco-licence": [{"licenses": ["my own terms"]}],
    "taco-field-schema": [
        {"taco:field_schema": value}
        for value in (5, {"level0": [["id", "int64", ""]]}, {"level0": "x"})
    ],
    "taco-extent": [
        {"extent": {"spatial": [0, 0, 0]}},
        {"extent": {"temporal": ["2020", "x"]}},
    ],
}
_ODD_EXTENTS: dict[str, list[dict[str, Any]]] = {
    "taco-extent": [
        {"spatial": [10, 40, 50, 50], "temporal": ["soon", "later"]},
        {"spatial": None, "temporal": ["1999-01-01", "1970-01-01"]},
    ],
    "taco-extent-space": [
        {"spatial": [10, 40, 40, 50], "temporal": None},
        {"spatial": [20, 40, 15, 49], "temporal": None},
    ],
    "taco-extent-time": [
        {"spatial": None, "temporal": ["1970-01-01T00:00:01Z", "1999-01-01T00:00:00Z"]},
        {"spatial": None, "temporal": ["1970-01-01T00:00:00Z", "1970-02-16T07:06:39Z"]},
    ],
}

_ODD_DOCUMENTS = {
    code: {f"collection with {one}": Recipe(FLAT, collection=fields(**one)) for one in odd}
    for code, odd in _ODD_FIELDS.items()
}
for code, extents in _ODD_EXTENTS.items():
    _ODD_DOCUMENTS.setdefault(code, {}).update(
        {f"extent of samples is {one}": placed(one) for one in extents}
    )
_ODD_DOCUMENTS["taco-field-schema"] |= {
    "a column of another type": _described(lambda level: [["id", "int64", ""], *level[1:]]),
    "a column that is not described": _described(lambda level: level[1:]),
    "a column that is not there": _described(lambda level: [*level, ["x", "string", ""]]),
    "a column described by its name": _described(lambda level: [["id"], *level[1:]]),
    "a column described by four things": _described(lambda level: [[*level[0], ""], *level[1:]]),
}
attacks(
    "right",
    {
        **_ODD_DOCUMENTS,
        "taco-pit-count": {
            "stale counts": Recipe(collection=_counted),
            "stale counts below": _patterned(n=5),
        },
        "taco-pit-schema": {
            "roots of another type": Recipe(
                FLAT,
                collection=fields(
                    taco__pit_schema={"root": {"n": 4, "type": "FOLDER"}, "hierarchy": {}}
                ),
            ),
            "children of other types": _patterned(type=["FILE", "FOLDER"]),
            "children of other ids": _patterned(id=["imagery", "label.csv"]),
        },
    },
)


# -- ids that could leave their folder, hide, or be taken for another ------------------------------

# Of each kind of name one or two; all are in `tests/test_names.py`.
_ILLEGAL = (".", "", "a/b", "a\u202eb")
_RISKY = ("nul", "a*b", "a%2fb", "x" * 300)

attacks(
    "right",
    {
        "taco-id-risky": {
            f"risky id {name[:20]!r}": Recipe({name: b"risky", "b": b"other"}) for name in _RISKY
        },
        "taco-id-alike": {"ids alike": Recipe({"a.bin": b"1", "A.bin": b"2"})},
    },
)
attacks(
    "either",
    {
        "taco-id": {
            f"id {name!r}": Recipe(FLAT, table=set_column(0, "id", first(name)))
            for name in _ILLEGAL
        },
        "taco-id-twice": {
            "id twice": Recipe({"a": b"same", "b": b"same"}, table=set_column(0, "id", ["b", "b"]))
        },
    },
)


# -- loose files: links, pipes, paths that lead elsewhere ------------------------------------------


def _secret(target: Path) -> Path:
    secret = target.parent / "secret.txt"
    secret.write_bytes(b"secret")
    return secret


def _linked_file(target: Path) -> None:
    leaf = target / LEAF
    leaf.unlink()
    leaf.symlink_to(_secret(target))


def _linked_folder(target: Path) -> None:
    outside = target.parent / "outside"
    (target / LEAF).parent.rename(outside)
    (target / LEAF).parent.symlink_to(outside)


def _pipe(target: Path) -> None:
    (target / "DATA/s1/label.txt").unlink()
    os.mkfifo(target / "DATA/s1/label.txt")


attacks(
    "refused",
    {
        "taco-symlink": {"folder: link to a file": foldered(Recipe(), _linked_file)},
        "taco-symlink unsafe-content": {
            "folder: link to a folder": foldered(Recipe(), _linked_folder)
        },
    },
    error=UnsafeContentError,
)

_PATHS = (
    *("../../secret.txt", "/tmp/evil-of-comal", "file:///etc/passwd", "..\\secret.txt"),
    *("a\0b", "..", "a/../../evil", "C:\\evil", "__meta__"),
)
_FORMS: dict[str, tuple[Callable[[Recipe], Made], int]] = {
    "zip": (zipped, len(_PATHS)),
    "folder": (lambda recipe: foldered(recipe, _secret), 3),
}
"""What writes a form, and how many of the paths it gets."""
attacks(
    "refused",
    {
        "taco-path": {
            f"{form}: relative_path {path!r}": write(
                Recipe(table=set_column(2, "internal:relative_path", first(path)))
            )
            for form, (write, count) in _FORMS.items()
            for path in _PATHS[:count]
        },
        "taco-id": {
            f"{form}: id {path!r}": write(Recipe(FLAT, table=set_column(0, "id", first(path))))
            for form, (write, count) in _FORMS.items()
            for path in _PATHS[:count]
        },
    },
    error=(InvalidMetadataError, UnsafeContentError),
)
attacks(
    "refused",
    {
        "taco-symlink": {"folder: pipe": foldered(Recipe(), _pipe)},
        "taco-file-missing": {
            "folder: file gone": foldered(Recipe(), lambda at: (at / "DATA/s1/label.txt").unlink())
        },
    },
)
attacks(
    "refused",
    {
        "taco-level-missing": {
            "folder: level gone": foldered(
                Recipe(), lambda at: (at / "METADATA/level1.parquet").unlink()
            )
        }
    },
    error=InvalidMetadataError,
)
attacks(
    "right",
    {
        "taco-file-extra": {
            "folder: file too many": foldered(
                Recipe(), lambda at: (at / "DATA/s1/x").write_bytes(b"x")
            )
        },
        "taco-meta-missing": {
            "folder: no local metadata": foldered(
                Recipe(), lambda at: (at / "DATA/s1/__meta__").unlink()
            )
        },
    },
)


# -- an index that contradicts its ZIPs ------------------------------------------------------------


def _lengthened(place: Path) -> None:
    with (place / "__TACOCAT__").open("ab") as file:
        file.write(b"more")


def _part_written(data: bytes) -> Callable[[Path], Any]:
    return lambda place: (place / "a.tacozip").write_bytes(data)


attacks(
    "refused",
    {
        "taco-source-missing": {
            "index: no such ZIP": indexed(
                "single", then=lambda place: (place / "a.tacozip").unlink()
            )
        }
    },
)
attacks(
    "either",
    {
        "taco-source": {
            "index: source of a row": indexed(
                table=set_column(0, "internal:source_file", first("../x"))
            )
        },
        "taco-source-broken": {
            "index: ZIP that is none": indexed(then=_part_written(b"PK")),
            "index: ZIP cut short": indexed(then=_part_written(PARTS["a.tacozip"].build()[:-30])),
        },
        "taco-source-rows": {
            "index: other values": indexed(
                table=set_column(1, "label", lambda v: ["other"] * len(v))
            ),
            "index: another value in the first row": indexed(
                table=set_column(1, "label", first("other"))
            ),
            "index: a row less": indexed(
                table=lambda depth, table: table.slice(0, table.num_rows - 1)
            ),
            "index: a column less": indexed(table=without("label")),
        },
        "zip-crc": {
            "index: rot in a ZIP": indexed(
                then=_part_written(_rotten(PARTS["a.tacozip"].build(), b"s2-before", 3))
            )
        },
        "taco-source-rows taco-offset-mismatch": {
            "index: other spans": indexed(
                table=set_column(2, "internal:offset", lambda v: [one + 1 for one in v])
            )
        },
    },
)
attacks(
    "right",
    {
        "taco-source-stale": {
            "index: stale count": indexed(
                "single", collection=fields(_tacocat={"num_datasets": 7})
            ),
            "index: provenance that is no object": indexed("single", collection=fields(_tacocat=7)),
            "index: list of ZIPs that is none": indexed(
                collection=fields(taco__sources={"files": {"a.tacozip": 1}})
            ),
            "index: name of a ZIP that is none": indexed(
                collection=fields(taco__sources={"files": ["a.tacozip", "b.tacozip", 1]})
            ),
        },
        "taco-source-unlisted": {
            "index: ZIP not listed": indexed(
                collection=fields(taco__sources={"files": ["a.tacozip"]})
            )
        },
        "zip-trailing-bytes": {"index: bytes behind it": indexed("single", then=_lengthened)},
    },
)
