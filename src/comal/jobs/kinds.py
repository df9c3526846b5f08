"""What can be planned: how it is cut, how a part is made, and what all parts become."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from comal import strictjson
from comal.errors import InvalidInputError, ObjectChangedError, shown, shown_path, without_secrets
from comal.jobs.plans import INDEXES, Location, Part, Plan, place_of
from comal.limits import parse_size
from comal.parallel import workers_of
from comal.public import options_of, takes
from comal.storage import StorageConfig, StorePath, href_text, open_source, parse_href, several
from comal.storage.location import STORE_SCHEMES
from comal.storage.targets import (
    Kind,
    check_ending,
    magic_kind,
    new_file,
    new_set,
    target_of,
    target_path,
)
from comal.taco.model.collection import FolderOptions

Record = Mapping[str, Any]

_ENTRY = 150
"""About the bytes of a tile's entry in an archive: two headers, two names."""
_SUMS = ("count", "min", "max", "sum", "sum_squares")
_DRAWING = ("bands", "stretch")
_LISTING = "source"
"""Table of a plan that has the files of a folder of tiles."""
_INDEX_KIND = magic_kind("an index of RaQuet files", b'{\n    "files"')


def _text(source: Location) -> str:
    """A path or URL as a plan keeps it."""
    href = href_text(source)
    if without_secrets(href) != href:
        raise InvalidInputError("a plan keeps no secret", where=without_secrets(href))
    return href


# -- TACO ------------------------------------------------------------------------------------------


@takes(FolderOptions)
def plan_taco(
    directory: Location,
    output: Location,
    plan: Location,
    *,
    split_size: int | str = "2GB",
    config: StorageConfig | None = None,
    **options: Any,
) -> Plan:
    """Plan a TACO of a folder or a table as archives of about one size, with an index.

    When the plan is run and merged, the archives and their index have the same bytes as those of
    `comal.taco.pack_folder` with the same arguments. Headers of rasters are read by who makes a
    part.

    Parameters
    ----------
    directory
        The folder, a path or the URL of one in a store.
    output
        Names the archives: ``out/scenes.tacozip`` becomes ``out/scenes_part0001.tacozip``, ...
        It may be in a store.
    plan
        The folder to write, a path or the URL of one in a store; it must not exist.
    split_size
        Bytes of an archive, or text such as ``"2GB"``. Samples of level 0 are never split.
    config
        Settings and credentials to read and write with. The plan does not keep them.
    **options
        As for `comal.taco.pack_folder`: ``manifest``, ``pattern``, ``stac``, ``pad``, ``extra``,
        fields of the collection, and settings of the tables. The plan has the paths or URLs of the
        files, their sizes and versions: a part with a file that changed since is not made.

    Raises
    ------
    ConflictError
        The plan or an archive exists.
    InvalidInputError, ObjectNotFoundError
        As for `comal.taco.pack_folder`.
    """
    from comal.taco.model.levels import check_pit  # noqa: PLC0415 - as above
    from comal.taco.writing import containers, creating, packing  # noqa: PLC0415 - rasters

    target = place_of(output, config)
    creating.container_of(target, "zip")
    limit = parse_size(split_size, "split_size is not a size")
    given, parquet = FolderOptions.split(options)
    how = FolderOptions(**given)
    root, tables = packing.folder_tables(
        directory, target, how.manifest, how.pattern, pad=how.pad, config=config
    )
    fields, _ = packing.collection_of(root, given)
    containers.settings(parquet, "zip")  # refuses unknown ones
    taco = packing.taco_of(tables, fields, how.extra, config)
    known = taco.export_metadata()
    levels = taco.tortilla.levels()
    check_pit(levels)
    rasters = [bool(len(packing.rasters_of(table))) for table in tables] if how.stac else None
    if how.stac:
        tables = [packing.with_times(table) for table in tables]
    ends = np.cumsum(creating.root_bytes(levels))
    cuts = list(creating.cuts(ends, limit))
    names = [
        creating.part_name(target.stem, number, target.suffix or ".tacozip")
        for number in range(1, len(cuts) + 1)
    ]
    named = {
        "levels": len(tables),
        "fields": {name: known[name] for name in fields},
        "extra": taco.extra,
        "rasters": rasters,
        "parquet": parquet,
    }
    home = target_of(target_path(plan, config))
    made = Plan(home, "taco", target.parent, named, _parts(names, cuts, ends), config)
    _write_samples(made, tables, cuts)
    return made


