"""Compile a view to one SELECT, and run it.

Nested common table expressions give each stage a scope. Each stage reads the previous one under
the name ``data``, so that queries chain in any letter case and the caller's text is never edited:

    WITH data AS NOT MATERIALIZED (the view so far) SELECT * FROM (the caller's query)

Besides ``data``, also called ``level0``, a query may use ``level1`` .. ``level5``, the descendants
of the rows of ``data``, and ``l0`` .. ``l5``, the same joined with all levels above, with the level
as prefix of each column name (``l0:id``). Names are quoted, values are parameters.
"""

from __future__ import annotations

# ruff: noqa: S608 - text is put together from quoted identifiers and parameter names alone
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from comal import query
from comal.errors import ComalError, InvalidInputError, QueryError, shown
from comal.geo import times
from comal.query.functions import Function
from comal.samples.filters import Box, Filter, Period
from comal.samples.frame import NUMBER
from comal.taco import spec
from comal.taco.reading.container import Container
from comal.taco.reading.level import Level, unpadded
from comal.taco.reading.view import (
    Home,
    Limit,
    Scan,
    Sort,
    Sql,
    Staged,
    Union,
    View,
    outer_union,
    queries,
    stages,
    walk,
)

_MOST_PARTS = 1_000
"""ZIPs of a view from which deeper levels are read as a whole."""
_ROW = f'"{NUMBER}"'
_JOIN_COLUMNS = frozenset({spec.CURRENT_ID, spec.PARENT_ID})


