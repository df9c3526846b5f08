"""Every writer makes in a store what it makes on this machine, and replaces there as little."""

from __future__ import annotations

import inspect
import os
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pytest
from click.testing import CliRunner

from comal import ml, raquet, taco, tapalcatl, tortilla
from comal.cli import root
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    LimitExceededError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from comal.storage import StorageConfig, StorePath, storeobject, targets, upload
from comal.storage.cloud import memory_store
from comal.storage.multipart import Multipart
from tests.server.making import PNG
from tests.servers.s3 import S3Server
from tests.support import files_below, objects
from tests.test_overwriting import EVERY, TILES, WRITERS, ExitError, Writer, dataset
from tests.test_overwriting import kept as kept  # noqa: PLC0414 - a fixture of this module, too

FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))
LOCAL = ("demo.run", "comal demo", "comal sync")
"""Writers whose results are looked at on this machine, and one that may be repeated."""
COMMANDS = ("comal get", "comal mirror", "comal taco create", "comal raquet export")
NAMES = [name for name in EVERY if name not in LOCAL and (FULL or name in (*WRITERS, *COMMANDS))]


def outcome(writer: Writer, s: Path, target: Any, overwrite: bool) -> tuple[int, str]:
    """Exit code and text of what came of it."""
    try:
        writer.call(s, target, overwrite)
    except (ComalError, ExitError) as error:
        return error.exit_code, str(error)
    return 0, ""


@pytest.mark.parametrize("name", NAMES)
def test_a_store_gets_what_a_disk_gets(
    name: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (tmp_path / "work").mkdir()
    (tmp_path / "to").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    writer, bucket = EVERY[name], uuid.uuid4().hex
    writer.call(kept / "s", tmp_path / "to" / writer.target, False)
    before, store = files_below(kept / "s"), memory_store(bucket)
    target = StorePath(f"memory://{bucket}/to/{writer.target}")
    own, used, new = StorageConfig(scratch=str(tmp_path / "work")), [], upload.scratch_folder

    def noting(config: StorageConfig | None) -> Any:
        used.append(config)
        return new(config)

    with monkeypatch.context() as patch:
        patch.setattr(upload, "scratch_folder", noting)
        how = {"config": own} if name in WRITERS else {}
        writer.call(kept / "s", target, False, **how)
    assert not how or set(map(id, used)) == {id(own)}
    made = objects(store, "to/")
    local = files_below(tmp_path / "to")
    assert sorted(made) == sorted(local)
    assert [key for key in made if made[key] != local[key]] == []
    code, text = outcome(writer, kept / "s", target, False)
    assert code == 10, text
    alone = len(made) == 1 and not writer.folder
    code, text = outcome(writer, kept / "s", target, True)
    assert (code, alone) in {(0, True), (10, False)}, text
    assert objects(store, "to/") == made
    if alone:
        obstore.put(store, f"to/{writer.target}", b"a letter")
        code, text = outcome(writer, kept / "s", target, True)
        assert code == 10, text
        assert objects(store, "to/") == {writer.target: b"a letter"}
    assert files_below(kept / "s") == before
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("write", "source", "target"),
    [
        (raquet.merge, "dem.parquet", "o.parquet"),
        (raquet.partition, "dem.parquet", "o"),
        (raquet.to_cog, "dem.parquet", "o.tif"),
        (raquet.to_geotiff, "dem.parquet", "o.tif"),
        (tortilla.compact, "a.tortilla", "o.tortilla"),
        (taco.create_tacocat, "scenes.tacozip", "o"),
        (taco.create_tacollection, "scenes.tacozip", "o"),
    ],
)
def test_config_reaches_the_source(
    write: Any, source: str, target: str, kept: Path, s3_server: S3Server
) -> None:
    prefix = uuid.uuid4().hex
    obstore.put(s3_server.store, f"{prefix}/{source}", kept / "s" / source)
    given: Any = s3_server.url_for(f"{prefix}/{source}")
    given = [given] if write in (taco.create_tacocat, taco.create_tacollection) else given
    write(given, s3_server.url_for(f"{prefix}/{target}"), config=s3_server.config)
    assert len(s3_server.objects(f"{prefix}/")) > 1


