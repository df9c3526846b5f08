"""Tortilla 0.5 to and fro: our files in the reference readers, and theirs here."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from comal import tortilla
from comal.tortilla import Sample, append, compact, create, delete, edit
from tests.interop.environments import drive
from tests.raster.rasters import write
from tests.support import digests

pytestmark = pytest.mark.interop

READERS = {
    "tortilla-0.5.6": "tacoreader",
    "tortilla-0.5.6-old": "tacoreader",
    "tortilla-v1": "tacoreader.v1",
}
WRITERS = ["tortilla-0.5.6", "tortilla-0.5.6-old"]
Leaves = dict[str, bytes]


@dataclass(frozen=True)
class Written:
    """Files of one set, the bytes of their leaves by path, and columns to compare."""

    paths: tuple[Path, ...]
    leaves: Leaves
    columns: dict[str, list[Any]]


def flat(count: int) -> tuple[list[Sample], Leaves]:
    leaves = {f"s{n}": f"item {n} ".encode() * (n % 7) for n in range(count)}
    samples = [
        Sample(name, "BYTES", data, ("train", "test")[n % 2], n=n, text=name)
        for n, (name, data) in enumerate(leaves.items())
    ]
    return samples, leaves


def nested(root: Path) -> tuple[list[Sample], Leaves]:
    picture = write(root / "picture.tif", np.full((1, 8, 9), 7, np.uint8))
    samples, leaves = [], {}
    for number in range(4):
        times = {"time_start": 1_600_000_000 + number, "time_end": 1_600_000_100}
        deeper = [Sample("deep", path=f"deep {number}".encode())]
        inner = [
            Sample("image", path=picture, stac_data=times),
            Sample("label", path=f"label {number}".encode()),
            Sample("more", path=deeper),
        ]
        samples.append(Sample(f"roi{number}", path=inner))
        leaves[f"roi{number}/image"] = picture.read_bytes()
        leaves[f"roi{number}/label"] = f"label {number}".encode()
        leaves[f"roi{number}/more/deep"] = f"deep {number}".encode()
    return samples, leaves


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    root = tmp_path_factory.mktemp("written")
    found: dict[str, Written] = {}
    samples, leaves = flat(12)
    columns: dict[str, list[Any]] = {"n": list(range(12)), "text": [f"s{n}" for n in range(12)]}
    made = create(samples, root / "flat.tortilla")
    found["flat"] = Written(made.paths, leaves, columns)
    parts = create(samples, root / "parts.tortilla", chunk_rows=5)
    found["parts"] = Written(parts.paths, leaves, columns)
    again = tortilla.compile(made, root / "again.tortilla", chunk_rows=5)
    found["split"] = Written(again.paths, leaves, columns)
    joined = tortilla.compile(parts.paths, root / "join.tortilla")
    found["join"] = Written(joined.paths, leaves, columns)
    samples, deep = nested(root)
    made = create(samples, root / "nested.tortilla")
    starts = [1_600_000_000 + n for n in range(4)]
    found["nested"] = Written(made.paths, deep, {"stac:time_start": starts})
    part = tortilla.compile(made, root / "part.tortilla", ids=["roi3", "roi1"])
    some = {
        path: data
        for roi in ("roi3", "roi1")
        for path, data in deep.items()
        if path.startswith(roi)
    }
    found["compiled"] = Written(part.paths, some, {"stac:time_start": [starts[3], starts[1]]})
    ids = pa.array([f"s{n:05}" for n in range(200)])
    data = [f"{n}".encode() * (n % 3) for n in range(200)]
    table = pa.table({"id": ids, "path": data, "value": np.arange(200) / 2})
    many = create(table, root / "many.tortilla")
    found["many"] = Written(
        many.paths,
        dict(zip(ids.to_pylist(), data, strict=True)),
        {"value": [n / 2 for n in range(200)]},
    )
    edited = root / "edited.tortilla"
    shutil.copy(found["flat"].paths[0], edited)
    append(edited, [Sample("new", path=b"new bytes", n=99)])
    edit(edited, columns={"late": list(range(13))})
    delete(edited, ids=["s3"])
    names = [f"s{n}" for n in range(12) if n != 3]
    kept = {name: found["flat"].leaves[name] for name in names} | {"new": b"new bytes"}
    late = {"late": [0, 1, 2, *range(4, 13)], "n": [0, 1, 2, *range(4, 12), 99]}
    found["edited"] = Written((edited,), kept, late)
    small = root / "small.tortilla"
    compact(edited, small)
    found["compacted"] = Written((small,), kept, late)
    return found


@pytest.mark.parametrize("reader", READERS)
def test_our_files_elsewhere_and_theirs_here(
    written: dict[str, Written], reader: str, tmp_path: Path
) -> None:
    """One start of each interpreter, which takes longer than all that it reads and writes."""
    theirs = tmp_path / "theirs"
    jobs: list[Any] = [[str(path) for path in one.paths] for one in written.values()]
    if reader in WRITERS:
        jobs.append(str(theirs))
    answers = drive(reader, "tortilla_read.py", tmp_path / "home", jobs, READERS[reader])
    if reader in WRITERS:
        check_theirs(theirs, answers.pop())
    for (name, one), answer in zip(written.items(), answers, strict=True):
        assert answer["leaves"] == digests(one.leaves), name
        # Their copy may change the order of the rows, not what they lead to.
        assert answer["compiled"] == digests(one.leaves), name
        if len(one.paths) == 1:
            roots = dict.fromkeys(path.partition("/")[0] for path in one.leaves)
            assert answer["columns"]["tortilla:id"] == list(roots), name
            for column, values in one.columns.items():
                assert answer["columns"][column] == values, name


def check_theirs(folder: Path, found: dict[str, dict[str, str]]) -> None:
    """What the reference writer made, read, copied and changed by comal."""
    assert sorted(found) == ["flat.tortilla", "nested.tortilla", "set.*.part.tortilla"]
    for name, expected in found.items():
        frame = tortilla.open(folder / name)
        leaves = frame.flatten()
        paths = leaves["internal:path"].to_pylist()
        data = leaves.read_bytes()
        assert digests(dict(zip(paths, data, strict=True))) == expected
        assert paths == list(expected)
        copied = tortilla.compile(frame, folder / "copy.tortilla", overwrite=True)
        again = tortilla.open(copied).flatten()
        assert again["internal:path"].to_pylist() == paths
        assert again.read_bytes() == data
    path = folder / "flat.tortilla"
    table = tortilla.open(path).to_arrow()
    assert table["stac:time_end"].to_pylist() == [1_600_000_001] * 12
    assert table["rai:elevation"].to_pylist() == [5] * 12
    assert table["score"].to_pylist() == list(range(12))
    append(path, [Sample("new", path=b"new")])
    assert tortilla.open(path).read("new") == b"new"
