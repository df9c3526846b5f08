"""How much a column chunk can become when it is decoded, from the headers of its pages."""

from __future__ import annotations

from dataclasses import dataclass

from comal.errors import InvalidMetadataError, translated
from comal.table.thrift import I32, STRUCT, CompactReader

_DICTIONARY = frozenset({2, 8})
"""PLAIN_DICTIONARY and RLE_DICTIONARY."""
_DELTA_BYTE_ARRAY = 7
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
    dictionary: bool
    """Whether values are looked up in a dictionary."""
    prefixes: bool
    """Whether values share their beginnings (DELTA_BYTE_ARRAY)."""
    values: int
    """Values of all data pages, nulls included; what a footer says of them may be wrong."""


def expansion(chunk: bytes, where: str) -> Expansion:
    """Walk over the page headers of a column chunk."""
    sizes = [0]
    values = 0
    encodings = set()
    reader = CompactReader(chunk)
    with translated({IndexError: InvalidMetadataError}, "page header is broken", where=where):
        while reader.at < len(chunk):
            size, stored, encoding, count = _page_header(reader)
            if stored < 0 or size < 0 or count < 0:
                raise InvalidMetadataError("page of a negative size", where=where)
            reader.at += stored
            sizes.append(size)
            encodings.add(encoding)
            values += count
    return Expansion(
        max(sizes),
        sum(sizes),
        bool(encodings & _DICTIONARY),
        _DELTA_BYTE_ARRAY in encodings,
        values,
    )


def _page_header(reader: CompactReader) -> tuple[int, int, int, int]:
    """PageHeader: 2 uncompressed_page_size, 3 compressed_page_size; encoding and values."""
    size = stored = values = 0
    encoding = -1
    for number, kind in reader.fields():
        if number == 2 and kind == I32:
            size = reader.integer()
        elif number == 3 and kind == I32:
            stored = reader.integer()
        elif number in _ENCODING_FIELD and kind == STRUCT:
            encoding, values = _data_page(reader, _ENCODING_FIELD[number])
        else:
            reader.skip(kind)
    return size, stored, encoding, values


def _data_page(reader: CompactReader, place: int) -> tuple[int, int]:
    """DataPageHeader or V2: 1 num_values, and the encoding at `place`."""
    found = {place: -1, 1: 0}
    for number, kind in reader.fields():
        if number in found and kind == I32:
            found[number] = reader.integer()
        else:
            reader.skip(kind)
    return found[place], found[1]
