"""Checks files: reports every problem with its place, not only the first."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import names as name_rules
from comal import strictjson
from comal.check import OF_CONTENT, Check, Report
from comal.errors import ComalError, InvalidMetadataError, NotThisFormatError, counted, shown
from comal.geo import footprints, wkb
from comal.geo.boxes import arc_width
from comal.lazy import pc
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.parallel import Workers
from comal.plan import ByteRange, Head, run
from comal.progress import Progress
from comal.samples.copying import Appender, Copied, Nowhere, blocks, copy_payloads
from comal.samples.filters import crs_problem, ends_before, good_lists, unknown_crs
from comal.samples.payloads import HEAD, Spans
from comal.storage import Source, StorageConfig
from comal.tortilla import items, spec
from comal.tortilla.describing import begins
from comal.tortilla.opening import (
    Location,
    Member,
    last_name,
    open_one,
    part_name,
    set_problems,
    sources_of,
)
from comal.tortilla.spec import TortillaWarning
from comal.tortilla.wire import DEFAULT_TAIL, TACO_MAGIC, Header, Opened, children_plan

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_NESTED_AT_ONCE = 256
"""Nested files that are opened together."""
_BYTES_AT_ONCE = 16 * MIB
_ITEMS_AT_ONCE = 4_096
"""Payloads that are checked together."""
_NEAR = 0.01
"""Degrees by which a centroid may be off: writers leave out rotation and round to six decimals."""
_ROUNDED = 2e-6


def check(
    href: Location | Sequence[Location],
    *,
    level: str = "full",
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    progress: Progress | None = None,
    executor: Workers = None,
) -> Report:
    """List every problem of a Tortilla or a TACO v1 of any generation.

    Parameters
    ----------
    href
        Path or URL of a file. A pattern or a list is checked as whole sets, including that each
        part is there exactly once. A single part is checked by itself.
    level
        ``structure``: headers, footers and collections, nested ones too; ``sample``: also one of
        every twenty payloads; ``full``: every byte.
    limits
        Upper bounds for memory and sizes.
    config
        Settings for remote storage.
    progress
        Called with the progress.
    executor
        Checks several files: an executor, or a number of processes; one by one if None.

    Returns
    -------
    Report
        All problems. A file that cannot be opened also gets a report if its first bytes are of
        this format.

    Raises
    ------
    NotThisFormatError
        The file is of another format.
    ObjectNotFoundError, AccessDeniedError, StorageError, ObjectChangedError
        The file does not exist or cannot be read.
    InvalidInputError
        An unknown level.
    """
    limit_codes = {"tortilla_depth": "tortilla-depth"}
    findings = Check(spec.CODES, level, limits, progress, of_limits=limit_codes)
    sources = sources_of(href, config)
    files = [_File(source, _label(source, sources)) for source in sources]
    if len(files) > 1:
        files = findings.take_from(_check_file, files, executor)
        _check_sets(files, findings)
    elif (header := _check_file(files[0], findings).header) is not None and header.parts == 0:
        findings.take(set_problems([Member(sources[0].href, 0)]))
    return findings.report(sources[0].href, files[0].container)


@dataclass(slots=True)
class _File:
    """One file while it is checked."""

    source: Source
    label: str
    """Prefix of places; empty for a single file."""
    header: Header | None = None
    table: Any = None
    container: str | None = None
    seen: set[tuple[int, int]] = field(default_factory=set)
    """Spans of nested files that are already checked: items may share bytes."""
    items: int = 0
    """Payloads met so far."""

    def place(self, more: str) -> str:
        """The text for a place in the file."""
        return f"{self.label}: {more}" if self.label else more


@dataclass(frozen=True, slots=True)
class _Usable:
    """Rows whose bytes can be checked, because their spans are valid."""

    rows: Ints
    offsets: Ints
    """Offsets from the beginning of the object."""
    lengths: Ints
    formats: list[str]

    def spans(self, *, nested: bool) -> dict[tuple[int, int], tuple[int, str]]:
        """Row and format of each distinct span of nested files, or of all other items."""
        found: dict[tuple[int, int], tuple[int, str]] = {}
        columns = (self.rows.tolist(), self.offsets.tolist(), self.lengths.tolist())
        for row, offset, length, kind in zip(*columns, self.formats, strict=True):
            if (kind == spec.TORTILLA) == nested:
                found.setdefault((offset, length), (row, kind))
        return found


def _label(source: Source, sources: Sequence[Source]) -> str:
    return last_name(source.href) if len(sources) > 1 else ""


def _check_file(file: _File, findings: Check) -> _File:
    """Check one file; returns it with its header and its table."""
    source, limits, progress = file.source, findings.limits, findings.progress
    try:
        opened = open_one(source, DEFAULT_TAIL, limits)
    except NotThisFormatError:
        raise
    except OF_CONTENT as error:
        (head,) = source.fetch([Head(2)])
        file.container = "taco-v1" if head.data == TACO_MAGIC else "tortilla"
        findings.take_error(error, "tortilla-header", file.place("header"))
        return file
    file.header = opened.header
    file.container = "taco-v1" if opened.header.is_taco else "tortilla"
    _check_name(file, opened, findings)
    _check_collection(file, opened, findings)
    progress(0, None, "footers")
    file.table, below = _check_footer(file, opened, file.label, findings)
    depth = 0
    while below:
        depth += 1
        if depth > limits.tortilla_depth:
            findings.add(
                "tortilla-depth",
                below[0][1],
                f"nested deeper than {limits.tortilla_depth} files; deeper files are not checked",
            )
            break
        found: list[tuple[ByteRange, str]] = []
        for start in range(0, len(below), _NESTED_AT_ONCE):
            found += _check_below(file, below[start : start + _NESTED_AT_ONCE], findings)
            progress(start, len(below), f"nested files, depth {depth}")
        below = found
    return file


def _check_below(
    file: _File, below: Sequence[tuple[ByteRange, str]], findings: Check
) -> list[tuple[ByteRange, str]]:
    """Check nested files; returns the files nested in them."""
    spans = [span for span, _ in below]
    places = [place for _, place in below]
    try:
        opened = run(children_plan(spans, places, limits=findings.limits), file.source.fetch)
    except OF_CONTENT as error:
        findings.take_error(error, "tortilla-nested", places[0])
        return []
    found: list[tuple[ByteRange, str]] = []
    for one, place in zip(opened, places, strict=True):
        if isinstance(one, ComalError):
            findings.take_error(one, "tortilla-nested", place)
        else:
            found += _check_footer(file, one, place, findings)[1]
    return found


def _check_footer(
    file: _File, opened: Opened, place: str, findings: Check
) -> tuple[Any, list[tuple[ByteRange, str]]]:
    """Check a footer and its payloads; returns its table, and its nested files not seen before."""
    try:
        stored = items.stored_table(opened, place or file.source.href, findings.limits)
    except OF_CONTENT as error:
        findings.take_error(error, "tortilla-footer", place or "footer")
        return None, []
    footer = _Footer(stored, opened, place, findings)
    usable = footer.check()
    if usable is None:
        return stored, []
    if findings.one_of:
        _check_payloads(file, usable, footer.prefix, findings)
    before = f"{place}: " if place else ""
    below: list[tuple[ByteRange, str]] = []
    for span, (row, _) in usable.spans(nested=True).items():
        if span not in file.seen:
            file.seen.add(span)
            below.append((ByteRange(*span), f"{before}row {row}"))
    return stored, below


class _Footer:
    """One footer while it is checked: core columns, then those of STAC and RAI."""

    def __init__(self, stored: Any, opened: Opened, place: str, findings: Check) -> None:
        self.table = items.with_format(stored, opened.header)
        self.opened, self.place, self.findings = opened, place, findings
        self.prefix = f"{place}, " if place else ""
        self.columns: dict[str, Any] = {}
        """The optional columns of the specification in its types."""

    def check(self) -> _Usable | None:
        """Check all columns; returns the rows whose bytes can be checked."""
        names = self.table.column_names
        for name in names:
            if name.startswith(spec.INTERNAL):
                self.tell(
                    "tortilla-stored-path",
                    name,
                    "only readers add such columns; the stored one is ignored",
                )
        missing = [name for name in spec.REQUIRED if name not in names]
        for name in missing:
            place = self.place or "footer"
            self.findings.add("tortilla-column-missing", place, f"the column {name} is missing")
        if spec.ID not in missing:
            self._check_ids()
        if spec.FILE_FORMAT not in missing:
            self._check_formats()
        if spec.DATA_SPLIT in names:
            self._check_splits()
        usable = None if missing else self._check_spans()
        self._check_optional()
        return usable

    def row(self, row: int) -> str:
        """The text for the place of a row."""
        name = ""
        if spec.ID in self.table.column_names:
            column = self.table[spec.ID]
            is_text = pa.types.is_string(column.type)
            name = f" ({shown(column[row].as_py())})" if is_text else ""
        return f"{self.prefix}row {row}{name}"

    def tell(self, code: str, name: str, message: str) -> None:
        """Add a problem of a whole column."""
        self.findings.add(code, f"{self.prefix}column {shown(name)}", message)

    def rows(self, code: str, wrong: Any, tell: Callable[[int], str]) -> None:
        """Add a problem for each row in a mask."""
        rows = np.flatnonzero(wrong)
        self.findings.add_rows(code, rows, lambda row: (self.row(row), tell(row)))

    # -- core: "The Footer" ------------------------------------------------------------------------

    def _check_ids(self) -> None:
        column = self._texts(spec.ID, "tortilla-id-null")
        if column is None:
            return
        known = np.flatnonzero(~np.asarray(self.table[spec.ID].is_null()))
        ids = column.take(pa.array(known))
        for bad in name_rules.bad_names(ids):
            place = self.row(int(known[bad.row]))
            self.findings.add("tortilla-id", place, f"the id {bad.reason}")
        code, same = "tortilla-id-twice", "has the same id"
        twins = name_rules.twins(ids, fold=False)
        if not twins:
            code, same = "tortilla-id-alike", "has the same id where case is ignored"
            twins = name_rules.twins(ids)
        firsts = {int(known[second]): int(known[first]) for first, second in twins}
        self.findings.add_rows(
            code, list(firsts), lambda row: (self.row(row), f"row {firsts[row]} {same}")
        )

    def _texts(self, name: str, null: str) -> Any:
        """A column of texts, or None after adding a problem; `null` is the code for nulls."""
        column = self.table[name]
        if pa.types.is_null(column.type):
            column = pc.cast(column, pa.string())
        if not pa.types.is_string(column.type):
            self._refuse_type(name, column)
            return None
        self.findings.add_rows(
            null,
            np.flatnonzero(np.asarray(column.is_null())),
            lambda row: (f"{self.prefix}row {row}", f"{name} is null"),
        )
        return pc.fill_null(column, "").combine_chunks()

    def _refuse_type(self, name: str, column: Any) -> None:
        message = f"found {column.type}, expected string"
        self.findings.add("tortilla-column-type", f"{self.prefix}column {name}", message)

    def _check_formats(self) -> None:
        column = self._texts(spec.FILE_FORMAT, "tortilla-column-null")
        if column is None or not len(column):
            return
        encoded = pc.dictionary_encode(column)
        unknown = [
            bool(name) and spec.known_format(name) is None
            for name in encoded.dictionary.to_pylist()
        ]
        self.rows(
            "tortilla-format",
            np.array(unknown)[np.asarray(encoded.indices)],
            lambda row: f"unknown format {shown(column[row].as_py())}",
        )

    def _check_splits(self) -> None:
        column = self.table[spec.DATA_SPLIT]
        if pa.types.is_null(column.type):
            return
        if not pa.types.is_string(column.type):
            self._refuse_type(spec.DATA_SPLIT, column)
            return
        allowed = pc.is_in(column, pa.array([*spec.SPLITS, None], pa.string()))
        self.rows(
            "tortilla-split",
            ~np.asarray(allowed),
            lambda row: f"found {shown(column[row].as_py())}, expected {', '.join(spec.SPLITS)}",
        )

    def _numbers(self, name: str) -> Ints | None:
        column = self.table[name]
        if column.null_count and pa.types.is_integer(column.type):
            nulls = np.asarray(column.is_null())
            self.rows("tortilla-column-null", nulls, lambda _: f"{name} is null")
            column = pc.fill_null(column, 0)  # an offset of 0 is outside of the data
        place = f"{self.prefix}column {name}"
        try:
            return items.integers(column, name, place)
        except InvalidMetadataError as error:
            self.findings.take_error(error, "tortilla-column-type", place)
            return None

    def _check_spans(self) -> _Usable | None:
        offsets, lengths = self._numbers(spec.OFFSET), self._numbers(spec.LENGTH)
        if offsets is None or lengths is None:
            return None
        size = self.opened.size
        wrong = items.outside(offsets, lengths, self.opened.header, size)
        self.rows(
            "tortilla-span-bounds",
            wrong,
            lambda row: (
                f"bytes {offsets[row]}+{lengths[row]} are not within the data "
                f"of a file of {size} bytes"
            ),
        )
        rows = np.flatnonzero(~wrong)
        pairs = items.overlaps(offsets[rows], lengths[rows])
        holders = {int(rows[second]): int(rows[first]) for first, second in pairs}
        self.findings.add_rows(
            "tortilla-span-overlap",
            list(holders),
            lambda row: (
                self.row(row),
                f"bytes {offsets[row]}+{lengths[row]} overlap row {holders[row]}",
            ),
        )
        formats = self.table[spec.FILE_FORMAT]
        if not pa.types.is_string(formats.type):  # already reported
            formats = pa.nulls(len(formats), pa.string())
        taken = formats.take(pa.array(rows)).to_pylist()
        return _Usable(rows, offsets[rows] + self.opened.base, lengths[rows], taken)

    # -- STAC and RAI ------------------------------------------------------------------------------

    def _check_optional(self) -> None:
        for stored in self.table.column_names:
            name = spec.ALIASES.get(stored, stored)
            if name in spec.TYPES and name not in spec.CORE and name not in self.columns:
                self._take(name, stored)
        if spec.CRS in self.columns:
            unknown = unknown_crs(self.columns[spec.CRS].combine_chunks())
            self.findings.add_rows(
                "tortilla-crs", list(unknown), lambda row: (self.row(row), unknown[row])
            )
        self._check_list(spec.GEOTRANSFORM, "tortilla-geotransform", 6)
        self._check_list(spec.RASTER_SHAPE, "tortilla-raster-shape", 2)
        self._check_times()
        if spec.CENTROID in self.columns:
            self._check_centroids()
        for name, (low, high) in spec.RAI_RANGES.items():
            if name in self.columns:
                self._check_range(name, low, high)

    def _take(self, name: str, stored: str) -> None:
        """Store a column in its type of the specification; another type is a problem."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TortillaWarning)
            column = items.typed_column(name, self.table[stored], self.place)
        if column.type.equals(spec.TYPES[name]):
            self.columns[name] = column
        else:
            expected = f"found {column.type}, expected {spec.TYPES[name]}"
            self.tell("tortilla-column-type", stored, expected)

    def _check_range(self, name: str, low: float, high: float) -> None:
        column = self.columns[name]
        values = _floats(column)
        self.rows(
            "tortilla-rai-range",
            np.asarray(column.is_valid()) & ~((values >= low) & (values <= high)),
            lambda row: f"{name} is {values[row]:g}, expected {low:g} to {high:g}",
        )

    def _check_list(self, name: str, code: str, count: int) -> None:
        if name not in self.columns:
            return
        column = self.columns[name].combine_chunks()
        self.rows(
            code,
            ~good_lists(column, count, count, positive=name == spec.RASTER_SHAPE),
            lambda row: f"{name} is {shown(column[row].as_py())}, expected {count} numbers",
        )

    def _check_times(self) -> None:
        columns = {n: self.columns.get(n) for n in (spec.TIME_START, spec.TIME_END)}
        for name, column in columns.items():
            for odd, what in spec.odd_times(_floats(column)) if column is not None else ():
                self.rows(
                    "tortilla-time-year" if what == "a year" else "tortilla-time-unit",
                    odd,
                    lambda row, name=name, column=column, what=what: (  # type: ignore[misc]
                        f"{name} is {column[row]}, which looks like {what}; "
                        "seconds since 1970 are expected"
                    ),
                )
        start, end = columns.values()
        if start is not None and end is not None:
            self.rows(
                "tortilla-time-order",
                ends_before(start, end),
                lambda row: f"{spec.TIME_END} {end[row]} is before {spec.TIME_START} {start[row]}",
            )

    def _check_centroids(self) -> None:
        column = self.columns[spec.CENTROID].combine_chunks()
        x, y = wkb.text_points_xy(column)
        lost = np.asarray(column.is_valid()) & ~(np.isfinite(x) & np.isfinite(y))
        self.rows(
            "tortilla-centroid",
            lost,
            lambda row: f"{shown(column[row].as_py())} is not a POINT (longitude latitude)",
        )
        expected = _centres(self.columns)
        if expected is None:
            return
        lon, lat, near = expected
        with np.errstate(invalid="ignore"):
            apart = np.abs((x - lon + 180) % 360 - 180) > near[0]
            apart |= np.abs(y - lat) > near[1]
        self.rows(
            "tortilla-centroid",
            apart & ~lost,
            lambda row: (
                f"{shown(column[row].as_py())} is not the centre of the raster, "
                f"{lon[row]:.6f} {lat[row]:.6f}"
            ),
        )


