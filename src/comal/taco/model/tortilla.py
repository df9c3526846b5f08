"""TORTILLA: a set of samples with one metadata schema (TACO 2.0, 5.3 and 7.1.1).

A level is made in bulk from all its samples, whichever tortilla they stand in, so that many small
tortillas cost little more than one large one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, counted, shown
from comal.limits import DEFAULT_LIMITS
from comal.public import guarded_class
from comal.samples.payloads import Bytes, Files, Payloads, concat, payloads_of
from comal.samples.tables import Names
from comal.taco import spec
from comal.taco.extensions.base import ComputedColumns, SampleExtension, columns_for
from comal.taco.model.columns import (
    Chunk,
    Who,
    agreed,
    as_table,
    check_key,
    check_values,
    column,
    missing_field,
    unify,
)
from comal.taco.model.levels import (
    Level,
    Levels,
    check_depth,
    check_twins,
    flat,
    is_padding,
    path_of,
)
from comal.taco.model.sample import Sample
from comal.taco.model.tables import Batches, levels_from_tables
from comal.taco.model.tables import batches as batch_stream


@guarded_class
class Tortilla:
    """A set of samples.

    Parameters
    ----------
    samples
        At least one `Sample`.
    pad_to
        Append empty samples ``__TACOPAD__0``, ``__TACOPAD__1``, ... until the number of samples is
        a multiple of this.
    strict_schema
        Whether all samples, and all samples below them at one level, must have the same fields of
        the same types (PIT-2). Otherwise missing fields become null and integers are widened to
        floating point.

    Raises
    ------
    InvalidInputError
        No sample, two samples of one id (also when case is ignored), or fields that do not agree.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        pad_to: int | None = None,
        strict_schema: bool = True,  # noqa: FBT001, FBT002 - the signature of the specification
    ) -> None:
        self.strict_schema = strict_schema
        self._levels: Levels | None = None
        self._stream: Batches | None = None
        self._added: Any = None
        if not isinstance(samples, Iterable):
            raise InvalidInputError(
                "samples of a tortilla are no list",
                found=type(samples).__name__,
                expected="a sequence of Sample",
                hint="from_table takes a table",
            )
        self._samples: list[Sample] | None = list(samples)
        if not self._samples:
            raise InvalidInputError("tortilla has no samples", expected="at least one")
        for sample in self._samples:
            if not isinstance(sample, Sample):
                raise InvalidInputError(
                    "tortilla holds something else", found=type(sample).__name__
                )
        check_siblings(self._samples)
        check_fields(self._samples, strict=strict_schema)
        self._samples += _padding(len(self._samples), pad_to)

    # -- other ways in ----------------------------------------------------------------------

    @classmethod
    def _empty(cls, *, strict_schema: bool) -> Self:
        self = cls.__new__(cls)
        self.strict_schema = strict_schema
        self._samples = self._levels = self._stream = self._added = None
        return self

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        id: str = spec.ID,  # noqa: A002 - names of the specification's columns
        path: str = spec.PATH,
        type: str | None = None,  # noqa: A002 - as above
        base: str | None = None,
        pad_to: int | None = None,
    ) -> Self:
        """FILE samples as a table: one row each, and no object per sample.

        Parameters
        ----------
        table
            Arrow table or record batch, polars or pandas frame.
        id, path, type
            Names of the columns. Paths are text (local files) or binary (the payloads
            themselves). Without `type` all are FILE. Every other column is a metadata field.
        base
            Folder for relative paths; the working folder when None.
        pad_to
            As for the class.

        Raises
        ------
        InvalidInputError
            A bad id, a column that is missing or cannot be stored.
        """
        return cls.from_tables([table], id=id, path=path, type=type, base=base, pad_to=pad_to)

    @classmethod
    def from_tables(
        cls,
        tables: Sequence[Any],
        *,
        parent: str = "parent",
        id: str = spec.ID,  # noqa: A002 - as in from_table
        path: str = spec.PATH,
        type: str | None = None,  # noqa: A002 - as in from_table
        base: str | None = None,
        pad_to: int | None = None,
        strict_schema: bool = True,
    ) -> Self:
        """Nested samples as one table per level, level 0 first.

        Rows without a path are FOLDER samples. From level 1 on the column `parent` names the
        FOLDER that a row belongs to: by its row number in the table above, or by its id path
        (``scene_000/imagery``). Rows may come in any order; siblings keep theirs. The other
        parameters are those of `from_table`.
        """
        names = Names(id, path, parent, type, base_folder(base))
        levels = levels_from_tables(tables, names)
        if pad_to is not None:
            levels = (_padded_level(levels[0], pad_to), *levels[1:])
        self = cls._empty(strict_schema=strict_schema)
        self._levels = levels
        return self

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        schema: Any,
        id: str = spec.ID,  # noqa: A002 - as in from_table
        path: str = spec.PATH,
        base: str | None = None,
    ) -> Self:
        """FILE samples that come in batches and are written as they come.

        `create` writes them to a ZIP, a FOLDER or, with `split_size` and `group_by`, several ZIPs;
        of at most a hundred groups, as the archive of each is open until the last batch.

        Parameters
        ----------
        batches
            Iterator of record batches or tables, or a function that returns one; only with a
            function can the tortilla be written more than once.
        schema
            Arrow schema of the batches, with the columns `id` and `path`.
        id, path, base
            As in `from_table`.
        """
        self = cls._empty(strict_schema=True)
        self._stream = batch_stream(batches, schema, Names(id, path, "", base=base_folder(base)))
        return self

    # -- what it is ---------------------------------------------------------------------------

    @property
    def own_samples(self) -> list[Sample] | None:
        """The samples where they were given as objects, else None."""
        return self._samples

    @property
    def added_fields(self) -> Any:
        """Fields that extensions added to the tortilla as a whole: a table, or None."""
        return self._added

    @property
    def stream(self) -> Batches | None:
        """The batches, when the samples come as such."""
        return self._stream

    @property
    def samples(self) -> list[Sample]:
        """The samples, padding included; only where they were given as `Sample` objects."""
        if self._samples is None:
            raise InvalidInputError(
                "tortilla was made of tables, it has no Sample objects",
                hint="to_arrow() has its rows",
            )
        return self._samples

    def __len__(self) -> int:
        if self._samples is not None:
            return len(self._samples)
        return self.levels()[0].rows

    def __repr__(self) -> str:
        if self._stream is not None:
            return "Tortilla(in batches)"
        return f"Tortilla({counted(len(self), 'sample')})"

    def levels(self) -> Levels:
        """The samples and all that is below them, as columns (made once, then kept).

        Raises
        ------
        InvalidInputError
            Fields that do not agree within a level.
        LimitExceededError
            More than six levels.
        """
        if self._stream is not None:
            raise InvalidInputError("samples come in batches: their number is not known yet")
        if self._levels is None:
            self._levels = build(self)
        return self._levels

    def to_arrow(self) -> Any:
        """The samples as an Arrow table: id, type and the metadata fields, a row each."""
        if self._samples is not None and self._levels is None:
            return sample_table(self._samples, strict=self.strict_schema, added=self._added)
        return self.levels()[0].table

    def export_metadata(self, deep: int = 0) -> Any:
        """The metadata of the samples `deep` levels below as an Arrow table.

        From 1 on with the columns ``internal:current_id`` and ``internal:parent_id``.
        """
        levels = self.levels()
        if not 0 <= deep < len(levels):
            raise InvalidInputError("no such level", found=deep, expected=f"0 to {len(levels) - 1}")
        level = levels[deep]
        if deep == 0:
            return level.table
        table = level.table.append_column(spec.CURRENT_ID, pa.array(np.arange(level.rows)))
        return table.append_column(spec.PARENT_ID, pa.array(level.parent))

    # -- more fields ------------------------------------------------------------------------------

    def extend_with(self, extension: Any) -> Self:
        """Add fields that are computed over all samples.

        Parameters
        ----------
        extension
            A `TortillaExtension`, a table with one row per sample, or a `SampleExtension`, which
            is then applied to every sample, all at once where it can.

        Returns
        -------
        Tortilla
            This tortilla.

        Raises
        ------
        InvalidInputError
            A field that is there already, or another number of rows.
        """
        table = self._extension_table(extension)
        known = self.to_arrow().column_names
        if table.num_rows != len(self):
            raise InvalidInputError(
                "extension does not have one row per sample",
                found=counted(table.num_rows, "row"),
                expected=counted(len(self), "row"),
            )
        for name in table.column_names:
            check_key(name)
            if name in known:
                raise InvalidInputError(f"field {shown(name)} is there already")
        if self._samples is None:
            first, *rest = self.levels()
            joined = beside(first.table, table)
            self._levels = (Level(joined, first.parent, first.payloads), *rest)
        else:
            self._added = table if self._added is None else beside(self._added, table)
            self._levels = None
        return self

    def _extension_table(self, extension: Any) -> Any:
        table = as_table(extension)
        if isinstance(extension, SampleExtension | ComputedColumns):
            table = columns_for(extension, self._rows_with_paths())
        elif table is None and callable(extension):
            table = as_table(extension(self))
        if table is None:
            raise InvalidInputError(
                "tortilla cannot be extended with this",
                found=type(extension).__name__,
                expected="a TortillaExtension or a table with a row per sample",
            )
        return table

    def _rows_with_paths(self) -> Any:
        """The samples as `to_arrow` has them, and where their data is: paths, bytes or null."""
        table = self.to_arrow()
        payloads = self.levels()[0].payloads
        if isinstance(payloads, Files):
            return table.append_column(spec.PATH, payloads.paths)
        if isinstance(payloads, Bytes):
            data = payloads.data
            return table.append_column(
                spec.PATH, pa.array(data, pa.binary()) if isinstance(data, list) else data
            )
        return table.append_column(spec.PATH, pa.nulls(len(self), pa.string()))

    def pop(self, field: str) -> Any:
        """Remove a field from all samples and return its column."""
        column = self.to_arrow()
        if field not in column.column_names or field in spec.CORE_COLUMNS:
            raise InvalidInputError(f"no field {shown(field)}")
        if self._added is not None and field in self._added.column_names:
            self._added = self._added.drop_columns([field])
            self._levels = None
        elif self._samples is not None:
            for sample in self._samples:
                if field in sample.metadata:
                    sample.pop(field)
            self._levels = None
        else:
            first, *rest = self.levels()
            table = first.table.drop_columns([field])
            self._levels = (Level(table, first.parent, first.payloads), *rest)
        return column.column(field)


