"""The footer of a Parquet file that is a span of an object, checked before anything is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import (
    ComalError,
    InvalidMetadataError,
    LimitExceededError,
    reason_of,
    shown,
    translated,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Piece, Plan, cut
from comal.table.columns import check_schema, plain_schema
from comal.table.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    CompactReader,
    Path,
    Shape,
    Wanted,
    integers,
    shape_of,
)

TAIL = 65_536
_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"

# Errors of pyarrow for invalid bytes. Only pyarrow runs where this is used, so these types cannot
# hide a bug of ours.
BROKEN: dict[type[BaseException], type[ComalError]] = {
    pa.ArrowMemoryError: LimitExceededError,
    pa.ArrowException: InvalidMetadataError,
    OSError: InvalidMetadataError,
    ValueError: InvalidMetadataError,
    OverflowError: InvalidMetadataError,
    MemoryError: LimitExceededError,
    KeyError: InvalidMetadataError,
    IndexError: InvalidMetadataError,
    TypeError: InvalidMetadataError,
    NotImplementedError: InvalidMetadataError,
}


@dataclass(frozen=True, slots=True)
class Footer:
    """The contents of a Parquet footer."""

    metadata: Any
    """`pyarrow.parquet.FileMetaData`."""
    schema: Any
    """Arrow schema in plain types; see `columns.plain_schema`."""
    layout: Layout
    """Row groups and column chunks, by offsets in the file."""
    span: ByteRange
    """The whole file as a span of its object."""
    tail: Piece
    """The end of the file with the footer, so that nothing needs to fetch it again."""
    numbers: npt.NDArray[np.int64]
    """The numbers of the row groups of `layout` in the file."""
    where: str = field(init=False, repr=False, compare=False)
    """The name of the table in messages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", where_of(self.span))

    @property
    def size(self) -> int:
        """Bytes of the footer at the end of the file."""
        return int.from_bytes(self.tail.data[-8:-4], "little") + 8

    def alone(self) -> Footer:
        """The same without the bytes before it, for one of many files that stay open."""
        start = self.tail.end - self.size
        return replace(self, tail=Piece(self.tail.data[-self.size :], start, self.tail.total))

    def only(self, groups: Sequence[int]) -> Footer:
        """The same with some of the row groups of `layout`."""
        chosen = np.asarray(groups, np.int64)
        kept = {name: getattr(self.layout, name)[chosen] for name in _PER_GROUP}
        return replace(self, layout=replace(self.layout, **kept), numbers=self.numbers[chosen])


def where_of(span: ByteRange) -> str:
    """The name of a table in messages."""
    return f"{span.href or 'table'} (bytes {span.offset}+{span.size})"


def footer_plan(
    span: ByteRange, known: Sequence[Piece] = (), limits: Limits = DEFAULT_LIMITS
) -> Plan[Footer]:
    """Fetch and check the footer of the Parquet file that fills `span`.

    Makes no request if `known` holds the footer, else one; a second for a footer over 64 KiB.

    Raises
    ------
    InvalidMetadataError
        Not a Parquet file, a broken footer, counts that contradict each other, column names with
        control characters or twice.
    LimitExceededError
        Footer, columns, names or nesting over `limits`.
    """
    where = where_of(span)
    if span.size < 12:
        raise InvalidMetadataError(
            "not a Parquet file", where=where, found=f"{span.size} bytes", expected="at least 12"
        )
    pieces = list(known)
    end = cut(pieces, span.end - 8, 8)
    if end is None:
        size = min(TAIL, span.size)
        pieces += yield [ByteRange(span.end - size, size, span.href)]
        end = cut(pieces, span.end - 8, 8)
        assert end is not None, "a piece answers its request"
    size = _footer_size(end.data, span, limits, where)
    # pyarrow reads the last 64 KiB of any file: if they are kept here, they cost no request.
    kept = max(size, min(TAIL, span.size))
    tail = cut(pieces, span.end - kept, kept) or cut(pieces, span.end - size, size)
    if tail is None:
        (tail,) = yield [ByteRange(span.end - size, size, span.href)]
    return _parsed(tail, size, span, limits, where)


