"""Adapters beside the protocols of torchgeo 0.8.1, with a stand-in for its classes and samplers."""

from __future__ import annotations

import abc
import pickle
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rasterio
from pyproj import CRS, Transformer
from rasterio.io import MemoryFile
from shapely import box

from comal import ml, taco
from comal.errors import InvalidInputError
from comal.ml import torchgeo
from tests.ml.made import FIELDS, flat

SIZE = 16
LEFT, TOP = 500_000, 4_600_000
YEAR = 31_557_600_000_000


def scene(number: int) -> tuple[Any, Any]:
    random = np.random.default_rng(number)
    image = random.integers(1, 900, (2, SIZE, SIZE)).astype(np.uint16)
    image[:, 2:4, 3] = 0
    return image, (image[:1] % 4).astype(np.uint8)


def tiff(array: Any, left: float, top: float, crs: str, nodata: Any = None) -> bytes:
    bands, rows, columns = array.shape
    size = {"count": bands, "height": rows, "width": columns, "nodata": nodata}
    with MemoryFile() as file:
        place = {"crs": crs, "transform": rasterio.Affine(10, 0, left, 0, -10, top)}
        with file.open(driver="GTiff", dtype=array.dtype, **place, **size) as image:
            image.write(array)
        return bytes(file.read())


def place_of(number: int) -> tuple[float, float, str]:
    """A row of four scenes without gaps, and one in the next zone."""
    if number == 4:
        return LEFT - 300_000, TOP, "EPSG:32632"
    return LEFT + 160 * number, TOP, "EPSG:32631"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = []
    for number in range(5):
        image, mask = scene(number)
        left, top, crs = place_of(number)
        leaves = [
            taco.Sample(id="image.tif", path=tiff(image, left, top, crs, 0)),
            taco.Sample(id="mask.tif", path=tiff(mask, left, top, crs)),
        ]
        columns: dict[str, Any] = {
            "stac:crs": crs,
            "stac:geotransform": [left, 10.0, 0.0, top, 0.0, -10.0],
            "stac:tensor_shape": [2, SIZE, SIZE],
            "stac:time_start": number * YEAR,
            "stac:time_end": number * YEAR + 1_000_000,
        }
        samples.append(taco.Sample(id=f"s{number}", path=taco.Tortilla(leaves), **columns))
    path = tmp_path_factory.mktemp("made") / "made.tacozip"
    taco.create(taco.Taco(taco.Tortilla(samples), **FIELDS), path)
    return path


@pytest.fixture
def data(archive: Path) -> Any:
    names = {"image": "image.tif", "mask": "mask.tif"}
    return ml.dataset(archive, names, columns=torchgeo.COLUMNS, where="id <> 's4'")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The base classes of torchgeo, of which none may be left abstract."""

    class NonGeoDataset(abc.ABC):
        @abc.abstractmethod
        def __getitem__(self, index: int) -> Any: ...

        @abc.abstractmethod
        def __len__(self) -> int: ...

    class GeoDataset(abc.ABC):
        @abc.abstractmethod
        def __getitem__(self, query: Any) -> Any: ...

        def __and__(self, other: Any) -> Any:
            other.crs, other.res = self.crs, self.res  # type: ignore[attr-defined]
            return self, other

    datasets: Any = types.ModuleType("torchgeo.datasets")
    datasets.NonGeoDataset, datasets.GeoDataset = NonGeoDataset, GeoDataset
    monkeypatch.setitem(sys.modules, "torchgeo", types.ModuleType("torchgeo"))
    monkeypatch.setitem(sys.modules, "torchgeo.datasets", datasets)
    return datasets


def grid_sampler(geo: Any, size: int, roi: Any = None, toi: Any = None) -> Iterator[Any]:
    """The queries of a sampler of patches, by the steps of torchgeo's."""
    index = geo.index if roi is None else geo.index.clip(roi)
    if toi is not None:
        index = index.iloc[index.index.overlaps(toi)]
    high, wide = size * geo.res[1], size * geo.res[0]
    for number in range(len(index)):
        west, south, east, north = index.geometry.iloc[number].bounds
        when = index.index[number]
        for y in np.arange(south, north - high + 1e-6, high):
            for x in np.arange(west, east - wide + 1e-6, wide):
                yield slice(x, x + wide), slice(y, y + high), slice(when.left, when.right)


def test_samples_by_number(data: Any, installed: Any) -> None:
    found = torchgeo.as_nongeo(
        data, mask="mask", to="numpy", transforms=lambda one: {**one, "t": 1}
    )
    assert isinstance(found, installed.NonGeoDataset)
    assert len(found) == 4
    image, mask = scene(2)
    sample = found[2]
    assert sample["image"].dtype == np.float32
    assert np.array_equal(sample["image"], image)
    assert sample["mask"].dtype == np.int64
    assert np.array_equal(sample["mask"], mask[0])
    assert sample["t"] == 1
    assert len(list(torchgeo.as_nongeo(data, to="numpy"))) == 4
    with pytest.raises(InvalidInputError, match="no 'clouds'"):
        torchgeo.as_nongeo(data, image="clouds", to="numpy")[0]


