"""Reference systems as they stand in columns of files, which strangers have written."""

from __future__ import annotations

import json

import pyproj
import pytest

from comal.errors import InvalidInputError
from comal.geo.crs import projection

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
    }


@pytest.mark.parametrize("kind", sorted(_naming("/a/b")))
def test_a_text_out_of_a_file_opens_no_other_file(kind: str) -> None:
    text = _naming("/there/is/no/such/pipe")[kind]
    assert "pipe" in text
    # PROJ would open it, and wait for ever where it is a pipe that nobody writes to.
    with pytest.raises(InvalidInputError, match="names a file"):
        projection(text)


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
