"""Ids and metadata columns of a Tortilla by the rules of TACO 2.0 (5.6 and 7.1.2).

Tortilla stores rows and columns of a raster, TACO 2.0 the number of bands as well, which is read
from the first bytes of a TIFF, or from the directory that these point to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal import names
from comal.convert.report import Notes
from comal.errors import InvalidInputError, shown
from comal.geo import times, wkb
from comal.limits import KIB
from comal.progress import Progress
from comal.samples.payloads import Spans
from comal.taco import spec as taco_spec
from comal.taco.columns import described, normal_table
from comal.taco.copying.foreign import safe_name
from comal.taco.extensions.places import STAC_SCHEMA as STAC
from comal.taco.model.levels import flat
from comal.tortilla import spec
from comal.tortilla.archive import Home, Level

Rows = npt.NDArray[np.int64]
Rule = Mapping[str, str] | Callable[[str], str | None]
"""New names that the caller gives for old ids; None or absent keeps the old id."""

_ILLEGAL = "/\\:"


def legal_ids(ids: Any, parents: Rows | None, rule: Rule | None = None) -> Any:
    """Ids that follow the rules of TACO 2.0, 5.6, unique among siblings.

    `parents` is a number that siblings share, None when all rows are siblings. The `rule` of the
    caller may give two old ids the same name if they mean the same thing below different parents.
    Legal ids are kept; if several become equal, the legal one keeps the name, and the others get
    ``_2``, ``_3`` in the order of the rows.
    """
    encoded = pc.dictionary_encode(ids)
    wanted = encoded.dictionary if rule is None else _given(encoded.dictionary, rule)
    again = pc.dictionary_encode(wanted)
    distinct = _told_apart(again.dictionary, _mended(again.dictionary))
    found = distinct.take(again.indices).take(encoded.indices)
    return _numbered(found, parents)


def _given(originals: Any, rule: Rule) -> Any:
    ask = rule.get if isinstance(rule, Mapping) else rule
    asked = ((row, ask(old)) for row, old in enumerate(originals.to_pylist()))
    new = {row: name for row, name in asked if name is not None}
    for row, name in new.items():
        reason = _fault(name)
        if reason is not None:
            raise InvalidInputError(
                f"{shown(name)} cannot be the new id",
                where=shown(originals[row].as_py()),
                found=f"a name that {reason}",
                expected="a name that every file system can hold (TACO 2.0, 5.6)",
            )
    return _replaced(originals, new)


def _fault(name: object) -> str | None:
    if not isinstance(name, str):
        return "is not text"
    if name.startswith("__"):
        return "begins with '__', which is reserved"  # as the names of padding do
    return names.illegal(name) or names.risky(name)


def _mended(originals: Any) -> Any:
    rows = {bad.row for bad in names.bad_names(originals, tier=2)}
    reserved = pc.starts_with(originals, "__").to_numpy(zero_copy_only=False)
    rows |= set(np.flatnonzero(reserved).tolist())
    return _replaced(originals, {row: mended(originals[row].as_py()) for row in sorted(rows)})


def mended(name: str) -> str:
    """A legal id that is as close to `name` as possible."""
    text = "".join("_" if one in _ILLEGAL or not one.isprintable() else one for one in name)
    text = "".join("_" if names.illegal(f"a{one}") else one for one in text)
    if text in {"", ".", ".."}:
        text = "unnamed"
    text = safe_name(text)
    if text.startswith("__"):
        text = "_" + text.lstrip("_")
    return text if _fault(text) is None else safe_name("id" + text)


def _told_apart(originals: Any, ids: Any) -> Any:
    """Different names for different originals; an unchanged one keeps its name."""
    changed = np.asarray(pc.not_equal(originals, ids).to_numpy(zero_copy_only=False), bool)
    order = np.argsort(changed, kind="stable")
    apart = _numbered(ids.take(pa.array(order)), None)
    return apart.take(pa.array(np.argsort(order)))


def _numbered(ids: Any, parents: Rows | None) -> Any:
    """Number later rows that have the name of a sibling, ignoring case."""
    pairs = names.twins(ids, parents)
    if not pairs:
        return ids
    later = sorted({second for _, second in pairs})
    owner = np.zeros(len(ids), np.int64) if parents is None else parents
    involved = np.flatnonzero(np.isin(owner, owner[later]))
    folded = names.folded(ids.take(pa.array(involved))).to_pylist()
    taken = set(zip(owner[involved].tolist(), folded, strict=True))
    counts: dict[tuple[int, str], int] = {}
    new: dict[int, str] = {}
    for row in later:
        name, parent = ids[row].as_py(), int(owner[row])
        key = parent, name
        while True:
            counts[key] = counts.get(key, 1) + 1
            candidate = _with_number(name, counts[key])
            mark = parent, str(names.folded(pa.array([candidate], pa.string()))[0].as_py())
            if mark not in taken:
                break
        taken.add(mark)
        new[row] = candidate
    return _replaced(ids, new)


def _with_number(name: str, number: int) -> str:
    stem, dot, ending = name.partition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    return mended(f"{stem}_{number}{dot}{ending}")


def _replaced(column: Any, new: Mapping[int, str]) -> Any:
    if not new:
        return column
    mask = np.zeros(len(column), bool)
    rows = sorted(new)
    mask[rows] = True
    values = pa.array([new[row] for row in rows], pa.string())
    return pc.replace_with_mask(column, pa.array(mask), values)


def positions(parents: Rows) -> Any:
    """Ids by the position of a row among its siblings: ``0000``, ``0001``, ..."""
    first = np.searchsorted(parents, parents, side="left")  # rows are grouped by parent
    place = np.arange(len(parents)) - first
    known = [f"{number:04d}" for number in range(int(place.max(initial=-1)) + 1)]
    return pa.array(known, pa.string()).take(pa.array(place))


Ints = npt.NDArray[np.int64]

_TENSOR_SHAPE = "stac:tensor_shape"
_TIME_MIDDLE = "stac:time_middle"
_SPLIT = "split"
_MICROS = 1_000_000
_LARGEST = (2**63 - 1) // _MICROS
_YEARS = (1_800, 2_200)
_TEXTS: Mapping[str, str] = {
    spec.FILE_FORMAT: "GDAL driver, BYTES or TORTILLA, as the Tortilla had it",
    spec.ID: "Id in the Tortilla",
    _SPLIT: "Part of the dataset: train, validation or test",
    spec.ELEVATION: "Mean elevation in metres",
    "rai:cisi": "Critical Infrastructure Spatial Index, 0 to 1",
    "rai:gdp": "Gross domestic product",
    "rai:hdi": "Human Development Index, 0 to 1",
    "rai:gmi": "Global Human Modification Index, 0 to 1",
    "rai:pop": "Population",
    "rai:admin0": "Country",
    "rai:admin1": "State or province",
    "rai:admin2": "District",
}
_STORED = (spec.ID, spec.OFFSET, spec.LENGTH, spec.PART)
"""Columns that become the id or the span."""


@dataclass(slots=True)
class Footer:
    """The columns of one level during conversion."""

    table: Any
    place: str
    notes: Notes
    bands: Ints
    """Bands of each row's raster, 0 where they are not known."""

    def tell(self, kind: str, name: str, message: str, rows: int | None = None) -> None:
        """Note a change."""
        self.notes.tell(kind, self.place, name, message, rows)


