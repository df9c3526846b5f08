"""Samples that are entries of a ZIP archive, as payloads whose checksums are compared."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
from isal.isal_zlib import crc32

from comal.errors import InvalidMetadataError, shown
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange
from comal.samples.payloads import Ints
from comal.storage import Source
from comal.ziparchive import STORE, extracted


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedEntries:
    """Payloads that are entries of an archive; their checksums are compared while they are read."""

    source: Source
    offset: Ints
    stored: Ints
    """Bytes in the archive."""
    size: Ints
    """Bytes of the sample."""
    crc: Ints
    method: Ints
    paths: Any
    """Arrow strings: path of each sample below DATA/."""
    limits: Limits = DEFAULT_LIMITS

    def __len__(self) -> int:
        return len(self.offset)

    def sizes(self) -> Ints:
        """Bytes of each sample."""
        return self.size

    def take(self, rows: Ints) -> CheckedEntries:
        """The payloads of `rows`."""
        return CheckedEntries(
            source=self.source,
            offset=self.offset[rows],
            stored=self.stored[rows],
            size=self.size[rows],
            crc=self.crc[rows],
            method=self.method[rows],
            paths=self.paths.take(pa.array(rows)),
            limits=self.limits,
        )

    def block(self, rows: Ints, sizes: Ints) -> Any:
        """The bytes of `rows`.

        Raises
        ------
        InvalidMetadataError
            Bytes that do not match their checksum; the sample is named.
        """
        filled = rows[sizes > 0]
        stored = self.source.fetch_spans(self.offset[filled], self.stored[filled])
        found: dict[int, bytes] = {}
        for row, data in zip(filled.tolist(), stored, strict=True):
            found[row] = self._content(row, data)
        return pa.array([found.get(row, b"") for row in rows.tolist()], pa.binary())

    def open(self, row: int) -> BinaryIO:
        """One payload as a stream, which ends in an error when the checksum is wrong."""
        if self.method[row] != STORE:
            (piece,) = self.source.fetch([ByteRange(int(self.offset[row]), int(self.stored[row]))])
            return io.BytesIO(self._content(row, piece.data))
        file = self.source.file("", int(self.offset[row]), int(self.stored[row]))
        return io.BufferedReader(_CheckedStream(file, self, row))

    def local_paths(self) -> Iterator[str]:
        """The archive, where it is a local file."""
        if "://" not in self.source.href:
            yield self.source.href

    def place(self, row: int) -> str:
        """The sample and where its bytes are."""
        name = shown(self.paths[row].as_py())
        return f"sample {name} in {self.source.href} (bytes {self.offset[row]}+{self.stored[row]})"

    def _content(self, row: int, data: bytes) -> bytes:
        return extracted(
            data,
            method=int(self.method[row]),
            size=int(self.size[row]),
            crc=int(self.crc[row]),
            where=self.place(row),
            limits=self.limits,
        )

    def judge(self, row: int, found: int) -> None:
        """Refuse bytes whose checksum is `found`, when that is not the right one."""
        expected = int(self.crc[row])
        if found != expected:
            raise InvalidMetadataError(
                "checksum mismatch",
                where=self.place(row),
                found=f"crc {found:08x}",
                expected=f"{expected:08x}",
                hint="the bytes of this sample are lost; take them from another copy",
            )


class _CheckedStream(io.RawIOBase):
    """Reads on, and judges the checksum at the end."""

    def __init__(self, file: Any, entries: CheckedEntries, row: int) -> None:
        super().__init__()
        self._file = file
        self._entries = entries
        self._row = row
        self._crc = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes."""
        data = self._file.read(len(buffer))
        if not data:
            self._entries.judge(self._row, self._crc)
            return 0
        self._crc = crc32(data, self._crc)
        buffer[: len(data)] = data
        return len(data)
