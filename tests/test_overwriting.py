"""Nothing that we did not make is deleted: every writer times what may stand in its way.

A public function or a command that can replace its target and is in neither table fails the last
test here.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from comal import convert, demo, ml, raquet, site, taco, tapalcatl, tortilla
from comal.cli import root
from comal.errors import ComalError
from comal.storage import targets
from comal.storage.targets import Kind
from tests.archives import WHAT_A_TORTILLA_LACKS, small_demo
from tests.attacks.build import Recipe
from tests.server.making import PNG, taco_file, tiff

LETTER = b"from somebody, and there is no copy"
Call = Callable[..., Any]
"""Sources, target, overwrite; functions take more options."""
Given = str | Callable[[Path], Any]
"""What a function reads: a name among the sources, or made of them."""


@dataclass(frozen=True)
class Writer:
    """Something that makes a file or a folder."""

    call: Call
    target: str
    """A name of what it makes."""
    source: str = ""
    """What is read, where that could be the target."""
    folder: bool = False
    makes: tuple[str, ...] = field(default=())
    """What appears instead of `target`."""


def dataset(s: Path) -> taco.Taco:
    samples = [taco.Sample(id=name, path=s / "files" / name) for name in ("a.tif", "b.tif")]
    return taco.Taco(taco.Tortilla(samples), **WHAT_A_TORTILLA_LACKS)


def opened(name: str) -> Callable[[Path], Any]:
    return lambda s: taco.load(s / name)


def items(s: Path) -> list[tortilla.Sample]:
    return [tortilla.Sample(f"s{n}", path=s / "files" / "a.tif") for n in range(4)]


def archives(s: Path) -> list[Path]:
    return [s / "scenes.tacozip"]


def writer(
    function: Callable[..., Any],
    given: Given,
    target: str,
    source: str | None = None,
    *,
    folder: bool | None = None,
    makes: tuple[str, ...] = (),
    beside: bool = False,
    **options: Any,
) -> Writer:
    """A function of what it reads and its target, or with `beside` the folder of its target.

    What is named as given could be the target, too, unless `source` says what could.
    """

    def call(s: Path, o: Path, w: bool, **more: Any) -> None:
        read = s / given if isinstance(given, str) else given(s)
        result = function(read, o.parent if beside else o, overwrite=w, **options, **more)
        if inspect.iscoroutine(result):
            asyncio.run(result)

    if source is None:
        source = given if isinstance(given, str) else ""
    return Writer(call, target, source, "." not in target if folder is None else folder, makes)


TILES = [(z, x, y, PNG) for z in (3, 4) for x in range(1 << z) for y in range(2)]
INDEX = (".tacocat", "__TACOCAT__")
PARTS = ("o.0001.part.tortilla", "o.0002.part.tortilla")
PART: dict[str, Any] = {"quiet": True, "subset_date": "2025-01-01"}


def small(writer: Writer) -> Writer:
    """The demo, of one small scene."""

    def call(s: Path, o: Path, w: bool) -> None:
        with small_demo():
            writer.call(s, o, w)

    return replace(writer, call=call)


def write_site(sources: Any, out: Path, **options: Any) -> None:
    site.write(out, sources, **options)


WRITERS: dict[str, Writer] = {
    "taco.create": writer(taco.create, dataset, "o.tacozip", "files/a.tif"),
    "taco.create folder": writer(taco.create, dataset, "o", "files"),
    "taco.create parts": writer(
        taco.create,
        dataset,
        "o.tacozip",
        makes=("o_part0001.tacozip", "o_part0002.tacozip", *INDEX),
        split_size=1,
    ),
    "taco.create_tacocat": writer(
        taco.create_tacocat, archives, INDEX[1], makes=INDEX, beside=True, folder=False
    ),
    "taco.create_tacollection": writer(taco.create_tacollection, archives, "TACOLLECTION.json"),
    "taco.export": writer(
        taco.export, opened("scenes.tacozip"), "o.tacozip", "scenes.tacozip", **PART
    ),
    "ml.mirror": writer(ml.mirror, "scenes.tacozip", "o.tacozip", where="id <> 'x'"),
    "taco.export of a folder": writer(taco.export, opened("scenes"), "o", "scenes", **PART),
    "taco.folder2zip": writer(taco.folder2zip, "scenes", "o.tacozip", quiet=True),
    "taco.zip2folder": writer(taco.zip2folder, "scenes.tacozip", "o", quiet=True),
    "taco.migrate": writer(taco.migrate, "a.tortilla", "o.tacozip", **WHAT_A_TORTILLA_LACKS),
    "taco.pack_folder": writer(taco.pack_folder, "files", "o", **WHAT_A_TORTILLA_LACKS),
    "taco.repair": writer(taco.repair, "scenes.tacozip", "o.tacozip"),
    "tortilla.create": writer(tortilla.create, items, "o.tortilla", "files/a.tif"),
    "tortilla.create parts": writer(
        tortilla.create, items, "o.tortilla", makes=PARTS, chunk_rows=2
    ),
    "tortilla.pack_folder": writer(tortilla.pack_folder, "files", "o.tortilla", ""),
    "tortilla.compile": writer(tortilla.compile, "a.tortilla", "o.tortilla"),
    "tortilla.compact": writer(tortilla.compact, "a.tortilla", "o.tortilla", ""),
    "raquet.write": writer(raquet.write, "dem.tif", "o.parquet"),
    "raquet.merge": writer(raquet.merge, "dem.parquet", "o.parquet"),
    "raquet.partition": writer(raquet.partition, "dem.parquet", "o"),
    "raquet.repair": writer(raquet.repair, "dem.parquet", "o.parquet"),
    "raquet.to_cog": writer(raquet.to_cog, "dem.parquet", "o.tif"),
    "raquet.to_geotiff": writer(raquet.to_geotiff, "dem.parquet", "o.tif"),
    "tapalcatl.build": writer(tapalcatl.build, lambda _: TILES, "o"),
    "tapalcatl.build one": writer(tapalcatl.build, "tiles", "o.zip"),
    "tapalcatl.build 1": writer(tapalcatl.build, lambda _: TILES, "o", version=1, ext="png"),
    "tapalcatl.extract": writer(tapalcatl.extract, "tiles", "o", max_zoom=3),
    "tapalcatl.merge": writer(tapalcatl.merge, lambda s: [s / "tiles", TILES], "o", "tiles"),
    "tapalcatl.remetatile": writer(tapalcatl.remetatile, "tiles", "o", metatile=1),
    "tapalcatl.to_directory": writer(tapalcatl.to_directory, "tiles", "o"),
    "tapalcatl.to_mbtiles": writer(tapalcatl.to_mbtiles, "tiles", "o.mbtiles", ""),
    "tapalcatl.to_pmtiles": writer(tapalcatl.to_pmtiles, "tiles", "o.pmtiles", ""),
    "convert.convert": writer(convert.convert, "dem.tif", "o.parquet", ""),
    "convert.draw": writer(convert.draw, "dem.parquet", "o"),
    "convert.migrate": writer(convert.migrate, "a.tortilla", "o", **WHAT_A_TORTILLA_LACKS),
    "site.write": writer(write_site, lambda s: [s / "tiles", s / "dem.parquet"], "o"),
    "demo.run": small(writer(lambda _, out, **more: demo.run(out, **more), lambda _: None, "o")),
    "convert.draw one": writer(convert.draw, "dem.parquet", "o.pmtiles", ""),
}


def command(line: str, target: str, source: str = "", **more: Any) -> Writer:
    def call(s: Path, o: Path, w: bool) -> None:
        words = [word.format(s=s, o=o, parent=o.parent) for word in line.split()]
        result = CliRunner().invoke(root, [*words, *(["--overwrite"] if w else []), "--debug"])
        if result.exit_code:
            raise ExitError(result.exit_code, result.output)

    return Writer(call, target, source, **more)


class ExitError(Exception):
    """A command that failed."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = code


