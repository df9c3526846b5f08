"""Tilesets as sources of tiles: a complete one or an area of it, and several sources as one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np

from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectChangedError,
    ObjectNotFoundError,
    shown,
    translated,
)
from comal.geo.boxes import validate_bbox
from comal.grid.cover import bbox_ranges, geometry_ranges, in_ranges, range_cells
from comal.grid.quadbin import cells, tiles
from comal.lazy import shapely
from comal.parallel import cached_property, results
from comal.public import warn
from comal.tapalcatl.addressing import common, union
from comal.tapalcatl.containers.base import (
    UNKNOWN_TIME,
    Square,
    Tiles,
    TileSource,
    binary,
    concatenated,
    gone,
    named,
    outermost,
)
from comal.tapalcatl.containers.content import kinds_of
from comal.tapalcatl.layout import InArchive, MetatileLayout, check_zooms
from comal.tapalcatl.reading.archives import OpenArchive
from comal.tapalcatl.reading.index import Record
from comal.tapalcatl.reading.tile import check_local_name, entry_name, refuse
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import MAX_ZOOM, WORLD, Bounds, TapalcatlWarning, Tile, TileSetMetadata
from comal.tapalcatl.wire import BASES, Int64s, Keys, key_tile
from comal.ziparchive import STORE, wire
from comal.ziparchive import local as zip_local
from comal.ziparchive.headermaking import checksums

CONFLICTS: Final = ("last", "first")


class MergedSource(TileSource):
    """The tiles of several sources; of several with one name that of the last or first source."""

    def __init__(self, sources: Sequence[TileSource], conflict: str = "last") -> None:
        if conflict not in CONFLICTS:
            raise InvalidInputError(
                "unknown rule for tiles that several sources have",
                found=conflict,
                expected=", ".join(CONFLICTS),
            )
        self._sources = tuple(sources)
        self._conflict = conflict
        self.metadata = _merged([source.metadata for source in sources])
        self.label = ", ".join(source.label for source in sources)
        encodings = {source.encoding for source in sources}
        self.encoding = encodings.pop() if len(encodings) == 1 else None
        times = [one.modified for one in sources if one.modified is not None]
        self.modified = max(times, default=None)

    @property
    def href(self) -> list[Any]:
        """The sources."""
        return list(self._sources)

    @property
    def identity(self) -> str:
        """The identities of all sources, if each has one."""
        all_of = [source.identity for source in self._sources]
        return json.dumps([self._conflict, *all_of]) if all(all_of) else ""

    def zooms(self) -> tuple[int, int] | None:
        """As `TileSource.zooms`, over all sources."""
        return outermost(source.zooms() for source in self._sources)

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks; a tile in several sources occurs several times."""
        for source in self._sources:
            yield from source.keys()

    def read(self, square: Square) -> Tiles:
        """The tiles of a square."""
        parts = [_named(source.read(square), source) for source in self._sources]
        if self._conflict == "first":
            parts.reverse()
        return concatenated(parts).ordered()

    def verify(self) -> None:
        """Verify each source; the caller that opened them closes them."""
        for source in self._sources:
            source.verify()


def _named(tiles: Tiles, source: TileSource) -> Tiles:
    """Tiles with suffixes; missing ones come from the bytes and the hint of their source."""
    if tiles.suffix is not None or not len(tiles):
        return tiles
    return named(tiles, kinds_of(tiles.payloads), source.hint)


def _merged(all_of: Sequence[TileSetMetadata]) -> TileSetMetadata:
    """The metadata of the first source, with formats, bounds and scales of all."""
    boxes = [one.bounds for one in all_of]
    known = [box for box in boxes if box is not None]
    return replace(
        all_of[0],
        formats={ext: headers for one in reversed(all_of) for ext, headers in one.formats.items()},
        bounds=reduce(union, known) if len(known) == len(boxes) else None,
        min_scale=min(one.min_scale for one in all_of),
        max_scale=max(one.max_scale for one in all_of),
    )


# -- a part of a tileset --------------------------------------------------------------------------

