"""Views of lazy datasets, and the containers below them.

A view is a tree of plain values that describes rows: `Scan` reads level 0 of a container, `Union`
concatenates views, `Staged` applies one more stage to a view. The tree holds no result and no
connection, so it can be pickled and shared. `Home` knows the containers of a view, and finds the
container of a row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal import query
from comal.errors import (
    InvalidMetadataError,
    NotInContainerError,
    QueryError,
    shown,
)
from comal.samples.filters import Filter
from comal.table.columns import one_array
from comal.taco import spec
from comal.taco.reading.container import Container
from comal.taco.reading.level import Level

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

ColumnMode = Literal["intersection", "fill_missing", "strict"]


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """Level 0 of one container."""

    container: Container


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """Several views concatenated, with these columns."""

    parts: tuple[View, ...]
    columns: tuple[str, ...]
    mode: ColumnMode


_CHOOSING = re.compile(
    r"\s*select\s+\*\s+from\s+(?:data|level0)\s*(?:;?\s*\Z|\s(?:where|order|limit)\s)",
    re.IGNORECASE,
)
_JOINING = re.compile("union|intersect|except", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sql:
    """A query of the caller over the view below."""

    text: str
    params: tuple[tuple[str, Any], ...] = ()
    isolated: bool | query.Budget = False

    @property
    def only_chooses(self) -> bool:
        """Whether its rows are certainly unchanged rows of the view below.

        True for ``SELECT * FROM data WHERE ...``, as are most queries; may be False for others.
        """
        text = self.text
        return not self.isolated and bool(_CHOOSING.match(text)) and not _JOINING.search(text)


@dataclass(frozen=True, slots=True)
class Sort:
    """A stable sort by one column."""

    column: str
    descending: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """The first rows."""

    count: int


Stage = Sql | Filter | Sort | Limit


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """A view after one more stage."""

    below: View
    stage: Stage


View = Scan | Union | Staged


def walk(view: View) -> Iterator[View]:
    """A view and all views below it, bottom up."""
    match view:
        case Union(parts):
            for part in parts:
                yield from walk(part)
        case Staged(below):
            yield from walk(below)
    yield view


def stages(view: View) -> list[Stage]:
    """All stages of a view and of the views below it, bottom up."""
    return [one.stage for one in walk(view) if isinstance(one, Staged)]


def queries(view: View) -> list[Sql]:
    """The caller's queries among the stages of a view."""
    return [stage for stage in stages(view) if isinstance(stage, Sql)]


def outer_union(view: View) -> Union | None:
    """The outermost union of a view; None if there is none."""
    found = None
    for one in walk(view):
        found = one if isinstance(one, Union) else found
    return found


def may_change(view: View) -> bool:
    """Whether a query of the view may have changed the values of rows."""
    return any(not one.only_chooses for one in queries(view))


# -- containers ------------------------------------------------------------------------------------


_REMEMBERED = 8
_KEEP = (
    "keep id, type and the internal: columns in the query (SELECT *), and give computed"
    " columns other names"
)