def _parsed(tail: Piece, size: int, span: ByteRange, limits: Limits, where: str) -> Footer:
    footer = tail.data[-size:]
    layout = read_layout(footer[:-8], span.size - size, where)
    with translated(BROKEN, "the Parquet footer is broken", where=where):
        # Only methods that are safe on hostile bytes are called on this object; see `thrift`.
        # `read_metadata` does the same, and makes objects of all columns first.
        reader = pq.ParquetReader()
        reader.open(pa.BufferReader(_MAGIC + footer))
        metadata = reader.metadata
        limits.check("table_columns", metadata.num_columns, where)
        schema = metadata.schema.to_arrow_schema()
        plain = _plain(schema, limits, where)
        if list(layout.leaves) != schema.names or metadata.num_row_groups != len(layout.rows):
            raise InvalidMetadataError("the Parquet schema is broken", where=where)
        # Refuses some fields that a damaged schema may hold, such as required null types.
        numbers = np.arange(len(layout.rows))
        return Footer(metadata, plain, layout, span, tail, numbers)


def _footer_size(end: bytes, span: ByteRange, limits: Limits, where: str) -> int:
    if end[4:] == _ENCRYPTED:
        raise InvalidMetadataError("the Parquet file is encrypted", where=where)
    if end[4:] != _MAGIC:
        raise InvalidMetadataError(
            "not a Parquet file", where=where, found=end[4:].hex(), expected=_MAGIC.hex()
        )
    size = int.from_bytes(end[:4], "little") + 8
    if size + 4 > span.size:
        raise InvalidMetadataError(
            "the Parquet footer is longer than the file",
            where=where,
            found=f"{size} bytes",
            expected=f"at most {span.size - 4}",
        )
    limits.check("table_bytes", size, where)
    return size


# -- layout ----------------------------------------------------------------------------------------


_CHUNKS = ("start", "size", "values", "codec", "encodings", "offset_index", "column_index")
_PER_GROUP = ("rows", *_CHUNKS)
"""Fields of `Layout` with one item per row group."""
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
    codec: npt.NDArray[np.int64]
    """Codec of each chunk; 0 for none."""
    encodings: npt.NDArray[np.int64]
    """The encodings of each chunk as bits: ``1 << 0`` for PLAIN."""
    offset_index: npt.NDArray[np.int64]
    """Offset and size of the offset index of each chunk, shape (.., 2); 0 where there is none."""
    column_index: npt.NDArray[np.int64]
    """Offset and size of the column index of each chunk, shape (.., 2); 0 where there is none."""
    required: npt.NDArray[np.bool_]
    """Whether a leaf column is a required top-level column, shape (leaf columns,)."""
    flat: npt.NDArray[np.bool_]
    """Whether a leaf column is a top-level column and no list, shape (leaf columns,)."""


def read_layout(footer: bytes, data_size: int, where: str) -> Layout:
    """Read and check the layout, from the file's metadata in the Thrift compact protocol.

    `data_size` is the number of bytes in the file before the footer.

    Raises
    ------
    InvalidMetadataError
        A broken footer, row counts that do not add up, or a chunk outside of the file.
    """
    try:
        rows, schema, groups = _file(footer, where)
    except IndexError as error:
        raise InvalidMetadataError(
            "the Parquet footer is broken", where=where, found=reason_of(error)
        ) from error
    names, width, required, flat = _columns(*schema, where)
    count = len(width)
    wrong = next((row for row, (_, chunks) in enumerate(groups) if len(chunks) != count), None)
    if wrong is not None:
        raise InvalidMetadataError(
            "a row group does not have as many columns as the schema",
            where=f"{where}, row group {wrong}",
            found=len(groups[wrong][1]),
            expected=count,
        )
    chunks = np.array([chunks for _, chunks in groups], np.int64)
    chunks = chunks.reshape(len(groups), count, len(_CHUNK_FIELDS))
    layout = Layout(
        names,
        np.array([group for group, _ in groups], np.int64),
        chunks[:, :, 0],
        chunks[:, :, 1],
        chunks[:, :, 2],
        width,
        chunks[:, :, 3],
        chunks[:, :, 4],
        chunks[:, :, 5:7],
        chunks[:, :, 7:9],
        required,
        flat,
    )
    _check(layout, rows, data_size, where)
    return layout


_Chunk = Sequence[int]
_CHUNK_FIELDS = (
    "start",
    "size",
    "values",
    "codec",
    "encodings",
    "offset index",
    "its size",
    "column index",
    "its size",
)
_Group = tuple[int, Sequence[_Chunk] | npt.NDArray[np.int64]]
_AT_CODEC, _AT_ENCODINGS = 3, 4
_Element = tuple[str, int, int, int]
"""Name, number of children, for a leaf the width of its values, and the repetition."""
_BYTE_ARRAY, _FIXED_LEN_BYTE_ARRAY = 6, 7
_REQUIRED, _REPEATED = 0, 2
_WIDEST_NUMBER = 16
_MOST_ENCODINGS = 62


