"""The containers of a dataset, and how a row says which of them holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotInContainerError,
    QueryError,
    shown,
)
from comal.samples.filters import Filter
from comal.table.columns import one_array
from comal.taco import spec
from comal.taco.reading.container import Container
from comal.taco.reading.stages import View, containers, unions

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_REMEMBERED = 8


class Home:
    """The containers below a view.

    A dataset over one ZIP or folder has no ``internal:source_file``. An index has that of its
    ZIPs. In a concatenation it is the name of each container, or its whole location where two have
    one name; rows of an index in a concatenation have that name, a slash and the ZIP's.
    """

    def __init__(self, view: View) -> None:
        self.containers = _distinct(list(containers(view)))
        self.labels = _labels(self.containers)
        # Views of one file that were put together say where they come from as others do.
        self.is_labelled = self.containers[0].is_index or next(unions(view), None) is not None
        self._by_label = {label: number for number, label in enumerate(self.labels)}
        self._by_key = {_key(one): number for number, one in enumerate(self.containers)}

    def number(self, container: Container) -> int:
        """The place of a container, or of another one that is the same."""
        return self._by_key[_key(container)]

    @property
    def depth(self) -> int:
        """Index of the deepest level."""
        return max(len(container.levels) for container in self.containers) - 1

    def prefix(self, number: int) -> str:
        """What stands before the names of the ZIPs of an index."""
        return f"{self.labels[number]}/" if len(self.containers) > 1 else ""

    def resolve(self, source_file: str | None) -> tuple[Container, str | None]:
        """The container of a row, and the ZIP of it where it is an index."""
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
        """The children of a row.

        Parameters
        ----------
        source_file, current_id
            Of the parent.
        index
            The level of the children.

        Raises
        ------
        InvalidMetadataError
            There is no such level, or no such parent.
        """
        container, inner = self.resolve(source_file)
        if index >= len(container.levels):
            raise InvalidMetadataError(
                "a FOLDER without a level below it",
                where=container.source.href,
                found=f"{len(container.levels)} levels",
            )
        level = container.levels[index]
        parent = container.levels[index - 1].row(current_id, inner)
        table = level.take(level.children(parent))
        if self.is_labelled:
            table = _labelled(table, source_file, spec.SOURCE_FILE in level.columns)
        return table

    # -- rows of a query ---------------------------------------------------------------------------

    def identifies(self, columns: Sequence[str]) -> bool:
        """Whether columns say of every row, of whatever level, which one of the data set it is."""
        needed = {spec.CURRENT_ID}
        needed |= {spec.SOURCE_FILE} if self.is_labelled else set()
        needed |= {spec.RELATIVE_PATH} if self.depth else set()
        return needed <= set(columns)

    def own_rows(self, table: Any) -> Any:
        """The protected columns of the rows of a query, as the levels have them.

        What leads to bytes comes from the levels alone: a query names rows, by id or by path.

        Returns
        -------
        pyarrow.Table
            As many rows; those that name nothing, as a join leaves them, are null.

        Raises
        ------
        QueryError
            The query says something else of a row, or names one that is not there.
        InvalidInputError
            Its columns do not say which rows they are.
        """
        paths = _paths(table, labelled=self.is_labelled)
        ids = table.column(spec.CURRENT_ID) if spec.CURRENT_ID in table.column_names else None
        named = np.asarray((paths if ids is None else ids).is_valid())
        depths = np.zeros(table.num_rows, np.int64)
        if self.depth:
            depths += np.asarray(pc.fill_null(pc.count_substring(paths, "/"), 0), np.int64)
        sources = table.column(spec.SOURCE_FILE) if self.is_labelled else None
        parts = [self.containers[0].levels[0].navigation(np.zeros(0, np.int64))]
        places = []
        for name, rows in _by_source(sources, table.num_rows):
            for depth in np.unique(depths[rows]).tolist():
                mine = rows[(depths[rows] == depth) & named[rows]]
                if len(mine):
                    keys = (paths if ids is None else ids).take(pa.array(mine))
                    parts.append(self._named_rows(name, depth, keys, mine))
                    places.append(mine)
        every = pa.concat_tables(parts, promote_options="permissive")
        index = np.full(table.num_rows, -1, np.int64)
        index[np.concatenate([*places, np.zeros(0, np.int64)])] = np.arange(every.num_rows)
        in_order = np.array_equal(index, np.arange(every.num_rows))
        own = every if in_order else every.take(pa.array(index, mask=index < 0))
        _compare(table, own, index >= 0)
        return own

    def _named_rows(self, label: str | None, depth: int, keys: Any, places: Any) -> Any:
        container, inner = self.resolve(label)
        rows = np.full(len(keys), -1, np.int64)
        if depth < len(container.levels):
            level = container.levels[depth]
            if spec.is_text(keys.type):
                rows = level.find_paths(keys, inner)
            elif pa.types.is_integer(keys.type):
                codes = None
                if container.is_index:
                    codes = np.full(len(keys), container.source_codes.get(inner or "", -1))
                rows = level.index_of_rows.find(np.asarray(keys.cast(pa.int64())), codes)
        if (rows < 0).any():
            raise QueryError(
                "a row of the query is no sample of the dataset",
                where=f"row {places[int(np.argmin(rows))]}",
                hint=_KEEP,
            )
        table = level.navigation(rows)
        if not self.is_labelled:
            return table
        return _labelled(table, label, spec.SOURCE_FILE in table.column_names)

    def check_paths(self, column: Any) -> None:
        """Refuse GDAL paths that are not those of the dataset."""
        known = pa.chunked_array(
            [
                chunk
                for container in self.containers
                for level in container.levels
                for chunk in level.navigation(np.arange(level.num_rows))
                .column(spec.GDAL_VSI)
                .chunks
            ],
            pa.string(),
        )
        strange = column.is_valid()
        if spec.is_text(column.type):
            found = pc.is_in(column.cast(pa.string()), value_set=known)
            strange = pc.and_(strange, pc.invert(found))
        if pc.any(strange, min_count=0).as_py():
            row = int(pc.index(strange, pa.scalar(value=True)).as_py())
            raise _changed(spec.GDAL_VSI, row, column[row].as_py(), "a path of the dataset")

    # -- filters over descendants ------------------------------------------------------------------

    def _mask(self, container: Container, rule: Filter) -> Bools:
        """The rows of level 0 of a container at or above a match."""
        found = container.masks.get(rule)
        if found is None:
            found = _matching(container, rule)
            while len(container.masks) >= _REMEMBERED:
                container.masks.pop(next(iter(container.masks)), None)
            container.masks[rule] = found
        return found

    def prepare(self, rule: Filter) -> None:
        """Find out what a filter matches, so that a running query need not read anything."""
        for container in self.containers:
            self._mask(container, rule)

    def keep(self, rule: Filter, sources: Any, ids: Any) -> Any:
        """Which rows of level 0 a filter keeps, as an Arrow array.

        Parameters
        ----------
        sources, ids
            ``internal:source_file`` (None for a dataset without) and ``internal:current_id``.
        """
        result = np.ones(len(ids), np.bool_)
        numbers = spec.int64s(ids)
        for name, rows in _by_source(sources, len(ids)):
            result[rows] = self._kept(rule, name, numbers[rows])
        return pa.array(result)

    def _kept(self, rule: Filter, source_file: str | None, ids: Any) -> Bools:
        container, inner = self.resolve(source_file)
        codes = None
        if container.is_index:
            code = container.source_codes.get(inner or "", -1)
            codes = np.full(len(ids), code, np.int64)
        rows = container.levels[0].index_of_rows.find(ids, codes)
        kept: Bools = (rows >= 0) & self._mask(container, rule)[np.maximum(rows, 0)]
        return kept


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


_KEEP = (
    "keep id, type and the internal: columns in the query (SELECT *), and call what you compute"
    " something else"
)


def _paths(table: Any, *, labelled: bool) -> Any:
    """For each row of a query its path below DATA/, or its id where there is no other."""
    columns = table.column_names
    needed = [] if spec.CURRENT_ID in columns else [spec.ID]
    for name in [*needed, *([spec.SOURCE_FILE] if labelled else [])]:
        if name not in columns:
            raise InvalidInputError(
                f"the rows have no column {name}, which navigation needs", hint=_KEEP
            )
    found = [name for name in (spec.RELATIVE_PATH, spec.ID) if name in columns]
    texts = [table.column(name) for name in found]
    for name, column in zip(found, texts, strict=True):
        if not spec.is_text(column.type):
            raise _changed(name, 0, column.type, "text")
    paths = [one_array(column.cast(pa.string())) for column in texts]
    if not paths:
        return pa.array([""] * table.num_rows, pa.string())
    return pc.coalesce(pc.utf8_rtrim(paths[0], "/"), *paths[1:])


def _compare(table: Any, own: Any, known: Bools) -> None:
    """Refuse a query that says something else than the levels do."""
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


def _matching(container: Container, rule: Filter) -> Bools:
    """Rows of level 0 that match, or have a descendant at the filter's level that does."""
    if rule.level >= len(container.levels):
        return np.zeros(container.levels[0].num_rows, np.bool_)
    target = container.levels[rule.level]
    mask = np.zeros(target.num_rows, np.bool_)
    own = rule.within(target.stored)
    if own is not None:
        start = 0
        for batch in target.table.iter_batches(list(own.columns)):
            columns = [batch.column(name) for name in own.columns]
            mask[start : start + batch.num_rows] = own.matches(*columns)
            start += batch.num_rows
    for index in range(rule.level, 0, -1):
        above = np.zeros(container.levels[index - 1].num_rows, np.bool_)
        above[container.levels[index].parents[mask]] = True
        mask = above
    return mask


