"""Builds a tileset from any source of tiles: archives are written in parallel.

A task is a few groups of neighbouring archives, written from the squares of their tiles, so memory
is that of a few squares for a pyramid of any size. The metadata are written last. Resuming an
interrupted build verifies the checksums of every existing archive, so incomplete ones are written
again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from comal.errors import ComalError, InvalidInputError, system_errors
from comal.parallel import Workers, results
from comal.plan import run
from comal.progress import Progress, silent
from comal.public import takes, warn
from comal.storage import StorageConfig, open_source
from comal.storage.targets import check_ending, target_path
from comal.tapalcatl.addressing import Generation1
from comal.tapalcatl.containers.base import Square, Tiles, TileSource, concatenated, no_tiles
from comal.tapalcatl.containers.export import opened
from comal.tapalcatl.containers.survey import Survey, scaled, survey
from comal.tapalcatl.layout import (
    ArchiveLayout,
    MetatileLayout,
    SingleLayout,
    Template,
    TreeLayout,
    choose_layout,
    smallest_metatile,
)
from comal.tapalcatl.spec import (
    META,
    VARIANTS,
    Bounds,
    Headers,
    TapalcatlWarning,
    Tile,
    TileSetMetadata,
    checked,
    parse_tileset,
    read_comment,
    tileset_document,
    tileset_json,
    with_variant,
)
from comal.tapalcatl.wire import Int64s, order_of, tiles_in
from comal.tapalcatl.writing.entries import (
    BuildOptions,
    EntryRules,
    new_entries,
    rules_of,
)
from comal.tapalcatl.writing.targets import (
    TREE,
    Workplace,
    check_one,
    first_generation,
    is_archive,
    place_of_one,
    workplace,
)
from comal.ziparchive import ZipWriter, check_plan, directory_plan, packed_archives
from comal.ziparchive.write import write_pieces

TEMPLATE: Final = "{z}/{x}/{y}.zip"
_TASK: Final = 16
"""Approximate squares per task: enough for a small overhead, few enough to balance."""
_PROBES: Final = 5
_SHAPE: Final = 5
"""Version of the form of archives; a build with another one is not resumed."""
Location = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Built:
    """A tileset that was written."""

    output: str
    archives: int
    tiles: int
    """Entries of all archives."""
    size: int
    """Bytes of all archives."""
    kept: int
    """Archives that an interrupted build had written already."""
    min_zoom: int
    max_zoom: int
    bounds: Bounds
    metatile: int
    materialized_zooms: tuple[int, ...]
    formats: Mapping[str, Headers]

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return {**asdict(self), "formats": sorted(self.formats)}


@takes(BuildOptions)
def build(
    source: Any,
    out: Location,
    options: BuildOptions | None = None,
    *,
    executor: Workers = None,
    resume: bool = True,
    overwrite: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
    **changes: Any,
) -> Built:
    """Write a Tapalcatl tileset: a folder of archives with ``meta.json``, or a single archive.

    Parameters
    ----------
    source
        Path or URL of an MBTiles or PMTiles file, of a folder of tiles or of a tileset, an open
        source, or an iterable of ``(z, x, y, data)`` or `NewTile`.
    out
        A folder, which appears when it is complete; in a store its document comes last. A name
        that ends in ``.zip`` makes one archive that holds all tiles and its metadata: its root zoom
        is the first zoom, its metatile the smallest that holds all tiles. Metadata that do not fit
        into its comment of 65 535 bytes are left out with a warning, the longest keys first.
    options
        Options of the tileset.
    executor
        Writes archives: any `concurrent.futures.Executor`, or a number of processes; threads if
        None.
    resume
        Reuse the archives of an interrupted build of the same source with the same options. They
        are kept beside `out` after an error, and their checksums are verified. In a store, where
        archives appear as they are finished, those of a killed build are reused, and after an error
        they are removed. A single archive cannot be resumed.
    overwrite
        Replace `out`, which must be a tileset and hold no other file.
    durable
        Whether to flush all bytes to the disk before `out` appears. Without it a kill still loses
        nothing, but a power cut may.
    progress
        Called with the number of archives done.
    config
        Settings and credentials to write with, where `out` is in a store.
    **changes
        Fields of `BuildOptions`, such as ``metatile=2, name="Cloudless"``.

    Returns
    -------
    Built

    Raises
    ------
    InvalidInputError
        Invalid options, such as a layout of several archives for a single one, or a source
        without tiles.
    ConflictError
        `out` exists, or another process is writing it; in a store also what is left of another
        build.
    ObjectChangedError
        The source changed meanwhile.
    """
    wanted, target = replace(options or BuildOptions(), **changes), target_path(out, config)
    with ExitStack() as scope:
        tiles = opened(source, scope)
        check_ending(out, ".zip")
        alone = is_archive(out)
        if alone and (wanted.version == 1 or wanted.hash_in_path):
            raise InvalidInputError(
                "a single archive describes itself and has no key",
                where=os.fspath(out),
                hint="leave out the hash, or Tapalcatl 1, or write to a folder",
            )
        job = Job.of(tiles, wanted, alone=alone)
        if alone:
            check_one(job.plan, out)
            placing: AbstractContextManager[Workplace] = place_of_one(
                target, overwrite=overwrite, source=source
            )
        else:
            fingerprint = _fingerprint(job) if resume else b""
            kind = TREE
            if isinstance(job.arrangement, MetatileLayout):
                kind = first_generation(job.arrangement.settings)
            placing = workplace(
                target, fingerprint, kind, source, overwrite=overwrite, durable=durable
            )
        with placing as place:
            formats, _ = job.probed()
            done = Written(formats=formats)
            with closing(job.written(place, formats, executor)) as every:
                for written in every:
                    done = done.plus(written)
                    (progress or silent)(done.archives, len(job.plan.archives), "writing archives")
            metadata = job.finished(done, alone=alone)
            if isinstance(job.arrangement, TreeLayout) and not alone:
                with system_errors("cannot write", target):
                    (place.tree / META).write_bytes(tileset_json(metadata))
            return _built(os.fspath(out), done, metadata)


def _built(out: str, done: Written, metadata: TileSetMetadata) -> Built:
    assert metadata.min_zoom is not None
    assert metadata.max_zoom is not None
    assert metadata.bounds is not None
    return Built(
        out,
        done.archives,
        done.entries,
        done.size,
        done.kept,
        metadata.min_zoom,
        metadata.max_zoom,
        metadata.bounds,
        metadata.metatile,
        metadata.materialized_zooms,
        metadata.formats,
    )


@dataclass(frozen=True)
class Job:
    """A build whose archives are known, or a share of it."""

    source: TileSource
    arrangement: ArchiveLayout
    rules: EntryRules
    plan: Survey
    """The archives to write; its extents are those of the whole tileset."""

    @classmethod
    def of(
        cls,
        tiles: TileSource,
        wanted: BuildOptions,
        surveyed: Callable[[ArchiveLayout], Survey] | None = None,
        *,
        alone: bool = False,
    ) -> Job:
        """Survey the source, unless that was done before."""
        rules = rules_of(tiles, wanted)
        said = _said(tiles.metadata, rules.variant, wanted)
        arrangement: ArchiveLayout
        if wanted.version == 1:
            arrangement = MetatileLayout(wanted.generation1 or Generation1())
        else:
            arrangement = _second(tiles, said, rules, wanted, alone=alone)
        plan = surveyed(arrangement) if surveyed else survey(tiles, arrangement)
        if not plan.tiles:
            raise no_tiles(tiles)
        if isinstance(arrangement, TreeLayout):
            metadata = plan.described(arrangement.metadata)
            # Before anything is written, as no reader would open the tileset.
            checked(parse_tileset, tileset_document(metadata), META)
            arrangement = replace(arrangement, metadata=metadata)
        return cls(tiles, arrangement, rules, plan)

    def probed(self) -> tuple[dict[str, Headers], float]:
        """Headers of the extensions, and mean bytes of a tile, from a few sample tiles."""
        formats: dict[str, Headers] = dict(self.source.metadata.formats)
        formats.update(self.rules.formats)
        last = self.plan.groups - 1
        count = size = 0
        for group in sorted({round(at * last / (_PROBES - 1)) for at in range(_PROBES)}):
            square = self.plan.squares_of(group)[-1]
            tiles = self.source.read(square)
            count, size = count + len(tiles), size + sum(map(len, tiles.payloads))
            if len(tiles):
                # One tile is enough: most tiles of a square are alike.
                one = tiles.take(np.zeros(1, np.int64))
                formats.update(new_entries(one, one.keys, self.rules, formats).formats)
        return formats, size / max(count, 1)

    def written(
        self,
        place: Workplace,
        formats: Mapping[str, Headers],
        executor: Workers,
        threads: int | None = None,
    ) -> Generator[Written]:
        """Write the archives; in a store they are published as they come."""
        arrangement = self.arrangement
        if place.name and isinstance(arrangement, TreeLayout):
            arrangement = SingleLayout(
                arrangement.layout, arrangement.template, arrangement.metadata, place.name
            )
        writer = ArchiveWriter(self.source, arrangement, self.rules, formats, str(place.tree))
        own = threads or min(os.cpu_count() or 1, 8)
        tasks = self._tasks(place)
        with closing(results(executor, writer.write_archives, tasks, threads=own)) as made:
            for one in made:
                if place.store is not None:
                    place.store.add(one.names, one.size, one.told())
                yield replace(one, names=())

    def _tasks(self, place: Workplace) -> Iterator[list[GroupTask]]:
        """Batches of groups."""
        tasks: list[GroupTask] = []
        squares = 0
        for group in range(self.plan.groups):
            rows = self.plan.rows_of(group)
            archives, kept = self._left(place, rows)
            own = self.plan.squares_of(group) if archives else []
            tasks.append(GroupTask(own, archives, kept))
            squares += len(own)
            if squares >= _TASK:
                yield tasks
                tasks, squares = [], 0
        if tasks:
            yield tasks

    def _left(self, place: Workplace, rows: range) -> tuple[frozenset[int], Written]:
        """`order_of` values of the archives still to write, and the summary of the kept ones."""
        left, kept = set(), Written()
        owners = self.plan.archives[rows.start : rows.stop]
        if not place.going_on:
            return frozenset(owners.tolist()), kept
        for row, owner, archive in zip(rows, owners.tolist(), archives_at(owners), strict=True):
            name, count = self.arrangement.path(archive), int(self.plan.counts[row])
            if place.store is not None:
                found = place.store.kept.get(name)
                one = found and replace(Written.of_told(found.told), size=found.size)
            else:
                one = whole(place.tree / name, count)
            if one is None:
                left.add(owner)
            else:
                kept = kept.plus(replace(one, archives=1, entries=count, kept=1))
        return frozenset(left), kept

    def finished(self, done: Written, *, alone: bool = False) -> TileSetMetadata:
        """The metadata of the tileset, when all archives are written."""
        self.source.verify()
        if done.cut:
            kept = "left out" if alone else f"in {META} only"
            warn(
                TapalcatlWarning(f"no room in comments of archives, {kept}: {', '.join(done.cut)}")
            )
        formats = done.formats or {}
        if not isinstance(self.arrangement, TreeLayout):
            return self.plan.described(TileSetMetadata(formats=formats, materialized_zooms=()))
        metadata = replace(self.arrangement.metadata, formats=formats)
        # Comments were made from this metadata, so the document must not cover less.
        return scaled(metadata, done.suffixes)


def _said(own: TileSetMetadata, variant: str | None, wanted: BuildOptions) -> TileSetMetadata:
    """The source's metadata with the caller's overrides."""
    # Only tiles of one variant are read, and written to another one or to none.
    extra = {key: value for key, value in own.extra.items() if key != VARIANTS}
    extra = {**with_variant(extra, variant), **(wanted.metadata or {})}
    if wanted.attribution is not None:
        extra["attribution"] = wanted.attribution
    return replace(
        own,
        name=own.name if wanted.name is None else wanted.name,
        description=own.description if wanted.description is None else wanted.description,
        bounds=own.bounds if wanted.bounds is None else wanted.bounds,
        extra={key: value for key, value in extra.items() if value is not None},
    )


def _second(
    tiles: TileSource,
    said: TileSetMetadata,
    rules: EntryRules,
    wanted: BuildOptions,
    *,
    alone: bool,
) -> TreeLayout:
    """The requested layout; for a single archive it has one root for all tiles."""
    zooms = tiles.zooms()
    if zooms is None:
        raise no_tiles(tiles)
    metatile, roots = wanted.metatile, wanted.materialized_zooms
    if alone:
        roots = [zooms[0]] if roots is None else sorted(roots)
        if metatile is None and roots:
            metatile = smallest_metatile(tiles.keys(), roots[0])
    suffix = f"@{rules.scale:g}x.mvt" if rules.scale != 1 else ".mvt"
    layout = choose_layout(
        zooms[0],
        zooms[1],
        metatile=metatile,
        materialized_zooms=roots,
        suffix=suffix,
        entry_extra=9 if rules.exact_times else 0,
    )
    if layout.materialized_zooms[0] > zooms[0]:
        raise InvalidInputError(
            "tiles lie above the first materialized zoom",
            found=f"zoom {zooms[0]}",
            expected=f"zoom {layout.materialized_zooms[0]} or deeper",
            hint="begin the materialized zooms there",
        )
    template = ("{h}/" if wanted.hash_in_path else "") + TEMPLATE
    whole = replace(
        said,
        metatile=layout.metatile,
        materialized_zooms=layout.materialized_zooms,
        source=template,
        max_zoom=zooms[1],
        min_scale=rules.scale if said.min_scale == 1 else said.min_scale,
        max_scale=rules.scale if said.max_scale == 1 else said.max_scale,
    )
    return TreeLayout(layout, Template(template), whole)


def _fingerprint(job: Job) -> bytes:
    """The same bytes for the same build of the same source; empty if that has no identity."""
    if not job.source.identity:
        return b""
    values = [
        _SHAPE,
        job.source.identity,
        repr(job.arrangement),
        repr(job.rules),
        len(job.plan.archives),
        job.plan.tiles,
    ]
    return json.dumps(values).encode()


HELD = 64 << 20
"""Bytes of tiles in memory for a group; larger groups are written archive by archive."""
_BLOCK: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """Summary of some written archives."""

    archives: int = 0
    entries: int = 0
    size: int = 0
    """Bytes of their files."""
    kept: int = 0
    """The archives among them that existed already."""
    formats: Mapping[str, Headers] | None = None
    suffixes: frozenset[str] = frozenset()
    cut: tuple[str, ...] = ()
    """Keys of metadata that did not fit into comments."""
    names: tuple[str, ...] = ()
    """Paths of those that were written now."""

    @classmethod
    def of_told(cls, told: Mapping[str, Any]) -> Written:
        """A summary of what `told` gave, which may have been JSON since."""
        formats: Any = {ext: tuple(map(tuple, pairs)) for ext, pairs in told["formats"].items()}
        suffixes, cut = frozenset(told["suffixes"]), tuple(told["cut"])
        return cls(formats=formats, suffixes=suffixes, cut=cut)

    def told(self) -> dict[str, Any]:
        """What the document of a tileset must know of archives, as JSON has it."""
        return {"formats": self.formats, "suffixes": sorted(self.suffixes), "cut": self.cut}

    def plus(self, other: Written) -> Written:
        """The sum of both."""
        return Written(
            self.archives + other.archives,
            self.entries + other.entries,
            self.size + other.size,
            self.kept + other.kept,
            {**(other.formats or {}), **(self.formats or {})},
            self.suffixes | other.suffixes,
            self.cut or other.cut,
            self.names + other.names,
        )


class GroupTask(NamedTuple):
    """Neighbouring archives to write."""

    squares: Sequence[Square]
    archives: frozenset[int]
    """`order_of` values of the archives still to write."""
    kept: Written
    """Summary of the others."""


@dataclass(frozen=True)
class ArchiveWriter:
    """Writes the archives of a build; it is sent to the workers.

    An archive has its final name before it is complete: resuming a build verifies every byte first
    (`whole`), and the tree is hidden until it is finished.
    """

    source: TileSource
    arrangement: ArchiveLayout
    rules: EntryRules
    formats: Mapping[str, Headers]
    tree: str

    def write_archives(self, tasks: Sequence[GroupTask]) -> Written:
        """Write some groups."""
        done = Written()
        folders: set[str] = set()
        for task in tasks:
            done = done.plus(task.kept)
            if task.archives:
                done = done.plus(self._group(task, folders))
        return done

    def _group(self, task: GroupTask, folders: set[str]) -> Written:
        parts: list[Tiles] = []
        held = 0
        for tiles in self.source.gather(task.squares):
            parts.append(tiles)
            held += sum(map(len, tiles.payloads))
            if held > HELD:
                break
        if held > HELD:
            del parts, tiles
            return self._streamed(task)
        return self._packed(concatenated(parts), task, folders)

    def _packed(self, tiles: Tiles, task: GroupTask, folders: set[str]) -> Written:
        """Write all archives of a group at once."""
        owners = order_of(*self.arrangement.archives(tiles.keys))
        if (owners != owners[0]).any():
            order = np.argsort(owners, kind="stable")
            tiles, owners = tiles.take(order), owners[order]
        bounds = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        inside = self.arrangement.inside(tiles.keys, owners)
        entries = new_entries(tiles, inside, self.rules, self.formats)
        archives = archives_at(owners[bounds[:-1]])
        arrangement = self.arrangement.of_suffixes(entries.suffixes)
        described = arrangement.comments(archives, entries.formats)
        comments = [comment for comment, _ in described]
        size = count = 0
        done: list[str] = []
        pieces = packed_archives(entries.names, entries.payloads, bounds, comments, entries.details)
        for archive, data, (first, last) in zip(archives, pieces, pairwise(bounds), strict=True):
            if int(owners[first]) not in task.archives:
                continue
            done.append(self.arrangement.path(archive))
            size += _write_file(f"{self.tree}/{done[-1]}", data, folders)
            count += last - first
        cut = next((cut for _, cut in described if cut), ())
        suffixes = frozenset(entries.suffixes)
        return Written(len(done), count, size, 0, entries.formats, suffixes, cut, tuple(done))

    def _streamed(self, task: GroupTask) -> Written:
        """Write large archives one by one, with one block in memory at a time."""
        done = Written()
        for owner in sorted(task.archives):
            done = done.plus(self._one(owner, task.squares))
        return done

    def _one(self, owner: int, squares: Sequence[Square]) -> Written:
        (archive,) = archives_at(np.array([owner]))
        settled = dict(self.formats)
        suffixes: frozenset[str] = frozenset()
        name = self.arrangement.path(archive)
        path = Path(self.tree, name)
        with system_errors("cannot write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("wb", buffering=0)
        with file:
            writer = ZipWriter(file)
            own = [square for square in squares if archive in self.arrangement.around(*square)]
            for tiles in self._gathered(owner, own):
                inside = self.arrangement.inside(tiles.keys, np.full(len(tiles), owner))
                entries = new_entries(tiles, inside, self.rules, settled)
                settled.update(entries.formats)
                suffixes |= {*entries.suffixes}
                writer.add_many(entries.names, entries.payloads, entries.details)
            comment, cut = self.arrangement.of_suffixes(suffixes).comment(archive, settled)
            writer.close(comment)
            size, count = writer.position, len(writer)
            return Written(1, count, size, 0, settled, suffixes, cut, (name,))

    def _gathered(self, owner: int, squares: Sequence[Square]) -> Iterator[Tiles]:
        parts: list[Tiles] = []
        held = 0
        for tiles in self.source.gather(squares):
            owners = order_of(*self.arrangement.archives(tiles.keys))
            mine = tiles
            if (owners != owner).any():
                mine = tiles.take(np.flatnonzero(owners == owner))
            if len(mine):
                parts.append(mine)
            held += sum(map(len, mine.payloads))
            if held >= _BLOCK:
                yield concatenated(parts)
                parts, held = [], 0
        if parts:
            yield concatenated(parts)


def archives_at(owners: Int64s) -> list[Tile]:
    """The archives with these `order_of` values."""
    return list(zip(*(column.tolist() for column in tiles_in(owners)), strict=True))


def _write_file(path: str, pieces: list[Any], folders: set[str]) -> int:
    """Write a small archive; `folders` are those known to exist."""
    try:
        folder = path[: path.rindex("/")]
        if folder not in folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
            folders.add(folder)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            return write_pieces(descriptor, pieces)
        finally:
            os.close(descriptor)
    except OSError:
        with system_errors("cannot write", path):
            raise


def whole(path: Path, entries: int) -> Written | None:
    """What a file is as an archive with this many entries; None if any checksum is wrong."""
    if not path.is_file():
        return None
    try:
        with open_source(path) as source:
            directory = run(directory_plan(), source.fetch)
            if len(directory) != entries or directory.problems:
                return None
            if run(check_plan(directory, content=True), source.fetch):
                return None
            said, _ = read_comment(directory.comment, path.name)
            return Written(size=directory.total, formats=said.formats if said else None)
    except ComalError:
        # An archive with any fault is written again.
        return None
