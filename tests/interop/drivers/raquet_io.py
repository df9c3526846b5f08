"""Run by the interpreter of raquet-io: validate and export our files, convert rasters to theirs.

A job is ``{"do": "validate" | "export" | "convert", "from": ..., "to": ..., "options": {...}}``.
"""

from __future__ import annotations

from typing import Any

from osgeo import gdal  # type: ignore[import-not-found]

if not hasattr(gdal, "GDT_Int8"):
    # The package wants its name, which bindings have had since 3.7; of files none has the type.
    gdal.GDT_Int8 = 14

from raquet import (  # type: ignore[import-not-found]
    raquet2geotiff,
    raster2raquet,
    validate,
)


def convert(job: dict[str, Any]) -> None:
    options = job.get("options", {})
    raster2raquet.main(
        job["from"],
        job["to"],
        raster2raquet.ZoomStrategy(options.get("zoom", "auto")),
        raster2raquet.ResamplingAlgorithm("near"),
        options["block_zoom"],
        **options.get("more", {}),
    )


def answer(job: dict[str, Any]) -> Any:
    if job["do"] == "validate":
        found = validate.validate_raquet(job["from"])
        return {"valid": found.is_valid, "errors": found.errors, "warnings": found.warnings}
    if job["do"] == "export":
        raquet2geotiff.main(job["from"], job["to"])
    else:
        convert(job)
    return {}
