"""Whatever a metadata field holds, every reader answers, or fails with an error of ours.

A sound archive of each format; then each field of its documents and each column of its tables in
turn is missing, null, or of another type. The generic commands, those of the format and the server
are driven over the result: none may end in exit code 70 or in an internal error.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from comal import server, taco, tortilla
from comal.cli import root
from comal.cli.app import BUG
from comal.errors import ComalError
from tests.attacks import build as containers
from tests.raquet.checking import damage
from tests.server.asking import ask
from tests.server.making import taco_file, tiff, tileset
from tests.tortilla import build as footers

EVERY = {"tapalcatl": 60, "raquet": 60, "tortilla": 60, "taco": 120}
"""Of so many mutants of each format an ordinary run tries one, and a full sweep all."""

KNOWN = {
    "nested ('bands', 0, 'nodata') 400 digits",
    "COLLECTION.json ('extent',) text",
    "COLLECTION.json ('taco:field_schema', 'level0', 0, 0) list",
    "level0.parquet stac:time_start timestamp",
    "level0.parquet stac:geotransform list",
    "level0.parquet internal:current_id uint64",
    "level1.parquet internal:current_id timestamp",
    "level1.parquet internal:parent_id uint64",
    "level 0 id missing",
    "level 1 type missing",
    "level 0 internal:current_id uint64",
    "level 1 internal:offset uint64",
    "level 1 internal:size uint64",
}
"""Mutants that once ended in a bug; every run tries them."""

Change = Callable[[Any], Any]
Mutant = tuple[str, Change]
Place = tuple[str, Iterator[Mutant], Callable[[Change], Path]]
"""What is changed, how, and what writes an archive with a change of it."""

VALUES: dict[str, Any] = {
    "null": None,
    "text": "no such",
    "empty": "",
    "NUL": "\0",
    "400 digits": "9" * 400,
    "integer": 7,
    "negative": -1,
    "huge": 10**30,
    "fraction": 1.5,
    "true": True,
    "list": [],
    "list of null": [None],
    "list of lists": [[]],
    "object": {},
    "object of null": {"x": None},
}
COLUMNS: dict[str, tuple[Any, pa.DataType]] = {
    "int64": (-1, pa.int64()),
    "uint64": (2**64 - 1, pa.uint64()),
    "double": (float("nan"), pa.float64()),
    "bool": (True, pa.bool_()),
    "text": ("\0x", pa.string()),
    "large text": ("y" * 300, pa.large_string()),
    "dictionary": ("q", pa.dictionary(pa.int32(), pa.string())),
    "binary": (b"\xff\0", pa.binary()),
    "timestamp": (1 << 60, pa.timestamp("us")),
    "decimal": (None, pa.decimal128(38, 2)),
    "list": ([1], pa.list_(pa.int64())),
    "struct": ({"a": 1}, pa.struct([("a", pa.int64())])),
    "map": ([("a", "b")], pa.map_(pa.string(), pa.string())),
    "null type": (None, pa.null()),
}


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field of a document, in lists the first two items."""
    if at:
        yield at
    if isinstance(document, dict):
        for key in document:
            yield from places(document[key], (*at, key))
    elif isinstance(document, list):
        for number in range(min(2, len(document))):
            yield from places(document[number], (*at, number))


def with_field(document: Any, at: tuple[Any, ...], value: Any = ...) -> Any:
    """The document with another value at a place, or without it."""
    document = inner = copy.deepcopy(document)
    for key in at[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return document


def of_document(document: Any) -> Iterator[Mutant]:
    for at in places(document):
        yield f"{at} missing", partial(with_field, at=at)
        for name, value in VALUES.items():
            yield f"{at} {name}", partial(with_field, at=at, value=value)


def of_table(table: pa.Table) -> Iterator[Mutant]:
    for name in table.column_names:
        for change in (missing, twice, first_null, repeated):
            yield f"{name} {change.__name__}", partial(change, name=name)
        for kind, (value, type_) in COLUMNS.items():
            yield f"{name} {kind}", partial(filled, name=name, value=value, kind=type_)


def missing(table: pa.Table, name: str) -> pa.Table:
    return table.drop_columns([name])


def twice(table: pa.Table, name: str) -> pa.Table:
    return table.append_column(name, table[name])


def first_null(table: pa.Table, name: str) -> pa.Table:
    return with_column(table, name, [None, *table[name].to_pylist()[1:]], table[name].type)


def repeated(table: pa.Table, name: str) -> pa.Table:
    return filled(table, name, table[name][0].as_py(), table[name].type)


def filled(table: pa.Table, name: str, value: Any, kind: pa.DataType) -> pa.Table:
    return with_column(table, name, [value] * len(table), kind)


def with_column(table: pa.Table, name: str, values: list[Any], kind: pa.DataType) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, pa.field(name, kind), pa.array(values, kind))


