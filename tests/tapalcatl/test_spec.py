"""Documents of tilesets and archives: every shape that exists is read, one is written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError, InvalidMetadataError, LimitExceededError
from comal.tapalcatl import spec
from comal.tapalcatl.spec import ArchiveMetadata, TileSetMetadata

GZIP = (("Content-Type", "application/vnd.mapbox-vector-tile"), ("Content-Encoding", "gzip"))
TREE = TileSetMetadata(
    formats={"mvt": GZIP, "png": (("Content-Type", "image/png"),), "": (("X-A", "1"),)},
    min_zoom=0,
    max_zoom=14,
    bounds=(-10.5, -20.0, 30.0, 40.25),
    metatile=4,
    materialized_zooms=(0, 4, 8),
    source="{z}/{x}/{y}.zip",
    name="Łódź 東京",
    description="line\nbreak",
    min_scale=1,
    max_scale=2,
    extra={"vector_layers": [{"id": "water"}], "attribution": "me"},
)


def test_a_tileset_comes_back() -> None:
    data = spec.tileset_json(TREE)
    assert spec.parse_tileset(data, "meta.json") == TREE


def test_an_archive_comes_back() -> None:
    archive = ArchiveMetadata(
        formats=TREE.formats,
        min_zoom=4,
        max_zoom=7,
        bounds=(-180.0, 0.0, -90.0, 66.5),
        metatile=4,
        root=(4, 0, 4),
        headers=(("X-Old", "yes"),),
        name="\x7f\x00é",
    )
    comment, cut = spec.archive_comment(archive)
    assert cut == ()
    assert comment.isascii()
    assert all(0x20 <= byte < 0x7F for byte in comment)
    assert spec.parse_archive(comment, "comment") == archive


def test_keys_stand_in_one_order() -> None:
    about = ["tapalcatl", "name", "description", "minzoom", "maxzoom", "bounds", "formats"]
    layout = ["minscale", "maxscale", "metatile", "materializedZooms", "source"]
    found = list(json.loads(spec.tileset_json(TREE)))
    assert found == [*about, *layout, "vector_layers", "attribution"]


def test_formats_are_written_as_text_or_lists() -> None:
    assert json.loads(spec.tileset_json(TREE))["formats"] == {
        "mvt": [
            {"Content-Type": "application/vnd.mapbox-vector-tile"},
            {"Content-Encoding": "gzip"},
        ],
        "png": "image/png",
        "": [{"X-A": "1"}],
    }


@pytest.mark.parametrize(
    ("written", "headers"),
    [
        ('"image/png"', (("Content-Type", "image/png"),)),
        ('[{"Content-Type":"a/b"},{"X":"1"}]', (("Content-Type", "a/b"), ("X", "1"))),
        ('[{"Content-Type":"a/b","X":"1"}]', (("Content-Type", "a/b"), ("X", "1"))),
        ('{"Content-Type":"a/b","X":1}', (("Content-Type", "a/b"), ("X", "1"))),
        ("[]", ()),
    ],
)
def test_every_shape_of_formats_is_read(written: str, headers: spec.Headers) -> None:
    found = spec.parse_tileset(f'{{"formats":{{"e":{written}}}}}'.encode(), "meta.json")
    assert found.formats == {"e": headers}


def test_old_documents_have_defaults() -> None:
    found = spec.parse_tileset(b'\xef\xbb\xbf {"minzoom": 2.0,\n"formats": {}}\n', "meta.json")
    assert (found.version, found.metatile, found.min_scale, found.max_scale) == ("2.0.0", 1, 1, 1)
    assert found.materialized_zooms == (2,)
    assert (found.max_zoom, found.bounds, found.source) == (None, None, None)


def test_the_oldest_archives_have_default_headers() -> None:
    found = spec.parse_archive(b'{"headers":[{"Content-Type":"image/png"}]}', "comment")
    assert found.headers == (("Content-Type", "image/png"),)


@pytest.mark.parametrize(
    "document",
    [
        '{"minzoom":-1}',
        '{"maxzoom":31}',
        '{"maxzoom":1.5}',
        '{"minzoom":true}',
        '{"bounds":[0,0,0]}',
        '{"bounds":[0,10,0,-10]}',
        '{"bounds":"world"}',
        '{"metatile":3}',
        '{"metatile":0}',
        '{"minscale":0}',
        '{"minscale":"2"}',
        '{"materializedZooms":[]}',
        '{"materializedZooms":[0,99]}',
        '{"materializedZooms":4}',
        '{"formats":[]}',
        '{"formats":{"png":[1]}}',
        '{"formats":{"png":{"Content-Type":null}}}',
        '{"name":5}',
        '{"source":5}',
        '{"name":1,"name":2}',
        '{"bounds":[0,0,NaN,1]}',
        "[]",
        "not JSON",
    ],
)
def test_what_cannot_be_meant_is_refused(document: str) -> None:
    with pytest.raises(InvalidMetadataError):
        spec.parse_tileset(document.encode(), "meta.json")


@pytest.mark.parametrize("root", ["4/16/0", "a/b/c", "4/0", "99/0/0", 5])
def test_a_root_that_is_no_tile_is_refused(root: object) -> None:
    with pytest.raises(InvalidMetadataError):
        spec.parse_archive(json.dumps({"root": root}).encode(), "comment")


def test_a_comment_that_is_none_is_a_problem_and_no_error() -> None:
    assert spec.read_comment(b"", "comment") == (None, [])
    assert spec.read_comment(b" \n", "comment") == (None, [])
    metadata, problems = spec.read_comment(b"made by zip", "comment")
    assert metadata is None
    assert [problem.code for problem in problems] == ["comment-json"]


def test_deep_documents_are_refused_before_they_are_parsed() -> None:
    with pytest.raises(LimitExceededError):
        spec.parse_tileset(b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "meta.json")


def test_a_comment_is_cut_to_the_fields_of_the_format() -> None:
    layers = [{"id": f"layer {number}"} for number in range(10_000)]
    archive = ArchiveMetadata(formats={"mvt": GZIP}, extra={"vector_layers": layers})
    comment, cut = spec.archive_comment(archive)
    assert cut == ("vector_layers",)
    assert len(comment) < 1_000
    assert spec.parse_archive(comment, "comment").formats == {"mvt": GZIP}


def test_a_comment_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="do not fit"):
        spec.archive_comment(ArchiveMetadata(description="x" * 66_000))


def test_headers_of_a_tile_that_no_tile_may_set_are_left_out() -> None:
    headers = (
        ("Set-Cookie", "a=1"),
        ("X-A", "1"),
        ("content-length", "3"),
        ("Transfer-Encoding", "chunked"),
        ("X-B", "a\r\nX-Evil: 1"),
        ("X C", "1"),
        ("Connection", "close"),
        ("X-Ł", "1"),
        ("X-D", "ł"),
        ("X-E", "b\0"),
    )
    assert spec.safe_headers(headers) == (("X-A", "1"),)


def test_entry_comments() -> None:
    headers = (("X-A", "é"), ("Cache-Control", "max-age=60"))
    assert spec.parse_entry_comment(spec.entry_comment(headers)) == headers
    assert spec.entry_comment(()) == b""
    assert spec.parse_entry_comment(b'{"X-A": "1"}') == (("X-A", "1"),)
    for other in (b"", b"hello", b"[1]", b"[", b'[{"a":[]}]', b'[{"a":"1"}],"b":1'):
        assert not spec.parse_entry_comment(other)
    with pytest.raises(InvalidInputError):
        spec.entry_comment((("Set-Cookie", "a"),))
    with pytest.raises(InvalidInputError, match="too long"):
        spec.entry_comment((("X", "a" * 70_000),))


def test_the_later_of_two_headers_wins() -> None:
    assert spec.folded((("A", "1"), ("B", "2"), ("a", "3"))) == {"a": "3", "B": "2"}


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["formats", "minzoom", "bounds", "metatile", "materializedZooms", "root", "headers", "name"]
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(KEYS | st.text(max_size=5), JSONS, max_size=5))
def test_any_document_is_read_or_refused_by_us(document: dict[str, object]) -> None:
    data = json.dumps(document).encode()
    metadata, problems = spec.read_comment(data, "comment")
    assert (metadata is None) == bool(problems)
    if metadata is not None:
        comment, _ = spec.archive_comment(metadata)
        assert spec.parse_archive(comment, "comment") == metadata
