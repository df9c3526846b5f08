"""Several archives as one: TACOCAT (TACO 2.0, 6.5) and TACOLLECTION (6.6)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from comal import strictjson
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    shown,
    system_errors,
    translated,
)
from comal.limits import MIB
from comal.storage import open_source, several, targets
from comal.table import ParquetSettings
from comal.taco import spec, wire
from comal.taco.columns import normal, normal_type, root_paths
from comal.taco.model.collection import united
from comal.taco.model.levels import flat
from comal.taco.reading.container import Container, open_container
from comal.taco.reading.level import Level
from comal.taco.spec import LOGGER
from comal.taco.writing.containers import settings, table_writer
from comal.taco.writing.verify import COLLECTIONS, INDEX, INDEX_FOLDER

_FORMS = frozenset({"both", "binary", "folder"})
_BATCH_ROWS = 65_536
_INTERNAL = {
    spec.CURRENT_ID: pa.int64(),
    spec.PARENT_ID: pa.int64(),
    spec.OFFSET: pa.int64(),
    spec.SIZE: pa.int64(),
    spec.RELATIVE_PATH: pa.string(),
    spec.SOURCE_FILE: pa.string(),
}


def create_tacocat(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    form: str = "both",
    validate_schema: bool = True,  # noqa: FBT001, FBT002 - the signature that users know
    overwrite: bool = False,  # noqa: FBT001, FBT002 - as above
    **parquet: Any,
) -> list[Path]:
    """Join the metadata of several ZIP archives.

    Parameters
    ----------
    inputs
        The archives, local paths or URLs. Their base names must differ.
    output
        Folder of the result; None is the folder of the first archive.
    form
        ``binary`` (``__TACOCAT__``), ``folder`` (``.tacocat/``) or ``both``.
    validate_schema
        Refuse archives whose trees or fields differ. Otherwise missing fields become null.
    overwrite
        Replace an existing result.
    **parquet
        Settings of the tables, as for `create`.

    Returns
    -------
    list of pathlib.Path
        The written file and folder.

    Raises
    ------
    InvalidInputError
        No archives, two with the same base name, archives that differ, or another format than ZIP.
    ConflictError
        The result exists and `overwrite` is False.
    """
    if form not in _FORMS:
        raise InvalidInputError("unknown form", found=shown(form), expected=", ".join(_FORMS))
    how = settings(parquet, "zip")
    named = several(inputs, "paths or URLs")
    folder = _output_folder(output, named[0], {spec.TACOCAT, spec.TACOCAT_FOLDER})
    with targets.new_set(folder / spec.TACOCAT, overwrite, list(named)) as made:
        write_tacocat(made, named, how, form, validate=validate_schema)
        paths = made.publish()
    for path in paths:
        LOGGER.info("wrote %s (%d archives)", path, len(named))
    return [folder / path.name for path in paths]


def write_tacocat(
    made: targets.TargetSet,
    inputs: Sequence[str | os.PathLike[str]],
    how: ParquetSettings,
    form: str = "both",
    *,
    validate: bool = True,
) -> None:
    """As `create_tacocat`, into a set of targets."""
    with ExitStack() as scope:
        members = _open_all(inputs, scope, only_zip=True, validate=validate)
        _write(made, form, members, how)


def create_tacollection(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    validate_schema: bool = True,  # noqa: FBT001, FBT002 - the signature of the specification
    overwrite: bool = False,  # noqa: FBT001, FBT002 - as above
) -> Path:
    """Join the collections of several datasets into ``TACOLLECTION.json``.

    Counts are summed, extents united, and ``taco:sources`` keeps the extent of each. All other
    fields are those of the first dataset.

    Parameters
    ----------
    inputs
        The datasets, local paths or URLs.
    output
        Folder of the result; None is the folder of the first dataset.
    validate_schema
        Refuse datasets whose trees or fields differ.
    overwrite
        Replace an existing file.

    Returns
    -------
    pathlib.Path
        The file.
    """
    named = several(inputs, "paths or URLs")
    with ExitStack() as scope:
        members = _open_all(named, scope, only_zip=False, validate=validate_schema)
        document = merged_collection(members)
    path = _output_folder(output, named[0], {spec.TACOLLECTION}) / spec.TACOLLECTION
    with targets.new_file(path, overwrite, COLLECTIONS, inputs) as file:
        file.write(strictjson.dumps(document, ascii_only=True))
    LOGGER.info("wrote %s (%d datasets)", path, len(members))
    return path


def _output_folder(
    output: str | os.PathLike[str] | None, first: str | os.PathLike[str], own: set[str]
) -> Path:
    """The folder to write to; `output` may include the fixed name of the result."""
    if output is not None:
        path = targets.target_path(output)
        return path.parent if path.name in own else path
    text = os.fspath(first)
    if "://" in text:
        raise InvalidInputError("the inputs are remote, so the output must be named")
    return Path(text).absolute().parent


# -- comparing the datasets ------------------------------------------------------------------------


def _open_all(
    inputs: Sequence[str | os.PathLike[str]], scope: ExitStack, *, only_zip: bool, validate: bool
) -> list[Container]:
    """Open all datasets and check that they fit in one table; `scope` closes them."""
    members: dict[str, Container] = {}
    for href in inputs:
        member = open_container(scope.enter_context(open_source(href)))
        where = member.source.href
        if only_zip and member.kind != "zip":
            raise NotThisFormatError(
                "TACOCAT joins ZIP archives only", where=where, found=member.kind
            )
        known = members.setdefault(member.name, member)
        if known is not member:
            raise InvalidInputError(
                "two datasets have the same name, so rows cannot tell them apart",
                found=f"{shown(known.source.href, 120)} and {shown(where, 120)}",
                hint="rename one of the files",
            )
    found = list(members.values())
    check_members(found, validate=validate)
    return found


def check_members(members: Sequence[Container], *, validate: bool) -> None:
    """Refuse datasets that do not fit in one table.

    Without `validate` only the number of levels must agree.
    """
    first = members[0]
    for other in members[1:]:
        for what, ours, theirs in islice(_compared(first, other), None if validate else 1):
            if ours != theirs:
                raise InvalidInputError(
                    f"the datasets differ: {what}",
                    found=f"{ours} in {shown(first.name)}, {theirs} in {shown(other.name)}",
                    expected="the same in all (TACO 2.0, 6.6)",
                    hint="pass validate_schema=False to join them anyway where possible",
                )


def _compared(first: Container, other: Container) -> Iterator[tuple[str, object, object]]:
    """Properties that must be equal in two datasets; callers stop at a difference."""
    yield "number of levels", first.pit.levels, other.pit.levels
    yield "type of level 0", first.pit.root_type, other.pit.root_type
    for level, patterns in first.pit.hierarchy.items():
        theirs = other.pit.hierarchy[level]
        yield f"patterns of level {level}", len(patterns), len(theirs)
        for one, two in zip(patterns, theirs, strict=True):
            if one.type != two.type or not _same_ids(one.id, two.id):
                yield f"children at level {level}", [*one.type, *one.id], [*two.type, *two.id]
    for level, tables in enumerate(zip(first.levels, other.levels, strict=False)):
        here, there = map(_fields_of, tables)
        for name in [*here, *there]:
            ours, found = (
                spec.type_name(fields[name]) if name in fields else "absent"
                for fields in (here, there)
            )
            yield f"field {shown(name)} of level {level}", ours, found


def _same_ids(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Compare ids by position; padding equals any id."""
    return len(ours) == len(theirs) and all(
        a == b or a.startswith(spec.PAD_PREFIX) or b.startswith(spec.PAD_PREFIX)
        for a, b in zip(ours, theirs, strict=True)
    )


