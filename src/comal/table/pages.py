"""How much a column chunk can become when it is decoded, from the headers of its pages."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from isal import isal_zlib

from comal.errors import InvalidMetadataError, translated
from comal.table.thrift import FALSE, I32, STRUCT, TRUE, CompactReader

_DICTIONARY = frozenset({2, 8})
"""PLAIN_DICTIONARY and RLE_DICTIONARY."""
_DELTA_BYTE_ARRAY = 7
_DICTIONARY_PAGE = 2
_DICTIONARY_HEADER = 7
"""The type of a page in a PageHeader, and the field that such a page has."""
_ENCODING_FIELD = {5: 2, 8: 4}
"""DataPageHeader and DataPageHeaderV2 in a PageHeader, and where each says its encoding."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """What bounds the decoded size of a chunk of byte arrays.

    A decompressor gives exactly what a page header states, or fails, so no value is longer than
    the largest page. Only a dictionary or shared prefixes make more bytes than the pages hold.
    """

    largest: int
    """Bytes of the largest page."""
    total: int
    """Bytes of all pages."""
    dictionary: int
    """Bytes of the dictionary in which values are looked up, 0 where there is none."""
    prefixes: bool
    """Whether values share their beginnings (DELTA_BYTE_ARRAY)."""
    lookups: bool
    """Whether every value is looked up in a dictionary, so that as one it is decoded soonest."""
    values: int
    """Values of all data pages, nulls included; what a footer says of them may be wrong."""


def expansion(chunk: bytes, where: str) -> Expansion:
    """Walk over the page headers of a column chunk."""
    sizes = [0]
    encodings: set[int] = set()
    values = dictionary = 0
    reader = CompactReader(chunk)
    with translated({IndexError: InvalidMetadataError}, "page header is broken", where=where):
        while reader.at < len(chunk):
            page = _page_header(reader)
            if page.stored < 0 or page.size < 0 or min(page.values, default=0) < 0:
                raise InvalidMetadataError("page of a negative size", where=where)
            reader.at += page.stored
            # Without a codec a page is what is stored, whatever else its header says.
            size = max(page.size, page.stored)
            sizes.append(size)
            encodings.update(page.encodings)
            values += sum(page.values)
            if page.dictionary:
                dictionary = max(dictionary, size)
    return Expansion(
        max(sizes),
        sum(sizes),
        max(1, dictionary) if encodings & _DICTIONARY else 0,
        _DELTA_BYTE_ARRAY in encodings,
        bool(encodings) and encodings <= _DICTIONARY,
        values,
    )


@dataclass(slots=True)
class _Page:
    """What a page header says, with everything that any reader could take for true."""

    size: int = 0
    stored: int = 0
    dictionary: bool = False
    encodings: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)


def _page_header(reader: CompactReader) -> _Page:
    """PageHeader: 1 type, 2 uncompressed_page_size, 3 compressed_page_size, 7 dictionary."""
    page = _Page()
    for number, kind in reader.fields():
        if number == 1 and kind == I32:
            page.dictionary |= reader.integer() == _DICTIONARY_PAGE
        elif number == 2 and kind == I32:
            page.size = reader.integer()
        elif number == 3 and kind == I32:
            page.stored = reader.integer()
        elif number in _ENCODING_FIELD and kind == STRUCT:
            encoding, values = _data_page(reader, _ENCODING_FIELD[number])
            page.encodings.append(encoding)
            page.values.append(values)
        else:
            page.dictionary |= number == _DICTIONARY_HEADER
            reader.skip(kind)
    return page


def _data_page(reader: CompactReader, place: int) -> tuple[int, int]:
    """DataPageHeader or V2: 1 num_values, and the encoding at `place`."""
    found = {place: -1, 1: 0}
    for number, kind in reader.fields():
        if number in found and kind == I32:
            found[number] = reader.integer()
        else:
            reader.skip(kind)
    return found[place], found[1]


# -- pages of one value ----------------------------------------------------------------------------


_DATA_PAGE, _DATA_PAGE_V2 = 0, 3
_V1_FIELD, _V2_FIELD = 5, 8
_PLAIN, _RLE = 0, 3
_LEVEL_OF_VALUE = b"\x02\x00\x00\x00\x02\x01"
"""Definition levels of one value that is there: four bytes of size, a run of one, level 1."""
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What the header of a data page says."""

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
        Broken, or no data page.
    """
    reader = CompactReader(data)
    numbers = {1: -1, 2: -1, 3: -1, 4: 0}
    checksum = False
    inner: dict[int, dict[int, int]] = {}
    with translated({IndexError: InvalidMetadataError}, "page header is broken", where=where):
        for number, kind in reader.fields():
            if number in numbers and kind == I32:
                numbers[number] = reader.integer()
                checksum |= number == 4
            elif number in {_V1_FIELD, _V2_FIELD} and kind == STRUCT:
                inner[number] = _numbers(reader)
            else:
                reader.skip(kind)
    version = {_DATA_PAGE: 1, _DATA_PAGE_V2: 2}.get(numbers[1])
    fields = inner.get(_V1_FIELD if version == 1 else _V2_FIELD)
    stored = numbers[3]
    if version is None or fields is None or not 0 <= stored <= _LARGEST:
        raise InvalidMetadataError(
            "not a data page", where=where, found=f"type {numbers[1]}, {stored} bytes"
        )
    if numbers[2] != stored:
        raise InvalidMetadataError(
            "page without codec has two sizes", where=where, found=f"{numbers[2]} and {stored}"
        )
    return PageHeader(
        reader.at,
        stored,
        fields.get(1, -1),
        fields.get(2 if version == 1 else 4, -1),
        version,
        numbers[4] & 0xFFFFFFFF if checksum else None,
        (fields.get(6, 0), fields.get(5, 0)) if version == 2 else (0, 0),
    )


def _numbers(reader: CompactReader) -> dict[int, int]:
    """The 32-bit integers of a struct, by field."""
    found: dict[int, int] = {}
    for number, kind in reader.fields():
        if kind == I32:
            found[number] = reader.integer()
        elif kind not in {TRUE, FALSE}:
            reader.skip(kind)
    return found


def one_value(
    page: bytes, where: str, *, required: bool = False, verify: bool = True
) -> bytes | None:
    """The value of a page that holds one row; None for NULL.

    Parameters
    ----------
    page
        Header and body, no more.
    where
        What an error calls the page.
    required
        Whether the column has no NULLs, and so no levels.
    verify
        Whether the checksum is compared where the page has one.

    Raises
    ------
    InvalidMetadataError
        Another kind of page, lengths that do not add up, or a wrong checksum.
    """
    header = read_page_header(page, where)
    if header.size + header.stored != len(page):
        raise InvalidMetadataError(
            "page has another size than its index says",
            where=where,
            found=header.size + header.stored,
            expected=len(page),
        )
    if header.values != 1 or header.encoding != _PLAIN:
        raise InvalidMetadataError(
            "page does not hold one plain value",
            where=where,
            found=f"{header.values} values in encoding {header.encoding}",
        )
    if verify and header.checksum is not None:
        check_crc(page, header.size, header.checksum, where)
    at, there = _levels(page, header, where, required=required)
    if not there:
        if at != len(page):
            raise InvalidMetadataError("page of a NULL holds a value", where=where)
        return None
    size = int.from_bytes(page[at : at + 4], "little")
    if at + 4 + size != len(page):
        raise InvalidMetadataError(
            "value does not fill its page", where=where, found=size, expected=len(page) - at - 4
        )
    return page[at + 4 :]


def check_crc(page: bytes, start: int, expected: int, where: str) -> None:
    """Compare the checksum of the body of a page, which starts at `start`."""
    found = isal_zlib.crc32(memoryview(page)[start:])
    if found != expected:
        raise InvalidMetadataError(
            "page has another checksum",
            where=where,
            found=f"{found:08x}",
            expected=f"{expected:08x}",
        )


def _levels(page: bytes, header: PageHeader, where: str, *, required: bool) -> tuple[int, bool]:
    """Where the value starts, and whether there is one."""
    at = header.size
    if header.version == 2:
        repetition, size = header.levels
        if repetition or size < 0 or at + size > len(page):
            raise InvalidMetadataError("levels do not fit their page", where=where)
        begin, end = at, at + size
    elif required:
        begin = end = at
    else:
        size = int.from_bytes(page[at : at + 4], "little")
        begin, end = at + 4, at + 4 + size
        if end > len(page):
            raise InvalidMetadataError("levels do not fit their page", where=where)
    if required:
        return end, True
    return end, _first_level(page[begin:end], where)


def _first_level(levels: bytes, where: str) -> bool:
    """The first level of a run of one bit each (RLE, or bits packed in eights)."""
    with translated({IndexError: InvalidMetadataError}, "levels are broken", where=where):
        reader = CompactReader(levels)
        head = reader.varint()
        level = levels[reader.at]
    if head < 2 or (not head & 1 and level > 1):
        raise InvalidMetadataError("levels are broken", where=where, found=levels[:8].hex())
    return bool(level & 1)


class OneValueReader:
    """`one_value` for many pages of one column, whose headers differ in nothing but sizes.

    What a page of a given length must start with is known beforehand, so that it takes a
    comparison to read it; a page that starts otherwise is read in full.
    """

    __slots__ = ("_checked", "_levels", "_required", "_rest", "_shape", "_usual")

    def __init__(self, *, required: bool = False) -> None:
        self._required = required
        self._levels = b"" if required else _LEVEL_OF_VALUE
        self._usual = True
        self._expect(checked=False)

    def _expect(self, *, checked: bool) -> None:
        """How pages of most sizes start: those from 8 KiB to 1 MiB have sizes of three bytes."""
        self._checked = checked
        self._rest = (_AFTER_CRC if checked else _AFTER_SIZES) + self._levels
        crc = f"s{_CRC - 1}s" if checked else "0s0s"
        self._shape = struct.Struct(f"<3s3ss3s{crc}{len(self._rest)}sI")

    def value(self, page: bytes, where: str, *, verify: bool = True) -> bytes | None:
        """As `one_value`."""
        at = self.head
        if self._usual and len(page) > _MOST_START and self._is_start(page, len(page) - at):
            if self._checked and verify:
                check_crc(page, at - 4 - len(self._levels), _checksum(page[_CRC_AT]), where)
            return page[at:]
        return self._value(page, where, verify=verify)

    @property
    def head(self) -> int:
        """Bytes in front of the value in pages of most sizes; see `is_value`."""
        return self._shape.size

    def is_value(self, start: bytes, value: bytes, *, verify: bool = True) -> bool:
        """Whether a page of the usual kind was read in two, so that `value` needs no copy.

        The start has `head` bytes. What is no such page, or has another checksum, may still be
        one that `value` reads, or tells what is wrong with. Without `verify` the checksum is not
        compared.
        """
        if not self._usual or not self._is_start(start, len(value)):
            return False
        if not self._checked or not verify:
            return True
        body = start[len(start) - 4 - len(self._levels) :]
        found = isal_zlib.crc32(value, isal_zlib.crc32(body))
        return bool(found == _checksum(start[_CRC_AT]))

    def _is_start(self, page: bytes, size: int) -> bool:
        """Whether a page starts as it must in front of a value of `size` bytes."""
        kind, stored, head, again, mark, crc, rest, length = self._shape.unpack_from(page)
        return bool(
            kind == b"\x15\0\x15"
            and stored == again
            and head == b"\x15"
            and rest == self._rest
            and length == size
            and stored == _varint3(2 * (length + 4 + len(self._levels)))
            and (not crc or _is_checksum(mark + crc))
        )

    def _value(self, page: bytes, where: str, *, verify: bool) -> bytes | None:
        """As `value`, for pages of any size."""
        if not self._usual:
            return one_value(page, where, required=self._required, verify=verify)
        crc = b""
        if self._checked:
            # The checksum stands behind both sizes, each with a head. One in sixteen is shorter.
            at = 4 + 2 * _varint_size(page, 3)
            crc = page[at : at + 1 + _varint_size(page, at + 1)]
        start = self._start(len(page), crc)
        if page.startswith(start) and (not crc or crc[0] == _I32_NEXT):
            if crc and verify:
                check_crc(page, len(start) - len(self._levels) - 4, _checksum(crc), where)
            return page[len(start) :]
        value = one_value(page, where, required=self._required, verify=verify)
        header = read_page_header(page, where)
        self._expect(checked=header.checksum is not None)
        self._usual = header.version == 1
        return value

    def _start(self, total: int, crc: bytes) -> bytes:
        """What a page of `total` bytes that holds a value starts with."""
        width = _size_bytes(total - _FIXED - len(crc))
        stored = total - _FIXED - len(crc) - 2 * width
        rest = stored - len(self._levels) - 4
        if rest < 0:
            return _NOTHING
        size = _varint(2 * stored)
        after = _AFTER_CRC if crc else _AFTER_SIZES
        length = rest.to_bytes(4, "little")
        return b"".join((b"\x15\0\x15", size, b"\x15", size, crc, after, self._levels, length))


_FIXED = 15
"""Bytes of the usual header beside its sizes and its checksum."""
_CRC = 6
"""Bytes of the usual checksum with its head."""
_I32_NEXT = 0x15
"""Head of a 32-bit integer whose field number is one above that of the field before it."""
_CRC_AT = slice(10, 10 + _CRC)
"""Where it stands behind sizes of three bytes."""
_AFTER_SIZES = b"\x2c\x15\x02\x15\0\x15\x06\x15\x06\0\0"
_AFTER_CRC = b"\x1c" + _AFTER_SIZES[1:]
_NOTHING = b"\xff"
_MOST_START = 64
"""Bytes that hold the start of any usual page."""
_STEPS = ((1 << 6, 1), (1 << 13, 2), (1 << 20, 3), (1 << 27, 4))


def _size_bytes(room: int) -> int:
    """Bytes of the size of a page that shares `room` bytes with its size, which stands twice."""
    for limit, width in _STEPS:
        if room - 2 * width < limit:
            return width
    return 5


def _varint_size(data: bytes, at: int) -> int:
    """Bytes of the varint at a place; 0 where more than five go on."""
    for size in range(1, 6):
        if data[at + size - 1 : at + size] < b"\x80":
            return size
    return 0


def _varint3(value: int) -> bytes:
    """A varint of three bytes, or of four where the value does not fit."""
    value = value & 0x7F | (value & 0x3F80) << 1 | (value >> 14) << 16 | 0x8080
    return value.to_bytes(4 if value >> 24 else 3, "little")


def _is_checksum(field: bytes) -> bool:
    """Whether this is a field whose varint fills five bytes, as nearly all checksums do."""
    inner = field[1] & field[2] & field[3] & field[4]
    return bool(field[0] == 0x15 and inner & 0x80 and field[5] < 0x80)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _checksum(field: bytes) -> int:
    """The checksum in a signed varint of up to five bytes behind its head."""
    packed = int.from_bytes(field[1:], "little")
    value = (
        packed & 0x7F
        | packed >> 1 & 0x7F << 7
        | packed >> 2 & 0x7F << 14
        | packed >> 3 & 0x7F << 21
        | packed >> 4 & 0x7F << 28
    )
    return ((value >> 1) ^ -(value & 1)) & 0xFFFFFFFF
