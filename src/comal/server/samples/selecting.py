"""Which rows a request asks for: box, time, filter, order, page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.server.cql2 import tree
from comal.server.cql2.masks import matching
from comal.server.cql2.reading import parse
from comal.server.problems import bad_request
from comal.server.requests import Query
from comal.server.samples.finding import Finder
from comal.server.samples.values import kind_of

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
    filter: tree.Node | None
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
