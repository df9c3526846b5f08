"""Which rows a request asks for: box, time, filter, order, page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.server import cql2
from comal.server.cql2 import matching, parse
from comal.server.holdings import Finder, visible
from comal.server.items import column_of, kind_of, plain, shown_time
from comal.server.requests import Query
from comal.server.responses import bad_request, not_found

PARAMETERS = (
    "bbox",
    "datetime",
    "limit",
    "offset",
    "filter",
    "filter-lang",
    "filter-crs",
    "sortby",
)
"""All that choose rows; items have no others."""
_LANGUAGES = {"cql2-text", "cql-text"}
_MOST_OFFSET = 100_000_000


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a table is asked for."""

    bbox: tuple[float, ...] | None
    datetime: str | None
    filter: cql2.Node | None
    sort: tuple[tuple[str, str], ...]
    limit: int
    offset: int

    @classmethod
    def of(cls, query: Query, most: int) -> Selection:
        """The selection that parameters name.

        Raises
        ------
        Refusal, InvalidInputError, QueryError
            One of them cannot be understood.
        """
        text = query.text("filter")
        if query.text("filter-lang") not in {None, *_LANGUAGES}:
            raise bad_request("filter-lang is cql2-text")
        if (query.text("filter-crs") or "CRS84").rpartition("/")[2] not in {"CRS84", "4326"}:
            raise bad_request("filter-crs is CRS84")
        # OGC API Features: a larger limit than the server's means as many as it gives.
        limit = min(query.whole("limit", 100, 1, 10**9), most)
        return cls(
            bbox_of(query),
            query.text("datetime"),
            parse(text) if text is not None else None,
            _order(query.text("sortby")),
            limit,
            query.whole("offset", 0, 0, _MOST_OFFSET),
        )

    def rows(self, table: Any, finder: Finder) -> npt.NDArray[np.int64]:
        """Numbers of all rows of a table that match, in order; the page is a part of them."""
        mask = np.ones(table.num_rows, np.bool_)
        if self.filter is not None:
            mask &= matching(self.filter, table)
        if self.datetime is not None:
            mask &= finder.in_period(self.datetime)
        if self.bbox is not None:
            mask &= finder.in_box(self.bbox)
        rows: npt.NDArray[np.int64] = np.flatnonzero(mask)
        if self.sort:
            rows = rows[_sorted(table.take(pa.array(rows)), self.sort)]
        return rows

    def page(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The rows of the page."""
        return rows[self.offset : self.offset + self.limit]

    def next_offset(self, count: int) -> int | None:
        """Where the next page begins, None behind the last."""
        after = self.offset + self.limit
        return after if after < count else None


def bbox_of(query: Query, name: str = "bbox") -> tuple[float, ...] | None:
    """Four numbers, of six (with heights) the horizontal ones.

    Raises
    ------
    InvalidInputError
        Something else.
    """
    text = query.text(name)
    if text is None:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInputError("bbox is west,south,east,north", found=shown(text)) from error
    if len(numbers) == 6:
        numbers = (numbers[0], numbers[1], numbers[3], numbers[4])
    if len(numbers) != 4:
        raise InvalidInputError("bbox is west,south,east,north", found=shown(text))
    return numbers


def _order(text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    keys: dict[str, str] = {}
    for part in text.split(",")[:8]:
        name = part.strip()
        order = "descending" if name.startswith("-") else "ascending"
        keys.setdefault(name.lstrip("+- "), order)
    return tuple(keys.items())


def _sorted(table: Any, keys: tuple[tuple[str, str], ...]) -> npt.NDArray[np.int64]:
    for name, _ in keys:
        known = table.column_names.count(name) == 1
        if not known or kind_of(name, table.schema.field(name).type) not in {
            "number",
            "text",
            "boolean",
            "time",
        }:
            raise InvalidInputError(f"rows cannot be sorted by {shown(name)}")
    # Arrow reads some names as paths, so columns get numbers. The position comes last, so that
    # equal rows stay in their order.
    columns = [table.column(name) for name, _ in keys]
    columns.append(pa.array(np.arange(table.num_rows)))
    orders = [*(order for _, order in keys), "ascending"]
    placed = [(str(number), order, "at_end") for number, order in enumerate(orders)]
    numbered = pa.table(columns, names=[name for name, _, _ in placed])
    return np.asarray(pc.sort_indices(numbered, sort_keys=placed), np.int64)


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
