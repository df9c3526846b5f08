"""What a disk has no room for is refused before any payload is read, where the size is known.

The disk is that of the test with another number of free bytes; what is read is counted by the
kernel. A target that fits to the byte is written: what writers expect is no more than they need.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from comal import ml, raquet, taco, tortilla
from comal.errors import LimitExceededError, StorageError
from comal.storage import targets
from tests.convert.migrated import FIELDS
from tests.raquet.writing.sources import noise, on_grid
from tests.support import files_below

_SIZE = 1 << 19
_COUNT = 8
Write = Callable[[Path, Path], object]


def _files(s: Path) -> list[Path]:
    return sorted((s / "files").iterdir())


def _samples(kind: Any, s: Path) -> Any:
    return [kind.Sample(id=path.name, path=path, group=path.name[-5]) for path in _files(s)]


def _taco(s: Path) -> taco.Taco:
    return taco.Taco(taco.Tortilla(_samples(taco, s)), **FIELDS)


WRITERS: dict[str, tuple[str, Write]] = {
    "taco.create": ("o.tacozip", lambda s, o: taco.create(_taco(s), o)),
    "taco.create folder": ("o", lambda s, o: taco.create(_taco(s), o)),
    "taco.create parts": ("o.tacozip", lambda s, o: taco.create(_taco(s), o, split_size=_SIZE * 2)),
    "taco.create groups": ("o.tacozip", lambda s, o: taco.create(_taco(s), o, group_by="group")),
    "taco.pack_folder": ("o.tacozip", lambda s, o: taco.pack_folder(s / "files", o)),
    "taco.pack_folder rasters": ("o.tacozip", lambda s, o: taco.pack_folder(s / "rasters", o)),
    "tortilla.create": ("o.tortilla", lambda s, o: tortilla.create(_samples(tortilla, s), o)),
    "tortilla.create parts": (
        "o.tortilla",
        lambda s, o: tortilla.create(_samples(tortilla, s), o, chunk_rows=3),
    ),
    "tortilla.pack_folder": ("o.tortilla", lambda s, o: tortilla.pack_folder(s / "rasters", o)),
    "tortilla.compact": ("o.tortilla", lambda s, o: tortilla.compact(s / "a.tortilla", o)),
    "ml.mirror": ("o.tacozip", lambda s, o: ml.mirror(s / "a.tacozip", o)),
    "raquet.merge": ("o.parquet", lambda s, o: raquet.merge(s / "parts", o)),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    s = tmp_path_factory.mktemp("sources")
    rng = np.random.default_rng(1)
    (s / "files").mkdir()
    (s / "rasters").mkdir()
    for number in range(_COUNT):
        (s / "files" / f"f{number}.bin").write_bytes(rng.bytes(_SIZE))
        pixels = noise((1, 1024, _SIZE // 1024), "uint8", seed=number)
        on_grid(s / "rasters" / f"r{number}.tif", pixels)
    tortilla.create(_samples(tortilla, s), s / "a.tortilla")
    taco.create(_taco(s), s / "a.tacozip")
    raquet.write(on_grid(s / "dem.tif", noise((1, 4096, 2048), "uint8")), s / "dem.parquet")
    raquet.partition(s / "dem.parquet", s / "parts", zoom=4)
    return s


def _read() -> int:
    """Bytes that this process has read so far, by any thread."""
    return int(Path("/proc/self/io").read_text().split()[1])


def _free(monkeypatch: pytest.MonkeyPatch, count: int, blocks: int = 1 << 30) -> None:
    """Let every disk have this many free bytes."""
    found = SimpleNamespace(f_frsize=1, f_bavail=count, f_bfree=count, f_blocks=blocks)
    monkeypatch.setattr(os, "statvfs", lambda _: found)


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_told_before_the_work(
    name: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    target, write = WRITERS[name]
    write(kept, tmp_path / target)
    made = files_below(tmp_path)
    needed = sum(map(len, made.values()))
    assert needed > _SIZE * _COUNT
    for free in (0, _SIZE * _COUNT - 1):
        (tmp_path / f"full {free}").mkdir()
        _free(monkeypatch, free)
        before = _read()
        with pytest.raises(StorageError, match="no room") as caught:
            write(kept, tmp_path / f"full {free}" / target)
        assert _read() - before < needed // 4
        assert f"{free} bytes free in" in str(caught.value)
        assert list((tmp_path / f"full {free}").iterdir()) == []
    (tmp_path / "again").mkdir()
    _free(monkeypatch, needed)
    write(kept, tmp_path / "again" / target)
    assert files_below(tmp_path / "again") == made


@pytest.mark.parametrize(
    "name", [name for name in WRITERS if name.split()[-1] not in ("folder", "parts", "groups")]
)
def test_a_file_that_is_too_large_for_a_store_is_told_before_the_work(
    name: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As S3 with some settings takes no new object of more than 5 GiB."""
    target, write = WRITERS[name]
    monkeypatch.setattr(targets.TargetSet, "_most", lambda *_: _SIZE * _COUNT - 1)
    before = _read()
    with pytest.raises(LimitExceededError, match="5 GiB"):
        write(kept, tmp_path / target)
    assert _read() - before < _SIZE * _COUNT // 2
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_tells_no_size_is_tried(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _free(monkeypatch, 0, blocks=0)
    taco.create(_taco(kept), tmp_path / "a.tacozip")

    def fails(_: object) -> object:
        raise OSError

    monkeypatch.setattr(os, "statvfs", fails)
    taco.create(_taco(kept), tmp_path / "b.tacozip")


def test_pages_of_other_writers_count_nothing(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their headers may be longer than those of the copy."""
    whole = next((kept / "parts").iterdir()).read_bytes()
    other = whole.replace(b'"created_by":"comal ', b'"created_by":"other ')
    assert whole != other
    (tmp_path / "a.parquet").write_bytes(other)
    _free(monkeypatch, 0)
    raquet.merge(tmp_path / "a.parquet", tmp_path / "o.parquet")
