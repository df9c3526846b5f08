"""The tiles: each blob decodes to exactly its pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.check import OF_CONTENT, Findings
from comal.errors import ComalError, counted, shown
from comal.grid import quadbin
from comal.limits import Limits
from comal.progress import Progress
from comal.raquet import blobs, spec
from comal.raquet.blobs import decode
from comal.raquet.checking.file import Subject, aligned_window
from comal.raquet.querying.statistics import Moments, of_tile
from comal.raquet.reading.coverage import Coverage, coverage_of, coverages
from comal.raquet.reading.pixels import alpha_of, stored_nodata, valid_of
from comal.raquet.spec import Band, Metadata

Pixels = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

REPAIRED_BY = "repaired_by"
"""Key of ``processing`` that says that interleaved bytes were put in their place."""
_WORKERS = 2
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class DecodedBlob:
    """What is in a blob."""

    pixels: Pixels | None = None
    framing: str | None = None
    """Of gzip: ``gzip``, ``zlib`` or ``hybrid``."""
    behind: int = 0
    """Bytes behind the stream."""
    error: ComalError | None = None


def decoded_blob(
    blob: bytes,
    column: str,
    metadata: Metadata,
    where: str,
    limits: Limits,
    *,
    byte_interleaved: bool = False,
) -> DecodedBlob:
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
            unpacked = blobs.unpack(blob, size, where)
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
        return DecodedBlob(error=error)
    return DecodedBlob(pixels, framing, behind)


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
                    decoded_blob,
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

    def _looked(self, row: int, name: str, found: DecodedBlob, declared: dict[str, Any]) -> None:
        place = f"{self.subject.place(row)}, band {shown(name)}"
        if found.error is not None:
            self.findings.take_error(found.error, "raquet-tile", place)
            return
        if found.framing not in {None, spec.GZIP}:
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


# -- statistics ------------------------------------------------------------------------------------


Tile = tuple[int, int, int]
"""Zoom, column from the west, row from the north."""

_CLOSE = 1e-6
_SQUARES = "sum_squares"
_FIRST = np.array([0])


@dataclass(slots=True)
class BandCheck:
    """Statistics of one band while its tiles are gone through."""

    band: Band
    kinds: tuple[str, ...]
    """Tile statistics that the file declares."""
    cover: Coverage | None = None
    """What the source covers, where nodata does not tell."""
    hidden: bool = False
    """Whether a mask or a nodata value that the file does not have may have left pixels out."""
    exact: bool = True
    """Whether pixels are those that the writer had; else only their number is compared."""
    part: bool = False
    """Whether statistics of bands are those of a larger raster."""
    bounds: Coverage | None = None
    """What lies in the bounds, where nothing else tells padding and these are not whole tiles."""
    outside: int = 0
    """Pixels outside of the bounds."""
    black: bool = True
    """Whether all of these are 0."""
    total: Moments = field(default_factory=lambda: Moments.empty(1))
    """Of the pixels of the maximum zoom that a writer may count."""
    sure: bool = True
    """Whether any writer counts all of these."""

    def column(self, kind: str) -> str:
        """Column of a tile statistic."""
        return f"{self.band.name}_{kind}"

    def add(
        self, pixels: Any, declared: Mapping[str, Any] | None, tile: Tile | None, *, finest: bool
    ) -> str | None:
        """A tile and its declared statistics; what is wrong with them comes back."""
        found, sure = self._moments(pixels, tile, finest=finest)
        if finest:
            self.total.merge(_FIRST, found)
            self.sure = self.sure and sure
        if declared is None:
            return None
        if all(declared.get(kind) is None for kind in self.kinds):
            return "are NULL though pixels are valid" if sure and found.count[0] else None
        return self._difference(declared, found, sure=sure)

    def _moments(self, pixels: Any, tile: Tile | None, *, finest: bool) -> tuple[Moments, bool]:
        """Of the pixels of a tile that a writer may count, and whether any counts all of them."""
        valid = valid_of(pixels, self.band)
        if stored_nodata(self.band) is not None and not self.hidden:
            return of_tile(pixels, valid), True
        if tile is None:
            return of_tile(pixels, valid), False
        if self.bounds is not None and finest:
            inside, _ = self.bounds.reach(*tile, pixels.shape, reduced=False)
            if inside is not None:
                self.outside += int(np.count_nonzero(~inside))
                self.black = self.black and not pixels[~inside].any()
        if self.cover is None:
            return of_tile(pixels, valid), False
        reached, sure = self.cover.reach(*tile, pixels.shape, reduced=not finest)
        chosen = valid if reached is None else valid & reached
        return of_tile(pixels, chosen), sure and not self.hidden

    def _check_padding(self, findings: Findings) -> None:
        """Find zeros that were invented: outside of the bounds, or left out of statistics."""
        found, most = self.band.statistics, self.total
        told = stored_nodata(self.band) is not None or self.hidden or self.cover is not None
        reason = None
        if self.outside and self.black:
            reason = f"{counted(self.outside, 'pixel')} outside of the bounds are 0"
        elif found is not None and found.min is not None and most.count[0] and not told:
            whole = not (found.approximated or self.part)
            if whole and most.min[0] == 0 and found.min > _CLOSE * most.max[0]:
                reason = f"statistics begin at {found.min}, but pixels are 0"
        if reason is not None:
            place = f"band {shown(self.band.name)}"
            findings.add("raquet-padding", place, f"{reason}, and no nodata value tells these")

    def finish(self, findings: Findings) -> None:
        """Compare with what the document says of all tiles."""
        self._check_padding(findings)
        found = self.band.statistics
        if found is None or self.total.count[0] == 0:
            return
        values = {kind: getattr(found, kind) for kind in (*spec.STATISTICS, _SQUARES)}
        sure = self.sure and not found.approximated
        if found.approximated:
            # Of some pixels only, whichever they are.
            values = {kind: values[kind] for kind in ("min", "max")}
        if not self.part:
            reason = self._difference(values, self.total, sure=sure)
        else:
            reason = _narrower(values, self.total) if sure else None
        if reason is not None:
            findings.add("raquet-statistics-differ", f"band {shown(self.band.name)}", reason)

    def _difference(self, declared: Mapping[str, Any], found: Moments, *, sure: bool) -> str | None:
        """What differs, the first of it; None when nothing does."""
        count, counted_here = declared.get("count"), float(found.count[0])
        if count is not None and (count > counted_here or (sure and count < counted_here)):
            return f"count {count}, the pixels have {'' if sure else 'at most '}{counted_here:.10g}"
        if not self.exact:
            return None
        return (
            _unequal(declared, found) if sure or count == counted_here else _beyond(declared, found)
        )


def band_checks(metadata: Metadata) -> list[BandCheck]:
    """One for each band."""
    lossy = metadata.compression in spec.LOSSY_BANDS
    # Pixels that a mask took out are 0 in the file, and only its alpha band tells.
    hidden = lossy or alpha_of(metadata.bands) is not None
    covers = coverages([metadata])
    bounds = None if aligned_window(metadata) else coverage_of(metadata.bounds)
    part = metadata.processing.get(spec.PART) is not None
    return [
        BandCheck(
            band,
            metadata.tile_statistics,
            cover,
            hidden,
            not lossy,
            part,
            None if hidden or cover is not None else bounds,
        )
        for band, cover in zip(metadata.bands, covers, strict=True)
    ]


def _unequal(declared: Mapping[str, Any], found: Moments) -> str | None:
    """What differs from the statistics of pixels that are known."""
    scale = max(abs(float(found.min[0])), abs(float(found.max[0]))) if found.count[0] else 0.0
    share = {"mean": scale, "stddev": scale, "sum": scale * float(found.count[0])}
    for kind in (*spec.STATISTICS, _SQUARES):
        value = declared.get(kind)
        if value is None:
            continue
        true = _squared(found) if kind == _SQUARES else float(found.column(kind)[0])
        room = _CLOSE * share.get(kind, abs(true))
        if not (math.isnan(true) or math.isclose(float(value), true, rel_tol=_CLOSE, abs_tol=room)):
            return f"{kind} {value}, the pixels have {true:.10g}"
    return None


def _squared(found: Moments) -> float:
    """The sum of the squares of pixels."""
    return float(found.squares[0] + found.count[0] * found.mean[0] ** 2)


def _beyond(declared: Mapping[str, Any], found: Moments) -> str | None:
    """What no choice of some of these pixels has."""
    low, high = float(found.min[0]), float(found.max[0])
    room = _CLOSE * max(abs(low), abs(high))
    if not math.isfinite(room):
        return None
    limits = dict.fromkeys(("min", "max", "mean"), (low, high)) | {"stddev": (0, (high - low) / 2)}
    for kind, (first, last) in limits.items():
        value = declared.get(kind)
        if value is not None and not first - room <= value <= last + room:
            return f"{kind} {value}, the pixels have {first:.10g} to {last:.10g}"
    return None


def _narrower(declared: Mapping[str, Any], found: Moments) -> str | None:
    """What the statistics of a larger raster leave out of its part."""
    if found.count[0] == 0:
        return None
    count, low, high = float(found.count[0]), float(found.min[0]), float(found.max[0])
    room = _CLOSE * max(abs(low), abs(high))
    for kind, true, sign in (("count", count, 1), ("min", low + room, -1), ("max", high - room, 1)):
        value = declared.get(kind)
        if value is not None and sign * value < sign * true:
            return f"{kind} {value}, the pixels of this part have {true:.10g}"
    return None
