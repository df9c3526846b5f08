"""Rows of open containers, or of a lazy view over them, as levels for a writer.

The rows of a view are located in its containers, and read from there, except for the metadata
columns of level 0, which are those of the caller's query.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    QueryError,
    UnsafeContentError,
    shown,
)
from comal.plan import Head
from comal.samples.payloads import Files, Ints, Payloads, Spans, concat, is_run, nothing
from comal.samples.tables import refuse_lost
from comal.storage import Source
from comal.taco import spec
from comal.taco.columns import Chunk, described, normal_table, unify
from comal.taco.copying.entries import LimitedSource, ZipEntries
from comal.taco.model.levels import Level, Levels, check_pit, is_padding
from comal.taco.reading import sql as views
from comal.taco.reading.container import Container
from comal.taco.reading.dataset import TacoDataset
from comal.taco.reading.level import Level as StoredLevel
from comal.taco.reading.spans import stored_spans
from comal.taco.reading.sql import quoted
from comal.taco.reading.view import Home, Scan, Sql, Staged, View, outer_union, queries

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows of one depth: for each its container, its row there, and its parent's position above."""

    container: Ints
    row: Ints
    parent: Ints


def pick(containers: Sequence[Container], container: Ints, row: Ints) -> list[Picked]:
    """The chosen rows of level 0, in their order, and their descendants.

    For each row of level 0 `container` is the index of its container, and `row` its row there.
    """
    picked = [Picked(container, row, np.arange(len(row)))]
    for depth in range(1, max(len(item.levels) for item in containers)):
        found = [
            _below(item.levels[depth], number, picked[-1])
            for number, item in enumerate(containers)
            if depth < len(item.levels)
        ]
        parent = np.concatenate([item.parent for item in found])
        order = np.argsort(parent, kind="stable")
        if len(order) == 0:
            break
        picked.append(
            Picked(
                np.concatenate([item.container for item in found])[order],
                np.concatenate([item.row for item in found])[order],
                parent[order],
            )
        )
    return picked


def _below(level: StoredLevel, number: int, above: Picked) -> Picked:
    places = np.full(level.above.num_rows, -1, np.int64)
    mine = np.flatnonzero(above.container == number)
    places[above.row[mine]] = mine
    parents = places[level.parents]
    rows = np.flatnonzero(parents >= 0)
    return Picked(np.full(len(rows), number, np.int64), rows, parents[rows])


def levels_from(
    containers: Sequence[Container],
    picked: Sequence[Picked],
    columns: Sequence[Sequence[str] | None],
    limit: int,
    *,
    links: bool = True,
) -> Levels:
    """The levels of the picked rows.

    `columns` names per depth the metadata columns to take, None for all; a column that a container
    lacks is null there. At most `limit` requests are in flight while bytes are copied. `links`
    refuses symbolic links that lead out of a local folder.
    """
    levels = []
    for depth, rows in enumerate(picked):
        groups = [
            (container, mine)
            for number, container in enumerate(containers)
            if len(mine := np.flatnonzero(rows.container == number))
        ]
        chunks = [_chunk(one, depth, rows.row[mine], columns[depth]) for one, mine in groups]
        table = unify(chunks, strict=False)
        wanted = columns[depth]
        if wanted is not None:
            present = [name for name in wanted if name in table.column_names]
            table = table.select([*spec.CORE_COLUMNS, *present])
        payloads = concat(
            [_of_container(one, depth, rows.row[mine], limit, links=links) for one, mine in groups]
        )
        levels.append(_in_order(table, rows.parent, payloads, [mine for _, mine in groups]))
    return tuple(levels)


# -- metadata -------------------------------------------------------------------------------------


def metadata_columns(names: Iterable[str]) -> list[str]:
    """The columns to copy: all except id, type, path and ``internal:`` columns."""
    own = {*spec.CORE_COLUMNS, spec.PATH}
    return [name for name in names if name not in own and not name.startswith(spec.INTERNAL)]


def _chunk(container: Container, depth: int, rows: Ints, columns: Sequence[str] | None) -> Chunk:
    level = container.levels[depth]
    names = metadata_columns(level.stored)
    if columns is not None:
        names = [name for name in columns if name in names]
    found = _read(level, rows, [*spec.CORE_COLUMNS, *names])
    texts = field_texts(container.collection, depth)
    ids = found.column(spec.ID)
    table = _described(normal_table(found, level.where), texts)
    return Chunk(table, lambda row: str(ids[row].as_py()))


