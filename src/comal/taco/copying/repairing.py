"""A repaired copy of a container whose bytes are sound but whose metadata is not.

Existing writers assign spans to the wrong rows, leave stale counts, or renumber parents. All of
that can be restored from what is right: the names of the entries, the paths of the rows, the local
metadata. The copy is written like a new dataset; the bytes of each leaf are compared with the
checksum of its entry while they are copied.
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

from comal.check import Check
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    Problem,
    ShortReadError,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import Piece, run
from comal.progress import Progress
from comal.samples.payloads import Payloads, Spans
from comal.storage import Source, StorageConfig, open_source, targets
from comal.storage.targets import refuse_sources
from comal.table import ParquetTable, write_table
from comal.table.columns import combining, numbers_column
from comal.taco import spec
from comal.taco.checking import tree
from comal.taco.checking.archive import EntrySpans, true_spans
from comal.taco.checking.codes import new_check
from comal.taco.checking.comparing import fetch_file, read_local, table_of
from comal.taco.checking.subject import Subject, open_subject
from comal.taco.checking.tree import Int64s, Rows, first_of, load
from comal.taco.columns import normal_table
from comal.taco.copying.entries import CheckedEntries
from comal.taco.copying.foreign import check_foreign
from comal.taco.copying.gather import field_texts
from comal.taco.model.collection import extent_of
from comal.taco.model.levels import Level, Levels, check_pit
from comal.taco.reading.container import read_collected
from comal.taco.writing.containers import Writing, computed_schemas, settings
from comal.taco.writing.creating import container_of, write_levels
from comal.ziparchive import Directory, local_plan, wire

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
"""Problems that cannot be repaired, as the right value is unknown."""
_TABLES = frozenset({"taco-table", "taco-level-missing"})
"""Problems that may be repaired from local metadata."""
_FOLDERS = 256
"""Number of FOLDERs whose local metadata is fetched at once."""


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
    """Write a copy of a ZIP or FOLDER with right metadata.

    Rows, ids, types and values are those of the level tables; if parent ids and paths disagree,
    the paths are used; spans are those of the entries with these names. A table of level 1 or
    deeper that is missing or unreadable is rebuilt from the local metadata of the FOLDERs above it
    (6.2). Level tables, local metadata, TACO_HEADER, counts and ``taco:field_schema`` are written
    again. The input is never changed.

    Parameters
    ----------
    href
        The container to repair.
    output
        The copy. It appears complete or not at all.
    overwrite
        Replace an existing target.
    extent
        Compute the extent from the samples, even if the stated one is valid.
    limits, config
        As for `load`.
    progress
        Called with the progress of the copy.

    Returns
    -------
    pathlib.Path
        The copy.

    Raises
    ------
    InvalidMetadataError
        The fault cannot be repaired: the table of level 0 or the directory is unreadable, or a
        deeper table as well as the local metadata that could replace it; a sample has no entry, or
        its bytes do not match their checksum (the error names it). Nothing is left behind.
    UnsafeContentError, InvalidInputError
        An id that no container may hold; an index or a collection over several datasets (create it
        again by `create_tacocat` or `create_tacollection`).
    ConflictError
        The target exists, or is the input itself.
    """
    target = targets.target_path(output, config)
    findings = new_check(limits=limits)
    with open_source(href, config=config) as source:
        subject = _opened(source, findings)
        refuse_sources(target, source)
        container_of(target, subject.kind)
        levels = _Repair(subject, findings).levels()
        document = _document(subject, levels, fresh_extent=extent)
        how = Writing(settings({}, subject.kind), overwrite, progress)
        write_levels(levels, document, target, subject.kind, how)
    return target


def _opened(source: Source, findings: Check) -> Subject:
    """The container; raises for an index or a collection over others."""
    try:
        subject = open_subject(source, None, findings)
    except NotThisFormatError:
        if source.stat().is_dir or read_collected(source, None, findings.limits) is None:
            raise
        raise InvalidInputError(
            f"a {spec.TACOLLECTION} holds no data to repair",
            where=source.href,
            hint="write the file again with 'comal taco tacollection'",
        ) from None
    if subject.is_index:
        raise InvalidInputError(
            "an index cannot be repaired",
            where=source.href,
            hint="create_tacocat writes the index again from its ZIPs",
        )
    return subject


class _Repair:
    """Restores the levels of a container from its sound content."""

    def __init__(self, subject: Subject, findings: Check) -> None:
        self._subject = subject
        self._findings = findings
        self._limits = findings.limits
        self._payload_offsets: Int64s | None = None

    def levels(self) -> Levels:
        """The dataset with right parents and payloads."""
        subject, findings = self._subject, self._findings
        if subject.kind == "zip" and subject.directory is None:
            raise _hopeless(subject, findings.problems)
        mended = self._rebuild_tables() if subject.tables and subject.tables[0] else frozenset()
        loaded = [load(subject, depth, [], findings) for depth in range(len(subject.tables))]
        rows = first_of(loaded)
        tree.link(rows, findings, complete=len(rows) == len(loaded))
        problems = findings.problems
        fatal = [problem for problem in problems if _is_fatal(problem, mended)]
        if fatal or not rows or len(rows) < len(loaded):
            raise _hopeless(subject, fatal or problems)
        levels = self._ordered(rows, self._payloads(rows))
        found = check_foreign(levels, as_files=subject.kind == "folder")
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

    def _ordered(self, rows: Sequence[Rows], payloads: Sequence[Payloads]) -> Levels:
        """The levels with rows sorted by parent."""
        levels: list[Level] = []
        moved: Int64s = np.arange(0)
        for depth, (level, held) in enumerate(zip(rows, payloads, strict=True)):
            table, parent = self._metadata(depth), np.arange(len(level))
            if depth:
                assert level.above is not None
                for row in np.flatnonzero(level.above < 0)[:1].tolist():
                    message = "no row of the level above is the parent of this row"
                    problem = Problem("taco-parent", level.place(row), message)
                    raise _hopeless(self._subject, [problem])
                parent = moved[level.above]
            order = np.argsort(parent, kind="stable")
            if not np.array_equal(order, np.arange(len(level))):
                table, parent, held = table.take(pa.array(order)), parent[order], held.take(order)  # noqa: PLW2901
            moved = np.empty(len(level), np.int64)
            moved[order] = np.arange(len(level))
            levels.append(Level(table, parent.astype(np.int64), held))
        return tuple(levels)

    def _metadata(self, depth: int) -> Any:
        table = self._subject.tables[depth]
        assert table is not None
        fields = [name for name in table.column_names if not name.startswith(spec.INTERNAL)]
        first = [name for name in spec.CORE_COLUMNS if name in fields]
        found = table.read([*first, *(name for name in fields if name not in first)])
        return normal_table(found, f"level {depth}")

    # -- payloads ----------------------------------------------------------------------------------

    def _payloads(self, rows: Sequence[Rows]) -> list[Payloads]:
        if self._subject.kind == "folder":
            return [_files(self._subject.source, level) for level in rows]
        missing: list[Problem] = []
        found = [self._entries(level, missing) for level in rows]
        if missing:
            raise _hopeless(self._subject, missing)
        return found

    def _spans(self, level: Rows) -> tuple[Directory, EntrySpans]:
        directory = self._subject.directory
        assert directory is not None, "without one nothing is repaired"
        if self._payload_offsets is None:
            # Faults of entries are reported later, for entries whose bytes are needed.
            plan = local_plan(directory)
            self._payload_offsets, _ = run(plan, self._subject.source.fetch)
        return directory, true_spans(level, directory, self._payload_offsets)

    def _entries(self, level: Rows, missing: list[Problem], *, folders: bool = False) -> Any:
        """The bytes of samples, or the local metadata of FOLDERs."""
        directory, spans = self._spans(level)
        needed = level.folders == folders
        needed &= ~(level.padding & (spans.entry < 0))
        wrong = needed & ((spans.entry < 0) | (spans.offset < 0))
        wrong |= needed & (directory.flags[spans.entry] & wire.FLAG_ENCRYPTED != 0)
        code, what = "taco-entry-missing", "readable entry"
        if folders:
            code, what = "taco-meta-missing", spec.META
        missing += [
            Problem(code, level.place(row), f"the archive has no {what} for this row")
            for row in np.flatnonzero(wrong)[:1000].tolist()
        ]
        needed &= ~wrong
        entry = np.where(needed, spans.entry, 0)
        return CheckedEntries(
            [self._subject.source],
            np.zeros(len(level), np.int64),
            np.where(needed, spans.offset, 0),
            np.where(needed, directory.csize[entry], 0),
            size=np.where(needed, directory.size[entry], 0),
            crc=np.where(needed, directory.crc[entry], 0).astype(np.int64),
            method=np.where(needed, directory.method[entry], wire.STORE).astype(np.int64),
            names=level.paths,
            limits=self._limits,
        )

    # -- rebuilding tables -------------------------------------------------------------------------

    def _rebuild_tables(self) -> frozenset[str]:
        """Replace missing or unreadable tables by tables built from local metadata.

        The table of level 0 has no copy and is left unchanged. Returns the places that findings
        have for the rebuilt tables.
        """
        subject = self._subject
        findings = new_check(limits=self._limits)  # other problems are reported at the end
        levels: list[Rows] = []
        made: list[str] = []
        while (depth := len(levels)) < spec.MAX_LEVELS:
            if depth and not _is_readable(subject, depth):
                if not levels[-1].folders.any():
                    break
                tree.link(levels, findings, complete=False)
                table = self._table_below(levels[-1])
                subject.tables[depth:] = [table, *subject.tables[depth + 1 :]]
                made += [f"level {depth}", f"METADATA/level{depth}.parquet"]
            rows = load(subject, depth, [], findings) if depth < len(subject.tables) else None
            if rows is None:
                break
            levels.append(rows)
        return frozenset(made)

    def _table_below(self, above: Rows) -> ParquetTable:
        folders = np.flatnonzero(above.folders)
        parts, paths = [], []
        for row, piece in zip(folders.tolist(), self._pieces(above, folders), strict=True):
            place = f"{above.place(row)}: {spec.META}"
            local = read_local(self._subject, piece, place, self._findings)
            kept = [name for name in local.column_names if not name.startswith(spec.INTERNAL)]
            parts.append(local.select(kept))
            paths.append(above.paths[row].as_py() + "/")
        where = f"level {above.depth + 1}, as local metadata has it"
        with combining(InvalidMetadataError, where):
            table = pa.concat_tables(parts, promote_options="default")
        for name in spec.CORE_COLUMNS:
            if name not in table.column_names:
                raise InvalidMetadataError(
                    "a mandatory column is missing", where=where, expected=name
                )
        counts = np.array([part.num_rows for part in parts], np.int64)
        prefixes = pa.array(np.repeat(np.array(paths, object), counts), pa.string())
        parents = folders if above.current is None else above.current[folders]
        added = {
            spec.PARENT_ID: numbers_column(np.repeat(parents, counts)),
            spec.RELATIVE_PATH: pc.binary_join_element_wise(prefixes, table[spec.ID], ""),
        }
        if self._subject.kind == "zip":
            # The entries give the real spans, but a table without these columns is refused.
            nothing = numbers_column(np.zeros(table.num_rows, np.int64))
            added |= {spec.OFFSET: nothing, spec.SIZE: nothing}
        for name, column in added.items():
            table = table.append_column(name, column)
        sink = io.BytesIO()
        write_table(table, sink)
        piece = Piece(sink.getvalue(), 0, sink.tell())
        return table_of(self._subject, piece, where, self._findings)

    def _pieces(self, above: Rows, folders: Int64s) -> Iterator[Piece]:
        """The local metadata of some rows."""
        subject, limits = self._subject, self._limits
        if subject.kind != "zip":
            for row in folders.tolist():
                findings = new_check(limits=limits)
                piece = fetch_file(subject, above, row, findings)
                if piece is None:
                    raise _lost(above, findings.problems)
                yield piece
            return
        missing: list[Problem] = []
        entries = self._entries(above, missing, folders=True)
        if missing:
            raise _lost(above, missing)
        for row in folders.tolist():
            limits.check("table_bytes", int(entries.size[row]), above.place(row))
        for start in range(0, len(folders), _FOLDERS):
            rows = folders[start : start + _FOLDERS]
            for data in entries.block(rows, entries.size[rows]).to_pylist():
                yield Piece(data, 0, len(data))


def _is_fatal(problem: Problem, mended: frozenset[str]) -> bool:
    rebuilt = problem.code in _TABLES and problem.place.partition(":")[0] in mended
    return problem.code in _FATAL and not rebuilt


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


def _files(source: Source, level: Rows) -> Payloads:
    hrefs = [spec.DATA + path for path in level.paths.to_pylist()]
    sizes = np.zeros(len(level), np.int64)
    for row in np.flatnonzero(~level.folders).tolist():
        sizes[row] = source.stat(hrefs[row]).size
    none = np.zeros(len(level), np.int64)
    return Spans([source], none, none, sizes, pa.array(hrefs, pa.string()))


def _hopeless(subject: Subject, problems: Sequence[Problem]) -> InvalidMetadataError:
    return InvalidMetadataError(
        "the archive cannot be repaired", where=subject.where, problems=problems
    )


def _lost(above: Rows, problems: Sequence[Problem]) -> InvalidMetadataError:
    return InvalidMetadataError(
        "the archive cannot be repaired: neither the table of a level nor its local metadata "
        "can be read",
        where=f"level {above.depth + 1}",
        problems=problems,
    )


# -- the collection --------------------------------------------------------------------------------


def _document(subject: Subject, levels: Levels, *, fresh_extent: bool) -> dict[str, Any]:
    if subject.collection is None:
        problem = Problem("taco-collection", spec.COLLECTION, "the collection is missing")
        raise _hopeless(subject, [problem])
    document = dict(subject.collection)
    if not spec.version_is_readable(document.get("taco_version")):
        document["taco_version"] = spec.TACO_VERSION
    stated = document.get("extent")
    broken = stated is not None and bool(spec.extent_problems(stated, where="extent"))
    if fresh_extent or broken:
        document["extent"] = extent_of(level.table for level in levels)
    computed = computed_schemas(levels, spans=subject.kind == "zip")
    for depth, columns in enumerate(computed[spec.FIELD_SCHEMA].values()):
        texts = field_texts(document, depth)
        for column in columns:
            column[2] = texts.get(column[0]) or column[2]
    return document | computed
