"""Several archives as one: TACOCAT (TACO 2.0, 6.5) and TACOLLECTION (6.6)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import strictjson
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    shown,
    translated,
)
from comal.plan import run
from comal.storage import Source, open_source, several, targets
from comal.storage.targetlock import write_errors
from comal.table import ParquetSettings, ParquetTable
from comal.taco import spec, wire
from comal.taco.model.columns import normal, normal_type
from comal.taco.model.extent import united
from comal.taco.model.levels import flat
from comal.taco.spec import LOGGER, TacoWarning
from comal.taco.writing import kinds
from comal.taco.writing.stored import settings, table_writer
from comal.ziparchive import Directory, directory_plan


@dataclass(frozen=True, slots=True)
class Member:
    """One of the datasets."""

    name: str
    """Base name, by which rows name their archive."""
    source: Source
    opened: wire.Opened
    pit: spec.PITSchema

    def schema(self, level: int) -> Any:
        """Arrow schema of a level table as stored."""
        return self.opened.footers[level].schema


def open_all(
    inputs: Sequence[str | os.PathLike[str]], scope: ExitStack, *, only_zip: bool
) -> list[Member]:
    """Open all datasets; they are closed with `scope`.

    Raises
    ------
    InvalidInputError
        Two of one base name.
    """
    members: list[Member] = []
    for href in inputs:
        source = scope.enter_context(open_source(href))
        member = member_of(source)
        if only_zip and member.opened.container != "zip":
            raise NotThisFormatError(
                "TACOCAT joins ZIP archives", where=source.href, found=member.opened.container
            )
        members.append(member)
    names: dict[str, str] = {}
    for member in members:
        known = names.setdefault(member.name, member.source.href)
        if known is not member.source.href:
            raise InvalidInputError(
                "two datasets have one name, so that rows could not tell them apart",
                found=f"{shown(known, 120)} and {shown(member.source.href, 120)}",
                hint="rename one of the files",
            )
    return members


def member_of(source: Source) -> Member:
    """The dataset at `source`, opened."""
    opened = run(_plan(source), source.fetch)
    pit = spec.PITSchema.from_dict(
        opened.collection.get(spec.PIT_SCHEMA), where=f"{source.href}: {spec.COLLECTION}"
    )
    return Member(_base_name(source.href), source, opened, pit)


def _plan(source: Source) -> Any:
    if source.stat().is_dir:
        return wire.open_folder_plan(source.href)
    return wire.open_plan(source.href)


def _base_name(href: str) -> str:
    path = href.partition("?")[0] if "://" in href else href
    return path.rstrip("/").rpartition("/")[2]


def check_members(members: Sequence[Member], *, validate: bool) -> None:
    """Refuse datasets that cannot stand in one table.

    Without `validate` only the number of levels must agree.
    """
    first = members[0]
    for other in members[1:]:
        if other.pit.levels != first.pit.levels:
            raise _differ(first, other, "number of levels", first.pit.levels, other.pit.levels)
        if validate:
            _check_tree(first, other)
            for level in range(min(len(first.opened.footers), len(other.opened.footers))):
                _check_fields(first, other, level)


def _check_tree(first: Member, other: Member) -> None:
    if first.pit.root_type != other.pit.root_type:
        raise _differ(first, other, "type of level 0", first.pit.root_type, other.pit.root_type)
    for level, patterns in first.pit.hierarchy.items():
        theirs = other.pit.hierarchy[level]
        if len(patterns) != len(theirs):
            raise _differ(first, other, f"patterns of level {level}", len(patterns), len(theirs))
        for ours, their in zip(patterns, theirs, strict=True):
            if ours.type != their.type or not _same_ids(ours.id, their.id):
                raise _differ(
                    first, other, f"children at level {level}", list(ours.id), list(their.id)
                )


def _same_ids(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Ids position by position; padding stands for any."""
    return len(ours) == len(theirs) and all(
        a == b or a.startswith(spec.PAD_PREFIX) or b.startswith(spec.PAD_PREFIX)
        for a, b in zip(ours, theirs, strict=True)
    )


def _check_fields(first: Member, other: Member, level: int) -> None:
    ours, theirs = fields_of(first.schema(level)), fields_of(other.schema(level))
    for name in [*ours, *theirs]:
        a, b = ours.get(name), theirs.get(name)
        if a is None or b is None or not a.equals(b):
            raise _differ(
                first,
                other,
                f"field {shown(name)} of level {level}",
                "absent" if a is None else spec.type_name(a),
                "absent" if b is None else spec.type_name(b),
            )