def _read(level: StoredLevel, rows: Ints, names: Sequence[str]) -> Any:
    if len(rows) == level.num_rows and (rows == np.arange(len(rows))).all():
        return level.table.read(names)
    return level.table.take_rows(rows, names)


def field_texts(collection: Mapping[str, Any], depth: int) -> dict[str, str]:
    """The descriptions that ``taco:field_schema`` gives the columns of a level, if any."""
    schema = collection.get(spec.FIELD_SCHEMA)
    entries = schema.get(f"level{depth}") if isinstance(schema, dict) else None
    texts = {}
    for entry in entries if isinstance(entries, list) else []:
        # Entries of the oldest files have two values, and other writers may store anything.
        if isinstance(entry, list) and len(entry) >= 3 and isinstance(entry[0], str):
            texts[entry[0]] = str(entry[2] or "")
    return texts


def _described(table: Any, texts: Mapping[str, str]) -> Any:
    fields = [
        described(found.name, found.type, texts.get(found.name))
        if not found.name.startswith(spec.INTERNAL)
        else found
        for found in table.schema
    ]
    return table.cast(pa.schema(fields))


# -- payloads -------------------------------------------------------------------------------------


def _of_container(
    container: Container, depth: int, rows: Ints, limit: int, *, links: bool
) -> Payloads:
    level = container.levels[depth]
    folders = level.folders[rows]
    if folders.all():
        return nothing(len(rows))
    if container.kind == "folder":
        if not container.source.location.is_local:
            return _remote_files(container, level, rows, folders, limit)
        return _local_files(container, level, rows, folders, links=links)
    offsets, sizes = _spans(level, rows)
    lost = np.flatnonzero((sizes < 0) & ~folders)
    paths = level.paths()
    names = paths if len(rows) == len(paths) and is_run(rows) else paths.take(pa.array(rows))
    for row in lost[:1].tolist():
        raise InvalidMetadataError(
            "the sample is not in its archive",
            where=f"{level.where}, row {rows[row]}",
            found=f"no entry {shown(spec.DATA + names[row].as_py(), 120)}",
        )
    sizes = np.where(folders, 0, sizes)
    if not container.is_index:
        sources: list[Source] = [container.source]
        source = np.zeros(len(rows), np.int64)
    else:
        assert level.codes is not None
        used, source = np.unique(level.codes[rows], return_inverse=True)
        labels = list(container.source_codes)
        sources = [container.part(labels[code]) for code in used.tolist()]
    spans = source.astype(np.int64), offsets, sizes
    return ZipEntries(sources, *spans, names=names, folder=spec.DATA, limit=limit)


def _spans(level: StoredLevel, rows: Ints) -> tuple[Ints, Ints]:
    mended = level.spans
    if mended is not None:
        return mended.offsets[rows], mended.sizes[rows]
    offsets, sizes = stored_spans(level)
    return offsets[rows], sizes[rows]


def _file_paths(level: StoredLevel, rows: Ints, folders: Any) -> Any:
    """The path of each FILE row relative to the dataset; null for a FOLDER."""
    level.check_names()
    paths = pc.binary_join_element_wise(spec.DATA, level.paths().take(pa.array(rows)), "")
    return pc.if_else(pa.array(folders), pa.scalar(None, pa.string()), paths)


def _remote_files(
    container: Container, level: StoredLevel, rows: Ints, folders: Any, limit: int
) -> Payloads:
    paths = _file_paths(level, rows, folders)
    source = LimitedSource(container.source, limit)
    lengths = np.zeros(len(rows), np.int64)
    wanted = [Head(1, href) for href in paths.drop_null().to_pylist()]
    lengths[~folders] = [piece.total for piece in source.fetch(wanted)]
    zeros = np.zeros(len(rows), np.int64)
    return Spans([source], zeros, zeros, lengths, pc.fill_null(paths, ""))