def _parts(names: Sequence[str], cuts: Sequence[tuple[int, int]], ends: Any) -> tuple[Part, ...]:
    """The parts of samples of level 0; `ends` has the bytes up to the end of each."""
    sizes = np.diff(np.asarray(ends)[[stop - 1 for _, stop in cuts]], prepend=0).tolist()
    return tuple(
        Part(name, stop - start, size)
        for name, (start, stop), size in zip(names, cuts, sizes, strict=True)
    )


def _write_samples(made: Plan, tables: Sequence[Any], cuts: Sequence[tuple[int, int]]) -> None:
    """Write a plan with the tables of its samples, and what is seen of their files now."""
    from comal.samples.objects import with_seen_files  # noqa: PLC0415 - arrays

    tables = [with_seen_files(table, "path") for table in tables]
    pieces = zip(made.parts, cuts, strict=True)
    made.write((part.name, list(_rows(tables, *cut))) for part, cut in pieces)


def _samples_of(plan: Plan, part: Part) -> list[Any]:
    """The tables of the samples of a part; `ObjectChangedError` if a local file changed."""
    from comal.samples.objects import check_seen_files  # noqa: PLC0415 - arrays

    tables = plan.tables(part, plan.options["levels"])
    for table in tables:
        check_seen_files(table, "path")
    return tables


def _rows(tables: Sequence[Any], start: int, stop: int) -> Iterator[Any]:
    """Some samples of level 0 and all below them, with parents counted anew."""
    import pyarrow as pa  # noqa: PLC0415 - RaQuet needs none

    from comal.table.columns import numbers_column, numbers_of, one_array  # noqa: PLC0415
    from comal.taco.spec import PARENT_ID  # noqa: PLC0415

    above = np.arange(start, stop)
    for table in tables:
        if PARENT_ID not in table.column_names:
            yield table.slice(start, stop - start)
            continue
        parents = numbers_of(one_array(table.column(PARENT_ID)))
        first = above[0] if len(above) else 0  # of Tortillas without nested ones
        rows = np.flatnonzero((parents >= first) & np.isin(parents, above))
        column = numbers_column(np.searchsorted(above, parents[rows]))
        place = table.column_names.index(PARENT_ID)
        yield table.take(pa.array(rows)).set_column(place, PARENT_ID, column)
        above = rows


def _make_taco(plan: Plan, part: Part, path: Path, threads: int | None) -> dict[str, Any]:
    from comal.taco.writing import creating, packing  # noqa: PLC0415 - rasters

    options, config = plan.options, plan.config
    tables = _samples_of(plan, part)
    with workers_of(None, threads) as pool:
        if options["rasters"] is not None:
            pairs = zip(tables, options["rasters"], strict=True)
            tables = [
                packing.with_places(table, pool, always=always, config=config)
                for table, always in pairs
            ]
        taco = packing.taco_of(tables, options["fields"], options["extra"], config)
        creating.create(taco, path, "zip", executor=pool, **options["parquet"])
    return {"items": part.items}


def _merge_taco(plan: Plan, whole: Sequence[tuple[Part, Record]]) -> dict[str, Any]:
    from comal.taco import spec  # noqa: PLC0415 - rasters
    from comal.taco.writing import containers, tacocat  # noqa: PLC0415 - as above

    paths = [plan.output / part.name for part, _ in whole]
    how = containers.settings(plan.options["parquet"], "zip")
    index = plan.output / spec.TACOCAT
    names = {part.name for part, _ in whole}
    # In a store there may be an index of fewer parts, or what a killed merge has left.
    with new_set(
        index, True, paths, earlier=lambda one: tacocat.is_earlier(index.with_name(one), names)
    ) as made:
        tacocat.write_tacocat(made, paths, how, config=plan.config)
        return {"output": [str(path) for path in made.publish()]}


