"""Headers and checksums for a whole block of entries, and the few ways bytes reach a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from comal.errors import InvalidInputError, StorageError, shown, translated
from comal.ziparchive import wire
from comal.ziparchive.entries import joined, record_array

BLOCK_BYTES = 8 << 20
BLOCK_ROWS = 65_536
CHUNK = 4 << 20
_VECTOR = 1_024
"""Pieces that one system call takes, at most."""
_BYTES = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
DISK: dict[type[BaseException], type[StorageError]] = {OSError: StorageError}


@dataclass(frozen=True, slots=True)
class Details:
    """What may be said of many entries besides their names and payloads; arrays of one length."""

    methods: npt.NDArray[np.uint16] | None = None
    """How each payload is compressed already; all stored if None."""
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
                "compressed payloads come with the size and checksum of their content"
            )

    def check(self, count: int) -> None:
        """Refuse columns that do not have `count` rows."""
        for name in self.__slots__:
            column = getattr(self, name)
            if column is not None and len(column) != count:
                raise InvalidInputError(
                    f"{name} and names differ in length", found=len(column), expected=count
                )

    def slice(self, start: int, stop: int) -> Details:
        """The rows from `start` to before `stop`."""
        return Details(
            *(
                None if column is None else column[start:stop]
                for column in (getattr(self, name) for name in self.__slots__)
            )
        )

    @property
    def plain(self) -> bool:
        """Whether nothing is said."""
        return all(getattr(self, name) is None for name in self.__slots__)


NO_DETAILS = Details()


def encoded_name(name: str) -> bytes:
    """The bytes of an entry name; refused when empty, too long, or not representable."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "entry name is not valid Unicode", found=shown(name), hint="rename the sample"
        ) from error
    return checked_name(encoded)


def checked_name(encoded: bytes) -> bytes:
    """The bytes of an entry name; refused when they cannot stand in an archive."""
    if not 0 < len(encoded) <= wire.MAX_NAME or b"\0" in encoded:
        raise InvalidInputError(
            "entry name cannot be written",
            found=shown(encoded.decode("utf-8", "replace")),
            expected="1 to 65535 bytes without NUL",
        )
    return encoded


def checked_names(names: Any) -> Any:
    """An Arrow column of names as binary; refused like `encoded_name`, all at once."""
    names = names.cast(pa.binary()) if names.type != pa.binary() else names
    sizes = pc.binary_length(names)
    bad = pc.or_(
        pc.or_(pc.equal(sizes, 0), pc.greater(sizes, wire.MAX_NAME)),
        pc.match_substring(names, b"\0"),
    )
    row = pc.index(bad, value=True).as_py()
    if row >= 0:
        checked_name(names[row].as_py())
    return names


