"""Writing the document of a RaQuet file, as metadata 0.1.0 (flat) or 0.5.0 (nested).

The same metadata give the same text: the order of keys is fixed, and no clock is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from comal.errors import InvalidInputError
from comal.grid.mercator import lonlat_to_xy
from comal.raquet import spec
from comal.raquet.spec import Band, BandStatistics, Metadata, Number
from comal.raquet.wire import BAND, FLAT_STATISTICS, NESTED_STATISTICS

_DECIMALS = 1e-6
"""Degrees by which bounds may miss tile edges; writers keep six decimals."""


def metadata_json(metadata: Metadata, version: str = spec.WRITTEN[0]) -> str:
    """The document as text.

    Parameters
    ----------
    metadata
        What to write; its own `version` and form are ignored.
    version
        ``"0.1.0"`` or ``"0.5.0"``. Keys that 0.1.0 does not define (scale, offset, unit,
        description, tile statistics, custom) are written in 0.1.0 too if they are set: its
        readers look up keys by name. A time series in that form is labelled 0.2.0, which added
        time.

    Raises
    ------
    InvalidInputError
        The version is another one, or readers of 0.1.0 would misread the pixels: interleaved,
        JPEG, WebP, float16.
    """
    if version not in spec.WRITTEN:
        raise InvalidInputError(
            "RaQuet metadata cannot be written in this version",
            found=version,
            expected=" or ".join(spec.WRITTEN),
        )
    document = _flat(metadata) if version == spec.WRITTEN[0] else _nested(metadata, version)
    document = _with_extra(document, metadata.extra)
    return json.dumps(_plain(document), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def label_of(metadata: Metadata, version: str) -> str:
    """The version label of a file that is written in the form of `version`."""
    timed = metadata.time is not None and version == spec.WRITTEN[0]
    return spec.TIMED if timed else version


def check_version(metadata: Metadata, version: str) -> None:
    """Reject metadata that readers of 0.1.0 would misread."""
    later = [
        name
        for name, found in (
            (f"the {metadata.layout} layout", metadata.interleaved),
            (f"compression {metadata.compression}", metadata.compression in spec.LOSSY_BANDS),
            ("type float16", any(band.dtype == "float16" for band in metadata.bands)),
        )
        if found
    ]
    if later and version == spec.WRITTEN[0]:
        raise InvalidInputError(
            f"RaQuet {version} cannot describe these pixels",
            found=", ".join(later),
            hint=f"write version {spec.WRITTEN[-1]}",
        )


# -- 0.1.0 ----------------------------------------------------------------------------------------


def _flat(metadata: Metadata) -> dict[str, Any]:
    """RaQuet 0.1.0, metadata specification."""
    check_version(metadata, spec.WRITTEN[0])
    document: dict[str, Any] = {
        "version": label_of(metadata, spec.WRITTEN[0]),
        "compression": metadata.compression,
        "block_resolution": metadata.max_zoom,
        "minresolution": metadata.min_zoom,
        "maxresolution": metadata.max_zoom,
        "nodata": _common_nodata(metadata),
        "bounds": list(metadata.bounds),
        "center": list(metadata.center),
        "width": metadata.width,
        "height": metadata.height,
        "block_width": metadata.block_width,
        "block_height": metadata.block_height,
        "num_blocks": metadata.num_blocks,
        "num_pixels": metadata.width * metadata.height,
        "pixel_resolution": pixel_zoom(metadata),
        "bands": [_flat_band(band) for band in metadata.bands],
    }
    if metadata.num_blocks is None:
        del document["num_blocks"]
    return document | _later(metadata)


def _flat_band(band: Band) -> dict[str, Any]:
    nodata, statistics = _declared(band), band.statistics
    document = {
        "type": band.dtype,
        "name": band.name,
        **_told(
            stats=None if statistics is None else _flat_statistics(statistics),
            colorinterp=band.colorinterp,
        ),
        # "String representation of the band-specific NoData value"
        "nodata": None if nodata is None else _text(nodata),
        "colortable": _colortable(band),
        **_told(**{key: getattr(band, key) for key in BAND}),
    }
    return _with_extra(document, band.extra)


def _flat_statistics(statistics: BandStatistics) -> dict[str, Any]:
    document = {key: finite(getattr(statistics, key)) for key in FLAT_STATISTICS} | _told(
        quantiles=statistics.quantiles,
        top_values=statistics.top_values,
        version=statistics.version,
        approximated_stats=statistics.approximated,
    )
    return _with_extra(document, statistics.extra)


def _common_nodata(metadata: Metadata) -> Number | None:
    """The nodata value that all bands share, if JSON can hold it as a number."""
    values = {band.nodata for band in metadata.bands}
    value = values.pop()
    if values or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


def _is_nan(nodata: Number | None) -> bool:
    """Whether a nodata value is NaN; integers may be larger than any float."""
    return isinstance(nodata, float) and math.isnan(nodata)


def _declared(band: Band) -> Number | None:
    """The nodata value of a band; None for a NaN that `spec.PADDING` implies."""
    nodata = band.nodata
    if _is_nan(nodata) and spec.PADDING.items() <= band.extra.items():
        return None
    return nodata


def _text(nodata: Number) -> str:
    if _is_nan(nodata):
        return "NaN"
    if isinstance(nodata, float) and math.isinf(nodata):
        return "Infinity" if nodata > 0 else "-Infinity"
    return str(nodata)


# -- 0.5.0 ----------------------------------------------------------------------------------------


def _nested(metadata: Metadata, version: str) -> dict[str, Any]:
    tiling: dict[str, Any] = {
        "scheme": "quadbin",
        "block_width": metadata.block_width,
        "block_height": metadata.block_height,
        "min_zoom": metadata.min_zoom,
        "max_zoom": metadata.max_zoom,
        "pixel_zoom": pixel_zoom(metadata),
    }
    if metadata.num_blocks is not None:
        tiling["num_blocks"] = metadata.num_blocks
    document: dict[str, Any] = {
        "file_format": "raquet",
        "version": version,
        "width": metadata.width,
        "height": metadata.height,
        "crs": "EPSG:3857",
        "bounds": list(metadata.bounds),
        "bounds_crs": "EPSG:4326",
        "tiling": tiling,
        "compression": metadata.compression,
        "bands": [_nested_band(band) for band in metadata.bands],
    }
    if metadata.interleaved:
        document["band_layout"] = metadata.layout
    if metadata.compression in spec.LOSSY_BANDS and metadata.quality is not None:
        document["compression_quality"] = metadata.quality
    return document | _later(metadata)


def _nested_band(band: Band) -> dict[str, Any]:
    nodata: Any = _declared(band)
    if isinstance(nodata, float) and not math.isfinite(nodata):
        nodata = _text(nodata)
    document: dict[str, Any] = {
        "name": band.name,
        "description": band.description or "",
        "type": band.dtype,
        "nodata": nodata,
        "unit": band.unit or "",
        "scale": band.scale,
        "offset": band.offset,
        "colorinterp": band.colorinterp or "undefined",
        "colortable": _colortable(band),
    }
    if band.statistics is not None:
        document |= {
            key: finite(getattr(band.statistics, name))
            for key, (name, _) in NESTED_STATISTICS.items()
        }
    document |= _told(histogram=band.histogram, source_band=band.source_band)
    return _with_extra(document, band.extra)


# -- both -----------------------------------------------------------------------------------------


def _later(metadata: Metadata) -> dict[str, Any]:
    """Keys added after 0.1.0, the same in both forms."""
    document: dict[str, Any] = {}
    if metadata.time is not None:
        document["time"] = metadata.time
    if metadata.tile_statistics:
        document["tile_statistics"] = True
        document["tile_statistics_columns"] = list(metadata.tile_statistics)
    if metadata.processing:
        document["processing"] = metadata.processing
    if metadata.custom:
        document["custom"] = metadata.custom
    return document


def pixel_zoom(metadata: Metadata) -> int:
    """Zoom at which a pixel is a cell: zoom of the tiles + log4(pixels per tile)."""
    return metadata.max_zoom + round(math.log(metadata.block_width * metadata.block_height, 4))


def edges_of(metadata: Metadata) -> tuple[Any, float]:
    """West, north, east, south of the bounds in tiles of the finest zoom, and their tolerance."""
    west, south, east, north = metadata.bounds
    x, y = lonlat_to_xy([west, east], [north, south], metadata.max_zoom)
    edges = np.array([x[0], y[0], x[1], y[1]])
    if east == 180 or east - west >= 360:
        edges[2] = 2.0**metadata.max_zoom
    # Bounds have six decimals, or the precision of a double. At the finest zooms six decimals are
    # coarser than tiles: an edge nearer to a tile edge than to a tile centre counts as aligned.
    return edges, min(max(_DECIMALS / 360 * 2.0**metadata.max_zoom * 4, 1e-6), 0.25)


def aligned_window(metadata: Metadata) -> tuple[int, int, int, int] | None:
    """Tile columns and rows of the bounds, ends exclusive; None unless they are tile edges."""
    edges, room = edges_of(metadata)
    lines = np.round(edges)
    if (np.abs(edges - lines) > room).any():
        return None
    if lines[2] <= lines[0] or lines[3] <= lines[1]:
        return None
    return int(lines[0]), int(lines[1]), int(lines[2]), int(lines[3])


def size_of(metadata: Metadata, window: tuple[int, int, int, int]) -> tuple[int, int]:
    """Width and height in pixels of a window of tile columns and rows, ends exclusive."""
    x0, y0, x1, y1 = window
    return (x1 - x0) * metadata.block_width, (y1 - y0) * metadata.block_height


def _colortable(band: Band) -> dict[str, list[int]] | None:
    if band.colortable is None:
        return None
    return {str(value): list(colour) for value, colour in sorted(band.colortable.items())}


def finite(value: Number | None) -> Number | None:
    """The number, unless JSON cannot hold it."""
    return value if value is None or math.isfinite(value) else None


def _told(**values: Any) -> dict[str, Any]:
    """The keys whose value is not None."""
    return {key: value for key, value in values.items() if value is not None}


def _with_extra(document: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    return document | {key: value for key, value in extra.items() if key not in document}


def _plain(value: Any) -> Any:
    """The value as JSON can hold it; numbers that are not finite become text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return _text(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
