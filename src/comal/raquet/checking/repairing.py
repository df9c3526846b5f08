"""`repair`: a copy of a file in which everything except the pixels is corrected."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comal import grid
from comal.check import Check
from comal.errors import InvalidMetadataError, shown
from comal.grid import mercator, quadbin
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.progress import Progress, silent
from comal.raquet import spec
from comal.raquet.blobs import encode
from comal.raquet.checking.file import (
    PLACE,
    Subject,
    check_bands,
    check_columns,
    contradiction,
    read_subject,
)
from comal.raquet.checking.run import CODES, REPAIRED_BY, DecodedBlob, decoded_blob, read_footer
from comal.raquet.documents import aligned_window, size_of
from comal.raquet.reading.coverage import Coverage, coverages
from comal.raquet.reading.pixels import alpha_of, valid_of
from comal.raquet.reading.store import TileStore
from comal.raquet.reading.tilefile import TileFile
from comal.raquet.spec import Band, BandStatistics, Metadata
from comal.raquet.times import stamps_of
from comal.raquet.wire import parse_metadata, read_document
from comal.raquet.writing.copying import StoredTiles, version_for
from comal.raquet.writing.creating import RAQUET, finished
from comal.raquet.writing.job import tile_statistics
from comal.raquet.writing.layout import RowGroup, write_parquet
from comal.raster.statistics import BandSums, lattice_step, sums_of
from comal.raster.values import valid_mask
from comal.storage import Source, StorageConfig, open_source
from comal.storage.targets import check_ending, new_file, refuse_sources, target_path

Ints = npt.NDArray[np.int64]
_CACHE = 64 * MIB
"""Size of the cache of column chunks: rows of a chunk are not always copied consecutively."""
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
    """Write a copy of a RaQuet file with the same pixels and everything else corrected.

    The metadata row comes first, tiles are sorted and stored one per page with a page index, and
    zlib streams become gzip members. Dropped are bytes after a stream, rows of tiles that are all
    NULL (unless their zoom has no other), identical duplicates of tiles, and columns that no band
    names. Counts, bounds and sizes
    are set to those of the tiles. Statistics are recomputed for bands with a nodata value; without
    one padding looks like pixels, and statistics are kept unless they contradict themselves. The
    input is never changed.

    Parameters
    ----------
    href
        The file to repair.
    output
        The copy. It appears complete or not at all.
    byte_interleaved
        The tiles are interleaved byte by byte, as one writer does: reorder them. Only pixels show
        whether a file is affected, so this is never done unless requested.
    overwrite
        Replace an existing target.
    progress
        Called with the progress of the copy.
    limits, config
        As for `check`.

    Returns
    -------
    pathlib.Path
        The copy.

    Raises
    ------
    InvalidMetadataError
        Something cannot be recovered: a tile does not decode or appears twice with different
        pixels, ids are not cells, or the document is unusable. Nothing is written.
    ConflictError
        The target exists, or is the input.
    """
    target = target_path(output, config)
    check_ending(target, ".parquet")
    tell = progress or silent
    with open_source(href, config=config) as source:
        refuse_sources(target, source)
        copy = _opened(source, Check(CODES, limits=limits), byte_interleaved=byte_interleaved)
        tell(0, len(copy.chosen), "tiles")
        metadata = copy.recounted(tell)
        version = version_for(None, nested=metadata.nested)
        processing = {**metadata.processing, **(_repaired_by() if byte_interleaved else {})}
        metadata = replace(metadata, version=version, processing=processing)
        kind = str(copy.subject.footer.schema.field(spec.BLOCK).type)
        with new_file(target, overwrite, RAQUET, source) as file:
            write_parquet(file, metadata, version, copy.groups(metadata, tell), kind)
    return target


def _repaired_by() -> dict[str, str]:
    from comal import __version__  # noqa: PLC0415 - the package imports this module

    return {REPAIRED_BY: f"comal {__version__}"}


Decoded = Sequence[Sequence[DecodedBlob | None]]
"""Decoded blobs of some tiles by column of pixels, None for NULL."""


@dataclass(slots=True)
class _Copy:
    """The content to copy."""

    subject: Subject
    tiles: StoredTiles
    chosen: Ints
    """Positions of the tiles to copy."""
    metadata: Metadata
    byte_interleaved: bool

    def recounted(self, progress: Progress) -> Metadata:
        """The document with the statistics of the tiles; drops tiles that are all NULL.

        A zoom keeps its tiles if all are NULL, as each zoom that is declared must have some.
        """
        metadata = self.metadata
        step = lattice_step(metadata.width * metadata.height, len(metadata.bands))
        sums = [BandSums(band.dtype) for band in metadata.bands]
        kept, cells = [], []
        for group, decoded in self._decoded(self.chosen, 0, progress):
            for at, cell in enumerate(group.cells.tolist()):
                planes = self._bands(decoded, at)
                kept.append(any(pixels is not None for pixels in planes))
                cells.append(cell)
                zoom, x, y = grid.tiles(cell)
                if zoom != metadata.max_zoom:
                    continue
                for band, found, pixels in zip(metadata.bands, sums, planes, strict=True):
                    if pixels is not None:
                        height, width = pixels.shape
                        valid = valid_of(pixels, band)
                        place = {"step": step, "x": x * width, "y": y * height}
                        found.add(sums_of(pixels, valid, **place))
        full, zooms = np.array(kept), np.asarray(grid.zooms(cells))
        full |= ~np.isin(zooms, zooms[full])
        finest = np.unique(np.array(cells)[full & (zooms == metadata.max_zoom)])
        self.chosen = self.chosen[full]
        alpha = alpha_of(metadata.bands) is not None
        bands = [
            replace(band, statistics=_renewed(band, found, step, alpha=alpha))
            for band, found in zip(metadata.bands, sums, strict=True)
        ]
        return replace(metadata, bands=tuple(bands), num_blocks=len(finest))

    def groups(self, metadata: Metadata, progress: Progress) -> Iterator[RowGroup]:
        """The row groups of the copy."""
        covers = coverages([metadata])
        for group, decoded in self._decoded(self.chosen, len(self.chosen), progress):
            statistics = None
            if metadata.tile_statistics:
                tiles = [
                    _statistics(metadata, covers, cell, self._bands(decoded, at))
                    for at, cell in enumerate(group.cells.tolist())
                ]
                statistics = np.stack(tiles)
            columns = [
                [self._mended(blob, one) for blob, one in zip(blobs, found, strict=True)]
                for blobs, found in zip(group.columns, decoded, strict=True)
            ]
            yield replace(group, columns=columns, statistics=statistics)

    def _decoded(
        self, chosen: Ints, done: int, progress: Progress
    ) -> Iterator[tuple[RowGroup, Decoded]]:
        """Each row group as stored, and its decoded blobs."""
        stop, columns = 0, self.metadata.columns
        with ThreadPoolExecutor(_WORKERS) as pool:
            for group in self.tiles.groups(chosen):
                start, stop = stop, stop + len(group.cells)
                rows = self.tiles.rows[chosen[start:stop]].tolist()
                decoded = [
                    list(pool.map(partial(self._look, name), rows, blobs))
                    for name, blobs in zip(columns, group.columns, strict=True)
                ]
                yield group, decoded
                progress(done + stop, done + len(chosen) if done else 2 * len(chosen), "tiles")

    def _look(self, name: str, row: int, blob: bytes | None) -> DecodedBlob | None:
        """Decode a blob; raises an error if that fails."""
        if blob is None:
            return None
        place = f"{self.subject.place(row)}, band {shown(name)}"
        limits, swapped = self.subject.limits, self.byte_interleaved
        found = decoded_blob(blob, name, self.metadata, place, limits, byte_interleaved=swapped)
        if found.error is not None:
            raise InvalidMetadataError(
                "a tile cannot be repaired, because its pixels are stored nowhere else",
                where=place,
                found=found.error.what,
            ) from found.error
        return found

    def _bands(self, decoded: Decoded, at: int) -> list[Any]:
        """Pixels of every band of a tile, None for NULL."""
        here = [column[at] for column in decoded]
        found = [None if one is None else one.pixels for one in here]
        if not self.metadata.interleaved:
            return found
        return [None] * len(self.metadata.bands) if found[0] is None else list(found[0])

    def _mended(self, blob: bytes | None, found: DecodedBlob | None) -> bytes | None:
        """The corrected blob; the same one if it is right already."""
        if blob is None or found is None:
            return None
        lossy = self.metadata.compression in spec.LOSSY_BANDS
        sound = found.framing in {None, spec.GZIP} and not found.behind
        if lossy or (sound and not self.byte_interleaved):
            return blob
        assert found.pixels is not None
        return encode(found.pixels, self.metadata.compression)


def _opened(source: Source, findings: Check, *, byte_interleaved: bool) -> _Copy:
    """Read the content to copy; raises an error if it cannot be repaired."""
    footer = read_footer(source, findings)
    subject = None
    if footer is not None and check_columns(footer, findings):
        subject = read_subject(source, footer, findings)
    if subject is None or findings.total > 0:
        raise _hopeless(source, findings)
    rows = np.flatnonzero(subject.tiles)
    wrong = rows[~np.asarray(grid.is_valid(subject.ids[rows]))]
    subject.report(findings, "raquet-cell", wrong, "the block is not a QUADBIN cell")
    texts = [subject.documents.get(row) for row in np.flatnonzero(~subject.tiles).tolist()]
    text = next((one for one in (*texts, *subject.documents.values()) if one), None)
    if text is None:
        findings.add("raquet-metadata-missing", "table", "no row holds metadata")
    if not len(rows):
        findings.add("raquet-zoom-empty", "table", "the table has no tiles")
    if findings.total or text is None:
        raise _hopeless(source, findings)
    cells = subject.ids[rows]
    metadata = on_grid(usable_metadata(text, cells, findings.limits), cells)
    if len(check_bands(subject, metadata, findings)) < len(metadata.columns):
        raise _hopeless(source, findings)
    if subject.times is None:
        metadata = replace(metadata, time=None)
    tiles = _stored(subject, metadata, text, byte_interleaved=byte_interleaved)
    chosen, unlike = tiles.distinct()
    if unlike is not None:
        raise InvalidMetadataError(
            "a tile appears twice with different pixels",
            where=subject.place(int(tiles.rows[unlike])),
        )
    return _Copy(subject, tiles, chosen, metadata, byte_interleaved)


def _stored(
    subject: Subject, metadata: Metadata, text: str, *, byte_interleaved: bool
) -> StoredTiles:
    """The tiles, read by column chunk since the page index may be wrong; no statistics are read."""
    times, stamps = None if metadata.time is None else subject.times, None
    if times is not None:
        # The instants of time_cf; stored ones where the units define none.
        told, own = stamps_of(times, metadata.time), subject.stamps
        stamps = told if own is None else np.where(np.isnat(told), own, told)
    part = TileFile(
        subject.source.href,
        subject.footer,
        metadata,
        text,
        subject.ids,
        {},
        frozenset(),
        times,
        stamps,
    )
    store = TileStore(
        [subject.source],
        [part],
        replace(metadata, tile_statistics=()),
        cache_bytes=_CACHE,
        byte_interleaved=byte_interleaved,
        limits=subject.limits,
    )
    return StoredTiles(store)


def _hopeless(source: Source, findings: Check) -> InvalidMetadataError:
    problems = findings.problems
    return InvalidMetadataError(
        "the file cannot be repaired",
        where=source.href,
        found=problems[0].message if problems else None,
        problems=problems,
    )


# -- metadata --------------------------------------------------------------------------------------


def usable_metadata(text: str, cells: Ints, limits: Limits) -> Metadata:
    """The document; invalid bounds are replaced by those of the tiles."""
    try:
        return parse_metadata(text, PLACE, limits)
    except InvalidMetadataError as error:
        if {one.code for one in error.problems if one.severity == "error"} != {"raquet-bounds"}:
            raise
    document, _ = read_document(text, PLACE, limits)
    zooms = np.asarray(grid.zooms(cells))
    document["bounds"] = list(quadbin.extent(cells[zooms == zooms.max()]))
    # `json.dumps` writes NaN and infinities in a form that is accepted again.
    return parse_metadata(json.dumps(document), PLACE, limits)


def on_grid(metadata: Metadata, cells: Ints) -> Metadata:
    """Metadata with bounds on tile edges, the size derived from them, and the tile count."""
    zoom, bounds = metadata.max_zoom, metadata.bounds
    finest = cells[np.asarray(grid.zooms(cells)) == zoom]
    window = aligned_window(metadata)
    if window is None or not _holds(window, finest):
        window = _around(metadata, finest)
        bounds = mercator.box(zoom, *window)
    width, height = size_of(metadata, window)
    count = len(np.unique(finest))
    return replace(metadata, bounds=bounds, width=width, height=height, num_blocks=count)


def _holds(window: tuple[int, int, int, int], cells: Ints) -> bool:
    _, x, y = grid.tiles(cells)
    x0, y0, x1, y1 = window
    return bool(((x >= x0) & (x < x1) & (y >= y0) & (y < y1)).all())


def _around(metadata: Metadata, cells: Ints) -> tuple[int, int, int, int]:
    """The tile window that contains the bounds and the tiles."""
    windows = [grid.bbox_windows(metadata.bounds, metadata.max_zoom)]
    if len(cells):
        _, x, y = grid.tiles(cells)
        windows.append(np.stack([x, y, x, y], axis=1))
    every = np.concatenate(windows)
    first, last = every[:, :2].min(axis=0), every[:, 2:].max(axis=0)
    return int(first[0]), int(first[1]), int(last[0]) + 1, int(last[1]) + 1


def _renewed(band: Band, sums: BandSums, step: int, *, alpha: bool) -> BandStatistics | None:
    """Statistics of a band: those of its pixels, if a nodata value marks which ones count.

    Without one padding looks like pixels, and an alpha band may mask pixels: such bands keep their
    statistics unless these contradict themselves.
    """
    old = band.statistics
    if band.nodata is None or alpha:
        return old if contradiction(band) is None else None
    # The old percentage holds only if the same pixels were counted.
    percent = old.valid_percent if old is not None and old.count == sums.count else None
    return replace(finished(sums, None, step=step), valid_percent=percent)


def _statistics(
    metadata: Metadata, covers: Sequence[Coverage | None], cell: int, planes: list[Any]
) -> Any:
    """Tile statistics (0.5.0) of the bands of a tile, shape (bands, 6)."""
    alpha = alpha_of(metadata.bands)
    masks: list[Any] = []
    for number, (band, cover, pixels) in enumerate(
        zip(metadata.bands, covers, planes, strict=True)
    ):
        if pixels is None:
            masks.append(None)
            continue
        covered = None if cover is None else cover.tile(*grid.tiles(cell), pixels.shape)
        hiding = None
        if alpha is not None and number != alpha:
            hiding = np.zeros(pixels.shape) if planes[alpha] is None else planes[alpha]
        masks.append(valid_mask(pixels, band.nodata, covered, hiding))
    return tile_statistics(planes, masks)
