"""Files of every generation, made with struct and pyarrow alone: an oracle that shares no code."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Item:
    """One item and its metadata."""

    id: str | None
    data: bytes
    format: str | None = "BYTES"
    more: Mapping[str, Any] = field(default_factory=dict)


def footer(table: pa.Table, **options: Any) -> bytes:
    """A Parquet file, by default as published writers made them."""
    file = io.BytesIO()
    pq.write_table(table, file, **{"compression": "zstd", "use_dictionary": False, **options})
    return file.getvalue()


def table_of(
    items: Sequence[Item], offsets: Sequence[int], *, with_format: bool = True
) -> pa.Table:
    """The footer's table."""
    columns: dict[str, Any] = {
        "tortilla:id": pa.array([one.id for one in items], pa.large_string())
    }
    if with_format:
        columns["tortilla:file_format"] = pa.array([one.format for one in items], pa.large_string())
    columns["tortilla:data_split"] = pa.nulls(len(items))
    columns["tortilla:offset"] = pa.array(offsets, pa.int64())
    columns["tortilla:length"] = pa.array([len(one.data) for one in items], pa.int64())
    names = dict.fromkeys(name for one in items for name in one.more)
    for name in names:
        columns[name] = pa.array([one.more.get(name) for one in items])
    return pa.table(columns)


def header(
    offset: int,
    length: int,
    *,
    parts: int = 1,
    magic: bytes = b"#y",
    collection: tuple[int, int] = (0, 0),
    layout: str = "v0.5",
    driver: str = "GTiff",
) -> bytes:
    """The bytes of a header."""
    start = magic + struct.pack("<QQ", offset, length)
    if layout == "v0.0":
        return start + driver.encode().ljust(32)
    if layout == "v0.1":
        more = driver.encode().ljust(24) + struct.pack("<QQQ", parts, *collection)
    else:
        more = struct.pack("<QQQ", parts, *collection)
    return (start + more).ljust(200, b"\0")


def built(
    items: Sequence[Item],
    *,
    layout: str = "v0.5",
    parts: int = 1,
    driver: str = "GTiff",
    collection: Mapping[str, Any] | bytes | None = None,
    magic: bytes | None = None,
    table: Any = None,
    json_footer: bool = False,
    gap: int = 0,
    trailing: bytes = b"",
    **options: Any,
) -> bytes:
    """A whole file.

    Parameters
    ----------
    table
        Called with the footer's table; what it returns is written instead.
    gap
        Bytes between two items.
    """
    start = 50 if layout == "v0.0" else 200
    offsets, at = [], start
    for one in items:
        offsets.append(at)
        at += len(one.data) + gap
    data = b"".join(one.data + b"\xee" * gap for one in items)
    if json_footer:
        spans = {one.id: [at, len(one.data)] for one, at in zip(items, offsets, strict=True)}
        data += bytes(50)
        ending = json.dumps(spans).encode()
    else:
        made = table_of(items, offsets, with_format=layout == "v0.5")
        ending = footer(table(made) if table else made, **options)
    at = start + len(data)
    more = b""
    if collection is not None:
        more = collection if isinstance(collection, bytes) else json.dumps(collection).encode()
    span = (at + len(ending), len(more)) if collection is not None else (0, 0)
    if magic is None:
        magic = b"WX" if collection is not None else b"#y"
    head = header(
        at, len(ending), parts=parts, magic=magic, collection=span, layout=layout, driver=driver
    )
    return head + data + ending + more + trailing


def nested(*children: tuple[str, Sequence[Item]], **options: Any) -> bytes:
    """A file of files."""
    return built([Item(name, built(items), "TORTILLA") for name, items in children], **options)


def deep(levels: int) -> bytes:
    """A file in a file in a file, `levels` of them in all."""
    data = built([Item("leaf", b"leaf")])
    for _ in range(levels - 1):
        data = built([Item("in", data, "TORTILLA")])
    return data


def column(name: str, values: Any) -> Any:
    """Replace or add a column of the footer."""

    def change(table: pa.Table) -> pa.Table:
        made = values(table[name]) if callable(values) else values
        if name in table.column_names:
            return table.set_column(table.column_names.index(name), name, made)
        return table.append_column(name, made)

    return change


def write(folder: Path, data: bytes, name: str = "x.tortilla") -> Path:
    """A file with these bytes."""
    path = folder / name
    path.write_bytes(data)
    return path
