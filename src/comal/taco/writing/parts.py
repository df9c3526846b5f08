"""One dataset as several archives: by size, or by the values of fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.limits import parse_size
from comal.taco import spec
from comal.taco.model.levels import Levels, flat, select
from comal.taco.model.sources import Rows

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]+")
ENTRY_BYTES = 200
"""About what an entry costs besides its payload: two headers, two names, a row."""
_KEY_MAX = 120
MOST = 9_999
"""Archives of one dataset."""


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
        table = levels[0].table
        groups = GroupKeys(table.schema, group_by).of(table)
    limit = None if split_size is None else parse_size(split_size, "split_size is no size")
    weights = None if limit is None else root_bytes(levels)
    found: list[Part] = []
    for key, rows in groups:
        if limit is None or weights is None:
            found.append(Part(part_path(target, key), rows))
            continue
        for number, chunk in enumerate(_cut(rows, weights[rows], limit), start=1):
            found.append(Part(part_path(target, key, number), chunk))
    check_count(len(found))
    return found


def check_count(count: int) -> None:
    """Refuse more archives than names of four digits tell apart, before one is written."""
    if count > MOST:
        raise InvalidInputError(
            "too many archives",
            found=str(count),
            expected=f"at most {MOST}",
            hint="a larger split_size, or group_by a field of fewer values",
        )


def part_path(target: Path, key: str = "", number: int | None = None) -> Path:
    """The archive of a group, of a part by its number, or of a part of a group."""
    check_count(number or 0)
    named = f"{target.stem}_{key}" if key else target.stem
    end = "" if number is None else f"_part{number:04d}"
    return target.with_name(f"{named}{end}{target.suffix or '.tacozip'}")


def first_parts(paths: Sequence[Path]) -> list[Path]:
    """Of numbered parts the first of each group."""
    return [path for path in paths if path.stem.endswith("_part0001")]


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


class GroupKeys:
    """Which group a row belongs to, and what the group's archive is called.

    Parameters
    ----------
    schema
        Arrow schema of the tables of level 0.
    group_by
        The metadata field, or several.

    Raises
    ------
    InvalidInputError
        There is no such field.
    """

    def __init__(self, schema: Any, group_by: str | Sequence[str]) -> None:
        self._fields = [group_by] if isinstance(group_by, str) else list(group_by)
        self._values: dict[str, str] = {}
        for name in self._fields:
            if name not in schema.names or name == spec.ID:
                raise InvalidInputError(
                    f"no field {shown(name)} to group by", found=", ".join(schema.names)
                )

    def of(self, table: Any) -> list[tuple[str, Rows]]:
        """Names and rows of the groups of a table, in the order in which they first appear.

        Raises
        ------
        InvalidInputError
            Two groups, of this table or of those before, would have one file name.
        """
        columns = [_texts(flat(table.column(name)), name) for name in self._fields]
        encoded = pc.dictionary_encode(pc.binary_join_element_wise(*columns, "_"))
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)))
        rows = np.split(order, starts[1:])
        keys = [self._key(value) for value in encoded.dictionary.to_pylist()]
        return list(zip(keys, rows, strict=True))

    def _key(self, value: str) -> str:
        key = _UNSAFE.sub("-", value).strip(".-")[:_KEY_MAX] or "empty"
        known = self._values.setdefault(key.lower(), value)
        if known != value:
            raise InvalidInputError(
                "two groups would have one file name",
                found=f"{shown(known)} and {shown(value)}, both {shown(key)}",
                expected="values that differ in letters, digits, '_', '.' or '-'",
            )
        return key


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
