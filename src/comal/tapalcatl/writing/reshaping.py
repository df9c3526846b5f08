"""Tilesets joined, cut and laid out anew; payloads go over as they are stored."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from comal.errors import InvalidInputError
from comal.storage import local_path, several
from comal.storage.kinds import check_ending
from comal.storage.targetlock import write_errors
from comal.storage.targets import new_set
from comal.tapalcatl import planning
from comal.tapalcatl.addressing import Layout
from comal.tapalcatl.containers.base import TileSource, no_tiles
from comal.tapalcatl.containers.export import opened
from comal.tapalcatl.containers.tilesets import FilteredSource, MergedSource
from comal.tapalcatl.kinds import tree_kind
from comal.tapalcatl.spec import MAX_ZOOM, Tile
from comal.tapalcatl.writing.building import Built, build
from comal.tapalcatl.writing.options import SOURCE
from comal.tapalcatl.writing.targets import is_archive

_PARTS = "tilesets"
"""What the set of all parts is called while they are made."""
Location = str | os.PathLike[str]


def merge(
    sources: Sequence[Any], out: Location, *, conflict: str = "last", **options: Any
) -> Built:
    """Write one tileset of several sources.

    Parameters
    ----------
    sources
        Anything that `build` takes, several of them.
    out
        A local folder, or a name that ends in ``.zip`` for a single archive.
    conflict
        Which tile counts where several sources have one: that of the ``first`` or the ``last``
        of them; ``error`` refuses that, unless the bytes are the same.
    **options
        As for `build`; times are those of the sources unless given. Without `metatile` and
        `materialized_zooms` the layout is that of the first source whose archives would hold all
        tiles with directories of at most 64 KiB, or chosen as `build` does where there is none.
        What is returned tells which it is.

    Raises
    ------
    InvalidInputError
        No source; with ``error`` a tile of several sources.
    """
    with ExitStack() as scope:
        parts = [opened(source, scope) for source in several(sources, "sources of tiles")]
        chosen = {"times": SOURCE, **options} if is_archive(out) else _options(parts, options)
        return build(MergedSource(parts, conflict), out, **chosen)


def split(
    source: Any,
    out: Location,
    *,
    zooms: Sequence[tuple[int, int]] | None = None,
    at: int | None = None,
    **options: Any,
) -> dict[str, Built]:
    """Cut a source into several tilesets, each in a folder below `out`; all appear together.

    Parameters
    ----------
    source
        Anything that `build` takes.
    out
        A local folder, made if need be.
    zooms
        A tileset ``z{first}-{last}`` for each pair of zooms, both included.
    at
        A tileset ``{z}-{x}-{y}`` for each tile of this zoom that has descendants, which holds it
        and them, and ``above`` for all zooms before.
    **options
        As for `build`. Without any the layout is that of the source, as for `merge`.

    Returns
    -------
    dict
        The tilesets that were written, by name; parts without tiles are left out.

    Raises
    ------
    InvalidInputError
        Neither `zooms` nor `at`, or both.
    """
    if (zooms is None) == (at is None):
        raise InvalidInputError("nothing says how to split", expected="either zooms or at")
    if at is not None and not 0 <= at <= MAX_ZOOM:
        raise InvalidInputError("no zoom to split at", found=at, expected=f"0 to {MAX_ZOOM}")
    folder = local_path(out, "the target")
    check_ending(folder)
    with ExitStack() as scope:
        whole = opened(source, scope)
        if whole.zooms() is None:
            raise no_tiles(whole)
        is_new = not folder.exists()
        with write_errors("cannot create", folder):
            folder.mkdir(parents=True, exist_ok=True)
        if is_new:
            scope.callback(_remove_empty, folder)
        overwrite = bool(options.pop("overwrite", False))
        made = scope.enter_context(new_set(folder / _PARTS, overwrite, source))
        written = {}
        for name, part in _parts(whole, zooms, at).items():
            if part.zooms() is not None:
                chosen = {**_options([whole], options), "resume": False}
                kind = tree_kind(options.get("version", 2), options.get("generation1"))
                built = build(part, made.add(name, kind, folder=True), **chosen)
                written[name] = replace(built, output=os.fspath(folder / name))
        made.publish()
        return written


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def remetatile(source: Any, out: Location, **options: Any) -> Built:
    """Write a tileset with another layout: other materialized zooms, another metatile.

    Parameters
    ----------
    source
        Anything that `build` takes, most often a tileset.
    out
        A local folder, or a name that ends in ``.zip`` for a single archive.
    **options
        As for `build`; times are those of the source unless given.
    """
    with ExitStack() as scope:
        return build(opened(source, scope), out, **{"times": SOURCE, **options})


def _parts(
    whole: TileSource, zooms: Sequence[tuple[int, int]] | None, at: int | None
) -> Mapping[str, FilteredSource]:
    if zooms is not None:
        return {f"z{low}-{high}": FilteredSource(whole, low, high) for low, high in zooms}
    assert at is not None
    roots: set[Tile] = set()
    for z, x, y in whole.keys():  # noqa: SIM118 - no mapping
        deep = z >= at
        shift = z[deep] - at
        columns, rows = (x[deep] >> shift).tolist(), (y[deep] >> shift).tolist()
        roots.update((at, column, row) for column, row in zip(columns, rows, strict=True))
    parts = {"above": FilteredSource(whole, 0, at - 1)} if at else {}
    for root in sorted(roots):
        parts["-".join(map(str, root))] = FilteredSource(whole, at, root=root)
    return parts


def _options(parts: Sequence[TileSource], options: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, and the layout and times of the sources for the rest."""
    chosen = {"times": SOURCE, **options}
    if {"metatile", "materialized_zooms", "version"} & options.keys():
        return chosen
    ends = [found for part in parts if (found := part.zooms()) is not None]
    for part in parts if ends else ():
        own = part.metadata
        if own.source is None or not own.materialized_zooms:
            continue
        layout = Layout(own.materialized_zooms, own.metatile)
        if _holds(layout, min(low for low, _ in ends), max(high for _, high in ends)):
            chosen["metatile"] = own.metatile
            chosen["materialized_zooms"] = own.materialized_zooms
            break
    return chosen


def _holds(layout: Layout, min_zoom: int, max_zoom: int) -> bool:
    """Whether archives of a layout hold all zooms, and their directories come with one request."""
    if layout.materialized_zooms[0] > min_zoom:
        return False
    longest = (
        planning.directory_bytes(layout, zoom, max_zoom)
        for zoom in layout.materialized_zooms
        if zoom <= max_zoom
    )
    return max(longest) <= planning.DIRECTORY_LIMIT
