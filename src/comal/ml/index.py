"""Where the bytes of every field of every sample are, known before anything is read."""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, InvalidMetadataError, ObjectNotFoundError, shown
from comal.lazy import pc
from comal.ml.decoding import Field, matcher
from comal.parallel import cached_property
from comal.samples.payloads import Ints, Payloads, concat
from comal.table.columns import flags_of

_SMALL = 1 << 18
"""Bytes of arrays that are pickled; larger ones are shared as a file."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Samples of one depth, whatever their format."""

    ids: Any
    """Arrow strings."""
    parents: Ints
    """Row of the parent in the branch above."""
    leaves: Any
    """Mask of the rows that have bytes."""
    payloads: Payloads


@dataclass(frozen=True, slots=True)
class Index:
    """The leaves of n samples by field, and the columns that go with them."""

    ids: Any
    """Arrow strings: the id of each sample."""
    columns: Any
    """Arrow table of n rows."""
    leaves: Mapping[str, Ints]
    """For each field the rows of its leaves in `payloads`: shape (n,), or (n, k) for a series of
    up to k leaves; -1 where there is none."""
    payloads: Payloads
    sizes: Ints
    """Bytes of each payload."""
    first: int = 0
    """Number of the first sample, for messages."""

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints) -> Index:
        """The index of some samples."""
        chosen = pa.array(rows)
        return replace(
            self,
            ids=self.ids.take(chosen),
            columns=self.columns.take(chosen),
            leaves={name: leaves[rows] for name, leaves in self.leaves.items()},
        )

    def part(self, rows: Ints) -> Index:
        """The index of consecutive samples, with their payloads alone."""
        used, part = self.wanted(rows), self.take(rows)
        leaves = {
            name: np.where(found < 0, -1, np.searchsorted(used, found))
            for name, found in part.leaves.items()
        }
        payloads, first = self.payloads.take(used), self.first + int(rows[:1].sum())
        return replace(part, leaves=leaves, payloads=payloads, sizes=self.sizes[used], first=first)

    def wanted(self, rows: Ints) -> Ints:
        """The payloads of some samples, each once, in ascending order."""
        every = [leaves[rows].ravel() for leaves in self.leaves.values()]
        used = np.sort(np.concatenate([np.zeros(0, np.int64), *every]))
        # np.unique takes ten times as long for so few.
        once: Ints = used[(used >= 0) & (np.diff(used, prepend=-1) != 0)]
        return once

    def nbytes(self, rows: Ints) -> int:
        """Bytes of all leaves of some samples."""
        total = 0
        for leaves in self.leaves.values():
            used = leaves[rows]
            total += int(self.sizes[used].sum(where=used >= 0))
        return total

    def read(self, used: Ints) -> dict[int, Any]:
        """The bytes of some payloads, in ascending order; adjacent ones share requests."""
        return dict(zip(used.tolist(), self.payloads.views(used, self.sizes[used]), strict=True))

    def place(self, row: int, name: str) -> str:
        """A sample and one of its fields, for messages."""
        who = f"sample {shown(self.ids[row].as_py(), 120)} (row {self.first + row})"
        text = f"{who}, field {shown(name)}"
        found = [leaf for leaf in np.atleast_1d(self.leaves[name][row]).tolist() if leaf >= 0]
        return f"{text}: {self.payloads.place(found[0])}" if found else text


# -- from data sets --------------------------------------------------------------------------------


def index_of(
    branches: Sequence[Branch], columns: Any, fields: Mapping[str, Field], where: str
) -> Index:
    """The index of samples whose ids, parents and payloads are known.

    Raises
    ------
    InvalidInputError
        No sample has a leaf of a field.
    InvalidMetadataError
        A sample lacks a leaf of a field that is not optional.
    """
    if not len(branches[0].ids):
        none, payloads = np.zeros(0, np.int64), branches[0].payloads
        return Index(branches[0].ids, columns, dict.fromkeys(fields, none), payloads, none)
    used = sorted({len(field.parts) for field in fields.values()})
    if used and used[-1] >= len(branches):
        deep = next(name for name, one in fields.items() if len(one.parts) >= len(branches))
        raise _no_leaf(deep, fields[deep], branches, where)
    each = [branches[depth].payloads for depth in used]
    starts = dict(zip(used, np.cumsum([0, *map(len, each)]).tolist(), strict=False))
    leaves = {}
    for name, field in fields.items():
        found = leaves_of(branches, field)
        lacking = found if found.ndim == 1 else found.max(axis=1, initial=-1)
        if lacking.max() < 0:
            raise _no_leaf(name, field, branches, where)
        if not field.optional and (lacking < 0).any():
            row = int(np.argmax(lacking < 0))
            raise InvalidMetadataError(
                "a sample lacks a leaf",
                where=f"{where}, sample {shown(branches[0].ids[row].as_py(), 120)}",
                expected=field.leaf,
                hint="an optional Field gives None instead",
            )
        start = starts[len(field.parts)]
        leaves[name] = np.where(found < 0, -1, found + start) if start else found
    joined = concat(each) if each else branches[0].payloads
    return Index(branches[0].ids, columns, leaves, joined, joined.sizes())


