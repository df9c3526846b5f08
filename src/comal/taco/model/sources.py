"""Where the bytes of samples come from, told for whole levels at once.

A level may hold a million samples, so its payloads are columns: paths of local files, byte
strings, or spans of other objects. The writer asks for them in blocks, and a single large one as
a stream. A row without a payload (a FOLDER) is null or is never asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import (
    AccessDeniedError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    counted,
    shown,
)
from comal.plan import ByteRange
from comal.storage import Source
from comal.storage.manyfiles import file_sizes

Rows = np.ndarray[Any, np.dtype[np.int64]]


class Payloads(Protocol):
    """The bytes of the samples of one level, one payload per row."""

    def __len__(self) -> int:
        """How many rows."""
        ...

    def sizes(self) -> Rows:
        """Size of each payload in bytes, as it is planned; 0 where there is none."""
        ...

    def take(self, rows: Rows) -> Payloads:
        """The payloads of `rows`, in that order."""
        ...

    def block(self, rows: Rows, sizes: Rows) -> Any:
        """The bytes of `rows` as an Arrow binary array; each must still have its planned size."""
        ...

    def open(self, row: int) -> BinaryIO:
        """One payload as a stream."""
        ...

    def place(self, row: int) -> str:
        """Where the payload of `row` is, for messages."""
        ...


def check_size(found: int, planned: int, where: str) -> None:
    """Refuse a source that no longer has the size that the layout was made for."""
    if found != planned:
        raise InvalidInputError(
            "source changed its size while it was copied",
            where=shown(where, 200),
            found=counted(found, "byte"),
            expected=counted(planned, "byte"),
            hint="leave the sources alone while they are packed",
        )


def source_fault(error: OSError, path: str) -> Exception:
    """The error of ours for a local source that cannot be read."""
    kind: type[ObjectNotFoundError | AccessDeniedError | StorageError] = StorageError
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        kind = ObjectNotFoundError
    elif isinstance(error, PermissionError):
        kind = AccessDeniedError
    return kind("source file cannot be read", where=shown(path, 200), found=error.strerror)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Payloads that are local files, by an Arrow string column of absolute paths."""

    paths: Any
    """Null for a FOLDER, and for padding, which is empty."""
    regular: bool = False
    """A listing has said that all are regular files."""

    @classmethod
    def joined(cls, parts: Sequence[LocalFiles]) -> LocalFiles:
        """The rows of all `parts`, one after the other."""
        regular = all(part.regular for part in parts)
        return cls(pa.concat_arrays([part.paths for part in parts]), regular)

    def __len__(self) -> int:
        return len(self.paths)

    def sizes(self) -> Rows:
        """Sizes of the files now; a missing one, or one that is no file, is an error."""
        return file_sizes(self.paths.to_pylist())

    def take(self, rows: Rows) -> LocalFiles:
        """The payloads of `rows`."""
        return LocalFiles(self.paths.take(pa.array(rows)), self.regular)

    def block(self, rows: Rows, sizes: Rows) -> Any:
        """Read the files of `rows`."""
        paths = self.paths.take(pa.array(rows)).to_pylist()
        return pa.array(
            [
                b"" if path is None else _read(path, size)
                for path, size in zip(paths, sizes.tolist(), strict=True)
            ],
            pa.binary(),
        )

    def open(self, row: int) -> BinaryIO:
        """Open the file of `row`."""
        path = self.place(row)
        try:
            return Path(path).open("rb")
        except OSError as error:
            raise source_fault(error, path) from error

    def place(self, row: int) -> str:
        """Its path."""
        return str(self.paths[row].as_py())


