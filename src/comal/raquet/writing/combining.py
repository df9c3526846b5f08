"""What a file says that has the bands of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.grid import quadbin
from comal.grid.mercator import lonlat_to_xy
from comal.raquet import spec
from comal.raquet.spec import Band, Metadata
from comal.raquet.writing.copying import lowest_zoom

Ints = npt.NDArray[np.int64]

_ON_A_LINE = 1e-4


def check_grids(one: Metadata, two: Metadata) -> None:
    """Refuse rasters whose tiles are not the same places, or of which one has statistics."""
    for what in ("block_width", "block_height", "max_zoom"):
        if getattr(one, what) != getattr(two, what):
            raise InvalidInputError(
                f"rasters with another {what.replace('_', ' ')} cannot share a file",
                found=getattr(two, what),
                expected=getattr(one, what),
            )
    if one.tile_statistics != two.tile_statistics:
        raise InvalidInputError("only one of the rasters has tile statistics")


def joined(
    one: Metadata, two: Metadata, bands: tuple[Band, ...], layout: str | None, where: str
) -> Metadata:
    """The metadata of both, but for what their tiles tell."""
    layout = one.layout if layout is None else layout
    if layout not in spec.LAYOUTS:
        raise InvalidInputError("unknown layout", found=layout, expected=", ".join(spec.LAYOUTS))
    lossy = one.compression in spec.LOSSY_BANDS
    types = {band.dtype for band in bands}
    if layout == spec.INTERLEAVED and (lossy or len(types) > 1):
        raise InvalidInputError(
            "bands that the interleaved layout cannot hold together",
            where=where,
            found=f"{one.compression} tiles" if lossy else ", ".join(sorted(types)),
            hint="layout='sequential' (--layout sequential) stores each band by itself",
        )
    west, south, east, north = zip(one.bounds, two.bounds, strict=True)
    return replace(
        one,
        bands=bands,
        layout=layout,
        compression=spec.GZIP if lossy else one.compression,
        quality=None if lossy else one.quality,
        bounds=(min(west), min(south), max(east), max(north)),
        custom=_sources_of(one, two, bands[len(one.bands) :]),
    )


def settled(metadata: Metadata, cells: Ints) -> Metadata:
    """The metadata with what tiles tell: the lowest zoom, the number of blocks, the bounds."""
    zooms = np.asarray(quadbin.zooms(cells))
    metadata = replace(
        metadata,
        min_zoom=lowest_zoom(np.unique(zooms).tolist()),
        num_blocks=len(np.unique(cells[zooms == metadata.max_zoom])),
    )
    return replace(metadata, **hull(metadata))


def _sources_of(one: Metadata, two: Metadata, added: Sequence[Band]) -> dict[str, Any]:
    """Where the sources of bands lie; for those that are added under their own names."""
    mine, others = (dict(_own(metadata)) for metadata in (one, two))
    if mine.get("source") == others.get("source") and "sources" not in others:
        return dict(one.custom)
    by_band = dict(mine.get("sources") or {})
    known = others.get("sources") or {}
    for band, new in zip(two.bands, added, strict=True):
        by_band[new.name] = known.get(band.name, others.get("source"))
    return {**one.custom, "comal": {**mine, "sources": by_band}}


def _own(metadata: Metadata) -> Mapping[str, Any]:
    own = metadata.custom.get("comal")
    return own if isinstance(own, Mapping) else {}


def hull(metadata: Metadata) -> dict[str, Any]:
    """Size in pixels of the bounds, where those are of whole tiles."""
    west, south, east, north = metadata.bounds
    x, y = lonlat_to_xy([west, east], [north, south], metadata.max_zoom)
    if np.abs([x - np.round(x), y - np.round(y)]).max() > _ON_A_LINE:
        return {}
    return {
        "width": round(x[1] - x[0]) * metadata.block_width,
        "height": round(y[1] - y[0]) * metadata.block_height,
    }
