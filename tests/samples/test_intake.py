"""Files below a folder, id paths as levels, and GeoParquet; `test_pack.py` has what formats do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import AccessDeniedError, ComalError, InvalidInputError, ObjectNotFoundError
from comal.samples import intake
from comal.samples.intake import absolute, files_below, levels_of, read_table

NOWHERE = Path("/nowhere/at/all")


def walked(root: Path, *patterns: str, target: Path = NOWHERE) -> list[str]:
    ids, paths = files_below(root, patterns or ("*",), target=target)
    assert paths.to_pylist() == [f"{root.absolute()}/{name}" for name in ids.to_pylist()]
    found: list[str] = ids.to_pylist()
    return found


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


FILES = st.sampled_from([".h", "a", "a.t", "a-b", "b", "g\n.t", "Z.t", "é.T", "[1].t"])
TREES: Any = st.recursive(
    st.booleans(), lambda inner: st.dictionaries(FILES, inner), max_leaves=12
).filter(lambda tree: isinstance(tree, dict))


@given(tree=TREES)
@settings(max_examples=60)
def test_any_tree(tree: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Also of more files than stand as objects at once."""
    root = tmp_path_factory.mktemp("t")

    def make(folder: Path, inner: dict[str, Any]) -> None:
        folder.mkdir(exist_ok=True)
        for name, what in inner.items():
            if isinstance(what, dict):
                make(folder / name, what)
            else:
                (folder / name).write_bytes(b"")

    make(root, tree)
    below = [file.relative_to(root) for file in root.rglob("*") if file.is_file()]
    seen = sorted(file.parts for file in below if not any(part[0] == "." for part in file.parts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "_HELD", 3)
        assert walked(root) == ["/".join(parts) for parts in seen]
        for patterns, ends in ((("*.t",), (".t",)), (("?.T", "[[]1*"), ("é.T", "[1].t"))):
            wanted = ["/".join(parts) for parts in seen if parts[-1].endswith(ends)]
            assert walked(root, *patterns) == wanted
        assert len(files_below(root, [], target=NOWHERE)[0]) == 0


def test_links_and_what_is_no_file(tmp_path: Path) -> None:
    root = fill(tmp_path / "in", "a/b")
    fill(tmp_path / "out", "c")
    (root / "file").symlink_to(root / "a/b")
    (root / ".hidden").symlink_to(root)
    (tmp_path / "link").symlink_to(root)
    assert walked(root) == walked(tmp_path / "link") == ["a/b", "file"]
    for name, place in {"again": root / "a", "loop": root, "other": tmp_path / "out"}.items():
        (root / name).symlink_to(place)
    # They could hold files that match, so a pattern does not matter.
    with pytest.warns(UserWarning, match="a link to a folder is left out") as told:
        assert walked(root, "b") == ["a/b"]
    assert [str(one.message).rpartition("/")[2] for one in told] == ["again'", "loop'", "other'"]
    (tmp_path / "out/b").symlink_to("nowhere")
    with pytest.raises(InvalidInputError, match="leads nowhere"):
        walked(tmp_path / "out")
    assert walked(tmp_path / "out", "c") == ["c"]


def test_what_is_written_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside, inside = ["a", "out2/x", "sub/out"], ["out/x", "out/y/z"]
    fill(tmp_path, *outside, *inside)
    assert walked(tmp_path, target=tmp_path / "no") == sorted([*outside, *inside])
    wanted = sorted(["a", *inside, "out2/x"])
    assert walked(tmp_path, target=tmp_path / "sub/../sub/out") == wanted
    (tmp_path / "link").symlink_to(tmp_path / "out")
    (tmp_path / "file").symlink_to(tmp_path / "out/x")
    # Links that lead to it, and a target that is reached through one.
    assert walked(tmp_path, target=tmp_path / "out") == outside
    assert walked(tmp_path, target=tmp_path / "link") == outside
    assert walked(tmp_path / "link", target=tmp_path / "out/y") == ["x"]
    assert walked(tmp_path / "out", target=tmp_path) == []
    assert walked(tmp_path / "out", target=tmp_path / "out") == []
    monkeypatch.chdir(tmp_path)
    assert walked(Path("out"), target=Path("out/x")) == ["y/z"]


def test_folders_that_are_deep_odd_or_closed(tmp_path: Path) -> None:
    below = "d/" * 300 + "f"
    fill(tmp_path, below)
    assert walked(tmp_path) == [below]
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_bytes(b"x")
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        walked(tmp_path)
    assert walked(tmp_path, "f") == [below]
    with pytest.raises(ObjectNotFoundError, match="folder cannot be read"):
        walked(tmp_path / "no")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0)
        with pytest.raises(AccessDeniedError):
            walked(tmp_path)


def test_absolute_paths_stay() -> None:
    paths = pa.array(["a", None, "/b/c", "../d"])
    assert absolute(paths, Path("/r")).to_pylist() == ["/r/a", None, "/b/c", "/r/../d"]
    assert absolute(paths, Path("/")).to_pylist() == ["/a", None, "/b/c", "/../d"]
    assert absolute(paths.slice(0, 2), Path("/r")).to_pylist() == ["/r/a", None]
    assert absolute(pa.array([], pa.string()), Path("/r")).to_pylist() == []


# -- id paths as levels, against plain Python ------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "A", "é", "aa", " ", "\n", "日本"])
ID_PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)
Row = tuple[str, str | None]
Levels = list[list[tuple[str, str | None, int]]]


