"""Several archives as one: TACOCAT (TACO 2.0, 6.5) and TACOLLECTION (6.6).

TACOCAT joins the level tables of archives; a column tells which archive each row is from. It
exists in two forms, which hold the same tables: the single file ``__TACOCAT__`` of the
specification and the folder ``.tacocat/`` that newer readers want.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from comal import strictjson
from comal.errors import InvalidInputError, shown
from comal.storage import several, targets
from comal.storage.targetlock import write_errors
from comal.table import ParquetSettings
from comal.taco import spec, wire
from comal.taco.verbosity import LOGGER
from comal.taco.writing import kinds, merge
from comal.taco.writing.catrows import Columns, cat_columns, cat_rows
from comal.taco.writing.stored import settings, table_writer

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
    members: Sequence[merge.Member]
    columns: Sequence[Columns]
    document: dict[str, Any]


@contextmanager
def _joined(inputs: Sequence[str | os.PathLike[str]], *, validate: bool) -> Iterator[_Joined]:
    with ExitStack() as scope:
        members = merge.open_all(inputs, scope, only_zip=True)
        merge.check_members(members, validate=validate)
        document = merge.merged_collection(members, validate=validate)
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
        members = merge.open_all(named, scope, only_zip=False)
        merge.check_members(members, validate=validate_schema)
        document = merge.merged_collection(members, validate=validate_schema)
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
    members: Sequence[merge.Member],
    level: int,
    columns: Columns,
    how: ParquetSettings,
) -> None:
    with table_writer(table, columns.schema, how) as writer:
        for rows in _all_rows(members, level, columns):
            writer.write(rows)


def _all_rows(members: Sequence[merge.Member], level: int, columns: Columns) -> Iterator[Any]:
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
    members: Sequence[merge.Member],
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
