"""For each code at least one file that has it, and nothing in a sound one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal.taco.checking import CODES, LEVELS, check
from tests.attacks.build import FLAT, NESTED, Index, RawZip, Recipe, Tree, replaced
from tests.attacks.corpus import (
    ATTACKS,
    LEAF,
    foldered,
    linked_folder,
    on_entry,
    set_column,
    zipped,
)
from tests.taco.read.scenes import point

Maker = Callable[[Path], Path]

PARTS = {
    "a.tacozip": Recipe(tree={f"{scene}a": content for scene, content in NESTED.items()}),
    "b.tacozip": Recipe(tree={f"{scene}b": content for scene, content in NESTED.items()}),
}


def indexed(index: Index, *forms: str, then: Callable[[Path], Any] | None = None) -> Maker:
    def make(place: Path) -> Path:
        path = index.write(place, forms or ("folder", "single"))
        if then is not None:
            then(path)
        return path

    return make


def collected(**fields: Any) -> Maker:
    return zipped(Recipe(tree=FLAT, collection=lambda document: {**document, **fields}))


def with_columns(**columns: Sequence[Any] | Any) -> Callable[[int, Any], Any]:
    def change(depth: int, table: Any) -> Any:
        for name, values in columns.items():
            table = table.append_column(name.replace("__", ":"), pa.array(values))
        return table

    return change


def placed(extent: dict[str, Any]) -> Maker:
    """Four rasters of 100 x 100 pixels of 0.1 degrees, west to east from (10, 50)."""
    columns = with_columns(
        stac__crs=["EPSG:4326"] * 4,
        stac__tensor_shape=[[1, 100, 100]] * 4,
        stac__geotransform=[[10.0 + 10 * n, 0.1, 0.0, 50.0, 0.0, -0.1] for n in range(4)],
        stac__time_start=pa.array([n * 10**12 for n in range(4)]).cast(pa.timestamp("us")),
        stac__time_end=pa.array([(n + 1) * 10**12 for n in range(4)]).cast(pa.timestamp("us")),
    )
    return zipped(
        Recipe(tree=FLAT, table=columns, collection=lambda document: {**document, "extent": extent})
    )


def _reordered(depth: int, table: Any) -> Any:
    if depth != 2:
        return table
    table = table.take([4, 5, 0, 1, 2, 3])
    return replaced(table, "internal:current_id", range(6))


def _no_children(depth: int, table: Any) -> Any:
    return table.slice(0, 4) if depth == 2 else table


def _rootless(depth: int, table: Any) -> Any:
    return replaced(table, "internal:parent_id", [0, 0, 0]) if depth == 0 else table


def _shifted_ids(path: str, table: Any) -> Any:
    return table.append_column(
        "internal:current_id", pa.array(range(50, 50 + table.num_rows), pa.int64())
    )


def _narrow(path: str, table: Any) -> Any:
    return table.drop_columns(["note"]) if "note" in table.column_names else table


def _empty_note(depth: int, table: Any) -> Any:
    return table.append_column("note", pa.nulls(table.num_rows, pa.string()))


_PADDED: Tree = {"a.bin": b"a", "__TACOPAD__0": b"not empty"}


def _gap(place: Path) -> Path:
    return zipped(Recipe(tree=FLAT, close={"before_end": b"\0" * 40}))(place)


def _shared(place: Path) -> Path:
    starts: list[int] = []

    def before(archive: RawZip, name: str) -> None:
        if name == LEAF:
            starts.append(len(archive.buffer))
        if name == "METADATA/level0.parquet":
            data = b"s2-before" * 3
            archive.add("DATA/again", data, local=False, header_offset=starts[0])
            del archive.buffer[len(archive.buffer) - len(data) :]

    return zipped(Recipe(before=before))(place)


def _zip64_lie(place: Path) -> Path:
    path = zipped(Recipe(tree=FLAT))(place)
    data = path.read_bytes()
    end = data.rfind(b"PK\5\6")
    count, _, size, start = struct.unpack_from("<2H2I", data, end + 8)
    wide = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count + 2, count + 2, size, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    path.write_bytes(data[:end] + wide + locator + data[end:])
    return path


def _locals_gone(place: Path) -> Path:
    path = zipped(Recipe())(place)
    data = bytearray(path.read_bytes())
    at = data.index(LEAF.encode()) - 30
    data[at : at + 4] = b"XXXX"
    path.write_bytes(data)
    return path


def _unencodable(place: Path) -> Path:
    path = zipped(Recipe(entry=on_entry("DATA/s2/label.txt", flags=0x800)))(place)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"DATA/s2/label.txt", b"DATA/s2/labe\xff.txt"))
    return path


CASES: dict[str, list[Maker]] = {
    "taco-collection-field": [
        collected(id="Upper Case"),
        collected(licenses=[]),
        collected(providers=3),
    ],
    "taco-collection-note": [collected(tasks=["dreaming"])],
    "taco-licence": [collected(licenses=["my own terms"])],
    "taco-extent": [
        collected(extent={"spatial": [0, 0, 0]}),
        collected(extent={"temporal": ["2020", "x"]}),
        placed({"spatial": [10, 40, 50, 50], "temporal": ["soon", "later"]}),
        placed({"spatial": None, "temporal": ["1999-01-01", "1970-01-01"]}),
    ],
    "taco-extent-space": [
        placed({"spatial": [10, 40, 40, 50], "temporal": None}),
        placed({"spatial": [20, 40, 15, 49], "temporal": None}),
    ],
    "taco-extent-time": [
        placed({"spatial": None, "temporal": ["1970-01-01T00:00:01Z", "1999-01-01T00:00:00Z"]})
    ],
    "taco-extent-column": [
        zipped(
            Recipe(
                tree=FLAT,
                table=with_columns(stac__centroid=[b"not a geometry"] * 4),
                collection=lambda d: {**d, "extent": {"spatial": [0, 0, 1, 1], "temporal": None}},
            )
        )
    ],
    "taco-crs-missing": [
        zipped(
            Recipe(
                tree=FLAT,
                table=with_columns(istac__geometry=[point(0.5, 0.5)] * 4, **crs),
                collection=lambda d: {**d, "extent": {"spatial": [0, 0, 1, 1], "temporal": None}},
            )
        )
        for crs in ({}, {"istac__crs": ["EPSG:4326", None] * 2})
    ],
    "taco-extension-type": [
        zipped(Recipe(tree=FLAT, table=with_columns(**{name: values})))
        for name, values in {
            "stac__crs": [4326] * 4,
            "stac__geotransform": ["0 1 0 0 0 1"] * 4,
            "stac__tensor_shape": [[1.5, 2.5]] * 4,
            "stac__centroid": ["POINT (0 0)"] * 4,
            "istac__geometry": ["POINT (0 0)"] * 4,
            "istac__time_start": ["2024-01-01"] * 4,
            "split": [1] * 4,
        }.items()
    ],
    "taco-extension-value": [
        zipped(Recipe(tree=FLAT, table=with_columns(**columns)))
        for columns in (
            {"stac__crs": ["EPSG:4326", "EPSG:0", None, None]},
            {"stac__geotransform": [[0.0, 1, 0, 0, 0, 1], None, [0.0], None]},
            {"stac__geotransform": [[0.0, float("inf"), 0, 0, 0, 1], None, None, None]},
            {"stac__tensor_shape": [[1, 4, 4], [4], None, None]},
            {"stac__tensor_shape": [[1, 4, 0], [4, 4], None, None]},
            {"stac__centroid": [point(0, 0), point(200, 0), None, None]},
            {"istac__centroid": [point(0, 0), b"not a point", None, None]},
            {"stac__time_start": [1, 2, 3, None], "stac__time_end": [1, 1, 3, 4]},
            {"istac__time_start": [1, 2, 3, None], "istac__time_middle": [1, 1, 3, 4]},
            {"split": ["train", "test", "dev", None]},
        )
    ],
    "taco-field-schema": [
        collected(**{"taco:field_schema": 5}),
        collected(**{"taco:field_schema": {"level0": [["id", "int64", ""]]}}),
        collected(**{"taco:field_schema": {"level0": "x"}}),
    ],
    "taco-folder-empty": [zipped(Recipe(table=_no_children))],
    "taco-header-entry": [zipped(Recipe(tree=FLAT, header_entry={"listed": False}))],
    "taco-id-twice": [
        zipped(Recipe(tree=FLAT, table=set_column(0, "id", lambda v: [v[1], *v[1:]])))
    ],
    "taco-meta-columns": [zipped(Recipe(table=_empty_note, meta=_narrow))],
    "taco-meta-ids": [zipped(Recipe(meta=_shifted_ids))],
    "taco-padding": [zipped(Recipe(tree=_PADDED))],
    "taco-parent-root": [zipped(Recipe(table=_rootless))],
    "taco-row-order": [zipped(Recipe(table=_reordered))],
    "taco-source": [
        indexed(
            Index(PARTS, table=set_column(0, "internal:source_file", lambda v: ["../x", *v[1:]]))
        )
    ],
    "taco-source-broken": [
        indexed(Index(PARTS), then=lambda path: (path / "a.tacozip").write_bytes(b"PK")),
        indexed(
            Index(PARTS),
            then=lambda path: (path / "a.tacozip").write_bytes(PARTS["a.tacozip"].build()[:-30]),
        ),
    ],
    "taco-source-missing": [
        indexed(Index(PARTS), "single", then=lambda path: (path / "a.tacozip").unlink())
    ],
    "taco-source-rows": [
        indexed(Index(PARTS, table=set_column(1, "label", lambda v: ["other"] * len(v)))),
        indexed(Index(PARTS, table=lambda depth, table: table.slice(0, table.num_rows - 1))),
        indexed(Index(PARTS, table=lambda depth, table: table.drop_columns(["label"]))),
    ],
    "taco-source-stale": [
        indexed(Index(PARTS, collection=lambda d: {**d, "_tacocat": {"num_datasets": 7}}), "single")
    ],
    "taco-source-unlisted": [
        indexed(Index(PARTS, collection=lambda d: {**d, "taco:sources": {"files": ["a.tacozip"]}}))
    ],
    "unsafe-content": [
        foldered(
            Recipe(),
            linked_folder,
        )
    ],
    "zip-content": [zipped(Recipe(entry=on_entry(LEAF, method=8)))],
    "zip-folder-entry": [
        zipped(Recipe(before=lambda a, n: n.startswith("COLL") and a.add("DATA/s2/", b"")))
    ],
    "zip-gap": [_gap],
    "zip-local-header": [_locals_gone],
    "zip-local-note": [
        zipped(Recipe(after=lambda data: data[:10] + b"\x11\x22" + data[12:])),
    ],
    "zip-name": [zipped(Recipe(before=lambda a, n: n.startswith("COLL") and a.add("../x", b"x")))],
    "zip-name-encoding": [_unencodable],
    "zip-shared-header": [_shared],
    "zip-size": [zipped(Recipe(entry=on_entry(LEAF, csize=27, size=26, local_size=27)))],
    "zip-zip64-mismatch": [_zip64_lie],
}

NOT_MADE = {
    "zip-prefix": "the first entry of a TACO archive begins at byte 0, so that it would overlap",
    "zip-overlap": "the directory is refused as a whole before entries can be compared",
    "taco-unlisted": "needs a storage that cannot list; see test_remote.py",
    "taco-source-unchecked": "needs a storage that fails; see test_remote.py",
    "taco-source-differs": "needs a collection over several; see read/test_collected.py",
}


@pytest.mark.parametrize("code", sorted(CASES))
def test_code_is_reported(code: str, tmp_path: Path) -> None:
    for number, make in enumerate(CASES[code]):
        place = tmp_path / str(number)
        place.mkdir()
        report = check(make(place))
        assert code in report.counts, (number, dict(report.counts))
        problem = next(problem for problem in report.problems if problem.code == code)
        assert problem.severity == CODES[code][0]
        assert problem.place
        assert problem.message


def test_every_code_has_a_file_that_has_it() -> None:
    of_attacks = set().union(*(attack.codes for attack in ATTACKS))
    assert set(CODES) == of_attacks | set(CASES) | set(NOT_MADE)


@pytest.mark.parametrize("level", LEVELS)
def test_sound_containers_have_no_problem(level: str, tmp_path: Path) -> None:
    for number, make in enumerate(
        [
            zipped(Recipe(tree=FLAT)),
            zipped(Recipe(tree=NESTED)),
            zipped(Recipe(tree={"a.bin": b"a", "__TACOPAD__0": b""})),
            foldered(Recipe(tree=FLAT)),
            foldered(Recipe(tree=NESTED)),
            indexed(Index(PARTS)),
            indexed(Index(PARTS), "single"),
            placed(
                {
                    "spatial": [10, 40, 50, 50],
                    "temporal": ["1970-01-01T00:00:00Z", "1970-02-16T07:06:40Z"],
                }
            ),
        ]
    ):
        place = tmp_path / str(number)
        place.mkdir()
        report = check(make(place), level=level)
        assert report.problems == (), number
        assert report.ok
        assert report.total == 0


def test_aligned_payloads_are_sound(tmp_path: Path) -> None:
    """Payloads may be moved by an extra field that only their local headers have."""
    field = struct.pack("<2H", 0xD935, 20) + bytes(20)
    recipe = Recipe(entry=lambda name: {} if name == "TACO_HEADER" else {"local_extra": field})
    assert check(zipped(recipe)(tmp_path)).problems == ()
