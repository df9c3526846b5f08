"""Ids from other containers: which may be copied, and safe names for the others.

An id that could leave its folder or is a hidden name is never written. One that some file system
cannot hold is copied into a ZIP with a warning, and into a folder only under another name.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from comal import names
from comal.errors import InvalidInputError, UnsafeContentError, shown
from comal.public import warn
from comal.taco import spec
from comal.taco.model.levels import Level, Levels, check_children, path_of
from comal.taco.spec import TacoWarning

_ODD = re.compile(r'[<>"|?*,%]')
_SHOWN = 5


def check_foreign(levels: Levels, *, as_files: bool, rename: bool = False) -> Levels:
    """Refuse rows that no container may hold, or with `rename` give them safe ids.

    With `as_files` ids become names of files and folders, so that risky ones are an error. `rename`
    changes these instead, and numbers those that appear twice among siblings.
    """
    checked = []
    for depth, level in enumerate(levels):
        parents = level.parent if depth else None
        risky = _risky(levels, depth)
        # This look, which ignores case, finds equal names too and is usually enough.
        twins = names.twins(level.ids, parents)
        if twins and not rename:
            _check_twice(levels, depth, parents)
        for first, second in twins[: _SHOWN - len(risky)]:
            text = f"equals {shown(level.ids[first].as_py())} where case is ignored"
            risky.append((second, text))
        if risky and rename:
            level = replace(level, table=_renamed(level, parents))  # noqa: PLW2901
        elif risky:
            _refuse_or_warn(levels, depth, risky, as_files=as_files)
        checked.append(level)
    for depth in range(len(levels)):
        check_children(levels, depth)
    return tuple(checked)


def _risky(levels: Levels, depth: int) -> list[tuple[int, str]]:
    """Some rows with ids that not every file system can hold, and why; raises for illegal ids."""
    ids = levels[depth].ids
    found = []
    for row in np.flatnonzero(pc.is_null(ids).to_numpy(zero_copy_only=False))[:1].tolist():
        raise UnsafeContentError("an id is null", where=f"level {depth}, row {row}")
    for bad in islice(names.bad_names(ids, tier=2), _SHOWN):
        if bad.tier == 1:  # these come first
            place = f"level {depth}, row {bad.row}"
            raise UnsafeContentError(f"id {shown(bad.name)} {bad.reason}", where=place, id=bad.name)
        found.append((bad.row, bad.reason))
    return found


def _check_twice(levels: Levels, depth: int, parents: Any) -> None:
    level = levels[depth]
    for first, second in names.twins(level.ids, parents, fold=False)[:1]:
        raise InvalidInputError(
            f"id {shown(level.ids[first].as_py())} appears twice among siblings",
            where=shown(path_of(levels, depth, first), 200),
            found=f"{level.payloads.place(first)} and {level.payloads.place(second)}",
            expected="ids that tell the samples apart",
            hint="pass rename=True to number them, or select rows so that each id appears once",
            id=level.ids[first].as_py(),
        )


def _refuse_or_warn(
    levels: Levels, depth: int, risky: list[tuple[int, str]], *, as_files: bool
) -> None:
    texts = [f"{shown(path_of(levels, depth, row))} {reason}" for row, reason in risky]
    if as_files:
        raise UnsafeContentError(
            "ids cannot be file names on every system",
            where=f"level {depth}",
            found="; ".join(texts),
            hint="pass rename=True to give them safe names, or write a ZIP",
        )
    warn(
        f"level {depth} has ids that some file systems cannot hold: {'; '.join(texts)}",
        TacoWarning,
    )


# -- safe names -----------------------------------------------------------------------------------


def safe_name(name: str) -> str:
    """A name like `name` that every file system can hold; `name` itself if possible."""
    safe = _ODD.sub("_", unicodedata.normalize("NFC", name))
    if safe[:1] in {"-", "~"}:
        safe = "_" + safe[1:]
    if safe[-1:] in {".", " "}:
        safe = safe[:-1] + "_"
    if names.risky(safe) and len(safe.encode()) <= names.MAX_BYTES:
        safe = "_" + safe  # a device on Windows
    if len(safe.encode()) > names.MAX_BYTES:
        mark = f"_{crc32(name.encode()):08x}"
        kept = safe.encode()[: names.MAX_BYTES - len(mark)].decode(errors="ignore")
        safe = kept.rstrip(". ") + mark
    return safe


def _renamed(level: Level, parents: Any) -> Any:
    """The table of a level with safe ids that differ among siblings, ignoring case."""
    ids = _mapped(level.ids, safe_name)
    plain = ids.to_pylist()
    numbers: Counter[tuple[int, str]] = Counter()
    while pairs := names.twins(ids, parents):
        changed = ids.to_pylist()
        for _, second in pairs:
            parent = 0 if parents is None else int(parents[second])
            alike = parent, plain[second].casefold()
            numbers[alike] += 1
            stem, dot, ending = plain[second].partition(".")
            changed[second] = safe_name(f"{stem}_{numbers[alike] + 1}{dot}{ending}")
        ids = pa.array(changed, pa.string())
    position = level.table.schema.get_field_index(spec.ID)
    return level.table.set_column(position, level.table.schema.field(position), ids)


def _mapped(ids: Any, change: Callable[[str], str]) -> Any:
    encoded = pc.dictionary_encode(ids)
    changed = pa.array([change(name) for name in encoded.dictionary.to_pylist()], pa.string())
    return changed.take(encoded.indices)