def _padding_count(count: int, pad_to: Any) -> int:
    if pad_to is None:
        return 0
    if not isinstance(pad_to, int | np.integer) or isinstance(pad_to, bool) or pad_to < 1:
        raise InvalidInputError("pad_to is no positive number", found=shown(pad_to))
    DEFAULT_LIMITS.check("table_rows", -count % int(pad_to), "pad_to")
    return -count % int(pad_to)


def _padding(count: int, pad_to: int | None) -> list[Sample]:
    return [
        Sample(f"{spec.PAD_PREFIX}{number}", b"") for number in range(_padding_count(count, pad_to))
    ]


def _padded_level(level: Level, pad_to: int) -> Level:
    count = _padding_count(level.rows, pad_to)
    if count == 0:
        return level
    columns = [pa.nulls(count, found.type) for found in level.table.schema]
    columns[0] = pa.array([f"{spec.PAD_PREFIX}{number}" for number in range(count)])
    columns[1] = pa.array([spec.FILE] * count)
    padding = pa.table(columns, schema=level.table.schema)
    return Level(
        pa.concat_tables([level.table, padding]),
        np.arange(level.rows + count),
        concat([level.payloads, Bytes([b""] * count)]),
    )


def base_folder(base: str | os.PathLike[str] | None) -> str:
    """The folder for relative paths: what was given, or the working folder now."""
    return str(Path(base or ".").absolute())


