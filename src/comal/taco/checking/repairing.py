"""A mended copy of a container whose bytes are sound but whose index is not.

Existing writers glue spans to the wrong rows, leave counts behind that nobody updated, or renumber
parents. All of that can be told from what is right: the names of the entries, the paths of the
rows, the local metadata. The copy is written like a new dataset; the bytes of each leaf are
compared with the checksum of its entry on the way.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.check import Findings
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    Problem,
    ShortReadError,
    translated,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Piece, run
from comal.progress import Progress, silent
from comal.samples.payloads import Payloads, Spans
from comal.storage import Source, StorageConfig, open_source, targets
from comal.storage.kinds import refuse_sources
from comal.table import ParquetTable, footer_plan, write_table
from comal.table.columns import numbers_column
from comal.taco import spec
from comal.taco.checking import tree
from comal.taco.checking.archive import EntrySpans, true_spans
from comal.taco.checking.codes import new_check
from comal.taco.checking.meta import fetch_file, read_local
from comal.taco.checking.run import open_subject
from comal.taco.checking.subject import Subject
from comal.taco.checking.tree import Rows, first_of, load
from comal.taco.copying.entries import CheckedEntries
from comal.taco.copying.foreign import check_foreign
from comal.taco.model.extent import extent_of
from comal.taco.model.levels import Level, Levels
from comal.taco.model.pit import check_pit
from comal.taco.writing.containers import Writing, computed_schemas, settings
from comal.taco.writing.creating import container_of, write_levels
from comal.ziparchive import Directory, extracted, local_plan, wire

Int64s = np.ndarray[Any, np.dtype[np.int64]]

_FATAL = frozenset(
    {
        "zip-end",
        "zip-directory",
        "taco-table",
        "taco-level-missing",
        "taco-column-missing",
        "taco-column-type",
        "taco-column-null",
        "taco-type",
        "taco-id",
        "taco-id-twice",
        "taco-folder-empty",
        "taco-collection",
        "limit-exceeded",
        "unsafe-content",
    }
)
"""What cannot be mended, because nothing tells what would be right."""
_TABLES = frozenset({"taco-table", "taco-level-missing"})
"""What may be mended out of local metadata."""


def repair(
    href: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    extent: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write a copy of a ZIP or FOLDER whose metadata is right.

    Rows, ids, types and values are those of the level tables; parents are those of the paths where
    the two disagree; spans are those of the entries of these names. A table of level 1 or deeper
    that is missing or unreadable is put together from the local metadata of the FOLDERs above it
    (6.2). Level tables, local metadata, TACO_HEADER, counts and ``taco:field_schema`` are written
    anew. The input is never changed.

    Parameters
    ----------
    href
        The container to mend.
    output
        The copy, a local path. It appears complete or not at all.
    overwrite
        Replace an existing target.
    extent
        Compute the extent from the samples, also where the stated one can be read.
    limits, config
        As for `load`.
    progress
        Told how far the copy is.

    Returns
    -------
    pathlib.Path
        The copy.

    Raises
    ------
    InvalidMetadataError
        Something that nothing else tells: the table of level 0 or the directory is unreadable, or
        a deeper table together with the local metadata that could stand in for it, a sample
        has no entry, or the bytes of one do not match their checksum, which is named. Nothing is
        left behind.
    UnsafeContentError, InvalidInputError
        An id that no container may hold; an index, which is made anew by `create_tacocat`.
    ConflictError
        The target exists, or is the input itself.
    """
    target = targets.local_path(output)
    findings = new_check()
    with open_source(href, config=config) as source:
        subject = open_subject(source, None, limits, findings)
        if subject.is_index:
            raise InvalidInputError(
                "an index is not repaired",
                where=source.href,
                hint="create_tacocat makes it anew from its ZIPs",
            )
        refuse_sources(target, source)
        container_of(target, subject.kind)
        levels = _levels(subject, findings)
        document = _document(subject, levels, fresh_extent=extent)
        how = Writing(settings({}, subject.kind), overwrite, progress or silent)
        write_levels(levels, document, target, subject.kind, how)
    return target


# -- what is right --------------------------------------------------------------------------------


def _levels(subject: Subject, findings: Findings) -> Levels:
    """The dataset with parents and payloads as they really are."""
    mended = rebuild_tables(subject) if subject.tables and subject.tables[0] else frozenset()
    loaded = [load(subject, depth, [], findings) for depth in range(len(subject.tables))]
    rows = first_of(loaded)
    tree.link(rows, findings, complete=len(rows) == len(loaded))
    _refuse(findings, subject, mended)
    if not rows or len(rows) < len(loaded):
        raise _hopeless(subject, findings.report(subject.where, None, "repair").problems)
    payloads = _payloads(subject, rows)
    levels: list[Level] = []
    renumbered: Int64s | None = None
    for depth, (level, held) in enumerate(zip(rows, payloads, strict=True)):
        table = _metadata(subject, depth)
        parent = np.arange(len(level))
        order = parent
        if depth:
            assert level.above is not None
            if (level.above < 0).any():
                row = int(np.argmin(level.above))
                message = "no row of the level above is its parent"
                raise _hopeless(subject, [Problem("taco-parent", level.place(row), message)])
            parent = level.above if renumbered is None else renumbered[level.above]
            order = np.argsort(parent, kind="stable")
        if not np.array_equal(order, np.arange(len(level))):
            table, parent, held = table.take(pa.array(order)), parent[order], held.take(order)  # noqa: PLW2901
            renumbered = np.empty(len(level), np.int64)
            renumbered[order] = np.arange(len(level))
        else:
            renumbered = None
        levels.append(Level(table, parent.astype(np.int64), held))
    found = check_foreign(tuple(levels), as_files=subject.kind == "folder")
    try:
        check_pit(found)
    except InvalidInputError as error:
        raise InvalidMetadataError(
            "the samples differ in structure, which no repair can mend",
            where=subject.where,
            found=error.found,
            hint="export the samples that are alike",
        ) from error
    return found


