"""Updates: old bytes stay, a crash loses nothing, somebody else is kept out."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from comal import server, tapalcatl
from comal.errors import (
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectNotFoundError,
)
from comal.storage import replacing, targets
from comal.storage.replacing import changing_files
from comal.storage.targetlock import locked
from comal.tapalcatl import Generation1, NewTile
from tests.faults.harness import KILL, Faults
from tests.server.asking import ask
from tests.support import command
from tests.tapalcatl import odd
from tests.tapalcatl.making import (
    PNG,
    content,
    data_of,
    listed,
    names_and_data,
    payload,
    picture,
    pyramid,
    said,
    sparse,
    unzipped,
)

NEW = PNG + b"another one"
SETTINGS: dict[str, Any] = {"metatile": 2, "layer": "all", "layout": "prefix-hash", "prefix": "abc"}
CONFIG = Generation1(**SETTINGS)
"""Of tilesets of Tapalcatl 1."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tapalcatl.build(
        listed(pyramid(3)), tmp_path / "out", metatile=1, materialized_zooms=[0, 2], name="a name"
    )
    return tmp_path / "out"


@pytest.fixture
def archive(tree: Path) -> Path:
    return tree / "2" / "1" / "1.zip"


LARGER: dict[str, Any] = {"metatile": 8, "layout": "hash-prefix", "prefix": "p"}
SHAPES: dict[str, dict[str, Any]] = {
    "tree": {"metatile": 1, "materialized_zooms": [0, 2]},
    "hashed": {"metatile": 2, "materialized_zooms": [0, 3], "hash_in_path": True},
    "one.zip": {},
    "first": {"version": 1, "generation1": Generation1(**LARGER)},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_others_read_what_any_changes_leave(tmp_path: Path, shape: str) -> None:
    """By zipfile and by a reader; old bytes stay until they are freed, and what is told is true."""
    target, numbers = tmp_path / shape, random.Random(shape)
    options = SHAPES[shape]
    own: dict[str, Any] = {"generation1": options.get("generation1")}
    opening = LARGER if shape == "first" else {}
    tiles = {key: picture(n) for n, key in enumerate(pyramid(2)) if numbers.random() < 0.7 or not n}
    tapalcatl.build(listed(tiles), target, **options)
    model = {(key, "png"): data for key, data in tiles.items()}

    def archives() -> dict[Path, bytes]:
        paths = target.rglob("*.zip") if target.is_dir() else [target]
        return {path: path.read_bytes() for path in paths}

    def agree() -> None:
        assert sum(len(content(path)) for path in archives()) == len(model)
        with tapalcatl.open(target, **opening) as tileset:
            for (key, ext), data in model.items():
                assert data_of(tileset, *key, ext=ext) == data
        told = tapalcatl.check(target, level="structure", **opening).counts.keys()
        assert told <= {"dead-space", "archive-missing", "archive-directory"}

    # More than 256 tiles are put square by square.
    for count, ext in ((5, "png"), (300, "png"), (1, "png"), (9, "json")):
        before = archives()
        keys = [*sparse(count, 5, count), *numbers.sample(sorted(tiles), 2)]
        data = [picture(n % 256) if ext == "png" else b"%d" % n for n in range(len(keys))]
        fresh = {(key, ext): one for key, one in zip(keys, data, strict=True)}
        new = [NewTile(*key, one, ext) for (key, _), one in fresh.items()]
        changed = tapalcatl.put(target, new, durable=False, **own)
        added = len(fresh.keys() - model.keys())
        assert (changed.added, changed.replaced) == (added, len(fresh) - added)
        model.update(fresh)
        agree()
        after = archives()
        assert changed.created == len(after) - len(before)
        assert changed.archives == sum(before.get(path) != one for path, one in after.items())
        keys = [*numbers.sample(sorted({key for key, _ in model}), 7), (9, 1, 1)]
        deleted = tapalcatl.delete(target, keys * 2, ext="png", durable=False, **own)
        gone = {(key, "png") for key in keys} & model.keys()
        assert (deleted.deleted, deleted.absent) == (len(gone), len(keys) - len(gone))
        model = {name: one for name, one in model.items() if name not in gone}
        agree()
        assert all(one.startswith(after.get(path, b"")) for path, one in archives().items())
        if count != 5:
            was, dead = sum(map(len, archives().values())), tapalcatl.space(target, **own).dead
            freed = tapalcatl.compact(target, **own)
            # Archives that are empty go as a whole.
            assert was - sum(map(len, archives().values())) == freed >= dead > 0
            assert tapalcatl.space(target, **own).dead == 0
            agree()
    tapalcatl.delete(target, {key for key, _ in model}, durable=False, **own)
    model = {}
    tapalcatl.compact(target, **own)
    assert [content(path) for path in archives()] == [{}]
    agree()


def test_an_archive_knows_formats_and_scales_of_its_own_tiles(tree: Path, archive: Path) -> None:
    archive.unlink()
    new = [NewTile(3, 2, 2, picture(1), "png", 2), NewTile(3, 7, 7, b"{}", "json")]
    assert tapalcatl.put(tree, new).added == 2
    for name, exts in (("2/1/1", {"png"}), ("2/3/3", {"png", "json"})):
        assert said(tree / f"{name}.zip")["formats"].keys() == exts
    assert {one.code for one in tapalcatl.check(tree).problems} <= {"tile-image", "dead-space"}


@pytest.mark.parametrize("hashed", ["{}/{}/{}", "{}/{}/{}.zip", "/all/{}/{}/{}.zip"])
def test_a_missing_archive_is_made_where_the_hash_of_the_others_leads(
    tmp_path: Path, hashed: str
) -> None:
    """Format note 2.4: three definitions of ``{h}``; the one that answers is kept."""

    def key(z: int, x: int, y: int) -> str:
        digest = hashlib.md5(hashed.format(z, x, y).encode(), usedforsecurity=False).hexdigest()
        return f"{digest[:5]}/{z}/{x}/{y}.zip"

    tiles = {place: payload(*place) for place in ((0, 0, 0), (2, 0, 0), (3, 7, 7))}
    plain = [(*place, tiles[place]) for place in ((0, 0, 0), (2, 0, 0))]
    tapalcatl.build(plain, tmp_path / "plain", metatile=1, materialized_zooms=[0, 2])
    tree = tmp_path / "hashed"
    for place in ((0, 0, 0), (2, 0, 0)):
        (tree / key(*place)).parent.mkdir(parents=True)
        source = tmp_path / "plain" / "/".join(map(str, place))
        (tree / key(*place)).write_bytes(source.with_name(f"{source.name}.zip").read_bytes())
    text = json.dumps({**said(tmp_path / "plain"), "source": "{h}/{z}/{x}/{y}.zip", "maxzoom": 3})
    (tree / "meta.json").write_text(text)
    assert tapalcatl.put(tree, [(3, 7, 7, tiles[3, 7, 7])]).created == 1
    assert (tree / key(2, 3, 3)).is_file()
    with tapalcatl.open(tree) as tileset:
        for place, data in tiles.items():
            assert data_of(tileset, *place) == data


def test_the_first_generation_needs_its_settings(tmp_path: Path) -> None:
    tapalcatl.build(
        listed(pyramid(3)),
        tmp_path / "out",
        version=1,
        generation1=tapalcatl.Generation1(metatile=2, layer="all", layout="plain"),
    )
    path = next(path for path in (tmp_path / "out").rglob("*.zip") if path.parts[-3] == "2")
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match="nothing tells how") as refused:
        tapalcatl.put(path, [(2, 0, 0, NEW)])
    assert "generation1=" in str(refused.value.hint)
    with pytest.raises(InvalidInputError, match="nothing tells how"):
        tapalcatl.delete(path, [(2, 0, 0)])
    with pytest.raises(ObjectNotFoundError, match="how it is laid out"):
        tapalcatl.put(tmp_path / "out", [(2, 0, 0, NEW)])
    assert path.read_bytes() == before


