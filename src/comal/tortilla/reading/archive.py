"""Where rows come from: the files of a set, the tables nested in them, and the bytes of items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from comal import strictjson
from comal.errors import ComalError
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.parallel import side_by_side
from comal.plan import ByteRange, Piece, Plan, run
from comal.storage import RangeFile, Source
from comal.tortilla.reading.items import aliased, is_json, items_of, stored_table
from comal.tortilla.wire import Header, Opened, children_plan

_CACHE = 64 * MIB
_AT_ONCE = 1_024
"""Nested files that are opened in one round trip; bounds what is held while they are decoded."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a set, or a file that is a set of its own."""

    source: Source
    header: Header
    size: int
    collection: bytes | None = None
    json_footer: bool = False
    aliased: tuple[str, ...] = ()
    """Stored names of columns that are called otherwise here."""

    @classmethod
    def of(cls, source: Source, opened: Opened, aliased: tuple[str, ...] = ()) -> Part:
        """The part that `opened` was read from."""
        header, collection = opened.header, opened.collection
        return cls(source, header, opened.size, collection, is_json(opened), aliased)

    @property
    def is_remote(self) -> bool:
        """Whether reading it means waiting for a network."""
        return not self.source.location.is_local


@dataclass(frozen=True, slots=True)
class Address:
    """Where a nested file lies."""

    part: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Nested:
    """A nested file that was opened: its items, and its bytes where they came along."""

    items: Any
    kept: tuple[Piece, ...] = ()
    has_collection: bool = False
    """It is a TACO v1 with a collection of its own."""
    aliased: tuple[str, ...] = ()
    """As for `Part`."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return int(self.items.nbytes) + sum(len(piece.data) for piece in self.kept)


class Home:
    """The files behind a frame and all frames made from it.

    It holds no lock and no connection: it may be used from several threads, survives a fork, and
    its pickle leaves out what can be read again.
    """

    def __init__(
        self, parts: Sequence[Part], limits: Limits = DEFAULT_LIMITS, *, typed: bool = True
    ) -> None:
        self.parts = tuple(parts)
        self.limits = limits
        self.typed = typed
        self._cache: dict[Address, Nested] = {}
        self._held = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.parts, self.limits, self.typed)

    @property
    def is_remote(self) -> bool:
        """Whether any of the files is behind a network."""
        return any(part.is_remote for part in self.parts)

    def where(self, part: int) -> str:
        """How messages call a file."""
        return self.parts[part].source.href

    def collection(self) -> dict[str, Any] | None:
        """The collection of a TACO v1; every part of a set repeats it."""
        for part in self.parts:
            if part.collection is not None:
                return strictjson.loads(
                    part.collection, f"{part.source.href}: collection", self.limits
                )
        return None

    # -- nested files ------------------------------------------------------------------------------

    def nested(self, addresses: Sequence[Address], depth: int) -> list[Nested]:
        """Open nested files; those of one object come in one round trip.

        Parameters
        ----------
        addresses
            Where they lie; the same one may stand several times.
        depth
            How many files they are nested in.

        Raises
        ------
        LimitExceededError
            Nested too deep.
        InvalidMetadataError
            One of them is broken.
        """
        found = self._known(addresses, depth)
        for batch in _batches([one for one in dict.fromkeys(addresses) if one not in found]):
            jobs = [
                lambda part=part, spans=spans: run(
                    self._children(part, spans), self.parts[part].source.fetch
                )
                for part, spans in batch.items()
            ]
            opened = settled(together(jobs, remote=self.is_remote))
            self._keep(found, batch, opened)
        return [found[address] for address in addresses]

    def _known(self, addresses: Sequence[Address], depth: int) -> dict[Address, Nested]:
        if addresses:
            # An item lies inside the data of its file, behind the header, so that each nested file
            # is smaller than the one around it: nothing can hold itself, but it can be deep.
            self.limits.check("tortilla_depth", depth, self.name(addresses[0]))
        cached = {one: self._cache.get(one) for one in addresses}
        return {one: nested for one, nested in cached.items() if nested is not None}

    def _children(self, part: int, spans: Sequence[ByteRange]) -> Plan[list[Opened | ComalError]]:
        names = [self.name(Address(part, span.offset, span.size)) for span in spans]
        return children_plan(spans, names, limits=self.limits)

    def _keep(
        self,
        found: dict[Address, Nested],
        batch: dict[int, list[ByteRange]],
        opened: Sequence[Sequence[Opened | ComalError]],
    ) -> None:
        for (part, spans), results in zip(batch.items(), opened, strict=True):
            for span, one in zip(spans, settled(results), strict=True):
                address = Address(part, span.offset, span.size)
                where = self.name(address)
                stored = stored_table(one, where, self.limits)
                items = items_of(stored, one, where, typed=self.typed)
                own = one.header.collection
                has_own = own is not None and own.size > 0
                found[address] = Nested(items, one.kept, has_own, aliased(stored))
                self._remember(address, found[address])

    def _remember(self, address: Address, nested: Nested) -> None:
        # Single steps on a dict, no lock: two threads may both do the work, neither does harm.
        if nested.nbytes > _CACHE // 4:
            return
        if self._held > _CACHE:
            self._cache, self._held = {}, 0
        self._cache[address] = nested
        self._held += nested.nbytes

    def name(self, address: Address) -> str:
        """How messages call a nested file, or the bytes of an item."""
        return f"{self.where(address.part)} (bytes {address.offset}+{address.size})"


def _rebuild(parts: tuple[Part, ...], limits: Limits, typed: bool) -> Home:  # noqa: FBT001 - pickle
    return Home(parts, limits, typed=typed)


def _batches(addresses: Sequence[Address]) -> Iterator[dict[int, list[ByteRange]]]:
    """Addresses by part, so many at a time."""
    for start in range(0, len(addresses), _AT_ONCE):
        batch: dict[int, list[ByteRange]] = {}
        for one in addresses[start : start + _AT_ONCE]:
            batch.setdefault(one.part, []).append(ByteRange(one.offset, one.size))
        yield batch


# -- several files together ------------------------------------------------------------------------


T = TypeVar("T")

_THREADS = 16


def together(jobs: Sequence[Callable[[], T]], *, remote: bool) -> list[T | ComalError]:
    """What each job returns, or its error; side by side where they wait for a network."""
    if len(jobs) < 2 or not remote:
        return [_result(job) for job in jobs]
    return side_by_side([partial(_result, job) for job in jobs], _THREADS)


def _result(job: Callable[[], T]) -> T | ComalError:
    try:
        return job()
    except ComalError as error:
        return error


def settled(results: Sequence[T | ComalError]) -> list[T]:
    """The results, or the first error among them."""
    found: list[T] = []
    for result in results:
        if isinstance(result, ComalError):
            raise result
        found.append(result)
    return found


Ints = npt.NDArray[np.int64]

_BLOCK = 4 * MIB


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where the bytes of one item lie."""

    source: Source
    part: int
    """Position of the file in its set."""
    offset: int
    """Where they start in the file."""
    size: int
    format: str = ""
    """What the footer says they are."""

    def file(self) -> RangeFile:
        """A seekable binary file over the bytes."""
        return self.source.file("", self.offset, self.size)

    def blocks(self) -> Iterator[bytes]:
        """The bytes in blocks of 4 MiB."""
        with self.file() as file:
            while block := file.read(_BLOCK):
                yield block