_Leaf = tuple[bool, int, int]
"""Whether it is a top-level column, not part of one, the width of its values, the repetition."""
_Columns = tuple[dict[str, range], Any, Any, Any]
"""The fields `leaves`, `width`, `required` and `flat` of a `Layout`."""
_Schema = tuple[bytes, _Columns | list[dict[int, Any]]]
"""A schema as stored, and what it says: its columns if they are remembered, or its fields."""


_ELEMENT: Wanted = {1: I64, 2: I64, 3: I64, 4: BINARY, 5: I64}
"""SchemaElement: 1 type, 2 type_length, 3 repetition_type, 4 name, 5 num_children."""
_METADATA: Wanted = {2: LIST, 4: I64, 5: I64, 7: I64, 9: I64, 11: I64}
"""ColumnMetaData: 2 encodings, 4 codec, 5 values, 7 stored size, 9 and 11 page offsets."""
_INDEXES = (4, 5, 6, 7)
_COLUMN: Wanted = {1: BINARY, 3: _METADATA, **dict.fromkeys(_INDEXES, I64)}
"""ColumnChunk: 1 file_path, 3 meta_data, 4 to 7 offset and size of both indexes."""
_ROW_GROUP: Wanted = {1: (_COLUMN,), 3: I64}
"""RowGroup: 1 columns, 3 num_rows."""


def _file(footer: bytes, where: str) -> tuple[int, _Schema, list[_Group]]:
    """FileMetaData: 2 schema, 3 num_rows, 4 row_groups."""
    reader = CompactReader(footer)
    rows: int | None = None
    schema: _Schema = b"", []
    groups: list[_Group] = []
    for number, kind in reader.fields():
        if number == 2 and kind == LIST:
            schema = _schema(reader)
        elif number == 3 and kind in _INTEGERS:
            rows = reader.integer()
        elif number == 4 and kind == LIST:
            groups = _groups(reader, where)
        else:
            reader.skip(kind)
    if rows is None or not schema[1]:
        raise InvalidMetadataError(
            "the Parquet footer holds no schema or no row count", where=where
        )
    return rows, schema, groups


def _schema(reader: CompactReader) -> _Schema:
    begin = reader.at
    for known in _remembered.schemas:
        if reader.data.startswith(known[0], begin):  # then the same bytes end it
            reader.at += len(known[0])
            return known
    fields = reader.structs(_ELEMENT)
    return reader.data[begin : reader.at], fields


def _columns(stored: bytes, found: _Columns | list[dict[int, Any]], where: str) -> _Columns:
    if isinstance(found, tuple):
        return found
    names, leaves = _tree([_element(one, where) for one in found], where)
    alone, width, repetition = np.array(leaves, np.int64).reshape(-1, 3).T
    top = alone > 0
    columns = names, width, top & (repetition == _REQUIRED), top & (repetition != _REPEATED)
    _remembered.schemas = ((stored, columns), *_remembered.schemas)[:_MOST_REMEMBERED]
    return columns


def _element(fields: dict[int, Any], where: str) -> _Element:
    name = fields.get(4, b"").decode("utf-8", "replace")
    width = _WIDEST_NUMBER
    if fields.get(1) == _BYTE_ARRAY:
        width = 0
    elif fields.get(1) == _FIXED_LEN_BYTE_ARRAY:
        width = _bounded(fields.get(2, 0), where)
    return name, fields.get(5, 0), width, fields.get(3, 0)


