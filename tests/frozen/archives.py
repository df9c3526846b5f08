"""Facts of archives: reports of damaged ones, what sound ones hold, and what reading them costs."""

from __future__ import annotations

import json
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import comal
from comal import raquet, taco, tapalcatl, tortilla
from comal.errors import ComalError
from comal.grid import quadbin
from comal.taco import checking
from tests.attacks import test_raquet, test_tapalcatl, test_tortilla
from tests.attacks.corpus import ATTACKS
from tests.frozen.jobs import Fact, digest, made, tree
from tests.raquet.checking import damage
from tests.raquet.checking import test_check as rasters
from tests.servers.http import MISSING, HttpServer
from tests.tapalcatl.checking import test_check as tiles

KINDS = {
    "TacoDataset": taco,
    "TortillaFrame": tortilla,
    "RaquetFile": raquet,
    "TileSet": tapalcatl,
}
_MOST_ROWS = 12
_MOST_TILES = 16
_PATHS = ("vsi", "subfile", "source_file")
"""Endings of columns that hold paths."""
_WORLD = (-180, -90, 180, 90)


def attempt(call: Callable[[], object]) -> str:
    """What a call gives, or class, code and text of its error."""
    try:
        return str(call())
    except ComalError as error:
        return f"{type(error).__name__} {error.code} {error}"


# -- damaged archives ------------------------------------------------------------------------------


def damaged(folder: Path) -> Iterator[tuple[str, Any, Path]]:
    """Every damage that tests know: its name, the package that checks it, and the archive."""
    for attack in ATTACKS:
        path = attack.make(_place(folder, "taco", attack.name))
        if folder in path.parents and not any(_is_pipe(one) for one in (path, *path.rglob("*"))):
            yield f"taco {attack.name}", checking, path
    for name, (data, _, _) in test_tortilla.ATTACKS.items():
        yield f"tortilla {name}", tortilla, _put(folder, "tortilla", name, data)
    files = {name: (damage.sound, change) for name, (_, change) in rasters.CASES.items()}
    files |= {f"nested {name}": (damage.nested, d) for name, (_, d) in rasters.NESTED.items()}
    files |= {f"bomb {name}": (damage.sound, d) for name, (d, _) in test_raquet.BOMBS.items()}
    for name, (sound, change) in files.items():
        file = sound()
        change(file)
        yield f"raquet {name}", raquet, file.write(_place(folder, "raquet", name) / "a.parquet")
    zips = tiles.SOUND | {name: data for name, (data, _) in tiles.ODD.items()}
    zips |= {f"bomb {name}": data for name, data in test_tapalcatl.BOMBS.items()}
    zips |= {f"broken {name}": data for name, (data, _) in test_tapalcatl.CORPUS.items()}
    for name, data in zips.items():
        yield f"tapalcatl {name}", tapalcatl, _put(folder, "tapalcatl", name, data)


def _place(folder: Path, kind: str, name: str) -> Path:
    place = folder / kind / digest(name.encode())
    place.mkdir(parents=True)
    return place


def _put(folder: Path, kind: str, name: str, data: bytes) -> Path:
    path = _place(folder, kind, name) / "a"
    path.write_bytes(data)
    return path


def _is_pipe(path: Path) -> bool:
    return stat.S_ISFIFO(path.lstat().st_mode)


def checks(folder: Path) -> Iterator[Fact]:
    """Codes, number and first problem of a check, and the error of opening, of every damage."""
    for name, package, path in damaged(folder):
        for what, call in (
            ("check", partial(reported, package, path)),
            ("open", partial(_kind, path)),
        ):
            yield f"{name} {what}", attempt(call).replace(str(folder), "FOLDER")


