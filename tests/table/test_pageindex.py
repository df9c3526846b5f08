"""The page index and pages of one value, against pyarrow as writer, and against lies."""

from __future__ import annotations

import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table.tables import varint, zigzag

from comal import storage
from comal.errors import ComalError, InvalidMetadataError
from comal.plan import ByteRange, Piece, run
from comal.table import pageindex
from comal.table.footer import Footer, footer_plan
from comal.table.pageindex import PageIndex, page_index_plan
from comal.table.pages import OneValueReader, one_value, read_page_header

VALUES = [
    bytes([row % 251]) * size for row, size in enumerate([0, 1, 2, 57, 58, 8000, 40_000, 3] * 20)
]
IDS = [5_192_650_370_358_181_887 + 4 * row for row in range(len(VALUES))]


def write(
    path: Path, values: Sequence[bytes | None] = VALUES, groups: int = 50, **settings: Any
) -> Path:
    required = settings.pop("required", False)
    ids = list(settings.pop("ids", IDS[: len(values)]))
    schema = pa.schema(
        [
            pa.field("block", pa.uint64(), nullable=not required),
            pa.field("tile", pa.binary(), nullable=not required),
        ]
    )
    table = pa.table({"block": ids, "tile": values}, schema=schema)
    named = {
        "use_dictionary": False,
        "compression": "none",
        "write_statistics": ["block"],
        "write_page_index": True,
        "max_rows_per_page": 1,
    }
    pq.write_table(table, path, row_group_size=groups, **(named | settings))
    return path


def opened(path: Path, shift: int = 0) -> tuple[storage.CountingSource, Footer]:
    source = storage.CountingSource(storage.open_source(path))
    span = ByteRange(shift, source.stat().size - shift)
    return source, run(footer_plan(span), source.fetch)


def index_of(path: Path, shift: int = 0) -> tuple[PageIndex, storage.CountingSource]:
    source, footer = opened(path, shift)
    source.reset()
    return run(page_index_plan(footer, [0, 1], 0), source.fetch), source


def pages_of(path: Path, index: PageIndex) -> list[bytes]:
    data = path.read_bytes()
    found = index.pages[1]
    spans = zip(found.offset.tolist(), found.size.tolist(), strict=True)
    return [data[offset : offset + size] for offset, size in spans]