# -- Tortilla --------------------------------------------------------------------------------------


def plan_tortilla(
    directory: Location,
    output: Location,
    plan: Location,
    *,
    manifest: Location | None = None,
    pattern: str | Sequence[str] = "*",
    stac: bool | None = True,
    chunk_size: int | str | None = "2GB",
    config: StorageConfig | None = None,
    **options: Any,
) -> Plan:
    """Plan a Tortilla of a folder or a table as a set of files of about one size.

    When the plan is run, the files have the same bytes as those of `comal.tortilla.pack_folder`
    with the same arguments. Each says in its header how many there are, and all have the columns of
    all: so no part can be left out. Headers of rasters are read by who makes a part; when it is
    planned, files of a level are read until one has a place.

    Parameters
    ----------
    directory, manifest, pattern, stac
        As for `comal.tortilla.pack_folder`.
    output
        Names the files: ``out/scenes.tortilla`` becomes ``out/scenes.0001.part.tortilla``, ...,
        and stays if one file holds all. It may be in a store.
    plan, config
        As for `plan_taco`.
    chunk_size
        Bytes of the items of a file, or text such as ``"2GB"``. Items of level 0 are never split.
    **options
        As for `comal.tortilla.create`: ``chunk_rows``, ``allow_ids``, settings of the footers.

    Raises
    ------
    ConflictError
        The plan exists, or a file with the name of the set or of a part of it.
    InvalidInputError, ObjectNotFoundError
        As for `comal.tortilla.pack_folder`.
    """
    import pyarrow as pa  # noqa: PLC0415 - RaQuet needs none

    from comal.tortilla import creating, describing, spec, writing  # noqa: PLC0415 - as above
    from comal.tortilla.samples import check  # noqa: PLC0415 - as above

    target = place_of(output, config)
    check_ending(target, *spec.ENDINGS)
    how = writing.SetOptions.of({**options, "chunk_size": chunk_size})
    writing.settings(1, how.parquet)  # refuses unknown ones
    tables = creating.folder_tables(directory, target, manifest, pattern, config)
    items = creating.items_in(tables, config)
    check(items, "samples", tier=1 if how.allow_ids else 2, keeps=not how.allow_ids)
    writing.refuse_strangers(target, ())
    ends = np.cumsum(items.sizes())
    cuts = how.cuts(ends)
    is_placed = bool(stac or (stac is None and describing.wants_place(items)))
    if is_placed:  # a part alone would not have the columns that only others fill
        for depth, names in enumerate(describing.placed_columns(items)):
            for name in [name for name in names if name not in tables[depth].column_names]:
                empty = pa.nulls(len(tables[depth]), spec.STAC[name])
                tables[depth] = tables[depth].append_column(name, empty)
    paths = [writing.numbered(target, n) for n in range(len(cuts))] if len(cuts) > 1 else [target]
    parts = _parts([path.name for path in paths], cuts, ends)
    named = {
        "levels": len(tables),
        "name": target.name,
        "stac": is_placed,
        "set": {"allow_ids": how.allow_ids, **how.parquet},
    }
    home = target_of(target_path(plan, config))
    made = Plan(home, "tortilla", target.parent, named, parts, config)
    _write_samples(made, tables, cuts)
    return made


def _make_tortilla(plan: Plan, part: Part, path: Path, threads: int | None) -> dict[str, Any]:
    from comal.tortilla.creating import write_part  # noqa: PLC0415 - RaQuet needs none

    options, tables = plan.options, _samples_of(plan, part)
    how = {"stac": options["stac"], "config": plan.config, **options["set"]}
    with workers_of(None, threads) as pool:
        write_part(tables, path, options["parts"], executor=pool, **how)
    return {"items": part.items}


