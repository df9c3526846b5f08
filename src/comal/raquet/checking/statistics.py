"""Statistics of the document and of the tiles, against those of the pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from comal.errors import shown
from comal.findings import Findings
from comal.raquet import spec
from comal.raquet.querying.moments import Moments, of_tile
from comal.raquet.reading.pixels import invalid
from comal.raquet.spec import Band, Metadata

_CLOSE = 1e-6
_FIRST = np.array([0])


@dataclass(slots=True)
class BandCheck:
    """Statistics of one band while its tiles are gone through."""

    band: Band
    kinds: tuple[str, ...]
    """Tile statistics that the file declares."""
    total: Moments = field(default_factory=lambda: Moments.empty(1))
    """Of the maximum zoom."""

    def column(self, kind: str) -> str:
        """Column of a tile statistic."""
        return f"{self.band.name}_{kind}"

    def add(self, pixels: Any, declared: Mapping[str, Any] | None, *, finest: bool) -> str | None:
        """A tile and its declared statistics; what is wrong with them comes back."""
        found = of_tile(pixels, ~invalid(pixels, self.band))
        if finest:
            self.total.merge(_FIRST, found)
        if declared is None:
            return None
        if all(declared.get(kind) is None for kind in self.kinds):
            return None if found.count[0] == 0 else "are NULL though pixels are valid"
        return _difference(declared, found, self.band)

    def finish(self, findings: Findings) -> None:
        """Compare with what the document says of all tiles."""
        found = self.band.statistics
        if found is None or self.total.count[0] == 0:
            return
        values = {kind: getattr(found, kind) for kind in spec.STATISTICS}
        if found.approximated:
            values = {kind: values[kind] for kind in ("min", "max")}
        reason = _difference(values, self.total, self.band, within=bool(found.approximated))
        if reason is not None:
            findings.add("raquet-statistics-differ", f"band {shown(self.band.name)}", reason)


def band_checks(metadata: Metadata) -> list[BandCheck]:
    """One for each band."""
    return [BandCheck(band, metadata.tile_statistics) for band in metadata.bands]


def _difference(
    declared: Mapping[str, Any], found: Moments, band: Band, *, within: bool = False
) -> str | None:
    """What differs, the first of it; None when nothing does.

    Without a nodata value nothing tells padding from pixels: then a smaller count is taken as it
    is, and only the range can be wrong.
    """
    count = declared.get("count")
    padded = band.nodata is None and count is not None and count < found.count[0]
    if within or padded or (band.nodata is None and count is None):
        low, high = declared.get("min"), declared.get("max")
        if low is not None and low < float(found.min[0]) - _CLOSE * abs(low):
            return f"minimum {low}, the pixels have {float(found.min[0]):g}"
        if high is not None and high > float(found.max[0]) + _CLOSE * abs(high):
            return f"maximum {high}, the pixels have {float(found.max[0]):g}"
        return None
    scale = max(abs(float(found.min[0])), abs(float(found.max[0]))) if found.count[0] else 0.0
    for kind in spec.STATISTICS:
        value = declared.get(kind)
        if value is None:
            continue
        true = float(found.column(kind)[0])
        room = _CLOSE * (scale if kind in {"mean", "stddev"} else abs(true))
        if not (math.isnan(true) or math.isclose(float(value), true, rel_tol=_CLOSE, abs_tol=room)):
            return f"{kind} {value}, the pixels have {true:.10g}"
    return None