# -- samples as columns ----------------------------------------------------------------------------


def check_siblings(samples: Sequence[Sample]) -> None:
    """Refuse ids that stand twice, or that are one name where case is ignored."""
    ids = [sample.id for sample in samples]
    # Lower case is folding enough for ASCII; the rest is left to the rules of names.
    if len({name.lower() for name in ids}) == len(ids) and all(map(str.isascii, ids)):
        return
    check_twins(pa.array(ids, pa.string()))


def check_fields(samples: Sequence[Sample], *, strict: bool) -> None:
    """Refuse samples whose fields, or the types of these, differ (PIT-2); padding has none."""
    real = [sample for sample in samples if not _is_padding(sample)]
    if not strict or not real:
        return
    first = real[0].metadata.keys()
    for sample in real:
        if sample.metadata.keys() != first:
            _raise_missing(real[0], sample)
    for key in first:
        if real[0].declared(key) is None:
            check_values(key, [sample.metadata[key] for sample in real], lambda n: real[n].id)


def _raise_missing(first: Sample, second: Sample) -> None:
    for one, other in ((first, second), (second, first)):
        for key in one.metadata:
            if key not in other.metadata:
                raise missing_field(key, one.id, other.id)


def _is_padding(sample: Sample) -> bool:
    return sample.id.startswith(spec.PAD_PREFIX)


# -- from samples to columns -------------------------------------------------------------------


def sample_table(samples: Sequence[Sample], *, strict: bool, added: Any = None) -> Any:
    """Samples as a table; padding has null in every field."""
    keys = dict.fromkeys(chain.from_iterable(s.metadata for s in _schema_givers(samples, strict)))
    columns = [
        pa.array([sample.id for sample in samples], pa.string()),
        pa.array([sample.type for sample in samples], pa.string()),
    ]
    fields = [pa.field(name, pa.string()) for name in spec.CORE_COLUMNS]
    for key in keys:
        declared = _declared(samples, key, strict=strict)
        columns.append(
            column(
                key,
                [sample.metadata.get(key) for sample in samples],
                lambda row: samples[row].id,
                declared=None if declared is None else declared.type,
                strict=strict,
            )
        )
        fields.append(
            pa.field(key, columns[-1].type, metadata=declared.metadata if declared else None)
        )
    table = pa.table(columns, schema=pa.schema(fields))
    return table if added is None else beside(table, added)


