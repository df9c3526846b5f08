"""The core columns of one footer: ids, formats, splits and spans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import names
from comal.check import Findings
from comal.errors import InvalidMetadataError, shown
from comal.lazy import pc
from comal.tortilla import spec
from comal.tortilla.reading import items
from comal.tortilla.reading.items import with_format
from comal.tortilla.wire import Opened

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Subject:
    """A footer as far as it can be used, and what messages call it."""

    table: Any
    """As it is stored, with a format for each item."""
    opened: Opened
    place: str

    @property
    def prefix(self) -> str:
        """What stands before the number of a row."""
        return f"{self.place}, " if self.place else ""

    def row(self, row: int) -> str:
        """How messages call a row."""
        name = ""
        if spec.ID in self.table.column_names:
            column = self.table[spec.ID]
            is_text = pa.types.is_string(column.type)
            name = f" ({shown(column[row].as_py())})" if is_text else ""
        return f"{self.prefix}row {row}{name}"


@dataclass(frozen=True, slots=True)
class Usable:
    """Rows whose bytes can be looked at: their spans are sound."""

    rows: Ints
    offsets: Ints
    """From the beginning of the object."""
    lengths: Ints
    formats: list[str]


_NOTHING = Usable(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), [])


def check_footer(stored: Any, opened: Opened, place: str, findings: Findings) -> Usable:
    """Check the core columns; what comes back is what can be looked at."""
    subject = Subject(with_format(stored, opened.header), opened, place)
    _check_foreign(subject, findings)
    missing = [name for name in spec.REQUIRED if name not in subject.table.column_names]
    for name in missing:
        findings.add("tortilla-column-missing", place or "footer", f"no column {name}")
    if spec.ID not in missing:
        _check_ids(subject, findings)
    if spec.FILE_FORMAT not in missing:
        _check_formats(subject, findings)
    _check_splits(subject, findings)
    if missing:
        return _NOTHING
    return _check_spans(subject, findings)


def _check_foreign(subject: Subject, findings: Findings) -> None:
    for name in subject.table.column_names:
        if name.startswith(spec.INTERNAL):
            findings.add(
                "tortilla-stored-path",
                f"{subject.prefix}column {shown(name)}",
                "only readers make such columns; it is ignored",
            )


def _texts(subject: Subject, name: str, findings: Findings) -> Any:
    """A column of texts without nulls, or None with a problem."""
    column = subject.table[name]
    if pa.types.is_null(column.type):
        column = pc.cast(column, pa.string())
    if not pa.types.is_string(column.type):
        findings.add(
            "tortilla-column-type",
            f"{subject.prefix}column {name}",
            f"found {column.type}, expected string",
        )
        return None
    code = "tortilla-id-null" if name == spec.ID else "tortilla-column-null"
    findings.add_rows(
        code,
        np.flatnonzero(np.asarray(column.is_null())),
        lambda row: (f"{subject.prefix}row {row}", f"{name} is null"),
    )
    return pc.fill_null(column, "").combine_chunks()


def _check_ids(subject: Subject, findings: Findings) -> None:
    column = _texts(subject, spec.ID, findings)
    if column is None:
        return
    known = np.flatnonzero(~np.asarray(subject.table[spec.ID].is_null()))
    ids = column.take(pa.array(known))
    for bad in names.bad_names(ids):
        findings.add("tortilla-id", subject.row(int(known[bad.row])), f"the id {bad.reason}")
    _add_twins(subject, findings, "tortilla-id-twice", names.twins(ids, fold=False), known)
    if not findings.count("tortilla-id-twice"):
        _add_twins(subject, findings, "tortilla-id-alike", names.twins(ids), known)


def _add_twins(
    subject: Subject, findings: Findings, code: str, pairs: list[tuple[int, int]], known: Ints
) -> None:
    firsts = {int(known[second]): int(known[first]) for first, second in pairs}
    findings.add_rows(
        code, list(firsts), lambda row: (subject.row(row), f"the same as row {firsts[row]}")
    )


def _check_formats(subject: Subject, findings: Findings) -> None:
    column = _texts(subject, spec.FILE_FORMAT, findings)
    if column is None:
        return
    encoded = pc.dictionary_encode(column)
    unknown = [name and spec.known_format(name) is None for name in encoded.dictionary.to_pylist()]
    rows = np.flatnonzero(np.array([bool(one) for one in unknown])[np.asarray(encoded.indices)])
    findings.add_rows(
        "tortilla-format",
        rows if len(column) else [],
        lambda row: (subject.row(row), f"unknown format {shown(column[row].as_py())}"),
    )


def _check_splits(subject: Subject, findings: Findings) -> None:
    if spec.DATA_SPLIT not in subject.table.column_names:
        return
    column = subject.table[spec.DATA_SPLIT]
    if pa.types.is_null(column.type):
        return
    if not pa.types.is_string(column.type):
        findings.add(
            "tortilla-column-type",
            f"{subject.prefix}column {spec.DATA_SPLIT}",
            f"found {column.type}, expected string",
        )
        return
    allowed = pc.is_in(column, pa.array([*spec.SPLITS, None], pa.string()))
    findings.add_rows(
        "tortilla-split",
        np.flatnonzero(~np.asarray(allowed)),
        lambda row: (
            subject.row(row),
            f"found {shown(column[row].as_py())}, expected {', '.join(spec.SPLITS)}",
        ),
    )


def _numbers(subject: Subject, name: str, findings: Findings) -> Ints | None:
    column = subject.table[name]
    place = f"{subject.prefix}column {name}"
    if column.null_count and pa.types.is_integer(column.type):
        findings.add_rows(
            "tortilla-column-null",
            np.flatnonzero(np.asarray(column.is_null())),
            lambda row: (subject.row(row), f"{name} is null"),
        )
        column = pc.fill_null(column, 0)  # an offset of 0 is outside of the data
    try:
        return items.integers(column, name, place)
    except InvalidMetadataError as error:
        findings.take_error(error, "tortilla-column-type", place)
        return None


def _check_spans(subject: Subject, findings: Findings) -> Usable:
    offsets = _numbers(subject, spec.OFFSET, findings)
    lengths = _numbers(subject, spec.LENGTH, findings)
    if offsets is None or lengths is None:
        return _NOTHING
    opened = subject.opened
    wrong = items.outside(offsets, lengths, opened.header, opened.size)
    findings.add_rows(
        "tortilla-span-bounds",
        np.flatnonzero(wrong),
        lambda row: (
            subject.row(row),
            f"bytes {offsets[row]}+{lengths[row]} are not in the data of {opened.size} bytes",
        ),
    )
    rows = np.flatnonzero(~wrong)
    holders = {
        int(rows[second]): int(rows[first])
        for first, second in items.overlaps(offsets[rows], lengths[rows])
    }
    findings.add_rows(
        "tortilla-span-overlap",
        list(holders),
        lambda row: (
            subject.row(row),
            f"bytes {offsets[row]}+{lengths[row]} overlap row {holders[row]}",
        ),
    )
    formats = subject.table[spec.FILE_FORMAT]
    if not pa.types.is_string(formats.type):  # which has been reported
        formats = pa.nulls(len(formats), pa.string())
    taken = formats.take(pa.array(rows)).to_pylist()
    return Usable(rows, offsets[rows] + opened.base, lengths[rows], taken)
