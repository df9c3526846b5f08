"""How each format of samples makes a file of one tree, by struct and pyarrow, and opens it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal import taco, tortilla
from comal.tortilla import spec
from tests.attacks.build import Recipe, Tree
from tests.tortilla import build

Columns = Mapping[str, Any]


@dataclass(frozen=True)
class Door:
    """One format."""

    name: str
    id: str
    """Its column of ids."""
    protected: str
    """A column, besides the ids, that no frame is without."""
    made: Callable[[Tree, Columns], bytes]
    """The file of a tree; the columns are those of its uppermost samples."""
    opened: Callable[..., Any]
    """The frame of the uppermost samples of a path, a URL or a source."""
    points: Callable[[list[tuple[float, float] | None]], Any]
    """Places as the format writes them."""
    times: Callable[[list[int | None]], Any]
    """Seconds as the format writes times."""

    def write(self, folder: Path, tree: Tree, columns: Columns | None = None) -> Path:
        path = folder / f"x.{self.name}"
        path.write_bytes(self.made(tree, columns or {}))
        return path

    def open(self, folder: Path, tree: Tree, columns: Columns | None = None) -> Any:
        return self.opened(self.write(folder, tree, columns))

    def ids(self, frame: Any) -> list[str]:
        found: list[str] = frame[self.id].to_pylist()
        return found


def _with(table: Any, columns: Columns) -> Any:
    for name, values in columns.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, values)
    return table


def _taco(tree: Tree, columns: Columns) -> bytes:
    def table(level: int, table: Any) -> Any:
        return table if level else _with(table, columns)

    return Recipe(tree=tree, table=table).build()


def _tortilla(tree: Tree, columns: Columns | None = None) -> bytes:
    items = [
        build.Item(name, content, "GTiff")
        if isinstance(content, bytes)
        else build.Item(name, _tortilla(content), "TORTILLA")
        for name, content in tree.items()
    ]
    return build.built(items, table=lambda table: _with(table, columns or {}))


def _wkb(points: list[tuple[float, float] | None]) -> Any:
    return pa.array([p and struct.pack("<BIdd", 1, 1, *p) for p in points], pa.binary())


def _wkt(points: list[tuple[float, float] | None]) -> Any:
    return pa.array([p and f"POINT ({p[0]} {p[1]})" for p in points], pa.string())


def _microseconds(seconds: list[int | None]) -> Any:
    return pa.array(seconds, pa.timestamp("s")).cast(pa.timestamp("us"))


def _seconds(seconds: list[int | None]) -> Any:
    return pa.array(seconds, pa.int64())


DOORS = (
    Door(
        "tacozip",
        "id",
        "internal:offset",
        _taco,
        lambda href, **how: taco.load(href, **how).data,
        _wkb,
        _microseconds,
    ),
    Door("tortilla", "tortilla:id", spec.SUBFILE, _tortilla, tortilla.open, _wkt, _seconds),
)
each_format = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name, scope="module")
