"""New files and sets, from samples (`create`) and from rows of existing files (`compile`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, NotInContainerError, shown
from comal.lazy import pc
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import Workers
from comal.progress import Progress, silent
from comal.public import takes, warn
from comal.samples import intake
from comal.samples.intake import fields_at
from comal.samples.payloads import Ints, refuse_read
from comal.samples.tables import Names, payloads_seen
from comal.storage import StorageConfig, href_text, targets
from comal.storage.targets import check_ending
from comal.table.columns import numbers_column, numbers_of, one_array, plain_table, valid_of
from comal.tortilla import archive, spec
from comal.tortilla.columns import check_ids, normal
from comal.tortilla.describing import wants_place, with_formats, with_place
from comal.tortilla.frame import TortillaFrame
from comal.tortilla.opening import open as open_frame
from comal.tortilla.samples import Prepared, batches_of, check, mapped
from comal.tortilla.spec import TortillaWarning
from comal.tortilla.writing import ItemWriter, SetOptions, named_alike, part_set

Location = str | os.PathLike[str]
_TIMES = {"time_start": spec.TIME_START, "time_end": spec.TIME_END}
"""Names of STAC columns in manifests."""
PARENT = f"{spec.INTERNAL}parent_id"
"""Column with the row of an item's parent in the table above, as TACO has it; no item has it."""


@dataclass(frozen=True, slots=True)
class Created:
    """The result of writing a Tortilla."""

    paths: tuple[Path, ...]
    """The files, in the order of their parts; relative if the output was."""
    rows: int
    """Items, without those nested in them."""
    is_stac: bool
    """Whether it is a ``stac-tortilla``: all required columns, without nulls."""
    is_rai: bool
    """Whether it is a ``rai-tortilla``."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the specification that the file belongs to."""
        named = (("stac-tortilla", self.is_stac), ("rai-tortilla", self.is_rai))
        return tuple(name for name, holds in named if holds)

    @property
    def path(self) -> Path:
        """The file, or the first of several."""
        return self.paths[0]

    def __fspath__(self) -> str:
        return os.fspath(self.path)


@takes(SetOptions)
def create(
    samples: Any,
    output: str | os.PathLike[str],
    *,
    stac: bool | None = None,
    id: str = "id",  # noqa: A002 - names of the columns of a table
    path: str = "path",
    base: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    executor: Workers = None,
    config: StorageConfig | None = None,
    **options: Any,
) -> Created:
    """Write samples as a Tortilla of version 0.5.0.

    The file appears complete or not at all, and the same samples always give the same bytes.

    Parameters
    ----------
    samples
        `Samples` or a list of `Sample`; a table (Arrow, or a frame of another library) with a row
        per item; or an iterator of samples, record batches or tables, which are written one after
        the other.
    output
        The file, by convention ``name.tortilla``. Several are called
        ``name.0001.part.tortilla``, ``name.0002.part.tortilla``, ...
    chunk_size, chunk_rows
        Cut the set into files of this many bytes of items (a number, or ``"20GB"``), or of this
        many items. An item is never cut.
    stac
        Fill missing ``stac:*`` columns of place from the headers of rasters: always, never, or
        (None) if any of these columns is given.
    id, path, base
        For tables: the columns of ids and of payloads (paths as text, or bytes), and the folder
        of relative paths, None for the working folder. Columns ``file_format`` and ``data_split``
        are those of the specification; any other column keeps its name.
    overwrite
        Replace existing files at the end, as a whole.
    allow_ids
        Keep ids that are not portable, as in published files.
    progress
        Called with the number of samples that are written.
    executor
        Reads the headers of rasters: any `concurrent.futures.Executor`, or a number of processes;
        threads when None.
    config
        Settings and credentials to write with, where the target is in a store.
    **options
        Parameters above that are not in the signature, and settings of the footer: compression,
        compression_level, row_group_size, ...

    Returns
    -------
    Created
        The paths, and whether it is a ``stac-tortilla`` or a ``rai-tortilla``.

    Raises
    ------
    InvalidInputError
        A sample cannot be written, or an argument cannot be used.
    ConflictError
        The target exists (and `overwrite` is False), or is one of the sources.
    ObjectNotFoundError, AccessDeniedError, StorageError
        A source or the target fails.
    """
    names = Names(id, path, base=href_text(base) if base is not None else "")
    chosen = SetOptions.of(options)
    check_ending(output, *spec.ENDINGS)
    return _write_set(
        batches_of(samples, names),
        targets.target_path(output, config),
        chosen,
        tier=1 if chosen.allow_ids else 2,
        overwrite=overwrite,
        progress=progress,
        describe=partial(described, stac=stac, allow_ids=chosen.allow_ids, executor=executor),
    )


