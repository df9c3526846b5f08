"""Files to pack that lie in stores or on servers: listed or asked for once, read when written.

What was seen of a file first goes along as a column (`SEEN`), into a plan, too. Who reads another
version of it gets an error that names it.
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, ObjectChangedError, ObjectNotFoundError, system_errors
from comal.lazy import pc
from comal.limits import MIB
from comal.plan import Head
from comal.samples.intake import SEEN, is_url
from comal.samples.payloads import Files, Ints, Mixed, Payloads, Spans
from comal.storage import Location, ObjectInfo, Source, StorageConfig, StorePath, open_source
from comal.storage.config import default_config
from comal.storage.location import HTTP_SCHEMES, STORE_SCHEMES, parse_href
from comal.storage.source import changed, same_version
from comal.table.columns import flags_of, numbers_column, one_array, texts_column

_SEEN: Final = pa.struct([("size", pa.int64()), ("etag", pa.string()), ("modified", pa.int64())])
_LISTED: Final = pa.schema([("name", pa.string()), ("fits", pa.bool_()), (SEEN, _SEEN)])
_AT_ONCE: Final = 1 << 14
_AHEAD: Final = 32 * MIB


def objects_below(
    root: Location, patterns: Sequence[str], *, target: Path, config: StorageConfig | None
) -> tuple[Any, Any, Any]:
    """As `comal.samples.intake.files_below` for a prefix of a store, with what was seen of each.

    The listing takes some hundred bytes an object, and comes in the order of folders. Empty objects
    that only mark a folder are left out.
    """
    if root.scheme not in STORE_SCHEMES:
        open_source(root, config=config).names()  # an error: HTTP has no listing
    from comal.storage.storeobject import StoreObject  # noqa: PLC0415 - it loads obstore

    top = StoreObject(StorePath(root, config))
    fits = re.compile("|".join(map(fnmatch.translate, patterns)) or "(?!)")
    table = pa.Table.from_batches(top.listed(partial(_listed, fits, root.scheme)), _LISTED)
    if not table.num_rows:
        if root.path and top.meta() is not None:
            raise InvalidInputError("a folder is expected, not a file", where=root.label)
        raise ObjectNotFoundError("no such folder", where=root.label)
    # Sorted by parts: the slash sorts before all characters of names.
    table = table.take(pc.sort_indices(pc.replace_substring(table["name"], "/", "\0")))
    keep = flags_of(table["fits"])
    keep[list(_marks(table))] = False
    table = table.filter(pa.array(keep))
    paths = pc.binary_join_element_wise(root.href.rstrip("/"), table["name"], "/")
    written = os.fspath(target)
    inside = pc.or_(pc.equal(paths, written), pc.starts_with(paths, f"{written}/"))
    table = table.append_column("path", paths).filter(pc.invert(inside)).combine_chunks()
    ids, paths = (one_array(table[name]) for name in ("name", "path"))
    return ids, paths, table.select([SEEN])


def _listed(fits: re.Pattern[str], scheme: str, some: dict[str, Any]) -> Any:
    rows = [
        {
            "name": name,
            "fits": "/." not in f"/{name}" and bool(fits.match(name.rpartition("/")[2])),
            SEEN: {
                "size": meta["size"],
                "etag": _tag(meta["e_tag"], scheme),
                "modified": int(meta["last_modified"].timestamp()) * 10**9,
            },
        }
        for name, meta in some.items()
    ]
    return pa.RecordBatch.from_pylist(rows, _LISTED)


def _tag(tag: str | None, scheme: str) -> str | None:
    """A strong ETag as the header of an answer has it; some listings leave out the quotes."""
    if not tag or tag.startswith("W/"):
        return None
    return tag if scheme == "memory" or tag.startswith('"') else f'"{tag}"'


def _marks(table: Any) -> Iterator[int]:
    """Rows of empty objects that have others below them."""
    names, sizes = table["name"], pc.struct_field(table[SEEN], "size").to_numpy()
    for row in np.flatnonzero(sizes[:-1] == 0).tolist():
        if names[row + 1].as_py().startswith(f"{names[row].as_py()}/"):
            yield row


# -- versions --------------------------------------------------------------------------------------


def seen_objects(paths: Any, config: StorageConfig | None) -> Any:
    """What is seen of the objects among paths and URLs, one request each; null for others."""
    found = np.full(len(paths), None, object)
    rows = np.flatnonzero(flags_of(is_url(paths)))
    for start in range(0, len(rows), _AT_ONCE):  # no more than a source remembers
        some = rows[start : start + _AT_ONCE]
        urls = paths.take(numbers_column(some)).to_pylist()
        found[some] = Objects.of(urls, pa.nulls(len(urls), _SEEN), config).looked_at()
    return pa.array(found.tolist(), _SEEN)


def seen_files(paths: Any) -> list[dict[str, Any] | None]:
    """Size and time of local files now; None for null and URLs."""
    local = pc.if_else(is_url(paths), None, paths).to_pylist()
    return [None if path is None else _seen_file(path) for path in local]


def _seen_file(path: str) -> dict[str, Any]:
    with system_errors("cannot read", path, writing=False):
        status = os.stat(path)  # noqa: PTH116 - may be a million
    return {"size": status.st_size, "etag": None, "modified": status.st_mtime_ns}


def with_seen_files(table: Any, path: str) -> Any:
    """A table of samples with what is seen of its local files, too; `path` names their column."""
    found = seen_files(table[path])
    if SEEN in table.column_names:
        known = table[SEEN].to_pylist()
        found = [one or other for one, other in zip(found, known, strict=True)]
        table = table.drop_columns([SEEN])
    return table.append_column(SEEN, pa.array(found, _SEEN))


def check_seen_files(table: Any, path: str) -> None:
    """Raise `ObjectChangedError` for a local file that changed after it was planned."""
    paths, seen = table[path].to_pylist(), table[SEEN].to_pylist()
    for name, then, now in zip(paths, seen, seen_files(table[path]), strict=True):
        if now is not None and not same_version(ObjectInfo(name, **then), ObjectInfo(name, **now)):
            hint = "plan it again, for another folder"
            raise ObjectChangedError("a file changed after it was planned", where=name, hint=hint)


# -- bytes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Objects(Spans):
    """Whole objects, of the versions that were seen before."""

    seen: Any = None
    """Arrow structs of size, ETag and time, one for each row."""

    @classmethod
    def of(cls, urls: Sequence[str], seen: Any, config: StorageConfig | None) -> Objects:
        """From URLs; HTTP servers get the credentials of ``linked_origins`` and no others."""
        places = [parse_href(url) for url in urls]
        firsts = {place.origin: place for place in places}
        numbers = {origin: number for number, origin in enumerate(firsts)}
        sizes = pc.fill_null(pc.struct_field(seen, "size"), 0).to_numpy(zero_copy_only=False)
        return cls(
            [_source_of(place, config or default_config()) for place in firsts.values()],
            np.array([numbers[place.origin] for place in places], np.int64),
            np.zeros(len(places), np.int64),
            sizes,
            texts_column([_name_of(place) for place in places]),
            seen,
        )

    def looked_at(self) -> list[dict[str, Any]]:
        """What is seen of them now."""
        rows = list(zip(self.source.tolist(), self.hrefs.to_pylist(), strict=True))
        for number, source in enumerate(self.sources):
            source.fetch([Head(0, name) for owner, name in rows if owner == number])
        infos = [self.sources[owner].stat(name) for owner, name in rows]
        return [{name: getattr(one, name) for name in _SEEN.names} for one in infos]

    def fetched(self, rows: Ints, sizes: Ints) -> list[bytes]:
        """The first bytes of the objects of `rows`; raises for another version, empty ones too."""
        some = self._pinned(rows)
        for row in np.flatnonzero(some.lengths == 0).tolist():
            source, expected = some.sources[int(some.source[row])], some.info(row)
            found = source.at(some.location(row), fresh=True).stat()
            if not same_version(expected, found):
                raise changed(some.location(row), expected, found)
        return Spans.fetched(some, np.arange(len(rows)), sizes)

    def open(self, row: int) -> BinaryIO:
        """An object as a stream, of which some requests at a time are read ahead."""
        stream: Any = Spans.open(self._pinned(np.array([row])), 0)
        return io.BufferedReader(stream, _AHEAD)

    def place(self, row: int) -> str:
        """Its URL."""
        return self.location(row).label

    def rasters(self, rows: Ints) -> list[Any]:
        """Their sources."""
        found = [self._pinned(rows[n : n + 1]) for n in range(len(rows))]
        return [one.sources[int(one.source[0])].at(one.location(0)) for one in found]

    def location(self, row: int) -> Location:
        """Where the object of a row is."""
        return self.sources[int(self.source[row])].resolve(self.hrefs[row].as_py())

    def info(self, row: int) -> ObjectInfo:
        """What was seen of the object of a row."""
        return ObjectInfo(self.location(row).href, **self.seen[row].as_py())

    def _pinned(self, rows: Ints) -> Objects:
        """The objects of `rows`, of which no other version is read."""
        fresh = [source.at(source.location, fresh=True) for source in self.sources]
        some = replace(self.take(rows), sources=fresh)
        for row, number in enumerate(some.source.tolist()):
            fresh[number].pins.expect(some.info(row))
        return some


def _source_of(place: Location, config: StorageConfig) -> Source:
    if place.scheme in HTTP_SCHEMES:
        config = config.linked(place) or config.public()
    return open_source(replace(place, path=""), config=config)


def _name_of(place: Location) -> str:
    return unquote(place.path).lstrip("/") if place.scheme in HTTP_SCHEMES else place.path


def payloads_at(paths: Any, seen: Any, config: StorageConfig | None) -> Payloads:
    """The files of paths and URLs, Arrow arrays; null is empty."""
    far = flags_of(is_url(paths))
    rows = np.flatnonzero(far)
    if not len(rows):
        return Files(paths)
    chosen = numbers_column(rows)
    objects = Objects.of(paths.take(chosen).to_pylist(), seen.take(chosen), config)
    files = Files(pc.if_else(pa.array(far), None, paths))
    own = np.where(far, np.cumsum(far) - 1, np.arange(len(far)))
    mixed: Payloads = Mixed([files, objects], far.astype(np.int8), own).take(np.arange(len(far)))
    return mixed