def fields_of(of: Footer, *, keep_ids: bool) -> Any:
    """The metadata fields of one level, in the order of the source's columns.

    `keep_ids` keeps the ids of the source as the field ``tortilla:id``.
    """
    table = of.table
    made: dict[str, tuple[Any, Any]] = {}
    extras: list[str] = []
    for name in table.column_names:
        if name in _STORED:
            continue
        if name not in spec.TYPES:
            extras.append(name)
            continue
        column = flat(table[name])
        if len(column) and column.null_count == len(column):
            of.tell("dropped", name, "holds no values")
            continue
        for target, values in _RULES.get(name, _same)(of, name, column).items():
            made[target] = _field(target, values), values
    if keep_ids:
        made[spec.ID] = described(spec.ID, pa.string(), _TEXTS[spec.ID]), flat(table[spec.ID])
    for name in extras:
        _extra(of, made, name)
    schema = pa.schema([field for field, _ in made.values()])
    return normal_table(pa.table([column for _, column in made.values()], schema=schema), of.place)


def _field(target: str, values: Any) -> Any:
    position = STAC.get_field_index(target)
    if position >= 0 and STAC.field(position).type.equals(values.type):
        return STAC.field(position)
    return described(target, values.type, _TEXTS.get(target))


# -- columns of the specification ------------------------------------------------------------------


