"""Run by the interpreter of a reference reader: what containers hold, as JSON.

Standard input is a list of jobs, ``{"path", "query", "base"}``; standard output is an answer to
each, or ``{"error": traceback}``. Each leaf is read on every way that the reader offers: by
navigation from the root, by the GDAL strings of the level tables, and below the rows of a query.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import tacoreader  # type: ignore[import-not-found]  # lives in the environment of the driver

PADDING = "__TACOPAD__"


def content(vsi: str) -> str:
    """The digest of the bytes that a GDAL string names, without GDAL."""
    offset, size, path = "0", "-1", vsi
    if vsi.startswith("/vsisubfile/"):
        span, _, path = vsi.removeprefix("/vsisubfile/").partition(",")
        offset, _, size = span.partition("_")
    with open(path, "rb") as file:  # noqa: PTH123 - as small as it can be
        file.seek(int(offset))
        return hashlib.sha256(file.read(int(size))).hexdigest()


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
            yield above + name, content(found)
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
                yield path, content(vsi)


def queried(dataset: Any, query: str) -> dict[str, Any]:
    """Leaves below the rows of a query; the newest reader gives a plain table instead."""
    result = dataset.sql(query)
    if hasattr(result, "data"):
        return dict(walk(result.data))
    return {"ids": result["id"].to_pylist()}


def answer(path: str, query: str, base: str | None) -> dict[str, Any]:
    dataset = tacoreader.load(path) if base is None else tacoreader.load(path, base)
    return {
        "shown": repr(dataset),
        "ids": ids_of(dataset.data),
        "navigated": dict(walk(dataset.data)),
        "tables": dict(tables(dataset)),
        "queried": queried(dataset, query),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    answers: list[dict[str, Any]] = []
    for job in json.load(sys.stdin):
        with contextlib.redirect_stdout(sys.stderr):
            try:
                answers.append(answer(job["path"], job["query"], job["base"]))
            except Exception:  # noqa: BLE001 - whatever the reader raises is the answer
                answers.append({"error": traceback.format_exc()})
    json.dump(answers, sys.stdout)


main()
