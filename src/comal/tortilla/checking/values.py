"""Optional columns of the specification: does what they say make sense."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.check import OF_CONTENT, Findings
from comal.errors import shown
from comal.geo import footprints, wkb
from comal.geo.boxes import arc_width
from comal.lazy import pc
from comal.limits import MIB
from comal.plan import ByteRange
from comal.samples.filters import crs_problem, ends_before, good_lists, unknown_crs
from comal.storage import Source
from comal.tortilla import spec
from comal.tortilla.checking.footer import Subject
from comal.tortilla.reading.items import typed_column
from comal.tortilla.spec import TortillaWarning

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_NEAR = 0.01
"""Degrees that a centroid may be off: writers leave out rotation and round to six decimals."""
_ROUNDED = 2e-6


def check_values(subject: Subject, findings: Findings) -> None:
    """Check the columns of STAC and RAI."""
    columns = _columns(subject, findings)
    _check_crs(subject, columns, findings)
    _check_lists(subject, columns, findings)
    _check_times(subject, columns, findings)
    _check_centroids(subject, columns, findings)
    for name in spec.RAI_RANGES:
        if name in columns:
            _check_range(subject, name, columns[name], findings)


def _columns(subject: Subject, findings: Findings) -> dict[str, Any]:
    """The optional columns of the specification in its types; the others are problems."""
    found: dict[str, Any] = {}
    for stored in subject.table.column_names:
        name = spec.ALIASES.get(stored, stored)
        if name not in spec.TYPES or name in spec.CORE or name in found:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TortillaWarning)
            column = typed_column(name, subject.table[stored], subject.place)
        if column.type.equals(spec.TYPES[name]):
            found[name] = column
            continue
        findings.add(
            "tortilla-column-type",
            f"{subject.prefix}column {shown(stored)}",
            f"found {column.type}, expected {spec.TYPES[name]}",
        )
    return found


def _rows(
    subject: Subject, findings: Findings, code: str, wrong: Any, tell: Callable[[int], str]
) -> None:
    findings.add_rows(code, np.flatnonzero(wrong), lambda row: (subject.row(row), tell(row)))


def _floats(column: Any) -> Floats:
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), np.float64)


def _check_range(subject: Subject, name: str, column: Any, findings: Findings) -> None:
    low, high = spec.RAI_RANGES[name]
    values = _floats(column)
    known = np.asarray(column.is_valid())
    wrong = known & ~((values >= low) & (values <= high))
    _rows(
        subject,
        findings,
        "tortilla-rai-range",
        wrong,
        lambda row: f"{name} is {values[row]:g}, not {low:g} to {high:g}",
    )


def _check_crs(subject: Subject, columns: dict[str, Any], findings: Findings) -> None:
    if spec.CRS not in columns:
        return
    wrong = unknown_crs(columns[spec.CRS].combine_chunks())
    findings.add_rows("tortilla-crs", list(wrong), lambda row: (subject.row(row), wrong[row]))


def _check_lists(subject: Subject, columns: dict[str, Any], findings: Findings) -> None:
    for name, code, count in (
        (spec.GEOTRANSFORM, "tortilla-geotransform", 6),
        (spec.RASTER_SHAPE, "tortilla-raster-shape", 2),
    ):
        if name in columns:
            _check_list(subject, columns[name].combine_chunks(), name, code, count, findings)


def _check_list(
    subject: Subject, column: Any, name: str, code: str, count: int, findings: Findings
) -> None:
    _rows(
        subject,
        findings,
        code,
        ~good_lists(column, count, count, positive=name == spec.RASTER_SHAPE),
        lambda row: f"{name} is {shown(column[row].as_py())}, expected {count} numbers",
    )


def _check_times(subject: Subject, columns: dict[str, Any], findings: Findings) -> None:
    for name in (spec.TIME_START, spec.TIME_END):
        if name in columns:
            _check_units(subject, name, _floats(columns[name]), findings)
    if spec.TIME_START in columns and spec.TIME_END in columns:
        _rows(
            subject,
            findings,
            "tortilla-time-order",
            ends_before(columns[spec.TIME_START], columns[spec.TIME_END]),
            lambda row: (
                f"starts at {columns[spec.TIME_START][row]}, ends at {columns[spec.TIME_END][row]}"
            ),
        )


def _check_units(subject: Subject, name: str, values: Floats, findings: Findings) -> None:
    for odd, what in spec.odd_times(values):
        _rows(
            subject,
            findings,
            "tortilla-time-year" if what == "a year" else "tortilla-time-unit",
            odd,
            lambda row, what=what: (  # type: ignore[misc]
                f"{name} is {values[row]:.0f}: {what}, where seconds since 1970 belong"
            ),
        )


def _check_centroids(subject: Subject, columns: dict[str, Any], findings: Findings) -> None:
    if spec.CENTROID not in columns:
        return
    column = columns[spec.CENTROID].combine_chunks()
    x, y = wkb.text_points_xy(column)
    lost = np.asarray(column.is_valid()) & ~(np.isfinite(x) & np.isfinite(y))
    _rows(
        subject,
        findings,
        "tortilla-centroid",
        lost,
        lambda row: f"{shown(column[row].as_py())} is no POINT (longitude latitude)",
    )
    expected = _centres(columns)
    if expected is None:
        return
    lon, lat, corners = expected
    with np.errstate(invalid="ignore"):
        apart = np.abs((x - lon + 180) % 360 - 180) > _NEAR
        apart |= np.abs(y - lat) > _NEAR
    outside = _outside(x, y, corners)
    _rows(
        subject,
        findings,
        "tortilla-centroid",
        outside & ~apart & ~lost,
        lambda row: f"{shown(column[row].as_py())} lies outside of its raster",
    )
    _rows(
        subject,
        findings,
        "tortilla-centroid",
        apart & ~lost,
        lambda row: (
            f"{shown(column[row].as_py())} is not the middle of the raster, "
            f"{lon[row]:.6f} {lat[row]:.6f}"
        ),
    )


def _centres(
    columns: dict[str, Any],
) -> tuple[Floats, Floats, Floats] | None:
    """Middles and boxes of rasters, NaN where columns tell none."""
    if not {spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE} <= set(columns):
        return None
    crs, affine, shape = (
        columns[name].combine_chunks() for name in (spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE)
    )
    good = good_lists(affine, 6, 6) & good_lists(shape, 2, 2, positive=True)
    known = {name for name in crs.unique().to_pylist() if name and crs_problem(name) is None}
    good &= np.asarray(pc.fill_null(pc.is_in(crs, pa.array(sorted(known), pa.string())), False))
    for column in (crs, affine, shape):
        good &= np.asarray(column.is_valid())
    lon, lat = np.full(len(crs), np.nan), np.full(len(crs), np.nan)
    corners = np.full((4, len(crs)), np.nan)
    rows = pa.array(np.flatnonzero(good))
    if len(rows):
        chosen = crs.take(rows), affine.take(rows), shape.take(rows)
        lon[good], lat[good] = footprints.centroids(*chosen)
        corners[:, good] = footprints.footprints(*chosen)
    return lon, lat, corners


def _outside(x: Floats, y: Floats, corners: Floats) -> Mask:
    """Which points lie in no box of their own row, by more than they are rounded."""
    west, south, east, north = corners
    with np.errstate(invalid="ignore"):
        ahead = np.mod(x - west + _ROUNDED, 360)
        found: Mask = ahead > arc_width(west, east) + 2 * _ROUNDED
        found |= (y < south - _ROUNDED) | (y > north + _ROUNDED)
    return found


# -- payloads --------------------------------------------------------------------------------------


_AT_ONCE = 16 * MIB
_COUNT = 4_096
_BLOCK = 4 * MIB
_BEGINNING = 64


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of one item that are to be looked at."""

    offset: int
    size: int
    format: str
    place: str


