"""Where the bytes of samples come from, for whole tables at once.

A table may hold a million samples, so its payloads are columns: paths of local files, byte
strings, or spans of other objects. Writers read them in blocks, and single large ones as streams.
A row without bytes of its own (a folder, a nested file, padding) is null.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.lazy import pc
from comal.plan import ByteRange
from comal.public import guarded_class
from comal.storage import Source, as_source, parse_href
from comal.storage.manyfiles import changed_size, file_sizes, opened, read_exactly
from comal.storage.targets import refuse_sources
from comal.table.columns import blobs_column, numbers_column, texts_column

Ints = npt.NDArray[np.int64]
Heads = npt.NDArray[np.uint8]
"""The first 16 bytes of n samples, shape (n, 16); zeros where a sample is shorter."""
HEAD = 16
_AT_ONCE = 1 << 14


class Payloads(ABC):
    """The bytes of n samples."""

    @abstractmethod
    def __len__(self) -> int:
        """How many samples."""

    @abstractmethod
    def sizes(self) -> Ints:
        """Current size of each payload in bytes; 0 for null."""

    @abstractmethod
    def take(self, rows: Ints) -> Payloads:
        """The payloads of `rows`, in that order."""

    @abstractmethod
    def block(self, rows: Ints, sizes: Ints) -> Any:
        """The bytes of `rows` as an Arrow binary array; raises unless they still have `sizes`."""

    def views(self, rows: Ints, sizes: Ints) -> list[Any]:
        """The bytes of `rows`, each as a buffer; for few or large ones. Raises as `block`."""
        data = self.block(rows, sizes)
        bounds, whole = bounds_of(data).tolist(), bytes_of(data)
        return [whole[start:stop] for start, stop in pairwise(bounds)]

    @abstractmethod
    def open(self, row: int) -> BinaryIO:
        """One payload as a stream."""

    @abstractmethod
    def place(self, row: int) -> str:
        """The location of a row's payload, for messages."""

    def local_paths(self) -> Iterator[str]:
        """The local files that are read."""
        return iter(())

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`."""
        return head_rows([self._head(row) for row in rows.tolist()])

    def _head(self, row: int) -> bytes:
        with self.open(row) as stream:
            return stream.read(HEAD)

    def rasters(self, rows: Ints) -> list[Any]:
        """What `comal.raster` opens for `rows`; None where it cannot open the bytes."""
        return [None] * len(rows)


def head_rows(heads: Sequence[Any]) -> Heads:
    """The first bytes of payloads as an array."""
    joined = b"".join(bytes(head[:HEAD]).ljust(HEAD, b"\0") for head in heads)
    return np.frombuffer(joined, np.uint8).reshape(-1, HEAD)


def checked(data: bytes, planned: int, where: str) -> bytes:
    """The bytes of a source, which must have the size that the layout assumes."""
    if len(data) != planned:
        raise changed_size(where, f"{len(data)} bytes", planned)
    return data


def is_run(rows: Ints) -> bool:
    """Whether rows are consecutive and ascending."""
    if not len(rows) or rows[-1] - rows[0] != len(rows) - 1:
        return False
    # A part at a time, which stays in the processor's caches.
    parts = (rows[at : at + _AT_ONCE + 1] for at in range(0, len(rows), _AT_ONCE))
    return all(bool((np.diff(part) == 1).all()) for part in parts)


@dataclass(frozen=True, slots=True)
class Files(Payloads):
    """Local files by an Arrow array of absolute paths; null is empty."""

    paths: Any
    regular: bool = False
    """All are known from a listing to be regular files."""

    @classmethod
    def joined(cls, parts: Sequence[Files]) -> Files:
        """The rows of all `parts`, one after the other."""
        regular = all(part.regular for part in parts)
        return cls(pa.concat_arrays([part.paths for part in parts]), regular)

    def __len__(self) -> int:
        return len(self.paths)

    def sizes(self) -> Ints:
        """Current sizes of the files; raises if one is missing or not a regular file."""
        return file_sizes(self.paths.to_pylist())

    def take(self, rows: Ints) -> Files:
        """The payloads of `rows`."""
        return Files(self._chosen(rows), self.regular)

    def _chosen(self, rows: Ints) -> Any:
        if is_run(rows):
            return self.paths.slice(int(rows[0]), len(rows))
        return self.paths.take(numbers_column(rows))

    def block(self, rows: Ints, sizes: Ints) -> Any:
        """Read the files of `rows`."""
        wanted = zip(self._chosen(rows).to_pylist(), sizes.tolist(), strict=True)
        return blobs_column([_read(path, size) for path, size in wanted])

    def open(self, row: int) -> BinaryIO:
        """Open the file of `row`."""
        path = self.paths[row].as_py()
        if path is None:
            return io.BytesIO()
        with opened(path):  # by the rules for sources, with their errors
            return open(path, "rb")  # noqa: PTH123 - the caller closes it

    def local_paths(self) -> Iterator[str]:
        """All of them."""
        yield from (path for path in self.paths.to_pylist() if path is not None)

    def place(self, row: int) -> str:
        """Its path."""
        return str(self.paths[row].as_py())

    def rasters(self, rows: Ints) -> list[Any]:
        """Their paths."""
        found: list[Any] = self._chosen(rows).to_pylist()
        return found


def _read(path: str | None, size: int) -> bytes:
    if path is None:
        return b""
    with opened(path) as (descriptor, _):
        # One byte more than planned shows a file that has grown.
        data = bytearray(size + 1)
        read_exactly(descriptor, memoryview(data), size, path)
    return bytes(memoryview(data)[:size])


@dataclass(frozen=True, slots=True)
class Bytes(Payloads):
    """Payloads in memory: an Arrow binary column, or a list of bytes; null is empty."""

    data: Any
    where: str = "bytes in memory"

    @classmethod
    def of(cls, column: Any, where: str = "bytes in memory") -> Bytes:
        """From a column of any binary type of Arrow."""
        known = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
        return cls(column if known else column.cast(pa.large_binary()), where)

    @classmethod
    def joined(cls, parts: Sequence[Bytes]) -> Bytes:
        """The rows of all `parts`, one after the other."""
        if all(isinstance(part.data, list) for part in parts):
            return cls([item for part in parts for item in part.data])
        return cls(
            pa.chunked_array([chunk for part in parts for chunk in part._wide()], pa.large_binary())  # noqa: SLF001 - same class
        )

    def _wide(self) -> list[Any]:
        """The bytes as Arrow arrays with 64-bit offsets."""
        if isinstance(self.data, list):
            return [blobs_column(self.data, pa.large_binary())]
        return [chunk.cast(pa.large_binary()) for _, chunk in self._chunks()]

    def _chunks(self) -> Iterator[tuple[int, Any]]:
        """Each array of the column without nulls, and its first row."""
        first = 0
        chunks = self.data.chunks if isinstance(self.data, pa.ChunkedArray) else [self.data]
        for chunk in chunks:
            yield first, pc.fill_null(chunk, b"") if chunk.null_count else chunk
            first += len(chunk)

    def __len__(self) -> int:
        return len(self.data)

    def sizes(self) -> Ints:
        """Lengths of the byte strings."""
        if isinstance(self.data, list):
            return np.fromiter((len(item or b"") for item in self.data), np.int64, len(self.data))
        sizes = [np.diff(bounds_of(chunk)) for _, chunk in self._chunks()]
        return np.concatenate([np.zeros(0, np.int64), *sizes])

    def take(self, rows: Ints) -> Bytes:
        """The payloads of `rows`."""
        if isinstance(self.data, list):
            return Bytes([self.data[row] for row in rows.tolist()], self.where)
        if is_run(rows):
            return Bytes(self.data.slice(int(rows[0]), len(rows)), self.where)
        # The copied bytes may exceed what 32-bit offsets can address.
        wide = self.data.cast(pa.large_binary())
        return Bytes(wide.take(numbers_column(rows)), self.where)

    def block(self, rows: Ints, sizes: Ints) -> Any:
        """The bytes of `rows`; consecutive rows are a view."""
        del sizes  # what is in memory does not change
        chosen = self.take(rows).data
        if isinstance(chosen, list):
            return blobs_column([item or b"" for item in chosen])
        chunks = chosen.chunks if isinstance(chosen, pa.ChunkedArray) else [chosen]
        if len(chunks) != 1:
            chunks = [pa.concat_arrays(chunks) if chunks else blobs_column([])]
        array = pc.fill_null(chunks[0], b"") if chunks[0].null_count else chunks[0]
        return array if pa.types.is_binary(array.type) else array.cast(pa.binary())

    def open(self, row: int) -> BinaryIO:
        """One byte string as a stream, without a copy."""
        item = self.data[row]
        buffer = (item or b"") if isinstance(self.data, list) else item.as_buffer() or b""
        stream: BinaryIO = pa.PythonFile(pa.BufferReader(buffer), mode="r")
        return stream

    def place(self, row: int) -> str:
        """The name of the column or list, and the row."""
        return f"{self.where}, row {row}"

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`."""
        if isinstance(self.data, list):
            return Payloads.heads(self, rows)
        found = np.zeros((len(rows), HEAD), np.uint8)
        for first, chunk in self._chunks():
            mine = (rows >= first) & (rows < first + len(chunk))
            bounds = bounds_of(chunk)
            starts = bounds[rows[mine] - first]
            found[mine] = heads_in(chunk, starts, bounds[rows[mine] - first + 1])
        return found

    def rasters(self, rows: Ints) -> list[Any]:
        """The bytes of `rows`."""
        items = [self.data[row] for row in rows.tolist()]
        return items if isinstance(self.data, list) else [item.as_py() for item in items]


def bounds_of(array: Any) -> Ints:
    """Offsets of the byte strings in the buffer of an Arrow binary array, and the last end."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int64)
    wide = pa.types.is_large_binary(array.type)
    offsets = np.frombuffer(buffer, np.int64 if wide else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)


