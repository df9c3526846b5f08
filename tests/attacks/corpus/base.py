"""What an attack is, and the few ways in which they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from comal.errors import ComalError, InvalidMetadataError, NotThisFormatError
from tests.attacks.build import NESTED, RawZip, Recipe, Tree, folder, header_payload, replaced

Outcome = Literal["right", "refused", "either"]


@dataclass(frozen=True)
class Attack:
    """One hostile or broken container."""

    name: str
    make: Callable[[Path], Path]
    """Writes it below a folder and returns what is to be opened."""
    tree: Tree = field(default_factory=lambda: NESTED)
    """The samples and their right bytes."""
    reads: Outcome = "refused"
    """``right``: all bytes come and are right; ``refused``: an error of ours, somewhere between
    opening and the last sample; ``either``: right bytes or an error, sample by sample."""
    error: type[ComalError] | tuple[type[ComalError], ...] = ComalError
    """Of what kind the error must be."""
    codes: frozenset[str] = frozenset()
    """What a check must report."""
    check_raises: type[ComalError] | None = None
    """What a check raises, where the file is not recognisable as TACO."""


ATTACKS: list[Attack] = []


def attack(
    name: str,
    make: Callable[[Path], Path] | Recipe,
    *codes: str,
    reads: Outcome = "refused",
    error: type[ComalError] | tuple[type[ComalError], ...] = ComalError,
    check_raises: type[ComalError] | None = None,
    tree: Tree | None = None,
) -> None:
    """Put an attack into the corpus."""
    if isinstance(make, Recipe):
        tree = make.tree
        make = zipped(make)
    ATTACKS.append(
        Attack(
            name,
            make,
            NESTED if tree is None else tree,
            reads,
            error,
            frozenset(codes),
            check_raises,
        )
    )


def zipped(recipe: Recipe) -> Callable[[Path], Path]:
    """Write the archive of a recipe."""

    def make(place: Path) -> Path:
        target = place / "attack.tacozip"
        target.write_bytes(recipe.build())
        return target

    return make


def raw(data: bytes) -> Callable[[Path], Path]:
    """Write these bytes."""

    def make(place: Path) -> Path:
        target = place / "attack.tacozip"
        target.write_bytes(data)
        return target

    return make


def foldered(recipe: Recipe, then: Callable[[Path], Any] | None = None) -> Callable[[Path], Path]:
    """Write the FOLDER form of a recipe, and then spoil it."""

    def make(place: Path) -> Path:
        target = folder(place / "attack", recipe.tree, recipe)
        if then is not None:
            then(target)
        return target

    return make


def at_level(level: int, change: Callable[[Any], Any]) -> Callable[[int, Any], Any]:
    """Change the table of one level."""
    return lambda depth, table: change(table) if depth == level else table


def set_column(level: int, column: str, values: Any, kind: Any = None) -> Callable[[int, Any], Any]:
    """Replace a column of one level; `values` may be a function of the old ones."""

    def change(table: Any) -> Any:
        old = table[column].to_pylist()
        return replaced(table, column, values(old) if callable(values) else values, kind)

    return at_level(level, change)


def first(value: Any) -> Callable[[list[Any]], list[Any]]:
    """Another value in the first row."""
    return lambda values: [value, *values[1:]]


def on_entry(name: str, **how: Any) -> Callable[[str], Mapping[str, Any]]:
    """Write one entry with these lies."""
    return lambda entry: how if entry == name else {}


def without(archive: RawZip, name: bytes) -> None:
    """Take an entry out of the directory."""
    archive.central = [header for header in archive.central if header[46:].find(name) != 0]


LEAF = "DATA/s2/imagery/before.bin"
ANY = (InvalidMetadataError, NotThisFormatError)


def fields(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Replace fields of the collection; ``__`` stands for a colon."""
    named = {name.replace("__", ":"): value for name, value in values.items()}
    return lambda document: {**document, **named}


def constant(data: bytes) -> Callable[[bytes], bytes]:
    """These bytes, whatever they should have been."""
    return lambda old: data


def tables_spoiled(spoil: Callable[[bytes], bytes]) -> Callable[[int, bytes], bytes]:
    """Spoil the Parquet bytes of every level."""
    return lambda depth, data: spoil(data)


def dropped(column: str) -> Callable[[int, Any], Any]:
    """Leave a column out of every level."""
    return lambda depth, table: table.drop_columns([column])


def appended(column: str, value: Any) -> Callable[[int, Any], Any]:
    """Add a column of one value to every level."""
    return lambda depth, table: table.append_column(column, pa.array([value] * table.num_rows))


def slots(count: int) -> Callable[[list[tuple[int, int]]], bytes]:
    """A header that says it has `count` slots."""
    return lambda pairs: header_payload(pairs, count)


def first_slot(span: tuple[int, int]) -> Callable[[list[tuple[int, int]]], bytes]:
    """A header whose first slot points elsewhere."""
    return lambda pairs: header_payload([span, *pairs[1:]])
