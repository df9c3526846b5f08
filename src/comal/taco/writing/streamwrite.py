"""A dataset whose samples come in batches as several ZIPs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError
from comal.limits import parse_size
from comal.samples.payloads import Payloads
from comal.taco.model.collection import Taco
from comal.taco.model.levels import check_twins
from comal.taco.writing import parts
from comal.taco.writing.containers import BatchWriter, ZipSink, no_sample
from comal.taco.writing.parts import PartSet
from comal.taco.writing.stored import Writing

GROUPS = 100
"""At most so many groups, for each of which an archive is open while batches come."""


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
    series: dict[str, _Series] = {}
    with ExitStack() as scope:
        for table, payloads in batches:
            whole.read(payloads)
            groups = [("", None)] if keys is None else keys.of(table)
            for key, rows in groups:
                if key not in series:
                    _refuse_more(len(series))
                    series[key] = _Series(taco, target, key, limit, how, whole, scope)
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
        taco: Taco,
        target: Path,
        key: str,
        limit: int | None,
        how: Writing,
        whole: PartSet,
        scope: ExitStack,
    ) -> None:
        self.ids: list[Any] = []
        self.paths: list[Path] = []
        self._taco = taco
        self._target = target
        self._key = key
        self._limit = limit
        self._how = how
        self._whole = whole
        self._used = 0
        self._stream: BatchWriter | None = None
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

    def _open(self) -> BatchWriter:
        if self._stream is None:
            number = None if self._limit is None else len(self.paths) + 1
            path = parts.part_path(self._target, self._key, number)
            self._whole.expect([path])
            file = self._archive.enter_context(self._whole.archive(path))
            assert self._taco.tortilla.stream is not None
            sink = ZipSink(file, self._how.progress)
            self._stream = self._archive.enter_context(
                BatchWriter(sink, self._taco.tortilla.stream.schema, self._how)
            )
            self.paths.append(path)
        return self._stream

    def finish(self) -> None:
        """Complete the archive that is open."""
        assert self._stream is not None
        found = self._stream.finish(self._taco)
        self._archive.close()
        self._whole.made.append(self.paths[-1])
        self.ids += found.chunks
        self._stream = None
        self._used = 0
