"""A part of a tileset as a tileset of its own: `extract`, from a folder, a server or a store.

Only the directories of archives that the part touches are read, and of these only the tiles of the
part, neighbours in one request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, ObjectNotFoundError, shown, translated
from comal.geo.boxes import validate_bbox
from comal.grid.cover import bbox_ranges, geometry_ranges, in_ranges, range_cells
from comal.grid.quadbin import cells, tiles
from comal.lazy import shapely
from comal.parallel import results
from comal.plan import Fetch
from comal.progress import Progress, silent
from comal.public import takes
from comal.storage import DEFAULT_CONFIG, Source
from comal.storage.local import LocalSource
from comal.tapalcatl.containers.base import Square
from comal.tapalcatl.containers.survey import common
from comal.tapalcatl.containers.tilesets import KeptRuns, Reads, TileSetSource
from comal.tapalcatl.layout import InArchive, TreeLayout
from comal.tapalcatl.reading.archives import OpenArchive
from comal.tapalcatl.reading.entries import all_keys
from comal.tapalcatl.reading.index import TAIL
from comal.tapalcatl.reading.opening import open as open_tileset
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import WORLD, Bounds, Tile, TileSetMetadata
from comal.tapalcatl.wire import Keys
from comal.tapalcatl.writing.building import Built, build
from comal.tapalcatl.writing.targets import is_archive

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_ENUMERATED: Final = 1 << 16
"""Up to so many archives are looked for by arithmetic; beyond that the storage is asked."""
_KNOWN: Final = 256
"""Archives of which is remembered what is wanted of them."""
_AT_ONCE: Final = 16
"""Directories that are fetched at the same time."""
_DEEPEST: Final = 26
"""Zoom to which parts of the world can be told apart."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """What an extract is, or would be."""

    tiles: int
    """Entries that are copied."""
    bytes: int
    """Their stored bytes."""
    archives: int
    """Archives of the source that hold any of them."""
    requests: int
    """Requests that reading their bytes takes from a server, directories not counted."""
    transferred: int
    """Bytes of these requests, with what lies between the tiles."""
    directories: int
    """Archives whose directories had to be read, a request each."""
    directory_bytes: int = 0
    """Bytes of these requests: the last 64 KiB of each archive, or more where that is short."""
    built: Built | None = None
    """What was written; None of a dry run."""

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        own = {key: value for key, value in asdict(self).items() if key != "built"}
        return own if self.built is None else {**own, **self.built.to_dict(), "tiles": self.tiles}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOptions:
    """Which tiles are meant; see `extract`."""

    bbox: Sequence[float] | None = None
    geometry: Any = None
    min_zoom: int | None = None
    max_zoom: int | None = None
    overview_zoom: int | None = None


@takes(PartOptions)
def extract(
    source: str | os.PathLike[str] | Source | TileSet,
    out: str | os.PathLike[str] | None = None,
    *,
    dry_run: bool = False,
    metatile: int | None = None,
    materialized_zooms: Sequence[int] | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Extracted:
    """Copy a part of a tileset; tiles keep their bytes, headers and times.

    Parameters
    ----------
    source
        As `comal.tapalcatl.open` takes it, or a tileset that is open.
    out
        The folder to write, or a single archive, whose name ends in ``.zip``; may be left out of a
        dry run.
    bbox
        West, south, east, north in degrees; west > east crosses the antimeridian. Tiles that it
        overlaps are taken.
    geometry
        GeoJSON as a mapping, as text or in a file, or a shapely geometry: instead of a box.
    min_zoom, max_zoom
        Zooms to take, both included.
    overview_zoom
        Tiles down to this zoom are taken wherever they are, so that a map has a background
        outside of the area.
    dry_run
        Write nothing; tell tiles, bytes and requests.
    metatile, materialized_zooms
        The layout of the extract; that of the source unless given, or of one root for a single
        archive.
    executor, overwrite, progress
        As for `comal.tapalcatl.build`.
    **options
        How the source is opened, such as the settings of Tapalcatl 1.

    Raises
    ------
    InvalidInputError
        Both a box and a geometry, zooms that are none, or a part without any tile.
    ConflictError
        `out` exists.
    """
    known = PartOptions.__dataclass_fields__
    asked = PartOptions(**{name: options.pop(name) for name in known if name in options})
    tileset = source if isinstance(source, TileSet) else open_tileset(source, **options)
    try:
        area = Area.of(asked)
        part = Part(tileset, area)
        sums = part.sums(progress or silent)
        if dry_run:
            return sums
        if out is None:
            raise InvalidInputError(
                "no target to write to", where="out", expected="a path, or dry_run=True"
            )
        if not sums.tiles:
            raise InvalidInputError(
                "no tile lies in the part",
                where=tileset.href,
                found=f"zooms {area.min_zoom} to {area.max_zoom}",
                expected=f"a part of zooms {tileset.min_zoom} to {tileset.max_zoom} "
                f"and of {', '.join(f'{edge:g}' for edge in tileset.bounds)}",
            )
        layout = tileset.metadata
        own = isinstance(tileset.locator, TreeLayout) and not is_archive(out)
        built = build(
            part,
            out,
            metatile=metatile or (layout.metatile if own else None),
            materialized_zooms=materialized_zooms or (layout.materialized_zooms if own else None),
            times="source",
            executor=executor,
            overwrite=overwrite,
            progress=progress,
            resume=False,
        )
        return replace(sums, built=built)
    finally:
        if tileset is not source:
            tileset.close()


@dataclass(frozen=True)
class Area:
    """Which tiles are meant."""

    bbox: Bounds | None = None
    geometry: Any = None
    """A shapely geometry."""
    min_zoom: int = 0
    max_zoom: int = _DEEPEST
    overview_zoom: int = -1

    @classmethod
    def of(cls, asked: PartOptions) -> Area:
        """An area as a caller tells it, checked."""
        if asked.bbox is not None and asked.geometry is not None:
            raise InvalidInputError("both a box and a geometry", hint="give one of them")
        low, high = asked.min_zoom or 0, _DEEPEST if asked.max_zoom is None else asked.max_zoom
        if not 0 <= low <= high <= _DEEPEST:
            raise InvalidInputError(
                "no range of zooms",
                found=f"{low} to {high}",
                expected=f"0 to {_DEEPEST}, ascending",
            )
        box = None if asked.bbox is None else validate_bbox(asked.bbox)
        shape = None if asked.geometry is None else shape_of(asked.geometry)
        return cls(
            box, shape, low, high, -1 if asked.overview_zoom is None else asked.overview_zoom
        )

    def ranges(self, zoom: int) -> Int64s:
        """Cells of a zoom that the area overlaps, as ranges of ids."""
        if self.geometry is not None:
            return geometry_ranges(self.geometry, zoom)
        return bbox_ranges(WORLD if self.bbox is None else self.bbox, zoom, most=None)

    @property
    def bounds(self) -> Bounds | None:
        """The box around the area; None of the world and across the antimeridian."""
        if self.overview_zoom >= 0:
            return None
        box = self.bbox
        if self.geometry is not None:
            west, south, east, north = (float(value) for value in self.geometry.bounds)
            box = (west, south, east, north)
        return None if box is None or box[0] > box[2] else box


class Part(TileSetSource):
    """The tiles of a tileset that lie in an area, as a source of tiles."""

    def __init__(self, tileset: TileSet, area: Area) -> None:
        super().__init__(tileset)
        self.tileset = tileset
        self.area = area
        self._ranges: dict[int, Int64s] = {}
        self._kept = KeptRuns()
        self._numbers: dict[Tile, tuple[OpenArchive, Int64s, Reads]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Open archives stay here; another process opens its own.
        return {**self.__dict__, "_numbers": {}}

    @property
    def metadata(self) -> TileSetMetadata:  # type: ignore[override]  # formats are learned
        """That of the tileset, with the bounds of the area."""
        own, area = self.tileset.metadata, self.area
        low = max(own.min_zoom or 0, area.min_zoom)
        bounds = own.bounds if area.bounds is None else common(area.bounds, own.bounds)
        return replace(own, bounds=bounds, min_zoom=low)

    def keys(self) -> Iterator[Keys]:
        """The tiles of the part, archive by archive."""
        for archive, opened in self._archives():
            numbers = self.numbers(archive, opened)
            if len(numbers):
                keys, _ = all_keys(opened)
                yield self.tileset.locator.tiles(archive, keys[numbers])[1]

    def sums(self, progress: Progress = silent) -> Extracted:
        """How many tiles, bytes and requests the part is."""
        sums = Extracted(0, 0, 0, 0, 0, 0)
        config = getattr(self.tileset.source, "config", DEFAULT_CONFIG)
        for archive, opened in self._archives():
            index = opened.index
            sums = replace(
                sums,
                directories=sums.directories + 1,
                directory_bytes=sums.directory_bytes
                + max(min(index.total, TAIL), index.total - index.end),
            )
            progress(sums.directories, None, "directories")
            numbers, reads = self._wanted(archive, opened)
            table = index.table[numbers]
            if not len(table):
                continue
            sizes = reads.stops - reads.starts
            sums = replace(
                sums,
                tiles=sums.tiles + len(table),
                bytes=sums.bytes + int(table["csize"].sum(dtype=np.int64)),
                archives=sums.archives + 1,
                requests=sums.requests + int((-(-sizes // config.max_request)).sum()),
                transferred=sums.transferred + int(sizes.sum()),
            )
        return sums

    def numbers(self, archive: Tile, opened: OpenArchive) -> Int64s:
        """The records of an archive that are in the part."""
        keys, _ = all_keys(opened)
        rows, found = self.tileset.locator.tiles(archive, keys)
        return rows[self.mask(*found)]

    def _wanted(self, archive: Tile, opened: OpenArchive) -> tuple[Int64s, Reads]:
        """As `numbers`, and the reads that bring them; kept for the squares that follow."""
        known = self._numbers.get(archive)
        if known is not None and known[0].index is opened.index:
            return known[1], known[2]
        numbers = self.numbers(archive, opened)
        reads = Reads.of(opened.index.table[numbers])
        if len(self._numbers) >= _KNOWN:
            self._numbers = {}
        self._numbers[archive] = opened, numbers, reads
        return numbers, reads

    def mask(self, z: Int64s, x: Int64s, y: Int64s) -> Bools:
        """Which tiles are in the area."""
        area = self.area
        wanted: Bools = (z >= area.min_zoom) & (z <= area.max_zoom)
        inside = z <= area.overview_zoom
        for zoom in np.unique(z[wanted & ~inside]).tolist():
            rows = np.flatnonzero(wanted & (z == zoom))
            if zoom not in self._ranges:
                self._ranges[zoom] = area.ranges(zoom)
            inside[rows] = in_ranges(cells(z[rows], x[rows], y[rows]), self._ranges[zoom])
        return wanted & inside

    def _archives(self) -> Iterator[tuple[Tile, OpenArchive]]:
        """Those archives that the area touches."""
        if self._wanted_archives is None:
            for archive, opened in super()._archives():
                if len(self.numbers(archive, opened)):
                    yield archive, opened
            return
        for archive, found in self._directories(list(self._wanted_archives)):
            if found is not None:
                yield archive, found

    def _directories(self, wanted: Sequence[Tile]) -> Iterator[tuple[Tile, OpenArchive | None]]:
        """Some archives; from elsewhere side by side, few at a time, for a budget holds them."""
        get = self.tileset.archives.get
        if isinstance(self.tileset.places.root, LocalSource):
            yield from ((archive, get(archive)) for archive in wanted)
            return
        yield from zip(wanted, results(_AT_ONCE, get, wanted, _AT_ONCE), strict=True)

    @cached_property
    def _wanted_archives(self) -> dict[Tile, None] | None:
        """Archives that may hold tiles of the part, or None when these are too many to try."""
        area, locator = self.area, self.tileset.locator
        if isinstance(locator, InArchive):
            return dict.fromkeys(self.tileset.archive_tiles())
        low = max(area.min_zoom, self.tileset.min_zoom)
        high = min(area.max_zoom, self.tileset.max_zoom)
        found: set[Tile] = set()
        for zoom in range(low, high + 1):
            root = locator.root_zoom(zoom)
            if root is None:
                continue
            ranges = area.ranges(root)
            if zoom <= area.overview_zoom:
                ranges = bbox_ranges(WORLD, root, most=None)
            step = 1 << (52 - 2 * root)
            if int(((ranges[:, 1] - ranges[:, 0]) // step + 1).sum()) > _ENUMERATED:
                return None
            _, x, y = tiles(range_cells(ranges))
            pairs = zip((x & -locator.side).tolist(), (y & -locator.side).tolist(), strict=True)
            found |= {(root, column, row) for column, row in pairs}
        return dict.fromkeys(sorted(found))

    def _around(self, square: Square) -> list[Tile]:
        """The archives that a square lies in and that may hold tiles of the part."""
        found, wanted = super()._around(square), self._wanted_archives
        return found if wanted is None else [archive for archive in found if archive in wanted]

    def _meant(self, archive: Tile, opened: OpenArchive, rows: Int64s) -> Int64s:
        """Those of some records of an archive that are in the part."""
        return rows[np.isin(rows, self._wanted(archive, opened)[0])]

    def _payloads(
        self,
        opened: OpenArchive,
        table: Any,
        keys: list[int],
        codes: list[int],
        fetch: Fetch | None = None,
    ) -> list[bytes]:
        """Stored bytes of some tiles out of reads that bring all of an archive's at once."""
        if isinstance(opened.source, LocalSource):
            return super()._payloads(opened, table, keys, codes, fetch)  # the system keeps them
        values = [b""] * len(table)
        _, reads = self._wanted(opened.tile, opened)
        which = reads.which(table["offset"])
        for read in np.unique(which).tolist():
            rows = np.flatnonzero(which == read).tolist()
            ends = int(reads.starts[read]), int(reads.stops[read])
            found = super()._payloads(
                opened,
                table[rows],
                [keys[row] for row in rows],
                [codes[row] for row in rows],
                self._kept.fetch(opened.source, opened.tile, *ends),
            )
            for row, value in zip(rows, found, strict=True):
                values[row] = value
        return values


