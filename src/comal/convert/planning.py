"""What a migration to TACO 2.0 is to write: levels of a regular tree, from a Tortilla."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.convert.bands import bands_of
from comal.convert.columns import Footer, fields_of
from comal.convert.ids import Rule, legal_ids, positions
from comal.convert.report import Notes, id_table
from comal.convert.tree import Depth, Shaped, depths_of, regular
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
class MigrationPlan:
    """What is to be written."""

    levels: Levels
    ids: Any
    padding: int


@dataclass(slots=True)
class Migration:
    """One migration on its way."""

    frame: TortillaFrame
    notes: Notes
    dry_run: bool
    progress: Progress

    def plan(
        self, rule: Rule | None, children: Children, rai: Rai, bands: int | None, *, pad: bool
    ) -> MigrationPlan:
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
        sources = [part.source for part in self.frame.home.parts]
        counts = bands_of(depths, sources, bands, self.notes, self.progress)
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
        return MigrationPlan(found, _renamed(depths, ids, changed), padding)

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
