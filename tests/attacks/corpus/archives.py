"""Local headers, directory and end records that contradict each other."""

from __future__ import annotations

import struct

from comal.errors import InvalidMetadataError
from tests.attacks.build import Recipe
from tests.attacks.corpus.base import LEAF, attack, on_entry

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
    "entry stands twice", Recipe(entry=on_entry(LEAF, times=2)), "zip-duplicate-name", reads="right"
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