COMMANDS: dict[str, Writer] = {
    "check": command(
        "check {s}/broken.tacozip --repair {o} --level structure", "o.tacozip", "broken.tacozip"
    ),
    "convert": command("convert {s}/dem.tif {o}", "o.parquet"),
    "convert taco": command("convert {s}/scenes.tacozip {o}", "o", folder=True),
    "convert tiles": command("convert {s}/tiles {o}", "o.pmtiles"),
    "convert drawn": command("convert {s}/dem.parquet {o}", "o.zip"),
    "demo": small(command("demo --out {o}", "o", folder=True)),
    "get": command("get {s}/more.tacozip a.tif -o {o}", "o.tif", "more.tacozip"),
    "mirror": command("mirror {s}/scenes.tacozip {o}", "o.tacozip", "scenes.tacozip"),
    "sync": command("sync {s}/scenes.tacozip {o}", "o.tacozip", "scenes.tacozip"),
    "raquet create": command("raquet create {s}/dem.tif {o}", "o.parquet"),
    "raquet export": command("raquet export {s}/dem.parquet {o}", "o.tif"),
    "raquet export png": command("raquet export {s}/dem.parquet {o}", "o.png"),
    "raquet merge": command("raquet merge {s}/dem.parquet -o {o}", "o.parquet", "dem.parquet"),
    "raquet partition": command("raquet partition {s}/dem.parquet {o}", "o", folder=True),
    "taco concat": command(
        "taco concat {s}/more.tacozip {s}/again.tacozip -o {o}", "o.tacozip", "more.tacozip"
    ),
    "taco create": command("taco create {s}/files {o}", "o", "files", folder=True),
    "taco export": command("taco export {s}/scenes.tacozip {o}", "o.tacozip", "scenes.tacozip"),
    "taco tacocat": command(
        "taco tacocat {s}/scenes.tacozip -o {parent}",
        "__TACOCAT__",
        makes=INDEX,
    ),
    "taco tacollection": command(
        "taco tacollection {s}/scenes.tacozip -o {parent}", "TACOLLECTION.json"
    ),
    "tapalcatl create": command("tapalcatl create {s}/tiles {o}", "o", "tiles", folder=True),
    "tapalcatl export": command("tapalcatl export {s}/tiles {o}", "o.mbtiles"),
    "tapalcatl extract": command(
        "tapalcatl extract {s}/tiles {o} --max-zoom 3", "o", "tiles", folder=True
    ),
    "tapalcatl merge": command(
        "tapalcatl merge {s}/tiles {s}/tiles -o {o}", "o", "tiles", folder=True
    ),
    "tapalcatl remetatile": command(
        "tapalcatl remetatile {s}/tiles {o} --metatile 1", "o", "tiles", folder=True
    ),
    "tapalcatl site": command("tapalcatl site {o} {s}/tiles {s}/dem.parquet", "o", folder=True),
    "tortilla compact": command("tortilla compact {s}/a.tortilla -o {o}", "o.tortilla"),
    "tortilla compile": command("tortilla compile {s}/a.tortilla {o}", "o.tortilla", "a.tortilla"),
    "tortilla create": command("tortilla create {s}/files {o}", "o.tortilla"),
    "tortilla join": command("tortilla join {s}/a.tortilla -o {o}", "o.tortilla", "a.tortilla"),
    "tortilla compile parts": command(
        "tortilla compile {s}/a.tortilla {o} --rows 1",
        "o.tortilla",
        makes=PARTS,
    ),
}
EVERY = {**WRITERS, **{f"comal {name}": writer for name, writer in COMMANDS.items()}}


