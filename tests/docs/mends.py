"""What errors tell to do, done: for each mend a call that fails, and the same as the mend has it.

`MENDS` has part of the text of a hint, what provokes it, and what it says. `ELSEWHERE` has those
that need what an ordinary machine does not have.
"""

from __future__ import annotations

import gzip
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import rasterio
from click.testing import CliRunner
from rasterio.control import GroundControlPoint
from rasterio.shutil import copy
from rasterio.transform import Affine
from rasterio.vrt import WarpedVRT

from comal import raquet, raster, taco, tapalcatl, tortilla
from comal.cli import root
from comal.grid import quadbin
from comal.limits import Limits
from comal.server.process import check_address
from comal.storage import StorageConfig
from comal.taco import extensions
from tests.archives import WHAT_A_TORTILLA_LACKS, Files, samples
from tests.attacks import build as tacos
from tests.server.making import PNG, raquet_file, taco_file
from tests.tortilla import build as tortillas

Do = Callable[[Files], Any]


class FailedError(Exception):
    """A command that did not end well, with what it printed."""


def cli(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(root, [str(word) for word in words])
    if result.exit_code != code:
        raise FailedError(result.output)
    return result.output


def told(path: object) -> str:
    """What ``comal check`` tells is wrong."""
    text = cli("check", path, code=1)
    assert "error" in text
    return text


def raster_file(
    f: Files, name: str, bands: Any, nodata: Any = None, crs: Any = "EPSG:3857", **more: Any
) -> str:
    bands = np.asarray(bands)
    profile = {"count": len(bands), "height": bands.shape[1], "width": bands.shape[2]}
    place = {"transform": Affine(10, 0, 0, 0, -10, 0), "crs": crs, "nodata": nodata, **more}
    with rasterio.open(f.new(name), "w", "GTiff", dtype=bands.dtype, **profile, **place) as file:
        file.write(bands)
    return f.new(name)


def bands_file(f: Files, *dtypes: str, name: str = "bands.parquet", **more: Any) -> str:
    """A RaQuet file of bands a, b, ... of these types."""
    pixels = np.arange(128 * 128).reshape(128, 128) % 100 + 1
    bands = {"abc"[n]: pixels.astype(dtype) for n, dtype in enumerate(dtypes)}
    return str(raquet_file(f.out / name, bands, **more))


def values_of_all(f: Files, nodata: int) -> str:
    """A raster of bytes that has all values; the next lies to the east."""
    bands = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    return raster_file(
        f, f"all{nodata}.tif", bands, nodata, transform=Affine(10, 0, 160 * nodata, 0, -10, 0)
    )


def taco_of(f: Files, *made: taco.Sample, name: str = "made.tacozip", **more: Any) -> str:
    tree = taco.Tortilla(list(made), **more)
    taco.create(taco.Taco(tree, **WHAT_A_TORTILLA_LACKS), f.new(name), overwrite=True)
    return f.new(name)


def bytes_of(f: Files, name: str, data: bytes) -> str:
    (f.out / name).write_bytes(data)
    return f.new(name)


def attacked(f: Files, **recipe: Any) -> str:
    return bytes_of(f, "attacked.tacozip", tacos.Recipe(**recipe).build())


def tortilla_of(f: Files, *items: tortillas.Item, name: str = "of.tortilla", **more: Any) -> str:
    return bytes_of(f, name, tortillas.built(items, **more))


def busy() -> int:
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    place.listen()
    _KEPT.append(place)
    return int(place.getsockname()[1])


_KEPT: list[Any] = []


def free() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


_SMALL = Limits(raster_bytes=1 << 20)
_FLAT = np.ones((1, 16, 16), np.uint8)
_FIRST = "s2/imagery/before.bin"
_MASK: Any = pd.Series([True, False])
_CORNERS = [(0, 0), (0, 16), (16, 0), (16, 16)]
_FIRST_SETTINGS = tapalcatl.Generation1(metatile=1, max_detail_zoom=2)
_MORE = tortillas.Item("b", b"y")
_BOWTIE = "(SELECT ST_GeomFromText('POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))') AS g)"
_TWICE = "SELECT * FROM (SELECT * FROM data UNION ALL SELECT * FROM data)"


def _crossed(geometry: str) -> str:
    return f"ST_Area(ST_Intersection({geometry}, ST_MakeEnvelope(0, 0, 1, 2)))"


def mixed(f: Files) -> str:
    inner = tortillas.built([LEAF])
    return tortilla_of(f, LEAF, tortillas.Item("n", inner, "TORTILLA"))


def two_nodata(f: Files) -> str:
    return bands_file(f, "uint8", "uint8", extra={"a": {"nodata": "0"}, "b": {"nodata": "255"}})


def one_lost(f: Files) -> str:
    """Of two bands without nodata value one lacks a tile."""
    path = bands_file(f, "uint8", "uint8")
    table = pq.read_table(path)
    lost = [*table["b"].to_pylist()[:-1], None]
    pq.write_table(table.set_column(3, "b", pa.array(lost, pa.binary())), path)
    return path


def huge(f: Files) -> str:
    path = f.out / "huge.tif"
    if not path.exists():
        bands = np.ones((1, 2048, 2048), np.uint8)
        raster_file(f, "huge.tif", bands, tiled=True, compress="deflate")
    return str(path)


def overviews(path: str) -> Any:
    with rasterio.open(path, "r+") as file:
        return file.build_overviews([8, 32])


def nowhere(f: Files) -> str:
    return raster_file(f, "nowhere.tif", _FLAT, crs=None)


def linked(f: Files) -> str:
    folder = tacos.folder(f.out / "linked", tacos.FLAT) if not (f.out / "linked").exists() else None
    if folder is not None:
        leaf = folder / "DATA" / "img_0.bin"
        leaf.rename(f.out / "outside.bin")
        leaf.symlink_to(f.out / "outside.bin")
    return f.new("linked")


def irregular(f: Files) -> str:
    tree = {**tacos.NESTED, "s2": {"label.txt": b"alone"}}
    return attacked(f, tree=tree)


def twins(f: Files) -> taco.TacoDataset:
    one, two = scenes(f, "one.tacozip"), scenes(f, "two.tacozip")
    return taco.load([one, two])


def undeclared(f: Files) -> str:
    def more(archive: Any, name: str) -> None:
        if name == "COLLECTION.json":
            archive.add("DATA/stranger.bin", b"x")

    return attacked(f, before=more)


def swapped(f: Files) -> str:
    """The local header of the first leaf is none any more."""
    return attacked(f, after=lambda data: data[:4] + data[4:].replace(b"PK\3\4", b"PK\7\4", 1))


def popped(thing: Any, key: str) -> Any:
    thing.pop(key)
    return thing


def _table(f: Files, ids: str) -> Any:
    return pa.table({ids: ["a", "b"], "path": [f.tif, f.tif]})


def scenes_again(f: Files) -> str:
    return str(taco_file(f.out / "again.tacozip", 2))


def first_generation(f: Files) -> str:
    sources = [(2, x, y, PNG) for x in range(4) for y in range(4)]
    return built(f, "first", sources, version=1, generation1=_FIRST_SETTINGS)


def one_of_first(f: Files) -> str:
    return str(next(Path(first_generation(f)).rglob("*.zip")))


def sound(f: Files) -> str:
    return built(f, "sound", [(0, 0, 0, PNG)])


def deep(f: Files) -> str:
    return built(f, "deep", [(1, 0, 0, PNG)], metatile=1, materialized_zooms=[1])


def zipped_tile(f: Files) -> tapalcatl.Tile:
    """A tile whose bytes are a gzip stream of 300."""
    built = f.out / "zipped"
    data = gzip.compress(bytes(300))
    tapalcatl.build([(0, 0, 0, data)], built, ext="mvt", overwrite=True)
    tile = tapalcatl.open(built).tile(0, 0, 0)
    assert tile is not None
    return tile


def built(f: Files, name: str, tiles: Any, **how: Any) -> str:
    tapalcatl.build(tiles, f.out / name, ext="png", overwrite=True, **how)
    return f.new(name)


def damaged(f: Files) -> str:
    """A tileset of one tile whose bytes are not those of its checksum."""
    path = Path(sound(f)) / "0" / "0" / "0.zip"
    path.write_bytes(path.read_bytes().replace(PNG, PNG[::-1]))
    return f.new("sound")


def wrong_span(f: Files) -> str:
    """A tile that begins behind the end of its archive."""
    path = Path(sound(f)) / "0" / "0" / "0.zip"
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rfind(b"PK\x01\x02") + 42, 1 << 20)
    path.write_bytes(bytes(data))
    return f.new("sound")