def test_the_index_comes_from_columns_alone(
    data: Any, installed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("a sample was read")

    with monkeypatch.context() as patch:
        patch.setattr(ml.index.Index, "read", fail)
        geo = torchgeo.as_geo(data, to="numpy")
    assert isinstance(geo, installed.GeoDataset)
    assert len(geo) == 4
    assert geo.crs == CRS("EPSG:32631")
    assert geo.res == (10, 10)
    x, y, t = geo.bounds
    assert (x.start, x.stop, x.step) == (LEFT, LEFT + 640, 10)
    assert (y.start, y.stop, y.step) == (TOP - 160, TOP, 10)
    assert t.start == pd.Timestamp("1970-01-01")
    assert t.stop == pd.Timestamp("1970-01-01") + pd.Timedelta(microseconds=3 * YEAR + 1_000_000)
    assert geo.index.index.name == "datetime"
    assert geo.index.index.closed == "both"
    assert geo.index.geometry.iloc[1].equals(box(LEFT + 160, TOP - 160, LEFT + 320, TOP))


def test_queries_of_a_sampler_give_its_pixels(data: Any) -> None:
    geo = torchgeo.as_geo(data, mask="mask", to="numpy")
    whole = np.concatenate([scene(number)[0] for number in range(4)], axis=2)
    masks = np.concatenate([scene(number)[1] for number in range(4)], axis=2)
    seen = 0
    for query in grid_sampler(geo, 8):
        sample = geo[query]
        column, row = int(query[0].start - LEFT) // 10, int(TOP - query[1].stop) // 10
        part = np.s_[:, row : row + 8, column : column + 8]
        assert np.array_equal(sample["image"], whole[part])
        assert np.array_equal(sample["mask"], masks[part][0])
        assert sample["crs"] == geo.crs
        assert sample["bounds"] == query
        seen += 1
    assert seen == 16
    region = box(LEFT, TOP - 160, LEFT + 320, TOP)
    early = pd.Interval(pd.Timestamp("1969-01-01"), pd.Timestamp("1970-06-01"), closed="both")
    assert len(list(grid_sampler(geo, 16, region))) == 2
    assert len(list(grid_sampler(geo, 16, toi=early))) == 1


def test_queries_may_leave_out_parts(data: Any) -> None:
    geo = torchgeo.as_geo(data, to="numpy")
    whole = np.concatenate([scene(number)[0] for number in range(4)], axis=2)
    assert np.array_equal(geo[:, :]["image"], whole)
    assert np.array_equal(geo[LEFT + 150 : LEFT + 170]["image"], whole[:, :, 15:17])
    coarse = geo[::20, ::20]["image"]
    assert coarse.shape == (2, 8, 32)
    outside = geo[LEFT - 50 : LEFT + 30, TOP - 30 : TOP]["image"]
    assert np.array_equal(outside[:, :, 5:], whole[:, :3, :3])
    assert not outside[:, :, :5].any()
    for query in (np.s_[0:100], np.s_[:, :, : pd.Timestamp("1960-01-01")]):
        with pytest.raises(IndexError, match="no sample at this place"):
            geo[query]


def test_pixels_of_other_zones_are_warped(archive: Path, installed: Any) -> None:
    names = {"image": "image.tif"}
    data = ml.dataset(archive, names, columns=torchgeo.COLUMNS)
    geo = torchgeo.as_geo(data, to="numpy", crs="EPSG:32631")
    assert len(geo) == 5
    west, south, east, north = geo.index.geometry.iloc[4].bounds
    left, top, _ = place_of(4)
    x, y = Transformer.from_crs(32632, 32631, always_xy=True).transform(left + 85, top - 85)
    assert west < x < east
    assert south < y < north
    found = geo[x - 5 : x + 5, y - 5 : y + 5]["image"]
    assert found.ravel().tolist() == scene(4)[0][:, 8, 8].tolist()
    # Samplers go by the bounds of an outline, whose corners have no pixels.
    assert not geo[east - 10 : east, north - 10 : north]["image"].any()
    assert all(geo[query]["image"].shape == (2, 8, 8) for query in grid_sampler(geo, 8))
    other = torchgeo.as_geo(data, to="numpy", crs="EPSG:32632", res=30)
    geo & other
    assert (other.crs, other.res) == (geo.crs, (10, 10))
    assert np.array_equal(other[:, :]["image"], geo[:, :]["image"])


def test_where_samples_overlap_the_first_with_a_value_counts(archive: Path) -> None:
    data = ml.dataset(archive, {"image": "image.tif"}, columns=torchgeo.COLUMNS)
    twice = data.take([1, 1, 0])
    geo = torchgeo.as_geo(twice, to="numpy")
    assert np.array_equal(geo[LEFT + 160 : LEFT + 320]["image"], scene(1)[0])


def test_adapters_are_pickled_with_and_without_torchgeo(
    data: Any, installed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for found in (torchgeo.as_geo(data, to="numpy"), torchgeo.as_nongeo(data, to="numpy")):
        key = np.s_[:, :] if hasattr(found, "crs") else 1
        text = pickle.dumps(found)
        again = pickle.loads(text)
        assert np.array_equal(again[key]["image"], found[key]["image"])
        base = installed.GeoDataset if hasattr(found, "crs") else installed.NonGeoDataset
        assert isinstance(again, base)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "torchgeo.datasets", None)
            assert not isinstance(pickle.loads(text), base)


def test_what_cannot_be_placed_is_refused(data: Any, tmp_path: Path) -> None:
    plain = ml.dataset(flat(tmp_path), columns=["label"])
    with pytest.raises(InvalidInputError, match=r"columns=comal.ml.torchgeo.COLUMNS"):
        torchgeo.as_geo(plain)
    cut = ml.dataset(
        data.index.payloads.sources[0].href,
        {"image": ml.Field("image.tif", window=(0, 0, 8, 8))},
        columns=torchgeo.COLUMNS,
    )
    with pytest.raises(InvalidInputError, match="not a whole image"):
        torchgeo.as_geo(cut, to="numpy")[:, :]
