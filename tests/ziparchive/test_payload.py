"""From stored bytes to content: what is refused, and how much memory that takes."""

from __future__ import annotations

import zlib

import pytest
from tests.attacks.reading import held

from comal.errors import InvalidMetadataError, LimitExceededError
from comal.limits import MIB, Limits
from comal.ziparchive import DEFLATE, STORE, extracted

SIZES = [0, 1, 1000, MIB - 1, MIB, MIB + 1, 3 * MIB]


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def content(size: int) -> bytes:
    return (b"tiles and samples, " * (size // 19 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", [STORE, DEFLATE])
def test_content_is_what_it_was(method: int, size: int) -> None:
    data = content(size)
    payload = deflated(data) if method == DEFLATE else data
    found = extracted(payload, method=method, size=size, crc=zlib.crc32(data), where="a")
    assert type(found) is bytes
    assert found == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wrong", [-1, 1, 100_000])
def test_another_size_is_refused(size: int, wrong: int) -> None:
    data = content(size)
    if size + wrong < 0:
        return
    for method, payload in ((STORE, data), (DEFLATE, deflated(data))):
        with pytest.raises(InvalidMetadataError):
            extracted(payload, method=method, size=size + wrong, crc=None, where="a")


@pytest.mark.parametrize("size", SIZES[1:])
def test_broken_streams_are_refused(size: int) -> None:
    data = content(size)
    payload = deflated(data)
    checksum = zlib.crc32(data)
    for broken in (b"", payload[:-1], payload[: len(payload) // 2], b"\xff" * 40, b"\x07" * 40):
        with pytest.raises(InvalidMetadataError) as caught:
            extracted(broken, method=DEFLATE, size=size, crc=checksum, where="place")
        assert caught.value.where == "place"
    with pytest.raises(InvalidMetadataError, match="checksum"):
        extracted(payload, method=DEFLATE, size=size, crc=checksum ^ 1, where="a")


def test_limits_and_methods() -> None:
    with pytest.raises(LimitExceededError):
        extracted(b"", method=DEFLATE, size=11, crc=None, where="a", limits=Limits(leaf_bytes=10))
    with pytest.raises(InvalidMetadataError, match="method"):
        extracted(b"", method=12, size=0, crc=None, where="a")


@pytest.mark.parametrize("stated", [20 * MIB - 1, 20 * MIB, 20 * MIB + 1, 24 * MIB, 100])
def test_large_content_is_held_once(stated: int) -> None:
    payload = deflated(bytes(20 * MIB))
    errors = []
    with held(memory=32 * MIB, seconds=5):
        for _ in range(4):  # errors are kept, as a report of them would keep them
            try:
                extracted(payload, method=DEFLATE, size=stated, crc=1, where="a")
            except InvalidMetadataError as error:
                errors.append(error)
    assert len(errors) == 4
