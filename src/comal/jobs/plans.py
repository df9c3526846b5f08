"""A plan on disk: ``job.json``, tables of its parts, and what has become of each part.

``done/NAME.json`` is the record of a part: size, checksum, counts. It is written once.
``state/NAME.json`` tells who works on it, or why it failed, and is replaced at will.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from comal import __version__, strictjson
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    UnsupportedVersionError,
    shown,
    shown_path,
    system_errors,
    translated,
)
from comal.limits import MIB, Limits
from comal.storage import local_path, targets
from comal.storage.targets import magic_kind

Location = str | os.PathLike[str]

JOB: Final = "job.json"
INDEXES: Final = {"taco": ("__TACOCAT__", ".tacocat"), "raquet": ("index.json",)}
"""By kind of plan: the names of what all parts become."""
_VERSION: Final = 1
_TABLES, DONE, STATE = "parts", "done", "state"
_RECORD: Final = magic_kind("a record of a job", b"{")
_NEEDED = {DONE: {"size", "sha256", "items"}, STATE: {"state", "host", "pid", "since"}}
DAMAGED: Mapping[type[BaseException], type[ComalError]] = dict.fromkeys(
    (LookupError, TypeError, ValueError), InvalidMetadataError
)
_LIMITS: Final = Limits(json_bytes=256 * MIB, json_digits=100)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a job: one file to make."""

    name: str
    """Name of the file."""
    items: int
    """Samples or rasters in it."""
    size: int | None = None
    """Bytes to read for it, where that is known."""
    source: str | None = None
    """What it is made of, unless tables of the plan say so."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A job as its folder describes it."""

    folder: Path
    kind: str
    """Format of the parts: ``taco`` or ``raquet``."""
    output: Path
    """Folder of the parts."""
    options: Mapping[str, Any]
    """How parts are made."""
    parts: tuple[Part, ...]

    @classmethod
    def read(cls, folder: Location) -> Plan:
        """The plan in a folder.

        Raises
        ------
        ObjectNotFoundError
            There is no plan.
        InvalidMetadataError, UnsupportedVersionError
            It is damaged, or of another version of comal, whose parts may have other bytes.
        """
        home = local_path(folder, "the plan").absolute()
        with system_errors("cannot read the plan", home, writing=False):
            data = (home / JOB).read_bytes()
        document = strictjson.loads(data, JOB, _LIMITS)
        if document.get("comal:job") != _VERSION or document.get("made_by") != __version__:
            raise UnsupportedVersionError(
                "the plan is of another version",
                where=shown_path(home),
                found=f"comal {shown(document.get('made_by'))}",
                expected=f"comal {__version__}",
            )
        with translated(DAMAGED, "the plan is damaged", where=shown_path(home / JOB)):
            parts = tuple(Part(**part) for part in document["parts"])
            names = [part.name for part in parts]
            if any(name != Path(name).name or name.startswith(".") for name in names):
                raise InvalidMetadataError("a part has no plain name", where=JOB)
            if document["kind"] not in INDEXES:
                raise InvalidMetadataError("unknown kind", found=shown(document["kind"]))
            output = Path(document["output"])
            return cls(home, document["kind"], output, dict(document["options"]), parts)

    def write(self, tables: Iterable[tuple[str, Sequence[Any]]] = ()) -> None:
        """Write the plan, with Arrow tables for its parts, into a folder that does not exist yet.

        Raises `ConflictError` if it exists, or a part or the index does.
        """
        from pyarrow import parquet as pq  # noqa: PLC0415 - RaQuet needs none

        for name in (*INDEXES[self.kind], *(part.name for part in self.parts)):
            if os.path.lexists(self.output / name):
                raise ConflictError(
                    "the target exists",
                    where=shown_path(self.output / name),
                    hint="remove it yourself, or choose another name",
                )
        document = {
            "comal:job": _VERSION,
            "made_by": __version__,
            "kind": self.kind,
            "output": str(self.output),
            "options": dict(self.options),
            "parts": [asdict(part) for part in self.parts],
        }
        try:
            data = strictjson.dumps(document)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                "an option cannot be written into a plan", found=str(error), expected="JSON"
            ) from error
        with targets.new_folder(self.folder) as new, system_errors("cannot write", self.folder):
            for name in (_TABLES, DONE, STATE):
                (new / name).mkdir()
            for part_name, levels in tables:
                for depth, table in enumerate(levels):
                    pq.write_table(table, new / _TABLES / f"{part_name}.{depth}.parquet")
            (new / JOB).write_bytes(data)
            self.output.mkdir(exist_ok=True)

    def tables(self, part: Part) -> list[Any]:
        """The tables of a part, level by level."""
        from pyarrow import ArrowException  # noqa: PLC0415 - RaQuet needs none
        from pyarrow import parquet as pq  # noqa: PLC0415

        found: list[Any] = []
        while (path := self.folder / _TABLES / f"{part.name}.{len(found)}.parquet").exists():
            with translated({ArrowException: InvalidMetadataError}, "damaged", where=str(path)):
                found.append(pq.read_table(path))
        return found

    def path(self, part: Part) -> Path:
        """The file of a part."""
        return self.output / part.name

    def told(self, part: Part, what: str) -> dict[str, Any] | None:
        """The record of a part in `DONE`, or its `STATE`."""
        path = self.folder / what / f"{part.name}.json"
        try:
            with system_errors("cannot read", path, writing=False):
                found = strictjson.loads(path.read_bytes(), path.name, _LIMITS)
        except FileNotFoundError:
            return None
        if lacking := _NEEDED[what] - found.keys():
            raise InvalidMetadataError(
                "the record is damaged",
                where=shown_path(path),
                found=f"no {', '.join(sorted(lacking))}",
                hint="remove it: the part is made again",
            )
        return found

    def tell(
        self, part: Part, what: str, document: Mapping[str, Any], *, replace: bool = True
    ) -> None:
        """Write a record or a state; the first counts unless it is to be replaced."""
        path = self.folder / what / f"{part.name}.json"
        with suppress(ConflictError), targets.new_file(path, replace, _RECORD) as file:
            file.write(strictjson.dumps(dict(document)))
