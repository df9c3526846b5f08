"""What a file says that has the bands of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from comal.errors import InvalidInputError
from comal.grid import quadbin
from comal.grid.mercator import lonlat_to_xy
from comal.raquet import spec
from comal.raquet.reading.coverage import extent_of, polygons_of, source_of
from comal.raquet.reading.pixels import stored_nodata
from comal.raquet.spec import Band, Metadata
from comal.raquet.writing.layout import lowest_zoom
from comal.raster.gridding import Footprint, extent, outline_of

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


# -- sources ---------------------------------------------------------------------------------------


def united_custom(documents: Sequence[Metadata]) -> dict[str, Any]:
    """The extra keys of a file that holds the tiles of several with the same bands.

    What all of them say, and in ``comal`` what their sources cover together: ``source``, or
    ``sources`` by the name of a band where bands differ. Nothing of it where one does not say so.
    """
    first = documents[0].custom
    if all(one.custom == first for one in documents):
        return dict(first)
    found = {
        key: value
        for key, value in first.items()
        if all(key in one.custom and one.custom[key] == value for one in documents)
    }
    padded = any(stored_nodata(band) is None for band in documents[0].bands)
    pixel_zoom = documents[0].max_zoom + documents[0].block_width.bit_length() - 1
    known: list[tuple[list[Any], Any]] = []
    by_band: dict[str, Any] = {}
    for name in documents[0].band_names:
        sources = [source_of(one, name) for one in documents]
        done = [source for others, source in known if others == sources]
        by_band[name] = done[0] if done else _united(sources, pixel_zoom, padded=padded)
        if not done:
            known.append((sources, by_band[name]))
    if len(known) == 1:
        own = {} if known[0][1] is None else {"source": known[0][1]}
    else:
        own = {"sources": by_band}
    return {**found, "comal": own} if own else found


def _united(sources: Sequence[Any], pixel_zoom: int, *, padded: bool) -> Any:
    """One source that stands for all; None where one does not tell where it lies."""
    different = list({repr(one): one for one in sources}.values())
    if len(different) == 1:
        return different[0]
    polygons: list[Any] = []
    boxes = []
    for one in different:
        rings, place = polygons_of(one), extent_of(one)
        if rings is None or place is None:
            return None
        polygons += [shapely.Polygon(outer, inner) for outer, *inner in rings]
        west, south, east, north = place
        (left, right), (top, bottom) = lonlat_to_xy([west, east], [north, south], 0)
        box = (float(left), float(top), float(right) + (west > east), float(bottom))
        boxes.append(Footprint(box, 0.0, None, clipped=False))
    if not shapely.is_valid(polygons).all():
        return None
    bounds = extent(boxes)
    found: dict[str, Any] = {"bounds": list(bounds)}
    if padded:
        # Nothing else tells readers the pixels at the edge from padding.
        edge = outline_of(polygons, bounds, pixel_zoom)
        if edge is not None:
            found["footprint"] = edge
    rasters = [one.get("rasters", 1) for one in different]
    return found | {"rasters": sum(one for one in rasters if isinstance(one, int))}
