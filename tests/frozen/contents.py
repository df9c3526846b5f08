"""What foreign readers find in the files that writers make, to see what moved in their bytes."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from rasterio.io import MemoryFile

from tests.frozen.jobs import Fact, digest, made, tree

_ENTRY = (
    *("filename", "header_offset", "file_size", "compress_size", "CRC", "compress_type"),
    *("flag_bits", "date_time", "extra", "comment", "external_attr", "extract_version"),
)
_CHUNK = (
    *("compression", "encodings", "has_dictionary_page", "is_stats_set", "has_offset_index"),
    *("has_column_index", "data_page_offset", "total_compressed_size", "total_uncompressed_size"),
)


def contents(folder: Path) -> Iterator[Fact]:
    """A line for each file that is not made twice, and for each table and document in it."""
    first: dict[str, str] = {}
    for name, path in made(folder).items():
        same = first.setdefault(tree(path), name)
        if same != name:
            yield name, f"as {same}"
            continue
        for file in filter(Path.is_file, [path, *sorted(path.rglob("*"))]):
            for key, data in _pieces(str(name / file.relative_to(path)), file.read_bytes()):
                yield key, _described(data)


def _pieces(key: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """A file, and what is in it that has a structure of its own."""
    yield key, data
    if data.startswith(b"#y"):
        offset = int.from_bytes(data[2:10], "little")
        yield f"{key}!footer", data[offset:]
    elif data.startswith(b"PK"):
        with zipfile.ZipFile(BytesIO(data)) as archive:
            for entry in archive.namelist():
                if entry.endswith((".parquet", "__meta__", ".json")):
                    yield f"{key}!{entry}", archive.read(entry)


def _described(data: bytes) -> str:
    for magic, reader in READERS:
        if data.startswith(magic):
            return " ".join(f"{name}={value}" for name, value in reader(data).items())
    return f"{len(data)} bytes {digest(data)}"


def _mark(value: object) -> str:
    return "#" + digest(repr(value).encode())[:6]


def _each(values: Mapping[Any, Any]) -> str:
    """Names and values, or digests of long ones."""
    short = {k: v if len(str(v)) <= 20 else _mark(v) for k, v in values.items()}
    return "{" + ", ".join(f"{key}: {value}" for key, value in short.items()) + "}"


def _seen(objects: Sequence[Any], names: Iterable[str]) -> dict[str, str]:
    """One or two values that attributes have; of more, their number and a digest of all."""
    found = {}
    for name in names:
        values = [getattr(one, name) for one in objects]
        few = sorted({str(value) for value in values})
        found[name] = "|".join(few) if len(few) <= 2 else f"{len(few)}{_mark(values)}"
    return found


def _zip(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        entries = archive.infolist()
        end = {"start": archive.start_dir, "about": archive.comment, "bad": archive.testzip()}
    return {"ZIP": len(entries), **_seen(entries, _ENTRY), "end": _each(end)}


def _parquet(data: bytes) -> dict[str, Any]:
    file = pq.ParquetFile(BytesIO(data))
    about, table = file.metadata, file.read()
    groups = [about.row_group(n) for n in range(about.num_row_groups)]
    chunks = [group.column(n) for group in groups for n in range(group.num_columns)]
    columns = zip(table.schema, table.columns, strict=True)
    return {
        "Parquet": table.shape,
        "by": about.created_by,
        **_seen(groups, ("num_rows", "sorting_columns")),
        **_seen(chunks, _CHUNK),
        "keys": _each(about.metadata or {}),
        "columns": _each({f"{c.name} {c.type}": _mark(each.to_pylist()) for c, each in columns}),
        **(_raquet(data) if "block" in table.column_names else {}),
    }


def _raquet(data: bytes) -> dict[str, Any]:
    """Its document, and the number of tiles of each zoom, which is in the bits of their ids."""
    rows = duckdb.read_parquet(BytesIO(data))
    zooms = rows.aggregate("block >> 52 & 31 AS zoom, count(*)", "zoom").order("zoom").fetchall()
    ((text,),) = rows.filter("block = 0").project("metadata").fetchall()
    return {"zooms": _each(dict(zooms)), "document": _each(json.loads(text))}


def _sqlite(data: bytes) -> dict[str, Any]:
    with closing(sqlite3.connect(":memory:")) as base:
        base.deserialize(data)
        asked = ("page_size", "application_id", "user_version", "integrity_check")
        found = {name: base.execute(f"PRAGMA {name}").fetchone()[0] for name in asked}
        for name, kind, text in base.execute("SELECT name, type, sql FROM sqlite_master"):
            rows = [] if kind == "index" else base.execute(f'SELECT * FROM "{name}"').fetchall()
            found[name] = f"{kind} {_mark(text)} of {len(rows)} {_mark(rows)}"
    return {"SQLite": len(data), **found}


def _pmtiles(data: bytes) -> dict[str, Any]:
    library: Any = import_module("pmtiles.reader")
    get = library.MemorySource(data)
    header, about = library.Reader(get).header(), library.Reader(get).metadata()
    root = library.deserialize_directory(get(header["root_offset"], header["root_length"]))
    found = {"root": _mark(list(map(str, root))), "tiles": _mark(list(library.all_tiles(get)))}
    return {"PMTiles": _each(header), "metadata": _each(about), **found}


def _raster(data: bytes) -> dict[str, Any]:
    with MemoryFile(data) as memory, memory.open() as image:
        return {
            "image": _each(image.profile),
            "overviews": [image.overviews(band) for band in image.indexes],
            "tags": _each(image.tags() | image.tags(ns="IMAGE_STRUCTURE")),
            "pixels": [_mark(band.tobytes()) for band in image.read()],
        }


READERS = (
    *((b"PK", _zip), (b"PAR1", _parquet), (b"SQLite format 3\0", _sqlite), (b"PMTiles", _pmtiles)),
    *((b"II", _raster), (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", _raster)),
    (b"{", lambda data: {"JSON": _each(json.loads(data))}),
)
