"""What `comal.site.write` puts into the folder, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from comal import site
from comal.cli.tapalcatl import site as command
from comal.errors import (
    ConflictError,
    InvalidInputError,
    ObjectNotFoundError,
    UnsafeContentError,
)
from comal.site import SiteSource
from tests.browser.making import png, tiles_to, tileset

VENDOR = Path(site.__file__).parent / "vendor"


@pytest.fixture
def tiles(tmp_path: Path) -> Path:
    made = {tile: png((1, 2, 3)) for tile in tiles_to(2)}
    folder = tileset(tmp_path / "My Tiles", made, extension="png", materializedZooms=[0, 2])
    (folder / "notes.txt").write_text("not of the tileset")
    return folder


def test_a_copy_holds_the_page_and_the_tileset_alone(tiles: Path, tmp_path: Path) -> None:
    out = site.write(tmp_path / "out", [tiles], title="Hills & <dales>")
    config = json.loads((out / "site.json").read_text())
    entry = {"name": "my-tiles", "kind": "tapalcatl", "href": "data/my-tiles/meta.json"}
    assert config == {"title": "Hills & <dales>", "sources": [entry]}
    for name, asset in site.site_files().items():
        if name != "index.html":
            assert (out / name).read_bytes() == asset.path.read_bytes()
    assert (out / "data/my-tiles/2/3/3.zip").read_bytes() == (tiles / "2/3/3.zip").read_bytes()
    assert not (out / "data/my-tiles/notes.txt").exists()
    assert {"index.html", "sw.js", "vendor/maplibre-gl/maplibre-gl.js"} <= set(site.site_files())


def test_a_link_names_the_place(tiles: Path, tmp_path: Path) -> None:
    out = site.write(tmp_path / "out", [tiles], link=True)
    config = json.loads((out / "site.json").read_text())
    assert config["sources"][0]["href"] == "../My%20Tiles/meta.json"
    assert not (out / "data").exists()


def test_names_are_unique(tiles: Path, tmp_path: Path) -> None:
    out = site.write(tmp_path / "out", [tiles, tiles, tiles / "meta.json"], link=True)
    names = [entry["name"] for entry in json.loads((out / "site.json").read_text())["sources"]]
    assert names == ["my-tiles", "my-tiles-2", "my-tiles-3"]
    with pytest.raises(InvalidInputError, match="two sources"):
        site.write(tmp_path / "two", [tiles, SiteSource(href=tiles, name="my-tiles")])
    with pytest.raises(InvalidInputError, match="the page uses"):
        site.write(tmp_path / "two", [SiteSource(href=tiles, name="sources")])
    site.write(tmp_path / "two", [tiles.rename(tmp_path / "Sources")])
    assert (tmp_path / "two/data/sources-2/meta.json").is_file()


@pytest.mark.parametrize(
    "href",
    [
        "s3://bucket/tiles/meta.json",
        "https://user:s3cret@example.com/meta.json",
        "https://example.com;script-src *;/meta.json",
        "https://example.com/tiles",
    ],
)
def test_what_a_browser_cannot_read_is_refused(href: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        site.write(tmp_path / "out", [href])
    assert "s3cret" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("../{z}/{x}/{y}.zip", UnsafeContentError),
        ("s3://bucket/{z}/{x}/{y}.zip", InvalidInputError),
        ("/{z}/{x}/{y}.zip", InvalidInputError),
        ("{z}/{x}.zip", InvalidInputError),
    ],
)
def test_sources_elsewhere_are_refused(
    tiles: Path, tmp_path: Path, source: str, kind: type[Exception]
) -> None:
    document = json.loads((tiles / "meta.json").read_text())
    (tiles / "meta.json").write_text(json.dumps({**document, "source": source}))
    with pytest.raises(kind):
        site.write(tmp_path / "out", [tiles])


def test_what_is_there_stays(tiles: Path, tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        site.write(tmp_path / "out", [tmp_path / "nothing"])
    site.write(tmp_path / "out", [tiles])
    with pytest.raises(ConflictError):
        site.write(tmp_path / "out", [])
    site.write(tmp_path / "out", [], overwrite=True)
    assert not (tmp_path / "out/data").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_command(tiles: Path, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "out"), str(tiles), "--title", "Here", "--json"]
    done = CliRunner().invoke(command, arguments)
    assert json.loads(done.output) == {"path": str(tmp_path / "out"), "sources": 1}
    assert json.loads((tmp_path / "out/site.json").read_text())["title"] == "Here"


def test_libraries_of_others_are_as_they_were_fetched() -> None:
    listed = json.loads((VENDOR / "vendored.json").read_text())
    digests = {name: digest for package in listed for name, digest in package["sha256"].items()}
    files = {p.relative_to(VENDOR).as_posix() for p in VENDOR.rglob("*") if p.is_file()}
    assert files == {*digests, "vendored.json"}
    for name, digest in digests.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
        assert (VENDOR / name).with_name("LICENSE.txt").is_file()


def test_viewers_get_the_parts_but_not_the_static_page() -> None:
    files = site.viewer_files()
    assert "assets/tokens.css" in files
    assert "vendor/maplibre-gl/maplibre-gl-worker.js" in files
    assert not {"index.html", "sw.js", "assets/index.html", "assets/sw.js"} & set(files)
    for name, (content_type, path) in files.items():
        assert path.is_file()
        assert content_type.startswith("text/javascript") == name.endswith(".js")