def described(
    items: Prepared,
    *,
    stac: bool | None = None,
    allow_ids: bool | None = None,
    executor: Workers = None,
) -> Prepared:
    """Check items, and fill in their formats and places.

    Parameters are those of `create`; None is for callers without `allow_ids`.
    """
    check(items, "samples", tier=1 if allow_ids else 2, keeps=allow_ids is False)
    items = mapped(items, with_formats)
    if stac or (stac is None and wants_place(items)):
        items = mapped(items, lambda level: with_place(level, executor))
    return items


def _write_set(
    batches: Iterable[Prepared],
    output: Path,
    options: SetOptions,
    *,
    tier: int,
    overwrite: bool,
    progress: Progress | None,
    describe: Callable[[Prepared], Prepared] = lambda items: items,
    collection: bytes | None = None,
    of: int | None = None,
) -> Created:
    """Write items that `describe` finds the formats of.

    `tier` as for `check_ids`, `of` for `PartSet.finish`.
    """
    writer, lacking, ids = ItemWriter(progress or silent), set[str](), []
    with part_set(output, options, overwrite=overwrite) as parts:
        alike = named_alike(output)
        for given in batches:
            if not len(given):
                continue
            refuse_read(alike, [level.payloads for level in given.levels()])
            parts.expect(given)
            items = describe(given)
            lacking |= _lacking(items.table)
            ids.append(one_array(items.table[spec.ID]))
            for part, rows in parts.cut(items):
                part.rows.append(writer.write(part.out, items.take(rows)))
        if not ids:
            raise InvalidInputError("no samples", expected="at least one")
        if len(ids) > 1:
            check_ids(pa.concat_arrays(ids), "samples", tier=tier)
        parts.finish(collection, of)
        writer.warnings.warn(shown(output.name))
        paths = parts.publish()
    if len(paths) == 1 and paths[0].suffix not in spec.ENDINGS:
        warn(
            f"{shown(paths[0].name)}: the name of a Tortilla should end in .tortilla",
            TortillaWarning,
        )
    return Created(
        tuple(paths),
        writer.done,
        is_stac=lacking.isdisjoint(spec.STAC_REQUIRED),
        is_rai=lacking.isdisjoint(spec.RAI_REQUIRED),
    )


def _lacking(table: Any) -> set[str]:
    """Required columns of the classes of the specification that are missing or have nulls."""
    return {
        name
        for name in (*spec.STAC_REQUIRED, *spec.RAI_REQUIRED)
        if name not in table.column_names or table[name].null_count
    }


# -- a folder of files ----------------------------------------------------------------------------


def pack_folder(
    directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    manifest: str | os.PathLike[str] | None = None,
    pattern: str | Sequence[str] = "*",
    stac: bool | None = True,
    **arguments: Any,
) -> Created:
    """Write the files below a folder as a Tortilla.

    Parameters
    ----------
    directory
        The folder, a path or the URL of one in a store. A file becomes an item with its name as
        id, a subfolder a nested item. Hidden names are skipped.
    output
        As for `create`.
    manifest
        A CSV or Parquet file, or its URL, with the columns ``id`` (the id path, such as
        ``scene_1/before.tif``), ``path`` (relative to the folder, or a URL; null for a nested item;
        the id when there is no such column) and any others; ``time_start`` and ``time_end`` are
        those of STAC. Only its rows are written. Ids and paths in CSV are always text (``0007``).
    pattern
        Names of the files to take, as shell patterns: ``"*.tif"``, or several. Links to folders
        are skipped with a warning.
    stac, **arguments
        As for `create`. ``config`` is also for reading from stores.

    Raises
    ------
    ObjectNotFoundError
        The folder, the manifest or a file that it names is missing.
    InvalidInputError
        No file was found, one is not a regular file, or a name cannot be an id.
    ConflictError
        The target is the folder, or contains it.
    """
    config = arguments.get("config")
    target = targets.target_path(output, config)
    tables = folder_tables(directory, target, manifest, pattern, config)
    return create(items_in(tables, config), output, stac=stac, **arguments)