def bytes_of(array: Any) -> memoryview:
    """The buffer of an Arrow binary array."""
    return memoryview(array.buffers()[2] or b"")


def heads_in(array: Any, starts: Ints, stops: Ints) -> Heads:
    """The first bytes of spans of the buffer of an Arrow binary array."""
    data = np.frombuffer(bytes_of(array), np.uint8)
    if not len(data):
        return np.zeros((len(starts), HEAD), np.uint8)
    places = starts[:, None] + np.arange(HEAD)
    found = data[np.minimum(places, len(data) - 1)]
    return np.where(places < stops[:, None], found, 0).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Spans(Payloads):
    """Payloads that are byte ranges of objects, such as the samples of other archives."""

    sources: Sequence[Source]
    source: Ints
    """For each row the index of its source."""
    offsets: Ints
    lengths: Ints
    hrefs: Any = None
    """Arrow strings: each row's object below its source; None if the sources are the objects."""

    def __len__(self) -> int:
        return len(self.offsets)

    def sizes(self) -> Ints:
        """Lengths of the ranges."""
        return self.lengths

    def take(self, rows: Ints) -> Self:
        """The payloads of `rows`."""
        taken: dict[str, Any] = {}
        for one in fields(self):
            column = getattr(self, one.name)
            if isinstance(column, np.ndarray):
                taken[one.name] = column[rows]
            elif isinstance(column, pa.Array | pa.ChunkedArray):
                taken[one.name] = column.take(numbers_column(rows))
        return replace(self, **taken)

    def block(self, rows: Ints, sizes: Ints) -> Any:
        """Fetch `rows` by one call per source, which merges adjacent ranges into few requests."""
        found = self.fetched(rows, sizes)
        for row, size, data in zip(rows.tolist(), sizes.tolist(), found, strict=True):
            if len(data) != size:  # building a place costs more than this comparison
                checked(data, size, self.place(row))
        return blobs_column(found)

    def fetched(self, rows: Ints, sizes: Ints) -> list[bytes]:
        """The first `sizes` bytes of the ranges of `rows`."""
        found: list[bytes] = [b""] * len(rows)
        owner, offsets = self.source[rows], self.offsets[rows]
        names = None if self.hrefs is None else self.hrefs.take(numbers_column(rows)).to_pylist()
        for position in np.unique(owner).tolist():
            mine = np.flatnonzero((owner == position) & (sizes > 0))
            source = self.sources[position]
            if names is None:
                pieces = source.fetch_spans(offsets[mine], sizes[mine])
            else:
                wanted = [
                    ByteRange(int(offsets[n]), int(sizes[n]), names[n]) for n in mine.tolist()
                ]
                pieces = [piece.data for piece in source.fetch(wanted)]
            for n, piece in zip(mine.tolist(), pieces, strict=True):
                found[n] = piece
        return found

    def open(self, row: int) -> BinaryIO:
        """One range as a stream."""
        href = "" if self.hrefs is None else self.hrefs[row].as_py()
        stream: Any = self.sources[int(self.source[row])].file(
            href, int(self.offsets[row]), int(self.lengths[row])
        )
        return stream  # type: ignore[no-any-return]

    def local_paths(self) -> Iterator[str]:
        """The files that hold the ranges."""
        used = np.unique(self.source).tolist()
        yield from (self.sources[n].href for n in used if "://" not in self.sources[n].href)

    def place(self, row: int) -> str:
        """The object and the range in it."""
        base = self.sources[int(self.source[row])].href
        href = "" if self.hrefs is None else f"/{self.hrefs[row].as_py()}"
        return f"{base}{href} (bytes {self.offsets[row]}+{self.lengths[row]})"

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`, those of one source in one fetch."""
        return head_rows(self.fetched(rows, np.minimum(self.lengths[rows], HEAD)))

    def rasters(self, rows: Ints) -> list[Any]:
        """Spans of local files; bytes of remote objects."""
        from comal.raster import Span  # noqa: PLC0415 - loads GDAL

        found: list[Any] = []
        for row in rows.tolist():
            source = self.sources[int(self.source[row])]
            span = ByteRange(int(self.offsets[row]), int(self.lengths[row]))
            if not source.location.is_local:
                found.append(source.fetch([span])[0].data)
            else:
                found.append(Span(source.href, span.offset, span.size))
        return found


@dataclass(frozen=True, slots=True)
class Mixed(Payloads):
    """Payloads of several kinds: for each row the part that holds it and its row there."""

    parts: Sequence[Payloads]
    part: npt.NDArray[Any]
    row: Ints

    def __len__(self) -> int:
        return len(self.row)

    def sizes(self) -> Ints:
        """Sizes from each part."""
        sizes = np.zeros(len(self.row), np.int64)
        for part, rows, own in self._groups(np.arange(len(self.row))):
            sizes[rows] = part.take(own).sizes()
        return sizes

    def take(self, rows: Ints) -> Any:
        """The payloads of `rows`, taken from a single part if one holds them all."""
        groups = list(self._groups(rows))
        if len(groups) == 1:
            ((part, _, own),) = groups
            return part.take(own)
        join = _join_of([part for part, _, _ in groups])
        if join is None:
            return Mixed(self.parts, self.part[rows], self.row[rows])
        # Parts of one kind become one, so that they are copied in one walk.
        joined = join([part.take(own) for part, _, own in groups])
        return joined.take(np.argsort(np.concatenate([mine for _, mine, _ in groups])))

    def block(self, rows: Ints, sizes: Ints) -> Any:
        """The bytes of `rows`, read part by part and put back in order."""
        blocks, origin = [], []
        for part, mine, own in self._groups(rows):
            blocks.append(part.block(own, sizes[mine]))
            origin.append(mine)
        if len(blocks) == 1:
            return blocks[0]
        back = np.argsort(np.concatenate(origin), kind="stable")
        return pa.concat_arrays(blocks).take(numbers_column(back))

    def _groups(self, rows: Ints) -> Iterator[tuple[Any, Ints, Ints]]:
        """Each part in use, the positions in `rows` that it holds, and their rows in the part."""
        owner = self.part[rows]
        for position in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == position)
            yield self.parts[position], mine, self.row[rows[mine]]

    def open(self, row: int) -> BinaryIO:
        """One payload as a stream."""
        return self.parts[int(self.part[row])].open(int(self.row[row]))

    def local_paths(self) -> Iterator[str]:
        """Those of all parts."""
        for part in self.parts:
            yield from part.local_paths()

    def place(self, row: int) -> str:
        """As the part names it."""
        return self.parts[int(self.part[row])].place(int(self.row[row]))

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`."""
        found = np.zeros((len(rows), HEAD), np.uint8)
        for part, mine, own in self._groups(rows):
            found[mine] = part.heads(own)
        return found

    def rasters(self, rows: Ints) -> list[Any]:
        """Those of each part, in the order of `rows`."""
        found: list[Any] = [None] * len(rows)
        for part, mine, own in self._groups(rows):
            for n, raster in zip(mine.tolist(), part.rasters(own), strict=True):
                found[n] = raster
        return found


def _join_of(parts: Iterable[Payloads]) -> Any:
    """The function that joins parts of one kind; None if there is none."""
    kinds = set(map(type, parts))
    return getattr(kinds.pop(), "joined", None) if len(kinds) == 1 else None


def concat(parts: Sequence[Payloads]) -> Payloads:
    """The rows of all `parts`, one after the other."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    join = _join_of(parts)
    if join is not None:
        joined: Payloads = join(parts)
        return joined
    counts = [len(part) for part in parts]
    return Mixed(
        parts,
        np.repeat(np.arange(len(parts)), counts),
        np.concatenate([np.arange(count) for count in counts]),
    )


