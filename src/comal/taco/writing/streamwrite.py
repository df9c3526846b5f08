"""A dataset whose samples come in batches, as a ZIP, a FOLDER or several ZIPs.

Only ids and spans are kept of what has been written, so that memory does not grow with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from comal.errors import ComalError, InvalidInputError
from comal.limits import parse_size
from comal.progress import Progress
from comal.samples.payloads import Payloads
from comal.storage import targets
from comal.table import ParquetSettings
from comal.taco import spec
from comal.taco.model.collection import Taco
from comal.taco.model.extent import Coverage, finished
from comal.taco.model.levels import check_names, check_twins, flat
from comal.taco.writing import kinds, parts
from comal.taco.writing.folderwrite import copy_leaves, finish_folder, new_parts
from comal.taco.writing.parts import PartSet
from comal.taco.writing.stored import (
    field_schema,
    internal_columns,
    stored_schema,
    stored_table,
    table_writer,
)
from comal.taco.writing.zipwrite import Document, ZipStream, no_sample

if TYPE_CHECKING:
    from comal.taco.writing.stored import Writing

GROUPS = 100
"""At most so many groups, for each of which an archive is open while batches come."""

Stream = Iterable[tuple[Any, Payloads]]
"""Metadata table and payloads of one batch after the other."""


def write_stream(taco: Taco, target: Path, kind: str, how: Writing) -> None:
    """Write all batches as one container."""
    batches = taco.tortilla.stream
    assert batches is not None
    if kind == "zip":
        with targets.new_file(target, how.overwrite, kinds.ZIP) as file:
            document = _document(taco, batches.schema, spans=True)
            with ZipStream(file, batches.schema, how.parquet, how.progress) as stream:
                for table, payloads in batches:
                    stream.add(table, payloads)
                stream.finish(document)
        return
    with targets.new_folder(target, how.overwrite, kinds.FOLDER) as folder:
        document = _document(taco, batches.schema, spans=False)
        _write_folder(folder, batches, batches.schema, document, how.parquet, how.progress)


def write_stream_parts(
    taco: Taco,
    target: Path,
    split_size: int | str | None,
    group_by: str | Sequence[str] | None,
    how: Writing,
    whole: PartSet,
) -> None:
    """Write archives of about `split_size` bytes each, or one and more for each group.

    They are named and hold the samples as `parts.plan` says.

    Parameters
    ----------
    whole
        Takes the path of each archive when it is complete; at the end they are in order.
    """
    batches = taco.tortilla.stream
    assert batches is not None
    limit = None if split_size is None else parse_size(split_size, "split_size is no size")
    keys = None if group_by is None else parts.GroupKeys(batches.schema, group_by)
    document = _document(taco, batches.schema, spans=True)
    series: dict[str, _Series] = {}
    with ExitStack() as scope:
        for table, payloads in batches:
            whole.read(payloads)
            groups = [("", None)] if keys is None else keys.of(table)
            for key, rows in groups:
                if key not in series:
                    _refuse_more(len(series))
                    series[key] = _Series(
                        target, key, limit, batches.schema, document, how, whole, scope
                    )
                if rows is None or len(rows) == table.num_rows:
                    series[key].add(table, payloads)
                else:
                    series[key].add(table.take(pa.array(rows)), payloads.take(rows))
        if not series:
            raise no_sample()
        for one in series.values():
            one.finish()
    check_twins(pa.chunked_array([chunk for one in series.values() for chunk in one.ids]))
    whole.made[:] = [path for one in series.values() for path in one.paths]


def _refuse_more(groups: int) -> None:
    if groups == GROUPS:
        raise InvalidInputError(
            "too many groups for samples that come in batches: an archive is open for each",
            expected=f"at most {GROUPS}",
            hint="make a table of them: Tortilla.from_table",
        )


class _Series:
    """The archives of one group: each is begun when the one before is full."""

    def __init__(
        self,
        target: Path,
        key: str,
        limit: int | None,
        schema: Any,
        document: Document,
        how: Writing,
        whole: PartSet,
        scope: ExitStack,
    ) -> None:
        self.ids: list[Any] = []
        self.paths: list[Path] = []
        self._target = target
        self._key = key
        self._limit = limit
        self._schema = schema
        self._document = document
        self._how = how
        self._whole = whole
        self._used = 0
        self._stream: ZipStream | None = None
        # Of its own, so that an archive is closed before the others are complete.
        self._archive = ExitStack()
        scope.push(self._archive)
        if limit is not None:
            whole.replace(parts.part_path(target, key, 1))

    def add(self, table: Any, payloads: Payloads) -> None:
        """Write samples to the archive that is open, and to further ones where it gets full."""
        if self._limit is None:
            self._open().add(table, payloads)
            return
        ends = np.cumsum(payloads.sizes() + parts.ENTRY_BYTES)
        rows = np.arange(table.num_rows)
        start = 0
        while start < len(rows):
            before = int(ends[start - 1]) if start else 0
            room = before + self._limit - self._used
            stop = int(np.searchsorted(ends, room, side="right"))
            if not self._used:
                stop = max(stop, start + 1)  # one sample that is larger stands alone
            if stop <= start:
                self.finish()
                continue
            if stop - start == len(rows):
                self._open().add(table, payloads)
            else:
                part = payloads.take(rows[start:stop])
                self._open().add(table.slice(start, stop - start), part)
            self._used += int(ends[stop - 1]) - before
            start = stop

    def _open(self) -> ZipStream:
        if self._stream is None:
            number = None if self._limit is None else len(self.paths) + 1
            path = parts.part_path(self._target, self._key, number)
            self._whole.expect([path])
            file = self._archive.enter_context(self._whole.archive(path))
            self._stream = self._archive.enter_context(
                ZipStream(file, self._schema, self._how.parquet, self._how.progress)
            )
            self.paths.append(path)
        return self._stream

    def finish(self) -> None:
        """Complete the archive that is open."""
        assert self._stream is not None
        found = self._stream.finish(self._document)
        self._archive.close()
        self._whole.made.append(self.paths[-1])
        self.ids += found.chunks
        self._stream = None
        self._used = 0


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
        raise no_sample()
    all_ids = pa.chunked_array(ids)
    check_twins(all_ids)
    extent = finished(coverage.spatial(), coverage.temporal())
    finish_folder(root, document([count], extent), [flat(all_ids)], progress)
