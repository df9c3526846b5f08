"""Datasets: opened (7.2.1), read lazily (7.2.2), concatenated (7.2.4)."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from comal import query as queries
from comal.errors import (
    InvalidInputError,
    NotThisFormatError,
    UnsupportedVersionError,
    counted,
    shown,
)
from comal.geo.places import deciding
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import cached_property
from comal.public import guarded_class, warn
from comal.samples.filters import Box, box_filter, has_place, has_time, period_filter
from comal.samples.frame import Key, html_facts
from comal.storage import Source, StorageConfig, as_source, open_beside, reload_once
from comal.storage.source import Closing
from comal.table.columns import combining
from comal.taco import spec, wire
from comal.taco.model.collection import refuse_alike, united, warn_without_crs
from comal.taco.reading import sql as views
from comal.taco.reading.container import Collected, Container, open_container, read_collected
from comal.taco.reading.frame import DIALECT, TacoDataFrame
from comal.taco.reading.spans import check_spans
from comal.taco.reading.view import (
    ColumnMode,
    Home,
    Limit,
    Scan,
    Sort,
    Sql,
    Stage,
    Staged,
    Union,
    View,
    may_change,
    stages,
)
from comal.taco.spec import LOGGER, TacoWarning

Location = str | os.PathLike[str] | Source

_MODES = ("intersection", "fill_missing", "strict")


def load(
    path: Location | Sequence[Location],
    base_path: Location | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    tail: int = wire.DEFAULT_TAIL,
    column_mode: ColumnMode = "intersection",
) -> TacoDataset:
    """Open a dataset, or several as one.

    Only headers, COLLECTION.json and the footers of the level tables are read: for a ZIP in one
    round trip of two requests, if the last `tail` bytes hold them.

    Parameters
    ----------
    path
        Path or URL of a ZIP, a folder, a ``__TACOCAT__`` file or a ``.tacocat`` folder (or the
        folder that holds one), told apart by their bytes. The datasets of a list, or those that a
        ``TACOLLECTION.json`` names, are joined by `concat`. An open `Source` is used as it is.
    base_path
        Folder with the parts of a TACOCAT or a TACOLLECTION, if they are not beside it.
        Credentials of `config` belong to `path`; pass a folder at another origin that needs its
        own as an open source.
    limits
        Limits on memory and sizes that a file may demand.
    config
        Settings for remote storage.
    tail
        Bytes to read at the end of a file in the first request.
    column_mode
        For a list or a TACOLLECTION: see `concat`.

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError, StorageError
        The object does not exist, or cannot be read.
    ObjectChangedError
        It was replaced during opening, and again during the second attempt.
    NotThisFormatError, UnsupportedVersionError
        It is something else.
    InvalidMetadataError, UnsafeContentError, LimitExceededError
        The content is broken, hostile, or too large.
    InvalidInputError
        The list is empty, or its datasets cannot be concatenated.
    """
    if isinstance(path, Sequence) and not isinstance(path, str):
        if not path:
            raise InvalidInputError("nothing to load", expected="at least one path")
        datasets = [load(one, base_path, limits=limits, config=config, tail=tail) for one in path]
        return concat(datasets, column_mode)

    def opened() -> Container | Collected:
        source = as_source(path, config=config)
        base = None if base_path is None else open_beside(source, base_path)
        try:
            return open_container(source, base=base, tail=tail, limits=limits)
        except UnsupportedVersionError:
            raise
        except NotThisFormatError:
            listed = read_collected(source, base, limits)
            if listed is None:
                raise
            return listed

    found = reload_once(opened)
    if isinstance(found, Collected):
        parts = [open_container(found.part(n), tail=tail, limits=limits) for n in found.files]
        joined = concat([TacoDataset(Scan(one), one.collection) for one in parts], column_mode)
        return TacoDataset(joined.view, found.document)
    LOGGER.info("loaded %s: %s, %d levels", found.source.href, found.kind, len(found.levels))
    return TacoDataset(Scan(found), found.collection)


@guarded_class
class TacoDataset(Closing):
    """The collection fields of a container, and a lazy view of its rows.

    Every method returns a new dataset; nothing is read before `data`, `flatten` or a frame needs
    it. A dataset can be pickled, survives a fork, and may be used from several threads at once.
    `load` and `concat` return one.
    """

    def __init__(
        self, view: View, collection: Mapping[str, Any], *, home: Home | None = None
    ) -> None:
        self._view = view
        self._collection = collection
        self._home = home or Home(view)

    def __reduce__(self) -> tuple[Any, ...]:
        return TacoDataset, (self._view, self._collection)

    def _then(self, stage: Stage) -> TacoDataset:
        return TacoDataset(Staged(self._view, stage), self._collection, home=self._home)

    # -- collection --------------------------------------------------------------------------------

    @property
    def collection(self) -> dict[str, Any]:
        """A copy of COLLECTION.json."""
        return copy.deepcopy(dict(self._collection))

    @property
    def id(self) -> str:
        """Identifier of the dataset."""
        return str(self._collection.get("id", ""))

    @property
    def dataset_version(self) -> str | None:
        """Version of the dataset itself."""
        return self._text("dataset_version")

    @property
    def version(self) -> str | None:
        """Alias of `dataset_version`, as named in 7.2.2."""
        return self.dataset_version

    @property
    def taco_version(self) -> str | None:
        """Version of the format that the writer put into the file."""
        return self._text("taco_version")

    @property
    def description(self) -> str | None:
        """Description of the dataset."""
        return self._text("description")

    @property
    def title(self) -> str | None:
        """Short title."""
        return self._text("title")

    @property
    def tasks(self) -> list[str]:
        """Machine learning tasks that the dataset supports."""
        return self._list("tasks")

    @property
    def licenses(self) -> list[str]:
        """Licences."""
        return self._list("licenses")

    @property
    def keywords(self) -> list[str]:
        """Keywords."""
        return self._list("keywords")

    @property
    def providers(self) -> list[dict[str, Any]]:
        """Producers of the data."""
        return self._list("providers")

    @property
    def curators(self) -> list[dict[str, Any]]:
        """People or organizations that converted the data to this format."""
        return self._list("curators")

    @property
    def extent(self) -> dict[str, Any]:
        """``spatial`` [west, south, east, north] in degrees and ``temporal`` [start, end]."""
        value = self._collection.get("extent")
        return copy.deepcopy(value) if isinstance(value, dict) else {}

    @cached_property
    def pit_schema(self) -> spec.PITSchema:
        """The tree of the whole dataset; filters do not change it."""
        return spec.PITSchema.from_dict(self._collection.get(spec.PIT_SCHEMA))

    @property
    def field_schema(self) -> dict[str, Any]:
        """Columns and types per level, as the collection lists them."""
        value = self._collection.get(spec.FIELD_SCHEMA)
        return copy.deepcopy(value) if isinstance(value, dict) else {}

    def _text(self, key: str) -> str | None:
        value = self._collection.get(key)
        return value if isinstance(value, str) else None

    def _list(self, key: str) -> list[Any]:
        value = self._collection.get(key)
        return copy.deepcopy(value) if isinstance(value, list) else []

    @property
    def location(self) -> str:
        """The href that it was loaded from; several are joined by commas."""
        return ", ".join(container.source.href for container in self._home.containers)

    @property
    def home(self) -> Home:
        """The containers, for tools that need them."""
        return self._home

    @property
    def view(self) -> View:
        """The tree of stages that gives the rows, for tools that need it."""
        return self._view

    # -- lazy stages -------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> Any:
        """Arrow schema of the current view."""
        return views.schema_of(self._view)

    @property
    def columns(self) -> list[str]:
        """Columns of the current view."""
        names: list[str] = self.schema.names
        return names

    def sql(
        self,
        query: str,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        isolated: bool | queries.Budget = False,
    ) -> TacoDataset:
        """A view of the result of one SELECT over this one; it runs when rows are needed.

        Parameters
        ----------
        query
            One SELECT in DuckDB's dialect. ``data`` (also ``level0``) is the current view,
            ``level1`` .. ``level5`` are its descendants, and ``l0`` .. ``l5`` are a level joined
            with all levels above, with prefixed columns (``"l1:id"``).
        params
            Values of ``$name`` by name, or of ``?`` and ``$1`` in order.
        isolated
            Parse and run in a process with hard limits, for untrusted queries. A
            `comal.query.Budget` sets the limits.

        Raises
        ------
        QueryError
            The query is not one SELECT; other faults are raised when it runs.
        """
        if not isolated:
            queries.engine().parse(query)
        elif not isinstance(query, str):
            raise InvalidInputError("a query must be text", found=type(query).__name__)
        if params is None or isinstance(params, Mapping):
            named = dict(params or {})
        else:
            named = {str(place + 1): value for place, value in enumerate(params)}
        LOGGER.debug("query: %s", query)
        return self._then(Sql(query, tuple(named.items()), isolated))

    def filter_bbox(
        self,
        minx: float,
        miny: float,
        maxx: float,
        maxy: float,
        geometry_col: str = "auto",
        level: int | None = None,
    ) -> TacoDataset:
        """The samples that have a point in common with a box, edges included.

        Parameters
        ----------
        minx, miny, maxx, maxy
            West, south, east, north in degrees; west > east is a box across the antimeridian.
        geometry_col
            Column of WKB, or of points as text. ``"auto"`` compares footprints: ``istac:geometry``
            (transformed to degrees by ``istac:crs``), then the outline from ``stac:crs``,
            ``stac:geotransform`` and ``stac:tensor_shape``; samples without a footprint are
            compared by ``stac:centroid`` or ``istac:centroid``. `placed_by` says which was used.
        level
            0 for the samples' own location; deeper for samples with a matching descendant there.
            Each sample comes once, with all of its children. By default the outermost level that
            has such a column; a `TacoWarning` names deeper levels that have one too.
        """
        level = self._level_with(level, lambda schema: has_place(schema, geometry_col), "place")
        schema = self._schema_of_level(level)
        bounds = minx, miny, maxx, maxy
        rule = box_filter(bounds, geometry_col, schema, DIALECT, level)
        warn_without_crs(rule.ways)
        return self._then(rule)

    @property
    def placed_by(self) -> tuple[str, ...]:
        """What located samples in the last `filter_bbox`: ``footprint``, ``centroid``, or both.

        With both, centroids are used for samples without a footprint. Empty without a box.
        """
        found: tuple[str, ...] = ()
        for stage in stages(self._view):
            if isinstance(stage, Box):
                found = deciding(stage.ways)
        return found

    def filter_datetime(
        self, datetime_range: Any, time_col: str = "auto", level: int | None = None
    ) -> TacoDataset:
        """The samples whose time lies in a range, both ends included.

        Parameters
        ----------
        datetime_range
            ``"2023-01-01/2023-12-31"``, one instant, or a pair of texts, datetimes, dates or
            integers of microseconds. ``..`` leaves an end open, a date alone is the whole day,
            times without a zone are UTC.
        time_col
            Column; ``"auto"`` takes the first of ``istac:time_start``, ``stac:time_start``.
        level
            As for `filter_bbox`.
        """
        level = self._level_with(level, lambda schema: has_time(schema, time_col, DIALECT), "time")
        schema = self._schema_of_level(level)
        return self._then(period_filter(datetime_range, time_col, schema, DIALECT, level))

    def _level_with(self, level: int | None, tells: Callable[[Any], bool], what: str) -> int:
        """The given level, or the outermost one with a location or a time."""
        if level is not None:
            return level
        every = range(self._home.depth + 1)
        found = [number for number in every if tells(self._schema_of_level(number))]
        if len(found) > 1:
            others = ", ".join(map(str, found[1:]))
            warn(
                f"level {found[0]} is filtered, but level {others} has a {what} too: "
                "pass level= to choose",
                TacoWarning,
            )
        return found[0] if found else 0

    def sort(self, by: str, *, descending: bool = False) -> TacoDataset:
        """The samples sorted by a column, nulls last; the sort is stable."""
        name = by.removeprefix("l0:") if by not in self.columns else by
        if name not in self.columns:
            raise InvalidInputError(
                f"no column {shown(by)}", expected=", ".join(shown(c) for c in self.columns[:40])
            )
        return self._then(Sort(name, descending))

    def limit(self, n: int) -> TacoDataset:
        """The first `n` samples."""
        if not _is_count(n):
            raise InvalidInputError(
                "limit is not a number of rows", found=repr(n), expected="0 or more"
            )
        return self._then(Limit(n))

    def _schema_of_level(self, level: int) -> Any:
        self._check_level(level)
        if level == 0:
            return self.schema
        return views.level_schema(self._view, self._home, level)

    def _check_level(self, level: int) -> None:
        if not _is_count(level) or level > self._home.depth:
            raise InvalidInputError(
                "no such level", found=repr(level), expected=f"0 to {self._home.depth}"
            )

    # -- rows --------------------------------------------------------------------------------------

    @property
    def data(self) -> TacoDataFrame:
        """The rows of the current view, without padding."""
        return self._frame(views.materialise(self._view))

    @property
    def data_raw(self) -> TacoDataFrame:
        """The rows of the current view, padding included."""
        return self._frame(views.materialise(self._view, padding=True))

    def flatten(self, level: int | None = None) -> TacoDataFrame:
        """All FILE rows of a level, deepest by default, with the columns of all levels above.

        Column names are prefixed with their level (``l0:id``, ``l2:id``); ``gdal_vsi`` and the
        FILE rows' own protected columns follow, so that the frame can read bytes. Rows follow the
        order of the current view.
        """
        deepest = self._home.depth if level is None else level
        self._check_level(deepest)
        return self._frame(views.flattened(self._view, deepest))

    def read(self, key: Key) -> Any:
        """The sample of one row: see `TacoDataFrame.read`."""
        return self.data.read(key)

    def _frame(self, table: Any) -> TacoDataFrame:
        queried = may_change(self._view)
        first, *others = self._home.containers
        if not queried and not others and first.kind == "zip":
            # One pass over all spans, before a GDAL path of any row is used.
            check_spans(table, first)
        frame = TacoDataFrame(table, self._home, queried=queried)
        if queried:
            frame.check_paths()
        return frame

    # -- closing and display -----------------------------------------------------------------------

    def close(self) -> None:
        """Release the resources of the containers; a later read opens them again."""
        for container in self._home.containers:
            container.close()

    def _facts(self) -> dict[str, str]:
        pit = self.pit_schema
        levels = [f"level {n}: {counted(pit.rows(n), 'row')}" for n in range(pit.levels)]
        return {
            "version": self.dataset_version or "-",
            "description": self.description or "-",
            "tasks": ", ".join(map(str, self.tasks)) or "-",
            "spatial": str(self.extent.get("spatial")),
            "temporal": str(self.extent.get("temporal")),
            "rows": ", ".join(levels),
        }

    def __repr__(self) -> str:
        facts = [f"  {name:<12} {shown(text, 80)}" for name, text in self._facts().items()]
        return "\n".join([f"<TacoDataset {shown(self.id)}>", *facts])

    def _repr_html_(self) -> str:
        about = {"id": self.id, "title": self.title or "", **self._facts()}
        licenses = ", ".join(map(str, self.licenses))
        return html_facts({**about, "licenses": licenses, "location": self.location})


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def concat(
    datasets: Sequence[TacoDataset], column_mode: ColumnMode = "intersection"
) -> TacoDataset:
    """One lazy dataset with the rows of all, in order. The inputs are not changed.

    ``internal:source_file`` names the dataset of a row, and every join between levels compares it
    too, so that rows of different datasets are never joined.

    Parameters
    ----------
    datasets
        At least one.
    column_mode
        ``"intersection"`` keeps the columns that all have and warns about the others,
        ``"fill_missing"`` keeps all and fills gaps with null, with a warning, ``"strict"`` refuses
        datasets whose columns differ.

    Raises
    ------
    InvalidInputError
        The list is empty or holds something else; the mode is unknown; columns differ in strict
        mode; the types of a column, or the root types, are incompatible.
    """
    datasets = _listed(datasets)
    if not datasets:
        raise InvalidInputError("nothing to concatenate", expected="at least one dataset")
    if column_mode not in _MODES:
        raise InvalidInputError(
            "unknown column mode", found=shown(column_mode), expected=", ".join(_MODES)
        )
    if len(datasets) == 1:
        return datasets[0]
    kinds = {dataset.pit_schema.root_type for dataset in datasets}
    if len(kinds) > 1:
        raise InvalidInputError(
            "datasets of FILE samples and of FOLDER samples cannot be combined",
            found=", ".join(sorted(kinds)),
        )
    columns = _columns(datasets, column_mode)
    union = Union(tuple(dataset.view for dataset in datasets), tuple(columns), column_mode)
    return TacoDataset(union, _merged([dataset.collection for dataset in datasets]))


def _listed(given: object) -> list[TacoDataset]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise InvalidInputError(
            "concat takes a list of datasets",
            found=f"one {type(given).__name__}",
            hint="concat([one, other])",
        )
    datasets = list(given)
    for number, one in enumerate(datasets):
        if not isinstance(one, TacoDataset):
            raise InvalidInputError(
                "not a dataset",
                where=f"item {number} of the list",
                found=f"{type(one).__name__} {shown(one)}",
                hint="pass datasets that load returned; load([path, path]) opens several as one",
            )
    return datasets


def _columns(datasets: Sequence[TacoDataset], mode: ColumnMode) -> list[str]:
    """Public columns of the result; ``internal:source_file`` always, the GDAL path last."""
    schemas = [_user_schema(dataset) for dataset in datasets]
    where = ", ".join(shown(dataset.id) for dataset in datasets)
    hint = "cast the column of one of them by a query, or leave it out there"
    with combining(InvalidInputError, where, hint=hint):
        pa.unify_schemas(schemas, promote_options="permissive")
    names = list(dict.fromkeys(name for schema in schemas for name in schema.names))
    missing: dict[str, list[str]] = {}
    for dataset, schema in zip(datasets, schemas, strict=True):
        for name in names:
            if name not in schema.names:
                missing.setdefault(name, []).append(dataset.id)
    said = {name: ids for name, ids in missing.items() if not name.startswith(spec.INTERNAL)}
    listed = "; ".join(
        f"{shown(name)} (not in {', '.join(map(shown, ids))})" for name, ids in said.items()
    )
    if mode == "strict" and said:
        common = ", ".join(shown(name) for name in names if name not in missing)
        raise InvalidInputError(
            "the columns of the datasets differ",
            found=listed,
            expected=f"the same columns in all datasets; the common ones are {common}",
            hint="pass column_mode='intersection' or 'fill_missing'",
        )
    kept = [
        name
        for name in names
        # Navigation needs these in every mode; missing ones are null.
        if name not in missing or mode == "fill_missing" or name in spec.PROTECTED_COLUMNS
    ]
    refuse_alike(kept)
    if said:
        action = "dropped" if mode == "intersection" else "filled with null"
        warn(f"columns {action}: {listed}", TacoWarning)
    ordered = [name for name in kept if name not in {spec.SOURCE_FILE, spec.GDAL_VSI}]
    return [*ordered, spec.SOURCE_FILE, *([spec.GDAL_VSI] if spec.GDAL_VSI in kept else [])]


def _user_schema(dataset: TacoDataset) -> Any:
    schema = dataset.schema
    lacking = {spec.ID, spec.TYPE, spec.CURRENT_ID} - set(schema.names)
    if lacking:
        raise InvalidInputError(
            "a dataset lacks columns that concatenation needs",
            where=shown(dataset.id),
            expected=", ".join(sorted(lacking)),
            hint="keep the internal: columns in its query (SELECT *)",
        )
    return schema


def _merged(collections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first collection with counts summed and extents united."""
    merged = dict(collections[0])
    pits = [spec.PITSchema.from_dict(one.get(spec.PIT_SCHEMA)) for one in collections]
    merged[spec.PIT_SCHEMA] = spec.PITSchema.summed(pits).to_dict()
    extents = [one["extent"] for one in collections if isinstance(one.get("extent"), Mapping)]
    if extents:
        merged["extent"] = united(extents)
    return merged
