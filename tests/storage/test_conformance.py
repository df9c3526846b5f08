"""What every source does, whatever is behind it."""

from __future__ import annotations

import asyncio
import io
import pickle
import random
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from comal import storage
from comal.errors import (
    ComalError,
    InvalidMetadataError,
    LimitExceededError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    UnsafeContentError,
)
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole
from tests.storage.places import Place, noise

DATA = noise(300_000)


def test_each_kind_of_range(place: Place) -> None:
    place.put("x/a.bin", DATA)
    source = place.open()
    pieces = source.fetch(
        [
            ByteRange(1000, 10, "x/a.bin"),
            Head(7, "x/a.bin"),
            Tail(9, "x/a.bin"),
            Whole(300_000, "x/a.bin"),
        ]
    )
    assert pieces == [
        Piece(DATA[1000:1010], 1000, 300_000),
        Piece(DATA[:7], 0, 300_000),
        Piece(DATA[-9:], 299_991, 300_000),
        Piece(DATA, 0, 300_000),
    ]
    assert all(type(piece.data) is bytes for piece in pieces)


@pytest.mark.parametrize("known", [False, True])
def test_scattered_ranges_come_back_in_order(place: Place, known: bool) -> None:
    place.put("a", DATA)
    place.put("b", DATA[::-1])
    source = place.open()
    if known:
        source.fetch([Head(1, "a"), Tail(1, "b")])
    dice = random.Random(5)
    wanted = [
        ByteRange(dice.randrange(290_000), dice.choice([0, 1, 64, 9000]), dice.choice("ab"))
        for _ in range(200)
    ]
    wanted += wanted[:3]
    for want, piece in zip(wanted, source.fetch(wanted), strict=True):
        data = DATA if want.href == "a" else DATA[::-1]
        assert piece == Piece(data[want.offset : want.end], want.offset, 300_000)


def test_spans_are_the_bytes_of_ranges(place: Place) -> None:
    place.put("a", DATA)
    source = place.open()
    dice = np.random.default_rng(5)
    for count in (0, 1, 7, 8, 200):
        # Neighbours with and without gaps, then any order, overlaps and empty ones among them.
        steps = dice.choice([0, 1, 900, 1400], count)
        near = np.cumsum(steps + 50)
        far = dice.integers(0, 290_000, count)
        for offsets in (near, near[::-1], far, np.sort(far)):
            sizes = dice.choice([0, 1, 50, 700], count)
            found = source.fetch_spans(offsets, sizes, "a")
            spans = zip(offsets.tolist(), sizes.tolist(), strict=True)
            assert found == [DATA[offset : offset + size] for offset, size in spans]


@pytest.mark.parametrize("row", [0, 20])
def test_spans_that_cannot_be(place: Place, row: int) -> None:
    place.put("a", DATA)
    source = place.open()
    offsets, sizes = np.arange(21) * 10, np.full(21, 10)
    for offset, size, kind in (
        (299_991, 10, ShortReadError),
        (2**62, 10, ShortReadError),
        (2**63 - 1, 10, InvalidMetadataError),
        (-1, 10, InvalidMetadataError),
        (0, -1, InvalidMetadataError),
    ):
        offsets[row], sizes[row] = offset, size
        with pytest.raises(kind):
            source.fetch_spans(offsets, sizes, "a")
    with pytest.raises(ObjectNotFoundError):
        source.fetch_spans(np.arange(9), np.arange(9), "b")


def test_a_source_of_the_object_itself(place: Place) -> None:
    place.put("one.bin", DATA)
    place.put("two.bin", b"second")
    source = place.open("one.bin")
    assert source.fetch([ByteRange(5, 5)])[0].data == DATA[5:10]
    assert source.sibling("two.bin").fetch([Whole(10)])[0].data == b"second"
    assert source.href.endswith("/one.bin")
    assert source.sibling("two.bin").href.endswith("/two.bin")


def test_nothing_is_wanted(place: Place) -> None:
    assert place.open("absent").fetch([]) == []


