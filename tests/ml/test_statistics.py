"""Statistics of fields beside those of NumPy over all pixels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import ml, raquet, taco, tapalcatl
from comal.errors import ConflictError, InvalidInputError, InvalidMetadataError, ObjectNotFoundError
from comal.ml import statistics as room
from comal.ml.order import Order
from comal.raster.pictures import encode_picture
from tests.ml.made import flat, geotiff, nested, pack, pixels
from tests.raquet.writing.sources import noise, on_grid

COUNT = 12
Q = (0.0, 2.0, 50.0, 97.5, 100.0)


@pytest.fixture(scope="module")
def arrays() -> dict[str, list[Any]]:
    """Pixels of each field, as they are stored."""
    random = np.random.default_rng(5)
    shape = (16, 16)
    found: dict[str, list[Any]] = {"image": [], "height": [], "mask": [], "wide": []}
    for _ in range(COUNT):
        found["image"].append(random.integers(0, 90, (3, *shape)).astype(np.uint16))
        height = random.normal(500, 200, (1, *shape)).astype(np.float32)
        height[random.random(height.shape) < 0.2] = -9999
        height[random.random(height.shape) < 0.1] = np.nan
        height[0, 0, 0] = np.inf
        found["height"].append(height)
        found["mask"].append(random.integers(0, 5, (1, *shape)).astype(np.uint8))
        found["wide"].append(random.integers(-(2**31), 2**31, (2, *shape)).astype(np.int32))
    return found


@pytest.fixture(scope="module")
def archive(arrays: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodata: dict[str, Any] = {"image": 0, "height": -9999, "mask": 4, "wide": None}
    samples = []
    for number in range(COUNT):
        leaves = [
            taco.Sample(id=f"{name}.tif", path=geotiff(arrays[name][number], **profile))
            for name, profile in _profiles(nodata)
        ]
        split = ["train", "test", None][number % 3]
        samples.append(taco.Sample(id=f"s{number:02d}", path=taco.Tortilla(leaves), split=split))
    return pack(tmp_path_factory.mktemp("made") / "made.tacozip", samples)


def _profiles(nodata: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, {"nodata": value, "predictor": 1, "compress": "deflate"})
        for name, value in nodata.items()
    ]


def opened(archive: Path, **more: Any) -> Any:
    names = {name: f"{name}.tif" for name in ("image", "height", "mask", "wide")}
    return ml.dataset(archive, names, columns=["split"], **more)


def valid(name: str, arrays: dict[str, list[Any]], rows: Any) -> list[Any]:
    """Valid pixels of each band of some samples."""
    whole = np.stack([arrays[name][row] for row in rows]).swapaxes(0, 1)
    # Each in its own type: NumPy 2.0 may crash where integers are compared with one out of range.
    holes = {"image": 0, "height": -9999, "mask": 4}
    good = np.isfinite(whole) & (whole != holes[name] if name in holes else True)
    return [band[mask] for band, mask in zip(whole, good, strict=True)]


def compare(found: Any, arrays: dict[str, list[Any]], rows: Any) -> None:
    assert found.samples == len(rows)
    for name in arrays:
        bands = [band.astype(np.float64) for band in valid(name, arrays, rows)]
        one = found[name]
        assert one.exact
        assert one.count.tolist() == [len(band) for band in bands]
        for stat in ("mean", "std", "min", "max"):
            right = [getattr(np, stat)(band) for band in bands]
            assert np.allclose(getattr(one, stat), right, rtol=1e-12), (name, stat)
        for q, values in one.percentiles.items():
            assert np.allclose(values, [np.percentile(band, q) for band in bands]), (name, q)


def test_statistics_are_those_of_numpy(archive: Path, arrays: dict[str, list[Any]]) -> None:
    data = opened(archive)
    found = data.stats(classes=["mask"], by="split", percentiles=Q, workers=3)
    compare(found, arrays, range(COUNT))
    assert list(found.by) == ["train", "test", None]
    for number, one in enumerate(found.by.values()):
        compare(one, arrays, range(number, COUNT, 3))
    values, counts = np.unique(valid("mask", arrays, range(COUNT))[0], return_counts=True)
    assert {k: v.tolist() for k, v in found["mask"].classes.items()} == {
        value: [count] for value, count in zip(values.tolist(), counts.tolist(), strict=True)
    }
    assert found["image"].classes == {}
    alone = data.stats(classes=["mask"], by="split", percentiles=Q, workers=0)
    assert alone.to_dict() == found.to_dict()
    image = (data[0]["image"] - found["image"].mean[:, None, None]) / found["image"].std[
        :, None, None
    ]
    assert abs(image.mean()) < 0.2


def test_a_sample_is_drawn_by_its_seed(archive: Path, arrays: dict[str, list[Any]]) -> None:
    data = opened(archive)
    rows = Order(COUNT, shuffle=True, seed=3).at(np.arange(7))
    compare(data.stats(sample=7, seed=3, percentiles=Q), arrays, rows)
    assert data.stats(sample=99).samples == COUNT


def test_windows_bands_types_and_series(archive: Path, tmp_path: Path) -> None:
    fields = {
        "image": ml.Field("image.tif", bands=[2], window=(3, 4, 5, 6), dtype="float64"),
        "height": ml.Field("height.tif", dtype="int16"),
    }
    found = ml.dataset(archive, fields, transform=lambda sample: sample["id"]).stats()
    assert found["image"].count.sum() <= 30 * COUNT
    assert found["height"].count.sum() < 0.8 * 256 * COUNT
    assert found["height"].exact
    series = ml.dataset(nested(tmp_path), {"x": "series/*.tif", "about": "about.json"}).stats()
    right = np.stack([pixels(row + step) for row in range(12) for step in range(3)])
    assert list(series.fields) == ["x"]
    assert np.allclose(series["x"].mean, right.mean(axis=(0, 2, 3)))
    assert series["x"].count.tolist() == [36 * 256] * 3


def test_many_pixels_of_wide_types_give_percentiles_at_distances(
    archive: Path, arrays: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_KEPT", 900)
    monkeypatch.setattr(room, "_KEPT_LEAST", 900)
    one = opened(archive).stats(percentiles=[25, 75])["wide"]
    bands = valid("wide", arrays, range(COUNT))
    assert not one.exact
    for q, values in one.percentiles.items():
        shares = [100 * np.mean(band < value) for band, value in zip(bands, values, strict=True)]
        assert np.allclose(shares, q, atol=6)
    assert np.allclose(one.mean, [band.mean(dtype=np.float64) for band in bands])


def test_integers_of_any_type_are_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by value, also after a stop; there may be so many of them."""
    monkeypatch.setattr(room, "_EVERY", 0)
    monkeypatch.setattr(room, "_BATCH", 1)
    monkeypatch.setattr(room, "_PART", 1)
    masks = [np.array([[[-5, 7], [2**31 - 1, one]]], np.int32) for one in range(4)]
    samples = [taco.Sample(f"{n}.tif", geotiff(mask)) for n, mask in enumerate(masks)]
    data = ml.dataset(pack(tmp_path / "a.tacozip", samples))
    how: Any = {"classes": ["data"], "save": tmp_path / "a.json"}
    with pytest.raises(_StoppedError):
        data.stats(progress=_stopping(2), **how)
    found = data.stats(**how)["data"]
    values, counts = np.unique(np.stack(masks), return_counts=True)
    assert {one: number.tolist() for one, number in found.classes.items()} == {
        one: [number] for one, number in zip(values.tolist(), counts.tolist(), strict=True)
    }
    assert found.exact
    assert found.percentiles[50.0][0] == np.percentile(masks, 50)
    monkeypatch.setattr(room, "_CLASSES", 6)
    with pytest.raises(InvalidInputError, match="too many values for classes"):
        data.stats(classes=["data"])


