"""TACO and Tortilla in one form: tables of rows with ids, children, and the bytes of a leaf."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import ComalError, InvalidInputError, NotInContainerError, shown
from comal.geo import boxes
from comal.geo.places import Places, ways_of
from comal.geo.shapes import cut
from comal.lazy import shapely
from comal.parallel import cached_property
from comal.samples.filters import AUTO, broken_place, has_place, has_time, period_filter, ways_in
from comal.taco import spec as taco_spec
from comal.taco.reading.dataset import TacoDataset
from comal.taco.reading.frame import TacoDataFrame
from comal.taco.reading.spans import read_leaves
from comal.tortilla import spec as tortilla_spec
from comal.tortilla.frame import TortillaFrame

Mask = npt.NDArray[np.bool_]
FILE, FOLDER = taco_spec.FILE, taco_spec.FOLDER
ID, TYPE = taco_spec.ID, taco_spec.TYPE

_MEDIA = {
    "tif": "image/tiff; application=geotiff",
    "tiff": "image/tiff; application=geotiff",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "jp2": "image/jp2",
    "json": "application/json",
    "geojson": "application/geo+json",
    "parquet": "application/vnd.apache.parquet",
    "txt": "text/plain; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "nc": "application/x-netcdf",
    "zip": "application/zip",
}
_FORMATS = {"GTiff": "tif", "COG": "tif", "PNG": "png", "JPEG": "jpg", "WEBP": "webp"}
_FORMATS |= {"JP2OpenJPEG": "jp2", "Parquet": "parquet", "netCDF": "nc", "GeoJSON": "geojson"}
OTHER_MEDIA = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, with its table."""

    table: Any
    index: int
    path: str
    owner: Any
    """The frame of the table."""

    def value(self, name: str) -> Any:
        """The value of a column, None if there is no such column."""
        if name not in self.table.column_names:
            return None
        return self.table.column(name)[self.index].as_py()

    @property
    def is_folder(self) -> bool:
        """Whether the row contains others."""
        return bool(self.value(TYPE) == FOLDER)


@dataclass(frozen=True, slots=True)
class LeafBytes:
    """The bytes of a leaf: their number and how to read them."""

    size: int
    media: str
    identity: str
    """Identifies these bytes within the archive."""
    file: Any
    """Returns a seekable file."""
    whole: Any
    """Returns all bytes, compared with their checksum if there is one."""


