"""Rows in memory with the way to their bytes and children (7.2.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self, SupportsIndex, overload

import pyarrow as pa

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotInContainerError,
    counted,
    shown,
)
from comal.names import illegal
from comal.parallel import in_thread
from comal.public import guarded_class
from comal.samples.rows import NamedRows, html_table, is_position
from comal.storage import RangeFile
from comal.taco import spec
from comal.taco.reading.home import Home
from comal.taco.reading.leaves import Leaf, checked_leaf, leaf_file, read_leaves
from comal.taco.reading.level import check_ids

Key = SupportsIndex | str
"""A position, of Python or NumPy, or an id, or ids joined by slashes."""

_PLAIN_PATH = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*", re.ASCII).fullmatch
"""Paths of which `names.illegal` need not be asked, part by part and character by character."""


@guarded_class
class TacoDataFrame(NamedRows):
    """Rows of a dataset as an Arrow table that can be navigated.

    A FILE row leads to a GDAL path or its bytes, a FOLDER row to a frame of its children, which
    comes from the level tables without touching the folder's own metadata. Columns that this needs
    (``id``, ``type`` and ``internal:*``) stay when others are selected.

    The frame never changes; every method returns a new one. It can be pickled and used from
    several threads.
    """

    PROTECTED = spec.PROTECTED_COLUMNS

    def __init__(self, table: Any, home: Home, *, queried: bool = False) -> None:
        self._table = table
        self._home = home
        self._queried = queried
        """Whether a query may have changed columns: then navigation goes by those of the levels."""
        if spec.ID in table.column_names and pa.types.is_string(table.schema.field(spec.ID).type):
            check_ids(table.column(spec.ID), "data")

    def _with(self, table: Any) -> Self:
        return type(self)(table, self._home, queried=self._queried)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._table, self._home, self._queried)

    def check_paths(self) -> None:
        """Refuse GDAL paths that a query has made up."""
        names = self._table.column_names
        if not (self._queried and spec.GDAL_VSI in names and len(self)):
            return
        if self._home.identifies(names):
            _ = self._own
        else:
            self._home.check_paths(self._table.column(spec.GDAL_VSI))

    @overload
    def __getitem__(self, key: slice) -> TacoDataFrame: ...
    @overload
    def __getitem__(self, key: list[str]) -> TacoDataFrame: ...
    @overload
    def __getitem__(self, key: str | SupportsIndex) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        """A column by name, rows by slice, columns by list, or what `read` gives for anything else.

        A text with a slash is a path of ids: ``frame["scene_000/imagery/before.tif"]``.
        """
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._with(self._table.slice(start, max(0, stop - start)))
            return self._with(self._table.take(pa.array(range(start, stop, step), pa.int64())))
        if isinstance(key, list):
            return self.select(key)
        if isinstance(key, str) and key in self.columns:
            return self._table.column(key)
        return self.read(key)

    # -- navigation --------------------------------------------------------------------------------

    def read(self, key: Key) -> Any:
        """What one row leads to.

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
        if isinstance(key, str) and "/" in key:
            return self._walk_to(key)
        row = self._row(key)
        if self._is_folder(row):
            return self._children(row)
        leaf = self._leaf(row)
        if leaf.size < 0 and "://" not in leaf.source.href:
            # Follows no symbolic link out of the dataset, and says now what is missing.
            leaf.source.stat(leaf.entry)
        return leaf.vsi()

    def _walk_to(self, path: str) -> Any:
        *folders, last = path.strip("/").split("/")
        return self._frame_at(path, folders).read(last)

    def _frame_at(self, path: str, folders: Sequence[str]) -> TacoDataFrame:
        frame = self
        for name in folders:
            below = frame.read(name)
            if not isinstance(below, TacoDataFrame):
                raise NotInContainerError(
                    "a FILE has no children", where=shown(path), found=shown(name)
                )
            frame = below
        return frame

    def read_bytes(self, key: Key | Iterable[Key] | None = None, *, verify: bool = True) -> Any:
        """The bytes of one FILE row, or of several; neighbours come in one request.

        Parameters
        ----------
        key
            As for `read`; a sequence gives a list; None is all rows.
        verify
            Compare the bytes with the checksum that the ZIP holds of them.

        Returns
        -------
        bytes or list of bytes

        Raises
        ------
        InvalidMetadataError
            The bytes are not those of the sample.
        """
        keys, single = self._keys(key)
        found = read_leaves([self._leaf_of(k) for k in keys], verify=verify)
        return found[0] if single else found

    async def read_bytes_async(
        self, key: Key | Iterable[Key] | None = None, *, verify: bool = True
    ) -> Any:
        """As `read_bytes`, without blocking the event loop."""
        return await in_thread(self.read_bytes, key, verify=verify)

    def open(self, key: Key) -> RangeFile:
        """A seekable read-only binary file over the bytes of one FILE row."""
        return leaf_file(checked_leaf(self._leaf_of(key)))

    def leaf(self, key: Key) -> Leaf:
        """Where the bytes of one FILE row lie."""
        return self._leaf_of(key)

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

    def _keys(self, key: Any) -> tuple[list[Key], bool]:
        if key is None:
            return list(range(len(self))), False
        if isinstance(key, str) or is_position(key):
            return [key], True
        if not isinstance(key, Iterable):
            raise InvalidInputError(
                "no key", found=type(key).__name__, expected="an id, a position, or several of them"
            )
        return list(key), False

    def _leaf_of(self, key: Key) -> Leaf:
        if isinstance(key, str) and "/" in key:
            *folders, last = key.strip("/").split("/")
            return self._frame_at(key, folders)._leaf_of(last)  # noqa: SLF001 - same class
        row = self._row(key)
        if self._is_folder(row):
            raise InvalidInputError(
                "a FOLDER has no bytes of its own",
                where=shown(key),
                hint="read one of its children",
            )
        return self._leaf(row)

    # -- one row -----------------------------------------------------------------------------------

    @property
    def _names(self) -> Any:
        return self._column(spec.ID)

    @cached_property
    def _own(self) -> Any:
        """The columns that lead to bytes and children."""
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
            raise InvalidMetadataError(f"{name} is no text", where=f"row {row}", found=repr(value))
        return value

    def _number(self, name: str, row: int) -> int:
        value = self._column(name)[row].as_py()
        if not isinstance(value, int) or value < 0:
            raise InvalidMetadataError(
                f"{name} is no position",
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
        """The row's path below DATA/, each part of it a possible id."""
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
                    f"a path with a part that {reason}", where=f"row {row}", found=shown(path)
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
                "a span lies outside of the container",
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

    # -- shown -------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        rows, columns = self.shape
        first = self._table.slice(0, 10).to_string(preview_cols=8)
        return f"<TacoDataFrame: {counted(rows, 'row')}, {counted(columns, 'column')}>\n{first}"

    def _repr_html_(self) -> str:
        return html_table(self.head(10).to_arrow(), self.shape)


def _rebuild(table: Any, home: Home, queried: bool) -> TacoDataFrame:  # noqa: FBT001 - by pickle alone
    return TacoDataFrame(table, home, queried=queried)
