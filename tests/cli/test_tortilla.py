"""The group ``comal tortilla``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.warp import transform_bounds

from comal import tortilla
from tests.cli.conftest import Run
from tests.raster.rasters import write
from tests.tortilla.write.oracle import listing, read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rasters, a text, a hidden file, a subfolder, and one that is empty."""
    root = tmp_path / "in"
    (root / "sub" / "deeper").mkdir(parents=True)
    (root / "empty").mkdir()
    for number in range(2):
        write(root / f"r{number}.tif", np.full((1, 4, 6), number + 1, np.uint8))
    (root / "note.txt").write_bytes(b"a note")
    (root / ".hidden").write_bytes(b"hidden")
    (root / "sub" / "a.bin").write_bytes(b"in sub")
    (root / "sub" / "deeper" / "b.bin").write_bytes(b"deeper")
    return root


@pytest.fixture
def file(run: Run, folder: Path, tmp_path: Path) -> Path:
    target = tmp_path / "a.tortilla"
    run("tortilla", "create", folder, target)
    return target


def test_create(run: Run, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.tortilla"
    result = run("tortilla", "create", folder, target)
    assert result.stdout == f"{target}: 4 samples\n"
    found = read(target)
    tree = found.tree()
    assert list(tree) == ["note.txt", "r0.tif", "r1.tif", "sub"]
    assert tree["sub"] == {"a.bin": b"in sub", "deeper": {"b.bin": b"deeper"}}
    assert found.column("tortilla:file_format") == ["BYTES", "GTiff", "GTiff", "TORTILLA"]
    assert found.column("stac:raster_shape") == [None, [4, 6], [4, 6], None]
    run("tortilla", "create", folder, target, code=10)
    again = run("tortilla", "create", folder, target, "--overwrite", "--json")
    assert json.loads(again.stdout) == {"output": [str(target)], "samples": 4, "classes": []}


def test_join(run: Run, file: Path, tmp_path: Path) -> None:
    said = run("tortilla", "compile", file, tmp_path / "s.tortilla", "--rows", "3", "--json").stdout
    parts = json.loads(said)["output"]
    for sources in ([parts[1]], parts):
        target = tmp_path / "joined.tortilla"
        run("tortilla", "join", *sources, "-o", target, "--overwrite")
        assert read(target).tree() == read(file).tree()
    Path(parts[0]).unlink()
    run("tortilla", "join", parts[1], "-o", tmp_path / "x.tortilla", code=3)


def test_compile_by_place_and_time(run: Run, file: Path, folder: Path, tmp_path: Path) -> None:
    with rasterio.open(folder / "r0.tif") as raster:
        west, south, east, north = transform_bounds(raster.crs, "EPSG:4326", *raster.bounds)
    inside = f"--bbox={west},{south},{east},{north}"
    beside = f"--bbox={east + 1},{south},{east + 2},{north}"
    day = 86_400
    tortilla.edit(file, columns={"stac:time_start": [0, day, 2 * day, None]})
    target = tmp_path / "b.tortilla"
    for line, expected in (
        ([inside], ["r0.tif", "r1.tif"]),
        (["--datetime", "../1970-01-02"], ["note.txt", "r0.tif"]),
        ([inside, "--datetime", "1970-01-03"], ["r1.tif"]),
    ):
        run("tortilla", "compile", file, target, *line, "--overwrite")
        assert read(target).ids == expected
    for wrong in ([beside], ["--bbox=1,2"], ["--datetime", "never"]):
        run("tortilla", "compile", file, tmp_path / "c.tortilla", *wrong, code=2)
    assert "c.tortilla" not in listing(tmp_path)


def test_compile(run: Run, file: Path, tmp_path: Path) -> None:
    tortilla.edit(file, columns={"n": [1, 2, 3, 4], "data_split": ["train", "test", "train", None]})
    for line, expected in (
        (["--id", "sub", "--id", "r0.tif"], ["sub", "r0.tif"]),
        (["--split", "train"], ["note.txt", "r1.tif"]),
        (["--where", "n > 1 AND n < 4"], ["r0.tif", "r1.tif"]),
        (["--where", '"stac:crs" IS NULL', "--head", "1"], ["note.txt"]),
        ([], ["note.txt", "r0.tif", "r1.tif", "sub"]),
    ):
        target = tmp_path / "b.tortilla"
        run("tortilla", "compile", file, target, *line, "--overwrite")
        assert read(target).ids == expected
        assert read(target).tree() == {name: read(file).tree()[name] for name in expected}
    run("tortilla", "compile", file, file, "--overwrite", code=10)
    run("tortilla", "compile", file, tmp_path / "c.tortilla", "--where", "nonsense", code=2)
    run("tortilla", "compile", file, tmp_path / "c.tortilla", "--where", "n > 9", code=2)
    run("tortilla", "compile", file, tmp_path / "c.tortilla", "--id", "zz", code=3)
    tortilla.edit(file, drop=["tortilla:data_split"])
    run("tortilla", "compile", file, tmp_path / "c.tortilla", "--split", "test", code=2)
    assert "c.tortilla" not in listing(tmp_path)


def test_an_edit_is_made_whole_or_not_at_all(run: Run, file: Path, tmp_path: Path) -> None:
    table, more = tmp_path / "t.csv", tmp_path / "more.txt"
    table.write_text("id,cloud\nb.tif,5\nsub,7\n")
    more.write_bytes(b"more")
    edit = ["tortilla", "edit", file, "--delete", "note.txt", "--rename", "r0.tif=b.tif"]
    edit += ["--columns", table, "--add", more, "--split", "test"]
    before = file.read_bytes()
    run(*edit, "--drop", "nothing", code=2)
    assert file.read_bytes() == before
    assert run(*edit).stdout == f"{file}: 4 samples\n"
    found = read(file)
    assert "note.txt" not in found.ids
    assert dict(zip(found.ids, found.column("cloud"), strict=True))["b.tif"] == 5
    assert found.tree()["more.txt"] == b"more"
    assert json.loads(run("check", file, "--json").stdout)["ok"]


def test_compile_of_a_nested_tortilla(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in/s1/deep").mkdir(parents=True)
    for name in ("a.bin", "deep/b.bin", "deep/c.bin"):
        (tmp_path / "in/s1" / name).write_bytes(name.encode())
    whole, part = tmp_path / "whole.tortilla", tmp_path / "part.tortilla"
    run("tortilla", "create", tmp_path / "in", whole, "--no-stac")
    run("tortilla", "compile", whole, part, "--nested", "s1/deep", "--id", "c.bin")
    assert run("ls", part).output.split()[0] == "c.bin"
    assert run("get", part, "c.bin").stdout_bytes == b"deep/c.bin"
    for key, code in (("s1/a.bin", 2), ("s2", 3)):
        run("tortilla", "compile", whole, tmp_path / "x.tortilla", "--nested", key, code=code)
