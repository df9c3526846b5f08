"""The server in the hands of clients that others wrote: STAC's, OGC's and GDAL's."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from comal import raquet, taco
from tests.interop.environments import drive
from tests.server.making import COLLECTION, raquet_file, taco_file, tiff, tileset
from tests.server.serving import free_port, serving

pytestmark = pytest.mark.interop

CLIENTS = "clients"
GDAL = "raquet-0.9.0"
"""Another environment, whose peer needs GDAL's bindings as well."""

ODD: list[dict[str, Any]] = [
    {"title": "a title", "gsd": 10.0, "created": "long ago", "license": "ask me", "bands": 3},
    {"title": None, "gsd": None, "created": None, "license": None, "bands": None},
]
"""Columns of names to which STAC gives a meaning, of samples without time and place."""


def scenes(path: Path) -> Path:
    """Four rasters that lie beside one another."""
    samples = []
    for number in range(4):
        x, y = number % 2 * 160, number // 2 * 160
        pixels = np.full((1, 16, 16), 10 * number + 1, np.uint8)
        place: dict[str, Any] = {
            "stac:crs": "EPSG:32718",
            "stac:geotransform": [300_000.0 + x, 10.0, 0.0, 8_700_000.0 - y, 0.0, -10.0],
            "stac:tensor_shape": list(pixels.shape),
            "stac:time_start": dt.datetime(2024, 1 + number, 1, tzinfo=dt.UTC),
            "stac:time_end": dt.datetime(2024, 1 + number, 2, tzinfo=dt.UTC),
        }
        picture = tiff(pixels, origin=(300_000 + x, 8_700_000 - y))
        sample = taco.Sample(id=f"part{number}.tif", path=picture, **place)
        samples.append(sample)
    taco.create(taco.Taco(taco.Tortilla(samples), **COLLECTION), path)
    return path


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("served")
    colours = np.random.default_rng(1).integers(0, 256, (3, 128, 128)).astype(np.uint8)
    bands = {f"b{n}": band for n, band in enumerate(colours, 1)}
    odd = [taco.Sample(id=f"s{n}", path=b"x", **one) for n, one in enumerate(ODD)]
    taco.create(taco.Taco(taco.Tortilla(odd), **COLLECTION), folder / "odd.tacozip")
    return {
        "samples": taco_file(folder / "samples.tacozip"),
        "samples-odd": folder / "odd.tacozip",
        "samples-rasters": scenes(folder / "rasters.tacozip"),
        "rgb": raquet_file(folder / "rgb.parquet", bands),
        "tiles": tileset(folder / "tiles"),
        "broken": folder / "gone.parquet",
    }


@pytest.fixture(scope="module")
def server(archives: dict[str, Path]) -> Iterator[str]:
    """Its address, as the operator names it to clients."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    sources = {name: str(path) for name, path in archives.items()}
    options = {"public_url": address}
    with serving(sources, port=port, options=options):
        yield f"{address}/"


@pytest.fixture(scope="module")
def clients(server: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    ring = [[0, 0], [60, 0], [60, 20], [0, 20], [0, 0]]
    polygon = {"type": "Polygon", "coordinates": [ring]}
    job = {"server": server, "collection": "samples", "geometry": polygon, "box": [9, 8, 13, 9]}
    (found,) = drive(CLIENTS, "clients.py", tmp_path_factory.mktemp("home"), [job])
    return found


def test_stac_api_validator_has_nothing_to_say(clients: Any) -> None:
    found = clients["validator"]
    assert found["exit_code"] == 0, found["output"]
    assert "Errors: none" in found["output"]


def test_pystac_finds_all_and_all_is_valid(clients: Any) -> None:
    found = clients["pystac"]
    assert set(found) == {"samples", "samples-odd", "samples-rasters", "rgb", "tiles"}
    assert found["samples"]["license"] == COLLECTION["licenses"][0]
    assert list(found["samples"]["items"]) == [f"scene {n}" for n in range(6)]
    assert found["samples"]["bbox"] == [[0.0, 8.0, 52.0, 10.0]]
    first, second = found["samples-odd"]["items"].values()
    assert (first["title"], first["gsd"], first["comal:created"]) == ("a title", 10.0, "long ago")
    assert (first["comal:license"], first["comal:bands"]) == ("ask me", 3)
    assert not {"title", "gsd", "comal:created"} & set(second)
    for one in (first, second):
        ends = one["start_datetime"], one["end_datetime"]
        assert (one["datetime"], *ends) == (None, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")


def test_owslib_reads_features_and_pictures(clients: Any, archives: dict[str, Path]) -> None:
    found = clients["owslib"]
    assert found["features"] == ["samples", "samples-odd", "samples-rasters"]
    assert (found["page"], found["matched"]) == (["scene 0", "scene 1"], 6)
    assert found["box"] == 1
    assert "cloud_cover" in found["queryables"]
    rgb = found["layers"]["rgb"]
    assert (rgb["zooms"], found["layers"]["tiles"]["zooms"]) == (2, 3)
    picture = np.asarray(Image.open(io.BytesIO(bytes.fromhex(rgb["tile"]))))
    tile = raquet.open(archives["rgb"]).tile(1, 1, 0)
    assert np.array_equal(np.moveaxis(picture[..., :3], 2, 0), tile)


def test_gdal_reads_features_items_and_pictures(
    server: str, archives: dict[str, Path], tmp_path: Path
) -> None:
    job = {
        "server": server,
        "features": "samples",
        "field": "cloud_cover",
        "box": [9, 8, 13, 9],
        "filter": "cloud_cover < 15",
        "items": "samples-rasters",
        "layers": ["rgb"],
    }
    (found,) = drive(GDAL, "gdal_clients.py", tmp_path / "home", [job])
    table = taco.load(archives["samples"]).data
    expected = dict(zip(table["id"].to_pylist(), table["cloud_cover"].to_pylist(), strict=True))
    features = found["OAPIF"]
    assert set(features["layers"]) >= {"samples", "samples-rasters"}
    assert (features["count"], features["rows"]) == (6, expected)
    assert features["extent"] == [0.0, 52.0, 8.0, 10.0]
    assert features["in the box"] == ["scene 1"]
    assert features["filtered"] == [
        name for name, cover in expected.items() if cover is not None and cover < 15
    ]
    mosaic = found["STACIT"]
    assert (mosaic["crs"], mosaic["transform"]) == ("32718", [300_000, 10, 0, 8_700_000, 0, -10])
    parts = np.array([[1, 11], [21, 31]], np.uint8)
    assert np.array_equal(np.squeeze(mosaic["pixels"]), parts.repeat(16, 0).repeat(16, 1))
    picture = np.array(found["WMTS"]["rgb"]["pixels"])
    window = raquet.open(archives["rgb"]).read(zoom=1)
    assert found["WMTS"]["rgb"]["crs"] == "3857"
    assert np.array_equal(picture[:3], window.data)
