"""The document: every form that was ever written, and what is written again."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    UnsupportedVersionError,
)
from comal.limits import Limits
from comal.raquet import Band, BandStatistics, Metadata, metadata_json, parse_metadata
from comal.raquet.wire import parse_nodata
from tests.support import SHARED, needs_shared

FLAT: dict[str, Any] = {
    "version": "0.1.0",
    "compression": "gzip",
    "block_resolution": 10,
    "minresolution": 8,
    "maxresolution": 10,
    "nodata": 0,
    "num_blocks": 6,
    "num_pixels": 393216,
    "bands": [
        {
            "type": "uint8",
            "name": "band_1",
            "colorinterp": "Palette",
            "colortable": {"0": [0, 0, 0, 0], "7": [1, 2, 3]},
            "stats": {
                "count": 10,
                "min": 1,
                "max": 6,
                "mean": 2.5,
                "stddev": 1.0,
                "sum": 25,
                "sum_squares": 80,
                "quantiles": {"3": [1, 3], "4": [1, 2, 3]},
                "top_values": {"1": 5, "2": 5},
                "blocks": 6,
                "version": "1",
                "approximated_stats": False,
            },
        }
    ],
    "bounds": [-0.3515625, 51.17934297928927, 0.703125, 51.6180165487737],
    "center": [0.17578125, 51.398679764031485, 10],
    "width": 768,
    "height": 512,
    "block_width": 256,
    "block_height": 256,
    "pixel_resolution": 18,
}
NESTED: dict[str, Any] = {
    "file_format": "raquet",
    "version": "0.5.0",
    "width": 768,
    "height": 512,
    "crs": "EPSG:3857",
    "bounds": [-0.3515625, 51.17934297928927, 0.703125, 51.6180165487737],
    "bounds_crs": "EPSG:4326",
    "tiling": {
        "scheme": "quadbin",
        "block_width": 256,
        "block_height": 256,
        "min_zoom": 8,
        "max_zoom": 10,
        "pixel_zoom": 18,
        "num_blocks": 6,
    },
    "compression": "gzip",
    "bands": [
        {
            "name": "band_1",
            "description": "Terrain",
            "type": "int16",
            "nodata": -32768.0,
            "unit": "m",
            "scale": 0.1,
            "offset": 5,
            "colorinterp": "gray",
            "colortable": None,
            "STATISTICS_MINIMUM": -98,
            "STATISTICS_MAXIMUM": 2729,
            "STATISTICS_MEAN": 1274.5,
            "STATISTICS_STDDEV": 577.75,
            "STATISTICS_VALID_PERCENT": 84.5,
        }
    ],
    "tile_statistics": True,
    "tile_statistics_columns": ["count", "min", "max"],
    "processing": {"created_by": "somebody"},
    "custom": {"mine": {"a": [1, 2]}},
    "time": {"cf:units": "days since 2000-01-01", "count": 4},
    "unknown": 1,
}


def parsed(document: dict[str, Any], **changes: Any) -> Metadata:
    changed = {key: value for key, value in (document | changes).items() if value is not ...}
    return parse_metadata(json.dumps(changed), "here.parquet")


def band(document: dict[str, Any], **changes: Any) -> Band:
    return parsed(document, bands=[document["bands"][0] | changes]).bands[0]


def refused(document: dict[str, Any], **changes: Any) -> set[str]:
    """Codes of what is wrong."""
    with pytest.raises(InvalidMetadataError) as caught:
        parsed(document, **changes)
    assert all("here.parquet" in problem.place for problem in caught.value.problems)
    return {problem.code for problem in caught.value.problems if problem.severity == "error"}


def test_bands_that_are_equal_but_not_the_same() -> None:
    """Those that were read last are not read again, but 1 and true are others."""
    assert [band(FLAT, nodata=nodata).nodata for nodata in (2, 1, 1)] == [2, 1, 1]
    assert refused(FLAT, bands=[FLAT["bands"][0] | {"nodata": True}])
    assert band(FLAT, nodata=1).nodata == 1


def test_flat() -> None:
    metadata = parsed(FLAT)
    assert (metadata.min_zoom, metadata.max_zoom, metadata.num_blocks) == (8, 10, 6)
    assert (metadata.width, metadata.height) == (768, 512)
    assert (metadata.block_width, metadata.block_height) == (256, 256)
    assert metadata.compression == "gzip"
    assert not metadata.nested
    assert metadata.columns == ("band_1",)
    assert metadata.center == (0.17578125, 51.398679764031485, 10)
    (found,) = metadata.bands
    assert (found.nodata, found.colorinterp) == (0, "palette")
    assert isinstance(found.nodata, int)
    assert found.colortable == {0: (0, 0, 0, 0), 7: (1, 2, 3, 255)}
    assert found.statistics == BandStatistics(
        count=10,
        min=1,
        max=6,
        mean=2.5,
        stddev=1.0,
        sum=25,
        sum_squares=80,
        quantiles={"3": (1, 3), "4": (1, 2, 3)},
        top_values={"1": 5, "2": 5},
        approximated=False,
        version="1",
        extra={"blocks": 6},
    )
    assert metadata.problems == ()


def test_nested() -> None:
    metadata = parsed(NESTED)
    assert metadata.nested
    assert (metadata.min_zoom, metadata.max_zoom, metadata.num_blocks) == (8, 10, 6)
    assert metadata.tile_statistics == ("count", "min", "max")
    assert metadata.statistics_columns == ("band_1_count", "band_1_min", "band_1_max")
    assert metadata.time == {"cf:units": "days since 2000-01-01", "count": 4}
    assert (metadata.custom, metadata.extra) == ({"mine": {"a": [1, 2]}}, {"unknown": 1})
    (found,) = metadata.bands
    assert (found.description, found.unit, found.scale, found.offset) == ("Terrain", "m", 0.1, 5.0)
    assert found.statistics == BandStatistics(
        min=-98, max=2729, mean=1274.5, stddev=577.75, valid_percent=84.5
    )


def test_the_earliest_files_have_hardly_any_keys() -> None:
    bare = {
        key: FLAT[key]
        for key in ("bounds", "compression", "minresolution", "maxresolution", "block_width")
    }
    metadata = parsed(bare, block_height=256, bands=[{"type": "uint8", "name": "band_1"}])
    assert (metadata.version, metadata.num_blocks) == (None, None)
    # Three columns and two rows of tiles, from the bounds.
    assert (metadata.width, metadata.height) == (768, 512)
    assert [problem.code for problem in metadata.problems] == ["raquet-version-missing"]


def test_both_forms_in_one_document() -> None:
    # A tool that splits files by zoom changes the flat keys and leaves `tiling` as it was.
    metadata = parsed(NESTED, minresolution=9, maxresolution=9)
    assert (metadata.min_zoom, metadata.max_zoom) == (9, 9)


def test_bands_as_pairs_with_a_list_of_nodata() -> None:
    metadata = parsed(
        FLAT, bands=[["a", "uint8"], ["b", "float32"], ["c", "int16"]], nodata=[1, "nan"]
    )
    assert [one.dtype for one in metadata.bands] == ["uint8", "float32", "int16"]
    assert metadata.bands[0].nodata == 1
    assert math.isnan(metadata.bands[1].nodata or 0)
    assert metadata.bands[2].nodata is None


@pytest.mark.parametrize(
    ("written", "dtype", "expected"),
    [
        (0, "uint8", 0),
        (0.0, "uint8", 0),
        ("0", "uint8", 0),
        ("-9999.0", "int16", -9999),
        ("-9999.0", "float32", -9999.0),
        (2**63 - 1, "int64", 2**63 - 1),
        (str(2**64 - 1), "uint64", 2**64 - 1),
        (2**53 + 1, "int64", 2**53 + 1),
        ("Infinity", "float64", math.inf),
        ("-infinity", "float64", -math.inf),
        (0.5, "uint8", 0.5),
        (-1, "uint8", -1),
        (-1e300, "uint8", -1e300),
        ("1" + 60 * "0", "int64", 1e60),
        (10**39, "float32", 1e39),
        *((text, "float32", math.nan) for text in ("nan", "NaN", "NAN", math.nan)),
        *(("9" * 400, kind, math.inf) for kind in ("int16", "float32")),
    ],
)
def test_nodata(written: Any, dtype: str, expected: Any) -> None:
    assert repr(band(FLAT, nodata=written, type=dtype).nodata) == repr(expected)


@pytest.mark.parametrize("written", [None, "", "null", "None"])
def test_no_nodata(written: Any) -> None:
    bands = [FLAT["bands"][0] | {"nodata": written}]
    assert parsed(FLAT, nodata=..., bands=bands).bands[0].nodata is None
    # The value of the band comes before that of the file.
    assert band(FLAT, nodata=written).nodata == 0
    assert band(FLAT, nodata="3").nodata == 3


@settings(max_examples=100, deadline=None)
@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_stay_exact(value: int) -> None:
    assert parse_nodata(value, "int64") == value
    assert parse_nodata(str(value), "int64") == value


def test_bare_tokens_are_read_and_told() -> None:
    text = json.dumps(FLAT | {"nodata": math.nan})
    assert "NaN" in text
    metadata = parse_metadata(text, "here.parquet")
    assert [problem.code for problem in metadata.problems] == ["raquet-json-token"]
    assert metadata.bands[0].dtype == "uint8"


PAIRS = [["a", "uint8"], ["b", "uint8"], ["c", "uint8"]]
INTERLEAVED: dict[str, Any] = {"band_layout": "interleaved"}
REFUSED: dict[str, list[dict[str, Any]]] = {
    "raquet-bands": [{"bands": []}, {"bands": ...}, {"bands": [3]}],
    "raquet-band-type": [
        {"bands": [{"name": "a", "type": "complex64"}]},
        {"bands": [{"name": "a"}]},
    ],
    "raquet-band-name": [
        {"bands": [{"type": "uint8", "name": "block"}]},
        {"bands": [{"type": "uint8"}]},
        {"bands": [["a", "uint8"], ["a", "uint8"]]},
    ],
    "raquet-nodata": [{"nodata": True}, {"bands": [FLAT["bands"][0] | {"nodata": "many"}]}],
    "raquet-compression": [
        *({"compression": wrong} for wrong in ("zstd", ["gzip"], "jpeg")),
        {"bands": PAIRS[:2], "compression": "jpeg", **INTERLEAVED},
    ],
    "raquet-layout": [
        {"band_layout": "planar"},
        {"bands": [["a", "uint8"], ["b", "int8"]], **INTERLEAVED},
    ],
    "raquet-block-size": [
        *({"block_width": wrong} for wrong in (40, 0, -16, 8208, "256")),
        {"block_height": ...},
    ],
    "raquet-zooms": [
        {"maxresolution": 27},
        {"minresolution": 11},
        {"minresolution": -1},
        {"maxresolution": ..., "block_resolution": ...},
    ],
    "raquet-bounds": [
        {"bounds": wrong}
        for wrong in (
            [0, 0, 0, 1],
            [0, 5, 5, 0],
            [0, 0, 1],
            [0, 0, 1, math.inf],
            [0, True, 1, 2],
            ...,
        )
    ],
    "raquet-version": [{"version": 1}, {"version": "new"}],
    "raquet-version raquet-compression raquet-bounds": [
        {"version": "new", "compression": "x", "bounds": 1}
    ],
}
"""Codes, and changes that make a document one that cannot be used for that reason."""


@pytest.mark.parametrize("codes", REFUSED)
def test_documents_that_cannot_be_used(codes: str) -> None:
    for changes in REFUSED[codes]:
        assert refused(FLAT, **changes) == set(codes.split()), changes


@pytest.mark.parametrize(
    "changes",
    [
        {"crs": "EPSG:4326"},
        {"bounds_crs": "EPSG:3857"},
        {"file_format": "raster"},
        {"tiling": NESTED["tiling"] | {"scheme": "h3"}},
    ],
)
def test_values_that_can_only_be_one_thing(changes: dict[str, Any]) -> None:
    assert refused(NESTED, **changes) == {"raquet-grid"}


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1.0.0"},
        {"version": "12.1"},
        {"version": "0.6.0", "tile_matrix_set": "GoogleCRS84Quad"},
        {"tile_matrix_set": 3},
    ],
)
def test_generations_that_are_not_known(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedVersionError):
        parsed(NESTED, **changes)


def test_later_versions_on_the_same_grid_are_read() -> None:
    assert parsed(NESTED, version="0.6.0", tile_matrix_set="WebMercatorQuad").version == "0.6.0"
    assert parsed(NESTED, version="0.7").version == "0.7"


def test_pictures_and_interleaving() -> None:
    found = parsed(NESTED, bands=PAIRS, compression="webp", compression_quality=80, **INTERLEAVED)
    assert (found.quality, found.columns) == (80, ("pixels",))
    assert found.statistics_columns[0] == "a_count"


def test_what_does_not_matter_for_pixels_is_a_warning() -> None:
    odd = FLAT["bands"][0] | {
        "stats": {"mean": "3", "count": -1, "quantiles": {"3": "x"}, "top_values": {"1": "x"}},
        "colortable": {"a": [1, 2, 3, 4], "1": [1, 2], "2": [1, 2, 3, 400], "3": [1, 1, 1, 1]},
        "scale": "2",
        "description": 7,
    }
    metadata = parsed(
        FLAT,
        bands=[odd],
        width="wide",
        custom=3,
        tile_statistics=True,
        tile_statistics_columns=["median"],
    )
    assert metadata.width == 768
    assert metadata.bands[0].colortable == {3: (1, 1, 1, 1)}
    assert metadata.bands[0].scale is None
    assert metadata.bands[0].statistics == BandStatistics(quantiles={}, top_values={})
    assert {problem.severity for problem in metadata.problems} == {"warning"}
    assert len(metadata.problems) == 12


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', b"\xff{}", "null"])
def test_no_document(text: Any) -> None:
    with pytest.raises(InvalidMetadataError):
        parse_metadata(text, "here.parquet")


def test_limits() -> None:
    with pytest.raises(LimitExceededError):
        parse_metadata(json.dumps(FLAT), "here.parquet", Limits(json_bytes=100))
    with pytest.raises(LimitExceededError):
        parse_metadata('{"a":' * 100 + "1" + "}" * 100, "here.parquet")


# -- writing --------------------------------------------------------------------------------------


def test_the_flat_document() -> None:
    found = json.loads(metadata_json(parsed(FLAT)))
    assert list(found)[:6] == list(FLAT)[:6]
    colours = {"0": [0, 0, 0, 0], "7": [1, 2, 3, 255]}
    said = {"colorinterp": "palette", "nodata": "0", "colortable": colours}
    assert found == FLAT | {"bands": [FLAT["bands"][0] | said]}


def test_the_nested_document() -> None:
    found = json.loads(metadata_json(parsed(NESTED), "0.5.0"))
    assert found == json.loads(json.dumps(NESTED))
    assert list(found)[:3] == list(NESTED)[:3]


def test_what_goes_from_one_form_to_the_other() -> None:
    flat = parse_metadata(metadata_json(parsed(NESTED), "0.1.0"), "x")
    assert flat.version == "0.2.0"  # which brought time
    assert not flat.nested
    assert flat.bands[0].scale == 0.1
    assert flat.bands[0].description == "Terrain"
    assert (flat.time, flat.custom) == (NESTED["time"], NESTED["custom"])
    assert flat.extra == {"unknown": 1}
    nested = parse_metadata(metadata_json(parsed(FLAT), "0.5.0"), "x")
    assert nested.nested
    assert nested.bands[0].colortable == {0: (0, 0, 0, 0), 7: (1, 2, 3, 255)}


def make(*bands: Band, **changes: Any) -> Metadata:
    named: dict[str, Any] = {
        "block_width": 48,
        "block_height": 32,
        "min_zoom": 1,
        "max_zoom": 3,
        "bounds": (-10.0, -20.0, 30.0, 40.0),
        "width": 96,
        "height": 64,
        "bands": bands,
    }
    return Metadata(**(named | changes))


def test_nodata_in_the_flat_form() -> None:
    def root(*bands: Band) -> Any:
        found = json.loads(metadata_json(make(*bands)))
        return found["nodata"], [one["nodata"] for one in found["bands"]]

    a = Band(name="a", dtype="int16", nodata=-1)
    b = Band(name="b", dtype="float32", nodata=-1.0)
    nan = Band(name="c", dtype="float32", nodata=math.nan)
    big = Band(name="d", dtype="uint64", nodata=2**64 - 1)
    assert root(a) == (-1, ["-1"])
    assert root(a, b) == (-1, ["-1", "-1.0"])
    assert root(a, nan) == (None, ["-1", "NaN"])
    assert root(nan) == (None, ["NaN"])
    assert root(big) == (2**64 - 1, [str(2**64 - 1)])
    assert root(Band(name="e", dtype="float64", nodata=-math.inf)) == (None, ["-Infinity"])
    assert root(a, Band(name="e", dtype="uint8")) == (None, ["-1", None])


def test_nodata_in_the_nested_form() -> None:
    bands = [
        Band(name="a", dtype="float32", nodata=math.nan),
        Band(name="b", dtype="float32", nodata=math.inf),
        Band(name="c", dtype="uint64", nodata=2**64 - 1),
        Band(name="d", dtype="float16"),
    ]
    text = metadata_json(make(*bands), "0.5.0")
    found = json.loads(text)
    assert [one["nodata"] for one in found["bands"]] == ["NaN", "Infinity", 2**64 - 1, None]
    again = parse_metadata(text, "x")
    assert [repr(one.nodata) for one in again.bands] == [repr(one.nodata) for one in bands]


def test_numbers_that_json_cannot_hold() -> None:
    statistics = BandStatistics(count=0, min=math.nan, mean=math.inf, stddev=None)
    made = make(
        Band(name="a", dtype="uint8", statistics=statistics),
        custom={"x": [math.nan, np.int64(3), np.float32(0.5)]},
    )
    found = json.loads(metadata_json(made))
    assert found["bands"][0]["stats"]["min"] is None
    assert found["custom"] == {"x": ["NaN", 3, 0.5]}


@pytest.mark.parametrize(
    ("bands", "changes"),
    [
        ([Band(name="a", dtype="float16")], {}),
        ([Band(name="a", dtype="uint8")], {"layout": "interleaved"}),
        ([Band(name="a", dtype="uint8")], {"layout": "interleaved", "compression": "webp"}),
    ],
)
def test_what_readers_of_the_first_version_would_misread(bands: list[Band], changes: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"RaQuet 0\.1\.0"):
        metadata_json(make(*bands, **changes))
    again = parse_metadata(metadata_json(make(*bands, **changes), "0.5.0"), "x")
    assert [(one.name, one.dtype) for one in again.bands] == [("a", bands[0].dtype)]


def test_versions_that_are_not_written() -> None:
    with pytest.raises(InvalidInputError):
        metadata_json(make(Band(name="a", dtype="uint8")), "0.3.0")


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
numbers = st.one_of(st.integers(-(2**63), 2**64 - 1), st.none(), st.just(-1e300))


@st.composite
def metadata(draw: st.DrawFn) -> Metadata:
    low = draw(st.integers(0, 26))
    bands = [
        Band(
            name="b" + name,
            dtype=draw(st.sampled_from(["uint8", "int64", "uint64"])),
            nodata=draw(numbers),
            description=draw(st.none() | names),
            scale=draw(st.none() | st.floats(-1e9, 1e9)),
            colorinterp="gray",
        )
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))
    ]
    return make(
        *bands,
        min_zoom=low,
        max_zoom=draw(st.integers(low, 26)),
        compression=draw(st.sampled_from([None, "gzip"])),
        num_blocks=draw(st.none() | st.integers(0, 10**9)),
        tile_statistics=tuple(draw(st.lists(st.sampled_from(["count", "min"]), unique=True))),
        custom=draw(st.dictionaries(names, st.integers(), max_size=2)),
    )


@settings(max_examples=25, deadline=None)
@given(metadata(), st.sampled_from(["0.1.0", "0.5.0"]))
def test_what_is_written_is_read_again(made: Metadata, version: str) -> None:
    text = metadata_json(made, version)
    again = parse_metadata(text, "x")
    assert metadata_json(again, version) == text
    for name in ("bands", "min_zoom", "max_zoom", "bounds", "custom"):
        assert getattr(again, name) == getattr(made, name)
    assert again.problems == ()


# -- files of the existing writers ----------------------------------------------------------------

FIXTURES = SHARED / "fixtures" / "raquet"


@needs_shared
def test_documents_of_all_writers() -> None:
    expected = json.loads((FIXTURES / "expected.json").read_text())["files"]
    assert len(expected) > 60
    for name, facts in expected.items():
        table = pq.read_table(FIXTURES / name, columns=["block", "metadata"])
        text = next(
            m for b, m in zip(*(c.to_pylist() for c in table.columns), strict=True) if b == 0
        )
        found = parse_metadata(text, name)
        assert found.version == facts["metadata_version"]
        assert (found.min_zoom, found.max_zoom) == (facts["min_zoom"], facts["max_zoom"])
        assert [found.block_width, found.block_height] == facts["block"]
        assert (found.width, found.height) == (facts["width"], facts["height"])
        assert list(found.bounds) == facts["bounds"]
        assert found.num_blocks == facts["num_blocks_declared"]
        assert found.layout == (facts["band_layout"] or "sequential")
        assert [one.dtype for one in found.bands] == [one["type"] for one in facts["bands"]]
        assert found.extra == {}
        version = "0.5.0" if found.nested else "0.1.0"
        again = parse_metadata(metadata_json(found, version), name)
        assert repr(again.bands) == repr(found.bands)
