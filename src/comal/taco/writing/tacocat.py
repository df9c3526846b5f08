"""Several archives as one: TACOCAT (TACO 2.0, 6.5) and TACOLLECTION (6.6)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from comal import strictjson
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    shown,
    shown_path,
    system_errors,
    translated,
)
from comal.geo import boxes
from comal.geo.places import Places, ways_of
from comal.limits import MIB
from comal.plan import ByteRange
from comal.storage import Source, StorageConfig, location, open_source, several, targets
from comal.table import ParquetSettings
from comal.table.write import joined_footer
from comal.taco import spec, wire
from comal.taco.columns import normal, normal_type, root_paths
from comal.taco.model.collection import refuse_alike, united
from comal.taco.model.levels import flat
from comal.taco.reading.container import Container, open_container
from comal.taco.reading.level import Level
from comal.taco.spec import LOGGER
from comal.taco.writing.containers import settings, table_writer
from comal.taco.writing.verify import COLLECTIONS, INDEX, INDEX_FOLDER

_FORMS = {
    "folder": (spec.TACOCAT_FOLDER,),
    "binary": (spec.TACOCAT,),
    "both": (spec.TACOCAT_FOLDER, spec.TACOCAT),
}
_BATCH_ROWS = 65_536
_FINE = pa.timestamp("ns")
"""What `normal` keeps of times that are finer than a microsecond."""
_MARGIN, _ALMOST_ALL = 1e-6, 359
"""Degrees."""
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
    *,
    append: bool = False,
    config: StorageConfig | None = None,
    **parquet: Any,
) -> list[Path]:
    """Join the metadata of several ZIP archives.

    Row groups end where archives end, as far as these are not small, and are described by a box
    around their places, so that queries read only the row groups of the archives that they concern.
    One archive is held in memory at a time.

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
    append
        Add the archives to the index in that folder. Its archives are not opened, and its row
        groups are copied as they are stored; the old index is there until the new one is whole.
        In a store this takes an index that is one object (`form` is ``binary``).
    config
        Settings and credentials to read and to write with.
    **parquet
        Settings of the tables, as for `create`.

    Returns
    -------
    list of pathlib.Path
        The written file and folder.

    Raises
    ------
    InvalidInputError
        No archives, two with the same base name, archives that differ, or another format than ZIP;
        or the index to append to has other columns, or exists in another form, too.
    ObjectNotFoundError
        There is no index to append to.
    ConflictError
        The result exists and `overwrite` is False.
    """
    if form not in _FORMS:
        raise InvalidInputError("unknown form", found=shown(form), expected=", ".join(_FORMS))
    how = settings(parquet, "zip")
    named = several(inputs, "paths or URLs")
    folder = _output_folder(output, named[0], {spec.TACOCAT, spec.TACOCAT_FOLDER}, config)
    with ExitStack() as scope:
        base = _index_in(folder, form, scope) if append else None
        target = folder / spec.TACOCAT
        made = scope.enter_context(targets.new_set(target, overwrite or append, list(named)))
        write_tacocat(made, named, how, form, validate=validate_schema, base=base, config=config)
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
    base: Container | None = None,
    config: StorageConfig | None = None,
) -> None:
    """As `create_tacocat`, into a set of targets; `base` is an index to append to."""
    members = _read_all(inputs, config, only_zip=True, validate=validate)
    if base is not None:
        check_members([Member.of(base), members[0]], validate=validate)
    _write(made, form, members, how, base)


def _index_in(folder: Path, form: str, scope: ExitStack) -> Container:
    """The index in a folder, to be replaced by one of this form."""
    if location.stored(folder) is not None and form != "binary":
        raise InvalidInputError(
            "an index of several objects in a store cannot be appended to",
            where=shown_path(folder),
            hint=f"append to {spec.TACOCAT} alone (form='binary'), or write the index elsewhere",
        )
    there = [name for name in _FORMS["both"] if _exists(folder / name)]
    if not there:
        raise ObjectNotFoundError(
            "no index to append to", where=shown_path(folder), expected=spec.TACOCAT
        )
    left = [name for name in there if name not in _FORMS[form]]
    if left:
        raise InvalidInputError(
            "the index has another form, too, which would not be appended to",
            where=shown_path(folder / left[0]),
            hint="pass form='both', or remove that form",
        )
    return open_container(scope.enter_context(open_source(folder / there[0])))


def _exists(index: Path) -> bool:
    if location.stored(index) is None:
        return index.exists()
    with suppress(ObjectNotFoundError):
        is_file = index.name == spec.TACOCAT
        return bool(open_source(index if is_file else index / spec.COLLECTION).stat())
    return False


def is_earlier(index: Path, archives: set[str]) -> bool:
    """Whether an index, a file or a folder, is one of fewer archives.

    A folder without a document is being replaced, or a killed merge has left it: then the file
    beside it, which comes before it, tells whose it is.
    """
    for name in (index.name, spec.TACOCAT):
        try:
            with open_source(index.with_name(name)) as source:
                found = set(open_container(source).collection[spec.SOURCES]["files"])
        except ObjectNotFoundError:
            continue
        except (NotThisFormatError, InvalidMetadataError, LookupError, TypeError):
            return False
        return found < archives or (name != index.name and found == archives)
    return False


def create_tacollection(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    validate_schema: bool = True,  # noqa: FBT001, FBT002 - the signature of the specification
    overwrite: bool = False,  # noqa: FBT001, FBT002 - as above
    *,
    config: StorageConfig | None = None,
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
    config
        Settings and credentials to read and to write with.

    Returns
    -------
    pathlib.Path
        The file.
    """
    named = several(inputs, "paths or URLs")
    members = _read_all(named, config, only_zip=False, validate=validate_schema)
    document = merged_collection(members)
    path = _output_folder(output, named[0], {spec.TACOLLECTION}, config) / spec.TACOLLECTION
    with targets.new_file(path, overwrite, COLLECTIONS, inputs) as file:
        file.write(strictjson.dumps(document, ascii_only=True))
    LOGGER.info("wrote %s (%d datasets)", path, len(members))
    return path