class Home:
    """The containers below a view.

    A dataset over one ZIP or folder has no ``internal:source_file``. In an index it names the ZIP.
    In a concatenation it is the name of each container, or its href if two share a name; for an
    index in a concatenation, the name of the ZIP follows after a slash.
    """

    def __init__(self, view: View) -> None:
        known: dict[Hashable, Container] = {}
        for one in walk(view):
            if isinstance(one, Scan):
                known.setdefault(_key(one.container), one.container)
        self.containers = tuple(known.values())
        self.labels = _labels(self.containers)
        # Also labelled: a concatenation of views of a single container.
        self.is_labelled = self.containers[0].is_index or outer_union(view) is not None
        self.depth = max(len(container.levels) for container in self.containers) - 1
        """Index of the deepest level."""
        self._by_label = {label: number for number, label in enumerate(self.labels)}
        self._by_key = {key: number for number, key in enumerate(known)}

    def number(self, container: Container) -> int:
        """The index of a container, or of an equal one."""
        return self._by_key[_key(container)]

    def prefix(self, number: int) -> str:
        """The prefix of the names of the ZIPs of an index."""
        return f"{self.labels[number]}/" if len(self.containers) > 1 else ""

    def resolve(self, source_file: str | None) -> tuple[Container, str | None]:
        """The container of a row, and the name of its ZIP if that is an index."""
        if len(self.containers) == 1:
            only = self.containers[0]
            return only, source_file if only.is_index else None
        number = self._by_label.get(source_file or "")
        if number is not None and not self.containers[number].is_index:
            return self.containers[number], None
        for number, container in enumerate(self.containers):
            prefix = self.prefix(number)
            if container.is_index and source_file and source_file.startswith(prefix):
                return container, source_file[len(prefix) :]
        raise NotInContainerError(
            f"no part of the dataset has this {spec.SOURCE_FILE}",
            found=shown(source_file),
            expected=", ".join(shown(label) for label in self.labels[:10]),
        )

    # -- children ----------------------------------------------------------------------------------

    def children(self, source_file: str | None, index: int, current_id: int) -> Any:
        """The children, at level `index`, of the row with this source file and id."""
        container, inner = self.resolve(source_file)
        if index >= len(container.levels):
            raise InvalidMetadataError(
                "a FOLDER has no level below it",
                where=container.source.href,
                found=f"{len(container.levels)} levels",
            )
        levels = container.only([inner]).levels
        level = levels[index]
        parent = levels[index - 1].row(current_id, inner)
        table = level.take(level.children(parent))
        if self.is_labelled:
            table = _labelled(table, pa.repeat(source_file, len(table)))
        return table

    def narrowed(self, table: Any) -> Home:
        """The same over those ZIPs alone that the rows of a query are of."""
        if spec.SOURCE_FILE not in table.column_names:
            return self
        named: dict[int, list[str | None]] = {}
        for name in table.column(spec.SOURCE_FILE).drop_null().unique().to_pylist():
            container, inner = self.resolve(name)
            named.setdefault(self.number(container), []).append(inner)
        home = copy(self)
        every = enumerate(self.containers)
        home.containers = tuple(container.only(named.get(n, ())) for n, container in every)
        return home

    # -- rows of a query ---------------------------------------------------------------------------

    def identifies(self, columns: Sequence[str]) -> bool:
        """Whether columns identify every row, at any level of the dataset."""
        needed = {spec.CURRENT_ID}
        needed |= {spec.SOURCE_FILE} if self.is_labelled else set()
        needed |= {spec.RELATIVE_PATH} if self.depth else set()
        return needed <= set(columns)

    def own_rows(self, table: Any) -> Any:
        """The protected columns of the rows of a query, read from the levels.

        A query only identifies rows, by id or by path; spans and paths come from the levels. Rows
        without an id or path, as from an outer join, become null. Raises if the query changed a
        protected value, or names a row that does not exist.
        """
        home = self.narrowed(table)
        containers, depths, rows = home.locate(table)
        sources = table.column(spec.SOURCE_FILE) if self.is_labelled else None
        parts = [self.containers[0].levels[0].navigation(np.zeros(0, np.int64))]
        places = [np.zeros(0, np.int64)]
        for number, container in enumerate(home.containers):
            for depth, level in enumerate(container.levels):
                mine = np.flatnonzero((rows >= 0) & (containers == number) & (depths == depth))
                if len(mine):
                    part = level.navigation(rows[mine])
                    if sources is not None:
                        part = _labelled(part, sources.take(pa.array(mine)).cast(pa.string()))
                    parts.append(part)
                    places.append(mine)
        every = pa.concat_tables(parts, promote_options="permissive")
        index = np.full(table.num_rows, -1, np.int64)
        index[np.concatenate(places)] = np.arange(every.num_rows)
        in_order = np.array_equal(index, np.arange(every.num_rows))
        own = every if in_order else every.take(pa.array(index, mask=index < 0))
        _compare(table, own, index >= 0)
        return own

    def locate(self, table: Any) -> tuple[Int64s, Int64s, Int64s]:
        """For each row of a query its container, level and row there; -1 without id or path."""
        paths = _paths(table, labelled=self.is_labelled)
        keys = table.column(spec.CURRENT_ID) if spec.CURRENT_ID in table.column_names else paths
        named = np.asarray(keys.is_valid())
        depths = np.zeros(table.num_rows, np.int64)
        if self.depth:
            depths += np.asarray(pc.fill_null(pc.count_substring(paths, "/"), 0), np.int64)
        containers = np.zeros(table.num_rows, np.int64)
        rows = np.full(table.num_rows, -1, np.int64)
        sources = table.column(spec.SOURCE_FILE) if self.is_labelled else None
        for name, of_source in _by_source(sources, table.num_rows):
            for depth in np.unique(depths[of_source]).tolist():
                mine = of_source[(depths[of_source] == depth) & named[of_source]]
                if len(mine):
                    container, inner = self.resolve(name)
                    containers[mine] = self.number(container)
                    rows[mine] = _named(container.levels, inner, depth, keys.take(pa.array(mine)))
        if (named & (rows < 0)).any():
            raise QueryError(
                "a row of the query is not a sample of the dataset",
                where=f"row {int(np.argmax(named & (rows < 0)))}",
                hint=_KEEP,
            )
        return containers, depths, rows

    def check_paths(self, column: Any) -> None:
        """Refuse GDAL paths that are not those of the dataset."""
        names: set[str] = set()
        if spec.is_text(column.type):  # of a wide index, the ZIPs that paths end in are enough
            ends = pc.replace_substring_regex(column, r"^.*/", "").drop_null().unique().to_pylist()
            names = {*ends, *map(unquote, ends)}
        levels = [level for one in self.containers for level in one.only(names).levels]
        columns = [level.navigation(np.arange(level.num_rows))[spec.GDAL_VSI] for level in levels]
        known = pa.chunked_array([chunk for c in columns for chunk in c.chunks], pa.string())
        strange = column.is_valid()
        if spec.is_text(column.type):
            found = pc.is_in(column.cast(pa.string()), value_set=known)
            strange = pc.and_(strange, pc.invert(found))
        if pc.any(strange, min_count=0).as_py():
            row = int(pc.index(strange, pa.scalar(value=True)).as_py())
            raise _changed(spec.GDAL_VSI, row, column[row].as_py(), "a path of the dataset")

    # -- filters over descendants ------------------------------------------------------------------

    def matched(self, container: Container, rule: Filter) -> tuple[Level, Bools]:
        """Level 0, of a wide index with the ZIPs of matches alone, and which rows have one."""
        found = container.masks.get(rule)
        if found is None:
            found = _matching(container, rule)
            while len(container.masks) >= _REMEMBERED:
                container.masks.pop(next(iter(container.masks)), None)
            container.masks[rule] = found
        return found

    def prepare(self, rule: Filter) -> None:
        """Compute the masks of a filter, so that a running query need not read anything."""
        for container in self.containers:
            self.matched(container, rule)

    def keep(self, rule: Filter, sources: Any, ids: Any) -> Any:
        """Which rows of level 0 a filter keeps, as an Arrow array.

        `sources` (None without labels) and `ids` are their ``internal:`` columns.
        """
        result = np.ones(len(ids), np.bool_)
        numbers = spec.int64s(ids)
        for name, mine in _by_source(sources, len(ids)):
            container, inner = self.resolve(name)
            level, mask = self.matched(container, rule)
            rows = level.find(numbers[mine], inner)
            result[mine] = np.append(mask, False)[rows]  # -1 is no row
        return pa.array(result)


