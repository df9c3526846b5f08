"""What a migration to TACO 2.0 is to write: levels of a regular tree, from a Tortilla."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.convert.bands import band_counts
from comal.convert.columns import Footer, fields_of
from comal.convert.regular import Rule, Shaped, legal_ids, positions, regular
from comal.convert.report import Notes, id_table
from comal.convert.tree import Depth, depths_of
from comal.errors import InvalidInputError, LimitExceededError
from comal.progress import Progress
from comal.taco import spec as taco_spec
from comal.taco.model.columns import described
from comal.taco.model.levels import Level, Levels, check_levels
from comal.taco.model.pit import check_pit
from comal.tortilla import spec
from comal.tortilla.reading.frame import TortillaFrame

Children = Literal["id", "position"]
Rai = Literal["rai", "geoenrich"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be written."""

    levels: Levels
    ids: Any
    padding: int


@dataclass(slots=True)
class Work:
    """One migration on its way."""

    frame: TortillaFrame
    notes: Notes
    dry_run: bool
    progress: Progress

    def plan(
        self, rule: Rule | None, children: Children, rai: Rai, bands: int | None, *, pad: bool
    ) -> Plan:
        """The levels, and which ids change."""
        depths = depths_of(self.frame)
        ids = [
            positions(one.parent)
            if number and children == "position"
            else legal_ids(one.ids, one.parent if number else None, rule)
            for number, one in enumerate(depths)
        ]
        changed = [
            np.flatnonzero(pc.not_equal(one.ids, new).to_numpy(zero_copy_only=False))
            for one, new in zip(depths, ids, strict=True)
        ]
        shapes = self._shapes(depths, ids, pad=pad)
        counts = self._bands(depths, bands)
        sources = [part.source for part in self.frame.home.parts]
        levels = []
        for number, (depth, shape) in enumerate(zip(depths, shapes, strict=True)):
            place = f"level {number}"
            if shape.reordered:
                self.notes.tell("changed", place, "order", "of children is the same everywhere")
            self._tell_of_files(depth, place)
            footer = Footer(depth.table, place, self.notes, counts[number], rai == "geoenrich")
            fields = fields_of(footer, keep_ids=len(changed[number]) > 0)
            levels.append(_level(depth, shape, fields, sources))
        found = tuple(levels)
        if not self.notes.refused:
            with self._refusals():
                check_levels(found)
                check_pit(found)
        padding = sum(shape.padding for shape in shapes)
        return Plan(found, _renamed(depths, ids, changed), padding)

    def _tell_of_files(self, depth: Depth, place: str) -> None:
        """Note what reading the files of a depth has changed or left out."""
        for name in sorted(depth.aliased):
            self.notes.tell("renamed", place, name, f"is {spec.ALIASES[name]}")
        if depth.collections:
            what = "of nested files: a data set has one collection, that of the outermost file"
            self.notes.tell("dropped", place, "collection", what, depth.collections)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """A dry run goes on where it can, and reports why a migration would not."""
        try:
            yield
        except (InvalidInputError, LimitExceededError) as error:
            if not self.dry_run:
                raise
            self.notes.refused.append(error)

    def _shapes(self, depths: Sequence[Depth], ids: Sequence[Any], *, pad: bool) -> list[Shaped]:
        shapes: list[Shaped] = []
        with self._refusals():
            shapes = regular(depths, ids, pad=pad)
        return shapes or [
            Shaped(np.arange(depth.rows), depth.parent, new, depth.folders)
            for depth, new in zip(depths, ids, strict=True)
        ]

    def _bands(self, depths: Sequence[Depth], given: int | None) -> list[Any]:
        """Bands of the rasters of each depth; a nested file copies those of its first child."""
        counts: list[Any] = []
        sources = [part.source for part in self.frame.home.parts]
        for number, depth in enumerate(depths):
            found = np.full(depth.rows, given or 0, np.int64)
            if given is None and _has_shapes(depth):
                rows = np.flatnonzero(_rasters(depth))
                found[rows], height, width = band_counts(depth.spans(sources), rows, self.progress)
                self._compare(depth, number, rows, height, width)
            counts.append(found)
        if given is None:
            for number in reversed(range(len(depths) - 1)):
                _of_children(depths[number], depths[number + 1], counts[number], counts[number + 1])
        return counts

    def _compare(self, depth: Depth, number: int, rows: Any, height: Any, width: Any) -> None:
        """Report rasters whose header has other rows and columns than the table."""
        shapes = depth.table[spec.RASTER_SHAPE].combine_chunks().take(pa.array(rows))
        if len(rows) == 0 or not pc.all(pc.equal(pc.list_value_length(shapes), 2)).as_py():
            return
        told = np.asarray(pc.list_flatten(shapes).cast(pa.int64())).reshape(-1, 2)
        wrong = (height > 0) & ((told[:, 0] != height) | (told[:, 1] != width))
        if wrong.any():
            self.notes.tell(
                "warning",
                f"level {number}",
                spec.RASTER_SHAPE,
                "is not what the header of the raster says; kept",
                int(np.count_nonzero(wrong)),
            )