# -- what stands in the way ------------------------------------------------------------------------


def write_sources(s: Path) -> Path:
    """What all of them read."""
    heights = np.arange(64 * 64, dtype=np.uint8).reshape(64, 64)
    (s / "files").mkdir(parents=True)
    for name in ("a.tif", "b.tif"):
        (s / "files" / name).write_bytes(tiff(heights[None, :32, :32]))
    shutil.copy(s / "files/a.tif", s / "dem.tif")
    raquet.write(s / "dem.tif", s / "dem.parquet", block_size=32)
    tortilla.pack_folder(s / "files", s / "a.tortilla")
    taco_file(s / "scenes.tacozip", 2)
    taco.zip2folder(s / "scenes.tacozip", s / "scenes", quiet=True)
    taco.create(dataset(s), s / "more.tacozip")
    other = taco.Tortilla([taco.Sample(id="c.tif", path=s / "dem.tif")])
    taco.create(taco.Taco(other, **WHAT_A_TORTILLA_LACKS), s / "again.tacozip")
    broken = Recipe(header_crc=5)
    (s / "broken.tacozip").write_bytes(broken.build())
    tapalcatl.build(TILES, s / "tiles")
    return s


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources; and below ``own`` what each writer makes, once that is known."""
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder / "s")
    return folder


@pytest.fixture
def place(kept: Path, tmp_path: Path) -> Path:
    """Sources to read, a folder ``to`` to write to, and what is nobody's business beside it."""
    shutil.copytree(kept / "s", tmp_path / "s")
    (tmp_path / "to").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/letter").write_bytes(LETTER)
    return tmp_path


