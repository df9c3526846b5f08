"""What one column holds: a histogram of numbers and times, the commonest texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.server.problems import not_found
from comal.server.samples.holdings import visible
from comal.server.samples.values import column_of, kind_of, plain, shown_time

_MOST_VALUES = 100


def column_stats(table: Any, rows: npt.NDArray[np.int64], name: str, bins: int) -> dict[str, Any]:
    """The document of a column over some rows of a table.

    Raises
    ------
    Refusal
        404 when there is no such column.
    InvalidInputError
        Its values are of no kind that can be counted.
    """
    if name not in visible(table):
        raise not_found("there is no such column")
    field = table.schema.field(name)
    column = table.column(name)
    if len(rows) < table.num_rows:
        column = column.take(pa.array(rows))
    document: dict[str, Any] = {
        **column_of(field),
        "rows": len(column),
        "nulls": column.null_count,
    }
    kind = kind_of(name, field.type)
    if kind == "number":
        return document | _numbers(column, bins)
    if kind == "time":
        return document | _times(column, bins)
    if kind in {"text", "boolean"}:
        return document | _values(column)
    raise InvalidInputError(f"the values of {shown(name)} cannot be counted", found=kind)


def _numbers(column: Any, bins: int) -> dict[str, Any]:
    values = np.asarray(pc.drop_null(column).cast(pa.float64(), safe=False), np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return {"min": None, "max": None, "histogram": None}
    counts, edges = np.histogram(values, bins)
    return {
        "min": float(values.min()),
        "max": float(values.max()),
        "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
    }


def _times(column: Any, bins: int) -> dict[str, Any]:
    present = pc.drop_null(pc.cast(column, pa.timestamp("us"), safe=False))
    moments = np.asarray(present.cast(pa.int64()), np.int64)
    if not len(moments):
        return {"min": None, "max": None, "histogram": None}
    first = int(moments.min())
    # Differences are small enough for float64 to the microsecond, instants are not.
    counts, edges = np.histogram((moments - first).astype(np.float64), bins)
    return {
        "min": shown_time(first),
        "max": shown_time(int(moments.max())),
        "histogram": {
            "edges": [shown_time(first + round(edge)) for edge in edges.tolist()],
            "counts": counts.tolist(),
        },
    }


def _values(column: Any) -> dict[str, Any]:
    counted = pc.value_counts(pc.drop_null(column))
    values, counts = counted.field("values"), counted.field("counts")
    order = pc.sort_indices(
        pa.table({"count": counts, "value": values.cast(pa.string())}),
        sort_keys=[("count", "descending"), ("value", "ascending")],
    )[:_MOST_VALUES]
    return {
        "unique": len(values),
        "values": [
            {"value": plain(value), "count": count}
            for value, count in zip(
                values.take(order).to_pylist(), counts.take(order).to_pylist(), strict=True
            )
        ],
    }
