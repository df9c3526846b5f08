"""What a migration changes, or would change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from comal.errors import counted, shown
from comal.public import Summary

KINDS = ("renamed", "changed", "added", "dropped", "kept", "warning")
IDS_SCHEMA = pa.schema([("level", pa.int8()), ("old", pa.string()), ("new", pa.string())])
_LISTED = 20
"""Ids that `MigrationReport.lines` lists."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a migration changes, or that somebody should look at."""

    kind: str
    """``renamed``, ``changed``, ``added``, ``dropped``, ``kept`` (under another name, because
    TACO 2.0 does not know it) or ``warning``."""
    place: str
    """``level 0`` or ``collection``."""
    name: str
    """The column, or the field of the collection."""
    message: str
    rows: int | None = None
    """How many rows it concerns, if not all."""

    def to_dict(self) -> dict[str, Any]:
        """The change as plain data."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Missing(Summary):
    """A field of the collection that TACO 2.0 requires and the source does not have."""

    field: str
    option: str
    """The option of the command line that gives it."""
    reason: str


@dataclass(slots=True)
class Notes:
    """Changes and missing fields that are collected during a migration."""

    changes: list[Change] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def tell(self, kind: str, place: str, name: str, message: str, rows: int | None = None) -> None:
        """Note a change."""
        assert kind in KINDS
        self.changes.append(Change(kind, place, name, message, rows))


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a migration did, or with ``dry_run`` would do."""

    source: str
    """The file, or the first of several."""
    output: Path | None
    container: str
    """``zip`` or ``folder``."""
    dry_run: bool
    levels: tuple[int, ...]
    """Rows of each level, padding included."""
    leaves: int
    """FILE samples, padding left out."""
    bytes: int
    """Bytes of all leaves."""
    padding: int
    """Empty samples that fill gaps in the structure."""
    ids: Any
    """`pyarrow.Table` of ids that change: level, path of old ids, path of new ids."""
    changes: tuple[Change, ...]
    missing: tuple[Missing, ...] = ()
    """Fields of the collection that must be given; only a dry run returns with any."""

    @property
    def ok(self) -> bool:
        """Whether the source was migrated, or could be."""
        return not self.missing

    def of(self, kind: str) -> list[Change]:
        """The changes of one kind."""
        return [change for change in self.changes if change.kind == kind]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, as ``comal convert --json`` prints it."""
        return {
            "source": self.source,
            "output": None if self.output is None else str(self.output),
            "container": self.container,
            "dry_run": self.dry_run,
            "ok": self.ok,
            "levels": list(self.levels),
            "leaves": self.leaves,
            "bytes": self.bytes,
            "padding": self.padding,
            "ids": self.ids.to_pylist(),
            "changes": [change.to_dict() for change in self.changes],
            "missing": [one.to_dict() for one in self.missing],
        }

    def lines(self) -> Iterator[str]:
        """The report for people, safe to print."""
        rows = " + ".join(map(str, self.levels))
        size = counted(self.bytes, "byte")
        yield f"{counted(self.leaves, 'leaf', 'leaves')} of {size}, rows by level: {rows}"
        if self.padding:
            yield f"padding: {counted(self.padding, 'empty sample')}"
        for kind in KINDS:
            for change in self.of(kind):
                count = "" if change.rows is None else f" ({counted(change.rows, 'row')})"
                name = shown(change.name)[1:-1]
                yield f"{kind}: {change.place}, {name}: {change.message}{count}"
        yield from self._id_lines()
        for one in self.missing:
            yield f"missing: {one.field}: {one.reason}; give {one.option}"

    def _id_lines(self) -> Iterator[str]:
        count = self.ids.num_rows
        for row in self.ids.slice(0, _LISTED).to_pylist():
            yield f"id: {shown(row['old'], 120)} -> {shown(row['new'], 120)}"
        if count > _LISTED:
            yield f"id: ... and {count - _LISTED} more"
