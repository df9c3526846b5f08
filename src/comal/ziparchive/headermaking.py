"""Entries to be written: what a writer keeps of them, and their headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from comal.errors import InvalidInputError, shown
from comal.names import all_distinct
from comal.ziparchive import wire

_ENTRY = struct.Struct("<qqqIHHH")
_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CRC_AT = 14
"""Offset of the checksum in a local header."""
_BLOCK = 65_536
FEW = 8
"""Up to this many entries are packed one by one, as arrays cost more than they save."""


@dataclass(frozen=True, slots=True)
class Details:
    """Optional details of many entries besides names and payloads; arrays of one length."""

    methods: npt.NDArray[np.uint16] | None = None
    """Compression method already applied to each payload; all stored if None."""
    sizes: wire.Int64s | None = None
    """Bytes of each entry when extracted; those of its payload if None."""
    crcs: npt.NDArray[np.uint32] | None = None
    """CRC-32 of each entry when extracted; computed from the payload if None."""
    extras: Any = None
    """Arrow binary array of extra fields, for the local header and the directory."""
    comments: Any = None
    """Arrow binary array of entry comments."""
    stamps: npt.NDArray[np.uint16] | None = None
    """DOS time and date of each entry, shape (n, 2)."""

    def __post_init__(self) -> None:
        deflated = self.methods is not None and bool(np.any(self.methods != wire.STORE))
        if deflated and (self.sizes is None or self.crcs is None):
            raise InvalidInputError(
                "compressed payloads need the size and checksum of their content"
            )

    def check(self, count: int) -> None:
        """Refuse columns that do not have `count` rows."""
        for name in self.__slots__:
            column = getattr(self, name)
            if column is not None and len(column) != count:
                raise InvalidInputError(
                    f"{name} and names differ in length", found=len(column), expected=count
                )

    def times(self, dos_time: int, dos_date: int) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """DOS time and date of each entry; if none are given, these defaults."""
        if self.stamps is None:
            return dos_time, dos_date
        return self.stamps[:, 0], self.stamps[:, 1]

    def slice(self, start: int, stop: int) -> Details:
        """The rows ``start .. stop``."""
        return Details(
            *(
                None if column is None else column[start:stop]
                for column in (getattr(self, name) for name in self.__slots__)
            )
        )

    @property
    def plain(self) -> bool:
        """Whether no details are given."""
        return all(getattr(self, name) is None for name in self.__slots__)


NO_DETAILS = Details()


class Entries:
    """Append-only columns of `wire.ENTRY` records and names.

    Extra fields and comments of single entries are rare and kept separately, by row.
    """

    __slots__ = ("_dos", "_names", "_records", "_stamps", "_tails")

    def __init__(self, dos_time: int, dos_date: int) -> None:
        self._dos = dos_time, dos_date
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
        method: int = wire.STORE,
        extra: bytes = b"",
        comment: bytes = b"",
        stamp: npt.NDArray[np.uint16] | None = None,
    ) -> bytes:
        """Add one entry and return its local header; an invalid name is refused."""
        checked_name(name)
        row, flags = len(self), 0 if name.isascii() else wire.FLAG_UTF8
        self._records += _ENTRY.pack(offset, csize, size, crc, flags, method, len(name))
        self._names += name
        if extra or comment:
            self._tails[row] = (extra, comment)
        time, date = self._dos
        if stamp is not None:
            self._stamps.append((row, stamp.reshape(1, 2)))
            time, date = stamp.tolist()
        version = wire.VERSION_STORE if method == wire.STORE else wire.VERSION_DEFLATE
        if csize >= wire.U32 or size >= wire.U32:
            # APPNOTE 4.5.3: a local header has both sizes in the field.
            extra = struct.pack("<HHQQ", wire.ZIP64_ID, 16, size, csize) + extra
            version, csize, size = wire.VERSION_ZIP64, wire.U32, wire.U32
        sizes = csize, size, len(name), len(extra)
        fixed = _LOCAL.pack(wire.LOCAL_SIGNATURE, version, flags, method, time, date, crc, *sizes)
        return fixed + name + extra

    def extend(self, records: wire.Records, names: Any, details: Details = NO_DETAILS) -> None:
        """Add many entries: an array of `wire.ENTRY` and their names, a binary array."""
        first = len(self)
        self._records += records.view(np.uint8).data
        self._names += value_bytes(names)
        for column, place in ((details.extras, 0), (details.comments, 1)):
            if column is None:
                continue
            for row, value in enumerate(column.to_pylist(), first):
                if value:
                    tail = list(self._tails.get(row, (b"", b"")))
                    tail[place] = value
                    self._tails[row] = (tail[0], tail[1])
        if details.stamps is not None:
            self._stamps.append((first, details.stamps))

    def set_crc(self, row: int, crc: int) -> int:
        """Set the checksum of an entry that was added without one; returns its archive offset."""
        record = self.records[row]
        record["crc"] = crc
        return int(record["offset"]) + _CRC_AT

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
            "entry names appear twice",
            found=texts,
            expected="every name once",
            hint="rename the samples, or drop the copies",
        )

    def central_directory(self) -> Iterator[Any]:
        """The bytes of the central directory, in blocks."""
        records = self.records
        names = memoryview(self._names)
        ends = np.cumsum(records["name_size"], dtype=np.int64)
        for start in range(0, len(records), _BLOCK):
            block = records[start : start + _BLOCK]
            first = int(ends[start - 1]) if start else 0
            last = int(ends[start + len(block) - 1])
            yield self._directory_block(block, names[first:last], start)

    def _directory_block(self, block: wire.Records, names: memoryview, start: int) -> Any:
        headers, tails = central_headers(block, *self._dos)
        self._set_times(headers, start)
        for row, (extra, comment) in self._tails.items():
            if start <= row < start + len(block):
                headers["extra_size"][row - start] += len(extra)
                headers["comment_size"][row - start] = len(comment)
                tails[row - start] = tails.get(row - start, b"") + extra + comment
        columns = [record_array(headers), binary_array(block["name_size"], pa.py_buffer(names))]
        if tails:
            values = [tails.get(row, b"") for row in range(len(block))]
            columns.append(binary_array(payload_sizes(values), pa.py_buffer(b"".join(values))))
        return joined_bytes(columns)

    def _set_times(self, headers: wire.Records, start: int) -> None:
        for first, stamps in self._stamps:
            begin, stop = max(first, start), min(first + len(stamps), start + len(headers))
            if begin < stop:
                own = stamps[begin - first : stop - first]
                headers["time"][begin - start : stop - start] = own[:, 0]
                headers["date"][begin - start : stop - start] = own[:, 1]


def local_headers(
    entries: wire.Records, extra_sizes: npt.ArrayLike, time: npt.ArrayLike, date: npt.ArrayLike
) -> wire.Records:
    """The fixed parts of local headers of `entries` (an array of `ENTRY`) below the ZIP64 limit."""
    headers = _headers(wire.LOCAL, wire.LOCAL_SIGNATURE, entries, time, date)
    headers["csize"] = entries["csize"]
    headers["size"] = entries["size"]
    headers["extra_size"] = extra_sizes
    return headers


def central_headers(
    entries: wire.Records, time: npt.ArrayLike, date: npt.ArrayLike
) -> tuple[wire.Records, dict[int, bytes]]:
    """The fixed parts of central headers of `entries` (an array of `ENTRY`), and ZIP64 fields."""
    large = (entries["size"] >= wire.U32) | (entries["csize"] >= wire.U32)
    far = entries["offset"] >= wire.U32
    headers = _headers(wire.CENTRAL, wire.CENTRAL_SIGNATURE, entries, time, date)
    headers["made_by"] = wire.MADE_BY
    headers["version"][large | far] = wire.VERSION_ZIP64
    headers["csize"] = np.where(large, wire.U32, entries["csize"])
    headers["size"] = np.where(large, wire.U32, entries["size"])
    headers["offset"] = np.where(far, wire.U32, entries["offset"])
    headers["external"] = wire.REGULAR_FILE
    # APPNOTE 4.5.3: only the values whose field says 0xFFFFFFFF, in this order.
    headers["extra_size"] = np.where(large | far, 4 + 16 * large + 8 * far, 0)
    fields = {}
    for row in np.flatnonzero(large | far).tolist():
        csize, size, offset = (int(entries[name][row]) for name in ("csize", "size", "offset"))
        values = [size, csize] * bool(large[row]) + [offset] * bool(far[row])
        head = wire.ZIP64_ID, 8 * len(values)
        fields[row] = struct.pack(f"<HH{len(values)}Q", *head, *values)
    return headers, fields


def _headers(
    kind: np.dtype[np.void],
    signature: int,
    entries: wire.Records,
    time: npt.ArrayLike,
    date: npt.ArrayLike,
) -> wire.Records:
    """The common fields of local and central headers; one time and date for all, or many."""
    headers = np.zeros(len(entries), kind)
    headers["signature"] = signature
    stored = entries["method"] == wire.STORE
    headers["version"] = np.where(stored, wire.VERSION_STORE, wire.VERSION_DEFLATE)
    for field in ("flags", "method", "crc", "name_size"):
        headers[field] = entries[field]
    headers["time"] = time
    headers["date"] = date
    return headers


def end_records(*, count: int, size: int, offset: int, comment: bytes = b"") -> bytes:
    """The end of central directory record, after the ZIP64 pair if a field is too small."""
    records = b""
    if count > wire.U16 or size >= wire.U32 or offset >= wire.U32:
        sizes = wire.END64_SIZE - 12, wire.MADE_BY, wire.VERSION_ZIP64
        places = count, count, size, offset
        records = wire.END64.pack(wire.END64_SIGNATURE, *sizes, 0, 0, *places)
        records += wire.LOCATOR64.pack(wire.LOCATOR64_SIGNATURE, 0, offset + size, 1)
    short = min(count, wire.U16)
    places = short, short, min(size, wire.U32), min(offset, wire.U32)
    return records + wire.END.pack(wire.END_SIGNATURE, 0, 0, *places, len(comment)) + comment


def binary_array(sizes: npt.NDArray[Any], data: Any) -> Any:
    """An Arrow array of consecutive binary values of these `sizes` in `data`."""
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
    sizes = np.full(len(records), records.dtype.itemsize)
    return binary_array(sizes, pa.py_buffer(records))


def joined_bytes(columns: list[Any]) -> Any:
    """The values of several binary columns, row after row, as one buffer."""
    values = joined(columns)
    return values.buffers()[2].slice(0, values.total_values_length)


def joined(columns: list[Any]) -> Any:
    """The values of several binary columns, row by row, as one binary column."""
    return pc.binary_join_element_wise(*columns, _NOTHING)


_NOTHING = binary_array(np.zeros(1, np.int64), pa.py_buffer(b""))[0]
"""Plain values as arguments of `pyarrow.compute`, as those of `pyarrow.array`, load pandas."""


BLOCK_BYTES = 8 << 20
BLOCK_ROWS = 65_536
CHUNK = 4 << 20
_BYTES = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def checked_name(encoded: bytes) -> bytes:
    """The bytes of an entry name; refused if it is invalid in an archive."""
    if not 0 < len(encoded) <= wire.MAX_NAME or b"\0" in encoded:
        raise InvalidInputError(
            "an entry name cannot be written",
            found=shown(encoded.decode("utf-8", "replace")),
            expected="1 to 65535 bytes without NUL",
        )
    return encoded


def checked_names(names: Any) -> Any:
    """An Arrow column of names as binary; refused like `checked_name`, all at once."""
    names = names.cast(pa.binary()) if names.type != pa.binary() else names
    sizes = payload_sizes(names)
    if (sizes == 0).any() or (sizes > wire.MAX_NAME).any() or 0 in value_bytes(names):
        for name in names.to_pylist():
            checked_name(name)
    return names


def flat(column: Any, what: str) -> Any:
    """A column as one Arrow array without nulls; texts may come as a list."""
    if isinstance(column, list):
        texts = [text.encode() for text in column]
        column = binary_array(payload_sizes(texts), pa.py_buffer(b"".join(texts)))
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        raise InvalidInputError(f"{what} are over 2 GiB in one call", hint="add them in batches")
    if column.type not in _BYTES:
        raise InvalidInputError(
            f"{what} are neither text nor bytes", found=column.type, expected="string or binary"
        )
    if column.null_count:
        raise InvalidInputError(f"{what} hold nulls", found=f"{column.null_count} nulls")
    return column


def as_binary(values: Any) -> Any:
    """A block of string or binary values as an Arrow array of binary, without a copy."""
    offsets = value_offsets(values)
    data = pa.py_buffer(value_bytes(values))
    starts = pa.py_buffer((offsets - offsets[0]).astype(np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, starts, data])


def flags_of(names: Any) -> npt.NDArray[np.uint16]:
    """General purpose flags for each name of a binary array."""
    if bytes(value_bytes(names)).isascii():
        return np.zeros(len(names), np.uint16)
    ascii_only = pc.string_is_ascii(names.cast(pa.string())).to_numpy(zero_copy_only=False)
    flags: npt.NDArray[np.uint16] = np.where(ascii_only, 0, wire.FLAG_UTF8).astype(np.uint16)
    return flags


def block_bounds(sizes: wire.Int64s) -> list[tuple[int, int]]:
    """Row ranges with payloads of about one block each."""
    ends = np.cumsum(sizes)
    found = []
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + BLOCK_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + BLOCK_ROWS)
        found.append((start, stop))
        start = stop
    return found


def value_offsets(values: Any) -> npt.NDArray[Any]:
    """Offset of each value of a binary array in its data buffer, and the end of the last."""
    if len(values) == 0:
        return np.zeros(1, np.int32)
    wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    offsets = np.frombuffer(values.buffers()[1], np.int64 if wide else np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


def value_bytes(values: Any) -> memoryview:
    """All values of a binary array, concatenated, without a copy."""
    offsets = value_offsets(values)
    return memoryview(values.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]


def payload_sizes(payloads: Any) -> wire.Int64s:
    """Bytes of each value of a binary array or a list of bytes."""
    if isinstance(payloads, list):
        return np.fromiter(map(len, payloads), np.int64, len(payloads))
    return np.diff(value_offsets(payloads)).astype(np.int64)


def interleaved(heads: Any, payloads: list[bytes]) -> list[Any]:
    """The bytes before each payload, a binary array, and the payloads, in turns."""
    bounds = value_offsets(heads).tolist()
    data = memoryview(heads.buffers()[2])
    parts: list[Any] = [None] * (2 * len(payloads))
    parts[0::2] = [data[start:stop] for start, stop in pairwise(bounds)]
    parts[1::2] = payloads
    return parts


def checksums(payloads: Any) -> npt.NDArray[np.uint32]:
    """CRC-32 of each value of a binary array or a list of bytes."""
    if isinstance(payloads, list):
        return np.fromiter(map(crc32, payloads), np.uint32, len(payloads))
    bounds = value_offsets(payloads).tolist()
    data = memoryview(payloads.buffers()[2] or b"")
    return np.fromiter(
        (crc32(data[start:stop]) for start, stop in pairwise(bounds)), np.uint32, len(payloads)
    )


def entry_records(
    starts: wire.Int64s,
    sizes: wire.Int64s,
    crcs: npt.NDArray[np.uint32],
    flags: npt.NDArray[np.uint16],
    name_sizes: wire.Int64s,
    csizes: wire.Int64s | None = None,
    methods: npt.ArrayLike = wire.STORE,
) -> wire.Records:
    """What a writer keeps of entries, as an array of `wire.ENTRY`.

    Without `csizes`, payloads are as long as their content.
    """
    records = np.zeros(len(starts), wire.ENTRY)
    records["offset"] = starts
    records["csize"] = sizes if csizes is None else csizes
    records["size"] = sizes
    records["method"] = methods
    records["crc"] = crcs
    records["flags"] = flags
    records["name_size"] = name_sizes
    return records


class Heads(NamedTuple):
    """The bytes before the payloads of a block of entries."""

    columns: list[Any]
    """Local headers, names and extra fields, binary arrays."""
    sizes: wire.Int64s
    """Total size of these bytes for each entry."""
    records: wire.Records
    """What a writer keeps, as an array of `wire.ENTRY`; offsets count from the block's start."""