def quoted(name: str) -> str:
    """A column or table name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class Compiler:
    """Builds the text of one query over a view, and collects its tables, functions and values.

    `padding` includes padding rows (5.5); without `spans`, the spans of deeper levels need not be
    right, as for a schema.
    """

    def __init__(self, home: Home, *, padding: bool = False, spans: bool = True) -> None:
        self.home = home
        self.padding = padding
        self.spans = spans
        self.params: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}
        self.functions: dict[str, Function] = {}
        self.failures: list[ComalError] = []

    def run(self, text: str, about: str) -> Any:
        """Run the finished text; `about` names it in messages."""
        try:
            return query.engine().select(
                text,
                self.params,
                tables=self.tables,
                functions=self.functions,
                about=about,
            )
        except ComalError as error:
            if self.failures:
                raise self.failures[0] from error
            raise

    def value(self, value: Any) -> str:
        """Add a parameter for `value`; returns its placeholder."""
        name = f"comal_v{len(self.params)}"
        self.params[name] = value
        return f"${name}"

    def function(self, call: Callable[..., Any], *arguments: str, returns: str = "BOOLEAN") -> str:
        """Add a function to this query; returns its name."""
        name = f"comal_f{len(self.functions)}"
        self.functions[name] = Function(call, arguments, returns)
        return name

    # -- rows of one level -------------------------------------------------------------------------

    def rows(
        self, number: int, index: int, columns: Sequence[str], groups: Sequence[int] | None = None
    ) -> str:
        """The rows of one level of one container, with computed GDAL paths.

        `groups` are row groups that hold all rows that are wanted; None for all.
        """
        container = self.home.containers[number]
        level = container.levels[index]
        name = f"comal_c{number}_l{index}"
        if groups is not None and len(groups) < level.table.num_row_groups:
            name = f"{name}_{len(self.tables)}"
        if name not in self.tables:
            self.tables[name] = self._relation(container, index, groups)
        table = name
        if isinstance(self.tables[name], pa.Table) or level.has_ids:
            source = table
        else:
            # Rows come in the order of the file, so this is their row number.
            source = f'(SELECT *, row_number() OVER () - 1 AS "{spec.CURRENT_ID}" FROM {table})'
        known = set(level.columns)
        chosen = [self._column(column, number, index, known) for column in columns]
        text = f"SELECT {', '.join(chosen)} FROM {source} AS q"
        if self.padding:
            return text
        return f"{text} WHERE starts_with({spec.ID}, '{spec.PAD_PREFIX}') IS NOT TRUE"

    def _relation(self, container: Container, index: int, groups: Sequence[int] | None) -> Any:
        # pyarrow.dataset imports pandas if installed: 45 MB that only queries need.
        from comal.table.scan import Scan  # noqa: PLC0415 - see above

        level = container.levels[index]
        mended = level.relation(spans=self.spans and index > 0)
        if mended is not None:
            return mended
        if self.spans and level.keeps_columns:
            return Scan(level.table, self.failures, whole=level.held)
        return Scan(level.table if groups is None else level.table.only(groups), self.failures)

    def _column(self, name: str, number: int, index: int, known: set[str]) -> str:
        container = self.home.containers[number]
        if name == spec.GDAL_VSI:
            return f"{self._vsi(container.levels[index])} AS {quoted(name)}"
        if name == spec.SOURCE_FILE and self.home.is_labelled:
            if not container.is_index:
                return f"{self.value(self.home.labels[number])}::VARCHAR AS {quoted(name)}"
            prefix = self.home.prefix(number)
            if prefix:
                return f"{self.value(prefix)} || {quoted(name)} AS {quoted(name)}"
        return quoted(name) if name in known else f"NULL AS {quoted(name)}"

    def _vsi(self, level: Level) -> str:
        """The GDAL path from `Level.vsi_parts`, in SQL."""
        parts, tests = [], []
        for text, name, spelled in level.vsi_parts():
            parts.append(self.value(text))
            if name:
                column = quoted(name)
                tests.append(f"{column} IS NOT NULL")
                if spelled:
                    column = f"{self.function(spelled, 'VARCHAR', returns='VARCHAR')}({column})"
                parts.append(column)
        if not parts:
            return "NULL::VARCHAR"
        # Takes half the time of a chain of ||, but treats NULL as an empty string.
        return f"CASE WHEN {' AND '.join(tests)} THEN concat({', '.join(parts)}) END"

    # -- conditions -------------------------------------------------------------------------------

    def between(self, rule: Period, kind: Any) -> str:
        """The condition that a column of type `kind` lies in a range of time."""
        column, end_of = quoted(rule.column), "{}"
        if not pa.types.is_timestamp(kind):
            name = self.function(lambda values: pa.array(rule.matches(values)), _sql_type(kind))
            return f"{name}({column})"
        both = ((">=", rule.start), ("<=", rule.end))
        ends = [(sign, end) for sign, end in both if end is not None]
        if kind.tz is None and kind.unit == "ns":  # `epoch_us` of DuckDB 1.5 rounds some up
            column = f"epoch_ns({column})"
            ends = [(sign, 1000 * end + (999 if sign == "<=" else 0)) for sign, end in ends]
        elif kind.tz is None and all(times.FIRST <= end <= times.LAST for _, end in ends):
            end_of = "make_timestamp({})"  # as stored, so that statistics can exclude row groups
        else:
            column = f"epoch_us({column})"
        tests = [f"{column} {sign} {end_of.format(self.value(end))}" for sign, end in ends]
        return " AND ".join(tests or [f"{column} IS NOT NULL"])

    def kept(self, rule: Filter, columns: Sequence[str]) -> str:
        """The condition that rows of level 0 match a filter, or have a descendant that does."""
        # The functions must not refer to `self`, which refers to them: that would be a cycle.
        home = self.home
        check_identity(columns, home)
        if self.spans:
            home.prepare(rule)
        if not home.is_labelled:
            name = self.function(lambda ids: home.keep(rule, None, ids), "BIGINT")
            return f"{name}({quoted(spec.CURRENT_ID)})"
        name = self.function(
            lambda sources, ids: home.keep(rule, sources, ids), "VARCHAR", "BIGINT"
        )
        return f"{name}({quoted(spec.SOURCE_FILE)}, {quoted(spec.CURRENT_ID)})"

    # -- schemas -----------------------------------------------------------------------------------

    def schema(self, view: View) -> Any:
        """The Arrow schema of a view.

        The engine runs only if there is a caller's query, or if parts give a column two types.
        """
        match view:
            case Scan(container):
                return scan_schema(container, self.home)
            case Union(parts, columns):
                known = _union_schema([self.schema(part) for part in parts], columns)
                if known is not None:
                    return known
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

    def view(self, view: View, rules: tuple[Filter, ...] = ()) -> str:
        """The SQL text of `view`, which may lack rows that a filter of `rules` would drop."""
        match view:
            case Scan(container):
                return self._scan(container, rules)
            case Union(parts, columns):
                return self._union(parts, columns, rules)
            case Staged(below, stage):
                return self._staged(below, stage, rules)

    def _scan(self, container: Container, rules: Sequence[Filter]) -> str:
        names = scan_schema(container, self.home).names
        kept = [self._groups_kept(container, rule) for rule in rules if self.spans]
        groups = sorted(set.intersection(*kept)) if kept else None
        return self.rows(self.home.number(container), 0, names, groups)

    def _groups_kept(self, container: Container, rule: Filter) -> set[int]:
        """The row groups of level 0 that may hold rows that a filter keeps."""
        level = container.levels[0]
        if rule.level and container.is_wide:
            return {*level.groups_of(self.home.matched(container, rule)[0].source_codes)}
        if rule.level:
            return {*range(level.table.num_row_groups)}
        return {*level.groups_meeting(rule)}

    def _union(
        self, parts: Sequence[View], columns: Sequence[str], rules: tuple[Filter, ...]
    ) -> str:
        texts = []
        for part in parts:
            known = set(self.names(part))
            chosen = ", ".join(
                quoted(name) if name in known else f"NULL AS {quoted(name)}" for name in columns
            )
            texts.append(f"(SELECT {chosen} FROM (\n{self.view(part, rules)}\n) AS q)")
        return " UNION ALL ".join(texts)

    def _staged(self, below: View, stage: Any, rules: tuple[Filter, ...]) -> str:
        match stage:
            case Sql():
                return self._query(below, stage)
            case Box() | Period():
                inner = f"SELECT * FROM (\n{self.view(below, (*rules, stage))}\n) AS q WHERE "
                return inner + self._condition(below, stage)
            case Sort(column, descending):
                order = f"{quoted(column)} {'DESC' if descending else 'ASC'} NULLS LAST"
                return (
                    f"SELECT * EXCLUDE ({_ROW}) FROM (SELECT *, row_number() OVER () AS {_ROW}"
                    f" FROM (\n{self.view(below, rules)}\n) AS q) AS q ORDER BY {order}, {_ROW}"
                )
            case Limit(count):
                return f"SELECT * FROM (\n{self.view(below)}\n) AS q LIMIT {self.value(count)}"
        raise AssertionError(stage)

    def _condition(self, below: View, rule: Filter) -> str:
        told_at_once = isinstance(rule, Box) and not rule.in_degrees and not queries(below)
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
        own = engine.parse(stage.text, f"comal_s{len(self.params)}_")
        given = dict(stage.params)
        for new, old in own.parameters.items():
            if old not in given:
                raise QueryError(
                    "a parameter of the query has no value",
                    where=shown(" ".join(stage.text.split())),
                    expected=f"${old}",
                    hint="pass params={name: value} for $name, or a list for ? and $1",
                )
            self.params[new] = given[old]
        tables = self._named_tables(below, {name.lower() for name in own.tables})
        return f"WITH {tables} SELECT * FROM (\n{own.text}\n) AS q"

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
        """The columns of a level over all containers that have it, by the union's mode."""
        lists = [
            list(container.levels[index].columns)
            for container in self.home.containers
            if index < len(container.levels)
        ]
        union = outer_union(view)
        fills = union is not None and union.mode == "fill_missing"
        names = [
            name
            for name in dict.fromkeys(name for columns in lists for name in columns)
            if fills or name in spec.PROTECTED_COLUMNS or all(name in columns for columns in lists)
        ]
        if self.home.is_labelled and spec.SOURCE_FILE not in names:
            names.append(spec.SOURCE_FILE)
        # The computed path stays last, regardless of the order of containers.
        return [*(name for name in names if name != spec.GDAL_VSI), spec.GDAL_VSI]

    def _descendants(self, below: View, index: int) -> str:
        """The rows of level `index` below ``data`` (which is level 0 of this scope)."""
        columns = self.level_columns(below, index)
        groups = self._groups_below(below, index)
        texts = [
            self.rows(number, index, columns, groups.get(number))
            for number, container in enumerate(self.home.containers)
            if index < len(container.levels)
        ]
        text = " UNION ALL ".join(f"({text})" for text in texts) if len(texts) > 1 else texts[0]
        if not stages(below):
            return text
        above = "data" if index == 1 else f"level{index - 1}"
        ids, parents = self._keys(below, index)
        numbered = f"SELECT *, row_number() OVER () AS {_ROW} FROM (\n{text}\n) AS q"
        return (
            f"SELECT * EXCLUDE ({_ROW}) FROM ({numbered}) AS q"
            f" WHERE ({parents}) IN (SELECT {ids} FROM {above}) ORDER BY {_ROW}"
        )

    def _groups_below(self, below: View, index: int) -> dict[int, list[int]]:
        """By number of a wide index the row groups of a level with the ZIPs of a view's rows."""
        wide = [one for one in self.home.containers if one.is_wide and index < len(one.levels)]
        if not wide or not stages(below) or not self.spans:
            return {}
        check_identity(self.names(below), self.home)
        other = Compiler(self.home)
        source = quoted(spec.SOURCE_FILE)
        text = f"SELECT DISTINCT {source} FROM (\n{other.view(below)}\n) AS q LIMIT {_MOST_PARTS}"
        names = other.run(text, about(below)).column(0).drop_null().to_pylist()
        if len(names) == _MOST_PARTS:
            return {}
        inner: dict[int, list[str]] = {self.home.number(one): [] for one in wide}
        for container, name in map(self.home.resolve, names):
            if name is not None and container.is_wide:
                inner[self.home.number(container)].append(name)
        return {n: self.home.containers[n].levels[index].groups_of(s) for n, s in inner.items()}

    def _keys(self, below: View, index: int) -> tuple[str, str]:
        """Columns that identify a row of the level above, and those that refer to it."""
        keys, references = [spec.CURRENT_ID], [spec.PARENT_ID]
        if self.home.is_labelled:
            keys.append(spec.SOURCE_FILE)
            references.append(spec.SOURCE_FILE)
        if index == 1:
            check_identity(self.names(below), self.home)
        return ", ".join(map(quoted, keys)), ", ".join(map(quoted, references))

    def _joined(self, below: View, index: int) -> str:
        """The flat view of a level: prefixed columns of it and of all levels above."""
        names = [
            (level, name)
            for level, name in self._flat_columns(below, index)
            if name not in _JOIN_COLUMNS
        ]
        # A join may change the order of rows.
        numbered = f"(SELECT *, row_number() OVER () AS {_ROW} FROM level{index})"
        chain = self._chain(index, numbered)
        return f"SELECT {_prefixed(names)} FROM {chain} ORDER BY t{index}.{_ROW}"

    def _flat_columns(self, below: View, index: int) -> list[tuple[int, str]]:
        return [
            (level, name)
            for level in range(index, -1, -1)
            for name in (self.level_columns(below, level) if level else self.names(below))
        ]

    def _chain(self, index: int, rows: str | None = None) -> str:
        """A level, or `rows` of it, joined with all levels above, under the names t5 .. t0."""
        joins = [f"{rows or f'level{index}'} AS t{index}"]
        columns = (spec.CURRENT_ID, spec.PARENT_ID)
        for level in range(index - 1, -1, -1):
            pairs = [columns, *([(spec.SOURCE_FILE,) * 2] if self.home.is_labelled else [])]
            tests = [f"t{level}.{quoted(a)} = t{level + 1}.{quoted(b)}" for a, b in pairs]
            joins.append(f"JOIN level{level} AS t{level} ON {' AND '.join(tests)}")
        return " ".join(joins)

    # -- flatten -----------------------------------------------------------------------------------

    def flat(self, view: View, level: int) -> str:
        """FILE rows of a level with the columns of all levels above, in the order of the view."""
        rows = self.view(view)
        tables = {
            "data": f"SELECT *, row_number() OVER () AS {_ROW} FROM (\n{rows}\n) AS q",
            "level0": "SELECT * FROM data",
        }
        tables |= {f"level{n}": self._descendants(view, n) for n in range(1, level + 1)}
        columns = self._flat_columns(view, level)
        shown = [(n, name) for n, name in columns if not name.startswith(spec.INTERNAL)]
        own = [name for n, name in columns if n == level and name in spec.PROTECTED_COLUMNS]
        extra = [f"t{level}.{quoted(spec.GDAL_VSI)} AS gdal_vsi"]
        extra += [f"t{level}.{quoted(name)}" for name in own]
        order = f"t0.{_ROW}, t{level}.{quoted(spec.CURRENT_ID)}"
        return (
            f"WITH {_tables(tables)} SELECT {_prefixed(shown)}, {', '.join(extra)}"
            f" FROM {self._chain(level)} WHERE t{level}.{spec.TYPE} = '{spec.FILE}'"
            f" ORDER BY {order}"
        )


