"""Writing Parquet: the same table and settings give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import ComalError, InvalidInputError, StorageError, translated
from comal.lazy import pc
from comal.table.columns import SMALL_POOL, plain_schema, plain_table

_LEVELS: Mapping[str, tuple[int, int]] = {"zstd": (1, 22), "gzip": (1, 9), "brotli": (0, 11)}
_WITHOUT_LEVEL = frozenset({"snappy", "lz4", "none"})
_MOST_CHUNK_BYTES = 1 << 30
_MOST_REPEATED = 1_024
"""With more distinct values than this, a dictionary is not worth keeping."""
_TIMES_REPEATED = 8
_WRITING: dict[type[BaseException], type[ComalError]] = {
    pa.ArrowException: InvalidInputError,
    OSError: StorageError,
    ValueError: InvalidInputError,
    KeyError: InvalidInputError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings:
    """How a table is written.

    The defaults are those of the existing TACO writers, plus page checksums: without them a
    flipped bit usually gives a wrong table instead of an error.
    """

    compression: str = "zstd"
    """``zstd``, ``gzip``, ``brotli``, ``snappy``, ``lz4`` or ``none``."""
    level: int | None = 13
    """Compression level; dropped for codecs that have none, None for the codec's own."""
    row_group_size: int = 65_536
    """Rows in a row group."""
    content_defined_chunking: bool = True
    """Cut pages by content, so that a changed row changes few bytes (TACO 2.0, 6.4)."""
    chunk_bytes: tuple[int, int] | None = None
    """Least and most bytes between such cuts, before encoding; None for pyarrow's defaults."""
    page_checksum: bool = True
    statistics: bool = True
    dictionary: bool | None = True
    """None: only for columns whose values repeat in the first row group. A dictionary page of many
    distinct values changes entirely with every row that is added or removed."""
    arrow_schema: bool = True
    """Store the Arrow schema too; without it small tables shrink by half and keep plain types."""
    page_index: bool = False
    data_page_size: int | None = None
    """Target bytes of a page before compression."""
    encodings: tuple[tuple[str, str], ...] = ()
    """Columns with their encoding instead of a dictionary; names not in the table are ignored."""

    def __post_init__(self) -> None:
        codec = self.compression.lower()
        if codec not in _LEVELS and codec not in _WITHOUT_LEVEL:
            raise InvalidInputError(
                "unknown Parquet compression",
                found=repr(self.compression),
                expected=", ".join(sorted([*_LEVELS, *_WITHOUT_LEVEL])),
            )
        low, high = _LEVELS.get(codec, (0, 0))
        if codec in _LEVELS and self.level is not None and not low <= self.level <= high:
            raise InvalidInputError(
                f"level of Parquet compression {codec} out of range",
                found=self.level,
                expected=f"{low} to {high}",
            )
        if not 0 < self.row_group_size <= 1 << 26:
            raise InvalidInputError(
                "rows of a Parquet row group out of range",
                found=self.row_group_size,
                expected="1 to 67108864",
            )
        if self.data_page_size is not None and self.data_page_size < 1:
            raise InvalidInputError(
                "bytes of a Parquet page out of range", found=self.data_page_size
            )
        if self.chunk_bytes is not None and not _is_range(self.chunk_bytes):
            raise InvalidInputError(
                "bytes between cuts by content cannot be used",
                found=self.chunk_bytes,
                expected="two numbers, at least 1, the second the larger one",
            )

    @classmethod
    def from_kwargs(cls, **kwargs: Any) -> ParquetSettings:
        """Settings from the keyword arguments of the specification's functions.

        Besides the fields of this class, ``compression_level`` is an alias of `level`; its default
        is 13 for zstd and the codec's own for others (TACO 2.0, 7.1).

        Raises
        ------
        InvalidInputError
            An unknown keyword, or a value of the wrong type or range.
        """
        named = dict(kwargs)
        if "compression_level" in named:
            if "level" in named:
                raise InvalidInputError("both level and compression_level are given")
            named["level"] = named.pop("compression_level")
        known = {name: kind for name, kind in cls.__annotations__.items() if name[0] != "_"}
        for name, value in named.items():
            if name not in known:
                raise InvalidInputError(
                    "unknown Parquet argument",
                    found=repr(name),
                    expected=", ".join(["compression_level", *known]),
                )
            if not _fits(value, known[name]):
                raise InvalidInputError(
                    f"the Parquet argument {name} has the wrong type",
                    found=repr(value),
                    expected=known[name],
                )
        if named.get("compression", "zstd") is None:
            named["compression"] = "none"
        if str(named.get("compression", "zstd")).lower() != "zstd":
            named.setdefault("level", None)
        return cls(**named)

    def writer_arguments(self, schema: Any = (), first: Any = None) -> dict[str, Any]:
        """Keyword arguments of `pyarrow.parquet.ParquetWriter` for a table of this schema.

        `first` are the rows that decide which columns get a dictionary, if the settings leave that
        open.
        """
        codec = self.compression.lower()
        present = {column.name for column in schema}
        encodings = {name: kind for name, kind in self.encodings if name in present}
        others = [column for column in schema if column.name not in encodings]
        dictionary: bool | list[str] = bool(self.dictionary)
        if self.dictionary is None and first is not None:
            dictionary = [c.name for c in others if _repeats(first.column(c.name))]
        elif encodings and self.dictionary:
            dictionary = [leaf for column in others for leaf in _leaves(column)]
        return {
            "version": "2.6",
            "compression": codec,
            "compression_level": self.level if codec in _LEVELS else None,
            "use_content_defined_chunking": self._chunking(),
            "write_page_checksum": self.page_checksum,
            "write_statistics": self.statistics,
            "use_dictionary": dictionary,
            "column_encoding": encodings or None,
            "write_page_index": self.page_index,
            "store_schema": self.arrow_schema,
            "data_page_size": self.data_page_size,
        }

    def _chunking(self) -> bool | dict[str, int]:
        if not self.content_defined_chunking or self.chunk_bytes is None:
            return self.content_defined_chunking
        low, high = self.chunk_bytes
        return {"min_chunk_size": low, "max_chunk_size": high, "norm_level": 0}