def flat(column: Any, what: str) -> Any:
    """A column as one Arrow array without nulls; texts may come as a list."""
    if isinstance(column, list):
        column = pa.array(column, pa.string())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        raise InvalidInputError(f"{what} are over 2 GiB in one call", hint="add them in batches")
    if column.type not in _BYTES:
        raise InvalidInputError(
            f"{what} are no text or bytes", found=column.type, expected="string or binary"
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


def block_bounds(sizes: wire.Int64s) -> Iterator[tuple[int, int]]:
    """Row ranges whose payloads make up about one block each."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + BLOCK_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + BLOCK_ROWS)
        yield start, stop
        start = stop


def value_offsets(values: Any) -> npt.NDArray[Any]:
    """Where each value of a binary array starts in its data buffer, and the end of the last."""
    if len(values) == 0:
        return np.zeros(1, np.int32)
    wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    offsets = np.frombuffer(values.buffers()[1], np.int64 if wide else np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


def value_bytes(values: Any) -> memoryview:
    """All values of a binary array, joined, without a copy."""
    offsets = value_offsets(values)
    return memoryview(values.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]


def payload_sizes(payloads: Any) -> wire.Int64s:
    """Bytes of each value of a binary array or a list of bytes."""
    if isinstance(payloads, list):
        return np.fromiter(map(len, payloads), np.int64, len(payloads))
    sizes: wire.Int64s = pc.binary_length(payloads).to_numpy().astype(np.int64)
    return sizes


def interleaved(heads: Any, payloads: list[bytes]) -> list[Any]:
    """What stands before each payload, a binary array, and the payloads in turns."""
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
        (crc32(data[start:stop]) for start, stop in pairwise(bounds)),
        np.uint32,
        len(payloads),
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
    """What a writer remembers of entries, as an array of `wire.ENTRY`.

    Without `csizes` payloads are as long as their content.
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


def exact_chunks(source: BinaryIO, size: int, where: str) -> Iterator[bytes]:
    """The bytes of a stream that must hold exactly `size` of them."""
    left = size
    while True:
        with translated({OSError: StorageError}, "source cannot be read", where=where):
            chunk = source.read(min(left, CHUNK) if left else 1)
        if not chunk and not left:
            return
        if not chunk or len(chunk) > left:
            raise InvalidInputError(
                "source is not as long as it was said to be",
                where=where,
                found=f"{size - left} bytes" if not chunk else f"more than {size} bytes",
                expected=f"{size} bytes",
                hint="leave the source alone while it is packed",
            )
        left -= len(chunk)
        yield chunk


def zeros(size: int) -> Iterator[bytes]:
    """`size` zero bytes in chunks."""
    block = bytes(min(size, CHUNK))
    for start in range(0, size, CHUNK):
        yield block[: size - start]


def write_all(file: BinaryIO, data: Any) -> None:
    """Write all of `data`, also to a file that takes less than it is given."""
    with translated(DISK, "target cannot be written"):
        left = memoryview(data).cast("B")
        while left:
            left = left[file.write(left) :]


def write_pieces(descriptor: int, pieces: list[Any]) -> int:
    """Write pieces one behind the other without joining them; how many bytes they are."""
    size = at = 0
    while at < len(pieces):
        block = pieces[at : at + _VECTOR]
        wanted = sum(map(len, block))
        done = os.writev(descriptor, block)
        size += wanted
        at += len(block)
        if done < wanted:  # a system call may take less than it is given
            left = memoryview(b"".join(block))[done:]
            while left:
                left = left[os.write(descriptor, left) :]
    return size


class Heads(NamedTuple):
    """What stands before the payloads of a block of entries."""

    columns: list[Any]
    """Local headers, names and extra fields, binary arrays."""
    sizes: wire.Int64s
    """Bytes of all of it, for each entry."""
    records: wire.Records
    """What a writer remembers, as an array of `wire.ENTRY`; offsets count from the block on."""


def heads_of(names: Any, payloads: Any, details: Details, *, dos_time: int, dos_date: int) -> Heads:
    """Local headers of a block; `names` are a binary array, times hold where none is given."""
    name_sizes = pc.binary_length(names).to_numpy().astype(np.int64)
    extra_sizes = _sizes(details.extras, len(names))
    csizes = payload_sizes(payloads)
    sizes = csizes if details.sizes is None else details.sizes
    methods = wire.STORE if details.methods is None else details.methods
    crcs = checksums(payloads) if details.crcs is None else details.crcs
    stamps, flags = details.stamps, flags_of(names)
    headers = wire.local_headers(
        name_sizes=name_sizes,
        extra_sizes=extra_sizes,
        crcs=crcs,
        sizes=sizes,
        csizes=csizes,
        methods=methods,
        flags=flags,
        count=len(names),
        dos_time=dos_time if stamps is None else stamps[:, 0],
        dos_date=dos_date if stamps is None else stamps[:, 1],
    )
    extras = [] if details.extras is None else [as_binary(details.extras)]
    before = wire.LOCAL_SIZE + name_sizes + extra_sizes
    starts = np.cumsum(before + csizes) - before - csizes
    records = entry_records(starts, sizes, crcs, flags, name_sizes, csizes, methods)
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
    """The bytes of several archives, each as a list of pieces that follow one another.

    Parameters
    ----------
    names
        Arrow string array of all entries, archive after archive; no name twice in one of them.
    payloads
        As many payloads.
    bounds
        Rows where archives begin, and the end of the last.
    comments
        Comments of the archives.
    details
        As for `ZipWriter.add_many`.
    dos_date, dos_time
        Time of entries without one in `details`.

    Raises
    ------
    InvalidInputError
        Names that cannot be written, or over 1 GiB in one call.
    """
    names = checked_names(flat(names, "names"))
    details.check(len(names))
    if len(payloads) != len(names) or sum(map(len, payloads)) > _LARGEST:
        raise InvalidInputError("payloads do not fit their names, or are too many at once")
    heads = heads_of(names, payloads, details, dos_time=dos_time, dos_date=dos_date)
    records, stamps = heads.records, details.stamps
    first = np.append(records["offset"], 0)[np.asarray(bounds[:-1], np.int64)]
    records["offset"] -= np.repeat(first, np.diff(bounds))
    central, _, _ = wire.central_headers(
        records,
        dos_time=dos_time if stamps is None else stamps[:, 0],
        dos_date=dos_date if stamps is None else stamps[:, 1],
    )
    central["extra_size"] = _sizes(details.extras, len(names))
    central["comment_size"] = _sizes(details.comments, len(names))
    extras = [] if details.extras is None else [as_binary(details.extras)]
    own = [] if details.comments is None else [as_binary(details.comments)]
    local = joined(heads.columns)
    directory = joined([record_array(central), names, *extras, *own])
    yield from _cut(local, directory, payloads, bounds, comments)


def _cut(
    local: Any,
    directory: Any,
    payloads: list[bytes],
    bounds: Sequence[int],
    comments: Sequence[bytes],
) -> Iterator[list[Any]]:
    at = value_offsets(local).tolist()
    heads = memoryview(local.buffers()[2])
    places = value_offsets(directory).tolist()
    headers = memoryview(directory.buffers()[2])
    for (first, last), comment in zip(pairwise(bounds), comments, strict=True):
        pieces: list[Any] = [None] * (2 * (last - first))
        pieces[0::2] = [heads[a:b] for a, b in pairwise(at[first : last + 1])]
        pieces[1::2] = payloads[first:last]
        offset = at[last] - at[first] + sum(map(len, payloads[first:last]))
        size = places[last] - places[first]
        pieces.append(headers[places[first] : places[last]])
        pieces.append(
            wire.end_records(count=last - first, size=size, offset=offset, comment=comment)
        )
        yield pieces


def _sizes(column: Any, count: int) -> wire.Int64s:
    if column is None:
        return np.zeros(count, np.int64)
    sizes: wire.Int64s = pc.binary_length(column).to_numpy().astype(np.int64)
    return sizes
