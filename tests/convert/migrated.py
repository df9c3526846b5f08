"""Migrations, and what a migrated archive holds, told by zipfile and pyarrow alone."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from comal import taco
from comal.convert import MigrationReport, migrate
from tests.tortilla.build import write

FIELDS: dict[str, Any] = {
    "id": "moved",
    "dataset_version": "1.0.0",
    "description": "A data set for tests",
    "licenses": ["CC0-1.0"],
    "providers": [{"name": "tests"}],
    "tasks": ["other"],
}


def moved(folder: Path, data: bytes, **more: Any) -> tuple[Path, MigrationReport]:
    """The archive that a Tortilla of these bytes becomes, which is sound."""
    output = folder / "new.tacozip"
    report = migrate(write(folder, data, "old.tortilla"), output, **{**FIELDS, **more})
    assert_sound(output)
    return output, report


def leaves(path: Path, *, padding: bool = False) -> dict[str, bytes]:
    """The bytes of each leaf by its path."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            inside, _, leaf = name.partition("DATA/")
            if inside or leaf.endswith("__meta__"):
                continue
            if padding or not leaf.rpartition("/")[2].startswith("__TACOPAD__"):
                found[leaf] = archive.read(name)
    return found


def level(path: Path, number: int = 0) -> Any:
    """The table of a level."""
    with zipfile.ZipFile(path) as archive:
        data = archive.read(f"METADATA/level{number}.parquet")
    return pq.read_table(io.BytesIO(data))


def collection(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        found: dict[str, Any] = json.loads(archive.read("COLLECTION.json"))
    return found


def assert_sound(path: Path) -> None:
    """The full check finds no error, and nothing to warn of but what the source itself says."""
    report = taco.check(str(path))
    assert report.ok, [problem.to_dict() for problem in report.problems]
