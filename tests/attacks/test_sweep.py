"""One byte changed, or the end cut off, at every place of a small archive.

Each run takes a sample of the places; ``COMAL_FULL_SWEEP=1`` takes all of them.
"""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from comal.errors import NotThisFormatError, UnsupportedVersionError
from comal.taco.checking import check
from tests.attacks.build import FLAT, NESTED, Recipe, Tree
from tests.attacks.reading import read_everything

_FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))
_SEED = int(os.environ.get("COMAL_SWEEP_SEED", "20251121"))
_PLACES = 60


def unused_bytes(data: bytes) -> set[int]:
    """Offsets of header fields that no reader uses and that stand once: who made the entry, and
    its attributes."""
    found = set()
    end = data.rfind(b"PK\x05\x06")
    position, size = struct.unpack_from("<I", data, end + 16)[0], 0
    while position < end:
        found |= {position + 4, position + 5}  # version made by
        found |= set(range(position + 36, position + 42))  # internal and external attributes
        size = 46 + sum(struct.unpack_from("<3H", data, position + 28))
        position += size
    return found


def places(count: int, name: str) -> list[int]:
    """All offsets, or a sample of them that is the same in every run."""
    if _FULL:
        return list(range(count))
    return sorted(random.Random(f"{_SEED}{name}").sample(range(count), min(_PLACES, count)))


ARCHIVES: list[tuple[str, Tree, bytes]] = [
    ("flat", FLAT, Recipe(tree=FLAT).build()),
    ("nested", NESTED, Recipe(tree=NESTED).build()),
]
"""What is swept: about 6 and 29 KB."""


@pytest.mark.parametrize(("name", "tree", "data"), ARCHIVES, ids=["flat", "nested"])
def test_no_changed_byte_is_handed_out_or_missed(
    name: str, tree: Tree, data: bytes, tmp_path: Path
) -> None:
    target = tmp_path / "swept.tacozip"
    unused = unused_bytes(data)
    assert len(unused) < len(data) / 100
    missed = []
    for place in places(len(data), name):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        target.write_bytes(changed)
        readings = read_everything(target, tree)
        assert readings.wrong == [], f"byte {place}"
        try:
            report = check(target)
        except (NotThisFormatError, UnsupportedVersionError):
            continue
        if not report.total and place not in unused:
            missed.append(place)
    assert missed == []


@pytest.mark.parametrize(("name", "tree", "data"), ARCHIVES, ids=["flat", "nested"])
def test_no_shortened_file_is_taken_for_whole(
    name: str, tree: Tree, data: bytes, tmp_path: Path
) -> None:
    target = tmp_path / "cut.tacozip"
    for size in places(len(data), name + "cut"):
        target.write_bytes(data[:size])
        readings = read_everything(target, tree)
        assert readings.wrong == [], f"cut to {size}"
        try:
            report = check(target)
        except NotThisFormatError:
            assert size < 157
            continue
        assert not report.ok, f"cut to {size}"
