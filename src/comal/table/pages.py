"""Pages of column chunks: how large they can become, and the value of one-value pages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from isal import isal_zlib

from comal.errors import InvalidMetadataError, reason_of
from comal.table.thrift import CompactReader

_DICTIONARY = frozenset({2, 8})
"""PLAIN_DICTIONARY and RLE_DICTIONARY."""
_DELTA_BYTE_ARRAY = 7
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_V1_FIELD, _DICTIONARY_FIELD, _V2_FIELD = 5, 7, 8
"""The page types of a PageHeader, and the fields with their headers."""
_ENCODING = {_V1_FIELD: 2, _V2_FIELD: 4}
"""The fields of DataPageHeader and DataPageHeaderV2 with the encoding."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """Bounds of the decoded size of a chunk of byte arrays.

    A decompressor returns exactly as many bytes as a page header states, or fails, so no value is
    longer than the largest page. Only a dictionary or shared prefixes give more bytes than pages.
    """

    largest: int
    """Bytes of the largest page."""
    total: int
    """Bytes of all pages."""
    dictionary: int
    """Bytes of the dictionary in which values are looked up, 0 without one."""
    prefixes: bool
    """Whether values share prefixes (DELTA_BYTE_ARRAY)."""
    lookups: bool
    """Whether every value is looked up in a dictionary, so that decoding as one is fastest."""
    values: int
    """Values of all data pages, nulls included; the count in the footer may be wrong."""


def _broken(what: str, where: str, error: IndexError) -> InvalidMetadataError:
    return InvalidMetadataError(what, where=where, found=reason_of(error))


def expansion(chunk: bytes, where: str) -> Expansion:
    """Read the page headers of a column chunk, believing whatever makes it larger.

    A field may appear twice, and readers differ in which one they use.
    """
    sizes = [0]
    encodings: set[int] = set()
    values = dictionary = 0
    reader = CompactReader(chunk)
    while reader.at < len(chunk):
        try:
            header = reader.header()
        except IndexError as error:
            raise _broken("the page header is broken", where, error) from error
        numbers = dict(header.numbers)
        inflated, stored = numbers.get(2, 0), numbers.get(3, 0)
        least = min(inflated, stored)
        is_dictionary = (1, _DICTIONARY_PAGE) in header.numbers
        for number, fields in header.structs:
            is_dictionary |= number == _DICTIONARY_FIELD
            if number in _ENCODING:
                encodings.add(fields.get(_ENCODING[number], -1))
                values += fields.get(1, 0)
                least = min(least, fields.get(1, 0))
        if least < 0:
            raise InvalidMetadataError("the page has a negative size", where=where)
        # Without a codec the size of a page is its stored size, whatever else its header says.
        sizes.append(max(inflated, stored))
        if is_dictionary:
            dictionary = max(dictionary, sizes[-1])
        reader.at += stored
    return Expansion(
        max(sizes),
        sum(sizes),
        max(1, dictionary) if encodings & _DICTIONARY else 0,
        _DELTA_BYTE_ARRAY in encodings,
        bool(encodings) and encodings <= _DICTIONARY,
        values,
    )


# -- pages of one value ----------------------------------------------------------------------------


_PLAIN = 0
_LEVEL_OF_VALUE = b"\x02\x00\x00\x00\x02\x01"
"""Definition levels of one value that is not null: four bytes of size, a run of one, level 1."""
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PageHeader:
    """The contents of the header of a data page."""

    size: int
    """Bytes of the header itself."""
    stored: int
    """Bytes of the page behind it."""
    values: int
    encoding: int
    version: int
    """1 or 2."""
    checksum: int | None
    """CRC-32 of the stored bytes."""
    levels: tuple[int, int]
    """Bytes of repetition and definition levels (version 2)."""


def read_page_header(data: bytes, where: str) -> PageHeader:
    """PageHeader: 1 type, 2 and 3 sizes, 4 crc, 5 and 8 the headers of data pages.

    Raises
    ------
    InvalidMetadataError
        A broken header, or not a data page.
    """
    reader = CompactReader(data)
    try:
        found = reader.header()
    except IndexError as error:
        raise _broken("the page header is broken", where, error) from error
    numbers = {1: -1, 2: -1, 3: -1, **dict(found.numbers)}
    version = {_DATA_PAGE: 1, _DATA_PAGE_V2: 2}.get(numbers[1])
    fields = dict(found.structs).get(_V1_FIELD if version == 1 else _V2_FIELD)
    stored = numbers[3]
    if version is None or fields is None or not 0 <= stored <= _LARGEST:
        raise InvalidMetadataError(
            "not a data page", where=where, found=f"type {numbers[1]}, {stored} bytes"
        )
    if numbers[2] != stored:
        raise InvalidMetadataError(
            "an uncompressed page has two sizes", where=where, found=f"{numbers[2]} and {stored}"
        )
    return PageHeader(
        reader.at,
        stored,
        fields.get(1, -1),
        fields.get(_ENCODING[_V1_FIELD if version == 1 else _V2_FIELD], -1),
        version,
        numbers[4] & 0xFFFFFFFF if 4 in numbers else None,
        (fields.get(6, 0), fields.get(5, 0)) if version == 2 else (0, 0),
    )


def one_value(
    page: bytes, where: str, *, required: bool = False, verify: bool = True
) -> bytes | None:
    """The value of a page, header and body, that holds exactly one row; None for NULL.

    A `required` column has no NULLs, and so no levels. Without `verify` the checksum is not
    compared.

    Raises
    ------
    InvalidMetadataError
        Another kind of page, lengths that do not add up, or a wrong checksum.
    """
    header = read_page_header(page, where)
    if header.size + header.stored != len(page):
        raise InvalidMetadataError(
            "the page does not have the size that its index says",
            where=where,
            found=header.size + header.stored,
            expected=len(page),
        )
    if header.values != 1 or header.encoding != _PLAIN:
        raise InvalidMetadataError(
            "the page does not hold one plain value",
            where=where,
            found=f"{header.values} values in encoding {header.encoding}",
        )
    if verify and header.checksum is not None:
        check_crc(page, header.size, header.checksum, where)
    at, there = _levels(page, header, where, required=required)
    if not there:
        if at != len(page):
            raise InvalidMetadataError("the page of a NULL holds a value", where=where)
        return None
    size = int.from_bytes(page[at : at + 4], "little")
    if at + 4 + size != len(page):
        raise InvalidMetadataError(
            "the value does not fill its page", where=where, found=size, expected=len(page) - at - 4
        )
    return page[at + 4 :]


def check_crc(page: bytes, start: int, expected: int, where: str) -> None:
    """Check the checksum of the body of a page, which starts at `start`."""
    found = isal_zlib.crc32(memoryview(page)[start:])
    if found != expected:
        raise InvalidMetadataError(
            "the page does not match its checksum",
            where=where,
            found=f"{found:08x}",
            expected=f"{expected:08x}",
        )


def _levels(page: bytes, header: PageHeader, where: str, *, required: bool) -> tuple[int, bool]:
    """The position of the value, and whether there is one."""
    at = header.size
    if header.version == 2:
        repetition, size = header.levels
        if repetition or size < 0 or at + size > len(page):
            raise InvalidMetadataError("the levels do not fit their page", where=where)
        begin, end = at, at + size
    elif required:
        begin = end = at
    else:
        size = int.from_bytes(page[at : at + 4], "little")
        begin, end = at + 4, at + 4 + size
        if end > len(page):
            raise InvalidMetadataError("the levels do not fit their page", where=where)
    if required:
        return end, True
    return end, _first_level(page[begin:end], where)


def _first_level(levels: bytes, where: str) -> bool:
    """The first level of a run of one-bit levels (RLE, or bit-packed in eights)."""
    reader = CompactReader(levels)
    try:
        head = reader.varint()
        level = levels[reader.at]
    except IndexError as error:
        raise _broken("the levels are broken", where, error) from error
    if head < 2 or (not head & 1 and level > 1):
        raise InvalidMetadataError("the levels are broken", where=where, found=levels[:8].hex())
    return bool(level & 1)


_VARINT = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
_DATA_HEADER = b"\x15\x02\x15\0\x15\x06\x15\x06\0\0"
"""DataPageHeader of one plain value with levels in RLE, and the end of the page header."""


def _start_of(levels: bytes) -> re.Pattern[bytes]:
    """Pattern of the start of a page of one value; captures its size, checksum and length."""
    sizes = rb"\x15\x00\x15(" + _VARINT + rb")\x15\1"
    checksum = rb"(?:\x15(" + _VARINT + rb")\x1c|\x2c)"
    return re.compile(sizes + checksum + re.escape(_DATA_HEADER + levels) + rb"(.{4})", re.DOTALL)


_STARTS = {True: _start_of(b""), False: _start_of(_LEVEL_OF_VALUE)}
"""By whether the column is required."""


class OneValueReader:
    """`one_value` for many pages of one column.

    The start of a page of most writers matches a pattern, so that one match reads it; pages with
    any other start are read in full.
    """

    __slots__ = ("_behind", "_required", "_start", "head")

    def __init__(self, *, required: bool = False) -> None:
        self._required = required
        self._start = _STARTS[required]
        self._behind = 4 if required else 4 + len(_LEVEL_OF_VALUE)
        self.head = 0
        """Bytes before the value in a recent page, as a guess for others; see `is_value`.

        Threads share a reader, so this may change at any time: take it once.
        """

    def value(self, page: bytes, where: str, *, verify: bool = True) -> bytes | None:
        """As `one_value`."""
        match = self._start.match(page)
        if match is None or not self._fits(match, len(page) - match.end()):
            return one_value(page, where, required=self._required, verify=verify)
        self.head = head = match.end()
        if verify and match[2] is not None:
            check_crc(page, head - self._behind, _checksum(match[2]), where)
        return page[head:]

    def is_value(self, start: bytes, value: bytes, *, verify: bool = True) -> bool:
        """Whether a separately read start and value are a usual page: then no copy is needed.

        The start has as many bytes as `head` had. If this returns False, `value` may still read the
        page, or raises an error that says what is wrong. Without `verify` the checksum is not
        compared.
        """
        match = self._start.fullmatch(start)
        if match is None or not self._fits(match, len(value)):
            return False
        if not verify or match[2] is None:
            return True
        found = isal_zlib.crc32(value, isal_zlib.crc32(start[-self._behind :]))
        return bool(found == _checksum(match[2]))

    def _fits(self, match: re.Match[bytes], size: int) -> bool:
        """Whether a start is that of a value of `size` bytes; sizes are stored doubled."""
        length = int.from_bytes(match[3], "little")
        return length == size and _unsigned(match[1]) == 2 * (length + self._behind)


def _unsigned(varint: bytes) -> int:
    """The number in a varint of up to five bytes."""
    packed = int.from_bytes(varint, "little")
    return (
        packed & 0x7F
        | packed >> 1 & 0x7F << 7
        | packed >> 2 & 0x7F << 14
        | packed >> 3 & 0x7F << 21
        | packed >> 4 & 0x7F << 28
    )


def _checksum(varint: bytes) -> int:
    value = _unsigned(varint)
    return ((value >> 1) ^ -(value & 1)) & 0xFFFFFFFF
