"""Commands of the group ``comal tapalcatl`` that write."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from comal import tapalcatl
from tests.cli.conftest import Run
from tests.tapalcatl.making import (
    PNG,
    pyramid,
    unzipped,
    write_mbtiles,
)

TILES = pyramid(3)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_mbtiles(tmp_path / "a.mbtiles", TILES, [("name", "n"), ("format", "png")])


@pytest.fixture
def tree(run: Run, source: Path, tmp_path: Path) -> Path:
    run("tapalcatl", "create", source, tmp_path / "set")
    return tmp_path / "set"


def test_create(run: Run, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    result = run("tapalcatl", "create", source, out, "--metatile", "1", "--materialized", "0,2")
    assert result.stdout.startswith(f"{out}: 85 tiles in 17 archives, ")
    assert "archives at zooms 0, 2 under 1 x 1 tiles" in result.stdout
    run("tapalcatl", "create", source, out, code=10)
    again = run("tapalcatl", "create", source, out, "--overwrite", "--json", "--name", "other")
    found = json.loads(again.stdout)
    assert (found["tiles"], found["min_zoom"], found["max_zoom"]) == (85, 0, 3)
    assert json.loads((out / "meta.json").read_text())["name"] == "other"
    run("tapalcatl", "create", tmp_path / "absent", tmp_path / "no", code=3)


@pytest.mark.parametrize(
    ("generation", "option"),
    [
        *(
            (1, option)
            for option in ("--materialized=0,2", "--hash", "--name=n", "--bounds=0,0,1,1")
        ),
        *(
            (2, option)
            for option in ("--layer=all", "--keys=plain", "--prefix=p", "--tile-size=256")
        ),
    ],
)
def test_an_option_of_the_other_generation_is_refused(
    run: Run, source: Path, tmp_path: Path, generation: int, option: str
) -> None:
    create = ("tapalcatl", "create", source, tmp_path / "out", "--generation", str(generation))
    result = run(*create, option, code=2)
    assert f"Tapalcatl {generation} has no place for this" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_change_of_tapalcatl_2_may_say_so(run: Run, tree: Path) -> None:
    run("tapalcatl", "delete", tree, "3/0/0", "--open", "version=2")
    assert len(unzipped(tree)) == len(TILES) - 1
    for wrong in (("version=2", "layer=all"), ("version=3", "version=3")):
        opening = [f"--open={one}" for one in wrong]
        run("tapalcatl", "delete", tree, "3/0/0", *opening, code=2)


def test_what_opens_the_source_of_an_extract_is_not_its_layout(
    run: Run, source: Path, tmp_path: Path
) -> None:
    run("tapalcatl", "create", source, tmp_path / "1", "--generation=1", "--metatile=4")
    opening = [f"--open={one}" for one in ("metatile=4", "template={z}/{x}/{y}.zip")]
    run("tapalcatl", "extract", tmp_path / "1", tmp_path / "2", "--metatile=1", *opening[:1])
    run("tapalcatl", "extract", tmp_path / "2", tmp_path / "3", *opening[1:])
    assert len(unzipped(tmp_path / "3")) == len(TILES)


def test_put_delete_compact_recover(run: Run, tree: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.png"
    new.write_bytes(PNG + b"new")
    result = run("tapalcatl", "put", tree, "--tile", f"3/1/1={new}", "--json")
    assert json.loads(result.stdout)["replaced"] == 1
    assert unzipped_tile(tree) == PNG + b"new"
    dry = json.loads(run("tapalcatl", "compact", tree, "--dry-run", "--json").stdout)
    assert dry["dead"] > len(TILES) * 46
    result = run("tapalcatl", "delete", tree, "3/1/1", "3/1/1", "9/1/1")
    assert result.stdout == f"{tree}: 1 entry deleted, 1 tile not there\n"
    assert json.loads(run("tapalcatl", "compact", tree, "--json").stdout)["saved"] > dry["dead"]
    result = run("tapalcatl", "recover", tree)
    assert result.stdout == f"{tree}: 0 files put into place, 0 removed\n"


def unzipped_tile(tree: Path) -> bytes:
    with tapalcatl.open(tree) as tileset:
        tile = tileset.tile(3, 1, 1)
    assert tile is not None
    return tile.data


def test_metadata(run: Run, tree: Path) -> None:
    assert run("tapalcatl", "metadata", tree, "name").stdout == "n\n"
    assert json.loads(run("tapalcatl", "metadata", tree).stdout)["maxzoom"] == 3
    result = run(
        "tapalcatl", "metadata", tree, "--set", "name=m", "--set", "x=[1]", "--set", "y=2.5"
    )
    assert "name, x, y changed, 1 comment rewritten" in result.stdout
    meta = json.loads((tree / "meta.json").read_text())
    assert (meta["name"], meta["x"], meta["y"]) == ("m", [1], 2.5)
    run("tapalcatl", "metadata", tree, "--set", 'name="2024"')  # a text that looks like a number
    assert json.loads((tree / "meta.json").read_text())["name"] == "2024"
    run("tapalcatl", "metadata", tree, "--set", 'name="2024', code=2)
    run("tapalcatl", "metadata", tree, "--unset", "x")
    run("tapalcatl", "metadata", tree, "x", code=2)
    before = (tree / "meta.json").read_bytes()
    for place in (tree, next(tree.glob("*/*/*.zip"))):  # a tileset, and an archive
        for value in ("minzoom=hello", "bounds=1", "formats=[]", "name=[1]"):
            error = run("tapalcatl", "metadata", place, "--set", value, code=2).stderr
            assert value.partition("=")[0] in error
    assert (tree / "meta.json").read_bytes() == before


def test_convert(run: Run, source: Path, tmp_path: Path) -> None:
    names = ("set", "b.pmtiles", "set2", "loose", "c.zip", "c.mbtiles", "set3")
    steps = [source, *(tmp_path / name for name in names)]
    for before, after in pairwise(steps):
        assert json.loads(run("convert", before, after, "--json").stdout)["tiles"] == 85
    assert unzipped(tmp_path / "set3") == unzipped(tmp_path / "set")
    assert (tmp_path / "loose" / "3" / "0" / "0.png").is_file()


def test_one_archive(run: Run, source: Path, tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.zip"
    result = run("tapalcatl", "create", source, out)
    assert result.stdout.startswith(f"{out}: 85 tiles in 1 archive, ")
    run("convert", tree, tmp_path / "b.zip")
    run("tapalcatl", "merge", tree, source, "-o", tmp_path / "c.zip")
    wanted = [f"{z}/{x}/{y}.png" for z, x, y in sorted(TILES)]
    for name in "abc":
        listed = run("ls", tmp_path / f"{name}.zip").stdout.splitlines()
        assert sorted(line.partition("\t")[0] for line in listed) == sorted(wanted)
        about = json.loads(run("info", tmp_path / f"{name}.zip", "--json").stdout)
        assert (about["container"], about["count"], about["archives"]) == ("archive", 85, 1)
    assert run("check", tmp_path / "c.zip", "--level", "structure").exit_code == 0


def test_ls_lists_what_can_be_read(run: Run, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    run("tapalcatl", "create", source, out, "--metatile", "1", "--materialized", "0,2")
    whole = run("ls", out).stdout.splitlines()
    for name in ("0/0/0.zip", "2/1/1.zip"):
        (out / name).write_bytes(b"no archive")
    result = run("ls", out, code=11)
    assert set(result.stdout.splitlines()) < set(whole)
    assert len(result.stdout.splitlines()) == 85 - 5 - 5
    assert "0/0/0.zip" in result.stderr
    assert "2/1/1.zip" in result.stderr
    rows = run("ls", out, "--json", code=11)
    assert len(rows.stdout.splitlines()) == 75
    errors = [json.loads(line) for line in rows.stderr.splitlines()]
    assert [error["code"] for error in errors] == ["not-this-format"] * 2
