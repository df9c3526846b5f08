"""Where the sources of several files lie, said of all of them in one document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import shapely

from comal.grid.mercator import lonlat_to_xy
from comal.raquet.reading.coverage import extent_of, polygons_of, source_of
from comal.raquet.reading.pixels import stored_nodata
from comal.raquet.spec import Metadata
from comal.raster.gridding import Footprint, extent
from comal.raster.outline import outline_of


def united_custom(documents: Sequence[Metadata]) -> dict[str, Any]:
    """The extra keys of a file that holds the tiles of several.

    Parameters
    ----------
    documents
        Of files with the same bands.

    Returns
    -------
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