@pytest.mark.parametrize("want", [Head(5), Tail(5), Whole(5), ByteRange(0, 0)])
@pytest.mark.parametrize("known", [False, True])
def test_an_empty_object(place: Place, want: Wanted, known: bool) -> None:
    place.put("empty", b"")
    source = place.open("empty")
    if known:
        source.stat()
    assert source.fetch([want]) == [Piece(b"", 0, 0)]


@pytest.mark.parametrize("known", [False, True])
def test_a_short_object(place: Place, known: bool) -> None:
    place.put("abc", b"abc")
    source = place.open("abc")
    if known:
        source.stat()
    assert source.fetch([Head(10)]) == [Piece(b"abc", 0, 3)]
    assert source.fetch([Tail(10)]) == [Piece(b"abc", 0, 3)]
    assert source.fetch([Tail(0), Head(0)]) == [Piece(b"", 3, 3), Piece(b"", 0, 3)]
    assert source.fetch([ByteRange(3, 0)]) == [Piece(b"", 3, 3)]


@pytest.mark.parametrize(
    "want", [ByteRange(2, 2), ByteRange(3, 1), ByteRange(4, 0), ByteRange(9, 9)]
)
@pytest.mark.parametrize("known", [False, True])
def test_a_range_past_the_end(place: Place, want: ByteRange, known: bool) -> None:
    place.put("abc", b"abc")
    source = place.open("abc")
    if known:
        source.stat()
    with pytest.raises(ShortReadError) as caught:
        source.fetch([want])
    assert "abc" in str(caught.value)


@pytest.mark.parametrize("known", [False, True])
def test_a_whole_object_over_its_limit(place: Place, known: bool) -> None:
    place.put("abc", b"abc")
    source = place.open("abc")
    if known:
        source.stat()
    with pytest.raises(LimitExceededError):
        source.fetch([Whole(2)])


@pytest.mark.parametrize(
    "want", [ByteRange(-1, 2), ByteRange(1, -1), Head(-1), ByteRange(2**63, 1)]
)
def test_a_range_that_cannot_exist(place: Place, want: Wanted) -> None:
    place.put("abc", b"abc")
    with pytest.raises(InvalidMetadataError):
        place.open("abc").fetch([want])


def test_an_absent_object(place: Place) -> None:
    place.put("here", b"1")
    source = place.open()
    for call in (
        lambda: source.fetch([Head(1, "gone")]),
        lambda: source.fetch([ByteRange(0, 1, "gone"), Head(1, "here")]),
        lambda: source.stat("gone"),
        lambda: source.file("gone").read(),
        lambda: source.child("gone").fetch([Tail(1)]),
    ):
        with pytest.raises(ObjectNotFoundError):
            call()
    assert source.known("gone") is None


@pytest.mark.parametrize(
    "href",
    ["../a", "x/../../a", "/etc/passwd", "http://x/a", "file:///a", "a\\b", "a\0b", "C:a", "//x/a"],
)
def test_an_unsafe_href(place: Place, href: str) -> None:
    source = place.open()
    for call in (
        lambda: source.fetch([Head(1, href)]),
        lambda: source.stat(href),
        lambda: source.child(href),
        lambda: source.sibling(href),
        lambda: source.file(href).read(),
        lambda: source.known(href),
    ):
        with pytest.raises(UnsafeContentError):
            call()


@pytest.mark.parametrize("name", ["a b.tif", "per%cent%20", "ü/é.tif", "x?y#z&=+.bin", "~t'(1)"])
def test_names_with_odd_letters(place: Place, name: str) -> None:
    place.put(name, b"odd")
    source = place.open()
    assert source.fetch([Whole(10, name)])[0].data == b"odd"
    assert source.child(name).fetch([Head(10)])[0].data == b"odd"
    assert source.child(name).sibling("a").href.endswith("/a")


def test_stat_and_known(place: Place) -> None:
    place.put("abc", b"abc")
    source = place.open()
    info = source.stat("abc")
    assert (info.size, info.is_dir) == (3, False)
    assert info.href == source.child("abc").href
    assert info.modified is not None
    assert source.known("abc") == info
    fresh = place.open()
    assert fresh.known("abc") is None
    fresh.fetch([Tail(1, "abc")])
    known = fresh.known("abc")
    assert known is not None
    assert known.size == 3