_DEEPEST: Final = 26
"""Deepest zoom of a cell id; a deeper tile is in an area if its ancestor there is."""
_ENUMERATED: Final = 1 << 16
"""Up to this many archives are enumerated; beyond that the storage is listed."""
_AT_ONCE: Final = 16
"""Directories fetched at the same time."""
_NO_GEOJSON: Final[dict[type[BaseException], type[ComalError]]] = {
    TypeError: InvalidInputError,
    ValueError: InvalidInputError,
    RecursionError: InvalidInputError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOptions:
    """Selection of tiles; see `extract`."""

    bbox: Sequence[float] | None = None
    geometry: Any = None
    min_zoom: int | None = None
    max_zoom: int | None = None
    overview_zoom: int | None = None


class Area:
    """The area and zooms that `PartOptions` select."""

    def __init__(self, asked: PartOptions = PartOptions()) -> None:
        if asked.bbox is not None and asked.geometry is not None:
            raise InvalidInputError("both a box and a geometry are given", hint="give one of them")
        self.min_zoom = asked.min_zoom or 0
        self.max_zoom = MAX_ZOOM if asked.max_zoom is None else asked.max_zoom
        check_zooms(self.min_zoom, self.max_zoom)
        self._box = None if asked.bbox is None else validate_bbox(asked.bbox)
        self._shape = None if asked.geometry is None else _shape_of(asked.geometry)
        self._overview = -1 if asked.overview_zoom is None else asked.overview_zoom
        self._ranges: dict[int, Int64s] = {}

    def holds(self, keys: Keys) -> Any:
        """Which tiles are in the area."""
        z, x, y = keys
        wanted = (z >= self.min_zoom) & (z <= self.max_zoom)
        inside = z <= self._overview
        for zoom in np.unique(z[wanted & ~inside]).tolist():
            rows = np.flatnonzero(wanted & (z == zoom))
            if zoom not in self._ranges:
                self._ranges[zoom] = self._cells(zoom)
            up = max(0, zoom - _DEEPEST)
            ids = cells(zoom - up, x[rows] >> up, y[rows] >> up)
            inside[rows] = in_ranges(ids, self._ranges[zoom])
        return wanted & inside

    def ranges(self, zoom: int, root: int) -> Int64s:
        """Cells of zoom `root` that may hold tiles of `zoom`, as ranges of ids."""
        return bbox_ranges(WORLD, root) if zoom <= self._overview else self._cells(root)

    @property
    def bounds(self) -> Bounds | None:
        """The box around the area; None for the world or across the antimeridian."""
        if self._overview >= 0:
            return None
        box: Any = self._box if self._shape is None else tuple(map(float, self._shape.bounds))
        return None if box is None or box[0] > box[2] else box

    def _cells(self, zoom: int) -> Int64s:
        zoom = min(zoom, _DEEPEST)
        if self._shape is not None:
            return geometry_ranges(self._shape, zoom)
        return bbox_ranges(WORLD if self._box is None else self._box, zoom)


def _shape_of(geometry: Any) -> Any:
    """A shapely geometry from GeoJSON (mapping, text or file) or from shapely."""
    shape = geometry
    if not isinstance(geometry, shapely.Geometry):
        faults = {**_NO_GEOJSON, shapely.errors.GEOSException: InvalidInputError}
        with translated(faults, "not GeoJSON", where="geometry"):
            shape = shapely.from_geojson(_geojson_text(geometry))
    if shape is None or shape.is_empty:
        raise InvalidInputError("the geometry is empty", where="geometry")
    return shape


def _geojson_text(geometry: Any) -> str:
    """GeoJSON for GEOS: without features that have no geometry (RFC 7946, 3.2)."""
    document = geometry
    if isinstance(geometry, str | os.PathLike) and not str(geometry).lstrip().startswith("{"):
        if not Path(geometry).is_file():
            raise ObjectNotFoundError("no such file", where=shown(geometry))
        document = json.loads(Path(geometry).read_bytes())
    elif not isinstance(geometry, Mapping):
        document = json.loads(geometry)
    features = document.get("features") if isinstance(document, Mapping) else None
    if isinstance(features, list):
        placed = [one for one in features if not isinstance(one, Mapping) or one.get("geometry")]
        document = {**document, "features": placed}
    return json.dumps(document)


class TileSetSource(TileSource):
    """The tiles of an open tileset of either generation, or those of an area.

    Archives of Tapalcatl 1 hold each tile in several sizes; the size that the tileset was opened
    for is read. The caller that opened the tileset closes it.
    """

    def __init__(self, tileset: TileSet, area: Area | None = None) -> None:
        self._tileset, self._area = tileset, area
        self.label = tileset.href
        tileset.learn_formats()

    @property
    def href(self) -> str:
        """URL or path of the tileset."""
        return self._tileset.href.removesuffix("/meta.json")

    def warn_of_variants(self) -> None:
        """Warn that tiles of variants are left out, unless those of one were asked for."""
        tileset = self._tileset
        if tileset.variants and tileset.archives.variant is None:
            names = ", ".join(tileset.variants)
            text = f"{self.label}: tiles of variants are left out: {names}"
            warn(TapalcatlWarning(text))

    @property
    def metadata(self) -> TileSetMetadata:  # type: ignore[override]  # formats are learned
        """Metadata of the tileset, with the bounds and first zoom of the area."""
        own, area = self._tileset.metadata, self._area
        if area is None:
            return own
        bounds = own.bounds if area.bounds is None else common(area.bounds, own.bounds)
        return replace(own, bounds=bounds, min_zoom=max(own.min_zoom or 0, area.min_zoom))

    @property
    def identity(self) -> str:
        """URL and version of the document, if there is one, and when archives changed last."""
        with suppress(ComalError):
            stat = self._tileset.source.stat()
            if not stat.is_dir and self._area is None:
                # The tag of a local file is another one on other machines.
                tag = None if self._tileset.archives.local else stat.etag
                version = [stat.size, tag, stat.modified, self.newest]
                return json.dumps(["tileset", stat.href, *version])
        return ""

    def _get(self, archive: Tile) -> OpenArchive | None:
        """An archive, unless it changed after the tiles were listed."""
        opened = self._tileset.archives.get(archive)
        if opened is None or self.newest is None or _time(opened) <= self.newest:
            return opened
        if self._tileset.layout.leads_to(self._tileset.metadata)(archive):  # it was listed
            what = "an archive changed after its tiles were listed"
            raise ObjectChangedError(what, where=opened.label)
        return opened

    def keys(self) -> Iterator[Keys]:
        """All tiles, archive by archive; a tile in several formats occurs several times."""
        newest = 0
        for archive, opened in self._archives():
            newest = max(newest, _time(opened))
            found = self._tileset.layout.tiles(archive, opened.index.columns.all_keys[0])[1]
            if self._area is not None:
                rows = np.flatnonzero(self._area.holds(found))
                found = found[0][rows], found[1][rows], found[2][rows]
            yield found
        self.newest = newest

    def read(self, square: Square) -> Tiles:
        """The tiles of a square in all formats and scales."""
        return self._read([self._rows(square)])

    def gather(self, squares: Sequence[Square]) -> Iterator[Tiles]:
        """As `TileSource.gather`; remote tiles are read some 8 MiB at a time, in few requests."""
        if self._tileset.archives.local:
            return super().gather(squares)
        return results(None, self._read, self._batches(squares), threads=1)

    def _batches(self, squares: Sequence[Square]) -> Iterator[list[dict[Tile, Int64s]]]:
        """Records of squares to read together."""
        batch: list[dict[Tile, Int64s]] = []
        size = 0
        for square in squares:
            found = self._rows(square)
            if not found:
                raise gone(self, square)
            batch.append(found)
            for archive, rows in found.items():
                opened = self._get(archive)
                size += (
                    0 if opened is None else int(opened.index.columns.table["csize"][rows].sum())
                )
            if size >= zip_local.SIZE:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _read(self, batch: Sequence[Mapping[Tile, Int64s]]) -> Tiles:
        """Tiles by their records, each archive read once."""
        wanted: dict[Tile, list[Int64s]] = {}
        for found in batch:
            for archive, rows in found.items():
                wanted.setdefault(archive, []).append(rows)
        parts = []
        for archive, numbers in wanted.items():
            opened = self._get(archive)
            if opened is not None:
                parts.append(self._tiles(archive, opened, np.concatenate(numbers)))
        return concatenated(parts).ordered()

    def _rows(self, square: Square) -> dict[Tile, Int64s]:
        """Records of the tiles of a square by archive."""
        found = {}
        for archive in self._tileset.layout.around(*square):
            if self._wanted is not None and archive not in self._wanted:
                continue
            opened = self._get(archive)
            rows = None if opened is None else self._rows_in(archive, opened, square)
            if rows is not None and len(rows):
                found[archive] = rows
        return found

    def _rows_in(self, archive: Tile, opened: OpenArchive, square: Square) -> Int64s:
        z, x, y, side = square
        if isinstance(self._tileset.layout, MetatileLayout):
            z -= archive[0]
            x, y = x - (archive[1] << z), y - (archive[2] << z)
            # An archive may be smaller than the square.
            side = min(side, 1 << z)
            x, y = max(x, 0), max(y, 0)
        numbers = [
            _within(np.asarray(keys, np.int64), z, x, y, side) + first
            for keys, first in opened.index.columns.keys.values()
        ]
        rows = np.concatenate([np.zeros(0, np.int64), *numbers])
        if self._area is None or not len(rows):
            return rows
        kept, keys = self._tileset.layout.tiles(archive, opened.index.columns.all_keys[0][rows])
        found: Int64s = rows[kept][self._area.holds(keys)]
        return found

    def _archives(self) -> Iterator[tuple[Tile, OpenArchive]]:
        """The archives of the area; remote ones are opened `_AT_ONCE` at a time."""
        get = self._tileset.archives.get
        archives = self._tileset.archive_tiles() if self._wanted is None else iter(self._wanted)
        if self._tileset.archives.local or self._wanted is None:
            found = ((archive, get(archive)) for archive in archives)
        else:
            opened = results(None, get, self._wanted, threads=_AT_ONCE, ahead=_AT_ONCE)
            found = zip(archives, opened, strict=True)  # type: ignore[assignment]
        yield from ((archive, one) for archive, one in found if one is not None)

    @cached_property
    def _wanted(self) -> dict[Tile, None] | None:
        """Archives that may hold tiles of the area; None for all, or if there are too many."""
        area, layout = self._area, self._tileset.layout
        if area is None or isinstance(layout, InArchive):
            return None
        low = max(area.min_zoom, self._tileset.min_zoom)
        high = min(area.max_zoom, self._tileset.max_zoom)
        found: set[Tile] = set()
        for zoom in range(low, high + 1):
            root = layout.root_zoom(zoom)
            if root is None:
                continue
            if root > _DEEPEST:
                return None
            ranges = area.ranges(zoom, root)
            step = 1 << (52 - 2 * root)
            if int(((ranges[:, 1] - ranges[:, 0]) // step + 1).sum()) > _ENUMERATED:
                return None
            _, x, y = tiles(range_cells(ranges))
            pairs = zip((x & -layout.side).tolist(), (y & -layout.side).tolist(), strict=True)
            found |= {(root, column, row) for column, row in pairs}
        return dict.fromkeys(sorted(found))

    def _tiles(self, archive: Tile, opened: OpenArchive, rows: Int64s) -> Tiles:
        index = opened.index
        table = index.columns.table[rows]
        keys, codes = opened.index.columns.all_keys
        keys, codes = keys[rows], codes[rows]
        _, (z, x, y) = self._tileset.layout.tiles(archive, keys)
        comments = [index.columns.comments.get(row, b"") for row in rows.tolist()]
        modified = table["modified"].astype(np.int64)
        payloads = self._payloads(opened, table, keys.tolist(), codes.tolist())
        _check(payloads, table, self.label)
        return Tiles(
            z,
            x,
            y,
            payloads,
            suffix=codes,
            suffixes=index.suffixes,
            methods=table["method"].astype(np.uint16),
            sizes=table["size"].astype(np.int64),
            crcs=table["crc"].astype(np.uint32),
            comments=binary(comments) if any(comments) else None,
            modified=np.where(modified == 0, UNKNOWN_TIME, modified),
        )

    def _payloads(
        self, opened: OpenArchive, table: Any, keys: list[int], codes: list[int]
    ) -> list[bytes]:
        limits, source = self._tileset.limits, opened.source
        odd = (table["method"] != STORE) & (table["method"] != wire.DEFLATE)
        odd |= table["csize"] > limits.tile_bytes
        for row in np.flatnonzero(odd).tolist():
            refuse(Record(*table[row].tolist()), limits, source.href)
        starts = table["offset"].astype(np.int64)
        stops = starts + table["span"].astype(np.int64)

        def check(row: int, data: bytes, at: int) -> None:
            suffix = opened.index.suffixes[codes[row]]
            name, offset = entry_name(key_tile(keys[row]), suffix), int(starts[row])
            check_local_name(data, at, name, offset, opened.index.offsets, opened.label)

        sizes = table["csize"].astype(np.int64)
        return zip_local.read_payloads(source.fetch, (starts, stops), sizes, check, source.href)


def _time(opened: OpenArchive) -> int:
    return (opened.info and opened.info.modified) or 0


def _check(payloads: list[bytes], table: Any, where: str) -> None:
    """Verify the CRC of stored tiles; compressed ones are copied with theirs."""
    plain = table["method"] == STORE
    bad = plain & ((checksums(payloads) != table["crc"]) | (table["csize"] != table["size"]))
    if bad.any():
        raise InvalidMetadataError(
            "the tile is damaged",
            where=where,
            found=f"{int(bad.sum())} of {len(bad)} checksums differ",
            hint="'comal check' tells which tiles; put or delete them",
        )


def _within(keys: Int64s, z: int, x: int, y: int, side: int) -> Int64s:
    """Indices of the tiles of a square in sorted keys, which go column by column."""
    first = BASES[z] + (np.arange(x, x + side, dtype=np.int64) << z) + y
    low, high = np.searchsorted(keys, first), np.searchsorted(keys, first + side)
    if not (high > low).any():
        return np.zeros(0, np.int64)
    return np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
