"""All tiles of a tileset, archive by archive, and what single archives show of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, StorageError
from comal.plan import run
from comal.tapalcatl import spec
from comal.tapalcatl.addressing import Layout, archive_bounds, column_ranges, tile_range, union_of
from comal.tapalcatl.generation1 import Generation1, usual_headers
from comal.tapalcatl.layout import ArchiveLayout, MetatileLayout, TreeLayout
from comal.tapalcatl.reading.archives import Archives, OpenArchive
from comal.tapalcatl.reading.index import ArchiveIndex
from comal.tapalcatl.reading.places import OneArchive, Tilezen, Tree
from comal.tapalcatl.spec import WORLD, ArchiveMetadata, Tile, TileSetMetadata, shared
from comal.tapalcatl.wire import BASES, key_tile, key_tiles, split_suffix, tile_keys
from comal.ziparchive import dead_bytes, directory_plan, local_plan
from comal.ziparchive import wire as zip_wire

SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("href", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("method", pa.int32()),
        ("crc", pa.uint32()),
        ("z", pa.int32()),
        ("x", pa.int64()),
        ("y", pa.int64()),
        ("suffix", pa.string()),
    ]
)
"""``offset`` and ``size`` are those of the stored bytes, where the local header holds no extra
field but ZIP64's; `TileSet.stored_tile` reads the header and knows."""

_MOST_LOOKED_FOR = 1 << 20


def archive_tiles(
    places: OneArchive | Tree | Tilezen,
    locator: ArchiveLayout,
    metadata: TileSetMetadata,
    archives: Archives,
) -> Iterator[Tile]:
    """Root tiles of all archives that are there, by asking the storage or one by one."""
    if isinstance(places, OneArchive):
        yield (0, 0, 0)
        return
    try:
        yield from _inside(places.listed(), locator, metadata)
    except StorageError:
        for tile in candidates(locator, metadata):
            if archives.get(tile) is not None:
                yield tile


def candidates(locator: ArchiveLayout, metadata: TileSetMetadata) -> Iterator[Tile]:
    """Every archive that zooms and bounds allow.

    Raises
    ------
    InvalidInputError
        More than a million of them: too many to be asked for one by one.
    """
    ranges: list[tuple[int, range, range]] = []
    for zoom, depth, side in _levels(locator, metadata):
        bounds = metadata.bounds or WORLD
        down = _roots(tile_range(bounds, zoom + depth)[1], depth, side)
        across = [_roots(span, depth, side) for span in column_ranges(bounds, zoom + depth)]
        if len(across) > 1 and across[0].stop > across[1].start:
            across = [range(across[0].start, across[1].stop, side)]
        ranges += [(zoom, columns, down) for columns in across]
    total = sum(len(columns) * len(rows) for _, columns, rows in ranges)
    if total > _MOST_LOOKED_FOR:
        raise InvalidInputError(
            "archives cannot be listed here, and there are too many to look for each",
            found=f"{total} possible archives",
            expected=f"at most {_MOST_LOOKED_FOR}",
            hint="narrow the zooms or the bounds, or read where the storage lists",
        )
    for zoom, columns, rows in ranges:
        yield from ((zoom, x, y) for x in columns for y in rows)


def _roots(span: range, depth: int, side: int) -> range:
    """Columns or rows of the archives that hold tiles so many zooms below them."""
    return range((span[0] >> depth) & -side, (span[-1] >> depth) + 1, side)


def entry_tables(tiles: Iterable[Tile], archives: Archives, version: int) -> Iterator[Any]:
    """The tiles of each archive as a table of `SCHEMA`, in the order in which they are stored."""
    for tile in tiles:
        archive = archives.get(tile)
        if archive is not None and len(archive.index):
            yield entry_table(archive, version)


def entry_table(archive: OpenArchive, version: int = 2) -> Any:
    """The tiles of one archive as a table of `SCHEMA`."""
    index = archive.index
    keys, codes = all_keys(archive)
    order = np.argsort(index.table["offset"], kind="stable")
    records, keys, codes = index.table[order], keys[order], codes[order]
    z, x, y = key_tiles(keys)
    suffixes = pa.array(index.suffixes, pa.string()).take(pa.array(codes))
    texts = [pa.array(values).cast(pa.string()) for values in (z, x, y)]
    names = pc.binary_join_element_wise(*texts, "/")
    key = pc.binary_join_element_wise(names, suffixes, "")
    if version == 1:
        root = "/".join(map(str, archive.tile))
        key = pc.binary_join_element_wise(pa.scalar(root), key, "/")
    zip64 = (records["size"] >= zip_wire.U32) | (records["csize"] >= zip_wire.U32)
    offsets = records["offset"].astype(np.int64) + zip_wire.LOCAL_SIZE + records["name_size"]
    columns = [
        key,
        pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(records), np.int8)), pa.array([archive.href])
        ).cast(pa.string()),
        pa.array(offsets + np.where(zip64, 20, 0)),
        pa.array(records["csize"].astype(np.int64)),
        pa.array(records["method"].astype(np.int32)),
        pa.array(records["crc"]),
        pa.array(z.astype(np.int32)),
        pa.array(x),
        pa.array(y),
        suffixes,
    ]
    return pa.table(columns, schema=SCHEMA)


def all_keys(archive: OpenArchive) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """`tile_keys` and codes of suffixes of all records, by number."""
    parts = archive.index.keys.values()
    keys = [np.asarray(part, np.int64) for part, _ in parts]
    codes = [np.full(len(part), code, np.int32) for code, part in enumerate(keys)]
    if not keys:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    return np.concatenate(keys), np.concatenate(codes)


