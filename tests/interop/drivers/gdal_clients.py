"""Run by an interpreter with GDAL's bindings: read a server by OAPIF, STACIT and WMTS."""

from __future__ import annotations

from typing import Any

from osgeo import gdal  # type: ignore[import-not-found]

gdal.UseExceptions()
# As the test asks it: what it read goes no other way than by the driver that it names.
gdal.SetConfigOption("GDAL_HTTP_TIMEOUT", "60")


def features(server: str, job: dict[str, Any]) -> Any:
    """OGC API Features."""
    source = gdal.OpenEx(f"OAPIF:{server}", gdal.OF_VECTOR)
    layer = source.GetLayerByName(job["features"])
    found = {
        "layers": [source.GetLayer(at).GetName() for at in range(source.GetLayerCount())],
        "count": layer.GetFeatureCount(),
        "extent": layer.GetExtent(),
        "rows": {one.GetField("id"): one.GetField(job["field"]) for one in layer},
    }
    layer.SetSpatialFilterRect(*job["box"])
    found["in the box"] = [one.GetField("id") for one in layer]
    layer.SetSpatialFilter(None)
    layer.SetAttributeFilter(job["filter"])
    found["filtered"] = [one.GetField("id") for one in layer]
    return found


def mosaic(server: str, job: dict[str, Any]) -> Any:
    """Items as one raster."""
    address = f'STACIT:"{server}collections/{job["items"]}/items":asset=data'
    return pixels(gdal.OpenEx(address, gdal.OF_RASTER))


def tiles(server: str, job: dict[str, Any]) -> Any:
    """WMTS."""
    return {
        name: pixels(gdal.Open(f"WMTS:{server}WMTSCapabilities.xml,layer={name}"))
        for name in job["layers"]
    }


def pixels(source: Any) -> Any:
    """What a raster holds."""
    return {
        "transform": source.GetGeoTransform(),
        "crs": source.GetSpatialRef().GetAuthorityCode(None),
        "pixels": source.ReadAsArray().tolist(),
    }


def answer(job: dict[str, Any]) -> Any:
    server = job["server"]
    return {
        "OAPIF": features(server, job),
        "STACIT": mosaic(server, job),
        "WMTS": tiles(server, job),
    }
