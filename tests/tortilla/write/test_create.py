"""One file: bytes where the specification wants them, from every kind of source."""

from __future__ import annotations

import datetime as dt
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal import tortilla
from comal.errors import (
    ConflictError,
    InvalidInputError,
    LimitExceededError,
    ObjectNotFoundError,
    StorageError,
)
from comal.tortilla import STAC, Sample, Samples, Slice, TortillaWarning, create
from tests.servers.http import HttpServer
from tests.tortilla.write.oracle import HEADER, listing, read

DAY = dt.date(2020, 2, 29)
Loose: Any = Sample
"""Without the types of its parameters, for what nobody should write."""

PNG = b"\x89PNG\r\n\x1a\n" + b"picture"


def flat(count: int = 4) -> list[Sample]:
    return [Sample(f"s{n}", path=f"item {n}".encode() * n, number=n) for n in range(count)]


def test_the_bytes_of_a_file(tmp_path: Path) -> None:
    made = create(flat(), tmp_path / "a.tortilla")
    found = read(made)
    payloads = [f"item {n}".encode() * n for n in range(4)]
    assert (found.magic, found.parts) == (b"#y", 1)
    assert found.free == bytes(174)
    assert found.raw[HEADER : found.footer[0]] == b"".join(payloads)
    assert sum(found.footer) == len(found.raw)
    assert found.ids == ["s0", "s1", "s2", "s3"]
    assert found.items == payloads
    assert found.column("tortilla:file_format") == ["BYTES"] * 4
    assert found.column("number") == [0, 1, 2, 3]
    assert found.table.column_names == [
        "tortilla:id",
        "tortilla:file_format",
        "tortilla:offset",
        "tortilla:length",
        "number",
    ]
    assert made.rows == 4
    assert made.paths == (tmp_path / "a.tortilla",)
    assert made.classes == ()
    assert listing(tmp_path) == ["a.tortilla"]


def test_the_order_and_types_of_columns(tmp_path: Path) -> None:
    stac = STAC("EPSG:32718", (10, 20), (0.0, 1.0, 0.0, 0.0, 0.0, -1.0), 5, 6.0, "POINT (0 0)")
    sample = Sample(
        "a",
        "GTiff",
        b"II*\0",
        "train",
        stac,
        {"ele": 3.6, "cisi": 0.5, "admin0": "Peru"},
        **{"ml:score": 0.5, "tags": ["x", "y"]},
    )
    found = read(create([sample], tmp_path / "a.tortilla"))
    kinds = {field.name: str(field.type) for field in found.table.schema}
    assert kinds == {
        "tortilla:id": "string",
        "tortilla:file_format": "string",
        "tortilla:data_split": "string",
        "tortilla:offset": "int64",
        "tortilla:length": "int64",
        "stac:crs": "string",
        "stac:geotransform": "list<element: double>",
        "stac:raster_shape": "list<element: int64>",
        "stac:time_start": "int64",
        "stac:time_end": "int64",
        "stac:centroid": "string",
        "rai:elevation": "int64",
        "rai:cisi": "double",
        "rai:admin0": "string",
        "ml:score": "double",
        "tags": "list<element: string>",
    }
    assert list(kinds) == found.table.column_names
    assert found.column("rai:elevation") == [4]
    assert found.column("stac:centroid") == ["POINT (0 0)"]


def test_every_kind_of_source(tmp_path: Path, http_server: HttpServer) -> None:
    data = os.urandom(3_000)
    large = os.urandom(10_000_000)
    (tmp_path / "file").write_bytes(data)
    (tmp_path / "large").write_bytes(large)
    other = create(
        [Sample("x", path=data), Sample("y", path=[Sample("z", path=large)])],
        tmp_path / "other.tortilla",
    )
    frame = tortilla.open(other)
    url = http_server.put("thing", data)
    sources: dict[str, Any] = {
        "path": tmp_path / "file",
        "text": str(tmp_path / "file"),
        "large": tmp_path / "large",
        "bytes": data,
        "array": bytearray(data),
        "view": memoryview(data),
        "empty": b"",
        "slice": Slice.of(frame, "x"),
        "deep": Slice.of(frame, "y/z"),
        "range": Slice(tmp_path / "file", 10, 100),
        "rest": Slice(str(tmp_path / "file"), 10),
        "url": url,
        "local": (tmp_path / "file").as_uri(),
    }
    made = create(
        [Sample(name, path=source) for name, source in sources.items()], tmp_path / "a.tortilla"
    )
    expected = dict.fromkeys(sources, data) | {
        "large": large,
        "deep": large,
        "empty": b"",
        "range": data[10:110],
        "rest": data[10:],
    }
    assert read(made).tree() == expected


