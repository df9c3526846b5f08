"""The Thrift compact protocol, as far as Parquet uses it.

pyarrow decodes footers well, but its Python view of a column chunk ends the process where a
hostile footer makes the C++ side throw. What comal itself needs of a footer is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from comal.errors import InvalidMetadataError

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

_MAX_DEPTH = 32


class CompactReader:
    """Values from the front to the back of `data`.

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
            raise IndexError("byte string ends behind the data")
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

    def numbers(
        self, found: dict[int, int], inner: Mapping[int, Callable[[int], None]] | None = None
    ) -> None:
        """Read a struct of which mostly numbers are wanted.

        Parameters
        ----------
        found
            Takes the integers of the fields that it has already; others are passed over.
        inner
            For some fields what reads their value, given its type.
        """
        data, at, number = self.data, self.at, 0
        while True:
            head = data[at]
            at += 1
            if not head:
                self.at = at
                return
            self.at = at
            number = number + (head >> 4) if head > 0x0F else self.integer()
            kind = head & 0x0F
            if kind in _VARINTS and number in found:
                value = data[self.at]
                self.at += 1
                if value & 0x80:
                    self.at -= 1
                    value = self.varint()
                found[number] = (value >> 1) ^ -(value & 1)
            elif inner is not None and number in inner:
                inner[number](kind)
            else:
                self.at = _BEHIND[kind](data, self.at, 0)
            at = self.at

    def skip(self, kind: int) -> None:
        """Pass over a value that stands in a field."""
        self.at = _BEHIND[kind](self.data, self.at, 0)


# Most of a footer is passed over. These give the first byte behind a value, and call nothing for
# the numbers that most of it is.


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
        raise IndexError("byte string ends behind the data")
    return at + size


def _behind_struct(data: bytes, at: int, depth: int) -> int:
    _check_depth(depth, at)
    while True:
        head = data[at]
        at += 1
        if not head:
            return at
        if head < 0x10:
            at = _behind_varint(data, at, 0)  # the number of the field, where it is far
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
    if kind in {TRUE, FALSE}:
        return at + size  # inside of a list a boolean takes a byte
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
    for _ in range(size):  # every element takes a byte at least, so the data ends this
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
