"""The collection of a TACO v1 as COLLECTION.json (TACO 2.0, 5.6). Missing fields are reported.

A key that TACO 2.0 does not know is kept as ``tortilla:<key>``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from comal.convert.report import Missing, Notes
from comal.errors import InvalidInputError, shown
from comal.geo import boxes, times
from comal.taco import spec
from comal.taco.columns import check_key
from comal.taco.model.collection import json_value

PLACE = "collection"
OPTIONS: Mapping[str, str] = {
    "id": "--id",
    "dataset_version": "--dataset-version",
    "description": "--description",
    "licenses": "--license",
    "providers": "--provider",
    "tasks": "--task",
    "title": "--title",
    "curators": "--collection",
    "keywords": "--keyword",
    "extent": "--collection",
}
"""Fields that a caller gives, and the option of the command line for each."""

_SAME = ("id", "dataset_version", "description", "licenses", "title", "keywords", "tasks")
_CONTACT = ("name", "organization", "email", "role", "roles", "url", "links")
_MILLISECONDS = 1_000


def collection_of(
    stored: Mapping[str, Any] | None,
    given: Mapping[str, Any],
    extra: Mapping[str, Any],
    notes: Notes,
) -> dict[str, Any]:
    """Fields of COLLECTION.json, without extent where none is known, and without schemas.

    `stored` is the collection of a TACO v1, None for a Tortilla. Core fields that the caller gives
    (`given`) win; `extra` are others. `notes` collects changes and missing fields.
    """
    of_file = _Stored(notes)
    of_file.convert(stored or {}, frozenset(given))
    core = of_file.core | {name: json_value(value, name) for name, value in given.items()}
    core["taco_version"] = spec.TACO_VERSION
    fields = {name: core.get(name) for name in spec.CORE_FIELDS}
    _ask(fields, notes, frozenset(of_file.core))
    more = dict(of_file.more)
    for name, value in extra.items():
        check_key(name)
        if name in spec.CORE_FIELDS or name.startswith("taco:"):
            raise InvalidInputError(f"field {shown(name)} of the dataset is reserved", field=name)
        more[name] = json_value(value, name)
    return fields | more


def _ask(fields: Mapping[str, Any], notes: Notes, stored: frozenset[str]) -> None:
    reasons: dict[str, str] = {}
    for problem in spec.collection_problems(fields):
        name = problem.place.partition(": ")[2].partition("[")[0].partition(".")[0]
        if problem.severity != "error":
            notes.tell("warning", PLACE, name, problem.message)
        elif name not in reasons:
            empty = fields.get(name) in (None, "", [])
            reasons[name] = "is missing" if empty else problem.message
    for name, reason in reasons.items():
        notes.missing.append(Missing(name, OPTIONS.get(name, "--collection"), reason))
    if fields["title"] is None and stored:
        notes.tell("warning", PLACE, "title", "is null, as its writer always left it")


def refuse_missing(missing: list[Missing], where: str) -> None:
    """Raise for fields that TACO 2.0 requires and nobody has given; names their options."""
    if not missing:
        return
    options = " ".join(f"{one.option} ..." for one in missing)
    names = ", ".join(f"{one.field}=" for one in missing)
    raise InvalidInputError(
        "the collection lacks fields that TACO 2.0 requires",
        where=where,
        found="; ".join(f"{one.field} {one.reason}" for one in missing),
        hint=f"give {options} (in Python: {names})",
        missing=[one.field for one in missing],
    )


class _Stored:
    """The collection of a TACO v1 while it is converted."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.core: dict[str, Any] = {}
        self.more: dict[str, Any] = {}

    def convert(self, stored: Mapping[str, Any], given: frozenset[str]) -> None:
        """Fill `core` and `more`; skips fields that the caller gives."""
        left = {name: value for name, value in stored.items() if value is not None}
        for name in _SAME:
            if name in left:
                self.core[name] = left.pop(name)
        rules: Mapping[str, Callable[[Any], None]] = {
            "task": self._task,
            "extent": self._extent,
            "providers": lambda value: self._contacts("providers", value),
            "curators": lambda value: self._contacts("curators", value),
            "split_strategy": self._split,
            "optical_data": self._optical,
            "labels": self._labels,
            "scientific": self._scientific,
        }
        for name, rule in rules.items():
            if name in left and name not in given:
                rule(left.pop(name))
        for name, value in left.items():
            if name not in given:
                self._keep(name, value)

    def _tell(self, kind: str, name: str, message: str) -> None:
        self.notes.tell(kind, PLACE, name, message)

    def _keep(self, name: str, value: Any) -> None:
        key = f"tortilla:{''.join(c if c.isalnum() and c.isascii() else '_' for c in name)}"
        self.more[key] = value
        self._tell("kept", name, f"has no place in TACO 2.0; kept as {key}")

    def _task(self, value: Any) -> None:
        self.core["tasks"] = value if isinstance(value, list) else [value]
        self._tell("changed", "task", "is now tasks, a list")

    # -- extent ------------------------------------------------------------------------------------

    def _extent(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            self._keep("extent", value)
            return
        spatial = self._spatial(value.get("spatial"))
        temporal = self._temporal(value.get("temporal"))
        if spatial is None and temporal is None:
            return
        extent = {"spatial": spatial, "temporal": temporal}
        if spec.extent_problems(extent, where=""):
            self._keep("extent", value)
            return
        self.core["extent"] = extent
        self._tell(
            "changed", "extent", "the lists of boxes and of times become one box and one pair"
        )

    def _spatial(self, value: Any) -> list[float] | None:
        if value is None:
            return None
        flat = _numbers(value)
        several = [value] if flat else value
        if not isinstance(several, list) or not several or not all(map(_numbers, several)):
            self._tell("dropped", "extent", f"not a box of four numbers: {shown(value)}")
            return None
        if len(several) == 1:
            return [float(side) for side in several[0]]
        united = boxes.union_box(*np.array(several, np.float64).T)
        self._tell("warning", "extent", f"{len(several)} boxes become one around all of them")
        return None if united is None else [float(side) for side in united]

    def _temporal(self, value: Any) -> list[str] | None:
        if value is None:
            return None
        several = isinstance(value, list) and value and isinstance(value[0], list)
        pairs = value if several else [value]
        try:
            spans = [(_instant(start), _instant(end)) for start, end in pairs]
            ends = min(start for start, _ in spans), max(end for _, end in spans)
            return [times.isoformat(end) for end in ends]
        except (InvalidInputError, TypeError, ValueError, OverflowError):
            # Report anything that is not a pair, or holds no times.
            self._tell("dropped", "extent", f"not a pair of times: {shown(value)}")
            return None

    # -- contacts ----------------------------------------------------------------------------------

    def _contacts(self, name: str, value: Any) -> None:
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            self.core[name] = value  # reported by the check of the fields
            return
        pairs = [_contact(one) for one in value]
        self.core[name] = [contact for contact, _ in pairs]
        lost = sorted({key for _, keys in pairs for key in keys})
        if lost:
            self.more[f"tortilla:{name}"] = value
            message = f"have no place in TACO 2.0; all contacts are kept as tortilla:{name}"
            self._tell("kept", name, f"{', '.join(map(shown, lost))} {message}")

    # -- extensions --------------------------------------------------------------------------------

    def _split(self, value: Any) -> None:
        self.more["split:strategy"] = value
        self._tell("renamed", "split_strategy", "is now split:strategy")

    def _optical(self, value: Any) -> None:
        bands = value.get("bands") if isinstance(value, Mapping) else None
        if not isinstance(bands, list) or set(value) - {"sensor", "bands"}:
            self._keep("optical_data", value)
            return
        self.more["optical:sensor"] = value.get("sensor")
        self.more["optical:bands"] = bands
        self.more["optical:num_bands"] = len(bands)
        self._tell("renamed", "optical_data", "is now optical:sensor and optical:bands")

    def _labels(self, value: Any) -> None:
        classes = value.get("label_classes") if isinstance(value, Mapping) else None
        whole = isinstance(classes, list) and all(isinstance(one, Mapping) for one in classes)
        if not whole or set(value) - {"label_classes", "label_description"}:
            self._keep("labels", value)
            return
        assert isinstance(classes, list)
        self.more["labels:classes"] = [_label(one) for one in classes]
        self.more["labels:description"] = value.get("label_description")
        self.more["labels:num_classes"] = len(classes)
        self._tell("renamed", "labels", "is now labels:classes, with categories as text")

    def _scientific(self, value: Any) -> None:
        keys = {"doi", "citation", "summary"}
        more = value.get("publications") or [] if isinstance(value, Mapping) else None
        if not isinstance(more, list) or set(value) - {*keys, "publications"}:
            self._keep("scientific", value)
            return
        own = {key: value.get(key) for key in ("doi", "citation", "summary")}
        first = [own] if any(part is not None for part in own.values()) else []
        self.more["publications"] = [*first, *more]
        self._tell("renamed", "scientific", "is now publications, with its own first")


def _numbers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
    )


def _instant(value: Any) -> int:
    """Microseconds from ISO text, or from milliseconds, as the specification of v1 has them."""
    if isinstance(value, int) and not isinstance(value, bool):
        value *= _MILLISECONDS
    return times.parse_instant(value)


def _contact(contact: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A contact of TACO 2.0, and the keys that do not fit into it."""
    known = {key: value for key, value in contact.items() if value not in (None, [], "")}
    made = {key: known.pop(key) for key in _CONTACT if key in known}
    emails = known.get("emails")
    if isinstance(emails, list) and all(isinstance(one, Mapping) for one in emails):
        addresses = [one["value"] for one in emails if one.get("value")]
        if addresses and "email" not in made:
            made["email"] = addresses.pop(0)
        if not addresses and not any(one.get("roles") for one in emails):
            del known["emails"]
    return made, list(known)


def _label(one: Mapping[str, Any]) -> dict[str, Any]:
    category = one.get("category")
    return {**one, "category": category if category is None else str(category)}