def fields_of(schema: Any) -> dict[str, Any]:
    """Metadata fields of a stored level and their types in plain form."""
    return {
        column.name: normal_type(column.type)
        for column in schema
        if not column.name.startswith(spec.INTERNAL)
    }


def _differ(first: Member, other: Member, what: str, ours: object, theirs: object) -> Exception:
    return InvalidInputError(
        f"datasets differ: {what}",
        found=f"{ours} in {shown(first.name)}, {theirs} in {shown(other.name)}",
        expected="the same in all (TACO 2.0, 6.6)",
        hint="validate_schema=False joins them all the same where that is possible",
    )


def merged_collection(members: Sequence[Member], *, validate: bool) -> dict[str, Any]:
    """The first collection with united extent, summed counts and ``taco:sources`` (6.6)."""
    collections = [member.opened.collection for member in members]
    merged = dict(collections[0])
    merged["extent"] = united([collection.get("extent") for collection in collections])
    merged[spec.PIT_SCHEMA] = summed([m.pit for m in members], validate=validate).to_dict()
    if spec.FIELD_SCHEMA in collections[0]:
        # Behind the tree, as in every collection.
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


def summed(schemas: Sequence[spec.PITSchema], *, validate: bool) -> spec.PITSchema:
    """The tree of all datasets together: counts are summed pattern by pattern."""
    first = schemas[0]
    hierarchy: dict[int, tuple[spec.PITPattern, ...]] = {}
    for level, patterns in first.hierarchy.items():
        counts = [0] * len(patterns)
        for schema in schemas:
            theirs = schema.hierarchy[level]
            for position in range(len(patterns)):
                counts[position] += theirs[position].n if position < len(theirs) else 0
        hierarchy[level] = tuple(
            spec.PITPattern(count, pattern.type, pattern.id)
            for count, pattern in zip(counts, patterns, strict=True)
        )
    roots = sum(schema.root_n for schema in schemas)
    shape: tuple[int, ...] | None = None
    if all(schema.shape for schema in schemas):
        sides = zip(*(schema.shape or () for schema in schemas), strict=validate)
        shape = (roots, *(max(side) for side in list(sides)[1:]))
    return spec.PITSchema(roots, first.root_type, hierarchy, shape)


