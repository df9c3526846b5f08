"""From Tortilla 0.5 and TACO v1 to TACO 2.0: `migrate`, and the plan of what it writes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.convert.collection import collection_of, refuse_missing
from comal.convert.columns import Footer, Rule, bands_of, fields_of, legal_ids, positions
from comal.convert.report import IDS_SCHEMA, MigrationReport, Notes
from comal.errors import InvalidInputError, shown
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import Workers
from comal.progress import Progress, silent
from comal.public import takes
from comal.storage import StorageConfig, location, targets
from comal.storage.targets import existing, refuse_sources
from comal.taco import spec as taco_spec
from comal.taco.columns import described
from comal.taco.model.collection import CollectionFields, extent_of
from comal.taco.model.levels import (
    Level,
    Levels,
    check_depth,
    check_levels,
    check_pit,
    with_padding,
)
from comal.taco.writing.containers import Writing, computed_schemas, settings
from comal.taco.writing.creating import container_of, write_levels
from comal.tortilla import opening, spec
from comal.tortilla.archive import Home, levels_below
from comal.tortilla.archive import Level as Depth
from comal.tortilla.frame import TortillaFrame

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_RULE = "the same children below every item at the top (TACO 2.0, 5.5, PIT-1)"
_HINTS = (
    "pad=True (--pad) fills what is missing with empty samples; "
    "children='position' (--children position) names children by their position"
)
Children = Literal["id", "position"]


# -- the source, level by level --------------------------------------------------------------------


def levels_of(frame: TortillaFrame) -> list[Depth]:
    """All items of a frame; the nested files of one depth are opened together."""
    home = frame.home
    if spec.PATH in frame.columns:
        raise InvalidInputError(
            "a flattened frame cannot be migrated", hint="pass the frame that was flattened"
        )
    if not home.typed:
        raise InvalidInputError(
            "the frame was opened with typed=False", hint="open the file again without typed=False"
        )
    table = frame.to_arrow().drop_columns([spec.SUBFILE])
    levels = [Depth.of(table)]
    check_depth(1 + bool(levels[0].folders.any()))
    for level in levels_below(levels[0], 0, home):
        levels.append(level)
        check_depth(len(levels) + bool(level.folders.any()))
    return levels


# -- the regular tree -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shaped:
    """One level of the regular tree."""

    rows: Rows
    """Row of the source, -1 for padding."""
    parent: Rows
    ids: Any
    folders: Mask
    reordered: bool = False
    """Whether children are in another order than in the source."""

    @property
    def padding(self) -> int:
        """How many rows are padding."""
        return int(np.count_nonzero(self.rows < 0))


def regular(depths: Sequence[Depth], ids: Sequence[Any], *, pad: bool) -> list[Shaped]:
    """The levels of a regular tree from those of the source and legal ids for each.

    `pad` fills missing FILE samples with padding. Raises for a source without items, for one that
    mixes files and nested files at the top, and for gaps that must not or cannot be padded.
    """
    top = depths[0]
    if len(top) == 0:
        raise InvalidInputError("the source holds no items", expected="at least one")
    if top.folders.any() and not top.folders.all():
        file, folder = int(np.argmin(top.folders)), int(np.argmax(top.folders))
        raise InvalidInputError(
            "the top level mixes items and nested files",
            found=f"{shown(ids[0][file].as_py())} is a FILE, "
            f"{shown(ids[0][folder].as_py())} a FOLDER",
            expected="one type for all samples of level 0 (TACO 2.0, 5.5, PIT-1)",
            hint="migrate items and nested files separately: frame.filter(...) selects rows",
        )
    levels = [Shaped(np.arange(len(top)), np.arange(len(top)), ids[0], top.folders)]
    place = np.arange(len(top))
    for depth, own in zip(depths[1:], ids[1:], strict=True):
        grid = _Grid.of(depth, own, place, tuple(levels))
        levels.append(grid.level(pad=pad))
        place = grid.target
    return levels


@dataclass(frozen=True, slots=True)
class _Grid:
    """A level as roots times positions; `target` is the cell of each row of the source."""

    above: Sequence[Shaped]
    """The levels above it."""
    target: Rows
    key_ids: Any
    """Id of each position."""
    key_parent: Rows
    """Position of its parent in the level above."""
    key_folder: Mask

    @classmethod
    def of(cls, depth: Depth, ids: Any, place: Rows, above: Sequence[Shaped]) -> _Grid:
        wide = len(above[-1].rows) // len(above[0].rows)
        parent = place[depth.parents]
        encoded = pc.dictionary_encode(ids)
        codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
        keys = (parent % wide) * max(len(encoded.dictionary), 1) + codes
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        # Positions are ordered by parent, then by first appearance.
        owner = (parent % wide)[first]
        order = np.lexsort((first, owner))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        first = first[order]
        column = rank[inverse]
        target = (parent // wide) * len(order) + column
        key_ids = ids.take(pa.array(first))
        grid = cls(above, target, key_ids, owner[order], depth.folders[first])
        grid._check_types(depth, column)
        grid._check_empty()
        return grid

    @property
    def roots(self) -> int:
        return len(self.above[0].rows)

    @property
    def width(self) -> int:
        return len(self.key_parent)

    @property
    def wide(self) -> int:
        """The width of the level above."""
        return len(self.above[-1].rows) // self.roots

    def level(self, *, pad: bool) -> Shaped:
        missing = self.roots * self.width - len(self.target)
        if missing:
            self._check_missing(missing, pad=pad)
        cells = self.roots * self.width
        rows = np.full(cells, -1, np.int64)
        rows[self.target] = np.arange(len(self.target))
        parent = np.repeat(np.arange(self.roots) * self.wide, self.width)
        parent = parent + np.tile(self.key_parent, self.roots)
        ids = self.key_ids.take(pa.array(np.tile(np.arange(self.width), self.roots)))
        folders = np.tile(self.key_folder, self.roots)
        moved = bool((np.diff(self.target) < 0).any())
        return Shaped(rows, parent, with_padding(ids, parent, rows < 0), folders, moved)

    def _check_types(self, depth: Depth, column: Rows) -> None:
        wrong = np.flatnonzero(depth.folders != self.key_folder[column])
        for row in wrong[:1].tolist():
            raise InvalidInputError(
                f"an item is a file in one place and a nested file in another, at level "
                f"{len(self.above)}",
                where=self._name(int(self.target[row]) // self.width, int(column[row])),
                expected=_RULE,
            )

    def _check_empty(self) -> None:
        folders = np.flatnonzero(self.above[-1].folders[: self.wide])
        childless = np.setdiff1d(folders, self.key_parent)
        for position in childless[:1].tolist():
            raise InvalidInputError(
                "a nested file holds no items",
                where=shown(self.above[-1].ids[position].as_py()),
                expected="a FOLDER sample has at least one child (TACO 2.0, 5.3)",
            )

    def _check_missing(self, missing: int, *, pad: bool) -> None:
        counts = np.bincount(self.target % self.width, minlength=self.width)
        short = np.flatnonzero(counts < self.roots)
        folder = short[self.key_folder[short]]
        key = int(folder[0] if len(folder) else short[0])
        having = np.unique(self.target[self.target % self.width == key] // self.width)
        lacking = int(np.setdiff1d(np.arange(min(len(having) + 1, self.roots)), having)[0])
        number = len(self.above)
        per_root = np.bincount(self.target // self.width, minlength=self.roots)
        found = (
            f"{self._name(lacking, key)} is missing, but {self._name(int(having[0]), key)} exists; "
            f"an item at the top has {per_root.min()} to {per_root.max()} items at level {number}, "
            f"{self.width} different ones in all"
        )
        what, hint = "", _HINTS
        if len(folder):
            what = "; a missing nested file cannot be padded, because padding is a FILE"
            hint = "select the rows that are alike: frame.filter(...)"
        elif not pad:
            what = ""
        elif missing > len(self.target):
            what = f"; {missing} empty samples for {len(self.target)} items would be needed"
            hint = "children='position' (--children position) names children by their position"
        else:
            return
        raise InvalidInputError(
            f"items differ in structure at level {number}{what}",
            found=found,
            expected=_RULE,
            hint=hint,
            level=number,
        )

    def _name(self, root: int, key: int) -> str:
        parts = [self.above[0].ids[root].as_py()]
        if len(self.above) > 1:
            parts.append("..")
        return shown("/".join([*parts, self.key_ids[key].as_py()]), 120)


# -- what is written -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What a migration will write."""

    levels: Levels
    ids: Any
    padding: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOptions(CollectionFields):
    """Options of a migration; see `migrate`."""

    extra: Mapping[str, Any] | None = None
    ids: Rule | None = None
    children: Children = "id"
    pad: bool = False
    bands: int | None = None