def _metadata(subject: Subject, depth: int) -> Any:
    table = subject.tables[depth]
    assert table is not None
    fields = [name for name in table.column_names if not name.startswith(spec.INTERNAL)]
    first = [name for name in spec.CORE_COLUMNS if name in fields]
    return table.read([*first, *(name for name in fields if name not in first)])


def _refuse(findings: Findings, subject: Subject, mended: frozenset[str]) -> None:
    report = findings.report(subject.where, None, "repair")
    fatal = [
        problem
        for problem in report.problems
        if problem.code in _FATAL
        and not (problem.code in _TABLES and problem.place.partition(":")[0] in mended)
    ]
    if fatal:
        raise _hopeless(subject, fatal)


def _hopeless(subject: Subject, problems: Sequence[Problem]) -> InvalidMetadataError:
    return InvalidMetadataError("cannot be repaired", where=subject.where, problems=problems)


def _document(subject: Subject, levels: Levels, *, fresh_extent: bool) -> dict[str, Any]:
    if subject.collection is None:
        problem = Problem("taco-collection", spec.COLLECTION, "there is none")
        raise _hopeless(subject, [problem])
    document = dict(subject.collection)
    if not spec.version_is_readable(document.get("taco_version")):
        document["taco_version"] = spec.TACO_VERSION
    stated = document.get("extent")
    broken = stated is not None and bool(spec.extent_problems(stated, where="extent"))
    if fresh_extent or broken:
        document["extent"] = extent_of(levels)
    computed = computed_schemas(levels, spans=subject.kind == "zip")
    described = _described(computed[spec.FIELD_SCHEMA], document.get(spec.FIELD_SCHEMA))
    return {**document, **computed, spec.FIELD_SCHEMA: described}


def _described(fresh: dict[str, list[list[str]]], stated: Any) -> dict[str, list[list[str]]]:
    """The new field schema with the descriptions that the old one had."""
    if not isinstance(stated, dict):
        return fresh
    for level, fields in fresh.items():
        old = stated.get(level)
        texts = {
            entry[0]: entry[2]
            for entry in (old if isinstance(old, list) else [])
            if isinstance(entry, list)
            and len(entry) == 3
            and all(isinstance(text, str) for text in entry)
        }
        for entry in fields:
            entry[2] = texts.get(entry[0]) or entry[2]
    return fresh


# -- payloads -------------------------------------------------------------------------------------


def _payloads(subject: Subject, rows: Sequence[Rows]) -> list[Payloads]:
    if subject.kind == "folder":
        return [_files(subject.source, level) for level in rows]
    directory = subject.directory
    assert directory is not None
    payload, problems = run(local_plan(directory), subject.source.fetch)
    del problems  # the entries whose bytes are needed are judged one by one below
    found: list[Payloads] = []
    missing: list[Problem] = []
    for level in rows:
        spans = true_spans(level, directory, payload)
        needed = ~level.folders & ~(level.padding & (spans.entry < 0))
        wrong = needed & ((spans.entry < 0) | (spans.offset < 0))
        wrong |= needed & (directory.flags[spans.entry] & wire.FLAG_ENCRYPTED != 0)
        missing += [
            Problem("taco-entry-missing", level.place(row), "the archive has no readable entry")
            for row in np.flatnonzero(wrong)[:1000].tolist()
        ]
        found.append(_entries(subject, level, directory, spans, needed & ~wrong))
    if missing:
        raise _hopeless(subject, missing)
    return found


def _files(source: Source, level: Rows) -> Payloads:
    sizes = np.zeros(len(level), np.int64)
    paths = []
    for row, path in enumerate(level.paths.to_pylist()):
        href = spec.DATA + path
        paths.append(href)
        if not level.folders[row]:
            sizes[row] = source.stat(href).size
    none = np.zeros(len(level), np.int64)
    return Spans([source], none, none, sizes, pa.array(paths, pa.string()))


def _entries(
    subject: Subject, level: Rows, directory: Directory, spans: EntrySpans, needed: Any
) -> Payloads:
    entry = np.where(needed, spans.entry, 0)
    return CheckedEntries(
        source=subject.source,
        offset=np.where(needed, spans.offset, 0),
        stored=np.where(needed, directory.csize[entry], 0),
        size=np.where(needed, directory.size[entry], 0),
        crc=np.where(needed, directory.crc[entry], 0).astype(np.int64),
        method=np.where(needed, directory.method[entry], wire.STORE).astype(np.int64),
        paths=level.paths,
        limits=subject.limits,
    )


# -- levels that are rebuilt -----------------------------------------------------------------------


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
    findings = new_check()  # what is wrong beside it is judged when all tables are there
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
            findings = new_check()
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