def _same(_: Footer, name: str, column: Any) -> dict[str, Any]:
    return {name: column}


def _split(of: Footer, name: str, column: Any) -> dict[str, Any]:
    if not pa.types.is_string(column.type):
        return _unmapped(of, name, column, f"is {column.type}, not text")
    of.tell("renamed", name, f"is now {_SPLIT}")
    known = pc.is_in(column, pa.array(spec.SPLITS))
    odd = len(column) - column.null_count - (pc.sum(known).as_py() or 0)
    if odd:
        of.tell("warning", name, f"is not one of {', '.join(spec.SPLITS)}", odd)
    return {_SPLIT: column}


def _shape(of: Footer, name: str, column: Any) -> dict[str, Any]:
    lists = integer_lists(column)
    if lists is None:
        return _unmapped(of, name, column, "holds no lists of integers")
    shapes, plain = tensor_shapes(lists, of.bands)
    of.tell("renamed", name, f"is now {_TENSOR_SHAPE}, with the number of bands first")
    if plain:
        of.tell(
            "warning",
            _TENSOR_SHAPE,
            "has no number of bands, because the raster's header does not tell it",
            plain,
        )
    return {_TENSOR_SHAPE: shapes}


def _time(of: Footer, name: str, column: Any) -> dict[str, Any]:
    if not pa.types.is_int64(column.type):
        return _unmapped(of, name, column, f"is {column.type}, not seconds")
    bound = pc.and_(
        pc.less_equal(column, pa.scalar(_LARGEST)), pc.greater_equal(column, pa.scalar(-_LARGEST))
    )
    far = len(column) - column.null_count - (pc.sum(bound).as_py() or 0)
    if far:
        of.tell("warning", name, "is outside the range of a timestamp and becomes null", far)
        column = pc.if_else(bound, column, pa.scalar(None, pa.int64()))
    span = pc.min_max(column).as_py()
    if span["min"] is not None and _YEARS[0] <= span["min"] and span["max"] <= _YEARS[1]:
        of.tell("warning", name, "looks like years, not seconds since 1970; kept as seconds")
    of.tell("changed", name, "seconds become timestamp[us], UTC")
    found = pc.multiply(column, pa.scalar(_MICROS)).cast(pa.timestamp("us"))
    if name == spec.TIME_START:
        return {name: found}
    return {name: found, **_middle(of, found)}


def _middle(of: Footer, end: Any) -> dict[str, Any]:
    """``time_middle``: floor((start + end) / 2), where there is an end."""
    if spec.TIME_START not in of.table.column_names:
        return {}
    start = flat(of.table[spec.TIME_START])
    if not pa.types.is_int64(start.type):
        return {}
    seconds = [np.asarray(pc.fill_null(one, 0), np.int64) for one in (start, end.cast(pa.int64()))]
    known = np.asarray(pc.and_(pc.is_valid(start), pc.is_valid(end)), bool)
    known &= np.abs(seconds[0]) <= _LARGEST
    first = np.where(known, seconds[0], 0) * _MICROS
    last = np.where(known, seconds[1], 0)
    backwards = int(np.count_nonzero(known & (first > last)))
    if backwards:
        of.tell("warning", spec.TIME_END, "is before the start", backwards)
    if not known.any():
        return {}
    middle = times.middles(first, last)
    of.tell("added", _TIME_MIDDLE, "the middle of start and end")
    return {_TIME_MIDDLE: pa.array(middle, pa.int64(), mask=~known).cast(pa.timestamp("us"))}


def _centroid(of: Footer, name: str, column: Any) -> dict[str, Any]:
    if not pa.types.is_string(column.type) and not pa.types.is_binary(column.type):
        return _unmapped(of, name, column, f"is {column.type}, not text")
    points, lost = centroid_points(column)
    of.tell("changed", name, "WKT becomes WKB")
    if lost:
        of.tell("warning", name, "is not a point on the earth and becomes null", lost)
    return {name: points}


def _unmapped(of: Footer, name: str, column: Any, reason: str) -> dict[str, Any]:
    """A column that breaks the specification, under a name that no reader misunderstands."""
    target = f"tortilla:{name.partition(':')[2]}"
    of.tell("kept", name, f"{reason}; kept as {target}")
    return {target: column}