def _planned(
    frame: TortillaFrame, asked: MigrationOptions, notes: Notes, progress: Progress
) -> MigrationPlan:
    """The levels, and which ids change."""
    depths = levels_of(frame)
    ids = [
        positions(one.parents)
        if number and asked.children == "position"
        else legal_ids(one.ids, one.parents if number else None, asked.ids)
        for number, one in enumerate(depths)
    ]
    changed = [
        np.flatnonzero(pc.not_equal(one.ids, new).to_numpy(zero_copy_only=False))
        for one, new in zip(depths, ids, strict=True)
    ]
    shapes = regular(depths, ids, pad=asked.pad)
    counts = bands_of(depths, frame.home, asked.bands, progress)
    levels = []
    for number, (depth, shape) in enumerate(zip(depths, shapes, strict=True)):
        place = f"level {number}"
        if shape.reordered:
            notes.tell("changed", place, "order", "the children now have the same order everywhere")
        footer = Footer(depth.table, place, notes, counts[number])
        fields = fields_of(footer, keep_ids=len(changed[number]) > 0)
        levels.append(_level(depth, shape, fields, frame.home))
    found = tuple(levels)
    check_levels(found)
    check_pit(found)
    padding = sum(shape.padding for shape in shapes)
    return MigrationPlan(found, _renamed(depths, ids, changed), padding)


