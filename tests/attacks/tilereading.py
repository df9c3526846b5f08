"""Read rasters and tilesets by every door, and hold each tile against the truth."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from comal import raquet, tapalcatl
from comal.cli import root
from comal.errors import ComalError
from comal.limits import MIB
from comal.tapalcatl import StoredTile

Key = tuple[int, int, int]
EXITS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
"""What a command may end with: never 70, which is a mistake of ours."""


@dataclass
class Tiles:
    """What came of reading everything."""

    right: set[Any] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    """What came and was wrong. There must never be any."""
    errors: list[ComalError] = field(default_factory=list)
    opened: bool = False


_STATUS = Path("/proc/self/status")


@contextmanager
def held(memory: int = 64 * MIB, seconds: float = 1.0) -> Iterator[None]:
    """Refuse what takes longer than `seconds` of the processor or more than `memory`.

    Memory is that of the process, with what libraries take, where the system tells it.
    """
    before = _peak(reset=True)
    began = time.process_time()
    yield
    took, after = time.process_time() - began, _peak()
    assert after - before < memory, f"{(after - before) >> 20} MiB"
    assert took < seconds, f"{took:.1f} s"


def _peak(*, reset: bool = False) -> int:
    """The most memory that the process has held since the last reset, in bytes."""
    if not _STATUS.exists():
        return 0
    if reset:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def read_raquet(path: Path, truth: Mapping[Key, Mapping[str, Any]], **how: Any) -> Tiles:
    """Open a file and read each tile by all its bands, each band, as window and as point.

    Parameters
    ----------
    path
        A file.
    truth
        Pixels of each band of each tile.
    how
        As for `comal.raquet.open`.
    """
    found = Tiles()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            raster = raquet.open(path, **how)
        except ComalError as error:
            found.errors.append(error)
            return found
        found.opened = True
        with raster:
            for key, bands in truth.items():
                for band in raster.bands:
                    _pixels(found, (key, band.name), bands.get(band.name), raster, key, band)
            _whole(found, raster)
    return found


def _pixels(found: Tiles, key: Any, expected: Any, raster: Any, tile: Key, band: Any) -> None:
    try:
        pixels = raster.tile(*tile, bands=[band.name])[0]
        raw = raster.raw_tile(*tile)
    except ComalError as error:
        found.errors.append(error)
        return
    if raw is None or expected is None:
        return
    if pixels.shape == expected.shape and pixels.tobytes() == expected.tobytes():
        found.right.add(key)
    else:
        found.wrong.append(f"{key}: {pixels.ravel()[:9]} instead of {expected.ravel()[:9]}")


def _whole(found: Tiles, raster: Any) -> None:
    west, south, east, north = raster.bounds
    reads: list[Callable[[], Any]] = [
        lambda: raster.read(masked=True),
        lambda: raster.point((west + east) / 2, (south + north) / 2),
        lambda: raster.points(np.array([west, east]), np.array([south, north])),
    ]
    for read in reads:
        try:
            read()
        except ComalError as error:
            found.errors.append(error)


def read_tileset(path: Path, truth: Mapping[Key, bytes], **how: Any) -> Tiles:
    """Open a tileset and read each tile decoded, as it is stored, and all at once."""
    found = Tiles()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tileset = tapalcatl.open(path, **how)
        except ComalError as error:
            found.errors.append(error)
            return found
        found.opened = True
        with tileset:
            for key, expected in truth.items():
                for read in (tileset.tile, tileset.stored_tile):
                    _tile(found, key, expected, read)
            _all(found, tileset, truth)
    return found


def _tile(found: Tiles, key: Key, expected: bytes, read: Any) -> None:
    try:
        tile = read(*key)
        if tile is None:
            return
        data = tile.data() if isinstance(tile, StoredTile) else tile.data
    except ComalError as error:
        found.errors.append(error)
        return
    if data == expected:
        found.right.add(key)
    else:
        found.wrong.append(f"{key}: {data[:40]!r} instead of {expected[:40]!r}")


def _all(found: Tiles, tileset: Any, truth: Mapping[Key, bytes]) -> None:
    try:
        tiles = tileset.tiles(list(truth))
        found.wrong += [
            f"{key}: {tile.data[:40]!r} among many"
            for key, tile in zip(truth, tiles, strict=True)
            if tile is not None and tile.data != truth[key]
        ]
        for table in tileset.entries():
            table.validate(full=True)
        tileset.tilejson()
    except ComalError as error:
        found.errors.append(error)


def commands(path: Path, *more: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Exit code and output of the commands that look at a file."""
    found = {}
    lines = [["info", str(path)], ["ls", str(path)], ["check", str(path), "--json"], *more]
    for line in lines:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = CliRunner().invoke(root, line)
        assert result.exit_code in EXITS, f"{line}: {result.exit_code}\n{result.output}"
        if result.exception is not None:
            assert isinstance(result.exception, SystemExit), line
        assert "Traceback" not in result.output, line
        found[line[0]] = (result.exit_code, result.output)
    return found
