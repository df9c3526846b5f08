"""Run by the interpreter of a reference reader: what containers hold.

A job is ``{"path", "query", "base"}``. Each leaf is read on every way that the reader offers: by
navigation from the root, by the GDAL strings of the level tables, and below the rows of a query.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import duckdb
import tacoreader  # type: ignore[import-not-found]  # lives in the environment of the driver
from common import content, digest  # type: ignore[import-not-found]  # of this folder

PADDING = "__TACOPAD__"
# The reader installs an extension for each container, which it can do without, from the network.
duckdb.connect = partial(duckdb.connect, config={"custom_extension_repository": "/nowhere"})


def ids_of(frame: Any) -> list[str]:
    column = frame._data["id"]
    ids: list[str] = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    return ids


def walk(frame: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """Path and digest of each leaf, by `read` from row to row."""
    for place, name in enumerate(ids_of(frame)):
        if name.startswith(PADDING):
            continue
        found = frame.read(place)
        if isinstance(found, str):
            yield above + name, digest(content(found))
        else:
            yield from walk(found, f"{above}{name}/")


def tables(dataset: Any) -> Iterator[tuple[str, str]]:
    """Path and digest of each leaf, from the views over the level tables."""
    for level in range(dataset.pit_schema.max_depth() + 1):
        rows = dataset._duckdb.execute(
            f'SELECT id, type, "internal:relative_path", "internal:gdal_vsi" FROM level{level}'
        ).fetchall()
        for name, kind, path, vsi in rows:
            if kind == "FILE" and not name.startswith(PADDING):
                yield path, digest(content(vsi))


def queried(dataset: Any, query: str) -> dict[str, Any]:
    """Leaves below the rows of a query; the newest reader gives a plain table instead."""
    result = dataset.sql(query)
    if hasattr(result, "data"):
        return dict(walk(result.data))
    return {"ids": result["id"].to_pylist()}


def answer(job: dict[str, Any]) -> dict[str, Any]:
    base = [] if job["base"] is None else [job["base"]]
    dataset = tacoreader.load(job["path"], *base)
    return {
        "shown": repr(dataset),
        "ids": ids_of(dataset.data),
        "navigated": dict(walk(dataset.data)),
        "tables": dict(tables(dataset)),
        "queried": queried(dataset, job["query"]),
    }