def _merge_tortilla(plan: Plan, whole: Sequence[tuple[Part, Record]]) -> dict[str, Any]:
    """Nothing is written: the files are a set, unless another one is named alike."""
    from comal.tortilla.writing import refuse_strangers  # noqa: PLC0415 - RaQuet needs none

    names = [part.name for part, _ in whole]
    refuse_strangers(plan.output / plan.options["name"], names)
    return {"output": [str(plan.output / name) for name in names]}


# -- RaQuet ----------------------------------------------------------------------------------------


def plan_raquet(
    sources: Sequence[Location],
    output: Location,
    plan: Location,
    *,
    config: StorageConfig | None = None,
    **options: Any,
) -> Plan:
    """Plan a RaQuet file of each of many rasters, with an index that has their statistics.

    Parameters
    ----------
    sources
        Paths or URLs of rasters; their names without suffix become those of the files.
    output
        Folder of the files, which may be in a store.
    plan, config
        As for `plan_taco`.
    **options
        Other fields of `comal.raquet.Options`; see `comal.raquet.write`.

    Raises
    ------
    ConflictError
        The plan or a file exists.
    InvalidInputError
        An invalid option, two rasters of one name, or a URL with a secret.
    """
    from comal.raquet.writing.planning import Options  # noqa: PLC0415 - rasters
    from comal.raster.describing import file_of  # noqa: PLC0415

    options_of(Options, options).check()
    if "nodata" in options:
        options["nodata"] = _told_nodata(options["nodata"])
    check_ending(output)
    parts: dict[str, Part] = {}
    for href in map(_text, several(sources, "paths or URLs")):
        named = file_of(href)
        place = parse_href(named)
        path = Path(place.path)
        name = f"{path.stem}.parquet"
        if name in parts:
            raise InvalidInputError(
                "two rasters have the same name",
                found=f"{shown(parts[name].source, 120)} and {shown(href, 120)}",
                hint="plan them for two folders, or rename one",
            )
        if not place.is_local:
            parts[name] = Part(name, 1, source=href)
            continue
        at = 0 if named == href else href.index(named, href.index(":"))
        text = f"{href[:at]}{path}{href[at + len(named) :]}"
        parts[name] = Part(name, 1, path.stat().st_size if path.is_file() else None, text)
    home, folder = target_of(target_path(plan, config)), place_of(output, config)
    made = Plan(home, "raquet", folder, options, tuple(parts.values()), config)
    made.write()
    return made


def _told_nodata(choice: Any) -> Any:
    """A choice of nodata as JSON has it: what is no number there is its text."""
    if isinstance(choice, Mapping):
        return {name: _told_nodata(one) for name, one in choice.items()}
    value = choice.item() if isinstance(choice, np.generic) else choice
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _nodata(told: Any) -> Any:
    if isinstance(told, Mapping):
        return {name: _nodata(one) for name, one in told.items()}
    return float(told) if told in {"nan", "inf", "-inf"} else told


def _make_raquet(plan: Plan, part: Part, path: Path, threads: int | None) -> dict[str, Any]:
    from comal.raquet.documents import finite  # noqa: PLC0415 - rasters
    from comal.raquet.writing.creating import written  # noqa: PLC0415 - as above
    from comal.raquet.writing.planning import Options  # noqa: PLC0415 - as above

    options = {"config": plan.config, **plan.options}
    options["nodata"] = _nodata(options.get("nodata"))
    with workers_of(None, threads) as pool:
        chosen = options_of(Options, options)
        made, metadata = written(part.source, path, chosen, executor=pool)
    bands = {
        band.name: {name: finite(getattr(band.statistics, name)) for name in _SUMS}
        for band in metadata.bands
    }
    zooms = [made.min_zoom, made.max_zoom]
    return {"items": 1, "tiles": made.tiles, "zooms": zooms, "bounds": made.bounds, "bands": bands}