def folder_tables(
    directory: str | os.PathLike[str],
    target: Path,
    manifest: str | os.PathLike[str] | None,
    pattern: str | Sequence[str],
    config: StorageConfig | None,
) -> list[Any]:
    """A table of each level of the files below a folder; arguments as for `pack_folder`.

    Beside its columns each has `intake.PATH`, maybe `intake.SEEN`, and below the first `PARENT`.
    """
    _, levels, fields = intake.samples_of(
        directory,
        target,
        manifest,
        pattern,
        # Arrow takes no rows of views.
        read=lambda path: plain_table(_with_paths(read_manifest(path, config))),
        nest=partial(
            intake.levels_of,
            check_depth=lambda count: DEFAULT_LIMITS.check("tortilla_depth", count, "samples"),
        ),
        warning=TortillaWarning,
        config=config,
    )
    tables = []
    for depth, level in enumerate(levels):
        more = {} if fields is None else fields_at(fields, level.rows)
        own = {intake.PATH: level.paths}
        if intake.SEEN in more:
            own[intake.SEEN] = more.pop(intake.SEEN)
        if depth:
            own[PARENT] = numbers_column(level.parents)
        table = normal(pa.table({intake.ID: level.ids, **more}), f"level {depth}")
        for name, column in own.items():
            table = table.append_column(name, column)
        tables.append(table)
    return tables


def items_in(tables: Sequence[Any], config: StorageConfig | None) -> Prepared:
    """The items of tables as `folder_tables` makes them, nested in one another."""
    items: Prepared | None = None
    for depth in reversed(range(len(tables))):
        table = tables[depth]
        own = [n for n in (intake.PATH, intake.SEEN, PARENT) if n in table.column_names]
        paths = one_array(table[intake.PATH])
        seen = table[intake.SEEN] if intake.SEEN in own else None
        found = Prepared(table.drop_columns(own), payloads_seen(paths, seen, config))
        if items is not None:
            found = found.holding(items, numbers_of(one_array(tables[depth + 1][PARENT])))
        empty = ~valid_of(paths)
        empty[found.nested()] = False
        if empty.any():
            name = table[spec.ID][int(empty.argmax())].as_py()
            raise InvalidInputError("an item has no payload", where=shown(name))
        items = found
    assert items is not None, "there is a file to pack"
    return items


def write_part(
    tables: Sequence[Any],
    output: Path,
    of: int,
    *,
    stac: bool,
    executor: Workers,
    config: StorageConfig | None,
    **options: Any,
) -> None:
    """Write one file of a set of `of`; `tables` have the columns of the whole set."""
    chosen = SetOptions.of(options)
    items = items_in([table for table in tables if len(table)], config)
    _write_set(
        [items],
        output,
        chosen,
        tier=0,
        overwrite=False,
        progress=None,
        describe=partial(described, stac=stac, allow_ids=chosen.allow_ids, executor=executor),
        of=of,
    )


def read_manifest(path: str | os.PathLike[str], config: StorageConfig | None = None) -> Any:
    """A table in a CSV or Parquet file; short names of times become those of STAC.

    Ids in CSV are always text (``0007``).
    """
    table = intake.read_table(path, texts=(intake.ID, spec.ID, intake.PATH), config=config)
    return table.rename_columns([_TIMES.get(name, name) for name in table.column_names])


def _with_paths(table: Any) -> Any:
    """The table with the columns `id` and `path`; without `path`, the ids are the paths."""
    names = table.column_names
    if intake.ID not in names:
        names = [intake.ID if name == spec.ID else name for name in names]
        table = table.rename_columns(names)
    if intake.PATH not in names and intake.ID in names:
        return table.append_column(intake.PATH, table[intake.ID])
    return table


