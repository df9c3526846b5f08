"""Changes to an existing file: more rows, other columns, other ids, fewer rows, and a fresh copy.

A copy of the file gets new items and a new footer, and then takes its name: any reader sees the
old bytes or the new ones.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from comal import names as name_rules
from comal.errors import InvalidInputError, StorageError, UnsupportedVersionError, counted, shown
from comal.lazy import pc
from comal.limits import MIB
from comal.plan import ByteRange, Head
from comal.progress import Progress, silent
from comal.samples.copying import Appender, copy_payloads
from comal.samples.payloads import Ints, Spans
from comal.samples.tables import Names
from comal.storage import href_text, open_source, parse_href
from comal.storage.kinds import check_ending
from comal.storage.replacing import NextVersion, changing_file
from comal.storage.targetlock import write_errors
from comal.table.columns import one_array
from comal.tortilla import spec
from comal.tortilla.reading.frame import TortillaFrame
from comal.tortilla.reading.loading import open as open_frame
from comal.tortilla.writing.columns import (
    check_extra,
    check_ids,
    check_values,
    fitted,
    normal,
    unified,
    with_column,
)
from comal.tortilla.writing.copying import rows_of, rows_of_ids, stored_items
from comal.tortilla.writing.creating import described
from comal.tortilla.writing.files import (
    How,
    Part,
    Telling,
    check_footer,
    part_set,
    settings,
    spanned,
    write_footer,
    write_items,
)
from comal.tortilla.writing.samples import batches_of, table_of

if TYPE_CHECKING:
    from comal.tortilla.writing.enriching import Enrichment


Location = str | os.PathLike[str]
_SPAN = struct.Struct("<QQ")
_FOOTER_AT = 2
_COLLECTION_AT = 26


class Edit:
    """A file that is open for a change: what it says now, and where new bytes go."""

    def __init__(self, path: Path, version: NextVersion, frame: TortillaFrame) -> None:
        self.path = path
        self._version = version
        self._part = frame.home.parts[0]
        self.table = _as_stored(frame)
        """The footer, offsets counted from the beginning of the file."""

    @cached_property
    def _file(self) -> io.BufferedRandom:
        return io.BufferedRandom(self._version.file(), MIB)

    @cached_property
    def out(self) -> Appender:
        """Writes to the end of the next version."""
        return Appender(self._file, self._part.size)

    def commit(self, table: Any, key_values: Mapping[str, str] | None = None) -> None:
        """Write a footer with these rows, and the header that leads to it."""
        schema = unified([table.schema], shown(self.path.name))
        table = fitted(table, schema)
        with write_errors("cannot write", self.path):
            file, collection = self._file, self._part.collection
            start = file.seek(0, os.SEEK_END)
            write_footer(file, [table], schema, settings(table.num_rows, {}), key_values)
            end = file.seek(0, os.SEEK_END)
            if collection is not None:
                file.write(collection)
                file.seek(_COLLECTION_AT)
                file.write(_SPAN.pack(end, len(collection)))
            file.seek(_FOOTER_AT)
            file.write(_SPAN.pack(start, end - start))
            file.flush()
            self._check(ByteRange(start, end - start), table)

    def _check(self, footer: ByteRange, table: Any) -> None:
        offsets, lengths = (
            np.asarray(table[name].to_numpy(), np.int64) for name in (spec.OFFSET, spec.LENGTH)
        )
        with open_source(self._version.path) as source:
            check_footer(source, footer, table[spec.ID].chunks, offsets, lengths)

    def close(self) -> None:
        """Let go of the copy; what its buffer still holds then is in vain."""
        if "_file" in self.__dict__:
            with suppress(OSError, ValueError, StorageError):
                self._file.close()


@contextmanager
def editing(path: Location) -> Iterator[Edit]:
    """A file to be changed, locked; what is committed takes its place at the end.

    Raises
    ------
    ConflictError
        Somebody else is writing it.
    UnsupportedVersionError
        A file of an older generation.
    InvalidInputError
        No local file.
    """
    target = local_path(path).resolve()
    with changing_file(target) as change:
        frame = open_frame(target, typed=False)
        layout = frame.home.parts[0].header.layout
        if layout != "v0.5":
            raise UnsupportedVersionError(
                "files of older generations are not changed",
                where=shown(target, 200),
                found=layout,
                hint="write a new file with compile() and change that",
            )
        with change.edit(target) as version:
            edit = Edit(target, version, frame)
            try:
                yield edit
            finally:
                edit.close()


def local_path(path: Location) -> Path:
    """The local path of a file that is to be changed."""
    location = parse_href(path)
    if location.scheme != "file":
        raise InvalidInputError(
            "only local files can be changed",
            where=location.label,
            hint="fetch it, or write a changed copy with compile()",
        )
    return Path(location.path)


def _as_stored(frame: TortillaFrame) -> Any:
    table = frame.to_arrow()
    return table.select([n for n in table.column_names if not n.startswith(spec.INTERNAL)])


def edit(
    path: Location,
    *,
    delete: Sequence[str] = (),
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    columns: Any = None,
    replace: bool = False,
    add: Any = None,
    stac: bool | None = None,
    progress: Progress | None = None,
) -> int:
    """Change a file: rows go, columns go, ids become others, columns are set, rows are added.

    All of it is done in this order and becomes visible at once. Each change alone has a function
    of its own, which says more of it.

    Parameters
    ----------
    path
        A local file of the layout of today.
    delete
        Ids of rows, as for `delete`.
    drop
        Names of columns, as for `drop_columns`.
    rename
        Old ids and their new ones, as for `rename`.
    columns, replace
        As for `set_columns`.
    add, stac, progress
        Samples, as for `append`.

    Returns
    -------
    Rows that the file has now.

    Raises
    ------
    NotInContainerError
        An id that is not there.
    InvalidInputError
        Nothing to do, or a change that cannot be made; then none is made.
    ConflictError, UnsupportedVersionError
        As for `append`.
    """
    if not (len(delete) or len(drop) or rename or columns is not None or add is not None):
        raise InvalidInputError("no change is named", expected="rows or columns")
    telling = Telling(progress or silent)
    with editing(path) as change:
        table, where = change.table, shown(change.path.name)
        if len(delete):
            table = _without_rows(table, rows_of_ids(table[spec.ID], delete), where)
        if len(drop):
            table = _without_columns(table, drop, where)
        if rename:
            table = _renamed(table, rename, where)
        if columns is not None:
            table = _with_columns(table, columns, where, replace=replace)
        if add is not None:
            batches = batches_of(add, Names("id", "path", base=""))
            table = _with_rows(change, table, batches, telling, stac=stac)
        change.commit(table)
    telling.oddities.warn(where)
    return int(table.num_rows)


def append(
    path: Location,
    samples: Any,
    *,
    stac: bool | None = None,
    rai: Enrichment | None = None,
    id: str = "id",  # noqa: A002 - as for create
    payload: str = "path",
    base: Location | None = None,
    progress: Progress | None = None,
) -> int:
    """Add samples to a file, behind the rows that it has.

    Columns that only the old or only the new rows have are null in the others.

    Parameters
    ----------
    path
        A local file of the layout of today.
    samples, stac, rai, id, base, progress
        As for `create`; `payload` is its `path`.

    Returns
    -------
    Rows that the file has now.

    Raises
    ------
    InvalidInputError
        A sample that cannot be written, or an id that the file has already.
    ConflictError
        Somebody else is writing the file.
    UnsupportedVersionError
        A file of an older generation.
    """
    names = Names(id, payload, base=href_text(base) if base is not None else "")
    telling = Telling(progress or silent)
    with editing(path) as change:
        table = _with_rows(
            change, change.table, batches_of(samples, names), telling, stac=stac, rai=rai
        )
        change.commit(table, rai.sources() if rai is not None else {})
    telling.oddities.warn(shown(change.path.name))
    return int(table.num_rows)


def _with_rows(
    edit: Edit,
    table: Any,
    batches: Iterable[Any],
    telling: Telling,
    *,
    stac: bool | None,
    rai: Enrichment | None = None,
) -> Any:
    """The table with rows whose bytes are written behind the old ones."""
    tables = [table]
    for items in batches:
        new = described(items, stac=stac, rai=rai)
        _refuse_known(tables, new.table[spec.ID], edit.path)
        lengths = write_items(edit.out, new, telling, aliases=_has_aliases(table))
        offsets = edit.out.position - int(lengths.sum()) + np.cumsum(lengths) - lengths
        tables.append(spanned(_named_like(new.table, table), offsets, lengths))
    if len(tables) == 1:
        raise InvalidInputError("no samples", expected="at least one")
    schema = unified([one.schema for one in tables], shown(edit.path.name))
    return pa.concat_tables([fitted(one, schema) for one in tables])


def set_columns(path: Location, columns: Any, *, replace: bool = False) -> None:
    """Add or replace columns of a file: those of its own rows, not of what is nested in them.

    A nested file is an item, whose bytes no change of the footer touches. To give it other columns
    write it as a file of its own (`compile` of the frame that `TortillaFrame.read` gives), change
    that, and pass it to `create` as the path of a sample.

    Parameters
    ----------
    path
        As for `append`.
    columns
        A mapping of names to values, or a table: a value per row, in the order of the rows. A
        column that the file has under the name of a published writer (``rai:ele``) is found by
        the specification's too, and keeps its own. Where
        there is a column of ids (``tortilla:id`` or ``id``), rows are found by it, and rows that
        are not named keep their value, or get null.
    replace
        Whether columns that are there already may be replaced; offset and length never are.

    Raises
    ------
    InvalidInputError
        A column that is there already or may not be set, another number of rows, an unknown id.
    ConflictError, UnsupportedVersionError
        As for `append`.
    """
    edit(path, columns=columns, replace=replace)


def _with_columns(table: Any, columns: Any, where: str, *, replace: bool) -> Any:
    given = _given(columns, where)
    rows = None
    if spec.ID in given.column_names:
        rows = rows_of_ids(table[spec.ID], given[spec.ID].to_pylist())
        given = given.drop_columns([spec.ID])
    elif given.num_rows != table.num_rows:
        raise InvalidInputError(
            "columns do not have a value per row",
            where=where,
            found=counted(given.num_rows, "value"),
            expected=counted(table.num_rows, "row"),
        )
    for name in given.column_names:
        stored = _stored_name(name, table)
        if stored in table.column_names and not replace:
            raise InvalidInputError(
                f"column {shown(stored)} is there already", hint="pass replace=True"
            )
        values = given[name] if rows is None else _spread(given[name], rows, table, stored)
        table = with_column(table, stored, values)
    check_values(table, where)
    return table


def drop_columns(path: Location, columns: Sequence[str]) -> None:
    """Remove columns of a file; those of the core that are required stay.

    Raises
    ------
    InvalidInputError
        A column that is not there, or is required.
    """
    edit(path, drop=columns)


def _without_columns(table: Any, columns: Sequence[str], where: str) -> Any:
    stored = [_stored_name(name, table) for name in columns]
    for name in stored:
        if name in spec.REQUIRED or name not in table.column_names:
            what = "is required" if name in spec.REQUIRED else "is not there"
            raise InvalidInputError(
                f"column {shown(name)} {what}",
                where=where,
                expected=", ".join(
                    shown(one) for one in table.column_names if one not in spec.REQUIRED
                ),
            )
    return table.drop_columns(stored)


def rename(path: Location, ids: Mapping[str, str]) -> None:
    """Give rows of a file new ids.

    Raises
    ------
    NotInContainerError
        An id that is not there.
    InvalidInputError
        A new id that may not be, or that stands twice.
    """
    edit(path, rename=ids)


def _renamed(table: Any, ids: Mapping[str, str], where: str) -> Any:
    rows = rows_of_ids(table[spec.ID], list(ids))
    check_ids(pa.array(list(ids.values()), pa.string()), "new ids")
    new = np.array(table[spec.ID].to_pylist(), object)
    new[rows] = list(ids.values())
    column = pa.array(new, pa.string())
    check_ids(column, where, tier=0)
    return with_column(table, spec.ID, column)


def delete(path: Location, *, ids: Sequence[str] | None = None, rows: Any = None) -> int:
    """Remove rows from the footer of a file; their bytes stay until `compact`.

    Parameters
    ----------
    path
        As for `append`.
    ids, rows
        Which: ids, or positions or a mask.

    Returns
    -------
    Rows that the file has now.

    Raises
    ------
    NotInContainerError
        No such row.
    InvalidInputError
        No row would be left, or nothing says which ones.
    """
    if (ids is None) == (rows is None):
        raise InvalidInputError("rows to delete are not named", expected="ids or rows")
    with editing(path) as change:
        table = change.table
        gone = (
            rows_of_ids(table[spec.ID], ids) if ids is not None else rows_of(rows, table.num_rows)
        )
        table = _without_rows(table, gone, shown(change.path.name))
        change.commit(table)
    return int(table.num_rows)


def _without_rows(table: Any, gone: Any, where: str) -> Any:
    keep = np.ones(table.num_rows, bool)
    keep[gone] = False
    if not keep.any():
        raise InvalidInputError("no row would be left", where=where, hint="remove the file")
    return table.filter(pa.array(keep))


def _refuse_known(tables: Sequence[Any], new: Any, path: Path) -> None:
    known = pa.concat_arrays([chunk for table in tables for chunk in table[spec.ID].chunks])
    fresh = one_array(new)
    for first, second in name_rules.twins(pa.concat_arrays([known, fresh])):
        if second >= len(known):
            one = known[first].as_py() if first < len(known) else fresh[first - len(known)].as_py()
            raise InvalidInputError(
                f"id {shown(fresh[second - len(known)].as_py())} is there already",
                where=shown(path.name),
                found=f"row {first}, {shown(one)}",
            )


def _stored_name(name: str, table: Any) -> str:
    """The name that the file uses for a column of the specification."""
    for alias, specified in spec.ALIASES.items():
        if name == specified and alias in table.column_names:
            return alias
    return name


def _has_aliases(table: Any) -> bool:
    """Whether the file has names of published writers."""
    return not set(spec.ALIASES).isdisjoint(table.column_names)


def _named_like(new: Any, old: Any) -> Any:
    return new.rename_columns([_stored_name(name, old) for name in new.column_names])


def _given(columns: Any, where: str) -> Any:
    if isinstance(columns, Mapping):
        try:
            columns = pa.table(
                {name: pa.array(v) if isinstance(v, list) else v for name, v in columns.items()}
            )
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError("values of a column do not go together", found=error) from error
    for name in columns.column_names if hasattr(columns, "column_names") else ():
        if name in (spec.OFFSET, spec.LENGTH):
            raise InvalidInputError(f"column {shown(name)} cannot be set", where=where)
        if name not in spec.CORE and name not in ("id", "file_format", "data_split"):
            check_extra(name, where)
    return normal(table_of(columns, where), where)


def _spread(values: Any, rows: Ints, table: Any, name: str) -> Any:
    """Values at their rows; elsewhere what is there already."""
    count = table.num_rows
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    spread = values.combine_chunks().take(pa.array(places, mask=places < 0))
    if name not in table.column_names:
        return spread
    fields = [pa.schema([(name, kind)]) for kind in (table[name].type, spread.type)]
    kind = unified(fields, f"column {shown(name)}").field(name).type
    old = pc.cast(table[name], kind).combine_chunks()
    both = pa.concat_arrays([old, pc.cast(spread, kind)])
    own = np.arange(count)
    return both.take(pa.array(np.where(places < 0, own, own + count)))


def compact(
    path: Location,
    output: Location | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    **parquet: Any,
) -> int:
    """Write a file anew without the bytes that no row leads to, in the order of the rows.

    Rows that share bytes go on sharing them. Columns stay as they are stored.

    Parameters
    ----------
    path
        The file; of any generation when `output` is given.
    output
        The new file; None takes the place of the old one, at the end and as a whole.
    overwrite
        Whether an existing `output` is replaced.
    progress
        Told how many items are written.
    **parquet
        Settings of the footer.

    Returns
    -------
    Bytes that were saved.
    """
    if output is not None:
        check_ending(output, *spec.ENDINGS)
    frame = open_frame(path, typed=False)
    target = local_path(path).resolve() if output is None else local_path(output)
    if output is not None and target.exists() and _is_same(target, path):
        raise InvalidInputError("output is the file itself", hint="leave it out")
    part = frame.home.parts[0]
    how = How(
        overwrite=overwrite or output is None,
        parquet=parquet,
        collection=part.collection,
        parts=max(1, part.header.parts),
    )
    telling = Telling(progress or silent)
    with part_set(target, how) as parts:
        new = parts.part(0)
        # The target is locked now: what was opened must not have been changed before that.
        part.source.fetch([Head(1)])
        _copy_live(frame, new, telling)
        parts.finish()
        parts.publish()
    return part.size - target.stat().st_size


def _copy_live(frame: TortillaFrame, part: Part, telling: Telling) -> None:
    items = stored_items(frame)
    spans = items.payloads
    assert isinstance(spans, Spans)
    both = np.stack([spans.offsets, spans.lengths], axis=1)
    distinct, first, back = np.unique(both, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    start = part.out.position
    copy_payloads(spans.take(first[order]), 0, len(order), part.out)
    lengths = distinct[order, 1]
    offsets = start + np.cumsum(lengths) - lengths
    rows = place[back.reshape(-1)]
    part.rows.append(items.table, offsets[rows], lengths[rows])
    telling.wrote(len(items))


def _is_same(target: Path, path: Location) -> bool:
    location = parse_href(path)
    return location.scheme == "file" and target.samefile(location.path)