def outside(f: Files) -> str:
    table = tortillas.column("tortilla:offset", pa.array([1 << 40], pa.int64()))
    return tortilla_of(f, LEAF, table=table)


def without_entry(f: Files) -> str:
    """The directory of the archive has another name for a leaf."""
    head, name, tail = tacos.Recipe().build().rpartition(b"DATA/s2/label.txt")
    return bytes_of(f, "lost.tacozip", head + name.swapcase() + tail)


def with_points(f: Files) -> str:
    """A raster whose place is told by ground control points."""
    corners = [GroundControlPoint(row, col, 10 * col, -10 * row) for row, col in _CORNERS]
    return raster_file(f, "gcps.tif", _FLAT, transform=None, gcps=corners)


def warped(path: str) -> str:
    """As ``gdalwarp -t_srs EPSG:3857 IN OUT.tif``."""
    with rasterio.open(path) as source, WarpedVRT(source, crs="EPSG:3857") as vrt:
        copy(vrt, f"{path}.warped.tif", driver="GTiff")
    return f"{path}.warped.tif"


def unplaced(f: Files) -> str:
    return raster_file(f, "unplaced.tif", _FLAT, transform=None)


def placed(path: str) -> str:
    """As ``gdal_translate -a_ullr``."""
    with rasterio.open(path, "r+") as file:
        file.transform = Affine(10, 0, 0, 0, -10, 0)
    return path


