"""Rows in memory as a table: the part of a frame that knows nothing of containers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, MissingExtraError, shown
from comal.taco import spec
from comal.taco.reading.lineage import Int64s


class IdIndex:
    """Finds rows by id in about twenty comparisons, once the ids have been sorted."""

    def __init__(self, column: Any) -> None:
        self._column = column
        self._order = np.asarray(pc.sort_indices(column), np.int64)
        self._count = len(column) - column.null_count

    def find(self, name: str) -> Int64s:
        """All rows with this id."""
        low = bisect_left(range(self._count), name.encode(), key=self._bytes)
        high = bisect_right(range(self._count), name.encode(), low, key=self._bytes)
        return self._order[low:high]

    def _bytes(self, place: int) -> bytes:
        text: str = self._column[int(self._order[place])].as_py()
        # Arrow orders texts by their bytes.
        return text.encode()


class Rows(ABC):
    """An Arrow table whose protected columns (7.2.3) stay when others are selected."""

    _table: Any

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self._table.column_names
        return names

    @property
    def schema(self) -> Any:
        """Arrow schema."""
        return self._table.schema

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self._table.num_rows, self._table.num_columns

    def __len__(self) -> int:
        return int(self._table.num_rows)

    __iter__ = None  # rows come by `walk`, columns by `columns`; neither is meant alone

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`."""
        return self._table

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`.

        Raises
        ------
        MissingExtraError
            pandas is not installed.
        """
        try:
            return self._table.to_pandas()
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
            from comal.table import topolars  # noqa: PLC0415 - polars is optional
        except ImportError as error:
            raise MissingExtraError.of("polars", "polars", "to_polars") from error
        return topolars.from_arrow(self._table)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)

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
        """These columns, and the protected ones behind them."""
        self._known(columns)
        kept = [name for name in self.columns if name in spec.PROTECTED_COLUMNS]
        return self._with(self._table.select(list(dict.fromkeys([*columns, *kept]))))

    def drop(self, columns: Sequence[str]) -> Self:
        """Without these columns.

        Raises
        ------
        InvalidInputError
            A column is not there, or navigation needs it.
        """
        self._known(columns)
        needed = [name for name in columns if name in spec.PROTECTED_COLUMNS]
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
        """The rows where `mask` (Arrow or NumPy booleans, shape (rows,)) is true."""
        return self._with(
            self._table.filter(pa.array(mask) if isinstance(mask, np.ndarray) else mask)
        )
