"""A DuckDB connection that can only read the data it is given."""

from __future__ import annotations

import atexit
import ctypes
import inspect
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    QueryError,
    shown,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.query import functions as sql_functions
from comal.query.columns import alike, untyped
from comal.query.functions import Function

_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
}
# Before 2.0 a relation holds Python's lock while it runs, and threads of DuckDB that request rows
# from our tables wait for that lock for ever. With one thread it reads the rows itself.
_ONE_THREAD = int(duckdb.__version__.partition(".")[0]) < 2
_MOST = {"threads": 1 << 16, "memory_limit": 1 << 62}
# After this no statement can read or write a file, reach the network or change a setting.
_LOCK = (
    "SET TimeZone = 'UTC'",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


def _settings(threads: int | None, memory_limit: int | None) -> dict[str, Any]:
    for name, value in (("threads", threads), ("memory_limit", memory_limit)):
        if value is not None and (type(value) is not int or not 1 <= value < _MOST[name]):
            raise InvalidInputError(
                f"{name} is not a positive number",
                found=shown(value),
                expected=f"a whole number from 1 to {_MOST[name] - 1}, or None",
            )
    settings: dict[str, Any] = dict(_CONFIG)
    if _ONE_THREAD or threads is not None:
        settings["threads"] = 1 if _ONE_THREAD else threads
    if memory_limit is not None:
        settings["memory_limit"] = f"{memory_limit}B"
    return settings


class Parsed(NamedTuple):
    """One SELECT, ready to be put in parentheses within another query."""

    text: str
    """The text without a final semicolon, and with renamed parameters."""
    parameters: dict[str, str]
    """The caller's name for each new parameter name."""
    tables: frozenset[str]
    """Tables that it names but does not define; if DuckDB cannot list them, all its words."""


class Session:
    """One locked connection. It belongs to one thread of one process; see `engine`.

    Parameters
    ----------
    tables
        Arrow tables or datasets by name.
    functions
        Vectorised functions by name, and macros as their CREATE statements: our own text only.
        They are created when a query first names them, which takes half a millisecond for each.
    statements
        Statements that create views, also ours, with nothing from a file in them.
    failures
        Receives the error that ended a scan of a dataset.
    hint
        The available tables, for the error about a missing one.
    threads
        Worker threads of DuckDB; None uses every core. Before DuckDB 2.0 always one.
    memory_limit
        Bytes that a query may hold; None leaves DuckDB's own limit.
    limits
        Bounds on the text of a query.

    Raises
    ------
    InvalidInputError
        An invalid number of threads or bytes.
    """

    def __init__(
        self,
        *,
        tables: Mapping[str, Any] | None = None,
        functions: Mapping[str, Function | str] | None = None,
        statements: Sequence[str] = (),
        failures: list[ComalError] | None = None,
        hint: str = "the tables are data and, of a dataset, level0, level1, ...",
        threads: int | None = None,
        memory_limit: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._connection = duckdb.connect(":memory:", config=_settings(threads, memory_limit))
        for setting in _LOCK:
            self._connection.execute(setting)
        self._limits, self._hint = limits, hint
        self._failures = [] if failures is None else failures
        for name, table in (tables or {}).items():
            self._register(name, table)
        for statement in statements:
            self._connection.execute(statement)
        self._waiting: dict[str, Function | str] = {
            **sql_functions.named(json=not _ONE_THREAD),
            **{name.lower(): function for name, function in (functions or {}).items()},
        }
        self._pid = os.getpid()
        _OPEN.add(self)

    def __reduce__(self) -> Any:
        raise TypeError("a session belongs to one thread of one process and cannot be pickled")

    def parse(self, sql: str, prefix: str = "") -> Parsed:
        """Check that `sql` is exactly one SELECT, and prepare it for use within another query.

        `prefix` is put before the names of its parameters, so that queries with the same parameter
        names can be nested; ``?`` and ``$1`` become named parameters too.

        Raises
        ------
        QueryError
            It holds NUL, cannot be parsed, is not one SELECT, or its parameters are ambiguous.
        LimitExceededError
            It is longer than the limit `query_bytes`.
        """
        wanted = self._statement(sql).named_parameters
        whole = sql[: next(_operators(sql, ";"), len(sql))]
        text, used = _replaced(whole, lambda name: f"${prefix}{name}")
        names = {prefix + name: name for name in used}
        if used:
            found = self._statement(text, trusted=True).named_parameters
            if set(used) != wanted or found != set(names):
                place = _place(sql)
                raise QueryError("the parameters of the query cannot be told apart", where=place)
        # DuckDB lists table names only for statements without parameters.
        plain, _ = _replaced(whole, lambda _: "NULL")
        # It looks for columns in tables that it does not have, such as for JOIN ... USING.
        tables = frozenset(_WORD.findall(whole))
        with _ours(sql), suppress(duckdb.BinderException):
            tables = frozenset(self._connection.get_table_names(plain))
        return Parsed(text, names, tables)

    def select(
        self,
        sql: str,
        params: Mapping[str, Any] | None = None,
        *,
        tables: Mapping[str, Any] | None = None,
        functions: Mapping[str, Function] | None = None,
        max_rows: int | None = None,
        about: str | None = None,
    ) -> Any:
        """Run one SELECT and return its result as a `pyarrow.Table`.

        Parameters
        ----------
        sql
            Exactly one SELECT.
        params
            Values of its named parameters (``$name``).
        tables
            Arrow tables, or datasets whose columns and row groups are read as the query needs
            them, by the name that the query uses.
        functions
            Vectorised functions by name.
        max_rows
            Refuse a result of more rows.
        about
            Name of the query in messages, if `sql` was built around a caller's text.

        Raises
        ------
        QueryError
            The query cannot be parsed, bound or run, or is not a single SELECT.
        LimitExceededError
            The text is too long, or the result or the memory it takes is too large.
        """
        statement = self._statement(sql, trusted=about is not None)
        self._failures.clear()
        with ExitStack() as stack:
            stack.enter_context(_ours(about or sql, self._failures, self._hint))
            for name, table in (tables or {}).items():
                self._register(name, table)
                stack.callback(self._connection.unregister, name)
            for name, function in (functions or {}).items():
                self._define(name, function)
                stack.callback(self._connection.remove_function, name)
            try:
                return self._run(statement, params, max_rows)
            except duckdb.CatalogException:
                # The query may name functions indirectly, and DuckDB suggests only existing ones.
                if not self._waiting:
                    raise
            self._make(*self._waiting)
            return self._run(self._statement(sql, trusted=True), params, max_rows)

    def _register(self, name: str, table: Any) -> None:
        """Register a table, unless SQL has no type for a column or would take it for another."""
        for field in untyped(table.schema):
            raise QueryError(
                "SQL has no type for a column",
                found=f"{shown(field.name)}: {field.type}",
                hint="drop the column, or store it as float or decimal128",
            )
        for one, other in alike(table.schema.names):
            raise QueryError(
                "SQL cannot tell two columns apart whose names differ only in case",
                found=f"{shown(one)} and {shown(other)}",
                hint="read the rows without a query, and give one of the columns another name",
            )
        self._connection.register(name, table)

    def _run(self, statement: Any, params: Mapping[str, Any] | None, max_rows: int | None) -> Any:
        """The result of a statement from `_statement`."""
        with ExitStack() as stack:
            stack.enter_context(self._read_only())
            relation = self._connection.sql(statement, params=dict(params or {}))
            stack.callback(relation.close)
            if max_rows is None:
                return relation.to_arrow_table()
            table = relation.limit(max_rows + 1).to_arrow_table()
        if table.num_rows > max_rows:
            raise LimitExceededError(
                "the result has too many rows",
                expected=f"at most {max_rows}",
                hint="add LIMIT to the query or raise max_rows",
            )
        return table

    def close(self) -> None:
        """Close the connection; in a forked child it is kept, as its threads are gone."""
        if self._pid == os.getpid():
            self._connection.close()
        _OPEN.discard(self)

    @contextmanager
    def _read_only(self) -> Iterator[None]:
        self._connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            yield
        finally:
            # A failed statement has ended the transaction already.
            with suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")

    def _define(self, name: str, function: Function) -> None:
        failures = self._failures

        def call(*columns: Any) -> Any:
            try:
                return function.call(*columns)
            except ComalError as error:
                # DuckDB would only pass on its text.
                failures.append(error)
                raise

        if function.arguments is not None:
            # DuckDB counts the parameters that the function declares.
            places = [
                inspect.Parameter(f"column{n}", inspect.Parameter.POSITIONAL_OR_KEYWORD)
                for n in range(len(function.arguments))
            ]
            call.__signature__ = inspect.Signature(places)  # type: ignore[attr-defined] # as inspect documents
        # Texts instead of DuckDB's enumerations, whose module differs between versions.
        define: Any = self._connection.create_function
        define(
            name,
            call,
            None if function.arguments is None else list(function.arguments),
            function.returns,
            type="arrow",
            null_handling="special",
        )

    def _make(self, *texts: str) -> None:
        """Create the functions and macros that texts name, each after those that it uses."""
        words = {word for text in texts for word in _WORD.findall(text.lower())}
        names = list(self._waiting) if words & _LISTS else sorted(words & self._waiting.keys())
        for name in names:
            made = self._waiting.pop(name, None)
            if isinstance(made, Function):
                self._define(name, made)
            elif made is not None:
                self._make(made)
                self._connection.execute(made)

    def _statement(self, sql: str, *, trusted: bool = False) -> Any:
        if not isinstance(sql, str):
            raise QueryError("a query must be text", found=type(sql).__name__)
        if not trusted:
            self._limits.check("query_bytes", len(sql.encode("utf-8", "replace")), "query")
        if "\0" in sql:
            # DuckDB executes what follows a NUL, but its logs end there.
            raise QueryError("the query holds a NUL character", where=_place(sql))
        with _ours(sql):
            statements = self._connection.extract_statements(sql)
        kinds = [statement.type for statement in statements]
        if kinds != [duckdb.StatementType.SELECT]:
            raise QueryError(
                "the query is not exactly one SELECT",
                where=_place(sql),
                found=", ".join(kind.name for kind in kinds) or "nothing",
                expected="one SELECT",
                hint="data can be read but not changed; run several queries one after another",
            )
        self._make(sql)
        return statements[0]


_PARAMETER = re.compile(r"\$(\w+)|\?")


def _replaced(sql: str, new: Callable[[str], str]) -> tuple[str, list[str]]:
    """The query with its parameters replaced, and their names in order."""
    pieces: list[str] = []
    names: list[str] = []
    end = 0
    for at in _operators(sql, "$?"):
        match = _PARAMETER.match(sql, at)
        if match is not None:
            names.append(match[1] or str(len(names) + 1))
            pieces += [sql[end:at], new(names[-1])]
            end = match.end()
    return "".join([*pieces, sql[end:]]), names


def _operators(text: str, characters: str) -> Iterator[int]:
    """Positions of `characters` in `text` outside of strings, names and comments."""
    for offset, kind in duckdb.tokenize(text):
        at = _character(text, offset)
        if kind == duckdb.token_type.operator and text[at : at + 1] in characters:
            yield at


def _character(text: str, offset: int) -> int:
    """The index of the character that starts at byte `offset` of the text in UTF-8."""
    if text.isascii():
        return offset
    return len(text.encode("utf-8", "replace")[:offset].decode("utf-8", "replace"))


# -- errors ----------------------------------------------------------------------------------------

# Messages of DuckDB versions for failures of registered tables.
_SCAN = re.compile(r"arrow_scan|reading the stream registered as")
_EXTENSION = re.compile(r"exists in the \w+ extension")
_ARROW_MEMORY = re.compile(r"Out of memory: (re|m)alloc of size")
_TOO_LARGE = (duckdb.OutOfMemoryException, MemoryError, RecursionError)


@contextmanager
def _ours(
    sql: str, failures: list[ComalError] | None = None, tables: str | None = None
) -> Iterator[None]:
    """Translate DuckDB's exceptions into ours; errors of our functions are raised unchanged."""
    try:
        yield
    except _TOO_LARGE as error:
        raise LimitExceededError(
            "the query needs more memory than it may take", where=_place(sql)
        ) from error
    # Readers that DuckDB calls raise Arrow's and Python's own errors through it.
    except (duckdb.Error, pa.ArrowException, OSError, UnicodeError, ValueError, TypeError) as error:
        if failures:
            raise failures[0] from error
        if isinstance(error, ComalError):
            raise
        if _ARROW_MEMORY.search(str(error)):
            raise LimitExceededError(
                "the query needs more memory than there is", where=_place(sql)
            ) from error
        if not isinstance(error, duckdb.Error) or _SCAN.search(str(error)):
            raise InvalidMetadataError(
                "a table that the query reads is broken", found=str(error).partition("\n")[0]
            ) from error
        raise _query_error(sql, error, tables) from error


def _query_error(sql: str, error: Exception, tables: str | None) -> QueryError:
    # The rest of DuckDB's text repeats the statement as it was built here.
    text = str(error).split("\nLINE ")[0].strip()
    first, _, rest = text.partition("\n")
    kind, _, message = first.partition(": ")
    what = f"the query cannot be run ({message or kind})"
    hint = " ".join(rest.split()) or None
    if message.startswith("Table with name "):
        # DuckDB would suggest its own tables, and those used to build the query.
        hint = tables
    elif _EXTENSION.search(message):
        # Queries cannot load the extension that DuckDB suggests.
        what = "the query calls an unknown function"
        hint = "SELECT DISTINCT function_name FROM duckdb_functions() lists the known ones"
    return QueryError(what, where=_place(sql), hint=hint)


def _place(sql: str) -> str:
    return shown(" ".join(sql.split()))


_WORD = re.compile(r"\w+")
_LISTS = {"duckdb_functions", "pg_proc"}
"""Tables and functions that list all functions."""


# -- one session per thread and process -----------------------------------------------------------

_OPEN: weakref.WeakSet[Session] = weakref.WeakSet()
_HERE = threading.local()


def engine() -> Session:
    """The session of this thread and process, created on first use."""
    own: Session | None = getattr(_HERE, "engine", None)
    if own is None:
        own = _HERE.engine = Session()
    return own


def _abandon() -> None:
    """Forget every session in a forked child.

    A connection that was open across a fork has lost its threads: using or even destroying it
    crashes the child. An extra reference keeps it until the process ends.
    """
    global _HERE  # noqa: PLW0603 - the child starts with no sessions at all
    for other in list(_OPEN):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(other._connection))  # noqa: SLF001 - same module
    _OPEN.clear()
    _HERE = threading.local()


@atexit.register
def _close_all() -> None:
    for other in list(_OPEN):
        # A session may be in use by a thread that will never end.
        with suppress(duckdb.Error):
            other.close()


os.register_at_fork(after_in_child=_abandon)