def _local_files(
    container: Container, level: StoredLevel, rows: Ints, folders: Any, *, links: bool
) -> Payloads:
    root = container.source.href.rstrip("/")
    found = pc.binary_join_element_wise(root + "/", _file_paths(level, rows, folders), "")
    if links:
        check_links(root, found.drop_null().to_pylist())
    return Files(found)


def check_links(root: str, paths: Sequence[str]) -> None:
    """Refuse files that are outside of the folder `root` by symbolic links."""
    inside = os.path.realpath(root).rstrip("/") + "/"
    folders: dict[str, bool] = {}
    for path in paths:
        folder = path[: path.rfind("/")]
        safe = folders.get(folder)
        if safe is None:
            safe = folders[folder] = (os.path.realpath(folder) + "/").startswith(inside)
        if not safe or (
            os.path.islink(path) and not os.path.realpath(path).startswith(inside)  # noqa: PTH114
        ):
            raise UnsafeContentError(
                "a symbolic link leads out of the dataset",
                where=shown(path, 200),
                expected=f"a file below {shown(root, 200)}",
            )


def leaf_levels(
    dataset: TacoDataset, limit: int, columns: Sequence[str] = ()
) -> tuple[Levels, Any]:
    """The rows of a view and their descendants, and some columns of the rows as a table.

    The levels have only ids, types, parents and payloads.
    """
    home, view = dataset.home, dataset.view
    of_all = columns if isinstance(view, Scan) else ()
    for part in home.containers:
        for level in part.levels:
            level.keep(_navigating(level, part.levels[-1], of_all))
    if isinstance(view, Scan):
        level = view.container.levels[0]
        row = np.flatnonzero(~is_padding(level.column(spec.ID)))
        container = np.zeros(len(row), np.int64)
        table = level.held(list(columns))
        table = table if len(row) == level.num_rows else table.take(pa.array(row))
    else:
        found = views.materialise(_identity(view, home, columns))
        container, row = _places(home, found)
        _check_once(container, row)
        table = found.select(list(columns))
    picked = pick(home.containers, container, row)
    return tuple(_leaf_level(home.containers, *one, limit) for one in enumerate(picked)), table


def _navigating(level: StoredLevel, last: StoredLevel, columns: Sequence[str]) -> list[str]:
    """The columns that tell where leaves are, and some of level 0: what one round trip reads."""
    unused = [] if level.index else [spec.PARENT_ID, spec.RELATIVE_PATH]
    if level is last:  # no row names its parent by an id of this level
        unused.append(spec.CURRENT_ID)
    names = [name for name in spec.PROTECTED_COLUMNS if name not in unused]
    return names if level.index else [*dict.fromkeys([*names, *columns])]


def _leaf_level(containers: Sequence[Container], depth: int, rows: Picked, limit: int) -> Level:
    tables, payloads, places = [], [], []
    for number in np.unique(rows.container).tolist() or [0]:  # no rows are of the first
        container, mine = containers[number], np.flatnonzero(rows.container == number)
        own = rows.row[mine]
        level = container.levels[depth]
        held = level.held(spec.CORE_COLUMNS)
        whole = len(own) == level.num_rows and is_run(own)
        tables.append(held if whole else held.take(pa.array(own)))
        payloads.append(_of_container(container, depth, own, limit, links=True))
        places.append(mine)
    return _in_order(pa.concat_tables(tables), rows.parent, concat(payloads), places)


def _in_order(table: Any, parent: Ints, payloads: Payloads, places: Sequence[Ints]) -> Level:
    """A level of rows that came container by container; `places` are where they belong."""
    place = np.concatenate(places)
    if (place[1:] < place[:-1]).any():
        order = np.argsort(place)
        table, payloads = table.take(pa.array(order)), payloads.take(order)
    return Level(table, parent, payloads)


def view_levels(dataset: TacoDataset, limit: int) -> Levels:
    """The rows of a view and their descendants, as levels for a writer."""
    home, view = dataset.home, dataset.view
    asked = bool(queries(view))
    table = views.materialise(view if asked else _identity(view, home))
    if table.num_rows == 0:
        raise InvalidInputError(
            "nothing to export: the view has no rows", hint="loosen its filters"
        )
    home = home.narrowed(table)
    container, row = _places(home, table)
    _check_once(container, row)
    picked = pick(home.containers, container, row)
    columns = _columns(home, view, len(picked))
    own = metadata_columns(table.column_names) if asked else None
    levels = levels_from(
        home.containers, picked, columns if own is None else [[], *columns[1:]], limit
    )
    if own is not None:
        levels = (
            replace(levels[0], table=_with_own(levels[0].table, table.select(own), home)),
            *levels[1:],
        )
    check_pit(levels)
    return levels


