"""Archives for the pages: tilesets by `zipfile`, vector tiles byte by byte, RaQuet by pyarrow."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.raquet import build

Tile = tuple[int, int, int]
RED, BLUE = (200, 30, 40), (30, 60, 190)
WORLD = [-180.0, -85.0511287798066, 180.0, 85.0511287798066]


def png(color: tuple[int, ...], side: int = 256) -> bytes:
    """A picture of one colour."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), color).save(out, "PNG")
    return out.getvalue()


def tiles_to(zoom: int) -> Iterable[Tile]:
    """All tiles of the zooms up to one."""
    for z in range(zoom + 1):
        for x in range(2**z):
            for y in range(2**z):
                yield z, x, y


def tileset(
    folder: Path,
    tiles: Mapping[Tile, bytes],
    *,
    extension: str,
    comments: Mapping[Tile, Any] | None = None,
    deflate: bool = False,
    **fields: Any,
) -> Path:
    """Write a Tapalcatl 2 tree; `fields` overwrite those of its document."""
    zooms = sorted({z for z, _, _ in tiles})
    meta: dict[str, Any] = {
        "tapalcatl": "2.0.0",
        "name": "made",
        "minzoom": zooms[0],
        "maxzoom": zooms[-1],
        "bounds": WORLD,
        "formats": {extension: [{"Content-Type": "image/png"}]},
        "metatile": 1,
        "materializedZooms": [0],
        "source": "{z}/{x}/{y}.zip",
        **fields,
    }
    archives: dict[Tile, list[Tile]] = {}
    for tile in sorted(tiles):
        archives.setdefault(_archive(tile, meta), []).append(tile)
    for (z, x, y), members in archives.items():
        path = folder / str(z) / str(x) / f"{y}.zip"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.comment = json.dumps({**meta, "root": f"{z}/{x}/{y}"}).encode("ascii")[:60_000]
            for tile in members:
                info = zipfile.ZipInfo(
                    "{}/{}/{}.{}".format(*tile, extension), (2024, 5, 6, 7, 8, 10)
                )
                info.compress_type = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
                if comments and tile in comments:
                    info.comment = json.dumps(comments[tile]).encode("ascii")
                archive.writestr(info, tiles[tile])
    folder.mkdir(exist_ok=True)
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def _archive(tile: Tile, meta: Mapping[str, Any]) -> Tile:
    z, x, y = tile
    root = max(zoom for zoom in meta["materializedZooms"] if zoom <= z)
    x, y = x >> (z - root), y >> (z - root)
    return root, x - x % meta["metatile"], y - y % meta["metatile"]


def vector_tile(layers: Mapping[str, list[tuple[int, int]]]) -> bytes:
    """A gzipped Mapbox vector tile, each layer with one polygon of these corners."""
    body = b"".join(_field(3, _layer(name, corners)) for name, corners in layers.items())
    return gzip.compress(body, mtime=0)


def _layer(name: str, corners: list[tuple[int, int]]) -> bytes:
    tags = _varint(0) + _varint(0)
    geometry = b"".join(_varint(value) for value in _polygon(corners))
    feature = _field(2, tags) + _field(3, 3) + _field(4, geometry)
    values = _field(3, b"name") + _field(4, _field(1, b"a feature"))
    return _field(15, 2) + _field(1, name.encode()) + _field(2, feature) + values + _field(5, 4096)


def _polygon(corners: list[tuple[int, int]]) -> Iterable[int]:
    """Its commands: move to the first corner, lines to the others, close."""
    before = (0, 0)
    for index, corner in enumerate(corners):
        if index == 0:
            yield 1 << 3 | 1
        elif index == 1:
            yield (len(corners) - 1) << 3 | 2
        for step in (corner[0] - before[0], corner[1] - before[1]):
            yield (step << 1) ^ (step >> 31)
        before = corner
    yield 1 << 3 | 7


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def raquet(
    path: Path,
    tiles: Mapping[Tile, list[np.ndarray[Any, Any]]],
    bands: list[dict[str, Any]],
    **fields: Any,
) -> Path:
    """Write a RaQuet file with one tile per page, metadata first, as comal lays it out."""
    block = next(iter(tiles.values()))[0].shape
    names = [(band["name"], band["type"], None) for band in bands]
    change = {"bounds": WORLD, "bands": bands, **fields}
    return build.write(path, tiles, build.Plan(bands=names, block=block, change=change))


def pyramid(zoom: int, pixels: Callable[[Tile], list[np.ndarray[Any, Any]]]) -> dict[Tile, Any]:
    """Tiles of all zooms up to one."""
    return {tile: pixels(tile) for tile in tiles_to(zoom)}


def ramp_tile(tile: Tile, side: int = 64, dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Values that grow from west to east over the world: 0 to 100."""
    z, x, _ = tile
    row = (x + (np.arange(side) + 0.5) / side) / 2**z * 100
    return np.tile(row, (side, 1)).astype(dtype)


def halves(folder: Path, comments: Mapping[Tile, Any], **options: Any) -> Path:
    """A tileset of zooms 0 to 3 that is red west of Greenwich and blue east of it."""
    tiles = {(z, x, y): png(BLUE if z and x >= 2 ** (z - 1) else RED) for z, x, y in tiles_to(3)}
    return tileset(folder, tiles, extension="png", comments=comments, name="Two halves", **options)


def shapes(folder: Path, **fields: Any) -> Path:
    """A tileset of vector tiles, each with a band of water in its middle half."""
    band = [(0, 1024), (4096, 1024), (4096, 3072), (0, 3072)]
    tiles = {tile: vector_tile({"water": band}) for tile in tiles_to(2)}
    headers = [{"Content-Type": "application/vnd.mapbox-vector-tile"}, {"Content-Encoding": "gzip"}]
    return tileset(
        folder, tiles, extension="mvt", formats={"mvt": headers}, name="Shapes", **fields
    )


def ramp(path: Path) -> Path:
    """A raster whose values grow from west to east."""
    tiles = pyramid(2, lambda tile: [ramp_tile(tile)])
    return raquet(path, tiles, [{"name": "level", "type": "float32", "unit": "m"}])


def corrupt(path: Path, name: str) -> None:
    """Change a byte of an entry's payload, so that its checksum is wrong."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    data = bytearray(path.read_bytes())
    name_size, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
    data[info.header_offset + 30 + name_size + extra + 40] ^= 0xFF
    path.write_bytes(data)
