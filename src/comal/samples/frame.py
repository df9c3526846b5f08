"""Samples in memory: rows that lead to bytes and to children, whatever the format."""

from __future__ import annotations

import html
import operator
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, SupportsIndex, TypeGuard, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import query as queries
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    MissingExtraError,
    NotInContainerError,
    QueryError,
    counted,
    shown,
    translated,
)
from comal.geo.times import values_of
from comal.lazy import pc
from comal.parallel import cached_property, in_thread
from comal.public import guarded_class
from comal.storage import RangeFile
from comal.table.columns import blobs_column, numbers_column, rows_where

Key = SupportsIndex | str
"""A position (a Python or NumPy integer), an id, or ids joined by slashes."""

NUMBER = "\x01row"
"""A column of row numbers in queries. No table has one of this name: readers and writers refuse
control characters in names."""
_SCANS = 4
"""Number of look-ups by name that scan the column before an index is built."""
_NO_MASK: dict[type[BaseException], type[ComalError]] = dict.fromkeys(
    (TypeError, ValueError, OverflowError), InvalidInputError
)
"""What Arrow raises for anything but an array of booleans; its own errors derive from these."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a format stores times, and its other names of columns."""

    times: tuple[str, ...]
    """Columns of times; the first that exists is used."""
    seconds: bool
    """Numbers are seconds since 1970, not microseconds."""
    aliases: Mapping[str, str]
    """Other names of columns."""
    elsewhere: str
    """Appended to hints: what else a caller can do if these columns do not help."""


