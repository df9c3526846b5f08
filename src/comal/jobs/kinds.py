"""What can be planned: how it is cut, how a part is made, and what all parts become."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from comal import strictjson
from comal.errors import InvalidInputError, shown, without_secrets
from comal.jobs.plans import INDEXES, Location, Part, Plan, place_of
from comal.limits import parse_size
from comal.parallel import workers_of
from comal.public import options_of, takes
from comal.storage import StorageConfig, href_text, parse_href, several
from comal.storage.targets import Kind, check_ending, magic_kind, new_file, target_of, target_path
from comal.taco.model.collection import CollectionFields

Record = Mapping[str, Any]

_SUMS = ("count", "min", "max", "sum", "sum_squares")
_INDEX_KIND = magic_kind("an index of RaQuet files", b'{\n    "files"')


# -- TACO ------------------------------------------------------------------------------------------


@takes(CollectionFields)
def plan_taco(
    directory: Location,
    output: Location,
    plan: Location,
    *,
    split_size: int | str = "2GB",
    manifest: Location | Any = None,
    pattern: str | Sequence[str] = "*",
    stac: bool = True,
    pad: bool = False,
    extra: Mapping[str, Any] | None = None,
    config: StorageConfig | None = None,
    **options: Any,
) -> Plan:
    """Plan a TACO of a folder or a table as archives of about one size, with an index.

    When the plan is run and merged, the archives and their index have the same bytes as those of
    `comal.taco.pack_folder` with the same arguments. Headers of rasters are read by who makes a
    part.

    Parameters
    ----------
    directory, manifest, pattern, stac, pad, extra
        As for `comal.taco.pack_folder`. The plan has the paths of the files.
    output
        Names the archives: ``out/scenes.tacozip`` becomes ``out/scenes_part0001.tacozip``, ...
        It may be in a store.
    plan
        The folder to write, a path or the URL of one in a store; it must not exist.
    split_size
        Bytes of an archive, or text such as ``"2GB"``. Samples of level 0 are never split.
    config
        Settings and credentials to write with. The plan does not keep them.
    **options
        Fields of the collection, and settings of the tables.

    Returns
    -------
    Plan

    Raises
    ------
    ConflictError
        The plan or an archive exists.
    InvalidInputError, ObjectNotFoundError
        As for `comal.taco.pack_folder`.
    """
    from comal.taco.model.levels import check_pit  # noqa: PLC0415 - arrays
    from comal.taco.writing import containers, creating, packing  # noqa: PLC0415 - rasters

    target = place_of(output, config)
    creating.container_of(target, "zip")
    limit = parse_size(split_size, "split_size is not a size")
    root, tables = packing.folder_tables(directory, target, manifest, pattern, pad=pad)
    fields, parquet = packing.collection_of(root, options)
    containers.settings(parquet, "zip")  # refuses unknown ones
    taco = packing.taco_of(tables, fields, extra)
    known = taco.export_metadata()
    levels = taco.tortilla.levels()
    check_pit(levels)
    rasters = [bool(len(packing.rasters_of(table))) for table in tables] if stac else None
    if stac:
        tables = [packing.with_times(table) for table in tables]
    ends = np.cumsum(creating.root_bytes(levels))
    cuts = list(creating.cuts(ends, limit))
    parts = []
    for number, (start, stop) in enumerate(cuts, 1):
        size = int(ends[stop - 1]) - (int(ends[start - 1]) if start else 0)
        name = creating.part_name(target.stem, number, target.suffix or ".tacozip")
        parts.append(Part(name, stop - start, size))
    named = {
        "levels": len(tables),
        "fields": {name: known[name] for name in fields},
        "extra": taco.extra,
        "rasters": rasters,
        "parquet": parquet,
    }
    home = target_of(target_path(plan, config))
    made = Plan(home, "taco", target.parent, named, tuple(parts), config)
    pieces = zip(parts, cuts, strict=True)
    made.write((part.name, list(_rows(tables, *cut))) for part, cut in pieces)
    return made


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
        rows = np.flatnonzero((parents >= above[0]) & np.isin(parents, above))
        column = numbers_column(np.searchsorted(above, parents[rows]))
        place = table.column_names.index(PARENT_ID)
        yield table.take(pa.array(rows)).set_column(place, PARENT_ID, column)
        above = rows


def _make_taco(plan: Plan, part: Part, path: Path, threads: int | None) -> dict[str, Any]:
    from comal.taco.writing import creating, packing  # noqa: PLC0415 - rasters

    options = plan.options
    tables = plan.tables(part, options["levels"])
    with workers_of(None, threads) as pool:
        if options["rasters"] is not None:
            pairs = zip(tables, options["rasters"], strict=True)
            tables = [packing.with_places(table, pool, always=always) for table, always in pairs]
        taco = packing.taco_of(tables, options["fields"], options["extra"])
        creating.create(taco, path, "zip", executor=pool, **options["parquet"])
    return {"items": part.items}


def _merge_taco(plan: Plan, whole: Sequence[tuple[Part, Record]]) -> dict[str, Any]:
    from comal.taco.writing.tacocat import create_tacocat  # noqa: PLC0415 - rasters

    paths = [plan.output / part.name for part, _ in whole]
    made = create_tacocat(paths, plan.output, overwrite=True, **plan.options["parquet"])
    return {"output": [str(path) for path in made]}


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

    Returns
    -------
    Plan

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
    check_ending(output)
    parts: dict[str, Part] = {}
    for href in map(href_text, several(sources, "paths or URLs")):
        if without_secrets(href) != href:
            raise InvalidInputError("a plan keeps no secret", where=without_secrets(href))
        place = parse_href(file_of(href))
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
        text = str(path) if href == os.fspath(file_of(href)) else href
        parts[name] = Part(name, 1, path.stat().st_size if path.is_file() else None, text)
    home, folder = target_of(target_path(plan, config)), place_of(output, config)
    made = Plan(home, "raquet", folder, options, tuple(parts.values()), config)
    made.write()
    return made


def _make_raquet(plan: Plan, part: Part, path: Path, threads: int | None) -> dict[str, Any]:
    from comal import raquet  # noqa: PLC0415 - rasters

    options = {"config": plan.config, **plan.options}
    with workers_of(None, threads) as pool:
        made = raquet.write(part.source, path, executor=pool, **options)
    with raquet.open(path) as file:
        bands = {
            band.name: {name: getattr(band.statistics, name) for name in _SUMS}
            for band in file.bands
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
    """The statistics of all pixels; sums are exact, as far as those of the parts are."""
    parts = [part for part in parts if part["count"]]
    count = sum(part["count"] for part in parts)
    if not count:
        return {"count": 0}
    total, squares = (sum(Fraction(part[key]) for part in parts) for key in ("sum", "sum_squares"))
    mean = Fraction(total) / count
    whole = total.denominator == 1 and all(isinstance(part["sum"], int) for part in parts)
    return {
        "count": count,
        "min": min(part["min"] for part in parts),
        "max": max(part["max"] for part in parts),
        "sum": int(total) if whole else float(total),
        "mean": float(mean),
        "stddev": math.sqrt(max(Fraction(squares) / count - mean * mean, 0)),
    }


# -- by kind ---------------------------------------------------------------------------------------


def _taco_form() -> Kind:
    from comal.taco.writing.verify import ZIP  # noqa: PLC0415 - rasters

    return ZIP


def _raquet_form() -> Kind:
    from comal.raquet.writing.creating import RAQUET  # noqa: PLC0415 - rasters

    return RAQUET


FORM: dict[str, Callable[[], Kind]] = {"taco": _taco_form, "raquet": _raquet_form}
"""By kind, what the file of a part is."""
MAKE: dict[str, Callable[..., dict[str, Any]]] = {"taco": _make_taco, "raquet": _make_raquet}
"""By kind, what makes the file of a part; it returns the counts for its record."""
MERGE: dict[str, Callable[..., dict[str, Any]]] = {"taco": _merge_taco, "raquet": _merge_raquet}
"""By kind, what makes the index; it returns its paths and statistics."""
