"""`export`: what is written, compared with what went in by zipfile, struct and pyarrow."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal.errors import InvalidInputError, QueryError, UnsafeContentError
from comal.taco.copying.exporting import export
from comal.taco.reading.dataset import concat, load
from comal.taco.spec import TacoWarning
from comal.taco.writing.tacocat import create_tacocat, create_tacollection
from tests.attacks.build import FLAT, NESTED, Recipe, folder, leaves_of
from tests.support import SHARED, files_below, needs_shared
from tests.taco.read.scenes import located, scenes, write
from tests.taco.write.small import Archive

STAMP = "2024-05-06T07:08:09Z"


def leaves(tree: Any, *roots: str) -> dict[str, bytes]:
    """Path and bytes of the leaves below some of the roots, or all."""
    found = dict(leaves_of(tree))
    return {p: b for p, b in found.items() if not roots or p.partition("/")[0] in roots}


def check_archive(path: Path, wanted: dict[str, bytes]) -> Archive:
    """The archive at `path`, whose three ways to each leaf all give the bytes of `wanted`."""
    archive = Archive(path)
    assert archive.leaves() == wanted
    assert archive.walked() == wanted
    assert archive.entries() == wanted
    assert archive.zip.testzip() is None
    return archive


def files_of(folder: Path) -> dict[str, bytes]:
    """The data files of the FOLDER form."""
    found = files_below(folder / "DATA")
    return {name: found[name] for name in found if Path(name).name != "__meta__"}


@pytest.fixture
def plain(tmp_path: Path) -> Any:
    return load(write(tmp_path, Recipe(FLAT)))


@pytest.fixture
def nested(tmp_path: Path) -> Any:
    return load(write(tmp_path, Recipe(scenes(*(f"s{n}" for n in range(12))), table=located)))


def test_a_query_chooses_roots_and_takes_all_below_them(tmp_path: Path, nested: Any) -> None:
    part = nested.sql("SELECT * FROM data WHERE id IN ('s10', 's2', 's9')")
    path = export(part, tmp_path / "part.tacozip", subset_date=STAMP)
    tree = scenes("s2", "s9", "s10")
    archive = check_archive(path, leaves(tree))
    assert archive.level(0)["id"].to_pylist() == ["s2", "s9", "s10"]
    assert archive.level(0)["internal:current_id"].to_pylist() == [0, 1, 2]
    assert archive.level(1)["internal:parent_id"].to_pylist() == [0, 0, 1, 1, 2, 2]
    # Unknown columns come along, at every level.
    assert archive.level(2)["label"].to_pylist() == [
        f"<s{n}/imagery/{name}>" for n in (2, 9, 10) for name in ("before.bin", "after.bin")
    ]


def test_the_collection_is_computed_anew_and_names_its_source(tmp_path: Path, nested: Any) -> None:
    part = nested.filter_bbox(1.5, -1, 3.5, 1, level=0)
    path = export(part, tmp_path / "part.tacozip", subset_date=STAMP)
    document = Archive(path).collection
    assert document["taco:subset_of"] == "attack"
    assert document["taco:subset_date"] == "2024-05-06T07:08:09+00:00"
    assert document["extent"]["spatial"] == [2.0, 0.0, 3.0, 0.0]
    assert document["extent"]["temporal"] == ["2023-01-03T10:00:00Z", "2023-01-04T10:00:00Z"]
    assert document["taco:pit_schema"] == {
        "root": {"n": 2, "type": "FOLDER"},
        "shape": [2, 2, 2],
        "hierarchy": {
            "1": [{"n": 4, "type": ["FOLDER", "FILE"], "id": ["imagery", "label.txt"]}],
            "2": [{"n": 4, "type": ["FILE", "FILE"], "id": ["before.bin", "after.bin"]}],
        },
    }
    level1 = [entry[0] for entry in document["taco:field_schema"]["level1"]]
    assert level1 == Archive(path).level(1).column_names
    assert list(document)[-4:] == [
        "taco:subset_of",
        "taco:subset_date",
        "taco:pit_schema",
        "taco:field_schema",
    ]


def test_keys_and_extent_that_no_column_tells_are_those_of_the_source(tmp_path: Path) -> None:
    extent = {"spatial": [1, 2, 3, 4], "temporal": None}

    def more(document: dict[str, Any]) -> dict[str, Any]:
        index = {"_tacocat": {}, "taco:sources": {"count": 1}}
        return {**document, **index, "x:note": {"a": [1]}, "extent": extent}

    dataset = load(write(tmp_path, Recipe(FLAT, collection=more)))
    document = Archive(export(dataset.limit(1), tmp_path / "out.tacozip")).collection
    assert document["x:note"] == {"a": [1]}
    assert document["extent"] == extent
    assert not {"_tacocat", "taco:sources"} & set(document)


def test_from_either_form_to_either(tmp_path: Path, nested: Any) -> None:
    part = nested.sql("SELECT * FROM data WHERE id = 's10'")
    path = export(part, tmp_path / "part")
    assert files_of(path) == leaves(scenes("s10"))
    level1 = pq.read_table(path / "METADATA/level1.parquet")
    assert "internal:offset" not in level1.column_names
    assert level1["internal:relative_path"].to_pylist() == ["s10/imagery/", "s10/label.txt"]
    assert load(path).flatten(2).to_arrow()["l0:id"].to_pylist() == ["s10", "s10"]
    check_archive(export(load(path), tmp_path / "a.zip"), leaves(scenes("s10")))
    loose = load(folder(tmp_path / "source")).limit(1)
    assert files_of(export(loose, tmp_path / "b")) == leaves(NESTED, "s2")


def test_columns_that_a_query_drops_or_makes(tmp_path: Path, plain: Any) -> None:
    """Ids and types are those of the samples, whatever the query says."""
    part = plain.sql(
        "SELECT * EXCLUDE (label) REPLACE (upper(id) AS id, 'FOLDER' AS type), "
        'value * 2 AS "my:double" FROM data'
    )
    table = check_archive(export(part, tmp_path / "out.tacozip"), leaves(FLAT)).level(0)
    names = [n for n in table.column_names if not n.startswith("internal:")]
    assert names == ["id", "type", "value", "my:double"]
    assert table["my:double"].to_pylist() == [2 * v for v in table["value"].to_pylist()]
    ids = plain.sql("SELECT id FROM data WHERE id > 'img_1'")
    archive = check_archive(
        export(ids, tmp_path / "ids.tacozip"), leaves(FLAT, "img_1.bin", "img_2.bin", "img_3.bin")
    )
    assert "value" not in archive.level(0).column_names


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT value FROM data", QueryError),
        ('SELECT 99 AS "internal:current_id" FROM data', QueryError),
        ("SELECT 1 AS id FROM data", QueryError),
        ("SELECT [id] AS id FROM data", QueryError),
        ("SELECT NULL AS id FROM data", QueryError),
        ('SELECT *, value AS "no good" FROM data', InvalidInputError),
        ('SELECT *, 1 AS "value * 2" FROM data', InvalidInputError),
        ('SELECT *, INTERVAL 1 DAY AS "days" FROM data', InvalidInputError),
        ("SELECT * FROM data WHERE value < 0", InvalidInputError),
        ("SELECT * FROM data UNION ALL SELECT * FROM data", InvalidInputError),
        (
            "SELECT * FROM data UNION ALL SELECT * FROM data WHERE id = 'img_1.bin'",
            InvalidInputError,
        ),
    ],
)
def test_views_that_cannot_be_exported(
    tmp_path: Path, plain: Any, query: str, error: type[Exception]
) -> None:
    named = [name for name in ("value * 2", "days") if f'AS "{name}"' in query]
    with pytest.raises(error, match="".join(map(re.escape, named)) or None):
        export(plain.sql(query), tmp_path / "out.tacozip")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.tacozip"]


def test_children_are_not_exported_alone(tmp_path: Path, nested: Any) -> None:
    with pytest.raises(QueryError, match="without its parents"):
        export(nested.sql("SELECT * FROM level1"), tmp_path / "out.tacozip")


def test_numbers_that_do_not_fit_the_common_type_are_refused(tmp_path: Path) -> None:
    def part(name: str, value: Any) -> Any:
        def valued(_: int, table: Any) -> Any:
            return table.append_column("v", pa.array([value]))

        return load(write(tmp_path, Recipe(tree={name: b"x"}, table=valued), name))

    with pytest.raises(InvalidInputError, match="'v'"):
        export(concat([part("a", 0.5), part("b", 2**60)]), tmp_path / "out.tacozip")


def test_unknown_column_names_of_the_source_are_kept(tmp_path: Path) -> None:
    recipe = Recipe(
        FLAT,
        table=lambda n, t: t.rename_columns(
            ["my value" if c == "value" else c for c in t.column_names]
        ),
    )
    dataset = load(write(tmp_path, recipe))
    path = export(dataset.sql("SELECT * FROM data"), tmp_path / "out.zip")
    assert "my value" in Archive(path).level(0).column_names


# -- several sources ------------------------------------------------------------------------------


def test_a_concatenation(tmp_path: Path) -> None:
    first = load(write(tmp_path, Recipe(scenes("s2", "s10")), "a.tacozip"))
    second = load(folder(tmp_path / "b", scenes("s1", "s0"), Recipe(scenes("s1", "s0"))))
    both = concat([first, second]).sql("SELECT * FROM data WHERE id != 's10' ORDER BY id")
    archive = check_archive(
        export(both, tmp_path / "out.tacozip"), leaves(scenes("s0", "s1", "s2"))
    )
    assert archive.level(0)["id"].to_pylist() == ["s0", "s1", "s2"]
    assert "internal:source_file" not in archive.level(0).column_names


def test_one_id_in_two_sources_is_told(tmp_path: Path) -> None:
    first = load(write(tmp_path, Recipe(FLAT), "a.tacozip"))
    second = load(write(tmp_path, Recipe(FLAT), "b.tacozip"))
    with pytest.raises(InvalidInputError, match="appears twice") as caught:
        export(concat([first, second]), tmp_path / "out.tacozip")
    assert "a.tacozip" in str(caught.value)
    assert "b.tacozip" in str(caught.value)


def test_columns_of_deeper_levels_follow_the_mode(tmp_path: Path) -> None:
    def more(level: int, table: Any) -> Any:
        return table.append_column("extra", pa.array(["x"] * len(table)))

    first = load(write(tmp_path, Recipe(scenes("a")), "a.tacozip"))
    second = load(write(tmp_path, Recipe(scenes("b"), table=more), "b.tacozip"))
    with pytest.warns(TacoWarning):
        both = concat([first, second], "fill_missing")
    table = Archive(export(both, tmp_path / "fill.tacozip")).level(2)
    assert table["extra"].to_pylist() == [None, None, "x", "x"]
    with pytest.warns(TacoWarning):
        both = concat([first, second])
    assert "extra" not in Archive(export(both, tmp_path / "both.tacozip")).level(2).column_names


@needs_shared
@pytest.mark.parametrize(("name", "output"), [("cat", "out"), ("tacocat_binary", "out.tacozip")])
def test_an_index_over_archives(tmp_path: Path, name: str, output: str) -> None:
    dataset = load(SHARED / "fixtures/taco" / name).sql("SELECT * FROM data ORDER BY id DESC")
    path = export(dataset, tmp_path / output)
    wanted: dict[str, bytes] = {}
    for part in sorted((SHARED / "fixtures/taco" / name).glob("*.tacozip")):
        wanted |= Archive(part).entries()
    found = files_of(path) if output == "out" else check_archive(path, wanted).entries()
    assert found == wanted
    assert len(load(path).flatten(2)) == 12


# -- padding --------------------------------------------------------------------------------------

PADDED = {
    "a": {"x": b"ax", "y": b"ay", "__TACOPAD__0": b""},
    "b": {"x": b"bx", "__TACOPAD__0": b"", "__TACOPAD__1": b""},
    "c": {"x": b"cx", "__TACOPAD__0": b"", "__TACOPAD__1": b""},
}


def test_padding_below_the_chosen_roots_is_kept(tmp_path: Path) -> None:
    dataset = load(write(tmp_path, Recipe(PADDED)))
    for least, roots in (("a", "abc"), ("b", "bc")):
        part = dataset.sql("SELECT * FROM data WHERE id >= $least", {"least": least})
        path = export(part, tmp_path / f"{roots}.tacozip")
        archive = check_archive(path, leaves(PADDED, *roots))
        assert archive.collection["taco:pit_schema"]["shape"] == [len(roots), 3]


def test_children_of_a_deep_filter_are_complete(tmp_path: Path) -> None:
    tree = scenes("s0", "s1", "s2")
    dataset = load(write(tmp_path, Recipe(tree, table=located)))
    part = dataset.filter_bbox(0.5, 19, 1.5, 21, level=2)
    check_archive(export(part, tmp_path / "out.tacozip"), leaves(scenes("s0")))


def test_roots_of_different_structure_are_refused(tmp_path: Path) -> None:
    tree = {"a": {"x": b"1"}, "b": {"y": b"2"}}
    dataset = load(write(tmp_path, Recipe(tree)))
    with pytest.raises(InvalidInputError, match="structure"):
        export(dataset, tmp_path / "out.tacozip")
    check_archive(export(dataset.limit(1), tmp_path / "one.tacozip"), {"a/x": b"1"})


# -- ids ------------------------------------------------------------------------------------------


def test_risky_ids_are_a_warning_in_a_zip_and_an_error_in_a_folder(tmp_path: Path) -> None:
    tree = {"a,b": b"1", "con": b"2", "A": b"3", "a": b"4", "x" * 300: b"5"}
    tree |= {"Z" * 255: b"6", "z" * 255: b"7"}
    dataset = load(write(tmp_path, Recipe(tree)))
    with pytest.warns(TacoWarning, match="a,b"):
        check_archive(export(dataset, tmp_path / "out.tacozip"), tree)
    with pytest.raises(UnsafeContentError, match="rename"):
        export(dataset, tmp_path / "out")
    names = sorted(files_of(export(dataset, tmp_path / "out", rename=True)))
    assert names[:5] == ["A", "Z" * 255, "_con", "a_2", "a_b"]
    assert list(map(len, names[5:])) == [255, 255]


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": 0},
        {"limit": True},
        {"output_format": "tar"},
        {"subset_date": "yesterday"},
        {"compresion": "zstd"},
        {"dataset": "scenes.tacozip"},
    ],
)
def test_arguments_that_cannot_be_used(
    tmp_path: Path, plain: Any, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError):
        export(**{"dataset": plain, "output": tmp_path / "out.tacozip", **arguments})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.tacozip"]


# -- dates and determinism ------------------------------------------------------------------------


def test_the_date_is_the_only_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = load(write(tmp_path, Recipe(NESTED)))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first = export(dataset, tmp_path / "a.tacozip").read_bytes()
    document = Archive(tmp_path / "a.tacozip").collection
    assert document["taco:subset_date"] == "2023-11-14T22:13:20+00:00"
    assert export(dataset, tmp_path / "b.tacozip").read_bytes() == first
    given = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert export(dataset, tmp_path / "c.tacozip", subset_date=given).read_bytes() == first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(InvalidInputError):
        export(dataset, tmp_path / "d.tacozip")


def test_settings_and_progress(tmp_path: Path, plain: Any) -> None:
    told: list[tuple[int, int | None, str]] = []
    how: dict[str, Any] = {"compression": "snappy", "row_group_size": 2}
    path = export(plain, tmp_path / "out", progress=lambda *state: told.append(state), **how)
    metadata = pq.read_metadata(path / "METADATA/level0.parquet")
    assert metadata.num_row_groups == 2
    assert metadata.row_group(0).column(0).compression == "SNAPPY"
    assert (4, 4, "samples") in told


@pytest.mark.parametrize("form", ["index", "collection", "list"])
def test_ids_that_several_archives_use_are_numbered_when_asked(tmp_path: Path, form: str) -> None:
    """Only the source file tells such roots apart (7.2.3); siblings have distinct ids."""
    parts = tmp_path / "parts"
    parts.mkdir()
    ids = {"a": ("s0", "x.tif"), "b": ("s0", "x.tif"), "c": ("s0", "x_2.tif")}
    for name, roots in ids.items():
        tree = {root: f"{name} {root}".encode() for root in roots}
        write(parts, Recipe(tree), f"{name}.tacozip")
    paths = sorted(parts.iterdir())
    given: Any = paths
    if form == "index":
        given = create_tacocat(paths, form="binary")[0]
    elif form == "collection":
        given = create_tacollection(paths)
    with pytest.raises(InvalidInputError, match="rename=True"):
        export(load(given), tmp_path / "out.tacozip")
    archive = Archive(export(load(given), tmp_path / "out.tacozip", rename=True))
    assert archive.leaves() == {
        "s0": b"a s0",
        "x.tif": b"a x.tif",
        "s0_2": b"b s0",
        "x_2.tif": b"b x.tif",
        "s0_3": b"c s0",
        "x_2_2.tif": b"c x_2.tif",
    }
    assert "s0_2" in files_of(export(load(given), tmp_path / "out", rename=True))
