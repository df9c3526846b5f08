"""Columns of a query as numpy arrays, and results as Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from comal import grid
from comal.errors import InvalidInputError, QueryError, shown
from comal.geo.wkb import crashing, look_for_curves
from comal.lazy import shapely
from comal.table.columns import one_array


def alike(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names that SQL takes for the same: those that differ only in the case of ASCII."""
    known: dict[bytes, str] = {}
    for name in names:
        other = known.setdefault(name.encode("utf-8", "surrogatepass").lower(), name)
        if other != name:
            yield other, name


def untyped(schema: Any) -> list[Any]:
    """Fields that DuckDB has no type for: half floats and 256-bit decimals, also nested ones."""
    return [field for field in schema if _lacks_type(field.type)]


def _lacks_type(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _lacks_type(kind.value_type)
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return pa.types.is_float16(kind) or pa.types.is_decimal256(kind) or any(map(_lacks_type, inner))


def vectorised(call: Callable[..., Any], kind: Any, optional: int = 0) -> Callable[..., Any]:
    """Make a function of columns with nulls, which returns null in rows with one.

    `call` gets Arrow arrays without nulls, except the last `optional` ones, which may have some. It
    returns an Arrow array of type `kind`, or values for one, of the same length; for a struct, a
    tuple of its fields.
    """

    def function(*columns: Any) -> Any:
        arrays = [one_array(column) for column in columns]
        rows = len(arrays[0])
        valid = np.ones(rows, np.bool_)
        for array in arrays[: len(arrays) - optional]:
            if array.null_count:
                valid &= array.is_valid().to_numpy(zero_copy_only=False)
        count = int(valid.sum())
        if not count:
            return pa.nulls(rows, kind)
        if count < rows:
            mask = pa.array(valid)
            arrays = [array.filter(mask) for array in arrays]
        result = call(*arrays)
        if isinstance(result, tuple):
            parts = [pa.array(part, field.type) for part, field in zip(result, kind, strict=True)]
            result = pa.StructArray.from_arrays(parts, fields=list(kind))
        if not isinstance(result, pa.Array):
            result = pa.array(result, kind)
        if result.type != kind:
            result = result.cast(kind)
        if count == rows:
            return result
        return result.take(pa.array(np.cumsum(valid) - 1, mask=~valid))

    return function


def perhaps_number(column: Any, what: str) -> list[int | float | None]:
    """Numbers of any type or None; integers stay integers."""
    found: list[int | float | None] = column.to_pylist()
    if column.null_count == len(column) or pa.types.is_integer(column.type):
        return found
    real(column.drop_null(), what)
    return [None if number is None else float(number) for number in found]


def whole(column: Any, what: str) -> Any:
    """Integers, even if a query writes 5.0."""
    if pa.types.is_integer(column.type):
        numbers = column.to_numpy(zero_copy_only=False)
        if column.type == pa.uint64() and (numbers > np.iinfo(np.int64).max).any():
            raise InvalidInputError(f"{what} is too large", found=int(numbers.max()))
        return numbers.astype(np.int64)
    values = real(column, what)
    if (values != np.floor(values)).any():
        raise InvalidInputError(f"{what} is not a whole number")
    return values.astype(np.int64)


def real(column: Any, what: str) -> Any:
    """Numbers of any type as float64."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InvalidInputError(f"{what} is not a number", found=str(kind))
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def texts(column: Any, what: str) -> list[str]:
    """Texts."""
    if not is_text(column):
        raise InvalidInputError(f"{what} is not text", found=str(column.type))
    found: list[str] = column.to_pylist()
    return found


def is_bytes(column: Any) -> bool:
    """Whether a column holds blobs."""
    return bool(pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type))


def is_text(column: Any) -> bool:
    """Whether a column holds texts."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def blobs(column: Any, what: str) -> list[bytes]:
    """Blobs."""
    if not is_bytes(column):
        raise InvalidInputError(f"{what} is not a blob", found=str(column.type))
    found: list[bytes] = column.to_pylist()
    return found


def shapes(column: Any) -> Any:
    """Geometries: DuckDB's own type, WKB or WKT; an integer is a QUADBIN cell and means its box."""
    unique, rows = unique_shapes(column)
    return unique[rows]


def unique_shapes(column: Any) -> tuple[Any, Any]:
    """As `shapes`: the distinct geometries, and their index for each row."""
    # Most queries have one geometry for all rows.
    coded = column.dictionary_encode()
    given = coded.dictionary
    if is_bytes(column):
        read = shapely.from_wkb
    elif is_text(column):
        read = shapely.from_wkt
    elif pa.types.is_integer(column.type):
        boxes = shapely.box(*grid.bounds(whole(given, "block")))
        return boxes, coded.indices.to_numpy()
    else:
        raise QueryError(
            "not a geometry", found=str(column.type), expected="a GEOMETRY, WKB, WKT or a block"
        )
    values = given.to_numpy(zero_copy_only=False)
    if crashing(values):
        raise QueryError("a geometry nests too many collections")
    try:
        found = np.asarray(read(values), object)
        look_for_curves(found)
    except (shapely.errors.ShapelyError, NotImplementedError) as error:  # the latter of curves
        raise QueryError("not a geometry", found=shown(str(error), 100)) from error
    return found, coded.indices.to_numpy()


def coordinates(column: Any) -> tuple[Any, Any]:
    """Longitudes and latitudes of points; NaN for empty ones."""
    found = shapes(column)
    if (shapely.get_type_id(found) != shapely.GeometryType.POINT).any():
        raise InvalidInputError("not a point")
    # Empty points have no coordinates.
    there = ~shapely.is_empty(found)
    places = np.full((len(found), 2), np.nan)
    places[there] = shapely.get_coordinates(found[there])
    return places[:, 0], places[:, 1]


_SQL_TYPES = {
    pa.float64(): "DOUBLE",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint64(): "UBIGINT",
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
}


def sql_type(kind: Any) -> str:
    """The SQL name of an Arrow type."""
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{one.name} {sql_type(one.type)}' for one in kind)})"
    return _SQL_TYPES[kind]
