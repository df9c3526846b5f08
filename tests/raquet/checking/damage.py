"""A sound RaQuet file as plain data, to be damaged in one place and written by pyarrow."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.raquet.build import Plan, cell, document, noise

TILES = [(2, 2, 1), (3, 4, 2), (3, 5, 2), (3, 4, 3), (3, 5, 3)]
SIZE = 16


def pixels(number: int, dtype: str = "uint8") -> Any:
    """Pixels that are never 0."""
    return noise(number, dtype)


def packed(array: Any) -> bytes:
    return gzip.compress(array.tobytes(), 6, mtime=0)


@dataclass
class File:
    """What is written."""

    document: dict[str, Any]
    rows: list[dict[str, Any]]
    head: dict[str, Any]
    schema: Any
    text: str | None = None
    """The metadata instead of the document."""
    head_first: bool = True
    more_heads: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    after: Callable[[bytes], bytes] | None = None
    """What happens to the bytes of the file at last."""

    def band(self, name: str, dtype: str = "uint8", nodata: Any = "0") -> None:
        """One more band."""
        self.document["bands"].append({"name": name, "type": dtype, "nodata": nodata})
        self.schema = self.schema.append(pa.field(name, pa.binary()))
        for number, row in enumerate(self.rows):
            row[name] = packed(pixels(number + 50, dtype))

    def write(self, path: Path) -> Path:
        text = json.dumps(self.document) if self.text is None else self.text
        head = {"block": 0, "metadata": text, **self.head}
        heads = [head, *self.more_heads]
        rows = [*heads, *self.rows] if self.head_first else [*self.rows, *heads]
        names = set(self.schema.names)
        rows = [{key: value for key, value in row.items() if key in names} for row in rows]
        settings = {
            "use_dictionary": False,
            "compression": "none",
            "write_page_index": True,
            "max_rows_per_page": 1,
            "write_page_checksum": True,
            "store_schema": False,
            **self.settings,
        }
        with pq.ParquetWriter(path, self.schema, **settings) as writer:
            writer.write_table(pa.Table.from_pylist(rows, self.schema))
            writer.add_key_value_metadata(self.schema.metadata or {})
        if self.after is not None:
            path.write_bytes(self.after(path.read_bytes()))
        return path


def sound() -> File:
    """Five tiles of two zooms, 16 x 16 pixels of one byte, nodata 0."""
    rows: list[dict[str, Any]] = [
        {"block": cell(tile), "band_1": packed(pixels(number))} for number, tile in enumerate(TILES)
    ]
    rows.sort(key=lambda row: row["block"])
    schema = pa.schema([("block", pa.uint64()), ("metadata", pa.string()), ("band_1", pa.binary())])
    return File(document(Plan(block=(SIZE, SIZE)), TILES), rows, {}, schema)


def nested() -> File:
    """The same with metadata 0.5.0."""
    file = sound()
    file.document = document(Plan(block=(SIZE, SIZE), nested=True), TILES)
    return file


def row_of(file: File, tile: tuple[int, int, int]) -> dict[str, Any]:
    """The row of a tile."""
    return next(row for row in file.rows if row["block"] == cell(tile))


@contextmanager
def rewritten(path: Path | str, target: Path) -> Iterator[Any]:
    """The document of a file, to be changed: `target` is the file with what it is then."""
    table = pq.read_table(path)
    texts = table["metadata"].to_pylist()
    row = next(at for at, text in enumerate(texts) if text)
    document = json.loads(texts[row])
    yield document
    texts[row] = json.dumps(document)
    place = table.schema.get_field_index("metadata")
    pq.write_table(table.set_column(place, "metadata", pa.array(texts, pa.string())), target)


def interleaved(dtype: str = "uint16", version: bytes | None = b"0.5.0") -> File:
    """Two bands pixel by pixel."""
    file = nested()
    file.document["band_layout"] = "interleaved"
    file.document["bands"] = [
        {"name": name, "type": dtype, "nodata": None} for name in ("red", "blue")
    ]
    file.schema = pa.schema(
        [("block", pa.uint64()), ("metadata", pa.string()), ("pixels", pa.binary())]
    )
    if version is not None:
        file.schema = file.schema.with_metadata({b"raquet:version": version})
    for number, row in enumerate(file.rows):
        both = np.stack([pixels(number, dtype), pixels(number + 9, dtype)], axis=-1)
        row["pixels"] = packed(both)
        del row["band_1"]
    return file
