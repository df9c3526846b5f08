"""The Thrift compact protocol, as far as Parquet uses it.

pyarrow decodes footers well, but its Python view of a column chunk ends the process where a
hostile footer makes the C++ side throw. What comal itself needs of a footer is read here.
"""

from __future__ import annotations

from collections.abc import Iterator

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
            if shift > 70:
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

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a value that stands in a field."""
        if kind in {TRUE, FALSE}:
            return  # the type is the value
        if kind in {I16, I32, I64}:
            self.varint()
        elif kind == BINARY:
            self.binary()
        elif kind in {BYTE, DOUBLE}:
            self.at += 1 if kind == BYTE else 8
        elif kind in {LIST, SET, MAP, STRUCT} and depth < _MAX_DEPTH:
            self._skip_nested(kind, depth + 1)
        else:
            raise InvalidMetadataError(
                "unknown Thrift type, or nested too deep", where=f"byte {self.at}", found=kind
            )

    def _skip_nested(self, kind: int, depth: int) -> None:
        if kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth)
        elif kind == MAP:
            self._skip_map(depth)
        else:
            inner, size = self.items()
            for _ in range(size):
                self._skip_element(inner, depth)

    def _skip_map(self, depth: int) -> None:
        size = self.varint()
        if not size:
            return
        kinds = self.data[self.at]
        self.at += 1
        for _ in range(size):  # every element takes a byte at least, so the data ends this
            self._skip_element(kinds >> 4, depth)
            self._skip_element(kinds & 0x0F, depth)
            if self.at > len(self.data):
                raise IndexError("map is longer than the data")

    def _skip_element(self, kind: int, depth: int) -> None:
        if kind in {TRUE, FALSE}:
            self.at += 1  # inside a list a boolean takes a byte
        else:
            self.skip(kind, depth)
