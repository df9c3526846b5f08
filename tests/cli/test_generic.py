"""info, ls, get, check, convert."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from comal import raquet, tapalcatl, tortilla
from tests.cli.conftest import NESTED_KEYS, Run, payload
from tests.raquet.writing.sources import noise, utm
from tests.servers.http import HttpServer
from tests.support import SHARED, needs_shared
from tests.tapalcatl.making import picture

FIXTURES = SHARED / "fixtures" / "taco"


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_ls_names_the_spans_of_the_entries(run: Run, nested: Path) -> None:
    rows = lines(run("ls", nested, "--json").stdout)
    assert [row["key"] for row in rows] == NESTED_KEYS
    data = nested.read_bytes()
    for row in rows:
        assert list(row) == ["key", "href", "offset", "size", "type"]
        assert row["href"] == str(nested)
        assert data[row["offset"] : row["offset"] + row["size"]] == payload(row["key"])


def test_a_long_list_names_the_file(run: Run, flat: Path) -> None:
    assert run("ls", "-l", flat).stdout.splitlines()[0].split("\t")[3] == str(flat)


def test_get(run: Run, nested: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(nested) as archive:
        for key in NESTED_KEYS:
            assert run("get", nested, key).stdout_bytes == archive.read(f"DATA/{key}")
    output = tmp_path / "b.bin"
    run("get", nested, "s2/b.bin", "-o", output)
    assert output.read_bytes() == payload("s2/b.bin")
    assert "--overwrite" in run("get", nested, "s2/b.bin", "-o", output, code=10).stderr
    run("get", nested, "s10/b.bin", "-o", output, "--overwrite")
    assert output.read_bytes() == payload("s10/b.bin")


def test_get_never_replaces_what_it_reads(run: Run, nested: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    run("convert", nested, folder)
    held = folder / "DATA" / "s2" / "a.bin"
    run("get", folder, "s2/b.bin", "-o", held, "--overwrite", code=10)
    assert held.read_bytes() == payload("s2/a.bin")


@pytest.mark.parametrize("key", ["s3", "s2", "s2/", "s2/c.bin", "../x", "s2/a.bin/x", ""])
def test_get_of_what_is_not_there(run: Run, nested: Path, tmp_path: Path, key: str) -> None:
    run("get", nested, key, "-o", tmp_path / "out", code=3)
    assert not (tmp_path / "out").exists()


def test_get_of_rotten_bytes(run: Run, flat: Path, tmp_path: Path) -> None:
    data = bytearray(flat.read_bytes())
    place = data.index(payload("s3"))
    data[place] ^= 1
    flat.write_bytes(data)
    result = run("get", flat, "s3", "-o", tmp_path / "out", code=6)
    assert "checksum" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_large_leaf_is_streamed_and_checked(
    run: Run, flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comal.formats.taco._AT_ONCE", 10)
    monkeypatch.setattr("comal.formats.taco._BLOCK", 7)
    assert run("get", flat, "s1").stdout_bytes == payload("s1")
    data = bytearray(flat.read_bytes())
    data[data.index(payload("s1"))] ^= 1
    flat.write_bytes(data)
    run("get", flat, "s1", "-o", tmp_path / "out", code=6)
    assert not (tmp_path / "out").exists()


def test_over_http(run: Run, nested: Path, http_server: HttpServer) -> None:
    url = http_server.put("/nested.tacozip", nested.read_bytes())
    assert [row["key"] for row in lines(run("ls", url, "--json").stdout)] == NESTED_KEYS
    assert run("get", url, "s10/b.bin").stdout_bytes == payload("s10/b.bin")
    assert json.loads(run("info", url, "--json").stdout)["size"] == nested.stat().st_size


def test_convert_there_and_back(run: Run, nested: Path, tmp_path: Path) -> None:
    folder, again = tmp_path / "folder", tmp_path / "again.tacozip"
    run("convert", nested, folder)
    assert (folder / "DATA" / "s2" / "a.bin").read_bytes() == payload("s2/a.bin")
    run("convert", folder, again)
    assert run("get", again, "s2/a.bin").stdout_bytes == payload("s2/a.bin")
    rows = lines(run("ls", folder, "--json").stdout)
    assert [row["key"] for row in rows] == NESTED_KEYS
    assert [row["size"] for row in rows] == [len(payload(key)) for key in NESTED_KEYS]
    assert rows[0]["href"] == str(folder / "DATA" / "s10" / "a.bin")
    run("convert", nested, tmp_path / "same.tacozip", code=2)
    run("convert", nested, folder, code=10)


def test_convert_a_folder_of_files(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"a")
    (folder / "b.bin").write_bytes(b"bb")
    output = tmp_path / "out.tacozip"
    summary = json.loads(run("convert", folder, output, "--json").stdout)
    assert summary == {"source": str(folder), "from": "rasters", "output": str(output)}
    assert run("get", output, "b.bin").stdout_bytes == b"bb"


def test_options_of_check(run: Run, nested: Path) -> None:
    assert json.loads(run("check", nested, "--json", "--level", "structure").stdout)["ok"]
    assert run("check", nested, "--quiet").output == ""


def test_repair_needs_a_problem(run: Run, flat: Path, tmp_path: Path) -> None:
    run("check", flat, "--repair", tmp_path / "mended.tacozip", code=2)
    assert not (tmp_path / "mended.tacozip").exists()


@needs_shared
@pytest.mark.parametrize("name", ["nested_folder", "nested_padded.tacozip", "cat/part1.tacozip"])
def test_leaves_of_other_writers(run: Run, name: str) -> None:
    expected = json.loads((FIXTURES / "expected.json").read_text())[name]
    rows = lines(run("ls", FIXTURES / name, "--json").stdout)
    leaves = {key for key in expected["leaves"] if "__TACOPAD__" not in key}
    assert {row["key"] for row in rows} == leaves
    for row in rows:
        leaf = expected["leaves"][row["key"]]
        assert row["size"] == leaf["size"]
        if "folder" not in name:
            assert row["offset"] == leaf["offset"]
        data = run("get", FIXTURES / name, row["key"]).stdout_bytes
        assert hashlib.sha256(data).hexdigest() == leaf["sha256"]
    found = json.loads(run("info", FIXTURES / name, "--json").stdout)
    assert found["count"] == len(leaves)
    assert found["samples"] == expected["visible_rows"][0]


@needs_shared
@pytest.mark.parametrize("name", ["cat", "cat/.tacocat", "tacocat_binary/__TACOCAT__"])
def test_leaves_of_an_index(run: Run, name: str) -> None:
    """Keys begin with the ZIP that holds the leaf."""
    rows = lines(run("ls", FIXTURES / name, "--json").stdout)
    assert len({row["key"] for row in rows}) == len(rows) == 18
    folder = name.partition("/")[0]
    for row in rows:
        part, _, path = row["key"].partition("/")
        assert row["href"] == str(FIXTURES / folder / part)
        alone = run("get", FIXTURES / folder / part, path).stdout_bytes
        assert run("get", FIXTURES / name, row["key"]).stdout_bytes == alone


@needs_shared
def test_repair_of_a_damaged_header(run: Run, tmp_path: Path) -> None:
    """A damaged archive gets a sound copy; the original stays as it is."""
    source = tmp_path / "damaged.tacozip"
    data = bytearray((FIXTURES / "nested.tacozip").read_bytes())
    data[14] ^= 1  # the checksum of TACO_HEADER
    source.write_bytes(data)
    before = source.read_bytes()
    run("check", source, code=1)
    run("check", source, "--repair", tmp_path / "mended.tacozip")
    run("check", tmp_path / "mended.tacozip")
    assert source.read_bytes() == before


def test_what_a_killed_writer_has_left_is_told_and_cleaned(run: Run, flat: Path) -> None:
    part = flat.with_name(f".{flat.name}.comal-part")
    for target, code in ((flat, 0), (flat.with_name("gone.tacozip"), 3)):
        part = target.with_name(f".{target.name}.comal-part")
        part.write_bytes(b"half")
        told = run("check", target, code=code).output
        assert "comal clean" in told
        assert part.exists()
        assert json.loads(run("clean", target, "--json").stdout)["removed"] == [str(part)]
        assert not part.exists()
        assert "comal clean" not in run("check", target, code=code).output
    found = json.loads(run("check", flat, "--json").stdout)
    assert found["problems"] == []


def test_what_a_killed_update_has_left_is_told_and_cleaned(
    run: Run, flat: Path, tmp_path: Path
) -> None:
    """Next versions beside a file and in a folder, and the journal of several, in each format."""
    folder, tiles = tmp_path / "folder", tmp_path / "tiles"
    run("convert", flat, folder)
    zooms: dict[str, Any] = {"materialized_zooms": [0, 1], "metatile": 1}
    tapalcatl.build([(0, 0, 0, picture(0)), (1, 0, 0, picture(1))], tiles, **zooms)
    samples = tortilla.create([tortilla.Sample("a", path=b"1")], tmp_path / "a.tortilla").paths[0]
    source = utm(tmp_path / "a.tif", noise((20, 20), "uint8"))
    raquet.write(source, tmp_path / "a.parquet")
    targets = (flat, folder, tiles, Path(samples), tmp_path / "a.parquet")
    places = [(one, one.parent, one.name) for one in targets]
    places += [(folder, folder / "DATA", "s1"), (tiles, tiles / "0/0", "0.zip")]
    for target, place, name in places:
        left = place / f".{name}.{'0' * 16}.next"
        left.write_bytes(b"half")
        found = json.loads(run("check", target, "--json").stdout)
        told = [p["place"] for p in found["problems"] if p["code"] == "leftover"]
        assert len(told) == 1
        assert told[0].endswith(left.name)
        assert json.loads(run("clean", target, "--json").stdout)["removed"] == [str(left)]
        assert not left.exists()
        assert "leftover" not in run("check", target).output
