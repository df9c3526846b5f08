"""Commands run in this process, and small data sets to run them on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from comal import taco
from tests.support import command

Run = Callable[..., Result]

COLLECTION: dict[str, Any] = {
    "id": "tiny",
    "dataset_version": "1.0.0",
    "description": "A data set for tests",
    "licenses": ["CC0-1.0"],
    "providers": [{"name": "tests"}],
    "tasks": ["other"],
}


@pytest.fixture
def run() -> Run:
    """Run a command line; what it printed and its exit code come back."""
    return command


def payload(name: str) -> bytes:
    """The bytes of one leaf: they name it."""
    return f"the bytes of {name}\n".encode() * 3


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """A ZIP of five samples with a number each."""
    samples = [
        taco.Sample(id=f"s{number}", path=payload(f"s{number}"), number=number, name=f"n {number}")
        for number in range(5)
    ]
    output = tmp_path / "flat.tacozip"
    taco.create(taco.Taco(taco.Tortilla(samples), **COLLECTION), output)
    return output


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """A ZIP of two scenes, out of alphabetical order, with two files each."""
    samples = [
        taco.Sample(
            id=scene,
            path=taco.Tortilla(
                [
                    taco.Sample(id=name, path=payload(f"{scene}/{name}"))
                    for name in ("a.bin", "b.bin")
                ]
            ),
            cloud=float(number),
        )
        for number, scene in enumerate(("s10", "s2"))
    ]
    output = tmp_path / "nested.tacozip"
    taco.create(taco.Taco(taco.Tortilla(samples), **COLLECTION), output)
    return output


NESTED_KEYS = ["s10/a.bin", "s10/b.bin", "s2/a.bin", "s2/b.bin"]
