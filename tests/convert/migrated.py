"""Migrations, and what a migrated archive holds, told by struct, zipfile and pyarrow alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comal import taco
from comal.convert import MigrationReport, migrate
from tests.taco.write import small
from tests.taco.write.small import Archive
from tests.tortilla.build import write

FIELDS: dict[str, Any] = {**small.FIELDS, "id": "moved"}


def moved(folder: Path, data: bytes, **more: Any) -> tuple[Path, MigrationReport]:
    """The archive that a Tortilla of these bytes becomes, which is sound."""
    output = folder / "new.tacozip"
    report = migrate(write(folder, data, "old.tortilla"), output, **{**FIELDS, **more})
    assert_sound(output)
    return output, report


def leaves(path: Path, *, padding: bool = False) -> dict[str, bytes]:
    """The bytes of each leaf by its path."""
    archive = Archive(path)
    assert archive.zip.testzip() is None
    found = archive.entries()
    return {name: found[name] for name in found if padding or "__TACOPAD__" not in name}


def level(path: Path, number: int = 0) -> Any:
    """The table of a level."""
    return Archive(path).level(number)


def collection(path: Path) -> dict[str, Any]:
    return Archive(path).collection


def assert_sound(path: Path) -> None:
    """The full check finds no error, and nothing to warn of but what the source itself says."""
    report = taco.check(str(path))
    assert report.ok, [problem.to_dict() for problem in report.problems]
