"""One dataset as several archives: by size, or by the values of fields."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import ConflictError, InvalidInputError, shown
from comal.limits import parse_size
from comal.taco import spec
from comal.taco.model.levels import Levels, flat, select
from comal.taco.model.sources import Rows

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]+")
ENTRY_BYTES = 200
"""About what an entry costs besides its payload: two headers, two names, a row."""
_KEY_MAX = 120


@dataclass(frozen=True, slots=True)
class Part:
    """One archive of several: its name and its level 0 rows, ascending."""

    path: Path
    roots: Rows


def plan(
    levels: Levels,
    target: Path,
    *,
    split_size: int | str | None,
    group_by: str | Sequence[str] | None,
) -> list[Part]:
    """Decide which level 0 samples go into which archive.

    Raises
    ------
    InvalidInputError
        An unknown field, a size that is none, or two groups whose file names are the same.
    """
    everything = np.arange(levels[0].rows)
    if group_by is None:
        groups = [("", everything)]
    else:
        fields = [group_by] if isinstance(group_by, str) else list(group_by)
        groups = _groups(levels[0].table, fields)
    limit = None if split_size is None else parse_size(split_size, "split_size is no size")
    weights = None if limit is None else root_bytes(levels)
    found: list[Part] = []
    for key, rows in groups:
        if limit is None or weights is None:
            found.append(Part(part_path(target, key), rows))
            continue
        for number, chunk in enumerate(_cut(rows, weights[rows], limit), start=1):
            found.append(Part(part_path(target, key, number), chunk))
    return found


def part_path(target: Path, key: str = "", number: int | None = None) -> Path:
    """The archive of a group, of a part by its number, or of a part of a group."""
    named = f"{target.stem}_{key}" if key else target.stem
    end = "" if number is None else f"_part{number:04d}"
    return target.with_name(f"{named}{end}{target.suffix or '.tacozip'}")


def root_bytes(levels: Levels) -> Rows:
    """Bytes that each level 0 sample brings, with all that is below it."""
    below: Rows | None = None
    for depth in reversed(range(len(levels))):
        level = levels[depth]
        own = np.where(level.folders, 0, level.payloads.sizes()) + ENTRY_BYTES
        if below is not None:
            np.add.at(own, levels[depth + 1].parent, below)
        below = own
    assert below is not None
    return below


def _cut(rows: Rows, weights: Rows, limit: int) -> Iterator[Rows]:
    """Runs of neighbours of at most `limit` bytes; one that is larger alone stands alone."""
    ends = np.cumsum(weights)
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield rows[start:stop]
        start = stop


def _groups(table: Any, fields: Sequence[str]) -> list[tuple[str, Rows]]:
    """Rows by the values of `fields`, groups in the order in which they first appear."""
    columns = []
    for name in fields:
        if name not in table.column_names or name == spec.ID:
            raise InvalidInputError(
                f"no field {shown(name)} to group by", found=", ".join(table.column_names)
            )
        columns.append(_texts(flat(table.column(name)), name))
    joined = pc.binary_join_element_wise(*columns, "_")
    encoded = pc.dictionary_encode(joined)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    names: dict[str, str] = {}
    groups = []
    for code, value in enumerate(encoded.dictionary.to_pylist()):
        key = _UNSAFE.sub("-", value).strip(".-")[:_KEY_MAX] or "empty"
        known = names.setdefault(key.lower(), value)
        if known != value:
            raise InvalidInputError(
                "two groups would have one file name",
                found=f"{shown(known)} and {shown(value)}, both {shown(key)}",
                expected="values that differ in letters, digits, '_', '.' or '-'",
            )
        groups.append((key, np.flatnonzero(codes == code)))
    return groups


def _texts(column: Any, name: str) -> Any:
    try:
        return pc.fill_null(column.cast(pa.string()), "null")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"field {shown(name)} cannot name files", found=str(column.type)
        ) from error


def levels_of_part(levels: Levels, part: Part) -> Levels:
    """The dataset that goes into one part."""
    if len(part.roots) == levels[0].rows:
        return levels
    return select(levels, part.roots)


def existing_parts(target: Path) -> list[Path]:
    """Archives that are there and have the name of a part."""
    folder = target.absolute().parent
    name = re.compile(
        re.escape(target.stem) + r"_part\d{4,}" + re.escape(target.suffix or ".tacozip")
    )
    found = folder.iterdir() if folder.is_dir() else ()
    return [target.with_name(path.name) for path in found if name.fullmatch(path.name)]


def refuse_existing(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuse to begin when one of the parts exists already."""
    for path in paths:
        if not overwrite and os.path.lexists(path):
            raise ConflictError(
                "the target exists",
                where=shown(path, 200),
                hint="pass overwrite=True to replace it, or choose another name",
            )


@contextmanager
def removed_on_failure(paths: Sequence[Path], kept: Sequence[Path]) -> Iterator[Sequence[Path]]:
    """Remove the parts that were written when a later one fails; those of `kept` stay.

    A part that replaced an older file stays: removing it would lose both.
    """
    try:
        yield paths
    except BaseException:  # also on Ctrl-C: new parts must not stay
        for path in paths:
            if path not in kept and path.is_file():
                path.unlink(missing_ok=True)
        raise