def nothing(count: int) -> Bytes:
    """Null payloads: for folders and for nested files, which are built during writing."""
    return Bytes([None] * count, "a sample without bytes of its own")


# -- samples created one by one --------------------------------------------------------------------


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
        Number of bytes; None for all up to the end.
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
            raise InvalidInputError("a slice lies outside its file", found=f"bytes {offset}+{size}")
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
        return cls(leaf.source, leaf.offset, leaf.size)


def payload_of(value: Any) -> str | bytes | Slice:
    """An absolute path, bytes or a `Slice` from the user's value."""
    if isinstance(value, bytes | Slice):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        return _place(value)
    raise InvalidInputError(
        "the path of a sample has the wrong type",
        found=type(value).__name__,
        expected="a path, URL, bytes, Slice or samples",
        hint="write a stream to a file, or pass its bytes",
    )


def _place(value: str | os.PathLike[Any]) -> str | Slice:
    text: Any = os.fspath(value)
    if not isinstance(text, str) or not text:
        raise InvalidInputError("the path of a sample is empty or not text", found=shown(text))
    if isinstance(value, str) and "://" in text:
        location = parse_href(text)
        return location.path if location.scheme == "file" else Slice(text)
    # A later change of the working folder must not change the sample.
    return text if text[0] == "/" else os.path.abspath(text)  # noqa: PTH100 - as fast as it can be