def check_identity(columns: Sequence[str], home: Home) -> None:
    """Refuse a view without the columns that identify samples."""
    needed = {spec.CURRENT_ID} | ({spec.SOURCE_FILE} if home.is_labelled else set())
    if not needed <= set(columns):
        raise QueryError(
            "the view lost the columns that say which samples its rows are",
            expected=", ".join(sorted(needed)),
            hint="keep the internal: columns in the query (SELECT *)",
        )


def _sql_type(kind: Any) -> str:
    if pa.types.is_integer(kind):
        return "BIGINT"
    if pa.types.is_date(kind):
        return "DATE"
    if pa.types.is_string(kind):
        return "VARCHAR"
    raise InvalidInputError("a column of this type holds no times", found=str(kind))


def sql_type_of_place(kind: Any) -> str:
    """The SQL type of a location column."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "VARCHAR"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "BLOB"
    return "BIGINT[]" if pa.types.is_integer(kind.value_type) else "DOUBLE[]"


def _prefixed(columns: Sequence[tuple[int, str]]) -> str:
    return ", ".join(
        f"t{level}.{quoted(name)} AS {quoted(f'l{level}:{name}')}" for level, name in columns
    )


def _tables(tables: Mapping[str, str]) -> str:
    return ", ".join(f"{name} AS NOT MATERIALIZED (\n{text}\n)" for name, text in tables.items())


def about(view: View) -> str:
    """The name of a view in messages: its last query, as the caller wrote it."""
    given = queries(view)
    return given[-1].text if given else "the view"


def scan_schema(container: Container, home: Home) -> Any:
    """The schema of level 0 of a container, with ``internal:source_file`` if rows need it."""
    schema = container.levels[0].schema
    if home.is_labelled and spec.SOURCE_FILE not in schema.names:
        field = pa.field(spec.SOURCE_FILE, pa.string())
        schema = schema.insert(len(schema) - 1, field)
    return schema


def level_schema(view: View, home: Home, index: int) -> Any:
    """The schema of level `index` below a view: of all containers, by the union's mode."""
    levels = [one.levels[index] for one in home.containers if index < len(one.levels)]
    fields = {field.name: field for level in reversed(levels) for field in level.schema}
    names = Compiler(home).level_columns(view, index)
    return pa.schema([fields[name] for name in names if name in fields])