def _floats(column: Any) -> Floats:
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), np.float64)


def _centres(columns: dict[str, Any]) -> tuple[Floats, Floats, Floats] | None:
    """Centres of rasters, and the tolerance for centroids; NaN if the columns give none."""
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
    near = np.full((2, len(crs)), np.nan)
    rows = pa.array(np.flatnonzero(good))
    if len(rows):
        chosen = crs.take(rows), affine.take(rows), shape.take(rows)
        lon[good], lat[good] = footprints.centroids(*chosen)
        west, south, east, north = footprints.footprints(*chosen)
        # Never outside of the raster.
        halves = np.stack([arc_width(west, east), north - south]) / 2 + _ROUNDED
        near[:, good] = np.minimum(halves, _NEAR)
    return lon, lat, near


# -- payloads --------------------------------------------------------------------------------------


def _check_payloads(file: _File, usable: _Usable, before: str, findings: Check) -> None:
    """Read payloads and compare them with their formats; memory is bounded by a batch."""
    chosen: list[tuple[tuple[int, int], tuple[int, str]]] = []
    for one in usable.spans(nested=False).items():
        if file.items % findings.one_of == 0:
            chosen.append(one)
        file.items += 1
    offsets, sizes = np.array([span for span, _ in chosen], np.int64).reshape(-1, 2).T
    spans = Spans([file.source], np.zeros(len(chosen), np.int64), offsets, sizes)
    for start, stop in blocks(sizes, budget=_BYTES_AT_ONCE, rows=_ITEMS_AT_ONCE):
        try:
            seen = copy_payloads(spans, start, stop, Appender(Nowhere()))
        except OF_CONTENT as error:
            findings.take_error(error, "tortilla-item", f"{before}row {chosen[start][1][0]}")
            continue
        some = [which for _, which in chosen[start:stop]]
        for n in _doubtful(np.array([kind for _, kind in some], object), seen):
            (row, kind), size = some[n], int(seen.sizes[n])
            place = f"{before}row {row}"
            _check_beginning(kind, seen.heads[n].tobytes()[:size], place, findings)
            if seen.empty[n]:
                told = f"all {size} bytes are zero; some early writers lost items in this way"
                findings.add("tortilla-zero", place, told)


