"""What a caller may ask of a writer, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from comal.errors import ComalError, InvalidInputError
from comal.plan import ByteRange, run
from comal.raquet import spec
from comal.raquet.spec import Number
from comal.raquet.writing.job import LEVEL, QUALITY
from comal.raquet.writing.reducing import check_method
from comal.raster.gridding import STRATEGIES
from comal.raster.warping import method_of
from comal.storage import StorageConfig, open_source
from comal.storage.kinds import Kind
from comal.storage.targetlock import Owns
from comal.table.footer import footer_plan

BLOCKS = tuple(2**power for power in range(4, 13))
"""Sizes of tiles that are written: powers of two from 16 to 4096."""

BandChoice = Sequence[int | str] | Mapping[str, int | str] | None
NodataChoice = Number | str | Sequence[Number | None] | Mapping[str, Number | None] | None

NO_NODATA = "none"
"""Stands for a nodata value where none is to be chosen for bands without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `write`; see there."""

    spec_version: str = spec.WRITTEN[0]
    zoom: int | None = None
    zoom_strategy: str = "auto"
    min_zoom: int | None = None
    resampling: str = "nearest"
    overview_resampling: str | None = None
    reuse_overviews: bool = False
    block_size: int = 256
    bands: BandChoice = None
    nodata: NodataChoice = None
    crs: Any = None
    variable: str | None = None
    config: StorageConfig | None = None
    compression: str | None = spec.GZIP
    level: int = LEVEL
    quality: int = QUALITY
    layout: str = spec.SEQUENTIAL
    keep_empty: bool = False
    tile_statistics: bool = False
    row_group_size: int | None = None
    block_dtype: str = "uint64"

    def check(self) -> None:
        """Raise `InvalidInputError` for the first value that cannot be."""
        _one_of("version", self.spec_version, spec.WRITTEN)
        _one_of("zoom strategy", self.zoom_strategy, STRATEGIES)
        _one_of("block size", self.block_size, BLOCKS)
        _one_of("compression", self.compression, spec.COMPRESSIONS)
        _one_of("layout", self.layout, spec.LAYOUTS)
        _one_of("type for block", self.block_dtype, ("uint64", "int64"))
        method_of(self.resampling)
        if self.overview_resampling is not None:
            check_method(self.overview_resampling)
        _within("compression level", self.level, 0, 12)
        _within("quality", self.quality, 1, 100)
        for name, zoom in (("zoom", self.zoom), ("minimum zoom", self.min_zoom)):
            if zoom is not None:
                _within(name, zoom, 0, spec.MAX_ZOOM)
        if self.zoom is not None and self.min_zoom is not None and self.min_zoom > self.zoom:
            raise InvalidInputError(
                "the minimum zoom is above the zoom", found=self.min_zoom, expected=self.zoom
            )
        if self.row_group_size is not None:
            _within("row group size", self.row_group_size, 1, 1 << 20)
        self._check_coding()

    def _check_coding(self) -> None:
        lossy = self.compression in spec.LOSSY_BANDS
        if lossy and self.layout != spec.INTERLEAVED:
            raise InvalidInputError(
                f"{self.compression} needs the interleaved layout", hint="layout='interleaved'"
            )
        if self.spec_version == spec.WRITTEN[0] and self.layout == spec.INTERLEAVED:
            raise InvalidInputError(
                f"RaQuet {self.spec_version} has no interleaved layout",
                hint=f"spec_version={spec.WRITTEN[-1]!r}",
            )
        if self.spec_version == spec.WRITTEN[0] and self.tile_statistics:
            raise InvalidInputError(
                f"RaQuet {self.spec_version} has no tile statistics",
                hint=f"spec_version={spec.WRITTEN[-1]!r}",
            )


def _one_of(what: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise InvalidInputError(
            f"unknown {what}", found=value, expected=", ".join(map(str, allowed))
        )


def _within(what: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInputError(f"{what} out of range", found=value, expected=f"{low} to {high}")


# -- targets ---------------------------------------------------------------------------------------


_PART = re.compile(r"z\d{1,2}_\d{1,10}_\d{1,10}\.parquet")


def _claim_file(path: Path) -> Owns | None:
    with open_source(path) as source:
        span = ByteRange(0, path.stat().st_size)
        names = run(footer_plan(span), source.fetch).schema.names
    return (lambda _: True) if {spec.BLOCK, spec.METADATA} < set(names) else None


def _claim_parts(path: Path) -> Owns | None:
    def owns(name: str) -> bool:
        if not _PART.fullmatch(name):
            return False
        try:
            return _claim_file(path / name) is not None
        except ComalError:
            return False

    return owns if any(owns(part.name) for part in path.iterdir()) else None


RAQUET: Final = Kind("a RaQuet file", _claim_file)
PARTS: Final = Kind("a folder of RaQuet parts", _claim_parts)
