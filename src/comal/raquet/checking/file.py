"""Checks of one file: columns, order of tiles, pages, and the document against the tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import grid
from comal.check import OF_CONTENT, Check
from comal.errors import (
    InvalidMetadataError,
    NotThisFormatError,
    UnsupportedVersionError,
    counted,
    shown,
)
from comal.limits import Limits
from comal.plan import run
from comal.raquet import spec
from comal.raquet.documents import aligned_window, edges_of, pixel_zoom, size_of
from comal.raquet.reading.tilefile import TileFile, file_plan
from comal.raquet.spec import Band, Metadata
from comal.raquet.times import stamps_of
from comal.raquet.wire import parse_metadata, read_document
from comal.storage import Source
from comal.table import Footer, ParquetTable

Ints = npt.NDArray[np.int64]

_NEAR = np.timedelta64(1, "s")
"""Tolerance between time_ts and time_cf, whose fractions of days are rounded."""
_PLAIN = (1 << 0) | (1 << 3)
"""PLAIN for values, RLE for levels."""


@dataclass(slots=True)
class Subject:
    """The file under check."""

    source: Source
    footer: Footer
    limits: Limits
    ids: Ints
    """``block`` of each readable row."""
    groups: Ints
    """Row group of each readable row."""
    times: npt.NDArray[np.float64] | None = None
    """``time_cf`` of each readable row, NaN for null."""
    stamps: npt.NDArray[np.datetime64] | None = None
    """``time_ts`` of each readable row, NaT for null."""
    documents: dict[int, str] = field(default_factory=dict)
    """Metadata documents that are not null, by row."""

    @property
    def table(self) -> ParquetTable:
        """The file as a table."""
        return ParquetTable(self.source, self.footer, limits=self.limits)

    @property
    def tiles(self) -> npt.NDArray[np.bool_]:
        """Which rows are tiles."""
        found: npt.NDArray[np.bool_] = self.ids != 0
        return found

    def place(self, row: int) -> str:
        """Name of a row in messages."""
        return f"row group {self.groups[row]}, row {row}, block {self.ids[row]}"

    def report(
        self, findings: Check, code: str, rows: Any, message: str | Callable[[int], str]
    ) -> None:
        """Add one problem for each of some rows."""
        told = message if callable(message) else lambda _: message
        findings.add_rows(code, rows, lambda row: (self.place(row), told(row)))


def check_columns(footer: Footer, findings: Check) -> bool:
    """RaQuet 0.1.0: block, metadata and one or more bands. False if the check cannot go on."""
    schema = footer.schema
    sound = True
    for name in (spec.BLOCK, spec.METADATA):
        if name not in schema.names:
            findings.add("raquet-column-missing", "schema", f"the column {name} is missing")
            sound = False
    if not sound:
        return False
    block, document = schema.field(spec.BLOCK).type, schema.field(spec.METADATA).type
    if block not in {pa.uint64(), pa.int64()}:
        findings.add("raquet-column-type", "schema", f"block is {block}, expected uint64 or int64")
        sound = False
    if not _is_text(document):
        findings.add("raquet-column-type", "schema", f"metadata is {document}, expected string")
        sound = False
    if not any(
        _is_bytes(one.type) for one in schema if one.name not in {spec.BLOCK, spec.METADATA}
    ):
        findings.add(
            "raquet-column-missing", "schema", "no column holds bytes, so there are no bands"
        )
    return sound


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _short_columns(footer: Footer, findings: Check) -> list[str]:
    """The readable columns other than pixels."""
    names = [spec.BLOCK, spec.METADATA]
    kinds = dict(zip(footer.schema.names, footer.schema.types, strict=True))
    time = kinds.get(spec.TIME_CF)
    if time is not None and (pa.types.is_floating(time) or pa.types.is_integer(time)):
        names.append(spec.TIME_CF)
    elif time is not None:
        findings.add("raquet-column-type", "schema", f"time_cf is {time}, expected float64")
    if spec.TIME_TS in kinds and pa.types.is_timestamp(kinds[spec.TIME_TS]):
        names.append(spec.TIME_TS)
    return names


def read_subject(source: Source, footer: Footer, findings: Check) -> Subject | None:
    """Ids, times and documents of all rows, row group by row group."""
    names, limits = _short_columns(footer, findings), findings.limits
    documents: dict[int, str] = {}
    parts, groups, count = [], [], 0
    for some, rows in _readable(ParquetTable(source, footer, limits=limits), names, findings):
        nulls = rows.column(spec.BLOCK).null_count
        if nulls:
            place = f"row group {some[0]}" if len(some) == 1 else "column block"
            findings.add("raquet-cell", place, f"block is NULL in {counted(nulls, 'row')}")
        texts = rows.column(spec.METADATA)
        if texts.null_count < len(texts) and len(documents) < _MOST_DOCUMENTS:
            there = np.flatnonzero(texts.is_valid().to_numpy())[:_MOST_DOCUMENTS].tolist()
            documents |= {count + row: _decoded(texts[row].as_py()) for row in there}
        groups.append(np.repeat(some, footer.layout.rows[some]))
        parts.append(rows.drop_columns(spec.METADATA))
        count += rows.num_rows
    if not parts:
        if not findings.total:
            findings.add("raquet-metadata-missing", "table", "the table has no rows")
        return None
    table = pa.concat_tables(parts)
    times = stamps = None
    if spec.TIME_CF in names:
        times = table.column(spec.TIME_CF).cast(pa.float64(), safe=False).to_numpy()
    if spec.TIME_TS in names:
        instants = table.column(spec.TIME_TS).cast(pa.timestamp("us"), safe=False)
        stamps = instants.to_numpy().astype("datetime64[us]")
    # NULL is reported separately; 1 is neither a cell nor a metadata row.
    ids = table.column(spec.BLOCK).fill_null(1).to_numpy().astype(np.int64, copy=False)
    every = np.concatenate(groups)
    return Subject(source, footer, limits, ids, every, times, stamps, documents)


_MOST_DOCUMENTS = 100


def _decoded(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _readable(
    table: ParquetTable, names: list[str], findings: Check
) -> Iterator[tuple[list[int], Any]]:
    """Row groups that can be read, short ones together; unreadable ones become findings."""
    every = np.flatnonzero(table.footer.layout.rows).tolist()
    for groups in table.runs(names, every):
        try:
            yield groups, table.read(names, groups).combine_chunks()
        except OF_CONTENT:
            for group in groups:
                try:
                    rows = table.read(names, [group])
                except OF_CONTENT as error:
                    findings.take_error(error, "raquet-page", f"row group {group}")
                    continue
                yield [group], rows.combine_chunks()


def check_metadata_row(subject: Subject, findings: Check) -> str | None:
    """RaQuet 0.1.0: the document is in the row where block = 0, and in no other."""
    rows = np.flatnonzero(subject.ids == 0)
    if not len(rows):
        findings.add("raquet-metadata-missing", "table", "no row has block 0")
    if len(rows) > 1:
        findings.add(
            "raquet-metadata-twice",
            subject.place(int(rows[1])),
            f"{len(rows)} rows have block 0",
        )
    found: str | None = None
    for row in rows.tolist():
        if row not in subject.documents:
            findings.add("raquet-metadata-missing", subject.place(row), "metadata is NULL")
        elif found is None:
            found = subject.documents[row]
    for row in subject.documents:
        if subject.ids[row] != 0:
            findings.add(
                "raquet-metadata-in-tile", subject.place(row), "the row of a tile holds metadata"
            )
    key_values = subject.footer.metadata.metadata or {}
    early = key_values.get(spec.METADATA_KEY.encode())
    if early is not None and found is not None and early.decode("utf-8", "replace") != found:
        findings.add(
            "raquet-metadata-key",
            f"footer, key {spec.METADATA_KEY}",
            "the metadata differ from those of the metadata row",
        )
    return found


def check_bands(subject: Subject, metadata: Metadata, findings: Check) -> list[str]:
    """Check columns against metadata; returns the usable columns of pixels."""
    schema = subject.footer.schema
    usable = []
    for name in metadata.columns:
        if name not in schema.names:
            findings.add(
                "raquet-band-column", f"band {shown(name)}", "the column of the band is missing"
            )
        elif not _is_bytes(schema.field(name).type):
            findings.add(
                "raquet-band-column",
                f"band {shown(name)}",
                f"the column is {schema.field(name).type}, expected binary",
            )
        else:
            usable.append(name)
    for name in metadata.statistics_columns:
        if name not in schema.names:
            findings.add(
                "raquet-statistics-column", f"column {shown(name)}", "the column is missing"
            )
    for one in schema:
        if _is_bytes(one.type) and one.name not in {*metadata.columns, spec.METADATA}:
            findings.add(
                "raquet-column-extra", f"column {shown(one.name)}", "no band names this column"
            )
    if metadata.time is not None and subject.times is None:
        findings.add("raquet-time-column", "schema", "the column time_cf is missing")
    elif subject.times is not None:
        missing = np.flatnonzero(np.isnan(subject.times) & subject.tiles)
        subject.report(findings, "raquet-time-column", missing, "time_cf is NULL")
        _check_stamps(subject, metadata, findings)
    return usable


def _check_stamps(subject: Subject, metadata: Metadata, findings: Check) -> None:
    stored, times = subject.stamps, subject.times
    if stored is None or times is None:
        return
    told = stamps_of(times, metadata.time)
    apart = np.flatnonzero(subject.tiles & ~np.isnat(told) & ~np.isnat(stored))
    apart = apart[np.abs(stored[apart] - told[apart]) > _NEAR]
    subject.report(
        findings,
        "raquet-time-differs",
        apart,
        lambda row: f"time_ts is {stored[row]}, but time_cf says {told[row]}",
    )


def check_layout(subject: Subject, columns: list[str], findings: Check) -> None:
    """Check that tiles can be read one by one, and that rows are in the declared order."""
    layout = subject.footer.layout
    for name in columns:
        leaves = list(layout.leaves[name])
        reasons = []
        if layout.codec[:, leaves].any():
            reasons.append("a Parquet codec")
        if (layout.encodings[:, leaves] & ~_PLAIN).any():
            reasons.append("a dictionary")
        if not (layout.offset_index[:, leaves] > 0).all():
            reasons.append("no page index")
        if reasons:
            message = f"tiles cannot be read one by one: {', '.join(reasons)}"
            findings.add("raquet-pages", f"column {shown(name)}", message)
    ids = subject.ids
    tiles = ids[subject.tiles]
    falls = np.flatnonzero(tiles[1:] < tiles[:-1])
    if len(falls):
        rows = np.flatnonzero(subject.tiles)[falls + 1]
        findings.add(
            "raquet-order",
            subject.place(int(rows[0])),
            f"{counted(len(rows), 'tile')} after a tile with a larger id",
        )
    if _declares_order(subject) and (ids[1:] < ids[:-1]).any():
        row = int(np.argmax(ids[1:] < ids[:-1])) + 1
        findings.add(
            "raquet-sorting", subject.place(row), "sorting_columns declares ascending blocks"
        )


def _declares_order(subject: Subject) -> bool:
    layout = subject.footer.layout
    block = layout.leaves[spec.BLOCK][0]
    try:
        declared = subject.footer.metadata.row_group(0).sorting_columns
    except (pa.ArrowException, OSError, ValueError, IndexError):
        return False
    return bool(declared) and declared[0].column_index == block and not declared[0].descending


# -- page index ------------------------------------------------------------------------------------


def check_page_index(subject: Subject, findings: Check) -> None:
    """Open the file as readers do, and compare the page index with the columns."""
    if findings.errors:
        return  # what prevents opening it has been reported
    try:
        part = run(file_plan(subject.source.href, subject.limits), subject.source.fetch)
    except NotThisFormatError:
        return
    except OF_CONTENT as error:
        findings.take_error(error, "raquet-page-index", "page index")
        return
    if len(part.ids) != len(subject.ids) or (part.ids != subject.ids).any():
        findings.add(
            "raquet-page-index", "column block", "the page index has other ids than the column"
        )
    for name in part.pages:
        _check_column(subject, part, name, findings)


def _check_column(subject: Subject, part: TileFile, name: str, findings: Check) -> None:
    """Check that the pages of a column chunk are contiguous and fill it."""
    layout, pages = subject.footer.layout, part.pages[name]
    leaf = layout.leaves[name][0]
    ends = np.cumsum(layout.rows)
    for group, (start, stop) in enumerate(zip(ends - layout.rows, ends, strict=True)):
        offset, size = pages.offset[start:stop], pages.size[start:stop]
        begin = int(layout.start[group, leaf]) + subject.footer.span.offset
        expected = begin + np.cumsum(size) - size
        whole = int(size.sum()) == int(layout.size[group, leaf])
        if len(offset) and not (whole and (offset == expected).all()):
            findings.add(
                "raquet-page-index",
                f"row group {group}, column {shown(name)}",
                "the pages of the index are not those of the column",
            )


# -- document --------------------------------------------------------------------------------------


PLACE = "metadata"
_NAMES = (
    "undefined gray grey palette red green blue alpha hue saturation lightness cyan magenta yellow"
    " black y cb cr ycbcr_y ycbcr_cb ycbcr_cr pan coastal rededge nir swir mwir lwir tir otherir"
    " other_ir sar_ka sar_k sar_ku sar_x sar_c sar_s sar_l sar_p"
)
_COLOURS = frozenset(_NAMES.split())
"""Names of GDAL, and those of rasterio that differ (RaQuet 0.1.0, band information)."""


def read_metadata(text: str, findings: Check) -> Metadata | None:
    """The document, or None if it is unusable."""
    try:
        found = parse_metadata(text, PLACE, findings.limits)
    except UnsupportedVersionError as error:
        code = "raquet-grid" if "grid" in error.what else "raquet-version"
        findings.add(code, PLACE, f"{error.what}: {error.found}")
        return None
    except InvalidMetadataError as error:
        if error.problems:
            findings.take(error.problems)
        else:
            findings.take_error(error, "raquet-json", PLACE)
        return None
    except OF_CONTENT as error:
        findings.take_error(error, "raquet-json", PLACE)
        return None
    findings.take(found.problems)
    if found.time is not None and found.version == spec.WRITTEN[0]:
        message = f"version {found.version} has no time, which came with {spec.TIMED}"
        findings.add("raquet-version-early", PLACE, message)
    _check_derived(read_document(text, PLACE, findings.limits)[0], found, findings)
    for band in found.bands:
        if band.colorinterp is not None and band.colorinterp not in _COLOURS:
            message = f"{shown(band.colorinterp)} is not a colour interpretation of GDAL"
            findings.add("raquet-colorinterp", f"band {shown(band.name)}", message)
    return found


def _check_derived(document: Mapping[str, Any], metadata: Metadata, findings: Check) -> None:
    """Check keys that are derived from others and not read here (RaQuet 0.1.0, metadata)."""
    tiling = document.get("tiling")
    inner = tiling if isinstance(tiling, Mapping) else {}
    expected: list[tuple[str, Any, Any]] = [
        ("block_resolution", document.get("block_resolution"), metadata.max_zoom),
        ("num_pixels", document.get("num_pixels"), metadata.width * metadata.height),
        ("pixel_resolution", document.get("pixel_resolution"), pixel_zoom(metadata)),
        ("tiling.pixel_zoom", inner.get("pixel_zoom"), pixel_zoom(metadata)),
        ("center", document.get("center"), metadata.center),
    ]
    for key, found, value in expected:
        near = _is_center(found, metadata) if key == "center" else found == value
        if found is not None and not near:
            message = f"{shown(found)}, but the other keys say {shown(value)}"
            findings.add("raquet-derived", f"{PLACE}: {key}", message)


def _is_center(found: Any, metadata: Metadata) -> bool:
    """Whether `found` is the centre of the bounds with one of the zooms."""
    if not isinstance(found, list) or len(found) != 3:
        return False
    # Integers of any length compare with floats; NaN fails every comparison.
    if not all(isinstance(one, int | float) and abs(one) < 1e6 for one in found):
        return False
    longitude, latitude, _ = metadata.center
    near = abs(found[0] - longitude) < 1e-4 and abs(found[1] - latitude) < 1e-4
    return bool(near and metadata.min_zoom <= found[2] <= metadata.max_zoom)


def check_statistics(metadata: Metadata, findings: Check) -> None:
    """Report statistics that no pixels can have."""
    for band in metadata.bands:
        reason = contradiction(band)
        if reason is not None:
            findings.add("raquet-statistics", f"band {shown(band.name)}", reason)


def contradiction(band: Band) -> str | None:
    """Why no pixels can have the statistics of a band; None if some can."""
    found = band.statistics
    if found is None or found.count == 0:
        return None
    low, high, mean = found.min, found.max, found.mean
    if low is not None and high is not None:
        if low > high:
            return f"minimum {low} is above maximum {high}"
        # The mean of millions of pixels has a rounding error.
        room = 1e-6 * max(abs(float(low)), abs(float(high)), 1e-300)
        if mean is not None and not low - room <= mean <= high + room:
            return f"mean {mean} is not between {low} and {high}"
    if found.stddev is not None and found.stddev < 0:
        return f"standard deviation {found.stddev} is negative"
    for key, values in (found.quantiles or {}).items():
        if list(values) != sorted(values):
            return f"quantiles {shown(key)} do not ascend"
    percent = found.valid_percent
    if percent is not None and not -1e-6 <= percent <= 100 + 1e-3:
        return f"valid percent {percent} is not between 0 and 100"
    return None


def check_index(subject: Subject, metadata: Metadata, findings: Check) -> None:
    """Check the ids: valid cells, each once, of the declared zooms and within the bounds."""
    ids = subject.ids
    rows = np.flatnonzero(subject.tiles)
    valid = np.asarray(grid.is_valid(ids[rows]))
    subject.report(
        findings,
        "raquet-cell",
        rows[~valid],
        lambda row: f"{hex(int(ids[row]) % 2**64)} is not a QUADBIN cell",
    )
    rows = rows[valid]
    if not len(rows):
        findings.add("raquet-zoom-empty", "table", "the table has no tiles")
        return
    _check_unique(subject, rows, findings)
    zooms = np.asarray(grid.zooms(ids[rows]))
    outside = (zooms < metadata.min_zoom) | (zooms > metadata.max_zoom)
    declared = f"{metadata.min_zoom} to {metadata.max_zoom}"
    subject.report(
        findings,
        "raquet-cell-zoom",
        rows[outside],
        lambda row: f"zoom {int(ids[row]) >> 52 & 31} is not within the declared {declared}",
    )
    there = set(np.unique(zooms).tolist())
    # All parts of a set declare the zooms of the set; only some parts hold the coarse ones.
    is_part = metadata.processing.get(spec.PART) is not None
    for zoom in range(metadata.max_zoom if is_part else metadata.min_zoom, metadata.max_zoom + 1):
        if zoom not in there:
            findings.add(
                "raquet-zoom-empty",
                f"zoom {zoom}",
                f"no tile of this zoom, but {declared} are declared",
            )
    _check_place(subject, rows[zooms == metadata.max_zoom], metadata, findings)
    _check_overviews(ids[rows], zooms, metadata, findings)


def _check_unique(subject: Subject, rows: Any, findings: Check) -> None:
    ids = subject.ids[rows]
    times = np.zeros(len(rows)) if subject.times is None else subject.times[rows]
    order = np.lexsort((times, ids))
    # A NULL time is reported separately, and equals no other time.
    same = (ids[order][1:] == ids[order][:-1]) & (times[order][1:] == times[order][:-1])
    twice = rows[order][1:][same]
    when = "" if subject.times is None else ", with the same time"
    told = f"the tile appears twice{when}"
    subject.report(findings, "raquet-cell-twice", np.sort(twice), told)


def _check_place(subject: Subject, rows: Any, metadata: Metadata, findings: Check) -> None:
    cells = subject.ids[rows]
    (x0, y0, x1, y1), room = edges_of(metadata)
    zoom, x, y = grid.tiles(cells)
    # In units of tiles of the finest zoom: at high latitudes they can be smaller than a tolerance
    # in degrees.
    side = np.ldexp(1.0, metadata.max_zoom - zoom)
    outside = ((x + 1) * side <= x0 + room) | (x * side >= x1 - room)
    outside |= ((y + 1) * side <= y0 + room) | (y * side >= y1 - room)
    told = f"the tile is not within the bounds {metadata.bounds}"
    subject.report(findings, "raquet-cell-bounds", rows[outside], told)
    window = aligned_window(metadata)
    if window is None:
        findings.add(
            "raquet-bounds-tiles", PLACE, f"{metadata.bounds} are not those of whole tiles"
        )
    else:
        width, height = size_of(metadata, window)
        if (metadata.width, metadata.height) != (width, height):
            findings.add(
                "raquet-size",
                PLACE,
                f"the size is {metadata.width} x {metadata.height}, "
                f"but the bounds hold {width} x {height}",
            )
    _check_count(len(np.unique(cells)), metadata, findings)


def _check_count(tiles: int, metadata: Metadata, findings: Check) -> None:
    declared = metadata.num_blocks
    if declared is None or declared == tiles:
        return
    across = math.ceil(metadata.width / metadata.block_width)
    full = across * math.ceil(metadata.height / metadata.block_height)
    there = counted(tiles, "tile")
    if declared == full:
        told = f"num_blocks {declared} is the whole grid, of which the file has {there}"
        findings.add("raquet-num-blocks-grid", PLACE, told)
    else:
        told = f"num_blocks is {declared}, but the file has {there}, and the whole grid has {full}"
        findings.add("raquet-num-blocks", PLACE, told)


def _check_overviews(ids: Any, zooms: Any, metadata: Metadata, findings: Check) -> None:
    told = metadata.processing.get("overview_resampling")
    if isinstance(told, str) and ("nearest" in told or "min" in told):
        return  # one pixel of four decides, or the least alpha: a tile may have no pixel left
    for zoom in range(metadata.min_zoom + 1, metadata.max_zoom + 1):
        children = ids[zooms == zoom]
        if not len(children):
            continue
        wanted = np.unique(grid.parents(children, zoom - 1))
        missing = wanted[~np.isin(wanted, ids[zooms == zoom - 1])]
        if len(missing):
            told = f"{len(missing)} of {len(wanted)} tiles are missing; first block {missing[0]}"
            findings.add("raquet-overview-missing", f"zoom {zoom - 1}", told)
