"""From a view to one SELECT: nested common table expressions, one scope for each stage.

Each stage reads the one before it under the name ``data``, so that queries chain in any letter
case and nothing of a caller's text is ever replaced:

    WITH data AS NOT MATERIALIZED (the view so far) SELECT * FROM (the caller's query)

Beside ``data``, also called ``level0``, a query may use ``level1`` .. ``level5``, the descendants
of what ``data`` holds, and ``l0`` .. ``l5``, the same joined with all levels above, where each
column has its level before its name (``l0:id``).
"""

# ruff: noqa: S608 - text is put together from quoted identifiers and parameter names alone

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from comal import query
from comal.errors import QueryError, shown
from comal.taco import spec
from comal.taco.reading.container import Container
from comal.taco.reading.filters import Box, Filter, Period
from comal.taco.reading.home import Home
from comal.taco.reading.rowsql import RowCompiler, check_identity, quoted, sql_type_of_place
from comal.taco.reading.stages import (
    Limit,
    Scan,
    Sort,
    Sql,
    Staged,
    Union,
    View,
    is_plain,
    unions,
)
from comal.taco.reading.stages import stages as stages_of

_JOIN_COLUMNS = frozenset({spec.CURRENT_ID, spec.PARENT_ID})


class Compiler(RowCompiler):
    """Builds the text of one query over a view."""

    # -- schemas -----------------------------------------------------------------------------------

    def schema(self, view: View) -> Any:
        """The Arrow schema of a view; only a caller's query has to be asked of the engine."""
        match view:
            case Scan(container):
                return scan_schema(container, self.home)
            case Union(parts, columns):
                return _union_schema([self.schema(part) for part in parts], columns)
            case Staged(below, stage) if not isinstance(stage, Sql):
                return self.schema(below)
        other = Compiler(self.home, spans=False)
        text = f"SELECT * FROM (\n{other.view(view)}\n) AS q LIMIT 0"
        return other.run(text, about(view)).schema

    def names(self, view: View) -> list[str]:
        """The columns of a view."""
        names: list[str] = self.schema(view).names
        return names

    # -- views -------------------------------------------------------------------------------------

    def view(self, view: View) -> str:
        """The text whose rows are those of `view`."""
        match view:
            case Scan(container):
                return self._scan(container)
            case Union(parts, columns):
                return self._union(parts, columns)
            case Staged(below, stage):
                return self._staged(below, stage)

    def _scan(self, container: Container) -> str:
        names = scan_schema(container, self.home).names
        return self.rows(self.home.number(container), 0, names)

    def _union(self, parts: Sequence[View], columns: Sequence[str]) -> str:
        texts = []
        for part in parts:
            known = set(self.names(part))
            chosen = ", ".join(
                quoted(name) if name in known else f"NULL AS {quoted(name)}" for name in columns
            )
            texts.append(f"(SELECT {chosen} FROM (\n{self.view(part)}\n) AS q)")
        return " UNION ALL ".join(texts)

    def _staged(self, below: View, stage: Any) -> str:
        match stage:
            case Sql():
                return self._query(below, stage)
            case Box() | Period():
                inner = f"SELECT * FROM (\n{self.view(below)}\n) AS q WHERE "
                return inner + self._condition(below, stage)
            case Sort(column, descending):
                order = f"{quoted(column)} {'DESC' if descending else 'ASC'} NULLS LAST"
                return (
                    "SELECT * EXCLUDE (comal_row) FROM (SELECT *, row_number() OVER () AS comal_row"
                    f" FROM (\n{self.view(below)}\n) AS q) AS q ORDER BY {order}, comal_row"
                )
            case Limit(count):
                return f"SELECT * FROM (\n{self.view(below)}\n) AS q LIMIT {self.value(count)}"
        raise AssertionError(stage)

    def _condition(self, below: View, rule: Filter) -> str:
        told_at_once = isinstance(rule, Box) and not rule.in_degrees and not _has_query(below)
        if rule.level > 0 or told_at_once:
            return self.kept(rule, self.names(below))
        if isinstance(rule, Box):
            schema = self.schema(below)
            kinds = [sql_type_of_place(schema.field(column).type) for column in rule.columns]
            name = self.function(lambda *columns: pa.array(rule.matches(*columns)), *kinds)
            return f"{name}({', '.join(quoted(column) for column in rule.columns)})"
        return self.between(rule, self.schema(below).field(rule.column).type)

    # -- a caller's query ----------------------------------------------------------------------

    def _query(self, below: View, stage: Sql) -> str:
        engine = query.engine()
        text = engine.parse(stage.text)
        names = {name.lower() for name in engine.table_names(text)}
        text, params = engine.renamed(text, f"comal_s{len(self.params)}_")
        given = dict(stage.params)
        for new, old in params.items():
            if old not in given:
                raise QueryError(
                    "a parameter of the query has no value",
                    where=shown(" ".join(stage.text.split())),
                    expected=f"${old}",
                    hint="pass params={name: value} for $name, or a list for ? and $1",
                )
            self.params[new] = given[old]
        tables = self._named_tables(below, names)
        return f"WITH {tables} SELECT * FROM (\n{text}\n) AS q"

    def _named_tables(self, below: View, names: set[str]) -> str:
        tables = {"data": self.view(below), "level0": "SELECT * FROM data"}
        wanted = {n for n in range(1, self.home.depth + 1) if {f"level{n}", f"l{n}"} & names}
        for level in range(1, max(wanted, default=0) + 1):
            tables[f"level{level}"] = self._descendants(below, level)
        for level in range(self.home.depth + 1):
            if f"l{level}" in names:
                tables[f"l{level}"] = self._joined(below, level)
        return _tables(tables)

    def level_columns(self, view: View, index: int) -> list[str]:
        """The columns of a level: of all containers that have it, as the union's mode says."""
        lists = [
            list(container.levels[index].columns)
            for container in self.home.containers
            if index < len(container.levels)
        ]
        outermost = next(unions(view), None)
        if outermost is not None and outermost.mode == "fill_missing":
            names = list(dict.fromkeys(name for columns in lists for name in columns))
        else:
            every = dict.fromkeys(name for columns in lists for name in columns)
            names = [
                name
                for name in every
                if name in spec.PROTECTED_COLUMNS or all(name in columns for columns in lists)
            ]
        if self.home.is_labelled and spec.SOURCE_FILE not in names:
            names.append(spec.SOURCE_FILE)
        # The computed path stays last, whichever container came first.
        return [*(name for name in names if name != spec.GDAL_VSI), spec.GDAL_VSI]

    def _descendants(self, below: View, index: int) -> str:
        """Level `index` as far as it lies below ``data`` (which is level 0 of this scope)."""
        columns = self.level_columns(below, index)
        texts = [
            self.rows(number, index, columns)
            for number, container in enumerate(self.home.containers)
            if index < len(container.levels)
        ]
        text = " UNION ALL ".join(f"({text})" for text in texts) if len(texts) > 1 else texts[0]
        if is_plain(below):
            return text
        above = "data" if index == 1 else f"level{index - 1}"
        ids, parents = self._keys(below, index)
        numbered = f"SELECT *, row_number() OVER () AS comal_row FROM (\n{text}\n) AS q"
        return (
            f"SELECT * EXCLUDE (comal_row) FROM ({numbered}) AS q"
            f" WHERE ({parents}) IN (SELECT {ids} FROM {above}) ORDER BY comal_row"
        )

    def _keys(self, below: View, index: int) -> tuple[str, str]:
        """Columns that name a row of the level above, and those of this level that refer to it."""
        keys, references = [spec.CURRENT_ID], [spec.PARENT_ID]
        if self.home.is_labelled:
            keys.append(spec.SOURCE_FILE)
            references.append(spec.SOURCE_FILE)
        if index == 1:
            check_identity(self.names(below), self.home)
        return ", ".join(map(quoted, keys)), ", ".join(map(quoted, references))

    def _joined(self, below: View, index: int) -> str:
        """The flat view of a level: its own columns and those of all levels above, prefixed."""
        names = [
            (level, name)
            for level, name in self._flat_columns(below, index)
            if name not in _JOIN_COLUMNS
        ]
        # A join may turn the order of its rows around.
        numbered = f"(SELECT *, row_number() OVER () AS comal_row FROM level{index})"
        chain = self._chain(index, numbered)
        return f"SELECT {_prefixed(names)} FROM {chain} ORDER BY t{index}.comal_row"

    def _flat_columns(self, below: View, index: int) -> list[tuple[int, str]]:
        return [
            (level, name)
            for level in range(index, -1, -1)
            for name in (self.level_columns(below, level) if level else self.names(below))
        ]

    def _chain(self, index: int, rows: str | None = None) -> str:
        """A level, or `rows` of it, joined with all above it, under the names t5 .. t0."""
        joins = [f"{rows or f'level{index}'} AS t{index}"]
        columns = (spec.CURRENT_ID, spec.PARENT_ID)
        for level in range(index - 1, -1, -1):
            pairs = [columns, *([(spec.SOURCE_FILE,) * 2] if self.home.is_labelled else [])]
            tests = [f"t{level}.{quoted(a)} = t{level + 1}.{quoted(b)}" for a, b in pairs]
            joins.append(f"JOIN level{level} AS t{level} ON {' AND '.join(tests)}")
        return " ".join(joins)

    # -- flatten -----------------------------------------------------------------------------------

    def flat(self, view: View, level: int) -> str:
        """FILE rows of a level with all columns above them, in the order of the view's rows."""
        rows = self.view(view)
        tables = {
            "data": f"SELECT *, row_number() OVER () AS comal_row FROM (\n{rows}\n) AS q",
            "level0": "SELECT * FROM data",
        }
        tables |= {f"level{n}": self._descendants(view, n) for n in range(1, level + 1)}
        columns = self._flat_columns(view, level)
        shown = [(n, name) for n, name in columns if not name.startswith(spec.INTERNAL)]
        own = [name for n, name in columns if n == level and name in spec.PROTECTED_COLUMNS]
        extra = [f"t{level}.{quoted(spec.GDAL_VSI)} AS gdal_vsi"]
        extra += [f"t{level}.{quoted(name)}" for name in own]
        order = f"t0.comal_row, t{level}.{quoted(spec.CURRENT_ID)}"
        return (
            f"WITH {_tables(tables)} SELECT {_prefixed(shown)}, {', '.join(extra)}"
            f" FROM {self._chain(level)} WHERE t{level}.{spec.TYPE} = '{spec.FILE}'"
            f" ORDER BY {order}"
        )


