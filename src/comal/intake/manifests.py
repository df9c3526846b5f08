"""Tables that name the files of a dataset: CSV, Parquet and GeoParquet."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from comal import arrowcompute as pc
from comal import strictjson
from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.intake.trees import absolute
from comal.table.columns import SMALL_POOL, one_array, rows_where, texts_column

ID, PATH = "id", "path"
_FAULTS: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    pa.ArrowException: InvalidInputError,
    OSError: StorageError,
    ValueError: InvalidInputError,
}
_LOOKING: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    NotADirectoryError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
    ValueError: ObjectNotFoundError,  # NUL, which no path holds
}
_PARQUET = frozenset({".parquet", ".geoparquet", ".pq"})
_BLOCK = 1 << 14
"""Paths that stand as Python objects at once."""


class Geometry(NamedTuple):
    """What a format calls the geometry of a GeoParquet file, and its CRS."""

    column: str
    crs: str


def read_table(
    path: Path, *, texts: Sequence[str] = (ID, PATH), geometry: Geometry | None = None
) -> Any:
    """A table of the user's in a file; its first bytes decide whether it is Parquet, else CSV.

    Parameters
    ----------
    path
        The file.
    texts
        Columns of a CSV file that are texts, whatever they look like: an id such as ``0001`` is no
        number. Other columns get the type that their values have. Of texts only the empty one is
        null: ``NA`` is a country.
    geometry
        New names for the primary geometry of a GeoParquet file (WKB) and a column of its CRS
        (such as ``EPSG:4326``); nothing is renamed when None.

    Returns
    -------
    pyarrow.Table
        The table with all its columns.

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError, StorageError
        It cannot be read.
    InvalidInputError, InvalidMetadataError
        It is neither CSV nor Parquet; two columns of one name; its GeoParquet metadata is broken.
    """
    where = shown(path, 200)
    with translated(_FAULTS, "manifest cannot be read", where=where):
        with path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet or path.suffix.lower() in _PARQUET:
            table = pq.read_table(path)
        else:
            table = _read_csv(path, texts)
    _refuse_twins(table, where)
    return table if geometry is None else _with_geometry(table, geometry, where)


def _read_csv(path: Path, texts: Sequence[str]) -> Any:
    kinds = dict.fromkeys(texts, pa.string())
    table = _parsed(path, kinds)
    untyped = [field.name for field in table.schema if pa.types.is_null(field.type)]
    if untyped:  # nothing but words such as 'NA', which may be just that
        table = _parsed(path, kinds | dict.fromkeys(untyped, pa.string()))
    empty, null = texts_column(["", None])
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(position)
            filled = pc.not_equal(column, empty)
            table = table.set_column(position, field, pc.if_else(filled, column, null))
    return table


def _parsed(path: Path, kinds: Mapping[str, Any]) -> Any:
    convert = pa_csv.ConvertOptions(column_types=kinds)
    # The default pool keeps many megabytes for each thread that parses.
    return pa_csv.read_csv(path, convert_options=convert, memory_pool=SMALL_POOL)


def _refuse_twins(table: Any, where: str) -> None:
    names: list[str] = table.column_names
    for name in sorted({name for name in names if names.count(name) > 1})[:1]:
        raise InvalidInputError("manifest has columns of one name", where=where, found=shown(name))


def _with_geometry(table: Any, geometry: Geometry, where: str) -> Any:
    described = (table.schema.metadata or {}).get(b"geo")
    if described is None:
        return table
    document = strictjson.loads(described, where)
    primary = document.get("primary_column")
    if primary not in table.column_names:
        return table
    columns = document.get("columns")
    about = columns.get(primary) if isinstance(columns, Mapping) else None
    position = table.column_names.index(primary)
    table = table.set_column(position, geometry.column, table.column(position))
    if geometry.crs not in table.column_names:
        crs = _crs_name(about.get("crs") if isinstance(about, Mapping) else None)
        table = table.append_column(geometry.crs, pa.repeat(texts_column([crs])[0], table.num_rows))
    return table


def _crs_name(crs: Any) -> str:
    """Name of a CRS in PROJJSON; GeoParquet without one means longitude and latitude."""
    identity = crs.get("id") if isinstance(crs, Mapping) else None
    if not isinstance(identity, Mapping) or identity.get("code") in {"CRS84", "4326", 4326}:
        return "EPSG:4326" if not isinstance(crs, Mapping) or identity else json.dumps(crs)
    return f"{identity.get('authority')}:{identity.get('code')}"


def label(manifest: Any) -> str:
    """What messages call a manifest: a path of one, or a table."""
    is_path = isinstance(manifest, str | os.PathLike)
    return f"manifest {shown(os.fspath(manifest), 200)}" if is_path else "manifest"


def split(table: Any, root: Path, where: str = "manifest") -> tuple[Any, Any, Any]:
    """A manifest as ids, files and all that is known of them.

    Each distinct path is looked at once.

    Parameters
    ----------
    table
        Arrow table with the columns ``id`` and ``path``.
    root
        The folder of relative paths.
    where
        What messages call the table.

    Returns
    -------
    ids, paths, fields
        Arrow strings: id paths as they stand, and absolute paths, null for a folder; and the table
        of all other columns.

    Raises
    ------
    InvalidInputError
        A column is missing or no text; a path leads to what is no regular file.
    ObjectNotFoundError, AccessDeniedError, StorageError
        A file is missing, or cannot be looked at.
    """
    _refuse_twins(table, where)
    if not {ID, PATH} <= set(table.column_names):
        raise InvalidInputError(
            "manifest has no columns id and path",
            where=where,
            found=", ".join(map(shown, table.column_names[:20])),
            expected="a table that has them, or the path of one",
        )
    ids, paths = (_texts(table.column(name), name, where) for name in (ID, PATH))
    paths = absolute(paths, root)
    _look_at(paths)
    return ids, paths, table.drop_columns([ID, PATH])


def _texts(column: Any, name: str, where: str) -> Any:
    kind = column.type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_null,
    )
    if not any(test(value) for test in tests):
        raise InvalidInputError(
            f"column {name!r} of the manifest is no text",
            where=where,
            found=str(kind),
            expected="string",
        )
    with translated({pa.ArrowException: InvalidInputError}, f"column {name!r} cannot be used"):
        texts = one_array(column if pa.types.is_string(kind) else pc.cast(column, pa.string()))
        texts.validate(full=True)  # Parquet may hold bytes that are no UTF-8
    return texts


def _look_at(paths: Any) -> None:
    distinct = pc.unique(paths).drop_null()
    for start in range(0, len(distinct), _BLOCK):
        for path in distinct.slice(start, _BLOCK).to_pylist():
            try:
                if stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - may be a million
                    continue
            except (OSError, ValueError):
                with translated(
                    _LOOKING, "file of the manifest is missing", where=_row(paths, path)
                ):
                    raise
            raise InvalidInputError(
                "file of the manifest is no regular file", where=_row(paths, path)
            )


def _row(paths: Any, path: str) -> str:
    row = int(rows_where(pc.equal(paths, texts_column([path])[0]))[0])
    return f"{shown(path, 200)} (row {row})"