def heads_of(names: Any, payloads: Any, details: Details, dos_time: int, dos_date: int) -> Heads:
    """Local headers of a block; `names` is a binary array, times are defaults."""
    name_sizes = payload_sizes(names)
    extra_sizes = _sizes(details.extras, len(names))
    csizes = payload_sizes(payloads)
    before = wire.LOCAL_SIZE + name_sizes + extra_sizes
    records = entry_records(
        np.cumsum(before + csizes) - before - csizes,
        csizes if details.sizes is None else details.sizes,
        checksums(payloads) if details.crcs is None else details.crcs,
        flags_of(names),
        name_sizes,
        csizes,
        wire.STORE if details.methods is None else details.methods,
    )
    headers = local_headers(records, extra_sizes, *details.times(dos_time, dos_date))
    extras = [] if details.extras is None else [as_binary(details.extras)]
    return Heads([record_array(headers), names, *extras], before, records)


_LARGEST = 1 << 30


def packed_archives(
    names: Any,
    payloads: list[bytes],
    bounds: Sequence[int],
    comments: Sequence[bytes],
    details: Details = NO_DETAILS,
    *,
    dos_date: int = wire.DOS_DATE_1980,
    dos_time: int = wire.DOS_TIME_MIDNIGHT,
) -> Iterator[list[Any]]:
    """The bytes of several archives, each as a list of consecutive pieces."""
    names = checked_names(flat(names, "names"))
    details.check(len(names))
    if len(payloads) != len(names) or sum(map(len, payloads)) > _LARGEST:
        raise InvalidInputError("payloads do not fit their names, or are too many at once")
    heads = heads_of(names, payloads, details, dos_time, dos_date)
    records = heads.records
    first = np.append(records["offset"], 0)[np.asarray(bounds[:-1], np.int64)]
    records["offset"] -= np.repeat(first, np.diff(bounds))
    central, _ = central_headers(records, *details.times(dos_time, dos_date))
    central["extra_size"] = _sizes(details.extras, len(names))
    central["comment_size"] = _sizes(details.comments, len(names))
    tails = [as_binary(one) for one in (details.extras, details.comments) if one is not None]
    local = joined(heads.columns)
    directory = joined([record_array(central), names, *tails])
    places, headers = value_offsets(directory).tolist(), memoryview(directory.buffers()[2])
    for (start, stop), comment in zip(pairwise(bounds), comments, strict=True):
        own = payloads[start:stop]
        pieces = interleaved(local.slice(start, stop - start), own)
        offset, size = sum(map(len, pieces)), places[stop] - places[start]
        pieces.append(headers[places[start] : places[stop]])
        pieces.append(end_records(count=stop - start, size=size, offset=offset, comment=comment))
        yield pieces


def _sizes(column: Any, count: int) -> wire.Int64s:
    if column is None:
        return np.zeros(count, np.int64)
    return payload_sizes(column)