def levels(rows: list[Row]) -> Levels:
    """Id path, file and row of every sample, level by level; columns are slices of longer ones."""
    more = [("before", None), *rows, ("behind", "/f")]
    ids, paths = (pa.array(column).slice(1, len(rows)) for column in zip(*more, strict=True))
    above: list[str] = [""]
    told: Levels = []
    for level in levels_of(ids, paths):
        names = [
            f"{above[parent]}/{name}".lstrip("/") if told else name
            for parent, name in zip(level.parents.tolist(), level.ids.to_pylist(), strict=True)
        ]
        told.append(list(zip(names, level.paths.to_pylist(), level.rows.tolist(), strict=True)))
        above = names
    return told


def fault(rows: list[Row]) -> str | None:
    """What is wrong with the rows."""
    names = [name for name, _ in rows]
    for number, name in enumerate(names):
        if name in names[:number]:
            return f"appears twice: manifest, row {number}"
    files = {name for name, path in rows if path is not None}
    for name in names:
        parts = name.split("/")
        if any("/".join(parts[:depth]) in files for depth in range(1, len(parts))):
            return "a sample lies below a file"
    return None


def reference(rows: list[Row]) -> Levels:
    """What the levels should be."""
    known = {name: (path, number) for number, (name, path) in enumerate(rows)}
    order: dict[str, None] = {}
    for name, _ in rows:
        parts = name.split("/")
        order |= {"/".join(parts[:depth]): None for depth in range(1, len(parts) + 1)}
    deepest = max((name.count("/") for name in order), default=-1)
    return [
        [(name, *known.get(name, (None, -1))) for name in order if name.count("/") == depth]
        for depth in range(deepest + 1)
    ]


@given(
    st.lists(st.tuples(ID_PATHS, st.sampled_from([None, "/f", "/g"])), max_size=12),
    st.sampled_from(["", "/", "//"]),
)
@settings(max_examples=100)
def test_levels_are_those_of_plain_python(rows: list[Row], end: str) -> None:
    """Slashes at the ends of an id do not count."""
    given = [(end + name + end, path) for name, path in rows]
    reason = fault(rows)
    if reason is None:
        assert levels(given) == reference(rows)
        return
    with pytest.raises(InvalidInputError, match=reason) as caught:
        levels(given)
    if "twice" in reason:
        assert str(caught.value).endswith(reason)


def test_levels_of_many_rows() -> None:
    random = np.random.default_rng(4)
    paths = {f"{a}/{b}/{c}": f"/{a}{b}{c}" for a, b, c in random.integers(0, 40, (12_000, 3))}
    paths |= {f"flat{n}": "/flat" for n in range(12_000)}
    rows: list[Row] = [(name, paths[name]) for name in random.permutation(sorted(paths)).tolist()]
    assert levels(rows) == reference(rows)


# -- manifests -------------------------------------------------------------------------------------


def geoparquet(path: Path, document: Any, **more: Any) -> Any:
    """The manifest with the names of a format for the geometry; by itself it is left alone."""
    table = pa.table({"id": ["a", "b"], "geom": [b"1", b"2"], **more})
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    pq.write_table(table.replace_schema_metadata({"geo": data}), path)
    assert read_table(path).column_names == table.column_names
    return read_table(path, geometry=intake.Geometry("f:geometry", "f:crs"))


@pytest.mark.parametrize(
    ("about", "crs"),
    [
        ({}, "EPSG:4326"),
        ({"crs": None}, "EPSG:4326"),
        ({"crs": {"id": {"authority": "OGC", "code": "CRS84"}}}, "EPSG:4326"),
        ({"crs": {"id": {"authority": "EPSG", "code": 4326}}}, "EPSG:4326"),
        ({"crs": {"id": {"authority": "EPSG", "code": 32631}}}, "EPSG:32631"),
        ({"crs": {"name": "mine"}}, '{"name": "mine"}'),
        ("odd", "EPSG:4326"),
    ],
)
def test_geometry_of_geoparquet(tmp_path: Path, about: Any, crs: str) -> None:
    document = {"primary_column": "geom", "columns": {"geom": about}}
    table = geoparquet(tmp_path / "m.parquet", document)
    assert table.to_pydict() == {"id": ["a", "b"], "f:geometry": [b"1", b"2"], "f:crs": [crs] * 2}
    named = geoparquet(tmp_path / "m.parquet", document, **{"f:crs": ["x", "y"]})
    assert named["f:crs"].to_pylist() == ["x", "y"]


def test_geoparquet_that_says_nothing(tmp_path: Path) -> None:
    for primary in (None, "other", 7, ["geom"]):
        table = geoparquet(tmp_path / "m.parquet", {"primary_column": primary, "columns": []})
        assert table.column_names == ["id", "geom"]
    for document in (b"{", b"[]", b"\xff", b"[" * 100_000):
        with pytest.raises(ComalError):
            geoparquet(tmp_path / "m.parquet", document)


def test_each_path_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    stat = os.stat

    def counted(path: Any, **options: Any) -> Any:
        seen.append(str(path))
        return stat(path, **options)

    fill(tmp_path, "a", "b", "c")
    monkeypatch.setattr(os, "stat", counted)
    monkeypatch.setattr(intake, "_BLOCK", 2)
    names = ["a", "b", "a", "c", f"{tmp_path}/a"] * 50
    intake.split(pa.table({"id": names, "path": names}), tmp_path)
    monkeypatch.undo()
    assert seen == [f"{tmp_path}/{name}" for name in "abc"]
