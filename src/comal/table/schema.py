"""One spelling for Arrow types that differ between writers but hold the same values."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from comal.errors import InvalidMetadataError, shown
from comal.lazy import pc
from comal.limits import Limits

_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_LENGTHS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def plain_type(kind: Any) -> Any:
    """The plain form of an Arrow type.

    Large and view types become ``string``, ``binary`` and ``list``; a list's child is called
    ``element``; dictionaries and run-end encodings become their values, extension types their
    storage.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_field(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_element(kind), kind.list_size)
    if _is_list(kind):
        return pa.list_(_element(kind))
    if types.is_struct(kind):
        return pa.struct([plain_field(field) for field in _children(kind)])
    return _PLAIN.get(kind, kind)


def plain_field(field: Any) -> Any:
    """A field with its plain type and without metadata."""
    return pa.field(field.name, plain_type(field.type), nullable=field.nullable)


def plain_schema(schema: Any) -> Any:
    """A schema with plain types and without metadata."""
    return pa.schema([plain_field(field) for field in schema])


def plain_table(table: Any) -> Any:
    """A table or record batch with plain types; buffers are shared where the bytes are the same."""
    schema = plain_schema(table.schema)
    if table.schema.equals(schema, check_metadata=True):
        return table
    return table.cast(schema)


def spread_bytes(batch: Any) -> int:
    """Bytes that the dictionary columns of a record batch take once they are spread out."""
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
        A column name that holds control characters or stands twice.
    LimitExceededError
        Too many columns, names too long, types too deep.
    """
    limits.check("table_columns", len(schema), where)
    _check_names(list(schema), limits, where)
    for field in schema:
        limits.check("table_nesting", _depth(field.type), f"{where}, column {shown(field.name)}")


def _check_names(fields: list[Any], limits: Limits, where: str) -> None:
    counts = Counter(field.name for field in fields)
    for name, count in counts.items():
        place = f"{where}, column {shown(name)}"
        limits.check("column_name_bytes", len(name.encode("utf-8", "surrogatepass")), place)
        if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in name):
            raise InvalidMetadataError("column name holds control characters", where=place)
        if count > 1:
            raise InvalidMetadataError("column name stands twice", where=place)
    for field in fields:
        if pa.types.is_nested(field.type):
            _check_names(_children(field.type), limits, where)


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


def _element(kind: Any) -> Any:
    field = kind.value_field
    return pa.field("element", plain_type(field.type), nullable=field.nullable)
