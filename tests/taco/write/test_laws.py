"""Trees of any shape come back as they went in."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.taco.model.collection import Sample, Tortilla
from comal.taco.writing.creating import create
from tests.taco.write.small import Archive, dataset

NAMES = st.lists(
    st.from_regex(r"[a-z][a-z0-9]{0,5}(\.tif)?", fullmatch=True).filter(
        lambda name: (
            name.split(".")[0] not in {"con", "prn", "aux", "nul"}
            and not name.startswith(("com", "lpt"))
        )
    ),
    min_size=1,
    max_size=3,
    unique=True,
)
Shape = list[tuple[str, Any]]
"""Ids with None for a file, or the shape below them."""


def shapes(depth: int) -> st.SearchStrategy[Shape]:
    below = st.none() if depth == 0 else st.none() | shapes(depth - 1)
    return NAMES.flatmap(
        lambda names: st.tuples(*(below for _ in names)).map(
            lambda inner: list(zip(names, inner, strict=True))
        )
    )


def planted(shape: Shape, place: str, leaves: dict[str, bytes]) -> Tortilla:
    samples = []
    for name, inner in shape:
        path = f"{place}/{name}"
        if inner is None:
            leaves[path] = path.encode() * (len(path) % 4)
            samples.append(Sample(name, leaves[path], where=path, depth=path.count("/")))
        else:
            below = planted(inner, path, leaves)
            samples.append(Sample(name, below, where=path, depth=path.count("/")))
    return Tortilla(samples)


@settings(max_examples=25, deadline=None)
@given(shape=shapes(3), roots=NAMES)
def test_any_regular_tree_round_trips(shape: Shape, roots: list[str]) -> None:
    leaves: dict[str, bytes] = {}
    tortilla = Tortilla(
        [Sample(root, planted(shape, root, leaves), where=root, depth=0) for root in roots]
    )
    with tempfile.TemporaryDirectory() as folder:
        zipped, loose = (create(dataset(tortilla), Path(folder) / n)[0] for n in ("a.zip", "a"))
        archive = Archive(zipped)
        assert archive.leaves() == archive.walked() == archive.entries() == leaves
        for number in range(archive.levels):
            for row in archive.level(number).to_pylist():
                assert row["where"] == row["internal:relative_path"].rstrip("/")
                assert row["depth"] == number
        for path, payload in leaves.items():
            assert (loose / "DATA" / path).read_bytes() == payload


@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20), st.randoms())
def test_rows_of_tables_may_come_in_any_order(payloads: list[bytes], random: Any) -> None:
    rows = [(parent, payload) for parent in range(3) for payload in payloads]
    numbered = [(p, f"f{n % len(payloads)}", payload) for n, (p, payload) in enumerate(rows)]
    parents = list(range(3))
    random.shuffle(parents)
    # Siblings keep their order, so that only whole families are moved.
    moved = [row for parent in parents for row in numbered if row[0] == parent]
    table = pa.table(
        {
            "id": [name for _, name, _ in moved],
            "parent": [parent for parent, _, _ in moved],
            "path": pa.array([payload for _, _, payload in moved], pa.binary()),
        }
    )
    tortilla = Tortilla.from_tables([pa.table({"id": ["s1", "s10", "s2"]}), table])
    with tempfile.TemporaryDirectory() as folder:
        (path,) = create(dataset(tortilla), Path(folder) / "a.zip")
        expected = {
            f"{['s1', 's10', 's2'][parent]}/{name}": payload for parent, name, payload in numbered
        }
        assert Archive(path).leaves() == Archive(path).walked() == expected
