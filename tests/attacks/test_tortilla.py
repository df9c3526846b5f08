"""Broken and hostile Tortilla files: right bytes or an error of ours, and a report either way."""

from __future__ import annotations

import os
import struct
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal import tortilla
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
)
from comal.samples import filters as rules
from comal.tortilla import spec
from comal.tortilla.checking import check
from tests.tortilla import build
from tests.tortilla.build import Item, column, write

LEAVES = {"a": b"first leaf", "b": b"second", "in/x": b"nested leaf", "in/y": b""}
ITEMS = [
    Item("a", LEAVES["a"]),
    Item("b", LEAVES["b"], "GTiff"),
    Item("in", build.built([Item("x", LEAVES["in/x"]), Item("y", b"")]), "TORTILLA"),
]
SOUND = build.built(ITEMS)
FOOTER = struct.unpack("<QQ", SOUND[2:18])


def patched(at: int, *numbers: int) -> bytes:
    """The sound file with other numbers in its header."""
    data = struct.pack(f"<{len(numbers)}Q", *numbers)
    return SOUND[:at] + data + SOUND[at + len(data) :]


def spans(offsets: list[Any], lengths: list[Any], kind: Any = None) -> bytes:
    """The sound file with other spans."""

    def change(table: pa.Table) -> pa.Table:
        table = column(spec.OFFSET, pa.array(offsets, kind))(table)
        return column(spec.LENGTH, pa.array(lengths, kind))(table)

    return build.built(ITEMS, table=change)


def swapped(name: str, values: Any) -> bytes:
    return build.built(ITEMS, table=column(name, values))


def twice_named() -> bytes:
    return build.built(
        ITEMS,
        table=lambda table: pa.Table.from_arrays(
            [*table.columns, table[spec.ID]], names=[*table.column_names, spec.ID]
        ),
    )


def one_bad_child(inner: bytes) -> bytes:
    return build.built([*ITEMS[:2], Item("in", inner, "TORTILLA")])


SPANS = [200, 210, 216]
SIZES = [10, 6, len(ITEMS[2].data)]


@dataclass(frozen=True)
class Attack:
    """One file, and what must come of it."""

    data: bytes
    error: type[ComalError] | None
    """What reading everything raises at the latest; None when it is read right."""
    code: str | None
    """What a check reports; None when it raises."""


