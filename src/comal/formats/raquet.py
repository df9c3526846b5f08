"""RaQuet behind the generic commands: an `Archive` over its tiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from comal import grid, raquet
from comal.errors import InvalidInputError, NotInContainerError, shown
from comal.formats import LEAF_COLUMNS
from comal.raquet.blobs import raw_bytes
from comal.raquet.reading.file import RaquetFile

_ROWS = 16_384
_KEY = re.compile(r"([0-9]{1,2})/([0-9]{1,8})/([0-9]{1,8})(?:@([0-9]{1,9}))?")
_SPANS = pa.list_(pa.struct([("name", pa.string()), ("offset", pa.int64()), ("size", pa.int64())]))


def archive(href: str) -> RaquetArchive:
    """The file at `href`."""
    return RaquetArchive(raquet.open(href))


class RaquetArchive:
    """One file, as the generic commands see it.

    A leaf is a tile; its key is ``z/x/y``, and in a time series ``z/x/y@n`` for step n. Its span
    is its Parquet page, if the file has a page for each tile; with several bands there is one for
    each, listed in ``bands``. `blocks` yields the pixels of one band, row by row, little-endian
    and decompressed.
    """

    def __init__(self, file: RaquetFile, band: str | None = None) -> None:
        self.file = file
        self._band = band

    def with_band(self, name: str) -> RaquetArchive:
        """The same archive restricted to one band."""
        names = self.file.metadata.band_names
        if name not in names:
            raise InvalidInputError(
                "no such band",
                where=self.file.href,
                found=shown(name),
                expected=", ".join(shown(one) for one in names[:20]),
            )
        return RaquetArchive(self.file, name)

    def describe(self) -> dict[str, Any]:
        """The main metadata, and counts."""
        metadata = self.file.metadata
        ids = self.file.store.ids
        zooms, counts = np.unique(ids[ids != 0] >> 52 & 31, return_counts=True)
        times = self.file.times
        part = self.file.store.parts[0]
        return {
            "version": metadata.version,
            "container": "parquet",
            "count": int(counts.sum()),
            "size": part.footer.tail.total,
            "bounds": list(self.file.bounds),
            "crs": self.file.crs,
            "zooms": [metadata.min_zoom, metadata.max_zoom],
            "tiles": {str(zoom): int(n) for zoom, n in zip(zooms, counts, strict=True)},
            "width": metadata.width,
            "height": metadata.height,
            "block": [metadata.block_width, metadata.block_height],
            "compression": metadata.compression,
            "layout": metadata.layout,
            "bands": [
                {"name": band.name, "type": band.dtype, "nodata": _plain(band.nodata)}
                for band in metadata.bands
            ],
            "times": None if times is None else len(times),
            "one_page_per_tile": all(name in part.pages for name in metadata.columns),
        }

    def leaves(self) -> Iterator[Any]:
        """Tiles in the order of the table."""
        store = self.file.store
        columns = self._columns()
        steps = self._steps()
        kind = self._type()
        for number, part in enumerate(self.file.store.parts):
            rows = np.flatnonzero(part.ids)
            href = store.sources[number].href
            for start in range(0, len(rows), _ROWS):
                some = rows[start : start + _ROWS]
                keys = self._keys(part.ids[some], None if steps is None else steps[number][some])
                spans = _spans(part.pages, columns, some)
                offset, size = _whole(part.pages, columns, some)
                yield pa.table(
                    [
                        pa.array(keys, pa.string()),
                        pa.array(np.repeat(href, len(some)), pa.string()),
                        offset,
                        size,
                        pa.array(np.repeat(kind, len(some)), pa.string()),
                        spans,
                    ],
                    [*LEAF_COLUMNS, "bands"],
                )

    def blocks(self, key: str) -> Iterator[bytes]:
        """The pixels of one band of a tile."""
        tile, time = self._parsed(key)
        bands = self.file.metadata.bands
        if self._band is None and len(bands) > 1:
            raise InvalidInputError(
                "which band is wanted must be said",
                where=self.file.href,
                expected=", ".join(shown(band.name) for band in bands[:20]),
                hint="--band NAME",
            )
        if not self.file.has_tile(*tile, time=time):
            raise self._missing(key)
        pixels = self.file.tile(*tile, [self._band or bands[0].name], time=time)
        yield bytes(raw_bytes(pixels[0]))

    def close(self) -> None:
        """Close the storage."""
        self.file.close()

    def _columns(self) -> tuple[str, ...]:
        metadata = self.file.metadata
        if self._band is None or metadata.interleaved:
            return metadata.columns
        return (self._band,)

    def _type(self) -> str:
        metadata = self.file.metadata
        return metadata.compression or "raw"

    def _steps(self) -> list[Any] | None:
        """Number of the time step of each row of each part."""
        times = self.file.times
        if times is None:
            return None
        return [
            np.searchsorted(times.values, np.asarray(part.time)) for part in self.file.store.parts
        ]

    @staticmethod
    def _keys(ids: Any, steps: Any) -> list[str]:
        # An id that is not a cell gets a key that finds nothing; `check` reports it.
        valid = np.asarray(grid.is_valid(ids))
        places = np.stack(grid.tiles(np.where(valid, ids, grid.cells(0, 0, 0))), axis=1)
        keys = [
            "/".join(map(str, place)) if good else f"block {cell}"
            for place, good, cell in zip(places.tolist(), valid.tolist(), ids.tolist(), strict=True)
        ]
        if steps is None:
            return keys
        return [f"{key}@{step}" for key, step in zip(keys, steps.tolist(), strict=True)]

    def _parsed(self, key: str) -> tuple[tuple[int, int, int], int | None]:
        match = _KEY.fullmatch(key)
        if match is None:
            raise self._missing(key)
        z, x, y = int(match[1]), int(match[2]), int(match[3])
        low, high = self.file.zooms[0], self.file.zooms[-1]
        if not (low <= z <= high and x < 1 << z and y < 1 << z):
            raise self._missing(key)
        times = self.file.times
        step = None if match[4] is None else int(match[4])
        if step is not None and (times is None or step >= len(times)):
            raise self._missing(key)
        return (z, x, y), step

    def _missing(self, key: str) -> NotInContainerError:
        return NotInContainerError("no such tile", where=self.file.href, found=shown(key))


def _plain(nodata: Any) -> Any:
    """A nodata value as JSON can hold it."""
    return str(nodata) if isinstance(nodata, float) and not np.isfinite(nodata) else nodata


def _spans(pages: Any, columns: tuple[str, ...], rows: Any) -> Any:
    """For each row the pages of its bands; nothing if tiles have no pages of their own."""
    if not all(name in pages for name in columns):
        return pa.nulls(len(rows), _SPANS)
    count = len(columns)
    offset = np.stack([pages[name].offset[rows] for name in columns], axis=1).ravel()
    size = np.stack([pages[name].size[rows] for name in columns], axis=1).ravel()
    values = pa.StructArray.from_arrays(
        [pa.array(list(columns) * len(rows), pa.string()), pa.array(offset), pa.array(size)],
        fields=list(_SPANS.value_type),
    )
    ends = pa.array(np.arange(0, count * (len(rows) + 1), count), pa.int32())
    return pa.ListArray.from_arrays(ends, values, type=_SPANS)


def _whole(pages: Any, columns: tuple[str, ...], rows: Any) -> tuple[Any, Any]:
    """Offset of each tile if there is one band, and the bytes of all its bands."""
    if not all(name in pages for name in columns):
        return pa.nulls(len(rows), pa.int64()), pa.nulls(len(rows), pa.int64())
    size = sum(pages[name].size[rows] for name in columns)
    if len(columns) > 1:
        return pa.nulls(len(rows), pa.int64()), pa.array(size)
    return pa.array(pages[columns[0]].offset[rows]), pa.array(size)