def _level(depth: Depth, shape: Shaped, fields: Any, home: Home) -> Level:
    """One level of the tree; padding has null in every field and no bytes."""
    padding = shape.rows < 0
    rows = np.where(padding, 0, shape.rows)
    index = pa.array(shape.rows, mask=padding) if padding.any() else pa.array(rows)
    spans = home.spans(depth.table, rows)
    spans.lengths[padding] = 0
    types = np.where(shape.folders, taco_spec.FOLDER, taco_spec.FILE)
    core = [described(name, pa.string(), None) for name in (taco_spec.ID, taco_spec.TYPE)]
    taken = fields.take(index)
    columns = [shape.ids, pa.array(types, pa.string()), *taken.columns]
    table = pa.table(columns, schema=pa.schema([*core, *taken.schema]))
    return Level(table, shape.parent, spans)


def _renamed(depths: Sequence[Depth], ids: Sequence[Any], changed: Sequence[Any]) -> Any:
    """Paths of old and new ids, for the rows whose own id changes."""
    tables = [IDS_SCHEMA.empty_table()]
    old, new = depths[0].ids, ids[0]
    for number, rows in enumerate(changed):
        if number:
            above = pa.array(depths[number].parents)
            old, new = (
                pc.binary_join_element_wise(paths.take(above), own, "/")
                for paths, own in ((old, depths[number].ids), (new, ids[number]))
            )
        level = pa.repeat(pa.scalar(number, pa.int8()), len(rows))
        columns = [level, *(paths.take(pa.array(rows)) for paths in (old, new))]
        tables.append(pa.table(columns, schema=IDS_SCHEMA))
    return pa.concat_tables(tables)


@takes(MigrationOptions)
def migrate(
    source: Any,
    output: str | os.PathLike[str] | None = None,
    output_format: str = "auto",
    *,
    dry_run: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    executor: Workers = None,
    **options: Any,
) -> MigrationReport:
    """Write a Tortilla or a TACO v1 of any generation as TACO 2.0.

    The bytes of the items are copied by range, from disk or from a server, and never held in
    memory as a whole. The target appears complete or not at all.

    Parameters
    ----------
    source
        Path or URL, a pattern, a list, or a `comal.tortilla.TortillaFrame`, whose rows are then
        migrated. One part of a set stands for the whole set; several files become one dataset.
    output
        Target: a file for ZIP, a folder for FOLDER. A dry run needs none.
    output_format
        ``zip``, ``folder`` or ``auto``: ZIP when the name ends in ``.zip`` or ``.tacozip``.
    dry_run
        Read all metadata, write nothing, and report what would be done.
    id, dataset_version, description, licenses, providers, tasks, title, curators, keywords, extent
        Fields of the collection, as for `comal.taco.Taco`. They replace those of a TACO v1.
        Fields that neither gives are not invented: the call raises and names them.
    extra
        More fields of the collection.
    ids
        New ids for old ones, a mapping or a function. Two may get the same name if they are
        below different parents.
    children
        ``position`` names nested items by their position, ``0000``, ``0001``, ..., for sets whose
        nested files have different ids below each parent. The old ids are kept in the field
        ``tortilla:id``.
    pad
        Fill up nested files that differ: an empty sample ``__TACOPAD__N`` replaces each missing
        one (TACO 2.0, 5.5).
    bands
        How many bands every raster has. None reads it from the header of each raster that has a
        shape, one short range per raster.
    overwrite
        Replace an existing target at the end, as a whole.
    progress
        Called with the progress.
    limits, config
        As for `comal.tortilla.open`.
    executor
        Encodes local metadata, as for `comal.taco.create`.
    **options
        Parameters above that are not in the signature, and settings of the level tables, as for
        `comal.taco.create`.

    Returns
    -------
    MigrationReport
        Everything that changes.

    Raises
    ------
    InvalidInputError
        Fields of the collection are missing, nested files differ in structure, or an argument
        cannot be used.
    LimitExceededError
        Nested deeper than the six levels of TACO 2.0, or larger than the limits.
    ConflictError
        The target exists, or is part of the source.
    NotThisFormatError, InvalidMetadataError, ObjectNotFoundError, AccessDeniedError, StorageError,
    ObjectChangedError
        The source is something else, broken, or cannot be read; or the target cannot be written.
    """
    target = None if output is None else targets.target_path(output, config)
    if target is None and not dry_run:
        raise InvalidInputError("nowhere to write", expected="output, or dry_run=True")
    kind = "zip" if target is None else container_of(target, output_format)
    known = MigrationOptions.__dataclass_fields__
    parquet = {name: value for name, value in options.items() if name not in known}
    asked = MigrationOptions(**{name: options[name] for name in options.keys() - parquet.keys()})
    _check_choices(asked.children, asked.bands)
    how = Writing(settings(parquet, kind), overwrite, progress, executor)
    given = CollectionFields.split(options)[0]
    with _opened(source, limits, config) as frame:
        files = frame.files
        if target is not None:
            refuse_sources(target, list(files))
            if not (overwrite or dry_run or location.stored(target)) and target.exists():
                raise existing(target)  # checked again, without a race, when the target is made
        notes = Notes()
        fields = collection_of(frame.collection, given, asked.extra or {}, notes)
        others = {part.collection for part in frame.home.parts}
        if len(others) > 1:
            message = (
                f"{len(others)} different ones in {len(files)} files; "
                "that of the first file is taken"
            )
            notes.tell("warning", "collection", "collection", message)
        if not dry_run:
            refuse_missing(notes.missing, files[0])
        plan = _planned(frame, asked, notes, progress or silent)
        document = _document(fields, plan.levels, kind, notes)
        report = _report(files[0], plan, notes, target, kind, dry_run=dry_run)
        if target is not None and not dry_run:
            write_levels(plan.levels, document, target, kind, how)
    return report


