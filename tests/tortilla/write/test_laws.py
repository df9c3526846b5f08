"""Laws: any tree of samples comes back, by pyarrow and struct and by comal's own reader."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from comal import tortilla
from comal.tortilla import Sample, TortillaWarning, compact, create, join
from tests.tortilla.write.oracle import read

IDS = st.text("abcdefgh123_é", min_size=1, max_size=4).filter(
    lambda name: not name.startswith("__")
)
LEAVES = st.binary(max_size=40)
TREES: Any = st.recursive(
    st.dictionaries(IDS, LEAVES, min_size=1, max_size=5),
    lambda inner: st.dictionaries(IDS, st.one_of(LEAVES, inner), min_size=1, max_size=4),
    max_leaves=20,
)
FEW = settings(max_examples=30, deadline=None)


def samples_of(tree: dict[str, Any]) -> list[Sample]:
    return [
        Sample(name, path=samples_of(value))
        if isinstance(value, dict)
        else Sample(name, "BYTES", value, size=len(value))
        for name, value in tree.items()
    ]


def leaves(tree: dict[str, Any], above: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= leaves(value, f"{above}{name}/")
        else:
            found[above + name] = value
    return found


def as_comal_reads(path: Any) -> dict[str, bytes]:
    flat = tortilla.open(path).flatten()
    return dict(zip(flat["internal:path"].to_pylist(), flat.read_bytes(), strict=True))


@FEW
@given(TREES)
def test_trees_come_back(tree: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", TortillaWarning)  # leaves of zeros
        made = create(samples_of(tree), Path(folder, "a.tortilla"))
        found = read(made)
        assert found.tree() == tree
        assert found.ids == list(tree)
        assert as_comal_reads(made) == leaves(tree)
        assert found.free == bytes(174)
        ends = [
            a + b
            for a, b in zip(
                found.column("tortilla:offset"), found.column("tortilla:length"), strict=True
            )
        ]
        assert found.column("tortilla:offset") == [200, *ends[:-1]]
        assert found.footer[0] == ends[-1]


@FEW
@given(TREES, st.integers(1, 200), st.integers(1, 3))
def test_sets_hold_the_same(tree: dict[str, Any], size: int, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", TortillaWarning)
        whole = create(samples_of(tree), Path(folder, "whole.tortilla"))
        parts = create(
            samples_of(tree), Path(folder, "cut.tortilla"), chunk_size=size, chunk_rows=rows
        )
        found = [read(path) for path in parts.paths]
        assert [one.parts for one in found] == [len(found)] * len(found)
        assert [name for one in found for name in one.ids] == list(tree)
        joined = join(parts.paths, Path(folder, "joined.tortilla"))
        assert joined.path.read_bytes() == whole.path.read_bytes()
        again = tortilla.compile(whole, Path(folder, "again.tortilla"), chunk_rows=rows)
        assert [name for path in again.paths for name in read(path).ids] == list(tree)


@FEW
@given(TREES, st.randoms(use_true_random=False))
def test_subsets_keep_their_order(tree: dict[str, Any], random: Any) -> None:
    names = list(tree)
    chosen = random.sample(names, random.randint(1, len(names)))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", TortillaWarning)
        made = create(samples_of(tree), Path(folder, "a.tortilla"))
        part = tortilla.compile(made, Path(folder, "b.tortilla"), ids=chosen)
        assert read(part).ids == chosen
        assert read(part).tree() == {name: tree[name] for name in chosen}
        before = made.path.read_bytes()
        compact(made)
        assert made.path.read_bytes() == before
