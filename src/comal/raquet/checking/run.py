"""`check`: the order in which a file is gone through."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from comal.check import OF_CONTENT, Check, Findings, Report
from comal.errors import InvalidInputError, NotThisFormatError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Head, Tail, run
from comal.progress import Progress
from comal.raquet.checking.codes import CODES
from comal.raquet.checking.document import check_index, check_statistics, read_metadata
from comal.raquet.checking.table import (
    Subject,
    check_bands,
    check_columns,
    check_layout,
    check_metadata_row,
    check_page_index,
    read_subject,
)
from comal.raquet.checking.tiles import TileCheck, band_checks, check_byte_interleaved
from comal.storage import Source, StorageConfig, open_source, several
from comal.table import footer_plan

Location = str | os.PathLike[str]

_MAGIC = b"PAR1"


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
    _check_tiles(subject, metadata, columns, findings, statistics=statistics)


def _check_tiles(
    subject: Subject,
    metadata: Any,
    columns: list[str],
    findings: Check,
    *,
    statistics: bool,
) -> None:
    ranges: dict[int, tuple[float, float]] = {}
    if findings.one_of and columns:
        tiles = TileCheck(
            subject,
            metadata,
            columns,
            findings,
            one_of=findings.one_of,
            checks=band_checks(metadata) if statistics else (),
        )
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
