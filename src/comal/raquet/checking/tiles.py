"""The tiles: each blob decodes to exactly its pixels."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError, counted, shown
from comal.findings import OF_CONTENT, Findings
from comal.grid import quadbin
from comal.limits import Limits
from comal.progress import Progress
from comal.raquet import gzipped, spec
from comal.raquet.blobs import decode
from comal.raquet.checking.statistics import BandCheck
from comal.raquet.checking.table import Subject
from comal.raquet.spec import Metadata

Pixels = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

REPAIRED_BY = "repaired_by"
"""Key of ``processing`` that says that interleaved bytes were put in their place."""
ONE_OF = 20
"""Of so many tiles a sample takes one."""
_WORKERS = 2
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Looked:
    """What is in a blob."""

    pixels: Pixels | None = None
    framing: str | None = None
    """Of gzip: ``gzip``, ``zlib`` or ``hybrid``."""
    behind: int = 0
    """Bytes behind the stream."""
    error: ComalError | None = None


def look(
    blob: bytes,
    column: str,
    metadata: Metadata,
    where: str,
    limits: Limits,
    *,
    byte_interleaved: bool = False,
) -> Looked:
    """Decode a blob, and tell how it is framed."""
    band = metadata.bands[0]
    shape: tuple[int, ...] = metadata.block_height, metadata.block_width
    if metadata.interleaved:
        shape = (len(metadata.bands), *shape)
    else:
        band = metadata.bands[metadata.band_index(column)]
    framing, behind, compression = None, 0, metadata.compression
    try:
        if compression == spec.GZIP:
            size = int(np.prod(shape)) * band.pixel_type.itemsize
            limits.check("tile_bytes", size, where)
            unpacked = gzipped.unpack(blob, size, where)
            blob, framing, behind = unpacked.data, unpacked.framing, unpacked.behind
            compression = None
        pixels = decode(
            blob,
            compression,
            band.dtype,
            shape,
            byte_interleaved=byte_interleaved,
            where=where,
            limits=limits,
        )
    except OF_CONTENT as error:
        return Looked(error=error)
    return Looked(pixels, framing, behind)


@dataclass(slots=True)
class TileCheck:
    """Goes through the tiles of a file."""

    subject: Subject
    metadata: Metadata
    columns: Sequence[str]
    """Columns of pixels that are there."""
    findings: Findings
    one_of: int
    """1 for every tile; 0 for none, so that only NULLs are looked at."""
    checks: Sequence[BandCheck] = ()
    """Statistics that are recomputed meanwhile."""
    ranges: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Of interleaved tiles: least and largest value of each band."""

    def run(self, progress: Progress) -> None:
        """All row groups, one column chunk at a time."""
        groups = np.unique(self.subject.groups).tolist()
        with ThreadPoolExecutor(_WORKERS) as pool:
            for done, group in enumerate(groups):
                self._group(group, pool)
                progress(done + 1, len(groups), "row groups")
        for check in self.checks:
            check.finish(self.findings)

    def _group(self, group: int, pool: Executor) -> None:
        rows = np.flatnonzero(self.subject.groups == group)
        null = np.ones(len(rows), np.bool_)
        complete = True
        declared = self._declared(group)
        for name in self.columns:
            try:
                column = self.subject.table.read([name], [group]).column(0).combine_chunks()
            except OF_CONTENT as error:
                place = f"row group {group}, column {shown(name)}"
                self.findings.take_error(error, "raquet-page", place)
                complete = False
                continue
            there = column.is_valid().to_numpy(zero_copy_only=False)
            null &= ~there
            self._pixels_of_metadata(rows[there], name)
            self._column(rows, column, there, name, declared, pool)
        if complete and self.columns:
            self.findings.add_rows(
                "raquet-row-empty",
                rows[null & self.subject.tiles[rows]],
                lambda row: (self.subject.place(row), "all bands are NULL"),
            )

    def _pixels_of_metadata(self, rows: Any, name: str) -> None:
        self.findings.add_rows(
            "raquet-metadata-pixels",
            rows[self.subject.ids[rows] == 0],
            lambda row: (self.subject.place(row), f"band {shown(name)} is not NULL"),
        )

    def _column(
        self,
        rows: Any,
        column: Any,
        there: Bools,
        name: str,
        declared: dict[str, list[Any]],
        pool: Executor,
    ) -> None:
        if not self.one_of:
            return
        chosen = np.flatnonzero(there & self.subject.tiles[rows])
        if self.one_of > 1:
            chosen = chosen[rows[chosen] % self.one_of == 0]
        for start in range(0, len(chosen), _AT_ONCE):
            some = chosen[start : start + _AT_ONCE].tolist()
            jobs = [
                pool.submit(
                    look,
                    column[at].as_py(),
                    name,
                    self.metadata,
                    self.subject.place(int(rows[at])),
                    self.subject.limits,
                )
                for at in some
            ]
            for at, job in zip(some, jobs, strict=True):
                stated = {key: values[at] for key, values in declared.items()}
                self._looked(int(rows[at]), name, job.result(), stated)

    def _looked(self, row: int, name: str, found: Looked, declared: dict[str, Any]) -> None:
        place = f"{self.subject.place(row)}, band {shown(name)}"
        if found.error is not None:
            self.findings.take_error(found.error, "raquet-tile", place)
            return
        if found.framing not in {None, gzipped.GZIP}:
            self.findings.add("raquet-framing", place, f"{found.framing} instead of gzip")
        if found.behind:
            self.findings.add("raquet-tile-tail", place, counted(found.behind, "byte"))
        assert found.pixels is not None
        if self.metadata.interleaved:
            for number, pixels in enumerate(found.pixels):
                self._pixels(row, number, pixels, declared, place)
        else:
            number = self.metadata.band_index(name)
            self._pixels(row, number, found.pixels, declared, place)

    def _pixels(
        self, row: int, number: int, pixels: Pixels, declared: dict[str, Any], place: str
    ) -> None:
        if self.metadata.interleaved:
            # A band may have no value in a tile at all.
            low, high = np.fmin.reduce(pixels, axis=None), np.fmax.reduce(pixels, axis=None)
            before = self.ranges.get(number, (low, high))
            self.ranges[number] = float(np.fmin(low, before[0])), float(np.fmax(high, before[1]))
        if not self.checks:
            return
        check = self.checks[number]
        cell = int(self.subject.ids[row])
        tile = quadbin.tiles(cell) if quadbin.is_valid(cell) else None
        finest = (cell >> 52 & 31) == self.metadata.max_zoom
        stated = None
        if check.kinds:
            stated = {kind: declared.get(check.column(kind)) for kind in check.kinds}
        reason = check.add(pixels, stated, tile, finest=finest)
        if reason is not None:
            self.findings.add("raquet-statistics-differ", place, f"tile statistics: {reason}")

    def _declared(self, group: int) -> dict[str, list[Any]]:
        """Tile statistics of a row group, by column; nothing where they are not compared."""
        names = [check.column(kind) for check in self.checks for kind in check.kinds]
        names = [name for name in names if name in self.subject.footer.schema.names]
        if not names:
            return {}
        try:
            found = self.subject.table.read(names, [group])
        except OF_CONTENT as error:
            self.findings.take_error(error, "raquet-page", f"row group {group}, tile statistics")
            return {}
        return {name: found.column(name).to_pylist() for name in names}


