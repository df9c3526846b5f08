"""Tilesets described: what single archives and configurations show, and TileJSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from comal.plan import run
from comal.tapalcatl import spec
from comal.tapalcatl.addressing import archive_bounds, union_of
from comal.tapalcatl.generation1 import FORMATS, Generation1
from comal.tapalcatl.reading.archives import OpenArchive
from comal.tapalcatl.reading.index import ArchiveIndex
from comal.tapalcatl.spec import ArchiveMetadata, Headers, TileSetMetadata
from comal.tapalcatl.wire import BASES, key_tile, split_suffix
from comal.ziparchive import dead_bytes, directory_plan, local_plan
from comal.ziparchive import wire as zip_wire

TILEJSON: Final = "3.0.0"
_GAP = 64
_OWN = frozenset({"tilejson", "tiles", "scheme", "basename", "filesize", "format", "type"})
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
    return TileSetMetadata(
        formats=formats,
        min_zoom=index.lowest if own.min_zoom is None else own.min_zoom,
        max_zoom=index.highest if own.max_zoom is None else own.max_zoom,
        bounds=_bounds_of(index) if bounds is None else bounds,
        metatile=own.metatile,
        materialized_zooms=own.materialized_zooms
        or (own.root[0] if own.root is not None else index.lowest or 0,),
        name=own.name,
        description=own.description,
        min_scale=own.min_scale if single is None else single,
        max_scale=own.max_scale if single is None else single,
        version=own.version,
        extra=own.extra,
    )


def of_generation1(config: Generation1) -> TileSetMetadata:
    """What the configuration of Tapalcatl 1 says."""
    return TileSetMetadata(
        formats={ext: headers or _usual(ext) for ext, headers in config.formats.items()},
        min_zoom=config.min_zoom,
        max_zoom=config.max_zoom,
        bounds=spec.WORLD,
        metatile=config.metatile,
    )


def with_formats(known: Mapping[str, Headers], found: Iterable[str]) -> dict[str, Headers]:
    """Formats of Tapalcatl 1 as its archives show them: those of Tilezen first, in its order."""
    every = {*known, *found}
    names = [name for name in FORMATS if name in every]
    names += [name for name in known if name not in FORMATS]
    names += sorted(every - {*names})
    return {name: known.get(name) or _usual(name) for name in names}


def _usual(ext: str) -> Headers:
    return FORMATS.get(ext) or spec.content_headers(ext)


def renamed(metadata: TileSetMetadata, source: str | None) -> TileSetMetadata:
    """The metadata with another template, where one is given."""
    return metadata if source is None else replace(metadata, source=source)


def tilejson(metadata: TileSetMetadata, tiles: Sequence[str], **more: Any) -> dict[str, Any]:
    """TileJSON 3.0 of a tileset."""
    foreign: Mapping[str, Any] = metadata.extra
    document: dict[str, Any] = {"tilejson": TILEJSON, "tiles": list(tiles)}
    if metadata.name is not None:
        document["name"] = metadata.name
    if metadata.description is not None:
        document["description"] = metadata.description
    document["scheme"] = "xyz"
    document["minzoom"] = metadata.min_zoom or 0
    if metadata.max_zoom is not None:
        document["maxzoom"] = metadata.max_zoom
    document["bounds"] = list(metadata.bounds or spec.WORLD)
    document.update({key: value for key, value in foreign.items() if key not in _OWN})
    document.update(more)
    return document


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
