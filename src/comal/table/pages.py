"""How much a column chunk can become when it is decoded, from the headers of its pages."""

from __future__ import annotations

from comal.errors import InvalidMetadataError, translated
from comal.table.thrift import I32, CompactReader


def page_sizes(chunk: bytes, where: str) -> tuple[int, int]:
    """Bytes of the largest page of a chunk and of all its pages, when decompressed.

    A decompressor gives exactly what the header states, or fails. No value of a chunk is longer
    than its largest page: with dictionaries and shared prefixes that is all that bounds it.
    """
    largest = total = 0
    reader = CompactReader(chunk)
    with translated({IndexError: InvalidMetadataError}, "page header is broken", where=where):
        while reader.at < len(chunk):
            uncompressed = stored = 0
            # PageHeader: 2 uncompressed_page_size, 3 compressed_page_size.
            for number, kind in reader.fields():
                if number == 2 and kind == I32:
                    uncompressed = reader.integer()
                elif number == 3 and kind == I32:
                    stored = reader.integer()
                else:
                    reader.skip(kind)
            if stored < 0 or uncompressed < 0:
                raise InvalidMetadataError("page of a negative size", where=where)
            reader.at += stored
            largest = max(largest, uncompressed)
            total += uncompressed
    return largest, total
