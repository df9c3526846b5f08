"""Tables of users as samples: columns, payloads, parents and depth-first order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    counted,
    shown,
    translated,
)
from comal.lazy import pc
from comal.limits import DEFAULT_LIMITS
from comal.samples.payloads import Bytes, Files, Ints, Payloads, nothing
from comal.storage import StorageConfig
from comal.table.columns import check_schema, lost_type, one_array


@dataclass(frozen=True, slots=True)
class Names:
    """What a table of samples calls its columns."""

    id: str = "id"
    path: str = "path"
    parent: str = "parent"
    type: str | None = None
    base: str = ""
    """Folder that relative paths start from; empty for the working folder."""
    seen: str | None = None
    """What was seen of the files when they were listed; then paths may be URLs, too."""
    config: StorageConfig | None = None
    """Settings and credentials for URLs."""


def table_of(data: Any, where: str) -> Any:
    """An Arrow table from a table, a record batch or a frame of another library."""
    table = arrow_table(data)
    if table is None:
        raise no_table(data, where)
    return table


def arrow_table(data: Any) -> Any:
    """As `table_of`, but None for anything else."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if not hasattr(data, "__arrow_c_stream__"):
        return None
    what = f"the {type(data).__name__} cannot become an Arrow table"
    with translated(_OF_OTHERS, what, hint="give each column values of one type"):
        for name, kind in zip(
            getattr(data, "columns", ()), getattr(data, "dtypes", ()), strict=False
        ):
            if str(kind) == "Object":  # of which Polars gives addresses in memory
                raise TypeError(f"column {shown(name)} of Python objects")
        table = pa.table(data)
    for place, field in enumerate(table.schema):
        # Polars stores categories as views, from which Arrow cannot take.
        kind = field.type
        if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
            texts = table.column(place).cast(pa.dictionary(kind.index_type, pa.string()))
            table = table.set_column(place, field.name, texts)
    return table


_OF_OTHERS = {
    pa.ArrowException: InvalidInputError,
    TypeError: InvalidInputError,
    ValueError: InvalidInputError,
}


def no_table(data: Any, where: str) -> InvalidInputError:
    """The error for something that is not a table."""
    return InvalidInputError(
        f"{where} is not a table",
        found=type(data).__name__,
        expected="an Arrow table or record batch, or a frame that has __arrow_c_stream__",
    )


def refuse_twins(table: Any, what: str, where: str | None = None) -> None:
    """Refuse a table with two columns of the same name."""
    names: list[str] = table.column_names
    for name in sorted({name for name in names if names.count(name) > 1})[:1]:
        raise InvalidInputError(
            f"{what} has two columns of the same name", where=where, found=shown(name)
        )


def refuse_lost(schema: Any, where: str) -> None:
    """Refuse columns whose values would not come back from a file as they are."""
    for field in schema:
        lost = lost_type(field.type)
        if lost is not None:
            raise InvalidInputError(
                f"column {shown(field.name)} cannot be stored: not all readers have its type",
                where=where,
                found=str(lost),
                hint=_INSTEAD.get(lost.id, "give the values as numbers, texts, structs or lists"),
            )


def refuse_unread(schema: Any, where: str) -> None:
    """Refuse columns that the limits of readers do not allow, before anything is written."""
    try:
        check_schema(schema, DEFAULT_LIMITS, where)
    except (InvalidMetadataError, LimitExceededError) as error:
        raise InvalidInputError(
            f"readers would refuse the table: {error.what}",
            where=error.where,
            found=error.found,
            expected=error.expected,
            hint="use fewer columns, other names, or types that are less nested",
        ) from error


_INSTEAD = {pa.duration("s").id: "give durations as numbers, such as seconds"}


def no_column(table: Any, name: str, where: str, *, hint: str) -> InvalidInputError:
    """The error for a column that a table should have."""
    return InvalidInputError(
        f"{where} has no column {shown(name)}",
        found=", ".join(shown(one) for one in table.column_names[:20]),
        hint=hint,
    )


