"""Mapbox vector tiles, walked as protobuf without decoding any geometry (MVT 2.1, 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_LAYERS: Final = 3
_NAME: Final = 1
_WIDTHS: Final = {1: 8, 5: 4}
_LENGTH: Final = 2
_VARINT: Final = 0


def vector_fault(data: bytes) -> str | None:
    """What keeps bytes from being a vector tile, or None."""
    try:
        for number, wire_type, start, stop in _fields(data, 0, len(data)):
            if number != _LAYERS or wire_type != _LENGTH:
                continue
            names = [
                data[begin:end]
                for field, kind, begin, end in _fields(data, start, stop)
                if field == _NAME and kind == _LENGTH
            ]
            if len(names) != 1:
                return f"has a layer with {len(names)} names"
            names[0].decode()
    except (ValueError, IndexError) as error:
        return f"is no protobuf: {error}"
    return None


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type, start and stop of each field of a message."""
    while at < end:
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        start = at
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _LENGTH:
            size, start = _varint(data, at, end)
            at = start + size
        elif kind in _WIDTHS:
            at += _WIDTHS[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if number == 0 or at > end:
            raise ValueError("a field that reaches past its message" if number else "field 0")
        yield number, kind, start, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise ValueError("a number that does not end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
