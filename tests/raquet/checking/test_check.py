"""What `check` finds in files that are damaged in one place, and what reading and `repair` do."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from comal import raquet
from comal.errors import ComalError, InvalidInputError, NotThisFormatError, ObjectNotFoundError
from comal.plan import ByteRange, run
from comal.raquet.checking.run import CODES
from comal.raquet.spec import STATISTICS
from comal.storage import open_source
from comal.table import footer_plan
from tests.attacks.reading import Key, Readings, read_raquet
from tests.raquet.build import cell, framed
from tests.raquet.checking.damage import (
    SIZE,
    TILES,
    File,
    interleaved,
    nested,
    packed,
    pixels,
    rewritten,
    row_of,
    sound,
)
from tests.raquet.writing.sources import noise, on_grid
from tests.support import SHARED, needs_shared

FIXTURES = SHARED / "fixtures" / "raquet"
Damage = Callable[[File], object]
TRUTH: dict[Key, dict[str, Any]] = {
    tile: {"band_1": pixels(number)} for number, tile in enumerate(TILES)
}
BROKEN = (3, 5, 2)
"""The tile that is damaged."""


def both(*damages: Damage) -> Damage:
    return lambda file: [damage(file) for damage in damages]


def whole(**attributes: Any) -> Damage:
    """Another text for the metadata, order of rows or change of the bytes."""
    return lambda file: vars(file).update(attributes)


def after(change: Callable[[bytes], bytes]) -> Damage:
    return whole(after=change)


def written(**settings: Any) -> Damage:
    """Another way of pyarrow to write."""
    return lambda file: file.settings.update(settings)


def schema(change: Callable[[Any], Any]) -> Damage:
    return lambda file: setattr(file, "schema", change(file.schema))


def without(name: str) -> Damage:
    return schema(lambda old: old.remove(old.get_field_index(name)))


def column(name: str, kind: Any, value: Callable[[Any], Any] = lambda old: old) -> Damage:
    """Another type for a column."""

    def damage(file: File) -> None:
        file.schema = file.schema.set(file.schema.get_field_index(name), pa.field(name, kind))
        for row in [*file.rows, file.head]:
            if name in row:
                row[name] = value(row[name])
        if name == "block":
            file.head["block"] = value(0)

    return damage


def keys(**change: Any) -> Damage:
    """Other values in the document; ``...`` takes one out."""

    def damage(file: File) -> None:
        document = file.document
        for key, value in change.items():
            place = document["tiling"] if key in document.get("tiling", {}) else document
            place[key] = value
            if value is ...:
                del place[key]

    return damage


def band(**change: Any) -> Damage:
    return lambda file: file.document["bands"][0].update(change)


def stats(**change: Any) -> Damage:
    return band(stats={"count": 1024, "min": 1, "max": 99, "mean": 50.0, "stddev": 28.0, **change})


def lossy(kind: str, dtype: str = "uint8", layout: str = "interleaved") -> Damage:
    return both(keys(compression=kind, band_layout=layout), band(type=dtype))


def head(**change: Any) -> Damage:
    """Other values in the metadata row."""
    return lambda file: file.head.update(change)


def blob(value: bytes | Callable[[bytes], bytes]) -> Damage:
    def damage(file: File) -> None:
        row = row_of(file, BROKEN)
        row["band_1"] = value(row["band_1"]) if callable(value) else value

    return damage


def block_of(value: int) -> Damage:
    def damage(file: File) -> None:
        row_of(file, BROKEN)["block"] = value
        file.rows.sort(key=lambda row: row["block"])
        file.document["num_blocks"] = 4

    return damage


def added(tile: tuple[int, int, int], count: int = 4) -> Damage:
    def damage(file: File) -> None:
        file.rows.append({"block": cell(tile), "band_1": packed(pixels(99))})
        file.rows.sort(key=lambda row: row["block"])
        file.document["num_blocks"] = count

    return damage


def removed(tile: tuple[int, int, int]) -> Damage:
    return lambda file: file.rows.remove(row_of(file, tile))


def footer_of(length: int) -> Damage:
    """The length of the footer is another one."""
    return after(lambda data: data[:-8] + length.to_bytes(4, "little") + b"PAR1")


def flipped(data: bytes) -> bytes:
    at = data.index(packed(pixels(2))) + 30
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def no_head(file: File) -> None:
    file.head.update(block=cell((3, 4, 2)), metadata=None)
    file.rows.remove(row_of(file, (3, 4, 2)))


def raw(file: File) -> None:
    file.document["compression"] = None
    for number, row in enumerate(file.rows):
        row["band_1"] = pixels(number).tobytes()


def some_null(file: File) -> None:
    file.band("band_2")
    row_of(file, BROKEN)["band_2"] = None


def centre_zoom(file: File) -> None:
    west, south, east, north = file.document["bounds"]
    file.document["center"] = [(west + east) / 2, (south + north) / 2, 9]


def another_name(file: File) -> None:
    file.document["bands"][0]["name"] = "height above sea"
    file.schema = file.schema.set(2, pa.field("height above sea", pa.binary()))
    for row in file.rows:
        row["height above sea"] = row.pop("band_1")


GZIP = packed(pixels(1))
ID = cell(BROKEN)

CASES: dict[str, tuple[str | None, Damage]] = {
    # The Parquet file
    "the footer is cut": ("raquet-parquet", after(lambda data: data[:-40])),
    "the footer is longer than the file": ("raquet-parquet", footer_of(1 << 30)),
    "the footer has 4 GiB": ("raquet-parquet", footer_of(0xFFFFFFFF)),
    "the footer has no bytes": ("raquet-parquet", footer_of(0)),
    "a page is damaged": ("raquet-page", after(flipped)),
    "no block": ("raquet-column-missing", without("block")),
    "no metadata column": ("raquet-column-missing", without("metadata")),
    "no band column": ("raquet-column-missing", without("band_1")),
    "block as text": ("raquet-column-type", column("block", pa.string(), str)),
    "block as double": ("raquet-column-type", column("block", pa.float64(), float)),
    "metadata as number": (
        "raquet-column-type",
        both(column("metadata", pa.int64()), head(metadata=1)),
    ),
    "band as list": ("raquet-band-column", column("band_1", pa.list_(pa.uint8()), list)),
    "a column that no band names": (
        "raquet-column-extra",
        schema(lambda old: old.append(pa.field("mask", pa.binary()))),
    ),
    "untrue sorting": (
        "raquet-sorting",
        both(whole(head_first=False), written(sorting_columns=[pq.SortingColumn(0)])),
    ),
    "dictionary": ("raquet-pages", written(use_dictionary=["band_1"])),
    "codec": ("raquet-pages", written(compression="snappy")),
    "no page index": ("raquet-pages", written(write_page_index=False)),
    "int64 block": (None, column("block", pa.int64())),
    "required block": (
        None,
        schema(lambda old: old.set(0, pa.field("block", pa.uint64(), nullable=False))),
    ),
    "large types": (
        None,
        both(column("metadata", pa.large_string()), column("band_1", pa.large_binary())),
    ),
    "nothing": (None, both()),
    # The metadata row
    "no metadata row": ("raquet-metadata-missing", no_head),
    "metadata is null": ("raquet-metadata-missing", head(metadata=None)),
    "two metadata rows": (
        "raquet-metadata-twice",
        lambda file: file.more_heads.append({"block": 0, "metadata": "{}"}),
    ),
    "metadata in a tile": (
        "raquet-metadata-in-tile",
        lambda file: file.rows[2].update(metadata="{}"),
    ),
    "other metadata in the footer": (
        "raquet-metadata-key",
        schema(lambda old: old.with_metadata({b"comal:metadata": b"{}"})),
    ),
    "metadata in the footer alone": (
        "raquet-metadata-missing",
        both(no_head, schema(lambda old: old.with_metadata({b"comal:metadata": b"{}"}))),
    ),
    "bands in the metadata row": ("raquet-metadata-pixels", head(band_1=GZIP)),
    "metadata row last": (None, whole(head_first=False)),
    # The document; `tests/raquet/test_spec.py` has more of these
    "no JSON": ("raquet-json", whole(text="{")),
    "nested beyond reason": ("limit-exceeded", whole(text="[" * 100 + "]" * 100)),
    "half a character": ("raquet-json", band(description="\ud800")),
    "bare NaN": ("raquet-json-token", band(nodata=float("nan"))),
    "no version": ("raquet-version-missing", keys(version=...)),
    "newer generation": ("raquet-version", keys(version="1.0.0")),
    "another grid": ("raquet-grid", keys(tile_matrix_set="GoogleCRS84Quad", version="0.6.0")),
    "no bands": ("raquet-bands", keys(bands=[])),
    "band without a name": ("raquet-band-name", band(name=None)),
    "unknown type": ("raquet-band-type", band(type="complex64")),
    "band without a column": ("raquet-band-column", band(name="band_2")),
    "a name that ends a line": ("raquet-band-column", band(name="a\nb")),
    "any name": (None, another_name),
    "nodata is not a number": ("raquet-nodata", band(nodata="none at all")),
    "NaN for a zoom": ("raquet-zooms", whole(text='{"version": "0.1.0", "minresolution": NaN}')),
    "a float for a zoom": ("raquet-zooms", keys(minresolution=2.5)),
    "a boolean for a zoom": ("raquet-zooms", keys(maxresolution=True)),
    "bounds beyond numbers": ("raquet-bounds", keys(bounds=[1e308, 0, 2e308, 1])),
    "bounds of the source": ("raquet-bounds-tiles", keys(bounds=[1, 1, 80, 60])),
    "width against the bounds": ("raquet-size", keys(width=64)),
    "width is negative": ("raquet-size", keys(width=-32)),
    "height is a text": ("raquet-size", keys(height="32")),
    "number of tiles": ("raquet-num-blocks", keys(num_blocks=3)),
    "2**63 tiles": ("raquet-num-blocks", keys(num_blocks=1 << 63)),
    "number of the grid": (
        "raquet-num-blocks-grid",
        both(removed((3, 5, 3)), keys(num_blocks=4)),
    ),
    "another base zoom": ("raquet-derived", keys(block_resolution=2)),
    "number of pixels": ("raquet-derived", keys(num_pixels=7)),
    "zoom of pixels": ("raquet-derived", keys(pixel_resolution=26)),
    "centre elsewhere": ("raquet-derived", keys(center=[0.0, 0.0, 3])),
    "centre of a zoom that is not there": ("raquet-derived", centre_zoom),
    "centre that is none": ("raquet-derived", keys(center=["a", None])),
    "centre beyond the world": ("raquet-derived", keys(center=[10**39, 0, 3])),
    "colour that is none": ("raquet-colorinterp", band(colorinterp="no colour")),
    "colour is a number": ("raquet-text", band(colorinterp=3)),
    "colour table that is none": ("raquet-colortable", band(colortable={"1": [1, 2]})),
    "a number for an object": ("raquet-object", keys(custom=3)),
    "unknown keys": (None, keys(colour="green", custom={"a": [1, 2]})),
    "time without a column": (
        "raquet-time-column",
        keys(time={"cf:units": "days since 2000-01-01"}),
    ),
    # Statistics
    "minimum over maximum": ("raquet-statistics", stats(min=5, max=1)),
    "mean outside": ("raquet-statistics", stats(mean=120.5)),
    "mean below": ("raquet-statistics", stats(mean=0.5)),
    "a minimum alone": ("raquet-statistics-differ", stats(max=None, mean=20.0)),
    "quantiles that descend": ("raquet-statistics", stats(quantiles={"3": [9, 2]})),
    "negative deviation": ("raquet-statistics", stats(stddev=-1.0)),
    "statistics of other pixels": ("raquet-statistics-differ", stats(mean=20.0)),
    "quantiles that are none": ("raquet-quantiles", stats(quantiles={"3": "x"})),
    "counts that are none": ("raquet-top-values", stats(top_values={"1": "x"})),
    "count is negative": ("raquet-number", stats(count=-1)),
    "neither exact nor approximated": ("raquet-flag", stats(approximated_stats="no")),
    "tile statistics without columns": (
        "raquet-statistics-column",
        keys(tile_statistics=True, tile_statistics_columns=["count", "min"]),
    ),
    "tile statistics of another kind": (
        "raquet-tile-statistics",
        keys(tile_statistics=True, tile_statistics_columns=["median"]),
    ),
    # The index
    "mode of the id": ("raquet-cell", block_of(ID ^ (1 << 59))),
    "resolution of the id": ("raquet-cell", block_of((ID & ~(31 << 52)) | (27 << 52))),
    "trailing bits of the id": ("raquet-cell", block_of(ID & ~1)),
    "id of 2**63": ("raquet-cell", block_of(1 << 63)),
    "a tile twice": ("raquet-cell-twice", added(BROKEN)),
    "zoom that is not declared": ("raquet-cell-zoom", added((5, 16, 9))),
    "coarser than declared": ("raquet-cell-zoom", added((1, 1, 0))),
    "outside of the bounds": ("raquet-cell-bounds", added((3, 0, 0), 5)),
    "west of the bounds": ("raquet-cell-bounds", added((3, 3, 2), 5)),
    "east of the bounds": ("raquet-cell-bounds", added((3, 6, 2), 5)),
    "north of the bounds": ("raquet-cell-bounds", added((3, 4, 1), 5)),
    "south of the bounds": ("raquet-cell-bounds", added((3, 4, 4), 5)),
    "a declared zoom is empty": ("raquet-zoom-empty", removed((2, 2, 1))),
    "rows do not ascend": ("raquet-order", lambda file: file.rows.reverse()),
    "an overview is missing": (
        "raquet-overview-missing",
        both(removed((2, 2, 1)), added((2, 0, 0))),
    ),
    # The tiles
    "blob is empty": ("raquet-tile", blob(b"")),
    "blob too short": ("raquet-tile", blob(packed(pixels(1)[:5]))),
    "blob too long": ("raquet-tile", blob(gzip.compress(bytes(SIZE * SIZE + 1)))),
    "blob cut": ("raquet-tile", blob(lambda old: old[:-9])),
    "wrong checksum": ("raquet-tile", blob(lambda old: old[:-8] + b"\0\0\0\0" + old[-4:])),
    "no deflate": ("raquet-tile", blob(b"\x1f\x8b\x08\0" + bytes(6) + b"\xff" * 40)),
    "raw where gzip is declared": ("raquet-tile", blob(pixels(3).tobytes())),
    "gzip where raw is declared": ("raquet-tile", both(raw, blob(GZIP))),
    "a bomb": ("raquet-tile", blob(gzip.compress(bytes(1 << 22)))),
    "a tile of another type": ("raquet-tile", band(type="uint16")),
    "zlib framing": ("raquet-framing", blob(lambda old: framed(gzip.decompress(old), "zlib"))),
    "hybrid framing": ("raquet-framing", blob(lambda old: framed(gzip.decompress(old), "hybrid"))),
    "bytes behind": ("raquet-tile-tail", blob(lambda old: old + b"\0\0")),
    "several members": (None, blob(lambda old: members(gzip.decompress(old)))),
    "no compression": (None, raw),
    "null in one band": (None, some_null),
    "all bands null": (
        "raquet-row-empty",
        both(some_null, lambda file: row_of(file, BROKEN).update(band_1=None)),
    ),
}
"""Damages of a sound file, each with the code that a check has for it; None for what is fine."""

NESTED: dict[str, tuple[str | None, Damage]] = {
    "another CRS": ("raquet-grid", keys(crs="EPSG:4326")),
    "unknown layout": ("raquet-layout", keys(band_layout="planar")),
    "jpeg in separate bands": ("raquet-compression", lossy("jpeg", layout="sequential")),
    "webp of a wide type": ("raquet-compression", lossy("webp", "uint16")),
    "zoom of the tiling": ("raquet-zooms", keys(max_zoom=30)),
    "block size of the tiling": ("raquet-block-size", keys(block_width=True)),
    "percent of valid pixels": (
        "raquet-statistics",
        band(STATISTICS_MINIMUM=1, STATISTICS_MAXIMUM=2, STATISTICS_VALID_PERCENT=140.0),
    ),
    "negative percent of valid pixels": (
        "raquet-statistics",
        band(STATISTICS_MINIMUM=1, STATISTICS_MAXIMUM=2, STATISTICS_VALID_PERCENT=-1.0),
    ),
}
"""The same of a file with the document of later versions."""
ELSEWHERE = {
    *("raquet-page-index", "raquet-padding", "raquet-byte-interleaved"),  # below
    *("raquet-time-differs", "raquet-version-early"),  # tests/raquet/writing/test_times.py
    "unsafe-content",  # no name in RaQuet leads anywhere
}
"""Codes of which no damage is in the tables."""
MENDED = {
    f"raquet-{code}"
    for code in (
        "metadata-twice", "metadata-in-tile", "metadata-key", "object", "bounds", "statistics",
        "size", "statistics-column", "time-column", "num-blocks", "cell-zoom", "cell-bounds",
        "zoom-empty",
    )
}  # fmt: skip
"""Errors that `repair` undoes; of all others nothing tells what was meant."""
LEFT = {"raquet-overview-missing", "raquet-zoom-empty", "raquet-cell-zoom", "raquet-colorinterp"}
"""What a copy with the same tiles may still have."""


def members(data: bytes) -> bytes:
    return gzip.compress(data[:100]) + gzip.compress(data[100:])


def report(file: File, tmp_path: Path, **options: Any) -> Any:
    return raquet.check(file.write(tmp_path / "file.parquet"), **options)


def read_rightly(path: Path, name: str) -> Readings:
    """By every door there are the right pixels, or a short error of ours."""
    found = read_raquet(path, TRUTH)
    # All bands null is legal, and something else than before.
    assert found.wrong == [] or name == "all bands null"
    for error in found.errors:
        assert len(str(error).splitlines()[0].replace(str(path), "")) <= 120
        assert str(error).isprintable() or "\n" in str(error)
    return found


def mended(path: Path) -> bool:
    """Whether there is a copy, which has the right pixels and nothing wrong."""
    target = path.with_name("mended.parquet")
    try:
        raquet.repair(path, target)
    except ComalError:
        assert [one.name for one in path.parent.iterdir()] == [path.name]
        return False
    assert raquet.check(target, statistics=True).counts.keys() <= LEFT
    found = read_raquet(target, TRUTH)
    assert (found.wrong, found.errors) == ([], [])
    return True


@pytest.mark.parametrize("name", [*CASES, *NESTED])
def test_every_rule(name: str, tmp_path: Path) -> None:
    code, damage = (CASES | NESTED)[name]
    severity = None if code is None else CODES[code][0]
    file = nested() if name in NESTED else sound()
    damage(file)
    path = file.write(tmp_path / "file.parquet")
    found = raquet.check(path, statistics=True)
    assert found.ok == (severity != "error"), found.problems
    assert (code in found.counts) if code else found.total == 0, found.problems
    assert all(problem.place and problem.message for problem in found.problems)
    assert found.counts.keys() <= CODES.keys()
    errors = read_rightly(path, name).errors
    assert errors or code != "raquet-tile"
    assert code or not errors
    assert mended(path) == (severity != "error" or code in MENDED)


def test_every_rule_has_a_case() -> None:
    made = {code for code, _ in (CASES | NESTED).values() if code}
    assert made | ELSEWHERE == set(CODES)
    assert not made & ELSEWHERE


@pytest.mark.parametrize("zoom", [24, 26])
@pytest.mark.parametrize("column", [0, 40_000_001])
def test_bounds_at_the_finest_zooms(tmp_path: Path, zoom: int, column: int) -> None:
    """A tile is hardly wider there than six decimals of a degree."""
    pixels = np.arange(64 * 96, dtype="int16").reshape(64, 96)
    source = on_grid(
        tmp_path / "a.tif",
        pixels,
        pixel_zoom=zoom + 5,
        column=(column >> (26 - zoom)) * 32,
        row=(column >> (26 - zoom)) * 32,
    )
    raquet.write(source, tmp_path / "a.parquet", block_size=32, zoom=zoom, min_zoom=zoom - 2)
    found = raquet.check(tmp_path / "a.parquet", statistics=True)
    assert found.counts == {}, found.problems


def test_places_and_levels(tmp_path: Path) -> None:
    file = sound()
    blob(b"no")(file)
    (problem,) = report(file, tmp_path, level="full").problems
    assert problem.code == "raquet-tile"
    assert f"block {cell((3, 5, 2))}" in problem.place
    assert "row group 0, row " in problem.place
    assert "band_1" in problem.place
    assert "first bytes 6e 6f" in problem.message
    assert report(file, tmp_path, level="structure").ok
    first = sound()
    first.rows[19 % len(first.rows)]["band_1"] = b"no"
    assert report(first, tmp_path, level="sample").total in {0, 1}
    with pytest.raises(InvalidInputError, match="level"):
        report(file, tmp_path, level="deep")
    with pytest.raises(InvalidInputError, match="every tile"):
        report(file, tmp_path, level="sample", statistics=True)


def test_rows_are_looked_at_without_a_document(tmp_path: Path) -> None:
    file = sound()
    whole(text="{")(file)
    file.rows.reverse()
    assert report(file, tmp_path).counts.keys() == {"raquet-json", "raquet-order"}


def test_several_files_and_json(tmp_path: Path) -> None:
    file = sound()
    good = file.write(tmp_path / "good.parquet")
    keys(num_blocks=9)(file)
    bad = file.write(tmp_path / "bad.parquet")
    seen: list[Any] = []
    found = raquet.check([good, bad], progress=lambda *one: seen.append(one))
    assert found.counts == {"raquet-num-blocks": 1}
    assert found.problems[0].place.startswith("bad.parquet")
    assert found.to_dict()["ok"] is False
    assert seen


def test_what_is_no_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(NotThisFormatError):
        raquet.check(path)
    file = sound()
    file.after = lambda data: b"PARE" + data[4:-4] + b"PARE"  # encrypted
    with pytest.raises(NotThisFormatError):
        raquet.check(file.write(path))
    with pytest.raises(ObjectNotFoundError):
        raquet.check(tmp_path / "absent.parquet")
    pq.write_table(pa.table({"block": pa.array([], pa.uint64())}), path)
    assert "raquet-column-missing" in raquet.check(path).counts
    empty = sound().schema.empty_table()
    pq.write_table(empty, path)
    assert "raquet-metadata-missing" in raquet.check(path).counts


def test_interleaved_bytes_are_suspected(tmp_path: Path) -> None:
    found = report(interleaved(), tmp_path)
    assert found.ok
    assert found.counts == {"raquet-byte-interleaved": 1}
    assert report(interleaved("uint8"), tmp_path).total == 0
    assert report(interleaved(version=None), tmp_path).total == 0
    file = interleaved()
    for one in file.document["bands"]:
        one |= {"STATISTICS_MINIMUM": 1, "STATISTICS_MAXIMUM": 2}
    (problem,) = report(file, tmp_path).problems
    assert "read by values" in problem.message


def test_tile_statistics_are_compared_and_computed_anew(tmp_path: Path) -> None:
    file = nested()
    file.document["bands"][0]["nodata"] = 0
    file.document |= {"tile_statistics": True, "tile_statistics_columns": list(STATISTICS)}
    names = [f"band_1_{kind}" for kind in STATISTICS]
    for name in names:
        kind = pa.int64() if name.endswith("count") else pa.float64()
        file.schema = file.schema.append(pa.field(name, kind))
        for number, row in enumerate(file.rows):
            row[name] = 3 if number else None
    found = report(file, tmp_path, statistics=True)
    assert found.ok
    assert found.counts == {"raquet-statistics-differ": 5}
    right = raquet.repair(tmp_path / "file.parquet", tmp_path / "mended.parquet")
    assert raquet.check(right, statistics=True).total == 0
    table = pq.read_table(right)
    for name in names:  # one number that is wrong is enough
        values = pc.add(table[name], 1)
        wrong = table.set_column(table.schema.get_field_index(name), name, values)
        pq.write_table(wrong, tmp_path / "wrong.parquet")
        found = raquet.check(tmp_path / "wrong.parquet", statistics=True)
        assert found.counts["raquet-statistics-differ"] == len(file.rows), name


@pytest.mark.parametrize("nodata", [0, "none"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "uint64", "float32"])
def test_statistics_of_bands_are_compared(tmp_path: Path, dtype: str, nodata: Any) -> None:
    """Each number, also of pixels that only the bounds of the source tell from padding."""
    pixels = noise((1, 50, 60), dtype)
    if dtype != "uint8":
        pixels = (pixels.astype("float64") % 5_000).astype(dtype)
    path, wrong = tmp_path / "a.parquet", tmp_path / "b.parquet"
    source = on_grid(tmp_path / "a.tif", pixels)
    raquet.write(source, path, block_size=32, min_zoom=10, nodata=nodata)
    assert raquet.check(path, statistics=True).total == 0
    for kind in ("count", "min", "max", "mean", "stddev", "sum", "sum_squares"):
        with rewritten(path, wrong) as document:
            statistics = document["bands"][0]["stats"]
            statistics[kind] += 1 + abs(int(statistics[kind])) // 1000
        found = raquet.check(wrong, statistics=True)
        assert found.counts["raquet-statistics-differ"] == 1, kind


def test_the_page_index_leads_to_the_pages(tmp_path: Path) -> None:
    path = sound().write(tmp_path / "file.parquet")
    data = path.read_bytes()
    with open_source(path) as source:
        footer = run(footer_plan(ByteRange(0, len(data))), source.fetch)
    leaf = footer.layout.leaves["band_1"][0]
    start, _ = footer.layout.offset_index[0, leaf].tolist()
    assert raquet.check(path, level="structure").ok
    # The locations of six pages; behind them are sizes that no reader asks for.
    for at in range(start + 2, start + 50):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        assert not raquet.check(path, level="structure").ok, at - start


@needs_shared
def test_files_of_all_writers_have_no_error() -> None:
    files = sorted(FIXTURES.glob("*/**/*.parquet"))
    assert len(files) > 60
    for file in files:
        found = raquet.check(file)
        assert found.ok, (file, found.problems)
        version = file.parent.name
        if version in {"v0.3.0", "v0.6.0", "v0.8.1", "v0.9.0"}:
            assert "raquet-sorting" in found.counts
        if version in {"v0.1.0", "v0.2.5"}:
            assert "raquet-order" in found.counts
    framing = raquet.check(FIXTURES / "duckdb-raquet" / "duckdb_raquet_test.parquet")
    assert framing.counts["raquet-framing"] == 2
    scrambled = raquet.check(FIXTURES / "raquet-io" / "v0.9.0" / "s_ms_il_gzip.parquet")
    assert "read by values" in next(
        one.message for one in scrambled.problems if one.code == "raquet-byte-interleaved"
    )


@needs_shared
def test_statistics_of_other_writers() -> None:
    good = raquet.check(
        FIXTURES / "constructed" / "v010_one_tile_per_page.parquet", statistics=True
    )
    assert good.total == 0
    # Of overview tiles and with padding, as that version computes them.
    wrong = raquet.check(FIXTURES / "raquet-io" / "v0.9.0" / "s_int16.parquet", statistics=True)
    assert wrong.ok
    nodata = raquet.check(
        FIXTURES / "raquet-io" / "v0.9.0" / "s_float32_nodata.parquet", statistics=True
    )
    assert "raquet-statistics-differ" in nodata.counts


@pytest.mark.parametrize("nodata", [None, 0])
@pytest.mark.parametrize("kind", ["bounds", "statistics"])
def test_zeros_that_were_invented_are_found(tmp_path: Path, kind: str, nodata: int | None) -> None:
    """As writers make them that pad tiles with 0 and say nothing of it."""
    pixels = np.random.default_rng(1).integers(1, 200, (40, 40), np.uint8)
    source = on_grid(tmp_path / "a.tif", pixels, column=32 * 500 + 5, row=32 * 300 + 3)
    path = tmp_path / "a.parquet"
    raquet.write(source, path, block_size=32, zoom=10, min_zoom=10, nodata="none")
    assert raquet.check(path, statistics=True).total == 0
    with rewritten(path, path) as document:
        bounds = document.pop("custom")["comal"]["source"]["bounds"]
        document["bands"][0]["nodata"] = None if nodata is None else str(nodata)
        if kind == "bounds":
            document["bounds"] = bounds
            del document["bands"][0]["stats"]
    found = raquet.check(path, statistics=True)
    assert found.counts.get("raquet-padding", 0) == (nodata is None)
    if nodata is None:
        (problem,) = [one for one in found.problems if one.code == "raquet-padding"]
        right = {"bounds": f"{64 * 64 - 1600:,} pixels outside", "statistics": "begin at 1, but"}
        assert right[kind] in problem.message