_FORMS = frozenset({"both", "binary", "folder"})
_COPY = 1 << 20


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
        Folder of the result; that of the first archive when None.
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
        What was written.

    Raises
    ------
    InvalidInputError
        No archive, two of one base name, archives that differ, or no ZIP.
    ConflictError
        The result exists and `overwrite` is False.
    """
    if form not in _FORMS:
        raise InvalidInputError("unknown form", found=shown(form), expected=", ".join(_FORMS))
    how = settings(parquet, "zip")
    named = several(inputs, "paths or URLs")
    folder = _output_folder(output, named[0], {spec.TACOCAT, spec.TACOCAT_FOLDER})
    with (
        _joined(named, validate=validate_schema) as joined,
        targets.new_set(folder / spec.TACOCAT, overwrite, list(named)) as made,
    ):
        _write(made, form, joined, how)
        paths = made.publish()
    for path in paths:
        LOGGER.info("wrote %s (%d archives)", path, len(named))
    return [folder / path.name for path in paths]


def write_tacocat(made: targets.TargetSet, inputs: Sequence[Path], how: ParquetSettings) -> None:
    """As `create_tacocat`, into a set of targets."""
    with _joined(inputs, validate=True) as joined:
        _write(made, "both", joined, how)


@dataclass(frozen=True, slots=True)
class _Joined:
    members: Sequence[Member]
    columns: Sequence[Columns]
    document: dict[str, Any]


@contextmanager
def _joined(inputs: Sequence[str | os.PathLike[str]], *, validate: bool) -> Iterator[_Joined]:
    with ExitStack() as scope:
        members = open_all(inputs, scope, only_zip=True)
        check_members(members, validate=validate)
        document = merged_collection(members, validate=validate)
        columns = [
            cat_columns(members, level, validate=validate)
            for level in range(len(members[0].opened.footers))
        ]
        yield _Joined(members, columns, document)


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
        Folder of the result; that of the first dataset when None.
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
        members = open_all(named, scope, only_zip=False)
        check_members(members, validate=validate_schema)
        document = merged_collection(members, validate=validate_schema)
    path = _output_folder(output, named[0], {spec.TACOLLECTION}) / spec.TACOLLECTION
    with targets.new_file(path, overwrite, kinds.COLLECTIONS, inputs) as file:
        file.write(strictjson.dumps(document, ascii_only=True))
    LOGGER.info("wrote %s (%d datasets)", path, len(members))
    return path


def _output_folder(
    output: str | os.PathLike[str] | None, first: str | os.PathLike[str], own: set[str]
) -> Path:
    """The folder to write to; the fixed name of the result may stand behind it."""
    if output is not None:
        path = targets.local_path(output)
        return path.parent if path.name in own else path
    text = os.fspath(first)
    if "://" in text:
        raise InvalidInputError("inputs are remote, so that the output must be named")
    return Path(text).absolute().parent


def _write(
    made: targets.TargetSet,
    form: str,
    joined: _Joined,
    how: ParquetSettings,
) -> None:
    with write_errors("cannot write", made.target), ExitStack() as scope:
        tree = file = None
        if form != "binary":
            tree = made.add(spec.TACOCAT_FOLDER, kinds.INDEX_FOLDER, folder=True)
            tree.mkdir()
        if form != "folder":
            file = scope.enter_context(made.file(spec.TACOCAT, kinds.INDEX))
            file.write(bytes(wire.TACOCAT_HEADER.size))
        spans = _write_levels(tree, file, joined, how)
        if tree is not None:
            (tree / spec.COLLECTION).write_bytes(strictjson.dumps(joined.document, ascii_only=True))
        if file is not None:
            _finish_binary(file, spans, joined.document, joined.members)


def _write_levels(
    tree: Path | None,
    file: targets.TargetFile | None,
    joined: _Joined,
    how: ParquetSettings,
) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    members = joined.members
    for level, wanted in enumerate(joined.columns):
        if tree is not None:
            path = tree / f"level{level}.parquet"
            with path.open("w+b") as table:
                _write_level(table, members, level, wanted, how)
                if file is not None:
                    spans.append(_append(file, table))
        elif file is not None:
            spooled = file.spool()
            _write_level(spooled, members, level, wanted, how)
            spans.append(_append(file, spooled))
    return spans


def _write_level(
    table: BinaryIO,
    members: Sequence[Member],
    level: int,
    columns: Columns,
    how: ParquetSettings,
) -> None:
    with table_writer(table, columns.schema, how) as writer:
        for rows in _all_rows(members, level, columns):
            writer.write(rows)


def _all_rows(members: Sequence[Member], level: int, columns: Columns) -> Iterator[Any]:
    for member in members:
        yield from cat_rows(member, level, columns)


def _append(file: targets.TargetFile, table: BinaryIO) -> tuple[int, int]:
    table.flush()
    size = table.seek(0, 2)
    table.seek(0)
    offset = file.tell()
    shutil.copyfileobj(table, file, _COPY)
    return offset, size


def _finish_binary(
    file: targets.TargetFile,
    spans: Sequence[tuple[int, int]],
    document: dict[str, Any],
    members: Sequence[Member],
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


# -- rows ------------------------------------------------------------------------------------------


_BATCH_ROWS = 65_536
_LOCAL_HEADER = 30
_INTERNAL = {
    spec.CURRENT_ID: pa.int64(),
    spec.PARENT_ID: pa.int64(),
    spec.OFFSET: pa.int64(),
    spec.SIZE: pa.int64(),
    spec.RELATIVE_PATH: pa.string(),
    spec.SOURCE_FILE: pa.string(),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of one level of TACOCAT: id, type, and all others sorted by name."""

    schema: Any


def cat_columns(members: Sequence[Member], level: int, *, validate: bool) -> Columns:
    """The columns of one level of all archives.

    Raises
    ------
    InvalidInputError
        A field that has two types, unless one archive has no value in it.
    """
    del validate  # what differs has been refused before, or becomes null here
    fields: dict[str, Any] = {}
    for member in members:
        _check_core(member.schema(level), f"{shown(member.name)}, level {level}")
        for name, kind in fields_of(member.schema(level)).items():
            known = fields.setdefault(name, kind)
            if pa.types.is_null(known):
                fields[name] = kind
            elif not known.equals(kind) and not pa.types.is_null(kind):
                raise InvalidInputError(
                    f"field {shown(name)} of level {level} has two types",
                    where=shown(member.name),
                    found=spec.type_name(kind),
                    expected=spec.type_name(known),
                )
    fields = {**fields, **_INTERNAL}
    others = sorted(name for name in fields if name not in spec.CORE_COLUMNS)
    names = [*spec.CORE_COLUMNS, *others]
    kinds = {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in fields.items()}
    return Columns(pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in names]))


