"""A central directory gone through in blocks."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fakes import MemorySource

from comal.errors import InvalidMetadataError, NotThisFormatError
from comal.plan import run
from comal.storage import open_source
from comal.ziparchive import Directory, directory_plan
from comal.ziparchive.directory import entry_blocks

SIGNATURE = b"PK\x01\x02".decode()


def fetched(path: Path, block: int) -> list[Directory]:
    source = MemorySource.of(path.read_bytes())
    blocks = list(entry_blocks(source.fetch, block=block))
    # No more than a block is fetched at once, or what a header may take.
    assert max(len(source.fetch(wanted)[0].data) for wanted in [*source.log]) <= max(block, 200_000)
    return blocks


def archive(path: Path, names: Sequence[str]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for number, name in enumerate(names):
            file.writestr(name, b"x" * (number % 5))
    return path


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["a"],
        [f"DATA/sample_{n:06}" for n in range(9_000)],
        [f"{'é' * (n % 90)}{n}" for n in range(9_000)],
        [f"{n:0200}" for n in range(9_000)],
        [f"{SIGNATURE if n % 7 == 0 else 'x' * 40}{n}{SIGNATURE}" for n in range(9_000)],
    ],
    ids=["none", "one", "many", "unicode", "long", "signatures"],
)
def test_blocks_are_the_directory(tmp_path: Path, names: list[str]) -> None:
    path = archive(tmp_path / "a.zip", names)
    blocks = fetched(path, 1)
    assert len(blocks) > 1 or len(names) < 9_000
    with open_source(path) as source:
        whole = run(directory_plan(), source.fetch)
    assert [name for block in blocks for name in block.names.to_pylist()] == names
    for column in ("payload_offsets", "size", "crc", "csize"):
        parts: list[Any] = [getattr(block, column) for block in blocks]
        found = np.concatenate([np.zeros(0, np.int64), *parts])
        assert found.tolist() == getattr(whole, column).tolist()


def test_a_directory_that_is_cut_or_counted_wrong(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", [f"{n}" for n in range(10)])
    data = bytearray(path.read_bytes())
    end = data.rindex(b"PK\x05\x06")
    for place, wrong in ((end + 8, b"\x09\0\x09\0"), (end - 47, b"nope")):
        changed = bytearray(data)
        changed[place : place + 4] = wrong
        path.write_bytes(changed)
        with pytest.raises(InvalidMetadataError):
            fetched(path, 1 << 20)
    path.write_bytes(b"no archive at all" * 10)
    with pytest.raises(NotThisFormatError):
        fetched(path, 1 << 20)