_RULES: Mapping[str, Callable[[Footer, str, Any], dict[str, Any]]] = {
    spec.DATA_SPLIT: _split,
    spec.RASTER_SHAPE: _shape,
    spec.TIME_START: _time,
    spec.TIME_END: _time,
    spec.CENTROID: _centroid,
}


# -- other columns ---------------------------------------------------------------------------------


def _extra(of: Footer, made: dict[str, tuple[Any, Any]], name: str) -> None:
    column = flat(of.table[name])
    if pa.types.is_null(column.type):
        of.tell("dropped", name, "holds no values")
        return
    target = legal_key(name)
    taken = set(map(str.lower, made))  # SQL does not tell the cases of letters apart
    if target.lower() in taken:
        count = 2
        while f"{target}_{count}".lower() in taken:
            count += 1
        target = f"{target}_{count}"
    if target != name:
        of.tell("renamed", name, f"is now {target}")
    if pa.types.is_duration(column.type):
        of.tell("changed", name, f"is now a number, as Parquet stores a {column.type}")
    made[target] = described(target, column.type, None), column


def legal_key(name: str) -> str:
    """The name of a column as the name of a field (TACO 2.0, 7.1.2)."""
    head, colon, tail = name.partition(":")
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in (head, tail)]
    key = f"{parts[0]}:{parts[1]}" if colon and all(parts) else "".join(parts) or "column"
    return f"tortilla:{key.replace(':', '_')}" if taco_spec.key_fault(key) else key


# -- shapes and places -----------------------------------------------------------------------------


def integer_lists(column: Any) -> Any:
    """A column as lists of int64; None where it holds something else, or larger numbers."""
    if not pa.types.is_list(column.type) or not pa.types.is_integer(column.type.value_type):
        return None
    with suppress(pa.ArrowInvalid):
        return column.cast(pa.list_(pa.int64()))
    return None


def tensor_shapes(shapes: Any, bands: Ints) -> tuple[Any, int]:
    """Shapes with the number of bands before rows and columns, unless it is 0.

    Also returns how many shapes stay without bands. A list that has not two numbers is kept.
    """
    lengths = np.asarray(pc.fill_null(pc.list_value_length(shapes), 0), np.int64)
    values = np.asarray(pc.list_flatten(shapes).fill_null(0), np.int64)
    pairs = lengths == 2
    more = pairs & (bands > 0)
    starts = np.cumsum(lengths) - lengths
    offsets = np.concatenate([[0], np.cumsum(lengths + more)])
    missing = shapes.is_null()
    found = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(np.insert(values, starts[more], bands[more])),
        type=pa.list_(pa.field("element", pa.int64())),
        mask=missing if missing.true_count else None,
    )
    return found, int(np.count_nonzero(pairs & (bands <= 0)))


def centroid_points(column: Any) -> tuple[Any, int]:
    """Points as WKB, null where a value is not a point on the earth, and how many those are."""
    x, y = wkb.lenient_points_xy(column)
    with np.errstate(invalid="ignore"):
        good = (np.abs(x) <= 180) & (np.abs(y) <= 90)
    points = wkb.point(np.where(good, x, np.nan), np.where(good, y, np.nan))
    return points, len(column) - column.null_count - int(np.count_nonzero(good))


# -- bands of rasters ------------------------------------------------------------------------------


_HEAD = KIB
_DIRECTORY = 2 * KIB
"""How much of a TIFF's directory is read: some 170 entries, or 100 of BigTIFF."""
_AT_ONCE = 256
"""Rasters whose heads are requested at once; with the gaps between them at most 16 MiB."""

_SAMPLES = 277
"""The tag SamplesPerPixel."""
_SIZES = {1: 1, 3: 2, 4: 4, 16: 8}
"""Bytes of the TIFF types that are unsigned integers."""
_ORDERS: Mapping[bytes, Literal["little", "big"]] = {b"II": "little", b"MM": "big"}


