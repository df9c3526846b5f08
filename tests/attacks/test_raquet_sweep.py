"""RaQuet files with a byte changed, cut short, or mutated by chance.

Each run takes a sample of the places; ``COMAL_FULL_SWEEP=1`` takes all of them.
"""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comal import raquet
from comal.errors import ComalError
from comal.grid import quadbin
from comal.raquet import CODES
from tests.attacks.test_mutants import _JSON
from tests.attacks.test_sweep import _FULL, _SEED
from tests.attacks.tilereading import Key, read_raquet
from tests.raquet.checking.damage import TILES, nested, pixels, sound
from tests.raquet.writing.sources import noise, on_grid

PLACES = 120
"""Of about 20 000 bytes, with each of which a file is read by every door."""
MUTANTS = 600
"""For each way to write a file."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, Any]]:
    """Files that comal wrote, and their pixels as they were read when nothing was changed."""
    folder = tmp_path_factory.mktemp("sweep")
    found = {}
    source = on_grid(folder / "a.tif", noise((2, 70, 90), "uint8") // 8 * 8, nodata=0)
    kinds: dict[str, dict[str, Any]] = {
        "0.1.0": {},
        "0.5.0": {"spec_version": "0.5.0", "tile_statistics": True, "compression": None},
        "interleaved": {"spec_version": "0.5.0", "layout": "interleaved"},
    }
    for name, options in kinds.items():
        path = folder / f"{name}.parquet"
        raquet.write(source, path, block_size=32, min_zoom=9, **options)
        found[name] = (path.read_bytes(), _truth(path))
    return found


def _truth(path: Path) -> dict[Key, dict[str, Any]]:
    with raquet.open(path) as raster:
        z, x, y = quadbin.tiles(raster.cells())
        keys = zip(z.tolist(), x.tolist(), y.tolist(), strict=True)
        return {
            key: {
                band.name: raster.tile(*key, bands=[band.name])[0].copy() for band in raster.bands
            }
            for key in keys
        }


def _places(count: int, name: str) -> list[int]:
    if _FULL:
        return list(range(count))
    return sorted(random.Random(f"{_SEED}{name}").sample(range(count), min(PLACES, count)))


def _checked(path: Path) -> bool:
    """Whether a check finds nothing, not even something to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            report = raquet.check(path, statistics=True)
        except ComalError:
            return False
    assert set(report.counts) <= set(CODES)
    return report.total == 0


@pytest.mark.parametrize("name", ["0.1.0", "0.5.0", "interleaved"])
def test_no_changed_byte_is_handed_out(name: str, files: Any, tmp_path: Path) -> None:
    data, truth = files[name]
    assert 10_000 < len(data) < 100_000
    target = tmp_path / "swept.parquet"
    places = _places(len(data), name)
    for number, place in enumerate(places):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        target.write_bytes(changed)
        found = read_raquet(target, truth)
        assert found.wrong == [], f"byte {place}"
        if number % 8 == 0 or _FULL:
            _checked(target)


def test_no_shortened_file_is_taken_for_whole(files: Any, tmp_path: Path) -> None:
    data, truth = files["0.1.0"]
    target = tmp_path / "cut.parquet"
    for size in _places(len(data), "cut"):
        target.write_bytes(data[:size])
        found = read_raquet(target, truth)
        assert not found.opened, f"cut to {size}"
        assert found.errors
        assert not _checked(target)


def mutated(data: bytes, numbers: random.Random) -> bytes:
    """Bytes cut out, put in, moved, zeroed or exchanged for others, at a few places."""
    mutant = bytearray(data)
    for _ in range(numbers.randint(1, 4)):
        start = numbers.randint(0, len(mutant))
        if numbers.random() < 0.4:  # the footer is small and says the most
            start = max(0, len(mutant) - numbers.randint(0, 3_000))
        piece = bytes(mutant[start : start + numbers.choice([1, 2, 4, 8, 60, 500])])
        stop = start + len(piece)
        kind = numbers.randrange(6)
        if kind == 0:
            del mutant[start:stop]
        elif kind == 1:
            mutant[start:stop] = bytes(len(piece))
        elif kind == 2:
            mutant[start:stop] = numbers.randbytes(len(piece))
        elif kind == 3:
            mutant[start:stop] = b"\xff" * len(piece)
        else:
            at = numbers.randint(0, len(mutant))
            mutant[at : at + (len(piece) if kind == 4 else 0)] = piece
    return bytes(mutant)


@pytest.mark.parametrize("name", ["0.1.0", "0.5.0", "interleaved"])
def test_mutants(name: str, files: Any, tmp_path: Path) -> None:
    data, truth = files[name]
    numbers = random.Random(f"{_SEED}{name}")
    target = tmp_path / "mutant.parquet"
    some = dict(list(truth.items())[:: max(1, len(truth) // 3)])
    for _ in range(MUTANTS):
        target.write_bytes(mutated(data, numbers))
        assert read_raquet(target, some).wrong == []


_SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_KEYS = [
    "version", "compression", "bounds", "width", "height", "num_blocks", "bands", "center",
    "minresolution", "maxresolution", "block_resolution", "block_width", "block_height", "nodata",
    "pixel_resolution", "time", "custom", "tiling", "crs", "band_layout", "tile_statistics",
]  # fmt: skip
_BAND_KEYS = [
    "name", "type", "nodata", "colorinterp", "colortable", "stats", "scale", "offset", "unit",
    "description", "histogram", "STATISTICS_MINIMUM", "source_band",
]  # fmt: skip


@_SETTINGS
@given(
    deep=st.booleans(),
    in_band=st.booleans(),
    data=st.data(),
    value=_JSON | st.floats() | st.integers(-(2**70), 2**70),
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
    truth = {tile: {"band_1": pixels(number)} for number, tile in enumerate(TILES)}
    found = read_raquet(path, truth)
    # Another block size, compression or type that fits would be a legal file of other pixels.
    assert all(np.size(truth[key]["band_1"]) == 256 for key in truth)
    assert found.wrong == []
    _checked(path)
