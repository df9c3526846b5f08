"""COLLECTION.json and extension columns against the specification (TACO 2.0, 5.6 and 7.1.2)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from comal.check import Check
from comal.errors import InvalidInputError, InvalidMetadataError, counted, shown
from comal.geo import wkb
from comal.geo.places import GEOMETRY, GEOMETRY_CRS
from comal.geo.times import parse_instant, values_of
from comal.lazy import pc
from comal.samples.filters import ends_before, good_lists, unknown_crs
from comal.table import ParquetTable
from comal.table.columns import one_array
from comal.taco import spec
from comal.taco.columns import normal_type
from comal.taco.extensions import declared, places
from comal.taco.model.collection import Coverage
from comal.taco.spec import TacoWarning

_NEAR = 1e-6
"""Tolerance of a stated box in degrees: about a decimetre."""
_PLACES = (*places.STAC_SCHEMA, *places.ISTAC_SCHEMA)
_KINDS = {field.name: field.type for field in (*_PLACES, pa.field("split", pa.string()))}
_MOST_AXES = 64
_AFFINE, _SHAPE = "stac:geotransform", "stac:tensor_shape"
_POLARS = {
    "str": "string",
    "utf8": "string",
    "boolean": "bool",
    "float64": "double",
    "float32": "float",
    "halffloat": "float16",
    "date": "date32[day]",
    "large_string": "string",
    "large_binary": "binary",
}
_POLARS_TIME = re.compile(r"datetime\(time_unit='(\w+)', time_zone=none\)")
_CHILD = re.compile(r"list<\w*: ")
_LIST = re.compile(r"(?:large_)?list(?:\((.*)\)|<\w+: (.*)>)")


def check_document(document: Mapping[str, Any], findings: Check) -> None:
    """Check the collection itself against the specification."""
    findings.take(spec.collection_problems(document))
    version = document.get("taco_version")
    if version is not None and not spec.version_is_readable(version):
        message = f"found {shown(version)}, expected 0.5.0 or 2.x"
        findings.add("taco-version", f"{spec.COLLECTION}: taco_version", message)
    licences = document.get("licenses")
    for name in licences if isinstance(licences, list) else ():
        if isinstance(name, str) and name and not _is_licence(name):
            message = f"{shown(name)} is not an SPDX licence or expression"
            findings.add("taco-licence", f"{spec.COLLECTION}: licenses", message)


def _is_licence(text: str) -> bool:
    # Loads a table of 2 000 licences that nothing else needs.
    from license_expression import ExpressionError  # noqa: PLC0415

    licensing = _licensing()
    try:
        return not licensing.unknown_license_keys(licensing.parse(text))
    except ExpressionError:
        return False


@cache
def _licensing() -> Any:
    """The table of SPDX licences, a constant that takes 50 ms to build."""
    from license_expression import get_spdx_licensing  # noqa: PLC0415

    return get_spdx_licensing()


# -- taco:field_schema ----------------------------------------------------------------------------


def check_field_schema(
    document: Mapping[str, Any], tables: Sequence[ParquetTable | None], findings: Check
) -> None:
    """Compare ``taco:field_schema``, which is informative, with the columns."""
    stated = document.get(spec.FIELD_SCHEMA)
    place = f"{spec.COLLECTION}: {spec.FIELD_SCHEMA}"
    if stated is None:
        return
    if not isinstance(stated, Mapping):
        findings.add("taco-field-schema", place, "is not an object")
        return
    for depth, table in enumerate(tables):
        if table is None:
            continue
        key = f"level{depth}"
        fields = _fields(stated.get(key))
        if fields is None:
            findings.add(
                "taco-field-schema", f"{place}.{key}", "is not a list of [name, type, text]"
            )
        else:
            _compare_fields(fields, table, f"{place}.{key}", findings)


def _fields(value: Any) -> dict[str, str] | None:
    if not isinstance(value, list):
        return None
    fields = {}
    for entry in value:
        if not isinstance(entry, list) or len(entry) not in (2, 3):
            return None
        if not all(isinstance(part, str) for part in entry[:2]):
            return None
        fields[entry[0]] = entry[1]
    return fields


def _compare_fields(
    fields: Mapping[str, str], table: ParquetTable, place: str, findings: Check
) -> None:
    for name in table.column_names:
        if name not in fields:
            # Existing writers write the schema before they add these columns.
            if not name.startswith(spec.INTERNAL):
                findings.add("taco-field-schema", place, f"lacks the column {shown(name)}")
            continue
        found = spec.type_name(table.schema.field(name).type)
        if plain_type(fields[name]) != plain_type(found):
            message = f"says that {shown(name)} is {shown(fields[name])}, but it is {found}"
            findings.add("taco-field-schema", place, message)
    for name in fields:
        if name not in table.column_names:
            findings.add(
                "taco-field-schema", place, f"names the column {shown(name)}, which is missing"
            )


def plain_type(name: str) -> str:
    """The Arrow name of a type, from the spelling of any version of the writers."""
    name = _CHILD.sub("list<item: ", name.strip().lower())
    inner = _LIST.fullmatch(name)
    if inner:
        return f"list<{plain_type(inner[1] or inner[2])}>"
    time = _POLARS_TIME.fullmatch(name)
    if time:
        return f"timestamp[{time[1]}]"
    return _POLARS.get(name, name)


# -- extent ---------------------------------------------------------------------------------------


def check_extent(
    document: Mapping[str, Any], tables: Sequence[ParquetTable | None], findings: Check
) -> None:
    """Compare the stated extent with that of the samples, as far as columns give it."""
    compare_extent(document, *_coverage(tables, findings), findings)


def compare_extent(
    document: Mapping[str, Any],
    spatial: Sequence[float] | None,
    temporal: Sequence[str] | None,
    findings: Check,
) -> None:
    """Compare the stated extent with an actual one."""
    extent = document.get("extent")
    if not isinstance(extent, Mapping) or spec.extent_problems(extent, where="extent"):
        return
    place = f"{spec.COLLECTION}: extent"
    box = extent.get("spatial")
    if box is not None and spatial is not None and not covers(box, spatial):
        message = f"{_digits(box)} does not cover the samples, which lie in {_digits(spatial)}"
        findings.add("taco-extent-space", f"{place}.spatial", message)
    times = extent.get("temporal")
    if times is not None and temporal is not None:
        start, end, first, last = map(parse_instant, (*times, *temporal))
        if start > first or end < last:
            message = f"{times[0]} to {times[1]} does not cover the samples, "
            message += f"which range from {temporal[0]} to {temporal[1]}"
            findings.add("taco-extent-time", f"{place}.temporal", message)


def _coverage(
    tables: Sequence[ParquetTable | None], findings: Check
) -> tuple[list[float] | None, list[str] | None]:
    """The extent by the columns of the first level with locations, and with times."""
    spatial: list[float] | None = None
    temporal: list[str] | None = None
    for depth, table in enumerate(tables):
        if table is None:
            continue
        columns = [field.name for field in _PLACES if field.name in table.column_names]
        if not columns:
            continue
        coverage = Coverage()
        try:
            for batch in table.iter_batches(columns):
                rows = pa.Table.from_batches([batch])
                _check_crs(rows, depth, findings)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", TacoWarning)  # it is in the report
                    coverage.add(rows)
        except (InvalidMetadataError, InvalidInputError) as error:
            # Values that give no location: an unknown CRS, a geometry that is not WKB.
            findings.take_error(error, "taco-extent-column", f"level {depth}")
            continue
        spatial = spatial or coverage.spatial()
        temporal = temporal or coverage.temporal()
        if spatial and temporal:
            break
    return spatial, temporal


def _check_crs(rows: Any, depth: int, findings: Check) -> None:
    """Report geometries without a CRS, which readers take to be in degrees."""
    if GEOMETRY not in rows.column_names:
        return
    bare = rows[GEOMETRY].is_valid()
    if GEOMETRY_CRS in rows.column_names:
        bare = pc.and_(bare, rows[GEOMETRY_CRS].is_null())
    count = pc.sum(bare).as_py()
    if count:
        message = f"{counted(count, 'geometry', 'geometries')} without istac:crs"
        findings.add("taco-crs-missing", f"level {depth}", f"{message}, taken as EPSG:4326")


def covers(outer: Sequence[float], inner: Sequence[float]) -> bool:
    """Whether a box holds another, on the circle of longitudes."""
    if inner[1] < outer[1] - _NEAR or inner[3] > outer[3] + _NEAR:
        return False
    width = outer[2] - outer[0] + (360 if outer[2] < outer[0] else 0)
    if width >= 360 - _NEAR:
        return True
    length = inner[2] - inner[0] + (360 if inner[2] < inner[0] else 0)
    start = (inner[0] - outer[0] + _NEAR) % 360 - _NEAR
    return bool(start + length <= width + 2 * _NEAR)


def _digits(box: Sequence[float]) -> list[float]:
    return [round(float(value), 6) for value in box]


def check_values(tables: Sequence[ParquetTable | None], findings: Check) -> None:
    """Check the columns of `STAC`, `ISTAC` and `Split` in all level tables."""
    for depth, table in enumerate(tables):
        if table is None:
            continue
        place = f"level {depth}"
        names = [name for name in table.column_names if _is_usable(table, name, place, findings)]
        if not names:
            continue
        first = 0
        try:
            for batch in table.iter_batches(names):
                rows = {name: one_array(batch.column(name)) for name in names}
                _check_rows(rows, first, place, findings)
                first += batch.num_rows
        except (InvalidMetadataError, InvalidInputError) as error:
            findings.take_error(error, "taco-table", place)


def _is_usable(table: ParquetTable, name: str, place: str, findings: Check) -> bool:
    """Whether a column belongs to an extension and has its type; reports a wrong type."""
    if name not in _KINDS:
        return False
    found, wanted = normal_type(table.schema.field(name).type), _KINDS[name]
    if pa.types.is_timestamp(wanted):
        is_right = pa.types.is_timestamp(found) or pa.types.is_integer(found)
    elif pa.types.is_list(wanted):
        is_right = pa.types.is_list(found) and (
            pa.types.is_integer(found.value_type)
            or (name == _AFFINE and pa.types.is_floating(found.value_type))
        )
    else:
        is_right = found.equals(wanted)
    if not is_right and not pa.types.is_null(found):
        message = f"is {spec.type_name(found)}, expected {spec.type_name(wanted)}"
        findings.add("taco-extension-type", f"{place}, {name}", message)
    return bool(is_right)


def _check_rows(rows: dict[str, Any], first: int, place: str, findings: Check) -> None:
    def report(name: str, wrong: Any, message: str) -> None:
        findings.add_rows(
            "taco-extension-value",
            np.flatnonzero(wrong),
            lambda row: (
                f"{place}, row {first + row}",
                f"{name} {shown(values_of(rows[name][row : row + 1])[0], 60)} {message}",
            ),
        )

    for space in ("stac", "istac"):
        _check_place(rows, space, report)
        start, middle, end = (f"{space}:time_{part}" for part in ("start", "middle", "end"))
        for earlier, later in ((start, end), (start, middle), (middle, end)):
            if earlier in rows and later in rows and rows[earlier].type == rows[later].type:
                report(later, ends_before(rows[earlier], rows[later]), f"is before {earlier}")
    if _AFFINE in rows:
        report(_AFFINE, ~good_lists(rows[_AFFINE], 6, 6), "is not a list of six numbers")
    if _SHAPE in rows:
        wrong = ~good_lists(rows[_SHAPE], 2, _MOST_AXES, positive=True)
        report(_SHAPE, wrong, "is not a list of two or more sizes")
    if "split" in rows:
        known = pc.is_in(rows["split"], value_set=pa.array([*declared.SPLITS, None], pa.string()))
        report("split", ~np.asarray(known), f"is not one of {', '.join(declared.SPLITS)}")


def _check_place(rows: dict[str, Any], space: str, report: Any) -> None:
    crs, centre = f"{space}:crs", f"{space}:centroid"
    if crs in rows:
        wrong = np.zeros(len(rows[crs]), bool)
        wrong[list(unknown_crs(rows[crs]))] = True
        report(crs, wrong, "is not a CRS")
    if centre in rows:
        x, y = wkb.lenient_points_xy(rows[centre])
        outside = ~((np.abs(x) <= 180) & (np.abs(y) <= 90))
        report(centre, outside & np.asarray(rows[centre].is_valid()), "is not a point on the earth")
