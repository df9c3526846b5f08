"""Read a container in every way there is, and hold each byte against the truth."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comal.errors import ComalError
from comal.taco.reading.dataset import load
from tests.attacks.build import Tree, leaves_of


@dataclass
class Readings:
    """What came of reading everything."""

    right: set[str] = field(default_factory=set)
    """Leaves whose bytes came and were right."""
    wrong: list[str] = field(default_factory=list)
    """What came and was wrong, in words. There must never be any."""
    errors: list[ComalError] = field(default_factory=list)


def read_everything(href: Path | str, tree: Tree, **how: Any) -> Readings:
    """Open the container and read each sample by position, by id, and by the level tables.

    Errors of comal are collected; any other exception comes out, for there must not be one.
    """
    truth = dict(leaves_of(tree))
    readings = Readings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a lie that was survived is told by a warning
        try:
            dataset = load(str(href), **how)
        except ComalError as error:
            readings.errors.append(error)
            return readings
        with dataset:
            for frame in _frames(dataset, readings):
                _walk(frame, "", truth, readings)
            _by_levels(dataset, truth, readings)
    return readings


def _frames(dataset: Any, readings: Readings) -> Iterator[Any]:
    try:
        yield dataset.data
    except ComalError as error:
        readings.errors.append(error)


def _walk(frame: Any, prefix: str, truth: Mapping[str, bytes], readings: Readings) -> None:
    for row in range(len(frame)):
        try:
            name = str(frame.to_arrow()["id"][row].as_py())
            kind = frame.to_arrow()["type"][row].as_py()
            path = f"{prefix}{name}"
            if kind == "FOLDER":
                _walk(frame.read(row), path + "/", truth, readings)
                continue
            frame.read(row)
            _compare(path, frame.read_bytes(row), truth, readings)
        except ComalError as error:
            readings.errors.append(error)


def _by_levels(dataset: Any, truth: Mapping[str, bytes], readings: Readings) -> None:
    """The deepest samples by the level tables alone, and by a query over all of them."""
    try:
        depth = dataset.pit_schema.depth
        flat = dataset.flatten(depth) if depth else dataset.sql("SELECT * FROM data").data
    except ComalError as error:
        readings.errors.append(error)
        return
    table = flat.to_arrow()
    column = "internal:relative_path" if "internal:relative_path" in table.column_names else "id"
    for row in range(len(flat)):
        try:
            path = table[column][row].as_py()
            if table["type"][row].as_py() == "FILE":
                _compare(str(path), flat.read_bytes(row), truth, readings)
        except ComalError as error:
            readings.errors.append(error)


def _compare(path: str, data: bytes, truth: Mapping[str, bytes], readings: Readings) -> None:
    if path in truth and truth[path] == data:
        readings.right.add(path)
    elif path in truth:
        readings.wrong.append(f"{path!r}: {data[:40]!r} instead of {truth[path][:40]!r}")
    elif data not in truth.values():
        # An id that lies about itself may show bytes of the container, but no others.
        readings.wrong.append(f"{path!r}: {data[:40]!r}, which is not a sample")