@dataclass(frozen=True, slots=True)
class Leaves:
    """Where the bytes of many items lie, as columns."""

    parts: Ints
    offsets: Ints
    sizes: Ints

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def joined(cls, some: Sequence[Leaves]) -> Leaves:
        """Some leaves one behind the other."""
        each = [(one.parts, one.offsets, one.sizes) for one in some]
        return cls(*map(np.concatenate, zip(*each, strict=True))) if each else cls(*_NONE)


_NONE = np.zeros((3, 0), np.int64)


def read_leaves(home: Home, leaves: Leaves, kept: Sequence[Piece] = ()) -> list[bytes]:
    """The bytes of items, in order; one round trip."""
    groups = _groups(home, leaves, kept)
    jobs = [
        lambda part=part, rows=rows: home.parts[part].source.fetch_spans(
            leaves.offsets[rows], leaves.sizes[rows]
        )
        for part, rows in groups
    ]
    return _dealt(leaves, kept, groups, together(jobs, remote=home.is_remote))


def _groups(home: Home, leaves: Leaves, kept: Sequence[Piece]) -> list[tuple[int, Ints]]:
    """The rows that must be fetched, by part."""
    if not len(leaves):
        return []
    largest = int(leaves.sizes.argmax())
    size = int(leaves.sizes[largest])
    if size > home.limits.leaf_bytes:
        address = Address(int(leaves.parts[largest]), int(leaves.offsets[largest]), size)
        home.limits.check("leaf_bytes", size, home.name(address))
    missing = np.ones(len(leaves), bool)
    for piece in kept:
        missing &= ~_holds(piece, leaves)
    rows = np.flatnonzero(missing)
    parts = leaves.parts[rows]
    return [(part, rows[parts == part]) for part in np.unique(parts).tolist()]


def _holds(piece: Piece, leaves: Leaves) -> npt.NDArray[np.bool_]:
    return (piece.offset <= leaves.offsets) & (leaves.offsets + leaves.sizes <= piece.end)


def _dealt(
    leaves: Leaves,
    kept: Sequence[Piece],
    groups: Sequence[tuple[int, Ints]],
    fetched: Sequence[list[bytes] | ComalError],
) -> list[bytes]:
    answers = settled(fetched)
    if len(answers) == 1 and len(answers[0]) == len(leaves):
        return answers[0]
    found = [b""] * len(leaves)
    for piece in kept:
        for row in np.flatnonzero(_holds(piece, leaves)).tolist():
            found[row] = piece.slice(int(leaves.offsets[row]), int(leaves.sizes[row]))
    for (_, rows), answer in zip(groups, answers, strict=True):
        for row, data in zip(rows.tolist(), answer, strict=True):
            found[row] = data
    return found