def _fields_of(level: Level) -> dict[str, Any]:
    """Metadata fields of a stored level and their types in plain form."""
    return {
        column.name: normal_type(column.type)
        for column in level.table.schema
        if not column.name.startswith(spec.INTERNAL)
    }


def merged_collection(members: Sequence[Container]) -> dict[str, Any]:
    """The first collection with united extent, summed counts and ``taco:sources`` (6.6)."""
    collections = [member.collection for member in members]
    merged = dict(collections[0])
    merged["extent"] = united([collection.get("extent") for collection in collections])
    merged[spec.PIT_SCHEMA] = spec.PITSchema.summed([m.pit for m in members]).to_dict()
    if spec.FIELD_SCHEMA in collections[0]:
        # After the tree, as in every collection.
        merged[spec.FIELD_SCHEMA] = merged.pop(spec.FIELD_SCHEMA)
    merged[spec.SOURCES] = {
        "count": len(members),
        "ids": [collection.get("id") for collection in collections],
        "files": [member.name for member in members],
        "extents": [
            {
                "file": member.name,
                "id": collection.get("id"),
                "spatial": (collection.get("extent") or {}).get("spatial"),
                "temporal": (collection.get("extent") or {}).get("temporal"),
            }
            for member, collection in zip(members, collections, strict=True)
        ],
    }
    return merged


# -- the index -------------------------------------------------------------------------------------


