"""Items as an Arrow table, with access to their bytes and to nested items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from comal import strictjson
from comal.errors import InvalidInputError, NotInContainerError, shown
from comal.lazy import pc
from comal.parallel import cached_property, in_thread
from comal.plan import Piece
from comal.public import guarded_class
from comal.samples.frame import Dialect, Frame, Key
from comal.samples.payloads import Spans
from comal.storage import RangeFile, gdal
from comal.table.columns import texts_column
from comal.tortilla import spec
from comal.tortilla.archive import (
    Address,
    Home,
    Leaf,
    Level,
    flattened,
    levels_below,
    nested_rows,
)

_WALKED = 256
"""Rows that `walk` handles together; their nested files are opened at once."""


@guarded_class
class TortillaFrame(Frame):
    """Items of a Tortilla or a TACO v1 as an Arrow table that can be navigated.

    Columns are those of the footer, with the names and types of the specification; offsets count
    from the beginning of the file, also in nested files. The last column, ``internal:subfile``, is
    the path of the item for GDAL; with several files ``internal:part`` is the index of the file
    that contains the item.

    The frame never changes; every method returns a new one. It can be pickled and used from
    several threads and processes.
    """

    PROTECTED = tuple(spec.NAVIGATION)
    COMPUTED = MappingProxyType({spec.SUBFILE: pa.string()})
    DIALECT = Dialect(
        (spec.TIME_START, "istac:time_start"),
        seconds=True,
        aliases=spec.ALIASES,
        elsewhere="; nested items are reached by flatten(), and create(..., stac=True) fills in the"
        " columns of rasters",
    )
    VSI = spec.SUBFILE

    def __init__(
        self, table: Any, home: Home, *, depth: int = 0, kept: Sequence[Piece] = ()
    ) -> None:
        self._table = table
        self._home = home
        self._depth = depth
        self._kept = tuple(kept)

    def _with(self, table: Any) -> Self:
        made = type(self)(table, self._home, depth=self._depth, kept=self._kept)
        made.placed_by = self.placed_by
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TortillaFrame, depth=self._depth), (self._table, self._home)

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
        """The collection of a TACO v1, which every part of a set repeats; None for a Tortilla.

        Raises
        ------
        InvalidMetadataError
            It is not a JSON object.
        """
        for part in self._home.parts:
            if part.collection is not None:
                where = f"{part.source.href}: collection"
                return strictjson.loads(part.collection, where, self._home.limits)
        return None

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

    def _shown(self, name: str) -> Any:
        return self._subfiles if name == spec.SUBFILE else self._table.column(name)

    # -- navigation --------------------------------------------------------------------------------

    def read(self, key: Key) -> Any:
        """The content of one row.

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
            The row does not exist.
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

    def _bytes_of(self, keys: Sequence[Key], *, verify: bool) -> list[bytes]:
        del verify  # a Tortilla holds no checksums
        if all(isinstance(key, int) for key in keys):
            return self._home.read(self._home.spans(self._table, self._rows_at(keys)), self._kept)
        found = [self._located(key) for key in keys]
        kept = {piece.offset: piece for frame, _ in found for piece in frame._kept}  # noqa: SLF001
        places = [frame._address(row) for frame, row in found]  # noqa: SLF001 - same class
        columns = np.array(places, np.int64).T
        return self._home.read(Spans(self._home.sources, *columns), tuple(kept.values()))

    def open(self, key: Key) -> RangeFile:
        """A seekable read-only binary file over the bytes of one row."""
        return self.leaf(key).file()

    def vsi(self, key: Key) -> str:
        """The GDAL path of one row, whatever its format.

        Raises
        ------
        InvalidInputError
            The file is in a storage that GDAL cannot read.
        """
        leaf = self.leaf(key)
        return gdal.subfile_one(leaf.source.vsi(), leaf.offset, leaf.size)

    def leaf(self, key: Key) -> Leaf:
        """The bytes of one row: source, offset, size and format."""
        frame, row = self._located(key)
        one = frame._address(row)  # noqa: SLF001 - same class
        source = self._home.sources[one.part]
        return Leaf(source, one.offset, one.size, frame._format(row))  # noqa: SLF001

    def flatten(self, columns: Sequence[str] | None = None) -> TortillaFrame:
        """All items at and below these rows that are not nested files, depth first.

        The nested files of one depth are opened together: a round trip per depth, not per file.
        ``internal:path`` has the ids of each path, joined by slashes; `read` accepts it.

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

    def levels(self, columns: Sequence[str] | None = ()) -> list[Level]:
        """These rows and the items of the nested files below them, a level for each depth.

        Levels below hold the columns that navigation needs, and those of `columns`; None keeps all.
        """
        top = Level.of(self._table)
        return [top, *levels_below(top, self._depth, self._home, columns)]

    def walk(self) -> Iterator[tuple[str, str]]:
        """Every item at and below these rows: its path of ids and its GDAL path, depth first."""
        for start in range(0, len(self), _WALKED):
            flat = self[start : start + _WALKED].flatten(())
            paths, subfiles = flat[spec.PATH].to_pylist(), flat[spec.SUBFILE].to_pylist()
            yield from zip(paths, subfiles, strict=True)

    def _nested(self, row: int) -> TortillaFrame:
        (nested,) = self._home.nested([self._address(row)], self._depth + 1)
        table = nested.items
        if spec.PART in self._table.column_names:
            parts = pa.repeat(self._table[spec.PART][row], table.num_rows)
            table = table.append_column(spec.PART, parts)
        return TortillaFrame(table, self._home, depth=self._depth + 1, kept=nested.kept)

    def _located(self, key: Key) -> tuple[TortillaFrame, int]:
        """The frame and the row at a path of ids."""
        frame, rest = self, key
        while isinstance(rest, str) and "/" in rest and not frame._has(rest):
            head = _heads(rest.strip("/"), frame)
            if head is None:
                raise NotInContainerError(
                    "no such path",
                    where=shown(str(key)),
                    found=f"no id at the beginning of {shown(rest)}",
                )
            row = frame._row(head)
            rest = rest.strip("/")[len(head) + 1 :]
            if frame._format(row) != spec.TORTILLA:
                raise NotInContainerError(
                    f"an item of format {shown(frame._format(row))} holds no items",
                    where=shown(str(key)),
                    found=shown(head),
                )
            frame = frame._nested(row)
        return frame, frame._row(rest)  # noqa: SLF001 - same class

    def _rows_at(self, keys: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The rows at some positions, which may be negative."""
        count = len(self)
        if len(keys) and not (-count <= min(keys) and max(keys) < count):
            for key in keys:
                self._row(key)  # raises for the first that does not exist
        rows = np.array(keys, np.int64)
        rows[rows < 0] += count
        return rows

    # -- one row -----------------------------------------------------------------------------------

    def _has(self, name: str) -> bool:
        return len(self._rows_of(name)) > 0

    @property
    def _names(self) -> Any:
        """The names of rows: their paths if levels are mixed, else their ids."""
        mixed = spec.PATH in self._table.column_names
        return self._table[spec.PATH if mixed else spec.ID]

    def _address(self, row: int) -> Address:
        (address,) = self._home.addresses(self._table, np.array([row]))
        return address

    def _format(self, row: int) -> str:
        return str(self._table[spec.FILE_FORMAT][row].as_py())

    def _size(self) -> str:
        return f"{super()._size()}, {len(nested_rows(self._table)):,} nested"


def _vsi_or_none(source: Any) -> str | None:
    try:
        return str(source.vsi())
    except InvalidInputError:
        return None  # GDAL cannot read this storage; comal still can


def _heads(path: str, frame: TortillaFrame) -> str | None:
    """The shortest prefix of a path that is an id of the frame; ids may contain slashes."""
    place = path.find("/")
    while place >= 0:
        if frame._has(path[:place]):  # noqa: SLF001 - same module
            return path[:place]
        place = path.find("/", place + 1)
    return None
