"""Samples in memory: rows that lead to bytes and to children, whatever the format."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, SupportsIndex, overload

import numpy as np

from comal import query as queries
from comal.errors import InvalidInputError, QueryError, counted
from comal.lazy import pc
from comal.parallel import in_thread
from comal.public import guarded_class
from comal.samples.rows import NamedRows, html_table, is_position
from comal.storage import RangeFile
from comal.table.columns import numbers_column

Key = SupportsIndex | str
"""A position, of Python or NumPy, or an id, or ids joined by slashes."""

_NUMBER = "comal_row"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a format writes the columns that tell a time, and what it calls columns otherwise."""

    times: tuple[str, ...]
    """Columns of times; the first that is there is taken."""
    seconds: bool
    """Numbers are seconds since 1970, not microseconds."""
    aliases: Mapping[str, str]
    """Other names of columns."""
    elsewhere: str
    """What else a caller can do where the columns at hand tell nothing; follows a hint."""


@guarded_class
class Frame(NamedRows):
    """Rows of samples that can be navigated, filtered and queried.

    A frame never changes; every method returns a new one. It can be pickled and used from several
    threads and processes.
    """

    DIALECT: ClassVar[Dialect]
    VSI: ClassVar[str]
    """The column of paths by which GDAL opens the bytes."""

    placed_by: tuple[str, ...] = ()
    """What found rows in the last `filter_bbox`: ``footprint``, ``centroid``, or both."""

    @overload
    def __getitem__(self, key: slice) -> Self: ...
    @overload
    def __getitem__(self, key: list[str]) -> Self: ...
    @overload
    def __getitem__(self, key: str | SupportsIndex) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        """A column by name, rows by slice, columns by list, or what `read` gives for anything else.

        A text with slashes is a path of ids: ``frame["scene_000/imagery/before.tif"]``.
        """
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._with(self._table.slice(start, max(0, stop - start)))
            return self._with(self._table.take(numbers_column(np.arange(start, stop, step))))
        if isinstance(key, list):
            return self.select(key)
        if isinstance(key, str):
            name = key if key in self.columns else self.ALIASES.get(key, key)
            if name in self.columns:
                return self._shown(name)
        return self.read(key)

    def _shown(self, name: str) -> Any:
        """One of `columns`."""
        return self._table.column(name)

    # -- rows that are wanted ----------------------------------------------------------------------

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
            footprints: ``istac:geometry`` (brought to degrees by ``istac:crs``), then the outline
            that ``stac:crs``, ``stac:geotransform`` and the shape of a raster give; and of rows
            without one the centroid. A row without either lies nowhere. `placed_by` of what is
            returned says which decided.

        Raises
        ------
        InvalidInputError
            No box, or columns that say nothing of where samples are.
        InvalidMetadataError
            A CRS that PROJ does not know, or a place that is broken.

        Notes
        -----
        It tells of the rows of this frame by their own columns, not by those of their children.
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
            Column of timestamps, or of numbers as the format has times; ``"auto"`` takes the
            first of ``istac:time_start`` and ``stac:time_start``, of a Tortilla the second first.
            Null lies in no range.

        Raises
        ------
        InvalidInputError
            No range, or no column of times.
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
            An expression of DuckDB over the columns.
        params, isolated
            As for `sql`.

        Raises
        ------
        QueryError
            The condition cannot be parsed, bound or run.
        """
        numbers = numbers_column(np.arange(len(self)))
        # The condition is the caller's own SQL; the engine takes one SELECT and nothing else. Only
        # numbers of rows come back, so that a query can choose rows but change nothing in them.
        query = f"SELECT {_NUMBER} FROM data WHERE ({condition}\n)"  # noqa: S608
        table = self.to_arrow().append_column(_NUMBER, numbers)
        rows = _selected(table, query, params, isolated=isolated)[_NUMBER]
        return self.filter(pc.is_in(numbers, value_set=rows.combine_chunks()))

    def sql(
        self,
        query: str,
        params: Mapping[str, Any] | None = None,
        *,
        isolated: bool | queries.Budget = False,
    ) -> Any:
        """What one SELECT makes of the rows, which are the table ``data``.

        Parameters
        ----------
        query
            One SELECT in DuckDB's dialect. It can read neither files nor addresses.
        params
            Values of its named parameters (``$name``).
        isolated
            Run in a process with hard limits, parsing included: for queries of strangers. A
            `comal.query.Budget` says which.

        Returns
        -------
        pyarrow.Table
            It leads to no bytes; `where` gives rows that do.

        Raises
        ------
        QueryError
            It cannot be parsed, bound or run, is no single SELECT, or makes up paths for GDAL.
        LimitExceededError
            It took more than it may.
        """
        table = self.to_arrow()
        found = _selected(table, query, params, isolated=isolated)
        if self.VSI in found.column_names:
            known = {None, *table[self.VSI].to_pylist()} if self.VSI in table.column_names else {}
            if not set(found[self.VSI].to_pylist()) <= set(known):
                raise QueryError(
                    f"the query changed {self.VSI}, which leads to the bytes of samples",
                    hint="call what you compute something else",
                )
        return found

    # -- what rows lead to -------------------------------------------------------------------------

    @abstractmethod
    def read(self, key: Key) -> Any:
        """What one row leads to."""

    async def read_async(self, key: Key) -> Any:
        """As `read`, without blocking the event loop."""
        return await in_thread(self.read, key)

    def read_bytes(self, key: Key | Iterable[Key] | None = None, *, verify: bool = True) -> Any:
        """The bytes of one row, or of several; neighbours come in one request.

        Parameters
        ----------
        key
            As for `read`; a sequence gives a list; None is all rows.
        verify
            Compare the bytes with the checksum that the archive holds of them, where it does.

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
        """Where the bytes of one row lie."""

    @abstractmethod
    def walk(self) -> Iterator[tuple[str, str]]:
        """Every sample with bytes at and below these rows: its path of ids and its GDAL path."""

    # -- shown -------------------------------------------------------------------------------------

    def _size(self) -> str:
        rows, columns = self.shape
        return f"{counted(rows, 'row')}, {counted(columns, 'column')}"

    def __repr__(self) -> str:
        first = self._table.slice(0, 10).to_string(preview_cols=8)
        return f"<{type(self).__name__}: {self._size()}>\n{first}"

    def _repr_html_(self) -> str:
        return html_table(self.head(10).to_arrow(), self.shape)


def _keys(key: Any, count: int) -> tuple[list[Any], bool]:
    """The keys that a caller names, and whether it is a single one."""
    if key is None:
        return list(range(count)), False
    if type(key) is int or isinstance(key, str) or is_position(key):
        return [key], True
    if not isinstance(key, Iterable):
        raise InvalidInputError(
            "no key", found=type(key).__name__, expected="an id, a position, or several of them"
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
