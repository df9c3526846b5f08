"""RaQuet files made by pyarrow alone, in every layout that readers meet."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import quadbin  # type: ignore[import-untyped]

Pixels = npt.NDArray[Any]
Tile = tuple[int, int, int]

BLOCK = 16


@dataclass
class Plan:
    """How a file is to be written; the defaults are the layout of comal."""

    bands: Sequence[tuple[str, str, Any]] = (("band_1", "uint8", 0),)
    """Name, type, nodata as it stands in the document."""
    compression: str | None = "gzip"
    block: tuple[int, int] = (BLOCK, BLOCK)
    interleaved: bool = False
    nested: bool = False
    metadata_at: str = "first"
    rows_in_group: int = 64
    pages: bool = True
    dictionary: bool = False
    codec: str = "none"
    checksum: bool = False
    page_version: str = "1.0"
    block_type: Any = field(default_factory=pa.uint64)
    large: bool = False
    required: bool = False
    in_footer: bool = True
    sort: bool = True
    times: bool = False
    stamps: bool = True
    frame: Callable[[bytes], bytes] | None = None
    change: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the document that are to be others; ``...`` takes one out."""
    extra_rows: Sequence[dict[str, Any]] = ()


def framed(data: bytes, how: str = "gzip") -> bytes:
    """Pixels in one of the three framings of ``gzip``, by the standard library."""
    if how == "gzip":
        return gzip.compress(data, 6, mtime=0)
    if how == "zlib":
        return zlib.compress(data)
    return bytes.fromhex("1f8b0800000000000003") + zlib.compress(data)


def cell(tile: Tile) -> int:
    """The id of a tile, by the package of the format's authors."""
    z, x, y = tile
    return int(quadbin.tile_to_cell((x, y, z)))


def document(plan: Plan, tiles: Sequence[Tile]) -> dict[str, Any]:
    """The metadata of a file that holds these tiles."""
    zooms = [tile[0] for tile in tiles]
    low, high = min(zooms), max(zooms)
    finest = [tile for tile in tiles if tile[0] == high]
    columns, rows = [tile[1] for tile in finest], [tile[2] for tile in finest]
    west, north = _corner(min(columns), min(rows), high)
    east, south = _corner(max(columns) + 1, max(rows) + 1, high)
    across, down = max(columns) - min(columns) + 1, max(rows) - min(rows) + 1
    size = {"width": across * plan.block[1], "height": down * plan.block[0]}
    common = {"compression": plan.compression, "bounds": [west, south, east, north], **size}
    if plan.nested:
        bands = [{"name": name, "type": kind, "nodata": no} for name, kind, no in plan.bands]
        found: dict[str, Any] = {
            "file_format": "raquet",
            "version": "0.5.0",
            "crs": "EPSG:3857",
            "bounds_crs": "EPSG:4326",
            "tiling": {
                "scheme": "quadbin",
                "block_width": plan.block[1],
                "block_height": plan.block[0],
                "min_zoom": low,
                "max_zoom": high,
                "num_blocks": len(finest),
            },
            **common,
            "bands": bands,
        }
        if plan.interleaved:
            found["band_layout"] = "interleaved"
    else:
        bands = [
            {"name": name, "type": kind, "nodata": None if no is None else str(no)}
            for name, kind, no in plan.bands
        ]
        found = {
            "version": "0.1.0",
            "minresolution": low,
            "maxresolution": high,
            "block_resolution": high,
            "block_width": plan.block[1],
            "block_height": plan.block[0],
            "num_blocks": len(finest),
            **common,
            "bands": bands,
        }
    if plan.times:
        found["time"] = {"cf:units": "days since 2020-01-01", "cf:calendar": "standard"}
    found |= plan.change
    return {key: value for key, value in found.items() if value is not ...}