_FOR_SHAPES = 20
"""Row groups of one file whose field-by-field reading takes as long as finding their shape."""
_FOR_FILES = 160
"""The same of many files, whose next row groups may have other shapes."""
_MOST_SHAPES = 4
"""Shapes to look for in one file."""
_MOST_REMEMBERED = 16
"""Kinds to remember for all files together."""
_ROWS: Path = (3,)
_CODEC, _ENCODINGS = (3, 4), (3, 2)
_DATA, _DICTIONARY, _SIZE, _VALUES = (3, 9), (3, 11), (3, 7), (3, 5)
_NUMBERS: tuple[Path, ...] = (_DATA, _DICTIONARY, _SIZE, _VALUES, (4,), (5,), (6,), (7,))
"""Numbers of a column chunk, by their fields in it; a chunk is at ``(1, leaf column)``."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """The common shape of similar row groups."""

    shape: Shape
    rows: int
    """Index of their number of rows among the captures of a match."""
    chunks: npt.NDArray[np.int64]
    """Indices of `_NUMBERS` of each chunk among them, shape (leaf columns, 8); -1 for missing
    numbers."""
    same: npt.NDArray[np.int64]
    """Codec and encodings of each chunk, shape (leaf columns, 2)."""

    @classmethod
    def of(cls, shape: Shape, group: _Group) -> _Kind:
        """The kind of a row group that was read field by field."""
        at = {path: place for place, path in enumerate(shape.paths)}
        leaves = range(len(group[1]))
        chunks = [[at.get((1, leaf, *path), -1) for path in _NUMBERS] for leaf in leaves]
        same = [(chunk[_AT_CODEC], chunk[_AT_ENCODINGS]) for chunk in group[1]]
        return cls(
            shape,
            at[_ROWS],
            np.array(chunks, np.int64).reshape(-1, len(_NUMBERS)),
            np.array(same, np.int64).reshape(-1, 2),
        )


class _Remembered:
    """Schemas and kinds of row groups in the last files: those of one writer look alike.

    They only claim that bytes match, so they are valid for any file. Assignments are atomic, and a
    thread that comes too late only learns them again.
    """

    def __init__(self) -> None:
        self.schemas: tuple[tuple[bytes, _Columns], ...] = ()
        self.plain: tuple[tuple[Any, Limits, Any], ...] = ()
        """Arrow schemas, the limits by which they were checked, and the same in plain types."""
        self.kinds: tuple[_Kind, ...] = ()
        self.slowly = 0
        """Row groups that were read field by field since a kind was learned."""

    def use(self, kinds: Sequence[_Kind]) -> None:
        """Move some kinds to the front, and forget those that were not used for long."""
        used = set(map(id, kinds))
        others = [kind for kind in self.kinds if id(kind) not in used]
        self.kinds = tuple([*kinds, *others][:_MOST_REMEMBERED])


_remembered = _Remembered()


def _plain(schema: Any, limits: Limits, where: str) -> Any:
    """An Arrow schema, checked and in plain types; one object for all files with the same."""
    for known, by, plain in _remembered.plain:
        if by is limits and known.equals(schema):
            return plain
    check_schema(schema, limits, where)
    new = schema.remove_metadata(), limits, plain_schema(schema)
    _remembered.plain = (new, *_remembered.plain)[:_MOST_REMEMBERED]
    return new[2]


@dataclass(slots=True)
class _Alike:
    """Row groups of a file that have the same kind."""

    kind: _Kind
    numbers: list[int] = field(default_factory=list)
    tokens: list[bytes] = field(default_factory=list)
    """The captures of their matches."""

    def takes(self, reader: CompactReader, number: int) -> bool:
        """Read the next row group, if it is of this kind."""
        match = self.kind.shape.pattern.match(reader.data, reader.at)
        if match is None:
            return False
        reader.at = match.end()
        self.numbers.append(number)
        self.tokens += match.groups()
        return True

    def groups(self, where: str) -> list[_Group]:
        """The row groups that were read."""
        values = integers(self.tokens)
        assert values is not None, "the pattern takes no longer ones"
        count = len(self.numbers)
        table = np.zeros((count, len(self.kind.shape.paths) + 1), np.int64)  # -1 is a zero
        table[:, :-1] = values.reshape(count, -1)
        found = table[:, self.kind.chunks]
        data, dictionary = found[:, :, 0], found[:, :, 1]
        chunks = np.empty((*data.shape, len(_CHUNK_FIELDS)), np.int64)
        chunks[:, :, 0] = np.where(dictionary > 0, np.minimum(data, dictionary), data)
        chunks[:, :, 1:3] = found[:, :, 2:4]
        chunks[:, :, 3:5] = self.kind.same
        chunks[:, :, 5:] = found[:, :, 4:]
        rows = table[:, self.kind.rows]
        low = min(int(rows.min()), int(chunks.min(initial=0)))
        if low < 0:
            _bounded(low, where)
        return list(zip(rows.tolist(), chunks, strict=True))


def _groups(reader: CompactReader, where: str) -> list[_Group]:
    """The list of row groups; similar ones are read by their common shape."""
    count = reader.count()
    groups: list[_Group] = []
    found = [_Alike(kind) for kind in _remembered.kinds]
    learned: list[_Kind] = []
    tries = _MOST_SHAPES
    for number in range(count):
        alike = next((one for one in found if one.takes(reader, number)), None)
        if alike is not None:
            groups.append(_TAKEN)
            if alike is not found[0]:  # the next one is probably of the same kind
                found.remove(alike)
                found.insert(0, alike)
            continue
        begin = reader.at
        groups.append(_group(reader, where))
        _remembered.slowly += 1
        is_worth_it = count - number > _FOR_SHAPES or _remembered.slowly > _FOR_FILES
        if is_worth_it and tries:
            tries -= 1
            shape = shape_of(reader.data, begin, _is_wanted, _is_same)
            _remembered.slowly = 0
            if shape is not None:
                learned.append(_Kind.of(shape, groups[-1]))
                found.insert(0, _Alike(learned[-1]))
    used = [alike for alike in found if alike.numbers]
    for alike in used:
        for number, group in zip(alike.numbers, alike.groups(where), strict=True):
            groups[number] = group
    _remembered.use([*(alike.kind for alike in used), *learned])
    return groups


_TAKEN: _Group = (0, ())


def _is_wanted(path: Path) -> bool:
    return path == _ROWS or (path[0] == 1 and path[2:] in _NUMBERS)


def _is_same(path: Path) -> bool:
    return path[0] == 1 and path[2:4] in {_CODEC, _ENCODINGS}


def _group(reader: CompactReader, where: str) -> _Group:
    fields = reader.struct(_ROW_GROUP)
    encodings: dict[bytes, int] = {}
    chunks = [_chunk(one, encodings, where) for one in fields.get(1, ())]
    return _bounded(fields.get(3, -1), where), chunks


def _chunk(fields: dict[int, Any], encodings: dict[bytes, int], where: str) -> _Chunk:
    """A column chunk; `encodings` are those seen in its row group, by their bytes."""
    if fields.get(1):
        raise InvalidMetadataError("a column chunk lies in another file", where=where)
    metadata = fields.get(3)
    if metadata is None:
        raise InvalidMetadataError(
            "a column chunk has no metadata", where=where, hint="encrypted columns are not read"
        )
    data, dictionary = metadata.get(9, -1), metadata.get(11, 0)
    # Some writers put 0 where there is no dictionary.
    start = min(data, dictionary) if dictionary > 0 else data
    listed = metadata.get(2, b"\0")
    if listed not in encodings:
        encodings[listed] = _encodings(listed, where)
    codec, size, values = metadata.get(4, 0), metadata.get(7, -1), metadata.get(5, -1)
    indexes = [fields.get(number, 0) for number in _INDEXES]
    chunk = start, size, values, codec, encodings[listed], *indexes
    if min(chunk) < 0 or max(chunk) > _MAX_OFFSET:
        for one in chunk:
            _bounded(one, where)
    return chunk


def _encodings(listed: bytes, where: str) -> int:
    """A list of encodings as bits, as in `Layout`."""
    found = 0
    for number in CompactReader(listed).numbers():
        # Numbers from 62 on, which do not exist yet, share one bit.
        found |= 1 << min(_bounded(number, where), _MOST_ENCODINGS)
    return found


def _bounded(value: int, where: str) -> int:
    if not 0 <= value <= _MAX_OFFSET:
        raise InvalidMetadataError(
            "the Parquet footer holds an impossible number", where=where, found=value
        )
    return value


def _tree(schema: list[_Element], where: str) -> tuple[dict[str, range], list[_Leaf]]:
    """The leaves below each child of the root; elements are in depth-first order."""
    names: dict[str, range] = {}
    leaves: list[_Leaf] = []
    position = 1
    for _ in range(schema[0][1]):
        if position >= len(schema):
            break
        name, first, begin, open_elements = schema[position][0], len(leaves), position, 1
        while open_elements and position < len(schema):
            _, children, width, repetition = schema[position]
            if children == 0:
                leaves.append((position == begin, width, repetition))
            open_elements += _bounded(children, where) - 1
            position += 1
        if open_elements or name in names:
            what = (
                "a column name appears twice" if name in names else "the Parquet schema is broken"
            )
            raise InvalidMetadataError(what, where=f"{where}, column {shown(name)}")
        names[name] = range(first, len(leaves))
    if position != len(schema) or len(names) != schema[0][1]:
        raise InvalidMetadataError(
            "the Parquet schema is broken",
            where=where,
            found=f"{len(names)} columns in {position} elements",
            expected=f"{schema[0][1]} in {len(schema)}",
        )
    return names, leaves


def _check(layout: Layout, rows: int, data_size: int, where: str) -> None:
    total = sum(layout.rows.tolist())
    if total != rows:
        raise InvalidMetadataError(
            "the Parquet row groups do not add up",
            where=where,
            found=f"{total} rows",
            expected=rows,
        )
    # Written so that nothing can overflow.
    outside = (layout.start > data_size) | (layout.size > data_size - layout.start)
    if outside.any():
        group, leaf = (int(index[0]) for index in np.nonzero(outside))
        raise InvalidMetadataError(
            "a column chunk reaches outside the Parquet file",
            where=f"{where}, row group {group}, leaf column {leaf}",
            found=f"{layout.size[group, leaf]} bytes at {layout.start[group, leaf]}",
            expected=f"an end at or before {data_size}",
        )