def own(kept: Path, name: str, place: Path) -> None:
    """Put what the writer makes into its place."""
    ready = kept / "own" / name.replace(" ", "-")
    if not ready.exists():
        ready.mkdir(parents=True)
        EVERY[name].call(kept / "s", ready / EVERY[name].target, False)
    shutil.copytree(ready, place / "to", dirs_exist_ok=True)


def snapshot(folder: Path) -> dict[str, tuple[int, Any]]:
    """Kind, mode and content of everything below a folder."""
    found: dict[str, tuple[int, Any]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content: Any = None
        if stat.S_ISLNK(status.st_mode):
            content = path.readlink()
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        found[path.relative_to(folder).as_posix()] = status.st_mode, content
    return found


def outcome(writer: Writer, place: Path, target: Path, overwrite: bool) -> tuple[int, str]:
    """Exit code and text of what came of it."""
    try:
        writer.call(place / "s", target, overwrite)
    except (ComalError, ExitError) as error:
        return error.exit_code, str(error)
    return 0, ""


FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))
WRITER = pytest.mark.parametrize("name", EVERY)
COPY = "comal sync"
"""What is equal stays where a copy goes on: tests/storage/test_syncing.py has its laws."""
NEARLY = pytest.mark.parametrize(
    "name", [name for name in EVERY if name != COPY] if FULL else WRITERS
)
"""Commands call the functions: what is tried of them every day is that they pass things on."""


def stand(writer: Writer, what: str, place: Path) -> None:
    """Put something of somebody into the target's place."""
    makes = writer.makes or (writer.target,)
    target = place / "to" / makes[-1]
    if what == "file":
        target.write_bytes(LETTER)
    elif what == "table":
        pq.write_table(pa.table({"mine": [1, 2, 3]}), target)
    elif what == "folder":
        target.mkdir()
        (target / "letter").write_bytes(LETTER)
    elif what == "link to a file":
        target.symlink_to("../elsewhere/letter")
    elif what == "link to a folder":
        target.symlink_to("../elsewhere")
    else:
        target.symlink_to("nowhere")


OF_FILES = ("taco.create", "taco.create folder")
"""Writers that read the files of their source one by one, and not the folder."""
PACKERS = (
    *("taco.pack_folder", "tortilla.pack_folder", "comal taco create", "comal tortilla create"),
)
"""Those that leave what they write out of the folder that they read."""
THINGS = ["file", "table", "folder", "link to a file", "link to a folder", "link to nothing"]


def names_letter(writer: Writer, text: str) -> bool:
    """Whether the file of somebody is named, where its folder stands in the way of a folder."""
    return "letter" in text or not writer.folder


@WRITER
def test_what_somebody_made_stays(name: str, place: Path) -> None:
    writer = EVERY[name]
    things = THINGS if FULL or name in WRITERS else ("file", "folder")
    for what in things:
        if what == "table" and not (FULL or writer.makes or writer.target.endswith(".parquet")):
            continue  # no nearer to what is made than any other file
        stand(writer, what, place)
        before = snapshot(place)
        for overwrite in (False, True):
            code, text = outcome(writer, place, place / "to" / writer.target, overwrite)
            assert code == 10, (what, overwrite, text)
            assert what != "folder" or not overwrite or writer.makes or names_letter(writer, text)
            told = "is a link" in text or "the target exists" in text
            told = told or name == COPY  # which compares what a link leads to
            assert told or not what.startswith("link"), (what, text)
            assert snapshot(place) == before, (what, overwrite)
        shutil.rmtree(place / "to")
        (place / "to").mkdir()


@NEARLY
def test_its_own_kind_is_replaced_and_nothing_else(name: str, kept: Path, place: Path) -> None:
    """Asked for alone, and not where it is read-only, linked to or with a stranger's file."""
    writer = EVERY[name]
    target = place / "to" / writer.target
    own(kept, name, place)
    made = place / "to" / (writer.makes or (writer.target,))[-1]
    before = snapshot(place)
    code, text = outcome(writer, place, target, False)
    assert code == 10, text
    assert "overwrite" in text
    assert snapshot(place) == before
    mode = made.stat().st_mode
    made.chmod(mode & ~0o222)
    assert outcome(writer, place, target, True)[0] == 4
    made.chmod(mode)
    assert snapshot(place) == before
    if made.is_dir():
        inside = [made, *(path for path in made.rglob("*") if path.is_dir())]
        for letter in (inside[0] / "letter", inside[-1] / "letter"):
            letter.write_bytes(LETTER)
            with_letter = snapshot(place)
            code, text = outcome(writer, place, target, True)
            assert code == 10, text
            assert "letter" in text
            assert snapshot(place) == with_letter
            letter.unlink()
    aside = place / "elsewhere" / made.name
    made.rename(aside)
    made.symlink_to(aside)
    linked = snapshot(place)
    assert outcome(writer, place, target, True)[0] == 10
    assert snapshot(place) == linked
    made.unlink()
    aside.rename(made)
    old = made.stat().st_ino
    code, text = outcome(writer, place, target, True)
    assert code == 0, text
    assert made.stat().st_ino != old  # beside which the new one was made
    after = snapshot(place)
    assert set(after) == set(before)
    assert {k: v for k, v in after.items() if not k.startswith("to/")} == {
        k: v for k, v in before.items() if not k.startswith("to/")
    }