def _schema_givers(samples: Sequence[Sample], strict: bool) -> Sequence[Sample]:  # noqa: FBT001
    """The samples that have to be asked for their fields: in a strict tortilla one will do."""
    if not strict:
        return samples
    real = next((sample for sample in samples if not _is_padding(sample)), samples[0])
    return [real]


def _declared(samples: Sequence[Sample], key: str, *, strict: bool) -> Any:
    """The Arrow field that extensions gave `key`; all that give one must agree."""
    known: tuple[Any, Who] | None = None
    for sample in samples:
        found = sample.declared(key)
        if found is not None and not (known and found is known[0]):
            known = agreed(known, (found, partial(_id_of, sample)), strict=strict)
    return None if known is None or pa.types.is_null(known[0].type) else known[0]


def _id_of(sample: Sample, _row: int) -> str:
    return sample.id


def beside(table: Any, more: Any) -> Any:
    """The table with the columns of `more` behind its own."""
    for position, field in enumerate(more.schema):
        table = table.append_column(field, more.column(position))
    return table


_Below = tuple[Any, int, int]
"""What a parent has below it: a tortilla and its row, or levels, a depth and a first row."""


def build(root: Tortilla) -> Levels:
    """All levels of a tortilla, breadth first; neighbours that are samples are taken in bulk."""
    levels: list[Level] = []
    layer: list[_Below] = [(root, 0, -1)]
    while layer:
        check_depth(len(levels) + 1)
        chunks, parents, payloads, below = _layer(layer, levels)
        table = unify(chunks, strict=root.strict_schema)
        parent = np.concatenate(parents)
        if not levels:
            parent = np.arange(len(parent))
        levels.append(Level(table, parent, concat(payloads)))
        layer = below
    return tuple(levels)


def _layer(
    layer: Sequence[_Below], above: Sequence[Level]
) -> tuple[list[Chunk], list[Any], list[Payloads], list[_Below]]:
    chunks: list[Chunk] = []
    parents: list[Any] = []
    payloads: list[Payloads] = []
    below: list[_Below] = []
    start = 0
    for group in _groups(layer):
        owner, base, depth = group[0]
        if depth >= 0 or owner.own_samples is None:
            # Levels that are columns already: this one now, the deeper ones in the next layers.
            levels = owner if depth >= 0 else owner.levels()
            level = levels[max(depth, 0)]
            table, held = level.table, level.payloads
            parent = level.parent + base if depth > 0 else np.full(level.rows, base)
            if len(levels) > max(depth, 0) + 1:
                below.append((levels, start, max(depth, 0) + 1))
        else:
            table, held, parent, samples = _bulk(group)
            below += [
                (s.path, start + n, -1) for n, s in enumerate(samples) if s.type == spec.FOLDER
            ]
        real = None if not above else ~is_padding(flat(table.column(spec.ID)))
        chunks.append(Chunk(table, _who(table, parent, above), real))
        parents.append(parent)
        payloads.append(held)
        start += len(parent)
    return chunks, parents, payloads, below


def _groups(layer: Sequence[_Below]) -> Iterable[Sequence[_Below]]:
    """Cut a layer into runs of sample tortillas of one strictness, and single other ones."""
    run: list[_Below] = []
    for item in layer:
        owner, _, depth = item
        plain = depth < 0 and owner.own_samples is not None and owner.added_fields is None
        if run and (not plain or owner.strict_schema != run[0][0].strict_schema):
            yield run
            run = []
        if plain:
            run.append(item)
        else:
            yield [item]
    if run:
        yield run


def _bulk(group: Sequence[_Below]) -> tuple[Any, Payloads, Any, list[Sample]]:
    samples = list(chain.from_iterable(owner.own_samples for owner, _, _ in group))
    counts = [len(owner.own_samples) for owner, _, _ in group]
    parent = np.repeat([base for _, base, _ in group], counts)
    strict = group[0][0].strict_schema
    if strict and len(group) > 1:
        check_fields(samples, strict=True)
    table = sample_table(samples, strict=strict, added=group[0][0].added_fields)
    # FOLDER rows are null: their bytes are made while writing.
    paths = [sample.path if isinstance(sample.path, str | bytes) else None for sample in samples]
    return table, payloads_of(paths), parent, samples


def _who(table: Any, parent: Any, above: Sequence[Level]) -> Who:
    def who(row: int) -> str:
        name = str(table.column(spec.ID)[row].as_py())
        return f"{path_of(above, len(above) - 1, int(parent[row]))}/{name}" if above else name

    return who
