"""Changes to an existing file: adding and deleting rows, changing columns and ids, and compaction.

A copy of the file gets new items and a new footer, and then replaces the file: any reader sees
the old bytes or the new ones.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from comal import names as name_rules
from comal.errors import (
    InvalidInputError,
    StorageError,
    UnsupportedVersionError,
    counted,
    shown,
    system_errors,
)
from comal.limits import MIB
from comal.parallel import cached_property
from comal.plan import Head
from comal.progress import Progress, silent
from comal.samples.copying import Appender, copy_payloads
from comal.samples.tables import Names, table_of
from comal.storage import StorageConfig, targets
from comal.storage.location import stored
from comal.storage.replacing import NextVersion, changing_file
from comal.storage.targets import check_ending
from comal.table.columns import array_of, one_array
from comal.tortilla import spec
from comal.tortilla.columns import (
    SHORT,
    check_extra,
    check_ids,
    check_values,
    fitted,
    normal,
    unified,
    with_column,
    with_some,
)
from comal.tortilla.creating import described, rows_of, rows_of_ids, stored_items
from comal.tortilla.frame import TortillaFrame
from comal.tortilla.opening import open as open_frame
from comal.tortilla.samples import batches_of
from comal.tortilla.writing import (
    ItemWriter,
    Part,
    SetOptions,
    check_end,
    part_set,
    settings,
    with_spans,
    write_end,
)

Location = str | os.PathLike[str]


class Edit:
    """A file that is being changed: its current footer, and the output for new bytes."""

    def __init__(self, path: Path, version: NextVersion, frame: TortillaFrame) -> None:
        self.path = path
        self._version = version
        self._part = frame.home.parts[0]
        table = frame.to_arrow()
        stored = [name for name in table.column_names if not name.startswith(spec.INTERNAL)]
        self.table = table.select(stored)
        """The footer, offsets counted from the beginning of the file."""

    @cached_property
    def out(self) -> Appender:
        """Writes to the end of the next version, which the first access begins."""
        file: Any = io.BufferedRandom(self._version.file(), MIB)
        return Appender(file, self._part.size)

    def commit(self, table: Any) -> None:
        """Write a footer with these rows, and the header that refers to it."""
        schema = unified([table.schema], shown(self.path.name))
        table, part, how = fitted(table, schema), self._part, settings(table.num_rows, {})
        with system_errors("cannot write", self.path):
            header = write_end(self.out, [table], schema, how, part.collection, part.header.parts)
            self.out.file.flush()
        check_end(self._version.path, header, [table], table.num_rows)

    def close(self) -> None:
        """Close the copy; errors while flushing its buffer are ignored."""
        if "out" in self.__dict__:
            with suppress(OSError, ValueError, StorageError):
                self.out.file.close()


def _changed(path: Location, config: StorageConfig | None) -> Path:
    """Where a file that is changed in place is."""
    target = targets.target_path(path, config)
    return target if stored(target) else target.resolve()


@contextmanager
def editing(path: Location, config: StorageConfig | None) -> Iterator[Edit]:
    """Lock a file for a change; the committed version replaces it at the end."""
    target = _changed(path, config)
    with changing_file(target) as change, change.edit(target) as version:
        frame = open_frame(version.path, typed=False)
        layout = frame.home.parts[0].header.layout
        if layout != "v0.5":
            raise UnsupportedVersionError(
                "files of older layouts cannot be changed in place",
                where=shown(target, 200),
                found=layout,
                hint="write a new file with compile() and change that",
            )
        edit = Edit(target, version, frame)
        try:
            yield edit
        finally:
            edit.close()


def edit(
    path: Location,
    *,
    delete: Any = (),
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    columns: Any = None,
    replace: bool = False,
    add: Any = None,
    stac: bool | None = None,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> int:
    """Change a file: delete rows, drop columns, rename ids, set columns, add rows.

    All changes are made in this order and become visible at once. They concern the file's own
    rows: a nested file is an item, whose bytes do not change. To change its columns, write it as
    a file of its own (`compile` of the frame that `TortillaFrame.read` returns), change that, and
    pass it to `create` as the path of a sample.

    Parameters
    ----------
    path
        A file of the current layout. In a store, a copy on this machine is changed, and put in the
        place of the object if that is still the same.
    delete
        Rows to delete: ids, or positions or a mask. Their bytes stay until `compact`.
    drop
        Names of columns to drop; required columns of the core cannot be dropped.
    rename
        Old ids and their new ones.
    columns
        A mapping of names to values, or a table: a value per row, in the order of the rows. A
        column that the file stores under an alias (``rai:ele``) is also found by its name in the
        specification, and keeps its stored name. With a column of ids (``tortilla:id`` or
        ``id``), values are assigned by id; other rows keep their value, or get null.
    replace
        Whether existing columns may be replaced; offset and length never are.
    add
        Samples, or a table with the columns ``id`` and ``path``, as for `create`, to append after
        the existing rows. Columns that only the old or only the new rows have are null in the
        others.
    stac, progress, config
        As for `create`.

    Returns
    -------
    Rows that the file has now.

    Raises
    ------
    NotInContainerError
        A row does not exist.
    InvalidInputError
        Nothing to do, or a change that is not possible, such as an id that the file already has;
        then nothing is changed.
    ConflictError
        Another process is writing the file, or has changed the object meanwhile.
    UnsupportedVersionError
        The file is of an older generation.
    """
    if not (np.size(delete) or len(drop) or rename or columns is not None or add is not None):
        raise InvalidInputError("no change is given", expected="rows or columns")
    writer = ItemWriter(progress or silent)
    with editing(path, config) as change:
        table, where = change.table, shown(change.path.name)
        if np.size(delete):
            table = _without_rows(table, delete, where)
        if len(drop):
            table = _without_columns(table, drop, where)
        if rename:
            table = _renamed(table, rename, where)
        if columns is not None:
            table = _with_columns(table, columns, where, replace=replace)
        if add is not None:
            table = _with_rows(change, table, add, writer, stac=stac)
        change.commit(table)
    writer.warnings.warn(where)
    return int(table.num_rows)


def append(
    path: Location,
    samples: Any,
    *,
    stac: bool | None = None,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> int:
    """Add samples to a file, after its existing rows.

    Columns that only the old or only the new rows have are null in the others.

    Parameters
    ----------
    path
        As for `edit`.
    samples
        Samples, or a table with the columns ``id`` and ``path``.
    stac, progress, config
        As for `create`.

    Returns
    -------
    Rows that the file has now.

    Raises
    ------
    InvalidInputError
        A sample cannot be written, or the file already has its id.
    ConflictError
        Another process is writing the file, or has changed the object meanwhile.
    UnsupportedVersionError
        The file is of an older generation.
    """
    return edit(path, add=samples, stac=stac, progress=progress, config=config)


def delete(
    path: Location,
    *,
    ids: Sequence[str] | None = None,
    rows: Any = None,
    config: StorageConfig | None = None,
) -> int:
    """Remove rows from the footer of a file; their bytes stay until `compact`.

    Parameters
    ----------
    path, config
        As for `edit`.
    ids, rows
        Rows to remove: ids, or positions or a mask.

    Returns
    -------
    Rows that the file has now.

    Raises
    ------
    NotInContainerError
        A row does not exist.
    InvalidInputError
        No row would be left, or neither ids nor rows are given.
    """
    if (ids is None) == (rows is None):
        raise InvalidInputError(
            "the rows to delete must be named in one way", expected="ids or rows"
        )
    return edit(path, delete=rows if ids is None else list(ids), config=config)


def _with_rows(change: Edit, table: Any, add: Any, writer: ItemWriter, *, stac: bool | None) -> Any:
    """The table with new rows, after writing their bytes to the end of the file."""
    tables, where = [table], shown(change.path.name)
    for items in batches_of(add, Names()):
        new = described(items, stac=stac)
        _refuse_known(tables, new.table[spec.ID], where)
        written = writer.write(change.out, new)
        tables.append(
            written.rename_columns([_stored_name(name, table) for name in written.column_names])
        )
    if len(tables) == 1:
        raise InvalidInputError("no samples", expected="at least one")
    schema = unified([one.schema for one in tables], where)
    return pa.concat_tables([fitted(one, schema) for one in tables])


def _with_columns(table: Any, columns: Any, where: str, *, replace: bool) -> Any:
    given = _given(columns, where)
    rows = None
    if spec.ID in given.column_names:
        check_ids(given[spec.ID], "columns", tier=0)
        rows = rows_of_ids(table[spec.ID], given[spec.ID].to_pylist())
        given = given.drop_columns([spec.ID])
    elif given.num_rows != table.num_rows:
        raise InvalidInputError(
            "the columns do not have one value per row",
            where=where,
            found=counted(given.num_rows, "value"),
            expected=counted(table.num_rows, "row"),
        )
    for name in given.column_names:
        stored = _stored_name(name, table)
        if stored in table.column_names and not replace:
            raise InvalidInputError(
                f"column {shown(stored)} exists already", hint="pass replace=True"
            )
        if rows is None:
            table = with_column(table, stored, given[name])
            continue
        known = [table[stored]] if stored in table.column_names else []
        kinds = [pa.schema([(stored, one.type)]) for one in (*known, given[name])]
        kind = unified(kinds, f"column {shown(stored)}").field(stored).type
        table = with_some(table, stored, rows, given[name], kind)
    check_values(table, where)
    return table


def _without_columns(table: Any, columns: Sequence[str], where: str) -> Any:
    stored = [_stored_name(name, table) for name in columns]
    for name in stored:
        if name in spec.REQUIRED or name not in table.column_names:
            what = "is mandatory" if name in spec.REQUIRED else "does not exist"
            raise InvalidInputError(
                f"column {shown(name)} {what}",
                where=where,
                expected=", ".join(
                    shown(one) for one in table.column_names if one not in spec.REQUIRED
                ),
            )
    return table.drop_columns(stored)


def _renamed(table: Any, ids: Mapping[str, str], where: str) -> Any:
    rows = rows_of_ids(table[spec.ID], list(ids))
    check_ids(pa.array(list(ids.values()), pa.string()), "new ids")
    new = np.array(table[spec.ID].to_pylist(), object)
    new[rows] = list(ids.values())
    column = pa.array(new, pa.string())
    check_ids(column, where, tier=0)
    return with_column(table, spec.ID, column)


def _without_rows(table: Any, gone: Any, where: str) -> Any:
    named = isinstance(gone, list | tuple) and all(isinstance(one, str) for one in gone)
    keep = np.ones(table.num_rows, bool)
    keep[rows_of_ids(table[spec.ID], gone) if named else rows_of(gone, len(keep))] = False
    if not keep.any():
        raise InvalidInputError("no row would be left", where=where, hint="delete the file")
    return table.filter(pa.array(keep))


def _refuse_known(tables: Sequence[Any], new: Any, where: str) -> None:
    known = pa.concat_arrays([chunk for table in tables for chunk in table[spec.ID].chunks])
    fresh = one_array(new)
    for first, second in name_rules.twins(pa.concat_arrays([known, fresh])):
        if second >= len(known):
            one = known[first].as_py() if first < len(known) else fresh[first - len(known)].as_py()
            raise InvalidInputError(
                f"id {shown(fresh[second - len(known)].as_py())} exists already",
                where=where,
                found=f"row {first}, {shown(one)}",
            )


def _stored_name(name: str, table: Any) -> str:
    """The file's name for a column of the specification."""
    for alias, specified in spec.ALIASES.items():
        if name == specified and alias in table.column_names:
            return alias
    return name