@NEARLY
def test_empty_places(name: str, place: Path) -> None:
    """What holds nothing may be replaced, when it is of the right form."""
    writer = EVERY[name]
    made = place / "to" / (writer.makes or (writer.target,))[0]
    is_folder = writer.folder or made.name == ".tacocat"
    made.mkdir() if is_folder else made.touch()
    assert outcome(writer, place, place / "to" / writer.target, False)[0] == 10
    code, text = outcome(writer, place, place / "to" / writer.target, True)
    assert code == 0, text
    assert made.is_dir() == is_folder
    assert made.stat().st_size


@pytest.mark.parametrize("name", [name for name, writer in EVERY.items() if writer.source])
def test_what_is_read_is_not_replaced(name: str, place: Path) -> None:
    """Neither the source, nor what holds it, nor a folder that is read by something in it."""
    writer = EVERY[name]
    source = place / "s" / writer.source
    (place / "s2").symlink_to("s")
    ending = Path(writer.target).suffix
    places = {
        source: "the target is the source",
        place / "s2" / writer.source: "the target is the source",
        source.parent: "the target holds the source",
    }
    if name in OF_FILES and source.is_dir():
        places = dict.fromkeys(places, "the target holds the source")
    elif source.is_dir() and name not in PACKERS:
        places[source / f"inside{ending}"] = "the target lies in the source"
    before = snapshot(place)
    for target, expected in places.items():
        form_tells = target.is_dir() and not writer.folder
        for overwrite in (False, True):
            code, text = outcome(writer, place, target, overwrite)
            assert snapshot(place) == before, target
            if "is that of another format" in text:  # its name alone forbids it
                assert code == 2
                continue
            told = expected in text or (form_tells and "the target is a folder" in text)
            assert (code, told) == (10, True), (target, text)


# -- nobody is forgotten ---------------------------------------------------------------------------

ROOMS = ("ml", "taco", "tortilla", "raquet", "tapalcatl", "site", "demo", "convert")
TARGETS = {"output", "out", "folder"}


def functions() -> Iterator[str]:
    """Public functions that replace their target when they are told so, or pass that on."""
    for room in ROOMS:
        module = importlib.import_module(f"comal.{room}")
        for name in getattr(module, "__all__", dir(module)):
            found = getattr(module, name)
            if not inspect.isfunction(found):
                continue
            parameters = inspect.signature(found).parameters
            passes_on = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
            if "overwrite" in parameters or (passes_on and TARGETS & set(parameters)):
                yield f"{room}.{name}"


def commands(group: click.Group, before: str = "") -> Iterator[str]:
    """Commands that have ``--overwrite``."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found, f"{before}{name} ")
        elif found is not None and any(one.name == "overwrite" for one in found.params):
            yield f"{before}{name}"


def test_every_writer_is_tried() -> None:
    assert set(functions()) <= set(WRITERS), "a writer is not in the table"
    assert set(commands(root)) <= set(COMMANDS), "a command is not in the table"


def test_a_writer_that_says_nothing_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(LETTER)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/letter").write_bytes(LETTER)
    before = snapshot(tmp_path)
    broken = Kind("a thing", lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ComalError), targets.new_file(tmp_path / "a", True):
        raise AssertionError("not reached")
    with pytest.raises(ComalError), targets.new_folder(tmp_path / "b", True):
        raise AssertionError("not reached")
    with pytest.raises(ZeroDivisionError), targets.new_folder(tmp_path / "b", True, broken):
        raise AssertionError("not reached")
    assert snapshot(tmp_path) == before
