"""A folder of rasters as a dataset: ids are names, subfolders nest, STAC comes from headers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import raster
from comal.errors import InvalidInputError, shown
from comal.geo import footprints, times, wkb
from comal.progress import Progress, silent
from comal.public import takes
from comal.samples import intake
from comal.samples.intake import Ints, Level, fields_at, taken
from comal.storage import local_path, targets
from comal.table.columns import (
    Mask,
    numbers_column,
    numbers_of,
    one_array,
    rows_where,
    texts_column,
    valid_of,
)
from comal.taco import spec
from comal.taco.extensions.places import STAC_SCHEMA
from comal.taco.model.collection import CollectionFields, Taco, Tortilla
from comal.taco.model.levels import check_depth, check_ids, with_padding
from comal.taco.model.sample import as_table
from comal.taco.spec import TacoWarning
from comal.taco.writing.creating import container_of, create


def level_tables(levels: Sequence[Level], fields: Any = None, *, pad: bool = False) -> list[Any]:
    """One table per level: id, type, path, parent (``internal:parent_id``) and fields.

    `fields` are an Arrow table with the fields of the samples, by `Level.rows`. `pad` puts an empty
    sample where a folder lacks a file that others have; siblings then stand in the order of their
    names.
    """
    padding = [np.zeros(len(level.rows), bool) for level in levels]
    if pad:
        levels, padding = _padded(levels)
    return [
        _table(level, depth, fields, empty)
        for depth, (level, empty) in enumerate(zip(levels, padding, strict=True))
    ]


def _table(level: Level, depth: int, fields: Any, padding: Mask) -> Any:
    is_file = valid_of(level.paths) | padding
    types = pa.DictionaryArray.from_arrays(
        numbers_column(is_file.astype(np.int8)), texts_column([spec.FOLDER, spec.FILE])
    )
    columns: dict[str, Any] = {
        spec.ID: level.ids,
        spec.TYPE: pc.cast(types, pa.string()),
        spec.PATH: level.paths,
    }
    if fields is not None:
        columns |= fields_at(fields, level.rows)
    if depth:
        columns[spec.PARENT_ID] = numbers_column(level.parents)
    return pa.table(columns)


def _padded(levels: Sequence[Level]) -> tuple[list[Level], list[Mask]]:
    """Levels in which folders at one place have the same children, and what is padding in them.

    A place is the path below the sample of level 0 (PIT-1).
    """
    complete = [levels[0]]
    padding = [np.zeros(len(levels[0].rows), bool)]
    places = np.zeros(len(levels[0].rows), np.int64)
    moved = np.arange(len(places))
    for unpadded in levels[1:]:
        level = replace(unpadded, parents=moved[unpadded.parents])
        folders = np.flatnonzero(~valid_of(complete[-1].paths) & ~padding[-1])
        slots = _slots(level, folders, places)
        _refuse_missing_folders(complete, level, slots)
        rows, parents, places = slots
        empty = rows < 0
        complete.append(
            Level(
                with_padding(taken(level.ids, rows), parents, empty),
                taken(level.paths, rows),
                parents,
                np.where(empty, -1, level.rows[rows]),
            )
        )
        padding.append(empty)
        moved = np.empty(len(level.rows), np.int64)
        moved[rows[~empty]] = np.flatnonzero(~empty)
    return complete, padding


class _Slots(NamedTuple):
    """The n children that folders should have, in the order of the folders, and of names."""

    rows: Ints
    """Row of the child in its level, shape (n,); -1 where it is missing."""
    parents: Ints
    """Row of its parent, shape (n,)."""
    places: Ints
    """Number of its place, shape (n,)."""


def _slots(level: Level, folders: Ints, places: Ints) -> _Slots:
    """What should be in the `folders` above, whose places are among `places` of all rows above."""
    names = level.ids.dictionary_encode()
    ranks = numbers_of(pc.rank(names.dictionary, tiebreaker="first")).astype(np.int64) - 1
    # A child's place: that of its parent, then its name; ascending in that order.
    own = places[level.parents] * len(ranks) + ranks[numbers_of(names.indices)]
    wanted, codes = np.unique(own, return_inverse=True)
    first = np.searchsorted(wanted, places[folders] * len(ranks), side="left")
    last = np.searchsorted(wanted, (places[folders] + 1) * len(ranks), side="left")
    counts = last - first
    parents = np.repeat(folders, counts)
    within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.repeat(first, counts) + within
    there = level.parents * len(wanted) + codes
    sought = parents * len(wanted) + place
    found = pc.index_in(numbers_column(sought), value_set=numbers_column(there))
    rows = numbers_of(pc.fill_null(found, -1)).astype(np.int64)
    return _Slots(rows, parents, place)


def _refuse_missing_folders(above: Sequence[Level], level: Level, slots: _Slots) -> None:
    rows, parents, places = slots
    is_folder = np.zeros(int(places.max(initial=-1)) + 1, bool)
    # Places of the rows that are there and hold no file.
    held = rows >= 0
    is_folder[places[held][~valid_of(level.paths)[rows[held]]]] = True
    for slot in np.flatnonzero(~held & is_folder[places])[:1].tolist():
        example = rows[held & (places == places[slot])][0]
        parts = [level.ids[int(example)].as_py()]
        row = int(parents[slot])
        for upper in reversed(above):
            parts.append(upper.ids[row].as_py())
            row = int(upper.parents[row])
        raise InvalidInputError(
            "folder is missing, and only files can be padded",
            where=shown("/".join(reversed(parts)), 120),
        )


_HEADER_BLOCK = 4_096
_ID_UNSAFE = re.compile(r"[^a-z0-9_-]+")
_RASTER = r"(?i)[^/]\.(tif|tiff|jp2|png|jpg|jpeg|webp)$"
_GEOMETRY = intake.Geometry("istac:geometry", "istac:crs")
_STAC = ("stac:crs", "stac:tensor_shape", "stac:geotransform", "stac:centroid")
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
    executor: Executor | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[Path]:
    """Pack a folder tree of files as TACO.

    A file becomes a FILE sample that has its name as id, a subfolder becomes a FOLDER sample. The
    subfolders of one depth must hold files of the same names (PIT-1).

    Parameters
    ----------
    directory
        The folder. Hidden files and folders are left out.
    output
        Target, as for `create`.
    manifest
        A CSV, Parquet or GeoParquet file, or a table, with the columns ``id`` (the id path, such
        as ``scene_1/before.tif``), ``path`` (relative to `directory`; null for a subfolder) and
        any fields. ``time_start`` and ``time_end`` become STAC times, the geometry of a
        GeoParquet file ``istac:geometry``. Only its rows are packed.
    pattern
        Names of the files that are packed, as in a shell: ``"*.tif"``, or several. Links to
        folders are left out with a warning.
    stac
        Read CRS, shape and geotransform from the rasters and store them as STAC fields.
    pad
        Put an empty sample where one subfolder lacks a file that others have.
    id, dataset_version, description, licenses, providers, tasks, title, curators, keywords, extent
        Fields of the collection, as for `Taco`; the id is made of the folder's name when None, and
        of others that `Taco` asks for it is said that nobody knows them.
    extra
        More fields of the collection.
    output_format, progress, **options
        As for `create`, ``overwrite`` among them.
    executor
        Where headers are read; threads when None.

    Returns
    -------
    list of pathlib.Path
        What was written.

    Raises
    ------
    InvalidInputError
        No file at all, what is no regular file, names that cannot be ids, subfolders that differ.
    ObjectNotFoundError
        The folder, the manifest or a file that it names is missing.
    ConflictError
        The target is the folder, or holds it.
    """
    target = targets.local_path(output)
    container_of(target, output_format)
    tell = progress or silent
    root, levels, fields = intake.samples_of(
        directory,
        target,
        manifest,
        pattern,
        read=_read_manifest,
        check_depth=check_depth,
        warning=TacoWarning,
    )
    tables = level_tables(levels, fields, pad=pad)
    if stac:
        for depth, level in enumerate(levels):  # before headers are read, which takes long
            check_ids(level.ids, level.parents, depth=depth)
        tables = [_with_stac(table, executor, tell) for table in tables]
    given, writing = CollectionFields.split(options)
    name = _ID_UNSAFE.sub("-", root.resolve().name.lower()).strip("-") or "dataset"
    unknown = {
        "id": name,
        "dataset_version": "1.0.0",
        "description": f"Files of the folder {root.resolve().name}",
        "licenses": ["NOASSERTION"],
        "providers": [{"name": "unknown"}],
        "tasks": ["other"],
    }
    samples = Tortilla.from_tables(tables, type=spec.TYPE, parent=spec.PARENT_ID)
    taco = Taco(samples, **{**unknown, **given})
    taco.extend_with(extra or {})
    return create(taco, output, output_format, progress=progress, executor=executor, **writing)


def _read_manifest(manifest: Any) -> Any:
    if isinstance(manifest, str | os.PathLike):
        place = local_path(manifest, "the manifest")
        manifest = intake.read_table(place, geometry=_GEOMETRY)
    table = as_table(manifest)
    if table is None:
        raise InvalidInputError(
            "manifest is no table",
            found=type(manifest).__name__,
            expected="a table with the columns id and path, or the path of one",
        )
    return table


def _with_stac(table: Any, executor: Executor | None, progress: Progress) -> Any:
    """The table with STAC fields of its rasters; other files have null there."""
    paths = one_array(table.column(spec.PATH))
    rows = rows_where(pc.match_substring_regex(paths, _RASTER))
    if len(rows):
        parts = []
        for start in range(0, len(rows), _HEADER_BLOCK):
            some = paths.take(numbers_column(rows[start : start + _HEADER_BLOCK]))
            parts.append(raster.headers(some.to_pylist(), executor=executor))
            progress(min(start + _HEADER_BLOCK, len(rows)), len(rows), "headers")
        headers = pa.concat_tables(parts)
        back = np.full(table.num_rows, -1, np.int64)
        back[rows] = np.arange(len(rows))
        where = pa.array(back, mask=back < 0)
        for name, column in zip(_STAC, _stac_columns(headers), strict=True):
            if name not in table.column_names:
                field = STAC_SCHEMA.field(name)
                table = table.append_column(field, column.take(where).cast(field.type))
    return _with_times(table)


def _stac_columns(headers: Any) -> list[Any]:
    crs, shape, transform = (
        headers.column(name).combine_chunks() for name in ("crs", "shape", "geotransform")
    )
    x, y = footprints.centroids(crs, transform, shape)
    return [crs, shape, transform, wkb.point(np.where(np.isfinite(x), x, np.nan), y)]


def _with_times(table: Any) -> Any:
    for name in _TIMES:
        plain = name.partition(":")[2]
        if plain in table.column_names and name not in table.column_names:
            position = table.column_names.index(plain)
            column = times.timestamps(table.column(position), plain)
            field = STAC_SCHEMA.field(name).with_type(column.type)
            table = table.set_column(position, field, column)
    return table
