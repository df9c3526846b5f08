"""Payloads of samples that were made one by one: paths, bytes, streams, spans of other files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from comal.errors import ComalError, InvalidInputError, StorageError, shown, translated
from comal.limits import MIB
from comal.plan import ByteRange
from comal.public import guarded_class
from comal.storage import Source, as_source, parse_href
from comal.storage.manyfiles import changed_size
from comal.table.columns import texts_column
from comal.tortilla.writing.appender import Appender
from comal.tortilla.writing.localfiles import FileCopier, Files, file_head, file_size
from comal.tortilla.writing.payloads import (
    HEAD,
    UNKNOWN,
    Copied,
    Heads,
    Ints,
    Nothing,
    Payloads,
    all_zero,
    head_rows,
)

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
            head = b"".join(_limited(self._chunks(), HEAD))
            self._source.seek(self._start)
            return head[:HEAD]
        self._refuse_used()
        # What fails on the way cannot be read a second time.
        self._used = True
        while sum(map(len, self._kept)) < HEAD:
            chunk = next(self._raw(), None)
            if chunk is None:
                break
            self._kept.append(chunk)
        self._used = False
        return b"".join(self._kept)[:HEAD]

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


@dataclass(frozen=True, slots=True)
class Objects:
    """A list of what `payload_of` gives; None is empty."""

    values: list[Any]

    @classmethod
    def of(cls, values: list[Any]) -> Payloads:
        """Payloads of samples, in columns where all are of one simple kind."""
        kinds = set(map(type, values))
        if kinds <= {type(None)}:
            return Nothing(len(values))
        if kinds <= {str, type(None)}:
            return Files(texts_column(values))
        return cls(values)

    def __len__(self) -> int:
        return len(self.values)

    def sizes(self) -> Ints:
        """Sizes as far as they are known before reading."""
        return np.fromiter(map(_size, self.values), np.int64, len(self.values))

    def take(self, rows: Ints) -> Objects:
        """The payloads of `rows`."""
        return Objects([self.values[row] for row in rows.tolist()])

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`."""
        return head_rows([_head(self.values[row]) for row in rows.tolist()])

    def copy(self, start: int, stop: int, out: Appender) -> Copied:
        """Append one after the other."""
        copier = FileCopier(out)
        for row in range(start, stop):
            value = self.values[row]
            if value is None or isinstance(value, str):
                copier.add(value)
            elif isinstance(value, bytes):
                copier.add_bytes(value)
            else:
                copier.flush()
                _stream(value, out, copier, self.place(row))
        return copier.finish()

    def rasters(self, rows: Ints) -> list[Any]:
        """Paths and bytes as they are; a stream is read only once, for its own sake."""
        return [_raster(self.values[row]) for row in rows.tolist()]

    def local_paths(self) -> Iterator[str]:
        """The local files among them."""
        for value in self.values:
            if isinstance(value, str):
                yield value
            elif isinstance(value, Slice) and "://" not in value.source.href:
                yield value.source.href

    def place(self, row: int) -> str:
        """What it is, or its path."""
        value = self.values[row]
        if isinstance(value, str):
            return value
        if isinstance(value, Slice):
            return f"{value.source.href} (bytes {value.offset}+{value.size})"
        kind = "bytes in memory" if isinstance(value, bytes) else "stream"
        return f"{kind}, row {row}"


def _size(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        return file_size(value)
    if isinstance(value, bytes):
        return len(value)
    size: int = value.size
    return size


def _head(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, str):
        return file_head(value)
    if isinstance(value, bytes):
        return value[:HEAD]
    if isinstance(value, Stream):
        return value.head()
    span = ByteRange(value.offset, min(value.size, HEAD))
    head: bytes = value.source.fetch([span])[0].data if span.size else b""
    return head


def _raster(value: Any) -> Any:
    if isinstance(value, Stream):
        return None
    if not isinstance(value, Slice):
        return value
    if "://" in value.source.href:
        return value.source.fetch([ByteRange(value.offset, value.size)])[0].data
    from comal.raster import Span  # noqa: PLC0415 - loads GDAL

    return Span(value.source.href, value.offset, value.size)


def _stream(value: Slice | Stream, out: Appender, copier: FileCopier, where: str) -> None:
    start, expected = out.position, value.size
    head, empty = b"", True
    for chunk in value.chunks() if isinstance(value, Stream) else _pieces(value):
        if len(head) < HEAD:
            head = (head + chunk)[:HEAD]
        empty = empty and (all_zero(chunk) or not chunk)
        out.write(chunk)
    size = out.position - start
    if expected not in (UNKNOWN, size):
        raise changed_size(where, f"{size} bytes", expected)
    copier.note_streamed(size, head, empty=empty and size > 0)


def _pieces(value: Slice) -> Iterator[bytes]:
    for at in range(value.offset, value.offset + value.size, _CHUNK):
        size = min(_CHUNK, value.offset + value.size - at)
        yield value.source.fetch([ByteRange(at, size)])[0].data
