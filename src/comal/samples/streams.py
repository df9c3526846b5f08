"""Payloads that users hand over one by one: spans of objects, file objects, iterators of bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from comal.errors import ComalError, InvalidInputError, StorageError, shown, translated
from comal.limits import MIB
from comal.public import guarded_class
from comal.storage import Source, as_source, parse_href

UNKNOWN = -1
"""Size of a payload that is only known when it has been read."""
_HEAD = 16
_CHUNK = 4 * MIB
_READING: dict[type[BaseException], type[ComalError]] = {OSError: StorageError}


@guarded_class
@dataclass(frozen=True, slots=True)
class Slice:
    """A payload that is a byte range of a file or of an object in a store.

    Parameters
    ----------
    source
        Path, URL or open `Source`.
    offset
        First byte.
    size
        Number of bytes; None for all to the end.
    """

    source: Source
    offset: int
    size: int

    def __init__(
        self, source: str | os.PathLike[str] | Source, offset: int = 0, size: int | None = None
    ) -> None:
        opened = as_source(source)
        if size is None:
            size = opened.stat().size - offset
        if offset < 0 or size < 0:
            raise InvalidInputError("a slice outside of its file", found=f"{offset}+{size}")
        object.__setattr__(self, "source", opened)
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "size", size)

    @classmethod
    def of(cls, frame: Any, key: int | str) -> Slice:
        """The bytes of one item of an open Tortilla.

        Parameters
        ----------
        frame
            From `comal.tortilla.open`.
        key
            Position, id, or ids joined by slashes.
        """
        leaf = frame.leaf(key)
        return cls(frame.home.parts[leaf.part].source, leaf.offset, leaf.size)


class Stream:
    """A payload that comes from a file object, or from an iterator of bytes.

    A file object is read from where it stands to its end, and as often as wanted when it can seek.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._kept: list[bytes] = []
        self._used = False
        self._start = _position(source)

    @property
    def size(self) -> int:
        """Bytes, or `UNKNOWN`."""
        if self._start is None:
            return UNKNOWN
        with translated(_READING, "source cannot be read"):
            end: int = self._source.seek(0, os.SEEK_END)
            self._source.seek(self._start)
        return max(0, end - self._start)

    def head(self) -> bytes:
        """The first bytes; they are read again later."""
        if self._start is not None:
            head = b"".join(_limited(self._chunks(), _HEAD))
            self._source.seek(self._start)
            return head[:_HEAD]
        self._refuse_used()
        # What fails on the way cannot be read a second time.
        self._used = True
        while sum(map(len, self._kept)) < _HEAD:
            chunk = next(self._raw(), None)
            if chunk is None:
                break
            self._kept.append(chunk)
        self._used = False
        return b"".join(self._kept)[:_HEAD]

    def chunks(self) -> Iterator[bytes]:
        """All bytes in pieces.

        Raises
        ------
        InvalidInputError
            It can be read only once and has been.
        """
        if self._start is not None:
            with translated(_READING, "source cannot be read"):
                self._source.seek(self._start)
        else:
            self._refuse_used()
        self._used = True
        yield from self._chunks()

    def file(self) -> BinaryIO:
        """All bytes as a file that can be read once, from its beginning to its end."""
        return cast("BinaryIO", io.BufferedReader(_Reading(self.chunks()), _CHUNK))

    def _refuse_used(self) -> None:
        if self._used:
            raise InvalidInputError(
                "stream has been read already",
                hint="give a file that can seek, or its bytes, to write it twice",
            )

    def _chunks(self) -> Iterator[bytes]:
        while self._kept:
            yield self._kept.pop(0)
        yield from self._raw()

    def _raw(self) -> Iterator[bytes]:
        while True:
            with translated(_READING, "source cannot be read"):
                if hasattr(self._source, "read"):
                    chunk = self._source.read(_CHUNK)
                    if not chunk:
                        return
                else:
                    try:
                        chunk = next(self._source)
                    except StopIteration:
                        return
            if not isinstance(chunk, bytes | bytearray | memoryview):
                raise InvalidInputError(
                    "stream gives no bytes",
                    found=type(chunk).__name__,
                    hint="open files with mode 'rb'",
                )
            yield bytes(chunk)


def _position(source: Any) -> int | None:
    seekable = getattr(source, "seekable", None)
    if seekable is None or not seekable():
        return None
    position: int = source.tell()
    return position


def _limited(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        size -= len(chunk)
        if size <= 0:
            return


def payload_of(value: Any) -> Any:
    """A path, bytes, `Slice` or `Stream` from what the user gave.

    Raises
    ------
    InvalidInputError
        Something that has no bytes.
    """
    if isinstance(value, bytes | Slice | Stream):
        return value
    if isinstance(value, str | os.PathLike):
        return _place(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if hasattr(value, "read"):
        return Stream(value)
    if isinstance(value, Iterable) and not isinstance(value, dict):
        return Stream(iter(value))
    raise InvalidInputError(
        "path of a sample has a wrong type",
        found=type(value).__name__,
        expected="a path, URL, bytes, file object, iterator of bytes, Slice or samples",
    )


def _place(value: str | os.PathLike[Any]) -> Any:
    text: Any = os.fspath(value)
    if not isinstance(text, str) or not text:
        raise InvalidInputError("path of a sample is empty or no text", found=shown(text))
    if isinstance(value, str) and "://" in text:
        location = parse_href(text)
        return location.path if location.scheme == "file" else Slice(text)
    # A later change of the working folder must not change what the sample is.
    return text if text[0] == "/" else os.path.abspath(text)  # noqa: PTH100 - as fast as it can be


class _Reading(io.RawIOBase):
    """The bytes of an iterator as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = chunk
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
