"""`check`: its codes, the order of the checks of a file, and the checks of tiles."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from comal.check import OF_CONTENT, Check, Report, rules
from comal.errors import ComalError, InvalidInputError, NotThisFormatError, counted, shown
from comal.grid import quadbin
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import Workers
from comal.plan import ByteRange, Head, Tail, run
from comal.progress import Progress
from comal.raquet import blobs, spec
from comal.raquet.blobs import decode
from comal.raquet.checking.file import (
    Subject,
    check_bands,
    check_columns,
    check_index,
    check_layout,
    check_metadata_row,
    check_page_index,
    check_statistics,
    read_metadata,
    read_subject,
)
from comal.raquet.documents import aligned_window
from comal.raquet.reading.coverage import Coverage, coverage_of, coverages
from comal.raquet.reading.pixels import alpha_of, stored_nodata, valid_of
from comal.raquet.spec import Band, Metadata
from comal.raster.areastatistics import Moments, of_tile
from comal.storage import Source, StorageConfig, open_source, several
from comal.table import footer_plan

Bools = npt.NDArray[np.bool_]
Location = str | os.PathLike[str]
Pixels = npt.NDArray[Any]

_MAGIC = b"PAR1"


_ERRORS = {
    # The Parquet file
    "raquet-parquet": "not a Parquet file, or its footer is broken",
    "raquet-page": "a page cannot be read",
    "raquet-page-index": "the page index does not lead to the tiles",
    "raquet-column-missing": "block, metadata or all band columns are missing",
    "raquet-column-type": "a column has the wrong type",
    # The metadata row
    "raquet-metadata-missing": "no row has block 0, or it holds no metadata",
    "raquet-metadata-twice": "several rows have block 0",
    "raquet-metadata-in-tile": "a row of a tile holds metadata",
    "raquet-metadata-key": "the metadata in the footer are not those of the metadata row",
    # The document
    "raquet-json": "the metadata are not a JSON object, or are nested too deeply",
    "raquet-version": "a version that is not valid, or is too new",
    "raquet-grid": "a CRS, tiling or format that RaQuet does not have",
    "raquet-compression": "an unknown compression, or one that its bands cannot have",
    "raquet-layout": "an unknown layout, or one that its bands cannot have",
    "raquet-block-size": "a block size that is not a multiple of 16 up to 8192",
    "raquet-zooms": "zooms that are not within 0 to 26, or are in the wrong order",
    "raquet-bounds": "bounds that are not four numbers in order",
    "raquet-bands": "no bands, or bands that are not objects",
    "raquet-band-name": "a band without a name, with one that is reserved, or that appears twice",
    "raquet-band-type": "a pixel type that RaQuet does not have",
    "raquet-band-column": "a band without a column of bytes",
    "raquet-nodata": "a nodata value that is not a number",
    "raquet-object": "a value that should be an object",
    "raquet-statistics": "statistics that contradict themselves",
    "raquet-statistics-column": "declared tile statistics have no columns",
    "raquet-time-column": "a time series whose tiles have no times",
    "raquet-size": "width or height is not a size, or contradicts the bounds",
    "raquet-num-blocks": "the number of tiles is neither that of the file nor that of the grid",
    # The index
    "raquet-cell": "a block that is not a QUADBIN cell",
    "raquet-cell-twice": "a tile appears twice",
    "raquet-cell-zoom": "a tile of a zoom that is not declared",
    "raquet-cell-bounds": "a tile of the maximum zoom lies outside the bounds",
    "raquet-zoom-empty": "a declared zoom has no tile",
    # The tiles
    "raquet-tile": "a tile does not decode to its pixels",
    # Why a check had to stop
    "limit-exceeded": "the content is larger than the limits allow",
    "unsafe-content": "a name would lead out of the data",
}

_WARNINGS = {
    "raquet-version-missing": "the metadata have no version",
    "raquet-version-early": "the version is earlier than what the file has",
    "raquet-time-differs": "time_ts is not the instant that time_cf gives",
    "raquet-json-token": "the JSON holds a bare NaN or Infinity",
    "raquet-number": "a value that should be a number is not used",
    "raquet-text": "a value that should be text is not used",
    "raquet-flag": "a value that should be true or false is not used",
    "raquet-derived": "a value contradicts those that it follows from",
    "raquet-colorinterp": "a colour interpretation that GDAL does not have",
    "raquet-colortable": "a colour that is not valid is ignored",
    "raquet-quantiles": "quantiles that are not valid are not used",
    "raquet-top-values": "counts of values that are not valid are not used",
    "raquet-tile-statistics": "tile statistics of a kind that is not known",
    "raquet-order": "tiles do not ascend",
    "raquet-sorting": "the file declares that it is sorted, but it is not",
    "raquet-framing": "a tile is a zlib stream, with or without a gzip header, instead of gzip",
    "raquet-tile-tail": "bytes follow the compressed tile",
    "raquet-metadata-pixels": "the metadata row holds pixels",
    "raquet-row-empty": "all bands of a tile are NULL",
    "raquet-column-extra": "a column of bytes that no band names",
    "raquet-overview-missing": "an overview tile is missing although tiles below it are there",
    "raquet-bounds-tiles": "the bounds are not those of whole tiles",
    "raquet-num-blocks-grid": "the number of tiles is that of the whole grid",
    "raquet-statistics-differ": "statistics differ from the pixels",
    "raquet-padding": "padding counts as data, because no nodata value or alpha band marks it",
    "raquet-byte-interleaved": "tiles may be interleaved by bytes instead of values",
    "raquet-pages": "tiles cannot be read one by one: dictionary, codec or no page index",
}

CODES: Final = rules(_ERRORS, _WARNINGS)
"""Code to severity (``error`` or ``warning``) and meaning."""


def check(
    href: Location | Sequence[Location],
    *,
    level: str = "full",
    statistics: bool = False,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    executor: Workers = None,
) -> Report:
    """List every problem of a RaQuet file.

    Parameters
    ----------
    href
        Path or URL of a file, or several, which are checked separately.
    level
        ``structure``: schema, metadata and index; ``sample``: also one in twenty tiles;
        ``full``: every tile.
    statistics
        Recompute the statistics of bands and tiles, which needs the level ``full``.
    progress
        Called with the progress of the check.
    limits
        Caps on the memory that a file can make a reader use.
    config
        Settings of remote storage.
    executor
        Checks several files: an executor, or a number of processes; one by one if None.

    Returns
    -------
    Report
        All problems. A file that cannot be opened has a report too, if its first bytes are those
        of a Parquet file. Memory hardly grows with the file: one column chunk is held at a time,
        and eight bytes per tile.

    Raises
    ------
    NotThisFormatError
        The file is not Parquet.
    ObjectNotFoundError, AccessDeniedError, StorageError, ObjectChangedError
        The file does not exist, cannot be read, or has changed.
    InvalidInputError
        The level is unknown, or `statistics` is used without the level ``full``.
    """
    findings = Check(CODES, level, limits, progress)
    if statistics and level != "full":
        raise InvalidInputError("statistics need every tile", found=level, expected="level='full'")
    hrefs = [href] if isinstance(href, str | os.PathLike) else several(href, "paths or URLs")
    sources = [open_source(one, config=config) for one in hrefs]
    look = partial(_check_file, statistics=statistics)
    if len(sources) == 1:
        look(sources[0], findings)
    else:
        places = [PurePosixPath(source.href).name for source in sources]
        findings.take_from(look, sources, executor, *places)
    return findings.report(sources[0].href, "parquet")


def _check_file(source: Source, findings: Check, *, statistics: bool) -> None:
    footer = read_footer(source, findings)
    if footer is None or not check_columns(footer, findings):
        return
    findings.progress(0, None, "index")
    subject = read_subject(source, footer, findings)
    if subject is None:
        return
    text = check_metadata_row(subject, findings)
    metadata = None if text is None else read_metadata(text, findings)
    if metadata is None:
        check_layout(subject, [], findings)
        return
    columns = check_bands(subject, metadata, findings)
    check_statistics(metadata, findings)
    check_index(subject, metadata, findings)
    check_layout(subject, columns, findings)
    check_page_index(subject, findings)
    ranges: dict[int, tuple[float, float]] = {}
    if findings.one_of and columns:
        checks = band_checks(metadata) if statistics else ()
        tiles = TileCheck(subject, metadata, columns, findings, checks)
        tiles.run()
        ranges = tiles.ranges
    check_byte_interleaved(subject, metadata, ranges, findings)


def read_footer(source: Source, findings: Check) -> Any:
    """The footer, or None if it is broken; raises an error if the file is not Parquet."""
    head, tail = source.fetch([Head(4), Tail(8)])
    if head.data != _MAGIC:
        raise NotThisFormatError(
            "not a RaQuet file",
            where=source.href,
            found=f"first bytes {head.data.hex(' ') or 'missing'}",
            expected="a Parquet file",
        )
    try:
        return run(footer_plan(ByteRange(0, tail.total), limits=findings.limits), source.fetch)
    except OF_CONTENT as error:
        findings.take_error(error, "raquet-parquet", "footer")
        return None


# -- tiles -----------------------------------------------------------------------------------------

REPAIRED_BY = "repaired_by"
"""Key of ``processing`` in files whose interleaved bytes `repair` has reordered."""
_WORKERS = 2
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class DecodedBlob:
    """The content of a blob, or the error of decoding it."""

    pixels: Pixels | None = None
    framing: str | None = None
    """With compression gzip: ``gzip``, ``zlib`` or ``hybrid``."""
    behind: int = 0
    """Bytes after the stream."""
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
    """Decode a blob, and detect its framing."""
    dtype, shape = metadata.stored_in(column)
    framing, behind, compression = None, 0, metadata.compression
    try:
        if compression == spec.GZIP:
            size = int(np.prod(shape)) * dtype.itemsize
            limits.check("tile_bytes", size, where)
            unpacked = blobs.unpack(blob, size, where)
            blob, framing, behind = unpacked.data, unpacked.framing, unpacked.behind
            compression = None
        pixels = decode(
            blob,
            compression,
            dtype,
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
    """Checks the tiles of a file."""

    subject: Subject
    metadata: Metadata
    columns: Sequence[str]
    """Columns of pixels that exist."""
    findings: Check
    checks: Sequence[BandCheck] = ()
    """Statistics to recompute on the way, one entry per band."""
    ranges: dict[int, tuple[float, float]] = field(default_factory=dict)
    """For interleaved tiles: minimum and maximum of each band."""

    def run(self) -> None:
        """Check all row groups, one column chunk at a time."""
        groups = np.unique(self.subject.groups).tolist()
        with ThreadPoolExecutor(_WORKERS) as pool:
            for done, group in enumerate(groups):
                self._group(group, pool)
                self.findings.progress(done + 1, len(groups), "row groups")
        for check in self.checks:
            check.finish(self.findings)

    def _group(self, group: int, pool: Executor) -> None:
        """Check the tiles of a row group, column by column, and report tiles that are all NULL."""
        rows = np.flatnonzero(self.subject.groups == group)
        tiles = self.subject.tiles[rows]
        null, complete = np.ones(len(rows), np.bool_), True
        stated = self._stated(group)
        for name in self.columns:
            table = self._read([name], group, f"column {shown(name)}")
            if table is None:
                complete = False
                continue
            column = table.column(0).combine_chunks()
            there = column.is_valid().to_numpy(zero_copy_only=False)
            null &= ~there
            told = f"band {shown(name)} is not NULL"
            self.subject.report(self.findings, "raquet-metadata-pixels", rows[there & ~tiles], told)
            chosen = there & tiles & (rows % self.findings.one_of == 0)
            for at, found in self._decoded(rows, column, np.flatnonzero(chosen), name, pool):
                values = {key: values[at] for key, values in stated.items()}
                self._tile(int(rows[at]), name, found, values)
        if complete and self.columns:
            told = "all bands are NULL"
            self.subject.report(self.findings, "raquet-row-empty", rows[null & tiles], told)

    def _read(self, names: list[str], group: int, what: str) -> Any:
        """Columns of a row group; None if they cannot be read, which is reported."""
        try:
            return self.subject.table.read(names, [group])
        except OF_CONTENT as error:
            self.findings.take_error(error, "raquet-page", f"row group {group}, {what}")
            return None

    def _stated(self, group: int) -> dict[str, list[Any]]:
        """Tile statistics of a row group, by column; empty if they are not compared."""
        names = [check.column(kind) for check in self.checks for kind in check.kinds]
        names = [name for name in names if name in self.subject.footer.schema.names]
        found = self._read(names, group, "tile statistics") if names else None
        return {} if found is None else {name: found.column(name).to_pylist() for name in names}

    def _decoded(
        self, rows: Any, column: Any, chosen: Any, name: str, pool: Executor
    ) -> Iterator[tuple[int, DecodedBlob]]:
        """The decoded blobs of a column at the indices `chosen` of the row group."""

        def look(at: int) -> DecodedBlob:
            place = self.subject.place(int(rows[at]))
            return decoded_blob(column[at].as_py(), name, self.metadata, place, self.subject.limits)

        for start in range(0, len(chosen), _AT_ONCE):
            some = chosen[start : start + _AT_ONCE].tolist()
            yield from zip(some, pool.map(look, some), strict=True)

    def _tile(self, row: int, name: str, found: DecodedBlob, stated: dict[str, Any]) -> None:
        place = f"{self.subject.place(row)}, band {shown(name)}"
        if found.error is not None:
            self.findings.take_error(found.error, "raquet-tile", place)
            return
        if found.framing not in {None, spec.GZIP}:
            self.findings.add("raquet-framing", place, f"{found.framing} instead of gzip")
        if found.behind:
            self.findings.add("raquet-tile-tail", place, counted(found.behind, "byte"))
        assert found.pixels is not None
        if not self.metadata.interleaved:
            self._statistics(row, self.metadata.band_index(name), found.pixels, stated, place)
            return
        for number, pixels in enumerate(found.pixels):
            # A band may have no value in a tile at all.
            low, high = np.fmin.reduce(pixels, axis=None), np.fmax.reduce(pixels, axis=None)
            before = self.ranges.get(number, (low, high))
            self.ranges[number] = float(np.fmin(low, before[0])), float(np.fmax(high, before[1]))
            self._statistics(row, number, pixels, stated, place)

    def _statistics(
        self, row: int, number: int, pixels: Pixels, stated: dict[str, Any], place: str
    ) -> None:
        if not self.checks:
            return
        check, cell = self.checks[number], int(self.subject.ids[row])
        tile = quadbin.tiles(cell) if quadbin.is_valid(cell) else None
        finest = (cell >> 52 & 31) == self.metadata.max_zoom
        own = {kind: stated.get(check.column(kind)) for kind in check.kinds}
        reason = check.add(pixels, own or None, tile, finest=finest)
        if reason is not None:
            self.findings.add("raquet-statistics-differ", place, f"tile statistics: {reason}")


def check_byte_interleaved(
    subject: Subject, metadata: Metadata, ranges: dict[int, tuple[float, float]], findings: Check
) -> None:
    """Report files that may interleave bytes instead of values, as one writer does.

    Except for their values, they look like any other file.
    """
    key_values = subject.footer.metadata.metadata or {}
    version = key_values.get(spec.VERSION_KEY.encode(), b"").decode("utf-8", "replace")
    makers = [str(metadata.processing.get(key, "")) for key in ("created_by", REPAIRED_BY)]
    wide = metadata.bands[0].pixel_type.itemsize > 1
    if not metadata.interleaved or not wide or metadata.compression in spec.LOSSY_BANDS:
        return
    ours = any(maker.startswith("comal") for maker in makers)
    if version not in {"0.4.0", "0.5.0"} or ours:
        return
    message = "the writer may have interleaved bytes; repair(byte_interleaved=True) undoes this"
    for number, (low, high) in ranges.items():
        declared = metadata.bands[number].statistics
        if declared is None or declared.min is None or declared.max is None:
            continue
        span = max(float(declared.max) - float(declared.min), 1.0)
        if low < float(declared.min) - span or high > float(declared.max) + span:
            name = shown(metadata.bands[number].name)
            message = (
                f"band {name} declares {declared.min} to {declared.max}, but its pixels are {low:g}"
                f" to {high:g} if read by values; repair(byte_interleaved=True) undoes this"
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
    """Recomputes and compares the statistics of one band."""

    band: Band
    kinds: tuple[str, ...]
    """Tile statistics that the file declares."""
    cover: Coverage | None = None
    """The area that the source covers, if nodata does not mark padding."""
    hidden: bool = False
    """Whether a mask or nodata value that is not in the file may have excluded pixels."""
    exact: bool = True
    """Whether pixels are exactly those of the writer; else only their count is compared."""
    part: bool = False
    """Whether the band statistics are those of a larger raster."""
    bounds: Coverage | None = None
    """The bounds, if nothing else marks padding and they are not tile edges."""
    outside: int = 0
    """Number of pixels outside of the bounds."""
    black: bool = True
    """Whether all pixels outside of the bounds are 0."""
    total: Moments = field(default_factory=lambda: Moments.empty(1))
    """Moments of the pixels of the maximum zoom that a writer may count."""
    sure: bool = True
    """Whether every writer counts all of these pixels."""

    def column(self, kind: str) -> str:
        """Name of the column of a tile statistic."""
        return f"{self.band.name}_{kind}"

    def add(
        self, pixels: Any, declared: Mapping[str, Any] | None, tile: Tile | None, *, finest: bool
    ) -> str | None:
        """Add a tile; returns what is wrong with its declared statistics, or None."""
        found, sure = self._moments(pixels, tile, finest=finest)
        if finest:
            self.total.merge(_FIRST, found)
            self.sure = self.sure and sure
        if declared is None:
            return None
        if all(declared.get(kind) is None for kind in self.kinds):
            return "NULL although pixels are valid" if sure and found.count[0] else None
        return self._difference(declared, found, sure=sure)

    def _moments(self, pixels: Any, tile: Tile | None, *, finest: bool) -> tuple[Moments, bool]:
        """Moments of the pixels that a writer may count, and whether every writer counts them."""
        valid = valid_of(pixels, self.band)
        if stored_nodata(self.band) is not None and not self.hidden:
            return of_tile(pixels, valid), True
        if tile is not None and self.bounds is not None and finest:
            inside, _ = self.bounds.reach(*tile, pixels.shape, reduced=False)
            if inside is not None:
                self.outside += int(np.count_nonzero(~inside))
                self.black = self.black and not pixels[~inside].any()
        if tile is None or self.cover is None:
            return of_tile(pixels, valid), False
        reached, sure = self.cover.reach(*tile, pixels.shape, reduced=not finest)
        chosen = valid if reached is None else valid & reached
        return of_tile(pixels, chosen), sure and not self.hidden

    def finish(self, findings: Check) -> None:
        """Compare the totals with the statistics in the document."""
        reason = self._invented()
        if reason is not None:
            place = f"band {shown(self.band.name)}"
            findings.add("raquet-padding", place, f"{reason}, and no nodata value marks them")
        found = self.band.statistics
        if found is None or self.total.count[0] == 0:
            return
        values = {kind: getattr(found, kind) for kind in (*spec.STATISTICS, _SQUARES)}
        sure = self.sure and not found.approximated
        if found.approximated:
            # Computed from an unknown subset of the pixels.
            values = {kind: values[kind] for kind in ("min", "max")}
        if not self.part:
            reason = self._difference(values, self.total, sure=sure)
        else:
            reason = _narrower(values, self.total) if sure else None
        if reason is not None:
            findings.add("raquet-statistics-differ", f"band {shown(self.band.name)}", reason)

    def _invented(self) -> str | None:
        """Why zeros are padding: they are outside of the bounds, or statistics exclude them."""
        found, most = self.band.statistics, self.total
        if self.outside and self.black:
            return f"{counted(self.outside, 'pixel')} outside the bounds are 0"
        if stored_nodata(self.band) is not None or self.hidden or self.cover is not None:
            return None
        if found is None or found.min is None or found.approximated or self.part:
            return None
        if most.count[0] and most.min[0] == 0 and found.min > _CLOSE * most.max[0]:
            return f"statistics begin at {found.min}, but pixels are 0"
        return None

    def _difference(self, declared: Mapping[str, Any], found: Moments, *, sure: bool) -> str | None:
        """The first difference; None if there is none."""
        count, counted_here = declared.get("count"), float(found.count[0])
        if count is not None and (count > counted_here or (sure and count < counted_here)):
            most = "" if sure else "at most "
            return f"count is {count}, but the pixels have {most}{counted_here:.10g}"
        if not self.exact:
            return None
        return (
            _unequal(declared, found) if sure or count == counted_here else _beyond(declared, found)
        )


def band_checks(metadata: Metadata) -> list[BandCheck]:
    """One check for each band."""
    lossy = metadata.compression in spec.LOSSY_BANDS
    # Masked pixels are 0 in the file, and only its alpha band marks them.
    hidden = lossy or alpha_of(metadata.bands) is not None
    covers = coverages([metadata])
    bounds = None if hidden or aligned_window(metadata) else coverage_of(metadata.bounds)
    part = metadata.processing.get(spec.PART) is not None
    return [
        BandCheck(
            band,
            metadata.tile_statistics,
            cover,
            hidden,
            not lossy,
            part,
            bounds if cover is None else None,
        )
        for band, cover in zip(metadata.bands, covers, strict=True)
    ]


def _unequal(declared: Mapping[str, Any], found: Moments) -> str | None:
    """The first difference from the statistics of exactly these pixels."""
    scale = max(abs(float(found.min[0])), abs(float(found.max[0]))) if found.count[0] else 0.0
    share = {"mean": scale, "stddev": scale, "sum": scale * float(found.count[0])}
    squared = float(found.squares[0] + found.count[0] * found.mean[0] ** 2)
    for kind in (*spec.STATISTICS, _SQUARES):
        value = declared.get(kind)
        if value is None:
            continue
        true = squared if kind == _SQUARES else float(found.column(kind)[0])
        room = _CLOSE * share.get(kind, abs(true))
        if not (math.isnan(true) or math.isclose(float(value), true, rel_tol=_CLOSE, abs_tol=room)):
            return f"{kind} is {value}, but the pixels have {true:.10g}"
    return None


def _beyond(declared: Mapping[str, Any], found: Moments) -> str | None:
    """The first statistic that no subset of these pixels can have."""
    low, high = float(found.min[0]), float(found.max[0])
    room = _CLOSE * max(abs(low), abs(high))
    if not math.isfinite(room):
        return None
    limits = dict.fromkeys(("min", "max", "mean"), (low, high)) | {"stddev": (0, (high - low) / 2)}
    for kind, (first, last) in limits.items():
        value = declared.get(kind)
        if value is not None and not first - room <= value <= last + room:
            return f"{kind} is {value}, but the pixels have {first:.10g} to {last:.10g}"
    return None


def _narrower(declared: Mapping[str, Any], found: Moments) -> str | None:
    """The first statistic of a larger raster that contradicts this part of it."""
    if found.count[0] == 0:
        return None
    count, low, high = float(found.count[0]), float(found.min[0]), float(found.max[0])
    room = _CLOSE * max(abs(low), abs(high))
    for kind, true, sign in (("count", count, 1), ("min", low + room, -1), ("max", high - room, 1)):
        value = declared.get(kind)
        if value is not None and sign * value < sign * true:
            return f"{kind} is {value}, but the pixels of this part have {true:.10g}"
    return None
