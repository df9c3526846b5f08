"""The JavaScript readers, run in the browser, against what the existing writers have written."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import comal.raquet
import comal.tapalcatl
from comal.grid import quadbin
from comal.raster.values import stored_nodata
from tests.browser.making import pyramid, ramp_tile, raquet, tiles_to
from tests.browser.server import StaticServer
from tests.raquet.build import Plan
from tests.raquet.build import write as build_raquet
from tests.support import SHARED, needs_shared

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIXTURES = SHARED / "fixtures"

_TILES = """async ([url, wanted]) => {
  const { TileSet } = await import("/assets/lib/tapalcatl.js");
  const { accessOf } = await import("/assets/lib/ranges.js");
  const { asArchiveError } = await import("/assets/lib/errors.js");
  const hex = async (bytes) => [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))]
    .map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const answers = [];
  try {
    const tiles = await TileSet.open(url, accessOf());
    for (const [z, x, y, extension, scale] of wanted) {
      try {
        const tile = await tiles.tile(z, x, y, extension, scale ?? undefined);
        answers.push({ sha256: await hex(tile.bytes), size: tile.bytes.length, entry: tile.entry,
          archive: tile.archive, headers: Object.fromEntries(tile.headers) });
      } catch (error) {
        const { message, status } = asArchiveError(error);
        answers.push({ error: message, status });
      }
    }
  } catch (error) {
    return { error: asArchiveError(error).message, status: asArchiveError(error).status };
  }
  return answers;
}"""

_RASTER = """async ([url, wanted]) => {
  const { RaquetFile } = await import("/assets/lib/raquet.js");
  const { accessOf } = await import("/assets/lib/ranges.js");
  const hex = async (bytes) => [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))]
    .map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const raster = await RaquetFile.open([url].flat(), accessOf());
  const answers = {};
  for (const [key, [z, x, y], time] of wanted) {
    const tile = await raster.tile(z, x, y, { time });
    answers[key] = await Promise.all(tile.pixels.map((band) => band && hex(band)));
  }
  return answers;
}"""


@pytest.fixture(scope="module")
def fixtures(static: StaticServer) -> str:
    """The address of the reference files."""
    return static.mount("fixtures", FIXTURES)


@pytest.fixture
def blank(tab: Page, server: StaticServer) -> Page:
    """A page that may import the modules."""
    tab.goto(f"{server.origin}/blank.html")
    return tab


def read(page: Page, url: str, wanted: list[Any]) -> Any:
    return page.evaluate(_TILES, [url, wanted])


@needs_shared
@pytest.mark.parametrize("name", ["t2/landcover-png", "t2/mvt-js"])
def test_tiles_of_other_writers(blank: Page, fixtures: str, name: str) -> None:
    expected = json.loads((FIXTURES / "tapalcatl/expected.json").read_text())[name]
    url = f"{fixtures}/tapalcatl/{name}"
    queries = expected["queries"]
    wanted = [[q["z"], q["x"], q["y"], q["format"], q.get("scale")] for q in queries]
    answers = read(blank, f"{url}/meta.json", wanted)
    assert len(answers) == len(queries) > 3
    for query, answer in zip(queries, answers, strict=True):
        if "absent" in query:
            assert answer["status"] == 404
            continue
        assert answer["archive"].endswith(query["archive"])
        assert answer["entry"] == query["entry"]
        if "Content-Encoding" not in json.dumps(query.get("headers", "")):
            assert answer["sha256"] == query["sha256"]


@needs_shared
def test_gzipped_tiles_come_decoded_with_their_headers(blank: Page, fixtures: str) -> None:
    url = f"{fixtures}/tapalcatl/t2/mvt-js"
    (answer,) = read(blank, f"{url}/meta.json", [[0, 0, 0, "mvt", None]])
    headers = answer["headers"]
    assert headers["ETag"] == '"d8786b3f"'
    assert headers["X-Fixture"] == "root"
    assert headers["Cache-Control"] == "max-age=60"
    assert "Content-Encoding" not in headers
    with zipfile.ZipFile(FIXTURES / "tapalcatl/t2/mvt-js/0/0/0.zip") as archive:
        assert answer["size"] == len(gzip.decompress(archive.read("0/0/0.mvt")))


@needs_shared
def test_odd_archives(blank: Page, fixtures: str) -> None:
    edge = json.loads((FIXTURES / "tapalcatl/expected.json").read_text())["edge"]
    url = f"{fixtures}/tapalcatl/edge"
    seen = 0
    for name, expected in edge.items():
        tiles = expected["tiles"]
        keys = [key.removesuffix(".png").split("/") for key in tiles]
        answers = read(blank, f"{url}/{name}.zip", [[*map(int, k), "png", None] for k in keys])
        for digest, answer in zip(tiles.values(), answers, strict=True):
            assert answer.get("sha256") == digest, (name, answer)
            seen += 1
    assert seen > 20


@needs_shared
def test_denied_headers_stay_inside(blank: Page, fixtures: str) -> None:
    url = f"{fixtures}/tapalcatl/edge"
    wanted = [[z, x, y, "png", None] for z, x, y in ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1))]
    answers = read(blank, f"{url}/entry-comment-list.zip", wanted)
    names = {name for answer in answers for name in answer["headers"]}
    assert "X-A" in names
    assert not {"Set-Cookie", "Content-Length"} & names


def zipped(**entries: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return out.getvalue()


def deflated(*others: str, method: int = zipfile.ZIP_DEFLATED) -> bytearray:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name in others:
            archive.writestr(name, b"no")
        archive.writestr("0/0/0.png", b"tile" * 50)
    return bytearray(out.getvalue())


def patched(field: int, value: int, kind: str = "<I") -> bytes:
    """The archive with another value in the record of its directory."""
    data = deflated()
    struct.pack_into(kind, data, data.find(b"PK\1\2") + field, value)
    return bytes(data)


_ODD = {
    "plain": deflated(),
    "behind": deflated() + b"some bytes behind",
    "before": b"#!/bin/sh\n" * 9 + deflated(),
    "names": deflated("/0/0/0.png", "../0/0/0.png", "00/0/0.png", "0\\0\\0.png", "dir/"),
    "count lies": deflated()[:-14] + struct.pack("<HH", 0xFFF0, 0xFFF0) + deflated()[-10:],
    "bzip2": deflated(method=zipfile.ZIP_BZIP2),
    "encrypted": patched(8, 1, "<H"),
    "inflates past its size": patched(24, 10),
    "points outside": patched(42, 0x7FFFFFF0),
    "longer than the file": patched(20, 0x7FFFFFF0),
    "truncated": deflated()[:-30],
}


_READ = {"plain", "behind", "before", "names", "count lies"}


def test_damaged_archives_are_read_or_refused(blank: Page, server: StaticServer) -> None:
    for kind, data in _ODD.items():
        url = server.put(f"/{kind.replace(' ', '-')}.zip", bytes(data))
        answer = read(blank, url, [[0, 0, 0, "png", None]])
        if kind in _READ:
            assert answer[0]["sha256"] == hashlib.sha256(b"tile" * 50).hexdigest(), kind
        else:
            found = answer if isinstance(answer, dict) else answer[0]
            assert found["status"] == 500, kind
            assert "undefined" not in found["error"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_two_entries_with_one_name_the_last_wins(blank: Page, server: StaticServer) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("0/0/0.png", b"old")
        archive.writestr("0/0/0.png", b"new")
    (answer,) = read(blank, server.put("/one.zip", out.getvalue()), [[0, 0, 0, "png", None]])
    assert answer["sha256"] == hashlib.sha256(b"new").hexdigest()


def test_every_definition_of_the_hash_is_found(blank: Page, server: StaticServer) -> None:
    document = {"minzoom": 4, "maxzoom": 5, "materializedZooms": [4], "metatile": 4,
                "formats": {"png": "image/png"}, "source": "{h}/{z}/{x}/{y}.zip"}  # fmt: skip
    for number, text in enumerate(("4/0/4", "4/0/4.zip", "/all/4/0/4.zip")):
        digest = hashlib.md5(text.encode()).hexdigest()[:5]
        url = server.put(f"/hashed{number}/meta.json", json.dumps(document).encode())
        server.put(f"/hashed{number}/{digest}/4/0/4.zip", zipped(**{"5/3/9.png": b"tile"}))
        first, absent = read(blank, url, [[5, 3, 9, "png", None], [5, 3, 8, "png", None]])
        assert first["sha256"] == hashlib.sha256(b"tile").hexdigest()
        assert absent["status"] == 404


def test_a_cold_tile_takes_two_requests_and_neighbours_share_theirs(
    blank: Page, server: StaticServer
) -> None:
    # The directory is in the tail; all tiles of one block come by one request.
    entries = {f"4/{x}/{y}.png": bytes([x, y]) * 500 for x in range(16) for y in range(16)}
    url = server.put("/many.zip", zipped(**entries))
    first = read(blank, url, [[4, 0, 0, "png", None]])
    assert "error" not in first[0]
    assert [r.range for r in server.seen("many.zip")] == ["bytes=-65536", "bytes=0-65535"]
    server.requests.clear()
    count = blank.evaluate(
        """async (url) => {
          const { TileSet } = await import("/assets/lib/tapalcatl.js");
          const { accessOf } = await import("/assets/lib/ranges.js");
          const { BlockCache } = await import("/assets/lib/blockcache.js");
          const cache = new BlockCache(2 * 65536);
          const tiles = await TileSet.open(url, accessOf({ cache }));
          const places = Array.from({ length: 256 }, (_, i) => [i >> 4, i & 15]);
          await Promise.all(places.map(([x, y]) => tiles.tile(4, x, y, "png")));
          return [(await tiles.single).file.requests, cache.held];
        }""",
        url,
    )
    size = len(zipped(**entries))
    assert count[0] <= 2 + (size - 65536) // 65536 + 1
    assert count[1] <= 2 * 65536


def test_other_origins_are_read_without_preflight(blank: Page, server: StaticServer) -> None:
    store = StaticServer()
    try:
        store.cors = True
        url = store.put("/far.zip", zipped(**{"0/0/0.png": b"tile"}))
        (answer,) = read(blank, url, [[0, 0, 0, "png", None]])
        assert answer["sha256"] == hashlib.sha256(b"tile").hexdigest()
        assert [request.method for request in store.requests][:2] == ["HEAD", "GET"]
        assert not [request for request in store.requests if request.method == "OPTIONS"]
        store.cors = False
        closed = read(blank, url + "?again=.zip", [[0, 0, 0, "png", None]])
        assert closed["status"] == 502
    finally:
        store.close()


def test_servers_without_ranges_and_objects_that_change(blank: Page, server: StaticServer) -> None:
    server.behave("ignore-range")
    url = server.put("/plain.zip", zipped(**{"0/0/0.png": b"one"}))
    (answer,) = read(blank, url, [[0, 0, 0, "png", None]])
    assert answer["sha256"] == hashlib.sha256(b"one").hexdigest()
    server.well()
    padding = {f"9/9/{y}.png": bytes(70_000) for y in range(3)}
    server.put("/changing.zip", zipped(**{"0/0/0.png": b"one"}, **padding))
    blank.evaluate(
        """async (url) => {
          const { TileSet } = await import("/assets/lib/tapalcatl.js");
          const { accessOf } = await import("/assets/lib/ranges.js");
          globalThis.tiles = await TileSet.open(url, accessOf());
        }""",
        f"{server.origin}/changing.zip",
    )
    server.put("/changing.zip", zipped(**padding, **{"0/0/0.png": b"two"}))
    text = "async () => new TextDecoder().decode((await tiles.tile(0, 0, 0, 'png')).bytes)"
    assert blank.evaluate(text) == "two"


def test_a_raster_that_is_replaced_is_opened_anew(
    blank: Page, server: StaticServer, tmp_path: Path
) -> None:
    def put(value: int) -> None:
        tiles = {(4, x, 0): [np.full((128, 128), value, "uint8")] for x in range(16)}
        plan = Plan(block=(128, 128), compression=None)
        server.put("/a.parquet", build_raquet(tmp_path / "a.parquet", tiles, plan).read_bytes())

    put(3)
    listed = {"sources": [{"name": "a", "kind": "raquet", "href": "a.parquet"}]}
    server.put("/site.json", json.dumps(listed).encode())
    ask = """async (lon) => {
      const { Engine } = await import("/assets/lib/engine.js");
      globalThis.engine ??= new Engine(new URL("/site.json", location).href, { store: undefined });
      const answer = await engine.respond(`${engine.base}a/point/${lon},84`);
      return [answer.status, (await answer.json()).values];
    }"""
    assert blank.evaluate(ask, 170) == [200, [3]]
    put(40)
    # Far from what was read before.
    assert blank.evaluate(ask, -170) == [200, [40]]


@needs_shared
def test_rasters_of_other_writers(blank: Page, fixtures: str) -> None:
    files = json.loads((FIXTURES / "raquet/expected.json").read_text())["files"]
    url = f"{fixtures}/raquet"
    seen = 0
    for name, expected in files.items():
        tiles = expected["tiles"]
        if expected["compression"] in ("jpeg", "webp"):
            continue
        steps: dict[Any, list[str]] = {}
        for key, tile in tiles.items():
            steps.setdefault(tuple(tile["zxy"]), []).append(key)
        wanted = []
        for zxy, keys in steps.items():
            ordered = sorted(keys, key=lambda key: float(key.partition("@")[2] or 0))
            wanted += [[key, list(zxy), number] for number, key in enumerate(ordered)]
        answers = blank.evaluate(_RASTER, [f"{url}/{name}", wanted])
        halves = [band["type"] == "float16" for band in expected["bands"]]
        for key, tile in tiles.items():
            pairs = zip(answers[key], tile["bands"], halves, strict=True)
            assert all(found == digest for found, digest, half in pairs if not half), (name, key)
            seen += 1
    assert seen > 600


@needs_shared
def test_lossy_rasters_have_about_the_colours_of_their_source(blank: Page, fixtures: str) -> None:
    url = f"{fixtures}/raquet/raquet-io/v0.9.0"
    read_bands = """async (url) => {
      const { RaquetFile } = await import("/assets/lib/raquet.js");
      const { accessOf } = await import("/assets/lib/ranges.js");
      const raster = await RaquetFile.open([url], accessOf());
      const [place] = await raster.someTiles(raster.metadata.maxzoom, 1);
      const { pixels } = await raster.tile(...place);
      return pixels.map((band) => band.reduce((sum, value) => sum + value, 0) / band.length);
    }"""
    plain = blank.evaluate(read_bands, f"{url}/s_rgb_u8.parquet")
    for name in ("s_rgb_il_jpeg", "s_rgb_il_webp"):
        lossy = blank.evaluate(read_bands, f"{url}/{name}.parquet")
        assert np.allclose(plain, lossy, atol=3)


@needs_shared
def test_half_floats(blank: Page, fixtures: str) -> None:
    name = "constructed/v050_float16_int8_string_nodata.parquet"
    expected = json.loads((FIXTURES / "raquet/expected.json").read_text())["files"][name]
    url = f"{fixtures}/raquet"
    index = [band["type"] for band in expected["bands"]].index("float16")
    tile = next(iter(expected["tiles"].values()))
    script = """async ([url, place, index]) => {
      const { RaquetFile } = await import("/assets/lib/raquet.js");
      const { accessOf } = await import("/assets/lib/ranges.js");
      const raster = await RaquetFile.open([url], accessOf());
      const bytes = new Uint8Array((await raster.tile(...place)).pixels[index].buffer);
      return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
    }"""
    found = base64.b64decode(blank.evaluate(script, [f"{url}/{name}", tile["zxy"], index]))
    half = np.frombuffer(found, "<f4").astype("<f2")
    rows = pq.read_table(FIXTURES / "raquet" / name).to_pylist()
    cell = next(iter(expected["tiles"]))
    (row,) = [row for row in rows if row["block"] == int(cell)]
    stored = gzip.decompress(row[expected["bands"][index]["name"]])
    np.testing.assert_array_equal(half, np.frombuffer(stored, "<f2"))


@needs_shared
def test_parts_are_one_raster(blank: Page, fixtures: str) -> None:
    files = json.loads((FIXTURES / "raquet/expected.json").read_text())["files"]
    url = f"{fixtures}/raquet"
    parts = [name for name in files if name.startswith("constructed/partitioned/")]
    tiles = {k: v for name in parts for k, v in files[name]["tiles"].items()}
    wanted = [[key, tile["zxy"], 0] for key, tile in tiles.items()]
    answers = blank.evaluate(_RASTER, [[f"{url}/{name}" for name in parts], wanted])
    assert len(answers) == 8
    assert all(answers[key] == tile["bands"] for key, tile in tiles.items())


@pytest.mark.parametrize("pages", [True, False])
def test_tiles_that_lack_steps_of_a_series(
    blank: Page, server: StaticServer, tmp_path: Path, pages: bool
) -> None:
    steps: dict[Any, list[Any]] = {
        (1, x, 0, day): [np.full((16, 16), 10 * x + day, "uint8")]
        for x, day in [(0, 1), (0, 2), (0, 3), (1, 2)]
    }
    plan = Plan(times=True, pages=pages)
    # Of one tile the files hold a step each.
    late = {key: steps.pop(key) for key in [(1, 0, 0, 3)]}
    paths = [
        build_raquet(tmp_path / f"{n}.parquet", one, plan) for n, one in enumerate([steps, late])
    ]
    root = server.mount("t", tmp_path)
    with comal.raquet.open(paths) as file:
        assert len(file.times or ()) == 3
        expected = [file.points([-90, 90], [40, 40], time=step, masked=True) for step in range(3)]
    script = """async (urls) => {
      const { RaquetFile } = await import("/assets/lib/raquet.js");
      const { RaquetSource } = await import("/assets/lib/answers.js");
      const { accessOf } = await import("/assets/lib/ranges.js");
      const source = new RaquetSource({ name: "a" }, "/", await RaquetFile.open(urls, accessOf()));
      const at = async (lon, time) => (await source.point(lon, 40, new URLSearchParams({ time })))
        .values[0];
      const told = [0, 1, 2].map((time) => Promise.all([at(-90, time), at(90, time)]));
      return [(await source.details()).time.count, await Promise.all(told),
        (await source.counted(0, 2)).count];
    }"""
    count, told, counted = blank.evaluate(script, [f"{root}/{path.name}" for path in paths])
    assert (count, counted) == (3, 256)
    assert told == [np.ravel(one).tolist() for one in expected]


def test_nodata_is_compared_in_the_type_of_the_band(blank: Page) -> None:
    types = ("float16", "float32", "float64")
    numbers = [-9999, 0.1, 65_504, 65_519, 1e5, 3e-8, 6.1e-5, -2049, 2051, 0, 3.5e38, 1e-9]
    document = {
        "block_width": 16, "block_height": 16, "minresolution": 0, "maxresolution": 0,
        "bands": [
            {"name": f"{kind} {number}", "type": kind, "nodata": str(number)}
            for kind in types
            for number in numbers
        ],
    }  # fmt: skip
    script = """async (text) => {
      const { parseMetadata } = await import("/assets/lib/raquet.js");
      return parseMetadata(text, "").bands.map(({ nodata }) => nodata);
    }"""
    found = blank.evaluate(script, json.dumps(document))
    expected = [stored_nodata(number, kind) for kind in types for number in numbers]
    assert found == [None if one is None else float(one) for one in expected]


def test_one_tile_of_a_paged_file_takes_its_page_alone(
    blank: Page, server: StaticServer, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    noise = pyramid(4, lambda _: [rng.normal(size=(64, 64)).astype("float32")])
    path = raquet(tmp_path / "noise.parquet", noise, [{"name": "b", "type": "float32"}])
    url = server.put("/noise.parquet", path.read_bytes())
    answers = blank.evaluate(_RASTER, [url, [["t", [4, 7, 9], 0]]])
    assert answers["t"] == [hashlib.sha256(noise[4, 7, 9][0].tobytes()).hexdigest()]
    spans = [request.range or "" for request in server.seen("noise.parquet")]
    assert spans[0] == "bytes=-65536"
    assert len(spans) <= 4
    assert path.stat().st_size > 20 * 65536


def test_damaged_parquet_ends_in_an_error(
    blank: Page, server: StaticServer, tmp_path: Path
) -> None:
    tiles = pyramid(1, lambda tile: [ramp_tile(tile, 16)])
    data = raquet(tmp_path / "a.parquet", tiles, [{"name": "b", "type": "float32"}]).read_bytes()
    url = server.put("/a.parquet", data)
    script = """async ([url, seed, rounds]) => {
      const { RaquetFile } = await import("/assets/lib/raquet.js");
      const { accessOf } = await import("/assets/lib/ranges.js");
      const { ArchiveError, asArchiveError } = await import("/assets/lib/errors.js");
      const whole = new Uint8Array(await (await fetch(url)).arrayBuffer());
      const counts = { read: 0, refused: 0, foreign: [] };
      const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
      for (let round = 0; round < rounds; round++) {
        const length = round % 5 ? whole.length : Math.floor(random() * whole.length);
        const bytes = whole.slice(0, length);
        for (let i = 0; i < 4; i++) bytes[Math.floor(random() * bytes.length)] = random() * 256;
        const answer = async () => new Response(bytes);
        try {
          const raster = await RaquetFile.open([`${url}?${round}`], accessOf({ fetch: answer }));
          await raster.tile(1, 1, 0);
          counts.read += 1;
        } catch (error) {
          if (error instanceof ArchiveError || error instanceof RangeError) counts.refused += 1;
          else counts.foreign.push(String(error));
        }
      }
      return counts;
    }"""
    counts = blank.evaluate(script, [url, 11, 300])
    assert counts["foreign"] == []
    assert counts["refused"] > 100
    assert counts["read"] > 20


def test_vectors_of_hashes_and_cells(blank: Page) -> None:
    texts = ["", "0/0/0", "a" * 55, "a" * 56, "7/36/49.zip" * 20]
    script = """async (texts) => {
      const { md5 } = await import("/assets/lib/md5.js");
      const { crc32 } = await import("/assets/lib/bytes.js");
      return texts.map((text) => [md5(text), crc32(new TextEncoder().encode(text))]);
    }"""
    expected = [[hashlib.md5(t.encode()).hexdigest(), zlib.crc32(t.encode())] for t in texts]
    assert blank.evaluate(script, texts) == expected
    # Ids of the QUADBIN package.
    known = {
        (0, 0, 0): 5192650370358181887,
        (3, 5, 3): 5203627894449897471,
        (10, 486, 332): 5234155512672550911,
        (26, 67108863, 67108863): 5309743960669814783,
    }
    cells = """async (tiles) => {
      const { cellOf, tileOf } = await import("/assets/lib/quadbin.js");
      return tiles.map((tile) => [String(cellOf(...tile)), tileOf(cellOf(...tile))]);
    }"""
    found = blank.evaluate(cells, [list(tile) for tile in known])
    assert found == [[str(cell), list(tile)] for tile, cell in known.items()]


@needs_shared
def test_files_of_our_own_writers(blank: Page, server: StaticServer, tmp_path: Path) -> None:
    raquet_file = tmp_path / "own.parquet"
    comal.raquet.write(str(SHARED / "data/nlcd_landcover_palette.tif"), raquet_file)
    expected = {}
    wanted = []
    with comal.raquet.open(raquet_file) as raster:
        for cell in np.asarray(raster.cells()).tolist():
            z, x, y = (int(value) for value in quadbin.tiles(cell))
            bands = [np.ascontiguousarray(band).tobytes() for band in raster.tile(z, x, y)]
            expected[str(cell)] = [hashlib.sha256(band).hexdigest() for band in bands]
            wanted.append([str(cell), [z, x, y], 0])
    server.mount("own", tmp_path)
    assert blank.evaluate(_RASTER, [f"{server.origin}/own/own.parquet", wanted]) == expected
    comal.tapalcatl.build(str(SHARED / "data/stamen_toner_z0-3_ccby.pmtiles"), tmp_path / "tiles")
    places = list(tiles_to(3))
    answers = read(
        blank, f"{server.origin}/own/tiles/meta.json", [[*place, "png", None] for place in places]
    )
    with comal.tapalcatl.open(tmp_path / "tiles") as tiles:
        for place, answer in zip(places, answers, strict=True):
            tile = tiles.tile(*place)
            assert tile is not None
            assert answer["sha256"] == hashlib.sha256(tile.data).hexdigest()


_KEPT = """async ([url, budget]) => {
  const { TileSet } = await import("/assets/lib/tapalcatl.js");
  const { accessOf } = await import("/assets/lib/ranges.js");
  const { IndexStore } = await import("/assets/lib/store.js");
  const store = new IndexStore(budget);
  const tiles = await TileSet.open(url, accessOf({ store }));
  const bytes = (await tiles.tile(0, 0, 0, "png")).bytes;
  await store.get(url);
  return new TextDecoder().decode(bytes.slice(0, 3));
}"""
_ALL = 1 << 30


def archive(first: bytes, *, tiles: int = 1500) -> bytes:
    """An archive whose directory is longer than what is read of its end at first."""
    others = {f"11/{x}/{'y' * 40}": b"" for x in range(tiles)}
    return zipped(**{"0/0/0.png": first + bytes(90_000)}, **others)


def test_directories_are_kept_with_their_version(blank: Page, server: StaticServer) -> None:
    url = server.put("/kept.zip", archive(b"one"))

    def asked() -> list[tuple[str, str | None]]:
        return [(request.method, request.range) for request in server.seen("kept.zip")]

    assert blank.evaluate(_KEPT, [url, _ALL]) == "one"
    before = asked()
    assert ("GET", "bytes=-65536") in before
    server.requests.clear()
    assert blank.evaluate(_KEPT, [url, _ALL]) == "one"
    # Nothing but the tile is read, in two blocks.
    assert asked() == [("HEAD", None), ("GET", "bytes=0-131071")]
    # Another version: what was kept of the old one is not believed, and replaced.
    server.put("/kept.zip", archive(b"two"))
    assert blank.evaluate(_KEPT, [url, _ALL]) == "two"
    server.requests.clear()
    assert blank.evaluate(_KEPT, [url, _ALL]) == "two"
    assert asked() == [("HEAD", None), ("GET", "bytes=0-131071")]
    # What is damaged in the store is read anew.
    damage = """async (url) => {
      const { IndexStore } = await import("/assets/lib/store.js");
      const store = new IndexStore();
      const kept = await store.get(url);
      kept.end.bytes.fill(0);
      await store.put(kept);
    }"""
    blank.evaluate(damage, url)
    assert blank.evaluate(_KEPT, [url, _ALL]) == "two"


def test_kept_directories_stay_within_their_budget(blank: Page, server: StaticServer) -> None:
    urls = [server.put(f"/part{n}.zip", archive(b"one", tiles=1500 + n)) for n in range(5)]
    held = []
    for url in urls:
        assert blank.evaluate(_KEPT, [url, 600_000]) == "one"
        held.append(blank.evaluate(_HELD))
    assert max(weight for weight, _ in held) <= 600_000
    # The last ones are there.
    _, names = held[-1]
    assert len(names) < len(urls)
    assert urls[-1] in names
    assert urls[0] not in names


_HELD = """() => new Promise((resolve) => {
  indexedDB.open("comal-indexes").onsuccess = (opened) => {
    const database = opened.target.result;
    database.transaction("indexes").objectStore("indexes").getAll().onsuccess = (found) => {
      const weight = (one) => [one.end, ...one.spans].reduce((sum, s) => sum + s.bytes.length, 0);
      const all = found.target.result;
      database.close();
      resolve([all.reduce((sum, one) => sum + weight(one), 0), all.map((one) => one.url)]);
    };
  };
})"""


def test_without_a_database_archives_are_read_all_the_same(
    blank: Page, server: StaticServer
) -> None:
    url = server.put("/bare.zip", archive(b"one"))
    page = blank.context.new_page()
    page.add_init_script("Object.defineProperty(globalThis, 'indexedDB', { value: undefined })")
    page.goto(blank.url)
    assert page.evaluate(_KEPT, [url, _ALL]) == "one"
    page.close()


def test_typed_times(blank: Page) -> None:
    """In UTC, whatever zone the browser is in, and the whole last day."""
    script = """async (text) => {
      const { instantOf } = await import("/assets/ui/format.js");
      return [false, true].map((isEnd) => instantOf(text, isEnd))
        .map((found) => Number.isNaN(found) ? "" : new Date(found).toISOString().slice(8));
    }"""
    for text, *expected in (
        (" 2024-05-02 ", "02T00:00:00.000Z", "02T23:59:59.999Z"),
        ("2024-05-02 12:30", *["02T12:30:00.000Z"] * 2),
        ("2024-05-02T12:30:01.5Z", *["02T12:30:01.500Z"] * 2),
        ("2024-05-02 12:30 UTC", *["02T12:30:00.000Z"] * 2),
        ("2024-05-02T00:30+02:00", *["01T22:30:00.000Z"] * 2),
        *((other, "", "") for other in ("2024-02-31x", "5", "May 2 2024")),
    ):
        assert blank.evaluate(script, text) == expected, text


def test_html_in_texts_becomes_plain(blank: Page) -> None:
    texts = {
        "Some <b>survey</b>": "Some survey",
        '&copy; <a href="https://a.example/?a=1&b=2">Us</a> &amp; others': "\u00a9 Us & others",
        "height < 5 m and > 3 m": "height < 5 m and > 3 m",
        "a<!-- hidden <b> -->b<br/>c": "abc",
        "<script>document.title='owned'</script>safe<style>p{}</style>": "safe",
        "&amp;lt;b&amp;gt; &#233;&#xe9; &nothing; &constructor; &#0; &#9999999;": (
            "&lt;b&gt; \u00e9\u00e9 &nothing; &constructor; &#0; &#9999999;"
        ),
        "<img src=x onerror=alert(1)": "<img src=x onerror=alert(1)",
    }
    script = """async (texts) => {
      const { plainText } = await import("/assets/ui/dom.js");
      return [...texts.map(plainText), plainText(undefined), plainText("<!--".repeat(1e5)).length];
    }"""
    found = blank.evaluate(script, list(texts))
    assert found[:-2] == list(texts.values())
    assert found[-2:] == ["", 4000]


_DRAWN = """async (query) => {
  const { draw, parseLook, summarize } = await import("/assets/lib/render.js");
  const band = (type, interpretation, nodata = null) => ({ type, interpretation, nodata });
  const bands = [band("float32", "red", 5), band("float32"), band("float32")];
  bands.push(band("uint8", "alpha"));
  const pixels = [Float32Array.of(5, 1, NaN, Infinity, 1, 5), Float32Array.of(1, 1, NaN, 1, 1, NaN),
    Float32Array.of(1, 1, NaN, 1, 1, -Infinity), Uint8Array.of(9, 0, 9, 9, 9, 9)];
  const look = parseLook(new URLSearchParams(query), { bands });
  const wanted = look.alpha < 0 ? look.bands : [...look.bands, look.alpha];
  const tile = { width: 6, height: 1, pixels: wanted.map((at) => pixels[at]) };
  const counted = summarize([tile], bands[look.bands[0]], look.alpha >= 0);
  const colors = draw(tile, { bands }, look);
  return [[...colors].filter((_, at) => at % 4 === 3).map((one) => one === 255), counted?.count];
}"""


def test_pixels_are_shown_by_the_law_of_the_package(blank: Page) -> None:
    """Nodata, NaN, infinity and alpha; of three bands any; alpha itself is never hidden."""
    for bidx, shown, count in (
        ("1", "000010", 1),
        ("1,2,3", "100110", None),
        ("4", "111111", 6),
        ("4,2,1", "111111", None),
    ):
        found, counted = blank.evaluate(_DRAWN, f"bidx={bidx}&rescale=0,10")
        assert "".join(str(int(one)) for one in found) == shown, bidx
        assert count is None or counted == count


_COVERED = """async ([url, tile, points]) => {
  const { RaquetFile } = await import("/assets/lib/raquet.js");
  const { RaquetSource } = await import("/assets/lib/answers.js");
  const { accessOf } = await import("/assets/lib/ranges.js");
  const { draw, summarize } = await import("/assets/lib/render.js");
  const raster = await RaquetFile.open([url], accessOf());
  const source = new RaquetSource({ name: "a" }, "/", raster);
  const { covered, pixels, ...sides } = await raster.tile(...tile);
  const found = raster.metadata.bands.map((band, at) => {
    const one = { ...sides, pixels: [pixels[at]], covered: [covered[at]] };
    const look = { bands: [at], ranges: [[0, 9]], alpha: -1 };
    const shown = [...draw(one, raster.metadata, look)].filter((_, i) => i % 4 === 3);
    return [shown.map(Number), summarize([one], band, false)?.count ?? 0];
  });
  const told = points.map(([lon, lat]) => source.point(lon, lat, new URLSearchParams()));
  return [found, (await Promise.all(told)).map(({ values }) => values)];
}"""

_HOLED = {
    "type": "MultiPolygon",
    "coordinates": [
        [
            [[2, 40], [30, 60], [44, 10], [2, 40]],
            [[22, 40], [27, 40], [27, 35], [22, 35], [22, 40]],
        ],
    ],
}


_SOURCES: dict[str, Any] = {
    "bounds": {"bounds": [3.1, 5.2, 30.3, 60.4]},
    "antimeridian": {"bounds": [20.0, 5.2, -170.0, 60.4]},
    "footprint": {"bounds": [3, 5, 40, 70], "footprint": _HOLED},
    "upside-down": {"bounds": [3, 70, 40, 5]},
    "no-numbers": {"bounds": [3, None, 40, 5]},
    "open": {"footprint": {"type": "MultiPolygon", "coordinates": [[[[0, 0], [1, 1], [0, 0]]]]}},
    "none": None,
}


def test_what_the_source_does_not_cover_has_no_value(
    blank: Page, server: StaticServer, tmp_path: Path
) -> None:
    """As the reader of the package tells it: padding counts where nodata does not tell it."""
    root = server.mount("r", tmp_path)
    for name, source in _SOURCES.items():
        path = tmp_path / f"{name}.parquet"
        check_cover(blank, f"{root}/{name}.parquet", path, source)


def check_cover(page: Page, url: str, path: Path, source: Any) -> None:
    tile, side = (3, 4, 3), 32
    zeros = np.zeros((side, side), "uint8")
    bands = [
        {"name": name, "type": "uint8", "nodata": nodata}
        for name, nodata in [("a", None), ("b", 7), ("c", 300)]
    ]
    raquet(path, {tile: [zeros] * 3}, bands, custom={"comal": {"source": source}})
    with comal.raquet.open(path) as file:
        masks = [~np.ma.getmaskarray(file.tile(*tile, name, masked=True))[0] for name in "abc"]
        points = [(lon, lat) for lon in (1.0, 15.0, 24.0, 40.0) for lat in (2.0, 15.0, 37.5)]
        lon, lat = np.transpose(points)
        values = file.points(lon, lat, list("abc"), masked=True)
    found, told = page.evaluate(_COVERED, [url, tile, points])
    for mask, (shown, count) in zip(masks, found, strict=True):
        assert (np.array(shown).reshape(side, side) > 0).tolist() == mask.tolist(), url
        assert count == mask.sum()
    assert told == np.transpose(values).tolist()
