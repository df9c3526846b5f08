"""A Parquet table over byte ranges: reads only the requested columns and row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, shown, translated
from comal.lazy import pc
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Piece, cut
from comal.table.columns import one_array
from comal.table.decode import BATCH, Decoder, Ranges, SpanFile
from comal.table.footer import BROKEN, Footer

_STREAM_BYTES = 8 << 20


class ParquetTable:
    """A Parquet file that is a span of an object, read lazily.

    Parameters
    ----------
    source
        Fetches ranges; `Footer.span` names the object.
    footer
        From `footer_plan`.
    known
        Pieces of the object that are fetched already and need no request.
    limits
        Bounds on what one `read` may decode.

    Notes
    -----
    Safe to use from several threads, and picklable when `source` is.
    """

    def __init__(
        self,
        source: Ranges,
        footer: Footer,
        *,
        known: Sequence[Piece] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.source = source
        self.footer = footer
        self.limits = limits
        self._known = [*known, footer.tail]
        self.where = footer.where
        """The name of the table in messages."""
        self.schema = footer.schema
        """Arrow schema, in plain types."""
        self.num_rows = int(footer.layout.rows.sum())
        """Rows of the table."""
        self.group_rows = footer.layout.rows
        """Rows of each row group."""
        self.num_row_groups = len(self.group_rows)
        """Row groups of the table."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self.footer.schema.names
        return names

    def read(
        self, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
    ) -> Any:
        """Read columns into an Arrow table.

        All column chunks that are needed and not known are fetched in one call of the source.

        Parameters
        ----------
        columns
            Names, in the order wanted; None for all.
        row_groups
            Indices of row groups; None for all.

        Returns
        -------
        pyarrow.Table
            In plain types, fully validated.

        Raises
        ------
        InvalidInputError
            A column or row group that does not exist.
        InvalidMetadataError
            Bytes that do not decode, or whose checksum is wrong.
        LimitExceededError
            Rows, cells, stored or decoded bytes over the limits.
        """
        names = self._names(columns)
        groups = self._groups(row_groups)
        self._check_size(names, groups)
        return self._decoder(names, groups).table()

    def read_rows(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Rows ``start .. stop`` as an Arrow table; only their row groups are fetched."""
        if not 0 <= start <= stop <= self.num_rows:
            raise InvalidInputError(
                "the rows are not in the table",
                where=self.where,
                found=f"{start} to {stop}",
                expected=f"0 to {self.num_rows}",
            )
        ends = np.cumsum(self.group_rows)
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop, side="left"))
        groups = range(first, min(last + 1, len(ends))) if stop > start else range(0)
        skipped = int(ends[first - 1]) if first and stop > start else 0
        table = self.read(columns, groups)
        return table.slice(start - skipped, stop - start) if stop > start else table

    def take_rows(self, rows: Any, columns: Sequence[str] | None = None) -> Any:
        """The rows with these numbers, in their order, as an Arrow table.

        Parameters
        ----------
        rows
            Row numbers, array of int.
        columns
            Names of columns; None for all.
        """
        wanted = np.asarray(rows, np.int64)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < self.num_rows):
            raise InvalidInputError(
                "the rows are not in the table",
                where=self.where,
                found=f"{wanted.min()} to {wanted.max()}",
                expected=f"0 to {self.num_rows - 1}",
            )
        ends = np.cumsum(self.group_rows)
        of_row = np.searchsorted(ends, wanted, side="right")
        groups, compact = np.unique(of_row, return_inverse=True)
        counts = np.diff(ends, prepend=0)[groups]
        starts_in_table = ends[groups] - counts
        starts_in_read = np.cumsum(counts) - counts
        table = self.read(columns, groups.tolist())
        return table.take(pa.array(wanted - starts_in_table[compact] + starts_in_read[compact]))

    def iter_batches(
        self, columns: Sequence[str] | None = None, rows: int = BATCH
    ) -> Iterator[Any]:
        """Record batches of at most `rows` rows, in order; memory does not grow with the table.

        Row groups are fetched together, about 8 MiB at a time.
        """
        names = self._names(columns)
        for groups in self.runs(names):
            yield from self._decoder(names, groups).batches(rows)

    def only(self, groups: Sequence[int]) -> ParquetTable:
        """The table of some of its row groups."""
        footer = self.footer.only(groups)
        return ParquetTable(self.source, footer, known=self._known, limits=self.limits)

    def groups_of(self, condition: Any) -> list[int]:
        """The row groups that statistics do not rule out for an Arrow expression."""
        every = list(range(self.num_row_groups))
        if condition is None or len(every) < 2:
            return every
        import pyarrow.dataset as ds  # noqa: PLC0415 - pandas comes with it

        with translated(BROKEN, "the Parquet file is broken", where=self.where):
            file = pa.PythonFile(SpanFile(self.source, self.footer.span, self._known), mode="r")
            fragment = ds.ParquetFileFormat().make_fragment(file)
            found = [group.id for group in fragment.subset(condition).row_groups]
        return list(np.flatnonzero(np.isin(self.footer.numbers, found)).tolist())

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        known = self.column_names
        if columns is None:
            return known
        missing = [name for name in columns if name not in known]
        if missing or len(set(columns)) != len(columns):
            raise InvalidInputError(
                "no such column" if missing else "a column is named twice",
                where=self.where,
                found=", ".join(shown(name) for name in missing or columns),
                expected=", ".join(shown(name) for name in known[:30]),
            )
        return list(columns)

    def _groups(self, row_groups: Sequence[int] | None) -> list[int]:
        count = self.num_row_groups
        groups = list(range(count) if row_groups is None else row_groups)
        if groups and not (min(groups) >= 0 and max(groups) < count):
            raise InvalidInputError(
                "no such row group",
                where=self.where,
                found=groups[:10],
                expected=f"0 to {count - 1}",
            )
        # The footer's chunks of a group without rows are not usable.
        rows = self.footer.layout.rows
        return [group for group in groups if rows[group]]

    def _schema(self, names: Sequence[str]) -> Any:
        return pa.schema([self.schema.field(name) for name in names])

    def _check_size(self, names: Sequence[str], groups: Sequence[int]) -> None:
        layout = self.footer.layout
        rows = sum(layout.rows[groups].tolist())
        leaves = self._leaves(names)
        # As floats, which do not wrap: a footer may claim 2 ** 63 - 1 for each.
        values = layout.values[groups][:, leaves].astype(np.float64)
        decoded = (values * layout.width[leaves]).sum()
        self.limits.check("table_rows", rows, self.where)
        self.limits.check("table_cells", max(rows * len(names), int(values.sum())), self.where)
        self.limits.check("leaf_bytes", int(decoded), self.where)

    def _leaves(self, names: Sequence[str]) -> list[int]:
        return [leaf for name in names for leaf in self.footer.layout.leaves[name]]

    def _chunks(self, names: Sequence[str], groups: Sequence[int]) -> list[ByteRange]:
        """Column chunks as spans of the object, which `layout.read_layout` has checked."""
        layout, span = self.footer.layout, self.footer.span
        leaves = self._leaves(names)
        starts = (layout.start[groups][:, leaves] + span.offset).ravel().tolist()
        sizes = layout.size[groups][:, leaves].ravel().tolist()
        return [
            ByteRange(start, size, span.href) for start, size in zip(starts, sizes, strict=True)
        ]

    def _fetched(self, names: Sequence[str], groups: Sequence[int]) -> list[Piece]:
        """One piece for each column chunk; all unknown ones come from one fetch."""
        chunks = self._chunks(names, groups)
        self.limits.check("table_bytes", sum(chunk.size for chunk in chunks), self.where)
        pieces = [cut(self._known, chunk.offset, chunk.size) for chunk in chunks]
        missing = [chunk for chunk, piece in zip(chunks, pieces, strict=True) if piece is None]
        fetched = iter(self.source.fetch(missing) if missing else [])
        return [next(fetched) if piece is None else piece for piece in pieces]

    def _decoder(self, names: Sequence[str], groups: Sequence[int]) -> Decoder:
        pieces = self._fetched(names, groups)
        return Decoder(self.source, self.footer, names, groups, pieces, self.limits)

    def runs(
        self,
        names: Sequence[str],
        groups: Sequence[int] | None = None,
        *,
        stored: int = _STREAM_BYTES,
        cells: int | None = None,
    ) -> Iterator[list[int]]:
        """Runs of row groups, each of at most `stored` bytes and `cells` cells or of one group."""
        layout = self.footer.layout
        sizes = layout.size[:, self._leaves(names)].sum(axis=1).tolist()
        run: list[int] = []
        size = rows = 0
        for group in self._groups(groups):
            size += sizes[group]
            rows += int(layout.rows[group])
            many = cells is not None and rows * len(names) > cells
            if run and (size > stored or many):
                yield run
                run, size, rows = [], sizes[group], int(layout.rows[group])
            run.append(group)
        if run:
            yield run


class Filtered(ParquetTable):
    """The rows of a table that have one of some `values` in a `column`, as one row group.

    That column and those of `held` are read at once and kept, others are read when asked for.
    """

    def __init__(
        self, table: ParquetTable, column: str, values: Sequence[str], held: Sequence[str]
    ) -> None:
        super().__init__(table.source, table.footer, limits=table.limits)
        self._table = table
        rows = table.read(list(dict.fromkeys([column, *held])))
        known = pa.array(values, self.schema.field(column).type)
        self._rows = pc.indices_nonzero(one_array(pc.is_in(rows.column(column), value_set=known)))
        self._held = rows.take(self._rows)
        self.num_rows, self.num_row_groups = len(self._rows), 1
        self.group_rows = np.array([self.num_rows], np.int64)

    def read(
        self, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
    ) -> Any:
        """All rows, which are row group 0."""
        assert row_groups is None or list(row_groups) == [0], "there is one row group"
        names = self._names(columns)
        missing = [name for name in names if name not in self._held.column_names]
        others = self._table.read(missing).take(self._rows) if missing else self._held
        return pa.table(
            [(others if name in missing else self._held).column(name) for name in names], names
        )

    def iter_batches(
        self, columns: Sequence[str] | None = None, rows: int = BATCH
    ) -> Iterator[Any]:
        """As `ParquetTable.iter_batches`."""
        yield from self.read(columns).to_batches(rows)
