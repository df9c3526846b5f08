"""The group ``comal taco``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import comal
from comal.taco import load
from tests.cli.conftest import NESTED_KEYS, Run, payload


@pytest.mark.parametrize("target", ["https://example.org/x", "hf://datasets/a/b/x"])
def test_targets_are_local_or_in_stores(run: Run, nested: Path, folder: Path, target: str) -> None:
    for line in (
        ("taco", "create", folder, target),
        ("taco", "export", nested, target),
        ("taco", "concat", nested, "-o", target),
        ("taco", "tacocat", nested, "-o", target),
        ("taco", "tacollection", nested, "-o", target),
        ("get", nested, NESTED_KEYS[0], "-o", target),
        ("demo", "--out", target),
    ):
        assert "must be a local path" in run(*line, code=2).stderr


def test_a_bad_name_is_wrong_usage(run: Run, folder: Path, tmp_path: Path) -> None:
    result = run("taco", "create", folder, tmp_path / "x.tacozip", "--id", "A B", code=2)
    assert "lower-case letters" in result.stderr
    assert list(tmp_path.glob("*x.tacozip*")) == []


def ids(href: Path) -> list[str]:
    with comal.open(href) as dataset:
        found: list[str] = dataset.data.to_arrow().column("id").to_pylist()
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two scenes of two files each."""
    for key in NESTED_KEYS:
        path = tmp_path / "in" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(payload(key))
    return tmp_path / "in"