# -- archives of each kind, written with a change --------------------------------------------------


def tapalcatl(folder: Path) -> Iterator[Place]:
    sound = tileset(folder / "sound")
    document = json.loads((sound / "meta.json").read_text())

    def tree(change: Change) -> Path:
        shutil.copytree(sound, folder / "tiles")
        (folder / "tiles" / "meta.json").write_text(json.dumps(change(document)))
        return folder / "tiles"

    def alone(change: Change) -> Path:
        shutil.copy(sound / "0" / "0" / "0.zip", folder / "alone.zip")
        with zipfile.ZipFile(folder / "alone.zip", "a") as archive:
            archive.comment = json.dumps(change(document)).encode()
        return folder / "alone.zip"

    yield "meta.json", of_document(document), tree
    yield "comment", of_document(document), alone


def raquet(folder: Path) -> Iterator[Place]:
    target = folder / "dem.parquet"

    def written(make: Callable[[], damage.File], change: Change) -> Path:
        file = make()
        file.document = change(file.document)
        return Path(file.write(target))

    for make in (damage.sound, damage.nested):
        yield make.__name__, of_document(make().document), partial(written, make)
    table = pq.read_table(damage.sound().write(folder / "sound.parquet"))

    def rewritten(change: Change) -> Path:
        pq.write_table(change(table), target, write_page_index=True, max_rows_per_page=1)
        return target

    yield "table", of_table(table), rewritten


def tortillas(folder: Path) -> Iterator[Place]:
    image = tiff(np.zeros((1, 16, 16), np.int16))
    more = {
        "stac:crs": "EPSG:4326",
        "stac:geotransform": [0.0, 1.0, 0.0, 10.0, 0.0, -1.0],
        "stac:raster_shape": [16, 16],
        "stac:centroid": "POINT (1 2)",
        "stac:time_start": 1.5e9,
        "stac:time_end": 1.6e9,
        "rai:elevation": 3.0,
    }
    items = [footers.Item("a.tif", image, "GTiff", more), footers.Item("b", b"x", "BYTES", more)]

    def written(change: Change) -> Path:
        (folder / "a.tortilla").write_bytes(footers.built(items, table=change))
        return folder / "a.tortilla"

    yield "footer", of_table(footers.table_of(items, [200, 200 + len(image)])), written


def tacos(folder: Path) -> Iterator[Place]:
    """A folder container with all there is to say of a sample, and a nested ZIP."""
    sound = folder / "sound"
    taco.zip2folder(taco_file(folder / "sound.tacozip", 2), sound, quiet=True)
    target = folder / "scenes"
    document = json.loads((sound / "COLLECTION.json").read_text())

    def documented(change: Change) -> Path:
        shutil.copytree(sound, target)
        (target / "COLLECTION.json").write_text(json.dumps(change(document)))
        return target

    def tabled(file: Path, change: Change) -> Path:
        shutil.copytree(sound, target)
        pq.write_table(change(pq.read_table(file)), target / "METADATA" / file.name)
        return target

    def zipped(depth: int, change: Change) -> Path:
        recipe = containers.Recipe(table=lambda level, old: change(old) if level == depth else old)
        (folder / "scenes.tacozip").write_bytes(recipe.build())
        return folder / "scenes.tacozip"

    yield "COLLECTION.json", of_document(document), documented
    for file in sorted((sound / "METADATA").glob("*.parquet")):
        yield file.name, of_table(pq.read_table(file)), partial(tabled, file)
    for depth, rows in enumerate(containers.rows_of(containers.NESTED)):
        yield f"level {depth}", of_table(containers.table_of(rows)), partial(zipped, depth)


# -- what reads them -------------------------------------------------------------------------------