def _union_schema(schemas: Sequence[Any], columns: Sequence[str]) -> Any:
    """The schema of parts together; None if a column has two types."""
    fields: dict[str, Any] = {}
    for schema in schemas:
        for field in schema:
            if not fields.setdefault(field.name, field).type.equals(field.type):
                return None
    return pa.schema([fields[name] for name in columns])


def materialise(view: View, *, padding: bool = False) -> Any:
    """The rows of a view as an Arrow table."""
    return _run(_rows, view, padding)


def flattened(view: View, level: int) -> Any:
    """The FILE rows of `level` below a view, with the columns of all levels above."""
    return _run(_flat, view, level)


def schema_of(view: View) -> Any:
    """The Arrow schema of a view."""
    return _run(_no_rows, view).schema


def _run(function: Any, view: View, *args: Any) -> Any:
    asked = [one.isolated for one in queries(view)]
    if not any(asked):
        return function(view, *args)
    budget = next((one for one in asked if isinstance(one, query.Budget)), None)
    scans = [one for one in walk(view) if isinstance(one, Scan)]
    remote = not all(scan.container.source.location.is_local for scan in scans)
    return query.run_isolated(function, view, *args, budget=budget, remote=remote)


def _rows(view: View, padding: bool) -> Any:  # noqa: FBT001 - by `_run` alone
    if isinstance(view, Scan):
        rows = view.container.levels[0].whole()
        return rows if padding else unpadded(rows)
    compiler = Compiler(Home(view), padding=padding)
    return compiler.run(compiler.view(view), about(view))


def _flat(view: View, level: int) -> Any:
    compiler = Compiler(Home(view))
    return compiler.run(compiler.flat(view, level), about(view))


def _no_rows(view: View) -> Any:
    return Compiler(Home(view)).schema(view).empty_table()