def test_tiles_above_the_first_archives(tmp_path: Path) -> None:
    tiles = {key: data for key, data in pyramid(3).items() if key[0] >= 2}
    tapalcatl.build(listed(tiles), tmp_path / "out", metatile=1, materialized_zooms=[2])
    with pytest.raises(InvalidInputError, match="above the first") as refused:
        tapalcatl.put(tmp_path / "out", [(1, 0, 0, NEW)])
    # Nobody can begin the zooms of a tileset elsewhere by putting a tile into it.
    assert "remetatile" in str(refused.value.hint)
    assert tapalcatl.delete(tmp_path / "out", [(1, 0, 0), (2, 0, 0)]).to_dict() == {
        "archives": 1, "created": 0, "added": 0, "replaced": 0, "deleted": 1, "absent": 1,
    }  # fmt: skip


@pytest.mark.parametrize("tile", [(2, 4, 0), (2, 0, -1), (2, 21, 0), (31, 0, 0), (-1, 0, 0)])
def test_what_cannot_be_a_tile_deletes_none(tree: Path, tile: tuple[int, int, int]) -> None:
    before = unzipped(tree)
    for target in (tree, tree / "2" / "1" / "1.zip", tree / "0" / "0" / "0.zip"):
        with pytest.raises(InvalidInputError, match="no such tile"):
            tapalcatl.delete(target, [tile])
    assert unzipped(tree) == before