def test_too_large_for_s3_is_told_before_the_copy(
    kept: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    class Noting(targets._WatchedFile):
        def write(self, data: Any, /) -> int:
            written.append(len(data) if self.most is not None else 0)
            return super().write(data)

    monkeypatch.setattr(targets, "_WatchedFile", Noting)
    monkeypatch.setattr(storeobject, "COPIED", 1000)
    monkeypatch.setattr(Multipart, "to", lambda *_: None)
    prefix, config = uuid.uuid4().hex, s3_server.config
    for write, source, target in (
        (ml.mirror, "scenes.tacozip", "o.tacozip"),
        (tortilla.compact, "a.tortilla", "o.tortilla"),
        (tortilla.pack_folder, "files", "o.tortilla"),
        (taco.pack_folder, "files", "o.tacozip"),
    ):
        with pytest.raises(LimitExceededError, match="5 GiB"):
            write(kept / "s" / source, s3_server.url_for(f"{prefix}/{target}"), config=config)
        assert sum(written) < 1000
    assert s3_server.objects(prefix) == {}


S3 = (
    *("taco.create", "taco.create folder", "taco.create parts", "tortilla.create parts"),
    *("raquet.write", "tapalcatl.build one", "tapalcatl.build", "convert.convert", "ml.mirror"),
)


@pytest.mark.parametrize("name", S3)
def test_s3_gets_what_a_disk_gets(
    name: str, kept: Path, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    writer, prefix = EVERY[name], uuid.uuid4().hex
    writer.call(kept / "s", tmp_path / writer.target, False)
    target = StorePath(s3_server.url_for(f"{prefix}/{writer.target}"), s3_server.config)
    for _ in range(2):
        code, text = outcome(writer, kept / "s", target, False)
        assert s3_server.objects(f"{prefix}/") == files_below(tmp_path), text
    assert code == 10


# -- changes in place ------------------------------------------------------------------------------

FIRST = tapalcatl.Generation1()
MORE = [(3, 0, 0, PNG), (5, 9, 9, PNG), (7, 100, 40, PNG)]
DEAD = [(4, 1, 1), (4, 2, 1), (9, 0, 0)]
CHANGES: dict[str, tuple[str, Any]] = {
    "tortilla.edit": ("a.tortilla", lambda t, **c: tortilla.edit(t, rename={"a.tif": "x"}, **c)),
    "tortilla.append": (
        "a.tortilla",
        lambda t, **c: tortilla.append(t, [tortilla.Sample("x", path=b"x" * 99)], **c),
    ),
    "tortilla.delete": ("a.tortilla", lambda t, **c: tortilla.delete(t, ids=["a.tif"], **c)),
    "tortilla.compact": ("loose.tortilla", tortilla.compact),
    "tapalcatl.put": ("tiles", lambda t, **c: tapalcatl.put(t, MORE, **c)),
    "tapalcatl.put one": ("one.zip", lambda t, **c: tapalcatl.put(t, MORE, **c)),
    "tapalcatl.put 1": ("t1", lambda t, **c: tapalcatl.put(t, MORE, generation1=FIRST, **c)),
    "tapalcatl.delete": ("tiles", lambda t, **c: tapalcatl.delete(t, DEAD, **c)),
    "tapalcatl.delete one": ("one.zip", lambda t, **c: tapalcatl.delete(t, DEAD, **c)),
    "tapalcatl.edit_metadata": (
        "tiles",
        lambda t, **c: tapalcatl.edit_metadata(t, {"name": "x"}, **c),
    ),
    "tapalcatl.edit_metadata one": (
        "one.zip",
        lambda t, **c: tapalcatl.edit_metadata(t, {"name": "x", "minzoom": 5}, **c),
    ),
    "tapalcatl.compact": ("tiles", lambda t, **c: tapalcatl.compact(t, force=True, **c)),
    "tapalcatl.compact one": ("loose.zip", tapalcatl.compact),
}


@pytest.fixture(scope="module")
def changeable(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives to change."""
    made = tmp_path_factory.mktemp("changeable")
    for name in ("a.tortilla", "tiles"):
        copy(kept / "s" / name, made / name)
    tapalcatl.build(TILES, made / "one.zip")
    tapalcatl.build(TILES, made / "t1", version=1, generation1=FIRST)
    for old, new in (("a.tortilla", "loose.tortilla"), ("one.zip", "loose.zip")):
        copy(made / old, made / new)
    tortilla.delete(made / "loose.tortilla", ids=["a.tif"])
    tapalcatl.delete(made / "loose.zip", DEAD)
    return made


def copy(source: Path, target: Path) -> None:
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)


def upload_all(store: Any, source: Path, prefix: str) -> None:
    for path in [source] if source.is_file() else source.rglob("*"):
        if path.is_file():
            obstore.put(store, f"{prefix}{path.relative_to(source.parent)}", path.read_bytes())


# One object and several; which kind of store it is, the changes do not know.
IN_S3 = ("tortilla.append", "tapalcatl.put", "tapalcatl.compact")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        *(("memory", name) for name in CHANGES),
        *(("s3", name) for name in (CHANGES if FULL else IN_S3)),
    ],
)
def test_a_change_in_a_store_is_that_on_disk(
    name: str, where: str, changeable: Path, tmp_path: Path, s3_server: S3Server
) -> None:
    archive, change = CHANGES[name]
    copy(changeable / archive, tmp_path / archive)
    (tmp_path / "scratch").mkdir()
    prefix, config = uuid.uuid4().hex, StorageConfig(scratch=str(tmp_path / "scratch"))
    store: Any = memory_store(prefix)
    url = f"memory://{prefix}/{prefix}/{archive}"
    if where == "s3":
        store, url = s3_server.store, s3_server.url_for(f"{prefix}/{archive}")
        config = replace(config, s3=s3_server.config.s3)
    upload_all(store, tmp_path / archive, f"{prefix}/")
    before = objects(store, f"{prefix}/")
    assert change(url, config=config) == change(tmp_path / archive)
    after = objects(store, f"{prefix}/")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert after == files_below(tmp_path)
    assert after != before or "force" in name or name == "tapalcatl.compact"


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_by_another_stays(
    name: str, changeable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, change = CHANGES[name]
    bucket = uuid.uuid4().hex
    store, publish = memory_store(bucket), upload._publish
    upload_all(store, changeable / archive, "")
    before = objects(store, "")
    touched: list[str] = []

    def late(groups: Any, **more: Any) -> None:
        place, _, seen = next(one for group in groups for one in group)
        touched.append(place.location.path)
        obstore.put(store, touched[-1], b"by another")
        assert (seen is None) == (touched[-1] not in before)
        publish(groups, **more)

    monkeypatch.setattr(upload, "_publish", late)
    with pytest.raises(ConflictError, match=r"another writer|exists"):
        change(f"memory://{bucket}/{archive}")
    after = objects(store, "")
    assert after.pop(touched[0]) == b"by another"
    assert not any(key.endswith(".json") for key in touched)
    assert {key: before.get(key) for key in after if key.endswith(".json")} == {
        key: data for key, data in after.items() if key.endswith(".json")
    }


def test_the_document_of_a_tileset_changes_last(
    changeable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = uuid.uuid4().hex
    store, put = memory_store(bucket), obstore.put
    upload_all(store, changeable / "tiles", "")
    keys: list[str] = []

    def noting(to: Any, key: str, *args: Any, **named: Any) -> Any:
        keys.append(key)
        return put(to, key, *args, **named)

    monkeypatch.setattr(obstore, "put", noting)
    with tapalcatl.open(f"memory://{bucket}/tiles") as old:
        tapalcatl.put(f"memory://{bucket}/tiles", MORE)
        assert keys[-1] == "tiles/meta.json"
        assert len(keys) == len(set(keys)) > 2
        assert old.max_zoom == 4
    with tapalcatl.open(f"memory://{bucket}/tiles/meta.json") as new:
        assert new.max_zoom == 7
        assert [new.tile(z, x, y) is not None for z, x, y, _ in MORE] == [True] * 3


def test_a_change_that_failed_at_the_document_is_made_again(
    changeable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = uuid.uuid4().hex
    store, put, href = memory_store(bucket), obstore.put, f"memory://{bucket}/tiles"
    upload_all(store, changeable / "tiles", "")
    before = objects(store, "")

    def failing(to: Any, key: str, *args: Any, **named: Any) -> Any:
        if key.endswith("meta.json"):
            raise PermissionError
        return put(to, key, *args, **named)

    monkeypatch.setattr(obstore, "put", failing)
    with pytest.raises(ComalError, match="may write"):
        tapalcatl.put(href, MORE)
    monkeypatch.undo()
    half = objects(store, "")
    assert set(half) == set(before)  # what was new is gone again
    assert half["tiles/meta.json"] == before["tiles/meta.json"]
    assert tapalcatl.check(href, level="structure").errors == 0
    tapalcatl.put(href, MORE)
    with tapalcatl.open(href) as tiles:
        assert tiles.max_zoom == 7
        assert [tiles.tile(z, x, y) is not None for z, x, y, _ in MORE] == [True] * 3


def test_who_reads_an_archive_that_is_changed_gets_no_mixture(changeable: Path) -> None:
    bucket = uuid.uuid4().hex
    href, store = f"memory://{bucket}/a.tortilla", memory_store(bucket)
    upload_all(store, changeable / "a.tortilla", "")
    frame = tortilla.open(href)
    assert tortilla.delete(href, ids=["a.tif"]) == 1
    with pytest.raises(ObjectChangedError):
        frame.read_bytes("b.tif")
    obstore.put(store, "a.tortilla", b"a letter")
    with pytest.raises(ComalError, match=href):
        tortilla.delete(href, ids=["b.tif"])
    with pytest.raises(ComalError, match=r"memory://.*/none"):
        tortilla.delete(f"memory://{bucket}/none", ids=["b.tif"])


def test_every_change_in_place_is_tried() -> None:
    found = {
        f"{room.__name__.removeprefix('comal.')}.{name}"
        for room in (taco, tortilla, raquet, tapalcatl)
        for name in room.__all__
        if inspect.isfunction(one := getattr(room, name))
        and "changing_file" in Path(inspect.unwrap(one).__code__.co_filename).read_text()
    }
    assert found - {"tapalcatl.space", "tapalcatl.recover"} == {n for n in CHANGES if " " not in n}


def test_an_index_of_one_object_is_appended_to(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, more, again = uuid.uuid4().hex, *(kept / f"s/{n}.tacozip" for n in ("more", "again"))
    store, url = memory_store(bucket), f"memory://{bucket}"
    how: dict[str, Any] = {"form": "binary", "append": True}
    with pytest.raises(ObjectNotFoundError, match="no index"):
        taco.create_tacocat([again], url, **how)
    for target in (tmp_path, url):
        taco.create_tacocat([more], target, form="binary")
        taco.create_tacocat([again], target, **how)
    assert objects(store, "") == files_below(tmp_path)
    assert len(taco.load(f"{url}/__TACOCAT__", base_path=kept / "s").data) == 3

    def late(groups: Any, **more: Any) -> None:
        obstore.put(store, "__TACOCAT__", b"by another")
        publish(groups, **more)

    publish, third = upload._publish, tmp_path.parent / f"{bucket}.tacozip"
    copy(more, third)
    monkeypatch.setattr(upload, "_publish", late)
    with pytest.raises(ConflictError, match="another writer"):
        taco.create_tacocat([third], url, **how)
    assert objects(store, "") == {"__TACOCAT__": b"by another"}
    taco.create_tacocat([more], tmp_path, form="folder")
    with pytest.raises(InvalidInputError, match="another form"):
        taco.create_tacocat([third], tmp_path, **how)


def test_an_index_of_several_objects_is_not_appended_to(kept: Path) -> None:
    with pytest.raises(InvalidInputError, match="form='binary'"):
        taco.create_tacocat([kept / "s/more.tacozip"], "memory://nowhere/in", append=True)


def test_commands_and_config_write_to_s3(
    kept: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = uuid.uuid4().hex
    a, b = (s3_server.url_for(f"{prefix}/{name}.tacozip") for name in "ab")
    with pytest.raises(InvalidInputError, match="not a configuration"):
        taco.create(dataset(kept / "s"), a, config=dict(s3_server.config.s3))
    taco.create(dataset(kept / "s"), a, config=s3_server.config)
    for name, value in s3_server.config.s3.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    result = CliRunner().invoke(root, ["mirror", str(kept / "s/more.tacozip"), b])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(root, ["mirror", str(kept / "s/more.tacozip"), b, "--json"])
    assert result.exit_code == 10, result.output
    for href in (a, b):
        assert CliRunner().invoke(root, ["check", href]).exit_code == 0
    assert CliRunner().invoke(root, ["clean", a]).output == "0 items removed\n"
