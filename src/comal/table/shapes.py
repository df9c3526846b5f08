"""Structs of the Thrift compact protocol that are alike: the same fields, other numbers.

A footer says nearly the same of every row group. What one of them looks like, once it has been
read field by field, is a regular expression for the next ones, which takes a tenth of the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from comal.table.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    SET,
    STRUCT,
    TRUE,
    CompactReader,
)

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64] | npt.NDArray[np.int32]
Path = tuple[int, ...]
"""Numbers of fields, and of elements of lists, from the outside to the inside."""

LONGEST = 9
"""Bytes of a varint, so that no value is beyond 63 bits; longer ones match nothing."""
_NUMBERS = frozenset({I16, I32, I64})
_VARINT = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_MOST_PARTS = 1500


@dataclass(frozen=True, slots=True)
class Shape:
    """What structs that are alike have in common."""

    pattern: re.Pattern[bytes]
    paths: tuple[Path, ...]
    """Of the numbers that a match captures, in its order."""


def shape_of(
    data: bytes, at: int, wanted: Callable[[Path], bool], same: Callable[[Path], bool]
) -> Shape | None:
    """The shape of a struct that was read without an error before.

    Parameters
    ----------
    data, at
        Where it starts.
    wanted
        Which numbers a match captures.
    same
        Which numbers must be the same in all structs of the shape; others may be any.

    Returns
    -------
    None for structs that hold a map, or are too large for this to be of use.
    """
    walk = _Walk(data, wanted, same)
    if walk.value(STRUCT, at, ()) < 0:
        return None
    return Shape(re.compile(b"".join(walk.parts), re.DOTALL), tuple(walk.paths))


_LITERALS = tuple(re.escape(bytes((byte,))) for byte in range(256))


class _Walk:
    def __init__(
        self, data: bytes, wanted: Callable[[Path], bool], same: Callable[[Path], bool]
    ) -> None:
        self.data, self.wanted, self.same = data, wanted, same
        self.parts: list[bytes] = []
        self.paths: list[Path] = []

    def value(self, kind: int, at: int, path: Path) -> int:
        """Take up a value; the first byte behind it, or -1 where there is no shape."""
        if len(self.parts) > _MOST_PARTS:
            return -1
        if kind == STRUCT:
            return self._struct(at, path)
        if kind in {LIST, SET}:
            return self._list(at, path)
        if kind in _NUMBERS:
            return self._number(at, path)
        if kind == BINARY:
            reader = CompactReader(self.data, at)
            size = reader.varint()
            self._literal(at, reader.at)
            return self._any(reader.at, size)
        size = {BYTE: 1, DOUBLE: 8}.get(kind, -1)
        return self._any(at, size) if size > 0 else -1

    def _struct(self, at: int, path: Path) -> int:
        number = 0
        while at >= 0:
            head = self.data[at]
            reader = CompactReader(self.data, at + 1)
            if head:
                number = number + (head >> 4) if head > 0x0F else reader.integer()
            self._literal(at, reader.at)
            at, kind = reader.at, head & 0x0F
            if not head:
                break
            if kind not in {TRUE, FALSE}:  # in a field the type is the value
                at = self.value(kind, at, (*path, number))
        return at

    def _list(self, at: int, path: Path) -> int:
        reader = CompactReader(self.data, at)
        kind, size = reader.items()
        self._literal(at, reader.at)
        at = reader.at
        if kind in {TRUE, FALSE}:
            return self._any(at, size)
        for element in range(size):
            at = self.value(kind, at, (*path, element))
            if at < 0:
                break
        return at

    def _number(self, at: int, path: Path) -> int:
        reader = CompactReader(self.data, at)
        reader.varint()
        if self.same(path):
            self._literal(at, reader.at)
        elif self.wanted(path):
            self.parts.append(b"(" + _VARINT + b")")
            self.paths.append(path)
        else:
            self.parts.append(_VARINT)
        return reader.at

    def _literal(self, start: int, stop: int) -> None:
        if stop == start + 1:
            self.parts.append(_LITERALS[self.data[start]])
        else:
            self.parts.append(re.escape(self.data[start:stop]))

    def _any(self, at: int, size: int) -> int:
        if size:
            self.parts.append(b".{%d}" % size)
        return at + size


def integers(tokens: Sequence[bytes]) -> Ints | None:
    """Signed integers out of varints; None where one is longer than `LONGEST` bytes."""
    octets = np.frombuffer(b"".join(tokens), np.uint8)
    stop = np.flatnonzero(octets < 0x80)
    start = np.concatenate([np.zeros(min(1, len(stop)), np.int64), stop[:-1] + 1])
    return varints(octets, start, stop)


def varints(octets: npt.NDArray[np.uint8], start: Places, stop: Places) -> Ints | None:
    """Signed integers between `start` and `stop`, each end included; None as for `integers`."""
    if not start.size:
        return np.zeros(start.shape, np.int64)
    length = stop - start + 1
    longest = int(length.max())
    if longest > LONGEST:
        return None
    # Eight bytes from each start on, of which what lies behind the end is masked.
    padded = np.zeros(len(octets) + _WORD, np.uint8)
    padded[: len(octets)] = octets
    value = windows(padded, _WORD)[start].view("<u8")[..., 0]
    value &= _KEPT[length]
    # 7 bits of each byte move together: to 14 of two bytes, 28 of four, 56 of eight.
    for low, high, by in _STEPS:
        moved = value & high
        moved >>= by
        value &= low
        value |= moved
    if longest > _WORD:
        ninth = octets[np.minimum(start + _WORD, stop)].astype(np.uint64) << np.uint64(7 * _WORD)
        value |= np.where(length > _WORD, ninth, np.uint64(0))
    sign = (value & _ONE).view(np.int64)
    value >>= _ONE
    found: Ints = value.view(np.int64) ^ -sign
    return found


def windows(octets: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """The bytes from each place on, shape (places, size), without a copy."""
    # As numpy's sliding_window_view, which takes longer for this than most of what is done here.
    return np.ndarray((len(octets) - size + 1, size), np.uint8, octets, 0, (1, 1))


_WORD = 8
_ONE = np.uint64(1)
_KEPT = np.array([(1 << 8 * min(size, _WORD)) - 1 for size in range(LONGEST + 1)], np.uint64)
_STEPS = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(by))
    for low, high, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