def test_one_writer_at_a_time(tree: Path, archive: Path) -> None:
    with locked(archive), pytest.raises(ConflictError):
        tapalcatl.put(archive, [(3, 2, 2, NEW)])
    with pytest.raises(InvalidInputError, match="not a tileset"):
        tapalcatl.recover(archive)
    tapalcatl.put(tree, [(3, 2, 2, NEW)])
    assert not [path.name for path in tree.rglob(".*")]


def test_space_and_compaction(tree: Path, archive: Path) -> None:
    clean = tapalcatl.space(tree)
    assert clean.dead == 0
    assert clean.size == sum(path.stat().st_size for path in tree.rglob("*.zip"))
    assert tapalcatl.compact(tree) == 0
    original = archive.read_bytes()
    old = {path: path.read_bytes() for path in tree.rglob("*.zip")}
    for number in range(3):
        tapalcatl.put(tree, [(3, 2, 2, NEW + bytes([number]))])
    tapalcatl.put(tree, [(3, 2, 2, payload(3, 2, 2))])
    assert unzipped(tree) == names_and_data(pyramid(3))
    used = tapalcatl.space(tree)
    assert used.dead > 4 * 46 * 4
    assert used.live == clean.live
    assert tapalcatl.compact(tree) == used.dead
    assert tapalcatl.space(tree).dead == 0
    assert archive.read_bytes() == original
    assert {path: path.read_bytes() for path in tree.rglob("*.zip")} == old


def test_compaction_keeps_headers_times_and_other_entries(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (("readme.txt", b"text"), ("1/1/1.png", b"b" * 99), ("0/0/0.png", b"a")):
            info = zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 6))
            info.comment = b'[{"X-A":"b"}]'
            info.extra = b"\x55\x54\x05\x00\x01\x01\x02\x03\x04"
            archive.writestr(info, data, zipfile.ZIP_DEFLATED if "1/" in name else None)
        archive.comment = b"{}"
    assert tapalcatl.compact(path, force=True) == 0
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        assert [info.filename for info in infos] == ["0/0/0.png", "1/1/1.png", "readme.txt"]
        assert {info.comment for info in infos} == {b'[{"X-A":"b"}]'}
        assert {info.extra for info in infos} == {b"\x55\x54\x05\x00\x01\x01\x02\x03\x04"}
        assert {info.date_time for info in infos} == {(2001, 2, 3, 4, 5, 6)}
        assert archive.read("1/1/1.png") == b"b" * 99
        assert archive.comment == b"{}"


@pytest.mark.parametrize("name", ["x", "a much longer name: é"])
def test_a_comment_is_written_where_it_stood(archive: Path, name: str) -> None:
    before, was = archive.read_bytes(), content(archive)
    assert tapalcatl.edit_metadata(archive, {"name": name}).archives == 1
    end = before.rindex(b"PK\5\6")
    assert archive.read_bytes()[:end] == before[:end]
    assert content(archive) == was
    assert said(archive)["name"] == name
    assert tapalcatl.edit_metadata(archive, {"name": name}).archives == 0


def test_metadata_of_a_tileset(tree: Path) -> None:
    was = unzipped(tree)
    done = tapalcatl.edit_metadata(
        tree, {"name": "other", "description": None, "bounds": [0, 0, 1, 1], "x": [1]}
    )
    assert done.archives == 17
    meta = said(tree)
    assert (meta["name"], meta["x"]) == ("other", [1])
    # Bounds that would hide tiles are widened.
    assert meta["bounds"][0] == -180
    assert unzipped(tree) == was
    with pytest.raises(InvalidInputError, match="layout"):
        tapalcatl.edit_metadata(tree, {"metatile": 4})
    assert {one.code for one in tapalcatl.check(tree).problems} <= {"tile-image", "dead-space"}


