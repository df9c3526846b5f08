"""Which names may be ids, checked for whole columns at once.

Three tiers, by the harm that a bad name can do:

1. *illegal*: it could leave its folder, hide, or be cut short. Never written; raises on reading
   if the format forbids it.
2. *risky*: some file system or shell cannot hold it, or two names map to one file. Never written
   for new data, a warning for existing data.
3. *twice*: the same name among siblings. Never written; when reading, such a row can only be
   reached by its position.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.lazy import pc

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.integer[Any]]

PADDING = re.compile(r"__TACOPAD__[0-9]+")
MAX_BYTES = 255

_DEVICES = r"(?i:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])"
_FEW = 1 << 14
"""Number of names that Python compares faster than it imports Arrow's functions."""
_PART = 1 << 16
"""Names that are compared with each other at once."""
_HASHED = 12
"""Bytes at the end of a name that are hashed to choose its group."""
_POOL = pa.system_memory_pool()
"""For short-lived arrays: the default pool takes megabytes for the first of each size."""


def _bytes_among(wanted: bytes) -> npt.NDArray[np.bool_]:
    found = np.zeros(256, bool)
    found[np.frombuffer(wanted, np.uint8)] = True
    return found


# Bytes that may make a name illegal or risky, with all bytes of non-ASCII characters in UTF-8.
_ODD = _bytes_among(bytes(range(32)) + b'/\\:<>"|?*,%' + bytes(range(127, 256)))
_ODD_FIRST = _bytes_among(b"-~")
_ODD_LAST = _bytes_among(b". ")
_DEVICE_BEGINNINGS = [
    np.frombuffer(text, np.uint8) for text in (b"con", b"prn", b"aux", b"nul", b"com", b"lpt")
]


@dataclass(frozen=True, slots=True)
class BadName:
    """A name that breaks a rule: its row, the tier of the rule and the reason in words."""

    row: int
    name: str
    tier: int
    reason: str


def illegal(name: str) -> str | None:
    """Why `name` may never be an id (tier 1), or None."""
    if PADDING.fullmatch(name):
        return None
    if name == "":
        return "is empty"
    if name in {".", ".."}:
        return "names a folder"
    for character in "/\\:":
        if character in name:
            return f"holds {character!r}"
    for character in name if not name.isprintable() else "":
        if unicodedata.category(character) in {"Cc", "Cf", "Cs"}:
            return f"holds the invisible character U+{ord(character):04X}"
    return "begins with '__', which is reserved" if name.startswith("__") else None


def risky(name: str) -> str | None:
    """Why `name` cannot be a file name everywhere (tier 2), or None."""
    if len(name.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return f"is longer than {MAX_BYTES} bytes"
    if name[-1:] in {".", " "}:
        return "ends in a dot or a space"
    if re.match(rf"{_DEVICES}(\.|$)", name):
        return "is the name of a device on Windows"
    for character in '<>"|?*,%':
        if character in name:
            return f"holds {character!r}"
    if name[:1] in {"-", "~"}:
        return f"begins with {name[0]!r}"
    return None if unicodedata.is_normalized("NFC", name) else "is not in Unicode form NFC"


def bad_names(names: Any, *, tier: int = 2) -> Iterator[BadName]:
    """The names of an Arrow string column that break a rule of `tier` or a lower one.

    The column is searched as a whole, by its bytes; only rows that may break a rule become Python
    objects. Nulls are reported as empty.
    """
    column = _without_nulls(_flat(names))
    rows = _suspects(column)
    if not len(rows):
        return
    texts = column.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)]))
    suspects = list(zip(rows.tolist(), texts.to_pylist(), strict=True))
    for row, name in suspects:
        reason = illegal(name)
        if reason is not None:
            yield BadName(row, name, 1, reason)
    if tier < 2:
        return
    for row, name in suspects:
        reason = risky(name)
        if reason is not None and illegal(name) is None:
            yield BadName(row, name, 2, reason)


