"""Rows of level tables come in any order; any tree has its law in `samples/test_laws.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.taco.model.collection import Tortilla
from comal.taco.writing.creating import create
from tests.taco.write.small import Archive, dataset


@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20), st.randoms(), st.booleans())
def test_rows_of_tables_may_come_in_any_order(
    payloads: list[bytes], random: Any, by_name: bool
) -> None:
    ids = ["s1", "s10", "s2"]
    rows = [(parent, payload) for parent in range(3) for payload in payloads]
    numbered = [(p, f"f{n % len(payloads)}", payload) for n, (p, payload) in enumerate(rows)]
    parents = list(range(3))
    random.shuffle(parents)
    # Siblings keep their order, so that only whole families are moved.
    moved = [row for parent in parents for row in numbered if row[0] == parent]
    table = pa.table(
        {
            "id": [name for _, name, _ in moved],
            "parent": [ids[parent] if by_name else parent for parent, _, _ in moved],
            "path": pa.array([payload for _, _, payload in moved], pa.binary()),
        }
    )
    tortilla = Tortilla.from_tables([pa.table({"id": ids}), table])
    with tempfile.TemporaryDirectory() as folder:
        (path,) = create(dataset(tortilla), Path(folder) / "a.zip")
        expected = {f"{ids[parent]}/{name}": payload for parent, name, payload in numbered}
        assert Archive(path).leaves() == Archive(path).walked() == expected
