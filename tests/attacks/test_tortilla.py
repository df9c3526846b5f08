"""Broken and hostile Tortilla files: right bytes or an error of ours, and a report either way."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
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
from tests.attacks.reading import checked, read_tortilla
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


NO_TORTILLA = {
    "empty file": b"",
    "a ZIP": b"PK\x03\x04".ljust(200, b"\0"),
    "a text that begins with the magic": b"#yaml: this is a comment and nothing else\n" * 9,
}
BROKEN: dict[str, dict[str, bytes]] = {
    "tortilla-header": {
        "magic alone": b"#y",
        "cut in the header": SOUND[:120],
        "cut in the data": SOUND[:400],
        "cut in the footer": SOUND[:-1],
        "footer of 2^62 bytes": patched(10, 1 << 62),
        "footer at 2^63": patched(2, 1 << 63),
        "offset and length that wrap": patched(2, (1 << 64) - 8, 16),
        "footer in the header": patched(2, 0, len(SOUND)),
        "a collection of 2^63 bytes": b"WX" + patched(26, FOOTER[0], 1 << 63)[2:],
        "a TACO without a collection": b"WX" + SOUND[2:],
    },
    "tortilla-footer": {
        "footer over the data": patched(2, 200, len(SOUND) - 200),
        "empty footer": patched(10, 0),
        "zeros for a footer": SOUND[: FOOTER[0]] + bytes(FOOTER[1]),
        "a core name appears twice": twice_named(),
        "column names with control characters": swapped("a\nb", pa.array([1, 2, 3])),
        "rows and cells that the footer only claims": swapped("n", pa.nulls(3)).replace(
            b"\x16\x06", b"\x16\x7e"
        ),
    },
    "tortilla-span-bounds": {
        "negative offset": spans([-1, *SPANS[1:]], SIZES),
        "negative length": spans(SPANS, [-1, *SIZES[1:]]),
        "offset past the end": spans([1 << 40, *SPANS[1:]], SIZES),
        "span that wraps": spans([(1 << 63) - 1, *SPANS[1:]], [(1 << 63) - 1, *SIZES[1:]]),
        "span that wraps without a sign": spans(
            [(1 << 64) - 1, *SPANS[1:]], [(1 << 64) - 1, *SIZES[1:]], pa.uint64()
        ),
        "span over the footer": spans(SPANS, [10, 6, SIZES[2] + 1]),
        "span over the header": spans([0, *SPANS[1:]], SIZES),
        "a nested file that covers its own file": spans([200, 210, 0], [10, 6, len(SOUND)]),
    },
    "tortilla-span-overlap": {
        "partial overlap": spans([200, 205, 216], SIZES),
        **{
            f"overlap at {offset} of {length} bytes": spans(
                [200, offset, 216], [10, length, SIZES[2]]
            )
            for offset, length in ((203, 10), (202, 2), (200, 4))
        },
    },
    "tortilla-nested": {
        "a nested file that is the outer one": one_bad_child(SOUND[:200]),
        "a nested file that is none": one_bad_child(b"nothing of the kind"),
        "a nested file that is cut short": one_bad_child(ITEMS[2].data[:-9]),
        "a nested footer of 2^62 bytes": one_bad_child(
            ITEMS[2].data[:10] + struct.pack("<Q", 1 << 62) + ITEMS[2].data[18:]
        ),
    },
    "tortilla-column-missing": {
        f"no column {name}": build.built(
            ITEMS, table=lambda table, name=name: table.drop_columns([name])
        )
        for name in (spec.ID, spec.FILE_FORMAT, spec.OFFSET)
    },
    "tortilla-column-null": {
        "null offset": spans([None, *SPANS[1:]], SIZES),
        "a format that is null": swapped(spec.FILE_FORMAT, pa.array(["BYTES", None, "TORTILLA"])),
    },
    "tortilla-column-type": {
        "offsets that are not integers": spans([200.5, 210.0, 216.0], [10.0, 6.0, 1.0]),
        "ids are numbers": swapped(spec.ID, pa.array([1, 2, 3])),
        "lengths that are all null": swapped(spec.LENGTH, pa.nulls(3)),
        "formats that are bytes": swapped(spec.FILE_FORMAT, pa.array([b"BYTES"] * 3)),
    },
}
"""By the code that a check reports; somewhere they are an error to whoever reads everything."""
TOO_MUCH = {
    "limit-exceeded": {"column names without end": swapped("n" * 500, pa.array([1, 2, 3]))},
    "tortilla-depth": {"nested too deep": build.deep(18)},
}
ODD = {
    "tortilla-name": {"2^63 parts": patched(18, 1 << 63)},
    "tortilla-part-count": {"no parts": patched(18, 0)},
    "tortilla-format": {
        "unknown format": swapped(spec.FILE_FORMAT, pa.array(["../../etc", "GTiff", "TORTILLA"]))
    },
    "tortilla-stored-path": {
        "stored paths of another machine": swapped(spec.SUBFILE, pa.array(["/etc/passwd"] * 3))
    },
}
"""What is read all the same."""
Attack = tuple[bytes, str, type[ComalError] | None]
ATTACKS: dict[str, Attack] = {
    **{name: (data, "", NotThisFormatError) for name, data in NO_TORTILLA.items()},
    **{
        name: (data, code, error)
        for table, error in (
            (BROKEN, InvalidMetadataError),
            (TOO_MUCH, LimitExceededError),
            (ODD, None),
        )
        for code, named in table.items()
        for name, data in named.items()
    },
}
"""Bytes, the code that a check reports, and the error of whoever reads everything."""


@pytest.mark.parametrize("name", ATTACKS)
def test_right_bytes_or_our_error_and_a_report(name: str, tmp_path: Path) -> None:
    """Nothing is allocated that a file merely claims."""
    data, code, error = ATTACKS[name]
    tortilla.check(write(tmp_path, SOUND))  # imports and caches
    path = write(tmp_path, data)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        found, report = read_tortilla(path, LEAVES), checked(tortilla, path, (NotThisFormatError,))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        assert pa.total_allocated_bytes() - before < 8 << 20
    finally:
        tracemalloc.stop()
    assert found.wrong == []
    assert (report is None) == (not code)
    assert report is None or code in report.counts
    assert report is None or (report.container == "taco-v1") == data.startswith(b"WX")
    if error is None:
        assert (found.errors, found.right) == ([], set(LEAVES))
        return
    (caught,) = found.errors
    assert isinstance(caught, error)
    assert report is None or not report.ok


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