def _read(path: str, size: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise source_fault(error, path) from error
    try:
        # One byte more than planned shows a file that has grown.
        data = os.read(descriptor, size + 1)
        while 0 < len(data) <= size:
            more = os.read(descriptor, size + 1 - len(data))
            if not more:
                break
            data += more
    except OSError as error:
        raise source_fault(error, path) from error
    finally:
        os.close(descriptor)
    if len(data) != size:
        check_size(os.stat(path).st_size if len(data) > size else len(data), size, path)  # noqa: PTH116
    return data


@dataclass(frozen=True, slots=True)
class ByteStrings:
    """Payloads in memory: an Arrow binary column, or a list of bytes that is not copied."""

    data: Any
    where: str = "bytes in memory"

    def __len__(self) -> int:
        return len(self.data)

    def sizes(self) -> Rows:
        """Lengths of the byte strings."""
        if isinstance(self.data, list):
            return np.fromiter((len(item or b"") for item in self.data), np.int64, len(self.data))
        lengths = pc.fill_null(pc.binary_length(self.data), 0)
        return (
            np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
            if isinstance(lengths, pa.Array)
            else np.asarray(lengths.to_numpy(), np.int64)
        )

    def take(self, rows: Rows) -> ByteStrings:
        """The payloads of `rows`."""
        if isinstance(self.data, list):
            return ByteStrings([self.data[row] for row in rows.tolist()], self.where)
        return ByteStrings(self.data.take(pa.array(rows)), self.where)

    def block(self, rows: Rows, sizes: Rows) -> Any:
        """The bytes of `rows`; a run of neighbours is a view."""
        del sizes  # what is in memory does not change
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
            part = self.data[int(rows[0]) : int(rows[-1]) + 1]
        elif isinstance(self.data, list):
            part = [self.data[row] for row in rows.tolist()]
        else:
            part = self.data.take(pa.array(rows))
        if isinstance(part, list):
            return pa.array(part, pa.binary())
        joined = part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
        if isinstance(joined, pa.ChunkedArray):  # no chunk at all
            joined = pa.array([], pa.binary())
        return joined if pa.types.is_binary(joined.type) else joined.cast(pa.binary())

    def open(self, row: int) -> BinaryIO:
        """One byte string as a stream, without a copy."""
        item = self.data[row]
        buffer = item if isinstance(item, bytes) else item.as_buffer()
        stream: BinaryIO = pa.PythonFile(pa.BufferReader(buffer), mode="r")
        return stream

    def place(self, row: int) -> str:
        """That it is in memory, and its row."""
        return f"{self.where}, row {row}"


@dataclass(frozen=True, slots=True)
class Spans:
    """Payloads that are byte ranges of objects, such as the samples of other archives."""

    sources: Sequence[Source]
    source: np.ndarray[Any, Any]
    """For each row the position of its source."""
    offsets: Rows
    lengths: Rows
    hrefs: Any = None
    """Arrow strings: the object below the source that holds the row; None where it is itself."""

    def __len__(self) -> int:
        return len(self.offsets)

    def sizes(self) -> Rows:
        """Lengths of the ranges."""
        return self.lengths

    def take(self, rows: Rows) -> Spans:
        """The payloads of `rows`."""
        hrefs = None if self.hrefs is None else self.hrefs.take(pa.array(rows))
        return Spans(self.sources, self.source[rows], self.offsets[rows], self.lengths[rows], hrefs)

    def block(self, rows: Rows, sizes: Rows) -> Any:
        """Fetch `rows`: one call per source, which joins neighbours into few requests."""
        found: list[bytes] = [b""] * len(rows)
        owner = self.source[rows]
        names = None if self.hrefs is None else self.hrefs.take(pa.array(rows)).to_pylist()
        offsets = self.offsets[rows].tolist()
        lengths = sizes.tolist()
        for position in np.unique(owner).tolist():
            mine = [n for n in np.flatnonzero(owner == position).tolist() if lengths[n]]
            wanted = [ByteRange(offsets[n], lengths[n], names[n] if names else "") for n in mine]
            for n, piece in zip(mine, self.sources[position].fetch(wanted), strict=True):
                check_size(len(piece.data), lengths[n], self.place(int(rows[n])))
                found[n] = piece.data
        return pa.array(found, pa.binary())

    def open(self, row: int) -> BinaryIO:
        """One range as a stream."""
        href = "" if self.hrefs is None else self.hrefs[row].as_py()
        stream: Any = self.sources[int(self.source[row])].file(
            href, int(self.offsets[row]), int(self.lengths[row])
        )
        return stream  # type: ignore[no-any-return]

    def place(self, row: int) -> str:
        """The object and the range in it."""
        base = self.sources[int(self.source[row])].href
        href = "" if self.hrefs is None else f"/{self.hrefs[row].as_py()}"
        return f"{base}{href} (bytes {self.offsets[row]}+{self.lengths[row]})"


@dataclass(frozen=True, slots=True)
class NoPayloads:
    """Rows without bytes: FOLDER samples, and padding, which is empty."""

    count: int

    def __len__(self) -> int:
        return self.count

    def sizes(self) -> Rows:
        """All zero."""
        return np.zeros(self.count, np.int64)

    def take(self, rows: Rows) -> NoPayloads:
        """As many rows."""
        return NoPayloads(len(rows))

    def block(self, rows: Rows, sizes: Rows) -> Any:
        """As many empty byte strings."""
        del sizes
        return pa.array([b""] * len(rows), pa.binary())

    def open(self, row: int) -> BinaryIO:
        """An empty stream."""
        return ByteStrings([b""] * (row + 1)).open(row)

    def place(self, row: int) -> str:
        """That there is nothing."""
        return f"row {row}, which has no bytes of its own"


@dataclass(frozen=True, slots=True)
class Mixed:
    """Payloads of several kinds: for each row the part that holds it and its row there."""

    parts: Sequence[Payloads]
    part: np.ndarray[Any, Any]
    row: Rows

    def __len__(self) -> int:
        return len(self.row)

    def sizes(self) -> Rows:
        """Sizes as each part tells them."""
        sizes = np.zeros(len(self.row), np.int64)
        for position, rows in self._groups(np.arange(len(self.row))):
            sizes[rows] = self.parts[position].take(self.row[rows]).sizes()
        return sizes

    def take(self, rows: Rows) -> Payloads:
        """The payloads of `rows`, in the part itself when one holds them all."""
        part, row = self.part[rows], self.row[rows]
        if len(part) and (part == part[0]).all():
            return self.parts[int(part[0])].take(row)
        used = np.unique(part).tolist()
        kinds = {type(self.parts[position]) for position in used}
        join: Any = getattr(kinds.pop(), "joined", None) if len(kinds) == 1 else None
        if join is None:
            return Mixed(self.parts, part, row)
        # Parts of one kind become one, so that they are copied in one walk.
        places = [np.flatnonzero(part == position) for position in used]
        chosen = [self.parts[n].take(row[mine]) for n, mine in zip(used, places, strict=True)]
        merged: Payloads = join(chosen).take(np.argsort(np.concatenate(places)))
        return merged

    def block(self, rows: Rows, sizes: Rows) -> Any:
        """The bytes of `rows`, part by part, put back into their order."""
        blocks, origin = [], []
        for position, mine in self._groups(rows):
            blocks.append(self.parts[position].block(self.row[rows[mine]], sizes[mine]))
            origin.append(mine)
        if len(blocks) == 1:
            return blocks[0]
        back = np.argsort(np.concatenate(origin), kind="stable")
        return pa.concat_arrays(blocks).take(pa.array(back))

    def _groups(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        owner = self.part[rows]
        for position in np.unique(owner).tolist():
            yield position, np.flatnonzero(owner == position)

    def open(self, row: int) -> BinaryIO:
        """One payload as a stream."""
        return self.parts[int(self.part[row])].open(int(self.row[row]))

    def place(self, row: int) -> str:
        """Where its part has it."""
        return self.parts[int(self.part[row])].place(int(self.row[row]))


def concat(parts: Sequence[Payloads]) -> Payloads:
    """The rows of all `parts`, one after the other."""
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        return parts[0]
    if parts and all(isinstance(part, LocalFiles) for part in parts):
        return LocalFiles.joined(parts)  # type: ignore[arg-type]
    if parts and all(isinstance(p, ByteStrings) and isinstance(p.data, list) for p in parts):
        joined: list[bytes] = []
        for part in parts:
            joined += part.data  # type: ignore[attr-defined]
        return ByteStrings(joined)
    if all(isinstance(part, NoPayloads) for part in parts):
        return NoPayloads(sum(map(len, parts)))
    counts = [len(part) for part in parts]
    return Mixed(
        parts,
        np.repeat(np.arange(len(parts)), counts),
        np.concatenate([np.arange(count) for count in counts]),
    )


def local_paths(payloads: Payloads) -> Iterator[str]:
    """The local files that `payloads` would be read from, as far as they are such."""
    if isinstance(payloads, LocalFiles):
        yield from (path for path in payloads.paths.to_pylist() if path is not None)
    elif isinstance(payloads, Mixed):
        for part in payloads.parts:
            yield from local_paths(part)
    elif isinstance(payloads, Spans):
        yield from (s.href for s in payloads.sources if s.href.startswith("/"))
