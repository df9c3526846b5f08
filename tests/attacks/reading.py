"""Read archives in every way there is, and hold each byte and pixel against the truth."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from comal import raquet, tapalcatl, tortilla
from comal.check import Report
from comal.cli import root
from comal.errors import ComalError
from comal.limits import MIB
from comal.taco.reading.dataset import load
from comal.tapalcatl import StoredTile
from comal.tortilla import spec
from tests.attacks.build import Tree, leaves_of

Key = tuple[int, int, int]
EXITS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
"""What a command may end with: never 70, which is a mistake of ours."""


@dataclass
class Readings:
    """What came of reading everything."""

    right: set[Any] = field(default_factory=set)
    """What came and was right, by its name or place."""
    wrong: list[str] = field(default_factory=list)
    """What came and was wrong, in words. There must never be any."""
    errors: list[ComalError] = field(default_factory=list)
    opened: bool = False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep an error of comal, whose text is short and steers no terminal.

        Any other exception comes out, for there must not be one.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a lie that was survived is told by a warning
            try:
                yield
            except ComalError as error:
                lines = str(error).split("\n")
                assert len(lines[0]) < 400
                assert all(map(str.isprintable, lines)), ascii(lines)
                self.errors.append(error)

    def compare(self, key: Any, found: bytes, expected: bytes) -> None:
        """Bytes that came against those that had to come."""
        if found == expected:
            self.right.add(key)
        else:
            self.wrong.append(f"{key!r}: {found[:40]!r} instead of {expected[:40]!r}")


# -- TACO ------------------------------------------------------------------------------------------


def read_everything(href: Path | str, tree: Tree, **how: Any) -> Readings:
    """Open a container and read each sample by position, by id, and by the level tables."""
    truth, found = dict(leaves_of(tree)), Readings()
    with found.kept(), load(str(href), **how) as dataset:
        found.opened = True
        with found.kept():
            _walk(dataset.data, "", truth, found)
        with found.kept():
            _by_levels(dataset, truth, found)
    return found


def _walk(frame: Any, prefix: str, truth: Mapping[str, bytes], found: Readings) -> None:
    for row in range(len(frame)):
        with found.kept():
            name = str(frame.to_arrow()["id"][row].as_py())
            kind = frame.to_arrow()["type"][row].as_py()
            path = f"{prefix}{name}"
            below = frame.read(row)
            if kind == "FOLDER":
                _walk(below, path + "/", truth, found)
            else:
                _sample(path, frame.read_bytes(row), truth, found)


def _by_levels(dataset: Any, truth: Mapping[str, bytes], found: Readings) -> None:
    """The deepest samples by the level tables alone, and by a query over all of them."""
    depth = dataset.pit_schema.depth
    flat = dataset.flatten(depth) if depth else dataset.sql("SELECT * FROM data").data
    table = flat.to_arrow()
    column = "internal:relative_path" if "internal:relative_path" in table.column_names else "id"
    for row in range(len(flat)):
        with found.kept():
            path = table[column][row].as_py()
            if table["type"][row].as_py() == "FILE":
                _sample(str(path), flat.read_bytes(row), truth, found)


def _sample(path: str, data: bytes, truth: Mapping[str, bytes], found: Readings) -> None:
    if path in truth:
        found.compare(path, data, truth[path])
    elif data not in truth.values():
        # An id that lies about itself may show bytes of the container, but no others.
        found.wrong.append(f"{path!r}: {data[:40]!r}, which is not a sample")


# -- Tortilla --------------------------------------------------------------------------------------


def read_tortilla(path: Path, truth: Mapping[str, bytes], **how: Any) -> Readings:
    """Open a file and read each leaf flattened, and walk to it."""
    found = Readings()
    with found.kept():
        frame = tortilla.open(path, **how)
        found.opened = True
        flat = frame.flatten()
        leaves = dict(zip(flat[spec.PATH].to_pylist(), flat.read_bytes(), strict=True))
        assert [name for name, _ in frame.walk()] == list(leaves)
        for name, data in leaves.items():
            _sample(name, data, truth, found)
    return found


# -- rasters and tilesets --------------------------------------------------------------------------


def read_raquet(path: Path, truth: Mapping[Key, Mapping[str, Any]], **how: Any) -> Readings:
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
    found = Readings()
    with found.kept(), raquet.open(path, **how) as raster:
        found.opened = True
        for key, bands in truth.items():
            for band in raster.bands:
                with found.kept():
                    _pixels(found, key, band.name, raster, bands.get(band.name))
        west, south, east, north = raster.bounds
        reads: list[Callable[[], Any]] = [
            lambda: raster.read(masked=True),
            lambda: raster.point((west + east) / 2, (south + north) / 2),
            lambda: raster.points(np.array([west, east]), np.array([south, north])),
            raster.__repr__,
        ]
        for read in reads:
            with found.kept():
                read()
    return found


def _pixels(found: Readings, tile: Key, band: str, raster: Any, expected: Any) -> None:
    pixels = raster.tile(*tile, bands=[band])[0]
    raster.raw_blob(*tile)
    raw = raster.raw_tile(*tile)
    if raw is None or expected is None:
        return
    if pixels.shape == expected.shape and pixels.tobytes() == expected.tobytes():
        found.right.add((tile, band))
    else:
        shown = f"{pixels.ravel()[:9]} instead of {expected.ravel()[:9]}"
        found.wrong.append(f"{(tile, band)}: {shown}")


def read_tileset(path: Path, truth: Mapping[Key, bytes], **how: Any) -> Readings:
    """Open a tileset and read each tile decoded, as it is stored, and all at once."""
    found = Readings()
    with found.kept(), tapalcatl.open(path, **how) as tileset:
        found.opened = True
        for key, expected in truth.items():
            for read in (tileset.tile, tileset.stored_tile):
                with found.kept():
                    _tile(found, key, read(*key), expected)
        with found.kept():
            for key, one in zip(truth, tileset.tiles(list(truth)), strict=True):
                if one is not None and one.data != truth[key]:
                    found.wrong.append(f"{key}: {one.data[:40]!r} among many")
            for table in tileset.entries():
                table.validate(full=True)
            tileset.tilejson()
    return found


def _tile(found: Readings, key: Key, tile: Any, expected: bytes) -> None:
    if isinstance(tile, StoredTile):
        found.compare(key, tile.data(), expected)
    elif tile is not None:
        found.compare(key, tile.data, expected)
        tile.content()


# -- checks, costs and commands --------------------------------------------------------------------


def checked(
    room: Any, path: Path, raises: tuple[type[ComalError], ...] = (ComalError,), **how: Any
) -> Report | None:
    """What a format's check reports, in codes that it knows and without a warning.

    None where it raises one of `raises` instead.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            report: Report = room.check(path, **how)
        except raises:
            return None
    assert set(report.counts) <= set(room.CODES)
    return report


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


def commands(path: Path) -> dict[str, tuple[int, str]]:
    """Exit code and output of the commands that look at a file."""
    found = {}
    lines = [["info", str(path)], ["ls", str(path)], ["check", str(path), "--json"]]
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