def tile_array(
    tiles: Iterable[Tile], archives: Archives, locator: ArchiveLayout
) -> npt.NDArray[np.int64]:
    """Zoom, column and row of every tile, each once, sorted; shape (n, 3)."""
    found = [np.zeros(0, np.int64)]
    for tile in tiles:
        archive = archives.get(tile)
        if archive is None:
            continue
        _, absolute = locator.tiles(tile, np.unique(all_keys(archive)[0]))
        found.append(tile_keys(*absolute))
    keys = np.unique(np.concatenate(found))
    return np.column_stack(key_tiles(keys))


def _levels(locator: ArchiveLayout, metadata: TileSetMetadata) -> Iterator[tuple[int, int, int]]:
    """Zooms at which archives begin, depth of their first tiles, and tiles per side."""
    first, last = metadata.min_zoom or 0, metadata.max_zoom
    if isinstance(locator, MetatileLayout):
        delta = locator.settings.delta(locator.settings.tile_size)
        deepest = locator.settings.max_detail_zoom
        stop = max((last or 0) - delta, 0)
        for zoom in range(max(first - delta, 0), min(stop, deepest or stop) + 1):
            yield zoom, 0, 1
        return
    assert isinstance(locator, TreeLayout)
    layout: Layout = locator.layout
    for zoom in layout.materialized_zooms:
        end = layout.last_zoom(zoom, zoom if last is None else last)
        if first <= end and (last is None or zoom <= last):
            yield zoom, max(first - zoom, 0), min(layout.metatile, 1 << zoom)


def _inside(
    tiles: Iterable[Tile], locator: ArchiveLayout, metadata: TileSetMetadata
) -> Iterator[Tile]:
    """Those of the archives that lie there which the tileset's arithmetic can lead to."""
    if isinstance(locator, MetatileLayout):
        yield from (tile for tile in tiles if max(tile[1:]) < 1 << tile[0])
        return
    sides = {zoom: side for zoom, _, side in _levels(locator, metadata)}
    for z, x, y in tiles:
        side = sides.get(z)
        if side is not None and x % side == 0 and y % side == 0 and max(x, y) < 1 << z:
            yield z, x, y


_GAP = 64
"""Keys of foreign documents that would say something else of tiles that are served anew."""


def of_archive(index: ArchiveIndex) -> TileSetMetadata:
    """A single archive as a tileset: its comment, and what only the directory knows."""
    own = index.metadata or ArchiveMetadata()
    split = [split_suffix(suffix) for suffix in index.suffixes]
    formats = dict(own.formats) or {ext: spec.content_headers(ext) for _, ext in split}
    scales = {scale for scale, _ in split}
    single = scales.pop() if len(scales) == 1 and own.min_scale == own.max_scale == 1 else None
    bounds = own.bounds
    if bounds is None and own.root is not None:
        bounds = archive_bounds(own.root, own.metatile)
    scale = {} if single is None else {"min_scale": single, "max_scale": single}
    first = own.root[0] if own.root is not None else index.lowest or 0
    found = {
        **shared(own),
        **scale,
        "formats": formats,
        "min_zoom": index.lowest if own.min_zoom is None else own.min_zoom,
        "max_zoom": index.highest if own.max_zoom is None else own.max_zoom,
        "bounds": _bounds_of(index) if bounds is None else bounds,
        "materialized_zooms": own.materialized_zooms or (first,),
    }
    return TileSetMetadata(**found, version=own.version)


def of_generation1(config: Generation1) -> TileSetMetadata:
    """What the configuration of Tapalcatl 1 says."""
    return TileSetMetadata(
        formats={ext: headers or usual_headers(ext) for ext, headers in config.formats.items()},
        min_zoom=config.min_zoom,
        max_zoom=config.max_zoom,
        bounds=spec.WORLD,
        metatile=config.metatile,
    )


def summary(archive: OpenArchive | None) -> dict[str, int]:
    """Tiles and bytes of an archive, and how many of these belong to no tile any more, about.

    Gaps below 64 bytes are extra fields of local headers and data descriptors.
    """
    if archive is None:
        return dict.fromkeys(("count", "archives", "size", "dead_space"), 0)
    index = archive.index
    if index.count != len(index):
        return {
            "count": len(index),
            "archives": 1,
            "size": index.total,
            "dead_space": _dead(archive),
        }
    table = index.table
    order = np.argsort(table["offset"], kind="stable")
    starts = table["offset"][order].astype(np.int64)
    stops = starts + zip_wire.LOCAL_SIZE + table["name_size"][order] + table["csize"][order]
    stops = np.maximum.accumulate(stops) if len(stops) else stops
    gaps = np.r_[starts, index.end] - np.r_[0, stops]
    return {
        "count": len(index),
        "archives": 1,
        "size": index.total,
        "dead_space": int(gaps[gaps >= _GAP].sum()),
    }


def _dead(archive: OpenArchive) -> int:
    """Dead bytes of an archive that holds other things than tiles, each counted by itself."""
    fetch = archive.source.fetch
    directory = run(directory_plan("", where=archive.label, lenient=True), fetch)
    offsets, _ = run(local_plan(directory), fetch)
    return dead_bytes(directory, offsets)


def _bounds_of(index: ArchiveIndex) -> spec.Bounds:
    """The box around the tiles of the first zoom of an archive that does not say its own."""
    if index.lowest is None:
        return spec.WORLD
    first, stop = BASES[index.lowest], BASES[index.lowest + 1]
    found: list[spec.Tile] = []
    for keys, _ in index.keys.values():
        found += [key_tile(key) for key in keys if first <= key < stop][:4096]
    return union_of(found)
