"""What a frame can do in memory, in other processes and in notebooks."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from comal import tortilla
from comal.errors import InvalidInputError, NotInContainerError
from comal.tortilla import spec
from comal.tortilla.frame import TortillaFrame
from tests.tortilla import build
from tests.tortilla.build import Item

IDS = ["a", "b", "<script>", "d", "d"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    inner = build.built([Item("x", b"inside", "GTiff"), Item("y", b"deep")])
    items = [Item(name, name.encode() * 3, more={"n": n}) for n, name in enumerate(IDS)]
    target = tmp_path / "f.tortilla"
    target.write_bytes(build.built([*items, Item("roi", inner, "TORTILLA", {"n": None})]))
    return target


@pytest.fixture
def frame(path: Path) -> TortillaFrame:
    return tortilla.open(path)


def test_keys(frame: TortillaFrame, path: Path) -> None:
    assert frame["n"].to_pylist() == [0, 1, 2, 3, 4, None]
    assert frame["a"] == b"aaa"
    assert frame[-2] == frame.read_bytes([np.int64(4)])[0] == b"ddd"
    assert frame["roi/y"] == b"deep"
    assert frame["roi/x"] == f"/vsisubfile/{frame.leaf('roi/x').offset}_6,{path}"
    assert frame[1:3].read_bytes() == [b"bbb", b"<script>" * 3]
    assert frame[::-2][spec.ID].to_pylist() == ["roi", "d", "b"]
    assert set(frame[["n"]].columns) == {"n", *spec.NAVIGATION[1:5], spec.SUBFILE}
    assert frame.vsi("a").startswith("/vsisubfile/200_3,")
    assert frame.leaf("roi").format == "TORTILLA"
    for _ in range(8):  # by a scan first, by an index later
        assert frame.read("b") == b"bbb"
        with pytest.raises(InvalidInputError, match="2 rows"):
            frame.read("d")
        with pytest.raises(NotInContainerError):
            frame.read("nobody")
    with pytest.raises(NotInContainerError):
        frame.read(6)
    with pytest.raises(InvalidInputError):
        frame.read(True)


def test_rows_and_columns(frame: TortillaFrame) -> None:
    assert len(frame) == 6
    assert frame.shape == frame.to_arrow().shape
    assert frame.columns == frame.to_arrow().column_names
    assert frame.schema.equals(frame.to_arrow().schema)
    assert frame.head(2).read_bytes() == [b"aaa", b"bbb"]
    assert frame.tail(1).read("roi/y") == b"deep"
    assert frame.filter(pc.greater(frame["n"], 2)).read_bytes() == [b"ddd", b"ddd"]
    assert frame.filter(np.arange(6) == 1).read_bytes() == [b"bbb"]
    assert len(frame.filter(pc.field("n") < 2)) == 2
    assert "n" not in frame.drop(["n"]).columns
    for names in ([spec.ID], [spec.SUBFILE], ["none"]):
        with pytest.raises(InvalidInputError):
            frame.drop(names)
    with pytest.raises(InvalidInputError):
        frame.select(["none"])
    assert frame.select([]).read("a") == b"aaa"


def test_other_libraries(frame: TortillaFrame) -> None:
    table = frame.to_arrow()
    assert pa.table(frame).equals(table)
    assert pa.RecordBatchReader.from_stream(frame).read_all().equals(table)
    polars = pytest.importorskip("polars")
    assert frame.to_polars().equals(polars.from_arrow(table))
    assert list(pytest.importorskip("pandas").DataFrame(frame.to_pandas())["n"])[:2] == [0, 1]


def test_notebooks_show_text_and_no_markup(frame: TortillaFrame) -> None:
    shown = frame._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "6 rows" in shown
    assert "6 rows" in repr(frame)
    assert "1 nested" in repr(frame)


def test_pickles_lead_to_the_same_bytes(frame: TortillaFrame) -> None:
    copy = pickle.loads(pickle.dumps(frame))
    assert copy.to_arrow().equals(frame.to_arrow())
    assert copy.read("roi").read("y") == b"deep"
    child = pickle.loads(pickle.dumps(frame.read("roi")))
    assert child.read_bytes() == [b"inside", b"deep"]


def _read(frame: TortillaFrame) -> list[bytes]:
    return [*frame.head(5).read_bytes(), frame.read("roi/y")]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_other_processes(frame: TortillaFrame, method: str) -> None:
    expected = _read(frame)
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(_read, frame).result(60) == expected


def test_threads_share_a_frame(frame: TortillaFrame) -> None:
    expected = _read(frame)
    with ThreadPoolExecutor(8) as pool:
        assert all(found == expected for found in pool.map(_read, [frame] * 64))


def test_async_twins(frame: TortillaFrame, path: Path) -> None:
    async def everything() -> None:
        again = await tortilla.open_async(path)
        assert again.to_arrow().equals(frame.to_arrow())
        assert await again.read_async("a") == b"aaa"
        assert await again.read_async("roi/y") == b"deep"
        assert (await again.read_async("roi")).read("y") == b"deep"
        assert await again.read_async("roi/x") == frame.read("roi/x")
        assert await again.read_bytes_async([0, "roi/y"]) == [b"aaa", b"deep"]
        flat = await again.flatten_async()
        assert flat.to_arrow().equals(frame.flatten().to_arrow())
        with pytest.raises(NotInContainerError):
            await again.read_async("nobody")

    asyncio.run(everything())


def test_no_rows_as_python_objects_are_needed_for_a_million(tmp_path: Path) -> None:
    count = 100_000
    table = pa.table(
        {
            spec.ID: pa.array(np.char.add("s", np.arange(count).astype(str))),
            spec.FILE_FORMAT: pa.array(np.repeat("BYTES", count)),
            spec.OFFSET: pa.array(200 + np.arange(count)),
            spec.LENGTH: pa.array(np.ones(count, np.int64)),
        }
    )
    ending = build.footer(table)
    body = bytes(np.arange(count, dtype=np.int64).astype(np.uint8))
    target = tmp_path / "many.tortilla"
    target.write_bytes(build.header(200 + count, len(ending)) + body + ending)
    frame = tortilla.open(target)
    assert frame[spec.SUBFILE][99_999].as_py() == f"/vsisubfile/100199_1,{target}"
    for row in (0, 77_777, 99_999):
        assert frame.read(f"s{row}") == bytes([row % 256])