def shape_of(geometry: Any) -> Any:
    """A shapely geometry from GeoJSON in any of its forms, or from shapely.

    Raises
    ------
    InvalidInputError
        No GeoJSON, or an empty geometry.
    ObjectNotFoundError
        There is no such file.
    """
    if isinstance(geometry, shapely.Geometry):
        shape = geometry
    else:
        text = _geojson_text(geometry)
        try:
            shape = shapely.from_geojson(text)
        except shapely.errors.GEOSException as error:
            raise InvalidInputError(
                "not GeoJSON", where="geometry", found=shown(str(error))
            ) from error
    if shape is None or shape.is_empty:
        raise InvalidInputError("a geometry without any place", where="geometry")
    return shape


def _geojson_text(geometry: Any) -> str:
    """GeoJSON as GEOS takes it: without features that have no geometry (RFC 7946, 3.2)."""
    document = geometry
    if not isinstance(geometry, Mapping):
        data = _geojson_bytes(geometry)
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(
                "not JSON", where="geometry", found=shown(str(error), 120)
            ) from error
    features = document.get("features") if isinstance(document, Mapping) else None
    if isinstance(features, list):
        placed = [one for one in features if not isinstance(one, Mapping) or one.get("geometry")]
        document = {**document, "features": placed}
    with translated(
        {TypeError: InvalidInputError, ValueError: InvalidInputError}, "not JSON", where="geometry"
    ):
        return json.dumps(document)


def _geojson_bytes(geometry: Any) -> bytes:
    if not isinstance(geometry, str | bytes | os.PathLike):
        raise InvalidInputError(
            "not GeoJSON", where="geometry", found=shown(type(geometry).__name__)
        )
    text = os.fspath(geometry)
    if isinstance(text, bytes):
        return text
    if text.lstrip().startswith("{"):
        return text.encode("utf-8", "surrogatepass")
    path = Path(text)
    if not path.is_file():
        raise ObjectNotFoundError("no such file", where=shown(text))
    return path.read_bytes()