def _suspects(column: Any) -> npt.NDArray[np.int64]:
    """Rows that may break a rule, ascending; includes all that do."""
    if not len(column):
        return np.zeros(0, np.int64)
    data, starts, ends = _spans(column)
    # Padding, because the last names may be shorter than three bytes.
    data = np.concatenate([data, np.zeros(3, np.uint8)])
    sizes = ends - starts
    first, second, third = (data[starts + place] for place in range(3))
    found = (sizes == 0) | (sizes > MAX_BYTES)
    found |= _ODD_FIRST[first] | _ODD_LAST[data[ends - 1]]
    found |= (first == ord("_")) & (second == ord("_"))
    for one, two, three in _DEVICE_BEGINNINGS:
        found |= (first | 32 == one) & (second | 32 == two) & (third | 32 == three)
    odd = np.flatnonzero(_ODD[data[: ends[-1]]])
    found[np.searchsorted(ends, odd, side="right")] = True
    return np.flatnonzero(found)


def twins(
    names: Any, parents: np.ndarray[Any, Any] | None = None, *, fold: bool = True
) -> list[tuple[int, int]]:
    """Pairs of rows whose names are equal among siblings: the first row with each later one.

    `parents` is a number per row that siblings share; None when all rows are siblings. `fold`
    compares like a file system that ignores case and compatibility forms.
    """
    column = _without_nulls(_flat(names))
    keys = folded(column) if fold else column
    if all_distinct(keys):
        return []
    codes = pc.dictionary_encode(keys).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if parents is not None:
        codes = codes * (int(parents.max(initial=0)) + 1) + parents
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    if len(again) == 0:
        return []
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    firsts = order[starts[np.searchsorted(starts, again, side="right") - 1]]
    return sorted(zip(firsts.tolist(), order[again].tolist(), strict=True))


def all_distinct(keys: Any) -> bool:
    """Whether no two texts or byte strings are equal, in far less memory than a hash table of all.

    The Arrow array has no nulls.
    """
    if len(keys) <= _FEW:
        return len(set(keys.to_pylist())) == len(keys)
    parts = len(keys) // _PART + 1
    if parts == 1:
        return bool(pc.count_distinct(keys, memory_pool=_POOL).as_py() == len(keys))
    wide = pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type)
    ends: Any = np.frombuffer(keys.buffers()[1], np.int64 if wide else np.int32)
    ends = ends[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"\0", np.uint8)
    # The bytes at the end differ most; in any case equal keys get into the same part.
    code = np.zeros(len(keys), np.uint32)
    for back in range(1, _HASHED + 1):
        at = ends[1:] - back
        code = code * np.uint32(31) + np.where(at >= ends[:-1], data[np.maximum(at, 0)], 0)
    code = (code % np.uint32(parts)).astype(np.uint16)
    for part in range(parts):
        own = keys.filter(pa.array(code == part))
        if pc.count_distinct(own, memory_pool=_POOL).as_py() != len(own):
            return False
    return True


def folded(names: Any) -> Any:
    """The column folded like in a file system that ignores case and compatibility forms."""
    column = _flat(names)
    data, _, ends = _spans(column)
    lowered = _ascii_lower(column, data, ends)
    mask = np.zeros(len(column), dtype=bool)
    mask[np.searchsorted(ends, np.flatnonzero(data > 127), side="right")] = True
    odd = np.flatnonzero(mask).tolist()
    if not odd:
        return lowered
    replacements = [unicodedata.normalize("NFKC", column[row].as_py()).casefold() for row in odd]
    return pc.replace_with_mask(lowered, pa.array(mask), pa.array(replacements, column.type))


def _ascii_lower(column: Any, data: Bytes, ends: Ints) -> Any:
    valid = None
    if column.null_count:
        flags = column.is_valid().to_numpy(zero_copy_only=False)
        valid = pa.py_buffer(np.packbits(flags, bitorder="little"))
    is_upper = (data >= ord("A")) & (data <= ord("Z"))
    small = np.where(is_upper, data | 32, data)
    offsets = np.zeros(len(column) + 1, np.int32)
    offsets[1:] = ends
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(small)]
    return pa.Array.from_buffers(pa.string(), len(column), buffers)


def _flat(names: Any) -> Any:
    column = names
    if isinstance(names, pa.ChunkedArray):
        column = names.chunk(0) if names.num_chunks == 1 else names.combine_chunks()
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def _spans(column: Any) -> tuple[Bytes, Ints, Ints]:
    """The bytes of all names of a string array, and the offsets where each begins and ends."""
    offsets = np.zeros(1, np.int32)
    if len(column):
        offsets = np.frombuffer(column.buffers()[1], np.int32)
        offsets = offsets[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets[:-1] - offsets[0], offsets[1:] - offsets[0]


def _without_nulls(column: Any) -> Any:
    return pc.fill_null(column, "") if column.null_count else column
