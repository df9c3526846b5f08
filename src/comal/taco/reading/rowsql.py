"""SQL text for the rows of containers: quoted names, values as parameters, tables by made-up names.

No value and no name from a file becomes part of a query's text unquoted.
"""

# ruff: noqa: S608 - text is put together from quoted identifiers and parameter names alone

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from comal import query
from comal.errors import ComalError, InvalidInputError, QueryError
from comal.query.functions import Function
from comal.taco import spec
from comal.taco.reading.container import Container
from comal.taco.reading.filters import Filter, Period
from comal.taco.reading.home import Home
from comal.taco.reading.level import odd_parts, vsi_base


def quoted(name: str) -> str:
    """A column or table name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class RowCompiler:
    """Collects the tables, functions and values of one query while its text is built.

    Parameters
    ----------
    home
        The containers.
    padding
        Whether rows that only pad (5.5) are shown.
    spans
        Whether spans of deeper levels must be right; not when only a schema is asked for.
    """

    def __init__(self, home: Home, *, padding: bool = False, spans: bool = True) -> None:
        self.home = home
        self.padding = padding
        self.spans = spans
        self.params: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}
        self.functions: dict[str, Function] = {}
        self.failures: list[ComalError] = []

    def run(self, text: str, about: str, max_rows: int | None = None) -> Any:
        """Run the finished text; `about` is what messages call it."""
        try:
            return query.engine().select(
                text,
                self.params,
                tables=self.tables,
                functions=self.functions,
                max_rows=max_rows,
                about=about,
            )
        except ComalError as error:
            if self.failures:
                raise self.failures[0] from error
            raise

    def value(self, value: Any) -> str:
        """A parameter that stands for `value`."""
        name = f"comal_v{len(self.params)}"
        self.params[name] = value
        return f"${name}"

    def function(self, call: Callable[..., Any], *arguments: str) -> str:
        """A function for this query; returns its name."""
        name = f"comal_f{len(self.functions)}"
        self.functions[name] = Function(call, arguments)
        return name

    # -- rows of one level -------------------------------------------------------------------------

    def rows(self, number: int, index: int, columns: Sequence[str]) -> str:
        """The rows of one level of one container, with computed GDAL paths."""
        container = self.home.containers[number]
        level = container.levels[index]
        name = f"comal_c{number}_l{index}"
        if name not in self.tables:
            self.tables[name] = self._relation(container, index)
        table = name
        if isinstance(self.tables[name], pa.Table) or level.has_ids:
            source = table
        else:
            # Rows come in the order of the file, and this numbers them in that order.
            source = f'(SELECT *, row_number() OVER () - 1 AS "{spec.CURRENT_ID}" FROM {table})'
        known = set(level.columns)
        chosen = [self._column(column, number, index, known) for column in columns]
        text = f"SELECT {', '.join(chosen)} FROM {source} AS q"
        if self.padding:
            return text
        return f"{text} WHERE starts_with({spec.ID}, '{spec.PAD_PREFIX}') IS NOT TRUE"

    def _relation(self, container: Container, index: int) -> Any:
        # pyarrow.dataset brings pandas where it is installed: 45 MB that only queries need.
        from comal.table.scan import Scan  # noqa: PLC0415 - see above

        level = container.levels[index]
        mended = level.relation(spans=self.spans and index > 0)
        if mended is not None:
            return mended
        if self.spans and level.keeps_columns:
            return Scan(level.table, self.failures, whole=level.held)
        return Scan(level.table, self.failures)

    def _column(self, name: str, number: int, index: int, known: set[str]) -> str:
        container = self.home.containers[number]
        if name == spec.GDAL_VSI:
            return f"{self._vsi(container, index)} AS {quoted(name)}"
        if name == spec.SOURCE_FILE and self.home.is_labelled:
            if not container.is_index:
                return f"{self.value(self.home.labels[number])}::VARCHAR AS {quoted(name)}"
            prefix = self.home.prefix(number)
            if prefix:
                return f"{self.value(prefix)} || {quoted(name)} AS {quoted(name)}"
        return quoted(name) if name in known else f"NULL AS {quoted(name)}"

    def _vsi(self, container: Container, index: int) -> str:
        if container.kind == "folder":
            root = self.value(container.source.vsi().rstrip("/") + "/" + spec.DATA)
            return f"({root} || {quoted(spec.RELATIVE_PATH if index else spec.ID)})"
        parts = [quoted(spec.OFFSET), quoted(spec.SIZE)]
        end = self.value("," + vsi_base(container.origin))
        if container.is_index:
            name = quoted(spec.SOURCE_FILE)
            cases = " ".join(
                f"WHEN {name} = {self.value(odd)} THEN {self.value(spelled)}"
                for odd, spelled in odd_parts(container.levels[index]).items()
            )
            parts.append(name)
            end += f", CASE {cases} ELSE {name} END" if cases else f", {name}"
        known = " AND ".join(f"{part} IS NOT NULL" for part in parts)
        # Half the time of a chain of ||, but it takes a NULL for nothing.
        path = f"concat('/vsisubfile/', {parts[0]}, '_', {parts[1]}, {end})"
        return f"CASE WHEN {known} THEN {path} END"

    # -- conditions -------------------------------------------------------------------------------

    def between(self, rule: Period, kind: Any) -> str:
        """The condition that a column of type `kind` lies in a range of time."""
        column = quoted(rule.column)
        if pa.types.is_timestamp(kind) and kind.tz is None:
            # Compared as it is stored, so that statistics of row groups can rule them out.
            ends = [
                f"make_timestamp({self.value(end)})"
                for end in (rule.start, rule.end)
                if end is not None
            ]
        elif pa.types.is_timestamp(kind):
            column = f"epoch_us({column})"
            ends = [self.value(end) for end in (rule.start, rule.end) if end is not None]
        else:
            name = self.function(lambda values: pa.array(rule.matches(values)), _sql_type(kind))
            return f"{name}({column})"
        signs = [sign for sign, end in ((">=", rule.start), ("<=", rule.end)) if end is not None]
        tests = [f"{column} {sign} {end}" for sign, end in zip(signs, ends, strict=True)]
        return " AND ".join(tests or [f"{column} IS NOT NULL"])

    def kept(self, rule: Filter, columns: Sequence[str]) -> str:
        """The condition that rows of level 0 have a match of a filter at or below them."""
        # Not by `self`, which holds the function: both would stay for one another.
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


def check_identity(columns: Sequence[str], home: Home) -> None:
    """Refuse a view whose rows no longer say which samples they are."""
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
    """The SQL type of a column that tells a place."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "VARCHAR"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "BLOB"
    return "BIGINT[]" if pa.types.is_integer(kind.value_type) else "DOUBLE[]"
