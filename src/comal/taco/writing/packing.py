"""Pack a folder of rasters: names become ids, subfolders FOLDERs, headers STAC fields."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import raster
from comal.geo import footprints, times, wkb
from comal.limits import DEFAULT_LIMITS
from comal.parallel import Workers
from comal.progress import Progress, silent
from comal.public import takes
from comal.samples import intake
from comal.samples.intake import Ints, Level, fields_at
from comal.samples.tables import Names, no_table, payloads_in
from comal.storage import Location, StorageConfig, targets
from comal.table.columns import (
    numbers_column,
    numbers_of,
    one_array,
    rows_equal,
    rows_where,
    valid_of,
)
from comal.taco import spec
from comal.taco.columns import as_table
from comal.taco.extensions.places import STAC_SCHEMA
from comal.taco.model.collection import CollectionFields, Taco, Tortilla
from comal.taco.model.levels import check_depth, check_ids, is_padding, with_padding
from comal.taco.model.tortilla import levels_from_tables
from comal.taco.spec import TacoWarning
from comal.taco.writing.creating import container_of, create


def level_tables(levels: Sequence[Level], fields: Any = None) -> list[Any]:
    """One table per level: id, type, path, parent (``internal:parent_id``) and fields.

    `fields` is an Arrow table with the fields of the samples, by `Level.rows`. Rows with a padding
    id are empty files.
    """
    tables = []
    for depth, level in enumerate(levels):
        is_file = valid_of(level.paths) | is_padding(level.ids)
        columns: dict[str, Any] = {
            spec.ID: level.ids,
            spec.TYPE: pc.if_else(pa.array(is_file), spec.FILE, spec.FOLDER),
            spec.PATH: level.paths,
        }
        if fields is not None:
            columns |= fields_at(fields, level.rows)
        if depth:
            columns[spec.PARENT_ID] = numbers_column(level.parents)
        tables.append(pa.table(columns))
    return tables


def nested(ids: Any, paths: Any, where: str = "manifest", *, pad: bool = False) -> list[Level]:
    """Samples with id paths, level by level.

    `pad` adds an empty sample where one level 0 sample lacks a file that another has below it
    (PIT-1); siblings are then sorted by name.
    """
    levels = intake.levels_of(ids, paths, where, check_depth=check_depth)
    if not pad or len(levels) == 1:
        return levels
    parts = pc.extract_regex(pc.ascii_trim(ids, "/"), r"(?s)(?P<root>[^/]*)(?P<below>.*)")
    root, below = (one_array(parts.field(n)).dictionary_encode() for n in range(2))
    roots, names = numbers_of(root.indices), below.dictionary
    # Sort by parts: the slash sorts before all characters of names.
    by_parts = pc.sort_indices(pc.replace_substring(names, "/", "\0"))
    rank = np.empty(len(names), np.int64)
    rank[numbers_of(by_parts)] = np.arange(len(names))
    places = roots.astype(np.int64) * len(names) + rank[numbers_of(below.indices)]
    inside = ~rows_equal(below.dictionary_decode(), "")
    wanted = np.unique(places[inside & valid_of(paths)] % len(names))
    folders = np.unique(roots[inside | ~valid_of(paths)])
    DEFAULT_LIMITS.check("table_rows", len(folders) * len(wanted), "samples with padding")
    lacking = np.setdiff1d((folders[:, None] * len(names) + wanted).ravel(), places)
    every = [root.dictionary.take(pa.array(lacking // len(names)))]
    every.append(names.take(by_parts).take(pa.array(lacking % len(names))))
    order = np.argsort(np.concatenate([places, lacking]), kind="stable")
    found = intake.levels_of(
        pa.concat_arrays([ids, pc.binary_join_element_wise(*every, "")]).take(pa.array(order)),
        pa.concat_arrays([paths, pa.nulls(len(lacking), paths.type)]).take(pa.array(order)),
        where,
        check_depth=check_depth,
    )
    return [_renamed(level, order, len(ids)) for level in found]


def _renamed(level: Level, order: Ints, count: int) -> Level:
    """A level of reordered rows, with original order and padding (rows from `count` on) set."""
    rows = np.where(level.rows < 0, -1, order[level.rows])
    empty = rows >= count
    ids = with_padding(level.ids, level.parents, empty)
    return replace(level, ids=ids, rows=np.where(empty, -1, rows))


_HEADER_BLOCK = 4_096
_ID_UNSAFE = re.compile(r"[^a-z0-9_-]+")
_RASTER = r"(?i)[^/]\.(tif|tiff|jp2|png|jpg|jpeg|webp)$"
_GEOMETRY = intake.Geometry("istac:geometry", "istac:crs")
_STAC = ("stac:crs", "stac:tensor_shape", "stac:geotransform", "stac:centroid")
_NAMES = Names(type=spec.TYPE, parent=spec.PARENT_ID, seen=intake.SEEN)
"""The columns of `folder_tables`."""
_TIMES = ("stac:time_start", "stac:time_end")


@takes(CollectionFields)
def pack_folder(
    directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    manifest: str | os.PathLike[str] | Any = None,
    pattern: str | Sequence[str] = "*",
    stac: bool = True,
    pad: bool = False,
    extra: Mapping[str, Any] | None = None,
    output_format: str = "auto",
    executor: Workers = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[Path]:
    """Pack a folder tree of files as TACO.

    A file becomes a FILE sample with its name as id, a subfolder a FOLDER sample. The subfolders of
    one depth must hold files of the same names (PIT-1).

    Parameters
    ----------
    directory
        The folder, a path or the URL of one in a store. Hidden files and folders are skipped.
    output
        Target, as for `create`.
    manifest
        A CSV, Parquet or GeoParquet file, its URL, or a table, with the columns ``id`` (the id
        path, such as ``scene_1/before.tif``), ``path`` (relative to `directory`, or a URL; null
        for a subfolder) and any fields. ``time_start`` and ``time_end`` become STAC times, the
        geometry of a GeoParquet file ``istac:geometry``. Only its rows are packed.
    pattern
        Shell pattern of the names of files to pack: ``"*.tif"``, or several. Links to folders are
        skipped with a warning.
    stac
        Read CRS, shape and geotransform from the rasters and store them as STAC fields.
    pad
        Add an empty sample where one subfolder lacks a file that others have.
    id, dataset_version, description, licenses, providers, tasks, title, curators, keywords, extent
        Fields of the collection, as for `Taco`; None derives the id from the folder's name, and
        gives other required fields a placeholder.
    extra
        More fields of the collection.
    output_format, progress, **options
        As for `create`, including ``overwrite``. ``config`` is also for reading from stores; HTTP
        servers get the credentials of its ``linked_origins``.
    executor
        Reads the headers: any `concurrent.futures.Executor`, or a number of processes; None uses
        threads.

    Returns
    -------
    list of pathlib.Path
        The written files and folders.

    Raises
    ------
    InvalidInputError
        No files, irregular files, names that cannot be ids, subfolders that differ.
    ObjectNotFoundError
        The folder, the manifest or a file that it names is missing.
    ConflictError
        The target is the folder, or holds it.
    ObjectChangedError
        An object changed after it was listed.
    """
    config = options.get("config")
    target = targets.target_path(output, config)
    container_of(target, output_format)
    root, tables = folder_tables(directory, target, manifest, pattern, pad=pad, config=config)
    if stac:
        _refuse_full(target, tables, config)
        tables = [
            with_places(table, executor, progress or silent, config=config) for table in tables
        ]
    fields, writing = collection_of(root, options)
    taco = taco_of(tables, fields, extra, config)
    return create(taco, output, output_format, progress=progress, executor=executor, **writing)


def folder_tables(
    directory: str | os.PathLike[str],
    target: Path,
    manifest: Any,
    pattern: str | Sequence[str],
    *,
    pad: bool,
    config: StorageConfig | None = None,
) -> tuple[Path | Location, list[Any]]:
    """The folder, and a table of each level of its samples; arguments as for `pack_folder`."""
    root, levels, fields = intake.samples_of(
        directory,
        target,
        manifest,
        pattern,
        read=partial(_read_manifest, config=config),
        nest=partial(nested, pad=pad),
        warning=TacoWarning,
        config=config,
    )
    for depth, level in enumerate(levels):  # before reading headers, which is slow
        check_ids(level.ids, level.parents, depth=depth)
    return root, level_tables(levels, fields)


def collection_of(
    root: Path | Location, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of the collection of a folder, and the options that are none."""
    given, writing = CollectionFields.split(options)
    folder = root.resolve().name if isinstance(root, Path) else root.name or root.root
    name = _ID_UNSAFE.sub("-", folder.lower()).strip("-") or "dataset"
    unknown = {
        "id": name,
        "dataset_version": "1.0.0",
        "description": f"Files of the folder {folder}",
        "licenses": ["NOASSERTION"],
        "providers": [{"name": "unknown"}],
        "tasks": ["other"],
    }
    return {**unknown, **given}, writing