def _prefixed(columns: Sequence[tuple[int, str]]) -> str:
    return ", ".join(
        f"t{level}.{quoted(name)} AS {quoted(f'l{level}:{name}')}" for level, name in columns
    )


def _tables(tables: Mapping[str, str]) -> str:
    return ", ".join(f"{name} AS NOT MATERIALIZED (\n{text}\n)" for name, text in tables.items())


def _has_query(view: View) -> bool:
    return any(isinstance(stage, Sql) for stage in stages_of(view))


def about(view: View) -> str:
    """What messages call a view: its last query, as the caller wrote it."""
    texts = [stage.text for stage in stages_of(view) if isinstance(stage, Sql)]
    return texts[-1] if texts else "the view"


def scan_schema(container: Container, home: Home) -> Any:
    """The columns of level 0 of a container, with the name of the container where rows need it."""
    schema = container.levels[0].schema
    if home.is_labelled and spec.SOURCE_FILE not in schema.names:
        field = pa.field(spec.SOURCE_FILE, pa.string())
        schema = schema.insert(len(schema) - 1, field)
    return schema


def _union_schema(schemas: Sequence[Any], columns: Sequence[str]) -> Any:
    fields: dict[str, Any] = {}
    for schema in schemas:
        for field in schema:
            fields.setdefault(field.name, field)
    return pa.schema([fields[name] for name in columns])
