"""Items as an Arrow table that leads to their bytes and to what is nested in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self, overload

import numpy as np
import pyarrow as pa

from comal import arrowcompute as pc
from comal import query as queries
from comal.errors import InvalidInputError, NotInContainerError, counted, shown
from comal.parallel import in_thread
from comal.plan import Piece
from comal.public import guarded_class
from comal.samples.rows import NamedRows, html_table
from comal.storage import RangeFile, gdal
from comal.table.columns import numbers_column, texts_column
from comal.tortilla import spec
from comal.tortilla.reading.archive import (
    Home,
    Leaf,
    Leaves,
    Nested,
    leaf_file,
    read_leaves,
)
from comal.tortilla.reading.flat import (
    addresses_of,
    flattened,
    nested_rows,
    spans_of,
)

Key = int | str

_WALKED = 256
"""Rows that are walked at once; their nested files are opened together."""


@guarded_class
class TortillaFrame(NamedRows):
    """Items of a Tortilla or a TACO v1 as an Arrow table that can be navigated.

    Columns are those of the footer, with the names and types of the specification; offsets count
    from the beginning of the file, also in what is nested. The last column, ``internal:subfile``,
    is the path by which GDAL opens the item; of several files ``internal:part`` says which holds
    the item.

    The frame never changes; every method returns a new one. It can be pickled and used from
    several threads and processes.
    """

    PROTECTED = tuple(spec.NAVIGATION)
    COMPUTED = MappingProxyType({spec.SUBFILE: pa.string()})
    ALIASES = spec.ALIASES

    def __init__(
        self, table: Any, home: Home, *, depth: int = 0, kept: Sequence[Piece] = ()
    ) -> None:
        self._table = table
        self._home = home
        self._depth = depth
        self._kept = tuple(kept)
        self.placed_by: tuple[str, ...] = ()
        """What found rows in the last `filter_bbox`: ``footprint``, ``centroid``, or both."""

    def _with(self, table: Any) -> Self:
        made = type(self)(table, self._home, depth=self._depth, kept=self._kept)
        made.placed_by = self.placed_by
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._table, self._home, self._depth)

    @property
    def files(self) -> list[str]:
        """The files behind the frame, in the order of their parts."""
        return [part.source.href for part in self._home.parts]

    @property
    def home(self) -> Home:
        """The files behind the frame, opened."""
        return self._home

    @cached_property
    def collection(self) -> dict[str, Any] | None:
        """The collection of a TACO v1, None for a Tortilla.

        Raises
        ------
        InvalidMetadataError
            It is no JSON object.
        """
        return self._home.collection()

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`, with ``internal:subfile``."""
        return self._table.append_column(spec.SUBFILE, self._subfiles)

    @cached_property
    def _subfiles(self) -> Any:
        table, parts = self._table, self._home.parts
        paths = [_vsi_or_none(part.source) for part in parts]
        if len(parts) == 1 and paths[0] is not None:
            return gdal.subfile(paths[0], table[spec.OFFSET], table[spec.LENGTH])
        if spec.PART not in table.column_names:
            return pa.nulls(table.num_rows, pa.string())
        spans = [pc.cast(table[name], pa.string()) for name in (spec.OFFSET, spec.LENGTH)]
        prefixes = texts_column(paths).take(table[spec.PART].combine_chunks())
        span = pc.binary_join_element_wise(*spans, "_")
        tail = pc.binary_join_element_wise(",", prefixes, "")
        return pc.binary_join_element_wise("/vsisubfile/", span, tail, "")

    @overload
    def __getitem__(self, key: slice) -> TortillaFrame: ...
    @overload
    def __getitem__(self, key: list[str]) -> TortillaFrame: ...
    @overload
    def __getitem__(self, key: str | int) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        """A column by name, rows by slice, columns by list, or what `read` gives for anything else.

        A text with slashes is a path of ids: ``frame["roi_0/image"]``.
        """
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._with(self._table.slice(start, max(0, stop - start)))
            return self._with(self._table.take(numbers_column(np.arange(start, stop, step))))
        if isinstance(key, list):
            return self.select(key)
        if isinstance(key, str):
            if key == spec.SUBFILE:
                return self._subfiles
            name = key if key in self._table.column_names else spec.ALIASES.get(key, key)
            if name in self._table.column_names:
                return self._table.column(name)
        return self.read(key)

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
            Column of points as text, ``POINT (lon lat)``, or of WKB, in degrees. ``"auto"`` takes
            the outline that ``stac:crs``, ``stac:geotransform`` and ``stac:raster_shape`` give, and
            ``stac:centroid`` of rows without one. A row without either lies nowhere. `placed_by`
            of what is returned says which decided.

        Raises
        ------
        InvalidInputError
            No box, or columns that say nothing of where items are.
        InvalidMetadataError
            A CRS that PROJ does not know, or a place that is broken.

        Notes
        -----
        It tells of the rows of this frame by their own columns: `flatten` comes first where those
        of nested items say where they are.
        """
        from comal.tortilla.reading.filtering import box_mask  # noqa: PLC0415 - most open and read

        mask, by = box_mask(self._table, (minx, miny, maxx, maxy), geometry_col)
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
            Column of seconds since 1970, as the specification has times, or of timestamps;
            ``"auto"`` takes ``stac:time_start``, else ``istac:time_start``. Null lies in no range.

        Raises
        ------
        InvalidInputError
            No range, or no column of times.
        """
        from comal.tortilla.reading.filtering import time_mask  # noqa: PLC0415 - as above

        return self.filter(time_mask(self._table, datetime_range, time_col))

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
        from comal.tortilla.reading.filtering import matching  # noqa: PLC0415 - as above

        return self.filter(matching(self.to_arrow(), condition, params, isolated=isolated))

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
        from comal.tortilla.reading.filtering import selected  # noqa: PLC0415 - as above

        return selected(self.to_arrow(), query, params, isolated=isolated)

    # -- navigation --------------------------------------------------------------------------------

    def read(self, key: Key) -> Any:
        """What one row leads to.

        Parameters
        ----------
        key
            Position (negative counts from the end), id, or ids joined by slashes.

        Returns
        -------
        TortillaFrame, bytes or str
            The items of a ``TORTILLA``; the bytes of ``BYTES``; the GDAL path of anything else.

        Raises
        ------
        NotInContainerError
            No such row.
        InvalidInputError
            Two rows have this id.
        InvalidMetadataError, LimitExceededError
            A nested file is broken, or nested too deep.
        """
        frame, row = self._located(key)
        kind = frame._format(row)  # noqa: SLF001 - same class
        if kind == spec.TORTILLA:
            return frame._nested(row)  # noqa: SLF001 - same class
        if kind == spec.BYTES:
            return frame.read_bytes(row)
        return frame.vsi(row)

    async def read_async(self, key: Key) -> Any:
        """As `read`, without blocking the event loop."""
        return await in_thread(self.read, key)

    def read_bytes(self, key: Key | Sequence[Key] | None = None) -> Any:
        """The bytes of one row, or of several; neighbours come in one request.

        Parameters
        ----------
        key
            As for `read`; a sequence gives a list; None is all rows. A nested file has bytes too.

        Returns
        -------
        bytes or list of bytes
        """
        keys, single = self._keys(key)
        leaves, kept = self._leaves(keys)
        found = read_leaves(self._home, leaves, kept)
        return found[0] if single else found

    async def read_bytes_async(self, key: Key | Sequence[Key] | None = None) -> Any:
        """As `read_bytes`, without blocking the event loop."""
        return await in_thread(self.read_bytes, key)

    def open(self, key: Key) -> RangeFile:
        """A seekable read-only binary file over the bytes of one row."""
        return leaf_file(self._home, self.leaf(key))

    def vsi(self, key: Key) -> str:
        """The GDAL path of one row, whatever its format.

        Raises
        ------
        InvalidInputError
            The file lies where GDAL cannot read.
        """
        leaf = self.leaf(key)
        path = self._home.parts[leaf.part].source.vsi()
        return gdal.subfile_one(path, leaf.offset, leaf.size)

    def leaf(self, key: Key) -> Leaf:
        """Where the bytes of one row lie."""
        frame, row = self._located(key)
        return frame._leaf_at(row)  # noqa: SLF001 - same class

    def flatten(self, columns: Sequence[str] | None = None) -> TortillaFrame:
        """All items at and below these rows that are no nested files, depth first.

        The nested files of one depth are opened together: a round trip per depth, not per file.
        ``internal:path`` holds the ids on the way, joined by slashes; `read` takes them.

        Parameters
        ----------
        columns
            Optional columns to keep; None for all.

        Raises
        ------
        InvalidMetadataError, LimitExceededError
            A nested file is broken, or there are more items than the limits allow.
        """
        return self._with(flattened(self._table, self._depth, self._home, columns))

    async def flatten_async(self, columns: Sequence[str] | None = None) -> TortillaFrame:
        """As `flatten`, without blocking the event loop."""
        return await in_thread(self.flatten, columns)

    def walk(self) -> Iterator[tuple[str, str]]:
        """Every item at and below these rows: its path of ids and its GDAL path, depth first."""
        for start in range(0, len(self), _WALKED):
            flat = self[start : start + _WALKED].flatten(())
            paths, subfiles = flat[spec.PATH].to_pylist(), flat[spec.SUBFILE].to_pylist()
            yield from zip(paths, subfiles, strict=True)

    def _nested(self, row: int) -> TortillaFrame:
        (nested,) = self._home.nested(addresses_of(self._table, np.array([row])), self._depth + 1)
        return self._child(nested, row)

    def _child(self, nested: Nested, row: int) -> TortillaFrame:
        table = nested.items
        if spec.PART in self._table.column_names:
            part = self._table[spec.PART][row]
            parts = pa.repeat(part, table.num_rows)
            table = table.append_column(spec.PART, parts)
        return TortillaFrame(table, self._home, depth=self._depth + 1, kept=nested.kept)

    def _located(self, key: Key) -> tuple[TortillaFrame, int]:
        """The frame and the row that a path leads to."""
        frame, rest = self, key
        while isinstance(rest, str) and "/" in rest and not frame._has(rest):
            head = _heads(rest.strip("/"), frame)
            if head is None:
                raise NotInContainerError(
                    "no such path", where=shown(str(key)), found=f"no id that begins {shown(rest)}"
                )
            row = frame._row(head)
            rest = rest.strip("/")[len(head) + 1 :]
            if frame._format(row) != spec.TORTILLA:
                raise NotInContainerError(
                    f"an item of format {shown(frame._format(row))} holds no others",
                    where=shown(str(key)),
                    found=shown(head),
                )
            frame = frame._nested(row)
        return frame, frame._row(rest)  # noqa: SLF001 - same class

    def _leaves(self, keys: Sequence[Key]) -> tuple[Leaves, tuple[Piece, ...]]:
        if all(isinstance(key, int) for key in keys):
            return spans_of(self._table, self._rows_at(keys)), self._kept
        leaves: list[Leaf] = []
        kept: dict[int, Piece] = {piece.offset: piece for piece in self._kept}
        for key in keys:
            frame, row = self._located(key)
            leaves.append(frame._leaf_at(row))  # noqa: SLF001 - same class
            kept |= {piece.offset: piece for piece in frame._kept}  # noqa: SLF001 - same class
        return Leaves.of(leaves), tuple(kept.values())

    def _rows_at(self, keys: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The rows at some positions, which may be counted from the end."""
        count = len(self)
        if len(keys) and not (-count <= min(keys) and max(keys) < count):
            for key in keys:
                self._row(key)  # refuses the first that is none
        rows = np.array(keys, np.int64)
        rows[rows < 0] += count
        return rows

    def _leaf_at(self, row: int) -> Leaf:
        (one,) = addresses_of(self._table, np.array([row]))
        return Leaf(one.part, one.offset, one.size, self._format(row))

    def _keys(self, key: Any) -> tuple[list[Key], bool]:
        if key is None:
            return list(range(len(self))), False
        if isinstance(key, str | int | np.integer):
            return [key if isinstance(key, str) else int(key)], True
        if isinstance(key, range):
            return list(key), False
        return [one if isinstance(one, str) else int(one) for one in key], False

    # -- one row -----------------------------------------------------------------------------------

    def _has(self, name: str) -> bool:
        return len(self._rows_of(name)) > 0

    @property
    def _names(self) -> Any:
        """What a row is called: its path where levels are mixed, else its id."""
        mixed = spec.PATH in self._table.column_names
        return self._table[spec.PATH if mixed else spec.ID]

    def _format(self, row: int) -> str:
        return str(self._table[spec.FILE_FORMAT][row].as_py())

    # -- shown -------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        rows, columns = self.shape
        nested = len(nested_rows(self._table))
        first = self._table.slice(0, 10).to_string(preview_cols=8)
        size = f"{counted(rows, 'row')}, {counted(columns, 'column')}, {nested:,} nested"
        return f"<TortillaFrame: {size}>\n{first}"

    def _repr_html_(self) -> str:
        return html_table(self.head(10).to_arrow(), self.shape)


def _rebuild(table: Any, home: Home, depth: int) -> TortillaFrame:
    return TortillaFrame(table, home, depth=depth)


def _vsi_or_none(source: Any) -> str | None:
    try:
        return str(source.vsi())
    except InvalidInputError:
        return None  # GDAL has no way to this storage; the bytes can be read all the same


def _heads(path: str, frame: TortillaFrame) -> str | None:
    """The shortest beginning of a path that is an id of the frame; ids may hold slashes."""
    place = path.find("/")
    while place >= 0:
        if frame._has(path[:place]):  # noqa: SLF001 - same module
            return path[:place]
        place = path.find("/", place + 1)
    return None
