"""Folders and manifests as columns: files below a folder, nested ids, rows of a manifest."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from comal import strictjson
from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    LimitExceededError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.lazy import pc
from comal.names import all_distinct
from comal.plan import Head
from comal.public import warn
from comal.samples.tables import is_text, refuse_twins
from comal.storage import Location, Source, StorageConfig, open_source, parse_href
from comal.storage.targets import refuse_sources
from comal.table.columns import (
    SMALL_POOL,
    numbers_column,
    numbers_of,
    one_array,
    rows_equal,
    rows_where,
    texts_column,
    valid_of,
)

_READING: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
}
_HELD = 1 << 16
"""Number of ids held as Python objects before they become a column."""


def samples_of(
    directory: str | os.PathLike[str],
    target: Path,
    manifest: Any,
    pattern: str | Sequence[str],
    *,
    read: Callable[[Any], Any],
    nest: Callable[[Any, Any, str], list[Level]],
    warning: type[UserWarning],
    config: StorageConfig | None = None,
) -> tuple[Path | Location, list[Level], Any]:
    """The folder, its samples as levels, and an Arrow table of further fields or None.

    `read` turns a manifest into a table with the columns ``id`` and ``path``; without a manifest
    all files that match `pattern` are taken. `nest` turns them into levels, as `levels_of` does.
    The fields of files in stores and on servers have the column `SEEN`.
    """
    root = _folder(directory)
    refuse_sources(target, root if isinstance(root, Path) else root.href, inside=True)
    fields, where = None, _label(manifest)
    patterns = [pattern] if isinstance(pattern, str) else list(pattern)
    if manifest is not None:
        ids, paths, fields = split(read(manifest), root, where, config)
    elif isinstance(root, Path):
        ids, paths = files_below(root, patterns, target=target, warning=warning)
    else:
        from comal.samples.objects import objects_below  # noqa: PLC0415 - few lie in stores

        ids, paths, fields = objects_below(root, patterns, target=target, config=config)
    if paths.null_count == len(paths):
        raise InvalidInputError(
            "no files to pack", where=shown(root, 200), hint="check the folder and the pattern"
        )
    return root, nest(ids, paths, where), fields


def _folder(directory: str | os.PathLike[str]) -> Path | Location:
    place = parse_href(directory)
    if not place.is_local:
        return _plain(place)
    root = Path(place.path if "://" in os.fspath(directory) else directory).absolute()
    if root.is_file():
        raise InvalidInputError("a folder is expected, not a file", where=shown(root, 200))
    if not root.is_dir():
        raise ObjectNotFoundError("no such folder", where=shown(root, 200))
    return root


def files_below(
    root: Path,
    patterns: Sequence[str],
    *,
    target: Path,
    warning: type[UserWarning] = UserWarning,
) -> tuple[Any, Any]:
    """Id paths (``scene_1/before.tif``) and absolute paths of the files whose names match.

    Names are walked in order; those that begin with a dot are skipped. Patterns are case-sensitive
    on every system. The target is skipped if it lies below the folder, such as the output of an
    earlier run.

    A link to a file is followed. A link to a folder is skipped with a warning: it can lead back to
    a folder above, or add the same files under two ids, which nobody would notice in the result.
    To include its files, name them in a manifest.
    """
    fits = re.compile("|".join(map(fnmatch.translate, patterns))) if patterns else None
    top = str(root.absolute())
    chunks: list[Any] = []
    links: list[str] = []
    held: list[str] = []
    with translated(_READING, "the folder cannot be read", where=shown(root, 200)):
        for name in _walk(top, fits, target, links):
            held.append(name)
            if len(held) == _HELD:
                chunks.append(_texts_of(held, top))
                held = []
    for link in links:
        warn(f"a link to a folder is left out: {shown(link, 200)}", warning)
    chunks.append(_texts_of(held, top))
    with translated(
        {pa.ArrowException: LimitExceededError}, "the names are too long for one column"
    ):
        ids = pa.concat_arrays(chunks)
    return ids, absolute(ids, root)


def absolute(paths: Any, root: Path | Location) -> Any:
    """Paths and URLs made absolute from `root`, an Arrow array of strings; null stays null."""
    if isinstance(root, Location) or is_url(paths).true_count:
        return texts_column([path and _href(path, root) for path in paths.to_pylist()])
    base, slash = texts_column([str(root.absolute()).rstrip("/"), "/"])
    with translated(
        {pa.ArrowException: LimitExceededError}, "the paths are too long for one column"
    ):
        joined = pc.binary_join_element_wise(base, paths, slash)
        is_absolute = pc.starts_with(paths, "/")
        return pc.if_else(is_absolute, paths, joined) if pc.any(is_absolute).as_py() else joined


def is_url(paths: Any) -> Any:
    """Which of some paths are URLs, as Arrow booleans; false for null."""
    return pc.fill_null(pc.match_substring_regex(paths, _URL.pattern), pa.scalar(value=False))


def _href(path: str, root: Path | Location) -> str:
    if _URL.match(path):
        return _plain(parse_href(path)).href
    if path.startswith("/"):
        return path
    return f"{root}/{path}" if isinstance(root, Path) else root.join(path).href


def _plain(place: Location) -> Location:
    """The place, of which its href must say all."""
    if place.query or place.userinfo or (not place.is_local and "%2F" in place.href):
        raise InvalidInputError(
            "a URL of files to pack has a query, a user or an encoded slash",
            where=place.label,
            hint="name the object in its store, and give credentials by config=",
        )
    return place


def _walk(top: str, fits: re.Pattern[str] | None, target: Path, links: list[str]) -> Iterator[str]:
    """Id paths of the files. Uses a stack, as folders may be nested to any depth."""
    written = os.path.realpath(target)

    def is_written(path: str) -> bool:
        return path == written or path.startswith(f"{written.rstrip('/')}/")

    real = os.path.realpath(top).rstrip("/")
    if fits is None or is_written(real):
        return
    waiting = [("", iter(_entries(top)))]
    while waiting:
        above, entries = waiting[-1]
        entry = next(entries, None)
        if entry is None:
            waiting.pop()
            continue
        name = above + entry.name
        # Except for links, the path is already resolved.
        path = f"{real}/{name}"
        if is_written(os.path.realpath(path) if entry.is_symlink() else path):
            continue
        if entry.is_dir(follow_symlinks=False):
            waiting.append((f"{name}/", iter(_entries(entry.path))))
        elif entry.is_dir():
            links.append(entry.path)
        elif fits.match(entry.name):
            _refuse_no_file(entry)
            yield name


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """The entries of a folder except hidden ones, sorted by name."""
    with os.scandir(folder) as scan:
        found = [entry for entry in scan if not entry.name.startswith(".")]
    found.sort(key=lambda entry: entry.name)
    return found


def _refuse_no_file(entry: os.DirEntry[str]) -> None:
    """Raise for a matching entry that is not a file, rather than skip it silently."""
    if not entry.is_file():
        raise InvalidInputError(
            "not a regular file",
            where=shown(entry.path, 200),
            found="a link that leads nowhere" if entry.is_symlink() else "a pipe, socket or device",
            hint="remove the entry, or choose the files to pack with a pattern",
        )


def _texts_of(names: list[str], top: str) -> Any:
    try:
        return texts_column(names)
    except UnicodeEncodeError as error:
        odd = next(name for name in names if name != name.encode("utf-8", "ignore").decode())
        raise InvalidInputError(
            "the name of a file is not UTF-8",
            where=shown(f"{top}/{odd}", 200),
            hint="rename the file",
        ) from error


# -- nested ids ------------------------------------------------------------------------------------


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Level:
    """The n samples of one depth."""

    ids: Any
    """Arrow strings: the last part of each id path."""
    paths: Any
    """Arrow strings: the file; null for a folder."""
    parents: Ints
    """Row of the parent in the level above, shape (n,); zeros at level 0."""
    rows: Ints
    """Row of each in the source columns, shape (n,); -1 for a folder that only ids imply."""


def levels_of(
    ids: Any,
    paths: Any,
    where: str = "manifest",
    *,
    check_depth: Callable[[int], None] = lambda _: None,
) -> list[Level]:
    """Samples with id paths as one `Level` per depth, level 0 first.

    Samples of a level are in the order in which they, or their descendants, first appear. Folders
    above a sample need no row of their own; slashes at either end of an id are ignored.
    `check_depth` is called with the number of levels before they are built, and may raise.
    """
    parts = _parts(ids, where)
    starts = numbers_of(parts.offsets).astype(np.int64)
    deep = np.diff(starts)
    check_depth(int(deep.max(initial=0)))
    has_file = valid_of(paths)
    levels: list[Level] = []
    # The rows that reach this depth, and the row of each one's parent in the level above.
    rows = np.arange(len(ids), dtype=np.int64)
    above = np.zeros(len(ids), np.int64)
    twice: list[int] = []
    inside: list[int] = []
    for depth in range(int(deep.max(initial=0))):
        names = parts.values.take(numbers_column(starts[rows] + depth))
        codes, firsts = _first_seen(above, names)
        own = deep[rows] == depth + 1
        twice += rows[own][_repeated(codes[own])][:1].tolist()
        origin = np.full(len(firsts), -1, np.int64)
        # In reverse, so that the first of repeated rows wins.
        origin[codes[own][::-1]] = rows[own][::-1]
        files = np.zeros(len(firsts), bool)
        files[origin >= 0] = has_file[origin[origin >= 0]]
        inside += rows[~own & files[codes]][:1].tolist()
        levels.append(Level(taken(names, firsts), taken(paths, origin), above[firsts], origin))
        rows, above = rows[~own], codes[~own]
    _refuse(ids, twice, inside, where)
    return levels


def _parts(ids: Any, where: str) -> Any:
    """The parts of each id path, an Arrow array of lists."""
    trimmed = pc.ascii_trim(ids, "/")
    filled = valid_of(trimmed) & ~rows_equal(trimmed, "")
    for row in np.flatnonzero(~filled)[:1].tolist():
        raise InvalidInputError("a row of the manifest has no id", where=f"{where}, row {row}")
    return pc.split_pattern(trimmed, "/")


def _first_seen(above: Ints, names: Any) -> tuple[Ints, Ints]:
    """Pairs of parent and name as codes, in order of appearance, and the first row of each."""
    if all_distinct(names):
        return np.arange(len(names)), np.arange(len(names))
    encoded = names.dictionary_encode()
    # Sorting takes a quarter of the memory of Arrow's hash table for that many numbers.
    pairs = above * len(encoded.dictionary) + numbers_of(encoded.indices)
    _, firsts, codes = np.unique(pairs, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[codes], firsts[order]


def _repeated(codes: Ints) -> Ints:
    """Positions whose code also occurs earlier."""
    seen = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    seen[codes[::-1]] = np.arange(len(codes))[::-1]
    return np.flatnonzero(seen[codes] != np.arange(len(codes)))


def _refuse(ids: Any, twice: list[int], inside: list[int], where: str) -> None:
    """Refuse rows whose id appears twice, then those below a file."""
    for row in sorted(twice)[:1]:
        raise InvalidInputError(
            f"id {shown(ids[row].as_py())} appears twice", where=f"{where}, row {row}"
        )
    for row in sorted(inside)[:1]:
        name = ids[row].as_py().strip("/")
        raise InvalidInputError("a sample lies below a file", where=shown(name, 120))


def taken(column: Any, rows: Ints) -> Any:
    """The values of `rows`; null where a row is negative."""
    if len(rows) == len(column) and (rows == np.arange(len(rows))).all():
        return column
    return column.take(numbers_column(rows, valid=rows >= 0))


def fields_at(fields: Any, rows: Ints) -> dict[str, Any]:
    """The fields that any sample of a level has a value for; `rows` are table rows or -1.

    Includes fields that are null in the whole table; empty if no sample has a row.
    """
    if not (rows >= 0).any():
        return {}
    found: dict[str, Any] = {}
    for name, column in zip(fields.column_names, fields.columns, strict=True):
        own = taken(column, rows)
        if own.null_count < len(own) or column.null_count == len(column):
            found[name] = own
    return found


# -- manifests -------------------------------------------------------------------------------------


ID, PATH = "id", "path"
_FAULTS: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    pa.ArrowException: InvalidInputError,
    OSError: StorageError,
    ValueError: InvalidInputError,
}
_LOOKING: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    NotADirectoryError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
    ValueError: ObjectNotFoundError,  # NUL, which no path holds
}
SEEN = "comal:seen"
"""Name of the column with what was seen of a file in a store; see `comal.samples.objects`."""
_URL = re.compile("^[A-Za-z][A-Za-z0-9+.-]*://")
_PARQUET = frozenset({".parquet", ".geoparquet", ".pq"})
_BLOCK = 1 << 14
"""Number of paths held as Python objects at once."""


class Geometry(NamedTuple):
    """Column names that a format gives to the geometry of a GeoParquet file and its CRS."""

    column: str
    crs: str


def read_table(
    path: str | os.PathLike[str],
    *,
    texts: Sequence[str] = (ID, PATH),
    geometry: Geometry | None = None,
    config: StorageConfig | None = None,
) -> Any:
    """A user's table from a file: Parquet by its first bytes or its suffix, else CSV.

    The columns of a CSV file named in `texts` are always strings: an id such as ``0001`` is not a
    number. Other types are inferred. Only the empty string is null: ``NA`` is a country.
    `geometry` names the columns for the primary geometry of a GeoParquet file (WKB) and for its
    CRS (such as ``EPSG:4326``).
    """
    source, where = open_source(path, config=config), _place(path)
    with translated(_FAULTS, "the manifest cannot be read", where=where):
        (head,) = source.fetch([Head(4)])
        suffix = PurePosixPath(source.location.name).suffix.lower()
        if head.data == b"PAR1" or suffix in _PARQUET:
            table = pq.read_table(source.file())
        else:
            table = _read_csv(source, texts)
    refuse_twins(table, "the manifest", where)
    return table if geometry is None else _with_geometry(table, geometry, where)


def _read_csv(source: Source, texts: Sequence[str]) -> Any:
    kinds = dict.fromkeys(texts, pa.string())
    table = _parsed(source, kinds)
    untyped = [field.name for field in table.schema if pa.types.is_null(field.type)]
    if untyped:  # only words such as 'NA', which may be real values
        table = _parsed(source, kinds | dict.fromkeys(untyped, pa.string()))
    empty, null = texts_column(["", None])
    for position, field in enumerate(table.schema):
        if pa.types.is_binary(field.type):
            raise ValueError(f"column {shown(field.name)} is not UTF-8")
        if pa.types.is_string(field.type):
            column = table.column(position)
            filled = pc.not_equal(column, empty)
            table = table.set_column(position, field, pc.if_else(filled, column, null))
    return table


def _parsed(source: Source, kinds: Mapping[str, Any]) -> Any:
    how = {
        "convert_options": pa_csv.ConvertOptions(column_types=kinds),
        "parse_options": pa_csv.ParseOptions(newlines_in_values=True),
    }
    # The default pool keeps many megabytes per parsing thread.
    return pa_csv.read_csv(source.file(), memory_pool=SMALL_POOL, **how)


def _with_geometry(table: Any, geometry: Geometry, where: str) -> Any:
    described = (table.schema.metadata or {}).get(b"geo")
    if described is None:
        return table
    document = strictjson.loads(described, where)
    primary = document.get("primary_column")
    if primary not in table.column_names:
        return table
    columns = document.get("columns")
    about = columns.get(primary) if isinstance(columns, Mapping) else None
    position = table.column_names.index(primary)
    table = table.set_column(position, geometry.column, table.column(position))
    if geometry.crs not in table.column_names:
        crs = _crs_name(about.get("crs") if isinstance(about, Mapping) else None)
        table = table.append_column(geometry.crs, pa.repeat(texts_column([crs])[0], table.num_rows))
    return table


def _crs_name(crs: Any) -> str:
    """Name of a CRS in PROJJSON; the default of GeoParquet is longitude and latitude."""
    identity = crs.get("id") if isinstance(crs, Mapping) else None
    if not isinstance(identity, Mapping) or identity.get("code") in {"CRS84", "4326", 4326}:
        return "EPSG:4326" if not isinstance(crs, Mapping) or identity else json.dumps(crs)
    return f"{identity.get('authority')}:{identity.get('code')}"


def _label(manifest: Any) -> str:
    """How messages name a manifest, which is a path or a table."""
    is_path = isinstance(manifest, str | os.PathLike)
    return f"manifest {_place(manifest)}" if is_path else "manifest"


def _place(path: str | os.PathLike[str]) -> str:
    place = parse_href(path)
    return shown(os.fspath(path), 200) if place.is_local else place.label


def split(
    table: Any,
    root: Path | Location,
    where: str = "manifest",
    config: StorageConfig | None = None,
) -> tuple[Any, Any, Any]:
    """A manifest as id paths, absolute paths (null for a folder), and a table of other columns.

    Each distinct path is checked once; relative ones start from `root`.
    """
    refuse_twins(table, "the manifest", where)
    if not {ID, PATH} <= set(table.column_names):
        raise InvalidInputError(
            "the manifest does not have the columns id and path",
            where=where,
            found=", ".join(map(shown, table.column_names[:20])),
            expected="a table with the columns id and path, or the path of one",
        )
    ids, paths = (_texts(table.column(name), name, where) for name in (ID, PATH))
    fields = table.drop_columns([ID, PATH])
    if SEEN in fields.column_names:
        raise InvalidInputError(
            "a manifest may not have a column of this name",
            where=where,
            found=SEEN,
            hint="rename it: packing keeps there what it sees of files",
        )
    paths = absolute(paths, root)
    far = is_url(paths)
    _look_at(pc.if_else(far, None, paths))
    if far.true_count:
        from comal.samples.objects import seen_objects  # noqa: PLC0415 - few lie in stores

        fields = fields.append_column(SEEN, seen_objects(paths, config))
    return ids, paths, fields


def _texts(column: Any, name: str, where: str) -> Any:
    kind = column.type
    if not (is_text(kind) or pa.types.is_null(kind)):
        raise InvalidInputError(
            f"column {name!r} of the manifest is not text",
            where=where,
            found=str(kind),
            expected="string",
        )
    with translated(
        {pa.ArrowException: InvalidInputError}, f"column {name!r} of the manifest cannot be used"
    ):
        texts = one_array(column if pa.types.is_string(kind) else pc.cast(column, pa.string()))
        texts.validate(full=True)  # Parquet may hold bytes that are not UTF-8
    return texts


def _look_at(paths: Any) -> None:
    distinct = pc.unique(paths).drop_null()
    for start in range(0, len(distinct), _BLOCK):
        for path in distinct.slice(start, _BLOCK).to_pylist():
            try:
                if stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - may be a million
                    continue
            except (OSError, ValueError):
                with translated(
                    _LOOKING, "a file of the manifest is missing", where=_row(paths, path)
                ):
                    raise
            raise InvalidInputError(
                "a file of the manifest is not a regular file", where=_row(paths, path)
            )


def _row(paths: Any, path: str) -> str:
    row = int(rows_where(pc.equal(paths, texts_column([path])[0]))[0])
    return f"{shown(path, 200)} (row {row})"