@guarded_class
class Frame(ABC):
    """Rows of samples that can be navigated, filtered and queried.

    Columns that navigation needs stay when others are selected. A frame never changes; every
    method returns a new one. It can be pickled and used from several threads and processes.
    """

    PROTECTED: ClassVar[Sequence[str]] = ()
    """Columns that navigation needs."""
    COMPUTED: ClassVar[Mapping[str, Any]] = {}
    """Columns that are computed on demand, with their Arrow types; they come last."""
    DIALECT: ClassVar[Dialect]
    VSI: ClassVar[str]
    """The column of GDAL paths to the bytes."""

    placed_by: tuple[str, ...] = ()
    """What located rows in the last `filter_bbox`: ``footprint``, ``centroid``, or both."""

    _table: Any
    _lookups = 0

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [*self._table.column_names, *self.COMPUTED]

    @property
    def schema(self) -> Any:
        """Arrow schema."""
        schema = self._table.schema
        for name, kind in self.COMPUTED.items():
            schema = schema.append(pa.field(name, kind))
        return schema

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self._table.num_rows, self._table.num_columns + len(self.COMPUTED)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    __iter__ = None  # ambiguous: `walk` iterates over rows, `columns` over columns

    @abstractmethod
    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`, with computed columns."""

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`.

        Raises
        ------
        MissingExtraError
            pandas is not installed.
        InvalidMetadataError
            pandas cannot hold a value, such as a time of an unknown zone.
        """
        what = "a column cannot become one of pandas"
        hint = "drop the column, or use to_arrow()"
        try:
            with translated({pa.ArrowException: InvalidMetadataError}, what, hint=hint):
                return self.to_arrow().to_pandas()
        except ImportError as error:
            raise MissingExtraError.of("pandas", "pandas", "to_pandas") from error

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    # -- selecting rows and columns ----------------------------------------------------------------

    @overload
    def __getitem__(self, key: slice) -> Self: ...
    @overload
    def __getitem__(self, key: list[str]) -> Self: ...
    @overload
    def __getitem__(self, key: str | SupportsIndex) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        """A column by name, rows by slice, columns by list; anything else goes to `read`.

        A string with slashes is a path of ids: ``frame["scene_000/imagery/before.tif"]``.
        """
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._with(self._table.slice(start, max(0, stop - start)))
            return self._with(self._table.take(numbers_column(np.arange(start, stop, step))))
        if isinstance(key, list):
            return self.select(key)
        if isinstance(key, str):
            name = key if key in self.columns else self.DIALECT.aliases.get(key, key)
            if name in self.columns:
                return self._shown(name)
        return self.read(key)

    def _shown(self, name: str) -> Any:
        """One of `columns`."""
        return self._table.column(name)

    @abstractmethod
    def _with(self, table: Any) -> Self:
        """The same frame over a table with other rows or columns."""

    def head(self, n: int = 5) -> Self:
        """The first `n` rows."""
        return self._with(self._table.slice(0, n))

    def tail(self, n: int = 5) -> Self:
        """The last `n` rows."""
        return self._with(self._table.slice(max(0, len(self) - n)))

    def select(self, columns: Sequence[str]) -> Self:
        """These columns, followed by those that navigation needs."""
        names = [self.DIALECT.aliases.get(name, name) for name in _list_of_names(columns)]
        self._known(names)
        kept = [name for name in self._table.column_names if name in self.PROTECTED]
        wanted = [name for name in names if name not in self.COMPUTED]
        return self._with(self._table.select(list(dict.fromkeys([*wanted, *kept]))))

    def drop(self, columns: Sequence[str]) -> Self:
        """Without these columns.

        Raises
        ------
        InvalidInputError
            A column does not exist, or navigation needs it.
        """
        columns = _list_of_names(columns)
        self._known(columns)
        needed = [name for name in columns if name in self.PROTECTED or name in self.COMPUTED]
        if needed:
            raise InvalidInputError("a protected column cannot be dropped", found=", ".join(needed))
        return self._with(self._table.drop_columns(list(columns)))

    def _known(self, columns: Sequence[str]) -> None:
        for name in columns:
            if name not in self.columns:
                raise InvalidInputError(
                    f"no column {shown(name)}",
                    expected=", ".join(shown(n) for n in self.columns[:40]),
                )

    def filter(self, mask: Any) -> Self:
        """The rows where `mask` is true.

        Parameters
        ----------
        mask
            Booleans, shape (rows,), as an Arrow, NumPy or pandas array or a list, or an Arrow
            expression over the columns. Null counts as false.

        Raises
        ------
        InvalidInputError
            The mask is something else, or its length is not the number of rows.
        """
        if not isinstance(mask, pc.Expression | pa.Array | pa.ChunkedArray):
            with translated(
                _NO_MASK, "the mask is not an array of booleans", found=type(mask).__name__
            ):
                mask = pa.array(mask, pa.bool_(), from_pandas=True)
        with translated(
            _NO_MASK,
            "the mask does not fit the rows",
            where="mask",
            expected=f"{len(self)} booleans",
        ):
            return self._with(self._table.filter(mask))

    def filter_bbox(
        self, minx: float, miny: float, maxx: float, maxy: float, geometry_col: str = "auto"
    ) -> Self:
        """The rows that have a point in common with a box, edges included.

        Parameters
        ----------
        minx, miny, maxx, maxy
            West, south, east, north in degrees; west > east is a box across the antimeridian.
        geometry_col
            Column of WKB, or of points as text, ``POINT (lon lat)``. ``"auto"`` compares
            footprints: ``istac:geometry`` (transformed to degrees by ``istac:crs``), then the
            outline from ``stac:crs``, ``stac:geotransform`` and the shape of a raster; rows
            without a footprint are compared by centroid. Rows without either never match.
            `placed_by` of the returned frame says which was used.

        Raises
        ------
        InvalidInputError
            The bbox is invalid, or no column gives the location of samples.
        InvalidMetadataError
            PROJ does not know a CRS, or a location in the file is invalid.

        Notes
        -----
        Rows of this frame are compared by their own columns, not by those of their children.
        """
        from comal.samples.filters import box_filter  # noqa: PLC0415 - most only open and read

        bounds = minx, miny, maxx, maxy
        rule = box_filter(bounds, geometry_col, self._table.schema, self.DIALECT)
        mask, by = rule.among(self._table)
        found = self.filter(mask)
        found.placed_by = by
        return found

    def filter_datetime(self, datetime_range: Any, time_col: str = "auto") -> Self:
        """The rows whose time lies in a range, both ends included.

        Parameters
        ----------
        datetime_range
            ``"2023-01-01/2023-12-31"``, one instant, or a pair of texts, datetimes, dates or
            integers of microseconds. ``..`` leaves an end open, a date alone is the whole day,
            times without a zone are UTC.
        time_col
            Column of timestamps, or of numbers in the unit of the format; ``"auto"`` takes
            ``istac:time_start``, else ``stac:time_start`` (the other way round in a Tortilla).
            Null never matches.

        Raises
        ------
        InvalidInputError
            The range is invalid, or there is no column of times.
        """
        from comal.samples.filters import period_filter  # noqa: PLC0415 - as above

        rule = period_filter(datetime_range, time_col, self._table.schema, self.DIALECT)
        return self.filter(rule.matches(self._table.column(rule.column)))

    def where(
        self,
        condition: str,
        params: Mapping[str, Any] | None = None,
        *,
        isolated: bool | queries.Budget = False,
    ) -> Self:
        """The rows for which a condition in SQL holds, such as ``"cloud_cover < 10"``.

        Parameters
        ----------
        condition
            A DuckDB expression over the columns.
        params, isolated
            As for `sql`.

        Raises
        ------
        QueryError
            The condition cannot be parsed, bound or run.
        """
        numbers = numbers_column(np.arange(len(self)))
        # The condition is the caller's own SQL; the engine accepts only one SELECT. Only row
        # numbers come back, so a query can choose rows but cannot change them.
        query = f'SELECT "{NUMBER}" FROM data WHERE ({condition}\n)'  # noqa: S608
        table = self.to_arrow().append_column(NUMBER, numbers)
        rows = _selected(table, query, params, isolated=isolated)[NUMBER]
        return self.filter(pc.is_in(numbers, value_set=rows.combine_chunks()))

    def sql(
        self,
        query: str,
        params: Mapping[str, Any] | None = None,
        *,
        isolated: bool | queries.Budget = False,
    ) -> Any:
        """The result of one SELECT over the rows, which are the table ``data``.

        Parameters
        ----------
        query
            One SELECT in DuckDB's dialect. It can read neither files nor URLs.
        params
            Values of its named parameters (``$name``).
        isolated
            Parse and run in a process with hard limits, for untrusted queries. A
            `comal.query.Budget` sets the limits.

        Returns
        -------
        pyarrow.Table
            Its rows give no access to bytes; use `where` for rows that do.

        Raises
        ------
        QueryError
            It cannot be parsed, bound or run, is not a single SELECT, or makes up paths for GDAL.
        LimitExceededError
            The query exceeded a limit.
        """
        table = self.to_arrow()
        found = _selected(table, query, params, isolated=isolated)
        if self.VSI in found.column_names:
            known = {None, *table[self.VSI].to_pylist()} if self.VSI in table.column_names else {}
            if not set(found[self.VSI].to_pylist()) <= set(known):
                raise QueryError(
                    f"the query changed {self.VSI}, which leads to the bytes of samples",
                    hint="give computed columns other names",
                )
        return found

    # -- rows by position and by name --------------------------------------------------------------

    @property
    @abstractmethod
    def _names(self) -> Any:
        """The name of each row, an Arrow column of strings."""

    @cached_property
    def _count(self) -> int:
        return len(self)

    @cached_property
    def _ids(self) -> IdIndex:
        return IdIndex(self._names)

    def _row(self, key: SupportsIndex | str) -> int:
        """The row at a position (negative: from the end), or with a name."""
        if isinstance(key, str):
            return self._row_of_id(key)
        # `is_position` costs several times as much as reading a row.
        if type(key) is not int and not is_position(key):
            raise InvalidInputError(
                "a row is named by neither a position nor an id",
                found=type(key).__name__,
                hint="filter(mask) selects rows by a mask",
            )
        row = operator.index(key)
        count = self._count
        if not -count <= row < count:
            raise NotInContainerError(
                "no such row",
                found=row,
                expected=f"{-count} to {count - 1}" if count else "no rows",
            )
        return row % count

    def _row_of_id(self, name: str) -> int:
        rows = self._rows_of(name)
        if len(rows) == 1:
            return int(rows[0])
        if len(rows) > 1:
            raise InvalidInputError(
                f"{len(rows)} rows have the id {shown(name)}",
                found="rows " + ", ".join(str(row) for row in rows[:5]),
                hint="read the rows by position",
            )
        some = ", ".join(shown(value) for value in self._names.slice(0, 5).to_pylist())
        expected = f"{some}, ..." if some else "no id: the frame has no rows"
        raise NotInContainerError(f"no row has the id {shown(name)}", expected=expected)

    def _rows_of(self, name: str) -> npt.NDArray[np.int64]:
        """All rows with a name, ascending."""
        if self._lookups >= _SCANS:
            return self._ids.find(name)
        self._lookups += 1
        # No column holds a lone surrogate, but `name` may.
        wanted = blobs_column([name.encode("utf-8", "surrogatepass")], pa.string())[0]
        return rows_where(pc.equal(self._names, wanted))

    # -- bytes of rows -----------------------------------------------------------------------------

    @abstractmethod
    def read(self, key: Key) -> Any:
        """The sample of one row."""

    async def read_async(self, key: Key) -> Any:
        """As `read`, without blocking the event loop."""
        return await in_thread(self.read, key)

    def read_bytes(self, key: Key | Iterable[Key] | None = None, *, verify: bool = True) -> Any:
        """The bytes of one row or of several; adjacent rows share one request.

        Parameters
        ----------
        key
            As for `read`; a sequence gives a list; None is all rows.
        verify
            Compare the bytes with their checksum, if the archive holds one.

        Returns
        -------
        bytes or list of bytes

        Raises
        ------
        InvalidMetadataError
            The bytes are not those of the sample.
        """
        keys, single = _keys(key, len(self))
        found = self._bytes_of(keys, verify=verify)
        return found[0] if single else found

    async def read_bytes_async(
        self, key: Key | Iterable[Key] | None = None, *, verify: bool = True
    ) -> Any:
        """As `read_bytes`, without blocking the event loop."""
        return await in_thread(self.read_bytes, key, verify=verify)

    @abstractmethod
    def _bytes_of(self, keys: Sequence[Key], *, verify: bool) -> list[bytes]:
        """The bytes of rows, in order."""

    @abstractmethod
    def open(self, key: Key) -> RangeFile:
        """A seekable read-only binary file over the bytes of one row."""

    @abstractmethod
    def leaf(self, key: Key) -> Any:
        """The location of the bytes of one row."""

    @abstractmethod
    def walk(self) -> Iterator[tuple[str, str]]:
        """Every sample with bytes at and below these rows: its path of ids and its GDAL path."""

    # -- display -----------------------------------------------------------------------------------

    def _size(self) -> str:
        rows, columns = self.shape
        return f"{counted(rows, 'row')}, {counted(columns, 'column')}"

    def __repr__(self) -> str:
        first = self._table.slice(0, 10).to_string(preview_cols=8)
        return f"<{type(self).__name__}: {self._size()}>\n{first}"

    def _repr_html_(self) -> str:
        return html_table(self.head(10).to_arrow(), self.shape)


def _list_of_names(columns: Any) -> list[str]:
    # A string is a sequence of strings too, and passing one for a single column is a common slip.
    if isinstance(columns, Iterable) and not isinstance(columns, str):
        names = list(columns)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidInputError(
        "the columns are not a list of names", found=shown(columns), expected="['id', ...]"
    )


class IdIndex:
    """Finds rows by id in about twenty comparisons, once the ids have been sorted."""

    def __init__(self, column: Any) -> None:
        self._column = column
        self._order = np.asarray(pc.sort_indices(column), np.int64)
        self._count = len(column) - column.null_count

    def find(self, name: str) -> npt.NDArray[np.int64]:
        """All rows with this id, ascending."""
        # Arrow sorts strings by their bytes. No column holds a lone surrogate, but `name` may.
        wanted = name.encode("utf-8", "surrogatepass")
        low = bisect_left(range(self._count), wanted, key=self._bytes)
        high = bisect_right(range(self._count), wanted, low, key=self._bytes)
        return np.sort(self._order[low:high])

    def _bytes(self, place: int) -> bytes:
        text: str = self._column[int(self._order[place])].as_py()
        return text.encode()


def _keys(key: Any, count: int) -> tuple[list[Any], bool]:
    """The caller's keys, and whether it passed a single one."""
    if key is None:
        return list(range(count)), False
    if type(key) is int or isinstance(key, str) or is_position(key):
        return [key], True
    if not isinstance(key, Iterable):
        raise InvalidInputError(
            "not a key", found=type(key).__name__, expected="an id, a position, or several of them"
        )
    return key.tolist() if isinstance(key, np.ndarray) else list(key), False


