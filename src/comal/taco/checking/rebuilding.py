"""Level tables out of local metadata, where they cannot be read.

Each FOLDER has the rows of its children as a small file of its own (TACO 2.0, 6.2), so that every
row but those of level 0 stands in two places.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import (
    ComalError,
    InvalidMetadataError,
    LimitExceededError,
    Problem,
    ShortReadError,
    translated,
)
from comal.plan import ByteRange, Piece, run
from comal.table import ParquetTable, footer_plan, write_table
from comal.table.columns import numbers_column
from comal.taco import spec
from comal.taco.checking import tree
from comal.taco.checking.codes import new_findings
from comal.taco.checking.meta import fetch_file, read_local
from comal.taco.checking.rows import Rows, load
from comal.taco.checking.spans import true_spans
from comal.taco.checking.subject import Subject
from comal.ziparchive import extracted, local_plan

_FOLDERS = 256
"""FOLDERs whose local metadata is fetched at once."""
_JOINING: dict[type[BaseException], type[ComalError]] = {
    pa.ArrowException: InvalidMetadataError,
}


def rebuild_tables(subject: Subject) -> frozenset[str]:
    """Put tables made of local metadata in the place of those that are missing or unreadable.

    Parameters
    ----------
    subject
        Its tables are changed. That of level 0 stands nowhere else and is left as it is.

    Returns
    -------
    The places by which findings call the tables that were made.

    Raises
    ------
    InvalidMetadataError
        Local metadata that is missing or broken too, which is named.
    """
    findings = new_findings()  # what is wrong beside it is judged when all tables are there
    levels: list[Rows] = []
    made: list[str] = []
    while (depth := len(levels)) < spec.MAX_LEVELS:
        if depth and not _is_readable(subject, depth):
            if not levels[-1].folders.any():
                break
            tree.link(levels, findings, complete=False)
            table = _made(subject, levels[-1])
            subject.tables[depth:] = [table, *subject.tables[depth + 1 :]]
            made += [f"level {depth}", f"METADATA/level{depth}.parquet"]
        rows = load(subject, depth, [], findings) if depth < len(subject.tables) else None
        if rows is None:
            break
        levels.append(rows)
    return frozenset(made)


def _is_readable(subject: Subject, depth: int) -> bool:
    table = subject.tables[depth] if depth < len(subject.tables) else None
    if table is None:
        return False
    try:
        for _ in table.iter_batches():
            pass
    except (InvalidMetadataError, LimitExceededError, ShortReadError):
        return False
    return True


def _made(subject: Subject, above: Rows) -> ParquetTable:
    """The table of the level below `above`."""
    folders = np.flatnonzero(above.folders)
    parts, paths = [], []
    for row, piece in zip(folders.tolist(), _pieces(subject, above, folders), strict=True):
        local = read_local(subject, piece, f"{above.place(row)}: {spec.META}")
        kept = [name for name in local.column_names if not name.startswith(spec.INTERNAL)]
        parts.append(local.select(kept))
        paths.append(above.paths[row].as_py() + "/")
    where = f"level {above.depth + 1}, as local metadata has it"
    with translated(_JOINING, "columns do not go together", where=where):
        table = pa.concat_tables(parts, promote_options="default")
    for name in spec.CORE_COLUMNS:
        if name not in table.column_names:
            raise InvalidMetadataError("a column is missing", where=where, expected=name)
    counts = np.array([part.num_rows for part in parts], np.int64)
    prefixes = pa.array(np.repeat(np.array(paths, object), counts), pa.string())
    parents = folders if above.current is None else above.current[folders]
    added = {
        spec.PARENT_ID: numbers_column(np.repeat(parents, counts)),
        spec.RELATIVE_PATH: pc.binary_join_element_wise(prefixes, table[spec.ID], ""),
    }
    if subject.kind == "zip":
        # Where bytes lie is told by their entries; a table without these columns is refused.
        nothing = numbers_column(np.zeros(table.num_rows, np.int64))
        added |= {spec.OFFSET: nothing, spec.SIZE: nothing}
    for name, column in added.items():
        table = table.append_column(name, column)
    return _in_memory(subject, table, where)


def _in_memory(subject: Subject, table: Any, where: str) -> ParquetTable:
    sink = io.BytesIO()
    write_table(table, sink)
    data = sink.getvalue()
    piece = Piece(data, 0, len(data))
    plan = footer_plan(ByteRange(0, len(data), where), [piece], subject.limits)
    footer = run(plan, subject.source.fetch)
    return ParquetTable(subject.source, footer, known=[piece], limits=subject.limits)


def _pieces(subject: Subject, above: Rows, folders: Any) -> Iterator[Piece]:
    """The local metadata of some rows."""
    if subject.kind != "zip":
        for row in folders.tolist():
            findings = new_findings()
            piece = fetch_file(subject, above, row, findings)
            if piece is None:
                raise _lost(above, findings.report(subject.where, None, "repair").problems)
            yield piece
        return
    directory = subject.directory
    assert directory is not None, "without one nothing is repaired"
    payload, _ = run(local_plan(directory), subject.source.fetch)
    spans = true_spans(above, directory, payload)
    missing = folders[spans.offset[folders] < 0]
    if len(missing):
        raise _lost(
            above,
            [
                Problem("taco-meta-missing", above.place(row), "the archive has no such entry")
                for row in missing[:1000].tolist()
            ],
        )
    for start in range(0, len(folders), _FOLDERS):
        rows = folders[start : start + _FOLDERS].tolist()
        wanted = []
        for row in rows:
            subject.limits.check("table_bytes", int(spans.size[row]), above.place(row))
            size = int(directory.csize[spans.entry[row]])
            wanted.append(ByteRange(int(spans.offset[row]), size))
        for row, piece in zip(rows, subject.source.fetch(wanted), strict=True):
            entry = int(spans.entry[row])
            data = extracted(
                piece.data,
                method=int(directory.method[entry]),
                size=int(directory.size[entry]),
                crc=int(directory.crc[entry]),
                where=f"{above.place(row)}: {spec.META}",
                limits=subject.limits,
            )
            yield Piece(data, 0, len(data))


def _lost(above: Rows, problems: Sequence[Problem]) -> InvalidMetadataError:
    return InvalidMetadataError(
        "cannot be repaired: neither the table of a level nor its local metadata can be read",
        where=f"level {above.depth + 1}",
        problems=problems,
    )