def bands_of(
    depths: Sequence[Level], home: Home, given: int | None, progress: Progress
) -> list[Ints]:
    """Bands of the rasters of each depth, 0 where they are not known.

    `given` is the number for every raster, if the caller knows it. A nested file has the bands of
    its first child if it has the same shape, because writers copy it from there.
    """
    if given is not None:
        return [np.full(len(depth), given, np.int64) for depth in depths]
    shapes = [_shapes(depth) for depth in depths]
    counts = []
    for depth, own in zip(depths, shapes, strict=True):
        found = np.zeros(len(depth), np.int64)
        if own is not None:
            rows = np.flatnonzero(_rasters(depth))
            spans = home.spans(depth.table, np.arange(len(depth)))
            found[rows] = band_counts(spans, rows, progress)
        counts.append(found)
    for number in reversed(range(len(depths) - 1)):
        above, below = shapes[number : number + 2]
        if above is not None and below is not None:
            parents, first = np.unique(depths[number + 1].parents, return_index=True)
            same = ((above[parents] == below[first]) & (above[parents] != -1)).all(axis=1)
            counts[number][parents[same]] = counts[number + 1][first[same]]
    return counts


def _shapes(depth: Level) -> Ints | None:
    """Rows and columns of each raster as the table has them, -1 if it has not two numbers."""
    if spec.RASTER_SHAPE not in depth.table.column_names:
        return None
    column = integer_lists(flat(depth.table[spec.RASTER_SHAPE]))
    if column is None:
        return None
    pairs = np.asarray(pc.fill_null(pc.equal(pc.list_value_length(column), 2), False), bool)
    values = pc.fill_null(pc.list_flatten(column.filter(pa.array(pairs))), -1)
    found = np.full((len(depth), 2), -1, np.int64)
    found[pairs] = np.asarray(values).reshape(-1, 2)
    return found


def _rasters(depth: Level) -> Any:
    """Which items are files that have a shape."""
    shaped = depth.table[spec.RASTER_SHAPE].is_valid()
    raw = pc.is_in(depth.table[spec.FILE_FORMAT], pa.array([spec.BYTES, spec.TORTILLA]))
    return np.asarray(pc.and_not(shaped, raw))


def band_counts(spans: Spans, rows: Ints, progress: Progress) -> Ints:
    """Bands of the rasters in `rows`; 0 for other formats than TIFF, and for damaged files."""
    found = np.zeros(len(rows), np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        heads = _fetch(spans, some, [0] * len(some), _HEAD)
        places = [directory_at(head) for head in heads]
        counts = [bands_in(head, head[place:]) for head, place in zip(heads, places, strict=True)]
        # A directory elsewhere in the file takes another request.
        again = [n for n, count in enumerate(counts) if places[n] and not count]
        pieces = _fetch(spans, some[again], [places[n] for n in again], _DIRECTORY)
        for n, piece in zip(again, pieces, strict=True):
            counts[n] = bands_in(heads[n], piece)
        found[start : start + len(some)] = counts
        progress(start + len(some), len(rows), "headers of rasters")
    return found


def _fetch(spans: Spans, rows: Ints, offsets: Sequence[int], size: int) -> list[bytes]:
    """Ranges relative to the beginning of each item, cut at its end."""
    starts = np.minimum(np.array(offsets, np.int64), spans.lengths[rows])
    sizes = np.minimum(spans.lengths[rows] - starts, size)
    cut = replace(spans.take(rows), offsets=spans.offsets[rows] + starts, lengths=sizes)
    return cut.fetched(np.arange(len(rows)), sizes)


def directory_at(head: bytes) -> int:
    """Offset of the directory of a TIFF; 0 for anything else."""
    order = _ORDERS.get(head[:2])
    if order is None or len(head) < 16:
        return 0
    version = int.from_bytes(head[2:4], order)
    place = {42: head[4:8], 43: head[8:16]}.get(version, b"")
    return min(int.from_bytes(place, order), 1 << 62)


def bands_in(head: bytes, directory: bytes) -> int:
    """The number of bands in a TIFF's directory; 0 if it is none, or is cut before the tag."""
    order = _ORDERS.get(head[:2])
    if order is None:
        return 0
    start, size = (2, 12) if int.from_bytes(head[2:4], order) == 42 else (8, 20)
    count = int.from_bytes(directory[:start], order)
    there = min(count, (len(directory) - start) // size)
    for at in range(start, start + there * size, size):
        tag, kind = (int.from_bytes(directory[n : n + 2], order) for n in (at, at + 2))
        if tag > _SAMPLES:
            return 1  # the default of baseline TIFF
        if tag == _SAMPLES:
            value = directory[at + size // 2 + 2 :][: _SIZES.get(kind, 0)]
            return int.from_bytes(value, order) % (1 << 16)
    return int(0 < count == there)
