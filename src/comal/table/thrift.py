"""The Thrift compact protocol, as far as Parquet uses it.

pyarrow decodes footers well, but its Python view of a column chunk ends the process if a hostile
footer makes the C++ side throw. The fields that comal itself needs are read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidMetadataError

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Want = int | dict[int, Any] | tuple[dict[int, Any]]
"""What to read of a field: `I64` for an integer of any width, `BINARY`, `LIST` for the encoded
bytes of a list, fields of a struct, or in a tuple those of all structs of a list."""
Wanted = dict[int, Want]
"""Field numbers, and a `Want` of each."""

_MAX_DEPTH = 32


class Header(NamedTuple):
    """The 32-bit integers of a struct as written: a field may appear twice."""

    numbers: list[tuple[int, int]]
    structs: list[tuple[int, dict[int, int]]]
    """The 32-bit integers of each struct in it, by field."""


class CompactReader:
    """Reads values of `data` in order.

    Raises
    ------
    IndexError
        The bytes end inside a value.
    InvalidMetadataError
        A value that no writer produces: unknown type, depth over 32, integer over 64 bits.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def varint(self) -> int:
        """An unsigned integer of at most 64 bits."""
        data, at = self.data, self.at
        byte = data[at]
        at += 1
        value = byte & 0x7F
        shift = 7
        while byte & 0x80:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63 and (shift > 70 or value >> 64):
                raise InvalidMetadataError("Thrift integer is too long", where=f"byte {at}")
        self.at = at
        return value

    def integer(self) -> int:
        """A signed integer."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        """A byte string."""
        size = self.varint()
        start = self.at
        if start + size > len(self.data):
            raise IndexError("byte string ends after the data")
        self.at = start + size
        return self.data[start : self.at]

    def items(self) -> tuple[int, int]:
        """The head of a list: the type of its elements and how many follow."""
        head = self.data[self.at]
        self.at += 1
        size = head >> 4
        if size == 15:
            size = self.varint()
        if size > len(self.data) - self.at:
            raise IndexError("list is longer than the data")
        return head & 0x0F, size

    def fields(self) -> Iterator[tuple[int, int]]:
        """Id and type of each field of a struct; the caller reads or skips its value."""
        number = 0
        while True:
            head = self.data[self.at]
            self.at += 1
            if head == 0:
                return
            step = head >> 4
            number = number + step if step else self.integer()
            yield number, head & 0x0F

    def header(self) -> Header:
        """The 32-bit integers of a struct and of the structs in it."""
        found = Header([], [])
        self._integers(found.numbers, found.structs)
        return found

    def _integers(
        self, numbers: list[tuple[int, int]], structs: list[tuple[int, dict[int, int]]] | None
    ) -> None:
        # As `struct`: every page of a chunk passes here.
        data, at, number = self.data, self.at, 0
        while head := data[at]:
            self.at = at = at + 1
            if head > 0x0F:
                number += head >> 4
            else:
                number, at = self.integer(), self.at
            kind = head & 0x0F
            if kind == I32:
                value = data[at]
                at += 1
                if value & 0x80:
                    value, at = self.varint(), self.at
                numbers.append((number, (value >> 1) ^ -(value & 1)))
            elif kind == STRUCT and structs is not None:
                inner: list[tuple[int, int]] = []
                self._integers(inner, None)
                structs.append((number, dict(inner)))
                at = self.at
            else:
                at = _BEHIND[kind](data, at, 0)
        self.at = at + 1

    def struct(self, wanted: Wanted) -> dict[int, Any]:
        """The wanted fields of a struct; the last one if a field appears twice, as others read it.

        Fields that are absent or of another type are missing.
        """
        data, at, number = self.data, self.at, 0
        found: dict[int, Any] = {}
        while head := data[at]:
            at += 1
            if head > 0x0F:
                number += head >> 4
            else:
                self.at = at
                number, at = self.integer(), self.at
            kind, want = head & 0x0F, wanted.get(number)
            if want is None:
                at = _BEHIND[kind](data, at, 0)
            elif kind in _VARINTS and want == I64:
                value = data[at]
                self.at = at
                if value & 0x80:
                    value = self.varint()
                    at = self.at
                else:
                    at += 1
                found[number] = (value >> 1) ^ -(value & 1)
            else:
                self.at = at
                content = self._value(kind, want)
                if content is not None:
                    found[number] = content
                at = self.at
        self.at = at + 1
        return found

    def structs(self, wanted: Wanted) -> list[dict[int, Any]]:
        """The wanted fields of each struct of a list."""
        return [self.struct(wanted) for _ in range(self.count())]

    def count(self) -> int:
        """The head of a list of structs: how many follow."""
        return self._items_of(frozenset({STRUCT}))

    def numbers(self) -> list[int]:
        """The integers of a list."""
        return [self.integer() for _ in range(self._items_of(_VARINTS))]

    def _items_of(self, kinds: frozenset[int]) -> int:
        kind, size = self.items()
        if kind not in kinds and size:
            raise InvalidMetadataError("Thrift list has another type", where=f"byte {self.at}")
        return size

    def _value(self, kind: int, want: Want) -> Any:
        if isinstance(want, tuple) and kind == LIST:
            return self.structs(want[0])
        if isinstance(want, dict) and kind == STRUCT:
            return self.struct(want)
        if want == kind == BINARY:
            return self.binary()
        start = self.at
        self.skip(kind)
        return self.data[start : self.at] if want == kind == LIST else None

    def skip(self, kind: int) -> None:
        """Skip the value of a field."""
        self.at = _BEHIND[kind](self.data, self.at, 0)


# Most of a footer is skipped. These functions return the position after a value, and call nothing
# for numbers, which are most of it.


def _behind_flag(_data: bytes, at: int, _depth: int) -> int:
    return at  # in a field the type is the value


def _behind_byte(_data: bytes, at: int, _depth: int) -> int:
    return at + 1


def _behind_double(_data: bytes, at: int, _depth: int) -> int:
    return at + 8


def _behind_varint(data: bytes, at: int, _depth: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _behind_binary(data: bytes, at: int, _depth: int) -> int:
    size = data[at]
    at += 1
    if size & 0x80:
        reader = CompactReader(data, at - 1)
        size, at = reader.varint(), reader.at
    if size > len(data) - at:
        raise IndexError("byte string ends after the data")
    return at + size


def _behind_struct(data: bytes, at: int, depth: int) -> int:
    _check_depth(depth, at)
    while True:
        head = data[at]
        at += 1
        if not head:
            return at
        if head < 0x10:
            at = _behind_varint(data, at, 0)  # the field number, if the delta is large
        kind = head & 0x0F
        if kind in _VARINTS:
            while data[at] & 0x80:
                at += 1
            at += 1
        else:
            at = _BEHIND[kind](data, at, depth + 1)


def _behind_list(data: bytes, at: int, depth: int) -> int:
    _check_depth(depth, at)
    head = data[at]
    size, kind = head >> 4, head & 0x0F
    at += 1
    if size == 15:
        reader = CompactReader(data, at)
        size, at = reader.varint(), reader.at
    if size > len(data) - at:
        raise IndexError("list is longer than the data")
    if kind in {TRUE, FALSE} or (kind in _VARINTS and data[at : at + size].isascii()):
        return at + size  # in a list a boolean takes a byte, and so does a small number
    behind = _BEHIND[kind]
    for _ in range(size):
        at = behind(data, at, depth + 1)
    return at


def _behind_map(data: bytes, at: int, depth: int) -> int:
    _check_depth(depth, at)
    reader = CompactReader(data, at)
    size, at = reader.varint(), reader.at
    if not size:
        return at
    kinds = data[at] >> 4, data[at] & 0x0F
    at += 1
    for _ in range(size):  # every element takes at least a byte, so the end of data stops this
        for kind in kinds:
            at = at + 1 if kind in {TRUE, FALSE} else _BEHIND[kind](data, at, depth + 1)
        if at > len(data):
            raise IndexError("map is longer than the data")
    return at


def _check_depth(depth: int, at: int) -> None:
    if depth >= _MAX_DEPTH:
        raise InvalidMetadataError("Thrift value is nested too deep", where=f"byte {at}")


def _behind_unknown(_data: bytes, at: int, _depth: int) -> int:
    raise InvalidMetadataError("unknown Thrift type", where=f"byte {at}")


_VARINTS = frozenset({I16, I32, I64})
_BEHIND: tuple[Callable[[bytes, int, int], int], ...] = (
    _behind_unknown,
    _behind_flag,
    _behind_flag,
    _behind_byte,
    _behind_varint,
    _behind_varint,
    _behind_varint,
    _behind_double,
    _behind_binary,
    _behind_list,
    _behind_list,
    _behind_map,
    _behind_struct,
    _behind_unknown,
    _behind_unknown,
    _behind_unknown,
)


# -- many structs at once --------------------------------------------------------------------------


Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64] | npt.NDArray[np.int32]
Path = tuple[int, ...]
"""Field numbers, and indices of list elements, from the outermost to the innermost."""

LONGEST = 9
"""Bytes of the longest varint, so that no value exceeds 63 bits; longer ones match nothing."""
_NUMBERS = frozenset({I16, I32, I64})
_VARINT = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_MOST_PARTS = 1500


@dataclass(frozen=True, slots=True)
class Shape:
    """The common pattern of similar structs."""

    pattern: re.Pattern[bytes]
    paths: tuple[Path, ...]
    """Of the numbers that a match captures, in order."""


def shape_of(
    data: bytes, at: int, wanted: Callable[[Path], bool], same: Callable[[Path], bool]
) -> Shape | None:
    """The shape of a struct that starts at `at` and has been read without an error before.

    `wanted` selects the numbers to capture, `same` those that must be the same in all structs of
    the shape. None for structs that hold a map, or are too large for this to be useful.
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
        """Add a value; returns the position after it, or -1 if there is no shape."""
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
    """Signed integers from varints; None if one is longer than `LONGEST` bytes."""
    octets = np.frombuffer(b"".join(tokens), np.uint8)
    stop = np.flatnonzero(octets < 0x80)
    start = np.concatenate([np.zeros(min(1, len(stop)), np.int64), stop[:-1] + 1])
    return varints(octets, start, stop)


def varints(octets: npt.NDArray[np.uint8], start: Places, stop: Places) -> Ints | None:
    """Signed integers from `start` to `stop`, both included; None as for `integers`."""
    if not start.size:
        return np.zeros(start.shape, np.int64)
    length = stop - start + 1
    longest = int(length.max())
    if longest > LONGEST:
        return None
    # Eight bytes from each start; those behind the end are masked.
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
    """The bytes from each position on, shape (positions, size), without a copy."""
    # As numpy's sliding_window_view, which takes longer than most of the work here.
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