def _has_shapes(depth: Depth) -> bool:
    """Whether there are shapes of rasters, and not something else under that name."""
    if spec.RASTER_SHAPE not in depth.table.column_names:
        return False
    kind = depth.table.schema.field(spec.RASTER_SHAPE).type
    return bool(pa.types.is_list(kind) and pa.types.is_integer(kind.value_type))


def _rasters(depth: Depth) -> Any:
    """Which items are files that have a shape."""
    shaped = depth.table[spec.RASTER_SHAPE].is_valid()
    raw = pc.is_in(depth.table[spec.FILE_FORMAT], pa.array([spec.BYTES, spec.TORTILLA]))
    return np.asarray(pc.and_not(shaped, raw))


def _of_children(above: Depth, below: Depth, counts: Any, counts_below: Any) -> None:
    """Bands of nested files whose shape is that of their first child, as writers copy it."""
    name = spec.RASTER_SHAPE
    if not _has_shapes(above) or not _has_shapes(below):
        return
    parents, first = np.unique(below.parent, return_index=True)
    columns = [
        one.table[name].combine_chunks().take(pa.array(rows))
        for one, rows in ((above, parents), (below, first))
    ]
    ends = [
        pc.binary_join_element_wise(
            *(pc.list_element(_two(column), n).cast(pa.string()) for n in (0, 1)), " "
        )
        for column in columns
    ]
    same = np.asarray(pc.fill_null(pc.equal(*ends), False).to_numpy(zero_copy_only=False), bool)
    counts[parents[same]] = counts_below[first[same]]


def _two(column: Any) -> Any:
    """Lists of two numbers; anything else is null."""
    pair = pc.equal(pc.list_value_length(column), 2)
    filler = pa.scalar([-1, -1], column.type)
    return pc.if_else(pc.fill_null(pair, False), column, filler)


def _level(depth: Depth, shape: Shaped, fields: Any, sources: list[Any]) -> Level:
    """One level of the tree; padding has null in every field and no bytes."""
    padding = shape.rows < 0
    rows = np.where(padding, 0, shape.rows)
    index = pa.array(shape.rows, mask=padding) if padding.any() else pa.array(rows)
    spans = depth.spans(sources).take(rows)
    spans.lengths[padding] = 0
    types = np.where(shape.folders, taco_spec.FOLDER, taco_spec.FILE)
    table = pa.table(
        [shape.ids, pa.array(types, pa.string())],
        schema=pa.schema(
            [
                described(taco_spec.ID, pa.string(), None),
                described(taco_spec.TYPE, pa.string(), None),
            ]
        ),
    )
    taken = fields.take(index)
    for position, field in enumerate(taken.schema):
        table = table.append_column(field, taken.column(position))
    return Level(table, shape.parent, spans)


def _renamed(depths: Sequence[Depth], ids: Sequence[Any], changed: Sequence[Any]) -> Any:
    """Paths of old and new ids, of the rows whose own id is not the same."""
    parts: list[tuple[int, Any, Any]] = []
    old, new = depths[0].ids, ids[0]
    for number, rows in enumerate(changed):
        if number:
            above = pa.array(depths[number].parent)
            old, new = (
                pc.binary_join_element_wise(paths.take(above), own, "/")
                for paths, own in ((old, depths[number].ids), (new, ids[number]))
            )
        if len(rows):
            parts.append((number, old.take(pa.array(rows)), new.take(pa.array(rows))))
    return id_table(parts)