def _named(levels: Sequence[Level], inner: str | None, depth: int, keys: Any) -> Int64s:
    """The rows of a level with these ids or paths; -1 for no such row."""
    if depth < len(levels):
        level = levels[depth]
        if spec.is_text(keys.type):
            return level.find_paths(keys, inner)
        if pa.types.is_integer(keys.type):
            return level.find(spec.int64s(keys), inner)
    return np.full(len(keys), -1, np.int64)


def _by_source(sources: Any, count: int) -> list[tuple[str | None, Int64s]]:
    """The rows of each ``internal:source_file``; all of them for a dataset without."""
    if sources is None:
        return [(None, np.arange(count))]
    codes = pc.fill_null(sources, "").dictionary_encode()
    if isinstance(codes, pa.ChunkedArray):
        codes = codes.combine_chunks()
    indices = np.asarray(codes.indices, np.int64)
    names = codes.dictionary.to_pylist()
    return [(name, np.flatnonzero(indices == n)) for n, name in enumerate(names)]


def _paths(table: Any, *, labelled: bool) -> Any:
    """For each row of a query its path below DATA/, or its id if there is no path."""
    columns = table.column_names
    needed = [] if spec.CURRENT_ID in columns else [spec.ID]
    for name in [*needed, *([spec.SOURCE_FILE] if labelled else [])]:
        if name not in columns:
            raise QueryError(f"the rows have no column {name}, which navigation needs", hint=_KEEP)
    found = [name for name in (spec.RELATIVE_PATH, spec.ID) if name in columns]
    texts = [table.column(name) for name in found]
    for name, column in zip(found, texts, strict=True):
        if not spec.is_text(column.type):
            raise _changed(name, 0, column.type, "text")
    paths = [one_array(column.cast(pa.string())) for column in texts]
    if not paths:
        return pa.repeat("", table.num_rows)
    return pc.coalesce(pc.utf8_rtrim(paths[0], "/"), *paths[1:])