def test_names(place: Place) -> None:
    for name in ("b.bin", "a/x.bin", "a/y.bin", "c/d/e.bin"):
        place.put(name, b"1")
    source = place.open()
    if not place.lists:
        with pytest.raises(StorageError, match="listed"):
            source.names()
        return
    assert source.names() == ["a/", "b.bin", "c/"]
    assert source.names("a") == ["x.bin", "y.bin"]
    assert source.child("c").names() == ["d/"]
    assert source.stat("a").is_dir
    assert source.stat().is_dir


def test_children_share_what_is_remembered(place: Place) -> None:
    place.put("x/a", b"1234")
    source = place.open()
    source.stat("x/a")
    child = source.child("x")
    assert child.known("a") == source.known("x/a")
    assert child.fetch([Head(2, "a")])[0].data == b"12"


@pytest.mark.parametrize("copied", [False, True])
def test_a_replaced_object_is_an_error(place: Place, copied: bool) -> None:
    place.put("a", DATA)
    source = place.open("a")
    source.fetch([Head(10)])
    if copied:
        source = pickle.loads(pickle.dumps(source))
    place.put("a", DATA[::-1])
    for want in (ByteRange(200_000, 10), Tail(10)):
        with pytest.raises(ObjectChangedError):
            source.fetch([want])
    again = place.open("a").fetch([ByteRange(200_000, 10)])[0]
    assert again.data == DATA[::-1][200_000:200_010]


def test_a_shrunk_object_is_an_error(place: Place) -> None:
    place.put("a", DATA)
    source = place.open("a")
    source.fetch([Head(10)])
    place.put("a", DATA[:1000])
    with pytest.raises(ObjectChangedError):
        source.fetch([ByteRange(200_000, 10)])


def test_pickled(place: Place) -> None:
    place.put("x/a", DATA)
    source = place.open()
    source.fetch([Head(10, "x/a")])
    copy = pickle.loads(pickle.dumps(source))
    assert copy.href == source.href
    assert copy.known("x/a") == source.known("x/a")
    assert copy.fetch([ByteRange(7, 7, "x/a")])[0].data == DATA[7:14]


def test_used_from_threads(place: Place) -> None:
    place.put("a", DATA)
    source = place.open("a")

    def read(seed: int) -> bool:
        offsets = random.Random(seed).sample(range(290_000), 4)
        pieces = source.fetch([ByteRange(offset, 5000) for offset in offsets])
        return [piece.data for piece in pieces] == [DATA[at : at + 5000] for at in offsets]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(24)))


def test_async(place: Place) -> None:
    place.put("a", DATA)
    place.put("b", b"abc")
    source = place.open()
    wanted: list[Wanted] = [
        ByteRange(9, 9, "a"),
        Tail(2, "b"),
        ByteRange(250_000, 50_000, "a"),
        Whole(3, "b"),
    ]
    assert asyncio.run(source.fetch_async(wanted)) == place.open().fetch(wanted)
    with pytest.raises(ObjectNotFoundError):
        asyncio.run(source.fetch_async([Head(1, "gone")]))


def test_a_file_that_zipfile_reads(place: Place) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("one", DATA[:5000])
        archive.writestr("two", b"2" * 100)
    padded = DATA[:777] + buffer.getvalue() + DATA[:50]
    place.put("x.zip", padded)
    with place.open().file("x.zip", 777, len(buffer.getvalue())) as file:
        with zipfile.ZipFile(file) as archive:
            assert archive.testzip() is None
            assert archive.read("one") == DATA[:5000]
        assert file.size == len(buffer.getvalue())


def test_context_and_repr(place: Place) -> None:
    with place.open() as source:
        assert isinstance(source, storage.Source)
        assert "Source" in repr(source)


def test_errors_are_ours_and_name_the_object(place: Place) -> None:
    with pytest.raises(ComalError) as caught:
        place.open().fetch([Whole(5, "no/such")])
    assert "no/such" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).where == caught.value.where
