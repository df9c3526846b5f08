"""An archive that more entries are appended to: what its directory says, byte for byte.

New entries, a whole new directory and an end record go behind the old end. Headers of entries that
stay are copied as they are, whatever they hold; old bytes are never touched, so that whoever read
the old directory is still right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidMetadataError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import Plan, read_span
from comal.ziparchive import parse, wire
from comal.ziparchive.directory import TAIL, Directory, parse_directory
from comal.ziparchive.end import End, find_end
from comal.ziparchive.entries import FEW


@dataclass(frozen=True)
class StoredDirectory:
    """The directory of an archive as stored; its columns are made when they are asked for."""

    end: End
    """The end record that leads to it."""
    data: bytes
    """Its headers, without the end record."""
    starts: wire.Int64s
    """Where each header begins in `data`."""
    name_sizes: wire.Int64s
    """Bytes of each name."""
    where: str

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def directory(self) -> Directory:
        """The same as columns."""
        return parse_directory(self.data, self.end, self.where, same_names=False)

    def rows_named(self, names: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Which entries have one of these names."""
        if len(names) > FEW:
            known = self.directory.raw_names
            found = pc.is_in(known, value_set=pa.array(names, known.type))
            rows: npt.NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
            return rows
        rows = np.zeros(len(self), np.bool_)
        for name in names:
            at = self.data.find(name)
            while at >= 0:
                row = int(np.searchsorted(self.starts, at - wire.CENTRAL_SIZE))
                there = row < len(self) and self.starts[row] == at - wire.CENTRAL_SIZE
                if there and self.name_sizes[row] == len(name):
                    rows[row] = True
                at = self.data.find(name, at + 1)
        return rows

    def name(self, row: int) -> bytes:
        """The name of one entry."""
        start = int(self.starts[row]) + wire.CENTRAL_SIZE
        return self.data[start : start + int(self.name_sizes[row])]

    def kept(self, rows: npt.NDArray[np.bool_]) -> bytes:
        """The headers of the entries whose row is True."""
        dropped = np.flatnonzero(~rows)
        if not len(dropped):
            return self.data
        stops = np.append(self.starts[1:], len(self.data))
        # What lies between the dropped ones stays in one piece.
        ends = [*self.starts[dropped].tolist(), len(self.data)]
        begins = [0, *stops[dropped].tolist()]
        return b"".join(
            [self.data[begin:end] for begin, end in zip(begins, ends, strict=True) if begin < end]
        )


def stored_directory_plan(
    href: str = "", tail: int = TAIL, limits: Limits = DEFAULT_LIMITS
) -> Plan[StoredDirectory]:
    """As `directory_plan`, keeping the bytes.

    Raises
    ------
    InvalidMetadataError
        Also where something stands before the archive that its offsets do not count: headers
        could not be copied as they are.
    """
    where = href or "archive"
    end, pieces = yield from find_end(href, tail, [], where)
    limits.check("table_rows", end.count, where)
    limits.check("table_bytes", end.size, where)
    if end.shift:
        raise InvalidMetadataError(
            "archive does not begin where its offsets say",
            where=where,
            found=f"{end.shift} bytes before it",
            hint="write it anew",
        )
    data = b""
    if end.size:
        data = yield from read_span(pieces, end.start, end.size, href)
    starts, records = parse.headers(data, where)
    stored = StoredDirectory(end, data, starts, records["name_size"].astype(np.int64), where)
    if not _is_plain(records, end):
        # Whatever is wrong with it is found out, and told, by the columns.
        assert len(stored.directory) == len(stored)
    return stored


def _is_plain(records: wire.Records, end: End) -> bool:
    """Whether entries follow one another in the file, none of them large, as they mostly do."""
    if len(records) != end.count:
        return False
    if not len(records):
        return True
    offsets = records["offset"].astype(np.int64)
    sizes = records["csize"].astype(np.int64)
    stops = offsets + sizes + records["name_size"] + wire.LOCAL_SIZE
    large = max(int(sizes.max()), int(records["size"].max()), int(offsets[-1])) >= wire.U32
    return not large and bool((stops[:-1] <= offsets[1:]).all()) and int(stops[-1]) <= end.start
