"""A folder of files as a Tortilla: ids are names, subfolders nest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from comal.limits import DEFAULT_LIMITS
from comal.samples import intake
from comal.samples.intake import Level, fields_at
from comal.storage import local_path, targets
from comal.table.columns import numbers_column
from comal.tortilla import spec
from comal.tortilla.spec import TortillaWarning
from comal.tortilla.writing.creating import Created, create_nested

_PARENT = "comal:parent"
"""The column of the rows above; a manifest may well have one called `parent`."""
_TIMES = {"time_start": spec.TIME_START, "time_end": spec.TIME_END}


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
        The folder. A file becomes an item that has its name as id, a subfolder a nested item.
        Hidden names are left out.
    output
        As for `create`.
    manifest
        A CSV or Parquet file with the columns ``id`` (the id path, such as
        ``scene_1/before.tif``), ``path`` (relative to the folder; null for a nested item; the id
        when there is no such column) and any others; ``time_start`` and ``time_end`` are those of
        STAC. Only its rows are written. Ids and paths in CSV are texts, whatever they look like
        (``0007``).
    pattern
        Names of the files that are taken, as in a shell: ``"*.tif"``, or several. Links to folders
        are left out with a warning.
    stac, **arguments
        As for `create`.

    Raises
    ------
    ObjectNotFoundError
        The folder, the manifest or a file that it names is missing.
    InvalidInputError
        No file at all, what is no regular file, or names that cannot be ids.
    ConflictError
        The target is the folder, or holds it.
    """
    _, levels, fields = intake.samples_of(
        directory,
        targets.local_path(output),
        manifest,
        pattern,
        read=lambda path: _with_paths(read_manifest(path)),
        check_depth=lambda count: DEFAULT_LIMITS.check("tortilla_depth", count, "samples"),
        warning=TortillaWarning,
    )
    tables = [_table(level, depth, fields) for depth, level in enumerate(levels)]
    return create_nested(tables, output, parent=_PARENT, stac=stac, **arguments)


def read_manifest(path: str | os.PathLike[str]) -> Any:
    """A table in a CSV or Parquet file; short names of times become those of STAC.

    Parameters
    ----------
    path
        The file. Ids in CSV are texts, whatever they look like (``0007``).

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError
        It cannot be read.
    InvalidInputError
        It is neither.
    """
    place = local_path(path, "the manifest")
    table = intake.read_table(place, texts=(intake.ID, spec.ID, intake.PATH))
    return table.rename_columns([_TIMES.get(name, name) for name in table.column_names])


def _with_paths(table: Any) -> Any:
    """The table with the columns `id` and `path`; where no path is named, the id is one."""
    names = table.column_names
    if intake.ID not in names:
        names = [intake.ID if name == spec.ID else name for name in names]
        table = table.rename_columns(names)
    if intake.PATH not in names and intake.ID in names:
        return table.append_column(intake.PATH, table[intake.ID])
    return table


def _table(level: Level, depth: int, fields: Any) -> Any:
    columns: dict[str, Any] = {intake.ID: level.ids, intake.PATH: level.paths}
    if fields is not None:
        columns |= fields_at(fields, level.rows)
    if depth:
        columns[_PARENT] = numbers_column(level.parents)
    return pa.table(columns)