def dies(tree: str, step: str) -> None:
    """A writer that is gone before a step of its change."""
    setattr(replacing.Change, step, lambda _: os._exit(0))
    tapalcatl.put(tree, [(3, 2, 2, NEW), (0, 0, 0, NEW)])


def dies_before_it_decides(tree: str) -> None:
    dies(tree, "decide")


def dies_before_it_finishes(tree: str) -> None:
    dies(tree, "finish")


def test_a_change_that_was_left(tree: Path, tmp_path: Path, faults: Faults) -> None:
    """Check tells of it, nobody writes beside it, and one command finishes or undoes it."""
    old, new = unzipped(tree), {**unzipped(tree), "3/2/2.png": NEW, "0/0/0.png": NEW}
    lefts: dict[str, Path] = {}
    for dying in (dies_before_it_decides, dies_before_it_finishes):
        lefts[dying.__name__] = shutil.copytree(tree, tmp_path / dying.__name__)
        came = faults.run(f"{__name__}:{dying.__name__}", lefts[dying.__name__], KILL)
        assert came.how == "killed"
    for name, code, then, by in (
        ("dies_before_it_decides", "change-begun", old, "recover"),
        ("dies_before_it_decides", "change-begun", old, "clean"),
        ("dies_before_it_decides", "change-begun", old, "clean-an-archive"),
        ("dies_before_it_finishes", "change-unfinished", new, "recover"),
        ("dies_before_it_finishes", "change-unfinished", old, "build"),
        ("dies_before_it_finishes", "change-unfinished", new, "clean"),
    ):
        tree = shutil.copytree(lefts[name], tmp_path / f"{name}-{by}")
        archive = tree / "2/1/1.zip"
        assert unzipped(tree) == old
        assert code in tapalcatl.check(tree, level="structure").counts
        with pytest.raises(ConflictError, match="not finished") as refused:
            tapalcatl.put(archive, [(3, 2, 2, NEW)])
        assert f"comal tapalcatl recover {tree}" in str(refused.value.hint)
        with pytest.raises(ConflictError):
            tapalcatl.compact(archive)
        left = targets.left_beside(archive if by == "clean-an-archive" else tree)
        assert tree / ".meta.json.change" in left
        if by == "recover":
            found = tapalcatl.recover(tree)
            assert (found.finished, found.undone) == ((2, 0) if then is new else (0, 2))
        elif by == "build":
            with tapalcatl.open(tree) as tileset:
                tapalcatl.build(tileset, tmp_path / "copy")
            tapalcatl.build(tmp_path / "copy", tree, overwrite=True)
        else:
            assert targets.clean(archive if by == "clean-an-archive" else tree) == left
        assert unzipped(tree) == then
        assert code not in tapalcatl.check(tree, level="structure").counts
    with changing_files(tree / ".meta.json.change", ""):
        with pytest.raises(ConflictError, match="another writer is changing the tileset"):
            tapalcatl.delete(archive, [(3, 2, 2)])
        assert not {"change-begun", "change-unfinished"} & tapalcatl.check(tree).counts.keys()
        assert not targets.left_beside(tree)
        with pytest.raises(ConflictError, match="another writer is changing"):
            tapalcatl.build([(0, 0, 0, NEW)], tree, overwrite=True)
        with pytest.raises(ConflictError):
            targets.clean(tree)


@pytest.mark.parametrize(
    "local", [b"zzzzzzzzzz/long/name", b"a/1/1/0.png", b"1/1/9.png", b"short", b""]
)
def test_local_names_that_differ(tmp_path: Path, local: bytes) -> None:
    """The directory counts, where the header says nothing of another tile; `compact` mends it."""
    path, one, two = tmp_path / "one.zip", picture(1), picture(2)
    path.write_bytes(
        odd.archive([odd.Entry(b"0/0/0.png", one), odd.Entry(b"1/1/0.png", two, local_name=local)])
    )
    other = local == b"1/1/9.png"

    def tile() -> tuple[int, bytes]:
        reply = ask(server.app({"a": path}), "/a/1/1/0.png")
        return reply.status, reply.body

    assert tapalcatl.put(path, [(1, 0, 0, one)]).added == 1
    assert "zip-local-mismatch" in tapalcatl.check(path).counts
    if other:  # bytes of another tile, as it seems: nothing makes them those of this one
        assert tile()[0] >= 500
        with pytest.raises(InvalidMetadataError, match="another tile"):
            tapalcatl.compact(path)
        assert tapalcatl.put(path, [(1, 1, 0, two)]).replaced == 1
    assert tile() == (200, two)
    tapalcatl.compact(path)
    assert tile() == (200, two)
    assert not tapalcatl.check(path).counts
    assert content(path) == {"0/0/0.png": one, "1/0/0.png": one, "1/1/0.png": two}