def _check_choices(children: str, bands: Any) -> None:
    if children not in ("id", "position"):
        raise InvalidInputError(
            "unknown value of children", found=shown(children), expected="id or position"
        )
    if bands is not None and (isinstance(bands, bool) or not isinstance(bands, int) or bands < 1):
        raise InvalidInputError("bands is not a number of bands", found=shown(bands))


@contextmanager
def _opened(source: Any, limits: Limits, config: StorageConfig | None) -> Iterator[TortillaFrame]:
    """The frame; closes it afterwards if it was opened here."""
    if isinstance(source, TortillaFrame):
        yield source
        return
    frame = opening.open(source, siblings=True, limits=limits, config=config)
    try:
        yield frame
    finally:
        for part in frame.home.parts:
            part.source.close()


def _document(fields: dict[str, Any], levels: Levels, kind: str, notes: Notes) -> dict[str, Any]:
    """COLLECTION.json; empty if a dry run found missing fields."""
    if notes.missing:
        return fields
    tables = [level.table for level in levels]
    extent = fields["extent"]
    if not extent or not extent.get("spatial"):
        fields["extent"] = _extent(tables, extent or {}, notes)
    return fields | computed_schemas(levels, spans=kind == "zip")


def _extent(tables: Sequence[Any], given: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    world = {"spatial": list(taco_spec.GLOBAL_BBOX)}  # taken if no row has a place
    try:
        found = extent_of(tables, world)
    except InvalidInputError as error:
        notes.tell("warning", "collection", "extent", f"the places cannot be read: {error.what}")
        placeless = [
            table.drop_columns([n for n in ("stac:crs",) if n in table.column_names])
            for table in tables
        ]
        found = extent_of(placeless, world)
    if found["spatial"] is world["spatial"]:
        notes.tell("warning", "collection", "extent", "the whole world, because no row has a place")
    else:
        notes.tell("added", "collection", "extent", "computed from the rows")
    return {"spatial": found["spatial"], "temporal": given.get("temporal") or found["temporal"]}


def _report(
    source: str,
    plan: MigrationPlan,
    notes: Notes,
    target: Path | None,
    kind: str,
    *,
    dry_run: bool,
) -> MigrationReport:
    levels = plan.levels
    files = [~level.folders for level in levels]
    sizes = [level.payloads.sizes()[mask] for level, mask in zip(levels, files, strict=True)]
    return MigrationReport(
        source=source,
        output=target,
        container=kind,
        dry_run=dry_run,
        levels=tuple(level.rows for level in levels),
        leaves=sum(map(len, sizes)) - plan.padding,
        bytes=sum(int(size.sum()) for size in sizes),
        padding=plan.padding,
        ids=plan.ids,
        changes=tuple(notes.changes),
        missing=tuple(notes.missing) if dry_run else (),
    )
