"""A dataset whose samples come in batches, as a ZIP, a FOLDER or several ZIPs.

Only ids and spans are kept of what has been written, so that memory does not grow with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from comal.errors import ComalError, InvalidInputError
from comal.limits import parse_size
from comal.progress import Progress
from comal.storage import targets
from comal.table import ParquetSettings
from comal.taco import spec
from comal.taco.model.collection import Taco
from comal.taco.model.extent import Coverage, finished
from comal.taco.model.levels import check_names, check_twins, flat
from comal.taco.model.sources import Payloads
from comal.taco.verbosity import LOGGER
from comal.taco.writing import parts
from comal.taco.writing.folderwrite import copy_leaves, finish_folder, new_parts
from comal.taco.writing.stored import (
    field_schema,
    internal_columns,
    stored_schema,
    stored_table,
    table_writer,
)
from comal.taco.writing.zipwrite import Document, write_zip_stream

if TYPE_CHECKING:
    from comal.taco.writing.creating import Writing

Stream = Iterable[tuple[Any, Payloads]]
"""Metadata table and payloads of one batch after the other."""


def write_stream(taco: Taco, target: Path, kind: str, how: Writing) -> None:
    """Write all batches as one container."""
    batches = taco.tortilla.stream
    assert batches is not None
    if kind == "zip":
        with targets.new_file(target, how.overwrite) as file:
            document = _document(taco, batches.schema, spans=True)
            write_zip_stream(
                file, batches, batches.schema, document, how.parquet, progress=how.progress
            )
        return
    with targets.new_folder(target, how.overwrite) as folder:
        document = _document(taco, batches.schema, spans=False)
        _write_folder(folder, batches, batches.schema, document, how.parquet, how.progress)


def write_stream_parts(
    taco: Taco, target: Path, split_size: int | str, how: Writing, made: list[Path]
) -> None:
    """Write archives of about `split_size` bytes each, named as `parts.plan` names them.

    Parameters
    ----------
    made
        Takes the path of each archive when it is complete.
    """
    batches = taco.tortilla.stream
    assert batches is not None
    limit = parse_size(split_size, "split_size is no size")
    document = _document(taco, batches.schema, spans=True)
    ids: list[Any] = []
    for number, run in enumerate(_runs(batches, limit), start=1):
        path = parts.part_path(target, "", number)
        with targets.new_file(path, how.overwrite) as file:
            found = write_zip_stream(
                file, run, batches.schema, document, how.parquet, progress=how.progress
            )
        made.append(path)
        ids += found.chunks
        LOGGER.info("wrote %s (%d samples)", path, len(found))
    if not ids:
        raise _no_sample()
    check_twins(pa.chunked_array(ids))


def _runs(batches: Stream, limit: int) -> Iterator[Stream]:
    """Batches, cut where `limit` bytes are reached; each run is walked before the next begins."""
    waiting = iter(batches)
    left: list[tuple[Any, Payloads]] = []

    def run() -> Iterator[tuple[Any, Payloads]]:
        used = 0
        while (batch := left.pop() if left else next(waiting, None)) is not None:
            table, payloads = batch
            ends = np.cumsum(payloads.sizes() + parts.ENTRY_BYTES)
            stop = int(np.searchsorted(ends, limit - used, side="right"))
            if not used:
                stop = max(stop, 1)  # one sample that is larger stands alone
            if stop == table.num_rows:
                used += int(ends[-1])
                yield table, payloads
                continue
            rows = np.arange(table.num_rows)
            left.append((table.slice(stop), payloads.take(rows[stop:])))
            if stop:
                yield table.slice(0, stop), payloads.take(rows[:stop])
            return

    while True:
        if not left:
            batch = next(waiting, None)
            if batch is None:
                return
            left.append(batch)
        yield run()


def _document(taco: Taco, schema: Any, *, spans: bool) -> Document:
    def document(shape: Sequence[int], extent: dict[str, Any] | None) -> dict[str, Any]:
        pit = spec.PITSchema(shape[0], spec.FILE, {}, tuple(shape))
        return {
            **taco.export_metadata(),
            "extent": (taco.extent if taco.extent_is_given else None) or extent,
            spec.PIT_SCHEMA: pit.to_dict(),
            spec.FIELD_SCHEMA: field_schema([schema], with_spans=spans),
        }

    return document


def _write_folder(
    root: Path,
    batches: Stream,
    schema: Any,
    document: Document,
    parquet: ParquetSettings,
    progress: Progress,
) -> None:
    """Write batches below `root`, an empty folder; COLLECTION.json comes last."""
    new_parts(root)
    coverage = Coverage()
    ids: list[Any] = []
    count = 0
    with (
        (root / spec.level_path(0)).open("xb") as file,
        table_writer(file, stored_schema(schema, with_spans=False), parquet) as writer,
    ):
        for table, payloads in batches:
            column = flat(table.column(spec.ID))
            check_names(column)
            ids.append(column)
            try:
                copy_leaves(root, column, payloads, progress)
            except ComalError:
                check_twins(pa.chunked_array(ids))  # a second file of one name is our own
                raise
            parent = np.arange(count, count + table.num_rows)
            writer.write(stored_table(table, internal_columns(count, parent, None, column)))
            coverage.add(table)
            count += table.num_rows
    if not count:
        raise _no_sample()
    all_ids = pa.chunked_array(ids)
    check_twins(all_ids)
    extent = finished(coverage.spatial(), coverage.temporal())
    finish_folder(root, document([count], extent), [flat(all_ids)], progress)


def _no_sample() -> InvalidInputError:
    return InvalidInputError("batches hold no sample", expected="at least one")
