"""Run by the interpreter of the reference writer: containers for comal to read, with digests.

A job is the folder for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tacotoolbox  # type: ignore[import-not-found]  # lives in the environment of the driver
from common import digest  # type: ignore[import-not-found]  # of this folder
from tacotoolbox.datamodel import (  # type: ignore[import-not-found]
    Sample,
    Taco,
    Tortilla,
)

Digests = dict[str, str]

FIELDS = {
    "id": "reference",
    "dataset_version": "1.0.0",
    "description": "written by the reference writer",
    "licenses": ["CC-BY-4.0"],
    "providers": [{"name": "ACME", "roles": ["producer"]}],
    "tasks": ["other"],
}


def leaf(folder: Path, name: str, payload: bytes, leaves: Digests, path: str, **fields: Any) -> Any:
    """A sample from a file of its own, because the writer deletes what it got as bytes."""
    source = folder / path.replace("/", "__")
    source.write_bytes(payload)
    leaves[path] = digest(payload)
    return Sample(id=name, path=source, **fields)


def scene(folder: Path, name: str, leaves: Digests) -> Any:
    bands = [
        leaf(folder, band, f"{name} {band}".encode() * 3, leaves, f"{name}/imagery/{band}", band=n)
        for n, band in enumerate(("before.bin", "after.bin"))
    ]
    label = leaf(
        folder, "label.txt", f"{name} label".encode(), leaves, f"{name}/label.txt", kind="l"
    )
    inner = Tortilla([Sample(id="imagery", path=Tortilla(bands), kind="i"), label])
    return Sample(id=name, path=inner, score=float(len(name)))


def nested(folder: Path, names: Sequence[str], leaves: Digests) -> Any:
    return Taco(tortilla=Tortilla([scene(folder, name, leaves) for name in names]), **FIELDS)


def answer(job: str) -> dict[str, Digests]:
    target = Path(job)
    answers: dict[str, Digests] = {}
    for name, ids in {
        "swapped.tacozip": [f"s{n}" for n in range(12)],
        "sorted.tacozip": [f"s{n:02}" for n in range(12)],
        "folder": [f"s{n}" for n in range(12)],
    }.items():
        sources = target / f"sources_{name}"
        sources.mkdir()
        answers[name] = {}
        tacotoolbox.create(nested(sources, ids, answers[name]), target / name)
    sources = target / "sources_flat"
    sources.mkdir()
    answers["flat.tacozip"] = {}
    samples = [
        leaf(sources, f"s{n}", bytes([n]) * n, answers["flat.tacozip"], f"s{n}", cloud=n / 2)
        for n in range(12)
    ]
    tacotoolbox.create(Taco(tortilla=Tortilla(samples), **FIELDS), target / "flat.tacozip")
    parts = target / "parts"
    parts.mkdir()
    answers["parts"] = {}
    for number in range(3):
        sources = target / f"sources_part{number}"
        sources.mkdir()
        ids = [f"p{number}_{n}" for n in (2, 10)]
        path = parts / f"part{number}.tacozip"
        tacotoolbox.create(nested(sources, ids, answers["parts"]), path)
    inputs = sorted(parts.glob("*.tacozip"))
    tacotoolbox.create_tacocat(inputs, parts)
    return answers