LAYOUTS = [
    pytest.param({}, id="plain"),
    pytest.param({"write_page_checksum": True}, id="checksums"),
    pytest.param({"data_page_version": "2.0"}, id="version 2"),
    pytest.param({"data_page_version": "2.0", "write_page_checksum": True}, id="both"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("groups", [7, 50, 1000])
def test_every_value_of_every_page(
    tmp_path: Path, layout: dict[str, Any], required: bool, groups: int
) -> None:
    values = VALUES if required else [None if row % 9 == 4 else v for row, v in enumerate(VALUES)]
    path = write(tmp_path / "a.parquet", values, groups, required=required, **layout)
    index, _ = index_of(path)
    assert index.keys is not None
    assert index.keys.tolist() == IDS
    assert index.pages[1].one_row_each
    pages = pages_of(path, index)
    reader = OneValueReader(required=required)
    assert [one_value(page, "page", required=required) for page in pages] == list(values)
    assert [reader.value(page, "page") for page in pages] == list(values)


def test_a_small_file_needs_no_request_and_a_large_one_needs_one(tmp_path: Path) -> None:
    _, source = index_of(write(tmp_path / "small.parquet", VALUES[:5]))
    assert source.requests == 0
    many = [b"x"] * 6000
    index, source = index_of(write(tmp_path / "large.parquet", many, 64, ids=range(6000)))
    assert source.requests == 1
    assert index.keys is not None
    assert index.keys.tolist() == list(range(6000))


def test_a_file_inside_of_an_object(tmp_path: Path) -> None:
    inner = write(tmp_path / "inner.parquet").read_bytes()
    path = tmp_path / "outer"
    path.write_bytes(b"before it" + inner)
    index, _ = index_of(path, shift=9)
    assert [one_value(page, "page") for page in pages_of(path, index)] == VALUES


def test_pages_of_many_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", max_rows_per_page=10)
    index, _ = index_of(path)
    assert index.keys is None
    assert not index.pages[1].one_row_each
    assert index.pages[1].first_row.tolist() == list(range(0, len(VALUES), 10))
    with pytest.raises(InvalidMetadataError, match="one plain value"):
        one_value(pages_of(path, index)[0], "page")


def test_no_index(tmp_path: Path) -> None:
    index, source = index_of(write(tmp_path / "a.parquet", write_page_index=False))
    assert index == PageIndex({}, None)
    assert source.requests == 0


def test_pages_with_a_dictionary_or_a_codec_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", compression="snappy")
    index, _ = index_of(path)
    page = pages_of(path, index)[6]
    with pytest.raises(InvalidMetadataError, match="two sizes"):
        one_value(page, "page")
    path = write(tmp_path / "b.parquet", [b"same"] * 40, use_dictionary=True)
    data = path.read_bytes()
    with pytest.raises(InvalidMetadataError, match="not a data page"):
        read_page_header(data[4:], "page")


# -- lies -----------------------------------------------------------------------------------------


def location(offset: int, size: int, row: int) -> bytes:
    return b"\x16" + zigzag(offset) + b"\x15" + zigzag(size) + b"\x16" + zigzag(row) + b"\0"


LIES = {
    "before": (0, 0, -1),
    "behind": (5, 1, 1_000_000),
    "overlap": (5, 1, 1),
    "row": (5, 2, -1),
    "last row": (19, 2, 1),
    "empty": (5, 1, -8_100),
    "negative": (5, 1, -100_000),
}
"""A page, which of offset, size and row is wrong, and by how much."""


@pytest.mark.parametrize("lie", LIES)
def test_page_locations_that_lie(tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (page, field, by), located = LIES[lie], pageindex._located

    def lying(*args: Any) -> Any:
        found, counts = located(*args)
        found[page, field] += by
        return found, counts

    source, footer = opened(write(tmp_path / "a.parquet", VALUES[:20], 20))
    run(page_index_plan(footer, [1]), source.fetch)
    monkeypatch.setattr(pageindex, "_located", lying)
    with pytest.raises(InvalidMetadataError, match="does not fit"):
        run(page_index_plan(footer, [1]), source.fetch)


def test_indexes_that_do_not_fit_the_file(tmp_path: Path) -> None:
    source, footer = opened(write(tmp_path / "a.parquet", groups=1000))
    footer.layout.rows[0] -= 1
    with pytest.raises(InvalidMetadataError):
        run(page_index_plan(footer, [1]), source.fetch)
    footer.layout.offset_index[0, 1] = (2**62, 2**62)
    with pytest.raises(InvalidMetadataError, match="outside"):
        run(page_index_plan(footer, [1]), source.fetch)


def test_indexes_that_share_their_bytes_take_no_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [b"v" * 500] * 1_000, 1, ids=range(1_000))
    source, footer = opened(path)
    size = footer.span.size
    spans = np.full_like(footer.layout.offset_index, 4)
    spans[..., 1] = size - 4
    assert spans[..., 1].sum() > 1_000_000_000
    lying = replace(footer, layout=replace(footer.layout, offset_index=spans))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidMetadataError, match="overlap"):
            run(page_index_plan(lying, [0, 1], 0), source.fetch)
        assert tracemalloc.get_traced_memory()[1] < 4 * size
    finally:
        tracemalloc.stop()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_damaged_index_gives_the_same_pages_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.parquet"
    if not path.exists():
        write(path, VALUES[:30], 10)
    source, footer = opened(path)
    whole = path.read_bytes()
    begin = int(footer.layout.column_index[:, 0, 0].min())
    end = len(whole) - len(footer.metadata.schema.names)
    place = data.draw(st.integers(begin, min(end, begin + 1500)))
    broken = bytearray(whole)
    broken[place] = data.draw(st.integers(0, 255))
    piece = Piece(bytes(broken), 0, len(whole))
    hurt = replace(footer, tail=piece)
    try:
        index = run(page_index_plan(hurt, [0, 1], 0), source.fetch)
    except ComalError:
        return
    for pages in index.pages.values():
        # Whatever it says, it says it of bytes inside of the column chunks.
        assert (pages.offset >= 4).all()
        assert (pages.offset + pages.size <= begin).all()


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_every_damaged_page_gives_its_value_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "checked.parquet"
    if not path.exists():
        write(path, VALUES[:30], 10, write_page_checksum=True)
    index, _ = index_of(path)
    row = data.draw(st.integers(0, 5))
    page = bytearray(pages_of(path, index)[row])
    page[data.draw(st.integers(0, len(page) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for read in (one_value, OneValueReader().value):
        try:
            found = read(bytes(page), "page")
        except ComalError:
            continue
        assert found == VALUES[row]


def test_pages_that_are_cut_or_longer(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", VALUES[:30], 10)
    index, _ = index_of(path)
    page = pages_of(path, index)[3]
    for size in range(len(page)):
        with pytest.raises(InvalidMetadataError):
            one_value(page[:size], "page")
    with pytest.raises(InvalidMetadataError):
        one_value(page + b"x", "page")
    with pytest.raises(InvalidMetadataError):
        OneValueReader().value(page + b"x", "page")


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("required", [False, True])
def test_a_page_that_is_read_in_two(tmp_path: Path, checksum: bool, required: bool) -> None:
    rng = np.random.default_rng(0)
    values = [rng.bytes(size) for size in (9000, 20_000, 60_000, 100_000)]
    path = write(tmp_path / "a.parquet", values, required=required, write_page_checksum=checksum)
    index, _ = index_of(path)
    reader = OneValueReader(required=required)
    pages = [bytes(page) for page in pages_of(path, index)]
    reader.value(pages[0], "page")
    for page, value in zip(pages, values, strict=True):
        start, rest = page[: reader.head], page[reader.head :]
        # A checksum may be shorter than most are.
        assert reader.is_value(start, rest) == (rest == value)
        assert not reader.is_value(start, rest[:-1])
        assert not reader.is_value(start, rest + b"x")
        if checksum:
            assert not reader.is_value(start, rest[:-1] + bytes([rest[-1] ^ 1]))
        for at in range(len(start)):
            other = bytearray(start)
            other[at] ^= 0x10
            assert not reader.is_value(bytes(other), rest)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_keys_of_a_damaged_index_are_right_or_not_taken(data: st.DataObject) -> None:
    """A bit that flips in one of the two bounds makes them differ."""
    damaged = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.parquet", groups=data.draw(st.integers(5, 90)))
        content = bytearray(path.read_bytes())
        layout = opened(path)[1].layout
        start = int(layout.column_index[0, 0, 0])
        stop = int(layout.column_index[-1, 0].sum())
        if damaged:
            content[data.draw(st.integers(start, stop - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(bytes(content))
        keys = index_of(path)[0].keys
    assert damaged if keys is None else keys.tolist() == IDS


def heads_of(count: int) -> bytes:
    """A list of structs of so many elements in field 1, without one."""
    return b"\x19\xfc" + varint(count)


@pytest.mark.parametrize("count", [1_000, 2**27, 2**31, 2**34, 2**40, 2**62])
def test_more_pages_than_bytes_take_no_memory(count: int) -> None:
    """What a head claims is not believed, though the row group claims it too."""
    body = heads_of(count) + location(4, 50, 0) * 40
    footer: Any = SimpleNamespace(
        layout=SimpleNamespace(
            rows=np.array([count]), offset_index=np.array([[[0, len(body)]]], np.int64)
        ),
        span=ByteRange(0, len(body)),
    )
    held = pageindex._Held([Piece(body, 0, len(body))], 0)
    tracemalloc.start()
    with pytest.raises(InvalidMetadataError):
        pageindex._located(footer, [0], held, "here")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "data", [b"\x19", b"\x19\x01", b"\x19\x01\x19\x08\x19\x08", b"\x19\x01" * 20]
)
@pytest.mark.parametrize("rows", [0, 1, 2, 2**40, 2**62, 2**63 - 1])
def test_keys_of_groups_that_are_empty_or_claim_too_much(data: bytes, rows: int) -> None:
    assert pageindex._values(data, rows) is None


IN_ANOTHER_ORDER = zigzag(0), b"\x06" + zigzag(1) + zigzag(4), b"\x05" + zigzag(2) + zigzag(50)


@pytest.mark.parametrize(
    "body",
    [
        b"\x36" + b"".join(IN_ANOTHER_ORDER) + b"\0",
        location(4, 50, 0)[:-1] + b"\x16" + zigzag(9) + b"\0",
    ],
    ids=["other order", "unknown field"],
)
def test_locations_that_are_read_one_by_one(body: bytes) -> None:
    """Writers may order or add fields."""
    octets, bodies, counts = np.frombuffer(body, np.uint8), np.array([0]), np.array([1])
    assert pageindex._locations(octets, bodies, counts) is None
    found = pageindex._locations_one_by_one(body, [0], [1], "here")
    assert found.tolist() == [[4, 50, 0]]


def test_threads_share_a_reader(tmp_path: Path) -> None:
    """Sizes of headers differ, so that what one thread learns of a page is wrong for others."""
    values = [b"x" * 10, b"y" * 9_000] * 40
    path = write(tmp_path / "a.parquet", values, 1000, write_page_checksum=True)
    index, _ = index_of(path)
    pages, reader = pages_of(path, index), OneValueReader()

    def read(_: int) -> list[bytes | None]:
        return [reader.value(page, "page") for page in pages]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(found == values for found in pool.map(read, range(60)))
    finally:
        sys.setswitchinterval(before)
