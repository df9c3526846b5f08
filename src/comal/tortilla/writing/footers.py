"""Footers: Parquet with nothing in it that no reader needs."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from comal.errors import InvalidMetadataError, counted
from comal.plan import ByteRange, Head, run
from comal.samples.payloads import Ints
from comal.storage import Source
from comal.table import ParquetSettings, ParquetTable, Writer, footer_plan, write_table
from comal.table.columns import numbers_of
from comal.tortilla import spec, wire

_FEW = 256
"""Below this many rows dictionaries make a footer larger, and slower to write."""

SETTINGS = ParquetSettings(
    level=9,
    content_defined_chunking=False,
    statistics=False,
    arrow_schema=False,
    encodings=(
        (spec.ID, "DELTA_BYTE_ARRAY"),
        (spec.OFFSET, "DELTA_BINARY_PACKED"),
        (spec.LENGTH, "DELTA_BINARY_PACKED"),
    ),
)
"""Neighbours differ little in those columns: a fiftieth of the bytes of a dictionary. Arrow's own
copy of the schema and statistics of a single row group are more than half of a small footer."""
_SMALL = replace(SETTINGS, level=3, dictionary=False, encodings=())

_ALIASES = {name: alias for alias, name in spec.ALIASES.items()}


def settings(rows: int, chosen: Mapping[str, Any]) -> ParquetSettings:
    """How a footer of so many rows is written.

    Parameters
    ----------
    rows
        Rows of the table.
    chosen
        Keywords of the caller, as `ParquetSettings.from_kwargs` takes them.
    """
    base = _SMALL if rows <= _FEW else SETTINGS
    # Statistics help where a reader can leave out row groups, and nowhere else.
    base = replace(base, statistics=rows > base.row_group_size)
    if not chosen:
        return base
    given = ParquetSettings.from_kwargs(**chosen)
    keys = {"level" if key == "compression_level" else key for key in chosen}
    if "compression" in keys:
        keys.add("level")
    return replace(base, **{key: getattr(given, key) for key in keys})


def written_names(schema: Any, *, aliases: bool) -> Any:
    """The schema with the names of published writers (``rai:ele``) where they are wanted."""
    if not aliases:
        return schema
    return pa.schema([field.with_name(_ALIASES.get(field.name, field.name)) for field in schema])


def write_footer(
    file: BinaryIO,
    tables: Iterable[Any],
    schema: Any,
    how: ParquetSettings,
    key_values: Mapping[str, str] | None = None,
) -> None:
    """Write the footer of a file, table by table; columns are taken by position."""
    writer = Writer(file, schema, how)
    for table in tables:
        writer.write(table.rename_columns(schema.names))
    writer.close(key_values)


def nested_footer(table: Any, *, aliases: bool = False) -> bytes:
    """The footer of a nested file, of a few rows most times; `aliases` as for `written_names`."""
    sink = io.BytesIO()
    if aliases:
        table = table.rename_columns(written_names(table.schema, aliases=True).names)
    write_table(table, sink, settings(table.num_rows, {}))
    return sink.getvalue()


def check_written(
    source: Source, header: wire.Header, ids: Iterable[Any], offsets: Ints, lengths: Ints
) -> None:
    """Refuse a file whose header or footer says another thing than what was written.

    Parameters
    ----------
    source
        The file under its temporary name.
    header
        What its header should be.
    ids, offsets, lengths
        As for `check_footer`.

    Raises
    ------
    InvalidMetadataError
        They disagree; the file must not be published.
    """
    (head,) = source.fetch([Head(wire.HEADER_SIZE)])
    found = wire.parse_header(head.data, head.total, source.href)
    if found != header:
        raise _broken("header", found, header)
    check_footer(source, header.footer, ids, offsets, lengths)


def check_footer(
    source: Source, span: ByteRange, ids: Iterable[Any], offsets: Ints, lengths: Ints
) -> None:
    """Refuse a footer that says another thing than what was written.

    Parameters
    ----------
    source
        The file.
    span
        Where the footer lies.
    ids
        Arrow arrays of the ids of all rows.
    offsets, lengths
        Spans of all rows.

    Raises
    ------
    InvalidMetadataError
        They disagree.
    """
    table = ParquetTable(source, run(footer_plan(span), source.fetch))
    if table.num_rows != len(offsets):
        raise _broken("footer", counted(table.num_rows, "row"), len(offsets))
    row = 0
    waiting = iter(ids)
    held: Any = pa.nulls(0, pa.string())
    for batch in table.iter_batches([spec.ID, spec.OFFSET, spec.LENGTH]):
        rows = slice(row, row + len(batch))
        while len(held) < len(batch):
            held = pa.concat_arrays([held, next(waiting)])
        for name, wanted in ((spec.OFFSET, offsets[rows]), (spec.LENGTH, lengths[rows])):
            if batch[name].null_count or not np.array_equal(numbers_of(batch[name]), wanted):
                raise _broken(name, "another value", f"rows {rows.start} to {rows.stop}")
        if not batch[spec.ID].equals(held.slice(0, len(batch))):
            raise _broken(spec.ID, "another id", f"rows {rows.start} to {rows.stop}")
        held = held.slice(len(batch))
        row = rows.stop


def _broken(what: str, found: object, expected: object) -> InvalidMetadataError:
    return InvalidMetadataError(
        "written file does not match its rows",
        where=what,
        found=found,
        expected=expected,
        hint="this is a fault of comal; nothing was published, please report it",
    )