def payloads_of(values: Sequence[str | bytes | Slice | None]) -> Payloads:
    """Payloads of samples created one by one, as columns; paths are absolute."""
    kinds = list(dict.fromkeys(map(type, values)))
    some = [kind for kind in kinds if kind is not type(None)]
    if not some:
        return nothing(len(values))
    if len(some) == 1 and some[0] is not Slice:
        return _of_kind(some[0], values)
    part = np.fromiter(map(kinds.index, map(type, values)), np.int8, len(values))
    row = np.zeros(len(values), np.int64)
    parts = []
    for number, kind in enumerate(kinds):
        rows = np.flatnonzero(part == number)
        row[rows] = np.arange(len(rows))
        parts.append(_of_kind(kind, [values[n] for n in rows.tolist()]))
    return Mixed(parts, part, row)


def _of_kind(kind: type, values: Sequence[Any]) -> Payloads:
    if kind is str:
        return Files(texts_column(values))
    return _of_slices(values) if kind is Slice else Bytes(values)


def _of_slices(values: Sequence[Slice]) -> Spans:
    sources = list({id(value.source): value.source for value in values}.values())
    known = {id(source): number for number, source in enumerate(sources)}
    return Spans(
        sources,
        np.array([known[id(value.source)] for value in values], np.int64),
        np.array([value.offset for value in values], np.int64),
        np.array([value.size for value in values], np.int64),
    )


def refuse_read(targets: Iterable[Path], payloads: Iterable[Payloads]) -> None:
    """Refuse to overwrite a local file that is a payload, or a folder that holds one."""
    known = {_identity(path): path for path in targets}
    known.pop(None, None)
    roots = {str(path.resolve()) + os.sep: path for path in known.values()}
    holder: dict[str, Path | None] = {}
    for path in chain.from_iterable(one.local_paths() for one in payloads) if known else ():
        folder = os.path.dirname(path)  # noqa: PTH120 - strings, for there may be a million
        if folder not in holder:
            real = os.path.realpath(folder) + os.sep
            holder[folder] = next((roots[root] for root in roots if real.startswith(root)), None)
        target = holder[folder] or known.get(_identity(path))
        if target is not None:
            refuse_sources(target, path)


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path per row costs more than the call
    except OSError:
        return None
    return status.st_dev, status.st_ino
