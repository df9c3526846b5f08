"""Adapters on a stand-in for the classes of torchgeo 0.8.1, and by queries of its samplers."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyproj import CRS, Transformer
from shapely import Point, box

from comal import ml, taco
from comal.errors import ComalError, InvalidInputError, MissingExtraError, NotInContainerError
from comal.ml import torchgeo
from tests.ml.made import flat, geotiff, pack

LEFT, TOP, SIZE = 500_000, 4_600_000, 16
YEAR = 31_557_600_000_000


def scene(number: int) -> tuple[Any, Any]:
    image = np.random.default_rng(number).integers(1, 900, (2, SIZE, SIZE)).astype(np.uint16)
    image[:, 2:4, 3] = 0
    return image, (image[:1] % 4).astype(np.uint8)


def place_of(number: int) -> tuple[float, str]:
    """A row of four scenes without gaps, and one in the next zone."""
    return (LEFT - 300_000, "EPSG:32632") if number == 4 else (LEFT + 160 * number, "EPSG:32631")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("made"))


def made(folder: Path, broken: int | None = None) -> Path:
    samples = []
    for number in range(5):
        (image, mask), (left, crs) = scene(number), place_of(number)
        data = b"II*\0broken" if number == broken else geotiff(image, nodata=0)
        files = {"image.tif": data, "mask.tif": geotiff(mask)}
        leaves = [taco.Sample(id=name, path=file) for name, file in files.items()]
        columns: dict[str, Any] = {
            "stac:crs": crs,
            "stac:geotransform": [left, 10.0, 0.0, TOP, 0.0, -10.0],
            "stac:tensor_shape": [2, SIZE, SIZE],
            "stac:time_start": number * YEAR,
            "stac:time_end": number * YEAR + 1_000_000,
        }
        samples.append(taco.Sample(id=f"s{number}", path=taco.Tortilla(leaves), **columns))
    return pack(folder / "made.tacozip", samples)


class Geo:
    """What `GeoDataset` has."""

    index: Any
    crs = property(lambda self: self.index.crs)
    res = property(lambda self: self._res)

    @property
    def bounds(self) -> Any:
        sides, when = self.index.total_bounds, self.index.index
        x, y = (slice(sides[at], sides[at + 2], self.res[at]) for at in (0, 1))
        return x, y, slice(when.left.min(), when.right.max(), 1)


@pytest.fixture(autouse=True, scope="module")
def installed() -> Iterator[None]:
    stand_in = SimpleNamespace(NonGeoDataset=type("NonGeoDataset", (), {}), GeoDataset=Geo)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchgeo.datasets", stand_in)
        importlib.reload(torchgeo)
        yield
    importlib.reload(torchgeo)


@pytest.fixture
def data(archive: Path) -> Any:
    names = {"image": "image.tif", "mask": "mask.tif"}
    return ml.dataset(archive, names, columns=torchgeo.COLUMNS, where="id <> 's4'")


def test_samples_by_number(data: Any) -> None:
    data.transform = lambda one: {**one, "t": one["mask"].ndim}
    found = torchgeo.as_nongeo(data, to="numpy")
    assert type(found).__mro__[1].__name__ == "NonGeoDataset"
    assert len(list(found)) == len(found) == 4
    (image, mask), sample = scene(2), found[2]
    assert (sample["image"].dtype, sample["mask"].dtype) == (np.float32, np.int64)
    assert np.array_equal(sample["image"], image)
    assert np.array_equal(sample["mask"], mask[0])
    assert sample["t"] == torchgeo.as_geo(data, to="numpy")[:, :]["t"] == 3


def test_the_index_comes_from_columns_alone(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ml.index.Index, "read")
    geo = torchgeo.as_geo(data, to="numpy")
    assert isinstance(geo, Geo)
    assert (geo.crs, geo.res) == (CRS("EPSG:32631"), (10, 10))
    assert geo.bounds[:2] == (slice(LEFT, LEFT + 640, 10), slice(TOP - 160, TOP, 10))
    assert geo.bounds[2] == slice(pd.Timestamp(0), pd.Timestamp((3 * YEAR + 10**6) * 1000), 1)
    when = geo.index.index
    assert (len(when), when.name, when.closed) == (4, "datetime", "both")
    assert geo.index.geometry.iloc[1].equals(box(LEFT + 160, TOP - 160, LEFT + 320, TOP))


def test_queries_of_a_sampler_give_its_pixels(data: Any) -> None:
    geo = torchgeo.as_geo(data, to="numpy")
    scenes = [scene(number) for number in range(4)]
    whole, masks = (np.concatenate(parts, axis=2) for parts in zip(*scenes, strict=True))
    for column, row in product(range(0, 64, 8), (0, 8)):
        x, y = LEFT + 10 * column, TOP - 10 * row
        sample = geo[x : x + 80, y - 80 : y, *geo.bounds[2:]]
        part = np.s_[:, row : row + 8, column : column + 8]
        assert np.array_equal(sample["image"], whole[part])
        assert np.array_equal(sample["mask"], masks[part][0])
        assert sample["crs"] == geo.crs
        assert sample["bounds"] == np.s_[x : x + 80, y - 80 : y, *geo.bounds[2:]]
    assert np.array_equal(geo[LEFT + 150 : LEFT + 170]["image"], whole[:, :, 15:17])
    assert geo[::20, ::20]["image"].shape == (2, 8, 32)
    outside = np.pad(whole[:, :3, :3], ((0, 0), (0, 0), (5, 0)))
    assert np.array_equal(geo[LEFT - 50 : LEFT + 30, TOP - 30 : TOP]["image"], outside)
    early = np.where(np.arange(64) < 16, whole, 0)
    assert np.array_equal(geo[:, :, : pd.Timestamp("1970-06-01")]["image"], early)
    for query in (np.s_[0:100], np.s_[:, :, : pd.Timestamp("1960-01-01")]):
        with pytest.raises(NotInContainerError, match="no sample there"):
            geo[query]


def test_pixels_of_other_zones_are_warped(archive: Path) -> None:
    data = ml.dataset(archive, {"image": "image.tif"}, columns=torchgeo.COLUMNS)
    geo = torchgeo.as_geo(data, to="numpy")
    zones = Transformer.from_crs(32632, 32631, always_xy=True)
    x, y = zones.transform(place_of(4)[0] + 85, TOP - 85)
    assert geo.index.geometry.iloc[4].contains(Point(x, y))
    found = geo[x - 5 : x + 5, y - 5 : y + 5]["image"]
    assert found.ravel().tolist() == scene(4)[0][:, 8, 8].tolist()
    # Samplers go by the bounds of an outline, whose corners have no pixels.
    _, _, east, north = geo.index.geometry.iloc[4].bounds
    assert not geo[east - 10 : east, north - 10 : north]["image"].any()
    other = torchgeo.as_geo(data.take([4, 3, 2, 1, 0]), to="numpy")
    assert other.crs == CRS("EPSG:32632")
    other.index.to_crs(geo.crs, inplace=True)  # as an intersection does
    assert np.array_equal(other[: LEFT + 640, :]["image"], geo[: LEFT + 640, :]["image"])
    overlapping = torchgeo.as_geo(data.take([1, 1, 0]), to="numpy")
    assert np.array_equal(overlapping[LEFT + 160 : LEFT + 320]["image"], scene(1)[0])


def test_broken_samples_are_left_out(tmp_path: Path) -> None:
    made(tmp_path, broken=1)
    told: list[Any] = []
    names: Any = {"image": "image.tif"}
    for on_error in ("raise", told.append):
        data = ml.dataset(
            tmp_path / "made.tacozip", names, columns=torchgeo.COLUMNS, on_error=on_error
        )
        geo = torchgeo.as_geo(data, to="numpy")
        whole = np.s_[LEFT : LEFT + 480, TOP - 160 : TOP]
        if on_error == "raise":
            with pytest.raises(ComalError, match="'s1'"):
                geo[whole]
    found = np.split(geo[whole]["image"], 3, axis=2)
    right = (scene(0)[0], np.zeros((2, SIZE, SIZE)), scene(2)[0])
    assert all(map(np.array_equal, found, right))
    with pytest.raises(NotInContainerError, match="no sample there"):
        geo[LEFT + 200 : LEFT + 300]
    assert len(told) == 2


def test_adapters_are_pickled(data: Any) -> None:
    for adapter, key in ((torchgeo.as_geo, np.s_[:, :]), (torchgeo.as_nongeo, 1)):
        found = adapter(data, to="numpy")
        assert np.array_equal(pickle.loads(pickle.dumps(found))[key]["image"], found[key]["image"])


def test_what_is_refused(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="without CRS"):
        torchgeo.as_geo(ml.dataset(flat(tmp_path), columns=["label"]))
    field = ml.Field("image.tif", window=(0, 0, 8, 8))
    cut = ml.dataset(archive, {"image": field}, columns=torchgeo.COLUMNS)
    with pytest.raises(InvalidInputError, match="not a whole image"):
        torchgeo.as_geo(cut, to="numpy")[:, :]
    monkeypatch.setitem(sys.modules, "torchgeo.datasets", None)
    importlib.reload(torchgeo)
    for adapter in (torchgeo.as_geo, torchgeo.as_nongeo):
        with pytest.raises(MissingExtraError, match="need TorchGeo"):
            adapter(cut)
