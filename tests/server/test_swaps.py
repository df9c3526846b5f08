"""Sources that are replaced while they are served let go of what they held."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import server
from comal.server.metrics import sample
from tests.server.asking import reply_of, scope_of
from tests.server.making import PNG, entry, raquet_file, taco_file

SWAPS = 20
NAMES = ("tiles.zip", "raster.parquet", "samples.tacozip")
LINE = b"GET /tiles/0/0/0.png HTTP/1.1\r\nHost: x\r\n\r\n"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="descriptors are counted by /proc"
)


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only counted references free anything."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def versions(folder: Path) -> Path:
    """Two versions of each source; their tiles, pixels and texts differ."""
    for number in (1, 2):
        place = folder / str(number)
        place.mkdir()
        with zipfile.ZipFile(place / "tiles.zip", "w") as archive:
            archive.comment = (
                b'{"tapalcatl": "2.0.0", "name": "a", "minzoom": 0, "maxzoom": 0,'
                b' "formats": {"png": "image/png"}, "materializedZooms": [0], "metatile": 1}'
            )
            entry(archive, "0/0/0.png", PNG + bytes([number]))
        pixels = np.full((128, 128), number, np.uint8)
        raquet_file(place / "raster.parquet", {"band": pixels})
        taco_file(place / "samples.tacozip", 1 + number)
    return folder


def deleted() -> list[str]:
    """Files that are open and have no name any more."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(descriptor)  # noqa: PTH115 - as it is written there
        except FileNotFoundError:  # the one that lists the folder
            continue
        if target.endswith(" (deleted)") and any(name in target for name in NAMES):
            found.append(target)
    return found


@pytest.mark.usefixtures("without_collector")
def test_replaced_sources_are_closed_without_the_collector(tmp_path: Path) -> None:
    kept = versions(tmp_path)
    shown = tmp_path / "shown"
    shown.mkdir()

    def swap(number: int) -> None:
        for name in NAMES:
            shutil.copy(kept / str(1 + number % 2) / name, shown / f".{name}")
            (shown / f".{name}").replace(shown / name)

    swap(0)
    sources = {name.partition(".")[0]: str(shown / name) for name in NAMES}
    app = server.app(sources, log="none", reload_seconds=0.001)
    most = asyncio.run(_load(app, swap))
    for name in sources:
        assert (
            app.metrics.counts.samples[sample("comal_reloads_total", source=name, outcome="ok")]
            >= SWAPS // 2
        ), "they were opened again"
    assert most <= 6, "two of each at most: one in use, one that takes its place"


async def _load(app: Any, swap: Any) -> int:
    paths = [
        *("/tiles/0/0/0.png", "/tiles.json", "/sources.json", "/raster/0/0/0.npy"),
        *("/raster/statistics", "/raster/point/1,1", "/samples/items", "/samples/table"),
        *("/samples/data/scene%200/note.txt", "/samples/preview/scene%200/image.tif"),
    ]
    most = 0
    for number in range(SWAPS):
        for path in paths:
            for _ in range(2):
                reply = await reply_of(app, scope_of(path))
                assert reply.status == 200, (path, reply.body)
        app.plain.answer(LINE)
        swap(number + 1)
        for _ in range(200):  # until the swap has been seen
            await asyncio.sleep(0.005)
            reply = await reply_of(app, scope_of("/tiles/0/0/0.png"))
            if reply.body == PNG + bytes([1 + (number + 1) % 2]):
                break
        most = max(most, len(deleted()))
    return most