def test_create(run: Run, folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.tacozip"
    line = ["--license", "CC0-1.0", "--provider", "me", "--task", "other"]
    result = run("taco", "create", folder, output, "--id", "mine", *line)
    assert result.stdout == f"{output}: written\n"
    assert result.stderr == ""
    assert run("get", output, "s2/b.bin").stdout_bytes == payload("s2/b.bin")
    run("taco", "create", folder, output, code=10)


def test_create_says_what_the_collection_lacks(run: Run, folder: Path, tmp_path: Path) -> None:
    result = run("taco", "create", folder, tmp_path / "out.tacozip")
    assert "--license" in result.stderr
    quiet = run("taco", "create", folder, tmp_path / "quiet.tacozip", "-q")
    assert quiet.output == ""


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("json", '{"id": "other", "licenses": ["MIT"], "sensor": "x", "taco_version": "9"}'),
        ("toml", 'id = "other"\nlicenses = ["MIT"]\nsensor = "x"\n'),
        ("yaml", "id: other\nlicenses: [MIT]\nsensor: x\n"),
    ],
)
def test_create_with_a_collection_file(
    run: Run, folder: Path, tmp_path: Path, suffix: str, text: str
) -> None:
    document = tmp_path / f"collection.{suffix}"
    document.write_text(text)
    output = tmp_path / "out.tacozip"
    run("taco", "create", folder, output, "--collection", document, "--id", "wins")
    with comal.open(output) as dataset:
        assert (dataset.id, dataset.licenses) == ("wins", ["MIT"])
        assert dataset.collection["sensor"] == "x"
        assert dataset.taco_version == "2.0.0"


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("absent.json", None, 3),
        ("list.yaml", "- a\n", 2),
        ("broken.yaml", "a: [", 2),
        ("broken.toml", "a", 2),
        ("broken.json", "{", 6),
    ],
)
def test_create_with_a_bad_collection_file(
    run: Run, folder: Path, tmp_path: Path, name: str, text: str | None, code: int
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    output = tmp_path / "out.tacozip"
    run("taco", "create", folder, output, "--collection", tmp_path / name, code=code)
    assert not output.exists()


def test_sql_values_of_all_kinds(run: Run, flat: Path) -> None:
    query = (
        "SELECT NULL AS a, TIMESTAMP '2025-01-02 03:04:05' AS b, 'x'::BLOB AS c, [1, 2] AS d, "
        "{'k': DATE '2025-01-02'} AS e, 'nan'::DOUBLE AS f, true AS g, 1.5::DECIMAL(4,1) AS h "
        "FROM data LIMIT 1"
    )
    row = json.loads(run("taco", "sql", flat, query, "--json").stdout)
    assert row == {
        "a": None,
        "b": "2025-01-02T03:04:05",
        "c": "78",
        "d": [1, 2],
        "e": {"k": "2025-01-02"},
        "f": None,
        "g": True,
        "h": "1.5",
    }
    assert '"[1, 2]"' in run("taco", "sql", flat, query).stdout


def test_sql_values_that_json_or_python_does_not_have(run: Run, flat: Path) -> None:
    """Python has no nanoseconds and no year 290 000, JSON has no NaN."""
    exact = "TIMESTAMP_NS '2025-01-02 03:04:05.123456789'"
    query = (
        f"SELECT {exact} AS a, [{exact}, NULL] AS b,"
        " {'k': MAP{1: TIME_NS '03:04:05.123456789'}} AS c,"
        " [TIMESTAMP 'infinity'] AS d, 'nan'::DOUBLE AS e, '-inf'::FLOAT AS f FROM data LIMIT 1"
    )
    # In a process of its own, as those of the command line do without pandas.
    alone = [sys.executable, "-m", "comal", "taco", "sql", str(flat), query, "--json"]
    row = json.loads(subprocess.run(alone, capture_output=True, check=True).stdout)
    text = "2025-01-02T03:04:05.123456789"
    assert row == {
        "a": text,
        "b": [text, None],
        "c": {"k": [[1, "03:04:05.123456789"]]},
        "d": [2**63 - 1],
        "e": None,
        "f": None,
    }
    lines = run("taco", "sql", flat, query).stdout.splitlines()
    assert lines[1].startswith(text)
    assert lines[1].endswith("nan,-inf")


def test_export(run: Run, flat: Path, tmp_path: Path) -> None:
    output = tmp_path / "part.tacozip"
    line = ["taco", "export", flat, output, "--where", "number >= 3 -- not more"]
    assert json.loads(run(*line, "--json").stdout) == {"output": str(output), "samples": 2}
    assert ids(output) == ["s3", "s4"]
    run(*line, code=10)
    run(*line[:4], "--where", "number = 0", "--overwrite")
    assert ids(output) == ["s0"]


def test_export_by_box_and_time(run: Run, stac: Path, tmp_path: Path) -> None:
    east, june = tmp_path / "east.tacozip", tmp_path / "june.tacozip"
    run("taco", "export", stac, east, "--bbox=25,-5,40,5")
    run("taco", "export", stac, june, "--datetime", "2025-06-01/..")
    assert (ids(east), ids(june)) == (["p3"], ["p2", "p3"])
    run("taco", "export", stac, tmp_path / "x", "--bbox=1,2", code=2)


@pytest.fixture
def stac(tmp_path: Path) -> Path:
    """Four points a month of three apart, from west to east."""
    from comal import taco
    from comal.taco.extensions import STAC
    from tests.cli.conftest import COLLECTION

    samples = []
    for number in range(4):
        sample = taco.Sample(id=f"p{number}", path=payload(f"p{number}"))
        extension: Any = STAC(
            crs="EPSG:4326",
            tensor_shape=(1, 10, 10),
            geotransform=(10.0 * number, 0.1, 0.0, 0.5, 0.0, -0.1),
            time_start=f"2025-{1 + 3 * number:02d}-01T00:00:00Z",
        )
        sample.extend_with(extension)
        samples.append(sample)
    output = tmp_path / "stac.tacozip"
    taco.create(taco.Taco(taco.Tortilla(samples), **COLLECTION), output)
    return output


def test_concat(run: Run, flat: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.tacozip", tmp_path / "second.tacozip"
    run("taco", "export", flat, first, "--where", "number < 2")
    run("taco", "export", flat, second, "--where", "number >= 4")
    output = tmp_path / "both.tacozip"
    run("taco", "concat", first, second, "-o", output)
    assert ids(output) == ["s0", "s1", "s4"]
    assert run("get", output, "s4").stdout_bytes == payload("s4")


def test_tacocat_and_tacollection(run: Run, flat: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    parts = [folder / "a.tacozip", folder / "b.tacozip"]
    run("taco", "export", flat, parts[0], "--where", "number < 2")
    run("taco", "export", flat, parts[1], "--where", "number >= 2")
    run("taco", "tacocat", parts[0])
    run("taco", "tacocat", parts[1], "--append")
    rows = run("ls", folder).stdout.splitlines()
    assert [row.partition("\t")[0] for row in rows] == [
        "a.tacozip/s0",
        "a.tacozip/s1",
        "b.tacozip/s2",
        "b.tacozip/s3",
        "b.tacozip/s4",
    ]
    assert run("get", folder / "__TACOCAT__", "b.tacozip/s3").stdout_bytes == payload("s3")
    run("taco", "tacollection", *parts, "-o", folder)
    document = json.loads((folder / "TACOLLECTION.json").read_text())
    assert document["taco:sources"]["count"] == 2
    run("convert", folder, tmp_path / "one.tacozip")
    assert ids(tmp_path / "one.tacozip") == [f"s{n}" for n in range(5)]


@pytest.mark.parametrize("kind", ["tacocat", "tacollection"])
def test_archives_that_differ(run: Run, flat: Path, tmp_path: Path, kind: str) -> None:
    parts = [tmp_path / "a.tacozip", tmp_path / "b.tacozip"]
    run("taco", "export", flat, parts[0], "--where", "number < 2")
    dataset = comal.taco.load(flat)
    other = dataset.sql("SELECT * EXCLUDE (number) FROM data WHERE number >= 2")
    comal.taco.export(other, parts[1])
    told = run("taco", kind, *parts, code=2)
    assert "--any-schema" in told.stderr
    assert len(list(tmp_path.iterdir())) == 3
    run("taco", kind, *parts, "--any-schema")
    assert len(list(tmp_path.iterdir())) > 3


def test_export_of_archives_that_use_an_id_twice(run: Run, flat: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tacozip"
    other.write_bytes(flat.read_bytes())
    run("taco", "tacollection", flat, other, "-o", tmp_path)
    words = ["taco", "export", tmp_path / "TACOLLECTION.json", tmp_path / "whole.tacozip"]
    assert "--rename" in run(*words, code=2).output
    run(*words, "--rename")
    assert len(ids(tmp_path / "whole.tacozip")) == 2 * len(ids(flat))


def test_rows_of_folders_in_a_manifest(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in/cusco").mkdir(parents=True)
    for name in ("red.tif", "nir.tif"):
        (tmp_path / "in/cusco" / name).write_bytes(name.encode())
    guide = Path("docs/guide.md").read_text()
    (tmp_path / "m.csv").write_text(guide.partition("```csv\n")[2].partition("```")[0])
    out = tmp_path / "out.tacozip"
    run("taco", "create", tmp_path / "in", out, "--manifest", tmp_path / "m.csv", "--no-stac")
    with load(out) as dataset:
        (row,) = dataset.data.to_arrow().select(["id", "type", "cloud_cover"]).to_pylist()
        assert row == {"id": "cusco", "type": "FOLDER", "cloud_cover": 12}
    assert "empty path" in run("taco", "create", "--help").output