def _write(
    made: targets.TargetSet,
    form: str,
    members: Sequence[Container],
    how: ParquetSettings,
) -> None:
    document = merged_collection(members)
    with system_errors("cannot write", made.target), ExitStack() as scope:
        tree = file = None
        if form != "binary":
            tree = made.add(spec.TACOCAT_FOLDER, INDEX_FOLDER, folder=True)
            tree.mkdir()
        if form != "folder":
            file = scope.enter_context(made.file(spec.TACOCAT, INDEX))
            file.write(bytes(wire.TACOCAT_HEADER.size))
        spans = []
        for level in range(len(members[0].levels)):
            schema = _schema(members, level)
            if tree is not None:
                table: BinaryIO = (tree / f"level{level}.parquet").open("w+b")
                scope.enter_context(table)
            else:
                assert file is not None
                table = file.spool()
            with table_writer(table, schema, how) as writer:
                for member in members:
                    for rows in _rows(member, level, schema):
                        writer.write(rows)
            if file is not None:
                spans.append(_append(file, table))
        if tree is not None:
            (tree / spec.COLLECTION).write_bytes(strictjson.dumps(document, ascii_only=True))
        if file is not None:
            _finish_binary(file, spans, document, members)


def _append(file: targets.TargetFile, table: BinaryIO) -> tuple[int, int]:
    table.flush()
    size = table.seek(0, 2)
    table.seek(0)
    offset = file.tell()
    shutil.copyfileobj(table, file, MIB)
    return offset, size


def _finish_binary(
    file: targets.TargetFile,
    spans: Sequence[tuple[int, int]],
    document: dict[str, Any],
    members: Sequence[Container],
) -> None:
    provenance = {
        "version": wire.TACOCAT_VERSION,
        "num_datasets": len(members),
        "dataset_sources": sorted(member.name for member in members),
    }
    text = strictjson.dumps({**document, "_tacocat": provenance}, indent=2, ascii_only=True)
    offset = file.tell()
    file.write(text)
    file.seek(0)
    file.write(wire.pack_tacocat_header(spans, (offset, len(text))))


def _schema(members: Sequence[Container], number: int) -> Any:
    """The columns of one level of TACOCAT: id, type, and all others sorted by name."""
    types: dict[str, Any] = {}
    for member in members:
        for name, kind in _fields_of(member.levels[number]).items():
            known = types.setdefault(name, kind)
            if pa.types.is_null(known):
                types[name] = kind
            elif not known.equals(kind) and not pa.types.is_null(kind):
                raise InvalidInputError(
                    f"field {shown(name)} of level {number} has two types",
                    where=shown(member.name),
                    found=spec.type_name(kind),
                    expected=spec.type_name(known),
                )
    types |= _INTERNAL
    names = [*spec.CORE_COLUMNS, *sorted(types.keys() - set(spec.CORE_COLUMNS))]
    plain = {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in types.items()}
    return pa.schema([pa.field(name, plain[name]) for name in names])


def _rows(member: Container, number: int, schema: Any) -> Iterator[Any]:
    """The rows of one level of one archive with right spans, in batches."""
    level = member.levels[number]
    wanted = [name for name in level.stored if name in schema.names and name != spec.SOURCE_FILE]
    first = 0
    for batch in level.table.iter_batches(columns=wanted, rows=_BATCH_ROWS):
        count = batch.num_rows
        places = np.arange(first, first + count, dtype=np.int64)
        columns = {name: normal(flat(batch.column(name))) for name in wanted}
        columns.setdefault(spec.CURRENT_ID, pa.array(places))
        if number == 0:
            columns.setdefault(spec.PARENT_ID, pa.array(places))
            columns.setdefault(spec.RELATIVE_PATH, root_paths(columns[spec.ID], columns[spec.TYPE]))
        if level.spans is not None:
            columns[spec.OFFSET] = level.spans.column(level.spans.offsets, places)
            columns[spec.SIZE] = level.spans.column(level.spans.sizes, places)
        columns[spec.SOURCE_FILE] = pa.array([member.name] * count, pa.string())
        with translated(
            {pa.ArrowInvalid: InvalidMetadataError},
            "a value does not fit its column",
            where=f"level {number} of {shown(member.name)}",
        ):
            cast = [_as(columns.get(field.name), field.type, count) for field in schema]
        yield pa.record_batch(cast, schema=schema)
        first += count


def _as(column: Any, kind: Any, count: int) -> Any:
    if column is None:
        return pa.nulls(count, kind)
    return column if column.type.equals(kind) else column.cast(normal_type(kind))
