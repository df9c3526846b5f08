"""Tapalcatl 1 and 2 behind the generic commands: an `Archive` over a tileset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from comal import tapalcatl
from comal.check import OF_CONTENT
from comal.errors import ComalError, InvalidInputError, NotInContainerError, StorageError, shown
from comal.formats import LEAF_COLUMNS
from comal.progress import Progress
from comal.tapalcatl import TileSet
from comal.tapalcatl.addressing import UNIT
from comal.tapalcatl.containers.tilesets import TileSetSource
from comal.tapalcatl.layout import TreeLayout
from comal.tapalcatl.wire import parse_name, split_suffix
from comal.tapalcatl.writing.targets import is_archive

_SLASHES_OF_FIRST = 5
"""In keys of Tapalcatl 1."""
_COUNTED = 100_000
"""Archives whose directories are read to count tiles; beyond that there is no count."""


def archive(href: str, **opening: Any) -> TapalcatlArchive:
    """The tileset or the single archive at `href`; `opening` has what it does not store."""
    tileset = tapalcatl.open(href, **opening)
    if opening:
        tileset.learn_formats()
    return TapalcatlArchive(tileset)


def repair(href: str, output: str, *, overwrite: bool, progress: Progress, **opening: Any) -> Any:
    """Write all tiles into a new tileset of this layout, without dead bytes and duplicates.

    Raises
    ------
    InvalidInputError
        A copy would not have all of them.
    """
    with tapalcatl.open(href, **opening) as tileset:
        lost = ", ".join(tileset.variants) if "variant" not in opening else ""
        if tileset.version == 1 or lost:
            raise InvalidInputError(
                "a mended copy would not have all tiles of this tileset",
                where=href,
                found=f"variants: {lost}" if lost else "Tapalcatl 1, with tiles of several sizes",
                hint="copy the tileset and compact the copy, which keeps all of them",
            )
        return tapalcatl.build(
            tileset,
            output,
            times="source",
            resume=False,
            overwrite=overwrite,
            progress=progress,
            **_layout_of(tileset, output),
        )


def _layout_of(tileset: TileSet, output: str) -> dict[str, Any]:
    """The layout of a tileset as options, if its archives can hold all tiles."""
    own, ends = tileset.layout, TileSetSource(tileset).zooms()
    if not isinstance(own, TreeLayout) or is_archive(output) or ends is None:
        return {}
    zooms = own.layout.materialized_zooms
    if zooms[0] > ends[0]:
        return {}
    hashed = own.template.hashed
    return {"metatile": own.side, "materialized_zooms": zooms, "hash_in_path": hashed}


class TapalcatlArchive:
    """A tileset, as the generic commands see it. A leaf is a tile, its key the entry's name."""

    def __init__(self, tileset: TileSet) -> None:
        self.tileset = tileset
        self.failed: list[ComalError] = []

    def describe(self) -> dict[str, Any]:
        """The main fields of the document, and counts if archives can be listed."""
        tileset, metadata = self.tileset, self.tileset.metadata
        counted = self._counted()
        return {
            "version": "1" if tileset.version == 1 else metadata.version,
            "container": "archive" if tileset.files.alone else "tree",
            "name": metadata.name,
            "description": metadata.description,
            **counted,
            "bounds": list(tileset.bounds),
            "minzoom": tileset.min_zoom,
            "maxzoom": metadata.max_zoom,
            "formats": {ext: dict(tileset.headers(ext)) for ext in tileset.formats},
            "scales": sorted({metadata.min_scale, metadata.max_scale}),
            "metatile": metadata.metatile,
            "materialized_zooms": list(metadata.materialized_zooms),
        }

    def leaves(self) -> Iterator[Any]:
        """Tiles archive by archive, in the order of their bytes; errors are in `failed`."""
        self.failed = []
        for table in self._tables():
            codes = table["suffix"].combine_chunks().dictionary_encode()
            types = pa.array([self._type(suffix.as_py()) for suffix in codes.dictionary])
            columns = [table["key"], table["href"], table["offset"], table["size"]]
            columns.append(types.take(codes.indices))
            yield pa.table(columns, list(LEAF_COLUMNS))

    def _tables(self) -> Iterator[Any]:
        tileset = self.tileset
        alone = tileset.files.alone
        for tile in tileset.archive_tiles():
            try:
                archive = tileset.archives.get(tile)
                if archive is not None and len(archive.index):
                    yield archive.table(tileset.version)
            except OF_CONTENT as error:
                if alone:
                    raise
                self.failed.append(error)  # the other archives can be read

    def blocks(self, key: str) -> Iterator[bytes]:
        """The checked bytes of a tile; of the first format if `key` has no extension."""
        tile = self.tileset.tile(**self._place(key))
        if tile is None:
            raise _absent(key, self.tileset)
        yield tile.data

    def close(self) -> None:
        """Close the archives."""
        self.tileset.close()

    def _type(self, suffix: str) -> str:
        folded = {name.lower(): v for name, v in self.tileset.headers(split_suffix(suffix)[1])}
        return folded.get("content-type", "application/octet-stream")

    def _place(self, key: str) -> dict[str, Any]:
        """Arguments of `TileSet.tile` for a key.

        For Tapalcatl 1 it has the archive's tile before the entry's name, which is relative to it:
        the same tile can be in several archives, in several sizes.
        """
        root, name, size = None, key, None
        if self.tileset.version == 1 and key.count("/") == _SLASHES_OF_FIRST:
            parts = key.split("/")
            name = "/".join(parts[3:])
            root = parse_name("/".join(parts[:3]))
        found = parse_name(name)
        if found is None or (name != key and root is None):
            raise _absent(key, self.tileset)
        (z, x, y), suffix = found
        if root is not None:
            size = self.tileset.metadata.metatile * UNIT >> z
            if size < UNIT:
                raise _absent(key, self.tileset)
            z, x, y = root[0][0] + z, (root[0][1] << z) + x, (root[0][2] << z) + y
        scale, ext = split_suffix(suffix)
        named = {"scale": scale if suffix.startswith("@") else None, "ext": ext or None}
        return {"z": z, "x": x, "y": y, "size": size, **named}

    def _counted(self) -> dict[str, Any]:
        unknown = dict.fromkeys(("count", "archives", "size", "dead_space"))
        tileset = self.tileset
        if tileset.files.alone:
            return self._summary((0, 0, 0))
        try:
            there = list(tileset.files.listed())
        except StorageError:
            return unknown
        if len(there) > _COUNTED:
            return {**unknown, "archives": len(there)}
        sums, broken = [], 0
        for tile in there:
            try:
                sums.append(self._summary(tile))
            except OF_CONTENT:  # the other archives can be read
                broken += 1
        counted = {key: int(np.sum([one[key] for one in sums])) for key in unknown}
        return {**counted, "broken_archives": broken} if broken else counted

    def _summary(self, tile: tuple[int, int, int]) -> dict[str, int]:
        archive = self.tileset.archives.get(tile)
        if archive is None:
            return dict.fromkeys(("count", "archives", "size", "dead_space"), 0)
        return archive.summary()


def _absent(key: str, tileset: TileSet) -> NotInContainerError:
    return NotInContainerError(
        "no such tile",
        where=f"{shown(key)} in {shown(tileset.href, 120)[1:-1]}",
        hint="'comal ls' lists the tiles",
    )