def _check_core(schema: Any, where: str) -> None:
    """Refuse columns of the format's own that hold something else (TACO 2.0, 5.5)."""
    for name in sorted({spec.ID, spec.TYPE} - set(schema.names)):
        raise InvalidMetadataError("a level lacks a column", where=where, expected=f"column {name}")
    for name, kind in [(spec.ID, pa.string()), (spec.TYPE, pa.string()), *_INTERNAL.items()]:
        found = schema.field(name).type if name in schema.names else kind
        fits = (
            spec.type_name(found) == "string"
            if pa.types.is_string(kind)
            else pa.types.is_integer(found)
        )
        if not fits:
            raise InvalidMetadataError(
                f"column {name} has a wrong type", where=where, found=str(found)
            )


def cat_rows(member: Member, level: int, columns: Columns) -> Iterator[Any]:
    """The rows of one level of one archive, in batches."""
    stored = ParquetTable(member.source, member.opened.footers[level])
    wanted = [
        name
        for name in stored.column_names
        if name in columns.schema.names and name != spec.SOURCE_FILE
    ]
    directory = run(directory_plan(known=member.opened.pieces), member.source.fetch)
    first = 0
    for batch in stored.iter_batches(columns=wanted, rows=_BATCH_ROWS):
        rows = {
            name: normal(flat(column))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        count = batch.num_rows
        numbers = pa.array(np.arange(first, first + count, dtype=np.int64))
        rows.setdefault(spec.CURRENT_ID, numbers)
        if level == 0:
            rows.setdefault(spec.PARENT_ID, numbers)
            rows.setdefault(spec.RELATIVE_PATH, _root_paths(rows))
        rows[spec.SOURCE_FILE] = pa.array([member.name] * count, pa.string())
        _mend_spans(rows, directory, member, level)
        with translated(
            {pa.ArrowInvalid: InvalidMetadataError},
            "a value that its column cannot hold",
            where=f"level {level} of {shown(member.name)}",
        ):
            cast = [_as(rows.get(field.name), field.type, count) for field in columns.schema]
        yield pa.record_batch(cast, schema=columns.schema)
        first += count


def _as(column: Any, kind: Any, count: int) -> Any:
    if column is None:
        return pa.nulls(count, kind)
    return column if column.type.equals(kind) else column.cast(normal_type(kind))


def _root_paths(rows: dict[str, Any]) -> Any:
    slashed = pc.binary_join_element_wise(rows[spec.ID], "/", "")
    return pc.if_else(pc.equal(rows[spec.TYPE], spec.FOLDER), slashed, rows[spec.ID])


def _mend_spans(rows: dict[str, Any], directory: Directory, member: Member, level: int) -> None:
    """Take spans from the directory of the archive where the row has another entry's.

    Other writers attach spans to the rows of nested levels in another order than that of the
    rows when folder ids are not sorted (s2, s10); the directory is always right.
    """
    needed = (spec.RELATIVE_PATH, spec.OFFSET, spec.SIZE)
    if any(name not in rows or rows[name].null_count for name in needed):
        return
    path = pc.utf8_rtrim(rows[spec.RELATIVE_PATH], "/")
    folder = pc.equal(rows[spec.TYPE], spec.FOLDER)
    path = pc.if_else(folder, pc.binary_join_element_wise(path, spec.META, "/"), path)
    entry = directory.find_many(pc.binary_join_element_wise(spec.DATA, path, ""))
    directory.warn_of_twins(entry, TacoWarning)
    offset = spec.int64s(rows[spec.OFFSET])
    size = spec.int64s(rows[spec.SIZE])
    # A payload lies behind its own header and before the next one; only the extra field between
    # header and payload is not known from the directory.
    order = np.argsort(directory.header_offset)
    following = np.empty(len(directory), np.int64)
    following[order] = np.r_[directory.header_offset[order][1:], directory.start]
    least = directory.header_offset[entry] + _LOCAL_HEADER + directory.name_size[entry]
    right = (
        (offset >= least) & (offset + size <= following[entry]) & (size == directory.size[entry])
    )
    wrong = (entry >= 0) & ~right
    if wrong.any():
        LOGGER.warning(
            "%s: level %d has %d rows with spans of other samples; the directory is used",
            member.name,
            level,
            int(wrong.sum()),
        )
        rows[spec.OFFSET] = pa.array(np.where(wrong, directory.payload_offsets[entry], offset))
        rows[spec.SIZE] = pa.array(np.where(wrong, directory.size[entry], size))
