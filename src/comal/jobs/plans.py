"""A plan in a folder or bucket: ``job.json``, tables of parts, what has become of each part.

``done/NAME.json`` is the record of a part: size, checksum, counts. It is written once.
``state/NAME.json`` tells who works on it, or why it failed, and is replaced at will.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from comal import __version__, strictjson
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectNotFoundError,
    UnsupportedVersionError,
    shown,
    shown_path,
    system_errors,
    translated,
)
from comal.limits import MIB, Limits
from comal.plan import Whole
from comal.storage import StorageConfig, open_source, targets
from comal.storage.location import stored
from comal.storage.targets import magic_kind, target_path

Location = str | os.PathLike[str]

JOB: Final = "job.json"
INDEXES: Final = {
    "taco": ("__TACOCAT__", ".tacocat"),
    "tortilla": (),
    "raquet": ("index.json",),
    "tapalcatl": ("meta.json",),
}
"""By kind of plan: the names of what all parts become."""
TREES: Final = frozenset({"tapalcatl"})
"""Kinds whose output is one tree, of which a part is many files."""
NUMBERED: Final = frozenset({"tortilla"})
"""Kinds whose parts say how many there are, so that none can be left out."""
_VERSION: Final = 2
_TABLES, DONE, STATE = "parts", "done", "state"
_RECORD: Final = magic_kind("a record of a job", b"{")
_NEEDED = {DONE: {"size", "files", "items"}, STATE: {"state", "host", "pid", "since"}}
DAMAGED: Mapping[type[BaseException], type[ComalError]] = dict.fromkeys(
    (LookupError, TypeError, ValueError), InvalidMetadataError
)
_LIMITS: Final = Limits(json_bytes=256 * MIB, json_digits=100)
_TABLE: Final = 4096 * MIB
"""The largest table of a part."""


def place_of(path: Location, config: StorageConfig | None = None) -> Path:
    """The absolute path of a folder, or a `StorePath`, which counts as one here."""
    place = target_path(path, config)
    return place.absolute() if stored(place) is None else place


def names_in(folder: Path) -> set[str]:
    """The names in a folder or below a prefix; none if there is no such folder."""
    try:
        return {name.rstrip("/") for name in open_source(folder).names()}
    except ObjectNotFoundError:
        if stored(folder) is not None:  # there is no such bucket
            raise
        return set()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a job: one file to make, or some archives of a tileset."""

    name: str
    """Name of the file."""
    items: int
    """Samples, rasters or tiles in it."""
    size: int | None = None
    """Bytes to read for it, where that is known."""
    source: str | None = None
    """What it is made of, unless tables of the plan say so."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A job as its folder describes it."""

    folder: Path
    """Where it is; as `output` a path, or a `StorePath` with the configuration to use."""
    kind: str
    """Format of the parts: ``taco``, ``tortilla``, ``raquet`` or ``tapalcatl``."""
    output: Path
    """Folder of the parts."""
    options: Mapping[str, Any]
    """How parts are made."""
    parts: tuple[Part, ...]
    config: StorageConfig | None = field(default=None, repr=False, compare=False)
    """Settings and credentials for what it reads and writes in stores; they are not kept."""

    @classmethod
    def read(cls, folder: Location, config: StorageConfig | None = None) -> Plan:
        """The plan in a folder or bucket; `config` has settings and credentials for all buckets.

        Raises
        ------
        ObjectNotFoundError
            There is no plan.
        InvalidMetadataError, UnsupportedVersionError
            It is damaged, or of another version of comal, whose parts may have other bytes.
        """
        home = place_of(folder, config)
        try:
            (data,) = _fetched(home, [JOB], _LIMITS.json_bytes)
        except ObjectNotFoundError as error:
            raise ObjectNotFoundError(
                "there is no plan",
                where=shown_path(home),
                hint="name the folder that was made by planning",
            ) from error
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
            if any(not _is_plain(part.name) for part in parts):
                raise InvalidMetadataError("a part has no plain name", where=JOB)
            if document["kind"] not in INDEXES:
                raise InvalidMetadataError("unknown kind", found=shown(document["kind"]))
            output = place_of(document["output"], config)
            return cls(home, document["kind"], output, dict(document["options"]), parts, config)

    def write(self, tables: Iterable[tuple[str, Sequence[Any]]] = ()) -> None:
        """Write the plan, with Arrow tables for its parts, into a folder that does not exist yet.

        Raises `ConflictError` if it exists, or a part or the index does, and `InvalidInputError`
        for a part whose file would be hidden.
        """
        from pyarrow import parquet as pq  # noqa: PLC0415 - RaQuet needs none

        if hidden := [part.name for part in self.parts if not _is_plain(part.name)]:
            raise InvalidInputError(
                "a part has no plain name",
                found=shown(hidden[0]),
                expected="one without a dot in front",
                hint="rename the source, or choose another name for the output",
            )
        wanted = {*INDEXES[self.kind], *(part.name for part in self.parts)}
        there = names_in(self.output)
        for name in sorted(there if self.kind in TREES else wanted & there):
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
        try:
            with targets.new_folder(self.folder) as new, system_errors("cannot write", self.folder):
                for name in (_TABLES, DONE, STATE):
                    (new / name).mkdir()
                for part_name, levels in tables:
                    for depth, table in enumerate(levels):
                        pq.write_table(table, new / _TABLES / f"{part_name}.{depth}.parquet")
                (new / JOB).write_bytes(data)  # a store gets it last
                if stored(self.output) is None:
                    self.output.mkdir(exist_ok=True)
        except ConflictError as error:
            if error.what == "the target exists":  # and not that somebody is writing it
                error.hint = "a plan is never replaced: remove the old one, or choose another name"
            raise

    def tables(self, part: Part, levels: int) -> list[Any]:
        """The tables of a part, level by level."""
        from pyarrow import ArrowException  # noqa: PLC0415 - RaQuet needs none
        from pyarrow import parquet as pq  # noqa: PLC0415

        names = [f"{part.name}.{depth}.parquet" for depth in range(levels)]
        found = _fetched(self.folder / _TABLES, names, _TABLE)
        with translated({ArrowException: InvalidMetadataError}, "damaged", where=part.name):
            return [pq.read_table(io.BytesIO(data)) for data in found]

    def told(self, parts: Sequence[Part], what: str) -> list[dict[str, Any]]:
        """The records of parts in `DONE`, or their `STATE`; `ObjectNotFoundError` if one lacks."""
        names = [f"{part.name}.json" for part in parts]
        documents = _fetched(self.folder / what, names, _LIMITS.json_bytes)
        found = [strictjson.loads(*one, _LIMITS) for one in zip(documents, names, strict=True)]
        for name, document in zip(names, found, strict=True):
            if lacking := _NEEDED[what] - document.keys():
                raise InvalidMetadataError(
                    "the record is damaged",
                    where=shown_path(self.folder / what / name),
                    found=f"no {', '.join(sorted(lacking))}",
                    hint="remove it: the part is made again",
                )
        return found

    def record(self, part: Part, document: Mapping[str, Any], *, replace: bool) -> None:
        """Write the record of a part; the first counts unless it is to be replaced."""
        path = self.folder / DONE / f"{part.name}.json"
        with suppress(ConflictError), targets.new_file(path, replace, _RECORD) as file:
            file.write(strictjson.dumps(dict(document)))

    def tell(self, part: Part, document: Mapping[str, Any]) -> None:
        """Write the state of a part; the last one counts."""
        path = self.folder / STATE / f"{part.name}.json"
        with suppress(ConflictError):  # somebody else tells it right now
            targets.write_note(path, strictjson.dumps(dict(document)), _RECORD)


def _is_plain(name: str) -> bool:
    return name == Path(name).name and not name.startswith(".")


def _fetched(folder: Path, names: Sequence[str], limit: int) -> list[bytes]:
    """Whole files of a folder or bucket, side by side; `ObjectNotFoundError` if one lacks."""
    with open_source(folder) as source:
        return [piece.data for piece in source.fetch([Whole(limit, f"./{name}") for name in names])]