def _identity(view: View, home: Home, columns: Sequence[str] = ()) -> View:
    """The view with only the columns that identify its rows, and some others."""
    names = [spec.CURRENT_ID, *([spec.SOURCE_FILE] if home.is_labelled else []), *columns]
    chosen = ", ".join(map(quoted, dict.fromkeys(names)))
    return Staged(view, Sql(f"SELECT {chosen} FROM data"))  # noqa: S608 - constants of ours


def _places(home: Home, table: Any) -> tuple[Ints, Ints]:
    """For each row of a view the index of its container and its row there."""
    container, depth, row = home.locate(table)
    for place in np.flatnonzero((row < 0) | (depth > 0))[:1].tolist():
        if row[place] >= 0:
            raise QueryError(
                "a row of the view is a child, which is not copied without its parents",
                where=f"row {place}",
                found=f"a sample of level {depth[place]}",
                expected="samples of level 0, with which all their children are copied",
                hint="choose the samples of level 0 that hold the wanted children",
            )
        raise QueryError(
            "a row of the view is not a sample of the dataset",
            where=f"row {place}",
            hint="keep the internal: columns in the query as they are (SELECT *)",
        )
    return container, row


def _check_once(container: Ints, row: Ints) -> None:
    order = np.lexsort((row, container))
    again = (np.diff(row[order]) == 0) & (np.diff(container[order]) == 0)
    if again.any():
        raise InvalidInputError(
            "a sample appears twice in the view",
            where=f"row {order[1:][again].min()}",
            expected="each sample once",
            hint="leave out joins and unions that repeat rows, or use SELECT DISTINCT",
        )


# -- the columns ----------------------------------------------------------------------------------


def _columns(home: Home, view: View, depth: int) -> list[Sequence[str] | None]:
    """Per level the metadata columns to take; None (all) for a single container."""
    if len(home.containers) == 1:
        return [None] * depth
    union = outer_union(view)
    fill = union is not None and union.mode == "fill_missing"
    chosen: list[Sequence[str] | None] = []
    for index in range(depth):
        lists = [
            metadata_columns(item.levels[index].stored)
            for item in home.containers
            if index < len(item.levels)
        ]
        names = list(dict.fromkeys(name for columns in lists for name in columns))
        chosen.append([n for n in names if fill or all(n in columns for columns in lists)])
    return chosen


def _with_own(table: Any, own: Any, home: Home) -> Any:
    """The ids and types of level 0 with the columns of a query."""
    stored = [container.levels[0] for container in home.containers]
    texts: dict[str, str] = {}
    for container in reversed(home.containers):
        texts |= field_texts(container.collection, 0)
    fields = [field.with_metadata(field.metadata) for field in table.schema]
    columns = [table.column(n) for n in range(table.num_columns)]
    for name in own.column_names:
        levels = [level for level in stored if name in level.stored]
        if not levels:
            _check_new(name)
        kinds = [level.schema.field(name).type for level in levels]
        columns.append(_as_stored(own.column(name), kinds))
        fields.append(described(name, columns[-1].type, texts.get(name)))
    table = pa.table(columns, schema=pa.schema(fields))
    refuse_lost(table.schema, "the view")
    return normal_table(table, "the view")


def _check_new(name: str) -> None:
    fault = spec.key_fault(name)
    if fault is not None:
        raise InvalidInputError(
            f"column {shown(name)} of the query {fault}",
            expected="a name such as 'cloud_cover' or 'stac:crs'",
            hint='name the column: SELECT ... AS "cloud_cover"',
            field=name,
        )


def _as_stored(values: Any, kinds: Sequence[Any]) -> Any:
    """A column cast back to its stored type, if the engine changed the type."""
    if len(kinds) == 1 and not values.type.equals(kinds[0]):
        try:
            return values.cast(kinds[0])
        except pa.ArrowException:
            return values  # the query changed its meaning
    return values
