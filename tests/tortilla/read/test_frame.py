"""What frames of Tortillas alone do: items without a path for GDAL, and many of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

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
