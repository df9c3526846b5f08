"""Names of targets that say another format than what would be written.

Readers here go by the bytes, but most other programs go by the name: a RaQuet file that is called
``dem.tif`` is most often a slip, and opens nowhere.
"""

from __future__ import annotations

import os
from typing import Final

from comal.errors import InvalidInputError
from comal.storage.location import local_path, shown_path

_FORMATS: Final = {
    ".csv": "CSV",
    ".geojson": "GeoJSON",
    ".jp2": "JPEG 2000",
    ".jpeg": "JPEG",
    ".jpg": "JPEG",
    ".json": "JSON",
    ".mbtiles": "MBTiles",
    ".nc": "NetCDF",
    ".parquet": "Parquet",
    ".pmtiles": "PMTiles",
    ".png": "PNG",
    ".taco": "TACO 1",
    ".tacozip": "TACO",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".tortilla": "Tortilla",
    ".vrt": "GDAL VRT",
    ".webp": "WebP",
    ".zip": "ZIP",
}


def check_ending(target: str | os.PathLike[str], *own: str) -> None:
    """Refuse a target that is called like another format; other names are the caller's business.

    Parameters
    ----------
    target
        A local path.
    own
        What the name may end in, such as ``.tif``; nothing for a folder.

    Raises
    ------
    InvalidInputError
        The name ends in that of another format, or it is no local path.
    """
    path = local_path(target, "the target")
    ending = path.suffix.lower()
    if ending in own or ending not in _FORMATS:
        return
    raise InvalidInputError(
        "the name of the target says another format",
        where=shown_path(path),
        found=f"{ending} ({_FORMATS[ending]})",
        expected=" or ".join(own) if own else "the name of a folder",
        hint=f"choose another name, or what writes {_FORMATS[ending]}",
    )
