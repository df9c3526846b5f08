"""Small archives of every format, written without comal where that is easy."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import rasterio
from rasterio.transform import Affine

from comal import taco
from tests.raquet import build as raquet

WORLD = [-180, -85.0511287798066, 180, 85.0511287798066]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
VECTOR = b"a vector tile, " * 40
GZIPPED = gzip.compress(VECTOR, mtime=0)
TIME = (2018, 10, 31, 19, 10, 26)
HTTP_TIME = "Wed, 31 Oct 2018 19:10:26 GMT"


def entry(
    archive: zipfile.ZipFile, name: str, data: bytes, *, deflate: bool = False, comment: Any = None
) -> None:
    info = zipfile.ZipInfo(name, TIME)
    info.compress_type = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    if comment is not None:
        info.comment = json.dumps(comment).encode()
    archive.writestr(info, data)


def tileset(folder: Path, **changes: Any) -> Path:
    """Tiles of zooms 0 to 2 in one archive, of several formats; 2/3/3 is missing.

    ``png`` is stored, ``mvt`` gzip and stored, ``txt`` deflated, and 2/0/0.txt has a wrong CRC.
    """
    folder.mkdir(parents=True, exist_ok=True)
    meta: dict[str, Any] = {
        "tapalcatl": "2.0.0",
        "name": "set",
        "minzoom": 0,
        "maxzoom": 2,
        "bounds": WORLD,
        "formats": {
            "png": "image/png",
            "mvt": [
                {"Content-Type": "application/vnd.mapbox-vector-tile"},
                {"Content-Encoding": "gzip"},
            ],
            "txt": "text/plain",
            "html": "text/html",
        },
        "metatile": 1,
        "materializedZooms": [0],
        "source": "{z}/{x}/{y}.zip",
        **changes,
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    place = folder / "0" / "0"
    place.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place / "0.zip", "w") as archive:
        archive.comment = json.dumps({**meta, "root": "0/0/0"}).encode()
        for z in range(3):
            for x in range(1 << z):
                for y in range(1 << z):
                    if (z, x, y) == (2, 3, 3):
                        continue
                    name = f"{z}/{x}/{y}"
                    entry(archive, f"{name}.png", PNG + name.encode())
                    entry(archive, f"{name}.mvt", GZIPPED)
                    entry(archive, f"{name}.txt", VECTOR + name.encode(), deflate=True)
        entry(archive, "0/0/0@2x.png", PNG + b"twice", comment=[{"X-Scale": "2"}])
        entry(
            archive,
            "0/0/0.html",
            b"<script>alert(1)</script>",
            comment=[
                {"Set-Cookie": "a=b"},
                {"Content-Length": "3"},
                {"Access-Control-Allow-Origin": "evil"},
                {"Content-Security-Policy": "default-src *"},
                {"X-Fine": "yes"},
                {"Cache-Control": "max-age=7"},
            ],
        )
    damage(place / "0.zip", b"2/0/0.txt")
    damage(place / "0.zip", b"2/0/0.png")
    return folder


def damage(path: Path, name: bytes) -> None:
    """Give an entry another CRC in the central directory."""
    data = bytearray(path.read_bytes())
    at = data.rfind(name)
    header = data.rfind(b"PK\x01\x02", 0, at)
    (crc,) = struct.unpack_from("<I", data, header + 16)
    struct.pack_into("<I", data, header + 16, crc ^ 0xFFFF)
    path.write_bytes(bytes(data))


def crc(data: bytes) -> str:
    return f'"{zlib.crc32(data):08x}"'


def raquet_file(
    path: Path,
    bands: dict[str, npt.NDArray[Any]],
    *,
    nodata: float | None = None,
    extra: dict[str, dict[str, Any]] | None = None,
) -> Path:
    """Zoom 1, all four tiles cut out of arrays of 128 x 128, and zoom 0 by leaving out pixels."""
    tiles = {(0, 0, 0): [pixels[::2, ::2] for pixels in bands.values()]}
    for x, y in itertools.product((0, 1), repeat=2):
        part = slice(64 * y, 64 * y + 64), slice(64 * x, 64 * x + 64)
        tiles[1, x, y] = [pixels[part] for pixels in bands.values()]
    described = []
    for name, pixels in bands.items():
        one: dict[str, Any] = {"type": str(pixels.dtype), "name": name, "colorinterp": "gray"}
        if nodata is not None:
            one["nodata"] = str(nodata)
        described.append({**one, **(extra or {}).get(name, {})})
    plan = raquet.Plan(
        bands=[(name, str(pixels.dtype), None) for name, pixels in bands.items()],
        block=(64, 64),
        change={"bounds": WORLD, "bands": described, "nodata": nodata, "pixel_resolution": 7},
    )
    return raquet.write(path, tiles, plan)


def tiff(values: npt.NDArray[Any], origin: tuple[float, float] = (300000, 8700000)) -> bytes:
    """A GeoTIFF of bands (bands, rows, columns)."""
    count, rows, columns = values.shape
    profile = {"count": count, "height": rows, "width": columns, "dtype": values.dtype}
    place = {"crs": "EPSG:32718", "transform": Affine(10, 0, origin[0], 0, -10, origin[1])}
    with rasterio.MemoryFile() as memory:
        with memory.open(driver="GTiff", **profile, **place) as target:
            target.write(values)
        return bytes(memory.read())


COLLECTION: dict[str, Any] = {
    "id": "tiny",
    "dataset_version": "1.0.0",
    "description": "<script>alert(1)</script>",
    "licenses": ["CC0-1.0"],
    "providers": [{"name": "tests"}],
    "tasks": ["other"],
}


def taco_file(path: Path, count: int = 6) -> Path:
    """Scenes of two rasters and a text each, with a centroid, a time and some columns."""
    samples = []
    for number in range(count):
        pixels = np.full((3, 16, 16), 10 * number, np.uint16)
        pixels[:, :8] += np.arange(16, dtype=np.uint16)
        children = taco.Tortilla(
            [
                taco.Sample(id="image.tif", path=tiff(pixels), part="image"),
                taco.Sample(id="note.txt", path=f"note {number}".encode(), part="note"),
            ]
        )
        fields: dict[str, Any] = {
            "cloud_cover": None if number == 5 else float(number * 10),
            "split": "train" if number % 2 else "test",
            "clear": number < 2,
            "stac:crs": "EPSG:4326",
            "stac:geotransform": [number * 10.0, 0.5, 0.0, 10.0, 0.0, -0.5],
            "stac:tensor_shape": [1, 4, 4],
            "stac:centroid": point(number * 10.0 + 1, 9.0),
            "stac:time_start": np.datetime64(f"2023-0{number + 1}-01", "us").item(),
        }
        samples.append(taco.Sample(id=f"scene {number}", path=children, **fields))
    taco.create(taco.Taco(taco.Tortilla(samples), **COLLECTION), path)
    return path


def point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


def picture(body: bytes) -> npt.NDArray[np.uint8]:
    """A picture as RGBA (rows, columns, 4)."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(body)).convert("RGBA"))


def many_samples(path: Path, count: int) -> Path:
    """A TACO of so many samples of a byte, and beside it a Parquet file of their columns."""
    rng = np.random.default_rng(5)
    table = pa.table(
        {
            "id": [f"s{number:06d}" for number in range(count)],
            "path": pa.array([b"x"] * count, pa.binary()),
            "cloud": rng.random(count),
            "split": rng.choice(np.array(["a", "b", "c"]), count),
            "stac:centroid": pa.array(
                [point(n % 360 - 180.0, n % 170 - 85.0) for n in range(count)]
            ),
        }
    )
    taco.create(taco.Taco(taco.Tortilla.from_table(table), **COLLECTION), path)
    pq.write_table(table.drop(["path"]), path.with_suffix(".oracle"))
    return path