def payloads_in(table: Any, names: Names, where: str) -> Payloads:
    """The payloads of a table's rows: files by path or URL, or bytes; null means no payload."""
    if names.path not in table.column_names or pa.types.is_null(
        table.schema.field(names.path).type
    ):
        return nothing(table.num_rows)
    column = table.column(names.path)
    if _is_binary(column.type):
        return Bytes.of(column, f"column {names.path!r}")
    if not is_text(column.type):
        raise InvalidInputError(
            f"column {shown(names.path)} of {where} holds neither paths nor bytes",
            found=str(column.type),
            expected="string or binary",
        )
    paths = one_array(pc.cast(column, pa.string()))
    if names.seen is not None and names.seen in table.column_names:
        return payloads_seen(paths, table.column(names.seen), names.config)
    root = (names.base or str(Path.cwd())).rstrip("/") + "/"
    relative = pc.invert(pc.starts_with(paths, "/"))
    return Files(pc.if_else(relative, pc.binary_join_element_wise(root, paths, ""), paths))


def payloads_seen(paths: Any, seen: Any, config: StorageConfig | None) -> Payloads:
    """The files of paths, or with what was `seen` of each the objects of URLs, too."""
    if seen is None:
        return Files(paths)
    from comal.samples.objects import payloads_at  # noqa: PLC0415 - few lie in stores

    return payloads_at(paths, one_array(seen), config)


def parents_in(table: Any, names: Names, known: Any, where: str) -> Ints:
    """The parent of each row, which the column `Names.parent` names by row number or by text.

    `known` holds the names of the rows above, Arrow strings.
    """
    if names.parent not in table.column_names:
        raise no_column(table, names.parent, where, hint="name the column with parent=")
    column = table.column(names.parent)
    if pa.types.is_integer(column.type):
        found = pc.cast(column, pa.int64(), safe=False)
    elif is_text(column.type):
        texts = pc.utf8_rtrim(pc.cast(column, pa.string()), "/")
        counts = pc.value_counts(known)
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        if pc.any(pc.is_in(texts, value_set=twice)).as_py():
            raise InvalidInputError(
                f"{where} names a parent by an id that appears twice",
                hint="name parents by the numbers of their rows",
            )
        found = pc.index_in(texts, value_set=known)
    else:
        raise InvalidInputError(
            f"column {shown(names.parent)} of {where} does not name parents",
            found=str(column.type),
            expected="row numbers, or ids",
        )
    rows = np.asarray(pc.fill_null(found, -1).to_numpy(), np.int64)
    for row in np.flatnonzero((rows < 0) | (rows >= len(known)))[:1].tolist():
        raise InvalidInputError(
            "a sample names a parent that does not exist",
            where=f"{where}, row {row}",
            found=shown(column[row].as_py()),
            expected=f"one of {counted(len(known), 'row')} of the level above",
        )
    return rows


def depth_first(leaves: Sequence[Any], parents: Sequence[Ints]) -> list[Ints]:
    """For each row of each level, the number of leaves before it in a depth-first walk.

    `leaves` are masks; `parents` are rows of the level above, ascending (ignored for level 0).
    """
    counts = [np.asarray(mask, np.int64) for mask in leaves]
    for depth in range(len(counts) - 1, 0, -1):
        np.add.at(counts[depth - 1], parents[depth], counts[depth])
    starts: list[Ints] = []
    for depth, count in enumerate(counts):
        before: Ints = np.cumsum(count) - count
        if depth:
            eldest = np.searchsorted(parents[depth], parents[depth])
            before = before - before[eldest] + starts[-1][parents[depth]]
        starts.append(before)
    return starts


def _is_binary(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def is_text(kind: Any) -> bool:
    """Whether a type is text: any string type of Arrow, or a dictionary of one."""
    types = pa.types
    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
