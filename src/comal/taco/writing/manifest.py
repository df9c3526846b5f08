"""A table that names the files of a dataset: CSV, Parquet or GeoParquet."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from comal.errors import (
    AccessDeniedError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.taco import spec
from comal.taco.model.sample import as_table
from comal.taco.model.tree import Node

_READING: Mapping[type[BaseException], Any] = {
    FileNotFoundError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    pa.ArrowException: InvalidInputError,
    OSError: StorageError,
    ValueError: InvalidInputError,
}
_GEOMETRY = "istac:geometry"
_CRS = "istac:crs"


def read_manifest(manifest: str | os.PathLike[str] | Any, root: Path) -> tuple[list[Node], Any]:
    """The samples that a manifest names, folders included, and an Arrow table of their fields.

    Raises
    ------
    InvalidInputError
        No table, no column ``id`` or ``path``, an id that stands twice.
    ObjectNotFoundError
        The manifest or one of its files is missing.
    """
    where = "manifest"
    if isinstance(manifest, str | os.PathLike):
        where = str(manifest)
        manifest = _read(Path(manifest))
    table = as_table(manifest)
    if table is None or not {spec.ID, spec.PATH} <= set(table.column_names):
        raise InvalidInputError(
            "manifest has no columns id and path",
            where=shown(where, 200),
            found=None if table is None else ", ".join(table.column_names),
        )
    for name in (spec.ID, spec.PATH):
        kind = table.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_null(kind)):
            raise InvalidInputError(
                f"column {name!r} of the manifest is no text",
                where=shown(where, 200),
                found=str(kind),
                expected="string",
            )
    nodes: dict[tuple[str, ...], Node] = {}
    names, paths = (table.column(name).to_pylist() for name in (spec.ID, spec.PATH))
    for row, (name, path) in enumerate(zip(names, paths, strict=True)):
        if name is None or not name.strip("/"):
            raise InvalidInputError("manifest has a row without an id", where=f"row {row}")
        parts = tuple(name.strip("/").split("/"))
        if parts in nodes:
            raise InvalidInputError(f"id {shown(name)} stands twice", where=f"manifest, row {row}")
        nodes[parts] = Node(parts, _file(root, path, row), row=row)
    return _with_folders(nodes), table.drop_columns([spec.ID, spec.PATH])


def _read(path: Path) -> Any:
    with translated(_READING, "manifest cannot be read", where=shown(path, 200)):
        if path.suffix.lower() in {".parquet", ".geoparquet", ".pq"}:
            return _named_geometry(pq.read_table(path))
        return _read_csv(path)


def _read_csv(path: Path) -> Any:
    """The rows of a CSV file; an id such as ``0001`` is no number."""
    texts = dict.fromkeys((spec.ID, spec.PATH), pa.string())
    table = pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(column_types=texts))
    untyped = [field.name for field in table.schema if pa.types.is_null(field.type)]
    if untyped:  # nothing but words such as 'NA', which may be just that
        texts |= dict.fromkeys(untyped, pa.string())
        table = pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(column_types=texts))
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            # Of texts only the empty one is null: 'NA' is a country.
            column = table.column(position)
            filled = pc.not_equal(column, "")
            table = table.set_column(position, field, pc.if_else(filled, column, None))
    return table


def _named_geometry(table: Any) -> Any:
    """The geometry column of a GeoParquet file under the name that TACO has for it."""
    described = (table.schema.metadata or {}).get(b"geo")
    if described is None:
        return table
    document = json.loads(described)
    primary = document.get("primary_column")
    if primary not in table.column_names:
        return table
    about = document.get("columns", {}).get(primary, {})
    position = table.column_names.index(primary)
    table = table.set_column(position, _GEOMETRY, table.column(position))
    if _CRS not in table.column_names:
        crs = pa.array([_crs_name(about.get("crs"))] * table.num_rows, pa.string())
        table = table.append_column(_CRS, crs)
    return table


def _crs_name(crs: Any) -> str:
    """Name of a CRS in PROJJSON; GeoParquet without one means longitude and latitude."""
    identity = crs.get("id") if isinstance(crs, Mapping) else None
    if not isinstance(identity, Mapping) or identity.get("code") in {"CRS84", "4326", 4326}:
        return "EPSG:4326" if not isinstance(crs, Mapping) or identity else json.dumps(crs)
    return f"{identity.get('authority')}:{identity.get('code')}"


def _file(root: Path, path: str | None, row: int) -> str | None:
    if path is None:
        return None
    full = os.path.join(root, path)  # noqa: PTH118 - strings, for there may be a million
    if not os.path.isfile(full):  # noqa: PTH113 - as above
        raise ObjectNotFoundError(
            "file of the manifest is missing", where=f"{shown(full, 200)} (row {row})"
        )
    return os.path.abspath(full)  # noqa: PTH100 - as above


def _with_folders(nodes: Mapping[tuple[str, ...], Node]) -> list[Node]:
    """The rows with the folders that their ids imply, in front of what they hold."""
    complete: dict[tuple[str, ...], Node] = {}
    for parts, node in nodes.items():
        for depth in range(1, len(parts)):
            above = parts[:depth]
            complete.setdefault(above, nodes.get(above) or Node(above))
        complete[parts] = node
    return list(complete.values())