def _doubtful(kinds: Any, seen: Copied) -> list[int]:
    """The payloads that must be checked one by one."""
    doubtful = seen.empty | (seen.sizes < HEAD)
    for kind in set(kinds.tolist()):
        name = spec.known_format(kind) or kind
        if name in spec.SIGNATURES:
            doubtful |= (kinds == kind) & ~begins(seen.heads, name)
    found: list[int] = np.flatnonzero(doubtful).tolist()
    return found


def _check_beginning(kind: str, head: bytes, place: str, findings: Check) -> None:
    name = spec.known_format(kind) or kind
    signatures = spec.SIGNATURES.get(name)
    if signatures is not None and not head.startswith(signatures):
        found = head[:8].hex(" ") if head else "nothing"
        told = f"the bytes do not begin like {shown(name)}: {found}"
        findings.add("tortilla-magic", place, told)


# -- the file and its set --------------------------------------------------------------------------


def _check_name(file: _File, opened: Opened, findings: Check) -> None:
    name, header = last_name(file.source.href), opened.header
    extension = "taco" if header.is_taco else "tortilla"
    expected = f".part.{extension}" if header.parts > 1 else f".{extension}"
    is_part = part_name(file.source.href) is not None
    if not name.endswith(f".{extension}") or is_part != (header.parts > 1):
        findings.add(
            "tortilla-name",
            file.place("name"),
            f"{shown(name)} for a {file.container} of {counted(header.parts, 'part')}, "
            f"expected {expected}",
        )


