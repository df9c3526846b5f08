"""``raquet_merge_bands``: the bands of several data sets as one table.

Its columns depend on what is named, so the macro asks for the text of a query first, which DuckDB
then puts in its place. All that comes from files into that text is the name of a column, quoted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from comal import grid
from comal.errors import InvalidInputError, shown
from comal.query import Function
from comal.raquet.documents import metadata_json
from comal.raquet.querying.files import Files
from comal.raquet.spec import Metadata
from comal.raquet.writing.combining import check_grids, joined, settled
from comal.raquet.writing.copying import version_for

MACRO = "CREATE MACRO raquet_merge_bands(data_sets) AS TABLE FROM query(comal_merging(data_sets))"
"""Rows of all zooms: block, band_1 and so on, metadata."""


def merge_functions(files: Mapping[str, Files]) -> dict[str, Function]:
    """What `MACRO` calls, for the data sets of a connection."""

    def of_rows(call: Any, column: Any) -> Any:
        known: dict[tuple[str, ...], str] = {}
        names = [_names(one, files) for one in column.to_pylist()]
        for key in dict.fromkeys(names):
            known[key] = call(key, [files[name] for name in key])
        return pa.array([known[key] for key in names], pa.string())

    return {
        "comal_merging": Function(partial(of_rows, _query), None, "VARCHAR"),
        "comal_merged": Function(partial(of_rows, _document), None, "VARCHAR"),
    }


def _names(given: Any, files: Mapping[str, Files]) -> tuple[str, ...]:
    if not isinstance(given, list) or not given:
        raise InvalidInputError(
            "no list of data sets", found=shown(given), expected=", ".join(files)
        )
    for name in given:
        if name not in files:
            raise InvalidInputError(
                "no such data set", found=shown(name), expected=", ".join(files)
            )
    return tuple(given)


def _query(names: Sequence[str], files: Sequence[Files]) -> str:
    """All tiles below one another, each in the column of its band, and then block by block."""
    _check(names, files)
    width = len(names)
    rows = []
    for at, (name, one) in enumerate(zip(names, files, strict=True)):
        quoted = '"' + one.metadata.band_names[0].replace('"', '""') + '"'
        columns = (f"{quoted if n == at else 'NULL::BLOB'} AS band_{n + 1}" for n in range(width))
        # The names of data sets are checked by `connect`.
        rows.append(f"SELECT block, {', '.join(columns)} FROM {name}_pyramid")  # noqa: S608
    bands = ", ".join(f"any_value(band_{n + 1}) AS band_{n + 1}" for n in range(width))
    every = ", ".join(f"'{name}'" for name in names)
    return (
        f"SELECT block, {bands}, comal_merged([{every}]) AS metadata"  # noqa: S608
        f" FROM ({' UNION ALL '.join(rows)}) GROUP BY block"
    )


def _check(names: Sequence[str], files: Sequence[Files]) -> None:
    first = files[0].metadata
    for name, one in zip(names, files, strict=True):
        metadata = one.metadata
        if len(metadata.bands) != 1 or metadata.interleaved:
            raise InvalidInputError(
                "data sets of one band are merged",
                where=name,
                found=", ".join(shown(band) for band in metadata.band_names[:20]),
                hint="comal.raquet.append_bands joins any, and JOIN .. USING (block) too",
            )
        if any(part.time is not None for part in one.parts):
            raise InvalidInputError("time series cannot be merged by block alone", where=name)
        check_grids(first, metadata)
        if metadata.compression != first.compression:
            raise InvalidInputError(
                "data sets with another compression cannot be merged",
                where=name,
                found=metadata.compression,
                expected=first.compression,
            )


def _document(_: Sequence[str], files: Sequence[Files]) -> str:
    """The metadata of all of them, bands numbered from 1 on."""
    whole: Metadata | None = None
    for number, one in enumerate(files, 1):
        metadata = one.metadata
        band = replace(metadata.bands[0], name=f"band_{number}")
        if whole is None:
            whole = replace(metadata, bands=(band,))
        else:
            whole = joined(whole, metadata, (*whole.bands, band), None, "raquet_merge_bands")
    assert whole is not None, "names are checked"
    ids = np.unique(np.concatenate([one.store.ids for one in files]))
    cells = ids[np.asarray(grid.is_valid(ids))]
    whole = replace(settled(whole, cells), tile_statistics=())
    return metadata_json(whole, version_for(None, nested=whole.nested))
