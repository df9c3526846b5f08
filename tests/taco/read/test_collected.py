"""TACOLLECTION.json, a collection over datasets that lie beside it (TACO 2.0, 6.6)."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import comal
from comal import taco
from comal.cli import root
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    UnsafeContentError,
    UnsupportedVersionError,
)
from comal.taco.checking.run import check
from tests.taco.write.small import Archive, dataset, flat, nested


@pytest.fixture
def collected(tmp_path: Path) -> Path:
    parts = taco.create(
        dataset(nested(4)), tmp_path / "p.tacozip", split_size=2_000, consolidate=False
    )
    assert len(parts) > 1
    return taco.create_tacollection(parts)


def entries(folder: Path) -> dict[str, bytes]:
    """The FILE samples of all archives, by zipfile."""
    return {
        f"{path.name}/{name}": data
        for path in sorted(folder.glob("*.tacozip"))
        for name, data in Archive(path).entries().items()
    }


def test_a_collection_is_the_rows_of_its_datasets(collected: Path, tmp_path: Path) -> None:
    document = json.loads(collected.read_text())
    opened = comal.open(collected)
    assert opened.collection == document
    assert opened.data["id"].to_pylist() == [f"s{n}" for n in range(4)]
    assert set(opened.data["internal:source_file"].to_pylist()) == set(
        document["taco:sources"]["files"]
    )
    copied = pickle.loads(pickle.dumps(opened))
    assert copied.sql("SELECT * FROM data WHERE id = 's3'").data["id"].to_pylist() == ["s3"]
    wanted = {key.partition("/")[2]: data for key, data in entries(tmp_path).items()}
    assert Archive(taco.export(opened, tmp_path / "one.tacozip")).entries() == wanted
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(collected, moved)
    with pytest.raises(ObjectNotFoundError, match="p_part0001"):
        taco.load(moved / collected.name)
    assert len(taco.load(moved / collected.name, tmp_path).data) == 4
    assert check(moved / collected.name, base_path=tmp_path).total == 0


def test_the_generic_commands(collected: Path, tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> bytes:
        result = CliRunner().invoke(root, words)
        assert result.exit_code == code, result.output
        return result.stderr_bytes if code else result.stdout_bytes

    wanted = entries(tmp_path)
    info = json.loads(run("info", str(collected), "--json"))
    assert info["container"] == "tacollection"
    assert (info["count"], info["samples"]) == (len(wanted), 4)
    rows = [json.loads(line) for line in run("ls", str(collected), "--json").splitlines()]
    assert {row["key"] for row in rows} == set(wanted)
    for row in rows:
        assert run("get", str(collected), row["key"]) == wanted[row["key"]]
        with Path(row["href"]).open("rb") as file:
            file.seek(row["offset"])
            assert file.read(row["size"]) == wanted[row["key"]]
    assert json.loads(run("check", str(collected), "--json"))["total"] == 0
    assert b"mend: 'comal ls'" in run("get", str(collected), "x/y", code=3)
    Path(rows[0]["href"]).unlink()
    output = str(tmp_path / "mended")
    assert b"comal taco tacollection" in run("check", str(collected), "--repair", output, code=2)
    with pytest.raises(InvalidInputError, match="no data to repair"):
        taco.repair(collected, output)


def _one_less(document: dict[str, Any], folder: Path) -> None:
    (folder / document["taco:sources"]["files"][0]).unlink()


def _broken(document: dict[str, Any], folder: Path) -> None:
    path = folder / document["taco:sources"]["files"][0]
    path.write_bytes(path.read_bytes()[:500])


def _put(*keys: Any) -> Callable[[dict[str, Any], Path], None]:
    *above, last, value = keys

    def change(document: dict[str, Any], _: Path) -> None:
        for key in above:
            document = document[key]
        document[last] = value

    return change


def _byte(document: dict[str, Any], folder: Path) -> None:
    path = folder / document["taco:sources"]["files"][0]
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        header = next(one for one in archive.infolist() if one.filename.endswith("label.json"))
    data[header.header_offset + 30 + len(header.filename)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        (_one_less, {"taco-source-missing"}),
        (_broken, {"taco-source-broken"}),
        (_byte, {"zip-crc"}),
        (_put("taco:pit_schema", "root", "n", 9), {"taco-pit-count"}),
        (_put("taco:sources", "count", 9), {"taco-source-stale"}),
        (_put("taco:sources", "ids", []), {"taco-source-stale"}),
        (_put("taco:sources", "extents", None), {"taco-source-stale"}),
        (_put("extent", "spatial", [0, 0, 1, 1]), {"taco-extent-space"}),
        (_put("licenses", ["no such licence"]), {"taco-licence"}),
    ],
)
def test_check_compares_it_with_its_datasets(
    collected: Path, change: Callable[[dict[str, Any], Path], None], codes: set[str]
) -> None:
    document = json.loads(collected.read_text())
    change(document, collected.parent)
    collected.write_text(json.dumps(document))
    assert set(check(collected).counts) == codes


def test_check_tells_of_datasets_that_differ(collected: Path) -> None:
    taco.create(dataset(flat(1)), collected.parent / "p_part0001.tacozip", overwrite=True)
    assert "taco-source-differs" in check(collected).counts


@pytest.mark.parametrize(
    ("sources", "error"),
    [
        (None, NotThisFormatError),
        ([], InvalidMetadataError),
        ({}, InvalidMetadataError),
        ({"files": "a"}, InvalidMetadataError),
        ({"files": []}, InvalidMetadataError),
        ({"files": ["a", 1]}, InvalidMetadataError),
        ({"files": ["a", "a"]}, InvalidMetadataError),
        ({"files": ["../a"]}, UnsafeContentError),
        ({"files": ["/etc/passwd"]}, UnsafeContentError),
        ({"files": ["http://127.0.0.1/x"]}, UnsafeContentError),
    ],
)
def test_documents_that_name_no_datasets(
    tmp_path: Path, sources: object, error: type[ComalError]
) -> None:
    path = tmp_path / "TACOLLECTION.json"
    document = {"taco_version": "2.0.0", "taco:sources": sources}
    path.write_text(json.dumps(document))
    for call in (comal.open, taco.load, check):
        with pytest.raises(error):
            call(path)
    path.write_text(json.dumps({"taco_version": "3.0.0", "taco:sources": {"files": ["a"]}}))
    with pytest.raises(UnsupportedVersionError):
        comal.open(path)
