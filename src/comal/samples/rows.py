"""Rows in memory as tables, found by position or by name, and what notebooks show of them."""

from __future__ import annotations

import html
import operator
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self, SupportsIndex, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import (
    ComalError,
    InvalidInputError,
    MissingExtraError,
    NotInContainerError,
    counted,
    shown,
    translated,
)
from comal.lazy import pc
from comal.public import guarded_class
from comal.table.columns import blobs_column, rows_where


class IdIndex:
    """Finds rows by id in about twenty comparisons, once the ids have been sorted."""

    def __init__(self, column: Any) -> None:
        self._column = column
        self._order = np.asarray(pc.sort_indices(column), np.int64)
        self._count = len(column) - column.null_count

    def find(self, name: str) -> npt.NDArray[np.int64]:
        """All rows with this id, ascending."""
        # Arrow orders texts by their bytes. No column holds a lone surrogate, but `name` may.
        wanted = name.encode("utf-8", "surrogatepass")
        low = bisect_left(range(self._count), wanted, key=self._bytes)
        high = bisect_right(range(self._count), wanted, low, key=self._bytes)
        return np.sort(self._order[low:high])

    def _bytes(self, place: int) -> bytes:
        text: str = self._column[int(self._order[place])].as_py()
        return text.encode()


_NO_MASK: dict[type[BaseException], type[ComalError]] = dict.fromkeys(
    (TypeError, ValueError, OverflowError), InvalidInputError
)
"""What Arrow raises for something that is no array of booleans; its own errors are these too."""


@guarded_class
class Rows(ABC):
    """An Arrow table whose columns for navigation stay when others are selected."""

    PROTECTED: ClassVar[Sequence[str]] = ()
    """Columns that navigation needs."""
    COMPUTED: ClassVar[Mapping[str, Any]] = {}
    """Columns that are made when they are asked for, with their Arrow types; they come last."""
    ALIASES: ClassVar[Mapping[str, str]] = {}
    """Other names of columns."""

    _table: Any

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

    __iter__ = None  # rows come by `walk`, columns by `columns`; neither is meant alone

    @abstractmethod
    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`, with what is computed."""

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`.

        Raises
        ------
        MissingExtraError
            pandas is not installed.
        """
        try:
            return self.to_arrow().to_pandas()
        except ImportError as error:
            raise MissingExtraError.of("pandas", "pandas", "to_pandas") from error

    def to_polars(self) -> Any:
        """The rows as a `polars.DataFrame`.

        Raises
        ------
        MissingExtraError
            polars is not installed.
        """
        try:
            import polars as pl  # noqa: PLC0415 - polars is optional
        except ImportError as error:
            raise MissingExtraError.of("polars", "polars", "to_polars") from error
        return pl.from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    @abstractmethod
    def _with(self, table: Any) -> Self:
        """The same with other rows or columns."""

    def head(self, n: int = 5) -> Self:
        """The first `n` rows."""
        return self._with(self._table.slice(0, n))

    def tail(self, n: int = 5) -> Self:
        """The last `n` rows."""
        return self._with(self._table.slice(max(0, len(self) - n)))

    def select(self, columns: Sequence[str]) -> Self:
        """These columns, and those that navigation needs behind them."""
        names = [self.ALIASES.get(name, name) for name in _list_of_names(columns)]
        self._known(names)
        kept = [name for name in self._table.column_names if name in self.PROTECTED]
        wanted = [name for name in names if name not in self.COMPUTED]
        return self._with(self._table.select(list(dict.fromkeys([*wanted, *kept]))))

    def drop(self, columns: Sequence[str]) -> Self:
        """Without these columns.

        Raises
        ------
        InvalidInputError
            A column is not there, or navigation needs it.
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
            Booleans, shape (rows,), of Arrow, NumPy, pandas or a list, or an Arrow expression
            over the columns. A null counts as false.

        Raises
        ------
        InvalidInputError
            Something else, or not as many as there are rows.
        """
        if not isinstance(mask, pc.Expression | pa.Array | pa.ChunkedArray):
            with translated(
                _NO_MASK, "the mask is no array of booleans", found=type(mask).__name__
            ):
                mask = pa.array(mask, pa.bool_(), from_pandas=True)
        with translated(
            _NO_MASK, "booleans that do not fit", where="mask", expected=f"{len(self)} booleans"
        ):
            return self._with(self._table.filter(mask))


def _list_of_names(columns: Any) -> list[str]:
    # A text is a sequence of texts, too, and asking for a single column so is a common slip.
    if isinstance(columns, Iterable) and not isinstance(columns, str):
        names = list(columns)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidInputError(
        "columns are chosen by a list of names", found=shown(columns), expected="['id', ...]"
    )


# -- rows with names -------------------------------------------------------------------------------


_SCANS = 4
"""Look-ups by name that scan the column before an index of it is built."""


@guarded_class
class NamedRows(Rows):
    """An Arrow table with a column of names."""

    _lookups = 0

    @property
    @abstractmethod
    def _names(self) -> Any:
        """What each row is called, an Arrow column of texts."""

    @cached_property
    def _count(self) -> int:
        return len(self)

    @cached_property
    def _ids(self) -> IdIndex:
        return IdIndex(self._names)

    def _row(self, key: SupportsIndex | str) -> int:
        """The row at a position, which may be counted from the end, or with a name."""
        if isinstance(key, str):
            return self._row_of_id(key)
        # Whether any object is a position costs several times what reading a row does.
        if type(key) is not int and not is_position(key):
            raise InvalidInputError(
                "a row is named by position or id",
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
                hint="read them by position",
            )
        some = ", ".join(shown(value) for value in self._names.slice(0, 5).to_pylist())
        raise NotInContainerError(f"no row has the id {shown(name)}", expected=f"{some}, ...")

    def _rows_of(self, name: str) -> npt.NDArray[np.int64]:
        """All rows with a name, ascending."""
        if self._lookups >= _SCANS:
            return self._ids.find(name)
        self._lookups += 1
        # No column holds a lone surrogate, but `name` may.
        wanted = blobs_column([name.encode("utf-8", "surrogatepass")], pa.string())[0]
        return rows_where(pc.equal(self._names, wanted))


def is_position(key: object) -> TypeGuard[SupportsIndex]:
    """Whether `key` is one whole number, of Python or NumPy; arrays have `__index__` too."""
    return (
        isinstance(key, SupportsIndex)
        and not isinstance(key, bool | np.bool_)
        and not isinstance(key, Iterable)
    )


# -- what notebooks show ---------------------------------------------------------------------------


_ROWS = 10
_COLUMNS = 20
_WIDTH = 80


def _cell(value: Any) -> str:
    if isinstance(value, pa.Scalar):
        try:
            value = value.as_py()
        except (ArithmeticError, ValueError):  # a time that Python's do not reach
            value = value.value
    text = value.hex() if isinstance(value, bytes) else str(value)
    return html.escape(text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "...")


def html_table(shown: Any, shape: tuple[int, int]) -> str:
    """The first rows of an Arrow table that stands for one of `shape`, as an HTML table."""
    names = shown.column_names[:_COLUMNS]
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    rows = zip(*(shown.column(place)[:_ROWS] for place in range(len(names))), strict=True)
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