def check_byte_interleaved(
    subject: Subject, metadata: Metadata, ranges: dict[int, tuple[float, float]], findings: Findings
) -> None:
    """One writer interleaves bytes instead of values; what it writes else looks the same."""
    key_values = subject.footer.metadata.metadata or {}
    version = key_values.get(spec.VERSION_KEY.encode(), b"").decode("utf-8", "replace")
    makers = [str(metadata.processing.get(key, "")) for key in ("created_by", REPAIRED_BY)]
    wide = metadata.bands[0].pixel_type.itemsize > 1
    if not metadata.interleaved or not wide or metadata.compression in spec.LOSSY_BANDS:
        return
    ours = any(maker.startswith("comal") for maker in makers)
    if version not in {"0.4.0", "0.5.0"} or ours:
        return
    message = "the writer may have interleaved bytes; repair(byte_interleaved=True) undoes it"
    for number, (low, high) in ranges.items():
        declared = metadata.bands[number].statistics
        if declared is None or declared.min is None or declared.max is None:
            continue
        span = max(float(declared.max) - float(declared.min), 1.0)
        if low < float(declared.min) - span or high > float(declared.max) + span:
            name = shown(metadata.bands[number].name)
            message = (
                f"band {name} is said to have {declared.min} to {declared.max}, read by values it"
                f" has {low:g} to {high:g}; repair(byte_interleaved=True) undoes it"
            )
            break
    findings.add("raquet-byte-interleaved", "tiles", message)
