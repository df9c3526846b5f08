"""Writing a dataset: `create` (TACO 2.0, 7.1.3)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from comal.errors import InvalidInputError, shown
from comal.progress import Progress, silent
from comal.samples.payloads import refuse_read
from comal.storage import targets
from comal.storage.kinds import check_ending
from comal.taco import spec
from comal.taco.model.collection import Taco
from comal.taco.model.extent import extent_of
from comal.taco.model.levels import Levels
from comal.taco.model.pit import check_pit
from comal.taco.spec import LOGGER
from comal.taco.writing import parts
from comal.taco.writing.containers import BatchWriter, ZipSink, new_container, write_columns
from comal.taco.writing.parts import PartSet
from comal.taco.writing.stored import Writing, computed_schemas, settings
from comal.taco.writing.streamwrite import write_stream_parts
from comal.taco.writing.tacocat import write_tacocat

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
    executor: Executor | None = None,
    temp_dir: str | os.PathLike[str] | None = None,
    **parquet: Any,
) -> list[Path]:
    """Write a dataset to disk.

    The target appears complete or not at all, and the same dataset always gives the same bytes.

    Parameters
    ----------
    taco
        The dataset. It can be written as often as wanted.
    output
        Target: a file for ZIP, a folder for FOLDER.
    output_format
        ``zip``, ``folder`` or ``auto``: ZIP when the name ends in ``.zip`` or ``.tacozip``.
    overwrite
        Replace an existing dataset at the end, as a whole; of a folder only the files that its
        tables name, and only if there are no others. With several archives those of the old set
        that the new one does not have are removed; archives of groups where the old index lists
        them.
    split_size
        Write several archives ``{stem}_part0001.tacozip`` of about this size each: bytes, or text
        such as ``"4GB"``. Level 0 samples are never cut.
    group_by
        Write an archive ``{stem}_{key}.tacozip`` for each value of these metadata fields of
        level 0.
    consolidate
        With several archives: also write ``__TACOCAT__`` and ``.tacocat`` beside them.
    progress
        Told how far the copy is.
    executor
        Where the many small metadata files of nested datasets are encoded; threads when None.
    temp_dir
        Accepted for the specification's sake: temporary files lie beside the target.
    **parquet
        Settings of the level tables: compression, compression_level, row_group_size, ... Tables of
        a folder have pages of 16 to 128 KB, row groups of 131 072 rows, and dictionaries only for
        values that repeat, so that storage with content-defined chunks (TACO 2.0, 6.4) takes little
        of a new version; what is given here wins.

    Returns
    -------
    list of pathlib.Path
        What was written, archives first.

    Raises
    ------
    ConflictError
        The target exists (and `overwrite` is False), or is one of the sources; or a file that is
        no part of the dataset has the name of a part.
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
    target = targets.local_path(output)
    kind = container_of(target, output_format)
    how = Writing(settings(parquet, kind), overwrite, progress or silent, executor)
    if split_size is None and group_by is None:
        write_one(taco, target, kind, how)
        return [target]
    if kind != "zip":
        raise InvalidInputError("only ZIP archives can be split or grouped", found=kind)
    return _create_parts(taco, target, split_size, group_by, how, consolidate=consolidate)


def container_of(target: Path, output_format: str) -> str:
    """``zip`` or ``folder``, from what was asked for or from the name."""
    wanted = output_format.lower()
    if wanted == "auto":
        check_ending(target, *ZIP_SUFFIXES)
        wanted = "zip" if target.suffix.lower() in ZIP_SUFFIXES else "folder"
    if wanted not in {"zip", "folder"}:
        raise InvalidInputError(
            "unknown container", found=shown(output_format), expected="'zip', 'folder' or 'auto'"
        )
    if wanted == "folder" and target.name in {"DATA", "METADATA", spec.TACOCAT_FOLDER}:
        raise InvalidInputError("name of a part of a dataset", found=target.name)
    check_ending(target, *(ZIP_SUFFIXES if wanted == "zip" else ()))
    return wanted


def levels_of(taco: Taco) -> Levels:
    """The columns of a dataset."""
    levels = taco.tortilla.levels()
    check_pit(levels)
    return levels


def write_one(taco: Taco, target: Path, kind: str, how: Writing) -> None:
    """Write one container."""
    batches = taco.tortilla.stream
    if batches is None:
        levels = levels_of(taco)
        write_levels(levels, document_of(taco, levels, spans=kind == "zip"), target, kind, how)
    else:
        with (
            new_container(target, kind, how) as sink,
            BatchWriter(sink, batches.schema, how) as writer,
        ):
            for table, payloads in batches:
                writer.add(table, payloads)
            writer.finish(taco)
    LOGGER.info("wrote %s", target)


def write_levels(
    levels: Levels, document: dict[str, Any], target: Path, kind: str, how: Writing
) -> None:
    """Write levels and their COLLECTION.json as one container.

    The way of everything that has its rows in columns already; payloads may be spans of other
    containers.
    """
    refuse_read([target], [level.payloads for level in levels])
    with new_container(target, kind, how) as sink:
        write_columns(sink, levels, document, how)


def document_of(
    taco: Taco, levels: Levels, *, spans: bool, extent: dict[str, Any] | None = None
) -> dict[str, Any]:
    """COLLECTION.json of a dataset (TACO 2.0, 5.6), for a container with or without spans."""
    fields = taco.export_metadata()
    if extent is not None:
        fields["extent"] = extent
    return fields | computed_schemas(levels, spans=spans)


def _create_parts(
    taco: Taco,
    target: Path,
    split_size: int | str | None,
    group_by: str | Sequence[str] | None,
    how: Writing,
    *,
    consolidate: bool,
) -> list[Path]:
    """Several archives, and what joins them."""
    stream = taco.tortilla.stream
    levels = None if stream is not None else levels_of(taco)
    with targets.new_set(target, how.overwrite) as made:
        whole = PartSet(taco.id, made)
        if consolidate:
            whole.expect_index()
            whole.replace_listed(target)
        if levels is None:
            write_stream_parts(taco, target, split_size, group_by, how, whole)
        else:
            pieces = parts.plan(levels, target, split_size=split_size, group_by=group_by)
            paths = [piece.path for piece in pieces]
            whole.expect(paths)
            if split_size is not None:
                for first in parts.first_parts(paths):
                    whole.replace(first, planned=paths)
            for level in levels:
                whole.read(level.payloads)
            _write_pieces(taco, levels, pieces, how, whole)
        if consolidate:
            write_tacocat(made, whole.staged(), how.parquet)
        paths = whole.publish()
    for path in paths:
        LOGGER.info("wrote %s", path)
    names = {path.name for path in whole.made}
    return [*whole.made, *(target.with_name(p.name) for p in paths if p.name not in names)]


def _write_pieces(
    taco: Taco, levels: Levels, pieces: Sequence[parts.Part], how: Writing, whole: PartSet
) -> None:
    for piece in pieces:
        part = parts.levels_of_part(levels, piece)
        extent = taco.extent if taco.extent_is_given else extent_of(part)
        document = document_of(taco, part, spans=True, extent=extent)
        refuse_read([piece.path], [level.payloads for level in part])
        with whole.archive(piece.path) as file:
            write_columns(ZipSink(file, how.progress), part, document, how)
        whole.made.append(piece.path)