def _compare(table: Any, own: Any, known: Bools) -> None:
    """Refuse a query whose protected columns differ from those of the levels."""
    for name in own.column_names:
        if name not in table.column_names:
            continue
        given, right = table.column(name), own.column(name)
        try:
            if given.type != right.type:
                given = given.cast(right.type)
            same = pc.fill_null(pc.equal(given, right), False)
        except pa.ArrowException:  # a value of another kind
            same = pc.invert(pc.true_unless_null(right))
        both = pc.and_(given.is_null(), right.is_null())
        wrong = ~np.asarray(pc.or_(same, both)) & known
        if name == spec.GDAL_VSI:
            wrong |= ~known & np.asarray(given.is_valid())
        if wrong.any():
            row = int(np.argmax(wrong))
            raise _changed(name, row, given[row].as_py(), shown(right[row].as_py()))


def _changed(name: str, row: int, found: object, expected: str) -> QueryError:
    return QueryError(
        f"the query changed {name}, which leads to the bytes of samples",
        where=f"row {row}",
        found=shown(found),
        expected=expected,
        hint=_KEEP,
    )


def _matching(container: Container, rule: Filter) -> tuple[Level, Bools]:
    """Level 0, and which of its rows match or have a matching descendant at the filter's level."""
    levels = container.levels
    own = rule.within(levels[rule.level].stored) if rule.level < len(levels) else None
    if own is None:
        level = container.only(()).levels[0]
        return level, np.zeros(level.num_rows, np.bool_)
    if container.is_wide:
        levels = container.only(_parts_of_matches(levels[rule.level], own)).levels
    target = levels[rule.level]
    mask = np.zeros(target.num_rows, np.bool_)
    start = 0
    for batch in target.table.iter_batches(list(own.columns)):
        columns = [batch.column(name) for name in own.columns]
        mask[start : start + batch.num_rows] = own.matches(*columns)
        start += batch.num_rows
    for index in range(rule.level, 0, -1):
        above = np.zeros(levels[index - 1].num_rows, np.bool_)
        above[levels[index].parents[mask]] = True
        mask = above
    return levels[0], mask


def _parts_of_matches(level: Level, rule: Filter) -> set[str]:
    """The ZIPs of an index with rows of a level that match."""
    found: set[str] = set()
    table = level.table.only(level.groups_meeting(rule))
    for batch in table.iter_batches([*rule.columns, spec.SOURCE_FILE]):
        mask = rule.matches(*(batch.column(name) for name in rule.columns))
        found.update(batch.column(spec.SOURCE_FILE).filter(pa.array(mask)).unique().to_pylist())
    return found


def _labelled(table: Any, labels: Any) -> Any:
    """Rows with `labels` as their ``internal:source_file``."""
    if spec.SOURCE_FILE in table.column_names:
        table = table.drop_columns([spec.SOURCE_FILE])
    return table.add_column(table.num_columns - 1, spec.SOURCE_FILE, labels)


def _key(container: Container) -> Hashable:
    base = container.base.location if container.base is not None else None
    return container.source.location, container.kind, base


def _labels(containers: Sequence[Container]) -> tuple[str, ...]:
    names = [_short(container) for container in containers]
    named = Counter(names)
    whole = [
        container.source.href if named[name] > 1 else name
        for name, container in zip(names, containers, strict=True)
    ]
    # An index opened with two bases gives two containers with the same location.
    held = Counter(whole)
    return tuple(f"{name}#{n}" if held[name] > 1 else name for n, name in enumerate(whole))


def _short(container: Container) -> str:
    if container.name in {spec.TACOCAT, spec.TACOCAT_FOLDER}:
        location = container.source.location.parent()
        return location.name or location.root
    return container.name