def _check_collection(file: _File, opened: Opened, findings: Check) -> None:
    if opened.collection is None:
        return
    place = file.place("collection")
    try:
        document = strictjson.loads(opened.collection, place, findings.limits)
    except OF_CONTENT as error:
        findings.take_error(error, "tortilla-collection", place)
        return
    for name in spec.COLLECTION_REQUIRED:
        if document.get(name) is None:
            findings.add("tortilla-collection-field", place, f"{name} is missing")


def _check_sets(files: Sequence[_File], findings: Check) -> None:
    sound = [file for file in files if file.header is not None]
    members = [
        Member(file.source.href, file.header.parts, file.source.location.variant)
        for file in sound
        if file.header
    ]
    findings.take(set_problems(members))
    groups: dict[Any, list[_File]] = {}
    for file, member in zip(sound, members, strict=True):
        if member.parts > 1 and file.table is not None:
            groups.setdefault(member.group, []).append(file)
    for group in groups.values():
        _check_schemas(group, findings)
        _check_unique(group, findings)


def _check_schemas(group: Sequence[_File], findings: Check) -> None:
    first = group[0].table.schema
    for file in group[1:]:
        schema = file.table.schema
        differing = [
            name
            for name in dict.fromkeys([*first.names, *schema.names])
            if name not in first.names
            or name not in schema.names
            or first.field(name).type != schema.field(name).type
        ]
        if differing:
            listed = ", ".join(shown(name) for name in differing[:10])
            findings.add(
                "tortilla-part-schema",
                file.place("footer"),
                f"columns that {group[0].label} lacks or has with another type: {listed}",
            )


def _check_unique(group: Sequence[_File], findings: Check) -> None:
    ids: dict[str, str] = {}
    for file in group:
        if spec.ID not in file.table.column_names:
            continue
        here = set(map(str, file.table[spec.ID].drop_null().to_pylist()))
        twice = sorted(here & ids.keys())
        for name in twice:
            findings.add(
                "tortilla-id-twice", file.label, f"id {shown(name)} is also in {ids[name]}"
            )
        ids.update(dict.fromkeys(here, file.label))
