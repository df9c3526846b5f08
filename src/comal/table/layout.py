"""Where the column chunks of a Parquet file lie, from its footer.

Field numbers are those of ``parquet.thrift`` (Apache Parquet format 2.x).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidMetadataError, shown, translated
from comal.table.thrift import BINARY, I16, I32, I64, LIST, STRUCT, CompactReader

_INTEGERS = frozenset({I16, I32, I64})
_MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Row groups and column chunks. Arrays of chunks have shape (row groups, leaf columns)."""

    leaves: dict[str, range]
    """The leaf columns of each top-level column."""
    rows: npt.NDArray[np.int64]
    """Rows of each row group."""
    start: npt.NDArray[np.int64]
    """Offset of each chunk in the file."""
    size: npt.NDArray[np.int64]
    """Stored bytes of each chunk."""
    values: npt.NDArray[np.int64]
    """Values of each chunk, nulls included."""
    width: npt.NDArray[np.int64]
    """Decoded bytes of a value of each leaf column, shape (leaf columns,); 0 for byte arrays."""


def read_layout(footer: bytes, data_size: int, where: str) -> Layout:
    """Read and check the layout.

    Parameters
    ----------
    footer
        The file's metadata in the Thrift compact protocol.
    data_size
        Bytes of the file in front of the footer.
    where
        What an error calls the file.

    Raises
    ------
    InvalidMetadataError
        A broken footer, rows that do not add up, or a chunk that reaches out of the file.
    """
    with translated({IndexError: InvalidMetadataError}, "Parquet footer is broken", where=where):
        rows, leaves, groups = _file(CompactReader(footer), where)
    names, widths = _tree(leaves, where)
    count = len(widths)
    wrong = next((row for row, (_, chunks) in enumerate(groups) if len(chunks) != count), None)
    if wrong is not None:
        raise InvalidMetadataError(
            "row group has another number of columns than the schema",
            where=f"{where}, row group {wrong}",
            found=len(groups[wrong][1]),
            expected=count,
        )
    chunks = np.array([chunks for _, chunks in groups], np.int64).reshape(len(groups), count, 3)
    layout = Layout(
        names,
        np.array([group for group, _ in groups], np.int64),
        chunks[:, :, 0],
        chunks[:, :, 1],
        chunks[:, :, 2],
        np.array(widths, np.int64),
    )
    _check(layout, rows, data_size, where)
    return layout


_Group = tuple[int, list[tuple[int, int, int]]]
_Element = tuple[str, int, int]
"""Name, number of children, and for a leaf the width of its values."""
_BYTE_ARRAY, _FIXED_LEN_BYTE_ARRAY = 6, 7
_WIDEST_NUMBER = 16


def _file(reader: CompactReader, where: str) -> tuple[int, list[_Element], list[_Group]]:
    """FileMetaData: 2 schema, 3 num_rows, 4 row_groups."""
    rows: int | None = None
    schema: list[_Element] = []
    groups: list[_Group] = []
    for number, kind in reader.fields():
        if number == 2 and kind == LIST:
            schema = [_element(reader, where) for _ in range(_structs(reader, where))]
        elif number == 3 and kind in _INTEGERS:
            rows = reader.integer()
        elif number == 4 and kind == LIST:
            groups = [_group(reader, where) for _ in range(_structs(reader, where))]
        else:
            reader.skip(kind)
    if rows is None or not schema:
        raise InvalidMetadataError("Parquet footer holds no schema or no row count", where=where)
    return rows, schema, groups


def _structs(reader: CompactReader, where: str) -> int:
    kind, size = reader.items()
    if kind != STRUCT and size:
        raise InvalidMetadataError("Parquet footer is broken", where=where, found="list of others")
    return size


def _element(reader: CompactReader, where: str) -> _Element:
    """SchemaElement: 1 type, 2 type_length, 4 name, 5 num_children."""
    name = ""
    numbers = {1: -1, 2: 0, 5: 0}
    for number, kind in reader.fields():
        if number == 4 and kind == BINARY:
            name = reader.binary().decode("utf-8", "replace")
        elif number in numbers and kind in _INTEGERS:
            numbers[number] = reader.integer()
        else:
            reader.skip(kind)
    width = _WIDEST_NUMBER
    if numbers[1] == _BYTE_ARRAY:
        width = 0
    elif numbers[1] == _FIXED_LEN_BYTE_ARRAY:
        width = _bounded(numbers[2], where)
    return name, numbers[5], width


