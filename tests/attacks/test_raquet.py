"""Broken and hostile RaQuet files through every door: right pixels or an error of ours."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import raquet
from comal.errors import InvalidMetadataError, LimitExceededError
from tests.attacks.reading import checked, commands, held, read_raquet
from tests.attacks.test_mutants import JSON
from tests.raquet.build import cell
from tests.raquet.checking.damage import File, nested, packed, pixels, row_of, sound
from tests.raquet.checking.test_check import TRUTH, Damage, band, footer_of, whole

MIDDLE = (3, 5, 2)


def with_zeros(size: int, wbits: int, header: str = "") -> Callable[[File], None]:
    """A blob that grows a thousand times."""

    def damage(file: File) -> None:
        packed = zlib.compress(bytes(size), 1, wbits)
        row_of(file, MIDDLE)["band_1"] = bytes.fromhex(header) + packed

    return damage


def with_rows(count: int) -> Callable[[File], None]:
    """Many rows with the same small blob in them, by a dictionary."""

    def damage(file: File) -> None:
        blob = packed(pixels(0))
        file.rows += [{"block": cell(MIDDLE), "band_1": blob} for _ in range(count)]
        file.rows.sort(key=lambda row: row["block"])
        file.settings |= {"use_dictionary": ["band_1"], "max_rows_per_page": 20_000}

    return damage


def document(**change: Any) -> Callable[[File], None]:
    def damage(file: File) -> None:
        file.document |= change

    return damage


def nested_column(file: File) -> None:
    kind = pa.int8()
    for _ in range(20):
        kind = pa.list_(kind)
    file.schema = file.schema.append(pa.field("deep", kind))


def many_columns(file: File) -> None:
    for number in range(2_100):
        file.schema = file.schema.append(pa.field(f"c{number}", pa.int8()))


def many_bands(file: File) -> None:
    band = file.document["bands"][0]
    file.document["bands"] = [{**band, "name": f"b{number}"} for number in range(5_000)]


def long_json(file: File) -> None:
    file.document["custom"] = {"text": "x" * (17 << 20)}
    file.settings["compression"] = "zstd"


def encrypted(file: File) -> None:
    file.after = lambda data: b"PARE" + data[4:-4] + b"PARE"


def huge_tiles(file: File) -> None:
    """Tiles of 8192 x 8192 pixels of eight bytes, which is over the limit of one."""
    file.document |= {"block_width": 8192, "block_height": 8192, "width": 16384, "height": 16384}
    file.document["bands"][0]["type"] = "float64"


def huge_window(file: File) -> None:
    """A file of five small tiles whose document promises the whole world at zoom 26."""
    file.document |= {
        "maxresolution": 26,
        "block_resolution": 26,
        "bounds": [-180.0, -85.0511287798066, 180.0, 85.0511287798066],
        "width": 1 << 30,
        "height": 1 << 30,
    }


def header_of_gzip(file: File) -> None:
    """A member whose header has no end: the name goes on and on."""
    row_of(file, MIDDLE)["band_1"] = b"\x1f\x8b\x08\x08" + bytes(6) + b"x" * 100_000


def members(file: File) -> None:
    row_of(file, MIDDLE)["band_1"] = gzip.compress(b"", mtime=0) * 20_000


TOO_MUCH = (LimitExceededError, InvalidMetadataError)

BOMBS: dict[str, tuple[Damage, bool]] = {
    "a gzip bomb in a tile": (with_zeros(256 << 20, 31), True),
    "a zlib bomb in a tile": (with_zeros(64 << 20, 15), True),
    "a hybrid bomb in a tile": (with_zeros(64 << 20, 15, "1f8b0800000000000003"), True),
    "twenty thousand empty members": (members, True),
    "a gzip header without end": (header_of_gzip, True),
    "a tile that stands there two thousand times": (with_rows(2_000), True),
    "metadata of 17 MiB": (long_json, False),
    "metadata that nest a million deep": (whole(text="[" * 1_000_000), False),
    "an integer of a million digits": (whole(text='{"version": ' + "9" * 1_000_000 + "}"), False),
    "five thousand bands without columns": (many_bands, False),
    "two thousand columns more": (many_columns, False),
    "a column nested twenty deep": (nested_column, False),
    "tiles of half a gigabyte": (huge_tiles, True),
    "a world of 2**60 pixels": (huge_window, True),
}
"""Damage, and whether the file can be opened all the same, other tiles being right."""


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_take_no_memory_and_no_time(name: str, tmp_path: Path) -> None:
    damage, opens = BOMBS[name]
    file = sound()
    damage(file)
    path = file.write(tmp_path / "bomb.parquet")
    assert path.stat().st_size < 2 << 20
    with held(memory=160 << 20):
        found = read_raquet(path, TRUTH)
    assert found.wrong == []
    assert found.errors
    assert all(isinstance(error, TOO_MUCH) for error in found.errors)
    assert found.opened == opens
    with held(memory=160 << 20):
        report = checked(raquet, path, TOO_MUCH)
    assert report is None or not report.ok


@pytest.mark.parametrize(
    "damage",
    [footer_of(1 << 30), encrypted, document(version="2.0.0"), band(description="\x1b[31m")],
)
def test_commands_end_as_they_say(damage: Callable[[File], None], tmp_path: Path) -> None:
    """Whatever a file holds, no bug is reported and nothing paints the terminal."""
    file = sound()
    damage(file)
    exits = commands(file.write(tmp_path / "attack.parquet"))
    assert not any("\x1b" in output for _, output in exits.values())


_KEYS = [
    "version", "compression", "bounds", "width", "height", "num_blocks", "bands", "center",
    "minresolution", "maxresolution", "block_resolution", "block_width", "block_height", "nodata",
    "pixel_resolution", "time", "custom", "tiling", "crs", "band_layout", "tile_statistics",
]  # fmt: skip
_BAND_KEYS = [
    "name", "type", "nodata", "colorinterp", "colortable", "stats", "scale", "offset", "unit",
    "description", "histogram", "STATISTICS_MINIMUM", "source_band",
]  # fmt: skip


@settings(max_examples=25)
@given(
    deep=st.booleans(),
    in_band=st.booleans(),
    data=st.data(),
    value=JSON | st.floats() | st.integers(-(2**70), 2**70),
)
def test_any_value_in_the_metadata(
    tmp_path: Path, deep: bool, in_band: bool, data: st.DataObject, value: Any
) -> None:
    file = nested() if deep else sound()
    keys = _BAND_KEYS if in_band else _KEYS
    place = file.document["bands"][0] if in_band else file.document
    if deep and not in_band and data.draw(st.booleans()):
        place, keys = file.document["tiling"], [*file.document["tiling"]]
    place[data.draw(st.sampled_from(keys))] = value
    path = file.write(tmp_path / "mutant.parquet")
    assert read_raquet(path, TRUTH).wrong == []
    checked(raquet, path, statistics=True)
