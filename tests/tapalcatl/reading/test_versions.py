"""Documents and comments of versions that are known, newer, or not known: read and checked."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from comal import tapalcatl
from comal.errors import UnsupportedVersionError
from comal.tapalcatl import TapalcatlWarning
from tests.tapalcatl.odd import METADATA, archive, tiles
from tests.tapalcatl.reading.test_remote import META

CODES = {"document-version", "comment-version", "newer-version"}


def places(folder: Path, version: str) -> tuple[Path, Path]:
    """A document and an archive, both of a version as JSON says it."""
    document = (META % "{z}/{x}/{y}.zip").replace('"2.0.0"', version)
    (folder / "meta.json").write_text(document)
    comment = METADATA.replace(b'"2.0.0"', version.encode())
    (folder / "a.zip").write_bytes(archive(tiles(), comment))
    return folder, folder / "a.zip"


@pytest.mark.parametrize(
    "version", ['"2.0.0"', '"2.0"', '"2.0.9"', '"2"', "2", "2.0", "null", '"2.0.0-rc.1"']
)
def test_known_versions(tmp_path: Path, version: str) -> None:
    for place in places(tmp_path, version):
        assert tapalcatl.open(place).metadata.version.startswith("2")
        assert not CODES & tapalcatl.check(place).counts.keys()


@pytest.mark.parametrize("version", ['"3.0.0"', '"1.0.0"', '"20.0.0"', '"two"', '""', "3"])
def test_versions_that_are_not_known(tmp_path: Path, version: str) -> None:
    codes = ("document-version", "comment-version")
    for place, code in zip(places(tmp_path, version), codes, strict=True):
        with pytest.raises(UnsupportedVersionError, match=r"expected 2\.x") as caught:
            tapalcatl.open(place)
        assert version.strip('"') in str(caught.value)
        report = tapalcatl.check(place)
        assert report.counts == {code: 1}
        assert version.strip('"') in report.problems[0].message
    with pytest.raises(UnsupportedVersionError):
        tapalcatl.archive(tmp_path / "a.zip")


@pytest.mark.parametrize("number", [0, 1])
def test_newer_versions_are_read_with_a_warning(tmp_path: Path, number: int) -> None:
    place = places(tmp_path, '"2.1.0"')[number]
    with pytest.warns(TapalcatlWarning, match=r"'2\.1\.0' may say more") as caught:
        tileset = tapalcatl.open(place)
    assert tileset.metadata.version == "2.1.0"
    assert [Path(one.filename).name for one in caught] == [Path(__file__).name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CODES & tapalcatl.check(place).counts.keys() == {"newer-version"}


def test_what_a_caller_says_counts(tmp_path: Path) -> None:
    _, place = places(tmp_path, '"3.0.0"')
    known = tapalcatl.TileSetMetadata(formats={"png": ()})
    tile = tapalcatl.archive(place, metadata=known).tile(1, 1, 0)
    assert tile is not None
    assert tile.data == tiles()[2].data
