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


def answer(data: bytes, want: Wanted) -> Piece | type[ComalError]:
    """What has to come of a range of an object, error or piece."""
    total = len(data)
    size = want.limit if isinstance(want, Whole) else want.size
    offset = want.offset if isinstance(want, ByteRange) else 0
    if size < 0 or offset < 0 or offset + size >= 2**63:
        return InvalidMetadataError
    if isinstance(want, ByteRange):
        short = offset + size > total
        return ShortReadError if short else Piece(data[offset : offset + size], offset, total)
    if isinstance(want, Whole) and size < total:
        return LimitExceededError
    if isinstance(want, Tail):
        size = min(size, total)
        return Piece(data[total - size :], total - size, total)
    return Piece(data[:size], 0, total)


SPANS = [(0, 0), (1, 2), (3, 0), (2, 2), (3, 1), (4, 0), (9, 9), (-1, 2), (1, -1), (2**63, 1)]
SIZES = [0, 2, 3, 10, -1]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("data", [b"", b"abc"])
def test_every_range_of_a_short_object(place: Place, data: bytes, known: bool) -> None:
    place.put("x/abc", data)
    wanted: list[Wanted] = [ByteRange(offset, size) for offset, size in SPANS]
    wanted += [kind(size) for kind in (Head, Tail, Whole) for size in SIZES]
    for want in wanted:
        source, right = place.open("x/abc"), answer(data, want)
        if known:
            source.stat()
        if isinstance(right, Piece):
            (piece,) = source.fetch([want])
            assert piece == right, want
            assert type(piece.data) is bytes
        else:
            with pytest.raises(right) as caught:
                source.fetch([want])
            assert "x/abc" in str(caught.value), want


@pytest.mark.parametrize("known", [False, True])
def test_scattered_ranges_come_back_in_order(place: Place, known: bool) -> None:
    place.put("a", DATA)
    place.put("b", DATA[::-1])
    source = place.open()
    if known:
        source.fetch([Head(1, "a"), Tail(1, "b")])
    dice = random.Random(5)
    wanted: list[Wanted] = [
        ByteRange(dice.randrange(290_000), dice.choice([0, 1, 64, 9000]), dice.choice("ab"))
        for _ in range(200)
    ]
    wanted += [Head(7, "b"), Tail(9, "a"), Whole(300_000, "b"), *wanted[:3]]
    for want, piece in zip(wanted, source.fetch(wanted), strict=True):
        assert piece == answer(DATA if want.href == "a" else DATA[::-1], want)
    assert source.fetch([]) == []


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
    place.put("a", b"second")
    child = place.open().child(name)
    for source in (place.open(name), child):
        assert source.fetch([Whole(10)])[0].data == b"odd"
        assert source.href == child.href
    assert place.open().fetch([Head(10, name)])[0].data == b"odd"
    if "/" not in name:
        assert child.sibling("a").fetch([Whole(10)])[0].data == b"second"


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
@pytest.mark.parametrize("new", [DATA[::-1], DATA[:1000]], ids=["other", "shorter"])
def test_a_replaced_object_is_an_error(place: Place, new: bytes, copied: bool) -> None:
    place.put("a", DATA)
    source = place.open("a")
    source.fetch([Head(10)])
    if copied:
        source = pickle.loads(pickle.dumps(source))
    place.put("a", new)
    for want in (ByteRange(200_000, 10), Tail(10)):
        with pytest.raises(ObjectChangedError):
            source.fetch([want])
    assert place.open("a").fetch([ByteRange(500, 10)])[0].data == new[500:510]


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
