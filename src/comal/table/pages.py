"""How much a column chunk can become when it is decoded, from the headers of its pages."""

from __future__ import annotations

from dataclasses import dataclass, field

from comal.errors import InvalidMetadataError, translated
from comal.table.thrift import I32, STRUCT, CompactReader

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