def _given(columns: Any, where: str) -> Any:
    if isinstance(columns, Mapping):
        try:
            columns = pa.table(
                {name: array_of(v) if isinstance(v, list) else v for name, v in columns.items()}
            )
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError(
                "values of a column have types that cannot be combined", found=error
            ) from error
    for name in columns.column_names if hasattr(columns, "column_names") else ():
        if name in (spec.OFFSET, spec.LENGTH):
            raise InvalidInputError(f"column {shown(name)} cannot be set", where=where)
        if name not in spec.CORE and name not in SHORT:
            check_extra(name, where)
    return normal(table_of(columns, where), where)


def compact(
    path: Location,
    output: Location | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
    **parquet: Any,
) -> int:
    """Rewrite a file in the order of its rows, without bytes that no row refers to.

    Rows that share bytes still do. Columns stay as they are stored.

    Parameters
    ----------
    path
        The file; of any generation when `output` is given.
    output
        The new file; None replaces the old one at the end, as a whole.
    overwrite
        Whether an existing `output` is replaced.
    progress
        Called with the number of items that are written.
    config
        Settings and credentials to read and to write with.
    **parquet
        Settings of the footer.

    Returns
    -------
    Bytes that were saved.
    """
    target = _changed(path, config) if output is None else targets.target_path(output, config)
    if output is not None:
        check_ending(target, *spec.ENDINGS)
        targets.refuse_sources(target, path)
    frame = open_frame(path, typed=False, config=config)
    part = frame.home.parts[0]
    options = SetOptions.of({"parquet": parquet})
    with part_set(target, options, overwrite=overwrite or output is None) as parts:
        new = parts.begin()
        # The target is locked now: check that the opened file was not changed before that.
        part.source.fetch([Head(1)])
        new.rows.append(_copied_live(frame, new))
        (progress or silent)(len(frame), None, "samples")
        parts.finish(part.collection, max(1, part.header.parts))
        size = new.file.path.stat().st_size
        parts.publish()
    return part.size - size


def _copied_live(frame: TortillaFrame, part: Part) -> Any:
    """Copy the bytes of a file's rows, each span once; returns the rows with their new spans."""
    items = stored_items(frame.to_arrow(), frame.home)
    spans = frame.home.spans(frame.to_arrow(), np.arange(len(frame)))
    both = np.stack([spans.offsets, spans.lengths], axis=1)
    distinct, first, back = np.unique(both, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    start = part.out.position
    part.file.expect(int(distinct[:, 1].sum()))
    copy_payloads(spans.take(first[order]), 0, len(order), part.out)
    lengths = distinct[order, 1]
    offsets = start + np.cumsum(lengths) - lengths
    rows = place[back.reshape(-1)]
    return with_spans(items.table, offsets[rows], lengths[rows])
