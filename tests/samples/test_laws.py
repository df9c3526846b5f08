"""Laws of writing: any tree comes back, by struct and pyarrow and by comal's own readers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import taco, tortilla
from tests.attacks.build import leaves_of
from tests.support import files_below
from tests.taco.write.small import Archive, dataset
from tests.tortilla.write.oracle import read

Tree = dict[str, Any]
FEW = settings(max_examples=8, deadline=None)

IDS = st.text("abcdefgh123_é", min_size=1, max_size=4).filter(lambda name: name[:2] != "__")
LEAVES = st.binary(max_size=40)
TREES: Any = st.recursive(
    st.dictionaries(IDS, LEAVES, min_size=1, max_size=5),
    lambda inner: st.dictionaries(IDS, st.one_of(LEAVES, inner), min_size=1, max_size=4),
    max_leaves=20,
)
SHAPES: Any = st.recursive(
    st.none(), lambda inner: st.dictionaries(IDS, inner, min_size=1, max_size=3), max_leaves=6
)
NAMES = st.lists(IDS, min_size=1, max_size=4, unique=True)


def planted(shape: Any, path: str) -> Any:
    """The shape with bytes of their own at each leaf."""
    if shape is None:
        return path.encode() * (len(path) % 4)
    return {name: planted(inner, f"{path}/{name}") for name, inner in shape.items()}


REGULAR = st.builds(
    lambda names, shape: {name: planted(shape, name) for name in names}, NAMES, SHAPES
)
"""Trees whose uppermost samples look alike, as a TACO asks for."""


def leaves(tree: Tree) -> dict[str, bytes]:
    return dict(leaves_of(tree))


def samples(room: Any, tree: Tree, above: str = "") -> list[Any]:
    """Samples of a format; each says where it is."""
    made = []
    for name, value in tree.items():
        path = f"{above}{name}"
        inner = samples(room, value, f"{path}/") if isinstance(value, dict) else value
        if isinstance(inner, list) and room is taco:
            inner = taco.Tortilla(inner)
        made.append(room.Sample(name, path=inner, where=path))
    return made


@dataclass(frozen=True)
class Writer:
    """How a format writes, cuts and copies; and what is in a file, read without comal."""

    name: str
    trees: Any
    create: Callable[[Tree, Path], Path]
    parts: Callable[[Tree, Path, int], list[Path]]
    chosen: Callable[[Path, list[str], Path], Path]
    tree: Callable[[Path], dict[str, bytes]]
    again: Callable[[Path], dict[str, bytes]]
    """As comal reads it."""


def _taco(tree: Tree, path: Path, **how: Any) -> list[Path]:
    made = taco.create(dataset(taco.Tortilla(samples(taco, tree))), path, **how)
    return [one for one in made if one.suffix == ".tacozip"]


def _leaves_of_taco(path: Path) -> dict[str, bytes]:
    archive = Archive(path)
    found = archive.walked()
    assert archive.leaves() == archive.entries() == found
    assert archive.collection["taco:pit_schema"]["root"]["n"] == archive.level(0).num_rows
    for number in range(archive.levels):
        for row in archive.level(number).to_pylist():
            assert row["where"] == row["internal:relative_path"].rstrip("/")
    return found


def _folder_of_taco(path: Path) -> dict[str, bytes]:
    """What comal reads of the other form."""
    folder = taco.zip2folder(path, path.with_suffix(""), quiet=True)
    frame = taco.load(folder).data
    found = {name: frame.read_bytes(name) for name, _ in frame.walk()}
    files = files_below(folder / "DATA")
    assert found == {name: files[name] for name in files if not name.endswith("__meta__")}
    return found


def _chosen_of_taco(path: Path, ids: list[str], output: Path) -> Path:
    """Its entries are in the order of the samples, depth first."""
    order = " ".join(f"WHEN '{name}' THEN {n}" for n, name in enumerate(ids))
    rows = f"SELECT * FROM data WHERE id IN ({', '.join(map(repr, ids))})"
    part = taco.load(path).sql(f"{rows} ORDER BY CASE id {order} END")
    archive = Archive(taco.export(part, output))
    assert list(archive.entries()) == list(archive.walked())
    return output


def _leaves_of_tortilla(path: Path) -> dict[str, bytes]:
    file = read(path)
    assert file.free == bytes(174)
    assert file.column("where") == file.ids
    sizes = zip(file.column("tortilla:offset"), file.column("tortilla:length"), strict=True)
    ends = [offset + size for offset, size in sizes]
    assert [*file.column("tortilla:offset"), file.footer[0]] == [200, *ends]
    return leaves(file.tree())


def _flat_tortilla(path: Path) -> dict[str, bytes]:
    flat = tortilla.open(path).flatten()
    return dict(zip(flat["internal:path"].to_pylist(), flat.read_bytes(), strict=True))


def _tortilla(tree: Tree, path: Path, **how: Any) -> list[Path]:
    return list(tortilla.create(samples(tortilla, tree), path, **how).paths)


def _parts_of_tortilla(tree: Tree, path: Path, size: int) -> list[Path]:
    """They join to the same bytes."""
    parts = _tortilla(tree, path, chunk_size=size)
    joined = tortilla.compile(parts, path.with_name("joined.tortilla")).path
    assert joined.read_bytes() == path.with_name("a.tortilla").read_bytes()
    return parts


def _chosen_of_tortilla(path: Path, ids: list[str], output: Path) -> Path:
    """And nothing is left to compact; and copies are cut in the same order."""
    before = path.read_bytes()
    tortilla.compact(path)
    assert path.read_bytes() == before
    again = tortilla.compile(path, path.with_name("again.tortilla"), chunk_rows=2)
    assert [name for part in again.paths for name in read(part).ids] == read(path).ids
    return tortilla.compile(path, output, ids=ids).path


WRITERS = (
    Writer(
        "tacozip",
        REGULAR,
        lambda tree, path: _taco(tree, path)[0],
        lambda tree, path, size: _taco(tree, path, split_size=size, consolidate=False),
        _chosen_of_taco,
        _leaves_of_taco,
        _folder_of_taco,
    ),
    Writer(
        "tortilla",
        TREES,
        lambda tree, path: _tortilla(tree, path)[0],
        _parts_of_tortilla,
        _chosen_of_tortilla,
        _leaves_of_tortilla,
        _flat_tortilla,
    ),
)
pytestmark = [
    pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name),
    pytest.mark.filterwarnings("ignore:.*nothing but zeros"),
]


@FEW
@given(data=st.data())
def test_trees_come_back_whole_in_part_and_in_parts(writer: Writer, data: st.DataObject) -> None:
    tree = data.draw(writer.trees)
    names = list(tree)
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made = writer.create(tree, folder / f"a.{writer.name}")
        wanted = leaves(tree)
        for found in (writer.tree(made), writer.again(made)):
            assert found == wanted
            assert list(found) == list(wanted)
        some = writer.chosen(made, chosen, folder / f"b.{writer.name}")
        part = leaves({name: tree[name] for name in chosen})
        assert list(writer.tree(some).items()) == list(part.items())
        parts = writer.parts(tree, folder / f"c.{writer.name}", data.draw(st.integers(1, 4_000)))
        cut = [item for path in parts for item in writer.tree(path).items()]
        assert cut == list(wanted.items())