class _StoppedError(Exception):
    pass


def _stopping(after: int) -> Any:
    seen: list[int] = []

    def tell(done: int, total: int | None, what: str) -> None:
        seen.append(done)
        if len(seen) > after:
            raise _StoppedError

    tell.seen = seen  # type: ignore[attr-defined]
    return tell


def test_a_run_that_was_stopped_goes_on(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_EVERY", 0)
    monkeypatch.setattr(room, "_BATCH", 1)
    monkeypatch.setattr(room, "_PART", 2)
    target = tmp_path / "stats.json"
    options: dict[str, Any] = {"classes": ["mask"], "by": "split"}
    data = opened(archive)
    whole = data.stats(**options).to_dict()
    for after in (1, 2):
        with pytest.raises(_StoppedError):
            data.stats(save=target, progress=_stopping(after), **options)
        with pytest.raises(InvalidMetadataError, match="not finished"):
            ml.Statistics.load(target)
    told = _stopping(99)
    found = data.stats(save=target, progress=told, workers=0, **options)
    assert told.seen[0] == 2 * 4
    assert found.to_dict() == whole == ml.Statistics.load(target).to_dict()
    again = _stopping(0)
    assert data.stats(save=target, progress=again, **options).to_dict() == whole
    assert again.seen == []
    for other in (data.take(range(5)), opened(archive, where="split = 'test'")):
        with pytest.raises(ConflictError, match="another data set"):
            other.stats(save=target, **options)
    with pytest.raises(ConflictError, match="another data set"):
        data.stats(save=target)
    assert [path.name for path in tmp_path.iterdir()] == ["stats.json"]


def test_statistics_are_saved_as_json(archive: Path, tmp_path: Path) -> None:
    data, target = opened(archive).take([0, 1]), tmp_path / "x.json"
    found = data.stats(by="split", save=target)
    document = json.loads(target.read_bytes())
    assert document["found"]["fields"]["mask"]["count"] == found["mask"].count.tolist()
    assert ml.Statistics.load(target).to_dict() == found.to_dict()
    del document["found"]["fields"]["mask"]["std"]
    target.write_text(json.dumps(document))
    with pytest.raises(InvalidMetadataError, match="somebody changed"):
        ml.Statistics.load(target)
    with pytest.raises(ObjectNotFoundError):
        ml.Statistics.load(tmp_path / "gone.json")
    with pytest.raises(ObjectNotFoundError, match="folder of the target"):
        data.stats(save=tmp_path / "gone" / "x.json")
    target.write_text("{}")
    for call in (ml.Statistics.load, lambda path: data.stats(save=path)):
        with pytest.raises(InvalidMetadataError, match="not a file of statistics"):
            call(target)
    assert target.read_text() == "{}"


def test_sums_beyond_all_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_EVERY", 0)
    monkeypatch.setattr(room, "_BATCH", 1)
    monkeypatch.setattr(room, "_PART", 1)
    images = [np.full((1, 2, 2), value) for value in (-1e308, 1e308)]
    samples = [taco.Sample(id=f"{n}.tif", path=geotiff(one)) for n, one in enumerate(images)]
    data, target = ml.dataset(pack(tmp_path / "x.tacozip", samples)), tmp_path / "x.json"
    with pytest.raises(_StoppedError):
        data.stats(save=target, progress=_stopping(1))
    found = data.stats(save=target)
    assert found.to_dict() == data.stats().to_dict() == ml.Statistics.load(target).to_dict()
    assert np.isnan([*found["data"].mean, *found["data"].std]).all()
    assert [found["data"].percentiles[q][0] for q in (1.0, 50.0, 99.0)] == [-1e308, 0, 1e308]


def test_samples_without_valid_pixels(tmp_path: Path) -> None:
    empty = [
        taco.Sample(
            id="a.tif", path=geotiff(np.full((1, 4, 4), 7.0, np.float32), nodata=7, predictor=1)
        )
    ]
    path = pack(tmp_path / "empty.tacozip", empty)
    ml.dataset(path).stats(save=tmp_path / "s.json")
    one = ml.Statistics.load(tmp_path / "s.json")["data"]
    assert one.count.tolist() == [0]
    assert np.isnan([*one.mean, *one.std, *one.min, *one.percentiles[50.0]]).all()
    mask = geotiff(np.full((1, 4, 4), 7, np.int64), nodata=7, predictor=1)
    path = pack(tmp_path / "mask.tacozip", [taco.Sample(id="a.tif", path=mask)])
    assert ml.dataset(path).stats(classes=["data"])["data"].classes == {}
    assert ml.dataset(path).take([]).stats().to_dict() == {"samples": 0, "fields": {}, "by": []}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"classes": ["height"]}, "'height' has no classes"),
        ({"classes": ["x"]}, "no 'x'"),
        ({"by": "place"}, "no 'place'"),
        ({"by": "image"}, "neither texts nor integers"),
        ({"sample": 0}, "of no samples"),
        ({"percentiles": [101]}, "from 0 to 100"),
        ({"percentile": [1]}, "unknown option"),
    ],
)
def test_what_cannot_be_is_refused(archive: Path, options: Any, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        opened(archive).stats(**options)


def test_samples_that_fail_are_named_or_left_out(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_BATCH", 1)
    monkeypatch.setattr(room, "_PART", 2)
    left = iter(range(COUNT))

    def decode(data: bytes) -> Any:
        if next(left) == 7:
            raise ValueError("no image")
        return np.ones((1, 2, 2))

    field = {"x": ml.Field("mask.tif", decode=decode)}
    with pytest.raises(InvalidMetadataError, match=r"'s07' \(row 7\)[\s\S]*no image"):
        ml.dataset(archive, field).stats(workers=1)
    left = iter(range(COUNT))
    with pytest.warns(UserWarning, match="1 sample of the data set failed"):
        found = ml.dataset(archive, field, on_error="skip").stats(workers=1)
    assert found.samples == found["x"].count[0] / 4 == COUNT - 1


def test_complex_numbers_and_texts(tmp_path: Path) -> None:
    def decode(data: bytes) -> Any:
        return np.ones((1, 2, 2), np.complex64)

    path, texts = flat(tmp_path, 2), ml.Field(decode=lambda data: np.array(["a"]))
    assert list(ml.dataset(path, {"x": texts, "y": ""}).stats().fields) == ["y"]
    with pytest.raises(InvalidInputError, match="no statistics of complex numbers in 'x'"):
        ml.dataset(path, {"x": ml.Field(decode=decode)}).stats()


def test_masked_arrays_of_a_decoder_and_other_things_in_a_series(tmp_path: Path) -> None:
    values = np.ma.MaskedArray([[[1.0, np.nan], [np.inf, 9.0]]], [[[False, False], [False, True]]])
    field = ml.Field(decode=lambda data: values)
    found = ml.dataset(flat(tmp_path, 2), {"x": field}).stats()["x"]
    assert (found.count.tolist(), found.mean.tolist(), found.max.tolist()) == ([2], [1], [1])
    leaves = [taco.Sample("a.tif", geotiff(pixels(1))), taco.Sample("b.json", b"{}")]
    path = pack(tmp_path / "x.tacozip", [taco.Sample("s", taco.Tortilla(leaves))])
    with pytest.raises(InvalidInputError, match="samples differ in 'x'"):
        ml.dataset(path, {"x": "*"}).stats()


def test_samples_that_differ_in_bands(tmp_path: Path) -> None:
    samples = [
        taco.Sample(id=f"{bands}.tif", path=geotiff(pixels(1, bands=bands))) for bands in (2, 3)
    ]
    pack(tmp_path / "x.tacozip", samples)
    with pytest.raises(InvalidInputError, match=r"differ in 'data': sample '3.tif'"):
        ml.dataset(tmp_path / "x.tacozip").stats()
    assert ml.dataset(flat(tmp_path, 3)).stats(by=None).samples == 3


def test_chips_of_a_raster(tmp_path: Path) -> None:
    band = noise((2, 90, 150), "uint8")
    band[:, 10:30, 20:60] = 7
    source = on_grid(tmp_path / "a.tif", band, column=16_380, row=10_300, nodata=7)
    raquet.write(source, tmp_path / "a.parquet", block_size=32)
    data = ml.chips(tmp_path / "a.parquet", 32)
    target = tmp_path / "stats.json"
    found = data.stats(save=target)
    assert list(found.fields) == ["image"]
    for number, plane in enumerate(band):
        values = plane[plane != 7]
        assert found["image"].count[number] == len(values)
        assert found["image"].mean[number] == pytest.approx(values.mean())
    assert data.stats(save=target).to_dict() == found.to_dict()
    other = ml.chips(tmp_path / "a.parquet", 32, count=len(data))
    with pytest.raises(ConflictError):
        other.stats(save=target)


def test_tiles_of_a_map_count_where_they_are_opaque(tmp_path: Path) -> None:
    rgba = np.random.default_rng(3).integers(0, 255, (4, 8, 8)).astype(np.uint8)
    rgba[3] = np.where(rgba[0] < 100, 0, 255)
    tiles = [(0, 0, 0, encode_picture(rgba, "png"))]
    tapalcatl.build(tiles, tmp_path / "map", ext="png")
    found = ml.chips(str(tmp_path / "map")).stats()["image"]
    shown = rgba[3] > 0
    assert found.count.tolist() == [shown.sum()] * 3 + [64]
    assert np.allclose(found.mean[:3], [plane[shown].mean() for plane in rgba[:3]])
