"""Files of every format with a byte changed, cut short, or mutated by chance.

Each run takes a sample of the places; ``COMAL_FULL_SWEEP=1`` takes all of them, and more mutants.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from comal import raquet, tapalcatl, tortilla
from comal.errors import ComalError, NotThisFormatError, UnsupportedVersionError
from comal.grid import quadbin
from comal.taco import checking
from tests.attacks.build import FLAT, NESTED, Recipe
from tests.attacks.corpus import FULL
from tests.attacks.reading import (
    Key,
    checked,
    read_everything,
    read_raquet,
    read_tileset,
    read_tortilla,
)
from tests.attacks.test_tortilla import ITEMS, LEAVES
from tests.fuzz.raquets import KINDS
from tests.raquet.writing.sources import noise, on_grid
from tests.tapalcatl.making import listed, payload, pyramid
from tests.tortilla import build as tortillas

_SEED = int(os.environ.get("COMAL_SWEEP_SEED", "20251121"))
_MORE = 20
"""Times as many mutants of a full sweep."""
_LOOKED_AT = 20
"""Of so many mutants one is checked as well."""


@dataclass(frozen=True)
class Swept:
    """A sound file, and how it is read and checked."""

    data: bytes
    read: Callable[[Path], Any]
    """Reads everything; `wrong` is what came and was not right, `right` what came and was."""
    format: Any
    """What has its `check` and `CODES`."""
    unused: set[int] | None = None
    """Bytes that a check need not miss; None where no checksum covers the file."""
    where: Sequence[int] = ()
    """Bytes that are changed, where not all: payloads of a Tortilla are not proven."""
    places: int = 25
    mutants: int = 0
    checked: bool = False
    """Whether each mutant is checked."""
    raises: tuple[type[ComalError], ...] = (ComalError,)
    """What a check may raise."""


def header_fields(data: bytes) -> set[int]:
    """Offsets of fields of a directory that no reader uses and that stand once: who made the
    entry, and its attributes."""
    found = set()
    end = data.rfind(b"PK\x05\x06")
    position, size = struct.unpack_from("<I", data, end + 16)[0], 0
    while position < end:
        found |= {position + 4, position + 5}  # version made by
        found |= set(range(position + 36, position + 42))  # internal and external attributes
        size = 46 + sum(struct.unpack_from("<3H", data, position + 28))
        position += size
    return found


def fields_without_use(data: bytes) -> set[int]:
    """Also versions, times, disks and the text of the comment, which no checksum covers."""
    found = {*header_fields(data), *range(data.rindex(b"PK\5\6") + 22, len(data))}
    for mark, version, times in ((b"PK\3\4", 4, 10), (b"PK\1\2", 6, 12)):
        at = data.find(mark)
        while at >= 0:
            found |= {at + version, at + version + 1, *range(at + times, at + times + 4)}
            if mark == b"PK\1\2":
                found |= {at + 34, at + 35}
            at = data.find(mark, at + 4)
    return found


def _tacos() -> Iterator[tuple[str, Swept]]:
    for name, tree in (("taco flat", FLAT), ("taco nested", NESTED)):
        data = Recipe(tree=tree).build()
        yield (
            name,
            Swept(
                data,
                partial(read_everything, tree=tree),
                checking,
                header_fields(data),
                places=16,
                mutants=8,
                checked=True,
                raises=(NotThisFormatError, UnsupportedVersionError),
            ),
        )


def _tortillas() -> Iterator[tuple[str, Swept]]:
    data = tortillas.built(ITEMS, write_page_checksum=True)
    at, size = struct.unpack("<QQ", data[2:18])
    where = [*range(26), *range(at, at + size)]
    # Names may have suffered; bytes are those of some leaf, or of the nested file as one.
    read = partial(read_tortilla, truth={f"/{n}": one for n, one in enumerate(_BYTES)})
    yield "tortilla", Swept(data, read, tortilla, where=where, mutants=50, checked=True)


_BYTES = [*LEAVES.values(), ITEMS[2].data]


def _tilesets(folder: Path) -> Iterator[tuple[str, Swept]]:
    """An archive as it is built, and one that was updated."""
    for name, kind in (("stored", "png"), ("deflated", "json")):
        truth = pyramid(3, kind=kind)
        tapalcatl.build(listed(truth), folder / name, materialized_zooms=[0], metatile=1)
        data = (folder / name / "0/0/0.zip").read_bytes()
        read = partial(read_tileset, truth=truth)
        unused = fields_without_use(data)
        yield f"tapalcatl {name}", Swept(data, read, tapalcatl, unused, mutants=150)
    path = folder / "stored" / "0/0/0.zip"
    new = {(3, 1, 1): payload(9, 1, 1), (0, 0, 0): payload(9, 2, 2)}
    tapalcatl.put(path, listed(new))
    tapalcatl.delete(path, [(2, 2, 2)])
    older = pyramid(3)
    newer = {key: data for key, data in {**older, **new}.items() if key != (2, 2, 2)}

    def either(path: Path) -> Any:
        # Without its last end an archive is what it was before, or refused.
        now = read_tileset(path, newer)
        return now if now.wrong == [] else read_tileset(path, older)

    yield "tapalcatl updated", Swept(path.read_bytes(), either, tapalcatl)


def _rasters(folder: Path) -> Iterator[tuple[str, Swept]]:
    """Files that comal wrote, and their pixels as they were read when nothing was changed."""
    source = on_grid(folder / "a.tif", noise((2, 70, 90), "uint8") // 8 * 8, nodata=0)
    for name, options in KINDS.items():
        path = folder / f"{name}.parquet"
        raquet.write(source, path, block_size=32, min_zoom=9, **options)
        read = partial(read_raquet, truth=_pixels(path))
        yield f"raquet {name}", Swept(path.read_bytes(), read, raquet, mutants=100)


def _pixels(path: Path) -> Mapping[Key, Mapping[str, Any]]:
    with raquet.open(path) as raster:
        z, x, y = quadbin.tiles(raster.cells())
        keys = zip(z.tolist(), x.tolist(), y.tolist(), strict=True)
        return {
            key: {
                band.name: raster.tile(*key, bands=[band.name])[0].copy() for band in raster.bands
            }
            for key in keys
        }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Swept]:
    tiles, rasters = tmp_path_factory.mktemp("tiles"), tmp_path_factory.mktemp("rasters")
    return dict([*_tacos(), *_tortillas(), *_tilesets(tiles), *_rasters(rasters)])


NAMES = [
    *("taco flat", "taco nested", "tortilla", "tapalcatl stored", "tapalcatl deflated"),
    *("raquet 0.1.0", "raquet 0.5.0", "raquet interleaved"),
]


def some(count: int, wanted: int, name: str) -> list[int]:
    """All numbers below `count`, or a sample of them that is the same in every run."""
    if FULL:
        return list(range(count))
    return sorted(random.Random(f"{_SEED}{name}").sample(range(count), min(wanted, count)))


@pytest.mark.parametrize("name", [*NAMES, "tapalcatl updated"])
def test_no_changed_byte_is_handed_out_or_missed(
    name: str, files: dict[str, Swept], tmp_path: Path
) -> None:
    file, target, missed = files[name], tmp_path / "swept", []
    target.write_bytes(file.data)
    sound = checked(file.format, target, raises=())
    assert sound is not None
    where = file.where or range(len(file.data))
    for number, index in enumerate(some(len(where), file.places, name)):
        place, changed = where[index], bytearray(file.data)
        changed[place] ^= 1 << (place % 8)
        target.write_bytes(changed)
        assert file.read(target).wrong == [], f"byte {place}"
        if file.unused is not None or number % 8 == 0 or FULL:
            report = checked(file.format, target, file.raises)
            if report is not None and report.counts == sound.counts:
                missed.append(place)
    assert file.unused is None or set(missed) <= file.unused


@pytest.mark.parametrize("name", NAMES)
def test_no_shortened_file_is_taken_for_whole(
    name: str, files: dict[str, Swept], tmp_path: Path
) -> None:
    file, target = files[name], tmp_path / "cut"
    for size in some(len(file.data), file.places, name + "cut"):
        target.write_bytes(file.data[:size])
        found = file.read(target)
        assert found.wrong == [], f"cut to {size}"
        # What the header of a TACO leads to may all be there; a check misses the directory.
        assert name.startswith("taco") or (found.errors and found.right == set()), f"cut to {size}"
        report = checked(file.format, target, file.raises)
        assert report is None or not report.ok, f"cut to {size}"


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


@pytest.mark.parametrize("name", NAMES)
def test_mutants(name: str, files: dict[str, Swept], tmp_path: Path) -> None:
    file, target = files[name], tmp_path / "mutant"
    numbers = random.Random(f"{_SEED}{name}")
    for number in range(file.mutants * (_MORE if FULL else 1)):
        target.write_bytes(mutated(file.data, numbers))
        found = file.read(target)
        assert found.wrong == [] or file.where
        if file.checked or number % _LOOKED_AT == 0 or FULL:
            report = checked(file.format, target, file.raises)
            assert report is None or report.total or not found.errors
