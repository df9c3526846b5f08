"""Tiles as loose files."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from comal.errors import InvalidInputError
from comal.progress import Progress, silent
from comal.storage.endings import check_ending
from comal.storage.kinds import Kind
from comal.storage.targetlock import Owns, write_errors
from comal.storage.targets import new_folder
from comal.tapalcatl.sinks.describing import json_values
from comal.tapalcatl.sinks.plain import Choice, plain_tiles, pyramid
from comal.tapalcatl.sinks.summary import Exported
from comal.tapalcatl.sources.base import Tiles
from comal.tapalcatl.sources.opening import opened
from comal.tapalcatl.sources.schemes import Scheme, scheme_of

_METADATA = "metadata.json"


def to_directory(
    source: Any,
    path: str | os.PathLike[str],
    *,
    scheme: str = "xyz",
    ext: str | None = None,
    scale: float | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write tiles as files ``z/x/y.ext`` and a ``metadata.json``; gzip of vector tiles stays.

    Parameters
    ----------
    source
        Anything that `build` takes.
    path
        A local folder, which appears when it is complete.
    scheme
        ``xyz``, ``tms`` with rows from the south, ``zyx``, or as ArcGIS (``ags``) and GeoWebCache
        (``gwc``) name them.
    ext, scale
        Which tiles, where the source has several kinds; all of them unless given.
    overwrite
        Replace `path`, which must be such a folder and hold no other file.
    progress
        Told the tiles done.

    Raises
    ------
    InvalidInputError
        No tiles, or an unknown scheme.
    ConflictError
        `path` exists.
    """
    names = scheme_of(scheme)
    check_ending(path)
    with ExitStack() as scope:
        found = pyramid(opened(source, scope))
        choice = Choice(ext, scale, every=True)
        folder = scope.enter_context(new_folder(path, overwrite, _kind(names), source))
        exts: set[str] = set()
        count = 0
        made: set[str] = set()
        with write_errors("cannot write", path):
            for tiles in plain_tiles(found, choice, progress or silent, "writing tiles"):
                exts.update(suffix.rpartition(".")[2] for suffix in tiles.suffixes)
                _write(os.fspath(folder), tiles, names, made)
                count += len(tiles)
            if not count:
                raise InvalidInputError("no tile of that kind", where=found.source.label)
            only = exts.pop() if len(exts) == 1 else None
            values = json_values(found.metadata, only)
            (folder / _METADATA).write_text(json.dumps(values, indent=1) + "\n")
    return Exported(os.fspath(path), count, only or "", found.min_zoom, found.max_zoom)


def _kind(scheme: Scheme) -> Kind:
    """Folders of tiles that are named like this."""

    def owns(name: str) -> bool:
        parts = name.split("/")
        patterns = (scheme.zoom, scheme.middle, scheme.file)
        fits = zip(patterns, parts, strict=False)
        return name == _METADATA or (len(parts) == 3 and all(p.fullmatch(one) for p, one in fits))

    def claim(path: Path) -> Owns | None:
        return owns if (path / _METADATA).is_file() else None

    return Kind(f"a folder of tiles with {_METADATA}", claim)


def _write(folder: str, tiles: Tiles, scheme: Scheme, made: set[str]) -> None:
    assert tiles.suffix is not None
    columns = (tiles.z, tiles.x, tiles.y, tiles.suffix)
    rows = zip(*(column.tolist() for column in columns), tiles.payloads, strict=True)
    for z, x, y, code, payload in rows:
        first, second, file = scheme.place((z, x, y))
        place = f"{folder}/{first}/{second}"
        if place not in made:
            os.makedirs(place, exist_ok=True)  # noqa: PTH103 - a string, a hundred thousand times
            made.add(place)
        name = f"{place}/{file}{tiles.suffixes[code]}"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            left = memoryview(payload)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)
