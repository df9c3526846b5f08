"""Bad input and failures: a clear error, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectNotFoundError,
    StorageError,
)
from comal.taco.model.collection import Sample, Tortilla
from comal.taco.model.sources import LocalFiles
from comal.taco.writing import zipwrite
from comal.taco.writing.creating import create
from tests.support import public_folder, without_privileges
from tests.taco.write.small import Archive, dataset, flat, nested

FORMS = pytest.mark.parametrize("name", ["out.tacozip", "out"])


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@FORMS
def test_missing_source(tmp_path: Path, name: str) -> None:
    taco = dataset(Tortilla([Sample("a", tmp_path / "nowhere.tif")]))
    with pytest.raises(ObjectNotFoundError, match=r"nowhere\.tif"):
        create(taco, tmp_path / name)
    assert left(tmp_path) == []


@FORMS
@pytest.mark.parametrize("growth", [-3, 5])
def test_source_that_changes_size_while_it_is_copied(
    tmp_path: Path, name: str, growth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "in"
    sources.mkdir()
    for number in range(3):
        (sources / f"{number}").write_bytes(b"x" * 10)
    taco = dataset(Tortilla([Sample(f"s{n}", sources / f"{n}") for n in range(3)]))
    sizes, fstat, inode = LocalFiles.sizes, os.fstat, (sources / "1").stat().st_ino

    def change() -> None:
        (sources / "1").write_bytes(b"y" * (10 + growth))

    def measured(payloads: Any) -> Any:
        known = sizes(payloads)
        change()
        return known

    def opened(descriptor: int) -> os.stat_result:
        known = fstat(descriptor)
        if known.st_ino == inode:
            change()
        return known

    # A FOLDER is measured before it is copied, a ZIP file by file.
    monkeypatch.setattr(LocalFiles, "sizes", measured)
    monkeypatch.setattr("comal.storage.manyfiles.os.fstat", opened)
    with pytest.raises(InvalidInputError) as caught:
        create(taco, tmp_path / name)
    assert "10 bytes" in str(caught.value)
    assert left(tmp_path) == ["in"]


@FORMS
def test_source_that_vanishes_before_it_is_copied(tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    taco = dataset(Tortilla([Sample("a", source)]))
    source.unlink()
    with pytest.raises(ObjectNotFoundError, match="source"):
        create(taco, tmp_path / name)
    assert left(tmp_path) == []


@FORMS
def test_sources_that_are_no_files(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(InvalidInputError, match="regular file"):
            create(dataset(Tortilla([Sample("a", path)])), tmp_path / name)
    with pytest.raises(InvalidInputError, match="no path"):
        Sample("a", "/tmp/a\0b")
    assert left(tmp_path) == ["pipe"]


@FORMS
def test_source_that_may_not_be_read(name: str) -> None:
    with public_folder() as folder:
        secret = folder / "secret"
        secret.write_bytes(b"x")
        made = dataset(Tortilla([Sample("a", secret)]))
        create(made, folder / f"before-{name}")
        secret.chmod(0)
        with without_privileges(), pytest.raises(AccessDeniedError, match="secret"):
            create(made, folder / name)
        assert left(folder) == [f"before-{name}", "secret"]


@FORMS
def test_target_that_may_not_be_written(name: str) -> None:
    with public_folder() as folder:
        create(dataset(flat(2)), folder / name)
        locked = folder / "locked"
        locked.mkdir(0o555)
        with without_privileges(), pytest.raises(AccessDeniedError, match="locked"):
            create(dataset(flat(2)), locked / name)
        assert left(locked) == []


@FORMS
def test_existing_output_is_kept(tmp_path: Path, name: str) -> None:
    (first,) = create(dataset(flat(2)), tmp_path / name)
    inode = first.stat().st_ino
    with pytest.raises(ConflictError):
        create(dataset(flat(3)), tmp_path / name)
    assert first.stat().st_ino == inode
    assert left(tmp_path) == [name]


def test_target_that_is_a_source(tmp_path: Path) -> None:
    (path,) = create(dataset(flat(2)), tmp_path / "a.tacozip")
    before = path.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(path)
    for source in (path, link):
        with pytest.raises(ConflictError, match="source"):
            create(dataset(Tortilla([Sample("a", source)])), path, overwrite=True)
    assert path.read_bytes() == before


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipwrite, "write_level", full)
    with pytest.raises(OSError, match="No space left"):
        create(dataset(flat(2)), tmp_path / "a.tacozip")
    assert left(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk_for_temporary_files() -> None:
    with pytest.raises(StorageError):
        Sample("a", b"x", temp_dir="/dev/full")


def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None, what: str) -> None:
        raise KeyboardInterrupt

    for name in ("a.tacozip", "a"):
        with pytest.raises(KeyboardInterrupt):
            create(dataset(nested(2)), tmp_path / name, progress=interrupt)
    assert left(tmp_path) == []


def test_a_wrong_span_is_found_before_publishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = zipwrite.ZipBuilder.add_payloads

    def shifted(*args: Any) -> Any:
        spans = add(*args)
        spans.offset[:2] = spans.offset[1::-1].copy()
        return spans

    monkeypatch.setattr(zipwrite.ZipBuilder, "add_payloads", shifted)
    with pytest.raises(InvalidMetadataError, match="does not match its rows"):
        create(dataset(flat(3)), tmp_path / "a.tacozip")
    assert left(tmp_path) == []


def test_bad_arguments(tmp_path: Path) -> None:
    taco = dataset(flat(2))
    for named in (
        {"output_format": "tar"},
        {"compression": "zip"},
        {"split_size": "much"},
        {"split_size": -1},
        {"group_by": "nothing"},
        {"unknown": 1},
    ):
        with pytest.raises(InvalidInputError):
            create(taco, tmp_path / "a.tacozip", **named)
    with pytest.raises(InvalidInputError, match="split"):
        create(taco, tmp_path / "a", split_size="1MB")
    with pytest.raises(ObjectNotFoundError):
        create(taco, tmp_path / "no" / "a.tacozip")
    assert left(tmp_path) == []


def batch(start: int, stop: int, kind: Any = None) -> Any:
    return pa.table(
        {
            "id": [f"s{n}" for n in range(start, stop)],
            "path": pa.array([b"x"] * (stop - start), pa.binary()),
            "v": pa.array(range(start, stop), kind or pa.int64()),
        }
    )


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        ([], "no sample"),
        ([batch(0, 3), batch(2, 4)], "twice"),
        ([batch(0, 3), batch(3, 4, pa.float64())], "another schema"),
        ([batch(0, 3), batch(3, 4).drop_columns(["v"])], "another schema"),
        ([batch(0, 1), "no table"], "no table"),
    ],
)
def test_bad_batches(tmp_path: Path, batches: list[Any], text: str) -> None:
    tortilla = Tortilla.from_batches(batches, schema=batch(0, 1).schema)
    ways: list[tuple[str, dict[str, Any]]] = [
        ("a.tacozip", {}),
        ("a", {}),
        ("a.zip", {"split_size": 300}),
    ]
    for output, more in ways:
        with pytest.raises(InvalidInputError, match=text):
            create(dataset(tortilla), tmp_path / output, **more)
        assert left(tmp_path) == []


def test_batches_of_an_iterator_can_be_read_once(tmp_path: Path) -> None:
    taco = dataset(Tortilla.from_batches(iter([batch(0, 3)]), schema=batch(0, 1).schema))
    (path,) = create(taco, tmp_path / "a.tacozip")
    assert len(Archive(path).leaves()) == 3
    with pytest.raises(InvalidInputError, match="already"):
        create(taco, tmp_path / "b.tacozip")
    with pytest.raises(InvalidInputError, match="already"):
        create(taco, tmp_path / "c.zip", group_by="v")


@pytest.mark.parametrize("part", ["sample", "meta", "table", "collection", "more"])
def test_a_folder_that_is_not_what_was_written_is_not_published(tmp_path: Path, part: str) -> None:
    def spoil(done: int, total: int | None, what: str) -> None:
        if what != "verify":
            return
        (root,) = (path for path in tmp_path.iterdir() if path.is_dir())
        if part == "sample":
            next(
                path
                for path in (root / "DATA").rglob("*")
                if path.is_file() and path.name != "__meta__"
            ).unlink()
        elif part == "meta":
            next((root / "DATA").rglob("__meta__")).unlink()
        elif part == "table":
            table = root / "METADATA" / "level1.parquet"
            table.write_bytes((root / "METADATA" / "level0.parquet").read_bytes())
        elif part == "collection":
            path = root / "COLLECTION.json"
            path.write_bytes(path.read_bytes().replace(b'"id"', b'"ID"', 1))
        else:
            (root / "DATA" / "stranger").touch()

    with pytest.raises(InvalidMetadataError, match="does not match its rows"):
        create(dataset(nested(2)), tmp_path / "out", progress=spoil)
    assert left(tmp_path) == []


@pytest.mark.parametrize("thing", [None, 5, Tortilla([Sample("a", b"")])])
def test_what_is_no_dataset_is_told_so(tmp_path: Path, thing: Any) -> None:
    with pytest.raises(InvalidInputError, match="Taco"):
        create(thing, tmp_path / "a.zip")
    assert list(tmp_path.iterdir()) == []
