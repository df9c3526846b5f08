"""Tiles of RaQuet as pictures and arrays, values at points, statistics."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from rio_tiler.colormap import cmap
from rio_tiler.models import ImageData

from comal import raquet, server
from comal.errors import ObjectChangedError
from comal.grid import quadbin
from comal.server.items import histogram
from comal.tapalcatl.spec import MEDIA_TYPES
from tests.server.asking import ask, ask_all
from tests.server.making import picture, raquet_file
from tests.support import SHARED


def pixels_of(archives: dict[str, Path], name: str, z: int = 1, x: int = 0, y: int = 1) -> Any:
    return raquet.open(archives[name]).tile(z, x, y, masked=True)


def rendered(pixels: Any, low: float, high: float, colours: str | None = None) -> Any:
    """What rio-tiler, and so titiler, makes of the same pixels."""
    image = ImageData(pixels.copy())
    image.rescale(in_range=((low, high),))
    table = cmap.get(colours) if colours else None
    return picture(image.render(img_format="PNG", colormap=table))


def seen(image: Any) -> Any:
    """Colours of what is not seen do not matter."""
    return np.where(image[..., 3:] > 0, image, 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("colours", [None, "viridis", "terrain"])
@pytest.mark.parametrize("tile", [(1, 0, 0), (1, 1, 1), (0, 0, 0)])
def test_pictures_equal_those_of_rio_tiler(
    app: Any, archives: dict[str, Path], tile: tuple[int, int, int], colours: str | None
) -> None:
    z, x, y = tile
    path = f"/dem/{z}/{x}/{y}.png?bidx=1&rescale=-500,3000"
    reply = ask(app, path + (f"&colormap_name={colours}" if colours else ""))
    assert (reply.status, reply.headers["content-type"]) == (200, "image/png")
    expected = rendered(pixels_of(archives, "dem", z, x, y), -500, 3000, colours)
    assert np.array_equal(seen(picture(reply.body)), seen(expected))


@pytest.mark.filterwarnings("ignore")
def test_three_bands_as_they_are(app: Any, archives: dict[str, Path]) -> None:
    found = picture(ask(app, "/rgb/1/0/1.png").body)
    expected = np.moveaxis(pixels_of(archives, "rgb").data, 0, 2)
    assert np.array_equal(found[..., :3], expected)
    assert (found[..., 3] == 255).all()
    turned = picture(ask(app, "/rgb/1/0/1.png?bidx=3&bidx=2&bidx=1").body)
    assert np.array_equal(turned[..., :3], expected[..., ::-1])
    assert np.array_equal(picture(ask(app, "/rgb/1/0/1.png?bidx=3,2,1").body), turned)


@pytest.mark.parametrize("value", [3.5, -3, 300, 2**53 + 1, 1e30])
def test_one_value_is_middle_grey(tmp_path: Path, value: float) -> None:
    path = raquet_file(tmp_path / "a.parquet", {"a": np.full((128, 128), value)})
    app = server.app({"a": str(path)}, log="none")
    assert set(picture(ask(app, "/a/0/0/0.png").body).flat) == {127, 255}
    found = ask(app, "/a/statistics").json()["statistics"]["a"]
    assert (found["min"], found["max"]) == (value, value)


def test_own_colours(app: Any, archives: dict[str, Path]) -> None:
    found = picture(ask(app, "/classes/1/0/1.png").body)
    values = pixels_of(archives, "classes")[0].data
    table = np.array([[0, 0, 0, 0], [10, 20, 30, 255], [200, 100, 0, 255], [0, 0, 255, 128]])
    assert np.array_equal(found, table[values])
    mapped = ask(app, "/dem/1/0/0.png?rescale=0,1000&colormap_name=viridis")
    assert Image.open(io.BytesIO(mapped.body)).mode == "P"
    stretched = picture(ask(app, "/classes/1/0/1.png?rescale=0,3").body)
    assert np.array_equal(stretched[..., 0], (values / 3.0 * 255).astype(np.uint8))


def test_masked_pixels_are_transparent(app: Any) -> None:
    assert (picture(ask(app, "/dem/1/0/0.png").body)[:16, :, 3] == 0).all()
    opaque = picture(ask(app, "/dem/1/0/0.png?return_mask=false").body)
    assert (opaque[..., 3] == 255).all()
    other = picture(ask(app, "/rgb/1/0/0.png?bidx=1&nodata=7&rescale=0,255").body)
    own = picture(ask(app, "/rgb/1/0/0.png?bidx=1").body)
    assert np.array_equal(other[..., 3] == 0, own[..., 0] == 7)


def test_other_formats(app: Any, archives: dict[str, Path]) -> None:
    pixels = pixels_of(archives, "dem", 1, 0, 0)
    reply = ask(app, "/dem/1/0/0.npy")
    # The same type whether an array is drawn here or lies in a tileset.
    assert reply.headers["content-type"] == "application/x-npy" == MEDIA_TYPES["npy"]
    array = np.load(io.BytesIO(reply.body))
    assert np.array_equal(array[0], pixels.data[0])
    assert np.array_equal(array[1] == 255, ~pixels.mask[0])
    unmasked = np.load(io.BytesIO(ask(app, "/dem/1/0/0.npy?return_mask=false").body))
    assert unmasked.shape == (1, 64, 64)
    assert np.load(io.BytesIO(ask(app, "/rgb/1/0/0.npy?bidx=1&bidx=1").body)).shape == (3, 64, 64)
    for ext, kind in (("webp", "image/webp"), ("jpg", "image/jpeg"), ("jpeg", "image/jpeg")):
        reply = ask(app, f"/dem/1/0/0.{ext}")
        assert reply.headers["content-type"] == kind
        assert picture(reply.body).shape == (64, 64, 4)
    reply = ask(app, "/dem/1/0/0", headers={"Accept": "image/webp,image/*;q=0.5"})
    assert (reply.headers["content-type"], reply.headers["vary"]) == ("image/webp", "accept")
    assert ask(app, "/dem/1/0/0").body == ask(app, "/dem/1/0/0.png").body


def test_terrain(app: Any, archives: dict[str, Path]) -> None:
    pixels = pixels_of(archives, "dem", 1, 0, 0)[0]
    height = np.where(pixels.mask, 0.0, pixels.data.astype(float))
    red, green, blue = np.moveaxis(
        picture(ask(app, "/dem/1/0/0.png?algorithm=terrarium").body)[..., :3].astype(float), 2, 0
    )
    assert np.array_equal(red * 256 + green + blue / 256 - 32768, height)
    for name in ("terrainrgb", "mapbox"):
        for ext in ("png", "webp"):
            image = picture(ask(app, f"/dem/1/0/0.{ext}?algorithm={name}").body)
            red, green, blue = np.moveaxis(image[..., :3].astype(float), 2, 0)
            found = -10000 + (red * 65536 + green * 256 + blue) * 0.1
            assert np.allclose(found, height, atol=0.05)
            assert (image[..., 3] == 255).all(), "browsers drop colours of what is transparent"
    sea = picture(ask(app, "/dem/1/0/0.png?algorithm=terrarium&nodata_height=-12.5").body)[0, 0]
    assert sea[0] * 256.0 + sea[1] + sea[2] / 256 - 32768 == -12.5
    assert ask(app, "/dem/1/0/0.jpg?algorithm=terrarium").status == 400


def test_expressions(app: Any, archives: dict[str, Path]) -> None:
    bands = pixels_of(archives, "rgb").data.astype(float)
    with np.errstate(all="ignore"):
        index = (bands[1] - bands[0]) / (bands[1] + bands[0])
    array = np.load(io.BytesIO(ask(app, "/rgb/1/0/1.npy?expression=(b2-b1)/(b2%2Bb1)").body))
    assert np.array_equal(array[0][array[1] > 0], index[np.isfinite(index)])
    reply = ask(app, "/rgb/1/0/1.png?expression=b1/2;b2;b3&rescale=0,255")
    found = picture(reply.body)
    assert np.array_equal(found[..., 0], (bands[0] / 2).astype(np.uint8))
    assert ask(app, "/rgb/1/0/1.png?expression=b1/b2").status == 400, "floats need a range"


def test_absent_tile_can_be_204(tmp_path: Path) -> None:
    path = raquet_file(tmp_path / "a.parquet", {"a": np.ones((128, 128), np.uint8)})
    table = pq.read_table(path)
    pq.write_table(table.slice(0, table.num_rows - 1), path)
    missing = [(x, y) for x in (0, 1) for y in (0, 1) if not raquet.open(path).has_tile(1, x, y)]
    assert len(missing) == 1
    address = f"/a/1/{missing[0][0]}/{missing[0][1]}.png"
    assert ask(server.app({"a": str(path)}), address).status == 404
    assert ask(server.app({"a": str(path)}, missing=204), address).status == 204


def test_twice_the_size(app: Any, archives: dict[str, Path]) -> None:
    large = picture(ask(app, "/rgb/0/0/0@2x.png").body)
    parts = [[picture(ask(app, f"/rgb/1/{x}/{y}.png").body) for x in (0, 1)] for y in (0, 1)]
    assert np.array_equal(large, np.concatenate([np.concatenate(row, axis=1) for row in parts]))
    deepest = picture(ask(app, "/rgb/1/0/0@2x.png").body)
    assert np.array_equal(deepest, parts[0][0].repeat(2, 0).repeat(2, 1))


def test_drawn_tiles_are_kept(app: Any) -> None:
    first = ask(app, "/dem/1/0/0.png")
    hits = app.runtime.hits
    assert ask(app, "/dem/1/0/0.png").body == first.body
    assert app.runtime.hits == hits + 1


def test_equal_work_is_done_once(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from comal.server import render as rendering

    calls = []
    real = rendering.render

    def counted(*args: Any, **kwargs: Any) -> bytes:
        calls.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr("comal.server.rasters.render", counted)
    replies = ask_all(app, ["/dem/1/1/1.png?rescale=0,1234"] * 20)
    assert {reply.status for reply in replies} == {200}
    assert len(calls) == 1


def test_point(app: Any, archives: dict[str, Path]) -> None:
    document = ask(app, "/dem/point/10.5,-20").json()
    expected = raquet.open(archives["dem"]).point(10.5, -20)
    assert document["values"] == [int(expected[0])]
    assert (document["coordinates"], document["band_names"]) == ([10.5, -20.0], ["height"])
    assert ask(app, "/dem/point/0,84.9").json()["values"] == [None], "nodata"
    assert ask(app, "/rgb/point/1,1?bidx=2").json()["band_names"] == ["b2"]
    ratio = ask(app, "/rgb/point/1,1?expression=b1*2").json()
    assert ratio["values"] == [2 * ask(app, "/rgb/point/1,1?bidx=1").json()["values"][0]]
    for text in ("x,y", "1", "1,2,3", "200,0", "0,91", "nan,0", ""):
        assert ask(app, f"/dem/point/{text}").status == 400
    assert ask(app, "/dem/point/1,1?zoom=5").status == 400


@pytest.mark.parametrize("values", [[-3.4e38] * 4, [2.0**60, 2.0**60 + 256], [-1.7e308, 1.7e308]])
def test_a_histogram_of_values_that_floats_cannot_divide(values: list[float]) -> None:
    counts, edges = histogram(np.array(values), 8)
    assert (counts.sum(), len(edges)) == (len(values), 9)
    assert (edges[0], edges[-1]) == (min(values), max(values))


def test_every_band_has_its_own_colours(tmp_path: Path) -> None:
    values = np.arange(128 * 128).reshape(128, 128) % 3
    bands: dict[str, Any] = {
        "a": values.astype("uint8"),
        "b": np.choose(values, [0, 100, -9]).astype("int16"),
    }
    table = {"0": [1, 2, 3, 255], "100": [4, 5, 6, 128], "250": [7, 8, 9, 255]}
    path = raquet_file(tmp_path / "a.parquet", bands, extra={"b": {"colortable": table}})
    drawn = picture(ask(server.app({"a": str(path)}), "/a/1/0/0.png?bidx=2").body)
    expected = np.array([[1, 2, 3, 255], [4, 5, 6, 128], [0, 0, 0, 0]])[values[:64, :64]]
    np.testing.assert_array_equal(drawn, expected)


def test_statistics(app: Any, archives: dict[str, Path]) -> None:
    window = raquet.open(archives["dem"]).read(masked=True).data.compressed().astype(float)
    found = ask(app, "/dem/statistics").json()["statistics"]["height"]
    assert found["std"] == pytest.approx(window.std())
    assert found["percentile_98"] == pytest.approx(np.percentile(window, 98))
    assert sum(found["histogram"][0]) == len(window)
    counts, edges = ask(app, "/dem/statistics?bins=8").json()["statistics"]["height"]["histogram"]
    assert (len(counts), len(edges)) == (8, 9)
    for query in ("bbox=1,2,3", "bbox=a,b,c,d", "bbox=0,95,1,99", "bins=0", "bbox=nan,0,1,1"):
        assert ask(app, f"/dem/statistics?{query}").status == 400


def test_documents(app: Any) -> None:
    document = ask(app, "/dem").json()
    assert (document["kind"], document["minzoom"], document["maxzoom"]) == ("raster", 0, 1)
    assert document["bands"][0]["dtype"] == "int16"
    low, high = document["defaults"]["rescale"][0]
    assert -500 <= low < high <= 3500
    assert ask(app, "/classes").json()["bands"][0]["colortable"][1]["color"] == "#0a141eff"
    tilejson = ask(app, "/dem.json?bidx=1&rescale=0,10&x=y&ext=webp").json()
    assert tilejson["tiles"] == ["/dem/{z}/{x}/{y}.webp?bidx=1&rescale=0,10"]
    assert ask(app, "/dem.json?bidx=9").status == 400
    assert ask(app, "/dem/tiles/WebMercatorQuad/1/0/1.png").body == ask(app, "/dem/1/1/0.png").body
    names = [one["name"] for one in ask(app, "/colormaps.json").json()["colormaps"]]
    assert "viridis" in names


def test_time(tmp_path: Path) -> None:
    path = SHARED / "fixtures/raquet/constructed/v050_time_monthly.parquet"
    if not path.exists():
        pytest.skip("reference files of the existing writers are not beside the checkout")
    app = server.app({"t": str(path)})
    document = ask(app, "/t").json()
    count = document["time"]["count"]
    file = raquet.open(path)
    z = file.metadata.max_zoom
    _, x, y = (int(part[0]) for part in quadbin.tiles(file.cells(z)))
    first = ask(app, f"/t/{z}/{x}/{y}.npy").body
    assert ask(app, f"/t/{z}/{x}/{y}.npy?time=0").body == first
    assert ask(app, f"/t/{z}/{x}/{y}.npy?time={count - 1}").body != first
    instant = document["time"]["values"][1].rstrip("Z")
    same = ask(app, f"/t/{z}/{x}/{y}.npy?time={instant}").body
    assert same == ask(app, f"/t/{z}/{x}/{y}.npy?time=1").body
    for text in (str(count), "1999-01-01", "x"):
        assert ask(app, f"/t/{z}/{x}/{y}.npy?time={text}").status == 400


def test_damaged_tile_fails_alone(tmp_path: Path) -> None:
    path = raquet_file(tmp_path / "a.parquet", {"a": np.ones((128, 128), np.uint8)})
    table = pq.read_table(path)
    blobs = table["a"].to_pylist()
    blobs[-1] = b"no gzip"
    pq.write_table(table.set_column(2, "a", pa.array(blobs, pa.binary())), path)
    app = server.app({"a": str(path)}, log="none")
    statuses = sorted(ask(app, f"/a/1/{x}/{y}.png").status for x in (0, 1) for y in (0, 1))
    assert statuses == [200, 200, 200, 500]


def test_replaced_file_is_opened_again(tmp_path: Path) -> None:
    path = raquet_file(tmp_path / "a.parquet", {"a": np.full((128, 128), 10, np.uint8)})
    app = server.app({"a": str(path)}, reload_seconds=0.01)
    assert picture(ask(app, "/a/1/0/0.png").body)[0, 0, 0] == 10
    new = raquet_file(tmp_path / "b.parquet", {"a": np.full((128, 128), 20, np.uint8)})
    new.replace(path)

    async def looked() -> None:
        mount = app.mounts["a"]
        mount.look()
        assert mount._looking is not None
        await mount._looking

    asyncio.run(looked())
    for tile in ("1/0/1", "1/0/0"):  # one that was never drawn, and one that was kept
        assert picture(ask(app, f"/a/{tile}.png").body)[0, 0, 0] == 20


def test_change_that_reading_shows(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(app, "/dem")
    old = app.mounts["dem"].served

    async def changed(*_: Any) -> Any:
        raise ObjectChangedError("changed")

    monkeypatch.setattr(old, "tile", changed)
    assert ask(app, "/dem/1/0/0.png").status == 200
    assert app.mounts["dem"].served is not old