def _merge_raquet(plan: Plan, whole: Sequence[tuple[Part, Record]]) -> dict[str, Any]:
    """Write ``index.json``: the files with their extent, and the statistics of each band."""
    found: dict[str, list[Record]] = {}
    for _, record in whole:
        for name, sums in record["bands"].items():
            found.setdefault(name, []).append(sums)
    bands = {name: _joined(sums) for name, sums in found.items()}
    files = [
        {"name": part.name, **{key: record[key] for key in ("size", "tiles", "zooms", "bounds")}}
        for part, record in whole
    ]
    path = plan.output / INDEXES["raquet"][0]
    with new_file(path, True, _INDEX_KIND) as file:
        file.write(strictjson.dumps({"files": files, "bands": bands}))
    return {"output": [str(path)], "bands": bands}


def _joined(parts: Sequence[Record]) -> dict[str, Any]:
    """The statistics of all pixels; sums are exact, as far as those of the parts are.

    Sums, mean and deviation are null where they, or those of a part, are beyond all floats.
    """
    parts = [part for part in parts if part["count"]]
    count = sum(part["count"] for part in parts)
    if not count:
        return {"count": 0}
    total, squares = (_exact([part[key] for part in parts]) for key in ("sum", "sum_squares"))
    mean = None if total is None else total / count
    spread = None if mean is None or squares is None else max(squares / count - mean * mean, 0)
    deviation = _float(spread)
    whole = all(isinstance(part["sum"], int) for part in parts)
    return {
        "count": count,
        "min": min(part["min"] for part in parts),
        "max": max(part["max"] for part in parts),
        "sum": int(total) if whole and total is not None else _float(total),
        "mean": _float(mean),
        "stddev": None if deviation is None else math.sqrt(deviation),
    }


def _exact(values: Sequence[float | None]) -> Fraction | None:
    return None if None in values else sum(map(Fraction, filter(None, values)), Fraction())


def _float(value: Fraction | int | None) -> float | None:
    with suppress(OverflowError):
        return None if value is None else float(value)
    return None


# -- Tapalcatl -------------------------------------------------------------------------------------


def plan_tapalcatl(
    source: Location,
    output: Location,
    plan: Location,
    *,
    split_size: int | str = "2GB",
    config: StorageConfig | None = None,
    **options: Any,
) -> Plan:
    """Plan a Tapalcatl tileset, whose parts are neighbouring archives.

    When the plan is run and merged, the tileset has the same bytes as that of
    `comal.tapalcatl.build` with the same arguments. Archives appear one by one; the document, by
    which readers find them, is written by merging.

    Parameters
    ----------
    source
        Path or URL of an MBTiles or PMTiles file, of a folder of tiles, of a tileset, or of a
        RaQuet file (``.parquet``), which is drawn as by `comal.convert`. All who run the plan reach
        it. It is surveyed once; for RaQuet, this reads all pixels of its bands.
    output
        Folder of the tileset, which may be in a store; it must not exist, or be empty.
    split_size
        About the bytes of a part, as a few tiles lead to expect; bytes, or text such as ``"2GB"``.
    plan, config
        As for `plan_taco`.
    **options
        Fields of `comal.tapalcatl.BuildOptions`, as far as JSON has them; for RaQuet ``bands`` and
        ``stretch``, too.

    Raises
    ------
    ConflictError
        The plan exists, or something is in the output.
    InvalidInputError
        An invalid option, a source that is not a path or URL or has a secret, or a single archive
        as the output, which cannot be made in parts.
    """
    import pyarrow as pa  # noqa: PLC0415 - RaQuet needs none

    from comal.taco.writing.creating import cuts  # noqa: PLC0415 - as above
    from comal.tapalcatl.containers.folder import Loose  # noqa: PLC0415 - as above

    folder, limit = place_of(output, config), parse_size(split_size, "split_size is not a size")
    check_ending(folder)
    href = parse_href(_text(source)).href
    with ExitStack() as scope:
        job = _tile_job(href, options, config, scope)
        formats, mean = job.probed()
        survey, listed, version = job.plan, None, _version(href, config)
        if isinstance(job.source, Loose):
            listed = job.source.listing()
        elif version is None:
            version = job.source.identity
        job.source.verify()
    starts, squares = survey.archive_starts, survey.square_starts
    counts = np.add.reduceat(survey.counts, starts[:-1])
    ends = np.cumsum(counts * (mean + _ENTRY)).astype(np.int64)
    parts, tables = [], []
    for number, (start, stop) in enumerate(cuts(ends, limit), 1):
        size = int(ends[stop - 1]) - (int(ends[start - 1]) if start else 0)
        name = f"part{number:05d}"
        parts.append(Part(name, int(counts[start:stop].sum()), size))
        rows, cells = slice(starts[start], starts[stop]), slice(squares[start], squares[stop])
        groups = np.arange(stop - start)
        archives = {
            "group": np.repeat(groups, np.diff(starts[start : stop + 1])),
            "archive": survey.archives[rows],
            "tiles": survey.counts[rows],
        }
        read = {
            "group": np.repeat(groups, np.diff(squares[start : stop + 1])),
            "square": survey.squares[cells],
        }
        tables.append((name, [pa.table(archives), pa.table(read)]))
    if listed is not None:
        tables.append((_LISTING, [listed]))
    named = {
        "source": href,
        "version": version,
        "newest": job.source.newest,
        "build": options,
        "formats": formats,
        "extents": {str(zoom): extent for zoom, extent in survey.extents.items()},
        "tiles": survey.tiles,
    }
    home = target_of(target_path(plan, config))
    made = Plan(home, "tapalcatl", folder, named, tuple(parts), config)
    made.write(tables)
    return made


