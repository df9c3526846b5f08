"""What frames of Tortillas alone do: items without a path for GDAL, and many of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa

from comal import tortilla
from comal.tortilla import spec
from tests.tortilla import build
from tests.tortilla.build import Item


def test_items_of_bytes_and_of_files(tmp_path: Path) -> None:
    inner = build.built([Item("x", b"inside", "GTiff"), Item("y", b"deep")])
    items = [Item("a", b"aaa", more={"n": 1}), Item("roi", inner, "TORTILLA", {"n": None})]
    path = build.write(tmp_path, build.built(items))
    frame = tortilla.open(path)
    assert frame["a"] == frame[0] == b"aaa"
    assert frame["roi/y"] == b"deep"
    assert frame["roi/x"] == f"/vsisubfile/{frame.leaf('roi/x').offset}_6,{path}"
    assert frame.vsi("a") == f"/vsisubfile/200_3,{path}"
    assert frame.leaf("roi").format == "TORTILLA"
    assert set(frame[["n"]].columns) == {"n", *spec.NAVIGATION[1:5], spec.SUBFILE}
    assert frame.tail(1).read("roi/y") == b"deep"
    assert frame.read("roi").read_bytes() == [b"inside", b"deep"]
    assert "1 nested" in repr(frame)
    deep = frame.flatten().where("\"internal:path\" = 'roi/y'")
    part = tortilla.open(tortilla.compile(deep, tmp_path / "part.tortilla"))
    assert (part[spec.ID].to_pylist(), part.read_bytes()) == (["y"], [b"deep"])

    async def everything() -> None:
        again = await tortilla.open_async(path)
        assert again.to_arrow().equals(frame.to_arrow())
        assert await again.read_async("roi/y") == b"deep"
        assert await again.read_bytes_async([0, "roi/y"]) == [b"aaa", b"deep"]
        assert (await again.flatten_async()).to_arrow().equals(frame.flatten().to_arrow())

    asyncio.run(everything())


def test_no_rows_as_python_objects_are_needed_for_a_million(tmp_path: Path) -> None:
    count = 100_000
    table = pa.table(
        {
            spec.ID: pa.array(np.char.add("s", np.arange(count).astype(str))),
            spec.FILE_FORMAT: pa.array(np.repeat("BYTES", count)),
            spec.OFFSET: pa.array(200 + np.arange(count)),
            spec.LENGTH: pa.array(np.ones(count, np.int64)),
        }
    )
    ending = build.footer(table)
    body = bytes(np.arange(count, dtype=np.int64).astype(np.uint8))
    target = tmp_path / "many.tortilla"
    target.write_bytes(build.header(200 + count, len(ending)) + body + ending)
    frame = tortilla.open(target)
    assert frame[spec.SUBFILE][99_999].as_py() == f"/vsisubfile/100199_1,{target}"
    for row in (0, 77_777, 99_999):
        assert frame.read(f"s{row}") == bytes([row % 256])
