"""Statistics of the document and of the tiles, against those of the pixels.

Without a nodata value it is not certain which pixels a writer counted: of a tile that its source
covers in part those at the edge may count or not, and where the file does not say what its source
covers, any pixel may be padding. Then statistics are right if those of some choice of pixels are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from comal.errors import counted, shown
from comal.findings import Findings
from comal.raquet import spec
from comal.raquet.checking.document import aligned_window
from comal.raquet.querying.moments import Moments, of_tile
from comal.raquet.reading.coverage import Coverage, coverage_of, coverages
from comal.raquet.reading.pixels import alpha_of, stored_nodata, valid_of
from comal.raquet.spec import Band, Metadata

Tile = tuple[int, int, int]
"""Zoom, column from the west, row from the north."""

_CLOSE = 1e-6
_FIRST = np.array([0])


@dataclass(slots=True)
class Counted:
    """The pixels that any writer counts, and those that one may count."""

    least: Moments = field(default_factory=lambda: Moments.empty(1))
    most: Moments = field(default_factory=lambda: Moments.empty(1))

    def merge(self, other: Counted) -> None:
        """Add the pixels of another tile."""
        self.least.merge(_FIRST, other.least)
        self.most.merge(_FIRST, other.most)


@dataclass(slots=True)
class BandCheck:
    """Statistics of one band while its tiles are gone through."""

    band: Band
    kinds: tuple[str, ...]
    """Tile statistics that the file declares."""
    cover: Coverage | None = None
    """What the source covers, where nodata does not tell."""
    hidden: bool = False
    """Whether a mask or a nodata value that the file does not have may have left pixels out."""
    exact: bool = True
    """Whether pixels are those that the writer had; else only their number is compared."""
    part: bool = False
    """Whether statistics of bands are those of a larger raster."""
    bounds: Coverage | None = None
    """What lies in the bounds, where nothing else tells padding and these are not whole tiles."""
    outside: int = 0
    """Pixels outside of the bounds."""
    black: bool = True
    """Whether all of these are 0."""
    total: Counted = field(default_factory=Counted)
    """Of the maximum zoom."""

    def column(self, kind: str) -> str:
        """Column of a tile statistic."""
        return f"{self.band.name}_{kind}"

    def add(
        self, pixels: Any, declared: Mapping[str, Any] | None, tile: Tile | None, *, finest: bool
    ) -> str | None:
        """A tile and its declared statistics; what is wrong with them comes back."""
        found = self._counted(pixels, tile, reduced=not finest)
        if finest:
            self.total.merge(found)
        if declared is None:
            return None
        if all(declared.get(kind) is None for kind in self.kinds):
            return None if found.least.count[0] == 0 else "are NULL though pixels are valid"
        return self._difference(declared, found)

    def _counted(self, pixels: Any, tile: Tile | None, *, reduced: bool) -> Counted:
        valid = valid_of(pixels, self.band)
        if stored_nodata(self.band) is not None and not self.hidden:
            found = of_tile(pixels, valid)
            return Counted(found, found)
        if self.bounds is not None and tile is not None and not reduced:
            self._see_outside(pixels, self.bounds.limits(*tile, pixels.shape, reduced=False))
        limits = None
        if self.cover is not None and tile is not None:
            limits = self.cover.limits(*tile, pixels.shape, reduced=reduced)
        most = of_tile(pixels, valid if limits is None else valid & limits[1])
        if self.cover is None or tile is None or self.hidden:
            return Counted(Moments.empty(1), most)
        return Counted(most if limits is None else of_tile(pixels, valid & limits[0]), most)

    def _see_outside(self, pixels: Any, limits: Any) -> None:
        if limits is not None:
            beyond = pixels[~limits[1]]
            self.outside += len(beyond)
            self.black = self.black and not beyond.any()

    def _check_padding(self, findings: Findings) -> None:
        """Find zeros that were invented: outside of the bounds, or left out of statistics."""
        found, most = self.band.statistics, self.total.most
        told = stored_nodata(self.band) is not None or self.hidden or self.cover is not None
        reason = None
        if self.outside and self.black:
            reason = f"{counted(self.outside, 'pixel')} outside of the bounds are 0"
        elif found is not None and found.min is not None and most.count[0] and not told:
            whole = not (found.approximated or self.part)
            if whole and most.min[0] == 0 and found.min > _CLOSE * most.max[0]:
                reason = f"statistics begin at {found.min}, but pixels are 0"
        if reason is not None:
            place = f"band {shown(self.band.name)}"
            findings.add("raquet-padding", place, f"{reason}, and no nodata value tells these")

    def finish(self, findings: Findings) -> None:
        """Compare with what the document says of all tiles."""
        self._check_padding(findings)
        found = self.band.statistics
        if found is None or self.total.most.count[0] == 0:
            return
        values = {kind: getattr(found, kind) for kind in spec.STATISTICS}
        if found.approximated:
            # Of some pixels only, whichever they are.
            values = {kind: values[kind] for kind in ("min", "max")}
            self.total.least = Moments.empty(1)
        reason = (
            _narrower(values, self.total.least)
            if self.part
            else self._difference(values, self.total)
        )
        if reason is not None:
            findings.add("raquet-statistics-differ", f"band {shown(self.band.name)}", reason)

    def _difference(self, declared: Mapping[str, Any], found: Counted) -> str | None:
        """What differs, the first of it; None when nothing does."""
        least, most = found.least, found.most
        count = declared.get("count")
        if count is not None and not least.count[0] <= count <= most.count[0]:
            return f"count {count}, the pixels have {_between(least.count[0], most.count[0])}"
        if not self.exact:
            return None
        if most.count[0] in (least.count[0], count):
            return _unequal(declared, most)
        return _beyond(declared, least, most)


def band_checks(metadata: Metadata) -> list[BandCheck]:
    """One for each band."""
    lossy = metadata.compression in spec.LOSSY_BANDS
    # Pixels that a mask took out are 0 in the file, and only its alpha band tells.
    hidden = lossy or alpha_of(metadata.bands) is not None
    covers = coverages([metadata])
    bounds = None if aligned_window(metadata) else coverage_of(metadata.bounds)
    part = metadata.processing.get(spec.PART) is not None
    return [
        BandCheck(
            band,
            metadata.tile_statistics,
            cover,
            hidden,
            not lossy,
            part,
            None if hidden or cover is not None else bounds,
        )
        for band, cover in zip(metadata.bands, covers, strict=True)
    ]


def _unequal(declared: Mapping[str, Any], found: Moments) -> str | None:
    """What differs from the statistics of pixels that are known."""
    scale = max(abs(float(found.min[0])), abs(float(found.max[0]))) if found.count[0] else 0.0
    for kind in spec.STATISTICS:
        value = declared.get(kind)
        if value is None:
            continue
        true = float(found.column(kind)[0])
        share = {"mean": scale, "stddev": scale, "sum": scale * float(found.count[0])}
        room = _CLOSE * share.get(kind, abs(true))
        if not (math.isnan(true) or math.isclose(float(value), true, rel_tol=_CLOSE, abs_tol=room)):
            return f"{kind} {value}, the pixels have {true:.10g}"
    return None


def _beyond(declared: Mapping[str, Any], least: Moments, most: Moments) -> str | None:
    """What no choice of pixels has that are `least` and some of `most`."""
    low, high = float(most.min[0]), float(most.max[0])
    scale = max(abs(low), abs(high))
    if not math.isfinite(scale):
        return None
    limits = {"min": (low, float(least.min[0])), "max": (float(least.max[0]), high)}
    count, mean = declared.get("count"), declared.get("mean")
    if count:
        more = count - float(least.count[0])
        first, last = float(least.sum[0]) + more * low, float(least.sum[0]) + more * high
        limits |= {"sum": (first, last), "mean": (first / count, last / count)}
    if count and mean is not None:
        # Squared deviations from the mean that is declared; those of the others are not known.
        own = float(least.squares[0]) + float(least.count[0]) * (float(least.mean[0]) - mean) ** 2
        others = more * max((low - mean) ** 2, (high - mean) ** 2)
        limits["stddev"] = math.sqrt(own / count), math.sqrt((own + others) / count)
    for kind, (first, last) in limits.items():
        value = declared.get(kind)
        room = _CLOSE * scale * (float(count or 1) if kind == "sum" else 1)
        if value is not None and not first - room <= value <= last + room:
            return f"{kind} {value}, the pixels have {_between(first, last)}"
    return None


def _narrower(declared: Mapping[str, Any], found: Moments) -> str | None:
    """What the statistics of a larger raster leave out of its part."""
    if found.count[0] == 0:
        return None
    count, low, high = float(found.count[0]), float(found.min[0]), float(found.max[0])
    room = _CLOSE * max(abs(low), abs(high))
    for kind, true, sign in (("count", count, 1), ("min", low + room, -1), ("max", high - room, 1)):
        value = declared.get(kind)
        if value is not None and sign * value < sign * true:
            return f"{kind} {value}, the pixels of this part have {true:.10g}"
    return None


def _between(first: float, last: float) -> str:
    return f"{first:.10g}" if first == last else f"{first:.10g} to {last:.10g}"
