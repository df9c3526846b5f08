"""What can be wrong with any container: no file, spans, cycles, cuts and rot."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from comal.errors import InvalidMetadataError, NotThisFormatError
from tests.attacks.build import FLAT, RawZip, Recipe
from tests.attacks.corpus.base import ANY, attack, on_entry, raw, set_column


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
