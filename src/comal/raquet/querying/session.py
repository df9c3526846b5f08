"""RaQuet files in DuckDB: tiles as datasets that it scans, views, and SQL functions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from comal import grid
from comal.errors import ComalError, InvalidInputError, shown, translated
from comal.lazy import shapely
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.parallel import cached_property
from comal.public import guarded_class
from comal.query import Budget, Function, Session, run_isolated
from comal.query.columns import unique_shapes, vectorised, whole
from comal.raquet import spec
from comal.raquet.documents import metadata_json
from comal.raquet.querying.sqlfunctions import functions
from comal.raquet.reading.coverage import bounds_of
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.opening import borrowed
from comal.raquet.reading.store import TileStore
from comal.raquet.spec import TIME_CF, Metadata
from comal.raquet.writing.copying import united_custom, version_for
from comal.storage import StorageConfig
from comal.storage.source import Closing
from comal.table import ParquetTable
from comal.table.columns import one_array
from comal.table.footer import BROKEN
from comal.table.scan import Batches, columns_of

Location = str | os.PathLike[str]

RASTER = "raster"
"""Name of the data set if only one is given."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_VIEWS = ("tiles", "overviews", "metadata", "pyramid")


@guarded_class
class RaquetConnection(Closing):
    """RaQuet files as tables of a DuckDB that can only run SELECT.

    A data set called ``raster`` (or by a key of the mapping) has these tables:

    - ``raster``: the tiles of the finest zoom, with all columns, and the metadata in every row;
    - ``tiles``: their index without pixels: block, z, x, y, west, south, east, north;
    - ``overviews``: the tiles of all other zooms, as in ``raster``;
    - ``metadata``: one row: the document, and its most important values;
    - ``raster_tiles``, ``raster_overviews``, ``raster_metadata``: the same by full names, and
      ``raster_pyramid``: all zooms.

    Functions have the names of the DuckDB extension for RaQuet: ``ST_RasterValue``,
    ``ST_RasterSummaryStats``, ``ST_RegionStats``, ``ST_Clip``, ``ST_ClipMask``,
    ``ST_NormalizedDifference``, ``ST_BandMath``, ``read_raquet``, ``read_raquet_at``,
    ``quadbin_...`` and more. Geometries are DuckDB's own, WKB or WKT, in longitude and latitude.
    Some things differ from the extension on purpose:

    - the first argument of ``read_raquet``, ``read_raquet_at``, ``ST_Raster`` and ``ST_RasterAt``
      is the name of a data set, since a query cannot open files;
    - latitudes of pixel rows are those of Web Mercator, and only the pixels within a region count,
      respecting its holes;
    - type and nodata value are those of the band whose column is passed; a renamed column needs the
      name of the band as the last argument if bands differ;
    - statistics have ``stddev_pop`` and ``stddev_samp``; ``stddev`` is the latter;
    - ``ST_RegionStats`` uses only tiles of the finest zoom, or of the requested one; a query has
      a single resolution;
    - lists of band arithmetic are null for invalid pixels;
    - functions that take the block exclude the padding of tiles at the edge, if the file says what
      its source covered; without a block padding is not recognized;
    - pixels with alpha 0 have no value: a query passes the alpha column as a last argument,
      ``alpha := band_4``, and fails without it; interleaved tiles contain alpha anyway.
      ``raquet_pixel`` and ``raquet_decode_band`` use the blob alone;
    - there is no ``read_raster``, ``raquet_merge_bands`` (use JOIN USING (block)) or
      ``raquet_validate_metadata`` (use `comal.raquet.check`), and no forms that describe a blob by
      arguments instead of its metadata.

    All other ``ST_*`` functions of geometries are those of DuckDB's spatial extension, as in every
    ``sql`` of comal; they accept a block as its bbox, as in ``ST_Intersects(block, geometry)``.

    A connection belongs to one thread.
    """

    def __init__(
        self,
        stores: Mapping[str, TileStore],
        opened: ExitStack,
        *,
        threads: int | None = None,
        memory_limit: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._stores = dict(stores)
        self._opened = opened
        failures: list[ComalError] = []
        tables: dict[str, Any] = {}
        statements: list[str] = []
        for name, store in self._stores.items():
            own, text = _tables_of(name, store, failures)
            tables |= own
            statements += text
        if set(self._stores) == {RASTER}:
            statements += [f"CREATE VIEW {view} AS FROM {RASTER}_{view}" for view in _VIEWS[:3]]
        self._session = Session(
            tables=tables,
            functions={
                **functions(),
                **_OF_CELLS,
                **_TABLE_MACROS,
                "comal_zoom": _zoom_of(self._stores),
            },
            statements=statements,
            failures=failures,
            hint="the tables are " + ", ".join(self.tables),
            threads=threads,
            memory_limit=memory_limit,
            limits=limits,
        )

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        if set(self._stores) == {RASTER}:
            return (RASTER, *_VIEWS[:3])
        return tuple(
            full for name in self._stores for full in (name, *(f"{name}_{v}" for v in _VIEWS))
        )

    @property
    def metadata(self) -> dict[str, Metadata]:
        """Metadata of the files, by name of the data set."""
        return {name: store.metadata for name, store in self._stores.items()}

    def sql(
        self,
        query: str,
        params: Mapping[str, Any] | None = None,
        *,
        max_rows: int | None = None,
        **named: Any,
    ) -> Any:
        """Run one SELECT.

        Parameters
        ----------
        query
            Exactly one SELECT.
        params, **named
            Values of its named parameters (``$name``).
        max_rows
            Reject a result with more rows.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        QueryError
            The query cannot be parsed, bound or run, or is not exactly one SELECT.
        InvalidInputError
            An argument of a function is invalid.
        InvalidMetadataError
            A tile that the query needs cannot be decoded.
        LimitExceededError
            The text, the result or the memory use is too large.
        """
        return self._session.select(query, {**(params or {}), **named}, max_rows=max_rows)

    def close(self) -> None:
        """Close the connection and its files."""
        self._session.close()
        self._opened.close()


def connect(
    href: Location | RaquetFile | Sequence[Location] | Mapping[str, Any],
    *,
    threads: int | None = None,
    memory_limit: int | None = None,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> RaquetConnection:
    """Open RaQuet files for SQL.

    Parameters
    ----------
    href
        Path or URL of a file, an open `RaquetFile`, or a list of the parts of one data set, which
        is then called ``raster``. Or a mapping of names to these, for queries over several.
    threads, memory_limit
        Worker threads of DuckDB, and memory that a query may use, in bytes.
    config
        Settings of remote storage.
    limits
        Caps on the memory that files and queries can use.

    Returns
    -------
    RaquetConnection
        A context manager.

    Raises
    ------
    InvalidInputError
        A name is not a valid table name.
    NotThisFormatError, InvalidMetadataError, UnsupportedVersionError, ObjectNotFoundError
        As for `comal.raquet.open`.
    """
    wanted = href if isinstance(href, Mapping) else {RASTER: href}
    for name in wanted:
        if not _NAME.fullmatch(str(name)) or name in _VIEWS:
            raise InvalidInputError(
                "not the name of a table",
                found=shown(name),
                expected="lower-case letters, digits and '_', a letter first",
            )
    with ExitStack() as opening:
        stores = {
            name: opening.enter_context(borrowed(one, config, limits)).store
            for name, one in wanted.items()
        }
        opened = ExitStack()
        named = {"threads": threads, "memory_limit": memory_limit}
        connection = RaquetConnection(stores, opened, limits=limits, **named)
        opened.enter_context(opening.pop_all())
    return connection


def sql(
    href: Location | RaquetFile | Sequence[Location] | Mapping[str, Any],
    query: str,
    params: Mapping[str, Any] | None = None,
    *,
    isolated: bool | Budget = False,
    max_rows: int | None = None,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **named: Any,
) -> Any:
    """Run one SELECT over RaQuet files; see `connect` and `RaquetConnection`.

    Parameters
    ----------
    href, config, limits
        As for `connect`.
    query, params, max_rows, **named
        As for `RaquetConnection.sql`.
    isolated
        Run the query in a process of its own with hard limits on memory and time, for untrusted
        queries. `href` must then be a path or a URL. A `comal.query.Budget` sets the limits.

    Returns
    -------
    pyarrow.Table
    """
    values = {**(params or {}), **named}
    if isolated:
        if not isinstance(href, str | os.PathLike):
            raise InvalidInputError("an isolated query needs a path or a URL")
        where = os.fspath(href)
        return run_isolated(
            *(_isolated, where, query, values, max_rows, config, limits),
            budget=isolated if isinstance(isolated, Budget) else None,
            remote="://" in where,
        )
    with connect(href, config=config, limits=limits) as connection:
        return connection.sql(query, values, max_rows=max_rows)


def _isolated(
    href: str,
    query: str,
    params: Mapping[str, Any],
    max_rows: int | None,
    config: StorageConfig | None,
    limits: Limits,
) -> Any:
    with connect(href, config=config, limits=limits, threads=1) as connection:
        return connection.sql(query, params, max_rows=max_rows)


# -- tables and views ------------------------------------------------------------------------------


def _tables_of(
    name: str, store: TileStore, failures: list[ComalError]
) -> tuple[dict[str, Any], list[str]]:
    """The tables to register for a data set, and the statements that create its views."""
    parts = {f"comal_{name}_{n}": scan for n, scan in enumerate(tile_scans(store, failures))}
    first, last = grid.descendants(grid.cells(0, 0, 0), store.metadata.max_zoom)
    # `connect` validates the names that go into SQL, and the ids are computed from zooms.
    rows = " UNION ALL BY NAME ".join(
        f"SELECT * EXCLUDE (metadata) FROM {part}"  # noqa: S608
        for part in parts
    )
    select = (
        f"SELECT *, (SELECT m.metadata FROM {name}_metadata AS m) AS metadata"  # noqa: S608
        f" FROM comal_{name}_rows WHERE block BETWEEN"
    )
    index = Deferred(_index_schema(store), partial(_index, store))
    tables = {**parts, f"{name}_metadata": _document(store), f"{name}_tiles": index}
    return tables, [
        f"CREATE VIEW comal_{name}_rows AS {rows}",
        f'CREATE VIEW "{name}" AS {select} {first} AND {last}',
        f"CREATE VIEW {name}_overviews AS {select} 1 AND {first - 1}",
        f"CREATE VIEW {name}_pyramid AS {select} 1 AND {last}",
    ]


_TOLD = ("version", "compression", "layout", "block_width", "block_height", "min_zoom", "max_zoom")
"""Fields of the metadata that are columns of the table ``metadata``."""


def _document(store: TileStore) -> Any:
    one = store.metadata
    edges = bounds_of([part.metadata for part in store.parts], one)
    row = {
        "metadata": _told_of_all(store),
        **{"band_layout" if name == "layout" else name: getattr(one, name) for name in _TOLD},
        "width": one.width,
        "height": one.height,
        **dict(zip(("west", "south", "east", "north"), edges, strict=True)),
        "bands": list(one.band_names),
    }
    filled = {**row, "version": "", "compression": ""}  # a null has no type
    return pa.Table.from_pylist([row], pa.Table.from_pylist([filled]).schema)


def _told_of_all(store: TileStore) -> str:
    """The document of the first file, with the combined ``custom`` entries of all files."""
    first = store.parts[0]
    custom = united_custom([part.metadata for part in store.parts])
    if custom == first.metadata.custom:
        return first.document
    metadata = replace(first.metadata, custom=custom)
    return metadata_json(metadata, version_for(None, nested=metadata.nested))


def _index_schema(store: TileStore) -> Any:
    fields = [("block", pa.uint64()), *((name, pa.int64()) for name in "zxy")]
    fields += [(name, pa.float64()) for name in ("west", "south", "east", "north")]
    return pa.schema(fields if store.times is None else [*fields, (TIME_CF, pa.float64())])


def _index(store: TileStore) -> Any:
    """The index of the tiles of the finest zoom, from data in memory."""
    ids, zoom = store.ids, store.metadata.max_zoom
    chosen = (ids != 0) & (np.asarray(ids >> 52 & 31) == zoom) & np.asarray(grid.is_valid(ids))
    cells = ids[chosen]
    columns = [cells.astype(np.uint64), *grid.tiles(cells), *grid.bounds(cells)]
    if store.times is not None:
        columns.append(np.concatenate([part.time for part in store.parts])[chosen])
    return pa.table([pa.array(column) for column in columns], schema=_index_schema(store))


_AT = "block = quadbin_from_lonlat(lon, lat, comal_zoom(f{}))"
_AT_POINT = "block = quadbin_from_lonlat(st_x(point), st_y(point), comal_zoom(f))"
_CELLS = "geometry, comal_zoom(f{})"
_IN = (
    "block BETWEEN comal_first({0}) AND comal_last({0}) AND comal_among(block, {0})"
    " AND (len(comal_few({0})) = 0 OR list_contains(comal_few({0}), block))"
)
"""DuckDB makes constants of these calls, and hands them on to the scan, which reads a list of tiles
one by one, and else all between the first and the last."""
_MOST_LISTED = 1 << 16
"""Cells of a geometry that a query lists."""
_PYRAMID = "SELECT * FROM query_table(f || '_pyramid') WHERE "

_FORMS_OF_AREA = (
    ("f", "true"),
    ("f, geometry", _IN.format(_CELLS.format(""))),
    ("f, geometry, resolution", _IN.format(_CELLS.format(", resolution"))),
)
_FORMS_OF_PLACE = (
    ("f, point", _AT_POINT),
    ("f, lon, lat", _AT.format("")),
    ("f, lon, lat, resolution", _AT.format(", resolution")),
)


def _table_macro(name: str, forms: Sequence[tuple[str, str]]) -> str:
    made = (f" ({given}) AS TABLE ({_PYRAMID}{condition})" for given, condition in forms)
    return f"CREATE MACRO {name}" + ",".join(made)


_TABLE_MACROS = {
    **{name: _table_macro(name, _FORMS_OF_AREA) for name in ("read_raquet", "st_raster")},
    **{name: _table_macro(name, _FORMS_OF_PLACE) for name in ("read_raquet_at", "st_rasterat")},
    "read_raquet_metadata": (
        "CREATE MACRO read_raquet_metadata(f) AS TABLE FROM query_table(f || '_metadata')"
    ),
}
"""Table functions of duckdb-raquet; `f` is the name of a data set, not of a file."""


@lru_cache(maxsize=64)
def _ranges(wkb: bytes, zoom: int) -> Any:
    """Id ranges of the cells of a geometry, of which there are far fewer than cells."""
    return grid.geometry_ranges(shapely.from_wkb(wkb), zoom)


def _ranges_of(geometry: Any, zoom: Any) -> Iterator[tuple[Any, Any]]:
    """The rows of each distinct geometry and zoom, and the ranges of its cells."""
    given, which = unique_shapes(geometry)
    zooms = whole(zoom, "zoom")
    for number, level in {*zip(which.tolist(), zooms.tolist(), strict=True)}:
        rows = np.flatnonzero((which == number) & (zooms == level))
        yield rows, _ranges(shapely.to_wkb(given[number]), level)


def _end(at: int, geometry: Any, zoom: Any) -> list[int | None]:
    """The first or the last cell of each geometry; None if it has none."""
    found: list[int | None] = [None] * len(geometry)
    for rows, ranges in _ranges_of(geometry, zoom):
        for row in rows.tolist() if len(ranges) else ():
            found[row] = int(ranges[at, at])
    return found


def _few(geometry: Any, zoom: Any) -> list[Any]:
    """The cells of each geometry; an empty list if there are too many to list."""
    found: list[Any] = [()] * len(geometry)
    for rows, ranges in _ranges_of(geometry, zoom):
        step = 1 << 52 - 2 * zoom[int(rows[0])].as_py()
        if ((ranges[:, 1] - ranges[:, 0]) // step + 1).sum() <= _MOST_LISTED:
            for row in rows.tolist():
                found[row] = grid.range_cells(ranges)
    return found


def _among(block: Any, geometry: Any, zoom: Any) -> Any:
    """Whether blocks are among the cells of geometries."""
    cells = whole(block, "block")
    found = np.zeros(len(cells), np.bool_)
    for rows, ranges in _ranges_of(geometry, zoom):
        found[rows] = grid.in_ranges(cells[rows], ranges)
    return found


_OF_CELLS = {
    "comal_first": Function(vectorised(partial(_end, 0), pa.uint64()), None, "UBIGINT"),
    "comal_last": Function(vectorised(partial(_end, -1), pa.uint64()), None, "UBIGINT"),
    "comal_few": Function(vectorised(_few, pa.list_(pa.uint64())), None, "UBIGINT[]"),
    "comal_among": Function(vectorised(_among, pa.bool_()), None, "BOOLEAN"),
}
"""Functions of the cells of a geometry, by which `_IN` finds its tiles."""


def _zoom_of(stores: Mapping[str, TileStore]) -> Function:
    """The zoom to read of a data set by name; DuckDB folds the call into a constant."""

    def zoom(*columns: Any) -> Any:
        found = []
        wanted = columns[1].to_pylist() if len(columns) > 1 else [None] * len(columns[0])
        for name, number in zip(columns[0].to_pylist(), wanted, strict=True):
            if name not in stores:
                raise InvalidInputError(
                    "no such table", found=shown(name), expected=", ".join(stores)
                )
            low, high = stores[name].metadata.min_zoom, stores[name].metadata.max_zoom
            found.append(high if number is None else max(low, min(high, int(number))))
        return pa.array(found, pa.int32())

    return Function(zoom, None, "INTEGER")


# -- scans -----------------------------------------------------------------------------------------

_BYTES = 16 * MIB
"""Stored bytes that are read at a time."""
_ROW = "comal row"
_MOST_ROWS = 2048
"""Rows of a batch; the size of DuckDB's vectors."""


def tile_scans(store: TileStore, failures: list[ComalError]) -> list[TileScan]:
    """The rows of a data set as Arrow datasets, one for all files with the same columns."""
    sets: dict[tuple[Any, ...], list[int]] = {}
    for number, part in enumerate(store.parts):
        columns = tuple((field.name, field.type) for field in part.footer.schema)
        sets.setdefault(columns, []).append(number)
    return [TileScan(store, numbers, failures) for numbers in sets.values()]


class TileScan(ds.InMemoryDataset):  # type: ignore[misc] # pyarrow is untyped
    """The rows of the files `numbers` of a store, which have the same columns.

    Engines call `scanner`. `failures` receives the error that ended a scan, since an engine would
    only pass on its text.
    """

    def __init__(
        self, store: TileStore, numbers: Sequence[int], failures: list[ComalError]
    ) -> None:
        super().__init__(store.parts[numbers[0]].footer.schema.empty_table())
        self.store, self.numbers, self._failures = store, numbers, failures
        self.tables = {
            number: ParquetTable(
                store.sources[number], store.parts[number].footer, limits=store.limits
            )
            for number in numbers
        }

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - the name that engines use
        **_: Any,
    ) -> _TilesScanned:
        """A scanner of `columns` in the rows that `filter` (an Arrow expression) keeps."""
        names = self.schema.names if columns is None else list(columns)
        return _TilesScanned(self, self._failures, names, filter)

    @cached_property
    def known(self) -> Any:
        """A table of the columns in memory, and the row of the store for each row."""
        parts = [self.store.parts[number] for number in self.numbers]
        every: dict[str, list[Any]] = {
            spec.BLOCK: [part.ids for part in parts],
            spec.TIME_CF: [part.time for part in parts],
            spec.TIME_TS: [part.stamps for part in parts],
        }
        columns = {
            name: pa.array(np.concatenate(values)).cast(self.schema.field(name).type, safe=False)
            for name, values in every.items()
            if all(one is not None for one in values)
        }
        starts = self.store.starts[list(self.numbers)]
        rows = [start + np.arange(len(part.ids)) for start, part in zip(starts, parts, strict=True)]
        return pa.table({**columns, _ROW: np.concatenate(rows)})


class Deferred(ds.InMemoryDataset):  # type: ignore[misc] # pyarrow is untyped
    """A table with a schema that is built on the first scan; most queries never need it."""

    def __init__(self, schema: Any, make: Callable[[], Any]) -> None:
        super().__init__(schema.empty_table())
        self._make = make
        self._made: Any = None

    def scanner(self, **wanted: Any) -> Any:
        """A `pyarrow.dataset.Scanner` over the whole table."""
        if self._made is None:
            self._made = ds.InMemoryDataset(self._make())
        return self._made.scanner(**wanted)


class _TilesScanned(Batches):
    """One scan of some files."""

    def __init__(
        self, of: TileScan, failures: list[ComalError], names: Sequence[str], condition: Any
    ) -> None:
        super().__init__(pa.schema([of.schema.field(name) for name in names]), failures)
        self._of = of
        self._names = list(names)
        self._known = [name for name in of.known.column_names if name in names]
        self._read = [name for name in names if name not in self._known]
        self._condition = condition

    def _checked(self) -> Iterator[Any]:
        chosen, store = self._chosen(), self._of.store
        if chosen is None:
            for number in self._of.numbers:
                yield from self._by_groups(number)
            return
        rows = chosen.column(_ROW).to_numpy()
        numbers, first = np.unique(store.parts_of(rows), return_index=True)
        stops = np.append(first, len(rows))[1:]
        files = zip(numbers.tolist(), first.tolist(), stops.tolist(), strict=True)
        for by_page, stretch in groupby(files, key=self._is_by_page):
            some = list(stretch)
            if by_page:
                # Tiles of several files are fetched together.
                start, stop = some[0][1], some[-1][2]
                yield from self._by_page(chosen.slice(start, stop - start))
                continue
            for number, start, stop in some:
                local = rows[start:stop] - store.starts[number]
                groups = np.searchsorted(store.parts[number].row_ends, local, side="right")
                yield from self._by_groups(number, np.unique(groups).tolist())

    def _chosen(self) -> Any:
        """Columns in memory of the rows that the filter keeps; None if it uses other columns."""
        names = [*self._known, _ROW]
        if self._condition is None:
            return self._of.known.select(names)
        known = ds.InMemoryDataset(self._of.known)
        try:
            return known.scanner(columns=names, filter=self._condition).to_table()
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            return None

    def _is_by_page(self, file: tuple[int, int, int]) -> bool:
        """Whether the tiles of a file have pages of their own."""
        return all(name in self._of.store.parts[file[0]].pages for name in self._read)

    def _by_page(self, chosen: Any) -> Iterator[Any]:
        rows, store = chosen.column(_ROW).to_numpy(), self._of.store
        parts, sizes = store.parts_of(rows), np.zeros(len(rows))
        for number in np.unique(parts).tolist():
            mine, pages = parts == number, store.parts[number].pages
            local = rows[mine] - store.starts[number]
            sizes[mine] = sum(pages[name].size[local] for name in self._read)
        for some in _runs(sizes):
            keys = [(row, name) for name in self._read for row in rows[some].tolist()]
            found = store.blobs_of(keys)
            columns = [
                one_array(chosen.column(name)[some])
                if name in self._known
                else pa.array([found[row, name] for row in rows[some].tolist()], pa.binary())
                for name in self._names
            ]
            fields = zip(columns, self.projected_schema, strict=True)
            cast = [column.cast(field.type) for column, field in fields]
            yield pa.record_batch(cast, schema=self.projected_schema)

    def _by_groups(self, number: int, groups: Sequence[int] | None = None) -> Iterator[Any]:
        """The rows that the filter keeps in row groups of a file, by default in all of them."""
        table, where = self._of.tables[number], self._of.store.parts[number].where
        others = columns_of(self._condition, self._of.schema, self._names)
        for chosen in table.runs([*self._names, *others], groups, stored=_BYTES):
            memory = ds.InMemoryDataset(table.read([*self._names, *others], chosen))
            with translated(BROKEN, "the rows cannot be filtered", where=where):
                found = memory.scanner(columns=self._names, filter=self._condition).to_table()
            yield from found.to_batches(max_chunksize=_MOST_ROWS)


def _runs(sizes: Any) -> Iterator[slice]:
    """Slices of rows of these sizes, within `_BYTES` and `_MOST_ROWS`."""
    start = 0
    total = np.cumsum(sizes)
    while start < len(sizes):
        before = float(total[start - 1]) if start else 0.0
        stop = int(np.searchsorted(total, before + _BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _MOST_ROWS)
        yield slice(start, stop)
        start = stop
