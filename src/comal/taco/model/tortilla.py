"""TORTILLA: a set of samples with one metadata schema (TACO 2.0, 5.3 and 7.1.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, counted, shown
from comal.limits import DEFAULT_LIMITS
from comal.public import guarded_class
from comal.samples.payloads import Bytes, Files, concat
from comal.samples.tables import Names
from comal.taco import spec
from comal.taco.extensions.base import SampleExtension, columns_for
from comal.taco.model.build import (
    Batches,
    base_folder,
    beside,
    build,
    check_fields,
    check_siblings,
    levels_from_tables,
    sample_table,
)
from comal.taco.model.build import batches as batch_stream
from comal.taco.model.columns import check_key, normal_table
from comal.taco.model.levels import Level, Levels, check_levels
from comal.taco.model.sample import Sample, as_table


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
    def from_levels(cls, levels: Levels, *, foreign: bool = False) -> Self:
        """A tortilla of levels that are columns already, such as those of another container."""
        check_levels(levels, foreign=foreign)
        self = cls._empty(strict_schema=True)
        self._levels = levels
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

    @property
    def metadata_table(self) -> Any:
        """The same as `to_arrow`."""
        return self.to_arrow()

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
        if isinstance(extension, SampleExtension):
            table = columns_for(extension, self._rows_with_paths())
        elif table is None and callable(extension):
            result = extension(self)
            table = as_table(result)
            texts: dict[str, str] = getattr(extension, "get_field_descriptions", dict)()
            if table is not None and texts:
                table = _with_descriptions(table, texts)
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


def _with_descriptions(table: Any, texts: Any) -> Any:
    fields = [
        field.with_metadata({"description": texts[field.name]}) if texts.get(field.name) else field
        for field in table.schema
    ]
    return normal_table(pa.table(table.columns, schema=pa.schema(fields)))
