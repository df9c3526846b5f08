"""Tortillas read by struct and pyarrow alone, for comparison; and samples to write."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.tortilla import build

HEADER = 200


@dataclass(frozen=True)
class Read:
    """A file, or a file inside of another."""

    magic: bytes
    footer: tuple[int, int]
    parts: int
    free: bytes
    table: Any
    items: list[bytes]
    metadata: dict[bytes, bytes]
    raw: bytes

    @property
    def ids(self) -> list[str]:
        ids: list[str] = self.table["tortilla:id"].to_pylist()
        return ids

    @property
    def collection(self) -> Any:
        """The JSON of a TACO v1; None of a Tortilla."""
        offset, size = struct.unpack_from("<QQ", self.raw, 26)
        return json.loads(self.raw[offset : offset + size]) if size else None

    def column(self, name: str) -> list[Any]:
        values: list[Any] = self.table[name].to_pylist()
        return values

    def tree(self) -> dict[str, Any]:
        """Bytes by id; nested files as dictionaries."""
        formats = self.column("tortilla:file_format")
        return {
            name: read_bytes(data).tree() if kind == "TORTILLA" else data
            for name, kind, data in zip(self.ids, formats, self.items, strict=True)
        }


def read_bytes(data: bytes) -> Read:
    magic, offset, size, parts = struct.unpack_from("<2sQQQ", data)
    footer = pq.ParquetFile(pa.BufferReader(data[offset : offset + size]))
    table = footer.read()
    spans = zip(
        table["tortilla:offset"].to_pylist(), table["tortilla:length"].to_pylist(), strict=True
    )
    items = [data[start : start + length] for start, length in spans]
    known = dict(footer.metadata.metadata or {})
    return Read(magic, (offset, size), parts, data[26:HEADER], table, items, known, data)


def read(path: Any) -> Read:
    return read_bytes(Path(path).read_bytes())


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def foreign(folder: Path, ids: list[str], **columns: Any) -> Path:
    """A file as somebody else could have written it."""
    more = {"stac:time_start": 1_600_000_000.0, "rai:ele": 3.0}
    items = [build.Item(name, f"<{name}>".encode(), more=more) for name in ids]

    def table(made: Any) -> Any:
        for name in ("tortilla:length", "tortilla:offset"):
            made = build.column(name, lambda values: values.cast(pa.uint64()))(made)
        for name, values in {"__index_level_0__": range(len(ids)), **columns}.items():
            made = made.append_column(name, pa.array(values))
        return made.select(made.column_names[::-1])

    name = f"foreign{len(listing(folder))}.tortilla"
    return build.write(folder, build.built(items, table=table), name)
