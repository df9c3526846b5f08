"""Every public function that takes a path says so when it gets something else.

A table of calls, each with one place left open; no exception of Python's own may come out.
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import comal
from comal import convert, demo, formats, raquet, raster, server, site, taco, tapalcatl, tortilla
from comal.errors import ComalError, InvalidInputError
from comal.storage import open_source
from tests.server.making import PNG, raquet_file, taco_file, tiff, tileset


@dataclass(frozen=True)
class Files:
    """One archive of each kind, and a folder to write to."""

    dem: str
    tif: str
    scenes: str
    tacodir: str
    tortilla: str
    tiles: str
    folder: str
    """With files that are no archives."""
    out: Path

    def new(self, name: str) -> str:
        return str(self.out / name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    heights = np.arange(128 * 128, dtype=np.int16).reshape(128, 128)
    raquet_file(folder / "dem.parquet", {"height": heights})
    (folder / "dem.tif").write_bytes(tiff(heights[None, :32, :32]))
    taco_file(folder / "scenes.tacozip", 2)
    taco.zip2folder(folder / "scenes.tacozip", folder / "scenes", quiet=True)
    tileset(folder / "tiles")
    files = folder / "files"
    files.mkdir()
    for name in ("a.tif", "b.tif"):
        shutil.copy(folder / "dem.tif", files / name)
    tortilla.pack_folder(files, folder / "a.tortilla")
    return folder


@pytest.fixture
def files(made: Path, tmp_path: Path) -> Files:
    for name in ("tiles", "a.tortilla"):  # what may be changed in place
        source = made / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    return Files(
        dem=str(made / "dem.parquet"),
        tif=str(made / "dem.tif"),
        scenes=str(made / "scenes.tacozip"),
        tacodir=str(made / "scenes"),
        tortilla=str(tmp_path / "a.tortilla"),
        tiles=str(tmp_path / "tiles"),
        folder=str(made / "files"),
        out=tmp_path,
    )


Call = Callable[[Files, Any], Any]


def samples(files: Files) -> taco.Taco:
    tree = taco.Tortilla([taco.Sample(id="a", path=files.tif)])
    return taco.Taco(tree, "a", "1", "a", ["CC0-1.0"], [{"name": "a"}], ["other"])


ZONE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
WHAT_A_TORTILLA_LACKS: dict[str, Any] = {
    "id": "a",
    "dataset_version": "1",
    "description": "a",
    "licenses": ["CC0-1.0"],
    "providers": [{"name": "a"}],
    "tasks": ["other"],
}
READERS: dict[str, Call] = {
    "comal.open": lambda _, x: comal.open(x),
    "comal.storage.open_source": lambda _, x: open_source(x),
    "formats.sniff": lambda _, x: formats.sniff(x),
    "formats.open_any": lambda _, x: formats.open_any(x),
    "taco.load": lambda _, x: taco.load(x),
    "taco.load base_path": lambda f, x: taco.load(f.scenes, base_path=x),
    "taco.check": lambda _, x: taco.check(x),
    "taco.repair": lambda f, x: taco.repair(x, f.new("o.tacozip")),
    "taco.folder2zip": lambda f, x: taco.folder2zip(x, f.new("o.tacozip"), quiet=True),
    "taco.folder2zip_async": lambda f, x: asyncio.run(
        taco.folder2zip_async(x, f.new("o.tacozip"), quiet=True)
    ),
    "taco.zip2folder": lambda f, x: taco.zip2folder(x, f.new("o"), quiet=True),
    "taco.zip2folder_async": lambda f, x: asyncio.run(
        taco.zip2folder_async(x, f.new("o"), quiet=True)
    ),
    "taco.pack_folder": lambda f, x: taco.pack_folder(x, f.new("o.tacozip")),
    "taco.pack_folder manifest": lambda f, x: taco.pack_folder(
        f.folder, f.new("o.tacozip"), manifest=x
    ),
    "taco.Sample": lambda _, x: taco.Sample(id="a", path=x),
    "taco.create_tacocat one": lambda f, x: taco.create_tacocat([x], f.new("o")),
    "taco.create_tacocat all": lambda f, x: taco.create_tacocat(x, f.new("o")),
    "taco.create_tacollection one": lambda f, x: taco.create_tacollection([x], f.new("o")),
    "taco.create_tacollection all": lambda f, x: taco.create_tacollection(x, f.new("o")),
    "taco.concat": lambda _, x: taco.concat([x]),
    "taco.concat all": lambda _, x: taco.concat(x),
    "taco.export": lambda f, x: taco.export(x, f.new("o.tacozip"), quiet=True),
    "taco.create": lambda f, x: taco.create(x, f.new("o.tacozip")),
    "taco.migrate": lambda f, x: taco.migrate(x, f.new("o.tacozip")),
    "tortilla.open": lambda _, x: tortilla.open(x),
    "tortilla.load": lambda _, x: tortilla.load(x),
    "tortilla.open_async": lambda _, x: asyncio.run(tortilla.open_async(x)),
    "tortilla.check": lambda _, x: tortilla.check(x),
    "tortilla.append": lambda f, x: tortilla.append(x, [tortilla.Sample("c", path=f.tif)]),
    "tortilla.compact file": lambda _, x: tortilla.compact(x),
    "tortilla.compile": lambda f, x: tortilla.compile(x, f.new("o.tortilla")),
    "tortilla.delete": lambda _, x: tortilla.delete(x, rows=[0]),
    "tortilla.drop_columns": lambda _, x: tortilla.drop_columns(x, ["tortilla:data_split"]),
    "tortilla.join": lambda f, x: tortilla.join(x, f.new("o.tortilla")),
    "tortilla.pack_folder": lambda f, x: tortilla.pack_folder(x, f.new("o.tortilla")),
    "tortilla.pack_folder manifest": lambda f, x: tortilla.pack_folder(
        f.folder, f.new("o.tortilla"), manifest=x
    ),
    "tortilla.Sample": lambda f, x: tortilla.create(
        [tortilla.Sample("a", path=x)], f.new("o.tortilla")
    ),
    "tortilla.rename": lambda _, x: tortilla.rename(x, {"a": "b"}),
    "tortilla.set_columns": lambda _, x: tortilla.set_columns(x, {"a": [1, 2]}),
    "tortilla.split": lambda f, x: tortilla.split(x, f.new("o.tortilla"), chunk_rows=1),
    "tortilla.create": lambda f, x: tortilla.create(x, f.new("o.tortilla")),
    "tortilla.Slice": lambda f, x: tortilla.create(
        [tortilla.Sample("a", path=tortilla.Slice(x, 0, 3))], f.new("o.tortilla")
    ),
    "raquet.open": lambda _, x: raquet.open(x),
    "raquet.open_async": lambda _, x: asyncio.run(raquet.open_async(x)),
    "raquet.check": lambda _, x: raquet.check(x),
    "raquet.repair": lambda f, x: raquet.repair(x, f.new("o.parquet")),
    "raquet.connect": lambda _, x: raquet.connect(x),
    "raquet.sql": lambda _, x: raquet.sql(x, "SELECT count(*) FROM raster"),
    "raquet.statistics": lambda _, x: raquet.statistics(x),
    "raquet.zonal": lambda f, x: raquet.zonal(x, [ZONE]),
    "raquet.write": lambda f, x: raquet.write(x, f.new("o.parquet")),
    "raquet.append_bands": lambda f, x: raquet.append_bands(x, f.tif, f.new("o.parquet")),
    "raquet.append_bands other": lambda f, x: raquet.append_bands(f.dem, x, f.new("o.parquet")),
    "raquet.merge": lambda f, x: raquet.merge(x, f.new("o.parquet")),
    "raquet.partition": lambda f, x: raquet.partition(x, f.new("o")),
    "raquet.preview": lambda _, x: raquet.preview(x),
    "raquet.to_cog": lambda f, x: raquet.to_cog(x, f.new("o.tif")),
    "raquet.to_geotiff": lambda f, x: raquet.to_geotiff(x, f.new("o.tif")),
    "tapalcatl.open": lambda _, x: tapalcatl.open(x),
    "tapalcatl.archive": lambda _, x: tapalcatl.archive(x),
    "tapalcatl.open_tiles": lambda _, x: tapalcatl.open_tiles(x),
    "tapalcatl.check": lambda _, x: tapalcatl.check(x),
    "tapalcatl.build": lambda f, x: tapalcatl.build(x, f.new("o")),
    "tapalcatl.extract": lambda f, x: tapalcatl.extract(x, f.new("o"), max_zoom=1),
    "tapalcatl.merge": lambda f, x: tapalcatl.merge([x], f.new("o")),
    "tapalcatl.merge all": lambda f, x: tapalcatl.merge(x, f.new("o")),
    "tapalcatl.remetatile": lambda f, x: tapalcatl.remetatile(x, f.new("o"), metatile=1),
    "tapalcatl.split": lambda f, x: tapalcatl.split(x, f.new("o"), at=1),
    "tapalcatl.to_directory": lambda f, x: tapalcatl.to_directory(x, f.new("o")),
    "tapalcatl.to_mbtiles": lambda f, x: tapalcatl.to_mbtiles(x, f.new("o.mbtiles")),
    "tapalcatl.to_pmtiles": lambda f, x: tapalcatl.to_pmtiles(x, f.new("o.pmtiles")),
    "tapalcatl.compact": lambda _, x: tapalcatl.compact(x),
    "tapalcatl.space": lambda _, x: tapalcatl.space(x),
    "tapalcatl.recover": lambda _, x: tapalcatl.recover(x),
    "tapalcatl.delete": lambda _, x: tapalcatl.delete(x, [(0, 0, 0)]),
    "tapalcatl.put": lambda _, x: tapalcatl.put(x, [((0, 0, 0), PNG)], ext="png"),
    "tapalcatl.edit_metadata": lambda _, x: tapalcatl.edit_metadata(x, {"name": "b"}),
    "convert.draw": lambda f, x: convert.draw(x, f.new("o")),
    "convert.migrate": lambda f, x: convert.migrate(x, f.new("o.tacozip")),
    "raster.header": lambda _, x: raster.header(x),
    "raster.headers": lambda _, x: raster.headers([x]),
    "raster.headers all": lambda _, x: raster.headers(x),
    "raster.preview": lambda _, x: raster.preview(x),
    "raster.band_stats": lambda _, x: raster.band_stats(x),
    "server.app": lambda _, x: server.app({"a": x}),
    "server.app all": lambda _, x: server.app(x),
    "site.write": lambda f, x: site.write(f.new("o"), [x]),
    "site.write all": lambda f, x: site.write(f.new("o"), x),
    "demo.run": lambda f, x: demo.run([x], f.new("o")),
    "demo.run all": lambda f, x: demo.run(x, f.new("o")),
}
WRITERS: dict[str, Call] = {
    "taco.create": lambda f, x: taco.create(samples(f), x),
    "taco.Sample temp_dir": lambda _, x: taco.Sample(id="a", path=b"a", temp_dir=x),
    "taco.create_tacocat": lambda f, x: taco.create_tacocat([f.scenes], x),
    "taco.create_tacollection": lambda f, x: taco.create_tacollection([f.scenes], x),
    "taco.export": lambda f, x: taco.export(taco.load(f.scenes), x, quiet=True),
    "taco.export_async": lambda f, x: asyncio.run(
        taco.export_async(taco.load(f.scenes), x, quiet=True)
    ),
    "taco.folder2zip": lambda f, x: taco.folder2zip(f.tacodir, x, quiet=True),
    "taco.zip2folder": lambda f, x: taco.zip2folder(f.scenes, x, quiet=True),
    "taco.repair": lambda f, x: taco.repair(f.scenes, x),
    "taco.pack_folder": lambda f, x: taco.pack_folder(f.folder, x),
    "taco.migrate": lambda f, x: taco.migrate(f.tortilla, x, **WHAT_A_TORTILLA_LACKS),
    "tortilla.create": lambda f, x: tortilla.create([tortilla.Sample("a", path=f.tif)], x),
    "tortilla.create_nested": lambda f, x: tortilla.create_nested(
        [pa.table({"id": ["a"], "path": [f.tif]})], x
    ),
    "tortilla.pack_folder": lambda f, x: tortilla.pack_folder(f.folder, x),
    "tortilla.compact": lambda f, x: tortilla.compact(f.tortilla, x),
    "tortilla.compile": lambda f, x: tortilla.compile(f.tortilla, x),
    "tortilla.join": lambda f, x: tortilla.join(f.tortilla, x),
    "tortilla.split": lambda f, x: tortilla.split(f.tortilla, x, chunk_rows=1),
    "raquet.write": lambda f, x: raquet.write(f.tif, x),
    "raquet.repair": lambda f, x: raquet.repair(f.dem, x),
    "raquet.append_bands": lambda f, x: raquet.append_bands(
        f.dem, f.dem, x, names={"height": "more"}
    ),
    "raquet.merge": lambda f, x: raquet.merge(f.dem, x),
    "raquet.partition": lambda f, x: raquet.partition(f.dem, x),
    "raquet.to_cog": lambda f, x: raquet.to_cog(f.dem, x),
    "raquet.to_geotiff": lambda f, x: raquet.to_geotiff(f.dem, x),
    "tapalcatl.build": lambda f, x: tapalcatl.build(f.tiles, x, ext="png"),
    "tapalcatl.extract": lambda f, x: tapalcatl.extract(f.tiles, x, max_zoom=1),
    "tapalcatl.merge": lambda f, x: tapalcatl.merge([f.tiles], x),
    "tapalcatl.remetatile": lambda f, x: tapalcatl.remetatile(f.tiles, x, metatile=1),
    "tapalcatl.split": lambda f, x: tapalcatl.split(f.tiles, x, at=1),
    "tapalcatl.to_directory": lambda f, x: tapalcatl.to_directory(f.tiles, x, ext="png"),
    "tapalcatl.to_mbtiles": lambda f, x: tapalcatl.to_mbtiles(f.tiles, x, ext="png"),
    "tapalcatl.to_pmtiles": lambda f, x: tapalcatl.to_pmtiles(f.tiles, x, ext="png"),
    "convert.draw": lambda f, x: convert.draw(f.dem, x, stretch=(0, 1)),
    "site.write": lambda _, x: site.write(x),
    "demo.run": lambda f, x: demo.run([f.tif], x),
}

WRONG: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"a",
    "int": lambda: 1,
    "object": object,
    "class": lambda: Path,
    "open file": lambda: BytesIO(b"a"),
    "none": lambda: None,
    "dict": dict,
    "list of none": lambda: [None],
    "list of bytes": lambda: [b"a"],
    "empty list": list,
    "empty": lambda: "",
    "nul": lambda: "a\0b",
}
"""What is no path, nor several; made anew for each call."""

FINE = {
    "taco.load base_path": {"none"},
    "taco.create_tacocat": {"none"},
    "taco.create_tacollection": {"none"},
    "tortilla.compact": {"none"},
    "demo.run all": {"none"},
    "taco.Sample temp_dir": {"none"},
    "raquet.connect": {"dict"},  # no table at all
    "raquet.sql": {"dict"},
    # Rasters in memory.
    "raster.header": {"bytes"},
    "raster.preview": {"bytes"},
    "raster.band_stats": {"bytes"},
    "raster.headers": {"bytes"},
    "raster.headers all": {"empty list", "open file", "list of bytes"},  # also line by line
    "site.write all": {"empty list"},
    "taco.Sample": {"bytes"},
    "tortilla.Sample": {"bytes", "open file", "list of bytes"},
    "taco.pack_folder manifest": {"none"},
    "tortilla.pack_folder manifest": {"none"},
}
"""What means something there, or is another kind of fault."""


def answer(call: Call, files: Files, value: Any) -> str | None:
    """What is wrong with how a call refuses a value; None when nothing is."""
    try:
        result = call(files, value)
    except InvalidInputError as error:
        said = error.found is not None or error.expected is not None
        return None if said else f"does not say what it found: {error}"
    except ComalError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - any of these is what is looked for
        return f"foreign {type(error).__name__}: {error}"
    return f"accepted: {type(result).__name__}"


@pytest.mark.parametrize(
    ("name", "call"),
    [
        *(pytest.param(name, call, id=name) for name, call in READERS.items()),
        *(pytest.param(name, call, id=f"target of {name}") for name, call in WRITERS.items()),
    ],
)
def test_what_is_no_path_is_refused(
    name: str, call: Call, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.out)
    before = sorted(path.name for path in files.out.iterdir())
    found = {
        kind: answer(call, files, make())
        for kind, make in WRONG.items()
        if kind not in FINE.get(name, ())
    }
    assert {kind: fault for kind, fault in found.items() if fault is not None} == {}
    assert sorted(path.name for path in files.out.iterdir()) == before


@pytest.mark.filterwarnings("ignore::comal.tortilla.TortillaWarning")  # names without an ending
@pytest.mark.parametrize("name", ["folder", "file", "missing", "missing/a", "file/a"])
@pytest.mark.parametrize("call", [*READERS.values(), *WRITERS.values()], ids=[*READERS, *WRITERS])
def test_a_file_for_a_folder_and_the_other_way_round(
    call: Call, name: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.out)
    (files.out / "folder").mkdir()
    (files.out / "file").write_bytes(b"no archive")
    with suppress(ComalError):  # what may be written is written
        call(files, str(files.out / name))
    assert (files.out / "file").read_bytes() == b"no archive"


OWN = {
    "taco": {".tacozip", ".zip"},
    "taco.zip2folder": set(),
    "tortilla": {".tortilla", ".taco"},
    "raquet": {".parquet"},
    "raquet.to_cog": {".tif", ".tiff"},
    "raquet.to_geotiff": {".tif", ".tiff"},
    "tapalcatl": {".zip"},
    "tapalcatl.split": set(),
    "tapalcatl.to_directory": set(),
    "tapalcatl.to_mbtiles": {".mbtiles"},
    "tapalcatl.to_pmtiles": {".pmtiles"},
    "convert": {".zip"},
}
"""Endings of what each writes; all else has the ones of its package, or none."""

ENDINGS = [".tacozip", ".zip", ".taco", ".tortilla", ".parquet", ".TIF", ".tiff", ".png", ".jpg"]
ENDINGS += [".mbtiles", ".pmtiles", ".json", ".geojson", ".csv", ".nc", ".vrt"]
FREE = {"taco.create_tacocat", "taco.create_tacollection", "taco.Sample temp_dir"}
"""Folders that hold names of their own."""


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in FREE])
def test_a_target_that_is_called_like_another_format_is_refused(name: str, files: Files) -> None:
    own: set[str] = OWN.get(name, OWN.get(name.partition(".")[0], set()))
    for ending in ENDINGS:
        if ending.lower() not in own:
            with pytest.raises(InvalidInputError, match="another format") as caught:
                WRITERS[name](files, files.new(f"o{ending}"))
            assert ending.lower() in str(caught.value.found)
            assert caught.value.hint is not None
    assert not list(files.out.glob("o.*"))


def test_every_function_with_a_path_is_tried() -> None:
    """A new function must be added to the tables; here are those that take no path."""
    tried = {name.partition(" ")[0] for name in [*READERS, *WRITERS]}
    no_path = {
        "raquet.metadata_json",
        "raquet.parse_metadata",
        "taco.verbose",
        "tapalcatl.choose_layout",
        "tapalcatl.plan",
        "tortilla.enrich",
    }
    found = {
        f"{room.__name__.partition('.')[2]}.{name}"
        for room in (taco, tortilla, raquet, tapalcatl, convert)
        for name in room.__all__
        if inspect.isfunction(getattr(room, name))
    }
    assert found - no_path == {name for name in tried if name in found}