def write(
    path: Path,
    tiles: Mapping[Any, Sequence[Pixels | bytes | None]],
    plan: Plan | None = None,
    text: str | None = None,
) -> Path:
    """Write a file.

    Parameters
    ----------
    path
        Target.
    tiles
        From (z, x, y), or (z, x, y, days) with times, to an array, blob or None for each band.
    plan
        How.
    text
        The document, instead of the one that fits.
    """
    plan = plan or Plan()
    keys = list(tiles)
    said = document(plan, [key[:3] for key in keys])
    text = json.dumps(said) if text is None else text
    names = ["pixels"] if plan.interleaved else [name for name, _, _ in plan.bands]
    rows = [_row(key, tiles[key], names, plan) for key in keys]
    if plan.sort:
        rows.sort(key=lambda row: (row["block"], row.get("time_cf") or 0))
    rows += [dict(row) for row in plan.extra_rows]
    head = {"block": 0, "metadata": text}
    schema = _schema(names, plan)
    if plan.in_footer:
        schema = schema.with_metadata({"comal:metadata": text})
    groups = [rows[at : at + plan.rows_in_group] for at in range(0, len(rows), plan.rows_in_group)]
    groups = {
        "first": [[head], *groups],
        "last": [*groups, [head]],
        "inside": [[*groups[0][:1], head, *groups[0][1:]], *groups[1:]],
        "none": groups,
    }[plan.metadata_at]
    settings: dict[str, Any] = {
        "use_dictionary": [*names, "metadata"] if plan.dictionary else False,
        "compression": dict.fromkeys(names, plan.codec) | {"block": "zstd", "metadata": "zstd"},
        "write_statistics": ["block"],
        "write_page_index": plan.pages,
        "write_page_checksum": plan.checksum,
        "data_page_version": plan.page_version,
    }
    if plan.times:
        settings["compression"] |= {"time_cf": "zstd", "time_ts": "zstd"}
    if plan.pages and not plan.dictionary:
        settings["max_rows_per_page"] = 1
    with pq.ParquetWriter(path, schema, **settings) as writer:
        for group in groups:
            writer.write_table(pa.Table.from_pylist(group, schema))
    return path


def noise(
    seed: int, dtype: str = "uint8", shape: tuple[int, ...] = (BLOCK, BLOCK), low: int = 1
) -> Pixels:
    """Pixels that differ everywhere and are never 0."""
    return np.random.default_rng(seed).integers(low, 100, shape).astype(dtype)


def stored(array: Pixels) -> bytes:
    """Pixels as they lie in a tile without compression."""
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def with_crc(data: bytes) -> bytes:
    """The trailer of a gzip member."""
    return struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def blobs_of(bands: Sequence[Pixels | bytes | None], plan: Plan) -> list[bytes | None]:
    """The blob of a tile in each column, out of an array, blob or None for each band."""
    if plan.interleaved:
        arrays = [np.asarray(band) for band in bands if band is not None]
        bands = [np.stack(arrays, axis=-1) if arrays else None]
    return [_blob(band, plan) for band in bands]


def _row(key: Any, bands: Sequence[Pixels | bytes | None], names: list[str], plan: Plan) -> Any:
    row: dict[str, Any] = {"block": cell(key[:3])}
    row |= zip(names, blobs_of(bands, plan), strict=True)
    if plan.times:
        row["time_cf"] = float(key[3])
        row["time_ts"] = np.datetime64("2020-01-01", "us") + np.timedelta64(int(key[3]), "D")
    return row


def _blob(band: Pixels | bytes | None, plan: Plan) -> bytes | None:
    if band is None or isinstance(band, bytes):
        return band
    data = stored(band)
    if plan.frame is not None:
        return plan.frame(data)
    return framed(data) if plan.compression == "gzip" else data


def _schema(names: Sequence[str], plan: Plan) -> Any:
    binary = pa.large_binary() if plan.large else pa.binary()
    text = pa.large_string() if plan.large else pa.string()
    fields = [
        pa.field("block", plan.block_type, nullable=not plan.required),
        pa.field("metadata", text),
    ]
    if plan.times:
        fields.append(pa.field("time_cf", pa.float64()))
    if plan.times and plan.stamps:
        fields.append(pa.field("time_ts", pa.timestamp("us")))
    return pa.schema([*fields, *(pa.field(name, binary) for name in names)])


def _corner(x: int, y: int, z: int) -> tuple[float, float]:
    """North-west corner of a tile in degrees."""
    import math

    lat = math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * y / (1 << z)))))
    return x / (1 << z) * 360 - 180, lat