def leaves_of(branches: Sequence[Branch], field: Field) -> Ints:
    """Rows of the leaves of a field in the branch of its depth, by sample; -1 for none."""
    if not field.parts:
        rows = np.arange(len(branches[0].ids))
        return rows if branches[0].leaves.all() else np.where(branches[0].leaves, rows, -1)
    owner = np.arange(len(branches[0].ids))
    for depth, part in enumerate(field.parts, 1):
        branch = branches[depth]
        mine = _matching(branch.ids, part)
        owner = np.where(mine, owner[branch.parents], -1)
    owner = np.where(branches[len(field.parts)].leaves, owner, -1)
    rows = np.flatnonzero(owner >= 0)
    samples = owner[rows]
    order = np.argsort(samples, kind="stable")
    rows, samples = rows[order], samples[order]
    counts = np.bincount(samples, minlength=len(branches[0].ids))
    width = int(counts.max(initial=0)) if field.is_series else 1
    within = np.arange(len(rows)) - (np.cumsum(counts) - counts)[samples]
    found = np.full((len(counts), width), -1, np.int64)
    # Ids are unique among siblings; of a broken archive the first counts.
    kept = within < width
    found[samples[kept], within[kept]] = rows[kept]
    return found if field.is_series else found[:, 0]


def _matching(ids: Any, part: str) -> Any:
    if "*" not in part and "?" not in part:
        return flags_of(pc.equal(ids, part))
    names = ids.dictionary_encode()
    fits = np.array(list(map(matcher(part), names.dictionary.to_pylist())), np.bool_)
    return fits[np.asarray(names.indices)] if len(fits) else np.zeros(len(ids), np.bool_)


def _no_leaf(name: str, field: Field, branches: Sequence[Branch], where: str) -> InvalidInputError:
    known = [
        shown(one)
        for branch in branches[1:]
        for one in branch.ids.slice(0, 20).unique().to_pylist()[:10]
    ]
    return InvalidInputError(
        f"no sample has the leaf of field {shown(name)}",
        where=where,
        found=shown(field.leaf),
        expected="ids below a sample, such as " + ", ".join(known)
        if known
        else "'' for the sample itself, as samples are files",
    )


# -- shared between processes ----------------------------------------------------------------------


class Shared:
    """A large value that other processes map into memory instead of copying it.

    The arrays of a pickle are written to a temporary file once. The file is removed when the
    value is no longer used in the process that made it; who has mapped it, keeps it. With `small`
    there is no file, so that the pickle can go to other machines.
    """

    def __init__(self, value: Any, *, small: bool = False) -> None:
        self.value, self._small = value, small

    def __reduce__(self) -> tuple[Any, ...]:
        if self._small or sum(part.nbytes for part in self._pickled()[1]) <= _SMALL:
            return Shared, (self.value,)
        return _mapped, self._file

    def _pickled(self) -> tuple[bytes, list[memoryview]]:
        """The pickle without its arrays, and these."""
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(self.value, 5, buffer_callback=buffers.append)
        return head, [buffer.raw() for buffer in buffers]

    @cached_property
    def _file(self) -> tuple[str, bytes, list[int]]:
        """Path of the file, the pickle without the arrays in it, and their sizes."""
        head, parts = self._pickled()
        descriptor, path = tempfile.mkstemp(prefix="comal-index-")
        weakref.finalize(self, _remove, path, os.getpid())
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
                file.write(bytes(-part.nbytes % 64))
        return path, head, [part.nbytes for part in parts]


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child does not remove what its parent shares
        Path(path).unlink(missing_ok=True)


def _mapped(path: str, head: bytes, sizes: list[int]) -> Shared:
    try:
        with Path(path).open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError as error:
        raise ObjectNotFoundError(
            "the index of a data set is gone",
            where=path,
            expected="that the process which shared it keeps it, on the same machine",
            hint="open the data set where it is used",
        ) from error
    starts = np.cumsum([0, *(size + -size % 64 for size in sizes)]).tolist()
    buffers = [view[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    found = Shared(pickle.loads(head, buffers=buffers))  # noqa: S301 - from `Shared` of a parent
    found.__dict__["_file"] = path, head, sizes  # who pickles it again, names the same file
    return found
