"""TACO_HEADER that is not what it should be (TACO 2.0, 6.3)."""

from __future__ import annotations

from pathlib import Path

from comal.errors import InvalidMetadataError, NotThisFormatError
from tests.attacks.build import RawZip, Recipe, header_payload
from tests.attacks.corpus.base import ANY, attack, first_slot, slots, zipped


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
