"""Variants: tiles below a prefix, beside others of the same archives (proposal, "by prefix")."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from comal import tapalcatl
from comal.errors import InvalidInputError
from tests.support import command
from tests.tapalcatl.making import Key, data_of, listed, picture, pyramid, said, unzipped

PLAIN = {key: picture(number) for number, key in enumerate(pyramid(2))}
DARK = {key: picture(100 + number) for number, key in enumerate(pyramid(3, first=1))}


def tiles_of(target: Path, variant: str | None = None) -> dict[Key, bytes]:
    with tapalcatl.open(target, variant=variant) as tileset:
        found = {key: tileset.tile(*key) for key in pyramid(3)}
    return {key: tile.data for key, tile in found.items() if tile is not None}


@pytest.mark.parametrize("name", ["tree", "one.zip"])
@pytest.mark.parametrize("variant", ["dark", "styles/dark-2.x"])
def test_variants_beside_each_other(tmp_path: Path, name: str, variant: str) -> None:
    target = tmp_path / name
    options: dict[str, Any] = {"materialized_zooms": [0], "metatile": 1}
    tapalcatl.build(listed(PLAIN), target, **options)
    tapalcatl.put(target, listed(DARK), variant=f"/{variant}/")
    tapalcatl.put(target, [(0, 0, 0, picture(250))], variant="light")
    assert tiles_of(target) == PLAIN
    assert tiles_of(target, variant) == DARK
    assert tiles_of(target, "light") == {(0, 0, 0): picture(250)}
    with tapalcatl.open(target) as tileset:
        assert tileset.variants == (variant, "light")
        assert tileset.max_zoom == 3
    # Check knows them, with `variant=` and without; undeclared ones are no tiles.
    for one in (None, variant, "light"):
        assert set(tapalcatl.check(target, variant=one).counts) <= {"dead-space"}
    assert tapalcatl.delete(target, [(0, 0, 0), (3, 1, 1)], variant=variant).deleted == 1
    tapalcatl.compact(target)
    assert tiles_of(target) == PLAIN
    assert tiles_of(target, variant) == {key: DARK[key] for key in DARK if key != (3, 1, 1)}
    tapalcatl.edit_metadata(target, {"variants": None})
    assert tapalcatl.check(target).counts["entry-name"] > 80


def test_a_tileset_of_one_variant(tmp_path: Path) -> None:
    tapalcatl.build(listed(DARK), tmp_path / "out", variant="dark", metadata={"center": [0, 0, 0]})
    meta = said(tmp_path / "out")
    assert (meta["variants"], meta["center"]) == ({"dark": {}}, [0, 0, 0])
    assert {*unzipped(tmp_path / "out")} == {"dark/{}/{}/{}.png".format(*key) for key in DARK}
    assert tiles_of(tmp_path / "out") == {}
    assert not tapalcatl.check(tmp_path / "out", variant="dark").counts
    for path in (tmp_path / "out").rglob("*.zip"):
        assert said(path)["variants"] == {"dark": {}}
    # What is copied is the variant that is read, and no other one is claimed.
    with tapalcatl.open(tmp_path / "out", variant="dark") as dark:
        tapalcatl.build(dark, tmp_path / "plain")
    assert tiles_of(tmp_path / "plain") == DARK
    assert "variants" not in said(tmp_path / "plain")


@pytest.mark.parametrize("name", ["tree", "one.zip"])
def test_check_decodes_tiles_of_all_variants(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    tapalcatl.build(listed(PLAIN), target, materialized_zooms=[0], metatile=1)
    bad = [(1, 0, 0, picture(3)), (1, 1, 1, b"no picture")]
    tapalcatl.put(target, bad, variant="dark", ext="png")
    for variant in (None, "dark"):
        found = tapalcatl.check(target, variant=variant)
        wrong = [one for one in found.problems if one.code != "dead-space"]
        assert [one.code for one in wrong] == ["tile-image"]
        assert "dark/1/1/1.png" in wrong[0].place


@pytest.mark.parametrize("name", ["tree", "one.zip"])
def test_a_variant_of_an_open_tileset(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    tapalcatl.build(listed(PLAIN), target, materialized_zooms=[0], metatile=1)
    tapalcatl.put(target, listed(DARK), variant="dark")
    with tapalcatl.open(target) as tileset:
        for dark in (tileset.variant("dark"), pickle.loads(pickle.dumps(tileset.variant("dark")))):
            found = {key: tile.data for key in pyramid(3) if (tile := dark.tile(*key))}
            assert found == DARK
        assert tileset.tile(0, 0, 0) is not None
        light = tileset.variant("light")
        assert light.tile(0, 0, 0) is None
        tapalcatl.put(target, [(0, 0, 0, picture(9))], variant="light")
        light.refresh()
        light.archives.clear()
        assert data_of(light, 0, 0, 0) == picture(9)
        assert light.tile(1, 0, 0) is None


@pytest.mark.parametrize("name", ["tree", "one.zip"])
def test_new_zooms_and_bounds_hide_no_tile_of_a_variant(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    tapalcatl.build(listed(PLAIN), target, materialized_zooms=[0], metatile=1)
    tapalcatl.put(target, listed(DARK), variant="dark")
    tapalcatl.edit_metadata(target, {"maxzoom": 1, "bounds": [0, 0, 1, 1]})
    assert said(target)["maxzoom"] == 3
    assert tiles_of(target, "dark") == DARK


def test_variants_are_not_lost_without_a_word(tmp_path: Path) -> None:
    target = tmp_path / "tree"
    tapalcatl.build(listed(PLAIN), target, materialized_zooms=[0, 2], metatile=4)
    tapalcatl.put(target, listed(DARK), variant="dark")
    copies: tuple[Any, ...] = (
        *(tapalcatl.build, tapalcatl.remetatile, tapalcatl.extract, tapalcatl.to_directory),
        lambda source, out: tapalcatl.merge([source], out),
    )
    for number, copy in enumerate(copies):
        with pytest.warns(tapalcatl.TapalcatlWarning, match="variants are left out: dark"):
            copy(target, tmp_path / str(number))
        with tapalcatl.open(target, variant="dark") as dark:
            copy(dark, tmp_path / f"dark {number}")
    told = command("check", target, "--repair", tmp_path / "mended", code=2)
    assert "variants: dark" in told.stderr
    assert not (tmp_path / "mended").exists()
    with tapalcatl.open(target, variant="dark") as dark:
        tapalcatl.build(dark, tmp_path / "one", variant="dark", metatile=2, hash_in_path=True)
    tapalcatl.put(tmp_path / "one", [(1, 0, 0, picture(9))], variant="dark")
    command("check", tmp_path / "one", "--repair", tmp_path / "mended", "--open", "variant=dark")
    before, after = said(tmp_path / "one"), said(tmp_path / "mended")
    layout = ("metatile", "materializedZooms", "source")
    assert [before[key] for key in layout] == [after[key] for key in layout]


@pytest.mark.parametrize("variant", ["", "/", "1", "a/2", "..", "a//b", "a b", "\u00e4", "a\n"])
def test_names_that_no_variant_can_have(tmp_path: Path, variant: str) -> None:
    with pytest.raises(InvalidInputError, match="name of a variant"):
        tapalcatl.build(listed(PLAIN), tmp_path / "out", variant=variant)
    assert not (tmp_path / "out").exists()