def taco_of(
    tables: Sequence[Any],
    fields: Mapping[str, Any],
    extra: Mapping[str, Any] | None,
    config: StorageConfig | None = None,
) -> Taco:
    """The dataset of tables as `folder_tables` makes them."""
    samples = Tortilla.of_levels(levels_from_tables(tables, replace(_NAMES, config=config)))
    taco = Taco(samples, **fields)
    taco.extend_with(extra or {})
    return taco


def _read_manifest(manifest: Any, config: StorageConfig | None) -> Any:
    if isinstance(manifest, str | os.PathLike):
        manifest = intake.read_table(manifest, geometry=_GEOMETRY, config=config)
    table = as_table(manifest)
    if table is None:
        raise no_table(manifest, "the manifest")
    return table


def rasters_of(table: Any) -> Ints:
    """The rows of a table that are rasters, by their names."""
    paths = one_array(table.column(spec.PATH))
    return rows_where(pc.match_substring_regex(paths, _RASTER))


def _refuse_full(target: Path, tables: Sequence[Any], config: StorageConfig | None) -> None:
    """Refuse a target whose disk is too full before headers are read, which takes long."""
    if any(len(rasters_of(table)) for table in tables):
        names = replace(_NAMES, config=config)
        size = sum(int(payloads_in(table, names, "table").sizes().sum()) for table in tables)
        targets.refuse_full(target.parent, target, size)