def _output_folder(
    output: str | os.PathLike[str] | None,
    first: str | os.PathLike[str],
    own: set[str],
    config: StorageConfig | None,
) -> Path:
    """The folder to write to; `output` may include the fixed name of the result."""
    if output is not None:
        path = targets.target_path(output, config)
        return path.parent if path.name in own else path
    text = os.fspath(first)
    if "://" in text:
        raise InvalidInputError("the inputs are remote, so the output must be named")
    return Path(text).absolute().parent


# -- comparing the datasets ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """What is kept of one dataset; its rows are read when they are written."""

    name: str
    source: Source
    pit: spec.PITSchema
    fields: tuple[dict[str, Any], ...]
    """Per level the metadata fields and their types in plain form."""
    collection: dict[str, Any]

    @classmethod
    def of(cls, container: Container, like: Member | None = None) -> Member:
        """The member of an open dataset, which shares with `like` what is equal."""
        fields = tuple(map(_fields_of, container.levels))
        collection = container.collection
        if like is not None:
            fields = like.fields if fields == like.fields else fields
            collection = {key: collection.get(key) for key in ("id", "extent")}
        return cls(container.name, container.source, container.pit, fields, collection)


def _read_all(
    inputs: Sequence[str | os.PathLike[str]],
    config: StorageConfig | None,
    *,
    only_zip: bool,
    validate: bool,
) -> list[Member]:
    """Look at all datasets and check that they fit in one table."""
    members: dict[str, Member] = {}
    first: Member | None = None
    for href in inputs:
        with open_source(href, config=config) as source:
            container = open_container(source)
            where = source.href
            if only_zip and container.kind != "zip":
                raise NotThisFormatError(
                    "TACOCAT joins ZIP archives only", where=where, found=container.kind
                )
            member = Member.of(container, first)
        first = first or member
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


def check_members(members: Sequence[Member], *, validate: bool) -> None:
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


