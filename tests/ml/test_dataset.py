"""Samples of every format, read by field."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import xarray
from rasterio.io import MemoryFile

from comal import ml, taco
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotInContainerError,
    NotThisFormatError,
)
from comal.limits import DEFAULT_LIMITS
from comal.ml import decoding
from comal.ml import index as indexes
from comal.storage import CountingSource, open_source
from comal.taco.wire import DEFAULT_TAIL
from tests.ml.made import flat, geotiff, items, nested, pack, pixels
from tests.servers.http import HttpServer

MAKERS: dict[str, Any] = {
    "zip": nested,
    "folder": lambda folder: nested(folder, kind="folder"),
    "tortilla": items,
}
FIELDS: dict[str, Any] = {
    "image": "image.tif",
    "mask": "mask.tif",
    "about": "about.json",
    "series": "series/*.tif",
    "second": "series/t1.tif",
}


@pytest.fixture(params=MAKERS)
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made: Path = MAKERS[request.param](tmp_path)
    return made


def test_fields_name_leaves_at_any_depth(archive: Path) -> None:
    data = ml.dataset(archive, FIELDS, columns=["label"])
    assert len(data) == 12
    for number in (0, 7, -1):
        sample = data[number]
        right = number % 12
        assert list(sample) == [*FIELDS, "label", "id"]
        assert np.array_equal(sample["image"], pixels(right))
        assert np.array_equal(sample["mask"], pixels(right, bands=1))
        assert sample["about"] == {"number": right}
        assert np.array_equal(
            sample["series"], np.stack([pixels(right + step) for step in range(3)])
        )
        assert np.array_equal(sample["second"], pixels(right + 1))
        assert (sample["label"], sample["id"]) == (right, f"s{right:03d}")


def test_conditions_choose_samples(archive: Path) -> None:
    data = ml.dataset(archive, {"image": "image.tif"}, where="label % 5 = 1", columns=["label"])
    assert [sample["label"] for sample in data.fetch(range(len(data)))] == [1, 6, 11]
    assert np.array_equal(data[1]["image"], pixels(6))
    some = data.take([2, 0])
    assert [sample["id"] for sample in some.head()] == ["s011", "s001"]


def test_samples_that_are_files(tmp_path: Path) -> None:
    data = ml.dataset(flat(tmp_path), columns=["split"], where="split = 'test'")
    assert len(data) == 10
    assert np.array_equal(data[2]["data"], pixels(5))
    field = ml.Field(window=(2, 4, 8, 5), extras=["transform", "crs"])
    sample = ml.dataset(tmp_path / "flat.tacozip", {"x": field})[4]
    assert np.array_equal(sample["x"], pixels(4)[:, 4:9, 2:10])
    assert sample["x_transform"] == (10, 0, 500_020, 0, -10, 4_599_960)
    assert sample["x_crs"] == "EPSG:32631"


def test_open_and_several_data_sets(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    parts = [nested(first, 5), nested(second, 7)]
    data = ml.dataset(parts, {"image": "image.tif"})
    assert len(data) == 12
    assert [int(sample["image"][0, 0, 0]) for sample in data.fetch([0, 4, 5, 11])] == [0, 4, 0, 6]
    one = taco.load(parts[0]).sql("SELECT * FROM data ORDER BY id DESC")
    assert ml.dataset(one, {"image": "image.tif"})[0]["id"] == "s004"


def test_leaves_that_are_missing(tmp_path: Path) -> None:
    full = [taco.Sample(id="a.bin", path=b"1"), taco.Sample(id="b.bin", path=b"2")]
    samples = [
        taco.Sample(id="x", path=taco.Tortilla(full, pad_to=2)),
        taco.Sample(id="y", path=taco.Tortilla(full[:1], pad_to=2)),
    ]
    path = pack(tmp_path / "p.tacozip", samples)
    data = ml.dataset(path, {"b": ml.Field("b.bin", optional=True), "all": "?.bin"})
    assert [(sample["b"], sample["all"]) for sample in data.head()] == [
        (b"2", [b"1", b"2"]),
        (None, [b"1"]),
    ]
    with pytest.raises(InvalidMetadataError, match="sample 'y'"):
        ml.dataset(path, {"b": "b.bin"})


def test_extras_of_a_series_and_of_a_leaf_that_is_missing(tmp_path: Path) -> None:
    """Every sample has the same entries, so that a batch has them whichever is first."""
    images = [taco.Sample(id=f"{n}.tif", path=geotiff(pixels(n), nodata=2)) for n in (1, 2)]
    samples = [
        taco.Sample(id="x", path=taco.Tortilla(images[:1], pad_to=2)),
        taco.Sample(id="y", path=taco.Tortilla(images, pad_to=2)),
    ]
    extras: Any = ["mask", "transform"]
    fields = {
        "two": ml.Field("2.tif", optional=True, extras=extras),
        "all": ml.Field("*.tif", extras=extras),
    }
    data = ml.dataset(pack(tmp_path / "p.tacozip", samples), fields)
    (batch,) = data.loader(2, together="list")
    assert batch["two"][0] is batch["two_mask"][0] is batch["two_transform"][0] is None
    assert np.array_equal(batch["two_mask"][1], pixels(2) != 2)
    assert [len(one) for one in batch["all_transform"]] == [1, 2]
    right = np.stack([pixels(n) != 2 for n in (1, 2)])
    assert np.array_equal(batch["all_mask"][1], right)


@pytest.mark.parametrize("driver", ["GTiff", "COG", "PNG", "JPEG", "WEBP", "JP2OpenJPEG"])
@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_images_of_every_kind(driver: str, tmp_path: Path) -> None:
    """Pixels and masks are those of rasterio, in whole and in part."""
    right = np.random.default_rng(0).integers(0, 255, (3, 20, 30)).astype(np.uint8)
    size = {"count": 3, "height": 20, "width": 30}
    with MemoryFile() as file:
        with file.open(driver=driver, dtype="uint8", **size) as image:
            image.write(right)
        with file.open() as image:
            right, masks = image.read(), image.read_masks()
        path = pack(tmp_path / "a.tacozip", [taco.Sample("x", bytes(file.read()))])
    part = ml.Field(bands=[3, 1], window=(2, 3, 4, 5), dtype="float32", extras=["mask", "crs"])
    sample = ml.dataset(path, {"whole": "", "part": part})[0]
    assert np.array_equal(sample["whole"], right)
    assert np.array_equal(sample["part"], right[[2, 0], 3:8, 2:6])
    assert sample["part"].dtype == np.float32
    assert np.array_equal(sample["part_mask"], masks[[2, 0], 3:8, 2:6] > 0)
    assert sample["part_crs"] is None


def _netcdf(data: xarray.Dataset, folder: Path) -> bytes:
    data.to_netcdf(folder / "a.nc", engine="h5netcdf")
    return (folder / "a.nc").read_bytes()


def _zarr(data: xarray.Dataset, folder: Path) -> bytes:
    data.to_zarr(folder / "a", consolidated=False)
    return Path(shutil.make_archive(str(folder / "a"), "zip", folder / "a")).read_bytes()


@pytest.mark.parametrize(("write", "name"), [(_netcdf, "a.nc"), (_zarr, "a.zarr.zip")])
@pytest.mark.filterwarnings("ignore:.*Zarr format 3 specification")
# h5netcdf closes files that it could not open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_xarray_reads(
    write: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = xarray.Dataset(
        {"t": (("y", "x"), pixels(1)[0].astype(np.float32))}, {"x": np.arange(16.0)}, {"by": "us"}
    )
    data = write(right, tmp_path)
    path = pack(tmp_path / "a.tacozip", [taco.Sample(name, data), taco.Sample("b", data)])
    sample = ml.dataset(path)[0]["data"]
    assert right.identical(sample)
    forced = ml.dataset(path, {"x": ml.Field(decode="xarray")})
    assert right.identical(forced[1]["x"])
    assert ml.dataset(path, decode="bytes")[0]["data"] == data
    with monkeypatch.context() as patched:
        patched.setattr(decoding, "DEFAULT_LIMITS", replace(DEFAULT_LIMITS, raster_bytes=1_000))
        with pytest.raises(LimitExceededError, match="raster_bytes"):
            ml.dataset(path)[0]
    for at in range(0, len(data), max(1, len(data) // 40)):  # damaged, cut off
        for bad in (data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :], data[:at]):
            with suppress(ComalError):
                decoding.decoded(memoryview(bad), ml.Field(decode="xarray"))


PARTS: list[Any] = [None, (1, 2, 3, 4), (0, 0, 16, 16), (-2, -2, 1, 1), (9, 9, 9, 9), (0, 0, 0, 0)]


@pytest.mark.parametrize("window", PARTS)
@pytest.mark.parametrize("bands", [None, [1], [3, 1, 3], [0], [-1], [4], []])
def test_arrays_have_the_bands_and_windows_of_images(
    bands: Any, window: Any, tmp_path: Path
) -> None:
    with io.BytesIO() as file:
        np.save(file, pixels(5))
        leaves = {"npy": file.getvalue(), "tif": geotiff(pixels(5))}
    below = taco.Tortilla([taco.Sample(id=name, path=data) for name, data in leaves.items()])
    path = pack(tmp_path / "a.tacozip", [taco.Sample("x", below)])
    found = []
    for name in leaves:
        try:
            found.append(ml.dataset(path, {"x": ml.Field(name, bands, window)})[0]["x"].tolist())
        except InvalidInputError as error:
            found.append((error.what, error.found, error.expected))
    assert found[0] == found[1]


def test_a_condition_that_no_sample_meets(archive: Path, tmp_path: Path) -> None:
    for fields in (None, FIELDS):
        data = ml.dataset(archive, fields, where="label > 99", columns=["label"])
        assert len(data) == 0
        assert list(data.loader(4, shuffle=True)) == data.head() == []
        for only in (None, ["image.tif"]):
            with pytest.raises(InvalidInputError, match=r"no sample|nothing to export"):
                ml.mirror(archive, tmp_path / "none", fields=only, where="label > 99")
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    data = ml.dataset(path := flat(tmp_path, 2))
    wrong: Any = "explode"
    calls: list[Any] = [
        lambda: data[2**70],
        lambda: ml.dataset(path, on_error=wrong),
        lambda: ml.Field(dtype="floaty"),
        lambda: ml.dataset(path, {"id": ""}),
        lambda: ml.dataset(path, {"label": ""}, columns=["label"]),
        lambda: ml.dataset(path, {"x": ml.Field(extras=["mask"]), "x_mask": ""}),
        lambda: ml.dataset(
            tmp_path / "flat.tacozip", {"x": ml.Field(decode=bytes, extras=["mask"])}
        )[0],
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match=r"by number|on_error|dtype|extras|called"):
            call()


def test_an_index_is_shared_as_a_file(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "_SMALL", 0)
    data = ml.dataset(archive, FIELDS)
    text = pickle.dumps(data)
    assert len(text) < 4096
    # Spawned processes take such a file in test_torch.test_an_interrupt_leaves_nothing.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        assert pool.submit(_first_pixel, data, 7).result(60) == 7
    place = Path(data._shared._file[0])
    assert np.array_equal(pickle.loads(text)[3]["image"], pixels(3))
    assert place.stat().st_mode & 0o777 == 0o600
    del data
    assert not place.exists()
    with pytest.raises(FileNotFoundError, match="index of a data set is gone"):
        pickle.loads(text)


def _first_pixel(data: Any, number: int) -> int:
    return int(data[number]["image"][0, 0, 0])


def test_errors_name_archive_sample_and_field(tmp_path: Path) -> None:
    path = flat(tmp_path, 4)
    with pytest.raises(InvalidInputError, match=r"no sample has the leaf of field 'x'"):
        ml.dataset(path, {"x": "image.tif"})
    with pytest.raises(InvalidInputError, match="no column 'colour'"):
        ml.dataset(path, columns=["colour"])
    with pytest.raises(NotInContainerError, match="no such sample"):
        ml.dataset(path)[4]
    broken = ml.dataset(path, {"x": ""}, decode=lambda data: [][len(data)])
    with pytest.raises(InvalidMetadataError, match=r"'s002.tif' \(row 2\), field 'x': .*flat") as e:
        _ = broken[2]
    assert "IndexError" in str(e.value)
    (tmp_path / "text").write_text("x")
    with pytest.raises(NotThisFormatError):
        ml.dataset(tmp_path / "text")


def test_damaged_samples_are_skipped_or_raised(tmp_path: Path) -> None:
    path = flat(tmp_path, 6)
    right = ml.dataset(path)
    data = bytearray(path.read_bytes())
    payloads: Any = right.index.payloads
    place = int(payloads.offsets[3]) + 200
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidMetadataError, match="s003"):
        ml.dataset(path).fetch([2, 3, 4])
    told: list[Any] = []
    lenient = ml.dataset(path, on_error=told.append)
    assert [sample["id"] for sample in lenient.fetch([4, 3, 2])] == ["s004.tif", "s002.tif"]
    assert ["s003" in str(error) for error in told] == [True]
    loader = ml.dataset(path, on_error="skip").loader(2, workers=2)
    with pytest.warns(UserWarning, match="1 sample of the epoch"):
        ids = [name for batch in loader for name in batch["id"]]
    assert ids == [f"s{number:03d}.tif" for number in (0, 1, 2, 4, 5)]


def test_batches_of_large_samples_are_decoded_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All samples after the first are decoded at the same time, in their order."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    together = Barrier(3)

    def decode(data: bytes) -> Any:
        number = int.from_bytes(data[:4], "little")
        if number:
            together.wait(30)
        if number == 2:
            raise ValueError("the third")
        return np.full((2, 2), number)

    samples = [
        taco.Sample(id=f"{number}", path=number.to_bytes(4, "little").ljust(40_000, b"0"))
        for number in range(4)
    ]
    path = pack(tmp_path / "large.tacozip", samples)
    data = ml.dataset(path, decode=decode, on_error="skip")
    batch = ml.collate(data.__getitems__([0, 3, 2, 1]), to="numpy")
    assert batch["id"] == ["0", "3", "1"]
    assert batch["data"][:, 1, 1].tolist() == [0, 3, 1]
    with pytest.raises(InvalidMetadataError, match=r"sample '2' \(row 2\)"):
        ml.dataset(path, decode=decode).__getitems__([0, 3, 2, 1])


def test_a_remote_data_set_opens_in_few_round_trips(
    http_server: HttpServer, tmp_path: Path
) -> None:
    """Two requests for header and tail, one a level, one for a batch of neighbours."""
    http_server.put("a.tacozip", nested(tmp_path, 200).read_bytes())
    data = ml.dataset(http_server.url_for("a.tacozip"), {"mask": "mask.tif"})
    opened = len(http_server.requests)
    assert opened <= 5
    assert np.array_equal(data.fetch([3, 4, 5])[0]["mask"], pixels(3, bands=1))
    assert len(http_server.requests) == opened + 1
    assert len(pickle.dumps(data)) < 100_000


def test_the_first_batch_of_many_remote_samples_takes_three_round_trips(
    http_server: HttpServer, tmp_path: Path
) -> None:
    """Both ends of the archive; its table and collection before them; the samples."""
    samples = [
        taco.Sample(id=f"s{number:05d}", path=b"%d" % number, label=number)
        for number in range(6000)
    ]
    path = pack(tmp_path / "many.tacozip", samples)
    with ZipFile(path) as file:
        assert path.stat().st_size - file.start_dir > DEFAULT_TAIL
    http_server.put("many.tacozip", path.read_bytes())
    href = http_server.url_for("many.tacozip")
    source = CountingSource(open_source(href))
    data = ml.dataset(taco.load(source), columns=["label"])
    batch = next(iter(data.loader(4, shuffle=True, workers=0)))
    assert [b"%d" % label for label in batch["label"]] == batch["data"]
    assert source.round_trips == 3
    before = len(http_server.requests)
    assert len(ml.dataset(href)) == 6000
    assert len(http_server.requests) == before + 3
