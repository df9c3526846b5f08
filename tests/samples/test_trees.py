"""Files below a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import AccessDeniedError, InvalidInputError, ObjectNotFoundError
from comal.samples.intake import absolute, files_below

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


def test_names_in_their_order_hidden_ones_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "b", "a/z", "a/y/x", "B", "c/.hidden", ".git/config", "é", "a-b", "a.b/c")
    (tmp_path / "empty/deeper").mkdir(parents=True)
    assert walked(tmp_path) == ["B", "a/y/x", "a/z", "a-b", "a.b/c", "b", "é"]
    assert walked(tmp_path / "empty") == []


def test_patterns_as_in_a_shell(tmp_path: Path) -> None:
    fill(tmp_path, "a.tif", "b.TIF", "c.txt", "d/e.tif", "f/[1].tif", "g\n.tif")
    assert walked(tmp_path, "*.tif") == ["a.tif", "d/e.tif", "f/[1].tif", "g\n.tif"]
    assert walked(tmp_path, "?.T*", "*.txt") == ["b.TIF", "c.txt"]
    assert walked(tmp_path, "[[]1*") == ["f/[1].tif"]
    ids, paths = files_below(tmp_path, [], target=NOWHERE)
    assert (len(ids), len(paths)) == (0, 0)


def test_links(tmp_path: Path) -> None:
    root = fill(tmp_path / "in", "a/b")
    fill(tmp_path / "out", "c")
    (root / "file").symlink_to(root / "a/b")
    assert walked(root) == ["a/b", "file"]
    for name, place in {"loop": root, "other": tmp_path / "out", "again": root / "a"}.items():
        (root / name).symlink_to(place)
        # It could hold files that match, so a pattern does not matter.
        with pytest.warns(UserWarning, match=f"a link to a folder is left out: .*{name}") as told:
            assert walked(root, "b") == ["a/b"]
        assert len(told) == 1
        (root / name).unlink()
    (root / ".hidden").symlink_to(root)
    assert walked(root) == ["a/b", "file"]
    # The folder itself may be one.
    (tmp_path / "link").symlink_to(root)
    assert walked(tmp_path / "link") == ["a/b", "file"]


def test_what_is_no_file(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    (tmp_path / "b").symlink_to("nowhere")
    with pytest.raises(InvalidInputError, match="leads nowhere"):
        walked(tmp_path)
    assert walked(tmp_path, "a") == ["a"]
    (tmp_path / "b").unlink()
    os.mkfifo(tmp_path / "b")
    with pytest.raises(InvalidInputError, match="pipe"):
        walked(tmp_path)


def test_what_is_written_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "a", "out/x", "out/y/z", "out2/x", "sub/out")
    assert walked(tmp_path, target=tmp_path / "not/yet") == [
        "a",
        "out/x",
        "out/y/z",
        "out2/x",
        "sub/out",
    ]
    assert walked(tmp_path, target=tmp_path / "out") == ["a", "out2/x", "sub/out"]
    assert walked(tmp_path, target=tmp_path / "sub/../sub/out") == [
        "a",
        "out/x",
        "out/y/z",
        "out2/x",
    ]
    assert walked(tmp_path / "out", target=tmp_path) == []
    assert walked(tmp_path / "out", target=tmp_path / "out") == []
    # Links that lead to it, and a target that is reached through one.
    (tmp_path / "link").symlink_to(tmp_path / "out/x")
    (tmp_path / "folder").symlink_to(tmp_path / "out")
    assert walked(tmp_path, target=tmp_path / "folder") == ["a", "out2/x", "sub/out"]


def test_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "in", "a/b", "out")
    monkeypatch.chdir(tmp_path)
    ids, paths = files_below(Path("in"), ["*"], target=Path("in/out"))
    assert (ids.to_pylist(), paths.to_pylist()) == (["a/b"], [f"{tmp_path}/in/a/b"])


def test_folders_may_be_deep(tmp_path: Path) -> None:
    below = "d/" * 300 + "f"
    fill(tmp_path, below)
    assert walked(tmp_path) == [below]


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_bytes(b"x")
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        walked(tmp_path)
    assert walked(tmp_path, "a") == ["a"]


def test_faults(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="folder cannot be read"):
        walked(tmp_path / "no")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0)
        with pytest.raises(AccessDeniedError):
            walked(tmp_path)


def test_more_files_than_are_held_as_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comal.samples.intake._HELD", 3)
    names = [f"{a}/{b}" for a in "abc" for b in "xyz"]
    assert walked(fill(tmp_path, *names)) == names
    assert walked(fill(tmp_path, "d")) == [*names, "d"]


TREES: Any = st.recursive(
    st.booleans(),
    lambda inner: st.dictionaries(st.sampled_from([".h", "a", "a.t", "b", "Z.t"]), inner),
    max_leaves=12,
)


@given(tree=TREES.filter(lambda tree: isinstance(tree, dict)))
@settings(max_examples=60)
def test_any_tree(tree: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
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
    seen = [file for file in below if not any(part[0] == "." for part in file.parts)]
    assert walked(root) == ["/".join(parts) for parts in sorted(file.parts for file in seen)]
    wanted = sorted(file.parts for file in seen if file.suffix == ".t")
    assert walked(root, "*.t") == ["/".join(parts) for parts in wanted]


def test_absolute_paths_stay() -> None:
    paths = pa.array(["a", None, "/b/c", "../d"])
    assert absolute(paths, Path("/r")).to_pylist() == ["/r/a", None, "/b/c", "/r/../d"]
    assert absolute(paths, Path("/")).to_pylist() == ["/a", None, "/b/c", "/../d"]
    assert absolute(paths.slice(0, 2), Path("/r")).to_pylist() == ["/r/a", None]
    assert absolute(pa.array([], pa.string()), Path("/r")).to_pylist() == []
