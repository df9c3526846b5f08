"""Arrow columns from numpy arrays, texts and bytes, straight from their buffers.

`pyarrow.array`, `pyarrow.scalar` and `Array.to_numpy` check whether their arguments are of pandas,
and import pandas for that if it is installed: a third of a second of processor time and 40 MB.
Every write and every short command builds its columns here instead. Plain values as arguments of
`pyarrow.compute` cost the same; ``texts_column(["x"])[0]`` is a scalar without that cost.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import ComalError, InvalidMetadataError, LimitExceededError, shown, translated
from comal.lazy import pc
from comal.limits import Limits

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.integer[Any]]

SMALL_POOL = pa.system_memory_pool()
"""For small or short-lived data, passed to Arrow call by call. The default pool asks the system for
huge pages: its first allocation of each size alone takes megabytes."""

_MOST = (1 << 31) - 1


def numbers_column(values: npt.NDArray[Any], kind: Any = None, valid: Mask | None = None) -> Any:
    """Numbers as an Arrow array, without a copy if they are contiguous.

    Parameters
    ----------
    values
        Integers, floats, booleans or times of numpy; one dimension.
    kind
        Arrow type whose values look the same in memory, such as a timestamp for int64; by default
        that of `values`.
    valid
        Which values are not null; all by default.
    """
    kind = pa.from_numpy_dtype(values.dtype) if kind is None else kind
    data = _bits(values) if pa.types.is_boolean(kind) else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [_validity(valid), pa.py_buffer(data)])


def texts_column(texts: Sequence[str | None], kind: Any = None) -> Any:
    """Texts as an Arrow array of strings, or of `kind`; None becomes null."""
    joined = "".join(text for text in texts if text)
    data = joined.encode()
    # Encoding each text separately would hold all of them as objects once more.
    size = len if len(data) == len(joined) else _utf8_size
    sizes = np.fromiter((size(text or "") for text in texts), np.int64, len(texts))
    valid = np.fromiter((text is not None for text in texts), bool, len(texts))
    return spans_column(data, sizes, pa.string() if kind is None else kind, valid)


def blobs_column(blobs: Sequence[bytes | None], kind: Any = None) -> Any:
    """Bytes as an Arrow array of binary values, or of `kind`; None becomes null."""
    sizes = np.fromiter((len(blob or b"") for blob in blobs), np.int64, len(blobs))
    valid = np.fromiter((blob is not None for blob in blobs), bool, len(blobs))
    return spans_column(b"".join(blob for blob in blobs if blob), sizes, kind, valid)


def spans_column(data: Any, sizes: Ints, kind: Any = None, valid: Mask | None = None) -> Any:
    """Consecutive bytes as an Arrow array, without a copy.

    Parameters
    ----------
    data
        All values; any buffer.
    sizes
        Bytes of each value, 0 for a null.
    kind
        Arrow type; by default binary.
    valid
        Which values are not null; all by default.

    Raises
    ------
    LimitExceededError
        More than 2 GiB in a type with offsets of 32 bits.
    """
    kind = pa.binary() if kind is None else kind
    is_wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    if not is_wide:
        if ends[-1] > _MOST:
            raise LimitExceededError(
                "too many bytes for one column", found=int(ends[-1]), expected=f"{_MOST} in {kind}"
            )
        ends = ends.astype(np.int32)
    buffers = [_validity(valid), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(sizes), buffers)


def numbers_of(column: Any) -> npt.NDArray[Any]:
    """The numbers of an Arrow array without nulls as a numpy array, without a copy."""
    kind = column.type
    dtype = np.dtype(np.int64 if pa.types.is_int64(kind) else kind.to_pandas_dtype())
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype, len(column), column.offset * dtype.itemsize)


def numbers_at(column: Any, rows: Ints) -> npt.NDArray[Any]:
    """The numbers of some rows of a column without nulls, chunked or not."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks != 1:
        return numbers_of(one_array(column.take(numbers_column(rows))))
    return numbers_of(one_array(column))[rows]


