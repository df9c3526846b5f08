"""Every odd archive is reported, sound ones are not, and contents are looked into."""

from __future__ import annotations

import gzip
import json
import struct
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import tapalcatl
from comal.check import Report
from comal.errors import InvalidInputError, NotThisFormatError, ObjectNotFoundError
from comal.limits import Limits
from comal.raster.pictures import encode_picture
from comal.tapalcatl import CODES
from comal.tapalcatl.addressing import HASHES, archive_bounds, tile_hash
from comal.tapalcatl.spec import MAX_ZOOM
from tests.servers.http import HttpServer
from tests.support import needs_shared
from tests.tapalcatl.answers import EXPECTED, FOLDER
from tests.tapalcatl.making import data_of
from tests.tapalcatl.odd import METADATA, Entry, appended, archive
from tests.zips import with_zip64_end

PNG = encode_picture(np.zeros((3, 4, 4), np.uint8), "png")
JPEG = encode_picture(np.zeros((3, 16, 16), np.uint8), "jpeg")
WEBP = encode_picture(np.zeros((3, 4, 4), np.uint8), "webp")


LAYER = b"\x0a\x05water\x78\x02"
MVT = b"\x1a" + bytes([len(LAYER)]) + LAYER


def tiles(**named: Any) -> list[Entry]:
    names = ["0/0/0", "1/0/0", "1/1/0", "1/0/1", "1/1/1"]
    return [Entry(f"{name}.png".encode(), PNG, **named) for name in names]


def codes(tmp_path: Path, data: bytes, **options: Any) -> set[str]:
    return set(checked(tmp_path, data, **options).counts)


def checked(tmp_path: Path, data: bytes, **options: Any) -> Report:
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    report = tapalcatl.check(path, **options)
    assert set(report.counts) <= set(CODES)
    assert json.loads(json.dumps(report.to_dict()))["ok"] == report.ok
    return report


def replaced(number: int, entry: Entry) -> list[Entry]:
    entries = tiles()
    entries[number] = entry
    return entries


def third(data: bytes, **named: Any) -> bytes:
    """An archive whose third tile is another one."""
    return archive(replaced(2, Entry(b"1/1/0.png", data, **named)))


def more(name: bytes, data: bytes = PNG) -> bytes:
    """An archive with one entry more."""
    return archive([*tiles(), Entry(name, data)])


def saying(old: bytes, new: bytes) -> bytes:
    """An archive whose comment says something else."""
    return archive(tiles(), METADATA.replace(old, new))


LONG = struct.pack("<HH", 0xD935, 196) + bytes(196)
BOMB = zlib.compressobj(9, zlib.DEFLATED, -15)
BOMBED = BOMB.compress(bytes(8 << 20)) + BOMB.flush()