class Holdings:
    """An archive of samples: a TACO data set, a Tortilla, or a TACO v1.

    Tables have ``id`` and ``type`` (``FILE`` or ``FOLDER``) in front; columns whose names begin
    with ``internal:`` are for navigation and are not shown.
    """

    def __init__(self, reader: TacoDataset | TortillaFrame, kind: str) -> None:
        self.format = kind
        self.collection: dict[str, Any] = dict(reader.collection or {})
        """The collection metadata of the archive; empty if there are none."""
        self.top = reader.data if isinstance(reader, TacoDataset) else reader
        """The frame of the outermost rows."""
        self.table = self.table_of(self.top)
        """The outermost rows."""
        self._reader = reader

    # -- outermost rows by place and time, from the columns as stored ------------------------------

    @cached_property
    def _columns(self) -> Any:
        return self.table if isinstance(self.top, TacoDataFrame) else self.top.to_arrow()

    @property
    def is_placed(self) -> bool:
        """Whether rows can be found by a box."""
        return has_place(self._columns.schema, AUTO)

    @property
    def is_timed(self) -> bool:
        """Whether rows can be found by a range of time."""
        return has_time(self._columns.schema, AUTO, self.top.DIALECT)

    @cached_property
    def places(self) -> Places:
        """The locations of the rows.

        Boxes of footprints are cached, because transforming them is most of a filter's cost. Only
        rows whose box crosses a side of the requested box are compared exactly.
        """
        return Places(self._columns, ways_in(self._columns.schema, AUTO, self.top.DIALECT))

    @property
    def bounds(self) -> boxes.Box | None:
        """The box of all rows, None when nothing is known or a place is broken."""
        try:
            return boxes.union_box(*self.places.corners)
        except ComalError:
            return None  # `comal check` reports it

    def in_box(self, bbox: Sequence[float]) -> Mask:
        """Which rows have a point in common with a box, as by `filter_bbox` of the format."""
        box, places = boxes.validate_bbox(bbox), self.places
        try:
            return places.meet(box)
        except InvalidInputError as error:
            raise broken_place(error) from error

    def in_period(self, period: str) -> Mask:
        """Which rows lie in a range of time, as by `filter_datetime` of the format."""
        rule = period_filter(period, AUTO, self._columns.schema, self.top.DIALECT)
        return rule.matches(self._columns.column(rule.column))

    # -- tables, children, bytes -------------------------------------------------------------------

    def table_of(self, frame: Any) -> Any:
        """The table of a frame; a Tortilla's with ``id`` and ``type``, and times as times."""
        table = _decoded(frame.to_arrow())
        return table if isinstance(frame, TacoDataFrame) else _renamed(table)

    def sizes(self, table: Any) -> list[int | None]:
        """Sizes of the rows in bytes, None if the table has none."""
        name = taco_spec.SIZE if self.format == "taco" else tortilla_spec.LENGTH
        if name not in table.column_names:
            return [None] * table.num_rows
        sizes: list[int | None] = table.column(name).to_pylist()
        return sizes

    def leaf(self, row: Row) -> LeafBytes:
        """The bytes of a FILE row; of a TACO's the local header is compared first."""
        if not isinstance(row.owner, TacoDataFrame):
            item = row.owner.leaf(row.index)
            return LeafBytes(
                item.size,
                media_of(row.value(ID), item.format),
                f"{posixpath.basename(item.source.href)}:{item.offset}:{item.size}",
                item.file,
                lambda: row.owner.read_bytes(row.index),
            )
        leaf = row.owner.leaf(row.index).checked()
        size = leaf.size if leaf.size >= 0 else leaf.source.stat(leaf.entry).size
        return LeafBytes(
            size,
            media_of(row.value(ID)),
            f"{leaf.source_file}:{leaf.entry}:{leaf.offset}:{size}",
            leaf.file,
            lambda: read_leaves([leaf])[0],
        )

    def levels(self) -> list[tuple[int, Any]]:
        """Rows and Arrow schema of each level that is known without further reading.

        For a data set of several containers only the outermost level.
        """
        reader = self._reader
        containers = reader.home.containers if isinstance(reader, TacoDataset) else ()
        deeper = containers[0].levels[1:] if len(containers) == 1 else ()
        return [(level.num_rows, level.schema) for level in (self.table, *deeper)]

    def children(self, row: Row) -> Any:
        """The frame below a FOLDER row."""
        return row.owner.read(row.index)

    def find(self, path: str) -> Row:
        """The row at a path of ids joined by slashes. An id may hold slashes itself."""
        frame, table, rest, before = self.top, self.table, path, ""
        while True:
            index = _row_of(table, rest)
            if index is not None:
                return Row(table, index, path, frame)
            for head in _heads(rest):
                index = _row_of(table, head)
                if index is not None and table.column(TYPE)[index].as_py() == FOLDER:
                    break
            else:
                raise NotInContainerError(f"there is no sample {shown(path)}")
            before = f"{before}{head}/"
            row = Row(table, index, before[:-1], frame)
            frame = self.children(row)
            table, rest = self.table_of(frame), rest[len(head) + 1 :]

    def first_leaves(self, row: Row, most: int = 64) -> Iterator[Row]:
        """FILE rows at and below a row, depth first; at most `most`."""
        found = 0
        stack = [row]
        while stack and found < most:
            current = stack.pop()
            found += 1
            if not current.is_folder:
                yield current
                continue
            frame = self.children(current)
            table = self.table_of(frame)
            ids = table.column(ID).slice(0, most).to_pylist()
            rows = [Row(table, n, f"{current.path}/{name}", frame) for n, name in enumerate(ids)]
            stack += reversed(rows)


def _row_of(table: Any, name: str) -> int | None:
    ids, wanted = table.column(ID), pa.scalar(name, pa.string())
    index = int(pc.index(ids, wanted).as_py())
    if index < 0:
        return None
    if pc.index(ids.slice(index + 1), wanted).as_py() >= 0:
        raise InvalidInputError(f"several samples have the id {shown(name)}")
    return index


