"""`check`: its codes, and the order in which a file is gone through."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from comal.check import OF_CONTENT, Check, Findings, Report, rules
from comal.errors import InvalidInputError, NotThisFormatError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Head, Tail, run
from comal.progress import Progress
from comal.raquet.checking.file import (
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
from comal.raquet.checking.tiles import TileCheck, band_checks, check_byte_interleaved
from comal.storage import Source, StorageConfig, open_source, several
from comal.table import footer_plan

Location = str | os.PathLike[str]

_MAGIC = b"PAR1"


_ERRORS = {
    # The Parquet file
    "raquet-parquet": "no Parquet file, or its footer is broken",
    "raquet-page": "a page cannot be read",
    "raquet-page-index": "the page index does not lead to the tiles",
    "raquet-column-missing": "block, metadata, or every band column is missing",
    "raquet-column-type": "a column has a type that it cannot have",
    # The metadata row
    "raquet-metadata-missing": "no row has block 0, or it holds no metadata",
    "raquet-metadata-twice": "several rows have block 0",
    "raquet-metadata-in-tile": "a row of a tile holds metadata",
    "raquet-metadata-key": "the metadata in the footer are not those of the metadata row",
    # The document
    "raquet-json": "the metadata are no JSON object, or nested beyond reason",
    "raquet-version": "a version that is none, or a newer generation",
    "raquet-grid": "another CRS, tiling or format than RaQuet has",
    "raquet-compression": "an unknown compression, or one that its bands cannot have",
    "raquet-layout": "an unknown layout, or one that its bands cannot have",
    "raquet-block-size": "a block size that is no multiple of 16 up to 8192",
    "raquet-zooms": "zooms that are not in 0 to 26, or in the wrong order",
    "raquet-bounds": "bounds that are not four numbers in their order",
    "raquet-bands": "no bands, or bands that are no objects",
    "raquet-band-name": "a band without a name, with one that is reserved, or that stands twice",
    "raquet-band-type": "a type of pixels that there is not",
    "raquet-band-column": "a band without a column of bytes",
    "raquet-nodata": "a nodata value that is no number",
    "raquet-object": "a value that should be an object",
    "raquet-statistics": "statistics that contradict themselves",
    "raquet-statistics-column": "declared tile statistics have no columns",
    "raquet-time-column": "a time series without the time of its tiles",
    "raquet-size": "width or height are no sizes, or contradict the bounds",
    "raquet-num-blocks": "the number of tiles is neither theirs nor that of the grid",
    # The index
    "raquet-cell": "a block that is no QUADBIN cell",
    "raquet-cell-twice": "a tile stands twice",
    "raquet-cell-zoom": "a tile of a zoom that is not declared",
    "raquet-cell-bounds": "a tile of the maximum zoom lies outside of the bounds",
    "raquet-zoom-empty": "a declared zoom has no tile",
    # The tiles
    "raquet-tile": "a tile does not decode to its pixels",
    # What a check could not go on with
    "limit-exceeded": "the content is larger than the limits allow",
    "unsafe-content": "a name would lead out of the data",
}

_WARNINGS = {
    "raquet-version-missing": "the metadata have no version",
    "raquet-version-early": "the version is earlier than what the file has",
    "raquet-time-differs": "time_ts is not the instant that time_cf says",
    "raquet-json-token": "NaN or Infinity stands in the JSON as it is",
    "raquet-number": "a value that should be a number is not used",
    "raquet-text": "a value that should be a text is not used",
    "raquet-flag": "a value that should be true or false is not used",
    "raquet-derived": "a value that follows from others is not what they say",
    "raquet-colorinterp": "a colour interpretation that GDAL does not have",
    "raquet-colortable": "a colour that is none is not used",
    "raquet-quantiles": "quantiles that are none are not used",
    "raquet-top-values": "counts of values that are none are not used",
    "raquet-tile-statistics": "tile statistics of a kind that is not known",
    "raquet-order": "tiles do not ascend",
    "raquet-sorting": "the file says that it is sorted, and it is not",
    "raquet-framing": "a tile is a zlib stream, or one behind a gzip header, instead of gzip",
    "raquet-tile-tail": "bytes follow the compressed tile",
    "raquet-metadata-pixels": "the metadata row holds pixels",
    "raquet-row-empty": "all bands of a tile are NULL",
    "raquet-column-extra": "a column of bytes that no band names",
    "raquet-overview-missing": "an overview tile is missing although tiles below it are there",
    "raquet-bounds-tiles": "the bounds are not those of whole tiles",
    "raquet-num-blocks-grid": "the number of tiles is that of the whole grid",
    "raquet-statistics-differ": "statistics differ from the pixels",
    "raquet-byte-interleaved": "interleaved tiles may take turns by bytes instead of values",
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
) -> Report:
    """List every problem of a RaQuet file.

    Parameters
    ----------
    href
        Path or URL of a file, or several, each of which is checked by itself.
    level
        ``structure``: schema, metadata and index; ``sample``: also one of each twenty tiles;
        ``full``: every tile.
    statistics
        Recompute the statistics of bands and tiles, which needs the level ``full``.
    progress
        Told how far the check is.
    limits
        Caps on what a file may make us hold.
    config
        How to speak to remote storage.

    Returns
    -------
    Report
        All problems. A file that cannot be opened has a report as long as its first bytes are
        those of a Parquet file. Memory does not grow with the file: one column chunk is held at a
        time, and eight bytes for each tile.

    Raises
    ------
    NotThisFormatError
        Something else than Parquet is there.
    ObjectNotFoundError, AccessDeniedError, StorageError, ObjectChangedError
        Nothing is there, or it cannot be read.
    InvalidInputError
        An unknown level, or statistics without all tiles.
    """
    findings = Check(CODES, level, limits, progress)
    if statistics and level != "full":
        raise InvalidInputError("statistics need every tile", found=level, expected="level='full'")
    hrefs = [href] if isinstance(href, str | os.PathLike) else several(href, "paths or URLs")
    where = ""
    for one in hrefs:
        with open_source(one, config=config) as source:
            where = where or source.href
            found = findings if len(hrefs) == 1 else findings.part()
            _check_file(source, found, statistics=statistics)
            if found is not findings:
                findings.take_all(found, PurePosixPath(source.href).name)
    return findings.reported(where, "parquet")


def _check_file(source: Source, findings: Check, *, statistics: bool) -> None:
    limits = findings.limits
    footer = read_footer(source, findings, limits)
    if footer is None or not check_columns(footer, findings):
        return
    findings.progress(0, None, "index")
    subject = read_subject(source, footer, limits, findings)
    if subject is None:
        return
    text = check_metadata_row(subject, findings)
    metadata = None if text is None else read_metadata(text, limits, findings)
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
        tiles = TileCheck(subject, metadata, columns, findings, findings.one_of, checks)
        tiles.run(findings.progress)
        ranges = tiles.ranges
    check_byte_interleaved(subject, metadata, ranges, findings)


def read_footer(source: Source, findings: Findings, limits: Limits) -> Any:
    """The footer, or None; what is no Parquet file at all is an error."""
    head, tail = source.fetch([Head(4), Tail(8)])
    if head.data != _MAGIC:
        raise NotThisFormatError(
            "not a RaQuet file",
            where=source.href,
            found=f"first bytes {head.data.hex(' ') or 'missing'}",
            expected="a Parquet file",
        )
    try:
        return run(footer_plan(ByteRange(0, tail.total), limits=limits), source.fetch)
    except OF_CONTENT as error:
        findings.take_error(error, "raquet-parquet", "footer")
        return None
