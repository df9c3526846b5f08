"""Footers as Arrow tables, as they are stored: Parquet, or the JSON of the first writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa

from comal import strictjson
from comal.errors import InvalidMetadataError, shown
from comal.limits import Limits
from comal.plan import ByteRange, Wanted, run
from comal.table import ParquetTable, footer_plan
from comal.tortilla import spec
from comal.tortilla.wire import Opened


def is_json(opened: Opened) -> bool:
    """Whether the footer is the JSON of writers before 0.0.5."""
    return opened.header.layout == "v0.0" and opened.footer.data.lstrip()[:1] == b"{"


def stored_table(
    opened: Opened, where: str, limits: Limits, columns: Sequence[str] | None = None
) -> Any:
    """The footer as it is stored, in plain Arrow types.

    Parameters
    ----------
    opened
        The file.
    where
        What messages call it.
    limits
        Caps on rows, cells and columns; checked before anything is decoded.
    columns
        Names of optional columns that are wanted beside those of the core; None for all.

    Raises
    ------
    InvalidMetadataError
        A footer that does not decode.
    LimitExceededError
        A footer over the limits.
    """
    if is_json(opened):
        return _from_json(opened, f"{where}: footer", limits)
    footer = opened.footer
    span = ByteRange(footer.offset, len(footer.data), f"{where}: footer")
    parsed = run(footer_plan(span, [footer], limits), _NoSource().fetch)
    table = ParquetTable(_NoSource(), parsed, known=[footer], limits=limits)
    names = None
    if columns is not None:
        chosen = {*spec.CORE, *columns}
        chosen |= {alias for alias, name in spec.ALIASES.items() if name in chosen}
        names = [name for name in table.column_names if name in chosen]
    return table.read(names)


class _NoSource:
    """Everything is here already."""

    def fetch(self, wanted: Sequence[Wanted]) -> NoReturn:
        raise AssertionError(f"the whole footer is known, and yet {wanted} was asked for")


def _from_json(opened: Opened, where: str, limits: Limits) -> Any:
    """``{id: [offset, length], ...}``."""
    document = strictjson.loads(opened.footer.data, where, limits)
    limits.check("table_rows", len(document), where)
    for name, span in document.items():
        if not (isinstance(span, list) and [type(value) for value in span] == [int, int]):
            raise InvalidMetadataError(
                "an item without offset and length", where=f"{where}, {shown(name)}"
            )
        if not all(0 <= value < 1 << 63 for value in span):
            raise InvalidMetadataError(
                "a span outside of the file", where=f"{where}, {shown(name)}", found=shown(span)
            )
    spans = list(document.values())
    return pa.table(
        {
            spec.ID: pa.array(list(document), pa.string()),
            spec.OFFSET: pa.array([offset for offset, _ in spans], pa.int64()),
            spec.LENGTH: pa.array([length for _, length in spans], pa.int64()),
        }
    )


def joined(tables: Sequence[Any], where: str) -> Any:
    """Tables under one another; a column that one of them lacks, or has without a type, is null.

    Raises
    ------
    InvalidMetadataError
        A column has types that do not go together.
    """
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return pa.concat_tables(tables)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidMetadataError(
            "columns of the same name have types that do not go together",
            where=where,
            found=str(error),
            hint="name the columns that are wanted by columns=[...]",
        ) from error