def _heads(path: str) -> Iterator[str]:
    place = path.find("/")
    while place >= 0:
        yield path[:place]
        place = path.find("/", place + 1)


def _renamed(table: Any) -> Any:
    """The items of a Tortilla with the column names of TACO."""
    formats = table.column(tortilla_spec.FILE_FORMAT)
    nested = pc.fill_null(pc.equal(formats, tortilla_spec.TORTILLA), False)
    kinds = pc.if_else(nested, FOLDER, FILE)
    columns = {ID: table.column(tortilla_spec.ID), TYPE: kinds}
    for name in table.column_names:
        if name in {tortilla_spec.ID, ID, TYPE}:
            continue
        column = table.column(name)
        if name in {tortilla_spec.TIME_START, tortilla_spec.TIME_END}:
            column = _seconds(column)
        columns[name] = column
    return pa.table(columns)


def media_of(name: str, form: str | None = None) -> str:
    """The media type from a fixed list: by the format that a Tortilla names, or by the suffix."""
    suffix = _FORMATS.get(tortilla_spec.known_format(form) or "") if form else None
    if suffix is None:
        suffix = posixpath.splitext(name)[1][1:].lower()
    return _MEDIA.get(suffix, OTHER_MEDIA)


def _seconds(column: Any) -> Any:
    if not pa.types.is_integer(column.type):
        return column
    wide = column.cast(pa.int64(), safe=False)  # what wraps is out of range, too
    # Years out of range cannot be shown; some files use them for "unknown".
    within = pc.and_(pc.greater(wide, -62_000_000_000), pc.less(wide, 253_000_000_000))
    return pc.if_else(within, wide, pa.scalar(None, pa.int64())).cast(pa.timestamp("s"))


def _decoded(table: Any) -> Any:
    """Dictionary columns as plain ones, so that later code need not handle them."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = table.column(index).cast(field.type.value_type)
            table = table.set_column(index, field.name, plain)
    return table


def is_shown(name: str) -> bool:
    """Whether a column is shown; hidden ones only locate rows and bytes."""
    hidden = {tortilla_spec.OFFSET, tortilla_spec.LENGTH}
    return not name.startswith("internal:") and name not in hidden


def visible(table: Any) -> list[str]:
    """Names of the columns that are shown; columns with the same name are left out."""
    names = table.column_names
    return [name for name in names if is_shown(name) and names.count(name) == 1]


_DIGITS = 7
"""Decimals of a degree, about a centimetre."""
_STRAIGHT = 1e-3
"""Tolerance between the edges of an outline and of its raster, as a fraction of its size."""


def rounded(box: Any) -> list[float]:
    """West, south, east, north for a document; west > east across the antimeridian."""
    return [round(float(edge), _DIGITS) for edge in box]


def geometries(table: Any) -> list[tuple[dict[str, Any] | None, list[float] | None]]:
    """The geometry of each row in degrees, and its box, from the most precise column.

    A geometry column first, then the outline of the raster, then its centre. What crosses the
    antimeridian is cut there (RFC 7946, 3.1.9), and its box has west > east (5.2).
    """
    # Broken geometries become None; the sample itself is shown.
    places = Places(table, ways_of(table.schema), lenient=True)
    told = np.flatnonzero(places.told_by >= 0)
    found: list[tuple[dict[str, Any] | None, list[float] | None]] = [(None, None)] * table.num_rows
    if not len(told):
        return found
    shapes = places.shapes(told)
    sizes = shapely.length(shapes)
    rasters = [number for number, way in enumerate(places.ways) if way.kind == "raster"]
    straight = np.isin(places.told_by[told], rasters)
    shapes[straight] = shapely.simplify(shapes[straight], sizes[straight] * _STRAIGHT / 4)
    shapes = shapely.orient_polygons(cut(shapes))
    corners = np.stack(places.corners)
    for row, shape in zip(told.tolist(), shapes, strict=True):
        found[row] = _geojson(shape), rounded(corners[:, row])
    return found


def _geojson(shape: Any) -> dict[str, Any]:
    near = shapely.transform(shape, lambda points: np.round(points, _DIGITS))
    document: dict[str, Any] = json.loads(shapely.to_geojson(near))
    return document
