"""Rows in memory with access to their bytes and children (7.2.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Self

import pyarrow as pa

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotInContainerError,
    shown,
)
from comal.geo.places import TIMES
from comal.names import illegal
from comal.parallel import cached_property
from comal.public import guarded_class
from comal.samples.frame import Dialect, Frame, Key
from comal.storage import RangeFile
from comal.taco import spec
from comal.taco.reading.level import check_ids
from comal.taco.reading.spans import Leaf, read_leaves
from comal.taco.reading.view import Home

DIALECT = Dialect(TIMES, seconds=False, aliases={}, elsewhere=", or another level=")

_PLAIN_PATH = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*", re.ASCII).fullmatch
"""Matches paths that are certainly legal, which spares calling `names.illegal` for each part."""


@guarded_class
class TacoDataFrame(Frame):
    """Rows of a dataset as an Arrow table that can be navigated.

    A FILE row gives a GDAL path or its bytes, a FOLDER row a frame of its children, which is read
    from the level tables, not from the folder's own metadata. Columns that this needs (``id``,
    ``type`` and ``internal:*``) stay when others are selected.

    The frame never changes; every method returns a new one. It can be pickled and used from
    several threads.
    """

    PROTECTED = spec.PROTECTED_COLUMNS
    DIALECT = DIALECT
    VSI = spec.GDAL_VSI

    def __init__(self, table: Any, home: Home, *, queried: bool = False) -> None:
        self._table = table
        self._home = home
        self._queried = queried
        """Whether a query may have changed columns: navigation then uses those of the levels."""
        if spec.ID in table.column_names and pa.types.is_string(table.schema.field(spec.ID).type):
            check_ids(table.column(spec.ID), "data")

    def _with(self, table: Any) -> Self:
        made = type(self)(table, self._home, queried=self._queried)
        made.placed_by = self.placed_by
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TacoDataFrame, queried=self._queried), (self._table, self._home)

    def check_paths(self) -> None:
        """Refuse GDAL paths that a query has invented."""
        names = self._table.column_names
        if spec.GDAL_VSI not in names or not len(self):
            return
        if self._home.identifies(names):
            _ = self._own
        else:
            self._home.check_paths(self._table.column(spec.GDAL_VSI))

    # -- navigation --------------------------------------------------------------------------------

    def read(self, key: Key) -> Any:
        """The GDAL path or the children of one row.

        Parameters
        ----------
        key
            Position (negative counts from the end), id, or ids joined by slashes.

        Returns
        -------
        str or TacoDataFrame
            The GDAL path of a FILE; the children of a FOLDER.

        Raises
        ------
        NotInContainerError
            No such row.
        InvalidInputError
            Two rows have this id, or the frame lacks columns that navigation needs.
        InvalidMetadataError
            The row contradicts the container.
        """
        frame, row = self._at(key)
        if frame._is_folder(row):  # noqa: SLF001 - same class, as below
            return frame._children(row)  # noqa: SLF001
        leaf = frame._leaf(row)  # noqa: SLF001
        if leaf.size < 0 and "://" not in leaf.source.href:
            # Refuses symbolic links out of the dataset, and raises now if the file is missing.
            leaf.source.stat(leaf.entry)
        return leaf.vsi()

    def _at(self, key: Key) -> tuple[TacoDataFrame, int]:
        """The frame and the row of a key, or of a path of ids."""
        if not isinstance(key, str) or "/" not in key:
            return self, self._row(key)
        *folders, last = key.strip("/").split("/")
        frame = self
        for name in folders:
            row = frame._row(name)
            if not frame._is_folder(row):
                raise NotInContainerError(
                    "a FILE has no children", where=shown(key), found=shown(name)
                )
            frame = frame._children(row)
        return frame, frame._row(last)  # noqa: SLF001

    def _bytes_of(self, keys: Sequence[Key], *, verify: bool) -> list[bytes]:
        return read_leaves([self.leaf(key) for key in keys], verify=verify)

    def open(self, key: Key) -> RangeFile:
        """A seekable read-only binary file over the bytes of one FILE row."""
        return self.leaf(key).checked().file()

    def walk(self) -> Iterator[tuple[str, str]]:
        """Every FILE at and below these rows: its path of ids and its GDAL path, in order."""
        for row in range(len(self)):
            name = self._text(spec.ID, row)
            below = self.read(row)
            if isinstance(below, TacoDataFrame):
                for path, vsi in below.walk():
                    yield f"{name}/{path}", vsi
            else:
                yield name, below

    def leaf(self, key: Key) -> Leaf:
        """The location of the bytes of one FILE row."""
        frame, row = self._at(key)
        if frame._is_folder(row):  # noqa: SLF001 - same class, as below
            raise InvalidInputError(
                "a FOLDER has no bytes of its own",
                where=shown(key),
                hint="read one of its children",
            )
        return frame._leaf(row)  # noqa: SLF001

    # -- one row -----------------------------------------------------------------------------------

    @property
    def _names(self) -> Any:
        return self._column(spec.ID)

    @cached_property
    def _own(self) -> Any:
        """The columns for navigation to bytes and children."""
        return self._home.own_rows(self._table) if self._queried else self._table

    @cached_property
    def _by_name(self) -> dict[str, Any]:
        return dict(zip(self._own.column_names, self._own.columns, strict=True))

    def _column(self, name: str) -> Any:
        column = self._by_name.get(name)
        if column is None:
            raise InvalidInputError(
                f"the rows have no column {name}, which navigation needs",
                hint="keep id, type and the internal: columns in the query (SELECT *)",
            )
        return column

    def _text(self, name: str, row: int) -> str:
        value = self._column(name)[row].as_py()
        if not isinstance(value, str):
            raise InvalidMetadataError(f"{name} is not text", where=f"row {row}", found=repr(value))
        return value

    def _number(self, name: str, row: int) -> int:
        value = self._column(name)[row].as_py()
        if not isinstance(value, int) or value < 0:
            raise InvalidMetadataError(
                f"{name} is not a whole number of at least 0",
                where=f"row {row}",
                found=repr(value),
                hint="'comal check' lists what is wrong",
            )
        return value

    def _is_folder(self, row: int) -> bool:
        kind = self._text(spec.TYPE, row)
        if kind not in {spec.FILE, spec.FOLDER}:
            raise InvalidMetadataError(
                "type is neither FILE nor FOLDER", where=f"row {row}", found=shown(kind)
            )
        return kind == spec.FOLDER

    def _source_file(self, row: int) -> str | None:
        return self._text(spec.SOURCE_FILE, row) if self._home.is_labelled else None

    def _path(self, row: int) -> str:
        """The row's path below DATA/; raises if a part cannot be an id."""
        name = self._text(spec.ID, row)
        path = name
        column = self._by_name.get(spec.RELATIVE_PATH)
        if column is not None:
            stored = column[row].as_py()
            path = stored.rstrip("/") if isinstance(stored, str) and stored else name
        if _PLAIN_PATH(path):
            return path
        for part in path.split("/"):
            reason = illegal(part)
            if reason is not None:
                raise InvalidMetadataError(
                    f"a part of the path {reason}", where=f"row {row}", found=shown(path)
                )
        return path

    def _leaf(self, row: int) -> Leaf:
        container, inner = self._home.resolve(self._source_file(row))
        path = self._path(row)
        if container.kind == "folder":
            return Leaf(container, None, path)
        leaf = Leaf(
            container, inner, path, self._number(spec.OFFSET, row), self._number(spec.SIZE, row)
        )
        known = leaf.source.known()
        if known is not None and leaf.offset + leaf.size > known.size:
            raise InvalidMetadataError(
                "a span lies outside the file",
                where=leaf.where,
                expected=f"a span within {known.size} bytes",
            )
        return leaf

    def _children(self, row: int) -> TacoDataFrame:
        index = self._path(row).count("/") + 1
        current_id = self._number(spec.CURRENT_ID, row)
        rows = self._home.children(self._source_file(row), index, current_id)
        return TacoDataFrame(rows, self._home)

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`."""
        return self._table
