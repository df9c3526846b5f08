"""Pages of one value whose headers are of unusual length."""

from __future__ import annotations

from typing import Any

import pytest
from isal import isal_zlib
from tests.table.tables import varint, zigzag

from comal.errors import InvalidMetadataError
from comal.table import pages as page_values
from comal.table.pages import OneValueReader, one_value


def page_of(value: bytes) -> tuple[bytes, int]:
    """A page with a checksum, by `parquet.thrift` and the encoding of the compact protocol."""
    body = b"\x02\0\0\0\x02\x01" + len(value).to_bytes(4, "little") + value
    checksum = isal_zlib.crc32(body)
    field = zigzag(checksum - (1 << 32) if checksum >> 31 else checksum)
    size = varint(2 * len(body))
    rest = b"\x1c\x15\x02\x15\0\x15\x06\x15\x06\0\0"
    return b"\x15\0\x15" + size + b"\x15" + size + b"\x15" + field + rest + body, len(field)


def pages_by_length(size: int) -> dict[int, tuple[bytes, bytes]]:
    """Values of about this size, with their pages, by the length of the checksum."""
    found: dict[int, tuple[bytes, bytes]] = {}
    for number in range(40_000):
        value = number.to_bytes(4, "little") * (size // 4)
        page, length = page_of(value)
        found.setdefault(length, (value, page))
        if {3, 4, 5} <= found.keys():
            return found
    raise AssertionError(found.keys())


@pytest.mark.parametrize("size", [20, 400, 9_000])
def test_a_short_checksum_costs_no_parsing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = pages_by_length(size)
    reader = OneValueReader()
    reader.value(pages[5][1], "page")  # from then on pages are expected to have checksums

    def parsed(*_: Any, **__: Any) -> Any:
        raise AssertionError("this page was taken apart field by field")

    for value, page in pages.values():
        assert one_value(page, "page") == value
        with monkeypatch.context() as patch:
            patch.setattr(page_values, "one_value", parsed)
            assert reader.value(page, "page") == value
            assert reader.value(page, "page", verify=False) == value
        wrong = page[:-1] + bytes([page[-1] ^ 1])
        with pytest.raises(InvalidMetadataError, match="does not match its checksum"):
            reader.value(wrong, "page")
        assert reader.value(wrong, "page", verify=False) == value[:-1] + wrong[-1:]


def test_a_short_checksum_that_is_damaged() -> None:
    """Each changed bit of the header is found, as `one_value` finds it, or changes nothing."""
    value, page = pages_by_length(400)[4]
    for at in range(len(page) - len(value)):
        for bit in range(8):
            damaged = bytearray(page)
            damaged[at] ^= 1 << bit
            reader = OneValueReader()
            reader.value(page, "page")
            results: list[Any] = []
            for read in (one_value, reader.value):
                try:
                    results.append(read(bytes(damaged), "page"))
                except InvalidMetadataError:
                    results.append(InvalidMetadataError)
            assert results[0] == results[1], (at, bit)
