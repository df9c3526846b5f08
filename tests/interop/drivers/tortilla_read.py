"""Run by the interpreter of a reference reader of Tortilla 0.5: what files hold, as JSON.

Standard input is a list of jobs, ``{"paths": [...]}``; standard output is an answer to each, or
``{"error": traceback}``. The first argument names the module that has `load`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import traceback
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

reader: Any = import_module(sys.argv[1])


def content(vsi: str) -> bytes:
    """The bytes that a GDAL string names, without GDAL."""
    span, _, path = vsi.removeprefix("/vsisubfile/").partition(",")
    offset, _, size = span.partition("_")
    with open(path, "rb") as file:  # noqa: PTH123 - as small as it can be
        file.seek(int(offset))
        return file.read(int(size))


def walk(frame: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """Path and digest of each leaf, by `read` from row to row."""
    for place, name in enumerate(frame["tortilla:id"].tolist()):
        found = frame.read(place)
        if isinstance(found, str | bytes):
            data = content(found) if isinstance(found, str) else found
            yield above + name, hashlib.sha256(data).hexdigest()
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


def answer(paths: list[str], output: str) -> dict[str, Any]:
    frame = reader.load(paths[0] if len(paths) == 1 else paths)
    columns = {
        name: [plain(value) for value in frame[name].tolist()]
        for name in frame.columns
        if name not in ("internal:subfile", "geometry")
    }
    answer: dict[str, Any] = {"leaves": dict(walk(frame)), "columns": columns}
    # Their copy of all rows: it takes offsets and lengths from the footer that comal wrote.
    reader.compile(frame, output, quiet=True)
    answer["compiled"] = dict(walk(reader.load(output)))
    return answer


def main() -> None:
    warnings.simplefilter("ignore")
    answers: list[dict[str, Any]] = []
    for number, job in enumerate(json.load(sys.stdin)):
        with contextlib.redirect_stdout(sys.stderr):
            try:
                output = str(Path.cwd() / f"compiled{number}.tortilla")
                answers.append(answer(job["paths"], output))
            except Exception:  # noqa: BLE001 - whatever the reader raises is the answer
                answers.append({"error": traceback.format_exc()})
    json.dump(answers, sys.stdout)


main()
