"""A tree of files as one table per level."""

from __future__ import annotations

import fnmatch
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    StorageError,
    shown,
    translated,
)
from comal.taco import spec
from comal.taco.model.sample import check_id
from comal.taco.warning import TacoWarning

_READING: Mapping[type[BaseException], type[ComalError]] = {
    PermissionError: AccessDeniedError,
    OSError: StorageError,
}


@dataclass(slots=True)
class Node:
    """One file or folder that becomes a sample."""

    parts: tuple[str, ...]
    """Ids from level 0 down to its own."""
    path: str | None = None
    """The file; None for a folder, and for padding."""
    padding: bool = False
    row: int = -1
    """Its row in the table of fields; -1 where it has none."""


def tree_of(root: Path, patterns: Sequence[str]) -> list[Node]:
    """All files below `root` that match, with their folders; sorted, hidden ones left out."""
    nodes: list[Node] = []
    with translated(_READING, "folder cannot be read", where=shown(root, 200)):
        _walk(str(root), (), patterns, nodes)
    return nodes


def _walk(folder: str, parts: tuple[str, ...], patterns: Sequence[str], nodes: list[Node]) -> bool:
    """Whether the folder holds a file that matches, at any depth."""
    found = False
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith("."):
            continue
        own = (*parts, entry.name)
        if entry.is_dir(follow_symlinks=False):
            place = len(nodes)
            if _walk(entry.path, own, patterns, nodes):
                nodes.insert(place, Node(own))
                found = True
        elif any(fnmatch.fnmatch(entry.name, p) for p in patterns):
            if entry.is_dir():
                warnings.warn(
                    f"a link to a folder is left out: {shown(entry.path, 200)}",
                    TacoWarning,
                    stacklevel=3,
                )
                continue
            _refuse_no_file(entry)
            nodes.append(Node(own, entry.path))
            found = True
    return found


def _refuse_no_file(entry: os.DirEntry[str]) -> None:
    """A file that was asked for and is not there is never left out in silence."""
    if not entry.is_file():
        raise InvalidInputError(
            "no regular file",
            where=shown(entry.path, 200),
            found="a link that leads nowhere" if entry.is_symlink() else "a pipe, socket or device",
            hint="remove it, or name the files to pack by a pattern",
        )


def node_tables(nodes: Sequence[Node], fields: Any = None, *, pad: bool) -> list[Any]:
    """One table per level: id, type, path, parent (``internal:parent_id``) and fields.

    Parameters
    ----------
    nodes
        Files and folders.
    fields
        An Arrow table with the fields of the nodes, by `Node.row`. A level has those that are not
        null in all of its rows, or in all rows of the table.
    pad
        Whether to put an empty sample where a folder lacks a file that others have.

    Raises
    ------
    InvalidInputError
        An id that cannot be one, a folder where others have a file.
    """
    levels: list[list[Node]] = []
    known = {node.parts: node for node in nodes}
    for node in nodes:
        check_id(node.parts[-1])
        while len(levels) < len(node.parts):
            levels.append([])
        levels[len(node.parts) - 1].append(node)
    _check_parents(known)
    tables = []
    order: dict[tuple[str, ...], int] = {}
    for depth, found in enumerate(levels):
        rows = _padded(found, levels[depth - 1]) if pad and depth else found
        tables.append(_table(rows, order, depth, fields))
        order = {node.parts: row for row, node in enumerate(rows)}
        levels[depth] = rows
    return tables


def _check_parents(known: Mapping[tuple[str, ...], Node]) -> None:
    for parts in known:
        above = known.get(parts[:-1]) if len(parts) > 1 else None
        if len(parts) > 1 and (above is None or above.path is not None):
            raise InvalidInputError(
                "sample lies in what is no folder", where=shown("/".join(parts), 120)
            )


def _padded(rows: Sequence[Node], above: Sequence[Node]) -> list[Node]:
    """Children of all parents, with padding where a parent lacks one that others have.

    Parents at the same place below their level 0 sample get the same children (PIT-1).
    """
    children: dict[tuple[str, ...], dict[str, Node]] = {
        parent.parts: {} for parent in above if parent.path is None and not parent.padding
    }
    for node in rows:
        children[node.parts[:-1]][node.parts[-1]] = node
    wanted: dict[tuple[str, ...], dict[str, bool]] = {}
    for parent, own in children.items():
        names = wanted.setdefault(parent[1:], {})
        for name, node in own.items():
            names[name] = names.get(name, False) or node.path is None
    complete: list[Node] = []
    for parent, own in children.items():
        missing = 0
        for name in sorted(wanted[parent[1:]]):
            child = own.get(name)
            if child is None and wanted[parent[1:]][name]:
                raise InvalidInputError(
                    "folder is missing, and only files can be padded",
                    where=shown("/".join((*parent, name)), 120),
                )
            if child is None:
                child = Node((*parent, f"{spec.PAD_PREFIX}{missing}"), padding=True)
                missing += 1
            complete.append(child)
    return complete


def _table(
    rows: Sequence[Node], above: Mapping[tuple[str, ...], int], depth: int, fields: Any
) -> Any:
    columns: dict[str, Any] = {
        spec.ID: pa.array([node.parts[-1] for node in rows], pa.string()),
        spec.TYPE: pa.array(
            [spec.FILE if node.path or node.padding else spec.FOLDER for node in rows], pa.string()
        ),
        spec.PATH: pa.array([node.path for node in rows], pa.string()),
    }
    if depth:
        columns[spec.PARENT_ID] = pa.array([above[node.parts[:-1]] for node in rows], pa.int64())
    if fields is not None:
        columns |= _fields_of(rows, fields)
    return pa.table(columns)


def _fields_of(rows: Sequence[Node], fields: Any) -> dict[str, Any]:
    numbers = np.array([node.row for node in rows], np.int64)
    where = pa.array(numbers, mask=numbers < 0)
    found: dict[str, Any] = {}
    if where.null_count == len(where):
        return found
    for name, column in zip(fields.column_names, fields.columns, strict=True):
        taken = column.take(where)
        if taken.null_count < len(taken) or column.null_count == len(column):
            found[name] = taken
    return found
