"""What commands hand to the functions that they call, with each of their options.

What the functions do, the tests of their rooms ask.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import pytest

from comal import tapalcatl
from comal.cli import options, root
from tests.support import command

GENERATION1 = tapalcatl.Generation1(metatile=8, layer="all")
CUT: dict[str, Any] = {"chunk_size": None, "chunk_rows": None}
PACK: dict[str, Any] = {"pattern": "*", "manifest": None, "stac": True, "allow_ids": False}
EDIT: dict[str, Any] = {"delete": (), "drop": (), "columns": None, "replace": False, "add": None}
WRITE: dict[str, Any] = {
    "spec_version": "0.1.0", "zoom": None, "zoom_strategy": "auto", "min_zoom": None,
    "resampling": "nearest", "overview_resampling": None, "block_size": 256, "bands": None,
    "nodata": None, "crs": None, "variable": None, "compression": "gzip", "level": 3,
    "quality": 85, "layout": "sequential", "tile_statistics": False,
    "time": None, "row_group_size": None, "block_dtype": "uint64",
}  # fmt: skip
BUILD: dict[str, Any] = {
    "variant": None, "resume": True, "ext": None, "scale": 1.0,
    "compression": "auto", "level": 6, "times": "fixed", "exact_times": False, "name": None,
    "description": None, "attribution": None, "bounds": None,
}  # fmt: skip
PUT: dict[str, Any] = {
    name: BUILD[name] for name in ("variant", "ext", "scale", "compression", "level", "times")
}
CREATE = BUILD | {
    "version": 2,
    "generation1": None,
    "metatile": None,
    "materialized_zooms": None,
    "hash_in_path": False,
}
PUT |= {"exact_times": False, "generation1": None}
EXTRACT: dict[str, Any] = {
    "bbox": None, "geometry": None, "min_zoom": None, "max_zoom": None, "overview_zoom": None,
    "metatile": None, "materialized_zooms": None,
}  # fmt: skip
STATS = ("count", "sum", "mean", "min", "max", "stddev")
ZONAL: dict[str, Any] = {
    "bands": None,
    "stats": STATS,
    "zoom": None,
    "time": None,
    "method": "centre",
}
ZONAL |= {"keep": (), "layer": None}

CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "tortilla create d o": ("tortilla.pack_folder", ("d", "o"), PACK | CUT),
    "tortilla create d o --manifest m --pattern *.tif --no-stac --allow-ids"
    " --size 4GB --rows 3 --overwrite": (
        "tortilla.pack_folder",
        ("d", "o"),
        {
            "manifest": "m", "pattern": ["*.tif"], "stac": False, "allow_ids": True,
            "chunk_size": "4GB", "chunk_rows": 3,
            "overwrite": True,
        },
    ),
    "tortilla edit f": ("tortilla.edit", ("f",), EDIT | {"rename": {}, "stac": None}),
    "tortilla edit f --delete a --delete b --drop c --rename x=y --replace --stac": (
        "tortilla.edit",
        ("f",),
        EDIT
        | {"delete": ("a", "b"), "drop": ("c",), "rename": {"x": "y"}, "replace": True}
        | {"stac": True},
    ),
    "tortilla compact f -o o --overwrite": ("tortilla.compact", ("f", "o"), {"overwrite": True}),
    "tortilla compact f": ("tortilla.compact", ("f", None), {}),
    "taco create d o": (
        "taco.pack_folder",
        ("d", "o"),
        {"pattern": "*", "manifest": None, "stac": True, "pad": False, "split_size": None}
        | {"group_by": None},
    ),
    "taco create d o --manifest m --pattern *.tif --no-stac --pad --split-size 4GB --group-by n"
    " --id i --dataset-version 1 --title t --description x --license MIT --provider p --task y"
    " --keyword k --overwrite": (
        "taco.pack_folder",
        ("d", "o"),
        {
            "pattern": ["*.tif"], "manifest": "m", "stac": False, "pad": True,
            "split_size": "4GB", "group_by": ["n"], "overwrite": True, "id": "i",
            "dataset_version": "1", "title": "t", "description": "x", "licenses": ["MIT"],
            "providers": [{"name": "p"}], "tasks": ["y"], "keywords": ["k"],
        },
    ),
    "taco tacocat a b -o o --any-schema --overwrite --append --form binary": (
        "taco.create_tacocat",
        (["a", "b"], "o"),
        {"validate_schema": False, "overwrite": True, "append": True, "form": "binary"},
    ),
    "taco tacocat a": (
        "taco.create_tacocat",
        (["a"], None),
        {"validate_schema": True, "append": False, "form": "both"},
    ),
    "taco tacollection a b -o o --any-schema --overwrite": (
        "taco.create_tacollection",
        (["a", "b"], "o"),
        {"validate_schema": False, "overwrite": True},
    ),
    "raquet create a.tif o": ("raquet.write", ("a.tif", "o"), WRITE),
    "raquet create a.tif o --processes 3": (
        "raquet.write", ("a.tif", "o"), WRITE | {"executor": 3},
    ),
    "raquet create a.tif b.tif o --band red=1 --band nir=x --nodata 255 --compression none"
    " --spec-version 0.5.0 --zoom 9 --zoom-strategy lower --min-zoom 3 --resampling mode"
    " --overview-resampling min --block-size 512 --crs EPSG:3857 --variable v --level 6"
    " --quality 7 --layout interleaved --tile-statistics --time 2020-01-01"
    " --time 2021-01-01 --row-group-size 64 --block-dtype int64 --overwrite": (
        "raquet.write",
        (["a.tif", "b.tif"], "o"),
        {
            "bands": {"red": 1, "nir": "x"}, "nodata": 255, "compression": None,
            "spec_version": "0.5.0", "zoom": 9, "zoom_strategy": "lower", "min_zoom": 3,
            "resampling": "mode", "overview_resampling": "min", "block_size": 512,
            "crs": "EPSG:3857", "variable": "v", "level": 6, "quality": 7,
            "layout": "interleaved", "tile_statistics": True,
            "time": ["2020-01-01", "2021-01-01"], "row_group_size": 64, "block_dtype": "int64",
            "overwrite": True,
        },
    ),
    "raquet create a.tif o --band 2 --nodata none": (
        "raquet.write", ("a.tif", "o"), WRITE | {"bands": [2], "nodata": "none"},
    ),
    "raquet create a.tif o --nodata nan --time 2020-01-01": (
        "raquet.write",
        (["a.tif"], "o"),
        WRITE | {"nodata": pytest.approx(float("nan"), nan_ok=True), "time": ["2020-01-01"]},
    ),
    "raquet export x o.tif --zoom 3 --bbox 1,2,3,4 --band b --step 0 --compression zstd"
    " --overwrite": (
        "raquet.to_cog",
        ("x", "o.tif"),
        {"zoom": 3, "bbox": (1.0, 2.0, 3.0, 4.0), "bands": ["b"], "time": 0}
        | {"compression": "zstd", "overwrite": True},
    ),
    "raquet export x o.tif --plain": (
        "raquet.to_geotiff",
        ("x", "o.tif"),
        {"zoom": None, "bbox": None, "bands": None, "time": None, "compression": "deflate"},
    ),
    "raquet export x o.png --size 64": (
        "raquet.preview", ("x",), {"size": 64, "bands": None, "time": None},
    ),
    "raquet partition x o --zoom 6 --target-mb 2 --no-overviews --overwrite": (
        "raquet.partition",
        ("x", "o"),
        {"zoom": 6, "target_size": 2 << 20, "overviews": False, "overwrite": True},
    ),
    "raquet merge a b -o o --overwrite": ("raquet.merge", (["a", "b"], "o"), {"overwrite": True}),
    "raquet merge a/ -o o": ("raquet.merge", ("a/", "o"), {}),
    "raquet zonal x z": ("raquet.zonal", ("x", "z"), ZONAL),
    "raquet zonal x z --band b --stat p90 --zoom 3 --step 1 --method fractional --keep n --layer l"
    " --csv": (
        "raquet.zonal",
        ("x", "z"),
        {"bands": ["b"], "stats": ("p90",), "zoom": 3, "time": 1, "method": "fractional"}
        | {"keep": ("n",), "layer": "l"},
    ),
    "raquet stats x --band b --stat mean --stat p2 --zoom 3 --step 1 --csv": (
        "raquet.statistics",
        ("x",),
        {"bands": ["b"], "stats": ("mean", "p2"), "zoom": 3, "time": 1},
    ),
    "raquet sql x q --untrusted --csv": ("raquet.sql", ("x", "q"), {"isolated": True}),
    "raquet sql x q": ("raquet.sql", ("x", "q"), {"isolated": False}),
    "raquet sql https://e.org/x q": ("raquet.sql", ("https://e.org/x", "q"), {"isolated": True}),
    "tapalcatl delete x 5/10/23 --ext png --scale 2 --variant v": (
        "tapalcatl.delete",
        ("x", ((5, 10, 23),)),
        {"ext": "png", "scale": 2.0, "variant": "v", "generation1": None},
    ),
    "tapalcatl delete x 5/10/23 --open metatile=8 --open layer=all": (
        "tapalcatl.delete",
        ("x", ((5, 10, 23),)),
        {"ext": None, "scale": None, "variant": None, "generation1": GENERATION1},
    ),
    "tapalcatl compact x --dry-run": ("tapalcatl.space", ("x",), {"generation1": None}),
    "tapalcatl compact x --all --open metatile=8 --open layer=all": (
        "tapalcatl.compact", ("x",), {"force": True, "generation1": GENERATION1},
    ),
    "tapalcatl metadata x --set name=m --set x=[1] --set y=-2.5 --unset z --no-archives": (
        "tapalcatl.edit_metadata",
        ("x", {"name": "m", "x": [1], "y": -2.5, "z": None}),
        {"archives": False},
    ),
    "tapalcatl merge a b -o o --conflict first --metatile 2 --materialized 4,0 --hash"
    " --overwrite": (
        "tapalcatl.merge",
        (("a", "b"), "o"),
        {"conflict": "first", "metatile": 2, "materialized_zooms": [0, 4]}
        | {"hash_in_path": True, "overwrite": True},
    ),
    "tapalcatl merge a -o o": ("tapalcatl.merge", (("a",), "o"), {"conflict": "last"}),
    "tapalcatl remetatile a o --metatile 2 --materialized 0,4 --hash --overwrite": (
        "tapalcatl.remetatile",
        ("a", "o"),
        {"metatile": 2, "materialized_zooms": [0, 4], "hash_in_path": True, "overwrite": True},
    ),
    "tapalcatl extract a o": ("tapalcatl.extract", ("a", "o"), EXTRACT),
    "tapalcatl extract a o --bbox 5,44,17,48 --geojson g --min-zoom 1 --max-zoom 9"
    " --overview-zoom 3 --metatile 2 --materialized 0,4 --overwrite": (
        "tapalcatl.extract",
        ("a", "o"),
        {
            "bbox": (5.0, 44.0, 17.0, 48.0), "geometry": "g", "min_zoom": 1, "max_zoom": 9,
            "overview_zoom": 3, "metatile": 2, "materialized_zooms": [0, 4],
            "overwrite": True,
        },
    ),
    "tapalcatl site o a b --title t --link --overwrite": (
        "site.write",
        ("o", ("a", "b")),
        {"title": "t", "link": True, "overwrite": True},
    ),
    "tapalcatl put x s --variant v --ext png --scale 2 --compression store --level 9"
    " --times source --exact-times --open metatile=8 --open layer=all": (
        "tapalcatl.put",
        ("x", "s"),
        {"variant": "v", "ext": "png", "scale": 2.0, "compression": "store", "level": 9}
        | {"times": "source", "exact_times": True, "generation1": GENERATION1},
    ),
    "tapalcatl create s o": ("tapalcatl.build", ("s", "o"), CREATE),
    "tapalcatl create s o --name n --description d --attribution a --bounds 1,2,3,4 --variant v"
    " --no-resume --metatile 2 --materialized 0,4 --hash --overwrite": (
        "tapalcatl.build",
        ("s", "o"),
        CREATE
        | {"name": "n", "description": "d", "attribution": "a", "bounds": (1.0, 2.0, 3.0, 4.0)}
        | {"variant": "v", "resume": False, "metatile": 2, "materialized_zooms": [0, 4]}
        | {"hash_in_path": True, "overwrite": True},
    ),
    "tapalcatl create s o --generation 1 --layer all --metatile 8 --keys prefix-hash --prefix p"
    " --tile-size 512 --ext png --scale 2 --compression deflate --level 1"
    " --times 2020-01-01 --exact-times": (
        "tapalcatl.build",
        ("s", "o"),
        {name: one for name, one in CREATE.items() if name != "metatile"}
        | {"version": 1, "ext": "png", "scale": 2.0, "compression": "deflate"}
        | {"level": 1, "times": "2020-01-01", "exact_times": True}
        | {
            "generation1": tapalcatl.Generation1(
                metatile=8, layer="all", layout="prefix-hash", prefix="p", tile_size=512
            )
        },
    ),
    "tapalcatl export s o.pmtiles --ext png --scale 2 --overwrite": (
        "tapalcatl.to_pmtiles", ("s", "o.pmtiles"), {"ext": "png", "scale": 2.0, "overwrite": True},
    ),
    "tapalcatl export s o.mbtiles": (
        "tapalcatl.to_mbtiles", ("s", "o.mbtiles"), {"ext": None, "scale": None},
    ),
    "tapalcatl export s o --scheme tms": (
        "tapalcatl.to_directory", ("s", "o"), {"ext": None, "scale": None, "scheme": "tms"},
    ),
}  # fmt: skip
"""For each line the function, and what it gets beside `progress`; no `overwrite` is False."""


class CalledError(Exception):
    """The function was called; what follows needs its answer."""


@pytest.mark.parametrize("line", CALLS)
def test_what_a_command_hands_on(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, args, named = CALLS[line]
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def note(*args: Any, **named: Any) -> None:
        calls.append((args, named))
        raise CalledError

    monkeypatch.setattr(f"comal.{function}", note)
    monkeypatch.setattr("comal.tapalcatl.open_tiles", lambda source, **_: source)
    monkeypatch.setattr("comal.tapalcatl.open", nullcontext)
    command(*shlex.split(line), code=70)
    ((found, given),) = calls
    given.pop("progress", None)
    for name in ("overwrite", "executor"):
        if not given.get(name):
            given.pop(name, None)
    assert found == args
    assert given == named


def lines_of(words: str) -> Iterator[list[str]]:
    for line in CALLS:
        if line.startswith(words + " "):
            yield shlex.split(line)


def test_every_option_is_in_the_table() -> None:
    """Of the commands that are; those that work on what they have opened are tried elsewhere."""
    given = {option for make in options.COMMON for option in make().opts}
    given |= {"--processes", "--dask"}  # tests/test_workers.py
    elsewhere = {
        "taco create --collection", "tortilla edit --columns", "tortilla edit --add",
        "tortilla edit --split", "tapalcatl create --scheme",
        "tapalcatl create --open", "tapalcatl export --open", "tapalcatl extract --open",
        "tapalcatl put --tile",
    }  # fmt: skip
    lost = set()
    context = click.Context(root)
    for group in ("taco", "tortilla", "raquet", "tapalcatl"):
        commands = root.get_command(context, group)
        assert isinstance(commands, click.Group)
        for name, one in commands.commands.items():
            used = {word for line in lines_of(f"{group} {name}") for word in line}
            for option in one.params if used else ():
                if option.param_type_name == "option" and not {*option.opts} & (used | given):
                    lost.add(f"{group} {name} {option.opts[-1]}")
    assert lost == elsewhere


@pytest.mark.parametrize(
    "line",
    [
        *("raquet create a b --band x=1 --band 2", "raquet create a b --nodata nothing"),
        *("raquet point x 500 0", "raquet point x 0 95", "raquet export x o.gif"),
        *("tapalcatl create s o --materialized x", "tapalcatl put x", "tapalcatl put x s --tile 1"),
        *("tapalcatl put x --tile 3/1/1", "tapalcatl put x --tile 3/1=new", "taco export x"),
        *("tapalcatl extract a o --bbox 1,2", "tapalcatl metadata x --set name"),
        *("tapalcatl metadata x --set y=[", "tapalcatl delete x 1/2", "tortilla edit f --rename a"),
        *("tapalcatl compact x --open magic=1", "tapalcatl compact x --open metatile=a"),
        "tortilla edit f --rename a=x --rename a=y",
    ],
)
def test_what_makes_no_sense_is_wrong_usage(line: str, tmp_path: Path) -> None:
    command(*shlex.split(line), code=2)
    assert not (tmp_path / "o").exists()