def _version(href: str, config: StorageConfig | None) -> list[int | None] | None:
    """Size of a file, when it was modified, and the size of the log beside MBTiles.

    None for a folder: a tileset has an identity, and loose tiles are listed in the plan.
    """
    with open_source(href, config=config) as source:
        info = source.stat()
    seconds = None if info.modified is None else info.modified // 10**9
    log, place = 0, parse_href(href)
    if place.is_local:
        with suppress(OSError):
            log = Path(f"{place.path}-wal").stat().st_size
    return None if info.is_dir else [info.size, seconds, log]


def _refuse_change(plan: Plan, version: Any) -> None:
    if version != plan.options["version"]:
        raise ObjectChangedError(
            "the source changed after it was planned",
            where=shown_path(plan.options["source"]),
            hint="plan it again, for another folder",
        )


def _tile_job(
    href: str,
    options: Mapping[str, Any],
    config: StorageConfig | None,
    scope: ExitStack,
    surveyed: Callable[[Any], Any] | None = None,
    listed: Any = None,
) -> Any:
    from comal.tapalcatl import BuildOptions, open_tiles  # noqa: PLC0415 - rasters need none
    from comal.tapalcatl.containers.base import TileSource  # noqa: PLC0415 - as above
    from comal.tapalcatl.containers.folder import loose  # noqa: PLC0415 - as above
    from comal.tapalcatl.writing.building import Job  # noqa: PLC0415 - as above

    place = href if parse_href(href).scheme not in STORE_SCHEMES else StorePath(href, config)
    tiles: TileSource
    given = dict(options)
    if href.endswith(".parquet"):
        from comal.convert.raquet_tapalcatl import open_drawn  # noqa: PLC0415 - as above

        tiles, given = open_drawn(place, scope, **given)
    else:
        from comal.convert.routes import refuse_others  # noqa: PLC0415 - as above

        refuse_others("tiles", {name: one for name, one in given.items() if name in _DRAWING})
        tiles = open_tiles(place, scope=scope) if listed is None else loose(place, listed=listed)
    if given.get("bounds"):
        given["bounds"] = tuple(given["bounds"])
    return Job.of(tiles, options_of(BuildOptions, given), surveyed)


