from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import server, tortilla
from tests.server.making import raquet_file, taco_file, tileset
from tests.server.serving import serving

BIG = 30_000_000
"""More than the buffers of two sockets hold."""


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One archive of each kind; nobody changes these."""
    folder = tmp_path_factory.mktemp("archives")
    rng = np.random.default_rng(1)
    ramp = np.arange(128 * 128, dtype=np.int64).reshape(128, 128)
    heights = (ramp % 4000 - 500).astype(np.int16)
    heights[:16] = -32768
    return {
        "tiles": tileset(folder / "set"),
        "dem": raquet_file(folder / "dem.parquet", {"height": heights}, nodata=-32768),
        "rgb": raquet_file(
            folder / "rgb.parquet",
            {
                name: rng.integers(0, 256, (128, 128)).astype(np.uint8)
                for name in ("b1", "b2", "b3")
            },
            extra={
                "b1": {"colorinterp": "red"},
                "b2": {"colorinterp": "green"},
                "b3": {"colorinterp": "blue"},
            },
        ),
        "classes": raquet_file(
            folder / "classes.parquet",
            {"class": (ramp // 1000 % 4).astype(np.uint8)},
            extra={
                "class": {
                    "colorinterp": "palette",
                    "colortable": {
                        "0": [0, 0, 0, 0],
                        "1": [10, 20, 30, 255],
                        "2": [200, 100, 0, 255],
                        "3": [0, 0, 255, 128],
                    },
                }
            },
        ),
        "scenes": taco_file(folder / "scenes.tacozip"),
    }


@pytest.fixture
def app(archives: dict[str, Path]) -> Any:
    """All of them served."""
    sources: dict[str, Any] = {name: str(path) for name, path in archives.items()}
    sources["tiles"] = {"href": str(archives["tiles"])}
    return server.app(sources, log="none")


@pytest.fixture(scope="session")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("big") / "big.tortilla"
    payload = np.random.default_rng(1).bytes(BIG)
    tortilla.create([tortilla.Sample(id="big", path=payload, file_format="BYTES")], path)
    return path


@pytest.fixture(scope="session")
def port(archives: dict[str, Path], big: Path) -> Iterator[int]:
    """A server of tiles and of a large sample."""
    sources = {"tiles": {"href": str(archives["tiles"])}, "big": str(big)}
    with serving(sources, idle_seconds=1.5) as (number, _):
        yield number
