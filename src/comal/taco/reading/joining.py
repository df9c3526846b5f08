"""Several datasets as one, lazily (7.2.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.geo import boxes
from comal.public import warn
from comal.taco import spec
from comal.taco.reading.dataset import TacoDataset
from comal.taco.reading.stages import ColumnMode, Union
from comal.taco.spec import TacoWarning

_MODES = ("intersection", "fill_missing", "strict")


def concat(
    datasets: Sequence[TacoDataset], column_mode: ColumnMode = "intersection"
) -> TacoDataset:
    """One lazy dataset with the rows of all, in their order. The inputs stay as they are.

    ``internal:source_file`` names the dataset that a row came from, and every join between levels
    compares it too, so that rows of one never answer for another.

    Parameters
    ----------
    datasets
        At least one.
    column_mode
        ``"intersection"`` keeps the columns that all have and warns about the others,
        ``"fill_missing"`` keeps all and fills them with null, with a warning, ``"strict"`` refuses
        datasets whose columns differ.

    Raises
    ------
    InvalidInputError
        No dataset, something else than datasets, an unknown mode, columns that differ in strict
        mode, a column whose types do not fit, or root types that differ.
    """
    datasets = _listed(datasets)
    if not datasets:
        raise InvalidInputError("nothing to concatenate", expected="at least one dataset")
    if column_mode not in _MODES:
        raise InvalidInputError(
            "unknown column mode", found=shown(column_mode), expected=", ".join(_MODES)
        )
    if len(datasets) == 1:
        return datasets[0]
    kinds = {dataset.pit_schema.root_type for dataset in datasets}
    if len(kinds) > 1:
        raise InvalidInputError(
            "datasets of FILE and of FOLDER samples do not go together",
            found=", ".join(sorted(kinds)),
        )
    columns = _columns(datasets, column_mode)
    union = Union(tuple(dataset.view for dataset in datasets), tuple(columns), column_mode)
    return TacoDataset(union, _merged([dataset.collection for dataset in datasets]))


def _listed(given: object) -> list[TacoDataset]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise InvalidInputError(
            "concat takes a list of datasets",
            found=f"one {type(given).__name__}",
            hint="concat([one, other])",
        )
    datasets = list(given)
    for number, one in enumerate(datasets):
        if not isinstance(one, TacoDataset):
            raise InvalidInputError(
                "not a dataset",
                where=f"item {number} of what concat was given",
                found=f"{type(one).__name__} {shown(one)}",
                hint="pass what load returns; load([path, path]) opens several as one",
            )
    return datasets


def _columns(datasets: Sequence[TacoDataset], mode: ColumnMode) -> list[str]:
    """Public columns of the result; ``internal:source_file`` always, the GDAL path last."""
    schemas = [_user_schema(dataset) for dataset in datasets]
    _check_types(schemas)
    names = list(dict.fromkeys(name for schema in schemas for name in schema.names))
    missing = {
        name: [
            d.id for d, schema in zip(datasets, schemas, strict=True) if name not in schema.names
        ]
        for name in names
    }
    missing = {name: ids for name, ids in missing.items() if ids}
    said = {name: ids for name, ids in missing.items() if not name.startswith(spec.INTERNAL)}
    if mode == "strict" and said:
        raise InvalidInputError(
            "the columns of the datasets differ",
            found="; ".join(
                f"{shown(one.id)}: {', '.join(shown(n) for n in schema.names if n in said) or '-'}"
                for one, schema in zip(datasets, schemas, strict=True)
            ),
            expected="the same columns in all; common are "
            + ", ".join(shown(name) for name in names if name not in missing),
            hint="pass column_mode='intersection' or 'fill_missing'",
        )
    if said:
        action = "dropped" if mode == "intersection" else "filled with null"
        listed = "; ".join(
            f"{shown(name)} (not in {', '.join(shown(i) for i in ids)})"
            for name, ids in said.items()
        )
        warn(f"columns {action}: {listed}", TacoWarning)
    kept = [
        name
        for name in names
        # Navigation needs these whatever the mode; where there is none they are null.
        if name not in missing or mode == "fill_missing" or name in spec.PROTECTED_COLUMNS
    ]
    ordered = [name for name in kept if name not in {spec.SOURCE_FILE, spec.GDAL_VSI}]
    return [*ordered, spec.SOURCE_FILE, *([spec.GDAL_VSI] if spec.GDAL_VSI in kept else [])]


def _user_schema(dataset: TacoDataset) -> Any:
    schema = dataset.schema
    lacking = {spec.ID, spec.TYPE, spec.CURRENT_ID} - set(schema.names)
    if lacking:
        raise InvalidInputError(
            "a dataset lacks columns that concatenation needs",
            where=shown(dataset.id),
            expected=", ".join(sorted(lacking)),
            hint="keep the internal: columns in its query (SELECT *)",
        )
    return schema


def _check_types(schemas: Sequence[Any]) -> None:
    for schema in schemas[1:]:
        for field in schema:
            first = next(s for s in schemas if field.name in s.names).field(field.name)
            try:
                pa.unify_schemas(
                    [pa.schema([first]), pa.schema([field])], promote_options="permissive"
                )
            except pa.ArrowException as error:
                raise InvalidInputError(
                    f"column {shown(field.name)} has types that do not fit",
                    found=f"{first.type} and {field.type}",
                ) from error


# -- the collection of the whole -------------------------------------------------------------------


def _merged(collections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first collection with counts summed and extents united."""
    merged = dict(collections[0])
    merged[spec.PIT_SCHEMA] = _summed([c.get(spec.PIT_SCHEMA) for c in collections])
    extents = [c.get("extent") for c in collections]
    known = [extent for extent in extents if isinstance(extent, Mapping)]
    if known:
        merged["extent"] = {"spatial": _united(known), "temporal": _spanned(known)}
    return merged


def _summed(documents: Sequence[Any]) -> dict[str, Any]:
    schemas = [spec.PITSchema.from_dict(document) for document in documents]
    first = max(schemas, key=lambda schema: schema.levels)
    hierarchy = {
        level: tuple(
            spec.PITPattern(
                sum(
                    schema.hierarchy[level][place].n
                    for schema in schemas
                    if place < len(schema.hierarchy.get(level, ()))
                ),
                pattern.type,
                pattern.id,
            )
            for place, pattern in enumerate(patterns)
        )
        for level, patterns in first.hierarchy.items()
    }
    total = sum(schema.root_n for schema in schemas)
    return spec.PITSchema(total, first.root_type, hierarchy).to_dict()


def _united(extents: Sequence[Mapping[str, Any]]) -> list[float] | None:
    found = [extent.get("spatial") for extent in extents]
    known = [box for box in found if isinstance(box, list) and len(box) == 4]
    if not known:
        return None
    box = boxes.union_box(*zip(*known, strict=True))
    return None if box is None else list(box)


def _spanned(extents: Sequence[Mapping[str, Any]]) -> list[str] | None:
    found = [extent.get("temporal") for extent in extents]
    known = [pair for pair in found if isinstance(pair, list) and len(pair) == 2 and all(pair)]
    # ISO 8601 texts of one zone sort as their times do.
    return [min(p[0] for p in known), max(p[1] for p in known)] if known else None
