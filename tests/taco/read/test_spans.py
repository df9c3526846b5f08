"""Spans: right where the file has them wrong, refused where nothing can be right."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal.errors import InvalidInputError, InvalidMetadataError, UnsafeContentError
from comal.taco.reading.dataset import load
from comal.taco.spec import TacoWarning
from tests.attacks.build import FLAT, RawZip, Recipe, replaced, swapped_spans
from tests.attacks.corpus import first, set_column
from tests.servers.http import HttpServer
from tests.taco.read.scenes import expected, read_all, scenes, write, write_folder

TREE = scenes(*(f"s{n}" for n in range(12)))


def swapped(level: int, table: Any) -> Any:
    return swapped_spans(table) if level else table


def payload(path: Path, vsi: str) -> bytes:
    span, _, name = vsi.removeprefix("/vsisubfile/").partition(",")
    offset, size = (int(part) for part in span.split("_"))
    assert name == str(path)
    return path.read_bytes()[offset : offset + size]


def test_swapped_spans_are_mended_with_one_warning(tmp_path: Path) -> None:
    path = write(tmp_path, Recipe(tree=TREE, table=swapped))
    dataset = load(path)
    frame = dataset.data
    with pytest.warns(TacoWarning, match="directory") as caught:
        found = read_all(frame)
    assert found == expected(TREE)
    assert len(caught) == 2, "one for each level"
    files = dataset.sql("SELECT * FROM level2").data
    wanted = [expected(TREE)[p] for p in files["internal:relative_path"].to_pylist()]
    assert files.read_bytes() == wanted
    assert [payload(path, vsi) for vsi in files["internal:gdal_vsi"].to_pylist()] == wanted
    assert dataset.flatten().read_bytes() == wanted
    assert {p: payload(path, vsi) for p, vsi in frame.walk()} == expected(TREE)


def test_swapped_spans_over_http_cost_no_request_more(http_server: HttpServer) -> None:
    dataset = load(http_server.put("x.tacozip", Recipe(tree=TREE, table=swapped).build()))
    frame = dataset.data
    http_server.reset()
    with pytest.warns(TacoWarning):
        found = frame.read("s10/label.txt")
    assert http_server.requests == []
    with pytest.warns(TacoWarning):
        assert frame.read_bytes("s10/imagery/after.bin") == expected(TREE)["s10/imagery/after.bin"]
    assert found.startswith("/vsisubfile/")
    assert len(http_server.requests) == 1


def test_aligned_payloads_are_right(tmp_path: Path) -> None:
    def aligned(archive: RawZip, name: str) -> None:
        extras[name] = b""
        if name.startswith("DATA/"):
            unaligned = len(archive.buffer) + 30 + len(name.encode())
            gap = -unaligned % 64
            size = gap if gap == 0 or gap >= 4 else gap + 64
            if size:
                extras[name] = b"\x35\xd9" + (size - 4).to_bytes(2, "little") + bytes(size - 4)

    extras: dict[str, bytes] = {}
    for table in (lambda n, t: t, swapped):
        recipe = Recipe(
            tree=TREE,
            before=aligned,
            entry=lambda name: {"local_extra": extras[name]},
            table=table,
        )
        dataset = load(write(tmp_path, recipe))
        if table is swapped:
            with pytest.warns(TacoWarning):
                assert read_all(dataset.data) == expected(TREE)
        else:
            assert read_all(dataset.data) == expected(TREE)
        assert dataset.data.leaf("s3/label.txt").offset % 64 == 0


def test_a_wrong_span_of_a_flat_archive_is_found_on_reading(tmp_path: Path) -> None:
    def shifted(level: int, table: Any) -> Any:
        return replaced(table, "internal:offset", table["internal:offset"].to_pylist()[::-1])

    dataset = load(write(tmp_path, Recipe(tree=FLAT, table=shifted)))
    with pytest.warns(TacoWarning, match="directory"):
        assert dataset.data.read_bytes(list(FLAT)) == list(FLAT.values())
    with pytest.warns(TacoWarning), dataset.data.open("img_1.bin") as file:
        assert file.read() == FLAT["img_1.bin"]


def test_a_sample_without_an_entry_is_refused_and_the_rest_works(tmp_path: Path) -> None:
    def unlisted(name: str) -> dict[str, Any]:
        return {"listed": "s3/label" not in name, "local": "s3/label" not in name}

    dataset = load(write(tmp_path, Recipe(tree=TREE, entry=unlisted)))
    with pytest.warns(TacoWarning, match="directory"):
        frame = dataset.data.read("s3")
    assert frame["internal:gdal_vsi"].to_pylist()[1] is None
    with pytest.raises(InvalidMetadataError):
        frame.read("label.txt")
    with pytest.raises(InvalidMetadataError):
        frame.read_bytes("label.txt")
    assert len(frame.read_bytes(["imagery/after.bin"])[0]) > 0


def test_rot_is_found_by_the_checksum(tmp_path: Path) -> None:
    path = write(tmp_path, Recipe(tree=FLAT))
    data = bytearray(path.read_bytes())
    at = data.index(expected(FLAT)["img_2.bin"])
    data[at + 3] ^= 1
    path.write_bytes(data)
    frame = load(path).data
    with pytest.raises(InvalidMetadataError, match="checksum"):
        frame.read_bytes("img_2.bin")
    assert frame.read_bytes("img_2.bin", verify=False) == bytes(data[at : at + 42])
    assert frame.read_bytes("img_1.bin") == FLAT["img_1.bin"]


def test_files_over_leaves(tmp_path: Path) -> None:
    for path in (write(tmp_path, Recipe(tree=TREE)), write_folder(tmp_path, Recipe(tree=TREE))):
        with load(path).data.open("s1/label.txt") as file:
            assert isinstance(file, io.RawIOBase)
            assert file.seek(3) == 3
            assert file.read() == b"label"
    archive = load(path).data
    with pytest.raises(InvalidInputError, match="FOLDER"):
        archive.open("s1/imagery")


# -- folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["s1//a", "s1/."])
def test_paths_of_a_folder_have_no_empty_part(path: str, tmp_path: Path) -> None:
    recipe = Recipe(tree=TREE, table=set_column(1, "internal:relative_path", first(path)))
    with pytest.raises(UnsafeContentError, match="lead out"):
        read_all(load(write_folder(tmp_path, recipe)).data)


def test_links_out_of_a_folder_are_refused_and_missing_files_named(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    path = write_folder(tmp_path, Recipe(tree=FLAT))
    (path / "DATA" / "img_0.bin").unlink()
    (path / "DATA" / "img_0.bin").symlink_to(secret)
    frame = load(path).data
    for read in (frame.read, frame.read_bytes, lambda key: frame.open(key).read()):
        with pytest.raises(UnsafeContentError):
            read(0)
    assert frame.read_bytes(1) == FLAT["img_1.bin"]
    (path / "DATA" / "img_0.bin").unlink()
    for read in (frame.read, frame.read_bytes):
        with pytest.raises(FileNotFoundError, match="img_0"):
            read(0)


def test_stored_paths_are_ignored(tmp_path: Path) -> None:
    def hook(level: int, table: Any) -> Any:
        paths = pa.array(["/etc/hostname"] * len(table))
        return table.append_column("internal:gdal_vsi", paths)

    for path in (
        write(tmp_path, Recipe(tree=TREE, table=hook)),
        write_folder(tmp_path, Recipe(tree=TREE, table=hook)),
    ):
        dataset = load(path)
        assert dataset.columns.count("internal:gdal_vsi") == 1
        assert read_all(dataset.data) == expected(TREE)
        for frame in (dataset.data, dataset.flatten(), dataset.sql("SELECT * FROM level1").data):
            assert "/etc/hostname" not in frame["internal:gdal_vsi"].to_pylist()