def variables(f: Files) -> str:
    path = raster_file(f, "two.tif", np.ones((2, 16, 16), np.int16), crs="EPSG:4326")
    copy(path, f.new("two.nc"), driver="netCDF")
    return f.new("two.nc")


LEAF = tortillas.Item("a", b"x")


def view(f: Files, what: str) -> taco.TacoDataset:
    return taco.load(f.scenes).sql(f"SELECT {what} FROM data")


def scenes(f: Files, name: str, **fields: Any) -> str:
    return taco_of(f, taco.Sample("a", f.tif, **fields), name=name)


def copied(f: Files, source: Any, **more: Any) -> Any:
    return taco.export(source, f.new("copy.tacozip"), quiet=True, overwrite=True, **more)


MENDS: dict[str, tuple[Do, Do]] = {
    # Plans
    "run 'comal run ": (
        lambda f: (
            cli("plan", "raquet", f.tif, f.new("o"), "-o", f.new("plan")),
            cli("merge", f.new("plan")),
        ),
        lambda f: (cli("run", f.new("plan")), cli("merge", f.new("plan"))),
    ),
    # The command line
    "'comal taco concat' joins": (
        lambda f: cli("convert", f.scenes, f.scenes, f.new("o.tacozip")),
        lambda f: cli(
            "taco", "concat", f.scenes, scenes_again(f), "-o", f.new("o.tacozip"), "--rename"
        ),
    ),
    "'comal raquet export' writes PNG": (
        lambda f: cli("convert", f.dem, f.new("o.tacozip")),
        lambda f: cli("raquet", "export", f.dem, f.new("o.png")),
    ),
    "--band NAME": (
        lambda f: cli("get", bands_file(f, "uint8", "uint8"), "0/0/0"),
        lambda f: cli("get", f.new("bands.parquet"), "0/0/0", "--band", "a"),
    ),
    "with 'comal taco tacollection'": (
        lambda f: cli(
            "check",
            taco.create_tacollection([f.scenes], f.out),
            "--repair",
            f.new("o"),
        ),
        lambda f: cli("taco", "tacollection", f.scenes, "-o", f.out, "--overwrite"),
    ),
    "'comal ls' lists the keys": (
        lambda f: cli("get", f.scenes, "no such"),
        lambda f: cli("get", f.scenes, "--", cli("ls", f.scenes).split("\t")[0]),
    ),
    "'comal ls' lists the tiles": (
        lambda f: cli("get", f.tiles, "9/0/0.png"),
        lambda f: cli("get", f.tiles, cli("ls", f.tiles).split("\t")[0]),
    ),
    "choose another --port": (
        lambda _: check_address("127.0.0.1", busy()),
        lambda _: check_address("127.0.0.1", free()),
    ),
    "'comal check' lists what is missing": (
        lambda f: cli("get", without_entry(f), "s2/label.txt"),
        lambda f: told(without_entry(f)),
    ),
    # From one format to another
    "migrate items and nested files separately: frame.filter(...)": (
        lambda f: taco.migrate(mixed(f), f.new("o.tacozip"), **WHAT_A_TORTILLA_LACKS),
        lambda f: [
            taco.migrate(
                tortilla.open(mixed(f)).filter([one, not one]),
                f.new(f"o{one}.tacozip"),
                **WHAT_A_TORTILLA_LACKS,
            )
            for one in (True, False)
        ],
    ),
    # Zones, geometry, SQL
    "descendants() gives them as ranges": (
        lambda _: quadbin.children(quadbin.cells(0, 0, 0), 13),
        lambda _: quadbin.descendants(quadbin.cells(0, 0, 0), 13),
    ),
    "ST_FlipCoordinates(geometry)": (
        lambda f: raquet.sql(
            f.dem,
            "SELECT ST_Transform(ST_Point(1, 2), 'EPSG:4326', 'EPSG:3857', always_xy := false)",
        ),
        lambda f: raquet.sql(
            f.dem,
            "SELECT ST_Transform(ST_FlipCoordinates(ST_Point(1, 2)), 'EPSG:4326', 'EPSG:3857')",
        ),
    ),
    "ST_IsValid finds invalid": (
        lambda f: raquet.sql(f.dem, f"SELECT {_crossed('g')} FROM {_BOWTIE}"),
        lambda f: raquet.sql(
            f.dem,
            f"SELECT {_crossed('ST_MakeValid(g)')} FROM {_BOWTIE} WHERE NOT ST_IsValid(g)",
        ),
    ),
    "add LIMIT to the query or raise max_rows": (
        lambda f: raquet.sql(f.dem, "SELECT block FROM raster", max_rows=1),
        lambda f: [
            raquet.sql(f.dem, "SELECT block FROM raster LIMIT 1", max_rows=1),
            raquet.sql(f.dem, "SELECT block FROM raster", max_rows=99),
        ],
    ),
    # RaQuet
    "give one for all (nodata=...)": (
        lambda f: raquet.to_geotiff(two_nodata(f), f.new("o.tif")),
        lambda f: [
            raquet.to_geotiff(two_nodata(f), f.new("o.tif"), nodata=0),
            raquet.to_geotiff(two_nodata(f), f.new("o2.tif"), bands=["a"]),
        ],
    ),
    "export the bands one by one: bands=[...]": (
        lambda f: raquet.to_geotiff(bands_file(f, "int64", "float64"), f.new("o.tif")),
        lambda f: [
            raquet.to_geotiff(bands_file(f, "int64", "float64"), f.new(f"{band}.tif"), bands=[band])
            for band in "ab"
        ],
    ),
    "give a nodata value (nodata=...)": (
        lambda f: raquet.to_geotiff(one_lost(f), f.new("o.tif")),
        lambda f: [
            raquet.to_geotiff(one_lost(f), f.new("o.tif"), nodata=0),
            raquet.to_geotiff(one_lost(f), f.new("a.tif"), bands=["a"]),
        ],
    ),
    "choose the nodata value: nodata=": (
        lambda f: raquet.write([values_of_all(f, 0), values_of_all(f, 1)], f.new("o.parquet")),
        lambda f: raquet.write(
            [values_of_all(f, 0), values_of_all(f, 1)], f.new("o.parquet"), nodata=0
        ),
    ),
    # Rasters
    "pass the CRS: crs='EPSG:...'": (
        lambda f: raquet.write(raster_file(f, "r.tif", _FLAT, crs=None), f.new("o.parquet")),
        lambda f: [
            raquet.write(f.new("r.tif"), f.new("o.parquet"), crs="EPSG:3857"),
            cli("raquet", "create", f.new("r.tif"), f.new("o2.parquet"), "--crs", "EPSG:3857"),
        ],
    ),
    "rectify the raster first: gdalwarp": (
        lambda f: raquet.write(with_points(f), f.new("o.parquet")),
        lambda f: raquet.write(warped(with_points(f)), f.new("o.parquet")),
    ),
    "georeference the raster first, as gdal_translate -a_ullr does": (
        lambda f: raquet.write(unplaced(f), f.new("o.parquet")),
        lambda f: raquet.write(placed(unplaced(f)), f.new("o.parquet")),
    ),
    "choose one: variable=": (
        lambda f: raquet.write(variables(f), f.new("o.parquet")),
        lambda f: [
            raquet.write(variables(f), f.new("o.parquet"), variable="Band2"),
            cli("raquet", "create", variables(f), f.new("o2.parquet"), "--variable", "Band2"),
        ],
    ),
    "add overviews to the raster (gdaladdo)": (
        lambda f: raster.preview(huge(f), size=64, limits=_SMALL),
        lambda f: [
            raster.preview(huge(f), size=64, limits=Limits(raster_bytes=1 << 30)),
            overviews(huge(f)),
            raster.preview(huge(f), size=64, limits=_SMALL),
        ],
    ),
    # Storage
    "pass StorageConfig(follow_symlinks=True)": (
        lambda f: taco.load(linked(f)).data.read_bytes(0),
        lambda f: taco.load(linked(f), config=StorageConfig(follow_symlinks=True)).data.read_bytes(
            0
        ),
    ),
    "limits=Limits(": (
        lambda f: taco.load(f.scenes, limits=Limits(table_columns=3)).data,
        lambda f: taco.load(f.scenes, limits=Limits(table_columns=99)).data,
    ),
    "limits=Limits(tile_bytes=...)": (
        lambda f: zipped_tile(f).content(Limits(tile_bytes=3)),
        lambda f: zipped_tile(f).content(Limits(tile_bytes=999)),
    ),
    # TACO
    "export the samples that are alike": (
        lambda f: taco.repair(irregular(f), f.new("o.tacozip")),
        lambda f: copied(f, taco.load(irregular(f)).sql("SELECT * FROM data WHERE id != 's2'")),
    ),
    "load the dataset and use export": (
        lambda f: taco.zip2folder(f.tacodir, f.new("o"), quiet=True),
        lambda f: copied(f, taco.load(f.tacodir)),
    ),
    "pass rename=True to number them": (
        lambda f: copied(f, twins(f)),
        lambda f: [
            copied(f, twins(f), rename=True),
            copied(f, twins(f).sql("SELECT DISTINCT ON (id) * FROM data")),
        ],
    ),
    "keep the internal: columns in the query (SELECT *)": (
        lambda f: view(f, "id").flatten(1),
        lambda f: view(f, "*").flatten(1),
    ),
    "keep the internal: columns in the query as they are": (
        lambda f: copied(f, view(f, '* REPLACE (NULL::BIGINT AS "internal:current_id")')),
        lambda f: copied(f, view(f, "*")),
    ),
    "leave out joins and unions that repeat rows, or use SELECT DISTINCT": (
        lambda f: copied(f, taco.load(f.scenes).sql(_TWICE)),
        lambda f: copied(
            f, taco.load(f.scenes).sql(_TWICE.replace("SELECT", "SELECT DISTINCT", 1))
        ),
    ),
    'name the column: SELECT ... AS "cloud_cover"': (
        lambda f: copied(f, view(f, "*, cloud_cover + 1")),
        lambda f: copied(f, view(f, '* EXCLUDE (cloud_cover), cloud_cover + 1 AS "cloud_cover"')),
    ),
    "'comal check' lists all problems; export copies the samples alone": (
        lambda f: taco.zip2folder(undeclared(f), f.new("o"), quiet=True),
        lambda f: [told(undeclared(f)), copied(f, taco.load(undeclared(f)))],
    ),
    "give them to STAC(...) or use ISTAC": (
        lambda f: extensions.STAC.from_raster(nowhere(f), time_start=0),
        lambda f: extensions.STAC(
            crs="EPSG:4326",
            tensor_shape=(1, 16, 16),
            geotransform=(0, 1, 0, 10, 0, -1),
            time_start=0,
        ),
    ),
    "pass an instance: ": (
        lambda f: taco.Sample("a", f.tif).extend_with(extensions.Split),
        lambda f: taco.Sample("a", f.tif).extend_with(extensions.Split(schema_only=True)),
    ),
    "first to replace the field": (
        lambda f: taco.Sample("a", f.tif, q=1).extend_with({"q": 2}),
        lambda f: popped(taco.Sample("a", f.tif, q=1), "q").extend_with({"q": 2}),
    ),
    "to_arrow() returns its rows": (
        lambda f: taco.Tortilla.from_table(_table(f, "id")).samples,
        lambda f: taco.Tortilla.from_table(_table(f, "id")).to_arrow(),
    ),
    "keep id, type and the internal: columns": (
        lambda f: view(f, "1 AS x").data.read(0),
        lambda f: view(f, "*").data.read(0),
    ),
    "keep the internal: columns in its query": (
        lambda f: taco.concat([view(f, "id"), taco.load(f.scenes)]),
        lambda f: taco.concat([view(f, "*"), taco.load(f.scenes)]),
    ),
    "concat([one, other])": (
        lambda f: taco.concat(taco.load(f.scenes)),  # type: ignore[arg-type]
        lambda f: taco.concat([taco.load(f.scenes), taco.load(f.tacodir)]),
    ),
    "load([path, path]) opens several": (
        lambda f: taco.concat([f.scenes]),  # type: ignore[list-item]
        lambda f: taco.load([f.scenes, scenes_again(f)]),
    ),
    "Taco(tortilla, id=..., ...)": (
        lambda f: taco.create(samples(f).tortilla, f.new("o.tacozip")),  # type: ignore[arg-type]
        lambda f: taco.create(
            taco.Taco(samples(f).tortilla, **WHAT_A_TORTILLA_LACKS), f.new("o.tacozip")
        ),
    ),
    "'comal check' lists what is wrong": (
        lambda f: tapalcatl.open(wrong_span(f)).tile(0, 0, 0),
        lambda f: told(wrong_span(f)),
    ),
    "'comal check' lists what else is wrong": (
        lambda f: taco.load(swapped(f)).data.read_bytes(_FIRST),
        lambda f: told(swapped(f)),
    ),
    "filter(mask) selects rows by a mask": (
        lambda f: taco.load(f.scenes).data[_MASK],
        lambda f: [
            taco.load(f.scenes).data.filter(_MASK),
            tortilla.open(f.tortilla).filter(_MASK.to_list()),
        ],
    ),
    # Tapalcatl
    "'comal check' tells which tiles; put or delete them": (
        lambda f: tapalcatl.to_mbtiles(damaged(f), f.new("o.mbtiles"), ext="png", scale=1),
        lambda f: told(damaged(f)),
    ),
    "by remetatile(), with materialized zooms from there": (
        lambda f: tapalcatl.put(deep(f), [(0, 0, 0, PNG)], ext="png"),
        lambda f: [
            tapalcatl.remetatile(deep(f), f.new("o"), metatile=1, materialized_zooms=[0, 1]),
            tapalcatl.put(f.new("o"), [(0, 0, 0, PNG)], ext="png"),
        ],
    ),
    "write another tileset with remetatile()": (
        lambda f: tapalcatl.edit_metadata(f.tiles, {"metatile": 2}),
        lambda f: tapalcatl.remetatile(sound(f), f.new("o"), metatile=2),
    ),
    "pass generation1=Generation1(...), or --open version=1": (
        lambda f: tapalcatl.delete(one_of_first(f), [(1, 0, 0)]),
        lambda f: [
            tapalcatl.delete(one_of_first(f), [(2, 0, 0)], generation1=_FIRST_SETTINGS),
            cli(
                "tapalcatl",
                "delete",
                one_of_first(f),
                "2/0/0",
                *["--open", "version=1", "--open", "metatile=1"],
            ),
        ],
    ),
    # Tortilla
    "'comal check' lists every such row": (
        lambda f: tortilla.open(outside(f)).read(0),
        lambda f: told(outside(f)),
    ),
    "alone (form='binary'), or write the index elsewhere": (
        lambda f: taco.create_tacocat([f.scenes], "memory://mends/one", append=True),
        lambda f: [
            taco.create_tacocat([f.scenes], "memory://mends/one", form="binary"),
            shutil.copy(f.scenes, f.new("other.tacozip")),
            taco.create_tacocat(
                [f.new("other.tacozip")], "memory://mends/one", form="binary", append=True
            ),
        ],
    ),
    "pass form='both', or remove that form": (
        lambda f: [
            taco.create_tacocat([f.scenes], f.out),
            shutil.copy(f.scenes, f.new("other.tacozip")),
            taco.create_tacocat([f.new("other.tacozip")], f.out, form="binary", append=True),
        ],
        lambda f: taco.create_tacocat([f.new("other.tacozip")], f.out, append=True),
    ),
    "write a new file with compile() and change that": (
        lambda f: tortilla.delete(tortilla_of(f, LEAF, _MORE, layout="v0.1"), rows=[0]),
        lambda f: [
            tortilla.compile(tortilla_of(f, LEAF, _MORE, layout="v0.1"), f.new("o.tortilla")),
            tortilla.delete(f.new("o.tortilla"), rows=[0]),
        ],
    ),
    "'comal check' tells where": (
        lambda f: copied(f, taco.load(swapped(f))),
        lambda f: told(swapped(f)),
    ),
}

ELSEWHERE = {
    "or pass a credential_provider": "needs a fork: tests/storage/test_identities.py",
    "run 'comal clean ": "needs a disk that fails twice; clean itself: tests/cli/test_generic.py",
    "allow_http": "needs a key of Google's; with and without: tests/storage/test_signing.py",
}