def with_places(
    table: Any,
    executor: Workers,
    progress: Progress = silent,
    *,
    always: bool = False,
    config: StorageConfig | None = None,
) -> Any:
    """The table with STAC fields of its rasters, null for others; `always` without any, too."""
    files, rows = payloads_in(table, replace(_NAMES, config=config), "table"), rasters_of(table)
    if len(rows) or always:
        parts = []
        for start in range(0, max(len(rows), 1), _HEADER_BLOCK):
            some = files.rasters(rows[start : start + _HEADER_BLOCK])
            parts.append(raster.headers(some, executor=executor))
            progress(min(start + _HEADER_BLOCK, len(rows)), len(rows), "headers")
        headers = pa.concat_tables(parts)
        back = np.full(table.num_rows, -1, np.int64)
        back[rows] = np.arange(len(rows))
        where = pa.array(back, mask=back < 0)
        for name, column in zip(_STAC, _stac_columns(headers), strict=True):
            if name not in table.column_names:
                field = STAC_SCHEMA.field(name)
                table = table.append_column(field, column.take(where).cast(field.type))
    return with_times(table)


def _stac_columns(headers: Any) -> list[Any]:
    crs, shape, transform = (
        headers.column(name).combine_chunks() for name in ("crs", "shape", "geotransform")
    )
    x, y = footprints.centroids(crs, transform, shape)
    return [crs, shape, transform, wkb.point(np.where(np.isfinite(x), x, np.nan), y)]


def with_times(table: Any) -> Any:
    """The table with its times as STAC fields."""
    for name in _TIMES:
        plain = name.partition(":")[2]
        if plain in table.column_names and name not in table.column_names:
            position = table.column_names.index(plain)
            column = times.timestamps(table.column(position), plain)
            field = STAC_SCHEMA.field(name).with_type(column.type)
            table = table.set_column(position, field, column)
    return table