def _group(reader: CompactReader, where: str) -> _Group:
    """RowGroup: 1 columns, 3 num_rows."""
    rows = -1
    chunks: list[tuple[int, int, int]] = []
    for number, kind in reader.fields():
        if number == 1 and kind == LIST:
            chunks = [_chunk(reader, where) for _ in range(_structs(reader, where))]
        elif number == 3 and kind in _INTEGERS:
            rows = reader.integer()
        else:
            reader.skip(kind)
    return _bounded(rows, where), chunks


def _chunk(reader: CompactReader, where: str) -> tuple[int, int, int]:
    """ColumnChunk: 1 file_path, 3 meta_data."""
    found = None
    for number, kind in reader.fields():
        if number == 1 and kind == BINARY and reader.binary():
            raise InvalidMetadataError("column chunk lies in another file", where=where)
        if number == 3 and kind == STRUCT:
            found = _chunk_metadata(reader, where)
        elif number != 1:
            reader.skip(kind)
    if found is None:
        raise InvalidMetadataError(
            "column chunk without metadata", where=where, hint="encrypted columns are not read"
        )
    return found


def _chunk_metadata(reader: CompactReader, where: str) -> tuple[int, int, int]:
    """ColumnMetaData: 5 values, 7 compressed size, 9 data and 11 dictionary page offset."""
    values, size, data, dictionary = -1, -1, -1, 0
    for number, kind in reader.fields():
        if kind != I64:
            reader.skip(kind)
        elif number == 5:
            values = reader.integer()
        elif number == 7:
            size = reader.integer()
        elif number == 9:
            data = reader.integer()
        elif number == 11:
            dictionary = reader.integer()
        else:
            reader.skip(kind)
    # Some writers put 0 where there is no dictionary.
    start = min(data, dictionary) if dictionary > 0 else data
    return _bounded(start, where), _bounded(size, where), _bounded(values, where)


def _bounded(value: int, where: str) -> int:
    if not 0 <= value <= _MAX_OFFSET:
        raise InvalidMetadataError(
            "Parquet footer holds an impossible number", where=where, found=value
        )
    return value


def _tree(schema: list[_Element], where: str) -> tuple[dict[str, range], list[int]]:
    """The leaves below each child of the root, and their widths; elements stand depth-first."""
    names: dict[str, range] = {}
    widths: list[int] = []
    position = 1
    for _ in range(schema[0][1]):
        if position >= len(schema):
            break
        name, first, open_elements = schema[position][0], len(widths), 1
        while open_elements and position < len(schema):
            _, children, width = schema[position]
            if children == 0:
                widths.append(width)
            open_elements += _bounded(children, where) - 1
            position += 1
        if open_elements or name in names:
            what = "column name stands twice" if name in names else "Parquet schema is broken"
            raise InvalidMetadataError(what, where=f"{where}, column {shown(name)}")
        names[name] = range(first, len(widths))
    if position != len(schema) or len(names) != schema[0][1]:
        raise InvalidMetadataError(
            "Parquet schema is broken",
            where=where,
            found=f"{len(names)} columns in {position} elements",
            expected=f"{schema[0][1]} in {len(schema)}",
        )
    return names, widths


def _check(layout: Layout, rows: int, data_size: int, where: str) -> None:
    total = sum(layout.rows.tolist())
    if total != rows:
        raise InvalidMetadataError(
            "Parquet row groups do not add up", where=where, found=f"{total} rows", expected=rows
        )
    # Written so that nothing can wrap.
    outside = (layout.start > data_size) | (layout.size > data_size - layout.start)
    if outside.any():
        group, leaf = (int(index[0]) for index in np.nonzero(outside))
        raise InvalidMetadataError(
            "column chunk reaches outside of the Parquet file",
            where=f"{where}, row group {group}, leaf column {leaf}",
            found=f"{layout.size[group, leaf]} bytes at {layout.start[group, leaf]}",
            expected=f"an end at or before {data_size}",
        )
