"""A central directory as columns, found and checked with a few passes over the bytes.

Header starts form a chain, since each header tells where the next one begins. All places that
hold the signature are candidates; when each candidate ends where the next begins, from the first
byte to the last, the candidates are the chain. Only where a name or comment holds the signature
too is the chain walked entry by entry.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidMetadataError, Problem, shown
from comal.ziparchive import wire

MAX_PROBLEMS = 1_000
_MARK = wire.CENTRAL_SIGNATURE.to_bytes(4, "little")


def headers(
    data: bytes, where: str, known: npt.NDArray[Any] | None = None
) -> tuple[wire.Int64s, wire.Records]:
    """All headers of a central directory; `known` is where they begin, if `chain` has told it.

    Returns
    -------
    starts, records
        Where each begins, relative to the first byte of `data`, and an array of `wire.CENTRAL`.

    Raises
    ------
    InvalidMetadataError
        The headers do not fill `data` exactly.
    """
    if known is not None:
        starts: wire.Int64s = known.astype(np.int64)
        return starts, records_at(data, starts)
    found = chain(data)
    if found is not None:
        return found
    starts = _walk(data, where)
    return starts, records_at(data, starts)


def chain(data: bytes) -> tuple[wire.Int64s, wire.Records] | None:
    """All headers as `headers` has them, where their signature stands nowhere else; else None."""
    starts = _candidates(data)
    if len(starts) and starts[-1] + wire.CENTRAL_SIZE <= len(data):
        records = records_at(data, starts)
        ends = starts + _lengths(records)
        if starts[0] == 0 and ends[-1] == len(data) and (ends[:-1] == starts[1:]).all():
            return starts, records
    return None


def whole_size(data: bytes, where: str) -> int:
    """How many bytes the whole headers take that a part of a directory begins with."""
    starts = _candidates(data)
    starts = starts[starts + wire.CENTRAL_SIZE <= len(data)]
    ends = starts + _lengths(records_at(data, starts))
    if len(starts) and starts[0] == 0 and (ends[:-1] == starts[1:]).all():
        return int(ends[-1]) if ends[-1] <= len(data) else int(starts[-1])
    # A name or a comment holds the signature too.
    return _walked(data, where)


def _walked(data: bytes, where: str) -> int:
    position = 0
    while position + wire.CENTRAL_SIZE <= len(data):
        record = records_at(data, np.array([position], np.int64))
        end = position + int(_lengths(record)[0])
        if record["signature"][0] != wire.CENTRAL_SIGNATURE:
            raise InvalidMetadataError(
                "central directory is broken", where=f"{where}, byte {position} of the directory"
            )
        if end > len(data):
            break
        position = end
    return position


def _candidates(data: bytes) -> wire.Int64s:
    values = np.frombuffer(data, np.uint8)
    if len(values) < len(_MARK):
        return np.zeros(0, np.int64)
    first, *others = _MARK
    found: wire.Int64s = np.flatnonzero(values[: 1 - len(_MARK)] == first)
    for shift, byte in enumerate(others, 1):
        found = found[values[found + shift] == byte]
    return found


def _lengths(records: wire.Records) -> wire.Int64s:
    lengths: wire.Int64s = (
        wire.CENTRAL_SIZE
        + records["name_size"].astype(np.int64)
        + records["extra_size"]
        + records["comment_size"]
    )
    return lengths


def _walk(data: bytes, where: str) -> wire.Int64s:
    starts = []
    position, end = 0, len(data)
    sizes = struct.Struct("<I24xHHH")
    while position + wire.CENTRAL_SIZE <= end:
        signature, name, extra, comment = sizes.unpack_from(data, position)
        if signature != wire.CENTRAL_SIGNATURE:
            break
        starts.append(position)
        position += wire.CENTRAL_SIZE + name + extra + comment
    if position != end:
        raise InvalidMetadataError(
            "central directory is broken",
            where=f"{where}, byte {position} of the directory, entry {len(starts)}",
            found="no header that ends inside the directory",
            expected=f"headers that fill {end} bytes exactly",
        )
    return np.array(starts, np.int64)


def records_at(data: bytes, starts: wire.Int64s) -> wire.Records:
    """The fixed parts of the headers at `starts`, which must lie in `data` whole."""
    if len(starts) == 0:
        return np.zeros(0, wire.CENTRAL)
    # As plain bytes, which are copied whole; of a record type every field is copied by itself.
    plain = np.dtype((np.void, wire.CENTRAL_SIZE))
    every = np.ndarray((len(data) - wire.CENTRAL_SIZE + 1,), plain, data, strides=(1,))
    records: wire.Records = every[starts].view(wire.CENTRAL)
    return records


def slices(data: bytes, starts: wire.Int64s, sizes: npt.NDArray[Any]) -> Any:
    """An Arrow array of the byte strings at ascending `starts` that do not overlap."""
    if len(starts) == 0:
        return pa.array([], pa.binary())
    # Names and the gaps between them are taken as one array, of which every other value is kept.
    wide = len(data) >= 2**31
    bounds = np.empty(2 * len(starts), np.int64 if wide else np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + sizes
    kind = pa.LargeBinaryArray if wide else pa.BinaryArray
    both = kind.from_buffers(
        pa.large_binary() if wide else pa.binary(),
        len(bounds) - 1,
        [None, pa.py_buffer(bounds), pa.py_buffer(data)],
    )
    return both.take(pa.array(np.arange(0, len(bounds) - 1, 2)))


def text_names(names: Any, flags: npt.NDArray[np.uint16]) -> tuple[Any, list[Problem]]:
    """Names as Arrow strings.

    Bytes that are valid UTF-8 are taken as such whether the flag says so or not, as existing
    writers forget it; other names are CP437 (APPNOTE, appendix D).
    """
    try:
        return names.cast(pa.large_string() if _is_wide(names) else pa.string()), []
    except pa.ArrowInvalid:
        pass
    texts, problems = [], []
    for row, name in enumerate(names.to_pylist()):
        try:
            texts.append(name.decode())
        except UnicodeDecodeError:
            texts.append(name.decode("cp437"))
            if flags[row] & wire.FLAG_UTF8:
                problems.append(
                    Problem("zip-name-encoding", f"entry {row}", "name is not the UTF-8 it claims")
                )
    return pa.array(texts, pa.string()), problems[:MAX_PROBLEMS]


def _is_wide(values: Any) -> bool:
    return bool(pa.types.is_large_binary(values.type))


def apply_zip64(
    data: bytes,
    starts: wire.Int64s,
    records: wire.Records,
    where: str,
    problems: list[Problem] | None = None,
) -> tuple[wire.Int64s, wire.Int64s, wire.Int64s]:
    """Sizes and offsets with those of ZIP64 extra fields in place.

    With a list of `problems`, a broken field is added there and its entry gets the offset -1;
    without one it raises `InvalidMetadataError`.

    Returns
    -------
    csize, size, offset
        int64 arrays.
    """
    csize = records["csize"].astype(np.int64)
    size = records["size"].astype(np.int64)
    offset = records["offset"].astype(np.int64)
    rows = np.flatnonzero((csize == wire.U32) | (size == wire.U32) | (offset == wire.U32))
    for row in rows.tolist():
        start = int(starts[row]) + wire.CENTRAL_SIZE + int(records["name_size"][row])
        field = extra_field(data[start : start + int(records["extra_size"][row])], wire.ZIP64_ID)
        wanted = [column for column in (size, csize, offset) if column[row] == wire.U32]
        if field is None:
            continue  # 4 294 967 295 itself, checked against the archive like any other value
        try:
            values = _zip64_values(field, len(wanted), f"{where}, entry {row}")
        except InvalidMetadataError as error:
            if problems is None:
                raise
            problems.append(Problem("zip-zip64-field", f"{where}, entry {row}", error.what))
            offset[row] = -1
            continue
        for column, value in zip(wanted, values, strict=True):
            column[row] = value
    return csize, size, offset


def _zip64_values(field: bytes, count: int, place: str) -> tuple[int, ...]:
    if len(field) < 8 * count:
        raise InvalidMetadataError(
            "ZIP64 field of an entry is too short",
            where=place,
            found=f"{len(field)} bytes",
            expected=f"{8 * count} bytes",
        )
    values = struct.unpack_from(f"<{count}Q", field)
    if max(values) >= 2**63:
        raise InvalidMetadataError(
            "ZIP64 value of an entry is beyond any file", where=place, found=max(values)
        )
    return values


def extra_field(extra: bytes, wanted: int) -> bytes | None:
    """The content of the first extra field with the id `wanted`, or None."""
    position = 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, position)
        if position + 4 + size > len(extra):
            return None
        if kind == wanted:
            return extra[position + 4 : position + 4 + size]
        position += 4 + size
    return None


def label(names: Any, row: int) -> str:
    """How a message calls an entry."""
    return f"entry {row} ({shown(names[row].as_py())})"
