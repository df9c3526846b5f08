"""Ints of open containers as the levels that a writer takes.

Tables, parents and spans come from the readers, which have mended what old writers got wrong; the
bytes stay where they are until the writer asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidMetadataError, UnsafeContentError, shown
from comal.plan import Head
from comal.samples.payloads import Files, Ints, Nothing, Payloads, Spans, concat
from comal.storage import Source
from comal.taco import spec
from comal.taco.copying.entries import LimitedSource, ZipEntries
from comal.taco.model.columns import Chunk, described, normal_table, unify
from comal.taco.model.levels import Level, Levels
from comal.taco.reading.container import Container
from comal.taco.reading.level import Level as StoredLevel
from comal.taco.reading.spans import entry_names, stored_spans


@dataclass(frozen=True, slots=True)
class Picked:
    """Ints of one depth: for each the container, its row there, and its parent's place above."""

    container: Ints
    row: Ints
    parent: Ints


def pick(containers: Sequence[Container], container: Ints, row: Ints) -> list[Picked]:
    """The chosen rows of level 0, in their order, and everything below them.

    Parameters
    ----------
    containers
        Where the rows are.
    container, row
        For each row of level 0 the position of its container and its row number in it.
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

    Parameters
    ----------
    containers
        Where the rows are.
    picked
        Ints per depth, from `pick`.
    columns
        Per depth the metadata columns to take, None for all of them; one that a container lacks
        is null there.
    limit
        Requests in flight while the bytes are copied.
    links
        Look for symbolic links that lead out of a local folder.
    """
    levels = []
    for depth, rows in enumerate(picked):
        table = _table(containers, rows, depth, columns[depth])
        payloads = _payloads(containers, rows, depth, limit, links=links)
        levels.append(Level(table, rows.parent, payloads))
    return tuple(levels)


# -- metadata -------------------------------------------------------------------------------------


def metadata_columns(level: StoredLevel) -> list[str]:
    """The columns of a level that a copy takes over: all but paths and ``internal:`` ones."""
    return [
        name
        for name in level.stored
        if name not in {*spec.CORE_COLUMNS, spec.PATH} and not name.startswith(spec.INTERNAL)
    ]


def _table(
    containers: Sequence[Container], rows: Picked, depth: int, columns: Sequence[str] | None
) -> Any:
    chunks, order = [], []
    for number, container in enumerate(containers):
        mine = np.flatnonzero(rows.container == number)
        if len(mine) == 0:
            continue
        level = container.levels[depth]
        names = metadata_columns(level)
        if columns is not None:
            names = [name for name in columns if name in names]
        found = _read(level, rows.row[mine], [*spec.CORE_COLUMNS, *names])
        texts = field_texts(container.collection, depth)
        chunks.append(Chunk(_described(normal_table(found, level.where), texts), _who(found)))
        order.append(mine)
    joined = unify(chunks, strict=False)
    if columns is not None:
        present = [name for name in columns if name in joined.column_names]
        joined = joined.select([*spec.CORE_COLUMNS, *present])
    places = np.concatenate(order)
    if (places[1:] < places[:-1]).any():
        joined = joined.take(pa.array(np.argsort(places)))
    return joined


def _read(level: StoredLevel, rows: Ints, names: Sequence[str]) -> Any:
    if len(rows) == level.num_rows and (rows == np.arange(len(rows))).all():
        return level.table.read(names)
    return level.table.take_rows(rows, names)


def _who(table: Any) -> Any:
    return lambda row: str(table.column(spec.ID)[row].as_py())


def field_texts(collection: Mapping[str, Any], depth: int) -> dict[str, str]:
    """The descriptions that ``taco:field_schema`` gives the columns of a level, if any."""
    schema = collection.get(spec.FIELD_SCHEMA)
    entries = schema.get(f"level{depth}") if isinstance(schema, dict) else None
    texts = {}
    for entry in entries if isinstance(entries, list) else []:
        # Entries of the oldest files have two values, and other writers may put anything here.
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


def _payloads(
    containers: Sequence[Container], rows: Picked, depth: int, limit: int, *, links: bool
) -> Payloads:
    parts, order = [], []
    for number, container in enumerate(containers):
        mine = np.flatnonzero(rows.container == number)
        if len(mine):
            parts.append(_of_container(container, depth, rows.row[mine], limit, links=links))
            order.append(mine)
    joined = concat(parts)
    places = np.concatenate(order)
    if (places[1:] < places[:-1]).any():
        joined = joined.take(np.argsort(places))
    return joined


def _of_container(
    container: Container, depth: int, rows: Ints, limit: int, *, links: bool
) -> Payloads:
    level = container.levels[depth]
    folders = level.folders[rows]
    if folders.all():
        return Nothing(len(rows))
    if container.kind == "folder":
        if "://" in container.source.href:
            return _remote_files(container, level, rows, folders, limit)
        return _local_files(container, level, rows, folders, links=links)
    offsets, sizes = _spans(level, rows)
    lost = np.flatnonzero((sizes < 0) & ~folders)
    names = entry_names(level.paths().take(pa.array(rows)), folders)
    for row in lost[:1].tolist():
        raise InvalidMetadataError(
            "sample is not in its archive",
            where=f"{level.where}, row {rows[row]}",
            found=f"no entry {shown(names[row].as_py(), 120)}",
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
    return ZipEntries(sources, source.astype(np.int64), offsets, sizes, names=names, limit=limit)


def _spans(level: StoredLevel, rows: Ints) -> tuple[Ints, Ints]:
    mended = level.spans
    if mended is not None:
        return mended.offsets[rows], mended.sizes[rows]
    offsets, sizes = stored_spans(level)
    return offsets[rows], sizes[rows]


def _file_paths(level: StoredLevel, rows: Ints, folders: Any) -> Any:
    """Below the dataset, the file of each FILE row; null for a FOLDER."""
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
    """Refuse files that symbolic links would take out of the folder `root`."""
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