def _is_range(pair: tuple[Any, ...]) -> bool:
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in pair)
    return len(pair) == 2 and whole and bool(1 <= pair[0] < pair[1] <= _MOST_CHUNK_BYTES)


def _repeats(column: Any) -> bool:
    """Whether a column has few distinct values, each of them often.

    Lists and structs count as columns that do not repeat: their values cannot be counted.
    """
    if pa.types.is_nested(column.type) or not len(column):
        return False
    try:
        different = pc.count_distinct(column, mode="all").as_py()
    except pa.ArrowNotImplementedError:  # a type that Arrow does not hash
        return False
    return bool(different <= min(_MOST_REPEATED, len(column) // _TIMES_REPEATED))


def _leaves(column: Any, prefix: str = "") -> list[str]:
    """Paths of the Parquet columns of an Arrow column."""
    path = prefix + column.name
    if pa.types.is_map(column.type):
        parts = (column.type.key_field, column.type.item_field)
        return [leaf for part in parts for leaf in _leaves(part, f"{path}.key_value.")]
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return _leaves(column.type.value_field, f"{path}.list.")
    if pa.types.is_struct(column.type):
        return [leaf for part in column.type for leaf in _leaves(part, f"{path}.")]
    return [path]


def _fits(value: object, kind: str) -> bool:
    kinds = {"str": str, "bool": bool, "int": int, "tuple[tuple[str,": tuple, "tuple[int,": tuple}
    if value is None:
        return "None" in kind or kind == "str"
    expected = kinds[kind.partition(" ")[0]]
    return isinstance(value, expected) and (expected is bool or not isinstance(value, bool))


class Writer:
    """Write a table of any length batch by batch; row groups are full except before a `cut`.

    Parameters
    ----------
    file
        Binary file to write to; it is not closed.
    schema
        Arrow schema of the batches; written in plain types, see `columns.plain_schema`.
    settings
        How to write.
    before
        Bytes to write after the first four, such as stored row groups.
    """

    def __init__(
        self,
        file: BinaryIO,
        schema: Any,
        settings: ParquetSettings | None = None,
        before: Iterable[bytes] = (),
    ) -> None:
        self._settings = settings or ParquetSettings()
        self.schema = plain_schema(schema)
        self._pending: list[Any] = []
        self._rows = 0
        self._file = file
        self._before = before
        self._opened: Any = None

    def write(self, batch: Any) -> None:
        """Add the rows of a table or record batch whose columns are those of the schema."""
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        with translated(_WRITING, "the table cannot be written"):
            self._add(table)

    def cut(self) -> int:
        """End the row group, so that the next rows begin another; returns its end in the file."""
        with translated(_WRITING, "the table cannot be written"):
            self._flush()
        return self._file.tell()

    def close(self, key_values: Mapping[str, str] | None = None) -> Any:
        """Write the remaining rows and the footer, with `key_values` as metadata of the file.

        Returns the `pyarrow.parquet.FileMetaData`.
        """
        with translated(_WRITING, "the table cannot be written"):
            return self._finish(key_values)

    def write_all(self, table: Any) -> None:
        """Write a whole table, and close."""
        with translated(_WRITING, "the table cannot be written"):
            self._add(table)
            self._finish()

    def _add(self, table: Any) -> None:
        if not table.schema.equals(self.schema, check_metadata=True):
            table = plain_table(table)
            if not table.schema.equals(self.schema):
                table = table.select(self.schema.names).cast(self.schema)
        self._pending.append(table)
        self._rows += table.num_rows
        if self._rows >= self._settings.row_group_size:
            self._write_full_groups()

    def _finish(self, key_values: Mapping[str, str] | None = None) -> Any:
        writer = self._flush()
        if key_values:
            writer.add_key_value_metadata(dict(key_values))
        writer.close()
        return writer.writer.metadata

    def _flush(self) -> Any:
        table = pa.concat_tables(self._pending or [self.schema.empty_table()])
        writer = self._writer(table)
        if self._rows:
            writer.write_table(table)
            self._pending, self._rows = [], 0
        return writer

    def _write_full_groups(self) -> None:
        size = self._settings.row_group_size
        table = pa.concat_tables(self._pending)
        full = self._rows - self._rows % size
        self._writer(table).write_table(table.slice(0, full), row_group_size=size)
        self._pending = [table.slice(full)]
        self._rows -= full

    def _writer(self, table: Any) -> Any:
        """The pyarrow writer; its settings depend on the first rows, however they are batched."""
        if self._opened is None:
            first = table.slice(0, self._settings.row_group_size)
            self._opened = pq.ParquetWriter(
                self._file,
                self.schema,
                memory_pool=SMALL_POOL,  # holds at most pages and a row group
                **self._settings.writer_arguments(self.schema, first),
            )
            for block in self._before:
                self._file.write(block)
        return self._opened


def joined_footer(
    schema: Any, settings: ParquetSettings, key_values: Mapping[str, str], parts: Sequence[Any]
) -> bytes:
    """The end of a file with the row groups that several `pyarrow.parquet.FileMetaData` describe.

    Raises
    ------
    InvalidInputError
        Their columns differ from `schema`.
    """
    empty, end = io.BytesIO(), io.BytesIO()
    Writer(cast("BinaryIO", empty), schema, settings).close(key_values)
    what = "the new rows do not have the columns of the stored ones"
    hint = "write the file again from all of them"
    with translated({**_WRITING, RuntimeError: InvalidInputError}, what, hint=hint):
        joined = pq.read_metadata(empty)
        for part in parts:
            joined.append_row_groups(part)
        joined.write_metadata_file(end)
    return end.getvalue()[4:]


def write_table(table: Any, file: BinaryIO, settings: ParquetSettings | None = None) -> None:
    """Write a whole Arrow table to a binary file.

    Raises
    ------
    InvalidInputError
        A type that Parquet cannot hold, or columns with one name.
    StorageError
        The file could not be written.
    """
    Writer(file, table.schema, settings).write_all(table)
