"""Run by the interpreter of a reference package of Tortilla 0.5: what files hold, or new files.

A job is the paths of one set to read, or the folder for files of the reference writer, whose
leaves are the answer. The argument names the module that has `load`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from common import content, digest  # type: ignore[import-not-found]  # of this folder

reader: Any = import_module(sys.argv[1])


def walk(frame: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """Path and digest of each leaf, by `read` from row to row."""
    for place, name in enumerate(frame["tortilla:id"].tolist()):
        found = frame.read(place)
        if isinstance(found, str | bytes):
            data = content(found) if isinstance(found, str) else found
            yield above + name, digest(data)
        else:
            yield from walk(found, f"{above}{name}/")


def plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - not a number
        return None
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if isinstance(value, str | int | float | bool) else None


def answer(job: list[str] | str) -> dict[str, Any]:
    """What is in files, or in those that are made."""
    if isinstance(job, list):
        return read(job)
    from tortilla_write import write  # type: ignore[import-not-found]  # not every one has it

    made: dict[str, Any] = write(job)
    return made


def read(paths: list[str]) -> dict[str, Any]:
    frame = reader.load(paths[0] if len(paths) == 1 else paths)
    columns = {
        name: [plain(value) for value in frame[name].tolist()]
        for name in frame.columns
        if name not in ("internal:subfile", "geometry")
    }
    leaves = dict(walk(frame))
    # Their copy of all rows: it takes offsets and lengths from the footer that comal wrote.
    copy = f"{paths[0]}.copy.tortilla"
    reader.compile(frame, copy, quiet=True)
    return {"leaves": leaves, "columns": columns, "compiled": dict(walk(reader.load(copy)))}
