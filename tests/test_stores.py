"""Every writer makes in a store what it makes on this machine, and replaces there as little."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import obstore
import pytest
from click.testing import CliRunner

from comal import raquet, taco, tortilla
from comal.cli import root
from comal.errors import ComalError, InvalidInputError
from comal.storage import StorageConfig, StorePath, upload
from comal.storage.cloud import memory_store
from tests.servers.s3 import S3Server
from tests.support import files_below
from tests.test_overwriting import EVERY, WRITERS, ExitError, Writer, dataset
from tests.test_overwriting import kept as kept  # noqa: PLC0414 - a fixture of this module, too

FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))
LOCAL = ("demo.run", "comal demo")
"""Writers whose results are looked at on this machine."""
COMMANDS = ("comal get", "comal mirror", "comal taco create", "comal raquet export")
NAMES = [name for name in EVERY if name not in LOCAL and (FULL or name in (*WRITERS, *COMMANDS))]


def outcome(writer: Writer, s: Path, target: Any, overwrite: bool) -> tuple[int, str]:
    """Exit code and text of what came of it."""
    try:
        writer.call(s, target, overwrite)
    except (ComalError, ExitError) as error:
        return error.exit_code, str(error)
    return 0, ""


def objects(store: Any, prefix: str) -> dict[str, bytes]:
    """All objects below a prefix, by name."""
    paths = [meta["path"] for chunk in obstore.list(store, prefix) for meta in chunk]
    return {p.removeprefix(prefix): bytes(obstore.get(store, p).bytes()) for p in paths}


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by name."""
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


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
    before, store = files(kept / "s"), memory_store(bucket)
    target = StorePath(f"memory://{bucket}/to/{writer.target}")
    code, text = outcome(writer, kept / "s", target, False)
    assert code == 0, text
    made = objects(store, "to/")
    local = files(tmp_path / "to")
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
    assert files(kept / "s") == before
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in LOCAL])
def test_config_reaches_the_target(
    name: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, used, new = StorageConfig(scratch=str(tmp_path)), [], upload.new_store_set

    def noting(place: StorePath, **more: Any) -> Any:
        used.append(place.config)
        return new(place, **more)

    monkeypatch.setattr(upload, "new_store_set", noting)
    writer = EVERY[name]
    target = StorePath(f"memory://{uuid.uuid4().hex}/to/{writer.target}")
    writer.call(kept / "s", target, False, config=own)
    assert set(map(id, used)) == {id(own)}


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
    assert len(objects(s3_server.store, f"{prefix}/")) > 1


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
        assert objects(s3_server.store, f"{prefix}/") == files(tmp_path), text
    assert code == 10


def test_an_index_in_a_store_is_not_appended_to(kept: Path) -> None:
    with pytest.raises(InvalidInputError, match="appended to"):
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
    result = CliRunner().invoke(root, ["clean", a])
    assert result.exit_code == 2, result.output