# -- rows of existing files ------------------------------------------------------------------------


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

    Items are copied byte for byte, in the order of the rows, from local or remote files; if one
    cannot be read, nothing is written. Columns of the specification get its names and types. A
    TACO v1 stays one.

    Parameters
    ----------
    source
        A frame (filtered, sliced, nested, ...), or what `comal.tortilla.open` takes.
    output
        As for `create`.
    rows, ids
        The rows to take, in this order: positions or a mask, or ids. All when both are None.
    chunk_size, chunk_rows, overwrite, allow_ids, progress
        As for `create`. Ids that are legal but not portable are always kept. A nested file is
        copied as a whole: its bytes, and so the names of its columns, do not change.
    limits, config
        As for `comal.tortilla.open`.
    **options
        Parameters above that are not in the signature, and settings of the footer.

    Raises
    ------
    ConflictError
        The target exists, or is one of the sources.
    NotInContainerError
        A row does not exist.
    InvalidInputError
        Ids that appear twice or cannot be written.
    ComalError
        A source cannot be read, as `comal.tortilla.open` says.
    """
    check_ending(output, *spec.ENDINGS)
    chosen = SetOptions.of(options)
    frame = source
    if not isinstance(frame, TortillaFrame):
        frame = open_frame(frame, limits=limits, config=config)
    items = stored_items(frame.to_arrow(), frame.home)
    if rows is not None and ids is not None:
        raise InvalidInputError("both rows and ids are given", expected="one of them")
    if rows is not None:
        items = items.take(rows_of(rows, len(items)))
    elif ids is not None:
        items = items.take(rows_of_ids(items.table[spec.ID], ids))
    target = targets.target_path(output, config)
    return _compiled(frame, items, target, chosen, overwrite=overwrite, progress=progress)


def compile_part(
    frame: TortillaFrame,
    target: Path,
    choose: Callable[[list[archive.Level]], list[Any]],
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Created:
    """As `compile`, of what `choose` takes of the levels of a frame by a mask each.

    A nested file is written anew of its items that are taken, at least one.
    """
    levels = frame.levels(None)
    *_, items = _taken(levels, choose(levels), frame.home)
    return _compiled(frame, items, target, SetOptions(), overwrite=overwrite, progress=progress)


def _taken(
    levels: Sequence[archive.Level], masks: Sequence[Any], home: archive.Home
) -> Iterator[Prepared]:
    """The items of each level that masks take, with those below in them, the lowest first."""
    below, parents = None, np.zeros(0, np.int64)
    for level, mask in zip(reversed(levels), reversed(masks), strict=True):
        rows = np.flatnonzero(mask)
        items = stored_items(level.table.take(numbers_column(rows)), home)
        if below is not None and len(below):
            items = items.holding(below, (np.cumsum(mask) - 1)[parents])
        yield items
        below, parents = items, level.parents[rows]


def _compiled(
    frame: TortillaFrame,
    items: Prepared,
    target: Path,
    chosen: SetOptions,
    *,
    overwrite: bool,
    progress: Progress | None,
) -> Created:
    tier = 0 if chosen.allow_ids else 1
    check_ids(items.table[spec.ID], "rows", tier=tier, keeps=not chosen.allow_ids)
    # The collection of a TACO v1 is kept if all files behind the frame have the same.
    collections = {part.collection for part in frame.home.parts}
    targets.refuse_sources(target, list(frame.files))
    return _write_set(
        [items],
        target,
        chosen,
        tier=tier,
        overwrite=overwrite,
        progress=progress,
        collection=collections.pop() if len(collections) == 1 else None,
    )


def stored_items(table: Any, home: archive.Home) -> Prepared:
    """Rows of a frame or of a level as items that refer to the bytes of its files."""
    kept = [
        name
        for name in table.column_names
        if not name.startswith(spec.INTERNAL) and name not in (spec.OFFSET, spec.LENGTH)
    ]
    if spec.DATA_SPLIT in kept and table[spec.DATA_SPLIT].null_count == table.num_rows:
        kept.remove(spec.DATA_SPLIT)
    spans = home.spans(table, np.arange(table.num_rows))
    return Prepared(table.select(kept), spans)


def rows_of(rows: Any, count: int) -> Ints:
    """Row numbers from positions (negative ones count from the end) or a mask."""
    found = np.asarray(rows.to_numpy(zero_copy_only=False) if isinstance(rows, pa.Array) else rows)
    if found.dtype == bool:
        if found.shape != (count,):
            raise InvalidInputError(
                "the mask has the wrong length", found=found.shape, expected=count
            )
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
            "an id appears twice",
            found=shown(twice[0].as_py()),
            hint="pass the positions of the rows",
        )
    return np.asarray(found.to_numpy(), np.int64)