def _utf8_size(text: str) -> int:
    return len(text.encode())


def _validity(valid: Mask | None) -> Any:
    return None if valid is None or valid.all() else pa.py_buffer(_bits(valid))


def _bits(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.packbits(values.astype(bool), bitorder="little")


def rows_where(mask: Any) -> npt.NDArray[np.int64]:
    """The rows where an Arrow column of booleans, chunked or not, is true; a null is not."""
    return np.flatnonzero(flags_of(mask)).astype(np.int64, copy=False)


def flags_of(mask: Any) -> Mask:
    """An Arrow column of booleans, chunked or not, as a numpy array; a null is False."""
    flags = np.empty(len(mask), bool)
    start = 0
    for chunk in _chunks(mask):
        flags[start : start + len(chunk)] = _bits_of(chunk, 1) & valid_of(chunk)
        start += len(chunk)
    return flags


def rows_equal(column: Any, text: str) -> Mask:
    """Where a column of texts, chunked or not, equals `text`; a null does not."""
    wanted = text.encode()
    equal = np.zeros(len(column), bool)
    start = 0
    for chunk in _chunks(column):
        plain = chunk if pa.types.is_string(chunk.type) else pc.cast(chunk, pa.string())
        starts, sizes, data = _texts_of(plain)
        rows = np.flatnonzero(sizes == len(wanted))
        for place, byte in enumerate(wanted):
            rows = rows[data[starts[rows] + place] == byte]
        equal[start + rows] = True
        start += len(chunk)
    return equal & valid_of(column)


def valid_of(column: Any) -> Mask:
    """Which values of an Arrow column, chunked or not, are not null."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), bool)
    valid = np.ones(len(column), bool)
    start = 0
    for chunk in _chunks(column):
        if chunk.null_count:
            valid[start : start + len(chunk)] = _bits_of(chunk, 0)
        start += len(chunk)
    return valid


def _chunks(column: Any) -> list[Any]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _texts_of(array: Any) -> tuple[Ints, Ints, npt.NDArray[np.uint8]]:
    """Offsets and sizes of the texts of an array of strings, and the bytes of all."""
    _, ends, data = array.buffers()
    if ends is None or not len(array):
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint8)
    offsets = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
    return offsets[:-1], np.diff(offsets), np.frombuffer(data or b"", np.uint8)


def _bits_of(array: Any, buffer: int) -> Mask:
    """The bits of one of an array's buffers."""
    data = array.buffers()[buffer]
    if data is None or not len(array):
        return np.zeros(len(array), bool)
    first, end = array.offset, array.offset + len(array)
    # Whole bytes first: the offset need not be a multiple of eight.
    packed = np.frombuffer(data, np.uint8)[first // 8 : (end + 7) // 8]
    bits = np.unpackbits(packed, bitorder="little")[first % 8 :]
    return bits[: len(array)].view(bool)


def values_column(values: Sequence[Any]) -> Any:
    """A list of Python values as an array of their own type, as `pyarrow.array` makes it.

    Raises
    ------
    pyarrow.ArrowException, TypeError, ValueError, OverflowError
        As `pyarrow.array`: for mixed values, or values that fit no type.
    """
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {str}:
        return texts_column(values)
    if kinds == {bytes}:
        return blobs_column(values)
    if kinds in ({int}, {float}, {bool}):
        valid = np.fromiter((value is not None for value in values), bool, len(values))
        filled = (0 if value is None else value for value in values)
        try:
            return numbers_column(np.fromiter(filled, kinds.pop(), len(values)), valid=valid)
        except OverflowError:  # a whole number that only an unsigned type holds
            return pa.array(values)
    return array_of(values)


def array_of(values: Sequence[Any], kind: Any = None) -> Any:
    """As `pyarrow.array`, but no time loses digits, and no number becomes a time.

    Empty arrays of NumPy have the type of the others, with which pyarrow may crash.
    """
    sizes = {value.size for value in values if isinstance(value, np.ndarray)}
    if 0 in sizes and len(sizes) > 1:
        empty = [isinstance(value, np.ndarray) and not value.size for value in values]
        values = [[] if none else value for none, value in zip(empty, values, strict=True)]
    found = pa.array(values, kind)
    exact = found.type if kind is not None else _exact(values, found.type)
    return found if exact.equals(found.type) else pa.array(values, exact)


def _exact(values: Iterable[Any], kind: Any) -> Any:
    """The type that `pyarrow.array` found for values, with nanoseconds where they have some."""
    types = pa.types
    if types.is_struct(kind) and _holds_times(kind):
        rows = [row for row in values if row is not None]
        return pa.struct([f.with_type(_exact([r.get(f.name) for r in rows], f.type)) for f in kind])
    if types.is_list(kind) and _holds_times(kind):
        inner = chain.from_iterable(row for row in values if row is not None)
        return pa.list_(kind.value_field.with_type(_exact([*inner], kind.value_type)))
    if not types.is_temporal(kind) or kind.id in _LOST:
        return kind
    if any(isinstance(value, Number) for value in values):
        raise TypeError("numbers among times")
    if types.is_date(kind) and any(isinstance(value, dt.datetime) for value in values):
        raise TypeError("dates among times")
    fine = types.is_timestamp(kind) and any(getattr(value, "nanosecond", 0) for value in values)
    return pa.timestamp("ns", kind.tz) if fine else kind


def _holds_times(kind: Any) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_temporal(kind) or any(map(_holds_times, inner))


def one_array(column: Any) -> Any:
    """A column as one array, without a copy if it is one already."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def combining(
    kind: type[ComalError], where: str | None = None, **named: Any
) -> AbstractContextManager[None]:
    """Makes what Arrow says of tables with different schemas an error of `kind`."""
    what = "columns of the same name have types that cannot be combined"
    return translated({pa.ArrowException: kind}, what, where=where, **named)


# -- plain types -----------------------------------------------------------------------------------


_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_STORED = {pa.time32("s"): pa.time32("ms"), pa.date64(): pa.date32()}
_DECIMAL_DIGITS = 38
_LOST = {
    kind.id
    for kind in (
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.sparse_union([]),
        pa.dense_union([]),
        pa.run_end_encoded(pa.int32(), pa.null()),
        pa.list_view(pa.null()),  # Arrow 26 casts views to broken lists
        pa.large_list_view(pa.null()),
    )
}
_LENGTHS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def plain_type(kind: Any, *, lasting: bool = False) -> Any:
    """The plain form of an Arrow type.

    Large and view types become ``string``, ``binary`` and ``list``; a list's child is called
    ``element``; dictionaries and run-end encodings become their values, extension types their
    storage.

    `lasting` also replaces types that not every reader of Parquet knows by others with the same
    values, which is what Parquet stores: lists of fixed size by lists, half floats by ``float``,
    decimals by ``decimal128``, durations by numbers of their unit, seconds by milliseconds,
    time zones by UTC.
    """
    types = pa.types
    plain = partial(plain_type, lasting=lasting)
    if isinstance(kind, pa.BaseExtensionType):
        return plain(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain(kind.value_type)
    if types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain_field(kind.item_field, lasting=lasting))
    if types.is_fixed_size_list(kind) and not lasting:
        return pa.list_(_element(kind, plain), kind.list_size)
    if _is_list(kind) or types.is_fixed_size_list(kind):
        element = _element(kind, plain)
        has_fields = lasting and types.is_struct(element.type)
        return pa.list_(element.with_type(_typed(element.type)) if has_fields else element)
    if types.is_struct(kind):
        return pa.struct([plain_field(field, lasting=lasting) for field in _children(kind)])
    return _lasting(kind) if lasting else _PLAIN.get(kind, kind)


def _lasting(kind: Any) -> Any:
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ms" if kind.unit == "s" else kind.unit, kind.tz and "UTC")
    return _STORED.get(kind) or _PLAIN.get(kind, kind)


def plain_field(field: Any, *, lasting: bool = False) -> Any:
    """A field with its plain type and without metadata; `lasting` as for `plain_type`."""
    kind = plain_type(field.type, lasting=lasting)
    return pa.field(field.name, kind, nullable=field.nullable)


def plain_schema(schema: Any, *, lasting: bool = False) -> Any:
    """A schema with plain types and without metadata; `lasting` as for `plain_type`."""
    return pa.schema([plain_field(field, lasting=lasting) for field in schema])


def plain_table(table: Any, *, lasting: bool = False) -> Any:
    """A table or record batch with plain types; buffers are shared if the bytes are the same."""
    schema = plain_schema(table.schema, lasting=lasting)
    if table.schema.equals(schema, check_metadata=True):
        return table
    return table.cast(schema)


def lost_type(kind: Any) -> Any:
    """The type in `kind` that readers of Parquet lack, or return as another; None if none."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return lost_type(kind.storage_type)
    if types.is_dictionary(kind):
        return lost_type(kind.value_type)
    if kind.id in _LOST or (types.is_struct(kind) and not kind.num_fields):
        return kind
    if types.is_decimal(kind) and kind.precision > _DECIMAL_DIGITS:  # DuckDB has none
        return kind
    found = (lost_type(child.type) for child in _children(kind))
    return next((one for one in found if one is not None), None)


def spread_bytes(batch: Any) -> int:
    """Bytes of the dictionary columns of a record batch after decoding."""
    total = 0
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and column.dictionary.type in _LENGTHS:
            lengths = pc.binary_length(column.dictionary).cast(pa.int64())
            total += pc.sum(lengths.take(column.indices)).as_py() or 0
    return total


def check_schema(schema: Any, limits: Limits, where: str) -> None:
    """Refuse column names and nesting that could harm whoever uses the table.

    Raises
    ------
    InvalidMetadataError
        A column name that holds control characters or appears twice.
    LimitExceededError
        Too many columns, names too long, types too deep.
    """
    families = list(_families(list(schema)))
    sizes = [
        (len(field.name.encode("utf-8", "surrogatepass")), field.name)
        for fields in families
        for field in fields
    ]
    depths = [(_depth(field.type), field.name) for field in schema]
    limits.check("table_columns", len(schema), where)
    if len(schema):
        size, longest = max(sizes)
        limits.check("column_name_bytes", size, where, longest)
        depth, deepest = max(depths)
        limits.check("table_nesting", depth, where, deepest)
    for fields in families:
        _check_names([field.name for field in fields], where)


def _families(fields: list[Any]) -> Iterator[list[Any]]:
    """Fields, and the fields of each nested type below them."""
    yield fields
    for field in fields:
        if pa.types.is_nested(field.type):
            yield from _families(_children(field.type))


def _check_names(names: list[str], where: str) -> None:
    for name, count in Counter(names).items():
        if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in name):
            place = f"{where}, column {shown(name)}"
            raise InvalidMetadataError("a column name holds control characters", where=place)
        if count > 1:
            place = f"{where}, column {shown(name)}"
            raise InvalidMetadataError("a column name appears twice", where=place)


def _depth(kind: Any) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return 1 + max((_depth(child.type) for child in _children(kind)), default=0)


def _children(kind: Any) -> list[Any]:
    return [kind.field(index) for index in range(kind.num_fields)]


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _typed(kind: Any) -> Any:
    """The type with texts for fields without a type: Arrow casts lists of such structs wrongly."""
    if not pa.types.is_struct(kind):
        return pa.string() if pa.types.is_null(kind) else kind
    return pa.struct([field.with_type(_typed(field.type)) for field in _children(kind)])


def _element(kind: Any, plain: Callable[[Any], Any]) -> Any:
    field = kind.value_field
    return pa.field("element", plain(field.type), nullable=field.nullable)
