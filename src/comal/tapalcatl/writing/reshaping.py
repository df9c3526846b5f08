"""Merges, extracts and re-lays out tilesets; payloads are copied as stored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from comal.errors import InvalidInputError
from comal.parallel import Workers
from comal.progress import Progress
from comal.public import takes
from comal.storage import Source, several
from comal.tapalcatl.containers.base import TileSource, outermost
from comal.tapalcatl.containers.export import opened
from comal.tapalcatl.containers.tilesets import Area, MergedSource, PartOptions, TileSetSource
from comal.tapalcatl.layout import DIRECTORY_LIMIT, Layout, TreeLayout, directory_bytes
from comal.tapalcatl.reading.opening import open as open_tileset
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.writing.building import Built, build
from comal.tapalcatl.writing.entries import SOURCE
from comal.tapalcatl.writing.targets import is_archive

Location = str | os.PathLike[str]
_LAYOUT = frozenset({"metatile", "materialized_zooms", "version"})


def merge(
    sources: Sequence[Any], out: Location, *, conflict: str = "last", **options: Any
) -> Built:
    """Merge several sources into one tileset.

    Parameters
    ----------
    sources
        A list of anything that `build` takes.
    out
        A folder, or a name that ends in ``.zip`` for a single archive.
    conflict
        Which tile wins if several sources have one: that of the ``first`` or the ``last`` source.
    **options
        As for `build`; times are those of the sources by default. Without `metatile` and
        `materialized_zooms` the layout is that of the first source whose archives would hold all
        tiles with directories of at most 64 KiB; if there is none, `build` chooses it. The result
        contains the layout.

    Raises
    ------
    InvalidInputError
        There is no source.
    """
    with ExitStack() as scope:
        parts = [opened(source, scope) for source in several(sources, "sources of tiles")]
        chosen = {"times": SOURCE, **options}
        if not is_archive(out) and not _LAYOUT & options.keys():
            chosen |= _layout_of(parts)
        return build(MergedSource(parts, conflict), out, **chosen)


def remetatile(source: Any, out: Location, **options: Any) -> Built:
    """Write a tileset with another layout: other materialized zooms, another metatile.

    Parameters
    ----------
    source
        Anything that `build` takes, most often a tileset.
    out
        A folder, or a name that ends in ``.zip`` for a single archive.
    **options
        As for `build`; times are those of the source by default.
    """
    with ExitStack() as scope:
        return build(opened(source, scope), out, **{"times": SOURCE, **options})


@takes(PartOptions)
def extract(
    source: str | os.PathLike[str] | Source | TileSet,
    out: str | os.PathLike[str],
    *,
    metatile: int | None = None,
    materialized_zooms: Sequence[int] | None = None,
    executor: Workers = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Built:
    """Copy an area of a tileset; tiles keep their bytes, headers and times.

    Reads only the directories of archives that overlap the area and the tiles of the area,
    neighbouring tiles in one request.

    Parameters
    ----------
    source
        As for `comal.tapalcatl.open`, or an open tileset.
    out
        The folder to write, or a name that ends in ``.zip`` for a single archive.
    bbox
        West, south, east, north in degrees; west > east crosses the antimeridian. Copies the tiles
        that it overlaps.
    geometry
        GeoJSON as a mapping, text or file, or a shapely geometry; instead of `bbox`.
    min_zoom, max_zoom
        Zooms to copy, both inclusive.
    overview_zoom
        Tiles down to this zoom are copied everywhere, so that a map has a background outside of
        the area.
    metatile, materialized_zooms
        The layout of the extract; by default that of the source, or a single root for a single
        archive.
    executor, overwrite, progress
        As for `comal.tapalcatl.build`.
    **options
        Options for opening the source; its `config` is also that of the target. Open Tapalcatl 1
        first, as `metatile` here is that of the extract.

    Raises
    ------
    InvalidInputError
        Both a box and a geometry, invalid zooms, or an area without tiles.
    ConflictError
        `out` exists.
    """
    known = PartOptions.__dataclass_fields__
    area = Area(PartOptions(**{name: options.pop(name) for name in known if name in options}))
    tileset = source if isinstance(source, TileSet) else open_tileset(source, **options)
    try:
        part = TileSetSource(tileset, area)
        if part.zooms() is None:
            raise InvalidInputError(
                "no tile lies in the part",
                where=tileset.href,
                found=f"zooms {area.min_zoom} to {area.max_zoom}",
                expected=f"a part of zooms {tileset.min_zoom} to {tileset.max_zoom} "
                f"and of {', '.join(f'{edge:g}' for edge in tileset.bounds)}",
            )
        said = tileset.metadata
        own = isinstance(tileset.layout, TreeLayout) and not is_archive(out)
        if materialized_zooms is None and own:
            materialized_zooms = said.materialized_zooms
        return build(
            part,
            out,
            metatile=metatile or (said.metatile if own else None),
            materialized_zooms=materialized_zooms,
            times=SOURCE,
            executor=executor,
            overwrite=overwrite,
            progress=progress,
            resume=False,
            config=options.get("config"),
        )
    finally:
        if tileset is not source:
            tileset.close()


def _layout_of(parts: Sequence[TileSource]) -> dict[str, Any]:
    """The layout of the first source whose archives can hold the tiles of all sources."""
    ends = outermost(part.zooms() for part in parts)
    if ends is None:
        return {}
    for part in parts:
        own = part.metadata
        if own.source is None or not own.materialized_zooms:
            continue
        layout = Layout(own.materialized_zooms, own.metatile)
        if _holds(layout, *ends):
            return {"metatile": own.metatile, "materialized_zooms": own.materialized_zooms}
    return {}


def _holds(layout: Layout, min_zoom: int, max_zoom: int) -> bool:
    """Whether archives of a layout hold all zooms, and their directories fit into one request."""
    if layout.materialized_zooms[0] > min_zoom:
        return False
    roots = (zoom for zoom in layout.materialized_zooms if zoom <= max_zoom)
    return max(directory_bytes(layout, zoom, max_zoom) for zoom in roots) <= DIRECTORY_LIMIT
