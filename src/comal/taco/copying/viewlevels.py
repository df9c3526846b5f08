"""The rows of a lazy view, and everything below them, as the levels that a writer takes.

What names the rows of a view leads back to the containers; everything else comes from there, but
for the metadata columns of level 0, which are those that a query of the caller left or made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, QueryError, shown
from comal.samples.payloads import Ints
from comal.taco import spec
from comal.taco.copying.fit import fitted
from comal.taco.copying.gather import field_texts, levels_from, metadata_columns, pick
from comal.taco.model.columns import described, normal_table
from comal.taco.model.levels import Levels
from comal.taco.reading import views
from comal.taco.reading.container import Container
from comal.taco.reading.dataset import TacoDataset
from comal.taco.reading.home import Home
from comal.taco.reading.rowsql import quoted
from comal.taco.reading.stages import Sql, Staged, View, unions
from comal.taco.reading.stages import stages as stages_of


def view_levels(dataset: TacoDataset, limit: int) -> Levels:
    """The rows of a view and everything below them, as a writer takes them."""
    home, view = dataset.home, dataset.view
    asked = any(isinstance(stage, Sql) for stage in stages_of(view))
    table = views.materialise(view if asked else _identity(view, home))
    if table.num_rows == 0:
        raise InvalidInputError(
            "nothing to export: the view has no rows", hint="loosen its filters"
        )
    container, row = _places(home, table)
    _check_once(container, row)
    picked = pick(home.containers, container, row)
    columns = _columns(home, view, len(picked))
    own = _own_columns(table) if asked else None
    levels = levels_from(
        home.containers, picked, columns if own is None else [[], *columns[1:]], limit
    )
    if own is not None:
        levels = (replace(levels[0], table=_with_own(levels[0].table, own, home)), *levels[1:])
    return fitted(levels)


def _identity(view: View, home: Home) -> View:
    """The view with nothing but what names its rows."""
    names = [spec.CURRENT_ID, *([spec.SOURCE_FILE] if home.is_labelled else [])]
    chosen = ", ".join(quoted(name) for name in names)
    return Staged(view, Sql(f"SELECT {chosen} FROM data"))  # noqa: S608 - constants of ours


def _places(home: Home, table: Any) -> tuple[Ints, Ints]:
    """For each row of a view the number of its container and its row there."""
    if spec.CURRENT_ID not in table.column_names:
        return _places_by_id(home, table)
    ids = _integers(table.column(spec.CURRENT_ID))
    container = np.zeros(len(ids), np.int64)
    row = np.full(len(ids), -1, np.int64)
    for label, mine in _groups(home, table):
        found, inner = home.resolve(label)
        codes = None
        if found.is_index:
            codes = np.full(len(mine), found.source_codes.get(inner or "", -1), np.int64)
        container[mine] = home.number(found)
        row[mine] = found.levels[0].index_of_rows.find(ids[mine], codes)
    _check_found(row)
    return container, row


def _groups(home: Home, table: Any) -> list[tuple[str | None, Ints]]:
    everything = np.arange(table.num_rows)
    if not home.is_labelled:
        return [(None, everything)]
    if spec.SOURCE_FILE not in table.column_names:
        raise _lost(spec.SOURCE_FILE)
    codes = table.column(spec.SOURCE_FILE).combine_chunks().dictionary_encode()
    indices = np.asarray(pc.fill_null(codes.indices, -1), np.int64)
    if (indices < 0).any():
        raise _lost(spec.SOURCE_FILE)
    return [
        (name, np.flatnonzero(indices == n)) for n, name in enumerate(codes.dictionary.to_pylist())
    ]


def _places_by_id(home: Home, table: Any) -> tuple[Ints, Ints]:
    """As `_places`, for a view that kept the ids only."""
    if home.is_labelled or spec.ID not in table.column_names:
        raise _lost(spec.CURRENT_ID)
    if not spec.is_text(table.column(spec.ID).type):
        raise _lost(spec.ID)
    known = home.containers[0].levels[0].column(spec.ID)
    found = pc.index_in(table.column(spec.ID), value_set=known)
    row = np.asarray(pc.fill_null(found, -1), np.int64)
    _check_found(row)
    return np.zeros(len(row), np.int64), row


def _integers(column: Any) -> Ints:
    if not pa.types.is_integer(column.type):
        raise _lost(spec.CURRENT_ID)
    return spec.int64s(column)


def _check_found(row: Ints) -> None:
    for place in np.flatnonzero(row < 0)[:1].tolist():
        raise QueryError(
            "a row of the view is no sample of the dataset",
            where=f"row {place}",
            hint="keep the internal: columns in the query as they are (SELECT *)",
        )


def _check_once(container: Ints, row: Ints) -> None:
    order = np.lexsort((row, container))
    again = (np.diff(row[order]) == 0) & (np.diff(container[order]) == 0)
    if again.any():
        raise InvalidInputError(
            "a sample stands twice in the view",
            where=f"row {order[1:][again].min()}",
            expected="each sample once",
            hint="leave out joins and unions that repeat rows, or use SELECT DISTINCT",
        )


def _lost(name: str) -> QueryError:
    return QueryError(
        f"the view has no usable {name} any more, so that its samples cannot be found",
        hint="keep the internal: columns in the query (SELECT *)",
    )


# -- the columns ----------------------------------------------------------------------------------


def _columns(home: Home, view: View, depth: int) -> list[Sequence[str] | None]:
    """Per level the metadata columns to take; None where one container has the say."""
    if len(home.containers) == 1:
        return [None] * depth
    fill = next((union.mode == "fill_missing" for union in unions(view)), False)
    chosen: list[Sequence[str] | None] = []
    for index in range(depth):
        lists = [
            _level_columns(item, index) for item in home.containers if index < len(item.levels)
        ]
        names = list(dict.fromkeys(name for columns in lists for name in columns))
        chosen.append([n for n in names if fill or all(n in columns for columns in lists)])
    return chosen


def _level_columns(container: Container, index: int) -> list[str]:
    return metadata_columns(container.levels[index])


def _own_columns(table: Any) -> list[tuple[str, Any]]:
    """The metadata columns that a query of the caller left or made."""
    return [
        (name, table.column(name))
        for name in table.column_names
        if name not in {*spec.CORE_COLUMNS, spec.PATH} and not name.startswith(spec.INTERNAL)
    ]


def _with_own(table: Any, own: Sequence[tuple[str, Any]], home: Home) -> Any:
    """The ids and types of level 0 with the columns of a query."""
    stored = [container.levels[0] for container in home.containers]
    texts: dict[str, str] = {}
    for container in reversed(home.containers):
        texts |= field_texts(container.collection, 0)
    fields = [field.with_metadata(field.metadata) for field in table.schema]
    columns = [table.column(n) for n in range(table.num_columns)]
    for name, values in own:
        levels = [level for level in stored if name in level.stored]
        if not levels:
            _check_new(name)
        columns.append(_as_stored(values, [level.schema.field(name).type for level in levels]))
        fields.append(described(name, columns[-1].type, texts.get(name)))
    return normal_table(pa.table(columns, schema=pa.schema(fields)), "the view")


def _check_new(name: str) -> None:
    fault = spec.key_fault(name)
    if fault is not None:
        raise InvalidInputError(
            f"column {shown(name)} of the query {fault}",
            expected="a name such as 'cloud_cover' or 'stac:crs'",
            hint='name it: SELECT ... AS "cloud_cover"',
            field=name,
        )


def _as_stored(values: Any, kinds: Sequence[Any]) -> Any:
    """A column in the type that the file has it in, where the engine gave it another."""
    if len(kinds) == 1 and not values.type.equals(kinds[0]):
        try:
            return values.cast(kinds[0])
        except pa.ArrowException:
            return values  # the query made something else of it
    return values
