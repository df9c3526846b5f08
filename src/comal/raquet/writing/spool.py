"""Compressed tiles on disk until their order is known: a file of blobs and arrays of where."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from comal.raquet.writing.job import STATISTICS, Tiles
from comal.table.columns import spans_column

Ints = npt.NDArray[np.int64]


class Spool:
    """Tiles as they come, in a temporary file.

    Parameters
    ----------
    file
        Empty, readable and writable; the caller closes it.
    columns
        Blobs of a tile.
    bands
        Bands that have tile statistics, 0 for none.
    """

    def __init__(self, file: BinaryIO, columns: int, bands: int) -> None:
        self._file, self._columns, self._bands = file, columns, bands
        self._cells, self._steps = array("q"), array("i")
        self._offsets, self._sizes = array("q"), array("I")
        self._statistics = array("d")
        self._masks: list[bytes] = []
        self._end = 0
        self.reduced: dict[int, npt.NDArray[Any]] = {}
        """Of undecided bands, by position: the values that occur in overviews."""

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, tiles: Tiles, step: int) -> None:
        """Append tiles of a step in time."""
        per_tile = self._columns
        for at, cell in enumerate(tiles.cells):
            blobs = tiles.blobs[at * per_tile : (at + 1) * per_tile]
            self._cells.append(cell)
            self._steps.append(step)
            self._offsets.append(self._end)
            self._sizes.extend(len(blob) for blob in blobs)
            self._end += sum(map(len, blobs))
        self._masks += tiles.masks
        for at, values in tiles.reduced:
            self.reduced[at] = np.union1d(self.reduced.get(at, values), values)
        for found in tiles.statistics:
            self._statistics.frombytes(np.ascontiguousarray(found, np.float64).tobytes())
        self._file.write(b"".join(tiles.blobs))

    def sorted(self) -> Sorted:
        """All tiles in the order of their ids, those of one id in the order of time."""
        self._file.flush()
        cells = np.frombuffer(self._cells, np.int64) if self._cells else np.empty(0, np.int64)
        steps = np.frombuffer(self._steps, np.int32) if self._steps else np.empty(0, np.int32)
        order = np.lexsort((steps, cells))
        sizes = np.frombuffer(self._sizes, np.uint32) if self._sizes else np.empty(0, np.uint32)
        offsets = np.frombuffer(self._offsets, np.int64) if self._offsets else cells
        statistics = None
        if self._bands:
            statistics = np.array(self._statistics).reshape(-1, self._bands, STATISTICS)[order]
        return Sorted(
            self._file,
            cells[order],
            steps[order],
            offsets[order],
            sizes.reshape(-1, self._columns)[order].astype(np.int64),
            statistics,
            [self._masks[at] for at in order.tolist()] if any(self._masks) else None,
        )


@dataclass(slots=True)
class Sorted:
    """Tiles in the order in which they are written."""

    file: BinaryIO
    cells: Ints
    steps: npt.NDArray[np.int32]
    offsets: Ints
    sizes: Ints
    """Bytes of each blob: (tiles, columns)."""
    statistics: npt.NDArray[np.float64] | None
    masks: list[bytes] | None
    """For each tile what is padding; None where no tile has any, or nobody needs to know."""

    def blobs(self, start: int, stop: int) -> list[Any]:
        """For each column the blobs of some rows, as an Arrow array."""
        sizes = self.sizes[start:stop]
        data = b"".join(
            self._read(offset, size)
            for offset, size in _runs(self.offsets[start:stop], sizes.sum(axis=1))
        )
        columns = sizes.shape[1]
        if columns == 1:
            return [spans_column(data, sizes[:, 0])]
        view, ends = memoryview(data), np.cumsum(sizes.ravel()).tolist()
        starts = [0, *ends[:-1]]
        return [
            spans_column(
                b"".join(
                    view[a:b] for a, b in zip(starts[at::columns], ends[at::columns], strict=True)
                ),
                sizes[:, at],
            )
            for at in range(columns)
        ]

    def _read(self, offset: int, size: int) -> bytes:
        self.file.seek(offset)
        return self.file.read(size)


def _runs(offsets: Ints, sizes: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of the file, with those that follow one another as one."""
    if not len(offsets):
        return
    first = np.flatnonzero(np.r_[True, offsets[1:] != offsets[:-1] + sizes[:-1]])
    lengths = np.add.reduceat(sizes, first)
    yield from zip(offsets[first].tolist(), lengths.tolist(), strict=True)
