"""The entries of an archive being written, packed: 34 bytes and the name for each."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.names import all_distinct
from comal.ziparchive import wire

_ENTRY = struct.Struct("<qqqIHHH")
_BLOCK = 65_536
FEW = 8
"""So many entries are packed one by one, as arrays cost more than they save."""


class Entries:
    """Append-only columns of `wire.ENTRY` records and names.

    Extra fields and comments of single entries are rare and kept beside, by row.
    """

    __slots__ = ("_names", "_records", "_stamps", "_tails")

    def __init__(self) -> None:
        self._records = bytearray()
        self._names = bytearray()
        self._tails: dict[int, tuple[bytes, bytes]] = {}
        self._stamps: list[tuple[int, npt.NDArray[np.uint16]]] = []

    def __len__(self) -> int:
        return len(self._records) // _ENTRY.size

    def append(
        self,
        name: bytes,
        *,
        offset: int,
        csize: int,
        size: int,
        crc: int,
        method: int,
        extra: bytes = b"",
        comment: bytes = b"",
    ) -> int:
        """Add one entry and return its row."""
        row = len(self)
        self._records += _ENTRY.pack(
            offset, csize, size, crc, wire.flags_of(name), method, len(name)
        )
        self._names += name
        if extra or comment:
            self._tails[row] = (extra, comment)
        return row

    def extend(self, records: wire.Records, names: Any) -> None:
        """Add many entries: an array of `wire.ENTRY` and the bytes of their names, joined."""
        self._records += records.view(np.uint8).data
        self._names += names

    def describe(self, first: int, extras: Any, comments: Any) -> None:
        """Give entries from row `first` on extra fields and comments, binary arrays or None."""
        for column, place in ((extras, 0), (comments, 1)):
            if column is None:
                continue
            for row, value in enumerate(column.to_pylist(), first):
                if value:
                    tail = list(self._tails.get(row, (b"", b"")))
                    tail[place] = value
                    self._tails[row] = (tail[0], tail[1])

    def stamp(self, first: int, stamps: npt.NDArray[np.uint16]) -> None:
        """Give entries from row `first` on times of their own: shape (n, 2), time and date."""
        self._stamps.append((first, stamps))

    def set_crc(self, row: int, crc: int) -> None:
        """Set the checksum of an entry whose payload was not known when it was added."""
        self.records[row]["crc"] = crc

    @property
    def records(self) -> wire.Records:
        """The entries as an array of `wire.ENTRY`; a view that must not outlive an append."""
        return np.frombuffer(self._records, wire.ENTRY)

    def names(self) -> Any:
        """All names as an Arrow array of binary."""
        sizes = self.records["name_size"]
        return binary_array(sizes, pa.py_buffer(self._names))

    def refuse_duplicates(self) -> None:
        """Raise `InvalidInputError` when two entries have one name."""
        if len(self) < 2:
            return
        names = self.names()
        if all_distinct(names):
            return
        codes = names.dictionary_encode()
        counts = np.bincount(codes.indices.to_numpy())
        twice = codes.dictionary.take(pa.array(np.flatnonzero(counts > 1)[:3]))
        texts = ", ".join(shown(name.decode("utf-8", "replace")) for name in twice.to_pylist())
        raise InvalidInputError(
            "entry names stand twice",
            found=texts,
            expected="every name once",
            hint="rename the samples, or drop the copies",
        )

    def central_directory(self, *, dos_time: int, dos_date: int) -> Iterator[Any]:
        """The bytes of the central directory, in blocks."""
        if len(self) <= FEW:
            yield self._few_headers(dos_time=dos_time, dos_date=dos_date)
            return
        records = self.records
        names = memoryview(self._names)
        ends = np.cumsum(records["name_size"], dtype=np.int64)
        for start in range(0, len(records), _BLOCK):
            block = records[start : start + _BLOCK]
            first = int(ends[start - 1]) if start else 0
            last = int(ends[start + len(block) - 1])
            joined = self._directory_block(
                block, names[first:last], start, dos_time=dos_time, dos_date=dos_date
            )
            yield joined

    def _few_headers(self, *, dos_time: int, dos_date: int) -> bytes:
        times: dict[int, list[int]] = {}
        for first, stamps in self._stamps:
            times.update(enumerate(stamps.tolist(), first))
        headers = []
        at = 0
        for row, fields in enumerate(_ENTRY.iter_unpack(self._records)):
            offset, csize, size, crc, _, method, name_size = fields
            time, date = times.get(row, (dos_time, dos_date))
            extra, comment = self._tails.get(row, (b"", b""))
            header = wire.central_header(
                bytes(self._names[at : at + name_size]),
                offset=offset,
                crc=crc,
                csize=csize,
                size=size,
                method=method,
                extra=extra,
                comment=comment,
                dos_time=time,
                dos_date=date,
            )
            headers.append(header)
            at += name_size
        return b"".join(headers)

    def _directory_block(
        self, block: wire.Records, names: memoryview, start: int, *, dos_time: int, dos_date: int
    ) -> Any:
        headers, rows, fields = wire.central_headers(block, dos_time=dos_time, dos_date=dos_date)
        self._set_times(headers, start)
        tails: dict[int, bytes] = dict(zip(rows.tolist(), fields, strict=True))
        for row, (extra, comment) in self._tails.items():
            if start <= row < start + len(block):
                headers["extra_size"][row - start] += len(extra)
                headers["comment_size"][row - start] = len(comment)
                tails[row - start] = tails.get(row - start, b"") + extra + comment
        columns = [record_array(headers), binary_array(block["name_size"], pa.py_buffer(names))]
        if tails:
            columns.append(pa.array([tails.get(row, b"") for row in range(len(block))]))
        return joined_bytes(columns)

    def _set_times(self, headers: wire.Records, start: int) -> None:
        for first, stamps in self._stamps:
            begin, stop = max(first, start), min(first + len(stamps), start + len(headers))
            if begin < stop:
                own = stamps[begin - first : stop - first]
                headers["time"][begin - start : stop - start] = own[:, 0]
                headers["date"][begin - start : stop - start] = own[:, 1]


def binary_array(sizes: npt.NDArray[Any], data: Any) -> Any:
    """An Arrow array of binary values of these `sizes` that follow each other in `data`."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] < 2**31:
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(sizes), [None, pa.py_buffer(offsets.astype(np.int32)), data]
        )
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(sizes), [None, pa.py_buffer(offsets), data]
    )


def record_array(records: npt.NDArray[Any]) -> Any:
    """An array of fixed-size records as an Arrow array of binary."""
    width = records.dtype.itemsize
    offsets = np.arange(0, (len(records) + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(records), [None, pa.py_buffer(offsets), pa.py_buffer(records)]
    )


def joined_bytes(columns: list[Any]) -> Any:
    """The values of several binary columns, row after row, as one buffer."""
    values = joined(columns)
    return values.buffers()[2].slice(0, values.total_values_length)


def joined(columns: list[Any]) -> Any:
    """The values of several binary columns, row by row, as one binary column."""
    return pc.binary_join_element_wise(*columns, b"")