# -- Tapalcatl 1 ----------------------------------------------------------------------------------


@pytest.fixture
def first(tmp_path: Path) -> Path:
    tapalcatl.build(listed(pyramid(3)), tmp_path / "out", version=1, generation1=CONFIG)
    return tmp_path / "out"


def at(first: Path, z: int, x: int, y: int) -> Path:
    (found,) = first.glob(f"abc/*/all/{z}/{x}/{y}.zip")
    return found


def test_a_tile_is_put_where_servers_look_for_it(first: Path) -> None:
    # Metatile 2: 256 pixels of 3/5/2 are level 1 of metatile 2/2/1 (format note 1.3).
    changed = tapalcatl.put(first, [(3, 5, 2, NEW)], generation1=CONFIG)
    assert (changed.archives, changed.replaced, changed.added) == (1, 1, 0)
    was = {"1/0/0.png": (3, 4, 2), "1/1/0.png": (3, 5, 2), "1/0/1.png": (3, 4, 3)}
    was["1/1/1.png"] = (3, 5, 3)
    expected = {name: payload(*key) for name, key in was.items()}
    assert content(at(first, 2, 2, 1)) == {**expected, "1/1/0.png": NEW}
    with tapalcatl.open(first, **SETTINGS) as tileset:
        assert data_of(tileset, 3, 5, 2) == NEW


def test_one_archive_by_its_key(first: Path) -> None:
    archive = at(first, 2, 2, 1)
    before = archive.read_bytes()
    tapalcatl.put(archive, [(3, 5, 2, NEW)], generation1=CONFIG)
    assert archive.read_bytes().startswith(before)
    with zipfile.ZipFile(archive) as opened:
        assert opened.comment == b""
    assert content(archive)["1/1/0.png"] == NEW
    with pytest.raises(InvalidInputError, match="belongs to another archive"):
        tapalcatl.put(archive, [(3, 0, 0, NEW)], generation1=CONFIG)
    gone = tapalcatl.delete(archive, [(3, 5, 2), (3, 0, 0)], generation1=CONFIG)
    assert (gone.deleted, gone.absent) == (1, 1)
    assert "1/1/0.png" not in content(archive)
    moved = archive.rename(archive.with_name("other.zip"))
    with pytest.raises(InvalidInputError, match="does not tell which metatile"):
        tapalcatl.put(moved, [(3, 5, 2, NEW)], generation1=CONFIG)


def test_tiles_that_no_reader_would_ask_for_are_refused(first: Path) -> None:
    config = Generation1(**SETTINGS, max_zoom=3)
    with pytest.raises(InvalidInputError, match="outside the zooms"):
        tapalcatl.put(first, [(4, 0, 0, NEW)], generation1=config)
    assert not list(first.glob("abc/*/all/3/*/*.zip"))


def test_settings_for_a_tileset_that_needs_none(tmp_path: Path) -> None:
    tapalcatl.build(listed(pyramid(1)), tmp_path / "t2")
    with pytest.raises(InvalidInputError, match="a tileset of Tapalcatl 2"):
        tapalcatl.put(tmp_path / "t2", [(1, 0, 0, NEW)], generation1=CONFIG)


def test_commands_that_read_it(first: Path, tmp_path: Path) -> None:
    told = [f"--open={name}={value}" for name, value in SETTINGS.items()]
    for verb, name in (("create", "t2"), ("export", "loose")):
        made = command("tapalcatl", verb, first, tmp_path / name, *told, "--json")
        assert json.loads(made.stdout)["tiles"] == len(pyramid(3))
    assert (tmp_path / "loose/3/5/2.png").read_bytes() == payload(3, 5, 2)
