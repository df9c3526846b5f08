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
WORLD = [-180.0, -85.0511287798066, 180.0, 85.0511287798066]


def png(color: tuple[int, ...], side: int = 256) -> bytes:
    """A picture of one colour."""
    out = io.BytesIO()
    mode = "RGBA" if len(color) == 4 else "RGB"
    Image.new(mode, (side, side), color).save(out, "PNG")
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


def vector_tile(layers: Mapping[str, Iterable[tuple[str, Any]]]) -> bytes:
    """A gzipped Mapbox vector tile: per layer features as (``point|line|polygon``, coordinates),
    or (``rings``, list of coordinates)."""
    body = b"".join(_field(3, _layer(name, features)) for name, features in layers.items())
    return gzip.compress(body, mtime=0)


def _layer(name: str, features: Iterable[tuple[str, Any]]) -> bytes:
    parts = [_field(15, 2), _field(1, name.encode())]
    for kind, coordinates in features:
        if kind == "rings":
            number = 3
            values = _rings(coordinates)
        else:
            number = ["", "point", "line", "polygon"].index(kind)
            values = _commands(kind, coordinates, [0, 0])
        geometry = b"".join(_varint(value) for value in values)
        tags = b"".join((_varint(0), _varint(0)))
        parts.append(_field(2, _field(2, tags) + _field(3, number) + _field(4, geometry)))
    parts += [_field(3, b"name"), _field(4, _field(1, b"a feature")), _field(5, 4096)]
    return b"".join(parts)


def _rings(rings: list[list[tuple[int, int]]]) -> Iterable[int]:
    cursor = [0, 0]
    for ring in rings:
        yield from _commands("polygon", ring, cursor)


def _commands(kind: str, points: list[tuple[int, int]], cursor: list[int]) -> Iterable[int]:
    for index, point in enumerate(points):
        if index == 0:
            yield (len(points) if kind == "point" else 1) << 3 | 1
        elif index == 1 and kind != "point":
            yield (len(points) - 1) << 3 | 2
        for step in (point[0] - cursor[0], point[1] - cursor[1]):
            yield (step << 1) ^ (step >> 31)
        cursor[:] = point
    if kind == "polygon":
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


def corrupt(path: Path, name: str) -> None:
    """Change a byte of an entry's payload, so that its checksum is wrong."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    data = bytearray(path.read_bytes())
    name_size, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
    data[info.header_offset + 30 + name_size + extra + 40] ^= 0xFF
    path.write_bytes(data)
