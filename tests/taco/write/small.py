"""Small datasets, and a reader that shares no code with the writer: struct, zipfile, pyarrow."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from comal.taco.model.collection import Sample, Taco, Tortilla

FIELDS: dict[str, Any] = {
    "id": "small",
    "dataset_version": "1.0.0",
    "description": "made by a test",
    "licenses": ["CC-BY-4.0"],
    "providers": [{"name": "ACME", "roles": ["producer"]}],
    "tasks": ["classification"],
}


def dataset(tortilla: Tortilla, **fields: Any) -> Taco:
    return Taco(tortilla, **{**FIELDS, **fields})


def flat(count: int = 5, **fields: Any) -> Tortilla:
    return Tortilla(
        [Sample(f"s{n}", f"payload {n}".encode(), cloud=n / 2, **fields) for n in range(count)]
    )


def scene(number: int) -> Sample:
    """A folder of two levels; its payloads name their place."""
    imagery = Tortilla(
        [
            Sample("before.tif", f"s{number} before".encode(), band=number),
            Sample("after.tif", f"s{number} after".encode(), band=-number),
        ]
    )
    inner = Tortilla(
        [
            Sample("imagery", imagery, kind="image"),
            Sample("label.json", f"s{number} label".encode(), kind="label"),
        ]
    )
    return Sample(
        f"s{number}", inner, score=number * 1.5, group="even" if number % 2 == 0 else "odd"
    )


def nested(count: int = 12) -> Tortilla:
    """Scenes s0 .. s11: ids that do not stand in the order of their texts."""
    return Tortilla([scene(number) for number in range(count)])


class Archive:
    """A TACO ZIP read by its header, by byte ranges and by the standard library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path.read_bytes()
        self.zip = zipfile.ZipFile(io.BytesIO(self.data))
        first = self.zip.infolist()[0]
        assert (first.filename, first.header_offset) == ("TACO_HEADER", 0)
        assert self.zip.read("TACO_HEADER") == self.data[41:157], "its checksum is right"
        assert struct.unpack_from("<I", self.data, 14) == (first.CRC,), "and in both places"
        count = self.data[41]
        values = struct.unpack("<14Q", self.data[45:157])
        self.slots = list(zip(values[::2], values[1::2], strict=True))[:count]

    def slot(self, number: int) -> bytes:
        offset, size = self.slots[number]
        return self.data[offset : offset + size]

    @property
    def collection(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.slot(-1))
        return document

    def level(self, number: int) -> Any:
        return pq.read_table(io.BytesIO(self.slot(number)))

    def rows(self, number: int) -> list[dict[str, Any]]:
        """The rows of a level without times, which may be none of Python's."""
        table = self.level(number)
        times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        rows: list[dict[str, Any]] = table.drop_columns(times).to_pylist()
        return rows

    @property
    def levels(self) -> int:
        return len(self.slots) - 1

    def bytes_of(self, row: dict[str, Any]) -> bytes:
        offset, size = row["internal:offset"], row["internal:size"]
        return self.data[offset : offset + size]

    def leaves(self) -> dict[str, bytes]:
        """Every FILE row of every level table by path."""
        return {
            row["internal:relative_path"]: self.bytes_of(row)
            for number in range(self.levels)
            for row in self.rows(number)
            if row["type"] == "FILE"
        }

    def walked(self) -> dict[str, bytes]:
        """Every FILE row by way of the local metadata files."""
        return dict(self._walk(self.rows(0), ""))

    def _walk(self, rows: list[dict[str, Any]], above: str) -> Iterator[tuple[str, bytes]]:
        for row in rows:
            path = f"{above}{row['id']}"
            if row["type"] == "FILE":
                yield path, self.bytes_of(row)
            else:
                children = pq.read_table(io.BytesIO(self.bytes_of(row))).to_pylist()
                yield from self._walk(children, f"{path}/")

    def entries(self) -> dict[str, bytes]:
        """Every data entry of the ZIP directory by path."""
        return {
            name.removeprefix("DATA/"): self.zip.read(name)
            for name in self.zip.namelist()
            if name.startswith("DATA/") and not name.endswith("/__meta__")
        }
