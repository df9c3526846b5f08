"""The data of a file: items back to back, nested files among them, in the order of the rows.

A nested file counts its offsets from its own beginning ("Nested properties"), so it is written
where it lies: room for its header, its items, its footer, and then the header.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from comal.plan import ByteRange
from comal.progress import Progress, silent
from comal.samples.copying import Appender, append
from comal.samples.payloads import Ints
from comal.tortilla import wire
from comal.tortilla.writing.columns import fitted, unified
from comal.tortilla.writing.describing import Oddities
from comal.tortilla.writing.footers import nested_footer
from comal.tortilla.writing.prepared import Prepared
from comal.tortilla.writing.rowstore import spanned

_STEP = 16_384
"""Items that are copied between two messages about progress."""


@dataclass(slots=True)
class Telling:
    """What is told of a write that is going on."""

    progress: Progress = silent
    oddities: Oddities = field(default_factory=Oddities)
    done: int = 0

    def wrote(self, count: int) -> None:
        """So many items more of the outermost level are written."""
        self.done += count
        self.progress(self.done, None, "samples")


def write_items(out: Appender, items: Prepared, telling: Telling, *, aliases: bool = False) -> Ints:
    """Append all items.

    Parameters
    ----------
    out
        Stands where the first one begins.
    items
        What to write; formats are known.
    telling
        Told what was written and what looked odd.
    aliases
        Nested footers have the names of published writers, as the outermost one is to have them.

    Returns
    -------
    Lengths of the items in bytes; each begins where the one before it ends.
    """
    return _Writing(out, telling, aliases).write(items, 0, len(items), depth=0)


@dataclass(frozen=True, slots=True)
class _Writing:
    """One call of `write_items`."""

    out: Appender
    telling: Telling
    aliases: bool

    def write(self, items: Prepared, start: int, stop: int, *, depth: int) -> Ints:
        """Append the items of some rows; their lengths."""
        lengths = np.empty(stop - start, np.int64)
        row = start
        # Runs of plain items, each up to a nested one or the end.
        for edge in [*items.nested(start, stop).tolist(), stop]:
            while row < edge:
                last = min(row + _STEP, edge)
                copied = append(items.payloads, row, last, self.out)
                self.telling.oddities.look(copied, items.table, row)
                lengths[row - start : last - start] = copied.sizes
                if depth == 0:
                    self.telling.wrote(last - row)
                row = last
            if edge < stop:
                lengths[edge - start] = self._write_nested(items, edge, depth)
                row = edge + 1
                if depth == 0:
                    self.telling.wrote(1)
        return lengths

    def _write_nested(self, items: Prepared, row: int, depth: int) -> int:
        assert items.below is not None
        assert items.starts is not None
        assert items.stops is not None
        out, begin = self.out, self.out.position
        start, stop = int(items.starts[row]), int(items.stops[row])
        out.write(bytes(wire.HEADER_SIZE))
        lengths = self.write(items.below, start, stop, depth=depth + 1)
        offsets = wire.HEADER_SIZE + np.cumsum(lengths) - lengths
        table = spanned(items.below.table.slice(start, stop - start), offsets, lengths)
        table = fitted(table, unified([table.schema], "nested samples"))
        footer = nested_footer(table, aliases=self.aliases)
        span = ByteRange(out.position - begin, len(footer))
        out.write(footer)
        out.patch(begin, wire.pack_header(wire.Header(span)))
        return out.position - begin