def _compared(first: Member, other: Member) -> Iterator[tuple[str, object, object]]:
    """Properties that must be equal in two datasets; callers stop at a difference."""
    yield "number of levels", first.pit.levels, other.pit.levels
    yield "type of level 0", first.pit.root_type, other.pit.root_type
    for level, patterns in first.pit.hierarchy.items():
        theirs = other.pit.hierarchy[level]
        yield f"patterns of level {level}", len(patterns), len(theirs)
        for one, two in zip(patterns, theirs, strict=True):
            if one.type != two.type or not _same_ids(one.id, two.id):
                yield f"children at level {level}", [*one.type, *one.id], [*two.type, *two.id]
    for level, (here, there) in enumerate(zip(first.fields, other.fields, strict=False)):
        for name in [*here, *there]:
            ours, found = (
                spec.type_name(normal_type(fields[name])) if name in fields else "absent"
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
    """Metadata fields of a stored level and their types in plain form; times may be finer."""
    return {
        column.name: _FINE if column.type == _FINE else normal_type(column.type)
        for column in level.table.schema
        if not column.name.startswith(spec.INTERNAL)
    }


def merged_collection(members: Sequence[Member]) -> dict[str, Any]:
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
    members: Sequence[Member],
    how: ParquetSettings,
    base: Container | None,
) -> None:
    document, typed = merged_collection(members), members
    if base is not None:
        document, typed = _extended(base, document), [Member.of(base), *members]
    with system_errors("cannot write", made.target), ExitStack() as scope:
        tree = file = None
        if form != "binary":
            tree = made.add(spec.TACOCAT_FOLDER, INDEX_FOLDER, folder=True)
            tree.mkdir()
        if form != "folder":
            file = scope.enter_context(made.file(spec.TACOCAT, INDEX))
            file.write(bytes(wire.TACOCAT_HEADER.size))
        spans = []
        for number in range(len(members[0].fields)):
            schema = _schema(typed, number)
            if tree is not None:
                table: BinaryIO = (tree / f"level{number}.parquet").open("w+b")
                scope.enter_context(table)
            else:
                assert file is not None
                table = file.spool()
            groups = _groups(members, number, schema, how.row_group_size)
            if base is None:
                _write_groups(table, schema, groups, how)
            else:
                _continue(table, base.levels[number], schema, groups, how)
            if file is not None:
                spans.append(_append(file, table))
        if tree is not None:
            (tree / spec.COLLECTION).write_bytes(strictjson.dumps(document, ascii_only=True))
        if file is not None:
            _finish_binary(file, spans, document)


def _groups(members: Sequence[Member], number: int, schema: Any, size: int) -> Iterator[Any]:
    """The rows of a level as row groups of at most `size` rows.

    An archive that does not fit in what is left of a row group begins another.
    """
    pending: list[Any] = []
    rows = 0
    for member in members:
        with member.source as source:
            container = open_container(source)
            if rows and rows + container.levels[number].num_rows > size:
                yield pa.Table.from_batches(pending)
                pending, rows = [], 0
            for batch in _rows(container, number, schema):
                pending.append(batch)
                rows += batch.num_rows
                while rows >= size:
                    table = pa.Table.from_batches(pending)
                    yield table.slice(0, size)
                    pending, rows = table.slice(size).to_batches(), rows - size
    if rows:
        yield pa.Table.from_batches(pending)


def _write_groups(
    file: Any,
    schema: Any,
    groups: Iterator[Any],
    how: ParquetSettings,
    stored: Iterable[bytes] = (),
    known: Any = ((), (), ()),
) -> tuple[Any, dict[str, str]]:
    """Write row groups behind `stored` ones, which `known` describes.

    Returns the `pyarrow.parquet.FileMetaData` of the new ones, and what tells of all.
    """
    rows, ends, around = map(list, known)
    with table_writer(file, schema, how, stored) as writer:
        for group in groups:
            writer.write(group)
            rows.append(group.num_rows)
            ends.append(writer.cut())
            around.append(_box(group))
        told = {wire.GROUPS_KEY: wire.pack_groups(rows, ends, around)}
        return writer.close(told), told


def _box(rows: Any) -> list[float] | None:
    """A box around rows, by whichever column a query may use; None if that cannot be told."""
    found = []
    for way in ways_of(rows.schema):
        try:
            corners = np.stack(Places(rows, (way,)).corners)
        except ComalError:
            return None
        found.append(corners[:, np.isfinite(corners).all(axis=0)])
    box = boxes.union_box(*np.concatenate(found, axis=1)) if found else None
    if box is None:
        return None
    # Computed again by another version of PROJ, a place may differ in its last digits.
    west, east = box.west - _MARGIN, box.east + _MARGIN
    if boxes.arc_width(box.west, box.east) > _ALMOST_ALL:
        west, east = -180.0, 180.0
    return [west, box.south - _MARGIN, east, box.north + _MARGIN]


# -- appending -------------------------------------------------------------------------------------


