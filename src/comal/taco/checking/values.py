"""Columns of extensions against the types and values that these declare (TACO 2.0, 7.1.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from comal import arrowcompute as pc
from comal.check import Findings
from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.geo import wkb
from comal.samples.rules import ends_before, good_lists, unknown_crs
from comal.table import ParquetTable
from comal.table.columns import one_array
from comal.taco import spec
from comal.taco.extensions import declared, istac, stac
from comal.taco.model.columns import normal_type

_KINDS = {
    field.name: field.type
    for field in (*stac.SCHEMA, *istac.SCHEMA, pa.field("split", pa.string()))
}
_MOST_AXES = 64
_AFFINE, _SHAPE = "stac:geotransform", "stac:tensor_shape"


def check_values(tables: Sequence[ParquetTable | None], findings: Findings) -> None:
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


def _is_usable(table: ParquetTable, name: str, place: str, findings: Findings) -> bool:
    """Whether a column is one of an extension, and of its type."""
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


def _check_rows(rows: dict[str, Any], first: int, place: str, findings: Findings) -> None:
    def report(name: str, wrong: Any, message: str) -> None:
        findings.add_rows(
            "taco-extension-value",
            np.flatnonzero(wrong),
            lambda row: (
                f"{place}, row {first + row}",
                f"{name} {shown(rows[name][row].as_py(), 60)} {message}",
            ),
        )

    for space in ("stac", "istac"):
        _check_place(rows, space, report)
        start, middle, end = (f"{space}:time_{part}" for part in ("start", "middle", "end"))
        for earlier, later in ((start, end), (start, middle), (middle, end)):
            if earlier in rows and later in rows and rows[earlier].type == rows[later].type:
                report(later, ends_before(rows[earlier], rows[later]), f"is before {earlier}")
    if _AFFINE in rows:
        report(_AFFINE, ~good_lists(rows[_AFFINE], 6, 6), "is not six numbers")
    if _SHAPE in rows:
        wrong = ~good_lists(rows[_SHAPE], 2, _MOST_AXES, positive=True)
        report(_SHAPE, wrong, "is not two sizes or more")
    if "split" in rows:
        known = pc.is_in(rows["split"], value_set=pa.array([*declared.SPLITS, None], pa.string()))
        report("split", ~np.asarray(known), f"is none of {', '.join(declared.SPLITS)}")


def _check_place(rows: dict[str, Any], space: str, report: Any) -> None:
    crs, centre = f"{space}:crs", f"{space}:centroid"
    if crs in rows:
        wrong = np.zeros(len(rows[crs]), bool)
        wrong[list(unknown_crs(rows[crs]))] = True
        report(crs, wrong, "is no CRS")
    if centre in rows:
        x, y = wkb.lenient_points_xy(rows[centre])
        outside = ~((np.abs(x) <= 180) & (np.abs(y) <= 90))
        report(centre, outside & np.asarray(rows[centre].is_valid()), "is no point on the Earth")
