"""Tortilla 0.5 and TACO v1 behind the generic commands: an `Archive` over a frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from comal import tortilla
from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.formats import LEAF_COLUMNS
from comal.geo import boxes, footprints, places
from comal.progress import Progress
from comal.tortilla import spec
from comal.tortilla.archive import Address, Part, nested_rows
from comal.tortilla.frame import TortillaFrame

_ROWS = 65_536
_NESTED_ROWS = 256
_COUNTED = 2_000
"""Nested files that are opened to count their items; beyond that there is no count."""
_PLACED = 100_000
"""Rasters whose footprints are computed to get the bounds."""


def archive(href: str) -> TortillaArchive:
    """The file at `href`."""
    return TortillaArchive(tortilla.open(href))


def repair(href: str, output: str, *, overwrite: bool, progress: Progress) -> Any:
    """Raises: the footer is the only index, and nothing could restore it."""
    del output, overwrite, progress
    raise InvalidInputError("a Tortilla has nothing to be repaired from", where=href)


class TortillaArchive:
    """One file, as the generic commands see it.

    A leaf is an item that is not a nested file; its key is its id, after the ids of the items that
    contain it.
    """

    def __init__(self, frame: TortillaFrame) -> None:
        self.frame = frame

    def describe(self) -> dict[str, Any]:
        """The main fields of header, footer and collection, and counts."""
        frame = self.frame
        (part,) = frame.home.parts
        collection = frame.collection or {}
        return {
            "version": _version(part, collection),
            "container": "file" if part.header.parts <= 1 else "part",
            "layout": part.header.layout,
            "id": collection.get("id"),
            "title": collection.get("title"),
            "count": _count(frame),
            "items": len(frame),
            "nested": len(nested_rows(frame.to_arrow())),
            "parts": part.header.parts,
            "size": part.size,
            "bounds": _bounds(frame, collection),
            "profiles": _profiles(frame),
            "licenses": collection.get("licenses"),
        }

    def leaves(self) -> Iterator[Any]:
        """Items depth first, in the order of rows."""
        frame = self.frame
        step = _NESTED_ROWS if len(nested_rows(frame.to_arrow())) else _ROWS
        for start in range(0, len(frame), step):
            table = frame[start : start + step].flatten(()).to_arrow()
            hrefs = pa.array(np.repeat(frame.files[0], table.num_rows), pa.string())
            columns = (
                table[spec.PATH],
                hrefs,
                table[spec.OFFSET],
                table[spec.LENGTH],
                table[spec.FILE_FORMAT],
            )
            yield pa.table(list(columns), list(LEAF_COLUMNS))

    def blocks(self, key: str) -> Iterator[bytes]:
        """The bytes of the item whose path of ids is `key`; a nested file is one too."""
        yield from self._leaf(key).blocks()

    def close(self) -> None:
        """Close the storage."""
        for part in self.frame.home.parts:
            part.source.close()

    def _leaf(self, key: str) -> Any:
        try:
            return self.frame.leaf(key)
        except InvalidInputError as error:
            # The caller gave a key that `ls` lists: the fault is the file's duplicate id.
            raise InvalidMetadataError(
                "the key stands for several items",
                where=f"{shown(key)} in {self.frame.files[0]}",
                found=error.found,
            ) from error


def _version(part: Part, collection: dict[str, Any]) -> str:
    if part.header.is_taco and isinstance(collection.get("taco_version"), str):
        return str(collection["taco_version"])
    oldest = "0.0.1" if part.json_footer else "0.0.5"
    return {"v0.5": spec.SPEC_VERSION, "v0.1": "0.1", "v0.0": oldest}[part.header.layout]


def _count(frame: TortillaFrame) -> int | None:
    """Leaves at any depth. Files that share bytes are counted once for each row that names them."""
    table, home = frame.to_arrow(), frame.home
    if len(nested_rows(table)) > _COUNTED:
        return None
    below: dict[Address, list[Address]] = {}
    own: dict[Address, int] = {}
    top = home.addresses(table, nested_rows(table))
    level, depth = list(dict.fromkeys(top)), 1
    while level:
        for address, nested in zip(level, home.nested(level, depth), strict=True):
            rows = nested_rows(nested.items)
            below[address] = home.addresses(nested.items, rows)
            own[address] = nested.items.num_rows - len(rows)
        level = list(dict.fromkeys(one for address in level for one in below[address]))
        depth += 1
    # Deeper files come later: backwards, everything inside an address is counted before it.
    for address in reversed(below):
        own[address] += sum(own[one] for one in below[address])
    return int(table.num_rows) - len(top) + sum(own[one] for one in top)


def _bounds(frame: TortillaFrame, collection: dict[str, Any]) -> list[float] | None:
    extent = collection.get("extent")
    if isinstance(extent, dict):
        spatial = extent.get("spatial")
        if isinstance(spatial, list) and spatial and isinstance(spatial[0], list):
            return spatial[0]
    if not 0 < len(frame) <= _PLACED:
        return None
    way = next((one for one in places.ways_of(frame.schema) if one.kind == "raster"), None)
    if way is None:
        return None
    columns = [frame[name].combine_chunks() for name in way.columns]
    try:
        box = boxes.union_box(*footprints.footprints(*columns))
    except InvalidInputError:
        return None  # a broken CRS or list: `comal check` says which
    return None if box is None else list(map(float, box))


def _profiles(frame: TortillaFrame) -> list[str]:
    """Which sets of optional columns are complete, without nulls."""
    table = frame.to_arrow()
    sets = {"stac-tortilla": spec.STAC_REQUIRED, "rai-tortilla": spec.RAI_REQUIRED}
    return [
        name
        for name, columns in sets.items()
        if set(columns) <= set(table.column_names)
        and not any(table[column].null_count for column in columns)
    ]
