"""From `Sample` objects to columns: the checks when samples come together, and the levels.

A level is made in bulk from all its samples, whichever tortilla they stand in, so that many small
tortillas cost little more than one large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from comal import names as name_rules
from comal.errors import InvalidInputError, shown
from comal.samples.payloads import Payloads, concat, payloads_of
from comal.taco import spec
from comal.taco.model.columns import Chunk, check_values, column, missing_field, unify
from comal.taco.model.levels import Level, Levels, check_depth, flat, is_padding, path_of
from comal.taco.model.sample import Sample

if TYPE_CHECKING:
    from comal.taco.model.tortilla import Tortilla


def check_siblings(samples: Sequence[Sample]) -> None:
    """Refuse ids that stand twice, or that are one name where case is ignored."""
    ids = [sample.id for sample in samples]
    # Lower case is folding enough for ASCII; the rest is left to the rules of names.
    if len({name.lower() for name in ids}) == len(ids) and all(map(str.isascii, ids)):
        return
    column = pa.array(ids, pa.string())
    for fold, text in ((False, "stand twice"), (True, "are one name where case is ignored")):
        for first, second in name_rules.twins(column, fold=fold)[:1]:
            raise InvalidInputError(
                f"ids {shown(ids[first])} and {shown(ids[second])} {text} in a tortilla",
                where=f"samples {first} and {second}",
            )


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
    known: tuple[Any, Sample] | None = None
    for sample in samples:
        found = sample.declared(key)
        if found is None or (known and found is known[0]):
            continue
        if known is None or (pa.types.is_null(known[0].type) and not pa.types.is_null(found.type)):
            known = (found, sample)
        elif not found.type.equals(known[0].type) and not pa.types.is_null(found.type):
            chunks = [
                Chunk(pa.table([pa.nulls(1, kind.type)], [key]), lambda _, s=owner: s.id)  # type: ignore[misc]
                for kind, owner in (known, (found, sample))
            ]
            known = (unify(chunks, strict=strict).schema.field(key), known[1])
    return None if known is None or pa.types.is_null(known[0].type) else known[0]


def _sample_payloads(samples: Sequence[Sample]) -> Payloads:
    # FOLDER rows are null: their bytes are made while writing.
    paths = [sample.path for sample in samples]
    payloads: Payloads = payloads_of([p if isinstance(p, str | bytes) else None for p in paths])
    return payloads


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
    return table, _sample_payloads(samples), parent, samples


def _who(table: Any, parent: Any, above: Sequence[Level]) -> Callable[[int], str]:
    def who(row: int) -> str:
        name = str(table.column(spec.ID)[row].as_py())
        return f"{path_of(above, len(above) - 1, int(parent[row]))}/{name}" if above else name

    return who