def check_payloads(source: Source, payloads: Sequence[Payload], findings: Findings) -> None:
    """Read payloads and compare them with their formats; memory is bounded by a batch."""
    for batch in _batches(payloads):
        if len(batch) == 1 and batch[0].size > _AT_ONCE:
            _check_large(source, batch[0], findings)
            continue
        try:
            pieces = source.fetch([ByteRange(one.offset, one.size) for one in batch])
        except OF_CONTENT as error:
            findings.take_error(error, "tortilla-item", batch[0].place)
            continue
        for one, piece in zip(batch, pieces, strict=True):
            _judge(one, piece.data[:_BEGINNING], findings, zero=_is_zero(piece.data))


def _batches(payloads: Sequence[Payload]) -> Iterator[list[Payload]]:
    batch: list[Payload] = []
    size = 0
    for one in payloads:
        if batch and (size + one.size > _AT_ONCE or len(batch) >= _COUNT):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


def _check_large(source: Source, one: Payload, findings: Findings) -> None:
    beginning, zero = b"", True
    try:
        with source.file("", one.offset, one.size) as file:
            while block := file.read(_BLOCK):
                beginning = beginning or block[:_BEGINNING]
                zero = zero and _is_zero(block)
    except OF_CONTENT as error:
        findings.take_error(error, "tortilla-item", one.place)
        return
    _judge(one, beginning, findings, zero=zero)


def _is_zero(data: bytes) -> bool:
    return data.count(0) == len(data)


def _judge(one: Payload, beginning: bytes, findings: Findings, *, zero: bool) -> None:
    name = spec.known_format(one.format) or one.format
    signatures = spec.SIGNATURES.get(name)
    if signatures is not None and not beginning.startswith(signatures):
        found = beginning[:8].hex(" ") if beginning else "nothing"
        findings.add(
            "tortilla-magic", one.place, f"the bytes do not begin as {shown(name)}: {found}"
        )
    if zero and one.size:
        findings.add(
            "tortilla-zero",
            one.place,
            f"all {one.size} bytes are zero; some early writers lost items so",
        )