def _labelled(table: Any, source_file: str | None, has_column: bool) -> Any:  # noqa: FBT001
    """Rows of one ZIP with the name by which the dataset knows it."""
    if has_column:
        table = table.drop_columns([spec.SOURCE_FILE])
    label = pa.array([source_file] * len(table), pa.string())
    return table.add_column(table.num_columns - 1, spec.SOURCE_FILE, label)


def _key(container: Container) -> Hashable:
    base = container.base.location if container.base is not None else None
    return container.source.location, container.kind, base


def _distinct(containers: Sequence[Container]) -> tuple[Container, ...]:
    found: dict[Hashable, Container] = {}
    for container in containers:
        found.setdefault(_key(container), container)
    return tuple(found.values())


def _labels(containers: Sequence[Container]) -> tuple[str, ...]:
    names = [_short(container) for container in containers]
    named = Counter(names)
    whole = [
        container.source.href if named[name] > 1 else name
        for name, container in zip(names, containers, strict=True)
    ]
    # One index at two bases is two containers of one location.
    held = Counter(whole)
    return tuple(f"{name}#{n}" if held[name] > 1 else name for n, name in enumerate(whole))


def _short(container: Container) -> str:
    if container.name in {spec.TACOCAT, spec.TACOCAT_FOLDER}:
        return container.source.href.partition("?")[0].rstrip("/").split("/")[-2]
    return container.name