ITEMS = ["/a", "/a/items?bbox=0,0,1,1", "/a/items?datetime=2020-01-01/2021-01-01", "/a/tree"]
COLLECTIONS = ["/", "/collections/a", "/readyz"]
FORMATS: dict[str, tuple[Any, list[list[str]], list[str]]] = {
    "tapalcatl": (
        tapalcatl,
        [
            ["tapalcatl", "extract", "@", "OUT/e", "--max-zoom", "1"],
            ["tapalcatl", "metadata", "@"],
            ["convert", "@", "OUT/o.mbtiles"],
        ],
        ["/a", "/a/tilejson.json", "/a/0/0/0.png", "/a/1/0/0.mvt"],
    ),
    "raquet": (
        raquet,
        [
            ["raquet", "stats", "@"],
            ["raquet", "inspect", "@"],
            ["raquet", "point", "@", "0", "0"],
            ["raquet", "export", "@", "OUT/o.tif"],
            ["raquet", "sql", "@", "SELECT count(*) FROM raster"],
            ["raquet", "partition", "@", "OUT/p"],
        ],
        ["/a", "/a/tilejson.json", "/a/tiles/2/2/1.png", "/a/statistics", "/a/point/0,0"],
    ),
    "tortilla": (
        tortillas,
        [
            ["tortilla", "compile", "@", "OUT/c.tortilla"],
            ["tortilla", "compile", "@", "OUT/s.tortilla", "--rows", "1"],
        ],
        ITEMS,
    ),
    "taco": (
        tacos,
        [
            ["taco", "export", "@", "OUT/e.tacozip"],
            ["taco", "sql", "@", "SELECT * FROM data"],
            ["taco", "tacocat", "@", "-o", "OUT"],
        ],
        ITEMS,
    ),
}
GENERIC = [
    ["info", "@", "--json"],
    ["ls", "@"],
    ["check", "@"],
    ["check", "@", "--repair", "OUT/r"],
]


def faults(place: Path, out: Path, commands: list[list[str]], paths: list[str]) -> Iterator[str]:
    """What went wrong that is no error of ours."""
    keys: list[str] = []
    for command in [*GENERIC, *commands]:
        words = [word.replace("OUT", str(out)).replace("@", str(place)) for word in command]
        result = CliRunner().invoke(root, words)
        if result.exit_code == BUG or not isinstance(result.exception, None | SystemExit):
            yield f"{' '.join(command)}: {result.exception!r} {result.output[-300:]}"
        if command[0] == "ls" and result.exit_code == 0:
            keys = [line.partition("\t")[0] for line in result.output.splitlines()[:2]]
    for key in keys:
        result = CliRunner().invoke(root, ["get", str(place), "--", key])
        if result.exit_code == BUG:
            yield f"get {key!r}: {result.output[-300:]}"
    try:
        application = server.app({"a": str(place)})
    except ComalError:
        return
    for path in [*COLLECTIONS, *paths]:
        answer = ask(application, path)
        if answer.status == 500 and answer.json()["code"] == "internal":
            yield f"GET {path}: {answer.body!r}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_fields_of_any_kind(name: str, tmp_path: Path) -> None:
    places_of, commands, paths = FORMATS[name]
    (tmp_path / "from").mkdir()
    every = 1 if os.environ.get("COMAL_FULL_SWEEP") else EVERY[name]
    tried, found = 0, []
    for part, mutants, write in places_of(tmp_path / "from"):
        for label, change in mutants:
            whole = f"{part} {label}"
            if zlib.crc32(f"{name} {whole}".encode()) % every and whole not in KNOWN:
                continue
            out = tmp_path / f"out{tried}"
            out.mkdir()
            place = write(change)
            found += [f"{whole}: {fault}" for fault in faults(place, out, commands, paths)]
            (shutil.rmtree if place.is_dir() else Path.unlink)(place)
            shutil.rmtree(out)
            tried += 1
    assert tried >= 5
    assert found == []


@pytest.mark.filterwarnings("ignore")
class TestKnown:
    """What once came out, each as small as it gets."""

    def test_an_id_that_is_null_is_told_and_no_row_is_lost(self, tmp_path: Path) -> None:
        recipe = containers.Recipe(table=lambda _, old: first_null(old, "id"))
        place = tmp_path / "a.tacozip"
        place.write_bytes(recipe.build())
        assert json.loads(CliRunner().invoke(root, ["info", str(place), "--json"]).output)
        for command in (["ls", str(place)], ["taco", "sql", str(place), "SELECT * FROM data"]):
            result = CliRunner().invoke(root, command)
            assert result.exit_code == 9
            assert "an id is not allowed: it is empty" in result.output

    def test_text_in_a_column_of_pixels_is_reported(self, tmp_path: Path) -> None:
        table = pq.read_table(damage.sound().write(tmp_path / "sound.parquet"))
        changed = with_column(table, "band_1", ["x"] * len(table), pa.string())
        pq.write_table(changed, tmp_path / "a.parquet")
        result = CliRunner().invoke(root, ["check", str(tmp_path / "a.parquet")])
        assert result.exit_code == 1
        assert "the column is string, expected binary" in result.output

    def test_an_instant_beyond_the_calendar_is_shown_as_a_number(self, tmp_path: Path) -> None:
        items = [footers.Item("a", b"x", "BYTES", {"stac:crs": "EPSG:4326"})]
        data = footers.built(
            items,
            table=lambda old: filled(old, "stac:crs", 1 << 60, pa.timestamp("us")),
        )
        (tmp_path / "a.tortilla").write_bytes(data)
        assert str(1 << 60) in tortilla.open(tmp_path / "a.tortilla")._repr_html_()