ATTACKS: dict[str, Attack] = {
    "empty file": Attack(b"", NotThisFormatError, None),
    "magic alone": Attack(b"#y", InvalidMetadataError, "tortilla-header"),
    "a text that begins with the magic": Attack(
        b"#yaml: this is a comment and nothing else\n" * 9, NotThisFormatError, None
    ),
    "cut in the header": Attack(SOUND[:120], InvalidMetadataError, "tortilla-header"),
    "cut in the data": Attack(SOUND[:400], InvalidMetadataError, "tortilla-header"),
    "cut in the footer": Attack(SOUND[:-1], InvalidMetadataError, "tortilla-header"),
    "footer of 2^62 bytes": Attack(patched(10, 1 << 62), InvalidMetadataError, "tortilla-header"),
    "footer at 2^63": Attack(patched(2, 1 << 63), InvalidMetadataError, "tortilla-header"),
    "offset and length that wrap": Attack(
        patched(2, (1 << 64) - 8, 16), InvalidMetadataError, "tortilla-header"
    ),
    "footer in the header": Attack(
        patched(2, 0, len(SOUND)), InvalidMetadataError, "tortilla-header"
    ),
    "footer over the data": Attack(
        patched(2, 200, len(SOUND) - 200), InvalidMetadataError, "tortilla-footer"
    ),
    "empty footer": Attack(patched(10, 0), InvalidMetadataError, "tortilla-footer"),
    "zeros for a footer": Attack(
        SOUND[: FOOTER[0]] + bytes(FOOTER[1]), InvalidMetadataError, "tortilla-footer"
    ),
    "a collection of 2^63 bytes": Attack(
        b"WX" + patched(26, FOOTER[0], 1 << 63)[2:], InvalidMetadataError, "tortilla-header"
    ),
    "a ZIP": Attack(b"PK\x03\x04".ljust(200, b"\0"), NotThisFormatError, None),
    "a TACO without a collection": Attack(
        b"WX" + SOUND[2:], InvalidMetadataError, "tortilla-header"
    ),
    "2^63 parts": Attack(patched(18, 1 << 63), None, "tortilla-name"),
    "no parts": Attack(patched(18, 0), None, "tortilla-part-count"),
    "negative offset": Attack(
        spans([-1, *SPANS[1:]], SIZES), InvalidMetadataError, "tortilla-span-bounds"
    ),
    "negative length": Attack(
        spans(SPANS, [-1, *SIZES[1:]]), InvalidMetadataError, "tortilla-span-bounds"
    ),
    "offset past the end": Attack(
        spans([1 << 40, *SPANS[1:]], SIZES), InvalidMetadataError, "tortilla-span-bounds"
    ),
    "span that wraps": Attack(
        spans([(1 << 63) - 1, *SPANS[1:]], [(1 << 63) - 1, *SIZES[1:]]),
        InvalidMetadataError,
        "tortilla-span-bounds",
    ),
    "span that wraps without a sign": Attack(
        spans([(1 << 64) - 1, *SPANS[1:]], [(1 << 64) - 1, *SIZES[1:]], pa.uint64()),
        InvalidMetadataError,
        "tortilla-span-bounds",
    ),
    "span over the footer": Attack(
        spans(SPANS, [10, 6, SIZES[2] + 1]), InvalidMetadataError, "tortilla-span-bounds"
    ),
    "span over the header": Attack(
        spans([0, *SPANS[1:]], SIZES), InvalidMetadataError, "tortilla-span-bounds"
    ),
    "null offset": Attack(
        spans([None, *SPANS[1:]], SIZES), InvalidMetadataError, "tortilla-column-null"
    ),
    "offsets that are not integers": Attack(
        spans([200.5, 210.0, 216.0], [10.0, 6.0, 1.0]), InvalidMetadataError, "tortilla-column-type"
    ),
    "partial overlap": Attack(
        spans([200, 205, 216], SIZES), InvalidMetadataError, "tortilla-span-overlap"
    ),
    "a nested file that covers its own file": Attack(
        spans([200, 210, 0], [10, 6, len(SOUND)]), InvalidMetadataError, "tortilla-span-bounds"
    ),
    "a nested file that is the outer one": Attack(
        one_bad_child(SOUND[:200]), InvalidMetadataError, "tortilla-nested"
    ),
    "nested too deep": Attack(build.deep(18), LimitExceededError, "tortilla-depth"),
    "a nested file that is none": Attack(
        one_bad_child(b"nothing of the kind"), InvalidMetadataError, "tortilla-nested"
    ),
    "a nested file that is cut short": Attack(
        one_bad_child(ITEMS[2].data[:-9]), InvalidMetadataError, "tortilla-nested"
    ),
    "a nested footer of 2^62 bytes": Attack(
        one_bad_child(ITEMS[2].data[:10] + struct.pack("<Q", 1 << 62) + ITEMS[2].data[18:]),
        InvalidMetadataError,
        "tortilla-nested",
    ),
    "a core name appears twice": Attack(twice_named(), InvalidMetadataError, "tortilla-footer"),
    "column names with control characters": Attack(
        swapped("a\nb", pa.array([1, 2, 3])), InvalidMetadataError, "tortilla-footer"
    ),
    "column names without end": Attack(
        swapped("n" * 500, pa.array([1, 2, 3])), LimitExceededError, "limit-exceeded"
    ),
    "ids are numbers": Attack(
        swapped(spec.ID, pa.array([1, 2, 3])), InvalidMetadataError, "tortilla-column-type"
    ),
    **{
        f"no column {name}": Attack(
            build.built(ITEMS, table=lambda table, name=name: table.drop_columns([name])),
            InvalidMetadataError,
            "tortilla-column-missing",
        )
        for name in (spec.ID, spec.FILE_FORMAT, spec.OFFSET)
    },
    "lengths that are all null": Attack(
        swapped(spec.LENGTH, pa.nulls(3)), InvalidMetadataError, "tortilla-column-type"
    ),
    "a format that is null": Attack(
        swapped(spec.FILE_FORMAT, pa.array(["BYTES", None, "TORTILLA"])),
        InvalidMetadataError,
        "tortilla-column-null",
    ),
    "formats that are bytes": Attack(
        swapped(spec.FILE_FORMAT, pa.array([b"BYTES"] * 3)),
        InvalidMetadataError,
        "tortilla-column-type",
    ),
    **{
        f"overlap at {offset} of {length} bytes": Attack(
            spans([200, offset, 216], [10, length, SIZES[2]]),
            InvalidMetadataError,
            "tortilla-span-overlap",
        )
        for offset, length in ((203, 10), (202, 2), (200, 4))
    },
    "unknown format": Attack(
        swapped(spec.FILE_FORMAT, pa.array(["../../etc", "GTiff", "TORTILLA"])),
        None,
        "tortilla-format",
    ),
    "stored paths of another machine": Attack(
        swapped(spec.SUBFILE, pa.array(["/etc/passwd"] * 3)), None, "tortilla-stored-path"
    ),
    "rows and cells that the footer only claims": Attack(
        swapped("n", pa.nulls(3)).replace(b"\x16\x06", b"\x16\x7e"),
        InvalidMetadataError,
        "tortilla-footer",
    ),
}


