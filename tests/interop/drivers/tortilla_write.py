"""Files of the reference writer of Tortilla 0.5 for comal, with digests of their leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytortilla  # type: ignore[import-not-found]  # lives in the environment of the driver
from common import digests  # type: ignore[import-not-found]  # of this folder
from pytortilla.datamodel.main import (  # type: ignore[import-not-found]
    RAI,
    STAC,
    Sample,
    Samples,
)


def sample(folder: Path, name: str, data: bytes, **fields: Any) -> Any:
    path = folder / f"{name}.source"
    path.write_bytes(data)
    return Sample(id=name, file_format="BYTES", path=path, **fields)


def write(job: str) -> dict[str, dict[str, str]]:
    target = Path(job)
    sources = target / "sources"
    sources.mkdir(parents=True)
    answers: dict[str, dict[str, str]] = {}
    options = {"nworkers": 1, "quiet": True}
    flat = {f"s{n}": bytes([n + 1]) * (100 * n) for n in range(12)}
    stac = STAC(
        crs="EPSG:32718",
        raster_shape=(2, 2),
        geotransform=(0, 10, 0, 0, 0, -10),
        time_start=1_600_000_000,
        time_end=1_600_000_001.5,
    )
    rai = RAI(
        ele=5, cisi=0.5, gdp=1.0, hdi=0.5, gmi=0.5, pop=1.0, admin0="a", admin1="b", admin2="c"
    )
    samples = [
        sample(sources, name, data, data_split="train", stac_data=stac, rai_data=rai, score=n)
        for n, (name, data) in enumerate(flat.items())
    ]
    pytortilla.create(Samples(samples=samples), target / "flat.tortilla", **options)
    answers["flat.tortilla"] = digests(flat)
    pytortilla.create(
        Samples(samples=samples), target / "set.tortilla", chunk_size="2KB", **options
    )
    answers["set.*.part.tortilla"] = digests(flat)
    outer: list[Any] = []
    leaves: dict[str, bytes] = {}
    for number in range(3):
        inner = {f"x{n}": f"{number} {n}".encode() * 9 for n in range(2)}
        folder = sources / f"roi{number}"
        folder.mkdir()
        path = target / f"roi{number}.inner"
        made = [sample(folder, name, data) for name, data in inner.items()]
        pytortilla.create(Samples(samples=made), path, **options)
        outer.append(Sample(id=f"roi{number}", file_format="TORTILLA", path=path))
        leaves |= {f"roi{number}/{name}": data for name, data in inner.items()}
    pytortilla.create(Samples(samples=outer), target / "nested.tortilla", **options)
    answers["nested.tortilla"] = digests(leaves)
    return answers