def _selected(
    table: Any, query: str, params: Mapping[str, Any] | None, *, isolated: bool | queries.Budget
) -> Any:
    tables = {"data": table}
    if not isolated:
        return queries.engine().select(query, params, tables=tables)
    budget = isolated if isinstance(isolated, queries.Budget) else None
    return queries.select_isolated(query, params, tables=tables, budget=budget)


def is_position(key: object) -> TypeGuard[SupportsIndex]:
    """Whether `key` is one integer of Python or NumPy; arrays have `__index__` too."""
    return (
        isinstance(key, SupportsIndex)
        and not isinstance(key, bool | np.bool_)
        and not isinstance(key, Iterable)
    )


# -- HTML for notebooks ----------------------------------------------------------------------------


_ROWS = 10
_COLUMNS = 20
_WIDTH = 80


def _cell(value: Any) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return html.escape(text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "...")


def html_table(shown: Any, shape: tuple[int, int]) -> str:
    """The first rows of an Arrow table as HTML, for a table whose full size is `shape`."""
    names = shown.column_names[:_COLUMNS]
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    columns = (values_of(shown.column(place)[:_ROWS]) for place in range(len(names)))
    rows = zip(*columns, strict=True)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return (
        f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{counted(shape[0], 'row')}, {counted(shape[1], 'column')}</p></div>"
    )


def html_facts(shown: Mapping[str, object]) -> str:
    """Names and values as an HTML table."""
    rows = "".join(
        f"<tr><th>{_cell(key)}</th><td>{_cell(value)}</td></tr>" for key, value in shown.items()
    )
    return f"<div><table><tbody>{rows}</tbody></table></div>"
