"""Reference systems as they stand in columns of files, which strangers have written."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyproj
import pytest

from comal.errors import InvalidInputError
from comal.geo.crs import projection, wkt_of
from comal.raster.describing import crs_wkt
from comal.raster.zones import crs_text

_UTM = "+proj=utm +zone=18 +ellps=intl +units=m"
_BOUND = pyproj.CRS(f"{_UTM} +nadgrids=@grid.gsb")


def _naming(path: str) -> dict[str, str]:
    """Texts of which each would have PROJ open `path`."""
    document = _BOUND.to_json().replace("@grid.gsb", path)
    return {
        "PROJ string": f"{_UTM} +nadgrids={path}",
        "optional grid": f"{_UTM} +nadgrids=@null,@{path}",
        "behind many": f"{_UTM} +nadgrids={'@null,' * 999}{path}",
        "quoted": f'{_UTM} +nadgrids="{path}"',
        "init file": f"+init={path}:1",
        "pipeline": f"+proj=pipeline +step +proj=hgridshift +grids={path}",
        "WKT 2": _BOUND.to_wkt().replace("@grid.gsb", path),
        "WKT 1": _BOUND.to_wkt("WKT1_GDAL").replace("@grid.gsb", path),
        "PROJJSON": document,
        "escaped PROJJSON": document.replace(path, path.replace("/", "\\u002f")),
        "path": path,
        "path behind @": f"@{path}",
        "home": f"~{path}",
        "drive": f"C:{path}",
        "address": f"http://127.0.0.1:9{path}",
        "GDAL address": f"  https://spatialreference.org{path}",
        "PROJ4_GRIDS": pyproj.CRS("EPSG:3857")
        .to_wkt("WKT1_GDAL")
        .replace("AUTHORITY", f'EXTENSION["PROJ4_GRIDS","{path}"],AUTHORITY', 1),
    }


# Each way that a text of a stranger goes to PROJ or to GDAL.
DOORS: dict[str, Callable[[str], Any]] = {
    "columns": projection,
    "WKT": wkt_of,
    "rasters": lambda text: crs_wkt(text, "raster"),
    "zones": lambda text: projection(crs_text(text), "zones"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", sorted(_naming("/a/b")))
def test_a_text_out_of_a_file_opens_no_other_file(kind: str, door: str) -> None:
    text = _naming("/there/is/no/such/pipe")[kind]
    assert "pipe" in text
    # PROJ would open it, and wait for ever where it is a pipe that nobody writes to.
    with pytest.raises(InvalidInputError, match="names a file"):
        DOORS[door](text)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "text",
    [
        f"{_UTM} +nadgrids=@null,@grid.gsb",
        "+init=grid.gsb:1",
        _BOUND.to_wkt(),
        _BOUND.to_wkt("WKT1_GDAL"),
        _BOUND.to_json(),
    ],
)
def test_nor_one_of_the_directory_that_a_program_runs_in(
    text: str, door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grid.gsb").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="names a file"):
        DOORS[door](text)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "text",
    [
        "EPSG:32718",
        "epsg:32718",
        "ESRI:54009",
        "IGNF:LAMB93",
        "OGC:CRS84",
        "urn:ogc:def:crs:EPSG::32718",
        "http://www.opengis.net/def/crs/EPSG/0/32718",
        pyproj.CRS("ESRI:54009").to_wkt(),
        pyproj.CRS("ESRI:54009").to_wkt("WKT1_ESRI"),
        pyproj.CRS("ESRI:54009").to_json(),
        "+proj=sinu +R=6371007.181 +units=m",
    ],
)
def test_every_text_that_proj_knows_is_taken(text: str, door: str) -> None:
    found = DOORS[door](text)
    name = found if isinstance(found, str) else found.name or "EPSG:4326"
    x, y = projection(name).to_lonlat([400_000.0], [6_000_000.0])
    own = pyproj.Transformer.from_crs(text, "EPSG:4326", always_xy=True)
    wanted = (400_000.0, 6_000_000.0)
    if projection(text).transformer is not None:
        wanted = own.transform(*wanted)
    assert (x[0], y[0]) == pytest.approx(wanted)


@pytest.mark.parametrize("door", DOORS)
def test_an_authority_that_proj_does_not_know_is_named(door: str) -> None:
    with pytest.raises(InvalidInputError, match="EPSG, ESRI") as caught:
        DOORS[door]("SR-ORG:6974")
    assert "SR-ORG:6974" in str(caught.value)


def test_no_object_of_proj_is_shared_between_threads() -> None:
    one = projection("EPSG:32718")
    assert pickle.loads(pickle.dumps(one)) == one
    together = Barrier(8)

    def mine(_: int) -> int:
        transformer = one.transformer
        together.wait(10)
        assert one.transformer is transformer
        return id(transformer)

    with ThreadPoolExecutor(8) as pool:
        assert len({id(one.transformer), *pool.map(mine, range(8))}) == 9


@pytest.mark.parametrize(
    "text",
    [
        f"{_UTM} +nadgrids=@null +to_meter=1/3.28084",
        _BOUND.to_wkt(),
        _BOUND.to_json(),
        pyproj.CRS("EPSG:3857").to_wkt("WKT1_GDAL"),
        pyproj.CRS("EPSG:3857").to_json(),
        json.dumps({**pyproj.CRS("EPSG:32718").to_json_dict(), "remarks": "a/b"}),
    ],
)
def test_slashes_elsewhere_are_harmless(text: str) -> None:
    assert projection(text).transformer is not None


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[", "PROJCS[", "\0", "EPSG:", '{"a":' * 9_999, "\ud800"]
)
def test_what_is_no_reference_system(text: str) -> None:
    with pytest.raises(InvalidInputError):
        projection(text)
