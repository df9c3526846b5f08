"""Rows of existing files into new ones: subsets, joins and splits. No item is opened for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, NotInContainerError, shown
from comal.lazy import pc
from comal.limits import DEFAULT_LIMITS, Limits
from comal.progress import Progress
from comal.public import takes
from comal.samples.payloads import Ints, Spans
from comal.storage import StorageConfig, targets
from comal.storage.kinds import check_ending
from comal.table.columns import one_array
from comal.tortilla import spec
from comal.tortilla.reading.frame import TortillaFrame
from comal.tortilla.reading.loading import open as open_frame
from comal.tortilla.writing.columns import check_ids
from comal.tortilla.writing.creating import Created, SetOptions, write_set
from comal.tortilla.writing.samples import Prepared

Location = str | os.PathLike[str]


@takes(SetOptions)
def compile(  # noqa: A001 - the name that users of published readers know
    source: TortillaFrame | Location | Sequence[Location],
    output: Location,
    *,
    rows: Any = None,
    ids: Sequence[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    **options: Any,
) -> Created:
    """Write a part of a Tortilla, or of several, as a file of its own.

    Items are copied byte for byte, in the order of the rows, from this machine or from a server;
    the first one that cannot be read ends it, and nothing is written. The columns of the
    specification get its names and types. A TACO v1 stays one.

    Parameters
    ----------
    source
        A frame (filtered, sliced, nested, ...), or what `comal.tortilla.open` takes.
    output
        As for `create`.
    rows, ids
        The rows to take, in this order: positions or a mask, or ids. All when both are None.
    chunk_size, chunk_rows, chunk_by, first_part, peer_names, overwrite, allow_ids, progress
        As for `create`. Ids that are merely not portable are kept in any case. A nested file is
        an item like any other: its bytes, and so the names of its columns, stay as they are.
    limits, config
        As for `comal.tortilla.open`.
    **options
        Those above that have no default here, and settings of the footer.

    Raises
    ------
    ConflictError
        The target exists, or is one of the sources.
    NotInContainerError
        No such row.
    InvalidInputError
        Ids that stand twice or cannot be written.
    ComalError
        A source cannot be read, as `comal.tortilla.open` says.
    """
    check_ending(output, *spec.ENDINGS)
    said = SetOptions.of(options)
    cut = said.cut
    frame = opened(source, limits=limits, config=config)
    items = stored_items(frame)
    chosen = _chosen(items, rows, ids)
    if chosen is not None:
        items = items.take(chosen)
    how = said.how(overwrite=overwrite, collection=common_collection(frame))
    tier = 0 if said.allow_ids else 1
    check_ids(items.table[spec.ID], "rows", tier=tier, keeps=not said.allow_ids)
    return write_set([items], targets.local_path(output), cut, how, tier=tier, progress=progress)


def join(
    sources: Location | Sequence[Location],
    output: Location,
    *,
    overwrite: bool = False,
    allow_ids: bool = False,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    **parquet: Any,
) -> Created:
    """Write the parts of a set, or several Tortillas, as one file.

    Parameters
    ----------
    sources
        One part, whose siblings are found by their names; a pattern with ``*``; or a list. Sets
        must be whole: numbers, count in the header, columns and ids are checked.
    output, overwrite, allow_ids, progress, limits, config, **parquet
        As for `compile`.

    Raises
    ------
    InvalidMetadataError
        A part is missing, or columns do not go together.
    InvalidInputError
        An id stands in two files.
    """
    single = isinstance(sources, str | os.PathLike) and "*" not in os.fspath(sources)
    frame = open_frame(sources, siblings=single, limits=limits, config=config)
    return compile(
        frame,
        output,
        overwrite=overwrite,
        allow_ids=allow_ids,
        progress=progress,
        **parquet,
    )


def split(
    source: Location | Sequence[Location],
    output: Location,
    *,
    chunk_size: int | str | None = None,
    chunk_rows: int | None = None,
    chunk_by: str | None = None,
    **arguments: Any,
) -> Created:
    """Write a Tortilla as a set of parts; all arguments are those of `compile`.

    Raises
    ------
    InvalidInputError
        It is not said where to cut.
    """
    if chunk_size is None and chunk_rows is None and chunk_by is None:
        raise InvalidInputError(
            "nothing says where to cut", expected="chunk_size, chunk_rows or chunk_by"
        )
    return compile(
        source,
        output,
        chunk_size=chunk_size,
        chunk_rows=chunk_rows,
        chunk_by=chunk_by,
        **arguments,
    )


def opened(
    source: TortillaFrame | Location | Sequence[Location],
    *,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
) -> TortillaFrame:
    """A frame from one, or from what names files."""
    if isinstance(source, TortillaFrame):
        return source
    return open_frame(source, limits=limits, config=config)


def stored_items(frame: TortillaFrame) -> Prepared:
    """The rows of a frame as items whose bytes are where they were."""
    table = frame.to_arrow()
    offsets, lengths = (
        np.asarray(table[name].to_numpy(), np.int64) for name in (spec.OFFSET, spec.LENGTH)
    )
    part = (
        np.asarray(table[spec.PART].to_numpy(), np.int64)
        if spec.PART in table.column_names
        else np.zeros(len(offsets), np.int64)
    )
    sources = [part.source for part in frame.home.parts]
    kept = [
        name
        for name in table.column_names
        if not name.startswith(spec.INTERNAL) and name not in (spec.OFFSET, spec.LENGTH)
    ]
    if spec.DATA_SPLIT in kept and table[spec.DATA_SPLIT].null_count == len(offsets):
        kept.remove(spec.DATA_SPLIT)
    return Prepared(table.select(kept), Spans(sources, part, offsets, lengths))


def common_collection(frame: TortillaFrame) -> bytes | None:
    """The collection of a TACO v1, where all files behind the frame have the same."""
    found = {part.collection for part in frame.home.parts}
    return found.pop() if len(found) == 1 else None


def _chosen(items: Prepared, rows: Any, ids: Sequence[str] | None) -> Ints | None:
    if rows is not None and ids is not None:
        raise InvalidInputError("both rows and ids are given", expected="one of them")
    if ids is not None:
        return rows_of_ids(items.table[spec.ID], ids)
    return None if rows is None else rows_of(rows, len(items))


def rows_of(rows: Any, count: int) -> Ints:
    """Row numbers from positions (negative ones count from the end) or a mask."""
    found = np.asarray(rows.to_numpy(zero_copy_only=False) if isinstance(rows, pa.Array) else rows)
    if found.dtype == bool:
        if found.shape != (count,):
            raise InvalidInputError("mask of another length", found=found.shape, expected=count)
        return np.flatnonzero(found)
    if found.size == 0:
        return np.zeros(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InvalidInputError("rows are neither positions nor a mask", found=str(found.dtype))
    wrong = (found < -count) | (found >= count)
    if wrong.any():
        raise NotInContainerError(
            "no such row", found=int(found[wrong][0]), expected=f"{-count} to {count - 1}"
        )
    return found.astype(np.int64) % count


def rows_of_ids(column: Any, ids: Sequence[str]) -> Ints:
    """Row numbers of ids, in their order."""
    wanted = pa.array(list(ids), pa.string())
    flat = one_array(column)
    found = pc.index_in(wanted, value_set=flat)
    if found.null_count:
        missing = wanted.filter(found.is_null())[0].as_py()
        raise NotInContainerError(f"no row has the id {shown(missing)}")
    counts = pc.value_counts(flat.filter(pc.is_in(flat, value_set=wanted)))
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        raise InvalidInputError(
            "an id stands twice",
            found=shown(twice[0].as_py()),
            hint="name the rows by their positions",
        )
    return np.asarray(found.to_numpy(), np.int64)
