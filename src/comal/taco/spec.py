"""TACO 2.0 in constants and document types; rules for valid collections.

No bytes and no I/O here. Section numbers refer to the TACO specification 2.0.0.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, InvalidMetadataError, Problem, shown
from comal.geo.times import parse_instant
from comal.limits import DEFAULT_LIMITS


class TacoWarning(UserWarning):
    """The content has a fault, but the returned result is right."""


TACO_VERSION = "2.0.0"
READABLE_VERSIONS = re.compile(r"(0\.5\.0|2\.\d+\.\d+.*)$")
"""TACO 2 writers have always put 0.5.0 into their files, so both mean the same format."""

FILE: Final = "FILE"
FOLDER: Final = "FOLDER"
SampleType = Literal["FILE", "FOLDER"]

MAX_LEVELS = 6
"""Six levels and the collection fill the seven slots of TACO_HEADER (6.3)."""

# -- paths in a container (6.1, 6.5, 6.6) ---------------------------------------------------

DATA = "DATA/"
META = "__meta__"
META_OLD = "meta.parquet"
"""Another name of the local metadata, used once in 6.2; read, never written."""
COLLECTION = "COLLECTION.json"
TACOCAT = "__TACOCAT__"
TACOCAT_FOLDER = ".tacocat"
TACOLLECTION = "TACOLLECTION.json"
PAD_PREFIX = "__TACOPAD__"

LEVEL_PATHS = tuple(f"METADATA/level{level}.parquet" for level in range(MAX_LEVELS))
"""Paths of the consolidated metadata of each level in a container (6.1)."""


# -- columns (5.6, 7.2.3) -------------------------------------------------------------------

ID = "id"
TYPE = "type"
PATH = "path"
INTERNAL = "internal:"
CURRENT_ID = "internal:current_id"
PARENT_ID = "internal:parent_id"
OFFSET = "internal:offset"
SIZE = "internal:size"
RELATIVE_PATH = "internal:relative_path"
SOURCE_FILE = "internal:source_file"
GDAL_VSI = "internal:gdal_vsi"

CORE_COLUMNS = (ID, TYPE)
INTERNAL_COLUMNS = (
    CURRENT_ID,
    PARENT_ID,
    OFFSET,
    SIZE,
    RELATIVE_PATH,
    SOURCE_FILE,
    GDAL_VSI,
)
PROTECTED_COLUMNS = (*CORE_COLUMNS, *INTERNAL_COLUMNS)
"""Columns that navigation needs; selecting columns never drops them (7.2.3)."""

DESCRIPTIONS: Mapping[str, str] = {
    ID: "Unique sample identifier within parent scope",
    TYPE: "Sample type: FILE or FOLDER",
    CURRENT_ID: "Row index within this level",
    PARENT_ID: "Row index of the parent in the level above",
    OFFSET: "Byte offset of the sample's data in the container",
    SIZE: "Size of the sample's data in bytes",
    RELATIVE_PATH: "Path below DATA/; a FOLDER ends in a slash",
    SOURCE_FILE: "File name of the source ZIP",
}

_KEY = re.compile(r"[A-Za-z0-9_]+(:[A-Za-z0-9_]+)?")


def key_fault(key: str) -> str | None:
    """Why `key` cannot name an extension field (7.1.2), or None."""
    if key.lower() in {ID, TYPE, PATH}:  # SQL does not tell the cases of letters apart
        return "is a core field"
    if key.lower().startswith(INTERNAL):
        return "is reserved for the container"
    if not _KEY.fullmatch(key):
        return "must be letters, digits and '_', with at most one ':' after a namespace"
    if len(key) > DEFAULT_LIMITS.column_name_bytes:
        return f"is longer than {DEFAULT_LIMITS.column_name_bytes} characters"
    return None


# -- the collection (5.6, COLLECTION.json) ----------------------------------------------------

TASKS = frozenset(
    {
        "regression",
        "classification",
        "scene-classification",
        "detection",
        "object-detection",
        "segmentation",
        "semantic-segmentation",
        "instance-segmentation",
        "panoptic-segmentation",
        "similarity-search",
        "generative",
        "image-captioning",
        "super-resolution",
        "denoising",
        "inpainting",
        "colorization",
        "style-transfer",
        "deblurring",
        "dehazing",
        "foundation-model",
        "other",
    }
)
"""Names that existing tools know. Others are valid but give a warning."""

CORE_FIELDS = (
    "id",
    "dataset_version",
    "description",
    "licenses",
    "providers",
    "tasks",
    "taco_version",
    "title",
    "curators",
    "keywords",
    "extent",
)
"""Fields of COLLECTION.json in the order of writing."""
PIT_SCHEMA = "taco:pit_schema"
FIELD_SCHEMA = "taco:field_schema"
SUBSET_OF = "taco:subset_of"
SUBSET_DATE = "taco:subset_date"
SOURCES = "taco:sources"

GLOBAL_BBOX = (-180.0, -90.0, 180.0, 90.0)
_DATASET_ID = re.compile(r"[a-z0-9_-]+")
_TITLE_MAX = 250
_CONTACT_KEYS = {"name", "organization", "email", "role", "roles", "url", "links"}


def collection_problems(document: Mapping[str, Any], *, where: str = COLLECTION) -> list[Problem]:
    """All violations of 5.6 in the collection `document`.

    The writer refuses errors, the check lists them. Readers need none of these fields.
    """
    found: list[Problem] = []

    def report(key: str, message: str, severity: str = "error") -> None:
        found.append(Problem("taco-collection-field", f"{where}: {key}", message, severity))

    for key in ("id", "dataset_version", "description", "taco_version"):
        value = document.get(key)
        if not isinstance(value, str) or not value.strip():
            report(key, f"must be a string that is not empty, found {value!r}")
    if isinstance(document.get("id"), str) and not _DATASET_ID.fullmatch(document["id"]):
        report("id", f"must be lower-case letters, digits, '_' and '-', found {document['id']!r}")
    for key in ("licenses", "tasks"):
        _check_texts(document.get(key), key, report, required=True)
    _check_texts(document.get("keywords"), "keywords", report, required=False)
    tasks = document.get("tasks")
    for name in tasks if isinstance(tasks, list | tuple) else ():
        if isinstance(name, str) and name and name not in TASKS:
            report("tasks", f"{name!r} is a name that other tools do not know", "warning")
    _check_contacts(document.get("providers"), "providers", report, required=True)
    _check_contacts(document.get("curators"), "curators", report, required=False)
    title = document.get("title")
    if title is not None and (not isinstance(title, str) or len(title) > _TITLE_MAX):
        report("title", f"must be a string of at most {_TITLE_MAX} characters")
    extent = document.get("extent")
    if extent is not None:
        found.extend(extent_problems(extent, where=f"{where}: extent"))
    return found


def _check_texts(value: object, key: str, report: Any, *, required: bool) -> None:
    if value is None and not required:
        return
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) and v for v in value):
        report(key, f"must be a list of strings, found {value!r}")
    elif required and not value:
        report(key, "must name at least one")


def _check_contacts(value: object, key: str, report: Any, *, required: bool) -> None:
    if value is None and not required:
        return
    if not isinstance(value, list | tuple):
        report(key, f"must be a list of contacts, found {value!r}")
        return
    if required and not value:
        report(key, "must name at least one")
    for position, contact in enumerate(value):
        place = f"{key}[{position}]"
        if not isinstance(contact, Mapping):
            report(place, f"must be an object, found {contact!r}")
        elif not (contact.get("name") or contact.get("organization")):
            report(place, "must have a name or an organization")
        else:
            for unknown in sorted(set(contact) - _CONTACT_KEYS):
                report(place, f"{unknown!r} is not a field of a contact", "warning")


def extent_problems(extent: object, *, where: str) -> list[Problem]:
    """What is wrong with an extent object: a WGS84 box and a pair of ISO 8601 times (5.6)."""
    if not isinstance(extent, Mapping):
        return [Problem("taco-extent", where, f"must be an object, found {extent!r}")]
    found: list[Problem] = []
    box = extent.get("spatial")
    if box is not None:
        fault = _bbox_fault(box)
        if fault:
            found.append(Problem("taco-extent", f"{where}.spatial", fault))
    span = extent.get("temporal")
    if span is not None:
        fault = _span_fault(span)
        if fault:
            found.append(Problem("taco-extent", f"{where}.temporal", fault))
    return found


def _bbox_fault(box: object) -> str | None:
    if not isinstance(box, list | tuple) or len(box) != 4:
        return f"must be [west, south, east, north], found {box!r}"
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in box):
        return f"must hold four numbers, found {box!r}"
    west, south, east, north = box
    # West may be greater than east: the box then crosses the antimeridian.
    if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= north <= 90):
        return f"lies outside the world or has south above north: {box!r}"
    return None


def _span_fault(span: object) -> str | None:
    if (
        not isinstance(span, list | tuple)
        or len(span) != 2
        or not all(isinstance(time, str) for time in span)
    ):
        return f"must be two ISO times, found {span!r}"
    try:
        start, end = map(parse_instant, span)
    except InvalidInputError as error:
        return f"{error.what}: {error.found}"
    return f"ends before it starts: {list(span)}" if start > end else None


# -- PIT schema (5.5) ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PITPattern:
    """The children of every FOLDER at one position of the level above (PIT-1)."""

    n: int
    """Rows of this pattern at its level, over all parents."""
    type: tuple[str, ...]
    """FILE or FOLDER, per position."""
    id: tuple[str, ...]
    """Id, per position."""

    def to_dict(self) -> dict[str, Any]:
        """The pattern as COLLECTION.json holds it."""
        return {"n": self.n, "type": list(self.type), "id": list(self.id)}


@dataclass(frozen=True, slots=True)
class PITSchema:
    """The regular tree of a dataset: the root level and the patterns below it (5.5)."""

    root_n: int
    root_type: str
    hierarchy: Mapping[int, tuple[PITPattern, ...]] = field(default_factory=dict)
    """Patterns by level, 1 and deeper; one per FOLDER position of the level above."""
    shape: tuple[int, ...] | None = None
    """Largest number of children per level; absent in older files, ignored by readers."""

    @property
    def depth(self) -> int:
        """Index of the deepest level; 0 when the dataset is flat."""
        return max(self.hierarchy, default=0)

    @property
    def levels(self) -> int:
        """Number of levels."""
        return self.depth + 1

    def rows(self, level: int) -> int:
        """Number of rows of `level`, padding included."""
        return self.root_n if level == 0 else sum(p.n for p in self.hierarchy.get(level, ()))

    def to_dict(self) -> dict[str, Any]:
        """The value of ``taco:pit_schema``."""
        document: dict[str, Any] = {"root": {"n": self.root_n, "type": self.root_type}}
        if self.shape is not None:
            document["shape"] = list(self.shape)
        document["hierarchy"] = {
            str(level): [pattern.to_dict() for pattern in patterns]
            for level, patterns in sorted(self.hierarchy.items())
        }
        return document

    @classmethod
    def summed(cls, schemas: Sequence[PITSchema]) -> PITSchema:
        """The combined tree of several datasets: counts are summed per pattern (6.6)."""
        deepest = max(schemas, key=lambda schema: schema.levels)
        hierarchy = {
            level: tuple(
                replace(pattern, n=sum(_count_at(schema, level, place) for schema in schemas))
                for place, pattern in enumerate(patterns)
            )
            for level, patterns in deepest.hierarchy.items()
        }
        roots = sum(schema.root_n for schema in schemas)
        shapes = [schema.shape for schema in schemas if schema.shape is not None]
        shape = None
        if len(shapes) == len(schemas) and len({len(shape) for shape in shapes}) == 1:
            shape = (roots, *(max(side) for side in list(zip(*shapes, strict=True))[1:]))
        return cls(roots, deepest.root_type, hierarchy, shape)

    @classmethod
    def from_dict(cls, document: object, *, where: str = COLLECTION) -> PITSchema:
        """Parse the value of ``taco:pit_schema``.

        Raises
        ------
        InvalidMetadataError
            It is missing, or does not have the structure of 5.5.
        """
        try:
            return cls._parse(document)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InvalidMetadataError(
                f"{PIT_SCHEMA} cannot be read",
                where=where,
                found=f"{type(error).__name__}: {error}",
                expected="{root: {n, type}, hierarchy: {level: [{n, type, id}]}}",
            ) from error

    @classmethod
    def _parse(cls, document: Any) -> PITSchema:
        root = document["root"]
        if root["type"] not in {FILE, FOLDER}:
            raise ValueError(f"root type {root['type']!r}")
        hierarchy = {
            int(level): tuple(
                PITPattern(_count(p["n"]), _texts(p["type"]), _texts(p["id"])) for p in patterns
            )
            for level, patterns in (document.get("hierarchy") or {}).items()
        }
        if sorted(hierarchy) != list(range(1, len(hierarchy) + 1)):
            raise ValueError(f"levels {sorted(hierarchy)} have gaps")
        if len(hierarchy) >= MAX_LEVELS:
            raise ValueError(f"{len(hierarchy) + 1} levels, at most {MAX_LEVELS} are possible")
        shape = document.get("shape")
        return cls(
            _count(root["n"]),
            root["type"],
            hierarchy,
            None if shape is None else tuple(_count(n) for n in shape),
        )


def _count_at(schema: PITSchema, level: int, place: int) -> int:
    patterns = schema.hierarchy.get(level, ())
    return patterns[place].n if place < len(patterns) else 0


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TypeError(f"{shown(value)} is not a list of strings")
    return tuple(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


# -- field schema ---------------------------------------------------------------------------------

DESCRIPTION = b"description"
"""Metadata key of an Arrow field's description, which is written to ``taco:field_schema``."""


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def int64s(column: Any) -> npt.NDArray[np.int64]:
    """An Arrow column of integers (n,); negative for null and for values beyond int64."""
    return np.asarray(pc.fill_null(column.cast(pa.int64(), safe=False), -1), np.int64)


