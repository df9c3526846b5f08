"""Rows of level tables on their way into TACOCAT: same columns, right spans, named source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, InvalidMetadataError, shown, translated
from comal.plan import run
from comal.table import ParquetTable
from comal.taco import spec
from comal.taco.model.columns import normal, normal_type
from comal.taco.model.levels import flat
from comal.taco.verbosity import LOGGER
from comal.taco.warning import TacoWarning
from comal.taco.writing.merge import Member, fields_of
from comal.ziparchive import Directory, directory_plan

_BATCH_ROWS = 65_536
_LOCAL_HEADER = 30
_INTERNAL = {
    spec.CURRENT_ID: pa.int64(),
    spec.PARENT_ID: pa.int64(),
    spec.OFFSET: pa.int64(),
    spec.SIZE: pa.int64(),
    spec.RELATIVE_PATH: pa.string(),
    spec.SOURCE_FILE: pa.string(),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of one level of TACOCAT: id, type, and all others sorted by name."""

    schema: Any


def cat_columns(members: Sequence[Member], level: int, *, validate: bool) -> Columns:
    """The columns of one level of all archives.

    Raises
    ------
    InvalidInputError
        A field that has two types, unless one archive has no value in it.
    """
    del validate  # what differs has been refused before, or becomes null here
    fields: dict[str, Any] = {}
    for member in members:
        _check_core(member.schema(level), f"{shown(member.name)}, level {level}")
        for name, kind in fields_of(member.schema(level)).items():
            known = fields.setdefault(name, kind)
            if pa.types.is_null(known):
                fields[name] = kind
            elif not known.equals(kind) and not pa.types.is_null(kind):
                raise InvalidInputError(
                    f"field {shown(name)} of level {level} has two types",
                    where=shown(member.name),
                    found=spec.type_name(kind),
                    expected=spec.type_name(known),
                )
    fields = {**fields, **_INTERNAL}
    others = sorted(name for name in fields if name not in spec.CORE_COLUMNS)
    names = [*spec.CORE_COLUMNS, *others]
    kinds = {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in fields.items()}
    return Columns(pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in names]))


def _check_core(schema: Any, where: str) -> None:
    """Refuse columns of the format's own that hold something else (TACO 2.0, 5.5)."""
    for name in {spec.ID, spec.TYPE} - set(schema.names):
        raise InvalidMetadataError("a level lacks a column", where=where, expected=f"column {name}")
    for name, kind in [(spec.ID, pa.string()), (spec.TYPE, pa.string()), *_INTERNAL.items()]:
        found = schema.field(name).type if name in schema.names else kind
        fits = (
            spec.type_name(found) == "string"
            if pa.types.is_string(kind)
            else pa.types.is_integer(found)
        )
        if not fits:
            raise InvalidMetadataError(
                f"column {name} has a wrong type", where=where, found=str(found)
            )


def cat_rows(member: Member, level: int, columns: Columns) -> Iterator[Any]:
    """The rows of one level of one archive, in batches."""
    stored = ParquetTable(member.source, member.opened.footers[level])
    wanted = [
        name
        for name in stored.column_names
        if name in columns.schema.names and name != spec.SOURCE_FILE
    ]
    directory = run(directory_plan(known=member.opened.pieces), member.source.fetch)
    first = 0
    for batch in stored.iter_batches(columns=wanted, rows=_BATCH_ROWS):
        rows = {
            name: normal(flat(column))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        count = batch.num_rows
        numbers = pa.array(np.arange(first, first + count, dtype=np.int64))
        rows.setdefault(spec.CURRENT_ID, numbers)
        if level == 0:
            rows.setdefault(spec.PARENT_ID, numbers)
            rows.setdefault(spec.RELATIVE_PATH, _root_paths(rows))
        rows[spec.SOURCE_FILE] = pa.array([member.name] * count, pa.string())
        _mend_spans(rows, directory, member, level)
        with translated(
            {pa.ArrowInvalid: InvalidMetadataError},
            "a value that its column cannot hold",
            where=f"level {level} of {shown(member.name)}",
        ):
            cast = [_as(rows.get(field.name), field.type, count) for field in columns.schema]
        yield pa.record_batch(cast, schema=columns.schema)
        first += count


def _as(column: Any, kind: Any, count: int) -> Any:
    if column is None:
        return pa.nulls(count, kind)
    return column if column.type.equals(kind) else column.cast(normal_type(kind))


def _root_paths(rows: dict[str, Any]) -> Any:
    slashed = pc.binary_join_element_wise(rows[spec.ID], "/", "")
    return pc.if_else(pc.equal(rows[spec.TYPE], spec.FOLDER), slashed, rows[spec.ID])


def _mend_spans(rows: dict[str, Any], directory: Directory, member: Member, level: int) -> None:
    """Take spans from the directory of the archive where the row has another entry's.

    Other writers attach spans to the rows of nested levels in another order than that of the
    rows when folder ids are not sorted (s2, s10); the directory is always right.
    """
    needed = (spec.RELATIVE_PATH, spec.OFFSET, spec.SIZE)
    if any(name not in rows or rows[name].null_count for name in needed):
        return
    path = pc.utf8_rtrim(rows[spec.RELATIVE_PATH], "/")
    folder = pc.equal(rows[spec.TYPE], spec.FOLDER)
    path = pc.if_else(folder, pc.binary_join_element_wise(path, spec.META, "/"), path)
    entry = directory.find_many(pc.binary_join_element_wise(spec.DATA, path, ""))
    directory.warn_of_twins(entry, TacoWarning)
    offset = spec.int64s(rows[spec.OFFSET])
    size = spec.int64s(rows[spec.SIZE])
    # A payload lies behind its own header and before the next one; only the extra field between
    # header and payload is not known from the directory.
    order = np.argsort(directory.header_offset)
    following = np.empty(len(directory), np.int64)
    following[order] = np.r_[directory.header_offset[order][1:], directory.start]
    least = directory.header_offset[entry] + _LOCAL_HEADER + directory.name_size[entry]
    right = (
        (offset >= least) & (offset + size <= following[entry]) & (size == directory.size[entry])
    )
    wrong = (entry >= 0) & ~right
    if wrong.any():
        LOGGER.warning(
            "%s: level %d has %d rows with spans of other samples; the directory is used",
            member.name,
            level,
            int(wrong.sum()),
        )
        rows[spec.OFFSET] = pa.array(np.where(wrong, directory.payload_offsets[entry], offset))
        rows[spec.SIZE] = pa.array(np.where(wrong, directory.size[entry], size))
