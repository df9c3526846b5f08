"""`repair`: a copy of a file in which everything but the pixels is made right."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comal import grid
from comal.check import Findings
from comal.errors import InvalidMetadataError, Problem, shown
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.plan import run
from comal.progress import Progress, silent
from comal.raquet import spec
from comal.raquet.blobs import encode
from comal.raquet.checking.codes import CODES
from comal.raquet.checking.document import PLACE, aligned_window, contradiction
from comal.raquet.checking.run import read_footer
from comal.raquet.checking.table import (
    Subject,
    check_bands,
    check_columns,
    read_subject,
    told_stamps,
)
from comal.raquet.checking.tiles import REPAIRED_BY, Looked, look
from comal.raquet.documents import metadata_json
from comal.raquet.reading.coverage import Coverage, coverages
from comal.raquet.reading.pixels import alpha_of, valid_of
from comal.raquet.reading.store import TileStore
from comal.raquet.reading.tilefile import TileFile
from comal.raquet.spec import Metadata
from comal.raquet.wire import parse_metadata, read_document
from comal.raquet.writing.accumulating import BandSums, finished, lattice_step, moments, sums_of
from comal.raquet.writing.layout import RowGroup, row_groups, write_parquet
from comal.raquet.writing.options import RAQUET
from comal.storage import Source, StorageConfig, open_source
from comal.storage.kinds import check_ending, refuse_sources
from comal.storage.targets import local_path, new_file

Ints = npt.NDArray[np.int64]
_CACHE = 64 * MIB
"""Column chunks that are kept: rows of one are not always copied one behind the other."""
_WORKERS = 2


def repair(
    href: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    byte_interleaved: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
) -> Path:
    """Write a copy of a RaQuet file with the same pixels and everything else right.

    The metadata row is put first, tiles are sorted and laid out one to a page with a page index,
    zlib streams become gzip members, bytes behind a stream go, and so do rows of tiles that are
    all NULL, tiles that stand there twice alike, and columns that no band names. Counts, bounds
    and sizes are made those of the tiles. Statistics are computed anew for bands with a nodata
    value; without one nothing tells padding from pixels, and statistics are kept unless they
    contradict themselves. The input is never changed.

    Parameters
    ----------
    href
        The file to mend.
    output
        The copy, a local path. It appears complete or not at all.
    byte_interleaved
        The tiles are interleaved byte by byte, as one writer does it: store them as they should
        be. Only the pixels tell that they are, so this is never done unasked.
    overwrite
        Replace an existing target.
    progress
        Told how far the copy is.
    limits, config
        As for `check`.

    Returns
    -------
    pathlib.Path
        The copy.

    Raises
    ------
    InvalidMetadataError
        What nothing else tells: a tile that does not decode, one that stands there twice with
        different pixels, ids that are no cells, a document that cannot be used. Nothing is
        written.
    ConflictError
        The target exists, or is the input.
    """
    target = local_path(output)
    check_ending(target, ".parquet")
    tell = progress or silent
    with open_source(href, config=config) as source:
        refuse_sources(target, source)
        job = _Job.of(source, limits, byte_interleaved=byte_interleaved)
        tell(0, len(job.rows), "tiles")
        metadata = job.recounted(tell)
        version = spec.WRITTEN[-1] if metadata.nested else spec.WRITTEN[0]
        metadata = replace(metadata, version=version)
        if byte_interleaved:
            metadata = replace(metadata, processing={**metadata.processing, **_repaired_by()})
        document = metadata_json(metadata, version)
        with new_file(target, overwrite, RAQUET, source) as file:
            write_parquet(file, metadata, document, version, job.groups(metadata, tell), job.kind)
    return target


def _repaired_by() -> dict[str, str]:
    from comal import __version__  # noqa: PLC0415 - the package imports this module

    return {REPAIRED_BY: f"comal {__version__}"}


@dataclass(frozen=True, slots=True)
class _Job:
    """What is copied."""

    subject: Subject
    metadata: Metadata
    store: TileStore
    rows: Ints
    """Rows of the tiles, in the order of the copy."""
    byte_interleaved: bool

    @classmethod
    def of(cls, source: Source, limits: Limits, *, byte_interleaved: bool) -> _Job:
        """What there is; what makes it hopeless is an error."""
        findings = Findings(CODES)
        footer = read_footer(source, findings, limits)
        subject = None
        if footer is not None and check_columns(footer, findings):
            subject = read_subject(source, footer, limits, findings)
        if subject is None or findings.total > 0:
            raise _hopeless(source, findings)
        tiles = np.flatnonzero(subject.tiles)
        wrong = tiles[~np.asarray(grid.is_valid(subject.ids[tiles]))]
        findings.add_rows(
            "raquet-cell", wrong, lambda row: (subject.place(row), "the block is no cell")
        )
        texts = [subject.documents.get(row) for row in np.flatnonzero(~subject.tiles).tolist()]
        text = next((one for one in (*texts, *subject.documents.values()) if one), None)
        if text is None:
            findings.add("raquet-metadata-missing", "table", "no row holds metadata")
        if not len(tiles):
            findings.add("raquet-zoom-empty", "table", "no tile at all")
        if findings.total or text is None:
            raise _hopeless(source, findings)
        cells = subject.ids[tiles]
        metadata = on_grid(usable_metadata(text, cells, limits), cells)
        if len(check_bands(subject, metadata, findings)) < len(metadata.columns):
            raise _hopeless(source, findings)
        store = _store(subject, metadata, text, limits, byte_interleaved=byte_interleaved)
        rows = _sorted(subject, tiles, store)
        return cls(subject, metadata, store, rows, byte_interleaved)

    @property
    def kind(self) -> str:
        """Type of the column ``block``."""
        return str(self.subject.footer.schema.field(spec.BLOCK).type)

    def recounted(self, progress: Progress) -> Metadata:
        """The document with the statistics of the tiles, each of which is decoded."""
        recount = Recount.of(self.metadata)
        finest: set[int] = set()
        for start, stop in self._steps():
            looked = self._looked(start, stop)
            for row in self.rows[start:stop].tolist():
                for number, pixels in enumerate(self._bands(row, looked)):
                    if pixels is not None:
                        recount.add(number, int(self.subject.ids[row]), pixels)
                        finest.add(int(self.subject.ids[row]))
            progress(stop, 2 * len(self.rows), "tiles")
        zoom = self.metadata.max_zoom
        count = sum(cell >> 52 & 31 == zoom for cell in finest)
        return replace(recount.finish(), num_blocks=count)

    def groups(self, metadata: Metadata, progress: Progress) -> Iterator[RowGroup]:
        """The row groups of the copy."""
        covers = coverages([metadata])
        for start, stop in self._steps():
            looked = self._looked(start, stop)
            rows = self.rows[start:stop].tolist()
            kept = [row for row in rows if any(looked[row, name][0] for name in metadata.columns)]
            statistics = None
            if metadata.tile_statistics:
                ids = self.subject.ids
                tiles = [
                    statistics_of_tile(metadata, covers, int(ids[row]), self._bands(row, looked))
                    for row in kept
                ]
                statistics = np.stack(tiles) if tiles else None
            if kept:
                yield RowGroup(
                    cells=self.subject.ids[kept],
                    columns=[
                        [self._blob(*looked[row, name]) for row in kept]
                        for name in metadata.columns
                    ],
                    time_cf=self._times(kept),
                    time_ts=self._stamps(kept),
                    statistics=statistics,
                )
            progress(len(self.rows) + stop, 2 * len(self.rows), "tiles")

    def _steps(self) -> Iterator[tuple[int, int]]:
        cells = self.subject.ids[self.rows]
        size = sum(band.pixel_type.itemsize for band in self.metadata.bands)
        size *= self.metadata.block_width * self.metadata.block_height
        return row_groups(cells, np.full(len(cells), size), grid.zooms)

    def _looked(
        self, start: int, stop: int
    ) -> dict[tuple[int, str], tuple[bytes | None, Looked | None]]:
        """Blobs of some rows and what is in them; the first that cannot be decoded is an error."""
        columns = self.metadata.columns
        keys = [(int(row), name) for row in self.rows[start:stop] for name in columns]
        blobs = run(self.store.blobs_plan(keys), self.store.fetch)
        with ThreadPoolExecutor(_WORKERS) as pool:
            found = dict(
                zip(keys, pool.map(lambda key: self._look(key, blobs[key]), keys), strict=True)
            )
        return {key: (blobs[key], one) for key, one in found.items()}

    def _look(self, key: tuple[int, str], blob: bytes | None) -> Looked | None:
        if blob is None:
            return None
        row, name = key
        place = f"{self.subject.place(row)}, band {shown(name)}"
        found = look(
            blob,
            name,
            self.metadata,
            place,
            self.subject.limits,
            byte_interleaved=self.byte_interleaved,
        )
        if found.error is not None:
            raise InvalidMetadataError(
                "a tile cannot be mended, because nothing else tells its pixels",
                where=place,
                found=found.error.what,
            ) from found.error
        return found

    def _bands(self, row: int, looked: dict[tuple[int, str], Any]) -> list[Any]:
        """Pixels of every band of a tile, None for NULL."""
        if not self.metadata.interleaved:
            found = [looked[row, name][1] for name in self.metadata.columns]
            return [None if one is None else one.pixels for one in found]
        one = looked[row, spec.PIXELS][1]
        count = len(self.metadata.bands)
        return [None] * count if one is None else list(one.pixels)

    def _blob(self, blob: bytes | None, found: Looked | None) -> bytes | None:
        """The blob as it should be: the same one where it is right already."""
        if blob is None or found is None:
            return None
        lossy = self.metadata.compression in spec.LOSSY_BANDS
        sound = found.framing in {None, spec.GZIP} and not found.behind
        if lossy or (sound and not self.byte_interleaved):
            return blob
        assert found.pixels is not None
        return encode(found.pixels, self.metadata.compression)

    def _times(self, rows: list[int]) -> list[float] | None:
        if self.metadata.time is None or self.subject.times is None:
            return None
        return [float(value) for value in self.subject.times[rows]]

    def _stamps(self, rows: list[int]) -> list[int | None] | None:
        """The instants that ``time_cf`` says, in odd units too; else those that are stored."""
        if self.metadata.time is None:
            return None
        stored, told = self.subject.stamps, told_stamps(self.subject, self.metadata)
        nothing = np.full(len(self.subject.ids), np.datetime64("NaT", "us"))
        stored = nothing if stored is None else stored
        stamps = stored if told is None else np.where(np.isnat(told), stored, told)
        whole = stamps[rows].astype(np.int64).tolist()
        missing = np.isnat(stamps[rows]).tolist()
        return [None if gone else one for gone, one in zip(missing, whole, strict=True)]


def _store(
    subject: Subject, metadata: Metadata, text: str, limits: Limits, *, byte_interleaved: bool
) -> TileStore:
    part = TileFile(
        subject.source.href,
        subject.footer,
        metadata,
        text,
        subject.ids,
        {},
        frozenset(),
        subject.times,
        None,
    )
    return TileStore(
        [subject.source],
        [part],
        metadata,
        cache_bytes=_CACHE,
        byte_interleaved=byte_interleaved,
        limits=limits,
    )


def _sorted(subject: Subject, tiles: Ints, store: TileStore) -> Ints:
    """Rows by id and time; of rows that are alike only the first."""
    ids = subject.ids[tiles]
    times = np.zeros(len(tiles)) if subject.times is None else subject.times[tiles]
    order = np.lexsort((times, ids))
    rows, ids, times = tiles[order], ids[order], times[order]
    same = np.concatenate([[False], (ids[1:] == ids[:-1]) & (times[1:] == times[:-1])])
    for at in np.flatnonzero(same).tolist():
        pair = [int(rows[at - 1]), int(rows[at])]
        keys = [(row, name) for row in pair for name in store.columns]
        blobs = run(store.blobs_plan(keys), store.fetch)
        if any(blobs[pair[0], name] != blobs[pair[1], name] for name in store.columns):
            raise InvalidMetadataError(
                "a tile stands there twice with different pixels", where=subject.place(pair[1])
            )
    found: Ints = rows[~same]
    return found


def _hopeless(source: Source, findings: Findings) -> InvalidMetadataError:
    problems: tuple[Problem, ...] = findings.report(source.href, None, "repair").problems
    return InvalidMetadataError(
        "the file cannot be repaired",
        where=source.href,
        found=problems[0].message if problems else None,
        problems=problems,
    )


# -- what is recomputed ----------------------------------------------------------------------------


def usable_metadata(text: str, cells: Ints, limits: Limits) -> Metadata:
    """The document; bounds that are none are replaced by those of the tiles.

    Raises
    ------
    InvalidMetadataError, UnsupportedVersionError, LimitExceededError
        As for `comal.raquet.parse_metadata`: what nothing else can tell.
    """
    try:
        return parse_metadata(text, PLACE, limits)
    except InvalidMetadataError as error:
        if {one.code for one in error.problems if one.severity == "error"} != {"raquet-bounds"}:
            raise
    document, _ = read_document(text, PLACE, limits)
    finest = cells[np.asarray(grid.zooms(cells)) == np.asarray(grid.zooms(cells)).max()]
    west, south, east, north = grid.bounds(finest)
    document["bounds"] = [
        float(west.min()),
        float(south.min()),
        float(east.max()),
        float(north.max()),
    ]
    # Numbers of Python that are not JSON are read again as they are written here.
    return parse_metadata(json.dumps(document), PLACE, limits)


def on_grid(metadata: Metadata, cells: Ints) -> Metadata:
    """Bounds of whole tiles, the size that follows from them, and the number of tiles."""
    zoom = metadata.max_zoom
    finest = cells[np.asarray(grid.zooms(cells)) == zoom]
    window = aligned_window(metadata)
    if window is None or not _holds(window, finest):
        window = _around(metadata, finest)
    x0, y0, x1, y1 = window
    north_west = grid.xy_to_lonlat(x0, y0, zoom)
    south_east = grid.xy_to_lonlat(x1, y1, zoom)
    bounds = (north_west[0], south_east[1], south_east[0], north_west[1])
    if aligned_window(metadata) == window:
        bounds = metadata.bounds
    return replace(
        metadata,
        bounds=bounds,
        width=(x1 - x0) * metadata.block_width,
        height=(y1 - y0) * metadata.block_height,
        num_blocks=len(np.unique(finest)),
    )


def _holds(window: tuple[int, int, int, int], cells: Ints) -> bool:
    _, x, y = grid.tiles(cells)
    x0, y0, x1, y1 = window
    return bool(((x >= x0) & (x < x1) & (y >= y0) & (y < y1)).all())


def _around(metadata: Metadata, cells: Ints) -> tuple[int, int, int, int]:
    """Whole tiles around the bounds and the tiles."""
    windows = [grid.bbox_windows(metadata.bounds, metadata.max_zoom)]
    if len(cells):
        _, x, y = grid.tiles(cells)
        windows.append(np.stack([x, y, x, y], axis=1))
    every = np.concatenate(windows)
    first, last = every[:, :2].min(axis=0), every[:, 2:].max(axis=0)
    return int(first[0]), int(first[1]), int(last[0]) + 1, int(last[1]) + 1


@dataclass(slots=True)
class Recount:
    """Statistics of a file while its tiles are gone through.

    Without a nodata value nothing tells padding from pixels, and beside an alpha band pixels may
    be hidden: such bands keep what they have, as long as it does not contradict itself.
    """

    metadata: Metadata
    sums: list[BandSums]
    step: int

    @classmethod
    def of(cls, metadata: Metadata) -> Recount:
        """Of no tiles yet."""
        pixels = metadata.width * metadata.height
        return cls(
            metadata,
            [BandSums(band.dtype) for band in metadata.bands],
            lattice_step(pixels, len(metadata.bands)),
        )

    def add(self, number: int, cell: int, pixels: Any) -> None:
        """The pixels of a band of a tile of the maximum zoom."""
        z, x, y = grid.tiles(cell)
        if z != self.metadata.max_zoom:
            return
        band = self.metadata.bands[number]
        height, width = pixels.shape
        valid = valid_of(pixels, band)
        self.sums[number].add(sums_of(pixels, valid, step=self.step, x=x * width, y=y * height))

    def finish(self) -> Metadata:
        """The document with these statistics."""
        bands = []
        for band, sums in zip(self.metadata.bands, self.sums, strict=True):
            if band.nodata is not None and alpha_of(self.metadata.bands) is None:
                found = finished(sums, None, step=self.step)
                old = band.statistics
                if old is not None and old.valid_percent is not None:
                    found = replace(found, valid_percent=_percent(old.count, sums.count, old))
                bands.append(replace(band, statistics=found))
            elif contradiction(band) is not None:
                bands.append(replace(band, statistics=None))
            else:
                bands.append(band)
        return replace(self.metadata, bands=tuple(bands))


def _percent(before: int | None, count: int, old: Any) -> float | None:
    # Only a writer that counted the same pixels knows how many the source covers.
    return old.valid_percent if before == count else None


def statistics_of_tile(
    metadata: Metadata, covers: Sequence[Coverage | None], cell: int, pixels: list[Any]
) -> Any:
    """Tile statistics (0.5.0) of the bands of a tile, shape (bands, 6); NaN without a valid one.

    Parameters
    ----------
    metadata, covers
        The bands, and what the source of each covers.
    cell, pixels
        The tile, and its pixels for each band.
    """
    found = np.full((len(metadata.bands), len(spec.STATISTICS)), np.nan)
    alpha = alpha_of(metadata.bands)
    for number, (band, cover, one) in enumerate(zip(metadata.bands, covers, pixels, strict=True)):
        if one is None:
            continue
        valid = valid_of(one, band)
        inside = None if cover is None else cover.tile(*grid.tiles(cell), one.shape)
        if inside is not None:
            valid = valid & inside
        if alpha is not None and number != alpha:
            valid = valid & (False if pixels[alpha] is None else pixels[alpha] != 0)
        sums = sums_of(one, valid, step=len(one), x=0, y=0)
        if sums.count:
            assert sums.low is not None
            assert sums.high is not None
            low, high = float(sums.low), float(sums.high)
            found[number] = (sums.count, low, high, float(sums.total), *moments(sums))
    return found
