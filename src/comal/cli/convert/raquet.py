"""``comal convert`` from rasters to RaQuet and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comal import raquet
from comal.cli.convert.samples import refuse
from comal.cli.options import Style
from comal.cli.output import working
from comal.errors import without_secrets

_RASTERS = {
    ".tif",
    ".tiff",
    ".vrt",
    ".jp2",
    ".png",
    ".jpg",
    ".jpeg",
    ".webp",
    ".nc",
    ".nc4",
    ".h5",
    ".hdf5",
    ".zarr",
    ".img",
    ".grib",
    ".grb2",
    ".asc",
    ".hgt",
}
_TIFF = {".tif", ".tiff"}
_TABLE = ".parquet"


def handles(source: str, output: str) -> bool:
    """Whether a raster becomes RaQuet, or a RaQuet file a GeoTIFF; told by their names."""
    before, after = Path(_file(without_secrets(source))).suffix.lower(), Path(output).suffix.lower()
    return (before in _RASTERS and after == _TABLE) or (before == _TABLE and after in _TIFF)


def _file(source: str) -> str:
    """The file behind the name of a variable."""
    if ":" not in source:
        return source
    from comal.raster.variables import file_of  # noqa: PLC0415 - GDAL

    return str(file_of(source))


def run(
    source: str, output: str, style: Style, *, overwrite: bool, variable: str | None = None
) -> Mapping[str, Any]:
    """Convert, and tell what was written."""
    with working(f"converting {source}", style) as progress:
        if Path(output).suffix.lower() == _TABLE:
            made = raquet.write(
                source, output, overwrite=overwrite, progress=progress, variable=variable
            )
            return {"from": "raster", "to": "raquet", **made.to_dict()}
        refuse({"variable": variable}, "GeoTIFF")
        exported = raquet.to_cog(source, output, overwrite=overwrite, progress=progress)
        return {"from": "raquet", "to": "cog", **exported.to_dict()}
