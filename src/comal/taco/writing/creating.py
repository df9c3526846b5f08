"""Writing a dataset: `create` (TACO 2.0, 7.1.3), as one container or as a set of archives."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import ComalError, ConflictError, InvalidInputError, shown
from comal.limits import parse_size
from comal.parallel import Workers
from comal.plan import run
from comal.progress import Progress
from comal.samples.payloads import Ints, refuse_read
from comal.storage import open_source, targets
from comal.storage.targets import TargetSet, check_ending
from comal.taco import spec, wire
from comal.taco.model.collection import Taco, extent_of
from comal.taco.model.levels import Level, Levels, check_pit, check_twins, flat, is_padding, select
from comal.taco.spec import LOGGER
from comal.taco.writing.containers import (
    BatchWriter,
    Writing,
    ZipSink,
    computed_schemas,
    new_container,
    no_sample,
    settings,
    write_columns,
)
from comal.taco.writing.tacocat import write_tacocat
from comal.taco.writing.verify import INDEX, INDEX_FOLDER, ZIP

ZIP_SUFFIXES = (".tacozip", ".zip")


def create(
    taco: Taco,
    output: str | os.PathLike[str],
    output_format: str = "auto",
    *,
    overwrite: bool = False,
    split_size: int | str | None = None,
    group_by: str | Sequence[str] | None = None,
    consolidate: bool = True,
    progress: Progress | None = None,
    executor: Workers = None,
    temp_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> list[Path]:
    """Write a dataset to disk.

    The target appears complete or not at all, and the same dataset always gives the same bytes.

    Parameters
    ----------
    taco
        The dataset.
    output
        Target: a file for ZIP, a folder for FOLDER.
    output_format
        ``zip``, ``folder`` or ``auto``: ZIP if the name ends in ``.zip`` or ``.tacozip``.
    overwrite
        Replace an existing dataset at the end, completely; a folder only if it holds no files
        other than those that its tables name. With `split_size`, older archives named like parts
        that the new set does not have are removed.
    split_size
        Write several archives ``{stem}_part0001.tacozip`` of about this size each: bytes, or text
        such as ``"4GB"``. Level 0 samples are never split.
    group_by
        Write an archive ``{stem}_{key}.tacozip`` for each value of these metadata fields of
        level 0.
    consolidate
        With several archives: also write ``__TACOCAT__`` and ``.tacocat`` beside them.
    progress
        Called with the progress of the copy.
    executor
        Encodes the many small metadata files of nested datasets: any
        `concurrent.futures.Executor`, or a number of processes; None uses threads.
    temp_dir
        Ignored, but part of the specification; temporary files are beside the target.
    **options
        ``config``, a `StorageConfig` to write with, where the target is in a store; and settings of
        the level tables: compression, compression_level, row_group_size, ... Tables of a folder
        default to pages of 16 to 128 KB, row groups of 131 072 rows, and dictionaries
        only for values that repeat, so that storage with content-defined chunks (TACO 2.0, 6.4)
        needs little space for a new version.

    Returns
    -------
    list of pathlib.Path
        The written files and folders, archives first; in a store, each as a `StorePath`.

    Raises
    ------
    ConflictError
        The target exists (and `overwrite` is False), or is one of the sources; or a file that is
        not a TACO archive has the name of a part.
    InvalidInputError
        A sample, a structure or an argument that cannot be written.
    ObjectNotFoundError, AccessDeniedError, StorageError
        A source or the target fails.
    """
    del temp_dir
    if not isinstance(taco, Taco):
        raise InvalidInputError(
            "only a Taco can be written",
            found=type(taco).__name__,
            hint="give a Tortilla the fields of a collection: Taco(tortilla, id=..., ...)",
        )
    target = targets.target_path(output, options.pop("config", None))
    kind = container_of(target, output_format)
    how = Writing(settings(options, kind), overwrite, progress, executor)
    if split_size is None and group_by is None:
        _write_one(taco, target, kind, how)
        LOGGER.info("wrote %s", target)
        return [target]
    if kind != "zip":
        raise InvalidInputError("only ZIP archives can be split or grouped", found=kind)
    with targets.new_set(target, overwrite) as made:
        whole = _ArchiveSet(taco, target, split_size, how, made)
        if consolidate:
            made.check(spec.TACOCAT_FOLDER, INDEX_FOLDER, folder=True)
            made.check(spec.TACOCAT, INDEX)
        archives = whole.write(group_by)
        if consolidate:
            write_tacocat(made, [made.folder / path.name for path in archives], how.parquet)
        paths = whole.publish(archives)
    for path in paths:
        LOGGER.info("wrote %s", path)
    names = {path.name for path in archives}
    return [*archives, *(target.with_name(p.name) for p in paths if p.name not in names)]


def container_of(target: Path, output_format: str) -> str:
    """``zip`` or ``folder``, from `output_format` or from the name."""
    wanted = output_format.lower()
    if wanted not in {"zip", "folder", "auto"}:
        raise InvalidInputError(
            "unknown container", found=shown(output_format), expected="'zip', 'folder' or 'auto'"
        )
    if wanted != "folder" and target.suffix.lower() in ZIP_SUFFIXES:
        return "zip"
    check_ending(target, *(() if wanted == "folder" else ZIP_SUFFIXES))
    wanted = "folder" if wanted == "auto" else wanted
    if wanted == "folder" and target.name in {"DATA", "METADATA", spec.TACOCAT_FOLDER}:
        raise InvalidInputError("the target has the name of a part of a dataset", found=target.name)
    return wanted


def _write_one(taco: Taco, target: Path, kind: str, how: Writing) -> None:
    batches = taco.tortilla.stream
    if batches is None:
        levels = taco.tortilla.levels()
        document = taco.export_metadata() | computed_schemas(levels, spans=kind == "zip")
        write_levels(levels, document, target, kind, how)
        return
    with new_container(target, kind, how) as sink, ExitStack() as scope:
        writer = BatchWriter(sink, batches.schema, how, scope)
        for table, payloads in batches:
            writer.add(table, payloads)
        writer.finish(taco)


def write_levels(
    levels: Levels, document: dict[str, Any], target: Path, kind: str, how: Writing
) -> None:
    """Write levels and their COLLECTION.json as one container.

    All writers with rows in columns use it; payloads may be spans of other containers.
    """
    refuse_read([target], [level.payloads for level in levels])
    with new_container(target, kind, how) as sink:
        write_columns(sink, levels, document, how)


# -- a set of archives -----------------------------------------------------------------------------

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]+")
_ENTRY_BYTES = 200
"""Approximate overhead of an entry: two headers, two names, a row."""
_KEY_MAX = 120
_BETWEEN, _NULL = "\x1f", "\x1e"
"""Between the values of a group, and for null: no other group has the same text."""
MOST = 9_999
"""Maximum number of archives of one dataset."""
GROUPS = 100
"""Maximum number of groups of batches, as each has an archive open until the end."""


class _ArchiveSet:
    """Archives of one dataset, by size, by values of fields or both, published together.

    Parts of an older set that no new part replaces are removed: a reader that finds parts by a
    pattern would mix them with the new ones.
    """

    def __init__(
        self, taco: Taco, target: Path, split_size: int | str | None, how: Writing, made: TargetSet
    ) -> None:
        self.taco = taco
        self.limit = (
            None if split_size is None else parse_size(split_size, "split_size is not a size")
        )
        self.how = how
        self.made = made
        self.batches = taco.tortilla.stream
        self._target = target
        self._old: list[Path] = []
        self._ending = target.suffix or ".tacozip"
        alike = re.compile(rf"{re.escape(target.stem)}(_.*)?_part\d{{4,}}{re.escape(self._ending)}")
        self._parts = [path for path in targets.beside(target) if alike.fullmatch(path.name)]
        """Existing parts, of any group."""

    def write(self, group_by: str | Sequence[str] | None) -> list[Path]:
        """Write all archives; returns their final paths, in order."""
        series: dict[str, _Series] = {}
        keys: _GroupKeys | None = None
        with ExitStack() as scope:
            for levels in self._inputs():
                table = levels[0].table
                self.made.expect(sum(int(level.payloads.sizes().sum()) for level in levels))
                refuse_read(self._parts, [level.payloads for level in levels])
                if group_by is not None and keys is None:
                    keys = _GroupKeys(table.schema, group_by)
                groups = [("", np.arange(table.num_rows))] if keys is None else keys.of(table)
                for key, _ in groups:  # all names are checked before the first archive is begun
                    if key not in series:
                        self._refuse_more(len(series))
                        series[key] = _Series(self, key, scope)
                for key, rows in groups:
                    whole = len(rows) == table.num_rows
                    series[key].add(levels if whole else select(levels, rows))
            if not series:
                raise no_sample()
            for one in series.values():
                one.finish()
        ids = [chunk for one in series.values() for chunk in one.ids]
        check_twins(pa.chunked_array(ids, pa.string()))
        return [path for one in series.values() for path in one.paths]

    def _inputs(self) -> Iterator[Levels]:
        """The entire dataset, or the batches of level 0."""
        if self.batches is None:
            levels = self.taco.tortilla.levels()
            check_pit(levels)
            yield levels
            return
        for table, payloads in self.batches:
            yield (Level(table, np.arange(table.num_rows), payloads),)

    def _refuse_more(self, groups: int) -> None:
        if self.batches is not None and groups == GROUPS:
            raise InvalidInputError(
                "too many groups for samples that come in batches: an archive is open for each",
                expected=f"at most {GROUPS}",
                hint="make one table of the batches: Tortilla.from_table",
            )

    def part(self, key: str, number: int | None) -> Path:
        """The path of the archive of a group, of a numbered part, or of a part of a group."""
        name = part_name(self._named(key), number, self._ending)
        return self._target.with_name(name)

    def _named(self, key: str) -> str:
        return f"{self._target.stem}_{key}" if key else self._target.stem

    def expect(self, key: str) -> None:
        """Refuse names of a group that may not be replaced, before anything is written."""
        paths = [self.part(key, None)]
        if self.limit is not None:
            named = re.compile(re.escape(self._named(key)) + r"_part\d+" + re.escape(self._ending))
            paths = [path for path in self._parts if named.fullmatch(path.name)]
            self._old += paths
        for path in paths:
            self.made.check(path.name, ZIP)

    def publish(self, archives: Collection[Path]) -> list[Path]:
        """Publish all archives, and remove remaining parts of the old set."""
        for path in self._old:
            if path not in archives:
                self._refuse_stranger(path)
                self.made.remove(path.name, ZIP)
        return self.made.publish()

    def _refuse_stranger(self, path: Path) -> None:
        """Refuse to remove an archive whose collection has another id than this dataset."""
        try:
            with open_source(path) as source:
                opened = run(wire.open_plan(source.href), source.fetch)
            found = shown(opened.collection.get("id"))
        except ComalError as error:
            found = error.what
        if found != shown(self.taco.id):
            raise ConflictError(
                "a file that is not part of this dataset has this name",
                where=shown(path, 200),
                found=found,
                expected=f"a part of {shown(self.taco.id)}",
                hint="remove the file, or choose another name",
            )


class _Series:
    """The archives of one group: when one is full, the next is begun."""

    def __init__(self, whole: _ArchiveSet, key: str, scope: ExitStack) -> None:
        self.ids: list[Any] = []
        """Ids of samples in batches; those of levels have been checked already."""
        self.paths: list[Path] = []
        self._set = whole
        self._key = key
        self._used = 0
        self._writer: BatchWriter | None = None
        # A stack of its own, so that an archive can be closed before the others.
        self._archive = ExitStack()
        scope.push(self._archive)
        whole.expect(key)

    def add(self, levels: Levels) -> None:
        """Write samples to the open archive, and to further ones when it is full."""
        rows, limit = levels[0].rows, self._set.limit
        if limit is None:
            self._write(levels)
            return
        ends = np.cumsum(root_bytes(levels))
        for number, (start, stop) in enumerate(cuts(ends, limit, self._used)):
            if number:
                self.finish()
            if start < stop:
                self._used += int(ends[stop - 1]) - (int(ends[start - 1]) if start else 0)
                whole = stop - start == rows
                self._write(levels if whole else select(levels, np.arange(start, stop)))

    def _write(self, levels: Levels) -> None:
        whole = self._set
        if whole.batches is not None:
            if self._writer is None:
                sink = self._begin(levels)
                self._writer = BatchWriter(sink, whole.batches.schema, whole.how, self._archive)
            self._writer.add(levels[0].table, levels[0].payloads)
            return
        document = whole.taco.export_metadata() | computed_schemas(levels, spans=True)
        if not whole.taco.extent_is_given:
            document["extent"] = extent_of(level.table for level in levels)
        write_columns(self._begin(levels), levels, document, whole.how)
        self.finish()

    def _begin(self, levels: Levels) -> ZipSink:
        whole = self._set
        number = None if whole.limit is None else len(self.paths) + 1
        path = whole.part(self._key, number)
        refuse_read([path], [level.payloads for level in levels])
        self.paths.append(path)
        file = self._archive.enter_context(whole.made.file(path.name, ZIP))
        return ZipSink(file, whole.how.progress)

    def finish(self) -> None:
        """Complete the open archive."""
        if self._writer is not None:
            self.ids += self._writer.finish(self._set.taco).chunks
        self._archive.close()
        self._writer = None
        self._used = 0


def part_name(stem: str, number: int | None, ending: str) -> str:
    """The name of a numbered part of a set, or of an archive that is not divided."""
    if (number or 0) > MOST:
        raise InvalidInputError(
            "too many archives",
            found=str(number),
            expected=f"at most {MOST}",
            hint="pass a larger split_size, or group by a field with fewer values",
        )
    return f"{stem}{ending}" if number is None else f"{stem}_part{number:04d}{ending}"


def cuts(ends: Ints, limit: int, used: int = 0) -> Iterator[tuple[int, int]]:
    """First and last row (exclusive) of each part of at most `limit` bytes, or of one sample.

    `ends` has the bytes up to the end of each sample. The first part has `used` bytes already, and
    may get no sample.
    """
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + limit - used, side="right"))
        stop = max(stop, start if used else start + 1)
        yield start, stop
        start, used = stop, 0


def root_bytes(levels: Levels) -> Ints:
    """Size of each level 0 sample with its descendants, in bytes."""
    below: Ints | None = None
    for depth in reversed(range(len(levels))):
        level = levels[depth]
        own = np.where(level.folders, 0, level.payloads.sizes()) + _ENTRY_BYTES
        if below is not None:
            np.add.at(own, levels[depth + 1].parent, below)
        below = own
    assert below is not None
    return below


class _GroupKeys:
    """Groups of rows, and the keys in the names of their archives."""

    def __init__(self, schema: Any, group_by: str | Sequence[str]) -> None:
        self._fields = [group_by] if isinstance(group_by, str) else list(group_by)
        self._values: dict[str, str] = {}
        for name in self._fields:
            if name not in schema.names or name == spec.ID:
                raise InvalidInputError(
                    f"no field {shown(name)} to group by", found=", ".join(schema.names)
                )

    def of(self, table: Any) -> list[tuple[str, Ints]]:
        """Keys and rows of the groups of a table, in order of first appearance.

        Padding, which has no values, belongs to the group of the last sample before it.
        """
        columns = [_texts(flat(table.column(name)), name) for name in self._fields]
        padding = is_padding(flat(table.column(spec.ID)))
        joined = pc.binary_join_element_wise(*columns, _BETWEEN)
        values = pc.fill_null_forward(pc.if_else(padding, None, joined))
        encoded = pc.dictionary_encode(pc.fill_null(values, ""))
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)))
        rows = np.split(order, starts[1:])
        keys = [self._key(value) for value in encoded.dictionary.to_pylist()]
        return list(zip(keys, rows, strict=True))

    def _key(self, value: str) -> str:
        shown_value = value.replace(_NULL, "null").replace(_BETWEEN, "_")
        key = _UNSAFE.sub("-", shown_value).strip(".-")[:_KEY_MAX] or "empty"
        known = self._values.setdefault(key.lower(), value)
        if known != value:
            raise InvalidInputError(
                "two groups would have the same file name",
                found=f"{shown(known)} and {shown(value)}, both {shown(key)}",
                expected="values that differ in letters, digits, '_', '.' or '-'",
            )
        return key


def _texts(column: Any, name: str) -> Any:
    try:
        return pc.fill_null(column.cast(pa.string()), _NULL)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"values of field {shown(name)} cannot be file names", found=str(column.type)
        ) from error