def _planned_job(plan: Plan, tables: Sequence[Any], scope: ExitStack) -> Any:
    """The share of the build with these tables; without any it has no archives."""
    from comal.tapalcatl.containers.survey import Survey  # noqa: PLC0415 - rasters need none

    options, listed = plan.options, None
    version = options["version"]
    if isinstance(version, list):
        _refuse_change(plan, _version(options["source"], plan.config))
    elif version is None:
        (listed,) = plan.tables(Part(_LISTING, 0), 1)
    columns = {name: table[name].to_numpy() for table in tables for name in table.column_names[1:]}
    starts = [
        np.searchsorted(table["group"].to_numpy(), np.arange(table["group"][-1].as_py() + 2))
        for table in tables
    ]
    none = np.zeros(0, np.int64)
    job = _tile_job(
        options["source"],
        options["build"],
        plan.config,
        scope,
        lambda layout: Survey(
            layout,
            columns.get("archive", none),
            columns.get("tiles", none),
            starts[0] if tables else none,
            columns.get("square", none),
            starts[1] if tables else none,
            {int(zoom): tuple(extent) for zoom, extent in options["extents"].items()},
            options["tiles"],
        ),
        listed,
    )
    job.source.newest = options.get("newest")
    if isinstance(version, str):
        _refuse_change(plan, job.source.identity)
    return job


def _make_tapalcatl(plan: Plan, part: Part, path: Path, threads: int | None) -> dict[str, Any]:
    from comal.tapalcatl.writing.building import Written  # noqa: PLC0415 - rasters need none
    from comal.tapalcatl.writing.targets import Workplace  # noqa: PLC0415 - as above

    done, formats = Written(), _headers(plan.options["formats"])
    with ExitStack() as scope:
        job = _planned_job(plan, plan.tables(part, 2), scope)
        place = Workplace(path, path, going_on=False)
        for written in job.written(place, formats, None, threads):
            done = done.plus(written)
        job.source.verify()
    return {"items": done.entries, **done.told()}


def _headers(told: Mapping[str, Any]) -> dict[str, Any]:
    return {ext: tuple(map(tuple, headers)) for ext, headers in told.items()}


def _merge_tapalcatl(plan: Plan, whole: Sequence[tuple[Part, Record]]) -> dict[str, Any]:
    """Write ``meta.json``; Tapalcatl 1 has none."""
    from comal.tapalcatl.spec import tileset_json  # noqa: PLC0415 - rasters need none
    from comal.tapalcatl.writing.building import Written  # noqa: PLC0415 - as above
    from comal.tapalcatl.writing.targets import DOCUMENT  # noqa: PLC0415 - as above

    done = Written(formats=_headers(plan.options["formats"]))
    for _, record in whole:
        done = done.plus(Written.of_told(record))
    with ExitStack() as scope:
        metadata = _planned_job(plan, (), scope).finished(done)
    if plan.options["build"].get("version") == 1:
        return {"output": []}
    path = plan.output / INDEXES["tapalcatl"][0]
    with new_file(path, True, DOCUMENT) as file:
        file.write(tileset_json(metadata))
    return {"output": [str(path)]}


# -- by kind ---------------------------------------------------------------------------------------


_FORMS = {
    "tortilla": ("comal.tortilla.writing", "TORTILLA"),
    "taco": ("comal.taco.writing.verify", "ZIP"),
    "raquet": ("comal.raquet.writing.creating", "RAQUET"),
    "tapalcatl": ("comal.tapalcatl.writing.targets", "ARCHIVE"),
}


def form_of(kind: str) -> Kind:
    """What the files of a part are."""
    module, name = _FORMS[kind]
    form: Kind = getattr(import_module(module), name)  # the modules of one kind only
    return form


MAKE: dict[str, Callable[..., dict[str, Any]]] = {
    "taco": _make_taco,
    "tortilla": _make_tortilla,
    "raquet": _make_raquet,
    "tapalcatl": _make_tapalcatl,
}
"""By kind, what makes the file of a part, or its tree; it returns the counts for its record."""
MERGE: dict[str, Callable[..., dict[str, Any]]] = {
    "taco": _merge_taco,
    "tortilla": _merge_tortilla,
    "raquet": _merge_raquet,
    "tapalcatl": _merge_tapalcatl,
}
"""By kind, what makes the index; it returns its paths and statistics."""