def reported(package: Any, path: Path) -> str:
    """Codes, number and first problem of a check, which says all in words and does not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = package.check(path)
    assert set(report.counts) <= set(package.CODES)
    assert report.ok == (not any(package.CODES[code][0] == "error" for code in report.counts))
    for problem in report.problems:
        assert problem.severity == package.CODES[problem.code][0]
        assert problem.place
        assert problem.message
    first = next(iter(report.problems), None)
    shown = "" if first is None else f"{first.severity} {first.place}: {first.message}"
    return f"{json.dumps(report.counts, sort_keys=True)} {shown}"


@contextmanager
def opened(href: Path | str) -> Iterator[Any]:
    """An open archive; a Tortilla holds nothing that must be closed."""
    reader = comal.open(href)
    try:
        yield reader
    finally:
        if not isinstance(reader, tortilla.TortillaFrame):
            reader.close()


def _kind(path: Path) -> str:
    with opened(path) as reader:
        return type(reader).__name__


# -- sound archives --------------------------------------------------------------------------------


def archives(folder: Path) -> Iterator[tuple[str, Path]]:
    """The archives that jobs read, and what functions make of them; commands make the same.

    Of equal ones the first.
    """
    first: dict[str, str] = {}
    for name, path in made(folder).items():
        if not name.startswith("comal ") and first.setdefault(tree(path), name) == name:
            yield name, path


def reads(folder: Path) -> Iterator[Fact]:
    """What archives hold, by every way of reading."""
    for name, path in archives(folder):
        kind = attempt(partial(_kind, path))
        yield f"{name} open", kind.replace(str(folder), "FOLDER")
        if kind in KINDS:
            with opened(path) as reader:
                for way, call in _ways(reader):
                    yield f"{name} {way}", attempt(call).replace(str(folder), "FOLDER")


def _ways(reader: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    kind = type(reader).__name__
    if kind == "TacoDataset":
        yield "sql", lambda: _table(reader.sql("SELECT * FROM data ORDER BY id LIMIT 3").data)
        yield "level 1", lambda: _table(reader.sql("SELECT * FROM level1").data)
        yield "rows", lambda: _rows(reader.data)
        yield "bbox", lambda: len(reader.filter_bbox(*_WORLD).data)
        yield "datetime", lambda: len(reader.filter_datetime("2020-01-01/2030-01-01").data)
    elif kind == "TortillaFrame":
        yield "sql", lambda: _arrow(reader.sql("SELECT * FROM data LIMIT 3"))
        yield "rows", lambda: _rows(reader)
        yield "bbox", lambda: len(reader.filter_bbox(*_WORLD))
        yield "datetime", lambda: len(reader.filter_datetime("2020-01-01/2030-01-01"))
    elif kind == "RaquetFile":
        yield from _of_raster(reader)
    else:
        yield from _of_tiles(reader)


def _rows(frame: Any) -> str:
    """Tables and bytes of a frame and of what lies below it."""
    parts = [_table(frame)]
    for row in range(min(len(frame), _MOST_ROWS)):
        below = frame.read(row)
        is_frame = hasattr(below, "to_arrow")
        parts.append(_rows(below) if is_frame else digest(frame.read_bytes(row)))
    return parts[0] if len(parts) == 1 else f"{parts[0]} {digest(repr(parts).encode())}"


def _table(frame: Any) -> str:
    return _arrow(frame.to_arrow())


def _arrow(table: Any) -> str:
    """Shape, types and values of a table, but for the columns that hold paths."""
    names = [name for name in table.column_names if not name.endswith(_PATHS)]
    table = pa.table(table).select(names)
    values = [table.schema.types, table.to_pylist()]
    return f"{table.num_rows} x {len(names)} {digest(repr(values).encode())}"


def _of_raster(file: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "metadata", lambda: digest(repr((file.metadata, file.bounds, file.crs)).encode())
    west, south, east, north = file.bounds
    box = (0.8 * west + 0.2 * east, 0.8 * south + 0.2 * north, (west + east) / 2, north)
    for zoom in range(file.metadata.min_zoom, file.metadata.max_zoom + 1):
        _, x, y = (one[:_MOST_TILES].tolist() for one in quadbin.tiles(file.cells(zoom)))
        keys = [(zoom, *at) for at in zip(x, y, strict=True)]
        yield f"tiles {zoom}", partial(_tiles, file, keys)
        yield f"window {zoom}", partial(_window, file, box, zoom=zoom)
    yield "scaled", partial(_window, file, scaled=True)
    yield "point", lambda: file.point((west + east) / 2, (south + north) / 2, masked=True)
    yield "statistics", lambda: digest(repr(raquet.statistics(file.href)).encode())


def _tiles(file: Any, keys: Any) -> str:
    return _arrays(file.tiles(keys, masked=True))


def _window(file: Any, *box: Any, **how: Any) -> str:
    window = file.read(*box, masked=True, **how)
    return f"{window.zoom} {_arrays([window.data])}"


def _arrays(arrays: Any) -> str:
    shapes = [(str(array.dtype), array.shape) for array in arrays]
    bits = b"".join(
        np.ma.filled(array, 0).tobytes() + np.ma.getmaskarray(array).tobytes() for array in arrays
    )
    return f"{shapes[0] if shapes else None} x {len(shapes)} {digest(bits)}"


def _of_tiles(tileset: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "tilejson", lambda: digest(json.dumps(tileset.tilejson(["x"]), sort_keys=True).encode())
    yield "keys", lambda: len(tileset.keys())
    keys = sorted(map(tuple, tileset.keys().tolist()))
    for z, x, y in sorted({key[:3] for key in keys[:_MOST_TILES]}):
        yield f"tile {z}/{x}/{y}", partial(_tile, tileset, z, x, y)


def _tile(tileset: Any, z: int, x: int, y: int) -> str:
    return digest(repr(tileset.tile(z, x, y)).encode())


# -- costs -----------------------------------------------------------------------------------------


def costs(folder: Path) -> Iterator[Fact]:
    """Requests and bytes of opening, reading and checking over HTTP."""
    server = HttpServer()
    try:
        server.serve_folder(folder)
        for name, path in archives(folder):
            document = path / "meta.json"
            place = document if document.is_file() else path
            href = server.url_for(str(place.relative_to(folder)))
            if attempt(partial(_kind, path)) in KINDS:
                yield name, _cost(href, server)
    finally:
        server.close()


def _cost(href: str, server: HttpServer) -> str:
    """What all of it takes together; a request that nobody waits for may come after its answer.

    Requests for what is not there do not count: of two places that are asked at once, the second
    may not be asked when the first has answered.
    """
    before = _answered(server)
    with opened(href) as reader:
        for _, call in _ways(reader):
            attempt(call)
        attempt(partial(KINDS[type(reader).__name__].check, href))
    now = -1, -1
    while now != (now := _answered(server)):
        time.sleep(0.02)
    return f"{now[0] - before[0]} requests, {now[1] - before[1]} bytes"


def _answered(server: HttpServer) -> tuple[int, int]:
    """Answered requests, and the bytes of their bodies."""
    missed = sum(seen.status == 404 for seen in server.requests)
    return len(server.requests) - missed, server.sent - missed * len(MISSING)
