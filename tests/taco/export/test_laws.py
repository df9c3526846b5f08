"""What holds for every name and every choice of entries; rows are in `samples/test_laws.py`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import names
from comal.errors import InvalidMetadataError
from comal.storage import open_source
from comal.taco.copying import entries as copying
from comal.taco.copying.entries import ZipEntries
from comal.taco.copying.foreign import safe_name
from tests.attacks.build import Recipe
from tests.taco.write.small import Archive


@settings(max_examples=100)
@given(
    st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs"], exclude_characters="/\\:"))
    | st.sampled_from(["con", "COM1.tif", "a.", "b ", "-x", "~", "a?b*", "e\u0301", "x" * 300])
)
def test_safe_names_are_safe_and_stay(name: str) -> None:
    if names.illegal(name):
        return
    safe = safe_name(name)
    assert names.risky(safe) is None
    assert safe_name(safe) == safe
    if names.risky(name) is None:
        assert safe == name


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> tuple[ZipEntries, list[bytes]]:
    rng = np.random.default_rng(7)
    tree = {
        f"{'n' * int(rng.integers(1, 60))}{n}": rng.bytes(int(rng.integers(0, 3_000)))
        for n in range(60)
    }
    path = tmp_path_factory.mktemp("entries") / "x.tacozip"
    path.write_bytes(Recipe(tree).build())
    table = Archive(path).level(0)
    return (
        ZipEntries(
            [open_source(path)],
            np.zeros(60, np.int64),
            np.array(table["internal:offset"]),
            np.array(table["internal:size"]),
            names=pa.array([f"DATA/{name}" for name in tree]),
        ),
        list(tree.values()),
    )


@settings(max_examples=60)
@given(
    rows=st.lists(st.integers(0, 59), unique=True, max_size=60),
    request=st.sampled_from([64, 700, 5_000, 1 << 22]),
    group=st.sampled_from([100, 2_000, 1 << 25]),
    gap=st.sampled_from([0, 300, 1 << 16]),
    limit=st.integers(1, 5),
)
def test_blocks_in_any_order_and_of_any_size(
    entries: tuple[ZipEntries, list[bytes]],
    rows: list[int],
    request: int,
    group: int,
    gap: int,
    limit: int,
) -> None:
    found, wanted = entries
    chosen = ZipEntries(
        found.sources, found.source, found.offsets, found.lengths, names=found.names, limit=limit
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "_REQUEST", request)
        patch.setattr(copying, "_GROUP", group)
        patch.setattr(copying, "_LOCAL_GAP", gap)
        picked = np.array(rows, np.int64)
        block = chosen.block(picked, found.lengths[picked])
        views = chosen.views(picked, found.lengths[picked])
    assert block.to_pylist() == [wanted[row] for row in rows]
    assert [bytes(view) for view in views] == [wanted[row] for row in rows]
    for row in rows[:3]:
        with chosen.open(row) as stream:
            assert stream.read() == wanted[row]


@settings(max_examples=60)
@given(
    row=st.integers(0, 59),
    shift=st.integers(-4_000, 4_000).filter(bool),
    grow=st.integers(-50, 50),
)
def test_no_other_span_passes(
    entries: tuple[ZipEntries, list[bytes]], row: int, shift: int, grow: int
) -> None:
    found, _ = entries
    offsets, lengths = found.offsets.copy(), found.lengths.copy()
    offsets[row] = max(0, offsets[row] + shift)
    lengths[row] = max(0, lengths[row] + grow)
    wrong = ZipEntries(found.sources, found.source, offsets, lengths, names=found.names)
    everything = np.arange(len(wrong))
    for read in (wrong.block, wrong.views):
        with pytest.raises(InvalidMetadataError):
            read(everything, lengths)
    with pytest.raises(InvalidMetadataError), wrong.open(row) as stream:
        stream.read()