def with_zip64() -> bytes:
    """Sizes in ZIP64 fields of local headers, by zipfile, and an end record of ZIP64."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for entry in tiles():
            with made.open(zipfile.ZipInfo(entry.name.decode()), "w", force_zip64=True) as target:
                target.write(entry.data)
        made.comment = METADATA
    return with_zip64_end(file.getvalue())


SOUND: dict[str, bytes] = {
    "plain": archive(tiles()),
    "deflated": archive(tiles(deflate=True)),
    "data descriptors": archive(tiles(descriptor=True)),
    "longer local extra": archive(tiles(local_extra=LONG)),
    "date 0": archive(tiles(date=0, time=0)),
    "headers of entries": archive(tiles(comment=b'[{"X-A":"1"}]')),
    "empty extension": archive(
        [Entry(entry.name.removesuffix(b".png"), PNG) for entry in tiles()],
        METADATA.replace(b'"png":', b'"":'),
    ),
    "gzip in DEFLATE": archive(
        [
            Entry(entry.name.replace(b"png", b"mvt"), gzip.compress(MVT, mtime=0), deflate=True)
            for entry in tiles()
        ],
        METADATA.replace(
            b'"png":"image/png"',
            b'"mvt":[{"Content-Type":"application/x-protobuf"},{"Content-Encoding":"gzip"}]',
        ),
    ),
    "headers of the comment": archive(
        [Entry(one.name, gzip.compress(one.data, mtime=0)) for one in tiles()],
        METADATA.replace(b'"metatile"', b'"headers":[{"Content-Encoding":"gzip"}],"metatile"'),
    ),
    "ZIP64": with_zip64(),
    "a list of headers": saying(b'"image/png"', b'[{"Content-Type":"image/png"},{"X-A":"1"}]'),
}

ODD: dict[str, tuple[bytes, set[str]]] = {
    "appended update": (
        appended(archive(tiles()), [Entry(b"1/1/1.png", PNG)], tiles()[:4]),
        {"dead-space"},
    ),
    "end record in the comment": (
        archive(tiles(), METADATA + b"PK\5\6" + bytes(18) + b"xx"),
        {"comment-json", "comment-end-record", "comment-ascii"},
    ),
    "two end records that hold": (
        archive(tiles(), METADATA + b"PK\5\6" + bytes(18)),
        {"comment-json", "comment-end-record", "comment-ascii", "zip-two-ends"},
    ),
    "the signature of an end record in the comment": (
        archive(tiles(), METADATA + b"PK\5\6"),
        {"comment-json", "comment-end-record", "comment-ascii"},
    ),
    "bytes behind": (archive(tiles(), behind=b"xx"), {"zip-trailing-bytes"}),
    "comment of 65 535 bytes": (
        archive(tiles(), METADATA + b" " * (65_535 - len(METADATA))),
        {"archive-directory"},
    ),
    "stub, not shifted": (archive(tiles(), stub=b"#!/bin/sh\n"), {"zip-prefix"}),
    "stub, shifted": (archive(tiles(), stub=b"#!/bin/sh\n", shifted=True), {"dead-space"}),
    "gap before the directory": (archive(tiles(), gap=bytes(100)), {"dead-space"}),
    "other local name": (third(PNG, local_name=b"1/1/9.png"), {"zip-local-mismatch"}),
    "other local name of another length": (third(PNG, local_name=b"x"), {"zip-local-mismatch"}),
    "shared local header": (
        archive([tiles()[0], *(Entry(e.name, PNG, share=True) for e in tiles()[1:])]),
        {"zip-shared-header", "zip-local-mismatch"},
    ),
    "wrong CRC": (third(PNG, crc=1), {"zip-crc"}),
    "wrong CRC in a data descriptor": (third(PNG, crc=1, descriptor=True), {"zip-crc"}),
    "inflates past its size": (third(BOMBED, method=8, size=100, crc=0), {"zip-content"}),
    "stored with two sizes": (third(PNG, size=1), {"zip-size", "zip-content"}),
    "bzip2": (third(PNG, method=12), {"zip-method"}),
    "encrypted": (third(PNG, flags=1), {"zip-encrypted"}),
    "absolute name": (more(b"/1/0/0.png"), {"zip-name", "entry-name"}),
    "name that leaves": (more(b"../1/0/0.png"), {"zip-name", "entry-name"}),
    "backslashes": (more(b"1\\0\\0.png"), {"zip-name", "entry-name"}),
    "leading zeros": (more(b"01/0/0.png"), {"entry-name"}),
    "directory": (more(b"1/", b""), {"entry-name"}),
    "other file": (more(b"README.md", b"x"), {"entry-name"}),
    "duplicate name": (more(b"1/0/0.png"), {"zip-duplicate-name"}),
    "no comment": (archive(tiles(), b""), {"comment-missing"}),
    "comment that is no JSON": (archive(tiles(), b"by zip"), {"comment-json"}),
    "comment with a line break": (archive(tiles(), METADATA + b"\n"), {"comment-ascii"}),
    "comment with a byte order mark": (
        archive(tiles(), b"\xef\xbb\xbf" + METADATA),
        {"comment-ascii"},
    ),
    "comment in UTF-8": (saying(b"odd", "ł".encode()), {"comment-ascii"}),
    "comment without bounds": (
        archive(tiles(), b'{"minzoom":0,"maxzoom":1,"formats":{"png":"image/png"},"root":"0/0/0"}'),
        {"comment-cut"},
    ),
    "comment of an unknown version": (saying(b'"2.0.0"', b'"3.0.0"'), {"comment-version"}),
    "comment of a newer version": (saying(b'"2.0.0"', b'"2.7.0"'), {"newer-version"}),
    "formats as objects": (
        saying(b'"image/png"', b'{"Content-Type":"image/png"}'),
        {"formats-shape"},
    ),
    "formats as a list with an object of two keys": (
        saying(b'"image/png"', b'[{"Content-Type":"image/png","X-A":"1"}]'),
        {"formats-shape"},
    ),
    "entry comment with an object of two keys": (
        archive(tiles(comment=b'[{"X-A":"1","X-B":"2"}]')),
        {"entry-comment"},
    ),
    "entry comment as object": (archive(tiles(comment=b'{"X-A":"1"}')), {"entry-comment"}),
    "entry comment that is no JSON": (archive(tiles(comment=b"hello")), {"entry-comment"}),
    "entry comment with a cookie": (
        archive(tiles(comment=b'[{"Set-Cookie":"a"}]')),
        {"entry-header"},
    ),
    "wrong count": (archive(tiles(), count=4), {"zip-count"}),
    "compressed size past the end": (
        archive(replaced(4, Entry(b"1/1/1.png", PNG, csize=1 << 30, size=1 << 30))),
        {"zip-span", "dead-space"},
    ),
    "compressed size into the next": (third(PNG, csize=140, size=140), {"zip-overlap", "zip-crc"}),
    "ZIP64 field too short": (
        archive(
            replaced(
                4, Entry(b"1/1/1.png", PNG, csize=0xFFFFFFFF, extra=struct.pack("<HHI", 1, 4, 5))
            )
        ),
        {"zip-zip64-field", "zip-span", "zip-size", "dead-space"},
    ),
    "zooms that are too few": (saying(b'"maxzoom":1', b'"maxzoom":0'), {"archive-zooms"}),
    "bounds that are too narrow": (saying(b"-180,", b"-170,"), {"archive-bounds"}),
    "a format that is not told": (more(b"0/0/0.webp", WEBP), {"archive-formats"}),
    "a scale that is not told": (more(b"0/0/0@2x.png"), {"archive-scales"}),
    "truncated": (archive(tiles())[:-40], {"zip-end"}),
    "broken directory": (archive(tiles()).replace(b"PK\1\2", b"PK\1\3", 2), {"zip-directory"}),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_archives(tmp_path: Path, name: str) -> None:
    report = checked(tmp_path, SOUND[name])
    assert report.ok
    assert report.counts == {}


@pytest.mark.parametrize("name", ODD)
def test_odd_archives(tmp_path: Path, name: str) -> None:
    data, expected = ODD[name]
    report = checked(tmp_path, data)
    assert set(report.counts) == expected
    assert report.ok == all(CODES[code][0] == "warning" for code in expected)


TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "webp": "image/webp",
    "mvt": [{"Content-Type": "application/vnd.mapbox-vector-tile"}, {"Content-Encoding": "gzip"}],
    "pbf": "application/x-protobuf",
    "json": "application/json",
    "br": [{"Content-Type": "application/json"}, {"Content-Encoding": "br"}],
    "bin": "application/octet-stream",
    "avif": "image/avif",
    "gif": "image/gif",
    "jxl": "image/jxl",
}
COMMENT = json.dumps(
    {
        "minzoom": 0,
        "maxzoom": 0,
        "bounds": [-180, -85.0511287798066, 180, 85.0511287798066],
        "formats": TYPES,
        "root": "0/0/0",
    }
).encode()


@pytest.mark.parametrize(
    ("ext", "data", "expected"),
    [
        ("png", PNG, set()),
        ("jpg", JPEG, set()),
        ("webp", WEBP, set()),
        ("mvt", gzip.compress(MVT, mtime=0), set()),
        ("pbf", MVT, set()),
        ("pbf", b"", {"tile-empty"}),
        ("json", b'{"a": 1}', set()),
        ("br", b"whatever", set()),
        ("bin", b"whatever", set()),
        ("bin", bytes(1 << 20), set()),
        ("bin", bytes((1 << 20) + 1), {"limit-exceeded"}),
        ("avif", b"\0\0\0\x1cftypavif", {"tile-not-decoded"}),
        ("avif", PNG, {"tile-type"}),
        ("gif", b"GIF89a", {"tile-not-decoded"}),
        ("jxl", b"\xff\x0a", {"tile-not-decoded"}),
        ("png", PNG[:40], {"tile-image"}),
        ("png", b"no picture", {"tile-image"}),
        ("jpg", JPEG[:100], {"tile-image"}),
        ("png", JPEG, {"tile-type"}),
        ("png", gzip.compress(PNG, mtime=0), {"tile-encoding"}),
        ("mvt", MVT, {"tile-encoding"}),
        ("mvt", gzip.compress(MVT, mtime=0)[:-9], {"tile-encoding"}),
        ("mvt", gzip.compress(MVT, mtime=0) + b"x", {"tile-encoding"}),
        ("mvt", gzip.compress(b"\xff\xff", mtime=0), {"tile-vector"}),
        ("mvt", gzip.compress(bytes(2 << 20), mtime=0), {"limit-exceeded"}),
        ("pbf", MVT + b"\x09" + bytes(8) + b"\x0d" + bytes(4) + b"\x08\x96\x01", set()),
        ("pbf", b"\x1a\x00", {"tile-vector"}),
        ("pbf", b"\x1a", {"tile-vector"}),
        ("pbf", b"\x1a\xff", {"tile-vector"}),
        ("pbf", b"\x1a\x05abc", {"tile-vector"}),
        ("pbf", b"\x00\x00", {"tile-vector"}),
        ("pbf", b"\x0f", {"tile-vector"}),
        ("pbf", b"\x80" * 12, {"tile-vector"}),
        ("pbf", b"\x1a\x02\x0a\x05", {"tile-vector"}),
        ("pbf", b"\x1a\x03\x0a\x01\xff", {"tile-vector"}),
        ("pbf", b"\x1a\x02\x78\x02", {"tile-vector"}),
        ("json", b"{", {"tile-json"}),
        ("json", b"\xff", {"tile-json"}),
    ],
)
def test_contents(tmp_path: Path, ext: str, data: bytes, expected: set[str]) -> None:
    entries = [Entry(f"0/0/0.{ext}".encode(), data)]
    limits = Limits(tile_bytes=1 << 20)
    assert codes(tmp_path, archive(entries, COMMENT), limits=limits) == expected
    assert codes(tmp_path, archive(entries, COMMENT), level="structure") == set()


def test_a_picture_that_is_too_large(tmp_path: Path) -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 6, 0, 0, 0)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    assert codes(tmp_path, archive([Entry(b"0/0/0.png", data)], COMMENT)) <= {
        "limit-exceeded",
        "tile-image",
    }


def test_a_sample_of_tiles(tmp_path: Path) -> None:
    entries = [Entry(f"8/0/{y}.png".encode(), PNG, crc=1) for y in range(100)]
    comment = b'{"formats":{"png":"image/png"}}'
    full = checked(tmp_path, archive(entries, comment))
    sample = checked(tmp_path, archive(entries, comment), level="sample")
    assert (full.counts["zip-crc"], sample.counts["zip-crc"]) == (100, 5)


def test_what_is_no_tileset(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        tapalcatl.check(tmp_path / "nothing.zip")
    (tmp_path / "a.zip").write_bytes(b"hello" * 20)
    with pytest.raises(NotThisFormatError):
        tapalcatl.check(tmp_path / "a.zip")
    with pytest.raises(InvalidInputError):
        tapalcatl.check(tmp_path / "a.zip", level="some")


# -- trees ----------------------------------------------------------------------------------------


def tree(folder: Path, **changes: Any) -> Path:
    """A tileset of zooms 0 to 2 with archives at 0 and 2, one of which is not there."""
    document = {
        "tapalcatl": "2.0.0",
        "name": "odd",
        "minzoom": 0,
        "maxzoom": 2,
        "bounds": [-180, -85.0511287798066, 180, 85.0511287798066],
        "formats": {"png": "image/png"},
        "metatile": 2,
        "materializedZooms": [0, 2],
        "source": "{z}/{x}/{y}.zip",
        **changes,
    }
    folder.mkdir(exist_ok=True)
    (folder / "meta.json").write_text(
        json.dumps({key: value for key, value in document.items() if value is not None})
    )
    write(folder, (0, 0, 0), tiles(), 1)
    for x, y in ((0, 0), (0, 2), (2, 0)):
        entries = [
            Entry(f"2/{x + dx}/{y + dy}.png".encode(), PNG) for dx in (0, 1) for dy in (0, 1)
        ]
        write(folder, (2, x, y), entries, 2)
    return folder


def write(
    folder: Path, root: tuple[int, int, int], entries: list[Entry], last: int, metatile: int = 2
) -> None:
    comment = json.dumps(
        {
            "tapalcatl": "2.0.0",
            "name": "odd",
            "minzoom": root[0],
            "maxzoom": last,
            "bounds": archive_bounds(root, metatile),
            "formats": {"png": "image/png"},
            "metatile": metatile,
            "root": "/".join(map(str, root)),
        }
    ).encode()
    path = folder / "/".join(map(str, root[:2])) / f"{root[2]}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive(entries, comment))


def test_a_sound_tree(tmp_path: Path) -> None:
    report = tapalcatl.check(tree(tmp_path / "t"))
    assert report.counts == {"archive-missing": 1}
    assert report.problems[0].place == "2/2/2.zip"
    assert report.container == "tree"
    assert report.ok


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"maxzoom": 1}, {"archive-stray", "document-zooms"}),
        ({"minzoom": 1}, {"document-zooms"}),
        ({"bounds": [-180, 0, 0, 85]}, {"document-bounds"}),
        ({"formats": {"webp": "image/webp"}}, {"document-formats"}),
        ({"formats": None}, {"document-formats"}),
        ({"formats": {"png": {"Content-Type": "image/png"}}}, {"formats-shape"}),
        ({"bounds": None}, {"document-field"}),
        ({"metatile": 1}, {"tile-place", "archive-document"}),
        ({"materializedZooms": [0]}, {"archive-stray", "tile-place"}),
        ({"materializedZooms": [0, 1]}, {"archive-stray", "tile-place"}),
        ({"name": "another"}, {"archive-document"}),
        ({"minscale": 2, "maxscale": 2}, {"archive-document"}),
        ({"source": None}, {"document"}),
        ({"source": "../{z}/{x}/{y}.zip"}, {"unsafe-content"}),
        ({"metatile": 3}, {"document"}),
    ],
)
def test_documents_that_disagree(
    tmp_path: Path, changes: dict[str, Any], expected: set[str]
) -> None:
    found = set(tapalcatl.check(tree(tmp_path / "t", **changes)).counts)
    assert found - {"archive-missing"} == expected


ROADS = {"id": "roads", "fields": {"kind": "What it is."}}
TILEJSON: dict[str, tuple[list[Any], list[Any]]] = {
    "attribution": (["", "<a>us</a>"], [3, ["us"]]),
    "center": (
        [[0, 0, 0], [-72.5, -13.5, 4], [-180, 90, MAX_ZOOM]],
        ["0,0,0", [0, 0], [181, 0, 0], [0, 91, 0], [0, 0, -1], [0, 0, MAX_ZOOM + 1]],
    ),
    "data": ([[], ["a"]], ["a", [1]]),
    "fillzoom": ([0, 9, MAX_ZOOM], [-1, 1.5, True, "3", MAX_ZOOM + 1]),
    "grids": ([[]], [{}]),
    "legend": (["x"], [1]),
    "scheme": (["xyz"], ["tms", 1]),
    "template": ([""], [False]),
    "tilejson": (["3.0.0"], [3.0]),
    "tiles": ([["https://example.org/{z}/{x}/{y}"]], ["https://example.org/{z}/{x}/{y}"]),
    "vector_layers": (
        [
            [],
            [ROADS],
            [{**ROADS, "minzoom": 0, "maxzoom": 9, "description": "Roads."}],
            [{"id": "a"}],
        ],
        [
            *({}, [1], [{"id": 1}], [{"fields": {}}]),
            *([{**ROADS, name: 1}] for name in ("fields", "description")),
            *([{**ROADS, "fields": {"kind": 1}}], [{**ROADS, "minzoom": "0"}]),
        ],
    ),
    "version": (["1.0.0"], [1]),
}


def test_keys_of_tilejson(tmp_path: Path) -> None:
    """In the document of a tree and in the comment of a single archive."""
    for n in range(4):
        right = {key: values[n % len(values)] for key, (values, _) in TILEJSON.items()}
        assert "document-tilejson" not in tapalcatl.check(tree(tmp_path / f"{n}", **right)).counts
    for key, (_, wrong) in TILEJSON.items():
        for value in wrong:
            told = tapalcatl.check(tree(tmp_path / "t", **{key: value}), level="structure")
            assert told.counts["document-tilejson"] == 1, (key, value)
            comment = json.dumps({"formats": {"png": "image/png"}, key: value}).encode()
            (tmp_path / "a.zip").write_bytes(archive(tiles(), comment))
            told = tapalcatl.check(tmp_path / "a.zip", level="structure")
            assert told.counts["document-tilejson"] == 1, (key, value)


def test_an_archive_of_another_version_in_a_tree(tmp_path: Path) -> None:
    folder = tree(tmp_path / "t")
    path = folder / "2/0/0.zip"
    path.write_bytes(path.read_bytes().replace(b'"2.0.0"', b'"3.0.0"'))
    report = tapalcatl.check(folder)
    assert report.counts == {"archive-missing": 1, "comment-version": 1}
    assert data_of(tapalcatl.open(folder), 2, 0, 0) == PNG


@pytest.mark.parametrize("bounds", [[90, -85, -90, 85], [90, -85, 270, 85], [-270, -85, -90, 85]])
def test_bounds_across_the_antimeridian(
    tmp_path: Path, bounds: list[float], http_server: HttpServer
) -> None:
    folder = tree(tmp_path / "t", bounds=bounds, metatile=1, materializedZooms=[2], minzoom=2)
    for path in folder.rglob("*.zip"):
        path.unlink()
    for x in (0, 3):
        for y in range(4):
            write(folder, (2, x, y), [Entry(f"2/{x}/{y}.png".encode(), PNG)], 2, metatile=1)
    assert tapalcatl.check(folder).counts == {}
    (folder / "2/3/1.zip").unlink()
    report = tapalcatl.check(folder)
    assert [problem.place for problem in report.problems] == ["2/3/1.zip"]
    # Where nothing is listed, nobody asks for those in between.
    http_server.serve_folder(folder, "t")
    assert len(tapalcatl.open(http_server.url_for("t/meta.json")).keys()) == 7
    assert not any("/2/1/" in seen.path or "/2/2/" in seen.path for seen in http_server.requests)
    write(folder, (2, 1, 1), [Entry(b"2/1/1.png", PNG)], 2, metatile=1)
    assert tapalcatl.check(folder).counts == {"archive-missing": 1, "document-bounds": 1}


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("x/{z}/{x}/{y}.zip", {}),
        ("{z}/{y}/{x}/{z}.zip", {}),
        ("/none/{z}/{x}/{y}", {}),
        ("{z}/{x}/{y}.zip", {"metatile": 4, "layer": "all"}),
    ],
)
def test_a_template_that_leads_nowhere(
    tmp_path: Path, source: str, options: dict[str, Any]
) -> None:
    report = tapalcatl.check(tree(tmp_path / "t", source=source), **options)
    assert report.counts == {"document-source": 1}
    assert not report.ok


@pytest.mark.parametrize("kind", HASHES)
@pytest.mark.parametrize("told", [True, False])
def test_each_hash_is_followed(tmp_path: Path, kind: str, *, told: bool) -> None:
    folder = tree(tmp_path / "t", source="{h}/{z}/{x}/{y}.zip")
    for z, x, y in ((0, 0, 0), (2, 0, 0), (2, 0, 2), (2, 2, 0)):
        name = f"{z}/{x}/{y}.zip"
        path = folder / tile_hash((z, x, y), kind) / name
        path.parent.mkdir(parents=True)
        (folder / name).rename(path)
    assert tapalcatl.check(folder, hash=kind if told else None).counts == {"archive-missing": 1}
    path.write_bytes(path.read_bytes()[:-30])
    assert "zip-directory" in tapalcatl.check(folder, hash=kind if told else None).counts


def test_one_of_several_variants(tmp_path: Path) -> None:
    dark = [Entry(b"dark/" + entry.name, PNG) for entry in tiles()]
    bad = [Entry(b"light/" + entry.name, PNG, crc=1) for entry in tiles()]
    data = archive([*dark, *bad, Entry(b"dark/README", b"x")])
    assert checked(tmp_path, data).counts == {"entry-name": 11, "zip-crc": 5}
    report = checked(tmp_path, data, variant="dark")
    # The bytes of all entries are compared, whatever they are.
    assert report.counts == {"entry-name": 1, "zip-crc": 5}
    assert "README" in report.problems[-1].place


def test_archives_that_are_wrong(tmp_path: Path) -> None:
    folder = tree(tmp_path / "t")
    (folder / "2/1").mkdir()
    (folder / "2/1/0.zip").write_bytes((folder / "2/0/0.zip").read_bytes())
    (folder / "2/2/0.zip").write_bytes(b"no archive")
    (folder / "2/0/2.zip").write_bytes((folder / "2/0/0.zip").read_bytes())
    report = tapalcatl.check(folder)
    assert set(report.counts) == {
        "archive-missing",
        "archive-stray",
        "archive-root",
        "archive-bounds",
        "tile-place",
        "zip-directory",
    }
    assert not report.ok


def test_progress_counts_archives(tmp_path: Path) -> None:
    made = ((5, x, y, b"x") for x in range(32) for y in range(32))
    built = tapalcatl.build(made, tmp_path / "t", ext="pbf", metatile=2)
    said: list[tuple[int, int | None, str]] = []
    tapalcatl.check(tmp_path / "t", progress=lambda *told: said.append(told))
    assert built.archives > 100
    assert said[-1] == (built.archives, built.archives, "archives")


def test_a_tree_over_http(tmp_path: Path, http_server: HttpServer) -> None:
    url = http_server.serve_folder(tree(tmp_path / "t"), "t")
    report = tapalcatl.check(f"{url}/meta.json")
    assert report.counts == {"archive-missing": 1}


@needs_shared
@pytest.mark.parametrize("name", ["t2/landcover-png", "t2/mvt-js"])
def test_trees_of_existing_writers(name: str) -> None:
    report = tapalcatl.check(FOLDER / name)
    assert report.ok
    assert set(report.counts) <= {"comment-cut"}


@needs_shared
def test_the_first_generation() -> None:
    report = tapalcatl.check(FOLDER / "t1/m4_nohash", metatile=4, layer="all")
    assert report.counts == {}


REPORTED = {
    "ok": set(),
    "zip64": set(),
    "data-descriptor": set(),
    "comment-utf8": {"comment-ascii"},
    "dead-zone": {"dead-space"},
    "eocd-in-comment": {"comment-json", "comment-end-record", "comment-ascii"},
    "entry-comment-list": {"entry-header"},
    "bad-crc": {"zip-crc"},
}


@needs_shared
@pytest.mark.parametrize("name", sorted(EXPECTED.get("edge", {})))
def test_odd_archives_beside_the_checkout(name: str) -> None:
    report = tapalcatl.check(FOLDER / f"edge/{name}.zip")
    assert set(report.counts) == REPORTED[name]
    if EXPECTED["edge"][name].get("dead_bytes"):
        assert report.counts["dead-space"] == 1