def everything(path: Path) -> dict[str, bytes]:
    """Every leaf in every way; whatever is wrong must be an error of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = tortilla.open(path)
        flat = frame.flatten()
        found = dict(zip(flat[spec.PATH].to_pylist(), flat.read_bytes(), strict=True))
        names = [name for name, _ in frame.walk()]
    assert names == list(found)
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_right_bytes_or_our_error(name: str, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    path = write(tmp_path, attack.data)
    if attack.error is None:
        assert everything(path) == LEAVES
        return
    with pytest.raises(attack.error) as caught:
        everything(path)
    assert isinstance(caught.value, ComalError)
    assert len(str(caught.value).splitlines()[0]) < 400


@pytest.mark.parametrize("name", ATTACKS)
def test_check_reports_it(name: str, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    path = write(tmp_path, attack.data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if attack.code is None:
            with pytest.raises(NotThisFormatError):
                tortilla.check(path)
            return
        report = tortilla.check(path)
    assert attack.code in report.counts
    if attack.error is not None:
        assert not report.ok


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_is_allocated_that_a_file_merely_claims(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, ATTACKS[name].data)
    tortilla.check(write(tmp_path, SOUND))  # imports and caches
    path.write_bytes(ATTACKS[name].data)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        for attempt in (everything, tortilla.check):
            try:
                attempt(path)
            except ComalError:
                continue
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        assert pa.total_allocated_bytes() - before < 8 << 20
    finally:
        tracemalloc.stop()


def test_ids_that_stand_twice_or_not_at_all(tmp_path: Path) -> None:
    path = write(tmp_path, swapped(spec.ID, pa.array(["a", "a", None])))
    frame = tortilla.open(path)
    assert frame.read_bytes(1) == LEAVES["b"]
    with pytest.raises(ComalError, match="2 rows"):
        frame.read("a")
    assert frame.read(2).read("x") == LEAVES["in/x"]
    assert tortilla.check(path).counts == {
        "tortilla-id-twice": 1,
        "tortilla-id-null": 1,
        "tortilla-magic": 1,
    }


def test_ids_are_data_and_never_paths(tmp_path: Path) -> None:
    names = ["../../etc/passwd", "/etc/passwd", "a:b\n"]
    path = write(tmp_path, swapped(spec.ID, pa.array(names)))
    frame = tortilla.open(path)
    assert frame.read_bytes(names[0]) == LEAVES["a"]
    assert frame.read(f"{names[2]}/x") == LEAVES["in/x"]
    assert frame.vsi(names[1]) == f"/vsisubfile/210_6,{path}"


def test_a_thousand_systems_that_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def unknown(name: str) -> None:
        asked.append(name)  # PROJ takes a quarter of a second to say so
        raise InvalidInputError("invalid CRS")

    monkeypatch.setattr(rules, "projection", unknown)
    items = [Item(f"s{number}", b"x") for number in range(1_000)]
    names = pa.array([f"system {number}" for number in range(1_000)])
    report = check(write(tmp_path, build.built(items, table=column(spec.CRS, names))))
    assert report.counts["tortilla-crs"] == len(asked) == 20


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_regular_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "x.tortilla"
    make(path)
    with pytest.raises(NotThisFormatError):
        tortilla.open(path)
    with pytest.raises(NotThisFormatError):
        tortilla.check(path)


def test_a_file_that_shrinks_while_it_is_open(tmp_path: Path) -> None:
    path = write(tmp_path, SOUND)
    frame = tortilla.open(path)
    path.write_bytes(SOUND[:205])
    with pytest.raises(ComalError):
        frame.read("a")