def type_name(kind: Any) -> str:
    """An Arrow type as ``taco:field_schema`` spells it: ``list<item: int64>``, ``timestamp[us]``.

    The child of a list is always named ``item``, whatever its name in the Parquet file.
    """
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<item: {type_name(kind.value_type)}>"
    if pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_large_binary(kind):
        return "binary"
    return str(kind)


def field_schema(levels: Sequence[Any]) -> dict[str, list[list[str]]]:
    """``taco:field_schema`` for the stored Arrow schemas of levels 0 and deeper.

    Three values per column: name, type, description (empty if there is none). A description
    applies to the columns of that name at every level; the outermost one wins.
    """
    known = dict(DESCRIPTIONS)
    for column in chain.from_iterable(reversed(levels)):
        if column.metadata and DESCRIPTION in column.metadata:
            known[column.name] = column.metadata[DESCRIPTION].decode("utf-8", "replace")
    return {
        f"level{level}": [
            [column.name, type_name(column.type), known.get(column.name, "")] for column in schema
        ]
        for level, schema in enumerate(levels)
    }


def version_is_readable(version: object) -> bool:
    """Whether a file with this ``taco_version`` can be TACO 2; a missing version can."""
    return version is None or (isinstance(version, str) and bool(READABLE_VERSIONS.match(version)))


# -- verbosity -------------------------------------------------------------------------------------


LOGGER = logging.getLogger("comal.taco")
LOGGER.addHandler(logging.NullHandler())

_HANDLER = logging.StreamHandler()
_HANDLER.setFormatter(logging.Formatter("%(name)s: %(message)s"))
_LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}


def verbose(level: bool | Literal["info", "debug"] = True) -> None:  # noqa: FBT001, FBT002 - spec 7.2.6
    """Set what TACO operations log to stderr from now on.

    Parameters
    ----------
    level
        True or ``"info"`` for progress, ``"debug"`` for queries and spans, False for nothing.
    """
    if level is False:
        LOGGER.removeHandler(_HANDLER)
        LOGGER.setLevel(logging.NOTSET)
        return
    chosen: object = "info" if level is True else level
    if not isinstance(chosen, str) or chosen not in _LEVELS:
        raise InvalidInputError(
            "unknown verbosity", found=repr(level), expected="True, 'info', 'debug' or False"
        )
    LOGGER.setLevel(_LEVELS[chosen])
    if _HANDLER not in LOGGER.handlers:
        LOGGER.addHandler(_HANDLER)