def _extended(base: Container, new: dict[str, Any]) -> dict[str, Any]:
    """The collection of an index and of the archives that are added to it."""
    document = dict(base.collection)
    document.pop("_tacocat", None)
    document["extent"] = united([document.get("extent"), new["extent"]])
    pit = spec.PITSchema.from_dict(new[spec.PIT_SCHEMA])
    document[spec.PIT_SCHEMA] = spec.PITSchema.summed([base.pit, pit]).to_dict()
    with translated(
        dict.fromkeys((TypeError, LookupError), InvalidMetadataError),
        f"{spec.SOURCES} of the index cannot be extended",
        where=base.source.href,
        hint="write the index again from all archives",
    ):
        listed, added = base.collection[spec.SOURCES], new[spec.SOURCES]
        twice = set(listed["files"]) & set(added["files"])
        document[spec.SOURCES] = {key: listed[key] + added[key] for key in added}
    if twice:
        raise InvalidInputError(
            "the index has an archive of this name",
            where=base.source.href,
            found=", ".join(map(shown, sorted(twice)[:10])),
        )
    return document


def _continue(
    file: BinaryIO, level: Level, schema: Any, groups: Iterator[Any], how: ParquetSettings
) -> None:
    """Write a table of the stored row groups of `level`, and of more."""
    footer, boxes = level.table.footer, level.group_boxes
    end = footer.span.size - footer.size
    wanted = (
        ByteRange(footer.span.offset + at, min(MIB, end - at), footer.span.href)
        for at in range(4, end, MIB)
    )
    stored = (level.table.source.fetch([want])[0].data for want in wanted)
    known: Any = ((), (), ())
    if boxes is not None:
        starts = footer.layout.start.min(axis=1)[1:].tolist()
        around = [None if box[0] != box[0] else box for box in boxes.tolist()]
        known = footer.layout.rows.tolist(), [*starts, end], around
    sink = pa.PythonFile(file, mode="w")  # counts bytes: the new row groups know their place
    new, told = _write_groups(sink, schema, groups, how, stored, known)
    told = told if boxes is not None else {}
    sink.write(joined_footer(schema, how, told, [footer.metadata, new]))
    sink.flush()


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
) -> None:
    provenance = {
        "version": wire.TACOCAT_VERSION,
        "num_datasets": document[spec.SOURCES]["count"],
        "dataset_sources": sorted(document[spec.SOURCES]["files"]),
    }
    text = strictjson.dumps({**document, "_tacocat": provenance}, indent=2, ascii_only=True)
    offset = file.tell()
    file.write(text)
    file.seek(0)
    file.write(wire.pack_tacocat_header(spans, (offset, len(text))))


def _schema(members: Sequence[Member], number: int) -> Any:
    """The columns of one level of TACOCAT: id, type, and all others sorted by name."""
    types: dict[str, Any] = {}
    for member in members:
        for name, kind in member.fields[number].items():
            known = types.setdefault(name, kind)
            if pa.types.is_null(known) or (kind == _FINE and known == normal_type(kind)):
                types[name] = kind
            elif known == _FINE and kind == normal_type(known):
                continue
            elif not known.equals(kind) and not pa.types.is_null(kind):
                raise InvalidInputError(
                    f"field {shown(name)} of level {number} has two types",
                    where=shown(member.name),
                    found=spec.type_name(kind),
                    expected=spec.type_name(known),
                )
    refuse_alike([*types])
    types |= _INTERNAL
    names = [*spec.CORE_COLUMNS, *sorted(types.keys() - set(spec.CORE_COLUMNS))]
    plain = {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in types.items()}
    return pa.schema([pa.field(name, plain[name]) for name in names])


def _rows(member: Container, number: int, schema: Any) -> Iterator[Any]:
    """The rows of one level of one archive with right parents, paths and spans, in batches."""
    level = member.levels[number]
    mended = level.relation(spans=True)
    stored = level.stored if mended is None else mended.column_names
    wanted = [name for name in stored if name in schema.names and name != spec.SOURCE_FILE]
    if mended is None:
        batches = level.table.iter_batches(columns=wanted, rows=_BATCH_ROWS)
    else:
        batches = iter(mended.select(wanted).to_batches(_BATCH_ROWS))
    first = 0
    for batch in batches:
        count = batch.num_rows
        places = np.arange(first, first + count, dtype=np.int64)
        columns = {name: normal(flat(batch.column(name))) for name in wanted}
        columns.setdefault(spec.CURRENT_ID, pa.array(places))
        if number == 0:
            columns.setdefault(spec.PARENT_ID, pa.array(places))
            columns.setdefault(spec.RELATIVE_PATH, root_paths(columns[spec.ID], columns[spec.TYPE]))
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
