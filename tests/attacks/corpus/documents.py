"""COLLECTION.json that is no collection."""

from __future__ import annotations

import struct

from comal.errors import InvalidMetadataError, LimitExceededError, UnsupportedVersionError
from tests.attacks.build import FLAT, Recipe
from tests.attacks.corpus.base import attack, constant, fields, raw

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
