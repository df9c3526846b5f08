"""A folder of files as a Tortilla: ids are names, subfolders nest."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.limits import DEFAULT_LIMITS
from comal.storage import targets
from comal.tortilla import spec
from comal.tortilla.writing.creating import Created, create, create_nested

_FAULTS: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
}
_BROKEN: dict[type[BaseException], type[ComalError]] = {pa.ArrowException: InvalidMetadataError}
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
        A CSV or Parquet file with the columns ``id``, ``path`` (relative to the folder; the id
        when missing) and any others; ``time_start`` and ``time_end`` are those of STAC. Only its
        rows are written.
    pattern
        Names of the files that are taken, as in a shell: ``"*.tif"``, or several.
    stac, **arguments
        As for `create`.

    Raises
    ------
    ObjectNotFoundError
        The folder, the manifest or a file that it names is missing.
    InvalidInputError
        No file at all, or names that cannot be ids.
    """
    root = Path(directory).absolute()
    if not root.is_dir():
        raise ObjectNotFoundError("no such folder", where=shown(root, 200))
    if manifest is not None:
        table = _with_paths(read_manifest(manifest))
        return create(table, output, stac=stac, base=root, **arguments)
    patterns = [pattern] if isinstance(pattern, str) else list(pattern)
    target = targets.local_path(output).absolute()
    with translated(_FAULTS, "folder cannot be read", where=shown(root, 200)):
        tables = _tables(root, patterns, target)
    if not tables[0].num_rows:
        raise InvalidInputError("no file to write", hint="look at the folder and the pattern")
    return create_nested(tables, output, stac=stac, **arguments)


def read_manifest(path: str | os.PathLike[str]) -> Any:
    """A table in a CSV or Parquet file; short names of times become those of STAC.

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError
        It cannot be read.
    InvalidMetadataError
        It is neither.
    """
    where = shown(path, 200)
    with translated(_FAULTS, "manifest cannot be read", where=where):
        with Path(path).open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        with translated(_BROKEN, "manifest is broken", where=where):
            table = pq.read_table(path) if is_parquet else pc_csv.read_csv(path)
    return table.rename_columns([_TIMES.get(name, name) for name in table.column_names])


def _with_paths(table: Any) -> Any:
    """Where no path is named, the id is one."""
    if "path" not in table.column_names and "id" in table.column_names:
        return table.append_column("path", table["id"])
    return table


def _tables(root: Path, patterns: Sequence[str], target: Path) -> list[Any]:
    """A table per level; subfolders without a file that fits are left out."""
    levels: list[list[tuple[str, str | None, int]]] = []

    def fits(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    def visit(folder: str, depth: int, parent: int) -> bool:
        DEFAULT_LIMITS.check("tortilla_depth", depth + 1, shown(folder, 200))
        if depth == len(levels):
            levels.append([])
        level, found = levels[depth], False
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                level.append((entry.name, None, parent))
                if visit(entry.path, depth + 1, len(level) - 1):
                    found = True
                else:
                    level.pop()
            # An output of an earlier run that lies in the folder is no item of the next.
            elif fits(entry.name) and Path(entry.path) != target:
                level.append((entry.name, entry.path, parent))
                found = True
        return found

    visit(str(root), 0, 0)
    return [_table(level, depth) for depth, level in enumerate(levels) if level or depth == 0]


def _table(level: Sequence[tuple[str, str | None, int]], depth: int) -> Any:
    columns: dict[str, Any] = {
        "id": pa.array([name for name, _, _ in level], pa.string()),
        "path": pa.array([path for _, path, _ in level], pa.string()),
    }
    if depth:
        columns["parent"] = pa.array([parent for _, _, parent in level], pa.int64())
    return pa.table(columns)