def test_formats_are_told_by_first_bytes(tmp_path: Path) -> None:
    inner = create([Sample("x", path=b"1")], tmp_path / "inner.tortilla").path.read_bytes()
    heads = {
        "GTiff": b"II*\0....",
        "PNG": PNG,
        "JPEG": b"\xff\xd8\xff\xe0",
        "WEBP": b"RIFF1234WEBPVP8 ",
        "HDF5": b"\x89HDF\r\n\x1a\n",
        "Parquet": b"PAR1....",
        "TORTILLA": inner,
    }
    samples = [Sample(name, path=data) for name, data in heads.items()]
    others = [b"#y is how this text begins, is it not", b"RIFF but a sound", b"", b"BM", b"#y"]
    others += [b"#y2", b"WX\0\1"]
    samples += [Sample(f"other{n}", path=data) for n, data in enumerate(others)]
    found = read(create(samples, tmp_path / "a.tortilla"))
    assert found.column("tortilla:file_format") == [*heads, *["BYTES"] * 7]


def test_odd_content_is_told(tmp_path: Path) -> None:
    samples = [
        Sample("zeros", path=bytes(100)),
        Sample("fine", path=b"\0" * 99 + b"x"),
        Sample("none", path=b""),
        Sample("lie", "GTiff", PNG),
    ]
    with pytest.warns(TortillaWarning) as caught:
        create(samples, tmp_path / "a.tortilla")
    told = sorted(str(one.message) for one in caught)
    assert len(told) == 2
    assert "1 of the items, such as 'lie', do not begin like GTiff" in told[0]
    assert "1 of the items, such as 'zeros', hold nothing but zeros" in told[1]


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    def samples() -> list[Sample]:
        nested = [Sample(f"n{n}", path=os.fsencode(f"x{n}")) for n in range(3)]
        return [*flat(300), Sample("deep", path=nested)]

    one, two = (create(samples(), tmp_path / f"{n}.tortilla").path for n in range(2))
    os.utime(one, (1, 1))
    streamed = create(iter(samples()), tmp_path / "3.tortilla").path
    assert one.read_bytes() == two.read_bytes() == streamed.read_bytes()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (list, "no samples"),
        (lambda: iter([]), "no samples"),
        (lambda: Samples([]), "no samples"),
        (lambda: [Loose("a", path=b"1"), Loose("a", path=b"2")], "appears twice"),
        (lambda: [Loose("a", path=b"1"), Loose("A", path=b"2")], "case is ignored"),
        (lambda: (Loose("a", path=b"1") for _ in range(5_000)), "appears twice"),
        (lambda: [Loose("../a", path=b"1")], "holds '/'"),
        (lambda: [Loose("nul", path=b"1")], "device"),
        (lambda: [Loose(7, path=b"1")], "not text"),
        (lambda: [Loose("a", path=b"1", data_split="dev")], "data_split"),
        (lambda: [Loose("a", path=None)], "wrong type"),
        (lambda: [Loose("a", path=3)], "wrong type"),
        (lambda: [Loose("a", path=[])], "holds no samples"),
        (lambda: [Loose("a", path="")], "empty"),
        (lambda: [Loose("a", path=["text"])], "wrong type"),
        (lambda: [Loose("a", path=io.StringIO("text"))], "wrong type"),
        (lambda: [Loose("a", path=b"1", **{"tortilla:new": 3})], "core"),
        (lambda: [Loose("a", path=b"1", **{"internal:subfile": "x"})], "only readers"),
        (lambda: [Loose("a", path=b"1", __index_level_0__=1)], "only readers"),
        (lambda: [Loose("a", path=b"1", **{"x\ny": 1})], "control"),
        (lambda: [Loose("a", path=b"1", **{"x" * 129: 1})], "longer"),
        (lambda: [Loose("a", path=b"1", **{"": 1})], "empty"),
        (lambda: [Loose("a", path=b"1", x=1), Loose("b", path=b"1", x="y")], "has the wrong type"),
        (lambda: [Loose("a", path=b"1", x=DAY), Loose("b", path=b"1", x=5)], "has the wrong type"),
        (lambda: [Loose("a", path=b"1", x=object())], "has the wrong type"),
        (lambda: [Loose("a", path=b"1", stac_data={"raster_shape": [1.5, 2]})], "raster_shape"),
        (lambda: [Loose("a", path=b"1", stac_data={"geotransform": [1, 2]})], "geotransform"),
        (lambda: [Loose("a", path=b"1", stac_data={"time_start": 9, "time_end": 8})], "after"),
        (lambda: [Loose("a", path=b"1", stac_data={"time_start": "soon"})], "point in time"),
        (lambda: [Loose("a", path=b"1", stac_data={"time_start": True})], "point in time"),
        (
            lambda: [Loose("a", path=b"1", stac_data={"colour": 1})],
            "the fields are not those of STAC",
        ),
        (lambda: [Loose("a", path=b"1", stac_data=7)], "not a STAC"),
        (lambda: [Loose("a", "GTiff", [Loose("b", path=b"1")])], "cannot have the format"),
        (lambda: [Loose("a", path=b"1"), "b"], "not a sample"),
        (lambda: {"a": 1}, "neither samples nor a table"),
        (lambda: 7, "neither samples nor a table"),
    ],
)
def test_samples_that_cannot_be(tmp_path: Path, make: Callable[[], Any], match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        create(make(), tmp_path / "a.tortilla")
    assert listing(tmp_path) == []


def test_sources_that_fail_leave_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_bytes(b"1")

    cases: list[tuple[Callable[[], Any], type[BaseException]]] = [
        (lambda: tmp_path / "missing", ObjectNotFoundError),
        (lambda: tmp_path / "real" / "below", ObjectNotFoundError),
        (lambda: tmp_path, InvalidInputError),
        (lambda: tmp_path / "pipe", InvalidInputError),
        (lambda: "a\0b", InvalidInputError),
        (lambda: Slice(tmp_path / "real", 0, 5), StorageError),
    ]
    before = listing(tmp_path)
    for source, kind in cases:
        for file_format in (None, "BYTES"):
            samples = [Sample("a", path=b"first"), Sample("b", file_format, source())]
            with pytest.raises(kind):
                create(samples, tmp_path / "a.tortilla")
            assert listing(tmp_path) == before


def test_targets(tmp_path: Path) -> None:
    target = create(flat(), tmp_path / "a.tortilla").path
    with pytest.raises(ConflictError, match="source"):
        create([Sample("a", path=Slice(target, 0, 5))], target, overwrite=True)
    with pytest.raises(ObjectNotFoundError):
        create(flat(), tmp_path / "absent" / "a.tortilla")
    with pytest.warns(TortillaWarning, match=r"should end in \.tortilla"):
        create(flat(), tmp_path / "a.bin")
    assert listing(tmp_path) == ["a.bin", "a.tortilla"]


def test_settings_of_the_footer(tmp_path: Path) -> None:
    made = create(flat(), tmp_path / "a.tortilla", compression="snappy", statistics=True)
    found = read(made)
    footer = pq.ParquetFile(pa.BufferReader(found.raw[found.footer[0] :])).metadata
    assert footer.row_group(0).column(0).compression == "SNAPPY"
    assert footer.row_group(0).column(0).is_stats_set
    with pytest.raises(InvalidInputError, match="unknown Parquet argument"):
        create(flat(), tmp_path / "b.tortilla", nonsense=1)


def test_too_deep(tmp_path: Path) -> None:
    sample = Sample("leaf", path=b"1")
    for number in range(16):
        sample = Sample(f"n{number}", path=[sample])
    with pytest.raises(LimitExceededError):
        create([sample], tmp_path / "a.tortilla")
